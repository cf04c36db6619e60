/*-------------------------------------------------------------------------
 *
 * fault.c
 *	  Named stop points.  See include/sofort/pmem/fault.h.
 *
 * An armed point fires once, at its nth passage.  A session that waits there
 * goes on when the point is disarmed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "sofort/pmem/fault.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#define FAULT_POINTS	32
#define FAULT_NAME		64

typedef struct FaultPoint
{
	char		name[FAULT_NAME];	/* "" = unused */
	FaultAction action;
	int			remaining;		/* passages until it fires; 0 = has fired */
	int			waiters;
	uint64		passages;
	uint64		serial;			/* of this arming */
} FaultPoint;

typedef struct FaultShared
{
	volatile uint32 armed;
	slock_t		mutex;
	uint64		serial;
	FaultPoint	point[FAULT_POINTS];
} FaultShared;

volatile uint32 *fault_armed = NULL;
static FaultShared *faults = NULL;

Size
fault_shmem_size(void)
{
	return sizeof(FaultShared);
}

/*
 * For points that are passed before anybody can log in, the environment of the postmaster
 * may name one: SOFORT_STOP_POINT=point:action.  (Whoever can set that could as well kill
 * the server.)
 */
static void
fault_arm_from_environment(void)
{
	const char *value = getenv("SOFORT_STOP_POINT");
	const char *colon = value != NULL ? strchr(value, ':') : NULL;
	FaultPoint *p = &faults->point[0];

	if (colon == NULL || colon == value || colon - value >= FAULT_NAME)
		return;
	if (strcmp(colon + 1, "kill") == 0)
		p->action = FAULT_KILL;
	else if (strcmp(colon + 1, "kill_backend") == 0)
		p->action = FAULT_KILL_BACKEND;
	else if (strcmp(colon + 1, "wait") == 0)
		p->action = FAULT_WAIT;
	else
		return;
	memcpy(p->name, value, colon - value);
	p->remaining = 1;
	p->serial = ++faults->serial;
	faults->armed = 1;
}

/* From shmem_startup_hook, under AddinShmemInitLock. */
void
fault_startup(void)
{
	bool		found;

	faults = ShmemInitStruct("sofort faults", fault_shmem_size(), &found);
	if (!found)
	{
		memset(faults, 0, fault_shmem_size());
		SpinLockInit(&faults->mutex);
		fault_arm_from_environment();
	}
	fault_armed = &faults->armed;
}

static void
fault_require(const char *point)
{
	if (faults == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sofort must be loaded through shared_preload_libraries")));
	if (point != NULL && (point[0] == '\0' || strlen(point) >= FAULT_NAME))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name of a stop point: \"%s\"", point)));
}

/* A point that is armed twice has two entries, each with its own waiter. */
void
fault_arm(const char *point, FaultAction action, int nth)
{
	FaultPoint *slot = NULL;
	int			i;

	fault_require(point);
	if (nth < 1 || action == FAULT_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid action or count for a stop point")));
	SpinLockAcquire(&faults->mutex);
	for (i = 0; i < FAULT_POINTS && slot == NULL; i++)
	{
		if (faults->point[i].name[0] == '\0')
			slot = &faults->point[i];
	}
	if (slot != NULL)
	{
		memset(slot, 0, sizeof(FaultPoint));
		strlcpy(slot->name, point, FAULT_NAME);
		slot->action = action;
		slot->remaining = nth;
		slot->serial = ++faults->serial;
		faults->armed++;
	}
	SpinLockRelease(&faults->mutex);
	if (slot == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many stop points are armed")));
}

void
fault_disarm(const char *point)
{
	int			i;

	fault_require(point);
	SpinLockAcquire(&faults->mutex);
	for (i = 0; i < FAULT_POINTS; i++)
	{
		FaultPoint *p = &faults->point[i];

		if (p->name[0] != '\0' && (point == NULL || strcmp(p->name, point) == 0))
		{
			p->name[0] = '\0';
			p->serial = 0;
			faults->armed--;
		}
	}
	SpinLockRelease(&faults->mutex);
}

int
fault_waiters(const char *point)
{
	int			n = 0;
	int			i;

	fault_require(point);
	SpinLockAcquire(&faults->mutex);
	for (i = 0; i < FAULT_POINTS; i++)
	{
		if (strcmp(faults->point[i].name, point) == 0)
			n += faults->point[i].waiters;
	}
	SpinLockRelease(&faults->mutex);
	return n;
}

uint64
fault_passages(const char *point)
{
	uint64		n = 0;
	int			i;

	fault_require(point);
	SpinLockAcquire(&faults->mutex);
	for (i = 0; i < FAULT_POINTS; i++)
	{
		if (strcmp(faults->point[i].name, point) == 0)
			n = Max(n, faults->point[i].passages);
	}
	SpinLockRelease(&faults->mutex);
	return n;
}

static void
fault_stop_waiting(int code, Datum arg)
{
	FaultPoint *p = (FaultPoint *) DatumGetPointer(arg);

	SpinLockAcquire(&faults->mutex);
	if (p->waiters > 0)
		p->waiters--;
	SpinLockRelease(&faults->mutex);
}

static void
fault_wait(FaultPoint *p, uint64 serial)
{
	bool		mine = true;

	PG_ENSURE_ERROR_CLEANUP(fault_stop_waiting, PointerGetDatum(p));
	{
		while (mine)
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(1000L);
			if (IsUnderPostmaster && !PostmasterIsAlive())
				_exit(2);
			SpinLockAcquire(&faults->mutex);
			mine = (p->serial == serial);
			SpinLockRelease(&faults->mutex);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(fault_stop_waiting, PointerGetDatum(p));
	/* the entry was disarmed, and perhaps armed again: its counter is not ours */
}

/* The slow path of SOFORT_STOP: some point is armed, perhaps not this one. */
void
fault_reached(const char *point)
{
	FaultPoint *fired = NULL;
	FaultAction action = FAULT_NONE;
	uint64		serial = 0;
	int			i;

	SpinLockAcquire(&faults->mutex);
	for (i = 0; i < FAULT_POINTS; i++)
	{
		FaultPoint *p = &faults->point[i];

		if (strcmp(p->name, point) != 0)
			continue;
		p->passages++;
		if (p->remaining > 0 && --p->remaining == 0 && fired == NULL)
		{
			fired = p;
			action = p->action;
			serial = p->serial;
			if (action == FAULT_WAIT)
				p->waiters++;
		}
	}
	SpinLockRelease(&faults->mutex);
	if (fired == NULL)
		return;

	switch (action)
	{
		case FAULT_NONE:
			break;
		case FAULT_WAIT:
			fault_wait(fired, serial);
			break;
		case FAULT_KILL:
			if (IsUnderPostmaster)
				kill(PostmasterPid, SIGKILL);
			kill(getpid(), SIGKILL);
			break;
		case FAULT_KILL_BACKEND:
			kill(getpid(), SIGKILL);
			break;
		case FAULT_ERROR:
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("stop point \"%s\" raised an error", point)));
	}
}
