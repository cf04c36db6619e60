/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Finds the databases with sofort stores, starts workers for them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/compat/lock.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "sofort/store/workload.h"
#include "sofort/txn/txn.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

/* A database that holds stores, and how far its recovery has come. */
typedef struct LauncherDatabase
{
	Oid			db_oid;
	bool		looked_for;		/* was seen in the catalog */
	bool		done;			/* but for functions_left */
	bool		functions_left; /* indexes whose build runs functions of users */
	bool		failed;			/* a worker could not finish it: sessions do not wait for that */
	bool		indexes_done;	/* nor for other work of a worker */
	TimestampTz not_before;		/* of the next worker, after one failed */
	TimestampTz again_at;		/* done, but to be looked at again; 0: no more */
	int			again_after;	/* milliseconds; the next time twice as many */
} LauncherDatabase;

/* After a worker ended without having finished (killed, cancelled, no slot). */
#define RETRY_MILLISECONDS	10000

/* If what was left was locked, or failed for a reason that may pass */
#define AGAIN_MILLISECONDS	1000
#define AGAIN_AT_MOST		300000

/* For how long to retry for want of memory: each attempt takes memory from others. */
#define A_FEW_TIMES_UNTIL	60000

/* For so long others wait for a lock that a worker for functions holds. */
#define GIVE_WAY_MILLISECONDS	1000

static List *databases = NIL;	/* of LauncherDatabase, in TopMemoryContext */
static BackgroundWorkerHandle *handles[RECOVERY_SLOTS];

static LauncherDatabase *
find_database(Oid db_oid)
{
	ListCell   *lc;

	foreach(lc, databases)
		if (((LauncherDatabase *) lfirst(lc))->db_oid == db_oid)
			return lfirst(lc);
	return NULL;
}

static void
add_database(Oid db_oid, bool awaited)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	LauncherDatabase *db = palloc0(sizeof(LauncherDatabase));

	db->db_oid = db_oid;
	db->failed = !awaited;
	databases = lappend(databases, db);
	MemoryContextSwitchTo(old);
}

/*
 * Resolves transactions that the last life left behind, so that the first user need not do
 * it.
 */
static void
look_around(void)
{
	ListCell   *lc;

	SOFORT_STOP("launcher-started");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	txn_resolve_leftovers();
	/* (one that is new may belong to a CREATE DATABASE that is under way) */
	foreach(lc, store_databases(false))
		add_database(lfirst_oid(lc), true);
	/* what was copied while there was no launcher, or another one */
	foreach(lc, store_databases(true))
		if (find_database(lfirst_oid(lc)) == NULL)
			recovery_look_for_databases(false);
	CommitTransactionCommand();
}

/*
 * Reads pg_database, not the syscache: a session that commits asks us to look before it
 * sends its invalidation messages.  (By the index of pg_database only if its relcache entry
 * is there: this process has no database, and a crash removes the relation cache file.)
 */
static bool
read_database(Oid db_oid, bool *valid)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(db_oid));
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	*valid = HeapTupleIsValid(tuple) &&
		((Form_pg_database) GETSTRUCT(tuple))->datconnlimit != DATCONNLIMIT_INVALID_DB;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

typedef enum DatabaseState
{
	DATABASE_GONE,				/* or nobody can connect to it any more */
	DATABASE_LOCKED,			/* somebody has it for himself: not known yet */
	DATABASE_THERE
} DatabaseState;

/*
 * A crash between DROP DATABASE and the moment at which its stores are dropped
 * leaves them to us.  Nor can anybody connect if one was cut short before.
 *
 * Who has the database for himself, or waits for that, may be about to drop it; for how
 * long, nobody knows (ALTER DATABASE RENAME in a transaction block), and there are other
 * databases.
 */
static DatabaseState
look_for_database(LauncherDatabase *db)
{
	Oid			db_oid = db->db_oid;
	bool		valid;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (!compat_try_lock_database(db_oid, AccessShareLock))
	{
		CommitTransactionCommand();
		return DATABASE_LOCKED;
	}
	if (!read_database(db_oid, &valid))
	{
		/* new stores belong to a database with the same OID that is being made */
		if (store_drop_database(db_oid, false) > 0)
			ereport(LOG,
					(errmsg("dropped the sofort tables of database %u, which does not exist any more",
							db_oid)));
		workload_forget_database(db_oid);
	}
	CommitTransactionCommand();
	db->looked_for = true;
	return valid ? DATABASE_THERE : DATABASE_GONE;
}

static bool
is_in_catalog(Oid db_oid)
{
	bool		valid;

	return read_database(db_oid, &valid);
}

/*
 * Adds databases that were copied or moved, whose indexes are to be built.  Sessions do not
 * wait for them.  One that is not in the catalog may be under way: its maker asks again
 * after the commit.
 */
static void
look_for_databases(void)
{
	ListCell   *lc;
	bool		look;
	bool		all;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	look = Recovery->look_for_databases;
	all = Recovery->look_at_all;
	Recovery->look_for_databases = Recovery->look_at_all = false;
	LWLockRelease(&Recovery->lock);
	if (!look)
		return;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	foreach(lc, databases)
	{
		LauncherDatabase *db = lfirst(lc);

		if (!db->done)
			continue;
		if (!is_in_catalog(db->db_oid))
		{
			databases = foreach_delete_current(databases, lc);
			pfree(db);
		}
		else if (all)
		{
			db->done = false;
			db->failed = true;
		}
	}
	foreach(lc, store_databases(true))
		if (find_database(lfirst_oid(lc)) == NULL && is_in_catalog(lfirst_oid(lc)))
			add_database(lfirst_oid(lc), false);
	CommitTransactionCommand();
}

/* A free slot, or -1; *running: workers of that kind */
static int
free_slot(bool functions, int *running)
{
	int			slot = -1;

	*running = 0;
	LWLockAcquire(&Recovery->lock, LW_SHARED);
	for (int i = RECOVERY_SLOTS - 1; i >= 0; i--)
	{
		if (OidIsValid(Recovery->slots[i].db_oid))
			*running += Recovery->slots[i].functions == functions;
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
	slot->indexes_done = false;
	slot->tables_seen_to = InvalidOid;
	slot->functions = slot->functions_left = false;
	slot->finished = slot->replace = false;
	slot->again = AGAIN_NEVER;
}

/* (those for functions do nothing that anybody waits for at the gate) */
static bool
has_worker(const LauncherDatabase *db)
{
	bool		has = false;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	for (int i = 0; i < RECOVERY_SLOTS; i++)
		has |= Recovery->slots[i].db_oid == db->db_oid && !Recovery->slots[i].functions;
	LWLockRelease(&Recovery->lock);
	return has;
}

static bool
start_worker(int slot, LauncherDatabase *db, bool functions)
{
	BackgroundWorker worker = {0};
	MemoryContext old;
	bool		started;
	uint32		serial;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	serial = ++Recovery->slots[slot].serial;
	clear_slot(&Recovery->slots[slot]);
	Recovery->slots[slot].db_oid = db->db_oid;
	Recovery->slots[slot].functions = functions;
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
		/* (an existing worker goes on without this one) */
		db->failed |= !has_worker(db);
		db->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), RETRY_MILLISECONDS);
	}
	return started;
}

/*
 * A worker of an earlier launcher (which was terminated) is known only by its slot.  If it
 * has not started yet, it will find that the slot is no longer its own.
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

/* The next worker is for this database. */
static void
put_first(LauncherDatabase *db)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	databases = lcons(db, list_delete_ptr(databases, db));
	MemoryContextSwitchTo(old);
}

/* Notes whether, and when, what a worker has left is to be tried again. */
static void
look_again(LauncherDatabase *db, RecoveryAgain again)
{
	if (again == AGAIN_NEVER ||
		(again == AGAIN_A_FEW_TIMES && db->again_after > A_FEW_TIMES_UNTIL))
		return;
	db->again_after = Min(Max(2 * db->again_after, AGAIN_MILLISECONDS), AGAIN_AT_MOST);
	db->again_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), db->again_after);
}

/* A worker found nothing more that it could do. */
static void
worker_is_done(LauncherDatabase *db, const RecoverySlot *slot)
{
	if (slot->functions)
		db->functions_left = false;
	else
	{
		db->done = true;
		db->functions_left = slot->functions_left;
		db->again_at = 0;
	}
	/* (what a worker of the other kind has left is on the list of the next one) */
	if (db->again_at == 0)
		look_again(db, slot->again);
}

/* Is there work to be done in the database, now or again? */
static bool
is_to_be_done(LauncherDatabase *db)
{
	if (db->done && db->again_at != 0 && GetCurrentTimestamp() >= db->again_at)
	{
		db->done = false;
		db->failed = true;
		db->again_at = 0;
	}
	return !db->done;
}

/* Notices workers that have ended, and what they found. */
static void
reap_workers(void)
{
	for (int i = 0; i < RECOVERY_SLOTS; i++)
	{
		LauncherDatabase *db;
		RecoverySlot slot;

		if (!worker_has_ended(i))
			continue;
		if (handles[i] != NULL)
			pfree(handles[i]);
		handles[i] = NULL;
		LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
		slot = Recovery->slots[i];
		clear_slot(&Recovery->slots[i]);
		LWLockRelease(&Recovery->lock);

		db = find_database(slot.db_oid);
		if (db && slot.finished)
			worker_is_done(db, &slot);
		else if (db && slot.replace)
		{
			/* another database whose worker could not be started does not hold this one up */
			db->not_before = 0;
			put_first(db);
		}
		else if (db)
		{
			db->failed = true;
			db->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
														 RETRY_MILLISECONDS);
		}
	}
}

/* Is there anything for a worker of this kind?  *later: it is to be looked at again. */
static bool
needs_worker(LauncherDatabase *db, bool functions, bool *later)
{
	bool		to_be_done = is_to_be_done(db);

	*later |= !to_be_done && db->again_at != 0;
	return functions ? !to_be_done && db->functions_left : to_be_done;
}

/* slot: for a worker, or -1.  Has one been started? */
static bool
take_up(LauncherDatabase *db, bool functions, int slot, bool *later)
{
	switch (look_for_database(db))
	{
		case DATABASE_GONE:
			db->done = true;
			db->functions_left = false;
			return false;
		case DATABASE_LOCKED:
			/* who waits for that lock may wait for one who waits at the gate */
			db->failed = true;
			*later = true;
			return false;
		case DATABASE_THERE:
			break;
	}
	if (slot >= 0 && start_worker(slot, db, functions))
		return true;
	*later |= sofort_recovery_workers > 0;
	return false;
}

/*
 * Starts at most one worker for each database, so that databases are recovered side by
 * side.  *later: not all could be started (if there are to be no workers there is nothing
 * to wait for: a new setting wakes us).
 *
 * Whether a database exists is looked at even without a place for a worker, because nobody
 * else drops the stores of one that does not.
 */
static bool
start_round(bool functions, bool *later)
{
	bool		started = false;
	ListCell   *lc;

	foreach(lc, databases)
	{
		LauncherDatabase *db = lfirst(lc);
		bool		away;
		bool		room;
		int			running;
		int			slot;

		if (!needs_worker(db, functions, later))
			continue;
		slot = free_slot(functions, &running);
		away = recovery_must_stay_away(db->db_oid);
		room = slot >= 0 && running < sofort_recovery_workers &&
			GetCurrentTimestamp() >= db->not_before && !away;
		if (!room && (db->looked_for || away))
			*later |= sofort_recovery_workers > 0 || !db->looked_for;
		else
			started |= take_up(db, functions, room ? slot : -1, later);
	}
	return started;
}

/*
 * Starts what may be started.  True if something is left for later.
 *
 * Builds that run functions of users may take any time: they come last, and take nobody's
 * place.
 */
static bool
start_workers(void)
{
	bool		later = false;
	int			running;

	while (start_round(false, &later))
		;
	(void) free_slot(false, &running);
	if (running == 0)
		while (start_round(true, &later))
			;
	return later;
}

/*
 * Notes which databases have all their indexes: sessions do not wait for what workers do
 * after that.
 */
static void
note_indexes_done(void)
{
	ListCell   *lc;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	foreach(lc, databases)
	{
		LauncherDatabase *db = lfirst(lc);

		for (int i = 0; i < (int) lengthof(Recovery->slots); i++)
			if (Recovery->slots[i].db_oid == db->db_oid && Recovery->slots[i].indexes_done)
				db->indexes_done = true;
	}
	LWLockRelease(&Recovery->lock);
}

/* Publishes for which databases sessions wait, in mode synchronous */
static void
tell_awaited(void)
{
	Oid		   *awaited = palloc((list_length(databases) + 1) * sizeof(Oid));
	int			n = 0;
	ListCell   *lc;

	note_indexes_done();
	foreach(lc, databases)
	{
		LauncherDatabase *db = lfirst(lc);

		if (!db->done && !db->failed && !db->indexes_done &&
			!recovery_must_stay_away(db->db_oid) &&
			sofort_recovery_mode == RECOVERY_SYNCHRONOUS && sofort_recovery_workers > 0)
			awaited[n++] = db->db_oid;
	}
	recovery_set_awaited(awaited, n);
	pfree(awaited);
}

/* Does the first keep the second waiting, and has for a while? */
static bool
holds_up(const LockInstanceData *holder, const LockInstanceData *waiter, TimestampTz now)
{
	if (waiter->waitLockMode == NoLock || waiter->pid == holder->pid || waiter->waitStart == 0 ||
		memcmp(&waiter->locktag, &holder->locktag, sizeof(LOCKTAG)) != 0 ||
		!TimestampDifferenceExceeds(waiter->waitStart, now, GIVE_WAY_MILLISECONDS))
		return false;
	for (LOCKMODE mode = AccessShareLock; mode <= AccessExclusiveLock; mode++)
		if ((holder->holdMask & LOCKBIT_ON(mode)) &&
			DoLockModesConflict(mode, waiter->waitLockMode))
			return true;
	return false;
}

/* Does a process with these locks keep somebody waiting for a relation or for its end? */
static bool
is_waited_for(pid_t pid, const LockData *data)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *lock = &data->locks[i];

		if (lock->pid != pid || lock->holdMask == 0 ||
			(lock->locktag.locktag_type != LOCKTAG_RELATION &&
			 lock->locktag.locktag_type != LOCKTAG_VIRTUALTRANSACTION))
			continue;
		for (int k = 0; k < data->nelements; k++)
			if (holds_up(lock, &data->locks[k], now))
				return true;
	}
	return false;
}

/*
 * A function of a user may never return, and a worker that runs it has locked table and
 * index: whoever wants to drop or alter these would wait for ever.  So the worker ends, and
 * another one is started when those who waited have had time.
 *
 * Not for the sake of those who wait for the build itself: each would begin anew what the
 * one before has lost.
 *
 * True if there are workers for functions, who are to be looked at again.
 */
static bool
make_way(void)
{
	LockData   *data = NULL;
	bool		found = false;

	for (int i = 0; i < RECOVERY_SLOTS; i++)
	{
		RecoverySlot *slot = &Recovery->slots[i];
		pid_t		pid;

		LWLockAcquire(&Recovery->lock, LW_SHARED);
		pid = slot->functions ? slot->pid : 0;
		LWLockRelease(&Recovery->lock);
		if (pid == 0)
			continue;
		found = true;
		if (data == NULL)
			data = GetLockStatusData();
		if (!is_waited_for(pid, data))
			continue;
		LWLockAcquire(&Recovery->lock, LW_SHARED);
		if (slot->functions && slot->pid == pid)
			kill(pid, SIGTERM);
		LWLockRelease(&Recovery->lock);
	}
	if (data != NULL)
	{
		pfree(data->locks);
		pfree(data);
	}
	return found;
}

/* All databases are done: when was that? */
static void
note_end(void)
{
	ListCell   *lc;

	foreach(lc, databases)
	{
		const LauncherDatabase *db = lfirst(lc);

		if (!db->done || db->functions_left)
			return;
	}
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (Recovery->finished == 0)
	{
		Recovery->finished = GetCurrentTimestamp();
		if (Recovery->started == 0)
			Recovery->started = Recovery->finished;
	}
	LWLockRelease(&Recovery->lock);
}

/* Saves what was counted in the last second before an orderly shutdown */
static void
save_workload(int code, Datum arg)
{
	(void) workload_save(NULL);
}

/* Without a launcher nobody would give back later what is kept. */
static void
stop_trimming(int code, Datum arg)
{
	(void) pm_trim(NULL);
}

/* Without a launcher nobody must wait at the gate. */
static void
leave_gate_open(int code, Datum arg)
{
	recovery_set_awaited(NULL, 0);
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->launcher_pid = 0;
	Recovery->launcher = NULL;
	LWLockRelease(&Recovery->lock);
}

static void
launch(Datum arg)
{
	bool		waiting;

	before_shmem_exit(leave_gate_open, (Datum) 0);
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->launcher_pid = MyProcPid;
	Recovery->launcher = MyLatch;
	LWLockRelease(&Recovery->lock);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(save_workload, (Datum) 0);
	before_shmem_exit(stop_trimming, (Datum) 0);

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
		look_for_databases();
		waiting = start_workers();
		/* in this order: a session that has waited sees that recovery has ended */
		note_end();
		tell_awaited();
		waiting |= make_way();
		waiting |= workload_save(MyLatch);
		waiting |= pm_trim(MyLatch);
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
