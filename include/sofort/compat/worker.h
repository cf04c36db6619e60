/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  Background workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_WORKER_H
#define SOFORT_COMPAT_WORKER_H

#include "utils/guc.h"

/* Before it connects: limits that are set for sessions are not meant for it (as in autovacuum). */
static inline void
compat_lift_session_limits(void)
{
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
}

#endif							/* SOFORT_COMPAT_WORKER_H */
