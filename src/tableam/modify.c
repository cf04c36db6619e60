/*-------------------------------------------------------------------------
 *
 * modify.c
 *	  INSERT, UPDATE, DELETE.
 *
 * Serializable transactions: heap looks for conflicting predicate locks and
 * changes the page under one page lock.  There is none here; instead writers
 * change the words first and look for locks afterwards, while readers take
 * their lock first and read the words afterwards (index_fetch.c, scan.c).
 * Whichever comes second sees the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "executor/tuptable.h"
#include "pgstat.h"
#include "sofort/compat/relcache.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/persist.h"
#include "sofort/tableam/callbacks.h"
#include "storage/predicate.h"
#include "utils/datum.h"

TxnRow
tableam_txn_row(Relation rel, StoreDesc *store, const RowRef *ref)
{
	TxnRow		row = {.rel = rel, .store = store->id, .row = ref->row, .words = ref->words};

	row_to_tid(store, ref->row, &row.tid);
	return row;
}

/* ------------------------------------------------------------------------
 * INSERT
 * ------------------------------------------------------------------------
 */

/*
 * REFRESH MATERIALIZED VIEW and COPY FREEZE fill a store that this subtransaction has made,
 * and that an abort drops as a whole.  So no row needs undoing, and each may have the stamp
 * of a transaction that every snapshot sees.
 */
static uint64
begin_word(Relation rel, CommandId cid, int options)
{
	if ((options & TABLE_INSERT_FROZEN) && store_goes_with_subxact(rel))
		return WORD_MAKE_STAMP(FrozenTransactionId);
	return txn_progress_word(cid);
}

static void
insert_row(Relation rel, TupleTableSlot *slot, CommandId cid, int options, RowRef *ref)
{
	StoreDesc  *store;

	txn_begin_write();
	store = store_open(rel);
	slot_getallattrs(slot);
	tableam_note_summaries(rel);
	store_insert(rel, store, slot->tts_values, slot->tts_isnull, begin_word(rel, cid, options), ref);
	tableam_slot_written(slot, rel, store, ref, WORD_EMPTY);
}

void
tableam_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
					 struct BulkInsertStateData *bistate)
{
	RowRef		ref;

	insert_row(rel, slot, cid, options, &ref);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	pgstat_count_heap_insert(rel, 1);
}

/* Nobody can meet the row before it is in an index, so the token may be set after it. */
void
tableam_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
								 int options, struct BulkInsertStateData *bistate, uint32 token)
{
	RowRef		ref;

	insert_row(rel, slot, cid, 0, &ref);
	txn_speculate(store_open(rel)->id, ref.row, token);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	pgstat_count_heap_insert(rel, 1);
}

/*
 * A row that lost the race is aborted alone, before the token is released, so
 * that whoever waited for it finds it gone.  The end of the transaction leaves
 * the word alone, because it no longer names it.
 */
void
tableam_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token,
								   bool succeeded)
{
	if (!succeeded)
	{
		StoreDesc  *store = store_open(rel);
		RowRef		ref;
		uint64		begin;

		if (!tableam_locate(store, &slot->tts_tid, &ref))
			elog(ERROR, "speculatively inserted row has vanished");
		/* VACUUM may give it to others before this transaction has ended here */
		pm_settle_durably();
		begin = word_read(&ref.words->begin);
		if (!txn_word_is_mine(begin) || !word_cas(&ref.words->begin, begin, WORD_ABORTED))
			elog(ERROR, "speculatively inserted row is not ours");
		pm_flush(ref.words, sizeof(RowWords));
		pgstat_count_heap_delete(rel);
	}
	txn_speculation_end();
}

void
tableam_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid,
					 int options, struct BulkInsertStateData *bistate)
{
	StoreDesc  *store;
	Datum	  **values = palloc(nslots * sizeof(Datum *));
	bool	  **isnull = palloc(nslots * sizeof(bool *));
	uint64	   *rows = palloc(nslots * sizeof(uint64));

	txn_begin_write();
	store = store_open(rel);
	for (int i = 0; i < nslots; i++)
	{
		slot_getallattrs(slots[i]);
		values[i] = slots[i]->tts_values;
		isnull[i] = slots[i]->tts_isnull;
	}
	tableam_note_summaries(rel);
	store_insert_many(rel, store, values, isnull, nslots, begin_word(rel, cid, options), rows);
	for (int i = 0; i < nslots; i++)
	{
		RowRef		ref;

		/* triggers alone look at system columns */
		if (rel->trigdesc != NULL && store_locate(store, rows[i], &ref))
			tableam_slot_written(slots[i], rel, store, &ref, WORD_EMPTY);
		else
		{
			slots[i]->tts_tableOid = RelationGetRelid(rel);
			row_to_tid(store, rows[i], &slots[i]->tts_tid);
		}
	}

	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	pgstat_count_heap_insert(rel, nslots);
	pfree(rows);
	pfree(isnull);
	pfree(values);
}

/* ------------------------------------------------------------------------
 * Failures
 * ------------------------------------------------------------------------
 */

/* The row id was freed meanwhile; see heap_update() about the choice. */
TM_Result
tableam_row_is_gone(ItemPointer tid, TM_FailureData *tmfd)
{
	tmfd->ctid = *tid;
	tmfd->xmax = InvalidTransactionId;
	tmfd->cmax = InvalidCommandId;
	return TM_Deleted;
}

/* Adds the TID of the next version, as heap's t_ctid: the version itself if it was deleted. */
TM_Result
tableam_fill_ctid(StoreDesc *store, const RowRef *ref, TM_Result result, TM_FailureData *tmfd)
{
	uint64		end = word_read(&ref->words->end);
	RowRef		successor;

	row_to_tid(store, ref->row, &tmfd->ctid);
	if (WORD_TAG(end) != WORD_TAG_STAMP && WORD_TAG(end) != WORD_TAG_PROGRESS)
		return result;
	if (end & END_MOVED)
	{
		ItemPointerSetMovedPartitions(&tmfd->ctid);
		if (result == TM_Deleted)
			result = TM_Updated;
	}
	else if ((end & END_UPDATED) && store_successor(store, ref, &successor))
		row_to_tid(store, successor.row, &tmfd->ctid);
	return result;
}

/*
 * Claims a version that was logged, for DELETE or UPDATE; after that no reader takes it, or
 * its chain, for settled.
 */
static TM_Result
claim(StoreDesc *store, const RowRef *ref, const TxnRow *row, CommandId cid, Snapshot crosscheck,
	  uint64 end_flags, bool wait, TM_FailureData *tmfd)
{
	TM_Result	result = txn_claim_row(row, cid, crosscheck, end_flags, wait, tmfd);

	if (result == TM_Invisible)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 (end_flags & END_UPDATED) != 0 ?
				 errmsg("attempted to update invisible tuple") :
				 errmsg("attempted to delete invisible tuple")));
	if (result != TM_Ok)
		return tableam_fill_ctid(store, ref, result, tmfd);
	store_unsettle(store, ref);
	return TM_Ok;
}

/* ------------------------------------------------------------------------
 * DELETE
 * ------------------------------------------------------------------------
 */

TM_Result
tableam_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot,
					 Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changing_part)
{
	StoreDesc  *store;
	RowRef		ref;
	TxnRow		row;
	TM_Result	result;

	txn_begin_write();
	store = store_open(rel);
	if (!tableam_locate(store, tid, &ref))
		return tableam_row_is_gone(tid, tmfd);

	row = tableam_txn_row(rel, store, &ref);
	txn_log(store->id, TXN_ENTRY_END, ref.row, 1);
	result = claim(store, &ref, &row, cid, crosscheck,
				   END_KEYS | (changing_part ? END_MOVED : 0), wait, tmfd);
	if (result != TM_Ok)
		return result;

	CheckForSerializableConflictIn(rel, tid, ItemPointerGetBlockNumber(tid));
	pgstat_count_heap_delete(rel);
	store_chain_ended(rel, store, &ref);
	return TM_Ok;
}

/* ------------------------------------------------------------------------
 * UPDATE
 * ------------------------------------------------------------------------
 */

/*
 * Are two values the same?  As on heap, bytes decide and not an operator; but how a varlena
 * is packed does not matter, because no index sees the difference.
 */
static bool
same_image(Form_pg_attribute att, Datum a, Datum b)
{
	struct varlena *va;
	struct varlena *vb;
	bool		same;

	if (att->attbyval || att->attlen != -1)
		return datumIsEqual(a, b, att->attbyval, att->attlen);
	if (DatumGetPointer(a) == DatumGetPointer(b))
		return true;

	va = pg_detoast_datum_packed((struct varlena *) DatumGetPointer(a));
	vb = pg_detoast_datum_packed((struct varlena *) DatumGetPointer(b));
	same = VARSIZE_ANY_EXHDR(va) == VARSIZE_ANY_EXHDR(vb) &&
		memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), VARSIZE_ANY_EXHDR(va)) == 0;
	if ((Pointer) va != DatumGetPointer(a))
		pfree(va);
	if ((Pointer) vb != DatumGetPointer(b))
		pfree(vb);
	return same;
}

/*
 * Gives values narrower than a Datum the form in which they would come out of a row.  Input
 * functions may leave anything in the other bytes (oid, enums), and whole Datums are
 * compared, here and by triggers of foreign keys.
 */
static void
use_stored_images(TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	int			i;

	for (i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Datum	   *value = &slot->tts_values[i];

		if (!att->attbyval || slot->tts_isnull[i])
			continue;
		if (att->attlen == sizeof(int32))
			*value = Int32GetDatum(DatumGetInt32(*value));
		else if (att->attlen == sizeof(int16))
			*value = Int16GetDatum(DatumGetInt16(*value));
		else if (att->attlen == sizeof(char))
			*value = CharGetDatum(DatumGetChar(*value));
	}
}

/*
 * Does the update change one of these attributes?  A whole-row reference or a
 * system column in an index counts as changed.
 */
static bool
attrs_changed(Relation rel, Bitmapset *attrs, const Datum *old_values, const bool *old_isnull,
			  TupleTableSlot *slot)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			member = -1;

	while ((member = bms_next_member(attrs, member)) >= 0)
	{
		int			attnum = member + FirstLowInvalidHeapAttributeNumber;

		if (attnum == TableOidAttributeNumber)
			continue;
		if (attnum <= 0)
			return true;
		if (old_isnull[attnum - 1] != slot->tts_isnull[attnum - 1])
			return true;
		if (!old_isnull[attnum - 1] &&
			!same_image(TupleDescAttr(desc, attnum - 1), old_values[attnum - 1],
						slot->tts_values[attnum - 1]))
			return true;
	}
	return false;
}

/*
 * heap_only: no index column changes, except those of summarizing indexes. summaries: such
 * a column changes. keys: a column that a foreign key could refer to changes, which
 * excludes KEY SHARE.
 */
static void
classify_update(Relation rel, StoreDesc *store, const RowRef *old, TupleTableSlot *slot,
				bool *heap_only, bool *summaries, bool *keys)
{
	Bitmapset  *hot_attrs = compat_hot_blocking_attrs(rel);
	Bitmapset  *summarized = compat_summarized_attrs(rel);
	Bitmapset  *key_attrs = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_KEY);
	Datum		values[MaxTupleAttributeNumber];
	bool		isnull[MaxTupleAttributeNumber];
	Bitmapset  *attrs = bms_join(bms_union(hot_attrs, key_attrs), bms_copy(summarized));

	if (!bms_is_empty(attrs))
		store_decode_some(store, old, attrs, values, isnull);
	*heap_only = !attrs_changed(rel, hot_attrs, values, isnull, slot);
	*summaries = attrs_changed(rel, summarized, values, isnull, slot);
	*keys = attrs_changed(rel, key_attrs, values, isnull, slot);
	bms_free(attrs);
	bms_free(key_attrs);
	bms_free(summarized);
	bms_free(hot_attrs);
}

/* Which indexes the caller of an update gives entries of the new version, in slot. */
static CompatUpdateIndexes
indexes_of_update(Relation rel, StoreDesc *store, const RowRef *old, TupleTableSlot *slot,
				  bool heap_only, bool summaries)
{
	if (!heap_only)
	{
		tableam_note_summaries(rel);
		store_chain_ended(rel, store, old);
		return COMPAT_UPDATE_INDEXES_ALL;
	}
	if (summaries)
	{
		ItemPointerData root;

		row_to_tid(store, store_chain_root(store, old), &root);
		tableam_update_summaries(rel, slot, &root);
	}
	return COMPAT_UPDATE_INDEXES_NONE;
}

/*
 * Heap shows our own lock on the old version, and those of others, as xmax of the new one.
 * People use "RETURNING xmax = 0" to tell an INSERT from ON CONFLICT DO UPDATE.  A lock that
 * is in the word goes with the claim; the others stay beside it, as long as there are any.
 */
static bool
own_lock_in_word(const RowRef *old)
{
	uint64		end = word_read(&old->words->end);

	return WORD_TAG(end) == WORD_TAG_LOCK &&
		TransactionIdIsCurrentTransactionId(txn_word_xid(end));
}

static bool
has_lockers(const RowRef *claimed)
{
	return (word_read(&claimed->words->end) & END_LOCKERS) != 0;
}

/* keys: does the update change columns that foreign keys may refer to? */
static TM_Result
claim_for_update(Relation rel, StoreDesc *store, const RowRef *old, const TxnRow *old_row,
				 CommandId cid, Snapshot crosscheck, bool wait, bool keys, TM_FailureData *tmfd)
{
	txn_log_update(store->id, old->row, store_next_row(rel, store, old));
	return claim(store, old, old_row, cid, crosscheck, END_UPDATED | (keys ? END_KEYS : 0), wait,
				 tmfd);
}

/*
 * UPDATE.  A row in a block that is not filled any more gets a new root, so that its whole
 * chain can go; unless the caller cannot insert into indexes (in_chain).  To such a caller
 * TM_WouldBlock means that index entries would be needed, and nothing was done.
 */
static TM_Result
update_row(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
		   Snapshot crosscheck, bool wait, bool in_chain, TM_FailureData *tmfd,
		   LockTupleMode *lockmode, CompatUpdateIndexes *update_indexes)
{
	StoreDesc  *store;
	RowRef		old;
	RowRef		new;
	TxnRow		old_row;
	TxnRow		new_row;
	ItemPointerData old_tid = *otid;
	bool		heap_only;
	bool		summaries;
	bool		keys;
	bool		locked;
	TM_Result	result;

	*lockmode = LockTupleExclusive;
	*update_indexes = COMPAT_UPDATE_INDEXES_NONE;

	txn_begin_write();
	store = store_open(rel);
	if (!tableam_locate(store, &old_tid, &old))
		return tableam_row_is_gone(&old_tid, tmfd);

	slot_getallattrs(slot);
	use_stored_images(slot);
	classify_update(rel, store, &old, slot, &heap_only, &summaries, &keys);
	if (!in_chain && store_row_is_retired(store, &old))
		heap_only = false;
	if (in_chain && !heap_only)
		return TM_WouldBlock;
	if (!keys)
		*lockmode = LockTupleNoKeyExclusive;

	old_row = tableam_txn_row(rel, store, &old);
	locked = own_lock_in_word(&old);
	result = claim_for_update(rel, store, &old, &old_row, cid, crosscheck, wait, keys, tmfd);
	if (result != TM_Ok)
		return result;
	locked |= has_lockers(&old);

	CheckForSerializableConflictIn(rel, &old_tid, ItemPointerGetBlockNumber(&old_tid));
	store_insert_successor(rel, store, &old, slot->tts_values, slot->tts_isnull,
						   txn_progress_word(cid), heap_only, &new);
	new_row = tableam_txn_row(rel, store, &new);
	txn_carry_lockers(&old_row, &new_row);
	tableam_slot_written(slot, rel, store, &new,
						 locked ? txn_progress_word(cid) : WORD_EMPTY);
	compat_count_update(rel, heap_only, ItemPointerGetBlockNumber(&old_tid) !=
						ItemPointerGetBlockNumber(&slot->tts_tid));
	*update_indexes = indexes_of_update(rel, store, &old, slot, heap_only, summaries);
	return TM_Ok;
}

TM_Result
tableam_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
					 Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
					 LockTupleMode *lockmode, CompatUpdateIndexes *update_indexes)
{
	return update_row(rel, otid, slot, cid, crosscheck, wait, false, tmfd, lockmode,
					  update_indexes);
}

/* The same, if it takes no index entries; waits. */
bool
tableam_update_in_chain(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
						Snapshot crosscheck)
{
	TM_FailureData tmfd;
	LockTupleMode lockmode;
	CompatUpdateIndexes update_indexes;

	return update_row(rel, otid, slot, cid, crosscheck, true, true, &tmfd, &lockmode,
					  &update_indexes) == TM_Ok;
}

/* Will an update of this row give it a new root, whatever it changes? */
bool
tableam_row_gets_root(TupleTableSlot *slot, Relation rel)
{
	const RowRef *row = tableam_slot_row(slot);

	return row != NULL && store_row_is_retired(store_open(rel), row);
}
