/*-------------------------------------------------------------------------
 *
 * cluster.c
 *	  Copying all versions of a table to a new store: CLUSTER, VACUUM FULL,
 *	  SET TABLESPACE.
 *
 * The caller holds AccessExclusiveLock, so words in progress are our own.
 * Versions that some snapshot may still see are copied with their stamps.
 * Each copy is a root of its own; indexes are built anew afterwards and get an
 * entry for each.  An updated version leads to its successor's copy: a READ
 * COMMITTED statement whose snapshot is older than the copy goes on from there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "catalog/storage.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "sofort/compat/relcache.h"
#include "sofort/pmem/latency.h"
#include "sofort/store/column_read.h"
#include "sofort/tableam/callbacks.h"
#include "storage/smgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

typedef struct CopyState
{
	Relation	from;
	StoreDesc  *source;
	Relation	to;
	StoreDesc  *target;
	uint64		horizon;
	Datum	   *values;
	bool	   *isnull;
	MemoryContext per_row;
	TableCopyCounts *counts;
	HTAB	   *copies;			/* CopiedVersion: versions that have, or may be, a successor */
	List	   *updates;		/* of CopiedUpdate */
	MemoryContext updates_context;
} CopyState;

#define NOT_COPIED		PG_UINT64_MAX

typedef struct CopiedVersion
{
	uint64		old_row;		/* key */
	uint64		new_row;		/* or NOT_COPIED */
	uint64		next;			/* copy of what replaced it in its chain, or NOT_COPIED */
} CopiedVersion;

/* An update that made a new root. */
typedef struct CopiedUpdate
{
	uint64		new_row;		/* of the updated version */
	uint64		old_successor;
} CopiedUpdate;

static void
copy_begin(CopyState *copy, Relation from, StoreDesc *source, Relation to, StoreDesc *target,
		   TableCopyCounts *counts)
{
	int			natts = RelationGetNumberOfAttributes(from);
	HASHCTL		ctl;

	txn_begin_write();
	memset(counts, 0, sizeof(*counts));
	copy->from = from;
	copy->source = source;
	copy->to = to;
	copy->target = target;
	copy->horizon = txn_horizon(from);
	copy->values = palloc(natts * sizeof(Datum));
	copy->isnull = palloc(natts * sizeof(bool));
	copy->per_row = AllocSetContextCreate(CurrentMemoryContext, "sofort copy",
										  ALLOCSET_DEFAULT_SIZES);
	copy->counts = counts;
	ctl.keysize = sizeof(uint64);
	ctl.entrysize = sizeof(CopiedVersion);
	ctl.hcxt = CurrentMemoryContext;
	copy->copies = hash_create("sofort copied versions", 256, &ctl,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	copy->updates = NIL;
	copy->updates_context = CurrentMemoryContext;
}

static CopiedVersion *
copied_version(CopyState *copy, uint64 old_row)
{
	bool		found;
	CopiedVersion *v = hash_search(copy->copies, &old_row, HASH_ENTER, &found);

	if (!found)
		v->new_row = v->next = NOT_COPIED;
	return v;
}

/*
 * Notes what the chains of the copy need.  A version can be the successor of one that some
 * snapshot still sees only if its creator is recent enough.  Within a chain it leads
 * directly to the one that it replaced, so no chain is walked.
 */
static void
note_copied(CopyState *copy, const RowRef *old, uint64 begin, uint64 end, uint64 new_row)
{
	RowRef		other;

	if (WORD_TAG(begin) == WORD_TAG_PROGRESS || WORD_XID(begin) >= copy->horizon)
	{
		copied_version(copy, old->row)->new_row = new_row;
		if (store_replaced_version(copy->source, old, &other))
			copied_version(copy, other.row)->next = new_row;
	}
	if (end == WORD_EMPTY || (end & END_UPDATED) == 0)
		return;
	if (store_new_root(copy->source, old, &other))
	{
		MemoryContext saved = MemoryContextSwitchTo(copy->updates_context);
		CopiedUpdate *u = palloc(sizeof(CopiedUpdate));

		u->new_row = new_row;
		u->old_successor = other.row;
		copy->updates = lappend(copy->updates, u);
		MemoryContextSwitchTo(saved);
	}
	else
		copied_version(copy, old->row)->new_row = new_row;
}

static void
link_copies(CopyState *copy)
{
	ListCell   *lc;
	HASH_SEQ_STATUS status;
	CopiedVersion *v;

	hash_seq_init(&status, copy->copies);
	while ((v = hash_seq_search(&status)) != NULL)
		if (v->new_row != NOT_COPIED && v->next != NOT_COPIED)
			store_set_successor(copy->target, v->new_row, v->next);
	foreach(lc, copy->updates)
	{
		CopiedUpdate *u = lfirst(lc);

		v = hash_search(copy->copies, &u->old_successor, HASH_FIND, NULL);
		if (v != NULL && v->new_row != NOT_COPIED)
			store_set_successor(copy->target, u->new_row, v->new_row);
	}
	list_free_deep(copy->updates);
	hash_destroy(copy->copies);
}

static void
copy_end(CopyState *copy)
{
	link_copies(copy);
	MemoryContextDelete(copy->per_row);
	pfree(copy->values);
	pfree(copy->isnull);
}

/* Must this version be copied?  Counts it. */
static bool
must_copy(CopyState *copy, const RowRef *ref)
{
	TransactionId xid = InvalidTransactionId;

	switch (txn_version_state(ref->words, copy->horizon, &xid))
	{
		case VERSION_FREE:
			return false;
		case VERSION_ABORTED:
		case VERSION_DEAD:
			copy->counts->removed += 1;
			return false;
		case VERSION_LIVE:
			break;
		case VERSION_RECENTLY_DEAD:
			if (store_values_are_gone(copy->source, ref))
			{
				copy->counts->removed += 1;
				return false;
			}
			copy->counts->recently_dead += 1;
			break;
		case VERSION_DELETING:
			copy->counts->recently_dead += 1;
			/* FALLTHROUGH */
		case VERSION_INSERTING:
			if (!TransactionIdIsCurrentTransactionId(xid))
				elog(ERROR, "concurrent change in progress within table \"%s\"",
					 RelationGetRelationName(copy->from));
			break;
	}
	copy->counts->copied += 1;
	return true;
}

/*
 * Copies one version.  Words of our own transaction are copied as they are, and the store
 * logs them, so that they are stamped at commit.  It does not matter to which
 * subtransaction they belong: if that is undone, so is the new store.
 */
static void
copy_version(CopyState *copy, const RowRef *ref)
{
	TupleDesc	desc = RelationGetDescr(copy->to);
	uint64		begin = word_read(&ref->words->begin) & ~BEGIN_HEAP_ONLY;
	uint64		end = word_read(&ref->words->end);
	MemoryContext old = MemoryContextSwitchTo(copy->per_row);
	RowRef		new;

	/* row locks are not copied: only we ourselves can hold one, and we lock the table */
	if (WORD_TAG(end) == WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_PROGRESS)
		end &= ~END_LOCKERS;
	else
		end = WORD_EMPTY;

	store_decode(copy->source, ref, 0, desc->natts, copy->values, copy->isnull);
	for (int i = 0; i < desc->natts; i++)
		if (!compat_is_stored(TupleDescAttr(desc, i)))
			copy->isnull[i] = true;

	store_insert_raw(copy->to, copy->target, copy->values, copy->isnull, begin, end, &new);
	note_copied(copy, ref, begin, end, new.row);

	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->per_row);
}

typedef void (*VersionVisitor) (CopyState *copy, const RowRef *ref, void *arg);

/* Visits all versions to be copied, in physical order. */
static void
visit_versions(CopyState *copy, VersionVisitor visit, void *arg)
{
	BlockNumber nblocks = store_nblocks(copy->source);
	StoreReadAhead ahead = {0};

	pgstat_progress_update_param(PROGRESS_CLUSTER_TOTAL_HEAP_BLKS, nblocks);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		pm_read_miss(1);
		store_scan_ahead(copy->source, &ahead, block, nblocks);
		for (int i = 0; i < SOFORT_BLOCK_ROWS; i++)
		{
			RowRef		ref;

			if (!store_locate(copy->source, (uint64) block * SOFORT_BLOCK_ROWS + i, &ref))
				break;
			if (must_copy(copy, &ref))
				visit(copy, &ref, arg);
		}
		pgstat_progress_update_param(PROGRESS_CLUSTER_HEAP_BLKS_SCANNED, block + 1);
	}
}

static void
visit_copy(CopyState *copy, const RowRef *ref, void *arg)
{
	copy_version(copy, ref);
	pgstat_progress_update_param(PROGRESS_CLUSTER_HEAP_TUPLES_WRITTEN, copy->counts->copied);
}

void
tableam_copy_rows(Relation from, StoreDesc *source, Relation to, StoreDesc *target,
				  TableCopyCounts *counts)
{
	CopyState	copy;

	copy_begin(&copy, from, source, to, target, counts);
	visit_versions(&copy, visit_copy, NULL);
	copy_end(&copy);
}

/* ------------------------------------------------------------------------
 * In the order of an index
 * ------------------------------------------------------------------------
 */

static void
copy_by_index_scan(CopyState *copy, Relation index)
{
	const int	columns[] = {PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_INDEX_RELID};
	int64		phase[2];
	IndexScanDesc scan;
	TupleTableSlot *slot;

	phase[0] = PROGRESS_CLUSTER_PHASE_INDEX_SCAN_HEAP;
	phase[1] = RelationGetRelid(index);
	pgstat_progress_update_multi_param(2, columns, phase);

	scan = compat_index_beginscan(copy->from, index, SnapshotAny, 0);
	index_rescan(scan, NULL, 0, NULL, 0);
	slot = table_slot_create(copy->from, NULL);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		const RowRef *ref = tableam_slot_row(slot);

		CHECK_FOR_INTERRUPTS();
		if (scan->xs_recheck)
			elog(ERROR, "CLUSTER does not support lossy index conditions");
		if (must_copy(copy, ref))
			visit_copy(copy, ref, NULL);
	}
	ExecDropSingleTupleTableSlot(slot);
	index_endscan(scan);
}

/* The sort sees heap tuples; their t_self leads back to the version. */
static void
visit_sort(CopyState *copy, const RowRef *ref, void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(copy->per_row);
	TupleDesc	desc = RelationGetDescr(copy->from);
	HeapTuple	tuple;

	store_decode(copy->source, ref, 0, desc->natts, copy->values, copy->isnull);
	tuple = heap_form_tuple(desc, copy->values, copy->isnull);
	row_to_tid(copy->source, ref->row, &tuple->t_self);
	tuplesort_putheaptuple((Tuplesortstate *) arg, tuple);
	MemoryContextSwitchTo(old);
	MemoryContextReset(copy->per_row);
	pgstat_progress_update_param(PROGRESS_CLUSTER_HEAP_TUPLES_SCANNED, copy->counts->copied);
}

static void
copy_by_sort(CopyState *copy, Relation index)
{
	Tuplesortstate *sort = tuplesort_begin_cluster(RelationGetDescr(copy->from), index,
												   maintenance_work_mem, NULL, TUPLESORT_NONE);
	HeapTuple	tuple;
	int64		written = 0;

	visit_versions(copy, visit_sort, sort);
	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_SORT_TUPLES);
	tuplesort_performsort(sort);

	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_WRITE_NEW_HEAP);
	while ((tuple = tuplesort_getheaptuple(sort, true)) != NULL)
	{
		RowRef		ref;

		CHECK_FOR_INTERRUPTS();
		if (!store_locate(copy->source, row_from_tid(copy->source, &tuple->t_self), &ref))
			elog(ERROR, "row version has vanished while its table was sorted");
		copy_version(copy, &ref);
		pgstat_progress_update_param(PROGRESS_CLUSTER_HEAP_TUPLES_WRITTEN, ++written);
	}
	tuplesort_end(sort);
}

void
tableam_copy_for_cluster(Relation from, Relation to, Relation index, bool use_sort,
						 TransactionId oldest_xmin, TransactionId *xid_cutoff,
						 MultiXactId *multi_cutoff, double *num_tuples,
						 double *tups_vacuumed, double *tups_recently_dead)
{
	TableCopyCounts counts;
	CopyState	copy;

	tableam_refuse_waiting(from);
	copy_begin(&copy, from, store_open(from), to, store_open(to), &counts);
	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_SEQ_SCAN_HEAP);
	if (index == NULL)
		visit_versions(&copy, visit_copy, NULL);
	else if (use_sort)
		copy_by_sort(&copy, index);
	else
		copy_by_index_scan(&copy, index);
	copy_end(&copy);

	/* there is nothing to freeze, see ddl.c; but the TOAST table gets the same horizon */
	if (!OidIsValid(from->rd_rel->reltoastrelid) && !OidIsValid(to->rd_rel->reltoastrelid))
	{
		*xid_cutoff = InvalidTransactionId;
		*multi_cutoff = InvalidMultiXactId;
	}
	*num_tuples = counts.copied;
	*tups_vacuumed = counts.removed;
	*tups_recently_dead = counts.recently_dead;
}
