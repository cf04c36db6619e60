/*-------------------------------------------------------------------------
 *
 * slot.c
 *	  Tuple table slots for row versions of a sofort store.
 *
 * A slot is a virtual slot that knows the version it came from: columns are decoded
 * from left to right when they are asked for, by-reference values stay in the pool
 * until the slot is materialized, and the system columns are those of the words when
 * the slot was filled.  Of a row that a scan has found settled only the number is known,
 * until something is asked: an index-only scan asks nothing.  A slot may also hold values
 * set from outside (COPY, ExecStoreVirtualTuple); then there is no version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "sofort/pmem/pool.h"
#include "sofort/tableam/callbacks.h"

typedef struct SofortSlot
{
	VirtualTupleTableSlot base;
	StoreDesc  *store;			/* NULL: values set from outside */
	RowRef		ref;			/* if its block is NULL: not located yet */
	RowWords	words;			/* when the slot was filled, or EMPTY: not read yet */
	const bool *needed;			/* columns to decode; NULL: all */
	bool		for_sample;		/* heap tuples refer to long values */
} SofortSlot;

/*
 * Tuples of a sample refer to values longer than this; if the tuple is too long still, also
 * to shorter ones
 */
static const Size long_value[] = {TOAST_TUPLE_TARGET, TOAST_TUPLE_TARGET / 4, 64};

static void
slot_init(TupleTableSlot *slot)
{
	((SofortSlot *) slot)->store = NULL;
	((SofortSlot *) slot)->needed = NULL;
	((SofortSlot *) slot)->for_sample = false;
}

static void
slot_release(TupleTableSlot *slot)
{
}

static void
slot_clear(TupleTableSlot *slot)
{
	((SofortSlot *) slot)->store = NULL;
	TTSOpsVirtual.clear(slot);
}

/* Of a slot with a version, which a snapshot of ours sees: so it is there */
static inline const RowRef *
slot_ref(SofortSlot *s)
{
	if (unlikely(s->ref.block == NULL) && !store_fetch_late(s->store, s->ref.row, &s->ref))
		elog(ERROR, "row %llu of a slot is gone", (unsigned long long) s->ref.row);
	return &s->ref;
}

static void
read_words(SofortSlot *s)
{
	Assert(s->ref.block != NULL);
	s->words.begin = word_read(&s->ref.words->begin);
	s->words.end = word_read(&s->ref.words->end);
}

/* Of a slot with a version */
static const RowWords *
slot_words(SofortSlot *s)
{
	if (s->words.begin == WORD_EMPTY)
	{
		(void) slot_ref(s);
		read_words(s);
	}
	return &s->words;
}

/* For a version that the caller names, of which nothing is decoded yet */
static inline SofortSlot *
slot_begin(TupleTableSlot *slot, Relation rel, StoreDesc *store)
{
	SofortSlot *s = (SofortSlot *) slot;

	Assert(TTS_IS_SOFORT(slot));
	if (TTS_SHOULDFREE(slot))
		TTSOpsVirtual.clear(slot);

	s->store = store;
	slot->tts_nvalid = 0;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_tableOid = RelationGetRelid(rel);
	return s;
}

void
tableam_store_row(TupleTableSlot *slot, Relation rel, StoreDesc *store, const RowRef *ref)
{
	SofortSlot *s = slot_begin(slot, rel, store);

	s->ref = *ref;
	read_words(s);
	row_to_tid(store, ref->row, &slot->tts_tid);
}

void
tableam_store_settled(TupleTableSlot *slot, Relation rel, StoreDesc *store, uint64 row,
					  const ItemPointerData *tid)
{
	SofortSlot *s = slot_begin(slot, rel, store);

	s->ref.row = row;
	s->ref.block = NULL;
	s->words.begin = WORD_EMPTY;
	slot->tts_tid = *tid;
}

/*
 * The values in the slot have just been stored as this version, whose system columns
 * RETURNING may ask for. shown_end: word for xmax.
 */
void
tableam_slot_written(TupleTableSlot *slot, Relation rel, StoreDesc *store, const RowRef *ref,
					 uint64 shown_end)
{
	slot->tts_tableOid = RelationGetRelid(rel);
	row_to_tid(store, ref->row, &slot->tts_tid);
	if (TTS_IS_SOFORT(slot))
	{
		SofortSlot *s = (SofortSlot *) slot;

		Assert(slot->tts_nvalid == slot->tts_tupleDescriptor->natts);
		s->store = store;
		s->ref = *ref;
		s->words.begin = word_read(&ref->words->begin);
		s->words.end = shown_end;
	}
}

const RowRef *
tableam_slot_row(TupleTableSlot *slot)
{
	if (!TTS_IS_SOFORT(slot) || TTS_EMPTY(slot) || ((SofortSlot *) slot)->store == NULL)
		return NULL;
	return slot_ref((SofortSlot *) slot);
}

static void
slot_getsomeattrs_sofort(TupleTableSlot *slot, int natts)
{
	SofortSlot *s = (SofortSlot *) slot;

	if (s->store == NULL)
		elog(ERROR, "slot without a row version lacks attribute %d", natts);

	if (s->needed == NULL)
		store_decode(s->store, slot_ref(s), slot->tts_nvalid, natts,
					 slot->tts_values, slot->tts_isnull);
	else
		store_decode_needed(s->store, slot_ref(s), slot->tts_nvalid, natts, s->needed,
							slot->tts_values, slot->tts_isnull);
	slot->tts_nvalid = natts;
}

void
tableam_slot_restrict(TupleTableSlot *slot, const Bitmapset *attrs)
{
	int			natts = slot->tts_tupleDescriptor->natts;
	bool	   *needed = MemoryContextAlloc(slot->tts_mcxt, Max(natts, 1) * sizeof(bool));

	Assert(TTS_IS_SOFORT(slot) && TTS_EMPTY(slot));
	for (int i = 0; i < natts; i++)
		needed[i] = bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, attrs);
	((SofortSlot *) slot)->needed = needed;
}

void
tableam_slot_for_sample(TupleTableSlot *slot)
{
	Assert(TTS_IS_SOFORT(slot));
	((SofortSlot *) slot)->for_sample = true;
}

static SofortSlot *
slot_with_row(TupleTableSlot *slot)
{
	SofortSlot *s = (SofortSlot *) slot;

	Assert(!TTS_EMPTY(slot));
	if (s->store == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot retrieve a system column in this context")));
	(void) slot_ref(s);
	return s;
}

/*
 * The xid of the word as it was when the slot was filled.  If the transaction slot has been
 * reused since, the word has a stamp now.
 */
static TransactionId
shown_xid(uint64 seen, const uint64 *word)
{
	TransactionId xid = txn_word_xid(seen);

	if (!TransactionIdIsValid(xid) && WORD_TAG(seen) == WORD_TAG_PROGRESS)
		xid = txn_word_xid(word_read(word));
	return xid;
}

/* One number for both: heap has one field for cmin and cmax, and shows it in both columns. */
static CommandId
shown_command(const RowWords *words)
{
	if (WORD_TAG(words->end) == WORD_TAG_PROGRESS)
		return txn_word_command(words->end);
	return txn_word_command(words->begin);
}

static Datum
slot_getsysattr_sofort(TupleTableSlot *slot, int attnum, bool *isnull)
{
	SofortSlot *s = slot_with_row(slot);

	*isnull = false;
	switch (attnum)
	{
		case MinTransactionIdAttributeNumber:
			return TransactionIdGetDatum(shown_xid(slot_words(s)->begin, &s->ref.words->begin));
		case MaxTransactionIdAttributeNumber:
			return TransactionIdGetDatum(shown_xid(slot_words(s)->end, &s->ref.words->end));
		case MinCommandIdAttributeNumber:
		case MaxCommandIdAttributeNumber:
			return CommandIdGetDatum(shown_command(slot_words(s)));
		default:
			elog(ERROR, "invalid system attribute number %d", attnum);
	}
	return (Datum) 0;			/* keep compiler quiet */
}

COMPAT_SLOT_CALLBACK bool
slot_is_current_xact_tuple_sofort(TupleTableSlot *slot)
{
	return txn_word_is_mine(slot_words(slot_with_row(slot))->begin);
}

static void
slot_materialize_sofort(TupleTableSlot *slot)
{
	slot_getallattrs(slot);
	TTSOpsVirtual.materialize(slot);
}

static void
slot_copy(TupleTableSlot *dst, TupleTableSlot *src)
{
	int			natts = src->tts_tupleDescriptor->natts;
	SofortSlot *d = (SofortSlot *) dst;

	Assert(natts <= dst->tts_tupleDescriptor->natts);
	slot_clear(dst);
	slot_getallattrs(src);
	memcpy(dst->tts_values, src->tts_values, natts * sizeof(Datum));
	memcpy(dst->tts_isnull, src->tts_isnull, natts * sizeof(bool));
	dst->tts_nvalid = natts;
	dst->tts_flags &= ~TTS_FLAG_EMPTY;
	dst->tts_tid = src->tts_tid;
	dst->tts_tableOid = src->tts_tableOid;

	if (TTS_IS_SOFORT(src) && natts == dst->tts_tupleDescriptor->natts)
	{
		SofortSlot *s = (SofortSlot *) src;

		d->store = s->store;
		if (s->store != NULL)
		{
			d->ref = *slot_ref(s);
			d->words = *slot_words(s);
		}
	}

	/* the copy must depend neither on the source slot nor on the row */
	TTSOpsVirtual.materialize(dst);
}

typedef union IndirectValue
{
	struct varlena value;
	char		bytes[MAXALIGN(INDIRECT_POINTER_SIZE)];
} IndirectValue;

/*
 * Replaces values of the pool that are longer than this by pointers to them.  (Not those of
 * PLAIN storage: functions of their types need not detoast.)
 */
static void
refer_to_values(TupleTableSlot *slot, Size length, Datum *values, IndirectValue *pointers)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;

	for (int i = 0; i < desc->natts; i++)
	{
		struct varlena *value = (struct varlena *) DatumGetPointer(values[i]);
		varatt_indirect to;

		if (slot->tts_isnull[i] || TupleDescAttr(desc, i)->attlen != -1 ||
			TupleDescAttr(desc, i)->attstorage == TYPSTORAGE_PLAIN ||
			VARATT_IS_EXTERNAL(value) || VARSIZE_ANY(value) <= length || !pool_contains(value))
			continue;
		to.pointer = value;
		SET_VARTAG_EXTERNAL(&pointers[i], VARTAG_INDIRECT);
		memcpy(VARDATA_EXTERNAL(&pointers[i]), &to, sizeof(to));
		values[i] = PointerGetDatum(&pointers[i]);
	}
}

/*
 * ANALYZE keeps 30,000 rows or more, and expects pointers for long values, as on heap.  The
 * rows stay as long as its snapshot.
 */
static HeapTuple
form_sample_tuple(TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	Datum	   *values = palloc(Max(desc->natts, 1) * sizeof(Datum));
	IndirectValue *pointers = palloc(Max(desc->natts, 1) * sizeof(IndirectValue));
	HeapTuple	tuple;

	memcpy(values, slot->tts_values, desc->natts * sizeof(Datum));
	for (int i = 0; i < (int) lengthof(long_value) &&
		 heap_compute_data_size(desc, values, slot->tts_isnull) > TOAST_TUPLE_TARGET; i++)
		refer_to_values(slot, long_value[i], values, pointers);
	tuple = heap_form_tuple(desc, values, slot->tts_isnull);
	pfree(values);
	pfree(pointers);
	return tuple;
}

/*
 * A heap tuple with the identity that heap would give it: PL/pgSQL and
 * composite values look at its system columns.
 */
static HeapTuple
slot_copy_heap_tuple(TupleTableSlot *slot)
{
	SofortSlot *s = (SofortSlot *) slot;
	HeapTuple	tuple;

	Assert(!TTS_EMPTY(slot));
	slot_getallattrs(slot);
	tuple = s->for_sample ? form_sample_tuple(slot) :
		heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
	tuple->t_self = slot->tts_tid;
	tuple->t_tableOid = slot->tts_tableOid;
	if (s->store != NULL)
	{
		HeapTupleHeader header = tuple->t_data;
		const RowWords *now = slot_ref(s)->words;

		header->t_ctid = slot->tts_tid;
		HeapTupleHeaderSetXmin(header, shown_xid(slot_words(s)->begin, &now->begin));
		HeapTupleHeaderSetXmax(header, shown_xid(slot_words(s)->end, &now->end));
		HeapTupleHeaderSetCmin(header, shown_command(slot_words(s)));
		if (!TransactionIdIsValid(HeapTupleHeaderGetRawXmax(header)))
			header->t_infomask |= HEAP_XMAX_INVALID;
	}
	return tuple;
}

static MinimalTuple
slot_copy_minimal_tuple(COMPAT_COPY_MINIMAL_TUPLE_ARGS)
{
	Assert(!TTS_EMPTY(slot));
	slot_getallattrs(slot);
	return compat_form_minimal_tuple(slot->tts_tupleDescriptor, slot->tts_values,
									 slot->tts_isnull);
}

const TupleTableSlotOps TTSOpsSofort = {
	.base_slot_size = sizeof(SofortSlot),
	.init = slot_init,
	.release = slot_release,
	.clear = slot_clear,
	.getsomeattrs = slot_getsomeattrs_sofort,
	.getsysattr = slot_getsysattr_sofort,
	COMPAT_IS_CURRENT_XACT_TUPLE(slot_is_current_xact_tuple_sofort)
	.materialize = slot_materialize_sofort,
	.copyslot = slot_copy,
	.get_heap_tuple = NULL,
	.get_minimal_tuple = NULL,
	.copy_heap_tuple = slot_copy_heap_tuple,
	.copy_minimal_tuple = slot_copy_minimal_tuple,
};

const TupleTableSlotOps *
tableam_slot_callbacks(Relation rel)
{
	return &TTSOpsSofort;
}
