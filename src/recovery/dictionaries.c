/*-------------------------------------------------------------------------
 *
 * dictionaries.c
 *	  The hash indexes of large dictionaries, which writers need.
 *
 * Those of a table that the workload writes to are built before the first of its
 * indexes is worked on, so that they follow the ranking; the others come last.  Which
 * workload counts changes as in the ranking.
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
#include "sofort/pmem/fault.h"
#include "sofort/recovery/rank.h"
#include "sofort/store/store.h"
#include "sofort/store/workload.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "recovery_internal.h"

/* Values: for smaller dictionaries the first writer builds the index in no time */
#define LARGE_DICTIONARY	1000

/* With a lower weight the past no longer decides which tables are written to. */
#define WEIGHT_THAT_COUNTS	0.01

/* Length of a step for the tables that come last */
#define STEP_MILLISECONDS	100

/* So many relations may stay in the caches of the process. */
#define CACHED_TABLES		1000

/* Tables that this worker has seen to because they are written to, in TopMemoryContext */
static List *seen = NIL;

/* The other tables, in TopMemoryContext, and how far this worker has come */
static List *others = NIL;
static int	next_other = 0;
static bool listed = false;

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
	if (usage->kind.command != CMD_INSERT && usage->kind.command != CMD_UPDATE)
		return false;
	for (int k = 0; k < WORKLOAD_STRUCTURES; k++)
		if (usage->kind.tables[k] == table)
			return true;
	return false;
}

/* Does the workload before the start still count, beside the one since then? */
static bool
past_counts(const WorkloadUsage *usage, int n)
{
	double		restart = 0;

	if (sofort_recovery_mode != RECOVERY_ADAPTIVE)
		return true;			/* the order does not depend on either */
	for (int i = 0; i < n; i++)
		restart += (double) usage[i].restart;
	return rank_weight_of_past(sofort_recovery_alpha, restart) >= WEIGHT_THAT_COUNTS;
}

/* Is the table written to, since the start or, as long as that counts, before it? */
static bool
is_written(Oid table)
{
	int			n;
	WorkloadUsage *usage = workload_snapshot(MyDatabaseId, &n);
	bool		past = past_counts(usage, n);
	bool		result = false;

	for (int i = 0; i < n && !result; i++)
		result = (usage[i].restart > 0 || (past && usage[i].past > 0)) &&
			writes_to(&usage[i], table);
	pfree(usage);
	return result;
}

/*
 * Not while somebody has locked the table exclusively: he may be waiting for us.  With the
 * lock of a writer, because space of the table may be taken and given back.
 */
static void
build(Oid table)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
		return;
	rel = try_relation_open(table, NoLock);
	if (rel == NULL)
	{
		UnlockRelationOid(table, RowExclusiveLock);
		return;
	}
	(void) store_build_dictionaries(store_open(rel), LARGE_DICTIONARY);
	relation_close(rel, RowExclusiveLock);
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

/* Collected once, because a worker deals with many of them in a step. */
static void
list_others(void)
{
	Oid			am = get_table_am_oid("sofort", true);
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(pg_class, 0, NULL);
	HeapTuple	tuple;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (is_store(form, am) && !list_member_oid(seen, form->oid))
			others = lappend_oid(others, form->oid);
	}
	MemoryContextSwitchTo(old);
	list_sort(others, list_oid_cmp);
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	listed = true;
}

/* Does it go through the tables of this database? */
static bool
is_of_our_kind(const RecoverySlot *slot)
{
	return slot->db_oid == MyDatabaseId && !slot->functions;
}

/*
 * Is the table for this worker?  All workers of the database go through their lists in the
 * same order, and each notes in all of their slots how far it has come.
 */
static bool
claim(Oid table)
{
	bool		mine = true;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	for (int i = 0; i < (int) lengthof(Recovery->slots) && mine; i++)
		mine = !is_of_our_kind(&Recovery->slots[i]) ||
			Recovery->slots[i].tables_seen_to < table;
	for (int i = 0; i < (int) lengthof(Recovery->slots) && mine; i++)
		if (is_of_our_kind(&Recovery->slots[i]))
			Recovery->slots[i].tables_seen_to = table;
	LWLockRelease(&Recovery->lock);
	return mine;
}

bool
recovery_build_other_dictionaries(volatile Oid *working_on)
{
	TimestampTz began = GetCurrentTimestamp();

	if (!listed)
		list_others();
	if (next_other == list_length(others))
		return false;
	while (next_other < list_length(others) &&
		   !TimestampDifferenceExceeds(began, GetCurrentTimestamp(), STEP_MILLISECONDS))
	{
		Oid			table = list_nth_oid(others, next_other++);

		/* what this process has cached of tables that it has opened is not needed any more */
		if (next_other % CACHED_TABLES == 0)
			InvalidateSystemCaches();
		if (!claim(table))
			continue;
		*working_on = table;
		build(table);
		SOFORT_STOP("recovery-table-seen-to");
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}
