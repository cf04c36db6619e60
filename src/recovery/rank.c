/*-------------------------------------------------------------------------
 *
 * rank.c
 *	  In which order structures are rebuilt; see rank.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "sofort/recovery/rank.h"

typedef struct RankWeights
{
	double		past;			/* weight of one execution in each workload */
	double		restart;
} RankWeights;

double
rank_weight_of_past(double alpha, double statements)
{
	return pow(alpha, statements);
}

/*
 * alpha ^ n and its complement, scaled to RANK_HORIZON statements.  If one workload has no
 * statements, the other gets its weight, too.
 */
static RankWeights
weights_of(const RankInput *input)
{
	RankWeights w = {0, 0};
	double		past = 0;
	double		restart = 0;
	double		a;

	for (int i = 0; i < input->nstatements; i++)
	{
		past += input->statements[i].past;
		restart += input->statements[i].restart;
	}
	a = past <= 0 ? 0 : rank_weight_of_past(input->alpha, restart);
	if (past > 0)
		w.past = a * RANK_HORIZON / past;
	if (restart > 0)
		w.restart = (1 - a) * RANK_HORIZON / restart;
	return w;
}

/* Which of the statement's structures are present, for this benefit function */
static int
present_subset(const RankInput *input, const RankStatement *q)
{
	int			subset = 0;

	for (int k = 0; k < q->nstructures; k++)
	{
		const RankStructure *s;

		if (q->structure[k] < 0)
			continue;
		s = &input->structures[q->structure[k]];
		if (s->persistent || (input->benefit == RANK_DEPENDENT && s->available))
			subset |= 1 << k;
	}
	return subset;
}

static double
gain(const RankStatement *q, int from, int to)
{
	double		g = q->cost[from] - q->cost[to];

	return g > 0 ? g : 0;		/* more indexes never make a plan worse */
}

/*
 * Benefit of the kth structure of a statement.  Where no structure helps alone, but all
 * missing ones do together (a look-up by either of two columns), each gets its share;
 * otherwise none would ever be rebuilt for the statement.
 */
static double
statement_benefit(const RankInput *input, const RankStatement *q, int k)
{
	int			have = present_subset(input, q);
	int			all = (1 << q->nstructures) - 1;
	int			missing = 0;

	if (have & (1 << k))
		return 0;
	for (int i = 0; i < q->nstructures; i++)
	{
		if (have & (1 << i))
			continue;
		if (q->structure[i] < 0)
		{
			all &= ~(1 << i);	/* gone: it cannot be rebuilt */
			continue;
		}
		missing++;
		if (gain(q, have, have | (1 << i)) > 0)
			return gain(q, have, have | (1 << k));
	}
	return gain(q, have, all | have) / missing;
}

/* Computes the ranks of those that are not in the order yet. */
static void
compute_ranks(const RankInput *input, RankWeights w)
{
	RankStructure *all = input->structures;

	for (int i = 0; i < input->nstructures; i++)
		if (all[i].position == 0)
			all[i].benefit = 0;

	for (int i = 0; i < input->nstatements; i++)
	{
		const RankStatement *q = &input->statements[i];
		double		weight = q->past * w.past + q->restart * w.restart;

		for (int k = 0; k < q->nstructures && weight > 0; k++)
		{
			int			s = q->structure[k];

			if (s >= 0 && all[s].position == 0)
				all[s].benefit += weight * statement_benefit(input, q, k);
		}
	}
	for (int i = 0; i < input->nstructures; i++)
		if (all[i].position == 0)
			all[i].rank = all[i].benefit - all[i].rebuild;
}

bool
rank_comes_before(const RankStructure *a, const RankStructure *b)
{
	if (a->needed != b->needed)
		return a->needed;
	if (a->rank != b->rank)
		return a->rank > b->rank;
	if (a->rebuild != b->rebuild)
		return a->rebuild < b->rebuild;
	return a->id < b->id;
}

static bool
is_candidate(const RankStructure *s)
{
	return !s->available && s->position == 0;
}

/* The best that is not in the order yet, or -1. */
static int
best_candidate(const RankInput *input)
{
	int			best = -1;

	for (int i = 0; i < input->nstructures; i++)
		if (is_candidate(&input->structures[i]) &&
			(best < 0 || rank_comes_before(&input->structures[i], &input->structures[best])))
			best = i;
	return best;
}

int
rank_structures(RankInput *input, int limit, int *order)
{
	RankWeights w = weights_of(input);
	int			n = 0;

	for (int i = 0; i < input->nstructures; i++)
		input->structures[i].position = 0;
	compute_ranks(input, w);

	while (n < limit)
	{
		int			best = best_candidate(input);

		if (best < 0)
			break;
		order[n++] = best;
		input->structures[best].position = n;
		if (input->benefit == RANK_DEPENDENT)
		{
			/* the others are ranked as if it were there */
			input->structures[best].available = true;
			compute_ranks(input, w);
		}
	}
	for (int i = 0; i < n; i++)
		input->structures[order[i]].available = false;
	return n;
}
