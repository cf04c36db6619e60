/*-------------------------------------------------------------------------
 *
 * latency.h
 *	  Emulation of slower media: delays added to what memory itself takes.
 *
 * Writes are delayed by pm_drain() alone.  Reads are delayed where the code
 * knows that it touches lines of the pool which are probably in no cache:
 *
 *		pm_read_miss(1);	one dependent miss: a line whose address was not
 *							known before, with those fetched beside it
 *
 * costs one untaken branch on a variable of this process while the setting is
 * 0.  A sequential read of consecutive lines counts as one miss: the hardware
 * prefetches the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_LATENCY_H
#define SOFORT_PMEM_LATENCY_H

#include "postgres.h"

#define PM_MAX_LATENCY		1000000 /* ns */

/* GUCs (defined in src/sofort.c), in nanoseconds; 0 = off */
extern int	sofort_scm_read_latency;
extern int	sofort_scm_write_latency;

/* In the postmaster, before the first fork: the clock's reference point. */
extern void latency_init(void);

extern void pm_delay_reads(uint32 misses);
extern void pm_delay_write(void);

/* "misses" dependent misses, one after the other.  Never fails; takes no lock. */
static inline void
pm_read_miss(uint32 misses)
{
	if (unlikely(sofort_scm_read_latency != 0))
		pm_delay_reads(misses);
}

#endif							/* SOFORT_PMEM_LATENCY_H */
