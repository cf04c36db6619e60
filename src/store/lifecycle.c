/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *	  Stores of relations: created, dropped, found again when orphaned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "sofort/store/store_internal.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/syscache.h"

/*
 * The write set names the store before it exists, so whatever a crash leaves is
 * dropped with the transaction.
 */
StoreId
store_create(Relation rel, const RelFileLocator *locator, bool unlogged)
{
	StoreId		id;

	pool_require();
	txn_resolve_leftovers();
	txn_begin_write();
	registry_drop_stale(locator);
	id = pool_next_store_id();
	txn_log(id, TXN_ENTRY_CREATE_STORE, 0, 1);
	registry_add(id, locator, RelationGetRelid(rel), unlogged ? STORE_UNLOGGED : 0,
				 RelationGetDescr(rel)->natts);
	column_create_all(store_find_by_id(id), RelationGetDescr(rel));
	return id;
}

StoreHeader *
store_create_tree(Relation index, bool logged)
{
	const RelFileLocator *locator = relation_locator(index);
	StoreId		id;

	pool_require();
	txn_resolve_leftovers();
	if (logged)
		txn_begin_write();
	registry_drop_stale(locator);
	id = pool_next_store_id();
	if (logged)
		txn_log(id, TXN_ENTRY_CREATE_STORE, 0, 1);
	registry_add(id, locator, RelationGetRelid(index), STORE_TREE, 2);
	return registry_find_id(id)->header;
}

StoreHeader *
store_find_tree(const RelFileLocator *locator)
{
	StoreNode  *node;
	StoreHeader *header;

	/* (a damaged one must be found, too, to be dropped) */
	txn_resolve_leftovers();
	node = registry_find_locator(locator);
	header = node == NULL ? NULL : node->header;
	if (node != NULL && node->damage != NULL)
		return header;
	return header != NULL && (store_flags(header) & STORE_TREE) ? header : NULL;
}

void
store_drop_now(StoreId id)
{
	registry_drop(id);
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
	if (node->id == 0)
	{
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the space of file %u in the sofort pool stays in use", locator_number(locator)),
				 errdetail("%s.", node->damage)));
		return;
	}
	txn_begin_write();
	txn_log(node->id, TXN_ENTRY_DROP_STORE, 0, 1);
}

/* Made in an earlier life: of those, no transaction is open any more. */
static bool
is_old(void *arg, const StoreNode *node)
{
	return !node->this_life;
}

/* Locked, so that the database stays there; InvalidOid: it does not exist. */
static Oid
lock_default_tablespace(Oid db_oid)
{
	HeapTuple	tuple;
	Oid			spc_oid;

	LockSharedObject(DatabaseRelationId, db_oid, 0, AccessShareLock);
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(db_oid));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	spc_oid = ((Form_pg_database) GETSTRUCT(tuple))->dattablespace;
	ReleaseSysCache(tuple);
	return spc_oid;
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

/* The file of a key, perhaps in another database; in a transaction. */
bool
store_file_is_gone(RelFileLocator locator)
{
	bool		gone;

	if (OidIsValid(locator_spc(&locator)))
		return file_is_gone(&locator);
	if (locator_db(&locator) == MyDatabaseId)
	{
		locator_spc(&locator) = MyDatabaseTableSpace;
		return file_is_gone(&locator);
	}
	locator_spc(&locator) = lock_default_tablespace(locator_db(&locator));
	gone = OidIsValid(locator_spc(&locator)) && file_is_gone(&locator);
	UnlockSharedObject(DatabaseRelationId, locator_db(&locator), 0, AccessShareLock);
	return gone;
}

int
store_collect_orphans(void)
{
	int			n;
	int			i;
	int			dropped = 0;
	StoreNode  *list;

	pool_require();
	txn_resolve_leftovers();
	SOFORT_STOP("store-orphans-sought");
	list = registry_list(is_old, NULL, &n);
	for (i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (list[i].damage == NULL && store_file_is_gone(list[i].key))
		{
			/* perhaps COMMIT PREPARED has just removed it */
			txn_resolve_prepared();
			registry_drop(list[i].id);
			dropped++;
		}
	}
	if (list != NULL)
		pfree(list);
	return dropped;
}
