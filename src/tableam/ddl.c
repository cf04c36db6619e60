/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Creation, truncation and moving of stores; sizes.
 *
 * The main fork of a sofort table exists and stays empty: it reserves the
 * number, is unlinked transactionally, and tells a store whose CREATE was lost
 * in a crash from one in use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/multixact.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "sofort/tableam/callbacks.h"
#include "storage/smgr.h"

static void
refuse_persistence(Relation rel, char persistence)
{
	if (persistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("temporary tables cannot use the access method \"%s\"", "sofort"),
				 errdetail("The data of sofort tables always are durable."),
				 errhint("Create the table with USING heap.")));
	if (persistence == RELPERSISTENCE_UNLOGGED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("unlogged tables cannot use the access method \"%s\"", "sofort"),
				 errdetail("The data of sofort tables always are durable and are not written to the log."),
				 errhint("Create the table without UNLOGGED, or with USING heap.")));
}

static bool
same_locator(const RelFileLocator *a, const RelFileLocator *b)
{
	return locator_spc(a) == locator_spc(b) && locator_db(a) == locator_db(b) &&
		locator_number(a) == locator_number(b);
}

/* The (empty) file of a store, and the store. */
static void
create_storage(Relation rel, const RelFileLocator *locator)
{
	smgrclose(RelationCreateStorage(*locator, RELPERSISTENCE_PERMANENT, true));
	(void) store_create(rel, locator);
}

/*
 * A new relation; or a new store for one that exists (TRUNCATE): then the old
 * store goes at commit.  Rows carry 64-bit transaction ids, so there is nothing
 * to freeze.
 */
void
tableam_set_new_file(Relation rel, const RelFileLocator *locator, char persistence,
					 TransactionId *freeze_xid, MultiXactId *minmulti)
{
	refuse_persistence(rel, persistence);
	*freeze_xid = InvalidTransactionId;
	*minmulti = InvalidMultiXactId;

	create_storage(rel, locator);
	if (!same_locator(relation_locator(rel), locator))
		store_drop_at_commit(relation_locator(rel));
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
	nblocks = store_nblocks(store_open(rel));
	compat_no_prefetch(nblocks);
	return (uint64) nblocks * BLCKSZ;
}

/* Values of any size are the store's business. */
bool
tableam_needs_toast_table(Relation rel)
{
	return false;
}

/*
 * ALTER TABLE SET TABLESPACE: the pool belongs to no tablespace, but the file
 * that stands for the store does.  Rows get new TIDs, so the indexes, which
 * stay where they are, are built anew once pg_class is changed (drop.c).
 */
void
tableam_copy_data(Relation rel, const RelFileLocator *locator)
{
	TableCopyCounts counts;
	StoreDesc  *source = store_open(rel);
	RelationData target = *rel; /* as it will be after the ALTER */

	*relation_locator(&target) = *locator;
	create_storage(rel, locator);
	tableam_copy_rows(rel, source, &target, store_open(&target), &counts);
	store_drop_at_commit(relation_locator(rel));
	RelationDropStorage(rel);
	tableam_reindex_after_alter(RelationGetRelid(rel));
}
