/*-------------------------------------------------------------------------
 *
 * cleanup.h
 *	  What must be undone when an error, or the end of the process, comes between.
 *
 * As PG_ENSURE_ERROR_CLEANUP(), but it can be nested as deep as the stack allows:
 * PostgreSQL's has room for some ten levels in a process, and one too many is FATAL.
 * Operations that run users' functions (the build of an index) may be nested by these
 * to any depth.  Nor does it matter if code within registers callbacks of its own: if
 * the process ends within, these run first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_CLEANUP_H
#define SOFORT_PMEM_CLEANUP_H

#include "storage/ipc.h"

typedef struct ErrorCleanup
{
	pg_on_exit_callback function;
	Datum		arg;
	struct ErrorCleanup *outer;
} ErrorCleanup;

#define SOFORT_ENSURE_ERROR_CLEANUP(cleanup_function, cleanup_arg) \
	do { \
		ErrorCleanup _cleanup = {.function = (cleanup_function), .arg = (cleanup_arg)}; \
		error_cleanup_begin(&_cleanup); \
		PG_TRY()

/* Without an error the function is not called. */
#define SOFORT_END_ENSURE_ERROR_CLEANUP() \
		PG_CATCH(); \
		{ \
			error_cleanup_end(&_cleanup); \
			_cleanup.function(0, _cleanup.arg); \
			PG_RE_THROW(); \
		} \
		PG_END_TRY(); \
		error_cleanup_end(&_cleanup); \
	} while (0)

extern void error_cleanup_begin(ErrorCleanup *cleanup);
extern void error_cleanup_end(ErrorCleanup *cleanup);

#endif							/* SOFORT_PMEM_CLEANUP_H */
