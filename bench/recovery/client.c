/*-------------------------------------------------------------------------
 *
 * client.c
 *	  Counts successful transactions from outside, across crashes.
 *
 *	client run CONNINFO LOAD SIZE MIX AFTER CLIENTS SECONDS [PROGRESS]
 *		CLIENTS processes run transactions of LOAD (tatp, tpcc, uniform) for
 *		SECONDS.  A client whose server is gone waits until the parent's probe
 *		has connected again, connects, prepares and goes on, with the mix
 *		AFTER ("-": the same).  PROGRESS: SQL that returns a number; the parent
 *		asks it after the crash until it is 0.  With CLIENT_PROCESSORS=N in the
 *		environment clients and their sessions run on the first N processors.
 *
 *	client progress CONNINFO SQL SECONDS
 *		connects as soon as that works and asks SQL until it says 0: the event
 *		"rebuilt" alone
 *
 *	client lookup CONNINFO SQL SINCE_US
 *		connects as soon as that works, and runs SQL once; prints milliseconds
 *		from SINCE_US to the connection, and those of the statement
 *
 * "run" prints lines
 *		bin,US,TRANSACTIONS,SUCCESSES,BUSY_US,LONGEST_US	10 ms from US on
 *		event,US,NAME		started, lost, answered, ready, rebuilt
 *		host,US,STEAL,FAULTS	since it was booted, every 100 ms: ticks that the
 *							hypervisor has taken, page faults
 * with US in microseconds of the real-time clock.  "ready": all clients have
 * connected and prepared again.
 *
 * Exit code: 0 fine, 2 the client could not work.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE				/* sched_setaffinity */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "client.h"

#define MAX_CLIENTS		64
#define MAX_PARAMS		16
#define BIN_US			10000
#define PROBE_US		2000	/* while there is no server */
#define WATCH_US		10000	/* while there is one, whose workers use this processor, too */
#define PROGRESS_US		100000
#define HOST_US			100000

typedef struct Bin
{
	uint32_t	transactions;
	uint32_t	successes;
	uint32_t	longest_us;
	uint32_t	unused;
	uint64_t	busy_ns;
} Bin;

/* Between parent and clients */
typedef struct Shared
{
	volatile uint32_t connections;	/* raised when the probe has connected */
	volatile uint32_t lost;		/* the last of them that a client has lost, */
	volatile int64_t lost_us;	/* and when the first has */
	volatile int64_t ready_us[MAX_CLIENTS]; /* last time it was prepared */
	volatile uint32_t ready[MAX_CLIENTS];	/* ... and for which connection */
	Bin			bins[];			/* of client 0, of client 1, ... */
} Shared;

static const Load *const loads[] = {&load_tatp, &load_tpcc, &load_uniform};

static const Load *load;
static const char *conninfo;
static PGconn *conn;
static PGresult *result;
static Shared *shared;
Random		random_stream;
static int64_t start_us;
static int64_t end_us;
static uint32_t nbins;

void
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

static int64_t
now_us(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (int64_t) tv.tv_sec * 1000000 + tv.tv_usec;
}

static int64_t
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- statements ---- */

static bool
server_gone(const PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	/* admin_shutdown, crash_shutdown, cannot_connect_now */
	return PQstatus(conn) == CONNECTION_BAD || (state != NULL && strncmp(state, "57P0", 4) == 0);
}

/* Errors that the loads' specifications expect */
static bool
expected_error(const PGresult *res)
{
	static const char *const states[] = {"23505", "23503", "40001", "40P01"};
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	for (size_t i = 0; state != NULL && i < sizeof(states) / sizeof(states[0]); i++)
	{
		if (strcmp(state, states[i]) == 0)
			return true;
	}
	return false;
}

static Outcome
take_result(PGresult *res, const char *what, int *rows)
{
	ExecStatusType status = PQresultStatus(res);

	PQclear(result);
	result = res;
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
	{
		if (rows != NULL)
			*rows = status == PGRES_TUPLES_OK ? PQntuples(res) : atoi(PQcmdTuples(res));
		return SUCCESS;
	}
	if (server_gone(res))
		return GONE;
	if (!expected_error(res))
		fail("%s: %s", what, PQerrorMessage(conn));
	return NO_SUCCESS;
}

Outcome
run(int which, int *rows, const char *format,...)
{
	char		name[16];
	char		text[MAX_PARAMS][24];
	const char *values[MAX_PARAMS];
	int			n = 0;
	va_list		ap;

	va_start(ap, format);
	for (; format[n] != '\0'; n++)
	{
		if (n == MAX_PARAMS)
			fail("too many parameters");
		values[n] = text[n];
		if (format[n] == 's')
			values[n] = va_arg(ap, const char *);
		else
			snprintf(text[n], sizeof(text[n]), "%ld", va_arg(ap, long));
	}
	va_end(ap);
	snprintf(name, sizeof(name), "s%d", which);
	return take_result(PQexecPrepared(conn, name, n, values, NULL, NULL, 0),
					   load->statements()[which], rows);
}

Outcome
simple(const char *sql)
{
	return take_result(PQexec(conn, sql), sql, NULL);
}

Outcome
end_transaction(Outcome outcome)
{
	Outcome		ended;

	if (outcome == GONE)
		return GONE;
	ended = simple(outcome == SUCCESS ? "COMMIT" : "ROLLBACK");
	return ended == SUCCESS ? outcome : ended;
}

const char *
value(int row, int column)
{
	return PQgetvalue(result, row, column);
}

long
number(int row, int column)
{
	return strtol(value(row, column), NULL, 10);
}

/* ---- one client ---- */

/* Of those that this machine lets us use; 0: all */
static int	client_processors = 0;

/* pid 0: this process.  One that is gone meanwhile is found out by its client. */
static void
keep_on_processors(pid_t pid)
{
	cpu_set_t	all;
	cpu_set_t	ours;
	int			n = 0;

	if (client_processors == 0)
		return;
	if (sched_getaffinity(getppid(), sizeof(all), &all) != 0)
		fail("sched_getaffinity: %s", strerror(errno));
	CPU_ZERO(&ours);
	for (int i = 0; i < CPU_SETSIZE && n < client_processors; i++)
	{
		if (CPU_ISSET(i, &all))
		{
			CPU_SET(i, &ours);
			n++;
		}
	}
	if (sched_setaffinity(pid, sizeof(ours), &ours) != 0 && errno != ESRCH)
		fail("sched_setaffinity: %s", strerror(errno));
}

/* False: the server is gone (again). */
static bool
connect_and_prepare(void)
{
	const char *const *statements = load->statements();

	PQfinish(conn);
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		return false;
	keep_on_processors(PQbackendPID(conn));
	for (int i = 0; statements[i] != NULL; i++)
	{
		char		name[16];
		PGresult   *res;
		bool		ok;

		snprintf(name, sizeof(name), "s%d", i);
		res = PQprepare(conn, name, statements[i], 0, NULL);
		ok = PQresultStatus(res) == PGRES_COMMAND_OK;
		if (!ok && !server_gone(res))
			fail("%s: %s", statements[i], PQerrorMessage(conn));
		PQclear(res);
		if (!ok)
			return false;
	}
	return true;
}

/* One that notices it late does not mean what the probe has connected to since. */
static void
has_lost(uint32_t connection)
{
	if (shared->lost >= connection)
		return;
	shared->lost_us = now_us();
	shared->lost = connection;
}

/* Returns when connected; false: the time is over. */
static bool
come_back(int me, uint32_t *connection)
{
	for (;;)
	{
		uint32_t	up = shared->connections;

		if (now_us() >= end_us)
			return false;
		if (up != *connection)
		{
			if (connect_and_prepare())
			{
				*connection = up;
				shared->ready_us[me] = now_us();
				shared->ready[me] = up;
				return true;
			}
			has_lost(up);
		}
		usleep(1000);
	}
}

static void
count(Bin *bins, int64_t end, int64_t offset_us, int64_t ns, bool success)
{
	int64_t		bin = (end / 1000 + offset_us - start_us) / BIN_US;

	if (bin < 0 || bin >= (int64_t) nbins)
		return;
	bins[bin].transactions++;
	bins[bin].successes += success;
	bins[bin].busy_ns += ns;
	if (ns / 1000 > bins[bin].longest_us)
		bins[bin].longest_us = ns / 1000;
}

static void
client_main(int me, const char *mix, const char *after, long size)
{
	Bin		   *bins = shared->bins + (size_t) me * nbins;
	int64_t		offset_us = now_us() - clock_ns() / 1000;
	uint32_t	connection = 0;

	random_stream.state = (uint64_t) start_us * MAX_CLIENTS + me;
	load->choose_mix(mix, size);
	while (come_back(me, &connection))
	{
		int64_t		before = clock_ns();

		if (connection > 1)
			load->choose_mix(after, size);
		while (before / 1000 + offset_us < end_us)
		{
			Outcome		outcome = load->transaction();
			int64_t		end = clock_ns();

			if (outcome == GONE)
			{
				has_lost(connection);
				break;
			}
			count(bins, end, offset_us, end - before, outcome == SUCCESS);
			before = end;
		}
	}
	exit(0);
}

/* ---- the parent ---- */

static void
event(int64_t us, const char *name)
{
	printf("event,%lld,%s\n", (long long) us, name);
	fflush(stdout);
}

static bool
all_ready(int clients, uint32_t connection, int64_t *us)
{
	*us = 0;
	for (int i = 0; i < clients; i++)
	{
		if (shared->ready[i] != connection)
			return false;
		if (shared->ready_us[i] > *us)
			*us = shared->ready_us[i];
	}
	return true;
}

/* True: the progress statement says 0. */
static bool
progress_is_done(const char *progress)
{
	PGresult   *res = PQexec(conn, progress);
	bool		done;

	if (PQresultStatus(res) != PGRES_TUPLES_OK && !server_gone(res))
		fail("%s: %s", progress, PQerrorMessage(conn));
	done = PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1 &&
		strcmp(PQgetvalue(res, 0, 0), "0") == 0;
	PQclear(res);
	return done;
}

/* Clients end when the time is over, not before. */
static void
check_clients(void)
{
	int			status;

	if (waitpid(-1, &status, WNOHANG) > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		fail("a client has failed");
}

/* The number after a name in a file of /proc; field: of those behind the name */
static unsigned long long
proc_number(const char *file, const char *name, int field)
{
	char		line[512];
	unsigned long long found = 0;
	size_t		length = strlen(name);
	FILE	   *f = fopen(file, "r");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
	{
		char	   *at = line + length;

		if (strncmp(line, name, length) != 0 || *at != ' ')
			continue;
		for (int i = 0; i < field; i++)
			found = strtoull(at, &at, 10);
		break;
	}
	if (f != NULL)
		fclose(f);
	return found;
}

/* What the machine had to do beside */
static void
sample_host(void)
{
	static int64_t sampled;
	int64_t		us = now_us();

	if (us - sampled < HOST_US)
		return;
	sampled = us;
	printf("host,%lld,%llu,%llu\n", (long long) us, proc_number("/proc/stat", "cpu", 8),
		   proc_number("/proc/vmstat", "pgfault", 1));
}

/* An idle connection that the server ends says so, which is no news here. */
static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

/* Let the clients in, again and again, until the time is over. */
static void
watch(int clients, const char *progress)
{
	while (now_us() < end_us)
	{
		int64_t		us;
		int64_t		asked = 0;
		bool		ready = false;
		bool		rebuilt;

		sample_host();
		PQfinish(conn);
		conn = PQconnectdb(conninfo);
		if (PQstatus(conn) != CONNECTION_OK)
		{
			usleep(PROBE_US);
			continue;
		}
		(void) PQsetNoticeProcessor(conn, ignore_notice, NULL);
		event(now_us(), "answered");
		__atomic_add_fetch(&shared->connections, 1, __ATOMIC_SEQ_CST);

		/* before the crash there is nothing to ask for */
		rebuilt = progress == NULL || shared->connections == 1;
		while (shared->lost != shared->connections && now_us() < end_us)
		{
			if (!ready && (ready = all_ready(clients, shared->connections, &us)))
				event(us, "ready");
			if (!rebuilt && now_us() - asked >= PROGRESS_US)
			{
				asked = now_us();
				rebuilt = progress_is_done(progress);
				if (rebuilt)
					event(now_us(), "rebuilt");
			}
			check_clients();
			sample_host();
			usleep(WATCH_US);
		}
		if (shared->lost == shared->connections)
			event(shared->lost_us, "lost");
	}
}

static void
print_bins(int clients)
{
	for (uint32_t b = 0; b < nbins; b++)
	{
		Bin			sum = {0};

		for (int c = 0; c < clients; c++)
		{
			const Bin  *bin = &shared->bins[(size_t) c * nbins + b];

			sum.transactions += bin->transactions;
			sum.successes += bin->successes;
			sum.busy_ns += bin->busy_ns;
			if (bin->longest_us > sum.longest_us)
				sum.longest_us = bin->longest_us;
		}
		printf("bin,%lld,%u,%u,%llu,%u\n", (long long) (start_us + (int64_t) b * BIN_US),
			   sum.transactions, sum.successes, (unsigned long long) (sum.busy_ns / 1000), sum.longest_us);
	}
}

static void
cmd_run(char **argv, const char *progress)
{
	long		size = atol(argv[1]);
	const char *mix = argv[2];
	const char *after = strcmp(argv[3], "-") == 0 ? mix : argv[3];
	int			clients = atoi(argv[4]);
	double		seconds = atof(argv[5]);
	size_t		bytes;
	int			worst = 0;
	int			status;

	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
	{
		if (strcmp(argv[0], loads[i]->name) == 0)
			load = loads[i];
	}
	if (getenv("CLIENT_PROCESSORS") != NULL)
		client_processors = atoi(getenv("CLIENT_PROCESSORS"));
	if (load == NULL || size < 1 || client_processors < 0 || clients < 1 ||
		clients > MAX_CLIENTS || seconds <= 0 ||
		!load->choose_mix(mix, size) || !load->choose_mix(after, size))
		fail("load, mix or number that does not exist");

	nbins = (uint32_t) (seconds * 1e6 / BIN_US) + 1;
	bytes = sizeof(Shared) + (size_t) clients * nbins * sizeof(Bin);
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	start_us = now_us();
	end_us = start_us + (int64_t) (seconds * 1e6);
	event(start_us, "started");
	for (int c = 0; c < clients; c++)
	{
		pid_t		pid = fork();

		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid == 0)
		{
			/* users are elsewhere: each in a scheduling group of his own */
			(void) setsid();
			keep_on_processors(0);
			client_main(c, mix, after, size);
		}
	}
	watch(clients, progress);
	while (waitpid(-1, &status, 0) > 0)
		worst |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	print_bins(clients);
	if (worst)
		fail("a client has failed");
}

static void
cmd_progress(const char *progress, double seconds)
{
	end_us = now_us() + (int64_t) (seconds * 1e6);
	while (now_us() < end_us)
	{
		PQfinish(conn);
		conn = PQconnectdb(conninfo);
		while (PQstatus(conn) == CONNECTION_OK && now_us() < end_us)
		{
			if (progress_is_done(progress))
			{
				event(now_us(), "rebuilt");
				return;
			}
			usleep(PROGRESS_US);
		}
		usleep(PROBE_US);
	}
}

static void
cmd_lookup(const char *sql, int64_t since)
{
	int64_t		connected;
	int64_t		start;
	PGresult   *res;

	while (conn = PQconnectdb(conninfo), PQstatus(conn) != CONNECTION_OK)
	{
		PQfinish(conn);
		if (now_us() - since > 120 * INT64_C(1000000))
			fail("no connection in 120 s");
		usleep(PROBE_US / 2);
	}
	connected = now_us();
	start = clock_ns();
	res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_TUPLES_OK || PQntuples(res) != 1)
		fail("%s: %s", sql, PQerrorMessage(conn));
	printf("%.3f %.3f\n", (connected - since) / 1e3, (clock_ns() - start) / 1e6);
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc >= 3)
		conninfo = argv[2];
	if ((argc == 9 || argc == 10) && strcmp(argv[1], "run") == 0)
		cmd_run(argv + 3, argc == 10 ? argv[9] : NULL);
	else if (argc == 5 && strcmp(argv[1], "progress") == 0)
		cmd_progress(argv[3], atof(argv[4]));
	else if (argc == 5 && strcmp(argv[1], "lookup") == 0)
		cmd_lookup(argv[3], atoll(argv[4]));
	else
		fail("usage: client run|progress|lookup ... (see the head of bench/recovery/client.c)");
	return 0;
}
