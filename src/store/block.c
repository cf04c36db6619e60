/*-------------------------------------------------------------------------
 *
 * block.c
 *	  Blocks, runs and the block directory; the append position.
 *
 * Blocks 0..4 have 8 to 128 rows, all later ones 256.  Blocks 0..7 are
 * allocated one by one, in slabs shared with other small stores; later ones in
 * runs: one segment, a RunHeader, consecutive blocks.  Directory entries are
 * published before nblocks counts them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "utils/relcache.h"

#define TAIL_BLOCKS		64		/* blocks that are searched for the append position */
#define LINKS_TOGETHER	16		/* vectors of links that are made at a time, at most */
#define LINKS_GAP		2		/* blocks left out between those that are made in turn */
#define REVIEW_ROWS		4096	/* new rows after which encodings are looked at again, at least */

bool
row_tid_is_valid(const ItemPointerData *tid)
{
	OffsetNumber o = ItemPointerGetOffsetNumberNoCheck(tid);

	return o >= 1 && o <= SOFORT_BLOCK_ROWS &&
		ItemPointerGetBlockNumberNoCheck(tid) != InvalidBlockNumber;
}

uint32
block_capacity(uint64 block)
{
	return block < STORE_SMALL_BLOCKS ? SOFORT_FIRST_BLOCK_ROWS << block : SOFORT_BLOCK_ROWS;
}

PMPtr *
block_entry(const StoreHeader *header, uint64 block)
{
	return pm_vector_get(&header->blocks, block);
}

BlockHeader *
block_get(const StoreHeader *header, uint64 block)
{
	PMPtr	   *entry;
	PMPtr		p;
	BlockHeader *b;

	if (block >= store_block_count(header))
		return NULL;
	entry = block_entry(header, block);
	if (entry == NULL)
		return NULL;
	p = word_read(entry);
	if (p == PM_NULL)
		return NULL;
	b = pm_deref(p);
	/* a wrong capacity or shape would lead readers and writers out of the block */
	if (unlikely(b->head_check != block_head_check(b)))
		pm_damaged("the header of a block is damaged");
	return b;
}

BlockNumber
store_nblocks(StoreDesc *store)
{
	return (BlockNumber) store_block_count(store->header);
}

BlockHeader *
store_block(StoreDesc *store, BlockNumber block)
{
	return block_get(store->header, block);
}

/*
 * store_locate() without a descriptor.  Also called in the postmaster, where nothing may
 * raise an error: what damaged references lead to counts as having no storage.
 */
bool
header_locate(const StoreHeader *header, uint64 row, RowRef *ref)
{
	uint64		number = row / SOFORT_BLOCK_ROWS;
	const PMPtr *entry = number < store_block_count(header) ? block_entry(header, number) : NULL;
	BlockHeader *block = entry == NULL ? NULL : pm_deref_quietly(word_read(entry));
	uint32		index = row % SOFORT_BLOCK_ROWS;
	ShapeHeader *s;

	if (block == NULL || block->head_check != block_head_check(block) ||
		index >= block->capacity)
		return false;
	s = shape_get(header, block->shape);
	if (s == NULL)
		return false;
	ref->row = row;
	ref->block = block;
	ref->index = index;
	ref->words = (RowWords *) ((char *) block + s->record_offset + (Size) index * s->record_stride);
	return true;
}

/* The record's line, while that of the header is still on its way */
static inline void
prefetch_record(const StoreDesc *store, const void *block, uint32 index)
{
	const ShapePlan *guess = store->local->guess;

	if (likely(guess != NULL))
		__builtin_prefetch((const char *) block + guess->record_offset +
						   (Size) index * guess->record_stride);
}

void
store_prefetch(const StoreDesc *store, uint64 row)
{
	uint64		number = row / SOFORT_BLOCK_ROWS;
	const PMPtr *entry = number < store_block_count(store->header) ?
		block_entry(store->header, number) : NULL;
	const BlockHeader *block = entry == NULL ? NULL : pm_deref_quietly(word_read(entry));

	if (block == NULL)
		return;
	__builtin_prefetch(block);
	prefetch_record(store, block, row % SOFORT_BLOCK_ROWS);
}

bool
store_locate(StoreDesc *store, uint64 row, RowRef *ref)
{
	BlockHeader *block = block_get(store->header, row / SOFORT_BLOCK_ROWS);
	uint32		index = row % SOFORT_BLOCK_ROWS;
	const ShapePlan *plan;

	if (unlikely(block == NULL))
		return false;
	/* the header line and the record line, at once */
	prefetch_record(store, block, index);
	if (unlikely(index >= block->capacity))
		return false;
	plan = plan_get(store, block->shape);
	if (unlikely(plan != store->local->guess))
		store->local->guess = plan;
	ref->row = row;
	ref->block = block;
	ref->index = index;
	ref->words = (RowWords *) ((char *) block + plan->record_offset +
							   (Size) index * plan->record_stride);
	return true;
}

void
store_cursor_move(StoreDesc *store, BlockCursor *cursor, uint64 block)
{
	BlockHeader *header = block_get(store->header, block);
	const ShapePlan *plan;

	cursor->block = block;
	cursor->capacity = 0;
	cursor->rows = block_capacity(block);
	if (header == NULL)
		return;
	plan = plan_get(store, header->shape);
	cursor->header = header;
	cursor->records = (char *) header + plan->record_offset;
	cursor->stride = plan->record_stride;
	cursor->capacity = header->capacity;
}

/* Number of blocks that were allocated together with this one, their first. */
uint32
block_run_length(const StoreHeader *header, uint64 block)
{
	BlockHeader *b = block_get(header, block);
	const RunHeader *run;

	if (b == NULL || block < STORE_SINGLE_BLOCKS)
		return 1;
	run = (RunHeader *) b - 1;
	if (run->crc != run_crc(run))
		pm_damaged("checksum of a run is wrong");
	return run->nblocks;
}

/*
 * The header of the run that begins with this block; NULL: none does.  Told by the
 * allocation, because before other blocks lie the last rows of the block before them.
 */
const RunHeader *
block_begins_run(const BlockHeader *b, uint64 number)
{
	const RunHeader *run = (const RunHeader *) b - 1;

	return number >= STORE_SINGLE_BLOCKS && pm_allocation_start(pm_ptr(run)) == pm_ptr(run) ?
		run : NULL;
}

/* ---- growing; structure lock held ---- */

static void
fill_header(BlockHeader *b, StoreDesc *store, uint64 number, const ShapeHeader *shape)
{
	b->magic = SOFORT_BLOCK_MAGIC;
	b->capacity = block_capacity(number);
	b->shape = shape->id;
	b->store = store->id;
	b->block_number = number;
	memset(b->unused, 0, sizeof(b->unused));
	memset(b->settled, 0, sizeof(b->settled));
	b->crc = block_crc(b);
	b->head_check = block_head_check(b);
	pm_flush(b, sizeof(BlockHeader));
}

static void
make_single(StoreDesc *store, uint64 number, const ShapeHeader *shape)
{
	Size		size = shape->capacity != 0 ? shape->block_size :
		shape->record_offset + (Size) block_capacity(number) * shape->record_stride;
	PmReservation r;

	pm_reserve(&r, store->id, size, block_entry(store->header, number), 1,
			   PM_RESERVE_SHARED_SLAB | PM_RESERVE_ZERO);
	fill_header(r.addr, store, number, shape);
	pm_publish(&r);
}

static void
make_run(StoreDesc *store, uint64 first, uint32 n, const ShapeHeader *shape)
{
	PMPtr		values[STORE_RUN_MAX];
	PmReservation r;
	RunHeader  *run;
	uint32		i;

	pm_reserve(&r, store->id, sizeof(RunHeader) + (Size) n * shape->block_size,
			   block_entry(store->header, first), n, PM_RESERVE_ZERO);
	run = r.addr;
	run->magic = SOFORT_RUN_MAGIC;
	run->nblocks = n;
	run->first_block = first;
	run->store = store->id;
	run->block_size = shape->block_size;
	run->crc = run_crc(run);
	pm_flush(run, sizeof(RunHeader));
	for (i = 0; i < n; i++)
	{
		BlockHeader *b = (BlockHeader *) ((char *) (run + 1) + (Size) i * shape->block_size);

		fill_header(b, store, first + i, shape);
		values[i] = pm_ptr(b);
	}
	pm_publish_many(&r, values);
}

/* Part of what the pool hands out for a request of this size that is used. */
static double
fill_factor(Size used)
{
	return used <= PM_SLAB_MAX ? 0.9 : (double) used / TYPEALIGN(PM_GRANULE, used);
}

/*
 * How many blocks to make at once, at most "room".  Whole granules should be filled; but on
 * average half of the last run is unused.
 */
static uint32
choose_run(uint64 nblocks, Size block_size, uint32 room)
{
	uint32		best = 1;
	double		best_use = 0;
	uint32		n;

	for (n = 1; n <= Min(room, STORE_RUN_MAX) && n <= nblocks; n++)
	{
		double		use = fill_factor(sizeof(RunHeader) + n * block_size) *
			(1.0 - n / (2.0 * nblocks));

		if (use > best_use)
		{
			best = n;
			best_use = use;
		}
	}
	return best;
}

/* Entries from "block" on that may belong to one run: unused, in one chunk. */
static uint32
room_at(const StoreHeader *header, uint64 block, uint64 limit)
{
	uint64		within;
	int			chunk = pm_vector_chunk(&header->blocks, block, &within);
	uint64		left = pm_vector_chunk_elems(&header->blocks, chunk) - within;
	uint32		n = 0;

	while (n < Min(left, STORE_RUN_MAX) && (limit == 0 || block + n < limit) &&
		   *block_entry(header, block + n) == PM_NULL)
		n++;
	return n;
}

/* The first block that was released, UINT64_MAX if there is none. */
static uint64
find_hole(StoreDesc *store)
{
	StoreShared *shared = store->shared;
	uint64		n = store_block_count(store->header);
	uint64		b;

	if (!shared->holes)
		return PG_UINT64_MAX;
	for (b = shared->hole_from; b < n; b++)
	{
		if (*block_entry(store->header, b) == PM_NULL)
		{
			shared->hole_from = b;
			return b;
		}
	}
	shared->holes = false;
	return PG_UINT64_MAX;
}

/* Durably; never more than the vector counts. */
void
block_set_count(StoreHeader *header, uint64 n)
{
	bool		more = n > store_block_count(header);

	if (more)
		pm_vector_publish(&header->blocks, n);
	pm_store8_persist(&header->nblocks, PM_SEAL(n));
	if (!more)
		pm_vector_publish(&header->blocks, n);
}

/* Counts blocks that are published but, because of a crash, not counted. */
static void
adopt_uncounted(StoreHeader *header)
{
	uint64		n = store_block_count(header);

	for (;;)
	{
		PMPtr	   *entry = block_entry(header, n);

		if (entry == NULL || *entry == PM_NULL)
			break;
		n++;
	}
	if (n != store_block_count(header))
		block_set_count(header, n);
}

static uint64
make_append(uint64 row, uint64 count)
{
	return row | (count << 40);
}

/*
 * First use after a start: the append position is the EMPTY tail of the last
 * blocks.  EMPTY rows before it wait for VACUUM, which collects them once per
 * block.  Structure lock held.
 */
static void
find_append_position(StoreDesc *store)
{
	StoreHeader *header = store->header;
	StoreShared *shared = store->shared;
	uint64		n;
	uint64		b;
	uint64		first;
	uint64		count = 0;

	adopt_uncounted(header);
	n = store_block_count(header);
	first = n * SOFORT_BLOCK_ROWS;
	for (b = n; b > 0 && n - b < TAIL_BLOCKS; b--)
	{
		uint32		capacity = block_capacity(b - 1);
		int			i;
		RowRef		ref;

		/* a tail may span blocks only where row ids are consecutive */
		if (count > 0 && capacity < SOFORT_BLOCK_ROWS)
			break;
		for (i = (int) capacity - 1; i >= 0; i--)
		{
			if (!header_locate(header, (b - 1) * SOFORT_BLOCK_ROWS + i, &ref) ||
				word_read(&ref.words->begin) != WORD_EMPTY)
				break;
			if (!pm_found_is_durable())
				pm_flush(&ref.words->begin, sizeof(uint64));
			first = ref.row;
			count++;
		}
		if (i >= 0)
			break;
	}
	/* whoever fills such a row relies on this, see space_before_free() */
	pm_drain();
	shared->collected = arena_alloc(first / SOFORT_BLOCK_ROWS / 8 + 1, ARENA_ZERO);
	pg_atomic_fetch_add_u64(&shared->bytes_dram, first / SOFORT_BLOCK_ROWS / 8 + 1);
	shared->first_row = first;
	shared->holes = n > 0;
	shared->hole_from = 0;
	pg_atomic_write_u64(&shared->append, make_append(first, count));
	pg_write_barrier();
	shared->append_ready = true;
}

void
block_append_init(StoreDesc *store)
{
	if (store->shared->append_ready)
		return;
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	if (!store->shared->append_ready)
		find_append_position(store);
	LWLockRelease(structure_lock(store->id));
}

/*
 * Columns that had too few values for a decision are looked at again when there
 * are about 1,000 more rows, then after twice as many, and so on.
 */
static void
decide_late(StoreDesc *store, Bitmapset *indexed)
{
	StoreShared *shared = store->shared;
	const ShapeHeader *s = shape_current(store);

	if (s->capacity == 0 || !shape_is_undecided(s))
	{
		shared->undecided_rows = 0;
		shared->undecided_wait = STORE_SAMPLE_ROWS;
		return;
	}
	if (shared->undecided_rows < shared->undecided_wait)
		return;
	shape_decide_late(store, indexed);
	shared->undecided_rows = 0;
	shared->undecided_wait = Max(shared->undecided_wait * 2, STORE_SAMPLE_ROWS);
}

/*
 * When a table has grown by an eighth, columns without a dictionary are looked at
 * again.  The number of looks grows with the logarithm of its size.
 */
static void
reconsider(StoreDesc *store, Bitmapset *indexed)
{
	StoreShared *shared = store->shared;
	uint64		rows = store_block_count(store->header) * SOFORT_BLOCK_ROWS;

	if (shared->unreviewed_rows < Max(rows / 8, REVIEW_ROWS))
		return;
	shared->unreviewed_rows = 0;
	shape_reconsider(store, indexed);
}

/* How many rows insertions put into n blocks: a fill factor leaves some free. */
static uint64
rows_filled(const StoreHeader *header, uint64 n)
{
	uint64		rows = n * SOFORT_BLOCK_ROWS;

	return header->tid_fill == 0 ? rows : Max(rows * header->tid_fill / header->tid_rows, 1);
}

/* How many blocks may be made at once before the next decision about encodings. */
static uint32
room_until_decision(const StoreShared *shared, const ShapeHeader *s, uint32 room)
{
	uint64		rows;

	if (!shape_is_undecided(s))
		return room;
	rows = shared->undecided_wait - Min(shared->undecided_rows, shared->undecided_wait);
	return Min(room, Max(rows / rows_filled(shared->header, 1), 4));
}

/*
 * A shape that was made because a value did not fit the one before may be replaced as soon,
 * and then have a single row.  So no more blocks are made at once than it already has in a
 * row before "block".
 */
static uint32
room_in_shape(const StoreHeader *header, const ShapeHeader *s, uint64 block, uint32 room)
{
	const ShapeHeader *before = s->id > 0 ? shape_get(header, s->id - 1) : NULL;
	uint32		n = 0;
	RowRef		ref;

	if (before == NULL || before->capacity == 0)
		return room;
	while (n < room && n < block &&
		   header_locate(header, (block - n - 1) * SOFORT_BLOCK_ROWS, &ref) &&
		   ref.block->shape == s->id)
		n++;
	return Max(n, 1);
}

void
block_note_collected(StoreShared *shared, uint64 b, uint32 n)
{
	for (; n > 0 && b * SOFORT_BLOCK_ROWS < shared->first_row; b++, n--)
		block_mark(shared->collected, b);
}

static void
grow(StoreDesc *store)
{
	StoreHeader *header = store->header;
	const ShapeHeader *shape;
	uint64		hole = find_hole(store);
	uint64		b = hole != PG_UINT64_MAX ? hole : store_block_count(header);
	uint32		room;
	uint32		n = 1;

	shape = shape_current(store);
	if (store_tid_blocks_of(store, (BlockNumber) b + STORE_RUN_MAX) >= (uint64) MaxBlockNumber ||
		b >= (uint64) MaxBlockNumber - STORE_RUN_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("table has reached its maximum number of rows"),
				 errdetail("A table has at most %u blocks of %d row versions.",
						   MaxBlockNumber, SOFORT_BLOCK_ROWS)));
	pm_vector_reserve(&header->blocks, b, store->id, STORE_METADATA);
	if (b < STORE_SINGLE_BLOCKS)
		make_single(store, b, shape);
	else
	{
		room = room_at(header, b, hole != PG_UINT64_MAX ? store_block_count(header) : 0);
		room = room_in_shape(header, shape, b, room_until_decision(store->shared, shape, room));
		n = choose_run(store_block_count(header), shape->block_size, room);
		make_run(store, b, n, shape);
		store->shared->undecided_rows += rows_filled(header, n);
		store->shared->unreviewed_rows += rows_filled(header, n);
	}
	SOFORT_STOP("store-block-published");
	if (b + n > store_block_count(header))
	{
		block_set_count(header, b + n);
		SOFORT_STOP("store-block-counted");
	}
	block_note_collected(store->shared, b, n);
	pg_atomic_write_u64(&store->shared->append,
						make_append(b * SOFORT_BLOCK_ROWS,
									b < STORE_SINGLE_BLOCKS ? block_capacity(b) :
									(uint64) n * SOFORT_BLOCK_ROWS));
}

/* The rest of the append range, in blocks of an older shape, becomes free. */
static void
give_up_append_range(StoreShared *shared)
{
	uint64		left = pg_atomic_exchange_u64(&shared->append, 0);

	while (FREE_COUNT(left) > 0)
	{
		uint64		row = FREE_ROW(left);
		uint32		n = Min(FREE_COUNT(left), SOFORT_BLOCK_ROWS - row % SOFORT_BLOCK_ROWS);

		space_give(shared, row, n);
		left = make_append(row + n, FREE_COUNT(left) - n);
	}
}

/* Does the block at the append position have the newest shape? */
static bool
append_shape_is_current(StoreDesc *store)
{
	BlockHeader *b = block_get(store->header,
							   FREE_ROW(pg_atomic_read_u64(&store->shared->append)) /
							   SOFORT_BLOCK_ROWS);

	return b != NULL && b->shape == pg_atomic_read_u32(&store->shared->current_shape);
}

/*
 * Makes room behind the append position; with "force", room in the newest shape.  No lock
 * may be held.  Catalog look-ups are done before the lock is taken.
 */
void
block_extend(Relation rel, StoreDesc *store, bool force)
{
	StoreShared *shared = store->shared;
	Bitmapset  *indexed = NULL;
	bool		decide = store_block_count(store->header) >= STORE_SINGLE_BLOCKS;

	column_ensure(rel, store);
	if (decide)
		indexed = compat_indexed_attrs(rel);

	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	if (!shared->append_ready)
		find_append_position(store);
	if (store_block_count(store->header) == 0)
		tid_decide(rel, store);
	if (FREE_COUNT(pg_atomic_read_u64(&shared->append)) == 0 ||
		(force && !append_shape_is_current(store)))
	{
		if (pg_atomic_read_u32(&shared->current_shape) == PG_UINT32_MAX)
			shape_make_initial(store);
		if (decide && store_block_count(store->header) >= STORE_SINGLE_BLOCKS &&
			shape_current(store)->capacity == 0)
			shape_decide(store, indexed);
		decide_late(store, indexed);
		reconsider(store, indexed);
		give_up_append_range(shared);
		grow(store);
	}
	LWLockRelease(structure_lock(store->id));
	SOFORT_STOP("store-extended");
	bms_free(indexed);
}

/* ---- links ---- */

static PMPtr *
links_of(BlockHeader *block, bool successors)
{
	return successors ? &block->successors : &block->links;
}

/*
 * For how many blocks, from this one on, vectors are made together: where a drain waits for a
 * disk, twice as many as last time if this process makes them in turn, as a change of many rows
 * does; else one.
 */
static uint32
links_together(struct StoreLocal *local, uint64 block, bool successors)
{
	LinksMade  *made;
	uint32		n = 1;
	int			i;

	if (!pm_drain_is_slow())
		return 1;
	for (i = 0; i < STORE_LINKS_MADE; i++)
	{
		made = &local->links_made[i];
		if (made->n > 0 && made->successors == successors && block >= made->next &&
			block <= made->next + LINKS_GAP)
			break;
	}
	if (i < STORE_LINKS_MADE)
		n = Min(2 * made->n, LINKS_TOGETHER);
	else
		made = &local->links_made[local->links_made_next++ % STORE_LINKS_MADE];
	*made = (LinksMade)
	{
		.next = block + n,.n = n,.successors = successors
	};
	return n;
}

/* Structure lock held; relation locked, so no block is given back. */
static void
make_links(StoreDesc *store, BlockHeader *block, bool successors)
{
	uint64		first = block->block_number;
	uint64		end = first + Min(links_together(store->local, first, successors),
								  (uint32) Max(pm_reservable(), 1));
	PmReservation r[LINKS_TOGETHER];
	PmRequest	request[LINKS_TOGETHER];
	int			flags = store_slab_flags(store->header) | PM_RESERVE_ZERO;
	int			full;
	int			n = 0;

	for (uint64 number = first; number < end; number++)
	{
		RowRef		ref;

		/* (one behind it that is damaged concerns nobody here) */
		if (!header_locate(store->header, number * SOFORT_BLOCK_ROWS, &ref) ||
			*links_of(ref.block, successors) != PM_NULL)
			continue;
		request[n++] = (PmRequest)
		{
			.size = ref.block->capacity * sizeof(uint64),
			.link = links_of(ref.block, successors),.nlinks = 1
		};
	}
	if (n == 0)
		pm_damaged("the header of a block is damaged");
	full = pm_try_reserve_batch(r, request, n, store->id, flags);
	if (full != 0 && n > 1)
		full = pm_try_reserve_batch(r, request, n = 1, store->id, flags);
	if (full != 0)
		pm_raise_full(full, request[0].size);
	pg_atomic_write_u32(&store->shared->making_links, 1);
	pg_memory_barrier();		/* to be set before a reference can be seen */
	pm_publish_batch(r, n);
	pg_atomic_write_u32(&store->shared->making_links, 0);
	SOFORT_STOP("store-links-made");
}

/*
 * The link (or successor) vector of a block, made at its first use.  Readers see no vector,
 * or a zeroed one: both read as "no link".  A process that finds one that its maker has not
 * drained yet flushes the reference itself, and drains it with what it stores there.
 */
uint64 *
block_ensure_links(StoreDesc *store, BlockHeader *block, bool successors)
{
	PMPtr	   *link = links_of(block, successors);

	if (word_read(link) == PM_NULL)
	{
		LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
		if (*link == PM_NULL)
			make_links(store, block, successors);
		LWLockRelease(structure_lock(store->id));
	}
	else
	{
		pg_read_barrier();
		if (unlikely(pg_atomic_read_u32(&store->shared->making_links) != 0))
			pm_flush(link, sizeof(PMPtr));
	}
	return pm_deref(word_read(link));
}
