/*-------------------------------------------------------------------------
 *
 * expected.c
 *	  Entries of a write set that are logged before they are asked for.
 *
 * Where a drain waits for a disk, a transaction of several statements would wait in each of
 * them, because an entry must be durable before the word that it covers is stored.  But the
 * transactions of a session are often alike: they change rows of the same few blocks, and
 * add rows where the last ones were added.  So the first drain of a transaction takes along
 * entries for blocks that earlier ones had to wait for.  README.md, "Expected entries",
 * says why one that is not used does no harm.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/pmem/persist.h"

#include "txn_internal.h"

#define KNOWN_BLOCKS	32
#define MOST_EXPECTED	6
#define MOST_BLOCKS		28		/* in all of them: their rows are gone through at the end */
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

/* The block was waited for, or used. */
static void
raise_score(StoreId store, TxnEntryKind kind, uint64 row)
{
	KnownBlock	new = {.store = store,.kind = kind,.block = row / SOFORT_BLOCK_ROWS};
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
	known[i].score = Min(known[i].score + SCORE_USE, SCORE_MOST);
}

/* An entry for this row had to be waited for, though the TCB was active already. */
void
expected_note_wait(StoreId store, TxnEntryKind kind, uint64 row)
{
	if (pm_drain_is_slow() && ++nwaits <= WAITS_NOTED)
		raise_score(store, kind, row);
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

static void
append_run(int i, int n)
{
	ExpectedEntry *e = &expected[nexpected++];

	e->range = (TxnEntry)
	{
		.store = known[i].store, .kind = known[i].kind,
		.row = known[i].block * SOFORT_BLOCK_ROWS, .count = n * SOFORT_BLOCK_ROWS
	};
	e->number = My.nentries;
	e->first = e->end = 0;
	txn_append_entry(e->range.store, e->range.kind, e->range.row, e->range.count);
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
 * The TCB has become active, with an entry that is not drained yet: appends those that the
 * transaction is expected to need.  Not within a subtransaction, where entries go with it,
 * and not if it is kept: these name what a statement has changed, and nothing else.
 */
void
expected_append(void)
{
	int			most = Min(MOST_EXPECTED, TCB_INLINE_ENTRIES - nothers);
	int			left = MOST_BLOCKS;
	int			score;
	int			n;

	if (!pm_drain_is_slow() || My.nframes > 1 || My.kept != NULL)
		return;
	lower_scores();
	/* the surest first */
	for (int least = SCORE_MOST - SCORE_USE; least >= SCORE_USE; least -= SCORE_USE)
	{
		for (int i = 0; i < nknown; i += Max(n, 1))
		{
			n = Min(run_of_blocks(i, &score), left);
			if (score <= least || score > least + SCORE_USE || nexpected == most || n == 0)
				continue;
			append_run(i, n);
			left -= n;
		}
	}
	covering = nexpected > 0;
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
			raise_score(store, kind, row);
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
