/*-------------------------------------------------------------------------
 *
 * unique.c
 *	  Uniqueness checks, with the rules of nbtree.
 *
 * Check and insertion are made atomic by one of the index's locks, chosen by the key's
 * hash: equal keys have equal bytes, so they meet at one lock.  It is held while rows
 * are looked up (which takes no heavyweight lock), never during the wait for a
 * transaction; after the wait everything is checked again.  It is an LWLock, unless
 * comparing keys may itself wait for heavyweight locks: then it is a heavyweight lock,
 * too.
 *
 * While the index is being rebuilt, the same is done with its new entries.  Rows from
 * before the rebuild are checked afterwards, without the lock: no more of them can
 * come, and our own entry, which is there already, stops everybody else with the same
 * key.  If we have to wait for the transaction of such a row, we take our entry out and
 * begin again, because that transaction may insert the key before it ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am_internal.h"
#include "partial.h"

typedef struct UniqueCheck
{
	IndexKeys  *keys;
	const uint8 *entry;
	const Datum *values;
	const bool *isnull;
	ItemPointer tid;
	Relation	heap;
	IndexUniqueCheck check;
	bool		opaque;			/* comparing may read catalogs */
	bool		may_wait;		/* ... and take other heavyweight locks */
	bool		found;			/* our own entry, if EXISTING */
	bool		maybe_taken;	/* PARTIAL */
	bool		conflict;		/* a duplicate, to be reported after the lock is released */
	TransactionId wait_for;
	uint32		token;			/* of a speculative insertion */
	bool		complete;		/* the index is not being rebuilt, so entries may be removed */
	Tree	   *removed_from;	/* some were */
	uint64		old_before;		/* not 0: rows of this and later transactions no longer count */
} UniqueCheck;

typedef enum CheckStep
{
	STEP_NEXT,					/* look at more entries */
	STEP_STOP					/* the check has its result */
} CheckStep;

/* Looks at one entry with the same key: does its row count?  *dead: it never will again. */
static CheckStep
check_entry(UniqueCheck *uc, const uint8 *other, bool *dead)
{
	ItemPointerData tid;
	SnapshotData dirty;

	*dead = false;
	index_entry_tid(uc->keys, other, &tid);
	if (ItemPointerEquals(&tid, uc->tid))
	{
		/* even if a rebuild has just found the new row in the table */
		uc->found = true;
		return STEP_NEXT;
	}
	if (uc->old_before != 0 &&
		!store_root_is_wanted(store_open(uc->heap), row_from_tid(store_open(uc->heap), &tid), 0,
							  uc->old_before))
		return STEP_NEXT;
	InitDirtySnapshot(dirty);
	if (!table_index_fetch_tuple_check(uc->heap, &tid, &dirty, dead))
		return STEP_NEXT;

	/* the caller of a partial check comes back later */
	if (uc->check == UNIQUE_CHECK_PARTIAL)
	{
		uc->maybe_taken = true;
		return STEP_STOP;
	}
	uc->wait_for = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
	if (TransactionIdIsValid(uc->wait_for))
	{
		uc->token = dirty.speculativeToken;
		return STEP_STOP;
	}

	/*
	 * A conflict, unless the row to be inserted is dead itself by now (CREATE
	 * INDEX CONCURRENTLY).
	 */
	tid = *uc->tid;
	uc->conflict = table_index_fetch_tuple_check(uc->heap, &tid, SnapshotSelf, NULL);
	return STEP_STOP;
}

/*
 * Without this, a key that is inserted and rolled back again and again would meet all
 * former entries.  The row id cannot belong to another row meanwhile, because our
 * transaction id is older than the reading of the entry (README.md, "Entries of dead
 * rows").
 */
static void
remove_dead(UniqueCheck *uc, Tree *tree, const uint8 *entry)
{
	EntryPlace	place;
	TreeProbe  *probe = &place.probe;

	if (!uc->complete || !TransactionIdIsValid(MyProc->xid))
		return;
	keys_place(&place, uc->keys, entry, 0);
	if (tree_delete(tree, &probe, 1, NULL) > 0)
		uc->removed_from = tree;
}

/* All entries with the key, leaf by leaf */
static void
check_tree(UniqueCheck *uc, Tree *tree)
{
	EntryPlace	lower;
	EntryPlace	upper;
	EntryPlace	fence;
	const TreeProbe *seek = &lower.probe;
	TreeLeaf	leaf;
	bool		dead;
	int			i;

	keys_place(&lower, uc->keys, uc->entry, -1);
	keys_place(&upper, uc->keys, uc->entry, 1);
	for (;;)
	{
		tree_read_leaf(tree, seek, false, seek, &upper.probe, &uc->keys->order, &leaf);
		for (i = 0; i < leaf.n; i++)
		{
			const uint8 *other = leaf.entries + i * tree->stride;

			if (check_entry(uc, other, &dead) == STEP_STOP)
				return;
			if (dead)
				remove_dead(uc, tree, other);
		}
		if (leaf.cut_high || !leaf.has_high ||
			tree_probe_compare(tree, &upper.probe, leaf.high) <= 0)
			return;
		keys_place(&fence, uc->keys, leaf.high, 0);
		seek = &fence.probe;
	}
}

/* Does the check have its result? */
static bool
is_decided(const UniqueCheck *uc)
{
	return uc->maybe_taken || uc->conflict || TransactionIdIsValid(uc->wait_for);
}

/* Checks all places where the index may hold new entries */
static void
check_key(UniqueCheck *uc, const IndexView *view)
{
	uc->complete = view->partial == NULL;
	check_tree(uc, view->tree);
	if (view->partial != NULL && view->tree != view->partial->delta && !is_decided(uc))
		check_tree(uc, view->partial->delta);
}

/* Checks rows that are older than the rebuild. */
static void
check_old_rows(UniqueCheck *uc, PartialIndex *partial)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "sofort unique check",
												  ALLOCSET_SMALL_SIZES);
	PartialSet	set = {.context = context, .limit = PG_UINT64_MAX};
	EntryPlace	lower;
	EntryPlace	upper;
	bool		dead;
	uint64		i;

	keys_place(&lower, uc->keys, uc->entry, -1);
	keys_place(&upper, uc->keys, uc->entry, 1);
	if (indexam_before_search != NULL)
		indexam_before_search(NULL, NULL);
	partial_collect_old(uc->keys, uc->heap, partial, &lower.probe, &upper.probe, &set);
	if (indexam_after_search != NULL)
		indexam_after_search(&uc->keys->shared->searched);
	SOFORT_STOP("unique-old-rows");
	for (i = 0; i < set.n; i++)
		if (check_entry(uc, set.entries + i * keys_stride(&uc->keys->format), &dead) == STEP_STOP)
			break;
	MemoryContextDelete(context);
}

/*
 * Removes our own entry from the delta, with its tuple.  In the epoch in which it was
 * inserted, so nobody has copied the delta yet.
 */
static void
take_back(UniqueCheck *uc, Tree *delta)
{
	EntryPlace	place;
	TreeProbe  *probe = &place.probe;

	keys_place(&place, uc->keys, uc->entry, 0);
	(void) tree_delete(delta, &probe, 1, NULL);
}

static void
raise_violation(UniqueCheck *uc)
{
	Relation	index = uc->keys->index;
	char	   *key_desc;

	/*
	 * A transaction that must fail with a serialization error anyway reports that: a client
	 * that looked first and found no such row can then just try again.
	 */
	predicate_check_key(uc->keys, uc->entry);

	key_desc = BuildIndexValueDescription(index, (Datum *) uc->values, (bool *) uc->isnull);
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates unique constraint \"%s\"",
					RelationGetRelationName(index)),
			 key_desc ? errdetail("Key %s already exists.", key_desc) : 0,
			 errtableconstraint(uc->heap, RelationGetRelationName(index))));
}

static void
forget_result(UniqueCheck *uc)
{
	uc->maybe_taken = uc->conflict = false;
	uc->wait_for = InvalidTransactionId;
	uc->token = 0;
	uc->old_before = 0;
}

/* ---- keys that nothing but their operator class compares ---- */

/* These look at nothing but two values, and at the collation when it is used first. */
static bool
compares_values_alone(Oid proc)
{
	switch (proc)
	{
		case F_BTTEXTCMP:
		case F_BPCHARCMP:
		case F_BTNAMECMP:
		case F_BTNAMETEXTCMP:
		case F_BTTEXTNAMECMP:
		case F_BITCMP:
		case F_VARBITCMP:
		case F_INTERVAL_CMP:
		case F_JSONB_CMP:
		case F_NETWORK_CMP:
		case F_TIMETZ_CMP:
		case F_TSVECTOR_CMP:
			return true;
		default:
			return false;
	}
}

/*
 * A comparison function that keys.c does not know may open relations (that of a row type,
 * say), and run whatever a user has written.
 */
static void
look_at_comparisons(UniqueCheck *uc)
{
	const KeyFormat *format = &uc->keys->format;
	int			i;

	for (i = 0; i < format->nkeys; i++)
	{
		if (format->columns[i].kind != KEY_OPAQUE)
			continue;
		uc->opaque = true;
		if (!compares_values_alone(format->columns[i].compare_proc))
			uc->may_wait = true;
	}
}

/* (0,1) and (0,2) of an index are other locks: rebuild.c, verify.c */
static void
opaque_key_tid(const UniqueCheck *uc, ItemPointer tid)
{
	ItemPointerSet(tid, hash_bytes(uc->entry, uc->keys->format.key_len), 3);
}

/*
 * Outside of epochs.  After that the comparison is run once, so that it waits here for what
 * it loads at its first use, not in an epoch, for whose end others may wait, nor under an
 * LWLock.
 */
static void
prepare_opaque_key(const UniqueCheck *uc)
{
	ItemPointerData tid;

	if (uc->may_wait)
	{
		opaque_key_tid(uc, &tid);
		LockTuple(uc->keys->index, &tid, ExclusiveLock);
	}
	(void) keys_equal(uc->keys, uc->entry, uc->entry);
}

static void
unlock_opaque_key(const UniqueCheck *uc)
{
	ItemPointerData tid;

	opaque_key_tid(uc, &tid);
	UnlockTuple(uc->keys->index, &tid, ExclusiveLock);
}

/* ---- check and insertion ---- */

/*
 * Checks, and inserts if nothing is in the way; inside an epoch.  The lock of an opaque key
 * is released here.
 */
static TreeResult
check_and_insert_now(UniqueCheck *uc, IndexView *view, bool *inserted)
{
	LWLock	   *lock = registry_unique_lock(uc->keys->shared, uc->entry,
											uc->keys->format.key_len);
	TreeResult	result = TREE_DONE;

	if (!uc->may_wait)
		LWLockAcquire(lock, LW_EXCLUSIVE);
	index_view(uc->keys, view); /* the state must be no older than what the lock's last holder
								 * saw */
	check_key(uc, view);
	if (!TransactionIdIsValid(uc->wait_for) && !uc->conflict &&
		uc->check != UNIQUE_CHECK_EXISTING)
	{
		result = index_insert_into(uc->keys, view->tree, uc->entry);
		*inserted = result == TREE_DONE;
	}
	if (uc->may_wait)
		unlock_opaque_key(uc);
	else
		LWLockRelease(lock);
	return result;
}

/*
 * True: done.  Once our own entry is there, only old rows can be in the way: those who come
 * later wait for us.  False: wait, and call again; if *inserted, our own entry was there
 * and was taken back.
 */
static bool
check_and_insert(UniqueCheck *uc, bool *inserted)
{
	IndexView	view;
	TreeResult	result;

	forget_result(uc);
	if (uc->opaque)
		prepare_opaque_key(uc); /* an error releases its lock */
	epoch_enter();
	result = check_and_insert_now(uc, &view, inserted);
	if (view.collecting && result != TREE_FULL && !is_decided(uc))
	{
		uc->old_before = view.partial->before;
		check_old_rows(uc, view.partial);
		if (*inserted && TransactionIdIsValid(uc->wait_for))
			take_back(uc, view.tree);
	}
	epoch_exit();

	if (result == TREE_FULL)
		index_tree_full(uc->keys);
	if (uc->conflict)
		raise_violation(uc);
	return !TransactionIdIsValid(uc->wait_for);
}

static void
wait_for_other(const UniqueCheck *uc)
{
	CHECK_FOR_INTERRUPTS();
	if (uc->token != 0)
		SpeculativeInsertionWait(uc->wait_for, uc->token);
	else
		XactLockTableWait(uc->wait_for, uc->keys->index, uc->tid, XLTW_InsertIndex);
}

bool
unique_insert(IndexKeys *keys, uint8 *entry, const Datum *values, const bool *isnull,
			  ItemPointer tid, Relation heap, IndexUniqueCheck check, bool *inserted)
{
	UniqueCheck uc = {.keys = keys, .entry = entry, .values = values, .isnull = isnull,
	.tid = tid, .heap = heap, .check = check};

	look_at_comparisons(&uc);
	while (!check_and_insert(&uc, inserted))
	{
		wait_for_other(&uc);
		if (*inserted)
		{
			/* it was inserted and taken back (until here the tuple is not ours) */
			index_form_entry(keys, values, isnull, tid, entry);
			*inserted = false;
		}
	}
	if (uc.removed_from != NULL)
		tree_reclaim(uc.removed_from);

	/* as in nbtree: the deferred check must find the row it was called for */
	if (check == UNIQUE_CHECK_EXISTING && !uc.found)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("failed to re-find tuple within index \"%s\"",
						RelationGetRelationName(keys->index)),
				 errhint("This may be because of a non-immutable index expression."),
				 errtableconstraint(heap, RelationGetRelationName(keys->index))));
	return !uc.maybe_taken;
}
