/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Creation, truncation and moving of stores; sizes.
 *
 * A sofort table has a file for its main fork: it reserves the relfilenumber, is
 * unlinked transactionally, and tells a store whose CREATE was lost in a crash from one
 * in use.  It stays empty, or has one page of zeros if the table is unlogged.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/multixact.h"
#include "access/relation.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "miscadmin.h"
#include "sofort/compat/tableam.h"
#include "sofort/pmem/fault.h"
#include "sofort/tableam/callbacks.h"
#include "sofort/txn/kept.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/smgr.h"
#include "utils/fmgroids.h"

/*
 * Makes a heap table of a temporary relation that was not asked for by a statement (which
 * src/exec would have changed): the one that REFRESH MATERIALIZED VIEW CONCURRENTLY fills.
 * Its row in pg_class is made after this call, from this relcache entry.
 */
static void
become_heap(Relation rel, const RelFileLocator *locator, TransactionId *freeze_xid,
			MultiXactId *minmulti)
{
	rel->rd_rel->relam = HEAP_TABLE_AM_OID;
	rel->rd_amhandler = F_HEAP_TABLEAM_HANDLER;
	rel->rd_tableam = GetHeapamTableAmRoutine();
	rel->rd_tableam->COMPAT_SET_NEW_FILE(rel, locator, RELPERSISTENCE_TEMP, freeze_xid, minmulti);
}

/*
 * Makes the file of a store, and the store.  An unlogged table gets an empty init fork,
 * too, so that PostgreSQL resets its file after a crash.
 */
static void
create_storage(Relation rel, const RelFileLocator *locator, char persistence)
{
	SMgrRelation smgr = RelationCreateStorage(*locator, persistence, true);

	if (persistence == RELPERSISTENCE_UNLOGGED)
	{
		smgrcreate(smgr, INIT_FORKNUM, false);
		log_smgrcreate(locator, INIT_FORKNUM);
		smgrimmedsync(smgr, INIT_FORKNUM);
		store_mark_unlogged_file(locator);
	}
	smgrclose(smgr);
	(void) store_create(rel, locator, persistence == RELPERSISTENCE_UNLOGGED);
}

/*
 * pg_upgrade makes the tables anew and moves their files.  The rows of a sofort table are
 * not in its file, so it would come out empty.
 */
static void
refuse_binary_upgrade(Relation rel)
{
	if (IsBinaryUpgrade)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot upgrade sofort tables with pg_upgrade"),
				 errdetail("The rows of table \"%s\" are in the pool of the old cluster.",
						   RelationGetRelationName(rel)),
				 errhint("Use pg_dump and pg_restore, or convert the tables to heap with ALTER TABLE ... SET ACCESS METHOD first.")));
}

/*
 * The placements of dictionaries outlast the store.  TRUNCATE makes another store for the
 * same relation; rewrites fill a relation whose name is pg_temp_ and the OID of the one
 * that it will replace, which is locked.
 */
static void
inherit_placements(Relation rel, const RelFileLocator *locator)
{
	Oid			replaced;
	int			length;
	Relation	old;

	if (!locator_equal(relation_locator(rel), locator))
		store_inherit_placements(relation_locator(rel), locator);
	else if (sscanf(RelationGetRelationName(rel), "pg_temp_%u%n", &replaced, &length) == 1 &&
			 RelationGetRelationName(rel)[length] == '\0' &&
			 CheckRelationOidLockedByMe(replaced, AccessShareLock, true))
	{
		old = try_relation_open(replaced, NoLock);
		if (old == NULL)
			return;
		store_inherit_placements(relation_locator(old), locator);
		relation_close(old, NoLock);
	}
}

/*
 * A new relation, or a new store for an existing one (TRUNCATE): then the old store is
 * dropped at commit.  Rows have 64-bit transaction ids, so there is nothing to freeze.
 */
void
tableam_set_new_file(Relation rel, const RelFileLocator *locator, char persistence,
					 TransactionId *freeze_xid, MultiXactId *minmulti)
{
	if (persistence == RELPERSISTENCE_TEMP)
	{
		Assert(locator_equal(relation_locator(rel), locator));
		become_heap(rel, locator, freeze_xid, minmulti);
		return;
	}
	refuse_binary_upgrade(rel);
	if (!locator_equal(relation_locator(rel), locator))
		tableam_refuse_waiting(rel);
	*freeze_xid = InvalidTransactionId;
	*minmulti = InvalidMultiXactId;

	create_storage(rel, locator, persistence);
	inherit_placements(rel, locator);
	if (!locator_equal(relation_locator(rel), locator))
		store_drop_at_commit(relation_locator(rel));
}

/*
 * For rewrites and index builds, which wait for transactions that change the table, but
 * cannot wait for one that waits itself, after a crash, to be resumed.  (And for TRUNCATE:
 * that of a subscription comes without a statement at which src/exec could look.)
 */
void
tableam_refuse_waiting(Relation rel)
{
	if (likely(!txn_any_kept_waits()))
		return;
	if (txn_kept_uses_store(store_open(rel)->id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is used by a kept transaction that waits to be resumed",
						RelationGetRelationName(rel)),
				 errhint("Try again after it has been resumed or rolled back; see sofort.transactions.")));
}

void
tableam_nontransactional_truncate(Relation rel)
{
	store_truncate_now(rel);
}

uint64
tableam_relation_size(Relation rel, ForkNumber fork)
{
	BlockNumber nblocks;

	if (fork != MAIN_FORKNUM && fork != InvalidForkNumber)
		return 0;
	nblocks = store_tid_blocks(store_open(rel));
	compat_no_prefetch(rel, nblocks);
	return (uint64) nblocks * BLCKSZ;
}

/*
 * The store keeps values of any size, so a sofort table's TOAST table stays empty.  But it
 * exists whenever a heap table would have one: ALTER TABLE SET ACCESS METHOD heap fills it
 * and cannot make it, and toast.* parameters are kept with it.
 */
bool
tableam_needs_toast_table(Relation rel)
{
	return GetHeapamTableAmRoutine()->relation_needs_toast_table(rel);
}

Oid
tableam_toast_am(Relation rel)
{
	return HEAP_TABLE_AM_OID;
}

/*
 * ALTER TABLE SET TABLESPACE: the pool belongs to no tablespace, but the file that stands
 * for the store does.  Rows get new TIDs, so the indexes, which are not moved, are rebuilt
 * when pg_class is changed (drop.c).
 */
void
tableam_copy_data(Relation rel, const RelFileLocator *locator)
{
	TableCopyCounts counts;
	StoreDesc  *source = store_open(rel);
	RelationData target = *rel; /* the locator as it will be after the ALTER */

	*relation_locator(&target) = *locator;
	create_storage(rel, locator, rel->rd_rel->relpersistence);
	/* predicate locks name TIDs; as CLUSTER does */
	TransferPredicateLocksToHeapRelation(rel);
	store_inherit_placements(relation_locator(rel), locator);
	tableam_copy_rows(rel, source, &target, store_open(&target), &counts);
	store_drop_at_commit(relation_locator(rel));
	RelationDropStorage(rel);
	tableam_reindex_after_alter(RelationGetRelid(rel));
	SOFORT_STOP("tablespace-copied");
}
