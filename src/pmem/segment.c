/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  Granules of the extents: which are used, and room for them in the file.
 *
 * The durable truth is one word per segment (SegmentWord in layout.h).  The
 * bitmap in shared memory says which granules may be handed out; it is rebuilt
 * from the words at start.  Bits are set before a word is stored, and cleared
 * only after the word is durably zero: a granule is never handed out twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "pm_internal.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/read_ahead.h"

#define WORDS_PER_STEP	512		/* words_prepared grows by a page of words */
#define SPARE_TRIES		1024	/* granules looked at for storage at the start */
#define MOST_TAKEN_FREE	1024	/* granules */
#define BITMAP_WORDS	(PM_MAX_GRANULES / 64)

static inline uint64 *
extent_bitmap(int extent)
{
	return pm_bitmap + (Size) extent * BITMAP_WORDS;
}

static inline bool
bit_is_set(const uint64 *bitmap, uint32 i)
{
	return (bitmap[i / 64] >> (i % 64)) & 1;
}

static void
set_bits(uint64 *bitmap, uint32 start, uint32 n)
{
	for (; n > 0; n--, start++)
		bitmap[start / 64] |= UINT64CONST(1) << (start % 64);
}

static void
clear_bits(uint64 *bitmap, uint32 start, uint32 n)
{
	for (; n > 0; n--, start++)
		bitmap[start / 64] &= ~(UINT64CONST(1) << (start % 64));
}

/* ---- holes of a copy ---- */

/* Nothing in use is in a hole of the file: since a start of this postmaster */
static bool holes_filled = false;

/* fallocate; 0 or an errno */
static int
allocate(uint64 offset, uint64 len)
{
	int			rc;

	do
		rc = fallocate(pm_pool_fd, 0, (off_t) offset, (off_t) len) == 0 ? 0 : errno;
	while (rc == EINTR);
	return rc;
}

/* Allocates the holes of a range.  (Not durable: the next cold start looks again.) */
static bool
fill_holes(uint64 offset, uint64 len, PoolRefusal *why)
{
	const off_t end = (off_t) (offset + len);
	off_t		hole = len > 0 ? lseek(pm_pool_fd, (off_t) offset, SEEK_HOLE) : end;
	int			rc = 0;

	while (rc == 0 && hole >= 0 && hole < end)
	{
		off_t		data = lseek(pm_pool_fd, hole, SEEK_DATA);

		if (data < 0 && errno != ENXIO)
			break;
		if (data < 0 || data > end)
			data = end;
		rc = allocate((uint64) hole, (uint64) (data - hole));
		hole = data < end ? lseek(pm_pool_fd, data, SEEK_HOLE) : end;
	}
	if (rc == 0 && hole >= end)
		return true;
	rc = rc != 0 ? rc : errno;
	return pool_refuse(why, rc == ENOSPC || rc == EDQUOT ? ERRCODE_DISK_FULL : ERRCODE_IO_ERROR,
					   "Free space on the file system that holds the pool, and restart the server.",
					   "The file is a copy with holes where the pool is in use.",
					   "could not allocate all space of sofort pool \"%s\": %s", pm_pool_file, strerror(rc));
}

/*
 * Fills holes where granules are in use; not behind damaged words, as nobody knows how far
 * their segments reach.
 */
static bool
fill_granules(int extent, PoolRefusal *why)
{
	uint32		prepared = Min(words_prepared(extent), pm_extent[extent].ngranules);
	uint32		start = 0;
	uint32		end = 0;

	for (uint32 g = 0; g < prepared; g++)
	{
		uint64		word = segment_word(extent, g);
		uint32		n = SEGWORD_STATE(word) == SEGWORD_SEGMENT ? SEGWORD_COUNT(word) : 1;

		if (word == 0 || !SEGWORD_IS_RIGHT(word))
			continue;
		if (g != end)
		{
			if (!fill_holes(granule_offset(extent, start), (uint64) (end - start) * PM_GRANULE, why))
				return false;
			start = g;
		}
		end = g + Max(Min(n, prepared - g), 1);
		g = end - 1;
	}
	return fill_holes(granule_offset(extent, start), (uint64) (end - start) * PM_GRANULE, why);
}

/* ---- start ---- */

/*
 * Rebuild bitmap and counters from the words; flushes them, because what a
 * killed process stored and did not flush decides from here on what is free.
 * They are drained before alloc_startup() gives anything back, at the latest by
 * start_life().  Reads 8 bytes per granule ever used, nothing else.  False with a
 * reason if there is no room for what is in use.
 */
bool
segment_startup(PoolRefusal *why)
{
	uint64		total = 0;
	int			e;

	for (e = 0; e < pm_nextents; e++)
	{
		uint64	   *bitmap = extent_bitmap(e);
		uint32		prepared = words_prepared(e);
		uint32		g;
		uint32		hint = 0;

		/* (reading a hole of a tmpfs file takes a page) */
		if (!holes_filled &&
			!fill_holes(pm_extent[e].offset + PM_GRANULE, prepared * sizeof(uint64), why))
			return false;
		pm_read_ahead(pm_extent[e].words, prepared * sizeof(uint64));
		memset(bitmap, 0, prepared / 8);
		pm_shared->extent_used[e] = 0;
		for (g = 0; g < prepared; g++)
		{
			uint64		word = segment_word(e, g);
			uint32		n;

			if (word == 0)
				continue;
			n = SEGWORD_STATE(word) == SEGWORD_SEGMENT ? SEGWORD_COUNT(word) : 1;

			/*
			 * damaged: nobody knows how far it reaches, so nothing up to the next word is
			 * free
			 */
			if (!SEGWORD_IS_RIGHT(word))
				for (n = 1; g + n < prepared && segment_word(e, g + n) == 0; n++)
					;
			n = Min(n, prepared - g);
			n = Max(n, 1);
			set_bits(bitmap, g, n);
			if (hint == g)
				hint = g + n;
			pm_shared->extent_used[e] += n;
			g += n - 1;
		}
		pm_shared->extent_hint[e] = hint;
		total += pm_shared->extent_used[e];
		pm_flush(pm_extent[e].header, sizeof(ExtentHeader));
		pm_flush(pm_extent[e].words, prepared * sizeof(uint64));
		if (!holes_filled && !fill_granules(e, why))
			return false;
	}
	holes_filled = true;
	pg_atomic_write_u64(&pm_shared->used_granules, total);
	return true;
}

/* ---- taking ---- */

/* n more granules are in use, as the quota counts it.  Caller holds the segment lock. */
void
segment_count_used(int n)
{
	pg_atomic_write_u64(&pm_shared->used_granules,
						pg_atomic_read_u64(&pm_shared->used_granules) + (uint64) (int64) n);
}

/*
 * First run of n free granules of an extent at or above the hint.  Granules at
 * or above words_prepared are free and have no bits yet.
 */
static bool
find_run(int extent, uint32 n, uint32 *start)
{
	const uint64 *bitmap = extent_bitmap(extent);
	uint32		ngranules = pm_extent[extent].ngranules;
	uint32		prepared = Min(words_prepared(extent), ngranules);
	uint32		g = pm_shared->extent_hint[extent];
	uint32		run = 0;

	if (ngranules - pm_shared->extent_used[extent] < n)
		return false;
	while (g < prepared)
	{
		if (g % 64 == 0 && bitmap[g / 64] == ~UINT64CONST(0))
		{
			run = 0;
			g += 64;
			continue;
		}
		run = bit_is_set(bitmap, g) ? 0 : run + 1;
		g++;
		if (run == n)
		{
			*start = g - n;
			return true;
		}
	}
	*start = g - run;
	return *start + n <= ngranules;
}

/*
 * fallocate a range of the pool file; 0 or an errno.  Durable with the next drain
 * (of this process).
 */
static int
back_range(uint64 offset, uint64 len)
{
	int			rc = allocate(offset, len);

	/* Without this, power loss could lose the reservation, but not the data. */
	if (rc != 0)
		return rc;
	if (persist_logs())
		redo_write_space(REDO_ALLOCATE, offset, len);
	else if (pm_medium() == PM_MEDIUM_PMEM && fdatasync(pm_pool_fd) != 0)
		rc = errno;
	return rc;
}

/* Give words [words_prepared, limit) storage; they read as zero. */
static int
prepare_words(int extent, uint32 limit)
{
	PmExtent   *x = &pm_extent[extent];
	uint32		old = words_prepared(extent);
	uint32		new = (limit + WORDS_PER_STEP - 1) / WORDS_PER_STEP * WORDS_PER_STEP;
	int			rc;

	rc = back_range(x->offset + PM_GRANULE + (uint64) old * sizeof(uint64),
					(uint64) (new - old) * sizeof(uint64));
	if (rc != 0)
		return rc;
	memset(extent_bitmap(extent) + old / 64, 0, (new - old) / 8);
	pm_store8_persist(&x->header->words_prepared, PM_SEAL(new));
	return 0;
}

static void untake(uint64 offset, uint32 n);

static int
take_granules(uint32 n, int flags, uint64 *offset)
{
	uint64		quota = ((uint64) sofort_pool_size_mb << 20) / PM_GRANULE;
	int			rc = PM_FULL_POOL;
	int			e;
	uint32		start = 0;

	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	if (!(flags & PM_NO_QUOTA) && pg_atomic_read_u64(&pm_shared->used_granules) + n > quota)
	{
		LWLockRelease(pm_shared->segment_lock);
		return PM_FULL_QUOTA;
	}
	if (free_cache_take(n, offset))
	{
		LWLockRelease(pm_shared->segment_lock);
		return 0;
	}
	for (e = 0; e < pm_nextents; e++)
	{
		if (!find_run(e, n, &start))
			continue;
		rc = 0;
		if (start + n > words_prepared(e))
			rc = prepare_words(e, start + n);
		break;
	}
	if (rc != 0)
	{
		LWLockRelease(pm_shared->segment_lock);
		return rc;
	}
	set_bits(extent_bitmap(e), start, n);
	if (pm_shared->extent_hint[e] == start)
		pm_shared->extent_hint[e] = start + n;
	pm_shared->extent_used[e] += n;
	segment_count_used((int) n);
	LWLockRelease(pm_shared->segment_lock);
	SOFORT_STOP("pmem-granules-taken");

	*offset = granule_offset(e, start);
	rc = back_range(*offset, (uint64) n * PM_GRANULE);
	if (rc != 0)
	{
		segment_punch(*offset, n);
		untake(*offset, n);
	}
	return rc;
}

/* ---- spare granules: taken, backed, without a word ---- */

/* Takes one of them, for what makes room; the last ones are for write sets only. */
static bool
take_spare(uint32 n, int flags, uint64 *offset)
{
	uint32		keep = (flags & PM_NO_QUOTA) ? 0 : PM_SPARE_GRANULES / 2;
	bool		taken = false;

	if (n != 1 || (flags & (PM_NO_QUOTA | PM_RESERVE_SPARE)) == 0)
		return false;
	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	if (pm_shared->nspare > keep)
	{
		*offset = pm_shared->spare[--pm_shared->nspare];
		taken = true;
	}
	LWLockRelease(pm_shared->segment_lock);
	return taken;
}

static bool
add_spare(uint64 offset)
{
	bool		added = false;

	if (back_range(offset, PM_GRANULE) != 0)
		return false;
	/* others may take it at once (at the start there are none: segment_fill_spare() drains) */
	if (MyProc != NULL)
		redo_drain_space();
	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	if (pm_shared->nspare < PM_SPARE_GRANULES)
	{
		pm_shared->spare[pm_shared->nspare++] = offset;
		added = true;
	}
	LWLockRelease(pm_shared->segment_lock);
	return added;
}

/* Looks for granules that were used before; they may still have their storage. */
static void
find_spare(void)
{
	int			tries = 0;
	int			e;
	uint32		g;

	for (e = 0; e < pm_nextents; e++)
	{
		uint64	   *bitmap = extent_bitmap(e);
		uint32		prepared = Min(words_prepared(e),
								   pm_extent[e].ngranules);

		for (g = 0; g < prepared; g++)
		{
			if (pm_shared->nspare == PM_SPARE_GRANULES || tries == SPARE_TRIES)
				return;
			if (bit_is_set(bitmap, g))
				continue;
			tries++;
			if (!add_spare(granule_offset(e, g)))
				continue;
			set_bits(bitmap, g, 1);
			pm_shared->extent_used[e]++;
			pg_atomic_fetch_add_u64(&pm_shared->used_granules, 1);
		}
	}
}

/*
 * Keeps some granules back, with their storage: on a full file system a DELETE needs a
 * write set, and TRUNCATE an empty store, before they can make room.  No error if there are
 * none.  Called when the server starts, after all recovery.
 */
void
segment_fill_spare(void)
{
	uint64		offset;

	find_spare();
	while (pm_shared->nspare < PM_SPARE_GRANULES && take_granules(1, PM_NO_QUOTA, &offset) == 0)
		pm_shared->spare[pm_shared->nspare++] = offset;
	redo_drain_space();			/* other processes will use them */
}

/*
 * Take n granules: bits set, backed by the file system.  No word is stored yet:
 * after a crash they are free.  Returns 0, an errno, or PM_FULL_.
 */
int
segment_take(uint32 n, int flags, uint64 *offset)
{
	int			rc = take_granules(n, flags, offset);

	if (rc != 0 && rc != PM_FULL_QUOTA)
	{
		pm_give_back_free();
		rc = take_granules(n, flags, offset);
	}
	if (rc != 0 && take_spare(n, flags, offset))
		return 0;
	return rc;
}

/* ---- giving back ---- */

/* Clears the bits of granules that have no word; counted: as used, for the quota */
static void
clear_granules(uint64 offset, uint32 n, bool counted)
{
	int			e;
	uint32		g;

	if (!segment_find(offset, &e, &g))
		elog(PANIC, "sofort: offset " UINT64_FORMAT " is in no extent", offset);
	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	clear_bits(extent_bitmap(e), g, n);
	if (pm_shared->extent_hint[e] > g)
		pm_shared->extent_hint[e] = g;
	pm_shared->extent_used[e] -= n;
	if (counted)
		segment_count_used(-(int) n);
	LWLockRelease(pm_shared->segment_lock);
}

/* Clears the bits of granules that have no word, and do not count: of free_cache.c */
void
segment_clear(uint64 offset, uint32 n)
{
	clear_granules(offset, n, false);
}

/* The same for granules that count; some may become spare ones instead. */
static void
untake(uint64 offset, uint32 n)
{
	while (n > 0 && pm_shared->nspare < PM_SPARE_GRANULES && add_spare(offset))
	{
		offset += PM_GRANULE;
		n--;
	}
	if (n > 0)
		clear_granules(offset, n, true);
}

/*
 * The first of n granules that have blocks become spare ones, as long as there are too few
 * of these; offset and n become those of the rest.  Returns how many.  Caller holds the
 * segment lock.
 */
uint32
segment_make_spare(uint64 *offset, uint32 *n)
{
	uint32		made = 0;

	for (; *n > 0 && pm_shared->nspare < PM_SPARE_GRANULES; made++)
	{
		pm_shared->spare[pm_shared->nspare++] = *offset;
		*offset += PM_GRANULE;
		(*n)--;
	}
	return made;
}

/* Takes the next run of free granules of an extent at or above one; that becomes its end. */
static bool
take_free_run(int extent, uint32 *granule, uint32 *n)
{
	uint64	   *bitmap = extent_bitmap(extent);
	uint32		end = Min(words_prepared(extent), pm_extent[extent].ngranules);
	uint32		g = *granule;
	uint32		count = 0;

	LWLockAcquire(pm_shared->segment_lock, LW_EXCLUSIVE);
	while (g < end && bit_is_set(bitmap, g))
		g += g % 64 == 0 && bitmap[g / 64] == ~UINT64CONST(0) ? 64 : 1;
	while (count < MOST_TAKEN_FREE && g + count < end && !bit_is_set(bitmap, g + count))
		count++;
	set_bits(bitmap, g, count);
	pm_shared->extent_used[extent] += count;
	LWLockRelease(pm_shared->segment_lock);
	*granule = g + count;
	*n = count;
	return count > 0;
}

/*
 * Takes free granules that may have blocks, the next ones behind a place, which goes on.
 * They do not count as used.  Others who need space must not miss them: they wait for
 * trim_lock, which the caller holds.  False: there are no more.
 */
bool
segment_take_next_free(int *extent, uint32 *granule, uint64 *offset, uint32 *n)
{
	while (*extent < pm_nextents)
	{
		if (take_free_run(*extent, granule, n))
		{
			*offset = granule_offset(*extent, *granule - *n);
			return true;
		}
		(*extent)++;
		*granule = 0;
	}
	return false;
}

/*
 * Give the blocks of granules back to the file system.  One that cannot punch
 * holes keeps them until the granules are used again.
 */
void
segment_punch(uint64 offset, uint32 n)
{
	int			rc;

	do
		rc = fallocate(pm_pool_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t) offset, (off_t) n * PM_GRANULE);
	while (rc != 0 && errno == EINTR);
	if (persist_logs())
		redo_write_space(REDO_PUNCH, offset, (uint64) n * PM_GRANULE);
}

/* Frees granules whose word is durably zero: at once, or they keep their blocks for a while. */
void
segment_release(uint64 offset, uint32 n)
{
	if (free_cache_add(offset, n))
		return;
	segment_punch(offset, n);
	untake(offset, n);
}

/* ---- looking up ---- */

/* Extent and granule of a file offset; false if it is not in a data granule. */
bool
segment_find(uint64 offset, int *extent, uint32 *granule)
{
	int			low = 0;
	int			high = pm_nextents - 1;

	while (low <= high)
	{
		int			mid = (low + high) / 2;
		PmExtent   *x = &pm_extent[mid];

		if (offset < x->first)
			high = mid - 1;
		else if (offset >= x->first + (uint64) x->ngranules * PM_GRANULE)
			low = mid + 1;
		else
		{
			*extent = mid;
			*granule = (uint32) ((offset - x->first) / PM_GRANULE);
			return true;
		}
	}
	return false;
}

/* Is the granule in use, as far as the bitmap knows? */
bool
segment_is_used(int extent, uint32 granule)
{
	return granule < words_prepared(extent) &&
		bit_is_set(extent_bitmap(extent), granule);
}

/*
 * The segment or slab that covers an offset: its word, or 0 if none does.
 * *granule becomes its first granule.  Looks back over the granules of a
 * segment, which have no word of their own.
 */
uint64
segment_covering(uint64 offset, int *extent, uint32 *granule)
{
	uint32		at;
	uint32		g;

	if (!segment_find(offset, extent, granule))
		return 0;
	at = *granule;
	for (g = at; segment_is_used(*extent, g); g--)
	{
		uint64		word = segment_word(*extent, g);

		if (word != 0 && !SEGWORD_IS_RIGHT(word))
			return 0;
		if (SEGWORD_STATE(word) != SEGWORD_FREE)
		{
			uint32		n = SEGWORD_STATE(word) == SEGWORD_SEGMENT ? SEGWORD_COUNT(word) : 1;

			*granule = g;
			return g + n > at ? word : 0;
		}
		if (g == 0)
			break;
	}
	return 0;
}

void
pm_raise_full(int result, Size size)
{
	uint64		used = pg_atomic_read_u64(&pm_shared->used_granules) * PM_GRANULE;

	if (result == PM_FULL_QUOTA)
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("sofort pool is full"),
				 errdetail("%zu bytes were asked for; " UINT64_FORMAT " MB of the %d MB of sofort.pool_size are in use.",
						   size, used >> 20, sofort_pool_size_mb),
				 errhint("Raise sofort.pool_size and reload the configuration, or delete rows and VACUUM, or drop sofort tables.")));
	if (result == PM_FULL_POOL)
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("sofort pool is full"),
				 errdetail("%zu bytes were asked for; the pool file has no such range left.", size),
				 errhint("Drop or rewrite sofort tables.")));
	errno = result;
	ereport(ERROR,
			(errcode(result == ENOSPC || result == EDQUOT ? ERRCODE_DISK_FULL : ERRCODE_IO_ERROR),
			 errmsg("could not reserve %zu bytes for the sofort pool: %m", size),
			 errdetail(UINT64_FORMAT " MB of the %d MB of sofort.pool_size are in use.",
					   used >> 20, sofort_pool_size_mb),
			 errdetail_log(UINT64_FORMAT " MB of the %d MB of sofort.pool_size are in use; the pool is \"%s\".",
						   used >> 20, sofort_pool_size_mb, pm_pool_file),
			 errhint("Free space on the file system that holds the pool.")));
}
