/*-------------------------------------------------------------------------
 *
 * partial.h
 *	  An index that is being rebuilt, and can be used meanwhile.
 *
 * The table as it was when the rebuild began is cut into segments of up to 256 blocks.
 * The entries of a segment become a sorted run; entries of rows that come later
 * go to the delta, a tree.  See README.md, "Rebuilding".
 *
 * A PartialIndex is found through SofortIndex.partial, within an epoch, and
 * stays valid until that ends; or while the process counts in
 * SofortIndex.workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PARTIAL_H
#define SOFORT_PARTIAL_H

#include "datatype/timestamp.h"
#include "port/pg_bswap.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/registry.h"
#include "sofort/store/column_read.h"

#define PARTIAL_BLOCKS	256		/* in a segment, at most */
#define ZONES_WIDE		32		/* blocks of a segment that may be out of order */

/* Bytes of an entry as they sort, as two big numbers */
typedef struct OrderKey
{
	uint64		hi;
	uint64		lo;
} OrderKey;

static inline bool
order_less(OrderKey a, OrderKey b)
{
	return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

#define ORDER_BYTES		16

static inline OrderKey
order_of_bytes(const uint8 *bytes, int n, uint8 fill)
{
	uint8		padded[ORDER_BYTES];
	OrderKey	key;

	memset(padded, fill, sizeof(padded));
	memcpy(padded, bytes, Min(n, ORDER_BYTES));
	memcpy(&key.hi, padded, 8);
	memcpy(&key.lo, padded + 8, 8);
	key.hi = pg_ntoh64(key.hi);
	key.lo = pg_ntoh64(key.lo);
	return key;
}

/* Smallest and largest order key of a block, of rows with a value in the leading column. */
typedef struct ZoneBlock
{
	OrderKey	min;			/* above max: none */
	OrderKey	max;
} ZoneBlock;

/* A row that its block's zone leaves out */
typedef struct ZoneStray
{
	OrderKey	key;			/* of all columns that fit */
	uint16		place;			/* in the segment */
} ZoneStray;

typedef struct ZoneStrays
{
	Size		size;			/* of all of it, in bytes */
	uint32		n;
	uint32		filter_bits;	/* a power of two */
	ZoneStray	rows[FLEXIBLE_ARRAY_MEMBER];	/* by key; behind them the filter: a bit for the
												 * hash of each value in the leading column */
} ZoneStrays;

typedef struct ZoneSegment
{
	ZoneBlock	all;			/* of all its blocks */
	ZoneStrays *strays;			/* rows that no block has; NULL: none */
	bool		backward;		/* keys descend: the last block is the first in order */
	bool		ascending;		/* both ends of zones ascend from one to the next, but for
								 * those apart */
	bool		any_null;		/* in the leading column */
	uint16		nblocks;
	bool		no_help;		/* look-ups read most blocks in vain */
	uint8		nwide;
	uint8		wide[ZONES_WIDE];	/* blocks with rows that are out of order */
	bool		apart[PARTIAL_BLOCKS];	/* these, and blocks without rows */
	bool		has_null[PARTIAL_BLOCKS];
	OrderKey	reach[PARTIAL_BLOCKS];	/* by place in order: largest max so far */
	ZoneBlock	blocks[PARTIAL_BLOCKS];
} ZoneSegment;

/* Which of the blocks of a segment is at this place in order; and the other way round */
static inline int
zone_in_order(const ZoneSegment *zones, int place)
{
	return zones->backward ? zones->nblocks - 1 - place : place;
}

/*
 * Where in a segment which values are: rows by a hash of the first bytes of their order
 * keys.  Only rows with a value in the leading column.
 */
typedef struct SegmentHash
{
	Size		size;			/* of all of it, in bytes */
	int			ncolumns;		/* that count */
	uint32		nrows;
	uint32		nbuckets;		/* a power of two */
	uint32		starts[FLEXIBLE_ARRAY_MEMBER];	/* of each bucket, and the end; behind that
												 * places in the segment (uint16) and
												 * bytes of hashes, both by bucket */
} SegmentHash;

typedef struct IndexRun
{
	uint64		n;
	uint64		tuples;			/* entries that have one */
	uint8		entries[FLEXIBLE_ARRAY_MEMBER];
} IndexRun;

typedef enum SegmentState
{
	SEGMENT_FREE = 0,			/* to be read */
	SEGMENT_CLAIMED,			/* a process reads it */
	SEGMENT_DONE				/* run is set; its entries are sorted */
} SegmentState;

typedef struct PartialSegment
{
	pg_atomic_uint32 state;		/* SegmentState */
	pg_atomic_uint32 zoning;	/* 1: a process makes zones, or tried to */
	IndexRun   *run;			/* NULL: no entries */
	OrderKey	first;			/* first bytes of the run's first and last entry */
	OrderKey	last;
	ZoneSegment *zones;			/* made by the first look-up; NULL: not yet */
	pg_atomic_uint32 hashed_by; /* for so many columns, at most, a process makes the hash, or
								 * tried to */
	SegmentHash *hash;			/* NULL: there is none */
} PartialSegment;

typedef enum PartialPhase
{
	PARTIAL_COLLECTING = 0,		/* new entries go to the delta */
	PARTIAL_DRAINING			/* to the tree, which has all runs; the delta is
								 * being copied to it */
} PartialPhase;

typedef struct PartialIndex
{
	uint64		before;			/* rows of this and later transactions have their
								 * entries in the delta or the tree */
	BlockNumber nblocks;		/* of the table, when the rebuild began */
	uint32		segment_blocks; /* blocks in a segment */
	uint32		nsegments;
	uint16		key_len;		/* of entries */
	uint16		stride;
	bool		has_tuples;
	bool		finished;		/* tree is the index now */
	Tree	   *delta;
	Tree	   *tree;			/* from PARTIAL_DRAINING on */
	pg_atomic_uint32 phase;		/* PartialPhase */
	pg_atomic_uint64 drain_epoch;	/* when it has passed nobody adds to the delta any more */
	pg_atomic_uint32 merging;	/* 1: a process merges and switches */
	pg_atomic_uint32 scattered; /* 1: keys lie anywhere, more zones do not help */
	pg_atomic_uint32 zones_made;	/* segments that have some */
	pg_atomic_uint32 zones_no_help; /* and are large, and whose zones do not help */
	pg_atomic_uint32 next;		/* claims begin to look here */
	pg_atomic_uint32 claimed;	/* segments, done or not */
	pg_atomic_uint32 done;
	pg_atomic_uint64 rows;		/* entries in runs */
	pg_atomic_uint64 bytes;		/* of runs, zones and hashes */
	TimestampTz started;
	struct PartialIndex *next_retired;
	uint64		retired_epoch;
	PartialSegment segments[FLEXIBLE_ARRAY_MEMBER];
} PartialIndex;

/* Blocks of a segment: from the first one up to the end */
static inline BlockNumber
segment_first(const PartialIndex *partial, uint32 number)
{
	return number * partial->segment_blocks;
}

static inline BlockNumber
segment_end(const PartialIndex *partial, uint32 number)
{
	BlockNumber first = segment_first(partial, number);

	return first + Min(partial->segment_blocks, partial->nblocks - first);
}

static inline PartialPhase
partial_phase(PartialIndex *partial)
{
	PartialPhase phase = (PartialPhase) pg_atomic_read_u32(&partial->phase);

	pg_read_barrier();
	return phase;
}

static inline bool
segment_is_done(PartialSegment *segment)
{
	if (pg_atomic_read_u32(&segment->state) != SEGMENT_DONE)
		return false;
	pg_read_barrier();
	return true;
}

/* An index at one moment; valid until the epoch ends. */
typedef struct IndexView
{
	PartialIndex *partial;		/* NULL: ready, and only the tree counts */
	bool		collecting;		/* else tree and delta hold everything */
	Tree	   *tree;			/* where new entries go */
} IndexView;

/* ---- rebuild.c ---- */

/* Of an index that was attached; inside an epoch. */
extern void index_view(IndexKeys *keys, IndexView *view);

/* ---- partial.c ---- */

/*
 * Can this index be rebuilt in segments?  Not if it has expressions or a
 * predicate.
 */
extern bool partial_is_possible(Relation index);

/* Table columns (0-based) of the index columns. */
extern void partial_attributes(Relation index, int *atts);

/*
 * Registers, in place of a missing tree, an index with nothing built.  Nothing happens if
 * somebody else did so before. 53200 if the arena is full.
 */
extern void partial_begin(IndexKeys *keys, Relation heap);

/*
 * Work for the rebuild: builds up to max_segments segments (0: no limit), and if all are
 * there, merges them and makes the index ready; with a limit only as far as that is
 * possible without waiting.  Returns whether anything was done.  The caller has a snapshot
 * and no epoch.
 */
extern bool partial_work(IndexKeys *keys, Relation heap, int max_segments);

/* In the phase DRAINING: does nobody add to the delta any more? */
extern bool partial_can_drain(PartialIndex *partial);

/* Wait until somebody else has done something for the rebuild. */
extern void partial_wait(SofortIndex *shared);

/* Frees all of it; no other process may know it. */
extern void partial_free(PartialIndex *partial);

/* Frees what switches left, as far as nobody can look at it any more. */
extern void partial_free_retired(SofortIndex *shared);

/* ---- partial_zones.c, partial_hash.c ---- */

/* No other process may know them. */
extern void segment_zones_free(ZoneSegment *zones);
extern void segment_hash_free(SegmentHash *hash);

/* See indexam_test_hashes(), indexam_test_zones(). */
extern int	partial_test_hashes(PartialIndex *partial, bool scatter);
extern void partial_test_zones(PartialIndex *partial, IndexamZones *sums);

/* ---- partial_read.c ---- */

/* Entries of an index in part, copied with their tuples. */
typedef struct PartialSet
{
	MemoryContext context;
	uint64		limit;			/* bytes */
	uint64		bytes;
	bool		overflow;		/* there were more: the set is useless */
	Snapshot	only;			/* not NULL: it sees at most one row of the range, and once
								 * that is in the set others may be missing */
	uint64		n;
	uint64		max;
	uint8	   *entries;
} PartialSet;

/*
 * All entries e with lower <= e < upper (NULL: no bound), sorted, each once.  In
 * the epoch of the view, which is partial.
 */
extern void partial_collect(IndexKeys *keys, Relation heap, const IndexView *view,
							const TreeProbe *lower, const TreeProbe *upper, PartialSet *set);

/* The same, but only what is not in delta or tree: rows from before the rebuild. */
extern void partial_collect_old(IndexKeys *keys, Relation heap, PartialIndex *partial,
								const TreeProbe *lower, const TreeProbe *upper, PartialSet *set);

#endif							/* SOFORT_PARTIAL_H */
