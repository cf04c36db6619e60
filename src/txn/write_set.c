/*-------------------------------------------------------------------------
 *
 * write_set.c
 *	  What a transaction did to stores, durable before it is done.
 *
 * An entry names rows that may carry words of the transaction, a store or a column that
 * it made or drops, or locks that outlast a crash.  The first entries are in the TCB,
 * the others in a chain of chunks.  There is no copy in memory, which would grow with
 * the rows, and with each subtransaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"

#include "txn_internal.h"

/*
 * Ranges that the write set covers since the subtransaction began, and blocks from which
 * END entries came.  A cache: what it forgets costs one more entry.
 */
#define COVER_RANGES	8
#define HOT_BLOCKS		16
#define HOT_BLOCK_LIMIT 4		/* then the whole block is logged */

typedef struct HotBlock
{
	StoreId		store;
	uint64		block;
	int			hits;
} HotBlock;

static TxnEntry cover[COVER_RANGES];
static int	cover_next;
static HotBlock hot[HOT_BLOCKS];

/* The END entry that the last txn_log() or txn_log_update() appended; -1: it was covered */
static int64 last_end = -1;

/* From now on what is logged does not rely on older entries. */
void
txn_new_statement(void)
{
	memset(cover, 0, sizeof(cover));
	memset(hot, 0, sizeof(hot));
	expected_cover_no_more();
}

/* Adds a chunk to the write set. */
static void
add_chunk(void)
{
	PmReservation r;
	PMPtr	   *link;
	int64		max = My.maxchunks;

	My.chunks = txn_grow(My.chunks, My.nchunks, &max, sizeof(TcbChunk *));
	My.maxchunks = (int) max;
	link = My.nchunks == 0 ? &My.tcb->overflow : &My.chunks[My.nchunks - 1]->next;
	pm_reserve(&r, PM_OWNER_TXN, sizeof(TcbChunk), link, 1, PM_RESERVE_ZERO);
	pm_publish(&r);
	My.chunks[My.nchunks++] = (TcbChunk *) r.addr;
}

static TcbEntry *
durable_entry(int64 n)
{
	if (n < TCB_INLINE_ENTRIES)
		return &My.tcb->entries[n];
	n -= TCB_INLINE_ENTRIES;
	if (n / TCB_CHUNK_ENTRIES >= My.nchunks)
		add_chunk();
	return &My.chunks[n / TCB_CHUNK_ENTRIES]->entries[n % TCB_CHUNK_ENTRIES];
}

/* Entry n of this transaction; false if it was taken back. */
bool
write_set_entry(int64 n, TxnEntry *e)
{
	Assert(n < My.nentries);
	return tcb_valid_entry(durable_entry(n), My.generation, e);
}

/* Appends an entry and flushes it; no drain. */
void
txn_append_entry(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	TcbEntry   *d;
	bool		first;

	Assert(My.have_slot && My.stage == STAGE_OPEN);
	if (!My.durable)
		expected_adopt();
	first = !My.durable;
	if (My.tcb == NULL)
		My.tcb = txn_tcb_of_slot(My.slot);
	d = durable_entry(My.nentries);
	if (first)
		tcb_activate();

	entry_store(d, store, My.generation, kind, row, count);
	if (first)
		pm_flush(My.tcb, PM_LINE);	/* entry 0 is in that line */
	else
		pm_flush(d, sizeof(TcbEntry));
	My.nentries++;
	My.backend->nentries = (uint64) My.nentries;
}

static bool
is_covered(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	int			i;

	for (i = 0; i < COVER_RANGES; i++)
	{
		const TxnEntry *c = &cover[i];

		if (c->kind == kind && c->store == store && row >= c->row &&
			row + count <= c->row + c->count)
			return true;
	}
	return expected_covers(store, kind, row, count);
}

/* Do so many END entries come from the block that it should be logged as a whole? */
static bool
is_hot(StoreId store, uint64 row)
{
	uint64		block = row / SOFORT_BLOCK_ROWS;
	HotBlock   *h = &hot[(block ^ (store * 7)) % HOT_BLOCKS];

	if (my_frame()->exact)
		return false;
	if (h->store != store || h->block != block)
	{
		h->store = store;
		h->block = block;
		h->hits = 0;
	}
	return ++h->hits >= HOT_BLOCK_LIMIT;
}

/* Returns false if there was nothing to do. */
static bool
log_rows(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	bool		rows = kind == TXN_ENTRY_BEGIN || kind == TXN_ENTRY_END;

	if (kind == TXN_ENTRY_END)
		last_end = -1;
	if (rows)
	{
		if (is_covered(store, kind, row, count))
			return false;
		if (expected_log_run(store, kind, row, count))
			return true;
		if (kind == TXN_ENTRY_END && count == 1 && is_hot(store, row))
		{
			row -= row % SOFORT_BLOCK_ROWS;
			count = SOFORT_BLOCK_ROWS;
		}
		if (kind == TXN_ENTRY_END)
			last_end = My.nentries;
		txn_append_entry(store, kind, row, count);
		cover[cover_next++ % COVER_RANGES] = (TxnEntry)
		{
			.store = store, .kind = kind, .row = row, .count = count
		};
	}
	else
		txn_append_entry(store, kind, row, count);
	return true;
}

/* Makes durable what was appended; first: the TCB was not active before. */
static void
drain_entries(bool first)
{
	expected_append();
	SOFORT_STOP("txn-drain-entries");
	txn_drain();
	if (first)
		SOFORT_STOP("txn-activated");
}

void
txn_log(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	bool		begins = !My.durable;
	bool		first;
	bool		logged = false;
	bool		was_expected = true;
	uint32		left = count;

	Assert(count > 0);
	if (begins)
		expected_adopt();
	first = !My.durable;
	for (;;)
	{
		uint32		n = Min(left, ENTRY_MAX_COUNT);

		logged |= log_rows(store, kind, row + (count - left), n);
		left -= n;
		if (left == 0)
			break;
	}
	if (logged)
	{
		drain_entries(first);
		was_expected = (kind == TXN_ENTRY_BEGIN || kind == TXN_ENTRY_END) &&
			expected_note_wait(store, kind, row);
	}
	if (begins)
		expected_note_first(was_expected);
	SOFORT_STOP("txn-logged");
}

void
txn_log_update(StoreId store, uint64 old_row, uint64 new_row)
{
	bool		begins = !My.durable;
	bool		first;
	bool		end;
	bool		begin;
	bool		was_expected;

	if (begins)
		expected_adopt();
	first = !My.durable;
	end = log_rows(store, TXN_ENTRY_END, old_row, 1);
	begin = log_rows(store, TXN_ENTRY_BEGIN, new_row, 1);
	if (end || begin)
		drain_entries(first);
	was_expected = !end || expected_note_wait(store, TXN_ENTRY_END, old_row);
	was_expected &= !begin || expected_note_wait(store, TXN_ENTRY_BEGIN, new_row);
	if (begins)
		expected_note_first(was_expected);
	SOFORT_STOP("txn-logged");
}

/*
 * Entry n names these of its rows alone, or nothing any more.  A crash finds either: the others
 * have no words of the transaction.  Flushed, not drained.
 */
void
write_set_shrink(int64 n, uint64 row, uint32 count)
{
	TcbEntry   *d = durable_entry(n);

	Assert(n < My.nentries);
	if (count > 0)
		pm_store8(&d->row, ENTRY_MAKE_ROW(row, count));
	else
		pm_store8(&d->what, 0);
}

/*
 * A claim has failed.  Where words of the parent may carry the same command id, undoing the
 * entry could hit the parent's claim of that very row.  So it is taken back, if it was made
 * for this claim.  (Otherwise it belongs to a claim that has succeeded.)  Not flushed: if
 * it stays on the medium it does no harm.  A crash undoes all of the transaction; and once
 * that has committed, the entry stamps the parent's claim, as the parent's own entry does,
 * or finds no word of ours.
 */
void
txn_forget_entry(StoreId store, uint64 row)
{
	TxnEntry	e;

	expected_forget(store, row);
	if (My.nframes == 0 || !my_frame()->exact || last_end < my_frame()->first_entry ||
		last_end >= My.nentries)
		return;
	if (write_set_entry(last_end, &e) && e.kind == TXN_ENTRY_END && e.store == store &&
		e.row == row && e.count == 1)
	{
		*(volatile uint64 *) &durable_entry(last_end)->what = 0;
		txn_new_statement();
	}
	last_end = -1;
}

/*
 * Takes away of a BEGIN entry the rows that this pass over the write set has visited, forwards
 * or backwards.  False: none is left.  A second visit would find nothing to do, and take time
 * with the square of the number of subtransactions: each one names again all that is left of a
 * reservation of rows, and may fill one of them.
 */
bool
txn_left_to_visit(VisitedRows *visited, TxnEntry *e)
{
	TxnEntry   *v = &visited->range[e->store % VISITED_RANGES];
	uint64		end = e->row + e->count;
	uint64		visited_end = v->row + v->count;

	if (e->kind != TXN_ENTRY_BEGIN)
		return true;
	if (v->kind != TXN_ENTRY_BEGIN || v->store != e->store || end <= v->row || end > visited_end)
		*v = *e;
	else if (e->row >= v->row)
		return false;
	else
	{
		e->count = (uint32) (v->row - e->row);
		v->row = e->row;
		v->count += e->count;
	}
	return true;
}

/* ------------------------------------------------------------------------
 * Undo
 * ------------------------------------------------------------------------
 */

/*
 * Undo of a write set, first step: the links of one entry's rows.  True: what was done must
 * be durable before anything else of the write set is undone.  No error, no allocation.
 */
bool
txn_undo_links(const TxnEntry *e, uint32 slot, uint32 generation, CommandId from_command)
{
	return (e->kind == TXN_ENTRY_BEGIN || e->kind == TXN_ENTRY_END) &&
		TxnOps->undo_links(e, slot, generation, from_command);
}

/* The first step was done for all entries: drains if any of them asked for it. */
void
txn_links_undone(bool must_be_durable)
{
	if (must_be_durable)
		pm_drain();
	SOFORT_STOP("abort-unlinked");
}

/* The second step: undo one entry, whose links are undone.  No error, no allocation. */
void
txn_undo_entry(const TxnEntry *e, uint32 slot, uint32 generation, CommandId from_command)
{
	switch (e->kind)
	{
		case TXN_ENTRY_BEGIN:
		case TXN_ENTRY_END:
			TxnOps->undo_rows(e, slot, generation, from_command);
			break;
		case TXN_ENTRY_CREATE_STORE:
			TxnOps->drop_store(e->store);
			break;
		case TXN_ENTRY_CREATE_COLUMN:
			TxnOps->drop_column(e->store, e->row);
			break;
		case TXN_ENTRY_DROP_STORE:
		case TXN_ENTRY_NONE:
		case TXN_ENTRY_LOCK:
		case TXN_ENTRY_LOCK_LAST:
			break;
	}
}

/* Where the entries of a subtransaction, and of all below it, begin. */
static int64
first_entry_of(SubTransactionId sub)
{
	const TxnFrame *f = txn_frame_of(sub);

	if (sub == TopSubTransactionId)
		return 0;
	return f != NULL ? f->first_entry : My.nentries;
}

/*
 * Undoes the entries of a subtransaction and all below it (they are the last ones: what was
 * logged since it began belongs to it), in reverse order, and drops them from the write
 * set.  Its words are durably gone before its entries are.  A DROP_STORE must be gone
 * before the transaction can commit; the drain before the durable point ensures that.  No
 * error, no allocation.
 */
void
txn_undo(SubTransactionId from_sub, CommandId from_command)
{
	int64		first = first_entry_of(from_sub);
	int64		i;
	VisitedRows visited;
	TxnEntry	e;
	bool		links = false;

	SOFORT_STOP("abort-before-undo");
	memset(&visited, 0, sizeof(visited));
	for (i = My.nentries - 1; i >= first; i--)
	{
		if (write_set_entry(i, &e) && txn_left_to_visit(&visited, &e))
			links |= txn_undo_links(&e, My.slot, My.generation, from_command);
	}
	txn_links_undone(links);
	memset(&visited, 0, sizeof(visited));
	for (i = My.nentries - 1; i >= first; i--)
	{
		if (write_set_entry(i, &e) && txn_left_to_visit(&visited, &e))
			txn_undo_entry(&e, My.slot, My.generation, from_command);
	}
	SOFORT_STOP("abort-undone");
	if (first == My.nentries)
		return;
	txn_new_statement();
	if (from_sub == TopSubTransactionId)
		return;					/* the TCB ends as a whole */
	txn_drain();
	for (i = first; i < My.nentries; i++)
		pm_store8(&durable_entry(i)->what, 0);
	My.nentries = first;
	My.backend->nentries = (uint64) first;
}

/* ------------------------------------------------------------------------
 * Write sets of others
 * ------------------------------------------------------------------------
 */

/* Everything that may fail, to be called before a session takes over the TCB. */
void
write_set_attach(const Tcb *tcb)
{
	if (My.chunks != NULL)
		pfree(My.chunks);
	My.chunks = tcb_chunks(tcb, &My.nchunks);
	My.maxchunks = My.nchunks;
}

/* Entry n of a chain of chunks, which is extended if need be. */
TcbEntry *
txn_chunk_entry(PMPtr *link, uint64 n)
{
	for (;; n -= TCB_CHUNK_ENTRIES)
	{
		TcbChunk   *chunk;

		if (*link == PM_NULL)
		{
			PmReservation r;

			pm_reserve(&r, PM_OWNER_TXN, sizeof(TcbChunk), link, 1, PM_RESERVE_ZERO);
			pm_publish(&r);
		}
		chunk = (TcbChunk *) pm_deref(*link);
		if (n < TCB_CHUNK_ENTRIES)
			return &chunk->entries[n];
		link = &chunk->next;
	}
}

/* Stores a lock that was carried to another version, durably. */
void
txn_store_carried_lock(TcbEntry *d, StoreId store, uint32 generation, uint64 row,
					   LockTupleMode mode)
{
	entry_store(d, store, generation, TXN_ENTRY_LOCK + mode, row, 1);
	pm_flush(d, sizeof(TcbEntry));
	txn_drain();
}
