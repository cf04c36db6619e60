/*-------------------------------------------------------------------------
 *
 * column_read.c
 *	  Columns of whole blocks, and the roots that indexes need.
 *
 * Indexed columns are minipages (arrays within a block), so that reading one touches
 * nothing else.  Fixed-length values are delivered for free rows, too, because the
 * words that say whether a row is free lie in another line for each row; so are short
 * texts in the row, if they look like one.  Pointers are followed, and other values of
 * variable length delivered, only for rows in use: in a row that was undone after a
 * power cut, fields and what they lead to may be anything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type_d.h"
#include "sofort/store/column_read.h"
#include "sofort/store/store_internal.h"
#include "sofort/txn/visibility.h"
#include "utils/datum.h"

static bool root_is_wanted(StoreDesc *store, const RowRef *ref, uint64 horizon, uint64 before);

/* ---- columns ---- */

static void
fill_missing(const ShapePlan *plan, int att, int n, Datum *values, uint8 *state)
{
	int			i;

	for (i = 0; i < n; i++)
		values[i] = plan->missing[att];
	memset(state, plan->missing_null[att] ? STORE_VALUE_NULL : STORE_VALUE, n);
}

static void
fill_nulls(const ShapePlan *plan, const AttrPlan *a, const char *block, int n, uint8 *state)
{
	const char *p = block + plan->record_offset + plan->null_offset + a->null_byte;
	int			i;

	memset(state, STORE_VALUE, n);
	if (a->null_mask == 0)
		return;
	for (i = 0; i < n; i++, p += plan->record_stride)
		state[i] = (*(const uint8 *) p & a->null_mask) ? STORE_VALUE_NULL : STORE_VALUE;
}

/* Could bytes of rows that are not in use crash a function of the type? */
static bool
is_for_rows_in_use(StoreDesc *store, const AttrPlan *a, int att)
{
	if (a->kind != ATTR_INLINE)
		return a->kind == ATTR_POINTER;
	switch (TupleDescAttr(store->local->tupdesc, att)->atttypid)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
			return false;		/* (bytes that do not look like one are left out) */
		default:
			return true;
	}
}

/* Marks rows that are free, or were undone, as having no value that could be looked at. */
static void
drop_unused_rows(const ShapePlan *plan, const char *block, int n, uint8 *state)
{
	const char *p = block + plan->record_offset;
	int			i;

	for (i = 0; i < n; i++, p += plan->record_stride)
		if (!begin_is_of_version(word_read(&((const RowWords *) p)->begin)))
			state[i] = STORE_NO_ROW;
}

/* Can this be a value?  A row that was never filled may hold anything. */
static inline bool
is_inline_value(const char *p, int width)
{
	return VARATT_IS_1B(p) && !VARATT_IS_1B_E(p) && VARSIZE_1B(p) <= width;
}

#define FILL(type, expression) \
	for (i = 0; i < n; i++, p += stride) \
	{ \
		type		v = *(const type *) p; \
\
		values[i] = (expression); \
	}

/* True: of some rows there are codes that the dictionary does not have. */
static bool
fill_codes(const AttrPlan *a, const ShapeAttr *attr, const char *p, int n, Datum *values,
		   uint8 *state)
{
	uint64		count = pm_vector_count(&a->dictionary->values);
	bool		strange = false;
	int			i;

	for (i = 0; i < n; i++, p += a->stride)
	{
		uint32		code = code_get(p, attr->width);
		const char *element;
		PMPtr		reference;

		if (code >= count)
		{
			/* a NULL, or a free row */
			if (state[i] == STORE_VALUE)
			{
				state[i] = STORE_NO_ROW;
				strange = true;
			}
			continue;
		}
		element = code_element(a, code);
		if (attr->byval)
			values[i] = fetch_att(element, true, attr->attlen);
		else if (attr->attlen > 0)
			values[i] = PointerGetDatum(element);
		else if ((reference = *(const volatile PMPtr *) element) != PM_NULL)
			values[i] = PointerGetDatum(value_deref(attr->attlen, reference));
		else if (state[i] == STORE_VALUE)
			state[i] = STORE_NO_ROW;	/* only values that belong to dead rows alone are freed */
	}
	return strange;
}

static bool
fill_inline(const AttrPlan *a, const ShapeAttr *attr, const char *p, int n, Datum *values,
			uint8 *state)
{
	bool		strange = false;
	int			i;

	for (i = 0; i < n; i++, p += a->stride)
	{
		values[i] = PointerGetDatum(p);
		if (!is_inline_value(p, attr->width) && state[i] == STORE_VALUE)
		{
			state[i] = STORE_NO_ROW;
			strange = true;
		}
	}
	return strange;
}

/* True: some versions have no value any more (VACUUM has freed it), or a damaged field. */
static bool
fill_references(const AttrPlan *a, const char *p, int n, Datum *values, uint8 *state)
{
	bool		strange = false;
	int			i;

	for (i = 0; i < n; i++, p += a->stride)
	{
		PMPtr		reference = *(const volatile PMPtr *) p;

		if (state[i] != STORE_VALUE)
			continue;
		if (reference != PM_NULL)
			values[i] = PointerGetDatum(attr_deref(a, reference));
		else
		{
			state[i] = STORE_NO_ROW;
			strange = true;
		}
	}
	return strange;
}

/* True: some rows that were not known to be free have what is no value. */
static bool
fill_values(const AttrPlan *a, const ShapeAttr *attr, const char *p, int n, Datum *values,
			uint8 *state)
{
	uint32		stride = a->stride;
	int			i;

	switch ((AttrKind) a->kind)
	{
		case ATTR_BYVAL1:
			FILL(char, CharGetDatum(v));
			break;
		case ATTR_BYVAL2:
			FILL(int16, Int16GetDatum(v));
			break;
		case ATTR_BYVAL4:
			FILL(int32, Int32GetDatum(v));
			break;
		case ATTR_BYVAL8:
			FILL(Datum, v);
			break;
		case ATTR_NARROW:
			FILL(uint32, (Datum) v);
			break;
		case ATTR_IN_PLACE:
			for (i = 0; i < n; i++, p += stride)
				values[i] = PointerGetDatum(p);
			break;
		case ATTR_INLINE:
			return fill_inline(a, attr, p, n, values, state);
		case ATTR_POINTER:
			return fill_references(a, p, n, values, state);
		case ATTR_CODE1_2:
		case ATTR_CODE1_4:
		case ATTR_CODE:
			return fill_codes(a, attr, p, n, values, state);
		case ATTR_MISSING:
			break;
	}
	return false;
}

/* What is wrong with a field that is not NULL, or NULL */
static const char *
field_problem(const AttrPlan *a, const ShapeAttr *attr, const char *p)
{
	switch ((AttrKind) a->kind)
	{
		case ATTR_INLINE:
			return is_inline_value(p, attr->width) ? NULL : "a value is longer than its field";
		case ATTR_POINTER:
			return *(const PMPtr *) p != PM_NULL ? NULL : "a row has lost a value";
		default:
			return code_get(p, attr->width) < pm_vector_count(&a->dictionary->values) ? NULL :
				"a row has a code that its dictionary does not have";
	}
}

/*
 * A version without a value, or whose code the dictionary does not have, or whose short text
 * is none: its index entry would not be found.  Free rows, and those that were undone, may
 * have anything.
 */
static void
refuse_damaged(StoreDesc *store, BlockHeader *block, BlockNumber number, const ShapePlan *plan,
			   int att, const uint8 *state)
{
	const AttrPlan *a = &plan->plan[att];
	const ShapeAttr *attr = &plan->reader->attr[att];
	RowRef		ref = {.block = block,.row = (uint64) number * SOFORT_BLOCK_ROWS};

	for (ref.index = 0; ref.index < block->capacity; ref.index++, ref.row++)
	{
		const char *p = (const char *) block + a->offset + (Size) ref.index * a->stride;
		const char *problem;

		if (state[ref.index] != STORE_NO_ROW)
			continue;
		ref.words = plan_words(plan, block, ref.index);
		if (!begin_is_of_version(word_read(&ref.words->begin)))
			continue;
		/* it may have been written since; now its fields do not change any more */
		pg_read_barrier();
		if (attr_is_null(plan, a, &ref) || (problem = field_problem(a, attr, p)) == NULL)
			continue;
		/*
		 * A chain without its root's value that had ended when CREATE INDEX CONCURRENTLY
		 * made the index has no entry, and no mark, however old the horizon is.
		 */
		if (root_is_wanted(store, &ref, a->kind == ATTR_POINTER ? PG_UINT64_MAX :
						   store_cached_horizon(true), PG_UINT64_MAX))
			pm_damaged(problem);
	}
}

int
store_read_column(StoreDesc *store, BlockNumber number, int att, Datum *values, uint8 *state)
{
	BlockHeader *block = block_get(store->header, number);
	const ShapePlan *plan;
	const AttrPlan *a;
	int			n;

	if (block == NULL)
		return 0;
	n = block->capacity;
	plan = plan_get(store, block->shape);
	a = &plan->plan[att];
	if (a->kind == ATTR_MISSING)
	{
		fill_missing(plan, att, n, values, state);
		return n;
	}
	fill_nulls(plan, a, (const char *) block, n, state);
	if (is_for_rows_in_use(store, a, att))
		drop_unused_rows(plan, (const char *) block, n, state);
	if (unlikely(fill_values(a, &plan->reader->attr[att], (const char *) block + a->offset, n, values,
							 state)))
		refuse_damaged(store, block, number, plan, att, state);
	return n;
}

/* ---- roots ---- */

static bool
is_below(const uint64 *where, uint64 word, uint64 before)
{
	int			tries;

	for (tries = 0; tries < 100000; tries++)
	{
		TransactionId xid;

		if (WORD_TAG(word) == WORD_TAG_STAMP)
			return WORD_XID(word) < before;
		if (WORD_TAG(word) != WORD_TAG_PROGRESS)
			return false;
		xid = txn_word_xid(word);
		if (TransactionIdIsValid(xid))
			return txn_widen(xid) < before;
		/* it ended a moment ago */
		word = word_read(where);
	}
	return true;				/* whoever reads the row will raise the error */
}

static inline bool
ended_before(const RowWords *words, uint64 horizon)
{
	uint64		end = word_read(&words->end);

	return WORD_TAG(end) == WORD_TAG_STAMP && WORD_XID(end) < horizon &&
		WORD_TAG(word_read(&words->begin)) == WORD_TAG_STAMP;
}

static bool
root_is_wanted(StoreDesc *store, const RowRef *ref, uint64 horizon, uint64 before)
{
	uint64		begin = word_read(&ref->words->begin);
	bool		wanted = true;
	RowRef		newest;

	if (!begin_is_of_version(begin) || (begin & BEGIN_HEAP_ONLY) != 0 ||
		!is_below(&ref->words->begin, begin, before))
		return false;
	if (unlikely(ended_before(ref->words, horizon)))
	{
		/* a chain with a dead root is dead when its newest version is */
		if (!store_chain_newest(store, ref, &newest) || newest.row == ref->row)
			wanted = LINK_IS_SET(link_read(ref->block, ref->index));
		else
			wanted = !ended_before(newest.words, horizon);
	}
	/* if it was freed meanwhile its entries are gone, and nobody would remove a new one */
	return wanted && begin_is_of_version(word_read(&ref->words->begin));
}

int
store_wanted_roots(StoreDesc *store, BlockNumber number, uint64 horizon, uint64 before,
				   uint8 *index)
{
	BlockHeader *block = block_get(store->header, number);
	const ShapePlan *plan;
	RowRef		ref;
	int			n = 0;

	if (block == NULL)
		return 0;
	plan = plan_get(store, block->shape);
	ref.block = block;
	ref.row = (uint64) number * SOFORT_BLOCK_ROWS;
	for (ref.index = 0; ref.index < block->capacity; ref.index++, ref.row++)
	{
		ref.words = plan_words(plan, block, ref.index);
		if (root_is_wanted(store, &ref, horizon, before))
			index[n++] = (uint8) ref.index;
	}
	return n;
}

bool
store_root_is_wanted(StoreDesc *store, uint64 row, uint64 horizon, uint64 before)
{
	RowRef		ref;

	return store_locate(store, row, &ref) && root_is_wanted(store, &ref, horizon, before);
}

/* ---- chains whose root differs ---- */

bool
store_chains_differ(StoreDesc *store)
{
	return (store_flags(store->header) & STORE_CHAINS_DIFFER) != 0;
}

/*
 * Durable on return, even if another process has set it: that one drains before it releases
 * the lock.
 */
void
store_set_chains_differ(StoreDesc *store)
{
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	if (!store_chains_differ(store))
		store_set_flags(store->header, store_flags(store->header) | STORE_CHAINS_DIFFER);
	LWLockRelease(structure_lock(store->id));
}

bool
store_values_freed(StoreDesc *store)
{
	return store->shared->values_freed;
}

/* Has VACUUM freed the value that a dead root had in this column? */
static bool
value_is_gone(StoreDesc *store, const RowRef *ref, int att)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);
	const AttrPlan *a = &plan->plan[att];

	return a->kind == ATTR_POINTER && !attr_is_null(plan, a, ref) &&
		*(const PMPtr *) ((const char *) ref->block + a->offset + (Size) ref->index * a->stride) == PM_NULL;
}

/*
 * Has VACUUM freed values of this version, which has ended?  Then it was dead to all, even
 * if the horizon has gone back since (a standby's feedback).
 */
bool
store_values_are_gone(StoreDesc *store, const RowRef *ref)
{
	if ((word_read(&ref->words->begin) & BEGIN_HEAP_ONLY) != 0 ||
		!LINK_IS_SET(link_read(ref->block, ref->index)))
		return false;
	for (int i = 0; i < store->local->natts; i++)
		if (value_is_gone(store, ref, i))
			return true;
	return false;
}

/*
 * In a table whose chains do not differ an index may still be younger than the end of a
 * whole chain, and has no entry of it.
 */
static bool
root_has_all(StoreDesc *store, const RowRef *root, const int *atts, int natts)
{
	for (int i = 0; i < natts; i++)
		if (value_is_gone(store, root, atts[i]))
			return false;
	return true;
}

void
store_chain_values(StoreDesc *store, uint64 root, const int *atts, int natts, Datum *values,
				   bool *isnull)
{
	RowRef		top;
	RowRef		at;
	int			i;

	if (!store_locate(store, root, &top))
		elog(ERROR, "sofort store " UINT64_FORMAT ": row " UINT64_FORMAT " has no storage",
			 store->id, root);
	at = top;
	if ((store_chains_differ(store) || unlikely(!root_has_all(store, &top, atts, natts))) &&
		store_chain_newest(store, &top, &at))
	{
		while (at.row != root && WORD_TAG(word_read(&at.words->begin)) == WORD_TAG_ABORTED)
			if (!store_chain_older(store, &at, &at))
				at = top;
	}
	for (i = 0; i < natts; i++)
		store_decode_one(store, &at, atts[i], &values[i], &isnull[i]);
}

/*
 * May the value that a version has in this column change, or is it gone?  What a dead root
 * had may be freed while no index refers to the column; its code may get another value.
 */
static bool
value_may_go(StoreDesc *store, const RowRef *ref, int att)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);
	const AttrPlan *a = &plan->plan[att];
	const char *p = (const char *) ref->block + a->offset + (Size) ref->index * a->stride;

	if (value_is_gone(store, ref, att))
		return true;
	if ((a->kind != ATTR_CODE && a->kind != ATTR_CODE1_2 && a->kind != ATTR_CODE1_4) ||
		attr_is_null(plan, a, ref))
		return false;
	return dictionary_value_may_go(store->shared, a->dictionary,
								   code_get(p, plan->reader->attr[att].width));
}

bool
store_root_differs(StoreDesc *store, uint64 root, const RowRef *version, const int *atts,
				   int natts)
{
	RowRef		top;
	int			i;

	if (version->row == root || !store_locate(store, root, &top))
		return false;
	for (i = 0; i < natts; i++)
	{
		Datum		a;
		Datum		b;
		bool		a_null;
		bool		b_null;
		Form_pg_attribute att = TupleDescAttr(store->local->tupdesc, atts[i]);

		if (value_may_go(store, &top, atts[i]))
			return true;
		store_decode_one(store, &top, atts[i], &a, &a_null);
		store_decode_one(store, version, atts[i], &b, &b_null);
		if (a_null != b_null ||
			(!a_null && !datum_image_eq(a, b, att->attbyval, att->attlen)))
			return true;
	}
	return false;
}
