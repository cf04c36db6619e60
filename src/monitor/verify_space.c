/*-------------------------------------------------------------------------
 *
 * verify_space.c
 *	  Is everything that the pool has allocated for itself and for transactions referred
 *	  to?  For sofort.verify_pool(); sofort.verify() looks at stores.
 *
 * Others allocate and free meanwhile.  Space that is being allocated or freed is named
 * by an intent.  What is allocated behind the reading of references looks lost; and the
 * space that was freed last is taken first, so it may look so again.  Lost is what looks
 * so each of several times.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/pool.h"

#include "monitor_internal.h"

#define MAX_LOST	64
#define LOOKS		8

typedef struct LostSpace
{
	PMPtr		target;
	Size		size;
	int			look;			/* the last one at which nothing referred to it */
} LostSpace;

typedef struct Space
{
	PMPtr	   *used;			/* referred to, or named by an intent */
	Size		n;
	Size		allocated;
	LostSpace	lost[MAX_LOST]; /* neither, at all looks so far */
	int			nlost;
	int			look;
	StoreReport report;
	void	   *arg;
} Space;

static void
refer(Space *s, PMPtr p)
{
	if (p == PM_NULL)
		return;
	if (s->n == s->allocated)
	{
		s->allocated *= 2;
		s->used = repalloc_huge(s->used, s->allocated * sizeof(PMPtr));
	}
	s->used[s->n++] = p;
}

static void
refer_vector(Space *s, const PmVector *v)
{
	int			i;

	for (i = 0; i < PM_VECTOR_CHUNKS; i++)
		refer(s, v->chunks[i]);
}

static void
refer_intents(Space *s)
{
	uint64		i;
	int			k;

	refer_vector(s, &PoolSuper->intents);
	for (i = 0; i < pm_vector_count(&PoolSuper->intents); i++)
	{
		const AllocIntents *set = pm_vector_get(&PoolSuper->intents, i);

		for (k = 0; set != NULL && k < PM_INTENTS_PER_BACKEND; k++)
			refer(s, *(const volatile PMPtr *) &set->intent[k].target);
	}
}

/* Chains of chunks; one that is being given back may end early. */
static void
refer_chunks(Space *s, const PMPtr *first)
{
	PMPtr		p = *(const volatile PMPtr *) first;

	while (p != PM_NULL && pm_allocated_size(p) >= sizeof(TcbChunk))
	{
		refer(s, p);
		p = *(const volatile PMPtr *) &((const TcbChunk *) pm_deref(p))->next;
	}
}

/* Write sets, and row locks that were given to kept transactions */
static void
refer_transactions(Space *s)
{
	uint64		i;

	refer_vector(s, &PoolSuper->tcbs);
	for (i = 0; i < pm_vector_count(&PoolSuper->tcbs); i++)
	{
		const Tcb  *tcb = pm_vector_get(&PoolSuper->tcbs, i);

		if (tcb != NULL)
			refer_chunks(s, &tcb->overflow);
	}
	refer_vector(s, &PoolSuper->kept);
	for (i = 0; i < pm_vector_count(&PoolSuper->kept); i++)
	{
		const KeptRecord *r = pm_vector_get(&PoolSuper->kept, i);

		if (r != NULL)
			refer_chunks(s, &r->locks);
	}
}

/* (One that is being dropped may be free already when it is looked at.) */
static void
verify_store(const Space *s, uint64 i, PMPtr p)
{
	const PMPtr *entry = pm_vector_get(&PoolSuper->stores, i);
	const char *problem = NULL;
	char		place[64];

	if (p == PM_NULL)
		return;
	if (pm_allocated_size(p) < sizeof(StoreHeader))
		problem = "reference is damaged";
	else
		problem = store_header_problem(pm_deref(p));
	snprintf(place, sizeof(place), "store number " UINT64_FORMAT, i);
	if (problem != NULL && *(const volatile PMPtr *) entry == p)
		s->report(s->arg, "store", place, problem);
}

static void
refer_stores(Space *s)
{
	uint64		i;

	refer_vector(s, &PoolSuper->stores);
	for (i = 0; i <= pm_vector_count(&PoolSuper->stores); i++)
	{
		const PMPtr *p = pm_vector_get(&PoolSuper->stores, i);

		if (p == NULL)
			continue;
		refer(s, *(const volatile PMPtr *) p);
		if (s->look == 0 && i < pm_vector_count(&PoolSuper->stores))
			verify_store(s, i, *(const volatile PMPtr *) p);
	}
}

static int
compare_pointers(const void *a, const void *b)
{
	PMPtr		x = *(const PMPtr *) a;
	PMPtr		y = *(const PMPtr *) b;

	return x < y ? -1 : x > y;
}

static void
look_up(void *arg, PMPtr target, Size size, StoreId owner)
{
	Space	   *s = arg;
	int			i;

	if ((owner != PM_OWNER_POOL && owner != PM_OWNER_TXN) || target == pm_ptr(PoolSuper) ||
		bsearch(&target, s->used, s->n, sizeof(PMPtr), compare_pointers) != NULL)
		return;
	for (i = 0; i < s->nlost && s->lost[i].target != target; i++)
		;
	if (i == s->nlost && (s->look > 0 || s->nlost == MAX_LOST))
		return;
	s->nlost = Max(s->nlost, i + 1);
	s->lost[i] = (LostSpace) {.target = target,.size = size,.look = s->look};
}

/* Compares what is allocated with what is referred to. */
static void
look(Space *s)
{
	int			n = 0;

	SOFORT_STOP("verify-look");
	s->n = 0;
	/* intents are read first and last: when one is gone its target is linked */
	refer_intents(s);
	refer_transactions(s);
	refer_stores(s);
	refer_vector(s, &PoolSuper->workload);
	refer_intents(s);
	qsort(s->used, s->n, sizeof(PMPtr), compare_pointers);
	SOFORT_STOP("verify-referred");
	pm_visit_allocations(~UINT64CONST(0), look_up, s);
	for (int i = 0; i < s->nlost; i++)
		if (s->lost[i].look == s->look)
			s->lost[n++] = s->lost[i];
	s->nlost = n;
}

void
monitor_verify_pool_space(StoreReport report, void *arg)
{
	Space		s = {.allocated = 1024,.report = report,.arg = arg};

	s.used = palloc(s.allocated * sizeof(PMPtr));
	look(&s);
	while (s.nlost > 0 && ++s.look < LOOKS)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000L);
		look(&s);
	}
	for (int i = 0; i < s.nlost; i++)
	{
		char		place[64];

		snprintf(place, sizeof(place), "%zu bytes at " UINT64_FORMAT, s.lost[i].size,
				 s.lost[i].target & PM_OFFSET_MASK);
		report(arg, "space", place, "is allocated, and nothing refers to it");
	}
	pfree(s.used);
}
