/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  Rebuilds the sofort indexes of one database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/indexam/indexam.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "recovery_internal.h"

static int	my_slot = -1;

static void
leave_slot(int code, Datum arg)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].pid = 0;
	Recovery->slots[my_slot].index = InvalidOid;
	LWLockRelease(&Recovery->lock);
}

/* All sofort indexes of this database: a list of OIDs in the given context. */
static List *
find_indexes(MemoryContext context)
{
	List	   *result = NIL;
	Relation	pg_class;
	TableScanDesc scan;
	HeapTuple	tuple;
	Oid			am;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	am = get_index_am_oid("sofort_index", true);
	pg_class = table_open(RelationRelationId, AccessShareLock);
	scan = table_beginscan_catalog(pg_class, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (OidIsValid(am) && form->relam == am && form->relkind == RELKIND_INDEX)
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			result = lappend_oid(result, form->oid);
			MemoryContextSwitchTo(old);
		}
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return result;
}

/*
 * One index; an error (the index was dropped meanwhile, memory is full, the
 * rebuild was cancelled) is logged and leaves it to the first query.
 */
static void
rebuild_one(Oid index)
{
	MemoryContext context = CurrentMemoryContext;

	if (!recovery_claim_index(my_slot, MyDatabaseId, index))
		return;
	PG_TRY();
	{
		bool		rebuilt;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		pgstat_report_activity(STATE_RUNNING, "rebuilding a sofort index");
		rebuilt = sofort_index_rebuild(index);
		PopActiveSnapshot();
		CommitTransactionCommand();
		if (rebuilt)
		{
			LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
			Recovery->indexes_rebuilt++;
			LWLockRelease(&Recovery->lock);
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
		Recovery->failures++;
		LWLockRelease(&Recovery->lock);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
	(void) recovery_claim_index(my_slot, MyDatabaseId, InvalidOid);
}

void
sofort_recovery_worker(Datum arg)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			db_oid;

	my_slot = DatumGetInt32(arg);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	before_shmem_exit(leave_slot, (Datum) 0);
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	db_oid = Recovery->slots[my_slot].db_oid;
	Recovery->slots[my_slot].pid = MyProcPid;
	LWLockRelease(&Recovery->lock);
	if (!OidIsValid(db_oid) || recovery_must_stay_away(db_oid))
		proc_exit(0);

	BackgroundWorkerInitializeConnectionByOid(db_oid, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	indexes = find_indexes(TopMemoryContext);
	foreach(lc, indexes)
	{
		CHECK_FOR_INTERRUPTS();
		rebuild_one(lfirst_oid(lc));
	}

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].finished = true;
	LWLockRelease(&Recovery->lock);
	proc_exit(0);
}
