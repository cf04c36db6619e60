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
#include "storage/lwlock.h"

/* All fields are protected by the lock of RecoveryShared. */
typedef struct RecoverySlot
{
	Oid			db_oid;			/* InvalidOid: the slot is free */
	pid_t		pid;			/* 0: not started yet, or ended */
	uint32		serial;			/* of the worker for whom the slot is */
	Oid			index;			/* being rebuilt, or InvalidOid */
	bool		finished;		/* found nothing more to do in its database */
} RecoverySlot;

typedef struct RecoveryShared
{
	LWLock		lock;
	Oid			leave_db;		/* recovery_leave_database() */
	TimestampTz leave_until;
	uint64		indexes_rebuilt;
	uint64		failures;
	TimestampTz started;		/* the first worker was started */
	TimestampTz finished;		/* all databases were done */
	RecoverySlot slots[RECOVERY_MAX_WORKERS];
} RecoveryShared;

extern RecoveryShared *Recovery;

/* Must nobody of us be in this database now?  Takes the lock. */
extern bool recovery_must_stay_away(Oid db_oid);

/* What the worker in this slot does now. */
extern void recovery_show_index(int slot, Oid index);

/*
 * SIGTERM in launcher and workers: cancels what runs, and recovery_main() ends
 * the process without the FATAL that die() would log at each shutdown.
 */
pg_noreturn extern void recovery_main(void (*body) (Datum), Datum arg, int exit_code);
extern void recovery_check_shutdown(void);

#endif							/* SOFORT_RECOVERY_INTERNAL_H */
