/*-------------------------------------------------------------------------
 *
 * tid.c
 *	  How TIDs are numbered; tables with a fill factor.
 *
 * PostgreSQL's blocks have as many rows (tid_rows) as a heap page would have of
 * rows like the first one: the first tid_first blocks, which are the store's
 * blocks 0 to 4.  Then each block of the store is one, of 256 rows.
 *
 * In a table with a fill factor all blocks have tid_rows rows, and of these,
 * insertions fill the share that the fill factor allows (tid_fill).  The others
 * are kept for new versions of the rows of their block: so an updated row stays
 * within its range of a BRIN index, and where CLUSTER has put it.  Only the
 * numbering is different; blocks of the store are the same as everywhere.
 *
 * When the append position comes to rows that insertions leave out, it steps
 * over them, and they are noted here, in DRAM: after a start they are EMPTY rows
 * like all others, found by VACUUM, for whoever needs some.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "sofort/pmem/persist.h"
#include "sofort/store/store_internal.h"
#include "storage/bufpage.h"
#include "utils/rel.h"

#define SPARE_BLOCKS_MIN	64

/* ------------------------------------------------------------------------
 * How many rows
 * ------------------------------------------------------------------------
 */

#define HEAP_PAGE_BYTES		((int) (BLCKSZ - SizeOfPageHeaderData))
#define HEAP_ROW_BYTES_MIN	((int) (MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData)))

/* What this row would take of a heap page */
static int
heap_row_bytes(TupleDesc desc, const Datum *values, const bool *isnull)
{
	Size		header = SizeofHeapTupleHeader;
	Size		data = heap_compute_data_size(desc, (Datum *) values, (bool *) isnull);

	for (int i = 0; i < desc->natts; i++)
	{
		if (isnull[i])
		{
			header += BITMAPLEN(desc->natts);
			break;
		}
	}
	/* what is wider is toasted */
	return (int) (Min(MAXALIGN(MAXALIGN(header) + data), BLCKSZ / 4) + sizeof(ItemIdData));
}

/* A row is about to be stored in a store that has no blocks yet. */
void
tid_note_row(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull)
{
	store->local->first_row_bytes = heap_row_bytes(RelationGetDescr(rel), values, isnull);
}

/* Of the three numbers before it */
uint16
tid_check(const uint16 *fields)
{
	uint64		numbers = ((uint64) fields[0] << 32) | ((uint64) fields[1] << 16) | fields[2];

	return (uint16) PM_CHECK(numbers, 16);
}

/*
 * All at once; durable with whatever this process puts into the store.  Stored
 * again if somebody has done it before, who may have failed and not drained.
 */
static void
set_numbering(StoreHeader *header, int rows, int fill)
{
	uint16		fields[4] = {(uint16) rows, (uint16) ((STORE_SMALL_ROWS + rows - 1) / rows),
	(uint16) fill, 0};
	uint64		word;

	StaticAssertStmt(offsetof(StoreHeader, tid_rows) % sizeof(uint64) == 0 &&
					 offsetof(StoreHeader, tid_check) ==
					 offsetof(StoreHeader, tid_rows) + 3 * sizeof(uint16),
					 "the numbering is one word");
	fields[3] = tid_check(fields);
	memcpy(&word, fields, sizeof(word));
	pm_store8((uint64 *) &header->tid_rows, word);
}

/*
 * The first block is about to be made: decide, durably before there is one, as
 * its publication begins with a drain.  Structure lock held.
 */
void
tid_decide(Relation rel, StoreDesc *store)
{
	int			fill_factor = RelationGetFillFactor(rel, 100);
	int			bytes = Max(store->local->first_row_bytes, HEAP_ROW_BYTES_MIN);
	int			kept = BLCKSZ * (100 - fill_factor) / 100;
	int			rows = Max(Min(HEAP_PAGE_BYTES / bytes, STORE_SMALL_ROWS), 1);
	int			fill = 0;

	if (fill_factor < 100)
		fill = Min(Max((HEAP_PAGE_BYTES - kept) / bytes, 1), rows);
	set_numbering(store->header, rows, fill);
}

/* A copy has the same TIDs. */
void
tid_copy(StoreHeader *target, const StoreHeader *source)
{
	if (source->tid_rows != 0)
		set_numbering(target, source->tid_rows, source->tid_fill);
}

/* ------------------------------------------------------------------------
 * Spare rows
 * ------------------------------------------------------------------------
 */

/* Is this row, at the append position, one that insertions leave out? */
static bool
is_spare(const StoreHeader *header, uint64 row)
{
	return row_to_ordinal(row) % header->tid_rows >= header->tid_fill;
}

/* Space lock held; NULL if there is no memory. */
static SpareRows *
spare_of(StoreShared *shared, uint64 tid_block)
{
	if (tid_block >= shared->nspare)
	{
		uint64		n = Max(Max(SPARE_BLOCKS_MIN, tid_block + 1), (uint64) shared->nspare * 2);
		SpareRows  *made;

		if (n > PG_UINT32_MAX / 2)
			return NULL;
		made = arena_alloc(n * sizeof(SpareRows), ARENA_ZERO | ARENA_NO_OOM);
		if (made == NULL)
			return NULL;
		pg_atomic_fetch_add_u64(&shared->bytes_dram, (n - shared->nspare) * sizeof(SpareRows));
		if (shared->spare != NULL)
		{
			memcpy(made, shared->spare, shared->nspare * sizeof(SpareRows));
			arena_free(shared->spare);
		}
		shared->spare = made;
		shared->nspare = (uint32) n;
	}
	return &shared->spare[tid_block];
}

/* Rows [offset, offset + n) of a block, which the append position has left out */
static void
note_spare(StoreDesc *store, uint64 tid_block, uint32 offset, uint32 n)
{
	StoreShared *shared = store->shared;
	SpareRows  *s;

	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	s = spare_of(shared, tid_block);
	if (s != NULL)
	{
		/* not behind what there is (after a change of shape): that stays unused */
		if (s->next == s->end || s->end != offset)
			s->next = (uint16) offset;
		s->end = (uint16) (offset + n);
	}
	LWLockRelease(space_lock(store->id));
}

/* Move the append position over rows that insertions leave out. */
void
spread_step_over(StoreDesc *store)
{
	pg_atomic_uint64 *append = &store->shared->append;
	uint32		tid_rows = store->header->tid_rows;
	uint64		a = pg_atomic_read_u64(append);

	while (FREE_COUNT(a) > 0 && is_spare(store->header, FREE_ROW(a)))
	{
		uint64		ordinal = row_to_ordinal(FREE_ROW(a));
		uint32		offset = (uint32) (ordinal % tid_rows);
		uint32		n = Min(tid_rows - offset, FREE_COUNT(a));

		if (pg_atomic_compare_exchange_u64(append, &a,
										   FREE_MAKE(FREE_ROW(a) + n, FREE_COUNT(a) - n)))
		{
			note_spare(store, ordinal / tid_rows, offset, n);
			a = pg_atomic_read_u64(append);
		}
	}
}

/* How many rows may be appended from this one on, of n that are there */
uint32
spread_room(const StoreDesc *store, uint64 row, uint32 n)
{
	uint32		offset = (uint32) (row_to_ordinal(row) % store->header->tid_rows);

	return Min(n, store->header->tid_fill - Min(offset, store->header->tid_fill));
}

/*
 * After insertions: all of the block at the append position has storage, so that
 * its rows can be updated there.
 */
void
spread_complete_block(Relation rel, StoreDesc *store)
{
	uint64		a = pg_atomic_read_u64(&store->shared->append);

	if (FREE_COUNT(a) == 0 && row_to_ordinal(FREE_ROW(a)) % store->header->tid_rows != 0)
	{
		block_extend(rel, store, false);
		spread_step_over(store);
	}
}

/*
 * A spare row of the block in which "row" lies, for its next version.  False if
 * there is none (any more), or the block's shape is retired.
 */
bool
spread_take(Relation rel, StoreDesc *store, uint64 row, uint64 *spare)
{
	StoreShared *shared = store->shared;
	uint32		tid_rows = store->header->tid_rows;
	uint64		tid_block = row_to_ordinal(row) / tid_rows;
	const BlockHeader *block = block_get(store->header, row / SOFORT_BLOCK_ROWS);

	if (block == NULL || block->shape < pg_atomic_read_u32(&shared->retired_below))
		return false;
	for (;;)
	{
		uint64		a;
		bool		found = false;

		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		if (tid_block < shared->nspare &&
			shared->spare[tid_block].next < shared->spare[tid_block].end)
		{
			*spare = row_from_ordinal(tid_block * tid_rows + shared->spare[tid_block].next++);
			found = true;
		}
		LWLockRelease(space_lock(store->id));
		if (found)
			return true;

		/* in the block that is being filled they may still lie ahead */
		a = pg_atomic_read_u64(&shared->append);
		if (row_to_ordinal(FREE_ROW(a)) / tid_rows != tid_block ||
			!is_spare(store->header, FREE_ROW(a)))
			return false;
		if (FREE_COUNT(a) == 0)
			block_extend(rel, store, false);
		spread_step_over(store);
	}
}

/* These blocks of the store are about to be released.  Space lock held. */
void
spread_forget_blocks(StoreShared *shared, uint64 block, uint32 n)
{
	uint32		tid_rows = shared->header->tid_rows;
	uint64		first;
	uint64		last;

	if (shared->header->tid_fill == 0)
		return;
	first = row_to_ordinal(block * SOFORT_BLOCK_ROWS) / tid_rows;
	last = row_to_ordinal((block + n) * SOFORT_BLOCK_ROWS - 1) / tid_rows;
	for (; first <= last && first < shared->nspare; first++)
		shared->spare[first].next = shared->spare[first].end = 0;
}

/* The store goes away or becomes empty.  No ERROR. */
void
spread_forget_all(StoreShared *shared)
{
	if (shared->spare != NULL)
	{
		pg_atomic_fetch_sub_u64(&shared->bytes_dram, shared->nspare * sizeof(SpareRows));
		arena_free(shared->spare);
	}
	shared->spare = NULL;
	shared->nspare = 0;
}
