/*-------------------------------------------------------------------------
 *
 * monitor_internal.h
 *	  What the files of src/monitor share.
 *
 * Nothing else calls them: the functions that they define for SQL are declared in
 * sofort--1.0.sql.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_MONITOR_INTERNAL_H
#define SOFORT_MONITOR_INTERNAL_H

#include "postgres.h"
#include "sofort/store/store.h"
#include "storage/lockdefs.h"

/*
 * Compares a table with one of its sofort indexes.  The caller holds ShareLock (or more) on
 * the table, so that no write is in progress but its own; report is called for each problem
 * found, as by store_verify().
 */
extern void monitor_verify_index(Relation rel, StoreDesc *store, Relation index,
								 StoreReport report, void *arg);

/*
 * May the current user see how this relation is stored and used?  True if he may SELECT
 * from it or read all statistics.
 */
extern bool monitor_may_see_relation(Oid relid);

/* Opens and locks a relation of the current user; raises an error if it is another's. */
extern Relation monitor_open_own_relation(Oid relid, LOCKMODE lockmode);

/* Reports space of the pool itself and of transactions to which nothing refers. */
extern void monitor_verify_pool_space(StoreReport report, void *arg);

#endif							/* SOFORT_MONITOR_INTERNAL_H */
