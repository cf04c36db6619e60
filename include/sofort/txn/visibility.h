/*-------------------------------------------------------------------------
 *
 * visibility.h
 *	  The hot paths of txn.h, inline; and how the store changes words.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TXN_VISIBILITY_H
#define SOFORT_TXN_VISIBILITY_H

#include "sofort/pmem/persist.h"
#include "sofort/txn/txn.h"
#include "utils/snapmgr.h"

/* The snapshot xmin that was widened last in this transaction. */
typedef struct TxnWideXmin
{
	TransactionId xmin;			/* InvalidTransactionId: none */
	uint64		wide;
} TxnWideXmin;

extern TxnWideXmin TxnLastXmin;
extern uint64 txn_widen_xmin(TransactionId xmin);

static inline uint64
txn_snapshot_xmin(Snapshot snapshot)
{
	if (likely(snapshot->xmin == TxnLastXmin.xmin))
		return TxnLastXmin.wide;
	return txn_widen_xmin(snapshot->xmin);
}

/*
 * For TxnStoreOps.  Both take words of (slot, generation) only, and loop
 * because a locker may set END_LOCKERS meanwhile.  They return whether the word
 * was changed (flushed, not drained).
 */

/* The word becomes the stamp of fxid, flags kept. */
static inline bool
txn_stamp_word(uint64 *word, uint32 slot, uint32 generation, uint64 fxid)
{
	for (;;)
	{
		uint64		w = word_read(word);

		if (WORD_TAG(w) != WORD_TAG_PROGRESS || WORD_SLOT(w) != slot ||
			WORD_GENERATION(w) != generation)
			return false;
		if (word_cas(word, w, WORD_MAKE_STAMP(fxid) | (w & WORD_FLAGS_MASK)))
			break;
	}
	pm_flush(word, sizeof(uint64));
	return true;
}

/* Is this word the transaction's own, of a command that is to be undone? */
static inline bool
txn_word_to_undo(uint64 w, uint32 slot, uint32 generation, CommandId from_command)
{
	return WORD_TAG(w) == WORD_TAG_PROGRESS && WORD_SLOT(w) == slot &&
		WORD_GENERATION(w) == generation && WORD_COMMAND(w) >= from_command;
}

/* A claimed end word becomes EMPTY, or LOCKERS if END_LOCKERS is set. */
static inline bool
txn_undo_end_word(uint64 *word, uint32 slot, uint32 generation, CommandId from_command)
{
	for (;;)
	{
		uint64		w = word_read(word);

		if (!txn_word_to_undo(w, slot, generation, from_command))
			return false;
		if (word_cas(word, w, (w & END_LOCKERS) ? WORD_LOCKERS : WORD_EMPTY))
			break;
	}
	pm_flush(word, sizeof(uint64));
	return true;
}

#endif							/* SOFORT_TXN_VISIBILITY_H */
