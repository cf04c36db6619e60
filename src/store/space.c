/*-------------------------------------------------------------------------
 *
 * space.c
 *	  Which row ids may be filled: the append position, free ranges, the
 *	  quarantine, and what this transaction has reserved.
 *
 * All of it is volatile; on the medium a free row is one whose begin word is EMPTY.
 * Each EMPTY row has at most one owner: the append range, one entry of the free list or
 * of the quarantine, or one reservation.  EMPTY rows that are older than this server
 * life have none until their block is collected, which happens once.  What is lost by a
 * crash, or because the arena is full, is found again by VACUUM in the next life.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/store_internal.h"

#define MISSES_TO_REFRESH	32
#define CLEAR_TOGETHER		64	/* chunks of a free list that VACUUM takes away at a time */

static dlist_head active_list = DLIST_STATIC_INIT(active_list);

/* ---- lists; space lock held ---- */

static FreeChunk *
new_chunk(StoreShared *shared, uint32 size, uint64 usable_after)
{
	Size		bytes = offsetof(FreeChunk, entry) + size * sizeof(uint64);
	FreeChunk  *c = arena_alloc(bytes, ARENA_NO_OOM);

	if (c == NULL)
		return NULL;
	c->next = NULL;
	c->usable_after = usable_after;
	c->n = 0;
	c->size = size;
	pg_atomic_fetch_add_u64(&shared->bytes_dram, bytes);
	return c;
}

static void
free_chunk(StoreShared *shared, FreeChunk *c)
{
	pg_atomic_fetch_sub_u64(&shared->bytes_dram,
							offsetof(FreeChunk, entry) + c->size * sizeof(uint64));
	arena_free(c);
}

static uint32
next_chunk_size(const FreeChunk *last, uint32 first)
{
	return last == NULL ? first : Min(last->size * 2, FREE_CHUNK_MAX);
}

/*
 * Rows in blocks of the newest shape take every value, others perhaps not: they are in a
 * list of their own.  (A new shape may come at any time: a caller that needs the newest
 * checks again.)  Rows of retired shapes wait for VACUUM.
 */
static FreeChunk **
list_of(StoreShared *shared, uint64 row)
{
	const BlockHeader *b = block_get(shared->header, row / SOFORT_BLOCK_ROWS);

	if (b != NULL && b->shape == pg_atomic_read_u32(&shared->current_shape))
		return &shared->free;
	return b != NULL && b->shape < pg_atomic_read_u32(&shared->retired_below) ?
		&shared->free_retired : &shared->free_older;
}

/* Do these rows follow each other, in one block? */
static bool
adjoin(uint64 row, uint32 count, uint64 next)
{
	return row + count == next && next % SOFORT_BLOCK_ROWS != 0;
}

/* Inserts into a chunk whose ranges descend; true if a range that is there was extended. */
static bool
insert_range(FreeChunk *c, uint64 row, uint32 count)
{
	uint64	   *e = c->entry;
	uint32		i = c->n;

	while (i > 0 && FREE_ROW(e[i - 1]) < row)
		i--;
	if (i < c->n && adjoin(FREE_ROW(e[i]), FREE_COUNT(e[i]), row))
		e[i] = FREE_MAKE(FREE_ROW(e[i]), FREE_COUNT(e[i]) + count);
	else if (i > 0 && adjoin(row, count, FREE_ROW(e[i - 1])))
		e[i - 1] = FREE_MAKE(row, count + FREE_COUNT(e[i - 1]));
	else
	{
		memmove(&e[i + 1], &e[i], (c->n - i) * sizeof(uint64));
		e[i] = FREE_MAKE(row, count);
		c->n++;
		return false;
	}
	return true;
}

/*
 * In the first chunk the ranges descend, and the last is taken first: as on heap,
 * new versions of a small table lie in the order in which they were made.
 */
static void
push_free(StoreShared *shared, uint64 row, uint32 count)
{
	FreeChunk **list = list_of(shared, row);
	FreeChunk  *c = *list;

	if (c == NULL || c->n == c->size)
	{
		FreeChunk  *made = new_chunk(shared, next_chunk_size(c, FREE_IN_ORDER), 0);

		if (made == NULL)
			return;
		made->next = c;
		*list = c = made;
	}
	if (c->next != NULL)
		c->entry[c->n++] = FREE_MAKE(row, count);
	else if (insert_range(c, row, count))
		return;
	if (list != &shared->free_retired)
		pg_atomic_fetch_add_u32(&shared->nfree, 1);
}

/* Is the list so short that rows should be added before the first is taken? */
static bool
is_short(const FreeChunk *list)
{
	return list == NULL || (list->next == NULL && list->n < FREE_IN_ORDER / 2);
}

/* Takes the oldest chunk out of the quarantine if its quarantine is over. */
static FreeChunk *
pop_expired(StoreShared *shared, uint64 horizon)
{
	FreeChunk  *c = shared->quarantine_head;

	if (c == NULL)
		return NULL;
	if (c->usable_after == FREE_OPEN)
		c->usable_after = txn_next_fxid();
	if (c->usable_after >= horizon)
		return NULL;
	shared->quarantine_head = c->next;
	if (c->next == NULL)
		shared->quarantine_tail = NULL;
	c->next = NULL;
	return c;
}

/* ---- public ---- */

/* Does the row lie in a block whose rows are not filled any more? */
bool
store_row_is_retired(const StoreDesc *store, const RowRef *ref)
{
	return ref->block->shape < pg_atomic_read_u32(&store->shared->retired_below);
}

/* Frees rows that nobody has seen since they became EMPTY, or whose quarantine is over. */
void
space_give(StoreShared *shared, uint64 row, uint32 count)
{
	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	push_free(shared, row, count);
	LWLockRelease(space_lock(shared->id));
}

static bool
is_left_empty(StoreDesc *store, uint64 block, uint32 index, RowRef *ref)
{
	return header_locate(store->header, block * SOFORT_BLOCK_ROWS + index, ref) &&
		ref->row < store->shared->first_row && word_read(&ref->words->begin) == WORD_EMPTY;
}

/*
 * A killed process may have made a root EMPTY without a drain.  That must be durable before
 * the row gets a link of its own: see drain_dissolved().
 */
static void
flush_left_empty(StoreDesc *store, uint64 block)
{
	uint32		i;
	RowRef		ref;

	if (pm_found_is_durable())
		return;
	for (i = 0; i < block_capacity(block); i++)
	{
		if (is_left_empty(store, block, i, &ref))
			pm_flush(&ref.words->begin, sizeof(uint64));
	}
	pm_drain();
}

/*
 * The EMPTY rows of a block from an earlier life get their owner: the free
 * list.  Called before the first row of the block is freed in this life, and by
 * VACUUM.  No space lock held; a chain lock may be.
 */
void
space_before_free(StoreDesc *store, uint64 block)
{
	StoreShared *shared = store->shared;
	uint32		i;
	RowRef		ref;

	block_append_init(store);
	if (block * SOFORT_BLOCK_ROWS >= shared->first_row ||
		(((volatile uint8 *) shared->collected)[block / 8] & (1 << (block % 8))))
		return;
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	if (!block_is_marked(shared->collected, block))
	{
		SOFORT_STOP("store-block-collecting");
		flush_left_empty(store, block);
		for (i = 0; i < block_capacity(block); i++)
		{
			if (is_left_empty(store, block, i, &ref))
				space_give(shared, ref.row, 1);
		}

		/*
		 * Last, because whoever sees the bit frees rows at once, and the loop must not take
		 * those for EMPTY ones of an earlier life.
		 */
		pg_write_barrier();
		((volatile uint8 *) shared->collected)[block / 8] |= 1 << (block % 8);
	}
	LWLockRelease(structure_lock(store->id));
}

/*
 * A row whose begin word was just made EMPTY: nobody may fill it until every
 * transaction that runs now has ended.
 */
void
space_quarantine(StoreShared *shared, uint64 row)
{
	FreeChunk  *c;

	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	c = shared->quarantine_tail;
	if (c != NULL && c->usable_after == FREE_OPEN && c->n > 0)
	{
		uint64		e = c->entry[c->n - 1];

		if (FREE_ROW(e) + FREE_COUNT(e) == row && row % SOFORT_BLOCK_ROWS != 0)
		{
			c->entry[c->n - 1] = FREE_MAKE(FREE_ROW(e), FREE_COUNT(e) + 1);
			LWLockRelease(space_lock(shared->id));
			return;
		}
	}
	if (c == NULL || c->usable_after != FREE_OPEN || c->n == c->size)
	{
		FreeChunk  *made = new_chunk(shared, next_chunk_size(c, FREE_CHUNK_MIN),
									   FREE_OPEN);

		if (made == NULL)
		{
			LWLockRelease(space_lock(shared->id));
			return;
		}
		if (c == NULL)
			shared->quarantine_head = made;
		else
		{
			if (c->usable_after == FREE_OPEN)
				c->usable_after = txn_next_fxid();
			c->next = made;
		}
		shared->quarantine_tail = c = made;
	}
	c->entry[c->n++] = FREE_MAKE(row, 1);
	pg_atomic_fetch_add_u32(&shared->nfree, 1);
	LWLockRelease(space_lock(shared->id));
}

/*
 * The quarantine of rows freed so far will end when the transactions that run now have
 * ended.
 */
void
space_seal(StoreShared *shared)
{
	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	if (shared->quarantine_tail != NULL && shared->quarantine_tail->usable_after == FREE_OPEN)
		shared->quarantine_tail->usable_after = txn_next_fxid();
	LWLockRelease(space_lock(shared->id));
}

/* Puts a chunk into the list that is the right one now */
static void
push_list_again(StoreShared *shared, FreeChunk *c, bool counted)
{
	while (c != NULL)
	{
		FreeChunk  *next = c->next;
		uint32		i;

		for (i = 0; i < c->n; i++)
			push_free(shared, FREE_ROW(c->entry[i]), FREE_COUNT(c->entry[i]));
		if (counted)
			pg_atomic_fetch_sub_u32(&shared->nfree, c->n);
		free_chunk(shared, c);
		c = next;
	}
}

/*
 * There is a new shape: rows of the one before may no longer take every value, and rows of
 * shapes before retired_below are not to be filled.
 */
void
space_shape_changed(StoreShared *shared, uint32 retired_below)
{
	FreeChunk  *newest;
	FreeChunk  *older;
	FreeChunk  *retired;

	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	newest = shared->free;
	older = shared->free_older;
	retired = shared->free_retired;
	shared->free = shared->free_older = NULL;
	if (retired_below != pg_atomic_read_u32(&shared->retired_below))
	{
		pg_atomic_write_u32(&shared->retired_below, retired_below);
		shared->free_retired = NULL;
		push_list_again(shared, older, true);
		push_list_again(shared, newest, true);
		push_list_again(shared, retired, false);
	}
	else
	{
		FreeChunk **end = &newest;

		while (*end != NULL)
			end = &(*end)->next;
		*end = older;
		shared->free_older = newest;
	}
	LWLockRelease(space_lock(shared->id));
}

/* Frees the values by reference that EMPTY rows, which nobody can fill, still have */
static void
free_values(StoreDesc *store, uint64 first, uint32 n)
{
	ReferenceBatch batch = {.owner = store->id,.n = 0};
	uint64		row;

	for (row = first; row < first + n; row++)
	{
		RowRef		ref;

		if (store_locate(store, row, &ref))
			row_note_references(&batch, plan_get(store, ref.block->shape), &ref);
	}
	references_free(&batch);
}

/*
 * The rows of an expired chunk become free.  Those of retired shapes get no owner, and
 * their values are freed.  Space lock held, but released in between for these.
 */
static void
free_expired(StoreDesc *store, FreeChunk *c)
{
	StoreShared *shared = store->shared;
	uint32		nretired = 0;
	uint32		i;

	pg_atomic_fetch_sub_u32(&shared->nfree, c->n);
	for (i = 0; i < c->n; i++)
	{
		if (list_of(shared, FREE_ROW(c->entry[i])) == &shared->free_retired)
			c->entry[nretired++] = c->entry[i];
		else
			push_free(shared, FREE_ROW(c->entry[i]), FREE_COUNT(c->entry[i]));
	}
	if (nretired > 0)
	{
		LWLockRelease(space_lock(store->id));
		for (i = 0; i < nretired; i++)
			free_values(store, FREE_ROW(c->entry[i]), FREE_COUNT(c->entry[i]));
		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	}
	free_chunk(shared, c);
}

/*
 * Takes up to "want" rows of one block from the free lists; newest: only rows in blocks of
 * the newest shape.
 */
static bool
space_take(StoreDesc *store, uint32 want, bool newest, Reservation *r)
{
	static int	misses = 0;
	StoreShared *shared = store->shared;
	struct StoreLocal *local = store->local;
	FreeChunk **list = &store->shared->free;
	FreeChunk  *c;
	uint64	   *e;

	if (pg_atomic_read_u32(&shared->nfree) == 0)
		return false;
	/* rows that become free while a statement changes a few rows do not come in between */
	if (local->reserved == 0 || local->reserved >= FREE_IN_ORDER)
	{
		local->horizon = store_cached_horizon(misses >= MISSES_TO_REFRESH);
		if (misses >= MISSES_TO_REFRESH)
			misses = 0;
	}
	LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
	while (is_short(*list) && (c = pop_expired(shared, local->horizon)) != NULL)
		free_expired(store, c);
	if (*list == NULL && !newest)
		list = &shared->free_older;
	c = *list;
	if (c == NULL)
	{
		LWLockRelease(space_lock(store->id));
		misses++;
		return false;
	}
	e = &c->entry[c->n - 1];
	r->row = FREE_ROW(*e);
	r->count = Min(want, FREE_COUNT(*e));
	if (r->count < FREE_COUNT(*e))
		*e = FREE_MAKE(r->row + r->count, FREE_COUNT(*e) - r->count);
	else
	{
		pg_atomic_fetch_sub_u32(&shared->nfree, 1);
		if (--c->n == 0)
		{
			*list = c->next;
			free_chunk(shared, c);
		}
	}
	LWLockRelease(space_lock(store->id));
	return true;
}

/*
 * Nobody fills rows of retired shapes, so nobody else frees the values that they had.
 * After that they have no owner, and go with their run.
 */
static void
clear_retired(StoreDesc *store)
{
	StoreShared *shared = store->shared;

	for (;;)
	{
		FreeChunk  *c;
		uint32		i;

		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		if ((c = shared->free_retired) != NULL)
			shared->free_retired = c->next;
		LWLockRelease(space_lock(store->id));
		if (c == NULL)
			break;
		for (i = 0; i < c->n; i++)
		{
			free_values(store, FREE_ROW(c->entry[i]), FREE_COUNT(c->entry[i]));
			SOFORT_STOP("store-retired-cleared");
		}
		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		free_chunk(shared, c);
		LWLockRelease(space_lock(store->id));
	}
}

static bool
has_references(StoreDesc *store)
{
	uint32		n = (uint32) pm_vector_count(&store->header->shapes);

	for (uint32 i = 0; i < n; i++)
		if (plan_get(store, i)->nrefs > 0)
			return true;
	return false;
}

/*
 * Takes the next chunks of a list that are to be cleared.  The first one stays, so that
 * insertions find rows meanwhile, unless it is the only one.
 */
static FreeChunk *
detach_chunks(FreeChunk **list, int *n)
{
	FreeChunk **first = *list != NULL && (*list)->next != NULL ? &(*list)->next : list;
	FreeChunk **end = first;
	FreeChunk  *detached = *first;

	for (*n = 0; *n < CLEAR_TOGETHER && *end != NULL; (*n)++)
		end = &(*end)->next;
	*first = *end;
	if (*n > 0)
		*end = NULL;
	return detached;
}

static void
append_chunks(FreeChunk **list, FreeChunk *chunks)
{
	while (*list != NULL)
		list = &(*list)->next;
	*list = chunks;
}

static int
count_chunks(StoreShared *shared, FreeChunk *const *list)
{
	int			n = 0;

	LWLockAcquire(space_lock(shared->id), LW_SHARED);
	for (const FreeChunk *c = *list; c != NULL; c = c->next)
		n++;
	LWLockRelease(space_lock(shared->id));
	return n;
}

/*
 * Frees the values that rows of a free list still have: rows that were EMPTY when this
 * server life began, and those whose quarantine an insertion has ended.  Their next user
 * would do it, but there may be none.
 */
static void
clear_free(StoreDesc *store, FreeChunk **list)
{
	StoreShared *shared = store->shared;
	int			left = count_chunks(shared, list);

	while (left > 0)
	{
		FreeChunk  *chunks;
		uint32		newest;
		uint32		retired_below;
		int			n;

		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		newest = pg_atomic_read_u32(&shared->current_shape);
		retired_below = pg_atomic_read_u32(&shared->retired_below);
		chunks = detach_chunks(list, &n);
		LWLockRelease(space_lock(store->id));
		if (n == 0)
			break;
		left -= n;
		for (const FreeChunk *c = chunks; c != NULL; c = c->next)
			for (uint32 i = 0; i < c->n; i++)
				free_values(store, FREE_ROW(c->entry[i]), FREE_COUNT(c->entry[i]));
		SOFORT_STOP("store-free-cleared");
		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		if (newest == pg_atomic_read_u32(&shared->current_shape) &&
			retired_below == pg_atomic_read_u32(&shared->retired_below))
			append_chunks(list, chunks);
		else
			push_list_again(shared, chunks, true);
		LWLockRelease(space_lock(store->id));
	}
}

/*
 * VACUUM: frees the values of rows whose quarantine is over, which become usable, of free
 * rows, and of rows of retired shapes.
 */
void
space_drain(StoreDesc *store)
{
	StoreShared *shared = store->shared;
	uint64		horizon = store_cached_horizon(true);

	if (has_references(store))
	{
		clear_free(store, &shared->free);
		clear_free(store, &shared->free_older);
	}
	for (;;)
	{
		FreeChunk  *c;
		uint32		i;

		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		c = pop_expired(shared, horizon);
		LWLockRelease(space_lock(store->id));
		if (c == NULL)
			break;
		for (i = 0; i < c->n; i++)
		{
			uint64		first = FREE_ROW(c->entry[i]);
			uint32		n = FREE_COUNT(c->entry[i]);

			free_values(store, first, n);
			space_give(shared, first, n);
			pg_atomic_fetch_sub_u32(&shared->nfree, 1);
		}
		LWLockAcquire(space_lock(store->id), LW_EXCLUSIVE);
		free_chunk(shared, c);
		LWLockRelease(space_lock(store->id));
	}
	clear_retired(store);
}

/* No empty chunk may stay: space_take() looks into the first. */
static void
forget_marked_in(StoreShared *shared, FreeChunk **list, const uint8 *marked, uint64 n)
{
	bool		counted = list != &shared->free_retired;
	FreeChunk  *c;

	while ((c = *list) != NULL)
	{
		uint32		kept = 0;
		uint32		i;

		for (i = 0; i < c->n; i++)
		{
			uint64		b = FREE_ROW(c->entry[i]) / SOFORT_BLOCK_ROWS;

			if (b >= n || !block_is_marked(marked, b))
				c->entry[kept++] = c->entry[i];
		}
		if (counted)
			pg_atomic_fetch_sub_u32(&shared->nfree, c->n - kept);
		c->n = kept;
		if (kept > 0)
			list = &c->next;
		else
		{
			*list = c->next;
			free_chunk(shared, c);
		}
	}
}

/*
 * Of n blocks the marked ones are about to be released: unmarks those with rows in
 * quarantine.  The relation is locked exclusively, here and below, so no row becomes free.
 */
void
space_unmark_quarantined(StoreShared *shared, uint8 *marked, uint64 n)
{
	FreeChunk  *c;
	uint32		i;

	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	for (c = shared->quarantine_head; c != NULL; c = c->next)
		for (i = 0; i < c->n; i++)
			if (FREE_ROW(c->entry[i]) / SOFORT_BLOCK_ROWS < n)
				block_unmark(marked, FREE_ROW(c->entry[i]) / SOFORT_BLOCK_ROWS);
	LWLockRelease(space_lock(shared->id));
}

/* The marked blocks are about to be released: forgets their free rows. */
void
space_forget_marked(StoreShared *shared, const uint8 *marked, uint64 n)
{
	uint64		b;

	LWLockAcquire(space_lock(shared->id), LW_EXCLUSIVE);
	forget_marked_in(shared, &shared->free, marked, n);
	forget_marked_in(shared, &shared->free_older, marked, n);
	forget_marked_in(shared, &shared->free_retired, marked, n);
	for (b = 0; b < n; b++)
		if (block_is_marked(marked, b))
			spread_forget_blocks(shared, b, 1);
	LWLockRelease(space_lock(shared->id));
}

/* The store goes away or becomes empty.  No ERROR. */
void
space_free_all(StoreShared *shared)
{
	FreeChunk  *lists[4];
	int			i;

	lists[0] = shared->free;
	lists[1] = shared->quarantine_head;
	lists[2] = shared->free_older;
	lists[3] = shared->free_retired;
	for (i = 0; i < (int) lengthof(lists); i++)
	{
		while (lists[i] != NULL)
		{
			FreeChunk  *next = lists[i]->next;

			free_chunk(shared, lists[i]);
			lists[i] = next;
		}
	}
	shared->free = shared->free_older = shared->free_retired = NULL;
	shared->quarantine_head = shared->quarantine_tail = NULL;
	pg_atomic_write_u32(&shared->nfree, 0);
	spread_forget_all(shared);
}

/* ---- reservations ---- */

static void
activate(struct StoreLocal *local)
{
	if (!local->is_active)
	{
		dlist_push_head(&active_list, &local->active);
		local->is_active = true;
	}
}

/* Takes up to "want" rows at the append position; false if there are none. */
static bool
take_append(StoreDesc *store, uint32 want, Reservation *r)
{
	pg_atomic_uint64 *append = &store->shared->append;
	uint64		a = pg_atomic_read_u64(append);

	SOFORT_STOP("store-append");
	while (FREE_COUNT(a) > 0)
	{
		/* (decided before there is a row, so it is asked behind that) */
		bool		spread = store->header->tid_fill != 0;
		uint64		row = FREE_ROW(a);
		uint32		n = Min(want, FREE_COUNT(a));

		n = Min(n, SOFORT_BLOCK_ROWS - row % SOFORT_BLOCK_ROWS);
		if (spread && (n = spread_room(store, row, n)) == 0)
		{
			spread_step_over(store);
			a = pg_atomic_read_u64(append);
			continue;
		}
		if (pg_atomic_compare_exchange_u64(append, &a, FREE_MAKE(row + n, FREE_COUNT(a) - n)))
		{
			r->row = row;
			r->count = n;
			if (spread)
				spread_step_over(store);	/* updates may want them now */
			return true;
		}
	}
	return false;
}

/* On return the main reservation holds at least one row; "want" more are expected. */
void
space_reserve(Relation rel, StoreDesc *store, uint32 want)
{
	struct StoreLocal *local = store->local;
	Reservation *r = &local->main;

	if (r->count > 0)
		return;
	activate(local);
	/* 1, 1, 2, 4, ... within a transaction */
	want = Max(want, Max(r->grow, 1));
	want = Min(want, SOFORT_BLOCK_ROWS);
	r->misfits = 0;
	if (!space_take(store, want, local->avoid_older, r))
	{
		while (!take_append(store, want, r))
			block_extend(rel, store, false);
		if (store->header->tid_fill != 0)
			spread_complete_block(rel, store);
	}
	r->grow = r->grow == 0 ? 1 : Min(Max(want * 2, 2), SOFORT_BLOCK_ROWS);
	local->reserved += r->count;
}

static bool
is_of_newest_shape(StoreDesc *store, uint64 row)
{
	RowRef		ref;

	return store_locate(store, row, &ref) &&
		ref.block->shape == pg_atomic_read_u32(&store->shared->current_shape);
}

/* On return the other reservation holds one row in a block of the newest shape. */
void
space_reserve_other(Relation rel, StoreDesc *store)
{
	struct StoreLocal *local = store->local;

	activate(local);
	if (local->other.count > 0)
	{
		if (is_of_newest_shape(store, local->other.row))
			return;
		space_give(store->shared, local->other.row, 1);
		local->other.count = 0;
	}
	for (;;)
	{
		bool		appended = false;

		if (space_take(store, 1, true, &local->other) ||
			(appended = take_append(store, 1, &local->other)))
		{
			if (is_of_newest_shape(store, local->other.row))
				return;
			/* there is a newer shape: now to the other list */
			space_give(store->shared, local->other.row, 1);
			local->other.count = 0;
			if (!appended)
				continue;
		}
		block_extend(rel, store, true);
	}
}

/*
 * On return the near reservation holds a row of the block in which "row" lies (see tid.c);
 * false if there is none.
 */
bool
space_reserve_near(Relation rel, StoreDesc *store, uint64 row)
{
	struct StoreLocal *local = store->local;
	uint64		tid_block = row_to_ordinal(row) / store->header->tid_rows;

	if (local->near.count > 0)
	{
		if (local->near_block == tid_block)
			return true;
		space_give(store->shared, local->near.row, 1);
		local->near.count = 0;
	}
	if (!spread_take(rel, store, row, &local->near.row))
		return false;
	activate(local);
	local->near.count = 1;
	local->near_block = tid_block;
	return true;
}

static void
give_back(StoreShared *shared, Reservation *r)
{
	uint64		a = pg_atomic_read_u64(&shared->append);

	if (r->count > 0)
	{
		/* directly before the append position: move that back */
		if (FREE_COUNT(a) == 0 || FREE_ROW(a) != r->row + r->count ||
			!pg_atomic_compare_exchange_u64(&shared->append, &a,
											FREE_MAKE(r->row, FREE_COUNT(a) + r->count)))
			space_give(shared, r->row, r->count);
	}
	memset(r, 0, sizeof(Reservation));
}

/* Unused reservations go back.  No palloc, no ERROR. */
void
space_end_of_xact(void)
{
	while (!dlist_is_empty(&active_list))
	{
		struct StoreLocal *local = dlist_container(struct StoreLocal, active,
												   dlist_pop_head_node(&active_list));

		local->is_active = false;
		local->avoid_older = false;
		local->reserved = 0;
		give_back(local->desc.shared, &local->main);
		give_back(local->desc.shared, &local->other);
		give_back(local->desc.shared, &local->near);
	}
}

/* Forgets the reservations in a store that is gone or empty. */
void
space_forget(struct StoreLocal *local)
{
	if (local->is_active)
		dlist_delete(&local->active);
	local->is_active = false;
	memset(&local->main, 0, sizeof(Reservation));
	memset(&local->other, 0, sizeof(Reservation));
	memset(&local->near, 0, sizeof(Reservation));
}
