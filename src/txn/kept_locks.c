/*-------------------------------------------------------------------------
 *
 * kept_locks.c
 *	  Row locks of kept transactions that a crash has left.
 *
 * They are in the write set, as ranges of rows, and stay there: a lock is put into the
 * lock table when somebody is about to claim or lock that very row.  So neither a start
 * nor resuming a transaction looks at the rows that it has locked.  The keeper sorts
 * the ranges in the background; until then sessions that need to know read the write
 * set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/kept.h"

#include "txn_internal.h"

#define LOCK_MODES	4			/* LockTupleMode */

/* Rows first to first + count - 1, locked in the same mode. */
struct KeptRange
{
	StoreId		store;
	uint64		row;
	uint64		count;
	LockTupleMode mode;
};

/* A store that it has changed, or in which it has only locked rows */
struct KeptStore
{
	StoreId		store;
	bool		changed;
};

/* ------------------------------------------------------------------------
 * What the write set says
 * ------------------------------------------------------------------------
 */

/*
 * The entries of its statements that had finished when the server died; "row
 * locks that others gave" included.  TXN_LWLOCK_KEPT is held.
 */
static void
visit_entries(const TxnKept *k, KeptEntryVisitor fn, void *arg)
{
	const Tcb  *tcb = (const Tcb *) pm_vector_get(&PoolSuper->tcbs, k->slot);
	uint64		left = k->old_entries;
	uint64		carried = k->old_locks;
	TxnEntry	e;
	PMPtr		p;
	uint64		i;

	for (i = 0; i < TCB_INLINE_ENTRIES && left > 0; i++, left--)
	{
		if (tcb_valid_entry(&tcb->entries[i], k->generation, &e))
			fn(&e, arg);
	}
	for (p = tcb->overflow; p != PM_NULL && left > 0; p = ((TcbChunk *) pm_deref(p))->next)
	{
		const TcbChunk *chunk = (const TcbChunk *) pm_deref(p);

		for (i = 0; i < TCB_CHUNK_ENTRIES && left > 0; i++, left--)
		{
			if (tcb_valid_entry(&chunk->entries[i], k->generation, &e))
				fn(&e, arg);
		}
	}
	for (p = kept_record(k)->locks; p != PM_NULL && carried > 0; p = ((TcbChunk *) pm_deref(p))->next)
	{
		const TcbChunk *chunk = (const TcbChunk *) pm_deref(p);

		for (i = 0; i < TCB_CHUNK_ENTRIES && carried > 0; i++, carried--)
		{
			if (tcb_valid_entry(&chunk->entries[i], k->generation, &e))
				fn(&e, arg);
		}
	}
}

/*
 * The transaction was found after a crash.  TXN_LWLOCK_RESOLVE is held; nobody reads rows
 * yet.
 */
void
kept_locks_found(TxnKept *k, uint64 entries)
{
	PMPtr		p;

	k->old_entries = entries;
	k->old_locks = 0;
	for (p = kept_record(k)->locks; p != PM_NULL; p = ((TcbChunk *) pm_deref(p))->next)
		k->old_locks += TCB_CHUNK_ENTRIES;
	k->next_lock = k->old_locks;
	k->sorted = false;
	k->has_locks = true;		/* as far as we know */
	k->continued = true;
	pg_atomic_fetch_add_u32(&TxnShmem->kept_locks, 1);
}

/*
 * The transaction ends, or has ended: to be called before its entries and its locks go
 * away.  No error, no allocation.
 */
void
kept_locks_end(TxnKept *k)
{
	if (!k->continued)
		return;					/* no crash */
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_EXCLUSIVE);
	if (k->has_locks)
		pg_atomic_fetch_sub_u32(&TxnShmem->kept_locks, 1);
	k->has_locks = false;
	if (k->ranges != NULL)
		arena_free(k->ranges);
	if (k->stores != NULL)
		arena_free(k->stores);
	k->ranges = NULL;
	k->stores = NULL;
	k->nstores = 0;
	k->sorted = false;
	k->continued = false;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
}

/* ------------------------------------------------------------------------
 * A row that somebody is about to claim or lock
 * ------------------------------------------------------------------------
 */

typedef struct RowSearch
{
	StoreId		store;
	uint64		row;
	bool		modes[LOCK_MODES];
} RowSearch;

static void
search_entry(const TxnEntry *e, void *arg)
{
	RowSearch  *s = arg;

	if (e->store == s->store && entry_is_lock(e) && s->row >= e->row && s->row < e->row + e->count)
		s->modes[e->kind - TXN_ENTRY_LOCK] = true;
}

static int
compare_ranges(const void *a, const void *b)
{
	const KeptRange *x = a;
	const KeptRange *y = b;

	if (x->mode != y->mode)
		return x->mode < y->mode ? -1 : 1;
	if (x->store != y->store)
		return x->store < y->store ? -1 : 1;
	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return 0;
}

/* Does a range cover the row?  That is the last one, in order, that does not begin behind it. */
static bool
range_covers(const TxnKept *k, LockTupleMode mode, StoreId store, uint64 row)
{
	const KeptRange search = {.store = store,.row = row,.mode = mode};
	const KeptRange *r;
	uint64		low = 0;
	uint64		high = k->nranges;

	while (low < high)
	{
		uint64		middle = low + (high - low) / 2;

		if (compare_ranges(&k->ranges[middle], &search) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return false;
	r = &k->ranges[low - 1];
	return r->mode == mode && r->store == store && row - r->row < r->count;
}

/* Did a transaction of an earlier life get this xid when it was resumed? */
static bool
was_resumed_as(uint64 fxid)
{
	for (uint32 i = 0; i < TxnShmem->nkept; i++)
		if (TxnKeptOnes[i].resumed_as == fxid)
			return true;
	return false;
}

/*
 * Is it the version that was locked?  If the row id was freed and used again since the
 * start, its version was made by a transaction that began after the start.  (A kept
 * transaction may have made both: then a row is locked unnecessarily.)
 */
static bool
is_old_version(StoreId store, uint64 row)
{
	const RowWords *words = TxnOps->find_words(store, row);
	uint64		begin;
	uint64		fxid;

	if (words == NULL)
		return false;
	for (;;)
	{
		begin = word_read(&words->begin);
		if (WORD_TAG(begin) == WORD_TAG_STAMP)
			fxid = WORD_XID(begin);
		else if (WORD_TAG(begin) != WORD_TAG_PROGRESS)
			return false;
		else if (!slot_transaction(WORD_SLOT(begin), WORD_GENERATION(begin), &fxid))
		{
			if (word_read(&words->begin) == begin)
				return false;
			continue;			/* stamped meanwhile, and the slot is another's */
		}
		return fxid <= TxnShmem->old_mark || was_resumed_as(fxid);
	}
}

static void
restore_for(const TxnKept *k, StoreId store, uint64 row)
{
	RowSearch	s = {.store = store,.row = row};

	if (k->sorted)
	{
		for (int mode = 0; mode < LOCK_MODES; mode++)
			s.modes[mode] = range_covers(k, (LockTupleMode) mode, store, row);
	}
	else
		visit_entries(k, search_entry, &s);
	for (int mode = 0; mode < LOCK_MODES; mode++)
	{
		if (s.modes[mode] && is_old_version(store, row))
			(void) rowlock_restore(store, row, (LockTupleMode) mode, k->slot, k->generation,
								   TxnSlots[k->slot].fxid, k->stage == KEEP_WAITING);
	}
}

/* May raise 53200.  No LWLock of txn is held. */
void
kept_restore_row(StoreId store, uint64 row)
{
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_SHARED);
	for (uint32 i = 0; i < TxnShmem->nkept; i++)
	{
		if (TxnKeptOnes[i].has_locks)
			restore_for(&TxnKeptOnes[i], store, row);
	}
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
}

/* ------------------------------------------------------------------------
 * Its stores
 * ------------------------------------------------------------------------
 */

typedef struct StoreVisit
{
	TxnKeptVisitor fn;
	void	   *arg;
	StoreId		last;
	bool		last_changed;
} StoreVisit;

static void
visit_store(const TxnEntry *e, void *arg)
{
	StoreVisit *v = arg;

	if (e->store == v->last && v->last_changed == !entry_is_lock(e))
		return;
	v->last = e->store;
	v->last_changed = !entry_is_lock(e);
	v->fn(v->arg, e->store, v->last_changed);
}

/* fn must not raise errors or take locks of txn. */
void
txn_kept_visit_stores(uint32 place, TxnKeptVisitor fn, void *arg)
{
	const TxnKept *k = &TxnKeptOnes[place];
	StoreVisit	v = {.fn = fn,.arg = arg};

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_SHARED);
	if (!k->continued || k->stage != KEEP_WAITING)
		;						/* it has ended, or somebody runs it */
	else if (k->sorted)
	{
		for (uint32 i = 0; i < k->nstores; i++)
			fn(arg, k->stores[i].store, k->stores[i].changed);
	}
	else
		visit_entries(k, visit_store, &v);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
}

/* ------------------------------------------------------------------------
 * In the background
 * ------------------------------------------------------------------------
 */

typedef struct Collected
{
	KeptRange  *ranges;
	int64		nranges;
	int64		maxranges;
	KeptStore  *stores;
	int64		nstores;
	int64		maxstores;
} Collected;

static void
collect_store(void *arg, StoreId store, bool changed)
{
	Collected  *c = arg;
	int64		i;

	for (i = 0; i < c->nstores && c->stores[i].store != store; i++)
		;
	if (i == c->nstores)
	{
		c->stores = txn_grow(c->stores, c->nstores, &c->maxstores, sizeof(KeptStore));
		c->stores[c->nstores].store = store;
		c->stores[c->nstores++].changed = false;
	}
	c->stores[i].changed |= changed;
}

typedef struct CollectVisit
{
	Collected  *c;
	StoreVisit	stores;
} CollectVisit;

static void
collect_entry(const TxnEntry *e, void *arg)
{
	CollectVisit *v = arg;
	Collected  *c = v->c;

	visit_store(e, &v->stores);
	if (!entry_is_lock(e))
		return;
	c->ranges = txn_grow(c->ranges, c->nranges, &c->maxranges, sizeof(KeptRange));
	c->ranges[c->nranges++] = (KeptRange)
	{
		.store = e->store,.row = e->row,.count = e->count,
		.mode = (LockTupleMode) (e->kind - TXN_ENTRY_LOCK)
	};
}

/* Sorts ranges, and joins those of one mode that touch. */
static void
sort_ranges(Collected *c)
{
	int64		n = 0;

	if (c->nranges == 0)
		return;
	qsort(c->ranges, c->nranges, sizeof(KeptRange), compare_ranges);
	for (int64 i = 1; i < c->nranges; i++)
	{
		KeptRange  *last = &c->ranges[n];
		const KeptRange *r = &c->ranges[i];

		if (r->mode == last->mode && r->store == last->store && r->row <= last->row + last->count)
			last->count = Max(last->row + last->count, r->row + r->count) - last->row;
		else
			c->ranges[++n] = *r;
	}
	c->nranges = n + 1;
}

static void *
to_arena(const void *array, Size size)
{
	void	   *copy = size == 0 ? NULL : arena_alloc(size, ARENA_NO_OOM);

	if (copy != NULL)
		memcpy(copy, array, size);
	return copy;
}

/* Without memory for it sessions go on reading the write set. */
static void
install(TxnKept *k, uint64 record, const Collected *c)
{
	KeptRange  *ranges = to_arena(c->ranges, c->nranges * sizeof(KeptRange));
	KeptStore  *stores = to_arena(c->stores, c->nstores * sizeof(KeptStore));
	bool		all = (ranges != NULL || c->nranges == 0) && (stores != NULL || c->nstores == 0);

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_EXCLUSIVE);
	if (all && k->has_locks && k->record == record && !k->sorted)
	{
		k->ranges = ranges;
		k->nranges = (uint64) c->nranges;
		k->stores = stores;
		k->nstores = (uint32) c->nstores;
		ranges = NULL;
		stores = NULL;
		k->sorted = true;
		if (c->nranges == 0)
		{
			k->has_locks = false;
			pg_atomic_fetch_sub_u32(&TxnShmem->kept_locks, 1);
		}
	}
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
	if (ranges != NULL)
		arena_free(ranges);
	if (stores != NULL)
		arena_free(stores);
}

/* Called by the keeper, once after a start. */
void
kept_locks_sort(void)
{
	for (uint32 i = 0; i < TxnShmem->nkept; i++)
	{
		TxnKept    *k = &TxnKeptOnes[i];
		Collected	c = {0};
		CollectVisit v = {.c = &c,.stores = {.fn = collect_store,.arg = &c}};
		uint64		record;
		bool		wanted;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_SHARED);
		record = k->record;
		wanted = k->has_locks && !k->sorted;
		if (wanted)
			visit_entries(k, collect_entry, &v);
		LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
		if (!wanted)
			continue;
		sort_ranges(&c);
		SOFORT_STOP("kept-locks-collected");
		install(k, record, &c);
		if (c.ranges != NULL)
			pfree(c.ranges);
		if (c.stores != NULL)
			pfree(c.stores);
	}
}
