/*-------------------------------------------------------------------------
 *
 * workload.c
 *	  Statistics of statements and the structures that they use.
 *
 * In shared memory: a table of kinds, protected by one lock, and for each
 * process one counter per kind.  A process adds to its own counters without a
 * lock; they are emptied into the table under the lock.  In the pool: a record
 * per kind, at the same place in a vector, written by the launcher alone.
 *
 * Executions before the start fade: HALF_LIFE later they count half.  A record
 * keeps the sum and the moment for which it holds, so only kinds that were used
 * are written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/workload.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define HALF_LIFE_SECONDS	600.0
#define STALE_MILLISECONDS	60000	/* at least; */
#define STALE_FACTOR		1000	/* and so many times as long as describing took */
#define REPLACE_MILLISECONDS 1000	/* milliseconds between two replacements of one kind by
									 * another */
#define TRIED_MILLISECONDS	3600000	/* after an attempt that failed */
#define SEEN_CELLS			4096
#define SEEN_OFTEN			10
#define BUCKETS				2048	/* a power of two, above WORKLOAD_KINDS */

/* Handle: place in the table, and how often the place has changed hands. */
#define HANDLE_BITS			10
#define HANDLE_PLACE(h)		((h) & (WORKLOAD_KINDS - 1))
#define HANDLE_MAKE(place, generation)	((generation) << HANDLE_BITS | (uint32) (place))
#define GENERATION_MASK		((1U << (32 - HANDLE_BITS)) - 1)

StaticAssertDecl(WORKLOAD_KINDS == 1 << HANDLE_BITS, "places fit a handle");

typedef struct KindEntry
{
	volatile uint32 generation; /* never 0; read without the lock */
	bool		used;
	bool		description_dirty;	/* or freed: the record in the pool must be updated */
	bool		counts_dirty;
	int16		next;			/* in the bucket, or -1 */
	WorkloadKind kind;
	TimestampTz described;
	int			stale_after;	/* milliseconds */
	double		past;			/* as of the start */
	uint64		restart;
	double		fading;			/* past and restart, as of ... */
	TimestampTz as_of;
} KindEntry;

typedef struct WorkloadShared
{
	LWLock		lock;
	int			nprocs;
	Latch	   *launcher;		/* latch of the launcher while it waits for work, or NULL */
	volatile uint64 saves;		/* the launcher's rounds */
	volatile bool active;		/* something was counted since the last save */
	volatile int nkinds;		/* places that are used */
	volatile TimestampTz replaced;	/* when a kind took the place of another */
	volatile uint8 seen[SEEN_CELLS];	/* by fingerprint; lost updates do no harm */
	int16		bucket[BUCKETS];
	KindEntry	entries[WORKLOAD_KINDS];
	/* followed by WORKLOAD_KINDS counters for each process */
} WorkloadShared;

static WorkloadShared *Workload = NULL;
static pg_atomic_uint32 *Counters;

/* ---- start ---- */

static Size
counters_size(void)
{
	return mul_size(mul_size(MaxBackends, WORKLOAD_KINDS), sizeof(pg_atomic_uint32));
}

Size
workload_shmem_size(void)
{
	return add_size(CACHELINEALIGN(sizeof(WorkloadShared)), counters_size());
}

static int16 *
bucket_of(uint64 fingerprint)
{
	return &Workload->bucket[fingerprint & (BUCKETS - 1)];
}

static void
link_entry(int place)
{
	int16	   *bucket = bucket_of(Workload->entries[place].kind.fingerprint);

	Workload->entries[place].next = *bucket;
	*bucket = (int16) place;
}

static uint32
record_crc(const WorkloadRecord *r)
{
	return pm_crc(&r->fingerprint, sizeof(*r) - offsetof(WorkloadRecord, fingerprint));
}

static bool
is_sane(double value)
{
	return isfinite(value) && value >= 0;
}

/* A record that was torn, or never written, is not used. */
static bool
load_record(const WorkloadRecord *r, KindEntry *entry)
{
	if (r->valid != (WORKLOAD_VALID << 32 | record_crc(r)))
		return false;
	for (int m = 0; m < WORKLOAD_SUBSETS; m++)
		if (!is_sane(r->cost[m]))
			return false;
	entry->kind.fingerprint = r->fingerprint;
	entry->kind.db_oid = r->db_oid;
	entry->kind.command = r->command;
	memcpy(entry->kind.structures, r->structures, sizeof(r->structures));
	memcpy(entry->kind.tables, r->tables, sizeof(r->tables));
	memcpy(entry->kind.cost, r->cost, sizeof(r->cost));
	while (entry->kind.nstructures < WORKLOAD_STRUCTURES &&
		   OidIsValid(r->structures[entry->kind.nstructures]))
		entry->kind.nstructures++;
	entry->fading = is_sane(r->executions) ? r->executions : 0;
	entry->as_of = r->as_of;
	entry->used = true;
	return true;
}

static double
faded(double value, TimestampTz from, TimestampTz to)
{
	double		seconds = to <= from ? 0 : (double) (to - from) / USECS_PER_SEC;

	return value * exp2(-seconds / HALF_LIFE_SECONDS);
}

/* The time between the last statement and the start does not count as age. */
static void
load_records(void)
{
	PmVector   *v = &PoolSuper->workload;
	TimestampTz latest = 0;

	for (int i = 0; i < WORKLOAD_KINDS && (uint64) i < pm_vector_count(v); i++)
		if (load_record(pm_vector_get(v, i), &Workload->entries[i]))
		{
			latest = Max(latest, Workload->entries[i].as_of);
			link_entry(i);
			Workload->nkinds++;
		}
	for (int i = 0; i < WORKLOAD_KINDS; i++)
	{
		KindEntry  *entry = &Workload->entries[i];

		entry->past = entry->fading = faded(entry->fading, entry->as_of, latest);
		entry->as_of = GetCurrentTimestamp();
	}
}

void
workload_startup(void)
{
	static int	tranche = 0;
	bool		found;

	if (tranche == 0)
	{
		tranche = LWLockNewTrancheId();
		LWLockRegisterTranche(tranche, "sofort_workload");
	}
	Workload = ShmemInitStruct("sofort workload", workload_shmem_size(), &found);
	Counters = (pg_atomic_uint32 *) ((char *) Workload + CACHELINEALIGN(sizeof(WorkloadShared)));
	memset(Workload, 0, sizeof(WorkloadShared));
	LWLockInitialize(&Workload->lock, tranche);
	Workload->nprocs = MaxBackends;
	for (int i = 0; i < Workload->nprocs * WORKLOAD_KINDS; i++)
		pg_atomic_init_u32(&Counters[i], 0);
	for (int i = 0; i < BUCKETS; i++)
		Workload->bucket[i] = -1;
	for (int i = 0; i < WORKLOAD_KINDS; i++)
		Workload->entries[i].generation = 1;
	if (pool_status() == POOL_READY)
		load_records();
}

bool
workload_enabled(void)
{
	return Workload != NULL && pool_status() == POOL_READY;
}

/* There is something to save.  The latch is read once: it goes away when the launcher ends. */
static void
wake_launcher(void)
{
	Latch	   *latch;

	Workload->active = true;
	pg_memory_barrier();
	latch = *(Latch *volatile *) &Workload->launcher;
	if (latch != NULL)
		SetLatch(latch);
}

/* ---- counting ---- */

void
workload_count(WorkloadHandle handle)
{
	int			place = HANDLE_PLACE(handle);
	int			me = my_proc_number();

	if (handle == 0 || me >= Workload->nprocs ||
		handle != HANDLE_MAKE(place, Workload->entries[place].generation))
		return;
	pg_atomic_fetch_add_u32(&Counters[me * WORKLOAD_KINDS + place], 1);
	if (unlikely(!Workload->active))
		wake_launcher();
}

/* Empties the counters of all processes into the table; under the lock. */
static void
collect(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int p = 0; p < Workload->nprocs; p++)
	{
		pg_atomic_uint32 *mine = &Counters[p * WORKLOAD_KINDS];

		for (int i = 0; i < WORKLOAD_KINDS; i++)
		{
			KindEntry  *entry = &Workload->entries[i];
			uint32		n;

			if (pg_atomic_read_u32(&mine[i]) == 0)
				continue;
			n = pg_atomic_exchange_u32(&mine[i], 0);
			if (!entry->used)
				continue;		/* of a kind that was forgotten */
			entry->fading = faded(entry->fading, entry->as_of, now) + n;
			entry->as_of = Max(now, entry->as_of);
			entry->restart += n;
			entry->counts_dirty = true;
		}
	}
}

/* ---- kinds ---- */

/* Place of a kind, or -1; under the lock. */
static int
find_place(uint64 fingerprint, Oid db_oid)
{
	for (int i = *bucket_of(fingerprint); i >= 0; i = Workload->entries[i].next)
		if (Workload->entries[i].kind.fingerprint == fingerprint &&
			Workload->entries[i].kind.db_oid == db_oid)
			return i;
	return -1;
}

static WorkloadHandle
handle_of(int place)
{
	return HANDLE_MAKE(place, Workload->entries[place].generation);
}

/* Forget the kind at this place; under the lock. */
static void
free_place(int place)
{
	KindEntry  *entry = &Workload->entries[place];
	int16	   *p = bucket_of(entry->kind.fingerprint);
	uint32		generation = (entry->generation + 1) & GENERATION_MASK;

	while (*p != place)
		p = &Workload->entries[*p].next;
	*p = entry->next;
	Workload->nkinds--;
	/* (others compare it without the lock) */
	entry->generation = Max(generation, 1);
	memset((char *) entry + offsetof(KindEntry, used), 0,
		   sizeof(KindEntry) - offsetof(KindEntry, used));
	entry->description_dirty = true;
}

/*
 * A free place, or that of the kind that has been used least; under the lock.  Being
 * described counts as one execution: the first real one is about to come.
 */
static int
choose_place(void)
{
	TimestampTz now;
	double		least = 0;
	int			best = 0;

	if (Workload->nkinds < WORKLOAD_KINDS)
	{
		while (Workload->entries[best].used)
			best++;
		return best;
	}
	now = GetCurrentTimestamp();
	collect();
	for (int i = 0; i < WORKLOAD_KINDS; i++)
	{
		const KindEntry *entry = &Workload->entries[i];
		double		usage = faded(entry->fading, entry->as_of, now) +
			faded(1, entry->described, now);

		if (i == 0 || usage < least)
		{
			best = i;
			least = usage;
		}
	}
	free_place(best);
	Workload->replaced = now;
	return best;
}

/* Read without the lock: one kind too many, or a second too late, does no harm. */
bool
workload_takes_kinds(void)
{
	return Workload->nkinds < WORKLOAD_KINDS ||
		TimestampDifferenceExceeds(Workload->replaced, GetCurrentStatementStartTimestamp(),
								   REPLACE_MILLISECONDS);
}

WorkloadHandle
workload_find(uint64 fingerprint, bool *stale)
{
	WorkloadHandle handle = 0;
	int			place;

	LWLockAcquire(&Workload->lock, LW_SHARED);
	place = find_place(fingerprint, MyDatabaseId);
	if (place >= 0)
	{
		handle = handle_of(place);
		*stale = TimestampDifferenceExceeds(Workload->entries[place].described,
											GetCurrentStatementStartTimestamp(),
											Max(Workload->entries[place].stale_after,
												STALE_MILLISECONDS));
	}
	LWLockRelease(&Workload->lock);
	return handle;
}

bool
workload_seen_often(uint64 fingerprint)
{
	volatile uint8 *seen = &Workload->seen[fingerprint % SEEN_CELLS];

	if (*seen < SEEN_OFTEN)
		(*seen)++;
	return *seen >= SEEN_OFTEN;
}

/* replace: an old description, too */
static WorkloadHandle
set_description(const WorkloadKind *kind, bool replace, int stale_after)
{
	WorkloadHandle handle;
	KindEntry  *entry;
	int			place;

	LWLockAcquire(&Workload->lock, LW_EXCLUSIVE);
	place = find_place(kind->fingerprint, kind->db_oid);
	if (place >= 0)
		entry = &Workload->entries[place];
	else
	{
		place = choose_place();
		entry = &Workload->entries[place];
		entry->used = true;
		Workload->nkinds++;
		entry->as_of = GetCurrentTimestamp();
		entry->kind.fingerprint = kind->fingerprint;
		link_entry(place);
		replace = true;
	}
	if (replace)
	{
		entry->kind = *kind;
		entry->description_dirty = true;
	}
	entry->described = GetCurrentTimestamp();
	entry->stale_after = stale_after;
	handle = handle_of(place);
	LWLockRelease(&Workload->lock);
	return handle;
}

WorkloadHandle
workload_try(const WorkloadKind *kind)
{
	return set_description(kind, false, TRIED_MILLISECONDS);
}

WorkloadHandle
workload_describe(const WorkloadKind *kind, double took_ms)
{
	return set_description(kind, true, (int) Min(took_ms * STALE_FACTOR, INT_MAX / 2));
}

static bool
uses_table(const WorkloadKind *kind, Oid relid)
{
	for (int k = 0; k < WORKLOAD_STRUCTURES; k++)
		if (kind->tables[k] == relid)
			return true;
	return false;
}

/* The costs without the kth structure, which is gone for good */
static void
remove_structure(WorkloadKind *kind, int k)
{
	int			low = (1 << k) - 1;

	kind->nstructures--;
	for (int i = k; i < kind->nstructures; i++)
	{
		kind->structures[i] = kind->structures[i + 1];
		kind->tables[i] = kind->tables[i + 1];
	}
	kind->structures[kind->nstructures] = InvalidOid;
	if (kind->nstructures > 0)	/* else it still is one of its tables */
		kind->tables[kind->nstructures] = InvalidOid;
	for (int m = 0; m < WORKLOAD_SUBSETS; m++)
		kind->cost[m] = m >= 1 << kind->nstructures ? 0 :
			kind->cost[(m & low) | ((m & ~low) << 1)];
}

static bool
forget_structure(KindEntry *entry, Oid relid)
{
	for (int k = 0; k < entry->kind.nstructures; k++)
	{
		if (entry->kind.structures[k] != relid)
			continue;
		remove_structure(&entry->kind, k);
		entry->described = 0;	/* it may have a successor (REINDEX CONCURRENTLY) */
		entry->description_dirty = true;
		return true;
	}
	return false;
}

/*
 * Forgets the kinds of a database that use this table (InvalidOid: all kinds), or removes
 * this index from kinds.  Raises no error: called when a transaction has committed.
 */
static void
forget(Oid db_oid, Oid table, Oid structure)
{
	bool		forgotten = false;

	if (!workload_enabled())
		return;
	LWLockAcquire(&Workload->lock, LW_EXCLUSIVE);
	for (int i = 0; i < WORKLOAD_KINDS; i++)
	{
		KindEntry  *entry = &Workload->entries[i];

		if (!entry->used || entry->kind.db_oid != db_oid)
			continue;
		if (OidIsValid(structure))
			forgotten |= forget_structure(entry, structure);
		else if (!OidIsValid(table) || uses_table(&entry->kind, table))
		{
			free_place(i);
			forgotten = true;
		}
	}
	if (forgotten)
		wake_launcher();
	LWLockRelease(&Workload->lock);
}

void
workload_forget_table(Oid relid)
{
	forget(MyDatabaseId, relid, InvalidOid);
}

void
workload_forget_structure(Oid relid)
{
	forget(MyDatabaseId, InvalidOid, relid);
}

void
workload_forget_database(Oid db_oid)
{
	forget(db_oid, InvalidOid, InvalidOid);
}

WorkloadUsage *
workload_snapshot(Oid db_oid, int *n)
{
	WorkloadUsage *result = palloc(sizeof(WorkloadUsage) * WORKLOAD_KINDS);

	*n = 0;
	if (!workload_enabled())
		return result;
	LWLockAcquire(&Workload->lock, LW_EXCLUSIVE);
	collect();
	for (int i = 0; i < WORKLOAD_KINDS; i++)
	{
		const KindEntry *entry = &Workload->entries[i];

		if (!entry->used || (OidIsValid(db_oid) && entry->kind.db_oid != db_oid))
			continue;
		result[*n].kind = entry->kind;
		result[*n].past = entry->past;
		result[*n].restart = entry->restart;
		(*n)++;
	}
	LWLockRelease(&Workload->lock);
	return result;
}

/* ---- the pool ---- */

static void
make_record(const KindEntry *entry, WorkloadRecord *r)
{
	memset(r, 0, sizeof(*r));
	r->executions = entry->fading;
	r->as_of = entry->as_of;
	if (!entry->used)
		return;
	r->fingerprint = entry->kind.fingerprint;
	r->db_oid = entry->kind.db_oid;
	r->command = entry->kind.command;
	memcpy(r->structures, entry->kind.structures, sizeof(r->structures));
	memcpy(r->tables, entry->kind.tables, sizeof(r->tables));
	memcpy(r->cost, entry->kind.cost, sizeof(r->cost));
	r->valid = WORKLOAD_VALID << 32 | record_crc(r);
}

/*
 * A kind that is described again mostly looks the same.  Then only the counts change, and
 * the record can stay valid meanwhile.
 */
static void
write_record(WorkloadRecord *on_medium, const WorkloadRecord *r)
{
	if (r->valid == 0 || on_medium->valid != r->valid)
	{
		/* a mixture that a crash leaves has a wrong CRC */
		*(volatile uint64 *) &on_medium->valid = 0;
		pm_line_order(on_medium);
		SOFORT_STOP("workload-invalid");
		memcpy((char *) on_medium + sizeof(uint64), (const char *) r + sizeof(uint64),
			   sizeof(*r) - sizeof(uint64));
		SOFORT_STOP("workload-filled");
		pm_line_order(on_medium);
		*(volatile uint64 *) &on_medium->valid = r->valid;
	}
	else
	{
		((volatile WorkloadRecord *) on_medium)->executions = r->executions;
		((volatile WorkloadRecord *) on_medium)->as_of = r->as_of;
	}
	/* all of it: a process that stored the rest may have been killed before it came here */
	pm_flush(on_medium, sizeof(*r));
}

/*
 * Makes room in the pool for a record at this place.  A pool that is full now may have room
 * later.
 */
static bool
make_room(int place)
{
	static bool reported = false;
	PmVector   *v = &PoolSuper->workload;
	MemoryContext context = CurrentMemoryContext;
	volatile bool made = true;

	if ((uint64) place < pm_vector_count(v))
		return true;
	PG_TRY();
	{
		pm_vector_reserve(v, place, PM_OWNER_POOL, 0);
		pm_vector_publish(v, place + 1);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		pm_release_reservations();
		if (!reported)
			ereport(LOG,
					(errmsg("statistics of the workload cannot be kept in the sofort pool: %s",
							error->message)));
		FreeErrorData(error);
		made = false;
	}
	PG_END_TRY();
	reported = !made;
	return made;
}

/* False: there is no room. */
static bool
save_entry(int place)
{
	KindEntry  *entry = &Workload->entries[place];
	WorkloadRecord record;
	bool		on_medium = (uint64) place < pm_vector_count(&PoolSuper->workload);

	LWLockAcquire(&Workload->lock, LW_SHARED);
	make_record(entry, &record);
	LWLockRelease(&Workload->lock);
	if (record.valid == 0 && !on_medium)
		return true;
	if (!make_room(place))
		return false;
	write_record(pm_vector_get(&PoolSuper->workload, place), &record);
	return true;
}

/* The next round saves it. */
static void
set_dirty(int place)
{
	LWLockAcquire(&Workload->lock, LW_EXCLUSIVE);
	Workload->entries[place].description_dirty = true;
	LWLockRelease(&Workload->lock);
}

/* Collects the counters, and says which kinds have changed since the last time. */
static bool
take_dirty(bool *dirty)
{
	bool		any = false;

	LWLockAcquire(&Workload->lock, LW_EXCLUSIVE);
	collect();
	for (int i = 0; i < WORKLOAD_KINDS; i++)
	{
		KindEntry  *entry = &Workload->entries[i];

		dirty[i] = entry->description_dirty || entry->counts_dirty;
		entry->description_dirty = entry->counts_dirty = false;
		any |= dirty[i];
	}
	LWLockRelease(&Workload->lock);
	return any;
}

bool
workload_save(Latch *latch)
{
	bool		dirty[WORKLOAD_KINDS];

	if (!workload_enabled())
		return false;
	*(Latch *volatile *) &Workload->launcher = latch;
	if (!take_dirty(dirty))
	{
		/* processes that count from now on wake us; one that has just counted did not */
		Workload->active = false;
		pg_memory_barrier();
		if (!take_dirty(dirty))
		{
			Workload->saves++;
			return false;
		}
		Workload->active = true;
	}
	for (int i = 0; i < WORKLOAD_KINDS; i++)
		if (dirty[i] && !save_entry(i))
			set_dirty(i);
	pm_drain();
	Workload->saves++;
	return true;
}

uint64
workload_saves(void)
{
	return workload_enabled() ? Workload->saves : 0;
}
