/*-------------------------------------------------------------------------
 *
 * main.c
 *	  Makes power cuts: what a server with the shadow medium recorded is
 *	  replayed to any point, images of the medium are made from it as a power
 *	  cut at that point could have left them, and a server is started from each.
 *
 *	medium record CONNINFO LOG SCRIPT STEPS
 *		runs a script (record.c)
 *	medium clients CONNINFO LOG STEPS CLIENTS TRANSACTIONS SEED
 *		runs several clients at once (clients.c)
 *	medium enumerate KEY=VALUE ...
 *		cuts at every drain
 *	medium calls KEY=VALUE ...
 *		leaves out each flush and drain of the sources in turn, and tells
 *		whether the checks notice it
 *	medium kills KEY=VALUE ...
 *		for each flush of the sources a drain before which some line is on its
 *		way that it has flushed: "kill NAME cut=N".  Whoever recovers from a crash
 *		of the processes at that point finds it stored, and not durable.
 *	medium again cut=N survival=K out=DIR KEY=VALUE ...
 *		starts from one image and records what that does, so that power can be
 *		cut while it recovers: DIR is what enumerate and calls need then.
 *		killed=1 instead of survival: after a crash of all processes.
 *		use=1: tables are written and vacuumed, too, after it has recovered (the steps
 *		are "recovery", "went on" with a kept transaction, and "used")
 *		stop=1: the server is stopped in order, and power fails when it has ended
 *		leaves=1: the session that has recovered ends without having written
 *		anything; whatever follows (script=) others do
 *
 *	log=FILE pool=FILE data=DIR wal=DIR steps=FILE bin=DIR
 *		the shadow log; pool and data directory as they were when it began; the
 *		WAL of the whole run; what record wrote; PostgreSQL's programs
 *	work=DIR	an empty directory of its own
 *	every=N offset=M	only every Nth drain
 *	rotate=1	of the four kinds of survival only one at each, in turn
 *	parts=N part=M		this process does the Mth of N parts
 *	deep=N		in every Nth image also write, vacuum, drop and count
 *	seed=N
 *	cut=N survival=0..3	one point only
 *	from=STEP to=STEP	only from the begin of one step to the end of another
 *	script=FILE	again: steps that follow the recovery (record.c)
 *	call=NAME	a call that is left out (by again: in what it starts from); for calls also several, with commas
 *	drop=N		one flush in N is left out; stops when that was noticed
 *	list=1		only names of calls, and how often they were made
 *	first=1		kills: of each flush the first point
 *	tries=N		points at which a missing call is looked for
 *
 * Exit code: 0 fine, 1 a promise was broken, 2 it could not work.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "medium.h"

void
die(const char *fmt,...)
{
	va_list		args;

	fflush(stdout);
	fprintf(stderr, "medium: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(2);
}

char *
print(const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		die("out of memory");
	va_end(args);
	return text;
}

void *
allocate(size_t size)
{
	void	   *p = calloc(1, size);

	if (p == NULL)
		die("out of memory");
	return p;
}

void *
reallocate(void *p, size_t size)
{
	p = realloc(p, size);
	if (p == NULL)
		die("out of memory");
	return p;
}

/* The contents of a file, with a zero byte after them */
char *
read_whole(const char *path, size_t *size)
{
	FILE	   *f = fopen(path, "r");
	char	   *text = NULL;
	size_t		n = 0;
	size_t		space = 0;
	size_t		got;

	if (f == NULL)
		die("%s: %s", path, strerror(errno));
	do
	{
		space = space * 2 + 65536;
		text = reallocate(text, space + 1);
		got = fread(text + n, 1, space - n, f);
		n += got;
	} while (n == space);
	fclose(f);
	text[n] = '\0';
	if (size != NULL)
		*size = n;
	return text;
}

/* xorshift64* */
uint64_t
random_next(uint64_t *state)
{
	uint64_t	x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * 0x2545F4914F6CDD1Du) >> 8;
}

double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

int
main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	signal(SIGPIPE, SIG_IGN);
	if (strcmp(what, "record") == 0)
		return record_main(argc - 1, argv + 1);
	if (strcmp(what, "clients") == 0)
		return clients_main(argc - 1, argv + 1);
	if (strcmp(what, "again") == 0)
		return again_main(argc - 1, argv + 1);
	if (strcmp(what, "enumerate") == 0)
		return enumerate_main(argc - 1, argv + 1);
	if (strcmp(what, "kills") == 0)
		return kills_main(argc - 1, argv + 1);
	if (strcmp(what, "calls") == 0)
		return calls_main(argc - 1, argv + 1);
	die("usage: medium record | clients | enumerate | calls | kills | again ... (see t/medium/main.c)");
}
