/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *	  Stores of relations: created, dropped, found again when orphaned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/relpath.h"
#include "miscadmin.h"
#include "sofort/store/store_internal.h"
#include "storage/smgr.h"

/*
 * The write set names the store before it exists, so whatever a crash leaves is
 * dropped with the transaction.
 */
StoreId
store_create(Relation rel, const RelFileLocator *locator, bool unlogged)
{
	StoreNode  *stale;
	StoreId		id;

	pool_require();
	txn_resolve_leftovers();
	txn_begin_write();

	/* the relation's file did not exist a moment ago: nobody owns this one */
	stale = registry_find_locator(locator);
	if (stale != NULL)
		registry_drop(stale->id);

	id = pool_next_store_id();
	txn_log(id, TXN_ENTRY_CREATE_STORE, 0, 1);
	registry_add(id, locator, RelationGetRelid(rel), RelationGetDescr(rel)->natts, unlogged);
	column_create_all(store_find_by_id(id), RelationGetDescr(rel));
	return id;
}

void
store_drop_at_commit(const RelFileLocator *locator)
{
	StoreNode  *node;

	pool_require();
	txn_resolve_leftovers();
	node = registry_find_locator(locator);
	if (node == NULL)
		return;
	txn_begin_write();
	txn_log(node->id, TXN_ENTRY_DROP_STORE, 0, 1);
}

/* Made in an earlier life: of those, no transaction is open any more. */
static bool
is_old(void *arg, const StoreNode *node)
{
	return !node->this_life;
}

/*
 * No file, although the directory that would hold it is there.  (A tablespace
 * that is not mounted must not cost its data.)
 */
static bool
file_is_gone(const RelFileLocator *locator)
{
	char	   *path = GetDatabasePath(locator_db(locator), locator_spc(locator));
	struct stat st;
	bool		there = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	SMgrRelation smgr;

	pfree(path);
	if (!there)
		return false;
	smgr = smgropen(*locator, INVALID_PROC_NUMBER);
	there = smgrexists(smgr, MAIN_FORKNUM);
	smgrclose(smgr);
	return !there;
}

int
store_collect_orphans(void)
{
	int			n;
	int			i;
	int			dropped = 0;
	StoreId    *ids;

	pool_require();
	txn_resolve_leftovers();
	ids = registry_list(is_old, NULL, &n);
	for (i = 0; i < n; i++)
	{
		StoreNode  *node = registry_find_id(ids[i]);
		RelFileLocator locator;

		CHECK_FOR_INTERRUPTS();
		if (node == NULL)
			continue;
		locator = node->locator;
		if (file_is_gone(&locator))
		{
			/* perhaps COMMIT PREPARED has just removed it */
			txn_resolve_prepared();
			registry_drop(ids[i]);
			dropped++;
		}
	}
	if (ids != NULL)
		pfree(ids);
	return dropped;
}
