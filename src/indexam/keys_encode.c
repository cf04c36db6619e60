/*-------------------------------------------------------------------------
 *
 * keys_encode.c
 *	  Values to bytes and back.
 *
 * Of each column: a flag byte (NULL or not, in the order that the index asks
 * for), then a fixed number of bytes, inverted if the column is DESC.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "sofort/indexam/keys.h"
#include "utils/builtins.h"
#include "utils/float.h"

/* Last byte of a text: the number of its bytes in the key, or this if it is longer */
#define TEXT_LONGER		0xff

static void
put16(uint8 *p, uint16 v)
{
	v = pg_hton16(v);
	memcpy(p, &v, sizeof(v));
}

static void
put32(uint8 *p, uint32 v)
{
	v = pg_hton32(v);
	memcpy(p, &v, sizeof(v));
}

static void
put64(uint8 *p, uint64 v)
{
	v = pg_hton64(v);
	memcpy(p, &v, sizeof(v));
}

static uint16
get16(const uint8 *p)
{
	uint16		v;

	memcpy(&v, p, sizeof(v));
	return pg_ntoh16(v);
}

static uint32
get32(const uint8 *p)
{
	uint32		v;

	memcpy(&v, p, sizeof(v));
	return pg_ntoh32(v);
}

static uint64
get64(const uint8 *p)
{
	uint64		v;

	memcpy(&v, p, sizeof(v));
	return pg_ntoh64(v);
}

#define SIGN16	((uint16) 0x8000)
#define SIGN32	((uint32) 0x80000000)
#define SIGN64	UINT64CONST(0x8000000000000000)

/* ---- floating point: sign and magnitude to an unsigned integer ---- */

static uint64
float8_to_ordered(double v)
{
	uint64		bits;

	if (isnan(v))
		return ~UINT64CONST(0); /* all NaNs are equal, and above infinity */
	if (v == 0)
		v = 0;					/* -0 */
	memcpy(&bits, &v, sizeof(bits));
	return (bits & SIGN64) ? ~bits : bits | SIGN64;
}

static double
ordered_to_float8(uint64 bits)
{
	double		v;

	if (bits == ~UINT64CONST(0))
		return get_float8_nan();
	bits = (bits & SIGN64) ? bits & ~SIGN64 : ~bits;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static uint32
float4_to_ordered(float v)
{
	uint32		bits;

	if (isnan(v))
		return ~(uint32) 0;
	if (v == 0)
		v = 0;
	memcpy(&bits, &v, sizeof(bits));
	return (bits & SIGN32) ? ~bits : bits | SIGN32;
}

static float
ordered_to_float4(uint32 bits)
{
	float		v;

	if (bits == ~(uint32) 0)
		return get_float4_nan();
	bits = (bits & SIGN32) ? bits & ~SIGN32 : ~bits;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static KeyEncoded
encode_float8(double v, uint8 *bytes)
{
	uint64		ordered = float8_to_ordered(v);
	double		back = ordered_to_float8(ordered);

	put64(bytes, ordered);
	return memcmp(&back, &v, sizeof(v)) == 0 ? KEY_EXACT : KEY_DECIDED;
}

static KeyEncoded
encode_float4(float v, uint8 *bytes)
{
	uint32		ordered = float4_to_ordered(v);
	float		back = ordered_to_float4(ordered);

	put32(bytes, ordered);
	return memcmp(&back, &v, sizeof(v)) == 0 ? KEY_EXACT : KEY_DECIDED;
}

/* ---- text ---- */

/* Up to width - 1 bytes, filled up with zeroes; then the length */
static KeyEncoded
encode_bytes(const char *data, int len, int width, uint8 *bytes)
{
	int			room = width - 1;

	if (len <= room)
	{
		memcpy(bytes, data, len);
		memset(bytes + len, 0, room - len);
		bytes[room] = (uint8) len;
		return KEY_EXACT;
	}
	memcpy(bytes, data, room);
	bytes[room] = TEXT_LONGER;
	return KEY_PREFIX;
}

/* Number of blanks that char(n) has after this text */
static int
bpchar_blanks(const KeyColumn *column, const char *data, int len)
{
	int			chars;

	if (column->typmod < (int32) VARHDRSZ)
		return 0;
	chars = pg_mbstrlen_with_len(data, len);
	return Max(0, column->typmod - (int32) VARHDRSZ - chars);
}

/*
 * Without trailing blanks, which do not count in comparisons.  What remains
 * may contain characters below the blank, so that "a" and "a\t" must compare
 * as such: zero bytes sort before both, as the end of the string does.
 */
static KeyEncoded
encode_bpchar(const KeyColumn *column, const char *data, int len, uint8 *bytes)
{
	int			trimmed = len;
	KeyEncoded	result;

	while (trimmed > 0 && data[trimmed - 1] == ' ')
		trimmed--;
	result = encode_bytes(data, trimmed, column->width, bytes);
	if (result == KEY_EXACT && len != trimmed + bpchar_blanks(column, data, trimmed))
		result = KEY_DECIDED;
	return result;
}

static KeyEncoded
encode_varlena(const KeyColumn *column, Datum value, uint8 *bytes)
{
	struct varlena *packed = PG_DETOAST_DATUM_PACKED(value);
	const char *data = VARDATA_ANY(packed);
	int			len = VARSIZE_ANY_EXHDR(packed);
	KeyEncoded	result;

	if (column->kind == KEY_BPCHAR)
		result = encode_bpchar(column, data, len, bytes);
	else
		result = encode_bytes(data, len, column->width, bytes);
	if ((Pointer) packed != DatumGetPointer(value))
		pfree(packed);
	return result;
}

/* Rounding is monotonic: a smaller double means a smaller number. */
static KeyEncoded
encode_numeric(Datum value, uint8 *bytes)
{
	/* otherwise the function would leak its copy of a value with a short header */
	struct varlena *number = PG_DETOAST_DATUM(value);
	double		v = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
													   PointerGetDatum(number)));

	if ((Pointer) number != DatumGetPointer(value))
		pfree(number);
	put64(bytes, float8_to_ordered(v));
	return KEY_PREFIX;
}

static KeyEncoded
encode_value(const KeyColumn *column, Datum value, uint8 *bytes)
{
	switch ((KeyKind) column->kind)
	{
		case KEY_OPAQUE:
			return KEY_PREFIX;
		case KEY_INT2:
			put16(bytes, (uint16) DatumGetInt16(value) ^ SIGN16);
			return KEY_EXACT;
		case KEY_INT4:
			put32(bytes, (uint32) DatumGetInt32(value) ^ SIGN32);
			return KEY_EXACT;
		case KEY_INT8:
			put64(bytes, (uint64) DatumGetInt64(value) ^ SIGN64);
			return KEY_EXACT;
		case KEY_UINT4:
			put32(bytes, DatumGetUInt32(value));
			return KEY_EXACT;
		case KEY_UINT8:
			put64(bytes, DatumGetUInt64(value));
			return KEY_EXACT;
		case KEY_BYTE:
			bytes[0] = DatumGetUInt8(value);
			return KEY_EXACT;
		case KEY_FLOAT4:
			return encode_float4(DatumGetFloat4(value), bytes);
		case KEY_FLOAT8:
			return encode_float8(DatumGetFloat8(value), bytes);
		case KEY_FIXED:
			memcpy(bytes, DatumGetPointer(value), column->width);
			return KEY_EXACT;
		case KEY_TEXT:
		case KEY_BPCHAR:
		case KEY_BYTEA:
			return encode_varlena(column, value, bytes);
		case KEY_NAME:
			return encode_bytes(NameStr(*DatumGetName(value)),
								(int) strnlen(NameStr(*DatumGetName(value)), NAMEDATALEN),
								column->width, bytes);
		case KEY_NUMERIC:
			return encode_numeric(value, bytes);
	}
	return KEY_PREFIX;
}

static void
invert(uint8 *bytes, int n)
{
	int			i;

	for (i = 0; i < n; i++)
		bytes[i] = ~bytes[i];
}

KeyEncoded
keys_encode_column(const KeyColumn *column, Datum value, uint8 *bytes)
{
	KeyEncoded	result = encode_value(column, value, bytes);

	if (column->desc)
		invert(bytes, column->width);
	return result;
}

bool
keys_encode(const KeyFormat *format, const Datum *values, const bool *isnull, uint8 *bytes)
{
	bool		needs_tuple = format->always_tuple;
	int			i;

	memset(bytes, 0, format->key_len);
	for (i = 0; i < format->ncolumns; i++)
	{
		const KeyColumn *column = &format->columns[i];
		uint8	   *p = bytes + column->offset;
		KeyEncoded	encoded;

		*p = key_flag(column, isnull[i]);
		if (isnull[i])
			continue;
		encoded = keys_encode_column(column, values[i], p + 1);
		if (encoded != KEY_EXACT)
			needs_tuple = true;
		if (encoded == KEY_PREFIX)
			break;				/* what follows must not decide */
	}
	return needs_tuple;
}

/* ---- back ---- */

/* Length of a value without a tuple.  XX002 if the entry is damaged. */
static int
inline_length(const KeyColumn *column, const uint8 *bytes)
{
	int			len = bytes[column->width - 1];

	if (len >= column->width)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("an entry of a sofort index has a value that is longer than its field"),
				 errhint("REINDEX the index.")));
	return len;
}

static Datum
decode_text(const KeyColumn *column, const uint8 *bytes)
{
	int			len = inline_length(column, bytes);
	int			blanks = 0;
	text	   *result;

	if (column->kind == KEY_BPCHAR)
		blanks = bpchar_blanks(column, (const char *) bytes, len);
	result = palloc(VARHDRSZ + len + blanks);
	SET_VARSIZE(result, VARHDRSZ + len + blanks);
	memcpy(VARDATA(result), bytes, len);
	memset(VARDATA(result) + len, ' ', blanks);
	return PointerGetDatum(result);
}

static Datum
decode_name(const KeyColumn *column, const uint8 *bytes)
{
	Name		result = palloc0(NAMEDATALEN);

	memcpy(NameStr(*result), bytes, inline_length(column, bytes));
	return NameGetDatum(result);
}

static Datum
decode_fixed(const KeyColumn *column, const uint8 *bytes)
{
	void	   *result = palloc(column->width);

	memcpy(result, bytes, column->width);
	return PointerGetDatum(result);
}

static Datum
decode_column(const KeyColumn *column, const uint8 *stored)
{
	uint8		bytes[TREE_MAX_KEY];

	memcpy(bytes, stored, column->width);
	if (column->desc)
		invert(bytes, column->width);
	switch ((KeyKind) column->kind)
	{
		case KEY_INT2:
			return Int16GetDatum((int16) (get16(bytes) ^ SIGN16));
		case KEY_INT4:
			return Int32GetDatum((int32) (get32(bytes) ^ SIGN32));
		case KEY_INT8:
			return Int64GetDatum((int64) (get64(bytes) ^ SIGN64));
		case KEY_UINT4:
			return UInt32GetDatum(get32(bytes));
		case KEY_UINT8:
			return UInt64GetDatum(get64(bytes));
		case KEY_BYTE:
			return UInt8GetDatum(bytes[0]);
		case KEY_FLOAT4:
			return Float4GetDatum(ordered_to_float4(get32(bytes)));
		case KEY_FLOAT8:
			return Float8GetDatum(ordered_to_float8(get64(bytes)));
		case KEY_FIXED:
			return decode_fixed(column, bytes);
		case KEY_TEXT:
		case KEY_BPCHAR:
		case KEY_BYTEA:
			return decode_text(column, bytes);
		case KEY_NAME:
			return decode_name(column, bytes);
		case KEY_OPAQUE:
		case KEY_NUMERIC:
			break;
	}
	elog(ERROR, "index entry without a tuple has a column that needs one");
	return (Datum) 0;
}

Datum
keys_entry_column(const IndexKeys *keys, const uint8 *entry, int i, bool *isnull)
{
	const KeyFormat *format = &keys->format;
	const KeyColumn *column = &format->columns[i];

	if (format->has_tuples)
	{
		TreeTuple  *tuple = tree_tuple_at(entry + format->key_len + TREE_ROW_BYTES);

		if (tuple != NULL)
			return index_getattr(&tuple->tuple, i + 1, RelationGetDescr(keys->index), isnull);
	}
	*isnull = entry[column->offset] != KEY_FLAG_VALUE;
	if (*isnull)
		return (Datum) 0;
	return decode_column(column, entry + column->offset + 1);
}

void
keys_deform(const IndexKeys *keys, const uint8 *entry, Datum *values, bool *isnull)
{
	const KeyFormat *format = &keys->format;
	int			i;

	if (format->has_tuples)
	{
		TreeTuple  *tuple = tree_tuple_at(entry + format->key_len + TREE_ROW_BYTES);

		if (tuple != NULL)
		{
			index_deform_tuple(&tuple->tuple, RelationGetDescr(keys->index), values, isnull);
			return;
		}
	}
	for (i = 0; i < format->nkeys; i++)
		values[i] = keys_entry_column(keys, entry, i, &isnull[i]);
}
