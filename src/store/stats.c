/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counters and column descriptions for views and the planner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"
#include "sofort/store/store_internal.h"

#define SAMPLE_BLOCKS	32

/* Counts of this transaction, for the store that was counted last. */
static StoreShared *pending_store = NULL;
static int64 pending_live = 0;
static int64 pending_dead = 0;

static void
add_to(pg_atomic_uint64 *counter, int64 n)
{
	if (n != 0)
		pg_atomic_fetch_add_u64(counter, n);
}

void
stats_end_of_xact(void)
{
	if (pending_store == NULL)
		return;
	add_to(&pending_store->live, pending_live);
	add_to(&pending_store->dead, pending_dead);
	pending_store = NULL;
	pending_live = pending_dead = 0;
}

void
stats_count(StoreShared *shared, int64 live, int64 dead)
{
	if (pending_store != shared)
		stats_end_of_xact();
	pending_store = shared;
	pending_live += live;
	pending_dead += dead;
}

/* The store is being dropped. */
void
stats_forget(StoreShared *shared)
{
	if (pending_store == shared)
	{
		pending_store = NULL;
		pending_live = pending_dead = 0;
	}
}

static inline bool
is_dead(const RowWords *words)
{
	return WORD_TAG(word_read(&words->begin)) == WORD_TAG_ABORTED ||
		WORD_TAG(word_read(&words->end)) == WORD_TAG_STAMP;
}

/* A dead root that leads to a living version is one that VACUUM does not free. */
static bool
leads_to_living(const StoreHeader *header, const RowRef *ref)
{
	uint64		link = link_read_quietly(ref->block, ref->index);
	RowRef		newest;

	return (word_read(&ref->words->begin) & BEGIN_HEAP_ONLY) == 0 &&
		LINK_IS_SET(link) && header_locate(header, LINK_ROW(link), &newest) &&
		WORD_TAG(word_read(&newest.words->begin)) != WORD_TAG_EMPTY && !is_dead(newest.words);
}

/*
 * First estimate of a server life, from some blocks spread over the store. crashed: what
 * PostgreSQL knew of dead rows is lost, and so are the rings of garbage.c.
 */
void
stats_init(StoreShared *shared, bool crashed)
{
	const StoreHeader *header = shared->header;
	uint64		n = store_block_count(header);
	uint64		step = Max(n / SAMPLE_BLOCKS, 1);
	uint64		looked = 0;
	uint64		live = 0;
	uint64		dead = 0;
	uint64		left = 0;		/* of these, what VACUUM would free */
	uint64		settled = 0;	/* in an earlier life, with replaced roots */
	uint64		rows = 0;
	uint64		b;

	for (b = 0; b < n; b++)
		rows += block_capacity(b);
	for (b = 0; b < n; b += step)
	{
		RowRef		ref;
		uint32		i;

		for (i = 0; i < block_capacity(b); i++)
		{
			looked++;
			if (!header_locate(header, b * SOFORT_BLOCK_ROWS + i, &ref) ||
				WORD_TAG(word_read(&ref.words->begin)) == WORD_TAG_EMPTY)
				continue;
			settled += b + 1 == n ||
				mark_says_settled(word_read(&ref.block->settled[SETTLED_WORD(i)]), i);
			if (!is_dead(ref.words))
				live++;
			else
			{
				dead++;
				if (crashed && !leads_to_living(header, &ref))
					left++;
			}
		}
	}
	if (looked > 0)
	{
		pg_atomic_write_u64(&shared->live, live * rows / looked);
		pg_atomic_write_u64(&shared->dead, dead * rows / looked);
		pg_atomic_write_u64(&shared->settled, settled * rows / looked);
		pg_atomic_write_u64(&shared->unreported, left * rows / looked);
	}
}

/*
 * Tells autovacuum, once, what was dead when the server had crashed.  Else it would come for
 * what is dead since then alone, and a table would grow by a little with each crash.
 */
void
stats_report_left(Relation rel, StoreShared *shared)
{
	uint64		n;

	if (likely(pg_atomic_read_u64(&shared->unreported) == 0))
		return;
	n = pg_atomic_exchange_u64(&shared->unreported, 0);
	pgstat_update_heap_dead_tuples(rel, -(int) Min(n, (uint64) INT_MAX));
}

static void
add_allocation(void *arg, PMPtr target, Size size, StoreId owner)
{
	*(uint64 *) arg += size;
}

typedef struct OwnerBytes
{
	StoreId		owner;			/* key */
	uint64		bytes;
} OwnerBytes;

static void
add_to_owner(void *arg, PMPtr target, Size size, StoreId owner)
{
	bool		found;
	OwnerBytes *entry = hash_search(arg, &owner, HASH_ENTER, &found);

	entry->bytes = (found ? entry->bytes : 0) + size;
}

HTAB *
store_bytes_of_all(MemoryContext context)
{
	HASHCTL		control = {.keysize = sizeof(StoreId),.entrysize = sizeof(OwnerBytes),.hcxt = context};
	HTAB	   *all = hash_create("sofort bytes of stores", 1024, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

	pm_visit_allocations(~UINT64CONST(0), add_to_owner, all);
	return all;
}

static uint64
bytes_of(StoreId id, HTAB *all)
{
	uint64		bytes = 0;

	if (all != NULL)
	{
		const OwnerBytes *entry = hash_search(all, &id, HASH_FIND, NULL);

		return entry == NULL ? 0 : entry->bytes;
	}
	pm_visit_allocations(id, add_allocation, &bytes);
	return bytes;
}

/* A counter that undershot (it is an estimate) reads as 0. */
static uint64
read_counter(pg_atomic_uint64 *counter)
{
	int64		n = (int64) pg_atomic_read_u64(counter);

	return n < 0 ? 0 : (uint64) n;
}

void
store_stats(StoreHeader *header, HTAB *all, StoreStats *stats)
{
	StoreNode  *node = registry_find_id(store_id_of(header));
	StoreShared *shared = node == NULL ? NULL : registry_attach(node);

	memset(stats, 0, sizeof(StoreStats));
	stats->nblocks = (BlockNumber) store_block_count(header);
	stats->bytes_pool = pm_allocated_size(pm_ptr(header)) + bytes_of(store_id_of(header), all);
	if (shared == NULL)
		return;
	stats->live = read_counter(&shared->live);
	stats->dead = read_counter(&shared->dead);
	stats->bytes_dram = read_counter(&shared->bytes_dram);
}

void
store_row_counts(StoreDesc *store, uint64 *live, uint64 *dead)
{
	*live = read_counter(&store->shared->live);
	*dead = read_counter(&store->shared->dead);
}

void
store_note_settled(StoreDesc *store, uint64 rows)
{
	pg_atomic_write_u64(&store->shared->settled, rows);
}

uint64
store_settled_rows(StoreDesc *store)
{
	return pg_atomic_read_u64(&store->shared->settled);
}

/* ---- columns ---- */

static const char *
reason_for(const ShapeHeader *s, const ShapeColumn *c, const ColumnHeader *column)
{
	if (c->flags & SHAPE_UNDECIDED)
		return "decided when about 1,000 rows have values";
	switch (c->encoding)
	{
		case ENCODING_DICTIONARY:
			return "few distinct values, and the code is narrower";
		case ENCODING_INLINE:
			return s->capacity == 0 ? "the declared type is short" :
				"short values that hardly repeat";
		case ENCODING_NARROW:
			return "small numbers that hardly repeat";
		case ENCODING_REFERENCE:
			return s->capacity == 0 ? "length not known yet" :
				"long values that hardly repeat, or some of more than 1 kB";
		default:
			if (column->attlen == 1)
				return "one byte";
			return s->capacity == 0 ? "decided when there are about 1,000 rows" :
				"values hardly repeat";
	}
}

/* Freed values have no pointer; those of fixed length still count. */
static uint64
dictionary_bytes(const DictionaryHeader *d, uint64 *entries)
{
	uint64		bytes = pm_allocated_size(pm_ptr(d)) +
		(d->index == PM_NULL ? 0 : pm_allocated_size(d->index));
	int			k;
	uint64		code;

	*entries = pm_vector_count(&d->values);
	for (k = 0; k < PM_VECTOR_CHUNKS; k++)
		if (d->values.chunks[k] != PM_NULL)
			bytes += pm_allocated_size(d->values.chunks[k]);
	for (k = 0; k < PM_VECTOR_CHUNKS; k++)
		if (d->checks.chunks[k] != PM_NULL)
			bytes += pm_allocated_size(d->checks.chunks[k]);
	for (code = 0; d->attlen < 0 && code < pm_vector_count(&d->values); code++)
	{
		PMPtr		p = *(PMPtr *) dictionary_element(d, code);

		if (p == PM_NULL)
			(*entries)--;
		else
			bytes += pm_allocated_size(p);
	}
	return bytes;
}

void
store_visit_columns(StoreHeader *header, StoreColumnVisitor fn, void *arg)
{
	ShapeHeader *s = pm_vector_count(&header->shapes) == 0 ? NULL :
		shape_get(header, (uint32) pm_vector_count(&header->shapes) - 1);
	uint64		i;

	for (i = 0; i < pm_vector_count(&header->columns); i++)
	{
		const ColumnHeader *c = column_get(header, i);
		StoreColumnInfo info = {.attnum = c->attnum, .type_oid = c->type_oid,
		.encoding = encoding_name(ENCODING_ABSENT), .reason = "no row was stored yet"};
		const ShapeColumn *in_shape = s != NULL ? shape_column(s, (int64) i) : NULL;

		if (c->state != COLUMN_LIVE)
			continue;
		if (in_shape != NULL)
		{
			info.encoding = encoding_name(in_shape->encoding);
			info.width = in_shape->width;
			info.reason = reason_for(s, in_shape, c);
		}
		if (c->dictionary != PM_NULL)
		{
			const DictionaryHeader *d = pm_deref(c->dictionary);

			info.dictionary_bytes = dictionary_bytes(d, &info.dictionary_entries);
			info.placement = dictionary_placement_name(dictionary_placement_of(d));
		}
		fn(arg, &info);
	}
}
