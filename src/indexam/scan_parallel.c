/*-------------------------------------------------------------------------
 *
 * scan_parallel.c
 *	  What the processes of a parallel index scan share.
 *
 * They share the place at which the next leaf is to be read.  A process that takes it
 * reads one leaf and says where the next one begins, before it looks at any row.
 * Combinations of array elements are numbered: all processes go through them in the
 * same order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/compat/indexam.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

#include "scan_internal.h"

#define TUPLE_MAX	(offsetof(TreeTuple, tuple) + INDEX_SIZE_MASK + 1)

struct ParallelScan
{
	slock_t		mutex;
	bool		seized;			/* somebody reads a leaf */
	bool		at_fence;		/* else at the end of the range */
	int			narrays;		/* with ranges; 0: nobody has said yet */
	uint64		combination;	/* the combination that is being read; those before are done */
	Size		tuple_size;		/* of the fence; 0: it has none */
	ConditionVariable released;
	uint8		fence[TREE_MAX_STRIDE];
	char		tuple[TUPLE_MAX] pg_attribute_aligned(MAXIMUM_ALIGNOF);
};

Size
am_estimate_parallel_scan(COMPAT_ESTIMATE_PARALLEL_SCAN_ARGS)
{
	return sizeof(ParallelScan);
}

void
am_init_parallel_scan(void *target)
{
	ParallelScan *p = target;

	SpinLockInit(&p->mutex);
	ConditionVariableInit(&p->released);
	p->seized = p->at_fence = false;
	p->narrays = 0;
	p->combination = 0;
	p->tuple_size = 0;
}

void
am_parallel_rescan(IndexScanDesc scan)
{
	ParallelScan *p = compat_parallel_scan(scan);

	SpinLockAcquire(&p->mutex);
	p->seized = p->at_fence = false;
	p->narrays = 0;
	p->combination = 0;
	SpinLockRelease(&p->mutex);
}

int
parallel_agree(ScanState *so, int narrays)
{
	ParallelScan *p = so->parallel;

	SpinLockAcquire(&p->mutex);
	if (p->narrays == 0)
		p->narrays = narrays;
	narrays = p->narrays;
	SpinLockRelease(&p->mutex);
	return narrays;
}

/* Nobody else touches it while it is seized. */
static void
take_shared_fence(ScanState *so, Fence *fence)
{
	ParallelScan *p = so->parallel;
	Tree	   *tree = so->keys.tree;

	memcpy(fence->entry, p->fence, tree->stride);
	if (tree->has_tuples)
	{
		TreeTuple  *copy = NULL;

		if (p->tuple_size > 0)
		{
			copy = MemoryContextAlloc(so->fence_context, p->tuple_size);
			memcpy(copy, p->tuple, p->tuple_size);
		}
		memcpy(fence->entry + tree->cmp_len, &copy, sizeof(copy));
	}
	keys_place(&fence->place, &so->keys, fence->entry, 0);
}

bool
parallel_seize(ScanState *so, bool *at_fence, Fence *fence)
{
	ParallelScan *p = so->parallel;
	bool		over;
	bool		mine = false;

	for (;;)
	{
		SpinLockAcquire(&p->mutex);
		over = p->combination > so->combination;
		if (!over && !p->seized)
			mine = p->seized = true;
		SpinLockRelease(&p->mutex);
		if (over || mine)
			break;
		ConditionVariableSleep(&p->released, WAIT_EVENT_BTREE_PAGE);
	}
	ConditionVariableCancelSleep();
	if (!mine)
		return false;
	*at_fence = p->at_fence;
	if (p->at_fence)
	{
		/* (rows of an index that was being rebuilt are no fence) */
		if (so->keys.tree == NULL)
			index_attach(&so->keys, so->keys.index);
		take_shared_fence(so, fence);
	}
	return true;
}

void
parallel_release(ScanState *so, const uint8 *next)
{
	ParallelScan *p = so->parallel;

	p->tuple_size = 0;
	if (next != NULL)
	{
		const TreeTuple *tuple = tree_entry_tuple(so->keys.tree, next);

		memcpy(p->fence, next, so->keys.tree->stride);
		if (tuple != NULL)
		{
			p->tuple_size = offsetof(TreeTuple, tuple) + tuple->size;
			memcpy(p->tuple, tuple, p->tuple_size);
		}
	}
	SpinLockAcquire(&p->mutex);
	p->at_fence = next != NULL;
	if (next == NULL)
		p->combination++;
	p->seized = false;
	SpinLockRelease(&p->mutex);
	if (next == NULL)
		ConditionVariableBroadcast(&p->released);
	else
		ConditionVariableSignal(&p->released);
}
