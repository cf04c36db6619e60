/*-------------------------------------------------------------------------
 *
 * scan_internal.h
 *	  State of an index scan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_SCAN_INTERNAL_H
#define SOFORT_SCAN_INTERNAL_H

#include "access/genam.h"
#include "access/relscan.h"
#include "access/skey.h"

#include "am_internal.h"

/* col = ANY (array) that is checked row by row: elements in index order */
typedef struct ScanMembers
{
	int			n;
	Datum	   *elements;
	uint8	   *bytes;			/* of the elements, see scan_skip.c; NULL: not made yet */
	bool		reverse;		/* the column is descending */
	FmgrInfo   *compare;		/* column against element; NULL: only for equality */
	FmgrInfo	cross;
} ScanMembers;

/* A scan key, and whether rows must still be checked against it */
typedef struct ScanCondition
{
	ScanKey		key;			/* with the current element of its array */
	int			column;			/* from 0 */
	bool		filter;			/* recomputed with the bounds */
	ScanMembers *members;		/* if SK_SEARCHARRAY is left */
} ScanCondition;

/* col = ANY (array), a range for each element: elements in index order, each once */
typedef struct ScanArray
{
	int			condition;		/* its number */
	int			n;
	int			current;
	int			marked;
	Datum	   *elements;
} ScanArray;

/* What a bound says of one column that bytes do not decide */
typedef struct BoundColumn
{
	int			column;
	bool		isnull;
	bool		any_value;		/* everything but NULL is equal */
	Datum		value;
	FmgrInfo   *compare;		/* column type against the value's type */
	FmgrInfo	own;			/* for values of another type */
} BoundColumn;

/* How a scan key fits its column */
typedef enum KeyFit
{
	FIT_FILTER,					/* cannot be a bound */
	FIT_SAME,					/* value is of the column's type */
	FIT_CROSS,					/* comparable through the operator family */
	FIT_ALL,					/* true for every value but NULL */
	FIT_NONE					/* never true */
} KeyFit;

/*
 * What the bytes of one column behind the bounds must be between, and, if there are members,
 * one of; and of those that follow it, if it has one value.  See scan_skip.c.
 */
typedef struct ScanSkip
{
	bool		exists;
	uint16		offset;
	uint16		len;
	int			nmembers;
	const uint8 *members;		/* len bytes of each, in order; NULL: any */
	uint8		low[TREE_MAX_KEY];
	uint8		high[TREE_MAX_KEY];
} ScanSkip;

/* One end of the range of the index that is read */
typedef struct ScanBound
{
	bool		exists;
	TreeProbe	probe;
	const IndexKeys *keys;
	MemoryContext values;		/* of an entry, while it is compared by columns */
	int			tie;			/* -1: before what is equal, 1: after it */
	int			ncolumns;
	BoundColumn columns[INDEX_MAX_KEYS];
	uint8		bytes[TREE_MAX_STRIDE];
} ScanBound;

/* The matching entries of one leaf, or all, copied with their tuples */
typedef struct ScanBatch
{
	MemoryContext context;		/* of the tuples; NULL: not needed yet */
	bool		more_left;
	bool		more_right;
	int			item;			/* current one; -1 or n: beside the entries */
	int			n;				/* entries */
	int			killed;			/* entries that the scan has removed from the tree */
	uint8	   *collected;		/* not NULL: the whole range, from an index that is
								 * being rebuilt; in the context */
	TreeLeaf	leaf;
} ScanBatch;

/* Where a scan goes on: a separator, copied */
typedef struct Fence
{
	EntryPlace	place;
	uint8		entry[TREE_MAX_STRIDE];
} Fence;

typedef struct ParallelScan ParallelScan;

typedef struct ScanState
{
	MemoryContext context;		/* of this struct */
	bool		ready;			/* keys are attached */
	int			stride;			/* of entries */
	int			nconditions;
	int			max_conditions;
	ScanCondition *conditions;
	ScanKeyData *key_copies;
	int			narrays;
	ScanArray  *arrays;
	bool		ranges_chosen;	/* arrays that are left have one for each element */
	MemoryContext array_context;	/* made when needed, reset by rescan */
	bool		never;			/* no row can match */

	bool		positioned;		/* somewhere between start and end */
	bool		bounds_valid;	/* for the current array elements */
	bool		empty_range;
	bool		one_key;		/* every key column has one value of its type, not NULL */
	int			nequal;			/* number of first columns of which the bounds' bytes hold one
								 * value */
	bool		any_filter;
	ScanSkip	skip;
	Snapshot	snapshot;		/* that decides what is wanted; NULL: not known */
	Snapshot	reader;			/* of who scans, for predicate locks */
	MemoryContext row_context;	/* values of the entry being checked */
	IndexTuple	itup;			/* made for the caller, until the next call */
	uint8		itup_key[TREE_MAX_KEY]; /* bytes of which it was made */
	StoreDesc  *heap_store;		/* of the table, since the last rescan; NULL: not opened */

	bool		started;		/* batch is filled */
	ParallelScan *parallel;		/* shared with other processes, or NULL */
	uint64		combination;	/* of array elements, counted from 0, if parallel */
	MemoryContext fence_context;	/* if entries have tuples */

	bool		mark_set;		/* else the mark is the start */
	bool		mark_in_batch;
	int			mark_item;
	ScanBatch  *mark;			/* copy of a batch that was left */

	/* not zeroed from here on: it is large */
	ScanBatch	batch;
	ScanBound	lower;
	ScanBound	upper;
	IndexKeys	keys;
} ScanState;

/* ---- scan_bounds.c ---- */

/* From the conditions to bounds; clears filters that the bounds imply. */
extern void scan_set_bounds(ScanState *so);

/* Comparison of the column's type with another; false if there is none. */
extern bool scan_cross_compare(Relation index, int column, Oid type, FmgrInfo *proc,
							   MemoryContext context);

extern MemoryContext scan_array_context(ScanState *so);

/* *value: of the column's type if FIT_SAME */
extern KeyFit scan_fit_key(ScanState *so, const ScanCondition *condition, Datum *value);

/* ---- scan_skip.c ---- */

/* For the bounds that were set just now: by the first column from here on that allows it */
extern void scan_set_skip(ScanState *so, int first);

/* True: bytes say that the entry does not match. */
extern bool scan_skip_has_no_match(const ScanState *so, const uint8 *entry);

/*
 * Moves a separator (a copy), at which a scan would go on in this direction, to the first
 * place beyond it where there may be a match.
 */
extern void scan_skip_move(const ScanState *so, ScanDirection dir, uint8 *separator);

/* ---- scan_keys.c ---- */
extern void scan_set_keys(IndexScanDesc scan, ScanState *so);

/* Before the first range: which arrays have one for each element. */
extern void scan_choose_ranges(ScanState *so);

/* For values of one entry while it is looked at; its user resets it. */
extern MemoryContext scan_row_context(ScanState *so);

/* Next combination of array elements; false: that was the last one. */
extern bool scan_next_elements(ScanState *so, ScanDirection dir);
extern void scan_first_elements(ScanState *so, ScanDirection dir);
extern bool scan_entry_matches(ScanState *so, const uint8 *entry);

/* ---- scan_parallel.c ---- */

/*
 * Takes the next leaf of the range of the current array elements; others wait for
 * parallel_release().  False: the range is finished.  *at_fence: the leaf is at the fence,
 * else at the end of the range.
 */
extern bool parallel_seize(ScanState *so, bool *at_fence, Fence *fence);

/* How many arrays have ranges: what the first process says goes for all. */
extern int	parallel_agree(ScanState *so, int narrays);

/* The next one begins at this entry; NULL: there is none. */
extern void parallel_release(ScanState *so, const uint8 *next);

#endif							/* SOFORT_SCAN_INTERNAL_H */
