/*-------------------------------------------------------------------------
 *
 * scan_skip.c
 *	  Passing over entries in the middle of a range.
 *
 * Bounds end with the first column that may have several values (WHERE b = 1 on an
 * index on (a, b): at once).  If a column behind it has a condition, then of the entries
 * that have the same values before that column only a part can match, and bytes say
 * between which two places: low and high.  Of an array they say more: a part for each
 * element.  Since leaves are not chained, a scan descends to each leaf that it reads; so
 * where it would go on at a separator beside such a part, it goes on at the edge of the
 * next part instead, or behind (before) all entries with these values.  That costs nothing,
 * and passes over leaves without a match.
 *
 * The proof is of bytes alone.  What is passed over has the same bytes as the separator
 * before the column, and those of the column are below low, above high, or between those of
 * two elements.  Bytes that differ are in the order of the values (keys.c), so the condition
 * is false.  A flag byte 0 in a separator says that an earlier column is not decided by
 * bytes; then it stays.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"

#include "scan_internal.h"

/* What is found out about the column whose edges come next */
typedef struct ColumnEdges
{
	const KeyColumn *column;
	int			len;			/* bytes, with the flag */
	uint8	   *low;
	uint8	   *high;
	bool		prefix;			/* bytes may not say all of a value: what follows is 0 then */
	ScanMembers *members;
} ColumnEdges;

/* False: other values have the same bytes. */
static bool
value_bytes(const KeyColumn *column, Datum value, uint8 *bytes)
{
	bytes[0] = KEY_FLAG_VALUE;
	return keys_encode_column(column, value, bytes + 1) != KEY_PREFIX;
}

/* Both edges at this value (of the column's type) */
static void
narrow(ColumnEdges *edges, Datum value, bool is_low, bool is_high)
{
	uint8		bytes[TREE_MAX_KEY];

	if (!value_bytes(edges->column, value, bytes))
		edges->prefix = true;
	if (is_low && memcmp(bytes, edges->low, edges->len) > 0)
		memcpy(edges->low, bytes, edges->len);
	if (is_high && memcmp(bytes, edges->high, edges->len) < 0)
		memcpy(edges->high, bytes, edges->len);
}

/* False: nothing is known of the column by this condition. */
static bool
narrow_by_condition(ScanState *so, ColumnEdges *edges, const ScanCondition *condition)
{
	ScanKey		key = condition->key;
	ScanMembers *members = condition->members;
	Datum		value;

	if (key->sk_flags & SK_ROW_HEADER)
		return false;
	if (key->sk_flags & SK_SEARCHNULL)
	{
		edges->low[0] = edges->high[0] = key_flag(edges->column, true);
		memset(edges->high + 1, 0, edges->len - 1);
		edges->prefix = false;
		return true;
	}
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return true;
	if (key->sk_flags & SK_SEARCHARRAY)
	{
		if (members == NULL || members->n == 0 ||
			members->compare != so->keys.compare[condition->column])
			return false;
		narrow(edges, members->elements[0], true, false);
		narrow(edges, members->elements[members->n - 1], false, true);
		edges->members = members;
		return true;
	}
	if (scan_fit_key(so, condition, &value) != FIT_SAME)
		return false;
	if (key->sk_strategy == BTEqualStrategyNumber)
		narrow(edges, value, true, true);
	else
	{
		bool		is_low = (key->sk_strategy >= BTGreaterEqualStrategyNumber) != edges->column->desc;

		narrow(edges, value, is_low, !is_low);
	}
	return true;
}

static bool
find_edges(ScanState *so, int column, ColumnEdges *edges)
{
	bool		found = false;

	edges->prefix = edges->column->kind == KEY_OPAQUE;
	/* a condition other than IS NULL is not true for NULL */
	edges->low[0] = edges->high[0] = KEY_FLAG_VALUE;
	memset(edges->low + 1, 0, edges->len - 1);
	memset(edges->high + 1, 0xff, edges->len - 1);
	for (int i = 0; i < so->nconditions; i++)
	{
		if (so->conditions[i].column == column &&
			narrow_by_condition(so, edges, &so->conditions[i]))
			found = true;
	}
	return found;
}

/* The bytes are made once for all ranges. */
static void
encode_members(ScanState *so, const ColumnEdges *edges)
{
	ScanMembers *members = edges->members;

	if (members->bytes == NULL)
	{
		uint8	   *bytes = MemoryContextAllocHuge(scan_array_context(so),
												   (Size) members->n * edges->len);

		for (int i = 0; i < members->n; i++)
			(void) value_bytes(edges->column, members->elements[i], bytes + (Size) i * edges->len);
		members->bytes = bytes;
	}
	so->skip.members = members->bytes;
	so->skip.nmembers = members->n;
}

/*
 * Behind a column that has one value, all of which is in its bytes, the edges of the next
 * one narrow the part further: they follow in the bytes.
 */
void
scan_set_skip(ScanState *so, int first)
{
	ScanSkip   *skip = &so->skip;

	skip->exists = false;
	skip->len = 0;
	skip->members = NULL;
	for (int column = first; column < so->keys.format.ncolumns; column++)
	{
		const KeyColumn *c = &so->keys.format.columns[column];
		ColumnEdges edges = {.column = c,.len = 1 + c->width,
		.low = skip->low + skip->len,.high = skip->high + skip->len};

		if (!find_edges(so, column, &edges))
		{
			if (skip->exists)
				break;
			continue;
		}
		if (!skip->exists)
		{
			skip->exists = true;
			skip->offset = c->offset;
			if (edges.members != NULL && edges.members->n > 1)
				encode_members(so, &edges);
		}
		skip->len += edges.len;
		if (skip->members != NULL || edges.prefix ||
			memcmp(edges.low, edges.high, edges.len) != 0)
			break;
	}
}

/* The first member that is not below these bytes, or the last one that is not above them */
static const uint8 *
nearest_member(const ScanSkip *skip, const uint8 *bytes, bool backward)
{
	int			from = 0;
	int			to = skip->nmembers;

	while (from < to)
	{
		int			middle = from + (to - from) / 2;
		int			c = memcmp(skip->members + (Size) middle * skip->len, bytes, skip->len);

		if (c < 0 || (c == 0 && backward))
			from = middle + 1;
		else
			to = middle;
	}
	if (backward)
		from--;
	return from < 0 || from == skip->nmembers ? NULL :
		skip->members + (Size) from * skip->len;
}

/*
 * The nearest bytes of the column from these on, in this direction, that may match; NULL:
 * none do.
 */
static const uint8 *
nearest_match(const ScanSkip *skip, const uint8 *bytes, bool backward)
{
	const uint8 *edge = backward ? skip->high : skip->low;
	const uint8 *result = bytes;

	if ((memcmp(bytes, edge, skip->len) < 0) != backward)
		result = edge;
	if (skip->members != NULL)
		result = nearest_member(skip, result, backward);
	if (result == NULL || memcmp(result, skip->low, skip->len) < 0 ||
		memcmp(result, skip->high, skip->len) > 0)
		return NULL;
	return result;
}

bool
scan_skip_has_no_match(const ScanState *so, const uint8 *entry)
{
	const ScanSkip *skip = &so->skip;
	const uint8 *at = entry + skip->offset;
	const uint8 *member;

	if (!skip->exists || *at == 0)
		return false;
	if (memcmp(at, skip->low, skip->len) < 0 || memcmp(at, skip->high, skip->len) > 0)
		return true;
	if (skip->members == NULL)
		return false;
	member = nearest_member(skip, at, false);
	return member == NULL || memcmp(member, at, skip->len) != 0;
}

/*
 * The place just before these bytes, 0xff behind them.  Zeroes would be the entry of row 0,
 * if there is one; and where entries with equal bytes are in the order of their tuples, no
 * place may be among them.
 */
static void
put_before(uint8 *at, const uint8 *bytes, int len)
{
	memcpy(at, bytes, len);
	/* (the flag byte is not 0) */
	for (int i = len - 1; at[i]-- == 0; i--)
		;
}

void
scan_skip_move(const ScanState *so, ScanDirection dir, uint8 *separator)
{
	const ScanSkip *skip = &so->skip;
	const KeyFormat *format = &so->keys.format;
	bool		backward = ScanDirectionIsBackward(dir);
	uint8	   *at = separator + skip->offset;
	const uint8 *match;
	const TreeTuple *no_tuple = NULL;

	if (!scan_skip_has_no_match(so, separator))
		return;
	match = nearest_match(skip, at, backward);
	/* forward: before what may match, or behind all; backward: the other way round */
	memset(at, match == NULL && backward ? 0 : 0xff,
		   format->key_len + TREE_ROW_BYTES - skip->offset);
	if (match != NULL && backward)
		memcpy(at, match, skip->len);
	else if (match != NULL)
		put_before(at, match, skip->len);
	/* it is a place now, and no entry */
	if (format->has_tuples)
		memcpy(separator + format->key_len + TREE_ROW_BYTES, &no_tuple, sizeof(no_tuple));
}
