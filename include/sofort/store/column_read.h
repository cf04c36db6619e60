/*-------------------------------------------------------------------------
 *
 * column_read.h
 *	  Reading columns of whole blocks: for index builds, and for look-ups
 *	  without an index.
 *
 * The caller is inside an epoch, and its snapshot holds the horizon.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_STORE_COLUMN_READ_H
#define SOFORT_STORE_COLUMN_READ_H

#include "sofort/store/store.h"

typedef enum StoreValueState
{
	STORE_VALUE = 0,
	STORE_VALUE_NULL = 1,
	STORE_NO_ROW = 2			/* the row id is free, or its row was undone */
} StoreValueState;

/*
 * Attribute att (0-based) of all rows of a block, whoever may see them, as they
 * lie there: no chain is followed.  values and state have SOFORT_BLOCK_ROWS
 * elements.  Returns how many were filled; 0 if the block has no storage.  Values of
 * rows that are free or were undone may be reported as STORE_VALUE, with any contents
 * that the type's functions can read.  A root that is not dead to all, and has what is no
 * value, is an error: who left it out would not find it.
 */
extern int	store_read_column(StoreDesc *store, BlockNumber block, int att, Datum *values,
							  uint8 *state);

/*
 * Smallest and largest integer in a column of a block, free rows included.  Returns how many
 * rows it has, 0 if it has no storage; -1 if the column is stored in another way than as numbers
 * or codes beside each other, may have NULLs, or has codes that stand for nothing.
 */
extern int	store_column_extremes(StoreDesc *store, BlockNumber block, int att, int64 *min,
								  int64 *max);

/*
 * A range of values of a column, to leave out rows quickly.  All fields but the first ones
 * are set to zero by the caller.
 */
typedef struct StoreMatch
{
	int			att;			/* 0-based; of type int2, int4, int8, or a text */
	int64		low;			/* inclusive, both */
	int64		high;
	const char *image;			/* instead: a text with a short header, image_len bytes */
	uint32		image_len;

	/* what the dictionary says, by store_match_column() */
	const void *dictionary;
	uint64		ndictionary;
	uint64		ncodes;			/* in the range */
	uint32		code;			/* the first of them */
	uint8	   *codes;			/* by code, if there are several; palloc'd */
} StoreMatch;

/*
 * match[i] becomes 0 if row i of the block cannot have a value in the range; NULLs and
 * free rows may be left as they are.  Returns how many rows the block has, 0 if it has no
 * storage; -1, and match is of no use, if that cannot be told from how the column is stored, or
 * rows have codes that stand for nothing, or values that are younger than the first call.
 */
extern int	store_match_column(StoreDesc *store, BlockNumber block, StoreMatch *m, uint8 *match);
extern void store_match_free(StoreMatch *m);

/*
 * Roots of the block for which an index must have an entry: not free, not aborted, created
 * by a transaction below "before", and not dead to all ("horizon", 64-bit) with their whole
 * chain.  Doubtful ones are included.  Fills index[SOFORT_BLOCK_ROWS] with rows within the
 * block, returns how many.
 */
extern int	store_wanted_roots(StoreDesc *store, BlockNumber block, uint64 horizon,
							   uint64 before, uint8 *index);

/* The same for one row. */
extern bool store_root_is_wanted(StoreDesc *store, uint64 row, uint64 horizon, uint64 before);

/*
 * Do some chains have a root with other values in columns of sofort indexes
 * than their newest version?  (Versions from before the index was made.)
 */
extern bool store_chains_differ(StoreDesc *store);

/* From now on they do: durable on return. */
extern void store_set_chains_differ(StoreDesc *store);

/*
 * Have values of dictionaries been freed in this server life?  Then columns of
 * versions that are dead to all may read as something else.
 */
extern bool store_values_freed(StoreDesc *store);

/* Has this version, an ended root, lost values because it was dead to all? */
extern bool store_values_are_gone(StoreDesc *store, const RowRef *ref);

/*
 * Attributes (0-based) of a chain as indexes see it: those of its newest
 * version that is not aborted.  root was wanted.
 */
extern void store_chain_values(StoreDesc *store, uint64 root, const int *atts, int natts,
							   Datum *values, bool *isnull);

/* Has the root other values in these attributes than this version of its chain? */
extern bool store_root_differs(StoreDesc *store, uint64 root, const RowRef *version,
							   const int *atts, int natts);

#endif							/* SOFORT_STORE_COLUMN_READ_H */
