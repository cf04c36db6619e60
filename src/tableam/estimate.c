/*-------------------------------------------------------------------------
 *
 * estimate.c
 *	  Sizes for the planner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "optimizer/plancat.h"
#include "sofort/tableam/callbacks.h"

/*
 * A table that was never analyzed and is nearly empty now is planned as if it
 * had this many blocks' worth of a heap's rows, for the reason that heap gives:
 * plans are made before the data are loaded.
 */
#define ASSUMED_BLOCKS			10
#define ASSUMED_BLOCK_BYTES		8168
#define ASSUMED_ROW_OVERHEAD	28

#define SMALL_BLOCKS			5	/* of 8, 16, 32, 64, 128 rows */
#define SAMPLE_BLOCKS			16

static double
assumed_rows(Relation rel, int32 *attr_widths)
{
	int32		width = get_rel_data_width(rel, attr_widths) + ASSUMED_ROW_OVERHEAD;

	return (double) ASSUMED_BLOCKS * (ASSUMED_BLOCK_BYTES / width);
}

/* Row ids with storage in the first n blocks: 8, 16, 32, 64, 128, 256, 256 ... */
static double
capacity(BlockNumber n)
{
	double		rows = 0;

	for (BlockNumber b = 0; b < Min(n, SMALL_BLOCKS); b++)
		rows += SOFORT_FIRST_BLOCK_ROWS << b;
	return n <= SMALL_BLOCKS ? rows : rows + (double) (n - SMALL_BLOCKS) * SOFORT_BLOCK_ROWS;
}

/* Rows that are not ended, extrapolated from a few blocks. */
static double
sampled_rows(StoreDesc *store, BlockNumber nblocks)
{
	BlockNumber step = Max(nblocks / SAMPLE_BLOCKS, 1);
	double		looked = 0;
	double		live = 0;

	for (BlockNumber b = 0; b < nblocks; b += step)
	{
		looked += capacity(b + 1) - capacity(b);
		for (int i = 0; i < SOFORT_BLOCK_ROWS; i++)
		{
			RowRef		ref;
			int			begin;

			if (!store_locate(store, (uint64) b * SOFORT_BLOCK_ROWS + i, &ref))
				break;
			begin = WORD_TAG(word_read(&ref.words->begin));
			if (begin != WORD_TAG_EMPTY && begin != WORD_TAG_ABORTED &&
				WORD_TAG(word_read(&ref.words->end)) != WORD_TAG_STAMP)
				live++;
		}
	}
	return looked == 0 ? 0 : live * capacity(nblocks) / looked;
}

/*
 * Blocks are virtual blocks of at most 256 rows.  Rows: those that the store
 * has counted, which are the committed ones.  Where many row ids are not
 * accounted for (rows of open transactions, such as our own, or free ones), a
 * few blocks are looked at.
 */
void
tableam_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
					  double *allvisfrac)
{
	StoreDesc  *store = store_open(rel);
	BlockNumber nblocks = store_nblocks(store);
	uint64		live;
	uint64		dead;
	double		rows;

	/* no visibility map: an index-only scan always looks at the row */
	*allvisfrac = 0;

	store_row_counts(store, &live, &dead);
	rows = (double) live;
	if (rows + (double) dead < capacity(nblocks) / 2)
		rows = sampled_rows(store, nblocks);

	if (nblocks < ASSUMED_BLOCKS && rel->rd_rel->reltuples < 0 &&
		!rel->rd_rel->relhassubclass)
	{
		if (rows == 0)
			rows = assumed_rows(rel, attr_widths);
		nblocks = ASSUMED_BLOCKS;
	}

	*pages = nblocks;
	*tuples = rint(rows);
}
