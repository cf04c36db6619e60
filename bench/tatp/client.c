/*-------------------------------------------------------------------------
 *
 * client.c
 *	  TATP's transaction mix by a client that remembers what was acknowledged.
 *
 *	client remember CONNINFO MEMORY SUBSCRIBERS
 *		reads the whole database into the file MEMORY
 *	client run CONNINFO MEMORY SUBSCRIBERS CLIENTS SECONDS LABEL
 *		runs the mix until the time is over or the server is gone, with a
 *		progress line; every acknowledged change is made in MEMORY too
 *	client verify CONNINFO MEMORY SUBSCRIBERS
 *		reads the whole database again: it must be MEMORY, but for the one
 *		transaction of each client whose answer never came, which may be
 *		there or not
 *
 * Statements, weights and keys are the specification's; a missing row, a
 * duplicate key and a violated foreign key are outcomes, followed by ROLLBACK.
 * So that the order of changes is known, each client changes only subscribers
 * of its own: the key is drawn as usual and moved to the nearest one of them.
 *
 * Exit code: 0 fine, 1 the database or an outcome differs from what must be,
 * 2 the client could not work.
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
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "keys.h"
#include "statements.h"

#define MAX_CLIENTS		64
#define TYPES			4
#define STARTS			3

/* Everything that the database holds about one subscriber; zero = no row. */
typedef struct Forwarding
{
	uint64_t	number;
	uint64_t	end_time;		/* 0: no such row */
} Forwarding;

typedef struct State
{
	uint64_t	rows;			/* in all tables */
	uint64_t	fixed;			/* sum of hashes of what no transaction changes */
	uint64_t	vlr_location;
	uint64_t	bit_1;			/* value + 1 */
	uint64_t	data_a[TYPES];	/* value + 1, by sf_type */
	Forwarding	forwarding[TYPES][STARTS];
} State;

/* What one client has done, and what it waits for. */
typedef struct Client
{
	volatile uint64_t transactions;
	volatile uint64_t successes;
	volatile uint64_t changes;	/* acknowledged ones */
	volatile uint64_t in_flight;	/* s_id, or 0: then wanted is not used */
	State		wanted;			/* of that subscriber, if it committed */
} Client;

typedef struct Memory
{
	uint64_t	subscribers;
	uint64_t	clients;
	Client		client[MAX_CLIENTS];
	State		state[];		/* by s_id - 1 */
} Memory;

typedef enum Outcome
{
	SUCCESS,
	NO_SUCCESS,					/* missing row, duplicate, foreign key */
	GONE						/* the server */
} Outcome;

static void
fail(const char *fmt,...)
{
	va_list		ap;

	fflush(stdout);
	fprintf(stderr, "client: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(2);
}

/* The client owns the subscriber, so it knows what a statement must meet. */
static void
expect(bool as_expected, const char *transaction, uint64_t s_id)
{
	if (as_expected)
		return;
	fprintf(stderr, "client: PROMISE BROKEN: wrong outcome of %s for subscriber %llu\n", transaction,
			(unsigned long long) s_id);
	exit(1);
}

static int64_t
now_us(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (int64_t) tv.tv_sec * 1000000 + tv.tv_usec;
}

static Memory *
map_memory(const char *path, uint64_t subscribers, bool create)
{
	size_t		size = sizeof(Memory) + subscribers * sizeof(State);
	int			fd = open(path, create ? O_RDWR | O_CREAT | O_TRUNC : O_RDWR, 0600);
	void	   *p;

	if (fd < 0 || (create && ftruncate(fd, size) != 0))
		fail("%s: %s", path, strerror(errno));
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	if (create)
		((Memory *) p)->subscribers = subscribers;
	else if (((Memory *) p)->subscribers != subscribers)
		fail("%s is about another number of subscribers", path);
	return p;
}

/* ---- the whole database as State ---- */

static uint64_t
hash_fields(uint64_t h, char *const *field, int from, int to)
{
	for (int i = from; i < to; i++)
	{
		for (const char *c = field[i]; *c; c++)
			h = (h ^ (unsigned char) *c) * UINT64_C(0x100000001B3);
		h = (h ^ 0xFF) * UINT64_C(0x100000001B3);
	}
	return h ^ (h >> 29);
}

/* COPY gives lines of fields; f gets each with the subscriber's State. */
typedef void (*RowReader) (State *state, char *const *field, int nfields);

static void
read_subscriber(State *s, char *const *f, int n)
{
	/* s_id, sub_nbr, bit_1, ..., msc_location, vlr_location */
	s->fixed += hash_fields(hash_fields(1, f, 0, 2), f, 3, n - 1);
	s->bit_1 = strtoull(f[2], NULL, 10) + 1;
	s->vlr_location = strtoull(f[n - 1], NULL, 10);
}

static void
read_access_info(State *s, char *const *f, int n)
{
	s->fixed += hash_fields(2, f, 0, n);
}

static void
read_special_facility(State *s, char *const *f, int n)
{
	int			type = atoi(f[1]);

	/* s_id, sf_type, is_active, error_cntrl, data_a, data_b */
	if (type < 1 || type > TYPES || s->data_a[type - 1] != 0)
		fail("two rows, or an impossible type: special_facility %s, %s", f[0], f[1]);
	s->fixed += hash_fields(hash_fields(3, f, 0, 4), f, 5, n);
	s->data_a[type - 1] = strtoull(f[4], NULL, 10) + 1;
}

static void
read_call_forwarding(State *s, char *const *f, int n)
{
	int			type = atoi(f[1]);
	int			start = atoi(f[2]) / 8;
	Forwarding *fw;

	if (n != 5 || type < 1 || type > TYPES || start < 0 || start >= STARTS)
		fail("impossible row of call_forwarding: %s, %s, %s", f[0], f[1], f[2]);
	fw = &s->forwarding[type - 1][start];
	if (fw->end_time != 0)
		fail("two rows: call_forwarding %s, %s, %s", f[0], f[1], f[2]);
	fw->end_time = strtoull(f[3], NULL, 10);
	fw->number = strtoull(f[4], NULL, 10);
}

static void
read_table(PGconn *conn, const char *table, RowReader reader, State *states, uint64_t subscribers)
{
	char		sql[128];
	char	   *line;
	PGresult   *res;

	snprintf(sql, sizeof(sql), "COPY %s TO STDOUT", table);
	res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_COPY_OUT)
		fail("%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
	while (PQgetCopyData(conn, &line, 0) > 0)
	{
		char	   *field[64];
		char	   *rest = line;
		int			n = 0;
		uint64_t	s_id;

		line[strcspn(line, "\n")] = '\0';
		while (n < 64 && (field[n] = strsep(&rest, "\t")) != NULL)
			n++;
		s_id = strtoull(field[0], NULL, 10);
		if (s_id < 1 || s_id > subscribers)
			fail("%s has a row of subscriber %s", table, field[0]);
		states[s_id - 1].rows++;
		reader(&states[s_id - 1], field, n);
		PQfreemem(line);
	}
	res = PQgetResult(conn);
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		fail("%s: %s", sql, PQerrorMessage(conn));
	PQclear(res);
	while ((res = PQgetResult(conn)) != NULL)
		PQclear(res);
}

static void
read_database(const char *conninfo, State *states, uint64_t subscribers)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		fail("%s", PQerrorMessage(conn));
	read_table(conn, "subscriber", read_subscriber, states, subscribers);
	read_table(conn, "access_info", read_access_info, states, subscribers);
	read_table(conn, "special_facility", read_special_facility, states, subscribers);
	read_table(conn, "call_forwarding", read_call_forwarding, states, subscribers);
	PQfinish(conn);
}

/* ---- the seven transactions ---- */

static PGconn *conn;
static Memory *memory;
static Client *self;
static uint64_t self_number;
static Random random_stream;

static uint64_t
rnd(uint64_t lo, uint64_t hi)
{
	return random_between(&random_stream, lo, hi);
}

static uint64_t
any_subscriber(void)
{
	return tatp_any_subscriber(&random_stream, memory->subscribers);
}

static uint64_t
own_subscriber(void)
{
	uint64_t	s_id = any_subscriber();

	s_id = s_id - (s_id - 1) % memory->clients + self_number;
	return s_id > memory->subscribers ? self_number + 1 : s_id;
}

static bool
server_gone(PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	/* admin_shutdown, crash_shutdown, cannot_connect_now */
	return PQstatus(conn) == CONNECTION_BAD || (state != NULL && strncmp(state, "57P0", 4) == 0);
}

/*
 * Runs a prepared statement, or plain SQL if sql is given. The number of rows
 * goes to *rows.
 */
static Outcome
run(TatpStatement which, const char *sql, char args[][24], int nargs, int *rows)
{
	char		name[8];
	const char *argv[8];
	PGresult   *res;
	Outcome		outcome = SUCCESS;
	ExecStatusType status;

	for (int i = 0; i < nargs; i++)
		argv[i] = args[i];
	snprintf(name, sizeof(name), "s%d", which);
	res = sql != NULL ? PQexec(conn, sql) : PQexecPrepared(conn, name, nargs, argv, NULL, NULL, 0);
	status = PQresultStatus(res);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
	{
		const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

		if (server_gone(res))
			outcome = GONE;
		else if (which == INSERT_FORWARDING && state != NULL &&
				 (strcmp(state, "23505") == 0 || strcmp(state, "23503") == 0))
			outcome = NO_SUCCESS;
		else
			fail("%s: %s", sql != NULL ? sql : tatp_statements[which], PQerrorMessage(conn));
	}
	else if (rows != NULL)
		*rows = status == PGRES_TUPLES_OK ? PQntuples(res) : atoi(PQcmdTuples(res));
	PQclear(res);
	return outcome;
}

static Outcome
simple(const char *sql)
{
	return run(TATP_STATEMENTS, sql, NULL, 0, NULL);
}

static void
set_arg(char *arg, uint64_t v, int digits)
{
	snprintf(arg, 24, "%0*llu", digits, (unsigned long long) v);
}

/* The next answer makes the subscriber's State "wanted". */
static State *
announce(uint64_t s_id)
{
	self->wanted = memory->state[s_id - 1];
	return &self->wanted;
}

static void
acknowledged(uint64_t s_id)
{
	memory->state[s_id - 1] = self->wanted;
	self->changes++;
	self->in_flight = 0;
}

static Outcome
get(TatpStatement which, int nargs, char args[][24])
{
	int			rows;
	Outcome		outcome = run(which, NULL, args, nargs, &rows);

	return outcome == SUCCESS && rows == 0 ? NO_SUCCESS : outcome;
}

static Outcome
rollback(void)
{
	return simple("ROLLBACK") == GONE ? GONE : NO_SUCCESS;
}

static Outcome
commit(uint64_t s_id)
{
	self->in_flight = s_id;
	if (simple("COMMIT") == GONE)
		return GONE;
	acknowledged(s_id);
	return SUCCESS;
}

static Outcome
update_location(void)
{
	uint64_t	s_id = own_subscriber();
	State	   *wanted = announce(s_id);
	char		args[2][24];
	int			rows;

	wanted->vlr_location = rnd(1, UINT32_MAX);
	set_arg(args[0], s_id, 15);
	set_arg(args[1], wanted->vlr_location, 1);
	self->in_flight = s_id;
	if (run(SET_LOCATION, NULL, args, 2, &rows) == GONE)
		return GONE;
	expect(rows == 1, "UPDATE_LOCATION", s_id);
	acknowledged(s_id);
	return SUCCESS;
}

static Outcome
update_subscriber_data(void)
{
	uint64_t	s_id = own_subscriber();
	uint64_t	type = rnd(1, TYPES);
	State	   *wanted = announce(s_id);
	char		bit[2][24],
				data[3][24];
	int			rows;

	wanted->bit_1 = rnd(0, 1) + 1;
	wanted->data_a[type - 1] = rnd(0, 255) + 1;
	set_arg(bit[0], s_id, 1);
	set_arg(bit[1], wanted->bit_1 - 1, 1);
	set_arg(data[0], s_id, 1);
	set_arg(data[1], type, 1);
	set_arg(data[2], wanted->data_a[type - 1] - 1, 1);
	if (simple("BEGIN") == GONE || run(SET_BIT, NULL, bit, 2, NULL) == GONE ||
		run(SET_DATA, NULL, data, 3, &rows) == GONE)
		return GONE;
	expect(rows == (memory->state[s_id - 1].data_a[type - 1] != 0), "UPDATE_SUBSCRIBER_DATA", s_id);
	return rows == 0 ? rollback() : commit(s_id);
}

static Outcome
find_subscriber(uint64_t s_id)
{
	char		args[1][24];

	set_arg(args[0], s_id, 15);
	return run(FIND_SUBSCRIBER, NULL, args, 1, NULL);
}

static Outcome
insert_call_forwarding(void)
{
	uint64_t	s_id = own_subscriber();
	uint64_t	type = rnd(1, TYPES);
	uint64_t	start = rnd(0, STARTS - 1);
	State	   *wanted = announce(s_id);
	Forwarding *fw = &wanted->forwarding[type - 1][start];
	char		args[5][24];
	Outcome		outcome;

	fw->end_time = start * 8 + rnd(1, 8);
	fw->number = rnd(0, UINT64_C(999999999999999));
	wanted->rows++;
	set_arg(args[0], s_id, 1);
	set_arg(args[1], type, 1);
	set_arg(args[2], start * 8, 1);
	set_arg(args[3], fw->end_time, 1);
	set_arg(args[4], fw->number, 15);
	if (simple("BEGIN") == GONE || find_subscriber(s_id) == GONE ||
		run(FIND_FACILITIES, NULL, args, 1, NULL) == GONE)
		return GONE;
	outcome = run(INSERT_FORWARDING, NULL, args, 5, NULL);
	if (outcome == GONE)
		return GONE;
	expect((outcome == SUCCESS) == (memory->state[s_id - 1].data_a[type - 1] != 0 &&
									memory->state[s_id - 1].forwarding[type - 1][start].end_time == 0),
		   "INSERT_CALL_FORWARDING", s_id);
	return outcome == NO_SUCCESS ? rollback() : commit(s_id);
}

static Outcome
delete_call_forwarding(void)
{
	uint64_t	s_id = own_subscriber();
	uint64_t	type = rnd(1, TYPES);
	uint64_t	start = rnd(0, STARTS - 1);
	State	   *wanted = announce(s_id);
	char		args[3][24];
	int			rows;

	memset(&wanted->forwarding[type - 1][start], 0, sizeof(Forwarding));
	wanted->rows--;
	set_arg(args[0], s_id, 1);
	set_arg(args[1], type, 1);
	set_arg(args[2], start * 8, 1);
	if (simple("BEGIN") == GONE || find_subscriber(s_id) == GONE ||
		run(DELETE_FORWARDING, NULL, args, 3, &rows) == GONE)
		return GONE;
	expect(rows == (memory->state[s_id - 1].forwarding[type - 1][start].end_time != 0),
		   "DELETE_CALL_FORWARDING", s_id);
	return rows == 0 ? rollback() : commit(s_id);
}

static Outcome
one_transaction(void)
{
	uint64_t	dice = rnd(1, 100);
	char		args[4][24];

	if (dice <= 80)
	{
		set_arg(args[0], any_subscriber(), 1);
		set_arg(args[1], rnd(1, TYPES), 1);
		set_arg(args[2], rnd(0, STARTS - 1) * 8, 1);
		set_arg(args[3], rnd(1, 24), 1);
		if (dice <= 35)
			return get(GET_SUBSCRIBER, 1, args);
		return dice <= 70 ? get(GET_ACCESS, 2, args) : get(GET_DESTINATION, 4, args);
	}
	if (dice <= 94)
		return update_location();
	if (dice <= 96)
		return update_subscriber_data();
	return dice <= 98 ? insert_call_forwarding() : delete_call_forwarding();
}

static void
client_main(const char *conninfo, int64_t until)
{
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		fail("%s", PQerrorMessage(conn));
	for (int i = 0; i < TATP_STATEMENTS; i++)
	{
		char		name[8];
		PGresult   *res;

		snprintf(name, sizeof(name), "s%d", i);
		res = PQprepare(conn, name, tatp_statements[i], 0, NULL);
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
		{
			if (server_gone(res))
				exit(0);
			fail("%s: %s", tatp_statements[i], PQerrorMessage(conn));
		}
		PQclear(res);
	}
	while (now_us() < until)
	{
		Outcome		outcome = one_transaction();

		if (outcome == GONE)
			exit(0);
		self->transactions++;
		self->successes += outcome == SUCCESS;
	}
	PQfinish(conn);
	exit(0);
}

static void
sum_up(uint64_t *transactions, uint64_t *successes, uint64_t *changes)
{
	*transactions = *successes = *changes = 0;
	for (uint64_t c = 0; c < memory->clients; c++)
	{
		*transactions += memory->client[c].transactions;
		*successes += memory->client[c].successes;
		*changes += memory->client[c].changes;
	}
}

/* Waits for the clients; a line every second. Returns the worst exit code. */
static int
watch(int clients, const char *label, int64_t start, double *seconds)
{
	uint64_t	transactions,
				successes,
				changes,
				before = 0;
	int64_t		tick = start;
	int64_t		end = start;
	int			running = clients;
	int			worst = 0;

	while (running > 0)
	{
		int			status;
		pid_t		pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0)
		{
			int			code = WIFEXITED(status) ? WEXITSTATUS(status) : 2;

			/* The load lasted until the first one lost its server. */
			if (running-- == clients)
				end = now_us();
			worst = code > worst ? code : worst;
			continue;
		}
		if (now_us() - tick >= 1000000)
		{
			double		passed = (now_us() - tick) / 1e6;

			tick = now_us();
			sum_up(&transactions, &successes, &changes);
			printf("%s  %s %3.0f s: %7.0f transactions/s%s", isatty(1) ? "\r" : "", label,
				   (tick - start) / 1e6, (transactions - before) / passed, isatty(1) ? "  " : "\n");
			fflush(stdout);
			before = transactions;
		}
		usleep(2000);
	}
	if (isatty(1))
		printf("\n");
	*seconds = (end - start) / 1e6;
	return worst;
}

static int
cmd_run(const char *conninfo, int clients, double seconds, const char *label)
{
	int64_t		start = now_us();
	uint64_t	transactions,
				successes,
				changes;
	double		lasted;
	int			worst;
	uint64_t	n = memory->subscribers;

	if (clients < 1 || clients > MAX_CLIENTS || (uint64_t) clients > n)
		fail("1 to %d clients", MAX_CLIENTS);
	for (uint64_t c = 0; c < memory->clients; c++)
	{
		if (memory->client[c].in_flight != 0)
			fail("outcomes are not known: verify first");
	}
	memory->clients = clients;
	memset(memory->client, 0, sizeof(memory->client));
	for (int c = 0; c < clients; c++)
	{
		pid_t		pid = fork();

		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid == 0)
		{
			self = &memory->client[c];
			self_number = c;
			random_stream.state = (uint64_t) start * 64 + c;
			client_main(conninfo, start + (int64_t) (seconds * 1e6));
		}
	}
	worst = watch(clients, label, start, &lasted);
	sum_up(&transactions, &successes, &changes);
	printf("transactions=%llu successes=%llu changes=%llu seconds=%.3f tps=%.0f\n",
		   (unsigned long long) transactions, (unsigned long long) successes,
		   (unsigned long long) changes, lasted, lasted > 0 ? transactions / lasted : 0);
	return worst;
}

static int
cmd_verify(const char *conninfo)
{
	uint64_t	n = memory->subscribers;
	State	   *actual = calloc(n, sizeof(State));
	uint64_t	different = 0;
	uint64_t	in_flight = 0;
	uint64_t	in_flight_committed = 0;
	uint64_t	rows = 0;

	read_database(conninfo, actual, n);
	for (uint64_t c = 0; c < memory->clients; c++)
	{
		Client	   *client = &memory->client[c];
		uint64_t	s_id = client->in_flight;

		if (s_id == 0)
			continue;
		in_flight++;
		if (memcmp(&actual[s_id - 1], &client->wanted, sizeof(State)) == 0)
		{
			in_flight_committed++;
			memory->state[s_id - 1] = client->wanted;
		}
		client->in_flight = 0;
	}
	for (uint64_t i = 0; i < n; i++)
	{
		rows += actual[i].rows;
		if (memcmp(&actual[i], &memory->state[i], sizeof(State)) != 0 && ++different <= 10)
			fprintf(stderr, "client: PROMISE BROKEN: subscriber %llu is not as it was acknowledged"
					" (rows %llu, expected %llu; vlr_location %llu, expected %llu)\n",
					(unsigned long long) i + 1, (unsigned long long) actual[i].rows,
					(unsigned long long) memory->state[i].rows,
					(unsigned long long) actual[i].vlr_location,
					(unsigned long long) memory->state[i].vlr_location);
	}
	printf("rows=%llu in_flight=%llu in_flight_committed=%llu different=%llu\n", (unsigned long long) rows,
		   (unsigned long long) in_flight, (unsigned long long) in_flight_committed,
		   (unsigned long long) different);
	return different > 0 ? 1 : 0;
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc >= 5 && atoll(argv[4]) >= 1)
	{
		memory = map_memory(argv[3], strtoull(argv[4], NULL, 10), strcmp(argv[1], "remember") == 0);
		if (argc == 5 && strcmp(argv[1], "remember") == 0)
		{
			read_database(argv[2], memory->state, memory->subscribers);
			return 0;
		}
		if (argc == 8 && strcmp(argv[1], "run") == 0)
			return cmd_run(argv[2], atoi(argv[5]), atof(argv[6]), argv[7]);
		if (argc == 5 && strcmp(argv[1], "verify") == 0)
			return cmd_verify(argv[2]);
	}
	fail("usage: client remember|run|verify ... (see the head of bench/tatp/client.c)");
	return 2;
}
