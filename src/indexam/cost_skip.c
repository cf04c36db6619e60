/*-------------------------------------------------------------------------
 *
 * cost_skip.c
 *	  How much of the range of an index a scan reads.
 *
 * Entries that scan_skip.c passes over cost nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/relation.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "sofort/compat/selfuncs.h"
#include "utils/lsyscache.h"

#include "am_internal.h"

/* Operator of a clause that compares its column; InvalidOid: another kind of clause */
static Oid
clause_operator(const Node *qual)
{
	if (IsA(qual, OpExpr))
		return ((const OpExpr *) qual)->opno;
	if (IsA(qual, ScalarArrayOpExpr))
		return ((const ScalarArrayOpExpr *) qual)->opno;
	return InvalidOid;
}

/* Does the clause fix the value of its column ("=", "= ANY", IS NULL)? */
static bool
fixes_column(const IndexPath *path, const IndexClause *clause)
{
	Oid			opfamily = path->indexinfo->opfamily[clause->indexcol];
	ListCell   *lc;

	foreach(lc, clause->indexquals)
	{
		Node	   *qual = (Node *) lfirst_node(RestrictInfo, lc)->clause;
		Oid			op = clause_operator(qual);

		if (IsA(qual, NullTest) && castNode(NullTest, qual)->nulltesttype == IS_NULL)
			return true;
		if (OidIsValid(op) && get_op_opfamily_strategy(op, opfamily) == BTEqualStrategyNumber)
			return true;
	}
	return false;
}

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/* Are its values of the column's type, so that their bytes are known? */
static bool
has_bytes(const IndexOptInfo *info, const IndexClause *clause)
{
	Oid			type = info->opcintype[clause->indexcol];
	ListCell   *lc;

	foreach(lc, clause->indexquals)
	{
		Node	   *qual = (Node *) lfirst_node(RestrictInfo, lc)->clause;
		Oid			op = clause_operator(qual);
		Oid			left;
		Oid			right;

		if (IsA(qual, NullTest))
			continue;
		if (!OidIsValid(op))
			return false;
		op_input_types(op, &left, &right);
		if (right != type && !(IsA(qual, OpExpr) && is_integer(right) && is_integer(type)))
			return false;
	}
	return true;
}

static bool
has_array(const IndexClause *clause)
{
	ListCell   *lc;

	foreach(lc, clause->indexquals)
		if (IsA(lfirst_node(RestrictInfo, lc)->clause, ScalarArrayOpExpr))
			return true;
	return false;
}

/* May the clause be one of those by which entries are passed over? */
static bool
continues_skipping(const IndexPath *path, const ClauseSplit *split, const IndexClause *clause)
{
	ListCell   *lc;

	if (split->skipping == NIL || clause->indexcol == split->last)
		return true;
	if (clause->indexcol > split->last + 1 || has_array(clause) ||
		!has_bytes(path->indexinfo, clause))
		return false;
	/* does the column before it have one value? */
	foreach(lc, split->skipping)
	{
		const IndexClause *other = lfirst_node(IndexClause, lc);

		if (other->indexcol == split->last && !has_array(other) && fixes_column(path, other))
			return true;
	}
	return false;
}

void
cost_split_clauses(const IndexPath *path, ClauseSplit *split)
{
	ListCell   *lc;

	memset(split, 0, sizeof(*split));
	foreach(lc, path->indexclauses)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);

		if (clause->indexcol <= split->nfixed)
		{
			split->bounding = lappend(split->bounding, clause);
			if (clause->indexcol == split->nfixed && fixes_column(path, clause))
				split->nfixed++;
		}
		else if (continues_skipping(path, split, clause))
		{
			if (split->skipping == NIL)
				split->column = clause->indexcol;
			split->skipping = lappend(split->skipping, clause);
			split->last = clause->indexcol;
		}
	}
}

/* Do bytes decide, but for values that are long? */
static bool
is_decided(const KeyColumn *column)
{
	return column->kind != KEY_OPAQUE && column->kind != KEY_NUMERIC;
}

/*
 * Entries of a full leaf; 0: a column before the first one of those by which entries are
 * passed over is not decided by bytes. *last: becomes the last one that counts.
 */
static int
leaf_entries(Oid index_oid, int first, int *last)
{
	Relation	index = index_open(index_oid, NoLock);
	KeyFormat	format;
	int			decided = 0;

	keys_format(index, &format);
	index_close(index, NoLock);
	while (decided < format.ncolumns && is_decided(&format.columns[decided]))
		decided++;
	if (first > decided || first >= format.ncolumns)
		return 0;
	*last = Min(*last, Min(decided, format.ncolumns - 1));
	return TREE_NODE_SIZE / keys_stride(&format);
}

/* 0: not known */
static double
distinct_values(PlannerInfo *root, const IndexOptInfo *info, int column)
{
	TargetEntry *entry = list_nth_node(TargetEntry, info->indextlist, column);
	VariableStatData vardata;
	bool		is_default;
	double		n;

	examine_variable(root, (Node *) entry->expr, 0, &vardata);
	n = get_variable_numdistinct(&vardata, &is_default);
	ReleaseVariableStats(vardata);
	return is_default ? 0 : n;
}

/* Elements of an array with "="; 1: there is none */
static double
array_elements(PlannerInfo *root, const IndexPath *path, const IndexClause *clause)
{
	Oid			opfamily = path->indexinfo->opfamily[clause->indexcol];
	double		result = 1;
	ListCell   *lc;

	foreach(lc, clause->indexquals)
	{
		Node	   *qual = (Node *) lfirst_node(RestrictInfo, lc)->clause;
		double		n;

		if (!IsA(qual, ScalarArrayOpExpr) ||
			get_op_opfamily_strategy(clause_operator(qual), opfamily) != BTEqualStrategyNumber)
			continue;
		n = compat_array_length(root, lsecond(castNode(ScalarArrayOpExpr, qual)->args));
		result *= Max(1, n);
	}
	return result;
}

/* How many ranges arrays of the fixed columns make */
static double
ranges(PlannerInfo *root, const IndexPath *path, const ClauseSplit *split)
{
	double		result = 1;
	ListCell   *lc;

	foreach(lc, split->bounding)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);

		if (clause->indexcol < split->nfixed)
			result *= array_elements(root, path, clause);
	}
	return result;
}

/*
 * Leaves of each combination of values of the columns before: where each value is looked
 * for, and where the next combination begins.
 */
static double
leaves_per_group(PlannerInfo *root, const IndexPath *path, const ClauseSplit *split)
{
	double		values = 0;
	ListCell   *lc;

	foreach(lc, split->skipping)
	{
		double		n = array_elements(root, path, lfirst_node(IndexClause, lc));

		values = values == 0 ? n : Min(values, n);
	}
	return values + 1;
}

/* Of the clauses of columns from "first" to "last" */
static double
selectivity_of(PlannerInfo *root, const IndexOptInfo *info, List *clauses, int first, int last)
{
	List	   *infos = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);

		if (clause->indexcol >= first && clause->indexcol <= last)
			infos = lappend(infos, clause->rinfo);
	}
	return clauselist_selectivity(root, infos, info->rel->relid, JOIN_INNER, NULL);
}

double
cost_part_read(PlannerInfo *root, const IndexPath *path, const ClauseSplit *split)
{
	const IndexOptInfo *info = path->indexinfo;
	double		range;
	double		groups;
	double		leaves;
	int			last = split->last;
	int			per_leaf;
	ListCell   *lc;

	if (split->skipping == NIL || info->hypothetical)
		return 1;
	foreach(lc, split->skipping)
		if (!has_bytes(info, lfirst_node(IndexClause, lc)))
			return 1;
	per_leaf = leaf_entries(info->indexoid, split->column, &last);
	groups = ranges(root, path, split) *
		selectivity_of(root, info, split->bounding, split->nfixed, split->column);
	for (int i = split->nfixed; i < split->column; i++)
		groups *= distinct_values(root, info, i);
	if (per_leaf == 0 || groups == 0)
		return 1;
	leaves = Max(1, groups) * leaves_per_group(root, path, split);
	range = Max(1, info->tuples * selectivity_of(root, info, split->bounding, 0, last));
	return Min(1, leaves * per_leaf / range + selectivity_of(root, info, split->skipping, 0, last));
}
