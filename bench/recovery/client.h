/*-------------------------------------------------------------------------
 *
 * client.h
 *	  What the client and its loads share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "../random.h"

typedef enum Outcome
{
	SUCCESS,
	NO_SUCCESS,					/* missing row, duplicate key, conflict: as specified */
	GONE						/* the server */
} Outcome;

/* A set of transactions on one schema. */
typedef struct Load
{
	const char *name;

	/* size: of the data set (subscribers, warehouses, ...); mix: as the user
	 * gave it.  False: there is no such mix. */
	bool		(*choose_mix) (const char *mix, long size);
	const char *const *(*statements) (void);	/* NULL at the end */
	Outcome		(*transaction) (void);
} Load;

extern const Load load_tatp;
extern const Load load_tpcc;
extern const Load load_uniform;

/* A stream of its own in every client process */
extern Random random_stream;

static inline uint64_t
rnd(uint64_t lo, uint64_t hi)
{
	return random_between(&random_stream, lo, hi);
}

/*
 * Runs statement number "which" of the load.  args: one for each %-directive of
 * format, which is "d" (long), "s" (const char *) per parameter.  The number of
 * rows goes to *rows (may be NULL).  Values of the result: value().
 */
extern Outcome run(int which, int *rows, const char *format,...);
extern Outcome simple(const char *sql);

/* COMMIT what has succeeded so far, ROLLBACK what has not */
extern Outcome end_transaction(Outcome outcome);
extern const char *value(int row, int column);
extern long number(int row, int column);

extern void fail(const char *fmt,...) __attribute__((format(printf, 1, 2), noreturn));

#endif							/* BENCH_CLIENT_H */
