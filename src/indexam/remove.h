/*-------------------------------------------------------------------------
 *
 * remove.h
 *	  store_remove_entries(), see store.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_REMOVE_H
#define SOFORT_REMOVE_H

#include "sofort/store/store.h"

extern StoreRemoval index_remove_entries(Relation heap, StoreDesc *store, uint64 *rows, int *n);

#endif							/* SOFORT_REMOVE_H */
