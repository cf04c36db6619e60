/*-------------------------------------------------------------------------
 *
 * shape.c
 *	  Shapes: how the columns lie in a block.  Immutable once published; a
 *	  value that does not fit makes a wider shape, used from the next block on.
 *
 * Everything here runs under the structure lock of the store.  A shape is a
 * nested top action: it stays when its creator aborts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "sofort/store/store_internal.h"

#define SPILL_MAX		4		/* bytes */

ShapeHeader *
shape_get(const StoreHeader *header, uint32 shape)
{
	PMPtr	   *p;

	if (shape >= pm_vector_count(&header->shapes))
		return NULL;
	p = pm_vector_get(&header->shapes, shape);
	/* NULL if the reference is damaged: see header_locate() */
	return p == NULL ? NULL : pm_deref_quietly(*p);
}

/* The newest one; NULL if there is none yet */
ShapeHeader *
shape_current(StoreDesc *store)
{
	return shape_get(store->header, pg_atomic_read_u32(&store->shared->current_shape));
}

const char *
encoding_name(int encoding)
{
	switch (encoding)
	{
		case ENCODING_PLAIN:
			return "plain";
		case ENCODING_DICTIONARY:
			return "dictionary";
		case ENCODING_INLINE:
			return "inline";
		case ENCODING_REFERENCE:
			return "reference";
		case ENCODING_NARROW:
			return "narrow";
		default:
			return "absent";
	}
}

bool
shape_is_undecided(const ShapeHeader *s)
{
	int			i;

	for (i = 0; i < s->ncolumns; i++)
		if (s->columns[i].flags & SHAPE_UNDECIDED)
			return true;
	return false;
}

/* NULL: the shape has no such column (there is none with a negative number). */
const ShapeColumn *
shape_column(const ShapeHeader *s, int64 column)
{
	int			i;

	for (i = 0; i < s->ncolumns; i++)
		if (s->columns[i].column == column)
			return &s->columns[i];
	return NULL;
}

static bool
has_late_dictionary(const ShapeHeader *s, uint16 column)
{
	const ShapeColumn *c = s != NULL ? shape_column(s, column) : NULL;

	return c != NULL && (c->flags & SHAPE_LATE) != 0;
}

/*
 * The first shape whose rows may be filled while "newest" is the newest.  Those before lack
 * a dictionary that came late, and their rows take more than twice the space. 0: all may.
 */
uint32
shape_retired_below(const StoreHeader *header, uint32 newest)
{
	const ShapeHeader *s = shape_get(header, newest);
	uint32		below = 0;
	int			i;

	for (i = 0; s != NULL && i < s->ncolumns; i++)
	{
		uint32		first = newest;

		if ((s->columns[i].flags & SHAPE_LATE) == 0)
			continue;
		while (first > 0 && has_late_dictionary(shape_get(header, first - 1), s->columns[i].column))
			first--;
		below = Max(below, first);
	}
	return below;
}

/* ---- layout ---- */

static uint32
column_align(const StoreHeader *header, const ShapeColumn *c)
{
	return shape_align(c->encoding, c->width, column_get(header, c->column));
}

uint32
shape_null_bytes(const ShapeHeader *s)
{
	uint32		bits = 0;
	int			i;

	for (i = 0; i < s->ncolumns; i++)
		if (s->columns[i].null_bit != SHAPE_NEVER_NULL)
			bits++;
	return (bits + 7) / 8;
}

/* Bytes of a record before it is rounded up. */
static uint32
record_size(const ShapeHeader *s, const ColumnChoice *choices)
{
	uint32		size = sizeof(RowWords) + shape_null_bytes(s);
	int			i;

	for (i = 0; i < s->ncolumns; i++)
		if (!choices[i].minipage)
			size += s->columns[i].width;
	return size;
}

/*
 * Records are multiples of 8 bytes.  If a record exceeds one by a few bytes, a small column
 * becomes a minipage: the rest of the 8 bytes would be padding.
 */
static void
spill_to_minipages(ShapeHeader *s, ColumnChoice *choices)
{
	uint32		over = record_size(s, choices) % 8;
	int			best = -1;
	int			i;

	if (over == 0 || over > SPILL_MAX)
		return;
	for (i = 0; i < s->ncolumns; i++)
	{
		const ShapeColumn *c = &s->columns[i];

		if (!choices[i].minipage && c->encoding != ENCODING_REFERENCE && c->width >= over &&
			c->width <= SPILL_MAX && (best < 0 || c->width < s->columns[best].width))
			best = i;
	}
	if (best >= 0)
		choices[best].minipage = true;
}

/*
 * Puts the minipage columns of a row side by side, which is fewer lines to flush and to
 * read than an array for each; but only if that needs hardly any padding.
 */
static bool
group_minipages(ShapeHeader *s, const StoreHeader *header, const ColumnChoice *choices)
{
	uint32		width = 0;
	uint32		largest = 1;
	uint32		align;
	int			i;

	for (align = 8; align >= 1; align /= 2)
	{
		for (i = 0; i < s->ncolumns; i++)
		{
			ShapeColumn *c = &s->columns[i];

			if (!choices[i].minipage || column_align(header, c) != align)
				continue;
			if (width % align != 0)
				return false;
			largest = Max(largest, align);
			c->offset = sizeof(BlockHeader) + width;
			width += c->width;
		}
	}
	if (width == 0 || width > PM_LINE / 2 || TYPEALIGN(largest, width) - width > 1)
		return false;
	width = TYPEALIGN(largest, width);
	for (i = 0; i < s->ncolumns; i++)
		if (choices[i].minipage)
			s->columns[i].stride = width;
	s->record_offset = TYPEALIGN(PM_LINE, sizeof(BlockHeader) + width * SOFORT_BLOCK_ROWS);
	return true;
}

static void
place_minipages(ShapeHeader *s, const StoreHeader *header, const ColumnChoice *choices)
{
	uint32		pos = sizeof(BlockHeader);
	uint32		align;
	int			i;

	if (group_minipages(s, header, choices))
		return;
	for (align = 8; align >= 1; align /= 2)
	{
		for (i = 0; i < s->ncolumns; i++)
		{
			ShapeColumn *c = &s->columns[i];

			if (!choices[i].minipage || column_align(header, c) != align)
				continue;
			c->offset = pos;
			c->stride = TYPEALIGN(align, c->width);
			pos += c->stride * SOFORT_BLOCK_ROWS;
		}
	}
	s->record_offset = TYPEALIGN(PM_LINE, pos);
}

static void
place_record(ShapeHeader *s, const StoreHeader *header, const ColumnChoice *choices)
{
	uint32		pos = sizeof(RowWords);
	uint32		align;
	int			i;

	for (align = 8; align >= 1; align /= 2)
	{
		for (i = 0; i < s->ncolumns; i++)
		{
			ShapeColumn *c = &s->columns[i];

			if (choices[i].minipage || column_align(header, c) != align)
				continue;
			pos = TYPEALIGN(align, pos);
			c->offset = s->record_offset + pos;
			pos += c->width;
		}
	}
	s->null_offset = pos;
	s->record_stride = TYPEALIGN(8, pos + shape_null_bytes(s));
	/* so that a record lies in one line, instead of nearly always in two */
	if (s->record_stride == PM_LINE - 8)
		s->record_stride = PM_LINE;
	for (i = 0; i < s->ncolumns; i++)
		if (!choices[i].minipage)
			s->columns[i].stride = s->record_stride;
}

static void
fill_columns(ShapeHeader *s, const ColumnChoice *choices, int n)
{
	uint16		nullable = 0;
	int			i;

	s->ncolumns = n;
	for (i = 0; i < n; i++)
	{
		s->columns[i].column = choices[i].column;
		s->columns[i].encoding = choices[i].encoding;
		s->columns[i].width = choices[i].width;
		s->columns[i].null_bit = choices[i].nullable ? nullable++ : SHAPE_NEVER_NULL;
		s->columns[i].dictionary = choices[i].dictionary;
		s->columns[i].flags = (choices[i].undecided ? SHAPE_UNDECIDED : 0) |
			(choices[i].late ? SHAPE_LATE : 0) | (choices[i].left ? SHAPE_LEFT : 0);
	}
}

/*
 * Publish a shape.  final: for full blocks, with minipages; else for blocks of any
 * capacity.  False if the pool has no room.
 */
bool
shape_try_publish(StoreDesc *store, ColumnChoice *choices, int n, bool final, NoRoom *why)
{
	StoreHeader *header = store->header;
	PmReservation r;
	ShapeHeader *s;
	uint64		id = pm_vector_count(&header->shapes);
	Size		size = offsetof(ShapeHeader, columns) + n * sizeof(ShapeColumn);

	why->result = pm_vector_try_reserve(&header->shapes, id, store->id, STORE_METADATA, &why->size);
	if (why->result != 0)
		return false;
	/* left over from a crash between publishing and counting */
	if (*(PMPtr *) pm_vector_get(&header->shapes, id) != PM_NULL)
		pm_free(store->id, pm_vector_get(&header->shapes, id), 1);
	why->size = size;
	why->result = pm_try_reserve(&r, store->id, size, pm_vector_get(&header->shapes, id), 1,
								 STORE_METADATA | PM_RESERVE_ZERO);
	if (why->result != 0)
		return false;
	s = r.addr;
	s->id = (uint32) id;
	s->capacity = final ? SOFORT_BLOCK_ROWS : 0;
	fill_columns(s, choices, n);
	if (final)
		spill_to_minipages(s, choices);
	place_minipages(s, header, choices);
	place_record(s, header, choices);
	s->block_size = TYPEALIGN(PM_LINE, s->record_offset + SOFORT_BLOCK_ROWS * s->record_stride);
	s->crc = shape_crc(s);
	pm_flush(s, size);
	pm_publish(&r);
	pm_vector_publish(&header->shapes, id + 1);
	pg_atomic_write_u32(&store->shared->current_shape, (uint32) id);
	space_shape_changed(store->shared, shape_retired_below(header, (uint32) id));
	SOFORT_STOP("store-shape-published");
	return true;
}

static void
shape_publish(StoreDesc *store, ColumnChoice *choices, int n, bool final)
{
	NoRoom		why;

	pool_require();
	if (!shape_try_publish(store, choices, n, final, &why))
		pm_raise_full(why.result, why.size);
}

/* ---- first choices ---- */

/* Longest value that the declared type allows, in bytes; 0: no bound. */
static int
declared_bound(Oid type, int32 typmod)
{
	if (typmod < (int32) VARHDRSZ)
		return 0;
	switch (type)
	{
		case VARCHAROID:
		case BPCHAROID:
			return typmod - VARHDRSZ;
		case NUMERICOID:
			/* short header, 4 digits to 2 bytes, two partial groups */
			return 2 + 2 * ((((typmod - VARHDRSZ) >> 16) & 0xffff) / 4 + 2);
		case BITOID:
		case VARBITOID:
			return 4 + (typmod + 7) / 8;
		default:
			return 0;
	}
}

/* The first choice, before anything is known about the values. */
ColumnChoice
choice_initial(const ColumnHeader *c, int32 typmod)
{
	ColumnChoice choice = {.encoding = ENCODING_REFERENCE, .width = sizeof(PMPtr), .nullable = true};

	if (c->attlen > 0 && (c->attbyval || c->attlen <= 128))
	{
		choice.encoding = ENCODING_PLAIN;
		choice.width = c->attlen;
	}
	else if (value_packable(c))
	{
		int			bound = declared_bound(c->type_oid, typmod);

		if (bound > 0 && bound < STORE_INLINE_MAX)
		{
			choice.encoding = ENCODING_INLINE;
			choice.width = bound + VARHDRSZ_SHORT;
		}
	}
	return choice;
}

/* The choices of a shape for the attributes of the map; for new columns the first choice. */
ColumnChoice *
shape_choices(StoreDesc *store, const ShapeHeader *like, int *n)
{
	struct StoreLocal *local = store->local;
	ColumnChoice *choices = palloc0(Max(local->natts, 1) * sizeof(ColumnChoice));
	int			i;

	*n = 0;
	for (i = 0; i < local->natts; i++)
	{
		int			column = local->column[i];
		ColumnChoice *choice = &choices[*n];
		const ShapeColumn *c;

		if (column < 0)
			continue;
		*choice = choice_initial(column_get(store->header, column),
								 TupleDescAttr(local->tupdesc, i)->atttypmod);
		/* a column that was added: decided when there are values */
		choice->undecided = like != NULL && like->capacity != 0;
		c = like != NULL ? shape_column(like, column) : NULL;
		if (c != NULL)
		{
			choice->encoding = c->encoding;
			choice->width = c->width;
			choice->dictionary = c->dictionary;
			choice->minipage = c->offset < like->record_offset;
			choice->nullable = c->null_bit != SHAPE_NEVER_NULL;
			choice->undecided = (c->flags & SHAPE_UNDECIDED) != 0;
			choice->late = (c->flags & SHAPE_LATE) != 0;
			choice->left = (c->flags & SHAPE_LEFT) != 0;
		}
		choice->column = column;
		(*n)++;
	}
	return choices;
}

void
shape_make_initial(StoreDesc *store)
{
	int			n;
	ColumnChoice *choices = shape_choices(store, NULL, &n);

	shape_publish(store, choices, n, false);
	pfree(choices);
}

/* ---- widening ---- */

/* The next wider encoding for a column, for a value of this many bytes. */
static void
widen_choice(StoreDesc *store, ColumnChoice *choice, Size size)
{
	const ColumnHeader *c = column_get(store->header, choice->column);
	ColumnChoice plain = choice_initial(c, -1);

	if (choice->encoding == ENCODING_DICTIONARY)
	{
		const DictIndex *index = dictionary_index_of(store->shared, pm_deref(choice->dictionary));
		int			wider = choice->width * 2;

		Assert(index != NULL);	/* it has refused a value */
		/* still narrower than the value, and still repeating? */
		if (wider <= 4 && size <= STORE_DICTIONARY_VALUE_MAX && (c->attlen < 0 || wider < c->attlen) &&
			!dictionary_is_crowded(store->shared, index, store->local->reserved))
		{
			choice->width = wider;
			return;
		}
		/* the next values are taken to be like those that are known */
		size = Max(size, index->longest);
		choice->late = false;
		choice->left = true;
	}
	if (value_packable(c) && choice->encoding != ENCODING_REFERENCE &&
		size + 1 <= STORE_INLINE_MAX)
	{
		plain.encoding = ENCODING_INLINE;
		plain.width = Max(TYPEALIGN(4, size + 1), 16);
	}
	choice->encoding = plain.encoding;
	choice->width = plain.width;
	choice->dictionary = PM_NULL;
	if (choice->encoding == ENCODING_REFERENCE)
		choice->minipage = false;
}

/*
 * A row has a NULL in a column that had none before, and the next may have one in another
 * column.  So all columns get a bit, except those that cannot be NULL, and minipages: a
 * reader of a minipage without NULLs need not touch the record, where the bit lies.
 */
static void
allow_nulls(const struct StoreLocal *local, ColumnChoice *choice)
{
	int			i;

	for (i = 0; i < local->natts; i++)
	{
		if (local->column[i] < 0)
			continue;
		/* choices are in the order of the attributes */
		Assert(choice->column == local->column[i]);
		if (!choice->minipage && !TupleDescAttr(local->tupdesc, i)->attnotnull)
			choice->nullable = true;
		choice++;
	}
}

static void
widen_choices(StoreDesc *store, const ShapeHeader *like, ColumnChoice *choices, int n,
			  const ShapeMisfit *misfit, int nmisfits)
{
	bool		nulls = false;
	int			k = 0;
	int			i;

	for (i = 0; i < nmisfits; i++)
	{
		int32		column = store->local->column[misfit[i].attno];

		while (k < n && choices[k].column != column)
			k++;
		/* columns that the shape does not have are in the choices now, and take all values */
		if (k == n || shape_column(like, column) == NULL)
			continue;
		if (misfit[i].isnull)
			nulls = choices[k].nullable = true;
		else
			widen_choice(store, &choices[k], misfit[i].size);
	}
	if (nulls)
		allow_nulls(store->local, choices);
}

/*
 * Makes a shape for NULLs and values of a row that did not fit shape "seen"; they are
 * ordered by attribute.  No lock may be held.  If somebody else made a new shape meanwhile,
 * nothing is done, and the caller tries that one.
 */
void
shape_widen(StoreDesc *store, uint32 seen, const ShapeMisfit *misfit, int nmisfits)
{
	int			n;
	ShapeHeader *like;
	ColumnChoice *choices;

	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&store->shared->current_shape) == seen)
	{
		like = shape_get(store->header, seen);
		choices = shape_choices(store, like, &n);
		widen_choices(store, like, choices, n, misfit, nmisfits);
		shape_publish(store, choices, n, like->capacity != 0);
		pfree(choices);
	}
	LWLockRelease(structure_lock(store->id));
}
