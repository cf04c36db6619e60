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

static void
value_bytes(const KeyColumn *column, Datum value, uint8 *bytes)
{
	bytes[0] = KEY_FLAG_VALUE;
	(void) keys_encode_column(column, value, bytes + 1);
}

/* Both ends at this value (of the column's type) */
static void
narrow(ScanSkip *skip, const KeyColumn *column, Datum value, bool is_low, bool is_high)
{
	uint8		bytes[SKIP_MAX_BYTES];

	value_bytes(column, value, bytes);
	if (is_low && memcmp(bytes, skip->low, skip->len) > 0)
		memcpy(skip->low, bytes, skip->len);
	if (is_high && memcmp(bytes, skip->high, skip->len) < 0)
		memcpy(skip->high, bytes, skip->len);
}

/* The bytes are made once for all ranges. */
static void
narrow_to_members(ScanState *so, ScanSkip *skip, const KeyColumn *column, ScanMembers *members)
{
	if (members->bytes == NULL)
	{
		uint8	   *bytes = MemoryContextAllocHuge(scan_array_context(so),
												   (Size) members->n * skip->len);

		for (int i = 0; i < members->n; i++)
			value_bytes(column, members->elements[i], bytes + (Size) i * skip->len);
		members->bytes = bytes;
	}
	skip->members = members->bytes;
	skip->nmembers = members->n;
}

/* False: nothing is known of the column by this condition. */
static bool
narrow_by_condition(ScanState *so, ScanSkip *skip, const ScanCondition *condition)
{
	const KeyColumn *column = &so->keys.format.columns[condition->column];
	ScanKey		key = condition->key;
	ScanMembers *members = condition->members;
	Datum		value;

	if (key->sk_flags & SK_ROW_HEADER)
		return false;
	if (key->sk_flags & SK_SEARCHNULL)
	{
		skip->low[0] = skip->high[0] = key_flag(column, true);
		memset(skip->high + 1, 0, skip->len - 1);
		return true;
	}
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return true;
	if (key->sk_flags & SK_SEARCHARRAY)
	{
		if (members == NULL || members->n == 0 ||
			members->compare != so->keys.compare[condition->column])
			return false;
		narrow_to_members(so, skip, column, members);
		return true;
	}
	if (scan_fit_key(so, condition, &value) != FIT_SAME)
		return false;
	if (key->sk_strategy == BTEqualStrategyNumber)
		narrow(skip, column, value, true, true);
	else
	{
		bool		is_low = (key->sk_strategy >= BTGreaterEqualStrategyNumber) != column->desc;

		narrow(skip, column, value, is_low, !is_low);
	}
	return true;
}

static bool
skip_by_column(ScanState *so, int column)
{
	const KeyColumn *c = &so->keys.format.columns[column];
	ScanSkip   *skip = &so->skip;
	bool		found = false;

	skip->offset = c->offset;
	skip->len = 1 + c->width;
	skip->members = NULL;
	Assert(skip->len <= SKIP_MAX_BYTES);
	/* a condition other than IS NULL is not true for NULL */
	skip->low[0] = skip->high[0] = KEY_FLAG_VALUE;
	memset(skip->low + 1, 0, skip->len - 1);
	memset(skip->high + 1, 0xff, skip->len - 1);
	for (int i = 0; i < so->nconditions; i++)
	{
		if (so->conditions[i].column == column &&
			narrow_by_condition(so, skip, &so->conditions[i]))
			found = true;
	}
	return found;
}

void
scan_set_skip(ScanState *so, int first)
{
	so->skip.exists = false;
	for (int column = first; column < so->keys.format.ncolumns && !so->skip.exists; column++)
		so->skip.exists = skip_by_column(so, column);
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
	const uint8 *match;

	if (!skip->exists || *at == 0)
		return false;
	match = nearest_match(skip, at, false);
	return match == NULL || memcmp(match, at, skip->len) != 0;
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

	if (!skip->exists || *at == 0)
		return;
	match = nearest_match(skip, at, backward);
	if (match != NULL && memcmp(match, at, skip->len) == 0)
		return;
	/* forward: before what may match, or behind all; backward: the other way round */
	memset(at, (match == NULL) == backward ? 0 : 0xff,
		   format->key_len + TREE_ROW_BYTES - skip->offset);
	if (match != NULL)
		memcpy(at, match, skip->len);
	/* it is a place now, and no entry */
	if (format->has_tuples)
		memcpy(separator + format->key_len + TREE_ROW_BYTES, &no_tuple, sizeof(no_tuple));
}
