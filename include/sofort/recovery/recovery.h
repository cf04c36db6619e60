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

/* sofort.recovery_workers (PGC_SIGHUP), sofort.recovery_mode (PGC_SIGHUP) */
extern int	sofort_recovery_workers;
extern int	sofort_recovery_mode;

#define RECOVERY_MAX_WORKERS 32

/*
 * From _PG_init, only while shared_preload_libraries are loaded: defines the
 * two GUCs and registers the launcher.
 */
extern void recovery_register_workers(void);

/* Shared memory; recovery_startup() from shmem_startup_hook, under
 * AddinShmemInitLock. */
extern Size recovery_shmem_size(void);
extern void recovery_startup(void);

/*
 * Somebody wants this database without other sessions (DROP DATABASE): our
 * workers leave it now and stay away for RECOVERY_HOLD_OFF_SECONDS.  Waits up
 * to a second for them to be gone.  Nothing if the library was not preloaded.
 */
#define RECOVERY_HOLD_OFF_SECONDS 10
extern void recovery_leave_database(Oid db_oid);

/* How many workers run now; how many indexes they rebuilt in this life. */
extern void recovery_progress(int *workers, uint64 *indexes_rebuilt, uint64 *failures);

/* Entry points of the background workers (looked up by name). */
extern PGDLLEXPORT void sofort_recovery_launcher(Datum arg);
extern PGDLLEXPORT void sofort_recovery_worker(Datum arg);

#endif							/* SOFORT_RECOVERY_RECOVERY_H */
