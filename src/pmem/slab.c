/*-------------------------------------------------------------------------
 *
 * slab.c
 *	  Slabs: granules cut into slots of one size class.
 *
 * Durable: the granule's segment word (class, owner), an immutable header, and
 * one owner word per slot.  Volatile: which slabs of a set (owner, class) have
 * free slots.  They form a list whose links lie in the slab headers themselves
 * and count only while the header's tag is that of the set's entry in shared
 * memory.  Entries are a cache (8 ways): a forgotten set comes back with a new
 * tag, and its slabs are found again by walking the segment words once.
 *
 * The partition lock of a set protects its entry, its list, and the owner
 * words of all its slabs.  Lock order: partition lock, then segment lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "pm_internal.h"
#include "sofort/pmem/fault.h"

#define SLAB_MAGIC		0x534c4142	/* SLAB */

/* Powers of two below a line; then lines; the largest use a granule well. */
static const uint16 class_size[] = {
	8, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
	1280, 1536, 1792, 2048, 2560, 3072, 3584, 4032, 4608, 5440, 6528, 8128,
	9344, 10880, 13056, 16320, 21760, 32640
};

#define NCLASSES	((int) lengthof(class_size))

StaticAssertDecl(PM_SLAB_MAX == 32640, "largest class");

int
slab_nclasses(void)
{
	return NCLASSES;
}

Size
slab_class_size(int class)
{
	return class_size[class];
}

/* Smallest class for a size of 1 .. PM_SLAB_MAX. */
int
slab_class(Size size)
{
	int			low = 0;
	int			high = NCLASSES - 1;

	while (low < high)
	{
		int			mid = (low + high) / 2;

		if (class_size[mid] < size)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static uint32
slots_offset(uint32 nslots)
{
	return (uint32) TYPEALIGN(PM_LINE, offsetof(SlabHeader, owner) + nslots * sizeof(uint64));
}

static int
slab_class_slots(int class)
{
	uint32		n = (PM_GRANULE - offsetof(SlabHeader, owner)) / (class_size[class] + sizeof(uint64));

	while (slots_offset(n) + n * class_size[class] > PM_GRANULE)
		n--;
	return (int) n;
}

uint32
slab_class_offset(int class)
{
	return slots_offset((uint32) slab_class_slots(class));
}

static inline SlabHeader *
slab_header(int extent, uint32 granule)
{
	return (SlabHeader *) (PoolBase + granule_offset(extent, granule));
}

/* Are its fixed fields right?  No slab of an earlier life is used before this was checked. */
static bool
slab_is_right(const SlabHeader *slab, int class)
{
	return slab->magic == SLAB_MAGIC && slab->size_class == class &&
		slab->slot_size == class_size[class] && slab->nslots == slab_class_slots(class) &&
		slab->slots_offset == slab_class_offset(class);
}

/* ---- sets ---- */

static inline uint64
set_key(StoreId owner, int class)
{
	return (owner << 8) | (uint64) (class + 1);
}

static inline uint32
set_bucket(uint64 key)
{
	return hash_combine(murmurhash32((uint32) key), murmurhash32((uint32) (key >> 32))) %
		SLAB_BUCKETS;
}

static inline int
set_partition(uint64 key)
{
	return (int) (set_bucket(key) % SLAB_LOCKS);
}

static inline LWLock *
set_lock(uint64 key)
{
	return &pm_shared->slab_locks[set_partition(key)].lock;
}

StaticAssertDecl(SLAB_LOCKS <= 64, "partitions are bits of a word");

/* Locks several partitions, in the order of their numbers */
static void
lock_partitions(uint64 partitions)
{
	for (int i = 0; i < SLAB_LOCKS; i++)
		if (partitions & (UINT64CONST(1) << i))
			LWLockAcquire(&pm_shared->slab_locks[i].lock, LW_EXCLUSIVE);
}

static void
unlock_partitions(uint64 partitions)
{
	for (int i = 0; i < SLAB_LOCKS; i++)
		if (partitions & (UINT64CONST(1) << i))
			LWLockRelease(&pm_shared->slab_locks[i].lock);
}

static void
init_set(SlabSet *set, uint64 key, bool scan_done)
{
	uint32		serial = pg_atomic_add_fetch_u32(&pm_shared->slab_serial, 1);

	set->key = key;
	set->tag = (pm_shared->life << 32) | serial;
	set->head = PM_NULL;
	set->scan_extent = 0;
	set->scan_granule = 0;
	set->scan_done = scan_done;
}

/* The entry with this key, which may be 0; NULL if there is none */
static SlabSet *
find_set(SlabBucket *bucket, uint64 key)
{
	for (int i = 0; i < SLAB_WAYS; i++)
	{
		if (bucket->set[i].key == key)
			return &bucket->set[i];
	}
	return NULL;
}

/* The entry of a set, made if there is none.  Caller holds its lock. */
static SlabSet *
get_set(StoreId owner, int class)
{
	uint64		key = set_key(owner, class);
	SlabBucket *bucket = &pm_shared->slab_buckets[set_bucket(key)];
	SlabSet    *set = find_set(bucket, key);
	SlabSet    *unused;

	if (set != NULL)
		return set;
	unused = find_set(bucket, 0);
	if (unused == NULL)
	{
		unused = &bucket->set[bucket->victim++ % SLAB_WAYS];
		bucket->evicted = true;
	}

	/* A store of this life whose sets were never forgotten has no older slabs */
	init_set(unused, key, owner >= pm_shared->first_store_of_life && !bucket->evicted);
	return unused;
}

static void
list_push(SlabSet *set, SlabHeader *slab)
{
	slab->prev = PM_NULL;
	slab->next = set->head;
	if (set->head != PM_NULL)
		((SlabHeader *) pm_deref(set->head))->prev = pm_ptr(slab);
	set->head = pm_ptr(slab);
}

static void
list_remove(SlabSet *set, SlabHeader *slab)
{
	if (slab->prev != PM_NULL)
		((SlabHeader *) pm_deref(slab->prev))->next = slab->next;
	else
		set->head = slab->next;
	if (slab->next != PM_NULL)
		((SlabHeader *) pm_deref(slab->next))->prev = slab->prev;
}

/* Make the slab known to the set: count its free slots, list it. */
static void
adopt(SlabSet *set, SlabHeader *slab)
{
	uint32		nfree = 0;
	uint32		i;

	for (i = 0; i < slab->nslots; i++)
		nfree += slab->owner[i] == 0;
	slab->tag = set->tag;
	slab->nfree = nfree;
	slab->cursor = 0;
	if (nfree > 0)
		list_push(set, slab);
}

/* Goes on looking for slabs of earlier lives until one has a free slot. */
static void
scan_for_slabs(SlabSet *set, StoreId owner, int class)
{
	uint64		wanted = segword_make(SEGWORD_SLAB, class, owner);

	while (set->scan_extent < (uint32) pm_nextents)
	{
		int			e = (int) set->scan_extent;
		uint32		prepared = words_prepared(e);

		while (set->scan_granule < prepared)
		{
			uint32		g = set->scan_granule++;

			if (segment_word(e, g) == wanted && slab_header(e, g)->tag != set->tag &&
				slab_is_right(slab_header(e, g), class))
			{
				adopt(set, slab_header(e, g));
				if (set->head != PM_NULL)
					return;
			}
		}
		set->scan_extent++;
		set->scan_granule = 0;
	}
	set->scan_done = true;
}

/* Gives back a slab of the set that has no used slot. */
static void
release_if_empty(SlabSet *set, SlabHeader *slab)
{
	int			e;
	uint32		g;

	if (slab->nfree < slab->nslots)
		return;
	list_remove(set, slab);
	slab->tag = 0;
	(void) segment_find(pm_ptr(slab) & PM_OFFSET_MASK, &e, &g);
	pm_store8_persist(&pm_extent[e].words[g], 0);
	segment_release(granule_offset(e, g), 1);
}

/* ---- taking ---- */

/* A new slab for the set, listed.  0, an errno or PM_FULL_. */
static int
make_slab(SlabSet *set, StoreId owner, int class, int flags)
{
	uint64		offset;
	int			e;
	uint32		g;
	SlabHeader *slab;
	int			rc;

	rc = segment_take(1, flags, &offset);
	if (rc != 0)
		return rc;
	(void) segment_find(offset, &e, &g);
	slab = slab_header(e, g);
	memset(slab, 0, slab_class_offset(class));
	slab->magic = SLAB_MAGIC;
	slab->size_class = (uint16) class;
	slab->nslots = (uint16) slab_class_slots(class);
	slab->slot_size = class_size[class];
	slab->slots_offset = slab_class_offset(class);
	slab->tag = set->tag;
	slab->nfree = slab->nslots;
	pm_persist(slab, slab->slots_offset);

	/* The word makes it a slab: whoever sees the word must find a valid header. */
	pm_store8_persist(&pm_extent[e].words[g], segword_make(SEGWORD_SLAB, class, owner));
	list_push(set, slab);
	return 0;
}

static uint32
next_free_slot(SlabHeader *slab)
{
	uint32		i = slab->cursor;
	uint32		n;

	for (n = 0; n < slab->nslots; n++, i++)
	{
		if (i >= slab->nslots)
			i = 0;
		if (slab->owner[i] == 0)
		{
			slab->cursor = i + 1;
			return i;
		}
	}
	elog(PANIC, "sofort: slab at " UINT64_FORMAT " has no free slot", pm_ptr(slab));
}

/* Chooses a slot of the set, which nobody else finds from now on. 0, an errno or PM_FULL_. */
static int
choose_slot(SlabTake *take, SlabSet *set, StoreId set_owner, int flags)
{
	SlabHeader *slab;

	if (set->head == PM_NULL && !set->scan_done)
		scan_for_slabs(set, set_owner, take->class);
	if (set->head == PM_NULL)
	{
		int			rc = make_slab(set, set_owner, take->class, flags);

		if (rc != 0)
			return rc;
	}
	slab = pm_deref(set->head);
	take->slab = slab;
	take->slot = next_free_slot(slab);
	if (--slab->nfree == 0)
		list_remove(set, slab);
	return 0;
}

/* Undoes choose_slot().  (A set that was forgotten since counts anew.) */
static void
unchoose_slot(const SlabTake *take, StoreId set_owner)
{
	uint64		key = set_key(set_owner, take->class);
	SlabSet    *set = find_set(&pm_shared->slab_buckets[set_bucket(key)], key);

	if (set == NULL || set->tag != take->slab->tag)
		return;
	if (take->slab->nfree++ == 0)
		list_push(set, take->slab);
	release_if_empty(set, take->slab);
}

/*
 * Chooses slots for all or for none, one class after the other: getting one set may make
 * another one be forgotten, and that would later count slots that were only chosen as free.
 */
static int
choose_slots(SlabTake *take, int n, StoreId set_owner, int flags)
{
	int			nchosen = 0;
	int			rc = 0;

	for (int class = 0; class < NCLASSES && nchosen < n && rc == 0; class++)
	{
		SlabSet    *set = NULL;

		for (int i = 0; i < n && rc == 0; i++)
		{
			if (take[i].class != class)
				continue;
			if (set == NULL)
				set = get_set(set_owner, class);
			rc = choose_slot(&take[i], set, set_owner, flags);
			if (rc == 0)
				nchosen++;
		}
	}
	for (int i = 0; i < n && rc != 0; i++)
	{
		if (take[i].slab != NULL)
			unchoose_slot(&take[i], set_owner);
	}
	return rc;
}

/*
 * Takes n slots: their intents, if they have any, are durable before the owner words are
 * stored (flushed, not drained).  So are the zeroes that are there, or a start might take
 * the word of an owner that is gone for the new one's.  All or none: 0, an errno or
 * PM_FULL_.
 */
int
slab_take(SlabTake *take, int n, StoreId owner, bool shared, int flags)
{
	StoreId		set_owner = shared ? PM_OWNER_SHARED : owner;
	uint64		partitions = 0;
	int			rc;
	int			i;

	for (i = 0; i < n; i++)
	{
		take[i].slab = NULL;
		partitions |= UINT64CONST(1) << set_partition(set_key(set_owner, take[i].class));
	}
	lock_partitions(partitions);
	rc = choose_slots(take, n, set_owner, flags);
	if (rc != 0)
	{
		unlock_partitions(partitions);
		return rc;
	}
	for (i = 0; i < n; i++)
	{
		AllocIntent *intent = take[i].intent;
		const SlabHeader *slab = take[i].slab;

		take[i].target = pm_ptr((const char *) slab + slab->slots_offset +
								(uint64) take[i].slot * slab->slot_size);
		if (intent == NULL)
			continue;
		intent->link = take[i].link;
		intent->nlinks = take[i].nlinks;
		intent->size = slab->slot_size;
		pm_store8(&intent->target, take[i].target);
		pm_flush(&slab->owner[take[i].slot], sizeof(uint64));
	}
	if (take[0].intent != NULL)
		pm_drain();
	SOFORT_STOP("pmem-slab-intent");
	for (i = 0; i < n; i++)
		pm_store8(&take[i].slab->owner[take[i].slot], PM_SEAL_ID(owner));
	unlock_partitions(partitions);
	return 0;
}

/* ---- giving back ---- */

/* Slot number of an offset in a slab; false if it is not the start of one. */
bool
slab_slot_of(int extent, uint32 granule, uint64 offset, uint32 *slot)
{
	int			class = (int) SEGWORD_COUNT(segment_word(extent, granule));
	uint64		within = offset - granule_offset(extent, granule);

	if (class >= NCLASSES || within < slab_class_offset(class) ||
		(within - slab_class_offset(class)) % class_size[class] != 0)
		return false;
	*slot = (uint32) ((within - slab_class_offset(class)) / class_size[class]);
	return *slot < (uint32) slab_class_slots(class);
}

/* 0: it is free */
StoreId
slab_slot_owner(int extent, uint32 granule, uint32 slot)
{
	return PM_UNSEAL_ID(*(volatile uint64 *) &slab_header(extent, granule)->owner[slot]);
}

/* n slots became free.  An empty slab goes back. */
static void
slots_freed(SlabSet *set, int extent, uint32 granule, uint32 n)
{
	SlabHeader *slab = slab_header(extent, granule);

	if (slab->tag != set->tag)
	{
		/* a damaged one stays as it is: sofort.verify_pool() reports it */
		if (!slab_is_right(slab, (int) SEGWORD_COUNT(segment_word(extent, granule))))
			return;
		adopt(set, slab);
	}
	else
	{
		if (slab->nfree == 0)
			list_push(set, slab);
		slab->nfree += n;
	}
	release_if_empty(set, slab);
}

/* The slot of an intent, which must be one */
static uint32
slot_of_intent(const AllocIntent *intent, int *extent, uint32 *granule)
{
	uint32		slot;

	if (SEGWORD_STATE(segment_covering(intent->target & PM_OFFSET_MASK, extent, granule)) !=
		SEGWORD_SLAB ||
		!slab_slot_of(*extent, *granule, intent->target & PM_OFFSET_MASK, &slot))
		elog(PANIC, "sofort: " UINT64_FORMAT " is not a slab slot", intent->target);
	return slot;
}

static int
compare_targets(const void *a, const void *b)
{
	PMPtr		x = (*(AllocIntent *const *) a)->target & PM_OFFSET_MASK;
	PMPtr		y = (*(AllocIntent *const *) b)->target & PM_OFFSET_MASK;

	return x < y ? -1 : x > y;
}

/*
 * Free the slots of n intents and forget these.  Both are durable before the locks
 * are released: else a slot could be taken again while a crash would still find the
 * intent and free it.  Changes the order of the intents.
 */
void
slab_give_back(AllocIntent **intent, int n)
{
	uint64		partitions = 0;
	int			nfreed[PM_INTENTS_PER_BACKEND] = {0};	/* of the slab that begins with i */
	int			extent[PM_INTENTS_PER_BACKEND];
	uint32		granule[PM_INTENTS_PER_BACKEND];
	uint32		slot[PM_INTENTS_PER_BACKEND];
	int			first = 0;
	int			i;

	Assert(n <= PM_INTENTS_PER_BACKEND);
	qsort(intent, n, sizeof(AllocIntent *), compare_targets);
	for (i = 0; i < n; i++)
	{
		uint64		word;

		slot[i] = slot_of_intent(intent[i], &extent[i], &granule[i]);
		word = segment_word(extent[i], granule[i]);
		partitions |= UINT64CONST(1) <<
			set_partition(set_key(SEGWORD_OWNER(word), (int) SEGWORD_COUNT(word)));
	}
	lock_partitions(partitions);
	for (i = 0; i < n; i++)
	{
		SlabHeader *slab = slab_header(extent[i], granule[i]);

		if (slab != slab_header(extent[first], granule[first]))
			first = i;
		nfreed[first] += slab->owner[slot[i]] != 0;
		pm_store8(&slab->owner[slot[i]], 0);
	}
	pm_drain();
#ifdef USE_ASSERT_CHECKING
	/* nobody may look at it any more; not flushed */
	for (i = 0; i < n; i++)
	{
		int			class = (int) SEGWORD_COUNT(segment_word(extent[i], granule[i]));

		memset(pm_deref(intent[i]->target), 0x5A, slab_class_size(class));
	}
#endif
	SOFORT_STOP("pmem-slab-freed");
	for (i = 0; i < n; i++)
		pm_store8(&intent[i]->target, PM_NULL);
	pm_drain();
	for (i = 0; i < n; i++)
	{
		uint64		word = segment_word(extent[i], granule[i]);

		if (nfreed[i] > 0)
			slots_freed(get_set(SEGWORD_OWNER(word), (int) SEGWORD_COUNT(word)), extent[i], granule[i],
						(uint32) nfreed[i]);
	}
	unlock_partitions(partitions);
}

static inline bool
is_shared_slab(uint64 word)
{
	return SEGWORD_STATE(word) == SEGWORD_SLAB && SEGWORD_OWNER(word) == PM_OWNER_SHARED;
}

/*
 * Nobody takes slots for an owner that is dropped.  But others free theirs, and an empty
 * slab must not be read any more: so this takes the lock.
 */
static bool
owner_has_slots(int extent, uint32 granule, uint64 word, StoreId owner)
{
	int			class = (int) SEGWORD_COUNT(word);
	LWLock	   *lock = set_lock(set_key(PM_OWNER_SHARED, class));
	const uint64 *owners = slab_header(extent, granule)->owner;
	uint64		wanted = PM_SEAL_ID(owner);
	bool		found = false;

	LWLockAcquire(lock, LW_SHARED);
	if (segment_word(extent, granule) == word && is_shared_slab(word))
		for (int i = 0; i < slab_class_slots(class) && !found; i++)
			found = owners[i] == wanted;
	LWLockRelease(lock);
	return found;
}

/*
 * Frees the slots of one owner in a shared slab: flushed, not drained.  A slot may be taken
 * at once: then its word is drained with the new intent. again: slots that a killed process
 * has freed may not be durably free, and are flushed, too.
 */
void
slab_free_owner(int extent, uint32 granule, StoreId owner, bool again)
{
	uint64		word = segment_word(extent, granule);
	int			class = (int) SEGWORD_COUNT(word);
	LWLock	   *lock = set_lock(set_key(PM_OWNER_SHARED, class));
	SlabHeader *slab = slab_header(extent, granule);
	uint32		n = 0;
	uint32		i;

	/* (words that a killed process has zeroed do not say whose they were: all are flushed) */
	if (!again && !owner_has_slots(extent, granule, word, owner))
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	SOFORT_STOP("pmem-shared-slab-locked");
	if (segment_word(extent, granule) == word && is_shared_slab(word))
	{
		for (i = 0; i < (uint32) slab_class_slots(class); i++)
		{
			if (slab->owner[i] != PM_SEAL_ID(owner))
				continue;
			pm_store8(&slab->owner[i], 0);
			n++;
		}
		if (again)
			pm_flush(slab->owner, slab_class_slots(class) * sizeof(uint64));
		/* once the lock is released, whoever frees the last slot may give back the page */
		if (again || n > 0)
			pm_start_writeback();
		if (n > 0)
			slots_freed(get_set(PM_OWNER_SHARED, class), extent, granule, n);
	}
	LWLockRelease(lock);
}

/*
 * Copies the allocated slots that belong to the owner (all if ~0), so that the caller can
 * look at them without a lock.  None if the word has changed.
 */
int
slab_copy_slots(int extent, uint32 granule, uint64 word, StoreId owner, uint16 *slots,
				StoreId *owners)
{
	int			class = (int) SEGWORD_COUNT(word);
	LWLock	   *lock = set_lock(set_key(SEGWORD_OWNER(word), class));
	SlabHeader *slab = slab_header(extent, granule);
	int			n = 0;
	int			i;

	LWLockAcquire(lock, LW_SHARED);
	if (segment_word(extent, granule) == word)
	{
		for (i = 0; i < slab_class_slots(class); i++)
		{
			if (slab->owner[i] == 0 ||
				(owner != ~UINT64CONST(0) && slab->owner[i] != PM_SEAL_ID(owner)))
				continue;
			slots[n] = (uint16) i;
			owners[n++] = PM_UNSEAL_ID(slab->owner[i]);
		}
	}
	LWLockRelease(lock);
	return n;
}

/* What is wrong with a slab, or NULL.  For pool_verify(). */
const char *
slab_problem(int extent, uint32 granule, uint64 word)
{
	int			class = (int) SEGWORD_COUNT(word);
	StoreId		set_owner = SEGWORD_OWNER(word);
	SlabHeader *slab = slab_header(extent, granule);
	const char *problem = NULL;
	LWLock	   *lock;
	uint32		i;

	if (class >= NCLASSES)
		return "size class does not exist";
	lock = set_lock(set_key(set_owner, class));
	LWLockAcquire(lock, LW_SHARED);
	if (segment_word(extent, granule) != word)
		problem = NULL;			/* freed meanwhile */
	else if (slab->magic != SLAB_MAGIC)
		problem = "slab header has no magic number";
	else if (!slab_is_right(slab, class))
		problem = "slab header differs from the segment word's size class";
	else
	{
		for (i = 0; i < slab->nslots && problem == NULL; i++)
		{
			StoreId		o = PM_UNSEAL_ID(slab->owner[i]);

			if (!PM_SEALED_ID_RIGHT(slab->owner[i]))
				problem = "owner of a slot is damaged";
			else if (o >= PM_FIRST_STORE_ID && o >= PM_UNSEAL_ID(PoolSuper->next_store_id))
				problem = "slot belongs to a store id that was never given out";
			else if (o != 0 && set_owner != PM_OWNER_SHARED && o != set_owner)
				problem = "slot of a private slab belongs to another owner";
		}
	}
	LWLockRelease(lock);
	return problem;
}

/* Forget the sets of an owner whose private slabs are about to be freed. */
void
slab_forget_owner(StoreId owner)
{
	int			class;
	int			i;

	for (class = 0; class < NCLASSES; class++)
	{
		uint64		key = set_key(owner, class);
		SlabBucket *bucket = &pm_shared->slab_buckets[set_bucket(key)];

		LWLockAcquire(set_lock(key), LW_EXCLUSIVE);
		for (i = 0; i < SLAB_WAYS; i++)
		{
			if (bucket->set[i].key == key)
				bucket->set[i].key = 0;
		}
		LWLockRelease(set_lock(key));
	}
}
