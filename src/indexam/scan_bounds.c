/*-------------------------------------------------------------------------
 *
 * scan_bounds.c
 *	  Which part of the index a scan must read.
 *
 * Equality (or IS NULL) on the first columns, then one range on the next.  As far as
 * bytes decide, a bound consists of bytes.  From the first value on that bytes do not
 * decide, or that is of another type, columns are compared one by one.  A condition
 * that is not part of the bounds stays a filter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "scan_internal.h"

bool
scan_cross_compare(Relation index, int column, Oid type, FmgrInfo *proc,
				   MemoryContext context)
{
	Oid			oid = get_opfamily_proc(index->rd_opfamily[column],
										index->rd_opcintype[column], type, BTORDER_PROC);

	if (!OidIsValid(oid))
		return false;
	fmgr_info_cxt(oid, proc, context);
	return true;
}

static bool
integer_value(Oid type, Datum value, int64 *result)
{
	switch (type)
	{
		case INT2OID:
			*result = DatumGetInt16(value);
			return true;
		case INT4OID:
			*result = DatumGetInt32(value);
			return true;
		case INT8OID:
			*result = DatumGetInt64(value);
			return true;
	}
	return false;
}

/* Converts an integer of another width to the column's type, if it fits */
static KeyFit
fit_integer(Oid column_type, StrategyNumber strategy, int64 v, Datum *value)
{
	int64		low;
	int64		high;

	switch (column_type)
	{
		case INT2OID:
			low = PG_INT16_MIN;
			high = PG_INT16_MAX;
			*value = Int16GetDatum((int16) v);
			break;
		case INT4OID:
			low = PG_INT32_MIN;
			high = PG_INT32_MAX;
			*value = Int32GetDatum((int32) v);
			break;
		default:
			*value = Int64GetDatum(v);
			return FIT_SAME;
	}
	if (v >= low && v <= high)
		return FIT_SAME;
	if (strategy == BTEqualStrategyNumber)
		return FIT_NONE;
	return (strategy <= BTLessEqualStrategyNumber) == (v > high) ? FIT_ALL : FIT_NONE;
}

KeyFit
scan_fit_key(ScanState *so, const ScanCondition *condition, Datum *value)
{
	ScanKey		key = condition->key;
	Relation	index = so->keys.index;
	Oid			opcintype = index->rd_opcintype[condition->column];
	int64		v;
	FmgrInfo	ignored;

	if ((key->sk_flags & (SK_ROW_HEADER | SK_SEARCHARRAY | SK_ISNULL)) ||
		key->sk_strategy < 1 || key->sk_strategy > BTMaxStrategyNumber ||
		key->sk_collation != so->keys.format.columns[condition->column].collation)
		return FIT_FILTER;
	*value = key->sk_argument;
	if (key->sk_subtype == InvalidOid || key->sk_subtype == opcintype)
		return FIT_SAME;
	if (integer_value(opcintype, (Datum) 0, &v) &&
		integer_value(key->sk_subtype, key->sk_argument, &v))
		return fit_integer(opcintype, key->sk_strategy, v, value);
	return scan_cross_compare(index, condition->column, key->sk_subtype, &ignored,
							  scan_array_context(so)) ?
		FIT_CROSS : FIT_FILTER;
}

/* ---- putting a bound together ---- */

typedef struct BoundBuilder
{
	ScanState  *so;
	int			nbytes;			/* decided so far */
	int			nequal;			/* columns whose value is in the bytes */
	bool		by_columns;		/* bytes have ended */
	int			ncolumns;
	BoundColumn columns[INDEX_MAX_KEYS];
	uint8		bytes[TREE_MAX_STRIDE];
} BoundBuilder;

/* Only what is in use: the struct is large. */
static void
copy_builder(BoundBuilder *to, const BoundBuilder *from)
{
	to->so = from->so;
	to->nbytes = from->nbytes;
	to->nequal = from->nequal;
	to->by_columns = from->by_columns;
	to->ncolumns = from->ncolumns;
	memcpy(to->columns, from->columns, from->ncolumns * sizeof(BoundColumn));
	memcpy(to->bytes, from->bytes, sizeof(to->bytes));
}

/* The column's value is compared by function. */
static void
add_column(BoundBuilder *b, int column, bool isnull, bool any_value, Datum value,
		   const ScanCondition *cross)
{
	BoundColumn *c = &b->columns[b->ncolumns++];

	b->by_columns = true;
	c->column = column;
	c->isnull = isnull;
	c->any_value = any_value;
	c->value = value;
	c->compare = b->so->keys.compare[column];
	if (cross != NULL)
	{
		(void) scan_cross_compare(b->so->keys.index, column, cross->key->sk_subtype, &c->own,
								  scan_array_context(b->so));
		c->compare = NULL;		/* its own, wherever the struct is copied to */
	}
}

/* column = value (or IS NULL); cross: of another type */
static void
add_value(BoundBuilder *b, int column, bool isnull, Datum value, const ScanCondition *cross)
{
	const KeyFormat *format = &b->so->keys.format;
	const KeyColumn *c = &format->columns[column];

	if (b->by_columns || column >= format->ncolumns)
	{
		add_column(b, column, isnull, false, value, cross);
		return;
	}
	b->bytes[c->offset] = key_flag(c, isnull);
	b->nbytes = c->offset + 1;
	if (isnull)
	{
		memset(b->bytes + b->nbytes, 0, c->width);
		b->nbytes += c->width;
		b->nequal++;
		return;
	}
	if (cross != NULL)
	{
		add_column(b, column, false, false, value, cross);
		return;
	}
	if (keys_encode_column(c, value, b->bytes + b->nbytes) == KEY_PREFIX)
		add_column(b, column, false, false, value, NULL);
	b->nbytes += c->width;
	b->nequal++;
}

/* column IS NOT NULL, as the edge of the values */
static void
add_any_value(BoundBuilder *b, int column)
{
	const KeyFormat *format = &b->so->keys.format;

	if (b->by_columns || column >= format->ncolumns)
	{
		add_column(b, column, false, true, (Datum) 0, NULL);
		return;
	}
	b->bytes[format->columns[column].offset] = KEY_FLAG_VALUE;
	b->nbytes = format->columns[column].offset + 1;
}

/* Compares the probe with an entry that has equal bytes, by columns that bytes do not decide */
static int
compare_columns(const ScanBound *bound, const uint8 *entry)
{
	int			i;

	for (i = 0; i < bound->ncolumns; i++)
	{
		const BoundColumn *c = &bound->columns[i];
		const KeyColumn *column = &bound->keys->format.columns[c->column];
		bool		isnull;
		Datum		value = keys_entry_column(bound->keys, entry, c->column, &isnull);
		int			result;

		if (isnull || c->isnull)
		{
			result = (int) key_flag(column, c->isnull) - (int) key_flag(column, isnull);
			if (result != 0)
				return result;
			continue;
		}
		if (c->any_value)
			continue;
		/* the function takes the column's type first */
		result = DatumGetInt32(FunctionCall2Coll((FmgrInfo *) (c->compare ? c->compare : &c->own),
												 column->collation, value, c->value));
		if (!column->desc)
			INVERT_COMPARE_RESULT(result);
		if (result != 0)
			return result;
	}
	return bound->tie;
}

/*
 * Values are decoded and functions called at every step of a search, so memory is reset
 * each time.
 */
static int
compare_bound(const TreeProbe *probe, const uint8 *entry)
{
	const ScanBound *bound = probe->arg;
	MemoryContext old = MemoryContextSwitchTo(bound->values);
	int			result = compare_columns(bound, entry);

	MemoryContextSwitchTo(old);
	MemoryContextReset(bound->values);
	return result;
}

/*
 * Where bytes are equal, entries with tuples are not in the order of their row ids, and are
 * padded with zeroes as a bound is: all of them are on the same side of it.
 */
static int
compare_edge(const TreeProbe *probe, const uint8 *entry)
{
	return ((const ScanBound *) probe->arg)->tie;
}

/* tie < 0: before everything that is equal so far; > 0: after it */
static void
finish_bound(const BoundBuilder *b, int tie, ScanBound *bound)
{
	const KeyFormat *format = &b->so->keys.format;
	int			len = format->key_len + TREE_ROW_BYTES;

	bound->exists = b->nbytes > 0 || b->by_columns;
	if (!bound->exists)
		return;
	memcpy(bound->bytes, b->bytes, b->nbytes);
	memset(bound->bytes + b->nbytes, tie < 0 ? 0 : 0xff, len - b->nbytes);
	memcpy(bound->columns, b->columns, b->ncolumns * sizeof(BoundColumn));
	bound->ncolumns = b->ncolumns;
	bound->keys = &b->so->keys;
	bound->tie = tie;
	bound->probe.bytes = bound->bytes;
	bound->probe.nbytes = b->nbytes;
	bound->probe.compare = b->by_columns ? compare_bound : NULL;
	bound->values = b->by_columns ? scan_row_context(b->so) : NULL;
	if (!b->by_columns && format->has_tuples)
	{
		bound->probe.nbytes = format->key_len;
		bound->probe.compare = compare_edge;
	}
	bound->probe.arg = bound;
}

/* ---- choosing conditions ---- */

static bool
is_null_test(const ScanCondition *condition, int flag)
{
	return (condition->key->sk_flags & flag) != 0 &&
		!(condition->key->sk_flags & SK_ROW_HEADER);
}

/* Makes an equality on the column part of the bound; false if there is none. */
static bool
take_equality(ScanState *so, BoundBuilder *b, int column)
{
	int			i;

	for (i = 0; i < so->nconditions; i++)
	{
		ScanCondition *condition = &so->conditions[i];
		Datum		value;
		KeyFit		fit;

		if (condition->column != column)
			continue;
		if (is_null_test(condition, SK_SEARCHNULL))
		{
			add_value(b, column, true, (Datum) 0, NULL);
			condition->filter = false;
			so->one_key = false;
			return true;
		}
		if (condition->key->sk_strategy != BTEqualStrategyNumber)
			continue;
		fit = scan_fit_key(so, condition, &value);
		if (fit == FIT_NONE)
			so->empty_range = true;
		if (fit != FIT_SAME && fit != FIT_CROSS)
			continue;
		if (fit == FIT_CROSS)
			so->one_key = false;	/* it may be equal to two different values */
		add_value(b, column, false, value, fit == FIT_CROSS ? condition : NULL);
		condition->filter = false;
		return true;
	}
	return false;
}

/* The ends of the range of one column, as far as they are known */
typedef struct Range
{
	ScanCondition *low;			/* in index order */
	ScanCondition *high;
	Datum		low_value;
	Datum		high_value;
	bool		low_cross;
	bool		high_cross;
	bool		not_null;
} Range;

static void
take_range_key(ScanState *so, ScanCondition *condition, Range *range)
{
	Datum		value;
	KeyFit		fit = scan_fit_key(so, condition, &value);
	bool		is_low;

	if (fit == FIT_FILTER || condition->key->sk_strategy == BTEqualStrategyNumber)
		return;
	range->not_null = true;
	if (fit == FIT_NONE)
		so->empty_range = true;
	if (fit == FIT_ALL)
		condition->filter = false;	/* NULLs are excluded */
	if (fit != FIT_SAME && fit != FIT_CROSS)
		return;
	is_low = condition->key->sk_strategy >= BTGreaterEqualStrategyNumber;
	if (so->keys.format.columns[condition->column].desc)
		is_low = !is_low;
	if (is_low && range->low == NULL)
	{
		range->low = condition;
		range->low_value = value;
		range->low_cross = fit == FIT_CROSS;
		condition->filter = false;
	}
	else if (!is_low && range->high == NULL)
	{
		range->high = condition;
		range->high_value = value;
		range->high_cross = fit == FIT_CROSS;
		condition->filter = false;
	}
}

static void
range_of_column(ScanState *so, int column, Range *range)
{
	int			i;

	memset(range, 0, sizeof(*range));
	for (i = 0; i < so->nconditions; i++)
	{
		ScanCondition *condition = &so->conditions[i];

		if (condition->column != column || (condition->key->sk_flags & SK_ROW_HEADER))
			continue;
		if (is_null_test(condition, SK_SEARCHNOTNULL))
		{
			range->not_null = true;
			condition->filter = false;
		}
		else
			take_range_key(so, condition, range);
	}
}

/* -1: the bound lies before what is equal to the key; 1: after it */
static int
bound_tie(const ScanCondition *condition, bool low)
{
	bool		inclusive = condition->key->sk_strategy == BTLessEqualStrategyNumber ||
	condition->key->sk_strategy == BTGreaterEqualStrategyNumber;

	return inclusive == low ? -1 : 1;
}

static void
add_range(ScanState *so, const BoundBuilder *equal, int column)
{
	Range		range;
	BoundBuilder low;
	BoundBuilder high;
	int			low_tie = -1;
	int			high_tie = 1;

	copy_builder(&low, equal);
	copy_builder(&high, equal);
	range_of_column(so, column, &range);
	if (range.low != NULL)
	{
		add_value(&low, column, false, range.low_value, range.low_cross ? range.low : NULL);
		low_tie = bound_tie(range.low, true);
	}
	else if (range.not_null)
		add_any_value(&low, column);
	if (range.high != NULL)
	{
		add_value(&high, column, false, range.high_value, range.high_cross ? range.high : NULL);
		high_tie = bound_tie(range.high, false);
	}
	else if (range.not_null)
		add_any_value(&high, column);
	finish_bound(&low, low_tie, &so->lower);
	finish_bound(&high, high_tie, &so->upper);
}

void
scan_set_bounds(ScanState *so)
{
	BoundBuilder equal;
	int			column;
	int			i;

	equal.so = so;
	memset(equal.bytes, 0, sizeof(equal.bytes));
	equal.nbytes = 0;
	equal.nequal = 0;
	equal.ncolumns = 0;
	equal.by_columns = false;
	so->empty_range = false;
	so->one_key = true;
	for (i = 0; i < so->nconditions; i++)
		so->conditions[i].filter = true;

	for (column = 0; column < so->keys.format.nkeys; column++)
		if (!take_equality(so, &equal, column))
			break;
	if (column < so->keys.format.nkeys)
	{
		so->one_key = false;
		add_range(so, &equal, column);
	}
	else
	{
		finish_bound(&equal, -1, &so->lower);
		finish_bound(&equal, 1, &so->upper);
	}
	scan_set_skip(so, column + 1);
	so->nequal = equal.nequal;
	so->any_filter = false;
	for (i = 0; i < so->nconditions; i++)
		if (so->conditions[i].filter)
			so->any_filter = true;
	so->bounds_valid = true;
}
