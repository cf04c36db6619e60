/*-------------------------------------------------------------------------
 *
 * indexam.h
 *	  The index access method "sofort_index": what other modules may use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_INDEXAM_INDEXAM_H
#define SOFORT_INDEXAM_INDEXAM_H

#include "sofort/compat/compat.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/* ---- start-up ---- */

/*
 * From _PG_init.  Defines the storage parameters; while preloading also
 * installs the hooks and transaction callbacks, after txn_init() so that
 * PRE_COMMIT here runs before txn's.
 */
extern void indexam_init(void);

extern Size indexam_shmem_size(void);

/* From shmem_startup_hook, under AddinShmemInitLock; also after a crash-restart:
 * there are no trees then. */
extern void indexam_startup(void);

/* ---- operator classes ---- */

/*
 * Make sure that a type has a default operator class for sofort_index, if it
 * has one for btree: creates an empty one beside it.  False if there is none
 * for btree.  Needs no privileges.
 */
extern bool indexam_provide_opclass(Oid type);

/* ---- rebuilding ---- */

/*
 * Make the tree of an index ready for use: builds it from the table, or waits
 * (interruptibly, with deadlock detection) until somebody else has done so.
 * For background workers; in a transaction with a snapshot.  Raises 53200 if
 * the arena is full.  Returns true if this call built the tree, false if that was not necessary or
 * if the index is gone, not valid for use, or no sofort index.
 */
extern bool sofort_index_rebuild(Oid index_oid);

/* ---- views and checks ---- */

typedef struct IndexamStats
{
	RelFileLocator locator;
	Oid			index_oid;		/* as it was when the tree was made */
	const char *state;			/* "missing", "building", "ready" */
	const char *placement;
	uint64		entries;
	uint64		nodes;
	uint64		bytes_dram;		/* nodes, tuples, and what belongs to them */
	int			height;			/* 0: the root is a leaf */
} IndexamStats;

/* Of an open index; does not build it. */
extern void indexam_stats(Relation index, IndexamStats *stats);

/* Of all trees that exist, of all databases. */
typedef void (*IndexamVisitor) (void *arg, const IndexamStats *stats);
extern void indexam_visit(IndexamVisitor fn, void *arg);

/*
 * Structural check: order within and between nodes, separators, counters, and
 * that encoded keys decode to themselves.  Then entry (may be NULL) is called
 * for each entry in index order: all index columns (INCLUDE columns too) and
 * the row's tid.  The caller holds ShareLock or more on the table.  Builds the
 * tree if it is missing.
 */
typedef void (*IndexamProblem) (void *arg, const char *place, const char *problem);
typedef void (*IndexamEntry) (void *arg, const Datum *values, const bool *isnull,
							  const ItemPointerData *tid);
extern void indexam_verify(Relation index, IndexamProblem problem, IndexamEntry entry, void *arg);

/* Drop trees whose relation file does not exist any more.  Returns how many. */
extern int	indexam_collect_garbage(void);

#endif							/* SOFORT_INDEXAM_INDEXAM_H */
