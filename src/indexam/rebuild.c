/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Building trees that are missing, and access to those that are there.
 *
 * An index on plain columns is rebuilt in segments (partial.c); a process that needs it
 * uses what there is, or helps and waits.  Others are rebuilt as a whole by one
 * process.
 *
 * A rebuild reads every version that is not dead to everybody, without waiting for
 * writers.  Concurrent writers are safe: the row is in the table before its index entry
 * is made; that waits for the build (or goes to the delta), and does nothing if the
 * build has seen the row.  VACUUM is safe: before it frees a row it removes the
 * entries, and so waits for the build.
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
#include "sofort/compat/lock.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/cleanup.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/kept.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am_internal.h"
#include "partial.h"

bool		indexam_use_partial = false;
int			indexam_segment_blocks = 256;
void		(*indexam_before_use) (void) = NULL;
void		(*indexam_before_search) (bool (*complete) (void *arg), void *arg) = NULL;
void		(*indexam_after_search) (pg_atomic_uint64 *searched) = NULL;
void		(*indexam_pause_search) (bool pause) = NULL;

/* Cached in rd_amcache of an index; one chunk */
typedef struct CachedKeys
{
	SofortIndex *shared;
	uint64		serial;
	KeyFormat	format;			/* cut at its size */
} CachedKeys;

/* The format changes only under locks that keep users away. */
static bool
is_ready(SofortIndex *shared, const KeyFormat *format)
{
	if (registry_state(shared) != INDEX_READY)
		return false;
	pg_read_barrier();
	return registry_has_format(shared, format);
}

static bool
is_partial(SofortIndex *shared, const KeyFormat *format)
{
	if (registry_state(shared) != INDEX_PARTIAL)
		return false;
	pg_read_barrier();
	return registry_has_format(shared, format);
}

/* ---- building ---- */

/* A tree that lies in the pool, or will, is opened or built as a whole. */
static bool
rebuilt_in_segments(const IndexKeys *keys)
{
	return partial_is_possible(keys->index) &&
		(registry_state(keys->shared) == INDEX_PARTIAL ||
		 placement_for_rebuild(keys->index) == TREE_DRAM);
}

/* The build runs as the table's owner, in a security-restricted operation. */
typedef struct OwnerContext
{
	Relation	heap;
	Oid			save_user;
	int			save_context;
	int			nest_level;
	bool		pushed;
} OwnerContext;

static void
become_owner(OwnerContext *owner, Relation index)
{
	owner->heap = table_open(index->rd_index->indrelid, AccessShareLock);
	am_check_table(owner->heap);
	owner->pushed = !ActiveSnapshotSet();
	if (owner->pushed)
		PushActiveSnapshot(GetTransactionSnapshot());
	GetUserIdAndSecContext(&owner->save_user, &owner->save_context);
	SetUserIdAndSecContext(owner->heap->rd_rel->relowner,
						   owner->save_context | SECURITY_RESTRICTED_OPERATION);
	owner->nest_level = NewGUCNestLevel();
	compat_restrict_search_path();
}

static void
leave_owner(OwnerContext *owner)
{
	AtEOXact_GUC(false, owner->nest_level);
	SetUserIdAndSecContext(owner->save_user, owner->save_context);
	if (owner->pushed)
		PopActiveSnapshot();
	table_close(owner->heap, AccessShareLock);
}

/* Builds the tree from the table; under the build lock. */
static void
build_from_table(IndexKeys *keys)
{
	Relation	index = keys->index;
	OwnerContext owner;
	struct IndexInfo *info;
	double		heap_tuples;

	/* even this calls functions: it simplifies the expressions */
	become_owner(&owner, index);
	info = BuildIndexInfo(index);
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_Concurrent = false;
	info->ii_ParallelWorkers = 0;
	keys->tree = build_tree(keys, owner.heap, info, placement_for_rebuild(index), false, true,
							am_fillfactor(index), &heap_tuples);
	registry_publish(keys->shared, keys->tree, &keys->format);
	leave_owner(&owner);
}

/*
 * Under the build lock.  FINISHED: this call has built it.  Another process of a parallel
 * group can hold the lock at the same time; BUSY if that one is building.
 */
static IndexamRebuild
try_build(IndexKeys *keys)
{
	SofortIndex *shared = keys->shared;
	uint32		missing = INDEX_MISSING;
	volatile IndexamRebuild result = REBUILD_NOT_NEEDED;

	if (is_ready(shared, &keys->format))
		return REBUILD_NOT_NEEDED;
	if (registry_state(shared) == INDEX_BUILDING && shared->builder_pid == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is needed while it is being rebuilt",
						RelationGetRelationName(keys->index)),
				 errdetail("A function in the index's expressions or predicate reads the table.")));
	if (registry_state(shared) == INDEX_READY)
	{
		/* if not complete just now, the index is described differently */
		registry_reset(shared, &keys->format);
		if (is_ready(shared, &keys->format))
			return REBUILD_NOT_NEEDED;
	}
	if (!pg_atomic_compare_exchange_u32(&shared->state, &missing, INDEX_BUILDING))
		return REBUILD_BUSY;
	SOFORT_ENSURE_ERROR_CLEANUP(registry_forget_build, PointerGetDatum(shared));
	{
		Tree	   *tree;

		shared->builder_pid = MyProcPid;
		tree = index_open_tree(keys);
		if (tree != NULL)
			registry_publish(shared, tree, &keys->format);
		else
		{
			build_from_table(keys);
			result = REBUILD_FINISHED;
		}
		shared->builder_pid = 0;
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	return result;
}

static void ensure_in_segments(IndexKeys *keys);

/* Ready on return. */
static void
ensure_whole(IndexKeys *keys)
{
	ItemPointerData lock;

	ItemPointerSet(&lock, 0, 1);
	for (;;)
	{
		IndexamRebuild result;

		LockTuple(keys->index, &lock, ExclusiveLock);
		result = try_build(keys);
		UnlockTuple(keys->index, &lock, ExclusiveLock);
		if (result != REBUILD_BUSY)
			return;
		if (registry_state(keys->shared) == INDEX_PARTIAL)
		{
			/* somebody began before the placement was changed */
			ensure_in_segments(keys);
			return;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * On return there is a partial index, or a ready one.  What was built with another format
 * is thrown away under the build lock by the first process that has the new one.
 */
static void
begin_partial(IndexKeys *keys)
{
	SofortIndex *shared = keys->shared;
	ItemPointerData lock;
	Relation	heap;

	ItemPointerSet(&lock, 0, 1);
	LockTuple(keys->index, &lock, ExclusiveLock);
	/* (in this order: what was partial may be ready by now) */
	if (!is_partial(shared, &keys->format) && !is_ready(shared, &keys->format))
	{
		registry_reset(shared, &keys->format);
		heap = table_open(keys->index->rd_index->indrelid, AccessShareLock);
		am_check_table(heap);
		partial_begin(keys, heap);
		table_close(heap, AccessShareLock);
		SOFORT_STOP("rebuild-begun");
	}
	UnlockTuple(keys->index, &lock, ExclusiveLock);
}

static bool
work_as_owner(IndexKeys *keys, int max_segments)
{
	OwnerContext owner;
	bool		worked;

	become_owner(&owner, keys->index);
	worked = partial_work(keys, owner.heap, max_segments);
	leave_owner(&owner);
	return worked;
}

static void
stop_waiting(int code, Datum arg)
{
	pg_atomic_fetch_sub_u32(&((SofortIndex *) DatumGetPointer(arg))->waiters, 1);
}

/* A comparison function comes from within an epoch, for which the end of a merge waits. */
static void
refuse_within_epoch(IndexKeys *keys)
{
	if (epoch_is_inside() && !is_ready(keys->shared, &keys->format))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is needed while it is being rebuilt",
						RelationGetRelationName(keys->index)),
				 errdetail("A function that compares keys of another index needs it as a whole."),
				 errhint("Try again when the index is ready, see sofort.indexes.")));
}

/* Help until there is nothing left to do, then wait for the others. */
static void
ensure_in_segments(IndexKeys *keys)
{
	SofortIndex *shared = keys->shared;

	refuse_within_epoch(keys);
	pg_atomic_fetch_add_u32(&shared->waiters, 1);
	SOFORT_ENSURE_ERROR_CLEANUP(stop_waiting, PointerGetDatum(shared));
	{
		while (!is_ready(shared, &keys->format))
		{
			CHECK_FOR_INTERRUPTS();
			if (!is_partial(shared, &keys->format))
				begin_partial(keys);
			else if (!work_as_owner(keys, 0))
				partial_wait(shared);
		}
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	stop_waiting(0, PointerGetDatum(shared));
}

static void
ensure(IndexKeys *keys)
{
	if (rebuilt_in_segments(keys))
		ensure_in_segments(keys);
	else
		ensure_whole(keys);
}

/* ---- attaching ---- */

/* Makes the index ready or, if that is enough, partial. */
static void
make_usable(IndexKeys *keys, bool partial)
{
	if (!partial || !indexam_use_partial || !rebuilt_in_segments(keys))
		ensure(keys);
	else if (!is_partial(keys->shared, &keys->format) && !is_ready(keys->shared, &keys->format))
		begin_partial(keys);
}

/*
 * Fills keys->format and keys->shared, from the cache if they are there; else fills the
 * cache, too.
 */
static void
load_keys(IndexKeys *keys, Relation index, bool partial)
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
	keys->shared = shared;
	if (!is_ready(shared, &keys->format))
		make_usable(keys, partial);
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

static void
attach_keys(IndexKeys *keys, Relation index, bool partial)
{
	pool_require();
	if (unlikely(indexam_before_use != NULL))
		indexam_before_use();
	load_keys(keys, index, partial);
	if (unlikely(registry_state(keys->shared) != INDEX_READY))
		make_usable(keys, partial);
	keys->tree = NULL;
	if (registry_state(keys->shared) == INDEX_READY)
	{
		pg_read_barrier();
		keys->tree = keys->shared->tree;
	}
}

void
index_attach(IndexKeys *keys, Relation index)
{
	attach_keys(keys, index, false);
}

void
index_attach_partial(IndexKeys *keys, Relation index)
{
	attach_keys(keys, index, true);
}

bool
index_attach_if_ready(IndexKeys *keys, Relation index)
{
	const CachedKeys *cached = index->rd_amcache;
	bool		known = cached != NULL && cached->shared->serial == cached->serial;

	if (known)
		memcpy(&keys->format, &cached->format, cached->format.size);
	else
		keys_format(index, &keys->format);
	keys_init(keys, index);
	keys->shared = known ? cached->shared : tree_registry_attach(index);
	if (!is_ready(keys->shared, &keys->format))
		return false;
	keys->tree = keys->shared->tree;
	return true;
}

IndexKeys *
index_keys_open(Relation index, MemoryContext context)
{
	IndexKeys  *keys = MemoryContextAlloc(context, sizeof(IndexKeys));

	index_attach_partial(keys, index);
	return keys;
}

void
index_view(IndexKeys *keys, IndexView *view)
{
	view->partial = keys->tree == NULL ? registry_partial(keys->shared) : NULL;
	if (view->partial != NULL)
	{
		view->collecting = partial_phase(view->partial) == PARTIAL_COLLECTING;
		view->tree = view->collecting ? view->partial->delta : view->partial->tree;
		return;
	}
	if (keys->tree == NULL)
	{
		pg_read_barrier();
		keys->tree = keys->shared->tree;
	}
	view->collecting = false;
	view->tree = keys->tree;
}

/* ---- for background workers ---- */

/*
 * Whoever is building it may take for ever, so this does not wait: there are other indexes
 * to work on.
 */
static IndexamRebuild
rebuild_whole(IndexKeys *keys)
{
	ItemPointerData lock;
	IndexamRebuild result;

	ItemPointerSet(&lock, 0, 1);
	if (!compat_conditional_lock_tuple(keys->index, &lock, ExclusiveLock, false))
		return REBUILD_BUSY;
	result = try_build(keys);
	UnlockTuple(keys->index, &lock, ExclusiveLock);
	if (result == REBUILD_BUSY && registry_state(keys->shared) == INDEX_PARTIAL)
	{
		/* as in ensure_whole() */
		ensure_in_segments(keys);
		return REBUILD_NOT_NEEDED;
	}
	return result;
}

static IndexamRebuild
rebuild_step(IndexKeys *keys, int max_segments)
{
	bool		worked;

	if (is_ready(keys->shared, &keys->format))
	{
		partial_free_retired(keys->shared);
		return REBUILD_NOT_NEEDED;
	}
	if (!rebuilt_in_segments(keys))
		return rebuild_whole(keys);
	refuse_within_epoch(keys);
	if (!is_partial(keys->shared, &keys->format))
		begin_partial(keys);
	worked = work_as_owner(keys, max_segments);
	if (is_ready(keys->shared, &keys->format))
		return worked ? REBUILD_FINISHED : REBUILD_NOT_NEEDED;
	return worked ? REBUILD_WORKED : REBUILD_BUSY;
}

/* NULL if somebody else has locked it, or it is gone */
static Relation
open_unless_locked(Oid oid)
{
	Relation	relation;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return NULL;
	relation = try_relation_open(oid, NoLock);
	if (relation == NULL)
		UnlockRelationOid(oid, AccessShareLock);
	return relation;
}

/* Only what queries may use is worth building. */
IndexamRebuild
indexam_rebuild(Oid index_oid, int max_segments)
{
	Oid			heap_oid = IndexGetRelation(index_oid, true);
	Relation	heap;
	Relation	index;
	IndexamRebuild result = REBUILD_NOT_NEEDED;

	if (!OidIsValid(heap_oid))
		return result;
	/* the holder of a lock on them may be waiting for recovery */
	heap = open_unless_locked(heap_oid);
	if (heap == NULL)
		return REBUILD_BUSY;
	index = open_unless_locked(index_oid);
	if (index == NULL)
		result = REBUILD_BUSY;
	else if (index->rd_rel->relkind == RELKIND_INDEX && am_is_ours(index) &&
			 index->rd_index->indislive && index->rd_index->indisready)
	{
		IndexKeys	keys;

		pool_require();
		keys_format(index, &keys.format);
		keys_init(&keys, index);
		keys.shared = tree_registry_attach(index);
		result = rebuild_step(&keys, max_segments);
	}
	if (index != NULL)
		relation_close(index, AccessShareLock);
	relation_close(heap, AccessShareLock);
	return result;
}

/*
 * The locks are kept: ALTER INDEX SET TABLESPACE, which takes the tree away, locks only the
 * index.
 */
void
indexam_complete(Oid heap_oid)
{
	Relation	heap = table_open(heap_oid, NoLock);
	List	   *oids = RelationGetIndexList(heap);
	ListCell   *lc;

	foreach(lc, oids)
	{
		Oid			oid = lfirst_oid(lc);
		Relation	index;
		IndexKeys	keys;

		txn_lock_for_resume(oid, AccessShareLock);
		index = index_open(oid, NoLock);
		if (am_is_ours(index) && index->rd_index->indislive && index->rd_index->indisready)
			index_attach(&keys, index);
		index_close(index, NoLock);
	}
	list_free(oids);
	table_close(heap, NoLock);
}

/* ---- for tests ---- */

/* NULL: it is not being rebuilt.  Enters an epoch, which the caller leaves. */
static PartialIndex *
enter_partial(Relation index)
{
	IndexKeys  *keys = index_keys_open(index, CurrentMemoryContext);
	IndexView	view;

	epoch_enter();
	index_view(keys, &view);
	pfree(keys);
	return view.partial;
}

int
indexam_test_hashes(Relation index, bool scatter)
{
	PartialIndex *partial = enter_partial(index);
	int			n = partial != NULL ? partial_test_hashes(partial, scatter) : -1;

	epoch_exit();
	return n;
}

bool
indexam_test_zones(Relation index, IndexamZones *zones)
{
	PartialIndex *partial = enter_partial(index);

	if (partial != NULL)
		partial_test_zones(partial, zones);
	epoch_exit();
	return partial != NULL;
}
