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
#include "catalog/pg_attribute.h"
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

/* Has an attribute values in the table?  Not if dropped, nor if virtual (18). */
static inline bool
compat_is_stored(Form_pg_attribute att)
{
#if PG_VERSION_NUM < 180000
	return !att->attisdropped;
#else
	return !att->attisdropped && att->attgenerated != ATTRIBUTE_GENERATED_VIRTUAL;
#endif
}

#endif							/* SOFORT_COMPAT_RELCACHE_H */
