/*-------------------------------------------------------------------------
 *
 * milestone.c
 *	  Places in long chains from which an old snapshot goes on.
 *
 * Beside an old snapshot a chain has one version per update, and the version that this
 * snapshot sees lies at its far end.  So every MILESTONE_STEPth version of a long chain
 * is noted: row id and transaction.  A reader that has walked some steps in vain looks
 * for the oldest noted version that is too young for its snapshot, and goes on behind
 * it.
 *
 * Notes are hints in DRAM: they are neither corrected when versions are freed
 * or undone, nor needed after a start.  Why a note that is still true of its row
 * leads into the right chain: src/store/README.md, "Milestones".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "sofort/store/store_internal.h"
#include "utils/snapmgr.h"

#define MILESTONE_STEP		64		/* versions from one to the next */
#define CHAIN_LONG			256		/* versions of a chain that gets milestones */
#define CHAIN_WALK			4096	/* of its newest ones are noted at first */
#define CHAINS_MIN			16		/* slots of the table */
#define CHAINS_MAX			131072
#define MILESTONES_MIN		64
#define LANDING_TRIES		8

typedef struct Milestone
{
	uint64		row;
	uint64		fxid;			/* of its creator */
} Milestone;

/* A chain; its milestones [first, first + n), from the oldest version on */
struct LongChain
{
	uint64		root_plus_1;	/* 0: free slot */
	Milestone  *entry;
	uint32		first;
	uint32		n;
	uint32		size;
	uint32		since;			/* versions since the last one */
};

/* ---- a row and its creator name one version for ever ---- */

static bool
is_version(StoreDesc *store, const Milestone *m, RowRef *ref)
{
	return store_locate(store, m->row, ref) &&
		txn_word_fxid(word_read(&ref->words->begin)) == m->fxid;
}

/* ---- the table; space lock held exclusively, or shared to look something up ---- */

static uint32
slot_of(const LongChains *chains, uint64 root_plus_1)
{
	uint32		i = (uint32) ((root_plus_1 * UINT64CONST(0x9e3779b97f4a7c15)) >> 32);

	for (i &= chains->size - 1; chains->slot[i].root_plus_1 != 0 &&
		 chains->slot[i].root_plus_1 != root_plus_1; i = (i + 1) & (chains->size - 1))
		;
	return i;
}

static LongChain *
find_chain(const LongChains *chains, uint64 root)
{
	LongChain  *c;

	if (chains->n == 0)
		return NULL;
	c = &chains->slot[slot_of(chains, root + 1)];
	return c->root_plus_1 != 0 ? c : NULL;
}

static void
free_entries(StoreShared *shared, LongChain *c)
{
	if (c->entry == NULL)
		return;
	arena_free(c->entry);
	pg_atomic_fetch_sub_u64(&shared->bytes_dram, c->size * sizeof(Milestone));
	c->entry = NULL;
	c->first = c->n = c->size = 0;
}

/* Moves the chains that have milestones to a table of this size (0: to none). */
static bool
resize_table(StoreShared *shared, uint32 size)
{
	LongChains *chains = &shared->long_chains;
	LongChains	made = {.size = size};
	uint32		i;

	if (size > 0)
	{
		made.slot = arena_alloc(size * sizeof(LongChain), ARENA_NO_OOM | ARENA_ZERO);
		if (made.slot == NULL)
			return false;
	}
	for (i = 0; i < chains->size; i++)
	{
		LongChain  *c = &chains->slot[i];

		if (c->entry == NULL)
			continue;
		made.slot[slot_of(&made, c->root_plus_1)] = *c;
		made.n++;
	}
	if (chains->slot != NULL)
		arena_free(chains->slot);
	pg_atomic_fetch_add_u64(&shared->bytes_dram,
							((int64) size - (int64) chains->size) * (int64) sizeof(LongChain));
	*chains = made;
	return true;
}

/* NULL: no memory, or there are too many. */
static LongChain *
add_chain(StoreShared *shared, uint64 root)
{
	LongChains *chains = &shared->long_chains;
	LongChain  *c;

	if (chains->n * 2 >= chains->size &&
		(chains->size >= CHAINS_MAX ||
		 !resize_table(shared, Max(chains->size * 2, CHAINS_MIN))))
		return NULL;
	c = &chains->slot[slot_of(chains, root + 1)];
	c->root_plus_1 = root + 1;
	chains->n++;
	return c;
}

/* ---- milestones of a chain; space lock held exclusively ---- */

/*
 * Drops notes, at both ends, whose row no longer holds the noted version: freed ones are at
 * either end, those of an aborted transaction are the newest.
 */
static void
trim(StoreDesc *store, LongChain *c)
{
	RowRef		ref;

	while (c->n > 0 && !is_version(store, &c->entry[c->first], &ref))
	{
		c->first++;
		c->n--;
	}
	while (c->n > 0 && !is_version(store, &c->entry[c->first + c->n - 1], &ref))
		c->n--;
}

static void
append(StoreShared *shared, LongChain *c, const Milestone *m)
{
	if (c->first + c->n == c->size)
	{
		if (c->first < c->size / 2 || c->size == 0)
		{
			uint32		size = Max(c->size * 2, MILESTONES_MIN);
			Milestone  *made = arena_alloc(size * sizeof(Milestone), ARENA_NO_OOM);
			uint32		n = c->n;

			if (made == NULL)
				return;
			if (n > 0)
				memcpy(made, c->entry + c->first, n * sizeof(Milestone));
			free_entries(shared, c);
			pg_atomic_fetch_add_u64(&shared->bytes_dram, size * sizeof(Milestone));
			c->entry = made;
			c->size = size;
			c->n = n;
		}
		else
			memmove(c->entry, c->entry + c->first, c->n * sizeof(Milestone));
		c->first = 0;
	}
	c->entry[c->first + c->n++] = *m;
	c->since = 0;
}

/*
 * A version was added to a chain.  Versions of one row come one after the other: whoever
 * makes one has the row until its transaction ends.
 */
void
milestone_note(StoreDesc *store, uint64 root, const RowRef *version)
{
	LongChain  *c = find_chain(&store->shared->long_chains, root);
	Milestone	m = {.row = version->row};

	if (c == NULL || ++c->since < MILESTONE_STEP)
		return;
	m.fxid = txn_word_fxid(word_read(&version->words->begin));
	trim(store, c);
	if (m.fxid != 0)
		append(store->shared, c, &m);
}

/* ---- a chain has become long ---- */

/*
 * Begins to note a chain if it is long.  Called by updaters, once in a while; "version" is
 * the newest, and ours.  Takes the space lock.
 */
void
milestone_consider(StoreDesc *store, uint64 root, const RowRef *version)
{
	StoreShared *shared = store->shared;
	Milestone	noted[CHAIN_WALK / MILESTONE_STEP];
	RowRef		at = *version;
	LongChain  *c;
	bool		known;
	int			nnoted = 0;
	int			n;

	LWLockAcquire(space_lock(store->id), LW_SHARED);
	known = find_chain(&shared->long_chains, root) != NULL;
	LWLockRelease(space_lock(store->id));
	if (known)
		return;
	for (n = 0; n < CHAIN_WALK; n++)
	{
		uint64		link;

		if (n % MILESTONE_STEP == 0)
		{
			uint64		fxid = txn_word_fxid(word_read(&at.words->begin));

			if (fxid != 0)
				noted[nnoted++] = (Milestone) {.row = at.row, .fxid = fxid};
		}
		link = link_read(at.block, at.index);
		if (!LINK_IS_SET(link) || (link & LINK_ROOT) ||
			!store_locate(store, LINK_ROW(link), &at))
			break;
	}
	if (n < CHAIN_LONG)
		return;
	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	c = find_chain(&shared->long_chains, root) == NULL ? add_chain(shared, root) : NULL;
	while (c != NULL && nnoted > 0)
		append(shared, c, &noted[--nnoted]);
	LWLockRelease(space_lock(store->id));
}

/* ---- readers ---- */

/*
 * For a snapshot: which transactions had not ended when it was taken.  In a chain, versions
 * of transactions that had ended come first.
 */
typedef struct SnapshotBounds
{
	Snapshot	snapshot;
	uint64		xmin;
	uint64		xmax;
	uint64		own;
} SnapshotBounds;

/*
 * Had the transaction not ended when the snapshot was taken?  Looks only at the snapshot:
 * the id is a top transaction's, and a lock is held.
 */
static bool
ended_later(const SnapshotBounds *b, uint64 fxid)
{
	uint32		i;

	if (fxid >= b->xmax || fxid == b->own)
		return true;
	if (fxid < b->xmin)
		return false;
	for (i = 0; i < b->snapshot->xcnt; i++)
		if (b->snapshot->xip[i] == (TransactionId) fxid)
			return true;
	return false;
}

/* Finds the oldest milestones whose transactions ended later; returns how many. */
static int
landing_places(StoreDesc *store, uint64 root, const SnapshotBounds *b, Milestone *places)
{
	LongChain  *c;
	int			n = 0;

	LWLockAcquire(space_lock(store->id), LW_SHARED);
	c = find_chain(&store->shared->long_chains, root);
	if (c != NULL)
	{
		uint32		low = c->first;
		uint32		end = c->first + c->n;
		uint32		high = end;

		while (low < high)
		{
			uint32		middle = low + (high - low) / 2;

			if (ended_later(b, c->entry[middle].fxid))
				high = middle;
			else
				low = middle + 1;
		}
		while (n < LANDING_TRIES && low < end)
			places[n++] = c->entry[low++];
	}
	LWLockRelease(space_lock(store->id));
	return n;
}

/*
 * Finds a version of this root's chain that is too young for the snapshot, and not much
 * younger than what it sees.  False: none is known.
 */
bool
milestone_find(StoreDesc *store, uint64 root, Snapshot snapshot, RowRef *found)
{
	SnapshotBounds b = {.snapshot = snapshot};
	Milestone	places[LANDING_TRIES];
	int			n;
	int			i;

	if (((volatile LongChains *) &store->shared->long_chains)->n == 0)
		return false;
	b.xmin = txn_widen(snapshot->xmin);
	b.xmax = txn_widen(snapshot->xmax);
	b.own = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
	n = landing_places(store, root, &b, places);
	for (i = 0; i < n; i++)
	{
		pm_read_miss(1);
		if (is_version(store, &places[i], found) &&
			txn_version_sight(found->words, snapshot) == TXN_NOT_YET)
			return true;
	}
	return false;
}

/* ---- the end ---- */

/* VACUUM: forgets chains that are short again. */
void
milestone_sweep(StoreDesc *store)
{
	StoreShared *shared = store->shared;
	LongChains *chains = &shared->long_chains;
	uint32		size = CHAINS_MIN;
	uint32		left = 0;
	uint32		i;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	for (i = 0; i < chains->size; i++)
	{
		LongChain  *c = &chains->slot[i];

		if (c->entry == NULL)
			continue;
		trim(store, c);
		if (c->n < CHAIN_LONG / MILESTONE_STEP)
			free_entries(shared, c);
		else
			left++;
	}
	while (size <= left * 2)
		size *= 2;
	if (left < chains->n)
		(void) resize_table(shared, left == 0 ? 0 : size);
	LWLockRelease(space_lock(store->id));
}

/* Memory that a store's milestones take.  Takes the space lock. */
Size
milestone_bytes(StoreDesc *store)
{
	const LongChains *chains = &store->shared->long_chains;
	Size		bytes;
	uint32		i;

	LWLockAcquire(space_lock(store->id), LW_SHARED);
	bytes = chains->size * sizeof(LongChain);
	for (i = 0; i < chains->size; i++)
		bytes += chains->slot[i].size * sizeof(Milestone);
	LWLockRelease(space_lock(store->id));
	return bytes;
}

/* The store goes away or becomes empty.  No ERROR. */
void
milestone_free_all(StoreShared *shared)
{
	LongChains *chains = &shared->long_chains;
	uint32		i;

	for (i = 0; i < chains->size; i++)
		free_entries(shared, &chains->slot[i]);
	if (chains->slot != NULL)
		arena_free(chains->slot);
	memset(chains, 0, sizeof(LongChains));
}
