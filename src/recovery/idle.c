/*-------------------------------------------------------------------------
 *
 * idle.c
 *	  Is there a processor that nobody wants?
 *
 * Measured by what the kernel has counted in /proc/stat since the last call: time in
 * which processors had nothing to do, and what this process has used itself.  Low
 * priority ("nice", SCHED_IDLE) would not do instead: a process that is not scheduled
 * may hold a lock that a query waits for, and an unprivileged process cannot raise its
 * priority again when its work becomes important.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "portability/instr_time.h"
#include "storage/fd.h"

#include "recovery_internal.h"

/* Part of one processor: with less to spare, working would slow somebody down. */
#define ENOUGH			0.8

/* The kernel counts in ticks of 10 ms. */
#define SHORTEST_WINDOW	0.04

typedef struct Usage
{
	double		now;			/* seconds */
	double		idle;			/* of all processors */
	double		own;
} Usage;

/* False if this system does not tell. */
static bool
read_idle(double *idle)
{
	FILE	   *file = AllocateFile("/proc/stat", "r");
	unsigned long long user;
	unsigned long long nice;
	unsigned long long sys;
	unsigned long long ticks;
	unsigned long long iowait;
	int			n;

	if (file == NULL)
		return false;
	n = fscanf(file, "cpu %llu %llu %llu %llu %llu", &user, &nice, &sys, &ticks, &iowait);
	FreeFile(file);
	if (n != 5)
		return false;
	*idle = (double) (ticks + iowait) / sysconf(_SC_CLK_TCK);
	return true;
}

static bool
read_usage(Usage *u)
{
	struct rusage own;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	u->now = INSTR_TIME_GET_DOUBLE(now);
	if (getrusage(RUSAGE_SELF, &own) != 0)
		return false;
	u->own = own.ru_utime.tv_sec + own.ru_stime.tv_sec +
		(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
	return read_idle(&u->idle);
}

/*
 * The first answer is no: it begins the measurement.  A system without these counters is
 * taken for idle, or the work would never be done.
 */
bool
recovery_processor_is_idle(void)
{
	static Usage last = {0};
	static bool answer = false;
	Usage		u;
	double		window;

	if (!read_usage(&u))
		return true;
	window = u.now - last.now;
	if (last.now == 0 || window >= SHORTEST_WINDOW)
	{
		answer = last.now != 0 &&
			(u.idle - last.idle) + (u.own - last.own) >= ENOUGH * window;
		last = u;
	}
	return answer;
}
