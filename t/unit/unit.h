/*-------------------------------------------------------------------------
 *
 * unit.h
 *	  What the unit tests share: the stand-in for PostgreSQL (server.c) and the
 *	  medium whose power can be cut (medium.c).  See t/README.md, "Unit tests".
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_UNIT_H
#define SOFORT_UNIT_H

#include "postgres.h"

#include <setjmp.h>

#include "pm_internal.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"

/* Behind postgres.h, whose names it would take */
#include <cmocka.h>

/* ---- server.c ---- */

#define UNIT_PROCESSES	6		/* MaxBackends */

/* A directory for pool and data directory, in which everything happens from now on. */
extern void server_begin(void);
extern void server_end(void);
extern void server_remove(int pid);

/* Shared memory is made anew, and the pool with it: a start, or one after a crash. */
extern void server_start(void);

/* The same; false if the pool could not be used. */
extern bool server_try_start(void);

/* An orderly end: what the postmaster does last */
extern void server_stop(void);

/* This is process n from now on; 0: the postmaster, else a backend */
extern void server_become(int n);

/* Message of the last ereport() of at least WARNING; "" after server_forget(). */
extern const char *server_message(void);
extern int	server_sqlstate(void);
extern void server_forget(void);

/* Does this raise an error?  server_message() has it. */
#define RAISES(statement) \
	({ \
		volatile bool raised_ = false; \
		server_forget(); \
		PG_TRY(); \
		{ \
			statement; \
		} \
		PG_CATCH(); \
		{ \
			raised_ = true; \
			server_after_error(); \
		} \
		PG_END_TRY(); \
		raised_; \
	})
extern void server_after_error(void);

/* sofort.pool_verify() finds nothing; used, slab, spare and kept granules add up. */
extern void assert_pool_is_sound(void);

/* In a child process of a test: a failed check ends it. */
extern bool unit_in_child;
pg_noreturn extern void unit_fail(const char *fmt,...) pg_attribute_printf(1, 2);

#define check(condition) \
	do { \
		if (!(condition)) \
			unit_fail("%s:%d: %s does not hold", __FILE__, __LINE__, #condition); \
	} while (0)

/*
 * Does the work fail, when lose(what), called after begin(), has left something out?
 * In a process of its own, with the dice of this seed, whatever the sources are.
 */
extern bool unit_fails(uint64 seed, int (*begin) (void **state), void (*lose) (const void *what),
					   const void *what, void (*workout) (void));

/* Shared by the processes of a test; zeroes */
extern void *shared_memory(Size size);

/* Repeatable random numbers; UNIT_SEED of the environment is the first seed. */
extern uint64 unit_seed(void);
extern void seed_random(uint64 seed);
extern uint64 random_below(uint64 n);

/* ---- medium.c: only in programs that are built with the shadow medium ---- */

typedef enum MediumSurvival
{
	SURVIVES_NOTHING,			/* of what is not durable */
	SURVIVES_EVERYTHING,
	SURVIVES_SOMETHING			/* of each line some state, or a mixture of two */
} MediumSurvival;

/* From here on it is known what is durable: now, everything. */
extern void medium_begin(void);
extern void medium_end(void);

/*
 * Stop at the nth event from now on (a stop point, or a drain, before it has
 * done anything); 0: never.  medium_events() tells how many there were.
 */
extern void medium_stop_at(uint64 nth);
extern uint64 medium_events(void);
extern const char *medium_stopped_at(void);

/* What it jumps to: if (sigsetjmp(medium_stop, 0) == 0) ... */
extern sigjmp_buf medium_stop;

/* The next passage of this stop point jumps to medium_error instead, as an ERROR would. */
extern void medium_error_at(const char *point);
extern sigjmp_buf medium_error;

/* Does it, or as much of it as comes before its nth event (0: all). True if that is all. */
extern bool medium_run_until(void (*op) (void), uint64 nth);

/* Power fails: the pool holds what a medium could hold. */
extern void medium_cut(MediumSurvival survival);

/*
 * A test of the tests: for each flush and drain in the sources of these files (with
 * commas), workout() is run in a process of its own in which that call does nothing.
 * It must fail, or crash; but for calls in "argued" (names with commas), where the
 * test says why they are not tried.  Each process begins with begin().
 */
extern void medium_lose_each_call(const char *files, const char *argued, int (*begin) (void **state),
								  void (*workout) (void));

/*
 * These calls (names with commas), one by one: the workout must fail without each, with one
 * of ten seeds, which are always the same.
 */
extern void medium_lose_calls(const char *calls, int (*begin) (void **state),
							  void (*workout) (void));

#endif							/* SOFORT_UNIT_H */
