/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What a statement of a kept transaction costs, beside one of an ordinary
 *	  transaction: two sessions with a long transaction each, of one kind of
 *	  statement, one of them kept.  They run a statement in turn, so that what
 *	  else the machine does meets both.  Rolled back at the end.
 *
 *	cost CONNINFO ROUNDS STATEMENTS ROWS
 *
 * Needs a table "cost" (id int PRIMARY KEY, v int, t text) with ids 1 to ROWS, at
 * least 40 times STATEMENTS.  Prints a CSV line for each round of each kind, with
 * medians:
 *
 *	statement,round,ordinary_us,kept_us
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <libpq-fe.h>

typedef enum Keys
{
	SCATTERED,					/* neighbours in time are in different blocks */
	FRESH,						/* never were there */
	RANGES						/* 20 rows each */
} Keys;

typedef struct Kind
{
	const char *name;
	const char *sql;			/* one parameter */
	Keys		keys;
} Kind;

static const Kind kinds[] = {
	{"select", "SELECT v, t FROM cost WHERE id = $1::int", SCATTERED},
	{"insert", "INSERT INTO cost VALUES ($1::int, 1, 'one row')", FRESH},
	{"update", "UPDATE cost SET v = v + 1 WHERE id = $1::int", SCATTERED},
	{"update key", "UPDATE cost SET id = -id WHERE id = $1::int", SCATTERED},
	{"delete", "DELETE FROM cost WHERE id = $1::int", SCATTERED},
	{"lock", "SELECT v FROM cost WHERE id = $1::int FOR UPDATE", SCATTERED},
	{"update 20", "UPDATE cost SET v = v + 1 WHERE id >= $1::int AND id < $1::int + 20", RANGES}
};

#define KINDS	((int) (sizeof(kinds) / sizeof(kinds[0])))

static PGconn *conn[2];
static int	statements;
static long rows;
static long used = 0;			/* keys */

static double
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void
check(PGconn *c, PGresult *r)
{
	ExecStatusType status = PQresultStatus(r);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
	{
		fprintf(stderr, "cost: %s", PQerrorMessage(c));
		exit(1);
	}
	PQclear(r);
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static double
median(double *v, int n)
{
	qsort(v, n, sizeof(double), compare);
	return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* One statement; microseconds. */
static double
execute(PGconn *c, const Kind *kind, long key)
{
	char		number[32];
	const char *values[1] = {number};
	double		begun;

	switch (kind->keys)
	{
		case SCATTERED:
			key = 1 + key * 7919 % rows;
			break;
		case FRESH:
			key = rows + 1 + key;
			break;
		case RANGES:
			key = 1 + key * 20 % rows;
			break;
	}
	snprintf(number, sizeof(number), "%ld", key);
	begun = now_us();
	check(c, PQexecPrepared(c, kind->name, 1, values, NULL, NULL, 0));
	return now_us() - begun;
}

/* us: of the ordinary one, of the kept one */
static void
run_round(const Kind *kind, int kept, double *times[2], double *us)
{
	int			i;

	for (i = 0; i < 2; i++)
		check(conn[i], PQexec(conn[i], "BEGIN"));
	check(conn[kept], PQexec(conn[kept], "SELECT sofort.keep_transaction()"));
	for (i = 0; i < 2 * statements; i++)
	{
		/* A B, B A, ... */
		int			c = (i ^ (i >> 1)) & 1;

		times[c][i / 2] = execute(conn[c], kind, used++);
	}
	for (i = 0; i < 2; i++)
		check(conn[i], PQexec(conn[i], "ROLLBACK"));
	us[0] = median(times[!kept], statements);
	us[1] = median(times[kept], statements);
}

int
main(int argc, char **argv)
{
	double	   *times[2];
	int			rounds;
	int			r;
	int			i;
	int			k;

	if (argc != 5)
	{
		fprintf(stderr, "usage: cost CONNINFO ROUNDS STATEMENTS ROWS\n");
		return 2;
	}
	rounds = atoi(argv[2]);
	statements = atoi(argv[3]);
	rows = atol(argv[4]);
	for (i = 0; i < 2; i++)
	{
		times[i] = malloc(statements * sizeof(double));
		conn[i] = PQconnectdb(argv[1]);
		if (times[i] == NULL || PQstatus(conn[i]) != CONNECTION_OK)
		{
			fprintf(stderr, "cost: %s", PQerrorMessage(conn[i]));
			return 1;
		}
		for (k = 0; k < KINDS; k++)
			check(conn[i], PQprepare(conn[i], kinds[k].name, kinds[k].sql, 0, NULL));
	}

	/* the first round warms up */
	for (r = 0; r <= rounds; r++)
	{
		for (k = 0; k < KINDS; k++)
		{
			double		us[2];

			run_round(&kinds[k], r % 2, times, us);
			if (r > 0)
				printf("%s,%d,%.3f,%.3f\n", kinds[k].name, r, us[0], us[1]);
		}
	}
	return 0;
}
