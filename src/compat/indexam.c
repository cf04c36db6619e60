/*-------------------------------------------------------------------------
 *
 * indexam.c
 *	  Members of IndexAmRoutine that not all versions have.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "sofort/compat/indexam.h"

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
