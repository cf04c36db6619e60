/*-------------------------------------------------------------------------
 *
 * opclass.c
 *	  Operator classes: sofort indexes use those of btree.
 *
 * CREATE INDEX looks for operator classes of the access method, so each btree
 * class has an empty placeholder of the same name for sofort_index.  When the
 * index has been entered in the catalogs, before it is built, pg_index.indclass
 * is changed to the btree classes.  Foreign keys, uniqueness proofs and logical
 * replication ask for these, and families stay as they are for everybody else.
 *
 * Placeholders of built-in types come with the extension.  For other types one
 * is created when CREATE INDEX ... USING sofort_index needs it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "commands/alter.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_utilcmd.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "am_internal.h"

static object_access_hook_type prev_object_access = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* ---- mapping ---- */

/* Class of an access method by name, schema and type; InvalidOid if none */
static Oid
find_opclass(Oid am, Form_pg_opclass like)
{
	HeapTuple	tuple = SearchSysCache3(CLAAMNAMENSP, ObjectIdGetDatum(am),
										NameGetDatum(&like->opcname),
										ObjectIdGetDatum(like->opcnamespace));
	Oid			result = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_opclass) GETSTRUCT(tuple))->opcintype == like->opcintype)
		result = ((Form_pg_opclass) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return result;
}

static bool
is_opclass_of(Oid opclass, Oid am)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	bool		result = HeapTupleIsValid(tuple) &&
		((Form_pg_opclass) GETSTRUCT(tuple))->opcmethod == am;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* The btree class that a placeholder was made for, by its dependency; InvalidOid if none */
static Oid
original_of(Oid placeholder)
{
	Relation	pg_depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	ScanKeyInit(&key[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(OperatorClassRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(placeholder));
	scan = systable_beginscan(pg_depend, DependDependerIndexId, true, NULL, 2, key);
	while (!OidIsValid(result) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend depend = (Form_pg_depend) GETSTRUCT(tuple);

		if (depend->refclassid == OperatorClassRelationId && depend->deptype == DEPENDENCY_AUTO &&
			is_opclass_of(depend->refobjid, BTREE_AM_OID))
			result = depend->refobjid;
	}
	systable_endscan(scan);
	table_close(pg_depend, AccessShareLock);
	return result;
}

Oid
opclass_of_btree(Oid opclass)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	Oid			result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclass);
	if (((Form_pg_opclass) GETSTRUCT(tuple))->opcmethod == BTREE_AM_OID)
		result = opclass;
	else
		result = find_opclass(BTREE_AM_OID, (Form_pg_opclass) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	/* it may have been renamed or moved to another schema */
	return OidIsValid(result) ? result : original_of(opclass);
}

/* Raises an error that names the placeholder. */
static void
raise_no_btree_class(Oid opclass)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("operator class \"%s\" of access method \"%s\" has no counterpart for access method \"btree\"",
					HeapTupleIsValid(tuple) ?
					NameStr(((Form_pg_opclass) GETSTRUCT(tuple))->opcname) : "?",
					INDEX_AM_NAME),
			 errdetail("Its order would be that of a btree operator class of the same name, schema and type.")));
}

/* ---- after the index was entered in the catalogs ---- */

/* The relcache entry of a new index keeps what it was built with. */
static void
patch_relcache(Oid index_oid, const oidvector *classes)
{
	Relation	index = RelationIdGetRelation(index_oid);
	int			nsupport;
	int			i;
	int			k;

	if (!RelationIsValid(index))
		elog(ERROR, "could not open relation with OID %u", index_oid);
	nsupport = index->rd_indam ? index->rd_indam->amsupport : 0;
	for (i = 0; index->rd_opfamily != NULL && i < classes->dim1; i++)
	{
		index->rd_opfamily[i] = get_opclass_family(classes->values[i]);
		index->rd_opcintype[i] = get_opclass_input_type(classes->values[i]);
		for (k = 0; index->rd_support != NULL && k < nsupport; k++)
		{
			index->rd_support[i * nsupport + k] =
				get_opfamily_proc(index->rd_opfamily[i], index->rd_opcintype[i],
								  index->rd_opcintype[i], k + 1);
			memset(&index->rd_supportinfo[i * nsupport + k], 0, sizeof(FmgrInfo));
		}
	}
	RelationClose(index);
}

/*
 * As index_create() does for btree's pattern classes.  (It knows only these, and has looked
 * at our placeholders.)  Their order is that of bytes, but their equality is that of the
 * collation.
 */
static void
check_collation(Oid btree, Oid collation)
{
	HeapTuple	tuple;

	if ((btree != TEXT_BTREE_PATTERN_OPS_OID && btree != VARCHAR_BTREE_PATTERN_OPS_OID &&
		 btree != BPCHAR_BTREE_PATTERN_OPS_OID) ||
		!OidIsValid(collation) || get_collation_isdeterministic(collation))
		return;
	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(btree));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("nondeterministic collations are not supported for operator class \"%s\"",
					HeapTupleIsValid(tuple) ?
					NameStr(((Form_pg_opclass) GETSTRUCT(tuple))->opcname) : "?")));
}

static void
share_opclasses(Oid index_oid)
{
	Relation	pg_index = table_open(IndexRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(INDEXRELID, ObjectIdGetDatum(index_oid));
	oidvector  *classes;
	oidvector  *collations;
	bool		isnull;
	bool		changed = false;
	int			i;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index_oid);
	/* points into our copy */
	classes = (oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, tuple,
															Anum_pg_index_indclass, &isnull));
	collations = (oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, tuple,
															   Anum_pg_index_indcollation,
															   &isnull));
	for (i = 0; i < classes->dim1; i++)
	{
		Oid			btree = opclass_of_btree(classes->values[i]);

		if (!OidIsValid(btree))
			raise_no_btree_class(classes->values[i]);
		check_collation(btree, collations->values[i]);
		changed = changed || btree != classes->values[i];
		classes->values[i] = btree;
	}
	if (changed)
		CatalogTupleUpdate(pg_index, &tuple->t_self, tuple);
	table_close(pg_index, RowExclusiveLock);
	CommandCounterIncrement();
	if (changed)
		patch_relcache(index_oid, classes);
	heap_freetuple(tuple);
}

/* Is this new relation an index (partitioned, too) of ours? */
static bool
is_new_index(Oid relid)
{
	HeapTuple	tuple;
	Form_pg_class form;
	bool		result;
	Oid			am = get_index_am_oid(INDEX_AM_NAME, true);

	if (!OidIsValid(am))
		return false;
	CommandCounterIncrement();
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	result = (form->relkind == RELKIND_INDEX || form->relkind == RELKIND_PARTITIONED_INDEX) &&
		form->relam == am;
	ReleaseSysCache(tuple);
	return result;
}

static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class_id, object_id, sub_id, arg);
	if (sub_id != 0)
		return;
	if (access == OAT_POST_CREATE && class_id == RelationRelationId)
	{
		if (is_new_index(object_id))
		{
			share_opclasses(object_id);
			indexam_default_placement(object_id);
		}
	}
	else if (access == OAT_DROP && class_id == RelationRelationId)
		pending_drop_relation(object_id);
	else if (access == OAT_DROP && class_id == DatabaseRelationId)
		pending_drop_database(object_id);
}

/* ---- placeholders on demand ---- */

/* The one that goes with this btree class, in whichever schema; InvalidOid if none */
static Oid
placeholder_of(Oid btree_class, Oid am)
{
	Relation	pg_depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(OperatorClassRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(btree_class));
	scan = systable_beginscan(pg_depend, DependReferenceIndexId, true, NULL, 2, key);
	while (!OidIsValid(result) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend depend = (Form_pg_depend) GETSTRUCT(tuple);

		if (depend->classid == OperatorClassRelationId && depend->deptype == DEPENDENCY_AUTO &&
			is_opclass_of(depend->objid, am))
			result = depend->objid;
	}
	systable_endscan(scan);
	table_close(pg_depend, AccessShareLock);
	return result;
}

/*
 * Dropping the original drops the placeholder and its family, without a notice.  (One that
 * comes from a restored dump does not have these dependencies.)
 */
static void
depend_on_original(Oid placeholder, Oid btree_class)
{
	ObjectAddress self;
	ObjectAddress family;
	ObjectAddress original;

	if (OidIsValid(placeholder_of(btree_class, get_index_am_oid(INDEX_AM_NAME, false))))
		return;
	ObjectAddressSet(self, OperatorClassRelationId, placeholder);
	ObjectAddressSet(family, OperatorFamilyRelationId, get_opclass_family(placeholder));
	ObjectAddressSet(original, OperatorClassRelationId, btree_class);
	recordDependencyOn(&self, &original, DEPENDENCY_AUTO);
	recordDependencyOn(&family, &original, DEPENDENCY_AUTO);
	CommandCounterIncrement();
}

/* As CREATE OPERATOR CLASS ... AS STORAGE type; as a superuser may */
static void
create_placeholder(Form_pg_opclass btree)
{
	CreateOpClassStmt *stmt = makeNode(CreateOpClassStmt);
	CreateOpClassItem *item = makeNode(CreateOpClassItem);
	ObjectAddress made;
	Oid			save_user;
	int			save_context;

	stmt->opclassname = list_make2(makeString(get_namespace_name(btree->opcnamespace)),
								   makeString(pstrdup(NameStr(btree->opcname))));
	stmt->amname = pstrdup(INDEX_AM_NAME);
	stmt->datatype = makeTypeNameFromOid(btree->opcintype, -1);
	stmt->isDefault = btree->opcdefault;
	item->itemtype = OPCLASS_ITEM_STORAGETYPE;
	item->storedtype = makeTypeNameFromOid(btree->opcintype, -1);
	stmt->items = list_make1(item);

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   save_context | SECURITY_LOCAL_USERID_CHANGE);
	made = DefineOpClass(stmt);
	SetUserIdAndSecContext(save_user, save_context);
	CommandCounterIncrement();
	depend_on_original(made.objectId, btree->oid);
}

/*
 * ALTER EXTENSION ...  SET SCHEMA has moved the original, but not the placeholder, which is
 * not part of the extension.
 */
static void
move_placeholder(Oid placeholder, Oid namespace)
{
	ObjectAddresses *moved = new_object_addresses();
	Oid			save_user;
	int			save_context;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   save_context | SECURITY_LOCAL_USERID_CHANGE);
	(void) AlterObjectNamespace_oid(OperatorFamilyRelationId, get_opclass_family(placeholder),
									namespace, moved);
	(void) AlterObjectNamespace_oid(OperatorClassRelationId, placeholder, namespace, moved);
	SetUserIdAndSecContext(save_user, save_context);
	free_object_addresses(moved);
	CommandCounterIncrement();
}

/* Makes a placeholder for this btree class, if there is none in the same schema */
static void
provide_for_class(Oid btree_class)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(btree_class));
	Form_pg_opclass form;
	Oid			am = get_index_am_oid(INDEX_AM_NAME, false);
	Oid			placeholder;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", btree_class);
	form = (Form_pg_opclass) GETSTRUCT(tuple);
	placeholder = find_opclass(am, form);
	/* (those of built-in types come with the extension) */
	if (!OidIsValid(placeholder) ||
		(btree_class >= FirstNormalObjectId && !OidIsValid(placeholder_of(btree_class, am))))
	{
		/* somebody else may be about to make it */
		LockDatabaseObject(OperatorClassRelationId, btree_class, 0, ShareUpdateExclusiveLock);
		placeholder = find_opclass(am, form);
		if (OidIsValid(placeholder))
			depend_on_original(placeholder, btree_class);
		else if (OidIsValid(placeholder = placeholder_of(btree_class, am)))
			move_placeholder(placeholder, form->opcnamespace);
		else
			create_placeholder(form);
	}
	ReleaseSysCache(tuple);
}

bool
indexam_provide_opclass(Oid type)
{
	Oid			am = get_index_am_oid(INDEX_AM_NAME, true);
	Oid			btree;
	Oid			ours;

	if (!OidIsValid(am) || !OidIsValid(type))
		return false;
	btree = GetDefaultOpClass(type, BTREE_AM_OID);
	if (!OidIsValid(btree))
		return false;
	provide_for_class(btree);
	/* (without its own class, citext would get that of text) */
	ours = GetDefaultOpClass(type, am);
	return OidIsValid(ours) && opclass_of_btree(ours) == btree;
}

/* Makes a placeholder for a class named in CREATE INDEX that only btree has */
static void
provide_named_class(List *name)
{
	Oid			am = get_index_am_oid(INDEX_AM_NAME, false);
	Oid			btree;

	if (OidIsValid(get_opclass_oid(am, name, true)))
		return;
	btree = get_opclass_oid(BTREE_AM_OID, name, true);
	if (OidIsValid(btree))
		provide_for_class(btree);
}

/* Type of an index column.  If it is an expression, that is analysed. */
static Oid
element_type(Oid relid, IndexElem *elem)
{
	if (elem->name != NULL)
	{
		AttrNumber	attnum = get_attnum(relid, elem->name);

		return attnum == InvalidAttrNumber ? InvalidOid : get_atttype(relid, attnum);
	}
	return elem->expr != NULL ? exprType(elem->expr) : InvalidOid;
}

Oid
indexam_lock_table(const IndexStmt *stmt)
{
	return RangeVarGetRelidExtended(stmt->relation,
									stmt->concurrent ? ShareUpdateExclusiveLock : ShareLock, 0,
									RangeVarCallbackOwnsRelation, NULL);
}

static void
provide_for_statement(IndexStmt *stmt, const char *query)
{
	Oid			relid = indexam_lock_table(stmt);
	IndexStmt  *analysed = stmt;
	ListCell   *lc;

	if (!stmt->transformed)
		analysed = transformIndexStmt(relid, copyObject(stmt), query);
	foreach(lc, analysed->indexParams)
	{
		IndexElem  *elem = lfirst_node(IndexElem, lc);

		if (elem->opclass != NIL)
			provide_named_class(elem->opclass);
		else
			(void) indexam_provide_opclass(element_type(relid, elem));
	}
}

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	if (IsA(pstmt->utilityStmt, IndexStmt))
	{
		IndexStmt  *stmt = (IndexStmt *) pstmt->utilityStmt;

		if (stmt->accessMethod != NULL && strcmp(stmt->accessMethod, INDEX_AM_NAME) == 0 &&
			OidIsValid(get_index_am_oid(INDEX_AM_NAME, true)))
		{
			/* as the command itself does, before it waits for the table or looks at columns */
			if (stmt->concurrent)
				PreventInTransactionBlock(context == PROCESS_UTILITY_TOPLEVEL,
										  "CREATE INDEX CONCURRENTLY");
			provide_for_statement(stmt, query);
		}
	}
	if (prev_process_utility)
		prev_process_utility(pstmt, query, read_only, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only, context, params, env, dest, qc);
}

void
opclass_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = object_access;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
