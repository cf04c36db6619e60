/*-------------------------------------------------------------------------
 *
 * registry.c
 *	  The trees of all indexes, by relation file.
 *
 * A tree that is missing is built from its table when it is needed.  So dropping one
 * too many is never wrong; keeping one that does not belong to its file would be.  Each
 * tree is bound to the file it was made for, and is dropped with it: when the
 * transaction ends (pending.c), or, if it was left over, when VACUUM finds that the
 * file is gone (SET TABLESPACE).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "common/hashfn.h"
#include "lib/dshash.h"
#include "miscadmin.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/registry.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "partial.h"

#define GROW_LOCKS		64
#define OWNER_BUCKETS	8192

/* Hashes may take one part in so many of the arena. */
#define HASH_PART		8

/* Trees without a file are looked for at most this often, per backend. */
#define GARBAGE_INTERVAL_MS	60000

typedef struct RegistryEntry
{
	RelFileLocator locator;		/* key */
	SofortIndex *shared;
} RegistryEntry;

typedef struct RegistryShared
{
	LWLockPadded lock;			/* creation of the table; free list, by_owner */
	pg_atomic_uint32 marked;	/* entries with prepared_xid, at most */
	pg_atomic_uint64 hash_bytes;	/* of segments of partial indexes */
	int			tranche;
	volatile bool created;
	dshash_table_handle handle;
	uint64		next_serial;
	SofortIndex *free;
	SofortIndex *by_owner[OWNER_BUCKETS];	/* all, by database and index_oid */
	LWLockPadded grow_locks[GROW_LOCKS];
} RegistryShared;

static RegistryShared *registry = NULL;
static dshash_table *table = NULL;
static uint64 former_steps = 0; /* for tests */

/* ---- shared memory ---- */

Size
indexam_shmem_size(void)
{
	return sizeof(RegistryShared) + PG_CACHE_LINE_SIZE;
}

void
indexam_startup(void)
{
	bool		found;
	int			i;

	registry = ShmemInitStruct("sofort_indexam", sizeof(RegistryShared), &found);
	table = NULL;
	if (found)
		return;
	memset(registry, 0, sizeof(*registry));
	registry->tranche = LWLockNewTrancheId();
	LWLockInitialize(&registry->lock.lock, registry->tranche);
	for (i = 0; i < GROW_LOCKS; i++)
		LWLockInitialize(&registry->grow_locks[i].lock, registry->tranche);
	registry->next_serial = 1;
	pg_atomic_init_u32(&registry->marked, 0);
	pg_atomic_init_u64(&registry->hash_bytes, 0);
}

static const dshash_parameters *
table_parameters(void)
{
	static dshash_parameters params = {
		.key_size = sizeof(RelFileLocator),
		.entry_size = sizeof(RegistryEntry),
		COMPAT_DSHASH_BINARY_KEY,
	};

	params.tranche_id = registry->tranche;
	return &params;
}

/* The table, which the first caller makes.  Raises the pool's error. */
static dshash_table *
registry_table(void)
{
	MemoryContext old;

	if (likely(table != NULL))
		return table;
	pool_require();
	if (registry == NULL)
		elog(ERROR, "sofort's shared memory does not exist");
	LWLockRegisterTranche(registry->tranche, "sofort_indexam");
	old = MemoryContextSwitchTo(TopMemoryContext);
	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	if (!registry->created)
	{
		table = dshash_create(arena_dsa(), table_parameters(), NULL);
		registry->handle = dshash_get_hash_table_handle(table);
		registry->created = true;
	}
	else
		table = dshash_attach(arena_dsa(), table_parameters(), registry->handle, NULL);
	LWLockRelease(&registry->lock.lock);
	MemoryContextSwitchTo(old);
	return table;
}

bool
registry_in_use(void)
{
	return registry != NULL && registry->created;
}

LWLock *
registry_unique_lock(SofortIndex *shared, const uint8 *key, int key_len)
{
	return &shared->unique_locks[hash_bytes(key, key_len) % INDEX_UNIQUE_LOCKS];
}

LWLock *
registry_grow_lock(StoreId store)
{
	return &registry->grow_locks[store % GROW_LOCKS].lock;
}

/* ---- memory for hashes ---- */

bool
registry_reserve_hash(Size size)
{
	uint64		limit = ((uint64) sofort_dram_size_mb << 20) / HASH_PART;

	if (pg_atomic_add_fetch_u64(&registry->hash_bytes, size) <= limit)
		return true;
	registry_release_hash(size);
	return false;
}

void
registry_release_hash(Size size)
{
	pg_atomic_fetch_sub_u64(&registry->hash_bytes, size);
}

/* ---- entries ---- */

static SofortIndex **
bucket_of_owner(Oid db_oid, Oid index_oid)
{
	uint32		hash = hash_combine(hash_bytes_uint32(db_oid), hash_bytes_uint32(index_oid));

	return &registry->by_owner[hash % OWNER_BUCKETS];
}

/* The caller of this function and the next one holds the registry's lock. */
static void
enter_owner(SofortIndex *shared, Oid index_oid)
{
	SofortIndex **bucket = bucket_of_owner(locator_db(&shared->locator), index_oid);

	shared->index_oid = index_oid;
	shared->next_by_owner = *bucket;
	*bucket = shared;
}

static void
leave_bucket_of_owner(SofortIndex *shared)
{
	SofortIndex **p = bucket_of_owner(locator_db(&shared->locator), shared->index_oid);

	while (*p != shared)
		p = &(*p)->next_by_owner;
	*p = shared->next_by_owner;
}

void
registry_set_owner(SofortIndex *shared, Oid index_oid)
{
	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	leave_bucket_of_owner(shared);
	enter_owner(shared, index_oid);
	LWLockRelease(&registry->lock.lock);
}

/* A fresh one; NULL if the arena is full.  The caller holds the registry's lock. */
static SofortIndex *
shared_make(void)
{
	SofortIndex *shared = arena_alloc(sizeof(SofortIndex), ARENA_NO_OOM);
	int			i;

	for (i = 0; shared != NULL && i < INDEX_UNIQUE_LOCKS; i++)
		LWLockInitialize(&shared->unique_locks[i], registry->tranche);
	return shared;
}

/* NULL if the arena is full */
static SofortIndex *
shared_alloc(const RelFileLocator *locator, Oid index_oid)
{
	SofortIndex *shared;

	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	shared = registry->free;
	if (shared != NULL)
		registry->free = shared->next_free;
	else
		shared = shared_make();
	if (shared != NULL)
	{
		memset(shared, 0, offsetof(SofortIndex, unique_locks));
		shared->serial = registry->next_serial++;
		shared->locator = *locator;
		enter_owner(shared, index_oid);
	}
	LWLockRelease(&registry->lock.lock);
	if (shared == NULL)
		return NULL;
	pg_atomic_init_u32(&shared->state, INDEX_MISSING);
	pg_atomic_init_u32(&shared->workers, 0);
	pg_atomic_init_u32(&shared->waiters, 0);
	pg_atomic_init_u64(&shared->searched, 0);
	SpinLockInit(&shared->mutex);
	ConditionVariableInit(&shared->progress);
	return shared;
}

/* Frees what nobody can look at any more. */
static void
free_partials(PartialIndex *partial, PartialIndex *retired)
{
	if (partial != NULL)
		partial_free(partial);
	while (retired != NULL)
	{
		PartialIndex *next = retired->next_retired;

		partial_free(retired);
		retired = next;
	}
}

/* Frees an entry that nobody can find any more. */
static void
shared_free(SofortIndex *shared)
{
	if (shared->tree != NULL)
		tree_destroy(shared->tree);
	if (shared->format != NULL)
		arena_free(shared->format);
	free_partials(shared->partial, shared->retired);
	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	leave_bucket_of_owner(shared);
	shared->serial = 0;
	shared->next_free = registry->free;
	registry->free = shared;
	LWLockRelease(&registry->lock.lock);
}

/*
 * Enter a fresh one under its locator, unless another process was faster.  The
 * entry is made before the fresh one is taken, so that an error loses nothing.
 */
static SofortIndex *
shared_publish(const RelFileLocator *locator, Oid index_oid)
{
	bool		found;
	RegistryEntry *entry = dshash_find_or_insert(table, locator, &found);
	SofortIndex *shared;

	if (!found)
	{
		entry->shared = shared_alloc(locator, index_oid);
		if (entry->shared == NULL)
		{
			dshash_delete_entry(table, entry);
			arena_raise_full(0);
		}
	}
	shared = entry->shared;
	dshash_release_lock(table, entry);
	return shared;
}

SofortIndex *
tree_registry_attach(Relation index)
{
	const RelFileLocator *locator = relation_locator(index);
	RegistryEntry *entry;

	pool_require();
	entry = dshash_find(registry_table(), locator, false);
	if (entry != NULL)
	{
		SofortIndex *shared = entry->shared;

		dshash_release_lock(table, entry);
		return shared;
	}
	return shared_publish(locator, RelationGetRelid(index));
}

bool
registry_has_format(SofortIndex *shared, const KeyFormat *format)
{
	const KeyFormat *has = *(KeyFormat *volatile *) &shared->format;

	return has != NULL && has->size == format->size && memcmp(has, format, format->size) == 0;
}

/*
 * The tree is taken away under the lock of the entry, because views look at trees under it.
 * Under the same lock it is decided whether there is one of another format: a partial index
 * may become ready at any time, and several processes of a parallel group may hold the
 * build lock.
 */
void
registry_reset(SofortIndex *shared, const KeyFormat *unless)
{
	RegistryEntry *entry = dshash_find(table, &shared->locator, true);
	Tree	   *tree = shared->tree;
	KeyFormat  *format = shared->format;
	PartialIndex *partial = shared->partial;
	PartialIndex *retired = shared->retired;

	if (unless != NULL &&
		((registry_state(shared) != INDEX_READY && registry_state(shared) != INDEX_PARTIAL) ||
		 registry_has_format(shared, unless)))
	{
		if (entry != NULL)
			dshash_release_lock(table, entry);
		return;
	}
	pg_atomic_write_u32(&shared->state, INDEX_MISSING);
	shared->tree = NULL;
	shared->format = NULL;
	shared->partial = NULL;
	shared->retired = NULL;
	if (entry != NULL)
		dshash_release_lock(table, entry);
	free_partials(partial, retired);
	if (tree != NULL)
		tree_destroy(tree);
	if (format != NULL)
		arena_free(format);
}

void
registry_forget_build(int code, Datum arg)
{
	SofortIndex *shared = (SofortIndex *) DatumGetPointer(arg);

	shared->builder_pid = 0;
	pg_atomic_write_u32(&shared->state, INDEX_MISSING);
}

static KeyFormat *
copy_format(const KeyFormat *format)
{
	KeyFormat  *copy = arena_alloc(format->size, ARENA_NO_OOM);

	if (copy != NULL)
		memcpy(copy, format, format->size);
	return copy;
}

void
registry_publish(SofortIndex *shared, Tree *tree, const KeyFormat *format)
{
	KeyFormat  *copy = copy_format(format);

	if (copy == NULL)
	{
		tree_destroy(tree);
		arena_raise_full(0);
	}
	if (tree_in_pool(tree))
		tree_complete(tree);
	shared->format = copy;
	shared->tree = tree;
	pg_write_barrier();
	pg_atomic_write_u32(&shared->state, INDEX_READY);
}

bool
registry_publish_partial(SofortIndex *shared, PartialIndex *partial, const KeyFormat *format)
{
	KeyFormat  *copy = copy_format(format);
	RegistryEntry *entry;
	bool		published = false;

	if (copy == NULL)
	{
		partial_free(partial);
		arena_raise_full(0);
	}
	entry = dshash_find(table, &shared->locator, true);
	if (entry != NULL && entry->shared == shared && registry_state(shared) == INDEX_MISSING)
	{
		shared->format = copy;
		shared->partial = partial;
		pg_write_barrier();
		pg_atomic_write_u32(&shared->state, INDEX_PARTIAL);
		published = true;
	}
	if (entry != NULL)
		dshash_release_lock(table, entry);
	if (!published)
		arena_free(copy);
	return published;
}

void
registry_finish_partial(SofortIndex *shared, PartialIndex *partial)
{
	RegistryEntry *entry = dshash_find(table, &shared->locator, true);

	shared->tree = partial->tree;
	shared->rebuilt_segments = partial->nsegments;
	shared->rebuilt_rows = pg_atomic_read_u64(&partial->rows);
	pg_write_barrier();
	pg_atomic_write_u32(&shared->state, INDEX_READY);
	pg_memory_barrier();
	shared->partial = NULL;
	partial->finished = true;
	SpinLockAcquire(&shared->mutex);
	partial->retired_epoch = epoch_advance();
	partial->next_retired = shared->retired;
	shared->retired = partial;
	SpinLockRelease(&shared->mutex);
	if (entry != NULL)
		dshash_release_lock(table, entry);
}

/* Remove the entry of this file.  Raises no error. */
void
registry_drop_locator(const RelFileLocator *locator)
{
	RegistryEntry *entry = dshash_find(table, locator, true);
	SofortIndex *shared;

	if (entry == NULL)
		return;
	shared = entry->shared;
	dshash_delete_entry(table, entry);
	shared_free(shared);
}

void
registry_drop_database(Oid db_oid)
{
	dshash_seq_status status;
	RegistryEntry *entry;

	dshash_seq_init(&status, table, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		SofortIndex *shared = entry->shared;

		if (locator_db(&entry->locator) != db_oid)
			continue;
		dshash_delete_current(&status);
		shared_free(shared);
	}
	dshash_seq_term(&status);
}

int
registry_former_files(Oid index_oid, const RelFileLocator *current, RelFileLocator *former,
					  int space)
{
	SofortIndex *shared;
	int			n = 0;

	LWLockAcquire(&registry->lock.lock, LW_SHARED);
	shared = *bucket_of_owner(locator_db(current), index_oid);
	for (; shared != NULL; shared = shared->next_by_owner)
	{
		former_steps++;
		if (shared->index_oid == index_oid &&
			locator_db(&shared->locator) == locator_db(current) &&
			!locator_equal(&shared->locator, current) && n < space)
			former[n++] = shared->locator;
	}
	LWLockRelease(&registry->lock.lock);
	return n;
}

uint64
indexam_test_former_steps(void)
{
	return former_steps + store_test_tree_steps();
}

bool
registry_has_locator(const RelFileLocator *locator)
{
	RegistryEntry *entry = dshash_find(registry_table(), locator, false);

	if (entry == NULL)
		return false;
	dshash_release_lock(table, entry);
	return true;
}

void
registry_attach_table(void)
{
	(void) registry_table();
}

/* ---- of prepared transactions ---- */

void
registry_mark_prepared(const RelFileLocator *locator, TransactionId xid, bool drop_if_aborted)
{
	RegistryEntry *entry = dshash_find(table, locator, true);

	if (entry == NULL)
		return;
	if (!TransactionIdIsValid(entry->shared->prepared_xid))
		pg_atomic_fetch_add_u32(&registry->marked, 1);
	entry->shared->prepared_xid = xid;
	if (drop_if_aborted)
		entry->shared->drop_if_aborted = true;
	else
		entry->shared->drop_if_committed = true;
	dshash_release_lock(table, entry);
}

void
registry_finish_prepared(void)
{
	dshash_seq_status status;
	RegistryEntry *entry;

	if (!registry_in_use() || pg_atomic_read_u32(&registry->marked) == 0)
		return;
	(void) registry_table();
	dshash_seq_init(&status, table, true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		SofortIndex *shared = entry->shared;
		TransactionId xid = shared->prepared_xid;

		if (!TransactionIdIsValid(xid) || TransactionIdIsInProgress(xid))
			continue;
		pg_atomic_fetch_sub_u32(&registry->marked, 1);
		if (TransactionIdDidCommit(xid) ? shared->drop_if_committed : shared->drop_if_aborted)
		{
			dshash_delete_current(&status);
			shared_free(shared);
			continue;
		}
		shared->prepared_xid = InvalidTransactionId;
		shared->drop_if_committed = shared->drop_if_aborted = false;
	}
	dshash_seq_term(&status);
}

/* ---- views, garbage ---- */

/* (neither it nor its trees are freed before the entry's lock is released) */
static void
fill_partial_stats(PartialIndex *partial, IndexamStats *stats)
{
	stats->segments = partial->nsegments;
	stats->segments_total = partial->nsegments;
	stats->segments_done = pg_atomic_read_u32(&partial->done);
	stats->rows_read = pg_atomic_read_u64(&partial->rows);
	stats->segments_claimed = pg_atomic_read_u32(&partial->claimed);
	stats->merging = pg_atomic_read_u32(&partial->merging) != 0;
	stats->draining = partial_phase(partial) == PARTIAL_DRAINING && !partial_can_drain(partial);
	stats->entries = pg_atomic_read_u64(&partial->rows) +
		tree_entries(partial->delta);
	stats->bytes_dram = pg_atomic_read_u64(&partial->bytes) + tree_dram_bytes(partial->delta);
	stats->started = partial->started;
}

const char *
indexam_state_name(IndexTreeState state)
{
	static const char *const names[] = {"missing", "building", "partial", "ready"};

	return names[state];
}

/* Under the lock of its entry in the table */
static void
fill_stats(SofortIndex *shared, IndexamStats *stats)
{
	IndexTreeState state = registry_state(shared);

	memset(stats, 0, sizeof(*stats));
	stats->locator = shared->locator;
	stats->index_oid = shared->index_oid;
	stats->state = state;
	stats->placement = placement_name(TREE_DRAM);
	stats->workers = (int) pg_atomic_read_u32(&shared->workers);
	stats->waiters = (int) pg_atomic_read_u32(&shared->waiters);
	stats->searched = pg_atomic_read_u64(&shared->searched);
	if (state == INDEX_PARTIAL)
		fill_partial_stats(shared->partial, stats);
	else
	{
		stats->segments_total = stats->segments_done = shared->rebuilt_segments;
		stats->rows_read = shared->rebuilt_rows;
	}
	if (state == INDEX_READY)
	{
		const Tree *tree = shared->tree;

		stats->placement = placement_name(tree->placement);
		stats->bytes_dram = tree_dram_bytes(tree) + sizeof(SofortIndex) + shared->format->size;
		stats->height = tree_height(tree);
		if (!tree_in_pool(tree))
			stats->entries = tree_entries(tree);
	}
}

/*
 * What the pool knows of a tree.  The caller has the index open, so its tree stays.  One
 * that lies wholly in the pool is ready as it is.
 */
static void
fill_pool_stats(IndexamStats *stats)
{
	StoreHeader *store = store_find(&stats->locator);
	TreeHeader *header;

	if (store == NULL || tree_header_problem(store) != NULL ||
		(store_flags(store) & STORE_TREE_COMPLETE) == 0)
		return;
	header = pm_deref(store->tree);
	stats->placement = placement_name(header->placement);
	if (header->placement == TREE_PMEM)
		stats->state = INDEX_READY;
	stats->entries = header->entries;
	stats->bytes_pool = header->bytes;
	if (stats->height == 0 && header->placement == TREE_PMEM)
		stats->height = ((TreeNode *) pm_deref(*(const volatile PMPtr *) &header->root))->level;
}

void
indexam_stats(Relation index, IndexamStats *stats)
{
	RegistryEntry *entry;

	pool_require();
	entry = dshash_find(registry_table(), relation_locator(index), false);
	if (entry != NULL)
	{
		fill_stats(entry->shared, stats);
		dshash_release_lock(table, entry);
	}
	else
	{
		memset(stats, 0, sizeof(*stats));
		stats->locator = *relation_locator(index);
		stats->index_oid = RelationGetRelid(index);
		stats->state = INDEX_MISSING;
		stats->placement = placement_name(TREE_DRAM);
	}
	fill_pool_stats(stats);
}

void
indexam_visit(IndexamVisitor fn, void *arg)
{
	dshash_seq_status status;
	RegistryEntry *entry;
	IndexamStats *all = NULL;
	int			n = 0;
	int			max = 0;
	int			i;

	/* the visitor may raise errors, so it is not called under the table's locks */
	dshash_seq_init(&status, registry_table(), false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (n == max)
		{
			max = Max(max * 2, 64);
			all = all ? repalloc(all, max * sizeof(IndexamStats)) :
				palloc(max * sizeof(IndexamStats));
		}
		fill_stats(entry->shared, &all[n++]);
	}
	dshash_seq_term(&status);
	for (i = 0; i < n; i++)
		fn(arg, &all[i]);
	if (all)
		pfree(all);
}

static void
note_locator(void *arg, const IndexamStats *stats)
{
	List	  **locators = arg;
	RelFileLocator *copy = palloc(sizeof(RelFileLocator));

	*copy = stats->locator;
	*locators = lappend(*locators, copy);
}

/* Frees what a partial index left when it became a tree, once nobody looks at it. */
static void
free_retired(const RelFileLocator *locator)
{
	RegistryEntry *entry = dshash_find(registry_table(), locator, false);

	if (entry != NULL)
	{
		partial_free_retired(entry->shared);
		dshash_release_lock(table, entry);
	}
}

/*
 * Drops trees whose file is gone.  This looks at the files of all indexes, so VACUUM of
 * many tables does it now and then, not for each index.
 */
static void
collect_garbage_now_and_then(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	List	   *locators = NIL;
	ListCell   *lc;

	if (last != 0 && !TimestampDifferenceExceeds(last, now, GARBAGE_INTERVAL_MS))
		return;
	last = now;
	indexam_visit(note_locator, &locators);
	foreach(lc, locators)
	{
		RelFileLocator *locator = lfirst(lc);

		free_retired(locator);
		/* without the file no open index can use the tree */
		if (!compat_file_exists(locator))
			registry_drop_locator(locator);
	}
	list_free_deep(locators);
}

void
indexam_collect_garbage(Relation index)
{
	free_retired(relation_locator(index));
	collect_garbage_now_and_then();
}
