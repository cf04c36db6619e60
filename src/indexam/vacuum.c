/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Removal of entries whose rows are gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "sofort/compat/scan.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"

#include "am_internal.h"

typedef struct VacuumState
{
	IndexKeys	keys;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	TreeLeaf	leaf;
	EntryPlace *places;			/* of the leaf's entries that go */
	TreeProbe **probes;
	EntryPlace	fence;			/* where the next leaf begins */
	TreeTuple  *fence_tuple;	/* private copy */
	TreeSweep  *sweep;			/* or NULL */
} VacuumState;

/* The separator must outlive the epoch. */
static void
keep_fence(VacuumState *state)
{
	Tree	   *tree = state->keys.tree;

	if (state->fence_tuple != NULL)
		pfree(state->fence_tuple);
	state->fence_tuple = tree_copy_tuple(tree, state->leaf.high, CurrentMemoryContext);
	keys_place(&state->fence, &state->keys, state->leaf.high, 0);
}

/* Deletes the entries that the callback names.  Returns how many. */
static int
delete_dead_entries(VacuumState *state)
{
	Tree	   *tree = state->keys.tree;
	int			n = 0;
	int			i;

	for (i = 0; i < state->leaf.n; i++)
	{
		uint8	   *entry = state->leaf.entries + i * tree->stride;
		ItemPointerData tid;

		index_entry_tid(&state->keys, entry, &tid);
		if (!state->callback(&tid, state->callback_state))
			continue;
		keys_place(&state->places[n], &state->keys, entry, 0);
		state->probes[n] = &state->places[n].probe;
		n++;
	}
	return tree_delete(tree, state->probes, n, NULL);
}

/* True: there is another leaf. */
static bool
vacuum_leaf(VacuumState *state, bool first)
{
	Tree	   *tree = state->keys.tree;
	TreeProbe  *seek = first ? NULL : &state->fence.probe;
	int			deleted;

	epoch_enter();
	tree_read_leaf_sweeping(tree, seek, &state->keys.order, &state->leaf, state->sweep);
	if (state->leaf.has_high)
		keep_fence(state);
	deleted = delete_dead_entries(state);
	/* others have removed entries, too */
	if (state->leaf.n > 0 && (deleted > 0 || tree_leaf_is_sparse(tree, state->leaf.n)))
	{
		EntryPlace	place;

		keys_place(&place, &state->keys, state->leaf.entries, 0);
		tree_shrink(tree, &place.probe);
	}
	epoch_exit();
	SOFORT_STOP("index-leaf-vacuumed");
	state->stats->tuples_removed += deleted;
	state->stats->num_index_tuples += state->leaf.n - deleted;
	return state->leaf.has_high;
}

/* Goes over all leaves; also finds the space in the pool that is free since earlier lives. */
static void
vacuum_tree(VacuumState *state)
{
	int			most = TREE_LEAF_BYTES / state->keys.tree->stride;
	bool		first = true;

	state->places = palloc(most * sizeof(EntryPlace));
	state->probes = palloc(most * sizeof(TreeProbe *));
	state->sweep = tree_sweep_begin(state->keys.tree);
	while (vacuum_leaf(state, first))
	{
		first = false;
		compat_vacuum_delay_point();
	}
	if (state->sweep != NULL)
		(void) tree_sweep_end(state->sweep);
	tree_reclaim(state->keys.tree);
	tree_reclaim(state->keys.tree);
	if (state->fence_tuple != NULL)
		pfree(state->fence_tuple);
	pfree(state->places);
	pfree(state->probes);
}

static BlockNumber
pages_of(uint64 bytes)
{
	return (BlockNumber) (bytes / BLCKSZ + 1);
}

static bool
nothing_is_dead(ItemPointer tid, void *arg)
{
	return false;
}

IndexBulkDeleteResult *
am_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
			  IndexBulkDeleteCallback callback, void *callback_state)
{
	VacuumState *state = palloc0(sizeof(VacuumState));

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	index_attach(&state->keys, info->index);
	state->stats = stats;
	state->callback = callback;
	state->callback_state = callback_state;
	stats->num_index_tuples = 0;
	stats->estimated_count = false;
	vacuum_tree(state);
	stats->num_pages = pages_of(tree_dram_bytes(state->keys.tree) +
								tree_pool_bytes(state->keys.tree));
	pfree(state);
	return stats;
}

/* No row was dead, but the space that is free since an earlier life is still to be found. */
static void
sweep_if_needed(Relation index)
{
	VacuumState *state = palloc0(sizeof(VacuumState));
	IndexBulkDeleteResult unused = {0};

	index_attach(&state->keys, index);
	state->stats = &unused;
	state->callback = nothing_is_dead;
	if (tree_needs_sweep(state->keys.tree))
		vacuum_tree(state);
	pfree(state);
}

IndexBulkDeleteResult *
am_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	IndexamStats tree;

	if (info->analyze_only)
		return stats;
	indexam_collect_garbage(info->index);
	if (stats != NULL)
		return stats;
	indexam_stats(info->index, &tree);
	if (tree.bytes_pool > 0)
		sweep_if_needed(info->index);
	if (tree.state != INDEX_READY)
		return NULL;
	stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_pages = pages_of(tree.bytes_dram + tree.bytes_pool);
	stats->num_index_tuples = (double) tree.entries;
	stats->estimated_count = true;
	return stats;
}
