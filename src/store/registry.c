/*-------------------------------------------------------------------------
 *
 * registry.c
 *	  Start-up, and the volatile maps from store id and locator to store.
 *
 * The durable truth is PoolSuper->stores: references to the headers.  The maps
 * are chained hash tables in shared memory with nodes in the arena, under one
 * lock; backends look there only when their own cache misses.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "sofort/store/store_internal.h"
#include "sofort/store/workload.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define REGISTRY_BUCKETS	8192
#define HORIZON_PERIOD		256 /* uses between two refreshes */
#define NHORIZONS			64	/* databases whose processes share a cached horizon */

/* txn_horizon(NULL) of a database, some time ago */
typedef struct DatabaseHorizon
{
	pg_atomic_uint32 database;	/* InvalidOid: free */
	pg_atomic_uint64 horizon;
} DatabaseHorizon;

typedef struct StoreRegistry
{
	pg_atomic_uint64 version;	/* changes with every store made or dropped */
	DatabaseHorizon horizons[NHORIZONS];	/* those that came first */
	pg_atomic_uint64 orphans_sought;	/* when; 0: not in this life */
	bool		crashed;		/* the server, before this life */
	volatile uint64 nstores;		/* changed under the lock, estimated without */
	uint64		free_slots;		/* unused entries below pm_vector_count(&stores) */
	uint64		free_from;		/* none below this one */
	StoreNode  *by_id[REGISTRY_BUCKETS];
	StoreNode  *by_locator[REGISTRY_BUCKETS];
	StoreNode  *by_owner[REGISTRY_BUCKETS]; /* those that are in by_id */
} StoreRegistry;

static StoreRegistry *Registry = NULL;
LWLockPadded *StoreLocks = NULL;

Size
store_shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(StoreRegistry)), workload_shmem_size());
}

int
store_lwlocks(void)
{
	return STORE_NLOCKS;
}

/* Who makes it does so under a lock; others look without it. */
static inline StoreShared *
published_shared(StoreNode *node)
{
	return *(StoreShared *volatile *) &node->shared;
}

static inline uint32
bucket_of_id(StoreId id)
{
	return (uint32) (id % REGISTRY_BUCKETS);
}

static inline uint32
bucket_of_locator(const RelFileLocator *l)
{
	return hash_bytes((const unsigned char *) l, sizeof(RelFileLocator)) % REGISTRY_BUCKETS;
}

static inline uint32
bucket_of_owner(Oid db_oid, Oid rel_oid)
{
	return hash_combine(hash_bytes_uint32(db_oid), hash_bytes_uint32(rel_oid)) % REGISTRY_BUCKETS;
}

/*
 * The key of a file.  Stores in the default tablespace of their database do not name that,
 * so that the database can be moved to another one.
 */
static RelFileLocator
key_of(const RelFileLocator *locator)
{
	RelFileLocator key = *locator;

	if (locator_db(&key) == MyDatabaseId && locator_spc(&key) == MyDatabaseTableSpace)
		locator_spc(&key) = InvalidOid;
	return key;
}

static RelFileLocator
key_of_header(const StoreHeader *header)
{
	RelFileLocator key;

	locator_spc(&key) = header->spc_oid;
	locator_db(&key) = header->db_oid;
	locator_number(&key) = header->rel_number;
	return key;
}

/* The caller holds the registry lock, or is the postmaster at start. */
static void
insert_node(StoreNode *node, StoreHeader *header, uint64 slot, bool this_life)
{
	uint32		b;

	/*
	 * If the header does not say reliably whose it is, its id is not believed: the store is
	 * only ever refused to the relation that it seems to belong to.
	 */
	if (store_identity_problem(header) == NULL)
		node->id = store_id_of(header);
	node->damage = store_header_problem(header);
	node->key = key_of_header(header);
	node->header = header;
	node->slot = slot;
	node->this_life = this_life;
	if (node->id != 0)
	{
		b = bucket_of_id(node->id);
		node->next_by_id = Registry->by_id[b];
		Registry->by_id[b] = node;
		node->rel_oid = header->rel_oid;
		b = bucket_of_owner(locator_db(&node->key), node->rel_oid);
		node->next_by_owner = Registry->by_owner[b];
		Registry->by_owner[b] = node;
	}
	b = bucket_of_locator(&node->key);
	node->next_by_locator = Registry->by_locator[b];
	Registry->by_locator[b] = node;
	Registry->nstores++;
}

static void
remove_node(StoreNode *node)
{
	StoreNode **p = &Registry->by_id[bucket_of_id(node->id)];

	while (*p != NULL && *p != node)
		p = &(*p)->next_by_id;
	if (*p != NULL)
		*p = node->next_by_id;
	p = &Registry->by_locator[bucket_of_locator(&node->key)];
	while (*p != NULL && *p != node)
		p = &(*p)->next_by_locator;
	if (*p != NULL)
		*p = node->next_by_locator;
	p = &Registry->by_owner[bucket_of_owner(locator_db(&node->key), node->rel_oid)];
	while (*p != NULL && *p != node)
		p = &(*p)->next_by_owner;
	if (*p != NULL)
		*p = node->next_by_owner;
	Registry->nstores--;
}

static void
set_state(StoreHeader *header, StoreState state)
{
	*(volatile uint32 *) &header->state = state;
	pm_persist(&header->state, sizeof(uint32));
}

/*
 * Frees everything of a store whose state says DROPPING; idempotent. again: a killed
 * process may have begun this, or registry_empty().
 */
static void
finish_drop(StoreHeader *header, PMPtr *slot, bool again)
{
	pm_free_owner(store_id_of(header), again);
	SOFORT_STOP("store-drop-freed");
	pm_free(PM_OWNER_POOL, slot, 1);
}

static void
init_vectors(StoreHeader *header, uint32 ncolumns)
{
	pm_vector_init(&header->blocks, sizeof(PMPtr), 8);
	pm_vector_init(&header->columns, sizeof(ColumnHeader), ncolumns);
	pm_vector_init(&header->shapes, sizeof(PMPtr), 2);
}

/*
 * Empties a store at a start, which flushes the header afterwards.  The order does not
 * matter: if this is cut short, the next start empties it again before anybody looks at it.
 */
static void
reset_store(StoreHeader *header)
{
	const PmVector *columns = &header->columns;
	bool		good = columns->check == PM_VECTOR_CHECK(columns->elem_size, columns->first_shift);

	pm_free_owner(store_id_of(header), true);
	/* a header that says it is empty is not looked at again */
	pm_drain();
	header->nblocks = PM_SEAL(0);
	init_vectors(header, good ? 1U << columns->first_shift : 64);
}

/* Is it as pm_vector_init() makes it?  If a start was emptying it, any line may have arrived. */
static bool
is_empty_vector(const PmVector *v)
{
	for (int i = 0; i < (int) lengthof(v->chunks); i++)
		if (v->chunks[i] != PM_NULL)
			return false;
	return v->elem_size != 0 && v->check == PM_VECTOR_CHECK(v->elem_size, v->first_shift) &&
		pm_vector_count(v) == 0;
}

static bool
is_empty_store(const StoreHeader *header)
{
	return store_block_count(header) == 0 && is_empty_vector(&header->blocks) &&
		is_empty_vector(&header->columns) && is_empty_vector(&header->shapes);
}

/*
 * PostgreSQL empties the indexes of an unlogged table after a crash, so the table must be
 * emptied, too; also if that happened in a run that could not use the pool, which the
 * table's file shows.  What write sets say of its rows leads nowhere then.  What it held is
 * not looked at: a crash may have left this half done.
 */
static bool
reset_unlogged(StoreHeader *header)
{
	RelFileLocator key;

	if (store_identity_problem(header) != NULL || header->state != STORE_LIVE ||
		!PM_SEALED16_RIGHT((uint32) header->flag_word) ||
		(store_flags(header) & STORE_UNLOGGED) == 0)
		return false;
	key = key_of_header(header);
	if (!Registry->crashed && !store_file_was_reset(&key))
		return false;
	if (!is_empty_store(header))
	{
		SOFORT_STOP("store-reset-begun");
		reset_store(header);
	}
	return true;
}

/* Logs the damage.  The server starts all the same; whoever opens the relation gets an error. */
static void
warn_of_damage(uint64 i, const StoreHeader *header, const char *problem)
{
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("sofort pool: store number " UINT64_FORMAT " is damaged", i),
			 header == NULL ? errdetail("The %s.", problem) :
			 errdetail("It seems to hold file %u/%u/%u: %s.", header->spc_oid, header->db_oid,
					   header->rel_number, problem),
			 errhint("Run sofort.verify_pool(), and sofort.verify() for the table.")));
}

/* False: the arena is full. */
static bool
enter_at_startup(StoreHeader *header, uint64 slot, bool emptied)
{
	StoreNode  *node = arena_alloc(sizeof(StoreNode), ARENA_ZERO | ARENA_NO_OOM);

	if (node == NULL)
		return false;
	insert_node(node, header, slot, false);
	node->emptied = emptied;
	return true;
}

/* Is it being dropped, or a tree whose build did not come to its end? */
static bool
is_left_over(const StoreHeader *header)
{
	return header->state == STORE_DROPPING ||
		((store_flags(header) & STORE_TREE) && !(store_flags(header) & STORE_TREE_COMPLETE));
}

/* One entry of the pool's directory of stores.  False: the arena is full. */
static bool
start_store(uint64 i)
{
	PMPtr	   *slot = pm_vector_get(&PoolSuper->stores, i);
	StoreHeader *header;
	const char *problem;
	bool		emptied;

	if (slot == NULL || *slot == PM_NULL)
	{
		Registry->free_slots++;
		return true;
	}
	header = pm_deref_quietly(*slot);
	pm_note_read(header);
	if (header == NULL || pm_allocated_size(*slot) < sizeof(StoreHeader))
	{
		warn_of_damage(i, NULL, "reference to the header is damaged");
		return true;
	}
	emptied = reset_unlogged(header);
	problem = store_header_problem(header);
	if (problem != NULL)
	{
		warn_of_damage(i, header, problem);
		return enter_at_startup(header, i, false);
	}
	if (is_left_over(header))
	{
		/* the process that stored it may not have drained it */
		set_state(header, STORE_DROPPING);
		finish_drop(header, slot, true);
		Registry->free_slots++;
		return true;
	}
	/*
	 * Counts that a killed process stored, because rows will rely on them; and what was
	 * emptied.  (Drained by txn_startup(), or done again by the next start, if this one
	 * refuses the pool.)
	 */
	if (emptied || !pm_found_is_durable())
		pm_flush(header, sizeof(StoreHeader));
	return enter_at_startup(header, i, emptied);
}

static void
init_registry(void)
{
	bool		found;

	Registry = ShmemInitStruct("sofort store registry", sizeof(StoreRegistry), &found);
	StoreLocks = GetNamedLWLockTranche("sofort_store");
	memset(Registry, 0, sizeof(StoreRegistry));
	pg_atomic_init_u64(&Registry->version, 1);
	for (int i = 0; i < NHORIZONS; i++)
	{
		pg_atomic_init_u32(&Registry->horizons[i].database, InvalidOid);
		pg_atomic_init_u64(&Registry->horizons[i].horizon, 0);
	}
	pg_atomic_init_u64(&Registry->orphans_sought, 0);
}

void
store_startup(void)
{
	init_registry();
	txn_register_store_ops(&StoreOps);
	workload_startup();
	if (pool_status() != POOL_READY)
		return;

	Registry->crashed = pool_server_has_crashed();
	for (uint64 i = 0; i < pm_vector_count(&PoolSuper->stores); i++)
	{
		if (!start_store(i))
		{
			arena_refuse_start("stores");
			return;
		}
	}
}

/*
 * The time is kept in shared memory, because each autovacuum worker is a new process.  (If
 * the clock was set back they are due.)
 */
bool
store_orphans_are_due(int milliseconds)
{
	uint64		last = pg_atomic_read_u64(&Registry->orphans_sought);
	TimestampTz now = GetCurrentTimestamp();

	if ((TimestampTz) last <= now &&
		!TimestampDifferenceExceeds((TimestampTz) last, now, milliseconds))
		return false;
	return pg_atomic_compare_exchange_u64(&Registry->orphans_sought, &last, (uint64) now);
}

uint64
registry_version(void)
{
	return pg_atomic_read_u64(&Registry->version);
}

/* Registry lock held */
static StoreNode *
node_of_id(StoreId id)
{
	StoreNode  *node;

	for (node = Registry->by_id[bucket_of_id(id)]; node != NULL; node = node->next_by_id)
		if (node->id == id)
			break;
	return node;
}

/* By the locator of a file of this database, or by a key of any.  Registry lock held. */
static StoreNode *
node_of_locator(const RelFileLocator *locator)
{
	RelFileLocator key = key_of(locator);
	StoreNode  *node;

	for (node = Registry->by_locator[bucket_of_locator(&key)]; node != NULL;
		 node = node->next_by_locator)
		if (locator_equal(&node->key, &key))
			break;
	return node;
}

/*
 * Nodes are freed by the drop of their store, which happens under an exclusive
 * lock on its relation: a caller that holds a lock may keep the result.  Others can
 * tell only whether there is one; see registry_list().
 */
StoreNode *
registry_find_id(StoreId id)
{
	StoreNode  *node;

	if (Registry == NULL)
		return NULL;
	LWLockAcquire(registry_lock(), LW_SHARED);
	node = node_of_id(id);
	LWLockRelease(registry_lock());
	return node;
}

StoreNode *
registry_find_locator(const RelFileLocator *locator)
{
	StoreNode  *node;

	if (Registry == NULL)
		return NULL;
	LWLockAcquire(registry_lock(), LW_SHARED);
	node = node_of_locator(locator);
	LWLockRelease(registry_lock());
	return node;
}

/* Was it emptied by the start?  Needs no lock on the relation. */
bool
registry_is_emptied(StoreId id)
{
	StoreNode  *node;
	bool		emptied;

	LWLockAcquire(registry_lock(), LW_SHARED);
	node = node_of_id(id);
	emptied = node != NULL && node->emptied;
	LWLockRelease(registry_lock());
	return emptied;
}

/* The file was made a moment ago: a store under its name belongs to nobody, and is dropped. */
void
registry_drop_stale(const RelFileLocator *locator)
{
	StoreNode  *node;
	StoreId		id;

	LWLockAcquire(registry_lock(), LW_SHARED);
	node = node_of_locator(locator);
	id = node == NULL ? 0 : node->id;
	LWLockRelease(registry_lock());
	if (id != 0)
		registry_drop(id);
}

StoreHeader *
store_find(const RelFileLocator *locator)
{
	StoreNode  *node = registry_find_locator(locator);
	char		problem[128];

	if (node == NULL || store_node_problem(node, problem, sizeof(problem)))
		return NULL;
	return node->header;
}

/* Called for every write-set entry, so look at this backend's cache first. */
StoreHeader *
store_find_by_id(StoreId id)
{
	StoreDesc  *desc = desc_find(id);
	StoreNode  *node;

	if (desc != NULL)
		return desc->header;
	node = registry_find_id(id);
	return node == NULL || node->damage != NULL ? NULL : node->header;
}

/* The header, and the volatile shared data, if they exist; NULL: there is no such store. */
StoreHeader *
registry_find_shared(StoreId id, StoreShared **shared)
{
	StoreNode  *node = registry_find_id(id);

	*shared = node == NULL ? NULL : published_shared(node);
	return node == NULL || node->damage != NULL ? NULL : node->header;
}

/* What a store takes in DRAM as long as it has nothing else there */
#define SHARED_BYTES	(sizeof(StoreShared) + sizeof(StoreNode))

/* Volatile shared data, made at first use. */
StoreShared *
registry_attach(StoreNode *node)
{
	StoreShared *shared = published_shared(node);

	if (shared != NULL)
		return shared;
	LWLockAcquire(structure_lock(node->id), LW_EXCLUSIVE);
	if (node->shared == NULL)
	{
		if (!node->this_life && node->damage == NULL)
			dict_flush_found_placements(node->header);
		shared = arena_alloc(sizeof(StoreShared), ARENA_ZERO);
		shared->id = node->id;
		shared->header = node->header;
		pg_atomic_init_u64(&shared->append, 0);
		pg_atomic_init_u32(&shared->current_shape,
						   pm_vector_count(&node->header->shapes) == 0 ? PG_UINT32_MAX :
						   (uint32) pm_vector_count(&node->header->shapes) - 1);
		pg_atomic_init_u32(&shared->retired_below,
						   shape_retired_below(node->header,
											   pg_atomic_read_u32(&shared->current_shape)));
		pg_atomic_init_u32(&shared->nfree, 0);
		pg_atomic_init_u32(&shared->nmarking, 0);
		pg_atomic_init_u32(&shared->making_links, 0);
		pg_atomic_init_u64(&shared->live, 0);
		pg_atomic_init_u64(&shared->dead, 0);
		pg_atomic_init_u64(&shared->unreported, 0);
		pg_atomic_init_u64(&shared->settled, 0);
		pg_atomic_init_u64(&shared->bytes_dram, SHARED_BYTES);
		stats_init(shared, Registry->crashed);
		pg_write_barrier();
		*(StoreShared *volatile *) &node->shared = shared;
	}
	LWLockRelease(structure_lock(node->id));
	return node->shared;
}

/* A free entry of the store directory, below its count.  Registry lock held. */
static uint64
directory_slot(void)
{
	PmVector   *v = &PoolSuper->stores;
	uint64		i;

	if (Registry->free_slots > 0)
	{
		for (i = Registry->free_from; i < pm_vector_count(v); i++)
		{
			PMPtr	   *slot = pm_vector_get(v, i);

			if (slot != NULL && *slot == PM_NULL)
			{
				Registry->free_from = i;
				return i;
			}
		}
		Registry->free_slots = 0;
	}
	i = pm_vector_count(v);
	pm_vector_reserve(v, i, PM_OWNER_POOL, PM_RESERVE_SPARE);
	pm_vector_publish(v, i + 1);
	Registry->free_slots++;
	Registry->free_from = i;
	return i;
}

/*
 * Make a store, durably.  The header belongs to the pool, not to the store's
 * id: pm_free_owner(id) must leave it, for a crash in the middle of a drop.
 */
void
registry_add(StoreId id, const RelFileLocator *locator, Oid rel_oid, uint64 flags, int natts)
{
	RelFileLocator key = key_of(locator);
	PmReservation r;
	StoreHeader *header;
	StoreNode  *node;
	uint64		i;

	LWLockAcquire(registry_lock(), LW_EXCLUSIVE);
	i = directory_slot();
	/* TRUNCATE makes a store before it makes room */
	pm_reserve(&r, PM_OWNER_POOL, sizeof(StoreHeader), pm_vector_get(&PoolSuper->stores, i), 1,
			   PM_RESERVE_SHARED_SLAB | PM_RESERVE_ZERO | PM_RESERVE_SPARE);
	/* the last step that may fail: a header without a node would stay until the next start */
	node = arena_alloc(sizeof(StoreNode), ARENA_ZERO);
	header = r.addr;
	header->magic = SOFORT_STORE_MAGIC;
	header->state = STORE_LIVE;
	header->sealed_id = PM_SEAL_ID(id);
	header->spc_oid = locator_spc(&key);
	header->db_oid = locator_db(&key);
	header->rel_number = locator_number(&key);
	header->rel_oid = rel_oid;
	header->flag_word = store_flag_word(header, flags);
	init_vectors(header, Min(Max(natts, 2), 64));
	pm_flush(header, sizeof(StoreHeader));
	pm_publish(&r);
	SOFORT_STOP("store-created");
	insert_node(node, header, i, true);
	Registry->free_slots--;
	pg_atomic_fetch_add_u64(&Registry->version, 1);
	LWLockRelease(registry_lock());
}

/* Frees the volatile data of a store that is dropped or emptied. */
static void
registry_free_shared_data(StoreShared *shared)
{
	while (shared->dictionaries != NULL)
	{
		DictIndex  *next = shared->dictionaries->next;

		dictionary_free_index(shared->dictionaries);
		shared->dictionaries = next;
	}
	pg_atomic_write_u32(&shared->nmarking, 0);
	space_free_all(shared);
	garbage_free_all(shared);
	milestone_free_all(shared);
	if (shared->collected != NULL)
		arena_free(shared->collected);
	shared->collected = NULL;
	shared->append_ready = false;
	shared->holes = false;
	pg_atomic_write_u64(&shared->append, 0);
	pg_atomic_write_u32(&shared->current_shape, PG_UINT32_MAX);
	pg_atomic_write_u32(&shared->retired_below, 0);
	pg_atomic_write_u64(&shared->live, 0);
	pg_atomic_write_u64(&shared->dead, 0);
	pg_atomic_write_u64(&shared->unreported, 0);
	pg_atomic_write_u64(&shared->bytes_dram, SHARED_BYTES);
}

/*
 * Drop a store now: durable, idempotent.  No ERROR, no palloc.  Nobody else
 * works on it: its relation is locked exclusively, or it belongs to a dead
 * transaction or database.
 */
void
registry_drop(StoreId id)
{
	StoreNode  *node;
	PMPtr	   *slot;

	if (Registry == NULL)
		return;
	desc_forget(id);
	LWLockAcquire(registry_lock(), LW_EXCLUSIVE);
	node = node_of_id(id);
	if (node == NULL)
	{
		LWLockRelease(registry_lock());
		return;
	}
	/* before another store can take its place: there would be two */
	set_state(node->header, STORE_DROPPING);
	remove_node(node);
	pg_atomic_fetch_add_u64(&Registry->version, 1);
	LWLockRelease(registry_lock());

	slot = pm_vector_get(&PoolSuper->stores, node->slot);
	SOFORT_STOP("store-drop-begun");
	finish_drop(node->header, slot, !node->this_life && node->header->nblocks == PM_SEAL(0) &&
				(store_flags(node->header) & STORE_TREE) == 0);

	LWLockAcquire(registry_lock(), LW_EXCLUSIVE);
	Registry->free_slots++;
	Registry->free_from = Min(Registry->free_from, node->slot);
	LWLockRelease(registry_lock());
	if (node->shared != NULL)
	{
		stats_forget(node->shared);
		registry_free_shared_data(node->shared);
		arena_free(node->shared);
	}
	arena_free(node);
}

static void
forget_chunks(PmVector *v)
{
	for (int i = 0; i < PM_VECTOR_CHUNKS; i++)
		v->chunks[i] = PM_NULL;
	pm_flush(v, sizeof(PmVector));
}

/*
 * Empties counts, lengths and references.  Whatever a crash leaves of it is a header
 * without damage (store_header_problem()), of a store that will be dropped.
 */
void
registry_empty(StoreHeader *header)
{
	pm_store8_persist(&header->nblocks, PM_SEAL(0));
	pm_store8(&header->blocks.length, PM_SEAL(0));
	pm_store8(&header->columns.length, PM_SEAL(0));
	pm_store8(&header->shapes.length, PM_SEAL(0));
	pm_drain();
	forget_chunks(&header->blocks);
	forget_chunks(&header->columns);
	forget_chunks(&header->shapes);
	/* a reference behind a length of 0 matters to nobody: see README.md */
	pm_free_owner(store_id_of(header), false);
}

/*
 * Truncation in place, of a store that this (sub)transaction has made, so that a crash
 * drops it.
 */
void
store_truncate_now(Relation rel)
{
	StoreDesc  *store = store_open(rel);
	StoreHeader *header = store->header;

	/* no later life may take anything of it for live */
	txn_begin_write();
	SOFORT_STOP("store-truncate-begun");
	txn_forget_locks(store->id);
	space_forget(store->local);
	registry_free_shared_data(store->shared);
	registry_empty(header);
	desc_mark_stale(store->id);
}

/* ---- lists ---- */

/*
 * Copies of the nodes that fn accepts, palloc'd.  A caller without a lock on the relation
 * may drop the store (by its id: if it is gone, nothing happens), but not follow what the
 * copy points to.
 */
StoreNode *
registry_list(StoreFilter fn, void *arg, int *n)
{
	StoreNode  *list;
	uint64		size;
	uint32		b;

	*n = 0;
	if (Registry == NULL)
		return NULL;
	/* no palloc under the lock: it may be taken at abort */
	for (;;)
	{
		size = Registry->nstores + 16;
		list = palloc_extended(size * sizeof(StoreNode), MCXT_ALLOC_HUGE);
		LWLockAcquire(registry_lock(), LW_SHARED);
		if (Registry->nstores <= size)
			break;
		LWLockRelease(registry_lock());
		pfree(list);
	}
	for (b = 0; b < REGISTRY_BUCKETS; b++)
	{
		StoreNode  *node;

		for (node = Registry->by_id[b]; node != NULL; node = node->next_by_id)
			if (fn(arg, node))
				list[(*n)++] = *node;
	}
	LWLockRelease(registry_lock());
	return list;
}

static uint64 tree_steps = 0;	/* for tests */

uint64
store_test_tree_steps(void)
{
	return tree_steps;
}

RelFileLocator *
store_trees_of(Oid index_oid, int *n)
{
	int			size = 0;
	RelFileLocator *locators;

	for (;;)
	{
		StoreNode  *node;

		size += 8;
		locators = palloc(size * sizeof(RelFileLocator));
		*n = 0;
		LWLockAcquire(registry_lock(), LW_SHARED);
		node = Registry->by_owner[bucket_of_owner(MyDatabaseId, index_oid)];
		for (; node != NULL && *n < size; node = node->next_by_owner)
		{
			tree_steps++;
			if (node->rel_oid != index_oid || locator_db(&node->key) != MyDatabaseId ||
				(store_flags(node->header) & STORE_TREE) == 0)
				continue;
			locators[*n] = node->key;
			if (!OidIsValid(locator_spc(&node->key)))
				locator_spc(&locators[*n]) = MyDatabaseTableSpace;
			(*n)++;
		}
		LWLockRelease(registry_lock());
		if (node == NULL)
			return locators;
		pfree(locators);
	}
}

static bool
in_database(void *arg, const StoreNode *node)
{
	return locator_db(&node->key) == *(Oid *) arg;
}

static bool
in_database_of_before(void *arg, const StoreNode *node)
{
	return !node->this_life && in_database(arg, node);
}

/* Is it a table's?  (An index is nothing without its table.) */
static bool
is_table(void *arg, const StoreNode *node)
{
	return (store_flags(node->header) & STORE_TREE) == 0;
}

static bool
is_sound(void *arg, const StoreNode *node)
{
	return node->damage == NULL;
}

static bool
is_sound_table(void *arg, const StoreNode *node)
{
	return is_sound(arg, node) && is_table(arg, node);
}

static bool
is_table_in_database(void *arg, const StoreNode *node)
{
	return is_table(arg, node) && in_database(arg, node);
}

static int
count(StoreFilter fn, void *arg)
{
	int			n;
	StoreNode  *list = registry_list(fn, arg, &n);

	if (list != NULL)
		pfree(list);
	return n;
}

bool
store_database_in_use(Oid db_oid)
{
	return count(is_table_in_database, &db_oid) > 0;
}

int64
store_count(void)
{
	return count(is_sound_table, NULL);
}

int
store_drop_database(Oid db_oid, bool also_new)
{
	int			n;
	int			i;
	StoreNode  *list = registry_list(also_new ? in_database : in_database_of_before, &db_oid, &n);

	for (i = 0; i < n; i++)
		registry_drop(list[i].id);
	if (list != NULL)
		pfree(list);
	return n;
}

/*
 * Databases with any undamaged store: a DROP DATABASE that was cut short may have left
 * trees without their tables.
 */
List *
store_databases(bool also_new)
{
	int			n;
	int			i;
	StoreNode  *list = registry_list(is_sound, NULL, &n);
	List	   *databases = NIL;

	for (i = 0; i < n; i++)
		if (also_new || !list[i].this_life)
			databases = list_append_unique_oid(databases, locator_db(&list[i].key));
	if (list != NULL)
		pfree(list);
	return databases;
}

/*
 * Where this database's horizon is cached.  If there are more databases than places, and
 * for processes without a database, that is a variable of the process.  A place stays taken
 * when its database is dropped: an old horizon is right for a new database with the same
 * OID, too.
 */
static pg_atomic_uint64 *
horizon_place(void)
{
	static pg_atomic_uint64 own = {0};
	static pg_atomic_uint64 *place = NULL;
	int			i;

	if (likely(place != NULL))
		return place;
	place = &own;
	for (i = 0; OidIsValid(MyDatabaseId) && i < NHORIZONS; i++)
	{
		DatabaseHorizon *h = &Registry->horizons[i];
		uint32		taken = InvalidOid;

		if (pg_atomic_compare_exchange_u32(&h->database, &taken, MyDatabaseId) ||
			taken == MyDatabaseId)
		{
			place = &h->horizon;
			break;
		}
	}
	return place;
}

/*
 * txn_horizon(NULL) as of some time ago: too old is safe.  Refreshed when the caller asks
 * for it, and at every 256th use.
 */
uint64
store_cached_horizon(bool refresh)
{
	static uint32 uses = 0;
	pg_atomic_uint64 *place = horizon_place();
	uint64		known = pg_atomic_read_u64(place);

	if (refresh || known == 0 || ++uses >= HORIZON_PERIOD)
	{
		uint64		now = txn_horizon(NULL);

		uses = 0;
		while (now > known && !pg_atomic_compare_exchange_u64(place, &known, now))
			;
		known = Max(now, known);
	}
	return known;
}

int
store_slab_flags(const StoreHeader *header)
{
	return store_block_count(header) < STORE_SINGLE_BLOCKS ? PM_RESERVE_SHARED_SLAB : 0;
}
