/*-------------------------------------------------------------------------
 *
 * epoch.c
 *	  Epochs: when may memory that was unlinked be reused?
 *
 * Each process has a slot (a line of its own).  Inside, the slot holds the epoch that
 * was current when it entered; outside, 0.  Whoever unlinks something begins a new
 * epoch afterwards, and reuses the memory when no slot holds an older one.
 *
 * Reader:		slot = epoch; full fence; follow pointers
 * Reclaimer:	unlink; epoch + 1 (full fence); full fence; read slots
 *
 * If the reclaimer does not see the reader's slot, then the reader's fence came
 * later, and so it sees the unlinking.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "pm_internal.h"
#include "sofort/pmem/arena.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

static int	depth = 0;			/* of this process */
static EpochSlot *my_slot = NULL;

/* Subtransactions that began inside, innermost last, and how deep that was */
typedef struct OuterDepth
{
	SubTransactionId sub;
	int			depth;
} OuterDepth;

static OuterDepth *outer = NULL;
static int	nouter = 0;
static int	outer_size = 0;

static int
epoch_slots(void)
{
	return 1 + MaxBackends + NUM_AUXILIARY_PROCS;
}

Size
epoch_shmem_size(void)
{
	return mul_size(sizeof(EpochSlot), epoch_slots());
}

void
epoch_startup(void)
{
	int			i;

	pm_shared->nepochs = epoch_slots();
	pg_atomic_init_u64(&pm_shared->epoch, 1);
	pg_atomic_init_u64(&pm_shared->epoch_passed, 1);
	for (i = 0; i < pm_shared->nepochs; i++)
	{
		pg_atomic_init_u64(&pm_epochs[i].epoch, 0);
		pm_epochs[i].draining = 0;
	}
	depth = 0;
	my_slot = NULL;
}

/* At once, however deep */
static void
leave(void)
{
	depth = 0;
	pg_memory_barrier();
	pg_atomic_write_u64(&my_slot->epoch, 0);
}

static void
epoch_process_exit(int code, Datum arg)
{
	epoch_reset();
}

static void
epoch_xact_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE ||
		event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
		epoch_reset();
}

static void
note_outer_depth(SubTransactionId sub)
{
	if (nouter == outer_size)
	{
		int			size = Max(8, 2 * outer_size);

		outer = outer == NULL ? MemoryContextAlloc(TopMemoryContext, size * sizeof(OuterDepth)) :
			repalloc(outer, size * sizeof(OuterDepth));
		outer_size = size;
	}
	outer[nouter].sub = sub;
	outer[nouter++].depth = depth;
}

/*
 * An error inside an epoch may be caught: its subtransaction leaves what it has entered.
 * Otherwise a process that waits for others to leave would wait for this transaction,
 * perhaps for itself.
 */
static void
epoch_subxact_end(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	int			before = 0;

	if (event == SUBXACT_EVENT_START_SUB && depth > 0)
		note_outer_depth(sub);
	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	if (nouter > 0 && outer[nouter - 1].sub == sub)
		before = outer[--nouter].depth;
	if (event == SUBXACT_EVENT_COMMIT_SUB || depth == 0)
		return;
	if (before > 0)
		depth = before;
	else
		leave();
}

/* The slot of this process; there is one for every PGPROC. */
static void
epoch_attach(void)
{
	if (pm_shared == NULL)
	{
		pool_require();
		elog(ERROR, "sofort's shared memory does not exist");
	}
	my_slot = &pm_epochs[pm_process_number()];
	if (MyProc != NULL)
	{
		on_shmem_exit(epoch_process_exit, (Datum) 0);
		RegisterXactCallback(epoch_xact_end, NULL);
		RegisterSubXactCallback(epoch_subxact_end, NULL);
	}
}

void
epoch_enter(void)
{
	if (depth > 0)
	{
		depth++;
		return;
	}
	if (unlikely(my_slot == NULL))
		epoch_attach();
	depth = 1;
	/* an exchange is a full fence */
	(void) pg_atomic_exchange_u64(&my_slot->epoch, pg_atomic_read_u64(&pm_shared->epoch));
}

void
epoch_exit(void)
{
	Assert(depth > 0);
	if (--depth > 0)
		return;
	/* reads before this are done; x86 keeps loads before later stores */
	pg_read_barrier();
	pg_write_barrier();
	pg_atomic_write_u64(&my_slot->epoch, 0);
}

bool
epoch_is_inside(void)
{
	return depth > 0;
}

void
epoch_reset(void)
{
	if (my_slot == NULL)
		return;
	nouter = 0;
	leave();
}

uint64
epoch_advance(void)
{
	return pg_atomic_add_fetch_u64(&pm_shared->epoch, 1);
}

bool
epoch_passed(uint64 epoch)
{
	uint64		known = pg_atomic_read_u64(&pm_shared->epoch_passed);
	uint64		oldest;
	int			i;

	if (epoch <= known)
		return true;

	oldest = pg_atomic_read_u64(&pm_shared->epoch);
	pg_memory_barrier();
	for (i = 0; i < pm_shared->nepochs; i++)
	{
		uint64		e = pg_atomic_read_u64(&pm_epochs[i].epoch);

		if (e != 0 && e < oldest)
			oldest = e;
	}
	pg_memory_barrier();

	/* all epochs up to "oldest" have passed: noted for others */
	while (known < oldest &&
		   !pg_atomic_compare_exchange_u64(&pm_shared->epoch_passed, &known, oldest))
		;
	return epoch <= oldest;
}
