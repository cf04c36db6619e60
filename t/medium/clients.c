/*-------------------------------------------------------------------------
 *
 * clients.c
 *	  Several clients at once, on the same tables; each knows what its own rows
 *	  must be.
 *
 *	medium clients CONNINFO LOG STEPS CLIENTS TRANSACTIONS SEED
 *
 * Tables: many and heap_many (rows belong to a client, column who), shared (rows
 * that all lock).  One process more vacuums all the time.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "medium.h"

static const char *conninfo;
static const ShadowHeader *header;
static PGconn *conn;
static int	who;
static uint64_t dice;
static uint64_t sent;

static void
connect_to_server(void)
{
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
}

static unsigned
pick(unsigned n)
{
	return (unsigned) (random_next(&dice) % n);
}

/* Run a statement; what may end a transaction is noted by its place in the log. */
static bool
run(const char *fmt,...)
{
	va_list		args;
	char	   *sql;
	PGresult   *res;
	bool		ok;

	va_start(args, fmt);
	if (vasprintf(&sql, fmt, args) < 0)
		die("out of memory");
	va_end(args);
	sent = header->tail;
	res = PQexec(conn, sql);
	ok = PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK;
	if (!ok && strcmp(PQresultErrorField(res, PG_DIAG_SQLSTATE) ?: "", "40P01") != 0)
		die("%s\nfailed: %s", sql, PQerrorMessage(conn));
	PQclear(res);
	free(sql);
	return ok;
}

/* Words that others make at the same time, so that dictionaries are shared */
static char *
word(int n)
{
	static char text[4][64];
	static int	next = 0;
	char	   *t = text[next++ % 4];

	snprintf(t, sizeof(text[0]), "word %d", n / 2 + (int) pick(3));
	return t;
}

static bool
one_statement(int n)
{
	switch (pick(9))
	{
		case 0:
		case 1:
			return run("INSERT INTO many VALUES (%d, %d, '%s', %u)", who, n, word(n), pick(100));
		case 2:
			return run("INSERT INTO many SELECT %d, %d + i * 100000, '%s', i, repeat('%c', %u) FROM generate_series(1, 3) i",
					   who, n, word(n), 'a' + pick(26), pick(400));
		case 3:
			return run("UPDATE many SET v = v + 1, word = '%s' WHERE who = %d AND id %% 5 = %u", word(n), who, pick(5));
		case 4:
			return run("UPDATE many SET id = id + 1000000 WHERE who = %d AND id %% 7 = %u", who, pick(7));
		case 5:
			return run("DELETE FROM many WHERE who = %d AND id %% 6 = %u", who, pick(6));
		case 6:
			return run("UPDATE many SET long = repeat(word, %u) WHERE who = %d AND id %% 4 = %u", pick(500), who, pick(4));
		case 7:
			return run("SELECT * FROM shared WHERE id = %u FOR SHARE", pick(4));
		default:
			return run("UPDATE many SET v = v + 1 WHERE who = %d AND id = (SELECT max(id) FROM many WHERE who = %d)", who, who);
	}
}

static void
one_transaction(int n)
{
	unsigned	kind = pick(10);
	bool		ok = true;

	if (kind < 3)
	{
		(void) one_statement(n);
		return;
	}
	(void) run("BEGIN");
	ok = one_statement(n);
	if (ok && kind == 4)
	{
		ok = run("SAVEPOINT s") && one_statement(n + 10000);
		if (ok)
			(void) run("ROLLBACK TO s");
	}
	if (ok && kind == 5)
		ok = run("INSERT INTO heap_many VALUES (%d, %d)", who, n);
	if (ok)
		ok = one_statement(n + 20000);
	if (!ok || kind == 6)
		(void) run("ROLLBACK");
	else
		(void) run("COMMIT");
}

static void
write_step(FILE *out, uint64_t acknowledged, int n)
{
	char		sql[100];
	PGresult   *res;

	snprintf(sql, sizeof(sql), "SELECT chk.contents_of(%d)", who);
	res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		die("%s: %s", sql, PQerrorMessage(conn));
	fprintf(out, "%d %llu %llu 0 client %d transaction %d|%s\n", who, (unsigned long long) sent,
			(unsigned long long) acknowledged, who, n, PQgetvalue(res, 0, 0));
	PQclear(res);
}

static void
client(FILE *out, int transactions, uint64_t seed)
{
	int			n;

	dice = seed * 7919 + (uint64_t) who * 104729;
	connect_to_server();
	sent = header->tail;
	write_step(out, header->tail, 0);
	for (n = 1; n <= transactions; n++)
	{
		one_transaction(n);
		write_step(out, header->tail, n);
	}
	fflush(out);
	PQfinish(conn);
	_exit(0);
}

static void
vacuum_for_ever(void)
{
	connect_to_server();
	for (;;)
	{
		PQclear(PQexec(conn, "VACUUM many, shared"));
		usleep(20000);
	}
}

static void
set_delay(const char *path, uint32_t delay)
{
	int			fd = open(path, O_RDWR);
	ShadowHeader *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (h == MAP_FAILED)
		die("mmap");
	h->delay = delay;
	munmap(h, 4096);
	close(fd);
}

int
clients_main(int argc, char **argv)
{
	FILE	   *out;
	FILE	  **part;
	pid_t	   *pids;
	pid_t		vacuum;
	int			n;
	int			i;
	char		line[65536];

	if (argc != 7)
		die("usage: medium clients CONNINFO LOG STEPS CLIENTS TRANSACTIONS SEED");
	conninfo = argv[1];
	header = log_open(argv[2]);
	n = atoi(argv[4]);
	connect_to_server();
	(void) run("CREATE TABLE many (who int, id int, word varchar, v int, long text, PRIMARY KEY (who, id)) USING sofort");
	(void) run("CREATE INDEX many_v ON many (v)");
	(void) run("CREATE TABLE shared (id int PRIMARY KEY, v int) USING sofort");
	(void) run("INSERT INTO shared SELECT i, 0 FROM generate_series(0, 3) i");
	(void) run("CREATE TABLE heap_many (who int, id int) USING heap");
	(void) run("INSERT INTO many SELECT w, -i, 'word ' || i %% 9, i FROM generate_series(1, %d) w, generate_series(1, 8) i", n);
	PQfinish(conn);
	set_delay(argv[2], 300);

	pids = allocate(n * sizeof(pid_t));
	part = allocate(n * sizeof(FILE *));
	fflush(NULL);
	for (i = 0; i < n; i++)
	{
		part[i] = tmpfile();
		who = i + 1;
		pids[i] = fork();
		if (pids[i] == 0)
			client(part[i], atoi(argv[5]), strtoull(argv[6], NULL, 10));
	}
	vacuum = fork();
	if (vacuum == 0)
		vacuum_for_ever();
	out = fopen(argv[3], "w");
	for (i = 0; i < n; i++)
	{
		int			status;

		waitpid(pids[i], &status, 0);
		if (status != 0)
			die("a client failed");
		rewind(part[i]);
		while (fgets(line, sizeof(line), part[i]) != NULL)
			fputs(line, out);
	}
	kill(vacuum, SIGTERM);
	waitpid(vacuum, NULL, 0);
	set_delay(argv[2], 0);
	if (out == NULL || fclose(out) != 0)
		die("cannot write %s", argv[3]);
	printf("steps=%d drains=%llu log=%llu\n", n * atoi(argv[5]), (unsigned long long) header->drains,
		   (unsigned long long) header->tail);
	return 0;
}
