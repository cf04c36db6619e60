/*-------------------------------------------------------------------------
 *
 * dict_vacuum.c
 *	  Values of dictionaries that no row uses any more (store/README.md,
 *	  "Unused values").
 *
 * VACUUM frees them in steps.  Each must wait for transactions to end, so a later
 * VACUUM does the next one.  Only the freeing of a value is durable: a crash in between
 * forgets the steps, but loses no value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "sofort/compat/relcache.h"

#include "dict_table.h"

#define COUNT_FROM		128		/* values: smaller dictionaries are not looked at */
#define COUNT_AGAIN		8		/* VACUUMs after which any other dictionary is counted */

#define BIT_WORD(code)	((code) / 64)
#define BIT_MASK(code)	(UINT64CONST(1) << ((code) % 64))

/* ---- which codes are used ---- */

bool
dictionary_code_is_used(const DictUse *use, uint32 code)
{
	return code >= use->ncodes ||
		(word_read(&use->bits[BIT_WORD(code)]) & BIT_MASK(code)) != 0;
}

static inline void
mark_used(DictUse *use, uint32 code)
{
	if (!dictionary_code_is_used(use, code))
		__atomic_fetch_or(&use->bits[BIT_WORD(code)], BIT_MASK(code), __ATOMIC_SEQ_CST);
}

static void
mark_column(DictUse *use, const ShapeHeader *s, const ShapeColumn *c, const RowRef *ref)
{
	const char *record = (const char *) ref->words;
	const char *p = (const char *) ref->block + c->offset + (Size) ref->index * c->stride;

	if (c->null_bit != SHAPE_NEVER_NULL &&
		(record[s->null_offset + c->null_bit / 8] & (1 << (c->null_bit % 8))))
		return;
	mark_used(use, code_get(p, c->width));
}

/*
 * Marks the codes of a row as used: a row that VACUUM met (of a dead root only the key), or
 * one that is being written and cannot be seen yet.  Inside an epoch.
 */
void
dictionary_mark_row(StoreShared *shared, const ShapeHeader *s, const RowRef *ref, bool keys_only)
{
	DictIndex  *index;

	for (index = dictionary_first(shared); index != NULL; index = index->next)
	{
		DictUse    *use = __atomic_load_n(&index->use, __ATOMIC_ACQUIRE);
		PMPtr		dictionary;
		int			k;

		if (use == NULL || (keys_only && !use->in_keys))
			continue;
		dictionary = pm_ptr(index->dictionary);
		for (k = 0; k < s->ncolumns; k++)
			if (s->columns[k].encoding == ENCODING_DICTIONARY &&
				s->columns[k].dictionary == dictionary)
				mark_column(use, s, &s->columns[k], ref);
	}
}

/* ---- VACUUM; it is alone on its table ---- */

static void
free_retired_use(DictIndex *index)
{
	if (index->retired_use != NULL && epoch_passed(index->retired_use_epoch))
	{
		arena_free(index->retired_use);
		index->retired_use = NULL;
	}
}

static void
free_retired_tables(DictIndex *index)
{
	LWLock	   *lock = dictionary_lock(index->dictionary);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	dict_tables_free_retired(index, false);
	LWLockRelease(lock);
}

/* From now on writers need not mark. */
static void
stop_marking(StoreShared *shared, DictIndex *index)
{
	DictUse    *use = index->use;

	__atomic_store_n(&index->use, NULL, __ATOMIC_RELEASE);
	pg_atomic_fetch_sub_u32(&shared->nmarking, 1);
	pg_atomic_fetch_sub_u64(&shared->bytes_dram, use->bytes);
	index->step = DICT_IDLE;
	index->retired_use = use;
	index->retired_use_epoch = epoch_advance();
}

/*
 * Step 1: from now on writers mark what they use.  Those who are writing may not have seen
 * that: rows are counted when these have ended.
 */
static void
start_marking(StoreShared *shared, DictIndex *index)
{
	uint32		n = (uint32) pm_vector_count(&index->dictionary->values);
	Size		bytes = offsetof(DictUse, bits) + (BIT_WORD(n) + 1) * sizeof(uint64);
	DictUse    *use;

	if (index->retired_use != NULL)
		return;
	use = arena_alloc(bytes, ARENA_ZERO | ARENA_NO_OOM);
	if (use == NULL)
		return;
	use->ncodes = n;
	use->bytes = bytes;
	pg_atomic_fetch_add_u64(&shared->bytes_dram, bytes);
	__atomic_store_n(&index->use, use, __ATOMIC_SEQ_CST);
	pg_atomic_fetch_add_u32(&shared->nmarking, 1);
	index->vacuums = 0;
	index->wait_for = txn_next_fxid();
	index->step = DICT_MARKING;
}

/*
 * Is it worth counting?  Yes, if there are twice as many values as were in use; and now and
 * then, because an old snapshot may have kept many in use.
 */
static bool
is_due(DictIndex *index)
{
	uint64		n = pm_vector_count(&index->dictionary->values) - index->nfree;

	if (n < COUNT_FROM)
		return false;
	return n >= 2 * index->last_used || ++index->vacuums >= COUNT_AGAIN;
}

/*
 * Makes the indexes of large dictionaries that nobody has used since the start.  Without
 * room one goes without: its rows are vacuumed all the same.
 */
static void
attach_large(StoreDesc *store)
{
	const StoreHeader *header = store->header;
	uint64		i;

	for (i = 0; i < pm_vector_count(&header->columns); i++)
	{
		PMPtr		p = column_get(header, i)->dictionary;
		DictIndex  *index;

		if (p == PM_NULL || pm_vector_count(&((DictionaryHeader *) pm_deref(p))->values) < COUNT_FROM)
			continue;
		index = dictionary_attach(store->shared, pm_deref(p), ARENA_NO_OOM);
		if (index == NULL)
			continue;
		LWLockAcquire(dictionary_lock(index->dictionary), LW_EXCLUSIVE);
		(void) dictionary_find_absent(store->shared, index);
		LWLockRelease(dictionary_lock(index->dictionary));
	}
}

/*
 * Does the dictionary have its index?  Without it unused values cannot be told from freed
 * ones, and stay.
 */
static bool
is_attached(const DictIndex *index)
{
	return index->table != NULL && index->absent_known;
}

/* Does an index refer to the dictionary's column? */
static bool
is_in_keys(StoreDesc *store, const Bitmapset *indexed, const DictIndex *index)
{
	TupleDesc	tupdesc = store->local->tupdesc;
	int			i;

	for (i = 0; i < tupdesc->natts; i++)
	{
		int			column;

		if (!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, indexed))
			continue;
		column = column_find(store->header, TupleDescAttr(tupdesc, i));
		if (column >= 0 &&
			column_get(store->header, column)->dictionary == pm_ptr(index->dictionary))
			return true;
	}
	return false;
}

/*
 * Step 3: of the values that were unlinked from the index, those that are still unused are
 * freed, and their codes can be given out again.  Transactions that found one before it was
 * unlinked have ended, and have marked it if they wrote it.
 */
static void
free_unlinked(StoreShared *shared, DictIndex *index)
{
	uint32		n = 0;
	uint32		i;

	if (index->nunlinked > 0)
		shared->values_freed = true;	/* roots are locked */
	for (i = 0; i < index->nunlinked; i++)
	{
		uint32		code = index->unlinked[i];

		/* used after all: stays unlinked, and is looked at next time */
		if (dictionary_code_is_used(index->use, code))
			continue;
		index->unlinked[i] = index->unlinked[n];
		index->unlinked[n++] = code;
		if (index->dictionary->attlen < 0)
			pm_free(shared->id, dictionary_element(index->dictionary, code), 1);
		SOFORT_STOP("dictionary-value-freed");
	}
	dictionary_give_codes(shared, index, n);
	stop_marking(shared, index);
}

/*
 * May values of rows that are dead to all be freed?  A search of the table in place of an
 * index that is not complete decodes whole blocks, with such rows.  It runs within an
 * epoch.
 */
static bool
nobody_looks_at_dead(DictIndex *index, bool complete)
{
	if (!complete)
		index->complete_epoch = 0;
	else if (index->complete_epoch == 0)
		index->complete_epoch = epoch_advance();
	return complete && epoch_passed(index->complete_epoch);
}

static void
free_if_possible(StoreShared *shared, DictIndex *index, bool complete)
{
	/* a reader's xmin may be the next transaction id */
	if (index->step == DICT_UNLINKED && nobody_looks_at_dead(index, complete) &&
		txn_horizon(NULL) > index->wait_for)
		free_unlinked(shared, index);
}

/* Called before VACUUM looks at the rows. */
void
store_vacuum_begin(Relation rel, StoreDesc *store, bool complete)
{
	StoreShared *shared = store->shared;
	Bitmapset  *indexed = compat_indexed_attrs(rel);
	uint64		horizon = txn_horizon(NULL);
	DictIndex  *index;

	attach_large(store);
	for (index = dictionary_first(shared); index != NULL; index = index->next)
	{
		free_retired_use(index);
		free_retired_tables(index);
		if (index->step == DICT_COUNTING)
			index->step = DICT_MARKING; /* the last VACUUM did not finish */

		/*
		 * An index was made since the rows were counted, without the keys of dead roots:
		 * what was unlinked stays unlinked, and is looked at next time.
		 */
		if (index->step == DICT_UNLINKED && !index->use->in_keys &&
			is_in_keys(store, indexed, index))
			stop_marking(shared, index);
		free_if_possible(shared, index, complete);
		if (index->step == DICT_IDLE && is_attached(index) && is_due(index))
		{
			start_marking(shared, index);
			horizon = txn_horizon(NULL);
		}
		if (index->step == DICT_MARKING && horizon >= index->wait_for)
		{
			index->use->in_keys = is_in_keys(store, indexed, index);
			index->step = DICT_COUNTING;
		}
	}
	bms_free(indexed);
}

/*
 * Step 2: VACUUM has seen all rows.  If less than half of the values are used, the others
 * are unlinked from the index.
 */
static void
unlink_unused(StoreShared *shared, DictIndex *index)
{
	DictUse    *use = index->use;
	uint32		nunused = 0;
	uint32		code;

	for (code = 0; code < use->ncodes; code++)
		if (!dictionary_code_is_used(use, code) && !dictionary_is_absent(index, code))
			nunused++;
	index->last_used = pm_vector_count(&index->dictionary->values) - index->nfree - nunused;
	if (nunused < index->last_used || !dictionary_unlink(shared, index, use, nunused))
	{
		if (nunused < index->last_used)
			index->uncounted = 0;
		stop_marking(shared, index);
		return;
	}
	SOFORT_STOP("dictionary-values-unlinked");
	index->wait_for = txn_next_fxid();
	index->complete_epoch = 0;
	index->step = DICT_UNLINKED;
}

/* Called after VACUUM has looked at all rows. */
void
store_vacuum_end(StoreDesc *store, bool complete)
{
	StoreShared *shared = store->shared;
	DictIndex  *index;

	milestone_sweep(store);
	for (index = dictionary_first(shared); index != NULL; index = index->next)
	{
		if (index->step == DICT_COUNTING)
			unlink_unused(shared, index);
		free_if_possible(shared, index, complete);
	}
}
