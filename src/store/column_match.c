/*-------------------------------------------------------------------------
 *
 * column_match.c
 *	  Which rows of a block may have a value within a range.
 *
 * For look-ups without an index.  The column is compared as it lies in the block:
 * integers with integers, codes with the codes whose dictionary values are in the
 * range, short texts as images.  Loops are over whole blocks and without branches, so
 * that the compiler makes vector instructions of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/column_read.h"
#include "sofort/store/store_internal.h"

/* Dictionaries with more values are not searched for one look-up. */
#define MOST_CODES		65536

/* The trip count is a constant in almost all blocks. */
#define EACH_MATCH(n, body) \
	do { \
		if ((n) == SOFORT_BLOCK_ROWS) \
			for (i = 0; i < SOFORT_BLOCK_ROWS; i++) \
			{ \
				body; \
			} \
		else \
			for (i = 0; i < (n); i++) \
			{ \
				body; \
			} \
	} while (0)

#define MATCH_RANGE(name, type, wide) \
static void \
name(const void *column, int n, wide low, wide high, uint8 *pg_restrict match) \
{ \
	const type *pg_restrict v = column; \
	int			i; \
\
	EACH_MATCH(n, match[i] &= (v[i] >= low) & (v[i] <= high)); \
}

MATCH_RANGE(match_int16, int16, int16)
MATCH_RANGE(match_int32, int32, int32)
MATCH_RANGE(match_int64, int64, int64)
MATCH_RANGE(match_uint32, uint32, uint32)
MATCH_RANGE(match_code1, uint8, uint8)
MATCH_RANGE(match_code2, uint16, uint16)

/* Limits as the type has them; false: no value of it is in the range */
static bool
narrow_range(int64 min, int64 max, int64 *low, int64 *high)
{
	*low = Max(*low, min);
	*high = Min(*high, max);
	return *low <= *high;
}

/* ---- dictionaries ---- */

/* Integers, and their codes lie beside each other, in one or two bytes */
static inline bool
are_short_codes(const AttrPlan *a, const ShapeAttr *attr)
{
	return attr->byval && attr->attlen >= 2 && a->stride <= 2 && a->stride == attr->width;
}

static int64
element_value(const char *element, int len)
{
	switch (len)
	{
		case 2:
			return *(const int16 *) element;
		case 4:
			return *(const int32 *) element;
		default:
			return *(const int64 *) element;
	}
}

/* ---- smallest and largest ---- */

#define EXTREMES(name, type) \
static void \
name(const void *column, int n, int64 *min, int64 *max) \
{ \
	const type *v = column; \
	type		low = v[0]; \
	type		high = v[0]; \
	int			i; \
\
	EACH_MATCH(n, low = Min(low, v[i]); high = Max(high, v[i])); \
	*min = (int64) low; \
	*max = (int64) high; \
}

EXTREMES(extremes_int16, int16)
EXTREMES(extremes_int32, int32)
EXTREMES(extremes_int64, int64)
EXTREMES(extremes_uint32, uint32)
EXTREMES(extremes_code1, uint8)
EXTREMES(extremes_code2, uint16)

/* Rows that were never filled may have any code, and count if it is one. */
static int
extremes_of_codes(const AttrPlan *a, const ShapeAttr *attr, const char *p, int n, int64 *min,
				  int64 *max)
{
	int64		ncodes = (int64) pm_vector_count(&a->dictionary->values);
	int64		first;
	int64		last;
	int			i;

	if (!are_short_codes(a, attr))
		return -1;
	if (a->stride == 1)
		extremes_code1(p, n, &first, &last);
	else
		extremes_code2(p, n, &first, &last);
	if (first >= ncodes)
		return 0;
	*min = *max = element_value(code_element(a, first), attr->attlen);
	for (i = 0; first < last && i < n; i++)
	{
		int64		code = a->stride == 1 ? ((const uint8 *) p)[i] : ((const uint16 *) p)[i];
		int64		v;

		if (code >= ncodes)
			continue;
		v = element_value(code_element(a, code), attr->attlen);
		*min = Min(*min, v);
		*max = Max(*max, v);
	}
	return n;
}

int
store_column_extremes(StoreDesc *store, BlockNumber number, int att, int64 *min, int64 *max)
{
	BlockHeader *block = block_get(store->header, number);
	const ShapePlan *plan;
	const AttrPlan *a;
	const char *p;

	if (block == NULL)
		return 0;
	plan = plan_get(store, block->shape);
	a = &plan->plan[att];
	if (a->kind == ATTR_MISSING || a->null_mask != 0)
		return -1;
	p = (const char *) block + a->offset;
	if (a->kind == ATTR_BYVAL2 && a->stride == sizeof(int16))
		extremes_int16(p, block->capacity, min, max);
	else if (a->kind == ATTR_BYVAL4 && a->stride == sizeof(int32))
		extremes_int32(p, block->capacity, min, max);
	else if (a->kind == ATTR_BYVAL8 && a->stride == sizeof(int64))
		extremes_int64(p, block->capacity, min, max);
	else if (a->kind == ATTR_NARROW && a->stride == sizeof(uint32))
		extremes_uint32(p, block->capacity, min, max);
	else if (a->kind == ATTR_CODE1_2 || a->kind == ATTR_CODE1_4 || a->kind == ATTR_CODE)
		return extremes_of_codes(a, &plan->reader->attr[att], p, block->capacity, min, max);
	else
		return -1;
	return block->capacity;
}

/* ---- codes in a range ---- */

/*
 * The codes whose values are in the range.  Values that are added later belong to
 * rows that the caller finds elsewhere.
 */
static void
find_codes(StoreMatch *m, const DictionaryHeader *d, int len)
{
	uint64		code = 0;

	if (m->codes != NULL)
		pfree(m->codes);
	m->codes = NULL;
	m->dictionary = d;
	m->ndictionary = pm_vector_count(&d->values);
	m->ncodes = 0;
	if (m->ndictionary > MOST_CODES)
		return;
	while (code < m->ndictionary)
	{
		uint64		within;
		int			chunk = pm_vector_chunk(&d->values, code, &within);
		uint64		n = Min(pm_vector_chunk_elems(&d->values, chunk), m->ndictionary - code);
		const char *element = dictionary_element(d, code);

		for (uint64 i = 0; i < n; i++, code++, element += len)
		{
			int64		v = element_value(element, len);

			if (v < m->low || v > m->high)
				continue;
			if (m->ncodes++ == 0)
				m->code = (uint32) code;
			else if (m->codes == NULL)
			{
				m->codes = palloc0(MOST_CODES);
				m->codes[m->code] = 1;
			}
			if (m->codes != NULL)
				m->codes[code] = 1;
		}
	}
}

static bool
match_codes(StoreMatch *m, const AttrPlan *a, const ShapeAttr *attr, const char *p, int n,
			uint8 *match)
{
	int			i;

	if (!are_short_codes(a, attr))
		return false;
	if (m->dictionary != a->dictionary)
		find_codes(m, a->dictionary, attr->attlen);
	if (m->ndictionary > MOST_CODES)
		return false;
	if (m->ncodes == 0)
		memset(match, 0, n);
	else if (a->stride == 1 && m->ncodes == 1)
		match_code1(p, n, (uint8) m->code, (uint8) m->code, match);
	else if (a->stride == 1)
		EACH_MATCH(n, match[i] &= m->codes[((const uint8 *) p)[i]]);
	else if (m->ncodes == 1)
		match_code2(p, n, (uint16) m->code, (uint16) m->code, match);
	else
		EACH_MATCH(n, match[i] &= m->codes[((const uint16 *) p)[i]]);
	return true;
}

/* ---- any column ---- */

static bool
match_integers(StoreMatch *m, const AttrPlan *a, const ShapeAttr *attr, const char *p, int n,
			   uint8 *match)
{
	int64		low = m->low;
	int64		high = m->high;

	switch ((AttrKind) a->kind)
	{
		case ATTR_BYVAL2:
			if (a->stride != sizeof(int16))
				return false;
			if (narrow_range(PG_INT16_MIN, PG_INT16_MAX, &low, &high))
				match_int16(p, n, (int16) low, (int16) high, match);
			else
				memset(match, 0, n);
			return true;
		case ATTR_BYVAL4:
			if (a->stride != sizeof(int32))
				return false;
			if (narrow_range(PG_INT32_MIN, PG_INT32_MAX, &low, &high))
				match_int32(p, n, (int32) low, (int32) high, match);
			else
				memset(match, 0, n);
			return true;
		case ATTR_BYVAL8:
			if (a->stride != sizeof(int64))
				return false;
			match_int64(p, n, low, high, match);
			return true;
		case ATTR_NARROW:
			if (a->stride != sizeof(uint32))
				return false;
			if (narrow_range(0, PG_UINT32_MAX, &low, &high))
				match_uint32(p, n, (uint32) low, (uint32) high, match);
			else
				memset(match, 0, n);
			return true;
		case ATTR_CODE1_2:
		case ATTR_CODE1_4:
		case ATTR_CODE:
			return match_codes(m, a, attr, p, n, match);
		default:
			return false;
	}
}

/* Texts that are in the rows, with a short header */
static bool
match_images(StoreMatch *m, const AttrPlan *a, const ShapeAttr *attr, const char *p, int n,
			 uint8 *match)
{
	int			i;

	if (a->kind != ATTR_INLINE)
		return false;
	if (m->image_len > attr->width)
		memset(match, 0, n);
	else
		for (i = 0; i < n; i++, p += a->stride)
			match[i] &= *p == *m->image && memcmp(p, m->image, m->image_len) == 0;
	return true;
}

int
store_match_column(StoreDesc *store, BlockNumber number, StoreMatch *m, uint8 *match)
{
	BlockHeader *block = block_get(store->header, number);
	const ShapePlan *plan;
	const AttrPlan *a;
	const ShapeAttr *attr;
	const char *p;
	bool		done;

	if (block == NULL)
		return 0;
	plan = plan_get(store, block->shape);
	a = &plan->plan[m->att];
	if (a->kind == ATTR_MISSING)
		return -1;
	attr = &plan->reader->attr[m->att];
	p = (const char *) block + a->offset;
	done = m->image != NULL ? match_images(m, a, attr, p, block->capacity, match) :
		match_integers(m, a, attr, p, block->capacity, match);
	return done ? block->capacity : -1;
}

void
store_match_free(StoreMatch *m)
{
	if (m->codes != NULL)
		pfree(m->codes);
	m->codes = NULL;
}
