/*-------------------------------------------------------------------------
 *
 * continuation.c
 *	  sofort.keep_transaction() and its relatives; where statements end.
 *
 * A statement that a client has sent has ended when the executor, or the utility
 * command, at nesting depth 0 is done, before its completion is reported.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/dbcommands.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sofort/compat/ddl.h"
#include "sofort/compat/lock.h"
#include "sofort/compat/relcache.h"
#include "sofort/exec/exec.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/fault.h"
#include "sofort/store/store.h"
#include "sofort/txn/kept.h"
#include "sofort/txn/txn.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

#include "exec_internal.h"

PG_FUNCTION_INFO_V1(sofort_keep_transaction);
PG_FUNCTION_INFO_V1(sofort_resume_transaction);
PG_FUNCTION_INFO_V1(sofort_transaction_outcome);
PG_FUNCTION_INFO_V1(sofort_abort_transaction);

#define TOKEN_BYTES		16

static int	depth = 0;			/* of executors and utility commands */
static uint64 statements = 0;	/* of this transaction that have ended */
static bool not_counted = false;	/* the one that is running */

/* Depth at the start of each open subtransaction, by nesting level. */
static int *depths = NULL;
static int	max_depths = 0;

/* ------------------------------------------------------------------------
 * Statements
 * ------------------------------------------------------------------------
 */

void
continuation_enter(void)
{
	if (depth++ == 0)
		txn_sequences_may_be_used(false);
}

/* (After a procedure that has ended its transaction it is 0 already.) */
void
continuation_leave(void)
{
	if (depth > 0)
		depth--;
}

bool
continuation_at_top(void)
{
	return depth == 0;
}

/* (Planning, which may call functions, knows the text of the statement.) */
bool
continuation_in_statement(void)
{
	return depth > 0 || ActivePortal != NULL || debug_query_string != NULL;
}

static void
require_statement(const char *function)
{
	if (ActivePortal == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s must be called in a statement", function),
				 errhint("Call it with SELECT.")));
}

static void
statement_finished(void)
{
	if (not_counted)
		not_counted = false;
	else
		statements++;
	if (unlikely(txn_is_kept()))
	{
		keepable_statement_end();
		txn_statement_finished(statements);
	}
}

/*
 * Does a function run the portal?  Parameters and constants are read, and plans are made and
 * started, at depth 0, too, and may call functions with loops over queries.  (This call
 * does nothing but ask for the connection to SPI.)
 */
static bool
within_function(void)
{
	return SPI_unregister_relation("") != SPI_ERROR_UNCONNECTED;
}

/*
 * Is this the last statement of a client's portal?  A rule makes several statements of one:
 * then the last counts.  (If a procedure has rolled back, the portal has lost them; the
 * transaction that goes on is another one.)
 */
static bool
ends_portal(const PlannedStmt *stmt)
{
	return depth == 0 && ActivePortal != NULL && ActivePortal->stmts != NIL &&
		llast(ActivePortal->stmts) == stmt && !within_function();
}

/*
 * ExecutorRun is called again: a SELECT that a client fetches in parts is a cursor,
 * which ends with the session.
 */
void
continuation_run_again(const QueryDesc *desc)
{
	if (txn_is_kept() && ends_portal(desc->plannedstmt))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot fetch a result in parts in a transaction that is kept")));
}

/*
 * ExecutorRun has returned for the first time.  Drivers that want a single row ask for one
 * and no more: then the statement counts as finished with that.
 */
void
continuation_run_done(const QueryDesc *desc)
{
	if (ends_portal(desc->plannedstmt) && ActivePortal->strategy == PORTAL_ONE_SELECT)
		statement_finished();
}

/* ExecutorEnd has returned. */
void
continuation_executor_done(const PlannedStmt *stmt)
{
	if (ends_portal(stmt) && ActivePortal->strategy != PORTAL_ONE_SELECT)
		statement_finished();
}

void
continuation_utility_done(const PlannedStmt *stmt, ProcessUtilityContext context)
{
	if (context == PROCESS_UTILITY_TOPLEVEL && ends_portal(stmt))
		statement_finished();
}

void
continuation_start_sub(void)
{
	int			level = GetCurrentTransactionNestLevel();

	if (level >= max_depths)
	{
		int			n = Max(64, 2 * level);

		depths = depths == NULL ? MemoryContextAlloc(TopMemoryContext, n * sizeof(int)) :
			repalloc(depths, n * sizeof(int));
		max_depths = n;
	}
	depths[level] = depth;
}

/* The error that aborts the subtransaction has left functions without continuation_leave(). */
void
continuation_abort_sub(void)
{
	int			level = GetCurrentTransactionNestLevel();

	if (level < max_depths)
		depth = depths[level];
	if (depth == 0)
		txn_publish_sequences_on_error();
}

void
continuation_end_of_xact(void)
{
	depth = 0;
	statements = 0;
	not_counted = false;
	keepable_end_of_xact();
}

/* ------------------------------------------------------------------------
 * Tokens
 * ------------------------------------------------------------------------
 */

static void
hash_token(const uint8 *token, uint8 *hash)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);

	if (context == NULL || pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, token, TOKEN_BYTES) < 0 ||
		pg_cryptohash_final(context, hash, PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute SHA-256 hash");
	pg_cryptohash_free(context);
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* False if the text cannot be a token. */
static bool
parse_token(const text *arg, uint8 *hash)
{
	const char *p = VARDATA_ANY(arg);
	uint8		token[TOKEN_BYTES];

	if (VARSIZE_ANY_EXHDR(arg) != 2 * TOKEN_BYTES)
		return false;
	for (int i = 0; i < TOKEN_BYTES; i++)
	{
		int			high = hex_digit(p[2 * i]);
		int			low = hex_digit(p[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		token[i] = (uint8) (high << 4 | low);
	}
	hash_token(token, hash);
	return true;
}

static void
find_by_token(const text *arg, TxnKeptInfo *info)
{
	uint8		hash[PG_SHA256_DIGEST_LENGTH];

	memset(info, 0, sizeof(*info));
	if (parse_token(arg, hash))
		txn_kept_find(hash, info);
}

static const char *
outcome_name(TxnKeptOutcome outcome)
{
	switch (outcome)
	{
		case TXN_KEPT_UNKNOWN:
			break;
		case TXN_KEPT_RUNNING:
		case TXN_KEPT_WAITING:
			return "open";
		case TXN_KEPT_COMMITTED:
			return "committed";
		case TXN_KEPT_ABORTED:
			return "aborted";
		case TXN_KEPT_EXPIRED:
			return "expired";
	}
	return NULL;
}

pg_noreturn static void
not_waiting(TxnKeptOutcome outcome)
{
	if (outcome == TXN_KEPT_UNKNOWN)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no kept transaction has this token"),
				 errdetail("Outcomes are known for a day.")));
	if (outcome == TXN_KEPT_RUNNING || outcome == TXN_KEPT_WAITING)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the kept transaction is run by a session")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the kept transaction has ended"),
			 errdetail("Its outcome: %s.", outcome_name(outcome))));
}

/* ------------------------------------------------------------------------
 * Functions
 * ------------------------------------------------------------------------
 */

Datum
sofort_keep_transaction(PG_FUNCTION_ARGS)
{
	uint8		token[TOKEN_BYTES];
	uint8		hash[PG_SHA256_DIGEST_LENGTH];
	char		hex[2 * TOKEN_BYTES + 1];
	char	   *label = text_to_cstring(PG_GETARG_TEXT_PP(0));

	require_statement("sofort.keep_transaction()");
	RequireTransactionBlock(true, "sofort.keep_transaction()");
	if (strlen(label) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("label of a kept transaction is too long"),
				 errdetail("It must be less than %d bytes.", NAMEDATALEN)));
	if (!txn_is_kept())
		keepable_so_far();
	if (!pg_strong_random(token, sizeof(token)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	hash_token(token, hash);
	txn_keep(hash, label, GetCurrentTransactionStartTimestamp());
	not_counted = true;
	hex[hex_encode((const char *) token, sizeof(token), hex)] = '\0';
	PG_RETURN_TEXT_P(cstring_to_text(hex));
}

/* A table that a kept transaction has used. */
typedef struct UsedTable
{
	StoreId		store;
	Oid			relid;
	bool		changed;		/* else it has only locked rows of it */
} UsedTable;

static void
collect_store(void *arg, StoreId store, bool changed)
{
	List	  **stores = arg;
	ListCell   *lc;
	UsedTable  *t;

	foreach(lc, *stores)
	{
		t = lfirst(lc);
		if (t->store == store)
		{
			t->changed |= changed;
			return;
		}
	}
	t = palloc0(sizeof(UsedTable));
	t->store = store;
	t->changed = changed;
	*stores = lappend(*stores, t);
}

/* Those stores of this database that still belong to tables */
static List *
tables_of(List *stores)
{
	List	   *tables = NIL;
	ListCell   *lc;

	foreach(lc, stores)
	{
		UsedTable  *t = lfirst(lc);
		const StoreHeader *header = store_find_by_id(t->store);

		t->relid = header == NULL || header->db_oid != MyDatabaseId ? InvalidOid :
			compat_relid_by_number(header->spc_oid, header->rel_number);
		if (OidIsValid(t->relid))
			tables = lappend(tables, t);
	}
	return tables;
}

static bool
has_begun(void)
{
	return GetCurrentTransactionNestLevel() > 1 || statements > 0 || !keepable_is_clean() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/*
 * Takes the locks that its statements had.  Nobody holds them now, so others may have come
 * before us, and may be waiting for the transaction's rows: waiting for them would be a
 * deadlock that the lock manager cannot see.
 *
 * Also waits for the indexes: one that is being rebuilt leaves rows of younger transactions
 * to their writers, but the rows of this transaction get a younger xid, and their writer is
 * gone.  If we build one, functions of the table's owner run, which may do anything.
 */
static void
prepare_resume(const TxnKeptInfo *info)
{
	List	   *stores = NIL;
	ListCell   *lc;

	txn_kept_visit_stores(info->place, collect_store, &stores);
	foreach(lc, tables_of(stores))
	{
		const UsedTable *t = lfirst(lc);

		txn_lock_for_resume(t->relid, t->changed ? RowExclusiveLock : RowShareLock);
		keepable_resumed(t->relid, t->changed);
		SOFORT_STOP("resume-indexes");
		indexam_complete(t->relid);
	}
	if (has_begun())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the kept transaction cannot be resumed in a transaction that has done something else"),
				 errdetail("Functions of an index, which was rebuilt, have changed or locked something."),
				 errhint("The transaction still waits to be resumed: try again.")));
	keepable_so_far();
}

bool
continuation_resume(const TxnKeptInfo *info)
{
	volatile bool taken = false;

	txn_kept_begin_taking(info);
	PG_TRY();
	{
		prepare_resume(info);
		taken = txn_resume(info);
	}
	PG_FINALLY();
	{
		txn_kept_end_taking();
	}
	PG_END_TRY();
	if (!taken)
		return false;
	statements = info->statements;
	not_counted = true;
	return true;
}

static void
check_may_resume(const TxnKeptInfo *info)
{
	require_statement("sofort.resume_transaction()");
	RequireTransactionBlock(true, "sofort.resume_transaction()");
	if (has_begun())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("sofort.resume_transaction() must be called before any other statement of the transaction")));
	if (IsolationUsesXactSnapshot() || XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("sofort.resume_transaction() needs a transaction that is READ COMMITTED and READ WRITE")));

	/*
	 * A statement that has taken its command id already would have one that is too low: its
	 * rows would pass for those of a statement that the transaction had finished.
	 */
	CommandCounterIncrement();
	if (GetCurrentCommandId(false) != FirstCommandId)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("sofort.resume_transaction() must be called in a statement that changes and locks no rows")));
	if (info->outcome != TXN_KEPT_WAITING)
		not_waiting(info->outcome);
	if (info->role != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the kept transaction belongs to another role")));
	if (info->db_oid != MyDatabaseId)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the kept transaction belongs to another database"),
				 errhint("Connect to database \"%s\".", get_database_name(info->db_oid))));

	/*
	 * An error now leaves it to others; what the session has done before it began this
	 * transaction would roll it back, at the end of this statement or of any other.
	 */
	keepable_so_far();
}

Datum
sofort_resume_transaction(PG_FUNCTION_ARGS)
{
	TxnKeptInfo info;
	TupleDesc	desc;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	find_by_token(PG_GETARG_TEXT_PP(0), &info);

	/* "SELECT (resume_transaction(...)).*" calls it once for each column */
	if (txn_runs(&info))
		not_counted = true;
	else
	{
		check_may_resume(&info);
		if (!continuation_resume(&info))
		{
			find_by_token(PG_GETARG_TEXT_PP(0), &info);
			not_waiting(info.outcome);
		}
	}
	values[0] = CStringGetTextDatum(info.label);
	values[1] = Int64GetDatum((int64) info.statements);
	values[2] = TimestampTzGetDatum(info.started);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

Datum
sofort_transaction_outcome(PG_FUNCTION_ARGS)
{
	TxnKeptInfo info;

	find_by_token(PG_GETARG_TEXT_PP(0), &info);
	if (info.outcome == TXN_KEPT_UNKNOWN)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(outcome_name(info.outcome)));
}

Datum
sofort_abort_transaction(PG_FUNCTION_ARGS)
{
	TxnKeptInfo info;

	find_by_token(PG_GETARG_TEXT_PP(0), &info);
	if (info.outcome != TXN_KEPT_UNKNOWN && info.role != GetUserId() && !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the kept transaction belongs to another role")));
	if (info.outcome != TXN_KEPT_WAITING || !txn_kept_abort(&info))
	{
		find_by_token(PG_GETARG_TEXT_PP(0), &info);
		not_waiting(info.outcome);
	}
	PG_RETURN_VOID();
}

/* ------------------------------------------------------------------------
 * Tables of transactions that wait: nobody holds their locks
 * ------------------------------------------------------------------------
 */

/* Before a statement, while catalogs are as they were; NIL in almost all cases. */
List *
continuation_waiting_tables(void)
{
	List	   *stores = NIL;

	if (likely(!txn_any_kept_waits()) || !IsTransactionState())
		return NIL;
	txn_all_kept_visit_stores(MyDatabaseId, collect_store, &stores);
	return tables_of(stores);
}

static void
refuse_if_used(const UsedTable *table)
{
	const char *name = get_rel_name(table->relid);

	if (!txn_kept_uses_store(table->store))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 name == NULL ?
			 errmsg("a table is used by a kept transaction that waits to be resumed") :
			 errmsg("table \"%s\" is used by a kept transaction that waits to be resumed", name),
			 errhint("Try again after it has been resumed or rolled back; see sofort.transactions.")));
}

/*
 * Called after it: raises an error for a lock that those of the waiting transaction would
 * have kept out.  That is sufficient, because no transaction begins to wait during a server
 * life, and whoever resumes one locks its tables first.
 */
void
continuation_check_locks(List *tables)
{
	static const LOCKMODE modes[] = {
		ShareLock, ShareRowExclusiveLock, ExclusiveLock, AccessExclusiveLock
	};
	ListCell   *lc;

	if (!IsTransactionState())
		return;
	foreach(lc, tables)
	{
		const UsedTable *table = lfirst(lc);
		bool		held = false;

		for (int i = 0; i < (int) lengthof(modes); i++)
		{
			LOCKTAG		tag;

			SET_LOCKTAG_RELATION(tag, MyDatabaseId, table->relid);
			held |= compat_lock_held_by_me(&tag, modes[i]);
		}
		if (held)
			refuse_if_used(table);
	}
}

/* The partition of DETACH PARTITION ... CONCURRENTLY, which stands alone in its statement */
static Oid
detached_concurrently(const AlterTableStmt *stmt)
{
	const AlterTableCmd *cmd = linitial_node(AlterTableCmd, stmt->cmds);

	if (cmd->subtype != AT_DetachPartition || !castNode(PartitionCmd, cmd->def)->concurrent)
		return InvalidOid;
	return RangeVarGetRelid(castNode(PartitionCmd, cmd->def)->name, NoLock, true);
}

/*
 * Called before it: that commits once before it has the lock that would be refused.  (What
 * builds or rewrites something asks for itself.)
 */
void
continuation_check_detach(const AlterTableStmt *stmt, List *tables)
{
	Oid			partition = detached_concurrently(stmt);
	Oid			parent = OidIsValid(partition) ?
		RangeVarGetRelid(stmt->relation, NoLock, true) : InvalidOid;
	ListCell   *lc;

	/* who may not do it hears so from the command */
	if (!OidIsValid(parent) || !compat_owns_relation(parent, GetUserId()))
		return;
	foreach(lc, tables)
		if (((UsedTable *) lfirst(lc))->relid == partition)
			refuse_if_used(lfirst(lc));
}

/* For DROP DATABASE and similar commands. */
void
continuation_check_database(Oid db)
{
	if (txn_kept_count_in_database(db) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("database \"%s\" is used by kept transactions that wait to be resumed",
						get_database_name(db)),
				 errhint("Try again after they have been resumed or rolled back; see sofort.transactions.")));
}
