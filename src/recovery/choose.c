/*-------------------------------------------------------------------------
 *
 * choose.c
 *	  Which index is worked on next: brings together what the statistics of the
 *	  workload and the indexes say, for rank.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "sofort/indexam/indexam.h"
#include "sofort/recovery/rank.h"
#include "sofort/store/store.h"
#include "sofort/store/workload.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "recovery_internal.h"

#define SLOWEST_STEP_MILLISECONDS	1000

/* ---- the order of the other modes ---- */

int
recovery_choose_default(RecoveryStructure *structures, int n, int *segments)
{
	int			best = -1;

	for (int i = 0; i < n; i++)
	{
		const RecoveryStructure *s = &structures[i];
		const RecoveryStructure *b = best < 0 ? NULL : &structures[best];

		if (s->ready || s->failed || s->busy)
			continue;
		if (b == NULL || (s->needed && !b->needed) ||
			(s->needed == b->needed && s->waiters > b->waiters) ||
			(s->needed == b->needed && s->waiters == b->waiters &&
			 s->segments - s->segments_done < b->segments - b->segments_done))
			best = i;
	}
	return best;
}

/* ---- ranking ---- */

/* Of the part that is missing */
static double
rebuild_cost(const RecoveryStructure *s)
{
	Relation	table = NULL;
	BlockNumber pages;
	double		rows;
	double		allvisfrac;
	double		cost;

	/* who has it for himself may be waiting for recovery */
	if (ConditionalLockRelationOid(s->table, AccessShareLock))
		table = try_relation_open(s->table, NoLock);
	if (table == NULL)
		return 0;				/* (a lock is released with the transaction) */
	if (store_find(relation_locator(table)) == NULL)
	{
		/* damaged: the attempt to rebuild gets the error, and is the last one */
		relation_close(table, AccessShareLock);
		return 0;
	}
	table_relation_estimate_size(table, NULL, &pages, &rows, &allvisfrac);
	relation_close(table, AccessShareLock);
	cost = indexam_cost_rebuild(pages, rows);
	if (s->partial && s->segments > 0)
		cost *= 1 - (double) s->segments_done / s->segments;
	return cost;
}

/* Place of an index in the list, or -1: it was dropped */
static int
find_index(const RecoveryStructure *structures, int n, Oid index)
{
	for (int i = 0; i < n; i++)
		if (structures[i].index == index)
			return i;
	return -1;
}

/* The statistics, in the terms of rank.c */
static RankStatement *
rank_statements(const RecoveryStructure *structures, int n, int *nstatements)
{
	WorkloadUsage *usage = workload_snapshot(MyDatabaseId, nstatements);
	RankStatement *result = palloc0(sizeof(RankStatement) * Max(*nstatements, 1));

	StaticAssertStmt(RANK_MAX_STRUCTURES == WORKLOAD_STRUCTURES, "same sets of structures");
	for (int i = 0; i < *nstatements; i++)
	{
		const WorkloadKind *kind = &usage[i].kind;

		result[i].nstructures = kind->nstructures;
		for (int k = 0; k < kind->nstructures; k++)
			result[i].structure[k] = find_index(structures, n, kind->structures[k]);
		memcpy(result[i].cost, kind->cost, sizeof(kind->cost));
		result[i].past = usage[i].past;
		result[i].restart = (double) usage[i].restart;
	}
	pfree(usage);
	return result;
}

int
recovery_rank(RecoveryStructure *structures, int n, int limit)
{
	RankInput	input = {0};
	int		   *order = palloc(sizeof(int) * Max(n, 1));
	int			ranked;

	input.structures = palloc0(sizeof(RankStructure) * Max(n, 1));
	input.nstructures = n;
	input.statements = rank_statements(structures, n, &input.nstatements);
	input.alpha = sofort_recovery_alpha;
	input.benefit = sofort_recovery_benefit;
	for (int i = 0; i < n; i++)
	{
		RankStructure *s = &input.structures[i];

		s->id = structures[i].index;
		s->persistent = structures[i].persistent;
		s->available = structures[i].ready || structures[i].busy || structures[i].failed;
		s->needed = structures[i].needed;
		if (!s->persistent && !s->available)
			s->rebuild = rebuild_cost(&structures[i]);
	}
	ranked = rank_structures(&input, limit, order);
	for (int i = 0; i < n; i++)
	{
		structures[i].rebuild_cost = input.structures[i].rebuild;
		structures[i].benefit = input.structures[i].benefit;
		structures[i].rank = input.structures[i].rank;
		structures[i].position = input.structures[i].position;
	}
	return ranked;
}

/*
 * May work that does not pay go on now?  In idle time; but a step a second in any
 * case, or a server that is always busy would never finish.
 */
static bool
may_work_in_idle_time(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (!recovery_processor_is_idle() &&
		!TimestampDifferenceExceeds(last, now, SLOWEST_STEP_MILLISECONDS))
		return false;
	last = now;
	return true;
}

int
recovery_choose_adaptive(RecoveryStructure *structures, int n, int *segments)
{
	double		left = 0;

	if (recovery_rank(structures, n, 1) == 0)
		return -1;
	for (int i = 0; i < n; i++)
		if (!structures[i].ready && !structures[i].failed && structures[i].rank > 0)
			left += structures[i].benefit;
	recovery_set_search_share(left);

	for (int i = 0; i < n; i++)
	{
		if (structures[i].position != 1)
			continue;
		if (structures[i].rank > 0 || structures[i].needed)
			return i;

		/* nothing that is left pays: do it when nobody wants the processors */
		*segments = 1;
		return may_work_in_idle_time() ? i : -1;
	}
	return -1;
}
