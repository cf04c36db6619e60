/*-------------------------------------------------------------------------
 *
 * sizes.c
 *	  The functions that src/exec/sizes.c puts in place of pg_relation_size(),
 *	  pg_table_size(), pg_indexes_size() and pg_total_relation_size() in queries.
 *
 * Of a table: relation_size is that of the virtual blocks, as relpages counts
 * them; table_size its bytes in pool and DRAM, and its (empty) TOAST table.  Of
 * a sofort index: its bytes in pool and DRAM.  Everything else is answered by
 * PostgreSQL, and so is everything while there is no pool.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "sofort/exec/exec.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(sofort_relation_size);
PG_FUNCTION_INFO_V1(sofort_table_size);
PG_FUNCTION_INFO_V1(sofort_indexes_size);
PG_FUNCTION_INFO_V1(sofort_total_relation_size);

/* The store of a table of ours, else NULL */
static StoreHeader *
store_of(Relation rel)
{
	if ((rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW) ||
		rel->rd_rel->relam != exec_table_am_oid() || pool_status() != POOL_READY)
		return NULL;
	return store_find(relation_locator(rel));
}

static bool
is_our_index(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_INDEX && rel->rd_rel->relam == exec_index_am_oid() &&
		pool_status() == POOL_READY;
}

static int64
index_bytes(Relation index)
{
	IndexamStats stats = {0};

	indexam_stats(index, &stats);
	return (int64) (stats.bytes_dram + stats.bytes_pool);
}

/* Result of the function of PostgreSQL's dbsize.c; 0 if the relation is gone. */
static int64
by_postgres(PGFunction function, Oid relid)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(relid);
	fcinfo->args[0].isnull = false;
	result = function(fcinfo);
	return fcinfo->isnull ? 0 : DatumGetInt64(result);
}

static int64
table_bytes(Relation rel)
{
	StoreHeader *store = store_of(rel);
	StoreStats	stats;
	int64		bytes;

	if (is_our_index(rel))
		return index_bytes(rel);
	if (store == NULL)
		return by_postgres(pg_table_size, RelationGetRelid(rel));
	store_stats(store, NULL, &stats);
	bytes = (int64) (stats.bytes_pool + stats.bytes_dram);
	if (OidIsValid(rel->rd_rel->reltoastrelid))
		bytes += by_postgres(pg_total_relation_size, rel->rd_rel->reltoastrelid);
	return bytes;
}

static int64
indexes_bytes(Relation rel)
{
	List	   *indexes = rel->rd_rel->relhasindex ? RelationGetIndexList(rel) : NIL;
	int64		bytes = 0;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = try_relation_open(lfirst_oid(lc), AccessShareLock);

		if (index == NULL)
			continue;
		bytes += table_bytes(index);
		relation_close(index, AccessShareLock);
	}
	list_free(indexes);
	return bytes;
}

Datum
sofort_relation_size(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	text	   *fork = PG_NARGS() > 1 ? PG_GETARG_TEXT_PP(1) : cstring_to_text("main");
	Relation	rel = try_relation_open(relid, AccessShareLock);
	int64		bytes = -1;

	if (rel == NULL)
		PG_RETURN_NULL();
	if (strcmp(text_to_cstring(fork), "main") == 0)
	{
		if (is_our_index(rel))
			bytes = index_bytes(rel);
		else if (store_of(rel) != NULL)
			bytes = (int64) store_tid_blocks(store_open(rel)) * BLCKSZ;
	}
	if (bytes < 0)
		bytes = DatumGetInt64(DirectFunctionCall2(pg_relation_size, ObjectIdGetDatum(relid),
												  PointerGetDatum(fork)));
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(bytes);
}

static int64
total_bytes(Relation rel)
{
	return table_bytes(rel) + indexes_bytes(rel);
}

/* NULL for a relation that does not exist, as PostgreSQL's functions */
static Datum
size_of(FunctionCallInfo fcinfo, int64 (*bytes_of) (Relation rel))
{
	Relation	rel = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	int64		bytes;

	if (rel == NULL)
		PG_RETURN_NULL();
	bytes = bytes_of(rel);
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(bytes);
}

Datum
sofort_table_size(PG_FUNCTION_ARGS)
{
	return size_of(fcinfo, table_bytes);
}

Datum
sofort_indexes_size(PG_FUNCTION_ARGS)
{
	return size_of(fcinfo, indexes_bytes);
}

Datum
sofort_total_relation_size(PG_FUNCTION_ARGS)
{
	return size_of(fcinfo, total_bytes);
}
