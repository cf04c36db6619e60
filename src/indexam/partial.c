/*-------------------------------------------------------------------------
 *
 * partial.c
 *	  Rebuilding an index in segments, by any number of processes, while it is
 *	  used.
 *
 * A process claims a segment, reads it, and publishes a run.  The first to find all
 * segments done claims the merge: it builds a tree from all runs, then switches, which
 * stops nobody.  From DRAINING on writers insert into the tree, and readers look into
 * tree and delta.  When no writer that has seen the phase before can be left (an
 * epoch), the delta is copied to the tree, and the index is ready.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/cleanup.h"
#include "sofort/pmem/fault.h"
#include "sofort/txn/txn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "am_internal.h"
#include "partial.h"
#include "tree_internal.h"

/* Entries in a piece of the merge: what sorts in a processor's cache */
#define MERGE_PIECE		32768
#define MERGE_SAMPLE	2048

bool
partial_is_possible(Relation index)
{
	int			i;

	if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (i = 0; i < IndexRelationGetNumberOfAttributes(index); i++)
		if (index->rd_index->indkey.values[i] <= 0)
			return false;
	return true;
}

void
partial_attributes(Relation index, int *atts)
{
	int			i;

	for (i = 0; i < IndexRelationGetNumberOfAttributes(index); i++)
		atts[i] = index->rd_index->indkey.values[i] - 1;
}

/* ---- beginning and end ---- */

/*
 * The order matters.  When the registry says that there is no tree, all rows that have had
 * an entry are in the table.  Writers of rows that come after the transaction id and the
 * number of blocks were read find this index, and put their entries into its delta.
 */
void
partial_begin(IndexKeys *keys, Relation heap)
{
	StoreDesc  *store = store_open(heap);
	uint64		before = txn_next_fxid();
	BlockNumber nblocks = store_nblocks(store);
	uint32		blocks = Min(indexam_segment_blocks, PARTIAL_BLOCKS);
	uint32		nsegments = nblocks / blocks + (nblocks % blocks != 0);
	PartialIndex *partial;
	Tree	   *delta;
	uint32		i;

	partial = arena_alloc(offsetof(PartialIndex, segments) + nsegments * sizeof(PartialSegment),
						  ARENA_NO_OOM | ARENA_ZERO);
	if (partial == NULL)
		index_tree_full(keys);
	delta = tree_create(keys->format.key_len, keys->format.has_tuples);
	if (delta == NULL)
	{
		arena_free(partial);
		index_tree_full(keys);
	}
	partial->before = before;
	partial->nblocks = nblocks;
	partial->segment_blocks = blocks;
	partial->nsegments = nsegments;
	partial->delta = delta;
	partial->key_len = keys->format.key_len;
	partial->stride = keys_stride(&keys->format);
	partial->has_tuples = keys->format.has_tuples;
	pg_atomic_init_u32(&partial->phase, PARTIAL_COLLECTING);
	pg_atomic_init_u32(&partial->merging, 0);
	pg_atomic_init_u32(&partial->scattered, 0);
	pg_atomic_init_u32(&partial->zones_made, 0);
	pg_atomic_init_u32(&partial->zones_no_help, 0);
	pg_atomic_init_u32(&partial->next, 0);
	pg_atomic_init_u32(&partial->claimed, 0);
	pg_atomic_init_u32(&partial->done, 0);
	pg_atomic_init_u64(&partial->rows, 0);
	pg_atomic_init_u64(&partial->bytes, 0);
	pg_atomic_init_u64(&partial->drain_epoch, 0);
	partial->started = GetCurrentTimestamp();
	for (i = 0; i < nsegments; i++)
	{
		pg_atomic_init_u32(&partial->segments[i].state, SEGMENT_FREE);
		pg_atomic_init_u32(&partial->segments[i].zoning, 0);
		pg_atomic_init_u32(&partial->segments[i].hashed_by, 0);
	}
	if (!registry_publish_partial(keys->shared, partial, &keys->format))
		partial_free(partial);
}

static inline TreeTuple *
entry_tuple(const PartialIndex *partial, const uint8 *entry)
{
	TreeTuple  *tuple = NULL;

	if (partial->has_tuples)
		memcpy(&tuple, entry + partial->key_len + TREE_ROW_BYTES, sizeof(tuple));
	return tuple;
}

static void
free_run(const PartialIndex *partial, IndexRun *run, Tree *heir)
{
	uint64		i;

	if (run == NULL)
		return;
	for (i = 0; run->tuples > 0 && i < run->n; i++)
		tree_leave_tuple(entry_tuple(partial, run->entries + i * partial->stride), heir);
	arena_free(run);
}

/*
 * heir: the index that it has become, if that is in use.  Entries may have been deleted there
 * since: then the last reference to a tuple is here, and others may still look at it.
 */
static void
free_beside(PartialIndex *partial, Tree *heir)
{
	uint32		i;

	for (i = 0; i < partial->nsegments; i++)
	{
		free_run(partial, partial->segments[i].run, heir);
		if (partial->segments[i].zones != NULL)
			segment_zones_free(partial->segments[i].zones);
		if (partial->segments[i].hash != NULL)
			segment_hash_free(partial->segments[i].hash);
	}
	if (partial->delta != NULL)
		tree_destroy_beside(partial->delta, heir);
	if (partial->tree != NULL && !partial->finished)
		tree_destroy(partial->tree);
	arena_free(partial);
}

void
partial_free(PartialIndex *partial)
{
	free_beside(partial, NULL);
}

/* ---- one segment ---- */

typedef struct SegmentBuild
{
	IndexKeys  *keys;
	StoreDesc  *store;
	PartialIndex *partial;
	PartialSegment *segment;
	MemoryContext context;
	int			atts[INDEX_MAX_KEYS];
	uint64		horizon;
	uint64		n;
	uint64		tuples;
	uint8	   *entries;
	Datum	   *columns;		/* [natts][SOFORT_BLOCK_ROWS] */
	uint8	   *states;
} SegmentBuild;

static void
add_entry(SegmentBuild *build, const Datum *values, const bool *isnull, BlockNumber block,
		  int index)
{
	uint8	   *entry = build->entries + build->n * build->partial->stride;
	ItemPointerData tid;

	row_to_tid(build->store, (uint64) block * SOFORT_BLOCK_ROWS + index, &tid);
	index_form_entry(build->keys, values, isnull, &tid, entry);
	if (entry_tuple(build->partial, entry) != NULL)
		build->tuples++;
	build->n++;
}

/* Where each root has the columns of its whole chain: reads column by column */
static void
read_columns(SegmentBuild *build, BlockNumber block, const uint8 *index, int n)
{
	int			natts = build->keys->format.natts;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	int			i;
	int			k;

	for (k = 0; k < natts; k++)
		(void) store_read_column(build->store, block, build->atts[k],
								 build->columns + k * SOFORT_BLOCK_ROWS,
								 build->states + k * SOFORT_BLOCK_ROWS);
	for (i = 0; i < n; i++)
	{
		bool		undone = false;

		for (k = 0; k < natts; k++)
		{
			uint8		state = build->states[k * SOFORT_BLOCK_ROWS + index[i]];

			values[k] = build->columns[k * SOFORT_BLOCK_ROWS + index[i]];
			isnull[k] = state == STORE_VALUE_NULL;
			undone |= state == STORE_NO_ROW;
		}
		/* one that was rolled back meanwhile has no values, and needs no entry */
		if (!undone)
			add_entry(build, values, isnull, block, index[i]);
	}
}

static void
read_chains(SegmentBuild *build, BlockNumber block, const uint8 *index, int n)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	int			i;

	for (i = 0; i < n; i++)
	{
		store_chain_values(build->store, (uint64) block * SOFORT_BLOCK_ROWS + index[i],
						   build->atts, build->keys->format.natts, values, isnull);
		add_entry(build, values, isnull, block, index[i]);
	}
}

static void
read_block(SegmentBuild *build, BlockNumber block)
{
	uint8		index[SOFORT_BLOCK_ROWS];
	int			n;

	epoch_enter();
	n = store_wanted_roots(build->store, block, build->horizon, build->partial->before, index);
	SOFORT_STOP("index-build-version");
	if (store_chains_differ(build->store))
		read_chains(build, block, index, n);
	else if (n > 0)
		read_columns(build, block, index, n);
	epoch_exit();
}

/* Where keys are equal, row ids come in ascending order. */
static uint8 *
sort_run(IndexKeys *keys, uint8 *entries, uint64 n, bool tuples)
{
	int			stride = keys_stride(&keys->format);
	int			key_len = keys->format.key_len;

	if (tuples)
	{
		qsort_arg(entries, n, stride, keys_compare_to_sort, keys);
		return entries;
	}
	return tree_sort(entries, MemoryContextAllocHuge(CurrentMemoryContext, n * stride + 8),
					 n, stride, key_len + TREE_ROW_BYTES, key_len);
}

static void
publish_run(SegmentBuild *build, const uint8 *sorted)
{
	PartialIndex *partial = build->partial;
	Size		size = offsetof(IndexRun, entries) + build->n * partial->stride;
	IndexRun   *run = NULL;

	if (build->n > 0)
	{
		run = arena_alloc(size, ARENA_NO_OOM);
		if (run == NULL)
			index_tree_full(build->keys);
		run->n = build->n;
		run->tuples = build->tuples;
		memcpy(run->entries, sorted, size - offsetof(IndexRun, entries));
	}
	build->segment->run = run;
	if (run != NULL)
	{
		build->segment->first = order_of_bytes(sorted, partial->key_len, 0);
		build->segment->last = order_of_bytes(sorted + (build->n - 1) * partial->stride,
											  partial->key_len, 0);
	}
	pg_write_barrier();
	pg_atomic_write_u32(&build->segment->state, SEGMENT_DONE);
	pg_atomic_fetch_add_u64(&partial->rows, build->n);
	pg_atomic_fetch_add_u64(&partial->bytes, run ? size : 0);
	pg_atomic_fetch_add_u32(&partial->done, 1);
	build->n = build->tuples = 0;
	build->segment = NULL;
	ConditionVariableBroadcast(&build->keys->shared->progress);
}

/* An error: nobody has read the segment. */
static void
abandon_segment(int code, Datum arg)
{
	SegmentBuild *build = (SegmentBuild *) DatumGetPointer(arg);
	uint64		i;

	if (build->segment == NULL)
		return;
	for (i = 0; build->tuples > 0 && i < build->n; i++)
		tree_tuple_discard(entry_tuple(build->partial, build->entries + i * build->partial->stride));
	pg_atomic_write_u32(&build->segment->state, SEGMENT_FREE);
	pg_atomic_fetch_sub_u32(&build->partial->claimed, 1);
	ConditionVariableBroadcast(&build->keys->shared->progress);
}

static void
build_segment(SegmentBuild *build, uint32 number)
{
	BlockNumber first = segment_first(build->partial, number);
	BlockNumber end = segment_end(build->partial, number);
	Size		size = (Size) (end - first) * SOFORT_BLOCK_ROWS * build->partial->stride;
	BlockNumber block;

	MemoryContextReset(build->context);
	build->entries = palloc(size + 8);
	build->columns = palloc(build->keys->format.natts * SOFORT_BLOCK_ROWS * sizeof(Datum));
	build->states = palloc(build->keys->format.natts * SOFORT_BLOCK_ROWS);
	build->n = build->tuples = 0;
	store_read_ahead(build->store, first, end, STORE_WHOLE_ROWS);
	for (block = first; block < end; block++)
	{
		CHECK_FOR_INTERRUPTS();
		read_block(build, block);
		SOFORT_STOP("rebuild-block");
	}
	publish_run(build, sort_run(build->keys, build->entries, build->n, build->tuples > 0));
	SOFORT_STOP("rebuild-segment-done");
}

/* The next segment that nobody has; NULL if there is none. */
static PartialSegment *
claim_segment(PartialIndex *partial, uint32 *number)
{
	uint32		first = pg_atomic_read_u32(&partial->next);
	uint32		i;

	if (pg_atomic_read_u32(&partial->claimed) >= partial->nsegments)
		return NULL;
	for (i = 0; i < partial->nsegments; i++)
	{
		uint32		at = (first + i) % partial->nsegments;
		uint32		free = SEGMENT_FREE;

		if (pg_atomic_compare_exchange_u32(&partial->segments[at].state, &free,
										   SEGMENT_CLAIMED))
		{
			pg_atomic_fetch_add_u32(&partial->claimed, 1);
			pg_atomic_write_u32(&partial->next, at + 1);
			*number = at;
			return &partial->segments[at];
		}
	}
	return NULL;
}

/* Up to max segments; returns how many. */
static int
build_segments(IndexKeys *keys, Relation heap, PartialIndex *partial, int max)
{
	SegmentBuild build = {.keys = keys, .partial = partial};
	MemoryContext old;
	uint32		number;
	volatile int n = 0;
	TxnHold		hold = txn_hold_horizon();

	build.store = store_open(heap);
	build.horizon = txn_horizon(heap);
	partial_attributes(keys->index, build.atts);
	build.context = AllocSetContextCreate(CurrentMemoryContext, "sofort index segment",
										  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(build.context);
	SOFORT_ENSURE_ERROR_CLEANUP(abandon_segment, PointerGetDatum(&build));
	{
		while ((max == 0 || n < max) &&
			   (build.segment = claim_segment(partial, &number)) != NULL)
		{
			build_segment(&build, number);
			n++;
			CHECK_FOR_INTERRUPTS();
		}
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(build.context);
	txn_release_horizon(hold);
	return n;
}

/* ---- the merge ---- */

typedef struct MergeState
{
	IndexKeys  *keys;
	PartialIndex *partial;
	Tree	   *tree;			/* NULL once published */
	MemoryContext context;
	TreeBuilder builder;
	uint64	   *at;				/* position in each run */
} MergeState;

static int
compare_bytes(const void *a, const void *b, void *arg)
{
	return memcmp(a, b, *(const int *) arg);
}

/* Keys that cut all entries into pieces of about MERGE_PIECE entries */
static uint8 *
choose_cuts(MergeState *merge, uint64 *ncuts)
{
	PartialIndex *partial = merge->partial;
	const KeyFormat *format = &merge->keys->format;
	int			key_len = format->key_len;
	int			step = MERGE_PIECE / MERGE_SAMPLE;
	uint64		nsamples = 0;
	uint64		max = pg_atomic_read_u64(&partial->rows) / MERGE_SAMPLE + partial->nsegments + 1;
	uint8	   *samples = palloc(max * key_len);
	uint64		i;

	for (i = 0; i < partial->nsegments; i++)
	{
		const IndexRun *run = partial->segments[i].run;
		uint64		k;

		for (k = MERGE_SAMPLE / 2; run != NULL && k < run->n; k += MERGE_SAMPLE)
			memcpy(samples + nsamples++ * key_len, run->entries + k * keys_stride(format), key_len);
	}
	qsort_arg(samples, nsamples, key_len, compare_bytes, &key_len);
	*ncuts = 0;
	for (i = step; i < nsamples; i += step)
		memmove(samples + (*ncuts)++ * key_len, samples + i * key_len, key_len);
	return samples;
}

/* First entry from "from" on whose bytes are not below the cut */
static uint64
find_cut(const IndexRun *run, uint64 from, const uint8 *cut, const KeyFormat *format)
{
	int			stride = keys_stride(format);
	uint64		to = run->n;

	while (from < to)
	{
		uint64		middle = (from + to) / 2;

		if (memcmp(run->entries + middle * stride, cut, format->key_len) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void
add_to_tree(MergeState *merge, uint8 *entry)
{
	TreeTuple  *tuple = entry_tuple(merge->partial, entry);

	if (!tree_build_add(&merge->builder, entry))
		index_tree_full(merge->keys);
	if (tuple != NULL)
	{
		/* the run has its own reference */
		pg_atomic_fetch_add_u32(&tuple->refs, 1);
		tree_count_tuple(merge->tree, tuple);
	}
}

/* Entries of all runs below the cut (NULL: all that is left), sorted */
static void
merge_piece(MergeState *merge, const uint8 *cut)
{
	PartialIndex *partial = merge->partial;
	const KeyFormat *format = &merge->keys->format;
	int			stride = keys_stride(format);
	uint64	   *to = palloc(Max(partial->nsegments, 1) * sizeof(uint64));
	uint8	   *entries;
	uint8	   *sorted;
	uint64		tuples = 0;
	uint64		n = 0;
	uint64		i;

	for (i = 0; i < partial->nsegments; i++)
	{
		const IndexRun *run = partial->segments[i].run;

		to[i] = run == NULL ? 0 : cut == NULL ? run->n :
			find_cut(run, merge->at[i], cut, format);
		n += to[i] - merge->at[i];
	}
	entries = MemoryContextAllocHuge(CurrentMemoryContext, n * stride + 8);
	n = 0;
	for (i = 0; i < partial->nsegments; i++)
	{
		uint64		count = to[i] - merge->at[i];

		if (count == 0)
			continue;
		tuples += partial->segments[i].run->tuples;
		memcpy(entries + n * stride,
			   partial->segments[i].run->entries + merge->at[i] * stride, count * stride);
		n += count;
		merge->at[i] = to[i];
	}
	sorted = sort_run(merge->keys, entries, n, tuples > 0);
	for (i = 0; i < n; i++)
		add_to_tree(merge, sorted + i * stride);
}

static void
build_from_runs(MergeState *merge)
{
	MemoryContext piece = AllocSetContextCreate(merge->context, "sofort merge piece",
												ALLOCSET_DEFAULT_SIZES);
	uint8	   *cuts;
	uint64		ncuts;
	uint64		i;

	merge->tree = tree_create(merge->keys->format.key_len, merge->keys->format.has_tuples);
	if (merge->tree == NULL)
		index_tree_full(merge->keys);
	cuts = choose_cuts(merge, &ncuts);
	merge->at = palloc0(Max(merge->partial->nsegments, 1) * sizeof(uint64));
	tree_build_begin(&merge->builder, merge->tree, am_fillfactor(merge->keys->index));
	for (i = 0; i <= ncuts; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(piece);

		CHECK_FOR_INTERRUPTS();
		merge_piece(merge, i < ncuts ? cuts + i * merge->keys->format.key_len : NULL);
		MemoryContextSwitchTo(old);
		MemoryContextReset(piece);
		SOFORT_STOP("rebuild-merge");
	}
	tree_build_end(&merge->builder);
}

/* Waits until nobody is left who entered an epoch before this one */
static void
wait_for_epoch(uint64 epoch)
{
	while (!epoch_passed(epoch))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(100);
	}
}

/*
 * No writer uses the delta any more.  What goes into the tree is inserted outside of epochs:
 * others insert there, too, but nobody deletes before the index is ready, so that no node or
 * tuple is unlinked.  In an epoch a comparison that waits would hold up those who wait for
 * epochs, and one that needs another index could be refused.
 */
static void
drain_delta(MergeState *merge)
{
	IndexKeys  *keys = merge->keys;
	Tree	   *delta = merge->partial->delta;
	TreeLeaf	leaf;
	EntryPlace	place;
	bool		first = true;
	int			i;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!first)
			keys_place(&place, keys, leaf.high, 0);
		epoch_enter();
		tree_read_leaf(delta, first ? NULL : &place.probe, false, first ? NULL : &place.probe,
					   NULL, &keys->order, &leaf);
		epoch_exit();
		first = false;
		for (i = 0; i < leaf.n; i++)
		{
			uint8	   *entry = leaf.entries + i * delta->stride;
			TreeTuple  *tuple = entry_tuple(merge->partial, entry);
			TreeResult	result;

			if (tuple != NULL)
				pg_atomic_fetch_add_u32(&tuple->refs, 1);
			result = index_insert_into(keys, merge->partial->tree, entry);
			if (result != TREE_DONE)
				tree_tuple_discard(tuple);	/* it was perhaps there already */
			if (result == TREE_FULL)
				index_tree_full(keys);
		}
	} while (leaf.has_high);
}

void
partial_free_retired(SofortIndex *shared)
{
	for (;;)
	{
		PartialIndex *partial;

		SpinLockAcquire(&shared->mutex);
		partial = shared->retired;
		if (partial != NULL && pg_atomic_read_u32(&shared->workers) == 0 &&
			epoch_passed(partial->retired_epoch))
			shared->retired = partial->next_retired;
		else
			partial = NULL;
		SpinLockRelease(&shared->mutex);
		if (partial == NULL)
			return;
		free_beside(partial, partial->tree);
	}
}

static void
abandon_merge(int code, Datum arg)
{
	MergeState *merge = (MergeState *) DatumGetPointer(arg);

	if (merge->tree != NULL)
		tree_destroy(merge->tree);
	if (merge->partial == NULL)
		return;
	pg_atomic_write_u32(&merge->partial->merging, 0);
	ConditionVariableBroadcast(&merge->keys->shared->progress);
}

/*
 * All segments are done, and this process has claimed the merge. wait = false: if somebody
 * may still be about to add to the delta, the rest is left to a later call.
 */
static void
merge_and_switch(MergeState *merge, bool wait)
{
	PartialIndex *partial = merge->partial;

	if (partial_phase(partial) == PARTIAL_COLLECTING)
	{
		build_from_runs(merge);
		SOFORT_STOP("rebuild-merged");
		partial->tree = merge->tree;
		merge->tree = NULL;
		pg_write_barrier();
		pg_atomic_write_u32(&partial->phase, PARTIAL_DRAINING);
		pg_atomic_write_u64(&partial->drain_epoch, epoch_advance());
	}
	/* (after an interruption here: once more) */
	SOFORT_STOP("rebuild-draining");
	if (!wait && !partial_can_drain(partial))
		return;
	wait_for_epoch(pg_atomic_read_u64(&partial->drain_epoch));
	drain_delta(merge);
	SOFORT_STOP("rebuild-drained");
	HOLD_INTERRUPTS();
	merge->partial = NULL;
	registry_finish_partial(merge->keys->shared, partial);
	RESUME_INTERRUPTS();
	ConditionVariableBroadcast(&merge->keys->shared->progress);
	SOFORT_STOP("rebuild-switched");
}

bool
partial_can_drain(PartialIndex *partial)
{
	return epoch_passed(pg_atomic_read_u64(&partial->drain_epoch));
}

static bool
try_merge(IndexKeys *keys, PartialIndex *partial, bool wait)
{
	MergeState	merge = {.keys = keys, .partial = partial};
	uint32		nobody = 0;
	MemoryContext old;

	if (pg_atomic_read_u32(&partial->done) < partial->nsegments ||
		!pg_atomic_compare_exchange_u32(&partial->merging, &nobody, 1))
		return false;
	merge.context = AllocSetContextCreate(CurrentMemoryContext, "sofort index merge",
										  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(merge.context);
	SOFORT_ENSURE_ERROR_CLEANUP(abandon_merge, PointerGetDatum(&merge));
	{
		merge_and_switch(&merge, wait);
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	if (merge.partial != NULL)
		abandon_merge(0, PointerGetDatum(&merge));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(merge.context);
	return true;
}

/* ---- working and waiting ---- */

static void
leave_work(int code, Datum arg)
{
	pg_atomic_fetch_sub_u32(&((SofortIndex *) DatumGetPointer(arg))->workers, 1);
}

bool
partial_work(IndexKeys *keys, Relation heap, int max_segments)
{
	SofortIndex *shared = keys->shared;
	PartialIndex *partial;
	volatile bool worked = false;

	pg_atomic_fetch_add_u32(&shared->workers, 1);
	SOFORT_ENSURE_ERROR_CLEANUP(leave_work, PointerGetDatum(shared));
	{
		partial = registry_partial(shared);
		if (partial != NULL)
		{
			worked = build_segments(keys, heap, partial, max_segments) > 0;
			if (try_merge(keys, partial, max_segments == 0))
				worked = true;
		}
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	leave_work(0, PointerGetDatum(shared));
	partial_free_retired(shared);
	return worked;
}

void
partial_wait(SofortIndex *shared)
{
	ConditionVariablePrepareToSleep(&shared->progress);
	if (registry_state(shared) == INDEX_PARTIAL)
		(void) ConditionVariableTimedSleep(&shared->progress, 100, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}
