/*-------------------------------------------------------------------------
 *
 * sofort_bench.h
 *	  What the files of bench/engine share.
 *
 * A run is described, and its results are counted, in one file that all
 * workers map.  So they survive SIGKILL of the server, and a server that
 * is started again finds what it was doing (sofort_bench.resume).
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_BENCH_H
#define SOFORT_BENCH_H

#include "postgres.h"

#include "sofort/compat/compat.h"

#include "../random.h"

#define BENCH_MAGIC			UINT64CONST(0x31484342544c4f53)
#define BENCH_MAX_WORKERS	64
#define BENCH_BIN_US		10000

typedef enum TatpTransaction
{
	TATP_GET_SUBSCRIBER_DATA,
	TATP_GET_NEW_DESTINATION,
	TATP_GET_ACCESS_DATA,
	TATP_UPDATE_SUBSCRIBER_DATA,
	TATP_UPDATE_LOCATION,
	TATP_INSERT_CALL_FORWARDING,
	TATP_DELETE_CALL_FORWARDING,
	TATP_TRANSACTIONS
} TatpTransaction;

/* What one worker did in 10 ms. */
typedef struct BenchBin
{
	uint32		transactions;
	uint32		successes;
	uint32		longest_us;
	uint32		unused;
	uint64		busy_ns;		/* sum of response times */
} BenchBin;

typedef struct BenchRun
{
	uint64		magic;			/* written last */
	int64		start_us;		/* real time of the first bin */
	int64		end_us;
	uint32		workers;
	uint32		nbins;			/* per worker */
	int32		subscribers;
	uint32		weights[TATP_TRANSACTIONS];
	uint64		seed;
	Oid			database;
	Oid			schema;
	uint32		finished[BENCH_MAX_WORKERS];	/* reached end_us */
	BenchBin	bins[FLEXIBLE_ARRAY_MEMBER];	/* of worker 0, of worker 1, ... */
} BenchRun;

/* bench.c: NULL if there is no such file, or it is not complete */
extern BenchRun *bench_map(const char *file);
extern int64 bench_now_us(void);

/* worker.c */
extern PGDLLEXPORT void bench_worker_main(Datum arg);

/* tatp.c: within a transaction, with an active snapshot.  False: the outcome is
 * no success (a missing row or duplicate key). */
extern void tatp_open(Oid schema, int32 subscribers);
extern bool tatp_run(TatpTransaction which, Random *r);

#endif							/* SOFORT_BENCH_H */
