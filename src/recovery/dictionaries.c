/*-------------------------------------------------------------------------
 *
 * dictionaries.c
 *	  The hash indexes of large dictionaries, which writers need.
 *
 * Those of a table that the workload writes to are built before the first of its
 * indexes is worked on, so that they follow the ranking; the others in the end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "sofort/store/store.h"
#include "sofort/store/workload.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "recovery_internal.h"

/* Values: smaller ones are built by the first writer without notice */
#define LARGE_DICTIONARY	1000

/* Tables that this worker has seen to, in TopMemoryContext */
static List *seen = NIL;

static void
note_seen(Oid table)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	seen = lappend_oid(seen, table);
	MemoryContextSwitchTo(old);
}

static bool
writes_to(const WorkloadUsage *usage, Oid table)
{
	if ((usage->kind.command != CMD_INSERT && usage->kind.command != CMD_UPDATE) ||
		usage->past + (double) usage->restart <= 0)
		return false;
	for (int k = 0; k < WORKLOAD_STRUCTURES; k++)
		if (usage->kind.tables[k] == table)
			return true;
	return false;
}

/* Was it written to, before the start or since then? */
static bool
is_written(Oid table)
{
	int			n;
	WorkloadUsage *usage = workload_snapshot(MyDatabaseId, &n);
	bool		result = false;

	for (int i = 0; i < n && !result; i++)
		result = writes_to(&usage[i], table);
	pfree(usage);
	return result;
}

/* Not while somebody has the table for himself: he may be waiting for us. */
static void
build(Oid table)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return;
	rel = try_relation_open(table, NoLock);
	if (rel == NULL)
		return;					/* (the lock goes with the transaction) */
	(void) store_build_dictionaries(store_open(rel), LARGE_DICTIONARY);
	relation_close(rel, AccessShareLock);
}

void
recovery_build_written_dictionaries(Oid table, volatile Oid *working_on)
{
	if (list_member_oid(seen, table) || !is_written(table))
		return;
	note_seen(table);
	*working_on = table;
	build(table);
}

static bool
is_store(Form_pg_class form, Oid am)
{
	return OidIsValid(am) && form->relam == am &&
		(form->relkind == RELKIND_RELATION || form->relkind == RELKIND_MATVIEW);
}

bool
recovery_build_other_dictionaries(volatile Oid *working_on)
{
	Oid			am = get_table_am_oid("sofort", true);
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(pg_class, 0, NULL);
	Oid			table = InvalidOid;
	HeapTuple	tuple;

	while (!OidIsValid(table) && (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (is_store(form, am) && !list_member_oid(seen, form->oid))
			table = form->oid;
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	if (!OidIsValid(table))
		return false;
	note_seen(table);
	*working_on = table;
	build(table);
	return true;
}
