/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Structural check of a store.
 *
 * Other sessions may write meanwhile: a problem is reported only if nothing changed
 * while it was looked at a second time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"
#include "sofort/txn/visibility.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct Verify
{
	const StoreHeader *header;
	StoreDesc  *store;
	StoreReport report;
	void	   *arg;
	uint64		xmin;			/* of the snapshot: keeps versions that were ended since */
} Verify;

static void complain(const Verify *v, const char *kind, const char *place, const char *fmt,...)
			pg_attribute_printf(4, 5);

static void
complain(const Verify *v, const char *kind, const char *place, const char *fmt,...)
{
	char		problem[256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(problem, sizeof(problem), fmt, args);
	va_end(args);
	v->report(v->arg, kind, place, problem);
}

/* Does the reference lead to an allocation that can hold this much? */
static bool
is_allocated(PMPtr p, Size size)
{
	return pm_allocated_size(p) >= size;
}

/* ---- header: also of a store that cannot be opened ---- */

static void
verify_element(const Verify *v, const char *place, const DictionaryHeader *d, uint64 code)
{
	const void *e = dictionary_element(d, code);
	const char *problem = NULL;

	if (d->attlen > 0)
	{
		uint32		check = *(const uint32 *) pm_vector_get(&d->checks, code);

		/*
		 * 0: its replacement was cut short by a power failure.  No row has it; if one does,
		 * that is reported.
		 */
		if (check != 0 && check != dictionary_check(e, d->attlen))
			problem = "has a wrong checksum";
	}
	else if (*(const PMPtr *) e != PM_NULL)
		problem = value_problem(d->attlen, *(const PMPtr *) e);
	if (problem != NULL)
		complain(v, "dictionary", place, "value " UINT64_FORMAT " %s", code, problem);
}

/*
 * Each slot must stand for a value that exists.  (Not every value need have a slot: a crash
 * may lose one, and those of unused values are taken out.)
 */
static void
verify_slot(const Verify *v, const char *place, const DictionaryHeader *d, uint64 slot)
{
	uint64		code = (slot & PG_UINT32_MAX) - 1;
	uint64		hash;

	if (code >= pm_vector_count(&d->values))
		complain(v, "dictionary", place, "its index has code " UINT64_FORMAT, code);
	else if (d->attlen <= 0 && *(PMPtr *) dictionary_element(d, code) != PM_NULL &&
			 value_problem(d->attlen, *(PMPtr *) dictionary_element(d, code)) != NULL)
		return;					/* told already */
	else if (!dictionary_hash_of(d, code, &hash))
		complain(v, "dictionary", place, "its index has code " UINT64_FORMAT ", whose value is gone",
				 code);
	else if ((hash >> 32) != (slot >> 32))
		complain(v, "dictionary", place, "code " UINT64_FORMAT " is at another value's place in its index",
				 code);
}

static void
verify_dictionary_index(const Verify *v, const char *place, const DictionaryHeader *d)
{
	const char *problem = dict_media_problem(d);
	const DictMedia *media;
	uint64		used = 0;
	uint64		i;

	if (problem != NULL)
	{
		complain(v, "dictionary", place, "%s", problem);
		return;
	}
	media = pm_deref(d->index);
	/* (with placement dram: what a change of the placement has left) */
	for (i = 0; i <= media->mask; i++)
	{
		uint64		slot = word_read(&media->slot[i]);

		if (slot == 0)
			continue;
		used++;
		if (dictionary_placement_of(d) != DICT_DRAM)
			verify_slot(v, place, d, slot);
	}
	if (used > media->mask)
		complain(v, "dictionary", place, "its index is full");
}

static void
verify_dictionary(const Verify *v, const char *place, const DictionaryHeader *d)
{
	const char *problem = pm_vector_problem(&d->values, d->values.elem_size);
	uint64		n = pm_vector_count(&d->values);
	uint64		code;

	if (problem == NULL && d->attlen > 0)
		problem = n > 0 && pm_vector_get(&d->checks, n - 1) == NULL ? "checksums are not there" :
			pm_vector_problem(&d->checks, sizeof(uint32));
	if (problem != NULL)
	{
		complain(v, "dictionary", place, "%s", problem);
		return;
	}
	for (code = 0; code < n; code++)
	{
		if (code % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		verify_element(v, place, d, code);
	}
	if (d->index != PM_NULL)
		verify_dictionary_index(v, place, d);
}

static void
verify_columns(const Verify *v)
{
	const StoreHeader *h = v->header;
	uint64		i;

	for (i = 0; i < pm_vector_count(&h->columns); i++)
	{
		const ColumnHeader *c = column_get(h, i);
		const char *problem = column_problem(c);
		char		place[64];

		snprintf(place, sizeof(place), "column " UINT64_FORMAT, i);
		if (problem == NULL && c->dictionary != PM_NULL)
			problem = is_allocated(c->dictionary, sizeof(DictionaryHeader)) ?
				dictionary_problem(h, c, i) : "dictionary is not allocated";
		if (problem != NULL)
			complain(v, "column", place, "%s", problem);
		else if (c->dictionary != PM_NULL)
			verify_dictionary(v, place, pm_deref(c->dictionary));
	}
}

static void
verify_shapes(const Verify *v)
{
	const StoreHeader *h = v->header;
	uint64		i;

	for (i = 0; i < pm_vector_count(&h->shapes); i++)
	{
		const PMPtr *p = pm_vector_get(&h->shapes, i);
		const char *problem = !is_allocated(*p, sizeof(ShapeHeader)) ? "is not allocated" :
			shape_problem(h, pm_deref(*p), i);
		char		place[64];

		snprintf(place, sizeof(place), "shape " UINT64_FORMAT, i);
		if (problem != NULL)
			complain(v, "shape", place, "%s", problem);
	}
}

/*
 * Header, columns with their dictionaries, shapes of the store of a relation,
 * whether or not it can be opened.  True if it can.
 */
bool
store_verify_metadata(Relation rel, StoreReport report, void *arg)
{
	StoreNode  *node = registry_find_locator(relation_locator(rel));
	Verify		v = {.report = report, .arg = arg};
	const char *problem;
	char		any[128];

	if (node == NULL)
	{
		complain(&v, "store", "header", "the pool holds no data for this relation");
		return false;
	}
	v.header = node->header;
	problem = store_header_problem(v.header);
	if (problem == NULL)
		problem = pm_vector_problem(&v.header->blocks, sizeof(PMPtr));
	if (problem == NULL)
		problem = pm_vector_problem(&v.header->columns, sizeof(ColumnHeader));
	if (problem == NULL)
		problem = pm_vector_problem(&v.header->shapes, sizeof(PMPtr));
	if (problem != NULL)
	{
		complain(&v, "store", "header", "%s", problem);
		return false;
	}
	verify_columns(&v);
	verify_shapes(&v);
	return !store_node_problem(node, any, sizeof(any));
}

/* ---- rows ---- */

static void
verify_word(const Verify *v, const char *place, const char *name, const uint64 *where, uint64 word,
			bool begin)
{
	int			tag = WORD_TAG(word);
	const char *problem = word_problem(word, begin);

	if (problem != NULL)
		complain(v, "row", place, "%s word " UINT64_FORMAT ": %s", name, word, problem);
	else if (tag == WORD_TAG_STAMP && WORD_XID(word) >= txn_next_fxid())
		complain(v, "row", place, "%s word names a transaction of the future", name);
	else if (tag == WORD_TAG_PROGRESS && !TransactionIdIsValid(txn_word_xid(word)) &&
			 word_read(where) == word)
		complain(v, "row", place, "%s word names a transaction that has ended", name);
}

static void
verify_link(const Verify *v, const char *place, const char *name, const uint64 *slot)
{
	uint64		link = slot == NULL ? 0 : word_read(slot);

	if (link != 0 && !LINK_IS_RIGHT(link))
		complain(v, "chain", place, "%s is damaged", name);
}

static void
verify_values(const Verify *v, const char *place, const RowRef *ref)
{
	const ShapePlan *plan = plan_get(v->store, ref->block->shape);
	uint64		begin = word_read(&ref->words->begin);
	int			i;

	if (row_check(plan, ref) != (begin & BEGIN_CHECK_MASK) >> BEGIN_CHECK_SHIFT)
		complain(v, "row", place, "fields do not have the checksum of the row");
	for (i = 0; i < plan->natts; i++)
	{
		const ShapeAttr *a = &plan->reader->attr[i];
		const char *p = (const char *) ref->block + a->offset + (Size) ref->index * a->stride;

		if (a->encoding == ENCODING_ABSENT ||
			attr_is_null(plan, &plan->plan[i], ref))
			continue;
		if (a->encoding == ENCODING_DICTIONARY)
		{
			uint32		code = code_get(p, a->width);

			if (code >= pm_vector_count(&a->dictionary->values))
				complain(v, "value", place, "code %u of column %d is not in its dictionary",
						 code, i + 1);
			else if (a->attlen > 0 ?
					 *(const uint32 *) pm_vector_get(&a->dictionary->checks, code) == 0 :
					 !is_allocated(*(PMPtr *) dictionary_element(a->dictionary, code), 1))
				complain(v, "value", place, "code %u of column %d stands for no value", code,
						 i + 1);
		}
		else if (a->encoding == ENCODING_INLINE)
		{
			if (!VARATT_IS_1B(p) || VARSIZE_1B(p) > a->width || VARSIZE_1B(p) < 1)
				complain(v, "value", place, "column %d is longer than its field", i + 1);
		}
		else if (a->encoding == ENCODING_REFERENCE)
		{
			const char *problem = value_problem(a->attlen, *(const PMPtr *) p);

			if (problem != NULL)
				complain(v, "value", place, "value of column %d %s", i + 1, problem);
		}
	}
}

/*
 * What is wrong with the versions behind a root, or NULL; "row" must be one of them, or the
 * root.  Chain lock held.
 */
static const char *
chain_problem(const StoreHeader *h, const RowRef *root, uint64 row)
{
	uint64		link = link_read_quietly(root->block, root->index);
	uint64		rows = chain_limit(h);
	bool		found = row == root->row;

	while (LINK_IS_SET(link) && (link & LINK_ROOT) == 0)
	{
		RowRef		at;
		uint64		begin;

		if (rows-- == 0)
			return "chain leads round and round";
		if (!header_locate(h, LINK_ROW(link), &at))
			return "chain leads to a version without storage";
		begin = word_read(&at.words->begin);
		if (begin == WORD_EMPTY)
			return "chain leads to an empty row";
		if ((begin & BEGIN_HEAP_ONLY) == 0)
			return "chain leads to another row";
		if (WORD_TAG(begin) == WORD_TAG_ABORTED)
			return "chain leads to a version that was undone";
		found |= at.row == row;
		link = link_read_quietly(at.block, at.index);
	}
	return found ? NULL : "current version is not linked in its chain";
}

/* Does the chain of a root, which may be dead, lead back to it? */
static const char *
root_problem(const StoreHeader *h, const RowRef *ref)
{
	uint64		link = link_read_quietly(ref->block, ref->index);
	RowRef		newest;
	RowRef		root;

	if (LINK_IS_SET(link) && header_locate(h, LINK_ROW(link), &newest) &&
		(!chain_root_quietly(h, &newest, &root) || root.row != ref->row))
		return "links of the newest version do not lead back";
	return NULL;
}

/* A version that some snapshot may need must be the root of its chain, or linked in it. */
static void
verify_chain(const Verify *v, const char *place, const RowRef *ref, uint64 begin)
{
	StoreHeader *h = v->store->header;
	const char *problem = NULL;
	RowRef		root = *ref;

	if ((begin & BEGIN_HEAP_ONLY) == 0)
		problem = root_problem(h, ref);
	else if (!chain_root_quietly(h, ref, &root))
		problem = "links do not lead to a root";
	if (problem == NULL)
	{
		LWLockAcquire(chain_lock(store_id_of(h), root.row), LW_SHARED);
		if (word_read(&ref->words->begin) == begin &&
			WORD_TAG(word_read(&ref->words->end)) != WORD_TAG_STAMP)
			problem = chain_problem(h, &root, ref->row);
		LWLockRelease(chain_lock(store_id_of(h), root.row));
	}
	if (problem != NULL)
		complain(v, "chain", place, "%s", problem);
}

/* Is a version linked in a chain that goes on behind it? */
static bool
is_followed(const StoreHeader *h, const RowRef *ref)
{
	RowRef		root = *ref;
	uint64		link;
	bool		followed;

	if ((word_read(&ref->words->begin) & BEGIN_HEAP_ONLY) && !chain_root_quietly(h, ref, &root))
		return false;
	LWLockAcquire(chain_lock(store_id_of(h), root.row), LW_SHARED);
	link = link_read_quietly(root.block, root.index);
	followed = LINK_IS_SET(link) && LINK_ROW(link) != ref->row &&
		chain_problem(h, &root, ref->row) == NULL;
	LWLockRelease(chain_lock(store_id_of(h), root.row));
	return followed;
}

/*
 * A version has a successor word, but what is there is not by the transaction that ended the
 * version.  Has another one left the word?  Not if the successor is gone: an older transaction,
 * which had waited for that one, may have ended it, and be too old for the horizon (an xid is
 * older, not the end).  Then its row is free, its run released, or somebody has used it since.
 */
static bool
successor_is_stale(const StoreHeader *h, const RowRef *ref, uint64 end, uint64 successor)
{
	RowRef		next;
	uint64		begin;

	/* a deletion makes no successor, and an update within the chain a version there */
	if ((end & END_UPDATED) == 0 || is_followed(h, ref))
		return true;
	if (!header_locate(h, LINK_ROW(successor), &next))
		return false;
	begin = word_read(&next.words->begin);
	return WORD_TAG(begin) == WORD_TAG_STAMP && WORD_XID(begin) < WORD_XID(end);
}

/*
 * A root that is dead, or was undone, must lead to versions of its own, or nowhere; the
 * successor of a version that some snapshot may need must be one that its ender has made.
 */
static void
verify_ended(const Verify *v, const char *place, const RowRef *ref, uint64 begin, uint64 end)
{
	const StoreHeader *h = v->store->header;
	const char *problem = begin & BEGIN_HEAP_ONLY ? NULL : root_problem(h, ref);
	const uint64 *slot = successor_slot(ref->block, ref->index);
	uint64		successor = slot != NULL ? word_read(slot) : 0;
	RowRef		next;

	if (problem != NULL)
		complain(v, "chain", place, "%s", problem);
	if (WORD_TAG(begin) == WORD_TAG_STAMP && WORD_TAG(end) == WORD_TAG_STAMP &&
		WORD_XID(end) >= v->xmin && LINK_IS_SET(successor) && LINK_IS_RIGHT(successor) &&
		!store_new_root(v->store, ref, &next) && successor_is_stale(h, ref, end, successor))
		complain(v, "row", place, "has a successor that another transaction has made");
}

static void
verify_row(const Verify *v, const RowRef *ref)
{
	uint64		begin = word_read(&ref->words->begin);
	uint64		end = word_read(&ref->words->end);
	const uint64 *successor = successor_slot(ref->block, ref->index);
	ItemPointerData tid;
	char		place[64];

	row_to_tid(v->store, ref->row, &tid);
	snprintf(place, sizeof(place), "row (%u,%u)", ItemPointerGetBlockNumberNoCheck(&tid),
			 ItemPointerGetOffsetNumberNoCheck(&tid));
	verify_link(v, place, "link", link_slot(ref->block, ref->index));
	verify_link(v, place, "successor", successor);
	if (begin == WORD_EMPTY)
		return;
	verify_word(v, place, "begin", &ref->words->begin, begin, true);
	verify_word(v, place, "end", &ref->words->end, end, false);
	if (word_problem(begin, true) != NULL || word_problem(end, false) != NULL)
		return;
	if (WORD_TAG(begin) == WORD_TAG_STAMP && end == WORD_EMPTY && successor != NULL &&
		word_read(successor) != 0 && word_read(&ref->words->end) == end)
		complain(v, "row", place, "is a current version with a successor");
	/* only of versions that this transaction's horizon protects */
	if (WORD_TAG(begin) != WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_STAMP)
	{
		verify_ended(v, place, ref, begin, end);
		return;
	}
	verify_values(v, place, ref);
	verify_chain(v, place, ref, begin);
}

/* ---- blocks ---- */

static bool
is_not_ended(const RowWords *words)
{
	return WORD_TAG(word_read(&words->begin)) == WORD_TAG_STAMP &&
		WORD_TAG(word_read(&words->end)) != WORD_TAG_STAMP;
}

/* May the row be settled?  (It may have ended since its mark was read.) */
static bool
may_be_settled(const Verify *v, const BlockHeader *block, uint32 index)
{
	const RowWords *words = plan_words(plan_get(v->store, block->shape), block, index);
	uint64		begin = word_read(&words->begin);
	uint64		link;
	RowRef		newest;

	if (is_not_ended(words))
		return true;
	if (WORD_TAG(begin) != WORD_TAG_STAMP || (begin & BEGIN_HEAP_ONLY) != 0)
		return false;
	link = link_read_quietly(block, index);
	return LINK_IS_SET(link) && header_locate(v->store->header, LINK_ROW(link), &newest) &&
		is_not_ended(newest.words);
}

/* If a row has ended and is settled still, somebody has just committed; see settled.c. */
static void
verify_settled(const Verify *v, uint64 number, const BlockHeader *block)
{
	char		place[64];

	for (uint32 i = 0; i < block->capacity; i++)
	{
		if (!store_row_is_settled(v->store, block, i) || may_be_settled(v, block, i) ||
			!store_row_is_settled(v->store, block, i))
			continue;
		snprintf(place, sizeof(place), "row " UINT64_FORMAT, number * SOFORT_BLOCK_ROWS + i);
		complain(v, "row", place, "counts as visible to everybody, and is not");
		return;
	}
}

/* The header of the run that begins with this block, if one does */
static const char *
run_problem(const Verify *v, uint64 number, const BlockHeader *b)
{
	const RunHeader *run = block_begins_run(b, number);

	if (run == NULL)
		return NULL;
	if (run->magic != SOFORT_RUN_MAGIC || run->crc != run_crc(run))
		return "checksum of the run is wrong";
	if (run->store != v->store->id || run->first_block != number || run->nblocks == 0)
		return "run does not belong here";
	return NULL;
}

static const char *
verify_block_header(const Verify *v, uint64 number, PMPtr p)
{
	const BlockHeader *b;
	const ShapeHeader *shape;
	const char *problem;
	Size		size;

	if (!is_allocated(p, sizeof(BlockHeader)))
		return "is not allocated";
	b = pm_deref(p);
	problem = block_problem(v->header, b, number);
	if (problem == NULL)
		problem = run_problem(v, number, b);
	if (problem != NULL)
		return problem;
	shape = shape_get(v->header, b->shape);
	size = shape->capacity != 0 ? shape->block_size :
		shape->record_offset + (Size) b->capacity * shape->record_stride;
	if (!is_allocated(pm_ptr((const char *) b + size - 1), 1))
		return "is longer than its allocation";
	if ((b->links != PM_NULL && !is_allocated(b->links, b->capacity * sizeof(uint64))) ||
		(b->successors != PM_NULL && !is_allocated(b->successors, b->capacity * sizeof(uint64))))
		return "link vector is not allocated";
	return NULL;
}

/* Blocks that were allocated together must be entered together. */
static void
verify_run(const Verify *v, uint64 first, const BlockHeader *b)
{
	const RunHeader *run = block_begins_run(b, first);
	const char *start = (const char *) b;
	char		place[64];
	uint32		i;

	if (run == NULL)
		return;
	snprintf(place, sizeof(place), "block " UINT64_FORMAT, first);
	for (i = 1; i < run->nblocks; i++)
	{
		if (word_read(block_entry(v->header, first + i)) != pm_ptr(start + (Size) i * run->block_size))
			complain(v, "block", place, "block %u of its run is not there", i);
	}
}

void
store_verify(Relation rel, StoreDesc *store, StoreReport report, void *arg)
{
	Verify		v = {.header = store->header, .store = store, .report = report, .arg = arg,
	.xmin = txn_snapshot_xmin(GetActiveSnapshot())};
	uint64		n = store_block_count(store->header);
	StoreReadAhead ahead = {0};
	uint64		b;

	if (!store_file_is_as_made(rel))
		complain(&v, "table", "file", "rows were put into it past the access method, and are not found");
	for (b = 0; b < n; b++)
	{
		PMPtr		p = word_read(block_entry(store->header, b));
		const char *problem;
		uint32		i;

		CHECK_FOR_INTERRUPTS();
		if (p == PM_NULL)
			continue;			/* a run that was released */
		/* (the shape of rows that were right; others may be damaged) */
		if (store->local->guess != NULL)
			store_scan_ahead(store, &ahead, b, n);
		problem = verify_block_header(&v, b, p);
		if (problem != NULL)
		{
			char		place[64];

			snprintf(place, sizeof(place), "block " UINT64_FORMAT, b);
			complain(&v, "block", place, "%s", problem);
			continue;
		}
		verify_run(&v, b, pm_deref(p));
		verify_settled(&v, b, pm_deref(p));
		for (i = 0; i < block_capacity(b); i++)
		{
			RowRef		ref;

			if (store_locate(store, b * SOFORT_BLOCK_ROWS + i, &ref))
				verify_row(&v, &ref);
		}
	}
	store_verify_space(store->header, report, arg);
}
