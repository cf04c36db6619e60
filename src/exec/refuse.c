/*-------------------------------------------------------------------------
 *
 * refuse.c
 *	  Clear errors for what this version does not support.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_publication.h"
#include "miscadmin.h"
#include "sofort/compat/ddl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* Does this name a sofort relation of this relkind? */
static bool
names_sofort_relation(const RangeVar *name, char relkind)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	HeapTuple	tuple;
	bool		result;

	/*
	 * under the command's lock, because it may be about to become one (without the
	 * privilege the command itself raises the error)
	 */
	if (!OidIsValid(relid) || !compat_owns_relation(relid, GetUserId()))
		return false;
	relid = RangeVarGetRelid(name, ShareUpdateExclusiveLock, true);
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relkind == relkind &&
		((Form_pg_class) GETSTRUCT(tuple))->relam == exec_table_am_oid();
	ReleaseSysCache(tuple);
	return result;
}

static void
refuse_published(const char *name, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot publish table \"%s\" because it uses access method \"%s\"", name,
					TABLE_AM_NAME),
			 errdetail("Changes of sofort tables are not in the WAL, so logical replication cannot send them."),
			 errhint("%s", hint)));
}

#define UNPUBLISHED_HINT "Use heap for tables that are to be replicated."

/* The command also adds tables that inherit from the named one. */
static void
refuse_children(const RangeVar *name)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	ListCell   *lc;

	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_RELATION ||
		!compat_owns_relation(relid, GetUserId()))
		return;
	/* the parent first, as the command does */
	relid = RangeVarGetRelid(name, ShareUpdateExclusiveLock, true);
	if (!OidIsValid(relid))
		return;
	foreach(lc, find_all_inheritors(relid, ShareUpdateExclusiveLock, NULL))
		if (exec_relation_am(lfirst_oid(lc)) == exec_table_am_oid())
			refuse_published(get_rel_name(lfirst_oid(lc)), UNPUBLISHED_HINT);
}

/*
 * A subscriber would copy the table once and then never hear of a change, because the WAL
 * has none.  (FOR ALL TABLES and the like do not name the table.)
 */
void
refuse_publication(List *objects)
{
	ListCell   *lc;

	foreach(lc, objects)
	{
		PublicationObjSpec *object = lfirst_node(PublicationObjSpec, lc);

		if (object->pubobjtype != PUBLICATIONOBJ_TABLE || object->pubtable == NULL)
			continue;
		if (names_sofort_relation(object->pubtable->relation, RELKIND_RELATION))
			refuse_published(object->pubtable->relation->relname, UNPUBLISHED_HINT);
		else if (object->pubtable->relation->inh)
			refuse_children(object->pubtable->relation);
	}
}

/* The same for a table that a publication names, and that becomes a sofort table. */
void
refuse_conversion(Oid relid)
{
	if (GetRelationPublications(relid) != NIL)
		refuse_published(get_rel_name(relid), "Drop it from its publications first.");
}

/* Their operators would have to be in the operator families of the index. */
void
refuse_exclusion(const char *access_method)
{
	if (access_method != NULL && strcmp(access_method, INDEX_AM_NAME) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" does not support exclusion constraints",
						access_method),
				 errhint("Use btree or gist for the constraint.")));
}
