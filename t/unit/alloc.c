/*-------------------------------------------------------------------------
 *
 * alloc.c
 *	  Allocation (src/pmem/alloc.c, slab.c, segment.c, vector.c): every stop point
 *	  and every drain of every operation is a power cut, with all that survives
 *	  one; what recovers is compared with a model.  Then processes that allocate
 *	  side by side, and are killed.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINKS			320		/* of the model; those from GROUPS on in groups */
#define GROUPS			128
#define GROUP			24		/* more than a line */
#define OWNERS			3
#define BATCH			4
#define MOST_CONTENT	16384	/* bytes of an allocation that are filled */

/* Where an allocation hangs, and what is in it */
typedef struct ModelLink
{
	bool		used;
	StoreId		owner;
	Size		size;			/* asked for */
	uint64		stamp;			/* its contents follow from that */
} ModelLink;

/* What is to be before, or after, an operation that was cut short */
typedef struct Model
{
	ModelLink	link[LINKS];
	StoreId		owner[OWNERS];
	StoreId		dropping;		/* its links are gone, it is to be freed */
	StoreId		made;			/* by a transaction that has not committed */
	uint64		commit;			/* what the word of the last transaction holds */
	uint64		rows;			/* links below 64 that it has stored, as bits */
	uint64		gone;			/* those that lay in a store that goes */
	uint64		stamp;
} Model;

static const char *last_operation = "";
static Model model;				/* after all that is finished */
static Model after;				/* if what is under way had been finished, too */
static Size pool_own = 0;		/* bytes of the pool itself */
static bool crowded = false;	/* few links, few slots: what is freed is soon taken again */
static Size shared_size = 0;	/* if not 0, all is of this size and in shared slabs */

/* ---- links and contents ---- */

/* They lie in the directory of stores, which nothing else uses here. */
static PMPtr *
link_at(int i)
{
	return pm_vector_get(&PoolSuper->stores, i);
}

/* By which those of a transaction count, or do not (pm_link_batch()) */
static uint64 *
commit_word(void)
{
	return pm_vector_get(&PoolSuper->stores, LINKS + BATCH);
}

static uint64
content(uint64 stamp, Size k)
{
	return (stamp << 20 | k) * UINT64CONST(0x9e3779b97f4a7c15) | 1;
}

static void
fill(void *addr, Size size, uint64 stamp)
{
	uint64	   *word = addr;

	size = Min(size, MOST_CONTENT);

	for (Size k = 0; k < size / 8; k++)
		word[k] = content(stamp, k);
	pm_flush(addr, size / 8 * 8);
}

static void
assert_content(const void *addr, const ModelLink *m)
{
	const uint64 *word = addr;

	for (Size k = 0; k < Min(m->size, MOST_CONTENT) / 8; k++)
	{
		if (word[k] != content(m->stamp, k))
			unit_fail("word %zu of an allocation of %zu bytes is " UINT64_FORMAT, k, m->size, word[k]);
	}
}

/* ---- what the pool has ---- */

typedef struct Found
{
	PMPtr		target;
	Size		size;
	StoreId		owner;
	bool		linked;
} Found;

static Found found[8 * LINKS];
static int	nfound;
static Size found_pool_own;

static void
note_allocation(void *arg, PMPtr target, Size size, StoreId owner)
{
	if (owner < PM_FIRST_STORE_ID)
	{
		found_pool_own += size;
		return;
	}
	check(nfound < (int) lengthof(found));
	found[nfound++] = (Found) {.target = target,.size = size,.owner = owner};
}

static void
find_allocations(void)
{
	nfound = 0;
	found_pool_own = 0;
	pm_visit_allocations(~UINT64CONST(0), note_allocation, NULL);
}

static Found *
allocation_at(PMPtr target)
{
	for (int i = 0; i < nfound; i++)
	{
		if (found[i].target == target)
			return &found[i];
	}
	return NULL;
}

/* Is link i as the model says? */
static bool
link_is(const Model *m, int i)
{
	PMPtr		p = *link_at(i);
	const ModelLink *l = &m->link[i];

	return l->used ? p != PM_NULL && *(uint64 *) pm_deref(p) == content(l->stamp, 0) : p == PM_NULL;
}

static void
check_link(int i)
{
	const ModelLink *l = &model.link[i];
	PMPtr		p = *link_at(i);
	Found	   *a;

	if (!link_is(&model, i))
		unit_fail("link %d is " UINT64_FORMAT ", not what was stored, %s (%s: %s)", i, p,
				  l->used ? "a reference" : "none", last_operation, medium_stopped_at());
	for (int k = 1; i >= GROUPS && k < GROUP; k++)
	{
		PMPtr		other = *link_at(i + k);

		if (other != (l->used ? PM_REF((p & PM_OFFSET_MASK) + k * PM_LINE) : PM_NULL))
			unit_fail("link %d of group %d is wrong (%s)", k, i, medium_stopped_at());
	}
	if (!l->used)
		return;
	a = allocation_at(p);
	if (a == NULL)
		unit_fail("link %d leads to nothing (%s: %s)", i, last_operation, medium_stopped_at());
	else if (a->linked || a->owner != l->owner || a->size < l->size)
		unit_fail("link %d leads to %s, not %zu bytes of owner " UINT64_FORMAT " (%s: %s)", i,
				  a->linked ? "another's" : a->owner != l->owner ? "another owner's" : "too little",
				  l->size, l->owner, last_operation, medium_stopped_at());
	else
		a->linked = true;
	assert_content(pm_deref(p), l);
}

/* The pool is what the model is: nothing is lost, nothing left over, nothing has two owners. */
static void
check_model(void)
{
	find_allocations();
	for (int i = 0; i < LINKS; i += i < GROUPS ? 1 : GROUP)
		check_link(i);
	for (int i = 0; i < nfound; i++)
	{
		if (!found[i].linked)
			unit_fail("%zu bytes of owner " UINT64_FORMAT " hang on nothing (%s)", found[i].size,
					 found[i].owner, medium_stopped_at());
	}
	for (int i = 1; i < nfound; i++)
		check((found[i - 1].target & PM_OFFSET_MASK) + found[i - 1].size <=
			  (found[i].target & PM_OFFSET_MASK));
	if (found_pool_own != pool_own)
		unit_fail("the pool itself has %zu bytes, it had %zu (%s)", found_pool_own, pool_own,
				 medium_stopped_at());
	assert_pool_is_sound();
}

/* The transaction has not committed: whoever uses its rows again frees what they have. */
static void
undo_rows(void)
{
	PMPtr	   *link[64];

	for (int o = 0; o < OWNERS; o++)
	{
		int			n = 0;

		for (int i = 0; i < 64; i++)
		{
			if ((after.rows & (UINT64CONST(1) << i)) == 0 || after.link[i].owner != after.owner[o])
				continue;
			link[n++] = link_at(i);
		}
		server_forget();
		pm_free_batch(after.owner[o], link, n);
		if (server_message()[0] != '\0')
			unit_fail("%s (%s)", server_message(), medium_stopped_at());
	}
	for (int i = 0; i < 64; i++)
		if (after.rows & (UINT64CONST(1) << i))
			after.link[i] = model.link[i];
	after.rows = 0;
}

/*
 * What rows of the owner lie in goes away, and what they have.  (To be repeated until
 * it is drained.)
 */
static void
forget_rows(StoreId owner)
{
	for (int i = 0; i < 64; i++)
	{
		uint64		bit = UINT64CONST(1) << i;

		if ((after.rows & bit) != 0 && after.link[i].owner == owner)
		{
			after.rows &= ~bit;
			after.gone |= bit;
		}
		if ((after.gone & bit) == 0)
			continue;
		pm_store8(link_at(i), PM_NULL);
		after.link[i] = model.link[i];
	}
}

/* The store of a transaction that has not committed went, as its write set says. */
static void
forget_made(void)
{
	pm_drain();
	after.made = 0;
	after.gone = 0;
}

/* After a crash each link is what it was before, or what it was to be. */
static void
adopt_outcome(void)
{
	shared_size = 0;
	/* (a start drains what has committed before anything is done about it) */
	pm_persist(commit_word(), sizeof(uint64));
	if (*commit_word() == after.commit)
		model.commit = after.commit;
	else if (after.made != 0)
	{
		forget_rows(after.made);
		pm_free_owner(after.made, true);
		forget_made();
	}
	after.made = 0;
	if (after.dropping != 0)
	{
		/* whoever drops a store repeats it until he has drained */
		for (int i = 0; i < LINKS; i += i < GROUPS ? 1 : GROUP)
			for (int k = 0; model.link[i].used && model.link[i].owner == after.dropping &&
				 k < (i < GROUPS ? 1 : GROUP); k++)
				pm_store8(link_at(i + k), PM_NULL);
		forget_rows(after.dropping);
		pm_free_owner(after.dropping, true);
		pm_drain();
		after.gone = 0;
		for (int i = 0; i < LINKS; i++)
			if (model.link[i].owner == after.dropping)
				model.link[i].used = false;
		after.dropping = 0;
	}
	if (*commit_word() != after.commit)
		undo_rows();
	for (int i = 0; i < LINKS; i += i < GROUPS ? 1 : GROUP)
	{
		if (!link_is(&model, i))
			model.link[i] = after.link[i];
	}
	medium_error_at(NULL);
	model.stamp = after.stamp;
	/* an id that a power cut took may be given out again: nothing had it */
	for (int o = 0; o < OWNERS; o++)
		model.owner[o] = after.owner[o] < PM_UNSEAL_ID(PoolSuper->next_store_id) ?
			after.owner[o] : pool_next_store_id();
	pm_drain();
}

/* ---- operations ---- */

/* Sizes around the borders of classes and granules, and some others */
static Size
random_size(void)
{
	static const Size border[] = {8, 16, 32, 64, 128, 512, 1024, 4032, 8128, 16320, 21760, 32640, 65536, 131072, 9 * 65536};

	Size		size = border[random_below(lengthof(border))];

	if (shared_size != 0)
		return shared_size;
	if (crowded)
		return border[lengthof(border) - 1 - random_below(5)];
	switch (random_below(4))
	{
		case 0:
			return size;
		case 1:
			return Max(size - 8, 8);
		case 2:
			return size + 8;
		default:
			return 8 + random_below(500) * 8;
	}
}

static int
random_link(bool used)
{
	int			n = crowded ? 16 : GROUPS;
	int			from = (int) random_below(n);

	for (int i = 0; i < n; i++)
	{
		const ModelLink *l = &after.link[(from + i) % n];

		/* not one that this operation gives up */
		if (l->used == used && (used || !model.link[(from + i) % n].used) &&
			((from + i) % n >= 64 || (after.gone & (UINT64CONST(1) << (from + i) % n)) == 0))
			return (from + i) % n;
	}
	return -1;
}

static int
random_group(bool used)
{
	int			n = crowded ? 2 : (LINKS - GROUPS) / GROUP;
	int			from = (int) random_below(n);

	for (int i = 0; i < n; i++)
	{
		int			at = GROUPS + (from + i) % n * GROUP;

		if (model.link[at].used == used)
			return at;
	}
	return -1;
}

static ModelLink *
new_link(int i, Size size)
{
	ModelLink  *m = &after.link[i];

	m->used = true;
	m->owner = after.owner[random_below(OWNERS)];
	m->size = size;
	m->stamp = ++after.stamp;
	return m;
}

static int
random_flags(void)
{
	static const int flags[] = {0, PM_RESERVE_SHARED_SLAB, PM_RESERVE_ZERO,
	PM_RESERVE_SHARED_SLAB | PM_RESERVE_ZERO};

	return shared_size != 0 ? PM_RESERVE_SHARED_SLAB : flags[random_below(lengthof(flags))];
}

static void
op_publish(void)
{
	int			i = random_link(false);
	PmReservation r;
	ModelLink  *m;

	if (i < 0)
		return;
	m = new_link(i, random_size());
	pm_reserve(&r, m->owner, m->size, link_at(i), 1, random_flags());
	fill(r.addr, m->size, m->stamp);
	pm_publish(&r);
}

static void
op_batch(void)
{
	PmReservation r[BATCH];
	int			n = 1 + (int) random_below(BATCH);

	for (int k = 0; k < n; k++)
	{
		int			i = random_link(false);
		ModelLink  *m;

		if (i < 0)
		{
			n = k;
			break;
		}
		m = new_link(i, random_size());
		pm_reserve(&r[k], m->owner, m->size, link_at(i), 1, random_flags());
		fill(r[k].addr, m->size, m->stamp);
	}
	if (n > 0)
		pm_publish_batch(r, n);
}

/* A row is given up before its transaction has ended; another process takes what it had. */
static void
give_up_row(int i)
{
	pm_free(after.link[i].owner, link_at(i), 1);
	after.link[i].used = false;
	after.rows &= ~(UINT64CONST(1) << i);
	server_become(1);
	op_publish();
	server_become(0);
}

/* Some rows of an owner, not settled; one of them in *link, -1 if there are none */
static void
link_rows(StoreId owner, int flags, int *link)
{
	PmReservation r[BATCH];
	PmRequest	request[BATCH];
	ModelLink  *m[BATCH];
	int			n = 0;

	*link = -1;
	for (int k = 1 + (int) random_below(BATCH); k > 0; k--)
	{
		int			i = random_link(false);

		if (i < 0 || i >= 64)
			continue;
		m[n] = new_link(i, Min(random_size(), PM_GRANULE));
		m[n]->owner = owner;
		after.rows |= UINT64CONST(1) << i;
		request[n] = (PmRequest) {.size = m[n]->size,.link = link_at(i),.nlinks = 1};
		n++;
		*link = i;
	}
	if (n == 0)
		return;
	check(pm_try_reserve_batch(r, request, n, owner, random_flags() | flags) == 0);
	for (int k = 0; k < n; k++)
		fill(r[k].addr, m[k]->size, m[k]->stamp);
	pm_link_batch(r, request, n);
}

/*
 * A transaction that stores rows: in batches, each of one owner; it commits or is
 * rolled back.
 */
static void
op_rows(void)
{
	after.rows = 0;
	after.commit = ++after.stamp;
	for (int batches = 1 + (int) random_below(6), k = 0; k < batches; k++)
	{
		int			link;

		link_rows(after.owner[random_below(OWNERS)], 0, &link);
		/* (the other process counts its own intents with ours) */
		if (k == 0 && link >= 0 && random_below(8) == 0)
			give_up_row(link);
	}
	if (random_below(3) == 0)
	{
		pm_release_reservations();
		undo_rows();
		after.commit = model.commit;
		return;
	}
	pm_settle();
	pm_drain_to_publish();
	pm_publish8(commit_word(), after.commit);
	after.rows = 0;
}

/*
 * Rows are stored, then more is asked for than there are intents, and refused; the abort
 * has nothing to give back. Another process frees what the rows have, and takes it.
 */
static void
op_failed_rows(void)
{
	StoreId		owner = after.owner[random_below(OWNERS)];
	PmRequest	request[PM_INTENTS_PER_BACKEND];
	PmReservation r[PM_INTENTS_PER_BACKEND];
	int			link;

	after.rows = 0;
	after.commit = ++after.stamp;
	link_rows(owner, 0, &link);
	for (int k = 0; k < PM_INTENTS_PER_BACKEND; k++)
		request[k] = (PmRequest) {.size = (Size) (PM_MAX_GRANULES + 1) * PM_GRANULE,
			.link = link_at(LINKS),.nlinks = 1};
	check(pm_try_reserve_batch(r, request, lengthof(r), owner, 0) == PM_FULL_POOL);
	pm_release_reservations();
	server_become(1);
	undo_rows();
	for (int k = 0; k < 2 * BATCH; k++)
		op_publish();
	server_become(0);
	after.commit = model.commit;
}

/* Another process stores rows in what became free, before this one has drained. */
static void
take_rows(void)
{
	int			link;

	server_become(1);
	link_rows(after.owner[random_below(OWNERS)], 0, &link);
	pm_release_reservations();
	undo_rows();
	server_become(0);
}

static void
op_group(void)
{
	int			i = random_group(false);
	PmReservation r;
	ModelLink  *m;
	PMPtr		values[GROUP];

	if (i < 0)
		return;
	m = new_link(i, random_below(2) ? GROUP * PM_LINE : GROUP * PM_LINE + random_below(2) * PM_GRANULE);
	pm_reserve(&r, m->owner, m->size, link_at(i), GROUP, random_flags());
	fill(r.addr, m->size, m->stamp);
	for (int k = 0; k < GROUP; k++)
		values[k] = pm_ptr((char *) r.addr + k * PM_LINE);
	pm_publish_many(&r, values);
}

static void
op_free(void)
{
	int			i = random_link(true);

	if (i < 0)
		return;
	after.link[i].used = false;
	pm_free(model.link[i].owner, link_at(i), 1);
}

/* Several of one owner */
static void
op_free_batch(void)
{
	PMPtr	   *link[24];
	int			first = random_link(true);
	int			n = 0;

	for (int i = 0; first >= 0 && i < GROUPS && n < (int) lengthof(link); i++)
	{
		int			at = (first + i) % GROUPS;

		if (!model.link[at].used || model.link[at].owner != model.link[first].owner)
			continue;
		after.link[at].used = false;
		link[n++] = link_at(at);
	}
	if (n > 0)
		pm_free_batch(model.link[first].owner, link, n);
}

static void
op_free_group(void)
{
	int			i = random_group(true);

	if (i < 0)
		return;
	after.link[i].used = false;
	pm_free(model.link[i].owner, link_at(i), GROUP);
}

/* Reserved, perhaps filled, and given up: one by one, or as an abort does */
static void
op_cancel(void)
{
	PmReservation r[BATCH];
	int			n = 1 + (int) random_below(BATCH);

	for (int k = 0; k < n; k++)
	{
		Size		size = random_size();

		pm_reserve(&r[k], model.owner[random_below(OWNERS)], size, link_at(LINKS + k), 1, random_flags());
		if (random_below(2))
			fill(r[k].addr, size, 1);
	}
	if (random_below(2))
		pm_release_reservations();
	else
		while (n-- > 0)
			pm_cancel(&r[n]);
}

/* An ERROR at one of the points that allow it; an abort follows. */
static void
op_error(void)
{
	static const char *const point[] = {"pmem-reserved", "pmem-filled", "pmem-linked"};

	medium_error_at(point[random_below(lengthof(point))]);
	if (sigsetjmp(medium_error, 0) != 0)
		pm_release_reservations();
	else
		switch (random_below(3))
		{
			case 0:
				op_publish();
				break;
			case 1:
				op_batch();
				break;
			default:
				op_group();
				break;
		}
	medium_error_at(NULL);
	for (int i = 0; i < LINKS; i += i < GROUPS ? 1 : GROUP)
	{
		if (!link_is(&after, i))
			after.link[i] = model.link[i];
	}
}

/* A store is dropped, another one is made. */
static void
op_drop(void)
{
	int			o = (int) random_below(OWNERS);
	int			link;

	after.owner[o] = pool_next_store_id();
	pm_drain();					/* as the header of a store is published before it owns anything */
	after.dropping = model.owner[o];
	after.rows = 0;
	after.commit = ++after.stamp;
	if (random_below(2))
		link_rows(after.dropping, random_below(2) ? PM_RESERVE_UNGUARDED : 0, &link);
	for (int i = 0; i < LINKS; i += i < GROUPS ? 1 : GROUP)
	{
		if (!model.link[i].used || model.link[i].owner != after.dropping)
			continue;
		after.link[i].used = false;
		for (int k = i < GROUPS ? 0 : GROUP - 1; k >= 0; k--)
			pm_store8(link_at(i + k), PM_NULL);
	}
	forget_rows(after.dropping);
	pm_free_owner(after.dropping, false);
	if (random_below(2))
		take_rows();
	else
	{
		server_become(1);
		op_publish();
		server_become(0);
	}
	pm_drain();
	after.commit = model.commit;
	after.gone = 0;
	after.dropping = 0;
}

/* A store is made and filled by a transaction, without intents. */
static void
make_store(void)
{
	int			link;

	after.made = pool_next_store_id();
	pm_drain();
	after.rows = 0;
	after.commit = ++after.stamp;
	for (int k = 1 + (int) random_below(4); k > 0; k--)
		link_rows(after.made, PM_RESERVE_UNGUARDED, &link);
	/* another one takes slots of the same slabs meanwhile */
	server_become(1);
	op_publish();
	server_become(0);
}

/* What is taken of it at once has its marks on the medium. */
static void
op_store_undone(void)
{
	shared_size = random_below(2) ? 16320 : 21760;
	make_store();
	pm_drain();
	forget_rows(after.made);
	pm_free_owner(after.made, false);
	take_rows();
	forget_made();
	after.commit = model.commit;
}

/* It takes the place of another one, which goes at the commit. Else it goes itself. */
static void
op_new_store(void)
{
	int			o = (int) random_below(OWNERS);

	make_store();
	if (random_below(3) == 0)
	{
		forget_rows(after.made);
		pm_free_owner(after.made, true);
		forget_made();
		after.commit = model.commit;
		return;
	}
	pm_settle();
	pm_drain_to_publish();
	after.owner[o] = after.made;
	pm_publish8(commit_word(), after.commit);
	after.rows = 0;
	after.made = 0;
}

typedef void (*Operation) (void);

static const struct
{
	const char *name;
	Operation	run;
	int			weight;
}			operations[] = {
	{"publish", op_publish, 8},
	{"batch", op_batch, 3},
	{"rows", op_rows, 6},
	{"failed rows", op_failed_rows, 3},
	{"group", op_group, 3},
	{"free", op_free, 8},
	{"free batch", op_free_batch, 2},
	{"free group", op_free_group, 3},
	{"cancel", op_cancel, 3},
	{"error", op_error, 4},
	{"new store", op_new_store, 3},
	{"store undone", op_store_undone, 2},
	{"drop", op_drop, 2}
};

static Operation
random_operation(void)
{
	int			total = 0;
	int			at;

	for (int i = 0; i < (int) lengthof(operations); i++)
		total += operations[i].weight;
	at = (int) random_below(total);
	for (int i = 0;; i++)
	{
		at -= operations[i].weight;
		if (at < 0)
			return operations[i].run;
	}
}

/* False: it was stopped at the nth event. */
static bool
run_until(Operation op, uint64 nth)
{
	for (int i = 0; i < (int) lengthof(operations); i++)
		if (operations[i].run == op)
			last_operation = operations[i].name;
	after = model;
	shared_size = 0;
	if (!medium_run_until(op, nth))
		return false;
	model = after;
	return true;
}

/* The same for a start */
static bool
start_until(uint64 nth)
{
	return medium_run_until(server_start, nth);
}

/* ---- the pool of these tests ---- */

static int
begin(void **state)
{
	server_begin();
	server_start();
	pm_vector_reserve(&PoolSuper->stores, LINKS + BATCH, PM_OWNER_POOL, 0);
	memset(&model, 0, sizeof(model));
	for (int o = 0; o < OWNERS; o++)
		model.owner[o] = pool_next_store_id();
	pm_drain();
	find_allocations();
	pool_own = found_pool_own;
	seed_random(unit_seed());
	crowded = false;
	return 0;
}

static int
end(void **state)
{
	medium_end();
	server_end();
	return 0;
}

/* Start again, as after a crash; the medium holds what it holds. */
static void
recover(void)
{
	server_start();
	adopt_outcome();
	check_model();
}

/* ---- tests ---- */

static void
test_model_without_cuts(void **state)
{
	medium_begin();
	for (int i = 0; i < 4000; i++)
	{
		assert_true(run_until(random_operation(), 0));
		if (i % 50 == 0)
			check_model();
	}
	check_model();
}

/*
 * Each operation from several states, cut at its first event, its second, and so
 * on until it gets through; each time with nothing, everything or something
 * surviving.
 */
static void
test_each_event(void **state)
{
	uint64		cuts = 0;

	medium_begin();
	for (int round = 0; round < 12; round++)
	{
		crowded = round % 2 == 1;
		for (int k = 0; k < 25; k++)
			assert_true(run_until(random_operation(), 0));
		for (int o = 0; o < (int) lengthof(operations); o++)
		{
			for (uint64 nth = 1;; nth++)
			{
				if (run_until(operations[o].run, nth))
					break;
				cuts++;
				medium_cut((MediumSurvival) ((nth + round) % 3));
				recover();
			}
		}
	}
	print_message("%d cuts\n", (int) cuts);
	assert_true(cuts > 500);
}

/*
 * A link and the mark of what it leads to, each on the medium or not, where that has
 * the mark of an owner that is gone.
 */
static void
marks_workout(void)
{
	for (int round = 0; round < 40; round++)
		for (uint64 nth = 1; !run_until(op_store_undone, nth); nth++)
		{
			medium_cut(SURVIVES_SOMETHING);
			recover();
		}
}

static void
test_marks_of_the_gone(void **state)
{
	medium_begin();
	marks_workout();
}

/* Power fails again while the pool recovers: at each event of that, in turn. */
static void
test_cuts_of_recovery(void **state)
{
	uint64		cuts = 0;

	medium_begin();
	for (int round = 0; round < 60; round++)
	{
		for (int k = 0; k < 5; k++)
			assert_true(run_until(random_operation(), 0));
		if (run_until(random_operation(), 1 + random_below(12)))
			continue;
		medium_cut((MediumSurvival) random_below(3));
		for (uint64 nth = 1 + random_below(3);; nth += 1 + random_below(3))
		{
			if (start_until(nth))
				break;
			cuts++;
			medium_cut((MediumSurvival) random_below(3));
		}
		adopt_outcome();
		check_model();
	}
	print_message("%d cuts of recoveries\n", (int) cuts);
	assert_true(cuts > 50);
}

/*
 * All processes are killed, which leaves what was stored; what recovers goes on,
 * and the power fails then.
 */
static void
test_kill_then_cut(void **state)
{
	medium_begin();
	for (int round = 0; round < 150; round++)
	{
		crowded = round % 2 == 1;
		for (int k = 0; k < 3; k++)
			assert_true(run_until(random_operation(), 0));
		if (!run_until(random_operation(), 1 + random_below(12)))
			recover();
		if (!run_until(random_operation(), 1 + random_below(12)))
		{
			medium_cut((MediumSurvival) random_below(3));
			recover();
		}
	}
}

/*
 * Enough of all that for a call that is left out to be noticed: each operation is
 * stopped at its events in turn (and soon after that call, see medium.c), by a kill,
 * which leaves what was stored, or a power cut; so are the starts that follow.
 */
static void
workout(void)
{
	int			n = lengthof(operations);

	crowded = true;
	for (int round = 0; round < 130 * n; round++)
	{
		uint64		nth = round / n % 3 == 0 ? 100 : 1 + random_below(random_below(2) ? 5 : 14);

		if (!run_until(operations[round % n].run, nth))
		{
			do
			{
				if (random_below(2))
					medium_cut((MediumSurvival) random_below(3));
			} while (!start_until(random_below(3) ? 100 : 1 + random_below(30)));
			adopt_outcome();
			check_model();
		}
		else
			for (int k = (int) random_below(random_below(8) == 0 ? 20 : 3); k > 0; k--)
				check(run_until(random_operation(), 0));
		if (random_below(4) == 0)
		{
			medium_cut((MediumSurvival) random_below(3));
			recover();
		}
	}
}

/* Groups of links only: published, cut at each event of that, freed */
static void
group_workout(void)
{
	crowded = true;
	for (int round = 0; round < 300; round++)
	{
		void		(*operation) (void) = round % 3 == 2 ? op_free_group : op_group;

		if (run_until(operation, 1 + round % 12))
			continue;
		if (random_below(4) == 0)
			recover();			/* all were killed; the power fails later */
		medium_cut((MediumSurvival) random_below(3));
		recover();
	}
}

/* Another process frees and takes; who has not forgotten an intent durably would free that. */
static void
take_anew(void)
{
	server_become(2);
	for (int k = 0; k < 4; k++)
	{
		check(run_until(op_free, 0));
		check(run_until(op_publish, 0));
	}
	medium_cut(SURVIVES_NOTHING);
	recover();
}

static void
forget_workout(void)
{
	crowded = true;
	for (int round = 0; round < 200; round++)
	{
		server_become(1);
		check(run_until(op_free, 0));
		check(run_until(op_publish, 0));
		take_anew();
	}
}

/*
 * Each operation is cut short at each of its events by a kill of all processes, which
 * leaves what was stored; power fails at each event of the start after it.
 */
static void
recovery_workout(void)
{
	static void (*const operation[]) (void) = {op_free, op_free_group, op_rows, op_group, op_publish};
	static void (*const before[]) (void) = {op_publish, op_group, op_free_batch, op_free_group, op_free};

	crowded = true;
	for (int o = 0; o < (int) lengthof(operation); o++)
	{
		bool		whole = false;

		for (uint64 kill = 1; !whole && kill < 15; kill++)
		{
			bool		started = false;

			for (uint64 nth = 1; !whole && !started && nth < 60; nth++)
			{
				server_become(1);
				check(run_until(before[o], 0));
				whole = run_until(operation[o], kill);
				if (whole)
					break;
				started = start_until(nth);
				medium_cut(nth % 2 ? SURVIVES_SOMETHING : SURVIVES_EVERYTHING);
				while (!start_until(100))
					;
				adopt_outcome();
				check_model();
				if (nth % 4 == 0)
					take_anew();
			}
		}
	}
}

/* What t/160_power_cuts.pl cannot notice (t/medium/uncaught) */
static void
test_lost_group_calls(void **state)
{
	medium_lose_calls("pmem/alloc.c:pm_publish_many:drain:2,pmem/alloc.c:pm_publish_many:flush:1",
					  begin, group_workout);
}

static void
test_lost_marks(void **state)
{
	medium_lose_calls("pmem/slab.c:slab_take:flush:2", begin, marks_workout);
}

static void
test_lost_recovery_calls(void **state)
{
	if (getenv("UNIT_LONG") == NULL && getenv("UNIT_CALL") == NULL)
		return;
	medium_lose_calls("pmem/alloc.c:forget_intents:flush:1,pmem/alloc.c:forget_intents:drain:1", begin, forget_workout);
	medium_lose_calls("pmem/alloc.c:clear_other_links:flush:1,pmem/alloc.c:recover_intent:drain:1,"
					  "pmem/alloc.c:recover_intent:drain:2,pmem/alloc.c:recover_intent:flush:1,"
					  "pmem/alloc.c:recover_intent:flush:3,pmem/alloc.c:recover_intent:flush:4,"
					  "pmem/alloc.c:recover_target:flush:1",
					  begin, recovery_workout);
}

/* Tests that do not notice what is left out would prove nothing. */
static void
test_lost_calls(void **state)
{
	/*
	 * An intent that was not forgotten on the medium does harm only when its target was
	 * freed and taken anew before this process has used the intent's line again.  And
	 * words_prepared is drained for others who take granules; the process that has
	 * raised it drains with its intent.
	 */
	medium_lose_each_call("src/pmem/alloc.c,src/pmem/slab.c,src/pmem/segment.c,src/pmem/vector.c",
						  "pmem/alloc.c:forget_intents:flush:1,pmem/slab.c:slab_give_back:drain:2,"
						  "pmem/alloc.c:pm_release_reservations:flush:1,pmem/alloc.c:pm_release_reservations:drain:2,"
						  "pmem/segment.c:prepare_words:flush:1,pmem/segment.c:prepare_words:drain:1",
						  begin, workout);
}

/* A class is full to the last slot; one more takes a granule; all freed gives all back. */
static void
test_slab_borders(void **state)
{
	static const Size sizes[] = {8, 64, 192, 4032, 16320, 32640};

	for (int k = 0; k < (int) lengthof(sizes); k++)
	{
		uint64		used = pg_atomic_read_u64(&pm_shared->used_granules);
		StoreId		owner = pool_next_store_id();
		int			n = 0;
		PMPtr		first_granule;
		int			class = slab_class(sizes[k]);
		Size		room = (PM_GRANULE - slab_class_offset(class)) / slab_class_size(class);
		PmVector   *v = &PoolSuper->workload;

		assert_int_equal(slab_class_size(class), sizes[k]);
		pm_vector_reserve(v, (room + 1) * sizeof(PMPtr) / sizeof(WorkloadRecord) + 1, PM_OWNER_POOL, 0);
		used = pg_atomic_read_u64(&pm_shared->used_granules);
		for (n = 0; n <= (int) room; n++)
		{
			PmReservation r;
			int			per = sizeof(WorkloadRecord) / sizeof(PMPtr);
			PMPtr	   *link = (PMPtr *) pm_vector_get(v, n / per) + n % per;

			assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used + (n > 0));
			pm_reserve(&r, owner, sizes[k], link, 1, 0);
			assert_int_equal(r.size, sizes[k]);
			assert_int_equal((r.target & PM_OFFSET_MASK) % Min(sizes[k], PM_LINE), 0);
			if (n == 0)
			{
				first_granule = r.target & PM_OFFSET_MASK & ~(uint64) (PM_GRANULE - 1);
				room = ((const SlabHeader *) (PoolBase + first_granule))->nslots;
			}
			else if (n < (int) room)
				assert_int_equal(r.target & PM_OFFSET_MASK & ~(uint64) (PM_GRANULE - 1), first_granule);
			pm_publish(&r);
			assert_int_equal(pm_allocated_size(*link), sizes[k]);
			assert_true(pm_allocation_start(PM_REF((*link & PM_OFFSET_MASK) + sizes[k] - 1)) == *link);
		}
		assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used + 2);
		assert_pool_is_sound();
		while (n-- > 0)
		{
			int			per = sizeof(WorkloadRecord) / sizeof(PMPtr);

			pm_free(owner, (PMPtr *) pm_vector_get(v, n / per) + n % per, 1);
		}
		assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
		assert_pool_is_sound();
	}
}

/* A set that was forgotten finds its slabs again, and takes no other. */
static void
test_evicted_sets(void **state)
{
	StoreId		owner = pool_next_store_id();
	PmReservation r;
	uint64		used;
	PMPtr		granule;

	pm_reserve(&r, owner, 64, link_at(0), 1, 0);
	granule = r.target & PM_OFFSET_MASK & ~(uint64) (PM_GRANULE - 1);
	pm_publish(&r);
	used = pg_atomic_read_u64(&pm_shared->used_granules);
	for (int i = 0; i < 3 * SLAB_BUCKETS * SLAB_WAYS; i++)
	{
		PmReservation other;

		pm_reserve(&other, pool_next_store_id(), 64, link_at(1), 1, 0);
		pm_cancel(&other);
	}
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	pm_reserve(&r, owner, 64, link_at(1), 1, 0);
	assert_int_equal(r.target & PM_OFFSET_MASK & ~(uint64) (PM_GRANULE - 1), granule);
	pm_publish(&r);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	pm_free(owner, link_at(0), 1);
	pm_free(owner, link_at(1), 1);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used - 1);
	assert_pool_is_sound();
}

static void
reserve_too_much(void)
{
	PmReservation r;

	for (int i = 0; i < LINKS; i++)
	{
		pm_reserve(&r, model.owner[0], 40 * PM_GRANULE, link_at(i), 1, 0);
		pm_publish(&r);
	}
}

static void
reserve_once_more(void)
{
	PmReservation r;

	for (int i = 0; i <= PM_INTENTS_PER_BACKEND; i++)
		pm_reserve(&r, model.owner[0], 64, link_at(i), 1, 0);
}

static void
refuse_batch(uint64 used)
{
	static const Size sizes[] = {64, 320, 1024, 4032, 16320, 32640};
	StoreId		owner = pool_next_store_id();
	PmReservation r[lengthof(sizes)];
	PmRequest	request[lengthof(sizes)];
	uint64		left = ((uint64) sofort_pool_size_mb << 20) / PM_GRANULE - used;
	PmReservation most;

	for (int i = 0; i < (int) lengthof(sizes); i++)
		request[i] = (PmRequest) {.size = sizes[i],.link = link_at(i),.nlinks = 1};
	request[0].size = request[1].size = (left / 2 + 1) * PM_GRANULE;
	assert_int_equal(pm_try_reserve_batch(r, request, lengthof(sizes), owner, 0), PM_FULL_QUOTA);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	assert_int_equal(pm_reservable(), PM_INTENTS_PER_BACKEND);

	assert_int_equal(pm_try_reserve(&most, owner, (left - 3) * PM_GRANULE, link_at(LINKS), 1, 0), 0);
	for (int i = 0; i < (int) lengthof(sizes); i++)
		request[i].size = sizes[i];
	assert_int_equal(pm_try_reserve_batch(r, request, lengthof(sizes), owner, 0), PM_FULL_QUOTA);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used + left - 3);
	assert_int_equal(pm_try_reserve_batch(r, request, 3, owner, 0), 0);
	for (int i = 0; i < 3; i++)
		pm_cancel(&r[i]);
	pm_cancel(&most);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	assert_pool_is_sound();
}

/* Quota, the number of open reservations, the kinds of requests that ignore the quota */
static void
test_refusals(void **state)
{
	PmReservation r;
	uint64		used = pg_atomic_read_u64(&pm_shared->used_granules);
	uint64		quota = ((uint64) sofort_pool_size_mb << 20) / PM_GRANULE;

	server_become(1);
	assert_true(RAISES(reserve_too_much()));
	assert_int_equal(server_sqlstate(), ERRCODE_DISK_FULL);
	assert_string_equal(server_message(), "sofort pool is full");
	assert_true(pg_atomic_read_u64(&pm_shared->used_granules) <= quota);
	assert_true(pg_atomic_read_u64(&pm_shared->used_granules) + 40 > quota);
	assert_int_equal(pm_try_reserve(&r, model.owner[0], 40 * PM_GRANULE, link_at(LINKS), 1, 0), PM_FULL_QUOTA);

	/* all of a batch or nothing: what fails is a segment, or the slab of the last class */
	refuse_batch(pg_atomic_read_u64(&pm_shared->used_granules));

	/* transactions, and the server that starts, must not fail */
	assert_int_equal(pm_try_reserve(&r, PM_OWNER_TXN, 40 * PM_GRANULE, link_at(LINKS), 1, 0), 0);
	pm_cancel(&r);
	server_become(0);
	assert_int_equal(pm_try_reserve(&r, PM_OWNER_POOL, 40 * PM_GRANULE, link_at(LINKS), 1, 0), 0);
	pm_cancel(&r);
	server_become(1);
	for (int i = 0; i < LINKS; i++)
		pm_free(model.owner[0], link_at(i), 1);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);

	assert_true(RAISES(reserve_once_more()));
	pm_release_reservations();
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	server_become(0);
	check_model();
}

/* pm_free() of what is no allocation of the owner says so, and changes nothing. */
static void
test_wrong_reference(void **state)
{
	PMPtr	   *link = link_at(0);
	uint64		used = pg_atomic_read_u64(&pm_shared->used_granules);
	static const Size sizes[] = {64, 3 * PM_GRANULE};

	for (int k = 0; k < 2 * (int) lengthof(sizes); k++)
	{
		StoreId		owner = pool_next_store_id();
		StoreId		other = pool_next_store_id();
		PmReservation r;
		PMPtr		p;

		pm_reserve(&r, owner, sizes[k / 2], link, 1, k % 2 ? PM_RESERVE_SHARED_SLAB : 0);
		pm_publish(&r);
		p = *link;
		server_forget();
		assert_false(pm_free(other, link, 1));
		assert_non_null(strstr(server_message(), "points to no allocation of store"));
		assert_true(*link == p && pm_allocated_size(p) >= sizes[k / 2]);
		server_forget();
		assert_true(pm_free(owner, link, 1));
		assert_true(*link == PM_NULL);

		/* a second time: nobody's any more, or nothing */
		pm_store8_persist(link, p);
		assert_false(pm_free(owner, link, 1));
		assert_non_null(strstr(server_message(), "points to no allocation of store"));
		pm_store8_persist(link, PM_NULL);
	}
	pm_store8_persist(link, PM_REF(pm_extent[0].first + 300 * PM_GRANULE));
	server_forget();
	pm_free(PM_OWNER_POOL, link, 1);
	assert_non_null(strstr(server_message(), "points to no allocation"));
	pm_store8_persist(link, *link ^ (UINT64CONST(1) << 50));
	server_forget();
	pm_free(PM_OWNER_POOL, link, 1);
	assert_non_null(strstr(server_message(), "points to no allocation"));
	assert_true(RAISES(pm_deref(*link)));
	assert_int_equal(server_sqlstate(), ERRCODE_DATA_CORRUPTED);
	assert_null(pm_deref_quietly(*link));
	pm_store8_persist(link, PM_NULL);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	check_model();
}

/* ---- vectors ---- */

static void
test_vector_chunks(void **state)
{
	for (int shift = 0; shift <= 10; shift++)
	{
		PmVector	v;
		uint64		i = 0;
		uint64		within;

		pm_vector_init(&v, 8, 1u << shift);
		assert_int_equal(v.first_shift, shift);
		for (int chunk = 0; chunk < 12; chunk++)
		{
			uint64		n = pm_vector_chunk_elems(&v, chunk);

			assert_int_equal(n, UINT64CONST(1) << (shift + Max(chunk - 1, 0)));
			assert_int_equal(pm_vector_chunk(&v, i, &within), chunk);
			assert_int_equal(within, 0);
			i += n - 1;
			assert_int_equal(pm_vector_chunk(&v, i, &within), chunk);
			assert_int_equal(within, n - 1);
			i++;
		}
	}
}

static PmVector *vector;
static uint64 vector_want;

static void
grow_vector(void)
{
	uint64		from = pm_vector_count(vector);

	pm_vector_reserve(vector, vector_want - 1, model.owner[0], 0);
	for (uint64 i = from; i < vector_want; i++)
	{
		uint64	   *element = pm_vector_get(vector, i);

		*element = content(7, i);
		pm_flush(element, sizeof(uint64));
	}
	pm_drain();
	pm_vector_publish(vector, vector_want);
}

/* It grows, cut at every event of it: what is counted is there, what is new is zero. */
static void
test_vector_growth(void **state)
{
	PmReservation r;
	uint64		count = 0;
	uint64		cuts = 0;

	pm_reserve(&r, model.owner[0], sizeof(PmVector), link_at(0), 1, PM_RESERVE_ZERO);
	pm_vector_init(r.addr, sizeof(uint64), 4);
	pm_flush(r.addr, sizeof(PmVector));
	pm_publish(&r);
	vector = r.addr;
	medium_begin();
	while (count < 9000)
	{
		vector_want = count + 1 + random_below(count + 3);
		for (uint64 nth = 1; !run_until(grow_vector, nth); nth++)
		{
			cuts++;
			medium_cut((MediumSurvival) (nth % 3));
			server_start();
			assert_true(pm_vector_count(vector) == count || pm_vector_count(vector) == vector_want);
			count = pm_vector_count(vector);
			assert_null(pm_vector_problem(vector, sizeof(uint64)));
			for (uint64 i = 0; i < count; i++)
				assert_true(*(uint64 *) pm_vector_get(vector, i) == content(7, i));
			assert_pool_is_sound();
		}
		count = vector_want;
	}
	assert_true(cuts > 50);
	assert_int_equal(pm_vector_chunk_elems(vector, 1) * 8, pm_vector_chunk_elems(vector, 4));

	/* what verification says of one that is damaged */
	assert_non_null(pm_vector_problem(vector, 16));
	vector->length ^= UINT64CONST(1) << 3;
	assert_non_null(pm_vector_problem(vector, sizeof(uint64)));
	vector->length ^= UINT64CONST(1) << 3;
	vector->first_shift ^= 1;
	assert_non_null(pm_vector_problem(vector, sizeof(uint64)));
	vector->first_shift ^= 1;
	vector->chunks[2] ^= 64;
	assert_non_null(pm_vector_problem(vector, sizeof(uint64)));
	vector->chunks[2] ^= 64;
	assert_null(pm_vector_problem(vector, sizeof(uint64)));
}

/* ---- several processes ---- */

#define CHILDREN		4
#define MY_LINKS		(GROUPS / CHILDREN)

/* Of one link: a child says what it is about to do before it does it. */
typedef struct SharedLink
{
	volatile ModelLink now;
	volatile ModelLink next;
	volatile bool open;
} SharedLink;

static SharedLink *shared;

static void
child_step(int me, uint64 serial)
{
	int			i = me * MY_LINKS + (int) random_below(MY_LINKS);
	SharedLink *s = &shared[i];
	PmReservation r;

	if (random_below(8) == 0)
	{
		pm_reserve(&r, model.owner[random_below(OWNERS)], random_size(), link_at(LINKS + me), 1, random_flags());
		pm_cancel(&r);
		return;
	}
	if (s->now.used)
	{
		ModelLink	m = s->now;

		if (!(*link_at(i) != PM_NULL))
			abort();
		for (Size k = 0; k < Min(m.size, MOST_CONTENT) / 8; k++)
			if (((uint64 *) pm_deref(*link_at(i)))[k] != content(m.stamp, k))
				abort();
		s->next = s->now;
		s->next.used = false;
		s->open = true;
		pm_free(m.owner, link_at(i), 1);
	}
	else
	{
		s->next.used = true;
		s->next.owner = model.owner[random_below(OWNERS)];
		s->next.size = random_size() % PM_GRANULE + 8;
		s->next.stamp = serial;
		s->open = true;
		pm_reserve(&r, s->next.owner, s->next.size, link_at(i), 1, random_flags());
		fill(r.addr, s->next.size, s->next.stamp);
		pm_publish(&r);
	}
	s->now = s->next;
	s->open = false;
}

static void
child(int me, uint64 round)
{
	server_become(me + 1);
	seed_random(unit_seed() * 1000 + round * CHILDREN + me);
	for (uint64 n = 1;; n++)
		child_step(me, (round << 32) + n * CHILDREN + me + 1);
}

/*
 * They share slabs, sets and granules.  All are killed at some moment; then each
 * link is what its owner knew, and nothing else is there.
 */
static void
test_processes(void **state)
{
	shared = shared_memory(GROUPS * sizeof(SharedLink));
	for (uint64 round = 0; round < 25; round++)
	{
		pid_t		pid[CHILDREN];
		int			status;

		fflush(NULL);
		for (int c = 0; c < CHILDREN; c++)
		{
			pid[c] = fork();
			if (pid[c] == 0)
				child(c, round);
		}
		usleep(20000 + random_below(60000));
		for (int c = 0; c < CHILDREN; c++)
			kill(pid[c], SIGSTOP);
		for (int c = 0; c < CHILDREN; c++)
			kill(pid[c], SIGKILL);
		for (int c = 0; c < CHILDREN; c++)
		{
			assert_int_equal(waitpid(pid[c], &status, 0), pid[c]);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		}
		server_start();
		for (int i = 0; i < GROUPS; i++)
		{
			model.link[i] = shared[i].now;
			if (shared[i].open && !link_is(&model, i))
				model.link[i] = shared[i].next;
			shared[i].now = model.link[i];
			shared[i].open = false;
		}
		check_model();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_model_without_cuts, begin, end),
		cmocka_unit_test_setup_teardown(test_each_event, begin, end),
		cmocka_unit_test_setup_teardown(test_marks_of_the_gone, begin, end),
		cmocka_unit_test_setup_teardown(test_cuts_of_recovery, begin, end),
		cmocka_unit_test_setup_teardown(test_kill_then_cut, begin, end),
		cmocka_unit_test(test_lost_group_calls),
		cmocka_unit_test(test_lost_marks),
		cmocka_unit_test(test_lost_recovery_calls),
		cmocka_unit_test(test_lost_calls),
		cmocka_unit_test_setup_teardown(test_slab_borders, begin, end),
		cmocka_unit_test_setup_teardown(test_evicted_sets, begin, end),
		cmocka_unit_test_setup_teardown(test_refusals, begin, end),
		cmocka_unit_test_setup_teardown(test_wrong_reference, begin, end),
		cmocka_unit_test(test_vector_chunks),
		cmocka_unit_test_setup_teardown(test_vector_growth, begin, end),
		cmocka_unit_test_setup_teardown(test_processes, begin, end),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
