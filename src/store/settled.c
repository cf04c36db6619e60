/*-------------------------------------------------------------------------
 *
 * settled.c
 *	  Blocks of which every row is visible to everybody.
 *
 * Index-only scans need not look at their rows.  README, "Settled blocks", says why
 * nobody ever finds such a mark beside a row that has ended for him.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"

/*
 * In each life another number, and not one that a flipped bit makes of an earlier one.  The
 * highest bit is for tickets.
 */
uint64
settled_mark_of_life(void)
{
	return (pool_life() * UINT64CONST(0x9E3779B97F4A7C15)) & ~SETTLED_TICKET;
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
change_mark(BlockHeader *block, uint64 from, uint64 to)
{
	return __atomic_compare_exchange_n(&block->settled, &from, to, false, __ATOMIC_SEQ_CST,
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

static bool
rows_are_settled(StoreDesc *store, const BlockHeader *block, uint64 horizon)
{
	const ShapePlan *plan = plan_get(store, block->shape);
	const char *record = (const char *) block + plan->record_offset;
	int			i;

	for (i = 0; i < block->capacity; i++, record += plan->record_stride)
		if (!row_is_settled((const RowWords *) record, horizon))
			return false;
	return true;
}

bool
block_settle(StoreDesc *store, BlockHeader *block, uint64 horizon)
{
	uint64		found = word_read(&block->settled);
	uint64		mark = store->settled_mark;
	uint64		ticket;
	uint64		result;

	if (found == mark)
		return true;
	ticket = new_ticket();
	if (!change_mark(block, found, ticket))
		return false;
	SOFORT_STOP("store-settle-begun");
	result = rows_are_settled(store, block, horizon) ? mark : 0;
	SOFORT_STOP("store-settle-checked");
	return change_mark(block, ticket, result) && result == mark;
}

bool
block_settle_again(StoreDesc *store, BlockHeader *block)
{
	uint64		found = word_read(&block->settled);

	return found != 0 && (found & SETTLED_TICKET) == 0 &&
		block_settle(store, block, store_cached_horizon(false));
}
