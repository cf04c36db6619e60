/*-------------------------------------------------------------------------
 *
 * scan_keys.c
 *	  Scan keys: arrays, and checking entries against conditions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "lib/qunique.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "scan_internal.h"

/*
 * So many combinations of array elements have a range each, whatever the index; and one
 * for so many entries: finding a range takes as long as checking some entries.
 */
#define MANY_RANGES			1024
#define ENTRIES_OF_RANGE	4

typedef struct ElementOrder
{
	FmgrInfo	compare;
	Oid			collation;
	bool		reverse;
} ElementOrder;

static int
compare_elements(const void *a, const void *b, void *arg)
{
	ElementOrder *order = arg;
	int			c = DatumGetInt32(FunctionCall2Coll(&order->compare, order->collation,
													*(const Datum *) a, *(const Datum *) b));

	if (order->reverse)
		INVERT_COMPARE_RESULT(c);
	return c;
}

/* Order of the elements among themselves, as the index column has it */
static void
element_order(ScanState *so, const ScanCondition *condition, Oid element_type,
			  ElementOrder *order)
{
	Relation	index = so->keys.index;
	Oid			opcintype = index->rd_opcintype[condition->column];
	Oid			proc;

	order->collation = condition->key->sk_collation;
	order->reverse = so->keys.format.columns[condition->column].desc;
	if (!OidIsValid(element_type))
		element_type = opcintype;
	if (element_type == opcintype)
	{
		fmgr_info_copy(&order->compare, so->keys.compare[condition->column],
					   CurrentMemoryContext);
		return;
	}
	proc = get_opfamily_proc(index->rd_opfamily[condition->column], element_type, element_type,
							 BTORDER_PROC);
	if (!OidIsValid(proc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("operator family %u of index \"%s\" cannot compare values of type %s",
						index->rd_opfamily[condition->column], RelationGetRelationName(index),
						format_type_be(element_type))));
	fmgr_info(proc, &order->compare);
}

/* col < ANY (array) is col < the largest element, and so on. */
static void
reduce_inequality(ScanCondition *condition, const Datum *elements, int n, bool descending)
{
	bool		want_last;

	want_last = condition->key->sk_strategy <= BTLessEqualStrategyNumber;
	if (descending)
		want_last = !want_last;
	condition->key->sk_argument = elements[want_last ? n - 1 : 0];
}

static bool
is_equality(ScanState *so, const ScanCondition *condition)
{
	ScanKey		key = condition->key;

	if (key->sk_flags & SK_SEARCHNULL)
		return true;
	return (key->sk_flags & (SK_ROW_HEADER | SK_SEARCHARRAY | SK_SEARCHNOTNULL | SK_ISNULL)) == 0 &&
		key->sk_strategy == BTEqualStrategyNumber &&
		key->sk_collation == so->keys.format.columns[condition->column].collation;
}

/*
 * Do all columns before that of the condition have one value in each range (which may be an
 * element of an array that comes before)?  Only then do the ranges of one element after the
 * other come in index order, which the planner relies on since 17.
 */
static bool
follows_equality(ScanState *so, int number)
{
	int			next = 0;		/* first column that may have several */
	int			i;

	for (i = 0; i < number; i++)
		if (so->conditions[i].column == next && is_equality(so, &so->conditions[i]))
			next++;
	return next >= so->conditions[number].column;
}

/*
 * Does another condition give the column one value, or one after the other?  Then there
 * would be a range for each pair of elements, or the same range again and again.
 */
static bool
has_other_equality(ScanState *so, int number)
{
	int			i;

	for (i = 0; i < so->nconditions; i++)
		if (i != number && so->conditions[i].column == so->conditions[number].column &&
			is_equality(so, &so->conditions[i]))
			return true;
	return false;
}

static void
set_members(ScanState *so, ScanCondition *condition, Datum *elements, int n, Oid type,
			bool reverse)
{
	Relation	index = so->keys.index;
	ScanMembers *members = palloc0(sizeof(ScanMembers));

	members->n = n;
	members->elements = elements;
	members->reverse = reverse;
	if (condition->key->sk_collation == so->keys.format.columns[condition->column].collation)
	{
		if (!OidIsValid(type) || type == index->rd_opcintype[condition->column])
			members->compare = so->keys.compare[condition->column];
		else if (scan_cross_compare(index, condition->column, type, &members->cross,
									CurrentMemoryContext))
			members->compare = &members->cross;
	}
	condition->members = members;
	condition->key->sk_flags |= SK_SEARCHARRAY;
}

/* False: the array has no element that is not NULL. */
static bool
prepare_array(ScanState *so, int number)
{
	ScanCondition *condition = &so->conditions[number];
	ArrayType  *array = DatumGetArrayTypeP(condition->key->sk_argument);
	Oid			type = ARR_ELEMTYPE(array);
	Oid			declared = condition->key->sk_subtype;
	ElementOrder order;
	ScanArray  *result;
	int16		len;
	bool		byval;
	char		align;
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	int			kept = 0;
	int			i;

	get_typlenbyvalalign(type, &len, &byval, &align);
	deconstruct_array(array, type, len, byval, align, &elements, &nulls, &n);
	for (i = 0; i < n; i++)
		if (!nulls[i])
			elements[kept++] = elements[i];
	if (kept == 0)
		return false;

	element_order(so, condition, declared, &order);
	qsort_arg(elements, kept, sizeof(Datum), compare_elements, &order);
	condition->key->sk_flags &= ~SK_SEARCHARRAY;
	if (condition->key->sk_strategy != BTEqualStrategyNumber)
	{
		reduce_inequality(condition, elements, kept, order.reverse);
		return true;
	}
	n = (int) qunique_arg(elements, kept, sizeof(Datum), compare_elements, &order);
	if (!follows_equality(so, number) || has_other_equality(so, number))
	{
		set_members(so, condition, elements, n, declared, order.reverse);
		return true;
	}
	result = &so->arrays[so->narrays++];
	result->condition = number;
	result->elements = elements;
	result->n = n;
	result->current = 0;
	condition->key->sk_argument = elements[0];
	return true;
}

/* Where array elements and comparison functions live; reset by rescan */
MemoryContext
scan_array_context(ScanState *so)
{
	if (so->array_context == NULL)
		so->array_context = AllocSetContextCreate(so->context, "sofort scan arrays",
												  ALLOCSET_SMALL_SIZES);
	return so->array_context;
}

static bool
set_array_key(ScanState *so, int number)
{
	MemoryContext old = MemoryContextSwitchTo(scan_array_context(so));
	bool		possible = prepare_array(so, number);

	MemoryContextSwitchTo(old);
	return possible;
}

/* As many of the first arrays as have few enough combinations; at least one */
static int
arrays_with_ranges(ScanState *so)
{
	uint64		entries = so->keys.tree != NULL ? tree_entries(so->keys.tree) : 0;
	uint64		limit = Max(MANY_RANGES, entries / ENTRIES_OF_RANGE);
	uint64		ranges = so->arrays[0].n;
	int			i;

	for (i = 1; i < so->narrays; i++)
	{
		if (ranges > limit / so->arrays[i].n)
			break;
		ranges *= so->arrays[i].n;
	}
	return i;
}

/*
 * Of several arrays, those that would make far more ranges than there are entries are
 * checked row by row.  They are the last ones, so that rows still come in index order.
 * Before the first range is read: all processes of a parallel scan must agree.
 */
void
scan_choose_ranges(ScanState *so)
{
	MemoryContext old;
	int			n;
	int			i;

	so->ranges_chosen = true;
	if (so->narrays < 2)
		return;
	n = arrays_with_ranges(so);
	if (so->parallel != NULL)
		n = parallel_agree(so, n);
	old = MemoryContextSwitchTo(scan_array_context(so));
	for (i = n; i < so->narrays; i++)
	{
		ScanArray  *array = &so->arrays[i];
		ScanCondition *condition = &so->conditions[array->condition];

		set_members(so, condition, array->elements, array->n, condition->key->sk_subtype,
					so->keys.format.columns[condition->column].desc);
	}
	MemoryContextSwitchTo(old);
	so->narrays = n;
}

/* Copies scan->keyData, because arrays change the conditions. */
void
scan_set_keys(IndexScanDesc scan, ScanState *so)
{
	int			i;

	if (so->array_context != NULL)
		MemoryContextReset(so->array_context);
	so->nconditions = scan->numberOfKeys;
	so->narrays = 0;
	so->ranges_chosen = false;
	so->never = false;
	for (i = 0; i < so->nconditions; i++)
	{
		ScanKey		key = &so->key_copies[i];
		ScanCondition *condition = &so->conditions[i];

		*key = scan->keyData[i];
		condition->key = key;
		condition->column = key->sk_attno - 1;
		if ((key->sk_flags & SK_ISNULL) &&
			!(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)))
			so->never = true;	/* operators of an index are strict */
	}
	for (i = 0; i < so->nconditions; i++)
		if ((so->key_copies[i].sk_flags & SK_SEARCHARRAY) &&
			!(so->key_copies[i].sk_flags & SK_ISNULL) && !set_array_key(so, i))
			so->never = true;
}

/* ---- array elements ---- */

static void
set_element(ScanState *so, ScanArray *array, int element)
{
	array->current = element;
	so->conditions[array->condition].key->sk_argument = array->elements[element];
	so->bounds_valid = false;
}

void
scan_first_elements(ScanState *so, ScanDirection dir)
{
	int			i;

	for (i = 0; i < so->narrays; i++)
		set_element(so, &so->arrays[i],
					ScanDirectionIsBackward(dir) ? so->arrays[i].n - 1 : 0);
}

/* The last array varies fastest, so combinations come in index order. */
bool
scan_next_elements(ScanState *so, ScanDirection dir)
{
	int			i;

	for (i = so->narrays - 1; i >= 0; i--)
	{
		ScanArray  *array = &so->arrays[i];
		int			next = array->current + (ScanDirectionIsBackward(dir) ? -1 : 1);

		if (next >= 0 && next < array->n)
		{
			set_element(so, array, next);
			return true;
		}
		set_element(so, array, ScanDirectionIsBackward(dir) ? array->n - 1 : 0);
	}
	return false;
}

/* ---- checking ---- */

/* (a, b, ...) op (x, y, ...): decided by the first pair that differs */
static bool
row_matches(ScanState *so, const uint8 *entry, ScanKey header)
{
	ScanKey		member = (ScanKey) DatumGetPointer(header->sk_argument);
	int			c;

	for (;; member++)
	{
		bool		isnull;
		Datum		value = keys_entry_column(&so->keys, entry, member->sk_attno - 1, &isnull);

		if (isnull || (member->sk_flags & SK_ISNULL))
			return false;
		/* sk_func of a member is the comparison function */
		c = DatumGetInt32(FunctionCall2Coll(&member->sk_func, member->sk_collation, value,
											member->sk_argument));
		if (c != 0 || (member->sk_flags & SK_ROW_END))
			break;
	}
	switch (member->sk_strategy)
	{
		case BTLessStrategyNumber:
			return c < 0;
		case BTLessEqualStrategyNumber:
			return c <= 0;
		case BTGreaterEqualStrategyNumber:
			return c >= 0;
		case BTGreaterStrategyNumber:
			return c > 0;
	}
	return c == 0;
}

static bool
is_member(const ScanCondition *condition, Datum value)
{
	const ScanMembers *members = condition->members;
	ScanKey		key = condition->key;
	int			from = 0;
	int			to = members->n;
	int			i;

	while (members->compare != NULL && from < to)
	{
		int			middle = (from + to) / 2;
		int			c = DatumGetInt32(FunctionCall2Coll(members->compare, key->sk_collation, value,
														members->elements[middle]));

		if (c == 0)
			return true;
		if ((c > 0) != members->reverse)
			from = middle + 1;
		else
			to = middle;
	}
	if (members->compare != NULL)
		return false;
	for (i = 0; i < members->n; i++)
		if (DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value,
										   members->elements[i])))
			return true;
	return false;
}

static bool
condition_holds(ScanState *so, const uint8 *entry, const ScanCondition *condition)
{
	ScanKey		key = condition->key;
	bool		isnull;
	Datum		value;

	if (key->sk_flags & SK_ROW_HEADER)
		return row_matches(so, entry, key);
	value = keys_entry_column(&so->keys, entry, condition->column, &isnull);
	if (key->sk_flags & SK_SEARCHNULL)
		return isnull;
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return !isnull;
	if (isnull)
		return false;
	if (key->sk_flags & SK_SEARCHARRAY)
		return is_member(condition, value);
	return DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value,
										  key->sk_argument));
}

MemoryContext
scan_row_context(ScanState *so)
{
	if (so->row_context == NULL)
		so->row_context = AllocSetContextCreate(so->context, "sofort scan row",
												ALLOCSET_SMALL_SIZES);
	return so->row_context;
}

bool
scan_entry_matches(ScanState *so, const uint8 *entry)
{
	MemoryContext old = MemoryContextSwitchTo(scan_row_context(so));
	bool		matches = true;
	int			i;

	MemoryContextReset(so->row_context);
	for (i = 0; i < so->nconditions && matches; i++)
		if (so->conditions[i].filter)
			matches = condition_holds(so, entry, &so->conditions[i]);
	MemoryContextSwitchTo(old);
	return matches;
}
