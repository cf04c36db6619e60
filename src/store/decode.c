/*-------------------------------------------------------------------------
 *
 * decode.c
 *	  Values of a row.  Hot: every read goes through here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/tupmacs.h"
#include "sofort/store/store_internal.h"

/*
 * The value of a dictionary element.  Only versions that are dead to all can have the code
 * of a freed value.
 */
static inline Datum
element_value(const char *element, int16 attlen, bool byval)
{
	PMPtr		p;

	if (byval)
		return fetch_att(element, true, attlen);
	if (attlen > 0)
		return PointerGetDatum(element);
	p = word_read((const uint64 *) element);
	if (unlikely(p == PM_NULL))
		return PointerGetDatum(attlen == -1 ? "\003" : "");
	return PointerGetDatum(value_deref(attlen, p));
}

/*
 * Raises an error unless this is a varlena with a 4-byte header whose length is possible
 * and within its allocation.  Its other pages are probably read next.
 */
void
value_check_long(PMPtr p)
{
	const char *v = pm_deref(p);

	if (VARATT_IS_1B(v) || VARSIZE_4B(v) < VARHDRSZ || pm_allocated_size(p) < VARSIZE_4B(v))
		pm_damaged("a value is no value of its type, or longer than its allocation");
	pm_read_ahead(v, VARSIZE_4B(v));
}

static Datum
decode_code(const AttrPlan *a, const ShapeAttr *attr, const char *p)
{
	uint32		code = code_get(p, attr->width);
	const char *element;

	if (likely(code < a->chunk0))
		element = a->values + (Size) code * a->dictionary->values.elem_size;
	else
	{
		element = pm_vector_get(&a->dictionary->values, code);
		if (unlikely(element == NULL))
			pm_damaged("a row has a code that its dictionary does not have");
	}
	return element_value(element, attr->attlen, attr->byval);
}

static inline Datum
decode_one(const ShapePlan *plan, int i, const RowRef *ref, bool *isnull)
{
	const AttrPlan *a = &plan->plan[i];
	const char *p;

	if (unlikely(a->kind == ATTR_MISSING))
	{
		*isnull = plan->missing_null[i];
		return plan->missing[i];
	}
	if (attr_is_null(plan, a, ref))
	{
		*isnull = true;
		return (Datum) 0;
	}
	*isnull = false;
	p = (const char *) ref->block + a->offset + (Size) ref->index * a->stride;
	switch ((AttrKind) a->kind)
	{
		case ATTR_CODE1_4:
			return Int32GetDatum(((const int32 *) a->values)[*(const uint8 *) p]);
		case ATTR_CODE1_2:
			return Int16GetDatum(((const int16 *) a->values)[*(const uint8 *) p]);
		case ATTR_BYVAL4:
			return Int32GetDatum(*(const int32 *) p);
		case ATTR_IN_PLACE:
			return PointerGetDatum(p);
		case ATTR_INLINE:
			if (unlikely(!VARATT_IS_1B(p) || VARATT_IS_1B_E(p) || VARSIZE_1B(p) > a->chunk0))
				pm_damaged("a value is longer than its field");
			return PointerGetDatum(p);
		case ATTR_BYVAL8:
			return *(const Datum *) p;
		case ATTR_BYVAL2:
			return Int16GetDatum(*(const int16 *) p);
		case ATTR_BYVAL1:
			return CharGetDatum(*p);
		case ATTR_NARROW:
			return (Datum) *(const uint32 *) p;
		case ATTR_POINTER:
			pm_read_miss(1);
			return PointerGetDatum(attr_deref(a, *(const PMPtr *) p));
		case ATTR_CODE:
			return decode_code(a, &plan->reader->attr[i], p);
		case ATTR_MISSING:
			break;
	}
	pg_unreachable();
}

void
store_decode(StoreDesc *store, const RowRef *ref, int from, int natts, Datum *values,
			 bool *isnull)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);
	const char *block = (const char *) ref->block;
	int			i;

	Assert(natts <= plan->natts);
	for (i = 0; i < plan->nminipages; i++)
		__builtin_prefetch(block + plan->mini_offset[i] +
						   (Size) ref->index * plan->mini_stride[i]);
	for (i = from; i < natts; i++)
		values[i] = decode_one(plan, i, ref, &isnull[i]);
}

void
store_decode_one(StoreDesc *store, const RowRef *ref, int att, Datum *value, bool *isnull)
{
	*value = decode_one(plan_get(store, ref->block->shape), att, ref, isnull);
}

void
store_decode_needed(StoreDesc *store, const RowRef *ref, int from, int natts, const bool *needed,
					Datum *values, bool *isnull)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);
	int			i;

	Assert(natts <= plan->natts);
	for (i = from; i < natts; i++)
	{
		if (needed[i])
			values[i] = decode_one(plan, i, ref, &isnull[i]);
		else
		{
			values[i] = (Datum) 0;
			isnull[i] = true;
		}
	}
}

void
store_decode_some(StoreDesc *store, const RowRef *ref, Bitmapset *attrs, Datum *values,
				  bool *isnull)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);
	int			i;
	int			x = -1;

	for (i = 0; i < plan->natts; i++)
	{
		values[i] = (Datum) 0;
		isnull[i] = true;
	}
	while ((x = bms_next_member(attrs, x)) >= 0)
	{
		i = x + FirstLowInvalidHeapAttributeNumber - 1;
		if (i < 0 || i >= plan->natts)
			continue;
		values[i] = decode_one(plan, i, ref, &isnull[i]);
	}
}
