/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Filling a tree from a table.
 *
 * Entries are collected in memory, sorted, and built bottom-up.  What exceeds
 * maintenance_work_mem goes through PostgreSQL's external sort as far as bytes
 * decide the order; the rest is inserted, a sorted run at a time.  Entries of dead
 * versions are inserted last, after uniqueness was checked among the others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/registry.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/cleanup.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

/* Entries that grow in one piece of memory */
typedef struct EntryArray
{
	uint8	   *entries;
	uint64		n;
	uint64		max;			/* allocated */
	uint64		tuples;			/* entries that have one */
} EntryArray;

typedef struct BuildState
{
	IndexKeys  *keys;
	Tree	   *tree;
	MemoryContext context;
	int			stride;
	int			cmp_len;
	int			fillfactor;
	uint64		limit;			/* entries in memory */
	EntryArray	live;			/* during an external sort: with tuples only */
	EntryArray	dead;			/* only if uniqueness is checked */
	bool		unique;
	bool		rows_ascend;	/* so far */
	bool		bulk_loaded;	/* the first run is in the tree */
	Tuplesortstate *sort;
	uint64		last_row;
} BuildState;

void
index_tree_full(const IndexKeys *keys)
{
	Relation	index = keys->index;

	if (keys->tree != NULL)
		tree_raise_full(keys->tree);
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory for sofort index \"%s\"", RelationGetRelationName(index)),
			 errdetail("The index is unchanged."),
			 errhint("Raise sofort.dram_size and restart the server, or drop indexes on sofort tables.")));
}

/* ---- arrays ---- */

static uint8 *
array_add(BuildState *build, EntryArray *array)
{
	if (array->n == array->max)
	{
		MemoryContext old = MemoryContextSwitchTo(build->context);
		uint64		max = Max(1024, array->max * 2);

		if (array == &build->live && max > build->limit)
			max = Max(build->limit, array->n + 1);
		if (array->entries == NULL)
			array->entries = MemoryContextAllocHuge(build->context, max * build->stride + 8);
		else
			array->entries = repalloc_huge(array->entries, max * build->stride + 8);
		array->max = max;
		MemoryContextSwitchTo(old);
	}
	return array->entries + array->n * build->stride;
}

static void
array_clear(EntryArray *array)
{
	array->n = array->tuples = 0;
}

/* Tuples of entries that are in no tree */
static void
array_discard(BuildState *build, EntryArray *array)
{
	uint64		i;

	for (i = 0; i < array->n; i++)
		index_discard_entry(build->keys, array->entries + i * build->stride);
	array_clear(array);
}

/* The array is no longer responsible for the tuple of this entry. */
static void
forget_tuple(BuildState *build, uint8 *entry)
{
	if (build->tree->has_tuples)
		tree_entry_set_tuple(build->tree, entry, NULL);
}

/* ---- sorting ---- */

static void
sort_array(BuildState *build, EntryArray *array)
{
	uint8	   *scratch;
	uint8	   *sorted;

	if (array->n < 2)
		return;
	if (array->tuples > 0)
	{
		qsort_arg(array->entries, array->n, build->stride, keys_compare_to_sort, build->keys);
		return;
	}
	scratch = MemoryContextAllocHuge(build->context, array->n * build->stride + 8);
	sorted = tree_sort(array->entries, scratch, array->n, build->stride, build->cmp_len,
					   build->rows_ascend ? build->tree->key_len : build->cmp_len);
	if (sorted == scratch)
	{
		scratch = array->entries;
		array->entries = sorted;
		array->max = array->n;
	}
	pfree(scratch);
}

/* ---- into the tree ---- */

static void
insert_entry(BuildState *build, uint8 *entry)
{
	TreeResult	result;

	epoch_enter();
	result = index_insert_into(build->keys, build->tree, entry);
	epoch_exit();
	if (result == TREE_FULL)
		index_tree_full(build->keys);
	if (result == TREE_EXISTS)
		index_discard_entry(build->keys, entry);
	forget_tuple(build, entry);
}

/* The first sorted run: bottom-up */
static void
bulk_load(BuildState *build)
{
	TreeBuilder builder;
	uint8		last[TREE_MAX_STRIDE];
	uint64		i;

	tree_build_begin(&builder, build->tree, build->fillfactor);
	for (i = 0; i < build->live.n; i++)
	{
		uint8	   *entry = build->live.entries + i * build->stride;

		if ((i & 0xffff) == 0)
			CHECK_FOR_INTERRUPTS();
		if (i > 0 && keys_compare_entries(build->keys, last, entry) == 0)
			index_discard_entry(build->keys, entry);
		else
		{
			memcpy(last, entry, build->stride);
			if (!tree_build_add(&builder, entry))
				index_tree_full(build->keys);
			if (tree_entry_tuple(build->tree, entry) != NULL)
				tree_count_tuple(build->tree, tree_entry_tuple(build->tree, entry));
		}
		forget_tuple(build, entry);
	}
	tree_build_end(&builder);
	array_clear(&build->live);
	build->bulk_loaded = true;
}

/* What is in memory, as a sorted run */
static void
flush_run(BuildState *build)
{
	uint64		i;

	sort_array(build, &build->live);
	if (!build->bulk_loaded)
	{
		bulk_load(build);
		return;
	}
	for (i = 0; i < build->live.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		insert_entry(build, build->live.entries + i * build->stride);
	}
	array_clear(&build->live);
}

/* ---- external sort: entries as bytea ---- */

static void
sort_put(BuildState *build, const uint8 *entry)
{
	struct
	{
		int32		header;
		uint8		data[TREE_MAX_STRIDE];
	}			value;

	SET_VARSIZE(&value, VARHDRSZ + build->cmp_len);
	memcpy(value.data, entry, build->cmp_len);
	tuplesort_putdatum(build->sort, PointerGetDatum(&value), false);
}

/* Entries without a tuple move from memory to the sort. */
static void
start_external_sort(BuildState *build)
{
	TypeCacheEntry *type = lookup_type_cache(BYTEAOID, TYPECACHE_LT_OPR);
	uint64		kept = 0;
	uint64		i;

	build->sort = tuplesort_begin_datum(BYTEAOID, type->lt_opr, InvalidOid, false,
										maintenance_work_mem, NULL, TUPLESORT_NONE);
	for (i = 0; i < build->live.n; i++)
	{
		uint8	   *entry = build->live.entries + i * build->stride;

		if (tree_entry_tuple(build->tree, entry) == NULL)
			sort_put(build, entry);
	}

	/* not before nothing can fail any more: errors discard tuples */
	for (i = 0; i < build->live.n; i++)
	{
		uint8	   *entry = build->live.entries + i * build->stride;

		if (tree_entry_tuple(build->tree, entry) != NULL)
			memmove(build->live.entries + kept++ * build->stride, entry, build->stride);
	}
	build->live.n = kept;
}

static void
load_external_sort(BuildState *build)
{
	TreeBuilder builder;
	uint8		last[TREE_MAX_STRIDE];
	Datum		value;
	bool		isnull;
	bool		first = true;

	tuplesort_performsort(build->sort);
	tree_build_begin(&builder, build->tree, build->fillfactor);
	while (compat_tuplesort_next_datum(build->sort, &value, &isnull))
	{
		uint8	   *entry = (uint8 *) VARDATA_ANY(DatumGetPointer(value));

		CHECK_FOR_INTERRUPTS();
		if (first || memcmp(last, entry, build->cmp_len) != 0)
		{
			memcpy(last, entry, build->cmp_len);
			memset(last + build->cmp_len, 0, build->stride - build->cmp_len);
			if (!tree_build_add(&builder, last))
				index_tree_full(build->keys);
		}
		first = false;
		pfree(DatumGetPointer(value));
	}
	tree_build_end(&builder);
	tuplesort_end(build->sort);
	build->sort = NULL;
	build->bulk_loaded = true;
}

/* Memory is used up. */
static void
make_room(BuildState *build)
{
	if (build->sort != NULL)
		load_external_sort(build);
	if (!build->bulk_loaded && build->live.tuples <= build->live.n / 2)
		start_external_sort(build);
	else
		flush_run(build);
}

/* ---- the scan of the table ---- */

static void
build_callback(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive,
			   void *arg)
{
	BuildState *build = arg;
	EntryArray *array = (alive || !build->unique) ? &build->live : &build->dead;
	uint8	   *entry;
	uint64		row;

	entry = array_add(build, array);
	index_form_entry(build->keys, values, isnull, tid, entry);
	if (tree_entry_tuple(build->tree, entry) != NULL)
		array->tuples++;
	else if (build->sort != NULL && array == &build->live)
	{
		sort_put(build, entry);
		return;
	}
	row = tree_entry_row(build->tree, entry);
	if (row < build->last_row)
		build->rows_ascend = false;
	build->last_row = row;
	array->n++;

	if (array == &build->live && array->n >= build->limit)
		make_room(build);
}

/* ---- uniqueness ---- */

static bool
has_null(BuildState *build, const uint8 *entry)
{
	int			i;

	for (i = 0; i < build->keys->format.nkeys; i++)
	{
		bool		isnull;

		(void) keys_entry_column(build->keys, entry, i, &isnull);
		if (isnull)
			return true;
	}
	return false;
}

static void
raise_duplicate(BuildState *build, Relation heap, const uint8 *entry)
{
	Relation	index = build->keys->index;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	char	   *key_desc;

	keys_deform(build->keys, entry, values, isnull);
	key_desc = BuildIndexValueDescription(index, values, isnull);
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("could not create unique index \"%s\"", RelationGetRelationName(index)),
			 key_desc ? errdetail("Key %s is duplicated.", key_desc) :
			 errdetail("Duplicate keys exist."),
			 errtableconstraint(heap, RelationGetRelationName(index))));
}

/* Neighbours of one leaf and the last entry before it */
static void
check_leaf(BuildState *build, Relation heap, TreeLeaf *leaf, uint8 *previous, bool *has_previous,
		   bool nulls_not_distinct)
{
	int			i;

	for (i = 0; i < leaf->n; i++)
	{
		uint8	   *entry = leaf->entries + i * build->stride;

		if (*has_previous && keys_equal(build->keys, previous, entry) &&
			(nulls_not_distinct || !has_null(build, entry)))
			raise_duplicate(build, heap, entry);
		memcpy(previous, entry, build->stride);
		*has_previous = true;
	}
}

/* The tree holds only live entries, and nobody else can see it. */
static void
check_unique(BuildState *build, Relation heap, bool nulls_not_distinct)
{
	MemoryContext context = AllocSetContextCreate(build->context, "sofort unique check",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TreeLeaf	leaf;
	EntryPlace	place;
	uint8		previous[TREE_MAX_STRIDE];
	bool		has_previous = false;
	bool		first = true;

	do
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (!first)
			keys_place(&place, build->keys, leaf.high, 0);
		epoch_enter();
		tree_read_leaf(build->tree, first ? NULL : &place.probe, false, NULL, NULL,
					   &build->keys->order, &leaf);
		epoch_exit();
		first = false;
		check_leaf(build, heap, &leaf, previous, &has_previous, nulls_not_distinct);
	} while (leaf.has_high);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* ---- all of it ---- */

static void
build_cleanup(int code, Datum arg)
{
	BuildState *build = (BuildState *) DatumGetPointer(arg);

	array_discard(build, &build->live);
	array_discard(build, &build->dead);
	if (build->tree != NULL)
		tree_destroy(build->tree);
	build->tree = NULL;
	build->keys->tree = NULL;
}

static void
build_run(BuildState *build, Relation heap, struct IndexInfo *info, bool every_version,
		  double *heap_tuples)
{
	uint64		i;

	*heap_tuples = heap->rd_tableam->index_build_range_scan(heap, build->keys->index, info,
															false, every_version, !every_version,
															0, InvalidBlockNumber,
															build_callback, build, NULL);
	if (build->sort != NULL)
		load_external_sort(build);
	flush_run(build);
	if (build->unique)
		check_unique(build, heap, info->ii_NullsNotDistinct);
	for (i = 0; i < build->dead.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		insert_entry(build, build->dead.entries + i * build->stride);
	}
	array_clear(&build->dead);
}

Tree *
build_tree(IndexKeys *keys, Relation heap, struct IndexInfo *info, TreePlacement placement,
		   bool unique, bool every_version, int fillfactor, double *heap_tuples)
{
	BuildState	build = {.keys = keys, .unique = unique, .rows_ascend = true,
	.fillfactor = fillfactor};

	index_new_tree(keys, placement, !every_version);
	build.tree = keys->tree;
	build.stride = build.tree->stride;
	build.cmp_len = build.tree->cmp_len;
	/* the radix sort needs the space twice */
	build.limit = Max(1000, (uint64) maintenance_work_mem * 1024 / build.stride / 2);

	SOFORT_ENSURE_ERROR_CLEANUP(build_cleanup, PointerGetDatum(&build));
	{
		build.context = AllocSetContextCreate(CurrentMemoryContext, "sofort index build",
											  ALLOCSET_DEFAULT_SIZES);
		build_run(&build, heap, info, every_version, heap_tuples);
	}
	SOFORT_END_ENSURE_ERROR_CLEANUP();
	MemoryContextDelete(build.context);
	return build.tree;
}
