/*-------------------------------------------------------------------------
 *
 * latency.c
 *	  Delays that emulate slower media.  See include/sofort/pmem/latency.h.
 *
 * A delay is a busy wait on the time stamp counter: a sleep takes 50 us at
 * least.  The counter's frequency follows from two readings of it and of the
 * clock: one in the postmaster before the first fork, one at the process's
 * first delay.  So start-up does not wait for a calibration.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <cpuid.h>
#include <time.h>
#include <x86intrin.h>

#include "pm_internal.h"
#include "sofort/pmem/latency.h"

#define CALIBRATION_NS		INT64CONST(1000000) /* between the readings, at least */

int			sofort_scm_read_latency = 0;
int			sofort_scm_write_latency = 0;

/* The first reading; inherited */
static uint64 first_ticks = 0;
static int64 first_ns = 0;
static bool constant_ticks = false;

/* Of this process; 0: not known yet */
static double ticks_per_ns = 0;

static int64
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000000000 + t.tv_nsec;
}

void
latency_init(void)
{
	unsigned int a,
				b,
				c,
				d;

	constant_ticks = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
	first_ticks = __rdtsc();
	first_ns = clock_ns();
}

/* A process that did not inherit the first reading takes it now. */
static void
calibrate(void)
{
	int64		ns;

	if (first_ns == 0)
		latency_init();
	do
	{
		ns = clock_ns() - first_ns;
	} while (ns < CALIBRATION_NS);
	ticks_per_ns = (double) (__rdtsc() - first_ticks) / (double) ns;
}

/* (No pause instruction: one takes as long as a short delay.) */
static void
busy_wait(uint64 ns)
{
	if (unlikely(ticks_per_ns == 0))
		calibrate();
	if (likely(constant_ticks))
	{
		uint64		start = __rdtsc();
		uint64		ticks = (uint64) ((double) ns * ticks_per_ns);

		while (__rdtsc() - start < ticks)
			;
	}
	else
	{
		int64		start = clock_ns();

		while (clock_ns() - start < (int64) ns)
			;
	}
}

void
pm_delay_reads(uint32 misses)
{
	pm_count_delays(misses, 0);
	busy_wait((uint64) sofort_scm_read_latency * misses);
}

void
pm_delay_write(void)
{
	pm_count_delays(0, 1);
	busy_wait(sofort_scm_write_latency);
}
