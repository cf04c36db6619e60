/*-------------------------------------------------------------------------
 *
 * direct.c
 *	  Single-table look-ups and updates without PostgreSQL's plan nodes.
 *
 * In an OLTP statement by key, starting and ending IndexScan and ModifyTable
 * costs more than the work.  A plan that consists of nothing but an index scan
 * with simple conditions, or of an UPDATE on top of one that touches no index,
 * trigger or constraint, gets a single node of ours in the place of its own.
 * ExecutorStart is repeated here up to the point where the nodes are made;
 * running and ending are PostgreSQL's.
 *
 * Whatever is out of the ordinary is left to the ordinary nodes: before the
 * statement starts if the plan tells (src/exec/README.md lists the conditions),
 * else at the moment it happens.  They can take over at any row, because nothing
 * has been done yet for the row at hand, and rows that were updated before are
 * skipped as updated by this command.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeIndexscan.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "sofort/compat/ddl.h"
#include "sofort/compat/relcache.h"
#include "sofort/compat/scan.h"
#include "sofort/compat/tableam.h"
#include "sofort/pmem/fault.h"
#include "sofort/tableam/tableam.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "exec_internal.h"

/* With more rows, needed_columns.c saves more than is saved here. */
#define MAX_ROWS	500

bool		sofort_direct_execution = true;

typedef struct DirectState
{
	CustomScanState css;
	const IndexScan *scan;
	const ModifyTable *modify;	/* NULL: SELECT */
	Relation	index;
	IndexScanDesc desc;			/* NULL: not started */
	ScanKey		keys;
	int			nkeys;
	IndexRuntimeKeyInfo *runtime_keys;
	int			nruntime_keys;
	ExprContext *key_context;
	ExprState  *recheck;		/* made when first needed: conditions() */

	/* SELECT: attribute of each column, or NULL if the row is returned as it is */
	AttrNumber *source;
	AttrNumber	last_source;
	TupleTableSlot *result;

	/* UPDATE */
	int			ntargets;
	AttrNumber *target;
	ExprState **value;
	TupleTableSlot *new_row;
	int			eflags;
	PlanState  *ordinary;		/* has taken over */
} DirectState;

/* ------------------------------------------------------------------------
 * Which plans
 * ------------------------------------------------------------------------
 */

/*
 * Walker: is there anything but functions of columns, constants and parameters?  Volatile
 * functions are excluded, too: they could notice that they are called again when the
 * ordinary nodes take over.
 */
static bool
not_simple(Node *node, void *relid)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			/* of this table; 0 stands for no table at all */
			return (Index) castNode(Var, node)->varno != *(Index *) relid ||
				castNode(Var, node)->varattno <= 0;
		case T_Param:
			return castNode(Param, node)->paramkind != PARAM_EXTERN;
		case T_FuncExpr:
			if (castNode(FuncExpr, node)->funcretset ||
				func_volatile(castNode(FuncExpr, node)->funcid) == PROVOLATILE_VOLATILE)
				return true;
			break;
		case T_OpExpr:
			if (castNode(OpExpr, node)->opretset ||
				func_volatile(castNode(OpExpr, node)->opfuncid) == PROVOLATILE_VOLATILE)
				return true;
			break;
		case T_CoerceViaIO:
			if (contain_volatile_functions(node))
				return true;
			break;
		case T_Const:
		case T_RelabelType:
		case T_BoolExpr:
		case T_List:
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, not_simple, relid);
}

static bool
scan_is_simple(const Plan *plan)
{
	const IndexScan *scan = (const IndexScan *) plan;
	Index		no_table = 0;
	ListCell   *lc;

	if (!IsA(plan, IndexScan) || plan->qual != NIL || plan->initPlan != NIL ||
		plan->parallel_aware || plan->plan_rows >= MAX_ROWS || scan->indexorderby != NIL ||
		scan->indexqual == NIL || ScanDirectionIsBackward(scan->indexorderdir))
		return false;
	foreach(lc, scan->indexqual)
	{
		OpExpr	   *op = lfirst(lc);

		if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
			not_simple(lsecond(op->args), &no_table))
			return false;
	}
	return true;
}

static bool
select_is_simple(const Plan *plan)
{
	ListCell   *lc;

	if (!scan_is_simple(plan))
		return false;
	foreach(lc, plan->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Var		   *var = (Var *) entry->expr;

		if (entry->resjunk || !IsA(var, Var) || var->varattno <= 0 ||
			(Index) var->varno != ((const IndexScan *) plan)->scan.scanrelid)
			return false;
	}
	return true;
}

/* Attribute numbers, an integer list. */
static List *
changed_columns(const ModifyTable *modify)
{
	return (List *) linitial(modify->updateColnosLists);
}

/* Does the target list consist of the new values and, after them, the row's TID? */
static bool
update_is_simple(const ModifyTable *modify)
{
	Plan	   *scan = outerPlan(modify);
	Index		relid;
	int			ntargets;
	int			i = 0;
	ListCell   *lc;

	if (modify->operation != CMD_UPDATE || !modify->canSetTag || modify->rootRelation != 0 ||
		list_length(modify->resultRelations) != 1 || modify->withCheckOptionLists != NIL ||
		modify->returningLists != NIL || modify->rowMarks != NIL ||
		modify->plan.initPlan != NIL || !scan_is_simple(scan))
		return false;

	relid = ((IndexScan *) scan)->scan.scanrelid;
	ntargets = list_length(changed_columns(modify));
	if ((Index) linitial_int(modify->resultRelations) != relid ||
		list_length(scan->targetlist) != ntargets + 1)
		return false;
	foreach(lc, scan->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (i++ < ntargets)
		{
			if (entry->resjunk || not_simple((Node *) entry->expr, &relid))
				return false;
		}
		else if (!entry->resjunk || !IsA(entry->expr, Var) ||
				 castNode(Var, entry->expr)->varattno != SelfItemPointerAttributeNumber)
			return false;
	}
	return true;
}

static const IndexScan *
plan_scan(const PlannedStmt *stmt)
{
	Plan	   *plan = stmt->planTree;

	if (stmt->subplans != NIL || stmt->rowMarks != NIL || stmt->hasModifyingCTE ||
		stmt->hasReturning || stmt->parallelModeNeeded)
		return NULL;
	if (stmt->commandType == CMD_SELECT && select_is_simple(plan))
		return (IndexScan *) plan;
	if (stmt->commandType == CMD_UPDATE && IsA(plan, ModifyTable) &&
		update_is_simple((ModifyTable *) plan))
		return (IndexScan *) outerPlan(plan);
	return NULL;
}

/* ------------------------------------------------------------------------
 * Which tables
 * ------------------------------------------------------------------------
 */

/*
 * May these columns change without a trigger?  Those on the referenced side of
 * a foreign key look at the columns of unique indexes only.
 */
static bool
triggers_allow(Relation rel, const Bitmapset *changed)
{
	const TriggerDesc *triggers = rel->trigdesc;
	Bitmapset  *keys;
	bool		overlap;

	if (triggers == NULL)
		return true;
	if (triggers->trig_update_before_row || triggers->trig_update_instead_row ||
		triggers->trig_update_before_statement || triggers->trig_update_after_statement ||
		triggers->trig_update_old_table || triggers->trig_update_new_table)
		return false;
	if (!triggers->trig_update_after_row)
		return true;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_UPDATE(trigger->tgtype) &&
			RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK)
			return false;
	}
	keys = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_KEY);
	overlap = bms_overlap(keys, changed);
	bms_free(keys);
	return !overlap;
}

/* A whole-row reference, and any system column, is taken as touched. */
static bool
touches_index(Relation rel, const Bitmapset *changed)
{
	Bitmapset  *attrs = compat_indexed_attrs(rel);
	int			first = bms_next_member(attrs, -1);
	bool		touched = bms_overlap(attrs, changed) ||
		(first >= 0 && first + FirstLowInvalidHeapAttributeNumber <= 0);

	bms_free(attrs);
	return touched;
}

static bool
update_is_plain(Relation rel, const ModifyTable *modify)
{
	const TupleConstr *constr = RelationGetDescr(rel)->constr;
	Bitmapset  *changed = NULL;
	bool		plain;
	ListCell   *lc;

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relispartition ||
		(constr != NULL && (constr->num_check > 0 || compat_has_generated(constr) ||
							compat_has_invalid_not_null(RelationGetDescr(rel)))))
		return false;
	foreach(lc, changed_columns(modify))
		changed = bms_add_member(changed, lfirst_int(lc) - FirstLowInvalidHeapAttributeNumber);
	plain = !touches_index(rel, changed) && triggers_allow(rel, changed);
	bms_free(changed);
	return plain;
}

/* The statement has locked the table, so looking at it is safe. */
static bool
table_allows(const PlannedStmt *stmt, const IndexScan *scan)
{
	Relation	rel = RelationIdGetRelation(rt_fetch(scan->scan.scanrelid, stmt->rtable)->relid);
	bool		allows;

	if (rel == NULL)
		return false;
	allows = tableam_is_sofort(rel) &&
		(stmt->commandType == CMD_SELECT ||
		 update_is_plain(rel, (const ModifyTable *) stmt->planTree));
	RelationClose(rel);
	return allows;
}

/* ------------------------------------------------------------------------
 * Running
 * ------------------------------------------------------------------------
 */

static void
start_scan(DirectState *d)
{
	if (d->desc == NULL)
		d->desc = compat_index_beginscan(d->css.ss.ss_currentRelation, d->index,
										 d->css.ss.ps.state->es_snapshot, d->nkeys);
	if (d->nruntime_keys > 0)
	{
		ResetExprContext(d->key_context);
		ExecIndexEvalRuntimeKeys(d->key_context, d->runtime_keys, d->nruntime_keys);
	}
	index_rescan(d->desc, d->keys, d->nkeys, NULL, 0);
}

/* The index conditions as expressions of the row. */
static ExprState *
conditions(DirectState *d)
{
	if (d->recheck == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(d->css.ss.ps.state->es_query_cxt);

		d->recheck = ExecInitQual(d->scan->indexqualorig, &d->css.ss.ps);
		MemoryContextSwitchTo(old);
	}
	return d->recheck;
}

/* sofort_index never asks for it; any index access method may. */
static bool
recheck(DirectState *d, TupleTableSlot *slot)
{
	PlanState  *ps = &d->css.ss.ps;

	if (ps->ps_ExprContext == NULL)
		ExecAssignExprContext(ps->state, ps);
	ResetExprContext(ps->ps_ExprContext);
	ps->ps_ExprContext->ecxt_scantuple = slot;
	return ExecQual(conditions(d), ps->ps_ExprContext);
}

static TupleTableSlot *
next_row(DirectState *d)
{
	TupleTableSlot *slot = d->css.ss.ss_ScanTupleSlot;

	if (unlikely(d->desc == NULL))
		start_scan(d);
	while (index_getnext_slot(d->desc, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (!d->desc->xs_recheck || recheck(d, slot))
			return slot;
	}
	return NULL;
}

static TupleTableSlot *
direct_select(PlanState *ps)
{
	DirectState *d = (DirectState *) ps;
	TupleTableSlot *slot = next_row(d);
	TupleTableSlot *result = d->result;

	if (slot == NULL || d->source == NULL)
		return slot;
	slot_getsomeattrs(slot, d->last_source);
	ExecClearTuple(result);
	for (int i = 0; i < result->tts_tupleDescriptor->natts; i++)
	{
		result->tts_values[i] = slot->tts_values[d->source[i] - 1];
		result->tts_isnull[i] = slot->tts_isnull[d->source[i] - 1];
	}
	return ExecStoreVirtualTuple(result);
}

/* The new row; false if it has a NULL where there must be none. */
static bool
make_new_row(DirectState *d, TupleTableSlot *old)
{
	TupleTableSlot *new = d->new_row;
	TupleDesc	desc = new->tts_tupleDescriptor;
	ExprContext *econtext = d->css.ss.ps.ps_ExprContext;

	ResetExprContext(econtext);
	econtext->ecxt_scantuple = old;
	slot_getallattrs(old);
	ExecClearTuple(new);
	memcpy(new->tts_values, old->tts_values, desc->natts * sizeof(Datum));
	memcpy(new->tts_isnull, old->tts_isnull, desc->natts * sizeof(bool));
	for (int i = 0; i < d->ntargets; i++)
	{
		int			a = d->target[i] - 1;

		new->tts_values[a] = ExecEvalExprSwitchContext(d->value[i], econtext,
													   &new->tts_isnull[a]);
		if (new->tts_isnull[a] && TupleDescAttr(desc, a)->attnotnull)
			return false;
	}
	ExecStoreVirtualTuple(new);
	return true;
}

/* False: nothing was done, and the ordinary nodes know what to do. */
static bool
update_directly(DirectState *d, TupleTableSlot *old)
{
	EState	   *estate = d->css.ss.ps.state;
	Relation	rel = d->css.ss.ss_currentRelation;
	ItemPointerData tid = old->tts_tid;

	if (tableam_row_gets_root(old, rel) || !make_new_row(d, old))
		return false;
	d->new_row->tts_tableOid = RelationGetRelid(rel);
	if (!tableam_update_in_chain(rel, &tid, d->new_row, estate->es_output_cid,
								 estate->es_crosscheck_snapshot))
		return false;
	estate->es_processed++;
	return true;
}

static void
ordinary_takes_over(DirectState *d)
{
	EState	   *estate = d->css.ss.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);

	d->ordinary = ExecInitNode(unconstify(Plan *, &d->modify->plan), estate, d->eflags);
	MemoryContextSwitchTo(old);
}

static TupleTableSlot *
direct_update(PlanState *ps)
{
	DirectState *d = (DirectState *) ps;
	TupleTableSlot *slot;

	while (d->ordinary == NULL && (slot = next_row(d)) != NULL)
	{
		if (!update_directly(d, slot))
			ordinary_takes_over(d);
	}
	return d->ordinary != NULL ? ExecProcNode(d->ordinary) : NULL;
}

static void
direct_rescan(CustomScanState *css)
{
	DirectState *d = (DirectState *) css;

	if (d->desc != NULL)
		start_scan(d);
}

static void
direct_end(CustomScanState *css)
{
	DirectState *d = (DirectState *) css;

	if (d->ordinary != NULL)
		ExecEndNode(d->ordinary);
	if (d->desc != NULL)
		index_endscan(d->desc);
	index_close(d->index, NoLock);
}

static const CustomExecMethods direct_methods = {
	.CustomName = "sofort direct execution",
	.EndCustomScan = direct_end,
	.ReScanCustomScan = direct_rescan,
};

/* ------------------------------------------------------------------------
 * Starting
 * ------------------------------------------------------------------------
 */

static bool
is_column(const Node *node)
{
	while (IsA(node, RelabelType))
		node = (const Node *) ((const RelabelType *) node)->arg;
	return IsA(node, Var);
}

/*
 * May the role call the functions behind the index conditions?  The ordinary nodes check
 * that when they initialise these, although the index calls functions of its own.  Beside
 * the operators' there are those of the expressions that are indexed.
 */
static void
check_functions(DirectState *d)
{
	ListCell   *lc;

	foreach(lc, d->scan->indexqualorig)
	{
		const OpExpr *op = lfirst_node(OpExpr, lc);

		if (!is_column(linitial(op->args)))
		{
			(void) conditions(d);
			return;
		}
		if (!compat_may_execute(op->opfuncid))
			aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(op->opfuncid));
		InvokeFunctionExecuteHook(op->opfuncid);
	}
}

static void
open_scan(DirectState *d, EState *estate, int eflags)
{
	ScanState  *ss = &d->css.ss;
	Index		relid = d->scan->scan.scanrelid;
	Relation	rel = ExecOpenScanRelation(estate, relid, eflags);

	ss->ss_currentRelation = rel;
	ss->ss_ScanTupleSlot = table_slot_create(rel, &estate->es_tupleTable);
	ss->ps.ps_ResultTupleSlot = ss->ss_ScanTupleSlot;
	ss->ps.scandesc = RelationGetDescr(rel);
	ss->ps.scanops = ss->ss_ScanTupleSlot->tts_ops;
	ss->ps.scanopsfixed = ss->ps.scanopsset = true;

	check_functions(d);
	d->index = index_open(d->scan->indexid, exec_rt_fetch(relid, estate)->rellockmode);
	ExecIndexBuildScanKeys(&ss->ps, d->index, d->scan->indexqual, false, &d->keys, &d->nkeys,
						   &d->runtime_keys, &d->nruntime_keys, NULL, NULL);
	if (d->nruntime_keys > 0)
		d->key_context = CreateExprContext(estate);
}

/* Is this the table's row, so that a scan slot can be sent as it is? */
static bool
is_whole_row(const List *targetlist, TupleDesc desc)
{
	ListCell   *lc;
	int			i = 0;

	if (list_length(targetlist) != desc->natts)
		return false;
	foreach(lc, targetlist)
	{
		if (castNode(Var, lfirst_node(TargetEntry, lc)->expr)->varattno != ++i ||
			TupleDescAttr(desc, i - 1)->attisdropped)
			return false;
	}
	return true;
}

/*
 * The descriptor of the result, which is columns of the table: its own tells what is to be
 * looked up for each column otherwise.
 */
static TupleDesc
result_desc(List *targetlist, TupleDesc table)
{
	TupleDesc	desc = CreateTemplateTupleDesc(list_length(targetlist));
	AttrNumber	i = 0;
	ListCell   *lc;

	foreach(lc, targetlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, lc);
		const Var  *var = castNode(Var, entry->expr);
		Form_pg_attribute att = TupleDescAttr(table, var->varattno - 1);

		if (var->vartype != att->atttypid || var->vartypmod != att->atttypmod ||
			var->varcollid != att->attcollation)
			return ExecCleanTypeFromTL(targetlist);
		TupleDescCopyEntry(desc, ++i, table, var->varattno);
		att = TupleDescAttr(desc, i - 1);
		if (entry->resname == NULL)
			memset(NameStr(att->attname), 0, NAMEDATALEN);
		else if (strcmp(entry->resname, NameStr(att->attname)) != 0)
			namestrcpy(&att->attname, entry->resname);
	}
	return desc;
}

static void
start_select(DirectState *d, QueryDesc *query)
{
	List	   *targetlist = d->scan->scan.plan.targetlist;
	TupleDesc	table = RelationGetDescr(d->css.ss.ss_currentRelation);
	ListCell   *lc;
	int			i = 0;

	query->tupDesc = result_desc(targetlist, table);
	d->css.ss.ps.ExecProcNode = direct_select;
	if (is_whole_row(targetlist, table))
		return;
	d->result = ExecInitExtraTupleSlot(query->estate, query->tupDesc, &TTSOpsVirtual);
	d->source = palloc(Max(list_length(targetlist), 1) * sizeof(AttrNumber));
	foreach(lc, targetlist)
	{
		AttrNumber	a = castNode(Var, lfirst_node(TargetEntry, lc)->expr)->varattno;

		d->source[i++] = a;
		d->last_source = Max(d->last_source, a);
	}
}

static void
start_update(DirectState *d, QueryDesc *query)
{
	EState	   *estate = query->estate;
	Relation	rel = d->css.ss.ss_currentRelation;
	List	   *columns = changed_columns(d->modify);
	List	   *targetlist = d->scan->scan.plan.targetlist;

	CheckCmdReplicaIdentity(rel, CMD_UPDATE);
	query->tupDesc = ExecCleanTypeFromTL(NIL);
	d->css.ss.ps.ExecProcNode = direct_update;
	ExecAssignExprContext(estate, &d->css.ss.ps);
	d->new_row = table_slot_create(rel, &estate->es_tupleTable);
	d->ntargets = list_length(columns);
	d->target = palloc(d->ntargets * sizeof(AttrNumber));
	d->value = palloc(d->ntargets * sizeof(ExprState *));
	for (int i = 0; i < d->ntargets; i++)
	{
		d->target[i] = list_nth_int(columns, i);
		d->value[i] = ExecInitExpr(list_nth_node(TargetEntry, targetlist, i)->expr,
								   &d->css.ss.ps);
	}
}

static PlanState *
make_node(QueryDesc *query, const IndexScan *scan, int eflags)
{
	DirectState *d = palloc0(sizeof(DirectState));
	PlanState  *ps = &d->css.ss.ps;

	NodeSetTag(d, T_CustomScanState);
	d->css.methods = &direct_methods;
	d->scan = scan;
	d->eflags = eflags;
	ps->plan = query->plannedstmt->planTree;
	ps->state = query->estate;
	open_scan(d, query->estate, eflags);
	if (query->operation == CMD_SELECT)
		start_select(d, query);
	else
	{
		d->modify = (const ModifyTable *) query->plannedstmt->planTree;
		start_update(d, query);
	}
	ps->ExecProcNodeReal = ps->ExecProcNode;
	return ps;
}

/* Does what standard_ExecutorStart() does before it makes the nodes. */
static void
start_executor(QueryDesc *query, int eflags)
{
	PlannedStmt *stmt = query->plannedstmt;
	EState	   *estate = query->estate;

	estate->es_param_list_info = query->params;
	if (stmt->paramExecTypes != NIL)
		estate->es_param_exec_vals = palloc0(list_length(stmt->paramExecTypes) *
											 sizeof(ParamExecData));
	estate->es_sourceText = query->sourceText;
	estate->es_queryEnv = query->queryEnv;
	if (query->operation != CMD_SELECT)
		estate->es_output_cid = GetCurrentCommandId(true);
	estate->es_snapshot = RegisterSnapshot(query->snapshot);
	estate->es_crosscheck_snapshot = RegisterSnapshot(query->crosscheck_snapshot);
	estate->es_top_eflags = eflags;
	estate->es_jit_flags = stmt->jitFlags;
	if (!(eflags & EXEC_FLAG_SKIP_TRIGGERS))
		AfterTriggerBeginQuery();
	compat_check_permissions(stmt);
	compat_init_range_table(estate, stmt);
	estate->es_plannedstmt = stmt;
}

/*
 * Starts a statement that qualifies; false if it does not, and nothing was done.  The
 * caller has made sure that no other extension watches the executor, because that could not
 * make sense of our node.
 */
bool
direct_start(QueryDesc *query, int eflags)
{
	const PlannedStmt *stmt = query->plannedstmt;
	const IndexScan *scan;
	MemoryContext old;

	if (!sofort_direct_execution || query->instrument_options != 0 || query->totaltime != NULL ||
		(eflags & ~EXEC_FLAG_SKIP_TRIGGERS) != 0 || IsInParallelMode() ||
		(XactReadOnly && stmt->commandType != CMD_SELECT))
		return false;
	scan = plan_scan(stmt);
	if (scan == NULL || !table_allows(stmt, scan))
		return false;

	query->estate = CreateExecutorState();
	old = MemoryContextSwitchTo(query->estate->es_query_cxt);
	if (stmt->commandType == CMD_SELECT)
		eflags |= EXEC_FLAG_SKIP_TRIGGERS;
	start_executor(query, eflags);
	query->planstate = make_node(query, scan, eflags);
	MemoryContextSwitchTo(old);
	SOFORT_STOP("exec-direct");
	return true;
}
