/*-------------------------------------------------------------------------
 *
 * tcb.c
 *	  Transaction control blocks: slots, activation, savepoints.
 *
 * Each backend owns a ring of slots and takes them in turn.  A slot has a TCB
 * in the pool (what a crash needs) and a mirror in shared memory (what the other
 * backends need).  Only the owner writes either.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/subtrans.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "txn_internal.h"

TxnShared  *TxnShmem = NULL;
TxnSlot    *TxnSlots = NULL;
TxnBackend *TxnBackends = NULL;
TxnPrepared *TxnPreparedOnes = NULL;
TxnKept    *TxnKeptOnes = NULL;
uint32	   *TxnRings = NULL;
LWLockPadded *TxnLocks = NULL;
const TxnStoreOps *TxnOps = NULL;

TxnLocal	My;

/*
 * Drains of this process, and their number when a slot's last flush was issued:
 * a slot is reused only after a drain.
 */
static uint64 drains = 1;
static uint64 slot_flushed[TXN_RING];
static bool exit_registered = false;

/* (The mirror of the slots is in the arena, because its size depends on the pool.) */
Size
txn_shmem_size(void)
{
	Size		size = MAXALIGN(sizeof(TxnShared));

	size = add_size(size, MAXALIGN(mul_size(sizeof(uint32) * TXN_RING, MaxBackends)));
	size = add_size(size, MAXALIGN(mul_size(sizeof(TxnPrepared), max_prepared_xacts)));
	size = add_size(size, MAXALIGN(mul_size(sizeof(TxnKept), MaxBackends)));
	size = add_size(size, MAXALIGN(mul_size(sizeof(TxnBackend),
											2 * (Size) MaxBackends + max_prepared_xacts)));
	return add_size(size, locktable_shmem_size());
}

int
txn_lwlocks(void)
{
	return TXN_LWLOCKS;
}

void
txn_register_store_ops(const TxnStoreOps *ops)
{
	TxnOps = ops;
}

void
txn_drain(void)
{
	pm_drain();
	drains++;
}

/* Enlarges a backend-local array to hold one more element. */
void *
txn_grow(void *array, int64 used, int64 *max, Size elem)
{
	if (used < *max)
		return array;
	if (array == NULL)
	{
		*max = 64;
		return MemoryContextAlloc(TopMemoryContext, *max * elem);
	}
	array = repalloc_huge(array, 2 * *max * elem);
	*max *= 2;
	return array;
}

/* ------------------------------------------------------------------------
 * Mirror
 * ------------------------------------------------------------------------
 */

/* The top xid of a generation of a slot; false if the slot has moved on. */
bool
slot_transaction(uint32 slot, uint32 generation, uint64 *fxid)
{
	const TxnSlot *s;

	if (slot >= TxnShmem->nslots || generation == 0)
		return false;
	s = &TxnSlots[slot];
	if (__atomic_load_n(&s->generation, __ATOMIC_ACQUIRE) != generation)
		return false;
	*fxid = __atomic_load_n(&s->fxid, __ATOMIC_RELAXED);
	pg_read_barrier();
	return __atomic_load_n(&s->generation, __ATOMIC_RELAXED) == generation;
}

static void
mirror_begin_change(TxnBackend *b)
{
	__atomic_store_n(&b->version, b->version + 1, __ATOMIC_RELAXED);
	pg_write_barrier();
}

static void
mirror_end_change(TxnBackend *b)
{
	pg_write_barrier();
	__atomic_store_n(&b->version, b->version + 1, __ATOMIC_RELEASE);
}

/*
 * Consistent reading of another backend's mirror: "body" is repeated until nothing has
 * changed meanwhile.  The owner changes it in a few instructions, so this does not take
 * long.
 */
#define MIRROR_READ(b, body) \
	do { \
		for (;;) \
		{ \
			uint32		v_ = __atomic_load_n(&(b)->version, __ATOMIC_ACQUIRE); \
			if ((v_ & 1) == 0) \
			{ \
				body; \
				pg_read_barrier(); \
				if (__atomic_load_n(&(b)->version, __ATOMIC_RELAXED) == v_) \
					break; \
			} \
			SPIN_DELAY(); \
		} \
	} while (0)

/*
 * The mirror of an open subtransaction; the top transaction is level 0.  NULL if its memory
 * has been given back, which only readers meet; they begin again then.
 */
static TxnSub *
mirror_level(const TxnBackend *b, uint32 level)
{
	TxnSub	   *chunk;
	int			n;

	if (level < TXN_MIRROR_SUBS)
		return unconstify(TxnSub *, &b->subs[level]);
	n = pg_leftmost_one_pos32(level / TXN_MIRROR_SUBS);
	chunk = __atomic_load_n(&b->deeper[n], __ATOMIC_RELAXED);
	return chunk == NULL ? NULL : &chunk[level - ((uint32) TXN_MIRROR_SUBS << n)];
}

/*
 * In MIRROR_READ: the xid of the innermost level that does not begin after the number.  If
 * the owner gives the memory back meanwhile, the arena stays mapped, and what was read
 * there does not count, because "version" has changed first.
 */
static TransactionId
mirror_find(const TxnBackend *b, bool by_command, uint32 number)
{
	TransactionId xid = InvalidTransactionId;
	uint32		low = 0;
	uint32		high = __atomic_load_n(&b->nsubs, __ATOMIC_RELAXED);

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;
		const TxnSub *s = mirror_level(b, middle);

		if (s == NULL)
			return InvalidTransactionId;
		if (number >= (by_command ? s->first : s->sub))
		{
			xid = s->xid;
			low = middle + 1;
		}
		else
			high = middle;
	}
	return xid;
}

/*
 * The xid whose end a waiter should wait for: that of the innermost
 * subtransaction still open that wrote the word (number = command id) or took
 * the lock (number = subtransaction); ids of committed subtransactions lead to
 * the parent they merged into.  InvalidTransactionId if the slot has moved on.
 */
TransactionId
txn_waitable_xid(uint32 slot, uint32 generation, bool by_command, uint32 number)
{
	const TxnBackend *b;
	TransactionId xid = InvalidTransactionId;
	uint64		fxid;

	if (!slot_transaction(slot, generation, &fxid))
		return InvalidTransactionId;
	b = &TxnBackends[*(volatile uint32 *) &TxnSlots[slot].owner];
	MIRROR_READ(b,
				{
					xid = b->slot == slot ? mirror_find(b, by_command, number) :
						(TransactionId) fxid;
				});

	/* the stack may have belonged to the slot's next transaction */
	if (!slot_transaction(slot, generation, &fxid))
		return InvalidTransactionId;
	return TransactionIdIsValid(xid) ? xid : (TransactionId) fxid;
}

/* The token under which the owner of the slot inserts this row, or 0. */
uint32
txn_spec_token(uint32 slot, StoreId store, uint64 row)
{
	const TxnBackend *b = &TxnBackends[*(volatile uint32 *) &TxnSlots[slot].owner];
	uint32		token = 0;

	MIRROR_READ(b,
				{
					token = (b->slot == slot && b->spec_store == store &&
							 b->spec_row == row) ? b->spec_token : 0;
				});
	return token;
}

void
txn_speculate(StoreId store, uint64 row, uint32 token)
{
	TxnBackend *b = My.backend;

	Assert(My.have_slot);
	mirror_begin_change(b);
	b->spec_store = store;
	b->spec_row = row;
	b->spec_token = token;
	mirror_end_change(b);
}

void
txn_speculation_end(void)
{
	TxnBackend *b = My.backend;

	if (!My.have_slot || b->spec_token == 0)
		return;
	mirror_begin_change(b);
	b->spec_token = 0;
	mirror_end_change(b);
}

/* ------------------------------------------------------------------------
 * Frames: the open subtransactions
 * ------------------------------------------------------------------------
 */

static void
add_frame(SubTransactionId sub, CommandId first, bool exact)
{
	TxnFrame   *f;
	int64		max = My.maxframes;

	My.frames = txn_grow(My.frames, My.nframes, &max, sizeof(TxnFrame));
	My.maxframes = (int) max;
	f = &My.frames[My.nframes++];
	f->sub = sub;
	f->first_entry = My.nentries;
	f->first_arrival = My.backend != NULL ? My.backend->arrivals : 0;
	f->first = first;
	f->exact = exact;
}

/*
 * A subtransaction starts.  If the current command has written already, words of parent and
 * child may carry the same command id: then the child logs only single rows, so that
 * undoing it cannot touch a row of the parent.  So do subtransactions within it, even after
 * a later command, because they are undone with it.
 */
void
txn_push_frame(SubTransactionId sub)
{
	CommandId	cid = GetCurrentCommandId(false);

	if (My.nframes == 0)
		add_frame(TopSubTransactionId, 0, false);
	add_frame(sub, cid, my_frame()->exact || (My.wrote && My.last_command >= cid));
	txn_new_statement();
}

/* NULL: the top transaction, or one that is not open */
const TxnFrame *
txn_frame_of(SubTransactionId sub)
{
	int			i;

	for (i = My.nframes - 1; i > 0; i--)
	{
		if (My.frames[i].sub == sub)
			return &My.frames[i];
	}
	return NULL;
}

/* The subtransaction has ended, one way or the other. */
void
txn_pop_frame(SubTransactionId sub)
{
	TxnBackend *b = My.backend;

	My.ready_sub = InvalidSubTransactionId;
	while (My.nframes > 1 && my_frame()->sub >= sub)
		My.nframes--;
	if (!My.have_slot || b->nsubs <= (uint32) My.nframes)
		return;
	mirror_begin_change(b);
	b->nsubs = (uint32) My.nframes;
	mirror_end_change(b);
}

/* Makes room for so many levels.  The memory is kept until the transaction ends. */
static void
mirror_reserve(TxnBackend *b, uint32 levels)
{
	for (int n = 0; levels > (uint64) TXN_MIRROR_SUBS << n; n++)
	{
		TxnSub	   *chunk;

		if (b->deeper[n] != NULL)
			continue;
		chunk = arena_alloc(sizeof(TxnSub) * ((Size) TXN_MIRROR_SUBS << n), 0);
		__atomic_store_n(&b->deeper[n], chunk, __ATOMIC_RELAXED);
	}
}

/*
 * Gives back the memory of the levels.  None is valid any more, and a process that still
 * reads one has to begin again.
 */
static void
mirror_give_back(TxnBackend *b)
{
	for (int n = 0; n < TXN_MIRROR_CHUNKS && b->deeper[n] != NULL; n++)
	{
		TxnSub	   *chunk = b->deeper[n];

		__atomic_store_n(&b->deeper[n], NULL, __ATOMIC_RELAXED);
		arena_free(chunk);
	}
}

/* Is the current subtransaction in the mirror? */
static bool
frames_mirrored(void)
{
	return My.nframes > 0 && My.backend->nsubs == (uint32) My.nframes;
}

/*
 * Tells the other backends the xids of the open subtransactions, outermost first; assigns
 * one to the current.  Whatever may fail is done before anybody looks at the new levels.
 */
static void
mirror_frames(void)
{
	TxnBackend *b = My.backend;
	TransactionId xid = GetCurrentTransactionId();
	uint32		i;

	mirror_reserve(b, (uint32) My.nframes);
	for (i = (uint32) My.nframes; i-- > b->nsubs;)
	{
		TxnSub	   *s = mirror_level(b, i);

		s->sub = My.frames[i].sub;
		s->first = My.frames[i].first;
		s->xid = xid;
		if (i > b->nsubs)
			xid = SubTransGetParent(xid);
	}
	mirror_begin_change(b);
	b->nsubs = (uint32) My.nframes;
	mirror_end_change(b);
}

/* ------------------------------------------------------------------------
 * Slots
 * ------------------------------------------------------------------------
 */

/* At exit: another process may take over the slots, so nothing of ours may be undrained. */
static void
drain_at_exit(int code, Datum arg)
{
	if (pool_status() == POOL_READY)
	{
		expected_forget_next();
		pm_drain();
	}
}

/* Takes the place in the ring for a transaction that begins; returns this backend's number. */
static uint32
take_ring_place(void)
{
	TxnBackend *b;
	uint32		number = (uint32) my_proc_number();

	if (number >= TxnShmem->nbackends)
		elog(ERROR, "process %d cannot own sofort transactions", MyProcPid);
	if (!exit_registered)
	{
		on_shmem_exit(drain_at_exit, (Datum) 0);
		exit_registered = true;
	}

	b = &TxnBackends[number];
	My.backend = b;
	My.fxid = U64FromFullTransactionId(GetTopFullTransactionId());
	My.ring_place = b->ring_next;
	b->ring_next = (b->ring_next + 1) % TxnShmem->ring;
	return number;
}

void
txn_test_set_generations(uint32 generation)
{
	uint32		i;

	for (i = 0; i < TxnShmem->ring; i++)
	{
		TxnSlot    *s = &TxnSlots[TxnRings[(uint32) my_proc_number() * TxnShmem->ring + i]];

		if (!s->active)
			s->generation = generation & GENERATION_MASK;
	}
}

static void
take_slot(void)
{
	uint32		number = take_ring_place();
	TxnBackend *b = My.backend;
	TxnSlot    *s;
	uint32		generation;

	My.slot = TxnRings[number * TxnShmem->ring + My.ring_place];
	s = &TxnSlots[My.slot];
	generation = (s->generation + 1) & GENERATION_MASK;
	if (generation == 0)
	{
		generation = 1;
		s->wrapped = true;
	}
	My.generation = generation;
	My.durable = false;
	My.tcb = NULL;

	/* the stack first: whoever sees the new generation sees the new stack */
	mirror_begin_change(b);
	b->slot = My.slot;
	b->nsubs = 0;
	b->spec_token = 0;
	b->pid = MyProcPid;
	b->nentries = 0;
	__atomic_store_n(&s->generation, 0, __ATOMIC_RELAXED);
	pg_write_barrier();
	__atomic_store_n(&s->fxid, My.fxid, __ATOMIC_RELAXED);
	s->owner = number;
	s->active = true;
	__atomic_store_n(&s->generation, generation, __ATOMIC_RELEASE);
	mirror_end_change(b);
	My.have_slot = true;
}

static void
check_may_write(void)
{
	pool_require();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot modify sofort tables during recovery")));
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot modify sofort tables in a parallel worker")));
	if (My.stage != STAGE_OPEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot modify sofort tables while the transaction commits")));
	txn_resolve_leftovers();
}

/*
 * This transaction goes on with the slot of one that a crash has cut short, whose write set
 * has so many entries, and whose words have command ids below "command".  The slot that the
 * ring had in this place is not used any more in this life.  Everything that may fail comes
 * first; then claim() makes the transaction ours, or returns false.
 */
bool
txn_take_over(uint32 slot, uint32 generation, int64 nentries, CommandId command,
			  bool (*claim) (void *arg), void *arg)
{
	Tcb		   *tcb = txn_tcb_of_slot(slot);
	uint32		number;
	TxnBackend *b;

	check_may_write();
	number = take_ring_place();
	b = My.backend;
	wal_cover_xid(My.fxid);
	write_set_attach(tcb);
	if (My.nframes == 0)
		add_frame(TopSubTransactionId, 0, false);

	if (!claim(arg))
	{
		My.nchunks = 0;
		return false;
	}
	My.slot = slot;
	My.generation = generation;
	My.tcb = tcb;
	My.nentries = nentries;
	My.wrote = command > 0;
	My.last_command = My.wrote ? command - 1 : 0;
	mirror_begin_change(b);
	b->slot = slot;
	b->nsubs = 0;
	b->spec_token = 0;
	b->pid = MyProcPid;
	b->nentries = (uint64) nentries;
	mirror_end_change(b);
	TxnRings[number * TxnShmem->ring + My.ring_place] = slot;
	txn_slot_replaced(My.ring_place);
	My.durable = true;
	My.have_slot = true;
	return true;
}

/* Makes sure of an xid, a slot, and the current subtransaction in the mirror. */
void
txn_join(SubTransactionId sub)
{
	if (likely(My.ready_sub == sub))
		return;
	if (My.have_slot && frames_mirrored() && My.stage == STAGE_OPEN)
		return;
	check_may_write();
	if (My.nframes == 0)
		add_frame(TopSubTransactionId, 0, false);
	(void) GetCurrentTransactionId();
	if (!My.have_slot)
		take_slot();
	if (!frames_mirrored())
		mirror_frames();
}

void
txn_begin_write(void)
{
	SubTransactionId sub = GetCurrentSubTransactionId();

	if (likely(My.ready_sub == sub))
		return;
	txn_join(sub);
	wal_cover_xid(My.fxid);
	My.ready_sub = sub;
}

bool
txn_is_writing(void)
{
	return My.have_slot && My.nentries > 0;
}

uint64
txn_progress_word(CommandId cid)
{
	if (cid > WORD_MAX_COMMAND)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot have more than %u commands in a transaction that writes sofort tables",
						WORD_MAX_COMMAND)));
	Assert(My.have_slot);
	if (!My.wrote || cid > My.last_command)
		My.last_command = cid;
	My.wrote = true;
	return WORD_MAKE_PROGRESS(My.slot, My.generation, cid);
}

/* ------------------------------------------------------------------------
 * The TCB on the medium
 * ------------------------------------------------------------------------
 */

/*
 * Address of the TCB of a slot; makes room in the vector.  Its length can be seen
 * before it is durable, and counts the slots of others, too: ntcbs follows it.
 */
Tcb *
txn_tcb_of_slot(uint32 slot)
{
	PmVector   *tcbs = &PoolSuper->tcbs;
	uint64		last = slot | (TXN_RING - 1);

	if (slot >= pg_atomic_read_u32(&TxnShmem->ntcbs))
	{
		LWLockAcquire(txn_lwlock(TXN_LWLOCK_GROW), LW_EXCLUSIVE);
		if (slot >= pm_vector_count(tcbs))
		{
			pm_vector_reserve(tcbs, last, PM_OWNER_TXN, 0);
			pm_vector_publish(tcbs, last + 1);
		}
		pg_atomic_write_u32(&TxnShmem->ntcbs, (uint32) pm_vector_count(tcbs));
		LWLockRelease(txn_lwlock(TXN_LWLOCK_GROW));
	}
	return (Tcb *) pm_vector_get(tcbs, slot);
}

void
txn_set_state(TcbState state)
{
	pm_store8(&My.tcb->state, TCB_MAKE_STATE(state, My.generation, TxnShmem->life));
}

/*
 * Makes the state durable, after everything that was flushed before (pm_drain_to_publish()
 * was called).  Only its owner flushes the line: nobody adds entries to another's ACTIVE
 * TCB.
 */
void
txn_publish_state(TcbState state)
{
	pm_publish8(&My.tcb->state, TCB_MAKE_STATE(state, My.generation, TxnShmem->life));
	drains++;
}

/*
 * Generations begin again after 2^14 transactions.  Entries of the old generation with the
 * same number must be gone before the state names it, or a crash would find them.  (Entries
 * of the last transaction are not needed any more: what it did was drained.)
 */
static void
zero_entries(volatile Tcb *tcb)
{
	memset((void *) tcb->entries, 0, sizeof(tcb->entries));
	pm_line_order(My.tcb);
	pm_persist((const char *) tcb + PM_LINE, sizeof(Tcb) - PM_LINE);
}

/*
 * Fills the first line, not flushed yet.  All stores go to one line and become durable in
 * this order, so a crash finds the old transaction, FREE, or all of the new one.
 */
static void
fill_first_line(volatile Tcb *tcb, uint32 generation, uint64 fxid)
{
	Assert(tcb->overflow == PM_NULL);
	tcb->state = TCB_MAKE_STATE(TCB_FREE, generation, TxnShmem->life);
	pm_line_order((const void *) tcb);
	tcb->xid = fxid;
	pm_line_order((const void *) tcb);
	tcb->state = TCB_MAKE_STATE(TCB_ACTIVE, generation, TxnShmem->life);
	pm_line_order((const void *) tcb);
}

/* The first line of our own TCB, which the caller flushes with what else is in it. */
void
tcb_activate(void)
{
	TxnSlot    *s = &TxnSlots[My.slot];

	if (slot_flushed[My.ring_place] >= drains)
		txn_drain();			/* the last transaction's stamps */
	if (s->wrapped)
	{
		zero_entries(My.tcb);
		s->wrapped = false;
	}
	fill_first_line(My.tcb, My.generation, My.fxid);
	My.durable = true;
}

/*
 * Makes the TCB ACTIVE that the next transaction of this process will have, before there is
 * one.  NULL if that takes more than to flush its first line, which is left to the caller.
 */
Tcb *
tcb_activate_next(uint32 *slot, uint32 *generation)
{
	const TxnBackend *b = My.backend;
	const TxnSlot *s;
	Tcb		   *tcb;

	*slot = TxnRings[(b - TxnBackends) * TxnShmem->ring + b->ring_next];
	s = &TxnSlots[*slot];
	*generation = (s->generation + 1) & GENERATION_MASK;
	if (*slot == My.slot || slot_flushed[b->ring_next] >= drains || *generation == 0 || s->wrapped ||
		*slot >= pg_atomic_read_u32(&TxnShmem->ntcbs))
		return NULL;
	tcb = txn_tcb_of_slot(*slot);
	fill_first_line(tcb, *generation, 0);
	return tcb;
}

/* Activates a TCB even if the write set is empty; flushed with the next store to its state. */
void
txn_activate(void)
{
	Assert(My.have_slot);
	if (!My.durable)
		expected_adopt();
	if (My.durable)
		return;
	if (My.tcb == NULL)
		My.tcb = txn_tcb_of_slot(My.slot);
	tcb_activate();
}

/* ------------------------------------------------------------------------
 * The end
 * ------------------------------------------------------------------------
 */

/*
 * Does the write set name many rows?  A start would go through them again, before anybody
 * is let in.
 */
static bool
names_many_rows(void)
{
	uint64		nrows = 0;

	for (int64 i = 0; i < My.nentries; i++)
	{
		TxnEntry	e;

		if (write_set_entry(i, &e) && (e.kind == TXN_ENTRY_BEGIN || e.kind == TXN_ENTRY_END))
			nrows += e.count;
	}
	return nrows > TXN_LAZY_ROWS;
}

/*
 * The TCB is not needed any more.  If "now", or its write set is long: drains, makes it
 * FREE and gives its chunks back; otherwise it stays as it is until the slot is taken
 * again, after some later drain.
 */
void
txn_release_slot(bool now)
{
	if (!My.durable)
		return;
	if (now || My.nchunks > 0 || names_many_rows())
	{
		txn_drain();
		SOFORT_STOP("slot-release");
		txn_set_state(TCB_FREE);
		txn_drain();
		while (--My.nchunks >= 0)
			pm_free(PM_OWNER_TXN, My.nchunks == 0 ? &My.tcb->overflow :
					&My.chunks[My.nchunks - 1]->next, 1);
		My.nchunks = 0;
	}
	slot_flushed[My.ring_place] = drains;
}

/* There is another slot in this place of the ring, with a TCB that is durably FREE. */
void
txn_slot_replaced(uint32 place)
{
	slot_flushed[place] = 0;
}

/* The backend no longer has an open transaction. */
void
txn_mirror_leave(TxnBackend *b)
{
	mirror_begin_change(b);
	b->slot = TXN_NO_SLOT;
	b->nsubs = 0;
	b->spec_token = 0;
	b->nentries = 0;
	mirror_end_change(b);
	mirror_give_back(b);
}

/* Forgets the transaction, after everything that names it was dealt with. */
void
txn_leave(void)
{
	if (My.have_slot)
	{
		__atomic_store_n(&TxnSlots[My.slot].active, false, __ATOMIC_RELEASE);
		txn_mirror_leave(My.backend);
	}
	My.have_slot = false;
	My.prepared = NULL;
	My.kept = NULL;
	My.nlocks_logged = 0;
	My.nchunks = 0;
	My.durable = false;
	My.ready_sub = InvalidSubTransactionId;
	My.stage = STAGE_OPEN;
	My.wrote = false;
	My.nentries = 0;
	My.nlocks = 0;
	My.nframes = 0;
	txn_new_statement();
	expected_end_of_xact();
	if (My.maxlocks > 65536)
	{
		pfree(My.locks);
		My.locks = NULL;
		My.maxlocks = 0;
	}
}

/* ------------------------------------------------------------------------
 * Views
 * ------------------------------------------------------------------------
 */

static const char *
state_name(TcbState state)
{
	switch (state)
	{
		case TCB_FREE:
			return "free";
		case TCB_ACTIVE:
			return "active";
		case TCB_PREPARED:
			return "prepared";
		case TCB_COMMITTED:
			return "committed";
		case TCB_ABORTED:
			return "aborted";
		case TCB_TWO_PHASE:
			return "prepared";
		case TCB_KEPT:
			return "kept";
	}
	return "invalid";
}

/*
 * Visits transactions that are open, and TCBs of earlier lives that wait for the commit
 * log.  Those that have ended, and whose slots just were not taken again, are left out.
 */
void
txn_visit(TxnVisitor fn, void *arg)
{
	uint32		slot;

	if (TxnShmem == NULL || pool_status() != POOL_READY)
		return;
	for (slot = 0; slot < Max(TxnShmem->nslots, pm_vector_count(&PoolSuper->tcbs)); slot++)
	{
		const Tcb  *tcb = slot < pm_vector_count(&PoolSuper->tcbs) ?
			(const Tcb *) pm_vector_get(&PoolSuper->tcbs, slot) : NULL;
		uint64		state = tcb ? word_read(&tcb->state) : 0;
		bool		leftover = TCB_STATE(state) != TCB_FREE && TCB_LIFE(state) != TxnShmem->life;
		TxnInfo		info;

		memset(&info, 0, sizeof(info));
		info.slot = slot;
		if (slot < TxnShmem->nslots && TxnSlots[slot].active)
		{
			/* (others change it meanwhile: each word is read once) */
			const volatile TxnSlot *s = &TxnSlots[slot];
			const TxnBackend *b = &TxnBackends[s->owner];
			uint32		prepared = s->prepared;

			info.generation = s->generation;
			info.xid = s->fxid;
			info.life = TxnShmem->life;
			info.pid = b->pid;
			info.entries = prepared > 0 && b->pid == 0 ?
				TxnPreparedOnes[prepared - 1].nentries : b->nentries;
			/* a transaction that only locks rows gets no TCB */
			info.state = TCB_GENERATION(state) == info.generation &&
				(!leftover || prepared > 0 || TxnSlots[slot].waiting) &&
				TCB_STATE(state) != TCB_FREE ? state_name(TCB_STATE(state)) : "locking";
			if (TxnSlots[slot].kept > 0)
				kept_info(&info);
		}
		else if (leftover && TxnShmem->leftovers)
		{
			info.generation = TCB_GENERATION(state);
			info.xid = tcb->xid;
			info.life = TCB_LIFE(state);
			info.state = state_name(TCB_STATE(state));
		}
		else
			continue;
		fn(arg, &info);
	}
}
