/*-------------------------------------------------------------------------
 *
 * salvage.c
 *	  Reading what is readable of a damaged store.
 *
 * Nothing in the pool is changed.  What describes the rows is copied and, where a check
 * says that it is damaged, corrected if exactly one of its bits can be flipped so that
 * the check is right: with a CRC-32C of a small structure, and with the checks of
 * references, there is hardly any other explanation.  Stamps and fields of rows have
 * too few check bits for that: such a row is reported and left out.  So is a row with a
 * value that is damaged in more than one bit.  Every row that is returned is whole.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "miscadmin.h"
#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "utils/snapmgr.h"

#define CORRECT_MAX		8192	/* bytes: longer ones are not corrected */

typedef struct Salvage
{
	StoreId		id;
	StoreHeader header;			/* a copy, as all of the following */
	uint64		ncolumns;
	ColumnHeader *columns;
	const char **column_problem;	/* NULL: usable */
	DictionaryHeader *dictionaries;
	uint64		nshapes;
	ShapeHeader **shapes;		/* NULL: damaged */
	ShapePlan **plans;
	TupleDesc	tupdesc;
	Snapshot	snapshot;
	MemoryContext row_context;
	StoreReport report;
	SalvagedRow fn;
	void	   *arg;
} Salvage;

static void tell(const Salvage *s, const char *place, const char *fmt,...)
			pg_attribute_printf(3, 4);

static void
tell(const Salvage *s, const char *place, const char *fmt,...)
{
	char		problem[256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(problem, sizeof(problem), fmt, args);
	va_end(args);
	if (s->report != NULL)
		s->report(s->arg, "salvage", place, problem);
}

/* ---- correcting one bit ---- */

typedef const char *(*Problem) (const Salvage *s, const void *copy, uint64 number);

/* NULL if the copy is right, or was made right, else what is wrong with it. */
static const char *
correct(const Salvage *s, void *copy, Size size, Problem problem_of, uint64 number)
{
	const char *problem = problem_of(s, copy, number);
	uint8	   *bytes = copy;
	Size		found = 0;
	int			n = 0;
	Size		bit;

	if (problem == NULL)
		return NULL;
	for (bit = 0; bit < size * 8; bit++)
	{
		bytes[bit / 8] ^= 1 << (bit % 8);
		if (problem_of(s, copy, number) == NULL)
		{
			found = bit;
			n++;
		}
		bytes[bit / 8] ^= 1 << (bit % 8);
		if (bit % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	if (n != 1)
		return problem;
	bytes[found / 8] ^= 1 << (found % 8);
	return NULL;
}

/* A reference to at least so many bytes that are allocated */
static const char *
reference_problem(const Salvage *s, const void *copy, uint64 size)
{
	PMPtr		p;

	memcpy(&p, copy, sizeof(p));
	return pm_allocated_size(p) < size ? "reference is damaged" : NULL;
}

/* The reference, corrected if need be; PM_NULL if it is 0 or cannot be corrected. */
static PMPtr
correct_reference(const Salvage *s, PMPtr p, Size size)
{
	if (p == PM_NULL || correct(s, &p, sizeof(p), reference_problem, size) != NULL)
		return PM_NULL;
	return p;
}

/* ---- header ---- */

static const char *
identity_problem(const Salvage *s, const void *copy, uint64 number)
{
	return store_identity_problem(copy);
}

static const char *
header_problem(const Salvage *s, const void *copy, uint64 number)
{
	return store_header_problem(copy);
}

/* Finds the header that is, or was before a bit flipped, that of the relation. */
static bool
find_header(Salvage *s, Relation rel)
{
	const RelFileLocator *locator = relation_locator(rel);
	uint64		i;

	for (i = 0; i < pm_vector_count(&PoolSuper->stores); i++)
	{
		const PMPtr *entry = pm_vector_get(&PoolSuper->stores, i);
		PMPtr		p = correct_reference(s, word_read(entry), sizeof(StoreHeader));

		CHECK_FOR_INTERRUPTS();
		if (p == PM_NULL)
			continue;
		s->header = *(const StoreHeader *) pm_deref(p);
		if (correct(s, &s->header, offsetof(StoreHeader, nblocks), identity_problem, 0) == NULL &&
			s->header.rel_number == locator_number(locator) &&
			s->header.db_oid == locator_db(locator) &&
			(s->header.spc_oid == locator_spc(locator) ||
			 (s->header.spc_oid == InvalidOid && locator_spc(locator) == MyDatabaseTableSpace)))
			return true;
	}
	return false;
}

/* ---- columns, dictionaries, shapes ---- */

static const char *
one_column_problem(const Salvage *s, const void *copy, uint64 number)
{
	return column_problem(copy);
}

static const char *
one_dictionary_problem(const Salvage *s, const void *copy, uint64 number)
{
	return dictionary_header_problem(&s->header, copy, number);
}

static const char *
one_shape_problem(const Salvage *s, const void *copy, uint64 number)
{
	return shape_problem(&s->header, copy, number);
}

static void
copy_columns(Salvage *s)
{
	uint64		i;

	s->ncolumns = pm_vector_count(&s->header.columns);
	s->columns = palloc0((s->ncolumns + 1) * sizeof(ColumnHeader));
	s->dictionaries = palloc0((s->ncolumns + 1) * sizeof(DictionaryHeader));
	s->column_problem = palloc0((s->ncolumns + 1) * sizeof(char *));
	for (i = 0; i < s->ncolumns; i++)
	{
		ColumnHeader *c = &s->columns[i];
		char		place[64];

		*c = *column_get(&s->header, i);
		s->column_problem[i] = correct(s, c, offsetof(ColumnHeader, unused), one_column_problem, i);
		if (s->column_problem[i] == NULL && c->dictionary != PM_NULL)
		{
			PMPtr		p = correct_reference(s, c->dictionary, sizeof(DictionaryHeader));

			if (p == PM_NULL)
				s->column_problem[i] = "its dictionary is not there";
			else
			{
				s->dictionaries[i] = *(DictionaryHeader *) pm_deref(p);
				s->column_problem[i] = correct(s, &s->dictionaries[i], sizeof(DictionaryHeader),
											   one_dictionary_problem, i);
			}
		}
		snprintf(place, sizeof(place), "column " UINT64_FORMAT, i);
		if (s->column_problem[i] != NULL)
			tell(s, place, "is damaged: %s", s->column_problem[i]);
	}
}

static void
copy_shapes(Salvage *s)
{
	uint64		i;

	s->nshapes = pm_vector_count(&s->header.shapes);
	s->shapes = palloc0((s->nshapes + 1) * sizeof(ShapeHeader *));
	s->plans = palloc0((s->nshapes + 1) * sizeof(ShapePlan *));
	for (i = 0; i < s->nshapes; i++)
	{
		PMPtr		p = correct_reference(s, *(PMPtr *) pm_vector_get(&s->header.shapes, i),
										  sizeof(ShapeHeader));
		Size		room = offsetof(ShapeHeader, columns) + s->ncolumns * sizeof(ShapeColumn);
		const char *problem = "is not there";
		ShapeHeader *copy;
		char		place[64];

		if (p != PM_NULL)
		{
			copy = palloc0(room + sizeof(ShapeColumn));
			memcpy(copy, pm_deref(p), Min(room, pm_allocated_size(p)));
			problem = correct(s, copy, room, one_shape_problem, i);
			if (problem == NULL)
			{
				s->shapes[i] = copy;
				s->plans[i] = row_check_plan(copy);
			}
		}
		snprintf(place, sizeof(place), "shape " UINT64_FORMAT, i);
		if (problem != NULL)
			tell(s, place, "is damaged: %s", problem);
	}
}

/* ---- values ---- */

typedef struct ValueCopy
{
	int16		attlen;
	Size		allocated;
} ValueCopy;

static const char *
value_copy_problem(const Salvage *s, const void *copy, uint64 number)
{
	const ValueCopy *v = (const ValueCopy *) (uintptr_t) number;

	return value_bytes_problem(v->attlen, copy, v->allocated);
}

/* A value by reference, corrected in a copy if need be. */
static const char *
read_reference(Salvage *s, int16 attlen, PMPtr p, Datum *value)
{
	const char *problem;
	ValueCopy	v = {.attlen = attlen};
	char	   *copy;

	p = correct_reference(s, p, 1);
	if (p == PM_NULL)
		return "refers to nothing";
	problem = value_problem(attlen, p);
	*value = PointerGetDatum(pm_deref(p));
	v.allocated = pm_allocated_size(p);
	if (problem == NULL || v.allocated > CORRECT_MAX)
		return problem;
	copy = palloc(v.allocated);
	memcpy(copy, pm_deref(p), v.allocated);
	*value = PointerGetDatum(copy);
	return correct(s, copy, v.allocated, value_copy_problem, (uint64) (uintptr_t) &v);
}

static const char *
element_problem(const Salvage *s, const void *copy, uint64 len)
{
	uint32		check;

	memcpy(&check, (const char *) copy + len, sizeof(check));
	return check == dictionary_check(copy, len) ? NULL : "has a wrong checksum";
}

static const char *
read_code(Salvage *s, const DictionaryHeader *d, uint32 code, Datum *value)
{
	char	   *copy;
	const char *problem;
	uint32	   *check;

	if (code >= pm_vector_count(&d->values))
		return "is not in its dictionary";
	if (d->attlen <= 0)
		return read_reference(s, d->attlen, *(PMPtr *) dictionary_element(d, code), value);
	check = pm_vector_get(&d->checks, code);
	if (check == NULL)
		return "has no checksum";
	copy = palloc(d->attlen + sizeof(uint32));
	memcpy(copy, dictionary_element(d, code), d->attlen);
	memcpy(copy + d->attlen, check, sizeof(uint32));
	problem = correct(s, copy, d->attlen + sizeof(uint32), element_problem, d->attlen);
	*value = fetch_att(copy, d->attbyval, d->attlen);
	return problem;
}

static const char *
read_field(Salvage *s, const ShapeColumn *sc, const char *p, Datum *value)
{
	const ColumnHeader *c = &s->columns[sc->column];

	switch ((ColumnEncoding) sc->encoding)
	{
		case ENCODING_PLAIN:
			*value = fetch_att(p, c->attbyval, c->attlen);
			return NULL;
		case ENCODING_NARROW:
			*value = (Datum) *(const uint32 *) p;
			return NULL;
		case ENCODING_INLINE:
			*value = PointerGetDatum(p);
			return VARATT_IS_1B(p) && !VARATT_IS_1B_E(p) && VARSIZE_1B(p) <= sc->width ? NULL :
				"is longer than its field";
		case ENCODING_REFERENCE:
			return read_reference(s, c->attlen, *(const PMPtr *) p, value);
		case ENCODING_DICTIONARY:
			return read_code(s, &s->dictionaries[sc->column], code_get(p, sc->width), value);
		case ENCODING_ABSENT:
			break;
	}
	return "has no known encoding";
}

/* The live column of an attribute, -1: none */
static int64
column_of(const Salvage *s, Form_pg_attribute att)
{
	uint64		i;

	for (i = 0; i < s->ncolumns; i++)
		if (s->columns[i].attnum == att->attnum && s->columns[i].state == COLUMN_LIVE)
			return (int64) i;
	return -1;
}

static const char *
read_attribute(Salvage *s, const ShapeHeader *shape, const BlockHeader *block, const RowRef *ref,
			   int i, Datum *value, bool *isnull)
{
	Form_pg_attribute att = TupleDescAttr(s->tupdesc, i);
	int64		column = column_of(s, att);
	const ShapeColumn *c = column < 0 ? NULL : shape_column(shape, column);

	*value = (Datum) 0;
	*isnull = true;
	if (!compat_is_stored(att))
		return NULL;
	if (column < 0)
	{
		/* one that cannot be told may be its */
		for (uint64 k = 0; k < s->ncolumns; k++)
			if (s->column_problem[k] != NULL)
				return "may be in a damaged column";
	}
	else if (s->column_problem[column] != NULL)
		return "is in a damaged column";
	else if (s->columns[column].attlen != att->attlen || s->columns[column].attbyval != att->attbyval)
		return "is stored with another physical type";
	if (c == NULL)
	{
		*value = getmissingattr(s->tupdesc, i + 1, isnull);
		return NULL;
	}
	if (c->null_bit != SHAPE_NEVER_NULL &&
		(((const uint8 *) ref->words)[shape->null_offset + c->null_bit / 8] &
		 (1 << (c->null_bit % 8))))
		return NULL;
	*isnull = false;
	return read_field(s, c, (const char *) block + c->offset + (Size) ref->index * c->stride, value);
}

/* ---- rows ---- */

/* Is the row visible to the snapshot?  *problem is set if its words cannot be believed. */
static bool
row_is_visible(const Salvage *s, const RowRef *ref, const char **problem)
{
	RowWords	words = {.begin = word_read(&ref->words->begin),.end = word_read(&ref->words->end)};

	*problem = NULL;
	if (words.begin == WORD_EMPTY || words.begin == WORD_ABORTED ||
		words.begin == (WORD_ABORTED | BEGIN_HEAP_ONLY))
		return false;
	if (word_problem(words.begin, true) != NULL || word_problem(words.end, false) != NULL)
		*problem = "its stamp is damaged";
	else if ((WORD_TAG(words.begin) == WORD_TAG_PROGRESS &&
			  !TransactionIdIsValid(txn_word_xid(words.begin))) ||
			 (WORD_TAG(words.end) == WORD_TAG_PROGRESS &&
			  !TransactionIdIsValid(txn_word_xid(words.end))))
		*problem = "it names a transaction that is not there";
	else
		return txn_version_visible(s->id, ref->row, &words, s->snapshot);
	return false;
}

static void
salvage_row(Salvage *s, const ShapeHeader *shape, const BlockHeader *block, const RowRef *ref)
{
	int			natts = s->tupdesc->natts;
	Datum	   *values;
	bool	   *isnull;
	const char *problem;
	char		place[64];
	int			i;

	snprintf(place, sizeof(place), "row id " UINT64_FORMAT, ref->row);
	if (!row_is_visible(s, ref, &problem))
	{
		if (problem != NULL)
			tell(s, place, "left out: %s", problem);
		return;
	}
	if (row_check(s->plans[shape->id], ref) !=
		(word_read(&ref->words->begin) & BEGIN_CHECK_MASK) >> BEGIN_CHECK_SHIFT)
	{
		tell(s, place, "left out: its fields do not have its checksum");
		return;
	}
	values = palloc(Max(natts, 1) * sizeof(Datum));
	isnull = palloc(Max(natts, 1) * sizeof(bool));
	for (i = 0; i < natts; i++)
	{
		problem = read_attribute(s, shape, block, ref, i, &values[i], &isnull[i]);
		if (problem != NULL)
		{
			tell(s, place, "left out: value of column \"%s\" %s",
				 NameStr(TupleDescAttr(s->tupdesc, i)->attname), problem);
			return;
		}
	}
	s->fn(s->arg, values, isnull);
}

static const char *
one_block_problem(const Salvage *s, const void *copy, uint64 number)
{
	const BlockHeader *b = copy;

	return b->magic != SOFORT_BLOCK_MAGIC || b->crc != block_crc(b) || b->store != s->id ||
		b->block_number != number || b->capacity != block_capacity(number) ?
		"its header is damaged" : NULL;
}

static void
salvage_block(Salvage *s, uint64 number)
{
	PMPtr		entry = word_read(block_entry(&s->header, number));
	PMPtr		p = correct_reference(s, entry, sizeof(BlockHeader));
	BlockHeader copy = {0};
	const char *problem;
	const ShapeHeader *shape = NULL;
	char		place[64];
	RowRef		ref;

	if (entry == PM_NULL)
		return;
	snprintf(place, sizeof(place), "block " UINT64_FORMAT, number);
	if (p == PM_NULL)
		problem = "it is not allocated";
	else
	{
		copy = *(BlockHeader *) pm_deref(p);
		problem = correct(s, &copy, offsetof(BlockHeader, head_check), one_block_problem, number);
	}
	if (problem == NULL)
	{
		shape = copy.shape < s->nshapes ? s->shapes[copy.shape] : NULL;
		if (shape == NULL)
			problem = "its shape is damaged";
		else if (pm_allocated_size(pm_ptr((char *) pm_deref(p) + shape->record_offset +
										  (Size) block_capacity(number) * shape->record_stride - 1)) == 0)
			problem = "it is longer than its allocation";
	}
	if (problem != NULL)
	{
		tell(s, place, "its rows, at most %u, are left out: %s", block_capacity(number), problem);
		return;
	}
	ref.block = pm_deref(p);
	for (ref.index = 0; ref.index < block_capacity(number); ref.index++)
	{
		MemoryContext old = MemoryContextSwitchTo(s->row_context);

		ref.row = number * SOFORT_BLOCK_ROWS + ref.index;
		ref.words = (RowWords *) ((char *) ref.block + shape->record_offset +
								  (Size) ref.index * shape->record_stride);
		salvage_row(s, shape, ref.block, &ref);
		MemoryContextSwitchTo(old);
		MemoryContextReset(s->row_context);
	}
}

/*
 * Call fn for each readable row of a table that nobody changes (ShareLock), visible
 * to the active snapshot, and report for all that is left out.  Both may be called
 * in a short-lived memory context.  Errors: data_corrupted, if not even the
 * header of the store can be found.
 */
void
store_salvage(Relation rel, SalvagedRow fn, StoreReport report, void *arg)
{
	Salvage		s = {.fn = fn,.report = report,.arg = arg,.tupdesc = RelationGetDescr(rel),
	.snapshot = GetActiveSnapshot()};
	const char *problem = "it was not found in the directory of the pool";
	uint64		n;

	pool_require();
	txn_resolve_leftovers();
	if (find_header(&s, rel))
		problem = correct(&s, &s.header, sizeof(StoreHeader), header_problem, 0);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("nothing of relation \"%s\" can be read in the sofort pool",
						RelationGetRelationName(rel)),
				 errdetail("Its header is damaged beyond one bit: %s.", problem),
				 errhint("Restore it from a backup.")));
	s.id = store_id_of(&s.header);
	s.row_context = AllocSetContextCreate(CurrentMemoryContext, "sofort salvage",
										  ALLOCSET_DEFAULT_SIZES);
	copy_columns(&s);
	copy_shapes(&s);
	for (n = 0; n < store_block_count(&s.header); n++)
	{
		CHECK_FOR_INTERRUPTS();
		salvage_block(&s, n);
	}
	MemoryContextDelete(s.row_context);
}
