/*-------------------------------------------------------------------------
 *
 * store.c
 *	  Of src/store: dictionaries, cut at every event and compared with a model;
 *	  codes and values of every width and how they are read; the loops over whole
 *	  columns, compared with one row after the other; numbering and checks of rows.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sofort/store/column_read.h"
#include "sofort/store/store_internal.h"

/* Plans are made by hand here (desc.c needs a relation). */
ShapePlan *
plan_compile(StoreDesc *store, uint32 shape)
{
	abort();
}

/* ---- a store ---- */

static StoreHeader *header;
static StoreShared *shared;
static StoreDesc desc;
static StoreId id;

static PMPtr *
link_at(int i)
{
	return pm_vector_get(&PoolSuper->stores, i);
}

/* What a start makes anew */
static void
attach(void)
{
	StoreLocks = GetNamedLWLockTranche("sofort_store");
	header = pm_deref(*link_at(0));
	shared = palloc0(sizeof(StoreShared));
	shared->id = id;
	shared->header = header;
	desc.id = id;
	desc.header = header;
	desc.shared = shared;
}

static void
make_column(int i, int16 attlen, bool byval, int placement)
{
	ColumnHeader *c;

	pm_vector_reserve(&header->columns, i, id, 0);
	c = column_get(header, i);
	c->attnum = (int16) (i + 1);
	c->attlen = attlen;
	c->attbyval = byval;
	c->attalign = attlen == 2 ? 's' : attlen == 4 ? 'i' : 'd';
	c->dict_placement = COLUMN_PLACEMENT(placement);
	c->crc = column_crc(c);
	c->state = COLUMN_LIVE;
	pm_persist(c, sizeof(ColumnHeader));
	pm_vector_publish(&header->columns, i + 1);
}

static int
begin(void **state)
{
	PmReservation r;

	server_begin();
	server_start();
	seed_random(unit_seed());
	pm_vector_reserve(&PoolSuper->stores, 16, PM_OWNER_POOL, 0);
	id = pool_next_store_id();
	pm_reserve(&r, PM_OWNER_POOL, sizeof(StoreHeader), link_at(0), 1, PM_RESERVE_ZERO);
	header = r.addr;
	header->magic = SOFORT_STORE_MAGIC;
	header->sealed_id = PM_SEAL_ID(id);
	header->state = STORE_LIVE;
	header->flag_word = store_flag_word(header, 0);
	pm_vector_init(&header->blocks, sizeof(PMPtr), 8);
	pm_vector_init(&header->columns, sizeof(ColumnHeader), 4);
	pm_vector_init(&header->shapes, sizeof(PMPtr), 4);
	pm_flush(header, sizeof(StoreHeader));
	pm_publish(&r);
	attach();
	return 0;
}

static int
end(void **state)
{
	medium_end();
	server_end();
	return 0;
}

/* ---- dictionaries ---- */

#define VALUES		240			/* that a test uses */
#define CODES		4096

typedef struct DictModel
{
	int			value_of[CODES];	/* what a code was given for; -1: nothing, -2: what
									 * an operation that was cut short may have left */
	uint64		ncodes;
} DictModel;

static DictModel codes;
static int16 attlen;
static int	placement;
static DictIndex *dict_index;
static int	adding;
static uint32 added;

static DictionaryHeader *
dictionary(void)
{
	return pm_deref(column_get(header, 0)->dictionary);
}

/* Bytes of a value; many share their first ones. */
static Size
bytes_of(int value, char *bytes)
{
	if (attlen > 0)
	{
		uint64		n = (uint64) value * (attlen == 2 ? 273 : 0x1000193);

		memset(bytes, 7, 32);
		memcpy(bytes, &n, Min(attlen, 8));
		return attlen;
	}
	snprintf(bytes, 400, "value %0*d", 1 + value % 5 * (value % 3 == 0 ? 60 : 2), value);
	return strlen(bytes);
}

static bool
code_is_value(uint64 code, int value)
{
	char		bytes[400];
	Size		len = bytes_of(value, bytes);
	const char *e = dictionary_element(dictionary(), code);

	if (e == NULL)
		return false;
	if (attlen > 0)
		return memcmp(e, bytes, len) == 0 &&
			*(uint32 *) pm_vector_get(&dictionary()->checks, code) == dictionary_check(bytes, len);
	if (!pm_ref_is_valid(*(PMPtr *) e))
		return false;
	e = pm_deref(*(PMPtr *) e);
	if (value_problem(attlen, *(PMPtr *) dictionary_element(dictionary(), code)) != NULL)
		return false;
	return attlen == -2 ? strcmp(e, bytes) == 0 :
		VARSIZE_ANY_EXHDR(e) == len && memcmp(VARDATA_ANY(e), bytes, len) == 0;
}

static void
op_add(void)
{
	char		bytes[400];
	Size		len;

	len = bytes_of(adding, bytes);
	server_become(1);
	epoch_enter();
	added = attlen == 2 || attlen == 4 || attlen == 8 ?
		dictionary_code_byval(shared, dict_index, bytes, attlen, pm_vector_get(&dictionary()->values, 0),
							  (uint32) Min(pm_vector_count(&dictionary()->values), 256), CODES, 0) :
		dictionary_code(shared, dict_index, bytes, len, CODES, 0);
	epoch_exit();
	check(code_is_value(added, adding));
	/*
	 * Its own row, or that of another process, is committed.  (That may find another code
	 * of the value: what a crash kept from the table is found when it is made anew.)
	 */
	if (random_below(2))
	{
		server_become(2);
		epoch_enter();
		added = dictionary_code(shared, dict_index, bytes, len, CODES, 0);
		check(code_is_value(added, adding));
		epoch_exit();
	}
	pm_drain();
	server_become(0);
}

/* What VACUUM does with values that no row uses: out of the table, freed, given out again */
static uint64 unused[CODES / 64];

static void
op_free_values(void)
{
	DictUse    *use = palloc0(offsetof(DictUse, bits) + sizeof(unused));
	uint32		n = 0;

	use->ncodes = (uint32) pm_vector_count(&dictionary()->values);
	for (uint32 code = 0; code < use->ncodes; code++)
	{
		if ((unused[code / 64] & (UINT64CONST(1) << (code % 64))) == 0)
			use->bits[code / 64] |= UINT64CONST(1) << (code % 64);
		else if (!dictionary_is_absent(dict_index, code))
			n++;
	}
	if (n > 0 && dictionary_unlink(shared, dict_index, use, n))
	{
		for (uint32 i = 0; i < dict_index->nunlinked; i++)
		{
			if (attlen < 0)
				pm_free(id, dictionary_element(dictionary(), dict_index->unlinked[i]), 1);
		}
		dictionary_give_codes(shared, dict_index, dict_index->nunlinked);
	}
	pfree(use);
}

static void
op_attach(void)
{
	dict_index = dictionary_attach(shared, dictionary(), 0);
}

static void
start_and_attach(void)
{
	server_start();
	attach();
	op_attach();
}

static bool
start_until(uint64 nth)
{
	return medium_run_until(start_and_attach, nth);
}

/* Each allocation of the store hangs on something. */
static uint64 nallocated;

static void
count_allocation(void *arg, PMPtr target, Size size, StoreId owner)
{
	if (owner == id)
		nallocated++;
}

static uint64
count_vector(const PmVector *v)
{
	uint64		n = 0;

	for (int i = 0; i < PM_VECTOR_CHUNKS; i++)
		n += v->chunks[i] != PM_NULL;
	return n;
}

static void
check_space(void)
{
	const DictionaryHeader *d = dictionary();
	uint64		n = 1 + count_vector(&header->columns) + count_vector(&d->values) + count_vector(&d->checks);

	for (PMPtr p = d->index; p != PM_NULL; p = ((DictMedia *) pm_deref(p))->older)
		n++;
	/* values, also one that was published and not counted */
	for (uint64 code = 0; attlen < 0 && code <= pm_vector_count(&d->values); code++)
	{
		const PMPtr *e = dictionary_element(d, code);

		n += e != NULL && *e != PM_NULL;
	}
	nallocated = 0;
	pm_visit_allocations(id, count_allocation, NULL);
	if (nallocated != n)
		unit_fail("the store has %d allocations, %d hang on something (%s)", (int) nallocated, (int) n,
				  medium_stopped_at());
	assert_pool_is_sound();
}

static void
check_codes(void)
{
	check(pm_vector_count(&dictionary()->values) >= codes.ncodes);
	check(dictionary_problem(header, column_get(header, 0), 0) == NULL);
	/* what sofort.verify() looks at: values that no row has, too */
	for (uint64 code = 0; attlen > 0 && code < pm_vector_count(&dictionary()->values); code++)
	{
		uint32		sum = *(uint32 *) pm_vector_get(&dictionary()->checks, code);

		if (sum != 0 && sum != dictionary_check(dictionary_element(dictionary(), code), attlen))
			unit_fail("value %d has a wrong checksum (%s)", (int) code, medium_stopped_at());
	}
	for (uint64 code = 0; code < codes.ncodes; code++)
	{
		if (codes.value_of[code] >= 0 && !code_is_value(code, codes.value_of[code]))
			unit_fail("code %d is not value %d any more (%s)", (int) code, codes.value_of[code],
					  medium_stopped_at());
	}
	check_space();
}

/* A code that came back: of this value, and nothing else's */
static void
note_code(int value, uint32 code)
{
	check(code < CODES);
	if (!code_is_value(code, value))
		unit_fail("value %d has code %d, which is another's (%s)", value, (int) code, medium_stopped_at());
	if (code < codes.ncodes && codes.value_of[code] >= 0 && codes.value_of[code] != value)
		unit_fail("code %d is value %d's and value %d's", (int) code, codes.value_of[code], value);
	for (; codes.ncodes <= code; codes.ncodes++)
		codes.value_of[codes.ncodes] = -1;
	codes.value_of[code] = value;
}

static void
choose_unused(void)
{
	memset(unused, 0, sizeof(unused));
	for (uint64 code = 0; code < codes.ncodes; code++)
	{
		if (random_below(2) == 0)
		{
			unused[code / 64] |= UINT64CONST(1) << (code % 64);
			codes.value_of[code] = -1;
		}
	}
	/* codes that nobody was told are in no row */
	for (uint64 code = codes.ncodes; code < pm_vector_count(&dictionary()->values); code++)
		unused[code / 64] |= UINT64CONST(1) << (code % 64);
}

/* One operation, cut at its nth event or not at all */
static bool
step(uint64 nth)
{
	if (random_below(12) == 0)
	{
		adding = -1;
		choose_unused();
		return medium_run_until(op_free_values, nth);
	}
	adding = (int) random_below(VALUES);
	if (!medium_run_until(op_add, nth))
		return false;
	note_code(adding, added);
	return true;
}

static void
op_create(void)
{
	NoRoom		why;

	assert_non_null(dictionary_create(header, 0, &why));
	op_attach();
}

/* Made, cut at each event of that */
static void
begin_dictionary(void)
{
	make_column(0, attlen, attlen == 2 || attlen == 4 || attlen == 8, placement);
	memset(&codes, 0, sizeof(codes));
	medium_begin();
	for (uint64 nth = 1; !medium_run_until(op_create, nth); nth++)
	{
		medium_cut((MediumSurvival) (nth % 3));
		server_start();
		attach();
		if (column_get(header, 0)->dictionary != PM_NULL)
			check(dictionary_problem(header, column_get(header, 0), 0) == NULL);
		assert_pool_is_sound();
	}
	check(dictionary_problem(header, column_get(header, 0), 0) == NULL);
}

static void
work_on_dictionary(int rounds, uint64 most_events)
{
	for (int round = 0; round < rounds; round++)
	{
		for (int k = (int) random_below(6); k > 0; k--)
			check(step(0));
		if (!step(1 + random_below(most_events)))
		{
			bool		was_adding = adding >= 0;

			do
			{
				if (random_below(3) != 0)
					medium_cut((MediumSurvival) random_below(3));
			} while (!start_until(1 + random_below(100)));
			check_codes();
			/* what a process left when it was killed is found, and relied on */
			if (was_adding && random_below(2))
			{
				check(medium_run_until(op_add, 0));
				note_code(adding, added);
				medium_cut((MediumSurvival) random_below(3));
				check(start_until(0));
				check_codes();
			}
		}
		if (random_below(4) == 0)
		{
			medium_cut((MediumSurvival) random_below(3));
			check(start_until(0));
			check_codes();
		}
	}
}

/* All kinds of values, all placements */
static void
test_dictionaries(void **state)
{
	static const int16 lengths[] = {2, 4, 8, 16, -1, -2};

	for (int k = 0; k < (int) lengthof(lengths); k++)
	{
		for (placement = DICT_DRAM; placement <= DICT_HYBRID; placement++)
		{
			attlen = lengths[k];
			assert_int_equal(begin(NULL), 0);
			begin_dictionary();
			work_on_dictionary(100, 25);
			check_codes();
			end(NULL);
		}
	}
}

/* Within a life no value has two codes, and what is at its limit says so. */
static void
test_dictionary_limits(void **state)
{
	uint32		seen[VALUES];
	char		bytes[400];

	attlen = -1;
	placement = DICT_DRAM;
	begin_dictionary();
	for (int value = 0; value < VALUES; value++)
	{
		adding = value;
		op_add();
		seen[value] = added;
		assert_int_equal(added, value);
	}
	for (int value = 0; value < VALUES; value++)
	{
		adding = value;
		op_add();
		assert_int_equal(added, seen[value]);
	}
	assert_int_equal(dictionary_code(shared, dict_index, "new", 3, VALUES, 0), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, bytes, bytes_of(9, bytes), 9, 0), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, bytes, bytes_of(9, bytes), 10, 0), 9);
	assert_int_equal(dictionary_code(shared, dict_index, "", 0, CODES, 0), VALUES);
	assert_int_equal(dictionary_code(shared, dict_index, "", 0, CODES, 0), VALUES);
}

/*
 * A new value is not added where there are fewer than three rows for each: those of
 * ended transactions and our own, or half of the places.
 */
static void
test_dictionary_crowded(void **state)
{
	int64		value;

	attlen = 8;
	placement = DICT_DRAM;
	begin_dictionary();
	for (value = 0; value < 1024; value++)
		assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), value);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 3 * 1024), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 3 * 1024 + 1), 1024);
	pg_atomic_write_u64(&shared->live, 3 * 1025 - 10);
	value++;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 10), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 11), 1025);
	/* a counter that undershot */
	pg_atomic_write_u64(&shared->live, (uint64) -10);
	value++;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 5), DICT_FULL);
	block_set_count(header, 25);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 5), 1026);
	block_set_count(header, 24);
	value++;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 5), DICT_FULL);
	block_set_count(header, 0);
	/* values that are there are found, and codes whose values were freed count no more */
	value = 7;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), 7);
	memset(unused, 0, sizeof(unused));
	unused[1] = ~UINT64CONST(0);
	op_free_values();
	value = 1027;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), 64);

	/* checksums that are not there are noticed before anybody reads them */
	for (int k = 0; k < PM_VECTOR_CHUNKS; k++)
	{
		PMPtr		chunk = dictionary()->checks.chunks[k];

		if (chunk == PM_NULL)
			continue;
		dictionary()->checks.chunks[k] = PM_NULL;
		assert_non_null(dictionary_problem(header, column_get(header, 0), 0));
		dictionary()->checks.chunks[k] = chunk;
		assert_null(dictionary_problem(header, column_get(header, 0), 0));
	}

	/* after a start nobody knows which of the codes are free: that does not make it crowded */
	start_and_attach();
	for (value = 5000; value < 5000 + 1024; value++)
		assert_int_not_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), DICT_FULL);
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), DICT_FULL);
	/* but when they have been counted it is */
	start_and_attach();
	value = 4000;
	assert_int_not_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), DICT_FULL);
	memset(unused, 0, sizeof(unused));
	unused[1] = ~UINT64CONST(0);
	op_free_values();
	value++;
	assert_int_equal(dictionary_code(shared, dict_index, &value, attlen, CODES, 0), DICT_FULL);
}

/*
 * A process is killed at each event of a replacement; what it left is found by the
 * next one, which commits a row with it; then the power fails.
 */
static void
replace_values(void)
{
	int			value = 0;
	bool		whole = false;

	begin_dictionary();
	for (uint64 nth = 1; !whole; nth++)
	{
		adding = value++;
		check(medium_run_until(op_add, 0));
		note_code(adding, added);
		memset(unused, 0, sizeof(unused));
		unused[added / 64] |= UINT64CONST(1) << (added % 64);
		codes.value_of[added] = -1;
		check(medium_run_until(op_free_values, 0));

		adding = value++;
		check(value < VALUES);
		whole = medium_run_until(op_add, nth);
		if (!whole)
		{
			check(start_until(0));
			check_codes();
			check(medium_run_until(op_add, 0));
		}
		note_code(adding, added);
		medium_cut(SURVIVES_NOTHING);
		check(start_until(0));
		check_codes();
	}
}

static void
test_replaced_values(void **state)
{
	static const int16 lengths[] = {2, 8, 16, -1};

	for (int k = 0; k < (int) lengthof(lengths); k++)
	{
		for (placement = DICT_DRAM; placement <= DICT_HYBRID; placement++)
		{
			attlen = lengths[k];
			assert_int_equal(begin(NULL), 0);
			replace_values();
			end(NULL);
		}
	}
}

/* Of fixed and of variable length, in memory and both kinds of tables in the pool */
static void
lost_workout(void)
{
	static const int16 lengths[] = {4, 4, -1};
	static const int placements[] = {DICT_DRAM, DICT_PMEM, DICT_HYBRID};

	for (int k = 0; k < (int) lengthof(lengths); k++)
	{
		medium_end();
		if (k > 0)
		{
			/* begin() throws the dice of UNIT_SEED */
			uint64		dice = random_below(PG_UINT32_MAX);

			server_end();
			(void) begin(NULL);
			seed_random(dice);
		}
		attlen = lengths[k];
		placement = placements[k];
		if (placement == DICT_DRAM)
			replace_values();
		else
		{
			begin_dictionary();
			work_on_dictionary(400, 40);
		}
	}
}

/* Of fixed length: the next process finds what a killed one has stored. */
static void
replace_workout(void)
{
	attlen = 8;
	placement = DICT_DRAM;
	replace_values();
}

/* What t/160_power_cuts.pl cannot notice (t/medium/uncaught) */
static void
test_lost_replacements(void **state)
{
	medium_lose_calls("store/dictionary.c:store_fixed:drain:1,store/dictionary.c:store_fixed:drain:2,"
					  "store/dictionary.c:store_fixed:drain:3,store/dictionary.c:store_fixed:flush:1",
					  begin, lost_workout);
	medium_lose_calls("store/dictionary.c:flush_found:flush:2", begin, replace_workout);
}

static void
test_lost_calls(void **state)
{
	/* the first t/161_lost_flushes.pl notices, the second test_lost_replacements */
	medium_lose_each_call("src/store/dictionary.c",
						  "store/dictionary.c:flush_found:flush:1,store/dictionary.c:flush_found:flush:2",
						  begin, lost_workout);
}

/* ---- headers ---- */

static void
op_empty(void)
{
	registry_empty(header);
	pm_drain();
}

#define FILLED	3000			/* chunks in several lines of the header */

static void
op_fill_vectors(void)
{
	for (int i = 0; i < 3; i++)
	{
		PmVector   *v = i == 0 ? &header->blocks : i == 1 ? &header->columns : &header->shapes;

		uint64		count = i == 0 ? 20 * FILLED : FILLED;

		for (uint64 n = 0; n < count; n += 64)
			pm_vector_reserve(v, n, id, 0);
		pm_vector_publish(v, count);
	}
	/* (counts the directory, too; one that fits its first line would be whole or not at all) */
	block_set_count(header, 20 * FILLED);
}

/* Nothing is left that later rows, or a later truncation, could take for theirs. */
static bool
is_emptied(void)
{
	bool		empty = store_block_count(header) == 0;

	for (int i = 0; i < 3; i++)
	{
		const PmVector *v = i == 0 ? &header->blocks : i == 1 ? &header->columns : &header->shapes;

		empty &= pm_vector_count(v) == 0;
		for (int chunk = 0; chunk < PM_VECTOR_CHUNKS; chunk++)
			empty &= v->chunks[chunk] == PM_NULL;
	}
	return empty;
}

static uint64
truncate_and_cut(int rounds)
{
	uint64		cuts = 0;

	header->tid_check = tid_check(&header->tid_rows);
	pm_persist(header, sizeof(StoreHeader));
	for (int round = 0; round < rounds; round++)
	{
		for (uint64 nth = 1;; nth++)
		{
			bool		done;

			medium_begin();
			check(medium_run_until(op_fill_vectors, 0));
			check(store_header_problem(header) == NULL);
			done = medium_run_until(op_empty, nth);
			check(store_header_problem(header) == NULL);
			cuts++;
			medium_cut(SURVIVES_SOMETHING);
			server_start();
			attach();
			if (store_header_problem(header) != NULL)
				unit_fail("%s (%s)", store_header_problem(header), medium_stopped_at());
			if (done)
				check(is_emptied());

			/* as it is dropped */
			check(medium_run_until(op_empty, 0));
			nallocated = 0;
			pm_visit_allocations(id, count_allocation, NULL);
			check(nallocated == 0);
			assert_pool_is_sound();
			if (done)
				break;
		}
	}
	return cuts;
}

/* A store is truncated in place: whatever a cut leaves of its header is no damage. */
static void
test_truncation(void **state)
{
	assert_true(truncate_and_cut(60) > 300);
}

static void
truncation_workout(void)
{
	medium_end();
	(void) truncate_and_cut(20);
}

static void
test_lost_truncation(void **state)
{
	medium_lose_calls("store/registry.c:forget_chunks:flush:1,store/registry.c:registry_empty:drain:1,"
					  "store/registry.c:registry_empty:drain:2,"
					  "store/registry.c:registry_empty:flush:1,store/registry.c:registry_empty:flush:2,"
					  "store/registry.c:registry_empty:flush:3,"
					  "store/registry.c:registry_empty:flush:4",
					  begin, truncation_workout);
}

/* ---- columns of blocks ---- */

#define ROWS	SOFORT_BLOCK_ROWS

static struct StoreLocal local;
static ShapePlan *plan;
static BlockHeader *block;
static char *column;			/* where the column begins */

/* A block with one column, whose values lie side by side */
static void
make_block(int kind, uint32 stride, uint32 width, int16 len, int capacity)
{
	static ShapePlan *plans[1];
	static char memory[sizeof(ShapePlan) + sizeof(AttrPlan) + sizeof(ShapeReader) + sizeof(ShapeAttr)];
	PmReservation r;
	Size		size = sizeof(BlockHeader) + ROWS * (Size) stride + ROWS * 24;

	if (*link_at(1) != PM_NULL)
		pm_free(id, link_at(1), 1);
	pm_reserve(&r, id, size, link_at(1), 1, PM_RESERVE_ZERO);
	block = r.addr;
	block->magic = SOFORT_BLOCK_MAGIC;
	block->capacity = (uint16) capacity;
	block->store = id;
	block->crc = block_crc(block);
	block->head_check = block_head_check(block);
	pm_publish(&r);
	pm_vector_reserve(&header->blocks, 0, id, 0);
	*(PMPtr *) pm_vector_get(&header->blocks, 0) = *link_at(1);
	block_set_count(header, 1);
	column = (char *) (block + 1);

	memset(memory, 0, sizeof(memory));
	plan = (ShapePlan *) memory;
	plan->plan = (AttrPlan *) (plan + 1);
	plan->reader = (ShapeReader *) (plan->plan + 1);
	plan->natts = 1;
	plan->record_offset = (uint32) (sizeof(BlockHeader) + ROWS * stride);
	plan->record_stride = 24;
	plan->plan[0].kind = (uint8) kind;
	plan->null_offset = 16;
	plan->plan[0].null_mask = 1;
	plan->plan[0].offset = sizeof(BlockHeader);
	plan->plan[0].stride = stride;
	plan->reader->attr[0].attlen = len;
	plan->reader->attr[0].byval = len > 0;
	plan->reader->attr[0].width = (uint8) width;
	plans[0] = plan;
	local.plans = plans;
	local.nplans = 1;
	desc.local = &local;
}

static Datum
decoded(int row, bool *isnull)
{
	RowRef		ref = {.row = row,.block = block,.index = row,
	.words = (RowWords *) ((char *) block + plan->record_offset + (Size) row * plan->record_stride)};
	Datum		value;

	store_decode_one(&desc, &ref, 0, &value, isnull);
	return value;
}

static int64
decoded_int(int row, int16 len)
{
	bool		isnull;
	Datum		d = decoded(row, &isnull);

	check(!isnull);
	return len == 2 ? DatumGetInt16(d) : len == 4 ? DatumGetInt32(d) : DatumGetInt64(d);
}

/* Numbers around borders, and others */
static int64
random_number(void)
{
	static const int64 border[] = {0, 1, -1, 127, 128, 255, 256, PG_INT16_MAX, PG_INT16_MIN, PG_UINT16_MAX,
		PG_INT32_MAX, PG_INT32_MIN, PG_UINT32_MAX, PG_INT64_MAX, PG_INT64_MIN};
	int64		n = border[random_below(lengthof(border))];

	switch (random_below(3))
	{
		case 0:
			return n;
		case 1:
			return (int64) ((uint64) n + random_below(5) - 2);
		default:
			return (int64) random_below(600) - 300;
	}
}

/* The loop over the column says what looking at each row says. */
static void
compare_match(int64 low, int64 high, int16 len, int capacity)
{
	StoreMatch	m = {.att = 0,.low = low,.high = high};
	uint8		match[ROWS];
	uint8		before[ROWS];

	for (int i = 0; i < ROWS; i++)
		before[i] = match[i] = (uint8) (random_below(8) != 0);
	assert_int_equal(store_match_column(&desc, 0, &m, match), capacity);
	for (int i = 0; i < capacity; i++)
	{
		int64		v = decoded_int(i, len);

		if (match[i] != (before[i] && v >= low && v <= high))
			fail_msg("row %d of %d: %d, is %d for " INT64_FORMAT " in " INT64_FORMAT " .. " INT64_FORMAT,
					 i, capacity, plan->plan[0].kind, match[i], v, low, high);
	}
	for (int i = capacity; i < ROWS; i++)
		assert_int_equal(match[i], before[i]);
	store_match_free(&m);
}

/* Smallest and largest, where no value is NULL */
static void
compare_extremes(int16 len, int capacity)
{
	int64		min = decoded_int(0, len);
	int64		max = min;
	int64		low;
	int64		high;

	assert_int_equal(store_column_extremes(&desc, 0, 0, &low, &high), -1);
	for (int i = 1; i < capacity; i++)
	{
		min = Min(min, decoded_int(i, len));
		max = Max(max, decoded_int(i, len));
	}
	plan->plan[0].null_mask = 0;
	assert_int_equal(store_column_extremes(&desc, 0, 0, &low, &high), capacity);
	plan->plan[0].null_mask = 1;
	assert_true(low == min && high == max);
}

static void
compare_matches(int16 len, int capacity)
{
	compare_extremes(len, capacity);
	for (int i = 0; i < 40; i++)
	{
		int64		a = random_number();
		int64		b = random_number();

		compare_match(Min(a, b), Max(a, b), len, capacity);
		compare_match(a, a, len, capacity);
	}
	compare_match(PG_INT64_MIN, PG_INT64_MAX, len, capacity);
	compare_match(5, 4, len, capacity);
	for (int i = 0; i < 20; i++)
	{
		int64		v = decoded_int((int) random_below(capacity), len);

		compare_match(v, v, len, capacity);
	}
}

/* Beside each other, or in rows */
static const int in_rows[] = {0, 24};

/* Values as they are, of 2, 4 and 8 bytes, and the low 4 of 8 */
static void
compare_plain_column(int kind, int width, int stride, int16 len, int capacity)
{
	int64		number[ROWS];

	make_block(kind, stride, width, len, capacity);
	for (int i = 0; i < capacity; i++)
	{
		number[i] = random_number();
		memcpy(column + i * stride, &number[i], width);
		if (kind == ATTR_NARROW)
			number[i] = (uint32) number[i];
		else if (len < 8)
			number[i] = len == 2 ? (int16) number[i] : (int32) number[i];
	}
	for (int i = 0; i < capacity; i++)
		assert_true(decoded_int(i, len) == number[i]);
	compare_matches(len, capacity);
}

static void
test_plain_columns(void **state)
{
	static const struct
	{
		int			kind;
		int			width;
		int16		len;
	}			kinds[] = {{ATTR_BYVAL2, 2, 2}, {ATTR_BYVAL4, 4, 4}, {ATTR_BYVAL8, 8, 8}, {ATTR_NARROW, 4, 8}};

	for (int k = 0; k < (int) lengthof(kinds); k++)
	{
		for (int rows = 0; rows < (int) lengthof(in_rows); rows++)
			for (int capacity = 8; capacity <= ROWS; capacity *= 2)
				compare_plain_column(kinds[k].kind, kinds[k].width, Max(in_rows[rows], kinds[k].width),
									 kinds[k].len, capacity);
	}
}

/* Codes of one, two and four bytes for values of 2, 4 and 8 */
static void
compare_code_column(const int64 *value_of, int nvalues, int width, int stride, int capacity)
{
	uint32		code[ROWS];

	make_block(width == 1 && attlen == 4 ? ATTR_CODE1_4 : width == 1 && attlen == 2 ? ATTR_CODE1_2 : ATTR_CODE,
			   stride, width, attlen, capacity);
	plan->plan[0].dictionary = dictionary();
	plan->plan[0].values = dictionary_element(dictionary(), 0);
	plan->plan[0].chunk0 = (uint32) Min(256, nvalues);
	for (int i = 0; i < capacity; i++)
	{
		code[i] = i < 2 ? (uint32) nvalues - 1 : (uint32) random_below(nvalues);
		memcpy(column + i * stride, &code[i], width);
	}
	for (int i = 0; i < capacity; i++)
		assert_true(decoded_int(i, attlen) == value_of[code[i]]);
	if (width <= 2)
		compare_matches(attlen, capacity);
}

static void
test_code_columns(void **state)
{
	static const int16 lengths[] = {2, 4, 8};
	static const int nvalues[] = {1, 2, 255, 256, 257, 3000};

	for (int k = 0; k < (int) lengthof(lengths); k++)
	{
		for (int n = 0; n < (int) lengthof(nvalues); n++)
		{
			int64		value_of[3000] = {0};

			assert_int_equal(begin(NULL), 0);
			attlen = lengths[k];
			placement = DICT_DRAM;
			begin_dictionary();
			for (int i = 0; i < nvalues[n]; i++)
			{
				/* distinct, some at the borders */
				value_of[i] = (int64) i - 5 + (i % 3 == 0 ? PG_INT16_MIN + 5 : 0);
				if (i == 1)
					value_of[i] = attlen == 2 ? PG_INT16_MAX : attlen == 4 ? PG_INT32_MAX : PG_INT64_MAX;
				epoch_enter();
				assert_int_equal(dictionary_code(shared, dict_index, &value_of[i], attlen, CODES,
												 3 * lengthof(value_of)), i);
				epoch_exit();
			}
			for (int width = nvalues[n] <= 256 ? 1 : 2; width <= 4; width *= 2)
			{
				for (int rows = 0; rows < (int) lengthof(in_rows); rows++)
					for (int capacity = 8; capacity <= ROWS; capacity *= 2)
						compare_code_column(value_of, nvalues[n], width, Max(in_rows[rows], width), capacity);
			}
			end(NULL);
		}
	}
	assert_int_equal(begin(NULL), 0);
}

/* A code that the dictionary does not have, and NULL */
static void
test_wrong_code(void **state)
{
	bool		isnull;

	attlen = 4;
	placement = DICT_DRAM;
	begin_dictionary();
	adding = 3;
	op_add();
	make_block(ATTR_CODE, 2, 2, 4, 8);
	plan->plan[0].dictionary = dictionary();
	plan->plan[0].values = dictionary_element(dictionary(), 0);
	plan->plan[0].chunk0 = 1;
	*(uint16 *) column = 60000;
	assert_true(RAISES((void) decoded(0, &isnull)));
	assert_int_equal(server_sqlstate(), ERRCODE_DATA_CORRUPTED);
	*((char *) block + plan->record_offset + 16) = 1;
	(void) decoded(0, &isnull);
	assert_true(isnull);
	block->capacity ^= 1;
	assert_true(RAISES((void) store_block(&desc, 0)));
	assert_int_equal(server_sqlstate(), ERRCODE_DATA_CORRUPTED);
}

/* Texts that lie in the rows */
static void
test_image_columns(void **state)
{
	for (int capacity = 8; capacity <= ROWS; capacity *= 2)
	{
		make_block(ATTR_INLINE, 12, 12, -1, capacity);
		plan->reader->attr[0].byval = false;
		for (int i = 0; i < capacity; i++)
		{
			int			len = (int) random_below(4);

			SET_VARSIZE_SHORT(column + i * 12, len + 1);
			for (int k = 0; k < len; k++)
				column[i * 12 + 1 + k] = (char) ('a' + random_below(2));
		}
		for (int round = 0; round < 60; round++)
		{
			char		image[20];
			StoreMatch	m = {.att = 0,.image = image};
			uint8		match[ROWS];
			int			len = (int) random_below(round == 0 ? 1 : 5);

			SET_VARSIZE_SHORT(image, len + 1);
			for (int k = 0; k < len; k++)
				image[1 + k] = (char) ('a' + random_below(2));
			m.image_len = len + 1;
			memset(match, 1, sizeof(match));
			assert_int_equal(store_match_column(&desc, 0, &m, match), capacity);
			for (int i = 0; i < capacity; i++)
			{
				const char *p = column + i * 12;

				assert_int_equal(match[i], VARSIZE_1B(p) == m.image_len && memcmp(p, image, m.image_len) == 0);
			}
		}
	}
}

/* ---- rows ---- */

/* Any single bit of a row's fields changes its check. */
static void
test_row_check(void **state)
{
	for (int round = 0; round < 20; round++)
	{
		uint32		offset[2] = {0, 0};
		uint32		stride[2] = {0, 0};
		RowRef		ref = {0};
		uint64		sum;

		make_block(ATTR_BYVAL4, 1 + (uint32) random_below(12), 4, 4, ROWS);
		for (int i = 0; i < 4096; i++)
			column[i] = (char) random_below(256);
		plan->record_stride = 24 + 8 * (uint32) random_below(4);
		plan->nminipages = 1;
		plan->mini_offset = offset;
		plan->mini_stride = stride;
		offset[0] = sizeof(BlockHeader);
		stride[0] = plan->plan[0].stride;
		ref.block = block;
		ref.index = (uint32) random_below(20);
		ref.words = (RowWords *) ((char *) block + plan->record_offset + (Size) ref.index * plan->record_stride);
		sum = row_check(plan, &ref);
		for (uint32 i = sizeof(RowWords) * 8; i < plan->record_stride * 8; i++)
		{
			((char *) ref.words)[i / 8] ^= (char) (1 << (i % 8));
			assert_true(row_check(plan, &ref) != sum);
			((char *) ref.words)[i / 8] ^= (char) (1 << (i % 8));
		}
		for (uint32 i = 0; i < stride[0] * 8; i++)
		{
			char	   *p = (char *) block + offset[0] + ref.index * stride[0] + i / 8;

			*p ^= (char) (1 << (i % 8));
			assert_true(row_check(plan, &ref) != sum);
			*p ^= (char) (1 << (i % 8));
		}
		assert_true(row_check(plan, &ref) == sum);
	}
}

/* Numbers of rows and their ids, blocks of all capacities: one to one, in order */
static void
test_row_numbers(void **state)
{
	uint64		last = 0;
	uint64		ordinal = 0;

	for (uint64 b = 0; b < 12; b++)
	{
		assert_int_equal(block_capacity(b), b < 5 ? 8 << b : 256);
		for (uint64 i = 0; i < block_capacity(b); i++)
		{
			uint64		row = b * SOFORT_BLOCK_ROWS + i;

			assert_int_equal(row_to_ordinal(row), ordinal);
			assert_int_equal(row_from_ordinal(ordinal), row);
			assert_true(ordinal == 0 || row > last);
			last = row;
			ordinal++;
		}
	}
}

/* TIDs as small tables, and tables with a fillfactor, number them */
static void
test_tids(void **state)
{
	static const struct
	{
		uint16		rows;
		uint16		first;
		uint16		fill;
	}			schemes[] = {{256, 1, 0}, {226, 2, 0}, {100, 3, 0}, {157, 2, 0}, {50, 5, 0}, {31, 8, 0}, {185, 1, 90}, {20, 1, 2}};

	for (int k = 0; k < (int) lengthof(schemes); k++)
	{
		ItemPointerData tid;
		uint64		last = 0;

		header->tid_rows = schemes[k].rows;
		header->tid_first = schemes[k].first;
		header->tid_fill = schemes[k].fill;
		/* as tid.c decides: the rows of the small blocks fill the first ones */
		if (schemes[k].fill == 0)
			header->tid_first = (STORE_SMALL_ROWS + schemes[k].rows - 1) / schemes[k].rows;
		for (uint64 ordinal = 0; ordinal < 3000; ordinal++)
		{
			uint64		row = row_from_ordinal(ordinal);

			row_to_tid(&desc, row, &tid);
			assert_true(row_tid_is_valid(&tid));
			assert_int_equal(row_from_tid(&desc, &tid), row);
			assert_true(ordinal == 0 || position_from_tid(&tid) > last);
			last = position_from_tid(&tid);
		}
	}
}

/* The word that tid.c stores */
static uint64
numbering(uint16 rows, uint16 first, uint16 fill)
{
	uint16		fields[4] = {rows, first, fill, 0};
	uint64		word;

	fields[3] = tid_check(fields);
	memcpy(&word, fields, sizeof(word));
	return word;
}

/* Who opens a table while another process adds its first row finds no damage */
static void
test_numbering_changes(void **state)
{
	const uint64 words[] = {0, numbering(226, 2, 0), numbering(20, 13, 2)};
	StoreHeader *copy = mmap(NULL, sizeof(StoreHeader), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *problem = NULL;
	pid_t		pid;

	assert_true(copy != MAP_FAILED);
	*copy = *header;
	if ((pid = fork()) == 0)
		for (int i = 0;; i++)
			*(volatile uint64 *) &copy->tid_rows = words[i % (int) lengthof(words)];
	assert_true(pid > 0);
	for (int i = 0; i < 2000000 && problem == NULL; i++)
		problem = store_header_problem(copy);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	munmap(copy, sizeof(StoreHeader));
	assert_null(problem);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dictionaries),
		cmocka_unit_test(test_replaced_values),
		cmocka_unit_test_setup_teardown(test_dictionary_limits, begin, end),
		cmocka_unit_test(test_lost_replacements),
		cmocka_unit_test_setup_teardown(test_dictionary_crowded, begin, end),
		cmocka_unit_test(test_lost_calls),
		cmocka_unit_test_setup_teardown(test_truncation, begin, end),
		cmocka_unit_test(test_lost_truncation),
		cmocka_unit_test_setup_teardown(test_plain_columns, begin, end),
		cmocka_unit_test_teardown(test_code_columns, end),
		cmocka_unit_test_setup_teardown(test_wrong_code, begin, end),
		cmocka_unit_test_setup_teardown(test_image_columns, begin, end),
		cmocka_unit_test_setup_teardown(test_row_check, begin, end),
		cmocka_unit_test_setup_teardown(test_row_numbers, begin, end),
		cmocka_unit_test_setup_teardown(test_tids, begin, end),
		cmocka_unit_test_setup_teardown(test_numbering_changes, begin, end),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
