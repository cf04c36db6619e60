/*-------------------------------------------------------------------------
 *
 * column.c
 *	  Columns: (attnum, type, creating transaction).
 *
 * A column is made when a value is first stored for an attribute.  If this transaction
 * holds the relation exclusively, it may have made the attribute itself: then the
 * column is in its write set and dropped on abort, and nobody else can have used it.
 * Otherwise the attribute is committed, and making the column is a nested top action
 * that stays.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "storage/lmgr.h"

static void
fill_column(ColumnHeader *c, Form_pg_attribute att)
{
	memset(c, 0, sizeof(ColumnHeader));
	c->attnum = att->attnum;
	c->attlen = att->attlen;
	c->type_oid = att->atttypid;
	c->attalign = att->attalign;
	c->attstorage = att->attstorage;
	c->attbyval = att->attbyval;
	c->crc = column_crc(c);
	c->state = COLUMN_LIVE;
	pm_flush(c, sizeof(ColumnHeader));
}

/*
 * Makes the columns of a new store.  They go with it, so the order in which they become
 * durable does not matter.
 */
void
column_create_all(StoreHeader *header, TupleDesc tupdesc)
{
	uint64		n = 0;
	int			i;

	if (tupdesc->natts > 0)
		pm_vector_reserve(&header->columns, tupdesc->natts - 1, store_id_of(header),
						  STORE_METADATA | PM_RESERVE_SPARE);
	for (i = 0; i < tupdesc->natts; i++)
	{
		if (compat_is_stored(TupleDescAttr(tupdesc, i)))
			fill_column(column_get(header, n++), TupleDescAttr(tupdesc, i));
	}
	pm_vector_publish(&header->columns, n);
}

/*
 * The live column of an attribute, -1 if there is none.  A type that changed without a
 * rewrite (varchar to text, timestamptz to timestamp) has the same image; another physical
 * form is COLUMN_MISMATCH.
 */
int
column_find(const StoreHeader *header, Form_pg_attribute att)
{
	uint64		n = pm_vector_count(&header->columns);
	uint64		i;

	/* the common case: no column was ever dropped */
	i = att->attnum - 1;
	if (i >= n || column_get(header, i)->attnum != att->attnum ||
		column_get(header, i)->state != COLUMN_LIVE)
	{
		for (i = 0; i < n; i++)
		{
			const ColumnHeader *c = column_get(header, i);

			if (c->attnum == att->attnum && c->state == COLUMN_LIVE)
				break;
		}
	}
	if (i >= n)
		return -1;
	if (column_get(header, i)->attlen != att->attlen ||
		column_get(header, i)->attbyval != att->attbyval ||
		column_get(header, i)->attalign != att->attalign)
		return COLUMN_MISMATCH;
	return (int) i;
}

/* The error for an attribute for which column_find() said COLUMN_MISMATCH */
void
column_mismatch(const StoreHeader *header, Form_pg_attribute att)
{
	const ColumnHeader *c = NULL;
	uint64		i;

	for (i = 0; i < pm_vector_count(&header->columns); i++)
	{
		c = column_get(header, i);
		if (c->attnum == att->attnum && c->state == COLUMN_LIVE)
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("column \"%s\" is stored with another physical type", NameStr(att->attname)),
			 errdetail("The pool holds type %u with length %d, the catalog says type %u with length %d.",
					   c->type_oid, c->attlen, att->atttypid, att->attlen),
			 errhint("A function that ALTER TABLE calls cannot read the table. If there is none, pg_attribute was changed by hand: restore the table from a backup.")));
}

static void
create_column(StoreDesc *store, Form_pg_attribute att, bool exclusive)
{
	StoreHeader *header = store->header;
	uint64		n = pm_vector_count(&header->columns);

	if (n > PG_UINT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("table has had too many columns"),
				 errdetail("A store keeps at most %d columns, dropped ones included.", PG_UINT16_MAX + 1),
				 errhint("Rewrite the table with VACUUM FULL.")));
	pm_vector_reserve(&header->columns, n, store->id, STORE_METADATA);
	if (exclusive)
		txn_log(store->id, TXN_ENTRY_CREATE_COLUMN, n, 1);
	fill_column(column_get(header, n), att);
	pm_drain();
	pm_vector_publish(&header->columns, n + 1);
	SOFORT_STOP("store-column-created");
}

/* Makes sure that every attribute has a column.  No lock may be held. */
void
column_ensure(Relation rel, StoreDesc *store)
{
	struct StoreLocal *local = store->local;
	bool		exclusive;
	bool		missing = false;
	int			i;

	for (i = 0; i < local->natts; i++)
	{
		if (local->column[i] < 0 && compat_is_stored(TupleDescAttr(local->tupdesc, i)))
			missing = true;
	}
	if (!missing)
		return;

	exclusive = CheckRelationLockedByMe(rel, AccessExclusiveLock, false);
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	for (i = 0; i < local->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(local->tupdesc, i);

		int			column = compat_is_stored(att) ? column_find(store->header, att) : 0;

		if (column == COLUMN_MISMATCH)
			column_mismatch(store->header, att);
		if (column < 0)
			create_column(store, att, exclusive);
	}
	LWLockRelease(structure_lock(store->id));
	desc_refresh_columns(store);
}

/* Its creating transaction aborted.  Idempotent, no ERROR, no palloc. */
void
column_drop(StoreHeader *header, uint64 column)
{
	ColumnHeader *c;

	if (column >= pm_vector_count(&header->columns))
		return;
	c = column_get(header, column);
	if (c == NULL)
		return;
	*(volatile uint32 *) &c->state = COLUMN_DROPPED;
	pm_flush(&c->state, sizeof(uint32));	/* drained before the TCB ends */
}
