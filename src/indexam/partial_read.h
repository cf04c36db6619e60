/*-------------------------------------------------------------------------
 *
 * partial_read.h
 *	  What the files that look into an index that is being rebuilt share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PARTIAL_READ_H
#define SOFORT_PARTIAL_READ_H

#include "common/hashfn.h"
#include "sofort/indexam/keys.h"

#include "partial.h"

#define SIGN64			UINT64CONST(0x8000000000000000)

/* Columns by which rows are left out before entries are formed */
#define MOST_MATCHES	4

static const OrderKey order_min = {0, 0};
static const OrderKey order_max = {PG_UINT64_MAX, PG_UINT64_MAX};

/*
 * What the bounds say of the order key of an entry: its bytes from the second on, the
 * first being the flag of the leading column.
 */
typedef struct LeadingRange
{
	bool		usable;			/* the leading column has bytes */
	bool		values;			/* some value of it may be in the range */
	bool		nulls;			/* NULLs may */
	OrderKey	low;
	OrderKey	high;			/* inclusive, both */
} LeadingRange;

typedef struct HashRows HashRows;

typedef struct Collector
{
	IndexKeys  *keys;
	Relation	heap;
	StoreDesc  *store;
	PartialIndex *partial;
	const TreeProbe *lower;
	const TreeProbe *upper;
	PartialSet *set;
	int			stride;
	int			atts[INDEX_MAX_KEYS];
	LeadingRange range;
	OrderKey	low;			/* of the first bytes of entries */
	OrderKey	high;			/* inclusive, both */
	int			nmatches;		/* columns of which the bounds give a range */
	StoreMatch	matches[MOST_MATCHES];
	char		image[TREE_MAX_KEY];	/* of a text among them */
	int			ncolumns;		/* that count in order keys */
	int			nequal;			/* the first of them that have one value in the range */
	uint32		leading_hash;	/* of the leading column, if nequal > 0 */
	HashRows   *hash_rows;		/* for making hashes; NULL: not yet */
	ZoneStray  *strays;			/* for making zones; NULL: not yet */
	Datum		values[SOFORT_BLOCK_ROWS];	/* of one column */
	uint8		states[SOFORT_BLOCK_ROWS];	/* of the leading one */
	uint8		more_states[SOFORT_BLOCK_ROWS]; /* of another */
	uint8		ended[SOFORT_BLOCK_ROWS];	/* what follows does not decide */
	OrderKey	order[SOFORT_BLOCK_ROWS];	/* where "states" says that there is a value */
} Collector;

/* Of an order key that is zero behind its first bytes */
static inline uint32
order_hash(OrderKey key, int nbytes)
{
	uint32		value = murmurhash32((uint32) (key.hi >> 32));

	if (nbytes > 4)
		value = murmurhash32(value ^ (uint32) key.hi);
	if (nbytes > 8)
		value = murmurhash32(value ^ (uint32) (key.lo >> 32));
	if (nbytes > 12)
		value = murmurhash32(value ^ (uint32) key.lo);
	return value;
}

/* ---- integers ---- */

static inline bool
is_signed_integer(const KeyColumn *column)
{
	return column->kind == KEY_INT2 || column->kind == KEY_INT4 || column->kind == KEY_INT8;
}

static inline bool
is_integer(const KeyColumn *column)
{
	return is_signed_integer(column) || column->kind == KEY_UINT4 || column->kind == KEY_UINT8;
}

/* What DESC inverts */
static inline uint64
inversion(const KeyColumn *column)
{
	if (!column->desc)
		return 0;
	return column->width == 8 ? PG_UINT64_MAX : ~(PG_UINT64_MAX >> (8 * column->width));
}

/* An integer of up to 64 bits with a sign, as EACH_ORDER has it */
static inline uint64
order_of_integer(const KeyColumn *column, int64 v)
{
	return ((uint64) v << (64 - 8 * column->width) ^ SIGN64) ^ inversion(column);
}

/* Is the order key that of one integer? */
static inline bool
is_one_integer(const Collector *c)
{
	return c->ncolumns == 1 && is_integer(&c->keys->format.columns[0]);
}

/* Integers c->values[i], shifted to the left of 64 bits as they sort */
#define EACH_ORDER(body) \
	switch ((KeyKind) column->kind) \
	{ \
		case KEY_INT2: \
			EACH_ROW((uint64) ((uint16) DatumGetInt16(v) ^ 0x8000) << 48, body) \
			break; \
		case KEY_INT4: \
			EACH_ROW((uint64) ((uint32) DatumGetInt32(v) ^ 0x80000000) << 32, body) \
			break; \
		case KEY_INT8: \
			EACH_ROW((uint64) v ^ SIGN64, body) \
			break; \
		case KEY_UINT4: \
			EACH_ROW((uint64) (uint32) v << 32, body) \
			break; \
		default: \
			EACH_ROW((uint64) v, body) \
			break; \
	}

#define EACH_ROW(expression, body) \
	for (i = 0; i < n; i++) \
	{ \
		Datum		v = c->values[i]; \
		uint64		order = (expression) ^ inverted; \
\
		body \
	}

/* ---- partial_order.c ---- */

/* The leading column of a block's rows; the number of rows. */
extern int	read_leading(Collector *c, BlockNumber block, bool *all_values);

/* Order keys of its rows, from all columns that count. */
extern void order_rows(Collector *c, BlockNumber block, int n);

/* Both: order keys of all rows of a block; their number. */
extern int	order_block(Collector *c, BlockNumber block);

/* Column k, an integer, of an order key that is zero from there on. */
extern void order_put_integer(const Collector *c, int k, int64 value, OrderKey *key);

/* Bytes of an order key in which the first columns lie */
extern int	order_bytes(const KeyFormat *format, int ncolumns);

/* An order key that is zero behind its first bytes */
extern OrderKey order_first_bytes(OrderKey key, int nbytes);

/* The largest order key that begins with the columns that count, as this one does. */
extern void order_widen(const Collector *c, OrderKey *key);

/* Sets range, low and high, matches, nequal and leading_hash from the bounds. */
extern void set_ranges(Collector *c);

/* ---- partial_zones.c ---- */

static const ZoneBlock no_zone = {{PG_UINT64_MAX, PG_UINT64_MAX}, {0, 0}};

static inline bool
zone_is_empty(const ZoneBlock *zone)
{
	return order_less(zone->max, zone->min);
}

static inline void
zone_add(ZoneBlock *zone, OrderKey min, OrderKey max)
{
	if (order_less(min, zone->min))
		zone->min = min;
	if (order_less(zone->max, max))
		zone->max = max;
}

/* Zones of a segment, made by the first process that asks; NULL: there are none. */
extern ZoneSegment *segment_zones(Collector *c, uint32 number);

/* Is another process about to make just these? */
extern bool others_make_zones(Collector *c, PartialSegment *segment);

extern bool zone_may_match(const LeadingRange *range, const ZoneBlock *zone, bool has_null);

/*
 * Guesses the segment that holds the key, as if values ascended from segment to segment.
 * Reads one block of each of a few.
 */
extern uint32 likely_segment(Collector *c);

/* Finds out which blocks are in order, and what they hold together. */
extern void order_zones(ZoneSegment *zones);

/* With ascending zones: the first place in order that is not below the range */
extern int	first_zone(const ZoneSegment *zones, OrderKey low);

/* A look-up has read a segment with these zones, so many of its blocks in vain. */
extern void note_scattered(Collector *c, ZoneSegment *zones, BlockNumber blocks,
						   BlockNumber in_vain);

/* ---- partial_strays.c ---- */

/*
 * Takes strays out of the zones: rows that are far from the others of their block, and rows
 * of blocks that are out of order.  Zones have c->ncolumns columns, keys of strays "all" of
 * them.  False: the arena is full.  Uses c->strays.
 */
extern bool take_strays_out(Collector *c, BlockNumber first, ZoneSegment *zones, int all);

/* Collects those of a segment that begins with this block. */
extern void collect_strays(Collector *c, BlockNumber first, const ZoneStrays *strays);

#define ZONE_MOST_STRAYS	4096	/* of a segment */

/* ---- partial_hash.c ---- */

/*
 * Collects from a segment that is not done; false: it has no hash that helps, and nothing
 * was done.
 */
extern bool collect_from_hash(Collector *c, uint32 number);

/* ---- partial_read.c ---- */

/* One root: into the set if its entry is within the bounds. */
extern void collect_root(Collector *c, BlockNumber block, int index);

/* The same by its place in a segment that begins with this block */
static inline void
collect_place(Collector *c, BlockNumber first, uint16 place)
{
	collect_root(c, first + place / SOFORT_BLOCK_ROWS, place % SOFORT_BLOCK_ROWS);
}

/* Roots of a block that the index needs, as store_wanted_roots() */
static inline int
block_roots(Collector *c, BlockNumber block, uint8 *index)
{
	return store_wanted_roots(c->store, block, 0, c->partial->before, index);
}

#endif							/* SOFORT_PARTIAL_READ_H */
