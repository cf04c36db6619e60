/*-------------------------------------------------------------------------
 *
 * ops.c
 *	  What the transaction layer asks of the store: stamping, undo, drops.
 *
 * Runs at transaction end and at start-up, perhaps in the postmaster: no
 * palloc, no pool allocation, no ERROR, no relation.  Of a shape only the
 * place of the records is needed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/store_internal.h"

/* Is it a progress word of this transaction, from this command on? */
static inline bool
is_own(uint64 word, uint32 slot, uint32 generation, CommandId from)
{
	return WORD_TAG(word) == WORD_TAG_PROGRESS && WORD_SLOT(word) == slot &&
		WORD_GENERATION(word) == generation && WORD_COMMAND(word) >= from;
}

/* Replace and flush; only the word that was looked at. */
static bool
replace(uint64 *word, uint64 old, uint64 new)
{
	if (!word_cas(word, old, new))
		return false;
	pm_flush(word, sizeof(uint64));
	return true;
}

static StoreHeader *
find_store(const TxnEntry *entry, StoreShared **shared)
{
	StoreDesc  *desc = desc_find(entry->store);

	if (desc != NULL)
	{
		*shared = desc->shared;
		return desc->header;
	}
	*shared = NULL;
	return store_find_by_id(entry->store);
}

static void
stamp_rows(const TxnEntry *entry, uint32 slot, uint32 generation, uint64 fxid)
{
	StoreShared *shared;
	StoreHeader *header = find_store(entry, &shared);
	bool		begin = entry->kind == TXN_ENTRY_BEGIN;
	uint64		last = entry->row + entry->count;
	uint64		row;
	int64		n = 0;

	if (header == NULL)
		return;
	for (row = entry->row; row < last; row++)
	{
		RowRef		ref;
		uint64	   *word;
		uint64		old;

		if (!header_locate(header, row, &ref))
			continue;
		word = begin ? &ref.words->begin : &ref.words->end;
		old = word_read(word);
		if (is_own(old, slot, generation, 0) &&
			replace(word, old, WORD_MAKE_STAMP(fxid) | (old & WORD_FLAGS_MASK)))
			n++;
	}
	if (shared != NULL)
		stats_count(shared, begin ? n : -n, begin ? 0 : n);
}

/* The creation of a version is undone: out of its chain, then ABORTED. */
static void
undo_begin(StoreHeader *header, const RowRef *ref, uint64 old)
{
	if (old & BEGIN_HEAP_ONLY)
		chain_unlink(header, ref);
	(void) replace(&ref->words->begin, old, WORD_ABORTED | (old & BEGIN_HEAP_ONLY));
}

/*
 * The end of a version is undone.  The successor word first, durably: nobody
 * may find a successor of a version that has none.
 */
static void
undo_end(const RowRef *ref, uint64 old)
{
	uint64	   *slot = successor_slot(ref->block, ref->index);

	if (slot != NULL && word_read(slot) != 0)
		pm_store8_persist(slot, 0);
	(void) replace(&ref->words->end, old, (old & END_LOCKERS) ? WORD_LOCKERS : WORD_EMPTY);
}

static void
undo_rows(const TxnEntry *entry, uint32 slot, uint32 generation, CommandId from_command)
{
	StoreShared *shared;
	StoreHeader *header = find_store(entry, &shared);
	bool		begin = entry->kind == TXN_ENTRY_BEGIN;
	uint64		row = entry->row + entry->count;
	int64		n = 0;

	if (header == NULL)
		return;
	/* backwards: a later version of a chain comes out before an earlier one */
	while (row-- > entry->row)
	{
		RowRef		ref;
		uint64		old;

		if (!header_locate(header, row, &ref))
			continue;
		old = word_read(begin ? &ref.words->begin : &ref.words->end);
		if (!is_own(old, slot, generation, from_command))
			continue;
		if (begin)
			undo_begin(header, &ref, old);
		else
			undo_end(&ref, old);
		n++;
	}
	if (shared != NULL && begin)
		stats_count(shared, 0, n);
}

static void
drop_store(StoreId store)
{
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
}

/* Reservations belong to the whole transaction. */
static void
end_of_subxact(SubTransactionId sub, SubTransactionId parent, bool committed)
{
}

const TxnStoreOps StoreOps = {
	.stamp_rows = stamp_rows,
	.undo_rows = undo_rows,
	.drop_store = drop_store,
	.drop_column = drop_column,
	.end_of_xact = end_of_xact,
	.end_of_subxact = end_of_subxact,
};
