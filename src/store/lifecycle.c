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
#include "catalog/pg_tablespace.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "sofort/compat/lock.h"
#include "sofort/store/store_internal.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * The write set names the store before it exists, so whatever a crash leaves is dropped
 * when the transaction is undone.
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

/*
 * The file of an unlogged table has a page, of zeros, until PostgreSQL puts a copy
 * of the empty init fork in its place.  Not flushed here: a checkpoint does it, and
 * without one there was no clean shutdown.
 */
void
store_mark_unlogged_file(const RelFileLocator *locator)
{
	static const char page[BLCKSZ] pg_attribute_aligned(4096);
	SMgrRelation smgr = smgropen(*locator, INVALID_PROC_NUMBER);

	if (smgrnblocks(smgr, MAIN_FORKNUM) == 0)
		smgrextend(smgr, MAIN_FORKNUM, 0, (char *) page, false);
}

bool
store_file_is_as_made(Relation rel)
{
	BlockNumber nblocks = smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM);
	Buffer		buffer;
	bool		zeros;

	if (nblocks != 1 || rel->rd_rel->relpersistence != RELPERSISTENCE_UNLOGGED)
		return nblocks == 0;
	buffer = ReadBuffer(rel, 0);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	zeros = PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return zeros;
}

/*
 * Is it the default tablespace of the database?  Only there the database's directory has a
 * PG_VERSION.
 */
static bool
holds_database(Oid spc_oid, Oid db_oid)
{
	char	   *directory = GetDatabasePath(db_oid, spc_oid);
	char	   *version = psprintf("%s/PG_VERSION", directory);
	struct stat st;
	bool		found = stat(version, &st) == 0;

	pfree(version);
	pfree(directory);
	return found;
}

/* The default tablespace, without looking at catalogs; InvalidOid: it is not mounted. */
static Oid
default_tablespace_at_start(Oid db_oid)
{
	DIR		   *dir;
	struct dirent *entry;
	Oid			found = InvalidOid;

	if (holds_database(DEFAULTTABLESPACE_OID, db_oid))
		return DEFAULTTABLESPACE_OID;
	dir = AllocateDir("pg_tblspc");
	while (!OidIsValid(found) && (entry = ReadDirExtended(dir, "pg_tblspc", LOG)) != NULL)
	{
		Oid			spc_oid = (Oid) strtoul(entry->d_name, NULL, 10);

		if (OidIsValid(spc_oid) && holds_database(spc_oid, db_oid))
			found = spc_oid;
	}
	FreeDir(dir);
	return found;
}

/*
 * Has PostgreSQL reset the file of an unlogged table, and nobody opened the table since?
 * Called at a start, before PostgreSQL recovers.  (A missing file tells nothing: its
 * tablespace may not be mounted, or a DROP has not reached the store.)
 */
bool
store_file_was_reset(const RelFileLocator *key)
{
	Oid			spc_oid = locator_spc(key);
	char	   *directory;
	char	   *path;
	struct stat st;
	bool		reset;

	if (!OidIsValid(spc_oid))
		spc_oid = default_tablespace_at_start(locator_db(key));
	if (!OidIsValid(spc_oid))
		return false;
	directory = GetDatabasePath(locator_db(key), spc_oid);
	path = psprintf("%s/%u", directory, locator_number(key));
	reset = stat(path, &st) == 0 && st.st_size < BLCKSZ;
	pfree(path);
	pfree(directory);
	return reset;
}

/* Was it made in an earlier life?  Then the transaction that made it has ended. */
static bool
is_old(void *arg, const StoreNode *node)
{
	return !node->this_life;
}

/* Of a database that is locked, so that it stays there; InvalidOid: it does not exist. */
static Oid
default_tablespace(Oid db_oid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(db_oid));
	Oid			spc_oid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	spc_oid = ((Form_pg_database) GETSTRUCT(tuple))->dattablespace;
	ReleaseSysCache(tuple);
	return spc_oid;
}

/*
 * Is there no file, although the directory that would hold it is there?  (The data of a
 * tablespace that is not mounted must not be dropped.)
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

/*
 * The file of a key, perhaps in another database; in a transaction.  wait: for who has
 * that database for himself, who may keep it for long; else that is not known yet.
 */
bool
store_file_is_gone(RelFileLocator locator, bool wait)
{
	Oid			db_oid = locator_db(&locator);
	bool		gone;

	if (OidIsValid(locator_spc(&locator)))
		return file_is_gone(&locator);
	if (db_oid == MyDatabaseId)
	{
		locator_spc(&locator) = MyDatabaseTableSpace;
		return file_is_gone(&locator);
	}
	if (wait)
		LockSharedObject(DatabaseRelationId, db_oid, 0, AccessShareLock);
	else if (!compat_try_lock_database(db_oid, AccessShareLock))
		return false;
	locator_spc(&locator) = default_tablespace(db_oid);
	gone = OidIsValid(locator_spc(&locator)) && file_is_gone(&locator);
	UnlockSharedObject(DatabaseRelationId, db_oid, 0, AccessShareLock);
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
		if (list[i].damage == NULL && store_file_is_gone(list[i].key, false))
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
