/*-------------------------------------------------------------------------
 *
 * needed_columns.c
 *	  Tells the slots of large scans which columns the plan uses.
 *
 * An executor node asks its slot for the first n columns, n being the last one
 * that it uses.  For a scan of many rows it pays to look at the plan once and
 * decode the used ones only.
 *
 * That is done only where it is certain who reads the scan's slot: the scan itself, if
 * it projects (its quals and target list), or an Agg right above it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "sofort/tableam/tableam.h"

#include "exec_internal.h"

/* Looking at the plan costs as much as decoding some tens of rows. */
#define WORTH_ROWS		500

/* Columns that the scan itself uses, besides its target list. */
static void
add_scan_quals(Plan *plan, Index relid, Bitmapset **attrs)
{
	pull_varattnos((Node *) plan->qual, relid, attrs);
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			pull_varattnos((Node *) castNode(IndexScan, plan)->indexqualorig, relid, attrs);
			pull_varattnos((Node *) castNode(IndexScan, plan)->indexorderbyorig, relid, attrs);
			break;
		case T_BitmapHeapScan:
			pull_varattnos((Node *) castNode(BitmapHeapScan, plan)->bitmapqualorig, relid, attrs);
			break;
		default:
			break;
	}
}

/* Columns of its input that an Agg uses. */
static void
add_agg(const Agg *agg, Bitmapset **attrs)
{
	ListCell   *lc;

	pull_varattnos((Node *) agg->plan.targetlist, OUTER_VAR, attrs);
	pull_varattnos((Node *) agg->plan.qual, OUTER_VAR, attrs);
	for (int i = 0; i < agg->numCols; i++)
		*attrs = bms_add_member(*attrs,
								agg->grpColIdx[i] - FirstLowInvalidHeapAttributeNumber);
	foreach(lc, agg->chain)
		add_agg(lfirst_node(Agg, lc), attrs);
}

static bool
is_scan(const PlanState *node)
{
	return IsA(node, SeqScanState) || IsA(node, SampleScanState) ||
		IsA(node, IndexScanState) || IsA(node, BitmapHeapScanState);
}

static void
restrict_slot(ScanState *scan, Bitmapset *attrs)
{
	if (bms_is_member(0 - FirstLowInvalidHeapAttributeNumber, attrs))
		return;					/* the whole row */
	tableam_slot_restrict(scan->ss_ScanTupleSlot, attrs);
}

void
needed_columns(PlanState *node)
{
	const Agg  *agg = NULL;		/* reads the slot, else the scan alone does */
	Index		relid;
	ScanState  *scan;
	Bitmapset  *attrs = NULL;

	if (IsA(node, AggState))
	{
		agg = castNode(Agg, node->plan);
		node = outerPlanState(node);
	}
	if (!is_scan(node) || node->plan->plan_rows < WORTH_ROWS)
		return;
	scan = (ScanState *) node;
	if (!TTS_IS_SOFORT(scan->ss_ScanTupleSlot) || (node->ps_ProjInfo == NULL) != (agg != NULL))
		return;

	relid = ((Scan *) node->plan)->scanrelid;
	add_scan_quals(node->plan, relid, &attrs);
	if (agg != NULL)
		add_agg(agg, &attrs);
	else
		pull_varattnos((Node *) node->plan->targetlist, relid, &attrs);
	restrict_slot(scan, attrs);
	bms_free(attrs);
}
