/*-------------------------------------------------------------------------
 *
 * gate.c
 *	  Recovery mode synchronous: a session that needs an index after a start waits until
 *	  all indexes of its database are ready.
 *
 * The launcher keeps the list of databases that are awaited.  Sessions that wait here
 * hold the locks of their transactions; so workers skip what they cannot lock, and
 * nobody waits here while the launcher or a worker waits for a lock itself (README.md,
 * "The gate").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/fault.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

/* If the launcher has not started by then, it will not. */
#define LAUNCHER_MILLISECONDS	5000

/* A process of recovery that waits for a lock for so long may be waiting for us. */
#define BLOCKED_MILLISECONDS	1000

#define POLL_MILLISECONDS		100

/* Has the launcher published its list, and is this database not (or no longer) on it? */
static bool
is_open(void)
{
	bool		open;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	open = Recovery->surveyed && Recovery->nawaited <= RECOVERY_AWAITED;
	for (int i = 0; open && i < Recovery->nawaited; i++)
		if (Recovery->awaited[i] == MyDatabaseId)
			open = false;
	LWLockRelease(&Recovery->lock);
	return open;
}

static bool
launcher_is_missing(TimestampTz since)
{
	bool		missing;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	missing = Recovery->launcher_pid == 0;
	LWLockRelease(&Recovery->lock);
	return missing &&
		TimestampDifferenceExceeds(since, GetCurrentTimestamp(), LAUNCHER_MILLISECONDS);
}

/*
 * Nobody waits for the launcher any more: this process never, and others only if it starts
 * and says for which databases.
 */
static void
open_without_launcher(void)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (Recovery->launcher_pid == 0 && !Recovery->surveyed)
	{
		Recovery->surveyed = true;
		Recovery->nawaited = 0;
	}
	LWLockRelease(&Recovery->lock);
	ConditionVariableBroadcast(&Recovery->gate);
}

static bool
waits_for_lock(pid_t pid, TimestampTz now)
{
	PGPROC	   *proc = pid == 0 ? NULL : BackendPidGetProc(pid);
	TimestampTz since = proc == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&proc->waitStart);

	return since != 0 && TimestampDifferenceExceeds(since, now, BLOCKED_MILLISECONDS);
}

/* Does a process of recovery wait for a heavyweight lock, perhaps one of this transaction? */
static bool
recovery_is_blocked(void)
{
	TimestampTz now = GetCurrentTimestamp();
	pid_t		pids[RECOVERY_SLOTS + 1];
	int			n = 0;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	pids[n++] = Recovery->launcher_pid;
	for (int i = 0; i < RECOVERY_SLOTS; i++)
		pids[n++] = Recovery->slots[i].pid;
	LWLockRelease(&Recovery->lock);
	while (n > 0)
		if (waits_for_lock(pids[--n], now))
			return true;
	return false;
}

/*
 * Called before a sofort index is used, without LWLock, latch or epoch.  Once the gate was
 * open it is open for this process, which does not outlive a restart.
 */
static void
wait_at_gate(void)
{
	TimestampTz since = GetCurrentTimestamp();

	if (!IsUnderPostmaster || RecoveryInProgress() || sofort_recovery_workers == 0 ||
		sofort_recovery_mode != RECOVERY_SYNCHRONOUS)
		return;					/* (settings may change) */
	ConditionVariablePrepareToSleep(&Recovery->gate);
	while (!is_open())
	{
		if (launcher_is_missing(since))
		{
			open_without_launcher();
			break;
		}
		if (recovery_is_blocked())
		{
			ConditionVariableCancelSleep();
			return;
		}
		SOFORT_STOP("gate-closed");
		(void) ConditionVariableTimedSleep(&Recovery->gate, POLL_MILLISECONDS,
										   PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	indexam_before_use = NULL;
}

void
recovery_gate_init(void)
{
	ConditionVariableInit(&Recovery->gate);
	indexam_before_use = wait_at_gate;
}

void
recovery_pass_gate(void)
{
	indexam_before_use = NULL;
}

void
recovery_set_awaited(const Oid *databases, int n)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->surveyed = true;
	Recovery->nawaited = n;
	if (n > 0)
		memcpy(Recovery->awaited, databases, Min(n, RECOVERY_AWAITED) * sizeof(Oid));
	LWLockRelease(&Recovery->lock);
	ConditionVariableBroadcast(&Recovery->gate);
}

/* (the launcher keeps the list) */
void
recovery_indexes_are_done(int slot)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (!Recovery->slots[slot].indexes_done && Recovery->launcher != NULL)
		SetLatch(Recovery->launcher);
	Recovery->slots[slot].indexes_done = true;
	LWLockRelease(&Recovery->lock);
}
