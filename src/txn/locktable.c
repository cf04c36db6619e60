/*-------------------------------------------------------------------------
 *
 * locktable.c
 *	  Row locks that do not fit an end word: shared hash table in DRAM.
 *
 * An entry is in the bucket of its row (protected by the partition's LWLock) and in the
 * list of its owner (protected by the owner's spinlock, so that others can give it
 * entries).  An entry is removed by its owner, at the end of its (sub)transaction, or
 * by a session that has just added it and found that it was not needed.  So while one
 * holds the partition lock of an entry, its owner has not finished releasing: what is
 * added for it then will be found.
 *
 * The list is in the order of arrival, not of subtransactions: a lock of an outer one
 * becomes an entry whenever somebody needs one, or carries the lock to another version.
 * But nothing of a subtransaction arrives before it begins.
 *
 * Lock order: partition (two: ascending), then spinlock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "storage/ipc.h"
#include "storage/spin.h"

#include "txn_internal.h"

#define FIRST_BUCKETS	64
#define GROWTH			4
#define STOCK_LIMIT		256
#define STEPS_AT_ONCE	64		/* entries of a list looked at under its spinlock */

typedef struct Partition
{
	RowLock   **buckets;
	uint32		nbuckets;		/* power of 2 */
	volatile uint32 nlocks;
	RowLock    *first[FIRST_BUCKETS];
} Partition;

static Partition *partitions;

/* Entries that this process may use without allocating. */
static RowLock *stock = NULL;
static int	nstock = 0;
static bool exit_registered = false;

/* For tests: entries that this process has looked at in order to release them. */
static uint64 release_steps = 0;

Size
locktable_shmem_size(void)
{
	return mul_size(sizeof(Partition), TXN_LOCK_PARTITIONS);
}

void
locktable_startup(void)
{
	int			i;

	/* it lies behind the backends, see startup_shmem() */
	partitions = (Partition *) MAXALIGN(&TxnBackends[TxnShmem->nbackends + TxnShmem->nprepared +
													 TxnShmem->nkept]);
	for (i = 0; i < TXN_LOCK_PARTITIONS; i++)
	{
		partitions[i].buckets = partitions[i].first;
		partitions[i].nbuckets = FIRST_BUCKETS;
	}
}

static inline uint64
row_hash(StoreId store, uint64 row)
{
	uint64		h = (store * UINT64CONST(0x9e3779b97f4a7c15)) ^ row;

	/* finaliser of murmurhash3 */
	h ^= h >> 33;
	h *= UINT64CONST(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64CONST(0xc4ceb9fe1a85ec53);
	return h ^ (h >> 33);
}

/* LWLock number, and index, of the row's partition. */
int
locktable_partition(StoreId store, uint64 row)
{
	return (int) (row_hash(store, row) % TXN_LOCK_PARTITIONS);
}

static RowLock **
bucket_of(StoreId store, uint64 row)
{
	uint64		hash = row_hash(store, row);
	Partition  *p = &partitions[hash % TXN_LOCK_PARTITIONS];

	return &p->buckets[(hash / TXN_LOCK_PARTITIONS) & (p->nbuckets - 1)];
}

static void
return_stock(int code, Datum arg)
{
	while (stock != NULL)
	{
		RowLock    *lock = stock;

		stock = lock->next;
		arena_free(lock);
	}
	nstock = 0;
}

/* Makes sure of at least n entries in the stock.  May raise 53200; no LWLock may be held. */
void
locktable_stock(int n)
{
	if (likely(nstock >= n))
		return;
	if (!exit_registered)
	{
		on_shmem_exit(return_stock, (Datum) 0);
		exit_registered = true;
	}
	for (n = Max(n, 8); nstock < n; nstock++)
	{
		RowLock    *lock = arena_alloc(sizeof(RowLock), 0);

		lock->next = stock;
		stock = lock;
	}
}

static void
put_back(RowLock *lock)
{
	if (nstock >= STOCK_LIMIT)
	{
		arena_free(lock);
		return;
	}
	lock->next = stock;
	stock = lock;
	nstock++;
}

/* Entries of a row; the partition lock is held. */
RowLock *
locktable_first(StoreId store, uint64 row)
{
	RowLock    *lock;

	for (lock = *bucket_of(store, row); lock != NULL; lock = lock->next)
	{
		if (lock->store == store && lock->row == row)
			break;
	}
	return lock;
}

RowLock *
locktable_next(RowLock *lock)
{
	StoreId		store = lock->store;
	uint64		row = lock->row;

	for (lock = lock->next; lock != NULL; lock = lock->next)
	{
		if (lock->store == store && lock->row == row)
			break;
	}
	return lock;
}

/*
 * Adds buckets, if there is memory; without it the chains get longer.  Each bucket becomes
 * GROWTH of them.  Entries keep their order: whoever adds some while he walks through those
 * of a row (copy_entries()) must not miss the ones behind.
 */
static void
grow(Partition *p)
{
	uint32		nold = p->nbuckets;
	RowLock   **buckets = arena_alloc(nold * GROWTH * sizeof(RowLock *), ARENA_NO_OOM | ARENA_ZERO);
	RowLock   **old = p->buckets;
	uint32		i;
	int			part;

	if (buckets == NULL)
		return;
	p->buckets = buckets;
	p->nbuckets = nold * GROWTH;
	for (i = 0; i < nold; i++)
	{
		RowLock   **end[GROWTH];
		RowLock    *lock;

		for (part = 0; part < GROWTH; part++)
			end[part] = &buckets[i + nold * part];
		for (lock = old[i]; lock != NULL; lock = lock->next)
		{
			part = (int) ((bucket_of(lock->store, lock->row) - buckets) / nold);
			*end[part] = lock;
			end[part] = &lock->next;
		}
		for (part = 0; part < GROWTH; part++)
			*end[part] = NULL;
	}
	if (old != p->first)
		arena_free(old);
}

/* These two put an entry into an owner's list and take it out, under its spinlock. */
static inline void
own(TxnBackend *b, RowLock *lock)
{
	lock->arrival = b->arrivals++;
	lock->owned_prev = NULL;
	lock->owned_next = b->owned;
	if (b->owned != NULL)
		b->owned->owned_prev = lock;
	b->owned = lock;
}

static inline void
disown(TxnBackend *b, RowLock *lock)
{
	if (lock->owned_prev != NULL)
		lock->owned_prev->owned_next = lock->owned_next;
	else
		b->owned = lock->owned_next;
	if (lock->owned_next != NULL)
		lock->owned_next->owned_prev = lock->owned_prev;
	if (b->cursor == lock)
		b->cursor = lock->owned_next;
}

/*
 * The owner whose list an entry is in; its spinlock is held, because a hand-over may change
 * the owner.
 */
static TxnBackend *
lock_owner(const RowLock *lock)
{
	for (;;)
	{
		uint32		owner = *(const volatile uint32 *) &lock->owner;
		TxnBackend *b = &TxnBackends[owner];

		SpinLockAcquire(&b->mutex);
		if (*(const volatile uint32 *) &lock->owner == owner)
			return b;
		SpinLockRelease(&b->mutex);
	}
}

/*
 * Adds an entry for its holder (this process or another) from the stock; the partition lock
 * is held exclusively.  An existing one is returned.
 */
RowLock *
locktable_add(StoreId store, uint64 row, uint32 slot, uint32 generation, uint64 fxid,
			  SubTransactionId sub, LockTupleMode mode)
{
	Partition  *p = &partitions[locktable_partition(store, row)];
	TxnBackend *b;
	RowLock   **bucket;
	RowLock    *lock;

	for (lock = locktable_first(store, row); lock != NULL; lock = locktable_next(lock))
	{
		if (lock->slot == slot && lock->generation == generation && lock->sub == sub &&
			lock->mode == mode)
			return lock;
	}

	Assert(nstock > 0);
	lock = stock;
	stock = lock->next;
	nstock--;
	lock->store = store;
	lock->row = row;
	lock->fxid = fxid;
	lock->slot = slot;
	lock->generation = (uint16) generation;
	lock->sub = sub;
	lock->mode = (uint8) mode;
	lock->logged = false;

	if (p->nlocks >= p->nbuckets * 2)
		grow(p);
	bucket = bucket_of(store, row);
	lock->next = *bucket;
	*bucket = lock;
	p->nlocks++;

	/* PREPARE TRANSACTION may hand the slot over at this moment */
	for (;;)
	{
		lock->owner = *(volatile uint32 *) &TxnSlots[slot].owner;
		b = &TxnBackends[lock->owner];
		SpinLockAcquire(&b->mutex);
		if (*(volatile uint32 *) &TxnSlots[slot].owner == lock->owner)
			break;
		SpinLockRelease(&b->mutex);
	}
	own(b, lock);
	SpinLockRelease(&b->mutex);
	return lock;
}

/* The partition lock is held exclusively. */
void
locktable_remove(RowLock *lock)
{
	Partition  *p = &partitions[locktable_partition(lock->store, lock->row)];
	TxnBackend *b;
	RowLock   **link = bucket_of(lock->store, lock->row);

	while (*link != lock)
		link = &(*link)->next;
	*link = lock->next;
	p->nlocks--;

	b = lock_owner(lock);
	disown(b, lock);
	SpinLockRelease(&b->mutex);
	put_back(lock);
}

/*
 * The row of the next entry of an owner, from its cursor on, that arrived at
 * "since" or later and is of from_sub or a later subtransaction.
 */
static bool
next_owned(TxnBackend *b, SubTransactionId from_sub, uint64 since, StoreId *store, uint64 *row)
{
	for (;;)
	{
		RowLock    *lock;
		int			n;

		SpinLockAcquire(&b->mutex);
		lock = b->cursor;
		for (n = 1; n < STEPS_AT_ONCE && lock != NULL && lock->arrival >= since &&
			 lock->sub < from_sub; n++)
			lock = lock->owned_next;
		release_steps += n;
		if (lock == NULL || lock->arrival < since)
		{
			b->cursor = NULL;
			SpinLockRelease(&b->mutex);
			return false;
		}
		if (lock->sub >= from_sub)
		{
			*store = lock->store;
			*row = lock->row;
			b->cursor = lock->owned_next;
			SpinLockRelease(&b->mutex);
			return true;
		}
		b->cursor = lock;
		SpinLockRelease(&b->mutex);
	}
}

uint64
txn_test_release_steps(void)
{
	return release_steps;
}

/* For tests: entries of all owners. */
uint64
txn_test_lock_entries(void)
{
	uint64		n = 0;
	int			i;

	for (i = 0; i < TXN_LOCK_PARTITIONS; i++)
		n += partitions[i].nlocks;
	return n;
}

/*
 * Releases everything that the subtransaction of this owner and those after it hold; none
 * of it arrived before "since".  TopSubTransactionId, 0: everything.  No error, no
 * allocation.
 */
void
locktable_release(TxnBackend *b, SubTransactionId from_sub, uint64 since)
{
	uint32		owner = (uint32) (b - TxnBackends);
	StoreId		store;
	uint64		row;

	/* others may copy an entry before it is removed: look at what they have added, too */
	while (b->owned != NULL)
	{
		uint64		arrivals = b->arrivals;

		if (arrivals == since)
			break;
		SpinLockAcquire(&b->mutex);
		b->cursor = b->owned;
		SpinLockRelease(&b->mutex);
		while (next_owned(b, from_sub, since, &store, &row))
		{
			LWLock	   *lwlock = txn_lwlock(TXN_LWLOCK_ROWS + locktable_partition(store, row));
			RowLock    *lock;
			RowLock    *next;

			SOFORT_STOP("row-lock-found");
			LWLockAcquire(lwlock, LW_EXCLUSIVE);
			for (lock = locktable_first(store, row); lock != NULL; lock = next)
			{
				next = locktable_next(lock);
				if (lock->owner == owner && lock->sub >= from_sub)
					locktable_remove(lock);
			}
			LWLockRelease(lwlock);
		}
		since = arrivals;
	}
}

/* Copies of all entries of an owner, palloc'd. */
RowLock *
locktable_copy_owned(TxnBackend *b, int64 *n)
{
	int64		max = 0;
	RowLock    *copies = NULL;

	for (;;)
	{
		RowLock    *lock;

		*n = 0;
		SpinLockAcquire(&b->mutex);
		for (lock = b->owned; lock != NULL; lock = lock->owned_next)
		{
			if (*n < max)
				copies[*n] = *lock;
			(*n)++;
		}
		SpinLockRelease(&b->mutex);
		if (*n <= max)
			return copies;
		if (copies != NULL)
			pfree(copies);
		max = *n + 16;
		copies = palloc_extended(max * sizeof(RowLock), MCXT_ALLOC_HUGE);
	}
}

/*
 * Returns copies of entries that are not marked as logged, and marks them.  New entries are
 * put at the head of the list, so these are in front.
 */
RowLock *
locktable_take_unlogged(TxnBackend *b, int64 *n)
{
	int64		max = 0;
	RowLock    *copies = NULL;

	for (;;)
	{
		RowLock    *lock;

		*n = 0;
		SpinLockAcquire(&b->mutex);
		for (lock = b->owned; lock != NULL && !lock->logged; lock = lock->owned_next)
			(*n)++;
		if (*n <= max)
		{
			int64		i = 0;

			for (lock = b->owned; i < *n; lock = lock->owned_next)
			{
				copies[i++] = *lock;
				lock->logged = true;
			}
		}
		SpinLockRelease(&b->mutex);
		if (*n <= max)
			return copies;
		if (copies != NULL)
			pfree(copies);
		max = *n + 16;
		copies = palloc_extended(max * sizeof(RowLock), MCXT_ALLOC_HUGE);
	}
}

/*
 * The transaction in this slot gets another owner, with all its entries.  Others
 * may add entries for it meanwhile.
 */
void
locktable_hand_over(TxnBackend *from, uint32 slot, TxnBackend *to)
{
	RowLock    *lock;

	SpinLockAcquire(&from->mutex);
	*(volatile uint32 *) &TxnSlots[slot].owner = (uint32) (to - TxnBackends);
	SpinLockRelease(&from->mutex);
	do
	{
		SpinLockAcquire(&from->mutex);
		lock = from->owned;
		if (lock != NULL)
		{
			disown(from, lock);
			SpinLockAcquire(&to->mutex);
			*(volatile uint32 *) &lock->owner = (uint32) (to - TxnBackends);
			own(to, lock);
			SpinLockRelease(&to->mutex);
		}
		SpinLockRelease(&from->mutex);
	} while (lock != NULL);
}
