/*-------------------------------------------------------------------------
 *
 * clocks.c
 *	  What has happened before: vector clocks of processes and of what they meet at.
 *
 * Each process has a clock, which advances whenever it releases something, and knows of
 * each other process up to which time of that one's clock everything has happened before
 * now.  A meeting point (a lock, a word) has such a vector, too: who releases it adds its
 * own, who acquires it takes what is there.
 *
 * All of this is memory that the postmaster maps before it forks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "miscadmin.h"
#include "races.h"
#include "storage/proc.h"

/* Points whose addresses fall together share one: less is reported then, never more. */
#define POINTS_BITS		15
#define POINTS			(1 << POINTS_BITS)

typedef struct MeetingPoint
{
	RacesLock	lock;
	uint32		version;		/* how often it was released */
	int			holder;			/* number + 1 of the process that has it exclusively; 0 none */
	uint32		seen[RACES_PROCESSES];
} MeetingPoint;

typedef struct Clocks
{
	uint32		seen[RACES_PROCESSES][RACES_PROCESSES];
	int			process_id[RACES_PROCESSES];
	int			startup;		/* number of the process that recovers */
	MeetingPoint point[POINTS];
} Clocks;

uint32	   *races_clock = NULL;
int			races_number = -1;

static Clocks *clocks = NULL;
static int	attached_process = 0;
static const volatile void *acquired_next = NULL;
static uint32 known[POINTS];	/* the versions that this process has taken */

void *
races_make_shared(Size size)
{
	void	   *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/*
 * A process that was killed with a lock leaves what is half done to the next: at worst a
 * race is overlooked.  One that has it already was interrupted by a signal.
 */
void
races_lock(RacesLock *lock)
{
	int			self = getpid();
	int			tries = 0;
	int			owner = 0;

	while (!__atomic_compare_exchange_n(lock, &owner, self, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
	{
		if (owner == self)
			return;
		if (++tries % 100 == 0)
			sched_yield();
		if (tries % 10000 == 0 && kill(owner, 0) != 0 && errno == ESRCH &&
			__atomic_compare_exchange_n(lock, &owner, self, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
		owner = 0;
	}
}

void
races_unlock(RacesLock *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_SEQ_CST);
}

static void
join(uint32 *into, const uint32 *from)
{
	int			i;

	for (i = 0; i < RACES_PROCESSES; i++)
		into[i] = Max(into[i], from[i]);
}

/*
 * The number of a process that has ended is given to another: the server orders the two,
 * so they may be one.  What the postmaster did is done before it forks, and what the
 * startup process did before it let the postmaster start others.
 */
void
races_attach(void)
{
	int			number = MyProc != NULL ? MyProc->pgprocno % RACES_POSTMASTER : RACES_POSTMASTER;

	if (likely(races_number == number && attached_process == MyProcPid))
		return;
	if (clocks == NULL)
		clocks = races_make_shared(sizeof(Clocks));
	races_number = number;
	attached_process = MyProcPid;
	acquired_next = NULL;
	memset(known, 0, sizeof(known));
	races_clock = clocks->seen[number];
	clocks->process_id[number] = MyProcPid;
	join(races_clock, clocks->seen[RACES_POSTMASTER]);
	if (AmStartupProcess())
		clocks->startup = number;
	else if (IsUnderPostmaster)
		join(races_clock, clocks->seen[clocks->startup]);
	races_clock[number]++;
}

int
races_process_id(int number)
{
	return clocks->process_id[number];
}

static MeetingPoint *
point_of(const volatile void *what)
{
	return &clocks->point[races_hash((uintptr_t) what >> 3, POINTS_BITS)];
}

static void
acquire(MeetingPoint *point)
{
	uint32		version = __atomic_load_n(&point->version, __ATOMIC_SEQ_CST);

	if (known[point - clocks->point] == version)
		return;
	races_lock(&point->lock);
	join(races_clock, point->seen);
	races_unlock(&point->lock);
	known[point - clocks->point] = version;
}

void
races_acquire_noted(void)
{
	const volatile void *what = acquired_next;

	if (what != NULL)
	{
		acquired_next = NULL;
		acquire(point_of(what));
	}
}

/* After what acquires it in the program. */
void
races_acquire(const volatile void *what)
{
	races_attach();
	races_acquire_noted();
	acquire(point_of(what));
}

static void
release(MeetingPoint *point)
{
	races_lock(&point->lock);
	join(point->seen, races_clock);
	__atomic_store_n(&point->version, point->version + 1, __ATOMIC_SEQ_CST);
	races_unlock(&point->lock);
	races_clock[races_number]++;
}

/* Before what releases it in the program: who sees that also finds this. */
void
races_release(const volatile void *what)
{
	races_attach();
	races_acquire_noted();
	release(point_of(what));
}

/*
 * The compiler announces a volatile load before it is made.  Another process may release
 * the word in between, so it is acquired at the next event.
 */
void
races_acquire_later(const volatile void *what)
{
	races_attach();
	races_acquire_noted();
	acquired_next = what;
}

/*
 * What those did who had a lock shared comes before who has it exclusively, but not before
 * others who have it shared: so that is another point, of an address in the lock that is
 * none's.
 */
static MeetingPoint *
point_of_shared(const volatile void *lock)
{
	return point_of((const volatile char *) lock + sizeof(uint64));
}

/*
 * An error releases all locks within the server, of which we are not told: if the last
 * holder has not said that it releases the lock, all that it has done until now counts.
 */
void
races_acquire_lock(const volatile void *lock, bool exclusive)
{
	MeetingPoint *point;

	races_attach();
	races_acquire_noted();
	point = point_of(lock);
	races_lock(&point->lock);
	join(races_clock, point->seen);
	if (point->holder != 0 && point->holder != races_number + 1)
		join(races_clock, clocks->seen[point->holder - 1]);
	point->holder = exclusive ? races_number + 1 : 0;
	races_unlock(&point->lock);
	if (exclusive)
		acquire(point_of_shared(lock));
}

void
races_release_lock(const volatile void *lock, bool exclusive)
{
	MeetingPoint *point;

	races_attach();
	races_acquire_noted();
	point = point_of(lock);
	release(exclusive ? point : point_of_shared(lock));
	if (point->holder == races_number + 1)
		point->holder = 0;
}

/* The postmaster makes shared memory again: all processes of before have ended. */
void
races_begin_life(void)
{
	int			i;

	races_attach();
	for (i = 0; i < RACES_PROCESSES; i++)
		races_clock[i] = Max(races_clock[i], clocks->seen[i][i]);
}
