/*-------------------------------------------------------------------------
 *
 * alloc.c
 *	  Reservations, publication and freeing, with durable intents.
 *
 * An intent (target, link) of this process says "target is free unless link holds it".
 * It is durable before the space is marked used, and durably forgotten before the space
 * can be taken by somebody else.  So a crash at any moment leaves each allocation
 * linked, or free, or named by an intent: alloc_startup() frees it unless it is marked
 * and its link holds it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "pm_internal.h"
#include "port/pg_bitutils.h"
#include "sofort/pmem/fault.h"
#include "storage/ipc.h"

/* Bit i: intent i of this process's reservations is in use. */
static uint64 open_intents = 0;

/* Of these: its link was stored by pm_link_batch(), and waits for pm_settle(). */
static uint64 linked_intents = 0;

/* Of these: reserved ahead of need; given up when their intents are needed. */
static uint64 ahead_intents = 0;

/* pm_settle() has forgotten some, perhaps not durably. */
static bool settled_since_drain = false;
static bool callbacks_registered = false;

#define INTENT_BIT(i)	(UINT64CONST(1) << (i))

StaticAssertDecl(PM_INTENTS_PER_BACKEND <= 64, "open_intents has 64 bits");

static void free_targets(AllocIntent **intent, int n);
static void settle_linked(bool drained);

/* This process's intents: for reservations, and one for pm_free() */
static AllocIntents *
my_intents(bool for_free)
{
	return pm_vector_get(&PoolSuper->intents, 2 * (uint64) pm_process_number() + (for_free ? 1 : 0));
}

static void
release_at_exit(int code, Datum arg)
{
	pm_release_reservations();
}

static void
release_at_abort(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		pm_release_reservations();
}

/* A reservation is published or cancelled by the function that made it, so
 * none of an outer level is open when a subtransaction fails. */
static void
release_at_subabort(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		pm_release_reservations();
}

/*
 * Registered at the first reservation, thus later than txn's callbacks, so
 * that they run earlier: links may lie in what an abort drops.
 */
static void
register_callbacks(void)
{
	before_shmem_exit(release_at_exit, (Datum) 0);
	RegisterXactCallback(release_at_abort, NULL);
	RegisterSubXactCallback(release_at_subabort, NULL);
	callbacks_registered = true;
}

void
pm_prepare_process(void)
{
	if (!callbacks_registered && MyProc != NULL)
		register_callbacks();
}

/* Does the pointer point into the allocation? */
static inline bool
points_into(PMPtr p, PMPtr target, uint64 size)
{
	uint64		at = p & PM_OFFSET_MASK;
	uint64		start = target & PM_OFFSET_MASK;

	return pm_ref_is_valid(p) && at >= start && at - start < size;
}

static inline PMPtr
load_link(const PMPtr *link)
{
	return *(const volatile PMPtr *) link;
}

/* ---- reserving ---- */

/* (intent NULL: none) */
static int
reserve_segment(AllocIntent *intent, StoreId owner, const PmRequest *request, int flags,
				PMPtr *target)
{
	uint64		n = ((uint64) request->size + PM_GRANULE - 1) / PM_GRANULE;
	uint64		offset;
	int			rc;
	int			e;
	uint32		g;

	if (n > PM_MAX_GRANULES)
		return PM_FULL_POOL;
	rc = segment_take((uint32) n, flags, &offset);
	if (rc != 0)
		return rc;
	(void) segment_find(offset, &e, &g);
	*target = PM_REF(offset);
	if (intent != NULL)
	{
		intent->link = pm_ptr(request->link);
		intent->nlinks = request->nlinks;
		intent->size = n * PM_GRANULE;
		pm_store8_persist(&intent->target, *target);
	}
	SOFORT_STOP("pmem-segment-intent");
	pm_store8(&pm_extent[e].words[g], segword_make(SEGWORD_SEGMENT, (uint32) n, owner));
	return 0;
}

/*
 * Shared slabs have few size classes: each has at least one granule, and what
 * many small stores need is of all sizes.
 */
static int
shared_slab_class(Size size)
{
	static const uint16 sizes[] = {64, 256, 1024, 2048, 4032, 8128, 16320};
	int			i;

	for (i = 0; i < (int) lengthof(sizes); i++)
	{
		if (size <= sizes[i])
			return slab_class(sizes[i]);
	}
	return slab_class(size);
}

int
pm_reservable(void)
{
	return PM_INTENTS_PER_BACKEND -
		pg_popcount64(open_intents & ~linked_intents & ~ahead_intents);
}

/* Takes n intents that are not in use, and stores in r which */
static void
take_intents(PmReservation *r, int n)
{
	int			taken = 0;

	if (pg_popcount64(open_intents) + n > PM_INTENTS_PER_BACKEND)
		settle_linked(false);
	if (pg_popcount64(open_intents) + n > PM_INTENTS_PER_BACKEND)
		pm_give_up_ahead();
	if (pm_reservable() < n)
		elog(ERROR, "sofort: more than %d allocations are open", PM_INTENTS_PER_BACKEND);
	for (int i = 0; taken < n; i++)
	{
		if ((open_intents & INTENT_BIT(i)) == 0)
		{
			r[taken++].intent = i;
			open_intents |= INTENT_BIT(i);
		}
	}
}

static AllocIntent *
intent_of(const PmReservation *r)
{
	return r->intent >= 0 ? &my_intents(false)->intent[r->intent] : NULL;
}

/* Reserves slots for those requests that a slab serves.  All or none. */
static int
reserve_slots(PmReservation *r, const PmRequest *request, int n, StoreId owner, int flags)
{
	bool		shared = (flags & PM_RESERVE_SHARED_SLAB) != 0;
	SlabTake	take[PM_INTENTS_PER_BACKEND];
	int			of[PM_INTENTS_PER_BACKEND];
	int			ntake = 0;
	int			rc;

	for (int i = 0; i < n; i++)
	{
		if (request[i].size > PM_SLAB_MAX)
			continue;
		of[ntake] = i;
		take[ntake].class = shared ? shared_slab_class(request[i].size) : slab_class(request[i].size);
		take[ntake].intent = intent_of(&r[i]);
		take[ntake].link = pm_ptr(request[i].link);
		take[ntake++].nlinks = request[i].nlinks;
	}
	rc = ntake == 0 ? 0 : slab_take(take, ntake, owner, shared, flags);
	for (int i = 0; i < ntake && rc == 0; i++)
	{
		r[of[i]].target = take[i].target;
		r[of[i]].size = take[i].slab->slot_size;
	}
	return rc;
}

/* Reserves space for all requests; or for some, and returns not 0 */
static int
reserve_space(PmReservation *r, const PmRequest *request, int n, StoreId owner, int flags)
{
	int			rc = reserve_slots(r, request, n, owner, flags);

	for (int i = 0; i < n && rc == 0; i++)
	{
		if (request[i].size <= PM_SLAB_MAX)
			continue;
		rc = reserve_segment(intent_of(&r[i]), owner, &request[i], flags, &r[i].target);
		r[i].size = (request[i].size + PM_GRANULE - 1) / PM_GRANULE * PM_GRANULE;
	}
	return rc;
}

/* Gives up reservations, durably. */
static void
cancel_intents(const PmReservation *r, int n)
{
	AllocIntent *intent[PM_INTENTS_PER_BACKEND];
	int			i;

	for (i = 0; i < n; i++)
	{
		Assert(r[i].intent >= 0);
		intent[i] = intent_of(&r[i]);
	}
	free_targets(intent, n);
	for (i = 0; i < n; i++)
		open_intents &= ~INTENT_BIT(r[i].intent);
}

/*
 * Reserves for several requests of one owner: their intents are made durable together,
 * except those of segments.  All or none (PM_RESERVE_UNGUARDED: what was taken stays the
 * owner's).  Returns 0, an errno, or PM_FULL_ (for pm_raise_full()).
 */
int
pm_try_reserve_batch(PmReservation *r, const PmRequest *request, int n, StoreId owner, int flags)
{
	bool		guarded = (flags & PM_RESERVE_UNGUARDED) == 0;
	int			rc;
	int			i;

	Assert(n > 0 && n <= PM_INTENTS_PER_BACKEND);
	Assert(owner <= PM_OWNER_MASK && owner != PM_OWNER_SHARED);
	for (i = 0; i < n; i++)
		r[i].intent = -1;
	if (guarded)
		take_intents(r, n);
	if (!callbacks_registered && MyProc != NULL)
		register_callbacks();

	/*
	 * The start of the server must not fail because of a quota; nor may a DELETE that makes
	 * room, whose write set is given back when it ends.
	 */
	if (MyProc == NULL || owner == PM_OWNER_TXN)
		flags |= PM_NO_QUOTA;

	for (i = 0; i < n && guarded; i++)
		intent_of(&r[i])->target = PM_NULL; /* (what a damaged intent names) */
	rc = reserve_space(r, request, n, owner, flags);
	if (rc != 0)
	{
		if (guarded)
			cancel_intents(r, n);
		return rc;
	}
	SOFORT_STOP("pmem-reserved");
	for (i = 0; i < n; i++)
	{
		r[i].addr = pm_deref(r[i].target);
		if (flags & PM_RESERVE_ZERO)
			pm_zero_nodrain(r[i].addr, r[i].size);
	}
	return 0;
}

int
pm_try_reserve(PmReservation *r, StoreId owner, Size size, PMPtr *link, uint64 nlinks, int flags)
{
	PmRequest	request = {.size = size,.link = link,.nlinks = nlinks};

	return pm_try_reserve_batch(r, &request, 1, owner, flags);
}

int
pm_try_reserve_ahead(PmReservation *r, const PmRequest *request, int now, int n, StoreId owner,
					 int flags)
{
	int			rc;

	Assert((flags & PM_RESERVE_UNGUARDED) == 0);
	rc = pm_try_reserve_batch(r, request, n, owner, flags);
	for (int i = now; i < n && rc == 0; i++)
	{
		Assert(request[i].size <= PM_SLAB_MAX && request[i].nlinks == 1);
		ahead_intents |= INTENT_BIT(r[i].intent);
	}
	return rc;
}

int
pm_ahead(void)
{
	return pg_popcount64(ahead_intents);
}

bool
pm_take_ahead(PmReservation *r, const PmRequest *request, int flags)
{
	bool		shared = (flags & PM_RESERVE_SHARED_SLAB) != 0;
	AllocIntents *mine;
	Size		size;

	if (ahead_intents == 0 || request->size > PM_SLAB_MAX)
		return false;
	mine = my_intents(false);
	size = slab_class_size(shared ? shared_slab_class(request->size) : slab_class(request->size));
	for (int i = 0; i < PM_INTENTS_PER_BACKEND; i++)
	{
		const AllocIntent *intent = &mine->intent[i];

		if ((ahead_intents & INTENT_BIT(i)) == 0 || intent->link != pm_ptr(request->link) ||
			intent->size != size)
			continue;
		ahead_intents &= ~INTENT_BIT(i);
		r->intent = i;
		r->target = intent->target;
		r->size = size;
		r->addr = pm_deref(r->target);
		return true;
	}
	return false;
}

/* (Nobody uses what they name, so it does not matter what has become of their links.) */
void
pm_give_up_ahead(void)
{
	AllocIntents *mine;
	AllocIntent *intent[PM_INTENTS_PER_BACKEND];
	int			n = 0;

	if (ahead_intents == 0)
		return;
	HOLD_INTERRUPTS();
	mine = my_intents(false);
	for (int i = 0; i < PM_INTENTS_PER_BACKEND; i++)
		if (ahead_intents & INTENT_BIT(i))
			intent[n++] = &mine->intent[i];
	free_targets(intent, n);
	open_intents &= ~ahead_intents;
	ahead_intents = 0;
	RESUME_INTERRUPTS();
}

void
pm_reserve(PmReservation *r, StoreId owner, Size size, PMPtr *link, uint64 nlinks, int flags)
{
	int			rc;

	pool_require();
	rc = pm_try_reserve(r, owner, size, link, nlinks, flags);
	if (unlikely(rc != 0))
		pm_raise_full(rc, size);
}

/* ---- publishing ---- */

/* Forget intents, durably: a later life must not free what they name. */
static void
forget_intents(const PmReservation *r, int n)
{
	AllocIntents *mine = my_intents(false);
	int			i;

	for (i = 0; i < n; i++)
	{
		pm_store8(&mine->intent[r[i].intent].target, PM_NULL);
		open_intents &= ~INTENT_BIT(r[i].intent);
	}
	pm_drain();
	SOFORT_STOP("pmem-forgotten");
}

void
pm_publish_batch(PmReservation *r, int n)
{
	AllocIntents *mine = my_intents(false);
	int			i;

	pm_drain();
	SOFORT_STOP("pmem-filled");
	for (i = 0; i < n; i++)
	{
		Assert(mine->intent[r[i].intent].target == r[i].target);
		Assert(mine->intent[r[i].intent].nlinks == 1);
		pm_store8(pm_deref(mine->intent[r[i].intent].link), r[i].target);
	}
	SOFORT_STOP("pmem-linked");
	pm_drain();
	SOFORT_STOP("pmem-published");
	forget_intents(r, n);
}

/*
 * Store links that count only if this transaction commits, which settles before it
 * does.  Flushed, not drained: a power cut may take space, contents and link each by
 * itself; recover_intent() makes it all or nothing.
 */
void
pm_link_batch(const PmReservation *r, const PmRequest *request, int n)
{
	for (int i = 0; i < n; i++)
	{
		Assert(request[i].nlinks == 1);
		Assert(r[i].intent < 0 || intent_of(&r[i])->target == r[i].target);
		pm_store8(request[i].link, r[i].target);
		if (r[i].intent >= 0)
			linked_intents |= INTENT_BIT(r[i].intent);
	}
	SOFORT_STOP("pmem-linked");
}

/*
 * What pm_link_batch() has linked is durable: forgets its intents, flushed and not drained.
 * The caller drains before anybody else can free what they name, or ends in an ERROR, after
 * which pm_release_reservations() does.
 */
static void
settle_linked(bool drained)
{
	AllocIntents *mine;

	if (likely(linked_intents == 0))
		return;
	if (!drained)
		pm_drain();
	SOFORT_STOP("pmem-settling");
	mine = my_intents(false);
	for (int i = 0; i < PM_INTENTS_PER_BACKEND; i++)
		if (linked_intents & INTENT_BIT(i))
			pm_store8(&mine->intent[i].target, PM_NULL);
	open_intents &= ~linked_intents;
	linked_intents = 0;
	settled_since_drain = true;
}

/* (Giving up drains, and so makes durable what was linked.) */
void
pm_settle(void)
{
	bool		drained = ahead_intents != 0;

	pm_give_up_ahead();
	settle_linked(drained);
}

void
pm_settle_durably(void)
{
	pm_settle();
	if (settled_since_drain)
		pm_drain();
	settled_since_drain = false;
}

void
pm_publish(PmReservation *r)
{
	pm_publish_batch(r, 1);
}

void
pm_publish_many(PmReservation *r, const PMPtr *values)
{
	AllocIntent *intent = &my_intents(false)->intent[r->intent];
	PMPtr	   *links = pm_deref(intent->link);
	uint64		n = intent->nlinks;
	uint64		i;

	Assert(intent->target == r->target);
	Assert(points_into(values[0], r->target, r->size));
	pm_drain();
	SOFORT_STOP("pmem-filled");
	for (i = 1; i < n; i++)
		*(volatile PMPtr *) &links[i] = values[i];
	pm_flush(links + 1, (n - 1) * sizeof(PMPtr));
	pm_drain();
	pm_store8(&links[0], values[0]);
	SOFORT_STOP("pmem-linked");
	pm_drain();
	SOFORT_STOP("pmem-published");
	forget_intents(r, 1);
}

/* ---- freeing ---- */

static void
free_segment(AllocIntent *intent)
{
	PMPtr		target = intent->target;
	uint32		n = (uint32) (intent->size / PM_GRANULE);
	int			e;
	uint32		g;

	(void) segment_find(target & PM_OFFSET_MASK, &e, &g);
	pm_store8_persist(&pm_extent[e].words[g], 0);
	SOFORT_STOP("pmem-segment-freed");
	pm_store8_persist(&intent->target, PM_NULL);
	segment_release(target & PM_OFFSET_MASK, n);
}

/* Frees the space of the targets of n intents, then forgets these. */
static void
free_targets(AllocIntent **intent, int n)
{
	AllocIntent *slot[PM_INTENTS_PER_BACKEND];
	int			nslots = 0;

	for (int i = 0; i < n; i++)
	{
		if (intent[i]->target == PM_NULL)
			continue;
		if (intent[i]->size < PM_GRANULE)
			slot[nslots++] = intent[i];
		else
			free_segment(intent[i]);
	}
	if (nslots > 0)
		slab_give_back(slot, nslots);
}

/* Zero those of links[1..n-1] that point into the target; flushed. */
static void
clear_other_links(PMPtr *links, uint64 n, PMPtr target, uint64 size)
{
	uint64		i;

	for (i = 1; i < n; i++)
	{
		if (points_into(load_link(&links[i]), target, size))
			pm_store8(&links[i], PM_NULL);
	}
}

/*
 * An intent that waits for pm_settle() must be durably gone before the memory of its link,
 * or what the link holds, can be another's.  (Drained with the intent to free.)
 */
static void
settle_what_is_freed(PMPtr *link, PMPtr target, uint64 size)
{
	const AllocIntents *mine = my_intents(false);

	if (likely(linked_intents == 0))
		return;
	for (int i = 0; i < PM_INTENTS_PER_BACKEND; i++)
	{
		if ((linked_intents & INTENT_BIT(i)) != 0 &&
			(mine->intent[i].link == pm_ptr(link) || points_into(mine->intent[i].link, target, size)))
		{
			settle_linked(false);
			return;
		}
	}
}

/*
 * Makes an intent to free what the link holds; false, with a warning, if that is not the
 * owner's.
 */
static bool
intend_to_free(AllocIntent *intent, StoreId owner, PMPtr *link, uint64 nlinks)
{
	PMPtr		p = load_link(link);
	PMPtr		target;
	uint64		size;
	StoreId		found = 0;

	if (!allocation_of(p, &target, &size, &found) || found != owner)
	{
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("sofort pool: reference " UINT64_FORMAT " points to no allocation of store " UINT64_FORMAT,
						p, owner),
				 errdetail("Nothing is freed. What it points to belongs to store " UINT64_FORMAT " (0: to nobody).",
						   found),
				 errhint("Run sofort.verify() for all tables, and sofort.verify_pool().")));
		return false;
	}
	settle_what_is_freed(link, target, size);
	intent->link = pm_ptr(link);
	intent->nlinks = nlinks;
	intent->size = size;
	pm_store8(&intent->target, target);
	return true;
}

/*
 * Carries out n intents that name what is to be freed, and whose links hold that; flushed.
 * If a power cut loses the change of a link, or of the mark of what it led to,
 * recover_intent() completes it.  But of several links the first one is changed alone.
 */
static void
carry_out(AllocIntent **intent, int n)
{
	int			i;

	pm_drain();
	SOFORT_STOP("pmem-free-intent");
	for (i = 0; i < n; i++)
		pm_store8(pm_deref(intent[i]->link), PM_NULL);
	SOFORT_STOP("pmem-unlinked");
	for (i = 0; i < n; i++)
	{
		if (intent[i]->nlinks == 1)
			continue;
		pm_drain();
		clear_other_links(pm_deref(intent[i]->link), intent[i]->nlinks, intent[i]->target,
						  intent[i]->size);
	}
	free_targets(intent, n);
	SOFORT_STOP("pmem-freed");
}

bool
pm_free(StoreId owner, PMPtr *link, uint64 nlinks)
{
	AllocIntent *intent = &my_intents(true)->intent[0];
	bool		done = true;

	if (load_link(link) == PM_NULL)
		return true;
	HOLD_INTERRUPTS();
	done = intend_to_free(intent, owner, link, nlinks);
	if (done)
		carry_out(&intent, 1);
	RESUME_INTERRUPTS();
	return done;
}

void
pm_free_batch(StoreId owner, PMPtr *const *links, int n)
{
	AllocIntents *mine = my_intents(true);
	AllocIntent *intent[PM_INTENTS_PER_BACKEND];
	int			i = 0;

	HOLD_INTERRUPTS();
	while (i < n)
	{
		int			k = 0;

		for (; i < n && k < PM_INTENTS_PER_BACKEND; i++)
		{
			intent[k] = &mine->intent[k];
			if (load_link(links[i]) != PM_NULL && intend_to_free(intent[k], owner, links[i], 1))
				k++;
		}
		if (k > 0)
			carry_out(intent, k);
	}
	RESUME_INTERRUPTS();
}

void
pm_cancel(PmReservation *r)
{
	HOLD_INTERRUPTS();
	cancel_intents(r, 1);
	RESUME_INTERRUPTS();
}

/*
 * Does the intent's link hold its target?  A link in memory that is not in use
 * holds nothing (and must not be read: a hole).
 */
static bool
link_is_readable(const AllocIntent *intent)
{
	uint64		offset = intent->link & PM_OFFSET_MASK;
	int			e;
	uint32		g;

	if (!pm_ref_is_valid(intent->link) || intent->nlinks == 0 ||
		intent->nlinks > PM_POOL_FILE_BYTES / sizeof(PMPtr))
		return false;
	return segment_find(offset, &e, &g) && segment_is_used(e, g) &&
		segment_find(offset + intent->nlinks * sizeof(PMPtr) - 1, &e, &g) &&
		segment_is_used(e, g);
}

static bool
link_holds_target(const AllocIntent *intent)
{
	return link_is_readable(intent) &&
		points_into(load_link(pm_deref(intent->link)), intent->target, intent->size);
}

/*
 * After an ERROR, or at exit: frees what was reserved and not linked.  An ERROR may have
 * come between linking and forgetting; what is linked stays.
 */
void
pm_release_reservations(void)
{
	AllocIntents *mine;
	AllocIntent *unlinked[PM_INTENTS_PER_BACKEND];
	int			n = 0;

	SOFORT_STOP("pmem-releasing");
	if ((open_intents == 0 && !settled_since_drain) || pool_status() != POOL_READY)
		return;
	HOLD_INTERRUPTS();
	mine = my_intents(false);
	pm_drain();					/* drains links before the intents that name them go */
	settled_since_drain = false;
	for (int i = 0; i < PM_INTENTS_PER_BACKEND; i++)
	{
		AllocIntent *intent = &mine->intent[i];

		if ((open_intents & INTENT_BIT(i)) == 0 || intent->target == PM_NULL)
			continue;
		if (link_holds_target(intent))
		{
			pm_store8(&intent->target, PM_NULL);
			continue;
		}
		if (intent->nlinks > 1 && link_is_readable(intent))
			clear_other_links(pm_deref(intent->link), intent->nlinks, intent->target, intent->size);
		unlinked[n++] = intent;
	}
	if (open_intents != 0)
		pm_drain();
	free_targets(unlinked, n);
	open_intents = linked_intents = ahead_intents = 0;
	RESUME_INTERRUPTS();
}

/* ---- start ---- */

/* The word that is not 0 if the target is in use; NULL if no segment or slab is there. */
static uint64 *
mark_of_target(const AllocIntent *intent)
{
	uint64		offset = intent->target & PM_OFFSET_MASK;
	int			e;
	uint32		g;
	uint32		slot;
	uint64		word = segment_covering(offset, &e, &g);

	if (SEGWORD_STATE(word) == SEGWORD_SEGMENT && granule_offset(e, g) == offset)
		return &pm_extent[e].words[g];
	if (SEGWORD_STATE(word) == SEGWORD_SLAB && slab_slot_of(e, g, offset, &slot))
		return &((SlabHeader *) (PoolBase + granule_offset(e, g)))->owner[slot];
	return NULL;
}

/* Frees a target that may be marked used, and that its link does not hold.  Flushed. */
static void
recover_target(AllocIntent *intent, uint64 *mark)
{
	uint64		offset = intent->target & PM_OFFSET_MASK;
	int			e;
	uint32		g;
	uint64		word = segment_covering(offset, &e, &g);

	if (mark != NULL)
	{
		pm_store8(mark, 0);
		if (SEGWORD_STATE(word) == SEGWORD_SEGMENT)
			segment_release(offset, SEGWORD_COUNT(word));
	}
	else if (SEGWORD_STATE(word) != SEGWORD_SEGMENT && SEGWORD_STATE(word) != SEGWORD_SLAB &&
			 intent->size >= PM_GRANULE && segment_find(offset, &e, &g))
	{
		/* taken from the file system, never marked */
		segment_punch(offset, (uint32) (intent->size / PM_GRANULE));
	}
}

/*
 * Completes one intent of an earlier life.  What a killed process stored last may be
 * visible but not on the medium: so links, and the mark of what they hold, are flushed;
 * also a link that pm_free() has zeroed, because it must not come back when its target is
 * free.
 */
static void
recover_intent(AllocIntent *intent)
{
	bool		linked = link_holds_target(intent);
	uint64	   *mark = mark_of_target(intent);
	bool		marked = mark != NULL && *mark != 0;

	/* a power cut may have left a link that was not settled, but not the mark */
	if (linked && !marked)
		pm_store8(pm_deref(intent->link), PM_NULL); /* its transaction cannot have committed */
	else if (link_is_readable(intent))
		pm_flush(pm_deref(intent->link), intent->nlinks * sizeof(PMPtr));
	if (linked && marked)
		pm_flush(mark, sizeof(uint64));
	else
	{
		pm_drain();
		if (intent->nlinks > 1 && link_is_readable(intent))
			clear_other_links(pm_deref(intent->link), intent->nlinks,
							  intent->target, intent->size);
		recover_target(intent, mark);
	}
	pm_drain();
	pm_store8(&intent->target, PM_NULL);
}

/*
 * After segment_startup(), in the postmaster: finish what a crash left.  The last
 * flushes are drained by start_life(), before anything is taken.
 */
void
alloc_startup(void)
{
	uint64		nsets = pm_vector_count(&PoolSuper->intents);
	uint64		recovered = 0;
	uint64		s;
	int			i;

	open_intents = linked_intents = ahead_intents = 0;
	settled_since_drain = false;
	for (s = 0; s < nsets; s++)
	{
		AllocIntents *set = pm_vector_get(&PoolSuper->intents, s);

		/* one that a killed process forgot may still be on the medium */
		pm_flush(set, sizeof(AllocIntents));
		for (i = 0; i < PM_INTENTS_PER_BACKEND; i++)
		{
			if (set->intent[i].target == PM_NULL)
				continue;
			if (!pm_ref_is_valid(set->intent[i].target))
			{
				ereport(WARNING,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("sofort pool \"%s\" is damaged: an intent of allocation names nothing",
								pm_pool_file),
						 errhint("Run sofort.verify_pool().")));
				continue;
			}
			recover_intent(&set->intent[i]);
			recovered++;
		}
	}
	if (recovered > 0)
		ereport(LOG,
				(errmsg("sofort pool: " UINT64_FORMAT " unfinished allocations were settled",
						recovered)));
}

/* Makes room for the intents of this server's processes.  Returns 0, an errno or PM_FULL_. */
int
alloc_prepare_intents(void)
{
	uint64		wanted = PM_INTENT_SETS;
	Size		size;
	int			rc;

	if (pm_vector_count(&PoolSuper->intents) >= wanted)
		return 0;
	rc = pm_vector_try_reserve(&PoolSuper->intents, wanted - 1, PM_OWNER_POOL, PM_NO_QUOTA, &size);
	if (rc == 0)
		pm_vector_publish(&PoolSuper->intents, wanted);
	return rc;
}
