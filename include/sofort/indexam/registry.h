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
#include "sofort/indexam/keys.h"
#include "storage/lwlock.h"

typedef enum IndexTreeState
{
	INDEX_MISSING = 0,			/* as after a restart; tree is NULL */
	INDEX_BUILDING,				/* by builder_pid */
	INDEX_READY
} IndexTreeState;

/*
 * Shared state of one index file.  Lives in the arena; when its index is
 * dropped it goes to a free list and its serial number changes, so a stale
 * pointer with the number it was found with is recognised.
 */
typedef struct SofortIndex
{
	uint64		serial;
	struct SofortIndex *next_free;
	RelFileLocator locator;
	Oid			index_oid;
	pg_atomic_uint32 state;		/* IndexTreeState */
	int			builder_pid;
	Tree	   *tree;			/* if ready */
	KeyFormat  *format;			/* that the tree was built with */
} SofortIndex;

/* ---- registry.c ---- */

/* The entry of this index; made if it does not exist.  pool_require() first. */
extern SofortIndex *tree_registry_attach(Relation index);

/* For CREATE INDEX and REINDEX: an entry without a tree, dropped again if the
 * (sub)transaction aborts.  Trees of earlier files of the index go at commit. */
extern SofortIndex *registry_create(Relation index);

/* tree and format become those of the entry; it is ready. */
extern void registry_publish(SofortIndex *shared, Tree *tree, const KeyFormat *format);

/* Forget the tree; nobody else uses it. */
extern void registry_reset(SofortIndex *shared);

static inline IndexTreeState
registry_state(SofortIndex *shared)
{
	return (IndexTreeState) pg_atomic_read_u32(&shared->state);
}

extern void registry_hook_drop_relation(Oid relid);
extern void registry_hook_drop_database(Oid db_oid);
extern void registry_init(void);

/* One of the locks that make unique checks and insertions atomic */
extern LWLock *registry_unique_lock(const SofortIndex *shared, const uint8 *key, int key_len);

/* ---- rebuild.c ---- */

/* Attached and ready: sets keys->shared and keys->tree. */
extern void index_attach(IndexKeys *keys, Relation index);

/* Keys of an open index in a chunk of the context; attached and ready. */
extern IndexKeys *index_keys_open(Relation index, MemoryContext context);

/* ---- build.c ---- */

struct IndexInfo;

/*
 * A new tree with what the table holds.  unique: check it.  every_version: all
 * that are not dead to everybody, without waiting for anybody (rebuild).
 * Errors leave nothing behind in the arena.
 */
extern Tree *build_tree(IndexKeys *keys, Relation heap, struct IndexInfo *info, bool unique,
						bool every_version, int fillfactor, double *heap_tuples);

/* 53200 */
pg_noreturn extern void index_arena_full(Relation index);

/* ---- insert.c ---- */

/* An entry of the tree from column values: stride bytes, tuple included. */
extern void index_form_entry(const IndexKeys *keys, const Datum *values, const bool *isnull,
							 const ItemPointerData *tid, uint8 *entry);
extern void index_discard_entry(const IndexKeys *keys, const uint8 *entry);

static inline void
index_entry_tid(const IndexKeys *keys, const uint8 *entry, ItemPointer tid)
{
	uint64		row = tree_entry_row(keys->tree, entry);

	ItemPointerSet(tid, (BlockNumber) (row >> 8), (OffsetNumber) ((row & 0xff) + 1));
}

#endif							/* SOFORT_INDEXAM_REGISTRY_H */
