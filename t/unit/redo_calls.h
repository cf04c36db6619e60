/*-------------------------------------------------------------------------
 *
 * redo_calls.h
 *	  What makes something durable in a file, as t/unit/redo.c sees it: included
 *	  before everything else by all sources of that program.  Each call is a
 *	  numbered site, so that a test can leave it out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REDO_CALLS_H
#define REDO_CALLS_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct RedoCall
{
	const char *file;
	const char *function;
	const char *what;
	unsigned	line;
} RedoCall;

/* The linker gathers pointers to all in one array. */
#define REDO_SITE(name) \
	({ \
		static RedoCall redo_call_ = \
			{.file = __FILE__, .function = __func__, .what = (name), .line = __LINE__}; \
		static RedoCall *const redo_call_address_ \
			__attribute__((section("redo_calls"), used)) = &redo_call_; \
		&redo_call_; \
	})

extern int	redo_fdatasync(int fd, const RedoCall *site);
extern int	redo_msync(void *p, size_t n, int flags, const RedoCall *site);
extern ssize_t redo_pwrite(int fd, const void *p, size_t n, off_t at);
extern int	redo_fallocate(int fd, int mode, off_t at, off_t n);
extern ssize_t redo_pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags,
							 const RedoCall *site);

#define fdatasync(fd)			redo_fdatasync(fd, REDO_SITE("fdatasync"))
#define msync(p, n, flags)		redo_msync(p, n, flags, REDO_SITE("msync"))
#define pwrite(fd, p, n, at)	redo_pwrite(fd, p, n, at)
#define fallocate(fd, mode, at, n)	redo_fallocate(fd, mode, at, n)
#define pwritev2(fd, io, n, at, flags) \
	redo_pwritev2(fd, io, n, at, flags, REDO_SITE("dsync"))

#endif							/* REDO_CALLS_H */
