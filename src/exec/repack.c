/*-------------------------------------------------------------------------
 *
 * repack.c
 *	  The copy that pg_repack makes of a table has the table's access method.
 *
 * pg_repack (all versions up to 1.5.3) creates repack.table_OID without an access method,
 * so with default_table_access_method, and then exchanges the files of the two tables in
 * pg_class, but not their access methods.  If these differ, both tables are lost: heap
 * finds an empty file, sofort no store.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "commands/defrem.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include "exec_internal.h"

#define REPACK_SCHEMA "repack"
#define REPACK_COPY "table_"

/* The table of which this will be pg_repack's copy, or InvalidOid. */
static Oid
original_of_copy(const RangeVar *copy)
{
	const char *digits = copy->relname + strlen(REPACK_COPY);
	Oid			original;

	if (copy->schemaname == NULL || strcmp(copy->schemaname, REPACK_SCHEMA) != 0 ||
		strncmp(copy->relname, REPACK_COPY, strlen(REPACK_COPY)) != 0)
		return InvalidOid;
	original = atooid(digits);
	if (strcmp(digits, psprintf("%u", original)) != 0 ||
		get_rel_relkind(original) != RELKIND_RELATION)
		return InvalidOid;
	return original;
}

void
repack_before_create(Node *stmt)
{
	IntoClause *into;
	Oid			original;
	Oid			am;

	if (!IsA(stmt, CreateTableAsStmt))
		return;
	into = castNode(CreateTableAsStmt, stmt)->into;
	if (into->rel == NULL || into->accessMethod != NULL)
		return;
	original = original_of_copy(into->rel);
	if (!OidIsValid(original))
		return;
	am = exec_relation_am(original);

	/* two others are none of sofort's business */
	if (am == exec_table_am_oid() || exec_is_table_am(default_table_access_method))
		into->accessMethod = get_am_name(am);
}
