/*-------------------------------------------------------------------------
 *
 * tree_sweep.c
 *	  Finding the slots that earlier lives have left free.
 *
 * The caller walks over the tree, leaf by leaf, each from the upper fence of the one
 * before.  Every node that is linked during the whole walk covers a range of keys, and
 * so lies on one of these paths; every tuple belongs to an entry or fence in one of the
 * ranges.  A slot is free if it is in a chunk of an earlier life, was not met, and was
 * neither taken nor retired in this life.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

#include "storage/latch.h"
#include "utils/wait_event.h"

struct TreeSweep
{
	Tree	   *tree;
	uint64		nchunks;
	SweepChunk *chunks;			/* by address */
};

static int
compare_chunks(const void *a, const void *b)
{
	const SweepChunk *x = a;
	const SweepChunk *y = b;

	return x->slots < y->slots ? -1 : x->slots > y->slots;
}

bool
tree_needs_sweep(const Tree *tree)
{
	return tree_in_pool(tree) && tree->space->old_chunks > 0;
}

TreeSweep *
tree_sweep_begin(Tree *tree)
{
	TreeSweep  *sweep;
	uint64		i;

	if (!tree_needs_sweep(tree))
		return NULL;
	sweep = palloc(sizeof(TreeSweep));
	sweep->tree = tree;
	sweep->nchunks = tree->space->old_chunks;
	sweep->chunks = MemoryContextAllocHuge(CurrentMemoryContext,
										   sweep->nchunks * sizeof(SweepChunk));
	for (i = 0; i < sweep->nchunks; i++)
	{
		TreeChunk  *chunk = pm_deref(*(PMPtr *) pm_vector_get(&tree->space->store->blocks, i));
		SweepChunk *c = &sweep->chunks[i];

		if (chunk->magic != SOFORT_CHUNK_MAGIC || chunk->crc != tree_chunk_crc(chunk))
			tree_damaged("checksum of a chunk is wrong");
		c->slots = (char *) (chunk + 1);
		c->class = chunk->class;
		c->slot_size = chunk->slot_size;
		c->nslots = chunk->nslots;
		c->reached = palloc0(chunk->nslots / 8 + 1);
	}
	qsort(sweep->chunks, sweep->nchunks, sizeof(SweepChunk), compare_chunks);
	return sweep;
}

/* Notes that a slot is in use.  Slots in chunks of this life do not matter. */
void
tree_sweep_reached(TreeSweep *sweep, const void *slot)
{
	uint64		low = 0;
	uint64		high = sweep->nchunks;
	SweepChunk *c;
	uint64		at;

	/* the last chunk that begins at or before the slot */
	while (low < high)
	{
		uint64		half = (low + high) / 2;

		if (sweep->chunks[half].slots <= (const char *) slot)
			low = half + 1;
		else
			high = half;
	}
	if (low == 0)
		return;
	c = &sweep->chunks[low - 1];
	at = ((const char *) slot - c->slots) / c->slot_size;
	if (at < c->nslots)
		c->reached[at / 8] |= 1 << (at % 8);
}

/*
 * Waits until all calls that are running have ended: a call that unlinks something has also
 * retired it when it ends.
 */
static void
wait_for_others(void)
{
	uint64		epoch = epoch_advance();

	while (!epoch_passed(epoch))
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

uint64
tree_sweep_end(TreeSweep *sweep)
{
	TreeSpace  *space = sweep->tree->space;
	uint64		found = 0;
	uint64		i;

	wait_for_others();
	for (i = 0; i < sweep->nchunks; i++)
	{
		SweepChunk *c = &sweep->chunks[i];
		uint32		slot;

		for (slot = 0; slot < c->nslots; slot++)
			if ((c->reached[slot / 8] & (1 << (slot % 8))) == 0 &&
				pool_slot_reclaim(sweep->tree, c->class, c->slots + (Size) slot * c->slot_size))
				found++;
		pfree(c->reached);
	}
	space->old_chunks = 0;
	pfree(sweep->chunks);
	pfree(sweep);
	return found;
}
