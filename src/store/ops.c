/*-------------------------------------------------------------------------
 *
 * ops.c
 *	  What the transaction layer asks of the store: stamping, undo, drops.
 *
 * Runs at transaction end and at start-up, perhaps in the postmaster: no
 * palloc, no pool allocation, no ERROR, no relation.  Of a shape only the
 * place of the records is needed (but in builds for tests: spoil_fields()).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/store_internal.h"
#include "sofort/txn/visibility.h"

static StoreHeader *
find_store(const TxnEntry *entry, StoreShared **shared)
{
	StoreDesc  *desc = desc_find(entry->store);

	if (desc != NULL)
	{
		*shared = desc->shared;
		return desc->header;
	}
	return registry_find_shared(entry->store, shared);
}

static RowWords *
find_words(StoreId store, uint64 row)
{
	StoreHeader *header = store_find_by_id(store);
	RowRef		ref;

	return header != NULL && header_locate(header, row, &ref) ? ref.words : NULL;
}

/*
 * header_locate() for one row after the other: *stride leads from the last one's record to the
 * next in its block.  0: there was none.
 */
static inline bool
next_row(const StoreHeader *header, uint64 row, RowRef *ref, uint32 *stride)
{
	if (*stride != 0 && ref->index + 1 < ref->block->capacity)
	{
		ref->row++;
		ref->index++;
		ref->words = (RowWords *) ((char *) ref->words + *stride);
		return true;
	}
	*stride = 0;
	if (!header_locate(header, row, ref))
		return false;
	*stride = shape_get(header, ref->block->shape)->record_stride;
	return true;
}

static void
stamp_rows(const TxnEntry *entry, uint32 slot, uint32 generation, uint64 fxid)
{
	StoreShared *shared;
	StoreHeader *header = find_store(entry, &shared);
	bool		begin = entry->kind == TXN_ENTRY_BEGIN;
	uint64		last = entry->row + entry->count;
	uint64		row;
	RowRef		ref;
	uint32		stride = 0;
	int64		n = 0;

	if (header == NULL)
		return;
	for (row = entry->row; row < last; row++)
	{
		if (!next_row(header, row, &ref, &stride))
			continue;
		if (txn_stamp_word(begin ? &ref.words->begin : &ref.words->end, slot, generation, fxid))
			n++;
		else if (txn_recovering)
			pm_flush(ref.words, sizeof(RowWords));
	}
	if (shared != NULL)
		stats_count(shared, begin ? n : -n, begin ? 0 : n);
}

/*
 * A root that is undone must lead nowhere: all versions of its chain were undone before it.
 * After a power cut its link may still be that of a version which had its row before: it
 * would lead into another row's chain, or to whatever is there by now.
 */
static void
forget_link(const RowRef *root)
{
	uint64	   *slot = word_slot_quietly(&root->block->links, root->index);

	if (slot != NULL && (word_read(slot) != 0 || txn_recovering))
		pm_store8(slot, 0);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Builds for tests: fills the fields of a row that is undone, and the values to which it
 * refers, with junk, as a power cut may (README.md, "Insert").  Not flushed.
 */
static void
spoil_fields(const StoreHeader *header, const RowRef *ref)
{
	static const uint32 varlena_header[] = {0, 0xFFFFFFFC, 300 << 2 | 2, 0x1201};
	const ShapeHeader *s = shape_get(header, ref->block->shape);
	int			how = (int) (ref->row % 4);

	if (how < 3)
		memset((char *) ref->words + s->null_offset, how == 2 ? 0xFF : 0, shape_null_bytes(s));
	for (int k = 0; k < s->ncolumns; k++)
	{
		const ShapeColumn *c = &s->columns[k];
		char	   *p = (char *) ref->block + c->offset + (Size) ref->index * c->stride;
		Size		size;

		if (c->encoding != ENCODING_REFERENCE)
			memset(p, how % 2 == 0 ? 0 : 0xFF, c->width);
		else if ((size = pm_allocated_size(*(PMPtr *) p)) > sizeof(uint32))
		{
			char	   *value = pm_deref(*(PMPtr *) p);

			memset(value, 0xA5, size);
			memcpy(value, &varlena_header[(ref->row / 4) % 4], sizeof(uint32));
		}
	}
}
#endif

/* A start undoes EMPTY rows, too: an index may have their entries. */
static bool
begin_is_to_undo(uint64 begin, uint32 slot, uint32 generation, CommandId from_command)
{
	return txn_word_to_undo(begin, slot, generation, from_command) ||
		(txn_recovering && begin == WORD_EMPTY);
}

/*
 * Takes versions whose creation is about to be undone out of their chains; durably, because
 * whoever frees an ABORTED one does not look for a link to it.  (Not at a start: a power
 * cut may have left links that lead round and round. restore_unended() leads the root past
 * them.)
 */
static bool
leave_chains(StoreHeader *header, const TxnEntry *entry, uint32 slot, uint32 generation,
			 CommandId from_command)
{
	uint64		row = entry->row + entry->count;
	bool		left = false;

	/* backwards: a later version of a chain comes out before an earlier one */
	while (row-- > entry->row)
	{
		RowRef		ref;
		uint64		begin;

		if (!header_locate(header, row, &ref))
			continue;
		begin = word_read(&ref.words->begin);
		if (txn_word_to_undo(begin, slot, generation, from_command) && (begin & BEGIN_HEAP_ONLY))
		{
			chain_unlink(header, &ref);
			left = true;
		}
	}
	return left;
}

/* Undoes the creation of a version that is not in a chain any more. */
static void
undo_begin(StoreHeader *header, const RowRef *ref)
{
	/* only its creator changes a begin word in progress */
	uint64		old = word_read(&ref->words->begin);

	if ((old & BEGIN_HEAP_ONLY) == 0)
		forget_link(ref);
	if (word_cas(&ref->words->begin, old, WORD_ABORTED | (old & BEGIN_HEAP_ONLY)))
		pm_flush(&ref->words->begin, sizeof(uint64));
#ifdef USE_ASSERT_CHECKING
	if (txn_recovering)
		spoil_fields(header, ref);
#endif
}

/*
 * Clears the successor words of versions whose end is about to be undone; durably, because
 * whoever ends one next, in another way, must not be taken for the maker of a stale one.
 * (Not at a start, when nobody else runs: restore_unended() clears them.)
 */
static bool
clear_successors(StoreHeader *header, const TxnEntry *entry, uint32 slot, uint32 generation,
				 CommandId from_command)
{
	bool		cleared = false;
	uint64		row;

	for (row = entry->row; row < entry->row + entry->count; row++)
	{
		RowRef		ref;
		uint64	   *successor;

		if (!header_locate(header, row, &ref) ||
			!txn_word_to_undo(word_read(&ref.words->end), slot, generation, from_command))
			continue;
		successor = word_slot_quietly(&ref.block->successors, ref.index);
		if (successor != NULL && word_read(successor) != 0)
		{
			pm_store8(successor, 0);
			cleared = true;
		}
	}
	return cleared;
}

/*
 * A power cut may have left a link to a new version, or a successor word, without the
 * version and the claim (README.md, "Where a drain waits for a disk").  A version that is
 * not ended has no successor, and is the newest of its chain, unless it is being undone.
 */
static void
restore_unended(StoreHeader *header, const RowRef *ref, uint32 slot, uint32 generation,
				CommandId from_command)
{
	uint64		begin = word_read(&ref->words->begin);
	uint64		end = word_read(&ref->words->end);
	uint64	   *successor = word_slot_quietly(&ref->block->successors, ref->index);

	if (WORD_TAG(end) == WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_PROGRESS)
		return;
	if (successor != NULL)
		pm_store8(successor, 0);
	if (WORD_TAG(begin) == WORD_TAG_STAMP ||
		(txn_word_to_undo(begin, slot, generation, 0) &&
		 !txn_word_to_undo(begin, slot, generation, from_command)))
		chain_restore_newest(header, ref);
}

static bool
undo_links(const TxnEntry *entry, uint32 slot, uint32 generation, CommandId from_command)
{
	StoreShared *shared;
	StoreHeader *header = find_store(entry, &shared);

	Assert(!txn_recovering);
	if (header == NULL)
		return false;
	if (entry->kind == TXN_ENTRY_BEGIN)
		return leave_chains(header, entry, slot, generation, from_command);
	return clear_successors(header, entry, slot, generation, from_command);
}

static void
undo_rows(const TxnEntry *entry, uint32 slot, uint32 generation, CommandId from_command)
{
	StoreShared *shared;
	StoreHeader *header = find_store(entry, &shared);
	bool		begin = entry->kind == TXN_ENTRY_BEGIN;
	uint64		row;
	RowRef		ref;
	uint32		stride = 0;
	int64		n = 0;

	if (header == NULL)
		return;
	for (row = entry->row; row < entry->row + entry->count; row++)
	{
		if (!next_row(header, row, &ref, &stride))
			continue;
		if (begin && begin_is_to_undo(word_read(&ref.words->begin), slot, generation, from_command))
		{
			undo_begin(header, &ref);
			n++;
		}
		else if (!begin && txn_undo_end_word(&ref.words->end, slot, generation, from_command))
			n++;
		else if (txn_recovering)
		{
			/* see README.md, "Killed in the undo" */
			if (begin && word_read(&ref.words->begin) == WORD_ABORTED)
				forget_link(&ref);
			pm_flush(ref.words, sizeof(RowWords));
		}
		if (!begin && txn_recovering)
			restore_unended(header, &ref, slot, generation, from_command);
	}
	if (shared != NULL && begin)
		stats_count(shared, 0, n);
}

static void
drop_store(StoreId store)
{
	/* before its pages go: touching one after that would take an empty one, unaccounted for */
	txn_forget_locks(store);
	registry_drop(store);
}

static void
drop_column(StoreId store, uint64 column)
{
	StoreHeader *header = store_find_by_id(store);

	if (header == NULL)
		return;
	column_drop(header, column);
	desc_mark_stale(store);
}

static void
end_of_xact(bool committed)
{
	space_end_of_xact();
	stats_end_of_xact();
	chain_end_of_xact();
	value_reset();				/* an error may have left a value */
	value_end_of_xact();
}

/*
 * A subtransaction that aborts releases its locks on relations: others may then drop a
 * store, or release its runs, while this transaction goes on.  So nothing of a store may be
 * kept, neither reservations nor counts.
 */
static void
end_of_subxact(SubTransactionId sub, SubTransactionId parent, bool committed)
{
	if (committed)
		return;
	space_end_of_xact();
	stats_end_of_xact();
}

const TxnStoreOps StoreOps = {
	.stamp_rows = stamp_rows,
	.undo_links = undo_links,
	.undo_rows = undo_rows,
	.end_of_other = stats_end_of_xact,
	.drop_store = drop_store,
	.drop_column = drop_column,
	.find_words = find_words,
	.store_emptied = registry_is_emptied,
	.end_of_xact = end_of_xact,
	.end_of_subxact = end_of_subxact,
};
