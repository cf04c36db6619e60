/*-------------------------------------------------------------------------
 *
 * alloc.h
 *	  Allocation in the pool: segments of granules, and slabs for what is
 *	  smaller than about half a granule.
 *
 * Every allocation names the durable slot ("link") that will own it.  Three
 * steps:
 *
 *		pm_reserve()	durable intent, then the space is marked used
 *		(fill, flush)	the caller writes the contents
 *		pm_publish()	drain; store the link(s); drain; forget the intent
 *
 * If the link lies in a row of this transaction, which others can free only after its
 * end, pm_link_batch() stores it without a drain; pm_settle() does the rest for many of
 * them.
 *
 * A crash in between frees the space at the next start (the intent names a
 * target that its link does not hold).  An ERROR in between: pm_cancel(), or
 * pm_release_reservations() at transaction abort and process exit.
 *
 * Errors of pm_reserve: 53100 (disk_full: pool quota or file system), with
 * detail and hint; nothing has changed then.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_ALLOC_H
#define SOFORT_PMEM_ALLOC_H

#include "sofort/compat/compat.h"
#include "sofort/pmem/layout.h"

/*
 * Largest request that a slab serves; larger ones take whole granules and are
 * granule-aligned.  Slots are aligned to 64 bytes if of 64 bytes or more, to 8
 * otherwise, and never straddle a line if smaller than one.
 */
#define PM_SLAB_MAX				32640

typedef struct PmReservation
{
	PMPtr		target;
	void	   *addr;
	Size		size;			/* usable, at least what was asked for */
	int			intent;			/* index in the backend's intents, -1: none */
} PmReservation;

typedef struct PmRequest
{
	Size		size;
	PMPtr	   *link;
	uint64		nlinks;
} PmRequest;

#define PM_RESERVE_SHARED_SLAB	0x1 /* may lie in a granule shared with other owners (small
									 * stores) */
#define PM_RESERVE_ZERO			0x2 /* contents zeroed and flushed, not drained */
#define PM_RESERVE_SPARE		0x4 /* may use space that is kept back for operations that make
									 * room (up to half a granule) */

#define PM_RESERVE_UNGUARDED	0x8 /* without intents, for pm_link_batch(): the
									 * owner is dropped as a whole unless this
									 * transaction commits */

/*
 * link: address (in the pool) of the owning PMPtr.  nlinks > 1: that many
 * consecutive PMPtrs will point into the target; links[0] counts.
 * At most PM_INTENTS_PER_BACKEND reservations are open at a time.
 */
extern void pm_reserve(PmReservation *r, StoreId owner, Size size,
					   PMPtr *link, uint64 nlinks, int flags);

/* The same without an error: not 0 if the pool is full; see pm_raise_full(). */
extern int	pm_try_reserve(PmReservation *r, StoreId owner, Size size, PMPtr *link,
						   uint64 nlinks, int flags);

/*
 * Reserves for several requests, at most pm_reservable(): one drain for all that slabs
 * serve.  All or none.
 */
extern int	pm_reservable(void);
extern int	pm_try_reserve_batch(PmReservation *r, const PmRequest *request, int n,
								 StoreId owner, int flags);

/*
 * The same where only the first "now" of n requests are needed, and the others are expected
 * to be needed, for pm_link_batch() (only slots; guarded).  These are "ahead": they are
 * given up when their intents are needed, at pm_settle() and after an ERROR.
 */
extern int	pm_try_reserve_ahead(PmReservation *r, const PmRequest *request, int now, int n,
								 StoreId owner, int flags);

/* Takes what was reserved ahead for this link, if it fits this request; no drain. */
extern bool pm_take_ahead(PmReservation *r, const PmRequest *request, int flags);

/* How many reserved ahead are not taken; give them up, with two drains. */
extern int	pm_ahead(void);
extern void pm_give_up_ahead(void);

/* Raises the error of pm_reserve() for a result and size */
pg_noreturn extern void pm_raise_full(int result, Size size);

/* Drains, then stores link[0] = target and makes that durable. */
extern void pm_publish(PmReservation *r);

/* The same with nlinks > 1: link[i] = values[i], link[0] last. */
extern void pm_publish_many(PmReservation *r, const PMPtr *values);

/* Publish several reservations at once (all nlinks = 1): three drains for all of them. */
extern void pm_publish_batch(PmReservation *r, int n);

/*
 * Links several reservations (all nlinks = 1) from rows that count only if this transaction
 * commits: no drain.  They stay open until pm_settle(), which drains once and forgets their
 * intents.  That is called before the transaction commits (txn), when intents run short,
 * and where this process frees memory in which the links lie, or what they hold.
 * pm_settle_durably(): before such a row may be given to others before the commit.
 */
extern void pm_link_batch(const PmReservation *r, const PmRequest *request, int n);
extern void pm_settle(void);
extern void pm_settle_durably(void);

/*
 * Does what the first reservation of a process does once.  To be called before a
 * PG_ENSURE_ERROR_CLEANUP within which that may happen, because it registers callbacks.
 */
extern void pm_prepare_process(void);

extern void pm_cancel(PmReservation *r);
extern void pm_release_reservations(void);

/*
 * Frees what *link holds: durable intent, *link (and the other links) = 0, space free,
 * intent forgotten.  The caller knows that no process can still read the target.  Never
 * raises an error.  False, with a warning, if the target is not the owner's: then nothing
 * has changed, so a wrong reference costs space, not somebody else's data.
 */
extern bool pm_free(StoreId owner, PMPtr *link, uint64 nlinks);

/*
 * The same for n links to one allocation each (or to none): three drains for up to
 * PM_INTENTS_PER_BACKEND of them
 */
extern void pm_free_batch(StoreId owner, PMPtr *const *links, int n);

/* Bytes that a target occupies; 0 if nothing is allocated there. */
extern Size pm_allocated_size(PMPtr target);

/* Start of the allocation that p points into, PM_NULL if there is none. */
extern PMPtr pm_allocation_start(PMPtr p);

/*
 * Frees every segment and slab slot of an owner, whatever links to them: for dropped
 * stores.  Idempotent; never raises an error.  Punches holes. again: a killed process may
 * have begun this without a drain.
 */
extern void pm_free_owner(StoreId owner, bool again);

/* Call fn for every allocation of the owner (or of all if owner == ~0). */
typedef void (*PmAllocationVisitor) (void *arg, PMPtr target, Size size, StoreId owner);
extern void pm_visit_allocations(StoreId owner, PmAllocationVisitor fn, void *arg);

/* ---- PmVector ---- */

extern void pm_vector_init(PmVector *v, uint32 elem_size, uint32 first_elems);

/* Published length */
static inline uint64
pm_vector_count(const PmVector *v)
{
	return PM_UNSEAL(*(const volatile PmSealed *) &v->length);
}

/* What is wrong with the vector itself (not with its elements), or NULL */
extern const char *pm_vector_problem(const PmVector *v, uint32 elem_size);

static inline int
pm_vector_chunk(const PmVector *v, uint64 i, uint64 *within)
{
	uint64		k = i >> v->first_shift;
	int			chunk;

	if (k == 0)
	{
		*within = i;
		return 0;
	}
	chunk = 64 - __builtin_clzll(k);
	*within = i - (UINT64CONST(1) << (v->first_shift + chunk - 1));
	return chunk;
}

static inline uint64
pm_vector_chunk_elems(const PmVector *v, int chunk)
{
	return UINT64CONST(1) << (v->first_shift + (chunk == 0 ? 0 : chunk - 1));
}

/* Address of element i, or NULL if its chunk was never made. */
extern void *pm_vector_get(const PmVector *v, uint64 i);

/*
 * Makes sure that elements up to i have (zeroed) storage; the caller holds the lock that
 * protects the vector's growth.  Does not change the published length.
 */
extern void pm_vector_reserve(PmVector *v, uint64 i, StoreId owner, int flags);

/* The same without an error: not 0 if the pool is full; then *wanted is the size asked for. */
extern int	pm_vector_try_reserve(PmVector *v, uint64 i, StoreId owner, int flags,
								  Size *wanted);

/* Sets the published length, durably; elements below it must be durable already. */
extern void pm_vector_publish(PmVector *v, uint64 n);

#endif							/* SOFORT_PMEM_ALLOC_H */
