/*-------------------------------------------------------------------------
 *
 * am_internal.h
 *	  What the files of the access method share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_AM_INTERNAL_H
#define SOFORT_AM_INTERNAL_H

#include "access/amapi.h"
#include "access/genam.h"
#include "nodes/pathnodes.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/keys.h"
#include "sofort/indexam/registry.h"

#define INDEX_AM_NAME	"sofort_index"
#define TABLE_AM_NAME	"sofort"

/* ---- am.c ---- */
extern bool am_is_ours(Relation index);
extern int	am_fillfactor(Relation index);

/* The storage parameter; false if it is not set */
extern bool am_placement(Relation index, TreePlacement *placement);

/* 0A000 for tables that sofort_index cannot serve */
extern void am_check_table(Relation heap);

/* ---- cost.c ---- */

/* Adds to a scan's cost what the missing part of the index costs */
extern void cost_add_missing_part(IndexOptInfo *info, double loop_count, Cost *startup,
								  Cost *total);

/* ---- cost_skip.c ---- */

/* The clauses of a path, as a scan will use them */
typedef struct ClauseSplit
{
	List	   *bounding;		/* bounds of the range that is read */
	int			nfixed;			/* columns that have one value in it */
	List	   *skipping;		/* of columns behind that: by them entries are passed over */
	int			column;			/* the first of these, from 0 */
	int			last;			/* those before it have one value each */
} ClauseSplit;

extern void cost_split_clauses(const IndexPath *path, ClauseSplit *split);

/* Between 0 and 1: what part of the range is read */
extern double cost_part_read(PlannerInfo *root, const IndexPath *path,
							 const ClauseSplit *split);

/* ---- options.c ---- */
extern void options_init(void);
extern bytea *options_parse(Datum reloptions, bool validate);

/* ---- insert.c ---- */
extern bool am_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
					  Relation heap, IndexUniqueCheck check, bool unchanged,
					  struct IndexInfo *info);

/* ---- unique.c ---- */

/*
 * Insert the entry unless its key is taken.  As nbtree's _bt_doinsert() with
 * checking: returns false if PARTIAL and the key may be taken (the entry is
 * inserted).  *inserted: the tree took over the entry's tuple.  The entry may be formed
 * again.
 */
extern bool unique_insert(IndexKeys *keys, uint8 *entry, const Datum *values,
						  const bool *isnull, ItemPointer tid, Relation heap,
						  IndexUniqueCheck check, bool *inserted);

/* ---- predicate.c ---- */

/* A scan of all entries with these first columns; 0 columns: of any range. */
extern void predicate_lock_range(const IndexKeys *keys, const uint8 *bytes, int nequal,
								 Snapshot snapshot);
extern void predicate_check_key(const IndexKeys *keys, const uint8 *bytes);

/* ---- verify.c ---- */

/* May this scan remove entries now?  Then until index_end_change_tree(). */
extern bool index_try_change_tree(Relation index);
extern void index_end_change_tree(Relation index);

/* ---- scan.c ---- */
extern IndexScanDesc am_beginscan(Relation index, int nkeys, int norderbys);
extern void am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
					  int norderbys);
extern void am_endscan(IndexScanDesc scan);
extern bool am_gettuple(IndexScanDesc scan, ScanDirection dir);
extern int64 am_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);
extern void am_markpos(IndexScanDesc scan);
extern Size am_estimate_parallel_scan(COMPAT_ESTIMATE_PARALLEL_SCAN_ARGS);
extern void am_init_parallel_scan(void *target);
extern void am_parallel_rescan(IndexScanDesc scan);
extern void am_restrpos(IndexScanDesc scan);

/* ---- vacuum.c ---- */
extern IndexBulkDeleteResult *am_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
											IndexBulkDeleteCallback callback, void *state);
extern IndexBulkDeleteResult *am_vacuumcleanup(IndexVacuumInfo *info,
											   IndexBulkDeleteResult *stats);

/* ---- opclass.c ---- */
extern void opclass_init(void);

/* The btree operator class that a placeholder stands for; InvalidOid if none */
extern Oid	opclass_of_btree(Oid opclass);

#endif							/* SOFORT_AM_INTERNAL_H */
