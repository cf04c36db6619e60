/*-------------------------------------------------------------------------
 *
 * table_callbacks.h
 *	  Table access method callbacks whose signatures differ between versions.
 *
 * Included by src/tableam/handler.c alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_COMPAT_TABLE_CALLBACKS_H
#define SOFORT_COMPAT_TABLE_CALLBACKS_H

#include "nodes/tidbitmap.h"
#include "sofort/tableam/callbacks.h"
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#endif

#if PG_VERSION_NUM < 170000
static bool
compat_scan_analyze_next_block(TableScanDesc scan, BlockNumber block,
							   BufferAccessStrategy strategy)
{
	tableam_analyze_block((SofortScan) scan, block);
	return true;
}
#else
/* The stream only chooses blocks: there is nothing in the file to read. */
static bool
compat_scan_analyze_next_block(TableScanDesc scan, ReadStream *stream)
{
	BufferAccessStrategy strategy;
	BlockNumber block = read_stream_next_block(stream, &strategy);

	if (block == InvalidBlockNumber)
		return false;
	tableam_analyze_block((SofortScan) scan, block);
	return true;
}
#endif

#if PG_VERSION_NUM < 180000
static bool
compat_scan_bitmap_next_block(TableScanDesc scan, TBMIterateResult *page)
{
	return tableam_bitmap_block((SofortScan) scan, page->blockno, page->offsets,
								page->ntuples);
}

static bool
compat_scan_bitmap_next_tuple(TableScanDesc scan, TBMIterateResult *page, TupleTableSlot *slot)
{
	return tableam_bitmap_tuple((SofortScan) scan, slot);
}

#define COMPAT_BITMAP_CALLBACKS \
	.scan_bitmap_next_block = compat_scan_bitmap_next_block, \
	.scan_bitmap_next_tuple = compat_scan_bitmap_next_tuple
#else
/* Since 18 the access method walks the bitmap and counts its pages. */
static bool
compat_next_bitmap_page(TableScanDesc scan, bool *recheck, uint64 *lossy_pages,
						uint64 *exact_pages)
{
	OffsetNumber offsets[TBM_MAX_TUPLES_PER_PAGE];
	TBMIterateResult page;
	int			noffsets = -1;

	CHECK_FOR_INTERRUPTS();
	if (!tbm_iterate(&scan->st.rs_tbmiterator, &page))
		return false;
	if (!page.lossy)
		noffsets = tbm_extract_page_tuple(&page, offsets, lengthof(offsets));
	*recheck = page.recheck;
	*(page.lossy ? lossy_pages : exact_pages) += 1;
	(void) tableam_bitmap_block((SofortScan) scan, page.blockno, offsets, noffsets);
	return true;
}

static bool
compat_scan_bitmap_next_tuple(TableScanDesc scan, TupleTableSlot *slot, bool *recheck,
							  uint64 *lossy_pages, uint64 *exact_pages)
{
	while (!tableam_bitmap_tuple((SofortScan) scan, slot))
		if (!compat_next_bitmap_page(scan, recheck, lossy_pages, exact_pages))
		{
			ExecClearTuple(slot);
			return false;
		}
	return true;
}

#define COMPAT_BITMAP_CALLBACKS \
	.scan_bitmap_next_tuple = compat_scan_bitmap_next_tuple
#endif

#endif							/* SOFORT_COMPAT_TABLE_CALLBACKS_H */
