/*-------------------------------------------------------------------------
 *
 * plan_hooks.c
 *	  Changes to a plan that is about to run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "sofort/compat/ddl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "exec_internal.h"

typedef struct StartedPlan
{
	Oid			table_am;
	Oid			index_am;
} StartedPlan;

#if SOFORT_PREOPEN_ARBITERS

/* What BuildSpeculativeIndexInfo() does for btree. */
static void
add_speculative_info(Relation index, IndexInfo *info)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	info->ii_UniqueOps = palloc(sizeof(Oid) * n);
	info->ii_UniqueProcs = palloc(sizeof(Oid) * n);
	info->ii_UniqueStrats = palloc(sizeof(uint16) * n);
	for (int i = 0; i < n; i++)
	{
		Oid			op = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
											 index->rd_opcintype[i], BTEqualStrategyNumber);

		if (!OidIsValid(op))
			elog(ERROR, "missing equality operator for type %u in operator family %u",
				 index->rd_opcintype[i], index->rd_opfamily[i]);
		info->ii_UniqueStrats[i] = BTEqualStrategyNumber;
		info->ii_UniqueOps[i] = op;
		info->ii_UniqueProcs[i] = get_opcode(op);
	}
}

/*
 * ExecInsert() opens the indexes of its target unless they are open.  With ON CONFLICT it
 * insists that all unique ones are btrees, so they are opened here; the executor closes
 * them at its end.
 */
static void
open_arbiters(ResultRelInfo *target)
{
	Relation	rel = target->ri_RelationDesc;
	List	   *indexes;
	ListCell   *lc;
	int			i = 0;

	if (target->ri_IndexRelationDescs != NULL || !rel->rd_rel->relhasindex ||
		rel->rd_rel->relkind != RELKIND_RELATION)
		return;
	indexes = RelationGetIndexList(rel);
	if (indexes == NIL)
		return;
	target->ri_IndexRelationDescs = palloc(sizeof(Relation) * list_length(indexes));
	target->ri_IndexRelationInfo = palloc(sizeof(IndexInfo *) * list_length(indexes));
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);
		IndexInfo  *info = BuildIndexInfo(index);

		if (info->ii_Unique)
			add_speculative_info(index, info);
		target->ri_IndexRelationDescs[i] = index;
		target->ri_IndexRelationInfo[i] = info;
		target->ri_NumIndices = ++i;
	}
	list_free(indexes);
}

static void
prepare_modify(ModifyTableState *state, const StartedPlan *plan)
{
	if (castNode(ModifyTable, state->ps.plan)->onConflictAction == ONCONFLICT_NONE)
		return;
	for (int i = 0; i < state->mt_nrels; i++)
		if (state->resultRelInfo[i].ri_RelationDesc->rd_rel->relam == plan->table_am)
			open_arbiters(&state->resultRelInfo[i]);
}
#endif

static bool
prepare_node(PlanState *node, void *arg)
{
	if (node == NULL)
		return false;
	needed_columns(node);
#if SOFORT_PREOPEN_ARBITERS
	if (IsA(node, ModifyTableState))
		prepare_modify((ModifyTableState *) node, arg);
#endif
#if SOFORT_EXECUTOR_PREFETCHES
	/* the main fork of a sofort table is empty: there is nothing to prefetch */
	if (IsA(node, BitmapHeapScanState))
	{
		BitmapHeapScanState *scan = (BitmapHeapScanState *) node;

		if (scan->ss.ss_currentRelation->rd_rel->relam == ((StartedPlan *) arg)->table_am)
			scan->prefetch_maximum = 0;
	}
#endif
	return planstate_tree_walker(node, prepare_node, arg);
}

void
plan_started(QueryDesc *desc, int eflags)
{
	EState	   *estate = desc->estate;
	StartedPlan plan;
	MemoryContext old;
	ListCell   *lc;

	if (desc->planstate == NULL)
		return;
	plan.table_am = exec_table_am_oid();
	if (!OidIsValid(plan.table_am))
		return;

	old = MemoryContextSwitchTo(estate->es_query_cxt);
	prepare_node(desc->planstate, &plan);
	foreach(lc, estate->es_subplanstates)
		prepare_node(lfirst(lc), &plan);
#if SOFORT_PREOPEN_ARBITERS
	foreach(lc, estate->es_auxmodifytables)
		prepare_modify(lfirst(lc), &plan);
#endif
	MemoryContextSwitchTo(old);
}
