/*-------------------------------------------------------------------------
 *
 * exec.h
 *	  What sofort changes in PostgreSQL's utility commands and executor.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_EXEC_EXEC_H
#define SOFORT_EXEC_EXEC_H

#include "postgres.h"
#include "sofort/txn/kept.h"
#include "utils/guc.h"

typedef enum ExecDefaultIndex
{
	EXEC_DEFAULT_INDEX_SOFORT,
	EXEC_DEFAULT_INDEX_BTREE
} ExecDefaultIndex;

/*
 * sofort.default_index (PGC_USERSET): what PRIMARY KEY and UNIQUE on a sofort
 * table become.  Defined in src/exec/exec.c.
 */
extern int	sofort_default_index;

/* sofort.direct_execution (PGC_USERSET): see src/exec/direct.c */
extern bool sofort_direct_execution;

/*
 * From _PG_init, only while shared_preload_libraries are loaded, after
 * txn_init() (its PRE_COMMIT callback must run before txn's: callbacks run last
 * in, first out).  Defines both settings; installs the hooks, each of
 * which calls the one that was there before.
 */
extern void exec_init(void);

/* OIDs of the access methods in this database; InvalidOid without extension. */
extern Oid	exec_table_am_oid(void);
extern Oid	exec_index_am_oid(void);

/*
 * This transaction goes on with a kept one: locks the tables in which that has changed or
 * locked rows, without waiting (55P03), and waits until their sofort indexes are complete.
 * False: somebody else was faster.
 */
extern bool continuation_resume(const TxnKeptInfo *info);

#endif							/* SOFORT_EXEC_EXEC_H */
