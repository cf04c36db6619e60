/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  Rebuilds the sofort indexes of one database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/resource.h>

#include "access/heapam.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/fault.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "recovery_internal.h"

static int	my_slot = -1;

/* This worker builds the indexes whose build runs functions of users, and no others. */
static bool for_functions = false;

static void
leave_slot(int code, Datum arg)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].pid = 0;
	Recovery->slots[my_slot].index = InvalidOid;
	LWLockRelease(&Recovery->lock);
}

/* The database that the slot names, or InvalidOid if it is for another worker. */
static Oid
take_slot(int slot, uint32 serial)
{
	RecoverySlot *mine = &Recovery->slots[slot];
	Oid			db_oid = InvalidOid;

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	if (OidIsValid(mine->db_oid) && mine->serial == serial)
	{
		my_slot = slot;
		mine->pid = MyProcPid;
		for_functions = mine->functions;
		db_oid = mine->db_oid;
	}
	LWLockRelease(&Recovery->lock);
	if (OidIsValid(db_oid))
		before_shmem_exit(leave_slot, (Datum) 0);
	return db_oid;
}

/* Indexes for which this worker got an error, in TopMemoryContext */
static List *failed = NIL;

/* Those of them where the error may not recur, and where memory was short */
static List *failed_for_now = NIL;
static List *failed_for_memory = NIL;

/* Others had locked an index exclusively when this worker last looked. */
static bool some_were_locked = false;

/* Indexes need not be looked at any more. */
static bool indexes_done = false;

/* Nothing is left for this worker, but something may be for a later one. */
static RecoveryAgain try_again = AGAIN_NEVER;

/* The same, for a worker for functions. */
static bool functions_left = false;

/*
 * Segments in one step, which takes some ten milliseconds; more if making the list takes as
 * long
 */
#define STEP_SEGMENTS	2
#define STEP_MOST_SEGMENTS	8
#define STEP_INDEXES_SEGMENT	16	/* indexes in the list for which a step has one segment
									 * more */

/*
 * Limits for the use of one list of the indexes, in processor time (making the list takes
 * some, too), and by the clock, because rebuilt indexes stay locked meanwhile
 */
#define LIST_INDEXES		64
#define LIST_SECONDS		0.1
#define LIST_MILLISECONDS	1000

/* "nice" of a worker that lets queries go first: it cannot be taken back */
#define WORKER_NICENESS	5

/* While others have all that is left; longer, where it takes long to find that */
#define IDLE_MILLISECONDS	50
#define IDLE_FACTOR			10	/* times the list of the indexes, */
#define IDLE_MOST_MILLISECONDS	1000

/*
 * NULL while somebody has locked the table or the index exclusively: a prepared transaction
 * may do so for days.  Such an index is left to queries, and to later workers.
 */
static Relation
open_if_free(Oid index_oid)
{
	Oid			table_oid = IndexGetRelation(index_oid, true);
	Relation	index = NULL;

	if (!OidIsValid(table_oid))
		return NULL;
	if (!ConditionalLockRelationOid(table_oid, AccessShareLock))
	{
		some_were_locked = true;
		return NULL;
	}
	if (ConditionalLockRelationOid(index_oid, AccessShareLock))
	{
		index = try_relation_open(index_oid, NoLock);
		if (index == NULL)
			UnlockRelationOid(index_oid, AccessShareLock);
	}
	else
		some_were_locked = true;
	UnlockRelationOid(table_oid, AccessShareLock);
	return index;
}

/* Relations of this database on which prepared transactions hold locks */
static List *
find_prepared(void)
{
	List	   *result = NIL;
	LockData   *locks;

	if (max_prepared_xacts == 0)
		return NIL;
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid == 0 && lock->locktag.locktag_type == LOCKTAG_RELATION &&
			lock->locktag.locktag_field1 == MyDatabaseId)
			result = list_append_unique_oid(result, lock->locktag.locktag_field2);
	}
	return result;
}

static bool
describe(Oid index_oid, const List *prepared, RecoveryStructure *structure)
{
	Relation	index = open_if_free(index_oid);
	IndexamStats stats;

	if (index == NULL)
		return false;
	if (!index->rd_index->indislive || !index->rd_index->indisready)
	{
		relation_close(index, AccessShareLock);
		return false;
	}
	indexam_stats(index, &stats);
	memset(structure, 0, sizeof(*structure));
	structure->index = index_oid;
	structure->table = index->rd_index->indrelid;
	structure->ready = stats.state == INDEX_READY;
	structure->persistent = strcmp(stats.placement, "dram") != 0;
	structure->failed = list_member_oid(failed, index_oid);
	structure->partial = stats.state == INDEX_PARTIAL;
	structure->busy = stats.state == INDEX_BUILDING ||
		(structure->partial && (stats.merging || stats.draining ||
								(stats.segments_claimed == stats.segments &&
								 stats.segments_done < stats.segments)));
	structure->runs_functions = !heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
	structure->segments = stats.segments;
	structure->segments_done = stats.segments_done;
	structure->workers = stats.workers;
	structure->waiters = stats.waiters;
	structure->search_seconds = stats.searched / 1e6;
	structure->needed = stats.waiters > 0 || list_member_oid(prepared, index_oid);
	structure->rebuilt_as = recovery_rebuilt_as(index_oid);
	relation_close(index, AccessShareLock);
	return true;
}

int
recovery_find_structures(RecoveryStructure **structures)
{
	Relation	pg_class;
	TableScanDesc scan;
	HeapTuple	tuple;
	Oid			am = get_index_am_oid("sofort_index", true);
	List	   *prepared = find_prepared();
	int			n = 0;
	int			max = 64;

	some_were_locked = false;
	SOFORT_STOP("recovery-indexes-listed");
	*structures = palloc(max * sizeof(RecoveryStructure));
	pg_class = table_open(RelationRelationId, AccessShareLock);
	scan = table_beginscan_catalog(pg_class, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (!OidIsValid(am) || form->relam != am || form->relkind != RELKIND_INDEX)
			continue;
		if (n == max)
		{
			max *= 2;
			*structures = repalloc(*structures, max * sizeof(RecoveryStructure));
		}
		if (describe(form->oid, prepared, &(*structures)[n]))
			n++;
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return n;
}

static bool polite = false;		/* this worker, for ever */

/*
 * Lets queries go first.
 *
 * If the kernel makes a scheduling group of each session (each process of PostgreSQL is
 * one), nice values count only within it: then the group gets one.  The kernel allows that
 * ten times a second, so it may take several steps.
 */
static void
lower_priority(void)
{
	static bool lowered = false;
	FILE	   *group;

	if (lowered)
		return;
	lowered = polite = true;
	if (setpriority(PRIO_PROCESS, 0, WORKER_NICENESS) != 0)
		ereport(DEBUG1, (errmsg("could not lower the priority of a sofort recovery worker: %m")));
	group = AllocateFile("/proc/self/autogroup", "w");
	if (group == NULL)
		return;					/* there are no groups */
	fprintf(group, "%d", WORKER_NICENESS);
	if (FreeFile(group) != 0 && errno == EAGAIN)
		lowered = false;
}

/* Makes room for a worker of normal priority: the launcher starts it at once. */
static void
ask_for_replacement(void)
{
	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].replace = true;
	LWLockRelease(&Recovery->lock);
}

typedef enum StepResult
{
	STEP_NOTHING_LEFT,
	STEP_IDLE,					/* nothing for this worker at the moment */
	STEP_REPLACE,				/* nothing for a worker of low priority */
	STEP_GO_ON,					/* this index is done: go on with the same list */
	STEP_DONE
} StepResult;

/*
 * How many of them can this worker hope to rebuild?  Whether some were locked, or have
 * failed for the moment, decides whether the database is looked at again.
 */
static int
count_hopeful(RecoveryStructure *structures, int n)
{
	int			hopeful = 0;

	try_again = some_were_locked ? AGAIN_UNTIL_DONE : AGAIN_NEVER;
	functions_left = false;
	for (int i = 0; i < n; i++)
	{
		structures[i].not_mine = structures[i].runs_functions != for_functions;
		if (structures[i].ready)
			continue;
		if (structures[i].not_mine)
			functions_left |= structures[i].runs_functions;
		else if (!structures[i].failed)
			hopeful++;
		else if (list_member_oid(failed_for_now, structures[i].index))
			try_again = AGAIN_UNTIL_DONE;
		else if (list_member_oid(failed_for_memory, structures[i].index))
			try_again = Max(try_again, AGAIN_A_FEW_TIMES);
	}
	return hopeful;
}

/* Works on what is best now.  *index (or table): the one worked on, for error handling. */
static StepResult
work_on_best(RecoveryStructure *structures, int n, RecoveryStep *how, volatile Oid *index)
{
	RecoveryStructure *best;
	int			choice;

	how->segments = Min(STEP_SEGMENTS + n / STEP_INDEXES_SEGMENT, STEP_MOST_SEGMENTS);
	how->polite = false;
	choice = recovery_choose(structures, n, how);
	if (choice < 0)
		return STEP_IDLE;
	best = &structures[choice];
	if (!how->polite && polite)
		return STEP_REPLACE;
	if (how->polite && (polite || !recovery_was_urgent()))
		lower_priority();
	recovery_build_written_dictionaries(best->table, index);
	*index = best->index;
	recovery_show_index(my_slot, *index);
	pgstat_report_activity(STATE_RUNNING, polite ?
						   "rebuilding a sofort index, at low priority" :
						   "rebuilding a sofort index");
	switch (indexam_rebuild(*index, how->segments))
	{
		case REBUILD_FINISHED:
			recovery_note_rebuilt(*index);

			/* plans were made with the costs of an incomplete index */
			CacheInvalidateRelcacheByRelid(best->table);
			best->ready = true;
			return STEP_GO_ON;
		case REBUILD_NOT_NEEDED:
			best->ready = true;
			return STEP_GO_ON;
		case REBUILD_BUSY:
			return STEP_IDLE;
		case REBUILD_WORKED:
			break;
	}
	return STEP_DONE;
}

/* Works on indexes, as many as fit the use of one list */
static StepResult
work_on_indexes(RecoveryStructure *structures, int n, int hopeful, volatile Oid *index)
{
	TimestampTz began = GetCurrentTimestamp();
	double		until = recovery_processor_seconds() + LIST_SECONDS;
	RecoveryStep how = {0};

	for (int done = 0; done < hopeful && done < LIST_INDEXES; done++)
	{
		StepResult	result = work_on_best(structures, n, &how, index);

		if (result != STEP_GO_ON)
			return done > 0 ? STEP_DONE : result;
		if (recovery_processor_seconds() >= until ||
			TimestampDifferenceExceeds(began, GetCurrentTimestamp(), LIST_MILLISECONDS))
			break;
	}
	return STEP_DONE;
}

/*
 * In a transaction.  The list costs some 10 us for each index, so if indexes are small
 * several are rebuilt with one list.  When all are ready no list is made any more, except
 * to find those that others had locked.
 */
static StepResult
work(volatile Oid *index)
{
	if (!indexes_done)
	{
		RecoveryStructure *structures;
		int			n = recovery_find_structures(&structures);
		int			hopeful = count_hopeful(structures, n);

		if (hopeful > 0)
			return work_on_indexes(structures, n, hopeful, index);
		if (for_functions)
			return STEP_NOTHING_LEFT;
		recovery_indexes_are_done(my_slot);
		indexes_done = !some_were_locked;
	}
	return recovery_build_other_dictionaries(index) ? STEP_DONE : STEP_NOTHING_LEFT;
}

/* Is the error due to the moment, not to the index? */
static bool
may_pass_by(int sqlstate)
{
	return sqlstate == ERRCODE_QUERY_CANCELED || sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK;
}

/*
 * One step; an error (the index was dropped meanwhile, memory is full, the
 * rebuild was cancelled) is logged and leaves it to queries, and to later workers.
 */
static StepResult
step(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile Oid index = InvalidOid;
	volatile StepResult result = STEP_DONE;
	int			sqlstate;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		result = work(&index);
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		/*
		 * there is no index to leave to others, so it would happen again at once: start
		 * anew later
		 */
		if (ShutdownRequestPending || !OidIsValid(index))
			PG_RE_THROW();
		HOLD_INTERRUPTS();
		sqlstate = geterrcode();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
		Recovery->failures++;
		LWLockRelease(&Recovery->lock);
		MemoryContextSwitchTo(TopMemoryContext);
		failed = lappend_oid(failed, index);
		if (may_pass_by(sqlstate))
			failed_for_now = lappend_oid(failed_for_now, index);
		else if (ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INSUFFICIENT_RESOURCES)
			failed_for_memory = lappend_oid(failed_for_memory, index);
		MemoryContextSwitchTo(context);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
	recovery_show_index(my_slot, InvalidOid);
	return result;
}

/* Nothing was found to do, and that took from "began" until now. */
static void
wait_while_idle(TimestampTz began)
{
	long		took = TimestampDifferenceMilliseconds(began, GetCurrentTimestamp());

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(Max(IDLE_FACTOR * took, IDLE_MILLISECONDS), IDLE_MOST_MILLISECONDS),
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
}

static void
rebuild_database(Datum arg)
{
	TimestampTz began;
	StepResult	result;
	Oid			db_oid;

	db_oid = take_slot((int) (DatumGetUInt64(arg) & PG_UINT32_MAX),
					   (uint32) (DatumGetUInt64(arg) >> 32));
	if (!OidIsValid(db_oid) || recovery_must_stay_away(db_oid))
		return;

	/* a function can catch that it is cancelled, and go on */
	if (for_functions)
		pqsignal(SIGTERM, die);
	BackgroundWorkerInitializeConnectionByOid(db_oid, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	for (;;)
	{
		began = GetCurrentTimestamp();
		result = step();
		if (result == STEP_NOTHING_LEFT)
			break;
		recovery_check_shutdown();
		if (result == STEP_REPLACE)
		{
			ask_for_replacement();
			return;
		}
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (result == STEP_IDLE)
			wait_while_idle(began);
	}

	LWLockAcquire(&Recovery->lock, LW_EXCLUSIVE);
	Recovery->slots[my_slot].finished = true;
	Recovery->slots[my_slot].again = try_again;
	Recovery->slots[my_slot].functions_left = functions_left;
	LWLockRelease(&Recovery->lock);
}

void
sofort_recovery_worker(Datum arg)
{
	recovery_main(rebuild_database, arg, 0);
}
