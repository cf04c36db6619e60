/*-------------------------------------------------------------------------
 *
 * choose.c
 *	  Chooses the index that is worked on next: brings together the statistics of the
 *	  workload and the state of the indexes, for rank.c.
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
#include "utils/timestamp.h"

#include "recovery_internal.h"

#define SLOWEST_STEP_MILLISECONDS	1000

/* A turn goes on with small indexes for so much processor time. */
#define TURN_SECONDS				0.02

/*
 * A worker keeps normal priority for so long after an index was urgent, because the next
 * one may be urgent, too.
 */
#define URGENT_MILLISECONDS			1000

/* Processor time for each row: short keys take less, long ones more */
#define REBUILD_SECONDS_PER_ROW		0.2e-6

/* Can this worker do something for it? */
static inline bool
can_be_worked_on(const RecoveryStructure *s)
{
	return !s->ready && !s->failed && !s->busy && !s->not_mine;
}

/* ---- the order of the other modes ---- */

int
recovery_choose_default(RecoveryStructure *structures, int n, RecoveryStep *step)
{
	int			best = -1;

	step->polite = sofort_recovery_mode == RECOVERY_INSTANT;
	for (int i = 0; i < n; i++)
	{
		const RecoveryStructure *s = &structures[i];
		const RecoveryStructure *b = best < 0 ? NULL : &structures[best];

		if (!can_be_worked_on(s))
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

/* Estimates the cost of rebuilding the missing part; 0 if that is not known */
static void
estimate_rebuild(RecoveryStructure *s)
{
	Relation	table = NULL;
	BlockNumber pages;
	double		rows;
	double		allvisfrac;
	double		part = 1;

	if (s->estimated)
		return;
	s->estimated = true;
	s->rebuild_cost = s->rebuild_seconds = 0;

	/* whoever has locked it exclusively may be waiting for recovery */
	if (ConditionalLockRelationOid(s->table, AccessShareLock))
		table = try_relation_open(s->table, NoLock);
	if (table == NULL)
		return;					/* (a lock is released with the transaction) */
	if (store_find(relation_locator(table)) == NULL)
	{
		/* damaged: the attempt to rebuild raises the error, and is not repeated */
		relation_close(table, AccessShareLock);
		return;
	}
	table_relation_estimate_size(table, NULL, &pages, &rows, &allvisfrac);
	relation_close(table, AccessShareLock);
	if (s->partial && s->segments > 0)
		part = 1 - (double) s->segments_done / s->segments;
	s->rebuild_cost = part * indexam_cost_rebuild(pages, rows);
	s->rebuild_seconds = part * rows * REBUILD_SECONDS_PER_ROW;
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

/* Converts the statistics to the terms of rank.c */
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

/* Moves those whose build runs functions of users behind all others; their order is kept. */
static void
functions_last(RecoveryStructure *structures, int n)
{
	RecoveryStructure **at = palloc0(sizeof(*at) * (n + 1));	/* by position, from 1 on */
	int			last = 0;

	for (int i = 0; i < n; i++)
		if (structures[i].position > 0)
			at[structures[i].position] = &structures[i];
	for (int functions = 0; functions <= 1; functions++)
		for (int position = 1; position <= n; position++)
			if (at[position] != NULL && at[position]->runs_functions == functions)
				at[position]->position = ++last;
	pfree(at);
}

/* For rank.c, with the rank that it has in the list */
static RankStructure
rank_structure(const RecoveryStructure *s)
{
	return (RankStructure)
	{
		.id = s->index,
		.rebuild = s->rebuild_cost,
		.persistent = s->persistent,
		.available = !can_be_worked_on(s),
		.needed = s->needed,
		.rank = s->rank
	};
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
		if (!structures[i].persistent && can_be_worked_on(&structures[i]))
			estimate_rebuild(&structures[i]);
		input.structures[i] = rank_structure(&structures[i]);
	}
	ranked = rank_structures(&input, limit, order);
	for (int i = 0; i < n; i++)
	{
		structures[i].benefit = input.structures[i].benefit;
		structures[i].rank = input.structures[i].rank;
		structures[i].position = input.structures[i].position;
	}
	functions_last(structures, n);
	return ranked;
}

/* Processor time of this worker when its last turn began */
static double turn_began = 0;

static bool
turn_goes_on(void)
{
	return recovery_processor_seconds() < turn_began + TURN_SECONDS;
}

/*
 * May work that does not pay be done now?  Yes in idle time, and one step a second in any
 * case, or a server that is always busy would never finish.  A step is a turn, so that
 * thousands of small indexes are not rebuilt one a second.
 */
static bool
may_work_in_idle_time(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (!recovery_processor_is_idle() && now >= last &&
		!TimestampDifferenceExceeds(last, now, SLOWEST_STEP_MILLISECONDS))
		return turn_goes_on();
	last = now;
	turn_began = recovery_processor_seconds();
	return true;
}

/*
 * The best by the ranks that the list has, or -1.  To rank thousands of indexes anew takes
 * ten times as long as to build a small one, so a turn goes by what it began with.
 */
static int
best_by_last_ranks(const RecoveryStructure *structures, int n)
{
	RankStructure first = {0};
	int			best = -1;

	for (int i = 0; i < n; i++)
	{
		RankStructure s = rank_structure(&structures[i]);

		if (s.available || (best >= 0 && !rank_comes_before(&s, &first)))
			continue;
		first = s;
		best = i;
	}
	return best;
}

/*
 * Doing without an index may be cheap, and it is not known for how long the load will go
 * on: so queries come first until doing without has cost as much as rebuilding would.  This
 * is decided once for an index, for all workers.
 */
static bool
is_urgent(const RecoveryStructure *s)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		dear = recovery_searches_are_dear();
	bool		urgent = s->needed || dear || s->search_seconds >= s->rebuild_seconds;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (urgent)
	{
		Recovery->urgent_db = MyDatabaseId;
		Recovery->urgent_index = s->index;
	}
	else
		urgent = Recovery->urgent_db == MyDatabaseId && Recovery->urgent_index == s->index;
	if (urgent)
		Recovery->last_urgent = now;
	LWLockRelease(&Recovery->lock);
	return urgent;
}

bool
recovery_was_urgent(void)
{
	bool		was;

	LWLockAcquire(&Recovery->lock, LW_SHARED);
	was = Recovery->last_urgent != 0 &&
		!TimestampDifferenceExceeds(Recovery->last_urgent, GetCurrentTimestamp(),
									URGENT_MILLISECONDS);
	LWLockRelease(&Recovery->lock);
	return was;
}

int
recovery_choose_adaptive(RecoveryStructure *structures, int n, RecoveryStep *step)
{
	double		left = 0;
	int			best = 0;

	step->in_turn = step->in_turn && turn_goes_on();
	if (step->in_turn)
	{
		step->segments = 1;
		step->polite = true;
		return best_by_last_ranks(structures, n);
	}
	if (recovery_rank(structures, n, 1) == 0)
		return -1;
	for (int i = 0; i < n; i++)
	{
		if (!structures[i].ready && !structures[i].failed && !structures[i].not_mine &&
			structures[i].rank > 0)
			left += structures[i].benefit;
		if (structures[i].position == 1)
			best = i;
	}
	if (structures[best].rank > 0 || structures[best].needed)
	{
		step->polite = !is_urgent(&structures[best]);
		recovery_set_search_share(left, !step->polite);
		return best;
	}

	/* nothing that is left pays: do it when nobody wants the processors */
	recovery_set_search_share(left, false);
	step->segments = 1;
	step->polite = true;
	step->in_turn = may_work_in_idle_time();
	return step->in_turn ? best : -1;
}
