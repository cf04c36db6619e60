/*-------------------------------------------------------------------------
 *
 * summaries.c
 *	  Indexes that summarize ranges of blocks (BRIN).
 *
 * They are special in two ways.
 *
 * An insertion writes no WAL if the summary of the range covers the value, or if the
 * range has no summary.  The summary may come from WAL of another transaction that is
 * not flushed: if that is lost, the older summary does not cover the row.  So a commit
 * must not overtake it.
 *
 * Since PostgreSQL 16 an update that changes no column but theirs adds nothing to the
 * other indexes.  It joins the chain of its root here, too.  But the range of the root
 * must be summarized, and the executor would pass the block of the new version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "sofort/compat/relcache.h"
#include "sofort/tableam/callbacks.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* In rd_amcache of a table */
typedef struct TableIndexes
{
	bool		summaries;
} TableIndexes;

static Oid
access_method_of(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	Oid			am;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
	ReleaseSysCache(tuple);
	return am;
}

/*
 * The look-ups may process an invalidation (CREATE INDEX CONCURRENTLY), which empties
 * rd_amcache: then what was found may be out of date.
 */
static TableIndexes *
look_at_indexes(Relation rel)
{
	bool		summaries = false;

	do
	{
		TableIndexes *made = MemoryContextAlloc(CacheMemoryContext, sizeof(TableIndexes));
		List	   *indexes;
		ListCell   *lc;

		made->summaries = true; /* until it is known, as an error may come first */
		rel->rd_amcache = made;
		summaries = false;
		indexes = RelationGetIndexList(rel);
		foreach(lc, indexes)
			summaries = summaries || compat_am_summarizes(access_method_of(lfirst_oid(lc)));
		list_free(indexes);
	} while (rel->rd_amcache == NULL);
	((TableIndexes *) rel->rd_amcache)->summaries = summaries;
	return rel->rd_amcache;
}

static bool
has_summaries(Relation rel)
{
	const TableIndexes *known = rel->rd_amcache;

	if (!rel->rd_rel->relhasindex)
		return false;
	if (unlikely(known == NULL))
		known = look_at_indexes(rel);
	return known->summaries;
}

/* A row is about to be inserted, or a new version that gets entries in all indexes. */
void
tableam_note_summaries(Relation rel)
{
	if (unlikely(has_summaries(rel)))
		txn_note_foreign_wal();
}

/* Adds the values in the slot to the summary that covers the root, if there is one. */
static void
insert_into(Relation rel, Relation index, TupleTableSlot *slot, ItemPointer root)
{
	IndexInfo  *info = BuildIndexInfo(index);
	EState	   *estate = NULL;
	bool		included = true;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (!info->ii_ReadyForInserts)
		return;
	if (info->ii_Expressions != NIL || info->ii_Predicate != NIL)
	{
		estate = CreateExecutorState();
		GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
	}
	if (info->ii_Predicate != NIL)
		included = ExecQual(ExecPrepareQual(info->ii_Predicate, estate),
							GetPerTupleExprContext(estate));
	if (included)
	{
		FormIndexDatum(info, slot, estate, values, isnull);
		index_insert(index, values, isnull, root, rel, UNIQUE_CHECK_NO, false, info);
		compat_index_insert_cleanup(index, info);
	}
	if (estate != NULL)
		FreeExecutorState(estate);
}

/*
 * A version with other values in columns of such indexes has joined the chain of this root.
 * (Called after that, so a summary that is made meanwhile either includes the version or is
 * found here.)
 */
void
tableam_update_summaries(Relation rel, TupleTableSlot *slot, ItemPointer root)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "sofort summaries",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	txn_note_foreign_wal();
	foreach(lc, indexes)
	{
		Relation	index;

		if (!compat_am_summarizes(access_method_of(lfirst_oid(lc))))
			continue;
		index = index_open(lfirst_oid(lc), RowExclusiveLock);
		insert_into(rel, index, slot, root);
		index_close(index, NoLock);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}
