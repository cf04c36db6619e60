/*-------------------------------------------------------------------------
 *
 * sequences.c
 *	  Tells txn which sequences a transaction uses, and when others can hear of the
 *	  numbers.
 *
 * A transaction that writes nothing but sofort tables does not wait for WAL.
 * The number that it inserts may come from WAL that nobody has flushed, of another
 * session or of a transaction that was rolled back: after a crash it would be
 * given out again.  So at the end of each statement txn publishes the WAL of the
 * sequences that were used, which all such commits then flush.
 *
 * nextval() and setval() show up as OAT_FUNCTION_EXECUTE when an expression is
 * prepared, without arguments.  If that happens within ExecutorStart, the calls in the
 * plan are counted: when they are as many as were prepared and all have constant
 * arguments, the sequences are known.  Otherwise (expressions of PL/pgSQL, defaults of
 * COPY, computed names ...) all WAL is published; also where partitions are chosen when the
 * plan starts, by functions that may draw numbers, and calls in others are not prepared.
 * Identity columns call no function; their nodes are found in the plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "sofort/compat/ddl.h"
#include "sofort/txn/txn.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "exec_internal.h"

/* Are we in ExecutorStart, and how many calls were prepared there? */
static SequenceScope scope;

typedef struct PlanSearch
{
	int			calls;			/* of nextval, setval */
	bool		all_constant;
	bool		calls_wanted;	/* else only identity columns */
} PlanSearch;

static bool
is_sequence_function(Oid function)
{
	return function == F_NEXTVAL || function == F_SETVAL_REGCLASS_INT8 ||
		function == F_SETVAL_REGCLASS_INT8_BOOL;
}

void
sequences_function(Oid function)
{
	if (!is_sequence_function(function))
		return;
	if (scope.in_start)
		scope.calls++;
	else if (continuation_in_statement())
		txn_note_sequence(InvalidOid);
	else
		txn_sequences_used_unseen();
}

void
sequences_enter(SequenceScope *outer)
{
	*outer = scope;
	scope.in_start = true;
	scope.calls = 0;
}

void
sequences_leave(const SequenceScope *outer)
{
	scope = *outer;
}

static bool
search_expression(Node *node, PlanSearch *search)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr))
		txn_note_sequence(castNode(NextValueExpr, node)->seqid);
	else if (IsA(node, FuncExpr) && search->calls_wanted &&
			 is_sequence_function(castNode(FuncExpr, node)->funcid))
	{
		Node	   *name = linitial(castNode(FuncExpr, node)->args);

		search->calls++;
		if (IsA(name, Const) && !castNode(Const, name)->constisnull)
			txn_note_sequence(DatumGetObjectId(castNode(Const, name)->constvalue));
		else
			search->all_constant = false;
	}
	return expression_tree_walker(node, search_expression, search);
}

static void
search_list(List *expressions, PlanSearch *search)
{
	search_expression((Node *) expressions, search);
}

static void search_plan(Plan *plan, PlanSearch *search);

static void
search_plans(List *plans, PlanSearch *search)
{
	ListCell   *lc;

	foreach(lc, plans)
		search_plan(lfirst(lc), search);
}

static void
search_modify(ModifyTable *plan, PlanSearch *search)
{
	search_list(plan->withCheckOptionLists, search);
	search_list(plan->returningLists, search);
	search_list(plan->onConflictSet, search);
	search_expression(plan->onConflictWhere, search);
	search_list(plan->mergeActionLists, search);
}

/* Expressions and children that the general part of a Plan does not hold. */
static void
search_special(Plan *plan, PlanSearch *search)
{
	switch (nodeTag(plan))
	{
		case T_ModifyTable:
			search_modify((ModifyTable *) plan, search);
			break;
		case T_Result:
			search_expression(((Result *) plan)->resconstantqual, search);
			break;
		case T_Append:
			if (compat_chooses_children((Append *) plan))
				search->all_constant = false;
			search_plans(((Append *) plan)->appendplans, search);
			break;
		case T_MergeAppend:
			if (compat_chooses_children((MergeAppend *) plan))
				search->all_constant = false;
			search_plans(((MergeAppend *) plan)->mergeplans, search);
			break;
		case T_SubqueryScan:
			search_plan(((SubqueryScan *) plan)->subplan, search);
			break;
		case T_FunctionScan:
			search_list(((FunctionScan *) plan)->functions, search);
			break;
		case T_ValuesScan:
			search_list(((ValuesScan *) plan)->values_lists, search);
			break;
		case T_TableFuncScan:
			search_expression((Node *) ((TableFuncScan *) plan)->tablefunc, search);
			break;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			search_list(((Join *) plan)->joinqual, search);
			break;
		case T_Limit:
			search_expression(((Limit *) plan)->limitOffset, search);
			search_expression(((Limit *) plan)->limitCount, search);
			break;
		case T_ForeignScan:
			search_list(((ForeignScan *) plan)->fdw_exprs, search);
			break;
		case T_CustomScan:
			search_list(((CustomScan *) plan)->custom_exprs, search);
			search_plans(((CustomScan *) plan)->custom_plans, search);
			break;
		default:
			break;
	}
}

static void
search_plan(Plan *plan, PlanSearch *search)
{
	if (plan == NULL)
		return;
	/* RETURNING is the target list of a ModifyTable: not twice */
	if (!IsA(plan, ModifyTable))
		search_list(plan->targetlist, search);
	search_list(plan->qual, search);
	search_special(plan, search);
	search_plan(plan->lefttree, search);
	search_plan(plan->righttree, search);
}

/* Has one of the plan's tables an identity column? */
static bool
has_identity(QueryDesc *desc)
{
	EState	   *estate = desc->estate;

	for (Index i = 0; i < estate->es_range_table_size; i++)
	{
		Relation	rel = estate->es_relations ? estate->es_relations[i] : NULL;
		TupleDesc	tupdesc;

		if (rel == NULL)
			continue;
		tupdesc = RelationGetDescr(rel);
		if (tupdesc->constr == NULL || !tupdesc->constr->has_not_null)
			continue;
		for (int a = 0; a < tupdesc->natts; a++)
			if (TupleDescAttr(tupdesc, a)->attidentity != '\0')
				return true;
	}
	return false;
}

void
sequences_note_plan(QueryDesc *desc)
{
	PlannedStmt *stmt = desc->plannedstmt;
	PlanSearch	search = {0};

	if (scope.calls == 0 &&
		((stmt->commandType == CMD_SELECT && !stmt->hasModifyingCTE) || !has_identity(desc)))
		return;
	search.all_constant = true;
	search.calls_wanted = scope.calls > 0;
	search_plan(stmt->planTree, &search);
	search_plans(stmt->subplans, &search);
	if (search.calls_wanted && (!search.all_constant || search.calls != scope.calls))
		txn_note_sequence(InvalidOid);
}

/* To be called after COPY FROM, which evaluates defaults without a plan. */
void
sequences_note_copy(const CopyStmt *stmt)
{
	Oid			relid;
	Relation	rel;

	if (!stmt->is_from || stmt->relation == NULL)
		return;
	relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	rel = OidIsValid(relid) ? try_table_open(relid, AccessShareLock) : NULL;
	if (rel == NULL)
		return;
	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
		if (TupleDescAttr(RelationGetDescr(rel), i)->attidentity != '\0')
		{
			Oid			sequence = compat_identity_sequence(rel, i + 1);

			if (OidIsValid(sequence))
				txn_note_sequence(sequence);
		}
	table_close(rel, NoLock);
}

void
sequences_statement_end(void)
{
	if (continuation_at_top())
		txn_publish_sequences();
}
