/*-------------------------------------------------------------------------
 *
 * sofort_test.c
 *	  Functions of the extension sofort_test, for superusers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/clog.h"
#include "access/commit_ts.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sofort/txn/kept.h"
#include "sofort/compat/compat.h"
#include "sofort/exec/exec.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/txn.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/xid8.h"

PG_FUNCTION_INFO_V1(sofort_test_resume_waiting);
PG_FUNCTION_INFO_V1(sofort_test_age_outcomes);
PG_FUNCTION_INFO_V1(sofort_test_kept_records);
PG_FUNCTION_INFO_V1(sofort_test_limit_kept_records);
PG_FUNCTION_INFO_V1(sofort_test_lock_entries);
PG_FUNCTION_INFO_V1(sofort_test_release_steps);
PG_FUNCTION_INFO_V1(sofort_test_former_steps);
PG_FUNCTION_INFO_V1(sofort_test_heap_insert);
PG_FUNCTION_INFO_V1(sofort_test_arm);
PG_FUNCTION_INFO_V1(sofort_test_disarm);
PG_FUNCTION_INFO_V1(sofort_test_waiters);
PG_FUNCTION_INFO_V1(sofort_test_passages);
PG_FUNCTION_INFO_V1(sofort_test_flush_counters);
PG_FUNCTION_INFO_V1(sofort_test_burn_xids);
PG_FUNCTION_INFO_V1(sofort_test_fill_pool);
PG_FUNCTION_INFO_V1(sofort_test_set_generations);
PG_FUNCTION_INFO_V1(sofort_test_fill_arena);
PG_FUNCTION_INFO_V1(sofort_test_empty_arena);
PG_FUNCTION_INFO_V1(sofort_test_use_arena);
PG_FUNCTION_INFO_V1(sofort_test_give_back_free);
PG_FUNCTION_INFO_V1(sofort_test_reserve_and_error);
PG_FUNCTION_INFO_V1(sofort_test_allocations);
PG_FUNCTION_INFO_V1(sofort_test_rebuild);
PG_FUNCTION_INFO_V1(sofort_test_hashes);
PG_FUNCTION_INFO_V1(sofort_test_zones);

/* ---- stop points ---- */

static FaultAction
parse_action(const char *name)
{
	if (strcmp(name, "wait") == 0)
		return FAULT_WAIT;
	if (strcmp(name, "kill") == 0)
		return FAULT_KILL;
	if (strcmp(name, "kill_backend") == 0)
		return FAULT_KILL_BACKEND;
	if (strcmp(name, "error") == 0)
		return FAULT_ERROR;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown action \"%s\"", name),
			 errhint("Actions are wait, kill, kill_backend and error.")));
}

static char *
point_name(const text *name)
{
	char	   *point = text_to_cstring(name);

	if (strlen(point) > 64)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("name of a stop point is longer than 64 bytes")));
	return point;
}

Datum
sofort_test_arm(PG_FUNCTION_ARGS)
{
	int			nth = PG_GETARG_INT32(2);

	if (nth < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("passages are counted from 1")));
	fault_arm(point_name(PG_GETARG_TEXT_PP(0)),
			  parse_action(text_to_cstring(PG_GETARG_TEXT_PP(1))), nth);
	PG_RETURN_VOID();
}

Datum
sofort_test_disarm(PG_FUNCTION_ARGS)
{
	fault_disarm(PG_ARGISNULL(0) ? NULL : point_name(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

Datum
sofort_test_waiters(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(fault_waiters(point_name(PG_GETARG_TEXT_PP(0))));
}

Datum
sofort_test_passages(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) fault_passages(point_name(PG_GETARG_TEXT_PP(0))));
}

/* ---- counters ---- */

Datum
sofort_test_flush_counters(PG_FUNCTION_ARGS)
{
	const PmCounters *counters = pm_counters();
	TupleDesc	tupdesc;
	Datum		values[5];
	bool		nulls[5] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int64GetDatum((int64) counters->lines_flushed);
	values[1] = Int64GetDatum((int64) counters->drains);
	values[2] = Int64GetDatum((int64) counters->bytes_copied);
	values[3] = Int64GetDatum((int64) counters->read_delays);
	values[4] = Int64GetDatum((int64) counters->write_delays);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/* ---- transaction ids ---- */

/*
 * Jumps to the start of a page of the commit log and makes that page, and the
 * one of commit timestamps; the pages in between are never asked for.  Not beyond the limit that wraparound
 * protection sets: VACUUM FREEZE all databases and go on.
 */
Datum
sofort_test_burn_xids(PG_FUNCTION_ARGS)
{
	const uint64 page = BLCKSZ * 4; /* transactions per commit log page */
	const uint64 ts_page = BLCKSZ / 10; /* and per page of commit timestamps */
	int64		n = PG_GETARG_INT64(0);
	uint64		target;
	TransactionId xid;

	if (n < 0 || n > (INT64CONST(1) << 30))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("number of transaction ids must be between 0 and 2^30")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("this transaction has a transaction id already")));

	LWLockAcquire(XidGenLock, LW_EXCLUSIVE);
	target = U64FromFullTransactionId(TransamVariables->nextXid) + (uint64) n;
	target = (target / page + 1) * page;
	if (!TransactionIdIsNormal((TransactionId) target))
		target += page;
	xid = (TransactionId) target;
	if (TransactionIdFollowsOrEquals(xid, TransamVariables->xidStopLimit))
	{
		LWLockRelease(XidGenLock);
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("that would pass the limit of transaction id wraparound"),
				 errhint("VACUUM FREEZE all databases first.")));
	}
	ExtendCLOG(xid);
	/* (does nothing but at the first one of a page) */
	ExtendCommitTs((TransactionId) (xid - xid % ts_page));
	ExtendSUBTRANS(xid);
	TransamVariables->nextXid = FullTransactionIdFromU64(target);
	LWLockRelease(XidGenLock);

	PG_RETURN_FULLTRANSACTIONID(GetTopFullTransactionId());
}

/* ---- full memories ---- */

/* A reference in the pool that never holds anything: what is reserved for it
 * is free after a crash. */
static PMPtr *
no_link(void)
{
	pool_require();
	return (PMPtr *) &PoolSuper->pad1[0];
}

Datum
sofort_test_fill_pool(PG_FUNCTION_ARGS)
{
	int64		leave = PG_GETARG_INT64(0);
	PMPtr	   *link = no_link();
	int64		taken = 0;

	/* (a backend can hold 16 reservations; leave some to the session) */
	for (int i = 0; i < 8; i++)
	{
		PoolUsage	usage;
		PmReservation reservation;
		int64		want;

		pool_usage(&usage);
		want = (int64) (usage.quota_bytes - usage.used_bytes) - leave;
		want = Min(want, INT64CONST(1) << 30);
		if (want < PM_GRANULE)
			break;
		want -= want % PM_GRANULE;
		pm_reserve(&reservation, PM_OWNER_POOL, want, link, 1, 0);
		taken += want;
	}
	PG_RETURN_INT64(taken);
}

typedef struct Taken
{
	struct Taken *next;
} Taken;

static Taken *taken_list = NULL;

Datum
sofort_test_fill_arena(PG_FUNCTION_ARGS)
{
	int64		leave = PG_GETARG_INT64(0);
	int64		taken = 0;
	Size		size = 64 * 1024 * 1024;

	pool_require();
	while (size >= 4096)
	{
		PoolUsage	usage;
		Taken	   *t = NULL;

		CHECK_FOR_INTERRUPTS();
		pool_usage(&usage);
		if ((int64) (usage.dram_total - usage.dram_used) - leave >= (int64) size)
			t = arena_alloc(size, ARENA_NO_OOM);
		if (t == NULL)
			size /= 2;
		else
		{
			t->next = taken_list;
			taken_list = t;
			taken += size;
		}
	}
	PG_RETURN_INT64(taken);
}

Datum
sofort_test_empty_arena(PG_FUNCTION_ARGS)
{
	while (taken_list)
	{
		Taken	   *t = taken_list;

		taken_list = t->next;
		arena_free(t);
	}
	PG_RETURN_VOID();
}

/* Pieces of that size are taken under the lock of the whole arena. */
Datum
sofort_test_use_arena(PG_FUNCTION_ARGS)
{
	pool_require();
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		arena_free(arena_alloc(1024 * 1024, 0));
	}
	PG_RETURN_VOID();
}

Datum
sofort_test_give_back_free(PG_FUNCTION_ARGS)
{
	pool_require();
	pm_give_back_free();
	PG_RETURN_VOID();
}

Datum
sofort_test_reserve_and_error(PG_FUNCTION_ARGS)
{
	PmReservation reservation;
	int64		bytes = PG_GETARG_INT64(0);

	if (bytes < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of bytes must be positive")));
	pm_reserve(&reservation, PM_OWNER_POOL, (Size) bytes, no_link(), 1, 0);
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("error after a reservation of %lld bytes", (long long) reservation.size)));
}

/* ---- generations ---- */

Datum
sofort_test_set_generations(PG_FUNCTION_ARGS)
{
	pool_require();
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("this transaction has a transaction id already")));
	txn_test_set_generations((uint32) PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}

/* ---- who owns what ---- */

typedef struct OwnerCount
{
	uint64		owner;
	int64		pieces;
	int64		bytes;
} OwnerCount;

typedef struct OwnerCounts
{
	OwnerCount *count;
	int			n;
	int			space;
} OwnerCounts;

static void
count_allocation(void *arg, PMPtr target, Size size, StoreId owner)
{
	OwnerCounts *counts = arg;
	int			i;

	for (i = 0; i < counts->n && counts->count[i].owner != owner; i++)
		;
	if (i == counts->space)
	{
		counts->space *= 2;
		counts->count = repalloc(counts->count, counts->space * sizeof(OwnerCount));
	}
	if (i == counts->n)
	{
		counts->count[i] = (OwnerCount) {.owner = owner};
		counts->n++;
	}
	counts->count[i].pieces++;
	counts->count[i].bytes += (int64) size;
}

Datum
sofort_test_allocations(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	OwnerCounts counts = {.space = 64};
	int			i;

	InitMaterializedSRF(fcinfo, 0);
	pool_require();
	counts.count = palloc(counts.space * sizeof(OwnerCount));
	pm_visit_allocations(~UINT64CONST(0), count_allocation, &counts);
	for (i = 0; i < counts.n; i++)
	{
		Datum		values[3] = {
			Int64GetDatum((int64) counts.count[i].owner),
			Int64GetDatum(counts.count[i].pieces),
			Int64GetDatum(counts.count[i].bytes)
		};
		bool		nulls[3] = {false, false, false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- rebuilding ---- */

Datum
sofort_test_rebuild(PG_FUNCTION_ARGS)
{
	static const char *const results[] = {
		[REBUILD_NOT_NEEDED] = "not needed", [REBUILD_WORKED] = "worked",
		[REBUILD_FINISHED] = "finished", [REBUILD_BUSY] = "busy"
	};

	PG_RETURN_TEXT_P(cstring_to_text(results[indexam_rebuild(PG_GETARG_OID(0),
															 PG_GETARG_INT32(1))]));
}

Datum
sofort_test_hashes(PG_FUNCTION_ARGS)
{
	Relation	index = index_open(PG_GETARG_OID(0), AccessShareLock);
	int			n = indexam_test_hashes(index, PG_GETARG_BOOL(1));

	index_close(index, AccessShareLock);
	PG_RETURN_INT32(n);
}

Datum
sofort_test_zones(PG_FUNCTION_ARGS)
{
	Relation	index = index_open(PG_GETARG_OID(0), AccessShareLock);
	IndexamZones zones;
	bool		partial = indexam_test_zones(index, &zones);

	index_close(index, AccessShareLock);
	if (!partial)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%d zones, %d ascending, %d blocks apart, %d strays", zones.segments,
											  zones.ascending, zones.apart, zones.strays)));
}

/* Without a token, which only its client has. */
Datum
sofort_test_age_outcomes(PG_FUNCTION_ARGS)
{
	int64		by = PG_GETARG_INT32(0) * INT64CONST(3600) * 1000000;
	uint64		n;

	pool_require();
	for (n = 0; n < pm_vector_count(&PoolSuper->kept); n++)
	{
		KeptRecord *r = (KeptRecord *) pm_vector_get(&PoolSuper->kept, n);

		if (r->ended != 0)		/* not while it is open */
			pm_store8_persist((uint64 *) &r->ended, (uint64) (r->ended - by));
	}
	PG_RETURN_VOID();
}

Datum
sofort_test_kept_records(PG_FUNCTION_ARGS)
{
	pool_require();
	PG_RETURN_INT64((int64) pm_vector_count(&PoolSuper->kept));
}

Datum
sofort_test_limit_kept_records(PG_FUNCTION_ARGS)
{
	pool_require();
	txn_test_limit_records((uint64) PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}

Datum
sofort_test_lock_entries(PG_FUNCTION_ARGS)
{
	pool_require();
	PG_RETURN_INT64((int64) txn_test_lock_entries());
}

Datum
sofort_test_release_steps(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) txn_test_release_steps());
}

Datum
sofort_test_former_steps(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) indexam_test_former_steps());
}

/* As C code does that takes every table for a heap table */
Datum
sofort_test_heap_insert(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	int			natts = RelationGetDescr(rel)->natts;
	bool	   *isnull = palloc(natts * sizeof(bool));

	memset(isnull, true, natts * sizeof(bool));
	simple_heap_insert(rel, heap_form_tuple(RelationGetDescr(rel),
											palloc0(natts * sizeof(Datum)), isnull));
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

Datum
sofort_test_resume_waiting(PG_FUNCTION_ARGS)
{
	uint64		n;

	pool_require();
	for (n = 0; n < pm_vector_count(&PoolSuper->kept); n++)
	{
		const KeptRecord *r = (const KeptRecord *) pm_vector_get(&PoolSuper->kept, n);
		TxnKeptInfo info;

		txn_kept_find(r->token_hash, &info);
		if (info.outcome != TXN_KEPT_WAITING)
			continue;
		if (continuation_resume(&info))
			PG_RETURN_INT64((int64) info.statements);
	}
	PG_RETURN_NULL();
}
