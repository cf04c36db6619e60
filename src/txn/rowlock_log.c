/*-------------------------------------------------------------------------
 *
 * rowlock_log.c
 *	  Row locks that outlast a crash: copying them to the write set of a prepared or
 *	  kept transaction, and from there into the lock table again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "txn_internal.h"

/*
 * The first entry of a TCB must be durable before others: if their generation is not in the
 * TCB's first line, a start would take these for the next transaction's.
 */
static void
append_range(const TxnEntry *range)
{
	if (range->kind == TXN_ENTRY_NONE)
		return;
	txn_append_entry(range->store, range->kind, range->row, range->count);
	if (My.nentries == 1)
		txn_drain();
}

/* Neighbouring rows with the same lock become one entry. */
static void
log_lock(TxnEntry *range, StoreId store, uint64 row, LockTupleMode mode)
{
	TxnEntryKind kind = (TxnEntryKind) (TXN_ENTRY_LOCK + mode);

	if (range->kind == kind && range->store == store && range->row + range->count == row &&
		range->count < ENTRY_MAX_COUNT)
	{
		range->count++;
		return;
	}
	append_range(range);
	range->store = store;
	range->kind = kind;
	range->row = row;
	range->count = 1;
}

/*
 * Puts all row locks of this transaction into its write set; not drained.  LOCK words
 * first: one that somebody turns into an entry meanwhile is found in the table.
 */
static void
log_locks(int64 from, RowLock *(*collect) (TxnBackend *b, int64 *n))
{
	TxnEntry	range = {0};
	RowLock    *entries;
	int64		n;
	int64		i;

	for (i = from; i < My.nlocks; i++)
	{
		LocalLock  *l = &My.locks[i];
		uint64		word;

		CHECK_FOR_INTERRUPTS();
		if (l->words == NULL)
			continue;
		word = word_read(&l->words->end);
		if (WORD_TAG(word) == WORD_TAG_LOCK && lock_word_of_this_life(word) && word_is_mine(word))
			log_lock(&range, l->store, l->row, WORD_LOCK_MODE(word));
	}
	entries = collect(My.backend, &n);
	for (i = 0; i < n; i++)
	{
		if (is_own_entry(&entries[i]))
			log_lock(&range, entries[i].store, entries[i].row, (LockTupleMode) entries[i].mode);
	}
	if (entries != NULL)
		pfree(entries);
	append_range(&range);
}

void
rowlock_log_all(void)
{
	log_locks(0, locktable_copy_owned);
}

/* The same for those of a kept transaction that are not durable yet. */
void
rowlock_log_new(void)
{
	log_locks(My.nlocks_logged, locktable_take_unlogged);
	My.nlocks_logged = My.nlocks;
}

/*
 * Put the lock of a transaction that has outlasted a crash into the lock table
 * again, before anybody else looks for lockers of that row.  False if there is no
 * such row any more.  logged: nobody who runs it adds locks meanwhile (those that
 * are not logged are in front in its list).  May raise 53200.
 */
bool
rowlock_restore(StoreId store, uint64 row, LockTupleMode mode, uint32 slot, uint32 generation,
				uint64 fxid, bool logged)
{
	TxnRow		r = {.store = store, .row = row, .words = TxnOps->find_words(store, row)};
	RowLock    *lock;

	if (r.words == NULL || !begin_is_of_version(word_read(&r.words->begin)))
		return false;
	locktable_stock(2);
	LWLockAcquire(partition_lock(&r), LW_EXCLUSIVE);
	lock = locktable_add(store, row, slot, generation, fxid, TopSubTransactionId, mode);
	if (logged)
		lock->logged = true;
	rowlock_mark(&r);
	LWLockRelease(partition_lock(&r));
	return true;
}

/* Clears the LOCK words of an entry, whoever wrote them in whichever life. */
void
rowlock_release_words(const TxnEntry *e, uint32 slot, uint32 generation)
{
	uint64		row;

	for (row = e->row; row < e->row + e->count; row++)
	{
		RowWords   *words = TxnOps->find_words(e->store, row);
		uint64		word;

		if (words == NULL)
			continue;
		word = word_read(&words->end);
		if (WORD_TAG(word) == WORD_TAG_LOCK && WORD_SLOT(word) == slot &&
			WORD_GENERATION(word) == generation)
			(void) word_cas(&words->end, word, WORD_EMPTY);
	}
}
