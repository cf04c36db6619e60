/*-------------------------------------------------------------------------
 *
 * places.c
 *	  Where in the pool's file lies what sofort.verify() and verify_pool() claim
 *	  to check bit by bit, for the test that flips bits there.
 *
 * Finds its own way through the structures, so that a mistake in the checks is
 * not repeated here.  The caller keeps everybody else away.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "sofort/indexam/keys.h"
#include "sofort/indexam/registry.h"
#include "sofort/store/store_internal.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "../src/indexam/tree_pool.h"
#include "../src/pmem/pm_internal.h"
#include "../src/txn/txn_internal.h"

PG_FUNCTION_INFO_V1(sofort_test_places);
PG_FUNCTION_INFO_V1(sofort_test_chains);
PG_FUNCTION_INFO_V1(sofort_test_milestone_bytes);
PG_FUNCTION_INFO_V1(sofort_test_settled_rows);
PG_FUNCTION_INFO_V1(sofort_test_placements_asked);

static void
put(ReturnSetInfo *set, const char *class, const void *start, Size bytes)
{
	Datum		values[3];
	bool		nulls[3] = {0};

	if (bytes == 0)
		return;
	values[0] = CStringGetTextDatum(class);
	values[1] = Int64GetDatum((int64) ((const char *) start - PoolBase));
	values[2] = Int32GetDatum((int32) bytes);
	tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
}

/* ---- the pool ---- */

static void
put_slab(ReturnSetInfo *set, int extent, uint32 granule)
{
	SlabHeader *slab = (SlabHeader *) (PoolBase + granule_offset(extent, granule));

	put(set, "slab", slab, offsetof(SlabHeader, tag));
	put(set, "slab", slab->owner, slab->nslots * sizeof(uint64));
}

static void
put_pool(ReturnSetInfo *set)
{
	int			e;
	uint64		i;

	put(set, "superblock", PoolSuper, offsetof(PoolSuperblock, redo_nonce));
	put(set, "superblock", &PoolSuper->life, 2 * sizeof(uint64));
	put(set, "superblock", &PoolSuper->next_store_id, sizeof(uint64));
	put(set, "superblock", &PoolSuper->stores, 5 * sizeof(PmVector));
	for (e = 0; e < pm_nextents; e++)
	{
		uint32		g;

		put(set, "extent", pm_extent[e].header, offsetof(ExtentHeader, unused));
		put(set, "segment words", pm_extent[e].words, words_prepared(e) * sizeof(uint64));
		for (g = 0; g < words_prepared(e); g++)
			if (SEGWORD_STATE(segment_word(e, g)) == SEGWORD_SLAB)
				put_slab(set, e, g);
	}
	for (i = 0; i < pm_vector_count(&PoolSuper->stores); i++)
		put(set, "stores", pm_vector_get(&PoolSuper->stores, i), sizeof(PMPtr));
}

/* ---- tables ---- */

static void
put_value(ReturnSetInfo *set, const char *class, int16 attlen, PMPtr p)
{
	const char *v = pm_deref(p);

	put(set, class, v, (attlen > 0 ? (Size) attlen : attlen == -2 ? strlen(v) + 1 : VARSIZE_ANY(v)) +
		sizeof(uint32));
}

static void
put_dictionary(ReturnSetInfo *set, DictionaryHeader *d)
{
	uint64		i;

	put(set, "dictionary", d, offsetof(DictionaryHeader, unused));
	put(set, "dictionary", &d->values, 2 * sizeof(PmVector));
	for (i = 0; i < pm_vector_count(&d->values); i++)
	{
		PMPtr	   *e = pm_vector_get(&d->values, i);

		put(set, "dictionary value", e, d->attlen > 0 ? (Size) d->attlen : sizeof(PMPtr));
		if (d->attlen > 0)
			put(set, "dictionary value", pm_vector_get(&d->checks, i), sizeof(uint32));
		else if (*e != PM_NULL)
			put_value(set, "dictionary value", d->attlen, *e);
	}
	if (d->index != PM_NULL)
	{
		DictMedia  *media = pm_deref(d->index);

		put(set, "dictionary index", media, offsetof(DictMedia, pad));
		put(set, "dictionary index", media->slot, (media->mask + 1) * sizeof(uint64));
	}
}

static void
put_fields(ReturnSetInfo *set, const StoreHeader *h, const ShapeHeader *s, BlockHeader *b,
		   uint32 row)
{
	RowWords   *words = (RowWords *) ((char *) b + s->record_offset + row * s->record_stride);
	int			k;

	put(set, "row", words + 1, s->record_stride - sizeof(RowWords));
	for (k = 0; k < s->ncolumns; k++)
	{
		const ShapeColumn *c = &s->columns[k];
		const char *field = (const char *) b + c->offset + (Size) row * c->stride;
		bool		isnull = c->null_bit != SHAPE_NEVER_NULL &&
			(((uint8 *) words)[s->null_offset + c->null_bit / 8] & (1 << (c->null_bit % 8)));

		if (c->offset < s->record_offset)
			put(set, c->encoding == ENCODING_DICTIONARY ? "code" : "row", field, c->width);
		else if (c->encoding == ENCODING_DICTIONARY && !isnull)
			put(set, "code", field, c->width);
		if (c->encoding == ENCODING_REFERENCE && !isnull)
			put_value(set, "long value", column_get(h, c->column)->attlen, *(const PMPtr *) field);
	}
}

static void
put_block(ReturnSetInfo *set, const StoreHeader *h, BlockHeader *b)
{
	ShapeHeader *s = shape_get(h, b->shape);
	uint32		row;

	put(set, "block", b, offsetof(BlockHeader, unused));
	if (b->block_number >= STORE_SINGLE_BLOCKS &&
		pm_allocation_start(pm_ptr(b)) == pm_ptr((RunHeader *) b - 1))
		put(set, "block", (RunHeader *) b - 1, offsetof(RunHeader, unused));
	if (b->links != PM_NULL)
		put(set, "link", pm_deref(b->links), b->capacity * sizeof(uint64));
	if (b->successors != PM_NULL)
		put(set, "link", pm_deref(b->successors), b->capacity * sizeof(uint64));
	for (row = 0; row < b->capacity; row++)
	{
		RowWords   *w = (RowWords *) ((char *) b + s->record_offset + row * s->record_stride);

		put(set, "stamp", &w->begin, sizeof(uint64));
		if (w->begin != WORD_EMPTY && (w->end == WORD_EMPTY || WORD_TAG(w->end) == WORD_TAG_STAMP))
			put(set, "stamp", &w->end, sizeof(uint64));
		if (WORD_TAG(w->begin) == WORD_TAG_STAMP && WORD_TAG(w->end) != WORD_TAG_STAMP)
			put_fields(set, h, s, b, row);
	}
}

static void
put_header(ReturnSetInfo *set, const char *class, StoreHeader *h)
{
	put(set, class, h, sizeof(StoreHeader));
}

static void
put_table(ReturnSetInfo *set, StoreHeader *h)
{
	uint64		i;

	put_header(set, "store header", h);
	for (i = 0; i < pm_vector_count(&h->columns); i++)
	{
		ColumnHeader *c = column_get(h, i);

		put(set, "column", c, offsetof(ColumnHeader, unused));
		if (c->dictionary != PM_NULL)
			put_dictionary(set, pm_deref(c->dictionary));
	}
	for (i = 0; i < pm_vector_count(&h->shapes); i++)
	{
		ShapeHeader *s = shape_get(h, i);

		put(set, "shape", pm_vector_get(&h->shapes, i), sizeof(PMPtr));
		put(set, "shape", s, offsetof(ShapeHeader, columns) + s->ncolumns * sizeof(ShapeColumn));
	}
	for (i = 0; i < store_block_count(h); i++)
	{
		PMPtr	   *e = block_entry(h, i);

		put(set, "block", e, sizeof(PMPtr));
		if (*e != PM_NULL)
			put_block(set, h, pm_deref(*e));
	}
}

/* ---- trees ---- */

static void
put_entry(ReturnSetInfo *set, Tree *tree, const uint8 *entry)
{
	TreeTuple  *tuple = tree_entry_tuple(tree, entry);

	put(set, "index node", entry, tree->stride);
	if (tuple != NULL)
	{
		put(set, "index tuple", &tuple->size, 2 * sizeof(uint16));
		put(set, "index tuple", &tuple->tuple, tuple->size);
	}
}

static void
put_node(ReturnSetInfo *set, Tree *tree, TreeNode *node)
{
	int			i;

	(void) node_version(tree, node);
	if (node->level == 0)
	{
		TreeLeafNode *leaf = pool_leaf(node);
		uint64		slots = leaf->state & LEAF_SLOTS_MASK;

		put(set, "index node", &leaf->level, sizeof(uint16));
		put(set, "index node", &leaf->state, sizeof(uint64));
		if (tree->placement == TREE_HYBRID)
			put(set, "index node", &leaf->next[(leaf->state & LEAF_SECOND_NEXT) != 0], sizeof(PMPtr));
		put_entry(set, tree, leaf_low(leaf));
		for (; slots != 0; slots &= slots - 1)
			put_entry(set, tree, leaf_entry(tree, leaf, __builtin_ctzll(slots)));
		return;
	}
	if (tree->placement == TREE_PMEM)
	{
		put(set, "index node", &node->n, 4);
		put(set, "index node", node_refs(node), (node->n + 1) * sizeof(uint64));
		put(set, "index node", node_entries(tree, node), (Size) node->n * tree->stride);
	}
	for (i = 0; i <= node->n; i++)
		put_node(set, tree, node_child(tree, node, i));
}

static void
put_index(ReturnSetInfo *set, Relation index)
{
	IndexKeys	keys;
	StoreHeader *h;
	TreeHeader *t;
	uint64		i;

	index_attach(&keys, index);
	if (!tree_in_pool(keys.tree))
		return;
	h = keys.tree->space->store;
	t = keys.tree->space->header;
	put_header(set, "index header", h);
	put(set, "index header", t, offsetof(TreeHeader, root));
	put(set, "index header", t->placement == TREE_PMEM ? &t->root : &t->first_leaf, sizeof(PMPtr));
	put(set, "index header", &t->crc, sizeof(uint32));
	put(set, "index header", t->format, t->format_size);
	for (i = 0; i < pm_vector_count(&h->blocks); i++)
	{
		PMPtr	   *e = pm_vector_get(&h->blocks, i);

		put(set, "index header", e, sizeof(PMPtr));
		put(set, "index header", pm_deref(*e), offsetof(TreeChunk, unused));
	}
	epoch_enter();
	put_node(set, keys.tree, tree_root(keys.tree));
	epoch_exit();
}

/* Of a table or an index; of the pool itself if NULL. */
Datum
sofort_test_places(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	pool_require();
	if (PG_ARGISNULL(0))
		put_pool(set);
	else
	{
		Relation	rel = relation_open(PG_GETARG_OID(0), AccessExclusiveLock);

		if (rel->rd_rel->relkind == RELKIND_INDEX)
			put_index(set, rel);
		else
			put_table(set, store_open(rel)->header);
		relation_close(rel, NoLock);
	}
	return (Datum) 0;
}

/* Where references of transactions lie: to chunks of write sets, and of row locks of kept ones */
Datum
sofort_test_chains(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	pool_require();
	for (uint64 i = 0; i < pm_vector_count(&PoolSuper->tcbs); i++)
	{
		const Tcb  *tcb = pm_vector_get(&PoolSuper->tcbs, i);

		put(set, TCB_STATE(tcb->state) == TCB_FREE ? "write set" : "write set in use",
			&tcb->overflow, sizeof(PMPtr));
		if (tcb->overflow != PM_NULL)
			put(set, "chunk", pm_deref(tcb->overflow), sizeof(PMPtr));
	}
	for (uint64 i = 0; i < pm_vector_count(&PoolSuper->kept); i++)
	{
		const KeptRecord *r = pm_vector_get(&PoolSuper->kept, i);

		put(set, "kept locks", &r->locks, sizeof(PMPtr));
	}
	return (Datum) 0;
}

/* Of a table */
Datum
sofort_test_milestone_bytes(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Size		bytes;

	pool_require();
	bytes = milestone_bytes(store_open(rel));
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64((int64) bytes);
}

Datum
sofort_test_settled_rows(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	StoreDesc  *store;
	int32		n = 0;

	pool_require();
	store = store_open(rel);
	for (BlockNumber i = 0; i < store_nblocks(store); i++)
	{
		const BlockHeader *block = store_block(store, i);

		if (block != NULL)
			n += block_settled_rows(store, block);
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT32(n);
}

/* Of columns of a table: where the index of the dictionary is to lie, if not in DRAM */
Datum
sofort_test_placements_asked(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	const StoreHeader *header;
	StringInfoData text;

	pool_require();
	header = store_open(rel)->header;
	initStringInfo(&text);
	for (uint64 i = 0; i < pm_vector_count(&header->columns); i++)
	{
		const ColumnHeader *c = column_get(header, i);

		if (c->state == COLUMN_LIVE && c->dict_placement > COLUMN_PLACEMENT(DICT_DRAM))
			appendStringInfo(&text, "%d:%s ", c->attnum,
							 dictionary_placement_name(c->dict_placement / COLUMN_PLACEMENT(0) - 1));
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_TEXT_P(cstring_to_text(text.data));
}
