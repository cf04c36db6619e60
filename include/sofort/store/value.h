/*-------------------------------------------------------------------------
 *
 * value.h
 *	  Values that lie outside of their rows, for the files of src/store.
 *
 * Conventions: store_internal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_STORE_VALUE_H
#define SOFORT_STORE_VALUE_H

#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"

/* ---- decode.c ---- */
#define STORE_LONG_VALUE	4096
extern void value_check_long(PMPtr p);

/*
 * A varlena in the pool.  Damaged headers that could do harm: one that makes it an external
 * datum, which is an address, a length of up to 1 GB, and one below the header's (zeros).
 */
static inline void *
varlena_deref(PMPtr p)
{
	char	   *v = pm_deref(p);

	if (unlikely(!VARATT_IS_1B(v) ?
				 VARSIZE_4B(v) - (uint32) VARHDRSZ > STORE_LONG_VALUE - VARHDRSZ :
				 VARATT_IS_1B_E(v)))
		value_check_long(p);
	return v;
}

/* A value of either kind of varying length, or one by reference of a fixed one */
static inline void *
value_deref(int16 attlen, PMPtr p)
{
	return attlen == -1 ? varlena_deref(p) : pm_deref(p);
}

/* ---- value.c ---- */
#define STORE_VALUE_CRC	sizeof(uint32)	/* behind a value by reference */

/* Of a value by reference, without the CRC behind it; to be trusted as much as its header */
extern Size value_length(int16 attlen, const void *value);

/* Writes the CRC behind a value of this length; there is room for it.  Not flushed. */
extern void value_put_crc(void *value, Size len);
extern const char *value_problem(int16 attlen, PMPtr p);
extern const char *value_bytes_problem(int16 attlen, const char *value, Size allocated);

/* For what is needed for the current row only: until value_reset(), or the next row's */
extern MemoryContext value_context(void);
extern void value_reset(void);
extern const char *value_bytes(const ColumnHeader *c, Datum value, Size *len, char *buffer);
extern bool value_packable(const ColumnHeader *c);
extern void value_store_references(StoreDesc *store, int n, const uint64 *fields,
								   const Datum *values, const int *atts, const RowRef *row,
								   uint32 rows_left);

/* What was learnt about the rows of this transaction, to reserve space ahead, is forgotten. */
extern void value_end_of_xact(void);

#endif							/* SOFORT_STORE_VALUE_H */
