/*-------------------------------------------------------------------------
 *
 * alloc_model.c
 *	  The model of allocation, and operations on it and on the pool.
 *
 *-------------------------------------------------------------------------
 */
#include "alloc_model.h"

static const char *last_operation = "";
Model		model;
Model		after;
bool		crowded = false;
static Size pool_own = 0;		/* bytes of the pool itself */
static Size shared_size = 0;	/* if not 0, all is of this size and in shared slabs */

/* ---- links and contents ---- */

/* They lie in the directory of stores, which nothing else uses here. */
PMPtr *
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

uint64
content(uint64 stamp, Size k)
{
	return (stamp << 20 | k) * UINT64CONST(0x9e3779b97f4a7c15) | 1;
}

void
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
bool
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
void
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

/*
 * The store of a transaction that has not committed goes, as its write set says;
 * meanwhile: before that is drained.
 */
static void
forget_made(bool again, void (*meanwhile) (void))
{
	forget_rows(after.made);
	pm_free_owner(after.made, again);
	if (meanwhile != NULL)
		meanwhile();
	pm_drain();
	after.made = 0;
	after.gone = 0;
}

/* After a crash each link is what it was before, or what it was to be. */
void
adopt_outcome(void)
{
	shared_size = 0;
	/* (a start drains what has committed before anything is done about it) */
	pm_persist(commit_word(), sizeof(uint64));
	if (*commit_word() == after.commit)
		model.commit = after.commit;
	else if (after.made != 0)
		forget_made(true, NULL);
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
Size
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

int
random_flags(void)
{
	static const int flags[] = {0, PM_RESERVE_SHARED_SLAB, PM_RESERVE_ZERO,
	PM_RESERVE_SHARED_SLAB | PM_RESERVE_ZERO};

	return shared_size != 0 ? PM_RESERVE_SHARED_SLAB : flags[random_below(lengthof(flags))];
}

void
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

static void
publish_by_another(void)
{
	server_become(1);
	op_publish();
	server_become(0);
}

/* A row is given up before its transaction has ended; another process takes what it had. */
static void
give_up_row(int i)
{
	pm_free(after.link[i].owner, link_at(i), 1);
	after.link[i].used = false;
	after.rows &= ~(UINT64CONST(1) << i);
	publish_by_another();
}

/* What may be reserved ahead for rows of this transaction, by link; size 0: nothing */
static struct
{
	Size		size;
	StoreId		owner;
}			ahead[64];

/* A free link, often one for which something is reserved; -1: there is none. */
static int
row_link(bool guess)
{
	int			from = (int) random_below(64);

	for (int k = 0; k < 64 && guess && random_below(32) != 0; k++)
	{
		int			i = (from + k) % 64;

		if (ahead[i].size != 0 && !after.link[i].used && !model.link[i].used &&
			(after.gone & (UINT64CONST(1) << i)) == 0)
			return i;
	}
	return random_link(false);
}

/*
 * Space for n requests, of which some may have been reserved ahead with earlier ones; and
 * ahead for some links more, with these.
 */
static void
reserve_rows(PmReservation *r, const PmRequest *request, int n, StoreId owner)
{
	PmReservation got[2 * BATCH];
	PmRequest	need[2 * BATCH];
	int			of[BATCH];
	int			nneed = 0;
	int			total;
	int			flags = random_flags();

	for (int k = 0; k < n; k++)
	{
		int			i = (int) (request[k].link - link_at(0));

		if (ahead[i].owner == owner && pm_take_ahead(&r[k], &request[k], flags))
			continue;
		of[nneed] = k;
		need[nneed++] = request[k];
	}
	if (nneed == 0)
		return;
	total = nneed;
	for (int k = (int) random_below(BATCH); k > 0; k--)
	{
		int			i = (int) random_below(64);

		if (after.link[i].used || ahead[i].size != 0)
			continue;
		ahead[i].owner = owner;
		ahead[i].size = random_size();
		ahead[i].size = Min(ahead[i].size, PM_SLAB_MAX);
		need[total++] = (PmRequest) {.size = ahead[i].size,.link = link_at(i),.nlinks = 1};
	}
	check(pm_try_reserve_ahead(got, need, nneed, total, owner, flags) == 0);
	for (int k = 0; k < nneed; k++)
		r[of[k]] = got[k];
}

/* Some rows of an owner, not settled.  The link of one of them, or -1 */
static int
link_rows(StoreId owner, int flags, bool guess)
{
	PmReservation r[BATCH];
	PmRequest	request[BATCH];
	ModelLink  *m[BATCH];
	int			n = 0;
	int			link = -1;

	for (int k = 1 + (int) random_below(BATCH); k > 0; k--)
	{
		int			i = row_link(guess);

		if (i < 0 || i >= 64)
			continue;
		m[n] = new_link(i, ahead[i].size != 0 && random_below(4) != 0 ? ahead[i].size :
						Min(random_size(), PM_GRANULE));
		m[n]->owner = owner;
		after.rows |= UINT64CONST(1) << i;
		request[n] = (PmRequest) {.size = m[n]->size,.link = link_at(i),.nlinks = 1};
		n++;
		link = i;
	}
	if (n == 0)
		return -1;
	if (guess)
		reserve_rows(r, request, n, owner);
	else
		check(pm_try_reserve_batch(r, request, n, owner, random_flags() | flags) == 0);
	for (int k = 0; k < n; k++)
		fill(r[k].addr, m[k]->size, m[k]->stamp);
	pm_link_batch(r, request, n);
	return link;
}

/*
 * A transaction that stores rows: in batches, each of one owner; it commits or is
 * rolled back.
 */
void
op_rows(void)
{
	after.rows = 0;
	after.commit = ++after.stamp;
	memset(ahead, 0, sizeof(ahead));
	for (int batches = 1 + (int) random_below(6), k = 0; k < batches; k++)
	{
		/* (guesses are of one process: not while another one does something) */
		int			link = link_rows(after.owner[random_below(OWNERS)], 0, k > 0);

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
void
op_failed_rows(void)
{
	StoreId		owner = after.owner[random_below(OWNERS)];
	PmRequest	request[PM_INTENTS_PER_BACKEND];
	PmReservation r[PM_INTENTS_PER_BACKEND];

	after.rows = 0;
	after.commit = ++after.stamp;
	(void) link_rows(owner, 0, false);
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
	server_become(1);
	(void) link_rows(after.owner[random_below(OWNERS)], 0, false);
	pm_release_reservations();
	undo_rows();
	server_become(0);
}

void
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
free_links(int i, uint64 n)
{
	if (i < 0)
		return;
	after.link[i].used = false;
	pm_free(model.link[i].owner, link_at(i), n);
}

void
op_free(void)
{
	free_links(random_link(true), 1);
}

/* Several of one owner */
void
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

void
op_free_group(void)
{
	free_links(random_group(true), GROUP);
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

	after.owner[o] = pool_next_store_id();
	pm_drain();					/* as the header of a store is published before it owns anything */
	after.dropping = model.owner[o];
	after.rows = 0;
	after.commit = ++after.stamp;
	if (random_below(2))
		(void) link_rows(after.dropping, random_below(2) ? PM_RESERVE_UNGUARDED : 0, false);
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
		publish_by_another();
	pm_drain();
	after.commit = model.commit;
	after.gone = 0;
	after.dropping = 0;
}

/* A store is made and filled by a transaction, without intents. */
static void
make_store(void)
{
	after.made = pool_next_store_id();
	pm_drain();
	after.rows = 0;
	after.commit = ++after.stamp;
	for (int k = 1 + (int) random_below(4); k > 0; k--)
		(void) link_rows(after.made, PM_RESERVE_UNGUARDED, false);
	/* another one takes slots of the same slabs meanwhile */
	publish_by_another();
}

/* What is taken of it at once has its marks on the medium. */
void
op_store_undone(void)
{
	shared_size = random_below(2) ? 16320 : 21760;
	make_store();
	pm_drain();
	forget_made(false, take_rows);
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
		forget_made(true, NULL);
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

/* From now on until the next start what is freed keeps its blocks for a while. */
void
op_trim(void)
{
	static Latch latch;

	for (int k = random_below(2) ? 1 : 40; k > 0; k--)
		(void) pm_trim(&latch);
}

const NamedOperation operations[] = {
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
	{"drop", op_drop, 2},
	{"trim", op_trim, 2}
};
const int	noperations = lengthof(operations);

Operation
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
bool
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
bool
start_until(uint64 nth)
{
	return medium_run_until(server_start, nth);
}

/* ---- the pool of these tests ---- */

int
model_begin(void **state)
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

int
model_end(void **state)
{
	medium_end();
	server_end();
	return 0;
}

/* Start again, as after a crash; the medium holds what it holds. */
void
recover(void)
{
	server_start();
	adopt_outcome();
	check_model();
}
