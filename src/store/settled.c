/*-------------------------------------------------------------------------
 *
 * settled.c
 *	  Rows that are known to be visible to everybody, as they are or in their newest version.
 *
 * Index-only scans need not look at them.  README, "Settled rows", says why nobody ever
 * finds such a mark for a row that has ended for him.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"

StaticAssertDecl(SOFORT_BLOCK_ROWS == SETTLED_WORDS * SETTLED_WORD_ROWS,
				 "each row of a block has a bit");

/*
 * In each of 2^27 lives another number, and not one that a flipped bit makes of that of a life
 * shortly before.
 */
uint64
settled_mark_of_life(void)
{
	return ((pool_life() * UINT64CONST(0x9E3779B1)) << 32) & ~(SETTLED_TICKET | SETTLED_CHAINS);
}

/* One that no other settling has had or will have, as long as its pid is not used again */
static uint64
new_ticket(void)
{
	static uint32 last = 0;

	return SETTLED_TICKET | (uint64) (MyProcPid & 0x7fffffff) << 32 | ++last;
}

/* (word_cas() is for words of rows, and seals them) */
static inline bool
change_mark(BlockHeader *block, int word, uint64 from, uint64 to)
{
	return __atomic_compare_exchange_n(&block->settled[word], &from, to, false, __ATOMIC_SEQ_CST,
									   __ATOMIC_RELAXED);
}

static inline bool
began_before(const RowWords *words, uint64 horizon)
{
	uint64		begin = word_read(&words->begin);

	return WORD_TAG(begin) == WORD_TAG_STAMP && WORD_XID(begin) < horizon &&
		word_problem(begin, true) == NULL;
}

static inline bool
is_current(const RowWords *words, uint64 horizon)
{
	return began_before(words, horizon) && word_read(&words->end) == WORD_EMPTY;
}

/* A root that has ended: is its newest version current, and its direct neighbour? */
static bool
is_replaced(StoreDesc *store, const BlockHeader *block, uint32 index, const RowWords *words,
			uint64 horizon)
{
	uint64		row = block->block_number * SOFORT_BLOCK_ROWS + index;
	uint64		link;
	RowRef		newest;

	if ((word_read(&words->begin) & BEGIN_HEAP_ONLY) != 0 || !began_before(words, horizon) ||
		WORD_TAG(word_read(&words->end)) != WORD_TAG_STAMP)
		return false;
	link = link_read_quietly(block, index);
	return LINK_IS_SET(link) && (link & LINK_ROOT) == 0 &&
		store_locate(store, LINK_ROW(link), &newest) &&
		(word_read(&newest.words->begin) & BEGIN_HEAP_ONLY) != 0 &&
		is_current(newest.words, horizon) &&
		link_read_quietly(newest.block, newest.index) == LINK_MAKE_ROOT(row);
}

/* The bits of the rows that this word stands for */
static inline uint64
rows_of_word(const BlockHeader *block, int word)
{
	int			n = block->capacity - word * SETTLED_WORD_ROWS;

	return n >= SETTLED_WORD_ROWS ? SETTLED_ROWS : n <= 0 ? 0 : (UINT64CONST(1) << n) - 1;
}

/* What is known of rows, at which nobody looks then */
typedef struct KnownRows
{
	uint64		settled;
	uint64		unsettled;
} KnownRows;

/* What this word of the block should be: a mark, or 0 if none of its rows is settled */
static uint64
mark_for(StoreDesc *store, const BlockHeader *block, int word, uint64 horizon,
		 const KnownRows *known)
{
	const ShapePlan *plan = plan_get(store, block->shape);
	int			first = word * SETTLED_WORD_ROWS;
	int			end = Min(first + SETTLED_WORD_ROWS, block->capacity);
	uint64		settled = known->settled & rows_of_word(block, word);
	uint64		chains = 0;
	int			i;

	for (i = first; i < end; i++)
	{
		const RowWords *words = plan_words(plan, block, i);
		uint64		row = SETTLED_ROW(i);

		if (((known->settled | known->unsettled) & row) != 0)
			continue;
		if (is_current(words, horizon))
			settled |= row;
		else if (is_replaced(store, block, i, words, horizon))
		{
			settled |= row;
			chains = SETTLED_CHAINS;
		}
	}
	return settled == 0 ? 0 : store->settled_mark | chains | (~settled & SETTLED_ROWS);
}

static void
settle_word(StoreDesc *store, BlockHeader *block, int word, uint64 horizon, uint64 found,
			const KnownRows *known)
{
	uint64		ticket;
	uint64		mark;

	ticket = new_ticket();
	if (!change_mark(block, word, found, ticket))
		return;
	SOFORT_STOP("store-settle-begun");
	mark = mark_for(store, block, word, horizon, known);
	SOFORT_STOP("store-settle-checked");
	(void) change_mark(block, word, ticket, mark);
}

void
block_settle(StoreDesc *store, BlockHeader *block, uint64 horizon, bool all)
{
	for (int word = 0; word < SETTLED_WORDS; word++)
	{
		uint64		found = word_read(&block->settled[word]);
		KnownRows known = {0};

		/* (a mark with replaced roots is made anew, to learn whether there still are some) */
		if (!all && store_mark_is_valid(store, found) && (found & SETTLED_CHAINS) == 0)
			known.settled = ~found;
		/* usually nothing is new, and the line stays as it is */
		if (mark_for(store, block, word, horizon, &known) != found)
			settle_word(store, block, word, horizon, found, &known);
	}
}

/*
 * The rows that were settled in an earlier life, if it left a mark.  (What was unsettled may be
 * of interest to VACUUM.)
 */
static uint64
settle_again(StoreDesc *store, BlockHeader *block, int word, uint64 found)
{
	KnownRows	known = {.unsettled = found & SETTLED_ROWS};

	if (found == 0 || (found & SETTLED_TICKET) != 0)
		return found;
	store_read_ahead(store, block->block_number, block->block_number + 1, STORE_WHOLE_ROWS);
	settle_word(store, block, word, store_cached_horizon(false), found, &known);
	return word_read(&block->settled[word]);
}

uint32
store_unsettled_rows(StoreDesc *store, uint64 row, bool replaced)
{
	RowRef		ref;
	uint64		mark;

	if (!store_locate(store, row, &ref))
		return (uint32) SETTLED_ROWS;
	mark = store_settled_mark(ref.block, ref.index);
	if (!store_mark_is_valid(store, mark))
		mark = settle_again(store, ref.block, SETTLED_WORD(ref.index), mark);
	if (!store_mark_is_valid(store, mark) || (store_mark_has_chains(mark) && !replaced))
		return (uint32) SETTLED_ROWS;
	if ((mark & SETTLED_ROW(ref.index)) == 0)
		pm_read_miss(1);
	return (uint32) (mark & SETTLED_ROWS);
}

/*
 * The row must be looked at from now on, and who is just settling the block must not mark it.
 * After the end word; who settles does it the other way round.
 */
static void
unsettle_row(BlockHeader *block, uint32 index)
{
	uint64	   *word = &block->settled[SETTLED_WORD(index)];
	uint64		row = SETTLED_ROW(index);
	uint64		mark = word_read(word);

	while (mark != 0 && (mark & (SETTLED_TICKET | row)) != row)
	{
		uint64		changed = (mark & SETTLED_TICKET) != 0 ? 0 : mark | row;

		if (__atomic_compare_exchange_n(word, &mark, changed, false, __ATOMIC_SEQ_CST,
										__ATOMIC_SEQ_CST))
			break;
	}
}

void
store_unsettle(StoreDesc *store, const RowRef *claimed)
{
	RowRef		root;

	unsettle_row(claimed->block, claimed->index);
	if ((word_read(&claimed->words->begin) & BEGIN_HEAP_ONLY) != 0 &&
		store_locate(store, store_chain_root(store, claimed), &root))
		unsettle_row(root.block, root.index);
}

bool
block_is_current(const StoreDesc *store, const BlockHeader *block)
{
	for (int word = 0; word < SETTLED_WORDS; word++)
	{
		uint64		rows = rows_of_word(block, word);
		uint64		mark = word_read(&block->settled[word]);

		if (rows != 0 && (!store_mark_is_valid(store, mark) || store_mark_has_chains(mark) ||
						  (mark & rows) != 0))
			return false;
	}
	return true;
}

int
block_settled_rows(const StoreDesc *store, const BlockHeader *block)
{
	int			n = 0;

	for (int word = 0; word < SETTLED_WORDS; word++)
	{
		uint64		mark = word_read(&block->settled[word]);

		if (store_mark_is_valid(store, mark))
			n += pg_popcount64(~mark & rows_of_word(block, word));
	}
	return n;
}
