/*-------------------------------------------------------------------------
 *
 * keepable.c
 *	  What a kept transaction must not have done, and must not do.
 *
 * Only what is in sofort tables survives a crash.  Whatever else ends with the
 * session, or is undone by PostgreSQL's own recovery, makes the transaction one
 * that cannot be kept whole: an error, here, where it happens.
 *
 * Before a transaction is kept, only utility statements and a few functions are
 * noted; what tables it has used is read from its locks.  Afterwards plans are
 * looked at, and the locks again when a statement has written WAL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "replication/origin.h"
#include "sofort/compat/compat.h"
#include "sofort/txn/kept.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/sinval.h"
#include "utils/inval.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "exec_internal.h"

/* The first statement or function that makes this transaction unfit; constant. */
static const char *obstacle = NULL;

/* Tables that it may change, all fit; in TopTransactionContext. */
static List *checked = NIL;

/* Locks were looked at when this was the end of the transaction's WAL. */
static XLogRecPtr wal_seen = InvalidXLogRecPtr;

pg_noreturn static void
refuse(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("this transaction cannot be kept"),
			 errdetail_internal("%s", detail)));
}

/* ------------------------------------------------------------------------
 * Tables
 * ------------------------------------------------------------------------
 */

static void
check_indexes(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		if (exec_relation_am(lfirst_oid(lc)) != exec_index_am_oid())
			refuse(psprintf("Table \"%s\" has an index, \"%s\", that is no sofort_index.",
							RelationGetRelationName(rel), get_rel_name(lfirst_oid(lc))));
	}
	list_free(indexes);
}

static void
check_table(Oid relid)
{
	Relation	rel;
	MemoryContext old;

	if (list_member_oid(checked, relid))
		return;
	rel = table_open(relid, NoLock);
	switch (rel->rd_rel->relkind)
	{
		case RELKIND_PARTITIONED_TABLE:
		case RELKIND_VIEW:
		case RELKIND_SEQUENCE:
			break;
		case RELKIND_RELATION:
			if (rel->rd_rel->relam != exec_table_am_oid())
				refuse(psprintf("Table \"%s\" is no sofort table.", RelationGetRelationName(rel)));
			if (!RelationIsPermanent(rel))
				refuse(psprintf("Table \"%s\" is unlogged.", RelationGetRelationName(rel)));
			check_indexes(rel);
			break;
		default:
			refuse(psprintf("Relation \"%s\" is no sofort table.", RelationGetRelationName(rel)));
	}
	table_close(rel, NoLock);
	old = MemoryContextSwitchTo(TopTransactionContext);
	checked = lappend_oid(checked, relid);
	MemoryContextSwitchTo(old);
}

/* Rows of a partitioned table may go to any partition. */
static void
check_tables(Oid relid)
{
	List	   *all;
	ListCell   *lc;

	if (list_member_oid(checked, relid))
		return;
	all = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
		find_all_inheritors(relid, AccessShareLock, NULL) : list_make1_oid(relid);
	foreach(lc, all)
		check_table(lfirst_oid(lc));
	list_free(all);
}

/* A relation lock that this transaction holds. */
static void
check_relation_lock(Oid relid, LOCKMASK held)
{
	if (held & ~(LOCKBIT_ON(AccessShareLock) | LOCKBIT_ON(RowShareLock) | LOCKBIT_ON(RowExclusiveLock)))
		refuse(psprintf("It holds a lock on relation \"%s\".", get_rel_name(relid)));
	if (held & (LOCKBIT_ON(RowShareLock) | LOCKBIT_ON(RowExclusiveLock)))
	{
		char		kind = get_rel_relkind(relid);

		/* of an index the table says whether it is fit */
		if (kind != RELKIND_INDEX && kind != RELKIND_PARTITIONED_INDEX && kind != '\0')
			check_tables(relid);
	}
}

static void
check_locks(void)
{
	LockData   *data = GetLockStatusData();
	SharedInvalidationMessage *messages;
	bool		init_file;
	int			i;

	wal_seen = XactLastRecEnd;

	/* locks on catalogs are mostly let go of at once */
	if (xactGetCommittedInvalidationMessages(&messages, &init_file) > 0)
		refuse("It has changed system catalogs.");
	for (i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *l = &data->locks[i];

		if (l->pid != MyProcPid || l->holdMask == 0)
			continue;
		if (l->locktag.locktag_type == LOCKTAG_ADVISORY)
			refuse("The session holds an advisory lock.");
		if (l->locktag.locktag_type == LOCKTAG_RELATION &&
			(l->locktag.locktag_field1 == MyDatabaseId || l->locktag.locktag_field1 == InvalidOid))
			check_relation_lock(l->locktag.locktag_field2, l->holdMask);
	}
}

/* ------------------------------------------------------------------------
 * Statements and functions
 * ------------------------------------------------------------------------
 */

/* What leaves nothing behind, or what is looked at elsewhere. */
static bool
utility_is_harmless(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_ExplainStmt:
		case T_PrepareStmt:
		case T_ExecuteStmt:
		case T_DeallocateStmt:
		case T_CopyStmt:
		case T_VariableShowStmt:
		case T_CallStmt:
		case T_DoStmt:
			return true;
		case T_VariableSetStmt:
			/* (a kept transaction has begun long ago) */
			return castNode(VariableSetStmt, stmt)->kind == VAR_SET_MULTI &&
				strcmp(castNode(VariableSetStmt, stmt)->name, "TRANSACTION") == 0;
		case T_TransactionStmt:
			switch (castNode(TransactionStmt, stmt)->kind)
			{
				case TRANS_STMT_SAVEPOINT:
				case TRANS_STMT_RELEASE:
				case TRANS_STMT_ROLLBACK_TO:
					return !txn_is_kept();
				case TRANS_STMT_PREPARE:
					return !txn_is_kept();
				default:
					return true;
			}
		default:
			return false;
	}
}

void
keepable_utility(Node *stmt)
{
	if (utility_is_harmless(stmt))
	{
		if (IsA(stmt, CopyStmt) && castNode(CopyStmt, stmt)->is_from &&
			castNode(CopyStmt, stmt)->relation != NULL && txn_is_kept())
			check_tables(RangeVarGetRelid(castNode(CopyStmt, stmt)->relation, RowExclusiveLock, false));
		return;
	}
	if (txn_is_kept())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute %s in a transaction that is kept", GetCommandTagName(CreateCommandTag(stmt)))));
	if (obstacle == NULL && IsTransactionBlock())
		obstacle = GetCommandTagName(CreateCommandTag(stmt));
}

/* OAT_FUNCTION_EXECUTE: sent for functions of expressions, before their first call */
void
keepable_function(Oid function)
{
	const char *what;

	switch (function)
	{
		case F_PG_NOTIFY:
			what = "pg_notify()";
			break;
		case F_SET_CONFIG:
			what = "set_config()";
			break;
		case F_LO_OPEN:
		case F_LO_CREAT:
		case F_LO_CREATE:
		case F_LO_UNLINK:
		case F_LO_IMPORT_TEXT:
		case F_LO_IMPORT_TEXT_OID:
		case F_LO_FROM_BYTEA:
		case F_LO_PUT:
			what = "a large object function";
			break;
		case F_PG_EXPORT_SNAPSHOT:
			what = "pg_export_snapshot()";
			break;
		default:
			/* pg_advisory_lock() and its variants, with and without _xact */
			if ((function < F_PG_ADVISORY_LOCK_INT8 || function > F_PG_ADVISORY_UNLOCK_ALL) &&
				(function < F_PG_ADVISORY_XACT_LOCK_INT8 ||
				 function > F_PG_TRY_ADVISORY_XACT_LOCK_SHARED_INT4_INT4))
				return;
			what = "an advisory lock function";
			break;
	}
	if (txn_is_kept())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute %s in a transaction that is kept", what)));
	if (obstacle == NULL && IsTransactionBlock())
		obstacle = what;
}

/* A plan of a kept transaction is about to be executed. */
void
keepable_plan(const PlannedStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->resultRelations)
		check_tables(rt_fetch(lfirst_int(lc), stmt->rtable)->relid);
	foreach(lc, stmt->rowMarks)
	{
		const PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (!mark->isParent && mark->markType <= ROW_MARK_KEYSHARE)
			check_tables(rt_fetch(mark->rti, stmt->rtable)->relid);
	}
}

/* ------------------------------------------------------------------------
 * The whole transaction
 * ------------------------------------------------------------------------
 */

/* Things that a statement may have left behind. */
static void
check_session(void)
{
	ListCell   *lc;

	if (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE)
		refuse("It has used temporary objects.");
	if (XactHasExportedSnapshots())
		refuse("It has exported a snapshot.");
	if (!ThereAreNoReadyPortals())
		refuse("It has an open cursor.");
	if (replorigin_session_origin != InvalidRepOriginId)
		refuse("The session has a replication origin.");
	foreach(lc, checked)
	{
		if (AfterTriggerPendingOnRel(lfirst_oid(lc)))
			refuse(psprintf("Deferred triggers or constraints of table \"%s\" are pending.",
							get_rel_name(lfirst_oid(lc))));
	}
}

/* Can all that this transaction has done so far be kept? */
void
keepable_so_far(void)
{
	if (GetCurrentTransactionNestLevel() > 1)
		refuse("It has savepoints, or is in a block with an exception clause.");
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only transactions of isolation level READ COMMITTED can be kept"),
				 errdetail("The snapshot of a transaction ends with the server.")));
	if (obstacle != NULL)
		refuse(psprintf("%s was executed in it.", obstacle));
	check_locks();
	check_session();
}

/* A statement of a kept transaction is about to end. */
void
keepable_statement_end(void)
{
	if (XactLastRecEnd != wal_seen)
		check_locks();
	check_session();
}

/* A table of a transaction that was resumed. */
void
keepable_resumed(Oid relid)
{
	check_tables(relid);
}

/* Nothing was done yet that would be lost. */
bool
keepable_is_clean(void)
{
	return obstacle == NULL;
}

void
keepable_end_of_xact(void)
{
	obstacle = NULL;
	checked = NIL;
	wal_seen = InvalidXLogRecPtr;
}
