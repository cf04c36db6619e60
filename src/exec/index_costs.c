/*-------------------------------------------------------------------------
 *
 * index_costs.c
 *	  What the planner is told about index-only scans by btree indexes.
 *
 * An index-only scan of a sofort table looks at each row, or at its block.  The costs of
 * sofort indexes say so; those of btree expect a visibility map, of which a few pages
 * serve all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_am.h"
#include "optimizer/plancat.h"
#include "sofort/indexam/indexam.h"
#include "utils/index_selfuncs.h"

#include "exec_internal.h"

static get_relation_info_hook_type next_get_relation_info;

static void
btree_costs(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup, Cost *total,
			Selectivity *selectivity, double *correlation, double *pages)
{
	btcostestimate(root, path, loop_count, startup, total, selectivity, correlation, pages);
	*total += indexam_cost_of_looking(path, *selectivity);
}

static void
adjust_indexes(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	Oid			am = exec_table_am_oid();
	ListCell   *lc;

	if (next_get_relation_info)
		next_get_relation_info(root, relid, inhparent, rel);
	if (rel->indexlist == NIL || !OidIsValid(am) || exec_relation_am(relid) != am)
		return;
	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		if (index->relam == BTREE_AM_OID)
			index->amcostestimate = btree_costs;
	}
}

void
index_costs_init(void)
{
	next_get_relation_info = get_relation_info_hook;
	get_relation_info_hook = adjust_indexes;
}
