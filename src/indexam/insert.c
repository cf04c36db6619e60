/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  Forming entries from column values, and inserting them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/itup.h"
#include "nodes/execnodes.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/cleanup.h"
#include "sofort/pmem/persist.h"
#include "sofort/txn/txn.h"

#include "am_internal.h"
#include "partial.h"

static void
check_tid(Relation index, const ItemPointerData *tid)
{
	if (!row_tid_is_valid(tid))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("row (%u,%u) cannot be indexed by sofort index \"%s\"",
						ItemPointerGetBlockNumberNoCheck(tid),
						ItemPointerGetOffsetNumberNoCheck(tid),
						RelationGetRelationName(index))));
}

/*
 * Is the tree in the pool?  Such a tree is never built in parts: either it is there, or
 * this is the build of it.
 */
static inline bool
has_pool_tree(const IndexKeys *keys)
{
	return keys->tree != NULL && tree_in_pool(keys->tree);
}

/* Copy of the index tuple in the arena or the pool, or in a memory context */
static TreeTuple *
form_tuple(const IndexKeys *keys, const Datum *values, const bool *isnull,
		   MemoryContext context)
{
	IndexTuple	itup = index_form_tuple(RelationGetDescr(keys->index), (Datum *) values,
										(bool *) isnull);
	TreeTuple  *tuple;

	if (context != NULL)
	{
		tuple = MemoryContextAllocZero(context, offsetof(TreeTuple, tuple) + IndexTupleSize(itup));
		tuple->size = (uint32) IndexTupleSize(itup);
		memcpy(&tuple->tuple, itup, IndexTupleSize(itup));
	}
	else if (has_pool_tree(keys))
		tuple = tree_pool_tuple_make(keys->tree, itup);
	else
		tuple = tree_tuple_make(itup);
	pfree(itup);
	if (tuple == NULL)
		index_tree_full(keys);
	return tuple;
}

void
index_form_entry(const IndexKeys *keys, const Datum *values, const bool *isnull,
				 const ItemPointerData *tid, uint8 *entry)
{
	index_form_private_entry(keys, values, isnull, tid, entry, NULL);
}

void
index_form_private_entry(const IndexKeys *keys, const Datum *values, const bool *isnull,
						 const ItemPointerData *tid, uint8 *entry, MemoryContext context)
{
	const KeyFormat *format = &keys->format;
	bool		needs_tuple;
	TreeTuple  *tuple = NULL;

	check_tid(keys->index, tid);
	needs_tuple = keys_encode(format, values, isnull, entry);
	tree_entry_set_row(entry + format->key_len, position_from_tid(tid));
	if (!format->has_tuples)
		return;
	if (needs_tuple)
		tuple = form_tuple(keys, values, isnull, context);
	if (context == NULL && has_pool_tree(keys))
		tree_entry_set_tuple(keys->tree, entry, tuple);
	else
		memcpy(entry + format->key_len + TREE_ROW_BYTES, &tuple, sizeof(tuple));
}

/* An entry that the tree did not take */
void
index_discard_entry(const IndexKeys *keys, const uint8 *entry)
{
	TreeTuple  *tuple = keys_entry_tuple(&keys->format, entry);

	if (has_pool_tree(keys))
		tree_pool_tuple_discard(keys->tree, tuple);
	else
		tree_tuple_discard(tuple);
}

TreeResult
index_insert_into(const IndexKeys *keys, Tree *tree, const uint8 *entry)
{
	TreeTuple  *tuple = keys_entry_tuple(&keys->format, entry);
	EntryPlace	place;
	TreeResult	result;

	keys_place(&place, keys, entry, 0);
	result = tree_insert(tree, entry, &place.probe, &keys->order);
	if (result == TREE_FULL)
	{
		/* twice, as what was retired last waits for an epoch */
		tree_reclaim(tree);
		tree_reclaim(tree);
		result = tree_insert(tree, entry, &place.probe, &keys->order);
	}
	if (result == TREE_DONE && tuple != NULL)
		tree_count_tuple(tree, tuple);
	return result;
}

/* Insert an entry that may be there already. */
static void
plain_insert(IndexKeys *keys, const uint8 *entry, bool *inserted)
{
	IndexView	view;
	TreeResult	result;

	epoch_enter();
	index_view(keys, &view);
	result = index_insert_into(keys, view.tree, entry);
	epoch_exit();
	*inserted = result == TREE_DONE;
	if (result == TREE_FULL)
		index_tree_full(keys);
}

static bool
any_null(const IndexKeys *keys, const bool *isnull)
{
	int			i;

	for (i = 0; i < keys->format.nkeys; i++)
		if (isnull[i])
			return true;
	return false;
}

/* Keys of this index, kept for the statement */
static IndexKeys *
statement_keys(Relation index, struct IndexInfo *info)
{
	IndexKeys  *keys = info->ii_AmCache;

	if (keys == NULL || keys->index != index)
	{
		keys = index_keys_open(index, info->ii_Context);
		info->ii_AmCache = keys;
	}
	else if (keys->tree == NULL)
		index_attach_partial(keys, index);
	return keys;
}

static bool
insert_as_checked(IndexKeys *keys, uint8 *entry, const Datum *values, const bool *isnull,
				  ItemPointer tid, Relation heap, IndexUniqueCheck check, bool *inserted)
{
	if (check != UNIQUE_CHECK_NO)
		return unique_insert(keys, entry, values, isnull, tid, heap, check, inserted);
	plain_insert(keys, entry, inserted);
	return false;
}

typedef struct GuardedEntry
{
	const IndexKeys *keys;
	const uint8 *entry;
	bool		inserted;
} GuardedEntry;

static void
discard_unless_inserted(int code, Datum arg)
{
	const GuardedEntry *guarded = (const GuardedEntry *) DatumGetPointer(arg);

	if (!guarded->inserted)
		index_discard_entry(guarded->keys, guarded->entry);
}

/*
 * The entry's tuple must not leak if an error is raised (comparing may do so, too), nor if
 * the session ends while it waits for another one's key.
 */
static bool
guarded_insert(IndexKeys *keys, uint8 *entry, const Datum *values, const bool *isnull,
			   ItemPointer tid, Relation heap, IndexUniqueCheck check)
{
	GuardedEntry guarded = {.keys = keys, .entry = entry};
	volatile bool is_unique = false;

	if (keys_entry_tuple(&keys->format, entry) == NULL)
		return insert_as_checked(keys, entry, values, isnull, tid, heap, check, &guarded.inserted);
	SOFORT_ENSURE_ERROR_CLEANUP(discard_unless_inserted, PointerGetDatum(&guarded));
	{
		is_unique = insert_as_checked(keys, entry, values, isnull, tid, heap, check,
									  &guarded.inserted);
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	discard_unless_inserted(0, PointerGetDatum(&guarded));
	return is_unique;
}

/*
 * The commit of a transaction that writes to the table makes its entries durable, too.  For
 * other insertions (CREATE INDEX CONCURRENTLY) it is done here.
 */
static void
entry_inserted(const IndexKeys *keys, const uint8 *entry)
{
	if (has_pool_tree(keys) && !txn_is_writing())
		pm_drain();
	predicate_check_key(keys, entry);
}

bool
am_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
		  IndexUniqueCheck check, bool unchanged, struct IndexInfo *info)
{
	IndexKeys  *keys = statement_keys(index, info);
	uint8		entry[TREE_MAX_STRIDE];
	bool		is_unique;

	/* equal to no other: a deferred check has nothing to do */
	bool		unlike_all = check != UNIQUE_CHECK_NO && any_null(keys, isnull) &&
		!index->rd_index->indnullsnotdistinct;

	if (unlike_all && check == UNIQUE_CHECK_EXISTING)
		return true;
	index_form_entry(keys, values, isnull, tid, entry);
	is_unique = guarded_insert(keys, entry, values, isnull, tid, heap,
							   unlike_all ? UNIQUE_CHECK_NO : check);
	entry_inserted(keys, entry);
	return unlike_all || is_unique;
}
