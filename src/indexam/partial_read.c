/*-------------------------------------------------------------------------
 *
 * partial_read.c
 *	  Looking into an index that is being rebuilt.
 *
 * New rows are found in the delta and the tree.  Old rows are found in the runs of
 * segments that are done, and in the table itself where they are not.  There the first
 * columns are read block by block, as far as they fit 16 bytes of the entry, and an
 * entry is formed of each row whose bytes lie within the bounds.  What each block can
 * hold is remembered (zones), so that a second look-up reads only blocks that may
 * matter.  If values lie anywhere, it is remembered instead where in a segment which
 * values are (hashes).
 *
 * Of every segment either the run or the table is read.  Both say the same of rows that
 * were there when the rebuild began, so it does not matter that runs are made
 * meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "partial_read.h"

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

/* ---- the table ---- */

void
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
	int			n = block_roots(c, block, index);
	int			i;

	for (i = 0; i < n && !c->set->overflow; i++)
		collect_root(c, block, index[i]);
}

/* Reads a block that may matter; false: nothing in it did */
static bool
collect_doubtful(Collector *c, BlockNumber block)
{
	uint64		before = c->set->n;

	CHECK_FOR_INTERRUPTS();
	collect_block(c, block);
	return c->set->n > before;
}

static bool
block_may_match(const Collector *c, const ZoneSegment *zones, int i)
{
	return zone_may_match(&c->range, &zones->blocks[i], zones->has_null[i]);
}

/* The zones ascend: reads a range of blocks, then those that are out of order. */
static void
collect_by_order(Collector *c, BlockNumber first, ZoneSegment *zones)
{
	BlockNumber in_vain = 0;
	int			place;
	int			i;

	for (place = first_zone(zones, c->range.low); place < zones->nblocks && !c->set->overflow; place++)
	{
		i = zone_in_order(zones, place);
		if (zones->apart[i])
			continue;
		if (order_less(c->range.high, zones->blocks[i].min))
			break;
		if (block_may_match(c, zones, i))
			in_vain += !collect_doubtful(c, first + i);
	}
	for (i = 0; i < zones->nwide && !c->set->overflow; i++)
		if (block_may_match(c, zones, zones->wide[i]))
			in_vain += !collect_doubtful(c, first + zones->wide[i]);
	note_scattered(c, zones, zones->nblocks, in_vain);
}

/* Reads all blocks in turn. zones: NULL if there are none. */
static void
collect_in_turn(Collector *c, BlockNumber first, BlockNumber n, ZoneSegment *zones)
{
	BlockNumber in_vain = 0;
	BlockNumber i;

	for (i = 0; i < n && !c->set->overflow; i++)
		if (zones == NULL || block_may_match(c, zones, i))
			in_vain += !collect_doubtful(c, first + i);
	if (zones != NULL)
		note_scattered(c, zones, n, in_vain);
}

/* make_zones: unless they are there already */
static void
collect_from_table(Collector *c, uint32 number, bool make_zones)
{
	BlockNumber first = segment_first(c->partial, number);
	BlockNumber n = segment_end(c->partial, number) - first;
	ZoneSegment *zones;

	if (!c->range.usable || store_chains_differ(c->store))
	{
		store_read_ahead(c->store, first, first + n, STORE_WHOLE_ROWS);
		for (BlockNumber i = 0; i < n && !c->set->overflow; i++)
		{
			CHECK_FOR_INTERRUPTS();
			collect_all_of_block(c, first + i);
		}
		return;
	}
	zones = make_zones ? segment_zones(c, number) :
		__atomic_load_n(&c->partial->segments[number].zones, __ATOMIC_ACQUIRE);
	if (zones != NULL && zones->strays != NULL)
		collect_strays(c, first, zones->strays);
	if ((zones != NULL && !zone_may_match(&c->range, &zones->all, zones->any_null)) ||
		collect_from_hash(c, number))
		return;
	if (zones != NULL && zones->ascending && !(c->range.nulls && zones->any_null))
		collect_by_order(c, first, zones);
	else
	{
		if (zones == NULL)
			store_read_ahead(c->store, first, first + n, c->atts[0]);
		collect_in_turn(c, first, n, zones);
	}
}

/* ---- all of it ---- */

static void
collector_init(Collector *c, IndexKeys *keys, Relation heap, PartialIndex *partial,
			   const TreeProbe *lower, const TreeProbe *upper, PartialSet *set)
{
	c->keys = keys;
	c->heap = heap;
	c->store = store_open(heap);
	c->partial = partial;
	c->lower = lower;
	c->upper = upper;
	c->set = set;
	c->stride = keys_stride(&keys->format);
	c->hash_rows = NULL;
	c->strays = NULL;
	partial_attributes(keys->index, c->atts);
	set_ranges(c);
}

static void
collector_end(Collector *c)
{
	for (int k = 0; k < c->nmatches; k++)
		store_match_free(&c->matches[k]);
	if (c->hash_rows != NULL)
		pfree(c->hash_rows);
	if (c->strays != NULL)
		pfree(c->strays);
	pfree(c);
}

static void
collect_segment(Collector *c, uint32 number, bool make_zones)
{
	PartialSegment *segment = &c->partial->segments[number];

	if (segment_is_done(segment))
		collect_run(c, segment);
	else
		collect_from_table(c, number, make_zones);
}

static void
collect_all_segments(Collector *c)
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
			collect_segment(c, number, true);
	}
	for (i = 0; i < n && !c->set->overflow; i++)
		if (later[i])
			collect_segment(c, i, true);
	pfree(later);
}

/* ---- one row ---- */

/* Does the snapshot see a row of the set, from this entry on? */
static bool
sees_one(Collector *c, uint64 from)
{
	for (; from < c->set->n; from++)
	{
		ItemPointerData tid;
		RowRef		found;

		index_entry_tid(c->keys, c->set->entries + from * c->stride, &tid);
		if (store_chain_fetch(c->heap, c->store, row_from_tid(c->store, &tid), c->set->only,
							  &found, NULL))
			return true;
	}
	return false;
}

/* Can a look-up find out with little work whether the key is in the segment? */
static bool
is_cheap(PartialSegment *segment)
{
	const ZoneSegment *zones = __atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE);

	return segment_is_done(segment) || (zones != NULL && !zones->no_help) ||
		__atomic_load_n(&segment->hash, __ATOMIC_ACQUIRE) != NULL;
}

/* With which segment to begin among those that are not cheap */
static uint32
near_segment(Collector *c)
{
	if (pg_atomic_read_u32(&c->partial->scattered) != 0)
		return MyProcPid % c->partial->nsegments;
	return likely_segment(c);
}

static bool
is_in_segment(Collector *c, uint32 number, bool *looked)
{
	PartialSegment *segment = &c->partial->segments[number];
	uint64		before = c->set->n;

	*looked = true;
	collect_segment(c, number, !others_make_zones(c, segment));
	return sees_one(c, before);
}

/*
 * Looks first into segments where that takes a few comparisons, then into the others, from
 * where the row probably is, in both directions.  A segment of which another process is
 * just making zones is read without them.
 */
static bool
find_one(Collector *c, bool *looked)
{
	uint32		n = c->partial->nsegments;
	uint32		left = n;
	uint32		near;
	uint32		i;

	for (i = 0; i < n; i++)
	{
		if (!is_cheap(&c->partial->segments[i]))
			continue;
		left--;
		if (is_in_segment(c, i, &looked[i]))
			return true;
	}
	near = left > 1 ? near_segment(c) : 0;
	for (i = 0; left > 0; i++)
	{
		uint32		number = i % 2 == 0 ? near - i / 2 : near + i / 2 + 1;

		/* (below zero it is beyond n, too) */
		if (number >= n || looked[number])
			continue;
		left--;
		if (is_in_segment(c, number, &looked[number]))
			return true;
	}
	return false;
}

/* False: the row that is asked for is already in the set, so there is no need to go on. */
static bool
collect_old(Collector *c)
{
	bool	   *looked;
	bool		found;

	if (c->set->only == NULL || c->partial->nsegments == 0)
	{
		collect_all_segments(c);
		return true;
	}
	looked = palloc0(c->partial->nsegments * sizeof(bool));
	found = find_one(c, looked);
	pfree(looked);
	return !found;
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
	if (!view->collecting)
		collect_tree(c, view->tree);
	if (!view->collecting || collect_old(c))
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
	(void) collect_old(c);
	sort_set(c);
	collector_end(c);
}
