/*-------------------------------------------------------------------------
 *
 * throttle.c
 *	  What searches of tables in place of indexes that are not there yet cost, and how
 *	  much of the processors they may use.
 *
 * While an index is urgent, adaptive recovery begins with nearly all processors, and
 * hands them over as the benefit of what is left to rebuild shrinks.  A session that
 * looks up a complete index is never held up.  One that has to search the table is, if
 * searches have used more than their share: it waits before its search, and holds no
 * latch, LWLock or epoch then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "sofort/indexam/indexam.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

/* Least share of the processors that searches get, in thousandths */
#define LEAST_SHARE			150

/* A search may begin when all but this much of the earlier ones is paid for */
#define CREDIT_MICROSECONDS	2000

/*
 * Searches are free up to so many times what their process computes besides: such sessions
 * run at a tenth of full speed or more.  A process can save up for that, because the
 * look-ups of a nested loop follow each other closely.
 */
#define FREE_SEARCH			8
#define MOST_FREE_SECONDS	0.5

/*
 * Searches are dear if they take so many times what their processes compute besides, and
 * more than a part of one processor; for how long this is measured
 */
#define DEAR_SEARCH			3
#define DEAR_PART			0.25
#define DEAR_MICROSECONDS	100000

/* A share that no worker has confirmed for so long no longer counts. */
#define VALID_MICROSECONDS	1000000

/* Nobody waits longer before one search, whatever others do. */
#define LONGEST_WAIT_MICROSECONDS	3000000

static uint64
now_microseconds(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (uint64) INSTR_TIME_GET_MICROSEC(now);
}

static int
processors(void)
{
	static int	n = 0;

	if (n == 0)
		n = Max((int) sysconf(_SC_NPROCESSORS_ONLN), 1);
	return n;
}

void
recovery_set_search_share(double benefit_left, bool hold_up)
{
	uint64		most = pg_atomic_read_u64(&Recovery->benefit_at_most);
	uint64		left = (uint64) Max(benefit_left, 0);
	uint32		share = 0;

	while (left > most && !pg_atomic_compare_exchange_u64(&Recovery->benefit_at_most, &most, left))
		;
	most = Max(most, left);
	if (left > 0 && hold_up)
		share = Max(LEAST_SHARE, (uint32) (1000 - 1000.0 * left / most));
	else if (pg_atomic_read_u32(&Recovery->share_db) != MyDatabaseId)
		return;					/* there is work in another database */
	pg_atomic_write_u32(&Recovery->share_db, MyDatabaseId);
	pg_atomic_write_u64(&Recovery->share_set, now_microseconds());
	pg_atomic_write_u32(&Recovery->search_share, share);
}

/* In thousandths of all processors; 0: as much as they like */
static uint32
search_share(uint64 now)
{
	uint32		share = Recovery == NULL ? 0 : pg_atomic_read_u32(&Recovery->search_share);

	if (share == 0 || now > pg_atomic_read_u64(&Recovery->share_set) + VALID_MICROSECONDS)
		return 0;
	return share;
}

/* Processor time of this process, in seconds */
static double search_ended;		/* when the last search ended */
static double search_began;		/* when this one began, plus what has not counted since */
static double other_seconds;	/* between the two */
static double pause_began;
static double free_seconds;		/* what searches may take for nothing */
static double last_seconds;		/* what the last one has taken */
static bool uniqueness;			/* a uniqueness check searches, not a scan */

double
recovery_processor_seconds(void)
{
	struct timespec t;

	return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0 ? t.tv_sec + t.tv_nsec / 1e9 : 0;
}

/* Waits while searches have used more than their share, or for the index. */
static void
wait_for_share(bool (*complete) (void *arg), void *arg)
{
	uint64		begin = now_microseconds();
	uint64		now = begin;

	while (search_share(now) != 0 && now < begin + LONGEST_WAIT_MICROSECONDS)
	{
		uint64		paid = pg_atomic_read_u64(&Recovery->searches_paid);
		long		ms;

		if (paid <= now + CREDIT_MICROSECONDS || complete(arg))
			return;
		ms = (long) Min((paid - now) / 1000 + 1, 20);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		now = now_microseconds();
	}
}

void
recovery_before_search(bool (*complete) (void *arg), void *arg)
{
	search_began = recovery_processor_seconds();
	uniqueness = complete == NULL;
	if (uniqueness)
		return;
	other_seconds = search_began - search_ended;
	free_seconds = Min(free_seconds + FREE_SEARCH * other_seconds, MOST_FREE_SECONDS);
	/* a process that needs no share does not wait for those who owe */
	if (free_seconds < last_seconds)
	{
		wait_for_share(complete, arg);
		search_began = recovery_processor_seconds();
	}
}

/*
 * Finding out what the blocks of a table hold makes all later searches cheap.  The first
 * process would pay for all, and hold up everybody by what it owes.
 */
void
recovery_pause_search(bool pause)
{
	if (pause)
		pause_began = recovery_processor_seconds();
	else
		search_began += recovery_processor_seconds() - pause_began;
}

static void
count_seconds(pg_atomic_uint64 *microseconds, double seconds)
{
	pg_atomic_fetch_add_u64(microseconds, (uint64) (seconds * 1e6 + 0.5));
}

/*
 * searches_paid is the moment at which all searches so far will have used no
 * more than their share.
 */
void
recovery_after_search(pg_atomic_uint64 *searched)
{
	double		ended = recovery_processor_seconds();
	double		seconds = Max(ended - search_began, 0);
	uint64		now;
	uint32		share;
	uint64		paid;
	uint64		cost;

	count_seconds(searched, seconds);
	if (uniqueness)
		return;
	count_seconds(&Recovery->searching, seconds);
	count_seconds(&Recovery->besides, other_seconds);
	search_ended = ended;
	last_seconds = seconds;
	free_seconds -= seconds;
	if (free_seconds >= 0)
		return;
	seconds = -free_seconds;
	free_seconds = 0;
	now = now_microseconds();
	share = search_share(now);
	if (share == 0)
		return;
	cost = (uint64) (seconds * 1e6 * 1000 / (share * processors()));
	paid = pg_atomic_read_u64(&Recovery->searches_paid);
	while (!pg_atomic_compare_exchange_u64(&Recovery->searches_paid, &paid,
										   Max(paid, now - Min(cost, now)) + cost))
		;
}

/*
 * Measured over the last interval of DEAR_MICROSECONDS in which a worker asked, for all of
 * them together: a worker that has just started would know nothing, let queries go first,
 * and have to be replaced when it knows.
 */
bool
recovery_searches_are_dear(void)
{
	uint64		now = now_microseconds();
	uint64		searching = pg_atomic_read_u64(&Recovery->searching);
	uint64		besides = pg_atomic_read_u64(&Recovery->besides);
	uint64		searched;
	bool		dear;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (now >= Recovery->dear_measured + DEAR_MICROSECONDS)
	{
		searched = searching - Recovery->dear_searching;
		Recovery->dear = Recovery->dear_measured != 0 &&
			searched >= DEAR_PART * (now - Recovery->dear_measured) &&
			searched >= DEAR_SEARCH * (besides - Recovery->dear_besides);
		Recovery->dear_measured = now;
		Recovery->dear_searching = searching;
		Recovery->dear_besides = besides;
	}
	dear = Recovery->dear;
	LWLockRelease(&Recovery->lock);
	return dear;
}
