/*-------------------------------------------------------------------------
 *
 * witness.c
 *	  The outside witness: a client that knows what the server promised.
 *
 *	witness init CONNINFO AM1 AM2
 *		creates its tables: w_item, w_counter and w_account with table access
 *		method AM1, w_log with AM2
 *	witness run CONNINFO DIR WRITERS SECONDS
 *		WRITERS processes run transactions, one more looks for halves of
 *		transactions, until the time is over or the server is gone
 *	witness verify CONNINFO DIR WRITERS
 *		compares the database with what was acknowledged
 *	witness answer CONNINFO SQL SINCE_US PID SECONDS
 *		tries until SQL returns a row; prints the milliseconds since SINCE_US
 *		(microseconds of the real-time clock); gives up when PID is gone
 *
 * Each writer numbers its transactions 1, 2, 3, ...; what number s does
 * follows from (writer, s) alone (struct Plan). DIR/writer.N is a mapped file with
 * one byte for each number: 'R' from the start (rolled back, or never sent
 * COMMIT), '?' before COMMIT is sent, 'C' after it was acknowledged. So the
 * file tells exactly what must be there, what must not, and that at most the
 * last one of each writer may be either. It outlives server and witness.
 *
 * Exit code: 0 fine, 1 the server broke a promise (whatever else happened), 2 the
 * witness could not work.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#define MAX_WRITERS		64
#define MAX_SEQ			(4 * 1024 * 1024)
#define PARTS			3
#define ACCOUNTS		50
#define START_BALANCE	1000

/* What transaction s does. Kinds 4 and 5 work on the rows of s - 4. */
typedef enum Kind
{
	KIND_INSERT = 0,			/* rows in AM1 only */
	KIND_MIXED,					/* rows in AM1 and AM2 */
	KIND_SAVEPOINT,				/* one row more, rolled back to a savepoint */
	KIND_ROLLBACK,				/* the client rolls back */
	KIND_DELETE,				/* deletes rows of a KIND_INSERT */
	KIND_UPDATE,				/* updates rows of a KIND_MIXED, both AMs */
	KIND_TRANSFER,				/* rows, and money between two accounts */
	KIND_AUTOCOMMIT,			/* everything in one statement, no BEGIN */
	KINDS
} Kind;

#define KIND_OF(s)			((Kind) ((s) % KINDS))
#define HAS_ROWS(k)			((k) != KIND_DELETE && (k) != KIND_UPDATE)
#define TARGET_DISTANCE		4

static int	violations = 0;

static void
fail(const char *fmt,...)
{
	va_list		ap;

	fflush(stdout);
	fprintf(stderr, "witness: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(violations > 0 ? 1 : 2);
}

static void
violation(const char *fmt,...)
{
	va_list		ap;

	if (++violations > 20)
		return;
	fflush(stdout);
	fprintf(stderr, "witness: PROMISE BROKEN: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
}

static int64_t
now_us(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (int64_t) tv.tv_sec * 1000000 + tv.tv_usec;
}

static void
sleep_us(long us)
{
	struct timespec ts = {us / 1000000, (us % 1000000) * 1000};

	nanosleep(&ts, NULL);
}

/* splitmix64: contents follow from (writer, seq, what). */
static uint64_t
mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t	z = a * UINT64_C(0x9E3779B97F4A7C15) + b * UINT64_C(0xD1B54A32D192ED03) + c;

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* ---- what must be in the rows ---- */

static int64_t
item_id(int writer, int64_t seq)
{
	return (int64_t) (mix(writer, seq, 1) >> 1);
}

/* 0 stands for NULL */
static int
item_opt(int writer, int64_t seq, int part)
{
	return (int) (mix(writer, seq, 10 + part) % 5);
}

static void
item_payload(char *buf, size_t size, int writer, int64_t seq, int part, int ver)
{
	int			repeats = 1 + (int) (mix(writer, seq, 20 + part) % 12);
	size_t		used = 0;

	/* Some long ones, so that values outside the record occur as well. */
	if (seq % 97 == 0)
		repeats = 150;
	for (int i = 0; i < repeats; i++)
		used += snprintf(buf + used, size - used, "w%d.s%lld.p%d.v%d;", writer,
						 (long long) seq, part, ver);
}

#define PAYLOAD_SIZE	8192

typedef struct Transfer
{
	int			from;
	int			to;
	int			amount;
} Transfer;

static Transfer
transfer_of(int writer, int64_t seq)
{
	Transfer	t;

	t.from = (int) (mix(writer, seq, 40) % ACCOUNTS);
	t.to = (int) ((t.from + 1 + mix(writer, seq, 41) % (ACCOUNTS - 1)) % ACCOUNTS);
	t.amount = 1 + (int) (mix(writer, seq, 42) % 9);
	return t;
}

/* ---- memory ---- */

static volatile char *
map_memory(const char *dir, int writer)
{
	char		path[4096];
	int			fd;
	void	   *p;

	snprintf(path, sizeof(path), "%s/writer.%d", dir, writer);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, MAX_SEQ) != 0)
		fail("%s: %s", path, strerror(errno));
	p = mmap(NULL, MAX_SEQ, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		fail("mmap %s: %s", path, strerror(errno));
	close(fd);
	return p;
}

/* Number of the last transaction that was begun, 0 if none. */
static int64_t
last_begun(volatile const char *memory)
{
	int64_t		lo = 0,
				hi = MAX_SEQ - 1;

	while (lo < hi)
	{
		int64_t		mid = (lo + hi + 1) / 2;

		if (memory[mid] != 0)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

static bool
committed(volatile const char *memory, int64_t seq)
{
	return seq > 0 && memory[seq] == 'C';
}

/* Are rows of seq expected, and in which version (0: none)? */
static int
expected_version(volatile const char *memory, int64_t seq)
{
	Kind		kind = KIND_OF(seq);

	if (!committed(memory, seq) || !HAS_ROWS(kind))
		return 0;
	if (kind == KIND_INSERT && seq + TARGET_DISTANCE < MAX_SEQ &&
		committed(memory, seq + TARGET_DISTANCE))
		return 0;
	if (kind == KIND_MIXED && seq + TARGET_DISTANCE < MAX_SEQ &&
		committed(memory, seq + TARGET_DISTANCE))
		return 2;
	return 1;
}

/* ---- the database ---- */

/* Did the server go away, as opposed to refusing one statement? */
static bool
server_gone(PGconn *conn, PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	if (PQstatus(conn) == CONNECTION_BAD)
		return true;
	/* admin_shutdown, crash_shutdown, cannot_connect_now */
	return state != NULL && strncmp(state, "57P0", 4) == 0;
}

/*
 * Run one statement; *rows gets the number of affected or returned rows.
 * false: the server is gone. Any other error ends the witness.
 */
static bool
run(PGconn *conn, const char *name, int nargs, const char *const *args, int *rows)
{
	PGresult   *res;
	ExecStatusType status;

	if (nargs < 0)
		res = PQexec(conn, name);
	else
		res = PQexecPrepared(conn, name, nargs, args, NULL, NULL, 0);
	status = PQresultStatus(res);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
	{
		bool		gone = server_gone(conn, res);

		if (!gone)
			fail("%s: %s", name, PQerrorMessage(conn));
		PQclear(res);
		return false;
	}
	if (rows != NULL)
		*rows = status == PGRES_TUPLES_OK ? PQntuples(res) : atoi(PQcmdTuples(res));
	PQclear(res);
	return true;
}

static PGconn *
try_connect(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
	{
		PQfinish(conn);
		return NULL;
	}
	return conn;
}

static PGconn *
must_connect(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		fail("%s", PQerrorMessage(conn));
	return conn;
}

static PGresult *
must_query(PGconn *conn, const char *sql)
{
	PGresult   *res = PQexec(conn, sql);

	if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
		fail("%s: %s", sql, PQerrorMessage(conn));
	return res;
}

static int
cmd_init(const char *conninfo, const char *am1, const char *am2)
{
	PGconn	   *conn = must_connect(conninfo);
	char		sql[4096];

	snprintf(sql, sizeof(sql),
			 "CREATE TABLE w_item (writer int, seq bigint, part smallint, id bigint NOT NULL, ver smallint NOT NULL,"
			 " opt int, payload text NOT NULL, PRIMARY KEY (writer, seq, part)) USING %s;"
			 "CREATE TABLE w_counter (writer int PRIMARY KEY, n bigint NOT NULL, last bigint NOT NULL) USING %s;"
			 "CREATE TABLE w_account (a int PRIMARY KEY, balance bigint NOT NULL) USING %s;"
			 "CREATE TABLE w_log (writer int, seq bigint, ver smallint NOT NULL, payload text NOT NULL,"
			 " PRIMARY KEY (writer, seq)) USING %s;"
			 "INSERT INTO w_counter SELECT w, 0, 0 FROM generate_series(0, %d) w;"
			 "INSERT INTO w_account SELECT a, %d FROM generate_series(0, %d) a",
			 am1, am1, am1, am2, MAX_WRITERS - 1, START_BALANCE, ACCOUNTS - 1);
	PQclear(must_query(conn, sql));
	PQfinish(conn);
	return 0;
}

static const char *const prepared[][2] = {
	{"item", "INSERT INTO w_item VALUES ($1::int, $2::bigint, $3::smallint, $4::bigint, $5::smallint, $6::int, $7::text)"},
	{"log", "INSERT INTO w_log VALUES ($1::int, $2::bigint, 1, $3::text)"},
	{"count", "UPDATE w_counter SET n = n + 1, last = $2::bigint WHERE writer = $1::int"},
	{"delete", "DELETE FROM w_item WHERE writer = $1::int AND seq = $2::bigint"},
	{"update", "UPDATE w_item SET ver = 2, payload = $4::text WHERE writer = $1::int AND seq = $2::bigint AND part = $3::smallint"},
	{"relog", "UPDATE w_log SET ver = 2 WHERE writer = $1::int AND seq = $2::bigint"},
	{"pay", "UPDATE w_account SET balance = balance + $2::int WHERE a = $1::int"},
	{"auto", "WITH c AS (UPDATE w_counter SET n = n + 1, last = $2::bigint WHERE writer = $1::int)"
		" INSERT INTO w_item VALUES ($1, $2, 0, $3::bigint, 1, $4::int, $5::text),"
		" ($1, $2, 1, $3, 1, $6::int, $7::text), ($1, $2, 2, $3, 1, $8::int, $9::text)"},
};

static bool
prepare_all(PGconn *conn)
{
	for (size_t i = 0; i < sizeof(prepared) / sizeof(prepared[0]); i++)
	{
		PGresult   *res = PQprepare(conn, prepared[i][0], prepared[i][1], 0, NULL);

		if (PQresultStatus(res) != PGRES_COMMAND_OK)
		{
			if (!server_gone(conn, res))
				fail("prepare %s: %s", prepared[i][0], PQerrorMessage(conn));
			PQclear(res);
			return false;
		}
		PQclear(res);
	}
	return true;
}

/* Arguments as text, for one row of w_item. */
typedef struct ItemArgs
{
	char		writer[16];
	char		seq[32];
	char		part[16];
	char		id[32];
	char		ver[16];
	char		opt[16];
	char		payload[PAYLOAD_SIZE];
	const char *argv[7];
} ItemArgs;

static void
item_args(ItemArgs *a, int writer, int64_t seq, int part, int ver)
{
	int			opt = item_opt(writer, seq, part);

	snprintf(a->writer, sizeof(a->writer), "%d", writer);
	snprintf(a->seq, sizeof(a->seq), "%lld", (long long) seq);
	snprintf(a->part, sizeof(a->part), "%d", part);
	snprintf(a->id, sizeof(a->id), "%lld", (long long) item_id(writer, seq));
	snprintf(a->ver, sizeof(a->ver), "%d", ver);
	snprintf(a->opt, sizeof(a->opt), "%d", opt);
	item_payload(a->payload, sizeof(a->payload), writer, seq, part, ver);
	a->argv[0] = a->writer;
	a->argv[1] = a->seq;
	a->argv[2] = a->part;
	a->argv[3] = a->id;
	a->argv[4] = a->ver;
	a->argv[5] = opt == 0 ? NULL : a->opt;
	a->argv[6] = a->payload;
}

static bool
insert_items(PGconn *conn, int writer, int64_t seq)
{
	static ItemArgs a;

	for (int part = 0; part < PARTS; part++)
	{
		item_args(&a, writer, seq, part, 1);
		if (!run(conn, "item", 7, a.argv, NULL))
			return false;
	}
	return true;
}

static bool
pay(PGconn *conn, int account, int amount)
{
	char		acc[16],
				amt[16];
	const char *argv[2] = {acc, amt};

	snprintf(acc, sizeof(acc), "%d", account);
	snprintf(amt, sizeof(amt), "%d", amount);
	return run(conn, "pay", 2, argv, NULL);
}

/* The statements between BEGIN and COMMIT. false: the server is gone. */
static bool
transaction_body(PGconn *conn, volatile const char *memory, int writer, int64_t seq)
{
	static ItemArgs a;
	const char *update_argv[4] = {a.writer, a.seq, a.part, a.payload};
	int64_t		target = seq - TARGET_DISTANCE;
	int			rows;
	int			expected;

	if (HAS_ROWS(KIND_OF(seq)) && !insert_items(conn, writer, seq))
		return false;

	switch (KIND_OF(seq))
	{
		case KIND_MIXED:
			{
				const char *argv[3] = {a.writer, a.seq, a.payload};

				item_args(&a, writer, seq, 0, 1);
				if (!run(conn, "log", 3, argv, NULL))
					return false;
				break;
			}
		case KIND_SAVEPOINT:
			item_args(&a, writer, seq, 9, 1);
			if (!run(conn, "SAVEPOINT s", -1, NULL, NULL) ||
				!run(conn, "item", 7, a.argv, NULL) ||
				!run(conn, "ROLLBACK TO s", -1, NULL, NULL))
				return false;
			break;
		case KIND_DELETE:
			item_args(&a, writer, target, 0, 1);
			if (!run(conn, "delete", 2, a.argv, &rows))
				return false;
			expected = committed(memory, target) ? PARTS : 0;
			if (rows != expected)
				violation("writer %d, %lld: DELETE met %d rows of %lld instead of %d", writer,
						  (long long) seq, rows, (long long) target, expected);
			break;
		case KIND_UPDATE:
			expected = committed(memory, target) ? 1 : 0;
			for (int part = 0; part < PARTS; part++)
			{
				item_args(&a, writer, target, part, 2);
				if (!run(conn, "update", 4, update_argv, &rows))
					return false;
				if (rows != expected)
					violation("writer %d, %lld: UPDATE met %d rows of %lld part %d instead of %d", writer,
							  (long long) seq, rows, (long long) target, part, expected);
			}
			if (!run(conn, "relog", 2, a.argv, &rows))
				return false;
			if (rows != expected)
				violation("writer %d, %lld: UPDATE of w_log met %d rows of %lld instead of %d", writer,
						  (long long) seq, rows, (long long) target, expected);
			break;
		case KIND_TRANSFER:
			{
				Transfer	t = transfer_of(writer, seq);

				/* The smaller account first: no deadlocks. */
				if (t.from < t.to)
				{
					if (!pay(conn, t.from, -t.amount) || !pay(conn, t.to, t.amount))
						return false;
				}
				else if (!pay(conn, t.to, t.amount) || !pay(conn, t.from, -t.amount))
					return false;
				break;
			}
		default:
			break;
	}

	item_args(&a, writer, seq, 0, 1);
	if (!run(conn, "count", 2, a.argv, &rows))
		return false;
	if (rows != 1)
		violation("writer %d, %lld: UPDATE of w_counter met %d rows", writer, (long long) seq, rows);
	return true;
}

static bool
autocommit(PGconn *conn, volatile char *memory, int writer, int64_t seq)
{
	static ItemArgs a[PARTS];
	const char *argv[9];

	for (int part = 0; part < PARTS; part++)
		item_args(&a[part], writer, seq, part, 1);
	argv[0] = a[0].writer;
	argv[1] = a[0].seq;
	argv[2] = a[0].id;
	for (int part = 0; part < PARTS; part++)
	{
		argv[3 + 2 * part] = a[part].argv[5];
		argv[4 + 2 * part] = a[part].payload;
	}
	memory[seq] = '?';
	if (!run(conn, "auto", 9, argv, NULL))
		return false;
	memory[seq] = 'C';
	return true;
}

static bool
one_transaction(PGconn *conn, volatile char *memory, int writer, int64_t seq)
{
	memory[seq] = 'R';
	if (KIND_OF(seq) == KIND_AUTOCOMMIT)
		return autocommit(conn, memory, writer, seq);
	if (!run(conn, "BEGIN", -1, NULL, NULL) || !transaction_body(conn, memory, writer, seq))
		return false;
	if (KIND_OF(seq) == KIND_ROLLBACK)
		return run(conn, "ROLLBACK", -1, NULL, NULL);
	memory[seq] = '?';
	if (!run(conn, "COMMIT", -1, NULL, NULL))
		return false;
	memory[seq] = 'C';
	return true;
}

static void
writer_main(const char *conninfo, const char *dir, int writer, int64_t until)
{
	volatile char *memory = map_memory(dir, writer);
	int64_t		seq = last_begun(memory);
	PGconn	   *conn = try_connect(conninfo);

	/* An unknown outcome is found out by "verify", never guessed. */
	if (seq > 0 && memory[seq] == '?')
		fail("writer %d does not know the outcome of %lld: run verify first", writer, (long long) seq);
	if (conn == NULL || !prepare_all(conn))
		exit(0);
	while (now_us() < until)
	{
		if (++seq >= MAX_SEQ - TARGET_DISTANCE)
			fail("writer %d has used up its numbers", writer);
		if (!one_transaction(conn, memory, writer, seq))
			exit(violations > 0 ? 1 : 0);
	}
	PQfinish(conn);
	exit(violations > 0 ? 1 : 0);
}

/* One snapshot on the last transaction of a writer: is it whole? */
static const char *const look_sql =
"SELECT c.last, c.n,"
" (SELECT count(*) FROM w_item i WHERE i.writer = c.writer AND i.seq = c.last),"
" (SELECT count(*) FROM w_log l WHERE l.writer = c.writer AND l.seq = c.last),"
" (SELECT count(*) FROM w_item i WHERE i.writer = c.writer AND i.seq = c.last - 4),"
" (SELECT count(*) FROM w_item i WHERE i.writer = c.writer AND i.seq = c.last - 4 AND i.ver = 2),"
" (SELECT coalesce(max(l.ver), 0) FROM w_log l WHERE l.writer = c.writer AND l.seq = c.last - 4),"
" (SELECT count(*) FROM w_item i WHERE i.writer = c.writer AND i.seq > c.last)"
" FROM w_counter c WHERE c.writer = $1::int";

static void
check_look(int writer, volatile const char *memory, PGresult *res)
{
	int64_t		last = atoll(PQgetvalue(res, 0, 0));
	int			items = atoi(PQgetvalue(res, 0, 2));
	int			logs = atoi(PQgetvalue(res, 0, 3));
	int			old_items = atoi(PQgetvalue(res, 0, 4));
	int			old_new = atoi(PQgetvalue(res, 0, 5));
	int			old_log = atoi(PQgetvalue(res, 0, 6));
	int			later = atoi(PQgetvalue(res, 0, 7));
	Kind		kind = KIND_OF(last);
	int			old = committed(memory, last - TARGET_DISTANCE) ? PARTS : 0;

	if (last == 0)
		return;
	if (items != (HAS_ROWS(kind) ? PARTS : 0) || logs != (kind == KIND_MIXED ? 1 : 0) || later != 0)
		violation("half a transaction: writer %d, %lld (kind %d): %d rows, %d log rows, %d rows of later ones",
				  writer, (long long) last, kind, items, logs, later);
	if (kind == KIND_DELETE && old_items != 0)
		violation("half a delete: writer %d, %lld: %d rows left", writer, (long long) last, old_items);
	if (kind == KIND_UPDATE && (old_new != old || old_items != old || old_log != (old > 0 ? 2 : 0)))
		violation("half an update: writer %d, %lld: %d of %d rows new, log version %d", writer,
				  (long long) last, old_new, old_items, old_log);
}

/* A reader beside the writers: nothing half shown, no money made or lost. */
static void
reader_main(const char *conninfo, const char *dir, int writers, int64_t until)
{
	volatile char *memory[MAX_WRITERS];
	PGconn	   *conn = try_connect(conninfo);
	PGresult   *res;
	long		looks = 0;

	for (int w = 0; w < writers; w++)
		memory[w] = map_memory(dir, w);
	if (conn == NULL)
		exit(0);
	res = PQprepare(conn, "look", look_sql, 0, NULL);
	while (PQresultStatus(res) != PGRES_FATAL_ERROR && now_us() < until)
	{
		char		arg[16];
		const char *argv[1] = {arg};
		int			w = (int) (looks++ % writers);

		PQclear(res);
		snprintf(arg, sizeof(arg), "%d", w);
		res = PQexecPrepared(conn, "look", 1, argv, NULL, NULL, 0);
		if (PQresultStatus(res) != PGRES_TUPLES_OK)
			break;
		if (PQntuples(res) != 1)
			violation("w_counter shows %d rows for writer %d", PQntuples(res), w);
		else
			check_look(w, memory[w], res);
		PQclear(res);
		res = PQexec(conn, "SELECT sum(balance), count(*) FROM w_account");
		if (PQresultStatus(res) != PGRES_TUPLES_OK)
			break;
		if (atoll(PQgetvalue(res, 0, 0)) != (int64_t) ACCOUNTS * START_BALANCE ||
			atoi(PQgetvalue(res, 0, 1)) != ACCOUNTS)
			violation("half a transfer: the sum of %s accounts is %s", PQgetvalue(res, 0, 1), PQgetvalue(res, 0, 0));
		sleep_us(2000);
	}
	if (PQresultStatus(res) == PGRES_FATAL_ERROR && !server_gone(conn, res))
		fail("reader: %s", PQerrorMessage(conn));
	exit(violations > 0 ? 1 : 0);
}

static int
cmd_run(const char *conninfo, const char *dir, int writers, double seconds)
{
	int64_t		until = now_us() + (int64_t) (seconds * 1e6);
	bool		broken = false;
	bool		stuck = false;
	int			status;

	fflush(stdout);
	for (int i = 0; i <= writers; i++)
	{
		pid_t		pid = fork();

		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid == 0)
		{
			if (i < writers)
				writer_main(conninfo, dir, i, until);
			else
				reader_main(conninfo, dir, writers, until);
		}
	}
	while (wait(&status) > 0)
	{
		int			code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;

		broken |= code == 1;
		stuck |= code != 0;
	}
	/* what one has seen counts, whatever has stopped the others */
	return broken ? 1 : stuck ? 2 : 0;
}

/* ---- verify ---- */

typedef struct Totals
{
	int64_t		acknowledged;	/* and there */
	int64_t		rolled_back;	/* and not there */
	int			in_flight;		/* outcome unknown to the client */
	int			in_flight_committed;
} Totals;

/*
 * The counter row tells whether the one transaction in flight committed; that
 * its rows agree with it is checked like everybody else's afterwards.
 */
static void
resolve_in_flight(PGconn *conn, volatile char *memory, int writer, Totals *totals)
{
	int64_t		seq = last_begun(memory);
	char		sql[128];
	PGresult   *res;
	int64_t		last;
	int64_t		n = 0;
	int64_t		last_committed = 0;

	snprintf(sql, sizeof(sql), "SELECT last, n FROM w_counter WHERE writer = %d", writer);
	res = must_query(conn, sql);
	if (PQntuples(res) != 1)
	{
		violation("w_counter has %d rows for writer %d", PQntuples(res), writer);
		PQclear(res);
		return;
	}
	last = atoll(PQgetvalue(res, 0, 0));
	if (seq > 0 && memory[seq] == '?')
	{
		totals->in_flight++;
		memory[seq] = last == seq ? 'C' : 'R';
		if (last == seq)
			totals->in_flight_committed++;
	}
	for (int64_t s = 1; s <= seq; s++)
	{
		if (memory[s] == 'C')
		{
			n++;
			last_committed = s;
		}
		else if (memory[s] != 'R')
			fail("writer %d: unknown outcome of %lld in the middle", writer, (long long) s);
	}
	totals->acknowledged += n;
	totals->rolled_back += seq - n;
	if (last != last_committed || atoll(PQgetvalue(res, 0, 1)) != n)
		violation("writer %d: counter shows %s transactions, the last %lld; acknowledged are %lld, the last %lld",
				  writer, PQgetvalue(res, 0, 1), (long long) last, (long long) n, (long long) last_committed);
	PQclear(res);
}

/* One row of w_item against what it must hold. */
static void
verify_item(volatile const char *memory, int writer, PGresult *res, int r, unsigned char *seen, int64_t seq_max)
{
	static char payload[PAYLOAD_SIZE];
	int64_t		seq = atoll(PQgetvalue(res, r, 0));
	int			part = atoi(PQgetvalue(res, r, 1));
	int			ver = atoi(PQgetvalue(res, r, 3));
	int			opt = PQgetisnull(res, r, 4) ? 0 : atoi(PQgetvalue(res, r, 4));
	int			expected;

	if (seq < 1 || seq > seq_max || part < 0 || part >= PARTS || (expected = expected_version(memory, seq)) == 0)
	{
		violation("writer %d: row (%lld, %d) must not be there", writer, (long long) seq, part);
		return;
	}
	if (seen[seq] & (1 << part))
		violation("writer %d: row (%lld, %d) is there twice", writer, (long long) seq, part);
	seen[seq] |= 1 << part;
	item_payload(payload, sizeof(payload), writer, seq, part, expected);
	if (ver != expected || atoll(PQgetvalue(res, r, 2)) != item_id(writer, seq) ||
		opt != item_opt(writer, seq, part) || strcmp(PQgetvalue(res, r, 5), payload) != 0)
		violation("writer %d: row (%lld, %d) has wrong contents (version %d, expected %d)", writer,
				  (long long) seq, part, ver, expected);
}

static void
verify_writer(PGconn *conn, volatile const char *memory, int writer, bool by_index)
{
	int64_t		seq_max = last_begun(memory);
	unsigned char *seen = calloc(seq_max + 1, 1);
	char		sql[512];
	PGresult   *res;

	PQclear(must_query(conn, by_index ?
					   "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on" :
					   "SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off;"
					   " SET enable_bitmapscan = off"));
	snprintf(sql, sizeof(sql), "SELECT seq, part, id, ver, opt, payload FROM w_item WHERE writer = %d", writer);
	res = must_query(conn, sql);
	for (int r = 0; r < PQntuples(res); r++)
		verify_item(memory, writer, res, r, seen, seq_max);
	PQclear(res);
	for (int64_t s = 1; s <= seq_max; s++)
	{
		if (expected_version(memory, s) != 0 && seen[s] != (1 << PARTS) - 1)
			violation("writer %d: transaction %lld was acknowledged, but %s of it is there (%s)", writer,
					  (long long) s, seen[s] == 0 ? "nothing" : "only a part", by_index ? "index" : "sequential");
		seen[s] = 0;
	}

	snprintf(sql, sizeof(sql), "SELECT seq, ver, payload FROM w_log WHERE writer = %d", writer);
	res = must_query(conn, sql);
	for (int r = 0; r < PQntuples(res); r++)
	{
		static char payload[PAYLOAD_SIZE];
		int64_t		seq = atoll(PQgetvalue(res, r, 0));

		if (seq < 1 || seq > seq_max || KIND_OF(seq) != KIND_MIXED || expected_version(memory, seq) == 0)
		{
			violation("writer %d: log row %lld must not be there", writer, (long long) seq);
			continue;
		}
		seen[seq]++;
		item_payload(payload, sizeof(payload), writer, seq, 0, 1);
		if (atoi(PQgetvalue(res, r, 1)) != expected_version(memory, seq) ||
			strcmp(PQgetvalue(res, r, 2), payload) != 0)
			violation("writer %d: log row %lld has wrong contents", writer, (long long) seq);
	}
	PQclear(res);
	for (int64_t s = 1; s <= seq_max; s++)
	{
		if (KIND_OF(s) == KIND_MIXED && expected_version(memory, s) != 0 && seen[s] != 1)
			violation("writer %d: log row %lld is there %d times", writer, (long long) s, seen[s]);
	}
	free(seen);
}

static void
verify_accounts(PGconn *conn, volatile char **memory, int writers)
{
	int64_t		balance[ACCOUNTS];
	PGresult   *res;

	for (int a = 0; a < ACCOUNTS; a++)
		balance[a] = START_BALANCE;
	for (int w = 0; w < writers; w++)
	{
		int64_t		seq_max = last_begun(memory[w]);

		for (int64_t s = 1; s <= seq_max; s++)
		{
			if (KIND_OF(s) == KIND_TRANSFER && committed(memory[w], s))
			{
				Transfer	t = transfer_of(w, s);

				balance[t.from] -= t.amount;
				balance[t.to] += t.amount;
			}
		}
	}
	res = must_query(conn, "SELECT a, balance FROM w_account ORDER BY a");
	if (PQntuples(res) != ACCOUNTS)
		violation("w_account has %d rows instead of %d", PQntuples(res), ACCOUNTS);
	for (int r = 0; r < PQntuples(res); r++)
	{
		int			a = atoi(PQgetvalue(res, r, 0));

		if (a < 0 || a >= ACCOUNTS || atoll(PQgetvalue(res, r, 1)) != balance[a])
			violation("account %d holds %s instead of %lld", a, PQgetvalue(res, r, 1),
					  a >= 0 && a < ACCOUNTS ? (long long) balance[a] : 0);
	}
	PQclear(res);
}

static int
cmd_verify(const char *conninfo, const char *dir, int writers)
{
	PGconn	   *conn = must_connect(conninfo);
	volatile char *memory[MAX_WRITERS];
	Totals		totals = {0};

	for (int w = 0; w < writers; w++)
	{
		memory[w] = map_memory(dir, w);
		resolve_in_flight(conn, memory[w], w, &totals);
	}
	for (int w = 0; w < writers; w++)
	{
		verify_writer(conn, memory[w], w, false);
		verify_writer(conn, memory[w], w, true);
	}
	verify_accounts(conn, memory, writers);
	PQfinish(conn);
	printf("acknowledged=%lld rolled_back=%lld in_flight=%d in_flight_committed=%d broken=%d\n",
		   (long long) totals.acknowledged, (long long) totals.rolled_back, totals.in_flight,
		   totals.in_flight_committed, violations);
	return violations > 0 ? 1 : 0;
}

/* ---- answer ---- */

/* Our caller's child may be a zombie by now. */
static bool
process_alive(long pid)
{
	char		path[64];
	char		line[512] = "";
	FILE	   *f;
	char	   *p;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "r");
	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	p = strrchr(line, ')');
	return p != NULL && p[1] == ' ' && p[2] != 'Z' && p[2] != 'X';
}

static int
cmd_answer(const char *conninfo, const char *sql, int64_t since, long pid, double seconds)
{
	int64_t		until = now_us() + (int64_t) (seconds * 1e6);
	char		error[1024] = "";

	do
	{
		PGconn	   *conn = PQconnectdb(conninfo);

		if (PQstatus(conn) == CONNECTION_OK)
		{
			PGresult   *res = PQexec(conn, sql);

			if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) > 0)
			{
				printf("%.2f\n", (now_us() - since) / 1000.0);
				return 0;
			}
			if (PQstatus(conn) == CONNECTION_OK)
				fail("%s: %s", sql, PQresultStatus(res) == PGRES_TUPLES_OK ? "no row" : PQerrorMessage(conn));
			PQclear(res);
		}
		snprintf(error, sizeof(error), "%s", PQerrorMessage(conn));
		PQfinish(conn);
		if (!process_alive(pid))
			fail("the server ended: %s", error);
		sleep_us(500);
	} while (now_us() < until);
	fail("no answer after %.0f s: %s", seconds, error);
	return 2;
}

int
main(int argc, char **argv)
{
	int			writers = argc > 4 ? atoi(argv[4]) : 1;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 5 && strcmp(argv[1], "init") == 0)
		return cmd_init(argv[2], argv[3], argv[4]);
	if (argc == 7 && strcmp(argv[1], "answer") == 0)
		return cmd_answer(argv[2], argv[3], atoll(argv[4]), atol(argv[5]), atof(argv[6]));
	if (writers < 1 || writers > MAX_WRITERS)
		fail("1 to %d writers", MAX_WRITERS);
	if (argc == 6 && strcmp(argv[1], "run") == 0)
		return cmd_run(argv[2], argv[3], writers, atof(argv[5]));
	if (argc == 5 && strcmp(argv[1], "verify") == 0)
		return cmd_verify(argv[2], argv[3], writers);
	fail("usage: witness init|run|verify|answer ... (see the head of t/witness.c)");
	return 2;
}
