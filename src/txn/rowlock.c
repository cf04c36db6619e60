/*-------------------------------------------------------------------------
 *
 * rowlock.c
 *	  Claiming a version for DELETE or UPDATE, row locks.
 *
 * Results are those of heap_delete(), heap_update() and heap_lock_tuple() for
 * the same history.  A single holder is a LOCK word; everything else is in the
 * lock table, and the end word says so (LOCKERS, or END_LOCKERS beside an
 * updater).  Words with that mark, and LOCK words that become entries, change
 * under the row's partition lock; the rest by compare-and-swap alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "storage/procarray.h"

#include "txn_internal.h"

/* held mode (row) against wanted mode */
static const bool conflicts[4][4] = {
	[LockTupleKeyShare] = {[LockTupleExclusive] = true},
	[LockTupleShare] = {[LockTupleNoKeyExclusive] = true, [LockTupleExclusive] = true},
	[LockTupleNoKeyExclusive] = {[LockTupleShare] = true, [LockTupleNoKeyExclusive] = true,
	[LockTupleExclusive] = true},
	[LockTupleExclusive] = {true, true, true, true},
};

/* What is in the way of a claim or lock. */
typedef struct Obstacle
{
	TransactionId xid;			/* to wait for; invalid: nobody */
	bool		holds_own;		/* we hold a lock on the row ourselves */
	bool		live;			/* somebody, perhaps we ourselves, holds a lock */
	bool		changed;		/* the word has changed: start again */
} Obstacle;

typedef enum RowOutcome
{
	ROW_OK,						/* current; perhaps locked */
	ROW_INVISIBLE,
	ROW_SELF_MODIFIED,
	ROW_ENDING,					/* by another transaction in progress */
	ROW_ENDED,
	ROW_UNDOING					/* aborted: wait a moment for its undo */
} RowOutcome;

/* ------------------------------------------------------------------------
 * State of a row
 * ------------------------------------------------------------------------
 */

static inline LockTupleMode
ender_mode(uint64 end)
{
	return (end & END_KEYS) ? LockTupleExclusive : LockTupleNoKeyExclusive;
}

static inline TM_Result
ended_result(uint64 end)
{
	return (end & (END_UPDATED | END_MOVED)) ? TM_Updated : TM_Deleted;
}

/* As HeapTupleSatisfiesUpdate(); *e is the view of the end word. */
static RowOutcome
row_outcome(const RowWords *words, CommandId cid, WordView *e)
{
	WordView	b;

	e->owner = OWNER_NONE;
	view_word(&words->begin, &b);
	switch (b.owner)
	{
		case OWNER_COMMITTED:
			break;
		case OWNER_MINE:
			if (WORD_COMMAND(b.word) >= cid)
				return ROW_INVISIBLE;
			break;
		default:
			return ROW_INVISIBLE;
	}
	view_word(&words->end, e);
	switch (e->owner)
	{
		case OWNER_MINE:
			return WORD_COMMAND(e->word) >= cid ? ROW_SELF_MODIFIED : ROW_INVISIBLE;
		case OWNER_RUNNING:
			return ROW_ENDING;
		case OWNER_COMMITTED:
			return ROW_ENDED;
		case OWNER_UNDOING:
			return ROW_UNDOING;
		default:
			return ROW_OK;
	}
}

/* Is the holder of a lock still there?  (Not for own ones.) */
static bool
holder_runs(uint32 slot, uint32 generation)
{
	bool		waits = slot_waits(slot);
	uint64		fxid;

	return slot_transaction(slot, generation, &fxid) &&
		__atomic_load_n(&TxnSlots[slot].active, __ATOMIC_ACQUIRE) &&
		(waits || TransactionIdIsInProgress((TransactionId) fxid) ||
		 (unlikely(slot_stays_open(slot)) && !TransactionIdDidCommit((TransactionId) fxid)));
}

/* Is it a LOCK word whose holder has not released it (it may be about to)? */
static bool
lock_word_live(uint64 word)
{
	uint64		fxid;

	return lock_word_of_this_life(word) &&
		(word_is_mine(word) ||
		 (slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), &fxid) &&
		  __atomic_load_n(&TxnSlots[WORD_SLOT(word)].active, __ATOMIC_ACQUIRE)));
}

/* Look through the entries of a row; its partition lock is held. */
static void
examine_entries(const TxnRow *r, LockTupleMode mode, Obstacle *o)
{
	RowLock    *lock;

	for (lock = locktable_first(r->store, r->row); lock != NULL; lock = locktable_next(lock))
	{
		if (is_own_entry(lock))
		{
			o->holds_own = true;
			o->live = true;
		}
		else if (!TransactionIdIsValid(o->xid) && holder_runs(lock->slot, lock->generation))
		{
			o->live = true;
			if (conflicts[lock->mode][mode])
			{
				o->xid = txn_waitable_xid(lock->slot, lock->generation, false, lock->sub);
				if (!TransactionIdIsValid(o->xid))
					o->xid = (TransactionId) lock->fxid;
			}
		}
	}
}

/*
 * Finds lockers (not enders) that conflict with "mode", where the end word was read as
 * "end".
 */
static void
examine_lockers(const TxnRow *r, uint64 end, LockTupleMode mode, Obstacle *o)
{
	memset(o, 0, sizeof(*o));
	if (WORD_TAG(end) == WORD_TAG_LOCK)
	{
		if (!lock_word_live(end))
			return;
		if (word_is_mine(end))
			o->live = o->holds_own = true;
		else if (holder_runs(WORD_SLOT(end), WORD_GENERATION(end)))
		{
			o->live = true;
			if (conflicts[WORD_LOCK_MODE(end)][mode])
				o->xid = txn_waitable_xid(WORD_SLOT(end), WORD_GENERATION(end), false,
										  WORD_LOCK_SUB(end));
		}
	}
	else if (WORD_TAG(end) == WORD_TAG_LOCKERS)
	{
		LWLockAcquire(partition_lock(r), LW_SHARED);
		examine_entries(r, mode, o);
		LWLockRelease(partition_lock(r));
	}
}

/* The same beside an ender, in progress or not. */
static void
examine_beside(const TxnRow *r, uint64 end, LockTupleMode mode, Obstacle *o)
{
	if ((end & END_LOCKERS) == 0)
		return;
	LWLockAcquire(partition_lock(r), LW_SHARED);
	examine_entries(r, mode, o);
	LWLockRelease(partition_lock(r));
}

/* ------------------------------------------------------------------------
 * Changing the end word where the lock table is involved
 * ------------------------------------------------------------------------
 */

/* Subtransaction of a LOCK word; its holder's number may be capped. */
static inline SubTransactionId
current_sub(void)
{
	return my_frame()->sub;
}

/*
 * Turns a live LOCK word into an entry for its holder.  Partition lock held; one entry in
 * stock.  The caller then changes the word from exactly this value, or removes the entry.
 */
static RowLock *
lock_word_to_entry(const TxnRow *r, uint64 word)
{
	uint64		fxid = 0;

	if (!slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), &fxid))
		return NULL;
	return locktable_add(r->store, r->row, WORD_SLOT(word), WORD_GENERATION(word), fxid,
						 WORD_LOCK_SUB(word), WORD_LOCK_MODE(word));
}

static bool
lock_word_has_entry(const TxnRow *r, uint64 word)
{
	RowLock    *lock;

	for (lock = locktable_first(r->store, r->row); lock != NULL; lock = locktable_next(lock))
	{
		if (lock->slot == WORD_SLOT(word) && lock->generation == WORD_GENERATION(word) &&
			lock->sub == WORD_LOCK_SUB(word) && lock->mode == WORD_LOCK_MODE(word))
			return true;
	}
	return false;
}

static bool
any_entry(const TxnRow *r)
{
	return locktable_first(r->store, r->row) != NULL;
}

/* Do we hold the row FOR UPDATE?  Partition lock held. */
static bool
own_entry_excludes_keys(const TxnRow *r)
{
	RowLock    *lock;

	for (lock = locktable_first(r->store, r->row); lock != NULL; lock = locktable_next(lock))
	{
		if (is_own_entry(lock) && lock->mode == LockTupleExclusive)
			return true;
	}
	return false;
}

/*
 * Replaces the end word "from" (LOCK, LOCKERS, or a word in progress of somebody else when
 * we lock beside it) by "to".  Every live locker is kept as an entry, and the word gets
 * "mark" (the LOCKERS tag or END_LOCKERS) if there are any. lock: our own new lock, added
 * as an entry, or -1: a claim, to which FOR UPDATE leaves its strength (the entry goes when
 * the transaction ends).  If o->changed or o->xid, nothing has happened.
 */
static void
change_with_table(const TxnRow *r, uint64 from, uint64 to, uint64 mark, LockTupleMode mode,
				  int lock, Obstacle *o)
{
	LWLock	   *lwlock = partition_lock(r);
	RowLock    *moved = NULL;
	RowLock    *mine = NULL;
	bool		existed = false;

	locktable_stock(2);
	memset(o, 0, sizeof(*o));
	LWLockAcquire(lwlock, LW_EXCLUSIVE);
	if (word_read(&r->words->end) != from)
		o->changed = true;
	else
		examine_entries(r, mode, o);
	if (o->changed || TransactionIdIsValid(o->xid))
	{
		LWLockRelease(lwlock);
		return;
	}

	if (WORD_TAG(from) == WORD_TAG_LOCK && lock_word_live(from))
		moved = lock_word_to_entry(r, from);
	if (lock >= 0)
	{
		RowLock    *l;

		for (l = locktable_first(r->store, r->row); l != NULL; l = locktable_next(l))
			existed |= is_own_entry(l) && l->sub == current_sub() && (int) l->mode == lock;
		mine = locktable_add(r->store, r->row, My.slot, My.generation, My.fxid, current_sub(),
							 (LockTupleMode) lock);
	}
	else if (own_entry_excludes_keys(r))
		to |= END_KEYS;
	if (any_entry(r))
		to |= mark;
	SOFORT_STOP("row-lock-added");
	if (to != from && !word_cas(&r->words->end, from, to))
	{
		o->changed = true;
		if (moved != NULL && moved != mine)
			locktable_remove(moved);
		if (mine != NULL && !existed)
			locktable_remove(mine);
	}
	LWLockRelease(lwlock);
}

/* ------------------------------------------------------------------------
 * Claims
 * ------------------------------------------------------------------------
 */

/* What one look at the row came to; the loops below repeat them. */
typedef enum Attempt
{
	ATTEMPT_ENDED,				/* with a result */
	ATTEMPT_AGAIN,				/* the row has changed meanwhile */
	ATTEMPT_BLOCKED				/* somebody is in the way */
} Attempt;

/* Arguments of a claim, and what the last attempt found */
typedef struct RowClaim
{
	const TxnRow *row;
	CommandId	cid;
	Snapshot	crosscheck;
	uint64		word;			/* to put there */
	LockTupleMode mode;
	XLTW_Oper	oper;
	bool		wait;
	TM_FailureData *failure;
	TM_Result	result;
	TransactionId blocker;
	Obstacle	obstacle;
} RowClaim;

static Attempt
fail_claim(RowClaim *c, TM_Result result, TransactionId xmax, CommandId cmax)
{
	c->failure->xmax = xmax;
	c->failure->cmax = cmax;
	c->failure->traversed = false;
	txn_forget_entry(c->row->store, c->row->row);
	c->result = result;
	return ATTEMPT_ENDED;
}

/*
 * Puts our claim where there is no ender.  True if done; else *o says what to wait for (or
 * just to look again).
 */
static bool
try_claim(const TxnRow *r, uint64 end, uint64 claim, LockTupleMode mode, Obstacle *o)
{
	bool		own;

	examine_lockers(r, end, mode, o);
	if (TransactionIdIsValid(o->xid))
		return false;
	own = WORD_TAG(end) == WORD_TAG_LOCK && lock_word_live(end) && word_is_mine(end);
	if (end == WORD_EMPTY || (WORD_TAG(end) == WORD_TAG_LOCK && !lock_word_live(end)) ||
		(own && WORD_LOCK_SUB(end) >= current_sub()))
	{
		/*
		 * Our own lock of this subtransaction ends with it, as the claim does; one of an
		 * outer subtransaction must come back on rollback: next branch.  FOR UPDATE keeps
		 * its strength in an update of other columns (there, too).
		 */
		if (own && WORD_LOCK_MODE(end) == LockTupleExclusive)
			claim |= END_KEYS;
		if (!word_cas(&r->words->end, end, claim))
			return false;
	}
	else
	{
		change_with_table(r, end, claim, END_LOCKERS, mode, -1, o);
		if (o->changed || TransactionIdIsValid(o->xid))
			return false;
	}
	SOFORT_STOP("row-claimed");
	pm_flush(&r->words->end, sizeof(uint64));
	return true;
}

/* Whom to report if we do not wait: any holder. */
static TransactionId
any_locker(const TxnRow *r, uint64 end, const Obstacle *o)
{
	TransactionId xid = o->xid;

	if (!TransactionIdIsValid(xid) && WORD_TAG(end) == WORD_TAG_LOCK)
		xid = txn_word_xid(end);
	return xid;
}

/* At a row that another transaction has ended. */
static Attempt
claim_ended(RowClaim *c, uint64 end)
{
	/* heap waits for lockers that stayed behind, too */
	examine_beside(c->row, end, c->wait ? c->mode : LockTupleExclusive, &c->obstacle);
	c->blocker = c->obstacle.xid;
	if (c->wait ? !TransactionIdIsValid(c->blocker) : !c->obstacle.live)
		return fail_claim(c, ended_result(end), txn_word_xid(end), InvalidCommandId);
	if (!c->wait)
		return fail_claim(c, TM_BeingModified, c->blocker, InvalidCommandId);
	return ATTEMPT_BLOCKED;
}

/* At a row that another transaction in progress is ending. */
static Attempt
claim_ending(RowClaim *c, const WordView *e)
{
	c->blocker = view_waitable(e);
	if (!c->wait)
		return fail_claim(c, TM_BeingModified, c->blocker, InvalidCommandId);
	examine_beside(c->row, e->word, c->mode, &c->obstacle);
	return ATTEMPT_BLOCKED;
}

/* At a row that is current. */
static Attempt
claim_current(RowClaim *c, uint64 end)
{
	const TxnRow *r = c->row;
	Obstacle   *o = &c->obstacle;

	if (!c->wait)
	{
		examine_lockers(r, end, LockTupleExclusive, o);
		if (o->live)
			return fail_claim(c, TM_BeingModified, any_locker(r, end, o), InvalidCommandId);
	}
	if (c->crosscheck != InvalidSnapshot)
	{
		/* after all waiting, before anything changes */
		examine_lockers(r, end, c->mode, o);
		if (!TransactionIdIsValid(o->xid) &&
			!txn_version_visible(r->store, r->row, r->words, c->crosscheck))
			return fail_claim(c, TM_Updated, InvalidTransactionId, InvalidCommandId);
	}
	if (try_claim(r, end, c->word, c->mode, o))
	{
		c->result = TM_Ok;
		return ATTEMPT_ENDED;
	}
	c->blocker = o->xid;
	return TransactionIdIsValid(c->blocker) ? ATTEMPT_BLOCKED : ATTEMPT_AGAIN;
}

static Attempt
attempt_claim(RowClaim *c)
{
	WordView	e;
	RowOutcome	outcome = row_outcome(c->row->words, c->cid, &e);

	memset(&c->obstacle, 0, sizeof(Obstacle));
	switch (outcome)
	{
		case ROW_INVISIBLE:
			return fail_claim(c, TM_Invisible, InvalidTransactionId, InvalidCommandId);
		case ROW_SELF_MODIFIED:
			return fail_claim(c, TM_SelfModified, (TransactionId) e.fxid, WORD_COMMAND(e.word));
		case ROW_ENDED:
			return claim_ended(c, e.word);
		case ROW_ENDING:
			return claim_ending(c, &e);
		case ROW_UNDOING:
			/* heap would not call this waiting */
			(void) rowlock_wait_for_undo(c->row, &e, LockWaitBlock, c->oper);
			return ATTEMPT_AGAIN;
		case ROW_OK:
			break;
	}
	return claim_current(c, e.word);
}

TM_Result
txn_claim_row(const TxnRow *r, CommandId cid, Snapshot crosscheck, uint64 end_flags, bool wait,
			  TM_FailureData *tmfd)
{
	RowClaim	c = {
		.row = r,
		.cid = cid,
		.crosscheck = crosscheck,
		.word = txn_progress_word(cid) | end_flags,
		.mode = ender_mode(end_flags),
		.oper = (end_flags & END_UPDATED) ? XLTW_Update : XLTW_Delete,
		.wait = wait,
		.failure = tmfd
	};
	bool		have_tuple_lock = false;
	Attempt		attempt;

	restore_kept_locks(r);
	while ((attempt = attempt_claim(&c)) != ATTEMPT_ENDED)
	{
		if (attempt == ATTEMPT_AGAIN)
			continue;
		/* a session that already holds a lock does not queue: that could deadlock */
		if (!c.obstacle.holds_own)
			(void) rowlock_take_tuple_lock(r, c.mode, LockWaitBlock, &have_tuple_lock);
		(void) rowlock_wait_for_xid(r, c.blocker, LockWaitBlock, c.oper);
	}
	txn_release_tuple_lock(r, c.mode, &have_tuple_lock);
	return c.result;
}

/* ------------------------------------------------------------------------
 * Locks
 * ------------------------------------------------------------------------
 */

/* Do we hold this lock, or a stronger one, on this version? */
static bool
already_locked(const TxnRow *r, uint64 end, LockTupleMode mode)
{
	bool		result = false;

	if (WORD_TAG(end) == WORD_TAG_LOCK)
		return lock_word_of_this_life(end) && word_is_mine(end) && WORD_LOCK_MODE(end) >= mode;
	if (WORD_TAG(end) == WORD_TAG_LOCKERS ||
		((WORD_TAG(end) == WORD_TAG_PROGRESS || WORD_TAG(end) == WORD_TAG_STAMP) &&
		 (end & END_LOCKERS)))
	{
		RowLock    *lock;

		LWLockAcquire(partition_lock(r), LW_SHARED);
		for (lock = locktable_first(r->store, r->row); lock != NULL; lock = locktable_next(lock))
			result |= is_own_entry(lock) && lock->mode >= mode;
		LWLockRelease(partition_lock(r));
	}
	return result;
}

/* Remember a LOCK word before it is written. */
static void
remember_lock(const TxnRow *r)
{
	LocalLock  *l;

	My.locks = txn_grow(My.locks, My.nlocks, &My.maxlocks, sizeof(LocalLock));
	l = &My.locks[My.nlocks++];
	l->words = r->words;
	l->store = r->store;
	l->row = r->row;
	l->sub = current_sub();
}

/*
 * Takes the lock where no ender conflicts.  As try_claim(). end: EMPTY, LOCK, LOCKERS, or
 * the word of an update that changed no keys, in progress or committed: KEY SHARE is
 * compatible with that, and is taken on the later versions, too.
 */
static bool
try_lock(const TxnRow *r, uint64 end, LockTupleMode mode, Obstacle *o)
{
	SubTransactionId sub = current_sub();
	bool		dead;

	if (WORD_TAG(end) == WORD_TAG_PROGRESS || WORD_TAG(end) == WORD_TAG_STAMP)
	{
		change_with_table(r, end, end, END_LOCKERS, mode, (int) mode, o);
		return !o->changed && !TransactionIdIsValid(o->xid);
	}
	examine_lockers(r, end, mode, o);
	if (TransactionIdIsValid(o->xid))
		return false;

	dead = end == WORD_EMPTY || (WORD_TAG(end) == WORD_TAG_LOCK && !lock_word_live(end));
	if (sub < WORD_MAX_LOCK_SUB)
	{
		uint64		word = WORD_MAKE_LOCK(My.slot, My.generation, TxnShmem->life, sub, mode);

		if (dead)
		{
			remember_lock(r);
			if (word_cas(&r->words->end, end, word))
				return true;
			My.nlocks--;
			return false;
		}
		/*
		 * The same subtransaction takes a stronger lock: it is in the list already, but
		 * perhaps among those that are durable with their old strength.
		 */
		if (WORD_TAG(end) == WORD_TAG_LOCK && word_is_mine(end) && WORD_LOCK_SUB(end) == sub)
		{
			if (My.kept != NULL)
				remember_lock(r);
			return word_cas(&r->words->end, end, word);
		}
	}
	change_with_table(r, end, WORD_LOCKERS, 0, mode, (int) mode, o);
	return !o->changed && !TransactionIdIsValid(o->xid);
}

/* Arguments of a row lock, and what the last attempt found */
typedef struct RowLockRequest
{
	const TxnRow *row;
	CommandId	cid;
	LockTupleMode mode;
	LockWaitPolicy policy;
	TM_FailureData *failure;
	bool		blocked_before;
	TM_Result	result;
	TransactionId blocker;
	Obstacle	obstacle;
} RowLockRequest;

static Attempt
fail_lock(RowLockRequest *l, TM_Result result, TransactionId xmax, CommandId cmax)
{
	l->failure->xmax = xmax;
	l->failure->cmax = cmax;
	l->failure->traversed = false;
	l->result = result;
	return ATTEMPT_ENDED;
}

/* At a row whose end, in progress or committed, is compatible with the lock; or without one. */
static Attempt
lock_current(RowLockRequest *l, uint64 end)
{
	if (try_lock(l->row, end, l->mode, &l->obstacle))
	{
		SOFORT_STOP("row-locked");
		l->result = TM_Ok;
		return ATTEMPT_ENDED;
	}
	l->blocker = l->obstacle.xid;
	return TransactionIdIsValid(l->blocker) ? ATTEMPT_BLOCKED : ATTEMPT_AGAIN;
}

static Attempt
attempt_lock(RowLockRequest *l)
{
	const TxnRow *r = l->row;
	WordView	e;
	RowOutcome	outcome = row_outcome(r->words, l->cid, &e);

	memset(&l->obstacle, 0, sizeof(Obstacle));
	if (outcome == ROW_INVISIBLE)
		return fail_lock(l, TM_Invisible, InvalidTransactionId, InvalidCommandId);
	if (outcome == ROW_SELF_MODIFIED)
		return fail_lock(l, TM_SelfModified, (TransactionId) e.fxid, WORD_COMMAND(e.word));
	if (outcome == ROW_UNDOING)
	{
		if (rowlock_wait_for_undo(r, &e, l->policy, XLTW_Lock))
			return ATTEMPT_AGAIN;
		return fail_lock(l, TM_WouldBlock, view_waitable(&e), InvalidCommandId);
	}

	/* without queueing: others may queue for us */
	if (!l->blocked_before && already_locked(r, e.word, l->mode))
	{
		l->result = TM_Ok;
		return ATTEMPT_ENDED;
	}
	if (outcome == ROW_ENDING && conflicts[ender_mode(e.word)][l->mode])
	{
		l->blocker = view_waitable(&e);
		examine_beside(r, e.word, l->mode, &l->obstacle);
		return ATTEMPT_BLOCKED;
	}
	if (outcome == ROW_ENDED && conflicts[ender_mode(e.word)][l->mode])
	{
		/* heap waits for lockers that stayed behind, too */
		examine_beside(r, e.word, l->mode, &l->obstacle);
		l->blocker = l->obstacle.xid;
		if (!TransactionIdIsValid(l->blocker))
			return fail_lock(l, ended_result(e.word), txn_word_xid(e.word), InvalidCommandId);
		return ATTEMPT_BLOCKED;
	}
	return lock_current(l, e.word);
}

TM_Result
txn_lock_row(const TxnRow *r, CommandId cid, LockTupleMode mode, LockWaitPolicy policy,
			 bool *have_tuple_lock, TM_FailureData *tmfd)
{
	RowLockRequest l = {.row = r, .cid = cid, .mode = mode, .policy = policy, .failure = tmfd};
	bool		skip_tuple_lock = false;
	Attempt		attempt;

	txn_join(GetCurrentSubTransactionId());
	restore_kept_locks(r);
	while ((attempt = attempt_lock(&l)) != ATTEMPT_ENDED)
	{
		if (attempt == ATTEMPT_AGAIN)
			continue;
		l.blocked_before = true;
		skip_tuple_lock |= l.obstacle.holds_own;
		if ((!skip_tuple_lock && !rowlock_take_tuple_lock(r, mode, policy, have_tuple_lock)) ||
			!rowlock_wait_for_xid(r, l.blocker, policy, XLTW_Lock))
		{
			(void) fail_lock(&l, TM_WouldBlock, l.blocker, InvalidCommandId);
			break;
		}
	}
	txn_release_tuple_lock(r, mode, have_tuple_lock);
	return l.result;
}

TM_Result
txn_lock_successor(const TxnRow *successor, CommandId cid, LockTupleMode mode)
{
	txn_join(GetCurrentSubTransactionId());
	restore_kept_locks(successor);
	for (;;)
	{
		WordView	b;
		WordView	e;
		Obstacle	o;

		CHECK_FOR_INTERRUPTS();
		view_word(&successor->words->begin, &b);
		if (b.owner != OWNER_COMMITTED && b.owner != OWNER_RUNNING)
			return TM_Ok;		/* aborted, or ours: the chain ends here */
		view_word(&successor->words->end, &e);
		memset(&o, 0, sizeof(o));
		switch (e.owner)
		{
			case OWNER_MINE:
				return TM_Ok;
			case OWNER_COMMITTED:
				if (conflicts[ender_mode(e.word)][mode])
					return ended_result(e.word);
				if (already_locked(successor, e.word, mode) ||
					try_lock(successor, e.word, mode, &o))
					return TM_Ok;
				break;
			case OWNER_UNDOING:
				(void) rowlock_wait_for_undo(successor, &e, LockWaitBlock, XLTW_LockUpdated);
				continue;
			case OWNER_RUNNING:
				if (conflicts[ender_mode(e.word)][mode])
				{
					o.xid = view_waitable(&e);
					break;
				}
				/* FALLTHROUGH */
			default:
				if (already_locked(successor, e.word, mode) ||
					try_lock(successor, e.word, mode, &o))
					return TM_Ok;
				break;
		}
		if (TransactionIdIsValid(o.xid))
			(void) rowlock_wait_for_xid(successor, o.xid, LockWaitBlock, XLTW_LockUpdated);
	}
}

/* ------------------------------------------------------------------------
 * Locks belong to the row: carry them to the next version
 * ------------------------------------------------------------------------
 */

/*
 * Copies the live entries of others; both partition locks are held.  Returns false if more
 * than n entries are needed.
 */
static bool
copy_entries(const TxnRow *from, const TxnRow *to, int n, int *needed)
{
	RowLock    *lock;

	*needed = 0;
	for (lock = locktable_first(from->store, from->row); lock != NULL; lock = locktable_next(lock))
		*needed += !is_own_entry(lock);
	if (*needed > n)
		return false;
	for (lock = locktable_first(from->store, from->row); lock != NULL; lock = locktable_next(lock))
	{
		if (!is_own_entry(lock) && holder_runs(lock->slot, lock->generation))
			(void) locktable_add(to->store, to->row, lock->slot, lock->generation, lock->fxid,
								 lock->sub, (LockTupleMode) lock->mode);
	}
	return true;
}

/*
 * Entries were made for this version without looking at its end word: marks that word.  A
 * single holder becomes an entry, too, which needs one in stock.  The partition lock is
 * held exclusively.
 */
void
rowlock_mark(const TxnRow *to)
{
	for (;;)
	{
		uint64		word = word_read(&to->words->end);
		uint64		marked = word;
		RowLock    *made = NULL;

		if (WORD_TAG(word) == WORD_TAG_PROGRESS || WORD_TAG(word) == WORD_TAG_STAMP)
			marked |= END_LOCKERS;
		else
		{
			if (WORD_TAG(word) == WORD_TAG_LOCK && lock_word_live(word) &&
				!lock_word_has_entry(to, word))
				made = lock_word_to_entry(to, word);
			marked = WORD_LOCKERS;
		}
		if (marked == word || word_cas(&to->words->end, word, marked))
			return;
		if (made != NULL)
			locktable_remove(made);
	}
}

/*
 * The locks of prepared and kept transactions outlast a crash, so those that they got on a
 * new version must, too.
 */
static void
log_prepared_lockers(const TxnRow *to)
{
	RowLock    *found = NULL;
	int			max = 0;
	int			n;
	int			i;

	for (;;)
	{
		RowLock    *lock;

		n = 0;
		LWLockAcquire(partition_lock(to), LW_SHARED);
		for (lock = locktable_first(to->store, to->row); lock != NULL; lock = locktable_next(lock))
		{
			if (*(volatile uint32 *) &TxnSlots[lock->slot].prepared == 0 &&
				*(volatile uint32 *) &TxnSlots[lock->slot].kept == 0)
				continue;
			if (n < max)
				found[n] = *lock;
			n++;
		}
		LWLockRelease(partition_lock(to));
		if (n <= max)
			break;
		if (found != NULL)
			pfree(found);
		max = n + 4;
		found = palloc(max * sizeof(RowLock));
	}
	for (i = 0; i < n; i++)
	{
		prepared_log_lock(found[i].slot, found[i].generation, to->store, to->row,
						  (LockTupleMode) found[i].mode);
		kept_log_lock(found[i].slot, found[i].generation, to->store, to->row,
					  (LockTupleMode) found[i].mode);
	}
	if (found != NULL)
		pfree(found);
}

void
txn_carry_lockers(const TxnRow *from, const TxnRow *to)
{
	int			a = locktable_partition(from->store, from->row);
	int			b = locktable_partition(to->store, to->row);
	int			needed = 4;
	bool		done;

	/*
	 * A locker sets the mark, then looks for a successor; we have published the
	 * successor, and now look for the mark.  A drain orders no later loads.
	 */
	pg_memory_barrier();
	if ((word_read(&from->words->end) & END_LOCKERS) == 0)
		return;
	do
	{
		int			n = needed;

		locktable_stock(n + 1); /* and a LOCK word on the new version */
		LWLockAcquire(txn_lwlock(TXN_LWLOCK_ROWS + Min(a, b)), LW_EXCLUSIVE);
		if (a != b)
			LWLockAcquire(txn_lwlock(TXN_LWLOCK_ROWS + Max(a, b)), LW_EXCLUSIVE);
		done = copy_entries(from, to, n, &needed);
		if (done && any_entry(to))
			rowlock_mark(to);
		if (a != b)
			LWLockRelease(txn_lwlock(TXN_LWLOCK_ROWS + Max(a, b)));
		LWLockRelease(txn_lwlock(TXN_LWLOCK_ROWS + Min(a, b)));
	} while (!done);

	/* a session that prepares its transaction just now either shows that, or finds them */
	if (pg_atomic_read_u32(&TxnShmem->prepared) > 0 || pg_atomic_read_u32(&TxnShmem->kept) > 0)
		log_prepared_lockers(to);
}

/* ------------------------------------------------------------------------
 * Letting go
 * ------------------------------------------------------------------------
 */

/* No entry of the subtransaction came to the lock table before this. */
static uint64
first_arrival_of(SubTransactionId sub)
{
	const TxnFrame *f = txn_frame_of(sub);

	return f != NULL ? f->first_arrival : 0;
}

/*
 * Releases the locks that the subtransaction and those after it took.  A LOCK word that
 * somebody has turned into an entry meanwhile is found in the lock table.  No error, no
 * allocation.
 */
void
rowlock_release(SubTransactionId from_sub)
{
	while (My.nlocks > 0 && My.locks[My.nlocks - 1].sub >= from_sub)
	{
		LocalLock  *l = &My.locks[--My.nlocks];

		if (l->words != NULL)
		{
			uint64		word = word_read(&l->words->end);

			if (WORD_TAG(word) == WORD_TAG_LOCK && lock_word_of_this_life(word) &&
				word_is_mine(word) && WORD_LOCK_SUB(word) >= from_sub)
				(void) word_cas(&l->words->end, word, WORD_EMPTY);
		}
	}
	My.nlocks_logged = Min(My.nlocks_logged, My.nlocks);
	locktable_release(My.backend, from_sub, first_arrival_of(from_sub));
}

/*
 * The store's blocks are freed, now or before rowlock_release(): LOCK words in them
 * must not be touched any more.  (Entries of the lock table name the row only.)
 */
void
txn_forget_locks(StoreId store)
{
	int64		i;

	for (i = 0; i < My.nlocks; i++)
	{
		if (My.locks[i].store == store)
			My.locks[i].words = NULL;
	}
}
