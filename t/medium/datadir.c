/*-------------------------------------------------------------------------
 *
 * datadir.c
 *	  The data directory as a power cut leaves it: the files of the last
 *	  checkpoint, and the WAL up to where it was flushed.
 *
 * A working copy is made once; after each use what has changed in it is put
 * back, which is told by sizes and times.  Original and WAL are read once.
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

/* What the original has, read once: it does not change. */
typedef struct Entry
{
	char	   *name;			/* within its directory */
	struct stat st;
	struct Entry *content;		/* of a directory, sorted by name */
	int			n;
} Entry;

static Entry original;

static int
compare_entries(const void *a, const void *b)
{
	return strcmp(((const Entry *) a)->name, ((const Entry *) b)->name);
}

static void
read_tree(const char *path, Entry *entry)
{
	DIR		   *d = opendir(path);
	struct dirent *e;

	if (d == NULL)
		die("%s: %s", path, strerror(errno));
	while ((e = readdir(d)) != NULL)
	{
		char		name[4096];
		Entry	   *new;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || skipped(e->d_name))
			continue;
		entry->content = reallocate(entry->content, (entry->n + 1) * sizeof(Entry));
		new = &entry->content[entry->n++];
		memset(new, 0, sizeof(Entry));
		new->name = print("%s", e->d_name);
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (lstat(name, &new->st) != 0)
			die("%s: %s", name, strerror(errno));
		if (S_ISDIR(new->st.st_mode))
			read_tree(name, new);
	}
	closedir(d);
	qsort(entry->content, entry->n, sizeof(Entry), compare_entries);
}

/* Remove from the copy what the original does not have. */
static void
remove_extra(const Entry *entry, const char *to)
{
	DIR		   *d = opendir(to);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL)
	{
		Entry		key = {.name = e->d_name};
		char		copy[4096];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
			(entry->n > 0 && bsearch(&key, entry->content, entry->n, sizeof(Entry), compare_entries)))
			continue;
		snprintf(copy, sizeof(copy), "%s/%s", to, e->d_name);
		remove_tree(copy);
	}
	closedir(d);
}

static bool
is_unchanged(const char *copy, const struct stat *st)
{
	struct stat now;

	return lstat(copy, &now) == 0 && now.st_size == st->st_size &&
		now.st_mtim.tv_sec == st->st_mtim.tv_sec && now.st_mtim.tv_nsec == st->st_mtim.tv_nsec;
}

static void
restore_tree(const Entry *entry, const char *from, const char *to)
{
	int			i;

	if (mkdir(to, 0700) == 0)
		;
	else if (errno == EEXIST)
		remove_extra(entry, to);
	else
		die("%s: %s", to, strerror(errno));
	for (i = 0; i < entry->n; i++)
	{
		const Entry *e = &entry->content[i];
		char		file[4096];
		char		copy[4096];

		snprintf(file, sizeof(file), "%s/%s", from, e->name);
		snprintf(copy, sizeof(copy), "%s/%s", to, e->name);
		if (S_ISDIR(e->st.st_mode))
			restore_tree(e, file, copy);
		else if (S_ISREG(e->st.st_mode) && !is_unchanged(copy, &e->st))
			copy_file(file, copy, &e->st);
	}
}

void
datadir_prepare(const char *base_dir, const char *work_dir)
{
	snprintf(base, sizeof(base), "%s", base_dir);
	snprintf(work, sizeof(work), "%s", work_dir);
	memset(&original, 0, sizeof(original));
	read_tree(base, &original);
	datadir_restore();
}

void
datadir_restore(void)
{
	restore_tree(&original, base, work);
}

/* A segment of the WAL of the whole run */
typedef struct Segment
{
	char	   *name;
	char	   *contents;
	size_t		size;
	uint64_t	start;			/* LSN */
} Segment;

static Segment *segments;
static int	nsegments;

/* A segment is whatever size its file has. */
static void
read_wal(const char *wal_dir)
{
	DIR		   *d = opendir(wal_dir);
	struct dirent *e;

	if (d == NULL)
		die("%s: %s", wal_dir, strerror(errno));
	while ((e = readdir(d)) != NULL)
	{
		unsigned	timeline,
					high,
					low;
		char		name[4096];
		Segment    *s;

		if (strlen(e->d_name) != 24 ||
			sscanf(e->d_name, "%8X%8X%8X", &timeline, &high, &low) != 3)
			continue;
		segments = reallocate(segments, (nsegments + 1) * sizeof(Segment));
		s = &segments[nsegments++];
		snprintf(name, sizeof(name), "%s/%s", wal_dir, e->d_name);
		s->name = print("%s", e->d_name);
		s->contents = read_whole(name, &s->size);
		s->start = ((uint64_t) high << 32) + (uint64_t) low * s->size;
	}
	closedir(d);
}

static void
write_file(const char *name, const void *contents, size_t size, size_t whole)
{
	int			fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	/* (the rest reads as zeroes) */
	if (fd < 0 || write(fd, contents, size) != (ssize_t) size || ftruncate(fd, (off_t) whole) != 0)
		die("%s: %s", name, strerror(errno));
	close(fd);
}

/* WAL up to "end" (an LSN; 0: as in the base); behind it are zeroes. */
void
datadir_set_wal(const char *wal_dir, uint64_t end)
{
	int			i;

	if (end == 0)
		return;
	if (nsegments == 0)
		read_wal(wal_dir);
	for (i = 0; i < nsegments; i++)
	{
		const Segment *s = &segments[i];
		char		name[4096];

		snprintf(name, sizeof(name), "%s/pg_wal/%s", work, s->name);
		if (s->start >= end)
			unlink(name);
		else
			write_file(name, s->contents, end - s->start < s->size ? end - s->start : s->size, s->size);
	}
}

void
datadir_set_control(const void *control, size_t size)
{
	char		name[4096];

	if (control == NULL)
		return;
	snprintf(name, sizeof(name), "%s/sofort.control", work);
	write_file(name, control, size, size);
}
