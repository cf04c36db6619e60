/*-------------------------------------------------------------------------
 *
 * estimate.c
 *	  Sizes for the planner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_statistic.h"
#include "optimizer/plancat.h"
#include "sofort/tableam/callbacks.h"
#include "storage/bufpage.h"
#include "utils/syscache.h"

/*
 * The planner's cost model, and people's experience with it, is calibrated on heap pages.
 * So a table counts as large as the heap table that would hold its rows.
 */
#define HEAP_PAGE_BYTES			((int32) (BLCKSZ - SizeOfPageHeaderData))
#define LINE_POINTER_BYTES		((int32) sizeof(ItemIdData))
#define HEAP_ROW_BYTES_MAX		(BLCKSZ / 4)	/* what is wider is toasted */

/*
 * A table that was never analyzed and is nearly empty is planned as if it had this many
 * full pages, for the same reason as heap: plans are made before the data are loaded.  (If
 * it has children: as if its own pages were full.)
 */
#define ASSUMED_PAGES			10

#define SAMPLE_BLOCKS			16

/* Number of rows that are not ended, extrapolated from a few blocks. */
static double
sampled_rows(StoreDesc *store, BlockNumber nblocks)
{
	BlockNumber step = Max(nblocks / SAMPLE_BLOCKS, 1);
	double		looked = 0;
	double		live = 0;

	for (BlockNumber b = 0; b < nblocks; b += step)
	{
		looked += (double) store_capacity(b + 1) - (double) store_capacity(b);
		for (int i = 0; i < SOFORT_BLOCK_ROWS; i++)
		{
			RowRef		ref;

			if (!store_locate(store, (uint64) b * SOFORT_BLOCK_ROWS + i, &ref))
				break;
			if (begin_is_of_version(word_read(&ref.words->begin)) &&
				WORD_TAG(word_read(&ref.words->end)) != WORD_TAG_STAMP)
				live++;
		}
	}
	return looked == 0 ? 0 : live * (double) store_capacity(nblocks) / looked;
}

/* How many rows insertions can put into these blocks: a fill factor leaves some row ids out. */
static double
filled_capacity(StoreDesc *store, BlockNumber nblocks)
{
	double		rows = (double) store_capacity(nblocks);
	const StoreHeader *h = store->header;

	/* (both are decided together, before there is a block) */
	return nblocks == 0 || h->tid_fill == 0 ? rows : rows * h->tid_fill / h->tid_rows;
}

/*
 * Does pg_class still describe the table?  As for heap, reltuples counts while the table
 * has as many blocks as it had then.  (0 pages and some rows were set by hand.)
 */
static bool
statistics_stand(Relation rel, StoreDesc *store)
{
	BlockNumber relpages = (BlockNumber) rel->rd_rel->relpages;

	return rel->rd_rel->reltuples > 0 && (relpages == 0 || relpages == store_tid_blocks(store));
}

/* The fraction of a column's values that are NULL; 0 if it was never analyzed. */
static float4
null_fraction(Relation rel, AttrNumber attnum)
{
	HeapTuple	statistics = SearchSysCache3(STATRELATTINH,
											 ObjectIdGetDatum(RelationGetRelid(rel)),
											 Int16GetDatum(attnum), BoolGetDatum(false));
	float4		fraction;

	if (!HeapTupleIsValid(statistics))
		return 0;
	fraction = ((Form_pg_statistic) GETSTRUCT(statistics))->stanullfrac;
	ReleaseSysCache(statistics);
	return fraction;
}

/*
 * Bytes of a row on heap, header included, according to the statistics.  The average width
 * of a column is that of its values that are not NULL.  These are aligned, except short
 * ones of variable length; NULLs take a bitmap instead.
 */
static int32
heap_row_bytes(Relation rel, int32 *attr_widths)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int32	   *widths = attr_widths ? attr_widths : palloc0((desc->natts + 1) * sizeof(int32));
	double		data = 0;
	int			header = SizeofHeapTupleHeader;

	(void) get_rel_data_width(rel, widths);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int32		width = widths[att->attnum];
		double		nulls;
		double		aligned = data;

		if (att->attisdropped)
			continue;
		nulls = att->attnotnull ? 0 : null_fraction(rel, att->attnum);
		if (nulls > 0)
			header = SizeofHeapTupleHeader + BITMAPLEN(desc->natts);
		if (att->attlen > 0 || width > VARATT_SHORT_MAX)
			aligned = (double) att_align_nominal((Size) ceil(data), att->attalign);
		data += (1 - nulls) * (aligned - data + width);
	}
	if (widths != attr_widths)
		pfree(widths);			/* recovery workers call this, too, and live long */
	return (int32) Min(MAXALIGN(header) + data, HEAP_ROW_BYTES_MAX);
}

/*
 * Rows: those of pg_class, or those that the store has counted, which are the committed
 * ones.  If many row ids are not accounted for (rows of open transactions, such as our own,
 * or free ones), a few blocks are looked at.  Pages: those of a heap table, see above.
 */
void
tableam_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
					  double *allvisfrac)
{
	StoreDesc  *store = store_open(rel);
	BlockNumber nblocks = store_nblocks(store);
	int32		width = heap_row_bytes(rel, attr_widths);
	uint64		live;
	uint64		dead;
	double		rows;
	double		npages;

	store_row_counts(store, &live, &dead);
	rows = (double) live;
	if (rows + (double) dead < filled_capacity(store, nblocks) / 2)
		rows = sampled_rows(store, nblocks);
	npages = ceil((rows + (double) dead) /
				  (HEAP_PAGE_BYTES / (MAXALIGN(width) + LINE_POINTER_BYTES)));

	if (statistics_stand(rel, store))
		rows = rel->rd_rel->reltuples;
	else if (npages < ASSUMED_PAGES && rel->rd_rel->reltuples < 0)
	{
		if (!rel->rd_rel->relhassubclass)
			npages = ASSUMED_PAGES;
		/* full ones (not aligned, as heap's own estimate) */
		width = get_rel_data_width(rel, attr_widths) + (int32) MAXALIGN(SizeofHeapTupleHeader);
		rows = npages * (HEAP_PAGE_BYTES / (Min(width, HEAP_ROW_BYTES_MAX) + LINE_POINTER_BYTES));
	}

	*pages = (BlockNumber) Min(npages, MaxBlockNumber);
	*tuples = rint(rows);

	/*
	 * Settled rows are what all-visible pages are on heap.  That an index-only scan
	 * looks at their blocks is in the costs of indexes.
	 */
	*allvisfrac = live == 0 ? 0 : Min(1, (double) store_settled_rows(store) / (double) (live + dead));
}
