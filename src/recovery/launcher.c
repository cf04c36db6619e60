/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Finds the databases with sofort stores, starts workers for them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "sofort/store/workload.h"
#include "sofort/txn/txn.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

/* A database that holds stores, and how far it is. */
typedef struct LauncherDatabase
{
	Oid			db_oid;
	bool		done;
	bool		failed;			/* a worker could not finish it: nobody waits for that */
	TimestampTz not_before;		/* of the next worker, after one failed */
} LauncherDatabase;

/* After a worker ended without having finished (killed, cancelled, no slot). */
#define RETRY_MILLISECONDS	10000

static List *databases = NIL;	/* of LauncherDatabase, in TopMemoryContext */
static BackgroundWorkerHandle *handles[RECOVERY_MAX_WORKERS];

static void
collect_database(void *arg, StoreHeader *store)
{
	LauncherDatabase *db;
	ListCell   *lc;

	/* (one that is new may belong to a CREATE DATABASE that is under way) */
	if (store->state != STORE_LIVE || store_is_new(store))
		return;
	foreach(lc, databases)
		if (((LauncherDatabase *) lfirst(lc))->db_oid == store->db_oid)
			return;
	db = palloc0(sizeof(LauncherDatabase));
	db->db_oid = store->db_oid;
	databases = lappend(databases, db);
}

/*
 * Transactions that the last life left behind are resolved here rather than by
 * the first user who comes along.
 */
static void
look_around(void)
{
	MemoryContext old;

	SOFORT_STOP("launcher-started");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	txn_resolve_leftovers();
	CommitTransactionCommand();

	old = MemoryContextSwitchTo(TopMemoryContext);
	store_visit(collect_database, NULL);
	MemoryContextSwitchTo(old);
}

/*
 * A crash between DROP DATABASE and the moment at which its stores are dropped
 * leaves them to us.  The lock waits for a DROP that is about to commit, or to
 * roll back.  invalid: a DROP was cut short, nobody can connect any more.
 */
static bool
database_exists(Oid db_oid, bool *invalid)
{
	HeapTuple	tuple;
	bool		exists;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	LockSharedObject(DatabaseRelationId, db_oid, 0, AccessShareLock);
	*invalid = false;
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(db_oid));
	exists = HeapTupleIsValid(tuple);
	if (exists)
	{
		*invalid = ((Form_pg_database) GETSTRUCT(tuple))->datconnlimit == DATCONNLIMIT_INVALID_DB;
		ReleaseSysCache(tuple);
	}
	else
	{
		ereport(LOG,
				(errmsg("dropping the sofort tables of database %u, which does not exist any more",
						db_oid)));
		store_drop_database(db_oid);
		workload_forget_database(db_oid);
	}
	CommitTransactionCommand();
	return exists;
}

static int
free_slot(int *running)
{
	int			slot = -1;

	*running = 0;
	LWLockAcquire(&Recovery->lock, LW_SHARED);
	for (int i = RECOVERY_MAX_WORKERS - 1; i >= 0; i--)
	{
		if (OidIsValid(Recovery->slots[i].db_oid))
			(*running)++;
		else if (handles[i] == NULL)
			slot = i;
	}
	LWLockRelease(&Recovery->lock);
	return slot;
}

static void
clear_slot(RecoverySlot *slot)
{
	slot->db_oid = InvalidOid;
	slot->pid = 0;
	slot->index = InvalidOid;
	slot->finished = false;
}

static bool
start_worker(int slot, LauncherDatabase *db)
{
	BackgroundWorker worker = {0};
	MemoryContext old;
	bool		started;
	uint32		serial;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	serial = ++Recovery->slots[slot].serial;
	clear_slot(&Recovery->slots[slot]);
	Recovery->slots[slot].db_oid = db->db_oid;
	if (Recovery->started == 0)
		Recovery->started = GetCurrentTimestamp();
	LWLockRelease(&Recovery->lock);

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = UInt64GetDatum((uint64) serial << 32 | (uint32) slot);
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_library_name, "sofort", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sofort_recovery_worker", BGW_MAXLEN);
	snprintf(worker.bgw_name, BGW_MAXLEN, "sofort recovery worker for database %u", db->db_oid);
	strlcpy(worker.bgw_type, "sofort recovery worker", BGW_MAXLEN);

	old = MemoryContextSwitchTo(TopMemoryContext);
	started = RegisterDynamicBackgroundWorker(&worker, &handles[slot]);
	MemoryContextSwitchTo(old);
	if (!started)
	{
		handles[slot] = NULL;
		LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
		Recovery->slots[slot].db_oid = InvalidOid;
		LWLockRelease(&Recovery->lock);
		db->failed = true;
		db->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), RETRY_MILLISECONDS);
	}
	return started;
}

/*
 * A worker of an earlier launcher (that one was terminated) is known by its
 * slot only.  If it has not started yet, it will find that the slot is not its
 * any more.
 */
static bool
worker_has_ended(int slot)
{
	pid_t		pid;
	bool		ended;

	if (handles[slot] != NULL)
		return GetBackgroundWorkerPid(handles[slot], &pid) == BGWH_STOPPED;
	LWLockAcquire(&Recovery->lock, LW_SHARED);
	ended = OidIsValid(Recovery->slots[slot].db_oid) && Recovery->slots[slot].pid == 0;
	LWLockRelease(&Recovery->lock);
	return ended;
}

/* Notices workers that have ended, and what they found. */
static void
reap_workers(void)
{
	for (int i = 0; i < RECOVERY_MAX_WORKERS; i++)
	{
		LauncherDatabase *db = NULL;
		bool		finished;
		Oid			db_oid;
		ListCell   *lc;

		if (!worker_has_ended(i))
			continue;
		if (handles[i] != NULL)
			pfree(handles[i]);
		handles[i] = NULL;
		LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
		db_oid = Recovery->slots[i].db_oid;
		finished = Recovery->slots[i].finished;
		clear_slot(&Recovery->slots[i]);
		LWLockRelease(&Recovery->lock);

		foreach(lc, databases)
			if (((LauncherDatabase *) lfirst(lc))->db_oid == db_oid)
				db = lfirst(lc);
		if (db && finished)
			db->done = true;
		else if (db)
		{
			db->failed = true;
			db->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
														 RETRY_MILLISECONDS);
		}
	}
}

/* Start what may be started.  True if something is left for later. */
static bool
start_workers(void)
{
	bool		waiting = false;
	bool		started = true;

	/* one worker per database and round, so that databases go side by side */
	while (started)
	{
		ListCell   *lc;

		started = false;
		foreach(lc, databases)
		{
			LauncherDatabase *db = lfirst(lc);
			int			running;
			int			slot;
			bool		invalid;

			if (db->done)
				continue;
			slot = free_slot(&running);
			if (slot < 0 || running >= sofort_recovery_workers ||
				GetCurrentTimestamp() < db->not_before || recovery_must_stay_away(db->db_oid))
			{
				waiting = true;
				continue;
			}
			if (!database_exists(db->db_oid, &invalid) || invalid)
				db->done = true;
			else if (start_worker(slot, db))
				started = true;
			else
				waiting = true;
		}
	}
	return waiting;
}

/* For which databases sessions wait, in mode synchronous */
static void
tell_awaited(void)
{
	Oid		   *awaited = palloc((list_length(databases) + 1) * sizeof(Oid));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, databases)
	{
		LauncherDatabase *db = lfirst(lc);

		if (!db->done && !db->failed && sofort_recovery_mode == RECOVERY_SYNCHRONOUS &&
			sofort_recovery_workers > 0)
			awaited[n++] = db->db_oid;
	}
	recovery_set_awaited(awaited, n);
	pfree(awaited);
}

/* All databases are done: when was that? */
static void
note_end(void)
{
	ListCell   *lc;

	foreach(lc, databases)
		if (!((LauncherDatabase *) lfirst(lc))->done)
			return;
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (Recovery->finished == 0)
	{
		Recovery->finished = GetCurrentTimestamp();
		if (Recovery->started == 0)
			Recovery->started = Recovery->finished;
	}
	LWLockRelease(&Recovery->lock);
}

/* What was counted in the last second of an orderly shutdown */
static void
save_workload(int code, Datum arg)
{
	(void) workload_save(NULL);
}

/* Nobody waits for what nobody does. */
static void
leave_gate_open(int code, Datum arg)
{
	recovery_set_awaited(NULL, 0);
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->launcher_pid = 0;
	LWLockRelease(&Recovery->lock);
}

static void
launch(Datum arg)
{
	bool		waiting;

	before_shmem_exit(leave_gate_open, (Datum) 0);
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->launcher_pid = MyProcPid;
	LWLockRelease(&Recovery->lock);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(save_workload, (Datum) 0);

	/* (no pool: a new start of the server is needed anyway) */
	if (pool_status() == POOL_READY)
		look_around();

	for (;;)
	{
		recovery_check_shutdown();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		reap_workers();
		waiting = start_workers();
		/* in this order: who has waited sees that it has ended */
		note_end();
		tell_awaited();
		waiting |= workload_save(MyLatch);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (waiting ? WL_TIMEOUT : 0),
						 1000L, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

void
sofort_recovery_launcher(Datum arg)
{
	recovery_main(launch, arg, 1);
}
