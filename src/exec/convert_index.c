/*-------------------------------------------------------------------------
 *
 * convert_index.c
 *	  Changes the access method of an existing index.
 *
 * PostgreSQL has no command for that.  The index keeps its OID, so that
 * constraints, foreign keys, comments and dependencies stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "nodes/makefuncs.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

#include "exec_internal.h"

static Form_pg_am
am_form(Oid am, HeapTuple *tuple)
{
	*tuple = SearchSysCache1(AMOID, ObjectIdGetDatum(am));
	if (!HeapTupleIsValid(*tuple))
		elog(ERROR, "cache lookup failed for access method %u", am);
	return (Form_pg_am) GETSTRUCT(*tuple);
}

Datum
index_options(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	Datum		options;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return (Datum) 0;
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	if (isnull)
		options = (Datum) 0;
	else
		options = datumCopy(options, false, -1);
	ReleaseSysCache(tuple);
	return options;
}

void
index_set_options(Oid index, Datum options)
{
	Relation	pg_class = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	Datum		values[Natts_pg_class] = {0};
	bool		nulls[Natts_pg_class] = {0};
	bool		replace[Natts_pg_class] = {0};
	HeapTuple	changed;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	values[Anum_pg_class_reloptions - 1] = options;
	nulls[Anum_pg_class_reloptions - 1] = (options == (Datum) 0);
	replace[Anum_pg_class_reloptions - 1] = true;
	changed = heap_modify_tuple(tuple, RelationGetDescr(pg_class), values, nulls, replace);
	CatalogTupleUpdate(pg_class, &changed->t_self, changed);
	heap_freetuple(changed);
	ReleaseSysCache(tuple);
	table_close(pg_class, RowExclusiveLock);
	CommandCounterIncrement();
}

/* Storage parameters: both access methods know fillfactor. */
bool
index_option_fits(const char *name, bool btree)
{
	return strcmp(name, "fillfactor") == 0 ||
		(strcmp(name, "placement") == 0) != btree;
}

static List *
options_that_do_not_fit(Datum options, Oid am)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, untransformRelOptions(options))
	{
		char	   *name = lfirst_node(DefElem, lc)->defname;

		if (!index_option_fits(name, am == BTREE_AM_OID))
			result = lappend(result, makeDefElem(name, NULL, -1));	/* as RESET takes it */
	}
	return result;
}

bool
index_options_fit(Oid index, Oid am)
{
	Datum		options = index_options(index);

	return options == (Datum) 0 || options_that_do_not_fit(options, am) == NIL;
}

void
index_keep_options(Oid index, Oid am)
{
	Datum		options = index_options(index);
	List	   *others = options == (Datum) 0 ? NIL : options_that_do_not_fit(options, am);

	if (others != NIL)
		index_set_options(index, transformRelOptions(options, others, NULL, NULL, false, true));
}

/*
 * A sofort index uses the operator classes of btree (so that foreign keys accept it):
 * replaces classes of its own by btree's of the same name.
 */
static void
use_btree_opclasses(Oid index)
{
	Relation	pg_index = table_open(IndexRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(INDEXRELID, ObjectIdGetDatum(index));
	oidvector  *classes;
	bool		isnull;
	bool		changed = false;
	Datum		d;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	d = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indclass, &isnull);
	Assert(!isnull);
	classes = (oidvector *) DatumGetPointer(d); /* in our copy of the tuple */
	for (int i = 0; i < classes->dim1; i++)
	{
		HeapTuple	class_tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(classes->values[i]));
		Form_pg_opclass form;
		Oid			own = InvalidOid;

		if (!HeapTupleIsValid(class_tuple))
			elog(ERROR, "cache lookup failed for operator class %u", classes->values[i]);
		form = (Form_pg_opclass) GETSTRUCT(class_tuple);
		if (form->opcmethod != BTREE_AM_OID)
			own = get_opclass_oid(BTREE_AM_OID,
								  list_make1(makeString(pstrdup(NameStr(form->opcname)))), false);
		ReleaseSysCache(class_tuple);
		if (OidIsValid(own))
		{
			classes->values[i] = own;
			changed = true;
		}
	}
	if (changed)
		CatalogTupleUpdate(pg_index, &tuple->t_self, tuple);
	table_close(pg_index, RowExclusiveLock);
}

static oidvector *
opclasses_in(HeapTuple index_tuple)
{
	bool		isnull;

	return (oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, index_tuple,
														 Anum_pg_index_indclass, &isnull));
}

/* Moves the index's dependency from one access method to the other. */
static void
change_dependencies(Oid index, Oid old_am, Oid new_am)
{
	ObjectAddress self;
	ObjectAddress am;

	ObjectAddressSet(self, RelationRelationId, index);
	if (new_am != BTREE_AM_OID)
	{
		ObjectAddressSet(am, AccessMethodRelationId, new_am);
		recordDependencyOn(&self, &am, DEPENDENCY_NORMAL);
	}
	else
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
		oidvector  *classes;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", index);
		deleteDependencyRecordsForSpecific(RelationRelationId, index, DEPENDENCY_NORMAL,
										   AccessMethodRelationId, old_am);
		deleteDependencyRecordsForClass(RelationRelationId, index, OperatorClassRelationId,
										DEPENDENCY_NORMAL);
		classes = opclasses_in(tuple);
		for (int i = 0; i < classes->dim1; i++)
		{
			ObjectAddress opclass;

			ObjectAddressSet(opclass, OperatorClassRelationId, classes->values[i]);
			recordDependencyOn(&self, &opclass, DEPENDENCY_NORMAL);
		}
		ReleaseSysCache(tuple);
	}
}

static void
set_access_method(Oid index, Oid am)
{
	Relation	pg_class = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(index));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	((Form_pg_class) GETSTRUCT(tuple))->relam = am;
	CatalogTupleUpdate(pg_class, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	table_close(pg_class, RowExclusiveLock);
}

/* Puts the operator classes into the relcache entry, where ADD CONSTRAINT USING INDEX looks. */
static void
refresh_opclasses(Relation rel)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(rel)));
	oidvector  *classes = opclasses_in(rel->rd_indextuple);

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", RelationGetRelid(rel));
	memcpy(classes->values, opclasses_in(tuple)->values, classes->dim1 * sizeof(Oid));
	ReleaseSysCache(tuple);
}

/* Parses the options as this access method does: another one reads them differently. */
static void
refresh_options(Relation rel)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(rel)));
	bytea	   *options;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", RelationGetRelid(rel));
	options = extractRelOptions(tuple, RelationGetDescr(pg_class), rel->rd_indam->amoptions);
	if (rel->rd_options != NULL)
		pfree(rel->rd_options);
	rel->rd_options = NULL;
	if (options != NULL)
	{
		rel->rd_options = MemoryContextAlloc(CacheMemoryContext, VARSIZE(options));
		memcpy(rel->rd_options, options, VARSIZE(options));
		pfree(options);
	}
	ReleaseSysCache(tuple);
	table_close(pg_class, AccessShareLock);
}

/*
 * If an index is new in this transaction, an invalidation does not rebuild its relcache
 * entry but refreshes parts of it, without the access method and what depends on that.
 */
static void
refresh_relcache_entry(Oid index, Oid am)
{
	Relation	rel = RelationIdGetRelation(index);
	HeapTuple	tuple;
	Oid			handler;

	if (!RelationIsValid(rel))
		elog(ERROR, "could not open index with OID %u", index);
	handler = am_form(am, &tuple)->amhandler;
	ReleaseSysCache(tuple);
	if (rel->rd_amhandler != handler)
	{
		IndexAmRoutine *routine = GetIndexAmRoutine(handler);
		IndexAmRoutine *copy = MemoryContextAlloc(rel->rd_indexcxt, sizeof(IndexAmRoutine));

		*copy = *routine;
		pfree(routine);
		Assert(copy->amsupport == rel->rd_indam->amsupport);
		rel->rd_amhandler = handler;
		rel->rd_indam = copy;
		if (rel->rd_amcache != NULL)
			pfree(rel->rd_amcache);
		rel->rd_amcache = NULL;
		refresh_options(rel);
		refresh_opclasses(rel);
	}
	RelationClose(rel);
}

/*
 * Such an entry, changed above, would stay changed if only the current subtransaction is
 * rolled back, unless the entry itself goes with that.
 */
static void
check_subtransaction(Oid index)
{
	Relation	rel = relation_open(index, AccessExclusiveLock);
	SubTransactionId current = GetCurrentSubTransactionId();

	CheckTableNotInUse(rel, "ALTER TABLE");
	if ((rel->rd_createSubid != InvalidSubTransactionId && rel->rd_createSubid != current) ||
		(rel->rd_createSubid == InvalidSubTransactionId &&
		 rel->rd_firstRelfilelocatorSubid != InvalidSubTransactionId &&
		 rel->rd_firstRelfilelocatorSubid != current))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the access method of index \"%s\" in a subtransaction",
						RelationGetRelationName(rel)),
				 errdetail("The index was created or rebuilt earlier in this transaction, outside of the current savepoint."),
				 errhint("Commit the transaction, or do it without a savepoint.")));
	relation_close(rel, NoLock);
}

void
index_rebuild(Oid index)
{
	ReindexParams params = {0};

	compat_reindex_index(index, get_rel_persistence(index), &params);
	CommandCounterIncrement();
}

void
index_convert(Oid index, Oid am, bool rebuild)
{
	HeapTuple	tuple;
	Oid			old_am;

	check_subtransaction(index);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	old_am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
	ReleaseSysCache(tuple);

	set_access_method(index, am);
	use_btree_opclasses(index);
	CommandCounterIncrement();
	if (am != BTREE_AM_OID)
		indexam_default_placement(index);
	change_dependencies(index, old_am, am);
	CacheInvalidateRelcacheByRelid(IndexGetRelation(index, false));
	CommandCounterIncrement();
	refresh_relcache_entry(index, am);
	if (rebuild)
		index_rebuild(index);
	if (rebuild && am == BTREE_AM_OID)
		indexam_drop_former_files(index);
}
