/*-------------------------------------------------------------------------
 *
 * fault.h
 *	  Named stop points: places at which a test holds, kills or fails a
 *	  session.  Armed only through the extension sofort_test.
 *
 *		SOFORT_STOP("commit-durable");
 *
 * costs one load and an untaken branch while nothing is armed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_FAULT_H
#define SOFORT_PMEM_FAULT_H

#include "postgres.h"

typedef enum FaultAction
{
	FAULT_NONE = 0,
	FAULT_WAIT,					/* until disarmed (interruptible only where the
								 * code accepts interrupts) */
	FAULT_KILL,					/* SIGKILL the postmaster and this process */
	FAULT_KILL_BACKEND,			/* SIGKILL this process only */
	FAULT_ERROR					/* ereport(ERROR); only at points that allow it */
} FaultAction;

extern Size fault_shmem_size(void);
extern void fault_startup(void);

/* points: at most 64 bytes long.  nth: the nth passage fires (1 = the next). */
extern void fault_arm(const char *point, FaultAction action, int nth);
extern void fault_disarm(const char *point);	/* NULL: all */

/* How many sessions wait at the point now; how often it was passed while armed. */
extern int	fault_waiters(const char *point);
extern uint64 fault_passages(const char *point);

extern void fault_reached(const char *point);

/* In shared memory: number of armed points. */
extern volatile uint32 *fault_armed;

#define SOFORT_STOP(point) \
	do { \
		if (unlikely(fault_armed != NULL && *fault_armed != 0)) \
			fault_reached(point); \
	} while (0)

#endif							/* SOFORT_PMEM_FAULT_H */
