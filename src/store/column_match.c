/*-------------------------------------------------------------------------
 *
 * column_match.c
 *	  Which rows of a block may have a value within a range.
 *
 * For look-ups without an index.  The column is compared as it lies in the block,
 * within the records or as an array: integers with integers, codes with the codes whose
 * dictionary values are in the range, short texts as images.  Loops are over whole
 * blocks and without branches, so that the compiler uses vector instructions for
 * arrays.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/column_read.h"
#include "sofort/store/store_internal.h"

/* Dictionaries with more values are not searched for one look-up. */
#define MOST_CODES		65536

/* The trip count is a constant in almost all blocks. */
#define FOR_ROWS(n, body) \
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

/* v: the value of row i of a column that begins at p */
#define EACH_VALUE(type, p, stride, n, body) \
	do { \
		if ((stride) == sizeof(type)) \
			FOR_ROWS(n, type v = ((const type *) (p))[i]; body); \
		else \
			FOR_ROWS(n, type v = *(const type *) ((p) + (Size) i * (stride)); body); \
	} while (0)

#define MATCH_RANGE(name, type, wide) \
static void \
name(const char *p, uint32 stride, int n, wide low, wide high, uint8 *pg_restrict match) \
{ \
	int			i; \
\
	EACH_VALUE(type, p, stride, n, match[i] &= (v >= low) & (v <= high)); \
}

MATCH_RANGE(match_int16, int16, int16)
MATCH_RANGE(match_int32, int32, int32)
MATCH_RANGE(match_int64, int64, int64)
MATCH_RANGE(match_uint32, uint32, uint32)

/* Codes; false: some row has one beyond the last that there is */
#define MATCH_CODES(name, type, matches) \
static bool \
name(const StoreMatch *m, const char *p, uint32 stride, int n, uint8 *pg_restrict match) \
{ \
	type		last = (type) Min(m->ndictionary - 1, ((uint64) 1 << 8 * sizeof(type)) - 1); \
	type		code = (type) m->code; \
	const uint8 *codes = m->codes; \
	uint8		beyond = 0; \
	int			i; \
\
	(void) code; \
	(void) codes; \
	EACH_VALUE(type, p, stride, n, match[i] &= (matches); beyond |= (v > last)); \
	return beyond == 0; \
}

MATCH_CODES(match_no_code1, uint8, 0)
MATCH_CODES(match_no_code2, uint16, 0)
MATCH_CODES(match_code1, uint8, v == code)
MATCH_CODES(match_code2, uint16, v == code)
MATCH_CODES(match_some_codes1, uint8, codes[v])
MATCH_CODES(match_some_codes2, uint16, codes[v])

/* Narrows the range to the limits of the type; false: no value of the type is in it */
static bool
narrow_range(int64 min, int64 max, int64 *low, int64 *high)
{
	*low = Max(*low, min);
	*high = Min(*high, max);
	return *low <= *high;
}

/* ---- dictionaries ---- */

/* Integers, and their codes have one or two bytes */
static inline bool
are_short_codes(const ShapeAttr *attr)
{
	return attr->byval && attr->attlen >= 2 && attr->width <= 2;
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
name(const char *p, uint32 stride, int n, int64 *min, int64 *max) \
{ \
	type		low = *(const type *) p; \
	type		high = low; \
	int			i; \
\
	EACH_VALUE(type, p, stride, n, low = Min(low, v); high = Max(high, v)); \
	*min = (int64) low; \
	*max = (int64) high; \
}

EXTREMES(extremes_int16, int16)
EXTREMES(extremes_int32, int32)
EXTREMES(extremes_int64, int64)
EXTREMES(extremes_uint32, uint32)
EXTREMES(extremes_code1, uint8)
EXTREMES(extremes_code2, uint16)

/*
 * Rows that were never filled may have any code, and count if it is one.  Where some have
 * none it is for store_read_column() to tell why.
 */
static int
extremes_of_codes(const AttrPlan *a, const ShapeAttr *attr, const char *p, int n, int64 *min,
				  int64 *max)
{
	int64		ncodes = (int64) pm_vector_count(&a->dictionary->values);
	int64		first;
	int64		last;
	int			i;

	if (!are_short_codes(attr))
		return -1;
	if (attr->width == 1)
		extremes_code1(p, a->stride, n, &first, &last);
	else
		extremes_code2(p, a->stride, n, &first, &last);
	if (last >= ncodes)
		return -1;
	*min = *max = element_value(code_element(a, first), attr->attlen);
	for (i = 0; first < last && i < n; i++)
	{
		int64		code = code_get(p + (Size) i * a->stride, attr->width);
		int64		v = element_value(code_element(a, code), attr->attlen);

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
	switch ((AttrKind) a->kind)
	{
		case ATTR_BYVAL2:
			extremes_int16(p, a->stride, block->capacity, min, max);
			break;
		case ATTR_BYVAL4:
			extremes_int32(p, a->stride, block->capacity, min, max);
			break;
		case ATTR_BYVAL8:
			extremes_int64(p, a->stride, block->capacity, min, max);
			break;
		case ATTR_NARROW:
			extremes_uint32(p, a->stride, block->capacity, min, max);
			break;
		case ATTR_CODE1_2:
		case ATTR_CODE1_4:
		case ATTR_CODE:
			return extremes_of_codes(a, &plan->reader->attr[att], p, block->capacity, min, max);
		default:
			return -1;
	}
	return block->capacity;
}

/* ---- codes in a range ---- */

/*
 * Finds the codes whose values are in the range.  Values that are added later belong to
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

/*
 * False also where a row has a code that is not in the dictionary, or came since: it is for
 * store_read_column() to tell why.
 */
static bool
match_codes(StoreMatch *m, const AttrPlan *a, const ShapeAttr *attr, const char *p, int n,
			uint8 *match)
{
	if (!are_short_codes(attr))
		return false;
	if (m->dictionary != a->dictionary)
		find_codes(m, a->dictionary, attr->attlen);
	if (m->ndictionary > MOST_CODES || m->ndictionary == 0)
		return false;
	if (attr->width == 1)
		return m->ncodes == 0 ? match_no_code1(m, p, a->stride, n, match) :
			m->ncodes == 1 ? match_code1(m, p, a->stride, n, match) :
			match_some_codes1(m, p, a->stride, n, match);
	return m->ncodes == 0 ? match_no_code2(m, p, a->stride, n, match) :
		m->ncodes == 1 ? match_code2(m, p, a->stride, n, match) :
		match_some_codes2(m, p, a->stride, n, match);
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
			if (narrow_range(PG_INT16_MIN, PG_INT16_MAX, &low, &high))
				match_int16(p, a->stride, n, (int16) low, (int16) high, match);
			else
				memset(match, 0, n);
			return true;
		case ATTR_BYVAL4:
			if (narrow_range(PG_INT32_MIN, PG_INT32_MAX, &low, &high))
				match_int32(p, a->stride, n, (int32) low, (int32) high, match);
			else
				memset(match, 0, n);
			return true;
		case ATTR_BYVAL8:
			match_int64(p, a->stride, n, low, high, match);
			return true;
		case ATTR_NARROW:
			if (narrow_range(0, PG_UINT32_MAX, &low, &high))
				match_uint32(p, a->stride, n, (uint32) low, (uint32) high, match);
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
