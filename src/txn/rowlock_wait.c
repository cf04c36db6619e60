/*-------------------------------------------------------------------------
 *
 * rowlock_wait.c
 *	  Waiting for a row: the queue, as on heap, and the transaction in the way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "sofort/compat/lock.h"
#include "sofort/pmem/fault.h"
#include "utils/rel.h"

#include "txn_internal.h"

/* Heavyweight lock that queues those who wait for a row, as on heap. */
static const LOCKMODE tuple_lock_mode[4] = {
	[LockTupleKeyShare] = AccessShareLock,
	[LockTupleShare] = RowShareLock,
	[LockTupleNoKeyExclusive] = ExclusiveLock,
	[LockTupleExclusive] = AccessExclusiveLock,
};

pg_noreturn static void
raise_row_is_locked(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain lock on row in relation \"%s\"",
					RelationGetRelationName(rel))));
}

/*
 * Queue for the row.  False if LockWaitSkip would have to wait; 55P03 if
 * LockWaitError would.
 */
bool
rowlock_take_tuple_lock(const TxnRow *r, LockTupleMode mode, LockWaitPolicy policy, bool *have)
{
	ItemPointerData tid = r->tid;

	if (*have)
		return true;
	switch (policy)
	{
		case LockWaitBlock:
			LockTuple(r->rel, &tid, tuple_lock_mode[mode]);
			break;
		case LockWaitSkip:
			if (!compat_conditional_lock_tuple(r->rel, &tid, tuple_lock_mode[mode], false))
				return false;
			break;
		case LockWaitError:
			if (!compat_conditional_lock_tuple(r->rel, &tid, tuple_lock_mode[mode], true))
				raise_row_is_locked(r->rel);
			break;
	}
	*have = true;
	return true;
}

void
txn_release_tuple_lock(const TxnRow *r, LockTupleMode mode, bool *have_tuple_lock)
{
	ItemPointerData tid = r->tid;

	if (!*have_tuple_lock)
		return;
	UnlockTuple(r->rel, &tid, tuple_lock_mode[mode]);
	*have_tuple_lock = false;
}

bool
txn_wait_for_xid(Relation rel, TransactionId xid, ItemPointer tid, LockWaitPolicy policy,
				 XLTW_Oper oper)
{
	switch (policy)
	{
		case LockWaitBlock:
			XactLockTableWait(xid, rel, tid, oper);
			break;
		case LockWaitSkip:
			return compat_conditional_xact_wait(xid, false);
		case LockWaitError:
			if (!compat_conditional_xact_wait(xid, true))
				raise_row_is_locked(rel);
			break;
	}
	return true;
}

/* Waits for an xid as the policy says; results as rowlock_take_tuple_lock(). */
bool
rowlock_wait_for_xid(const TxnRow *r, TransactionId xid, LockWaitPolicy policy, XLTW_Oper oper)
{
	ItemPointerData tid = r->tid;

	SOFORT_STOP("row-wait");
	return txn_wait_for_xid(r->rel, xid, &tid, policy, oper);
}

/*
 * Waits for the undo of an aborted transaction.  Its backend undoes it before it releases
 * the xid; one that was prepared has no backend.  False as rowlock_wait_for_xid(): undoing much
 * takes time.
 */
bool
rowlock_wait_for_undo(const TxnRow *r, const WordView *e, LockWaitPolicy policy, XLTW_Oper oper)
{
	CHECK_FOR_INTERRUPTS();
	if (!rowlock_wait_for_xid(r, view_waitable(e), policy, oper))
		return false;
	txn_resolve_prepared();
	return true;
}
