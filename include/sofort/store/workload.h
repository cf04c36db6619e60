/*-------------------------------------------------------------------------
 *
 * workload.h
 *	  Which structures the statements use, how often, and what they would cost
 *	  without them: statistics for the order of recovery.
 *
 * A kind of statement is a query without its constants, in one database.  The
 * planner integration describes kinds; the executor integration counts.  Counts
 * are made in shared memory, one cell per process and kind, and collected by
 * whoever reads them and once a second by the recovery launcher, which copies
 * them to the pool.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_STORE_WORKLOAD_H
#define SOFORT_STORE_WORKLOAD_H

#include "sofort/pmem/layout.h"
#include "storage/latch.h"

/* Kinds that are known at a time; a new one replaces the least used. */
#define WORKLOAD_KINDS			1024

typedef struct WorkloadKind
{
	uint64		fingerprint;
	Oid			db_oid;
	uint32		command;		/* CmdType */
	int			nstructures;
	Oid			structures[WORKLOAD_STRUCTURES];
	Oid			tables[WORKLOAD_STRUCTURES];	/* theirs; one if there are none */
	double		cost[WORKLOAD_SUBSETS]; /* bit k: structure k is there */
} WorkloadKind;

/* Refers to a kind until another one takes its place; 0: none. */
typedef uint32 WorkloadHandle;

extern Size workload_shmem_size(void);

/* From store_startup(): reads what the pool knows. */
extern void workload_startup(void);

/* Are statistics kept?  False without a pool. */
extern bool workload_enabled(void);

/*
 * The kind with this fingerprint in the current database, or 0.  *stale: it should be
 * described again, because that was done long ago (at least a minute, and a thousand times
 * as long as it took).
 */
extern WorkloadHandle workload_find(uint64 fingerprint, bool *stale);

/*
 * Is there a place for another kind?  If all are taken, one new kind a second may replace
 * the one that has been used least: with more kinds than places they must not all be
 * described again and again.
 */
extern bool workload_takes_kinds(void);

/* Counts how often it was asked: has it been about ten times? */
extern bool workload_seen_often(uint64 fingerprint);

/*
 * A kind is about to be described: for an hour it is not stale, so that an error meanwhile
 * does not recur at each execution.  Until it is described, a new kind has the description
 * given here, an old one keeps its own.
 */
extern WorkloadHandle workload_try(const WorkloadKind *kind);

/* Stores a new description, which took so long; the counts of an existing kind stay. */
extern WorkloadHandle workload_describe(const WorkloadKind *kind, double took_ms);

/* One more execution.  Costs an addition in a line of this process's own. */
extern void workload_count(WorkloadHandle handle);

/*
 * For dropped objects: kinds are forgotten with their table, and do without an index.  Call
 * for tables first.
 */
extern void workload_forget_table(Oid relid);
extern void workload_forget_structure(Oid relid);
extern void workload_forget_database(Oid db_oid);

/* What is known now. past: executions before the start, weighted by age; restart: since. */
typedef struct WorkloadUsage
{
	WorkloadKind kind;
	double		past;
	uint64		restart;
} WorkloadUsage;

/* All kinds of a database (InvalidOid: of all), palloc'd; *n of them. */
extern WorkloadUsage *workload_snapshot(Oid db_oid, int *n);

/*
 * For the launcher: copies what has changed to the pool. latch: is set when there is
 * something to do again.  Returns whether anything was counted since the last call; if not,
 * wait for the latch.  Raises no errors (a full pool is logged once, and statistics are
 * then not kept beyond this life).
 */
extern bool workload_save(Latch *latch);

/* How often that was done since the start, for tests. */
extern uint64 workload_saves(void);

#endif							/* SOFORT_STORE_WORKLOAD_H */
