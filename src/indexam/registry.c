/*-------------------------------------------------------------------------
 *
 * registry.c
 *	  The trees of all indexes, by relation file.
 *
 * A tree that is missing is built from its table when it is needed, so to drop
 * one too many is never wrong, while to keep one that does not belong to its
 * file would be.  Each is bound to the file it was made for:
 *
 *	 created by a (sub)transaction	dropped when that aborts
 *	 index dropped					dropped at commit, unless another index has
 *									taken over the file
 *	 index has a new file			the old file's tree goes at commit
 *	 made or dropped by a			at COMMIT or ROLLBACK PREPARED
 *	 prepared transaction
 *	 left over (SET TABLESPACE)		when its file is gone (VACUUM looks)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "lib/dshash.h"
#include "miscadmin.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/registry.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "sofort/txn/txn.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "partial.h"

#define UNIQUE_LOCKS	512
#define GROW_LOCKS		64
#define OWNER_BUCKETS	8192

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
	int			tranche;
	bool		created;
	dshash_table_handle handle;
	uint64		next_serial;
	SofortIndex *free;
	SofortIndex *by_owner[OWNER_BUCKETS];	/* all, by database and index_oid */
	LWLockPadded unique_locks[UNIQUE_LOCKS];
	LWLockPadded grow_locks[GROW_LOCKS];
} RegistryShared;

static RegistryShared *registry = NULL;
static dshash_table *table = NULL;

/* What this transaction will do to trees */
typedef enum PendingKind
{
	DROP_ON_ABORT,
	DROP_ON_COMMIT,
	DROP_DATABASE_ON_COMMIT,
	DROP_INCOMPLETE				/* a store whose tree was not completed */
} PendingKind;

typedef struct Pending
{
	PendingKind kind;
	int			level;			/* of the subtransaction */
	RelFileLocator locator;		/* database only: the others are 0 */
	Oid			dropped;		/* DROP_ON_COMMIT: with this index */
	StoreId		store;			/* DROP_INCOMPLETE */
	struct Pending *next;
} Pending;

static Pending *pending = NULL; /* in TopTransactionContext */
static List *leaving = NIL;		/* of Pending, in TopMemoryContext: see note_gone() */

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
	for (i = 0; i < UNIQUE_LOCKS; i++)
		LWLockInitialize(&registry->unique_locks[i].lock, registry->tranche);
	for (i = 0; i < GROW_LOCKS; i++)
		LWLockInitialize(&registry->grow_locks[i].lock, registry->tranche);
	registry->next_serial = 1;
	pg_atomic_init_u32(&registry->marked, 0);
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

/* The table; made by the first who needs it.  Raises the pool's error. */
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

/* Is there any tree that a dropped object may own?  Raises no error. */
static bool
registry_in_use(void)
{
	return registry != NULL && registry->created;
}

LWLock *
registry_unique_lock(const SofortIndex *shared, const uint8 *key, int key_len)
{
	uint32		hash = hash_bytes(key, key_len);

	hash = hash_combine(hash, hash_bytes_uint32((uint32) shared->serial));
	return &registry->unique_locks[hash % UNIQUE_LOCKS].lock;
}

LWLock *
registry_grow_lock(StoreId store)
{
	return &registry->grow_locks[store % GROW_LOCKS].lock;
}

/* ---- entries ---- */

static SofortIndex **
bucket_of_owner(Oid db_oid, Oid index_oid)
{
	uint32		hash = hash_combine(hash_bytes_uint32(db_oid), hash_bytes_uint32(index_oid));

	return &registry->by_owner[hash % OWNER_BUCKETS];
}

/* The caller of these two holds the registry's lock. */
static void
enter_owner(SofortIndex *shared, Oid index_oid)
{
	SofortIndex **bucket = bucket_of_owner(locator_db(&shared->locator), index_oid);

	shared->index_oid = index_oid;
	shared->next_by_owner = *bucket;
	*bucket = shared;
}

static void
leave_owner(SofortIndex *shared)
{
	SofortIndex **p = bucket_of_owner(locator_db(&shared->locator), shared->index_oid);

	while (*p != shared)
		p = &(*p)->next_by_owner;
	*p = shared->next_by_owner;
}

static void
set_owner(SofortIndex *shared, Oid index_oid)
{
	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	leave_owner(shared);
	enter_owner(shared, index_oid);
	LWLockRelease(&registry->lock.lock);
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
		shared = arena_alloc(sizeof(SofortIndex), ARENA_NO_OOM);
	if (shared != NULL)
	{
		memset(shared, 0, sizeof(*shared));
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

/* Nobody can look at them any more. */
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

/* Nobody can find it any more. */
static void
shared_free(SofortIndex *shared)
{
	if (shared->tree != NULL)
		tree_destroy(shared->tree);
	if (shared->format != NULL)
		arena_free(shared->format);
	free_partials(shared->partial, shared->retired);
	LWLockAcquire(&registry->lock.lock, LW_EXCLUSIVE);
	leave_owner(shared);
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
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory for sofort's indexes and dictionaries"),
					 errhint("Raise sofort.dram_size and restart the server, or drop indexes on sofort tables.")));
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
 * Views look at trees under the lock of the entry: take the tree away there.  So is it
 * decided whether there is one of another format: what is partial may become ready at
 * any time, and of a parallel group several may have the build lock.
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

static KeyFormat *
copy_format(const KeyFormat *format)
{
	KeyFormat  *copy = arena_alloc(format->size, ARENA_NO_OOM);

	if (copy != NULL)
		memcpy(copy, format, format->size);
	return copy;
}

static void
registry_arena_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory for sofort's indexes and dictionaries"),
			 errhint("Raise sofort.dram_size and restart the server, or drop indexes on sofort tables.")));
}

void
registry_publish(SofortIndex *shared, Tree *tree, const KeyFormat *format)
{
	KeyFormat  *copy = copy_format(format);

	if (copy == NULL)
	{
		tree_destroy(tree);
		registry_arena_full();
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
		registry_arena_full();
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
static void
drop_locator(const RelFileLocator *locator)
{
	RegistryEntry *entry = dshash_find(table, locator, true);
	SofortIndex *shared;

	if (entry == NULL)
		return;
	shared = entry->shared;
	dshash_delete_entry(table, entry);
	shared_free(shared);
}

static void
drop_database(Oid db_oid)
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

/* ---- transactions ---- */

static void
remember(PendingKind kind, const RelFileLocator *locator)
{
	Pending    *item = MemoryContextAlloc(TopTransactionContext, sizeof(Pending));

	item->kind = kind;
	item->level = GetCurrentTransactionNestLevel();
	item->locator = *locator;
	item->dropped = InvalidOid;
	item->store = 0;
	item->next = pending;
	pending = item;
}

void
registry_drop_incomplete(StoreId store)
{
	RelFileLocator none = {0};

	remember(DROP_INCOMPLETE, &none);
	pending->store = store;
}

static void
drop_if_incomplete(StoreId store)
{
	StoreHeader *header = store_find_by_id(store);

	if (header != NULL && (store_flags(header) & STORE_TREE_COMPLETE) == 0)
		store_drop_now(store);
}

/* The index has had other files: their trees go when this commits. */
static void
drop_former_files(Oid index_oid, const RelFileLocator *current)
{
	SofortIndex *shared;
	RelFileLocator former[16];
	RelFileLocator *in_pool;
	int			n = 0;
	int			i;

	LWLockAcquire(&registry->lock.lock, LW_SHARED);
	shared = *bucket_of_owner(locator_db(current), index_oid);
	for (; shared != NULL; shared = shared->next_by_owner)
	{
		former_steps++;
		if (shared->index_oid == index_oid &&
			locator_db(&shared->locator) == locator_db(current) &&
			memcmp(&shared->locator, current, sizeof(*current)) != 0 &&
			n < (int) lengthof(former))
			former[n++] = shared->locator;
	}
	LWLockRelease(&registry->lock.lock);
	for (i = 0; i < n; i++)
		remember(DROP_ON_COMMIT, &former[i]);

	/* those in the pool may not have been used in this life */
	in_pool = store_trees_of(index_oid, &n);
	for (i = 0; i < n; i++)
		if (memcmp(&in_pool[i], current, sizeof(*current)) != 0)
			remember(DROP_ON_COMMIT, &in_pool[i]);
	pfree(in_pool);
}

void
indexam_drop_former_files(Oid index_oid)
{
	Relation	index = index_open(index_oid, NoLock);

	if (registry_in_use() && pool_status() == POOL_READY)
	{
		(void) registry_table();
		drop_former_files(index_oid, relation_locator(index));
	}
	index_close(index, NoLock);
}

uint64
indexam_test_former_steps(void)
{
	return former_steps + store_test_tree_steps();
}

SofortIndex *
registry_create(Relation index)
{
	SofortIndex *shared = tree_registry_attach(index);

	registry_reset(shared, NULL);
	if (shared->index_oid != RelationGetRelid(index))
		set_owner(shared, RelationGetRelid(index));
	remember(DROP_ON_ABORT, relation_locator(index));
	drop_former_files(RelationGetRelid(index), relation_locator(index));
	return shared;
}

void
registry_hook_drop_relation(Oid relid)
{
	HeapTuple	tuple;
	Form_pg_class form;
	RelFileLocator locator;

	if (pool_status() != POOL_READY)
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_class) GETSTRUCT(tuple);
	if (form->relkind == RELKIND_INDEX && RelFileNumberIsValid(form->relfilenode))
	{
		RegistryEntry *entry;

		memset(&locator, 0, sizeof(locator));
		locator_spc(&locator) = OidIsValid(form->reltablespace) ? form->reltablespace :
			MyDatabaseTableSpace;
		locator_db(&locator) = MyDatabaseId;
		locator_number(&locator) = form->relfilenode;
		entry = dshash_find(registry_table(), &locator, false);
		if (entry != NULL)
			dshash_release_lock(table, entry);
		if (entry != NULL || store_find_tree(&locator) != NULL)
		{
			remember(DROP_ON_COMMIT, &locator);
			pending->dropped = relid;
		}
	}
	ReleaseSysCache(tuple);
}

void
registry_hook_drop_database(Oid db_oid)
{
	RelFileLocator locator;

	if (!registry_in_use())
		return;
	(void) registry_table();
	memset(&locator, 0, sizeof(locator));
	locator_db(&locator) = db_oid;
	remember(DROP_DATABASE_ON_COMMIT, &locator);
}

void
indexam_forget_database(Oid db_oid)
{
	if (!registry_in_use())
		return;
	(void) registry_table();
	drop_database(db_oid);
}

/*
 * ALTER TABLE lets a new index take over the file of one that it drops.  Forget
 * those before the commit: catalogs cannot be read after it.
 */
static void
keep_files_in_use(void)
{
	Pending    *item;

	for (item = pending; item != NULL; item = item->next)
	{
		Oid			user = InvalidOid;

		if (item->kind == DROP_ON_COMMIT && locator_db(&item->locator) == MyDatabaseId)
			user = compat_relid_by_file(locator_spc(&item->locator),
										locator_number(&item->locator));
		if (!OidIsValid(user))
			continue;
		item->kind = DROP_ON_ABORT; /* which it does not */
		if (user == item->dropped)
		{
			MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
			Pending    *copy = palloc(sizeof(Pending));

			*copy = *item;
			leaving = lappend(leaving, copy);
			MemoryContextSwitchTo(old);
		}
	}
}

/*
 * DROP INDEX CONCURRENTLY says that it drops the index, but does so in a later one of
 * its transactions.
 */
static void
note_gone(void)
{
	ListCell   *lc;

	foreach(lc, leaving)
	{
		Pending    *item = lfirst(lc);

		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(item->dropped)))
			continue;
		remember(DROP_ON_COMMIT, &item->locator);
		leaving = foreach_delete_current(leaving, lc);
		pfree(item);
	}
}

/* It has failed: the index is still there. */
static void
forget_leaving(void)
{
	list_free_deep(leaving);
	leaving = NIL;
}

/* What is in the pool goes with the transaction's write set. */
static void
log_drops(void)
{
	Pending    *item;

	if (pool_status() != POOL_READY)
		return;
	for (item = pending; item != NULL; item = item->next)
		if (item->kind == DROP_ON_COMMIT && store_find_tree(&item->locator) != NULL)
			store_drop_at_commit(&item->locator);
}

static void
finish(bool commit)
{
	Pending    *item = pending;

	pending = NULL;
	for (; item != NULL; item = item->next)
	{
		if (item->kind == DROP_INCOMPLETE)
		{
			drop_if_incomplete(item->store);
			continue;
		}
		if (item->kind == DROP_ON_ABORT ? commit : !commit)
			continue;
		if (item->kind == DROP_DATABASE_ON_COMMIT)
			drop_database(locator_db(&item->locator));
		else
			drop_locator(&item->locator);
	}
}

/*
 * PREPARE TRANSACTION: what is pending is remembered with the trees.  (A crash
 * forgets both.)  Raises no error.
 */
static void
mark_prepared(void)
{
	Pending    *item;

	for (item = pending; item != NULL; item = item->next)
	{
		RegistryEntry *entry = dshash_find(table, &item->locator, true);

		if (entry == NULL)
			continue;
		if (!TransactionIdIsValid(entry->shared->prepared_xid))
			pg_atomic_fetch_add_u32(&registry->marked, 1);
		entry->shared->prepared_xid = GetTopTransactionIdIfAny();
		if (item->kind == DROP_ON_ABORT)
			entry->shared->drop_if_aborted = true;
		else
			entry->shared->drop_if_committed = true;
		dshash_release_lock(table, entry);
	}
	pending = NULL;
}

/* Some prepared transaction may have been finished by this one. */
static void
finish_prepared(void)
{
	dshash_seq_status status;
	RegistryEntry *entry;

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

static void
xact_callback(XactEvent event, void *arg)
{
	if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT) && registry_in_use() &&
		pg_atomic_read_u32(&registry->marked) > 0 && txn_may_finish_prepared())
	{
		(void) registry_table();
		finish_prepared();
	}
	if (leaving != NIL && event == XACT_EVENT_PRE_COMMIT)
		note_gone();
	else if (leaving != NIL && event == XACT_EVENT_ABORT)
		forget_leaving();
	if (pending == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			keep_files_in_use();
			log_drops();
			break;
		case XACT_EVENT_COMMIT:
			finish(true);
			break;
		case XACT_EVENT_ABORT:
			finish(false);
			break;
		case XACT_EVENT_PREPARE:
			mark_prepared();
			break;
		default:
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId mySubid, SubTransactionId parentSubid,
				 void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	Pending    *item;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (item = pending; item != NULL; item = item->next)
			if (item->level >= level)
				item->level = level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* the newest come first */
		while (pending != NULL && pending->level >= level)
		{
			item = pending;
			pending = item->next;
			if (item->kind == DROP_ON_ABORT)
				drop_locator(&item->locator);
			else if (item->kind == DROP_INCOMPLETE)
				drop_if_incomplete(item->store);
		}
	}
}

void
registry_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}

/* ---- views, garbage ---- */

/* (neither it nor its trees go before the entry's lock is released) */
static void
fill_partial_stats(PartialIndex *partial, IndexamStats *stats)
{
	stats->segments = partial->nsegments;
	stats->segments_total = partial->nsegments;
	stats->segments_done = pg_atomic_read_u32(&partial->done);
	stats->rows_read = pg_atomic_read_u64(&partial->rows);
	stats->segments_claimed = pg_atomic_read_u32(&partial->claimed);
	stats->merging = pg_atomic_read_u32(&partial->merging) != 0;
	stats->entries = pg_atomic_read_u64(&partial->rows) +
		tree_entries(partial->delta);
	stats->bytes_dram = pg_atomic_read_u64(&partial->bytes) + tree_dram_bytes(partial->delta);
	stats->started = partial->started;
}

/* Under the lock of its entry in the table */
static void
fill_stats(SofortIndex *shared, IndexamStats *stats)
{
	static const char *const states[] = {"missing", "building", "partial", "ready"};
	IndexTreeState state = registry_state(shared);

	memset(stats, 0, sizeof(*stats));
	stats->locator = shared->locator;
	stats->index_oid = shared->index_oid;
	stats->state = states[state];
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
 * What the pool knows of a tree.  The caller has the index open, so that its
 * tree stays.  One that lies wholly in the pool needs nothing to be ready.
 */
static void
fill_pool_stats(IndexamStats *stats)
{
	StoreHeader *store = store_find(&stats->locator);
	TreeHeader *header;

	if (store == NULL || tree_header_problem(store) != NULL || (store_flags(store) & STORE_TREE_COMPLETE) == 0)
		return;
	header = pm_deref(store->tree);
	stats->placement = placement_name(header->placement);
	if (header->placement == TREE_PMEM)
		stats->state = "ready";
	stats->entries = header->entries;
	stats->bytes_pool = header->bytes;
	if (stats->height == 0 && header->placement == TREE_PMEM)
		stats->height = ((TreeNode *) pm_deref(header->root))->level;
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
		stats->state = "missing";
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

	/* the visitor may raise errors: not under the table's locks */
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

/* What a partial index that has become a tree has left, once nobody looks at it. */
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
 * Trees whose file is gone.  That looks at the files of all indexes; so VACUUM
 * of many tables does it now and then, not for each index again.
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
		/* no file: nothing that could be open uses the tree */
		if (!compat_file_exists(locator))
			drop_locator(locator);
	}
	list_free_deep(locators);
}

void
indexam_collect_garbage(Relation index)
{
	free_retired(relation_locator(index));
	collect_garbage_now_and_then();
}
