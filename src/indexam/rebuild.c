/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Building trees that are missing, and access to those that are there.
 *
 * A rebuild reads every version that is not dead to everybody, without waiting
 * for writers.  Who writes meanwhile is safe: its row is in the table before it
 * comes to its index entry; the entry waits for the build and is then inserted,
 * which does nothing if the build has seen the row.  VACUUM is safe: before it
 * frees a row it removes the entries, and so waits for the build.
 *
 * The build lock is a heavyweight lock (the tuple lock of a row that no index
 * has), so waiting is interruptible and deadlocks are found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/pool.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am_internal.h"

/* Cached in rd_amcache of an index; one chunk */
typedef struct CachedKeys
{
	SofortIndex *shared;
	uint64		serial;
	KeyFormat	format;			/* cut at its size */
} CachedKeys;

static bool
is_ready(SofortIndex *shared, const KeyFormat *format)
{
	if (registry_state(shared) != INDEX_READY)
		return false;
	pg_read_barrier();
	return shared->format->size == format->size &&
		memcmp(shared->format, format, format->size) == 0;
}

/* ---- building ---- */

static void
forget_build(int code, Datum arg)
{
	SofortIndex *shared = (SofortIndex *) DatumGetPointer(arg);

	shared->builder_pid = 0;
	pg_atomic_write_u32(&shared->state, INDEX_MISSING);
}

/* The tree from the table, as its owner; under the build lock. */
static void
build_from_table(IndexKeys *keys)
{
	Relation	index = keys->index;
	Relation	heap = table_open(index->rd_index->indrelid, AccessShareLock);
	struct IndexInfo *info = BuildIndexInfo(index);
	bool		pushed = false;
	Oid			save_user;
	int			save_context;
	int			nest_level;
	double		heap_tuples;

	am_check_table(heap);
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_Concurrent = false;
	info->ii_ParallelWorkers = 0;
	if (!ActiveSnapshotSet())
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		pushed = true;
	}
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(heap->rd_rel->relowner, save_context | SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	compat_restrict_search_path();

	keys->tree = build_tree(keys, heap, info, false, true, am_fillfactor(index), &heap_tuples);
	registry_publish(keys->shared, keys->tree, &keys->format);

	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(save_user, save_context);
	if (pushed)
		PopActiveSnapshot();
	table_close(heap, AccessShareLock);
}

/*
 * Under the build lock.  Another process of a parallel group can hold it at the
 * same time: false if that is building.
 */
static bool
try_build(IndexKeys *keys, bool *built)
{
	SofortIndex *shared = keys->shared;
	uint32		missing = INDEX_MISSING;

	if (is_ready(shared, &keys->format))
		return true;
	if (registry_state(shared) == INDEX_BUILDING && shared->builder_pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is needed while it is being rebuilt",
						RelationGetRelationName(keys->index)),
				 errdetail("A function in the index's expressions or predicate reads the table.")));
	if (registry_state(shared) == INDEX_READY)
		registry_reset(shared); /* the index is described differently now */
	if (!pg_atomic_compare_exchange_u32(&shared->state, &missing, INDEX_BUILDING))
		return false;
	PG_ENSURE_ERROR_CLEANUP(forget_build, PointerGetDatum(shared));
	{
		shared->builder_pid = MyProcPid;
		build_from_table(keys);
		shared->builder_pid = 0;
	}
	PG_END_ENSURE_ERROR_CLEANUP(forget_build, PointerGetDatum(shared));
	*built = true;
	return true;
}

/* Ready on return.  Returns whether this call built the tree. */
static bool
ensure(IndexKeys *keys)
{
	ItemPointerData lock;
	bool		built = false;

	ItemPointerSet(&lock, 0, 1);
	for (;;)
	{
		bool		done;

		LockTuple(keys->index, &lock, ExclusiveLock);
		done = try_build(keys, &built);
		UnlockTuple(keys->index, &lock, ExclusiveLock);
		if (done)
			return built;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---- attaching ---- */

/* Fills keys->format and keys->shared from the cache, and the cache. */
static void
load_keys(IndexKeys *keys, Relation index)
{
	CachedKeys *cached = index->rd_amcache;
	SofortIndex *shared;

	if (cached != NULL && cached->shared->serial == cached->serial)
	{
		memcpy(&keys->format, &cached->format, cached->format.size);
		keys_init(keys, index);
		keys->shared = cached->shared;
		return;
	}
	if (cached != NULL)
	{
		index->rd_amcache = NULL;
		pfree(cached);
	}
	keys_format(index, &keys->format);
	keys_init(keys, index);
	shared = tree_registry_attach(index);
	if (!is_ready(shared, &keys->format))
	{
		keys->shared = shared;
		(void) ensure(keys);
	}
	/* the build may have filled the cache through another path */
	if (index->rd_amcache == NULL)
	{
		Size		size = offsetof(CachedKeys, format) + keys->format.size;

		cached = MemoryContextAlloc(index->rd_indexcxt, size);
		cached->shared = shared;
		cached->serial = shared->serial;
		memcpy(&cached->format, &keys->format, keys->format.size);
		index->rd_amcache = cached;
	}
	keys->shared = shared;
}

void
index_attach(IndexKeys *keys, Relation index)
{
	pool_require();
	load_keys(keys, index);
	if (unlikely(registry_state(keys->shared) != INDEX_READY))
		(void) ensure(keys);
	pg_read_barrier();
	keys->tree = keys->shared->tree;
}

IndexKeys *
index_keys_open(Relation index, MemoryContext context)
{
	IndexKeys  *keys = MemoryContextAlloc(context, sizeof(IndexKeys));

	index_attach(keys, index);
	return keys;
}

/* A background worker's: only what queries may use is worth building. */
bool
sofort_index_rebuild(Oid index_oid)
{
	Oid			heap_oid = IndexGetRelation(index_oid, true);
	Relation	heap;
	Relation	index;
	bool		built = false;

	if (!OidIsValid(heap_oid))
		return false;
	heap = try_relation_open(heap_oid, AccessShareLock);
	if (heap == NULL)
		return false;
	index = try_relation_open(index_oid, AccessShareLock);
	if (index != NULL && index->rd_rel->relkind == RELKIND_INDEX && am_is_ours(index) &&
		index->rd_index->indislive && index->rd_index->indisready)
	{
		IndexKeys	keys;

		pool_require();
		keys_format(index, &keys.format);
		keys_init(&keys, index);
		keys.shared = tree_registry_attach(index);
		if (!is_ready(keys.shared, &keys.format))
			built = ensure(&keys);
	}
	if (index != NULL)
		relation_close(index, AccessShareLock);
	relation_close(heap, AccessShareLock);
	return built;
}
