/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  sofort.verify(), verify_pool(), salvage(), create_pool(), accept_reset(), backup().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_type.h"
#include "sofort/compat/ddl.h"
#include "sofort/compat/indexam.h"
#include "sofort/exec/exec.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/txn.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "monitor_internal.h"

PG_FUNCTION_INFO_V1(sofort_verify);
PG_FUNCTION_INFO_V1(sofort_verify_pool);
PG_FUNCTION_INFO_V1(sofort_salvage);
PG_FUNCTION_INFO_V1(sofort_salvage_report);
PG_FUNCTION_INFO_V1(sofort_create_pool);
PG_FUNCTION_INFO_V1(sofort_accept_reset);
PG_FUNCTION_INFO_V1(sofort_backup);

typedef struct Findings
{
	ReturnSetInfo *rsinfo;
	Oid			relation;		/* InvalidOid: the pool */
} Findings;

static void
put_finding(void *arg, const char *kind, const char *place, const char *problem)
{
	Findings   *findings = arg;
	Datum		values[4] = {0};
	bool		nulls[4] = {0};

	values[0] = ObjectIdGetDatum(findings->relation);
	nulls[0] = !OidIsValid(findings->relation);
	values[1] = CStringGetTextDatum(kind);
	values[2] = CStringGetTextDatum(place);
	values[3] = CStringGetTextDatum(problem);
	tuplestore_putvalues(findings->rsinfo->setResult, findings->rsinfo->setDesc, values, nulls);
}

static void
check_is_table(Relation rel)
{
	if ((rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW) ||
		rel->rd_rel->relam != exec_table_am_oid())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a sofort table", RelationGetRelationName(rel)),
				 errhint("Only tables and materialized views with access method \"sofort\" can be verified or salvaged.")));
}

/*
 * Index expressions and predicates are the owner's code: run them as the owner,
 * in a security-restricted operation, as index builds do.
 */
static void
check_rows(Relation rel, Relation index, Findings *findings)
{
	store_verify(rel, store_open(rel), put_finding, findings);
}

static void
check_index(Relation rel, Relation index, Findings *findings)
{
	monitor_verify_index(rel, store_open(rel), index, put_finding, findings);
}

/*
 * Damage may make anything fail on which the check relies, user functions included: an
 * error is a finding, too, and does not end the check of the rest.
 */
static void
check_safely(void (*check) (Relation rel, Relation index, Findings *findings), Relation rel,
			 Relation index, Findings *findings)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		check(rel, index, findings);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		/* even if it is raised again: whoever catches it ends one subtransaction, his own */
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
			ReThrowError(error);
		put_finding(findings, index == NULL ? "table" : "index",
					RelationGetRelationName(index == NULL ? rel : index),
					psprintf("the check failed: %s", error->message));
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

static void
verify_relation(Relation rel, Findings *findings)
{
	Oid			save_userid;
	int			save_context;
	int			save_nestlevel;
	List	   *indexes;
	ListCell   *lc;

	GetUserIdAndSecContext(&save_userid, &save_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner, save_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	compat_restrict_search_path();

	pool_require();
	txn_resolve_leftovers();
	findings->relation = RelationGetRelid(rel);
	if (store_verify_metadata(rel, put_finding, findings))
	{
		check_safely(check_rows, rel, NULL, findings);
		indexes = RelationGetIndexList(rel);
	}
	else
		indexes = NIL;			/* nothing can be compared with them */
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index->rd_rel->relam == exec_index_am_oid() && index->rd_index->indisready &&
			index->rd_index->indisvalid)
		{
			findings->relation = RelationGetRelid(index);
			check_safely(check_index, rel, index, findings);
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);

	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(save_userid, save_context);
}

static void
check_is_own(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	if (relkind != '\0' && !compat_owns_relation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(relkind), get_rel_name(relid));
}

Relation
monitor_open_own_relation(Oid relid, LOCKMODE lockmode)
{
	Relation	rel;

	check_is_own(relid);		/* others may not even wait for the lock */
	rel = try_relation_open(relid, lockmode);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check_is_own(relid);		/* still, after waiting */
	return rel;
}

/*
 * Opens a table of the caller, and locks it so that nobody else changes it until the end of
 * the transaction
 */
static Relation
open_own_table(Oid relid)
{
	Relation	rel;

	if (RecoveryInProgress())
		pool_require();
	rel = monitor_open_own_relation(relid, AccessShareLock);
	check_is_table(rel);
	LockRelationOid(relid, ShareLock);
	return rel;
}

static bool verifying = false;

Datum
sofort_verify(PG_FUNCTION_ARGS)
{
	Findings	findings = {0};
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	findings.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	/*
	 * an index expression that verifies its table would recurse for ever, because errors
	 * are findings
	 */
	if (verifying)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("sofort.verify() is being executed by this session already")));
	rel = open_own_table(PG_GETARG_OID(0));
	verifying = true;
	PG_TRY();
	{
		verify_relation(rel, &findings);
	}
	PG_FINALLY();
	{
		verifying = false;
	}
	PG_END_TRY();
	relation_close(rel, NoLock);
	return (Datum) 0;
}

/* ---- salvage ---- */

#define MAX_WARNINGS	20

typedef struct Salvaged
{
	Findings	findings;
	uint64		nproblems;
} Salvaged;

static void
put_salvaged_row(void *arg, const Datum *values, const bool *isnull)
{
	Salvaged   *salvaged = arg;
	ReturnSetInfo *rsinfo = salvaged->findings.rsinfo;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, unconstify(Datum *, values),
						 unconstify(bool *, isnull));
}

static void
warn_of_loss(void *arg, const char *kind, const char *place, const char *problem)
{
	Salvaged   *salvaged = arg;

	if (salvaged->nproblems++ < MAX_WARNINGS)
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED), errmsg("%s: %s", place, problem)));
}

static void
ignore_row(void *arg, const Datum *values, const bool *isnull)
{
}

static void
put_loss(void *arg, const char *kind, const char *place, const char *problem)
{
	put_finding(&((Salvaged *) arg)->findings, kind, place, problem);
}

/*
 * The row type was looked up when the statement was started.  If a column has another type
 * by now, its value may not be a pointer where one is expected.
 */
static void
check_row_type(Relation rel, TupleDesc expected)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		same = desc->natts == expected->natts;

	for (int i = 0; i < desc->natts && same; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		Form_pg_attribute e = TupleDescAttr(expected, i);

		same = a->attisdropped == e->attisdropped && a->atttypid == e->atttypid &&
			a->atttypmod == e->atttypmod && a->attcollation == e->attcollation &&
			a->attlen == e->attlen && a->attbyval == e->attbyval && a->attalign == e->attalign;
	}
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" was changed meanwhile", RelationGetRelationName(rel))));
}

/*
 * The readable rows of a table.  Its row type is that of the argument, whose value
 * does not matter.
 */
Datum
sofort_salvage(PG_FUNCTION_ARGS)
{
	Oid			relid = typeOrDomainTypeRelid(get_fn_expr_argtype(fcinfo->flinfo, 0));
	Salvaged	salvaged = {0};
	Relation	rel;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the argument is not of the row type of a table"),
				 errhint("Write SELECT * FROM sofort.salvage(NULL::table_name).")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	salvaged.findings.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	rel = open_own_table(relid);
	check_row_type(rel, salvaged.findings.rsinfo->setDesc);
	PushActiveSnapshot(GetLatestSnapshot());
	store_salvage(rel, put_salvaged_row, warn_of_loss, &salvaged);
	PopActiveSnapshot();
	if (salvaged.nproblems > MAX_WARNINGS)
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read " UINT64_FORMAT " parts of table \"%s\" in total",
						salvaged.nproblems, RelationGetRelationName(rel)),
				 errhint("sofort.salvage_report() lists them.")));
	relation_close(rel, NoLock);
	return (Datum) 0;
}

/* What sofort.salvage() leaves out */
Datum
sofort_salvage_report(PG_FUNCTION_ARGS)
{
	Salvaged	salvaged = {0};
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	salvaged.findings.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	rel = open_own_table(PG_GETARG_OID(0));
	salvaged.findings.relation = RelationGetRelid(rel);
	PushActiveSnapshot(GetLatestSnapshot());
	store_salvage(rel, ignore_row, put_loss, &salvaged);
	PopActiveSnapshot();
	relation_close(rel, NoLock);
	return (Datum) 0;
}

Datum
sofort_verify_pool(PG_FUNCTION_ARGS)
{
	Findings	findings = {0};

	InitMaterializedSRF(fcinfo, 0);
	findings.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	pool_require();
	txn_resolve_leftovers();
	(void) store_collect_orphans();
	if (pool_verify(put_finding, &findings))
		monitor_verify_pool_space(put_finding, &findings);
	return (Datum) 0;
}

Datum
sofort_create_pool(PG_FUNCTION_ARGS)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to create a pool")));
	PreventCommandDuringRecovery("sofort.create_pool()");
	pool_create_anew();
	PG_RETURN_VOID();
}

Datum
sofort_accept_reset(PG_FUNCTION_ARGS)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to use a pool after pg_resetwal")));
	PreventCommandDuringRecovery("sofort.accept_reset()");
	pool_accept_reset();
	PG_RETURN_VOID();
}

/*
 * Makes a copy of the pool for a base backup: README.md, "Backup".  The server writes it
 * wherever it has permission, though only to a new file: so this is for superusers only.
 */
Datum
sofort_backup(PG_FUNCTION_ARGS)
{
	PmBackup	backup = {.path = text_to_cstring(PG_GETARG_TEXT_PP(0))};
	TupleDesc	tupdesc;
	Datum		values[4];
	bool		nulls[4] = {0};

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to back up the sofort pool")));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	pool_backup(&backup);
	values[0] = CStringGetTextDatum(backup.restore_point);
	values[1] = LSNGetDatum(backup.lsn);
	values[2] = Int64GetDatum((int64) backup.bytes);
	values[3] = Float8GetDatum(backup.held_ms);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}
