/*-------------------------------------------------------------------------
 *
 * expected.c
 *	  Entries of a write set that are logged before they are asked for.
 *
 * Where a drain waits for a disk, a transaction of several statements would wait in each of
 * them, because an entry must be durable before the word that it covers is stored.  But the
 * transactions of a session are often alike: they change rows of the same few blocks, and
 * add rows where the last ones were added.  So the first drain of a transaction takes along
 * entries for blocks that earlier ones had to wait for.  If they even begin with such a block,
 * the drain of their commit does it for the next one.  README.md, "Expected entries", says why
 * one that is not used does no harm.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/pmem/persist.h"

#include "txn_internal.h"

#define KNOWN_BLOCKS	32
#define MOST_EXPECTED	6
#define MOST_BLOCKS		28		/* in all of them: a start after a crash goes through them */
#define MOST_BLOCKS_NEXT 8		/* ... also of sessions that are idle */
#define WAITS_NOTED		8		/* of a transaction: not those of bulk changes */

/*
 * A block is expected once it was waited for or used in more than one of SCORE_USE
 * transactions.  (One of the blocks of a large table that is changed anywhere is not.)
 */
#define SCORE_USE		8
#define SCORE_MOST		32

typedef struct KnownBlock
{
	StoreId		store;
	TxnEntryKind kind;
	uint64		block;
	int			score;
} KnownBlock;

typedef struct ExpectedEntry
{
	TxnEntry	range;			/* whole blocks */
	int64		number;			/* in the write set */
	uint64		first;			/* rows that it had to cover so far: from this one on, */
	uint64		end;			/* ... before this one; none: 0 */
} ExpectedEntry;

/* In order of store, kind and block */
static KnownBlock known[KNOWN_BLOCKS];
static int	nknown;

/* Of this transaction */
static ExpectedEntry expected[MOST_EXPECTED];
static int	nexpected;
static bool covering;
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

static int
compare_known(const KnownBlock *a, const KnownBlock *b)
{
	if (a->store != b->store)
		return a->store < b->store ? -1 : 1;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return a->block < b->block ? -1 : a->block > b->block ? 1 : 0;
}

static void
remove_known(int i)
{
	memmove(&known[i], &known[i + 1], (--nknown - i) * sizeof(KnownBlock));
}

/* The block was waited for, or used.  Was it expected before? */
static bool
raise_score(StoreId store, TxnEntryKind kind, uint64 row)
{
	KnownBlock	new = {.store = store,.kind = kind,.block = row / SOFORT_BLOCK_ROWS};
	bool		was_expected;
	int			lowest = 0;
	int			i;

	for (i = 0; i < nknown && compare_known(&known[i], &new) != 0; i++)
	{
		if (known[i].score < known[lowest].score)
			lowest = i;
	}
	if (i == nknown)
	{
		if (nknown == KNOWN_BLOCKS)
			remove_known(lowest);
		for (i = nknown++; i > 0 && compare_known(&known[i - 1], &new) > 0; i--)
			known[i] = known[i - 1];
		known[i] = new;
	}
	was_expected = known[i].score > SCORE_USE;
	known[i].score = Min(known[i].score + SCORE_USE, SCORE_MOST);
	return was_expected;
}

/* An entry for this row had to be waited for.  Was its block expected? */
bool
expected_note_wait(StoreId store, TxnEntryKind kind, uint64 row)
{
	return pm_drain_is_slow() && ++nwaits <= WAITS_NOTED && raise_score(store, kind, row);
}

static void
lower_scores(void)
{
	for (int i = nknown - 1; i >= 0; i--)
	{
		if (--known[i].score <= 0)
			remove_known(i);
	}
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

/* Neighbours from i on that are expected, and the highest score of them. */
static int
run_of_blocks(int i, int *score)
{
	int			n = 0;

	*score = 0;
	while (i + n < nknown && known[i + n].score > SCORE_USE &&
		   known[i + n].store == known[i].store && known[i + n].kind == known[i].kind &&
		   known[i + n].block == known[i].block + n)
	{
		*score = Max(*score, known[i + n].score);
		n++;
	}
	return n;
}

/* What a transaction is expected to need, the surest first; returns how many ranges. */
static int
choose_ranges(TxnEntry *range, int nblocks)
{
	int			most = Min(MOST_EXPECTED, TCB_INLINE_ENTRIES - nothers);
	int			nranges = 0;
	int			score;
	int			n;

	for (int least = SCORE_MOST - SCORE_USE; least >= SCORE_USE; least -= SCORE_USE)
	{
		for (int i = 0; i < nknown; i += Max(n, 1))
		{
			n = Min(run_of_blocks(i, &score), nblocks);
			if (score <= least || score > least + SCORE_USE || nranges == most || n == 0)
				continue;
			range[nranges++] = (TxnEntry)
			{
				.store = known[i].store, .kind = known[i].kind,
				.row = known[i].block * SOFORT_BLOCK_ROWS, .count = n * SOFORT_BLOCK_ROWS
			};
			nblocks -= n;
		}
	}
	return nranges;
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
 * The TCB has become active, with an entry that is not drained yet: appends those that the
 * transaction is expected to need.  Not within a subtransaction, where entries go with it,
 * and not if it is kept: these name what a statement has changed, and nothing else.
 */
void
expected_append(void)
{
	TxnEntry	range[MOST_EXPECTED];
	int			n;

	if (!pm_drain_is_slow() || My.nframes > 1 || My.kept != NULL)
		return;
	n = choose_ranges(range, MOST_BLOCKS);
	for (int i = 0; i < n; i++)
	{
		expect(&range[i], My.nentries);
		txn_append_entry(range[i].store, range[i].kind, range[i].row, range[i].count);
	}
	covering = n > 0;
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
	next.n = choose_ranges(next.range, MOST_BLOCKS_NEXT);
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
		expected_settle();
}

bool
expected_covers(StoreId store, TxnEntryKind kind, uint64 row, uint32 count)
{
	if (!covering)
		return false;
	for (int i = 0; i < nexpected; i++)
	{
		ExpectedEntry *e = &expected[i];

		if (e->range.kind == kind && e->range.store == store && row >= e->range.row &&
			row + count <= e->range.row + e->range.count)
		{
			e->first = e->end == 0 ? row : Min(e->first, row);
			e->end = Max(e->end, row + count);
			(void) raise_score(store, kind, row);
			return true;
		}
	}
	return false;
}

/* From now on nothing may rely on them (as txn_new_statement()). */
void
expected_cover_no_more(void)
{
	covering = false;
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
	nothers = (int) Min(My.nentries - nexpected, TCB_INLINE_ENTRIES);
	for (int i = 0; i < nexpected; i++)
	{
		ExpectedEntry *e = &expected[i];

		write_set_shrink(e->number, e->first, (uint32) (e->end - e->first));
	}
	nexpected = 0;
}

/* The transaction is over. */
void
expected_end_of_xact(void)
{
	Assert(nexpected == 0);
	nwaits = 0;
}
