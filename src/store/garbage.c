/*-------------------------------------------------------------------------
 *
 * garbage.c
 *	  What updates and deletions leave behind is freed by later ones.
 *
 * Between two runs of VACUUM a table would grow by every version that nobody
 * updates again.  So an update that replaces a heap-only version notes the
 * chain in a ring, and when the ring holds more chains than an eighth of the
 * table's rows, the updater takes the oldest ones out, whose old versions no
 * snapshot sees any more, and frees these.
 *
 * Chains that have ended as a whole (the row was deleted, or an indexed column has
 * changed) are in a ring of their own.  Their index entries must be removed first; and
 * look-ups meet them, so they are not kept waiting for others.
 *
 * What was freed is subtracted from n_dead_tup, or autovacuum would come for rows that
 * are gone (as after heap's pruning).
 *
 * The rings are volatile and may lose chains (full, crash): VACUUM finds
 * everything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"
#include "sofort/compat/lock.h"
#include "sofort/store/store_internal.h"

#define RING_MIN		128		/* chains */
#define OLD_RING_MAX	65536
#define ENDED_RING_MAX	(1 << 20)
#define COLLECT_CHAINS	8		/* at a time: one drain for all */
#define COLLECT_SLOW	32		/* the same, where a drain is slow */
#define COLLECT_ROWS	128
#define COLLECT_ENDED	16
#define KEEP_MIN		64		/* chains that wait in the smallest table */
#define ENDED_MIN		32		/* the same, of ended ones in any table */
#define MISSES_TO_REFRESH 32
#define PAUSE			8		/* calls, when roots are locked or an index is not ready */

StoreRemoval (*store_remove_entries) (Relation rel, StoreDesc *store, uint64 *roots,
									  int *n) = NULL;

static bool collecting = false; /* ended chains, in this process */

static uint32
ring_used(const GarbageRing *ring)
{
	return ring->head - ring->tail;
}

/* ---- rings; space lock held ---- */

/* False: no memory, or large enough. */
static bool
enlarge_ring(StoreShared *shared, GarbageRing *ring, uint32 max)
{
	uint32		size = Max(ring->size * 2, RING_MIN);
	Size		bytes = size * sizeof(GarbageChain);
	GarbageChain *entry;
	uint32		i;

	if (size > max)
		return false;
	entry = arena_alloc(bytes, ARENA_NO_OOM);
	if (entry == NULL)
		return false;
	for (i = ring->tail; i != ring->head; i++)
		entry[i & (size - 1)] = ring->entry[i & (ring->size - 1)];
	if (ring->entry != NULL)
		arena_free(ring->entry);
	pg_atomic_fetch_add_u64(&shared->bytes_dram,
							bytes - ring->size * sizeof(GarbageChain));
	ring->entry = entry;
	ring->size = size;
	return true;
}

static void
ring_add(StoreShared *shared, GarbageRing *ring, uint32 max, uint64 root)
{
	GarbageChain *c;

	if (ring_used(ring) == ring->size && !enlarge_ring(shared, ring, max))
		return;
	c = &ring->entry[ring->head++ & (ring->size - 1)];
	c->root = root;
	c->ended_by = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
}

/* Have the versions that were noted first become invisible to everybody? */
static bool
oldest_is_dead(const GarbageRing *ring, uint64 horizon)
{
	return ring_used(ring) > 0 && ring->entry[ring->tail & (ring->size - 1)].ended_by < horizon;
}

/* ---- rings; takes the lock ---- */

/* The oldest chains, as far as what was noted is dead to all. */
static int
take_chains(StoreDesc *store, GarbageRing *ring, uint64 horizon, GarbageChain *chains, int max)
{
	int			n = 0;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	while (n < max && oldest_is_dead(ring, horizon))
		chains[n++] = ring->entry[ring->tail++ & (ring->size - 1)];
	LWLockRelease(space_lock(store->id));
	return n;
}

/* Puts them back to where they were taken from, if there is room. */
static void
put_back(StoreDesc *store, GarbageRing *ring, const GarbageChain *chains, int n)
{
	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	while (n > 0 && ring_used(ring) < ring->size)
		ring->entry[--ring->tail & (ring->size - 1)] = chains[--n];
	LWLockRelease(space_lock(store->id));
}

/* ---- old versions ---- */

static inline int
chains_at_a_time(void)
{
	return pm_drain_is_slow() ? COLLECT_SLOW : COLLECT_CHAINS;
}

/* How many chains may wait: live rows / 8, as far as the ring allows. */
static uint32
keep(StoreShared *shared)
{
	int64		live = (int64) pg_atomic_read_u64(&shared->live);
	uint32		limit = OLD_RING_MAX / 4 * 3;

	return live / 8 > limit ? limit : Max(KEEP_MIN, (uint32) Max(live, 0) / 8);
}

/*
 * Notes that this transaction has replaced a heap-only version of this root's chain by
 * "version".  True if it is time to collect.
 */
bool
garbage_note(StoreDesc *store, uint64 root, const RowRef *version)
{
	StoreShared *shared = store->shared;
	GarbageRing *ring = &shared->old_versions;
	bool		due;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	ring_add(shared, ring, Min(OLD_RING_MAX, 4 * keep(shared)), root);
	milestone_note(store, root, version);
	due = ring_used(ring) >= keep(shared) + chains_at_a_time() || ring_used(ring) == ring->size;
	LWLockRelease(space_lock(store->id));
	return due;
}

/*
 * Bypasses the dead versions of chains, all durably, and then frees them.  If a root was
 * freed meanwhile, or filled again, this finds no chain or another one, which does no harm.
 * Returns how many were freed.
 */
int
garbage_collect(StoreDesc *store)
{
	static int	misses = 0;
	uint64		horizon = store_cached_horizon(misses >= MISSES_TO_REFRESH);
	GarbageChain chains[COLLECT_SLOW];
	RowRef		dead[COLLECT_ROWS];
	int			nroots;
	int			ndead = 0;
	int			nfreed = 0;
	int			i;

	if (misses >= MISSES_TO_REFRESH)
		misses = 0;
	nroots = take_chains(store, &store->shared->old_versions, horizon, chains,
						 chains_at_a_time());
	if (nroots == 0)
		misses++;
	for (i = 0; i < nroots && ndead < COLLECT_ROWS; i++)
	{
		RowRef		root;

		if (!store_locate(store, chains[i].root, &root))
			continue;
		LWLockAcquire(chain_lock(store->id, root.row), LW_EXCLUSIVE);
		ndead += chain_unlink_dead(store, &root, horizon, dead + ndead, COLLECT_ROWS - ndead);
		LWLockRelease(chain_lock(store->id, root.row));
	}
	if (ndead == 0)
		return 0;
	SOFORT_STOP("store-garbage-unlinked");
	/* no bypassed row may become EMPTY on the medium before its bypass is */
	pm_drain();
	for (i = 0; i < ndead; i++)
		if (version_free(store, &dead[i]))
			nfreed++;
	return nfreed;
}

/* ---- ended chains ---- */

/*
 * Only one process at a time frees roots of a table: while a root is in its list of dead
 * ones, nobody else may remove its entries and free it, so that it is filled again.  This
 * is a heavyweight lock, because VACUUM holds it for long: that of a tuple that no table
 * has.
 */
static void
roots_lock_tid(ItemPointer tid)
{
	ItemPointerSet(tid, 0, SOFORT_BLOCK_ROWS + 1);
}

void
store_lock_roots(Relation rel)
{
	ItemPointerData tid;

	roots_lock_tid(&tid);
	LockTuple(rel, &tid, ExclusiveLock);
}

static bool
try_lock_roots(Relation rel)
{
	ItemPointerData tid;

	roots_lock_tid(&tid);
	return compat_conditional_lock_tuple(rel, &tid, ExclusiveLock, false);
}

static void
unlock_roots(Relation rel)
{
	ItemPointerData tid;

	roots_lock_tid(&tid);
	UnlockTuple(rel, &tid, ExclusiveLock);
}

/* Finds the roots of those of n chains that are dead as a whole. */
static int
dead_roots(StoreDesc *store, const GarbageChain *chains, int n, uint64 horizon, uint64 *roots)
{
	int			ndead = 0;
	int			i;

	for (i = 0; i < n; i++)
	{
		RowRef		root;

		if (store_locate(store, chains[i].root, &root) &&
			WORD_TAG(word_read(&root.words->begin)) == WORD_TAG_STAMP &&
			(word_read(&root.words->begin) & BEGIN_HEAP_ONLY) == 0 &&
			txn_version_state(root.words, horizon, NULL) == VERSION_DEAD &&
			chain_is_dead(store, &root, horizon))
			roots[ndead++] = root.row;
	}
	return ndead;
}

/*
 * Does what VACUUM does, for a few roots, which are locked.  What cannot be done here (an
 * index of another kind) is left to VACUUM.  False: not now.
 */
static bool
free_some_ended(Relation rel, StoreDesc *store, uint64 horizon)
{
	GarbageRing *ring = &store->shared->ended_chains;
	GarbageChain chains[COLLECT_ENDED];
	uint64		roots[COLLECT_ENDED];
	int			ntaken = take_chains(store, ring, horizon, chains, COLLECT_ENDED);
	int			n = dead_roots(store, chains, ntaken, horizon, roots);

	if (n == 0)
		return true;
	switch (store_remove_entries(rel, store, roots, &n))
	{
		case STORE_REMOVAL_DONE:
			break;
		case STORE_REMOVAL_LATER:
			put_back(store, ring, chains, ntaken);
			return false;
		case STORE_REMOVAL_NEVER:
			return true;
	}
	/* the commit that tells which indexes there are may not be flushed yet */
	txn_flush_seen_commits();
	SOFORT_STOP("store-entries-removed");
	pgstat_update_heap_dead_tuples(rel, free_dead_chains(store, roots, n, horizon));
	return true;
}

/* False: not now. */
static bool
collect_ended(Relation rel, StoreDesc *store, uint64 horizon)
{
	bool		done;

	/* a comparison function of an index might update the table */
	if (collecting || store_remove_entries == NULL || !try_lock_roots(rel))
		return false;
	collecting = true;
	PG_TRY();
	{
		done = free_some_ended(rel, store, horizon);
	}
	PG_FINALLY();
	{
		collecting = false;
	}
	PG_END_TRY();
	unlock_roots(rel);
	return done;
}

/*
 * This transaction has ended the newest version of a chain without a successor
 * in it.
 */
void
store_chain_ended(Relation rel, StoreDesc *store, const RowRef *last)
{
	static int	misses = 0;
	static int	pause = 0;
	StoreShared *shared = store->shared;
	GarbageRing *ring = &shared->ended_chains;
	uint64		root = store_chain_root(store, last);
	uint64		horizon = store_cached_horizon(misses >= MISSES_TO_REFRESH);
	bool		full;
	bool		dead;

	if (misses >= MISSES_TO_REFRESH)
		misses = 0;
	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	ring_add(shared, ring, ENDED_RING_MAX, root);
	full = ring_used(ring) >= ENDED_MIN;
	dead = oldest_is_dead(ring, horizon);
	LWLockRelease(space_lock(store->id));
	if (full && !dead)
		misses++;
	else if (full && --pause <= 0)
		pause = collect_ended(rel, store, horizon) ? 0 : PAUSE;
}

/* ---- both ---- */

static void
free_ring(GarbageRing *ring)
{
	if (ring->entry != NULL)
		arena_free(ring->entry);
	memset(ring, 0, sizeof(GarbageRing));
}

/* To be called when the store is dropped or emptied.  No ERROR. */
void
garbage_free_all(StoreShared *shared)
{
	free_ring(&shared->old_versions);
	free_ring(&shared->ended_chains);
}
