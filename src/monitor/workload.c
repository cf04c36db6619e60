/*-------------------------------------------------------------------------
 *
 * workload.c
 *	  The functions behind sofort.workload and sofort.recovery_order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "sofort/pmem/pool.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/workload.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "monitor_internal.h"

PG_FUNCTION_INFO_V1(sofort_workload_info);
PG_FUNCTION_INFO_V1(sofort_recovery_order_info);

#define WORKLOAD_COLUMNS	8

static const char *
command_name(uint32 command)
{
	switch ((CmdType) command)
	{
		case CMD_SELECT:
			return "SELECT";
		case CMD_INSERT:
			return "INSERT";
		case CMD_UPDATE:
			return "UPDATE";
		case CMD_DELETE:
			return "DELETE";
		default:
			return "MERGE";
	}
}

static bool
exists(Oid relid)
{
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid));
}

/* Returns structure k of a kind, or (k = -1) a kind that needs none */
static void
put_usage(ReturnSetInfo *rsinfo, const WorkloadUsage *usage, int k)
{
	const WorkloadKind *kind = &usage->kind;
	int			all = (1 << kind->nstructures) - 1;
	Datum		values[WORKLOAD_COLUMNS] = {0};
	bool		nulls[WORKLOAD_COLUMNS] = {0};

	values[0] = CStringGetTextDatum(psprintf("%016llx", (unsigned long long) kind->fingerprint));
	values[1] = CStringGetTextDatum(command_name(kind->command));
	values[2] = ObjectIdGetDatum(kind->tables[Max(k, 0)]);
	nulls[3] = nulls[7] = k < 0;
	if (k >= 0)
	{
		values[3] = ObjectIdGetDatum(kind->structures[k]);
		values[7] = Float8GetDatum(kind->cost[all & ~(1 << k)]);
	}
	values[4] = Float8GetDatum(usage->past);
	values[5] = Int64GetDatum((int64) usage->restart);
	values[6] = Float8GetDatum(kind->cost[all]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Shown to those who may see the table; constants and texts are not known here. */
Datum
sofort_workload_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WorkloadUsage *usage;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	usage = workload_snapshot(MyDatabaseId, &n);
	for (int i = 0; i < n; i++)
	{
		const WorkloadKind *kind = &usage[i].kind;

		if (kind->nstructures == 0 && exists(kind->tables[0]) &&
			monitor_may_see_relation(kind->tables[0]))
			put_usage(rsinfo, &usage[i], -1);
		for (int k = 0; k < kind->nstructures; k++)
			if (exists(kind->tables[k]) && exists(kind->structures[k]) &&
				monitor_may_see_relation(kind->tables[k]))
				put_usage(rsinfo, &usage[i], k);
	}
	return (Datum) 0;
}

Datum
sofort_recovery_order_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	RecoveryStructure *all;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	if (pool_status() != POOL_READY)
		return (Datum) 0;
	n = recovery_find_structures(&all);
	(void) recovery_rank(all, n, n);
	for (int i = 0; i < n; i++)
	{
		const RecoveryStructure *s = &all[i];
		Datum		values[10] = {0};
		bool		nulls[10] = {0};

		/* (ranking releases its locks) */
		if (!exists(s->table) || !monitor_may_see_relation(s->table))
			continue;
		values[0] = ObjectIdGetDatum(s->table);
		values[1] = ObjectIdGetDatum(s->index);
		values[2] = Int32GetDatum(s->position);
		values[3] = Float8GetDatum(s->rank);
		values[4] = Float8GetDatum(s->benefit);
		values[5] = Float8GetDatum(s->rebuild_cost);
		values[6] = Int32GetDatum(s->workers);
		values[7] = Int64GetDatum((int64) s->rebuilt_as);
		values[8] = Float8GetDatum(s->search_seconds);
		values[9] = Float8GetDatum(s->rebuild_seconds);
		nulls[9] = s->position == 0;
		nulls[2] = nulls[3] = nulls[4] = nulls[5] = s->position == 0;
		nulls[7] = s->rebuilt_as == 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
