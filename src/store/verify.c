/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Structural check of a store.
 *
 * Other sessions may write meanwhile: what is looked at twice and changed in
 * between is not reported.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"

typedef struct Verify
{
	StoreDesc  *store;
	StoreReport report;
	void	   *arg;
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
	return (p >> PM_OFFSET_BITS) == PM_POOL_ID && pm_allocated_size(p) >= size;
}

/* ---- header ---- */

/*
 * Each slot stands for a value that is there.  (Not every value need have one: a
 * crash may lose a slot, and unused values are taken out.)
 */
static void
verify_dictionary_index(const Verify *v, const char *place, const DictionaryHeader *d)
{
	const DictMedia *media;
	uint64		used = 0;
	uint64		i;

	if (d->placement > DICT_HYBRID)
		complain(v, "column", place, "dictionary has placement %u", d->placement);
	if (!is_allocated(d->index, sizeof(DictMedia)))
	{
		complain(v, "column", place, "index of the dictionary is not allocated");
		return;
	}
	media = pm_deref(d->index);
	if (media->magic != SOFORT_DICT_MAGIC || (media->mask & (media->mask + 1)) != 0 ||
		!is_allocated(d->index, offsetof(DictMedia, slot) + (media->mask + 1) * sizeof(uint64)))
	{
		complain(v, "column", place, "index of the dictionary is damaged");
		return;
	}
	for (i = 0; i <= media->mask; i++)
	{
		uint64		slot = media->slot[i];
		uint64		code = (slot & PG_UINT32_MAX) - 1;
		uint64		hash;

		if (slot == 0)
			continue;
		used++;
		if (code >= d->values.count)
			complain(v, "column", place, "index of the dictionary has code " UINT64_FORMAT, code);
		else if (d->placement != DICT_DRAM && dictionary_hash_of(d, code, &hash) &&
				 (hash >> 32) != (slot >> 32))
			complain(v, "column", place, "code " UINT64_FORMAT " is at another value's place in the index of the dictionary", code);
	}
	if (used > media->mask)
		complain(v, "column", place, "index of the dictionary is full");
}

static void
verify_columns(const Verify *v)
{
	const StoreHeader *h = v->store->header;
	uint64		i;

	for (i = 0; i < h->columns.count; i++)
	{
		const ColumnHeader *c = column_get(h, i);
		char		place[64];

		snprintf(place, sizeof(place), "column " UINT64_FORMAT, i);
		if (c == NULL || (c->state != COLUMN_LIVE && c->state != COLUMN_DROPPED))
			complain(v, "column", place, "state is %u", c == NULL ? 0 : c->state);
		else if (c->dictionary != PM_NULL)
		{
			const DictionaryHeader *d;

			if (!is_allocated(c->dictionary, sizeof(DictionaryHeader)))
			{
				complain(v, "column", place, "dictionary is not allocated");
				continue;
			}
			d = pm_deref(c->dictionary);
			if (d->store != h->id || d->column != i)
				complain(v, "column", place, "dictionary belongs to another column");
			if (d->index != PM_NULL)
				verify_dictionary_index(v, place, d);
		}
	}
}

static void
verify_shapes(const Verify *v)
{
	const StoreHeader *h = v->store->header;
	uint64		i;
	int			k;

	for (i = 0; i < h->shapes.count; i++)
	{
		const ShapeHeader *s = shape_get(h, (uint32) i);
		char		place[64];

		snprintf(place, sizeof(place), "shape " UINT64_FORMAT, i);
		if (s == NULL || s->id != i)
		{
			complain(v, "shape", place, "not there or misnumbered");
			continue;
		}
		for (k = 0; k < s->ncolumns; k++)
		{
			const ShapeColumn *c = &s->columns[k];

			if (c->column >= h->columns.count ||
				c->offset + (SOFORT_BLOCK_ROWS - 1) * c->stride + c->width > s->block_size)
				complain(v, "shape", place, "column %d lies outside", k);
		}
	}
}

/* ---- rows ---- */

static void
verify_word(const Verify *v, const char *place, const char *name, uint64 word, bool begin)
{
	int			tag = WORD_TAG(word);

	if (tag > WORD_TAG_LOCKERS || (begin && tag > WORD_TAG_ABORTED) ||
		(!begin && tag == WORD_TAG_ABORTED))
		complain(v, "row", place, "%s word " UINT64_FORMAT " has no meaning", name, word);
	if (tag == WORD_TAG_STAMP && WORD_XID(word) >= txn_next_fxid())
		complain(v, "row", place, "%s word names a transaction of the future", name);
}

static void
verify_varlena(const Verify *v, const char *place, int attnum, PMPtr p)
{
	if (!is_allocated(p, 1))
		complain(v, "value", place, "column %d refers to nothing", attnum);
	else if (pm_allocated_size(p) < VARSIZE_ANY(pm_deref(p)))
		complain(v, "value", place, "value of column %d is longer than its allocation", attnum);
}

static void
verify_values(const Verify *v, const char *place, const RowRef *ref)
{
	const ShapePlan *plan = plan_get(v->store, ref->block->shape);
	int			i;

	for (i = 0; i < plan->natts; i++)
	{
		const ShapeAttr *a = &plan->reader->attr[i];
		const char *p = (const char *) ref->block + a->offset + (Size) ref->index * a->stride;

		if (a->encoding == ENCODING_ABSENT ||
			(((const char *) ref->words)[plan->plan[i].null_byte] & plan->plan[i].null_mask))
			continue;
		if (a->encoding == ENCODING_DICTIONARY)
		{
			uint32		code = a->width == 1 ? *(const uint8 *) p :
				a->width == 2 ? *(const uint16 *) p : *(const uint32 *) p;

			if (code >= a->dictionary->values.count)
				complain(v, "value", place, "code %u of column %d is not in its dictionary",
						 code, i + 1);
			else if (a->attlen < 0 &&
					 !is_allocated(*(PMPtr *) dictionary_element(a->dictionary, code), 1))
				complain(v, "value", place, "code %u of column %d stands for no value", code,
						 i + 1);
		}
		else if (a->encoding == ENCODING_INLINE)
		{
			if (!VARATT_IS_1B(p) || VARSIZE_1B(p) > a->width || VARSIZE_1B(p) < 1)
				complain(v, "value", place, "column %d is longer than its field", i + 1);
		}
		else if (a->encoding == ENCODING_REFERENCE && a->attlen == -1)
			verify_varlena(v, place, i + 1, *(const PMPtr *) p);
		else if (a->encoding == ENCODING_REFERENCE &&
				 !is_allocated(*(const PMPtr *) p, a->attlen > 0 ? a->attlen : 1))
			complain(v, "value", place, "column %d refers to nothing", i + 1);
	}
}

/* A heap-only version that some snapshot may need is linked in its chain. */
static void
verify_chain(const Verify *v, const char *place, const RowRef *ref, uint64 begin)
{
	StoreHeader *h = v->store->header;
	RowRef		root;
	RowRef		newest;

	if ((begin & BEGIN_HEAP_ONLY) == 0)
	{
		uint64		link = link_read(ref->block, ref->index);

		if (!LINK_IS_SET(link))
			return;
		if (!header_locate(h, LINK_ROW(link), &newest))
			complain(v, "chain", place, "newest version " UINT64_FORMAT " has no storage",
					 LINK_ROW(link));
		else if (!chain_root_of(h, &newest, &root) || root.row != ref->row)
			complain(v, "chain", place, "links of the newest version do not lead back");
		return;
	}
	if (!chain_root_of(h, ref, &root))
	{
		complain(v, "chain", place, "links do not lead to a root");
		return;
	}
	LWLockAcquire(chain_lock(h->id, root.row), LW_SHARED);
	if (word_read(&ref->words->begin) == begin && !chain_contains(h, &root, ref->row) &&
		WORD_TAG(begin) == WORD_TAG_STAMP &&
		WORD_TAG(word_read(&ref->words->end)) != WORD_TAG_STAMP)
	{
		LWLockRelease(chain_lock(h->id, root.row));
		complain(v, "chain", place, "current version is not linked in its chain");
		return;
	}
	LWLockRelease(chain_lock(h->id, root.row));
}

static void
verify_row(const Verify *v, const RowRef *ref)
{
	uint64		begin = word_read(&ref->words->begin);
	uint64		end = word_read(&ref->words->end);
	const uint64 *successor = successor_slot(ref->block, ref->index);
	ItemPointerData tid;
	char		place[64];

	if (begin == WORD_EMPTY)
		return;
	row_to_tid(v->store, ref->row, &tid);
	snprintf(place, sizeof(place), "row (%u,%u)", ItemPointerGetBlockNumberNoCheck(&tid),
			 ItemPointerGetOffsetNumberNoCheck(&tid));
	verify_word(v, place, "begin", begin, true);
	verify_word(v, place, "end", end, false);
	if (WORD_TAG(begin) == WORD_TAG_STAMP && end == WORD_EMPTY && successor != NULL &&
		word_read(successor) != 0 && word_read(&ref->words->end) == end)
		complain(v, "row", place, "is a current version with a successor");
	/* only of versions that this transaction's horizon protects */
	if (WORD_TAG(begin) != WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_STAMP)
		return;
	verify_values(v, place, ref);
	verify_chain(v, place, ref, begin);
}

/* ---- blocks ---- */

static bool
verify_block_header(const Verify *v, uint64 number, const BlockHeader *b)
{
	char		place[64];

	snprintf(place, sizeof(place), "block " UINT64_FORMAT, number);
	if (b->magic != SOFORT_BLOCK_MAGIC || b->store != v->store->id ||
		b->block_number != number || b->capacity != block_capacity(number))
	{
		complain(v, "block", place, "header does not belong here");
		return false;
	}
	if (shape_get(v->store->header, b->shape) == NULL)
	{
		complain(v, "block", place, "shape %u does not exist", b->shape);
		return false;
	}
	if (!is_allocated(pm_ptr(b), sizeof(BlockHeader)))
	{
		complain(v, "block", place, "is not allocated");
		return false;
	}
	if ((b->links != PM_NULL && !is_allocated(b->links, b->capacity * sizeof(uint64))) ||
		(b->successors != PM_NULL && !is_allocated(b->successors, b->capacity * sizeof(uint64))))
	{
		complain(v, "block", place, "link vector is not allocated");
		return false;
	}
	return true;
}

void
store_verify(Relation rel, StoreDesc *store, StoreReport report, void *arg)
{
	Verify		v = {.store = store, .report = report, .arg = arg};
	uint64		n = store->header->nblocks;
	uint64		b;

	if (store->header->magic != SOFORT_STORE_MAGIC || store->header->state != STORE_LIVE)
	{
		complain(&v, "store", "header", "magic or state is wrong");
		return;
	}
	verify_columns(&v);
	verify_shapes(&v);
	for (b = 0; b < n; b++)
	{
		BlockHeader *block = block_get(store->header, b);
		uint32		i;

		CHECK_FOR_INTERRUPTS();
		if (block == NULL || !verify_block_header(&v, b, block))
			continue;
		for (i = 0; i < block->capacity; i++)
		{
			RowRef		ref;

			if (store_locate(store, b * SOFORT_BLOCK_ROWS + i, &ref))
				verify_row(&v, &ref);
		}
	}
	store_verify_space(store->header, report, arg);
}
