/*-------------------------------------------------------------------------
 *
 * exec_internal.h
 *	  What the files of src/exec share.
 *
 * All of it runs in a backend, under the hooks that exec.c installs, and may raise errors;
 * no LWLock may be held.  Functions called *_end_of_xact raise none.  What refuses something
 * raises 0A000 with detail or hint.  Parse trees are changed in place, with nodes palloc'd
 * in the current memory context, which is that of the statement.
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

static inline bool
exec_is_table_am(const char *access_method)
{
	return strcmp(access_method, TABLE_AM_NAME) == 0;
}

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

/* The locks of the command are still held.  After an error there is nothing to be done. */
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

/*
 * pg_class.reloptions of an index, copied; (Datum) 0 if NULL.  The second function sets
 * them, and makes the change visible; the caller has locked the index's table exclusively.
 */
extern Datum index_options(Oid index);
extern void index_set_options(Oid index, Datum options);

/* ---- refuse.c ---- */

/*
 * 0A000 for what this version does not support: a publication of sofort tables by name; a
 * table that such a publication names and that becomes a sofort table; EXCLUDE.
 */
extern void refuse_publication(List *objects);
extern void refuse_conversion(Oid relid);
extern void refuse_exclusion(const char *access_method);

/* ---- database.c ---- */

/*
 * CREATE DATABASE: notes the template (a name that belongs to the statement), from which
 * stores are copied when the new row of pg_database is made: then the template is locked.
 * To be ended after an error, too.
 */
extern void template_begin(const CreatedbStmt *stmt);
extern void template_copy(Oid new_db);
extern void template_end(void);

/*
 * ALTER DATABASE SET TABLESPACE: its indexes in DRAM are forgotten.  The second function
 * locks new connections out until the transaction ends.
 */
extern bool database_moves(const AlterDatabaseStmt *stmt);
extern void database_before_alter(const AlterDatabaseStmt *stmt);
extern void database_end_of_xact(bool commit);

/* ---- temporary.c ---- */

/*
 * CREATE TABLE, CREATE TABLE AS, SELECT INTO (also under EXPLAIN): a temporary
 * table, or one of an extension's script, that would get sofort by default gets heap;
 * changes the statement in place.  0A000 if sofort is asked for by name for a temporary one.
 */
extern void temporary_before_create(Node *stmt);

/* The same for ALTER TABLE ...  SET ACCESS METHOD of a temporary table. */
extern void temporary_before_alter(Oid relid, AlterTableStmt *stmt);

/* ---- repack.c ---- */

/*
 * CREATE TABLE AS: the copy that pg_repack makes gets the access method of its original;
 * changes the statement in place.
 */
extern void repack_before_create(Node *stmt);

/* ---- index_costs.c ---- */

extern void index_costs_init(void);

/* ---- plan_hooks.c ---- */

/* ExecutorStart is about to return; eflags are its own.  Changes nodes of the plan's state. */
extern void plan_started(QueryDesc *desc, int eflags);

/* ---- direct.c ---- */

/*
 * In place of ExecutorStart; false: the statement does not qualify, and nothing was done.
 * No other extension may watch the executor: it could not make sense of our node.
 */
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

/* Before the commit, as long as catalogs can be read */
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

/* Around ExecutorStart; the second also after an error. */
extern void sequences_enter(SequenceScope *outer);
extern void sequences_leave(const SequenceScope *outer);

/* Between the two, when the plan has been started */
extern void sequences_note_plan(QueryDesc *desc);

/* After COPY FROM, which evaluates defaults without a plan */
extern void sequences_note_copy(const CopyStmt *stmt);

/* A statement has ended, or one within it, or a cursor has moved. */
extern void sequences_statement_end(void);

/* ---- keepable.c ---- */

/*
 * For what makes a transaction unfit to be kept: raises 0A000 if it is kept already, else
 * notes it.
 */
extern void keepable_utility(Node *stmt);
extern void keepable_function(Oid function);	/* OAT_FUNCTION_EXECUTE */

/* Of a kept transaction: a plan is about to run, a statement about to end; 0A000 if unfit */
extern void keepable_plan(const PlannedStmt *stmt);
extern void keepable_statement_end(void);

/* It is to be kept from now on: 0A000 if something that it has done stands against it. */
extern void keepable_so_far(void);

/* Was nothing noted that stands against it? */
extern bool keepable_is_clean(void);

/* A resumed transaction has this table, locked again; writes: it has changed rows there. */
extern void keepable_resumed(Oid relid, bool writes);
extern void keepable_end_of_xact(void);

/* In each process that loads the library; registers a callback for changed relations. */
extern void keepable_init(void);

/* ---- continuation.c ---- */

/*
 * To be called around anything that may execute statements of its own.  After an error the
 * second is not called: the end of the (sub)transaction sets the depth right.
 */
extern void continuation_enter(void);
extern void continuation_leave(void);

/* Is nothing of that kind running? */
extern bool continuation_at_top(void);

/* Called then: has the statement ended that the client has sent? */
extern void continuation_run_again(const QueryDesc *desc);
extern void continuation_run_done(const QueryDesc *desc);
extern void continuation_executor_done(const PlannedStmt *stmt);
extern void continuation_utility_done(const PlannedStmt *stmt, ProcessUtilityContext context);

/* False if a client calls a function by the protocol's message for that. */
extern bool continuation_in_statement(void);

/* A subtransaction has begun, or is rolled back; the second raises no error. */
extern void continuation_start_sub(void);
extern void continuation_abort_sub(void);
extern void continuation_end_of_xact(void);

/* Before a command: OIDs of the tables that waiting kept transactions have used, or NIL */
extern List *continuation_waiting_tables(void);

/* Raise 55006 for what the locks of a waiting kept transaction would have kept out. */
extern void continuation_check_detach(const AlterTableStmt *stmt, List *tables);
extern void continuation_check_locks(List *tables);
extern void continuation_check_database(Oid db);

/* ---- row_compare.c ---- */

/* Installs a hook of the planner: row comparisons bound the first column of an index. */
extern void row_compare_init(void);

/* ---- sizes.c ---- */

/* For a query that is about to be planned: pg_table_size() and the like count the pool. */
extern void sizes_replace(Query *query);

#endif							/* SOFORT_EXEC_INTERNAL_H */
