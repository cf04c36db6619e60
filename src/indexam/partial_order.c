/*-------------------------------------------------------------------------
 *
 * partial_order.c
 *	  Rows and bounds of an index that is being rebuilt, as order keys.
 *
 * The order key of a row is the beginning of its entry (README.md, "Zones"),
 * computed column by column for all rows of a block, without forming entries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "partial_read.h"

/* ---- order keys of rows ---- */

/*
 * Writes bytes into a part of the order key that is zero so far (bytes of ones may be
 * written over anything). at: where they begin.
 */
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

void
order_put_integer(const Collector *c, int k, int64 value, OrderKey *key)
{
	const KeyColumn *column = &c->keys->format.columns[k];

	if (k > 0)
		put_order(key, column->offset - 1,
				  order_of_high((uint64) key_flag(column, false) << 56));
	put_order(key, column->offset, order_of_high(order_of_integer(column, value)));
}

int
order_bytes(const KeyFormat *format, int ncolumns)
{
	const KeyColumn *last = &format->columns[ncolumns - 1];

	/* (less the first flag) */
	return Min(last->offset + last->width, ORDER_BYTES);
}

OrderKey
order_first_bytes(OrderKey key, int nbytes)
{
	if (nbytes <= 8)
	{
		key.hi &= PG_UINT64_MAX << (64 - 8 * nbytes);
		key.lo = 0;
	}
	else if (nbytes < ORDER_BYTES)
		key.lo &= PG_UINT64_MAX << (128 - 8 * nbytes);
	return key;
}

void
order_widen(const Collector *c, OrderKey *key)
{
	const KeyFormat *format = &c->keys->format;

	/* (without the first flag byte, which is not in order keys) */
	if (c->ncolumns < format->ncolumns)
		put_order(key, format->columns[c->ncolumns].offset - 1, order_max);
}

/* The first bytes that keys_encode_column() makes of a short text.  *whole: they are all */
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

int
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
		EACH_ORDER(if (c->more_states[i] == STORE_VALUE)
				   put_order(&c->order[i], at, order_of_high(order)););
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
void
order_rows(Collector *c, BlockNumber block, int n)
{
	int			k;

	order_leading(c, n);
	for (k = 1; k < c->ncolumns; k++)
		order_following(c, block, k, n);
}

int
order_block(Collector *c, BlockNumber block)
{
	bool		all_values;
	int			n = read_leading(c, block, &all_values);

	order_rows(c, block, n);
	return n;
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

/* ---- bounds ---- */

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
set_leading_range(Collector *c)
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

/*
 * Number of bytes of a bound that decide: entries within it begin with them, or lie beyond
 * them
 */
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

/* If all columns before this one are given: do the bounds exclude NULL in it? */
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

/* Ranges of the leading columns: as long as all columns before have a single value. */
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
		if (is_signed_integer(column))
			match_range(m, column, low, high);
		else if (column->kind != KEY_TEXT || column->desc || !one_value ||
				 !match_text(c, m, column, low))
			return;
		c->nmatches++;
		if (!one_value)
			return;
	}
}

/* The first columns that have one value within the bounds */
static void
set_equal_columns(Collector *c)
{
	const LeadingRange *range = &c->range;

	c->nequal = 0;
	if (!range->usable || !range->values || range->nulls)
		return;
	while (c->nequal < c->ncolumns)
	{
		int			nbytes = order_bytes(&c->keys->format, c->nequal + 1);
		OrderKey	low = order_first_bytes(range->low, nbytes);
		OrderKey	high = order_first_bytes(range->high, nbytes);

		if (order_less(low, high) || order_less(high, low))
			return;
		c->nequal++;
	}
}

static void
set_leading_hash(Collector *c)
{
	int			nbytes;

	c->leading_hash = 0;
	if (c->nequal == 0)
		return;
	nbytes = order_bytes(&c->keys->format, 1);
	c->leading_hash = order_hash(order_first_bytes(c->range.low, nbytes), nbytes);
}

void
set_ranges(Collector *c)
{
	c->ncolumns = order_columns(&c->keys->format);
	set_leading_range(c);
	set_entry_range(c);
	set_matches(c);
	set_equal_columns(c);
	set_leading_hash(c);
}
