/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *	  Callbacks of the table access method; private to src/tableam.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TABLEAM_CALLBACKS_H
#define SOFORT_TABLEAM_CALLBACKS_H

#include "sofort/compat/tableam.h"
#include "sofort/store/store.h"
#include "sofort/tableam/tableam.h"
#include "sofort/txn/txn.h"

struct IndexInfo;
struct ValidateIndexState;
struct SampleScanState;

/*
 * A scan of any type.  Rows of the current block are collected in one visit
 * (page-at-a-time, as heap does for MVCC snapshots); for other snapshots only
 * candidates are collected, and each is tested when its turn comes.
 */
typedef struct SofortScanData
{
	TableScanDescData base;
	StoreDesc  *store;
	StoreDesc  *reader;			/* the same, as reader_desc says: ALTER TABLE */
	TupleDesc	reader_desc;
	ParallelBlockTableScanWorkerData *worker;	/* parallel scans only */

	BlockNumber nblocks;		/* of the relation when the scan started, as TIDs count */
	BlockNumber first_block;	/* scan [first_block, end_block) */
	BlockNumber end_block;
	uint64		min_position;	/* and only rows within, inclusive */
	uint64		max_position;

	bool		tested;			/* rows[] holds visible rows only */
	bool		check_conflicts;	/* SSI must be told of versions */
	uint64		seen_before;	/* a stamp below it is visible */

	bool		started;
	BlockNumber block;			/* current block */
	StoreReadAhead ahead;
	int			nrows;
	int			next;			/* index of the current row in rows[] */
	RowRef		rows[SOFORT_BLOCK_ROWS];
} SofortScanData;

typedef SofortScanData *SofortScan;

/* slot.c */
extern void tableam_slot_written(TupleTableSlot *slot, Relation rel, StoreDesc *store,
								 const RowRef *ref, uint64 shown_end);
extern const TupleTableSlotOps *tableam_slot_callbacks(Relation rel);

/* From now on heap tuples copied from the slot refer to long values in the pool (ANALYZE). */
extern void tableam_slot_for_sample(TupleTableSlot *slot);

/* summaries.c */
extern void tableam_note_summaries(Relation rel);
extern void tableam_update_summaries(Relation rel, TupleTableSlot *slot, ItemPointer root);

/* scan.c */
extern TableScanDesc tableam_scan_begin(Relation rel, Snapshot snapshot, int nkeys,
										struct ScanKeyData *key,
										ParallelTableScanDesc pscan, uint32 flags);
extern void tableam_scan_end(TableScanDesc scan);
extern void tableam_scan_rescan(TableScanDesc scan, struct ScanKeyData *key, bool set_params,
								bool allow_strat, bool allow_sync, bool allow_pagemode);
extern bool tableam_scan_getnextslot(TableScanDesc scan, ScanDirection direction,
									 TupleTableSlot *slot);
extern void tableam_scan_set_tidrange(TableScanDesc scan, ItemPointer mintid,
									  ItemPointer maxtid);
extern Size tableam_parallelscan_initialize(Relation rel, ParallelTableScanDesc pscan);
extern BlockNumber tableam_next_block(SofortScan scan, ScanDirection direction);
extern void tableam_read_ahead(SofortScan scan, BlockNumber block);

/* scan_block.c: bitmap, sample and ANALYZE scans */
extern bool tableam_bitmap_block(SofortScan scan, BlockNumber block,
								 const OffsetNumber *offsets, int noffsets);
extern bool tableam_bitmap_tuple(SofortScan scan, TupleTableSlot *slot);
extern bool tableam_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *state);
extern bool tableam_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *state,
										   TupleTableSlot *slot);
extern void tableam_analyze_block(SofortScan scan, BlockNumber block);
extern bool tableam_scan_analyze_next_tuple(TableScanDesc scan, TransactionId oldest_xmin,
											double *liverows, double *deadrows,
											TupleTableSlot *slot);

/* index_fetch.c */
extern bool tableam_locate(StoreDesc *store, const ItemPointerData *tid, RowRef *ref);
extern bool tableam_fetch_chain(Relation rel, StoreDesc *store, uint64 root, Snapshot snapshot,
								RowRef *found, bool *all_dead);
extern struct IndexFetchTableData *tableam_index_fetch_begin(Relation rel);
extern void tableam_index_fetch_reset(struct IndexFetchTableData *data);
extern void tableam_index_fetch_end(struct IndexFetchTableData *data);
extern bool tableam_index_fetch_tuple(struct IndexFetchTableData *data, ItemPointer tid,
									  Snapshot snapshot, TupleTableSlot *slot,
									  bool *call_again, bool *all_dead);
extern bool tableam_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot,
											TupleTableSlot *slot);
extern bool tableam_tuple_tid_valid(TableScanDesc scan, ItemPointer tid);
extern void tableam_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid);
extern bool tableam_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot,
											 Snapshot snapshot);
extern TransactionId tableam_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate);

/* modify.c */
extern void tableam_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
								 struct BulkInsertStateData *bistate);
extern void tableam_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
											 int options, struct BulkInsertStateData *bistate,
											 uint32 token);
extern void tableam_tuple_complete_speculative(Relation rel, TupleTableSlot *slot,
											   uint32 token, bool succeeded);
extern void tableam_multi_insert(Relation rel, TupleTableSlot **slots, int nslots,
								 CommandId cid, int options,
								 struct BulkInsertStateData *bistate);
extern TM_Result tableam_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
									  Snapshot snapshot, Snapshot crosscheck, bool wait,
									  TM_FailureData *tmfd, bool changing_part);
extern TM_Result tableam_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot,
									  CommandId cid, Snapshot snapshot, Snapshot crosscheck,
									  bool wait, TM_FailureData *tmfd,
									  LockTupleMode *lockmode,
									  CompatUpdateIndexes *update_indexes);
extern TxnRow tableam_txn_row(Relation rel, StoreDesc *store, const RowRef *ref);
extern TM_Result tableam_fill_ctid(StoreDesc *store, const RowRef *ref, TM_Result result,
								   TM_FailureData *tmfd);
extern TM_Result tableam_row_is_gone(ItemPointer tid, TM_FailureData *tmfd);

/* lock.c */
extern TM_Result tableam_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot,
									TupleTableSlot *slot, CommandId cid, LockTupleMode mode,
									LockWaitPolicy policy, uint8 flags, TM_FailureData *tmfd);

/* ddl.c */
extern void tableam_set_new_file(Relation rel, const RelFileLocator *locator, char persistence,
								 TransactionId *freeze_xid, MultiXactId *minmulti);
extern void tableam_nontransactional_truncate(Relation rel);
extern void tableam_copy_data(Relation rel, const RelFileLocator *locator);
extern uint64 tableam_relation_size(Relation rel, ForkNumber fork);
extern bool tableam_needs_toast_table(Relation rel);
extern Oid	tableam_toast_am(Relation rel);

/* 55006 if a kept transaction that waits to be resumed uses the table. */
extern void tableam_refuse_waiting(Relation rel);

/* cluster.c */
typedef struct TableCopyCounts
{
	double		copied;
	double		removed;
	double		recently_dead;
} TableCopyCounts;

extern void tableam_copy_rows(Relation from, StoreDesc *source, Relation to, StoreDesc *target,
							  TableCopyCounts *counts);
extern void tableam_copy_for_cluster(Relation from, Relation to, Relation index, bool use_sort,
									 TransactionId oldest_xmin, TransactionId *xid_cutoff,
									 MultiXactId *multi_cutoff, double *num_tuples,
									 double *tups_vacuumed, double *tups_recently_dead);

/* vacuum.c */
extern void tableam_relation_vacuum(Relation rel, struct VacuumParams *params,
									BufferAccessStrategy strategy);

/* index_build.c */
extern double tableam_index_build_range_scan(Relation rel, Relation index,
											 struct IndexInfo *info, bool allow_sync,
											 bool anyvisible, bool progress,
											 BlockNumber start_block, BlockNumber nblocks,
											 IndexBuildCallback callback, void *callback_state,
											 TableScanDesc scan);
extern void tableam_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info,
										Snapshot snapshot, struct ValidateIndexState *state);

/* estimate.c */
extern void tableam_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages,
								  double *tuples, double *allvisfrac);

/* drop.c */
extern void tableam_reindex_after_alter(Oid relid);

#endif							/* SOFORT_TABLEAM_CALLBACKS_H */
