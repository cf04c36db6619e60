/*-------------------------------------------------------------------------
 *
 * row_compare.c
 *	  Row comparisons, as in WHERE (a, b) > (1, 2) ORDER BY a, b LIMIT 10.
 *
 * PostgreSQL makes index conditions of them for btree alone, and its executor
 * refuses them for other access methods.  But (a, b) > (1, 2) implies a >= 1:
 * so paths are made with that as an index condition, too, and the comparison
 * stays as a filter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "sofort/compat/ddl.h"
#include "utils/lsyscache.h"

#include "exec_internal.h"

static set_rel_pathlist_hook_type next_pathlist;

/* The condition on the first columns that the comparison implies; NULL if none */
static RestrictInfo *
leading_bound(PlannerInfo *root, const RestrictInfo *rinfo)
{
	const RowCompareExpr *row = (const RowCompareExpr *) rinfo->clause;
	Oid			opno = linitial_oid(row->opnos);
	Oid			family = linitial_oid(row->opfamilies);
	int			strategy = get_op_opfamily_strategy(opno, family);
	Oid			left;
	Oid			right;
	Expr	   *bound;
	RestrictInfo *result;

	if (strategy == BTLessStrategyNumber)
		strategy = BTLessEqualStrategyNumber;
	else if (strategy == BTGreaterStrategyNumber)
		strategy = BTGreaterEqualStrategyNumber;
	op_input_types(opno, &left, &right);
	opno = get_opfamily_member(family, left, right, strategy);
	if (!OidIsValid(opno))
		return NULL;
	bound = make_opclause(opno, BOOLOID, false, copyObject(linitial(row->largs)),
						  copyObject(linitial(row->rargs)), InvalidOid,
						  linitial_oid(row->inputcollids));
	set_opfuncid((OpExpr *) bound);
	if (!compat_may_execute(((OpExpr *) bound)->opfuncid))
		return NULL;			/* the query does not name it */
	result = make_simple_restrictinfo(root, bound);
	result->security_level = rinfo->security_level;
	result->leakproof = rinfo->security_level > 0 && !contain_leaked_vars((Node *) bound);
	return result;
}

static List *
leading_bounds(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		const RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		RestrictInfo *bound;

		if (IsA(rinfo->clause, RowCompareExpr) &&
			(bound = leading_bound(root, rinfo)) != NULL)
			result = lappend(result, bound);
	}
	return result;
}

/* Adds paths for our indexes, as if the bounds were conditions of the query. */
static void
add_paths(PlannerInfo *root, RelOptInfo *rel, List *bounds)
{
	Oid			index_am = exec_index_am_oid();
	List	   *ours = NIL;
	List	   *all = rel->indexlist;
	List	   *saved = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		if (index->relam != index_am)
			continue;
		ours = lappend(ours, index);
		saved = lappend(saved, index->indrestrictinfo);
		index->indrestrictinfo = list_concat_copy(index->indrestrictinfo, bounds);
	}
	if (ours == NIL)
		return;
	rel->indexlist = ours;
	create_index_paths(root, rel);
	rel->indexlist = all;
	forboth(lc, ours, lc2, saved)
		((IndexOptInfo *) lfirst(lc))->indrestrictinfo = lfirst(lc2);
}

static void
row_compare_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	List	   *bounds;

	if (next_pathlist)
		next_pathlist(root, rel, rti, rte);
	/*
	 * (indexes of a partitioned table cannot be scanned: since 16 they are listed, without
	 * functions)
	 */
	if (rte->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL ||
		rel->indexlist == NIL || IS_DUMMY_REL(rel) || !OidIsValid(exec_table_am_oid()))
		return;
	bounds = leading_bounds(root, rel);
	if (bounds != NIL)
		add_paths(root, rel, bounds);
}

void
row_compare_init(void)
{
	next_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = row_compare_pathlist;
}
