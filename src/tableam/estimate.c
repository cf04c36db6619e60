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

static double
assumed_rows(Relation rel, int32 *attr_widths)
{
	int32		width = get_rel_data_width(rel, attr_widths) + ASSUMED_ROW_OVERHEAD;

	return (double) ASSUMED_BLOCKS * (ASSUMED_BLOCK_BYTES / width);
}

/*
 * Blocks are virtual blocks of at most 256 rows.  Rows: counted, where the
 * store knows; else the density that VACUUM or ANALYZE found last.
 */
void
tableam_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
					  double *allvisfrac)
{
	StoreDesc  *store = store_open(rel);
	BlockNumber nblocks = store_nblocks(store);
	double		old_tuples = rel->rd_rel->reltuples;
	BlockNumber old_pages = (BlockNumber) rel->rd_rel->relpages;
	StoreStats	stats;
	double		rows;

	/* no visibility map: an index-only scan always looks at the row */
	*allvisfrac = 0;

	store_stats(store->header, &stats);
	rows = (double) stats.live;
	if (rows == 0 && nblocks > 0 && old_tuples > 0 && old_pages > 0)
		rows = old_tuples / old_pages * nblocks;
	if (nblocks < ASSUMED_BLOCKS && old_tuples < 0 && !rel->rd_rel->relhassubclass)
	{
		if (rows == 0)
			rows = assumed_rows(rel, attr_widths);
		nblocks = ASSUMED_BLOCKS;
	}

	*pages = nblocks;
	*tuples = rint(rows);
}
