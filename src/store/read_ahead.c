/*-------------------------------------------------------------------------
 *
 * read_ahead.c
 *	  Blocks of a pool on a disk, asked for before they are read.
 *
 * Addresses come from the directory alone: a block may lie on the disk, or be given back
 * meanwhile, so nothing of it is looked at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "sofort/store/store_internal.h"

/* How far ahead: so that a disk is busy, and little is read in vain if the reader ends early */
#define WINDOW_BYTES	(1024 * 1024)

/* For so long, in microseconds, a table that fits a window is not asked for again: it is there */
#define ASK_AGAIN_AFTER	1000000

/*
 * How much of a block, from its start on, is read by who wants this column, or whole rows.  With
 * a column that may be NULL, or refers to values elsewhere, something of each record is read.
 */
static Size
bytes_of_block(const ShapePlan *plan, int att)
{
	const AttrPlan *a = att == STORE_WHOLE_ROWS ? NULL : &plan->plan[att];

	if (a != NULL && a->kind != ATTR_MISSING && a->kind != ATTR_POINTER && a->null_mask == 0 &&
		a->offset < plan->record_offset)
		return a->offset + (Size) SOFORT_BLOCK_ROWS * a->stride;
	return plan->record_offset + (Size) SOFORT_BLOCK_ROWS * plan->record_stride;
}

/* Those that lie together are asked for together. */
static void
ask_for_blocks(const StoreHeader *header, uint64 block, uint64 end, Size size)
{
	const char *start = NULL;
	const char *stop = NULL;

	end = Min(end, store_block_count(header));
	for (; block < end; block++)
	{
		const PMPtr *entry = block_entry(header, block);
		const char *b = entry == NULL ? NULL : pm_deref_quietly(word_read(entry));

		if (b == NULL)
			continue;
		if (b != stop)
		{
			if (start != NULL)
				pm_read_ahead(start, stop - start);
			start = b;
		}
		stop = b + size;
	}
	if (start != NULL)
		pm_read_ahead(start, stop - start);
}

/* The shape of the rows read last, or of the newest ones; NULL: there are none */
static const ShapePlan *
likely_shape(StoreDesc *store)
{
	uint32		newest = pg_atomic_read_u32(&store->shared->current_shape);

	if (store->local->guess != NULL)
		return store->local->guess;
	return newest == PG_UINT32_MAX ? NULL : plan_get(store, newest);
}

void
store_read_ahead(StoreDesc *store, uint64 block, uint64 end, int att)
{
	const ShapePlan *plan = pm_on_disk ? likely_shape(store) : NULL;

	if (plan != NULL)
		ask_for_blocks(store->header, block, end, bytes_of_block(plan, att));
}

/* Did this process ask for this table, as a whole, a moment ago? */
static bool
asked_lately(StoreDesc *store, bool asks_for_all)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	TimestampTz *asked_at = &store->local->read_ahead_at;

	if (*asked_at != 0 && now >= *asked_at && now < *asked_at + ASK_AGAIN_AFTER)
		return true;
	if (asks_for_all)
		*asked_at = now;
	return false;
}

void
store_next_read_ahead(StoreDesc *store, StoreReadAhead *ahead, uint64 block, uint64 end)
{
	const ShapePlan *plan = likely_shape(store);
	uint64		from = block >= ahead->first && block <= ahead->end ? ahead->end : block;
	uint64		window;
	Size		size;

	if (plan == NULL)
		return;
	size = bytes_of_block(plan, STORE_WHOLE_ROWS);
	window = WINDOW_BYTES / size + 1;
	ahead->first = block;
	ahead->next = block + (window + 1) / 2;
	ahead->end = Min(block + window, end);
	if (end <= window && asked_lately(store, from == 0))
		return;
	ask_for_blocks(store->header, from, ahead->end, size);
}
