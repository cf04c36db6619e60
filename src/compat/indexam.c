/*-------------------------------------------------------------------------
 *
 * indexam.c
 *	  What differs between PostgreSQL versions for the index access method.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "sofort/compat/indexam.h"
#include "utils/fmgrprotos.h"
#include "utils/index_selfuncs.h"

#if PG_VERSION_NUM >= 180000
#include "access/cmptype.h"

/* Strategies are those of btree, whose operator families the indexes use. */
static StrategyNumber
translate_cmptype(CompareType cmptype, Oid opfamily)
{
	switch (cmptype)
	{
		case COMPARE_LT:
			return BTLessStrategyNumber;
		case COMPARE_LE:
			return BTLessEqualStrategyNumber;
		case COMPARE_EQ:
			return BTEqualStrategyNumber;
		case COMPARE_GE:
			return BTGreaterEqualStrategyNumber;
		case COMPARE_GT:
			return BTGreaterStrategyNumber;
		default:
			return InvalidStrategy;
	}
}

static CompareType
translate_strategy(StrategyNumber strategy, Oid opfamily)
{
	switch (strategy)
	{
		case BTLessStrategyNumber:
			return COMPARE_LT;
		case BTLessEqualStrategyNumber:
			return COMPARE_LE;
		case BTEqualStrategyNumber:
			return COMPARE_EQ;
		case BTGreaterEqualStrategyNumber:
			return COMPARE_GE;
		case BTGreaterStrategyNumber:
			return COMPARE_GT;
		default:
			return COMPARE_INVALID;
	}
}
#endif

/* 15 does not look at the database's one where a column has the default collation. */
Datum
compat_collation_actual_version(FunctionCallInfo fcinfo)
{
#if PG_VERSION_NUM < 160000
	if (PG_GETARG_OID(0) == DEFAULT_COLLATION_OID)
	{
		fcinfo->args[0].value = ObjectIdGetDatum(MyDatabaseId);
		return pg_database_collation_actual_version(fcinfo);
	}
#endif
	return pg_collation_actual_version(fcinfo);
}

void
compat_complete_index_routine(IndexAmRoutine *am)
{
#if PG_VERSION_NUM >= 180000
	am->amconsistentequality = true;
	am->amconsistentordering = true;
	am->amtranslatestrategy = translate_strategy;
	am->amtranslatecmptype = translate_cmptype;
#endif
}

/* ---- costs ---- */

void
compat_btcostestimate(PlannerInfo *root, IndexPath *path, List *bounding, double loop_count,
					  Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
					  double *correlation, double *pages)
{
	IndexPath	bounded = *path;
	int			nfilters = list_length(path->indexclauses) - list_length(bounding);
	Selectivity all;
	double		ignored;

	btcostestimate(root, path, loop_count, startup_cost, total_cost, selectivity, correlation,
				   pages);
	if (nfilters == 0)
		return;
	/* the rest only filters what is read; arrays there make no scans of their own */
	bounded.indexclauses = bounding;
	btcostestimate(root, &bounded, loop_count, startup_cost, total_cost, &all, &ignored, pages);
	*total_cost += Min(all * path->indexinfo->rel->tuples, path->indexinfo->tuples) *
		cpu_operator_cost * nfilters;
}
