/*-------------------------------------------------------------------------
 *
 * value.c
 *	  Values on their way into the pool: detoasted, compressed, stored by
 *	  reference.
 *
 * A toast pointer, an indirect or an expanded value is never stored (its
 * target is not ours).  A value compressed in line is kept so by reference, as
 * in a heap tuple; in place and in dictionaries values are plain.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_internals.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "sofort/store/store_internal.h"

#define COMPRESS_FROM	2000	/* bytes; about heap's TOAST_TUPLE_TARGET */
#define COPY_FROM		256		/* bytes; longer ones bypass the cache */

static MemoryContext value_cxt = NULL;
static bool value_used = false;

/* For data that are needed only for the current row. */
MemoryContext
value_context(void)
{
	if (unlikely(value_cxt == NULL))
		value_cxt = AllocSetContextCreate(TopMemoryContext, "sofort values",
										  ALLOCSET_DEFAULT_SIZES);
	value_used = true;
	return value_cxt;
}

void
value_reset(void)
{
	if (value_used)
	{
		MemoryContextReset(value_cxt);
		value_used = false;
	}
}

/* May it have a 1-byte header?  (As for a heap tuple.) */
bool
value_packable(const ColumnHeader *c)
{
	return c->attlen == -1 && c->attstorage != TYPSTORAGE_PLAIN;
}

/*
 * The bytes that make a value equal to another: without header, detoasted.
 * They lie in the value, in buffer (8 bytes) or in value_context().
 */
const char *
value_bytes(const ColumnHeader *c, Datum value, Size *len, char *buffer)
{
	struct varlena *v;

	if (c->attbyval)
	{
		store_att_byval(buffer, value, c->attlen);
		*len = c->attlen;
		return buffer;
	}
	if (c->attlen > 0)
	{
		*len = c->attlen;
		return DatumGetPointer(value);
	}
	if (c->attlen == -2)
	{
		*len = strlen(DatumGetCString(value));
		return DatumGetCString(value);
	}
	v = (struct varlena *) DatumGetPointer(value);
	if (VARATT_IS_EXTERNAL(v) || VARATT_IS_COMPRESSED(v))
	{
		MemoryContext old = MemoryContextSwitchTo(value_context());

		v = detoast_attr(v);
		MemoryContextSwitchTo(old);
	}
	*len = VARSIZE_ANY_EXHDR(v);
	return VARDATA_ANY(v);
}

/* What a REFERENCE column stores for a varlena; may allocate. */
static struct varlena *
stored_varlena(Form_pg_attribute att, struct varlena *v)
{
	Size		len;

	if (VARATT_IS_EXTERNAL(v))
		v = detoast_external_attr(v);
	if (VARATT_IS_COMPRESSED(v))
	{
		/* compressed elsewhere; a plain column keeps plain values */
		return att->attstorage == TYPSTORAGE_PLAIN ? detoast_attr(v) : v;
	}
	len = VARSIZE_ANY_EXHDR(v);
	if (att->attstorage == TYPSTORAGE_PLAIN)
		return VARATT_IS_SHORT(v) ? detoast_attr(v) : v;
	if (len > COMPRESS_FROM &&
		(att->attstorage == TYPSTORAGE_EXTENDED || att->attstorage == TYPSTORAGE_MAIN))
	{
		Datum		packed = toast_compress_datum(PointerGetDatum(v), att->attcompression);

		if (DatumGetPointer(packed) != NULL)
			return (struct varlena *) DatumGetPointer(packed);
	}
	if (!VARATT_IS_SHORT(v) && VARATT_CAN_MAKE_SHORT(v))
	{
		struct varlena *brief = palloc(VARATT_CONVERTED_SHORT_SIZE(v));

		SET_VARSIZE_SHORT(brief, VARATT_CONVERTED_SHORT_SIZE(v));
		memcpy(VARDATA_SHORT(brief), VARDATA(v), len);
		return brief;
	}
	return v;
}

/* Length of a value by reference, without the checksum behind it */
Size
value_length(int16 attlen, const void *value)
{
	if (attlen > 0)
		return attlen;
	return attlen == -2 ? strlen(value) + 1 : VARSIZE_ANY(value);
}

void
value_put_crc(void *value, Size len)
{
	uint32		crc = pm_crc(value, len);

	memcpy((char *) value + len, &crc, sizeof(crc));
}

/*
 * What is wrong with a value by reference, or NULL.  Reads no more than what is
 * allocated.
 */
const char *
value_problem(int16 attlen, PMPtr p)
{
	return value_bytes_problem(attlen, pm_deref_quietly(p), pm_allocated_size(p));
}

/* The same for a value anywhere, in so many bytes */
const char *
value_bytes_problem(int16 attlen, const char *value, Size allocated)
{
	uint32		crc;
	Size		len;

	if (allocated <= STORE_VALUE_CRC)
		return "refers to nothing";
	allocated -= STORE_VALUE_CRC;
	if (attlen == -2 ? memchr(value, '\0', allocated) == NULL :
		attlen == -1 && ((VARATT_IS_EXTERNAL(value)) ||
						 (!VARATT_IS_1B(value) && allocated < VARHDRSZ) ||
						 VARSIZE_ANY(value) < (VARATT_IS_1B(value) ? VARHDRSZ_SHORT : VARHDRSZ)))
		return "is no value of its type";
	len = value_length(attlen, value);
	if (len > allocated)
		return "is longer than its allocation";
	memcpy(&crc, value + len, sizeof(crc));
	return crc == pm_crc(value, len) ? NULL : "has a wrong checksum";
}

/* The image that a REFERENCE column stores, and its size. */
static Datum
value_for_reference(Form_pg_attribute att, Datum value, Size *size)
{
	MemoryContext old;

	if (att->attlen > 0)
	{
		*size = att->attlen;
		return value;
	}
	if (att->attlen == -2)
	{
		*size = strlen(DatumGetCString(value)) + 1;
		return value;
	}
	old = MemoryContextSwitchTo(value_context());
	value = PointerGetDatum(stored_varlena(att, (struct varlena *) DatumGetPointer(value)));
	MemoryContextSwitchTo(old);
	*size = VARSIZE_ANY(DatumGetPointer(value));
	return value;
}

/* For the message */
static Size
largest(const PmRequest *request, int n)
{
	Size		size = 0;

	for (int i = 0; i < n; i++)
		size = Max(size, request[i].size);
	return size;
}

static void
fill_value(void *addr, Datum image, Size size)
{
	if (size >= COPY_FROM)
	{
		pm_copy_nodrain(addr, DatumGetPointer(image), size);
		value_put_crc(addr, size);
		pm_flush((char *) addr + size, STORE_VALUE_CRC);
	}
	else
	{
		memcpy(addr, DatumGetPointer(image), size);
		value_put_crc(addr, size);
		pm_flush(addr, size + STORE_VALUE_CRC);
	}
}

/* ---- reserving for rows to come ---- */

/*
 * Where a drain waits for a disk, a row with such a value waits for the drain of its
 * intent.  A statement that has added some rows will add more, in the rows that are
 * reserved for it, and often with values of the same length: so slots for several rows are
 * reserved together.
 */
#define AHEAD_FROM_ROWS		3	/* reserved rows behind this one */
#define AHEAD_VALUES_MIN	16	/* rows, with the current one; twice as many each time all were
								 * used */
#define AHEAD_PATIENCE		16	/* rows without use, then others may reserve ahead */
#define AHEAD_PAUSE_MIN		16
#define AHEAD_PAUSE_MAX		1024

/* State of this process and transaction */
static struct
{
	StoreId		store;			/* reserved for rows of this one ... */
	uint64		end;			/* ... before this row */
	int			made;
	int			most;			/* values, next time */
	int			unused_rows;	/* since one of them was taken */
	int			pause;			/* rows before the next attempt, after one that was wrong */
	int			next_pause;
} ahead;

void
value_end_of_xact(void)
{
	memset(&ahead, 0, sizeof(ahead));
}

/* For how many later rows is space reserved together with this one's? */
static int
rows_to_reserve_for(const StoreDesc *store, uint64 row, uint32 rows_left, int nrefs)
{
	if (rows_left < AHEAD_FROM_ROWS || !pm_drain_is_slow())
		return 0;
	if (pm_ahead() > 0)
	{
		int			unused = pm_ahead();

		if (ahead.store == store->id ? row < ahead.end : ++ahead.unused_rows < AHEAD_PATIENCE)
			return 0;
		pm_give_up_ahead();
		if (unused > ahead.made / 4)
		{
			ahead.most = 0;
			ahead.next_pause = Min(Max(2 * ahead.next_pause, AHEAD_PAUSE_MIN), AHEAD_PAUSE_MAX);
			ahead.pause = ahead.next_pause;
		}
		else
			ahead.next_pause = 0;
	}
	if (ahead.pause > 0)
	{
		ahead.pause--;
		return 0;
	}
	ahead.most = Min(Max(2 * ahead.most, AHEAD_VALUES_MIN), PM_INTENTS_PER_BACKEND);
	return Min((int) rows_left, Min(pm_reservable(), ahead.most) / nrefs - 1);
}

/*
 * Adds requests for the same fields of so many rows behind this one, like the first n;
 * returns how many there are in all.
 */
static int
add_requests_ahead(PmRequest *request, int n, int rows, const uint32 *stride)
{
	int			total = n;

	for (int j = 1; j <= rows; j++)
	{
		for (int i = 0; i < n; i++)
		{
			if (request[i].size > PM_SLAB_MAX)
				return n;
			request[total] = request[i];
			request[total++].link = (PMPtr *) ((char *) request[i].link + (Size) j * stride[i]);
		}
	}
	return total;
}

/* Reserves space for the n values of one row, and perhaps for those of later rows */
static void
reserve_for_row(StoreDesc *store, const RowRef *row, uint32 rows_left, PmReservation *r,
				const PmRequest *request, const int *atts, int n, int flags)
{
	const AttrPlan *plan = plan_get(store, row->block->shape)->plan;
	PmReservation got[PM_INTENTS_PER_BACKEND];
	PmRequest	need[PM_INTENTS_PER_BACKEND];
	uint32		stride[PM_INTENTS_PER_BACKEND];
	int			of[PM_INTENTS_PER_BACKEND];
	int			nneed = 0;
	int			total;
	int			rows;
	int			full;

	for (int i = 0; i < n; i++)
	{
		if (pm_take_ahead(&r[i], &request[i], flags))
		{
			ahead.unused_rows = 0;
			continue;
		}
		of[nneed] = i;
		stride[nneed] = plan[atts[i]].stride;
		need[nneed++] = request[i];
	}
	if (nneed == 0)
		return;
	rows = rows_to_reserve_for(store, row->row, rows_left, nneed);
	total = add_requests_ahead(need, nneed, rows, stride);
	full = pm_try_reserve_ahead(got, need, nneed, total, store->id, flags);
	if (full != 0 && total > nneed)
	{
		total = nneed;
		full = pm_try_reserve_ahead(got, need, nneed, total, store->id, flags);
	}
	if (full != 0)
		pm_raise_full(full, largest(need, nneed));
	for (int i = 0; i < nneed; i++)
		r[of[i]] = got[i];
	if (total > nneed)
	{
		ahead.store = store->id;
		ahead.end = row->row + rows + 1;
		ahead.made = total - nneed;
		ahead.unused_rows = 0;
	}
}

/*
 * Stores the values of n REFERENCE fields (given by their addresses) of rows that nobody
 * can see yet, and that count only if this transaction commits.  Only their intents are
 * drained; a store that goes with this subtransaction needs none. row: all fields are of
 * this row, and rows_left rows behind it are reserved, too; NULL: they are of several rows.
 * After an ERROR what was linked stays referenced by the row; the next user of the row
 * frees it.
 */
void
value_store_references(StoreDesc *store, int n, const uint64 *fields, const Datum *values,
					   const int *atts, const RowRef *row, uint32 rows_left)
{
	PmReservation r[PM_INTENTS_PER_BACKEND];
	PmRequest	request[PM_INTENTS_PER_BACKEND];
	Datum		image[PM_INTENTS_PER_BACKEND];
	bool		guarded = !store->local->new_storage;
	int			flags = store_slab_flags(store->header) | (guarded ? 0 : PM_RESERVE_UNGUARDED);
	int			most = guarded ? Max(pm_reservable(), 1) : PM_INTENTS_PER_BACKEND;
	int			i = 0;

	pool_require();
	while (i < n)
	{
		int			k;
		int			full;

		for (k = 0; k < most && i < n; k++, i++)
		{
			image[k] = value_for_reference(TupleDescAttr(store->local->tupdesc, atts[i]), values[i],
										   &request[k].size);
			request[k].size += STORE_VALUE_CRC;
			request[k].link = (PMPtr *) (uintptr_t) fields[i];
			request[k].nlinks = 1;
		}
		if (guarded && row != NULL && k == n)
			reserve_for_row(store, row, rows_left, r, request, atts, n, flags);
		else if ((full = pm_try_reserve_batch(r, request, k, store->id, flags)) != 0)
			pm_raise_full(full, largest(request, k));
		for (int j = 0; j < k; j++)
			fill_value(r[j].addr, image[j], request[j].size - STORE_VALUE_CRC);
		pm_link_batch(r, request, k);
	}
}
