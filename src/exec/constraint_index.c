/*-------------------------------------------------------------------------
 *
 * constraint_index.c
 *	  Which indexes of a sofort table become sofort indexes, and how they
 *	  survive commands that know only btree constraint indexes.
 *
 * CREATE TABLE hands every constraint index to ProcessUtility as a generated IndexStmt,
 * when the table exists: it is decided there.  ALTER TABLE does not: its raw
 * constraints are changed before it runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "parser/parse_type.h"
#include "sofort/compat/ddl.h"
#include "sofort/indexam/indexam.h"
#include "storage/lmgr.h"
#include "utils/evtcache.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "exec_internal.h"

typedef struct Recreated
{
	Oid			relid;
	char	   *constraint;		/* survives the index, ... */
	int2vector *columns;		/* ... unless this is another one now */
	Datum		options;
} Recreated;

struct AlterFollowUp
{
	List	   *recreated;		/* of Recreated: by ALTER COLUMN TYPE, SET EXPRESSION */
	List	   *to_sofort;		/* of Recreated: others that are btrees until the end */
	Oid			lent;			/* an index that goes back to sofort_index ... */
	Oid			lent_number;	/* ... and what its relfilenode was */
	List	   *retyped;		/* indexes that change with the table's AM ... */
	List	   *retyped_numbers;	/* ... likewise */
};

/* ---- which tables, types and options ---- */

typedef struct TableTraits
{
	char		relkind;
	char		persistence;
	bool		is_partition;
	Oid			am;
} TableTraits;

static bool
table_traits(Oid relid, TableTraits *t)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class form;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	t->relkind = form->relkind;
	t->persistence = form->relpersistence;
	t->is_partition = form->relispartition;
	t->am = form->relam;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * Do constraints of such a table get sofort indexes?  Partitions do not: their
 * constraints must match the parent's, which is always a btree, and INSERT ...
 * ON CONFLICT through the parent could not use them.
 */
static bool
takes_sofort_constraints(const TableTraits *t)
{
	return sofort_default_index == EXEC_DEFAULT_INDEX_SOFORT &&
		t->relkind == RELKIND_RELATION &&
		!t->is_partition &&
		OidIsValid(t->am) && t->am == exec_table_am_oid();
}

/* Are there only options that sofort_index knows?  With others the user wants a btree. */
static bool
options_fit_sofort(List *options)
{
	ListCell   *lc;

	foreach(lc, options)
		if (!index_option_fits(lfirst_node(DefElem, lc)->defname, false))
			return false;
	return true;
}

/* The options without the placement, the only one that a btree does not know. */
static List *
without_placement(List *options)
{
	List	   *kept = NIL;
	ListCell   *lc;

	foreach(lc, options)
		if (index_option_fits(lfirst_node(DefElem, lc)->defname, true))
			kept = lappend(kept, lfirst(lc));
	return kept;
}

/* ---- CREATE TABLE, CREATE INDEX ---- */

static bool
index_columns_fit(const IndexStmt *stmt, Oid relid)
{
	ListCell   *lc;

	foreach(lc, stmt->indexParams)
	{
		IndexElem  *elem = lfirst_node(IndexElem, lc);
		AttrNumber	attnum;

		if (elem->name == NULL || elem->opclass != NIL)
			return false;
		attnum = get_attnum(relid, elem->name);
		if (attnum == InvalidAttrNumber || !indexam_provide_opclass(get_atttype(relid, attnum)))
			return false;
	}
	return true;
}

void
constraint_fix_index(IndexStmt *stmt, bool generated)
{
	TableTraits t;
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	Oid			index_am;

	if (stmt->excludeOpNames != NIL)
	{
		refuse_exclusion(stmt->accessMethod);
		return;
	}
	if (!OidIsValid(relid) || !table_traits(relid, &t))
		return;
	index_am = exec_index_am_oid();
	if (!OidIsValid(index_am))
		return;

	if (strcmp(stmt->accessMethod, DEFAULT_INDEX_TYPE) == 0)
	{
		if (generated && stmt->isconstraint && takes_sofort_constraints(&t) &&
			options_fit_sofort(stmt->options) && index_columns_fit(stmt, relid))
			stmt->accessMethod = pstrdup(INDEX_AM_NAME);
		return;
	}
	if (strcmp(stmt->accessMethod, INDEX_AM_NAME) != 0)
		return;
	if (SOFORT_LEAF_UNIQUE_NEEDS_BTREE && stmt->unique && !generated)
	{
		/* under the command's lock: it may be about to become a partition */
		relid = indexam_lock_table(stmt);
		if (!table_traits(relid, &t))
			return;
	}

	/* LIKE ... INCLUDING INDEXES clones the access method of the original */
	if (generated && stmt->transformed &&
		(t.am != exec_table_am_oid() ||
		 (stmt->unique && (t.is_partition || t.relkind == RELKIND_PARTITIONED_TABLE)) ||
		 (stmt->isconstraint && sofort_default_index == EXEC_DEFAULT_INDEX_BTREE)))
	{
		stmt->accessMethod = pstrdup(DEFAULT_INDEX_TYPE);
		stmt->options = without_placement(stmt->options);
		return;
	}
	/* ... and its placement, which an index of an unlogged table cannot have */
	if (generated && stmt->transformed && t.persistence != RELPERSISTENCE_PERMANENT)
		stmt->options = without_placement(stmt->options);
	if (stmt->unique && t.relkind == RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a partitioned table cannot have a unique index with access method \"%s\"",
						INDEX_AM_NAME),
				 errdetail("PostgreSQL cannot match its partition key with such an index."),
				 errhint("Use btree for unique indexes of partitioned tables.")));
	if (SOFORT_LEAF_UNIQUE_NEEDS_BTREE && stmt->unique && t.is_partition)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a partition cannot have a unique index with access method \"%s\"",
						INDEX_AM_NAME),
				 errdetail("INSERT ... ON CONFLICT through the partitioned table could not use it."),
				 errhint("Use btree for unique indexes of partitions.")));
}

/* ---- ALTER TABLE: new constraints ---- */

static Oid
type_of_name(TypeName *name)
{
	static const char *const serials[] = {
		"smallserial", "serial2", "serial", "serial4", "bigserial", "serial8"
	};
	Type		type;
	Oid			oid;

	if (name == NULL)
		return InvalidOid;
	if (list_length(name->names) == 1 && !name->pct_type && name->arrayBounds == NIL)
		for (int i = 0; i < (int) lengthof(serials); i++)
			if (strcmp(strVal(linitial(name->names)), serials[i]) == 0)
				return i < 2 ? INT2OID : i < 4 ? INT4OID : INT8OID;
	type = LookupTypeName(NULL, name, NULL, true);
	if (type == NULL)
		return InvalidOid;
	oid = typeTypeId(type);
	ReleaseSysCache(type);
	return oid;
}

/* The type that a column will have after this ALTER TABLE. */
static Oid
column_type_after(Oid relid, const AlterTableStmt *stmt, const char *column)
{
	ListCell   *lc;
	AttrNumber	attnum;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddColumn &&
			strcmp(castNode(ColumnDef, cmd->def)->colname, column) == 0)
			return type_of_name(castNode(ColumnDef, cmd->def)->typeName);
		if (cmd->subtype == AT_AlterColumnType && strcmp(cmd->name, column) == 0)
			return type_of_name(castNode(ColumnDef, cmd->def)->typeName);
	}
	attnum = get_attnum(relid, column);
	return attnum == InvalidAttrNumber ? InvalidOid : get_atttype(relid, attnum);
}

/* column: of a column constraint, else NULL. */
static void
fix_constraint(Constraint *c, Oid relid, const AlterTableStmt *stmt, const char *column)
{
	Oid			index_am = exec_index_am_oid();
	ListCell   *lc;

	if ((c->contype != CONSTR_PRIMARY && c->contype != CONSTR_UNIQUE) ||
		c->access_method != NULL || c->indexname != NULL || !OidIsValid(index_am) ||
		!options_fit_sofort(c->options))
		return;
	if (column && !indexam_provide_opclass(column_type_after(relid, stmt, column)))
		return;
	foreach(lc, c->keys)
		if (!indexam_provide_opclass(column_type_after(relid, stmt, strVal(lfirst(lc)))))
			return;
	c->access_method = pstrdup(INDEX_AM_NAME);
}

static void
fix_new_constraints(AlterTableStmt *stmt, Oid relid, const TableTraits *t)
{
	ListCell   *lc;

	if (!takes_sofort_constraints(t))
		return;
	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddConstraint && IsA(cmd->def, Constraint))
			fix_constraint(castNode(Constraint, cmd->def), relid, stmt, NULL);
		else if (cmd->subtype == AT_AddColumn)
		{
			ColumnDef  *def = castNode(ColumnDef, cmd->def);
			ListCell   *lc2;

			foreach(lc2, def->constraints)
				if (IsA(lfirst(lc2), Constraint))
					fix_constraint(lfirst_node(Constraint, lc2), relid, stmt, def->colname);
		}
	}
}

/* ---- ALTER TABLE: existing indexes ---- */

Oid
exec_relation_am(Oid relid)
{
	TableTraits t;

	return table_traits(relid, &t) ? t.am : InvalidOid;
}

static Oid
relation_number(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			number;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	number = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
	ReleaseSysCache(tuple);
	return number;
}

/* OIDs of the indexes of a table that the caller has locked. */
static List *
indexes_of(Oid relid)
{
	Relation	rel = relation_open(relid, NoLock);
	List	   *indexes = list_copy(RelationGetIndexList(rel));

	relation_close(rel, NoLock);
	return indexes;
}

static bool
index_is_unique(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		unique;

	if (!HeapTupleIsValid(tuple))
		return false;
	unique = ((Form_pg_index) GETSTRUCT(tuple))->indisunique;
	ReleaseSysCache(tuple);
	return unique;
}

/* Is this index of a PRIMARY KEY or UNIQUE constraint (not EXCLUDE)? */
static Oid
unique_constraint_of(Oid index)
{
	return index_is_unique(index) ? get_index_constraint(index) : InvalidOid;
}

static bool
index_types_fit(Oid index)
{
	Relation	rel = relation_open(index, AccessShareLock);
	bool		fit = true;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(rel); i++)
		if (!indexam_provide_opclass(rel->rd_opcintype[i]) ||
			rel->rd_opfamily[i] !=
			get_opclass_family(GetDefaultOpClass(rel->rd_opcintype[i], BTREE_AM_OID)))
			fit = false;
	relation_close(rel, AccessShareLock);
	return fit;
}

/* pg_index.indkey, copied; NULL if there is no such index. */
static int2vector *
index_columns(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	const int2vector *columns;
	int2vector *copy;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	columns = &((Form_pg_index) GETSTRUCT(tuple))->indkey;
	copy = memcpy(palloc(VARSIZE(columns)), columns, VARSIZE(columns));
	ReleaseSysCache(tuple);
	return copy;
}

static bool
same_columns(const int2vector *a, const int2vector *b)
{
	return VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;
}

/* Does the command drop this constraint itself?  (Index constraints are not inherited.) */
static bool
drops_constraint(const AlterTableStmt *stmt, const char *name)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DropConstraint && strcmp(cmd->name, name) == 0)
			return true;
	}
	return false;
}

/* Tables of a composite type: ALTER TYPE ... CASCADE changes them. */
static List *
typed_tables(Oid composite)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	List	   *tables = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_class_reloftype, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(get_rel_type_id(composite)));
	scan = systable_beginscan(pg_class, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			relid = ((Form_pg_class) GETSTRUCT(tuple))->oid;

		/* (if it is somebody else's, the command itself reports that) */
		if (compat_owns_relation(relid, GetUserId()))
			tables = lappend_oid(tables, relid);
	}
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return tables;
}

/* The tables whose columns an ALTER COLUMN TYPE, ATTRIBUTE, or SET EXPRESSION changes */
static List *
altered_tables(const AlterTableStmt *stmt, const AlterTableCmd *cmd, Oid root, LOCKMODE lockmode)
{
	List	   *roots = list_make1_oid(root);
	List	   *result = NIL;
	ListCell   *lc;

	/* (the grammar leaves inh false for a type) */
	if (get_rel_relkind(root) == RELKIND_COMPOSITE_TYPE)
		roots = cmd->behavior == DROP_CASCADE ? typed_tables(root) : NIL;
	else if (!stmt->relation->inh)
		return roots;
	foreach(lc, roots)
	{
		LockRelationOid(lfirst_oid(lc), lockmode);
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			result = list_concat_unique_oid(result,
											find_all_inheritors(lfirst_oid(lc), lockmode, NULL));
	}
	return result;
}

/*
 * An event trigger may read any table after we have prepared a command, or before it
 * has ended for us.
 */
static bool
any_event_trigger(void)
{
	return EventCacheLookup(EVT_DDLCommandStart) != NIL || EventCacheLookup(EVT_TableRewrite) != NIL ||
		EventCacheLookup(EVT_DDLCommandEnd) != NIL || EventCacheLookup(EVT_SQLDrop) != NIL;
}

/* The same for functions that other commands in the same ALTER TABLE evaluate. */
static bool
others_may_read(const AlterTableStmt *stmt)
{
	return list_length(stmt->cmds) > 1 || any_event_trigger();
}

/*
 * Are there CHECK constraints?  ALTER COLUMN TYPE checks them anew, by functions that may
 * read the table.
 */
static bool
has_checks(Oid relid)
{
	Relation	rel = relation_open(relid, NoLock);
	const TupleConstr *constr = RelationGetDescr(rel)->constr;
	bool		result = constr != NULL && constr->num_check > 0;

	relation_close(rel, NoLock);
	return result;
}

/* Does ALTER COLUMN TYPE make this index again, and may something read it before the end? */
static bool
is_read_meanwhile(const AlterTableStmt *stmt, const Recreated *r, bool any_checks)
{
	bool		recreated = false;
	bool		read = any_event_trigger() || any_checks;
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		AttrNumber	column;

		if (!compat_recreates_indexes(cmd->subtype))
		{
			read = true;		/* ADD FOREIGN KEY, VALIDATE CONSTRAINT ... */
			continue;
		}
		column = get_attnum(r->relid, cmd->name);
		for (int i = 0; i < r->columns->dim1; i++)
			recreated |= r->columns->values[i] == column;
	}
	return read && recreated;
}

/* Name of the constraint of this index; NULL: there is none, or the command drops it. */
static char *
lasting_constraint(const AlterTableStmt *stmt, Oid root, Oid relid, Oid index)
{
	Oid			constraint = unique_constraint_of(index);
	char	   *name;

	if (!OidIsValid(constraint))
		return NULL;
	name = get_constraint_name(constraint);
	if (relid == root && drops_constraint(stmt, name))
		return NULL;			/* another index may get its name */
	return name;
}

/* The constraint has, or will have, this index, or one that the command makes in its place. */
static Recreated *
remember_index(List **list, Oid relid, char *constraint, Oid index)
{
	Recreated  *r = palloc(sizeof(Recreated));

	r->relid = relid;
	r->constraint = constraint;
	r->columns = index_columns(index);
	r->options = index_options(index);
	*list = lappend(*list, r);
	return r;
}

/*
 * ALTER COLUMN TYPE and SET EXPRESSION drop constraint indexes and make them again from
 * their definition, which does not name the access method; so storage parameters that only
 * sofort_index knows would make that fail.  Without a rewrite the new index, a btree, takes
 * over the file of the old one: if something may read it before we convert it, it must be a
 * real btree.
 */
static void
remember_recreated(AlterFollowUp *follow_up, const AlterTableStmt *stmt, const AlterTableCmd *cmd,
				   Oid root, LOCKMODE lockmode)
{
	List	   *rels = altered_tables(stmt, cmd, root, lockmode);
	Oid			index_am = exec_index_am_oid();
	bool		any_checks = false;
	ListCell   *lc;

	foreach(lc, rels)
		any_checks |= has_checks(lfirst_oid(lc));
	foreach(lc, rels)
	{
		ListCell   *lc2;

		if (exec_relation_am(lfirst_oid(lc)) != exec_table_am_oid())
			continue;
		foreach(lc2, indexes_of(lfirst_oid(lc)))
		{
			Oid			index = lfirst_oid(lc2);
			char	   *name;
			Recreated  *r;

			if (exec_relation_am(index) != index_am ||
				(name = lasting_constraint(stmt, root, lfirst_oid(lc), index)) == NULL)
				continue;
			r = remember_index(&follow_up->recreated, lfirst_oid(lc), name, index);
			index_keep_options(index, BTREE_AM_OID);
			if (r->columns != NULL && is_read_meanwhile(stmt, r, any_checks))
			{
				LockRelationOid(index, AccessExclusiveLock);
				index_convert(index, BTREE_AM_OID, true);
			}
		}
	}
}

/*
 * ADD CONSTRAINT ...  USING INDEX insists on a btree.  Alone, the command only looks at the
 * catalogs; with other commands in one ALTER TABLE, or with event triggers, something might
 * read the index, so it must be a real one, or make it again.
 */
static void
lend_index(AlterFollowUp *follow_up, const AlterTableStmt *stmt, Oid relid, const Constraint *c)
{
	Oid			index = get_relname_relid(c->indexname, get_rel_namespace(relid));

	if (!OidIsValid(index) || exec_relation_am(index) != exec_index_am_oid() ||
		IndexGetRelation(index, true) != relid)
		return;
	LockRelationOid(index, AccessExclusiveLock);
	if (!others_may_read(stmt))
	{
		index_convert(index, BTREE_AM_OID, false);
		follow_up->lent = index;
		follow_up->lent_number = relation_number(index);
	}
	else
	{
		(void) remember_index(&follow_up->to_sofort, relid, c->conname ? c->conname : c->indexname,
							  index);
		index_keep_options(index, BTREE_AM_OID);
		index_convert(index, BTREE_AM_OID, true);
	}
}

/*
 * As a btree it would stay attached to the parent's sofort index, which is not possible
 * otherwise: a dump could not be restored.
 */
static void
refuse_attached(Oid index, const char *table)
{
	const char *parent;

	if (!get_rel_relispartition(index))
		return;
	parent = get_rel_name(get_partition_parent(index, false));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change the access method of table \"%s\" because its index \"%s\" is a partition of index \"%s\"",
					table, get_rel_name(index), parent),
			 errdetail("Index \"%s\" uses access method \"%s\", which supports sofort tables only.",
					   parent, INDEX_AM_NAME),
			 errhint("Drop index \"%s\", or replace it by a btree.", parent)));
}

/*
 * SET ACCESS METHOD rewrites the table and rebuilds all its indexes, each with its access
 * method: so that is changed first.  If something might read the table before it is
 * rewritten, the index must be a real btree meanwhile; and another command of the same
 * ALTER TABLE may make it again.
 */
static void
retype_indexes(AlterFollowUp *follow_up, const AlterTableStmt *stmt, Oid relid,
			   const TableTraits *after)
{
	Oid			index_am = exec_index_am_oid();
	bool		to_sofort = takes_sofort_constraints(after);
	bool		read = others_may_read(stmt);
	ListCell   *lc;

	foreach(lc, indexes_of(relid))
	{
		Oid			index = lfirst_oid(lc);
		Oid			am = exec_relation_am(index);
		Oid			new_am = am;

		if (am == index_am && after->am != exec_table_am_oid())
		{
			refuse_attached(index, get_rel_name(relid));
			new_am = BTREE_AM_OID;
		}
		else if (am == BTREE_AM_OID && to_sofort && OidIsValid(unique_constraint_of(index)) &&
				 index_types_fit(index) && index_options_fit(index, index_am))
			new_am = index_am;
		if (new_am == am)
			continue;
		LockRelationOid(index, AccessExclusiveLock);
		if (read && new_am == index_am)
		{
			char	   *name = lasting_constraint(stmt, relid, relid, index);

			if (name != NULL)
				(void) remember_index(&follow_up->to_sofort, relid, name, index);
			continue;
		}
		index_keep_options(index, new_am);
		index_convert(index, new_am, read);
		follow_up->retyped = lappend_oid(follow_up->retyped, index);
		follow_up->retyped_numbers = lappend_oid(follow_up->retyped_numbers, relation_number(index));
	}
}

/* A table that becomes a partition: unique indexes must be btrees from now on. */
static void
prepare_partition(const PartitionCmd *cmd)
{
	Oid			relid = RangeVarGetRelid(cmd->name, AccessExclusiveLock, true);
	Oid			index_am = exec_index_am_oid();
	ListCell   *lc;

	if (!OidIsValid(relid) || !compat_owns_relation(relid, GetUserId()) ||
		get_rel_relkind(relid) != RELKIND_RELATION)
		return;					/* the command itself reports that */
	foreach(lc, indexes_of(relid))
	{
		Oid			index = lfirst_oid(lc);

		if (exec_relation_am(index) != index_am || !index_is_unique(index))
			continue;
		LockRelationOid(index, AccessExclusiveLock);
		index_keep_options(index, BTREE_AM_OID);
		index_convert(index, BTREE_AM_OID, true);
	}
}

/* Could any of the commands concern us?  (For most ALTER TABLEs: no.) */
static bool
alter_is_relevant(const AlterTableStmt *stmt)
{
	ListCell   *lc;

	if (stmt->objtype != OBJECT_TABLE && stmt->objtype != OBJECT_MATVIEW &&
		stmt->objtype != OBJECT_FOREIGN_TABLE && stmt->objtype != OBJECT_TYPE)
		return false;
	foreach(lc, stmt->cmds)
		switch (lfirst_node(AlterTableCmd, lc)->subtype)
		{
			case AT_AddColumn:
			case AT_AddConstraint:
			case AT_AttachPartition:
			case AT_SetAccessMethod:
				return true;
			default:
				if (compat_recreates_indexes(lfirst_node(AlterTableCmd, lc)->subtype))
					return true;
				break;
		}
	return false;
}

static void
prepare_command(AlterFollowUp *follow_up, AlterTableStmt *stmt, AlterTableCmd *cmd, Oid relid,
				LOCKMODE lockmode)
{
	if (compat_recreates_indexes(cmd->subtype) && follow_up->recreated == NIL)
		remember_recreated(follow_up, stmt, cmd, relid, lockmode);
	else if (cmd->subtype == AT_AddConstraint && IsA(cmd->def, Constraint) &&
			 castNode(Constraint, cmd->def)->indexname != NULL)
		lend_index(follow_up, stmt, relid, castNode(Constraint, cmd->def));
	else if (cmd->subtype == AT_AddConstraint && IsA(cmd->def, Constraint) &&
			 castNode(Constraint, cmd->def)->contype == CONSTR_EXCLUSION)
		refuse_exclusion(castNode(Constraint, cmd->def)->access_method);
	else if (cmd->subtype == AT_AttachPartition)
		prepare_partition(castNode(PartitionCmd, cmd->def));
}

AlterFollowUp *
constraint_before_alter(AlterTableStmt *stmt)
{
	AlterFollowUp *follow_up;
	TableTraits before;
	TableTraits after;
	LOCKMODE	lockmode;
	Oid			relid;
	ListCell   *lc;

	if (!alter_is_relevant(stmt) || !OidIsValid(exec_table_am_oid()) ||
		!OidIsValid(exec_index_am_oid()))
		return NULL;
	lockmode = AlterTableGetLockLevel(stmt->cmds);
	relid = AlterTableLookupRelation(stmt, lockmode);
	if (!OidIsValid(relid) || !table_traits(relid, &before))
		return NULL;
	if (before.relkind == RELKIND_FOREIGN_TABLE || before.relkind == RELKIND_COMPOSITE_TYPE)
	{
		/* a table that inherits from a foreign table, or is of that type, can be ours */
		follow_up = palloc0(sizeof(AlterFollowUp));
		foreach(lc, stmt->cmds)
			if (compat_recreates_indexes(lfirst_node(AlterTableCmd, lc)->subtype))
				prepare_command(follow_up, stmt, lfirst_node(AlterTableCmd, lc), relid, lockmode);
		return follow_up;
	}
	if (before.relkind != RELKIND_RELATION && before.relkind != RELKIND_PARTITIONED_TABLE &&
		before.relkind != RELKIND_MATVIEW)
		return NULL;
	if (before.persistence == RELPERSISTENCE_TEMP)
		temporary_before_alter(relid, stmt);

	after = before;
	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		/* (DEFAULT is not known before 17; for a partitioned table it means none) */
		if (cmd->subtype == AT_SetAccessMethod &&
			(cmd->name != NULL || before.relkind != RELKIND_PARTITIONED_TABLE))
			after.am = get_table_am_oid(cmd->name ? cmd->name : default_table_access_method, false);
	}
	if (after.am != before.am && after.am == exec_table_am_oid() &&
		before.relkind == RELKIND_RELATION)
		refuse_conversion(relid);
	follow_up = palloc0(sizeof(AlterFollowUp));
	fix_new_constraints(stmt, relid, &after);
	foreach(lc, stmt->cmds)
		prepare_command(follow_up, stmt, lfirst_node(AlterTableCmd, lc), relid, lockmode);
	if (after.am != before.am && before.relkind != RELKIND_PARTITIONED_TABLE)
		retype_indexes(follow_up, stmt, relid, &after);
	return follow_up;
}

/* Converts indexes that are btrees, or were made again as btrees */
static void
convert_remembered(const List *remembered)
{
	Oid			index_am = exec_index_am_oid();
	ListCell   *lc;

	foreach(lc, remembered)
	{
		Recreated  *r = lfirst(lc);
		Oid			constraint = get_relation_constraint_oid(r->relid, r->constraint, true);
		Oid			index = OidIsValid(constraint) ? get_constraint_index(constraint) : InvalidOid;
		bool		convert;

		if (!OidIsValid(index) || !same_columns(index_columns(index), r->columns))
			continue;			/* it went with a column; another one may have its name */
		convert = exec_relation_am(index) == BTREE_AM_OID;
		if (convert && (exec_relation_am(r->relid) != exec_table_am_oid() ||
						!index_types_fit(index)))
			continue;
		if (r->options != (Datum) 0 && (convert || exec_relation_am(index) == index_am))
			index_set_options(index, r->options);
		if (convert)
			index_convert(index, index_am, true);
		else
			indexam_check_placement(index); /* it was built without these options */
	}
}

void
constraint_after_alter(AlterFollowUp *follow_up)
{
	ListCell   *lc;
	ListCell   *lc2;

	if (follow_up == NULL)
		return;
	if (follow_up->recreated || follow_up->to_sofort || OidIsValid(follow_up->lent) ||
		follow_up->retyped)
		CommandCounterIncrement();
	convert_remembered(follow_up->recreated);
	convert_remembered(follow_up->to_sofort);

	/* lent as a btree; contents untouched unless something was rewritten */
	if (OidIsValid(follow_up->lent) && exec_relation_am(follow_up->lent) == BTREE_AM_OID &&
		exec_relation_am(IndexGetRelation(follow_up->lent, false)) == exec_table_am_oid())
		index_convert(follow_up->lent, exec_index_am_oid(),
					  relation_number(follow_up->lent) != follow_up->lent_number);

	/* the rewrite has built them; if there was none after all, they are built now */
	forboth(lc, follow_up->retyped, lc2, follow_up->retyped_numbers)
	{
		if (relation_number(lfirst_oid(lc)) == lfirst_oid(lc2))
			index_rebuild(lfirst_oid(lc));
		if (exec_relation_am(lfirst_oid(lc)) == BTREE_AM_OID)
			indexam_drop_former_files(lfirst_oid(lc));
	}
}
