/*-------------------------------------------------------------------------
 *
 * selfuncs.h
 *	  Estimates that depend on the version of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_SELFUNCS_H
#define SOFORT_COMPAT_SELFUNCS_H

#include "postgres.h"
#include "utils/selfuncs.h"

static inline double
compat_array_length(PlannerInfo *root, Node *array)
{
#if PG_VERSION_NUM >= 170000
	return estimate_array_length(root, array);
#else
	return estimate_array_length(array);
#endif
}

#endif							/* SOFORT_COMPAT_SELFUNCS_H */
