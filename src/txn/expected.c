/*-------------------------------------------------------------------------
 *
 * expected.c
 *	  Entries of a write set that are logged before they are asked for.
 *
 * Where a drain waits for a disk, a transaction of several statements would wait in each of
 * them, because an entry must be durable before the word that it covers is stored.  But the
 * transactions of a session are often alike: they change rows of the same small tables, and
 * add rows where the last ones were added.  So the first drain of a transaction takes along
 * entries for blocks that earlier ones had to wait for.  If they even begin with such a block,
 * the drain of their commit does it for the next one.  And a statement that goes through a table
 * block by block logs blocks ahead.  README.md, "Expected entries", says why one that is not used
 * does no harm.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "sofort/pmem/persist.h"

#include "txn_internal.h"

#define KNOWN_PLACES	32
#define MOST_EXPECTED	8
#define MOST_BLOCKS		128		/* in all of them: a start after a crash goes through them */
#define MOST_BLOCKS_NEXT 16	/* ... also of sessions that are idle */
#define WAITS_NOTED		8		/* of a transaction: not those of bulk changes */

/*
 * A place is expected once it was waited for or used in more than one of SCORE_USE transactions.
 * (The places of a large table that is changed anywhere are not.)
 */
#define SCORE_USE		8
#define SCORE_MOST		32

/* Blocks of a table that lie together: one entry names those that were used lately */
#define PLACE_BLOCKS	64
#define PERIOD			48		/* transactions that write; lately: in this period or the last */
#define BLOCKS_BEHIND	2		/* those where rows were added: the next ones come there */

typedef struct KnownPlace
{
	StoreId		store;
	TxnEntryKind kind;
	uint64		number;			/* block / PLACE_BLOCKS */
	uint64		used;			/* one bit for each block: in this period */
	uint64		used_before;	/* in the last one */
	int			score;
} KnownPlace;

/* Rows from first on, before end; none: end is 0 */
typedef struct RowRange
{
	uint64		first;
	uint64		end;
} RowRange;

typedef struct ExpectedEntry
{
	TxnEntry	range;			/* whole blocks */
	int64		number;			/* in the write set */
	RowRange	covered;		/* what it had to cover so far, */
	RowRange	before;			/* ... and before the last row of this number */
	uint64		last;
} ExpectedEntry;

/*
 * Changes of many rows go through a table block by block, and fill new blocks in turn.  After so
 * many entries in turn (each for the same block as the last one, or for one of the next RUN_GAP)
 * the next entry names its block as a whole, and each further one twice as many blocks.
 */
#define MOST_RUNS		4
#define RUN_STEPS		4
#define RUN_GAP			4
#define RUN_BLOCKS		64

typedef struct Run
{
	StoreId		store;
	TxnEntryKind kind;
	uint64		block;			/* the last one that the last entry names */
	int			steps;			/* entries in turn; 0: not used */
	int			nblocks;		/* that the last entry names as a whole; 0: none */
	ExpectedEntry entry;		/* if there are any */
} Run;

static KnownPlace known[KNOWN_PLACES];
static int	nknown;
static int	transactions_in_period;

/* Of this transaction */
static ExpectedEntry expected[MOST_EXPECTED];
static int	nexpected;
static bool covering;
static bool chosen;				/* no more will be added */
static Run	runs[MOST_RUNS];
static int	run_to_replace;
static bool runs_are_over;		/* nothing may rely on them any more */
static int	nwaits;

/* What the last one logged besides: the TCB has room for that, too */
static int	nothers = 0;

/* The TCB of the next transaction, if it is ACTIVE already, with these entries */
static struct
{
	Tcb		   *tcb;			/* NULL: it is not */
	bool		durable;
	uint32		slot;
	uint32		generation;
	int			n;
	TxnEntry	range[MOST_EXPECTED];
} next;

/* Do transactions begin with a block that is expected?  (Else the next one waits anyway.) */
#define SUITED_FROM		4
#define SUITED_MOST		8
static int	suited = 0;

/* The blocks that one entry is to name: from *first on.  Returns how many. */
static int
blocks_of_place(const KnownPlace *place, uint64 *first)
{
	uint64		used = place->used | place->used_before;
	int			lowest = pg_rightmost_one_pos64(used);
	int			n = pg_leftmost_one_pos64(used) - lowest + 1;

	*first = place->number * PLACE_BLOCKS + lowest;
	return n + (place->kind == TXN_ENTRY_BEGIN ? BLOCKS_BEHIND : 0);
}

/* Can the next transaction expect this block? */
static bool
is_expected(const KnownPlace *place, uint64 block)
{
	uint64		first;
	int			n = blocks_of_place(place, &first);

	return place->score > SCORE_USE && n <= MOST_BLOCKS_NEXT && block >= first &&
		block < first + n;
}

/* The place of a block; one that was not known takes that of another, if there are too many. */
static KnownPlace *
place_of(StoreId store, TxnEntryKind kind, uint64 block)
{
	uint64		number = block / PLACE_BLOCKS;
	KnownPlace *lowest = &known[0];

	for (KnownPlace *place = known; place < known + nknown; place++)
	{
		if (place->store == store && place->kind == kind && place->number == number)
			return place;
		if (place->score < lowest->score)
			lowest = place;
	}
	if (nknown < KNOWN_PLACES)
		lowest = &known[nknown++];
	*lowest = (KnownPlace)
	{
		.store = store, .kind = kind, .number = number
	};
	return lowest;
}

/* The block was waited for, or used.  Was it expected before? */
static bool
raise_score(StoreId store, TxnEntryKind kind, uint64 row)
{
	uint64		block = row / SOFORT_BLOCK_ROWS;
	KnownPlace *place = place_of(store, kind, block);
	bool		was_expected = place->score > 0 && is_expected(place, block);

	place->used |= UINT64CONST(1) << block % PLACE_BLOCKS;
	place->score = Min(place->score + SCORE_USE, SCORE_MOST);
	return was_expected;
}

/* An entry for this row had to be waited for.  Was its block expected? */
bool
expected_note_wait(StoreId store, TxnEntryKind kind, uint64 row)
{
	return pm_drain_is_slow() && ++nwaits <= WAITS_NOTED && raise_score(store, kind, row);
}

/* What is not used becomes less likely, and is forgotten. */
static void
lower_scores(void)
{
	bool		period_ends = ++transactions_in_period >= PERIOD;

	for (int i = nknown - 1; i >= 0; i--)
	{
		if (period_ends)
		{
			known[i].used_before = known[i].used;
			known[i].used = 0;
		}
		if (--known[i].score <= 0 || (known[i].used | known[i].used_before) == 0)
			known[i] = known[--nknown];
	}
	if (period_ends)
		transactions_in_period = 0;
}

/*
 * A transaction has logged something for the first time; was it expected?  Once for each that
 * writes, so this is where blocks that are not used become less likely.
 */
void
expected_note_first(bool was_expected)
{
	lower_scores();
	suited = was_expected ? Min(suited + 2, SUITED_MOST) : Max(suited - 1, 0);
}

static bool
is_named(const TxnEntry *range)
{
	for (int i = 0; i < nexpected; i++)
	{
		const TxnEntry *e = &expected[i].range;

		if (e->store == range->store && e->kind == range->kind && e->row <= range->row &&
			e->row + e->count >= range->row + range->count)
			return true;
	}
	return false;
}

/*
 * The place to be named next: the surest, then the one of the fewest blocks, at most so many.
 * Returns the bit that it has in "tried", where it is added, or 0: there is none.
 */
static uint32
choose_place(uint32 tried, int most, TxnEntry *range)
{
	uint32		best = 0;
	int			best_class = 0;
	int			best_n = 0;

	for (int i = 0; i < nknown; i++)
	{
		int			class = (known[i].score - 1) / SCORE_USE;
		uint64		first;
		int			n;

		if (class == 0 || class < best_class || (tried & (1U << i)) != 0)
			continue;
		n = blocks_of_place(&known[i], &first);
		if (n > most || (class == best_class && n >= best_n))
			continue;
		best = 1U << i;
		best_class = class;
		best_n = n;
		*range = (TxnEntry)
		{
			.store = known[i].store, .kind = known[i].kind,
			.row = first * SOFORT_BLOCK_ROWS, .count = n * SOFORT_BLOCK_ROWS
		};
	}
	return best;
}

/*
 * What a transaction is expected to need besides what is named already; returns how many ranges,
 * at most so many, of so many blocks in all.
 */
static int
choose_ranges(TxnEntry *range, int most, int nblocks)
{
	uint32		tried = 0;
	uint32		place;
	int			n = 0;

	StaticAssertStmt(KNOWN_PLACES <= 32, "one bit for each known place");
	while (n < most && (place = choose_place(tried, nblocks, &range[n])) != 0)
	{
		tried |= place;
		if (is_named(&range[n]))
			continue;
		nblocks -= range[n++].count / SOFORT_BLOCK_ROWS;
	}
	return n;
}

/* How many entries there is room for in the TCB besides these */
static int
room(int nentries)
{
	return Max(Min(MOST_EXPECTED - nexpected, TCB_INLINE_ENTRIES - nothers - nentries), 0);
}

static void
expect(const TxnEntry *range, int64 number)
{
	expected[nexpected++] = (ExpectedEntry)
	{
		.range = *range, .number = number
	};
}

/*
 * An entry is about to be drained: if it is the first of the transaction, appends those that the
 * transaction is expected to need.  Not within a subtransaction, where entries go with it, and not
 * if it is kept: these name what a statement has changed, and nothing else.
 */
void
expected_append(void)
{
	TxnEntry	range[MOST_EXPECTED];
	int			n;

	if (chosen || !pm_drain_is_slow())
		return;
	chosen = true;
	if (My.nframes > 1 || My.kept != NULL)
		return;
	n = choose_ranges(range, room(nexpected), MOST_BLOCKS);
	for (int i = 0; i < n; i++)
	{
		expect(&range[i], My.nentries);
		txn_append_entry(range[i].store, range[i].kind, range[i].row, range[i].count);
	}
	covering = nexpected > 0;
}

/*
 * The transaction is about to commit: prepares the TCB of the next one.  Flushed, not drained:
 * expected_next_durable() when it is.
 */
void
expected_prepare_next(void)
{
	expected_forget_next();
	if (!pm_drain_is_slow() || suited < SUITED_FROM)
		return;
	next.n = choose_ranges(next.range, room(0), MOST_BLOCKS_NEXT);
	if (next.n > 0)
		next.tcb = tcb_activate_next(&next.slot, &next.generation);
	if (next.tcb == NULL)
		return;
	for (int i = 0; i < next.n; i++)
	{
		const TxnEntry *e = &next.range[i];

		entry_store(&next.tcb->entries[i], e->store, next.generation, e->kind, e->row, e->count);
	}
	pm_flush(next.tcb, offsetof(Tcb, entries) + next.n * sizeof(TcbEntry));
	next.durable = false;
}

void
expected_next_durable(void)
{
	next.durable = true;
}

/*
 * The TCB that was prepared, if any, is not needed.  Its slot may become another's with the
 * same generation, so its entries go, too.  Flushed, not drained.
 */
void
expected_forget_next(void)
{
	Tcb		   *tcb = next.tcb;
	uint64		active = TCB_MAKE_STATE(TCB_ACTIVE, next.generation, TxnShmem->life);

	next.tcb = NULL;
	if (tcb == NULL || tcb->state != active)
		return;
	for (int i = 0; i < next.n; i++)
		pm_store8(&tcb->entries[i].what, 0);
	pm_store8(&tcb->state, TCB_MAKE_STATE(TCB_FREE, next.generation, TxnShmem->life));
}

/* Takes the TCB that was prepared for this transaction, if there is one. */
void
expected_adopt(void)
{
	if (next.tcb == NULL || next.slot != My.slot || next.generation != My.generation)
		return;
	if (!next.durable)
	{
		/* the commit that should have made it so has failed */
		expected_forget_next();
		return;
	}
	My.tcb = next.tcb;
	next.tcb = NULL;
	pm_store8(&My.tcb->xid, My.fxid);
	My.durable = true;
	for (int i = 0; i < next.n; i++)
		expect(&next.range[i], i);
	My.nentries = next.n;
	My.backend->nentries = (uint64) My.nentries;
	covering = true;
	/* (as expected_append()) */
	if (My.nframes > 1 || My.kept != NULL || My.prepared != NULL)
		expected_settle();		/* (sets chosen) */
}

/* Makes the entry name only what it had to cover.  Flushed, not drained. */
static void
shrink(const ExpectedEntry *e)
{
	write_set_shrink(e->number, e->covered.first, (uint32) (e->covered.end - e->covered.first));
}

/* If the entry covers these rows, notes that it had to. */
static bool
covers(ExpectedEntry *e, StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	if (e->range.kind != kind || e->range.store != store || row < e->range.row ||
		row + count > e->range.row + e->range.count)
		return false;
	e->last = row;
	e->before = e->covered;
	e->covered.first = e->covered.end == 0 ? row : Min(e->covered.first, row);
	e->covered.end = Max(e->covered.end, row + count);
	return true;
}

bool
expected_covers(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	for (int i = 0; i < MOST_RUNS && !runs_are_over; i++)
	{
		if (runs[i].nblocks > 0 && covers(&runs[i].entry, store, kind, row, count))
			return true;
	}
	for (int i = 0; i < nexpected && covering; i++)
	{
		if (covers(&expected[i], store, kind, row, count))
		{
			(void) raise_score(store, kind, row);
			return true;
		}
	}
	return false;
}

static void
uncover(ExpectedEntry *e, StoreId store, uint64 row)
{
	if (e->range.kind == TXN_ENTRY_END && e->range.store == store && e->covered.end != 0 &&
		e->last == row)
		e->covered = e->before;
}

/*
 * The claim for which this row was covered last has failed: it has no word of ours, unless it had
 * been covered before.  (The version that is claimed instead may lie far from it.)
 */
void
expected_forget(StoreId store, uint64 row)
{
	for (int i = 0; i < nexpected; i++)
		uncover(&expected[i], store, row);
	for (int i = 0; i < MOST_RUNS; i++)
	{
		if (runs[i].nblocks > 0)
			uncover(&runs[i].entry, store, row);
	}
}

/* ---- runs ---- */

static void
end_run(Run *run)
{
	if (run->nblocks > 0)
		shrink(&run->entry);
	run->nblocks = 0;
	run->steps = 0;
}

/* The run that goes on with this block, or one that begins with it. */
static Run *
run_of(StoreId store, TxnEntryKind kind, uint64 block)
{
	Run		   *run;

	for (run = runs; run < runs + MOST_RUNS; run++)
	{
		if (run->steps > 0 && run->store == store && run->kind == kind && block >= run->block &&
			block <= run->block + RUN_GAP)
			return run;
	}
	run = &runs[run_to_replace++ % MOST_RUNS];
	end_run(run);
	run->store = store;
	run->kind = kind;
	return run;
}

/*
 * These rows are about to be logged.  If they continue a run, appends an entry for them and for
 * what will come next, and returns true.  Under the same conditions as expected_append().
 */
bool
expected_log_run(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	uint64		block = row / SOFORT_BLOCK_ROWS;
	Run		   *run;
	ExpectedEntry *e;
	int			n;

	if (!pm_drain_is_slow() || runs_are_over || My.nframes > 1 || My.kept != NULL ||
		My.prepared != NULL)
		return false;
	run = run_of(store, kind, block);
	block = (row + count - 1) / SOFORT_BLOCK_ROWS;
	run->block = block;
	if (++run->steps <= RUN_STEPS)
		return false;

	n = run->nblocks == 0 ? 1 : Min(2 * run->nblocks, RUN_BLOCKS);
	if (run->nblocks > 0)
		shrink(&run->entry);
	run->nblocks = 0;

	e = &run->entry;
	e->range.store = store;
	e->range.kind = kind;
	e->range.row = kind == TXN_ENTRY_BEGIN ? row : row - row % SOFORT_BLOCK_ROWS;
	e->range.count = (uint32) ((block + n) * SOFORT_BLOCK_ROWS - e->range.row);
	e->covered.end = 0;
	(void) covers(e, store, kind, row, count);
	txn_append_entry(store, kind, e->range.row, e->range.count);
	e->number = My.nentries - 1;
	run->block = block + n - 1;
	run->nblocks = n;
	return true;
}

/* From now on nothing may rely on them (as txn_new_statement()). */
void
expected_cover_no_more(void)
{
	covering = false;
	chosen |= nexpected > 0;
	runs_are_over |= My.nframes > 1 || My.nentries > 0;
}

/*
 * Makes the entries name only what they had to cover.  Those that cover nothing go: their
 * tables may not be locked, so who walks through the write set while others run must not look
 * there.  Flushed, not drained.  No error, no allocation.
 */
void
expected_settle(void)
{
	covering = false;
	chosen = true;
	nothers = (int) Min(My.nentries - nexpected, TCB_INLINE_ENTRIES);
	for (int i = 0; i < nexpected; i++)
		shrink(&expected[i]);
	nexpected = 0;
	for (int i = 0; i < MOST_RUNS; i++)
		end_run(&runs[i]);
	runs_are_over = true;
}

/* The transaction is over. */
void
expected_end_of_xact(void)
{
	Assert(nexpected == 0);
	chosen = false;
	for (int i = 0; i < MOST_RUNS; i++)
	{
		Assert(runs[i].nblocks == 0);
		runs[i].steps = 0;
	}
	runs_are_over = false;
	nwaits = 0;
}
