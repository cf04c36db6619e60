/*-------------------------------------------------------------------------
 *
 * tableam.h
 *	  What the table access method meets differently in PostgreSQL 15..18.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_TABLEAM_H
#define SOFORT_COMPAT_TABLEAM_H

#include "sofort/compat/compat.h"
#include "sofort/compat/scan.h"

#include "access/tableam.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "pgstat.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"

#if PG_VERSION_NUM < 170000
#include "storage/bufmgr.h"
#include "utils/backend_progress.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/spccache.h"
#endif

/* tuple_update: which indexes need a new entry */
#if PG_VERSION_NUM < 160000
typedef bool CompatUpdateIndexes;
#define COMPAT_UPDATE_INDEXES_NONE	false
#define COMPAT_UPDATE_INDEXES_ALL	true
#else
typedef TU_UpdateIndexes CompatUpdateIndexes;
#define COMPAT_UPDATE_INDEXES_NONE	TU_None
#define COMPAT_UPDATE_INDEXES_ALL	TU_All
#endif

/* TableAmRoutine.relation_set_new_filenode was renamed in 16. */
#if PG_VERSION_NUM < 160000
#define COMPAT_SET_NEW_FILE	relation_set_new_filenode
#else
#define COMPAT_SET_NEW_FILE	relation_set_new_filelocator
#endif

/* TupleTableSlotOps.is_current_xact_tuple came with 17. */
#if PG_VERSION_NUM < 170000
#define COMPAT_SLOT_CALLBACK static inline
#define COMPAT_IS_CURRENT_XACT_TUPLE(function)
#else
#define COMPAT_SLOT_CALLBACK static
#define COMPAT_IS_CURRENT_XACT_TUPLE(function) .is_current_xact_tuple = function,
#endif

/* TupleTableSlotOps.copy_minimal_tuple makes room before the tuple since 18. */
#if PG_VERSION_NUM < 180000
#define COMPAT_COPY_MINIMAL_TUPLE_ARGS TupleTableSlot *slot
#define compat_form_minimal_tuple(desc, values, isnull) \
	heap_form_minimal_tuple(desc, values, isnull)
#else
#define COMPAT_COPY_MINIMAL_TUPLE_ARGS TupleTableSlot *slot, Size extra
#define compat_form_minimal_tuple(desc, values, isnull) \
	heap_form_minimal_tuple(desc, values, isnull, extra)
#endif

#if PG_VERSION_NUM < 170000
#define compat_reindex_relation(relid, params) ((void) reindex_relation(relid, 0, params))
#else
#define compat_reindex_relation(relid, params) ((void) reindex_relation(NULL, relid, 0, params))
#endif

/* other_block: the new version lies in another block.  Heap's hot ones never do. */
static inline void
compat_count_update(Relation rel, bool hot, bool other_block)
{
#if PG_VERSION_NUM < 160000
	pgstat_count_heap_update(rel, hot);
#else
	pgstat_count_heap_update(rel, hot, other_block && !hot);
#endif
}

static inline bool
compat_tuplesort_getdatum(Tuplesortstate *state, Datum *value, bool *isnull)
{
#if PG_VERSION_NUM < 160000
	return tuplesort_getdatum(state, true, value, isnull, NULL);
#else
	return tuplesort_getdatum(state, true, false, value, isnull, NULL);
#endif
}

/* pg_stat_progress_vacuum counts memory instead of rows since 17. */
static inline void
compat_progress_max_dead(int64 rows)
{
#if PG_VERSION_NUM < 170000
	pgstat_progress_update_param(PROGRESS_VACUUM_MAX_DEAD_TUPLES, rows);
#else
	pgstat_progress_update_param(PROGRESS_VACUUM_MAX_DEAD_TUPLE_BYTES, rows * sizeof(uint64));
#endif
}

static inline void
compat_progress_dead(int64 rows)
{
#if PG_VERSION_NUM < 170000
	pgstat_progress_update_param(PROGRESS_VACUUM_NUM_DEAD_TUPLES, rows);
#else
	pgstat_progress_update_param(PROGRESS_VACUUM_NUM_DEAD_ITEM_IDS, rows);
	pgstat_progress_update_param(PROGRESS_VACUUM_DEAD_TUPLE_BYTES, rows * sizeof(uint64));
#endif
}

/* ... and indexes, one by one. */
static inline void
compat_progress_indexes(int total, int processed)
{
#if PG_VERSION_NUM >= 170000
	const int	params[] = {PROGRESS_VACUUM_INDEXES_TOTAL, PROGRESS_VACUUM_INDEXES_PROCESSED};
	const int64 values[] = {total, processed};

	pgstat_progress_update_multi_param(lengthof(params), params, values);
#endif
}

static inline void
compat_update_relstats(Relation rel, BlockNumber pages, double tuples, bool hasindex,
					   TransactionId frozenxid, MultiXactId minmulti)
{
#if PG_VERSION_NUM < 180000
	vac_update_relstats(rel, pages, tuples, 0, hasindex, frozenxid, minmulti,
						NULL, NULL, false);
#else
	vac_update_relstats(rel, pages, tuples, 0, 0, hasindex, frozenxid, minmulti,
						NULL, NULL, false);
#endif
}

static inline void
compat_report_vacuum(Relation rel, PgStat_Counter live, PgStat_Counter dead,
					 TimestampTz start)
{
#if PG_VERSION_NUM < 180000
	pgstat_report_vacuum(RelationGetRelid(rel), rel->rd_rel->relisshared, live, dead);
#else
	pgstat_report_vacuum(RelationGetRelid(rel), rel->rd_rel->relisshared, live, dead,
						 start);
#endif
}

/* Since 16 index access methods are told whose entries they clean. */
static inline void
compat_set_vacuum_heap(IndexVacuumInfo *info, Relation heap)
{
#if PG_VERSION_NUM >= 160000
	info->heaprel = heap;
#endif
}

/*
 * Before 17, ANALYZE prefetches the blocks of its sample from the main fork,
 * which is empty: beyond its first 1 GB that is an error.  Called from
 * relation_size(): for such a table prefetching stays off until the end of
 * the command, which opens a GUC nesting level of its own.
 */
static inline void
compat_no_prefetch(Relation rel, BlockNumber nblocks)
{
#if PG_VERSION_NUM < 170000
	if (nblocks < (BlockNumber) RELSEG_SIZE ||
		(pgstat_track_activities && MyBEEntry != NULL &&
		 MyBEEntry->st_progress_command != PROGRESS_COMMAND_ANALYZE))
		return;
	if (maintenance_io_concurrency != 0)
		(void) set_config_option("maintenance_io_concurrency", "0", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (get_tablespace_maintenance_io_concurrency(rel->rd_rel->reltablespace) != 0 &&
		pgstat_track_activities)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot analyze sofort table \"%s\" of %u blocks in a tablespace with maintenance_io_concurrency",
						RelationGetRelationName(rel), nblocks),
				 errhint("Reset that parameter of the tablespace, or set it to 0.")));
#endif
}

#endif							/* SOFORT_COMPAT_TABLEAM_H */
