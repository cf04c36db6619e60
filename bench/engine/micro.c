/*-------------------------------------------------------------------------
 *
 * micro.c
 *	  Single operations of an index or a table, timed in one backend.
 *
 *-------------------------------------------------------------------------
 */
#include "sofort_bench.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(bench_index_lookups);
PG_FUNCTION_INFO_V1(bench_index_inserts);
PG_FUNCTION_INFO_V1(bench_table_scan);

/* An index on one column of type integer, with its table */
static Relation
open_int4_index(Oid oid, LOCKMODE mode, Relation *rel)
{
	Relation	index;

	*rel = table_open(IndexGetRelation(oid, false), mode);
	index = index_open(oid, mode);
	if (IndexRelationGetNumberOfKeyAttributes(index) != 1 ||
		TupleDescAttr(RelationGetDescr(index), 0)->atttypid != INT4OID)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" must have one key column of type integer",
						RelationGetRelationName(index))));
	return index;
}

static void
check_range(int64 first, int64 last, int64 n)
{
	if (first > last || first < PG_INT32_MIN || last > PG_INT32_MAX || n < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("keys must be a range of integers, and at least one operation is needed")));
}

static int32
random_key(Random *r, int64 first, int64 last)
{
	return (int32) (first + (int64) random_between(r, 0, (uint64) (last - first)));
}

static double
ns_since(instr_time start, int64 n)
{
	instr_time	end;

	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	return INSTR_TIME_GET_DOUBLE(end) * 1e9 / (double) n;
}

Datum
bench_index_lookups(PG_FUNCTION_ARGS)
{
	int64		first = PG_GETARG_INT64(1);
	int64		last = PG_GETARG_INT64(2);
	int64		n = PG_GETARG_INT64(3);
	Random r = {.state = (uint64) PG_GETARG_INT64(4)};
	Relation	rel;
	Relation	index = open_int4_index(PG_GETARG_OID(0), AccessShareLock, &rel);
	IndexScanDesc scan;
	ScanKeyData key;
	instr_time	start;
	double		ns;

	check_range(first, last, n);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(0));
	key.sk_collation = InvalidOid;
#if PG_VERSION_NUM < 180000
	scan = index_beginscan(rel, index, GetActiveSnapshot(), 1, 0);
#else
	scan = index_beginscan(rel, index, GetActiveSnapshot(), NULL, 1, 0);
#endif
	INSTR_TIME_SET_CURRENT(start);
	for (int64 i = 0; i < n; i++)
	{
		int32		value = random_key(&r, first, last);

		key.sk_argument = Int32GetDatum(value);
		index_rescan(scan, &key, 1, NULL, 0);
		if (index_getnext_tid(scan, ForwardScanDirection) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_NO_DATA_FOUND),
					 errmsg("key %d is not in the index", value)));
		CHECK_FOR_INTERRUPTS();
	}
	ns = ns_since(start, n);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	PG_RETURN_FLOAT8(ns);
}

/* Entries without rows: row ids beyond the table's. */
Datum
bench_index_inserts(PG_FUNCTION_ARGS)
{
	int64		first = PG_GETARG_INT64(1);
	int64		last = PG_GETARG_INT64(2);
	int64		n = PG_GETARG_INT64(3);
	Random r = {.state = (uint64) PG_GETARG_INT64(4)};
	Relation	rel;
	Relation	index = open_int4_index(PG_GETARG_OID(0), RowExclusiveLock, &rel);
	IndexInfo  *info = BuildIndexInfo(index);
	MemoryContext per_insert = AllocSetContextCreate(CurrentMemoryContext, "index insert",
													 ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(per_insert);
	instr_time	start;
	double		ns;

	check_range(first, last, n);
	if (index->rd_index->indisunique)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" must not be unique", RelationGetRelationName(index))));
	INSTR_TIME_SET_CURRENT(start);
	for (int64 i = 0; i < n; i++)
	{
		Datum		value = Int32GetDatum(random_key(&r, first, last));
		bool		isnull = false;
		ItemPointerData tid;

		ItemPointerSet(&tid, (BlockNumber) (0x40000000 + i / 200), (OffsetNumber) (i % 200 + 1));
		index_insert(index, &value, &isnull, &tid, rel, UNIQUE_CHECK_NO, false, info);
		MemoryContextReset(per_insert);
		CHECK_FOR_INTERRUPTS();
	}
	ns = ns_since(start, n);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(per_insert);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	PG_RETURN_FLOAT8(ns);
}

Datum
bench_table_scan(PG_FUNCTION_ARGS)
{
	AttrNumber	attnum = (AttrNumber) PG_GETARG_INT32(1);
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan;
	TupleDesc	result;
	Datum		values[3];
	bool		nulls[3] = {0};
	int64		rows = 0;
	int64		sum = 0;
	instr_time	start;
	Oid			type;

	if (get_call_result_type(fcinfo, NULL, &result) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (attnum < 1 || attnum > RelationGetDescr(rel)->natts)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("table \"%s\" has no column number %d", RelationGetRelationName(rel),
						attnum)));
	type = TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid;
	if (type != INT2OID && type != INT4OID && type != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the column must be of type smallint, integer or bigint")));

	INSTR_TIME_SET_CURRENT(start);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, attnum, &isnull);

		if (!isnull)
			sum += type == INT2OID ? DatumGetInt16(value) :
				type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
		rows++;
		CHECK_FOR_INTERRUPTS();
	}
	table_endscan(scan);
	values[2] = Float8GetDatum(ns_since(start, Max(rows, 1)));
	values[0] = Int64GetDatum(rows);
	values[1] = Int64GetDatum(sum);

	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(result), values, nulls)));
}
