/*-------------------------------------------------------------------------
 *
 * server.c
 *	  A server on an image: start, ask, end.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "medium.h"

static char program[2048];
static char data[2048];
static char pool[2048];
static char sockets[2048];
static char log_file[2048];
static pid_t pid = 0;
static PGconn *conn = NULL;
static const char *stop_point = NULL;

/* Armed when the server starts: "point:action" */
void
server_stop_at(const char *point)
{
	stop_point = point;
}

void
server_configure(const char *bindir, const char *data_dir, const char *pool_file,
				 const char *socket_dir)
{
	snprintf(program, sizeof(program), "%s/postgres", bindir);
	snprintf(data, sizeof(data), "%s", data_dir);
	snprintf(pool, sizeof(pool), "%s", pool_file);
	snprintf(sockets, sizeof(sockets), "%s", socket_dir);
}

const char *
server_conninfo(void)
{
	static char info[4096];

	snprintf(info, sizeof(info), "host=%s port=5432 dbname=postgres connect_timeout=10", sockets);
	return info;
}

bool
server_running(void)
{
	if (pid != 0 && waitpid(pid, NULL, WNOHANG) == pid)
		pid = 0;
	return pid != 0;
}

static void
run_postgres(const char *shadow_log)
{
	int			fd = open(log_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	char		pool_setting[4096];
	char		socket_setting[4096];

	snprintf(pool_setting, sizeof(pool_setting), "sofort.pool_path=%s", pool);
	snprintf(socket_setting, sizeof(socket_setting), "unix_socket_directories=%s", sockets);
	dup2(fd, 1);
	dup2(fd, 2);
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 0);
	setsid();
	if (shadow_log != NULL)
		setenv("SOFORT_SHADOW_LOG", shadow_log, 1);
	else
		unsetenv("SOFORT_SHADOW_LOG");
	if (stop_point != NULL)
		setenv("SOFORT_STOP_POINT", stop_point, 1);
	if (chdir(data) != 0)
		_exit(126);
	/* (what is to be left alone is not rebuilt by workers either) */
	execl(program, program, "-D", data, "-c", pool_setting, "-c", socket_setting,
		  "-c", "port=5432", "-c", "listen_addresses=", "-c", "fsync=off",
		  "-c", "dynamic_shared_memory_type=mmap", "-c", "logging_collector=off",
		  "-c", "restart_after_crash=off",
		  stop_point != NULL ? "-c" : (char *) NULL, "sofort.recovery_workers=0", (char *) NULL);
	_exit(127);
}

bool
server_connect(void)
{
	conn = PQconnectdb(server_conninfo());
	if (PQstatus(conn) == CONNECTION_OK)
		return true;
	PQfinish(conn);
	conn = NULL;
	return false;
}

/* The last line of postmaster.pid says so: who asks by connecting makes a process each time. */
static bool
is_ready(void)
{
	char		name[4096];
	char		text[1024];
	int			fd;
	ssize_t		n;

	snprintf(name, sizeof(name), "%s/postmaster.pid", data);
	fd = open(name, O_RDONLY);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text));
	close(fd);
	return n > 0 && memmem(text, (size_t) n, "\nready", 6) != NULL;
}

/* Returns true when a session is open, false if the server ended or hangs. */
bool
server_start(const char *log_path, const char *shadow_log)
{
	double		until = now() + 15;

	snprintf(log_file, sizeof(log_file), "%s", log_path);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0)
		run_postgres(shadow_log);
	while (now() < until && server_running())
	{
		if (is_ready() && server_connect())
			return true;
		usleep(1000);
	}
	return false;
}

/* The session ends, and its process with it. */
void
server_disconnect(void)
{
	if (conn != NULL)
		PQfinish(conn);
	conn = NULL;
}

static void
wait_for_end(void)
{
	double		until = now() + 20;

	while (server_running())
	{
		/* one that loops with signals blocked: PostgreSQL kills it after 5 s */
		if (now() > until)
			die("the server does not end");
		usleep(300);
	}
}

/* In order, sessions or not */
void
server_stop(void)
{
	server_disconnect();
	if (pid == 0)
		die("the server has ended");
	kill(pid, SIGINT);
	wait_for_end();
}

/* Immediate shutdown: removes what the server has of the system, and no more. */
void
server_kill(void)
{
	server_disconnect();
	if (pid == 0)
		return;
	kill(pid, SIGQUIT);
	wait_for_end();
}

/* The result of a statement; NULL if there is none after 15 seconds. */
static PGresult *
ask_server(const char *sql)
{
	double		until = now() + 15;
	PGresult   *last = NULL;
	PGresult   *res;

	if (!PQsendQuery(conn, sql))
		return PQmakeEmptyPGresult(conn, PGRES_FATAL_ERROR);
	for (;;)
	{
		struct pollfd p = {.fd = PQsocket(conn),.events = POLLIN};

		while (PQisBusy(conn))
		{
			if (now() > until)
				return NULL;
			(void) poll(&p, 1, 1000);
			if (!PQconsumeInput(conn))
				break;
		}
		res = PQgetResult(conn);
		if (res == NULL)
			return last;
		PQclear(last);
		last = res;
	}
}

/* First column of the first row, allocated; NULL after an error. */
char *
server_query(const char *sql, char *error, size_t error_size)
{
	PGresult   *res = ask_server(sql);
	char	   *result = NULL;

	if (res == NULL)
	{
		snprintf(error, error_size, "no answer after 15 s");
		return NULL;
	}
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		result = strdup(PQntuples(res) > 0 && !PQgetisnull(res, 0, 0) ? PQgetvalue(res, 0, 0) : "");
	else if (PQresultStatus(res) == PGRES_COMMAND_OK)
		result = strdup("");
	else
		snprintf(error, error_size, "%s", PQerrorMessage(conn));
	PQclear(res);
	return result;
}

/* Does the log have this text? */
int
server_log_has(const char *words)
{
	size_t		size;
	char	   *text = read_whole(log_file, &size);
	int			found = memmem(text, size, words, strlen(words)) != NULL;

	free(text);
	return found;
}

const char *
server_log_tail(void)
{
	static char tail[3000];
	size_t		size;
	char	   *text = read_whole(log_file, &size);
	size_t		from = size > sizeof(tail) - 1 ? size - (sizeof(tail) - 1) : 0;

	memcpy(tail, text + from, size - from);
	tail[size - from] = '\0';
	free(text);
	return tail;
}
