/*-------------------------------------------------------------------------
 *
 * temporary.c
 *	  Temporary tables, and those of extensions, are heap tables.
 *
 * sofort would be of no use for them: they are private to a session, end with it, and
 * on heap lie in its local memory.  Where sofort is only the default, heap is named
 * instead, so that the catalogs say what the table is; who asks for sofort by name gets
 * an error.
 *
 * Tables that the script of an extension makes are heap tables where sofort is only the
 * default: the extension's C code may read and write them as PostgreSQL does its catalogs,
 * past the table access method (pg_cron, pglogical), and what heap_insert() puts into the
 * file of a sofort table nobody finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "nodes/parsenodes.h"
#include "sofort/compat/ddl.h"

#include "exec_internal.h"

static void
refuse_temporary(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("temporary tables cannot use the table access method \"%s\"", TABLE_AM_NAME),
			 errhint("Leave out the access method: temporary tables are heap tables, also where default_table_access_method is \"%s\".",
					 TABLE_AM_NAME)));
}

/*
 * Will the table be a temporary one?  (A schema that cannot be used is the
 * command's own error; it looks for it in the same way.)
 */
static bool
will_be_temporary(const RangeVar *rel)
{
	Oid			schema;

	if (rel->relpersistence == RELPERSISTENCE_TEMP)
		return true;
	if (rel->schemaname == NULL)
		schema = RangeVarGetCreationNamespace(rel);
	else if (strcmp(rel->schemaname, "pg_temp") == 0)
		return true;
	else
		schema = LookupNamespaceNoError(rel->schemaname);
	return OidIsValid(schema) && isTempNamespace(schema);
}

/* am: where the statement has the name; NULL there if it names none. */
static void
fix_access_method(const RangeVar *rel, char **am)
{
	bool		temporary;

	if (!exec_is_table_am(*am != NULL ? *am : default_table_access_method))
		return;
	temporary = will_be_temporary(rel);
	if (temporary && *am != NULL)
		refuse_temporary();
	if (temporary || (creating_extension && *am == NULL))
		*am = pstrdup("heap");
}

/* A partition whose parent names an access method takes that one (since 17). */
static bool
inherits_access_method(const CreateStmt *stmt)
{
	Oid			parent;

	if (!SOFORT_PARTITIONED_HAS_AM || stmt->partbound == NULL ||
		stmt->accessMethod != NULL || stmt->inhRelations == NIL)
		return false;
	parent = RangeVarGetRelid(linitial_node(RangeVar, stmt->inhRelations), NoLock, true);
	return OidIsValid(parent) && OidIsValid(exec_relation_am(parent));
}

void
temporary_before_create(Node *stmt)
{
	if (IsA(stmt, ExplainStmt))
	{
		Query	   *query = (Query *) castNode(ExplainStmt, stmt)->query;

		if (!IsA(query, Query) || query->utilityStmt == NULL)
			return;
		stmt = query->utilityStmt;
	}
	if (IsA(stmt, CreateStmt))
	{
		CreateStmt *create = castNode(CreateStmt, stmt);

		/* a partitioned table has none unless it names it */
		if ((create->partspec == NULL || create->accessMethod != NULL) &&
			!inherits_access_method(create))
			fix_access_method(create->relation, &create->accessMethod);
	}
	else if (IsA(stmt, CreateTableAsStmt))
	{
		CreateTableAsStmt *create = castNode(CreateTableAsStmt, stmt);

		if (create->into->rel != NULL)
			fix_access_method(create->into->rel, &create->into->accessMethod);
	}
}

void
temporary_before_alter(Oid relid, AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype != AT_SetAccessMethod)
			continue;
		if (cmd->name == NULL)
		{
			/* DEFAULT */
			if (exec_is_table_am(default_table_access_method))
				cmd->name = pstrdup("heap");
		}
		else if (exec_is_table_am(cmd->name))
			refuse_temporary();
	}
}
