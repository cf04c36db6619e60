/*-------------------------------------------------------------------------
 *
 * verify_space.c
 *	  Is everything that the pool has allocated for itself and for transactions referred
 *	  to?  For sofort.verify_pool(); sofort.verify() looks at stores.
 *
 * Others allocate and free meanwhile.  Space that is being allocated or freed is named
 * by an intent; what looks lost is looked at twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/monitor/monitor.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/pool.h"
#include "utils/memutils.h"

typedef struct Space
{
	PMPtr	   *used;			/* referred to, or named by an intent */
	Size		n;
	Size		allocated;
	PMPtr	   *lost;			/* neither, at the first look */
	int			nlost;
	int			round;
	StoreReport report;
	void	   *arg;
} Space;

#define MAX_LOST	64

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
		if (s->round == 0 && i < pm_vector_count(&PoolSuper->stores))
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
	char		place[64];
	int			i;

	if ((owner != PM_OWNER_POOL && owner != PM_OWNER_TXN) || target == pm_ptr(PoolSuper) ||
		bsearch(&target, s->used, s->n, sizeof(PMPtr), compare_pointers) != NULL)
		return;
	if (s->round == 0)
	{
		if (s->nlost < MAX_LOST)
			s->lost[s->nlost++] = target;
		return;
	}
	for (i = 0; i < s->nlost && s->lost[i] != target; i++)
		;
	if (i == s->nlost)
		return;
	snprintf(place, sizeof(place), "%zu bytes at " UINT64_FORMAT, size, target & PM_OFFSET_MASK);
	s->report(s->arg, "space", place, "is allocated, and nothing refers to it");
}

void
monitor_verify_pool_space(StoreReport report, void *arg)
{
	PMPtr		lost[MAX_LOST];
	Space		s = {.allocated = 1024,.lost = lost,.report = report,.arg = arg};

	s.used = palloc(s.allocated * sizeof(PMPtr));
	for (s.round = 0; s.round == 0 || (s.round == 1 && s.nlost > 0); s.round++)
	{
		s.n = 0;
		/* intents are read first and last: when one is gone its target is linked */
		refer_intents(&s);
		refer_transactions(&s);
		refer_stores(&s);
		refer_vector(&s, &PoolSuper->workload);
		refer_intents(&s);
		qsort(s.used, s.n, sizeof(PMPtr), compare_pointers);
		pm_visit_allocations(~UINT64CONST(0), look_up, &s);
		if (s.round == 0 && s.nlost > 0)
			pg_usleep(10000L);
	}
	pfree(s.used);
}
