/*-------------------------------------------------------------------------
 *
 * registry.h
 *	  Which index has which tree; within src/indexam.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_INDEXAM_REGISTRY_H
#define SOFORT_INDEXAM_REGISTRY_H

#include "sofort/compat/compat.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/keys.h"
#include "sofort/store/store.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#define INDEX_UNIQUE_LOCKS	16

/*
 * Shared state of one index file.  Lives in the arena.  When its index is dropped it goes
 * to a free list and its serial number changes, so that a stale pointer is recognised by
 * the number that it was found with.
 */
typedef struct SofortIndex
{
	uint64		serial;
	struct SofortIndex *next_free;
	struct SofortIndex *next_by_owner;	/* of the same bucket */
	RelFileLocator locator;
	Oid			index_oid;
	pg_atomic_uint32 state;		/* IndexTreeState */
	int			builder_pid;
	TransactionId prepared_xid; /* prepared transaction that decides, by the next two, what
								 * becomes of the tree */
	bool		drop_if_committed;
	bool		drop_if_aborted;
	Tree	   *tree;			/* if ready */
	KeyFormat  *format;			/* that the tree, or the part of it that is there, was built
								 * with */

	/* rebuilding in segments, see src/indexam/partial.h */
	struct PartialIndex *volatile partial;	/* if partial */
	struct PartialIndex *retired;	/* freed when nobody can look at them any more; protected
									 * by mutex */
	slock_t		mutex;
	pg_atomic_uint32 workers;	/* processes that work on the rebuild */
	pg_atomic_uint32 waiters;	/* that wait for its end */
	pg_atomic_uint64 searched;	/* processor time, us: the table was searched in its place */
	ConditionVariable progress;
	uint32		rebuilt_segments;	/* by the last rebuild */
	uint64		rebuilt_rows;

	/*
	 * Last: initialised once, because the struct is reused and never freed.  Few, because
	 * there may be many indexes; its own, because a check may take long.
	 */
	LWLock		unique_locks[INDEX_UNIQUE_LOCKS];
} SofortIndex;

/* ---- registry.c ---- */

/* The entry of this index; made if it does not exist.  pool_require() first. */
extern SofortIndex *tree_registry_attach(Relation index);

/* Cleanup after an error of a process that was building the tree: there is none.  arg: the entry */
extern void registry_forget_build(int code, Datum arg);

/* tree and format become those of the entry, which is ready then. */
extern void registry_publish(SofortIndex *shared, Tree *tree, const KeyFormat *format);

/*
 * Gives this partial index to an index without a tree.  False: another process was faster,
 * and nothing has changed.
 */
extern bool registry_publish_partial(SofortIndex *shared, struct PartialIndex *partial,
									 const KeyFormat *format);

/* Its tree becomes the index; the rest is retired. */
extern void registry_finish_partial(SofortIndex *shared, struct PartialIndex *partial);

/* Memory for hashes of segments; false if all of them together would exceed their limit */
extern bool registry_reserve_hash(Size size);
extern void registry_release_hash(Size size);

/* Protects the growth of a tree in the pool */
extern LWLock *registry_grow_lock(StoreId store);

/*
 * Forgets the tree, or the part of it that is there; nobody else uses it. unless not NULL:
 * only if the tree or partial index has another format; under the build lock.
 */
extern void registry_reset(SofortIndex *shared, const KeyFormat *unless);
extern bool registry_has_format(SofortIndex *shared, const KeyFormat *format);

static inline IndexTreeState
registry_state(SofortIndex *shared)
{
	return (IndexTreeState) pg_atomic_read_u32(&shared->state);
}

/* NULL if there is none.  Keep it alive as partial.h says. */
static inline struct PartialIndex *
registry_partial(SofortIndex *shared)
{
	if (registry_state(shared) != INDEX_PARTIAL)
		return NULL;
	pg_read_barrier();
	return shared->partial;
}

/*
 * Is there any entry?  Raises no error. registry_attach_table() makes the table accessible,
 * and may raise one; after it the drop functions raise none.
 */
extern bool registry_in_use(void);
extern void registry_attach_table(void);
extern void registry_drop_locator(const RelFileLocator *locator);
extern void registry_drop_database(Oid db_oid);

/* Dropped when the prepared transaction is finished, by registry_finish_prepared() */
extern void registry_mark_prepared(const RelFileLocator *locator, TransactionId xid,
								   bool drop_if_aborted);
extern void registry_finish_prepared(void);

extern bool registry_has_locator(const RelFileLocator *locator);
extern void registry_set_owner(SofortIndex *shared, Oid index_oid);

/* Files of the index, but for the current one, that have entries: at most "space" of them */
extern int	registry_former_files(Oid index_oid, const RelFileLocator *current,
								  RelFileLocator *former, int space);

/* One of the index's locks that make unique checks and insertions atomic */
extern LWLock *registry_unique_lock(SofortIndex *shared, const uint8 *key, int key_len);

/* ---- pending.c ---- */

/* For CREATE INDEX and REINDEX: an entry without a tree, dropped again if the
 * (sub)transaction aborts.  Trees of earlier files of the index go at commit. */
extern SofortIndex *pending_create(Relation index);

/*
 * Notes a store that was made for a tree: the end of the (sub)transaction drops it if the
 * tree is not complete.
 */
extern void pending_drop_incomplete(StoreId store);

extern void pending_drop_relation(Oid relid);
extern void pending_drop_database(Oid db_oid);
extern void pending_init(void);

/* ---- rebuild.c ---- */

/* Attached and ready: sets keys->shared and keys->tree. */
extern void index_attach(IndexKeys *keys, Relation index);

/*
 * The same, but if indexam_use_partial the index may be partial: then keys->tree is NULL.
 * It can become ready at any time.
 */
extern void index_attach_partial(IndexKeys *keys, Relation index);

/* Only if the index is ready: builds nothing and waits for nobody. */
extern bool index_attach_if_ready(IndexKeys *keys, Relation index);

/* Attached, maybe partial, in a chunk of the context. */
extern IndexKeys *index_keys_open(Relation index, MemoryContext context);

/* ---- build.c ---- */

struct IndexInfo;

/*
 * A new tree with the entries of the table. unique: check it. every_version: of all
 * versions that are not dead to everybody, without waiting for anybody (rebuild).  Errors
 * leave nothing behind in the arena.
 */
extern Tree *build_tree(IndexKeys *keys, Relation heap, struct IndexInfo *info,
						TreePlacement placement, bool unique, bool every_version,
						int fillfactor, double *heap_tuples);

/* 53200: the arena, or 53100: the pool is full */
pg_noreturn extern void index_tree_full(const IndexKeys *keys);

/* ---- placement.c ---- */

extern const char *placement_name(TreePlacement placement);

/* Where a build of the index by its definition puts the tree */
extern TreePlacement placement_for_build(Relation index);

/* Where a rebuild puts it: where it was. */
extern TreePlacement placement_for_rebuild(Relation index);

/* keys->tree = an empty tree.  logged: see store_create_tree(). */
extern void index_new_tree(IndexKeys *keys, TreePlacement placement, bool logged);

/* The tree in the pool, if there is one that fits; else NULL. */
extern Tree *index_open_tree(IndexKeys *keys);

/* ---- insert.c ---- */

/* An entry of the tree from column values: stride bytes, tuple included. */
extern void index_form_entry(const IndexKeys *keys, const Datum *values, const bool *isnull,
							 const ItemPointerData *tid, uint8 *entry);
extern void index_discard_entry(const IndexKeys *keys, const uint8 *entry);

/* The same with a tuple in the memory context, not in the arena. */
extern void index_form_private_entry(const IndexKeys *keys, const Datum *values,
									 const bool *isnull, const ItemPointerData *tid,
									 uint8 *entry, MemoryContext context);

/*
 * Insert into this tree, inside an epoch (see tree.h): DONE (the tree owns the tuple), EXISTS
 * or FULL.
 */
extern TreeResult index_insert_into(const IndexKeys *keys, Tree *tree, const uint8 *entry);

static inline void
index_entry_tid(const IndexKeys *keys, const uint8 *entry, ItemPointer tid)
{
	position_to_tid(keys_entry_row(&keys->format, entry), tid);
}

#endif							/* SOFORT_INDEXAM_REGISTRY_H */
