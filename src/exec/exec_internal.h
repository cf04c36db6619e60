/*-------------------------------------------------------------------------
 *
 * exec_internal.h
 *	  What the files of src/exec share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_EXEC_INTERNAL_H
#define SOFORT_EXEC_INTERNAL_H

#include "executor/execdesc.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "sofort/exec/exec.h"
#include "sofort/store/workload.h"
#include "tcop/utility.h"

#define TABLE_AM_NAME	"sofort"
#define INDEX_AM_NAME	"sofort_index"

/* ---- constraint_index.c ---- */

/* What an ALTER TABLE leaves to be done after it; NULL: nothing. */
typedef struct AlterFollowUp AlterFollowUp;

/* CREATE INDEX, also those that CREATE TABLE generates; scribbles on stmt. */
extern void constraint_fix_index(IndexStmt *stmt, bool generated);

/*
 * Before ALTER TABLE: locks the relation as the command will, changes the
 * statement in place, converts indexes that the command could not cope with.
 */
extern AlterFollowUp *constraint_before_alter(AlterTableStmt *stmt);
extern void constraint_after_alter(AlterFollowUp *follow_up);

/* pg_class.relam; InvalidOid if there is no such relation. */
extern Oid	exec_relation_am(Oid relid);

/* ---- convert_index.c ---- */

/*
 * Changes the access method of the index to am: catalogs, this backend's relcache entry
 * and, if rebuild, the contents.  The caller holds AccessExclusiveLock on the table.
 * Without rebuild the caller knows that something else rebuilds the index, or that it is
 * converted back before anybody reads it.
 */
extern void index_convert(Oid index, Oid am, bool rebuild);

/* Rebuilds the index, as REINDEX does. */
extern void index_rebuild(Oid index);

/* Is this a storage parameter of btree, or else of sofort_index? */
extern bool index_option_fits(const char *name, bool btree);

/*
 * Does the access method know all storage parameters of the index?  The second function
 * drops those that it does not know.
 */
extern bool index_options_fit(Oid index, Oid am);
extern void index_keep_options(Oid index, Oid am);

/* pg_class.reloptions of an index, copied; (Datum) 0 if NULL.  The second function sets them. */
extern Datum index_options(Oid index);
extern void index_set_options(Oid index, Datum options);

/* ---- refuse.c ---- */

/* 0A000 for what this version does not support. */
extern void refuse_publication(List *objects);
extern void refuse_conversion(Oid relid);
extern void refuse_exclusion(const char *access_method);

/* ---- database.c ---- */

/* CREATE DATABASE: notes the template, from which stores are copied once it is locked. */
extern void template_begin(const CreatedbStmt *stmt);
extern void template_copy(Oid new_db);
extern void template_end(void);

/* ALTER DATABASE SET TABLESPACE: its indexes in DRAM are forgotten. */
extern bool database_moves(const AlterDatabaseStmt *stmt);
extern void database_before_alter(const AlterDatabaseStmt *stmt);
extern void database_end_of_xact(bool commit);

/* ---- temporary.c ---- */

/*
 * CREATE TABLE, CREATE TABLE AS, SELECT INTO (also under EXPLAIN): a temporary
 * table that would get sofort by default gets heap; changes the statement in
 * place.  0A000 if sofort is asked for by name.
 */
extern void temporary_before_create(Node *stmt);

/* The same for ALTER TABLE ...  SET ACCESS METHOD of a temporary table. */
extern void temporary_before_alter(Oid relid, AlterTableStmt *stmt);

/* ---- plan_hooks.c ---- */

extern void plan_started(QueryDesc *desc, int eflags);

/* ---- direct.c ---- */

extern bool direct_start(QueryDesc *query, int eflags);

/* ---- needed_columns.c ---- */

/* A node of a plan that was started; in the query's memory context. */
extern void needed_columns(PlanState *node);

/* ---- statement.c ---- */

/* Installs the planner hook. */
extern void statement_init(void);

/* A function is being prepared for execution (OAT_FUNCTION_EXECUTE). */
extern void statement_function(Oid function);

/* A plan is about to be executed. */
extern void statement_started(const PlannedStmt *plan);

/* An index or table is dropped, if the transaction commits. */
extern void statement_relation_dropped(Oid relid);
extern void statement_pre_commit(void);
extern void statement_end_of_xact(bool commit);

/* ---- what_if.c ---- */

/*
 * Puts parameters in place of the calls that planning evaluates.  NULL if it
 * might evaluate functions of users even so.
 */
extern Query *what_if_without_calls(Query *query);

/*
 * Fills command, structures, tables and costs of a kind.  The query is not
 * changed.  Errors: those of planning.
 */
extern void what_if_describe(const Query *query, const char *text, int options,
							 ParamListInfo params, WorkloadKind *kind);

/* ---- sequences.c ---- */

/* A function is being prepared for execution (OAT_FUNCTION_EXECUTE). */
extern void sequences_function(Oid function);

/* For the time of ExecutorStart: the state before, and what the plan turned out to use. */
typedef struct SequenceScope
{
	bool		in_start;
	int			calls;
} SequenceScope;

extern void sequences_enter(SequenceScope *outer);
extern void sequences_leave(const SequenceScope *outer);
extern void sequences_note_plan(QueryDesc *desc);
extern void sequences_note_copy(const CopyStmt *stmt);

/* A statement has ended, or one within it, or a cursor has moved. */
extern void sequences_statement_end(void);

/* ---- keepable.c ---- */

/*
 * For what makes a transaction unfit to be kept: raises 0A000 if it is kept already, else
 * notes it.
 */
extern void keepable_utility(Node *stmt);
extern void keepable_function(Oid function);
extern void keepable_plan(const PlannedStmt *stmt);	/* only if it is kept */
extern void keepable_so_far(void);
extern void keepable_statement_end(void);
extern void keepable_resumed(Oid relid, bool writes);
extern bool keepable_is_clean(void);
extern void keepable_end_of_xact(void);
extern void keepable_init(void);

/* ---- continuation.c ---- */

/* To be called around anything that may execute statements of its own. */
extern void continuation_enter(void);
extern void continuation_leave(void);
extern bool continuation_at_top(void);

/* Called then: has the statement ended that the client has sent? */
extern void continuation_run_again(const QueryDesc *desc);
extern void continuation_run_done(const QueryDesc *desc);
extern void continuation_executor_done(const PlannedStmt *stmt);
extern void continuation_utility_done(const PlannedStmt *stmt, ProcessUtilityContext context);

/* False if a client calls a function by the protocol's message for that. */
extern bool continuation_in_statement(void);

extern void continuation_start_sub(void);
extern void continuation_abort_sub(void);
extern void continuation_end_of_xact(void);

/* Raise 55006 for what the locks of a waiting kept transaction would have kept out. */
extern List *continuation_waiting_tables(void);
extern void continuation_check_locks(List *tables);
extern void continuation_check_database(Oid db);
/* ---- row_compare.c ---- */
extern void row_compare_init(void);

/* ---- sizes.c ---- */
extern void sizes_replace(Query *query);

#endif							/* SOFORT_EXEC_INTERNAL_H */
