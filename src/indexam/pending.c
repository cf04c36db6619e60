/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  What transactions do to the trees of indexes (registry.c) when they end.
 *
 *	 created by a (sub)transaction	dropped when that aborts
 *	 index dropped					dropped at commit, unless another index has
 *									taken over the file
 *	 index has a new file			the old file's tree goes at commit
 *	 made or dropped by a			at COMMIT or ROLLBACK PREPARED
 *	 prepared transaction
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "sofort/compat/indexam.h"
#include "sofort/compat/relcache.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/registry.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "sofort/txn/txn.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* What this transaction will do to trees */
typedef enum PendingKind
{
	DROP_ON_ABORT,
	DROP_ON_COMMIT,
	DROP_DATABASE_ON_COMMIT,
	DROP_INCOMPLETE				/* a store whose tree is not complete */
} PendingKind;

typedef struct Pending
{
	PendingKind kind;
	int			level;			/* of the subtransaction */
	RelFileLocator locator;		/* database only: the others are 0 */
	Oid			dropped;		/* DROP_ON_COMMIT: with this index */
	StoreId		store;			/* DROP_INCOMPLETE */
	struct Pending *next;
} Pending;

static Pending *pending = NULL; /* in TopTransactionContext */
static List *leaving = NIL;		/* of Pending, in TopMemoryContext: see note_gone() */

static void
remember(PendingKind kind, const RelFileLocator *locator)
{
	Pending    *item = MemoryContextAlloc(TopTransactionContext, sizeof(Pending));

	item->kind = kind;
	item->level = GetCurrentTransactionNestLevel();
	item->locator = *locator;
	item->dropped = InvalidOid;
	item->store = 0;
	item->next = pending;
	pending = item;
}

void
pending_drop_incomplete(StoreId store)
{
	RelFileLocator none = {0};

	remember(DROP_INCOMPLETE, &none);
	pending->store = store;
}

static void
drop_if_incomplete(StoreId store)
{
	StoreHeader *header = store_find_by_id(store);

	if (header != NULL && (store_flags(header) & STORE_TREE_COMPLETE) == 0)
		store_drop_now(store);
}

/* The index has had other files: their trees go when this commits. */
static void
drop_former_files(Oid index_oid, const RelFileLocator *current)
{
	RelFileLocator former[16];
	RelFileLocator *in_pool;
	int			n = registry_former_files(index_oid, current, former, lengthof(former));
	int			i;

	for (i = 0; i < n; i++)
		remember(DROP_ON_COMMIT, &former[i]);

	/* those in the pool may have no entry yet, if they were not used in this server life */
	in_pool = store_trees_of(index_oid, &n);
	for (i = 0; i < n; i++)
		if (memcmp(&in_pool[i], current, sizeof(*current)) != 0)
			remember(DROP_ON_COMMIT, &in_pool[i]);
	pfree(in_pool);
}

void
indexam_drop_former_files(Oid index_oid)
{
	Relation	index = index_open(index_oid, NoLock);

	if (registry_in_use() && pool_status() == POOL_READY)
	{
		registry_attach_table();
		drop_former_files(index_oid, relation_locator(index));
	}
	index_close(index, NoLock);
}

SofortIndex *
pending_create(Relation index)
{
	SofortIndex *shared = tree_registry_attach(index);

	registry_reset(shared, NULL);
	if (shared->index_oid != RelationGetRelid(index))
		registry_set_owner(shared, RelationGetRelid(index));
	remember(DROP_ON_ABORT, relation_locator(index));
	drop_former_files(RelationGetRelid(index), relation_locator(index));
	return shared;
}

void
pending_drop_relation(Oid relid)
{
	HeapTuple	tuple;
	Form_pg_class form;
	RelFileLocator locator;

	if (pool_status() != POOL_READY)
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_class) GETSTRUCT(tuple);
	if (form->relkind == RELKIND_INDEX && RelFileNumberIsValid(form->relfilenode))
	{
		memset(&locator, 0, sizeof(locator));
		locator_spc(&locator) = OidIsValid(form->reltablespace) ? form->reltablespace :
			MyDatabaseTableSpace;
		locator_db(&locator) = MyDatabaseId;
		locator_number(&locator) = form->relfilenode;
		if (registry_has_locator(&locator) || store_find_tree(&locator) != NULL)
		{
			remember(DROP_ON_COMMIT, &locator);
			pending->dropped = relid;
		}
	}
	ReleaseSysCache(tuple);
}

void
pending_drop_database(Oid db_oid)
{
	RelFileLocator locator;

	if (!registry_in_use())
		return;
	registry_attach_table();
	memset(&locator, 0, sizeof(locator));
	locator_db(&locator) = db_oid;
	remember(DROP_DATABASE_ON_COMMIT, &locator);
}

void
indexam_forget_database(Oid db_oid)
{
	if (!registry_in_use())
		return;
	registry_attach_table();
	registry_drop_database(db_oid);
}

/*
 * ALTER TABLE lets a new index take over the file of one that it drops.  Forget
 * those before the commit: catalogs cannot be read after it.
 */
static void
keep_files_in_use(void)
{
	Pending    *item;

	for (item = pending; item != NULL; item = item->next)
	{
		Oid			user = InvalidOid;

		if (item->kind == DROP_ON_COMMIT && locator_db(&item->locator) == MyDatabaseId)
			user = compat_relid_by_number(locator_spc(&item->locator),
										  locator_number(&item->locator));
		if (!OidIsValid(user))
			continue;
		item->kind = DROP_ON_ABORT; /* which it does not */
		if (user == item->dropped)
		{
			MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
			Pending    *copy = palloc(sizeof(Pending));

			*copy = *item;
			leaving = lappend(leaving, copy);
			MemoryContextSwitchTo(old);
		}
	}
}

/*
 * DROP INDEX CONCURRENTLY announces the drop here, but drops the index in a later one of
 * its transactions.
 */
static void
note_gone(void)
{
	ListCell   *lc;

	foreach(lc, leaving)
	{
		Pending    *item = lfirst(lc);

		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(item->dropped)))
			continue;
		remember(DROP_ON_COMMIT, &item->locator);
		leaving = foreach_delete_current(leaving, lc);
		pfree(item);
	}
}

/* It has failed: the index is still there. */
static void
forget_leaving(void)
{
	list_free_deep(leaving);
	leaving = NIL;
}

/* What is in the pool goes with the transaction's write set. */
static void
log_drops(void)
{
	Pending    *item;

	if (pool_status() != POOL_READY)
		return;
	for (item = pending; item != NULL; item = item->next)
		if (item->kind == DROP_ON_COMMIT && store_find_tree(&item->locator) != NULL)
			store_drop_at_commit(&item->locator);
}

static void
finish(bool commit)
{
	Pending    *item = pending;

	pending = NULL;
	for (; item != NULL; item = item->next)
	{
		if (item->kind == DROP_INCOMPLETE)
		{
			drop_if_incomplete(item->store);
			continue;
		}
		if (item->kind == DROP_ON_ABORT ? commit : !commit)
			continue;
		if (item->kind == DROP_DATABASE_ON_COMMIT)
			registry_drop_database(locator_db(&item->locator));
		else
			registry_drop_locator(&item->locator);
	}
}

/*
 * PREPARE TRANSACTION: what is pending is remembered with the trees.  (A crash
 * forgets both.)  Raises no error.
 */
static void
mark_prepared(void)
{
	Pending    *item;

	for (item = pending; item != NULL; item = item->next)
		registry_mark_prepared(&item->locator, GetTopTransactionIdIfAny(),
							   item->kind == DROP_ON_ABORT);
	pending = NULL;
}

static void
xact_callback(XactEvent event, void *arg)
{
	/* some prepared transaction may have been finished by this one */
	if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT) && txn_may_finish_prepared())
		registry_finish_prepared();
	if (leaving != NIL && event == XACT_EVENT_PRE_COMMIT)
		note_gone();
	else if (leaving != NIL && event == XACT_EVENT_ABORT)
		forget_leaving();
	if (pending == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			keep_files_in_use();
			log_drops();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:	/* a worker may have built an index */
			finish(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			finish(false);
			break;
		case XACT_EVENT_PREPARE:
			mark_prepared();
			break;
		default:
			break;
	}
}

static void
subxact_callback(SubXactEvent event, SubTransactionId mySubid, SubTransactionId parentSubid,
				 void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	Pending    *item;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (item = pending; item != NULL; item = item->next)
			if (item->level >= level)
				item->level = level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* the newest come first */
		while (pending != NULL && pending->level >= level)
		{
			item = pending;
			pending = item->next;
			if (item->kind == DROP_ON_ABORT)
				registry_drop_locator(&item->locator);
			else if (item->kind == DROP_INCOMPLETE)
				drop_if_incomplete(item->store);
		}
	}
}

void
pending_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
