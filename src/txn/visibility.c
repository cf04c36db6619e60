/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  Which versions a snapshot sees, and what VACUUM and SSI want to know.
 *
 * The rules are those of heapam_visibility.c.  Stamps are compared in 64 bits
 * (a stamp may be older than 2^31 transactions); for words in progress the
 * order is: own transaction, in progress, commit log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "sofort/compat/horizon.h"
#include "sofort/txn/visibility.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

#include "txn_internal.h"

/* A word names a transaction that has ended only for a moment: try so often */
#define STALE_WORD_TRIES	100000

/* If it was not read anew for this long, the reference may lag too far behind. */
#define REFERENCE_MICROSECONDS	(10 * INT64CONST(1000000))

TxnWideXmin TxnLastXmin;

static uint64 reference_fxid = 0;
static TimestampTz reference_time = 0;
static TimestampTz reference_checked = 0;	/* start of the statement that has read it anew */

/* ------------------------------------------------------------------------
 * 32 bits -> 64 bits
 * ------------------------------------------------------------------------
 */

/*
 * Any xid that is in use lies within 2^31 of any other one in use at the same time.  The
 * reference is some fxid that was in use a short while ago.  It follows what is widened,
 * and is read anew at the first use in a transaction or statement, if the last time is long
 * ago.  (Between statements a transaction may hold nothing that keeps xids from being used
 * up.)
 */
uint64
txn_widen(TransactionId xid)
{
	uint64		wide;

	if (!TransactionIdIsNormal(xid))
		return (uint64) xid;
	if (unlikely(reference_checked != GetCurrentStatementStartTimestamp()))
	{
		/* transactions within a procedure may begin long after its statement */
		TimestampTz now = Max(GetCurrentStatementStartTimestamp(),
							  GetCurrentTransactionStartTimestamp());

		reference_checked = GetCurrentStatementStartTimestamp();
		if (reference_fxid == 0 || now - reference_time > REFERENCE_MICROSECONDS ||
			now < reference_time)
		{
			reference_fxid = U64FromFullTransactionId(ReadNextFullTransactionId());
			reference_time = now;
		}
	}
	wide = reference_fxid + (uint64) (int64) (int32) (xid - (TransactionId) reference_fxid);
	if (wide > reference_fxid)
		reference_fxid = wide;
	return wide;
}

uint64
txn_widen_xmin(TransactionId xmin)
{
	TxnLastXmin.wide = txn_widen(xmin);
	TxnLastXmin.xmin = xmin;
	return TxnLastXmin.wide;
}

static bool holds_everywhere = false;	/* by PROC_AFFECTS_ALL_HORIZONS */

static void
set_status_flag(uint8 flag, bool on)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (on)
		MyProc->statusFlags |= flag;
	else
		MyProc->statusFlags &= ~flag;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* The flag is ours, and not a walsender's.  PostgreSQL leaves it set when a transaction ends. */
static void
hold_no_longer_everywhere(void)
{
	if (holds_everywhere)
		set_status_flag(PROC_AFFECTS_ALL_HORIZONS, false);
	holds_everywhere = false;
}

void
visibility_end_of_xact(void)
{
	TxnLastXmin.xmin = InvalidTransactionId;
	reference_checked = 0;
	hold_no_longer_everywhere();	/* an error in between */
}

uint64
txn_next_fxid(void)
{
	return U64FromFullTransactionId(ReadNextFullTransactionId());
}

/*
 * TCBs of earlier lives need not be considered: they are resolved before anybody reads
 * sofort rows.  But kept transactions must be, because PostgreSQL does not know them.
 */
uint64
txn_horizon(Relation rel)
{
	return kept_horizon(txn_widen(rel != NULL ? GetOldestNonRemovableTransactionId(rel) :
								  compat_database_horizon()));
}

/*
 * VACUUM has a snapshot, which counts from now on: no horizon that is computed before the
 * release passes it, and older horizons lie before what is freed now.  A process without a
 * snapshot, because its transaction has ended for all others, counts as having one taken
 * now.
 */
TxnHold
txn_hold_horizon(void)
{
	TransactionId next;

	if (!TransactionIdIsValid(MyProc->xmin))
	{
		next = ReadNextTransactionId();
		LWLockAcquire(ProcArrayLock, LW_SHARED);
		MyProc->xmin = next;
		LWLockRelease(ProcArrayLock);
		return HOLD_WITHOUT_SNAPSHOT;
	}
	if ((MyProc->statusFlags & PROC_IN_VACUUM) == 0)
		return HOLD_AS_EVER;
	set_status_flag(PROC_IN_VACUUM, false);
	return HOLD_IN_VACUUM;
}

TxnHold
txn_hold_all_horizons(void)
{
	if ((MyProc->statusFlags & PROC_AFFECTS_ALL_HORIZONS) == 0)
	{
		holds_everywhere = true;
		set_status_flag(PROC_AFFECTS_ALL_HORIZONS, true);
	}
	return txn_hold_horizon();
}

void
txn_release_horizon(TxnHold hold)
{
	if (hold == HOLD_WITHOUT_SNAPSHOT)
		MyProc->xmin = InvalidTransactionId;
	else if (hold == HOLD_IN_VACUUM)
		set_status_flag(PROC_IN_VACUUM, true);
	hold_no_longer_everywhere();
}

/* ------------------------------------------------------------------------
 * One word
 * ------------------------------------------------------------------------
 */

/* Is it our own transaction?  Also true in its parallel workers. */
static bool
is_own(uint64 word, uint64 fxid)
{
	return word_is_mine(word) ||
		(IsParallelWorker() && TransactionIdIsCurrentTransactionId((TransactionId) fxid));
}

static pg_noinline void
bad_word(uint64 word)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("sofort row version names transaction slot %u, generation %u, which has ended",
					WORD_SLOT(word), WORD_GENERATION(word)),
			 errhint("Run sofort.verify() on the table.")));
}

/*
 * Transaction of a word in progress.  False: the word has changed, or the change will be
 * visible soon; read it again.  *tries counts these.
 */
static bool
word_transaction(const uint64 *where, uint64 word, uint64 *fxid, int *tries)
{
	if (slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), fxid))
		return true;
	if (word_read(where) == word && ++*tries > STALE_WORD_TRIES)
		bad_word(word);
	return false;
}

/*
 * Does a word name a kept transaction that nobody has resumed yet?  To be called before the
 * slot's xid is read: after false that xid is not one of a dead server.
 */
static inline bool
word_waits(uint64 word)
{
	return unlikely(slot_waits(WORD_SLOT(word)));
}

/* Finds who is behind a begin or end word; see TxnOwner. */
void
view_word(const uint64 *where, WordView *v)
{
	int			tries = 0;

	for (;;)
	{
		bool		waits;

		v->word = word_read(where);
		v->fxid = 0;
		switch (WORD_TAG(v->word))
		{
			case WORD_TAG_EMPTY:
			case WORD_TAG_LOCK:
			case WORD_TAG_LOCKERS:
				v->owner = OWNER_NONE;
				return;
			case WORD_TAG_STAMP:
				v->owner = OWNER_COMMITTED;
				v->fxid = WORD_XID(v->word);
				return;
			case WORD_TAG_ABORTED:
				v->owner = OWNER_ABORTED;
				return;
			case WORD_TAG_PROGRESS:
				break;
			default:
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("sofort row version has an invalid word"),
						 errhint("Run sofort.verify() on the table.")));
		}

		waits = word_waits(v->word);
		if (!word_transaction(where, v->word, &v->fxid, &tries))
			continue;
		if (is_own(v->word, v->fxid))
		{
			v->owner = OWNER_MINE;
			return;
		}
		if (waits || TransactionIdIsInProgress((TransactionId) v->fxid))
			v->owner = OWNER_RUNNING;
		else if (TransactionIdDidCommit((TransactionId) v->fxid))
			v->owner = OWNER_COMMITTED;
		else if (unlikely(slot_stays_open(WORD_SLOT(v->word))))
			v->owner = OWNER_RUNNING;
		else
			v->owner = OWNER_UNDOING;

		/* perhaps a subtransaction was undone meanwhile */
		if (word_read(where) == v->word)
			return;
	}
}

/* ------------------------------------------------------------------------
 * Snapshots
 * ------------------------------------------------------------------------
 */

static inline bool
stamp_in_snapshot(uint64 fxid, Snapshot snapshot)
{
	return fxid >= txn_snapshot_xmin(snapshot) &&
		XidInMVCCSnapshot((TransactionId) fxid, snapshot);
}

/*
 * MVCC: has the word "happened" for the snapshot?  Own words count if their
 * command came before the snapshot's.
 */
static bool
word_happened(const uint64 *where, Snapshot snapshot)
{
	int			tries = 0;

	for (;;)
	{
		uint64		word = word_read(where);
		uint64		fxid;
		bool		waits;
		bool		result;

		switch (WORD_TAG(word))
		{
			case WORD_TAG_STAMP:
				return !stamp_in_snapshot(WORD_XID(word), snapshot);
			case WORD_TAG_PROGRESS:
				break;
			default:
				return false;
		}
		waits = word_waits(word);
		if (!word_transaction(where, word, &fxid, &tries))
			continue;
		if (is_own(word, fxid))
			return WORD_COMMAND(word) < snapshot->curcid;
		result = !waits && !XidInMVCCSnapshot((TransactionId) fxid, snapshot) &&
			TransactionIdDidCommit((TransactionId) fxid);
		if (word_read(where) == word)
			return result;
	}
}

TransactionId
view_waitable(const WordView *v)
{
	TransactionId xid = txn_word_waitable_xid(v->word);

	return TransactionIdIsValid(xid) ? xid : (TransactionId) v->fxid;
}

static bool
visible_self(const RowWords *words)
{
	WordView	v;

	view_word(&words->begin, &v);
	if (v.owner != OWNER_MINE && v.owner != OWNER_COMMITTED)
		return false;
	view_word(&words->end, &v);
	return v.owner != OWNER_MINE && v.owner != OWNER_COMMITTED;
}

static bool
visible_dirty(StoreId store, uint64 row, const RowWords *words, Snapshot snapshot)
{
	WordView	v;

	snapshot->xmin = snapshot->xmax = InvalidTransactionId;
	snapshot->speculativeToken = 0;

	view_word(&words->begin, &v);
	if (v.owner == OWNER_RUNNING)
	{
		snapshot->speculativeToken = txn_spec_token(WORD_SLOT(v.word), store, row);
		snapshot->xmin = view_waitable(&v);
		return true;
	}
	if (v.owner != OWNER_MINE && v.owner != OWNER_COMMITTED)
		return false;
	view_word(&words->end, &v);
	if (v.owner == OWNER_RUNNING)
	{
		snapshot->xmax = view_waitable(&v);
		return true;
	}
	return v.owner != OWNER_MINE && v.owner != OWNER_COMMITTED;
}

/* SNAPSHOT_NON_VACUUMABLE: is it not certainly dead to all? */
static bool
maybe_needed(const RowWords *words, Snapshot snapshot)
{
	uint64		begin = word_read(&words->begin);
	uint64		end;

	if (begin == WORD_EMPTY || WORD_TAG(begin) == WORD_TAG_ABORTED)
		return false;
	end = word_read(&words->end);
	return WORD_TAG(end) != WORD_TAG_STAMP ||
		!GlobalVisTestIsRemovableFullXid(snapshot->vistest,
										 FullTransactionIdFromU64(WORD_XID(end)));
}

TxnSight
txn_version_sight(const RowWords *words, Snapshot snapshot)
{
	if (!word_happened(&words->begin, snapshot))
		return TXN_NOT_YET;
	return word_happened(&words->end, snapshot) ? TXN_ENDED : TXN_VISIBLE;
}

/*
 * Has an earlier command of this transaction ended it, whoever made it?  A table scan meets
 * little else if one transaction updates a row again and again.
 */
static inline bool
ended_by_me(const RowWords *words, Snapshot snapshot)
{
	uint64		end = word_read(&words->end);

	return WORD_TAG(end) == WORD_TAG_PROGRESS && word_is_mine(end) &&
		WORD_COMMAND(end) < snapshot->curcid;
}

bool
txn_version_visible(StoreId store, uint64 row, const RowWords *words, Snapshot snapshot)
{
	switch (snapshot->snapshot_type)
	{
		case SNAPSHOT_MVCC:
			return !ended_by_me(words, snapshot) &&
				txn_version_sight(words, snapshot) == TXN_VISIBLE;
		case SNAPSHOT_SELF:
			return visible_self(words);
		case SNAPSHOT_DIRTY:
			return visible_dirty(store, row, words, snapshot);
		case SNAPSHOT_ANY:
			return word_read(&words->begin) != WORD_EMPTY;
		case SNAPSHOT_TOAST:
			return begin_is_of_version(word_read(&words->begin));
		case SNAPSHOT_NON_VACUUMABLE:
			return maybe_needed(words, snapshot);
		case SNAPSHOT_HISTORIC_MVCC:
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("sofort tables cannot be read with a historic snapshot"),
			 errdetail("Their changes are not in the WAL, so logical decoding cannot use them.")));
	return false;
}

/* ------------------------------------------------------------------------
 * VACUUM, index builds, SSI
 * ------------------------------------------------------------------------
 */

/*
 * Only a stamp makes a version dead to all: a committed deletion that is not stamped yet is
 * RECENTLY_DEAD.  If the creator has aborted but is not undone yet, it counts as in
 * progress, so that nobody frees the row meanwhile.
 */
TxnVersionState
txn_version_state(const RowWords *words, uint64 horizon, TransactionId *xid)
{
	WordView	b;
	WordView	e;

	if (xid != NULL)
		*xid = InvalidTransactionId;
	view_word(&words->begin, &b);
	if (b.owner == OWNER_NONE)
		return VERSION_FREE;
	if (b.owner == OWNER_ABORTED)
		return VERSION_ABORTED;
	view_word(&words->end, &e);

	if (b.owner == OWNER_RUNNING || b.owner == OWNER_UNDOING || b.owner == OWNER_MINE)
	{
		bool		deleting = b.owner == OWNER_MINE && e.owner == OWNER_MINE;

		if (xid != NULL)
			*xid = view_waitable(deleting ? &e : &b);
		return deleting ? VERSION_DELETING : VERSION_INSERTING;
	}

	switch (e.owner)
	{
		case OWNER_NONE:
		case OWNER_ABORTED:
		case OWNER_UNDOING:
			return VERSION_LIVE;
		case OWNER_MINE:
		case OWNER_RUNNING:
			if (xid != NULL)
				*xid = view_waitable(&e);
			return VERSION_DELETING;
		case OWNER_COMMITTED:
			break;
	}
	if (WORD_TAG(e.word) == WORD_TAG_STAMP && e.fxid < horizon)
		return VERSION_DEAD;
	return VERSION_RECENTLY_DEAD;
}

/* As HeapCheckForSerializableConflictOut(). */
void
txn_serializable_conflict_out(Relation rel, const RowWords *words, bool visible,
							  Snapshot snapshot)
{
	WordView	b;
	WordView	e;
	const WordView *writer = &b;

	if (!CheckForSerializableConflictOutNeeded(rel, snapshot))
		return;
	view_word(&words->begin, &b);
	if (b.owner == OWNER_NONE || b.owner == OWNER_ABORTED || b.owner == OWNER_UNDOING)
		return;
	if (b.owner == OWNER_COMMITTED)
	{
		view_word(&words->end, &e);
		if (e.owner == OWNER_RUNNING || e.owner == OWNER_MINE || e.owner == OWNER_COMMITTED)
		{
			if (visible)
				writer = &e;
		}
		else if (visible)
			return;
	}

	if (writer->owner == OWNER_MINE || writer->fxid < txn_widen(TransactionXmin))
		return;
	CheckForSerializableConflictOut(rel, (TransactionId) writer->fxid, snapshot);
}

/* ------------------------------------------------------------------------
 * System columns
 * ------------------------------------------------------------------------
 */

/*
 * Top xid of a creator, ender or single locker; InvalidTransactionId if there is
 * none (several lockers have no xid: nothing like a multixact exists).
 */
TransactionId
txn_word_xid(uint64 word)
{
	uint64		fxid;

	switch (WORD_TAG(word))
	{
		case WORD_TAG_STAMP:
			fxid = WORD_XID(word);
			if (fxid + (UINT64CONST(1) << 31) <= txn_next_fxid())
				return FrozenTransactionId;
			return (TransactionId) fxid;
		case WORD_TAG_LOCK:
			if (WORD_LOCK_LIFE(word) != (TxnShmem->life & 0xff))
				return InvalidTransactionId;
			/* FALLTHROUGH */
		case WORD_TAG_PROGRESS:
			if (slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), &fxid))
				return (TransactionId) fxid;
			break;
	}
	return InvalidTransactionId;
}

TransactionId
txn_word_waitable_xid(uint64 word)
{
	return txn_waitable_xid(WORD_SLOT(word), WORD_GENERATION(word), true, WORD_COMMAND(word));
}

uint64
txn_word_fxid(uint64 word)
{
	uint64		fxid;

	if (WORD_TAG(word) == WORD_TAG_STAMP)
		return WORD_XID(word);
	if (WORD_TAG(word) == WORD_TAG_PROGRESS &&
		slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), &fxid))
		return fxid;
	return 0;
}

bool
txn_word_is_mine(uint64 word)
{
	uint64		fxid;

	if (WORD_TAG(word) != WORD_TAG_PROGRESS)
		return false;
	if (word_is_mine(word))
		return true;
	return IsParallelWorker() &&
		slot_transaction(WORD_SLOT(word), WORD_GENERATION(word), &fxid) && is_own(word, fxid);
}

CommandId
txn_word_command(uint64 word)
{
	return txn_word_is_mine(word) ? WORD_COMMAND(word) : FirstCommandId;
}
