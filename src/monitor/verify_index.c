/*-------------------------------------------------------------------------
 *
 * verify_index.c
 *	  Compares a table with one of its sofort indexes.
 *
 * indexam checks the structure of the tree and hands out all its entries, in
 * order, those of dead rows included:
 *
 *	 - keys ascend as the operator classes say;
 *	 - each entry names a row that is a root; the root's live version, if it
 *	   has one, has the entry's key and satisfies the predicate;
 *	 - no root comes twice;
 *	 - in a unique index no two live rows have the same key;
 *	 - a search for a key finds its first entry.
 *
 * Then all rows are read: each live one that satisfies the predicate was met.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "sofort/compat/scan.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "sofort/txn/txn.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "monitor_internal.h"

/* More of one kind are counted, not listed. */
#define MAX_REPORTS		100

typedef struct Key
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} Key;

typedef struct IndexCheck
{
	Relation	rel;
	Relation	index;
	StoreDesc  *store;
	IndexInfo  *info;
	EState	   *estate;
	TupleTableSlot *slot;
	ExprState  *predicate;
	Snapshot	snapshot;
	int			nkeys;
	int			natts;			/* with INCLUDE columns */

	uint64		nrows;			/* size of met, in bits */
	uint8	   *met;
	MemoryContext row_context;	/* reset for each row */

	Key			previous;		/* key of the entry before; in key_context[turn] */
	bool		has_previous;
	bool		previous_live;
	MemoryContext key_context[2];
	int			turn;

	StoreReport report;
	void	   *arg;
	uint64		nreports;
} IndexCheck;

static void
problem(IndexCheck *check, const char *kind, uint64 row, const char *text)
{
	ItemPointerData tid;
	char		place[64];

	if (++check->nreports > MAX_REPORTS)
		return;
	row_to_tid(check->store, row, &tid);
	snprintf(place, sizeof(place), "row (%u,%u)", ItemPointerGetBlockNumberNoCheck(&tid),
			 ItemPointerGetOffsetNumberNoCheck(&tid));
	check->report(check->arg, kind, place, text);
}

/* ---- keys ---- */

/* As the index orders them: <0, 0, >0. */
static int
compare_keys(IndexCheck *check, const Key *a, const Key *b)
{
	for (int i = 0; i < check->nkeys; i++)
	{
		int16		option = check->index->rd_indoption[i];
		int32		cmp;

		if (a->isnull[i] || b->isnull[i])
		{
			if (a->isnull[i] && b->isnull[i])
				continue;
			cmp = a->isnull[i] ? 1 : -1;
			if (option & INDOPTION_NULLS_FIRST)
				cmp = -cmp;
			return cmp;
		}
		cmp = DatumGetInt32(FunctionCall2Coll(index_getprocinfo(check->index, i + 1, 1),
											  check->index->rd_indcollation[i],
											  a->values[i], b->values[i]));
		if (cmp != 0)
			return (option & INDOPTION_DESC) ? (cmp < 0 ? 1 : -1) : cmp;
	}
	return 0;
}

static bool
key_has_null(const IndexCheck *check, const Key *key)
{
	for (int i = 0; i < check->nkeys; i++)
		if (key->isnull[i])
			return true;
	return false;
}

/*
 * The key of the version of this root that is visible now.  False if there is
 * none, or if the predicate excludes it.
 */
static bool
live_key(IndexCheck *check, uint64 row, Key *key)
{
	RowRef		found;
	int			natts = RelationGetDescr(check->rel)->natts;
	bool		visible;

	ExecClearTuple(check->slot);
	/* for the walk along the chain; the snapshot protects the version that is found */
	epoch_enter();
	visible = store_chain_fetch(check->rel, check->store, row, check->snapshot, &found, NULL);
	epoch_exit();
	if (!visible)
		return false;
	store_decode(check->store, &found, 0, natts, check->slot->tts_values,
				 check->slot->tts_isnull);
	ExecStoreVirtualTuple(check->slot);
	row_to_tid(check->store, found.row, &check->slot->tts_tid);
	check->slot->tts_tableOid = RelationGetRelid(check->rel);
	GetPerTupleExprContext(check->estate)->ecxt_scantuple = check->slot;
	if (check->predicate && !ExecQual(check->predicate, GetPerTupleExprContext(check->estate)))
		return false;
	FormIndexDatum(check->info, check->slot, check->estate, key->values, key->isnull);
	return true;
}

/* ---- entries ---- */

static void
copy_key(IndexCheck *check, Key *to, const Key *from)
{
	for (int i = 0; i < check->nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(check->index), i);

		to->isnull[i] = from->isnull[i];
		if (!from->isnull[i])
			to->values[i] = datumCopy(from->values[i], att->attbyval, att->attlen);
	}
}

/* Does a search for this key find that row first? */
static bool
search_finds(IndexCheck *check, const Key *key, uint64 row)
{
	ScanKeyData scankeys[INDEX_MAX_KEYS];
	IndexScanDesc scan;
	ItemPointer tid;
	bool		found;

	for (int i = 0; i < check->nkeys; i++)
	{
		Oid			opcintype = check->index->rd_opcintype[i];
		Oid			op = get_opfamily_member(check->index->rd_opfamily[i], opcintype, opcintype,
											 BTEqualStrategyNumber);

		if (key->isnull[i])
			ScanKeyEntryInitialize(&scankeys[i], SK_ISNULL | SK_SEARCHNULL, i + 1,
								   InvalidStrategy, InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
		else
			ScanKeyEntryInitialize(&scankeys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
								   check->index->rd_indcollation[i], get_opcode(op),
								   key->values[i]);
	}
	scan = compat_index_beginscan(check->rel, check->index, SnapshotAny, check->nkeys);
	scan->ignore_killed_tuples = false;
	index_rescan(scan, scankeys, check->nkeys, NULL, 0);
	tid = index_getnext_tid(scan, ForwardScanDirection);
	found = tid != NULL && row_from_tid(check->store, tid) == row;
	index_endscan(scan);
	return found;
}

/* Checks the root that an entry names, as far as its own words tell. */
static bool
check_root(IndexCheck *check, uint64 row, bool *aborted)
{
	RowRef		ref;
	uint64		begin;

	*aborted = false;
	if (row >= check->nrows || !store_locate(check->store, row, &ref))
	{
		problem(check, "index entry", row, "points to a row that has no storage");
		return false;
	}
	begin = word_read(&ref.words->begin);
	if (begin == WORD_EMPTY)
	{
		problem(check, "index entry", row, "points to a free row");
		return false;
	}
	*aborted = WORD_TAG(begin) == WORD_TAG_ABORTED;
	if (!*aborted && (begin & BEGIN_HEAP_ONLY))
	{
		problem(check, "index entry", row, "points to a version that is not a root");
		return false;
	}
	return true;
}

static void
check_order(IndexCheck *check, const Key *key, uint64 row, bool live)
{
	int			cmp = 1;

	if (check->has_previous)
	{
		cmp = compare_keys(check, key, &check->previous);
		if (cmp < 0)
			problem(check, "index order", row, "key is smaller than the one before");
		if (cmp == 0 && live && check->previous_live && check->index->rd_index->indisunique &&
			check->index->rd_index->indimmediate &&
			(check->info->ii_NullsNotDistinct || !key_has_null(check, key)))
			problem(check, "index uniqueness", row, "another live row has the same key");
	}
	if (cmp != 0 && !search_finds(check, key, row))
		problem(check, "index search", row, "a search for its key does not find this entry first");

	check->previous_live = cmp == 0 ? (live || check->previous_live) : live;
	check->turn = !check->turn;
	MemoryContextReset(check->key_context[check->turn]);
	{
		MemoryContext old = MemoryContextSwitchTo(check->key_context[check->turn]);

		copy_key(check, &check->previous, key);
		MemoryContextSwitchTo(old);
	}
	check->has_previous = true;
}

/* INCLUDE columns have no order: compare images. */
static bool
included_equal(IndexCheck *check, const Key *a, const Key *b)
{
	for (int i = check->nkeys; i < check->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(check->index), i);

		if (a->isnull[i] != b->isnull[i])
			return false;
		if (!a->isnull[i] &&
			!datum_image_eq(a->values[i], b->values[i], att->attbyval, att->attlen))
			return false;
	}
	return true;
}

static void
check_entry(IndexCheck *check, const Key *entry, uint64 row)
{
	Key			key;
	bool		aborted;
	bool		live;

	if (!check_root(check, row, &aborted))
		return;
	if (check->met[row / 8] & (1 << (row % 8)))
		problem(check, "index entry", row, "the row has more than one entry");
	check->met[row / 8] |= 1 << (row % 8);

	live = !aborted && live_key(check, row, &key);
	if (live && compare_keys(check, entry, &key) != 0)
		problem(check, "index entry", row, "key differs from the row's");
	else if (live && !included_equal(check, entry, &key))
		problem(check, "index entry", row, "an included column differs from the row's");
	check_order(check, entry, row, live);
}

/* indexam_verify() calls this for each entry ... */
static void
visit_entry(void *arg, const Datum *values, const bool *isnull, const ItemPointerData *tid)
{
	IndexCheck *check = arg;
	MemoryContext old = MemoryContextSwitchTo(check->row_context);
	Key			entry;

	memcpy(entry.values, values, check->natts * sizeof(Datum));
	memcpy(entry.isnull, isnull, check->natts * sizeof(bool));
	check_entry(check, &entry, row_from_tid(check->store, tid));
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->row_context);
	ResetPerTupleExprContext(check->estate);
	CHECK_FOR_INTERRUPTS();
}

/* ... and this for each defect of the tree. */
static void
visit_problem(void *arg, const char *place, const char *text)
{
	IndexCheck *check = arg;

	if (++check->nreports <= MAX_REPORTS)
		check->report(check->arg, "index structure", place, text);
}

/* ---- rows ---- */

static void
check_rows(IndexCheck *check)
{
	for (uint64 row = 0; row < check->nrows; row++)
	{
		RowRef		ref;
		uint64		begin;
		Key			key;
		MemoryContext old;

		if (row % SOFORT_BLOCK_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if ((check->met[row / 8] & (1 << (row % 8))) || !store_locate(check->store, row, &ref))
			continue;
		begin = word_read(&ref.words->begin);
		if (begin == WORD_EMPTY || WORD_TAG(begin) == WORD_TAG_ABORTED || (begin & BEGIN_HEAP_ONLY))
			continue;
		old = MemoryContextSwitchTo(check->row_context);
		if (live_key(check, row, &key))
			problem(check, "missing index entry", row, "a live row has no entry");
		MemoryContextSwitchTo(old);
		MemoryContextReset(check->row_context);
		ResetPerTupleExprContext(check->estate);
	}
}

void
monitor_verify_index(Relation rel, StoreDesc *store, Relation index, StoreReport report, void *arg)
{
	IndexCheck	check = {0};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "sofort verify",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	check.rel = rel;
	check.index = index;
	check.store = store;
	check.report = report;
	check.arg = arg;
	check.nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	check.natts = IndexRelationGetNumberOfAttributes(index);
	check.nrows = (uint64) store_nblocks(store) * SOFORT_BLOCK_ROWS;
	check.met = MemoryContextAllocHuge(context, check.nrows / 8 + 1);
	memset(check.met, 0, check.nrows / 8 + 1);
	check.row_context = AllocSetContextCreate(context, "row", ALLOCSET_DEFAULT_SIZES);
	check.key_context[0] = AllocSetContextCreate(context, "key", ALLOCSET_SMALL_SIZES);
	check.key_context[1] = AllocSetContextCreate(context, "key", ALLOCSET_SMALL_SIZES);
	check.info = BuildIndexInfo(index);
	check.estate = CreateExecutorState();
	check.slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	check.predicate = ExecPrepareQual(check.info->ii_Predicate, check.estate);
	check.snapshot = RegisterSnapshot(GetLatestSnapshot());
	PushActiveSnapshot(check.snapshot);

	if (indexam_verify(index, visit_problem, visit_entry, &check))
		check_rows(&check);
	if (check.nreports > MAX_REPORTS)
		report(arg, "index", RelationGetRelationName(index),
			   psprintf(UINT64_FORMAT " more problems not listed", check.nreports - MAX_REPORTS));

	PopActiveSnapshot();
	UnregisterSnapshot(check.snapshot);
	ExecDropSingleTupleTableSlot(check.slot);
	FreeExecutorState(check.estate);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
