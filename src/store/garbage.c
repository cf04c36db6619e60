/*-------------------------------------------------------------------------
 *
 * garbage.c
 *	  Old versions of updated rows are freed by later updaters of the table.
 *
 * Between two runs of VACUUM a table would grow by every version that nobody
 * updates again.  So an update that replaces a heap-only version notes the
 * chain in a ring, and when the ring holds more chains than an eighth of the
 * table's rows, the updater takes the oldest ones out, whose old versions no
 * snapshot sees any more, and frees these.  The ring is volatile and may lose
 * chains (full, crash): VACUUM finds everything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "sofort/store/store_internal.h"

#define RING_MIN		128		/* chains */
#define RING_MAX		65536
#define COLLECT_CHAINS	8		/* at a time: one drain for all */
#define COLLECT_ROWS	64
#define KEEP_MIN		64		/* chains that wait in the smallest table */
#define MISSES_TO_REFRESH 32

static uint32
ring_used(const StoreShared *shared)
{
	return shared->ring_head - shared->ring_tail;
}

/* How many chains may wait: live rows / 8, as far as the ring allows. */
static uint32
keep(StoreShared *shared)
{
	int64		live = (int64) pg_atomic_read_u64(&shared->live);
	uint32		limit = RING_MAX / 4 * 3;

	return live / 8 > limit ? limit : Max(KEEP_MIN, (uint32) Max(live, 0) / 8);
}

/* Space lock held.  False: no memory, or large enough. */
static bool
enlarge(StoreShared *shared)
{
	uint32		size = Max(shared->ring_size * 2, RING_MIN);
	Size		bytes = size * sizeof(GarbageChain);
	GarbageChain *ring;
	uint32		i;

	if (size > RING_MAX || shared->ring_size > 2 * keep(shared))
		return false;
	ring = arena_alloc(bytes, ARENA_NO_OOM);
	if (ring == NULL)
		return false;
	for (i = shared->ring_tail; i != shared->ring_head; i++)
		ring[i & (size - 1)] = shared->ring[i & (shared->ring_size - 1)];
	if (shared->ring != NULL)
		arena_free(shared->ring);
	pg_atomic_fetch_add_u64(&shared->bytes_dram,
							bytes - shared->ring_size * sizeof(GarbageChain));
	shared->ring = ring;
	shared->ring_size = size;
	return true;
}

/*
 * This transaction has replaced a heap-only version of the chain of this root.
 * True if it is time to collect.
 */
bool
garbage_note(StoreDesc *store, uint64 root)
{
	StoreShared *shared = store->shared;
	uint32		used;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	used = ring_used(shared);
	if (used < shared->ring_size || enlarge(shared))
	{
		GarbageChain *c = &shared->ring[shared->ring_head++ & (shared->ring_size - 1)];

		c->root = root;
		c->ended_by = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
		used++;
	}
	LWLockRelease(space_lock(store->id));
	return used >= keep(shared) + COLLECT_CHAINS || used == shared->ring_size;
}

/* The oldest chains, as far as their noted versions are dead to all. */
static int
take_chains(StoreDesc *store, uint64 horizon, uint64 *roots)
{
	StoreShared *shared = store->shared;
	int			n = 0;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	while (n < COLLECT_CHAINS && ring_used(shared) > 0)
	{
		const GarbageChain *c = &shared->ring[shared->ring_tail & (shared->ring_size - 1)];

		if (c->ended_by >= horizon)
			break;
		roots[n++] = c->root;
		shared->ring_tail++;
	}
	LWLockRelease(space_lock(store->id));
	return n;
}

/*
 * Bypass the dead versions of chains, all durably, and then free them.  A root
 * that was freed meanwhile, or is filled with something else, is another chain
 * or none: all the same.
 */
void
garbage_collect(StoreDesc *store)
{
	static int	misses = 0;
	uint64		horizon = store_cached_horizon(misses >= MISSES_TO_REFRESH);
	uint64		roots[COLLECT_CHAINS];
	RowRef		dead[COLLECT_ROWS];
	int			nroots;
	int			ndead = 0;
	int			i;

	if (misses >= MISSES_TO_REFRESH)
		misses = 0;
	nroots = take_chains(store, horizon, roots);
	if (nroots == 0)
		misses++;
	for (i = 0; i < nroots && ndead < COLLECT_ROWS; i++)
	{
		RowRef		root;

		if (!store_locate(store, roots[i], &root))
			continue;
		LWLockAcquire(chain_lock(store->id, root.row), LW_EXCLUSIVE);
		ndead += chain_unlink_dead(store, &root, horizon, dead + ndead, COLLECT_ROWS - ndead);
		LWLockRelease(chain_lock(store->id, root.row));
	}
	if (ndead == 0)
		return;
	SOFORT_STOP("store-garbage-unlinked");
	/* no bypassed row may become EMPTY on the medium before its bypass is */
	pm_drain();
	for (i = 0; i < ndead; i++)
		(void) version_free(store, &dead[i]);
}

/* The store goes away or becomes empty.  No ERROR. */
void
garbage_free_all(StoreShared *shared)
{
	if (shared->ring != NULL)
		arena_free(shared->ring);
	shared->ring = NULL;
	shared->ring_size = shared->ring_head = shared->ring_tail = 0;
}
