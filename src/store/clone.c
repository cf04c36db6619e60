/*-------------------------------------------------------------------------
 *
 * clone.c
 *	  Copies of stores for CREATE DATABASE ... TEMPLATE.
 *
 * A copy is the same image: PostgreSQL copies the files of its own indexes, so every
 * version keeps its row id.  Nobody is connected to the template, so no word is in
 * progress.  Each piece is published in the new store before the next; the write set
 * names the store, which is dropped if the transaction aborts.  Trees of indexes are
 * not copied: a missing one is built at its first use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"

#define CLONE_BATCH		(PM_INTENTS_PER_BACKEND / 2)

/* Copies that are not published yet, and their owner */
typedef struct Copies
{
	StoreId		owner;
	int			flags;			/* of pm_reserve() */
	int			n;
	PmReservation r[CLONE_BATCH];
} Copies;

static void
copies_publish(Copies *c)
{
	int			n = c->n;

	c->n = 0;
	if (n > 0)
		pm_publish_batch(c->r, n);
}

/*
 * Copies what a reference leads to; "to" leads to the copy when that is published.  (After
 * an error the reservations are cancelled with the transaction.)
 */
static void
copies_add(Copies *c, PMPtr from, Size size, PMPtr *to)
{
	PmReservation *r = &c->r[c->n];

	pm_reserve(r, c->owner, size, to, 1, c->flags);
	pm_copy_nodrain(r->addr, pm_deref(from), size);
	if (++c->n == CLONE_BATCH)
		copies_publish(c);
}

/*
 * Size of a value with its checksum.  Raises an error if it is longer than its allocation:
 * what lies behind that would be copied, too.
 */
static Size
value_size(int16 attlen, PMPtr p)
{
	Size		size = value_length(attlen, pm_deref(p)) + STORE_VALUE_CRC;

	if (size > pm_allocated_size(p))
		pm_damaged("a value is longer than its allocation");
	return size;
}

/* Codes stay the same; one whose value VACUUM has freed is free in the copy, too. */
static void
clone_values(StoreHeader *target, DictionaryHeader *d, const DictionaryHeader *from)
{
	Copies		copies = {.owner = store_id_of(target)};
	uint64		n = pm_vector_count(&from->values);
	uint64		code;

	/* plans hold the address of the first chunk, also of an empty one */
	pm_vector_reserve(&d->values, 0, store_id_of(target), STORE_METADATA);
	for (code = 0; code < n; code++)
	{
		const void *old = pm_vector_get(&from->values, code);
		void	   *element;

		CHECK_FOR_INTERRUPTS();
		pm_vector_reserve(&d->values, code, store_id_of(target), STORE_METADATA);
		element = pm_vector_get(&d->values, code);
		if (from->attlen > 0)
		{
			uint32	   *check;

			memcpy(element, old, from->attlen);
			pm_flush(element, from->attlen);
			pm_vector_reserve(&d->checks, code, store_id_of(target), STORE_METADATA);
			check = pm_vector_get(&d->checks, code);
			*check = *(const uint32 *) pm_vector_get(&from->checks, code);
			pm_flush(check, sizeof(uint32));
		}
		else if (*(const PMPtr *) old != PM_NULL)
		{
			PMPtr		value = *(const PMPtr *) old;

			copies_add(&copies, value, value_size(from->attlen, value), element);
		}
	}
	copies_publish(&copies);
	pm_vector_publish(&d->values, n);
}

static void
clone_dictionary(StoreHeader *target, const DictionaryHeader *from, PMPtr *link)
{
	PmReservation r;
	DictionaryHeader *d;

	pm_reserve(&r, store_id_of(target), sizeof(DictionaryHeader), link, 1,
			   STORE_METADATA | PM_RESERVE_ZERO);
	d = r.addr;
	*d = *from;
	d->store = store_id_of(target);
	d->crc = dictionary_crc(d);
	d->index = PM_NULL;			/* made at first use */
	pm_vector_init(&d->values, from->values.elem_size, 1U << from->values.first_shift);
	pm_vector_init(&d->checks, from->checks.elem_size, 1U << from->checks.first_shift);
	pm_flush(d, sizeof(DictionaryHeader));
	pm_publish(&r);
	clone_values(target, d, from);
}

static void
clone_columns(StoreHeader *target, const StoreHeader *source)
{
	uint64		n = pm_vector_count(&source->columns);
	uint64		i;

	for (i = 0; i < n; i++)
	{
		ColumnHeader *from = column_get(source, i);
		ColumnHeader *to;

		pm_vector_reserve(&target->columns, i, store_id_of(target), STORE_METADATA);
		to = column_get(target, i);
		*to = *from;
		to->dictionary = PM_NULL;
		pm_flush(to, sizeof(ColumnHeader));
		if (from->dictionary != PM_NULL)
			clone_dictionary(target, pm_deref(from->dictionary), &to->dictionary);
	}
	/* in any order: whatever a crash leaves of a copy is dropped by the id of its store */
	pm_vector_publish(&target->columns, n);
}

static void
clone_shapes(StoreHeader *target, const StoreHeader *source)
{
	uint64		n = pm_vector_count(&source->shapes);
	uint64		i;

	for (i = 0; i < n; i++)
	{
		const ShapeHeader *from = pm_deref(*(PMPtr *) pm_vector_get(&source->shapes, i));
		Size		size = offsetof(ShapeHeader, columns) + from->ncolumns * sizeof(ShapeColumn);
		PmReservation r;
		ShapeHeader *to;
		int			k;

		pm_vector_reserve(&target->shapes, i, store_id_of(target), STORE_METADATA);
		pm_reserve(&r, store_id_of(target), size, pm_vector_get(&target->shapes, i), 1, STORE_METADATA);
		to = r.addr;
		memcpy(to, from, size);
		for (k = 0; k < to->ncolumns; k++)
		{
			if (to->columns[k].dictionary != PM_NULL)
				to->columns[k].dictionary = column_get(target, to->columns[k].column)->dictionary;
		}
		to->crc = shape_crc(to);
		pm_flush(to, size);
		pm_publish(&r);
	}
	pm_vector_publish(&target->shapes, n);
}

static inline RowWords *
row_words(BlockHeader *block, const ShapeHeader *shape, uint32 row)
{
	return (RowWords *) ((char *) block + shape->record_offset +
						 (Size) row * shape->record_stride);
}

static inline PMPtr *
reference_field(BlockHeader *block, const ShapeColumn *c, uint32 row)
{
	return (PMPtr *) ((char *) block + c->offset + (Size) row * c->stride);
}

/*
 * Adapts the copy of a block that is not published yet: it belongs to the new store, its
 * references lead nowhere, and there are no row locks.
 */
static void
adapt_block(StoreHeader *target, BlockHeader *block, const ShapeHeader *shape)
{
	uint32		row;
	int			k;

	block->store = store_id_of(target);
	block->crc = block_crc(block);
	block->links = block->successors = PM_NULL;
	memset(block->settled, 0, sizeof(block->settled));
	for (row = 0; row < block->capacity; row++)
	{
		RowWords   *words = row_words(block, shape, row);

		if (WORD_TAG(words->begin) == WORD_TAG_PROGRESS || WORD_TAG(words->end) == WORD_TAG_PROGRESS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("source database is being used by an open transaction"),
					 errdetail("It has changed sofort tables.")));
		if (WORD_TAG(words->end) != WORD_TAG_STAMP)
			words->end = WORD_EMPTY;
		else if (word_problem(words->end, false) == NULL)
			words->end = word_seal(words->end & ~END_LOCKERS);
		for (k = 0; k < shape->ncolumns; k++)
		{
			if (shape->columns[k].encoding == ENCODING_REFERENCE)
				*reference_field(block, &shape->columns[k], row) = PM_NULL;
		}
	}
}

static bool
is_null(const RowWords *words, const ShapeHeader *shape, const ShapeColumn *c)
{
	const uint8 *bitmap = (const uint8 *) words + shape->null_offset;

	return c->null_bit != SHAPE_NEVER_NULL &&
		(bitmap[c->null_bit / 8] & (1 << (c->null_bit % 8))) != 0;
}

/*
 * Copies long values, but not those that an EMPTY row has left for its next user, nor what
 * a power cut has left of a row that was undone.
 */
static void
clone_row_values(Copies *copies, BlockHeader *to, BlockHeader *from, const ShapeHeader *shape,
				 const ShapeColumn *c, int16 attlen)
{
	uint32		row;

	for (row = 0; row < from->capacity; row++)
	{
		const RowWords *words = row_words(from, shape, row);
		PMPtr		value = *reference_field(from, c, row);

		CHECK_FOR_INTERRUPTS();
		if (WORD_TAG(words->begin) == WORD_TAG_STAMP && !is_null(words, shape, c) &&
			value != PM_NULL)
			copies_add(copies, value, value_size(attlen, value),
					   reference_field(to, c, row));
	}
}

/* Copies what lies outside of the block: long values, links, successors. */
static void
clone_references(StoreHeader *target, const StoreHeader *source, BlockHeader *to,
				 BlockHeader *from, const ShapeHeader *shape)
{
	Copies		copies = {.owner = store_id_of(target),.flags = store_slab_flags(source)};
	Size		size = from->capacity * sizeof(uint64);
	int			k;

	if (from->links != PM_NULL)
		copies_add(&copies, from->links, size, &to->links);
	if (from->successors != PM_NULL)
		copies_add(&copies, from->successors, size, &to->successors);
	for (k = 0; k < shape->ncolumns; k++)
	{
		const ShapeColumn *c = &shape->columns[k];

		if (c->encoding == ENCODING_REFERENCE)
			clone_row_values(&copies, to, from, shape, c, column_get(target, c->column)->attlen);
	}
	copies_publish(&copies);
}

/*
 * The references of the copy differ, and so must the checks of its rows.  They are changed
 * by what the fields differ, so that a check that was wrong stays wrong.  Durable with the
 * commit, before which nobody knows the store.
 */
static void
renew_checks(BlockHeader *to, BlockHeader *from, const ShapeHeader *shape)
{
	ShapePlan  *plan = row_check_plan(shape);
	RowRef		copy = {.block = to};
	RowRef		original = {.block = from};

	for (uint32 row = 0; row < to->capacity; row++)
	{
		uint64		begin;

		copy.index = original.index = row;
		copy.words = row_words(to, shape, row);
		original.words = row_words(from, shape, row);
		begin = copy.words->begin;
		if (WORD_TAG(begin) == WORD_TAG_STAMP && word_problem(begin, true) == NULL)
			pm_store8(&copy.words->begin,
					  word_seal(begin ^ (row_check(plan, &copy) ^ row_check(plan, &original))
								<< BEGIN_CHECK_SHIFT));
	}
	pfree(plan);
}

/*
 * Checks what the copying of n blocks relies on: where their rows lie, and how many there
 * are.
 */
static void
check_blocks(const StoreHeader *source, uint64 first, uint32 n, Size head, Size block_size)
{
	const char *from = pm_deref(*block_entry(source, first));
	uint32		shape = ((const BlockHeader *) from)->shape;
	PMPtr		start = pm_ptr(from - head);

	if (n == 0 || n > STORE_RUN_MAX || pm_allocation_start(start) != start ||
		pm_allocated_size(start) < head + n * block_size)
		pm_damaged("a run of blocks is longer than its allocation");
	for (uint32 i = 0; i < n; i++)
	{
		const BlockHeader *b = (const BlockHeader *) (from + i * block_size);

		if (block_problem(source, b, first + i) != NULL || b->shape != shape)
			pm_damaged("the header of a block is damaged");
	}
}

/* Blocks that were allocated together, from this one on; returns how many. */
static uint32
clone_blocks(StoreHeader *target, const StoreHeader *source, uint64 first)
{
	BlockHeader *from = pm_deref(*block_entry(source, first));
	uint32		n = block_run_length(source, first);	/* (looks at the header) */
	const ShapeHeader *shape = shape_get(target, from->shape);
	bool		single = first < STORE_SINGLE_BLOCKS;
	Size		head = single ? 0 : sizeof(RunHeader);
	Size		block_size;
	PMPtr		values[STORE_RUN_MAX];
	PmReservation r;
	BlockHeader *to;
	uint32		i;

	if (shape == NULL)
		pm_damaged("the header of a block is damaged");
	block_size = !single || shape->capacity != 0 ? shape->block_size :
		shape->record_offset + (Size) from->capacity * shape->record_stride;
	check_blocks(source, first, n, head, block_size);
	pm_vector_reserve(&target->blocks, first + n - 1, store_id_of(target), STORE_METADATA);
	pm_reserve(&r, store_id_of(target), head + n * block_size, block_entry(target, first), n,
			   single ? PM_RESERVE_SHARED_SLAB : 0);
	memcpy(r.addr, (char *) from - head, head + n * block_size);
	if (!single)
	{
		RunHeader  *run = r.addr;

		run->store = store_id_of(target);
		run->crc = run_crc(run);
	}
	to = (BlockHeader *) ((char *) r.addr + head);
	for (i = 0; i < n; i++)
	{
		BlockHeader *b = (BlockHeader *) ((char *) to + i * block_size);

		adapt_block(target, b, shape);
		values[i] = pm_ptr(b);
	}
	pm_flush(r.addr, head + n * block_size);
	pm_publish_many(&r, values);
	for (i = 0; i < n; i++)
	{
		BlockHeader *b = (BlockHeader *) ((char *) to + i * block_size);

		BlockHeader *original = (BlockHeader *) ((char *) from + i * block_size);

		clone_references(target, source, b, original, shape);
		renew_checks(b, original, shape);
	}
	return n;
}

static void
clone_store(StoreHeader *target, const StoreHeader *source)
{
	uint64		b = 0;

	clone_columns(target, source);
	clone_shapes(target, source);
	while (b < store_block_count(source))
	{
		PMPtr	   *entry = block_entry(source, b);

		CHECK_FOR_INTERRUPTS();
		if (entry == NULL || *entry == PM_NULL)
			b++;				/* a hole */
		else
			b += clone_blocks(target, source, b);
		SOFORT_STOP("store-clone-blocks");
	}
	if (b > 0)
	{
		pm_vector_reserve(&target->blocks, b - 1, store_id_of(target), STORE_METADATA);
		tid_copy(target, source);
		block_set_count(target, b);
	}
}

static bool
is_table_of(void *arg, const StoreNode *node)
{
	return (store_flags(node->header) & STORE_TREE) == 0 &&
		locator_db(&node->key) == *(Oid *) arg;
}

/*
 * Checks the store as if it were opened: a copy would have new checksums, which would hide
 * damage.
 */
static void
check_source(const StoreNode *node)
{
	char		problem[128];

	if (store_node_problem(node, problem, sizeof(problem)))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a sofort table of the source database is damaged"),
				 errdetail("It has OID %u: %s.", node->rel_oid, problem),
				 errhint("Restore it from a backup, or read what is readable with sofort.salvage(), and drop it.")));
}

/* The write set names the copy before it exists. */
static void
clone_for(const StoreHeader *source, const RelFileLocator *key)
{
	StoreId		id;

	registry_drop_stale(key);
	txn_begin_write();
	id = pool_next_store_id();
	txn_log(id, TXN_ENTRY_CREATE_STORE, 0, 1);
	registry_add(id, key, source->rel_oid, store_flags(source) & (STORE_UNLOGGED | STORE_CHAINS_DIFFER),
				 (int) pm_vector_count(&source->columns));
	clone_store(store_find_by_id(id), source);
}

void
store_clone_database(Oid from_db, Oid to_db)
{
	StoreNode  *list;
	int			n;
	int			i;

	pool_require();
	txn_resolve_leftovers();
	txn_resolve_prepared();
	list = registry_list(is_table_of, &from_db, &n);
	for (i = 0; i < n; i++)
	{
		RelFileLocator key = list[i].key;

		/* its relation's file is not copied either; what has one is not dropped meanwhile */
		if (store_file_is_gone(key, true))
			continue;
		check_source(&list[i]);
		/* (in the default tablespace, which is not named, or in the same one) */
		locator_db(&key) = to_db;
		clone_for(list[i].header, &key);
	}
	if (list != NULL)
		pfree(list);
}
