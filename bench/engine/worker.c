/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  A background worker that runs transactions until the run is over.
 *
 *-------------------------------------------------------------------------
 */
#include "sofort_bench.h"

#include <time.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define REPORT_EVERY	1024	/* transactions, to the statistics */

/* Monotonic: real time may be stepped while a transaction runs. */
static int64
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000000000 + t.tv_nsec;
}

static TatpTransaction
choose(const BenchRun *run, Random *r)
{
	uint32		dice = (uint32) random_between(r, 0, 99);
	int			which = 0;

	while (dice >= run->weights[which])
		dice -= run->weights[which++];
	return which;
}

/*
 * An outcome that the benchmark knows ends the transaction and is no success:
 * a duplicate key that another worker was faster with, a row locked by a
 * transaction that then changed it.  Everything else ends the worker.
 */
static bool
known_outcome(int sqlstate)
{
	return sqlstate == ERRCODE_UNIQUE_VIOLATION || sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

static bool
run_transaction(TatpTransaction which, Random *r)
{
	volatile bool success = false;
	MemoryContext context = CurrentMemoryContext;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		success = tatp_run(which, r);
		PopActiveSnapshot();
		if (success || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
			CommitTransactionCommand();
		else
			AbortCurrentTransaction();
	}
	PG_CATCH();
	{
		if (!known_outcome(geterrcode()))
			PG_RE_THROW();
		success = false;
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return success;
}

static void
run_until_end(BenchRun *run, uint32 number)
{
	BenchBin   *bins = &run->bins[(Size) number * run->nbins];
	Random r = {.state = run->seed * BENCH_MAX_WORKERS + number};
	int64		before = clock_ns();
	int64		offset_us = bench_now_us() - before / 1000;
	uint32		n = 0;

	/* after a crash not the same keys again */
	r.state += (uint64) before * UINT64CONST(0xD1B54A32D192ED03);
	while (!ShutdownRequestPending)
	{
		bool		success;
		int64		after;
		int64		bin;

		if (before / 1000 + offset_us >= run->end_us)
		{
			run->finished[number] = 1;
			return;
		}
		success = run_transaction(choose(run, &r), &r);
		after = clock_ns();
		bin = (after / 1000 + offset_us - run->start_us) / BENCH_BIN_US;
		if (bin >= 0 && bin < (int64) run->nbins)
		{
			bins[bin].transactions++;
			bins[bin].successes += success;
			bins[bin].busy_ns += (uint64) (after - before);
			bins[bin].longest_us = Max(bins[bin].longest_us, (uint32) ((after - before) / 1000));
		}
		before = after;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (++n % REPORT_EVERY == 0)
			pgstat_report_stat(false);
	}
}

void
bench_worker_main(Datum arg)
{
	uint32		number = DatumGetUInt32(arg);
	BenchRun   *run;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	run = bench_map(MyBgworkerEntry->bgw_extra);
	if (run == NULL || number >= run->workers)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("file \"%s\" describes no run", MyBgworkerEntry->bgw_extra)));
	BackgroundWorkerInitializeConnectionByOid(run->database, InvalidOid, 0);

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	tatp_open(run->schema, run->subscribers);
	PopActiveSnapshot();
	CommitTransactionCommand();

	MemoryContextSwitchTo(TopMemoryContext);
	run_until_end(run, number);
}
