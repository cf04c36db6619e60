/*-------------------------------------------------------------------------
 *
 * server.c
 *	  Calls that order processes, or touch memory, in functions that are not watched.
 *
 * The linker leads calls of these functions here (--wrap, races.mk).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/dshash.h"
#include "port/pg_bitutils.h"
#include "races.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/rel.h"

/* WRAP(result, function, (parameters)): declares both names of it */
#define WRAP(result, function, parameters) \
	extern result __real_##function parameters; \
	extern result __wrap_##function parameters; \
	result __wrap_##function parameters

/* ---- locks ---- */

WRAP(bool, LWLockAcquire, (LWLock *lock, LWLockMode mode))
{
	bool		at_once = __real_LWLockAcquire(lock, mode);

	races_acquire_lock(lock, mode == LW_EXCLUSIVE);
	return at_once;
}

WRAP(bool, LWLockConditionalAcquire, (LWLock *lock, LWLockMode mode))
{
	bool		got_it = __real_LWLockConditionalAcquire(lock, mode);

	if (got_it)
		races_acquire_lock(lock, mode == LW_EXCLUSIVE);
	return got_it;
}

WRAP(void, LWLockRelease, (LWLock *lock))
{
	races_release_lock(lock, LWLockHeldByMeInMode(lock, LW_EXCLUSIVE));
	__real_LWLockRelease(lock);
}

extern void races_spin_acquired(volatile slock_t *lock);
extern void races_spin_release(volatile slock_t *lock);

/* (builtins.h) */
void
races_spin_acquired(volatile slock_t *lock)
{
	races_acquire(lock);
}

void
races_spin_release(volatile slock_t *lock)
{
	races_release(lock);
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* ---- hash tables in the arena: a lock for each partition, taken inside the server ---- */

#define DSHASH_PARTITIONS	128

/* stands for a lock, of which two words count */
typedef struct PartitionLock
{
	uint64		exclusive;
	uint64		shared;
} PartitionLock;

static PartitionLock partition[DSHASH_PARTITIONS]; /* of the one table that there is */
static size_t key_size = 0;

static PartitionLock *
partition_of(const void *key)
{
	return &partition[dshash_memhash(key, key_size, NULL) >> (32 - pg_leftmost_one_pos32(DSHASH_PARTITIONS))];
}

WRAP(dshash_table *, dshash_create, (dsa_area *area, const dshash_parameters *params, void *arg))
{
	key_size = params->key_size;
	return __real_dshash_create(area, params, arg);
}

WRAP(dshash_table *, dshash_attach, (dsa_area *area, const dshash_parameters *params, dshash_table_handle handle,
									 void *arg))
{
	key_size = params->key_size;
	return __real_dshash_attach(area, params, handle, arg);
}

/* A process has one such lock at a time. */
static PartitionLock *locked = NULL;
static bool locked_exclusive;

static void
partition_acquired(PartitionLock *lock, bool exclusive)
{
	races_acquire_lock(lock, exclusive);
	locked = lock;
	locked_exclusive = exclusive;
}

static void
partition_release(void)
{
	if (locked != NULL)
		races_release_lock(locked, locked_exclusive);
	locked = NULL;
}

WRAP(void *, dshash_find, (dshash_table *table, const void *key, bool exclusive))
{
	void	   *entry = __real_dshash_find(table, key, exclusive);

	partition_acquired(partition_of(key), exclusive);
	if (entry == NULL)
		partition_release();
	return entry;
}

WRAP(void *, dshash_find_or_insert, (dshash_table *table, const void *key, bool *found))
{
	void	   *entry = __real_dshash_find_or_insert(table, key, found);

	partition_acquired(partition_of(key), true);
	return entry;
}

WRAP(void, dshash_release_lock, (dshash_table *table, void *entry))
{
	partition_release();
	__real_dshash_release_lock(table, entry);
}

WRAP(void, dshash_delete_entry, (dshash_table *table, void *entry))
{
	partition_release();
	__real_dshash_delete_entry(table, entry);
}

WRAP(void *, dshash_seq_next, (dshash_seq_status *status))
{
	void	   *entry;

	partition_release();
	entry = __real_dshash_seq_next(status);
	if (status->curpartition >= 0)
		partition_acquired(&partition[status->curpartition], status->exclusive);
	return entry;
}

WRAP(void, dshash_seq_term, (dshash_seq_status *status))
{
	partition_release();
	__real_dshash_seq_term(status);
}

/* ---- the horizon ---- */

/*
 * The server orders transactions by snapshots.  Whoever asks for the horizon comes after
 * all that ended, or left what it read, before: those meet here.  That is more than the
 * horizon promises, so who asks too early is not found.
 */
static uint64 horizon;

WRAP(uint64, txn_horizon, (Relation rel))
{
	uint64		xid = __real_txn_horizon(rel);

	races_acquire(&horizon);
	return xid;
}

WRAP(void, space_end_of_xact, (void))
{
	__real_space_end_of_xact();
	races_release(&horizon);
}

WRAP(void *, store_open, (Relation rel))
{
	races_release(&horizon);
	return __real_store_open(rel);
}

WRAP(void, epoch_exit, (void))
{
	races_release(&horizon);
	__real_epoch_exit();
}

/*
 * Who drops a store, or the tree of an index, has locked its relation, so that all
 * transactions that used it have ended.  (Heavyweight locks themselves are not seen.)
 */
WRAP(void, registry_drop, (uint64 store))
{
	races_acquire(&horizon);
	__real_registry_drop(store);
}

WRAP(void, registry_drop_locator, (const void *locator))
{
	races_acquire(&horizon);
	__real_registry_drop_locator(locator);
}

/* ---- shared memory ---- */

WRAP(void *, ShmemInitStruct, (const char *name, Size size, bool *found))
{
	void	   *p = __real_ShmemInitStruct(name, size, found);

	if (!*found)
	{
		races_begin_life();
		races_watch(name, p, size);
	}
	return p;
}

/* The arena: what is freed is given to others by the server, under locks of its own. */
static uint64 freed;

WRAP(dsa_area *, dsa_create_in_place, (void *place, size_t size, int tranche, dsm_segment *segment))
{
	races_watch("arena", place, size);
	return __real_dsa_create_in_place(place, size, tranche, segment);
}

WRAP(dsa_pointer, dsa_allocate_extended, (dsa_area *area, size_t size, int flags))
{
	dsa_pointer p = __real_dsa_allocate_extended(area, size, flags);

	races_acquire(&freed);
	return p;
}

WRAP(void, dsa_free, (dsa_area *area, dsa_pointer p))
{
	races_release(&freed);
	__real_dsa_free(area, p);
}

/* ---- functions of the C library ---- */

WRAP(void *, memcpy, (void *to, const void *from, size_t size))
{
	races_access(from, size, PLAIN_READ, RACES_CALLER);
	races_access(to, size, PLAIN_WRITE, RACES_CALLER);
	return __real_memcpy(to, from, size);
}

WRAP(void *, memmove, (void *to, const void *from, size_t size))
{
	races_access(from, size, PLAIN_READ, RACES_CALLER);
	races_access(to, size, PLAIN_WRITE, RACES_CALLER);
	return __real_memmove(to, from, size);
}

WRAP(void *, memset, (void *to, int byte, size_t size))
{
	races_access(to, size, PLAIN_WRITE, RACES_CALLER);
	return __real_memset(to, byte, size);
}

WRAP(int, memcmp, (const void *a, const void *b, size_t size))
{
	races_access(a, size, PLAIN_READ, RACES_CALLER);
	races_access(b, size, PLAIN_READ, RACES_CALLER);
	return __real_memcmp(a, b, size);
}
