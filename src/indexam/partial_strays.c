/*-------------------------------------------------------------------------
 *
 * partial_strays.c
 *	  Strays: single rows of a segment that its zones leave out (README.md, "Zones").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"

#include "partial_read.h"

/* A block is looked at row by row if its zone is so many times as wide as typical ones. */
#define WIDE_ZONE		8

/*
 * A row is a stray if it is further from the middle half of its block than so many times
 * the width of that half, or of a typical zone.
 */
#define FAR_ROW			4

/* A block with fewer rows has no middle half. */
#define FEWEST_ROWS		8

/* Bits of the filter for a stray, and the fewest of all */
#define FILTER_BITS		8
#define FILTER_WORD		64

typedef struct StrayMaker
{
	Collector  *c;
	BlockNumber first;
	ZoneSegment *zones;
	int			zone_columns;	/* of zones */
	int			all_columns;	/* of keys */
	double		typical;		/* width of a zone */
	uint32		n;				/* in c->strays */
	int			nroots;			/* of the block that is looked at */
	uint8		roots[SOFORT_BLOCK_ROWS];	/* with a value in the leading column */
} StrayMaker;

/* ---- how far from each other ---- */

/* As numbers of 128 bits; zero if b is not below a */
static double
order_distance(OrderKey a, OrderKey b)
{
	if (!order_less(b, a))
		return 0;
	return (double) (a.hi - b.hi - (a.lo < b.lo)) * 18446744073709551616.0 +
		(double) (a.lo - b.lo);
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static double
zone_width(const ZoneBlock *zone)
{
	return order_distance(zone->max, zone->min);
}

/* It is assumed that at least an eighth of the blocks has no strays. */
static double
typical_width(const ZoneSegment *zones)
{
	double		widths[PARTIAL_BLOCKS];
	int			n = 0;
	int			i;

	for (i = 0; i < zones->nblocks; i++)
		if (!zone_is_empty(&zones->blocks[i]))
			widths[n++] = zone_width(&zones->blocks[i]);
	if (n == 0)
		return 0;
	qsort(widths, n, sizeof(double), compare_doubles);
	return widths[n / 8];
}

static int
compare_order_keys(const void *a, const void *b)
{
	OrderKey	x = *(const OrderKey *) a;
	OrderKey	y = *(const OrderKey *) b;

	return order_less(x, y) ? -1 : order_less(y, x);
}

/* Smallest and largest key of those rows of a block that are near each other */
static bool
home_of(const StrayMaker *maker, OrderKey *low, OrderKey *high, double *far)
{
	OrderKey	keys[SOFORT_BLOCK_ROWS];
	int			n = maker->nroots;
	int			i;

	if (n < FEWEST_ROWS)
		return false;
	for (i = 0; i < n; i++)
		keys[i] = maker->c->order[maker->roots[i]];
	qsort(keys, n, sizeof(OrderKey), compare_order_keys);
	*low = keys[n / 4];
	*high = keys[n - 1 - n / 4];
	*far = FAR_ROW * Max(order_distance(*high, *low), maker->typical);
	return true;
}

/* ---- taking rows out ---- */

/* The roots of a block that have an order key, with these keys */
static void
read_roots(StrayMaker *maker, int i)
{
	Collector  *c = maker->c;
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n;
	int			k;

	c->ncolumns = maker->all_columns;
	(void) order_block(c, maker->first + i);
	c->ncolumns = maker->zone_columns;
	n = block_roots(c, maker->first + i, index);
	maker->nroots = 0;
	for (k = 0; k < n; k++)
		if (c->states[index[k]] == STORE_VALUE)
			maker->roots[maker->nroots++] = index[k];
}

static void
add_stray(StrayMaker *maker, int i, int row)
{
	ZoneStray  *stray = &maker->c->strays[maker->n++];

	stray->key = maker->c->order[row];
	stray->place = (uint16) (i * SOFORT_BLOCK_ROWS + row);
}

static bool
have_room(const StrayMaker *maker)
{
	return maker->n + maker->nroots <= ZONE_MOST_STRAYS;
}

static void
add_to_zone(StrayMaker *maker, ZoneBlock *zone, int row)
{
	int			nbytes = order_bytes(&maker->c->keys->format, maker->zone_columns);
	OrderKey	min = order_first_bytes(maker->c->order[row], nbytes);
	OrderKey	max = min;

	order_widen(maker->c, &max);
	zone_add(zone, min, max);
}

/* Those that are far from the others of their block */
static void
take_far_rows(StrayMaker *maker, int i)
{
	ZoneBlock	zone = no_zone;
	OrderKey	low;
	OrderKey	high;
	double		far;
	int			k;

	read_roots(maker, i);
	if (!have_room(maker) || !home_of(maker, &low, &high, &far))
		return;
	for (k = 0; k < maker->nroots; k++)
	{
		int			row = maker->roots[k];
		OrderKey	key = maker->c->order[row];

		if (order_distance(low, key) > far || order_distance(key, high) > far)
			add_stray(maker, i, row);
		else
			add_to_zone(maker, &zone, row);
	}
	maker->zones->blocks[i] = zone;
}

/* All that are left, those in the zone */
static void
take_near_rows(StrayMaker *maker, int i)
{
	ZoneBlock  *zone = &maker->zones->blocks[i];
	int			k;

	read_roots(maker, i);
	if (!have_room(maker))
		return;
	for (k = 0; k < maker->nroots; k++)
	{
		OrderKey	key = maker->c->order[maker->roots[k]];

		if (!order_less(key, zone->min) && !order_less(zone->max, key))
			add_stray(maker, i, maker->roots[k]);
	}
	*zone = no_zone;
}

/* ---- the list ---- */

static int
compare_strays(const void *a, const void *b)
{
	const ZoneStray *x = a;
	const ZoneStray *y = b;
	int			result = compare_order_keys(&x->key, &y->key);

	return result != 0 ? result : (int) x->place - (int) y->place;
}

static uint64 *
filter_of(const ZoneStrays *strays)
{
	return (uint64 *) (strays->rows + strays->n);
}

static void
fill_filter(const StrayMaker *maker, ZoneStrays *strays)
{
	int			nbytes = order_bytes(&maker->c->keys->format, 1);
	uint64	   *filter = filter_of(strays);
	uint32		i;

	memset(filter, 0, strays->filter_bits / BITS_PER_BYTE);
	for (i = 0; i < strays->n; i++)
	{
		uint32		bit = order_hash(order_first_bytes(strays->rows[i].key, nbytes), nbytes) &
			(strays->filter_bits - 1);

		filter[bit / FILTER_WORD] |= UINT64CONST(1) << (bit % FILTER_WORD);
	}
}

static bool
store_strays(StrayMaker *maker)
{
	uint32		bits = pg_nextpower2_32(Max(maker->n * FILTER_BITS, FILTER_WORD));
	Size		rows = maker->n * sizeof(ZoneStray);
	Size		size = offsetof(ZoneStrays, rows) + rows + bits / BITS_PER_BYTE;
	ZoneStrays *strays = arena_alloc(size, ARENA_NO_OOM);

	if (strays == NULL)
		return false;
	qsort(maker->c->strays, maker->n, sizeof(ZoneStray), compare_strays);
	strays->size = size;
	strays->n = maker->n;
	strays->filter_bits = bits;
	memcpy(strays->rows, maker->c->strays, rows);
	fill_filter(maker, strays);
	maker->zones->strays = strays;
	return true;
}

static bool
has_wide_zone(const StrayMaker *maker, int i)
{
	return zone_width(&maker->zones->blocks[i]) > WIDE_ZONE * maker->typical;
}

/*
 * Where row ids are used again, single rows with any keys lie among those that were loaded
 * in order: without them the blocks are in order again.  After that the remaining blocks
 * that are out of order are taken out as a whole, if they are the exception, or those that
 * keep the others from being in order: they hold rows that were inserted later.
 */
bool
take_strays_out(Collector *c, BlockNumber first, ZoneSegment *zones, int all)
{
	StrayMaker	maker = {.c = c,.first = first,.zones = zones,.zone_columns = c->ncolumns,
	.all_columns = all};
	int			i;

	maker.typical = typical_width(zones);
	for (i = 0; i < zones->nblocks; i++)
		if (has_wide_zone(&maker, i))
			take_far_rows(&maker, i);
	order_zones(zones);
	if (!zones->ascending)
	{
		for (i = 0; i < zones->nblocks; i++)
			if (has_wide_zone(&maker, i))
				take_near_rows(&maker, i);
		order_zones(zones);
	}
	if (zones->ascending && zones->nwide > 0 && zones->nwide <= zones->nblocks / 2)
	{
		for (i = 0; i < zones->nwide; i++)
			take_near_rows(&maker, zones->wide[i]);
		order_zones(zones);
	}
	return maker.n == 0 || store_strays(&maker);
}

/* ---- looking for them ---- */

/*
 * Does the filter say that none of them has the value that the range has in the leading
 * column?
 */
static bool
filter_excludes(const Collector *c, const ZoneStrays *strays)
{
	uint32		bit = c->leading_hash & (strays->filter_bits - 1);

	return c->nequal > 0 &&
		(filter_of(strays)[bit / FILTER_WORD] & UINT64CONST(1) << (bit % FILTER_WORD)) == 0;
}

static uint32
first_stray(const ZoneStrays *strays, OrderKey low)
{
	uint32		from = 0;
	uint32		to = strays->n;

	while (from < to)
	{
		uint32		middle = (from + to) / 2;

		if (order_less(strays->rows[middle].key, low))
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

void
collect_strays(Collector *c, BlockNumber first, const ZoneStrays *strays)
{
	uint32		i;

	if (!c->range.values || filter_excludes(c, strays))
		return;
	for (i = first_stray(strays, c->range.low); i < strays->n && !c->set->overflow; i++)
	{
		const ZoneStray *stray = &strays->rows[i];

		if (order_less(c->range.high, stray->key))
			return;
		CHECK_FOR_INTERRUPTS();
		collect_place(c, first, stray->place);
	}
}
