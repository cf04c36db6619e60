/*-------------------------------------------------------------------------
 *
 * template.c
 *	  CREATE DATABASE ... TEMPLATE: sofort tables are copied, too.
 *
 * PostgreSQL copies files, and a sofort table's rows are not in its file.  The
 * stores are copied when the new pg_database row is made: then nobody is
 * connected to the template and nobody can connect, and nothing has been copied,
 * so that an error leaves nothing behind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/store.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* Of the CREATE DATABASE that is running; the statement outlives the command. */
static const char *template_name = NULL;
static const char *tablespace_name = NULL;

void
template_begin(const CreatedbStmt *stmt)
{
	const char *name = "template1";
	ListCell   *lc;

	tablespace_name = NULL;
	foreach(lc, stmt->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (option->arg == NULL)
			continue;
		if (strcmp(option->defname, "template") == 0)
			name = defGetString(option);
		else if (strcmp(option->defname, "tablespace") == 0)
			tablespace_name = defGetString(option);
	}
	continuation_check_database(name);
	recovery_leave_database(get_database_oid(name, true));
	template_name = name;
}

void
template_copy(Oid new_db)
{
	Oid			db;
	Oid			from_spc;
	HeapTuple	tuple;

	if (template_name == NULL)
		return;
	db = get_database_oid(template_name, true);
	if (!OidIsValid(db) || !store_database_in_use(db, NULL))
		return;
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(db));
	if (!HeapTupleIsValid(tuple))
		return;
	from_spc = ((Form_pg_database) GETSTRUCT(tuple))->dattablespace;
	ReleaseSysCache(tuple);
	store_clone_database(db, from_spc, new_db,
						 tablespace_name ? get_tablespace_oid(tablespace_name, false) : from_spc);
}

void
template_end(void)
{
	template_name = NULL;
}
