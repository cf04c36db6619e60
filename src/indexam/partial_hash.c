/*-------------------------------------------------------------------------
 *
 * partial_hash.c
 *	  Hashes: where in a segment which values are (README.md, "Hashes").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"

#include "partial_read.h"

#define SEGMENT_ROWS	(PARTIAL_BLOCKS * SOFORT_BLOCK_ROWS)

/* Rows of a bucket, on average */
#define BUCKET_ROWS		8

/*
 * Columns are added to the hash while a row shares its bucket with more than so many
 * others, on average
 */
#define FEW_ROWS		64

/* A hash that leaves more than one of so many rows to be read is not worth its memory */
#define LEAST_GAIN		16

StaticAssertDecl(SEGMENT_ROWS <= PG_UINT16_MAX + 1, "places in a segment have 16 bits");

/* ---- layout ---- */

static uint16 *
hash_places(const SegmentHash *hash)
{
	return (uint16 *) (hash->starts + hash->nbuckets + 1);
}

/* The lowest byte of the hash of each row */
static uint8 *
hash_marks(const SegmentHash *hash)
{
	return (uint8 *) (hash_places(hash) + hash->nrows);
}

/* The uppermost bits tell the bucket, the lowest byte is the mark. */
static inline uint32
bucket_of(uint32 value, uint32 nbuckets)
{
	return (uint32) (((uint64) value * nbuckets) >> 32);
}

/* ---- making one ---- */

struct HashRows
{
	uint32		n;
	uint32		nbuckets;
	uint32		values[SEGMENT_ROWS];
	uint16		places[SEGMENT_ROWS];
	uint32		starts[SEGMENT_ROWS / BUCKET_ROWS + 1];
	uint32		next[SEGMENT_ROWS / BUCKET_ROWS + 1];
};

static inline void
add_row(Collector *c, HashRows *rows, uint32 first_place, int i, int nbytes)
{
	if (c->states[i] != STORE_VALUE)
		return;
	rows->values[rows->n] = order_hash(c->order[i], nbytes);
	rows->places[rows->n++] = (uint16) (first_place + i);
}

/*
 * Adds either everything that lies in the block, for which only its columns are read, or
 * only the roots that the index needs, for which the words of all rows are read.
 */
static void
add_block(Collector *c, HashRows *rows, BlockNumber block, uint32 first_place, int nbytes,
		  bool roots)
{
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n = order_block(c, block);
	int			i;

	if (roots)
	{
		n = block_roots(c, block, index);
		for (i = 0; i < n; i++)
			add_row(c, rows, first_place, index[i], nbytes);
		return;
	}
	for (i = 0; i < n; i++)
		add_row(c, rows, first_place, i, nbytes);
}

/* By so many columns */
static void
hash_segment(Collector *c, HashRows *rows, uint32 number, int ncolumns, bool roots)
{
	BlockNumber first = segment_first(c->partial, number);
	BlockNumber end = segment_end(c->partial, number);
	int			nbytes = order_bytes(&c->keys->format, ncolumns);
	int			all = c->ncolumns;
	BlockNumber block;

	rows->n = 0;
	c->ncolumns = ncolumns;
	store_read_ahead(c->store, first, end, roots ? STORE_WHOLE_ROWS : c->atts[0]);
	for (block = first; block < end; block++)
		add_block(c, rows, block, (block - first) * SOFORT_BLOCK_ROWS, nbytes, roots);
	c->ncolumns = all;
}

/*
 * Finds where buckets begin.  Returns how many rows there are in the bucket of a row, on
 * average.
 */
static uint32
count_buckets(HashRows *rows)
{
	uint64		together = 0;
	uint32		n = 0;
	uint32		i;

	rows->nbuckets = pg_nextpower2_32(Max(rows->n / BUCKET_ROWS, 1));
	Assert(rows->nbuckets <= SEGMENT_ROWS / BUCKET_ROWS);
	memset(rows->starts, 0, (rows->nbuckets + 1) * sizeof(uint32));
	for (i = 0; i < rows->n; i++)
		rows->starts[bucket_of(rows->values[i], rows->nbuckets)]++;
	for (i = 0; i <= rows->nbuckets; i++)
	{
		uint32		count = rows->starts[i];

		together += (uint64) count * count;
		rows->starts[i] = n;
		n += count;
	}
	return (uint32) (together / Max(rows->n, 1));
}

/*
 * Chooses as few columns as tell rows apart; 0: not even all of them do.  Rows that do not
 * differ may be ones that were never filled, or old versions.
 */
static int
choose_hash(Collector *c, HashRows *rows, uint32 number)
{
	uint32		together = 0;
	int			k;
	int			roots;

	for (k = 1; k <= c->nequal; k++)
		for (roots = 0; roots <= 1; roots++)
		{
			hash_segment(c, rows, number, k, roots != 0);
			together = count_buckets(rows);
			if (together <= FEW_ROWS)
				return k;
		}
	return together <= rows->n / LEAST_GAIN ? c->nequal : 0;
}

/* NULL: hashes already use all the memory that they may take.  Raises no error. */
static SegmentHash *
store_hash(HashRows *rows, int ncolumns)
{
	Size		size = offsetof(SegmentHash, starts) + (rows->nbuckets + 1) * sizeof(uint32) +
		rows->n * (sizeof(uint16) + sizeof(uint8));
	SegmentHash *hash;
	uint32		i;

	if (!registry_reserve_hash(size))
		return NULL;
	hash = arena_alloc(size, ARENA_NO_OOM);
	if (hash == NULL)
	{
		registry_release_hash(size);
		return NULL;
	}
	hash->size = size;
	hash->ncolumns = ncolumns;
	hash->nrows = rows->n;
	hash->nbuckets = rows->nbuckets;
	memcpy(hash->starts, rows->starts, (rows->nbuckets + 1) * sizeof(uint32));
	memcpy(rows->next, rows->starts, (rows->nbuckets + 1) * sizeof(uint32));
	for (i = 0; i < rows->n; i++)
	{
		uint32		at = rows->next[bucket_of(rows->values[i], rows->nbuckets)]++;

		hash_places(hash)[at] = rows->places[i];
		hash_marks(hash)[at] = (uint8) rows->values[i];
	}
	return hash;
}

static SegmentHash *
make_hash(Collector *c, uint32 number)
{
	int			ncolumns;

	if (c->hash_rows == NULL)
		c->hash_rows = palloc(sizeof(HashRows));
	ncolumns = choose_hash(c, c->hash_rows, number);
	return ncolumns > 0 ? store_hash(c->hash_rows, ncolumns) : NULL;
}

/* ---- which segments have one ---- */

static bool
zones_are_no_help(Collector *c, PartialSegment *segment)
{
	ZoneSegment *zones = __atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE);

	return zones != NULL ? zones->no_help : pg_atomic_read_u32(&c->partial->scattered) != 0;
}

void
segment_hash_free(SegmentHash *hash)
{
	registry_release_hash(hash->size);
	arena_free(hash);
}

/* Returns the one that is published, which may be another process's */
static const SegmentHash *
publish_hash(PartialIndex *partial, PartialSegment *segment, SegmentHash *hash)
{
	SegmentHash *nobody = NULL;

	if (!__atomic_compare_exchange_n(&segment->hash, &nobody, hash, false, __ATOMIC_ACQ_REL,
									 __ATOMIC_ACQUIRE))
	{
		segment_hash_free(hash);
		return nobody;
	}
	pg_atomic_fetch_add_u64(&partial->bytes, hash->size);
	return hash;
}

/* The hash of a segment; NULL: it has none, or another process is making it. */
static const SegmentHash *
segment_hash(Collector *c, uint32 number)
{
	PartialSegment *segment = &c->partial->segments[number];
	SegmentHash *hash = __atomic_load_n(&segment->hash, __ATOMIC_ACQUIRE);
	uint32		tried = pg_atomic_read_u32(&segment->hashed_by);

	/* (an error below leaves it as tried) */
	if (hash != NULL || c->nequal <= (int) tried || !zones_are_no_help(c, segment) ||
		!pg_atomic_compare_exchange_u32(&segment->hashed_by, &tried, c->nequal))
		return hash;
	if (indexam_pause_search != NULL)
		indexam_pause_search(true);
	hash = make_hash(c, number);
	if (indexam_pause_search != NULL)
		indexam_pause_search(false);
	return hash == NULL ? NULL : publish_hash(c->partial, segment, hash);
}

int
partial_test_hashes(PartialIndex *partial, bool scatter)
{
	int			n = 0;
	uint32		i;

	for (i = 0; i < partial->nsegments; i++)
	{
		PartialSegment *segment = &partial->segments[i];

		if (scatter && segment->zones != NULL)
			segment->zones->no_help = true;
		n += segment->hash != NULL;
	}
	if (scatter)
		pg_atomic_write_u32(&partial->scattered, 1);
	return n;
}

/* ---- looking into them ---- */

bool
collect_from_hash(Collector *c, uint32 number)
{
	const SegmentHash *hash = c->nequal > 0 ? segment_hash(c, number) : NULL;
	BlockNumber first = segment_first(c->partial, number);
	const uint16 *places;
	const uint8 *marks;
	int			nbytes;
	uint32		value;
	uint32		bucket;
	uint32		i;

	if (hash == NULL || hash->ncolumns > c->nequal)
		return false;
	nbytes = order_bytes(&c->keys->format, hash->ncolumns);
	value = order_hash(order_first_bytes(c->range.low, nbytes), nbytes);
	bucket = bucket_of(value, hash->nbuckets);
	places = hash_places(hash);
	marks = hash_marks(hash);
	for (i = hash->starts[bucket]; i < hash->starts[bucket + 1] && !c->set->overflow; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (marks[i] == (uint8) value)
			collect_place(c, first, places[i]);
	}
	return true;
}
