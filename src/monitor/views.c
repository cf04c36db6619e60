/*-------------------------------------------------------------------------
 *
 * views.c
 *	  Functions behind the views of the schema sofort.
 *
 * Who may see what: the numbers of the pool are for everybody, its path (also where the
 * reason names it) for roles that may read all settings; a table, its columns and its
 * indexes for those who may SELECT from it and for pg_read_all_stats; a transaction for
 * the role whose session runs it and for pg_read_all_stats (a prepared one has no
 * session); that a kept transaction waits to be resumed, for everybody.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sofort/exec/exec.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/recovery/recovery.h"
#include "sofort/txn/txn.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "monitor_internal.h"

PG_FUNCTION_INFO_V1(sofort_pool_info);
PG_FUNCTION_INFO_V1(sofort_table_info);
PG_FUNCTION_INFO_V1(sofort_column_info);
PG_FUNCTION_INFO_V1(sofort_index_info);
PG_FUNCTION_INFO_V1(sofort_recovery_info);
PG_FUNCTION_INFO_V1(sofort_transaction_info);

static ReturnSetInfo *
begin_set(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

/* ---- pool ---- */

/* Why sofort relations cannot be used now; NULL if they can. */
static char *
unusable_reason(void)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *volatile reason = NULL;

	/*
	 * no subtransaction is needed: pool_require() takes nothing that would have to be
	 * released
	 */
	PG_TRY();
	{
		pool_require();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		reason = error->detail ? psprintf("%s: %s", error->message, error->detail) :
			pstrdup(error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();
	return reason;
}

static void
pool_numbers(Datum *values, bool *nulls)
{
	PoolUsage	usage;
	RecoveryProgress recovery;

	pool_usage(&usage);
	recovery_progress(&recovery);
	values[5] = Int64GetDatum((int64) pool_life());
	values[6] = Int32GetDatum((int32) PoolSuper->layout_version);
	values[7] = Int64GetDatum((int64) usage.quota_bytes);
	values[8] = Int64GetDatum((int64) usage.used_bytes);
	values[9] = Int64GetDatum((int64) usage.slab_bytes);
	values[10] = Int64GetDatum((int64) usage.file_bytes);
	values[11] = Int64GetDatum((int64) usage.dram_total);
	values[12] = Int64GetDatum((int64) usage.dram_used);
	values[13] = Int64GetDatum(store_count());
	values[14] = Int32GetDatum(recovery.workers);
	values[15] = Int64GetDatum((int64) recovery.indexes_rebuilt);
	values[16] = Int64GetDatum((int64) recovery.failures);
	for (int i = 5; i <= 16; i++)
		nulls[i] = false;
}

#define POOL_COLUMNS 18

Datum
sofort_pool_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);
	Datum		values[POOL_COLUMNS] = {0};
	bool		nulls[POOL_COLUMNS];
	char	   *reason = unusable_reason();
	PoolStatus	status = pool_status();

	memset(nulls, true, sizeof(nulls));
	values[0] = CStringGetTextDatum(status == POOL_READY ? "ready" :
									status == POOL_UNAVAILABLE ? "unavailable" : "not preloaded");
	nulls[0] = false;
	if (reason)
	{
		values[1] = CStringGetTextDatum(reason);
		nulls[1] = false;
	}
	if (pool_path() != NULL && has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS))
	{
		values[2] = CStringGetTextDatum(pool_path());
		nulls[2] = false;
	}
	if (status == POOL_READY)
	{
		values[3] = CStringGetTextDatum(pm_medium_name(pm_medium()));
		values[4] = CStringGetTextDatum(pm_medium_promise(pm_medium()));
		values[17] = CStringGetTextDatum(pm_flush_method());
		nulls[3] = nulls[4] = nulls[17] = false;
		pool_numbers(values, nulls);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* ---- tables, columns, indexes ---- */

bool
monitor_may_see_relation(Oid relid)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

/*
 * May the user see numbers that depend on values of rows which row security may hide from
 * him?  A value that is new to a dictionary makes it grow, even if its insertion is rolled
 * back.
 */
static bool
may_see_sizes(Oid relid)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		check_enable_rls(relid, InvalidOid, true) != RLS_ENABLED;
}

/* The table with AccessShareLock if it is ours and may be seen, else NULL. */
static Relation
open_visible_table(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		return NULL;
	if ((rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW) &&
		rel->rd_rel->relam == exec_table_am_oid() && monitor_may_see_relation(relid))
		return rel;
	relation_close(rel, AccessShareLock);
	return NULL;
}

/* Of a query that asks for one table after the other */
typedef struct TableInfoState
{
	HTAB	   *bytes;			/* of all stores, when it had asked for one */
} TableInfoState;

static HTAB *
bytes_of_stores(FmgrInfo *flinfo)
{
	TableInfoState *state = flinfo->fn_extra;

	if (state == NULL)
	{
		flinfo->fn_extra = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(TableInfoState));
		return NULL;
	}
	if (state->bytes == NULL)
		state->bytes = store_bytes_of_all(flinfo->fn_mcxt);
	return state->bytes;
}

Datum
sofort_table_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);
	Relation	rel = open_visible_table(PG_GETARG_OID(0));
	StoreHeader *store = NULL;
	Datum		values[6] = {0};
	bool		nulls[6] = {0};
	StoreStats	stats;

	if (rel == NULL)
		return (Datum) 0;
	if (pool_status() == POOL_READY)
		store = store_find(relation_locator(rel));
	if (store == NULL)
		memset(nulls, true, sizeof(nulls));
	else
	{
		store_stats(store, bytes_of_stores(fcinfo->flinfo), &stats);
		values[0] = Int64GetDatum((int64) store_id_of(store));
		values[1] = Int64GetDatum((int64) stats.live);
		values[2] = Int64GetDatum((int64) stats.dead);
		values[3] = Int64GetDatum((int64) stats.nblocks);
		values[4] = Int64GetDatum((int64) stats.bytes_pool);
		values[5] = Int64GetDatum((int64) stats.bytes_dram);
		nulls[4] = nulls[5] = !may_see_sizes(RelationGetRelid(rel));
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}

typedef struct ColumnOutput
{
	ReturnSetInfo *rsinfo;
	bool		sizes;			/* may be seen */
} ColumnOutput;

static void
put_column(void *arg, const StoreColumnInfo *info)
{
	ColumnOutput *output = arg;
	ReturnSetInfo *rsinfo = output->rsinfo;
	Datum		values[8] = {0};
	bool		nulls[8] = {0};
	bool		has_dictionary = info->placement != NULL;

	values[0] = Int16GetDatum((int16) info->attnum);
	values[1] = ObjectIdGetDatum(info->type_oid);
	values[2] = CStringGetTextDatum(info->encoding);
	values[3] = Int32GetDatum(info->width);
	values[4] = Int64GetDatum((int64) info->dictionary_entries);
	values[5] = Int64GetDatum((int64) info->dictionary_bytes);
	nulls[4] = nulls[5] = !has_dictionary || !output->sizes;
	values[6] = CStringGetTextDatum(info->reason);
	nulls[7] = !has_dictionary;
	if (has_dictionary)
		values[7] = CStringGetTextDatum(info->placement);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
sofort_column_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);
	Relation	rel = open_visible_table(PG_GETARG_OID(0));
	ColumnOutput output = {.rsinfo = rsinfo};
	StoreHeader *store;

	if (rel == NULL)
		return (Datum) 0;
	output.sizes = may_see_sizes(RelationGetRelid(rel));
	store = pool_status() == POOL_READY ? store_find(relation_locator(rel)) : NULL;
	if (store)
		store_visit_columns(store, put_column, &output);
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}

/* The index with AccessShareLock, if its table may be seen, else NULL. */
static Relation
open_visible_index(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		return NULL;
	if (rel->rd_rel->relkind == RELKIND_INDEX && rel->rd_rel->relam == exec_index_am_oid() &&
		monitor_may_see_relation(rel->rd_index->indrelid))
		return rel;
	relation_close(rel, AccessShareLock);
	return NULL;
}

Datum
sofort_index_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);
	Relation	index = open_visible_index(PG_GETARG_OID(0));
	Datum		values[6] = {0};
	bool		nulls[6] = {0};
	IndexamStats stats = {0};

	if (index == NULL)
		return (Datum) 0;
	if (pool_status() != POOL_READY)
		memset(nulls, true, sizeof(nulls));
	else
	{
		indexam_stats(index, &stats);
		values[0] = CStringGetTextDatum(stats.placement);
		values[1] = CStringGetTextDatum(indexam_state_name(stats.state));
		nulls[2] = nulls[3] = stats.state != INDEX_READY && stats.state != INDEX_PARTIAL;
		nulls[5] = true;
		if (stats.segments > 0 || stats.state == INDEX_READY)
		{
			nulls[5] = false;
			values[5] = Float8GetDatum(stats.state == INDEX_READY ? 1.0 :
									   (double) stats.segments_done / stats.segments);
		}
		values[2] = Int64GetDatum((int64) stats.entries);
		values[3] = Int64GetDatum((int64) stats.bytes_dram);
		values[4] = Int64GetDatum((int64) stats.bytes_pool);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	relation_close(index, AccessShareLock);
	return (Datum) 0;
}

/* ---- recovery ---- */

typedef struct StructureCounts
{
	int64		total;
	int64		ready;
	int64		rows;
	int64		segments;
	int64		segments_done;
} StructureCounts;

static void
count_structure(void *arg, const IndexamStats *stats)
{
	StructureCounts *counts = arg;

	counts->total++;
	if (stats->state == INDEX_READY)
		counts->ready++;
	counts->rows += stats->rows_read;
	counts->segments += stats->segments_total;
	counts->segments_done += stats->segments_done;
}

static void
put_time(Datum *values, bool *nulls, int i, TimestampTz time)
{
	nulls[i] = time == 0;
	values[i] = TimestampTzGetDatum(time);
}

#define RECOVERY_COLUMNS 11

Datum
sofort_recovery_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);
	Datum		values[RECOVERY_COLUMNS] = {0};
	bool		nulls[RECOVERY_COLUMNS] = {0};
	StructureCounts counts = {0};
	RecoveryProgress progress;

	if (pool_status() != POOL_READY)
		return (Datum) 0;
	recovery_progress(&progress);
	indexam_visit(count_structure, &counts);
	values[0] = CStringGetTextDatum(recovery_mode_name());
	values[1] = CStringGetTextDatum(progress.finished != 0 ? "finished" :
									progress.started != 0 ? "rebuilding" : "starting");
	values[2] = Int32GetDatum(progress.workers);
	values[3] = Int64GetDatum(counts.ready);
	values[4] = Int64GetDatum(counts.total - counts.ready);
	values[5] = Int64GetDatum(counts.rows);
	values[6] = Int64GetDatum(counts.segments_done);
	values[7] = Int64GetDatum(counts.segments);
	values[8] = Int64GetDatum((int64) progress.failures);
	put_time(values, nulls, 9, progress.started);
	put_time(values, nulls, 10, progress.finished);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* ---- transactions ---- */

/* May the current user see what this process does? */
static bool
may_see_process(int pid)
{
	PGPROC	   *proc;

	if (pid == MyProcPid || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		return true;
	proc = pid == 0 ? NULL : BackendPidGetProc(pid);
	return proc != NULL && has_privs_of_role(GetUserId(), proc->roleId);
}

static void
put_transaction(void *arg, const TxnInfo *info)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[10] = {0};
	bool		nulls[10] = {0};
	bool		all = may_see_process(info->pid) ||
		(info->is_kept && has_privs_of_role(GetUserId(), info->role));

	/* anybody may have to wait for one that has no session, and can see that in pg_locks */
	if (!all && !info->is_waiting)
		return;
	values[0] = Int32GetDatum((int32) info->slot);
	values[1] = Int32GetDatum((int32) info->generation);
	values[2] = CStringGetTextDatum(info->state);
	values[3] = Int64GetDatum((int64) info->life);
	values[4] = FullTransactionIdGetDatum(FullTransactionIdFromU64(info->xid));
	values[5] = Int32GetDatum(info->pid);
	nulls[5] = info->pid == 0;
	values[6] = Int64GetDatum((int64) info->entries);
	nulls[6] = !all;
	nulls[7] = nulls[8] = !info->is_kept || !all;
	nulls[9] = !info->is_waiting;
	if (info->is_kept)
	{
		values[7] = CStringGetTextDatum(info->label);
		values[8] = Int64GetDatum((int64) info->statements);
		values[9] = TimestampTzGetDatum(info->expires);
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
sofort_transaction_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = begin_set(fcinfo);

	if (pool_status() == POOL_READY)
		txn_visit(put_transaction, rsinfo);
	return (Datum) 0;
}
