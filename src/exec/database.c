/*-------------------------------------------------------------------------
 *
 * database.c
 *	  Databases as a whole: copied by CREATE DATABASE, moved by ALTER DATABASE.
 *
 * CREATE DATABASE copies files, and a sofort table's rows are not in its file.  The
 * stores are copied when the new pg_database row is made: at that moment nobody is
 * connected to the template and nobody can connect, and no file has been copied, so
 * that an error leaves nothing behind.
 *
 * ALTER DATABASE SET TABLESPACE moves the files of all relations in the default
 * tablespace.  Their stores do not name it, so nothing changes in the pool; but
 * indexes in DRAM are found by their file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/store.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* Template of the CREATE DATABASE that is running; the statement outlives the command. */
static const char *template_name = NULL;

/* What this transaction has done to databases: their indexes must be built */
static bool has_copied = false;
static bool has_forgotten = false;

/*
 * The check that CREATE DATABASE will make: without the right to copy the database,
 * recovery there must not be disturbed.
 */
static bool
may_copy(Oid db)
{
	HeapTuple	tuple;
	bool		may = superuser();

	if (!OidIsValid(db) || may)
		return may;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		may = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	tuple = may ? SearchSysCache1(DATABASEOID, ObjectIdGetDatum(db)) : NULL;
	if (!HeapTupleIsValid(tuple))
		return false;
	may = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate ||
		compat_owns_database(db, GetUserId());
	ReleaseSysCache(tuple);
	return may;
}

void
template_begin(const CreatedbStmt *stmt)
{
	const char *name = "template1";
	Oid			db;
	ListCell   *lc;

	foreach(lc, stmt->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			name = defGetString(option);
	}
	db = get_database_oid(name, true);
	if (may_copy(db))
	{
		continuation_check_database(db);
		recovery_leave_database(db);
	}
	template_name = name;
}

void
template_copy(Oid new_db)
{
	Oid			db;

	if (template_name == NULL)
		return;
	db = get_database_oid(template_name, true);
	if (OidIsValid(db) && store_database_in_use(db))
	{
		continuation_check_database(db);	/* looked up again under the lock: it may be
											 * another one */
		store_clone_database(db, new_db);
		has_copied = true;
	}
}

void
template_end(void)
{
	template_name = NULL;
}

/* Does the command move the database?  With other options connected sessions go on. */
bool
database_moves(const AlterDatabaseStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, "tablespace") == 0)
			return true;
	return false;
}

/*
 * Locks out new connections as the command will, and forgets the indexes in DRAM if nobody
 * is connected: they are rebuilt by workers or whoever needs them.  (If others are
 * connected, or the user may not move the database, the command fails.)
 */
void
database_before_alter(const AlterDatabaseStmt *stmt)
{
	int			nbackends;
	int			nprepared;
	Oid			db;

	if (!database_moves(stmt))
		return;
	db = get_database_oid(stmt->dbname, true);
	if (!OidIsValid(db) || !compat_owns_database(db, GetUserId()) || db == MyDatabaseId)
		return;

	LockSharedObject(DatabaseRelationId, db, 0, AccessExclusiveLock);
	if (get_database_oid(stmt->dbname, true) == db &&
		!CountOtherDBBackends(db, &nbackends, &nprepared))
	{
		indexam_forget_database(db);
		has_forgotten = true;
	}
}

/*
 * Wakes the recovery launcher: queries search tables in place of indexes, and do not build
 * them.
 */
void
database_end_of_xact(bool commit)
{
	if (has_forgotten || (has_copied && commit))
		recovery_look_for_databases(has_forgotten);
	has_copied = has_forgotten = false;
}
