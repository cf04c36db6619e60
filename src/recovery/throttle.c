/*-------------------------------------------------------------------------
 *
 * throttle.c
 *	  How much of the processors queries may use to search tables in place of
 *	  indexes that are not there yet.
 *
 * Adaptive recovery begins with nearly all processors and hands them over as the
 * benefit of what is left to rebuild is used up.  Who looks up an index that is
 * complete is never held up; who has to search the table is, when searches have
 * used more than their share: it waits before its search, and holds nothing then.
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

/* Of the processors: what searches get at least, in thousandths */
#define LEAST_SHARE			150

/* A search may begin when those before it are paid for but for this */
#define CREDIT_MICROSECONDS	2000

/*
 * A search that takes no more than so many times what its process has computed since the
 * one before it is free: such sessions get on, at a tenth of full speed or more.
 */
#define FREE_SEARCH			8

/* A share that no worker has confirmed for so long does not count any more. */
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
recovery_set_search_share(double benefit_left)
{
	uint64		most = pg_atomic_read_u64(&Recovery->benefit_at_most);
	uint64		left = (uint64) Max(benefit_left, 0);
	uint32		share = 0;

	while (left > most && !pg_atomic_compare_exchange_u64(&Recovery->benefit_at_most, &most, left))
		;
	most = Max(most, left);
	if (left > 0)
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
static double search_began;		/* when this one began, and what has not counted since */
static double pause_began;
static double other_seconds;	/* between the two */

static double
processor_seconds(void)
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
	wait_for_share(complete, arg);
	search_began = processor_seconds();
	other_seconds = search_began - search_ended;
}

/*
 * Finding out what the blocks of a table hold makes all later searches cheap.  Whoever
 * does it first would pay for everybody, and hold up everybody with what he owes.
 */
void
recovery_pause_search(bool pause)
{
	if (pause)
		pause_began = processor_seconds();
	else
		search_began += processor_seconds() - pause_began;
}

/*
 * searches_paid is the moment at which all searches so far will have used no
 * more than their share.
 */
void
recovery_after_search(void)
{
	double		seconds;
	uint64		now = now_microseconds();
	uint32		share = search_share(now);
	uint64		paid;
	uint64		cost;

	search_ended = processor_seconds();
	if (share == 0)
		return;
	seconds = Max(search_ended - search_began - FREE_SEARCH * other_seconds, 0);
	cost = (uint64) (seconds * 1e6 * 1000 / (share * processors()));
	paid = pg_atomic_read_u64(&Recovery->searches_paid);
	while (!pg_atomic_compare_exchange_u64(&Recovery->searches_paid, &paid,
										   Max(paid, now - Min(cost, now)) + cost))
		;
}
