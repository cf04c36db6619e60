/*-------------------------------------------------------------------------
 *
 * keeper.c
 *	  Kept transactions after a crash: finding them, waiting to be resumed, expiry.
 *
 * PostgreSQL takes their xids for those of aborted transactions.  TxnSlot.waiting says
 * that they are open; a background worker, the keeper, holds the locks of their xids,
 * so that others can wait for them.  A session that resumes one gives its TCB an xid of
 * its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/compat/lock.h"
#include "sofort/compat/worker.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/kept.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "txn_internal.h"

PGDLLEXPORT void sofort_keeper_main(Datum arg);

/* If the keeper has not taken its locks by then, it will not. */
#define KEEPER_LOCKS_SECONDS	60

int			sofort_continuation_timeout = 60;

static bool am_keeper = false;

static inline TxnBackend *
kept_stand_in(const TxnKept *k)
{
	return &TxnBackends[TxnShmem->nbackends + TxnShmem->nprepared + (k - TxnKeptOnes)];
}

static inline TxnKeptStage
stage_of(const TxnKept *k)
{
	return *(const volatile TxnKeptStage *) &k->stage;
}

/* When one that waits to be resumed will be rolled back */
static TimestampTz
expires_at(const TxnKept *k)
{
	return TimestampTzPlusMilliseconds(k->waits_since,
									   (int64) sofort_continuation_timeout * 1000);
}

static const KeptBoundary *
last_boundary(const KeptRecord *r)
{
	return &r->boundary[r->boundary[0].sequence > r->boundary[1].sequence ? 0 : 1];
}

/* ------------------------------------------------------------------------
 * Start-up
 * ------------------------------------------------------------------------
 */

/* What killed processes have stored last may not be on the medium.  Not drained. */
static void
flush_records(void)
{
	uint64		n;

	for (n = 0; n < pm_vector_count(&PoolSuper->kept); n++)
	{
		const KeptRecord *r = (const KeptRecord *) pm_vector_get(&PoolSuper->kept, n);

		if (KEPT_STATE(r->state) == KEPT_OPEN)
			pm_flush(r, sizeof(KeptRecord));
		else
			pm_flush(r, PM_LINE);
	}
}

/* An open record of an earlier life; its TCB says what has become of the transaction. */
static void
find_transaction(KeptRecord *r, uint64 n)
{
	uint32		slot = KEPT_SLOT(r->state);
	const Tcb  *tcb = slot < pm_vector_count(&PoolSuper->tcbs) ?
		(const Tcb *) pm_vector_get(&PoolSuper->tcbs, slot) : NULL;
	TxnKept    *k;

	if (tcb == NULL || TCB_GENERATION(tcb->state) != KEPT_GENERATION(r->state) ||
		(TCB_STATE(tcb->state) != TCB_KEPT && TCB_STATE(tcb->state) != TCB_COMMITTED))
	{
		kept_close_record(r, KEPT_ABORTED);
		return;
	}
	if (TCB_STATE(tcb->state) == TCB_COMMITTED)
	{
		kept_close_record(r, KEPT_COMMITTED);
		return;
	}
	if (sofort_continuation_timeout == 0)
	{
		kept_close_record(r, KEPT_EXPIRED);
		return;
	}
	for (k = TxnKeptOnes; k < TxnKeptOnes + TxnShmem->nkept && k->stage != KEEP_NONE; k++)
		;
	if (k == TxnKeptOnes + TxnShmem->nkept)
	{
		TxnShmem->kept_surplus = true;
		return;
	}
	k->stage = KEEP_FOUND;
	k->slot = slot;
	k->generation = KEPT_GENERATION(r->state);
	k->record = n;
	k->horizon = r->first_xid;
	pg_atomic_fetch_add_u32(&TxnShmem->kept, 1);
}

/*
 * In the postmaster, before slots are given out; TxnSlots does not exist yet.  The caller
 * drains before anybody is told how far a transaction had come, and before one that is
 * closed is undone.  False: the pool was refused.
 */
bool
kept_startup(void)
{
	uint64		n;

	flush_records();
	for (n = 0; n < pm_vector_count(&PoolSuper->kept); n++)
	{
		KeptRecord *r = (KeptRecord *) pm_vector_get(&PoolSuper->kept, n);

		if (KEPT_STATE(r->state) == KEPT_OPEN)
			find_transaction(r, n);
		if (!tcb_check_chain(&r->locks, KEPT_STATE(r->state) == KEPT_OPEN,
							 "row locks of kept transaction", n))
			return false;
		if (KEPT_STATE(r->state) != KEPT_OPEN && r->locks != PM_NULL)
			kept_free_locks(r);
	}
	return true;
}

bool
kept_has_slot(uint32 slot)
{
	uint32		i;

	if (pg_atomic_read_u32(&TxnShmem->kept) == 0)
		return false;
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		if (TxnKeptOnes[i].stage == KEEP_FOUND && TxnKeptOnes[i].slot == slot)
			return true;
	}
	return false;
}

void
kept_mark_slots(void)
{
	uint32		i;

	for (i = 0; i < TxnShmem->nkept; i++)
	{
		if (TxnKeptOnes[i].stage == KEEP_FOUND)
			TxnSlots[TxnKeptOnes[i].slot].kept = i + 1;
	}
}

/* Place n of a write set; NULL behind its last chunk. */
static TcbEntry *
entry_at(Tcb *tcb, TcbChunk **chunks, int nchunks, uint64 n)
{
	if (n < TCB_INLINE_ENTRIES)
		return &tcb->entries[n];
	n -= TCB_INLINE_ENTRIES;
	if (n / TCB_CHUNK_ENTRIES >= (uint64) nchunks)
		return NULL;
	return &chunks[n / TCB_CHUNK_ENTRIES]->entries[n % TCB_CHUNK_ENTRIES];
}

/*
 * Undoes the statement that was cut short: everything that was logged after the last
 * boundary, and only words of its commands.  Its entries stay where they are; after another
 * crash this is repeated, which does no harm (README.md).  The caller drains before anybody
 * can take it up.
 */
void
kept_undo_unfinished(uint32 slot)
{
	const TxnKept *k = &TxnKeptOnes[TxnSlots[slot].kept - 1];
	const KeptBoundary *b = last_boundary(kept_record(k));
	Tcb		   *tcb = txn_tcb_of_slot(slot);
	int			nchunks;
	TcbChunk  **chunks = tcb_chunks(tcb, &nchunks);
	uint64		end = TCB_INLINE_ENTRIES + (uint64) nchunks * TCB_CHUNK_ENTRIES;
	uint64		n;

	Assert(txn_recovering);
	for (n = end; n-- > b->entries;)
	{
		TxnEntry	e;

		if (tcb_valid_entry(entry_at(tcb, chunks, nchunks, n), k->generation, &e))
			txn_undo_entry(&e, slot, k->generation, (CommandId) b->command);
	}
	SOFORT_STOP("kept-unfinished-undone");
	if (chunks != NULL)
		pfree(chunks);
}

/* ------------------------------------------------------------------------
 * Waiting for a taker
 * ------------------------------------------------------------------------
 */

/*
 * Makes the mirror of one that was found.  Under TXN_LWLOCK_RESOLVE, before anybody reads a
 * row.
 */
static void
adopt(TxnKept *k)
{
	TxnSlot    *s = &TxnSlots[k->slot];
	TxnBackend *b = kept_stand_in(k);
	const Tcb  *tcb = txn_tcb_of_slot(k->slot);

	b->slot = k->slot;
	b->nsubs = 0;
	b->pid = 0;
	b->nentries = last_boundary(kept_record(k))->entries;
	s->fxid = tcb->xid;
	s->generation = k->generation;
	s->owner = (uint32) (b - TxnBackends);
	s->waiting = true;
	pg_write_barrier();
	s->active = true;
	kept_locks_found(k, b->nentries);
	k->waits_since = GetCurrentTimestamp();
	pg_atomic_fetch_add_u32(&TxnShmem->kept_waiting, 1);
	k->stage = KEEP_WAITING;
	SOFORT_STOP("kept-adopted");
}

/*
 * Before anything is resolved: raises an error if there are too few places.  A kept
 * transaction without one would be taken for an ordinary one that died.
 */
void
kept_require_places(void)
{
	if (TxnShmem->kept_surplus)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("sofort keeps more transactions than this server has processes for"),
				 errdetail("There are places for %u of them.", TxnShmem->nkept),
				 errhint("Raise max_connections.")));
}

/* TXN_LWLOCK_RESOLVE is held.  Does the keeper have to take locks? */
bool
kept_adopt(void)
{
	uint32		i;

	for (i = 0; i < TxnShmem->nkept; i++)
	{
		if (TxnKeptOnes[i].stage == KEEP_FOUND)
			adopt(&TxnKeptOnes[i]);
	}
	return pg_atomic_read_u32(&TxnShmem->kept_waiting) > 0;
}

/*
 * Until the keeper holds the locks of the xids nobody could wait for these transactions,
 * but would have to look again and again.
 */
void
kept_wait_for_keeper(void)
{
	TimestampTz until;

	if (am_keeper || !*(volatile bool *) &TxnShmem->leftovers)
		return;
	until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), KEEPER_LOCKS_SECONDS * 1000);
	while (*(volatile bool *) &TxnShmem->leftovers)
	{
		(void) ConditionVariableTimedSleep(&TxnShmem->keeper_holds, 1000, PG_WAIT_EXTENSION);
		if (*(volatile bool *) &TxnShmem->leftovers && GetCurrentTimestamp() > until)
		{
			ConditionVariableCancelSleep();
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("sofort tables cannot be used because the background worker \"sofort keeper\" is not running"),
					 errdetail("Transactions that were kept at the last crash wait to be resumed."),
					 errhint("Raise max_worker_processes.")));
		}
	}
	ConditionVariableCancelSleep();
}

/*
 * PostgreSQL's horizon does not know those that wait, and knows only the last xid of those
 * that were resumed.  They hold the horizon back from their beginning on, as if there had
 * been no crash, so that no row that one of them has locked is used again.
 */
uint64
kept_horizon(uint64 horizon)
{
	uint32		i;

	if (likely(pg_atomic_read_u32(&TxnShmem->kept) == 0))
		return horizon;
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		const TxnKept *k = &TxnKeptOnes[i];

		if (stage_of(k) == KEEP_WAITING || stage_of(k) == KEEP_RUNNING)
			horizon = Min(horizon, *(const volatile uint64 *) &k->horizon);
	}
	return horizon;
}

bool
txn_any_kept_waits(void)
{
	return TxnShmem != NULL && pg_atomic_read_u32(&TxnShmem->kept) > 0 &&
		pool_status() == POOL_READY;
}

/* ------------------------------------------------------------------------
 * Its end without a taker
 * ------------------------------------------------------------------------
 */

static void
wake_keeper(void)
{
	Latch	   *latch = *(Latch *volatile *) &TxnShmem->keeper_latch;

	if (latch != NULL)
		SetLatch(latch);
}

static bool
end_waiting(TxnKept *k, uint64 record, KeptState outcome)
{
	TxnSlot    *s = &TxnSlots[k->slot];
	Tcb		   *tcb;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_RESOLVE), LW_EXCLUSIVE);
	if (k->stage != KEEP_WAITING || k->record != record)
	{
		LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
		return false;
	}
	s = &TxnSlots[k->slot];
	tcb = txn_tcb_of_slot(k->slot);
	kept_close(k, outcome);
	tcb_finish_aborted(tcb, k->slot);
	SOFORT_STOP("kept-undone");
	txn_drain();				/* before an error: who goes on finds it undone, and flushes nothing */
	/* until now its tables are not to be altered, or its locks passed over */
	kept_locks_end(k);
	__atomic_store_n(&s->active, false, __ATOMIC_RELEASE);

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	locktable_release(kept_stand_in(k), TopSubTransactionId, 0);
	/* not flushed: KEPT without an open record means the same, and is undone once more */
	*(volatile uint64 *) &tcb->state = TCB_MAKE_STATE(TCB_FREE, k->generation, TxnShmem->life);
	SOFORT_STOP("kept-released");
	tcb_free_overflow(tcb);
	__atomic_store_n(&s->waiting, false, __ATOMIC_RELEASE);
	txn_mirror_leave(kept_stand_in(k));
	kept_forget(k);
	pg_atomic_fetch_sub_u32(&TxnShmem->kept_waiting, 1);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
	wake_keeper();
	return true;
}

bool
txn_kept_abort(const TxnKeptInfo *info)
{
	return end_waiting(&TxnKeptOnes[info->place], info->record, KEPT_ABORTED);
}

/* ------------------------------------------------------------------------
 * A taker
 * ------------------------------------------------------------------------
 */

/*
 * The point at which it becomes ours.  After a crash it is kept in any case, with one xid
 * or the other, neither of which is in use then.  So the TCB need not be durable here; the
 * new xid becomes so at commit, because it is in the line of the state.
 */
static bool
claim(void *arg)
{
	const TxnKeptInfo *info = arg;
	TxnKept    *k = &TxnKeptOnes[info->place];
	TxnSlot    *s;
	Tcb		   *tcb;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_RESOLVE), LW_EXCLUSIVE);
	if (k->stage != KEEP_WAITING || k->record != info->record ||
		KEPT_STATE(kept_record(k)->state) != KEPT_OPEN)
	{
		LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
		return false;
	}
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	s = &TxnSlots[k->slot];
	tcb = txn_tcb_of_slot(k->slot);
	*(volatile uint64 *) &tcb->xid = My.fxid;
	pm_line_order(tcb);
	*(volatile uint64 *) &tcb->state = TCB_MAKE_STATE(TCB_KEPT, k->generation, TxnShmem->life);
	SOFORT_STOP("kept-resume-stored");
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_EXCLUSIVE);
	k->resumed_as = My.fxid;
	__atomic_store_n(&s->fxid, My.fxid, __ATOMIC_RELAXED);
	__atomic_store_n(&s->stays_open, true, __ATOMIC_RELAXED);
	locktable_hand_over(kept_stand_in(k), k->slot, My.backend);
	k->stage = KEEP_RUNNING;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
	__atomic_store_n(&s->waiting, false, __ATOMIC_RELEASE);
	txn_mirror_leave(kept_stand_in(k));
	pg_atomic_fetch_sub_u32(&TxnShmem->kept_waiting, 1);
	My.kept = k;
	kept_continue(last_boundary(kept_record(k)));
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
	return true;
}

bool
txn_runs(const TxnKeptInfo *info)
{
	return My.kept != NULL && info->outcome == TXN_KEPT_RUNNING && My.kept->record == info->record;
}

bool
txn_resume(const TxnKeptInfo *info)
{
	const TxnKept *k = &TxnKeptOnes[info->place];
	KeptBoundary b = *last_boundary(kept_record(k));

	Assert(!My.have_slot && My.nentries == 0);
	if (!txn_take_over(k->slot, k->generation, (int64) b.entries, (CommandId) b.command, claim,
					   unconstify(TxnKeptInfo *, info)))
		return false;
	wake_keeper();
	SOFORT_STOP("kept-resumed");

	/* command ids of the next statement must be higher than all that were used */
	while (GetCurrentCommandId(false) < (CommandId) b.command)
	{
		(void) GetCurrentCommandId(true);
		CommandCounterIncrement();
	}
	return true;
}

static int	taking = -1;		/* place of the one that we are about to resume */

static void
end_taking_at_exit(int code, Datum arg)
{
	txn_kept_end_taking();
}

/*
 * Locks a relation, until the end of the transaction, for one that is about to be resumed.
 * 55P03 instead of waiting: the holder of the lock may be waiting for rows of that very
 * transaction, which the lock manager does not know.
 */
void
txn_lock_for_resume(Oid relid, LOCKMODE mode)
{
	if (!ConditionalLockRelationOid(relid, mode))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation \"%s\"", get_rel_name(relid)),
				 errhint("The transaction still waits to be resumed: try again.")));
}

/*
 * Keeps the transaction from expiring, because rebuilding its indexes may take longer than
 * the timeout.  (If it has ended meanwhile and its place is another's, that one does not
 * wait.)  If the session is terminated, a callback ends this.  It is registered once and
 * stays: it could not be cancelled, as what is used in between for the first time registers
 * others after it.
 */
void
txn_kept_begin_taking(const TxnKeptInfo *info)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(end_taking_at_exit, (Datum) 0);
	registered = true;
	taking = (int) info->place;
	pg_atomic_fetch_add_u32(&TxnKeptOnes[taking].takers, 1);
}

void
txn_kept_end_taking(void)
{
	if (taking < 0)
		return;
	pg_atomic_fetch_sub_u32(&TxnKeptOnes[taking].takers, 1);
	taking = -1;
	wake_keeper();
}

/* ------------------------------------------------------------------------
 * Looking at them
 * ------------------------------------------------------------------------
 */

static void
find_place(TxnKeptInfo *info)
{
	uint32		i;

	info->outcome = TXN_KEPT_RUNNING;
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		if (stage_of(&TxnKeptOnes[i]) == KEEP_WAITING && TxnKeptOnes[i].record == info->record)
		{
			info->outcome = TXN_KEPT_WAITING;
			info->place = i;
		}
	}
}

void
txn_kept_find(const uint8 *hash, TxnKeptInfo *info)
{
	uint64		n;

	pool_require();				/* nothing is left over without a pool */
	txn_resolve_leftovers();
	memset(info, 0, sizeof(*info));
	for (n = 0; n < pm_vector_count(&PoolSuper->kept); n++)
	{
		const KeptRecord *r = (const KeptRecord *) pm_vector_get(&PoolSuper->kept, n);
		uint64		state = word_read(&r->state);

		if (KEPT_STATE(state) == KEPT_FREE || memcmp(r->token_hash, hash, sizeof(r->token_hash)) != 0)
			continue;
		if (KEPT_STATE(state) != KEPT_OPEN)
		{
			/* whoever closes it drains that before releasing the lock */
			LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_SHARED);
			LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
		}
		info->record = n;
		info->db_oid = r->db_oid;
		info->role = r->role;
		info->started = r->started;
		info->statements = last_boundary(r)->statements;
		memcpy(info->label, r->label, sizeof(info->label));
		switch (KEPT_STATE(state))
		{
			case KEPT_FREE:
				break;
			case KEPT_OPEN:
				find_place(info);
				break;
			case KEPT_COMMITTED:
				info->outcome = TXN_KEPT_COMMITTED;
				break;
			case KEPT_ABORTED:
				info->outcome = TXN_KEPT_ABORTED;
				break;
			case KEPT_EXPIRED:
				info->outcome = TXN_KEPT_EXPIRED;
				break;
		}
		return;
	}
}

void
txn_all_kept_visit_stores(Oid db_oid, TxnKeptVisitor fn, void *arg)
{
	uint32		i;

	if (!txn_any_kept_waits())
		return;
	txn_resolve_leftovers();
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		const TxnKept *k = &TxnKeptOnes[i];

		if (stage_of(k) == KEEP_WAITING && kept_record(k)->db_oid == db_oid)
			txn_kept_visit_stores(i, fn, arg);
	}
}

typedef struct StoreSearch
{
	StoreId		store;
	bool		found;
} StoreSearch;

static void
compare_store(void *arg, StoreId store, bool changed)
{
	StoreSearch *search = arg;

	search->found |= search->store == store;
}

bool
txn_kept_uses_store(StoreId store)
{
	StoreSearch search = {.store = store};

	txn_all_kept_visit_stores(MyDatabaseId, compare_store, &search);
	return search.found;
}

int
txn_kept_count_in_database(Oid db_oid)
{
	int			n = 0;
	uint32		i;

	if (!txn_any_kept_waits())
		return 0;
	txn_resolve_leftovers();
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		const TxnKept *k = &TxnKeptOnes[i];

		n += stage_of(k) == KEEP_WAITING && kept_record(k)->db_oid == db_oid;
	}
	return n;
}

/* For views: of a slot that is marked as kept. */
void
kept_info(TxnInfo *info)
{
	uint32		place = *(volatile uint32 *) &TxnSlots[info->slot].kept;
	const TxnKept *k = &TxnKeptOnes[place - 1];
	const KeptRecord *r;

	if (place == 0 || (stage_of(k) != KEEP_RUNNING && stage_of(k) != KEEP_WAITING))
		return;
	r = kept_record(k);
	info->is_kept = true;
	info->is_waiting = stage_of(k) == KEEP_WAITING;
	info->role = r->role;
	info->statements = last_boundary(r)->statements;
	if (info->is_waiting)
		info->expires = expires_at(k);
	strlcpy(info->label, r->label, sizeof(info->label));
}

/* ------------------------------------------------------------------------
 * The keeper
 * ------------------------------------------------------------------------
 */

static TransactionId *held;		/* by place in TxnKeptOnes */

static bool
xid_lock(TransactionId xid, bool acquire)
{
	LOCKTAG		tag;

	SET_LOCKTAG_TRANSACTION(tag, xid);
	if (!acquire)
		return LockRelease(&tag, ExclusiveLock, true);

	/*
	 * While there was no keeper, waiters got the lock and released it at once: so this
	 * waits only for a moment, and they queue behind it.
	 */
	return LockAcquire(&tag, ExclusiveLock, true, false) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * The xid, if it still waits.  Resuming changes both at once: the new xid is the session's,
 * whose lock the keeper must not take.
 */
static TransactionId
xid_if_waiting(const TxnKept *k)
{
	TransactionId xid = InvalidTransactionId;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_KEPT), LW_SHARED);
	if (stage_of(k) == KEEP_WAITING)
		xid = (TransactionId) TxnSlots[k->slot].fxid;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_KEPT));
	return xid;
}

/* Holds the locks of those that wait, and no others. */
static void
hold_locks(void)
{
	uint32		i;

	for (i = 0; i < TxnShmem->nkept; i++)
	{
		const TxnKept *k = &TxnKeptOnes[i];
		TransactionId xid = xid_if_waiting(k);

		if (held[i] == xid)
			continue;
		if (TransactionIdIsValid(held[i]))
			(void) xid_lock(held[i], false);
		held[i] = InvalidTransactionId;
		if (TransactionIdIsValid(xid) && stage_of(k) == KEEP_WAITING)
		{
			(void) xid_lock(xid, true);
			held[i] = xid;
		}
	}
}

/*
 * Rolls back those whose time is over; returns milliseconds until the next one is due, or
 * -1.
 */
static long
expire(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long		next = -1;
	uint32		i;

	for (i = 0; i < TxnShmem->nkept; i++)
	{
		TxnKept    *k = &TxnKeptOnes[i];
		long		left;

		if (stage_of(k) != KEEP_WAITING)
			continue;
		left = TimestampDifferenceMilliseconds(now, expires_at(k));
		if (left == 0 && pg_atomic_read_u32(&k->takers) > 0)
			continue;			/* the last one wakes us */
		if (left == 0)
		{
			char		label[NAMEDATALEN];

			strlcpy(label, kept_record(k)->label, sizeof(label));
			if (end_waiting(k, k->record, KEPT_EXPIRED))
				ereport(LOG,
						(errmsg("kept transaction \"%s\" was rolled back because nobody resumed it within %d seconds",
								label, sofort_continuation_timeout)));
		}
		else
			next = next < 0 ? left : Min(next, left);
	}
	return next;
}

static void
keeper_gone(int code, Datum arg)
{
	TxnShmem->keeper_latch = NULL;

	/* without a transaction nobody else does this, and they would stay with our PGPROC */
	LockReleaseSession(DEFAULT_LOCKMETHOD);
}

/* Once the locks are held, those that wait for the keeper can go on. */
static void
begin_holding(void)
{
	if (pg_atomic_read_u32(&TxnShmem->kept) > 0)
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		txn_resolve_leftovers();
		CommitTransactionCommand();
		hold_locks();
		LWLockAcquire(txn_lwlock(TXN_LWLOCK_RESOLVE), LW_EXCLUSIVE);
		TxnShmem->leftovers = false;
		LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
		SOFORT_STOP("kept-held");
	}
	TxnShmem->keeper_latch = MyLatch;
	ConditionVariableBroadcast(&TxnShmem->keeper_holds);
	kept_locks_sort();
}

void
sofort_keeper_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	compat_lift_session_limits();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	am_keeper = true;
	held = MemoryContextAllocZero(TopMemoryContext, TxnShmem->nkept * sizeof(TransactionId));
	before_shmem_exit(keeper_gone, (Datum) 0);
	if (pool_status() == POOL_READY)
		begin_holding();

	for (;;)
	{
		long		next;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		next = expire();
		hold_locks();
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (next >= 0 ? WL_TIMEOUT : 0),
						 next, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

void
kept_init(void)
{
	BackgroundWorker worker = {0};

	DefineCustomIntVariable("sofort.continuation_timeout",
							"How long kept transactions wait to be resumed after a start.",
							"Then they are rolled back; 0: at once.",
							&sofort_continuation_timeout, 60, 0, INT_MAX / 1000, PGC_SIGHUP,
							GUC_UNIT_S, NULL, NULL, NULL);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "sofort", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sofort_keeper_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "sofort keeper", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sofort keeper", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
