/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  Recognises kinds of statements when they are planned, counts them when
 *	  they are executed.
 *
 * A kind is a query without its constants: equal hashes of the query tree in one
 * database.  A plan carries the handle of its kind as an entry of its list of
 * invalidation items that matches no system cache: plans are copied with that list,
 * wherever they are kept, and nothing else in a plan has room for a note.  To count an
 * execution, only that list is read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "portability/instr_time.h"
#include "sofort/compat/ddl.h"
#include "sofort/pmem/fault.h"
#include "sofort/store/workload.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "exec_internal.h"

/* In PlanInvalItem.cacheId: no system cache has this number. */
#define NOTE_CACHE_ID	(-0x50F7)

/* With more tables planning takes long: such a kind is described only if it recurs often. */
#define FEW_TABLES		4

typedef struct QueryHash
{
	uint64		hash;
	Oid			table_am;
	Oid			table;			/* the first table that may be ours, or InvalidOid */
} QueryHash;

static planner_hook_type next_planner;
static bool exploring = false;	/* within what_if_describe() */
static uint64 user_functions = 0;	/* number of functions prepared for execution so far */

/* ---- the kind of a query ---- */

static bool hash_node(Node *node, void *arg);
static void hash_query(const Query *query, QueryHash *h);

static inline void
add(QueryHash *h, uint32 value)
{
	h->hash = hash_bytes_uint32_extended(value, h->hash);
}

static void
hash_relation(Oid relid, QueryHash *h)
{
	HeapTuple	tuple;

	add(h, relid);
	if (OidIsValid(h->table))
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return;
	if (((Form_pg_class) GETSTRUCT(tuple))->relam == h->table_am ||
		((Form_pg_class) GETSTRUCT(tuple))->relkind == RELKIND_PARTITIONED_TABLE)
		h->table = relid;
	ReleaseSysCache(tuple);
}

/* VALUES lists of any length are the same kind. */
static void
hash_table_entry(RangeTblEntry *rte, QueryHash *h)
{
	add(h, rte->rtekind);
	switch (rte->rtekind)
	{
		case RTE_RELATION:
			hash_relation(rte->relid, h);
			break;
		case RTE_SUBQUERY:
			hash_query(rte->subquery, h);
			break;
		case RTE_FUNCTION:
			(void) hash_node((Node *) rte->functions, h);
			break;
		case RTE_VALUES:
			(void) hash_node((Node *) linitial(rte->values_lists), h);
			break;
		default:
			(void) hash_node((Node *) compat_group_expressions(rte), h);
			break;
	}
}

static void
hash_query(const Query *query, QueryHash *h)
{
	ListCell   *lc;

	add(h, query->commandType);
	add(h, query->resultRelation);
	foreach(lc, query->rtable)
		hash_table_entry(lfirst(lc), h);
	(void) query_tree_walker(unconstify(Query *, query), hash_node, h,
							 QTW_IGNORE_RANGE_TABLE | QTW_EXAMINE_SORTGROUP);
}

/* Hash of what distinguishes a node, beside its tag and its children */
static uint32
node_detail(Node *node)
{
	switch (nodeTag(node))
	{
		case T_Var:
			return ((uint32) castNode(Var, node)->varno << 16) |
				(uint16) castNode(Var, node)->varattno;
		case T_OpExpr:
			return castNode(OpExpr, node)->opno;
		case T_ScalarArrayOpExpr:
			return castNode(ScalarArrayOpExpr, node)->opno;
		case T_FuncExpr:
			return castNode(FuncExpr, node)->funcid;
		case T_Aggref:
			return castNode(Aggref, node)->aggfnoid;
		case T_BoolExpr:
			return castNode(BoolExpr, node)->boolop;
		case T_NullTest:
			return castNode(NullTest, node)->nulltesttype;
		case T_BooleanTest:
			return castNode(BooleanTest, node)->booltesttype;
		case T_SubLink:
			return castNode(SubLink, node)->subLinkType;
		case T_JoinExpr:
			return castNode(JoinExpr, node)->jointype;
		case T_RangeTblRef:
			return (uint32) castNode(RangeTblRef, node)->rtindex;
		case T_TargetEntry:
			return (uint32) castNode(TargetEntry, node)->resno;
		case T_SortGroupClause:
			return castNode(SortGroupClause, node)->sortop;
		case T_SetOperationStmt:
			return castNode(SetOperationStmt, node)->op;
		default:
			return 0;
	}
}

/* All constants and parameters are equal, and IN lists of any length. */
static bool
hash_node(Node *node, void *arg)
{
	QueryHash  *h = arg;

	if (node == NULL)
		return false;
	if (IsA(node, Const) || IsA(node, Param))
	{
		add(h, T_Const);
		return false;
	}
	add(h, nodeTag(node));
	add(h, node_detail(node));
	if (IsA(node, Query))
	{
		hash_query(castNode(Query, node), h);
		return false;
	}
	if (IsA(node, ArrayExpr) && castNode(ArrayExpr, node)->elements != NIL)
		return hash_node(linitial(castNode(ArrayExpr, node)->elements), arg);
	return expression_tree_walker(node, hash_node, arg);
}

/* ---- planning ---- */

static void
note_kind(PlannedStmt *plan, WorkloadHandle kind)
{
	PlanInvalItem *item = makeNode(PlanInvalItem);

	item->cacheId = NOTE_CACHE_ID;
	item->hashValue = kind;
	plan->invalItems = lcons(item, plan->invalItems);
}

static PlannedStmt *
plan_as_ever(Query *query, const char *text, int options, ParamListInfo params)
{
	if (next_planner)
		return next_planner(query, text, options, params);
	return standard_planner(query, text, options, params);
}

static double
milliseconds_since(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MILLISEC(now);
}

void
statement_function(Oid function)
{
	if (function >= FirstNormalObjectId)
		user_functions++;
}

/* Planning itself can run queries, in functions: these are not described. */
static void
explore(const Query *query, const char *text, int options, ParamListInfo params, WorkloadKind *kind)
{
	exploring = true;
	PG_TRY();
	{
		what_if_describe(query, text, options, params, kind);
	}
	PG_FINALLY();
	{
		exploring = false;
	}
	PG_END_TRY();
}

/*
 * calls: planning has called functions of users.  These may be slow, or have side effects:
 * describing must not call them again.
 */
static WorkloadHandle
describe(Query *query, const char *text, int options, ParamListInfo params, const QueryHash *h,
		 const PlannedStmt *plan, bool calls)
{
	WorkloadKind kind = {.fingerprint = h->hash, .db_oid = MyDatabaseId,
	.command = plan->commandType, .tables = {h->table}, .cost = {plan->planTree->total_cost}};
	WorkloadHandle handle = workload_try(&kind);
	instr_time	start;

	if (calls && (query = what_if_without_calls(query)) == NULL)
		return handle;			/* counted, without indexes */
	SOFORT_STOP("exec-kind-explored");
	INSTR_TIME_SET_CURRENT(start);
	explore(query, text, options, params, &kind);
	return workload_describe(&kind, milliseconds_since(start));
}

static PlannedStmt *
statement_planner(Query *query, const char *text, int options, ParamListInfo params)
{
	QueryHash	h = {0};
	WorkloadHandle kind;
	Query	   *copy = NULL;
	PlannedStmt *plan;
	uint64		functions_before;
	bool		stale = false;

	if (OidIsValid(exec_table_am_oid()))
		sizes_replace(query);
	h.table_am = exploring || !workload_enabled() || IsParallelWorker() ? InvalidOid :
		exec_table_am_oid();
	if (OidIsValid(h.table_am))
		hash_query(query, &h);
	if (!OidIsValid(h.table))
		return plan_as_ever(query, text, options, params);

	kind = workload_find(h.hash, &stale);
	if (kind == 0 ? workload_takes_kinds() : stale)
		copy = copyObject(query);	/* planning scribbles on it */
	functions_before = user_functions;
	plan = plan_as_ever(query, text, options, params);
	if (copy != NULL && (stale || list_length(plan->rtable) <= FEW_TABLES ||
						 workload_seen_often(h.hash)))
		kind = describe(copy, text, options, params, &h, plan,
						user_functions != functions_before);
	if (kind != 0)
		note_kind(plan, kind);
	return plan;
}

/* ---- execution ---- */

void
statement_started(const PlannedStmt *plan)
{
	ListCell   *lc;

	foreach(lc, plan->invalItems)
	{
		const PlanInvalItem *item = lfirst_node(PlanInvalItem, lc);

		if (item->cacheId == NOTE_CACHE_ID)
		{
			workload_count(item->hashValue);
			return;
		}
	}
}

/* ---- dropping ---- */

/* Dropped by this transaction; in TopTransactionContext. */
static List *dropped = NIL;

void
statement_relation_dropped(Oid relid)
{
	MemoryContext old;

	if (!workload_enabled())
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	dropped = lappend_oid(dropped, relid);
	MemoryContextSwitchTo(old);
}

/* Drops that were rolled back to a savepoint do not count; catalogs cannot be
 * read after the commit. */
void
statement_pre_commit(void)
{
	ListCell   *lc;

	foreach(lc, dropped)
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			dropped = foreach_delete_current(dropped, lc);
}

void
statement_end_of_xact(bool commit)
{
	ListCell   *lc;

	if (commit)
	{
		foreach(lc, dropped)
			workload_forget_table(lfirst_oid(lc));
		foreach(lc, dropped)
			workload_forget_structure(lfirst_oid(lc));
	}
	dropped = NIL;
}

void
statement_init(void)
{
	next_planner = planner_hook;
	planner_hook = statement_planner;
}
