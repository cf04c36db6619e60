/*-------------------------------------------------------------------------
 *
 * drop.c
 *	  PostgreSQL does not tell a table access method when its tables are
 *	  dropped; an object access hook does.  (Databases: src/exec.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "sofort/pmem/pool.h"
#include "sofort/tableam/callbacks.h"
#include "utils/relcache.h"

static object_access_hook_type previous_object_access_hook = NULL;

/* Relation whose rows got new TIDs in ALTER TABLE SET TABLESPACE, and where it runs */
static Oid	reindex_relation_oid = InvalidOid;
static SubTransactionId reindex_subid = InvalidSubTransactionId;

/*
 * Called for DROP in all its forms, and at the end of a rewrite: the transient relation
 * that is dropped then has the old storage.
 */
static void
relation_is_dropped(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);

	if (!RelationIsValid(rel))
		return;
	if (tableam_is_sofort(rel) && RELKIND_HAS_STORAGE(rel->rd_rel->relkind) &&
		pool_status() == POOL_READY)
		store_drop_at_commit(relation_locator(rel));
	RelationClose(rel);
}

void
tableam_reindex_after_alter(Oid relid)
{
	reindex_relation_oid = relid;
	reindex_subid = GetCurrentSubTransactionId();
}

/*
 * ALTER TABLE SET TABLESPACE has changed pg_class; the copied rows have new TIDs, so
 * indexes are rebuilt.
 */
static void
relation_was_altered(Oid relid)
{
	ReindexParams params = {0};

	if (!OidIsValid(reindex_relation_oid) || reindex_relation_oid != relid)
		return;
	reindex_relation_oid = InvalidOid;
	CommandCounterIncrement();
	compat_reindex_relation(relid, &params);
}

static void
tableam_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
					  void *arg)
{
	if (previous_object_access_hook)
		previous_object_access_hook(access, class_id, object_id, sub_id, arg);

	if (class_id != RelationRelationId || sub_id != 0)
		return;
	if (access == OAT_DROP)
		relation_is_dropped(object_id);
	else if (access == OAT_POST_ALTER)
		relation_was_altered(object_id);
}

static void
forget_reindex(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		reindex_relation_oid = InvalidOid;
}

/* The command has failed, if it ran in this subtransaction or within it: those have higher ids. */
static void
forget_undone_reindex(SubXactEvent event, SubTransactionId sub, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && reindex_subid >= sub)
		reindex_relation_oid = InvalidOid;
}

void
tableam_init(void)
{
	previous_object_access_hook = object_access_hook;
	object_access_hook = tableam_object_access;
	RegisterXactCallback(forget_reindex, NULL);
	RegisterSubXactCallback(forget_undone_reindex, NULL);
}
