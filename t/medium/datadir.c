/*-------------------------------------------------------------------------
 *
 * datadir.c
 *	  The data directory as a power cut leaves it: the files of the last
 *	  checkpoint, and the WAL up to where it was flushed.
 *
 * A working copy is made once; after each use what has changed in it is put
 * back, which is told by sizes and times.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "medium.h"

static char base[2048];
static char work[2048];

static bool
skipped(const char *name)
{
	return strcmp(name, "postmaster.pid") == 0 || strcmp(name, "postmaster.opts") == 0 ||
		strncmp(name, "mmap.", 5) == 0;
}

static void
copy_file(const char *from, const char *to, const struct stat *st)
{
	char		buffer[65536];
	int			in = open(from, O_RDONLY);
	int			out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct timespec times[2] = {st->st_atim, st->st_mtim};
	ssize_t		n;

	if (in < 0 || out < 0)
		die("cannot copy %s to %s: %s", from, to, strerror(errno));
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
	{
		if (write(out, buffer, (size_t) n) != n)
			die("%s: %s", to, strerror(errno));
	}
	if (n < 0 || futimens(out, times) != 0)
		die("%s: %s", to, strerror(errno));
	close(in);
	close(out);
}

static void
remove_tree(const char *path)
{
	DIR		   *d = opendir(path);
	struct dirent *e;

	if (d == NULL)
	{
		unlink(path);
		return;
	}
	while ((e = readdir(d)) != NULL)
	{
		char		name[4096];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		remove_tree(name);
	}
	closedir(d);
	rmdir(path);
}

/* Remove from the copy what the original does not have. */
static void
remove_extra(const char *from, const char *to)
{
	DIR		   *d = opendir(to);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL)
	{
		char		original[4096];
		char		copy[4096];
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(original, sizeof(original), "%s/%s", from, e->d_name);
		snprintf(copy, sizeof(copy), "%s/%s", to, e->d_name);
		if (skipped(e->d_name) || lstat(original, &st) != 0)
			remove_tree(copy);
	}
	closedir(d);
}

static void
restore_tree(const char *from, const char *to)
{
	DIR		   *d = opendir(from);
	struct dirent *e;

	if (d == NULL)
		die("%s: %s", from, strerror(errno));
	if (mkdir(to, 0700) == 0)
		;
	else if (errno == EEXIST)
		remove_extra(from, to);
	else
		die("%s: %s", to, strerror(errno));
	while ((e = readdir(d)) != NULL)
	{
		char		original[4096];
		char		copy[4096];
		struct stat a,
					b;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || skipped(e->d_name))
			continue;
		snprintf(original, sizeof(original), "%s/%s", from, e->d_name);
		snprintf(copy, sizeof(copy), "%s/%s", to, e->d_name);
		if (lstat(original, &a) != 0)
			die("%s: %s", original, strerror(errno));
		if (S_ISDIR(a.st_mode))
			restore_tree(original, copy);
		else if (S_ISREG(a.st_mode) &&
				 (lstat(copy, &b) != 0 || a.st_size != b.st_size ||
				  a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec))
			copy_file(original, copy, &a);
	}
	closedir(d);
}

void
datadir_prepare(const char *base_dir, const char *work_dir)
{
	snprintf(base, sizeof(base), "%s", base_dir);
	snprintf(work, sizeof(work), "%s", work_dir);
	datadir_restore();
}

void
datadir_restore(void)
{
	restore_tree(base, work);
}

/*
 * WAL up to "end" (an LSN; 0: as in the base); behind it are zeroes.  A segment
 * is whatever size its file has.
 */
void
datadir_set_wal(const char *wal_dir, uint64_t end)
{
	DIR		   *d;
	struct dirent *e;

	if (end == 0)
		return;
	d = opendir(wal_dir);
	if (d == NULL)
		die("%s: %s", wal_dir, strerror(errno));
	while ((e = readdir(d)) != NULL)
	{
		unsigned	timeline,
					high,
					low;
		char		name[4096];
		char	   *contents;
		size_t		size;
		uint64_t	start;
		FILE	   *f;

		if (strlen(e->d_name) != 24 ||
			sscanf(e->d_name, "%8X%8X%8X", &timeline, &high, &low) != 3)
			continue;
		snprintf(name, sizeof(name), "%s/%s", wal_dir, e->d_name);
		contents = read_whole(name, &size);
		start = ((uint64_t) high << 32) + (uint64_t) low * size;
		snprintf(name, sizeof(name), "%s/pg_wal/%s", work, e->d_name);
		if (start >= end)
			unlink(name);
		else
		{
			if (start + size > end)
				memset(contents + (end - start), 0, size - (end - start));
			f = fopen(name, "w");
			if (f == NULL || fwrite(contents, 1, size, f) != size || fclose(f) != 0)
				die("%s: %s", name, strerror(errno));
		}
		free(contents);
	}
	closedir(d);
}

void
datadir_set_control(const void *control, size_t size)
{
	char		name[4096];
	FILE	   *f;

	if (control == NULL)
		return;
	snprintf(name, sizeof(name), "%s/sofort.control", work);
	f = fopen(name, "w");
	if (f == NULL || fwrite(control, 1, size, f) != size || fclose(f) != 0)
		die("%s: %s", name, strerror(errno));
}
