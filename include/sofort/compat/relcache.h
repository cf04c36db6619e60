/*-------------------------------------------------------------------------
 *
 * relcache.h
 *	  What PostgreSQL 15..18 know about the indexes of a relation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_RELCACHE_H
#define SOFORT_COMPAT_RELCACHE_H

#include "postgres.h"
#include "nodes/bitmapset.h"
#include "utils/relcache.h"

/*
 * The columns that any index refers to, as RelationGetIndexAttrBitmap() gives
 * them, palloc'd.  Those of summarizing indexes (BRIN) are among them: heap
 * may leave them out, because its HOT chains stay within a page range.
 */
static inline Bitmapset *
compat_indexed_attrs(Relation rel)
{
#if PG_VERSION_NUM < 160000
	return RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_ALL);
#else
	return bms_join(RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_HOT_BLOCKING),
					RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_SUMMARIZED));
#endif
}

#endif							/* SOFORT_COMPAT_RELCACHE_H */
