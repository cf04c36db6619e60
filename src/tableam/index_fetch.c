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
#include "port/pg_bitutils.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/latency.h"
#include "sofort/tableam/callbacks.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define MARKS_AFTER		32		/* rows that nobody reads */
#define MIN_MARKS		8		/* so that tags have no more than 32 bits */
#define MAX_MARKS		131072	/* of 4 million rows, 1 MB */
#define MARKS_PER_ROW	32		/* no more of them than that for each of these rows */

/* What the mark of SETTLED_WORD_ROWS rows that lie together said: see seen_mark() */
typedef struct SeenMark
{
	uint32		tag;
	uint32		unsettled;		/* of store_unsettled_rows() */
} SeenMark;

typedef struct SofortIndexFetch
{
	StoreIndexFetch base;
	StoreDesc  *store;
	uint64		root;			/* of the entry being fetched */
	RowRef		last;			/* version returned for it, for call_again */
	uint32		nunread;		/* so many rows in succession were only found visible */
	uint32		nmarks;			/* a power of two */
	SeenMark   *marks;			/* by number; NULL: not worth while yet */
	Snapshot	snapshot;		/* with this one they were read, */
	CommandId	command;		/* in this command */
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

	fetch->base.base.rel = rel;
	fetch->store = store_open(rel);
	return &fetch->base.base;
}

void
tableam_index_fetch_reset(IndexFetchTableData *data)
{
	SofortIndexFetch *fetch = (SofortIndexFetch *) data;
	StoreDesc  *store = store_open(data->rel);

	/* nothing is held between calls; attributes may have changed, though */
	if (store != fetch->store)
		fetch->snapshot = NULL;
	fetch->store = store;
}

void
tableam_index_fetch_end(IndexFetchTableData *data)
{
	SofortIndexFetch *fetch = (SofortIndexFetch *) data;

	if (fetch->marks != NULL)
		pfree(fetch->marks);
	pfree(fetch);
}

/*
 * Index-only scans keep the marks that they have read.  They stay true for the scan's
 * snapshot (store/README.md, "Settled rows"), and lie so close together that the next row
 * that lies anywhere costs no cache miss.
 */
static inline SeenMark *
seen_mark(const SofortIndexFetch *fetch, uint64 row)
{
	return &fetch->marks[row / SETTLED_WORD_ROWS & (fetch->nmarks - 1)];
}

/* Which of the marks that have this place it is */
static inline uint32
mark_tag(const SofortIndexFetch *fetch, uint64 row)
{
	return (uint32) (row / SETTLED_WORD_ROWS / fetch->nmarks);
}

/* (What is nobody's has no settled rows.) */
static void
forget_marks(SofortIndexFetch *fetch)
{
	memset(fetch->marks, 0xff, fetch->nmarks * sizeof(SeenMark));
}

/* An index-only scan clears the slot without having read it; others leave it as it is. */
static void
expect_reader(SofortIndexFetch *fetch, const TupleTableSlot *slot, Snapshot snapshot)
{
	fetch->nunread = TTS_EMPTY(slot) ? fetch->nunread + 1 : 0;
	if (fetch->nunread < MARKS_AFTER || fetch->marks != NULL ||
		snapshot->snapshot_type != SNAPSHOT_MVCC)
		return;
	if (fetch->nmarks == 0)
	{
		uint64		n = (uint64) store_nblocks(fetch->store) * SETTLED_WORDS;

		fetch->nmarks = pg_nextpower2_32((uint32) Min(Max(n, MIN_MARKS), MAX_MARKS));
	}
	if (fetch->nunread >= fetch->nmarks / MARKS_PER_ROW)
	{
		fetch->marks = MemoryContextAlloc(GetMemoryChunkContext(fetch),
										  fetch->nmarks * sizeof(SeenMark));
		forget_marks(fetch);
	}
}

static uint32
look_at_mark(const SofortIndexFetch *fetch, uint64 row)
{
	uint32		unsettled;

	SOFORT_STOP("index-fetch-mark");
	epoch_enter();
	unsettled = store_unsettled_rows(fetch->store, row, fetch->base.unread);
	epoch_exit();
	return unsettled;
}

/* What the mark of this row says, which is looked at once for a snapshot if it can be kept */
static uint32
unsettled_neighbours(SofortIndexFetch *fetch, uint64 row, Snapshot snapshot)
{
	SeenMark   *seen;

	if (fetch->marks == NULL)
		return look_at_mark(fetch, row);
	if (unlikely(fetch->snapshot != snapshot || fetch->command != snapshot->curcid))
	{
		forget_marks(fetch);
		fetch->snapshot = snapshot;
		fetch->command = snapshot->curcid;
	}
	seen = seen_mark(fetch, row);
	if (seen->tag != mark_tag(fetch, row))
	{
		seen->unsettled = look_at_mark(fetch, row);
		seen->tag = mark_tag(fetch, row);
	}
	return seen->unsettled;
}

/*
 * Is the row known to be visible, without a look at it?  Asked only for who does not read it:
 * others go to the row anyway, and must know which version.
 */
static bool
is_settled(SofortIndexFetch *fetch, Snapshot snapshot)
{
	bool		settled;

	if ((!fetch->base.unread && fetch->marks == NULL) ||
		snapshot->snapshot_type != SNAPSHOT_MVCC || IsolationIsSerializable())
		return false;
	settled = (unsettled_neighbours(fetch, fetch->root, snapshot) & SETTLED_ROW(fetch->root)) == 0;
	Assert(!settled || store_chain_is_visible(fetch->store, fetch->root, snapshot));
	return settled;
}

/*
 * Snapshots other than MVCC may see several versions of a chain.  The order of
 * store_chain_fetch(): the root, then newest to oldest.
 */
static bool
fetch_another(SofortIndexFetch *fetch, Snapshot snapshot)
{
	Relation	rel = fetch->base.base.rel;
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
	if (!*call_again)
	{
		if (!row_tid_is_valid(tid))
			return false;
		fetch->root = row_from_tid(fetch->store, tid);
		expect_reader(fetch, slot, snapshot);
		fetch->base.settled = is_settled(fetch, snapshot);
		if (fetch->base.settled)
		{
			if (!fetch->base.unread)
				tableam_store_settled(slot, data->rel, fetch->store, fetch->root, tid);
			return true;
		}
	}

	epoch_enter();
	if (*call_again)
		found = fetch_another(fetch, snapshot);
	else
		found = tableam_fetch_chain(data->rel, fetch->store, fetch->root, snapshot,
									&fetch->last, all_dead);
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
