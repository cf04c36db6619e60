/*-------------------------------------------------------------------------
 *
 * rank.h
 *	  The order in which structures are rebuilt: pure computation.
 *
 *		rank(s) = a * benefit(s, past) + (1 - a) * benefit(s, restart) - rebuild(s)
 *		a = alpha ^ n, n = statements executed since the start
 *
 * benefit(s, workload) is the sum over its statements of what they cost without
 * s less what they cost with it, scaled to RANK_HORIZON statements, so that both
 * workloads and the cost of rebuilding are in the same unit (the planner's).
 *
 * Knows no shared memory, catalog or clock: equal input, equal output.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_RECOVERY_RANK_H
#define SOFORT_RECOVERY_RANK_H

#include "postgres.h"

/* Structures that the costs of one statement depend on */
#define RANK_MAX_STRUCTURES		4
#define RANK_SUBSETS			(1 << RANK_MAX_STRUCTURES)

/* A structure is worth CPU time that queries could use if it pays for itself
 * within so many statements. */
#define RANK_HORIZON			100000.0

typedef enum RankBenefit
{
	RANK_INDEPENDENT,			/* beside the persistent structures alone */
	RANK_DEPENDENT				/* beside those that are available */
} RankBenefit;

typedef struct RankStructure
{
	uint64		id;				/* among equals the lower one comes first */
	double		rebuild;		/* cost of rebuilding what is missing */
	bool		persistent;		/* survived the start of the server (at least the leaves of a
								 * hybrid index) */
	bool		available;		/* is ready, or being rebuilt */
	bool		needed;			/* by an open transaction: before all others */

	/* results, of those that are not available */
	double		benefit;		/* both workloads, weighted */
	double		rank;
	int			position;		/* 1 = the next; 0 = not ranked */
} RankStructure;

/*
 * A kind of statement. cost[m]: cost of one execution, if those structures are available
 * whose bits are set in m.
 */
typedef struct RankStatement
{
	int			nstructures;
	int			structure[RANK_MAX_STRUCTURES]; /* index in the array; -1: unknown */
	double		cost[RANK_SUBSETS];
	double		past;			/* executions */
	double		restart;
} RankStatement;

typedef struct RankInput
{
	RankStructure *structures;
	int			nstructures;
	const RankStatement *statements;
	int			nstatements;
	double		alpha;			/* 0..1; 1: the past alone counts */
	RankBenefit benefit;
} RankInput;

/* alpha ^ n: weight of the workload before the start after n statements, 0 to 1 */
extern double rank_weight_of_past(double alpha, double statements);

/* The order among structures that have a rank: equal ones by their cost, then their id */
extern bool rank_comes_before(const RankStructure *a, const RankStructure *b);

/*
 * Ranks up to "limit" structures, the best first; order[] (room for limit)
 * gets their indexes.  With RANK_DEPENDENT the second is ranked as if the first
 * were available already, and so on; structures beyond the limit get the rank
 * that they have after all of them.  Returns how many were ordered.
 */
extern int	rank_structures(RankInput *input, int limit, int *order);

#endif							/* SOFORT_RECOVERY_RANK_H */
