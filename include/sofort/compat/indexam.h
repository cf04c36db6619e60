/*-------------------------------------------------------------------------
 *
 * indexam.h
 *	  What differs between PostgreSQL versions for the index access method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_INDEXAM_H
#define SOFORT_COMPAT_INDEXAM_H

#include <langinfo.h>

#include "postgres.h"
#include "access/amapi.h"
#include "access/genam.h"
#include "access/relscan.h"
#include "catalog/pg_collation.h"
#include "lib/dshash.h"
#include "nodes/nodes.h"
#include "pgstat.h"
#include "sofort/compat/compat.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/pg_locale.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"

#if PG_VERSION_NUM < 160000
#define RelFileNumberIsValid(n) OidIsValid(n)
#endif

/* As pg_collation_actual_version(oid): also of the default collation */
extern Datum compat_collation_actual_version(FunctionCallInfo fcinfo);

/* Fills in what only newer versions know; the rest must be there. */
extern void compat_complete_index_routine(IndexAmRoutine *am);

/*
 * btcostestimate() for an index that reads all entries between its bounds, which the first
 * clauses make, once.  Btree skips some since 18, and before 17 it scanned the range for each
 * element of an array.
 */
extern void compat_btcostestimate(struct PlannerInfo *root, struct IndexPath *path,
								  struct List *bounding, double loop_count, Cost *startup_cost,
								  Cost *total_cost, Selectivity *selectivity,
								  double *correlation, double *pages);

/* dshash_parameters for keys that are compared and copied as bytes */
#if PG_VERSION_NUM < 170000
#define COMPAT_DSHASH_BINARY_KEY \
	.compare_function = dshash_memcmp, .hash_function = dshash_memhash
#else
#define COMPAT_DSHASH_BINARY_KEY \
	.compare_function = dshash_memcmp, .hash_function = dshash_memhash, \
	.copy_function = dshash_memcpy
#endif

static inline bool
compat_file_exists(const RelFileLocator *locator)
{
	SMgrRelation reln = smgropen(*locator, INVALID_PROC_NUMBER);
	bool		exists = smgrexists(reln, MAIN_FORKNUM);

	smgrclose(reln);
	return exists;
}

/*
 * Does a deterministic collation compare text as memcmp does?  True for C and
 * POSIX, and for those of the C library that have no rules: there strcoll() is
 * strcmp() (C.UTF-8 of glibc).
 */
static inline bool
compat_collation_is_bytewise(Oid collation)
{
	pg_locale_t locale;

	if (!OidIsValid(collation))
		return false;
#if PG_VERSION_NUM < 180000
	if (lc_collate_is_c(collation))
		return true;
	locale = pg_newlocale_from_collation(collation);
#else
	locale = pg_newlocale_from_collation(collation);
	if (locale->collate_is_c)
		return true;
#endif
	if (locale != NULL && (locale->provider != COLLPROVIDER_LIBC || !locale->deterministic))
		return false;
#ifdef __GLIBC__
	{
		const char *rules = locale != NULL ?
			nl_langinfo_l(_NL_COLLATE_NRULES, locale->info.lt) :
			nl_langinfo(_NL_COLLATE_NRULES);

		return (uint32) (uintptr_t) rules == 0;
	}
#else
	return false;
#endif
}

/* Expressions of indexes must not depend on the caller's search_path. */
static inline void
compat_restrict_search_path(void)
{
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
}

/* The next value of a datum sort, palloc'd. */
static inline bool
compat_tuplesort_next_datum(Tuplesortstate *sort, Datum *value, bool *isnull)
{
#if PG_VERSION_NUM < 160000
	return tuplesort_getdatum(sort, true, value, isnull, NULL);
#else
	return tuplesort_getdatum(sort, true, true, value, isnull, NULL);
#endif
}

/* Has this transaction given the relation a new file? */
static inline bool
compat_has_new_file(Relation rel)
{
#if PG_VERSION_NUM < 160000
	return rel->rd_newRelfilenodeSubid != InvalidSubTransactionId;
#else
	return rel->rd_newRelfilelocatorSubid != InvalidSubTransactionId;
#endif
}

/* Parameters of amestimateparallelscan */
#if PG_VERSION_NUM < 170000
#define COMPAT_ESTIMATE_PARALLEL_SCAN_ARGS void
#elif PG_VERSION_NUM < 180000
#define COMPAT_ESTIMATE_PARALLEL_SCAN_ARGS int nkeys, int norderbys
#else
#define COMPAT_ESTIMATE_PARALLEL_SCAN_ARGS Relation index, int nkeys, int norderbys
#endif

/* Our part of what the processes of a parallel scan share; NULL: not parallel */
static inline void *
compat_parallel_scan(IndexScanDesc scan)
{
	if (scan->parallel_scan == NULL)
		return NULL;
#if PG_VERSION_NUM < 180000
	return OffsetToPointer(scan->parallel_scan, scan->parallel_scan->ps_offset);
#else
	return OffsetToPointer(scan->parallel_scan, scan->parallel_scan->ps_offset_am);
#endif
}

static inline void
compat_count_index_scan(IndexScanDesc scan)
{
	pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
}

#endif							/* SOFORT_COMPAT_INDEXAM_H */
