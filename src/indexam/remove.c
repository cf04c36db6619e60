/*-------------------------------------------------------------------------
 *
 * remove.c
 *	  Removing the entries of single rows that are dead to all, whose keys are read from
 *	  the rows.
 *
 * Used by updates and deletions between two runs of VACUUM.  It works if all indexes of
 * the table are sofort indexes without expressions and are ready.  Nothing here waits,
 * neither for an index to be built nor for a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/store/column_read.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "am_internal.h"
#include "remove.h"

/* One of the table's indexes, locked */
typedef struct RemovalIndex
{
	IndexKeys	keys;
	int			atts[INDEX_MAX_KEYS];
} RemovalIndex;

/* Reset before each use, because an error may have left something in it. */
static MemoryContext
removal_context(void)
{
	static MemoryContext context = NULL;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "sofort index entries to remove",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(context);
	return context;
}

/* ---- the indexes ---- */

static bool
holds_columns_only(Relation index)
{
	int			i;

	for (i = 0; i < IndexRelationGetNumberOfAttributes(index); i++)
		if (index->rd_index->indkey.values[i] <= 0)
			return false;
	return true;
}

/*
 * Only valid ones: an index that is being built concurrently may still get an entry for a
 * row that its build has already seen.
 */
static StoreRemoval
open_index(Oid oid, RemovalIndex **removal)
{
	Relation	index;
	StoreRemoval result;
	int			i;

	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return STORE_REMOVAL_LATER;
	*removal = palloc(sizeof(RemovalIndex));
	index = index_open(oid, NoLock);
	if (!am_is_ours(index) || !holds_columns_only(index))
		result = STORE_REMOVAL_NEVER;
	else if (index->rd_firstRelfilelocatorSubid == InvalidSubTransactionId &&
			 index->rd_index->indisvalid && index->rd_index->indisready &&
			 index->rd_index->indislive && index_attach_if_ready(&(*removal)->keys, index))
		result = STORE_REMOVAL_DONE;
	else
		result = STORE_REMOVAL_LATER;
	if (result != STORE_REMOVAL_DONE)
	{
		index_close(index, RowExclusiveLock);
		return result;
	}
	for (i = 0; i < IndexRelationGetNumberOfAttributes(index); i++)
		(*removal)->atts[i] = index->rd_index->indkey.values[i] - 1;
	return result;
}

static void
close_indexes(List *indexes)
{
	ListCell   *lc;

	foreach(lc, indexes)
		index_close(((RemovalIndex *) lfirst(lc))->keys.index, RowExclusiveLock);
}

/*
 * Opens all indexes or none.  None, too, if this transaction may have dropped an index or
 * rebuilt it: a rollback brings back the former one with its entries, but not the rows that
 * were freed.  Such commands lock the table, or (SET TABLESPACE) change the index's file.
 */
static StoreRemoval
open_indexes(Relation heap, List **indexes)
{
	ListCell   *lc;

	*indexes = NIL;
	if (CheckRelationLockedByMe(heap, ShareLock, true))
		return STORE_REMOVAL_LATER;
	foreach(lc, RelationGetIndexList(heap))
	{
		RemovalIndex *removal;
		StoreRemoval result = open_index(lfirst_oid(lc), &removal);

		if (result != STORE_REMOVAL_DONE)
		{
			close_indexes(*indexes);
			return result;
		}
		*indexes = lappend(*indexes, removal);
	}
	return STORE_REMOVAL_DONE;
}

/* ---- entries ---- */

/* Finds the place of a root's entry; its tuple is in this memory context. */
static void
find_entry(const RemovalIndex *removal, StoreDesc *store, uint64 row, EntryPlace *place)
{
	const KeyFormat *format = &removal->keys.format;
	uint8		entry[TREE_MAX_STRIDE];
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	ItemPointerData tid;

	store_chain_values(store, row, removal->atts, format->natts, values, isnull);
	row_to_tid(store, row, &tid);
	index_form_private_entry(&removal->keys, values, isnull, &tid, entry, CurrentMemoryContext);
	keys_place(place, &removal->keys, entry, 0);
}

/*
 * Removes the entries of all rows from one index.  If the entry of a row is not found and
 * its key can be relied upon, it has none (predicate, or removed before); otherwise the row
 * is left to VACUUM.  Returns how many of the rows have no entry now.  What tree_delete()
 * has done is durable.
 */
static int
remove_from(RemovalIndex *removal, StoreDesc *store, uint64 *rows, int n)
{
	Tree	   *tree = removal->keys.tree;
	bool		reliable = !store_values_freed(store) && !store_chains_differ(store);
	EntryPlace *places = palloc(n * sizeof(EntryPlace));
	TreeProbe **probes = palloc(n * sizeof(TreeProbe *));
	int		   *left = palloc(n * sizeof(int));
	int			kept = 0;
	int			i;

	epoch_enter();
	for (i = 0; i < n; i++)
	{
		find_entry(removal, store, rows[i], &places[i]);
		probes[i] = &places[i].probe;
	}
	(void) tree_delete(tree, probes, n, left);
	for (i = 0; i < n; i++)
	{
		if (left[i] >= 0 && tree_leaf_is_sparse(tree, left[i]))
			tree_shrink(tree, probes[i]);
		if (left[i] >= 0 || reliable)
			rows[kept++] = rows[i];
	}
	epoch_exit();
	tree_reclaim(tree);
	return kept;
}

StoreRemoval
index_remove_entries(Relation heap, StoreDesc *store, uint64 *rows, int *n)
{
	MemoryContext old = MemoryContextSwitchTo(removal_context());
	List	   *indexes;
	ListCell   *lc;
	StoreRemoval result = open_indexes(heap, &indexes);

	if (result == STORE_REMOVAL_DONE)
	{
		foreach(lc, indexes)
			*n = remove_from(lfirst(lc), store, rows, *n);
		close_indexes(indexes);
	}
	MemoryContextSwitchTo(old);
	return result;
}
