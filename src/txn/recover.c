/*-------------------------------------------------------------------------
 *
 * recover.c
 *	  What TCBs of earlier server lives mean, at start-up and later.
 *
 * The postmaster cannot read the commit log and runs before redo: it finishes what is
 * COMMITTED.  Everything else waits for the first backend that touches sofort.  Before
 * that no backend can meet a word that names such a TCB, because store_open() resolves
 * first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "storage/procarray.h"
#include "storage/shmem.h"

#include "txn_internal.h"

bool		txn_recovering = false;

/* The chunks of a TCB, in order; palloc'd. */
TcbChunk **
tcb_chunks(const Tcb *tcb, int *n)
{
	TcbChunk  **chunks = NULL;
	int64		max = 0;
	PMPtr		p;

	*n = 0;
	for (p = tcb->overflow; p != PM_NULL; p = chunks[*n - 1]->next)
	{
		chunks = txn_grow(chunks, *n, &max, sizeof(TcbChunk *));
		chunks[(*n)++] = (TcbChunk *) pm_deref(p);
	}
	return chunks;
}

/* Decodes an entry; false if it is not of this generation. */
bool
tcb_valid_entry(const TcbEntry *durable, uint32 generation, TxnEntry *e)
{
	if (ENTRY_GENERATION(durable->what) != generation ||
		ENTRY_KIND(durable->what) == TXN_ENTRY_NONE)
		return false;
	e->store = ENTRY_STORE(durable->what);
	e->kind = ENTRY_KIND(durable->what);
	e->row = ENTRY_ROW(durable->row);
	e->count = ENTRY_COUNT(durable->row);
	return true;
}

/* Call action for the valid ones of n entries. */
static void
walk_array(TcbEntry *entries, int n, bool backwards, uint32 slot, uint32 generation,
		   uint64 fxid, TcbAction action)
{
	int			k;

	for (k = 0; k < n; k++)
	{
		TcbEntry   *d = &entries[backwards ? n - 1 - k : k];
		TxnEntry	e;

		if (tcb_valid_entry(d, generation, &e))
			action(d, &e, slot, generation, fxid);
	}
}

void
tcb_walk(Tcb *tcb, uint32 slot, bool backwards, TcbAction action)
{
	uint32		generation = TCB_GENERATION(tcb->state);
	int			nchunks;
	TcbChunk  **chunks = tcb_chunks(tcb, &nchunks);
	int			k;

	if (!backwards)
		walk_array(tcb->entries, TCB_INLINE_ENTRIES, false, slot, generation, tcb->xid, action);
	for (k = 0; k < nchunks; k++)
		walk_array(chunks[backwards ? nchunks - 1 - k : k]->entries, TCB_CHUNK_ENTRIES, backwards,
				   slot, generation, tcb->xid, action);
	if (backwards)
		walk_array(tcb->entries, TCB_INLINE_ENTRIES, true, slot, generation, tcb->xid, action);
	if (chunks)
		pfree(chunks);
}

/* What walk_rows_once() does, and where it has been */
static TcbAction action_on_rows;
static VisitedRows visited;

static void
visit_once(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	TxnEntry	left = *e;

	if (txn_left_to_visit(&visited, &left))
		action_on_rows(durable, &left, slot, generation, fxid);
}

static void
walk_rows_once(Tcb *tcb, uint32 slot, bool backwards, TcbAction action)
{
	action_on_rows = action;
	memset(&visited, 0, sizeof(visited));
	tcb_walk(tcb, slot, backwards, visit_once);
}

static void
commit_entry(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	if (e->kind == TXN_ENTRY_BEGIN || e->kind == TXN_ENTRY_END)
		TxnOps->stamp_rows(e, slot, generation, fxid);
}

static void
commit_drop(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	if (e->kind == TXN_ENTRY_DROP_STORE)
		TxnOps->drop_store(e->store);
}

/* One of the entries that were walked through asks for a drain. */
static bool links_undone;

static void
abort_links(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	links_undone |= txn_undo_links(e, slot, generation, 0);
}

static void
abort_entry(TcbEntry *durable, const TxnEntry *e, uint32 slot, uint32 generation, uint64 fxid)
{
	txn_undo_entry(e, slot, generation, 0);
}

/* Gives back the chunks, last first, so that the chain is whole at any time. */
void
tcb_free_overflow(Tcb *tcb)
{
	int			n;
	TcbChunk  **chunks = tcb_chunks(tcb, &n);

	while (--n >= 0)
		pm_free(PM_OWNER_TXN, n == 0 ? &tcb->overflow : &chunks[n - 1]->next, 1);
	if (chunks)
		pfree(chunks);
}

/* Flushed, not drained. */
void
tcb_finish_committed(Tcb *tcb, uint32 slot)
{
	walk_rows_once(tcb, slot, false, commit_entry);
	TxnOps->end_of_other();
	tcb_walk(tcb, slot, false, commit_drop);
}

void
tcb_finish_aborted(Tcb *tcb, uint32 slot)
{
	if (!txn_recovering)
	{
		links_undone = false;
		walk_rows_once(tcb, slot, true, abort_links);
		txn_links_undone(links_undone);
	}
	walk_rows_once(tcb, slot, true, abort_entry);
	TxnOps->end_of_other();
}

/*
 * What a killed process stored last in a TCB may not be on the medium.  It must be durable
 * before anything is done about it: a power failure in between must not leave words of a
 * transaction that was finished in one way beside a TCB that asks for the other.
 */
static void
persist_tcbs(void)
{
	uint64		slot;

	for (slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
	{
		Tcb		   *tcb = (Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

		if (TCB_STATE(tcb->state) != TCB_FREE)
			pm_flush(tcb, sizeof(Tcb));
		else if (tcb->xid != 0)
			pm_flush(tcb, PM_LINE); /* if FREE: the commit log may have forgotten its xid */
	}
	pm_drain();
}

/* The reference in a chain of chunks that leads nowhere, or NULL. */
static PMPtr *
damaged_link(PMPtr *link)
{
	while (*link != PM_NULL)
	{
		TcbChunk   *chunk = pm_deref_quietly(*link);

		if (chunk == NULL)
			return link;
		link = &chunk->next;
	}
	return NULL;
}

/*
 * Checks a chain in the postmaster, where the error of pm_deref() would end the server.  A
 * chain that nobody needs any more is cut where it is damaged.  False, and the pool is
 * refused, for one of a transaction that is yet to be finished, because it can be neither
 * committed nor undone completely.
 */
bool
tcb_check_chain(PMPtr *first, bool needed, const char *what, uint64 number)
{
	PMPtr	   *link = damaged_link(first);

	if (likely(link == NULL))
		return true;
	if (needed)
	{
		pool_refuse_life(ERRCODE_DATA_CORRUPTED,
						 psprintf("sofort pool \"%s\" is damaged", pool_path()),
						 psprintf("A reference in the %s " UINT64_FORMAT " leads nowhere.", what, number),
						 "Restore pool and data directory from one backup.");
		return false;
	}
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("sofort pool: a reference in the %s " UINT64_FORMAT " is damaged", what, number),
			 errdetail("Nothing needed it any more, and it was removed.  What it led to stays in use.")));
	*link = PM_NULL;			/* (if this is lost, whoever finds the damage again does it
								 * again) */
	return true;
}

static bool
check_tcbs(void)
{
	uint64		slot;

	for (slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
	{
		Tcb		   *tcb = (Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

		if (!tcb_check_chain(&tcb->overflow, TCB_STATE(tcb->state) != TCB_FREE,
							 "write set of transaction slot", slot))
			return false;
	}
	return true;
}

static void
startup_shmem(void)
{
	Size		size = txn_shmem_size();
	bool		found;
	char	   *p = ShmemInitStruct("sofort transactions", size, &found);
	uint32		i;

	memset(p, 0, size);
	TxnShmem = (TxnShared *) p;
	TxnShmem->nbackends = (uint32) MaxBackends;
	TxnShmem->nprepared = (uint32) max_prepared_xacts;
	TxnShmem->ring = (uint32) Max(1, Min(TXN_RING, (TXN_MAX_SLOTS - 2 * max_prepared_xacts) /
										 MaxBackends));
	TxnShmem->nkept = (uint32) MaxBackends;
	pg_atomic_init_u32(&TxnShmem->ntcbs, 0);
	pg_atomic_init_u32(&TxnShmem->kept, 0);
	pg_atomic_init_u32(&TxnShmem->kept_waiting, 0);
	pg_atomic_init_u32(&TxnShmem->kept_locks, 0);
	ConditionVariableInit(&TxnShmem->keeper_holds);
	pg_atomic_init_u32(&TxnShmem->prepared, 0);
	pg_atomic_init_u32(&TxnShmem->finishing, 0);
	p += MAXALIGN(sizeof(TxnShared));
	TxnRings = (uint32 *) p;
	p += MAXALIGN(sizeof(uint32) * TXN_RING * TxnShmem->nbackends);
	TxnPreparedOnes = (TxnPrepared *) p;
	p += MAXALIGN(sizeof(TxnPrepared) * TxnShmem->nprepared);
	TxnKeptOnes = (TxnKept *) p;
	for (i = 0; i < TxnShmem->nkept; i++)
		pg_atomic_init_u32(&TxnKeptOnes[i].takers, 0);
	p += MAXALIGN(sizeof(TxnKept) * TxnShmem->nkept);
	TxnBackends = (TxnBackend *) p;
	for (i = 0; i < TxnShmem->nbackends + TxnShmem->nprepared + TxnShmem->nkept; i++)
	{
		TxnBackends[i].slot = TXN_NO_SLOT;
		SpinLockInit(&TxnBackends[i].mutex);
	}
	TxnLocks = GetNamedLWLockTranche("sofort_txn");
	locktable_startup();
	wal_startup();
}

/* Finishes what the start can finish */
static void
settle_slots(void)
{
	uint64		slot;

	kept_mark_slots();
	for (slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
	{
		Tcb		   *tcb = (Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

		TxnSlots[slot].generation = TCB_GENERATION(tcb->state);
		switch (TCB_STATE(tcb->state))
		{
			case TCB_FREE:
				/* a crash came while its chunks were given back */
				if (tcb->overflow != PM_NULL)
					tcb_free_overflow(tcb);
				break;
			case TCB_COMMITTED:
				tcb_finish_committed(tcb, (uint32) slot);
				break;
			default:
				break;
		}
	}
}

void
txn_startup(void)
{
	startup_shmem();
	if (pool_status() != POOL_READY)
		return;
	TxnShmem->life = pool_life();
	TxnShmem->old_mark = PoolSuper->hw_xid;
	TxnShmem->leftovers = true; /* at least the checks must be done */
	persist_tcbs();
	pg_atomic_write_u32(&TxnShmem->ntcbs, (uint32) pm_vector_count(&PoolSuper->tcbs));
	txn_recovering = true;
	if (check_tcbs() && kept_startup() && prepared_startup())
		settle_slots();
	pm_drain();
	txn_recovering = false;
}

/* ------------------------------------------------------------------------
 * Leftovers
 * ------------------------------------------------------------------------
 */

/*
 * The pool cannot know a transaction that the data directory had not begun before
 * this start: then the data directory is the older one.
 */
static void
check_ids(void)
{
	uint64		next = TxnShmem->redo_next;
	uint64		slot;

	if (next == 0)
		next = U64FromFullTransactionId(ReadNextFullTransactionId());
	for (slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
	{
		const Tcb  *tcb = (const Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

		if (tcb->xid >= next)
		{
			pool_declare_contradiction(psprintf("sofort pool \"%s\" is newer than data directory \"%s\"",
												pool_path(), DataDir),
									   psprintf("The pool knows transaction %llu, the server's next one was %llu.",
												(unsigned long long) tcb->xid,
												(unsigned long long) next));
			pool_require();
		}
	}
}

/* Does the commit log certainly still have this xid? */
static bool
in_commit_log(uint64 fxid)
{
	bool		known;

	LWLockAcquire(XactTruncationLock, LW_SHARED);
	known = fxid >= txn_widen(oldest_clog_xid());
	LWLockRelease(XactTruncationLock);
	return known;
}

/* Does the commit log say that it has committed?  Only after redo, so nobody runs it. */
static bool
commit_log_says_committed(const Tcb *tcb)
{
	TransactionId xid = (TransactionId) tcb->xid;

	if (!in_commit_log(tcb->xid))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("outcome of sofort transaction %llu is unknown",
						(unsigned long long) tcb->xid),
				 errdetail("The commit log of data directory \"%s\" was truncated beyond it.",
						   DataDir),
				 errhint("Restore pool and data directory from the same backup.")));
	return !TransactionIdIsInProgress(xid) && TransactionIdDidCommit(xid);
}

/*
 * Enters commits that PostgreSQL has lost in its commit log again, so that pg_xact_status()
 * says "committed".  The WAL record makes them durable before the TCBs are forgotten.
 */
static void
mark_commit_log(void)
{
	TransactionId xids[256];
	int			n = 0;
	uint64		slot;

	for (slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
	{
		const Tcb  *tcb = (const Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

		if (TCB_STATE(tcb->state) != TCB_COMMITTED || TCB_LIFE(tcb->state) == TxnShmem->life ||
			!in_commit_log(tcb->xid) || TransactionIdDidCommit((TransactionId) tcb->xid))
			continue;
		xids[n++] = (TransactionId) tcb->xid;
		if (n == lengthof(xids))
		{
			wal_log_committed(xids, n);
			n = 0;
		}
	}
	if (n > 0)
		wal_log_committed(xids, n);
}

/* Was it prepared before the restart, and neither committed nor rolled back yet? */
static bool
still_prepared(const Tcb *tcb)
{
	return TCB_STATE(tcb->state) == TCB_TWO_PHASE &&
		TransactionIdIsInProgress((TransactionId) tcb->xid);
}

static bool
has_committed(const Tcb *tcb)
{
	return (TCB_STATE(tcb->state) == TCB_PREPARED || TCB_STATE(tcb->state) == TCB_TWO_PHASE) &&
		commit_log_says_committed(tcb);
}

/* committed: resolves it if the commit log has it committed; else: any other */
static void
resolve_slot(Tcb *tcb, uint32 slot, bool committed)
{
	if (kept_has_slot(slot))
	{
		if (!committed)
			kept_undo_unfinished(slot);
		return;
	}
	if (TCB_STATE(tcb->state) == TCB_FREE || TCB_LIFE(tcb->state) == TxnShmem->life ||
		still_prepared(tcb) || has_committed(tcb) != committed)
		return;
	if (committed)
		tcb_finish_committed(tcb, slot);
	else if (TCB_STATE(tcb->state) != TCB_COMMITTED)	/* (finished at start-up) */
		tcb_finish_aborted(tcb, slot);
	pm_drain();
	SOFORT_STOP("leftover-resolved");
	/* drained before its chunks are free, or with its next transaction, or by the caller */
	pm_store8(&tcb->state,
			  TCB_MAKE_STATE(TCB_FREE, TCB_GENERATION(tcb->state), TxnShmem->life));
	tcb_free_overflow(tcb);
}

/* Also after an error: what is done is not done again. */
static void
end_resolving(void)
{
	txn_recovering = false;
	pm_drain();					/* before the commit log may be truncated */
}

/*
 * Committed ones come first, because undo corrects the links of chains to lead to versions
 * that are committed.  Row locks of prepared ones are restored when no words of others are
 * in the way any more; also of those that were finished since, which are then resolved like
 * any other.
 */
static void
resolve_slots(void)
{
	txn_recovering = true;
	PG_TRY();
	{
		for (int committed = 1; committed >= 0; committed--)
			for (uint64 slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
				resolve_slot((Tcb *) pm_vector_get(&PoolSuper->tcbs, slot), (uint32) slot,
							 committed != 0);
		for (uint64 slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
		{
			Tcb		   *tcb = (Tcb *) pm_vector_get(&PoolSuper->tcbs, slot);

			if (TCB_STATE(tcb->state) == TCB_TWO_PHASE)
				prepared_adopt(tcb, (uint32) slot);
		}
	}
	PG_CATCH();
	{
		end_resolving();
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_resolving();
}

void
txn_resolve_leftovers(void)
{
	if (unlikely(TxnShmem == NULL))
		pool_require();			/* not preloaded */
	if (likely(!*(volatile bool *) &TxnShmem->leftovers))
	{
		if (unlikely(pg_atomic_read_u32(&TxnShmem->finishing) > 0))
			txn_resolve_prepared();
		return;
	}
	pool_require();				/* also raises an error during recovery */
	LWLockAcquire(txn_lwlock(TXN_LWLOCK_RESOLVE), LW_EXCLUSIVE);
	if (TxnShmem->leftovers && !TxnShmem->resolved)
	{
		wal_check_redo();
		kept_require_places();
		pool_finish_restore();
		check_ids();
		mark_commit_log();
		resolve_slots();
		TxnShmem->resolved = true;
	}
	if (TxnShmem->leftovers && !kept_adopt())
	{
		pg_memory_barrier();
		*(volatile bool *) &TxnShmem->leftovers = false;
	}
	LWLockRelease(txn_lwlock(TXN_LWLOCK_RESOLVE));
	txn_resolve_prepared();
	kept_wait_for_keeper();
}
