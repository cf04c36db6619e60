/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Sequential, parallel and TID range scans.
 *
 * Every version is returned at its own TID (chains are followed by index and
 * bitmap scans only).  A block is visited within one epoch, so that VACUUM
 * cannot give its memory back meanwhile; rows that were found visible are
 * afterwards protected by the scan's snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/skey.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/latency.h"
#include "sofort/tableam/callbacks.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Sets what is set anew at each start of a scan. */
static void
scan_reset(SofortScan scan, struct ScanKeyData *key)
{
	TableScanDesc base = &scan->base;
	StoreDesc  *store = store_open(base->rs_rd);

	/* a reader for another descriptor is kept over rescans */
	if (store != scan->store)
	{
		scan->store = scan->reader = store;
		scan->reader_desc = RelationGetDescr(base->rs_rd);
	}
	if (base->rs_parallel != NULL)
		scan->nblocks = ((ParallelBlockTableScanDesc) base->rs_parallel)->phs_nblocks;
	else
		scan->nblocks = store_tid_blocks(scan->store);

	scan->first_block = 0;
	scan->end_block = scan->nblocks;
	scan->min_position = 0;
	scan->max_position = PG_UINT64_MAX;
	scan->started = false;
	scan->block = InvalidBlockNumber;
	memset(&scan->ahead, 0, sizeof(scan->ahead));
	scan->nrows = 0;
	scan->next = 0;

	if (base->rs_nkeys > 0 && key != NULL)
		memcpy(base->rs_key, key, base->rs_nkeys * sizeof(ScanKeyData));

	if (base->rs_flags & SO_TYPE_SEQSCAN)
		pgstat_count_heap_scan(base->rs_rd);
}

TableScanDesc
tableam_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				   ParallelTableScanDesc pscan, uint32 flags)
{
	SofortScan	scan = palloc(sizeof(SofortScanData));

	RelationIncrementReferenceCount(rel);
	memset(&scan->base, 0, sizeof(scan->base));
	scan->base.rs_rd = rel;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_nkeys = nkeys;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = pscan;
	scan->base.rs_key = nkeys > 0 ? palloc(sizeof(ScanKeyData) * nkeys) : NULL;
	scan->store = NULL;
	scan->worker = pscan ? palloc(sizeof(ParallelBlockTableScanWorkerData)) : NULL;

	/* a historic one is MVCC, too, and refused row by row */
	scan->tested = snapshot != NULL && snapshot->snapshot_type == SNAPSHOT_MVCC;
	scan->seen_before = scan->tested ? txn_widen(snapshot->xmin) : 0;

	/* ANALYZE has no snapshot */
	scan->check_conflicts = snapshot != NULL &&
		CheckForSerializableConflictOutNeeded(rel, snapshot);

	/* before the first version is read: see modify.c */
	if (flags & (SO_TYPE_SEQSCAN | SO_TYPE_SAMPLESCAN))
		PredicateLockRelation(rel, snapshot);

	scan_reset(scan, key);
	return &scan->base;
}

void
tableam_scan_rescan(TableScanDesc base, struct ScanKeyData *key, bool set_params,
					bool allow_strat, bool allow_sync, bool allow_pagemode)
{
	SofortScan	scan = (SofortScan) base;

	/* TABLESAMPLE may change page-at-a-time mode; that is ignored here. */
	scan_reset(scan, key);
}

void
tableam_scan_end(TableScanDesc base)
{
	SofortScan	scan = (SofortScan) base;

	RelationDecrementReferenceCount(base->rs_rd);
	if (base->rs_key)
		pfree(base->rs_key);
	if (scan->worker)
		pfree(scan->worker);
	if (base->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(base->rs_snapshot);
	pfree(scan);
}

/*
 * Workers get blocks in order from the start: synchronized scans, which begin in the middle
 * to share disk reads, would gain nothing here.
 */
Size
tableam_parallelscan_initialize(Relation rel, ParallelTableScanDesc pscan)
{
	Size		size = table_block_parallelscan_initialize(rel, pscan);

	pscan->phs_syncscan = false;
	return size;
}

/*
 * Is the version surely visible?  Committed before the snapshot and never touched since:
 * most rows are.
 */
static inline bool
surely_visible(SofortScan scan, uint64 begin, uint64 end)
{
	return end == WORD_EMPTY && WORD_TAG(begin) == WORD_TAG_STAMP &&
		WORD_XID(begin) < scan->seen_before;
}

/*
 * Has it surely ended, by a transaction that committed before the snapshot?  Most dead rows
 * have.
 */
static inline bool
surely_ended(SofortScan scan, uint64 end)
{
	return WORD_TAG(end) == WORD_TAG_STAMP && WORD_XID(end) < scan->seen_before;
}

static bool
version_visible(SofortScan scan, const RowRef *ref, uint64 begin, uint64 end)
{
	TableScanDesc base = &scan->base;
	bool		visible;

	visible = surely_visible(scan, begin, end) ||
		(!surely_ended(scan, end) &&
		 txn_version_visible(scan->store->id, ref->row, ref->words, base->rs_snapshot));
	if (scan->check_conflicts)
		txn_serializable_conflict_out(base->rs_rd, ref->words, visible, base->rs_snapshot);
	return visible;
}

/* A scan comes to this block, and goes on to the end. */
void
tableam_read_ahead(SofortScan scan, BlockNumber block)
{
	if (pm_on_disk)
		store_scan_ahead(scan->reader, &scan->ahead, store_first_block(scan->store, block),
						 store_first_block(scan->store, scan->end_block));
}

/* Adds those of n rows, from this one on in its block, that may be visible. */
static inline void
collect_run(SofortScan scan, const RowRef *first, uint32 n, Size stride)
{
	RowWords   *words = first->words;
	RowRef	   *ref = &scan->rows[scan->nrows];

	for (uint32 i = 0; i < n; i++, words = (RowWords *) ((char *) words + stride))
	{
		uint64		begin = word_read(&words->begin);

		if (begin == WORD_EMPTY)
			continue;
		*ref = (RowRef)
		{
			.row = first->row + i,.block = first->block,.index = first->index + i,.words = words
		};
		if (!scan->tested || version_visible(scan, ref, begin, word_read(&words->end)))
			ref++;
	}
	scan->nrows = (int) (ref - scan->rows);
}

/* Fill rows[] from a block. */
static void
collect_rows(SofortScan scan, BlockNumber block)
{
	uint64		position = (uint64) block * SOFORT_BLOCK_ROWS;
	uint64		last = position + store_rows_in(scan->store, block) - 1;
	BlockCursor cursor;

	CHECK_FOR_INTERRUPTS();
	scan->block = block;
	scan->nrows = 0;
	position = Max(position, scan->min_position);
	last = Min(last, scan->max_position);

	/* for pg_statio_user_tables: a block that is in memory, as all are */
	pgstat_count_buffer_read(scan->base.rs_rd);
	pgstat_count_buffer_hit(scan->base.rs_rd);
	pm_read_miss(store_blocks_in(scan->reader, block));
	tableam_read_ahead(scan, block);
	epoch_enter();
	store_cursor_init(&cursor);
	while (position <= last)
	{
		RowRef		first;
		bool		located;
		uint32		n = store_cursor_run(scan->reader, &cursor, position, last, &first, &located);

		if (located)
			collect_run(scan, &first, n, cursor.stride);
		position += n;
	}
	epoch_exit();
}

/* The next block of the scan, or InvalidBlockNumber. */
BlockNumber
tableam_next_block(SofortScan scan, ScanDirection direction)
{
	TableScanDesc base = &scan->base;

	if (base->rs_parallel != NULL)
	{
		ParallelBlockTableScanDesc pbscan = (ParallelBlockTableScanDesc) base->rs_parallel;

		Assert(ScanDirectionIsForward(direction));
		if (!scan->started)
			table_block_parallelscan_startblock_init(base->rs_rd, scan->worker, pbscan);
		return table_block_parallelscan_nextpage(base->rs_rd, scan->worker, pbscan);
	}

	if (scan->first_block >= scan->end_block)
		return InvalidBlockNumber;
	if (ScanDirectionIsBackward(direction))
	{
		if (!scan->started)
			return scan->end_block - 1;
		return scan->block > scan->first_block ? scan->block - 1 : InvalidBlockNumber;
	}
	if (!scan->started)
		return scan->first_block;
	return scan->block + 1 < scan->end_block ? scan->block + 1 : InvalidBlockNumber;
}

/* Move to the next candidate; false (and ready to start anew) at the end. */
static bool
scan_advance(SofortScan scan, ScanDirection direction)
{
	bool		backward = ScanDirectionIsBackward(direction);

	if (ScanDirectionIsNoMovement(direction))
		return scan->started && scan->next >= 0 && scan->next < scan->nrows;

	if (scan->started)
		scan->next += backward ? -1 : 1;
	while (!scan->started || scan->next < 0 || scan->next >= scan->nrows)
	{
		BlockNumber block = tableam_next_block(scan, direction);

		if (block == InvalidBlockNumber)
		{
			scan->started = false;
			return false;
		}
		collect_rows(scan, block);
		scan->started = true;
		scan->next = backward ? scan->nrows - 1 : 0;
	}
	return true;
}

/* Scan keys: NULL never matches. */
static bool
keys_match(TableScanDesc base, TupleTableSlot *slot)
{
	for (int i = 0; i < base->rs_nkeys; i++)
	{
		ScanKey		key = &base->rs_key[i];
		bool		isnull;
		Datum		value;

		if (key->sk_flags & SK_ISNULL)
			return false;
		value = slot_getattr(slot, key->sk_attno, &isnull);
		if (isnull || !DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation,
													  value, key->sk_argument)))
			return false;
	}
	return true;
}

/*
 * ALTER TABLE rewrites with slots of the old types, while the relation cache
 * already knows the new ones.
 */
static void
read_as(SofortScan scan, TupleDesc tupdesc)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(scan));

	scan->reader = store_open_as(scan->base.rs_rd, tupdesc);
	scan->reader_desc = tupdesc;
	MemoryContextSwitchTo(old);
}

bool
tableam_scan_getnextslot(TableScanDesc base, ScanDirection direction, TupleTableSlot *slot)
{
	SofortScan	scan = (SofortScan) base;

	if (unlikely(slot->tts_tupleDescriptor != scan->reader_desc))
		read_as(scan, slot->tts_tupleDescriptor);

	while (scan_advance(scan, direction))
	{
		const RowRef *ref = &scan->rows[scan->next];

		if (!scan->tested)
		{
			bool		visible;

			epoch_enter();
			visible = version_visible(scan, ref, word_read(&ref->words->begin),
									  word_read(&ref->words->end));
			epoch_exit();
			if (!visible)
				continue;
		}
		tableam_store_row(slot, base->rs_rd, scan->reader, ref);
		if (base->rs_nkeys > 0 && !keys_match(base, slot))
			continue;

		/* a TID range scan takes no predicate lock on the relation, so its rows are locked */
		if (scan->check_conflicts && (base->rs_flags & SO_TYPE_TIDRANGESCAN))
		{
			PredicateLockTID(base->rs_rd, &slot->tts_tid, base->rs_snapshot,
							 txn_word_xid(word_read(&ref->words->begin)));
			txn_serializable_conflict_out(base->rs_rd, ref->words, true, base->rs_snapshot);
		}
		pgstat_count_heap_getnext(base->rs_rd);
		return true;
	}

	ExecClearTuple(slot);
	return false;
}

/* TIDs of any value: offset 0 lies before a block's rows, 257 and more behind. */
void
tableam_scan_set_tidrange(TableScanDesc base, ItemPointer mintid, ItemPointer maxtid)
{
	SofortScan	scan = (SofortScan) base;
	uint64		lo = (uint64) ItemPointerGetBlockNumberNoCheck(mintid) * SOFORT_BLOCK_ROWS;
	uint64		hi = (uint64) ItemPointerGetBlockNumberNoCheck(maxtid) * SOFORT_BLOCK_ROWS;
	OffsetNumber lo_off = ItemPointerGetOffsetNumberNoCheck(mintid);
	OffsetNumber hi_off = ItemPointerGetOffsetNumberNoCheck(maxtid);
	uint64		end;

	/* [lo, end) */
	if (lo_off > 0)
		lo += Min(lo_off - 1, SOFORT_BLOCK_ROWS);
	end = hi + Min(hi_off, SOFORT_BLOCK_ROWS);
	end = Min(end, (uint64) scan->nblocks * SOFORT_BLOCK_ROWS);

	if (lo >= end)
	{
		scan->first_block = scan->end_block = 0;
		return;
	}
	scan->min_position = lo;
	scan->max_position = end - 1;
	scan->first_block = (BlockNumber) (lo / SOFORT_BLOCK_ROWS);
	scan->end_block = (BlockNumber) ((end - 1) / SOFORT_BLOCK_ROWS) + 1;
}
