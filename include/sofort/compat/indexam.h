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
#include "access/genam.h"
#include "access/relscan.h"
#include "catalog/pg_collation.h"
#include "pgstat.h"
#include "sofort/compat/compat.h"
#include "storage/smgr.h"
#include "utils/pg_locale.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"
#if PG_VERSION_NUM < 160000
#include "utils/relfilenodemap.h"
#define RelFileNumberIsValid(n) OidIsValid(n)
#define compat_relid_by_file(spc, number) RelidByRelfilenode(spc, number)
#else
#include "utils/relfilenumbermap.h"
#define compat_relid_by_file(spc, number) RelidByRelfilenumber(spc, number)
#endif

#if PG_VERSION_NUM < 170000
#define COMPAT_NO_BACKEND InvalidBackendId
#else
#define COMPAT_NO_BACKEND INVALID_PROC_NUMBER
#endif

static inline bool
compat_file_exists(const RelFileLocator *locator)
{
	SMgrRelation reln = smgropen(*locator, COMPAT_NO_BACKEND);
	bool		exists = smgrexists(reln, MAIN_FORKNUM);

	smgrclose(reln);
	return exists;
}

/*
 * Does a deterministic collation compare text as memcmp does?  True for C and
 * POSIX, and for those of the C library that have no rules: there strcoll() is
 * strcmp() (C.UTF-8 of glibc).
 */
#if PG_VERSION_NUM < 170000
static inline bool
compat_collation_is_bytewise(Oid collation)
{
	pg_locale_t locale;
	const char *rules;

	if (!OidIsValid(collation))
		return false;
	if (lc_collate_is_c(collation))
		return true;
#ifdef __GLIBC__
	locale = pg_newlocale_from_collation(collation);
	if (locale != NULL && (locale->provider != COLLPROVIDER_LIBC || !locale->deterministic))
		return false;
	rules = locale != NULL ? nl_langinfo_l(_NL_COLLATE_NRULES, locale->info.lt) :
		nl_langinfo(_NL_COLLATE_NRULES);
	return (uint32) (uintptr_t) rules == 0;
#else
	return false;
#endif
}
#else
static inline bool
compat_collation_is_bytewise(Oid collation)
{
	return OidIsValid(collation) && pg_newlocale_from_collation(collation)->collate_is_c;
}
#endif

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
