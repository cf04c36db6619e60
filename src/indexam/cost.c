/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What the planner is told about indexes that are not complete.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/pool.h"
#include "storage/lockdefs.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "am_internal.h"
#include "partial.h"

/* Smallest part of a table that is read to find out which of its blocks may hold a value */
#define SMALLEST_PART	0.01

/* What the planner is told to assume; see indexam_assume() */
static IndexamAssumption assumption = INDEXAM_AS_IT_IS;
static const Oid *assumed = NULL;
static int	nassumed = 0;

void
indexam_assume(IndexamAssumption what, const Oid *indexes, int n)
{
	assumption = what;
	assumed = indexes;
	nassumed = n;
}

bool
indexam_is_volatile(Oid index_oid)
{
	Relation	index = try_relation_open(index_oid, AccessShareLock);
	bool		result = false;

	if (index == NULL)
		return false;
	if (index->rd_rel->relkind == RELKIND_INDEX && am_is_ours(index))
	{
		IndexamStats stats;

		indexam_stats(index, &stats);
		result = strcmp(stats.placement, "dram") == 0;
	}
	relation_close(index, AccessShareLock);
	return result;
}

/*
 * What part of the table's blocks may hold a given value of the leading column, if of each
 * block the smallest and largest value are known?  None if values are in order.
 */
static double
part_in_doubt(Relation index)
{
	AttrNumber	attno = index->rd_index->indkey.values[0];
	double		part = 1;
	HeapTuple	tuple;
	AttStatsSlot slot;

	if (attno == 0)
		return 1;
	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(index->rd_index->indrelid),
							Int16GetDatum(attno), BoolGetDatum(false));
	if (!HeapTupleIsValid(tuple))
		return 1;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers == 1)
			part = 1 - slot.numbers[0] * slot.numbers[0];
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return part;
}

static double
cost_of_part(double part, double pages, double rows)
{
	return part * (pages * seq_page_cost + rows * cpu_tuple_cost);
}

double
indexam_cost_without(Relation index, double pages, double rows)
{
	return cost_of_part(Max(part_in_doubt(index), SMALLEST_PART), pages, rows);
}

double
indexam_cost_rebuild(double pages, double rows)
{
	rows = Max(rows, 1);
	return pages * seq_page_cost + rows * (cpu_tuple_cost + cpu_index_tuple_cost) +
		rows * log2(rows + 1) * 2 * cpu_operator_cost;
}

static bool
is_in_list(Oid index_oid)
{
	for (int i = 0; i < nassumed; i++)
		if (assumed[i] == index_oid)
			return true;
	return false;
}

/*
 * The header of a settled row's block is looked at, where heap has a few pages of a
 * visibility map, or a mark that was kept: as much as a tuple costs.  (Measured: an
 * index-only scan takes 1.7 times what a sequential scan takes for a row, in any order.)
 */
double
indexam_cost_of_looking(const IndexPath *path, double selectivity)
{
	if (path->path.pathtype != T_IndexOnlyScan)
		return 0;
	return clamp_row_est(selectivity * path->indexinfo->rel->tuples) * cpu_tuple_cost;
}

/* Between 0 and 1: the part of an index that can already be searched as an index */
static double
rebuilt_part(Oid index_oid)
{
	Relation	index = index_open(index_oid, NoLock);
	IndexamStats stats;
	double		result = 0;

	indexam_stats(index, &stats);
	if (stats.state == INDEX_READY || stats.merging || !partial_is_possible(index))
		result = 1;				/* or it will be ready before it is used */
	else if (stats.segments > 0)
		result = (double) stats.segments_done / stats.segments;
	index_close(index, NoLock);
	return result;
}

static double
complete_part(const IndexOptInfo *info)
{
	if (info->hypothetical)
		return 1;
	if (assumption != INDEXAM_AS_IT_IS)
		return !indexam_is_volatile(info->indexoid) ||
			is_in_list(info->indexoid) == (assumption == INDEXAM_NONE_BUT) ? 1 : 0;

	/* whoever needs an index that cannot be used yet waits until it can */
	return indexam_use_partial && pool_status() == POOL_READY ? rebuilt_part(info->indexoid) : 1;
}

/*
 * Looking for a key in blocks that are not indexed yet reads only their leading column.
 * Measured: a fifth of a sequential scan, or far less (zones).
 */
#define COLUMN_SCAN		0.2

/*
 * The first of several look-ups finds out what blocks hold; the others read only those that
 * may hold the value.
 */
static double
cost_of_search(Relation index, double loop_count, double pages, double rows)
{
	double		doubt = part_in_doubt(index);
	double		first = Max(doubt, SMALLEST_PART);
	double		other = Max(doubt, 1 / Max(pages, 1));

	return COLUMN_SCAN * cost_of_part(other + Max(first - other, 0) / Max(loop_count, 1), pages, rows);
}

void
cost_add_missing_part(IndexOptInfo *info, double loop_count, Cost *startup, Cost *total)
{
	double		missing = 1 - complete_part(info);
	double		pages = info->rel->pages;
	double		rows = info->rel->tuples;
	Relation	index;
	double		cost;

	if (missing <= 0)
		return;
	index = index_open(info->indexoid, NoLock);
	cost = missing * (assumption == INDEXAM_AS_IT_IS ?
					  cost_of_search(index, loop_count, pages, rows) :
					  indexam_cost_without(index, pages, rows));
	*startup += cost;
	*total += cost;
	index_close(index, NoLock);
}
