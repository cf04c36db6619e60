/*-------------------------------------------------------------------------
 *
 * relcache.h
 *	  What PostgreSQL 15..18 know about a relation and its indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_RELCACHE_H
#define SOFORT_COMPAT_RELCACHE_H

#include "postgres.h"
#include "access/amapi.h"
#include "access/genam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "nodes/bitmapset.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"
#include "utils/relcache.h"

/* The relation that has this file */
#if PG_VERSION_NUM < 160000
#include "utils/relfilenodemap.h"
#define compat_relid_by_number(spc, number) RelidByRelfilenode(spc, number)
#else
#include "utils/relfilenumbermap.h"
#define compat_relid_by_number(spc, number) RelidByRelfilenumber(spc, number)
#endif

/*
 * The columns whose change needs entries in all indexes, as
 * RelationGetIndexAttrBitmap() gives them, palloc'd; and those of summarizing
 * indexes (BRIN), which PostgreSQL 15 does not tell apart.
 */
static inline Bitmapset *
compat_hot_blocking_attrs(Relation rel)
{
#if PG_VERSION_NUM < 160000
	return RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_ALL);
#else
	return RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_HOT_BLOCKING);
#endif
}

static inline Bitmapset *
compat_summarized_attrs(Relation rel)
{
#if PG_VERSION_NUM < 160000
	return NULL;
#else
	return RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_SUMMARIZED);
#endif
}

/* The columns that any index refers to */
static inline Bitmapset *
compat_indexed_attrs(Relation rel)
{
	return bms_join(compat_hot_blocking_attrs(rel), compat_summarized_attrs(rel));
}

/* Does an index of this access method describe ranges of blocks instead of rows? */
static inline bool
compat_am_summarizes(Oid am)
{
#if PG_VERSION_NUM < 160000
	return am == BRIN_AM_OID;
#else
	const IndexAmRoutine *routine = GetIndexAmRoutineByAmId(am, true);

	return routine != NULL && routine->amsummarizing;
#endif
}

/* Was the storage made in this very subtransaction, so that it goes if that is undone? */
static inline bool
compat_is_new_storage(Relation rel)
{
	SubTransactionId current = GetCurrentSubTransactionId();

#if PG_VERSION_NUM < 160000
	return rel->rd_createSubid == current || rel->rd_newRelfilenodeSubid == current;
#else
	return rel->rd_createSubid == current || rel->rd_newRelfilelocatorSubid == current;
#endif
}

/* After the last index_insert() with this IndexInfo */
static inline void
compat_index_insert_cleanup(Relation index, IndexInfo *info)
{
#if PG_VERSION_NUM >= 170000
	index_insert_cleanup(index, info);
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
