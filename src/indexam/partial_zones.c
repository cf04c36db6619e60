/*-------------------------------------------------------------------------
 *
 * partial_zones.c
 *	  Zones: smallest and largest key of each block of a segment (README.md, "Zones").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/cleanup.h"

#include "partial_read.h"

/* Only segments of so many blocks tell whether zones help in the others */
#define SCATTERED_FROM	64

/* Keys count as scattered if so many segments are, and most of those that have zones */
#define SCATTERED_SEGMENTS	3

/* So many blocks may be read in vain before something else is tried */
#define FEW_BLOCKS		8

/* Sample of a segment that decides how many columns its zones have */
#define SAMPLED_BLOCKS	32

/* Zone of a block none of whose values is NULL */
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
	zone->max.hi = max;
	zone->min.lo = zone->max.lo = 0;
}

/*
 * The same without looking at single values, if all columns but the last have one value in
 * the whole block.  Returns the number of rows; -1: they have several, or are stored in
 * another way.
 */
static int
zone_of_extremes(Collector *c, BlockNumber block, ZoneBlock *zone)
{
	int			n = -1;
	int			k;

	zone->min = zone->max = order_min;
	for (k = 0; k < c->ncolumns; k++)
	{
		const KeyColumn *column = &c->keys->format.columns[k];
		int64		min;
		int64		max;

		if (!is_signed_integer(column))
			return -1;
		n = store_column_extremes(c->store, block, c->atts[k], &min, &max);
		if (n > 0 && min < max && k + 1 < c->ncolumns)
			return -1;
		if (n <= 0)
			break;
		order_put_integer(c, k, column->desc ? max : min, &zone->min);
		order_put_integer(c, k, column->desc ? min : max, &zone->max);
	}
	if (n == 0)
		*zone = no_zone;
	return n;
}

/* Adds one of the rows whose order keys were computed */
static void
zone_add_row(Collector *c, ZoneBlock *zone, bool *has_null, int row)
{
	if (c->states[row] == STORE_VALUE)
		zone_add(zone, c->order[row], c->order[row]);
	else if (c->states[row] == STORE_VALUE_NULL)
		*has_null = true;
}

/*
 * Zone of everything that lies in the block, free rows and old versions included.
 * *ordered: order keys of its rows were computed for that.
 */
static int
zone_of_rows(Collector *c, BlockNumber block, ZoneBlock *zone, bool *has_null, bool *ordered)
{
	int			n = zone_of_extremes(c, block, zone);
	bool		all_values;
	int			k;

	*has_null = *ordered = false;
	if (n >= 0)
		return n;
	*zone = no_zone;
	n = read_leading(c, block, &all_values);
	if (n > 0 && all_values && is_one_integer(c))
		zone_of_integers(c, zone, n);
	else
	{
		order_rows(c, block, n);
		*ordered = true;
		for (k = 0; k < n; k++)
			zone_add_row(c, zone, has_null, k);
	}
	return n;
}

static ZoneBlock
zone_of(Collector *c, BlockNumber block)
{
	ZoneBlock	zone;
	bool		has_null;
	bool		ordered;

	(void) zone_of_rows(c, block, &zone, &has_null, &ordered);
	return zone;
}

/*
 * Zone of the roots alone; a line is read for each row. ordered: their order keys were
 * computed already.
 */
static void
zone_of_roots(Collector *c, BlockNumber block, ZoneBlock *zone, bool *has_null, bool ordered)
{
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n = block_roots(c, block, index);
	int			k;

	if (!ordered)
		(void) order_block(c, block);
	*zone = no_zone;
	*has_null = false;
	for (k = 0; k < n; k++)
		zone_add_row(c, zone, has_null, index[k]);
}

/* May all of its rows be free? */
static bool
may_be_free(const Collector *c, const ZoneBlock *zone)
{
	const KeyColumn *column = &c->keys->format.columns[0];

	if (order_less(zone->min, zone->max))
		return false;
	return !is_signed_integer(column) ||
		((zone->min.hi ^ order_of_integer(column, 0)) >> (64 - 8 * column->width)) == 0;
}

/* Whatever follows the columns that count */
static void
widen(const Collector *c, ZoneBlock *zone)
{
	if (!zone_is_empty(zone))
		order_widen(c, &zone->max);
}

static bool
zones_ascend(const ZoneBlock *before, const ZoneBlock *zone)
{
	return !order_less(zone->min, before->min) && !order_less(zone->max, before->max);
}

/* ---- the order of blocks ---- */

#define NOBODY		(-1)		/* there is no block before it in order */
#define UNKNOWN		(-2)

/* Places of the last two blocks that are in order */
typedef struct ZoneOrder
{
	int			last;
	int			before;
} ZoneOrder;

static ZoneBlock *
zone_at(ZoneSegment *zones, int place)
{
	return &zones->blocks[zone_in_order(zones, place)];
}

/* The block counts as out of order: look-ups consider it by itself. */
static void
set_apart(ZoneSegment *zones, int place)
{
	int			i = zone_in_order(zones, place);

	zones->apart[i] = true;
	if (zones->nwide < ZONES_WIDE)
		zones->wide[zones->nwide++] = (uint8) i;
	else
		zones->ascending = false;
}

/* What was taken for the last block in order is out of order. */
static void
take_out_last(ZoneSegment *zones, ZoneOrder *order, int place)
{
	set_apart(zones, order->last);
	for (int k = order->before + 1; k < place; k++)
		zones->reach[k] = order->before == NOBODY ? order_min : zone_at(zones, order->before)->max;
	order->last = order->before;
	order->before = UNKNOWN;
}

/*
 * Two blocks contradict each other: which one is out of order?  The new one, if it goes
 * beyond the other at both ends, or does not follow the one before that either.
 */
static bool
last_is_apart(ZoneSegment *zones, const ZoneOrder *order, const ZoneBlock *zone)
{
	const ZoneBlock *last = zone_at(zones, order->last);

	if (order->before == UNKNOWN ||
		(order_less(zone->min, last->min) && order_less(last->max, zone->max)))
		return false;
	return order->before == NOBODY || zones_ascend(zone_at(zones, order->before), zone);
}

/* Updates and reused row ids leave rows from everywhere in a few blocks of most tables. */
static void
put_in_order(ZoneSegment *zones, ZoneOrder *order, int place)
{
	const ZoneBlock *zone = zone_at(zones, place);

	zones->reach[place] = place > 0 ? zones->reach[place - 1] : order_min;
	zone_add(&zones->all, zone->min, zone->max);
	if (zone_is_empty(zone))
	{
		zones->apart[zone_in_order(zones, place)] = true;
		return;
	}
	if (order->last >= 0 && !zones_ascend(zone_at(zones, order->last), zone))
	{
		if (!last_is_apart(zones, order, zone))
		{
			set_apart(zones, place);
			return;
		}
		take_out_last(zones, order, place);
	}
	order->before = order->last;
	order->last = place;
	zones->reach[place] = zone->max;
}

/*
 * Blocks that were filled by updates have rows from everywhere, but hardly a root; those that
 * were not filled have zeroes.  They stand out by their zones: only then it is worth looking at
 * the words of all rows.
 */
static void
make_zone_block(Collector *c, BlockNumber first, ZoneSegment *zones, int place, ZoneOrder *order)
{
	int			i = zone_in_order(zones, place);
	ZoneBlock  *zone = &zones->blocks[i];
	bool		has_null;
	bool		ordered;
	int			n = zone_of_rows(c, first + i, zone, &has_null, &ordered);
	bool		doubtful = may_be_free(c, zone);

	widen(c, zone);
	if (n > 0 && (doubtful || order->last < 0 || !zones_ascend(zone_at(zones, order->last), zone)))
	{
		zone_of_roots(c, first + i, zone, &has_null, ordered);
		widen(c, zone);
	}
	zones->has_null[i] = has_null;
	zones->any_null |= has_null;
	put_in_order(zones, order, place);
}

static void
begin_order(ZoneSegment *zones, ZoneOrder *order)
{
	order->last = order->before = NOBODY;
	zones->all = no_zone;
	zones->ascending = true;
	zones->nwide = 0;
	memset(zones->apart, 0, sizeof(zones->apart));
}

static void
make_zones(Collector *c, BlockNumber first, ZoneSegment *zones)
{
	ZoneOrder	order;
	int			i;

	begin_order(zones, &order);
	for (i = 0; i < zones->nblocks; i++)
		make_zone_block(c, first, zones, i, &order);
}

void
order_zones(ZoneSegment *zones)
{
	ZoneOrder	order;
	int			i;

	begin_order(zones, &order);
	for (i = 0; i < zones->nblocks; i++)
		put_in_order(zones, &order, i);
}

/* Would more of them be in order the other way round? */
static bool
order_is_wrong(ZoneSegment *zones)
{
	const ZoneBlock *before = NULL;
	int			ascents = 0;
	int			i;

	for (i = 0; i < zones->nblocks; i++)
	{
		const ZoneBlock *zone = zone_at(zones, i);

		if (zone_is_empty(zone))
			continue;
		if (before != NULL)
			ascents += zones_ascend(before, zone) - zones_ascend(zone, before);
		before = zone;
	}
	return ascents < 0;
}

/* As a rule rows are loaded in ascending order, so keys that are DESC descend. */
static bool
keys_descend(const Collector *c)
{
	return c->keys->format.columns[0].desc;
}

/* Do all rows of the block have the same values in the columns that count? */
static bool
is_one_value(Collector *c, BlockNumber block, BlockNumber end)
{
	ZoneBlock	zone = zone_of(c, block);

	return !order_less(zone.min, zone.max) && !order_less(zone.max, zone.min);
}

/* Does the next block have other values? */
static bool
is_apart(Collector *c, BlockNumber block, BlockNumber end)
{
	ZoneBlock	zone = zone_of(c, block);
	ZoneBlock	next = zone_of(c, Min(block + 1, end - 1));

	return !order_less(next.min, zone.max) || !order_less(zone.min, next.max);
}

/* Does the test hold for more than one in so many blocks of a sample? */
static bool
sample_is(Collector *c, BlockNumber first, BlockNumber end, int one_in,
		  bool (*is) (Collector *c, BlockNumber block, BlockNumber end))
{
	BlockNumber step = Max((end - first) / SAMPLED_BLOCKS, 1);
	BlockNumber block;
	int			nblocks = 0;
	int			nsuch = 0;

	for (block = first; block < end; block += step, nblocks++)
		nsuch += is(c, block, end);
	return nsuch > nblocks / one_in;
}

/*
 * Of several columns only the first ones count, as far as they are integers, and until they
 * tell the rows of most blocks apart (strays alone are no reason for another one): columns
 * in which rows agree are read without looking at rows.  All others count if they tell
 * blocks apart.
 */
static void
choose_columns(Collector *c, BlockNumber first, BlockNumber end)
{
	const KeyColumn *columns = c->keys->format.columns;
	int			all = c->ncolumns;
	int			n = 0;

	while (n < all && is_integer(&columns[n]))
	{
		c->ncolumns = ++n;
		if (n < all && !sample_is(c, first, end, 4, is_one_value))
			return;
	}
	c->ncolumns = all;
	if (n > 0 && n < all && !sample_is(c, first, end, 2, is_apart))
		c->ncolumns = n;
}

/* False: the arena is full. */
static bool
make_segment_zones(Collector *c, uint32 number, ZoneSegment *zones)
{
	BlockNumber first = segment_first(c->partial, number);
	BlockNumber end = segment_end(c->partial, number);
	int			all = c->ncolumns;
	bool		made = true;

	store_read_ahead(c->store, first, end, c->atts[0]);
	choose_columns(c, first, end);
	zones->nblocks = end - first;
	zones->backward = keys_descend(c);
	make_zones(c, first, zones);
	if (order_is_wrong(zones))
	{
		zones->backward = !zones->backward;
		order_zones(zones);
	}
	if (zones->nwide > 0)
		made = take_strays_out(c, first, zones, all);
	c->ncolumns = all;
	return made;
}

void
segment_zones_free(ZoneSegment *zones)
{
	if (zones->strays != NULL)
		arena_free(zones->strays);
	arena_free(zones);
}

/*
 * A look-up has read most blocks of a segment for nothing: the next ones would, too.  Where
 * that holds for most segments, making more zones costs more than comparing columns.  A
 * single such segment may be where rows went that were updated, or inserted later.
 */
void
note_scattered(Collector *c, ZoneSegment *zones, BlockNumber blocks, BlockNumber in_vain)
{
	PartialIndex *partial = c->partial;
	uint32		no_help;

	if (in_vain <= Max(blocks / 2, FEW_BLOCKS) ||
		__atomic_exchange_n(&zones->no_help, true, __ATOMIC_ACQ_REL) || blocks < SCATTERED_FROM)
		return;
	no_help = pg_atomic_add_fetch_u32(&partial->zones_no_help, 1);
	if (no_help >= Min(SCATTERED_SEGMENTS, partial->nsegments) &&
		no_help > pg_atomic_read_u32(&partial->zones_made) / 2)
		pg_atomic_write_u32(&partial->scattered, 1);
}

static void
abandon_zones(int code, Datum arg)
{
	segment_zones_free((ZoneSegment *) DatumGetPointer(arg));
}

/* Frees the zones in case of an error (a damaged value, no memory). */
static bool
fill_segment_zones(Collector *c, uint32 number, ZoneSegment *zones)
{
	bool		made;

	if (indexam_pause_search != NULL)
		indexam_pause_search(true);
	SOFORT_ENSURE_ERROR_CLEANUP(abandon_zones, PointerGetDatum(zones));
	{
		made = make_segment_zones(c, number, zones);
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	if (indexam_pause_search != NULL)
		indexam_pause_search(false);
	return made;
}

/* Zones of a segment; NULL if the arena is full, or they would be no help. */
ZoneSegment *
segment_zones(Collector *c, uint32 number)
{
	PartialSegment *segment = &c->partial->segments[number];
	ZoneSegment *zones = __atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE);
	ZoneSegment *nobody = NULL;

	if (zones != NULL || pg_atomic_read_u32(&c->partial->scattered) != 0)
		return zones;
	if (c->strays == NULL)
		c->strays = palloc(ZONE_MOST_STRAYS * sizeof(ZoneStray));
	zones = arena_alloc(sizeof(ZoneSegment), ARENA_NO_OOM | ARENA_ZERO);
	if (zones == NULL)
		return NULL;
	if (fill_segment_zones(c, number, zones) &&
		__atomic_compare_exchange_n(&segment->zones, &nobody, zones, false, __ATOMIC_ACQ_REL,
									__ATOMIC_ACQUIRE))
	{
		pg_atomic_fetch_add_u64(&c->partial->bytes, sizeof(ZoneSegment) +
								(zones->strays != NULL ? zones->strays->size : 0));
		pg_atomic_fetch_add_u32(&c->partial->zones_made, 1);
		return zones;
	}
	segment_zones_free(zones);	/* if there are zones now, another process was faster */
	return nobody;
}

/* Is a segment behind the range, as far as its first block tells? */
static bool
is_behind(Collector *c, uint32 number)
{
	ZoneSegment *zones = __atomic_load_n(&c->partial->segments[number].zones, __ATOMIC_ACQUIRE);
	ZoneBlock	zone = zones != NULL ? zones->all : zone_of(c, segment_first(c->partial, number));

	return keys_descend(c) ? order_less(zone.max, c->range.low) : order_less(c->range.high, zone.min);
}

uint32
likely_segment(Collector *c)
{
	uint32		from = 0;
	uint32		to = c->partial->nsegments;

	if (!c->range.usable || !c->range.values)
		return 0;
	while (from + 1 < to)
	{
		uint32		middle = (from + to) / 2;

		if (is_behind(c, middle))
			to = middle;
		else
			from = middle;
	}
	return from;
}

bool
zone_may_match(const LeadingRange *range, const ZoneBlock *zone, bool has_null)
{
	return (range->values && !order_less(zone->max, range->low) &&
			!order_less(range->high, zone->min)) ||
		(range->nulls && has_null);
}

int
first_zone(const ZoneSegment *zones, OrderKey low)
{
	int			from = 0;
	int			n = zones->nblocks;

	while (from < n)
	{
		int			middle = (from + n) / 2;

		if (order_less(zones->reach[middle], low))
			from = middle + 1;
		else
			n = middle;
	}
	return from;
}

/* Is another process reading what this one would read for the same purpose? */
bool
others_make_zones(Collector *c, PartialSegment *segment)
{
	return pg_atomic_read_u32(&segment->state) != SEGMENT_DONE && c->range.usable &&
		__atomic_load_n(&segment->zones, __ATOMIC_ACQUIRE) == NULL &&
		pg_atomic_read_u32(&c->partial->scattered) == 0 &&
		pg_atomic_exchange_u32(&segment->zoning, 1) != 0;
}

void
partial_test_zones(PartialIndex *partial, IndexamZones *sums)
{
	uint32		i;

	memset(sums, 0, sizeof(*sums));
	for (i = 0; i < partial->nsegments; i++)
	{
		ZoneSegment *zones = __atomic_load_n(&partial->segments[i].zones, __ATOMIC_ACQUIRE);

		if (zones == NULL)
			continue;
		sums->segments++;
		sums->ascending += zones->ascending;
		sums->apart += zones->nwide;
		sums->strays += zones->strays != NULL ? zones->strays->n : 0;
	}
}
