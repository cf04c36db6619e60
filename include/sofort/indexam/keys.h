/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  Normalised keys: index columns as bytes that sort as the columns do.
 *
 * src/indexam/README.md gives the encodings bit by bit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_INDEXAM_KEYS_H
#define SOFORT_INDEXAM_KEYS_H

#include "fmgr.h"
#include "sofort/indexam/tree.h"
#include "utils/rel.h"

typedef enum KeyKind
{
	KEY_OPAQUE = 0,				/* no place in the bytes: the tuple decides */
	KEY_INT2,
	KEY_INT4,
	KEY_INT8,
	KEY_UINT4,
	KEY_UINT8,
	KEY_BYTE,					/* bool, "char" */
	KEY_FLOAT4,
	KEY_FLOAT8,
	KEY_FIXED,					/* attlen bytes by reference, as memcmp */
	KEY_TEXT,					/* varlena without zero bytes, as memcmp */
	KEY_BPCHAR,					/* the same without trailing blanks */
	KEY_BYTEA,
	KEY_NAME,
	KEY_NUMERIC					/* rounded to float8; the tuple decides ties */
} KeyKind;

typedef struct KeyColumn
{
	uint8		kind;
	uint8		width;			/* bytes after the flag byte */
	uint8		desc;
	uint8		nulls_first;
	uint16		offset;			/* of the flag byte */
	int16		attlen;
	int32		typmod;
	Oid			collation;
	Oid			compare_proc;
} KeyColumn;

/*
 * How the entries of one index look.  Plain data, no pointers: two formats are
 * the same if their first "size" bytes are.
 */
typedef struct KeyFormat
{
	uint16		size;			/* of this struct in use */
	uint16		nkeys;			/* key columns */
	uint16		natts;			/* and INCLUDE columns */
	uint16		ncolumns;		/* key columns that have a place in the bytes */
	uint16		key_len;
	bool		has_tuples;		/* some entries need a tuple */
	bool		always_tuple;	/* all do */
	KeyColumn	columns[INDEX_MAX_KEYS];
} KeyFormat;

/* What is needed to work with the keys of an open index. */
typedef struct IndexKeys
{
	Relation	index;
	struct SofortIndex *shared; /* NULL until attached, see registry.h */
	Tree	   *tree;			/* NULL until ready */
	TreeOrder	order;			/* points to this struct */
	FmgrInfo   *compare[INDEX_MAX_KEYS];
	KeyFormat	format;
} IndexKeys;

typedef enum KeyEncoded
{
	KEY_EXACT,					/* the bytes decide, and give back the value */
	KEY_DECIDED,				/* they decide, but do not give it back */
	KEY_PREFIX					/* different values may have equal bytes */
} KeyEncoded;

#define KEY_FLAG_NULL_FIRST 1
#define KEY_FLAG_VALUE		2
#define KEY_FLAG_NULL_LAST	3

/* Format for an index as its relcache entry describes it. */
extern void keys_format(Relation index, KeyFormat *format);

/* Fills all of keys but format, which is set already, shared and tree. */
extern void keys_init(IndexKeys *keys, Relation index);

/* Bytes of an entry */
static inline int
keys_stride(const KeyFormat *format)
{
	return format->key_len + TREE_ROW_BYTES + (format->has_tuples ? sizeof(TreeTuple *) : 0);
}

static inline uint64
keys_entry_row(const KeyFormat *format, const uint8 *entry)
{
	return tree_row_of(entry + format->key_len);
}

static inline TreeTuple *
keys_entry_tuple(const KeyFormat *format, const uint8 *entry)
{
	return format->has_tuples ? tree_tuple_at(entry + format->key_len + TREE_ROW_BYTES) : NULL;
}

/* Sign of probe - entry (a private copy) */
extern int	keys_probe_compare(const KeyFormat *format, const TreeProbe *probe,
							   const uint8 *entry);

/* Flag byte of a column for a NULL or another value */
static inline uint8
key_flag(const KeyColumn *column, bool isnull)
{
	if (!isnull)
		return KEY_FLAG_VALUE;
	return column->nulls_first ? KEY_FLAG_NULL_FIRST : KEY_FLAG_NULL_LAST;
}

/* Writes column->width bytes of a value that is not NULL; they sort as the value does. */
extern KeyEncoded keys_encode_column(const KeyColumn *column, Datum value, uint8 *bytes);

/*
 * Writes key_len bytes of an entry.  Returns whether the entry needs a tuple.  May detoast
 * (and so raise an error).
 */
extern bool keys_encode(const KeyFormat *format, const Datum *values, const bool *isnull,
						uint8 *bytes);

/*
 * Key column i (from 0) of an entry: from its tuple, or from the bytes.
 * By-reference values from bytes are palloc'd, others point into the tuple.
 */
extern Datum keys_entry_column(const IndexKeys *keys, const uint8 *entry, int i, bool *isnull);

/* All columns; an entry without a tuple has no INCLUDE columns. */
extern void keys_deform(const IndexKeys *keys, const uint8 *entry, Datum *values, bool *isnull);

/* As the index orders them. */
extern int	keys_compare_entries(const IndexKeys *keys, const uint8 *a, const uint8 *b);

/* The same for qsort_arg(), which can be cancelled then; arg: the IndexKeys */
extern int	keys_compare_to_sort(const void *a, const void *b, void *arg);

/* Are key columns equal (row ids do not count)? */
extern bool keys_equal(const IndexKeys *keys, const uint8 *a, const uint8 *b);

/*
 * Place of an entry. tie = 0: that very entry; -1: before all with the same key; 1: after
 * them.  The probe points into "place", which points to the entry's tuple: do not copy or
 * move it.
 */
typedef struct EntryPlace
{
	TreeProbe	probe;
	const IndexKeys *keys;
	TreeTuple  *tuple;
	int			tie;
	uint8		bytes[TREE_MAX_STRIDE];
} EntryPlace;

extern void keys_place(EntryPlace *place, const IndexKeys *keys, const uint8 *entry, int tie);

#endif							/* SOFORT_INDEXAM_KEYS_H */
