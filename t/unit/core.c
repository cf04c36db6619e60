/*-------------------------------------------------------------------------
 *
 * core.c
 *	  The rest of src/pmem: words that check themselves, flushes and copies,
 *	  epochs, delays, stop points, lives and marks of the pool.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sofort/pmem/latency.h"
#include "sofort/txn/words.h"

static int
begin(void **state)
{
	server_begin();
	server_start();
	seed_random(unit_seed());
	return 0;
}

static int
end(void **state)
{
	server_end();
	return 0;
}

/* ---- words ---- */

static uint64
random_word(int bits)
{
	uint64		w = random_below(UINT64CONST(1) << 32) << 32 | random_below(UINT64CONST(1) << 32);

	/* also small ones, and ones with few bits */
	if (random_below(3) == 0)
		w >>= random_below(64);
	return bits == 64 ? w : w & ((UINT64CONST(1) << bits) - 1);
}

/* Any single bit that flips is noticed. */
static void
test_single_bits(void **state)
{
	seed_random(unit_seed());
	for (int i = 0; i < 20000; i++)
	{
		uint64		w[6] = {random_word(PM_OFFSET_BITS), random_word(32), random_word(PM_OWNER_BITS),
		random_word(16), random_word(40), random_word(WORD_XID_BITS) | 1};
		PMPtr		p = PM_REF(w[0]);
		PmSealed	sealed = PM_SEAL(w[1]);
		uint64		id = PM_SEAL_ID(w[2]);
		uint32		half = PM_SEAL16(w[3]);
		uint64		segment = segword_make(1 + (int) random_below(2), (uint32) random_word(24),
										   random_word(PM_OWNER_BITS));
		uint64		stamp = word_seal(WORD_MAKE_STAMP(w[5]) | (random_below(16) << WORD_FLAG_SHIFT));
		uint64		link = random_below(2) ? LINK_MAKE(w[4]) : LINK_MAKE_ROOT(w[4]);

		assert_true(pm_ref_is_valid(p) && PM_SEALED_RIGHT(sealed) && PM_SEALED_ID_RIGHT(id));
		assert_true(PM_SEALED16_RIGHT(half) && SEGWORD_IS_RIGHT(segment) && LINK_IS_RIGHT(link));
		assert_null(word_problem(stamp, true));
		for (int bit = 0; bit < 64; bit++)
		{
			uint64		flip = UINT64CONST(1) << bit;

			assert_false(pm_ref_is_valid(p ^ flip));
			assert_false(PM_SEALED_RIGHT(sealed ^ flip));
			assert_false(PM_SEALED_ID_RIGHT(id ^ flip));
			assert_false(SEGWORD_IS_RIGHT(segment ^ flip));
			assert_false(LINK_IS_RIGHT(link ^ flip));
			assert_non_null(word_problem(stamp ^ flip, true));
			assert_non_null(word_problem(stamp ^ flip, false));
			if (bit < 32)
				assert_false(PM_SEALED16_RIGHT(half ^ (uint32) flip));
		}
	}
	assert_true(PM_SEALED_RIGHT(0) && PM_UNSEAL(PM_SEAL(0)) == 0 && PM_SEAL(0) == 0 && PM_SEAL_ID(0) == 0);
}

static void
test_fields_of_words(void **state)
{
	seed_random(unit_seed());
	for (int i = 0; i < 20000; i++)
	{
		StoreId		owner = random_word(PM_OWNER_BITS);
		uint32		count = (uint32) random_word(24);
		uint64		w = segword_make(SEGWORD_SEGMENT, count, owner);
		uint32		slot = (uint32) random_word(WORD_SLOT_BITS);
		uint32		generation = (uint32) random_word(WORD_GENERATION_BITS);
		uint32		command = (uint32) random_word(WORD_COMMAND_BITS);
		uint64		row = random_word(40);

		assert_true(SEGWORD_STATE(w) == SEGWORD_SEGMENT && SEGWORD_COUNT(w) == count && SEGWORD_OWNER(w) == owner);
		w = WORD_MAKE_PROGRESS(slot, generation, command);
		assert_true(WORD_TAG(w) == WORD_TAG_PROGRESS && WORD_SLOT(w) == slot && WORD_GENERATION(w) == generation &&
					WORD_COMMAND(w) == command);
		w = WORD_MAKE_LOCK(slot, generation, i & 0xff, command & WORD_MAX_LOCK_SUB, i & 3);
		assert_true(WORD_TAG(w) == WORD_TAG_LOCK && WORD_SLOT(w) == slot && WORD_GENERATION(w) == generation &&
					WORD_LOCK_LIFE(w) == (uint32) (i & 0xff) && WORD_LOCK_SUB(w) == (command & WORD_MAX_LOCK_SUB) &&
					(int) WORD_LOCK_MODE(w) == (i & 3));
		assert_true(LINK_IS_SET(LINK_MAKE(row)) && LINK_ROW(LINK_MAKE(row)) == row && LINK_ROW(LINK_MAKE_ROOT(row)) == row);
		assert_true(PM_UNSEAL_ID(PM_SEAL_ID(owner)) == owner && PM_UNSEAL(PM_SEAL(count)) == count);
	}
}

/* CRC-32C: the known value, and that of two pieces */
static void
test_crc(void **state)
{
	assert_int_equal(pm_crc("123456789", 9), 0xe3069283);
	assert_int_equal(pm_crc_of_two("1234", 4, "56789", 5), 0xe3069283);
	assert_int_equal(pm_crc_of_two("", 0, "123456789", 9), 0xe3069283);
}

/* ---- flushes ---- */

static char *
area(Size size)
{
	static PmReservation r;
	static StoreId owner = 0;
	PMPtr	   *link;

	pm_vector_reserve(&PoolSuper->stores, 8, PM_OWNER_POOL, 0);
	link = pm_vector_get(&PoolSuper->stores, 0);
	if (*link != PM_NULL)
		pm_free(owner, link, 1);
	owner = pool_next_store_id();
	pm_reserve(&r, owner, size, link, 1, PM_RESERVE_ZERO);
	pm_publish(&r);
	return r.addr;
}

static void
test_flush_counts(void **state)
{
	char	   *p = area(PM_GRANULE);
	uint64		lines;
	uint64		drains = pm_counters()->drains;

	pm_drain();
	assert_int_equal(pm_counters()->drains, drains);
	lines = pm_counters()->lines_flushed;
	pm_flush(p, 1);
	pm_flush(p + 8, 8);			/* the same line */
	pm_flush(p + 63, 2);		/* that one and the next */
	pm_flush(p, 0);
	assert_int_equal(pm_counters()->lines_flushed - lines, 2);
	pm_drain();
	assert_int_equal(pm_counters()->drains, drains + 1);
	pm_flush(p, 1);				/* written again: another write-back */
	assert_int_equal(pm_counters()->lines_flushed - lines, 3);
	pm_start_writeback();
	pm_flush(p, 1);
	assert_int_equal(pm_counters()->lines_flushed - lines, 4);
	pm_flush(p, PM_GRANULE);	/* more than are noted at a time */
	assert_true(pm_counters()->lines_flushed - lines >= 4 + PM_GRANULE / PM_LINE - 1);
	pm_drain();
	assert_int_equal(pm_counters()->drains, drains + 2);
}

/* Copies past the cache: all alignments and lengths; nothing beside them changes. */
static void
test_copies(void **state)
{
	char	   *p = area(4096);
	char		expected[2048];
	char		source[2048];

	for (int i = 0; i < (int) sizeof(source); i++)
		source[i] = (char) random_below(256);
	for (int start = 0; start < 70; start++)
	{
		for (int len = 0; len < 600; len += len < 8 ? 1 : 1 + (int) random_below(9))
		{
			int			from = (int) random_below(64);

			memset(p, 0x55, 1024);
			memset(expected, 0x55, 1024);
			memcpy(expected + start, source + from, len);
			pm_copy_nodrain(p + start, source + from, len);
			pm_drain();
			assert_memory_equal(p, expected, 1024);
			memset(expected + start, 0, len);
			pm_zero_nodrain(p + start, len);
			pm_drain();
			assert_memory_equal(p, expected, 1024);
		}
	}
}

/* ---- delays ---- */

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + t.tv_nsec / 1e9;
}

static void
test_delays(void **state)
{
	char	   *p = area(4096);
	uint64		reads = pm_counters()->read_delays;
	uint64		writes = pm_counters()->write_delays;
	double		start;

	latency_init();
	pm_read_miss(1);
	pm_persist(p, 8);
	assert_int_equal(pm_counters()->read_delays, reads);
	assert_int_equal(pm_counters()->write_delays, writes);
	sofort_scm_read_latency = 20000;
	sofort_scm_write_latency = 50000;
	pm_read_miss(1);			/* calibrates */
	start = seconds();
	for (int i = 0; i < 50; i++)
		pm_read_miss(2);
	assert_true(seconds() - start >= 0.9 * 50 * 2 * 20e-6);
	start = seconds();
	for (int i = 0; i < 20; i++)
	{
		pm_persist(p, 200);
		pm_drain();				/* nothing to wait for */
	}
	assert_true(seconds() - start >= 0.9 * 20 * 50e-6);
	sofort_scm_read_latency = sofort_scm_write_latency = 0;
	assert_int_equal(pm_counters()->read_delays, reads + 101);
	assert_int_equal(pm_counters()->write_delays, writes + 20);
}

/* ---- epochs ---- */

static void
test_epochs(void **state)
{
	uint64		e;

	server_become(1);
	epoch_enter();
	epoch_enter();
	e = epoch_advance();
	assert_false(epoch_passed(e));
	epoch_exit();
	assert_false(epoch_passed(e));
	epoch_exit();
	assert_true(epoch_passed(e));
	epoch_enter();
	assert_true(epoch_passed(e));	/* entered afterwards */
	e = epoch_advance();
	assert_false(epoch_passed(e));
	epoch_reset();
	assert_true(epoch_passed(e));
	server_become(0);
}

#define OBJECTS		64
#define READERS		3

typedef struct EpochTest
{
	volatile uint32 head;
	volatile uint32 alive[OBJECTS];
	volatile bool stop;
	volatile uint64 reads[READERS];
	volatile uint64 wrong;
} EpochTest;

static void
read_objects(EpochTest *t, int me)
{
	server_become(me + 1);
	while (!t->stop)
	{
		uint32		object;

		epoch_enter();
		object = t->head;
		for (int i = 0; i < 200; i++)
			if (!t->alive[object])
				t->wrong++;
		epoch_exit();
		t->reads[me]++;
	}
	_exit(0);
}

/* What was unlinked stays as it is while a reader may look at it. */
static void
test_epochs_of_processes(void **state)
{
	EpochTest  *t = shared_memory(sizeof(EpochTest));
	pid_t		pid[READERS];
	double		end_at = seconds() + 1.0;
	uint64		replaced = 0;
	int			status;

	t->alive[0] = 1;
	fflush(NULL);
	for (int i = 0; i < READERS; i++)
		if ((pid[i] = fork()) == 0)
			read_objects(t, i);
	while (seconds() < end_at || t->reads[0] == 0 || replaced < 10)
	{
		uint32		old = t->head;
		uint32		new = (old + 1) % OBJECTS;
		uint64		e;

		t->alive[new] = 1;
		pg_write_barrier();
		t->head = new;
		e = epoch_advance();
		while (!epoch_passed(e))
			;
		t->alive[old] = 0;
		replaced++;
	}
	t->stop = true;
	for (int i = 0; i < READERS; i++)
		assert_true(waitpid(pid[i], &status, 0) == pid[i] && WIFEXITED(status));
	assert_int_equal(t->wrong, 0);
	munmap(t, sizeof(EpochTest));
}

/* ---- stop points ---- */

static void
pass(const char *point)
{
	SOFORT_STOP(point);
}

static void
test_stop_points(void **state)
{
	fault_startup();
	pass("one");
	fault_arm("one", FAULT_ERROR, 2);
	fault_arm("other", FAULT_ERROR, 1);
	pass("one");
	assert_true(RAISES(pass("one")));
	assert_string_equal(server_message(), "stop point \"one\" raised an error");
	pass("one");				/* it fires once */
	assert_int_equal(fault_passages("one"), 3);
	fault_disarm("other");
	pass("other");
	fault_arm("one", FAULT_ERROR, 1);
	assert_true(RAISES(pass("one")));
	fault_disarm(NULL);
	pass("one");
	assert_int_equal(*fault_armed, 0);
	assert_int_equal(fault_waiters("one"), 0);
	assert_true(RAISES(fault_arm("", FAULT_ERROR, 1)));
	assert_true(RAISES(fault_arm("one", FAULT_ERROR, 0)));
	assert_true(RAISES(fault_arm("one", FAULT_NONE, 1)));
	assert_true(RAISES(fault_arm("a name that is much longer than the sixty-three bytes that there are for it", FAULT_ERROR, 1)));
	for (int i = 0; i < 32; i++)
		fault_arm("many", FAULT_ERROR, 1000);
	assert_true(RAISES(fault_arm("many", FAULT_ERROR, 1)));
	fault_disarm(NULL);
	fault_armed = NULL;
}

/* ---- the pool ---- */

static void
test_lives(void **state)
{
	uint64		life = pool_life();
	StoreId		id = pool_next_store_id();

	assert_int_equal(pool_next_store_id(), id + 1);
	pool_raise_high_water(1, 32768);
	pool_raise_high_water(1, 7);	/* known already */
	assert_int_equal(PoolSuper->hw_xid, 32768);
	server_start();
	assert_int_equal(pool_life(), life + 1);
	assert_int_equal(PoolSuper->hw_sequence, 1);
	assert_true(pool_next_store_id() > id + 1);
	assert_pool_is_sound();
}

/* An older pool, or an older data directory, is refused. */
static void
test_older_copy(void **state)
{
	PoolSuper->life -= 1;
	assert_false(server_try_start());
	assert_non_null(strstr(pm_shared->message, "is an older copy than the data directory"));
	PoolSuper->life += 2;
	assert_false(server_try_start());
	assert_non_null(strstr(pm_shared->message, "is an older copy than sofort pool"));
	assert_true(RAISES(pool_require()));
	PoolSuper->life -= 1;
	server_start();
	PoolSuper->identity.pool_id[3] ^= 1;
	assert_false(server_try_start());
	PoolSuper->identity.pool_id[3] ^= 1;
	server_start();
	PoolSuper->next_store_id ^= 32;
	assert_false(server_try_start());
	PoolSuper->next_store_id ^= 32;
	server_start();
}

/* The file may have changed since somebody looked at its name. */
static void
test_file_is_looked_at_when_open(void **state)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	memset(&why, 0, sizeof(why));
	assert_true(control_read(&control, &exists, &why) && exists);
	assert_true(pool_file_find(pm_pool_file, &exists, &why) && exists);
	assert_int_equal(chmod(pm_pool_file, 0640), 0);
	assert_false(pool_file_open(&control, &why));
	assert_non_null(strstr(why.message, "can be read or written by others"));
	assert_int_equal(unlink(pm_pool_file), 0);
	assert_int_equal(mkfifo(pm_pool_file, 0600), 0);
	assert_false(pool_file_open(&control, &why));
	assert_non_null(strstr(why.message, "is not a regular file"));
}

/* ---- blocks of free granules ---- */

static uint64
blocks(void)
{
	struct stat st;

	assert_int_equal(fstat(pm_pool_fd, &st), 0);
	return (uint64) st.st_blocks * 512 / PM_GRANULE;
}

static Latch trimmer;
static int	wakeups;

void
SetLatch(Latch *latch)
{
	assert_ptr_equal(latch, &trimmer);
	wakeups++;
}

static void
trim(int calls)
{
	while (calls-- > 0)
		(void) pm_trim(&trimmer);
}

static PMPtr
take(PMPtr *link, uint64 granules, StoreId owner)
{
	PmReservation r;

	pm_reserve(&r, owner, granules * PM_GRANULE, link, 1, 0);
	memset(r.addr, 1, granules * PM_GRANULE);
	pm_publish(&r);
	return *link;
}

/*
 * What is freed keeps its blocks for half a minute, is taken again first, does not count as
 * used, and goes back if space is short.
 */
static void
test_kept_blocks(void **state)
{
	StoreId		owner = pool_next_store_id();
	uint64		at_first;
	uint64		used;
	PMPtr	   *link;
	PMPtr		p;

	pm_vector_reserve(&PoolSuper->stores, 400, PM_OWNER_POOL, 0);
	link = pm_vector_get(&PoolSuper->stores, 0);
	at_first = blocks();
	used = pg_atomic_read_u64(&pm_shared->used_granules);

	/* nobody would give it back later: it goes at once */
	(void) take(&link[0], 100, owner);
	assert_true(blocks() >= at_first + 100);
	assert_true(pm_free(owner, &link[0], 1));
	assert_true(blocks() < at_first + 10);

	trim(1);
	p = take(&link[0], 100, owner);
	(void) take(&link[1], 10, owner);
	wakeups = 0;
	assert_true(pm_free(owner, &link[0], 1));
	assert_true(pm_free(owner, &link[1], 1));
	assert_true(blocks() >= at_first + 110);
	assert_true(wakeups > 0);
	assert_int_equal(pg_atomic_read_u64(&pm_shared->used_granules), used);
	assert_true(pm_trim(&trimmer));
	wakeups = 0;
	assert_int_equal(take(&link[0], 100, owner), p);
	assert_true(pm_free(owner, &link[0], 1));
	assert_int_equal(wakeups, 0);	/* it is awake */
	assert_pool_is_sound();
	trim(29);
	assert_true(blocks() >= at_first + 100);
	trim(3);
	assert_true(blocks() < at_first + 10);
	assert_false(pm_trim(&trimmer));

	/* too large to be kept; too many to be kept: the oldest go */
	(void) take(&link[0], 300, owner);
	assert_true(pm_free(owner, &link[0], 1));
	assert_true(blocks() < at_first + 10);
	for (int i = 0; i < 30; i++)
		(void) take(&link[i], 100, owner);
	for (int i = 0; i < 30; i++)
		assert_true(pm_free(owner, &link[i], 1));
	assert_true(blocks() <= at_first + FREE_CACHE_GRANULES + 10);
	assert_true(blocks() >= at_first + FREE_CACHE_GRANULES / 2);
	assert_pool_is_sound();

	/* a crash; the next life looks for what this one has kept */
	server_start();
	server_become(1);
	assert_true(blocks() >= at_first + FREE_CACHE_GRANULES / 2);
	trim(1);
	assert_true(blocks() < at_first + 10);
	assert_pool_is_sound();

	/* space is short: all go, and nothing is kept for a while */
	(void) take(&link[0], 100, owner);
	(void) take(&link[1], 100, owner);
	assert_true(pm_free(owner, &link[0], 1));
	pm_give_back_free();
	assert_true(pm_free(owner, &link[1], 1));
	assert_true(blocks() < at_first + 10);
	assert_true(pm_trim(&trimmer));
	trim(30);
	(void) take(&link[1], 100, owner);
	assert_true(pm_free(owner, &link[1], 1));
	assert_true(blocks() >= at_first + 100);

	/* the end of who gives back */
	assert_false(pm_trim(NULL));
	assert_true(blocks() < at_first + 10);
	(void) take(&link[1], 100, owner);
	assert_true(pm_free(owner, &link[1], 1));
	assert_true(blocks() < at_first + 10);
	assert_pool_is_sound();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single_bits),
		cmocka_unit_test(test_fields_of_words),
		cmocka_unit_test(test_crc),
		cmocka_unit_test_setup_teardown(test_flush_counts, begin, end),
		cmocka_unit_test_setup_teardown(test_copies, begin, end),
		cmocka_unit_test_setup_teardown(test_delays, begin, end),
		cmocka_unit_test_setup_teardown(test_epochs, begin, end),
		cmocka_unit_test_setup_teardown(test_epochs_of_processes, begin, end),
		cmocka_unit_test_setup_teardown(test_stop_points, begin, end),
		cmocka_unit_test_setup_teardown(test_lives, begin, end),
		cmocka_unit_test_setup_teardown(test_older_copy, begin, end),
		cmocka_unit_test_setup_teardown(test_file_is_looked_at_when_open, begin, end),
		cmocka_unit_test_setup_teardown(test_kept_blocks, begin, end),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
