/*-------------------------------------------------------------------------
 *
 * partial_read.c
 *	  Looking into an index that is being rebuilt.
 *
 * New rows: delta, and tree.  Old rows: the runs of segments that are done, and
 * the table itself where they are not.  There the first columns are read block by
 * block, as far as they fit 16 bytes of the entry, and an entry is formed of each
 * row whose bytes lie within the bounds.  What a block has at most is remembered
 * (zones), so that a second look-up reads only blocks that may matter.
 *
 * Of every segment either the run is read or the table, and of a row that was
 * there when the rebuild began the one is as good as the other: so it does not
 * matter that runs come into being meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "utils/memutils.h"

#include "am_internal.h"
#include "partial.h"

#define SIGN64			UINT64CONST(0x8000000000000000)

/* Columns by which rows are left out before entries are formed */
#define MOST_MATCHES	4

/* Blocks of a segment that tell whether zones are of use */
#define SCATTERED_FROM	64

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

typedef struct Collector
{
	IndexKeys  *keys;
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
	Datum		values[SOFORT_BLOCK_ROWS];	/* of one column */
	uint8		states[SOFORT_BLOCK_ROWS];	/* of the leading one */
	uint8		more_states[SOFORT_BLOCK_ROWS]; /* of another */
	uint8		ended[SOFORT_BLOCK_ROWS];	/* what follows does not decide */
	OrderKey	order[SOFORT_BLOCK_ROWS];	/* where states says that there is a value */
} Collector;

/* ---- the set ---- */

static uint8 *
set_add(Collector *c, const uint8 *entry, bool copy_tuple)
{
	PartialSet *set = c->set;
	TreeTuple  *tuple;
	uint8	   *place;

	if (set->overflow)
		return NULL;
	if (set->n == set->max)
	{
		MemoryContext old = MemoryContextSwitchTo(set->context);

		set->max = Max(64, set->max * 2);
		if (set->entries == NULL)
			set->entries = palloc(set->max * c->stride);
		else
			set->entries = repalloc_huge(set->entries, set->max * c->stride);
		MemoryContextSwitchTo(old);
	}
	place = set->entries + set->n++ * c->stride;
	memcpy(place, entry, c->stride);
	set->bytes += c->stride;
	tuple = keys_entry_tuple(&c->keys->format, entry);
	if (tuple != NULL)
	{
		Size		size = offsetof(TreeTuple, tuple) + tuple->size;

		if (copy_tuple)
		{
			TreeTuple  *copy = MemoryContextAlloc(set->context, size);

			memcpy(copy, tuple, size);
			memcpy(place + c->keys->format.key_len + TREE_ROW_BYTES, &copy, sizeof(copy));
		}
		set->bytes += size;
	}
	if (set->bytes > set->limit)
		set->overflow = true;
	return place;
}

static bool
within_bounds(Collector *c, const uint8 *entry)
{
	return (c->lower == NULL || keys_probe_compare(&c->keys->format, c->lower, entry) <= 0) &&
		(c->upper == NULL || keys_probe_compare(&c->keys->format, c->upper, entry) > 0);
}

/* ---- trees and runs ---- */

static void
collect_tree(Collector *c, Tree *tree)
{
	const TreeProbe *seek = c->lower;
	TreeLeaf	leaf;
	EntryPlace	fence;
	int			i;

	for (;;)
	{
		tree_read_leaf(tree, seek, false, seek, c->upper, &c->keys->order, &leaf);
		for (i = 0; i < leaf.n; i++)
			(void) set_add(c, leaf.entries + i * c->stride, true);
		if (leaf.cut_high || !leaf.has_high || c->set->overflow ||
			(c->upper != NULL && keys_probe_compare(&c->keys->format, c->upper, leaf.high) <= 0))
			return;
		CHECK_FOR_INTERRUPTS();
		keys_place(&fence, c->keys, leaf.high, 0);
		seek = &fence.probe;
	}
}

/* First entry of a run that is not before the probe */
static uint64
run_find(Collector *c, const IndexRun *run, uint64 from, const TreeProbe *probe)
{
	uint64		to = run->n;

	while (from < to)
	{
		uint64		middle = (from + to) / 2;

		if (keys_probe_compare(&c->keys->format, probe, run->entries + middle * c->stride) > 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void
collect_run(Collector *c, const PartialSegment *segment)
{
	const IndexRun *run = segment->run;
	uint64		i = 0;
	uint64		end;

	if (run == NULL || order_less(segment->last, c->low) || order_less(c->high, segment->first))
		return;
	if (c->lower != NULL)
		i = run_find(c, run, 0, c->lower);
	end = c->upper == NULL ? run->n : i;
	if (c->upper != NULL && i < run->n && within_bounds(c, run->entries + i * c->stride))
		end = run_find(c, run, i, c->upper);
	for (; i < end && !c->set->overflow; i++)
		(void) set_add(c, run->entries + i * c->stride, true);
}

/* ---- order keys of rows ---- */

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

static bool
is_integer(const KeyColumn *column)
{
	return column->kind == KEY_INT2 || column->kind == KEY_INT4 || column->kind == KEY_INT8 ||
		column->kind == KEY_UINT4 || column->kind == KEY_UINT8;
}

/* What DESC inverts */
static uint64
inversion(const KeyColumn *column)
{
	if (!column->desc)
		return 0;
	return column->width == 8 ? PG_UINT64_MAX : ~(PG_UINT64_MAX >> (8 * column->width));
}

/* How many columns begin within the bytes of an order key */
static int
order_columns(const KeyFormat *format)
{
	int			n = 0;

	while (n < format->ncolumns && format->columns[n].offset <= ORDER_BYTES)
		n++;
	return n;
}

/* Writes bytes that are zero so far.  at: where they begin in the order key. */
static inline void
put_order(OrderKey *key, int at, OrderKey bytes)
{
	if (at == 0)
		*key = bytes;
	else if (at < 8)
	{
		key->hi |= bytes.hi >> (8 * at);
		key->lo |= bytes.hi << (64 - 8 * at) | bytes.lo >> (8 * at);
	}
	else if (at == 8)
		key->lo |= bytes.hi;
	else if (at < ORDER_BYTES)
		key->lo |= bytes.hi >> (8 * (at - 8));
}

static inline OrderKey
order_of_high(uint64 hi)
{
	OrderKey	key = {hi, 0};

	return key;
}

/* A short text as keys_encode_column() would begin it.  *whole: that is all of it */
static OrderKey
order_of_text(const KeyColumn *column, const char *value, bool *whole)
{
	int			room = column->width - 1;
	int			len = VARSIZE_1B(value) - VARHDRSZ_SHORT;
	uint8		bytes[ORDER_BYTES] = {0};

	memcpy(bytes, VARDATA_1B(value), Min(Min(len, room), ORDER_BYTES));
	if (room < ORDER_BYTES)
		bytes[room] = len <= room ? len : 0xff;
	*whole = len <= room;
	return order_of_bytes(bytes, ORDER_BYTES, 0);
}

static OrderKey
order_of_value(const KeyColumn *column, Datum value, bool *whole)
{
	const char *p = DatumGetPointer(value);
	uint8		bytes[TREE_MAX_KEY];
	KeyEncoded	encoded;

	if (column->kind == KEY_TEXT && !column->desc && VARATT_IS_1B(p) && !VARATT_IS_1B_E(p))
		return order_of_text(column, p, whole);
	/* (inverted already if DESC) */
	encoded = keys_encode_column(column, value, bytes);
	*whole = encoded != KEY_PREFIX;
	return order_of_bytes(bytes, column->width, 0);
}

/* The leading column, of rows that have a value */
static void
order_leading(Collector *c, int n)
{
	const KeyColumn *column = &c->keys->format.columns[0];
	uint64		inverted = inversion(column);
	bool		whole;
	int			i;

	memset(c->ended, 0, n);
	if (is_integer(column))
	{
		EACH_ORDER(c->order[i].hi = order; c->order[i].lo = 0;);
		return;
	}
	for (i = 0; i < n; i++)
	{
		if (c->states[i] != STORE_VALUE)
			continue;
		c->order[i] = order_of_value(column, c->values[i], &whole);
		c->ended[i] = !whole;
	}
}

/* The same for column k, of rows that have a value in the leading one */
static void
order_following(Collector *c, BlockNumber block, int k, int n)
{
	const KeyColumn *column = &c->keys->format.columns[k];
	uint64		inverted = inversion(column);
	OrderKey	flag[2] = {order_of_high((uint64) key_flag(column, false) << 56),
	order_of_high((uint64) key_flag(column, true) << 56)};
	int			at = column->offset;
	bool		whole;
	int			i;

	n = Min(n, store_read_column(c->store, block, c->atts[k], c->values, c->more_states));
	for (i = 0; i < n; i++)
	{
		if (c->more_states[i] == STORE_NO_ROW)
			c->states[i] = STORE_NO_ROW;
		else if (!c->ended[i])
			put_order(&c->order[i], at - 1, flag[c->more_states[i] == STORE_VALUE_NULL]);
		c->more_states[i] |= c->ended[i];
	}
	if (is_integer(column))
	{
		EACH_ORDER(if (c->more_states[i] == STORE_VALUE) put_order(&c->order[i], at, order_of_high(order)););
		return;
	}
	for (i = 0; i < n; i++)
	{
		if (c->more_states[i] != STORE_VALUE || c->states[i] != STORE_VALUE)
			continue;
		put_order(&c->order[i], at, order_of_value(column, c->values[i], &whole));
		c->ended[i] = !whole;
	}
}

/* Order keys of a block whose leading column has been read */
static void
order_rows(Collector *c, BlockNumber block, int n)
{
	int			k;

	order_leading(c, n);
	for (k = 1; k < c->ncolumns; k++)
		order_following(c, block, k, n);
}

/* Flag byte and order key of one bound; false: it says nothing */
static bool
bound_of_probe(const KeyFormat *format, const TreeProbe *probe, bool upper, uint8 *flag,
			   OrderKey *order)
{
	int			n;

	if (probe == NULL)
		return false;
	n = format->key_len;
	if (probe->compare != NULL)
		n = Min(n, probe->nbytes);
	if (n < 1)
		return false;
	*flag = probe->bytes[0];
	*order = order_of_bytes(probe->bytes + 1, n - 1, upper ? 0xff : 0);
	return true;
}

/* The first bytes that entries within the bounds can have */
static void
set_entry_range(Collector *c)
{
	int			key_len = c->keys->format.key_len;

	c->low = order_min;
	c->high = order_max;
	if (c->lower != NULL)
		c->low = order_of_bytes(c->lower->bytes, c->lower->compare == NULL ? key_len :
								Min(c->lower->nbytes, key_len), 0);
	if (c->upper != NULL)
		c->high = order_of_bytes(c->upper->bytes, c->upper->compare == NULL ? key_len :
								 Min(c->upper->nbytes, key_len), 0xff);
}

static void
set_range(Collector *c)
{
	const KeyFormat *format = &c->keys->format;
	const KeyColumn *column = &format->columns[0];
	LeadingRange *range = &c->range;
	uint8		null_flag;
	uint8		low_flag = 0;
	uint8		high_flag = 0xff;

	memset(range, 0, sizeof(*range));
	range->usable = format->ncolumns > 0 && column->width > 0;
	range->values = range->nulls = true;
	range->low = order_min;
	range->high = order_max;
	if (!range->usable)
		return;
	if (!bound_of_probe(format, c->lower, false, &low_flag, &range->low) ||
		low_flag != KEY_FLAG_VALUE)
		range->low = order_min;
	if (!bound_of_probe(format, c->upper, true, &high_flag, &range->high) ||
		high_flag != KEY_FLAG_VALUE)
		range->high = order_max;
	null_flag = key_flag(column, true);
	range->values = low_flag <= KEY_FLAG_VALUE && high_flag >= KEY_FLAG_VALUE;
	range->nulls = low_flag <= null_flag && high_flag >= null_flag;
}

/* ---- ranges of columns ---- */

/* Bytes of a bound that all entries within it begin with, or are beyond */
static int
bound_bytes(const KeyFormat *format, const TreeProbe *probe)
{
	if (probe == NULL)
		return 0;
	return probe->compare == NULL ? format->key_len : Min(probe->nbytes, format->key_len);
}

/* Does a bound say of a column that it has a value, and which? */
static bool
bound_has_value(const KeyColumn *column, const TreeProbe *probe, int n)
{
	return n >= column->offset + 1 + column->width &&
		probe->bytes[column->offset] == KEY_FLAG_VALUE;
}

/* With all columns before this one given: is it not NULL within the bounds? */
static bool
null_is_out(const Collector *c, const KeyColumn *column, int nlower, int nupper)
{
	if (column->nulls_first)
		return nlower > column->offset && c->lower->bytes[column->offset] >= KEY_FLAG_VALUE;
	return nupper > column->offset && c->upper->bytes[column->offset] <= KEY_FLAG_VALUE;
}

static int64
integer_of_bytes(const KeyColumn *column, const uint8 *bytes)
{
	uint64		order = order_of_bytes(bytes, column->width, 0).hi ^ inversion(column);

	switch ((KeyKind) column->kind)
	{
		case KEY_INT2:
			return (int16) ((uint16) (order >> 48) ^ 0x8000);
		case KEY_INT4:
			return (int32) ((uint32) (order >> 32) ^ 0x80000000);
		default:
			return (int64) (order ^ SIGN64);
	}
}

static void
match_range(StoreMatch *m, const KeyColumn *column, const uint8 *low, const uint8 *high)
{
	int64		from = low == NULL ? PG_INT64_MIN : integer_of_bytes(column, low);
	int64		to = high == NULL ? PG_INT64_MAX : integer_of_bytes(column, high);

	if (column->desc)
	{
		m->low = high == NULL ? PG_INT64_MIN : to;
		m->high = low == NULL ? PG_INT64_MAX : from;
	}
	else
	{
		m->low = from;
		m->high = to;
	}
}

/* A text as it lies in a row; false: the bytes are not all of it. */
static bool
match_text(Collector *c, StoreMatch *m, const KeyColumn *column, const uint8 *bytes)
{
	int			len = bytes[column->width - 1];

	if (len >= column->width || m != &c->matches[c->nmatches] || c->image[0] != 0)
		return false;
	SET_VARSIZE_SHORT(c->image, len + VARHDRSZ_SHORT);
	memcpy(c->image + VARHDRSZ_SHORT, bytes, len);
	m->image = c->image;
	m->image_len = len + VARHDRSZ_SHORT;
	return true;
}

/*
 * Ranges of the leading columns: of each for which all before it have one value, until
 * one has several.
 */
static void
set_matches(Collector *c)
{
	const KeyFormat *format = &c->keys->format;
	int			nlower = bound_bytes(format, c->lower);
	int			nupper = bound_bytes(format, c->upper);
	int			k;

	c->nmatches = 0;
	c->image[0] = 0;
	for (k = 0; k < format->ncolumns && c->nmatches < MOST_MATCHES; k++)
	{
		const KeyColumn *column = &format->columns[k];
		StoreMatch *m = &c->matches[c->nmatches];
		const uint8 *low = NULL;
		const uint8 *high = NULL;
		bool		one_value;

		if (!null_is_out(c, column, nlower, nupper))
			return;
		if (bound_has_value(column, c->lower, nlower))
			low = c->lower->bytes + column->offset + 1;
		if (bound_has_value(column, c->upper, nupper))
			high = c->upper->bytes + column->offset + 1;
		one_value = low != NULL && high != NULL && memcmp(low, high, column->width) == 0;
		memset(m, 0, sizeof(*m));
		m->att = c->atts[k];
		if (column->kind == KEY_INT2 || column->kind == KEY_INT4 || column->kind == KEY_INT8)
			match_range(m, column, low, high);
		else if (column->kind != KEY_TEXT || column->desc || !one_value ||
				 !match_text(c, m, column, low))
			return;
		c->nmatches++;
		if (!one_value)
			return;
	}
}

/* ---- zones ---- */

static void
zone_add(ZoneBlock *zone, OrderKey min, OrderKey max)
{
	if (order_less(min, zone->min))
		zone->min = min;
	if (order_less(zone->max, max))
		zone->max = max;
}

static int
read_leading(Collector *c, BlockNumber block, bool *all_values)
{
	int			n = store_read_column(c->store, block, c->atts[0], c->values, c->states);
	uint8		any = 0;
	int			i;

	for (i = 0; i < n; i++)
		any |= c->states[i];
	*all_values = any == STORE_VALUE;
	return n;
}

/* Is the order key that of one integer? */
static bool
is_one_integer(const Collector *c)
{
	return c->ncolumns == 1 && is_integer(&c->keys->format.columns[0]);
}

/* Smallest and largest of values that are all there */
static void
zone_of_integers(Collector *c, ZoneBlock *zone, int n)
{
	const KeyColumn *column = &c->keys->format.columns[0];
	uint64		inverted = inversion(column);
	uint64		min = PG_UINT64_MAX;
	uint64		max = 0;
	int			i;

	EACH_ORDER(min = Min(min, order); max = Max(max, order););
	zone->min.hi = min;
	zone->min.lo = 0;
	zone->max.hi = max;
	zone->max.lo = 0;
}

/* One of the rows whose order keys are there */
static void
zone_add_row(Collector *c, ZoneBlock *zone, bool *has_null, int row)
{
	if (c->states[row] == STORE_VALUE)
		zone_add(zone, c->order[row], c->order[row]);
	else if (c->states[row] == STORE_VALUE_NULL)
		*has_null = true;
}

/* Of all that lies in the block, free rows and old versions included */
static int
zone_of_rows(Collector *c, BlockNumber block, ZoneBlock *zone, bool *has_null)
{
	bool		all_values;
	int			n = read_leading(c, block, &all_values);
	int			k;

	zone->min = order_max;
	zone->max = order_min;
	*has_null = false;
	if (n > 0 && all_values && is_one_integer(c))
		zone_of_integers(c, zone, n);
	else
	{
		order_rows(c, block, n);
		for (k = 0; k < n; k++)
			zone_add_row(c, zone, has_null, k);
	}
	return n;
}

/*
 * Of the roots alone, with a line read for each row, after zone_of_rows().  That has made
 * the order keys, unless an integer is all of them (c->values are those of the last column).
 */
static void
zone_of_roots(Collector *c, BlockNumber block, int nrows, ZoneBlock *zone, bool *has_null)
{
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n = store_wanted_roots(c->store, block, 0, c->partial->before, index);
	int			k;

	if (c->ncolumns == 1)
		order_leading(c, nrows);
	zone->min = order_max;
	zone->max = order_min;
	*has_null = false;
	for (k = 0; k < n; k++)
		zone_add_row(c, zone, has_null, index[k]);
}

static bool
zones_ascend(const ZoneBlock *before, const ZoneBlock *zone)
{
	return !order_less(zone->min, before->min) && !order_less(zone->max, before->max);
}

/*
 * Blocks that were filled by updates have rows from everywhere, but hardly a root.  They
 * stand out by their zones: only then it is worth looking at the words of all rows.  A
 * block without roots gets the end of the zone before it, which keeps zones ascending.
 */
static void
make_zone_block(Collector *c, BlockNumber block, ZoneSegment *zones, int i)
{
	ZoneBlock  *zone = &zones->blocks[i];
	const ZoneBlock *before = i > 0 ? zone - 1 : NULL;
	bool		has_null;
	int			n = zone_of_rows(c, block, zone, &has_null);

	if (n > 0 && (before == NULL || !zones_ascend(before, zone)))
		zone_of_roots(c, block, n, zone, &has_null);
	zones->has_null[i] = has_null;
	zones->any_null |= has_null;
	zone_add(&zones->all, zone->min, zone->max);
	if (order_less(zone->max, zone->min))
		zone->min = zone->max = before != NULL ? before->max : order_min;
	if (before != NULL && !zones_ascend(before, zone))
		zones->ascending = false;
}

/*
 * A look-up that has read most blocks of a segment for nothing: the next ones would,
 * too, and making more zones costs more than comparing columns.
 */
static void
note_scattered(Collector *c, BlockNumber blocks, BlockNumber in_vain)
{
	if (blocks >= SCATTERED_FROM && in_vain > blocks / 2)
		pg_atomic_write_u32(&c->partial->scattered, 1);
}

/* Zones of a segment; NULL if the arena is full, or they would be no help. */
static ZoneSegment *
segment_zones(Collector *c, uint32 number)
{
	PartialSegment *segment = &c->partial->segments[number];
	ZoneSegment *zones = __atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE);
	ZoneSegment *nobody = NULL;
	BlockNumber first = number * c->partial->segment_blocks;
	BlockNumber end = Min(first + c->partial->segment_blocks, c->partial->nblocks);
	BlockNumber block;

	if (zones != NULL || pg_atomic_read_u32(&c->partial->scattered) != 0)
		return zones;
	zones = arena_alloc(sizeof(ZoneSegment), ARENA_NO_OOM | ARENA_ZERO);
	if (zones == NULL)
		return NULL;
	zones->all.min = order_max;
	zones->all.max = order_min;
	zones->ascending = true;
	for (block = first; block < end; block++)
		make_zone_block(c, block, zones, block - first);
	if (__atomic_compare_exchange_n(&segment->zones, &nobody, zones, false, __ATOMIC_ACQ_REL,
									__ATOMIC_ACQUIRE))
	{
		pg_atomic_fetch_add_u64(&c->partial->bytes, sizeof(ZoneSegment));
		return zones;
	}
	arena_free(zones);			/* another process was faster */
	return nobody;
}

static bool
zone_may_match(const LeadingRange *range, const ZoneBlock *zone, bool has_null)
{
	return (range->values && !order_less(zone->max, range->low) &&
			!order_less(range->high, zone->min)) ||
		(range->nulls && has_null);
}

/* With ascending zones: the first block that is not below the range */
static int
first_zone(const ZoneSegment *zones, int n, OrderKey low)
{
	int			from = 0;

	while (from < n)
	{
		int			middle = (from + n) / 2;

		if (order_less(zones->blocks[middle].max, low))
			from = middle + 1;
		else
			n = middle;
	}
	return from;
}

/* ---- the table ---- */

/* One root: is its entry within the bounds? */
static void
collect_root(Collector *c, BlockNumber block, int index)
{
	uint64		root = (uint64) block * SOFORT_BLOCK_ROWS + index;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	uint8		entry[TREE_MAX_STRIDE];
	ItemPointerData tid;

	if (!store_root_is_wanted(c->store, root, 0, c->partial->before))
		return;
	store_chain_values(c->store, root, c->atts, c->keys->format.natts, values, isnull);
	row_to_tid(c->store, root, &tid);
	index_form_private_entry(c->keys, values, isnull, &tid, entry, c->set->context);
	if (within_bounds(c, entry))
		(void) set_add(c, entry, false);
	else if (keys_entry_tuple(&c->keys->format, entry) != NULL)
		pfree(keys_entry_tuple(&c->keys->format, entry));
}

/* All are values: which are in the range?  Returns how many. */
static int
match_integers(Collector *c, int n, uint8 *match)
{
	const KeyColumn *column = &c->keys->format.columns[0];
	uint64		inverted = inversion(column);
	uint64		low = c->range.low.hi;
	uint64		high = c->range.high.hi;
	int			found = 0;
	int			i;

	if (!c->range.values)
		return 0;
	EACH_ORDER(match[i] = (order >= low) & (order <= high); found += match[i];);
	return found;
}

static int
match_any(Collector *c, BlockNumber block, int n, uint8 *match)
{
	const LeadingRange *range = &c->range;
	int			found = 0;
	int			i;

	order_rows(c, block, n);
	for (i = 0; i < n; i++)
	{
		match[i] = c->states[i] == STORE_VALUE ?
			(range->values && !order_less(c->order[i], range->low) &&
			 !order_less(range->high, c->order[i])) :
			(range->nulls && c->states[i] == STORE_VALUE_NULL);
		found += match[i];
	}
	return found;
}

/* By the ranges of columns.  Returns how many may be in the range; -1: unknown. */
static int
match_columns(Collector *c, BlockNumber block, uint8 *match)
{
	int			found = 0;
	int			n = -1;
	int			k;
	int			i;

	memset(match, 1, SOFORT_BLOCK_ROWS);
	for (k = 0; k < c->nmatches; k++)
	{
		n = store_match_column(c->store, block, &c->matches[k], match);
		if (n < 0)
			return -1;
	}
	for (i = 0; i < n; i++)
		found += match[i];
	return n < 0 ? -1 : found;
}

/* By order keys */
static int
match_rows(Collector *c, BlockNumber block, uint8 *match)
{
	bool		all_values;
	int			n = read_leading(c, block, &all_values);

	if (all_values && is_one_integer(c))
		return match_integers(c, n, match);
	return match_any(c, block, n, match);
}

static void
collect_block(Collector *c, BlockNumber block)
{
	uint8		match[SOFORT_BLOCK_ROWS];
	int			found = match_columns(c, block, match);
	int			i;

	if (found < 0)
		found = match_rows(c, block, match);
	for (i = 0; found > 0 && !c->set->overflow; i++)
	{
		if (!match[i])
			continue;
		found--;
		collect_root(c, block, i);
	}
}

/* Where the leading column cannot tell: every root */
static void
collect_all_of_block(Collector *c, BlockNumber block)
{
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n = store_wanted_roots(c->store, block, 0, c->partial->before, index);
	int			i;

	for (i = 0; i < n && !c->set->overflow; i++)
		collect_root(c, block, index[i]);
}

static void
collect_from_table(Collector *c, uint32 number)
{
	BlockNumber first = number * c->partial->segment_blocks;
	BlockNumber end = Min(first + c->partial->segment_blocks, c->partial->nblocks);
	bool		by_leading = c->range.usable && !store_chains_differ(c->store);
	ZoneSegment *zones = by_leading ? segment_zones(c, number) : NULL;
	bool		ascending = zones != NULL && zones->ascending && !(c->range.nulls && zones->any_null);
	BlockNumber block = first;
	BlockNumber in_vain = 0;

	if (zones != NULL && !zone_may_match(&c->range, &zones->all, zones->any_null))
		return;
	if (ascending)
		block += first_zone(zones, end - first, c->range.low);
	for (; block < end && !c->set->overflow; block++)
	{
		uint64		before;

		if (ascending && order_less(c->range.high, zones->blocks[block - first].min))
			return;
		if (zones != NULL && !zone_may_match(&c->range, &zones->blocks[block - first],
											 zones->has_null[block - first]))
			continue;
		CHECK_FOR_INTERRUPTS();
		before = c->set->n;
		if (by_leading)
			collect_block(c, block);
		else
			collect_all_of_block(c, block);
		in_vain += c->set->n == before;
	}
	if (zones != NULL)
		note_scattered(c, end - first, in_vain);
}

/* ---- all of it ---- */

static void
collector_init(Collector *c, IndexKeys *keys, Relation heap, PartialIndex *partial,
			   const TreeProbe *lower, const TreeProbe *upper, PartialSet *set)
{
	c->keys = keys;
	c->store = store_open(heap);
	c->partial = partial;
	c->lower = lower;
	c->upper = upper;
	c->set = set;
	c->stride = keys_stride(&keys->format);
	partial_attributes(keys->index, c->atts);
	c->ncolumns = order_columns(&keys->format);
	set_range(c);
	set_entry_range(c);
	set_matches(c);
}

static void
collector_end(Collector *c)
{
	for (int k = 0; k < c->nmatches; k++)
		store_match_free(&c->matches[k]);
	pfree(c);
}

/* Is somebody reading just what this process would read for the same purpose? */
static bool
others_make_zones(Collector *c, PartialSegment *segment)
{
	return pg_atomic_read_u32(&segment->state) != SEGMENT_DONE && c->range.usable &&
		__atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE) == NULL &&
		pg_atomic_read_u32(&c->partial->scattered) == 0 &&
		pg_atomic_exchange_u32(&segment->zoning, 1) != 0;
}

static void
collect_segment(Collector *c, uint32 number)
{
	PartialSegment *segment = &c->partial->segments[number];

	if (segment_is_done(segment))
		collect_run(c, segment);
	else
		collect_from_table(c, number);
}

static void
collect_old(Collector *c)
{
	uint32		n = c->partial->nsegments;
	bool	   *later = palloc(Max(n, 1) * sizeof(bool));
	uint32		i;

	/* not all processes make the zones of the same segment at the same time */
	for (i = 0; i < n && !c->set->overflow; i++)
	{
		uint32		number = (MyProcPid + i) % n;

		later[number] = others_make_zones(c, &c->partial->segments[number]);
		if (!later[number])
			collect_segment(c, number);
	}
	for (i = 0; i < n && !c->set->overflow; i++)
		if (later[i])
			collect_segment(c, i);
	pfree(later);
}

static int
compare_entries(const void *a, const void *b, void *arg)
{
	return keys_compare_entries(arg, a, b);
}

static void
sort_set(Collector *c)
{
	PartialSet *set = c->set;

	if (set->overflow || set->n < 2)
		return;
	qsort_arg(set->entries, set->n, c->stride, compare_entries, c->keys);
	set->n = qunique_arg(set->entries, set->n, c->stride, compare_entries, c->keys);
}

void
partial_collect(IndexKeys *keys, Relation heap, const IndexView *view, const TreeProbe *lower,
				const TreeProbe *upper, PartialSet *set)
{
	Collector  *c = palloc(sizeof(Collector));

	collector_init(c, keys, heap, view->partial, lower, upper, set);
	if (view->collecting)
		collect_old(c);
	else
		collect_tree(c, view->tree);
	collect_tree(c, view->partial->delta);
	sort_set(c);
	collector_end(c);
}

void
partial_collect_old(IndexKeys *keys, Relation heap, PartialIndex *partial,
					const TreeProbe *lower, const TreeProbe *upper, PartialSet *set)
{
	Collector  *c = palloc(sizeof(Collector));

	collector_init(c, keys, heap, partial, lower, upper, set);
	collect_old(c);
	sort_set(c);
	collector_end(c);
}
