/*-------------------------------------------------------------------------
 *
 * dictionary.c
 *	  sofort.set_dictionary_placement().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "sofort/exec/exec.h"
#include "sofort/pmem/pool.h"
#include "sofort/txn/kept.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "monitor_internal.h"

PG_FUNCTION_INFO_V1(sofort_set_dictionary_placement);

static DictPlacement
placement_of(const char *name)
{
	static const DictPlacement all[] = {DICT_DRAM, DICT_PMEM, DICT_HYBRID};
	int			i;

	for (i = 0; i < (int) lengthof(all); i++)
	{
		if (pg_strcasecmp(name, dictionary_placement_name(all[i])) == 0)
			return all[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid placement \"%s\"", name),
			 errdetail("Valid values are \"dram\", \"pmem\" and \"hybrid\".")));
}

/*
 * Writers go on, except those that need the dictionary at the moment when it gets another
 * index; VACUUM and DDL wait.
 */
Datum
sofort_set_dictionary_placement(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	const char *column = NameStr(*PG_GETARG_NAME(1));
	DictPlacement placement = placement_of(text_to_cstring(PG_GETARG_TEXT_PP(2)));
	Relation	rel;
	AttrNumber	attnum;

	if (RecoveryInProgress())
		pool_require();
	if (txn_is_kept())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute %s in a transaction that is kept",
						"sofort.set_dictionary_placement()")));
	rel = monitor_open_own_relation(relid, ShareUpdateExclusiveLock);
	if ((rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW) ||
		rel->rd_rel->relam != exec_table_am_oid())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a sofort table", RelationGetRelationName(rel)),
				 errhint("Only tables and materialized views with access method \"sofort\" have dictionaries.")));
	attnum = get_attnum(relid, column);
	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", column,
						RelationGetRelationName(rel))));
	if (!store_place_dictionary(store_open(rel),
								TupleDescAttr(RelationGetDescr(rel), attnum - 1), placement))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("column \"%s\" of relation \"%s\" is not stored yet", column,
						RelationGetRelationName(rel)),
				 errhint("A column that was added is stored with the first row that is inserted or updated after that.")));
	relation_close(rel, NoLock);
	PG_RETURN_VOID();
}
