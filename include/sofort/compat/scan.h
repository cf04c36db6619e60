/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  Index scans and VACUUM's delay, in PostgreSQL 15..18.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_SCAN_H
#define SOFORT_COMPAT_SCAN_H

#include "postgres.h"
#include "access/genam.h"
#include "commands/vacuum.h"

/* A scan without order-by operators; nkeys as for index_rescan() */
static inline IndexScanDesc
compat_index_beginscan(Relation rel, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM < 180000
	return index_beginscan(rel, index, snapshot, nkeys, 0);
#else
	return index_beginscan(rel, index, snapshot, NULL, nkeys, 0);
#endif
}

static inline void
compat_vacuum_delay_point(void)
{
#if PG_VERSION_NUM < 180000
	vacuum_delay_point();
#else
	vacuum_delay_point(false);
#endif
}

#endif							/* SOFORT_COMPAT_SCAN_H */
