/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Everything that differs between PostgreSQL versions, nowhere else.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_COMPAT_H
#define SOFORT_COMPAT_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000 || (PG_VERSION_NUM >= 160000 && PG_VERSION_NUM < 170000)
#error "sofort supports PostgreSQL 15, 17 and 18"
#endif

/* Before 18 the attribute stands at the end, or is spelled out. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn		__attribute__((noreturn))
#endif

/* RelFileNode was renamed to RelFileLocator in 16. */
#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
typedef RelFileNode RelFileLocator;
#define locator_spc(l)		((l)->spcNode)
#define locator_db(l)		((l)->dbNode)
#define locator_number(l)	((l)->relNode)
#define locator_equal(a, b)	RelFileNodeEquals(*(a), *(b))
#define relation_locator(rel) (&(rel)->rd_node)
#define rd_firstRelfilelocatorSubid rd_firstRelfilenodeSubid
#else
#include "storage/relfilelocator.h"
#define locator_spc(l)		((l)->spcOid)
#define locator_db(l)		((l)->dbOid)
#define locator_number(l)	((l)->relNumber)
#define locator_equal(a, b)	RelFileLocatorEquals(*(a), *(b))
#define relation_locator(rel) (&(rel)->rd_locator)
#endif

/* Macros of variable-length values left postgres.h in 16. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Index of this process in the array of PGPROCs; backends come first.  Its transaction. */
#if PG_VERSION_NUM < 170000
#define my_proc_number()	(MyProc->pgprocno)
#define my_local_transaction_id() (MyProc->lxid)
#else
#define my_proc_number()	(MyProcNumber)
#define my_local_transaction_id() (MyProc->vxid.lxid)
#endif

/* Renamed in 17 */
#if PG_VERSION_NUM < 170000
#define TransamVariables	ShmemVariableCache
#define INVALID_PROC_NUMBER	InvalidBackendId
#define AmAutoVacuumWorkerProcess() IsAutoVacuumWorkerProcess()
#endif
#define oldest_clog_xid()	(TransamVariables->oldestClogXid)

#endif							/* SOFORT_COMPAT_COMPAT_H */
