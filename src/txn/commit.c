/*-------------------------------------------------------------------------
 *
 * commit.c
 *	  Transaction callbacks: the durable point, stamping, undo.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/varlena.h"

#include "txn_internal.h"

/* Pushed at the durable point, popped in COMMIT. */
static ErrorContextCallback durable_context;
static bool context_pushed = false;

/* For looking at the error's level; made beforehand, with a block of memory of its own. */
static MemoryContext error_look_context = NULL;

/* ------------------------------------------------------------------------
 * An error after the durable point
 * ------------------------------------------------------------------------
 */

/*
 * errfinish() calls this before it sends anything.  An ERROR or FATAL while the
 * xid is still advertised makes PostgreSQL abort the transaction: the TCB must
 * say so durably before the client can hear of it.
 */
static void
durable_error_context(void *arg)
{
	MemoryContext old;
	ErrorData  *edata;
	int			level;

	if (My.stage != STAGE_COMMITTED || !TransactionIdIsValid(MyProc->xid))
		return;
	old = MemoryContextSwitchTo(error_look_context);
	edata = CopyErrorData();
	level = edata->elevel;
	MemoryContextSwitchTo(old);
	MemoryContextReset(error_look_context);
	if (level != ERROR && level != FATAL)
		return;
	txn_set_state(TCB_ABORTED);
	pm_drain();
	My.stage = STAGE_PREPARED;	/* no longer committed */
	SOFORT_STOP("commit-taken-back");
}

static void
push_error_context(void)
{
	durable_context.callback = durable_error_context;
	durable_context.arg = NULL;
	durable_context.previous = error_context_stack;
	error_context_stack = &durable_context;
	context_pushed = true;
}

static void
pop_error_context(void)
{
	ErrorContextCallback **c;

	if (!context_pushed)
		return;
	context_pushed = false;
	for (c = &error_context_stack; *c != NULL; c = &(*c)->previous)
	{
		if (*c == &durable_context)
		{
			*c = durable_context.previous;
			break;
		}
	}
}

/* ------------------------------------------------------------------------
 * Commit
 * ------------------------------------------------------------------------
 */

/* Its WAL, if any, will not be waited for. */
static bool
commits_asynchronously(void)
{
	return synchronous_commit == SYNCHRONOUS_COMMIT_OFF &&
		(XactLastRecEnd != InvalidXLogRecPtr || TransactionIdIsValid(GetTopTransactionIdIfAny()));
}

static void
pre_commit(void)
{
	bool		pure;

	if (My.nentries == 0 && !kept_is_running())
	{
		wal_publish_last_sequences();
		if (TxnShmem != NULL && commits_asynchronously())
			wal_note_async_commit();
		return;
	}

	PreCommit_CheckForSerializationFailure();
	My.ready_sub = InvalidSubTransactionId;
	expected_settle();

	/*
	 * A kept transaction has changed only sofort tables: any WAL of its own comes from
	 * sequences, or from pruning pages.
	 */
	if (kept_is_running())
		kept_before_commit();
	pm_settle();				/* once it has committed, others may free what it has stored */
	pure = kept_is_running() || (XactLastRecEnd == InvalidXLogRecPtr &&
							   replorigin_session_origin == InvalidRepOriginId);
	if (!pure)
	{
		/*
		 * PostgreSQL's commit record decides, and is waited for: so everything that this
		 * state stands for may become durable together with it
		 */
		My.stage = STAGE_PREPARED;
		SOFORT_STOP("prepare-before-durable");
		txn_publish_state(TCB_PREPARED);
		ForceSyncCommit();
		SOFORT_STOP("prepare-durable");
		return;
	}

	wal_flush_dependencies();
	if (error_look_context == NULL)
		error_look_context = AllocSetContextCreate(TopMemoryContext, "sofort commit error",
												   16 * 1024, 16 * 1024, ALLOCSET_DEFAULT_MAXSIZE);
	expected_prepare_next();
	pm_drain_to_publish();
	SOFORT_STOP("commit-before-durable");
	push_error_context();
	My.stage = STAGE_COMMITTED;
	txn_publish_state(TCB_COMMITTED);
	expected_next_durable();
	/* the durable point: no allocation and no error from here to COMMIT */
	SOFORT_STOP("commit-durable");
}

/* Others may see the transaction as committed already. */
static void
stamp(void)
{
	bool		pure = My.stage == STAGE_COMMITTED;
	bool		dropped = false;
	VisitedRows visited;
	TxnEntry	e;
	int64		i;

	SOFORT_STOP("commit-before-stamp");
	memset(&visited, 0, sizeof(visited));
	for (i = 0; i < My.nentries; i++)
	{
		if (write_set_entry(i, &e) && (e.kind == TXN_ENTRY_BEGIN || e.kind == TXN_ENTRY_END) &&
			txn_left_to_visit(&visited, &e))
			TxnOps->stamp_rows(&e, My.slot, My.generation, My.fxid);
	}
	SOFORT_STOP("commit-stamped");
	for (i = 0; i < My.nentries; i++)
	{
		if (write_set_entry(i, &e) && e.kind == TXN_ENTRY_DROP_STORE)
		{
			TxnOps->drop_store(e.store);
			dropped = true;
		}
	}

	/* PREPARED must not stay: some day the commit log may be truncated beyond the xid */
	txn_release_slot(!pure || dropped);
}

static void
forget_transaction(bool committed)
{
	if (My.have_slot)
		rowlock_release(TopSubTransactionId);
	if (My.kept != NULL)
		kept_leave();
	if (TxnOps != NULL && TxnOps->end_of_xact != NULL)
		TxnOps->end_of_xact(committed);
	txn_leave();
	visibility_end_of_xact();
	wal_forget_dependencies();

	/* stamps are not drained yet, but the locks on their tables are released now */
	pm_start_writeback();
}

static void
at_commit(void)
{
	prepared_end_of_xact();
	pop_error_context();
	if (kept_is_running())
	{
		kept_locks_end(My.kept);
		if (My.stage == STAGE_COMMITTED)
			kept_close(My.kept, KEPT_COMMITTED);
	}
	if (My.nentries > 0)
		stamp();
	else
		txn_release_slot(false);	/* savepoints only, rolled back */
	wal_async_commit_done(true);
	forget_transaction(true);
}

static void
at_abort(void)
{
	bool		now = My.stage != STAGE_OPEN;

	pop_error_context();
	if (My.stage == STAGE_COMMITTED)
	{
		/* an error that errfinish() did not see */
		txn_set_state(TCB_ABORTED);
		txn_drain();
	}
	if (My.prepared != NULL)
	{
		SOFORT_STOP("twophase-failed");
		prepared_cancel();
	}
	if (kept_is_running())
	{
		kept_close(My.kept, KEPT_ABORTED);
		kept_locks_end(My.kept);
	}
	if (My.durable)
	{
		/* no xid or snapshot protects what lies on the way to a root any more */
		TxnHold		hold = txn_hold_horizon();

		expected_settle();
		txn_undo(TopSubTransactionId, 0);
		txn_release_horizon(hold);
		txn_release_slot(now);
	}
	txn_publish_sequences_on_error();
	wal_async_commit_done(false);
	forget_transaction(false);
	prepared_end_of_xact();
}

/*
 * PREPARE TRANSACTION.  PostgreSQL may still fail before the transaction is prepared; then
 * the TCB, whose transaction is neither prepared nor committed, is undone.
 */
static void
pre_prepare(void)
{
	if (!My.have_slot || max_prepared_xacts == 0)
		return;					/* without it PostgreSQL refuses the command */
	expected_settle();
	prepared_begin();
	if (My.nentries == 0)
	{
		prepared_cancel();
		return;
	}
	My.ready_sub = InvalidSubTransactionId;
	My.stage = STAGE_PREPARED;
	pm_settle();
	txn_drain();
	SOFORT_STOP("twophase-before-durable");
	txn_set_state(TCB_TWO_PHASE);
	txn_drain();
	SOFORT_STOP("twophase-durable");
}

/* The transaction is prepared; nobody else can finish it yet.  No error from here on. */
static void
at_prepare(void)
{
	SOFORT_STOP("twophase-prepared");
	if (My.prepared != NULL)
		prepared_hand_over();
	else
		txn_release_slot(false);
	/* PostgreSQL has flushed all WAL up to its record of PREPARE */
	wal_async_commit_done(false);
	forget_transaction(true);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			pre_commit();
			break;
		case XACT_EVENT_COMMIT:
			at_commit();
			break;
		case XACT_EVENT_ABORT:
			at_abort();
			break;
		case XACT_EVENT_PRE_PREPARE:
			pre_prepare();
			break;
		case XACT_EVENT_PREPARE:
			at_prepare();
			break;
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			forget_transaction(event != XACT_EVENT_PARALLEL_ABORT);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			break;
	}
}

/* ------------------------------------------------------------------------
 * Savepoints
 * ------------------------------------------------------------------------
 */

static CommandId
frame_first(SubTransactionId sub)
{
	const TxnFrame *f = txn_frame_of(sub);

	return f != NULL ? f->first : 0;
}

static void
subxact_callback(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
			txn_push_frame(sub);
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			/*
			 * what it wrote and locked is the parent's now, as the ids of commands and
			 * subtransactions say
			 */
			txn_pop_frame(sub);
			if (TxnOps != NULL && TxnOps->end_of_subxact != NULL)
				TxnOps->end_of_subxact(sub, parent, true);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			/* the subxid's lock is still held: waiters find all undone */
			if (My.durable)
				txn_undo(sub, frame_first(sub));
			if (My.have_slot)
				rowlock_release(sub);
			if (TxnOps != NULL && TxnOps->end_of_subxact != NULL)
				TxnOps->end_of_subxact(sub, parent, false);
			txn_pop_frame(sub);
			break;
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/* ------------------------------------------------------------------------
 * Preloading
 * ------------------------------------------------------------------------
 */

/*
 * Transaction callbacks run in reverse order of registration: ours must be the
 * last one before the commit, so the library must be loaded first.
 */
static void
check_load_order(void)
{
	char	   *libraries = pstrdup(shared_preload_libraries_string);
	List	   *names = NIL;
	const char *first;
	const char *slash;

	if (!SplitDirectoriesString(libraries, ',', &names) || names == NIL)
		return;					/* the server complains */
	first = (const char *) linitial(names);
	slash = strrchr(first, '/');
	if (slash != NULL)
		first = slash + 1;
	if (strcmp(first, "sofort") != 0 && strcmp(first, "sofort.so") != 0)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("sofort must stand first in shared_preload_libraries"),
				 errdetail("The first library is \"%s\".", first),
				 errhint("Set shared_preload_libraries = 'sofort, ...'.")));
	list_free_deep(names);
	pfree(libraries);
}

void
txn_init(void)
{
	check_load_order();
	wal_init();
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
