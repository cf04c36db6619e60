/*-------------------------------------------------------------------------
 *
 * persist.h
 *	  The only way in which anything becomes durable: flush and drain.
 *
 * pm_flush(range)	 starts writing the lines of the range back to the medium
 * pm_drain()		 waits until everything that this process flushed is there
 * pm_persist(range) both
 *
 * Publish by one aligned 8-byte store: write what it makes reachable, flush, drain,
 * store, flush, drain.  A store that another process can build on is drained before
 * that process can find it, through the pool or through DRAM (a fence on one core does
 * not order another core's flushes).  A process that reads such a word without the lock
 * that its writer holds over the drain can see it earlier: so it flushes the word, too,
 * or asks DRAM, where it is noted after the drain, or takes the lock.
 *
 * No other code names a cache-line instruction or msync.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_PERSIST_H
#define SOFORT_PMEM_PERSIST_H

#include "port/atomics.h"
#include "sofort/pmem/layout.h"

typedef enum PmMedium
{
	PM_MEDIUM_NONE = 0,			/* no pool is open */
	PM_MEDIUM_PMEM,				/* DAX with MAP_SYNC: flush instructions */
	PM_MEDIUM_MSYNC,			/* ordinary file: redo log */
	PM_MEDIUM_PROCESS			/* survives processes, not power: flush
								 * instructions as on pmem, to cost the same */
} PmMedium;

extern PmMedium pm_medium(void);
extern const char *pm_medium_name(PmMedium medium);

/* clwb, clflushopt, clflush, none (eADR), redo log */
extern const char *pm_flush_method(void);

/* One sentence for views and the log: what survives what. */
extern const char *pm_medium_promise(PmMedium medium);

extern void pm_flush(const void *addr, Size len);
extern void pm_drain(void);

/*
 * Stores to the line of addr that were made before this reach the medium before
 * those made after it: a line is written back whole, and stores to one line
 * become visible in their order.  pm_store8() orders its line in the same way.
 * Whatever else is not drained may arrive in any order, 8 bytes at a time.
 */
static inline void
pm_line_order(const void *addr)
{
	pg_write_barrier();
}

/*
 * pm_flush() only notes the line; its write-back starts at the latest in pm_drain().  Code
 * that leaves flushed lines undrained (lazily drained stamps) calls this before it releases
 * the lock that keeps the memory allocated: writing back memory that was given back to the
 * file system would allocate it again.
 */
extern void pm_start_writeback(void);

static inline void
pm_persist(const void *addr, Size len)
{
	pm_flush(addr, len);
	pm_drain();
}

/* For copies of more than a few lines: written past the cache, and durable after pm_drain(). */
extern void pm_copy_nodrain(void *dst, const void *src, Size len);
extern void pm_zero_nodrain(void *dst, Size len);

/* Store 8 bytes, after all stores before it, and flush them; no drain. */
static inline void
pm_store8(uint64 *addr, uint64 value)
{
	pg_write_barrier();
	*(volatile uint64 *) addr = value;
	pm_flush(addr, sizeof(uint64));
}

static inline void
pm_store8_persist(uint64 *addr, uint64 value)
{
	pm_store8(addr, value);
	pm_drain();
}

/*
 * Publishing by a word whose line nobody else flushes meanwhile: pm_drain_to_publish(),
 * then pm_publish8(), does the same as pm_drain(), then pm_store8_persist().  Where drains
 * write to a log, one write does both: the word is in the log, with all that was flushed
 * before, before it is in memory.
 */
extern void pm_drain_to_publish(void);
extern void pm_publish8(uint64 *addr, uint64 value);

/* What this process has done since it started, for tests and benches. */
typedef struct PmCounters
{
	uint64		lines_flushed;	/* distinct lines between two drains */
	uint64		drains;			/* that had something to wait for */
	uint64		bytes_copied;	/* pm_copy_nodrain, pm_zero_nodrain */
	uint64		read_delays;	/* misses delayed: see latency.h */
	uint64		write_delays;	/* drains delayed */
} PmCounters;

extern const PmCounters *pm_counters(void);
extern bool pm_drain_is_slow(void);

/*
 * Is everything that this server life found in the pool when it began durable?  Where
 * memory outlives processes, killed ones may have stored what is not durable yet; with a
 * redo log the start has written the file back (README, "Redo log").
 */
extern bool pm_found_is_durable(void);

#include "sofort/pmem/shadow.h"

#endif							/* SOFORT_PMEM_PERSIST_H */
