/*-------------------------------------------------------------------------
 *
 * am.c
 *	  The index access method "sofort_index".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_opclass.h"
#include "commands/defrem.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/cleanup.h"
#include "sofort/pmem/pool.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "am_internal.h"
#include "remove.h"

PG_FUNCTION_INFO_V1(sofort_index_handler);

bool
am_is_ours(Relation index)
{
	return index->rd_indam != NULL && index->rd_indam->aminsert == am_insert;
}

/*
 * The trees are not WAL-logged: on a standby an index of a heap table would miss what is
 * replayed.  Also, row ids have room for only 256 rows per block.
 */
void
am_check_table(Relation heap)
{
	if (heap->rd_rel->relam != get_table_am_oid(TABLE_AM_NAME, true))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" supports only tables that use access method \"%s\"",
						INDEX_AM_NAME, TABLE_AM_NAME),
				 errdetail("Table \"%s\" uses another one.", RelationGetRelationName(heap)),
				 errhint("Create a btree index.")));
}

/* ---- build ---- */

static IndexBuildResult *
am_build(Relation heap, Relation index, struct IndexInfo *info)
{
	IndexBuildResult *result = palloc0(sizeof(IndexBuildResult));
	IndexKeys	keys;

	am_check_table(heap);
	pool_require();
	keys_format(index, &keys.format);
	keys_init(&keys, index);
	keys.shared = pending_create(index);
	if (index->rd_amcache != NULL)
	{
		pfree(index->rd_amcache);
		index->rd_amcache = NULL;
	}

	pg_atomic_write_u32(&keys.shared->state, INDEX_BUILDING);
	keys.shared->builder_pid = MyProcPid;
	SOFORT_ENSURE_ERROR_CLEANUP(registry_forget_build, PointerGetDatum(keys.shared));
	{
		keys.tree = build_tree(&keys, heap, info, placement_for_build(index), info->ii_Unique,
							   false, am_fillfactor(index), &result->heap_tuples);
		registry_publish(keys.shared, keys.tree, &keys.format);
		keys.shared->builder_pid = 0;
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	result->index_tuples = (double) tree_entries(keys.tree);
	return result;
}

/* The init fork of an unlogged index: there is nothing to put there. */
static void
am_buildempty(Relation index)
{
}

/* ---- planner ---- */

static bool
am_canreturn(Relation index, int attno)
{
	return true;
}

/* Bytes of an entry in a btree page, line pointer included */
static int
btree_entry_bytes(Relation index)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			bytes = sizeof(IndexTupleData);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		AttrNumber	column = index->rd_index->indkey.values[i];
		int32		width = att->attlen;

		if (width < 0 && column != 0)
			width = get_attavgwidth(index->rd_index->indrelid, column);
		if (width <= 0)
			width = get_typavgwidth(att->atttypid, att->atttypmod);
		bytes = att_align_nominal(bytes, att->attalign) + width;
	}
	return MAXALIGN(bytes) + sizeof(ItemIdData);
}

/*
 * Size and height, in place of those of an empty file, which the planner has.  They are
 * those of a btree of these entries, as a table's pages are those of a heap table: that is
 * what the cost model is made for.
 */
static void
set_size(IndexOptInfo *info)
{
	Relation	index = index_open(info->indexoid, NoLock);
	double		per_page = (BLCKSZ - SizeOfPageHeaderData - sizeof(BTPageOpaqueData)) *
		(BTREE_DEFAULT_FILLFACTOR / 100.0) / btree_entry_bytes(index);
	IndexamStats stats;
	double		entries;
	double		pages;
	double		level;

	per_page = Max(2, floor(per_page));
	indexam_stats(index, &stats);
	entries = stats.state == INDEX_READY ? (double) stats.entries :
		Max(info->tuples, index->rd_rel->reltuples);
	if (info->indpred != NIL)
		info->tuples = entries;
	level = Max(1, ceil(entries / per_page));
	pages = 1 + level;
	for (info->tree_height = 0; level > 1; info->tree_height++)
	{
		level = ceil(level / per_page);
		pages += level;
	}
	info->pages = (BlockNumber) Min(pages, MaxBlockNumber);
	index_close(index, NoLock);
}

/* As nbtree */
static void
am_costestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup_cost,
				Cost *total_cost, Selectivity *selectivity, double *correlation, double *pages)
{
	ClauseSplit split;
	double		part;

	if (pool_status() == POOL_READY && !path->indexinfo->hypothetical)
		set_size(path->indexinfo);
	cost_split_clauses(path, &split);
	compat_btcostestimate(root, path, split.bounding, loop_count, startup_cost, total_cost,
						  selectivity, correlation, pages);
	part = cost_part_read(root, path, &split);
	*total_cost = *startup_cost + (*total_cost - *startup_cost) * part;
	*pages = ceil(*pages * part);
	*total_cost += indexam_cost_of_looking(path, *selectivity);
	cost_add_missing_part(path->indexinfo, loop_count, startup_cost, total_cost);
}

static bool
am_property(Oid index_oid, int attno, IndexAMProperty prop, const char *propname, bool *res,
			bool *isnull)
{
	if (prop != AMPROP_RETURNABLE || attno == 0)
		return false;			/* the generic answer */
	*res = true;
	return true;
}

/* A placeholder is valid if the btree class that it stands for is. */
static bool
am_validate(Oid opclass)
{
	Oid			btree = opclass_of_btree(opclass);

	if (!OidIsValid(btree))
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator class %u of access method %s has no btree operator class of the same name",
						opclass, INDEX_AM_NAME)));
		return false;
	}
	return btvalidate(btree);
}

/* ---- the handler ---- */

Datum
sofort_index_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *am = makeNode(IndexAmRoutine);

	am->amstrategies = BTMaxStrategyNumber;
	am->amsupport = BTNProcs;	/* operator classes are shared with btree */
	am->amoptsprocnum = BTOPTIONS_PROC;
	am->amcanorder = true;
	am->amcanbackward = true;
	am->amcanunique = true;
	am->amcanmulticol = true;
	am->amoptionalkey = true;
	am->amsearcharray = true;
	am->amsearchnulls = true;
	am->amclusterable = true;
	am->amcaninclude = true;
	am->amcanparallel = true;
	am->ampredlocks = true;
	am->amparallelvacuumoptions = VACUUM_OPTION_NO_PARALLEL;
	am->amkeytype = InvalidOid;

	am->ambuild = am_build;
	am->ambuildempty = am_buildempty;
	am->aminsert = am_insert;
	am->ambulkdelete = am_bulkdelete;
	am->amvacuumcleanup = am_vacuumcleanup;
	am->amcanreturn = am_canreturn;
	am->amcostestimate = am_costestimate;
	am->amoptions = options_parse;
	am->amproperty = am_property;
	am->amvalidate = am_validate;
	am->ambeginscan = am_beginscan;
	am->amrescan = am_rescan;
	am->amgettuple = am_gettuple;
	am->amgetbitmap = am_getbitmap;
	am->amendscan = am_endscan;
	am->ammarkpos = am_markpos;
	am->amrestrpos = am_restrpos;
	am->amestimateparallelscan = am_estimate_parallel_scan;
	am->aminitparallelscan = am_init_parallel_scan;
	am->amparallelrescan = am_parallel_rescan;
	compat_complete_index_routine(am);
	PG_RETURN_POINTER(am);
}

void
indexam_init(void)
{
	options_init();
	if (!process_shared_preload_libraries_in_progress)
		return;
	pending_init();
	opclass_init();
	store_remove_entries = index_remove_entries;
}
