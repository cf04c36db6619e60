/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Settings and shared state of background recovery.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/compat/worker.h"
#include "sofort/indexam/indexam.h"
#include "sofort/recovery/rank.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

int			sofort_recovery_workers = 2;
int			sofort_recovery_mode = RECOVERY_ADAPTIVE;
double		sofort_recovery_alpha = 0.99;
int			sofort_recovery_benefit = RANK_DEPENDENT;

RecoveryChooser recovery_choose = recovery_choose_default;

RecoveryShared *Recovery = NULL;

static const struct config_enum_entry recovery_mode_options[] = {
	{"synchronous", RECOVERY_SYNCHRONOUS, false},
	{"instant", RECOVERY_INSTANT, false},
	{"adaptive", RECOVERY_ADAPTIVE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry recovery_benefit_options[] = {
	{"dependent", RANK_DEPENDENT, false},
	{"independent", RANK_INDEPENDENT, false},
	{NULL, 0, false}
};

static void
assign_recovery_mode(int value, void *extra)
{
	indexam_use_partial = value != RECOVERY_SYNCHRONOUS;
	recovery_choose = value == RECOVERY_ADAPTIVE ? recovery_choose_adaptive :
		recovery_choose_default;
	indexam_before_search = value == RECOVERY_ADAPTIVE ? recovery_before_search : NULL;
	indexam_after_search = value == RECOVERY_ADAPTIVE ? recovery_after_search : NULL;
	indexam_pause_search = value == RECOVERY_ADAPTIVE ? recovery_pause_search : NULL;
}

void
recovery_register_workers(void)
{
	BackgroundWorker worker = {0};

	DefineCustomIntVariable("sofort.recovery_workers",
							"Number of background workers that rebuild indexes after a start.",
							"0 leaves it to the first query that needs an index.",
							&sofort_recovery_workers,
							2, 0, RECOVERY_MAX_WORKERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("sofort.recovery_mode",
							 "How queries and the rebuilding of indexes go together after a start.",
							 "synchronous: who needs an index waits until all are there; "
							 "instant: it is used as far as it is there, and the table for the rest; "
							 "adaptive: the same, and those that the workload needs most are rebuilt first.",
							 &sofort_recovery_mode,
							 RECOVERY_ADAPTIVE,
							 recovery_mode_options,
							 PGC_SIGHUP, 0, NULL, assign_recovery_mode, NULL);

	DefineCustomIntVariable("sofort.rebuild_segment",
							"Blocks of a table that are one step of rebuilding an index.",
							"For tests.",
							&indexam_segment_blocks,
							256, 1, 256,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL, NULL, NULL, NULL);

	DefineCustomRealVariable("sofort.recovery_alpha",
							 "How long the workload before the start determines the order of rebuilding.",
							 "Its weight is this to the power of the number of statements executed since the start.",
							 &sofort_recovery_alpha,
							 0.99, 0, 1,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("sofort.recovery_benefit",
							 "What the benefit of an index is compared with.",
							 "dependent: with the indexes that are available; "
							 "independent: with those that survived the restart.",
							 &sofort_recovery_benefit,
							 RANK_DEPENDENT,
							 recovery_benefit_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	/*
	 * The launcher stays, idle, when its work is done: had it exited, it would not be
	 * started again after the crash of a backend, which loses all DRAM structures.
	 */
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	strlcpy(worker.bgw_library_name, "sofort", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sofort_recovery_launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "sofort recovery launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sofort recovery launcher", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

Size
recovery_shmem_size(void)
{
	return sizeof(RecoveryShared);
}

void
recovery_startup(void)
{
	static int	tranche = 0;
	bool		found;

	/* in the postmaster: its children inherit the name of the tranche */
	if (tranche == 0)
	{
		tranche = LWLockNewTrancheId();
		LWLockRegisterTranche(tranche, "sofort_recovery");
	}
	Recovery = ShmemInitStruct("sofort recovery", sizeof(RecoveryShared), &found);
	if (!found)
	{
		memset(Recovery, 0, sizeof(RecoveryShared));
		LWLockInitialize(&Recovery->lock, tranche);
		pg_atomic_init_u64(&Recovery->benefit_at_most, 0);
		pg_atomic_init_u32(&Recovery->search_share, 0);
		pg_atomic_init_u32(&Recovery->share_db, InvalidOid);
		pg_atomic_init_u64(&Recovery->share_set, 0);
		pg_atomic_init_u64(&Recovery->searches_paid, 0);
		pg_atomic_init_u64(&Recovery->searching, 0);
		pg_atomic_init_u64(&Recovery->besides, 0);
		recovery_gate_init();
	}
}

/* (a clock that is set back does not make it last) */
bool
recovery_must_stay_away(Oid db_oid)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		result = false;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	for (int i = 0; i < RECOVERY_LEFT && !result; i++)
	{
		const RecoveryLeft *left = &Recovery->left[i];

		result = left->db_oid == db_oid && now >= left->since &&
			!TimestampDifferenceExceeds(left->since, now, RECOVERY_HOLD_OFF_SECONDS * 1000);
	}
	LWLockRelease(&Recovery->lock);
	return result;
}

void
recovery_show_index(int slot, Oid index)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[slot].index = index;
	LWLockRelease(&Recovery->lock);
}

uint64
recovery_rebuilt_as(Oid index)
{
	uint64		n;
	uint64		found = 0;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	n = Recovery->indexes_rebuilt;
	for (uint64 i = n; i > 0 && i + RECOVERY_REMEMBERED > n && found == 0; i--)
	{
		const RecoveryDone *done = &Recovery->done[i % RECOVERY_REMEMBERED];

		if (done->index == index && done->db_oid == MyDatabaseId)
			found = i;
	}
	LWLockRelease(&Recovery->lock);
	return found;
}

void
recovery_note_rebuilt(Oid index)
{
	RecoveryDone *done;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	done = &Recovery->done[++Recovery->indexes_rebuilt % RECOVERY_REMEMBERED];
	done->index = index;
	done->db_oid = MyDatabaseId;
	LWLockRelease(&Recovery->lock);
}

/* ---- life of a background worker ---- */

static void
handle_shutdown_request(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* If SIGTERM has come, raises an error that ends in recovery_main(). */
void
recovery_check_shutdown(void)
{
	if (ShutdownRequestPending)
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating background worker due to administrator command")));
	CHECK_FOR_INTERRUPTS();
}

/*
 * Runs body(arg), which ends by an error or by proc_exit().  exit_code is that
 * of a shutdown: 1 if the postmaster is to start the worker again.
 */
void
recovery_main(void (*body) (Datum), Datum arg, int exit_code)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_shutdown_request);
	BackgroundWorkerUnblockSignals();
	compat_lift_session_limits();
	recovery_pass_gate();

	PG_TRY();
	{
		body(arg);
	}
	PG_CATCH();
	{
		/* (an open transaction is rolled back by the exit) */
		if (ShutdownRequestPending)
			proc_exit(exit_code);
		PG_RE_THROW();
	}
	PG_END_TRY();
	proc_exit(0);
}

/* ---- leaving a database ---- */

/* Its place, or that of the one that was left first.  Under the lock. */
static RecoveryLeft *
place_of_left(Oid db_oid)
{
	RecoveryLeft *place = &Recovery->left[0];

	for (int i = 0; i < RECOVERY_LEFT; i++)
	{
		if (Recovery->left[i].db_oid == db_oid)
			return &Recovery->left[i];
		if (Recovery->left[i].since < place->since)
			place = &Recovery->left[i];
	}
	return place;
}

/* Workers clear their slot, under the lock, before their pid can be reused. */
static int
signal_workers(Oid db_oid)
{
	RecoveryLeft *left;
	int			n = 0;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	left = place_of_left(db_oid);
	left->db_oid = db_oid;
	left->since = GetCurrentTimestamp();
	for (int i = 0; i < RECOVERY_SLOTS; i++)
		if (Recovery->slots[i].db_oid == db_oid && Recovery->slots[i].pid != 0)
		{
			kill(Recovery->slots[i].pid, SIGTERM);
			n++;
		}
	LWLockRelease(&Recovery->lock);
	return n;
}

void
recovery_leave_database(Oid db_oid)
{
	if (Recovery == NULL || !OidIsValid(db_oid))
		return;
	for (int i = 0; i < 100 && signal_workers(db_oid) > 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

void
recovery_look_for_databases(bool all)
{
	if (Recovery == NULL)
		return;
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->look_for_databases = true;
	Recovery->look_at_all |= all;
	if (Recovery->launcher != NULL)
		SetLatch(Recovery->launcher);
	LWLockRelease(&Recovery->lock);
}

void
recovery_progress(RecoveryProgress *progress)
{
	memset(progress, 0, sizeof(*progress));
	if (Recovery == NULL)
		return;
	LWLockAcquire(&Recovery->lock, LW_SHARED);
	for (int i = 0; i < RECOVERY_SLOTS; i++)
		if (Recovery->slots[i].pid != 0)
			progress->workers++;
	progress->indexes_rebuilt = Recovery->indexes_rebuilt;
	progress->failures = Recovery->failures;
	progress->started = Recovery->started;
	progress->finished = Recovery->finished;
	LWLockRelease(&Recovery->lock);
}

const char *
recovery_mode_name(void)
{
	return recovery_mode_options[sofort_recovery_mode].name;
}
