/*-------------------------------------------------------------------------
 *
 * horizon.h
 *	  The oldest transaction that some snapshot may count as running.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_HORIZON_H
#define SOFORT_COMPAT_HORIZON_H

#include "postgres.h"

/*
 * GetOldestNonRemovableTransactionId() of an ordinary table of this database, without
 * one.  (Of no relation it tells that of shared catalogs: it waits for transactions
 * of all databases, and for the catalogs that logical replication slots need.)  Of
 * all databases for a process without one.
 */
extern TransactionId compat_database_horizon(void);

#endif							/* SOFORT_COMPAT_HORIZON_H */
