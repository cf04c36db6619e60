/*-------------------------------------------------------------------------
 *
 * free_cache.c
 *	  Free granules that keep their blocks for a while.
 *
 * To give blocks back to the file system and to get new ones costs several times what
 * filling them costs.  So runs of granules that were freed last are kept as they are, and
 * taken again by requests of the same size.  They have no word: on the medium they are free
 * like all others, and after a crash in memory, too; then pm_trim() finds their blocks.  In
 * the bitmap they are used, so that nobody else takes them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "pm_internal.h"

#define OLD_AFTER			30	/* calls of pm_trim(), about a second each */
#define RUNS_PER_TRIM		1024
#define EVICT_TOGETHER		(FREE_CACHE_RUNS / 4)
#define EVICT_GRANULES		(FREE_CACHE_GRANULES / 4)

/* Caller holds the segment lock. */
static void
remove_runs(int first, int n)
{
	FreeCache  *cache = &pm_shared->free_cache;

	for (int i = first; i < first + n; i++)
		cache->granules -= cache->run[i].n;
	memmove(&cache->run[first], &cache->run[first + n], (cache->nruns - first - n) * sizeof(FreeRun));
	cache->nruns -= n;
}

/*
 * Takes a run of exactly n granules, the last one that was freed: it is the likeliest to be
 * mapped still.  Caller holds the segment lock, and has checked the quota.
 */
bool
free_cache_take(uint32 n, uint64 *offset)
{
	FreeCache  *cache = &pm_shared->free_cache;

	for (int i = cache->nruns - 1; i >= 0; i--)
	{
		if (cache->run[i].n != n)
			continue;
		*offset = cache->run[i].offset;
		remove_runs(i, 1);
		segment_count_used((int) n);
		return true;
	}
	return false;
}

static void
give_back(const FreeRun *run, int n)
{
	for (int i = 0; i < n; i++)
	{
		segment_punch(run[i].offset, run[i].n);
		segment_clear(run[i].offset, run[i].n);
	}
}

static void
wake_trimmer(void)
{
	FreeCache  *cache = &pm_shared->free_cache;
	Latch	   *trimmer = cache->trimmer;

	if (trimmer != NULL && !cache->trimming)
		SetLatch(trimmer);
}

/* Gives back runs, the oldest first, until there is room for n granules and for some more. */
static void
make_room(uint32 n)
{
	FreeCache  *cache = &pm_shared->free_cache;
	FreeRun		old[EVICT_TOGETHER];
	uint32		granules = 0;
	int			nold = 0;

	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	if (cache->nruns == FREE_CACHE_RUNS || cache->granules + n > FREE_CACHE_GRANULES)
	{
		while (nold < cache->nruns && nold < EVICT_TOGETHER && granules < n + EVICT_GRANULES)
		{
			old[nold] = cache->run[nold];
			granules += old[nold++].n;
		}
		remove_runs(0, nold);
	}
	LWLockRelease(pm_shared->segment_lock);
	give_back(old, nold);
}

/*
 * Keeps granules whose word is durably zero; some may become spare ones.  False: they are
 * too many, or the file system was full lately, or nobody would give them back later.
 */
bool
free_cache_add(uint64 offset, uint32 n)
{
	FreeCache  *cache = &pm_shared->free_cache;
	bool		added = false;

	if (n > FREE_CACHE_GRANULES / 4 || cache->trimmer == NULL || cache->rounds_off > 0)
		return false;
#ifdef USE_ASSERT_CHECKING
	/* nobody may look at it any more */
	memset(PoolBase + offset, 0x5A, (Size) n * PM_GRANULE);
#endif
	while (!added)
	{
		LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
		(void) segment_make_spare(&offset, &n);
		added = n == 0;
		if (!added && cache->nruns < FREE_CACHE_RUNS && cache->granules + n <= FREE_CACHE_GRANULES)
		{
			FreeRun    *run = &cache->run[cache->nruns++];

			run->offset = offset;
			run->n = n;
			run->round = cache->round;
			cache->granules += n;
			segment_count_used(-(int) n);
			added = true;
		}
		LWLockRelease(pm_shared->segment_lock);
		if (!added)
			make_room(n);
	}
	wake_trimmer();
	return true;
}

/*
 * Gives back all, because space is short, and keeps nothing for a while; before that, spare
 * ones are made.  What pm_trim() holds at the moment is free, too, when this returns.
 */
void
pm_give_back_free(void)
{
	FreeCache  *cache = &pm_shared->free_cache;
	bool		found;

	LWLockAcquire(pm_shared->trim_lock, LW_EXCLUSIVE);
	do
	{
		FreeRun		run;

		LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
		cache->rounds_off = OLD_AFTER;
		found = cache->nruns > 0;
		if (found)
		{
			run = cache->run[cache->nruns - 1];
			remove_runs(cache->nruns - 1, 1);
			segment_count_used((int) segment_make_spare(&run.offset, &run.n));
		}
		LWLockRelease(pm_shared->segment_lock);
		if (found && run.n > 0)
			give_back(&run, 1);
	} while (found);
	LWLockRelease(pm_shared->trim_lock);
	wake_trimmer();
}

/* Gives back what nobody has taken for so long.  Caller holds trim_lock. */
static void
trim_old(void)
{
	FreeCache  *cache = &pm_shared->free_cache;
	FreeRun		old[FREE_CACHE_RUNS];
	int			nold = 0;

	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	cache->round++;
	if (cache->rounds_off > 0)
		cache->rounds_off--;
	while (nold < cache->nruns && cache->round - cache->run[nold].round > OLD_AFTER)
	{
		old[nold] = cache->run[nold];
		nold++;
	}
	remove_runs(0, nold);
	LWLockRelease(pm_shared->segment_lock);
	give_back(old, nold);
}

static bool
has_blocks(uint64 offset, uint32 n)
{
	off_t		data = lseek(pm_pool_fd, (off_t) offset, SEEK_DATA);

	return data >= 0 && data < (off_t) (offset + (uint64) n * PM_GRANULE);
}

/*
 * What a life before this one has kept, or was about to give back: looks at some of the free
 * granules.  True if there are more.  Caller holds trim_lock.
 */
static bool
trim_leftovers(void)
{
	FreeCache  *cache = &pm_shared->free_cache;

	for (int i = 0; i < RUNS_PER_TRIM; i++)
	{
		uint64		offset;
		uint32		n;

		if (!segment_take_next_free(&cache->next_extent, &cache->next_granule, &offset, &n))
			return false;
		if (has_blocks(offset, n))
			segment_punch(offset, n);
		segment_clear(offset, n);
	}
	return true;
}

bool
pm_trim(Latch *latch)
{
	FreeCache  *cache = &pm_shared->free_cache;
	bool		more;

	if (pool_status() != POOL_READY)
		return false;
	if (latch == NULL)
	{
		cache->trimmer = NULL;
		pm_give_back_free();
		return false;
	}
	cache->trimmer = latch;
	LWLockAcquire(pm_shared->trim_lock, LW_EXCLUSIVE);
	trim_old();
	more = trim_leftovers();
	LWLockRelease(pm_shared->trim_lock);

	/* from here on who keeps something wakes us; who has just done so did not */
	cache->trimming = false;
	pg_memory_barrier();
	cache->trimming = more || cache->nruns > 0 || cache->rounds_off > 0;
	return cache->trimming;
}
