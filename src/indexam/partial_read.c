/*-------------------------------------------------------------------------
 *
 * partial_read.c
 *	  Looking into an index that is being rebuilt.
 *
 * New rows: delta, and tree.  Old rows: the runs of segments that are done, and
 * the table itself where they are not.  There the leading column is read block
 * by block, and an entry is formed of each row whose value lies within the
 * bounds.  What a block has at most is remembered (zones), so that a second
 * look-up reads only blocks that may matter.
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

static const OrderKey order_min = {0, 0};
static const OrderKey order_max = {PG_UINT64_MAX, PG_UINT64_MAX};

/* What the bounds say of the leading column */
typedef struct LeadingRange
{
	bool		usable;			/* it has bytes */
	bool		values;			/* some value may be in the range */
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
	Datum		values[SOFORT_BLOCK_ROWS];
	uint8		states[SOFORT_BLOCK_ROWS];
	OrderKey	order[SOFORT_BLOCK_ROWS];
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

/* ---- order of the leading column ---- */

/* Values of c->values[i] as far as they fit the high half of an order key */
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

/* A short text as keys_encode_column() would begin it */
static OrderKey
order_of_text(const KeyColumn *column, const char *value)
{
	int			room = column->width - 1;
	int			len = VARSIZE_1B(value) - VARHDRSZ_SHORT;
	uint8		bytes[ORDER_BYTES] = {0};
	OrderKey	key;

	memcpy(bytes, VARDATA_1B(value), Min(Min(len, room), ORDER_BYTES));
	if (room < ORDER_BYTES)
		bytes[room] = len <= room ? len : 0xff;
	memcpy(&key.hi, bytes, 8);
	memcpy(&key.lo, bytes + 8, 8);
	key.hi = pg_ntoh64(key.hi);
	key.lo = pg_ntoh64(key.lo);
	return key;
}

/* c->values as order keys, where they are values */
static void
order_any(Collector *c, int n)
{
	const KeyColumn *column = &c->keys->format.columns[0];
	bool		is_text = column->kind == KEY_TEXT && !column->desc;
	uint8		bytes[TREE_MAX_KEY];
	int			i;

	for (i = 0; i < n; i++)
	{
		const char *value = DatumGetPointer(c->values[i]);

		if (c->states[i] != STORE_VALUE)
			continue;
		if (is_text && VARATT_IS_1B(value) && !VARATT_IS_1B_E(value))
			c->order[i] = order_of_text(column, value);
		else
		{
			/* (inverted already if DESC) */
			(void) keys_encode_column(column, c->values[i], bytes);
			c->order[i] = order_of_bytes(bytes, column->width, 0);
		}
	}
}

static void
order_leading(Collector *c, int n)
{
	const KeyColumn *column = &c->keys->format.columns[0];
	uint64		inverted = inversion(column);
	int			i;

	if (!is_integer(column))
	{
		order_any(c, n);
		return;
	}
	EACH_ORDER(c->order[i].hi = order; c->order[i].lo = 0;);
}

/* Flag byte and order of one bound; false: it says nothing */
static bool
bound_of_probe(const KeyColumn *column, const TreeProbe *probe, bool upper, uint8 *flag,
			   OrderKey *order)
{
	int			n;

	if (probe == NULL)
		return false;
	n = 1 + column->width;
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
	if (!bound_of_probe(column, c->lower, false, &low_flag, &range->low) ||
		low_flag != KEY_FLAG_VALUE)
		range->low = order_min;
	if (!bound_of_probe(column, c->upper, true, &high_flag, &range->high) ||
		high_flag != KEY_FLAG_VALUE)
		range->high = order_max;
	null_flag = key_flag(column, true);
	range->values = low_flag <= KEY_FLAG_VALUE && high_flag >= KEY_FLAG_VALUE;
	range->nulls = low_flag <= null_flag && high_flag >= null_flag;
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

/* Smallest and largest of values that are all integers */
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

static void
make_zone_block(Collector *c, BlockNumber block, ZoneSegment *zones, int i)
{
	ZoneBlock  *zone = &zones->blocks[i];
	bool		all_values;
	int			n = read_leading(c, block, &all_values);
	int			k;

	zone->min = order_max;
	zone->max = order_min;
	if (n > 0 && all_values && is_integer(&c->keys->format.columns[0]))
		zone_of_integers(c, zone, n);
	else
	{
		order_leading(c, n);
		for (k = 0; k < n; k++)
		{
			if (c->states[k] == STORE_VALUE)
				zone_add(zone, c->order[k], c->order[k]);
			else if (c->states[k] == STORE_VALUE_NULL)
				zones->has_null[i] = zones->any_null = true;
		}
	}
	zone_add(&zones->all, zone->min, zone->max);
}

/* Zones of a segment; NULL if the arena is full. */
static ZoneSegment *
segment_zones(Collector *c, uint32 number)
{
	PartialSegment *segment = &c->partial->segments[number];
	ZoneSegment *zones = __atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE);
	ZoneSegment *nobody = NULL;
	BlockNumber first = number * c->partial->segment_blocks;
	BlockNumber end = Min(first + c->partial->segment_blocks, c->partial->nblocks);
	BlockNumber block;

	if (zones != NULL)
		return zones;
	zones = arena_alloc(sizeof(ZoneSegment), ARENA_NO_OOM | ARENA_ZERO);
	if (zones == NULL)
		return NULL;
	zones->all.min = order_max;
	zones->all.max = order_min;
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

/* All are integers: which are in the range?  Returns how many. */
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
match_any(Collector *c, int n, uint8 *match)
{
	const LeadingRange *range = &c->range;
	int			found = 0;
	int			i;

	order_leading(c, n);
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

static void
collect_block(Collector *c, BlockNumber block)
{
	uint8		match[SOFORT_BLOCK_ROWS];
	bool		all_values;
	int			n = read_leading(c, block, &all_values);
	int			found;
	int			i;

	if (all_values && is_integer(&c->keys->format.columns[0]))
		found = match_integers(c, n, match);
	else
		found = match_any(c, n, match);
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
	BlockNumber block;

	if (zones != NULL && !zone_may_match(&c->range, &zones->all, zones->any_null))
		return;
	for (block = first; block < end && !c->set->overflow; block++)
	{
		if (zones != NULL && !zone_may_match(&c->range, &zones->blocks[block - first],
											 zones->has_null[block - first]))
			continue;
		CHECK_FOR_INTERRUPTS();
		if (by_leading)
			collect_block(c, block);
		else
			collect_all_of_block(c, block);
	}
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
	set_range(c);
	set_entry_range(c);
}

/* Is somebody reading just what this process would read for the same purpose? */
static bool
others_make_zones(Collector *c, PartialSegment *segment)
{
	return pg_atomic_read_u32(&segment->state) != SEGMENT_DONE && c->range.usable &&
		__atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE) == NULL &&
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
	pfree(c);
}

void
partial_collect_old(IndexKeys *keys, Relation heap, PartialIndex *partial,
					const TreeProbe *lower, const TreeProbe *upper, PartialSet *set)
{
	Collector  *c = palloc(sizeof(Collector));

	collector_init(c, keys, heap, partial, lower, upper, set);
	collect_old(c);
	sort_set(c);
	pfree(c);
}
