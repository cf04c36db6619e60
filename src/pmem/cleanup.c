/*-------------------------------------------------------------------------
 *
 * cleanup.c
 *	  What must be undone when an error, or the end of the process, comes between.
 *
 * There is one callback of the process for all cleanups, because PostgreSQL has room
 * for few callbacks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/cleanup.h"
#include "storage/proc.h"

#define MOST_PLACES		4		/* of those that PostgreSQL has for such callbacks */

static ErrorCleanup *innermost = NULL;
static int	nregistered = 0;
static LocalTransactionId registered_in = InvalidLocalTransactionId;

/*
 * One cleanup at a time: an error in it leads to another call, for the others.  (The place
 * of this callback is free by now.)
 */
static void
clean_up_at_exit(int code, Datum arg)
{
	ErrorCleanup *cleanup = innermost;

	nregistered--;
	if (cleanup == NULL)
		return;
	innermost = cleanup->outer;
	if (innermost != NULL)
	{
		before_shmem_exit(clean_up_at_exit, (Datum) 0);
		nregistered++;
	}
	cleanup->function(code, cleanup->arg);
}

/*
 * Takes back what was registered in an earlier transaction.  PostgreSQL raises an error if
 * another callback was registered since: then ours stays, and does nothing while there is
 * no level.
 */
static bool
take_back(void)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorContextCallback *stack = error_context_stack;
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	volatile bool done = false;

	error_context_stack = NULL;
	PG_TRY();
	{
		cancel_before_shmem_exit(clean_up_at_exit, (Datum) 0);
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
	}
	PG_END_TRY();
	error_context_stack = stack;
	return done;
}

/*
 * Registers the callback so that it runs before those of the allocator, which are older,
 * and before those that earlier transactions have left: the one of temporary tables,
 * registered when a transaction commits, ends the transaction, whose memory the cleanups
 * read.
 */
static void
register_anew(void)
{
	if (nregistered > 0 && registered_in == my_local_transaction_id())
		return;
	pm_prepare_process();
	if (nregistered > 0 && take_back())
		nregistered--;
	if (nregistered < MOST_PLACES)
	{
		before_shmem_exit(clean_up_at_exit, (Datum) 0);
		nregistered++;
	}
	registered_in = my_local_transaction_id();
}

void
error_cleanup_begin(ErrorCleanup *cleanup)
{
	if (innermost == NULL)
		register_anew();
	cleanup->outer = innermost;
	innermost = cleanup;
}

void
error_cleanup_end(ErrorCleanup *cleanup)
{
	Assert(innermost == cleanup);
	innermost = cleanup->outer;
}
