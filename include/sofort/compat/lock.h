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
#include "catalog/pg_database.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/inval.h"
#include "utils/rel.h"

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

/* The same, and if the lock table is full. */
static inline bool
compat_try_lock_tuple(Relation rel, ItemPointer tid, LOCKMODE mode)
{
	LOCKTAG		tag;

	SET_LOCKTAG_TUPLE(tag, rel->rd_lockInfo.lockRelId.dbId, rel->rd_lockInfo.lockRelId.relId,
					  ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid));
#if PG_VERSION_NUM < 180000
	return LockAcquireExtended(&tag, mode, false, true, false, NULL) != LOCKACQUIRE_NOT_AVAIL;
#else
	return LockAcquireExtended(&tag, mode, false, true, false, NULL, false) !=
		LOCKACQUIRE_NOT_AVAIL;
#endif
}

/* As LockSharedObject(); false if that would have to wait. */
static inline bool
compat_try_lock_database(Oid db_oid, LOCKMODE mode)
{
	LOCKTAG		tag;
	LockAcquireResult result;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, db_oid, 0);
#if PG_VERSION_NUM < 180000
	result = LockAcquireExtended(&tag, mode, false, true, true, NULL);
#else
	result = LockAcquireExtended(&tag, mode, false, true, true, NULL, false);
#endif
	if (result == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	return true;
}

#if PG_VERSION_NUM < 170000
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode)
#else
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode, false)
#endif

#endif							/* SOFORT_COMPAT_LOCK_H */
