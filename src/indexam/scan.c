/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Index scans.
 *
 * The matching entries of one leaf are copied, with their tuples; between calls a scan
 * holds nothing in shared memory.  It goes on at the separator beside the leaf, see
 * tree_scan.c.  If the index is being rebuilt, the whole range is collected at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "partial.h"
#include "scan_internal.h"

#define PREFETCH_ROWS	8		/* whose lines are on their way at a time */

/* ---- batches ---- */

static uint8 *
batch_entry(ScanState *so, int item)
{
	uint8	   *entries = so->batch.collected ? so->batch.collected : so->batch.leaf.entries;

	return entries + (Size) item * so->stride;
}

static void
copy_tuple(ScanState *so, uint8 *entry)
{
	tree_copy_tuple(so->keys.tree, entry, so->batch.context);
}

/* Inside the epoch in which the leaf was read */
static void
copy_tuples(ScanState *so)
{
	TreeLeaf   *leaf = &so->batch.leaf;
	int			i;

	if (!so->keys.tree->has_tuples)
		return;
	for (i = 0; i < leaf->n; i++)
		copy_tuple(so, batch_entry(so, i));
	if (leaf->has_low)
		copy_tuple(so, leaf->low);
	if (leaf->has_high)
		copy_tuple(so, leaf->high);
}

/* Does the range go on beyond the leaf that was read? */
static void
set_more(ScanState *so, ScanDirection dir, const Fence *fence)
{
	ScanBatch  *batch = &so->batch;
	TreeLeaf   *leaf = &batch->leaf;
	Tree	   *tree = so->keys.tree;

	if (leaf->has_high)
		scan_skip_move(so, ForwardScanDirection, leaf->high);
	if (leaf->has_low)
		scan_skip_move(so, BackwardScanDirection, leaf->low);
	batch->more_right = leaf->has_high && !leaf->cut_high &&
		(!so->upper.exists || tree_probe_compare(tree, &so->upper.probe, leaf->high) > 0);
	batch->more_left = leaf->has_low && !leaf->cut_low &&
		(!so->lower.exists || tree_probe_compare(tree, &so->lower.probe, leaf->low) < 0);
	if (fence == NULL)
		return;

	/* what lies beyond the fence was seen already, or will be if the direction changes */
	if (ScanDirectionIsBackward(dir))
	{
		batch->more_right = leaf->has_high = true;
		memcpy(leaf->high, fence->entry, tree->stride);
	}
	else
	{
		batch->more_left = leaf->has_low = true;
		memcpy(leaf->low, fence->entry, tree->stride);
	}
}

/* Read the leaf at the fence, or at the end of the range if there is none. */
static void
read_leaf(ScanState *so, ScanDirection dir, const Fence *fence)
{
	bool		backward = ScanDirectionIsBackward(dir);
	const TreeProbe *lower = so->lower.exists ? &so->lower.probe : NULL;
	const TreeProbe *upper = so->upper.exists ? &so->upper.probe : NULL;
	const TreeProbe *seek = backward ? upper : lower;
	ScanBatch  *batch = &so->batch;

	if (fence != NULL)
	{
		seek = &fence->place.probe;
		if (backward)
			upper = seek;
		else
			lower = seek;
	}
	batch->collected = NULL;
	batch->killed = 0;
	epoch_enter();
	tree_read_leaf(so->keys.tree, seek, backward, lower, upper, &so->keys.order, &batch->leaf);
	SOFORT_STOP("index-leaf-read");
	set_more(so, dir, fence);
	copy_tuples(so);
	epoch_exit();
	batch->n = batch->leaf.n;
	batch->item = backward ? batch->n : -1;
}

/* The separator at which the scan leaves its batch, copied */
static void
take_fence(ScanState *so, ScanDirection dir, Fence *fence)
{
	Tree	   *tree = so->keys.tree;
	TreeTuple  *tuple;

	memcpy(fence->entry, ScanDirectionIsBackward(dir) ? so->batch.leaf.low :
		   so->batch.leaf.high, tree->stride);
	tuple = tree_entry_tuple(tree, fence->entry);
	if (tuple != NULL)
	{
		Size		size = offsetof(TreeTuple, tuple) + tuple->size;
		TreeTuple  *copy = MemoryContextAlloc(so->fence_context, size);

		memcpy(copy, tuple, size);
		memcpy(fence->entry + tree->cmp_len, &copy, sizeof(copy));
	}
	keys_place(&fence->place, &so->keys, fence->entry, 0);
}

/* ---- entries of rows that nobody sees ---- */

/*
 * The table says that nobody can ever see the row of the current entry again: remove it.
 * The row id cannot belong to another row meanwhile, because the snapshot is older than the
 * reading of the entry.
 */
static void
kill_current(IndexScanDesc scan, ScanState *so)
{
	ScanBatch  *batch = &so->batch;
	EntryPlace	place;
	TreeProbe  *probe = &place.probe;

	if (!so->started || batch->collected != NULL || batch->item < 0 ||
		batch->item >= batch->n || scan->xs_snapshot == NULL ||
		!IsMVCCSnapshot(scan->xs_snapshot) || !index_try_change_tree(so->keys.index))
		return;
	epoch_enter();
	keys_place(&place, &so->keys, batch_entry(so, batch->item), 0);
	batch->killed += tree_delete(so->keys.tree, &probe, 1, NULL);
	epoch_exit();
	index_end_change_tree(so->keys.index);
}

/* The batch is about to be left: merge its leaf away if it has become empty. */
static void
finish_kills(ScanState *so)
{
	ScanBatch  *batch = &so->batch;
	EntryPlace	place;

	if (batch->killed == 0)
		return;
	if (tree_leaf_is_sparse(so->keys.tree, batch->n - batch->killed) &&
		index_try_change_tree(so->keys.index))
	{
		epoch_enter();
		keys_place(&place, &so->keys, batch_entry(so, 0), 0);
		tree_shrink(so->keys.tree, &place.probe);
		epoch_exit();
		index_end_change_tree(so->keys.index);
		tree_reclaim(so->keys.tree);
	}
	batch->killed = 0;
}

static MemoryContext
batch_context(ScanState *so)
{
	return AllocSetContextCreate(so->context, "sofort scan batch", ALLOCSET_SMALL_SIZES);
}

/* The batch is about to be left: if the mark is in it, keep it, tuples included. */
static void
save_marked_batch(ScanState *so)
{
	MemoryContext spare;

	if (!so->mark_in_batch)
		return;
	if (so->mark == NULL)
	{
		so->mark = MemoryContextAlloc(so->context, sizeof(ScanBatch));
		so->mark->context = so->batch.context ? batch_context(so) : NULL;
	}
	else if (so->mark->context == NULL && so->batch.context != NULL)
		so->mark->context = batch_context(so);
	spare = so->mark->context;
	*so->mark = so->batch;
	so->batch.context = spare;
	so->mark_in_batch = false;
}

static bool collect_range(ScanState *so, ScanDirection dir);

static void
set_bounds(ScanState *so)
{
	scan_set_bounds(so);
	if (!so->empty_range)
		predicate_lock_range(&so->keys, so->lower.bytes, so->nequal, so->reader);
}

/*
 * Reads one leaf of a parallel scan; the next process goes on after it.  (An index that is
 * being rebuilt is read by one process, at once.)
 */
static void
read_seized_leaf(ScanState *so, ScanDirection dir, const Fence *fence)
{
	ScanBatch  *batch = &so->batch;

	if (!so->bounds_valid)
		set_bounds(so);
	if (so->empty_range)
	{
		batch->n = 0;
		parallel_release(so, NULL);
		return;
	}
	if (so->keys.tree != NULL || !collect_range(so, dir))
		read_leaf(so, dir, fence);
	if (ScanDirectionIsBackward(dir))
		parallel_release(so, batch->more_left ? batch->leaf.low : NULL);
	else
		parallel_release(so, batch->more_right ? batch->leaf.high : NULL);
	/* this process does not go on without asking the others */
	batch->more_left = batch->more_right = false;
}

static bool
next_parallel_leaf(ScanState *so, ScanDirection dir)
{
	for (;;)
	{
		bool		at_fence;
		Fence		fence;

		CHECK_FOR_INTERRUPTS();
		if (!parallel_seize(so, &at_fence, &fence))
			return false;
		if (so->batch.context != NULL)
			MemoryContextReset(so->batch.context);
		read_seized_leaf(so, dir, at_fence ? &fence : NULL);
		if (so->fence_context != NULL)
			MemoryContextReset(so->fence_context);
		if (so->batch.n > 0)
			return true;
	}
}

/* The next leaf of the range with entries; false: there is none. */
static bool
advance_leaf(ScanState *so, ScanDirection dir)
{
	Fence		fence;

	finish_kills(so);
	if (so->parallel != NULL)
		return next_parallel_leaf(so, dir);
	for (;;)
	{
		if (ScanDirectionIsBackward(dir) ? !so->batch.more_left : !so->batch.more_right)
			return false;
		CHECK_FOR_INTERRUPTS();
		take_fence(so, dir, &fence);
		save_marked_batch(so);
		if (so->batch.context != NULL)
			MemoryContextReset(so->batch.context);
		read_leaf(so, dir, &fence);
		if (so->fence_context != NULL)
			MemoryContextReset(so->fence_context);
		if (so->batch.n > 0)
			return true;
	}
}

/*
 * The planner looks for the ends of a column in the index (since 18).  Planning must not
 * cause a rebuild: it uses its histogram instead.
 */
static bool
is_too_early_for_planner(const ScanState *so)
{
	return so->keys.tree == NULL && so->snapshot != NULL &&
		so->snapshot->snapshot_type == SNAPSHOT_NON_VACUUMABLE;
}

static bool
is_complete(void *arg)
{
	return registry_state((SofortIndex *) arg) == INDEX_READY;
}

/*
 * Was the index made after the snapshot?  Its build checked uniqueness among the rows of
 * that time: an older snapshot may see two with the same key, of which one had been
 * deleted.
 */
static bool
index_is_older(Relation index, Snapshot snapshot)
{
	return TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
								 snapshot->xmin);
}

/*
 * Does the snapshot see at most one row with this key of a unique index?  (Not where the
 * check is deferred.  And a serializable transaction has to meet the other rows, too.)
 */
static bool
one_row_at_most(ScanState *so, Relation heap)
{
	Relation	index = so->keys.index;
	Form_pg_index form = index->rd_index;

	return so->one_key && form->indisunique && form->indimmediate && form->indisvalid &&
		so->snapshot != NULL && IsMVCCSnapshot(so->snapshot) && !IsolationIsSerializable() &&
		index_is_older(index, so->snapshot) && !store_chains_differ(store_open(heap));
}

/*
 * The index is being rebuilt: collects the range from index and table.  False: the index is
 * ready; if the range was too large for this, it has been made ready.
 */
static bool
collect_range(ScanState *so, ScanDirection dir)
{
	ScanBatch  *batch = &so->batch;
	PartialSet	set = {.limit = MaxAllocSize};
	Relation	heap;
	IndexView	view;
	bool		may_wait = !epoch_is_inside();

	if (batch->context == NULL)
		batch->context = batch_context(so);
	set.context = batch->context;
	if (may_wait)
		set.limit = Min((uint64) work_mem * 1024, MaxAllocSize);
	if (indexam_before_search != NULL)
		indexam_before_search(is_complete, so->keys.shared);
	heap = table_open(so->keys.index->rd_index->indrelid, AccessShareLock);
	if (one_row_at_most(so, heap))
		set.only = so->snapshot;
	epoch_enter();
	index_view(&so->keys, &view);
	if (view.partial != NULL && !so->lower.exists && !so->upper.exists &&
		view.partial->nblocks > PARTIAL_BLOCKS && may_wait)
		set.overflow = true;	/* a rebuild costs no more */
	else if (view.partial != NULL)
		partial_collect(&so->keys, heap, &view, so->lower.exists ? &so->lower.probe : NULL,
						so->upper.exists ? &so->upper.probe : NULL, &set);
	epoch_exit();
	table_close(heap, AccessShareLock);
	if (indexam_after_search != NULL)
		indexam_after_search(&so->keys.shared->searched);
	if (view.partial == NULL || set.overflow)
	{
		MemoryContextReset(batch->context);
		index_attach(&so->keys, so->keys.index);
		return false;
	}
	batch->killed = 0;
	batch->collected = set.entries ? set.entries : MemoryContextAlloc(batch->context, 1);
	batch->n = (int) set.n;
	batch->item = ScanDirectionIsBackward(dir) ? batch->n : -1;
	batch->more_left = batch->more_right = false;
	return true;
}

/* First leaf of the range in this direction; false: the range is empty. */
static bool
start_range(ScanState *so, ScanDirection dir)
{
	if (so->started)
	{
		finish_kills(so);
		save_marked_batch(so);
	}
	so->started = false;
	if (so->parallel != NULL)
		return so->started = next_parallel_leaf(so, dir);
	if (!so->bounds_valid)
		set_bounds(so);
	if (so->empty_range)
		return false;
	if (so->batch.context != NULL)
		MemoryContextReset(so->batch.context);
	if (likely(so->keys.tree != NULL) || !collect_range(so, dir))
		read_leaf(so, dir, NULL);
	so->started = true;
	return so->batch.n > 0 || advance_leaf(so, dir);
}

/* Next entry of the range of the current array elements, or NULL */
static uint8 *
next_in_range(ScanState *so, ScanDirection dir)
{
	int			step = ScanDirectionIsBackward(dir) ? -1 : 1;
	ScanBatch  *batch = &so->batch;

	if (!so->started && !start_range(so, dir))
		return NULL;
	if (batch->item + step < 0 || batch->item + step >= batch->n)
	{
		/* stay beside the last entry, in case the scan changes direction */
		batch->item = step < 0 ? -1 : batch->n;
		if (!advance_leaf(so, dir))
			return NULL;
	}
	batch->item += step;
	return batch_entry(so, batch->item);
}

/* Next entry that matches, or NULL */
static uint8 *
next_match(ScanState *so, ScanDirection dir)
{
	if (so->never)
		return NULL;
	if (!so->positioned)
	{
		if (!so->ranges_chosen)
			scan_choose_ranges(so);
		so->combination = 0;
		scan_first_elements(so, dir);
		so->started = so->narrays > 0 ? false : so->started;
		so->positioned = true;
	}
	for (;;)
	{
		uint8	   *entry = next_in_range(so, dir);

		if (entry == NULL)
		{
			if (so->narrays == 0)
				return NULL;
			if (so->started)
			{
				finish_kills(so);
				save_marked_batch(so);
			}
			so->started = false;
			so->combination++;
			if (!scan_next_elements(so, dir))
			{
				so->positioned = false;
				return NULL;
			}
			/* there may be very many combinations, and none with an entry */
			CHECK_FOR_INTERRUPTS();
			continue;
		}
		if (!so->any_filter ||
			(!scan_skip_has_no_match(so, entry) && scan_entry_matches(so, entry)))
			return entry;
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---- callbacks ---- */

IndexScanDesc
am_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan;
	ScanState  *so;

	Assert(norderbys == 0);
	scan = RelationGetIndexScan(index, nkeys, norderbys);
	so = palloc(sizeof(ScanState));
	memset(so, 0, offsetof(ScanState, batch));
	so->context = CurrentMemoryContext;
	so->max_conditions = nkeys;
	if (nkeys > 0)
	{
		so->conditions = palloc0(nkeys * sizeof(ScanCondition));
		so->key_copies = palloc(nkeys * sizeof(ScanKeyData));
		so->arrays = palloc(nkeys * sizeof(ScanArray));
	}
	so->batch.context = NULL;
	so->batch.collected = NULL;
	so->batch.killed = 0;
	scan->xs_itupdesc = RelationGetDescr(index);
	scan->opaque = so;
	return scan;
}

static void
attach_scan(ScanState *so, Relation index)
{
	index_attach_partial(&so->keys, index);
	so->stride = keys_stride(&so->keys.format);
	so->batch.context = so->keys.format.has_tuples ? batch_context(so) : NULL;
	if (so->keys.format.has_tuples)
		so->fence_context = AllocSetContextCreate(so->context, "sofort scan fence",
												  ALLOCSET_SMALL_SIZES);
	so->ready = true;
}

void
am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	ScanState  *so = scan->opaque;

	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (!so->ready)
		attach_scan(so, scan->indexRelation);
	finish_kills(so);
	so->parallel = compat_parallel_scan(scan);
	so->heap_store = NULL;
	so->started = so->positioned = so->bounds_valid = false;
	so->mark_set = so->mark_in_batch = false;
	scan_set_keys(scan, so);
}

void
am_endscan(IndexScanDesc scan)
{
	ScanState  *so = scan->opaque;

	finish_kills(so);
	if (so->array_context)
		MemoryContextDelete(so->array_context);
	if (so->row_context)
		MemoryContextDelete(so->row_context);
	if (so->fence_context)
		MemoryContextDelete(so->fence_context);
	if (so->batch.context)
		MemoryContextDelete(so->batch.context);
	if (so->mark)
	{
		if (so->mark->context)
			MemoryContextDelete(so->mark->context);
		pfree(so->mark);
	}
	if (so->itup)
		pfree(so->itup);
	if (so->conditions)
	{
		pfree(so->conditions);
		pfree(so->key_copies);
		pfree(so->arrays);
	}
	pfree(so);
}

/* Frees values that were made from bytes */
static void
free_deformed(ScanState *so, Datum *values, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(so->keys.index);
	int			i;

	for (i = 0; i < so->keys.format.nkeys; i++)
		if (!isnull[i] && !TupleDescAttr(desc, i)->attbyval)
			pfree(DatumGetPointer(values[i]));
}

/*
 * Puts other values into the tuple that was made last.  False if it cannot hold them: with
 * NULLs, or values of variable length, tuples differ in size.
 */
static bool
refill_itup(ScanState *so, const Datum *values, const bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(so->keys.index);
	char	   *data;
	Size		offset = 0;
	int			i;

	if (so->itup == NULL || IndexTupleHasNulls(so->itup))
		return false;
	for (i = 0; i < desc->natts; i++)
		if (isnull[i] || !TupleDescAttr(desc, i)->attbyval)
			return false;
	data = (char *) so->itup + IndexInfoFindDataOffset(so->itup->t_info);
	for (i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		offset = att_align_nominal(offset, att->attalign);
		store_att_byval(data + offset, values[i], att->attlen);
		offset += att->attlen;
	}
	return true;
}

/* Of an entry whose bytes say all */
static void
make_itup(ScanState *so, const uint8 *entry)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old = MemoryContextSwitchTo(so->context);

	keys_deform(&so->keys, entry, values, isnull);
	if (!refill_itup(so, values, isnull))
	{
		if (so->itup != NULL)
			pfree(so->itup);
		so->itup = index_form_tuple(RelationGetDescr(so->keys.index), values, isnull);
		free_deformed(so, values, isnull);
	}
	memcpy(so->itup_key, entry, so->keys.format.key_len);
	MemoryContextSwitchTo(old);
}

/* The entry as an index tuple, for index-only scans.  Entries with equal keys share one. */
static IndexTuple
entry_itup(ScanState *so, const uint8 *entry, ItemPointer tid)
{
	TreeTuple  *tuple = keys_entry_tuple(&so->keys.format, entry);

	if (tuple != NULL)
	{
		tuple->tuple.t_tid = *tid;	/* our copy */
		return &tuple->tuple;
	}
	if (so->itup == NULL || memcmp(so->itup_key, entry, so->keys.format.key_len) != 0)
		make_itup(so, entry);
	so->itup->t_tid = *tid;
	return so->itup;
}

/*
 * Rows of the entries that come next, while the current one is looked at: two for each,
 * until so many are on their way.  So a scan that ends early has fetched few in vain.
 */
static void
prefetch_rows(IndexScanDesc scan, ScanState *so, ScanDirection dir)
{
	ScanBatch  *batch = &so->batch;
	bool		backward = ScanDirectionIsBackward(dir);
	int			passed = backward ? batch->n - 1 - batch->item : batch->item;
	int			last = Min(Min(2 * passed + 2, passed + PREFETCH_ROWS), batch->n - 1);
	StoreDesc  *store;
	int			i;

	if (last <= passed || scan->heapRelation == NULL)
		return;
	if (so->heap_store == NULL)
		so->heap_store = store_open(scan->heapRelation);
	store = so->heap_store;
	if (scan->xs_want_itup && ((StoreIndexFetch *) scan->xs_heapfetch)->settled)
		return;					/* nor does an index-only scan look at the next ones */
	for (i = Min(2 * passed, passed + PREFETCH_ROWS - 1) + 1; i <= last; i++)
	{
		const uint8 *entry = batch_entry(so, backward ? batch->n - 1 - i : i);

		store_prefetch(store, row_from_position(store, keys_entry_row(&so->keys.format, entry)));
	}
}

bool
am_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	ScanState  *so = scan->opaque;
	uint8	   *entry;

	if (!so->positioned)
		compat_count_index_scan(scan);
	else if (scan->kill_prior_tuple)
		kill_current(scan, so);
	scan->xs_recheck = false;
	so->snapshot = so->reader = scan->xs_snapshot;
	if (is_too_early_for_planner(so))
		return false;
	entry = next_match(so, dir);
	if (entry == NULL)
		return false;
	prefetch_rows(scan, so, dir);
	index_entry_tid(&so->keys, entry, &scan->xs_heaptid);
	if (scan->xs_want_itup)
	{
		((StoreIndexFetch *) scan->xs_heapfetch)->unread = true;
		scan->xs_itup = entry_itup(so, entry, &scan->xs_heaptid);
	}
	return true;
}

int64
am_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	ScanState  *so = scan->opaque;
	uint8	   *entry;
	int64		n = 0;

	compat_count_index_scan(scan);
	so->snapshot = NULL;
	so->reader = scan->xs_snapshot;
	while ((entry = next_match(so, ForwardScanDirection)) != NULL)
	{
		ItemPointerData tid;

		index_entry_tid(&so->keys, entry, &tid);
		tbm_add_tuples(tbm, &tid, 1, false);
		n++;
	}
	return n;
}

void
am_markpos(IndexScanDesc scan)
{
	ScanState  *so = scan->opaque;
	int			i;

	so->mark_set = so->positioned && so->started;
	so->mark_in_batch = so->mark_set;
	so->mark_item = so->mark_set ? so->batch.item : 0;
	for (i = 0; i < so->narrays; i++)
		so->arrays[i].marked = so->arrays[i].current;
}

/* The batch with the mark becomes the current one. */
static void
restore_batch(ScanState *so)
{
	MemoryContext context = so->batch.context;

	so->batch = *so->mark;
	so->mark->context = context;
	so->mark_in_batch = true;
}

void
am_restrpos(IndexScanDesc scan)
{
	ScanState  *so = scan->opaque;
	int			i;

	if (!so->mark_set)
	{
		so->started = so->positioned = false;
		return;
	}
	for (i = 0; i < so->narrays; i++)
	{
		ScanArray  *array = &so->arrays[i];

		array->current = array->marked;
		so->conditions[array->condition].key->sk_argument = array->elements[array->current];
	}
	if (so->narrays > 0)
		scan_set_bounds(so);
	if (!so->mark_in_batch)
		restore_batch(so);
	so->batch.item = so->mark_item;
	so->started = so->positioned = true;
}
