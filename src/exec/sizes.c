/*-------------------------------------------------------------------------
 *
 * sizes.c
 *	  pg_relation_size(), pg_table_size() and their like.
 *
 * PostgreSQL's functions look at files, and ask no access method.  So they do not see
 * what lies in the pool, nor do psql's \d+ and everything else that uses them.  Their
 * calls become calls of sofort's functions of the same names (see src/monitor/sizes.c)
 * when a query is planned.  Stored queries, and the names of result columns, keep
 * PostgreSQL's names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "sofort/compat/ddl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* The schema of the extension, whatever it is called */
static Oid
extension_schema(void)
{
	HeapTuple	tuple = SearchSysCache1(AMOID, ObjectIdGetDatum(exec_table_am_oid()));
	Oid			handler;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	handler = ((Form_pg_am) GETSTRUCT(tuple))->amhandler;
	ReleaseSysCache(tuple);
	return get_func_namespace(handler);
}

/* Finds a function without a check of USAGE on its schema. */
static Oid
find_function(const char *name, int nargs, const Oid *types)
{
	oidvector  *args = buildoidvector(types, nargs);

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(args), ObjectIdGetDatum(extension_schema()));
}

/* A function of sofort's schema with the signature of this one, or InvalidOid */
static Oid
our_function(Oid funcid)
{
	Oid			types[2] = {REGCLASSOID, TEXTOID};
	const char *name;
	int			nargs = 1;

	switch (funcid)
	{
		case F_PG_RELATION_SIZE_REGCLASS_TEXT:
			nargs = 2;
			/* FALLTHROUGH */
		case F_PG_RELATION_SIZE_REGCLASS:
			name = "relation_size";
			break;
		case F_PG_TABLE_SIZE:
			name = "table_size";
			break;
		case F_PG_INDEXES_SIZE:
			name = "indexes_size";
			break;
		case F_PG_TOTAL_RELATION_SIZE:
			name = "total_relation_size";
			break;
		default:
			return InvalidOid;
	}
	return find_function(name, nargs, types);
}

static bool
replace_calls(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, replace_calls, arg, 0);
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		Oid			ours = our_function(call->funcid);

		if (OidIsValid(ours) && compat_may_execute(call->funcid) && compat_may_execute(ours))
			call->funcid = ours;
	}
	return expression_tree_walker(node, replace_calls, arg);
}

/* Called for a query that is about to be planned; changes it in place. */
void
sizes_replace(Query *query)
{
	(void) replace_calls((Node *) query, NULL);
}
