/*-------------------------------------------------------------------------
 *
 * horizon.c
 *	  The horizon of ordinary tables, without one of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/compat/horizon.h"
#include "storage/procarray.h"
#include "utils/rel.h"

/*
 * What GlobalVisHorizonKindForRel() of 15, 17 and 18 looks at, of a permanent table
 * that was not made by the current transaction and is no catalog.
 */
TransactionId
compat_database_horizon(void)
{
	static FormData_pg_class form = {
		.relkind = RELKIND_RELATION,
		.relpersistence = RELPERSISTENCE_PERMANENT,
	};
	static RelationData rel = {
		.rd_rel = &form,
		.rd_id = OID_MAX,
	};

	return GetOldestNonRemovableTransactionId(&rel);
}
