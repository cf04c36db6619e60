/*-------------------------------------------------------------------------
 *
 * what_if.c
 *	  What a query would cost with and without the indexes that it uses.
 *
 * The planner is asked: with all indexes complete; without each of those that it then
 * uses, which shows the next best; and for each set of the most important ones.  So the
 * costs include how indexes depend on each other.  This happens once per kind of
 * statement, and again when the description is old.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "portability/instr_time.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "exec_internal.h"

/* Indexes that are looked at before the most important ones are chosen */
#define MAX_CANDIDATES		8

/* A query that takes longer to plan is explored less thoroughly. */
#define SLOW_PLANNING_MS	5.0

typedef struct Candidate
{
	Oid			index;
	Oid			table;
	double		check_cost;		/* what uniqueness checks cost more without it */
	double		loss;			/* what the query costs more if only this one is missing */
} Candidate;

typedef struct WhatIf
{
	const Query *query;
	const char *text;
	int			options;
	ParamListInfo params;
	Oid			index_am;
	Candidate	candidates[MAX_CANDIDATES];
	int			n;
	bool		overflow;		/* there were more */
} WhatIf;

/* ---- calls that planning evaluates ---- */

static bool
may_be_evaluated(Oid function, void *arg)
{
	return function >= FirstNormalObjectId && func_volatile(function) != PROVOLATILE_VOLATILE;
}

static bool
has_calls(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, may_be_evaluated, NULL))
		return true;
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), has_calls, arg, 0);
	return expression_tree_walker(node, has_calls, arg);
}

/* Does a value depend on more than constants and parameters? */
static bool
has_inputs(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
		case T_SubLink:
		case T_Aggref:
		case T_GroupingFunc:
		case T_WindowFunc:
		case T_CaseTestExpr:
		case T_CoerceToDomainValue:
		case T_SetToDefault:
		case T_NextValueExpr:
			return true;
		case T_Param:
			return castNode(Param, node)->paramkind != PARAM_EXTERN;
		default:
			return expression_tree_walker(node, has_inputs, arg);
	}
}

static Node *replace_calls(Node *node, void *arg);

/* Conditions for which planning fails unless it can evaluate them are left as they are. */
static Node *
replace_elsewhere(Node *node, void *arg)
{
	Node	   *result = expression_tree_mutator(node, replace_calls, arg);

	if (IsA(node, OnConflictExpr))
	{
		castNode(OnConflictExpr, result)->arbiterElems = castNode(OnConflictExpr, node)->arbiterElems;
		castNode(OnConflictExpr, result)->arbiterWhere = castNode(OnConflictExpr, node)->arbiterWhere;
	}
	else if (castNode(JoinExpr, node)->jointype == JOIN_FULL)
		castNode(JoinExpr, result)->quals = castNode(JoinExpr, node)->quals;
	return result;
}

/* Parameters without a value: numbers that no query has */
static Node *
replace_calls(Node *node, void *arg)
{
	int		   *next = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, OnConflictExpr) || IsA(node, JoinExpr))
		return replace_elsewhere(node, arg);
	if (IsA(node, Query))
		return (Node *) query_tree_mutator(castNode(Query, node), replace_calls, arg, 0);
	if (check_functions_in_node(node, may_be_evaluated, NULL) && !has_inputs(node, NULL) &&
		!contain_volatile_functions(node) && !expression_returns_set(node) &&
		get_typtype(exprType(node)) != TYPTYPE_PSEUDO)
	{
		Param	   *param = makeNode(Param);

		param->paramkind = PARAM_EXTERN;
		param->paramid = (*next)--;
		param->paramtype = exprType(node);
		param->paramtypmod = exprTypmod(node);
		param->paramcollid = exprCollation(node);
		param->location = -1;
		return (Node *) param;
	}
	return expression_tree_mutator(node, replace_calls, arg);
}

/*
 * An index whose column is compared with a call is used in the same way for an unknown
 * value.  A call with columns is left, because it may be the expression of an index:
 * planning could evaluate it if a column turns out to be constant, or within an SQL
 * function.
 */
Query *
what_if_without_calls(Query *query)
{
	int			next = PG_INT32_MAX;

	query = (Query *) replace_calls((Node *) query, &next);
	return has_calls((Node *) query, NULL) ? NULL : query;
}

/* ---- which indexes a plan uses ---- */

static Candidate *
add_candidate(WhatIf *w, Oid index, Oid table)
{
	for (int i = 0; i < w->n; i++)
		if (w->candidates[i].index == index)
			return &w->candidates[i];
	if (!indexam_is_volatile(index))
		return NULL;
	if (w->n == MAX_CANDIDATES)
	{
		w->overflow = true;
		return NULL;
	}
	w->candidates[w->n] = (Candidate) {.index = index, .table = table};
	return &w->candidates[w->n++];
}

static void find_in_plans(WhatIf *w, List *plans, List *rtable);

static void
find_in_plan(WhatIf *w, Plan *plan, List *rtable)
{
	Oid			index = InvalidOid;

	if (plan == NULL)
		return;
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			index = ((IndexScan *) plan)->indexid;
			break;
		case T_IndexOnlyScan:
			index = ((IndexOnlyScan *) plan)->indexid;
			break;
		case T_BitmapIndexScan:
			index = ((BitmapIndexScan *) plan)->indexid;
			break;
		case T_Append:
			find_in_plans(w, ((Append *) plan)->appendplans, rtable);
			break;
		case T_MergeAppend:
			find_in_plans(w, ((MergeAppend *) plan)->mergeplans, rtable);
			break;
		case T_BitmapAnd:
			find_in_plans(w, ((BitmapAnd *) plan)->bitmapplans, rtable);
			break;
		case T_BitmapOr:
			find_in_plans(w, ((BitmapOr *) plan)->bitmapplans, rtable);
			break;
		case T_SubqueryScan:
			find_in_plan(w, ((SubqueryScan *) plan)->subplan, rtable);
			break;
		case T_CustomScan:
			find_in_plans(w, ((CustomScan *) plan)->custom_plans, rtable);
			break;
		default:
			break;
	}
	if (OidIsValid(index))
		(void) add_candidate(w, index, rt_fetch(((Scan *) plan)->scanrelid, rtable)->relid);
	find_in_plan(w, plan->lefttree, rtable);
	find_in_plan(w, plan->righttree, rtable);
}

static void
find_in_plans(WhatIf *w, List *plans, List *rtable)
{
	ListCell   *lc;

	foreach(lc, plans)
		find_in_plan(w, lfirst(lc), rtable);
}

/*
 * Unique indexes of a table that the statement inserts into, or updates in an
 * indexed column, are looked up for each row.  For many rows it pays to wait for
 * the index instead.
 */
static void
find_checks(WhatIf *w, PlannedStmt *plan, Index target)
{
	RangeTblEntry *rte = rt_fetch(target, plan->rtable);
	const Bitmapset *updated = compat_updated_columns(plan, rte);
	Relation	table = table_open(rte->relid, NoLock);
	double		rows = 1;
	List	   *indexes;
	ListCell   *lc;

	if (table->rd_rel->relam != exec_table_am_oid())
	{
		table_close(table, NoLock);
		return;
	}
	if (outerPlan(plan->planTree) != NULL)
		rows = Max(1, outerPlan(plan->planTree)->plan_rows);
	indexes = RelationGetIndexList(table);
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Candidate  *c = NULL;
		bool		checked = index->rd_index->indisunique;

		for (int k = 0; checked && plan->commandType == CMD_UPDATE; k++)
		{
			if (k == index->rd_index->indnkeyatts)
				checked = false;	/* no column of it */
			else if (bms_is_member(index->rd_index->indkey.values[k] -
								   FirstLowInvalidHeapAttributeNumber, updated))
				break;
		}
		if (checked)
			c = add_candidate(w, RelationGetRelid(index), RelationGetRelid(table));
		if (c != NULL)
		{
			BlockNumber pages;
			double		tuples;
			double		allvisfrac;

			table_relation_estimate_size(table, NULL, &pages, &tuples, &allvisfrac);
			c->check_cost = Min(rows * indexam_cost_without(index, pages, tuples),
								indexam_cost_rebuild(pages, tuples));
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	table_close(table, NoLock);
}

static void
find_candidates(WhatIf *w, PlannedStmt *plan)
{
	find_in_plan(w, plan->planTree, plan->rtable);
	find_in_plans(w, plan->subplans, plan->rtable);
}

/* ---- costs ---- */

static PlannedStmt *
plan_assuming(const WhatIf *w, IndexamAssumption assumption, const Oid *indexes, int n)
{
	indexam_assume(assumption, indexes, n);
	return standard_planner(copyObject(unconstify(Query *, w->query)), w->text, w->options,
							w->params);
}

static void
find_losses(WhatIf *w, double complete)
{
	int			used = w->n;	/* what is found below are substitutes */

	for (int i = 0; i < used; i++)
	{
		PlannedStmt *plan = plan_assuming(w, INDEXAM_ALL_BUT, &w->candidates[i].index, 1);

		w->candidates[i].loss = plan->planTree->total_cost - complete +
			w->candidates[i].check_cost;
		find_candidates(w, plan);
	}
}

static int
compare_loss(const void *a, const void *b)
{
	const Candidate *x = a;
	const Candidate *y = b;

	if (x->loss != y->loss)
		return x->loss > y->loss ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Fills in the cost for each set of the structures of the kind. */
static void
fill_costs(const WhatIf *w, WorkloadKind *kind)
{
	bool		exact = !w->overflow && w->n == kind->nstructures;

	for (int m = 0; m < 1 << kind->nstructures; m++)
	{
		Oid			list[WORKLOAD_STRUCTURES];
		int			n = 0;
		double		checks = 0;

		for (int k = 0; k < kind->nstructures; k++)
		{
			bool		there = (m >> k) & 1;

			if (there == exact)
				list[n++] = kind->structures[k];
			if (!there)
				checks += w->candidates[k].check_cost;
		}
		/*
		 * unless all indexes that may help are among the structures, the others count as
		 * complete
		 */
		kind->cost[m] = checks +
			plan_assuming(w, exact ? INDEXAM_NONE_BUT : INDEXAM_ALL_BUT, list, n)->planTree->total_cost;
	}
}

static void
explore(WhatIf *w, WorkloadKind *kind)
{
	instr_time	start;
	instr_time	end;
	PlannedStmt *plan;
	ListCell   *lc;
	bool		slow;

	INSTR_TIME_SET_CURRENT(start);
	plan = plan_assuming(w, INDEXAM_ALL_BUT, NULL, 0);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	slow = INSTR_TIME_GET_MILLISEC(end) > SLOW_PLANNING_MS;

	kind->command = plan->commandType;
	kind->cost[0] = plan->planTree->total_cost;
	find_candidates(w, plan);
	if (plan->commandType == CMD_INSERT || plan->commandType == CMD_UPDATE)
		foreach(lc, plan->resultRelations)
			find_checks(w, plan, lfirst_int(lc));
	if (w->n == 0)
		return;
	find_losses(w, plan->planTree->total_cost);
	qsort(w->candidates, w->n, sizeof(Candidate), compare_loss);
	kind->nstructures = Min(w->n, slow ? 2 : WORKLOAD_STRUCTURES);
	for (int k = 0; k < kind->nstructures; k++)
	{
		kind->structures[k] = w->candidates[k].index;
		kind->tables[k] = w->candidates[k].table;
	}
	fill_costs(w, kind);
}

/*
 * enable_seqscan and the like are set for a session's plans, and would make the costs
 * useless.  Functions called to estimate selectivities may emit messages, which the client
 * has received already.
 */
static void
allow_all_plans(void)
{
	static const char *const settings[] = {
		"enable_seqscan", "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan",
		"enable_sort", "enable_material", "enable_nestloop", "enable_hashjoin", "enable_mergejoin"
	};

	for (int i = 0; i < (int) lengthof(settings); i++)
		(void) set_config_option(settings[i], "on", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	(void) set_config_option("client_min_messages", "error", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("log_min_messages", "error", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
what_if_describe(const Query *query, const char *text, int options, ParamListInfo params,
				 WorkloadKind *kind)
{
	WhatIf		w = {.query = query, .text = text, .options = options, .params = params};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "sofort what-if plans",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			nest_level = NewGUCNestLevel();

	allow_all_plans();
	PG_TRY();
	{
		explore(&w, kind);
	}
	PG_FINALLY();
	{
		indexam_assume(INDEXAM_AS_IT_IS, NULL, 0);
	}
	PG_END_TRY();
	AtEOXact_GUC(true, nest_level);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
