/*-------------------------------------------------------------------------
 *
 * dictionary.c
 *	  Dictionaries: code -> value; the index value -> code is in dict_table.c.
 *
 * Equal means: the same detoasted bytes.  A value is durable and counted before its
 * code can be found, and adding it is never undone; VACUUM frees values that no row
 * uses (dict_vacuum.c).  NULL is never in a dictionary.
 *
 * Look-ups take no lock: a slot of the hash table is set by one 8-byte store after the
 * value is there; a table that has become too small is replaced, and freed when every
 * process has left the epoch in which it was current.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "dict_table.h"

/* A dictionary of fewer values is never crowded. */
#define CROWD_MIN		1024
#define CROWD_ROWS		3		/* for each value */

int			sofort_dictionary_placement = DICT_DRAM;

void *
dictionary_element(const DictionaryHeader *d, uint64 code)
{
	return pm_vector_get(&d->values, code);
}

/*
 * Makes the dictionary of a column.  Structure lock held.  One that exists already (from a
 * shape that was never published) is used.  NULL if the pool has no room.
 */
DictionaryHeader *
dictionary_create(StoreHeader *header, uint64 column, NoRoom *why)
{
	ColumnHeader *c = column_get(header, column);
	DictionaryHeader *d;

	if (c->dictionary == PM_NULL)
	{
		PmReservation r;
		uint32		elem = c->attlen > 0 ? (uint32) c->attlen : (uint32) sizeof(PMPtr);

		why->size = sizeof(DictionaryHeader);
		why->result = pm_try_reserve(&r, store_id_of(header), sizeof(DictionaryHeader),
									 &c->dictionary, 1, STORE_METADATA | PM_RESERVE_ZERO);
		if (why->result != 0)
			return NULL;
		d = r.addr;
		d->store = store_id_of(header);
		d->column = (uint32) column;
		d->generation = 1;
		d->attlen = c->attlen;
		d->attalign = c->attalign;
		d->attbyval = c->attbyval;
		d->crc = dictionary_crc(d);
		/* noted, so that a rewrite of the table keeps it (in one line with the link) */
		if (c->dict_placement == 0)
			c->dict_placement = COLUMN_PLACEMENT(sofort_dictionary_placement);
		d->placement = PM_CODE32(c->dict_placement / COLUMN_PLACEMENT(0) - 1);
		pm_vector_init(&d->checks, sizeof(uint32), 64);
		pm_vector_init(&d->values, elem, elem <= 8 ? 256 : 32);
		pm_flush(d, sizeof(DictionaryHeader));
		pm_publish(&r);
	}
	d = pm_deref(c->dictionary);
	/* plans hold the address of the first chunk */
	why->result = pm_vector_try_reserve(&d->values, 0, store_id_of(header), STORE_METADATA,
										&why->size);
	return why->result == 0 ? d : NULL;
}

/* ---- looking up ---- */

static bool
element_equals(const DictionaryHeader *d, uint64 code, const void *bytes, Size len)
{
	const char *e = dictionary_element(d, code);

	if (d->attlen > 0)
		return memcmp(e, bytes, len) == 0;
	if (*(const PMPtr *) e == PM_NULL)
		return false;
	e = value_deref(d->attlen, *(const PMPtr *) e);
	if (d->attlen == -2)
		return strlen(e) == len && memcmp(e, bytes, len) == 0;
	return VARSIZE_ANY_EXHDR(e) == len && memcmp(VARDATA_ANY(e), bytes, len) == 0;
}

/*
 * Code + 1, or 0.  (A code that is not below the count is damaged: its value is not known,
 * as if a crash had lost the slot.)
 */
static inline uint32
probe(const DictTable *t, const DictionaryHeader *d, uint64 hash, const void *bytes, Size len)
{
	uint64		i = hash & t->mask;
	int			steps;

	dict_table_miss(t);
	for (steps = 0; steps < DICT_MOST_STEPS; steps++)
	{
		uint64		slot = word_read(&t->slot[i]);
		uint64		code = (slot & 0xffffffff) - 1;

		if (slot == 0)
			break;
		if ((slot >> 32) == (hash >> 32) && code < pm_vector_count(&d->values) &&
			element_equals(d, code, bytes, len))
			return (uint32) slot;
		i = (i + 1) & t->mask;
	}
	return 0;
}

/* In both tables of an index */
static inline uint32
look_up(const DictIndex *index, uint64 hash, const void *bytes, Size len)
{
	const DictTable *t = __atomic_load_n(&index->table, __ATOMIC_ACQUIRE);
	const DictTable *delta = __atomic_load_n(&index->delta, __ATOMIC_ACQUIRE);
	uint32		found = probe(t, index->dictionary, hash, bytes, len);

	if (found == 0 && delta != NULL)
		found = probe(delta, index->dictionary, hash, bytes, len);
	return found;
}

/* ---- codes that are not in the table ---- */

/* Dictionary lock held, or the caller is the VACUUM that changes it. */
bool
dictionary_is_absent(const DictIndex *index, uint32 code)
{
	return code < index->nabsent_bits &&
		(index->absent[code / 64] & (UINT64CONST(1) << (code % 64))) != 0;
}

static void
set_absent(DictIndex *index, uint32 code, bool absent)
{
	uint64		mask = UINT64CONST(1) << (code % 64);

	if (absent)
		index->absent[code / 64] |= mask;
	else
		index->absent[code / 64] &= ~mask;
}

/* Enlarges an array in the arena; false if there is no memory. */
static bool
enlarge_array(StoreShared *shared, void **array, Size old, Size new)
{
	void	   *p;

	if (new <= old)
		return true;
	p = arena_alloc(new, ARENA_ZERO | ARENA_NO_OOM);
	if (p == NULL)
		return false;
	if (*array != NULL)
	{
		memcpy(p, *array, old);
		arena_free(*array);
	}
	pg_atomic_fetch_add_u64(&shared->bytes_dram, new - old);
	*array = p;
	return true;
}

/* Makes room for the absent bits of all codes. */
static bool
prepare_absent(StoreShared *shared, DictIndex *index)
{
	uint32		n = TYPEALIGN(64, pm_vector_count(&index->dictionary->values));

	if (!enlarge_array(shared, (void **) &index->absent, index->nabsent_bits / 8, n / 8))
		return false;
	index->nabsent_bits = Max(index->nabsent_bits, n);
	return true;
}

static int
compare_descending(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Makes room for n more codes in the list of free ones */
static bool
prepare_free(StoreShared *shared, DictIndex *index, uint32 n)
{
	uint32		size = Max(index->nfree_size, index->nfree + n);

	if (!enlarge_array(shared, (void **) &index->free, index->nfree_size * sizeof(uint32),
					   size * sizeof(uint32)))
		return false;
	index->nfree_size = size;
	return true;
}

/*
 * VACUUM: moves unused codes from the table to a list.  False, and nothing has changed, if
 * there is no memory.
 */
bool
dictionary_unlink(StoreShared *shared, DictIndex *index, const DictUse *use, uint32 nunused)
{
	LWLock	   *lock = dictionary_lock(index->dictionary);
	uint32		first = index->nunlinked;
	uint32		i;
	uint32		code;

	if (!enlarge_array(shared, (void **) &index->unlinked, index->unlinked_size * sizeof(uint32),
					   (first + nunused) * sizeof(uint32)))
		return false;
	index->unlinked_size = Max(index->unlinked_size, first + nunused);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (!prepare_absent(shared, index))
	{
		LWLockRelease(lock);
		return false;
	}
	for (code = 0; code < use->ncodes && index->nunlinked < first + nunused; code++)
	{
		if (dictionary_code_is_used(use, code) || dictionary_is_absent(index, code))
			continue;
		index->unlinked[index->nunlinked++] = code;
		set_absent(index, code, true);
	}
	if (!dict_tables_make(shared, index, dictionary_placement_of(index->dictionary),
						  pm_vector_count(&index->dictionary->values), ARENA_NO_OOM))
	{
		for (i = first; i < index->nunlinked; i++)
			set_absent(index, index->unlinked[i], false);
		index->nunlinked = first;
	}
	LWLockRelease(lock);
	return index->nunlinked > first;
}

/* VACUUM: the first n of the unlinked codes may be given out again. */
void
dictionary_give_codes(StoreShared *shared, DictIndex *index, uint32 n)
{
	LWLock	   *lock = dictionary_lock(index->dictionary);
	uint32		kept = index->nunlinked - n;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	/* without memory for the list they are lost until the next start */
	if (prepare_free(shared, index, n))
	{
		memcpy(index->free + index->nfree, index->unlinked, n * sizeof(uint32));
		index->nfree += n;
		qsort(index->free, index->nfree, sizeof(uint32), compare_descending);
	}
	LWLockRelease(lock);
	memmove(index->unlinked, index->unlinked + n, kept * sizeof(uint32));
	index->nunlinked = kept;
	index->uncounted = 0;
}

/*
 * Does the code have no value?  Freed values of variable length have no pointer.  Freed
 * ones of fixed length cannot be told from others, except one whose replacement was cut
 * short by a crash: no row has that.
 */
bool
dictionary_code_is_void(const DictionaryHeader *d, uint64 code)
{
	if (d->attlen > 0)
		return *(const uint32 *) pm_vector_get(&d->checks, code) == 0;
	return *(const PMPtr *) dictionary_element(d, code) == PM_NULL;
}

/*
 * After a start: finds codes without a value, which can be given out.  (Freed values of
 * fixed length are in the table again when that is rebuilt.)  Dictionary lock held.  False
 * if there is no memory.
 */
bool
dictionary_find_absent(StoreShared *shared, DictIndex *index)
{
	const DictionaryHeader *d = index->dictionary;
	uint32		nabsent = 0;
	uint32		code;
	bool		listed;

	if (index->absent_known)
		return true;
	for (code = 0; code < pm_vector_count(&d->values); code++)
		nabsent += dictionary_code_is_void(d, code);
	if (nabsent > 0 && !prepare_absent(shared, index))
		return false;
	index->absent_known = true;
	if (d->attlen < 0)
		index->uncounted = 0;
	if (nabsent == 0)
		return true;
	Assert(index->nfree == 0);
	listed = prepare_free(shared, index, nabsent);
	for (code = pm_vector_count(&d->values); code-- > 0;)
	{
		if (!dictionary_code_is_void(d, code))
			continue;
		set_absent(index, code, true);
		if (listed)
			index->free[index->nfree++] = code; /* descending, as it must be */
	}
	return true;
}

void
dictionary_free_index(DictIndex *index)
{
	dict_tables_free_retired(index, true);
	if (index->table != NULL)
		arena_free(index->table);
	if (index->delta != NULL)
		arena_free(index->delta);
	if (index->absent != NULL)
		arena_free(index->absent);
	if (index->free != NULL)
		arena_free(index->free);
	if (index->unlinked != NULL)
		arena_free(index->unlinked);
	if (index->use != NULL)
		arena_free(index->use);
	if (index->retired_use != NULL)
		arena_free(index->retired_use);
	arena_free(index);
}

/* Structure lock held; NULL: not yet. */
DictIndex *
dictionary_index_of(StoreShared *shared, const DictionaryHeader *dictionary)
{
	DictIndex  *index;

	for (index = shared->dictionaries; index != NULL; index = index->next)
		if (index->dictionary == dictionary)
			break;
	return index;
}

/*
 * Was the value of this code freed, or may it be?  Then the code can get another value,
 * whatever it reads as now.  (A value that is not known here yet is not freed while the
 * caller keeps VACUUM away.)
 */
bool
dictionary_value_may_go(StoreShared *shared, const DictionaryHeader *dictionary, uint32 code)
{
	LWLock	   *lock = dictionary_lock(dictionary);
	DictIndex  *index;
	bool		result;

	if (code >= pm_vector_count(&dictionary->values))
		return false;			/* damaged: decoding it will raise the error */
	LWLockAcquire(structure_lock(shared->id), LW_SHARED);
	index = dictionary_index_of(shared, dictionary);
	LWLockRelease(structure_lock(shared->id));
	LWLockAcquire(lock, LW_SHARED);
	result = dictionary_code_is_void(dictionary, code) ||
		(index != NULL && dictionary_is_absent(index, code));
	LWLockRelease(lock);
	return result;
}

static bool
dictionary_is_indexed(StoreShared *shared, const DictionaryHeader *dictionary)
{
	DictIndex  *index;
	bool		result;

	LWLockAcquire(structure_lock(shared->id), LW_SHARED);
	index = dictionary_index_of(shared, dictionary);
	result = index != NULL && index->table != NULL;
	LWLockRelease(structure_lock(shared->id));
	return result;
}

/*
 * Flushes the count, and the checks of values that were replaced: a killed process may have
 * stored them without a drain, and rows will rely on them.  (A value is durable before its
 * check is stored.)
 */
static void
flush_found(DictionaryHeader *d)
{
	uint64		n = d->attlen > 0 ? pm_vector_count(&d->values) : 0;
	uint64		code;
	uint64		step;

	pm_flush(d, sizeof(DictionaryHeader));
	for (code = 0; code < n; code += step)
	{
		uint64		within;
		int			chunk = pm_vector_chunk(&d->checks, code, &within);

		step = Min(pm_vector_chunk_elems(&d->checks, chunk) - within, n - code);
		pm_flush(pm_vector_get(&d->checks, code), step * sizeof(uint32));
	}
	pm_drain();
}

/*
 * Makes the tables of a dictionary that nobody has used since the start.  Dictionary lock
 * held.
 */
static void
make_tables(StoreShared *shared, DictIndex *index, int flags)
{
	DictionaryHeader *d = index->dictionary;

	flush_found(d);
	/* (an earlier attempt that found no room may have counted) */
	if (!index->absent_known)
		index->uncounted = pm_vector_count(&d->values);
	if (dict_tables_open(shared, index, flags))
		return;
	if (dictionary_find_absent(shared, index))
		(void) dict_tables_make(shared, index, dictionary_placement_of(d),
								pm_vector_count(&d->values), flags);
	else if ((flags & ARENA_NO_OOM) == 0)
		arena_raise_full(0);
}

/*
 * The index of a dictionary; made, and after a restart built, at first use.  NULL: there
 * is no room for it, in the arena or in the pool, and flags has ARENA_NO_OOM.
 */
DictIndex *
dictionary_attach(StoreShared *shared, DictionaryHeader *dictionary, int flags)
{
	LWLock	   *lock = dictionary_lock(dictionary);
	DictIndex  *index;

	LWLockAcquire(structure_lock(shared->id), LW_EXCLUSIVE);
	index = dictionary_index_of(shared, dictionary);
	if (index == NULL && (index = arena_alloc(sizeof(DictIndex), ARENA_ZERO | flags)) != NULL)
	{
		index->dictionary = dictionary;
		index->next = shared->dictionaries;
		/* for dictionary_first() */
		__atomic_store_n(&shared->dictionaries, index, __ATOMIC_RELEASE);
		pg_atomic_fetch_add_u64(&shared->bytes_dram, sizeof(DictIndex));
	}
	LWLockRelease(structure_lock(shared->id));
	if (index == NULL)
		return NULL;
	if (index->table == NULL)
	{
		LWLockAcquire(lock, LW_EXCLUSIVE);
		if (index->table == NULL)
			make_tables(shared, index, flags);
		LWLockRelease(lock);
		SOFORT_STOP("dictionary-attached");
	}
	return index->table == NULL ? NULL : index;
}

int
store_build_dictionaries(StoreDesc *store, uint64 values)
{
	const StoreHeader *header = store->header;
	int			n = 0;

	for (uint64 i = 0; i < pm_vector_count(&header->columns); i++)
	{
		PMPtr		p = column_get(header, i)->dictionary;
		DictionaryHeader *d = p == PM_NULL ? NULL : pm_deref(p);

		if (d == NULL || pm_vector_count(&d->values) < values || dictionary_is_indexed(store->shared, d))
			continue;
		(void) dictionary_attach(store->shared, d, 0);
		n++;
		SOFORT_STOP("dictionary-built");
	}
	return n;
}

/* ---- adding ---- */

/*
 * Are there too few rows for so many values?  Then the values hardly repeat, and no new one
 * is added.  Live rows are those of ended transactions and own_rows, which this one has
 * reserved; but at least half of the places for rows, because others may be loading, too.
 * Nor is a value added once hashes collide: such values are chosen on purpose, and hold up
 * everybody who shares the lock.
 */
bool
dictionary_is_crowded(StoreShared *shared, const DictIndex *index, uint64 own_rows)
{
	/* no lock: a value more or less does not matter */
	int64		values = (int64) pm_vector_count(&index->dictionary->values) - index->nfree -
		(int64) index->uncounted;
	int64		live = (int64) pg_atomic_read_u64(&shared->live) + (int64) own_rows;
	int64		places = (int64) store_block_count(shared->header) * SOFORT_BLOCK_ROWS;

	return index->collides ||
		(values >= CROWD_MIN && values * CROWD_ROWS >= Max(live, places / 2));
}

/*
 * Stores a value of fixed length and its check.  While it replaces another value the check
 * is 0: if power fails then, the code has no value.
 */
static void
store_fixed(DictionaryHeader *d, uint64 code, void *element, const void *bytes, Size len)
{
	uint32	   *check;

	pm_vector_reserve(&d->checks, code, d->store, STORE_METADATA);
	check = pm_vector_get(&d->checks, code);
	if (*check != 0)
	{
		*check = 0;
		pm_persist(check, sizeof(uint32));
	}
	memcpy(element, bytes, len);
	pm_persist(element, len);
	*check = dictionary_check(bytes, len);
	pm_persist(check, sizeof(uint32));
}

static void
store_element(DictionaryHeader *d, uint64 code, const void *bytes, Size len)
{
	PMPtr	   *slot;
	PmReservation r;
	bool		brief = len <= VARATT_SHORT_MAX - VARHDRSZ_SHORT;

	pm_vector_reserve(&d->values, code, d->store, STORE_METADATA);
	slot = dictionary_element(d, code);
	if (d->attlen > 0)
	{
		store_fixed(d, code, slot, bytes, len);
		return;
	}
	/* left over from a crash between publishing and counting */
	if (*slot != PM_NULL)
		pm_free(d->store, slot, 1);
	pm_reserve(&r, d->store, len + VARHDRSZ + STORE_VALUE_CRC, slot, 1, 0);
	if (d->attlen == -2)
	{
		memcpy(r.addr, bytes, len);
		((char *) r.addr)[len] = '\0';
	}
	else if (brief)
	{
		SET_VARSIZE_SHORT(r.addr, len + VARHDRSZ_SHORT);
		memcpy((char *) r.addr + VARHDRSZ_SHORT, bytes, len);
	}
	else
	{
		SET_VARSIZE(r.addr, len + VARHDRSZ);
		memcpy((char *) r.addr + VARHDRSZ, bytes, len);
	}
	value_put_crc(r.addr, value_length(d->attlen, r.addr));
	pm_flush(r.addr, len + VARHDRSZ + STORE_VALUE_CRC);
	pm_publish(&r);
}

static uint32
add_value(StoreShared *shared, DictIndex *index, uint64 hash, const void *bytes, Size len,
		  uint64 limit)
{
	DictionaryHeader *d = index->dictionary;
	LWLock	   *lock = dictionary_lock(d);
	uint32		found;
	uint64		code;
	bool		again;			/* a code whose value was freed */

	LWLockAcquire(lock, LW_EXCLUSIVE);
	found = look_up(index, hash, bytes, len);
	if (found != 0)
	{
		LWLockRelease(lock);
		return found - 1 < limit ? found - 1 : DICT_FULL;
	}
	again = index->nfree > 0 && index->free[index->nfree - 1] < limit;
	code = again ? index->free[index->nfree - 1] : pm_vector_count(&d->values);
	if (code >= limit)
	{
		LWLockRelease(lock);
		return DICT_FULL;
	}
	if (!dict_tables_make_room(shared, index, hash, code))
	{
		index->collides = true;
		LWLockRelease(lock);
		return DICT_FULL;
	}
	store_element(d, code, bytes, len);
	if (again)
	{
		index->nfree--;
		set_absent(index, code, false);
	}
	else
		pm_vector_publish(&d->values, code + 1);
	index->longest = Max(index->longest, (uint32) len);
	SOFORT_STOP("dictionary-value-durable");
	dict_tables_enter(index, hash, code);
	LWLockRelease(lock);
	SOFORT_STOP("dictionary-value-entered");
	return (uint32) code;
}

/*
 * Code of a value, which is added if it is new.  DICT_FULL if it is new and its code would
 * not be below limit, or there are too many values (own_rows: see dictionary_is_crowded()).
 * The caller is inside an epoch, and shows the code to readers only in its own row.
 */
uint32
dictionary_code(StoreShared *shared, DictIndex *index, const void *bytes, Size len, uint64 limit,
				uint64 own_rows)
{
	uint64		hash = dict_hash(bytes, len);
	uint32		found = look_up(index, hash, bytes, len);

	if (likely(found != 0))
		return found - 1 < limit ? found - 1 : DICT_FULL;
	if (dictionary_is_crowded(shared, index, own_rows))
		return DICT_FULL;
	return add_value(shared, index, hash, bytes, len, limit);
}

/* The first 2, 4 or 8 bytes, as memcpy() into a zero. */
static inline uint64
load_bytes(const void *p, int len)
{
	uint64		h = 0;

	if (len == 2)
		memcpy(&h, p, 2);
	else if (len == 4)
		memcpy(&h, p, 4);
	else
		memcpy(&h, p, 8);
	return h;
}

/*
 * The same for a type passed by value, of 2, 4 or 8 bytes: the hot path of
 * loading.  values: the first chunk, which has n elements (so there are at most n
 * slots to walk past).
 */
uint32
dictionary_code_byval(StoreShared *shared, DictIndex *index, const void *bytes, int len,
					  const char *values, uint32 n, uint64 limit, uint64 own_rows)
{
	uint64		raw = load_bytes(bytes, len);
	uint64		hash = dict_mix(raw);
	const DictTable *t = __atomic_load_n(&index->table, __ATOMIC_ACQUIRE);
	uint64		i = hash & t->mask;

	for (;; i = (i + 1) & t->mask)
	{
		uint64		slot = word_read(&t->slot[i]);
		uint32		code = (uint32) slot - 1;

		if (slot == 0 || code >= n)
			break;
		if ((slot >> 32) == (hash >> 32) && load_bytes(values + (Size) code * len, len) == raw &&
			code < pm_vector_count(&index->dictionary->values))
		{
			dict_table_miss(t);
			return code < limit ? code : DICT_FULL;
		}
	}
	return dictionary_code(shared, index, bytes, len, limit, own_rows);
}
