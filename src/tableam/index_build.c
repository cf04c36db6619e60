/*-------------------------------------------------------------------------
 *
 * index_build.c
 *	  Feeding an index that is being built or validated; BRIN's summaries.
 *
 * All scans go from root to root and, for each, through its chain: an entry points to a
 * root, in whichever block the version lies that it describes, and block ranges (BRIN)
 * are ranges of roots.  Lossy bitmap pages mean the same (scan_block.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "catalog/catalog.h"
#include "catalog/index.h"
#include "commands/defrem.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/latency.h"
#include "sofort/store/column_read.h"
#include "sofort/tableam/callbacks.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

typedef struct BuildState
{
	Relation	rel;
	Relation	index;
	IndexInfo  *info;
	StoreDesc  *store;
	Snapshot	snapshot;		/* SnapshotAny, or an MVCC snapshot */
	uint64		horizon;
	bool		anyvisible;
	bool		unique;			/* uniqueness or exclusion is checked */
	bool		differ;			/* store_set_chains_differ() was called */
	Oid			sofort_index_am;

	EState	   *estate;
	ExprContext *econtext;
	ExprState  *predicate;
	TupleTableSlot *slot;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	IndexBuildCallback callback;
	void	   *callback_state;
	double		reltuples;
} BuildState;

static void
build_begin(BuildState *build, Relation rel, Relation index, IndexInfo *info)
{
	memset(build, 0, sizeof(*build));
	build->rel = rel;
	build->index = index;
	build->info = info;
	build->store = store_open(rel);
	build->sofort_index_am = get_index_am_oid("sofort_index", true);
	build->unique = info->ii_Unique || info->ii_ExclusionOps != NULL;
	build->estate = CreateExecutorState();
	build->econtext = GetPerTupleExprContext(build->estate);
	build->slot = table_slot_create(rel, NULL);
	build->econtext->ecxt_scantuple = build->slot;
	build->predicate = ExecPrepareQual(info->ii_Predicate, build->estate);
}

static void
build_end(BuildState *build)
{
	ExecDropSingleTupleTableSlot(build->slot);
	FreeExecutorState(build->estate);

	/* these may have been pointing to the now-gone estate */
	build->info->ii_ExpressionsState = NIL;
	build->info->ii_PredicateState = NULL;
}

/* Index columns of a version; false if the predicate excludes it. */
static bool
form_entry(BuildState *build, const RowRef *ref)
{
	MemoryContextReset(build->econtext->ecxt_per_tuple_memory);
	tableam_store_row(build->slot, build->rel, build->store, ref);
	if (build->predicate != NULL && !ExecQual(build->predicate, build->econtext))
		return false;
	FormIndexDatum(build->info, build->slot, build->estate, build->values, build->isnull);
	return true;
}

/*
 * A rebuild of a sofort index looks only at roots where it may: notes that in this table it
 * may not.
 */
static void
note_difference(BuildState *build, uint64 root, const RowRef *version)
{
	int			atts[INDEX_MAX_KEYS];
	int			n = 0;

	if (build->differ || build->info->ii_Am != build->sofort_index_am)
		return;
	for (int i = 0; i < build->info->ii_NumIndexAttrs; i++)
		if (build->info->ii_IndexAttrNumbers[i] > 0)
			atts[n++] = build->info->ii_IndexAttrNumbers[i] - 1;
	if (!store_chains_differ(build->store) &&
		!store_root_differs(build->store, root, version, atts, n))
		return;
	store_set_chains_differ(build->store);
	build->differ = true;
}

static void
feed(BuildState *build, uint64 root, const RowRef *ref, bool alive)
{
	ItemPointerData tid;

	if (!form_entry(build, ref))
		return;
	if (ref->row != root)
		note_difference(build, root, ref);
	row_to_tid(build->store, root, &tid);
	build->callback(build->index, &tid, build->values, build->isnull, alive,
					build->callback_state);
}

/* ------------------------------------------------------------------------
 * Versions in all states (SnapshotAny)
 * ------------------------------------------------------------------------
 */

/* Was it updated, and is the next version in the same chain? */
static bool
is_hot_updated(BuildState *build, const RowRef *ref)
{
	uint64		end = word_read(&ref->words->end);
	RowRef		next;

	if (WORD_TAG(end) != WORD_TAG_STAMP && WORD_TAG(end) != WORD_TAG_PROGRESS)
		return false;
	return (end & END_UPDATED) && store_successor(build->store, ref, &next) &&
		(word_read(&next.words->begin) & BEGIN_HEAP_ONLY) != 0;
}

/* Waits for a transaction whose outcome decides.  Then the state is read anew. */
static void
wait_for_writer(BuildState *build, TransactionId xid, const RowRef *ref)
{
	ItemPointerData tid;

	row_to_tid(build->store, ref->row, &tid);
	XactLockTableWait(xid, build->rel, &tid, XLTW_InsertIndexUnique);
	CHECK_FOR_INTERRUPTS();
}

static void
warn_concurrent(BuildState *build, const char *what)
{
	if (!IsSystemRelation(build->rel))
		elog(WARNING, "concurrent %s in progress within table \"%s\"", what,
			 RelationGetRelationName(build->rel));
}

typedef enum BuildDecision
{
	BUILD_SKIP,
	BUILD_DEAD,					/* index, but exclude from uniqueness checks */
	BUILD_ALIVE,
	BUILD_AGAIN					/* waited: decide again */
} BuildDecision;

static BuildDecision
decide_inserting(BuildState *build, const RowRef *ref, TransactionId xid)
{
	if (build->anyvisible || TransactionIdIsCurrentTransactionId(xid))
	{
		build->reltuples += 1;
		return BUILD_ALIVE;
	}
	warn_concurrent(build, "insert");
	if (build->unique)
	{
		wait_for_writer(build, xid, ref);
		return BUILD_AGAIN;
	}
	return BUILD_ALIVE;
}

static BuildDecision
decide_deleting(BuildState *build, const RowRef *ref, TransactionId xid)
{
	if (build->anyvisible)
	{
		build->reltuples += 1;
		return BUILD_DEAD;
	}
	if (TransactionIdIsCurrentTransactionId(xid))
	{
		/* if the build commits, so does the update */
		if (!is_hot_updated(build, ref))
			return BUILD_DEAD;
		build->info->ii_BrokenHotChain = true;
		return BUILD_SKIP;
	}
	warn_concurrent(build, "delete");
	if (build->unique || is_hot_updated(build, ref))
	{
		wait_for_writer(build, xid, ref);
		return BUILD_AGAIN;
	}
	build->reltuples += 1;
	return BUILD_DEAD;
}

/* As heap does; see heapam_index_build_range_scan() for the reasons. */
static BuildDecision
decide_version(BuildState *build, const RowRef *ref)
{
	TransactionId xid = InvalidTransactionId;

	switch (txn_version_state(ref->words, build->horizon, &xid))
	{
		case VERSION_FREE:
		case VERSION_ABORTED:
		case VERSION_DEAD:
			return BUILD_SKIP;
		case VERSION_LIVE:
			build->reltuples += 1;
			return BUILD_ALIVE;
		case VERSION_RECENTLY_DEAD:
			if (!is_hot_updated(build, ref))
				return BUILD_DEAD;
			if (store_values_are_gone(build->store, ref))
				return BUILD_SKIP;

			/*
			 * A summary may cover it, too.  A sofort index that is rebuilt has the entry of
			 * a later version: if that has another key, this version is older than the
			 * index, and no snapshot that sees it may use the index.
			 */
			if (build->anyvisible)
				return build->info->ii_Am == build->sofort_index_am ? BUILD_SKIP : BUILD_DEAD;
			build->info->ii_BrokenHotChain = true;
			return BUILD_SKIP;
		case VERSION_INSERTING:
			return decide_inserting(build, ref, xid);
		case VERSION_DELETING:
			return decide_deleting(build, ref, xid);
	}
	return BUILD_SKIP;			/* keep compiler quiet */
}

/* Goes through a chain from this version down to its root.  Was a version indexed? */
static bool
build_versions(BuildState *build, const RowRef *root, RowRef version)
{
	bool		indexed = false;

	for (;;)
	{
		BuildDecision decision = decide_version(build, &version);

		if (decision == BUILD_AGAIN)
			continue;
		if (decision != BUILD_SKIP)
		{
			SOFORT_STOP("index-build-version");
			feed(build, root->row, &version, decision == BUILD_ALIVE);
			indexed = true;
		}
		if (version.row == root->row ||
			!store_chain_older(build->store, &version, &version))
			return indexed;
	}
}

static RowRef
newest_version(BuildState *build, const RowRef *root)
{
	RowRef		newest;

	return store_chain_newest(build->store, root, &newest) ? newest : *root;
}

/*
 * Goes through one chain, newest version first, the root last.  A rebuild keeps no writers
 * away, and an update within the chain does not reach the index.  So if all versions were
 * skipped, a new one may have come meanwhile: then the chain is read again.
 */
static void
build_chain(BuildState *build, const RowRef *root)
{
	RowRef		newest = newest_version(build, root);
	RowRef		first;

	do
	{
		first = newest;
		SOFORT_STOP("index-build-chain");
		if (build_versions(build, root, first))
			return;
		newest = newest_version(build, root);
	} while (newest.row != first.row);
}

/* ------------------------------------------------------------------------
 * Range scan
 * ------------------------------------------------------------------------
 */

static void
build_root(BuildState *build, const RowRef *root)
{
	RowRef		found;

	if (build->snapshot == SnapshotAny)
	{
		pgstat_count_heap_getnext(build->rel);
		build_chain(build, root);
	}
	else if (store_chain_fetch(build->rel, build->store, root->row, build->snapshot,
							   &found, NULL))
	{
		pgstat_count_heap_getnext(build->rel);
		build->reltuples += 1;
		feed(build, root->row, &found, true);
	}
}

/* Finds the next root at or after *position within the block. */
static bool
next_root(StoreDesc *store, uint64 *position, uint64 end, RowRef *ref)
{
	for (; *position < end; (*position)++)
	{
		uint64		begin;

		if (!store_locate(store, row_from_position(store, *position), ref))
			continue;			/* it has no storage (but those behind it may have some) */
		begin = word_read(&ref->words->begin);
		if (begin != WORD_EMPTY && WORD_TAG(begin) != WORD_TAG_ABORTED &&
			(begin & BEGIN_HEAP_ONLY) == 0)
			return true;
	}
	return false;
}

static void
build_block(BuildState *build, BlockNumber block)
{
	uint64		position = (uint64) block * SOFORT_BLOCK_ROWS;
	uint64		end = position + store_rows_in(build->store, block);
	RowRef		root;

	pm_read_miss(store_blocks_in(build->store, block));
	for (; next_root(build->store, &position, end, &root); position++)
	{
		CHECK_FOR_INTERRUPTS();
		build_root(build, &root);
	}
}

/* A scan of the whole table; returns a snapshot that was registered for it, if any. */
static Snapshot
begin_scan(BuildState *build, Relation rel, bool concurrent, bool allow_sync, TableScanDesc *scan)
{
	Snapshot	registered = NULL;

	if (concurrent)
		build->snapshot = registered = RegisterSnapshot(GetTransactionSnapshot());
	else
		build->snapshot = SnapshotAny;
	*scan = table_beginscan_strat(rel, build->snapshot, 0, NULL, true, allow_sync);
	return registered;
}

static void
build_blocks(BuildState *build, SofortScan scan, bool progress)
{
	bool		parallel = scan->base.rs_parallel != NULL;
	int64		done = 0;
	BlockNumber block;

	if (progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, scan->nblocks);
	while ((block = tableam_next_block(scan, ForwardScanDirection)) != InvalidBlockNumber)
	{
		scan->block = block;
		scan->started = true;
		tableam_read_ahead(scan, block);
		build_block(build, block);
		done++;
		if (progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE,
										 parallel ? (int64) block + 1 : done);
	}
	if (progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, scan->nblocks);
}

double
tableam_index_build_range_scan(Relation rel, Relation index, IndexInfo *info, bool allow_sync,
							   bool anyvisible, bool progress, BlockNumber start_block,
							   BlockNumber nblocks, IndexBuildCallback callback,
							   void *callback_state, TableScanDesc base)
{
	BuildState	build;
	SofortScan	scan;
	Snapshot	registered = NULL;

	/* VACUUM rebuilds indexes and summarises: the version at which the scan is must stay */
	TxnHold		hold = txn_hold_horizon();

	/* (rebuilding after a start takes every version, and checks nothing) */
	if (!anyvisible)
		tableam_refuse_waiting(rel);
	build_begin(&build, rel, index, info);
	build.anyvisible = anyvisible;
	build.callback = callback;
	build.callback_state = callback_state;
	Assert(!(anyvisible && build.unique));

	if (base == NULL)
		registered = begin_scan(&build, rel, info->ii_Concurrent, allow_sync, &base);
	else
		build.snapshot = base->rs_snapshot; /* parallel build */
	if (build.snapshot == SnapshotAny)
		build.horizon = txn_horizon(rel);

	scan = (SofortScan) base;
	if (!allow_sync)
	{
		scan->first_block = Min(start_block, scan->nblocks);
		if (nblocks != InvalidBlockNumber)
			scan->end_block = (BlockNumber) Min((uint64) scan->first_block + nblocks,
												scan->nblocks);
	}
	build_blocks(&build, scan, progress);

	table_endscan(base);
	if (registered)
		UnregisterSnapshot(registered);
	build_end(&build);
	txn_release_horizon(hold);
	return build.reltuples;
}

/* ------------------------------------------------------------------------
 * Validation (CREATE INDEX CONCURRENTLY)
 * ------------------------------------------------------------------------
 */

typedef struct EntryCursor
{
	Tuplesortstate *sort;
	ItemPointerData tid;
	bool		valid;			/* tid is set */
	bool		exhausted;
} EntryCursor;

/* Is this root in the index?  Roots are asked for in ascending order. */
static bool
cursor_contains(EntryCursor *cursor, ItemPointer root)
{
	while (!cursor->exhausted &&
		   (!cursor->valid || ItemPointerCompare(&cursor->tid, root) < 0))
	{
		Datum		value;
		bool		isnull;

		if (!compat_tuplesort_getdatum(cursor->sort, &value, &isnull))
		{
			cursor->exhausted = true;
			break;
		}
		itemptr_decode(&cursor->tid, DatumGetInt64(value));
		cursor->valid = true;
	}
	return !cursor->exhausted && ItemPointerEquals(&cursor->tid, root);
}

static void
validate_block(BuildState *build, BlockNumber block, EntryCursor *cursor,
			   ValidateIndexState *state)
{
	uint64		position = (uint64) block * SOFORT_BLOCK_ROWS;
	uint64		end = position + store_rows_in(build->store, block);
	RowRef		root;
	RowRef		found;

	pm_read_miss(store_blocks_in(build->store, block));
	for (; next_root(build->store, &position, end, &root); position++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		if (!store_chain_fetch(build->rel, build->store, root.row, build->snapshot, &found,
							   NULL))
			continue;
		pgstat_count_heap_getnext(build->rel);
		state->htups += 1;
		row_to_tid(build->store, root.row, &tid);
		if (cursor_contains(cursor, &tid) || !form_entry(build, &found))
			continue;
		if (found.row != root.row)
			note_difference(build, root.row, &found);
		index_insert(build->index, build->values, build->isnull, &tid, build->rel,
					 build->info->ii_Unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
					 false, build->info);
		state->tups_inserted += 1;
	}
}

void
tableam_index_validate_scan(Relation rel, Relation index, IndexInfo *info, Snapshot snapshot,
							ValidateIndexState *state)
{
	BuildState	build;
	EntryCursor cursor = {.sort = state->tuplesort};
	StoreReadAhead ahead = {0};
	BlockNumber nblocks;

	build_begin(&build, rel, index, info);
	build.snapshot = snapshot;
	pgstat_count_heap_scan(rel);
	nblocks = store_tid_blocks(build.store);
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, nblocks);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		store_scan_ahead(build.store, &ahead, store_first_block(build.store, block),
						 store_nblocks(build.store));
		validate_block(&build, block, &cursor, state);
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, block + 1);
	}
	build_end(&build);
}
