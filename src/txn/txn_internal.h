/*-------------------------------------------------------------------------
 *
 * txn_internal.h
 *	  What the files of src/txn share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TXN_INTERNAL_H
#define SOFORT_TXN_INTERNAL_H

#include "postgres.h"

#include "access/transam.h"
#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "sofort/pmem/layout.h"
#include "sofort/pmem/persist.h"
#include "sofort/txn/txn.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"

/* ---- formats (see README.md) ---- */

/* Tcb.state, bits 0..3 */
typedef enum TcbState
{
	TCB_FREE = 0,				/* nothing refers to it */
	TCB_ACTIVE = 1,
	TCB_PREPARED = 2,			/* the commit log decides */
	TCB_COMMITTED = 3,
	TCB_ABORTED = 4,
	TCB_TWO_PHASE = 5,			/* by PREPARE TRANSACTION: as PREPARED, but for any length of
								 * time, across restarts */
	TCB_KEPT = 6				/* as ACTIVE, but stays open after a crash if a KeptRecord says
								 * so, too */
} TcbState;

#define TCB_STATE(s)		((TcbState) ((s) & 0xf))
#define TCB_GENERATION(s)	((uint32) (((s) >> 4) & GENERATION_MASK))
#define TCB_LIFE(s)			((s) >> 18)
#define TCB_MAKE_STATE(state, gen, life) \
	((uint64) (state) | ((uint64) (gen) << 4) | ((uint64) (life) << 18))

/* KeptRecord.state, bits 0..3 */
typedef enum KeptState
{
	KEPT_FREE = 0,
	KEPT_OPEN = 1,
	KEPT_COMMITTED = 2,
	KEPT_ABORTED = 3,
	KEPT_EXPIRED = 4
} KeptState;

#define KEPT_STATE(s)		((KeptState) ((s) & 0xf))
#define KEPT_SLOT(s)		((uint32) (((s) >> 4) & ((1U << WORD_SLOT_BITS) - 1)))
#define KEPT_GENERATION(s)	((uint32) (((s) >> 22) & GENERATION_MASK))
#define KEPT_MAKE_STATE(state, slot, gen) \
	((uint64) (state) | ((uint64) (slot) << 4) | ((uint64) (gen) << 22))

#define GENERATION_MASK		((1U << WORD_GENERATION_BITS) - 1)

#define ENTRY_STORE(w)		((StoreId) ((w) & PM_OWNER_MASK))
#define ENTRY_GENERATION(w) ((uint32) (((w) >> 36) & GENERATION_MASK))
#define ENTRY_KIND(w)		((TxnEntryKind) (((w) >> 50) & 0x3f))
#define ENTRY_MAKE(store, gen, kind) \
	((uint64) (store) | ((uint64) (gen) << 36) | ((uint64) (kind) << 50))
#define ENTRY_ROW(r)		((r) & ((UINT64CONST(1) << 40) - 1))
#define ENTRY_COUNT(r)		((uint32) ((r) >> 40))
#define ENTRY_MAX_COUNT		((1U << 24) - 1)
#define ENTRY_MAKE_ROW(row, count) ((uint64) (row) | ((uint64) (count) << 40))

/* Is it a row lock, of a prepared or a kept transaction? */
static inline bool
entry_is_lock(const TxnEntry *e)
{
	return e->kind >= TXN_ENTRY_LOCK && e->kind <= TXN_ENTRY_LOCK_LAST;
}

/* Not flushed.  "row" is stored first, because "what" of an older transaction may be there. */
static inline void
entry_store(TcbEntry *d, StoreId store, uint32 generation, int kind, uint64 row, uint32 count)
{
	*(volatile uint64 *) &d->row = ENTRY_MAKE_ROW(row, count);
	pm_line_order(d);
	*(volatile uint64 *) &d->what = ENTRY_MAKE(store, generation, kind);
}

/* ---- volatile state in shared memory ---- */

#define TXN_MAX_SLOTS		(1 << WORD_SLOT_BITS)
#define TXN_RING			16	/* slots per backend, at most */
#define TXN_MIRROR_SUBS		64	/* levels that need no memory beside TxnBackend */
#define TXN_MIRROR_CHUNKS	25	/* enough for as many levels as an int counts */
#define TXN_NO_SLOT			PG_UINT32_MAX
#define TXN_LOCK_PARTITIONS 128
#define TXN_LAZY_ROWS		1024	/* a write set that names more is released at once */

/* LWLocks of the tranche "sofort_txn" */
#define TXN_LWLOCK_MARK		0	/* the high-water mark */
#define TXN_LWLOCK_RESOLVE	1	/* leftovers */
#define TXN_LWLOCK_GROW		2	/* superblock.tcbs grows */
#define TXN_LWLOCK_PREPARED	3	/* TxnPrepared, and TCBs of prepared transactions;
								 * TxnKept and KeptRecords */
#define TXN_LWLOCK_KEPT		4	/* row locks and stores that kept transactions have from
								 * earlier lives */
#define TXN_LWLOCK_ROWS		5	/* first partition of the lock table */
#define TXN_LWLOCKS			(TXN_LWLOCK_ROWS + TXN_LOCK_PARTITIONS)

/*
 * Mirror of a TCB.  fxid belongs to generation; generation is 0 while the two
 * change.  A reader loads generation, fxid, generation.
 */
typedef struct TxnSlot
{
	uint64		fxid;
	uint32		generation;
	uint32		owner;			/* index in TxnBackends */
	uint32		prepared;		/* index in TxnPreparedOnes + 1 */
	uint32		kept;			/* index in TxnKeptOnes + 1 */
	bool		waiting;		/* kept, open, and no process runs it; goes
								 * away after fxid has changed */
	bool		stays_open;		/* kept, and run by a process: a crash does not end
								 * it.  Goes away when its end is durable */
	bool		active;			/* its transaction has not ended */
	bool		wrapped;		/* generations began again since the entries of
								 * the TCB were zeroed */
} TxnSlot;

/*
 * Words of command "first" or later were written by this subtransaction.  Neither
 * "sub" nor "first" of a level is lower than those of the levels around it.
 */
typedef struct TxnSub
{
	SubTransactionId sub;
	CommandId	first;
	TransactionId xid;
} TxnSub;

struct RowLock;

/*
 * Per PGPROC, written by its owner only, except what the mutex protects.  Behind
 * them those that stand for prepared transactions.
 */
typedef struct TxnBackend
{
	uint32		version;		/* odd while the fields below change */
	uint32		slot;			/* of the open transaction, or TXN_NO_SLOT */
	uint32		nsubs;			/* levels below that are valid, outermost first */
	uint32		spec_token;		/* 0 = none */
	StoreId		spec_store;
	uint64		spec_row;
	int			pid;
	uint32		ring_next;		/* owner only */
	volatile uint64 nentries;	/* for views */
	slock_t		mutex;			/* protects "owned", "cursor", "arrivals" */
	struct RowLock *volatile owned; /* its entries in the lock table, the last to
								 * arrive first */
	struct RowLock *cursor;		/* the next one that locktable_release() looks at */
	volatile uint64 arrivals;	/* entries that ever came to "owned" */
	TxnSub	   *deeper[TXN_MIRROR_CHUNKS];	/* in the arena; element n has the
											 * levels from TXN_MIRROR_SUBS << n on,
											 * as many as come before them */
	TxnSub		subs[TXN_MIRROR_SUBS];
} TxnBackend;

typedef enum TxnPreparedState
{
	PREPARED_NONE = 0,
	PREPARED_BEGUN,				/* its backend is in PREPARE TRANSACTION */
	PREPARED_DONE				/* nobody's; until it is resolved */
} TxnPreparedState;

/*
 * A transaction that PREPARE TRANSACTION has detached from its backend.  It
 * takes its slot with it and leaves the backend a spare one.  Written under
 * TXN_LWLOCK_PREPARED.
 */
typedef struct TxnPrepared
{
	TxnPreparedState state;
	uint32		slot;
	uint32		spare;			/* the slot that nobody uses meanwhile */
	bool		watched;		/* counted in "finishing" all the time */
	volatile uint64 nentries;	/* of its TCB */
	uint64		next_entry;		/* place of the next: others may add row locks */
} TxnPrepared;

typedef enum TxnKeptStage
{
	KEEP_NONE = 0,
	KEEP_ASKED,					/* kept when the statement ends */
	KEEP_RUNNING,
	KEEP_FOUND,					/* after a crash, not adopted yet */
	KEEP_WAITING				/* nobody's, until it is resumed or ended */
} TxnKeptStage;

typedef struct KeptRange KeptRange;
typedef struct KeptStore KeptStore;

/*
 * A kept transaction.  Written under TXN_LWLOCK_PREPARED; WAITING becomes
 * something else under TXN_LWLOCK_RESOLVE, too.
 */
typedef struct TxnKept
{
	TxnKeptStage stage;
	uint32		slot;
	uint32		generation;
	uint64		record;			/* index in superblock.kept */
	uint64		horizon;		/* its first xid, of whichever life */
	uint64		next_lock;		/* place of the next lock that others give to it */
	TimestampTz waits_since;
	pg_atomic_uint32 takers;	/* sessions that are about to resume it */

	/* what it has of earlier lives: written under TXN_LWLOCK_KEPT */
	uint64		resumed_as;		/* its xid in this life, also when it has ended */
	bool		continued;		/* something, perhaps */
	bool		has_locks;		/* row locks, perhaps */
	bool		sorted;			/* the arrays below, in DRAM, are complete */
	uint64		old_entries;	/* that many entries of its write set */
	uint64		old_locks;		/* and of the locks that others gave to it */
	uint64		nranges;
	KeptRange  *ranges;
	uint32		nstores;
	KeptStore  *stores;
} TxnKept;

typedef struct TxnShared
{
	uint64		life;
	uint32		nbackends;
	uint32		ring;			/* slots per backend */
	uint32		nprepared;		/* max_prepared_transactions */
	uint32		nslots;			/* slots that have a mirror */
	pg_atomic_uint32 ntcbs;		/* TCBs that the pool has, durably: written under
								 * TXN_LWLOCK_GROW */
	pg_atomic_uint32 prepared;	/* entries of TxnPrepared in use */
	pg_atomic_uint32 finishing; /* some may be finished and not resolved */
	bool		leftovers;		/* TCBs of earlier lives are unresolved */

	/* kept transactions */
	uint32		nkept;			/* places in TxnKeptOnes */
	bool		kept_surplus;	/* more were found at the start */
	bool		resolved;		/* only the keeper's locks are missing */
	uint64		next_record;	/* where a free KeptRecord is looked for */
	TimestampTz records_full_until; /* all are in use, and no more are allowed */
	pg_atomic_uint32 kept;		/* places in use */
	pg_atomic_uint32 kept_waiting;
	pg_atomic_uint32 kept_locks;	/* have row locks of earlier lives */
	uint64		old_mark;		/* no xid of earlier lives is above */
	Latch	   *keeper_latch;	/* NULL: it does not run */
	ConditionVariable keeper_holds;

	/* high-water mark: written under TXN_LWLOCK_MARK, read without */
	pg_atomic_uint64 mark_fxid;
	pg_atomic_uint64 mark_lsn;

	/* what redo saw last (startup process) */
	bool		redo_seen;
	uint64		redo_sequence;
	uint64		redo_fxid;
	uint64		redo_next;		/* next xid at the end of redo; 0: there was none */

	/* WAL that pure commits flush (wal.c): apart from what is read all the time */
	char		pad[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 async_started;
	pg_atomic_uint64 async_done;
	pg_atomic_uint64 async_lsn;
} TxnShared;

extern TxnShared *TxnShmem;
extern TxnSlot *TxnSlots;
extern TxnBackend *TxnBackends;
extern TxnPrepared *TxnPreparedOnes;
extern TxnKept *TxnKeptOnes;
extern uint32 *TxnRings;		/* slots of backend n from n * ring on */
extern LWLockPadded *TxnLocks;
extern const TxnStoreOps *TxnOps;

#define txn_lwlock(n)		(&TxnLocks[n].lock)

/* ---- this transaction ---- */

/* A LOCK word that this transaction wrote. */
typedef struct LocalLock
{
	RowWords   *words;
	StoreId		store;
	uint64		row;
	SubTransactionId sub;
} LocalLock;

/* An open (sub)transaction; frame 0 is the top. */
typedef struct TxnFrame
{
	SubTransactionId sub;
	int64		first_entry;	/* of the write set; those behind it are its own,
								 * or of what committed into it */
	uint64		first_arrival;	/* its entries in the lock table came then or
								 * later (TxnBackend.arrivals) */
	CommandId	first;			/* words of it have this command id or more */
	bool		exact;			/* words of its parents may have it, too: log
								 * single rows only */
} TxnFrame;

typedef enum TxnStage
{
	STAGE_OPEN = 0,
	STAGE_PREPARED,				/* PRE_COMMIT done, the commit log decides */
	STAGE_COMMITTED				/* past the durable point */
} TxnStage;

typedef struct TxnLocal
{
	bool		have_slot;
	bool		durable;		/* TCB is active on the medium */
	uint32		slot;
	uint32		generation;
	uint64		fxid;
	Tcb		   *tcb;
	TxnBackend *backend;
	uint32		ring_place;		/* of the slot, in this backend's ring */
	TxnPrepared *prepared;		/* since PRE_PREPARE */
	TxnKept    *kept;			/* since txn_keep() or txn_resume() */
	SubTransactionId ready_sub; /* txn_begin_write() has nothing to do */
	TxnStage	stage;
	bool		wrote;			/* some command made a word */
	CommandId	last_command;	/* the highest that did */

	int			nframes;
	int			maxframes;
	TxnFrame   *frames;

	int64		nentries;		/* in the TCB and in chunks */
	int			nchunks;
	int			maxchunks;
	TcbChunk  **chunks;

	int64		nlocks;
	int64		nlocks_logged;	/* of a kept transaction: durable */
	int64		maxlocks;
	LocalLock  *locks;
} TxnLocal;

extern TxnLocal My;

#define my_frame()			(&My.frames[My.nframes - 1])

static inline bool
word_is_mine(uint64 word)
{
	return My.have_slot && WORD_SLOT(word) == My.slot &&
		WORD_GENERATION(word) == My.generation;
}

/* Is the slot's transaction kept, and not resumed yet?  Any slot number is allowed. */
static inline bool
slot_waits(uint32 slot)
{
	return slot < TxnShmem->nslots &&
		__atomic_load_n(&TxnSlots[slot].waiting, __ATOMIC_ACQUIRE);
}

/*
 * PostgreSQL says that the slot's transaction neither runs nor has committed.  Would a
 * crash bring it back nevertheless?  Then it counts as running: whoever made use of its
 * end could be found in its way afterwards.  Its xid is locked until that is over.
 */
static inline bool
slot_stays_open(uint32 slot)
{
	return __atomic_load_n(&TxnSlots[slot].stays_open, __ATOMIC_ACQUIRE);
}

static inline bool
lock_word_of_this_life(uint64 word)
{
	return WORD_LOCK_LIFE(word) == (TxnShmem->life & 0xff);
}

/* ---- tcb.c ---- */
extern void txn_activate(void);
extern void tcb_activate(void);
extern Tcb *tcb_activate_next(uint32 *slot, uint32 *generation);
extern bool txn_take_over(uint32 slot, uint32 generation, int64 nentries, CommandId command,
						  bool (*claim) (void *arg), void *arg);
extern void txn_join(SubTransactionId sub);	/* xid, slot, mirror: to lock rows */
extern void txn_drain(void);
extern void txn_push_frame(SubTransactionId sub);
extern void txn_pop_frame(SubTransactionId sub);
extern const TxnFrame *txn_frame_of(SubTransactionId sub);
extern Tcb *txn_tcb_of_slot(uint32 slot);
extern void txn_slot_replaced(uint32 place);
extern void txn_mirror_leave(TxnBackend *b);
extern void txn_set_state(TcbState state);
extern void txn_publish_state(TcbState state);
extern void txn_release_slot(bool now);
extern void txn_leave(void);
extern void *txn_grow(void *array, int64 used, int64 *max, Size elem);
extern bool slot_transaction(uint32 slot, uint32 generation, uint64 *fxid);
extern TransactionId txn_waitable_xid(uint32 slot, uint32 generation, bool by_command,
									  uint32 number);
extern uint32 txn_spec_token(uint32 slot, StoreId store, uint64 row);

/* ---- write_set.c ---- */

/* What a pass over a write set has visited, a range for some of the stores; all zero at first */
#define VISITED_RANGES	8

typedef struct VisitedRows
{
	TxnEntry	range[VISITED_RANGES];
} VisitedRows;

extern void txn_new_statement(void);
extern void txn_append_entry(StoreId store, TxnEntryKind kind, uint64 row, uint32 count);
extern void txn_forget_entry(StoreId store, uint64 row);
extern bool txn_undo_links(const TxnEntry *e, uint32 slot, uint32 generation,
						   CommandId from_command);
extern void txn_links_undone(bool must_be_durable);
extern bool txn_left_to_visit(VisitedRows *visited, TxnEntry *e);
extern void txn_undo_entry(const TxnEntry *e, uint32 slot, uint32 generation,
						   CommandId from_command);
extern void txn_undo(SubTransactionId from_sub, CommandId from_command);
extern void write_set_attach(const Tcb *tcb);
extern bool write_set_entry(int64 n, TxnEntry *e);
extern void write_set_shrink(int64 n, uint64 row, uint32 count);
extern TcbEntry *txn_chunk_entry(PMPtr *link, uint64 n);
extern void txn_store_carried_lock(TcbEntry *d, StoreId store, uint32 generation, uint64 row,
								   LockTupleMode mode);

/* ---- expected.c ---- */
extern bool expected_note_wait(StoreId store, TxnEntryKind kind, uint64 row);
extern void expected_note_first(bool was_expected);
extern void expected_append(void);
extern void expected_prepare_next(void);
extern void expected_next_durable(void);
extern void expected_forget_next(void);
extern void expected_adopt(void);
extern bool expected_covers(StoreId store, TxnEntryKind kind, uint64 row, uint32 count);
extern bool expected_log_run(StoreId store, TxnEntryKind kind, uint64 row, uint32 count);
extern void expected_forget(StoreId store, uint64 row);
extern void expected_cover_no_more(void);
extern void expected_settle(void);
extern void expected_end_of_xact(void);

/* ---- wal.c ---- */
extern void wal_init(void);
extern void wal_startup(void);
extern void wal_cover_xid(uint64 fxid);
extern void wal_check_redo(void);
extern void wal_note_async_commit(void);
extern void wal_async_commit_done(bool committed);
extern void wal_publish_last_sequences(void);
extern void wal_flush_dependencies(void);
extern void wal_forget_dependencies(void);
extern void wal_log_committed(const TransactionId *xids, int n);

/* ---- visibility.c ---- */
typedef enum TxnOwner
{
	OWNER_NONE,					/* EMPTY; or an end word that only locks */
	OWNER_MINE,
	OWNER_RUNNING,
	OWNER_COMMITTED,			/* stamped or not yet */
	OWNER_ABORTED,				/* undone */
	OWNER_UNDOING				/* aborted, not yet undone: the backend that undoes it still
								 * holds its xid lock */
} TxnOwner;

typedef struct WordView
{
	uint64		word;
	TxnOwner	owner;
	uint64		fxid;			/* not for NONE and ABORTED */
} WordView;

extern void view_word(const uint64 *where, WordView *v);

/* The xid to wait for: it ends or undoes what the word says (heap: xmin, xmax). */
extern TransactionId view_waitable(const WordView *v);
extern void visibility_end_of_xact(void);

/* ---- locktable.c ---- */
typedef struct RowLock
{
	struct RowLock *next;		/* in the bucket, or in the stock */
	struct RowLock *owned_next;
	struct RowLock *owned_prev;
	uint64		arrival;		/* its place in the owner's list */
	StoreId		store;
	uint64		row;
	uint64		fxid;
	uint32		slot;
	uint32		owner;			/* index in TxnBackends */
	SubTransactionId sub;
	uint16		generation;
	uint8		mode;			/* LockTupleMode */
	bool		logged;			/* of a kept transaction: durable; under the
								 * owner's spinlock */
} RowLock;

extern Size locktable_shmem_size(void);
extern void locktable_startup(void);
extern int	locktable_partition(StoreId store, uint64 row);
extern void locktable_stock(int n);
extern RowLock *locktable_first(StoreId store, uint64 row);
extern RowLock *locktable_next(RowLock *lock);
extern RowLock *locktable_add(StoreId store, uint64 row, uint32 slot, uint32 generation,
							  uint64 fxid, SubTransactionId sub, LockTupleMode mode);
extern void locktable_remove(RowLock *lock);
extern void locktable_release(TxnBackend *b, SubTransactionId from_sub, uint64 since);
extern RowLock *locktable_copy_owned(TxnBackend *b, int64 *n);
extern RowLock *locktable_take_unlogged(TxnBackend *b, int64 *n);
extern void locktable_hand_over(TxnBackend *from, uint32 slot, TxnBackend *to);

static inline bool
is_own_entry(const RowLock *lock)
{
	return My.have_slot && lock->slot == My.slot && lock->generation == My.generation;
}

static inline LWLock *
partition_lock(const TxnRow *r)
{
	return txn_lwlock(TXN_LWLOCK_ROWS + locktable_partition(r->store, r->row));
}

/* ---- rowlock.c ---- */
extern void rowlock_mark(const TxnRow *to);
extern void rowlock_release(SubTransactionId from_sub);

/* ---- rowlock_wait.c; no LWLock may be held; 55P03 with LockWaitError ---- */
extern bool rowlock_take_tuple_lock(const TxnRow *r, LockTupleMode mode, LockWaitPolicy policy,
									bool *have);
extern bool rowlock_wait_for_xid(const TxnRow *r, TransactionId xid, LockWaitPolicy policy,
								 XLTW_Oper oper);
extern bool rowlock_wait_for_undo(const TxnRow *r, const WordView *e, LockWaitPolicy policy,
								  XLTW_Oper oper);

/* ---- rowlock_log.c ---- */
extern void rowlock_log_all(void);
extern void rowlock_log_new(void);
extern bool rowlock_restore(StoreId store, uint64 row, LockTupleMode mode, uint32 slot,
							uint32 generation, uint64 fxid, bool logged);
extern void rowlock_release_words(const TxnEntry *e, uint32 slot, uint32 generation);

/* ---- recover.c ---- */
typedef void (*TcbAction) (TcbEntry *durable, const TxnEntry *entry, uint32 slot,
						   uint32 generation, uint64 fxid);
extern void tcb_walk(Tcb *tcb, uint32 slot, bool backwards, TcbAction action);
extern void tcb_finish_committed(Tcb *tcb, uint32 slot);
extern void tcb_finish_aborted(Tcb *tcb, uint32 slot);
extern void tcb_free_overflow(Tcb *tcb);
extern bool tcb_check_chain(PMPtr *first, bool needed, const char *what, uint64 number);
extern TcbChunk **tcb_chunks(const Tcb *tcb, int *n);
extern bool tcb_valid_entry(const TcbEntry *durable, uint32 generation, TxnEntry *e);

/* ---- prepared.c ---- */
extern bool prepared_startup(void);
extern void prepared_begin(void);
extern void prepared_cancel(void);
extern void prepared_hand_over(void);
extern void prepared_adopt(Tcb *tcb, uint32 slot);
extern void prepared_log_lock(uint32 slot, uint32 generation, StoreId store, uint64 row,
							  LockTupleMode mode);
extern void prepared_end_of_xact(void);

/* ---- kept.c: while its session runs ---- */
extern bool kept_is_running(void);
extern KeptRecord *kept_record(const TxnKept *k);
extern void kept_close(const TxnKept *k, KeptState outcome);
extern void kept_close_record(KeptRecord *r, KeptState outcome);
extern void kept_free_locks(KeptRecord *r);
extern void kept_forget(TxnKept *k);
extern void kept_log_lock(uint32 slot, uint32 generation, StoreId store, uint64 row,
						  LockTupleMode mode);
extern void kept_before_commit(void);
extern void kept_leave(void);
extern void kept_continue(const KeptBoundary *b);

/* ---- kept_locks.c: row locks that a crash has left ---- */
typedef void (*KeptEntryVisitor) (const TxnEntry *e, void *arg);
extern void kept_locks_found(TxnKept *k, uint64 entries);
extern void kept_locks_end(TxnKept *k);
extern void kept_locks_sort(void);
extern void kept_restore_row(StoreId store, uint64 row);

/*
 * To be called before a row's lockers matter: puts those that are in write sets of kept
 * transactions into the lock table
 */
static inline void
restore_kept_locks(const TxnRow *r)
{
	if (unlikely(pg_atomic_read_u32(&TxnShmem->kept_locks) > 0))
		kept_restore_row(r->store, r->row);
}

/* ---- keeper.c: after a crash ---- */
extern bool kept_startup(void);
extern void kept_mark_slots(void);
extern bool kept_has_slot(uint32 slot);
extern void kept_undo_unfinished(uint32 slot);
extern void kept_require_places(void);
extern bool kept_adopt(void);
extern void kept_wait_for_keeper(void);
extern uint64 kept_horizon(uint64 horizon);
extern void kept_info(TxnInfo *info);

#endif							/* SOFORT_TXN_INTERNAL_H */
