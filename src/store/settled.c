/*-------------------------------------------------------------------------
 *
 * settled.c
 *	  Rows that are known to be visible to everybody.
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
 * In each of 2^31 lives another number, and not one that a flipped bit makes of that of a life
 * shortly before.
 */
uint64
settled_mark_of_life(void)
{
	return ((pool_life() * UINT64CONST(0x9E3779B1)) << 32) & ~SETTLED_TICKET;
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

static bool
row_is_settled(const RowWords *words, uint64 horizon)
{
	uint64		begin = word_read(&words->begin);

	return WORD_TAG(begin) == WORD_TAG_STAMP && (begin & BEGIN_HEAP_ONLY) == 0 &&
		WORD_XID(begin) < horizon && word_problem(begin, true) == NULL &&
		word_read(&words->end) == WORD_EMPTY;
}

/* What is known of groups of rows, at which nobody looks then */
typedef struct KnownGroups
{
	uint64		settled;
	uint64		unsettled;
} KnownGroups;

/* What this word of the block should be: a mark, or 0 if none of its rows is settled */
static uint64
mark_for(StoreDesc *store, const BlockHeader *block, int word, uint64 horizon,
		 const KnownGroups *known)
{
	const ShapePlan *plan = plan_get(store, block->shape);
	int			first = word * SETTLED_WORD_ROWS;
	int			end = Min(first + SETTLED_WORD_ROWS, block->capacity);
	uint64		groups = 0;
	uint64		unsettled = known->unsettled;
	int			i;

	for (i = first; i < end; i++)
	{
		uint64		group = SETTLED_GROUP(i);

		groups |= group;
		if (((known->settled | unsettled) & group) == 0 &&
			!row_is_settled(plan_words(plan, block, i), horizon))
			unsettled |= group;
	}
	unsettled &= groups;
	return unsettled == groups ? 0 : store->settled_mark | unsettled;
}

static void
settle_word(StoreDesc *store, BlockHeader *block, int word, uint64 horizon, uint64 found,
			const KnownGroups *known)
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

static inline bool
is_of_this_life(const StoreDesc *store, uint64 mark)
{
	return mark != 0 && (mark & ~SETTLED_GROUPS) == store->settled_mark;
}

void
block_settle(StoreDesc *store, BlockHeader *block, uint64 horizon, bool all)
{
	for (int word = 0; word < SETTLED_WORDS; word++)
	{
		uint64		found = word_read(&block->settled[word]);
		KnownGroups known = {0};

		if (!all && is_of_this_life(store, found))
			known.settled = ~found;
		/* usually nothing is new, and the line stays as it is */
		if (mark_for(store, block, word, horizon, &known) != found)
			settle_word(store, block, word, horizon, found, &known);
	}
}

/* (What was unsettled in the earlier life may be of interest to VACUUM.) */
bool
row_settle_again(StoreDesc *store, BlockHeader *block, uint32 index)
{
	int			word = SETTLED_WORD(index);
	uint64		found = word_read(&block->settled[word]);
	KnownGroups known = {.unsettled = found & SETTLED_GROUPS};

	if (!mark_says_settled(found, index) || is_of_this_life(store, found))
		return false;
	settle_word(store, block, word, store_cached_horizon(false), found, &known);
	return store_row_is_settled(store, block, index);
}

int
block_settled_rows(const StoreDesc *store, const BlockHeader *block)
{
	int			n = 0;

	for (int i = 0; i < block->capacity; i += SETTLED_GROUP_ROWS)
	{
		if (store_row_is_settled(store, block, i))
			n += Min(SETTLED_GROUP_ROWS, block->capacity - i);
	}
	return n;
}
