/*-------------------------------------------------------------------------
 *
 * cleanup.c
 *	  What must be undone when an error, or the end of the process, comes between.
 *
 * One callback of the process for all that is under way, as PostgreSQL has room for
 * few of them.
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
 * One at a time: an error in it ends in another call, for the others.  (This one's
 * place among the callbacks is free by now.)
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
 * What was registered in an earlier transaction.  PostgreSQL raises an error if
 * something was registered since: then it stays, and does nothing without a level.
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
 * Before the callbacks of the allocator, which are older, and before what earlier
 * transactions have left: that of temporary tables, registered when one commits, ends
 * the transaction, whose memory the cleanups read.
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
