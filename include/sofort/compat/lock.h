/*-------------------------------------------------------------------------
 *
 * lock.h
 *	  Lock requests that do not wait, in PostgreSQL 15..18.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_LOCK_H
#define SOFORT_COMPAT_LOCK_H

#include "postgres.h"
#include "storage/lmgr.h"
#include "storage/lock.h"

/*
 * Both are false if the lock is not to be had.  nowait: that will be an error,
 * which since 18 log_lock_failures explains in the server's log.
 */
#if PG_VERSION_NUM < 180000
#define compat_conditional_xact_wait(xid, nowait) ConditionalXactLockTableWait(xid)
#define compat_conditional_lock_tuple(rel, tid, mode, nowait) \
	ConditionalLockTuple(rel, tid, mode)
#else
#define compat_conditional_xact_wait(xid, nowait) \
	ConditionalXactLockTableWait(xid, (nowait) && log_lock_failures)
#define compat_conditional_lock_tuple(rel, tid, mode, nowait) \
	ConditionalLockTuple(rel, tid, mode, (nowait) && log_lock_failures)
#endif

#if PG_VERSION_NUM < 170000
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode)
#else
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode, false)
#endif

#endif							/* SOFORT_COMPAT_LOCK_H */
