/*-------------------------------------------------------------------------
 *
 * chain.c
 *	  Chains of versions that share their index entries.
 *
 *		root.link   = newest version of the chain, 0 if there is only the root
 *		version.link = the next older linked version, or the root (LINK_ROOT)
 *
 * Readers take no lock.  Whoever changes a chain (publishes, undoes, prunes) holds the
 * chain lock of its root.  An unlinked version keeps its own link during its
 * quarantine, so that a reader that stands on it finds its way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "sofort/store/store_internal.h"
#include "utils/snapmgr.h"

#define PRUNE_MIN		5		/* dead versions to be unlinked at once, at least: each time
								 * costs a line */
#define PRUNE_SEARCH	8		/* versions looked at in search of a dead one */
#define PRUNE_MAX		1024	/* unlinked by one store, and under one hold of the chain lock */
#define UNLINK_SEARCH	64		/* versions that updaters look at for dead ones to unlink */
#define JUMP_AFTER		64		/* versions to walk before a milestone is looked for */
#define WALK_MAX		(1 << 28)	/* steps: stale links of an orphan may lead anywhere */

static inline bool
is_heap_only(const RowWords *words)
{
	return (word_read(&words->begin) & BEGIN_HEAP_ONLY) != 0;
}

/* ---- walking ---- */

/* Emulation: a version's link (a vector of its own) and its record were read. */
#define HOP_MISSES		2

/* Emulation: its minipages will be read, if it has any. */
static inline void
miss_minipages(StoreDesc *store, const RowRef *ref)
{
	if (unlikely(sofort_scm_read_latency != 0) &&
		plan_get(store, ref->block->shape)->nminipages > 0)
		pm_read_miss(1);
}

void
chain_is_endless(void)
{
	pm_damaged("links between row versions lead round and round");
}

void
chain_walked_far(uint64 steps)
{
	CHECK_FOR_INTERRUPTS();
	if (steps >= WALK_MAX)
		chain_is_endless();
}

/* Of this process, so far */
static uint64 transactions = 0;

void
chain_end_of_xact(void)
{
	transactions++;
}

uint64
store_chain_root(StoreDesc *store, const RowRef *ref)
{
	RowRef		at = *ref;
	uint64		steps = 0;

	if (!is_heap_only(ref->words))
		return ref->row;
	if (ref->row == store->local->fetched_row &&
		word_read(&ref->words->begin) == store->local->fetched_begin &&
		(WORD_TAG(store->local->fetched_begin) == WORD_TAG_STAMP ||
		 store->local->fetched_in == transactions))
		return store->local->fetched_root;
	for (;;)
	{
		uint64		link = link_read(at.block, at.index);

		if (link & LINK_ROOT)
			return LINK_ROW(link);
		if (!LINK_IS_SET(link) || !store_locate(store, LINK_ROW(link), &at))
			return ref->row;
		chain_walk_step(++steps);
	}
}

bool
store_chain_newest(StoreDesc *store, const RowRef *root, RowRef *newest)
{
	uint64		link = is_heap_only(root->words) ? 0 : link_read(root->block, root->index);

	if (!LINK_IS_SET(link))
	{
		*newest = *root;
		return true;
	}
	pm_read_miss(HOP_MISSES);
	return store_locate(store, LINK_ROW(link), newest);
}

bool
store_chain_older(StoreDesc *store, const RowRef *ref, RowRef *older)
{
	static uint32 steps = 0;	/* any walk can be cancelled */
	uint64		link;

	if (!is_heap_only(ref->words))
		return false;
	if (unlikely(++steps % CHAIN_WALK_CHECK == 0))
		CHECK_FOR_INTERRUPTS();
	pm_read_miss(HOP_MISSES);
	link = link_read(ref->block, ref->index);
	return LINK_IS_SET(link) && store_locate(store, LINK_ROW(link), older);
}

/*
 * The root of a version's chain, without a descriptor; false if the links lead nowhere.
 * quietly: also if they are damaged, or lead round and round; otherwise that is an error.
 */
static inline bool
walk_to_root(const StoreHeader *header, const RowRef *ref, RowRef *root, bool quietly)
{
	RowRef		at = *ref;
	uint64		max = quietly ? 2 * chain_limit(header) : WALK_MAX;
	uint64		n;

	for (n = 0; n < max; n++)
	{
		uint64		link = quietly ? link_read_quietly(at.block, at.index) :
			link_read(at.block, at.index);

		if (!LINK_IS_SET(link) || !header_locate(header, LINK_ROW(link), &at))
			return false;
		SOFORT_STOP("store-root-walk");
		pm_read_miss(HOP_MISSES);
		if (link & LINK_ROOT)
		{
			*root = at;
			return true;
		}
		if (!quietly)
			chain_walk_step(n + 1);
	}
	return false;
}

bool
chain_root_of(const StoreHeader *header, const RowRef *ref, RowRef *root)
{
	return walk_to_root(header, ref, root, false);
}

/* For checks */
bool
chain_root_quietly(const StoreHeader *header, const RowRef *ref, RowRef *root)
{
	return walk_to_root(header, ref, root, true);
}

/* Is the row linked in the chain of this root?  Chain lock held. */
bool
chain_contains(const StoreHeader *header, const RowRef *root, uint64 row)
{
	uint64		link = link_read(root->block, root->index);
	uint64		max = chain_limit(header);
	uint64		n;

	for (n = 0; n <= max; n++)
	{
		RowRef		at;

		if (!LINK_IS_SET(link) || (link & LINK_ROOT))
			return false;
		if (LINK_ROW(link) == row)
			return true;
		if (!header_locate(header, LINK_ROW(link), &at))
			return false;
		pm_read_miss(HOP_MISSES);
		link = link_read(at.block, at.index);
	}
	chain_is_endless();
}

/* ---- fetching ---- */

/* For snapshots other than MVCC ones: VISIBLE, or NOT_YET for all else. */
static inline TxnSight
sight(Relation rel, StoreDesc *store, const RowRef *ref, Snapshot snapshot)
{
	TxnSight	result;

	if (likely(snapshot->snapshot_type == SNAPSHOT_MVCC))
		result = txn_version_sight(ref->words, snapshot);
	else
		result = txn_version_visible(store->id, ref->row, ref->words, snapshot) ?
			TXN_VISIBLE : TXN_NOT_YET;
	if (unlikely(IsolationIsSerializable()) && rel != NULL)
		txn_serializable_conflict_out(rel, ref->words, result == TXN_VISIBLE, snapshot);
	return result;
}

bool
version_is_dead(const RowWords *words, uint64 horizon)
{
	uint64		begin = word_read(&words->begin);
	uint64		end = word_read(&words->end);

	if (WORD_TAG(begin) == WORD_TAG_ABORTED)
		return true;
	return WORD_TAG(begin) == WORD_TAG_STAMP && WORD_TAG(end) == WORD_TAG_STAMP &&
		WORD_XID(end) < horizon;
}

/* No version was visible: is the whole chain dead to everybody? */
static bool
chain_all_dead(StoreDesc *store, const RowRef *root)
{
	uint64		horizon = store_cached_horizon(false);
	uint64		left = chain_limit(store->header);
	RowRef		at;

	if (!version_is_dead(root->words, horizon) || !store_chain_newest(store, root, &at))
		return false;
	while (at.row != root->row)
	{
		if (left-- == 0 || !version_is_dead(at.words, horizon) ||
			!store_chain_older(store, &at, &at))
			return false;
	}
	return true;
}

/*
 * Remembers the root of the version that was found.  An MVCC snapshot protects it, so the
 * begin word is still its own.  (A stamp never recurs; a slot's generation does.)
 */
static void
remember_root(StoreDesc *store, const RowRef *found, uint64 root)
{
	store->local->fetched_row = found->row;
	store->local->fetched_begin = word_read(&found->words->begin);
	store->local->fetched_root = root;
	store->local->fetched_in = transactions;
}

/*
 * One pass from the root's newest version down; *first: the link it began with.  If a
 * version has ended for an MVCC snapshot, so have all that are older.
 */
static bool
walk_chain(Relation rel, StoreDesc *store, const RowRef *root, Snapshot snapshot, RowRef *found,
		   uint64 *first)
{
	uint64		link = link_read(root->block, root->index);
	uint64		steps = 0;
	RowRef		at;
	RowRef		landing;

	*first = link;
	while (LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
		   store_locate(store, LINK_ROW(link), &at))
	{
		pm_read_miss(HOP_MISSES);
		switch (sight(rel, store, &at, snapshot))
		{
			case TXN_VISIBLE:
				miss_minipages(store, &at);
				*found = at;
				if (IsMVCCSnapshot(snapshot))
					remember_root(store, &at, root->row);
				return true;
			case TXN_ENDED:
				return false;
			case TXN_NOT_YET:
				break;
		}
		if (++steps == JUMP_AFTER && snapshot->snapshot_type == SNAPSHOT_MVCC &&
			milestone_find(store, root->row, snapshot, &landing))
			at = landing;
		chain_walk_step(steps);
		link = link_read(at.block, at.index);
	}
	return false;
}

#ifdef USE_ASSERT_CHECKING
bool
store_chain_is_visible(StoreDesc *store, uint64 root, Snapshot snapshot)
{
	RowRef		top;
	RowRef		found;
	uint64		first;

	return store_locate(store, root, &top) && !is_heap_only(top.words) &&
		(sight(NULL, store, &top, snapshot) == TXN_VISIBLE ||
		 walk_chain(NULL, store, &top, snapshot, &found, &first));
}
#endif

bool
store_fetch_late(StoreDesc *store, uint64 row, RowRef *found)
{
	if (!store_locate(store, row, found))
		return false;
	pm_read_miss(1);
	miss_minipages(store, found);
	return true;
}

/*
 * An MVCC snapshot sees the same version whenever it looks.  Others see what is committed
 * at the moment: an update that commits between two looks could hide the new version from
 * the first look and the old one from the second.  But it published its version before it
 * committed, so the root's link has changed: then look again.
 */
bool
store_chain_fetch(Relation rel, StoreDesc *store, uint64 root, Snapshot snapshot, RowRef *found,
				  bool *all_dead)
{
	RowRef		top;
	bool		mvcc = snapshot->snapshot_type == SNAPSHOT_MVCC;
	TxnSight	seen;
	uint64		first;

	if (all_dead != NULL)
		*all_dead = false;
	if (!store_locate(store, root, &top))
		return false;
	pm_read_miss(1);
	pm_note_read(top.words);	/* index order may be that of the rows */
	if (is_heap_only(top.words))
		return false;
	seen = sight(rel, store, &top, snapshot);
	if (seen == TXN_VISIBLE)
	{
		miss_minipages(store, &top);
		*found = top;
		return true;
	}
	/* a snapshot that is older than the row sees no version of it */
	if (!mvcc || seen == TXN_ENDED)
	{
		do
		{
			if (walk_chain(rel, store, &top, snapshot, found, &first))
				return true;
		} while (!mvcc && link_read(top.block, top.index) != first);
	}
	if (all_dead != NULL)
		*all_dead = chain_all_dead(store, &top);
	return false;
}

/* Was this version created by the transaction that ended the other one? */
static bool
created_by_ender(const RowWords *version, const RowWords *predecessor)
{
	uint64		begin = word_read(&version->begin);
	uint64		end = word_read(&predecessor->end);

	if (WORD_TAG(begin) == WORD_TAG_STAMP && WORD_TAG(end) == WORD_TAG_STAMP)
		return WORD_XID(begin) == WORD_XID(end);
	if (WORD_TAG(begin) == WORD_TAG_PROGRESS && WORD_TAG(end) == WORD_TAG_PROGRESS)
		return WORD_SLOT(begin) == WORD_SLOT(end) &&
			WORD_GENERATION(begin) == WORD_GENERATION(end);
	if ((WORD_TAG(begin) != WORD_TAG_STAMP && WORD_TAG(begin) != WORD_TAG_PROGRESS) ||
		(WORD_TAG(end) != WORD_TAG_STAMP && WORD_TAG(end) != WORD_TAG_PROGRESS))
		return false;
	/*
	 * one of the words may have been stamped between the two reads, or both by now, and the
	 * slot reused
	 */
	if (txn_word_xid(begin) == txn_word_xid(end))
		return true;
	if (word_read(&version->begin) == begin && word_read(&predecessor->end) == end)
		return false;
	return created_by_ender(version, predecessor);
}

bool
store_new_root(StoreDesc *store, const RowRef *ref, RowRef *successor)
{
	uint64	   *slot = successor_slot(ref->block, ref->index);

	return slot != NULL && LINK_IS_SET(word_read(slot)) &&
		store_locate(store, LINK_ROW(link_checked(word_read(slot))), successor) &&
		created_by_ender(successor->words, ref->words);
}

bool
store_successor(StoreDesc *store, const RowRef *ref, RowRef *successor)
{
	uint64		end = word_read(&ref->words->end);
	uint64	   *slot;
	RowRef		root;

	if ((WORD_TAG(end) != WORD_TAG_STAMP && WORD_TAG(end) != WORD_TAG_PROGRESS) ||
		(end & END_UPDATED) == 0)
		return false;
	slot = successor_slot(ref->block, ref->index);
	if (slot != NULL && LINK_IS_SET(word_read(slot)))
		return store_new_root(store, ref, successor);
	return store_locate(store, store_chain_root(store, ref), &root) &&
		store_chain_newest(store, &root, successor) && successor->row != ref->row;
}

bool
store_replaced_version(StoreDesc *store, const RowRef *ref, RowRef *replaced)
{
	return store_chain_older(store, ref, replaced) && created_by_ender(ref->words, replaced->words);
}

/* ---- changing; chain lock of the root held ---- */

/* Stores a link durably: what it bypasses is freed only after that. */
static void
store_link(const RowRef *ref, uint64 link)
{
	uint64	   *slot = link_slot(ref->block, ref->index);

	__atomic_store_n(slot, link, __ATOMIC_RELEASE);
	pm_persist(slot, sizeof(uint64));
}

/*
 * A version that nothing links to, and no snapshot can see, becomes EMPTY and
 * goes into quarantine.  No flush: should a crash lose this store, VACUUM finds
 * the version again.  False if somebody else freed it.
 */
bool
version_free(StoreDesc *store, const RowRef *ref)
{
	uint64		begin = word_read(&ref->words->begin);

	space_before_free(store, ref->row / SOFORT_BLOCK_ROWS);
	if (WORD_TAG(begin) == WORD_TAG_EMPTY || !word_cas(&ref->words->begin, begin, WORD_EMPTY))
		return false;
	space_quarantine(store->shared, ref->row);
	stats_count(store->shared, 0, -1);
	SOFORT_STOP("store-row-freed");
	return true;
}

/*
 * The link of "keeper" leads to dead versions, from "first" down to "stop" (exclusive):
 * bypasses them, then frees them.
 */
static int
bypass(StoreDesc *store, const RowRef *keeper, uint64 first, uint64 stop)
{
	uint64		link = first;
	int			n = 0;

	store_link(keeper, stop);
	SOFORT_STOP("store-prune-unlinked");
	while (link != stop)
	{
		RowRef		at;

		if (!store_locate(store, LINK_ROW(link), &at))
			break;
		link = link_read(at.block, at.index);
		if (version_free(store, &at))
			n++;
	}
	return n;
}

/*
 * Walks past the dead versions that "link" leads to, at most PRUNE_MAX, and counts them.
 * Returns the link to the next one.
 */
static uint64
skip_dead(StoreDesc *store, uint64 link, uint64 horizon, int *ndead)
{
	RowRef		at;

	*ndead = 0;
	while (*ndead < PRUNE_MAX && LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
		   store_locate(store, LINK_ROW(link), &at) && is_heap_only(at.words) &&
		   version_is_dead(at.words, horizon))
	{
		pm_read_miss(HOP_MISSES);
		(*ndead)++;
		link = link_read(at.block, at.index);
	}
	return link;
}

/*
 * The updater of "from" looks for dead versions behind it, and frees them; returns how
 * many.  The search is bounded where nothing is dead (an old snapshot); VACUUM does the
 * rest.
 */
int
chain_prune_inline(StoreDesc *store, const RowRef *root, const RowRef *from)
{
	RowRef		at = *from;
	int			n;

	for (n = 0; n < PRUNE_SEARCH && at.row != root->row; n++)
	{
		uint64		link = link_read(at.block, at.index);
		uint64		stop;
		int			ndead;

		if ((link & LINK_ROOT) || !LINK_IS_SET(link))
			return 0;
		stop = skip_dead(store, link, store_cached_horizon(false), &ndead);
		if (ndead >= PRUNE_MIN)
			return bypass(store, &at, link, stop);
		if (ndead > 0 || !store_locate(store, LINK_ROW(link), &at))
			return 0;
	}
	return 0;
}

/*
 * VACUUM: bypasses and frees dead versions between the newest and the root.  As long as it
 * returns more than 0 there may be more; 0 also if this is not a root (any more).  Each
 * call walks past the versions that live: so it frees at least as many, if there are.
 */
int
chain_remove_dead(StoreDesc *store, const RowRef *root, uint64 horizon)
{
	uint64		begin = word_read(&root->words->begin);
	uint64		link = link_read(root->block, root->index);
	uint64		limit = chain_limit(store->header);
	RowRef		at;
	uint64		passed = 0;
	uint64		freed = 0;

	if (begin == WORD_EMPTY || (begin & BEGIN_HEAP_ONLY))
		return 0;
	/* the newest stays: the root's link must name a member */
	while (freed < Max(PRUNE_MAX, passed) && LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
		   store_locate(store, LINK_ROW(link), &at))
	{
		int			ndead;
		uint64		stop;

		pm_read_miss(HOP_MISSES);
		if (unlikely(++passed > limit))
			chain_is_endless();
		link = link_read(at.block, at.index);
		stop = skip_dead(store, link, horizon, &ndead);
		if (ndead > 0)
			freed += bypass(store, &at, link, stop);
		link = stop;
	}
	return (int) freed;
}

/*
 * Flushes all links of a chain, because what a killed process stored may not be on the
 * medium.  Not drained: whatever a link leads to was drained before it was stored.
 */
void
chain_flush(const StoreHeader *header, const RowRef *root)
{
	RowRef		at = *root;
	uint64		max = chain_limit(header);
	uint64		n;

	for (n = 0; n <= max; n++)
	{
		const uint64 *slot = word_slot_quietly(&at.block->links, at.index);

		if (slot == NULL)
			break;
		pm_flush(slot, sizeof(uint64));
		if (!LINK_IS_SET(*slot) || (*slot & LINK_ROOT) ||
			!header_locate(header, LINK_ROW(*slot), &at))
			break;
	}
}

/*
 * The same for a caller that frees them later: bypasses up to max versions, which go into
 * dead[].  Flushed, not drained.  None if this is not a root (any more).  Beside an old
 * snapshot, dead versions may lie behind very many that are not dead: these are left to
 * VACUUM.
 */
int
chain_unlink_dead(StoreDesc *store, const RowRef *root, uint64 horizon, RowRef *dead, int max)
{
	uint64		begin = word_read(&root->words->begin);
	uint64		link;
	RowRef		at;
	int			passed = 0;
	int			n = 0;

	if (begin == WORD_EMPTY || (begin & BEGIN_HEAP_ONLY))
		return 0;
	link = link_read(root->block, root->index);
	while (n < max && passed++ < UNLINK_SEARCH && LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
		   store_locate(store, LINK_ROW(link), &at))
	{
		int			before = n;
		RowRef		next;

		pm_read_miss(HOP_MISSES);
		link = link_read(at.block, at.index);
		while (n < max && LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
			   store_locate(store, LINK_ROW(link), &next) && is_heap_only(next.words) &&
			   version_is_dead(next.words, horizon))
		{
			dead[n++] = next;
			pm_read_miss(HOP_MISSES);
			link = link_read(next.block, next.index);
		}
		if (n > before)
		{
			uint64	   *slot = link_slot(at.block, at.index);

			__atomic_store_n(slot, link, __ATOMIC_RELEASE);
			pm_flush(slot, sizeof(uint64));
		}
	}
	return n;
}

/* Leads the link to this row, in the chain of this root, past it. */
static void
unlink_from(StoreHeader *header, const RowRef *root, const RowRef *ref)
{
	RowRef		at = *root;
	uint64		max = chain_limit(header);
	uint64		link;
	uint64		n;

	for (n = 0; n <= max; n++)
	{
		link = link_read_quietly(at.block, at.index);
		if (!LINK_IS_SET(link) || (link & LINK_ROOT))
			break;
		if (LINK_ROW(link) == ref->row)
		{
			uint64		own = link_read_quietly(ref->block, ref->index);

			if (at.row == root->row && (own & LINK_ROOT))
				own = 0;		/* the root is alone again */
			pm_store8(link_slot(at.block, at.index), own);
			break;
		}
		if (!header_locate(header, LINK_ROW(link), &at))
			break;
	}
}

/*
 * Undo of a heap-only version: take it out of its chain.  Flushed, not drained.
 * Idempotent.  Takes the chain lock itself.  No palloc, no ERROR.
 */
void
chain_unlink(StoreHeader *header, const RowRef *ref)
{
	RowRef		root;

	if (!walk_to_root(header, ref, &root, true))
		return;
	LWLockAcquire(chain_lock(store_id_of(header), root.row), LW_EXCLUSIVE);
	unlink_from(header, &root, ref);
	LWLockRelease(chain_lock(store_id_of(header), root.row));
}

/*
 * At a start: this version, in a chain that a transaction may have changed, was not ended
 * by anybody.  So it is the newest, whatever a power cut has left in the root's link, which
 * is restored.  The version's own link is durable.  Flushed.  No palloc, no ERROR.
 */
void
chain_restore_newest(StoreHeader *header, const RowRef *ref)
{
	RowRef		root = *ref;
	uint64		link = 0;
	uint64	   *slot;

	if (is_heap_only(ref->words))
	{
		if (!walk_to_root(header, ref, &root, true) || is_heap_only(root.words) ||
			word_read(&root.words->begin) == WORD_EMPTY)
			return;				/* damaged: verify() tells */
		link = LINK_MAKE(ref->row);
	}
	slot = word_slot_quietly(&root.block->links, root.index);
	if (slot == NULL)
		return;
	LWLockAcquire(chain_lock(store_id_of(header), root.row), LW_EXCLUSIVE);
	pm_store8(slot, link);
	LWLockRelease(chain_lock(store_id_of(header), root.row));
}
