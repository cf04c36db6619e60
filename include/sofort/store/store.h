/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The data of a relation: columns, dictionaries, blocks, row versions.
 *
 * Row id r: row r % 256 of block r / 256.  The first blocks have storage for 8, 16, 32,
 * 64, 128 rows, all later ones for 256.  PostgreSQL knows TIDs instead.  Rows of the
 * first five blocks are numbered as if each block of PostgreSQL's had as many rows as a
 * heap page would have of rows like the table's first one; each later block is one
 * block of PostgreSQL's.  So a small table has the TIDs that it would have on heap.
 * (See tid.c.)
 *
 * A backend works through a StoreDesc, kept in a backend-local hash by store
 * id.  (Not in rd_amcache: an invalidation frees that while a scan holds it.)
 * Attribute maps are rebuilt by the next store_open() after an invalidation;
 * replaced ones are freed at transaction end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_STORE_STORE_H
#define SOFORT_STORE_STORE_H

#include "access/relscan.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/layout.h"
#include "sofort/pmem/read_ahead.h"
#include "sofort/txn/words.h"
#include "storage/itemptr.h"
#include "utils/hsearch.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* ---- start-up ---- */
extern Size store_shmem_size(void);
extern int	store_lwlocks(void);	/* of the named tranche "sofort_store" */

/*
 * From shmem_startup_hook: after pool_startup(), before txn_startup().  Registers StoreOps
 * with txn; finishes half-done drops; builds the volatile map from locator to store
 * (O(stores), not O(data)).
 */
extern void store_startup(void);

/* ---- opening ---- */

typedef struct StoreShared StoreShared; /* volatile, in shared memory */

/* How to read one attribute of the relation in blocks of one shape. */
typedef struct ShapeAttr
{
	uint8		encoding;		/* ColumnEncoding; ABSENT: attmissingval/NULL */
	uint8		width;
	bool		byval;
	bool		dropped;		/* or virtual: always NULL */
	int16		attlen;
	uint16		null_bit;
	uint32		offset;
	uint32		stride;
	const DictionaryHeader *dictionary;
} ShapeAttr;

typedef struct ShapeReader
{
	const ShapeHeader *shape;
	ShapeAttr	attr[FLEXIBLE_ARRAY_MEMBER];	/* natts of the tuple descriptor */
} ShapeReader;

/* ---- words of the header ---- */

static inline StoreId
store_id_of(const StoreHeader *header)
{
	return PM_UNSEAL_ID(header->sealed_id);
}

/* STORE_ */
static inline uint64
store_flags(const StoreHeader *header)
{
	return *(const volatile uint64 *) &header->flag_word & 0xffff;
}

/* What is wrong with the header, or NULL; raises no error. */
extern const char *store_header_problem(const StoreHeader *header);

/* Durable on return. */
extern void store_set_flags(StoreHeader *header, uint64 flags);

/* Number of blocks, holes included */
static inline uint64
store_block_count(const StoreHeader *header)
{
	return PM_UNSEAL(word_read(&header->nblocks));
}

typedef struct StoreDesc
{
	StoreId		id;
	StoreHeader *header;		/* in the pool */
	StoreShared *shared;		/* in the arena */
	uint64		settled_mark;	/* of this life, see store_row_is_settled() */
	/* private to src/store */
	struct StoreLocal *local;
} StoreDesc;

/* ---- row ids ---- */
#define STORE_SMALL_BLOCKS		5	/* of 8, 16, 32, 64, 128 rows */
#define STORE_SMALL_ROWS		248 /* of all these together */
#define STORE_ROW_NOWHERE		(SOFORT_BLOCK_ROWS - 1)	/* block 0 has no such row */

/* Rows numbered without gaps: in the order of their ids */
static inline uint64
row_from_ordinal(uint64 ordinal)
{
	uint32		small;

	if (likely(ordinal >= STORE_SMALL_ROWS))
		return ordinal - STORE_SMALL_ROWS + STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS;
	/* 0..7 are in block 0, 8..23 in block 1, 24..55 in block 2 ... */
	small = pg_leftmost_one_pos32((uint32) ordinal / SOFORT_FIRST_BLOCK_ROWS + 1);
	return small * SOFORT_BLOCK_ROWS +
		ordinal - ((SOFORT_FIRST_BLOCK_ROWS << small) - SOFORT_FIRST_BLOCK_ROWS);
}

static inline uint64
row_to_ordinal(uint64 row)
{
	uint32		small;

	if (likely(row >= STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS))
		return row - STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS + STORE_SMALL_ROWS;
	small = (uint32) row / SOFORT_BLOCK_ROWS;
	return row % SOFORT_BLOCK_ROWS + ((SOFORT_FIRST_BLOCK_ROWS << small) - SOFORT_FIRST_BLOCK_ROWS);
}

/*
 * A position is a TID as a number: block * 256 + offset - 1.  Positions order
 * rows as row ids do.
 */
static inline uint64
position_from_tid(const ItemPointerData *tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) * SOFORT_BLOCK_ROWS +
		ItemPointerGetOffsetNumberNoCheck(tid) - 1;
}

static inline void
position_to_tid(uint64 position, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (position / SOFORT_BLOCK_ROWS),
				   (OffsetNumber) (position % SOFORT_BLOCK_ROWS + 1));
}

/* STORE_ROW_NOWHERE, which has no storage, if there can be no row at this position */
static inline uint64
row_from_position(const StoreDesc *store, uint64 position)
{
	const StoreHeader *h = store->header;
	uint64		block = position / SOFORT_BLOCK_ROWS;
	uint64		offset = position % SOFORT_BLOCK_ROWS;
	uint64		ordinal;

	if (likely(h->tid_fill == 0 && block >= h->tid_first))
		return position + STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS - h->tid_first * SOFORT_BLOCK_ROWS;
	ordinal = block * h->tid_rows + offset;
	if (offset >= h->tid_rows || (h->tid_fill == 0 && ordinal >= STORE_SMALL_ROWS))
		return STORE_ROW_NOWHERE;
	return row_from_ordinal(ordinal);
}

static inline uint64
row_to_position(const StoreDesc *store, uint64 row)
{
	const StoreHeader *h = store->header;
	uint64		ordinal;

	if (likely(h->tid_fill == 0 && row >= STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS))
		return row + h->tid_first * SOFORT_BLOCK_ROWS - STORE_SMALL_BLOCKS * SOFORT_BLOCK_ROWS;
	ordinal = row_to_ordinal(row);
	return ordinal / h->tid_rows * SOFORT_BLOCK_ROWS + ordinal % h->tid_rows;
}

static inline uint64
row_from_tid(const StoreDesc *store, const ItemPointerData *tid)
{
	return row_from_position(store, position_from_tid(tid));
}

static inline void
row_to_tid(const StoreDesc *store, uint64 row, ItemPointer tid)
{
	position_to_tid(row_to_position(store, row), tid);
}

/* Is this a tid that row_from_tid() understands (offset 1..256)? */
extern bool row_tid_is_valid(const ItemPointerData *tid);

/*
 * The store of a relation.  Raises the error of pool_require(); XX001 with a
 * hint if the pool has no store for this relation's file ("never shown as
 * empty").  The result is valid as long as the caller holds the relation open.
 */
extern StoreDesc *store_open(Relation rel);

/* The row will be read soon.  There need not be such a row. */
extern void store_prefetch(const StoreDesc *store, uint64 row);

/* What an index scan by sofort_index and the table tell each other */
typedef struct StoreIndexFetch
{
	IndexFetchTableData base;
	bool		unread;			/* an index-only scan: the slot may stay empty */
	bool		settled;		/* the last row was found visible without a look at it */
} StoreIndexFetch;

/*
 * Builds the hash indexes (which writers need) of dictionaries that have at least so many
 * values, and no index since the start.  Returns how many. 53200 if the arena is full.
 */
extern int	store_build_dictionaries(StoreDesc *store, uint64 values);

/*
 * The store of a relation, to be read as another tuple descriptor says: ALTER
 * TABLE scans the old rows when the catalog already has the new types.  For
 * reading only; lives in CurrentMemoryContext (or is store_open()'s).
 */
extern StoreDesc *store_open_as(Relation rel, TupleDesc tupdesc);

/* By locator, NULL if there is none; for drops, views, verify. */
extern StoreHeader *store_find(const RelFileLocator *locator);
extern StoreHeader *store_find_by_id(StoreId id);

/* ---- life cycle (transactional through the TCB's write set) ---- */

/*
 * A new, empty store; dropped if the (sub)transaction aborts.  A stale store under the same
 * locator, whose file is gone, is dropped first. unlogged: it is emptied after a crash.
 */
extern StoreId store_create(Relation rel, const RelFileLocator *locator, bool unlogged);

/* Drop at commit; nothing if there is no such store. */
extern void store_drop_at_commit(const RelFileLocator *locator);

/* ---- trees of indexes (src/indexam): a store each, without rows ---- */

/*
 * A store for the tree of an index, incomplete: if the tree's build is cut short, the next
 * start drops it.  A stale one under the same locator is dropped. logged: also dropped if
 * the (sub)transaction aborts, as the index's file is; else (a tree that was lost is built
 * again) the caller drops it on error.
 */
extern StoreHeader *store_create_tree(Relation index, bool logged);

/* The tree of this file, complete or not; NULL if there is none. */
extern StoreHeader *store_find_tree(const RelFileLocator *locator);

/* Drop a store now; nobody uses it.  No error, no palloc; nothing if it is gone. */
extern void store_drop_now(StoreId id);

/* Locators of the trees that were made for an index of this database; palloc'd. */
extern RelFileLocator *store_trees_of(Oid index_oid, int *n);

/* For tests: stores that this session has looked at to find them */
extern uint64 store_test_tree_steps(void);

/*
 * For relation_nontransactional_truncate (store made in this transaction, or ON COMMIT
 * DELETE ROWS): empties it at once.
 */
extern void store_truncate_now(Relation rel);

/* Does the pool hold a table of this database? */
extern bool store_database_in_use(Oid db_oid);

/*
 * CREATE DATABASE: copies of all stores of a database that nobody is connected
 * to, for one that is being made.
 */
extern void store_clone_database(Oid from_db, Oid to_db);

/* DROP DATABASE has committed. */
extern int	store_drop_database(Oid db_oid, bool also_new);

/*
 * Marks the file of an unlogged table that is in use, so that it can be told from one that
 * PostgreSQL has reset.
 */
extern void store_mark_unlogged_file(const RelFileLocator *locator);

/*
 * PostgreSQL's file of a table holds no rows: but for that mark, a page of zeros, it is
 * empty.  False: somebody has put something into it.
 */
extern bool store_file_is_as_made(Relation rel);

/*
 * Drops stores whose file no longer exists (crashed CREATE).  Returns how many.  Called by
 * VACUUM, now and then, and by sofort.verify_pool().
 */
extern int	store_collect_orphans(void);

/* True if no process was told so for that long: then the caller collects them. */
extern bool store_orphans_are_due(int milliseconds);

/* Databases that have tables; also_new: also those made since the server started */
extern List *store_databases(bool also_new);

/* Tables of all databases, without damaged ones */
extern int64 store_count(void);

/* ---- reading ---- */

typedef struct RowRef
{
	uint64		row;
	BlockHeader *block;
	RowWords   *words;			/* = record of the row */
	uint32		index;			/* row within the block */
} RowRef;

/* The mark of these SETTLED_WORD_ROWS rows of the block, see store_row_is_settled() */
static inline uint64
store_settled_mark(const BlockHeader *block, uint32 index)
{
	return __atomic_load_n(&block->settled[SETTLED_WORD(index)], __ATOMIC_ACQUIRE);
}

/* Of this life; then its bits are those of rows at which one must look */
static inline bool
store_mark_is_valid(const StoreDesc *store, uint64 mark)
{
	return mark != 0 && (mark & ~(SETTLED_ROWS | SETTLED_CHAINS)) == store->settled_mark;
}

static inline bool
store_mark_has_chains(uint64 mark)
{
	return (mark & SETTLED_CHAINS) != 0;
}

/*
 * Is the row, or (only if store_mark_has_chains()) the newest version of this root, known by
 * its mark to be visible to all snapshots that are taken from now on, and to those that were
 * taken already?  To be asked after taking one.
 */
static inline bool
store_mark_says_settled(const StoreDesc *store, uint64 mark, uint32 index)
{
	return store_mark_is_valid(store, mark) && (mark & SETTLED_ROW(index)) == 0;
}

static inline bool
store_row_is_settled(const StoreDesc *store, const BlockHeader *block, uint32 index)
{
	return store_mark_says_settled(store, store_settled_mark(block, index), index);
}

/*
 * SETTLED_ROW() of the rows, of those that share a mark with this one, at which must be
 * looked to know whether an MVCC snapshot sees them: other roots, or with "replaced" their
 * newest versions, are seen by each snapshot that was taken before.
 */
extern uint32 store_unsettled_rows(StoreDesc *store, uint64 row, bool replaced);

/* The version was claimed: readers must look at it, and at its chain, before we commit. */
extern void store_unsettle(StoreDesc *store, const RowRef *claimed);

/* Number of blocks in use (BlockNumber of the last + 1). */
extern BlockNumber store_nblocks(StoreDesc *store);

/* Rows for which the first n blocks have storage: 8, 16, 32, 64, 128, 256, 256 ... */
static inline uint64
store_capacity(BlockNumber n)
{
	if (n <= STORE_SMALL_BLOCKS)
		return (SOFORT_FIRST_BLOCK_ROWS << n) - SOFORT_FIRST_BLOCK_ROWS;
	return STORE_SMALL_ROWS + (uint64) (n - STORE_SMALL_BLOCKS) * SOFORT_BLOCK_ROWS;
}

/* How many blocks PostgreSQL sees */
static inline uint64
store_tid_blocks_of(const StoreDesc *store, BlockNumber n)
{
	const StoreHeader *h = store->header;

	if (n > STORE_SMALL_BLOCKS && h->tid_fill == 0)
		return (uint64) h->tid_first + n - STORE_SMALL_BLOCKS;
	return n == 0 ? 0 : (store_capacity(n) + h->tid_rows - 1) / h->tid_rows;
}

static inline BlockNumber
store_tid_blocks(StoreDesc *store)
{
	return (BlockNumber) store_tid_blocks_of(store, store_nblocks(store));
}

/* The first block that begins in this block of PostgreSQL's, or after it */
static inline BlockNumber
store_first_block(StoreDesc *store, BlockNumber tid_block)
{
	const StoreHeader *h = store->header;
	uint64		row;

	if (h->tid_fill == 0 && tid_block >= h->tid_first)
		row = ((uint64) tid_block - h->tid_first + STORE_SMALL_BLOCKS) * SOFORT_BLOCK_ROWS;
	else
		row = row_from_ordinal((uint64) tid_block * h->tid_rows);
	return (BlockNumber) Min((row + SOFORT_BLOCK_ROWS - 1) / SOFORT_BLOCK_ROWS,
							 store_nblocks(store));
}

/* How many offsets one of PostgreSQL's blocks has; not all of them need have storage. */
static inline uint32
store_rows_in(const StoreDesc *store, BlockNumber tid_block)
{
	const StoreHeader *h = store->header;

	return h->tid_fill == 0 && tid_block >= h->tid_first ? SOFORT_BLOCK_ROWS : h->tid_rows;
}

/* How many blocks begin in one of PostgreSQL's: a scan of that reads these. */
static inline uint32
store_blocks_in(StoreDesc *store, BlockNumber tid_block)
{
	return store_first_block(store, tid_block + 1) - store_first_block(store, tid_block);
}

/* ---- read_ahead.c ---- */

/* For one who reads blocks in turn; all zero at first */
typedef struct StoreReadAhead
{
	uint64		first;			/* those from here on */
	uint64		end;			/* to here were asked for, */
	uint64		next;			/* and more will be at this one */
} StoreReadAhead;

#define STORE_WHOLE_ROWS	(-1)

/* Of these blocks attribute att (0-based) is about to be read, or whole rows.  A hint. */
extern void store_read_ahead(StoreDesc *store, uint64 block, uint64 end, int att);

extern void store_next_read_ahead(StoreDesc *store, StoreReadAhead *ahead, uint64 block,
								  uint64 end);

/*
 * Rows of this block are about to be read, and then those of the others before end: asks for
 * some of these.
 */
static inline void
store_scan_ahead(StoreDesc *store, StoreReadAhead *ahead, uint64 block, uint64 end)
{
	if (unlikely(pm_on_disk) && (block < ahead->first || block >= ahead->next))
		store_next_read_ahead(store, ahead, block, end);
}

/* ---- block.c ---- */

/* Block, or NULL if it has no storage. */
extern BlockHeader *store_block(StoreDesc *store, BlockNumber block);

/* False if the row has no storage.  Does not look at the words. */
extern bool store_locate(StoreDesc *store, uint64 row, RowRef *ref);

/* The same for a row that was only found settled, and is to be read after all */
extern bool store_fetch_late(StoreDesc *store, uint64 row, RowRef *found);

#ifdef USE_ASSERT_CHECKING
/* Does the snapshot see a version of this root? */
extern bool store_chain_is_visible(StoreDesc *store, uint64 root, Snapshot snapshot);
#endif

/*
 * For callers that look at one row of a block after the other, while nobody can give the
 * block back (an epoch, VACUUM): the block is found only once.  A block that is made
 * meanwhile has no row that an older snapshot sees.
 */
typedef struct BlockCursor
{
	uint64		block;			/* its number */
	BlockHeader *header;
	char	   *records;
	Size		stride;
	uint32		capacity;		/* 0: it has no storage */
	uint32		rows;			/* its capacity, also if it has none */
} BlockCursor;

extern void store_cursor_move(StoreDesc *store, BlockCursor *cursor, uint64 block);

static inline void
store_cursor_init(BlockCursor *cursor)
{
	cursor->block = PG_UINT64_MAX;
}

/* store_locate() */
static inline bool
store_cursor_locate(StoreDesc *store, BlockCursor *cursor, uint64 row, RowRef *ref)
{
	uint32		index = row % SOFORT_BLOCK_ROWS;

	if (unlikely(cursor->block != row / SOFORT_BLOCK_ROWS))
		store_cursor_move(store, cursor, row / SOFORT_BLOCK_ROWS);
	if (unlikely(index >= cursor->capacity))
		return false;
	ref->row = row;
	ref->block = cursor->header;
	ref->index = index;
	ref->words = (RowWords *) (cursor->records + (Size) index * cursor->stride);
	return true;
}

/*
 * Like store_cursor_locate() for the row at a position.  Returns how many positions from there on,
 * not after "last", are those of its block, in turn: the rows behind it have storage if it has.
 */
static inline uint32
store_cursor_run(StoreDesc *store, BlockCursor *cursor, uint64 position, uint64 last, RowRef *ref,
				 bool *located)
{
	uint64		row = row_from_position(store, position);
	uint32		index = row % SOFORT_BLOCK_ROWS;

	*located = store_cursor_locate(store, cursor, row, ref);
	if (index >= cursor->rows)
		return 1;				/* STORE_ROW_NOWHERE */
	return (uint32) Min(cursor->rows - index, last - position + 1);
}

/*
 * Values of attributes from..natts-1 (0-based).  By-reference Datums point
 * into the pool and stay valid while the version is protected by the caller's
 * snapshot; the values of REFERENCE columns may be compressed varlenas, as in a
 * heap tuple.
 */
extern void store_decode(StoreDesc *store, const RowRef *ref, int from, int natts,
						 Datum *values, bool *isnull);

/* One attribute (0-based) */
extern void store_decode_one(StoreDesc *store, const RowRef *ref, int att, Datum *value,
							 bool *isnull);

/* As store_decode(), but only where needed[i]; the others become NULL. */
extern void store_decode_needed(StoreDesc *store, const RowRef *ref, int from, int natts,
								const bool *needed, Datum *values, bool *isnull);

/*
 * Only the attributes in this bitmap (attnum - FirstLowInvalidHeapAttributeNumber, as
 * usual); the others become NULL.
 */
extern void store_decode_some(StoreDesc *store, const RowRef *ref, Bitmapset *attrs,
							  Datum *values, bool *isnull);

/* ---- chains (src/store/README.md) ---- */

/* Root of the chain that a version belongs to (itself if it is a root). */
extern uint64 store_chain_root(StoreDesc *store, const RowRef *ref);

/* Newest version linked to this root (the root itself if alone). */
extern bool store_chain_newest(StoreDesc *store, const RowRef *root, RowRef *newest);

/* Next older version; false at the root. */
extern bool store_chain_older(StoreDesc *store, const RowRef *ref, RowRef *older);

/*
 * What an index entry points to: the version of the chain of this root that
 * the snapshot sees.  Tries the root, then newest to oldest.  false: none;
 * *all_dead (may be NULL) then says that the whole chain is dead to all.
 */
extern bool store_chain_fetch(Relation rel, StoreDesc *store, uint64 root, Snapshot snapshot,
							  RowRef *found, bool *all_dead);

/*
 * Successor of an updated version for EvalPlanQual and row locks: newest version of its
 * chain, or the new root where indexed columns changed; false if there is none.
 */
extern bool store_successor(StoreDesc *store, const RowRef *ref, RowRef *successor);

/* The same, only of the new root. */
extern bool store_new_root(StoreDesc *store, const RowRef *ref, RowRef *successor);

/* Must this dead row keep its slot, because it leads to a version that is not dead? */
extern bool store_root_is_needed(StoreDesc *store, const RowRef *root, uint64 horizon);

/* The version of its chain that this one has replaced, if both are still linked. */
extern bool store_replaced_version(StoreDesc *store, const RowRef *ref, RowRef *replaced);

/* ---- writing; the caller is inside txn_begin_write() ---- */

/*
 * Was the store made by this very subtransaction, so that an abort or a crash drops it as a
 * whole?
 */
extern bool store_goes_with_subxact(Relation rel);

/*
 * Inserts one version with begin word "begin" (from txn_progress_word(); or a stamp, if
 * this subtransaction has made the store: then it is not logged).  Its entry in the write
 * set is durable on return; the version is flushed, and durable with the next drain. values
 * as given to a table AM: detoasts what must be.  Sets *ref.
 */
extern void store_insert(Relation rel, StoreDesc *store, const Datum *values, const bool *isnull,
						 uint64 begin, RowRef *ref);

/*
 * The same for n rows with one drain in all, and two for up to PM_INTENTS_PER_BACKEND
 * values by reference.  values[i]: those of row i.
 */
extern void store_insert_many(Relation rel, StoreDesc *store, Datum *const *values,
							  bool *const *isnull, int n, uint64 begin, uint64 *rows);

/*
 * Does the row lie in a block whose rows are not filled any more ("Looking again" in the
 * README)?  Then its next version should be a new root.
 */
extern bool store_row_is_retired(const StoreDesc *store, const RowRef *ref);

/*
 * Row id that the next insert of this transaction will take (unless a value
 * does not fit its block).  For txn_log_update(old, new) before the claim: one
 * drain for both entries.
 */
extern uint64 store_next_row(Relation rel, StoreDesc *store, const RowRef *old);

/*
 * New version of *old, whose end word was claimed by this transaction. heap_only: no
 * indexed column changed, so it joins the chain (index entries go on pointing to the root);
 * otherwise it is a new root, and *old gets its successor word.  Logged on return, and
 * durable, or, where a drain is slow, durable with the next drain.  Prunes dead middle
 * versions of the chain on the way.
 */
extern void store_insert_successor(Relation rel, StoreDesc *store, const RowRef *old,
								   const Datum *values, const bool *isnull, uint64 begin,
								   bool heap_only, RowRef *ref);

/* Raw copy for CLUSTER / VACUUM FULL / rewrite: words given (stamps kept). */
extern void store_insert_raw(Relation rel, StoreDesc *store, const Datum *values,
							 const bool *isnull, uint64 begin, uint64 end, RowRef *ref);

/*
 * Where both versions were copied with store_insert_raw(): "successor" came
 * right after "row".  Flushed, not drained.
 */
extern void store_set_successor(StoreDesc *store, uint64 row, uint64 successor);

/* ---- vacuum ---- */

/*
 * What VACUUM finds in one block. dead: dead roots, whose index entries must be removed
 * first (row ids, ascending).  Dead heap-only versions were already unlinked and freed
 * (quarantined).
 */
typedef struct StorePruneResult
{
	int			ndead;
	uint64		dead[SOFORT_BLOCK_ROWS];
	int			nlive;
	int			nrecently_dead;
	int			nfreed;			/* heap-only versions freed */
	int			nsettled;		/* rows that index-only scans need not look at */
	bool		read;			/* more than the header */
} StorePruneResult;

extern void store_prune_block(Relation rel, StoreDesc *store, BlockNumber block, uint64 horizon,
							  const Bitmapset *key_columns, bool skip_settled,
							  StorePruneResult *result);

/* The columns (of the store) to which an index refers; to be asked once in a VACUUM. */
extern Bitmapset *store_key_columns(Relation rel, StoreDesc *store);

/*
 * Freeing values of dictionaries that no row uses: "begin" before the number of blocks is
 * read, "end" after all of them were pruned. complete: all indexes are there, so nobody
 * begins to search the table in place of one, which looks at values of dead rows.
 */
extern void store_vacuum_begin(Relation rel, StoreDesc *store, bool complete);
extern void store_vacuum_end(StoreDesc *store, bool complete);

/*
 * The index entries are gone and their removal is durable: frees the rows (their whole
 * chains), and their values by reference.  Ids are quarantined until every transaction that
 * runs now has ended.
 */
extern void store_free_rows(Relation rel, StoreDesc *store, const uint64 *rows, int n);

/*
 * From here to the end of the transaction nobody else frees roots.  For VACUUM, before it
 * looks for dead ones.  A heavyweight lock; its other holders never wait.
 */
extern void store_lock_roots(Relation rel);

/*
 * This transaction has deleted a version, or updated it with a change of indexed columns:
 * notes its chain, and frees some that have ended before and that nobody sees any more.
 */
extern void store_chain_ended(Relation rel, StoreDesc *store, const RowRef *last);

typedef enum StoreRemoval
{
	STORE_REMOVAL_DONE,
	STORE_REMOVAL_LATER,		/* an index is locked, or not ready */
	STORE_REMOVAL_NEVER			/* an index is of another kind: nothing was done */
} StoreRemoval;

/*
 * Set by src/indexam: removes the entries of *n dead roots from all indexes of the
 * relation, durably.  *n becomes the number of roots that have no entries now, which are
 * moved to the front.  The caller has locked the relation (RowExclusiveLock or more) and
 * its roots, in a transaction.
 */
extern StoreRemoval (*store_remove_entries) (Relation rel, StoreDesc *store, uint64 *roots,
											 int *n);

/* Frees the values by reference that rows have which can be filled. */
extern void store_free_values(StoreDesc *store);

/* Gives back runs of empty blocks whose quarantine is over.  Returns the number of blocks. */
extern BlockNumber store_release_empty(Relation rel, StoreDesc *store);
extern void store_reconsider(Relation rel, StoreDesc *store);

/* ---- statistics for views and the planner ---- */

typedef struct StoreStats
{
	uint64		live;			/* estimated at the first use since the start, then counted */
	uint64		dead;
	uint64		bytes_pool;		/* everything owned in the pool */
	uint64		bytes_dram;
	BlockNumber nblocks;
} StoreStats;

/*
 * To find what one store has in the pool, all of the pool is looked at.  Who asks for many
 * stores does that once, and hands on the result; else NULL.
 */
extern HTAB *store_bytes_of_all(MemoryContext context);
extern void store_stats(StoreHeader *header, HTAB *all, StoreStats *stats);

/* The estimates of rows alone: cheap, for the planner. */
extern void store_row_counts(StoreDesc *store, uint64 *live, uint64 *dead);

/* Settled rows at the last VACUUM, which notes them (or at the start). */
extern void store_note_settled(StoreDesc *store, uint64 rows);
extern uint64 store_settled_rows(StoreDesc *store);

typedef struct StoreColumnInfo
{
	int			attnum;
	Oid			type_oid;
	const char *encoding;		/* in the current shape */
	int			width;
	uint64		dictionary_entries;
	uint64		dictionary_bytes;
	const char *reason;			/* why this encoding */
	const char *placement;		/* of the dictionary's index, or NULL */
} StoreColumnInfo;

typedef void (*StoreColumnVisitor) (void *arg, const StoreColumnInfo *info);
extern void store_visit_columns(StoreHeader *header, StoreColumnVisitor fn, void *arg);

/* ---- where indexes of dictionaries lie ---- */

/* GUC (defined in src/sofort.c): DictPlacement of dictionaries of columns that have none */
extern int	sofort_dictionary_placement;

extern const char *dictionary_placement_name(DictPlacement placement);

/*
 * Places the index of the column's dictionary, or of the one that it will get: a nested top
 * action.  The caller holds a lock that keeps VACUUM out.  False: no row with this column
 * was stored yet. 53100, 53200 if there is no room.
 */
extern bool store_place_dictionary(StoreDesc *store, Form_pg_attribute att,
								   DictPlacement placement);
extern void store_inherit_placements(const RelFileLocator *from, const RelFileLocator *to);

/* Structural check; index-independent.  report as in pool.h. */
typedef void (*StoreReport) (void *arg, const char *kind, const char *place, const char *problem);
typedef void (*SalvagedRow) (void *arg, const Datum *values, const bool *isnull);
extern void store_salvage(Relation rel, SalvagedRow fn, StoreReport report, void *arg);
extern bool store_verify_metadata(Relation rel, StoreReport report, void *arg);
extern void store_verify(Relation rel, StoreDesc *store, StoreReport report, void *arg);

#endif							/* SOFORT_STORE_STORE_H */
