/*-------------------------------------------------------------------------
 *
 * keepable.c
 *	  What a kept transaction must not have done, and must not do.
 *
 * Only what is in sofort tables survives a crash.  Anything else that ends with the
 * session, or is undone by PostgreSQL's own recovery, would be missing from the kept
 * transaction: so it is an error where it happens.
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
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "commands/async.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "replication/origin.h"
#include "sofort/compat/compat.h"
#include "sofort/compat/ddl.h"
#include "sofort/txn/kept.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/sinval.h"
#include "tcop/tcopprot.h"
#include "utils/inval.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/*
 * The first statement or function that makes this transaction unfit; constant.  Noted
 * outside of a block, too: in a pipeline BEGIN goes on with the transaction that is open.
 */
static const char *obstacle = NULL;

/* A table whose rows it may change or lock. */
typedef struct NotedTable
{
	Oid			relid;
	bool		partitioned;
	bool		writes;			/* it has had ROW EXCLUSIVE since it was noted so */
	bool		fit;			/* and nothing has changed since that was looked at;
								 * of a partitioned one: of none of its partitions */
} NotedTable;

/* Tables that were not found unfit; in TopTransactionContext. */
static List *noted_tables = NIL;

/* How often relations have changed: a look at one may be older than the last change. */
static uint64 changes = 0;

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

static bool
index_is_ready(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		ready = HeapTupleIsValid(tuple) &&
		((Form_pg_index) GETSTRUCT(tuple))->indisready;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return ready;
}

/*
 * An index that is not ready may become so soon, unless this transaction has written the
 * table before: then CREATE INDEX CONCURRENTLY waits for it, or died in the crash.
 */
static void
check_indexes(Relation rel, bool written_before)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Oid			index = lfirst_oid(lc);

		if (exec_relation_am(index) != exec_index_am_oid() &&
			(!written_before || index_is_ready(index)))
			refuse(psprintf("Table \"%s\" has an index, \"%s\", that is no sofort_index.",
							RelationGetRelationName(rel), get_rel_name(index)));
	}
	list_free(indexes);
}

static NotedTable *
find_noted(Oid relid)
{
	ListCell   *lc;

	foreach(lc, noted_tables)
	{
		NotedTable *t = lfirst(lc);

		if (t->relid == relid)
			return t;
	}
	return NULL;
}

static NotedTable *
note_table(Oid relid)
{
	NotedTable *t = find_noted(relid);
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	if (t == NULL)
	{
		t = palloc0(sizeof(NotedTable));
		t->relid = relid;
		noted_tables = lappend(noted_tables, t);
	}
	MemoryContextSwitchTo(old);
	return t;
}

/*
 * Others may make indexes and partitions meanwhile.  (Of a partition that is new, on
 * whatever level, only its parent tells.)
 */
static void
relation_changed(Datum arg, Oid relid)
{
	bool		noted = !OidIsValid(relid);
	ListCell   *lc;

	changes++;
	foreach(lc, noted_tables)
		noted |= ((NotedTable *) lfirst(lc))->relid == relid;
	foreach(lc, noted_tables)
	{
		NotedTable *t = lfirst(lc);

		if (t->relid == relid || !OidIsValid(relid) || (noted && t->partitioned))
			t->fit = false;
	}
}

static bool
is_fit(Oid relid, bool writes)
{
	const NotedTable *t = find_noted(relid);

	return t != NULL && t->fit && (t->writes || !writes);
}

static void
check_table(Oid relid, bool writes)
{
	Relation	rel;
	NotedTable *t;
	bool		partitioned;
	uint64		before = changes;

	if (is_fit(relid, writes))
		return;
	rel = table_open(relid, NoLock);
	t = find_noted(relid);
	partitioned = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
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
			if (writes)
				check_indexes(rel, t != NULL && t->writes);
			break;
		default:
			refuse(psprintf("Relation \"%s\" is no sofort table.", RelationGetRelationName(rel)));
	}
	table_close(rel, NoLock);
	t = note_table(relid);
	t->partitioned = partitioned;
	t->writes |= writes;
	t->fit = changes == before;
}

/* Rows of a partitioned table may go to any partition. */
static void
check_tables(Oid relid, bool writes)
{
	List	   *all;
	ListCell   *lc;
	uint64		before = changes;

	if (is_fit(relid, writes))
		return;
	all = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
		find_all_inheritors(relid, AccessShareLock, NULL) : list_make1_oid(relid);
	foreach(lc, all)
		check_table(lfirst_oid(lc), writes);
	list_free(all);
	if (changes != before)
		find_noted(relid)->fit = false; /* there may be others by now */
}

/* A relation lock that this transaction holds. */
static void
check_relation_lock(Oid relid, LOCKMASK held)
{
	if (held & ~(LOCKBIT_ON(AccessShareLock) | LOCKBIT_ON(RowShareLock) |
				 LOCKBIT_ON(RowExclusiveLock)))
		refuse(psprintf("It holds a lock on relation \"%s\".", get_rel_name(relid)));
	if (held & (LOCKBIT_ON(RowShareLock) | LOCKBIT_ON(RowExclusiveLock)))
	{
		char		kind = get_rel_relkind(relid);

		/* whether an index is fit is decided by its table */
		if (kind != RELKIND_INDEX && kind != RELKIND_PARTITIONED_INDEX && kind != '\0')
			check_tables(relid, (held & LOCKBIT_ON(RowExclusiveLock)) != 0);
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

	/* locks on catalogs are mostly released at once */
	if (xactGetCommittedInvalidationMessages(&messages, &init_file) > 0)
		refuse("It has changed system catalogs.");
	for (i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *l = &data->locks[i];

		if (l->pid != MyProcPid || l->holdMask == 0)
			continue;
		if (l->locktag.locktag_type == LOCKTAG_ADVISORY)
			refuse("The session holds an advisory lock.");
		/* (large objects that C code unlinks, for one) */
		if (l->locktag.locktag_type == LOCKTAG_OBJECT)
			refuse(psprintf("It holds a lock on an object in catalog \"%s\".",
							get_rel_name(l->locktag.locktag_field2)));
		if (l->locktag.locktag_type == LOCKTAG_RELATION &&
			(l->locktag.locktag_field1 == MyDatabaseId || l->locktag.locktag_field1 == InvalidOid))
			check_relation_lock(l->locktag.locktag_field2, l->holdMask);
	}
}

/* ------------------------------------------------------------------------
 * Statements and functions
 * ------------------------------------------------------------------------
 */

/* Does the command leave nothing behind, or only what is checked elsewhere? */
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
			/* what it sets is checked by keepable_so_far() */
			return !txn_is_kept() && castNode(VariableSetStmt, stmt)->kind == VAR_SET_MULTI &&
				strcmp(castNode(VariableSetStmt, stmt)->name, "TRANSACTION") == 0;
		case T_TransactionStmt:
			switch (castNode(TransactionStmt, stmt)->kind)
			{
				case TRANS_STMT_SAVEPOINT:
				case TRANS_STMT_RELEASE:
				case TRANS_STMT_ROLLBACK_TO:
					/* whether savepoints are left is checked by keepable_so_far() */
					return !txn_is_kept();
				case TRANS_STMT_PREPARE:
					/*
					 * It ends a transaction that was not kept.  A kept one would have two who
					 * may finish it: the client that resumes it, and COMMIT PREPARED.
					 */
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
		if (txn_is_kept() && IsA(stmt, CopyStmt) && castNode(CopyStmt, stmt)->is_from &&
			castNode(CopyStmt, stmt)->relation != NULL)
			check_tables(RangeVarGetRelid(castNode(CopyStmt, stmt)->relation, RowExclusiveLock,
										  false), true);
		return;
	}
	if (txn_is_kept())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute %s in a transaction that is kept", GetCommandTagName(CreateCommandTag(stmt)))));
	if (obstacle == NULL)
		obstacle = GetCommandTagName(CreateCommandTag(stmt));
}

/* OAT_FUNCTION_EXECUTE: sent for functions of expressions, before their first call */
void
keepable_function(Oid function)
{
	const char *what;

	if (unlikely(txn_is_kept()) && !continuation_in_statement())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute a function without a statement in a transaction that is kept"),
				 errhint("Call it with SELECT.")));
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
		case COMPAT_F_EMIT_MESSAGE_TEXT:
		case COMPAT_F_EMIT_MESSAGE_BYTEA:
			what = "pg_logical_emit_message()";
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
	if (obstacle == NULL)
		obstacle = what;
}

/* A plan of a kept transaction is about to be executed. */
void
keepable_plan(const PlannedStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->resultRelations)
		check_tables(rt_fetch(lfirst_int(lc), stmt->rtable)->relid, true);
	foreach(lc, stmt->rowMarks)
	{
		const PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		/* (foreign tables are locked where they are, whatever markType says) */
		if (!mark->isParent && mark->strength != LCS_NONE)
			check_tables(rt_fetch(mark->rti, stmt->rtable)->relid, false);
	}
}

/* ------------------------------------------------------------------------
 * The whole transaction
 * ------------------------------------------------------------------------
 */

/* Has the transaction notified (also from C code)?  PREPARE TRANSACTION asks the same. */
static bool
will_notify(void)
{
	MemoryContext old = CurrentMemoryContext;
	volatile bool pending = false;

	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old);
		FlushErrorState();
		pending = true;			/* an error follows in any case */
	}
	PG_END_TRY();
	return pending;
}

/* Checks for things that a statement may have left behind. */
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
	if (will_notify())
		refuse("It has executed LISTEN, UNLISTEN, or NOTIFY.");
	if (replorigin_session_origin != InvalidRepOriginId)
		refuse("The session has a replication origin.");
	foreach(lc, noted_tables)
	{
		Oid			relid = ((NotedTable *) lfirst(lc))->relid;

		if (AfterTriggerPendingOnRel(relid))
			refuse(psprintf("Deferred triggers or constraints of table \"%s\" are pending.",
							get_rel_name(relid)));
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
	if (XactReadOnly)
		refuse("It is READ ONLY.");
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

/*
 * A table of a transaction that was resumed, with its lock.  It was fit; what others have
 * done to it since is checked at the next statement that writes it.
 */
void
keepable_resumed(Oid relid, bool writes)
{
	note_table(relid)->writes |= writes;
}

/* Was nothing done yet that would be lost? */
bool
keepable_is_clean(void)
{
	return obstacle == NULL;
}

void
keepable_end_of_xact(void)
{
	obstacle = NULL;
	noted_tables = NIL;
	wal_seen = InvalidXLogRecPtr;
}

void
keepable_init(void)
{
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
}
