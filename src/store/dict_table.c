/*-------------------------------------------------------------------------
 *
 * dict_table.c
 *	  Hash tables of dictionaries, in DRAM and in the pool (store/README.md,
 *	  "Indexes of dictionaries").
 *
 * A table changes only by filling empty slots.  One that is too small, or has codes
 * that must go, is replaced by a new one.  In the pool that is one store of 8 bytes, to
 * DictionaryHeader.index; the new table refers to the old one until no process can be
 * reading that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "dict_table.h"

#define DICT_MIN_SLOTS	64

/* ---- memory ---- */

static Size
media_size(uint64 slots)
{
	return offsetof(DictMedia, slot) + slots * sizeof(uint64);
}

static Size
table_bytes(const DictTable *t)
{
	return sizeof(DictTable) + (t->media != NULL ? 0 : (t->mask + 1) * sizeof(uint64));
}

static uint64
slots_for(uint64 values)
{
	uint64		slots = DICT_MIN_SLOTS;

	while (slots < values * 2)
		slots *= 2;
	return slots;
}

/* NULL: the arena is full. */
static DictTable *
make_in_dram(uint64 slots)
{
	DictTable  *t = arena_alloc(sizeof(DictTable) + slots * sizeof(uint64),
								ARENA_ZERO | ARENA_NO_OOM);

	if (t == NULL)
		return NULL;
	t->mask = slots - 1;
	t->slot = (uint64 *) (t + 1);
	return t;
}

/*
 * A table in the pool, reserved, not published.  NULL: the arena is full, or, if *full, the
 * pool.
 */
static DictTable *
make_in_pool(DictionaryHeader *d, uint64 slots, PmReservation *r, int *full)
{
	DictTable  *t = arena_alloc(sizeof(DictTable), ARENA_ZERO | ARENA_NO_OOM);
	Size		size = media_size(slots);

	if (t == NULL)
		return NULL;
	*full = pm_try_reserve(r, d->store, size, &d->index, 1, STORE_METADATA);
	if (*full != 0)
	{
		arena_free(t);
		return NULL;
	}
	t->media = r->addr;
	memset(t->media, 0, size);
	t->media->magic = SOFORT_DICT_MAGIC;
	t->media->mask = slots - 1;
	t->media->older = d->index;
	t->mask = slots - 1;
	t->slot = t->media->slot;
	return t;
}

/*
 * Frees the tables that the link leads to, the oldest first: nothing is lost if a crash
 * cuts that short.
 */
static void
free_chain(StoreId owner, PMPtr *link)
{
	while (*link != PM_NULL)
	{
		PMPtr	   *last = link;

		while (((DictMedia *) pm_deref(*last))->older != PM_NULL)
			last = &((DictMedia *) pm_deref(*last))->older;
		if (!pm_free(owner, last, 1))
			break;
	}
}

/* Frees a table that was replaced, and those that it had replaced. */
static void
free_in_pool(DictionaryHeader *d, const DictMedia *media)
{
	PMPtr	   *link = &d->index;

	while (*link != PM_NULL && pm_deref(*link) != media)
		link = &((DictMedia *) pm_deref(*link))->older;
	free_chain(d->store, link);
}

void
dict_tables_free_retired(DictIndex *index, bool all)
{
	DictTable **p = &index->retired;

	while (*p != NULL)
	{
		DictTable  *t = *p;

		if (!all && !epoch_passed(t->retired_epoch))
		{
			p = &t->retired_next;
			continue;
		}
		*p = t->retired_next;
		/* all: the store is being dropped, with what it has in the pool */
		if (t->media != NULL && !all)
			free_in_pool(index->dictionary, t->media);
		arena_free(t);
	}
}

/* ---- contents ---- */

/* An empty slot for this hash; NULL: none is near enough. */
static inline uint64 *
empty_slot(const DictTable *t, uint64 hash)
{
	uint64		i = hash & t->mask;
	int			steps;

	for (steps = 0; steps < DICT_MOST_STEPS; steps++)
	{
		if (t->slot[i] == 0)
			return &t->slot[i];
		i = (i + 1) & t->mask;
	}
	return NULL;
}

static inline void
put_slot(DictTable *t, uint64 *slot, uint64 hash, uint64 code)
{
	__atomic_store_n(slot, (hash & ~UINT64CONST(0xffffffff)) | (code + 1), __ATOMIC_RELEASE);
	t->used++;
}

/* False: the code has no value. */
bool
dictionary_hash_of(const DictionaryHeader *d, uint64 code, uint64 *hash)
{
	const void *e = dictionary_element(d, code);

	if (dictionary_code_is_void(d, code))
		return false;
	if (d->attlen > 0)
	{
		*hash = dict_hash(e, d->attlen);
		return true;
	}
	/* (a damaged length would lead through the pool, and back to before the value) */
	e = value_deref(d->attlen, *(const PMPtr *) e);
	*hash = d->attlen == -2 ? dict_hash(e, strlen(e)) :
		dict_hash(VARDATA_ANY(e), VARSIZE_ANY_EXHDR(e));
	return true;
}

/*
 * Enters the values from this code on that are not absent.  One that finds no place is left
 * out: rows that have it read it by its code.
 */
static void
fill(DictTable *t, DictIndex *index, uint64 code)
{
	const DictionaryHeader *d = index->dictionary;
	uint64		hash;

	for (; code < pm_vector_count(&d->values); code++)
	{
		uint64	   *slot;

		if (dictionary_is_absent(index, code) || !dictionary_hash_of(d, code, &hash))
			continue;
		slot = empty_slot(t, hash);
		if (slot != NULL)
			put_slot(t, slot, hash, code);
		else
			index->collides = true;
	}
}

/* The same for a new table.  An error (a value is damaged) frees it, and the one beside it. */
static void
fill_new(DictTable *t, DictTable *beside, DictIndex *index, uint64 code)
{
	PG_TRY();
	{
		fill(t, index, code);
	}
	PG_CATCH();
	{
		arena_free(t);
		if (beside != NULL)
			arena_free(beside);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* ---- replacing ---- */

static void
replace(StoreShared *shared, DictIndex *index, DictTable *volatile *where, DictTable *t)
{
	DictTable  *old = *where;

	if (t != NULL)
		pg_atomic_fetch_add_u64(&shared->bytes_dram, table_bytes(t));
	__atomic_store_n(where, t, __ATOMIC_RELEASE);
	if (old == NULL)
		return;
	pg_atomic_fetch_sub_u64(&shared->bytes_dram, table_bytes(old));
	old->retired_epoch = epoch_advance();
	old->retired_next = index->retired;
	index->retired = old;
}

bool
dict_tables_make(StoreShared *shared, DictIndex *index, DictPlacement placement, uint64 values,
				 int flags)
{
	DictionaryHeader *d = index->dictionary;
	uint64		slots = slots_for(values);
	PmReservation r;
	DictTable  *delta = NULL;
	DictTable  *t = NULL;
	int			full = 0;

	dict_tables_free_retired(index, false);
	if (placement == DICT_HYBRID)
		delta = make_in_dram(DICT_MIN_SLOTS);
	if (placement == DICT_DRAM)
		t = make_in_dram(slots);
	else if (placement == DICT_PMEM || delta != NULL)
		t = make_in_pool(d, slots, &r, &full);
	if (t == NULL)
	{
		if (delta != NULL)
			arena_free(delta);
		if (flags & ARENA_NO_OOM)
			return false;
		if (full != 0)
			pm_raise_full(full, media_size(slots));
		arena_raise_full(0);
	}
	fill_new(t, delta, index, 0);
	if (placement != DICT_DRAM)
	{
		t->media->covered = pm_vector_count(&d->values);
		t->media->crc = dict_media_crc(t->media);
		pm_flush(t->media, media_size(t->mask + 1));
		SOFORT_STOP("dictionary-index-filled");
		pm_publish(&r);
		SOFORT_STOP("dictionary-index-linked");
	}
	/*
	 * a process that looks into one table before this and into the other after it looks
	 * again, locked
	 */
	replace(shared, index, &index->table, t);
	replace(shared, index, &index->delta, delta);
	return true;
}

/* Makes the table of the values that the one in the pool does not cover (hybrid). */
static void
make_delta(StoreShared *shared, DictIndex *index, uint64 slots)
{
	DictTable  *delta = make_in_dram(slots);

	if (delta == NULL)
		arena_raise_full(0);
	fill_new(delta, NULL, index, index->table->media->covered);
	replace(shared, index, &index->delta, delta);
}

bool
dict_tables_open(StoreShared *shared, DictIndex *index, int flags)
{
	DictionaryHeader *d = index->dictionary;
	DictMedia  *media;
	DictTable  *t;

	if (d->index == PM_NULL)
		return false;
	if (dictionary_placement_of(d) == DICT_DRAM)
	{
		/* a change of the placement was not finished */
		free_chain(d->store, &d->index);
		return false;
	}
	media = pm_deref(d->index);
	if (dict_media_problem(d) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("index of a dictionary is damaged in the sofort pool"),
				 errhint("Run sofort.verify() for the table.")));
	free_chain(d->store, &media->older);
	t = arena_alloc(sizeof(DictTable), ARENA_ZERO | flags);
	if (t == NULL)
		return true;
	t->media = media;
	t->mask = media->mask;
	t->slot = media->slot;
	/* at most: a code has one slot */
	t->used = dictionary_placement_of(d) == DICT_HYBRID ? media->covered : pm_vector_count(&d->values);
	if (dictionary_placement_of(d) == DICT_HYBRID)
	{
		DictTable  *delta = make_in_dram(slots_for(pm_vector_count(&d->values) - media->covered));

		if (delta == NULL)
		{
			arena_free(t);
			if (flags & ARENA_NO_OOM)
				return true;
			arena_raise_full(0);
		}
		fill_new(delta, t, index, media->covered);
		replace(shared, index, &index->delta, delta);
	}
	replace(shared, index, &index->table, t);
	return true;
}

/* ---- adding ---- */

static inline DictTable *
table_of(const DictIndex *index, uint64 code)
{
	return index->delta != NULL && code >= index->table->media->covered ?
		index->delta : index->table;
}

static inline bool
is_full(const DictTable *t)
{
	return t->used * 4 >= (t->mask + 1) * 3;
}

static void
enlarge_table(StoreShared *shared, DictIndex *index, uint64 code)
{
	DictionaryHeader *d = index->dictionary;

	if (table_of(index, code) == index->delta &&
		index->delta->used < Max(DICT_MIN_SLOTS, index->table->media->covered / 4))
		make_delta(shared, index, (index->delta->mask + 1) * 2);
	else
		(void) dict_tables_make(shared, index, dictionary_placement_of(d),
								Max(pm_vector_count(&d->values), index->table->used * 2), 0);
}

bool
dict_tables_make_room(StoreShared *shared, DictIndex *index, uint64 hash, uint64 code)
{
	if (index->retired != NULL)
		dict_tables_free_retired(index, false);
	if (is_full(table_of(index, code)))
		enlarge_table(shared, index, code);
	return empty_slot(table_of(index, code), hash) != NULL;
}

/*
 * In the pool the slot is flushed and not drained.  A value whose slot is lost gets another
 * code; the rows that have the old one still read it.
 */
void
dict_tables_enter(DictIndex *index, uint64 hash, uint64 code)
{
	DictTable  *t = table_of(index, code);
	uint64	   *slot = empty_slot(t, hash);

	Assert(slot != NULL);
	put_slot(t, slot, hash, code);
	if (t->media != NULL)
	{
		pm_flush(slot, sizeof(uint64));
		/* the table may be freed when the lock is released */
		pm_start_writeback();
	}
}

/* ---- placement ---- */

const char *
dictionary_placement_name(DictPlacement placement)
{
	switch (placement)
	{
		case DICT_DRAM:
			return "dram";
		case DICT_PMEM:
			return "pmem";
		case DICT_HYBRID:
			return "hybrid";
	}
	return "unknown";
}

static void
dictionary_place(StoreShared *shared, DictionaryHeader *d, DictPlacement placement)
{
	DictIndex  *index = dictionary_attach(shared, d, 0);
	LWLock	   *lock = dictionary_lock(d);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (dictionary_placement_of(d) != placement)
	{
		(void) dict_tables_make(shared, index, placement, pm_vector_count(&d->values), 0);
		SOFORT_STOP("dictionary-index-moved");
		/* a crash before this: the next start uses what the old placement needs */
		*(volatile uint32 *) &d->placement = PM_CODE32(placement);
		pm_persist(&d->placement, sizeof(d->placement));
	}
	LWLockRelease(lock);
}

/*
 * A dictionary that is being made concurrently either sees the column's new placement, or
 * is seen here.
 */
bool
store_place_dictionary(StoreDesc *store, Form_pg_attribute att, DictPlacement placement)
{
	int			i = column_find(store->header, att);
	ColumnHeader *c;
	PMPtr		dictionary;

	if (i < 0)
		return false;
	c = column_get(store->header, i);
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	c->dict_placement = COLUMN_PLACEMENT(placement);
	pm_persist(&c->dict_placement, 1);
	dictionary = c->dictionary;
	LWLockRelease(structure_lock(store->id));
	if (dictionary != PM_NULL)
		dictionary_place(store->shared, pm_deref(dictionary), placement);
	return true;
}

/*
 * Flushes the placements that are found at the first use of a store in this life: a killed
 * session may have set them and not drained, and they must be durable before anybody sees
 * them.  Structure lock held.
 */
void
dict_flush_found_placements(const StoreHeader *header)
{
	bool		any = false;

	if (pm_found_is_durable())
		return;
	for (uint64 i = 0; i < pm_vector_count(&header->columns); i++)
	{
		const ColumnHeader *c = column_get(header, i);
		const DictionaryHeader *d;

		if (c->dict_placement == 0)
			continue;			/* nor has it a dictionary */
		any = true;
		pm_flush(&c->dict_placement, 1);
		d = c->dictionary == PM_NULL ? NULL : pm_deref_quietly(c->dictionary);
		if (d != NULL)
			pm_flush(&d->placement, sizeof(d->placement));
	}
	if (any)
		pm_drain();
}

/*
 * Gives the columns of a store that nobody knows yet the placements of another one.
 * Flushed; the commit that makes it known drains.
 */
void
store_inherit_placements(const RelFileLocator *from, const RelFileLocator *to)
{
	const StoreHeader *source = store_find(from);
	StoreHeader *target = store_find(to);
	uint64		i;
	uint64		k;

	if (source == NULL || target == NULL)
		return;
	for (i = 0; i < pm_vector_count(&target->columns); i++)
	{
		ColumnHeader *c = column_get(target, i);

		for (k = 0; k < pm_vector_count(&source->columns); k++)
		{
			const ColumnHeader *other = column_get(source, k);

			if (other->state == COLUMN_LIVE && other->attnum == c->attnum)
				c->dict_placement = other->dict_placement;
		}
		pm_flush(&c->dict_placement, 1);
	}
}
