/*-------------------------------------------------------------------------
 *
 * alloc.c
 *	  Allocation (src/pmem/alloc.c, owner.c, slab.c, segment.c, free_cache.c, vector.c): every stop point
 *	  and every drain of every operation is a power cut, with all that survives
 *	  one; what recovers is compared with a model.  Then processes that allocate
 *	  side by side, and are killed.
 *
 *-------------------------------------------------------------------------
 */
#include "alloc_model.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
		for (int o = 0; o < noperations; o++)
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

/* The power fails at each event of an operation in turn, again and again. */
static void
cut_each_event(Operation operation, int rounds)
{
	for (int round = 0; round < rounds; round++)
		for (uint64 nth = 1; !run_until(operation, nth); nth++)
		{
			medium_cut(SURVIVES_SOMETHING);
			recover();
		}
}

/*
 * A link and the mark of what it leads to, each on the medium or not, where that has
 * the mark of an owner that is gone.
 */
static void
marks_workout(void)
{
	cut_each_event(op_store_undone, 40);
}

/*
 * What a failed transaction has settled is not drained yet when another process frees
 * its rows' values and stores its own in their place.
 */
static void
failed_rows_workout(void)
{
	crowded = true;
	cut_each_event(op_failed_rows, 20);
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
	int			n = noperations;

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
		if (run_until(round % 3 == 2 ? op_free_group : op_group, 1 + random_below(12)))
			continue;
		if (random_below(4) == 0)
			recover();			/* all were killed; the power fails later */
		medium_cut((MediumSurvival) random_below(3));
		recover();
	}
}

/*
 * Freed, cut at each event of that.  The first link alone comes back, the others do not, and
 * what it leads to is still marked: few of these cuts are so.
 */
static void
free_group_workout(void)
{
	crowded = true;
	for (int round = 0; round < 400; round++)
	{
		check(run_until(op_group, 0));
		cut_each_event(op_free_group, 1);
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
				else if (nth % 2 == 1)
				{
					/* what the start has done is durable */
					medium_cut(SURVIVES_NOTHING);
					recover();
				}
			}
		}
	}
}

/* What t/160_power_cuts.pl cannot notice (t/medium/uncaught) */
static void
test_lost_group_calls(void **state)
{
	medium_lose_calls("pmem/alloc.c:pm_publish_many:drain:2,pmem/alloc.c:pm_publish_many:flush:1",
					  model_begin, group_workout);
	medium_lose_calls("pmem/alloc.c:carry_out:drain:2", model_begin, free_group_workout);
}

static void
test_lost_marks(void **state)
{
	medium_lose_calls("pmem/slab.c:make_slab:drain:2,pmem/slab.c:slab_take:flush:2", model_begin,
					  marks_workout);
}

static void
test_lost_release(void **state)
{
	medium_lose_calls("pmem/alloc.c:pm_release_reservations:drain:1", model_begin, failed_rows_workout);
}

static void
test_lost_recovery_calls(void **state)
{
	if (getenv("UNIT_LONG") == NULL && getenv("UNIT_CALL") == NULL)
		return;
	medium_lose_calls("pmem/alloc.c:forget_intents:flush:1,pmem/alloc.c:forget_intents:drain:1",
					  model_begin, forget_workout);
	medium_lose_calls("pmem/alloc.c:clear_other_links:flush:1,pmem/alloc.c:recover_intent:drain:1,"
					  "pmem/alloc.c:recover_intent:drain:2,pmem/alloc.c:recover_intent:flush:1,"
					  "pmem/alloc.c:recover_intent:flush:3,pmem/alloc.c:recover_intent:flush:4,"
					  "pmem/alloc.c:recover_target:flush:1",
					  model_begin, recovery_workout);
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
	medium_lose_each_call("src/pmem/alloc.c,src/pmem/owner.c,src/pmem/slab.c,src/pmem/segment.c,"
						  "src/pmem/vector.c",
						  "pmem/alloc.c:forget_intents:flush:1,pmem/slab.c:slab_give_back:drain:2,"
						  "pmem/alloc.c:pm_release_reservations:flush:1,pmem/alloc.c:pm_release_reservations:drain:2,"
						  "pmem/segment.c:prepare_words:flush:1,pmem/segment.c:prepare_words:drain:1",
						  model_begin, workout);
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

		if (round % 2 == 1)
			op_trim();
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
		cmocka_unit_test_setup_teardown(test_model_without_cuts, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_each_event, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_marks_of_the_gone, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_cuts_of_recovery, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_kill_then_cut, model_begin, model_end),
		cmocka_unit_test(test_lost_group_calls),
		cmocka_unit_test(test_lost_marks),
		cmocka_unit_test(test_lost_release),
		cmocka_unit_test(test_lost_recovery_calls),
		cmocka_unit_test(test_lost_calls),
		cmocka_unit_test_setup_teardown(test_slab_borders, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_evicted_sets, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_refusals, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_wrong_reference, model_begin, model_end),
		cmocka_unit_test(test_vector_chunks),
		cmocka_unit_test_setup_teardown(test_vector_growth, model_begin, model_end),
		cmocka_unit_test_setup_teardown(test_processes, model_begin, model_end),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
