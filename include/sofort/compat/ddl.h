/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  What differs between PostgreSQL versions in DDL and executor start-up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_DDL_H
#define SOFORT_COMPAT_DDL_H

#include "postgres.h"
#include "access/tupdesc.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "utils/acl.h"

/*
 * Before 18 INSERT ... ON CONFLICT refuses a table that has a unique index of
 * another access method than btree, unless its indexes are open already.
 */
#define SOFORT_PREOPEN_ARBITERS (PG_VERSION_NUM < 180000)

/*
 * Before 18 the executor itself prefetches the pages of a bitmap scan from the
 * main fork.
 */
#define SOFORT_EXECUTOR_PREFETCHES (PG_VERSION_NUM < 180000)

/* ... and ON CONFLICT into a partition cannot be helped that way. */
#define SOFORT_LEAF_UNIQUE_NEEDS_BTREE (PG_VERSION_NUM < 180000)

/* Partitioned tables may name an access method for their partitions. */
#define SOFORT_PARTITIONED_HAS_AM (PG_VERSION_NUM >= 170000)

#if PG_VERSION_NUM < 160000
#define compat_owns_relation(relid, role) pg_class_ownercheck(relid, role)
#define compat_owns_database(dboid, role) pg_database_ownercheck(dboid, role)
#define compat_may_execute(function) \
	(pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK)
#else
#define compat_owns_relation(relid, role) object_ownercheck(RelationRelationId, relid, role)
#define compat_owns_database(dboid, role) object_ownercheck(DatabaseRelationId, dboid, role)
#define compat_may_execute(function) \
	(object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK)
#endif

#if PG_VERSION_NUM < 170000
#define compat_reindex_index(index, persistence, params) \
	reindex_index(index, false, persistence, params)
#define compat_identity_sequence(rel, attnum) \
	getIdentitySequence(RelationGetRelid(rel), attnum, true)
#define COMPAT_F_EMIT_MESSAGE_TEXT F_PG_LOGICAL_EMIT_MESSAGE_BOOL_TEXT_TEXT
#define COMPAT_F_EMIT_MESSAGE_BYTEA F_PG_LOGICAL_EMIT_MESSAGE_BOOL_TEXT_BYTEA
#else
#define compat_reindex_index(index, persistence, params) \
	reindex_index(NULL, index, false, persistence, params)
#define compat_identity_sequence(rel, attnum) getIdentitySequence(rel, attnum, true)
#define COMPAT_F_EMIT_MESSAGE_TEXT F_PG_LOGICAL_EMIT_MESSAGE_BOOL_TEXT_TEXT_BOOL
#define COMPAT_F_EMIT_MESSAGE_BYTEA F_PG_LOGICAL_EMIT_MESSAGE_BOOL_TEXT_BYTEA_BOOL
#endif

/* Parameter of ExecutorRun before 18 */
#if PG_VERSION_NUM < 180000
#define COMPAT_EXECUTE_ONCE , bool execute_once
#define COMPAT_PASS_EXECUTE_ONCE , execute_once
#else
#define COMPAT_EXECUTE_ONCE
#define COMPAT_PASS_EXECUTE_ONCE
#endif

/* Since 18 the expressions by which a query groups are an entry of its range table. */
#if PG_VERSION_NUM < 180000
#define compat_group_expressions(rte) NIL
#else
#define compat_group_expressions(rte) ((rte)->rtekind == RTE_GROUP ? (rte)->groupexprs : NIL)
#endif

#if PG_VERSION_NUM < 180000
#define compat_pathkey_is_ascending(pathkey) ((pathkey)->pk_strategy == BTLessStrategyNumber)
#else
#define compat_pathkey_is_ascending(pathkey) ((pathkey)->pk_cmptype == COMPARE_LT)
#endif

/* Does an Append or MergeAppend choose among its children when it runs, or is started? */
#if PG_VERSION_NUM < 180000
#define compat_chooses_children(plan) ((plan)->part_prune_info != NULL)
#else
#define compat_chooses_children(plan) ((plan)->part_prune_index >= 0)
#endif

/* ---- what standard_ExecutorStart() does ---- */

#if PG_VERSION_NUM < 160000
#define compat_check_permissions(stmt) ExecCheckRTPerms((stmt)->rtable, true)
#define compat_init_range_table(estate, stmt) ExecInitRangeTable(estate, (stmt)->rtable)
#elif PG_VERSION_NUM < 180000
#define compat_check_permissions(stmt) \
	ExecCheckPermissions((stmt)->rtable, (stmt)->permInfos, true)
#define compat_init_range_table(estate, stmt) \
	ExecInitRangeTable(estate, (stmt)->rtable, (stmt)->permInfos)
#else
#define compat_check_permissions(stmt) \
	ExecCheckPermissions((stmt)->rtable, (stmt)->permInfos, true)
#define compat_init_range_table(estate, stmt) \
	ExecInitRangeTable(estate, (stmt)->rtable, (stmt)->permInfos, \
					   bms_copy((stmt)->unprunableRelids))
#endif

#if PG_VERSION_NUM < 180000
#define compat_has_generated(constr) ((constr)->has_generated_stored)
#else
#define compat_has_generated(constr) \
	((constr)->has_generated_stored || (constr)->has_generated_virtual)
#endif

/* Does this command drop constraint indexes of a column, and make them again? */
static inline bool
compat_recreates_indexes(AlterTableType command)
{
#if PG_VERSION_NUM >= 170000
	if (command == AT_SetExpression)
		return true;
#endif
	return command == AT_AlterColumnType;
}

/* Is there a NOT NULL constraint that old rows may not satisfy (NOT VALID)? */
static inline bool
compat_has_invalid_not_null(TupleDesc desc)
{
#if PG_VERSION_NUM >= 180000
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescCompactAttr(desc, i)->attnullability == ATTNULLABLE_INVALID)
			return true;
	}
#endif
	return false;
}

/* Columns that a plan's target gets new values for (UPDATE) */
#if PG_VERSION_NUM < 160000
#define compat_updated_columns(plan, rte) ((rte)->updatedCols)
#else
#define compat_updated_columns(plan, rte) \
	((rte)->perminfoindex == 0 ? NULL : \
	 getRTEPermissionInfo((plan)->permInfos, rte)->updatedCols)
#endif

#endif							/* SOFORT_COMPAT_DDL_H */
