/*-------------------------------------------------------------------------
 *
 * exec.c
 *	  Installs the hooks of src/exec and hands on what they catch.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/store.h"
#include "sofort/tableam/tableam.h"
#include "sofort/txn/kept.h"
#include "sofort/txn/txn.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "exec_internal.h"

int			sofort_default_index = EXEC_DEFAULT_INDEX_SOFORT;

static const struct config_enum_entry default_index_options[] = {
	{"sofort", EXEC_DEFAULT_INDEX_SOFORT, false},
	{"btree", EXEC_DEFAULT_INDEX_BTREE, false},
	{NULL, 0, false}
};

static ProcessUtility_hook_type next_process_utility;
static ExecutorStart_hook_type next_executor_start;
static ExecutorRun_hook_type next_executor_run;
static ExecutorFinish_hook_type next_executor_finish;
static ExecutorEnd_hook_type next_executor_end;
static object_access_hook_type next_object_access;

/*
 * Database whose DROP has not committed yet.  Noted when the command holds the lock: before
 * that the name may have been another database's.
 */
static Oid	dropped_database = InvalidOid;

/* The table access method in this database; asked for by every statement. */
static Oid	table_am = InvalidOid;
static bool table_am_known = false;

Oid
exec_table_am_oid(void)
{
	if (unlikely(!table_am_known))
	{
		table_am = get_table_am_oid(TABLE_AM_NAME, true);
		table_am_known = true;
	}
	return table_am;
}

static void
access_methods_changed(Datum arg, int cacheid, uint32 hash)
{
	table_am_known = false;
}

Oid
exec_index_am_oid(void)
{
	return get_index_am_oid(INDEX_AM_NAME, true);
}

static void
call_next(PlannedStmt *pstmt, const char *query, bool read_only, ProcessUtilityContext context,
		  ParamListInfo params, QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	if (next_process_utility)
		next_process_utility(pstmt, query, read_only, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only, context, params, env, dest, qc);
}

/* Sends our workers away for statements that need the database without other sessions. */
static void
clear_database_of_workers(Node *stmt)
{
	const char *name = NULL;
	Oid			db;

	if (IsA(stmt, DropdbStmt))
		name = castNode(DropdbStmt, stmt)->dbname;
	else if (IsA(stmt, AlterDatabaseStmt))
		name = castNode(AlterDatabaseStmt, stmt)->dbname;
	else if (IsA(stmt, RenameStmt) && castNode(RenameStmt, stmt)->renameType == OBJECT_DATABASE)
		name = castNode(RenameStmt, stmt)->subname;
	if (name == NULL)
		return;
	db = get_database_oid(name, true);
	if (!OidIsValid(db) || !compat_owns_database(db, GetUserId()))
		return;					/* the command says so */
	continuation_check_database(db);
	recovery_leave_database(db);
}

/* Before a statement runs; may change it, may refuse it. */
static AlterFollowUp *
before_statement(Node *stmt, ProcessUtilityContext context)
{
	switch (nodeTag(stmt))
	{
		case T_CreateStmt:
		case T_CreateTableAsStmt:
		case T_ExplainStmt:
			temporary_before_create(stmt);
			repack_before_create(stmt);
			break;
		case T_CreatePublicationStmt:
			refuse_publication(castNode(CreatePublicationStmt, stmt)->pubobjects);
			break;
		case T_AlterPublicationStmt:
			if (castNode(AlterPublicationStmt, stmt)->action != AP_DropObjects)
				refuse_publication(castNode(AlterPublicationStmt, stmt)->pubobjects);
			break;
		case T_IndexStmt:
			constraint_fix_index(castNode(IndexStmt, stmt),
								 context == PROCESS_UTILITY_SUBCOMMAND);
			break;
		case T_AlterTableStmt:
			return constraint_before_alter(castNode(AlterTableStmt, stmt));
		case T_CreatedbStmt:
			template_begin(castNode(CreatedbStmt, stmt));
			break;
		case T_AlterDatabaseStmt:
			if (database_moves(castNode(AlterDatabaseStmt, stmt)))
				clear_database_of_workers(stmt);
			database_before_alter(castNode(AlterDatabaseStmt, stmt));
			break;
		case T_TransactionStmt:
			if (castNode(TransactionStmt, stmt)->kind == TRANS_STMT_COMMIT_PREPARED ||
				castNode(TransactionStmt, stmt)->kind == TRANS_STMT_ROLLBACK_PREPARED)
				txn_finishes_prepared();
			break;
		case T_DropdbStmt:
		case T_RenameStmt:
			clear_database_of_workers(stmt);
			break;
		default:
			break;
	}
	return NULL;
}

/* Is this one of the statements that before_statement() may change? */
static bool
changes_statement(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_CreateStmt:
		case T_CreateTableAsStmt:
		case T_ExplainStmt:
		case T_IndexStmt:
		case T_AlterTableStmt:
			return true;
		default:
			return false;
	}
}

static void
exec_process_utility(PlannedStmt *pstmt, const char *query, bool read_only,
					 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					 DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *stmt = pstmt->utilityStmt;
	const PlannedStmt *original = pstmt;
	bool		ends_transaction = IsA(stmt, TransactionStmt);
	AlterFollowUp *follow_up;
	List	   *waiting;

	keepable_utility(stmt);
	waiting = ends_transaction ? NIL : continuation_waiting_tables();
	if (waiting != NIL && IsA(stmt, AlterTableStmt))
		continuation_check_detach(castNode(AlterTableStmt, stmt), waiting);
	if (!ends_transaction)
		continuation_enter();
	if (read_only && changes_statement(stmt))
	{
		pstmt = copyObject(pstmt);
		stmt = pstmt->utilityStmt;
		read_only = false;
	}

	/* (stmt does not outlive COMMIT and the like: look at it only before) */
	follow_up = before_statement(stmt, context);
	if (IsA(stmt, CreatedbStmt))
	{
		/* armed for this statement only; after an error the callback disarms */
		call_next(pstmt, query, read_only, context, params, env, dest, qc);
		template_end();
	}
	else if (IsA(stmt, CopyStmt))
	{
		if (castNode(CopyStmt, stmt)->is_from)
			txn_sequences_may_be_used(true);
		call_next(pstmt, query, read_only, context, params, env, dest, qc);
		sequences_note_copy(castNode(CopyStmt, stmt));
	}
	else
		call_next(pstmt, query, read_only, context, params, env, dest, qc);

	constraint_after_alter(follow_up);
	if (ends_transaction)
		return;
	if (waiting != NIL)
		continuation_check_locks(waiting);
	continuation_leave();
	sequences_statement_end();
	continuation_utility_done(original, context);
}

static void exec_executor_start(QueryDesc *desc, int eflags);

static void
exec_executor_run(QueryDesc *desc, ScanDirection direction, uint64 count COMPAT_EXECUTE_ONCE)
{
	bool		again = desc->already_executed;

	if (again && !ScanDirectionIsNoMovement(direction))
		continuation_run_again(desc);
	continuation_enter();
	if (next_executor_run)
		next_executor_run(desc, direction, count COMPAT_PASS_EXECUTE_ONCE);
	else
		standard_ExecutorRun(desc, direction, count COMPAT_PASS_EXECUTE_ONCE);
	continuation_leave();
	/* others are followed by ExecutorFinish before the client hears of it; cursors are not */
	if (desc->operation == CMD_SELECT)
		sequences_statement_end();
	if (!again)
		continuation_run_done(desc);
}

static void
exec_executor_finish(QueryDesc *desc)
{
	continuation_enter();
	if (next_executor_finish)
		next_executor_finish(desc);
	else
		standard_ExecutorFinish(desc);
	continuation_leave();
	sequences_statement_end();
}

static void
exec_executor_end(QueryDesc *desc)
{
	const PlannedStmt *stmt = desc->plannedstmt;

	if (next_executor_end)
		next_executor_end(desc);
	else
		standard_ExecutorEnd(desc);
	continuation_executor_done(stmt);
}

/*
 * Does another extension hook the executor?  It may look at the nodes of a plan
 * (auto_explain does).
 */
static bool
executor_is_watched(void)
{
	return ExecutorStart_hook != exec_executor_start || ExecutorRun_hook != exec_executor_run ||
		ExecutorFinish_hook != exec_executor_finish || ExecutorEnd_hook != exec_executor_end ||
		next_executor_run != NULL || next_executor_finish != NULL || next_executor_end != NULL;
}

static void
exec_executor_start(QueryDesc *desc, int eflags)
{
	SequenceScope outer;

	if (unlikely(txn_is_kept()) && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		keepable_plan(desc->plannedstmt);
	sequences_enter(&outer);
	PG_TRY();
	{
		if (next_executor_start)
			next_executor_start(desc, eflags);
		else if (executor_is_watched() || !direct_start(desc, eflags))
			standard_ExecutorStart(desc, eflags);
		if (!(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		{
			sequences_note_plan(desc);
			statement_started(desc->plannedstmt);
			plan_started(desc, eflags);
		}
	}
	PG_FINALLY();
	{
		sequences_leave(&outer);
	}
	PG_END_TRY();
}

static void
exec_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (next_object_access)
		next_object_access(access, class_id, object_id, sub_id, arg);

	if (access == OAT_FUNCTION_EXECUTE)
	{
		sequences_function(object_id);
		keepable_function(object_id);
		statement_function(object_id);
	}
	else if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0)
		statement_relation_dropped(object_id);
	else if (access == OAT_DROP && class_id == DatabaseRelationId)
	{
		continuation_check_database(object_id);
		dropped_database = object_id;
	}
	else if (access == OAT_POST_CREATE && class_id == DatabaseRelationId)
		template_copy(object_id);
}

static void
exec_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			statement_pre_commit();
			break;
		case XACT_EVENT_COMMIT:
			continuation_end_of_xact();
			statement_end_of_xact(true);
			database_end_of_xact(true);
			if (OidIsValid(dropped_database))
			{
				Oid			db = dropped_database;

				dropped_database = InvalidOid;
				(void) store_drop_database(db, true);
				workload_forget_database(db);
			}
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			continuation_end_of_xact();
			statement_end_of_xact(false);
			database_end_of_xact(false);
			template_end();
			dropped_database = InvalidOid;
			break;
		default:
			break;
	}
}

static void
exec_subxact_callback(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_START_SUB)
		continuation_start_sub();
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		continuation_abort_sub();
}

/* Is the index complete, so that nobody searches the table in its place? */
static bool
index_is_complete(Relation index)
{
	IndexamStats stats;

	if (index->rd_rel->relam != exec_index_am_oid())
		return true;
	indexam_stats(index, &stats);
	return stats.state == INDEX_READY;
}

void
exec_init(void)
{
	tableam_index_is_complete = index_is_complete;

	DefineCustomEnumVariable("sofort.default_index",
							 "Index access method of PRIMARY KEY and UNIQUE on sofort tables.",
							 "CREATE INDEX without USING makes a btree in any case.",
							 &sofort_default_index,
							 EXEC_DEFAULT_INDEX_SOFORT,
							 default_index_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("sofort.direct_execution",
							 "Runs simple look-ups and updates of sofort tables by index directly.",
							 "Without the executor's nodes for index scans and updates, and with the same result.",
							 &sofort_direct_execution,
							 true,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = exec_process_utility;
	next_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = exec_executor_start;
	next_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = exec_executor_run;
	next_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = exec_executor_finish;
	next_executor_end = ExecutorEnd_hook;
	ExecutorEnd_hook = exec_executor_end;
	next_object_access = object_access_hook;
	object_access_hook = exec_object_access;
	index_costs_init();
	statement_init();
	row_compare_init();
	keepable_init();
	RegisterXactCallback(exec_xact_callback, NULL);
	RegisterSubXactCallback(exec_subxact_callback, NULL);
	CacheRegisterSyscacheCallback(AMNAME, access_methods_changed, (Datum) 0);
}
