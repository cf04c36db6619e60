/*-------------------------------------------------------------------------
 *
 * txn.h
 *	  Transaction control blocks, commit, visibility, row locks.
 *
 * See src/txn/README.md for the protocol and its crash argument.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TXN_TXN_H
#define SOFORT_TXN_TXN_H

#include "access/tableam.h"
#include "access/xact.h"
#include "nodes/lockoptions.h"
#include "sofort/pmem/layout.h"
#include "sofort/txn/words.h"
#include "storage/lmgr.h"
#include "utils/snapshot.h"

/* ---- start-up: called by sofort.c ---- */

extern void txn_init(void);		/* _PG_init while preloading: resource manager,
								 * xact and subxact callbacks; checks that sofort
								 * is first in shared_preload_libraries */
extern Size txn_shmem_size(void);
extern int	txn_lwlocks(void);	/* of the named tranche "sofort_txn" */

/*
 * From shmem_startup_hook, after pool_startup() and store_startup(): makes volatile state
 * anew, and finishes TCBs that were COMMITTED in an earlier life (stamps their rows,
 * carries out their drops); the others wait for txn_resolve_leftovers().
 */
extern void txn_startup(void);

/*
 * Resolves PREPARED and dead TCBs of earlier lives, in the first backend that touches
 * sofort.  Called by store_open() and similar functions; two loads when that is done.
 * Includes txn_resolve_prepared(), while somebody may be finishing a prepared transaction.
 * Also marks COMMITTED ones in the commit log (pg_xact_status).
 */
extern void txn_resolve_leftovers(void);

/*
 * Transactions of earlier lives are being finished by this process.  What a killed
 * process stored is visible, but perhaps not on the medium, and nobody else will
 * flush it: words and links are flushed even where nothing is left to be done.
 */
extern bool txn_recovering;

/* ---- prepared transactions ---- */

/*
 * Stamps or undoes the rows of prepared transactions that were committed or rolled back
 * meanwhile, carries out what they created or dropped, and releases their row locks.  Their
 * relation locks are gone already: so whoever frees storage of a relation calls this (or
 * txn_resolve_leftovers()) after locking it.  One load while there are none.  No LWLock of
 * txn or store may be held.
 */
extern void txn_resolve_prepared(void);

/* This transaction is about to COMMIT PREPARED or ROLLBACK PREPARED another. */
extern void txn_finishes_prepared(void);

/* Does it, or might it (an apply worker of logical replication)? */
extern bool txn_may_finish_prepared(void);

/* ---- what the store gives to txn: dependencies point one way ---- */

typedef enum TxnEntryKind
{
	TXN_ENTRY_NONE = 0,
	TXN_ENTRY_BEGIN,			/* rows whose begin word may name the TCB */
	TXN_ENTRY_END,				/* rows whose end word may name the TCB */
	TXN_ENTRY_CREATE_STORE,		/* drop the store if the transaction aborts */
	TXN_ENTRY_DROP_STORE,		/* drop the store if it commits */
	TXN_ENTRY_CREATE_COLUMN,	/* row = column index: drop it on abort */

	/* row locks of a prepared or kept transaction, by LockTupleMode */
	TXN_ENTRY_LOCK = 16,
	TXN_ENTRY_LOCK_LAST = TXN_ENTRY_LOCK + LockTupleExclusive
} TxnEntryKind;

typedef struct TxnEntry
{
	StoreId		store;
	TxnEntryKind kind;
	uint64		row;
	uint32		count;
} TxnEntry;

typedef struct TxnStoreOps
{
	/*
	 * Rows of a BEGIN or END entry.  Every word that equals the transaction's
	 * own (slot and generation; any command id >= from_command) is replaced by
	 * compare-and-swap, flushed, not drained; other words are left alone; a
	 * store or block that no longer exists is skipped.
	 *
	 * commit: the word becomes the stamp of fxid, flags kept (END_LOCKERS
	 * too).
	 *
	 * abort: undo_links() of all entries comes first (not at a start, where
	 * undo_rows() does without), then undo_rows() of all, in reverse order.
	 * BEGIN: the versions come out of their chains; then ABORTED.  END: the
	 * successor words are cleared; then EMPTY, or LOCKERS if END_LOCKERS is
	 * set.  undo_links() says whether all of that must be durable in between.
	 *
	 * No palloc, no pool allocation, no ERROR.  May run in the postmaster.
	 */
	void		(*stamp_rows) (const TxnEntry *entry, uint32 slot, uint32 generation,
							   uint64 fxid);
	bool		(*undo_links) (const TxnEntry *entry, uint32 slot, uint32 generation,
							   CommandId from_command);
	void		(*undo_rows) (const TxnEntry *entry, uint32 slot, uint32 generation,
							  CommandId from_command);

	/*
	 * The transaction of another session was stamped or undone here: drop everything that
	 * points to its stores, on which we have no locks, before it counts as ended.
	 */
	void		(*end_of_other) (void);

	/* Drop now: durable, idempotent, no ERROR. */
	void		(*drop_store) (StoreId store);
	void		(*drop_column) (StoreId store, uint64 column);

	/* Words of a row; NULL if it has no storage.  For row locks. */
	RowWords   *(*find_words) (StoreId store, uint64 row);

	/* Is this an unlogged store that was emptied when the server started? */
	bool		(*store_emptied) (StoreId store);

	/* After COMMIT/ABORT of the whole transaction: volatile counters */
	void		(*end_of_xact) (bool committed);
	void		(*end_of_subxact) (SubTransactionId sub, SubTransactionId parent, bool committed);
} TxnStoreOps;

extern void txn_register_store_ops(const TxnStoreOps *ops);

/* ---- writing ---- */

/*
 * Makes sure that this transaction may write: pool ready, not in recovery, not a parallel
 * worker (25000), xid assigned and below the durable high-water mark, TCB active and
 * durable.  Raises errors; cheap if that was done already.
 */
extern void txn_begin_write(void);

/* Has this transaction an entry in its write set, so that its commit drains? */
extern bool txn_is_writing(void);

/*
 * The word that begins or ends a version in this transaction. 54000 if cid is beyond
 * WORD_MAX_COMMAND. txn_begin_write() must have been called.
 */
extern uint64 txn_progress_word(CommandId cid);

/*
 * Adds to the write set; durable (drained) on return, and belongs to the current
 * subtransaction.  To be called before a word of these rows refers to the TCB.  Skips what
 * the last ranges already cover; may log a whole block if many END entries come from it
 * (see README: exactness of savepoints).
 */
extern void txn_log(StoreId store, TxnEntryKind kind, uint64 row, uint32 count);

/* Adds two entries with one drain: the END of the old row and the BEGIN of the new one. */
extern void txn_log_update(StoreId store, uint64 old_row, uint64 new_row);

/*
 * This transaction uses nextval or setval; InvalidOid: of a sequence that is not
 * known.  Anybody may use a number as soon as a statement has told it, so each
 * top-level statement ends with txn_publish_sequences(): pure commits from then on
 * flush the WAL of the numbers, whoever wrote it.
 */
extern void txn_note_sequence(Oid sequence);
extern void txn_publish_sequences(void);

/*
 * A statement begins that may use sequences: those noted or, if "others", also others.  If
 * it fails, the end of the transaction publishes them, or, at a savepoint,
 * txn_publish_sequences_on_error().
 */
extern void txn_sequences_may_be_used(bool others);
extern void txn_publish_sequences_on_error(void);

/* Sequences are used outside any statement: nobody will notice when that has ended. */
extern void txn_sequences_used_unseen(void);

/*
 * This transaction relies on WAL that others may have written and not flushed: its commit
 * flushes all WAL that there is then.
 */
extern void txn_note_foreign_wal(void);

/* VACUUM, before it frees row ids (H1c): make all WAL so far durable. */
extern void txn_flush_all_wal(void);
extern void txn_flush_seen_commits(void);

/* ---- visibility ---- */

/*
 * Is the version visible? words are read (and read again where a TCB was consulted).  For
 * SNAPSHOT_DIRTY fills snapshot->xmin, xmax and speculativeToken, for which store and row
 * are needed.  Raises 0A000 for SNAPSHOT_HISTORIC_MVCC.
 */
extern bool txn_version_visible(StoreId store, uint64 row, const RowWords *words,
								Snapshot snapshot);

/*
 * The same for SNAPSHOT_MVCC, in more detail.  Along a row's versions, from old to new, the
 * answers are ENDED ..., VISIBLE (or none), NOT_YET ...: whoever replaces a version waits
 * until its creator has ended, so a snapshot that sees the later change sees the earlier
 * one, too.  (Versions of aborted transactions, and freed ones, are NOT_YET.)
 */
typedef enum TxnSight
{
	TXN_NOT_YET,				/* its creation has not happened for the snapshot */
	TXN_VISIBLE,
	TXN_ENDED
} TxnSight;

extern TxnSight txn_version_sight(const RowWords *words, Snapshot snapshot);

/* What SSI wants to know of a version that was looked at. */
extern void txn_serializable_conflict_out(Relation rel, const RowWords *words, bool visible,
										  Snapshot snapshot);

typedef enum TxnVersionState
{
	VERSION_FREE,				/* begin is EMPTY */
	VERSION_ABORTED,
	VERSION_INSERTING,			/* creator in progress (see *xid) */
	VERSION_LIVE,				/* committed, not ended (or only locked) */
	VERSION_DELETING,			/* ended by a transaction in progress (*xid) */
	VERSION_RECENTLY_DEAD,		/* ended; some snapshot may still see it */
	VERSION_DEAD				/* ended before the horizon, or created and ended
								 * by one aborted transaction */
} TxnVersionState;

/*
 * For VACUUM, ANALYZE and index builds.  horizon: 64-bit; see txn_horizon().
 * xid: the creator or ender in progress (may be NULL).
 */
extern TxnVersionState txn_version_state(const RowWords *words, uint64 horizon,
										 TransactionId *xid);

/*
 * Every version ended before it is invisible to all (GetOldestNonRemovable-
 * TransactionId, kept transactions), in 64 bits.  NULL: for any table of this database,
 * as if the current transaction had not made it.  Transactions of other databases do not
 * count, as they see no rows of it, but for those that txn_hold_all_horizons(); nor does
 * what replication slots need of catalogs.  Not cheap: once per VACUUM or per some
 * hundred updates.
 */
extern uint64 txn_horizon(Relation rel);

/*
 * The transaction of VACUUM holds back nobody's horizon, nor does one that has ended for
 * all others and is being undone.  Between txn_hold_horizon() and txn_release_horizon() it
 * does: a row that is freed meanwhile is not filled again.  What the caller knew of rows
 * before must be read anew.  A caller without a snapshot takes none in between.  After an
 * error no release is needed.
 */
typedef enum TxnHold
{
	HOLD_AS_EVER,				/* its xmin counts anyway */
	HOLD_IN_VACUUM,
	HOLD_WITHOUT_SNAPSHOT
} TxnHold;

extern TxnHold txn_hold_horizon(void);
extern TxnHold txn_hold_all_horizons(void); /* of all databases */
extern void txn_release_horizon(TxnHold hold);

/* Next FullTransactionId; a row freed now may be reused when
 * txn_horizon(NULL) > this. */
extern uint64 txn_next_fxid(void);

/*
 * For tests: makes it look as if the slots of this process had been used so often; counts
 * entries of the lock table; limits the number of KeptRecords for this session; counts
 * entries that were looked at to release locks.
 */
extern void txn_test_set_generations(uint32 generation);
extern uint64 txn_test_lock_entries(void);
extern void txn_test_limit_records(uint64 n);	/* in this session */
extern uint64 txn_test_release_steps(void);

/* 32-bit xid near now -> 64 bits. */
extern uint64 txn_widen(TransactionId xid);

/*
 * Creator and ender for system columns: xmin/xmax/cmin/cmax as heap shows
 * them.  Stamps beyond the 32-bit horizon show FrozenTransactionId.
 */
extern TransactionId txn_word_xid(uint64 word);
extern uint64 txn_word_fxid(uint64 word);	/* STAMP and PROGRESS, else 0; in 64 bits */
extern CommandId txn_word_command(uint64 word); /* 0 if not our own */
extern bool txn_word_is_mine(uint64 word);

/*
 * The xid whose end decides what becomes of a PROGRESS word: that of a subtransaction, if
 * it is still open.  Invalid if the transaction has ended.
 */
extern TransactionId txn_word_waitable_xid(uint64 word);

/* ---- row locks and claims ---- */

typedef struct TxnRow
{
	Relation	rel;
	StoreId		store;
	uint64		row;
	RowWords   *words;
	ItemPointerData tid;		/* for waits and messages */
} TxnRow;

/*
 * Claims the version for DELETE or UPDATE: on TM_Ok its end word is the progress word of
 * (TCB, cid) with these END_ flags, flushed, not drained; the caller has logged the row
 * with txn_log() before.  Otherwise nothing has changed and tmfd is filled except ctid (the
 * caller knows successors); the result is that of heap_delete() or heap_update() for the
 * same history (TM_Invisible, TM_SelfModified, TM_Updated, TM_Deleted, TM_BeingModified if
 * !wait).  Waits through the lock manager (XactLockTableWait, LockTuple), so no LWLock may
 * be held.  Evaluates crosscheck as heap does.
 */
extern TM_Result txn_claim_row(const TxnRow *r, CommandId cid, Snapshot crosscheck,
							   uint64 end_flags, bool wait, TM_FailureData *tmfd);

/*
 * Locks the version (not its successors: the caller follows them).  Results as those of
 * heap_lock_tuple(). have_tuple_lock carries the heavyweight tuple lock from one version to
 * the next; txn_release_tuple_lock() releases it.
 */
extern TM_Result txn_lock_row(const TxnRow *r, CommandId cid, LockTupleMode mode,
							  LockWaitPolicy policy, bool *have_tuple_lock,
							  TM_FailureData *tmfd);
extern void txn_release_tuple_lock(const TxnRow *r, LockTupleMode mode, bool *have_tuple_lock);

/*
 * Waits for the transaction that has made or ended the version with this TID.  False:
 * LockWaitSkip, and it is still running; 55P03 with LockWaitError.  No LWLock may be held.
 */
extern bool txn_wait_for_xid(Relation rel, TransactionId xid, ItemPointer tid,
							 LockWaitPolicy policy, XLTW_Oper oper);

/*
 * An update has made "to" the successor of "from": gives live lockers of "from" the same
 * locks on "to".  To be called after the link is published.
 */
extern void txn_carry_lockers(const TxnRow *from, const TxnRow *to);

/*
 * FOR KEY SHARE on a version that was updated without a change of keys (end
 * word END_UPDATED, not END_KEYS) gives TM_Ok; the caller then locks every later
 * version of the row with this one, oldest first, as heap's
 * heap_lock_updated_tuple() does.  TM_Updated or TM_Deleted: the key went away
 * with a transaction that committed; the caller's lock fails with that result.
 * Waits for a conflicting transaction in progress.
 */
extern TM_Result txn_lock_successor(const TxnRow *successor, CommandId cid, LockTupleMode mode);

/* The blocks of this store are about to be freed: forgets row locks in them. */
extern void txn_forget_locks(StoreId store);

/* ---- speculative insertion ---- */

extern void txn_speculate(StoreId store, uint64 row, uint32 token);
extern void txn_speculation_end(void);

/* ---- views ---- */

typedef struct TxnInfo
{
	uint32		slot;
	uint32		generation;
	const char *state;
	uint64		life;
	uint64		xid;
	int			pid;			/* 0: none */
	uint64		entries;

	/* of a kept transaction */
	bool		is_kept;
	bool		is_waiting;		/* to be resumed; then expires is set */
	Oid			role;
	uint64		statements;
	TimestampTz expires;
	char		label[NAMEDATALEN];
} TxnInfo;

typedef void (*TxnVisitor) (void *arg, const TxnInfo *info);
extern void txn_visit(TxnVisitor fn, void *arg);	/* TCBs that are not free */

#endif							/* SOFORT_TXN_TXN_H */
