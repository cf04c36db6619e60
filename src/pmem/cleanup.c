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

#include "sofort/pmem/alloc.h"
#include "sofort/pmem/cleanup.h"

static ErrorCleanup *innermost = NULL;

/*
 * One at a time: an error in it ends in another call, for the others.  (This one's
 * place among the callbacks is free by now.)
 */
static void
clean_up_at_exit(int code, Datum arg)
{
	ErrorCleanup *cleanup = innermost;

	if (cleanup == NULL)
		return;
	innermost = cleanup->outer;
	if (innermost != NULL)
		before_shmem_exit(clean_up_at_exit, (Datum) 0);
	cleanup->function(code, cleanup->arg);
}

/* It runs before the callbacks of the allocator, which are older. */
void
error_cleanup_begin(ErrorCleanup *cleanup)
{
	static bool registered = false;

	if (!registered)
	{
		pm_prepare_process();
		before_shmem_exit(clean_up_at_exit, (Datum) 0);
		registered = true;
	}
	cleanup->outer = innermost;
	innermost = cleanup;
}

void
error_cleanup_end(ErrorCleanup *cleanup)
{
	Assert(innermost == cleanup);
	innermost = cleanup->outer;
}
