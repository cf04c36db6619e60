/*-------------------------------------------------------------------------
 *
 * record.c
 *	  Runs a script and notes, for each step, between which points of the log
 *	  it committed and what the database contained after it.
 *
 *	medium record CONNINFO LOG SCRIPT STEPS
 *
 * A step of the script is one transaction, or one statement outside of any:
 *
 *		-- step NAME [@SESSION] [(may fail)]
 *		statement;			(a ";" at the end of a line ends it)
 *		COPY t FROM STDIN;	(followed by data and a line "\.")
 *
 * Its last statement is what commits.  Sessions have numbers; those without one
 * are run by 4, 5 and 6 in turn, so that what one leaves meets what another does.
 *
 *		-- step NAME @SESSION (held at POINT)
 *		-- step NAME @SESSION (goes on)
 *
 * The last statement of the first stops at the named stop point, with what it has
 * stored and not drained, while other sessions go on; it ends in the second.
 *
 *		-- step NAME @SESSION (may have committed)
 *
 * An ERROR takes a commit back that was durable already.  While the step is in
 * flight, what its session saw before its last statement may be there, too.
 *
 *		-- step NAME @SESSION (kept)
 *
 * Each statement is acknowledged by itself, not only the last one.
 *
 *		-- step NAME @SESSION (leaves)
 *
 * The session ends with the step: its process exits.
 *
 *		-- slots 2 3 8
 *
 * Sessions, so that what a crash leaves of the last one is resolved last.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "medium.h"

#define SESSIONS	16

static const char *conninfo;
static PGconn *session[SESSIONS];
static PGconn *observer;
static const ShadowHeader *header;
static char *next_line;
static int	steps = 0;
static char held_at[SESSIONS][64];	/* stop point at which a session waits */

static PGconn *
connect_to_server(void)
{
	PGconn	   *c = PQconnectdb(conninfo);

	if (PQstatus(c) != CONNECTION_OK)
		die("%s", PQerrorMessage(c));
	return c;
}

static PGconn *
session_of(int number)
{
	if (number < 1 || number >= SESSIONS)
		die("no session %d", number);
	if (session[number] == NULL)
		session[number] = connect_to_server();
	return session[number];
}

/* Lines of the script, one after the other; the text is cut up. */
static char *
get_line(void)
{
	char	   *line = next_line;
	char	   *end;

	if (line == NULL || *line == '\0')
		return NULL;
	end = strchr(line, '\n');
	if (end != NULL)
		*end = '\0';
	next_line = end != NULL ? end + 1 : NULL;
	return line;
}

static bool
ends_statement(const char *line)
{
	size_t		n = strlen(line);

	return n > 0 && line[n - 1] == ';';
}

static void
copy_data(PGconn *c)
{
	char	   *line;

	while ((line = get_line()) != NULL && strcmp(line, "\\.") != 0)
	{
		char	   *row = print("%s\n", line);

		if (PQputCopyData(c, row, (int) strlen(row)) != 1)
			die("COPY: %s", PQerrorMessage(c));
		free(row);
	}
	if (PQputCopyEnd(c, NULL) != 1)
		die("COPY: %s", PQerrorMessage(c));
}

/* Returns false if it failed. */
static bool
execute(PGconn *c, const char *sql, bool may_fail)
{
	PGresult   *res = PQexec(c, sql);
	ExecStatusType status = PQresultStatus(res);

	PQclear(res);
	if (status == PGRES_COPY_IN)
	{
		copy_data(c);
		while ((res = PQgetResult(c)) != NULL)
		{
			status = PQresultStatus(res);
			PQclear(res);
		}
	}
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return true;
	if (!may_fail)
		die("%s\nfailed: %s", sql, PQerrorMessage(c));
	return false;
}

static char *
value_of(PGconn *c, const char *sql)
{
	PGresult   *res = PQexec(c, sql);
	char	   *value;

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		die("%s: %s", sql, PQerrorMessage(c));
	value = strdup(PQgetvalue(res, 0, 0));
	PQclear(res);
	return value;
}

static char *
observe(const char *sql)
{
	return value_of(observer, sql);
}

/* other: contents that may be found while the step is in flight, or NULL */
static void
write_step(FILE *out, uint64_t sent, uint64_t acknowledged, const char *name, const char *other)
{
	char	   *contents = observe("SELECT chk.contents()");
	char	   *flushed = observe("SELECT pg_current_wal_flush_lsn() - '0/0'");

	fprintf(out, "0 %llu %llu %s %s|%s%s%s\n", (unsigned long long) sent,
			(unsigned long long) acknowledged, flushed, name, contents,
			other != NULL ? "|" : "", other != NULL ? other : "");
	free(contents);
	free(flushed);
}

/* Send a statement, which stops at a point. */
static void
hold(int number, const char *title, const char *sql)
{
	char	   *point = held_at[number];
	char	   *query;
	int			i;

	if (sscanf(strstr(title, " (held at "), " (held at %63[^)]", point) != 1)
		die("no stop point: %s", title);
	free(observe(print("SELECT sofort_test.arm('%s', 'wait')", point)));
	if (!PQsendQuery(session[number], sql))
		die("%s", PQerrorMessage(session[number]));
	query = print("SELECT sofort_test.waiters('%s')", point);
	for (i = 0; i < 3000; i++)
	{
		char	   *waiters = observe(query);
		bool		there = strcmp(waiters, "1") == 0;

		free(waiters);
		if (there)
			return;
		usleep(5000);
	}
	die("%s does not come to %s", title, point);
}

/* Let it go on, to its end. */
static void
let_go(int number, bool may_fail)
{
	PGresult   *res;

	free(observe(print("SELECT sofort_test.disarm('%s')", held_at[number])));
	held_at[number][0] = '\0';
	while ((res = PQgetResult(session[number])) != NULL)
	{
		if (!may_fail && PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
			die("held statement: %s", PQresultErrorMessage(res));
		PQclear(res);
	}
}

/* The session ends, and its process with it. */
static void
leave(int number)
{
	char	   *query = print("SELECT count(*) FROM pg_stat_activity WHERE pid = %d",
							  PQbackendPID(session[number]));
	int			i;

	PQfinish(session[number]);
	session[number] = NULL;
	for (i = 0; i < 3000; i++)
	{
		char	   *there = observe(query);
		bool		gone = strcmp(there, "0") == 0;

		free(there);
		if (gone)
			return;
		usleep(5000);
	}
	die("a session does not end");
}

/* Is there another statement in this step? */
static bool
step_goes_on(void)
{
	const char *p = next_line;

	while (p != NULL && *p == '\n')
		p++;
	return p != NULL && *p != '\0' && strncmp(p, "-- step", 7) != 0;
}

static void
run_step(FILE *out, char *title)
{
	int			number = 4 + steps % 3;
	char	   *in = strstr(title, " @");
	bool		may_fail = strstr(title, " (may fail)") != NULL;
	bool		held = strstr(title, " (held at ") != NULL;
	bool		kept = strstr(title, " (kept)") != NULL;
	char	   *sql = strdup("");
	bool		goes_on = strstr(title, " (goes on)") != NULL;
	char	   *seen = NULL;
	uint64_t	sent;
	PGconn	   *c;

	if (in != NULL)
		number = atoi(in + 2);
	c = session_of(number);
	sent = header->tail;
	if (goes_on)
		let_go(number, may_fail);
	for (;;)
	{
		bool		last = next_line == NULL || *next_line == '\0' ||
			strncmp(next_line, "-- step", 7) == 0;
		char	   *line;
		char	   *more;

		if (last)
			break;
		line = get_line();
		more = print("%s%s\n", sql, line);
		free(sql);
		sql = more;
		if (!ends_statement(line))
			continue;
		if (!step_goes_on() && strstr(title, " (may have committed)") != NULL)
			seen = value_of(c, "SELECT chk.contents()");
		if (!goes_on)			/* what was held may have committed since */
			sent = header->tail;
		if (held && !step_goes_on())
			hold(number, title, sql);
		else
			(void) execute(c, sql, may_fail);
		if (kept && step_goes_on())
			write_step(out, sent, header->tail, print("in %s", title), NULL);
		free(sql);
		sql = strdup("");
	}
	free(sql);
	if (strstr(title, " (leaves)") != NULL)
		leave(number);
	write_step(out, sent, header->tail, title, seen);
	free(seen);
}

/*
 * Processes take their places, and with them the slots of their transactions, from
 * the last to the first; from PostgreSQL 16 on from the first to the last.
 */
static void
connect_in_order(const char *line)
{
	int			number[SESSIONS];
	int			n = 0;
	int			used;

	while (n < SESSIONS && sscanf(line, "%d%n", &number[n], &used) == 1)
	{
		line += used;
		n++;
	}
	for (int i = 0; i < n; i++)
		(void) session_of(number[PQserverVersion(observer) < 160000 ? n - 1 - i : i]);
}

/* Run the steps of a script, and write what they leave.  Returns their number. */
int
record_script(const char *server, const char *log, const char *path, FILE *out)
{
	char	   *line;

	conninfo = server;
	header = log_open(log);
	next_line = read_whole(path, NULL);
	observer = connect_to_server();
	write_step(out, header->tail, header->tail, "begin", NULL);
	while ((line = get_line()) != NULL)
	{
		if (strncmp(line, "-- step ", 8) == 0)
		{
			run_step(out, line + 8);
			steps++;
		}
		else if (strncmp(line, "-- slots ", 9) == 0)
			connect_in_order(line + 9);
	}
	return steps;
}

int
record_main(int argc, char **argv)
{
	FILE	   *out;

	if (argc != 5)
		die("usage: medium record CONNINFO LOG SCRIPT STEPS");
	out = fopen(argv[4], "w");
	if (out == NULL)
		die("cannot write %s", argv[4]);
	(void) record_script(argv[1], argv[2], argv[3], out);
	fclose(out);
	printf("steps=%d drains=%llu log=%llu\n", steps, (unsigned long long) header->drains,
		   (unsigned long long) header->tail);
	return 0;
}
