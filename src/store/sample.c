/*-------------------------------------------------------------------------
 *
 * sample.c
 *	  Deciding the encodings from the first 1,016 rows; for columns that had
 *	  hardly a value then, or are younger, from the first rows that do.
 *
 * A dictionary if its code is narrower than the value and fewer than half of
 * the sampled values are distinct (and it looks as if that will stay so);
 * otherwise the value itself: plain, in place
 * if it is short, else by reference.
 *
 * Columns without a dictionary are looked at again as the table grows, and by
 * VACUUM: their values may repeat later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/sysattr.h"
#include "common/hashfn.h"
#include "sofort/store/store_internal.h"

#define SAMPLE_MAX		1100
#define SAMPLE_MIN		64		/* values: with fewer nothing is decided */
#define SAMPLE_VALUE	1024	/* longer values get no dictionary */
#define REFERENCE_OVERHEAD	16	/* bytes, of a value by reference: header, rounding */

typedef struct ColumnSample
{
	int			n;				/* not NULL */
	uint64		total;			/* bytes */
	Size		longest;
	uint64		bits;			/* bitwise OR of all by-value values */
	uint64		hash[SAMPLE_MAX];
} ColumnSample;

/*
 * Takes rows that nobody can free while this transaction runs: written, and not ended when
 * looked at.
 */
static int
sample_block(StoreDesc *store, uint64 b, RowRef *rows, int n)
{
	uint32		i;

	for (i = 0; i < block_capacity(b) && n < SAMPLE_MAX; i++)
	{
		uint64		begin;

		if (!header_locate(store->header, b * SOFORT_BLOCK_ROWS + i, &rows[n]))
			break;
		begin = word_read(&rows[n].words->begin);
		if ((WORD_TAG(begin) == WORD_TAG_STAMP || WORD_TAG(begin) == WORD_TAG_PROGRESS) &&
			WORD_TAG(word_read(&rows[n].words->end)) == WORD_TAG_EMPTY)
			n++;
	}
	return n;
}

static int
sample_rows(StoreDesc *store, RowRef *rows)
{
	uint64		b;
	int			n = 0;

	for (b = 0; b < store_block_count(store->header); b++)
		n = sample_block(store, b, rows, n);
	return n;
}

/* The youngest rows in blocks that have the column. */
static int
sample_late_rows(StoreDesc *store, uint16 column, RowRef *rows)
{
	uint64		b = store_block_count(store->header);
	uint64		looked_at;
	int			n = 0;

	for (looked_at = 0; b-- > 0 && n < SAMPLE_MAX && looked_at < STORE_RUN_MAX; looked_at++)
	{
		BlockHeader *block = block_get(store->header, b);

		if (block != NULL && shape_column(shape_get(store->header, block->shape), column) != NULL)
			n = sample_block(store, b, rows, n);
	}
	return n;
}

static int
compare_hash(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Number of distinct values among the first n; sorts them. */
static int
count_distinct(ColumnSample *s, int n)
{
	int			distinct = n > 0 ? 1 : 0;
	int			i;

	qsort(s->hash, n, sizeof(uint64), compare_hash);
	for (i = 1; i < n; i++)
		if (s->hash[i] != s->hash[i - 1])
			distinct++;
	return distinct;
}

/*
 * Do values repeat?  Fewer than half are distinct, and the second half of the sample brings
 * clearly fewer new ones than the first.  (In a table loaded in order, values of a foreign
 * key repeat at once, but never again later.)
 */
static bool
values_repeat(int n, int half, int all)
{
	return n > 0 && all * 2 < n && (all <= 16 || (all - half) * 5 < half * 3);
}

static void
sample_column(StoreDesc *store, const ColumnHeader *c, int attno, const RowRef *rows, int nrows,
			  Datum *values, bool *isnull, ColumnSample *s)
{
	Bitmapset  *attrs = bms_make_singleton(attno + 1 - FirstLowInvalidHeapAttributeNumber);
	char		buffer[sizeof(Datum)];
	int			i;

	memset(s, 0, offsetof(ColumnSample, hash));
	for (i = 0; i < nrows; i++)
	{
		const char *bytes;
		Size		len;

		store_decode_some(store, &rows[i], attrs, values, isnull);
		if (isnull[attno])
			continue;
		if (c->attbyval)
			s->bits |= values[attno];
		if (c->attlen == -1 && toast_raw_datum_size(values[attno]) > SAMPLE_VALUE)
		{
			len = toast_raw_datum_size(values[attno]) - VARHDRSZ;
			s->hash[s->n] = i;	/* counts as distinct: it gets no dictionary anyway */
		}
		else
		{
			bytes = value_bytes(c, values[attno], &len, buffer);
			s->hash[s->n] = hash_bytes_extended((const unsigned char *) bytes, (int) len, 0);
		}
		s->n++;
		s->total += len;
		s->longest = Max(s->longest, len);
	}
	bms_free(attrs);
}

static ColumnChoice
choose(StoreDesc *store, uint16 column, int32 typmod, ColumnSample *s, int nrows, bool indexed)
{
	const ColumnHeader *c = column_get(store->header, column);
	ColumnChoice choice = choice_initial(c, typmod);
	int			half = count_distinct(s, s->n / 2);
	int			distinct = count_distinct(s, s->n);
	int			code = distinct <= 256 ? 1 : 2;
	Size		average = s->n > 0 ? s->total / s->n : 0;

	choice.column = column;
	if (s->n < SAMPLE_MIN)
	{
		choice.undecided = true;
		choice.minipage = indexed && choice.encoding != ENCODING_REFERENCE;
		return choice;
	}
	/* sampled or declared: a short varlena goes in place */
	if (value_packable(c))
	{
		/* longer ones are likely to come, up to the declared length */
		Size		width = TYPEALIGN(4, s->longest + VARHDRSZ_SHORT);

		if (choice.encoding == ENCODING_INLINE)
			choice.width = Min(choice.width, width);
		else if (width <= STORE_INLINE_MAX)
		{
			choice.encoding = ENCODING_INLINE;
			choice.width = width;
		}
		if (s->longest + 1 > choice.width)
		{
			choice.encoding = ENCODING_REFERENCE;
			choice.width = sizeof(PMPtr);
		}
	}
	if (values_repeat(s->n, half, distinct) && s->longest <= SAMPLE_VALUE &&
		(c->attlen != -1 || value_packable(c)) &&
		(Size) code < (c->attlen > 0 ? (Size) c->attlen : average + 1))
	{
		choice.encoding = ENCODING_DICTIONARY;
		choice.width = code;
	}
	else if (c->attbyval && c->attlen == 8 && s->bits >> (8 * STORE_NARROW_WIDTH) == 0)
	{
		/* numbers that count rows would soon outgrow fewer bytes */
		choice.encoding = ENCODING_NARROW;
		choice.width = STORE_NARROW_WIDTH;
	}
	/* a NULL that comes later makes a new shape, once */
	choice.nullable = s->n < nrows;
	choice.minipage = indexed && choice.encoding != ENCODING_REFERENCE;
	return choice;
}

/* A look at the values of one column after the other */
typedef struct Look
{
	StoreDesc  *store;
	Bitmapset  *indexed;
	RowRef	   *rows;			/* SAMPLE_MAX, of which nrows are looked at */
	int			nrows;
	ColumnSample *sample;		/* of the column looked at last */
	Datum	   *values;
	bool	   *isnull;
	MemoryContext old_context;
} Look;

static void
look_begin(Look *look, StoreDesc *store, Bitmapset *indexed)
{
	int			natts = Max(store->local->natts, 1);

	look->old_context = MemoryContextSwitchTo(value_context());
	look->store = store;
	look->indexed = indexed;
	look->rows = palloc(SAMPLE_MAX * sizeof(RowRef));
	look->nrows = 0;
	look->sample = palloc(sizeof(ColumnSample));
	look->values = palloc(natts * sizeof(Datum));
	look->isnull = palloc(natts * sizeof(bool));
}

static void
look_end(Look *look)
{
	MemoryContextSwitchTo(look->old_context);
	value_reset();
}

/* The encoding that suits attribute i in the sampled rows; without a dictionary yet */
static ColumnChoice
look_at(Look *look, int i)
{
	struct StoreLocal *local = look->store->local;
	uint16		column = local->column[i];

	sample_column(look->store, column_get(look->store->header, column), i, look->rows, look->nrows,
				  look->values, look->isnull, look->sample);
	return choose(look->store, column, TupleDescAttr(local->tupdesc, i)->atttypmod, look->sample,
				  look->nrows, bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, look->indexed));
}

/*
 * Publishes a decided shape, and makes the dictionaries that it needs.  False if the pool
 * has no room: dictionaries that were made are used the next time.
 */
static bool
try_publish_choices(StoreDesc *store, ColumnChoice *choices, int n, NoRoom *why)
{
	int			i;

	for (i = 0; i < n; i++)
	{
		DictionaryHeader *d;

		if (choices[i].encoding != ENCODING_DICTIONARY || choices[i].dictionary != PM_NULL)
			continue;
		d = dictionary_create(store->header, choices[i].column, why);
		if (d == NULL)
			return false;
		choices[i].dictionary = pm_ptr(d);
	}
	return shape_try_publish(store, choices, n, true, why);
}

static void
publish_choices(StoreDesc *store, ColumnChoice *choices, int n)
{
	NoRoom		why;

	pool_require();
	if (!try_publish_choices(store, choices, n, &why))
		pm_raise_full(why.result, why.size);
}

/*
 * Decide.  Structure lock held; indexed: attributes of the relation's indexes
 * (attnum - FirstLowInvalidHeapAttributeNumber), which get minipages.
 */
void
shape_decide(StoreDesc *store, Bitmapset *indexed)
{
	struct StoreLocal *local = store->local;
	Look		look;
	ColumnChoice *choices;
	int			n = 0;
	int			i;

	look_begin(&look, store, indexed);
	choices = palloc0(Max(local->natts, 1) * sizeof(ColumnChoice));
	look.nrows = sample_rows(store, look.rows);
	for (i = 0; i < local->natts; i++)
		if (local->column[i] >= 0)
			choices[n++] = look_at(&look, i);
	publish_choices(store, choices, n);
	look_end(&look);
}

/*
 * Decides what the current shape leaves undecided, where there are values now.  The other
 * columns stay as they are.  Structure lock held.
 */
void
shape_decide_late(StoreDesc *store, Bitmapset *indexed)
{
	struct StoreLocal *local = store->local;
	Look		look;
	int			n;
	ColumnChoice *choices;
	ColumnChoice *choice;
	bool		decided = false;
	int			i;

	look_begin(&look, store, indexed);
	choice = choices = shape_choices(store, shape_current(store), &n);
	for (i = 0; i < local->natts; i++)
	{
		if (local->column[i] < 0)
			continue;
		/* choices are in the order of the attributes */
		Assert(choice->column == local->column[i]);
		if (choice->undecided &&
			(look.nrows = sample_late_rows(store, choice->column, look.rows)) > 0)
		{
			ColumnChoice later = look_at(&look, i);

			if (!later.undecided)
			{
				/* older rows are probably NULL here, and are written again by updates */
				later.nullable = true;
				*choice = later;
				decided = true;
			}
		}
		choice++;
	}
	if (decided)
		publish_choices(store, choices, n);
	look_end(&look);
}

/* ---- looking again ---- */

/* Could a dictionary for this column save a good part of a row? */
static bool
may_reconsider(const StoreHeader *header, const ShapeColumn *c)
{
	if (c->flags & (SHAPE_UNDECIDED | SHAPE_LEFT))
		return false;
	return c->encoding == ENCODING_REFERENCE || c->encoding == ENCODING_INLINE ||
		(c->encoding == ENCODING_PLAIN && column_get(header, c->column)->attlen > (int16) sizeof(Datum));
}

bool
shape_may_reconsider(StoreDesc *store)
{
	const ShapeHeader *s = shape_current(store);
	int			i;

	if (s == NULL || s->capacity == 0)
		return false;
	for (i = 0; i < s->ncolumns; i++)
		if (may_reconsider(store->header, &s->columns[i]))
			return true;
	return false;
}

/*
 * Do values repeat now that did not when their encoding was chosen?  If the youngest rows
 * would be less than half as large with dictionaries, a new shape gets them, and rows of
 * the older shapes are not filled any more (so the table grows by at most half before
 * VACUUM releases them).  In a full pool this is left for another time.  Structure lock
 * held; indexed: as for shape_decide().
 */
void
shape_reconsider(StoreDesc *store, Bitmapset *indexed)
{
	struct StoreLocal *local = store->local;
	const ShapeHeader *like = shape_current(store);
	Look		look;
	int			n;
	ColumnChoice *choices;
	ColumnChoice *choice;
	double		row_bytes;
	double		saved = 0;
	NoRoom		why;
	int			i;

	if (!shape_may_reconsider(store))
		return;
	look_begin(&look, store, indexed);
	choice = choices = shape_choices(store, like, &n);
	row_bytes = (double) like->block_size / SOFORT_BLOCK_ROWS;
	for (i = 0; i < local->natts; i++)
	{
		const ShapeColumn *now;

		if (local->column[i] < 0)
			continue;
		Assert(choice->column == local->column[i]);
		now = shape_column(like, choice->column);
		if (now != NULL && may_reconsider(store->header, now) &&
			(look.nrows = sample_late_rows(store, choice->column, look.rows)) > 0)
		{
			ColumnChoice later = look_at(&look, i);
			double		bytes = now->width;

			if (now->encoding == ENCODING_REFERENCE)
				bytes += ((double) look.sample->total + REFERENCE_OVERHEAD * look.sample->n) / look.nrows;
			row_bytes += bytes - now->width;
			if (later.encoding == ENCODING_DICTIONARY)
			{
				saved += bytes - later.width;
				later.nullable = true;
				later.late = true;
				*choice = later;
			}
		}
		choice++;
	}
	if (saved * 2 > row_bytes)
		(void) try_publish_choices(store, choices, n, &why);
	look_end(&look);
}
