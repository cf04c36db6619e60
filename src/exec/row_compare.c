/*-------------------------------------------------------------------------
 *
 * row_compare.c
 *	  Row comparisons, as in WHERE (a, b) > (1, 2) ORDER BY a, b LIMIT 10.
 *
 * PostgreSQL makes index conditions of them for btree alone, and its executor
 * refuses them for other access methods.  But (a, b) > (1, 2) implies a >= 1:
 * so paths are made with that as an index condition, too, and the comparison
 * stays as a filter.  And it is true of the rows with a = 1 AND b > 2, and of
 * those with a > 1: two scans, one after the other, read no more than btree
 * does, in the same order (README.md, "Row comparisons").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/restrictinfo.h"
#include "sofort/compat/ddl.h"
#include "utils/lsyscache.h"

#include "exec_internal.h"

/* A row comparison in the query, and the conditions that it implies */
typedef struct Comparison
{
	const RestrictInfo *rinfo;
	const RowCompareExpr *row;
	List	   *columns;		/* its side of columns; NIL: it is not read in parts */
	RestrictInfo *bound;		/* on the first one */
	List	   *others;			/* bounds of the query's other comparisons */
} Comparison;

/* One of the parts of a comparison, which have no row in common */
typedef struct Part
{
	List	   *clauses;		/* of RestrictInfo */
	List	   *paths;			/* index scans that read just these rows */
	double		tuples;			/* that are read */
} Part;

static set_rel_pathlist_hook_type next_pathlist;
static planner_hook_type next_planner;
static bool plans_cursor = false;	/* one that WHERE CURRENT OF may name */

/* ---- conditions on one column ---- */

static int
strategy_of(const RowCompareExpr *row, int column)
{
	return get_op_opfamily_strategy(list_nth_oid(row->opnos, column),
									list_nth_oid(row->opfamilies, column));
}

static int
inclusive(int strategy)
{
	if (strategy == BTLessStrategyNumber)
		return BTLessEqualStrategyNumber;
	return strategy == BTGreaterStrategyNumber ? BTGreaterEqualStrategyNumber : strategy;
}

static int
exclusive(int strategy)
{
	if (strategy == BTLessEqualStrategyNumber)
		return BTLessStrategyNumber;
	return strategy == BTGreaterEqualStrategyNumber ? BTGreaterStrategyNumber : strategy;
}

/* A column of the comparison compared by another operator; NULL if there is none */
static RestrictInfo *
column_condition(PlannerInfo *root, const RestrictInfo *rinfo, int column, int strategy)
{
	const RowCompareExpr *row = (const RowCompareExpr *) rinfo->clause;
	Oid			opno;
	Oid			left;
	Oid			right;
	Expr	   *condition;
	RestrictInfo *result;

	op_input_types(list_nth_oid(row->opnos, column), &left, &right);
	opno = get_opfamily_member(list_nth_oid(row->opfamilies, column), left, right, strategy);
	if (!OidIsValid(opno))
		return NULL;
	condition = make_opclause(opno, BOOLOID, false, copyObject(list_nth(row->largs, column)),
							  copyObject(list_nth(row->rargs, column)), InvalidOid,
							  list_nth_oid(row->inputcollids, column));
	set_opfuncid((OpExpr *) condition);
	if (!compat_may_execute(((OpExpr *) condition)->opfuncid))
		return NULL;			/* the query does not name it */
	result = make_simple_restrictinfo(root, condition);
	result->security_level = rinfo->security_level;
	result->leakproof = rinfo->security_level > 0 && !contain_leaked_vars((Node *) condition);
	return result;
}

/* ---- the condition on the first columns ---- */

static Selectivity
selectivity(PlannerInfo *root, RestrictInfo *condition)
{
	return clause_selectivity(root, (Node *) condition, 0, JOIN_INNER, NULL);
}

/*
 * What the comparison implies for the first column; NULL if nothing.  Of an unknown value
 * (a parameter) the planner thinks that as many rows are at it or above as are above it.
 */
static RestrictInfo *
leading_bound(PlannerInfo *root, const RestrictInfo *rinfo)
{
	int			strategy = strategy_of((const RowCompareExpr *) rinfo->clause, 0);
	RestrictInfo *bound = column_condition(root, rinfo, 0, inclusive(strategy));
	RestrictInfo *beyond = column_condition(root, rinfo, 0, exclusive(strategy));
	RestrictInfo *equal = column_condition(root, rinfo, 0, BTEqualStrategyNumber);

	if (bound != NULL && beyond != NULL && equal != NULL)
		bound->norm_selec = Max(selectivity(root, bound),
								Min(1.0, selectivity(root, beyond) + selectivity(root, equal)));
	return bound;
}

/* ---- index paths with further conditions ---- */

static List *
our_indexes(const RelOptInfo *rel)
{
	Oid			index_am = exec_index_am_oid();
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, rel->indexlist)
		if (lfirst_node(IndexOptInfo, lc)->relam == index_am)
			result = lappend(result, lfirst(lc));
	return result;
}

static bool
has_column(IndexOptInfo *index, Node *column)
{
	for (int i = 0; i < index->nkeycolumns; i++)
		if (match_index_to_operand(column, i, index))
			return true;
	return false;
}

/* How many of the columns, from the first one on, does the index have? */
static int
leading_columns(IndexOptInfo *index, const List *columns)
{
	int			n = 0;

	while (n < list_length(columns) && has_column(index, list_nth(columns, n)))
		n++;
	return n;
}

/* Those that have so many of them */
static List *
indexes_with_columns(const List *indexes, const List *columns, int n)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, indexes)
		if (leading_columns(lfirst_node(IndexOptInfo, lc), columns) >= n)
			result = lappend(result, lfirst(lc));
	return result;
}

/* Adds paths for these indexes, as if the conditions were some of the query. */
static void
add_index_paths(PlannerInfo *root, RelOptInfo *rel, List *indexes, List *conditions, bool bitmaps)
{
	List	   *all = rel->indexlist;
	List	   *saved = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, indexes)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		saved = lappend(saved, index->indrestrictinfo);
		index->indrestrictinfo = list_concat_copy(index->indrestrictinfo, conditions);
		index->amhasgetbitmap = bitmaps;
	}
	rel->indexlist = indexes;
	create_index_paths(root, rel);
	rel->indexlist = all;
	forboth(lc, indexes, lc2, saved)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		index->indrestrictinfo = lfirst(lc2);
		index->amhasgetbitmap = true;	/* they are ours */
	}
}

/* ---- a comparison in parts ---- */

/* Do the scan's bounds say all of this? */
static bool
enforces(const IndexPath *path, List *conditions)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, conditions)
	{
		bool		found = false;

		foreach(lc2, path->indexclauses)
		{
			const IndexClause *clause = lfirst_node(IndexClause, lc2);

			if (clause->rinfo == lfirst(lc) && !clause->lossy)
				found = true;
		}
		if (!found)
			return false;
	}
	return true;
}

/*
 * For the part's conditions and, in every part the same, the bounds of other comparisons.
 * Bitmaps, and paths with parameters, are not wanted, so none are made.
 */
static void
find_scans(PlannerInfo *root, RelOptInfo *rel, List *indexes, const Comparison *comparison,
		   Part *part)
{
	List	   *pathlist = rel->pathlist;
	List	   *partial_pathlist = rel->partial_pathlist;
	List	   *joininfo = rel->joininfo;
	bool		has_eclass_joins = rel->has_eclass_joins;
	ListCell   *lc;

	part->tuples = rel->tuples * clauselist_selectivity(root, part->clauses, 0, JOIN_INNER, NULL);
	part->paths = NIL;
	rel->pathlist = rel->partial_pathlist = rel->joininfo = NIL;
	rel->has_eclass_joins = false;
	add_index_paths(root, rel, indexes, list_concat_copy(part->clauses, comparison->others),
					false);
	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);

		if (IsA(path, IndexPath) && path->param_info == NULL &&
			enforces((IndexPath *) path, part->clauses))
		{
			path->rows = clamp_row_est(Min(part->tuples, rel->rows));
			part->paths = lappend(part->paths, path);
		}
	}
	rel->pathlist = pathlist;
	rel->partial_pathlist = partial_pathlist;
	rel->joininfo = joininfo;
	rel->has_eclass_joins = has_eclass_joins;
}

/* The rows that are equal in nequal columns, and beyond in the next one (of depth) */
static bool
make_part(PlannerInfo *root, RelOptInfo *rel, List *indexes, const Comparison *comparison,
		  int nequal, int depth, Part *part)
{
	const RowCompareExpr *row = comparison->row;
	int			strategy = exclusive(strategy_of(row, nequal));

	part->clauses = NIL;
	if (nequal == list_length(row->opnos) - 1)
		strategy = strategy_of(row, nequal);
	else if (nequal == depth - 1)
		strategy = inclusive(strategy);
	for (int i = 0; i <= nequal; i++)
	{
		RestrictInfo *condition = column_condition(root, comparison->rinfo, i,
												   i < nequal ? BTEqualStrategyNumber : strategy);

		if (condition == NULL)
			return false;
		part->clauses = lappend(part->clauses, condition);
	}
	find_scans(root, rel, indexes, comparison, part);
	return part->paths != NIL;
}

/* Cheapest scan of the part in this order; NULL if there is none */
static IndexPath *
scan_in_order(const Part *part, List *pathkeys)
{
	IndexPath  *result = NULL;
	ListCell   *lc;

	foreach(lc, part->paths)
	{
		IndexPath  *path = lfirst(lc);

		if (compare_pathkeys(path->path.pathkeys, pathkeys) == PATHKEYS_EQUAL &&
			(result == NULL || path->path.total_cost < result->path.total_cost))
			result = path;
	}
	return result;
}

/* The same in each part?  (Of a sub-select that is no parameter nobody asks what is in it.) */
static bool
are_fixed(List *values)
{
	return !contain_var_clause((Node *) values) && !contain_subplans((Node *) values) &&
		!contain_mutable_functions((Node *) values);
}

/* The side of the columns, where the other is known before the scan; NIL: it is not */
static List *
columns_of(const RowCompareExpr *row)
{
	if (are_fixed(row->rargs))
		return row->largs;
	return are_fixed(row->largs) ? row->rargs : NIL;
}

/*
 * In this order the parts follow each other if it begins with the columns that tell them
 * apart (all but the last one), and goes the same way in all of them: away from the rows that
 * are equal, which come first then, or towards them.  (What is more for the family of the
 * comparison may be less for that of the order.)
 */
static bool
parts_in_sequence(const RelOptInfo *rel, const Comparison *comparison, int depth,
				  List *pathkeys, bool *equal_first)
{
	const RowCompareExpr *row = comparison->row;
	bool		columns_left = comparison->columns == row->largs;
	int			n = Min(depth - 1, list_length(pathkeys));

	for (int i = 0; i < n; i++)
	{
		const PathKey *pathkey = list_nth_node(PathKey, pathkeys, i);
		int			strategy = get_op_opfamily_strategy(list_nth_oid(row->opnos, i),
														pathkey->pk_opfamily);
		bool		beyond_is_more = (strategy >= BTGreaterEqualStrategyNumber) == columns_left;
		bool		away = compat_pathkey_is_ascending(pathkey) == beyond_is_more;

		if (pathkey->pk_eclass->ec_collation != list_nth_oid(row->inputcollids, i) ||
			strategy == 0 ||
			find_ec_member_matching_expr(pathkey->pk_eclass, list_nth(comparison->columns, i),
										 rel->relids) == NULL ||
			(i > 0 && away != *equal_first))
			return false;
		*equal_first = away;
	}
	return true;
}

/*
 * The parts one after the other, each by a scan in this order.  They read what one scan by
 * the bound reads, less what it would filter, and descend more often.  (The planner's sum
 * would have each of them fetch pages of the table as if alone.)
 */
static bool
add_append_path(PlannerInfo *root, RelOptInfo *rel, const Part *whole, const Part *parts,
				int depth, List *pathkeys, bool equal_first)
{
	IndexPath  *one_scan = scan_in_order(whole, pathkeys);
	List	   *scans = NIL;
	double		tuples = 0;
	Cost		descents = 0;
	AppendPath *append;

	if (one_scan == NULL)
		return false;
	for (int i = 0; i < depth; i++)
	{
		IndexPath  *scan = scan_in_order(&parts[i], pathkeys);

		if (scan == NULL)
			return false;
		scans = equal_first ? lcons(scan, scans) : lappend(scans, scan);
		tuples += parts[i].tuples;
		descents += scan->path.startup_cost;
	}
	append = create_append_path(root, rel, scans, NIL, pathkeys, NULL, 0, false, -1);
	append->path.rows = rel->rows;
	append->path.startup_cost = one_scan->path.startup_cost;
	append->path.total_cost = descents + (one_scan->path.total_cost - one_scan->path.startup_cost) *
		Min(1.0, tuples / Max(whole->tuples, 1.0));
	add_path(rel, (Path *) append);
	return true;
}

/* By the first columns of the comparison, as many as depth says.  False: there is no such path. */
static bool
add_parts(PlannerInfo *root, RelOptInfo *rel, List *indexes, const Comparison *comparison,
		  int depth)
{
	bool		beyond_is_more = (strategy_of(comparison->row, 0) >= BTGreaterEqualStrategyNumber) ==
		(comparison->columns == comparison->row->largs);
	Part		whole = {.clauses = list_make1(comparison->bound)};
	Part	   *parts = palloc(depth * sizeof(Part));
	bool		result = false;
	ListCell   *lc;

	for (int i = 0; i < depth; i++)
		if (!make_part(root, rel, indexes, comparison, i, depth, &parts[i]))
			return false;
	find_scans(root, rel, indexes, comparison, &whole);
	foreach(lc, whole.paths)
	{
		List	   *pathkeys = lfirst_node(IndexPath, lc)->path.pathkeys;
		/* (where no order is wanted, that of btree's scan) */
		bool		equal_first = beyond_is_more;

		if (parts_in_sequence(rel, comparison, depth, pathkeys, &equal_first) &&
			add_append_path(root, rel, &whole, parts, depth, pathkeys, equal_first))
			result = true;
	}
	return result;
}

/*
 * Not where EvalPlanQual may check a row again: it offers the row to one scan of the table
 * alone.  Nor for cursors: WHERE CURRENT OF wants a single scan of it.
 */
static bool
may_read_in_parts(const PlannerInfo *root, const RelOptInfo *rel)
{
	return root->parse->commandType == CMD_SELECT && root->parse->rowMarks == NIL &&
		root->rowMarks == NIL && rel->reloptkind == RELOPT_BASEREL && !plans_cursor;
}

/* By as many columns as an index allows */
static void
read_in_parts(PlannerInfo *root, RelOptInfo *rel, List *indexes, const RestrictInfo *rinfo,
			  RestrictInfo *bound, List *bounds)
{
	Comparison	comparison = {
		.rinfo = rinfo,
		.row = (const RowCompareExpr *) rinfo->clause,
		.columns = columns_of((const RowCompareExpr *) rinfo->clause),
		.bound = bound,
		.others = list_delete_ptr(list_copy(bounds), bound),
	};

	for (int depth = list_length(comparison.columns); depth > 1; depth--)
	{
		List	   *able = indexes_with_columns(indexes, comparison.columns, depth);

		if (able != NIL && add_parts(root, rel, able, &comparison, depth))
			break;
	}
}

/* ---- hooks ---- */

static bool
any_has_first_column(const List *indexes, const RowCompareExpr *row)
{
	return indexes_with_columns(indexes, list_make1(linitial(row->largs)), 1) != NIL ||
		indexes_with_columns(indexes, list_make1(linitial(row->rargs)), 1) != NIL;
}

static void
add_paths(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *indexes = our_indexes(rel);
	List	   *rinfos = NIL;
	List	   *bounds = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	if (indexes == NIL)
		return;
	foreach(lc, rel->baserestrictinfo)
	{
		const RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		RestrictInfo *bound;

		if (!IsA(rinfo->clause, RowCompareExpr) ||
			!any_has_first_column(indexes, (const RowCompareExpr *) rinfo->clause) ||
			(bound = leading_bound(root, rinfo)) == NULL)
			continue;
		rinfos = lappend(rinfos, lfirst(lc));
		bounds = lappend(bounds, bound);
	}
	if (bounds == NIL)
		return;
	add_index_paths(root, rel, indexes, bounds, true);
	if (!may_read_in_parts(root, rel))
		return;
	forboth(lc, rinfos, lc2, bounds)
		read_in_parts(root, rel, indexes, lfirst(lc), lfirst(lc2), bounds);
}

static void
row_compare_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (next_pathlist)
		next_pathlist(root, rel, rti, rte);
	/*
	 * (indexes of a partitioned table cannot be scanned: since 16 they are listed, without
	 * functions)
	 */
	if (rte->rtekind == RTE_RELATION && !rte->inh && rte->tablesample == NULL &&
		rel->indexlist != NIL && !IS_DUMMY_REL(rel) && OidIsValid(exec_table_am_oid()))
		add_paths(root, rel);
}

static PlannedStmt *
row_compare_planner(Query *parse, const char *query_string, int cursor_options,
					ParamListInfo params)
{
	bool		saved = plans_cursor;
	PlannedStmt *result;

	/* DECLARE CURSOR and PL/pgSQL's cursors set this option */
	plans_cursor = (cursor_options & CURSOR_OPT_FAST_PLAN) != 0;
	PG_TRY();
	{
		result = next_planner ? next_planner(parse, query_string, cursor_options, params) :
			standard_planner(parse, query_string, cursor_options, params);
	}
	PG_FINALLY();
	{
		plans_cursor = saved;
	}
	PG_END_TRY();
	return result;
}

void
row_compare_init(void)
{
	next_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = row_compare_pathlist;
	next_planner = planner_hook;
	planner_hook = row_compare_planner;
}
