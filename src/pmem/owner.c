/*-------------------------------------------------------------------------
 *
 * owner.c
 *	  To whom an allocation belongs, and everything that belongs to an owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pm_internal.h"
#include "sofort/pmem/fault.h"

#define FREE_BATCH		64		/* segments freed by one drain */

/* Start, size and owner of the allocation that an address lies in; owner 0: free */
bool
allocation_of(PMPtr p, PMPtr *target, uint64 *size, StoreId *owner)
{
	uint64		offset = p & PM_OFFSET_MASK;
	uint64		word;
	uint32		slot;
	int			e;
	uint32		g;

	if (!pm_ref_is_valid(p))
		return false;
	word = segment_covering(offset, &e, &g);
	if (SEGWORD_STATE(word) == SEGWORD_SEGMENT)
	{
		*target = PM_REF(granule_offset(e, g));
		*size = (uint64) SEGWORD_COUNT(word) * PM_GRANULE;
		*owner = SEGWORD_OWNER(word);
		return true;
	}
	if (SEGWORD_STATE(word) == SEGWORD_SLAB && SEGWORD_COUNT(word) < (uint32) slab_nclasses())
	{
		int			class = (int) SEGWORD_COUNT(word);
		uint64		first = granule_offset(e, g) + slab_class_offset(class);

		if (offset < first)
			return false;
		offset = first + (offset - first) / slab_class_size(class) * slab_class_size(class);
		if (!slab_slot_of(e, g, offset, &slot))
			return false;
		*target = PM_REF(offset);
		*size = slab_class_size(class);
		*owner = slab_slot_owner(e, g, slot);
		return true;
	}
	return false;
}

Size
pm_allocated_size(PMPtr target)
{
	PMPtr		start;
	uint64		size;
	StoreId		owner;

	return allocation_of(target, &start, &size, &owner) ? (Size) size : 0;
}

PMPtr
pm_allocation_start(PMPtr p)
{
	PMPtr		start;
	uint64		size;
	StoreId		owner;

	return allocation_of(p, &start, &size, &owner) ? start : PM_NULL;
}

typedef struct FreeBatch
{
	int			n;
	uint64		offset[FREE_BATCH];
	uint32		count[FREE_BATCH];
} FreeBatch;

static void
free_batch(FreeBatch *batch)
{
	int			i;

	pm_drain();
	for (i = 0; i < batch->n; i++)
		segment_release(batch->offset[i], batch->count[i]);
	batch->n = 0;
}

void
pm_free_owner(StoreId owner, bool again)
{
	FreeBatch	batch = {.n = 0};
	int			e;

	Assert(owner != PM_OWNER_SHARED && owner != PM_OWNER_POOL);
	HOLD_INTERRUPTS();
	pm_settle_durably();		/* links may lie in what is freed */
	slab_forget_owner(owner);
	for (e = 0; e < pm_nextents; e++)
	{
		uint32		prepared = words_prepared(e);
		uint32		g;

		for (g = 0; g < prepared; g++)
		{
			uint64		word = segment_word(e, g);

			if (SEGWORD_STATE(word) == SEGWORD_FREE || !SEGWORD_IS_RIGHT(word))
				continue;
			if (SEGWORD_OWNER(word) == owner)
			{
				if (batch.n == FREE_BATCH)
					free_batch(&batch);
				pm_store8(&pm_extent[e].words[g], 0);
				batch.offset[batch.n] = granule_offset(e, g);
				batch.count[batch.n] = SEGWORD_STATE(word) == SEGWORD_SEGMENT ?
					SEGWORD_COUNT(word) : 1;
				batch.n++;
			}
			else if (SEGWORD_STATE(word) == SEGWORD_SLAB &&
					 SEGWORD_OWNER(word) == PM_OWNER_SHARED)
				slab_free_owner(e, g, owner, again);
		}
	}
	SOFORT_STOP("pmem-owner-slots-freed");
	if (batch.n > 0)
		free_batch(&batch);
	SOFORT_STOP("pmem-owner-freed");
	RESUME_INTERRUPTS();
}

static void
visit_slab(int extent, uint32 granule, uint64 word, StoreId owner, PmAllocationVisitor fn,
		   void *arg)
{
	int			class = (int) SEGWORD_COUNT(word);
	uint16		slots[MAX_SLAB_SLOTS];
	StoreId		owners[MAX_SLAB_SLOTS];
	uint64		first = granule_offset(extent, granule);
	int			n;
	int			i;

	if (class >= slab_nclasses())
		return;
	n = slab_copy_slots(extent, granule, word, owner, slots, owners);
	for (i = 0; i < n; i++)
		fn(arg, PM_REF(first + slab_class_offset(class) + slots[i] * slab_class_size(class)),
		   slab_class_size(class), owners[i]);
}

void
pm_visit_allocations(StoreId owner, PmAllocationVisitor fn, void *arg)
{
	bool		all = (owner == ~UINT64CONST(0));
	int			e;

	for (e = 0; e < pm_nextents; e++)
	{
		uint32		prepared = words_prepared(e);
		uint32		g;

		for (g = 0; g < prepared; g++)
		{
			uint64		word = segment_word(e, g);
			StoreId		o = SEGWORD_OWNER(word);

			if (!SEGWORD_IS_RIGHT(word))
				continue;
			if (SEGWORD_STATE(word) == SEGWORD_SEGMENT && (all || o == owner))
				fn(arg, PM_REF(granule_offset(e, g)),
				   (Size) SEGWORD_COUNT(word) * PM_GRANULE, o);
			else if (SEGWORD_STATE(word) == SEGWORD_SLAB &&
					 (all || o == owner || o == PM_OWNER_SHARED))
				visit_slab(e, g, word, owner, fn, arg);
		}
	}
}
