/*-------------------------------------------------------------------------
 *
 * refuse.c
 *	  Clear errors for what this version does not support.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "sofort/compat/ddl.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/store.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* Does this name a sofort relation of the kind now? */
static bool
names_sofort_relation(const RangeVar *name, char relkind)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relkind == relkind &&
		((Form_pg_class) GETSTRUCT(tuple))->relam == exec_table_am_oid();
	ReleaseSysCache(tuple);
	return result;
}

/*
 * A subscriber would copy the table once and then never hear of a change: the
 * WAL has none.  (FOR ALL TABLES and the like do not name the table.)
 */
void
refuse_publication(List *objects)
{
	ListCell   *lc;

	foreach(lc, objects)
	{
		PublicationObjSpec *object = lfirst_node(PublicationObjSpec, lc);

		if (object->pubobjtype == PUBLICATIONOBJ_TABLE && object->pubtable != NULL &&
			names_sofort_relation(object->pubtable->relation, RELKIND_RELATION))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot publish table \"%s\" because it uses access method \"sofort\"",
							object->pubtable->relation->relname),
					 errdetail("Changes of sofort tables are not in the WAL, so logical replication cannot send them."),
					 errhint("Use heap for tables that are to be replicated.")));
	}
}

/*
 * ALTER DATABASE SET TABLESPACE moves files and changes the locators of all
 * relations in the default tablespace.  Locks out new connections first, so
 * that the answer stays true; with others connected the command fails anyway.
 */
void
refuse_alter_database_tablespace(const AlterDatabaseStmt *stmt)
{
	bool		moves = false;
	uint64		nstores = 0;
	int			nbackends;
	int			nprepared;
	Oid			db;
	ListCell   *lc;

	foreach(lc, stmt->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, "tablespace") == 0)
			moves = true;
	if (!moves)
		return;
	db = get_database_oid(stmt->dbname, true);
	if (!OidIsValid(db) || !compat_owns_database(db, GetUserId()) || db == MyDatabaseId)
		return;					/* the command itself reports that */

	LockSharedObject(DatabaseRelationId, db, 0, AccessExclusiveLock);
	if (get_database_oid(stmt->dbname, true) != db ||
		CountOtherDBBackends(db, &nbackends, &nprepared))
		return;					/* likewise */
	if (store_database_in_use(db, &nstores))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the tablespace of database \"%s\" because it contains sofort tables",
						stmt->dbname),
				 errdetail_plural("The pool holds the data of " UINT64_FORMAT " table of this database.",
								  "The pool holds the data of " UINT64_FORMAT " tables of this database.",
								  (unsigned long) nstores, nstores),
				 errhint("Move its tables and indexes with ALTER TABLE ... SET TABLESPACE.")));
}
