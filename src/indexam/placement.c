/*-------------------------------------------------------------------------
 *
 * placement.c
 *	  Where the tree of an index lies: in DRAM, in the pool, or both.
 *
 * The storage parameter decides, when the index is built (CREATE INDEX, REINDEX,
 * rewrites); without it: DRAM.  An index that is created without it gets it from the
 * setting of the session.  A tree in the pool knows its placement; an index that has
 * none there is in DRAM.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "am_internal.h"

int			sofort_index_placement = TREE_DRAM;

const char *
placement_name(TreePlacement placement)
{
	static const char *const names[] = {"dram", "pmem", "hybrid"};

	return names[placement];
}

/*
 * Raises 0A000 for unlogged tables: a crash empties them, so nothing of their indexes is
 * worth keeping.
 */
TreePlacement
placement_for_build(Relation index)
{
	TreePlacement placement = TREE_DRAM;

	(void) am_placement(index, &placement);
	if (placement != TREE_DRAM && index->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index placement \"%s\" is not supported for unlogged tables",
						placement_name(placement)),
				 errdetail("Index \"%s\" has that placement.", RelationGetRelationName(index)),
				 errhint("Leave the parameter out, or use ALTER INDEX ... SET (placement = dram) first.")));
	return placement;
}

void
indexam_check_placement(Oid index_oid)
{
	Relation	index = index_open(index_oid, NoLock);

	if (am_is_ours(index))
		(void) placement_for_build(index);
	index_close(index, NoLock);
}

static bool
has_placement(Datum options)
{
	ListCell   *lc;

	foreach(lc, untransformRelOptions(options))
		if (strcmp(lfirst_node(DefElem, lc)->defname, "placement") == 0)
			return true;
	return false;
}

/* A new index: options are its reloptions so far. */
static void
set_placement(Relation pg_class, HeapTuple tuple, Datum options)
{
	DefElem    *element = makeDefElem("placement",
									  (Node *) makeString(pstrdup(placement_name(sofort_index_placement))),
									  -1);
	Datum		values[Natts_pg_class] = {0};
	bool		nulls[Natts_pg_class] = {0};
	bool		replace[Natts_pg_class] = {0};
	HeapTuple	changed;

	values[Anum_pg_class_reloptions - 1] = transformRelOptions(options, list_make1(element),
															   NULL, NULL, false, false);
	replace[Anum_pg_class_reloptions - 1] = true;
	changed = heap_modify_tuple(tuple, RelationGetDescr(pg_class), values, nulls, replace);
	/* PostgreSQL demands this of code that updates pg_class with only ShareLock on the table */
	LockTuple(pg_class, &tuple->t_self, ExclusiveLock);
	CatalogTupleUpdate(pg_class, &changed->t_self, changed);
	UnlockTuple(pg_class, &tuple->t_self, ExclusiveLock);
	heap_freetuple(changed);
	CommandCounterIncrement();
}

void
indexam_default_placement(Oid index_oid)
{
	Relation	pg_class;
	HeapTuple	tuple;
	Form_pg_class form;
	Datum		options;
	bool		isnull;

	if (sofort_index_placement == TREE_DRAM)
		return;
	pg_class = table_open(RelationRelationId, RowExclusiveLock);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index_oid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index_oid);
	form = (Form_pg_class) GETSTRUCT(tuple);
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	if (isnull)
		options = (Datum) 0;
	if (form->relkind == RELKIND_INDEX && form->relpersistence == RELPERSISTENCE_PERMANENT &&
		!has_placement(options))
		set_placement(pg_class, tuple, options);
	ReleaseSysCache(tuple);
	table_close(pg_class, RowExclusiveLock);
}

TreePlacement
placement_for_rebuild(Relation index)
{
	StoreHeader *store = store_find_tree(relation_locator(index));
	TreePlacement placement = TREE_DRAM;

	if (index->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		return TREE_DRAM;		/* even if ALTER INDEX has accepted another one */
	if (store != NULL && store->tree != PM_NULL && tree_header_problem(store) == NULL)
		return ((TreeHeader *) pm_deref(store->tree))->placement;
	(void) am_placement(index, &placement);
	return placement;
}

/* ---- collations ---- */

/* Hash of the collation's current version, as its provider has it; 0: it has none. */
static uint64
collation_version(Oid collation)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		version;
	char	   *name;
	uint64		hash;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(collation);
	fcinfo->args[0].isnull = false;
	version = compat_collation_actual_version(fcinfo);
	if (fcinfo->isnull)
		return 0;
	name = text_to_cstring(DatumGetTextPP(version));
	hash = hash_bytes_extended((unsigned char *) name, strlen(name), 0);
	pfree(name);
	return hash;
}

/* One number for the versions of all collations that the order depends on */
static uint64
collation_versions(const IndexKeys *keys)
{
	uint64		hash = 0;
	int			i;

	for (i = 0; i < keys->format.nkeys; i++)
	{
		Oid			collation = keys->format.columns[i].collation;

		if (OidIsValid(collation) && collation != C_COLLATION_OID)
			hash = hash_combine64(hash, collation_version(collation));
	}
	return hash;
}

/* ---- trees ---- */

void
index_new_tree(IndexKeys *keys, TreePlacement placement, bool logged)
{
	const KeyFormat *format = &keys->format;
	StoreHeader *store;

	/* an index whose file this transaction has made goes with it, in any case */
	logged = logged || keys->index->rd_createSubid != InvalidSubTransactionId ||
		compat_has_new_file(keys->index);
	if (placement == TREE_DRAM)
	{
		/* an earlier tree of this file does not fit any more */
		store = store_find_tree(relation_locator(keys->index));
		if (store != NULL)
			store_drop_now(store_id_of(store));
		keys->tree = tree_create(format->key_len, format->has_tuples);
	}
	else
	{
		keys->tree = NULL;
		store = store_create_tree(keys->index, logged);
		pending_drop_incomplete(store_id_of(store));
		keys->tree = tree_create_in_pool(store, placement, format->key_len, format->has_tuples,
										 format, format->size, collation_versions(keys),
										 registry_grow_lock(store_id_of(store)));
	}
	if (keys->tree == NULL)
		index_tree_full(keys);
}

Tree *
index_open_tree(IndexKeys *keys)
{
	StoreHeader *store = store_find_tree(relation_locator(keys->index));
	const TreeHeader *header;
	Tree	   *tree;

	if (store == NULL)
		return NULL;
	if (keys->index->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		return NULL;			/* it may be older than the crash that has emptied the table */
	if (store_header_problem(store) != NULL)
		tree_damaged(store_header_problem(store));
	if ((store_flags(store) & STORE_TREE_COMPLETE) == 0)
		return NULL;
	if (tree_header_problem(store) != NULL)
		tree_damaged(tree_header_problem(store));
	header = pm_deref(store->tree);
	if (header->format_size != keys->format.size ||
		memcmp(header->format, &keys->format, keys->format.size) != 0)
		return NULL;
	if (header->collations != collation_versions(keys))
	{
		ereport(LOG,
				(errmsg("sofort index \"%s\" is rebuilt, because the version of a collation has changed",
						RelationGetRelationName(keys->index))));
		return NULL;
	}
	tree = tree_open(store, registry_grow_lock(store_id_of(store)));
	if (tree == NULL)
		index_tree_full(keys);
	return tree;
}
