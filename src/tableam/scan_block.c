/*-------------------------------------------------------------------------
 *
 * scan_block.c
 *	  Scans that ask for blocks: bitmap, TABLESAMPLE, ANALYZE.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tsmapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/latency.h"
#include "sofort/tableam/callbacks.h"
#include "storage/predicate.h"

#define FEW_ROWS		8			/* of a block, too few to read it as a whole */
#define MOST_BLOCKS		2			/* one in so many is nearly as much to read as all */

/* Rows anywhere in this block will be read, but perhaps not those of the next one. */
static void
read_block_ahead(SofortScan scan, BlockNumber block)
{
	store_read_ahead(scan->store, store_first_block(scan->store, block),
					 store_first_block(scan->store, block + 1), STORE_WHOLE_ROWS);
}

/*
 * The block of a sample that follows this one.  They ascend; where the sample takes most blocks
 * it is read like a whole table.
 */
static void
read_sample_ahead(SofortScan scan, BlockNumber previous)
{
	if (scan->block - previous <= MOST_BLOCKS)
		tableam_read_ahead(scan, scan->block);
	else
		read_block_ahead(scan, scan->block);
}

/* ------------------------------------------------------------------------
 * Bitmap scans.  An index points to the roots of chains: both an exact and a
 * lossy page stand for the roots in that block, wherever their visible
 * versions lie.  A lossy page must not return the heap-only versions that
 * happen to lie in the block: their roots' blocks do.
 * ------------------------------------------------------------------------
 */

/* Is it a row that an index entry may point to, neither free nor heap-only? */
static bool
is_root(SofortScan scan, uint64 row)
{
	RowRef		ref;
	uint64		begin;

	if (!store_locate(scan->store, row, &ref))
		return false;
	begin = word_read(&ref.words->begin);
	return begin != WORD_EMPTY && WORD_TAG(begin) != WORD_TAG_ABORTED &&
		(begin & BEGIN_HEAP_ONLY) == 0;
}

static void
add_visible_version(SofortScan scan, uint64 root)
{
	TableScanDesc base = &scan->base;

	if (tableam_fetch_chain(base->rs_rd, scan->store, root, base->rs_snapshot,
							&scan->rows[scan->nrows], NULL))
		scan->nrows++;
}

/*
 * Collect the visible rows that a page of the bitmap stands for: the roots at
 * offsets[], or all of the block if noffsets is negative (a lossy page).
 * False if there are none.
 */
bool
tableam_bitmap_block(SofortScan scan, BlockNumber block, const OffsetNumber *offsets,
					 int noffsets)
{
	uint64		first = (uint64) block * SOFORT_BLOCK_ROWS;

	scan->nrows = 0;
	scan->next = 0;

	if (noffsets < 0 || noffsets > FEW_ROWS)
		read_block_ahead(scan, block);
	epoch_enter();
	if (noffsets >= 0)
	{
		for (int i = 0; i < noffsets; i++)
		{
			OffsetNumber offset = offsets[i];

			if (offset >= FirstOffsetNumber && offset <= SOFORT_BLOCK_ROWS)
				add_visible_version(scan, row_from_position(scan->store, first + offset - 1));
		}
	}
	else
	{
		for (int i = 0; i < SOFORT_BLOCK_ROWS; i++)
			if (is_root(scan, row_from_position(scan->store, first + i)))
				add_visible_version(scan, row_from_position(scan->store, first + i));
	}
	epoch_exit();
	return scan->nrows > 0;
}

/* The next row of the page that tableam_bitmap_block() has collected */
bool
tableam_bitmap_tuple(SofortScan scan, TupleTableSlot *slot)
{
	Relation	rel = scan->base.rs_rd;

	if (scan->next >= scan->nrows)
		return false;

	pgstat_count_heap_fetch(rel);
	tableam_store_row(slot, rel, scan->store, &scan->rows[scan->next++]);
	return true;
}

/* ------------------------------------------------------------------------
 * TABLESAMPLE
 * ------------------------------------------------------------------------
 */

bool
tableam_scan_sample_next_block(TableScanDesc base, SampleScanState *state)
{
	SofortScan	scan = (SofortScan) base;
	TsmRoutine *tsm = state->tsmroutine;
	BlockNumber previous = scan->block;

	if (scan->nblocks == 0)
		return false;

	if (tsm->NextSampleBlock)
		scan->block = tsm->NextSampleBlock(state, scan->nblocks);
	else
		scan->block = tableam_next_block(scan, ForwardScanDirection);

	scan->started = BlockNumberIsValid(scan->block);
	if (scan->started)
	{
		pm_read_miss(store_blocks_in(scan->store, scan->block));
		read_sample_ahead(scan, previous);
	}
	return scan->started;
}

bool
tableam_scan_sample_next_tuple(TableScanDesc base, SampleScanState *state, TupleTableSlot *slot)
{
	SofortScan	scan = (SofortScan) base;
	TsmRoutine *tsm = state->tsmroutine;
	OffsetNumber last = (OffsetNumber) store_rows_in(scan->store, scan->block);

	for (;;)
	{
		OffsetNumber offset;
		RowRef		ref;
		bool		visible;

		CHECK_FOR_INTERRUPTS();
		offset = tsm->NextSampleTuple(state, scan->block, last);
		if (!OffsetNumberIsValid(offset))
			break;

		epoch_enter();
		visible = store_locate(scan->store,
							   row_from_position(scan->store,
												 (uint64) scan->block * SOFORT_BLOCK_ROWS +
												 offset - 1), &ref) &&
			word_read(&ref.words->begin) != WORD_EMPTY;
		if (visible)
		{
			visible = txn_version_visible(scan->store->id, ref.row, ref.words,
										  base->rs_snapshot);
			if (scan->check_conflicts)
				txn_serializable_conflict_out(base->rs_rd, ref.words, visible,
											  base->rs_snapshot);
		}
		epoch_exit();
		if (!visible)
			continue;

		tableam_store_row(slot, base->rs_rd, scan->store, &ref);
		pgstat_count_heap_getnext(base->rs_rd);
		return true;
	}

	ExecClearTuple(slot);
	return false;
}

/* ------------------------------------------------------------------------
 * ANALYZE
 * ------------------------------------------------------------------------
 */

void
tableam_analyze_block(SofortScan scan, BlockNumber block)
{
	BlockNumber previous = scan->block;

	scan->block = block;
	scan->next = 0;
	read_sample_ahead(scan, previous);
}

/*
 * Is a row of this state part of the sample?  Counts rows as heap does: a transaction in
 * progress has not happened yet, unless it is our own.
 */
static bool
count_for_sample(TxnVersionState state, TransactionId xid, double *liverows, double *deadrows)
{
	bool		mine = TransactionIdIsValid(xid) && TransactionIdIsCurrentTransactionId(xid);
	bool		live = false;

	switch (state)
	{
		case VERSION_FREE:
			return false;
		case VERSION_ABORTED:
		case VERSION_DEAD:
		case VERSION_RECENTLY_DEAD:
			break;
		case VERSION_LIVE:
			live = true;
			break;
		case VERSION_INSERTING:
			if (!mine)
				return false;
			live = true;
			break;
		case VERSION_DELETING:
			live = !mine;
			break;
	}
	if (live)
		*liverows += 1;
	else
		*deadrows += 1;
	return live;
}

bool
tableam_scan_analyze_next_tuple(TableScanDesc base, TransactionId oldest_xmin,
								double *liverows, double *deadrows, TupleTableSlot *slot)
{
	SofortScan	scan = (SofortScan) base;
	uint64		horizon = txn_widen(oldest_xmin);

	if (scan->next == 0)
		pm_read_miss(store_blocks_in(scan->store, scan->block));
	while (scan->next < SOFORT_BLOCK_ROWS)
	{
		uint64		position = (uint64) scan->block * SOFORT_BLOCK_ROWS + scan->next++;
		TransactionId xid = InvalidTransactionId;
		TxnVersionState state = VERSION_FREE;
		RowRef		ref;

		epoch_enter();
		if (store_locate(scan->store, row_from_position(scan->store, position), &ref))
			state = txn_version_state(ref.words, horizon, &xid);
		/* like a redirect on heap: VACUUM would not free it */
		if (state == VERSION_DEAD && store_root_is_needed(scan->store, &ref, horizon))
			state = VERSION_FREE;
		epoch_exit();

		if (count_for_sample(state, xid, liverows, deadrows))
		{
			tableam_store_row(slot, base->rs_rd, scan->store, &ref);
			tableam_slot_for_sample(slot);
			return true;
		}
	}

	ExecClearTuple(slot);
	return false;
}
