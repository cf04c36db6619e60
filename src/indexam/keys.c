/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Formats of normalised keys, comparison.
 *
 * Everything rests on one property of the encodings: if the bytes of a are
 * below those of b, then a sorts before b.  Equal bytes mean equal values
 * unless both entries have a tuple; then the operator classes decide.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "sofort/compat/indexam.h"
#include "sofort/indexam/keys.h"
#include "utils/fmgroids.h"

/* Bytes of a text that are in the key; the rest of a longer one is in the tuple. */
#define MAX_TEXT_BYTES	16

typedef struct KindOfProc
{
	Oid			proc;
	KeyKind		kind;
	uint8		width;
	bool		by_collation;	/* only if the collation compares bytes */
} KindOfProc;

/* Comparison functions whose order the encodings reproduce */
static const KindOfProc kinds[] = {
	{F_BTINT2CMP, KEY_INT2, 2, false},
	{F_BTINT4CMP, KEY_INT4, 4, false},
	{F_BTINT8CMP, KEY_INT8, 8, false},
	{F_BTOIDCMP, KEY_UINT4, 4, false},
	{F_BTBOOLCMP, KEY_BYTE, 1, false},
	{F_BTCHARCMP, KEY_BYTE, 1, false},
	{F_BTFLOAT4CMP, KEY_FLOAT4, 4, false},
	{F_BTFLOAT8CMP, KEY_FLOAT8, 8, false},
	{F_DATE_CMP, KEY_INT4, 4, false},
	{F_TIME_CMP, KEY_INT8, 8, false},
	{F_TIMESTAMP_CMP, KEY_INT8, 8, false},
	{F_TIMESTAMPTZ_CMP, KEY_INT8, 8, false},
	{F_CASH_CMP, KEY_INT8, 8, false},
	{F_XID8CMP, KEY_UINT8, 8, false},
	{F_PG_LSN_CMP, KEY_UINT8, 8, false},
	{F_UUID_CMP, KEY_FIXED, 16, false},
	{F_MACADDR_CMP, KEY_FIXED, 6, false},
	{F_MACADDR8_CMP, KEY_FIXED, 8, false},
	{F_BTNAMECMP, KEY_NAME, MAX_TEXT_BYTES + 1, true},
	{F_BTTEXTCMP, KEY_TEXT, MAX_TEXT_BYTES + 1, true},
	{F_BTTEXT_PATTERN_CMP, KEY_TEXT, MAX_TEXT_BYTES + 1, false},
	{F_BPCHARCMP, KEY_BPCHAR, MAX_TEXT_BYTES + 1, true},
	{F_BTBPCHAR_PATTERN_CMP, KEY_BPCHAR, MAX_TEXT_BYTES + 1, false},
	{F_BYTEACMP, KEY_BYTEA, MAX_TEXT_BYTES + 1, false},
	{F_NUMERIC_CMP, KEY_NUMERIC, 8, false},
};

static const KindOfProc *
find_kind(Oid proc, Oid collation)
{
	int			i;

	for (i = 0; i < (int) lengthof(kinds); i++)
	{
		if (kinds[i].proc != proc)
			continue;
		if (kinds[i].by_collation && !compat_collation_is_bytewise(collation))
			return NULL;
		return &kinds[i];
	}
	return NULL;
}

/* Is the attribute stored in the same way as the type of the comparison function? */
static bool
storage_fits(KeyKind kind, const KindOfProc *found, Form_pg_attribute att)
{
	switch (kind)
	{
		case KEY_OPAQUE:
			return true;
		case KEY_INT2:
		case KEY_INT4:
		case KEY_INT8:
		case KEY_UINT4:
		case KEY_UINT8:
		case KEY_BYTE:
		case KEY_FLOAT4:
		case KEY_FLOAT8:
			return att->attbyval && att->attlen == found->width;
		case KEY_FIXED:
			return !att->attbyval && att->attlen == found->width;
		case KEY_TEXT:
		case KEY_BPCHAR:
		case KEY_BYTEA:
		case KEY_NUMERIC:
			return att->attlen == -1;
		case KEY_NAME:
			return att->attlen == NAMEDATALEN;
	}
	return false;
}

/* A declared length n may need fewer bytes than text without one. */
static int
text_width(KeyKind kind, Form_pg_attribute att)
{
	int			chars;

	if ((att->atttypid != VARCHAROID && att->atttypid != BPCHAROID) ||
		(kind != KEY_TEXT && kind != KEY_BPCHAR) || att->atttypmod < (int32) VARHDRSZ)
		return MAX_TEXT_BYTES;
	chars = att->atttypmod - VARHDRSZ;
	return Min(MAX_TEXT_BYTES, chars);
}

/* One column; returns whether some value of it needs a tuple. */
static bool
format_column(KeyColumn *column, Relation index, int i)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), i);
	int16		option = index->rd_indoption[i];
	const KindOfProc *found;

	column->desc = (option & INDOPTION_DESC) != 0;
	column->nulls_first = (option & INDOPTION_NULLS_FIRST) != 0;
	column->attlen = att->attlen;
	column->typmod = att->atttypid == BPCHAROID ? att->atttypmod : -1;
	column->collation = index->rd_indcollation[i];
	column->compare_proc = index_getprocid(index, i + 1, BTORDER_PROC);
	if (!OidIsValid(column->compare_proc))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" has no comparison function for column %d",
						RelationGetRelationName(index), i + 1),
				 errhint("Add \"sofort\" to shared_preload_libraries, then drop the index and create it again.")));

	found = find_kind(column->compare_proc, column->collation);
	if (found == NULL || !storage_fits(found->kind, found, att))
	{
		column->kind = KEY_OPAQUE;
		return true;
	}
	column->kind = found->kind;
	column->width = found->width;
	switch (found->kind)
	{
		case KEY_TEXT:
		case KEY_BPCHAR:
			/* a cast may claim a length that its result does not keep, so no value always fits */
			column->width = text_width(found->kind, att) + 1;
			return true;
		case KEY_FLOAT4:		/* -0 and odd NaNs */
		case KEY_FLOAT8:
		case KEY_BYTEA:
		case KEY_NAME:
		case KEY_NUMERIC:
			return true;
		default:
			return false;
	}
}

void
keys_format(Relation index, KeyFormat *format)
{
	bool		room = true;
	int			i;

	memset(format, 0, sizeof(*format));
	format->nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	format->natts = IndexRelationGetNumberOfAttributes(index);
	format->size = offsetof(KeyFormat, columns) + format->nkeys * sizeof(KeyColumn);
	if (format->natts > format->nkeys)
		format->always_tuple = true;
	for (i = 0; i < format->nkeys; i++)
	{
		KeyColumn  *column = &format->columns[i];

		if (format_column(column, index, i))
			format->has_tuples = true;
		column->offset = format->key_len;
		if (column->offset + 1 + column->width > TREE_MAX_KEY)
			room = false;
		if (!room)
			continue;
		format->key_len += 1 + column->width;
		format->ncolumns++;
	}
	if (format->ncolumns < format->nkeys)
		format->always_tuple = true;
	if (format->always_tuple)
		format->has_tuples = true;
	format->key_len = Max(format->key_len, TREE_MIN_KEY);
}

static int
order_entries(void *arg, const uint8 *a, const uint8 *b)
{
	return keys_compare_entries((const IndexKeys *) arg, a, b);
}

void
keys_init(IndexKeys *keys, Relation index)
{
	int			i;

	keys->index = index;
	keys->shared = NULL;
	keys->tree = NULL;
	keys->order.compare = order_entries;
	keys->order.arg = keys;
	for (i = 0; i < keys->format.nkeys; i++)
		keys->compare[i] = index_getprocinfo(index, i + 1, BTORDER_PROC);
}

/* ---- comparison ---- */

static int
compare_column(const IndexKeys *keys, int i, Datum a, bool a_null, Datum b, bool b_null)
{
	const KeyColumn *column = &keys->format.columns[i];
	int			c;

	if (a_null || b_null)
		return (int) key_flag(column, a_null) - (int) key_flag(column, b_null);
	c = DatumGetInt32(FunctionCall2Coll(keys->compare[i], column->collation, a, b));
	if (column->desc)
		INVERT_COMPARE_RESULT(c);
	return c;
}

static int
keys_compare_tuples(const IndexKeys *keys, IndexTuple a, IndexTuple b)
{
	TupleDesc	desc = RelationGetDescr(keys->index);
	int			i;

	for (i = 0; i < keys->format.nkeys; i++)
	{
		bool		a_null;
		bool		b_null;
		Datum		x = index_getattr(a, i + 1, desc, &a_null);
		Datum		y = index_getattr(b, i + 1, desc, &b_null);
		int			c = compare_column(keys, i, x, a_null, y, b_null);

		if (c != 0)
			return c;
	}
	return 0;
}

/* Bytes, then tuples if both have one */
static int
compare_bytes_and_tuples(const IndexKeys *keys, const uint8 *a, const uint8 *b)
{
	int			c = memcmp(a, b, keys->format.key_len);

	if (c == 0)
	{
		TreeTuple  *x = keys_entry_tuple(&keys->format, a);
		TreeTuple  *y = keys_entry_tuple(&keys->format, b);

		if (x != NULL && y != NULL)
			c = keys_compare_tuples(keys, &x->tuple, &y->tuple);
	}
	return c;
}

int
keys_compare_entries(const IndexKeys *keys, const uint8 *a, const uint8 *b)
{
	int			c = compare_bytes_and_tuples(keys, a, b);

	if (c == 0)
		c = memcmp(a + keys->format.key_len, b + keys->format.key_len, TREE_ROW_BYTES);
	return c;
}

int
keys_compare_to_sort(const void *a, const void *b, void *arg)
{
	CHECK_FOR_INTERRUPTS();
	return keys_compare_entries(arg, a, b);
}

bool
keys_equal(const IndexKeys *keys, const uint8 *a, const uint8 *b)
{
	return compare_bytes_and_tuples(keys, a, b) == 0;
}

/* Compares the probe of a place whose key needs its tuple; the bytes are equal. */
static int
compare_place(const TreeProbe *probe, const uint8 *entry)
{
	const EntryPlace *place = probe->arg;
	const KeyFormat *format = &place->keys->format;
	TreeTuple  *tuple = keys_entry_tuple(format, entry);
	int			c = 0;

	if (tuple != NULL)
		c = keys_compare_tuples(place->keys, &place->tuple->tuple, &tuple->tuple);
	if (c != 0)
		return c;
	if (place->tie != 0)
		return place->tie;
	return memcmp(probe->bytes + format->key_len, entry + format->key_len, TREE_ROW_BYTES);
}

void
keys_place(EntryPlace *place, const IndexKeys *keys, const uint8 *entry, int tie)
{
	const KeyFormat *format = &keys->format;

	memcpy(place->bytes, entry, format->key_len + TREE_ROW_BYTES);
	if (tie != 0)
		memset(place->bytes + format->key_len, tie < 0 ? 0 : 0xff, TREE_ROW_BYTES);
	place->keys = keys;
	place->tuple = keys_entry_tuple(format, entry);
	place->tie = tie;
	place->probe.bytes = place->bytes;
	place->probe.nbytes = format->key_len;
	place->probe.compare = place->tuple != NULL ? compare_place : NULL;
	place->probe.arg = place;
}

int
keys_probe_compare(const KeyFormat *format, const TreeProbe *probe, const uint8 *entry)
{
	int			c;

	if (probe->compare == NULL)
		return memcmp(probe->bytes, entry, format->key_len + TREE_ROW_BYTES);
	c = memcmp(probe->bytes, entry, probe->nbytes);
	return c != 0 ? c : probe->compare(probe, entry);
}
