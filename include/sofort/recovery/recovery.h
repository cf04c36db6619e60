/*-------------------------------------------------------------------------
 *
 * recovery.h
 *	  Background rebuilding of DRAM structures after a start.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_RECOVERY_RECOVERY_H
#define SOFORT_RECOVERY_RECOVERY_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

typedef enum RecoveryMode
{
	RECOVERY_SYNCHRONOUS,
	RECOVERY_INSTANT,
	RECOVERY_ADAPTIVE
} RecoveryMode;

/* Settings, all PGC_SIGHUP: sofort.recovery_workers, _mode (RecoveryMode), _alpha,
 * _benefit (RankBenefit) */
extern int	sofort_recovery_workers;
extern int	sofort_recovery_mode;
extern double sofort_recovery_alpha;
extern int	sofort_recovery_benefit;

#define RECOVERY_MAX_WORKERS 32

/* As many again for indexes whose build runs functions of users */
#define RECOVERY_SLOTS (2 * RECOVERY_MAX_WORKERS)

/*
 * From _PG_init, only while shared_preload_libraries are loaded: defines the
 * GUCs and registers the launcher.
 */
extern void recovery_register_workers(void);

/* Shared memory; recovery_startup() from shmem_startup_hook, under
 * AddinShmemInitLock. */
extern Size recovery_shmem_size(void);
extern void recovery_startup(void);

/*
 * Somebody needs this database without other sessions (DROP DATABASE): our workers leave it
 * now and stay away for RECOVERY_HOLD_OFF_SECONDS.  Waits up to a second until they are
 * gone.  Does nothing if the library was not preloaded.
 */
#define RECOVERY_HOLD_OFF_SECONDS 10
extern void recovery_leave_database(Oid db_oid);

/*
 * There may be a new database (all: or one that was done) with indexes to be rebuilt: wakes
 * the launcher.  No ERROR; called when a transaction has ended.
 */
extern void recovery_look_for_databases(bool all);

/* Of all databases, since the start of the server */
typedef struct RecoveryProgress
{
	int			workers;		/* that run now */
	uint64		indexes_rebuilt;	/* by workers */
	uint64		failures;
	TimestampTz started;		/* 0: the launcher has not started any worker */
	TimestampTz finished;		/* 0: not yet */
} RecoveryProgress;

extern void recovery_progress(RecoveryProgress *progress);
extern const char *recovery_mode_name(void);

/* ---- which structure comes next ---- */

/* An index of this database */
typedef struct RecoveryStructure
{
	Oid			index;
	Oid			table;
	bool		ready;			/* nothing is left to be done */
	bool		persistent;		/* it survives a restart, at least its leaves */
	bool		failed;			/* this worker tried, and got an error */
	bool		busy;			/* others have claimed everything that is left of it */
	bool		partial;		/* it can be worked on in steps */
	bool		runs_functions; /* of its owner, as it has expressions or a predicate */
	bool		not_mine;		/* this worker leaves it to others, because of runs_functions
								 * or its absence */
	uint32		segments;		/* of 65,536 rows each */
	uint32		segments_done;
	int			workers;		/* processes that work on it now */
	int			waiters;		/* processes that wait for it now */
	bool		needed;			/* by them, or by a prepared transaction */
	double		search_seconds; /* processor time of searches in its place */

	/* filled by recovery_rank() */
	bool		estimated;		/* the next two, from the list on */
	double		rebuild_cost;	/* of what is missing, in the planner's units */
	double		rebuild_seconds;	/* the same in processor time, roughly */
	double		benefit;		/* for RANK_HORIZON statements */
	double		rank;
	int			position;		/* in the order; 0: not ranked */

	uint64		rebuilt_as;		/* its number among those that workers have completed; 0: none */
} RecoveryStructure;

/* All sofort indexes of this database, palloc'd; in a transaction. */
extern int	recovery_find_structures(RecoveryStructure **structures);

/* Ranks the best "limit" of those on which something can be done (rank.h).
 * Returns how many. */
extern int	recovery_rank(RecoveryStructure *structures, int n, int limit);

/* How a worker does a step; the first two preset, the last one false with each new list */
typedef struct RecoveryStep
{
	int			segments;		/* at most */
	bool		polite;			/* queries first; else side by side with them */
	bool		in_turn;		/* nothing paid when the list was ranked last */
} RecoveryStep;

/*
 * Called by a worker before each step.  Returns the number of the one to work on, or -1:
 * none now, ask again in a moment.  Never one that is ready, has failed, is busy or not
 * this worker's.  In a transaction with a snapshot.
 */
typedef int (*RecoveryChooser) (RecoveryStructure *structures, int n, RecoveryStep *step);

/* The one that is waited for; else the one that is furthest; else the smallest. */
extern int	recovery_choose_default(RecoveryStructure *structures, int n, RecoveryStep *step);

/* The one with the highest rank; one that does not pay only in idle time. */
extern int	recovery_choose_adaptive(RecoveryStructure *structures, int n, RecoveryStep *step);

/* The chooser of the recovery mode */
extern RecoveryChooser recovery_choose;

/* Entry points of the background workers (looked up by name). */
extern PGDLLEXPORT void sofort_recovery_launcher(Datum arg);
extern PGDLLEXPORT void sofort_recovery_worker(Datum arg);

#endif							/* SOFORT_RECOVERY_RECOVERY_H */
