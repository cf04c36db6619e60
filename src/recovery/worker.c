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

/* The database that the slot names, or InvalidOid if it is for another worker. */
static Oid
take_slot(int slot, uint32 serial)
{
	RecoverySlot *mine = &Recovery->slots[slot];
	Oid			db_oid = InvalidOid;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (OidIsValid(mine->db_oid) && mine->serial == serial)
	{
		my_slot = slot;
		mine->pid = MyProcPid;
		db_oid = mine->db_oid;
	}
	LWLockRelease(&Recovery->lock);
	if (OidIsValid(db_oid))
		before_shmem_exit(leave_slot, (Datum) 0);
	return db_oid;
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
		if (ShutdownRequestPending)
			PG_RE_THROW();
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

static void
rebuild_database(Datum arg)
{
	List	   *indexes;
	ListCell   *lc;
	Oid			db_oid;

	db_oid = take_slot((int) (DatumGetUInt64(arg) & PG_UINT32_MAX),
					   (uint32) (DatumGetUInt64(arg) >> 32));
	if (!OidIsValid(db_oid) || recovery_must_stay_away(db_oid))
		return;

	BackgroundWorkerInitializeConnectionByOid(db_oid, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	indexes = find_indexes(TopMemoryContext);
	foreach(lc, indexes)
	{
		recovery_check_shutdown();
		rebuild_one(lfirst_oid(lc));
	}

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].finished = true;
	LWLockRelease(&Recovery->lock);
}

void
sofort_recovery_worker(Datum arg)
{
	recovery_main(rebuild_database, arg, 0);
}
