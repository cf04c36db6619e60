/*-------------------------------------------------------------------------
 *
 * tableam.h
 *	  The table access method "sofort": what other modules may use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TABLEAM_TABLEAM_H
#define SOFORT_TABLEAM_TABLEAM_H

#include "access/tableam.h"
#include "sofort/store/store.h"

/* _PG_init, preloading or not: the hooks of drop.c. */
extern void tableam_init(void);

/* The routine that sofort_handler() returns. */
extern const TableAmRoutine *tableam_routine(void);

/*
 * Set by src/exec: is the index complete, so that nobody searches the table in its place?
 * (Index access methods are above this module.)
 */
extern bool (*tableam_index_is_complete) (Relation index);

/* Is this a table (or materialized view) of ours? */
static inline bool
tableam_is_sofort(Relation rel)
{
	return rel->rd_tableam == tableam_routine();
}

/* ---- slots ---- */

extern const TupleTableSlotOps TTSOpsSofort;

#define TTS_IS_SOFORT(slot) ((slot)->tts_ops == &TTSOpsSofort)

/*
 * Puts a row version into a slot of ours; its columns are decoded when asked for.  The
 * caller guarantees that the version stays (by its snapshot, or a lock).
 */
extern void tableam_store_row(TupleTableSlot *slot, Relation rel, StoreDesc *store,
							  const RowRef *ref);

/* The same for a row that is settled, without looking for it until somebody wants to know more */
extern void tableam_store_settled(TupleTableSlot *slot, Relation rel, StoreDesc *store, uint64 row,
								  const ItemPointerData *tid);

/*
 * Decodes only these columns (attnum - FirstLowInvalidHeapAttributeNumber), now and
 * whenever the slot is filled: the others read as NULL.  For a slot whose readers are known
 * to use no others.
 */
extern void tableam_slot_restrict(TupleTableSlot *slot, const Bitmapset *attrs);

/* The version that a slot was filled from; NULL if it holds other values. */
extern const RowRef *tableam_slot_row(TupleTableSlot *slot);

/* ---- updates without the executor's nodes ---- */

/* Will an update of the row in the slot need index entries, whatever it changes? */
extern bool tableam_row_gets_root(TupleTableSlot *slot, Relation rel);

/*
 * table_tuple_update() for a caller that cannot insert into indexes.  Waits for row locks.
 * False: nothing was done, because the row is not current any more, or a column of an index
 * changes (the index may have been made since the statement began).
 */
extern bool tableam_update_in_chain(Relation rel, ItemPointer otid, TupleTableSlot *slot,
									CommandId cid, Snapshot crosscheck);

#endif							/* SOFORT_TABLEAM_TABLEAM_H */
