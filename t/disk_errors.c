/*-------------------------------------------------------------------------
 *
 * disk_errors.c
 *	  A library for LD_PRELOAD (t/181): the disk under a pool fails.
 *
 * In the directory SOFORT_DISK_ERRORS: if there is a file "synchronize", the next
 * fdatasync() of the pool fails, as does the next write to its log of the process whose
 * id is in a file "write"; both once.  A failed synchronisation leaves there what the pool held ("failed").
 * From then on places that are written with pwrite() are noted ("written"): only pages
 * that are written again get to the disk.  One that succeeds before removes "before", the
 * test's copy of what the disk has.
 *
 * If there is a file "directory", the next fsync() of a directory "disk", where the pool
 * is, fails; one that succeeds leaves a file "named".
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern int	fdatasync(int fd);
extern int	fsync(int fd);
extern ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at);
extern ssize_t pwritev64v2(int fd, const struct iovec *io, int n, off64_t at, int flags);

static void
in_directory(char *path, size_t size, const char *name)
{
	const char *dir = getenv("SOFORT_DISK_ERRORS");

	snprintf(path, size, "%s/%s", dir != NULL ? dir : "/nonexistent", name);
}

/* Is it the file whose name ends so?  Its name goes to path. */
static int
is_file(int fd, const char *end, char *path, size_t size)
{
	char		link[64];
	ssize_t		n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, size - 1);
	if (n < (ssize_t) strlen(end))
		return 0;
	path[n] = '\0';
	return strcmp(path + n - strlen(end), end) == 0;
}

/* (and remove it) */
static int
there_was(const char *what)
{
	char		path[4096];

	in_directory(path, sizeof(path), what);
	return unlink(path) == 0;
}

/* Is this process named there? */
static int
there_was_for_me(const char *what)
{
	char		path[4096];
	FILE	   *file;
	int			pid = 0;

	in_directory(path, sizeof(path), what);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid == getpid() && unlink(path) == 0;
}

static void
keep_copy(const char *pool)
{
	char		path[4096];
	char		command[2 * 4096 + 100];

	in_directory(path, sizeof(path), "failed");
	snprintf(command, sizeof(command), "cp --sparse=always '%s' '%s'", pool, path);
	if (system(command) != 0)
		abort();
	in_directory(path, sizeof(path), "written");
	close(open(path, O_CREAT | O_WRONLY, 0600));
}

int
fdatasync(int fd)
{
	char		path[4096];

	if (is_file(fd, "/pool", path, sizeof(path)))
	{
		if (there_was("synchronize"))
		{
			keep_copy(path);
			errno = EIO;
			return -1;
		}
		in_directory(path, sizeof(path), "failed");
		if (access(path, F_OK) != 0)
			(void) there_was("before");
	}
	return (int) syscall(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	char		path[4096];
	int			rc;

	if (!is_file(fd, "/disk", path, sizeof(path)))
		return (int) syscall(SYS_fsync, fd);
	if (there_was("directory"))
	{
		errno = EIO;
		return -1;
	}
	rc = (int) syscall(SYS_fsync, fd);
	in_directory(path, sizeof(path), "named");
	if (rc == 0)
		close(open(path, O_CREAT | O_WRONLY, 0600));
	return rc;
}

ssize_t
pwrite64(int fd, const void *p, size_t n, off64_t at)
{
	char		path[4096];

	if (is_file(fd, "/pool", path, sizeof(path)))
	{
		int			out;

		in_directory(path, sizeof(path), "written");
		out = open(path, O_WRONLY | O_APPEND);
		if (out >= 0)
		{
			dprintf(out, "%lld %zu\n", (long long) at, n);
			close(out);
		}
	}
	return syscall(SYS_pwrite64, fd, p, n, at);
}

ssize_t
pwrite(int fd, const void *p, size_t n, off_t at)
{
	return pwrite64(fd, p, n, at);
}

ssize_t
pwritev64v2(int fd, const struct iovec *io, int n, off64_t at, int flags)
{
	char		path[4096];

	if (is_file(fd, "/pool.redo", path, sizeof(path)) && there_was_for_me("write"))
	{
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pwritev2, fd, io, n, at, 0, flags);
}

ssize_t
pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags)
{
	return pwritev64v2(fd, io, n, at, flags);
}
