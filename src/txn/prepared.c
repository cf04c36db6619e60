/*-------------------------------------------------------------------------
 *
 * prepared.c
 *	  PREPARE TRANSACTION, and what becomes of prepared transactions.
 *
 * A prepared transaction keeps its TCB, so its rows need no change; the backend gets a
 * spare slot in exchange.  PostgreSQL calls nobody when it is committed or rolled back:
 * readers ask the commit log, and the session that finishes it resolves it afterwards,
 * or another that needs that earlier.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "storage/procarray.h"

#include "txn_internal.h"

/* This transaction finishes another one. */
static bool finishes = false;

static inline TxnBackend *
prepared_stand_in(const TxnPrepared *p)
{
	return &TxnBackends[TxnShmem->nbackends + (p - TxnPreparedOnes)];
}

static inline TxnPreparedState
prepared_state(const TxnPrepared *p)
{
	return *(const volatile TxnPreparedState *) &p->state;
}

/* ------------------------------------------------------------------------
 * Start-up
 * ------------------------------------------------------------------------
 */

/* The next slot number, from 0 on, leaving out those of prepared transactions. */
static uint32
next_slot(uint32 *n)
{
	while (*n < pm_vector_count(&PoolSuper->tcbs) &&
		   (TCB_STATE(((const Tcb *) pm_vector_get(&PoolSuper->tcbs, *n))->state) == TCB_TWO_PHASE ||
			kept_has_slot(*n)))
		(*n)++;
	if (*n >= TXN_MAX_SLOTS)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("sofort has too few transaction slots"),
				 errdetail("There are %d slots for %d connections, prepared transactions and background processes.",
						   TXN_MAX_SLOTS, MaxBackends + max_prepared_xacts),
				 errhint("Lower max_connections or max_prepared_transactions.")));
	return (*n)++;
}

/*
 * Decides which backend has which slots in this life.  In the postmaster, which cannot tell
 * yet whether a transaction is still prepared.  False: the pool was refused.
 */
bool
prepared_startup(void)
{
	uint32		n = 0;
	uint32		i;
	uint32		k;

	for (i = 0; i < TxnShmem->nbackends; i++)
	{
		for (k = 0; k < TxnShmem->ring; k++)
			TxnRings[i * TxnShmem->ring + k] = next_slot(&n);
	}
	for (i = 0; i < TxnShmem->nprepared; i++)
	{
		TxnPreparedOnes[i].state = PREPARED_NONE;
		TxnPreparedOnes[i].spare = next_slot(&n);
	}
	TxnShmem->nslots = (uint32) Max(n, pm_vector_count(&PoolSuper->tcbs));
	TxnSlots = arena_alloc(TxnShmem->nslots * sizeof(TxnSlot), ARENA_ZERO | ARENA_NO_OOM);
	if (TxnSlots == NULL)
		arena_refuse_start("transactions");
	return TxnSlots != NULL;
}

/* Makes the mirror of a prepared transaction.  TXN_LWLOCK_PREPARED is held. */
static void
adopt_slot(TxnPrepared *p, const Tcb *tcb, uint32 slot)
{
	TxnSlot    *s = &TxnSlots[slot];
	TxnBackend *b = prepared_stand_in(p);

	p->slot = slot;
	b->slot = slot;
	b->nsubs = 0;
	b->pid = 0;
	s->fxid = tcb->xid;
	s->generation = TCB_GENERATION(tcb->state);
	s->owner = (uint32) (b - TxnBackends);
	s->prepared = (uint32) (p - TxnPreparedOnes) + 1;
	pg_write_barrier();
	s->active = true;
	p->state = PREPARED_DONE;
	pg_atomic_fetch_add_u32(&TxnShmem->prepared, 1);
}

static TxnPrepared *
free_one(void)
{
	uint32		i;

	for (i = 0; i < TxnShmem->nprepared; i++)
	{
		if (TxnPreparedOnes[i].state == PREPARED_NONE)
			return &TxnPreparedOnes[i];
	}
	return NULL;
}

/*
 * Puts the locks of an entry in force again.  An entry that no longer leads to a row is
 * removed, because its rows may become another's; so are entries of unlogged tables, which
 * are empty now.
 */
static void
restore_entry(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	TxnPrepared *p = &TxnPreparedOnes[TxnSlots[slot].prepared - 1];
	bool		valid = !entry_is_lock(e);
	uint64		row;

	if ((e->kind == TXN_ENTRY_BEGIN || e->kind == TXN_ENTRY_END || entry_is_lock(e) ||
		 e->kind == TXN_ENTRY_CREATE_COLUMN) && TxnOps->store_emptied(e->store))
	{
		pm_store8(&durable->what, 0);
		return;
	}
	for (row = e->row; entry_is_lock(e) && row < e->row + e->count; row++)
		valid |= rowlock_restore(e->store, row, (LockTupleMode) (e->kind - TXN_ENTRY_LOCK), slot,
								 generation, fxid, true);
	if (valid)
		p->nentries++;
	else
		pm_store8(&durable->what, 0);
}

/*
 * Adopts a transaction that was prepared before the restart.  By the first backend that
 * touches sofort, under TXN_LWLOCK_RESOLVE; repeated if memory was short.  The caller
 * drains in any case, so that removed entries are gone before their rows are another's.
 */
void
prepared_adopt(Tcb *tcb, uint32 slot)
{
	PMPtr		chunk;

	if (TxnSlots[slot].prepared == 0)
	{
		TxnPrepared *p;

		LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
		p = free_one();
		if (p == NULL)
			elog(ERROR, "more transactions are prepared than max_prepared_transactions allows");
		adopt_slot(p, tcb, slot);
		/* locks that are added later go to a new chunk */
		p->next_entry = TCB_INLINE_ENTRIES;
		for (chunk = tcb->overflow; chunk != PM_NULL;
			 chunk = ((const TcbChunk *) pm_deref(chunk))->next)
			p->next_entry += TCB_CHUNK_ENTRIES;
		p->watched = true;		/* it is not known who will finish it */
		pg_atomic_fetch_add_u32(&TxnShmem->finishing, 1);
		LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	}
	TxnPreparedOnes[TxnSlots[slot].prepared - 1].nentries = 0;
	tcb_walk(tcb, slot, false, restore_entry);
	SOFORT_STOP("twophase-adopted");
}

/* ------------------------------------------------------------------------
 * PREPARE TRANSACTION
 * ------------------------------------------------------------------------
 */

/*
 * In PRE_PREPARE: the row locks go into the write set, and from now on sessions that give
 * us more of them add them there.  Raises the error that PostgreSQL would raise soon if too
 * many are prepared.
 */
void
prepared_begin(void)
{
	TxnPrepared *p;

	txn_begin_write();			/* locks alone make no TCB */
	txn_resolve_prepared();
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	p = free_one();
	if (p == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("maximum number of prepared transactions reached"),
				 errhint("Increase max_prepared_transactions (currently %d).",
						 max_prepared_xacts)));
	(void) txn_tcb_of_slot(p->spare);	/* here, where an error does no harm */
	p->state = PREPARED_BEGUN;
	p->slot = My.slot;
	p->watched = false;
	p->next_entry = 0;			/* held, so that nobody adds locks before our own are listed */
	pg_atomic_fetch_add_u32(&TxnShmem->prepared, 1);
	My.prepared = p;
	TxnSlots[My.slot].prepared = (uint32) (p - TxnPreparedOnes) + 1;
	pg_memory_barrier();
	rowlock_log_all();
	p->nentries = p->next_entry = (uint64) My.nentries;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	SOFORT_STOP("twophase-locks-logged");
}

/*
 * The transaction will not be prepared after all.  Others have added only locks to the
 * write set, but perhaps in chunks of their own.
 */
void
prepared_cancel(void)
{
	TxnPrepared *p = My.prepared;
	PMPtr	   *link;
	int			n = 0;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	TxnSlots[My.slot].prepared = 0;
	p->next_entry = 0;
	p->state = PREPARED_NONE;
	pg_atomic_fetch_sub_u32(&TxnShmem->prepared, 1);
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	My.prepared = NULL;
	if (My.tcb == NULL || !My.durable)
		return;

	/* at most one per added lock */
	for (link = &My.tcb->overflow; *link != PM_NULL; link = &My.chunks[n++]->next)
	{
		int64		max = My.maxchunks;

		My.chunks = txn_grow(My.chunks, n, &max, sizeof(TcbChunk *));
		My.maxchunks = (int) max;
		My.chunks[n] = (TcbChunk *) pm_deref(*link);
	}
	My.nchunks = n;
}

/*
 * In PREPARE: detaches the transaction from this backend.  Nobody can finish it before
 * PostgreSQL has released it, which comes after this.  No error, no allocation.
 */
void
prepared_hand_over(void)
{
	TxnPrepared *p = My.prepared;
	TxnBackend *b = prepared_stand_in(p);
	uint32		number = (uint32) (My.backend - TxnBackends);

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	b->slot = My.slot;
	b->nsubs = 0;
	b->pid = 0;
	b->spec_token = 0;
	locktable_hand_over(My.backend, My.slot, b);
	txn_mirror_leave(My.backend);
	TxnRings[number * TxnShmem->ring + My.ring_place] = p->spare;
	txn_slot_replaced(My.ring_place);
	if (IsLogicalWorker())
	{
		p->watched = true;
		pg_atomic_fetch_add_u32(&TxnShmem->finishing, 1);
	}
	/* who resolves it begins with what this word says, without the lock */
	pg_write_barrier();
	*(volatile TxnPreparedState *) &p->state = PREPARED_DONE;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	My.have_slot = false;
	My.durable = false;
	My.nchunks = 0;
	My.prepared = NULL;
}

/*
 * A prepared transaction was given a lock on another version.  May raise an
 * error (pool full).
 */
void
prepared_log_lock(uint32 slot, uint32 generation, StoreId store, uint64 row, LockTupleMode mode)
{
	TxnPrepared *p = NULL;
	Tcb		   *tcb;
	TcbEntry   *d;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	if (TxnSlots[slot].prepared > 0 && TxnSlots[slot].generation == generation)
		p = &TxnPreparedOnes[TxnSlots[slot].prepared - 1];
	if (p == NULL || p->slot != slot || p->next_entry == 0)
	{
		LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
		return;
	}
	tcb = txn_tcb_of_slot(slot);
	if (p->next_entry < TCB_INLINE_ENTRIES)
		d = &tcb->entries[p->next_entry];
	else
		d = txn_chunk_entry(&tcb->overflow, p->next_entry - TCB_INLINE_ENTRIES);
	txn_store_carried_lock(d, store, generation, row, mode);
	p->nentries++;
	p->next_entry++;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
	SOFORT_STOP("twophase-lock-carried");
}

/* ------------------------------------------------------------------------
 * COMMIT PREPARED, ROLLBACK PREPARED
 * ------------------------------------------------------------------------
 */

static bool
is_finished(const TxnPrepared *p)
{
	return prepared_state(p) == PREPARED_DONE &&
		!TransactionIdIsInProgress((TransactionId) TxnSlots[p->slot].fxid);
}

static void
release_lock_words(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation,
				   uint64 fxid)
{
	if (entry_is_lock(e))
		rowlock_release_words(e, slot, generation);
}

/* TXN_LWLOCK_RESOLVE is held. */
static void
resolve(TxnPrepared *p)
{
	uint32		slot = p->slot;
	TxnSlot    *s = &TxnSlots[slot];
	Tcb		   *tcb = txn_tcb_of_slot(slot);
	TxnHold		hold;

	SOFORT_STOP("twophase-finished");
	/* as in at_abort(); perhaps rows of another database */
	hold = txn_hold_all_horizons();
	if (TransactionIdDidCommit((TransactionId) s->fxid))
		tcb_finish_committed(tcb, slot);
	else
		tcb_finish_aborted(tcb, slot);
	txn_release_horizon(hold);
	SOFORT_STOP("twophase-stamped");
	__atomic_store_n(&s->active, false, __ATOMIC_RELEASE);

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_PREPARED), LW_EXCLUSIVE);
	tcb_walk(tcb, slot, false, release_lock_words);
	locktable_release(prepared_stand_in(p), TopSubTransactionId, 0);
	txn_drain();
	pm_store8_persist(&tcb->state,
					  TCB_MAKE_STATE(TCB_FREE, TCB_GENERATION(tcb->state), TxnShmem->life));
	SOFORT_STOP("twophase-released");
	tcb_free_overflow(tcb);
	s->prepared = 0;
	txn_mirror_leave(prepared_stand_in(p));
	if (p->watched)
		pg_atomic_fetch_sub_u32(&TxnShmem->finishing, 1);
	pg_atomic_fetch_sub_u32(&TxnShmem->prepared, 1);
	p->spare = slot;
	p->state = PREPARED_NONE;
	LWLockRelease(txn_lwlock(TXN_LWLOCK_PREPARED));
}

/*
 * If this fails half-way, another process goes on with it.  That one finds words stamped or
 * undone, and flushes none of them: so they must be durable before it can begin.
 */
static void
resolve_or_leave_durable(TxnPrepared *p)
{
	PG_TRY();
	{
		resolve(p);
	}
	PG_CATCH();
	{
		pm_drain();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

void
txn_resolve_prepared(void)
{
	uint32		i;

	if (likely(TxnShmem == NULL || pg_atomic_read_u32(&TxnShmem->prepared) == 0))
		return;
	for (i = 0; i < TxnShmem->nprepared; i++)
	{
		TxnPrepared *p = &TxnPreparedOnes[i];

		if (!is_finished(p))
			continue;
		LWLockAcquire(txn_lwlock(TXN_LWLOCK_RESOLVE), LW_EXCLUSIVE);
		if (is_finished(p))
			resolve_or_leave_durable(p);
		LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
	}
}

void
txn_finishes_prepared(void)
{
	if (finishes || TxnShmem == NULL)
		return;
	finishes = true;
	pg_atomic_fetch_add_u32(&TxnShmem->finishing, 1);
}

bool
txn_may_finish_prepared(void)
{
	return finishes || IsLogicalWorker();
}

/* The transaction that was to finish another has ended, one way or the other. */
void
prepared_end_of_xact(void)
{
	if (TxnShmem == NULL || !txn_may_finish_prepared())
		return;
	if (pool_status() == POOL_READY && !TxnShmem->leftovers)
		txn_resolve_prepared();
	if (finishes)
		pg_atomic_fetch_sub_u32(&TxnShmem->finishing, 1);
	finishes = false;
}
