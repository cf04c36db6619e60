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
#include "datatype/timestamp.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/* GUC (defined in src/sofort.c): TreePlacement of new indexes that do not say */
extern int	sofort_index_placement;

/*
 * For a sofort index that was entered in the catalogs and is not built yet: if it has no
 * storage parameter "placement", it gets one from the setting.
 */
extern void indexam_default_placement(Oid index_oid);

/*
 * For an index that is no longer ours, and has a new file: the trees of its former files
 * are dropped at commit.
 */
extern void indexam_drop_former_files(Oid index_oid);

/*
 * Raises 0A000 if the index cannot have the placement that it asks for.  The caller has
 * locked it.
 */
extern void indexam_check_placement(Oid index_oid);

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
 * has one for btree, and that of the same order: creates an empty one beside it.
 * False if there is none for btree.  Needs no privileges.
 */
extern bool indexam_provide_opclass(Oid type);

/*
 * The table of CREATE INDEX, with the lock that the command takes; checks that the user may
 * lock it.
 */
extern Oid	indexam_lock_table(const IndexStmt *stmt);

/* ---- rebuilding ---- */

/*
 * May an index that is being rebuilt be used, as far as it is there?  Otherwise a process
 * that needs it waits, and helps meanwhile.  Set by src/recovery.
 */
extern bool indexam_use_partial;

/*
 * Hooks, called if set. before_use: before an index is used in any way but for rebuilding
 * it.  It may wait; no latch, LWLock or epoch is held. before_search and after_search:
 * around a search of the table in place of an index (after_search not after an error).
 * complete(arg): is the index ready now? before_search may wait; no latch, LWLock or epoch
 * is held.  If a uniqueness check searches, complete is NULL, and it must not wait.
 * *searched: what searches in place of this index have cost.
 */
extern void (*indexam_before_use) (void);
extern void (*indexam_before_search) (bool (*complete) (void *arg), void *arg);
extern void (*indexam_after_search) (pg_atomic_uint64 *searched);

/*
 * Called, if set, before (pause = true) and after work that is done once for all later
 * searches
 */
extern void (*indexam_pause_search) (bool pause);

/* Blocks of a table that are one step of a rebuild (256; tests need less) */
extern int	indexam_segment_blocks;

typedef enum IndexamRebuild
{
	REBUILD_NOT_NEEDED,			/* ready, or no such index, or not valid for use */
	REBUILD_WORKED,				/* something was done; there may be more */
	REBUILD_FINISHED,			/* this call made it ready */
	REBUILD_BUSY				/* other processes have claimed all that is left */
} IndexamRebuild;

/*
 * One step of the rebuild of an index: at most max_segments segments (of 65,536
 * rows; 0: all, and then it waits for those who use the index meanwhile).  Any number of
 * processes can work on one index.  An index with expressions or a predicate is built in
 * one step, by one process (for others it is busy).
 * For background workers; in a transaction with a snapshot.  Raises 53200 if the
 * arena is full.
 */
extern IndexamRebuild indexam_rebuild(Oid index_oid, int max_segments);

/*
 * All sofort indexes of a table are complete when this returns: built by others, or
 * here.  The caller has a lock on the table that keeps builds out (RowExclusiveLock),
 * and a snapshot.  Raises 53200 if the arena is full.
 */
extern void indexam_complete(Oid heap_oid);

/* ---- planning ---- */

/*
 * What the planner of this process is to assume until the next call; indexes that survive a
 * restart are always there.  For questions of the kind "what would this statement cost
 * without that index?".  The list is not copied.
 */
typedef enum IndexamAssumption
{
	INDEXAM_AS_IT_IS,
	INDEXAM_ALL_BUT,			/* all are complete, those of the list are not there */
	INDEXAM_NONE_BUT			/* those of the list alone are complete */
} IndexamAssumption;

extern void indexam_assume(IndexamAssumption assumption, const Oid *indexes, int n);

/* Does this index have to be rebuilt after a restart?  False if it is not ours. */
extern bool indexam_is_volatile(Oid index_oid);

/* Cost of finding rows in a table of this size without this index of it, in the
 * planner's units: what an index that is not there adds to each of its scans. */
extern double indexam_cost_without(Relation index, double pages, double rows);

struct IndexPath;

/*
 * What an index-only scan of a sofort table costs more than one of heap, by whatever index;
 * 0 for another scan.
 */
extern double indexam_cost_of_looking(const struct IndexPath *path, double selectivity);

/* Cost of rebuilding an index of such a table, in the same units */
extern double indexam_cost_rebuild(double pages, double rows);

/*
 * Forget the indexes of a database that nobody is connected to, as a restart
 * does: they are built, or opened in the pool, at their first use.
 */
extern void indexam_forget_database(Oid db_oid);

/* ---- views and checks ---- */

typedef enum IndexTreeState
{
	INDEX_MISSING = 0,			/* as after a restart; there is no tree */
	INDEX_BUILDING,				/* by one process; not to be used */
	INDEX_PARTIAL,				/* being rebuilt in segments, can be used */
	INDEX_READY
} IndexTreeState;

/* "missing", "building", "partial", "ready", as the views show it */
extern const char *indexam_state_name(IndexTreeState state);

typedef struct IndexamStats
{
	RelFileLocator locator;
	Oid			index_oid;		/* as it was when the tree was made */
	IndexTreeState state;
	const char *placement;
	uint64		entries;		/* in the pool, after a crash: an estimate */
	uint64		bytes_dram;		/* nodes, tuples, and what belongs to them */
	uint64		bytes_pool;
	int			height;			/* 0: the root is a leaf */

	/* rebuilding */
	uint32		segments;		/* if partial: of 65,536 rows each */
	uint32		segments_done;	/* as segments_total if it was rebuilt */
	uint32		segments_claimed;	/* done, or being done */
	bool		merging;
	bool		draining;		/* merged; ready when those who use it now are through */
	int			workers;		/* processes that work on it now */
	int			waiters;		/* processes that wait for it now */
	uint64		searched;		/* processor time in us, see indexam_after_search */
	TimestampTz started;		/* if partial */

	/* of the current or the last rebuild of this server life; else 0 */
	uint32		segments_total;
	uint64		rows_read;
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
 * the row's tid.  False: the structure is damaged, and entries were not looked
 * at.  The caller holds ShareLock or more on the table.  Builds the
 * tree if it is missing.
 */
typedef void (*IndexamProblem) (void *arg, const char *place, const char *problem);
typedef void (*IndexamEntry) (void *arg, const Datum *values, const bool *isnull,
							  const ItemPointerData *tid);
extern bool indexam_verify(Relation index, IndexamProblem problem, IndexamEntry entry, void *arg);

/* For VACUUM: frees what nobody uses any more, of this index, and now and then of all. */
extern void indexam_collect_garbage(Relation index);

/*
 * For tests: entries that this session has looked at to find trees of former files of
 * indexes.
 */
extern uint64 indexam_test_former_steps(void);

/*
 * For tests: how many segments have a hash; -1 if the index is not being rebuilt. scatter:
 * as if look-ups had found that zones do not help.  In mode synchronous the index is
 * complete after that.
 */
extern int	indexam_test_hashes(Relation index, bool scatter);

/* For tests: of the segments of an index that is being rebuilt; false: it is not. */
typedef struct IndexamZones
{
	int			segments;		/* that have zones */
	int			ascending;		/* of them */
	int			apart;			/* blocks out of order, which are looked at by themselves */
	int			strays;			/* rows */
} IndexamZones;

extern bool indexam_test_zones(Relation index, IndexamZones *zones);

#endif							/* SOFORT_INDEXAM_INDEXAM_H */
