/*-------------------------------------------------------------------------
 *
 * index_fetch.c
 *	  Rows by TID: for indexes (following chains), and exact versions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "miscadmin.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/latency.h"
#include "sofort/tableam/callbacks.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"

typedef struct SofortIndexFetch
{
	IndexFetchTableData base;
	StoreDesc  *store;
	uint64		root;			/* of the entry being fetched */
	RowRef		last;			/* version returned for it, for call_again */
} SofortIndexFetch;

/* The version at this TID; false if there is none (any more). */
bool
tableam_locate(StoreDesc *store, const ItemPointerData *tid, RowRef *ref)
{
	return row_tid_is_valid(tid) && store_locate(store, row_from_tid(store, tid), ref) &&
		word_read(&ref->words->begin) != WORD_EMPTY;
}

/*
 * SSI: readers take the lock before they read the words for the last time, and writers look
 * for locks after they have changed the words.  So one of them sees the other, without a
 * page lock that covers both steps.
 */
static void
predicate_lock_version(Relation rel, StoreDesc *store, const RowRef *ref, Snapshot snapshot)
{
	ItemPointerData tid;

	if (!CheckForSerializableConflictOutNeeded(rel, snapshot))
		return;
	row_to_tid(store, ref->row, &tid);
	PredicateLockTID(rel, &tid, snapshot, txn_word_xid(word_read(&ref->words->begin)));
	txn_serializable_conflict_out(rel, ref->words, true, snapshot);
}

/* Does the snapshot see this very version?  Includes the SSI calls. */
static bool
row_visible(Relation rel, StoreDesc *store, const RowRef *ref, Snapshot snapshot)
{
	bool		visible = txn_version_visible(store->id, ref->row, ref->words, snapshot);

	if (CheckForSerializableConflictOutNeeded(rel, snapshot))
		txn_serializable_conflict_out(rel, ref->words, visible, snapshot);
	if (visible)
		predicate_lock_version(rel, store, ref, snapshot);
	return visible;
}

/* The version of a chain that the snapshot sees.  Includes the SSI calls. */
bool
tableam_fetch_chain(Relation rel, StoreDesc *store, uint64 root, Snapshot snapshot,
					RowRef *found, bool *all_dead)
{
	if (!store_chain_fetch(rel, store, root, snapshot, found, all_dead))
		return false;
	predicate_lock_version(rel, store, found, snapshot);
	return true;
}

/* ------------------------------------------------------------------------
 * Index scans
 * ------------------------------------------------------------------------
 */

IndexFetchTableData *
tableam_index_fetch_begin(Relation rel)
{
	SofortIndexFetch *fetch = palloc0(sizeof(SofortIndexFetch));

	fetch->base.rel = rel;
	fetch->store = store_open(rel);
	return &fetch->base;
}

void
tableam_index_fetch_reset(IndexFetchTableData *data)
{
	/* nothing is held between calls; attributes may have changed, though */
	((SofortIndexFetch *) data)->store = store_open(data->rel);
}

void
tableam_index_fetch_end(IndexFetchTableData *data)
{
	pfree(data);
}

/*
 * Snapshots other than MVCC may see several versions of a chain.  The order of
 * store_chain_fetch(): the root, then newest to oldest.
 */
static bool
fetch_another(SofortIndexFetch *fetch, Snapshot snapshot)
{
	Relation	rel = fetch->base.rel;
	RowRef		next;
	bool		more;

	if (fetch->last.row == fetch->root)
		more = store_chain_newest(fetch->store, &fetch->last, &next);
	else
		more = store_chain_older(fetch->store, &fetch->last, &next);

	while (more && next.row != fetch->root)
	{
		fetch->last = next;
		if (row_visible(rel, fetch->store, &next, snapshot))
			return true;
		more = store_chain_older(fetch->store, &fetch->last, &next);
	}
	return false;
}

bool
tableam_index_fetch_tuple(IndexFetchTableData *data, ItemPointer tid, Snapshot snapshot,
						  TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	SofortIndexFetch *fetch = (SofortIndexFetch *) data;
	bool		found;

	if (all_dead)
		*all_dead = false;

	epoch_enter();
	if (*call_again)
		found = fetch_another(fetch, snapshot);
	else if (!row_tid_is_valid(tid))
		found = false;
	else
	{
		fetch->root = row_from_tid(fetch->store, tid);
		found = tableam_fetch_chain(data->rel, fetch->store, fetch->root, snapshot,
									&fetch->last, all_dead);
	}
	epoch_exit();

	*call_again = found && !IsMVCCSnapshot(snapshot);
	if (found)
	{
		row_to_tid(fetch->store, fetch->last.row, tid);
		tableam_store_row(slot, data->rel, fetch->store, &fetch->last);
	}
	return found;
}

/*
 * Finds entries of PostgreSQL's indexes that may be removed: what they point to is dead to
 * all.  Those that the caller knows to be deletable are so because our index_fetch_tuple()
 * said all_dead.  No conflict with a standby is possible, which has no sofort data.
 */
TransactionId
tableam_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	StoreDesc  *store = store_open(rel);
	SnapshotData non_vacuumable;
	int			ndeletable = 0;
	int			freed = 0;

	InitNonVacuumableSnapshot(non_vacuumable, GlobalVisTestFor(rel));

	for (int i = 0; i < delstate->ndeltids; i++)
	{
		TM_IndexDelete *entry = &delstate->deltids[i];
		TM_IndexStatus *status = &delstate->status[entry->id];

		if (!status->knowndeletable &&
			!(delstate->bottomup && freed >= delstate->bottomupfreespace))
		{
			RowRef		found;
			bool		all_dead = false;
			bool		live;

			epoch_enter();
			live = !row_tid_is_valid(&entry->tid) ||
				store_chain_fetch(rel, store, row_from_tid(store, &entry->tid), &non_vacuumable,
								  &found, &all_dead);
			epoch_exit();
			status->knowndeletable = !live && all_dead;
		}
		if (status->knowndeletable)
		{
			freed += status->freespace;
			ndeletable = i + 1;
		}
	}

	/* entries after the last deletable one need not be looked at */
	delstate->ndeltids = ndeletable;
	return InvalidTransactionId;
}

/* ------------------------------------------------------------------------
 * Exact versions
 * ------------------------------------------------------------------------
 */

bool
tableam_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot,
								TupleTableSlot *slot)
{
	StoreDesc  *store = store_open(rel);
	RowRef		ref;
	bool		visible;

	pm_read_miss(1);
	epoch_enter();
	visible = tableam_locate(store, tid, &ref) &&
		row_visible(rel, store, &ref, snapshot);
	epoch_exit();
	if (visible)
		tableam_store_row(slot, rel, store, &ref);
	return visible;
}

bool
tableam_tuple_tid_valid(TableScanDesc base, ItemPointer tid)
{
	return ItemPointerIsValid(tid) &&
		ItemPointerGetBlockNumber(tid) < ((SofortScan) base)->nblocks;
}

/*
 * The newest version of one chain, not older than *ref, that the snapshot
 * sees; *newest becomes the chain's newest version.
 */
static bool
latest_in_chain(TableScanDesc base, StoreDesc *store, const RowRef *ref, RowRef *newest,
				uint64 *found)
{
	RowRef		version;
	RowRef		older;

	version = *ref;
	if (store_locate(store, store_chain_root(store, ref), &older))
	{
		RowRef		root = older;

		if (!store_chain_newest(store, &root, &version))
			version = *ref;
	}
	*newest = version;
	for (;;)
	{
		if (row_visible(base->rs_rd, store, &version, base->rs_snapshot))
		{
			*found = version.row;
			return true;
		}
		if (version.row == ref->row || !store_chain_older(store, &version, &older))
			return false;
		version = older;
	}
}

void
tableam_tuple_get_latest_tid(TableScanDesc base, ItemPointer tid)
{
	StoreDesc  *store = ((SofortScan) base)->store;
	RowRef		ref;
	RowRef		newest;
	RowRef		successor;
	uint64		found;

	epoch_enter();
	if (tableam_locate(store, tid, &ref))
	{
		for (;;)
		{
			CHECK_FOR_INTERRUPTS();
			if (latest_in_chain(base, store, &ref, &newest, &found))
				row_to_tid(store, found, tid);
			if (!store_successor(store, &newest, &successor))
				break;
			ref = successor;
		}
	}
	epoch_exit();
}

bool
tableam_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	const RowRef *ref = tableam_slot_row(slot);

	if (ref == NULL)
		elog(ERROR, "slot holds no row version");
	return txn_version_visible(store_open(rel)->id, ref->row, ref->words, snapshot);
}
