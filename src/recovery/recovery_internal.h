/*-------------------------------------------------------------------------
 *
 * recovery_internal.h
 *	  Shared state of the launcher and its workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_RECOVERY_INTERNAL_H
#define SOFORT_RECOVERY_INTERNAL_H

#include "datatype/timestamp.h"
#include "sofort/compat/compat.h"
#include "sofort/recovery/recovery.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

/* Is what a worker has left to be tried again?  Memory may be too small for good. */
typedef enum RecoveryAgain
{
	AGAIN_NEVER,
	AGAIN_A_FEW_TIMES,
	AGAIN_UNTIL_DONE
} RecoveryAgain;

/* All fields are protected by the lock of RecoveryShared. */
typedef struct RecoverySlot
{
	Oid			db_oid;			/* InvalidOid: the slot is free */
	pid_t		pid;			/* 0: not started yet, or ended */
	uint32		serial;			/* of the worker for whom the slot is */
	Oid			index;			/* being rebuilt, or InvalidOid */
	bool		indexes_done;	/* of its database: nobody waits for what it does now */
	Oid			tables_seen_to; /* tables up to this OID are dealt with; the same for all
								 * workers of a database but those for functions */
	bool		functions;		/* builds only indexes whose build runs functions of users;
								 * else all others */
	bool		finished;		/* the worker found nothing more to do in its database */
	bool		functions_left; /* finished, but for such indexes */
	bool		replace;		/* ended so that another one can have normal priority */
	RecoveryAgain again;		/* finished, but there may be something to do later */
} RecoverySlot;

/* The indexes that workers have rebuilt, in this order; older ones are forgotten */
#define RECOVERY_REMEMBERED		1024

typedef struct RecoveryDone
{
	Oid			db_oid;
	Oid			index;
} RecoveryDone;

/* Databases that are waited for one by one; while there are more, for all */
#define RECOVERY_AWAITED		64

/* A database that was wanted without us, and when: recovery_leave_database() */
typedef struct RecoveryLeft
{
	Oid			db_oid;
	TimestampTz since;
} RecoveryLeft;

/* So many at a time; with more, the one of which that is the longest ago is forgotten */
#define RECOVERY_LEFT			64

typedef struct RecoveryShared
{
	LWLock		lock;
	RecoveryLeft left[RECOVERY_LEFT];
	bool		look_for_databases; /* recovery_look_for_databases() */
	bool		look_at_all;
	Latch	   *launcher;		/* NULL: there is none */
	uint64		indexes_rebuilt;
	uint64		failures;
	TimestampTz started;		/* the first worker was started */
	TimestampTz finished;		/* all databases were done */

	/* gate.c */
	pid_t		launcher_pid;	/* 0: there is none */
	bool		surveyed;		/* awaited is known */
	int			nawaited;		/* above RECOVERY_AWAITED: all are awaited */
	Oid			awaited[RECOVERY_AWAITED];	/* databases */
	ConditionVariable gate;

	/* throttle.c; times in microseconds of the monotonic clock */
	pg_atomic_uint64 benefit_at_most;	/* that was left at any time */
	pg_atomic_uint32 search_share;
	pg_atomic_uint32 share_db;	/* whose worker has set it */
	pg_atomic_uint64 share_set;
	pg_atomic_uint64 searches_paid;
	pg_atomic_uint64 searching; /* processor time of searches */
	pg_atomic_uint64 besides;	/* of what their processes did between them */
	uint64		dear_measured;	/* under the lock: when, */
	uint64		dear_searching; /* searching and besides then, */
	uint64		dear_besides;
	bool		dear;			/* and what came of it */

	/* choose.c: the index that is rebuilt at normal priority */
	Oid			urgent_db;
	Oid			urgent_index;
	TimestampTz last_urgent;	/* when one was; 0: never */

	RecoverySlot slots[RECOVERY_SLOTS];
	RecoveryDone done[RECOVERY_REMEMBERED]; /* place: indexes_rebuilt, modulo */
} RecoveryShared;

extern RecoveryShared *Recovery;

/* This worker has completed an index of its database. */
extern void recovery_note_rebuilt(Oid index);

/* Its number among the indexes that workers have completed, from 1; 0: none did. */
extern uint64 recovery_rebuilt_as(Oid index);

/* Must launcher and workers stay out of this database now?  Takes the lock. */
extern bool recovery_must_stay_away(Oid db_oid);

/* What the worker in this slot does now. */
extern void recovery_show_index(int slot, Oid index);

/* ---- dictionaries.c ---- */

/*
 * Build dictionaries' indexes, in a transaction of a worker: those of a table, if the
 * workload writes to it; those of the other tables, as many as fit a step (false: none is
 * left).  *working_on: the table, for error handling.
 */
extern void recovery_build_written_dictionaries(Oid table, volatile Oid *working_on);
extern bool recovery_build_other_dictionaries(volatile Oid *working_on);

/* ---- choose.c ---- */

/* Was an index urgent a moment ago? */
extern bool recovery_was_urgent(void);

/* ---- throttle.c ---- */

/*
 * benefit_left: what the indexes that are left and pay would save; 0: none is left.
 * hold_up: from now on searches get only their share of the processors.
 */
extern void recovery_set_search_share(double benefit_left, bool hold_up);

/* Have searches made up most of what their sessions did since the last call? */
extern bool recovery_searches_are_dear(void);

/* For indexam_before_search and so on: around a search of a table in place of an index. */
extern void recovery_before_search(bool (*complete) (void *arg), void *arg);
extern void recovery_after_search(pg_atomic_uint64 *searched);

/* What is done between pause = true and false does not count as part of the search. */
extern void recovery_pause_search(bool pause);

/* Processor time of this process */
extern double recovery_processor_seconds(void);

/* ---- gate.c ---- */

/* At the start of the server: closed, for processes that are forked from now on. */
extern void recovery_gate_init(void);

/* This process belongs to recovery, and does not wait at the gate. */
extern void recovery_pass_gate(void);

/* Sets the databases whose indexes are being rebuilt; sessions of the others may go on. */
extern void recovery_set_awaited(const Oid *databases, int n);

/* The worker in this slot has no index left for which anybody has to wait. */
extern void recovery_indexes_are_done(int slot);

/* ---- idle.c ---- */

/* Could this process work now without taking a processor from anybody? */
extern bool recovery_processor_is_idle(void);

/* ---- recovery.c ---- */

/*
 * SIGTERM in launcher and workers: cancels what runs, and recovery_main() ends
 * the process without the FATAL that die() would log at each shutdown.
 */
pg_noreturn extern void recovery_main(void (*body) (Datum), Datum arg, int exit_code);
extern void recovery_check_shutdown(void);

#endif							/* SOFORT_RECOVERY_INTERNAL_H */
