/*-------------------------------------------------------------------------
 *
 * client.c
 *	  A client whose transactions go on after a crash of the server: an example
 *	  of how one is written, and the load of bench/continuation/run.
 *
 *	client CONNINFO NUMBER ORDERS LINES PACE
 *
 * Enters ORDERS orders of LINES lines, one statement every PACE milliseconds, each
 * order as one transaction.  Prints a CSV line for each:
 *
 *	client,order,statements,interruptions,longest_ms,rolled_back
 *
 * longest_ms: from the last answer before a crash to the first one of a statement
 * that came after it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#define GIVE_UP_SECONDS 120

typedef struct Order
{
	int			client;
	int			number;
	int			lines;
	char		token[64];		/* empty: not kept yet */
} Order;

static const char *conninfo;
static PGconn *conn = NULL;
static double last_answer;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void
sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};

	nanosleep(&t, NULL);
}

static void
die(const char *what)
{
	fprintf(stderr, "client: %s\n", what);
	exit(1);
}

/* Is the connection usable, after waiting for the server if need be? */
static void
connect_again(void)
{
	double		begun = now();

	for (;;)
	{
		if (conn != NULL)
			PQfinish(conn);
		conn = PQconnectdb(conninfo);
		if (PQstatus(conn) == CONNECTION_OK)
			return;
		if (now() - begun > GIVE_UP_SECONDS)
			die(PQerrorMessage(conn));
		sleep_ms(5);
	}
}

/*
 * Run a statement; first column of the first row goes to answer.  1: done;
 * 0: the server is gone; errors that are no crash end the program.
 */
static int
run(const char *sql, char *answer, size_t size)
{
	PGresult   *r = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(r);

	if (status == PGRES_TUPLES_OK && answer != NULL)
	{
		answer[0] = '\0';
		if (PQntuples(r) > 0 && !PQgetisnull(r, 0, 0))
			snprintf(answer, size, "%s", PQgetvalue(r, 0, 0));
	}
	PQclear(r);
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
	{
		last_answer = now();
		return 1;
	}
	if (PQstatus(conn) == CONNECTION_OK)
		die(PQerrorMessage(conn));
	return 0;
}

/* Statement n of an order; 1 + 2 * lines of them. */
static void
statement(const Order *o, int n, char *sql, size_t size)
{
	int			line = (n + 1) / 2;

	if (n == 0)
		snprintf(sql, size, "INSERT INTO orders VALUES (%d, %d, %d)", o->client, o->number, o->lines);
	else if (n % 2 == 1)
		snprintf(sql, size, "UPDATE stock SET quantity = quantity - 1 WHERE item = %d",
				 o->client * 1000 + line);
	else
		snprintf(sql, size, "INSERT INTO order_line VALUES (%d, %d, %d, %d)", o->client, o->number,
				 line, o->client * 1000 + line);
}

/*
 * After a crash: go on with the order.  *n: its next statement.  1: ours again;
 * 2: it had been committed; -1: it is lost; 0: the server is gone again.
 */
static int
resume(const Order *o, int *n)
{
	char		sql[256];
	char		answer[64];

	connect_again();
	snprintf(sql, sizeof(sql), "SELECT sofort.transaction_outcome('%s')", o->token);
	if (!run(sql, answer, sizeof(answer)))
		return 0;
	if (strcmp(answer, "committed") == 0)
		return 2;
	if (strcmp(answer, "open") != 0)
		return -1;
	snprintf(sql, sizeof(sql), "SELECT statements FROM sofort.resume_transaction('%s')", o->token);
	if (!run("BEGIN", NULL, 0) || !run(sql, answer, sizeof(answer)))
		return 0;
	*n = atoi(answer);
	return 1;
}

static void
enter_order(Order *o, int pace)
{
	int			statements = 1 + 2 * o->lines;
	int			n = 0;
	int			interruptions = 0;
	int			rolled_back = 0;
	int			open = 0;
	double		stood_since = 0;
	double		longest = 0;
	char		sql[256];

	o->token[0] = '\0';
	for (;;)
	{
		int			ok;

		if (!open)
		{
			n = 0;
			snprintf(sql, sizeof(sql), "SELECT sofort.keep_transaction('client %d order %d')",
					 o->client, o->number);
			ok = run("BEGIN", NULL, 0) && run(sql, o->token, sizeof(o->token));
			open = ok;
		}
		else if (n < statements)
		{
			statement(o, n, sql, sizeof(sql));
			ok = run(sql, NULL, 0);
			if (ok)
			{
				n++;
				if (stood_since > 0 && now() - stood_since > longest)
					longest = now() - stood_since;
				stood_since = 0;
				sleep_ms(pace);
			}
		}
		else
		{
			ok = run("COMMIT", NULL, 0);
			if (ok)
				break;
		}
		if (ok)
			continue;

		/* the server is gone */
		interruptions++;
		if (stood_since == 0)
			stood_since = last_answer;
		if (o->token[0] == '\0')
		{
			connect_again();	/* nothing was done yet */
			continue;
		}
		while ((ok = resume(o, &n)) == 0)
			;
		if (ok == 2)
			break;
		if (ok < 0)
		{
			rolled_back++;
			open = 0;
			o->token[0] = '\0';
		}
	}
	printf("%d,%d,%d,%d,%.0f,%d\n", o->client, o->number, statements, interruptions,
		   longest * 1000, rolled_back);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	Order		o = {0};
	int			orders;
	int			pace;

	if (argc != 6)
		die("usage: client CONNINFO NUMBER ORDERS LINES PACE");
	conninfo = argv[1];
	o.client = atoi(argv[2]);
	orders = atoi(argv[3]);
	o.lines = atoi(argv[4]);
	pace = atoi(argv[5]);
	connect_again();
	for (o.number = 1; o.number <= orders; o.number++)
		enter_order(&o, pace);
	PQfinish(conn);
	return 0;
}
