/*-------------------------------------------------------------------------
 *
 * kept.c
 *	  Kept transactions while a session runs them: statement boundaries, and their end.
 *
 * A kept transaction is an ordinary one whose statements are made durable one by
 * one.  Its KeptRecord says how far it had come; keeper.c takes it up from there
 * after a crash.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/kept.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "txn_internal.h"

/* For how long outcomes are known. */
#define OUTCOME_MICROSECONDS	(24 * 60 * 60 * INT64CONST(1000000))

/* A keeper that is not there by then will not come. */
#define KEEPER_START_SECONDS	5

/* Records looked at for a free one before the array grows. */
#define RECORD_TRIES	256

/* 256 MB of the pool.  (Tests set a lower limit.) */
#define MAX_RECORDS		((uint64) 1 << 20)

static uint64 max_records = MAX_RECORDS;

/* What txn_keep() was told, until the statement ends. */
static struct
{
	uint8		hash[32];
	char		label[NAMEDATALEN];
	TimestampTz started;
}			asked;

/* Sequence number of the next boundary, in this life. */
static uint64 sequence;

KeptRecord *
kept_record(const TxnKept *k)
{
	return (KeptRecord *) pm_vector_get(&PoolSuper->kept, k->record);
}

bool
txn_is_kept(void)
{
	return My.kept != NULL;
}

/* Has a statement ended since the transaction was asked to be kept? */
bool
kept_is_running(void)
{
	return My.kept != NULL && My.kept->stage == KEEP_RUNNING;
}

/* ------------------------------------------------------------------------
 * Records
 * ------------------------------------------------------------------------
 */

static bool
record_is_free(uint64 n, TimestampTz now)
{
	const KeptRecord *r = (const KeptRecord *) pm_vector_get(&PoolSuper->kept, n);
	uint32		i;

	if (KEPT_STATE(r->state) == KEPT_OPEN ||
		(KEPT_STATE(r->state) != KEPT_FREE && r->ended + OUTCOME_MICROSECONDS > now))
		return false;
	for (i = 0; i < TxnShmem->nkept; i++)
	{
		if (TxnKeptOnes[i].stage != KEEP_NONE && TxnKeptOnes[i].record == n)
			return false;
	}
	return true;
}

/*
 * The array has its maximum length: looks for any free record. 53400 if there is none;
 * until one may have become free they are not searched again.
 */
static uint64
find_record_of_all(void)
{
	PmVector   *v = &PoolSuper->kept;
	TimestampTz now = GetCurrentTimestamp();
	uint64		i;

	if (now >= TxnShmem->records_full_until)
	{
		/* the earliest moment at which the outcome of one that is open now can be forgotten */
		TimestampTz until = now + OUTCOME_MICROSECONDS;

		for (i = 0; i < pm_vector_count(v); i++)
		{
			const KeptRecord *r = (const KeptRecord *) pm_vector_get(v, i);

			if (record_is_free(i, now))
			{
				TxnShmem->next_record = i + 1;
				return i;
			}
			if (KEPT_STATE(r->state) != KEPT_OPEN && KEPT_STATE(r->state) != KEPT_FREE)
				until = Min(until, r->ended + OUTCOME_MICROSECONDS);
		}
		TxnShmem->records_full_until = until;
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many transactions were kept within a day"),
			 errdetail("The outcomes of " UINT64_FORMAT " transactions are known. The first of them is forgotten at %s.",
					   pm_vector_count(v), timestamptz_to_str(TxnShmem->records_full_until)),
			 errhint("Keep transactions only where it takes long to begin again.")));
	return 0;					/* keep compiler quiet */
}

/* TXN_LWLOCK_PREPARED is held.  May raise 53100, 53400. */
static uint64
find_record(void)
{
	PmVector   *v = &PoolSuper->kept;
	TimestampTz now = GetCurrentTimestamp();
	uint64		i;

	for (i = 0; i < Min(pm_vector_count(v), RECORD_TRIES); i++)
	{
		uint64		n = TxnShmem->next_record++ % pm_vector_count(v);

		if (record_is_free(n, now))
			return n;
	}
	if (pm_vector_count(v) >= max_records)
		return find_record_of_all();
	pm_vector_reserve(v, pm_vector_count(v), PM_OWNER_TXN, 0);
	pm_vector_publish(v, pm_vector_count(v) + 1);
	return pm_vector_count(v) - 1;
}

void
txn_test_limit_records(uint64 n)
{
	max_records = n;
	TxnShmem->records_full_until = 0;
}

/*
 * The outcome, durable on return: from now on the transaction is no kept one, and
 * a TCB in state KEPT is undone after a crash.  Not before that may others make use of
 * its end.  No error, no allocation.
 */
void
kept_close(const TxnKept *k, KeptState outcome)
{
	if (k->stage == KEEP_ASKED)
		return;
	SOFORT_STOP("kept-ending");
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);	/* see txn_kept_find() */
	kept_close_record(kept_record(k), outcome);
	__atomic_store_n(&TxnSlots[k->slot].stays_open, false, __ATOMIC_RELEASE);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	SOFORT_STOP("kept-closed");
}

void
kept_close_record(KeptRecord *r, KeptState outcome)
{
	if (KEPT_STATE(r->state) != KEPT_OPEN)
		return;					/* after an error before it was opened */
	*(volatile int64 *) &r->ended = GetCurrentTimestamp();
	pm_store8(&r->state, KEPT_MAKE_STATE(outcome, KEPT_SLOT(r->state),
										 KEPT_GENERATION(r->state)));
	SOFORT_STOP("kept-closing");
	pm_drain();
}

/*
 * Frees the locks that others gave to it: last chunk first, so that the chain is whole at
 * any time.
 */
void
kept_free_locks(KeptRecord *r)
{
	while (r->locks != PM_NULL)
	{
		PMPtr	   *link = &r->locks;

		while (((TcbChunk *) pm_deref(*link))->next != PM_NULL)
			link = &((TcbChunk *) pm_deref(*link))->next;
		if (!pm_free(PM_OWNER_TXN, link, 1))
			break;
	}
}

/* It has ended, and its row locks are released.  TXN_LWLOCK_PREPARED is held. */
void
kept_forget(TxnKept *k)
{
	TxnSlots[k->slot].kept = 0;
	TxnSlots[k->slot].stays_open = false;
	kept_free_locks(kept_record(k));
	if (k->stage != KEEP_ASKED)
		pg_atomic_fetch_sub_u32(&TxnShmem->kept, 1);
	else
		TxnShmem->records_full_until = 0;	/* its record is free at once */
	k->stage = KEEP_NONE;
}

void
kept_leave(void)
{
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	kept_forget(My.kept);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	My.kept = NULL;
}

/* ------------------------------------------------------------------------
 * Keeping
 * ------------------------------------------------------------------------
 */

/* Takes a place in TxnKeptOnes and a record for this transaction. */
static TxnKept *
take_place(void)
{
	TxnKept    *k = NULL;
	uint32		i;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	for (i = 0; i < TxnShmem->nkept && k == NULL; i++)
	{
		if (TxnKeptOnes[i].stage == KEEP_NONE)
			k = &TxnKeptOnes[i];
	}
	if (k == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many transactions are kept"),
				 errdetail("There can be %u of them.", TxnShmem->nkept),
				 errhint("Resume or abort those that wait, or raise max_connections.")));
	k->record = find_record();
	k->slot = My.slot;
	k->generation = My.generation;
	k->horizon = My.fxid;
	k->next_lock = 0;
	k->stage = KEEP_ASKED;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	return k;
}

/* Right after a start the keeper may need a moment. */
static void
require_keeper(void)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													KEEPER_START_SECONDS * 1000);

	while (*(Latch *volatile *) &TxnShmem->keeper_latch == NULL)
	{
		(void) ConditionVariableTimedSleep(&TxnShmem->keeper_holds, 100, PG_WAIT_EXTENSION);
		if (GetCurrentTimestamp() > until)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot keep transactions because the background worker \"sofort keeper\" is not running"),
					 errhint("Raise max_worker_processes.")));
	}
	ConditionVariableCancelSleep();
}

void
txn_keep(const uint8 *hash, const char *label, TimestampTz started)
{
	if (My.kept != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this transaction is kept already")));
	txn_begin_write();
	require_keeper();
	(void) txn_tcb_of_slot(My.slot);
	memcpy(asked.hash, hash, sizeof(asked.hash));
	memset(asked.label, 0, sizeof(asked.label));
	strlcpy(asked.label, label, sizeof(asked.label));
	asked.started = started;
	My.kept = take_place();
}

/* ------------------------------------------------------------------------
 * Statement boundaries
 * ------------------------------------------------------------------------
 */

static void
store_boundary(KeptRecord *r, uint64 statements)
{
	volatile KeptBoundary *b = &r->boundary[++sequence % 2];

	b->statements = statements;
	b->entries = (uint64) My.nentries;
	b->command = My.wrote ? (uint64) My.last_command + 1 : 0;
	pm_line_order((const void *) b);
	b->sequence = sequence;
	pm_flush((const void *) b, sizeof(KeptBoundary));
}

/*
 * The record is complete before it is OPEN, and OPEN before the TCB is KEPT:
 * only both together keep a transaction.
 */
static void
open_record(KeptRecord *r, uint64 statements)
{
	TxnKept    *k = My.kept;

	/* first in its line, which has the hash, too */
	*(volatile uint64 *) &r->state = 0;
	pm_line_order(r);
	r->ended = 0;
	r->started = asked.started;
	r->db_oid = MyDatabaseId;
	r->role = GetUserId();
	r->first_xid = My.fxid;
	memcpy(r->token_hash, asked.hash, sizeof(r->token_hash));
	memcpy(r->label, asked.label, sizeof(r->label));
	memset(r->boundary, 0, sizeof(r->boundary));
	sequence = 0;
	store_boundary(r, statements);
	pm_flush(r, sizeof(KeptRecord));
	txn_drain();
	pm_store8(&r->state, KEPT_MAKE_STATE(KEPT_OPEN, k->slot, k->generation));
	txn_drain();
	SOFORT_STOP("kept-record-open");
	txn_set_state(TCB_KEPT);
	txn_drain();
}

/*
 * A session that passes our locks on to a new version either sees the mark, and makes them
 * durable there; or it did so before, and we find them.
 */
static void
set_mark(TxnKept *k)
{
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	pg_atomic_fetch_add_u32(&TxnShmem->kept, 1);
	k->stage = KEEP_RUNNING;
	TxnSlots[k->slot].kept = (uint32) (k - TxnKeptOnes) + 1;
	__atomic_store_n(&TxnSlots[k->slot].stays_open, true, __ATOMIC_RELEASE);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	pg_memory_barrier();
}

void
txn_statement_finished(uint64 statements)
{
	TxnKept    *k = My.kept;
	KeptRecord *r;
	bool		first;

	if (k == NULL)
		return;
	Assert(My.have_slot && My.stage == STAGE_OPEN);
	r = kept_record(k);
	first = k->stage == KEEP_ASKED;
	if (first)
	{
		expected_settle();
		txn_activate();
		set_mark(k);
	}
	rowlock_log_new();
	kept_before_commit();
	txn_drain();
	SOFORT_STOP("kept-before-boundary");
	if (first)
		open_record(r, statements);
	else
	{
		store_boundary(r, statements);
		txn_drain();
	}
	txn_new_statement();
	SOFORT_STOP("kept-boundary");
}

/* Flushes WAL that it may depend on, and that of its own sequences. */
void
kept_before_commit(void)
{
	wal_flush_dependencies();
	if (XactLastRecEnd != InvalidXLogRecPtr)
		XLogFlush(XactLastRecEnd);
}

/* The transaction was resumed: boundaries continue from this one. */
void
kept_continue(const KeptBoundary *b)
{
	sequence = b->sequence;
}

/* ------------------------------------------------------------------------
 * Row locks that others give to it
 * ------------------------------------------------------------------------
 */

/*
 * A kept transaction was given a lock on another version, whose maker must not
 * commit before that is durable.  May raise an error (pool full).
 */
void
kept_log_lock(uint32 slot, uint32 generation, StoreId store, uint64 row, LockTupleMode mode)
{
	TxnKept    *k = NULL;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	if (TxnSlots[slot].kept > 0)
		k = &TxnKeptOnes[TxnSlots[slot].kept - 1];
	if (k == NULL || k->generation != generation)
	{
		LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
		return;
	}
	txn_store_carried_lock(txn_chunk_entry(&kept_record(k)->locks, k->next_lock), store,
						   generation, row, mode);
	k->next_lock++;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	SOFORT_STOP("kept-lock-carried");
}
