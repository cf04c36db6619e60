/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Writing row versions.
 *
 * A row is filled while its begin word is EMPTY (in this process's view) and it belongs
 * to a reservation; then the begin word is stored, and all its lines are flushed.  No
 * order is needed between the lines: the write set names the row first, and the
 * transaction cannot commit before the drain.  Where a drain is slow there is none
 * between a row and the link to it (README.md, "Where a drain waits for a disk").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "common/hashfn.h"
#include "pgstat.h"
#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "sofort/txn/kept.h"

#define MAX_MISFITS		8
#define PRUNE_ONE_IN	4
#define MEASURE_ONE_IN	256

/* ---- preparing a row id ---- */

void
references_free(ReferenceBatch *batch)
{
	if (batch->n > 0)
		pm_free_batch(batch->owner, batch->link, batch->n);
	batch->n = 0;
}

static void
note_reference(ReferenceBatch *batch, PMPtr *field)
{
	if (batch->n == lengthof(batch->link))
		references_free(batch);
	batch->link[batch->n++] = field;
}

/*
 * Notes the values by reference of an EMPTY row, which are to be freed: after a quarantine,
 * or where a crash or an ERROR left a half-filled row.  Frees some of them now, the rest
 * with references_free(), before anybody can fill the row.
 */
void
row_note_references(ReferenceBatch *batch, const ShapePlan *plan, const RowRef *ref)
{
	int			i;

	for (i = 0; i < plan->nrefs; i++)
	{
		PMPtr	   *field = (PMPtr *) ((char *) ref->block + plan->ref_offset[i] +
									   (Size) ref->index * plan->ref_stride[i]);

		if (*field != PM_NULL)
			note_reference(batch, field);
	}
}

/*
 * The same of a dead root that keeps its slot: the values that nobody reads any more, of
 * columns to which no index refers.
 */
void
row_note_unread_references(ReferenceBatch *batch, const ShapeHeader *s, const RowRef *ref,
						   const Bitmapset *key_columns)
{
	for (int k = 0; k < s->ncolumns; k++)
	{
		const ShapeColumn *c = &s->columns[k];
		PMPtr	   *field = (PMPtr *) ((char *) ref->block + c->offset + (Size) ref->index * c->stride);

		if (c->encoding == ENCODING_REFERENCE && *field != PM_NULL &&
			!bms_is_member(c->column, key_columns))
			note_reference(batch, field);
	}
}

static void
free_references(StoreId owner, const ShapePlan *plan, const RowRef *ref)
{
	ReferenceBatch batch = {.owner = owner,.n = 0};

	if (plan->nrefs == 0)
		return;
	row_note_references(&batch, plan, ref);
	references_free(&batch);
}

/*
 * Flushed even if it is 0 already: the process that cleared it may have failed, or been
 * killed, before it drained that.
 */
static void
clear_word(uint64 *word)
{
	if (word == NULL)
		return;
	if (*word != 0)
		pm_store8(word, 0);
	else
		pm_flush(word, sizeof(uint64));
}

/*
 * A reserved row may have been used before.  Its begin word was made EMPTY
 * without a flush, so the medium may still hold a dead version: the end word
 * must not become EMPTY there before the begin word is.  Within one line stores
 * keep their order.
 */
static void
prepare_row(const ShapePlan *plan, const RowRef *ref)
{
	Assert(word_read(&ref->words->begin) == WORD_EMPTY);
	if (ref->words->end != WORD_EMPTY)
	{
		if (words_straddle(ref->words))
			pm_persist(&ref->words->begin, sizeof(uint64));
		else
			pm_line_order(&ref->words->begin);
		__atomic_store_n(&ref->words->end, WORD_EMPTY, __ATOMIC_RELEASE);
	}
	free_references(ref->block->store, plan, ref);
	clear_word(link_slot(ref->block, ref->index));
	clear_word(successor_slot(ref->block, ref->index));
}

/* The link of a version that replaces "old": to it, which may be the root. */
static inline uint64
link_to_predecessor(const RowRef *old)
{
	return (word_read(&old->words->begin) & BEGIN_HEAP_ONLY) ? LINK_MAKE(old->row) :
		LINK_MAKE_ROOT(old->row);
}

/* Flush n rows of a block from "index" on. */
static void
row_flush(const ShapePlan *plan, const BlockHeader *block, uint32 index, uint32 n)
{
	int			i;

	for (i = 0; i < plan->nminipages; i++)
		pm_flush((const char *) block + plan->mini_offset[i] + (Size) index * plan->mini_stride[i],
				 (Size) n * plan->mini_stride[i]);
	pm_flush((const char *) block + plan->record_offset + (Size) index * plan->record_stride,
			 (Size) n * plan->record_stride);
}

/* ---- encoding ---- */

static inline void
put_code(char *p, int width, uint32 code)
{
	if (width == 1)
		*(uint8 *) p = (uint8) code;
	else if (width == 2)
		*(uint16 *) p = (uint16) code;
	else
		*(uint32 *) p = code;
}

/*
 * An UPDATE does not change most columns: if the old version's code stands for this very
 * value, or its bytes are where the Datum points, no look-up is needed.  Only a shortcut:
 * false says nothing.
 */
static inline bool
keep_code(const ShapePlan *plan, const AttrPlan *a, const ShapeAttr *attr, const RowRef *old,
		  Datum value, char *p)
{
	const char *field = (const char *) old->block + a->offset + (Size) old->index * a->stride;
	uint32		code = code_get(field, attr->width);
	const char *element = a->values + (Size) code * a->dictionary->values.elem_size;

	if (code >= a->chunk0 || attr_is_null(plan, a, old))
		return false;
	if (attr->byval ? fetch_att(element, true, attr->attlen) != value :
		attr->attlen > 0 ? element != DatumGetPointer(value) :
		pm_deref(*(const PMPtr *) element) != (void *) DatumGetPointer(value))
		return false;
	put_code(p, attr->width, code);
	return true;
}

static bool
encode_dictionary(StoreDesc *store, ShapePlan *plan, int i, Datum value, char *p)
{
	const ShapeAttr *a = &plan->reader->attr[i];
	uint64		limit = a->width == 4 ? DICT_FULL : UINT64CONST(1) << (8 * a->width);
	char		buffer[sizeof(Datum)];
	const char *bytes;
	Size		len;
	uint32		code;

	if (unlikely(plan->index[i] == NULL))
		plan->index[i] = dictionary_attach(store->shared,
										   unconstify(DictionaryHeader *, a->dictionary), 0);
	if (a->byval)
	{
		store_att_byval(buffer, value, a->attlen);
		code = dictionary_code_byval(store->shared, plan->index[i], buffer, a->attlen,
									 plan->plan[i].values, plan->plan[i].chunk0, limit,
									 store->local->reserved);
	}
	else
	{
		bytes = value_bytes(column_get(store->header, store->local->column[i]), value, &len,
							buffer);
		/* in the dictionary it would be uncompressed, and stay until many values are unused */
		if (len > STORE_DICTIONARY_VALUE_MAX)
			return false;
		code = dictionary_code(store->shared, plan->index[i], bytes, len, limit,
							   store->local->reserved);
	}
	if (code == DICT_FULL)
		return false;
	put_code(p, a->width, code);
	return true;
}

static bool
encode_narrow(const ShapeAttr *attr, Datum value, char *p)
{
	Assert(attr->attlen == 8 && attr->width == STORE_NARROW_WIDTH);
	if ((uint64) value >> (8 * STORE_NARROW_WIDTH) != 0)
		return false;
	*(uint32 *) p = (uint32) value;
	return true;
}

static bool
encode_inline(StoreDesc *store, const ShapeAttr *a, int i, Datum value, char *p)
{
	Size		len;
	const char *bytes = value_bytes(column_get(store->header, store->local->column[i]), value,
									&len, NULL);

	if (len + VARHDRSZ_SHORT > a->width)
		return false;
	SET_VARSIZE_SHORT(p, len + VARHDRSZ_SHORT);
	memcpy(p + VARHDRSZ_SHORT, bytes, len);
	return true;
}

/* A column that the shape does not have reads as the missing value, which must be NULL, too. */
static inline bool
fits_absent(const ShapePlan *plan, const ShapeAttr *attr, int i, bool isnull)
{
	return attr->dropped || (isnull && plan->missing_null[i]);
}

/*
 * Writes a value that is not NULL to its field; false if the shape cannot hold it.  One by
 * reference is not written. old: as encode_fields().
 */
static inline bool
encode_field(StoreDesc *store, ShapePlan *plan, int i, Datum value, const RowRef *old, char *p)
{
	const AttrPlan *a = &plan->plan[i];
	const ShapeAttr *attr = &plan->reader->attr[i];

	switch (attr->encoding)
	{
		case ENCODING_PLAIN:
			if (attr->byval)
				store_att_byval(p, value, attr->attlen);
			else
				memcpy(p, DatumGetPointer(value), attr->attlen);
			return true;
		case ENCODING_NARROW:
			return encode_narrow(attr, value, p);
		case ENCODING_DICTIONARY:
			return (old != NULL && keep_code(plan, a, attr, old, value, p)) ||
				encode_dictionary(store, plan, i, value, p);
		case ENCODING_INLINE:
			return encode_inline(store, attr, i, value, p);
		default:
			return true;
	}
}

/*
 * Writes the values of an EMPTY row; false if the shape cannot hold one of them.  Values by
 * reference are only noted, behind *nrefs others. old: a version of the same shape that
 * probably has many of the values, or NULL.
 */
static bool
encode_fields(StoreDesc *store, ShapePlan *plan, const RowRef *ref, const Datum *values,
			  const bool *isnull, const RowRef *old, int *nrefs)
{
	struct StoreLocal *local = store->local;
	char	   *block = (char *) ref->block;
	char	   *record = (char *) ref->words;
	int			n = *nrefs;
	int			i;

	memset(record + plan->null_offset, 0xff, plan->null_bytes);
	for (i = 0; i < plan->natts; i++)
	{
		const AttrPlan *a = &plan->plan[i];
		const ShapeAttr *attr = &plan->reader->attr[i];
		char	   *p;

		if (attr->encoding == ENCODING_ABSENT)
		{
			if (!fits_absent(plan, attr, i, isnull[i]))
				return false;
			continue;
		}
		if (isnull[i])
		{
			if (a->null_mask == 0)
				return false;
			continue;
		}
		/* (without a bitmap this is no byte of one: others change the words meanwhile) */
		if (a->null_mask != 0)
			record[plan->null_offset + a->null_byte] &= ~a->null_mask;
		p = block + a->offset + (Size) ref->index * a->stride;
		if (attr->encoding == ENCODING_REFERENCE)
		{
			local->ref_atts[n] = i;
			local->ref_fields[n] = (uint64) (uintptr_t) p;
			local->ref_values[n++] = values[i];
		}
		else if (!encode_field(store, plan, i, values[i], old, p))
			return false;
	}
	*nrefs = n;
	return true;
}

/*
 * Fills one reserved row, except its values by reference; false if it does not fit. old:
 * the version that this one replaces, or NULL.
 */
static bool
fill_fields(StoreDesc *store, uint64 row, const Datum *values, const bool *isnull,
			const RowRef *old, RowRef *ref, int *nrefs)
{
	ShapePlan  *plan;
	bool		fits;

	if (!store_locate(store, row, ref))
		elog(ERROR, "sofort store " UINT64_FORMAT ": reserved row " UINT64_FORMAT " has no storage",
			 store->id, row);
	plan = plan_get(store, ref->block->shape);
	prepare_row(plan, ref);
	if (old != NULL && old->block->shape != ref->block->shape)
		old = NULL;
	epoch_enter();
	fits = encode_fields(store, plan, ref, values, isnull, old, nrefs);
	if (unlikely(pg_atomic_read_u32(&store->shared->nmarking) > 0))
		dictionary_mark_row(store->shared, plan->shape, ref, false);
	epoch_exit();
	value_reset();
	return fits;
}

/* row, rows_left: see value_store_references() */
static void
store_references(StoreDesc *store, int nrefs, const RowRef *row, uint32 rows_left)
{
	const struct StoreLocal *local = store->local;

	if (nrefs == 0)
		return;
	value_store_references(store, nrefs, local->ref_fields, local->ref_values, local->ref_atts,
						   row, rows_left);
	value_reset();
}

/* Fills the first row of a reservation; false if it does not fit. */
static bool
fill_row(StoreDesc *store, const Reservation *r, const Datum *values, const bool *isnull,
		 const RowRef *old, RowRef *ref)
{
	int			nrefs = 0;

	if (!fill_fields(store, r->row, values, isnull, old, ref, &nrefs))
		return false;
	store_references(store, nrefs, ref, r->count - 1);
	return true;
}

/* ---- rows that do not fit ---- */

/* Can the shape hold this value?  It is added to a dictionary that has room. */
static bool
value_fits(StoreDesc *store, ShapePlan *plan, int i, Datum value, bool isnull)
{
	const ShapeAttr *attr = &plan->reader->attr[i];
	uint64		field[STORE_INLINE_MAX / sizeof(uint64)];

	if (attr->encoding == ENCODING_ABSENT)
		return fits_absent(plan, attr, i, isnull);
	if (isnull)
		return plan->plan[i].null_mask != 0;
	/* these fit; a plain one may be wider than the buffer */
	if (attr->encoding == ENCODING_PLAIN || attr->encoding == ENCODING_REFERENCE)
		return true;
	return encode_field(store, plan, i, value, NULL, (char *) field);
}

/* Finds all values of a row that the shape cannot hold, in the order of the attributes. */
static int
find_misfits(StoreDesc *store, uint32 shape, const Datum *values, const bool *isnull,
			 ShapeMisfit *misfit)
{
	ShapePlan  *plan = plan_get(store, shape);
	char		buffer[sizeof(Datum)];
	int			n = 0;
	int			i;

	epoch_enter();
	for (i = 0; i < plan->natts; i++)
		if (!value_fits(store, plan, i, values[i], isnull[i]))
			misfit[n++].attno = i;
	epoch_exit();
	for (i = 0; i < n; i++)
	{
		int			att = misfit[i].attno;

		misfit[i].isnull = isnull[att];
		misfit[i].size = 0;
		if (!isnull[att])
			(void) value_bytes(column_get(store->header, store->local->column[att]), values[att],
							   &misfit[i].size, buffer);
	}
	return n;
}

/*
 * Makes the newest shape wide enough for all values of the row, before a block of it is
 * made: a block for each value that does not fit would take space in proportion to the
 * square of the number of columns.
 */
static void
widen_for(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull)
{
	ShapeMisfit *misfits;

	column_ensure(rel, store);
	misfits = MemoryContextAlloc(value_context(),
								 Max(store->local->natts, 1) * sizeof(ShapeMisfit));
	for (;;)
	{
		uint32		newest = pg_atomic_read_u32(&store->shared->current_shape);
		int			n = find_misfits(store, newest, values, isnull, misfits);

		if (n == 0)
			break;
		shape_widen(store, newest, misfits, n);
	}
	value_reset();
}

/*
 * A value did not fit the block of the main reservation: puts this row into a block of the
 * newest shape, made wider if need be.  The main reservation is kept for later rows, unless
 * they do not fit again and again.
 */
static Reservation *
fill_other_row(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull,
			   RowRef *ref)
{
	struct StoreLocal *local = store->local;

	if (++local->main.misfits > MAX_MISFITS)
	{
		space_give(store->shared, local->main.row, local->main.count);
		local->main.count = 0;
		local->avoid_older = true;
	}
	for (;;)
	{
		uint32		newest = pg_atomic_read_u32(&store->shared->current_shape);

		if (ref->block->shape == newest)
			widen_for(rel, store, values, isnull);
		space_reserve_other(rel, store);
		if (fill_row(store, &local->other, values, isnull, NULL, ref))
			return &local->other;
	}
}

/* (A statement of a kept transaction can be cut and undone alone.) */
bool
store_goes_with_subxact(Relation rel)
{
	return compat_is_new_storage(rel) && !txn_is_kept();
}

/* Find a place for a row and fill it; begin is still EMPTY. */
static Reservation *
place_row(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull,
		  const RowRef *old, RowRef *ref)
{
	struct StoreLocal *local = store->local;

	store->local->new_storage = store_goes_with_subxact(rel);
	if (unlikely(store_block_count(store->header) == 0))
		tid_note_row(rel, store, values, isnull);
	if (old != NULL && store->header->tid_fill != 0 && space_reserve_near(rel, store, old->row))
	{
		if (fill_row(store, &local->near, values, isnull, old, ref))
			return &local->near;
		space_give(store->shared, local->near.row, 1);
		local->near.count = 0;
	}
	space_reserve(rel, store, 1);
	if (likely(fill_row(store, &local->main, values, isnull, old, ref)))
	{
		local->main.misfits = 0;
		return &local->main;
	}
	return fill_other_row(rel, store, values, isnull, ref);
}

/* The begin word with the check of the row's fields, which are complete. */
static inline uint64
begin_with_check(StoreDesc *store, const RowRef *ref, uint64 begin)
{
	const ShapePlan *plan = plan_get(store, ref->block->shape);

	return word_seal((begin & ~BEGIN_CHECK_MASK) |
					 (row_check(plan, ref) << BEGIN_CHECK_SHIFT));
}

/*
 * Counts versions that are stored with stamps.  Those in progress are counted when their
 * words become stamps.
 */
static void
count_stamped(StoreDesc *store, uint64 begin, uint64 end, int n)
{
	bool		dead = WORD_TAG(end) == WORD_TAG_STAMP;

	if (WORD_TAG(begin) == WORD_TAG_STAMP)
		stats_count(store->shared, dead ? 0 : n, dead ? n : 0);
}

/* Makes a version of the row: logs it, stores the words, flushes.  Not drained. */
static void
finish_row(StoreDesc *store, Reservation *r, const RowRef *ref, uint64 begin, uint64 end)
{
	if (WORD_TAG(begin) == WORD_TAG_PROGRESS)
		txn_log(store->id, TXN_ENTRY_BEGIN, r->row, r->count);
	if (WORD_TAG(end) == WORD_TAG_PROGRESS)
		txn_log(store->id, TXN_ENTRY_END, r->row, 1);
	r->row++;
	r->count--;
	if (end != WORD_EMPTY)
		ref->words->end = word_seal(end);
	__atomic_store_n(&ref->words->begin, begin_with_check(store, ref, begin), __ATOMIC_RELEASE);
	row_flush(plan_get(store, ref->block->shape), ref->block, ref->index, 1);
	count_stamped(store, begin, end, 1);
}

/* ---- the interface ---- */

/* Prefetches the lines that the next version will be written to, while others are read. */
static void
prefetch_row(StoreDesc *store, uint64 row)
{
	const ShapePlan *guess = store->local->guess;
	uint32		index = row % SOFORT_BLOCK_ROWS;
	char	   *block = (char *) block_get(store->header, row / SOFORT_BLOCK_ROWS);

	__builtin_prefetch(block, 1);
	if (guess == NULL)
		return;
	__builtin_prefetch(block + guess->record_offset + (Size) index * guess->record_stride, 1);
	if (guess->nminipages > 0)
		__builtin_prefetch(block + guess->mini_offset[0] + (Size) index * guess->mini_stride[0], 1);
}

uint64
store_next_row(Relation rel, StoreDesc *store, const RowRef *old)
{
	const Reservation *r = &store->local->main;

	if (unlikely(store->header->tid_fill != 0) && space_reserve_near(rel, store, old->row))
		r = &store->local->near;
	else
		space_reserve(rel, store, 1);
	prefetch_row(store, r->row);
	return r->row;
}

void
store_insert(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull,
			 uint64 begin, RowRef *ref)
{
	Reservation *r = place_row(rel, store, values, isnull, NULL, ref);

	finish_row(store, r, ref, begin, WORD_EMPTY);
	SOFORT_STOP("store-row-written");
}

/* Not drained: nobody can see the new store before its transaction commits. */
void
store_insert_raw(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull,
				 uint64 begin, uint64 end, RowRef *ref)
{
	Reservation *r;

	if (unlikely(store_block_count(store->header) == 0))
		tid_note_row(rel, store, values, isnull);
	if (store->local->main.count == 0)
		space_reserve(rel, store, SOFORT_BLOCK_ROWS);
	r = place_row(rel, store, values, isnull, NULL, ref);
	finish_row(store, r, ref, begin & ~BEGIN_HEAP_ONLY, end);
}

/* Rows of the main reservation that are filled, except their values by reference */
typedef struct WaitingRows
{
	int			n;
	int			nrefs;
	RowRef		row[4 * PM_INTENTS_PER_BACKEND];
} WaitingRows;

/* They become versions. */
static void
begin_waiting(StoreDesc *store, WaitingRows *waiting, uint64 begin)
{
	Reservation *r = &store->local->main;

	store_references(store, waiting->nrefs, NULL, 0);
	for (int i = 0; i < waiting->n; i++)
		__atomic_store_n(&waiting->row[i].words->begin,
						 begin_with_check(store, &waiting->row[i], begin), __ATOMIC_RELEASE);
	r->row += waiting->n;
	r->count -= waiting->n;
	waiting->n = waiting->nrefs = 0;
}

/*
 * Fills rows of the main reservation, up to the first that does not fit.  Returns how many;
 * they are flushed, not drained.
 */
static int
insert_reserved(StoreDesc *store, Datum *const *values, bool *const *isnull, int n, uint64 begin,
				uint64 *rows)
{
	Reservation *r = &store->local->main;
	uint64		first = r->row;
	RowRef		start = {.row = 0};
	WaitingRows waiting = {.n = 0,.nrefs = 0};
	int			i;

	n = Min(n, (int) r->count);
	if (WORD_TAG(begin) == WORD_TAG_PROGRESS)
		txn_log(store->id, TXN_ENTRY_BEGIN, r->row, r->count);
	for (i = 0; i < n; i++)
	{
		if (!fill_fields(store, first + i, values[i], isnull[i], NULL, &waiting.row[waiting.n],
						 &waiting.nrefs))
			break;
		if (i == 0)
			start = waiting.row[0];
		rows[i] = first + i;
		/* values by reference: as many at a time as there are intents for */
		if (++waiting.n == lengthof(waiting.row) || waiting.nrefs == 0 ||
			waiting.nrefs >= PM_INTENTS_PER_BACKEND)
			begin_waiting(store, &waiting, begin);
	}
	begin_waiting(store, &waiting, begin);
	if (i > 0)
		row_flush(plan_get(store, start.block->shape), start.block, start.index, i);
	count_stamped(store, begin, WORD_EMPTY, i);
	return i;
}

void
store_insert_many(Relation rel, StoreDesc *store, Datum *const *values, bool *const *isnull,
				  int n, uint64 begin, uint64 *rows)
{
	int			done = 0;

	store->local->new_storage = store_goes_with_subxact(rel);
	if (unlikely(store_block_count(store->header) == 0) && n > 0)
		tid_note_row(rel, store, values[0], isnull[0]);
	while (done < n)
	{
		int			k;

		space_reserve(rel, store, n - done);
		k = insert_reserved(store, values + done, isnull + done, n - done, begin, rows + done);
		done += k;
		if (done < n && store->local->main.count > 0)
		{
			/* the next one does not fit */
			RowRef		ref;
			Reservation *r = place_row(rel, store, values[done], isnull[done], NULL, &ref);

			finish_row(store, r, &ref, begin, WORD_EMPTY);
			rows[done++] = ref.row;
		}
	}
	SOFORT_STOP("store-rows-written");
}

/* The new version joins the chain of its root (store/README.md, "Chains"). */
static void
finish_heap_only(Relation rel, StoreDesc *store, Reservation *r, const RowRef *old, RowRef *ref,
				 uint64 begin)
{
	RowRef		root;
	uint64	   *own;
	uint64	   *top;
	int			nfreed = 0;
	uint32		lot = hash_bytes_uint32((uint32) (begin ^ (begin >> 32)));

	if (!store_locate(store, store_chain_root(store, old), &root))
		elog(ERROR, "sofort store " UINT64_FORMAT ": row " UINT64_FORMAT " has no root",
			 store->id, old->row);
	if (unlikely(root.row == old->row && (word_read(&old->words->begin) & BEGIN_HEAP_ONLY)))
		pm_damaged("a row version has no link to its root");
	own = block_ensure_links(store, ref->block, false) + ref->index;
	top = block_ensure_links(store, root.block, false) + root.index;
	pm_store8(own, link_to_predecessor(old));
	finish_row(store, r, ref, begin | BEGIN_HEAP_ONLY, WORD_EMPTY);
	if (!pm_drain_is_slow())
		pm_drain();
	SOFORT_STOP("store-row-written");

	LWLockAcquire(chain_lock(store->id, root.row), LW_EXCLUSIVE);
	__atomic_store_n(top, LINK_MAKE(ref->row), __ATOMIC_RELEASE);
	pm_flush(top, sizeof(uint64));	/* durable with the commit, which is when it is needed */
	SOFORT_STOP("store-link-published");
	/* looking at older versions costs cache misses; by a hash, so no row is left out */
	if (lot % PRUNE_ONE_IN == 0)
		nfreed += chain_prune_inline(store, &root, old);
	LWLockRelease(chain_lock(store->id, root.row));
	if (old->row != root.row && garbage_note(store, root.row, ref))
		nfreed += garbage_collect(store);
	if (nfreed > 0)
		pgstat_update_heap_dead_tuples(rel, nfreed);
	if (lot / PRUNE_ONE_IN % MEASURE_ONE_IN == 0)
		milestone_consider(store, root.row, ref);
}

void
store_insert_successor(Relation rel, StoreDesc *store, const RowRef *old, const Datum *values,
					   const bool *isnull, uint64 begin, bool heap_only, RowRef *ref)
{
	Reservation *r = place_row(rel, store, values, isnull, old, ref);
	uint64	   *slot;

	if (heap_only)
	{
		finish_heap_only(rel, store, r, old, ref, begin);
		return;
	}
	slot = block_ensure_links(store, old->block, true) + old->index;
	finish_row(store, r, ref, begin, WORD_EMPTY);
	if (!pm_drain_is_slow())
		pm_drain();
	SOFORT_STOP("store-row-written");
	__atomic_store_n(slot, LINK_MAKE(ref->row), __ATOMIC_RELEASE);
	pm_flush(slot, sizeof(uint64));
	SOFORT_STOP("store-successor-published");
}

void
store_set_successor(StoreDesc *store, uint64 row, uint64 successor)
{
	RowRef		ref;

	if (store_locate(store, row, &ref))
		pm_store8(block_ensure_links(store, ref.block, true) + ref.index,
				  LINK_MAKE(successor));
}
