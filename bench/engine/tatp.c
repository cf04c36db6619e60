/*-------------------------------------------------------------------------
 *
 * tatp.c
 *	  TATP's seven transactions through PostgreSQL's table and index access
 *	  method interfaces, without parser, planner, executor and protocol.
 *
 * What the executor would do for them is done here: locks on relations,
 * index entries of new rows, the check of the foreign key of call_forwarding
 * (with its row lock), following an update by another transaction.  Runs on
 * any access methods, so that heap with btrees is measured by the same code.
 *
 *-------------------------------------------------------------------------
 */
#include "sofort_bench.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../tatp/keys.h"

#define SF_TYPES		4
#define NUMBER_DIGITS	15

/* Did an update leave a version that needs index entries of its own? */
#if PG_VERSION_NUM < 160000
typedef bool UpdatedIndexes;
#define NEEDS_ENTRIES(u)	(u)
#else
typedef TU_UpdateIndexes UpdatedIndexes;
#define NEEDS_ENTRIES(u)	((u) == TU_All)
#endif

/* A table, how to find a row, and slots that outlive transactions. */
typedef struct BenchTable
{
	Oid			oid;
	Oid			primary;		/* index */
	Oid			by_number;		/* index on sub_nbr, or invalid */
	TupleDesc	tupdesc;
	TupleTableSlot *slot;
	TupleTableSlot *written;	/* virtual */
} BenchTable;

static BenchTable subscriber;
static BenchTable access_info;
static BenchTable special_facility;
static BenchTable call_forwarding;

/* 0-based */
static int	bit_1_att;
static int	vlr_location_att;
static int	is_active_att;
static int	data_a_att;
static int	end_time_att;

static uint64 nsubscribers;

/* ---- looking up names, once ---- */

static int
attribute(Oid rel, const char *name)
{
	AttrNumber	attnum = get_attnum(rel, name);

	if (attnum == InvalidAttrNumber)
		elog(ERROR, "table \"%s\" has no column \"%s\"", get_rel_name(rel), name);
	return attnum - 1;
}

static Oid
index_on(Relation rel, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;
	Oid			found = InvalidOid;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (index->rd_index->indnkeyatts == 1 && index->rd_index->indkey.values[0] == attnum)
			found = RelationGetRelid(index);
		index_close(index, AccessShareLock);
	}
	if (!OidIsValid(found))
		elog(ERROR, "table \"%s\" has no index on \"%s\"", RelationGetRelationName(rel), column);
	return found;
}

static void
open_table(BenchTable *t, Oid schema, const char *name)
{
	Relation	rel;
	MemoryContext old;

	t->oid = get_relname_relid(name, schema);
	if (!OidIsValid(t->oid))
		elog(ERROR, "there is no table \"%s\"", name);
	rel = table_open(t->oid, AccessShareLock);
	(void) RelationGetIndexList(rel);
	t->primary = rel->rd_pkindex;
	if (!OidIsValid(t->primary))
		elog(ERROR, "table \"%s\" has no primary key", name);
	old = MemoryContextSwitchTo(TopMemoryContext);
	t->tupdesc = CreateTupleDescCopy(RelationGetDescr(rel));
	t->slot = MakeSingleTupleTableSlot(t->tupdesc, table_slot_callbacks(rel));
	t->written = MakeSingleTupleTableSlot(t->tupdesc, &TTSOpsVirtual);
	MemoryContextSwitchTo(old);
	if (t == &subscriber)
		t->by_number = index_on(rel, "sub_nbr");
	table_close(rel, AccessShareLock);
}

void
tatp_open(Oid schema, int32 subscribers)
{
	open_table(&subscriber, schema, "subscriber");
	open_table(&access_info, schema, "access_info");
	open_table(&special_facility, schema, "special_facility");
	open_table(&call_forwarding, schema, "call_forwarding");
	bit_1_att = attribute(subscriber.oid, "bit_1");
	vlr_location_att = attribute(subscriber.oid, "vlr_location");
	is_active_att = attribute(special_facility.oid, "is_active");
	data_a_att = attribute(special_facility.oid, "data_a");
	end_time_att = attribute(call_forwarding.oid, "end_time");
	nsubscribers = subscribers;
}

/* ---- keys ---- */

static int32
any_subscriber(Random *r)
{
	return (int32) tatp_any_subscriber(r, nsubscribers);
}

/* sub_nbr: 15 digits, as a text datum in the buffer */
typedef union NumberBuffer
{
	char		data[VARHDRSZ + NUMBER_DIGITS + 1];
	int32		align;
} NumberBuffer;

static Datum
number_datum(uint64 number, NumberBuffer *buffer)
{
	SET_VARSIZE(buffer->data, VARHDRSZ + NUMBER_DIGITS);
	for (int i = NUMBER_DIGITS - 1; i >= 0; i--, number /= 10)
		buffer->data[VARHDRSZ + i] = '0' + number % 10;
	return PointerGetDatum(buffer->data);
}

static void
int4_key(ScanKey key, int column, int32 value)
{
	ScanKeyInit(key, column, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(value));
}

static void
int2_key(ScanKey key, int column, StrategyNumber strategy, RegProcedure function, int16 value)
{
	ScanKeyInit(key, column, strategy, function, Int16GetDatum(value));
}

/* ---- one table in one transaction ---- */

typedef struct Access
{
	BenchTable *table;
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
} Access;

static void
access_begin(Access *a, BenchTable *table, Oid index, LOCKMODE mode, ScanKey keys, int nkeys)
{
	a->table = table;
	a->rel = table_open(table->oid, mode);
	a->index = index_open(index, mode);
	/* as the executor does; ScanKeyInit() thinks of catalogs */
	for (int i = 0; i < nkeys; i++)
		keys[i].sk_collation = a->index->rd_indcollation[keys[i].sk_attno - 1];
#if PG_VERSION_NUM < 180000
	a->scan = index_beginscan(a->rel, a->index, GetActiveSnapshot(), nkeys, 0);
#else
	a->scan = index_beginscan(a->rel, a->index, GetActiveSnapshot(), NULL, nkeys, 0);
#endif
	index_rescan(a->scan, keys, nkeys, NULL, 0);
}

static bool
access_next(Access *a)
{
	return index_getnext_slot(a->scan, ForwardScanDirection, a->table->slot);
}

static void
access_end(Access *a)
{
	index_endscan(a->scan);
	ExecClearTuple(a->table->slot);
	index_close(a->index, NoLock);
	table_close(a->rel, NoLock);
}

static Datum
column(BenchTable *t, int att)
{
	bool		isnull;

	return slot_getattr(t->slot, att + 1, &isnull);
}

/* ---- changing the row in the slot ---- */

/* READ COMMITTED: another transaction has changed the row; go on with its
 * version, which has the same key.  False: it was deleted. */
static bool
lock_newest(Access *a, LockTupleMode mode)
{
	TM_FailureData failure;
	ItemPointerData tid = a->table->slot->tts_tid;

	return table_tuple_lock(a->rel, &tid, GetActiveSnapshot(), a->table->slot,
							GetCurrentCommandId(false), mode, LockWaitBlock,
							TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) == TM_Ok;
}

static void
insert_entries(Relation rel, TupleTableSlot *slot, IndexUniqueCheck check, bool unchanged)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), RowExclusiveLock);
		IndexInfo  *info = BuildIndexInfo(index);
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		FormIndexDatum(info, slot, NULL, values, isnull);
		index_insert(index, values, isnull, &slot->tts_tid, rel, check, unchanged, info);
		index_close(index, NoLock);
	}
	list_free(indexes);
}

/* One column becomes value.  No index covers it. */
static bool
update_column(Access *a, int att, Datum value)
{
	TupleTableSlot *old = a->table->slot;
	TupleTableSlot *written = a->table->written;
	int			natts = a->table->tupdesc->natts;

	for (;;)
	{
		TM_FailureData failure;
		LockTupleMode mode;
		TM_Result	result;
		UpdatedIndexes update_indexes;

		slot_getallattrs(old);
		ExecClearTuple(written);
		memcpy(written->tts_values, old->tts_values, natts * sizeof(Datum));
		memcpy(written->tts_isnull, old->tts_isnull, natts * sizeof(bool));
		written->tts_values[att] = value;
		written->tts_isnull[att] = false;
		ExecStoreVirtualTuple(written);
		result = table_tuple_update(a->rel, &old->tts_tid, written, GetCurrentCommandId(true),
									GetActiveSnapshot(), InvalidSnapshot, true, &failure, &mode,
									&update_indexes);
		if (result == TM_Ok)
		{
			/* heap: the page was full, so the version is not heap-only */
			if (NEEDS_ENTRIES(update_indexes))
				insert_entries(a->rel, written, UNIQUE_CHECK_NO, true);
			ExecClearTuple(written);
			return true;
		}
		if (result != TM_Updated || !lock_newest(a, LockTupleNoKeyExclusive))
			return false;
	}
}

static bool
delete_row(Access *a)
{
	TM_FailureData failure;
	TM_Result	result;

	do
	{
		result = table_tuple_delete(a->rel, &a->table->slot->tts_tid, GetCurrentCommandId(true),
									GetActiveSnapshot(), InvalidSnapshot, true, &failure, false);
	} while (result == TM_Updated && lock_newest(a, LockTupleExclusive));
	return result == TM_Ok;
}

/* ---- the transactions ---- */

static bool
get_row(BenchTable *t, ScanKey keys, int nkeys)
{
	Access		a;
	bool		found;

	access_begin(&a, t, t->primary, AccessShareLock, keys, nkeys);
	found = access_next(&a);
	if (found)
		slot_getallattrs(t->slot);
	access_end(&a);
	return found;
}

static bool
get_subscriber_data(Random *r)
{
	ScanKeyData keys[1];

	int4_key(&keys[0], 1, any_subscriber(r));
	return get_row(&subscriber, keys, 1);
}

static bool
get_access_data(Random *r)
{
	ScanKeyData keys[2];

	int4_key(&keys[0], 1, any_subscriber(r));
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, (int16) random_between(r, 1, 4));
	return get_row(&access_info, keys, 2);
}

static bool
get_new_destination(Random *r)
{
	int32		s_id = any_subscriber(r);
	int16		sf_type = (int16) random_between(r, 1, SF_TYPES);
	int16		start_time = (int16) (random_between(r, 0, 2) * 8);
	int16		end_time = (int16) random_between(r, 1, 24);
	ScanKeyData keys[3];
	Access		a;
	bool		active;
	int			n = 0;

	int4_key(&keys[0], 1, s_id);
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, sf_type);
	access_begin(&a, &special_facility, special_facility.primary, AccessShareLock, keys, 2);
	active = access_next(&a) && DatumGetInt16(column(&special_facility, is_active_att)) == 1;
	access_end(&a);
	if (!active)
		return false;

	int2_key(&keys[2], 3, BTLessEqualStrategyNumber, F_INT2LE, start_time);
	access_begin(&a, &call_forwarding, call_forwarding.primary, AccessShareLock, keys, 3);
	while (access_next(&a))
	{
		if (end_time < DatumGetInt16(column(&call_forwarding, end_time_att)))
			n++;
	}
	access_end(&a);
	return n > 0;
}

static bool
update_location(Random *r)
{
	NumberBuffer number;
	ScanKeyData keys[1];
	Access		a;
	bool		updated;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_TEXTEQ,
				number_datum(any_subscriber(r), &number));
	access_begin(&a, &subscriber, subscriber.by_number, RowExclusiveLock, keys, 1);
	updated = access_next(&a) &&
		update_column(&a, vlr_location_att, Int64GetDatum(random_between(r, 1, PG_UINT32_MAX)));
	access_end(&a);
	return updated;
}

static bool
update_subscriber_data(Random *r)
{
	int32		s_id = any_subscriber(r);
	ScanKeyData keys[2];
	Access		a;
	bool		updated;

	int4_key(&keys[0], 1, s_id);
	access_begin(&a, &subscriber, subscriber.primary, RowExclusiveLock, keys, 1);
	updated = access_next(&a) &&
		update_column(&a, bit_1_att, Int16GetDatum(random_between(r, 0, 1)));
	access_end(&a);
	if (!updated)
		return false;

	CommandCounterIncrement();
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, (int16) random_between(r, 1, SF_TYPES));
	access_begin(&a, &special_facility, special_facility.primary, RowExclusiveLock, keys, 2);
	updated = access_next(&a) &&
		update_column(&a, data_a_att, Int16GetDatum(random_between(r, 0, 255)));
	access_end(&a);
	return updated;
}

/* SELECT s_id FROM subscriber WHERE sub_nbr = ... */
static bool
find_subscriber(int32 s_id)
{
	NumberBuffer number;
	ScanKeyData keys[1];
	Access		a;
	bool		found;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_TEXTEQ, number_datum(s_id, &number));
	access_begin(&a, &subscriber, subscriber.by_number, AccessShareLock, keys, 1);
	found = access_next(&a) && DatumGetInt32(column(&subscriber, 0)) == s_id;
	access_end(&a);
	return found;
}

/* SELECT sf_type FROM special_facility WHERE s_id = ... */
static void
list_facilities(int32 s_id)
{
	ScanKeyData keys[1];
	Access		a;

	int4_key(&keys[0], 1, s_id);
	access_begin(&a, &special_facility, special_facility.primary, AccessShareLock, keys, 1);
	while (access_next(&a))
		(void) column(&special_facility, 1);
	access_end(&a);
}

/* What the trigger of the foreign key does. */
static bool
lock_facility(int32 s_id, int16 sf_type)
{
	ScanKeyData keys[2];
	Access		a;
	bool		locked = false;

	int4_key(&keys[0], 1, s_id);
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, sf_type);
	access_begin(&a, &special_facility, special_facility.primary, RowShareLock, keys, 2);
	if (access_next(&a))
		locked = lock_newest(&a, LockTupleKeyShare);
	access_end(&a);
	return locked;
}

static void
insert_row(BenchTable *t)
{
	Relation	rel = table_open(t->oid, RowExclusiveLock);

	t->written->tts_tableOid = t->oid;
	table_tuple_insert(rel, t->written, GetCurrentCommandId(true), 0, NULL);
	insert_entries(rel, t->written, UNIQUE_CHECK_YES, false);
	table_close(rel, NoLock);
}

/*
 * The key is looked up before, because an error costs more than a benchmark of
 * access methods should see; a worker that is overtaken gets the error.
 */
static bool
insert_call_forwarding(Random *r)
{
	int32		s_id = any_subscriber(r);
	int16		sf_type = (int16) random_between(r, 1, SF_TYPES);
	int16		start_time = (int16) (random_between(r, 0, 2) * 8);
	NumberBuffer number;
	TupleTableSlot *slot = call_forwarding.written;
	ScanKeyData keys[3];

	if (!find_subscriber(s_id))
		return false;
	list_facilities(s_id);

	int4_key(&keys[0], 1, s_id);
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, sf_type);
	int2_key(&keys[2], 3, BTEqualStrategyNumber, F_INT2EQ, start_time);
	if (get_row(&call_forwarding, keys, 3))
		return false;

	ExecClearTuple(slot);
	memset(slot->tts_isnull, 0, call_forwarding.tupdesc->natts * sizeof(bool));
	slot->tts_values[0] = Int32GetDatum(s_id);
	slot->tts_values[1] = Int16GetDatum(sf_type);
	slot->tts_values[2] = Int16GetDatum(start_time);
	slot->tts_values[3] = Int16GetDatum(start_time + (int16) random_between(r, 1, 8));
	slot->tts_values[4] = number_datum(random_between(r, 0, UINT64CONST(999999999999999)), &number);
	ExecStoreVirtualTuple(slot);
	insert_row(&call_forwarding);
	ExecClearTuple(slot);

	CommandCounterIncrement();
	return lock_facility(s_id, sf_type);
}

static bool
delete_call_forwarding(Random *r)
{
	int32		s_id = any_subscriber(r);
	ScanKeyData keys[3];
	Access		a;
	bool		deleted;

	if (!find_subscriber(s_id))
		return false;
	int4_key(&keys[0], 1, s_id);
	int2_key(&keys[1], 2, BTEqualStrategyNumber, F_INT2EQ, (int16) random_between(r, 1, SF_TYPES));
	int2_key(&keys[2], 3, BTEqualStrategyNumber, F_INT2EQ, (int16) (random_between(r, 0, 2) * 8));
	access_begin(&a, &call_forwarding, call_forwarding.primary, RowExclusiveLock, keys, 3);
	deleted = access_next(&a) && delete_row(&a);
	access_end(&a);
	return deleted;
}

bool
tatp_run(TatpTransaction which, Random *r)
{
	switch (which)
	{
		case TATP_GET_SUBSCRIBER_DATA:
			return get_subscriber_data(r);
		case TATP_GET_NEW_DESTINATION:
			return get_new_destination(r);
		case TATP_GET_ACCESS_DATA:
			return get_access_data(r);
		case TATP_UPDATE_SUBSCRIBER_DATA:
			return update_subscriber_data(r);
		case TATP_UPDATE_LOCATION:
			return update_location(r);
		case TATP_INSERT_CALL_FORWARDING:
			return insert_call_forwarding(r);
		case TATP_DELETE_CALL_FORWARDING:
			return delete_call_forwarding(r);
		case TATP_TRANSACTIONS:
			break;
	}
	return false;
}
