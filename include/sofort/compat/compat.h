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

/* RelFileNode was renamed to RelFileLocator in 16. */
#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
typedef RelFileNode RelFileLocator;
#define locator_spc(l)		((l)->spcNode)
#define locator_db(l)		((l)->dbNode)
#define locator_number(l)	((l)->relNode)
#define relation_locator(rel) (&(rel)->rd_node)
#else
#include "storage/relfilelocator.h"
#define locator_spc(l)		((l)->spcOid)
#define locator_db(l)		((l)->dbOid)
#define locator_number(l)	((l)->relNumber)
#define relation_locator(rel) (&(rel)->rd_locator)
#endif

/* Index of this process in the array of PGPROCs; backends come first. */
#if PG_VERSION_NUM < 170000
#define my_proc_number()	(MyProc->pgprocno)
#else
#define my_proc_number()	(MyProcNumber)
#endif

/* ShmemVariableCache was renamed in 17. */
#if PG_VERSION_NUM < 170000
#define oldest_clog_xid()	(ShmemVariableCache->oldestClogXid)
#else
#define oldest_clog_xid()	(TransamVariables->oldestClogXid)
#endif

/* Attributes that any index of a relation refers to (RelationGetIndexAttrBitmap) */
#if PG_VERSION_NUM < 160000
#define SOFORT_INDEXED_ATTRS	INDEX_ATTR_BITMAP_ALL
#else
#define SOFORT_INDEXED_ATTRS	INDEX_ATTR_BITMAP_HOT_BLOCKING
#endif

#endif							/* SOFORT_COMPAT_COMPAT_H */
