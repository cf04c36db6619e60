/*-------------------------------------------------------------------------
 *
 * tree.h
 *	  Ordered set of fixed-width entries: a B+tree with optimistic lock
 *	  coupling.  It lies in the DRAM arena, in the pool, or in both (leaves in
 *	  the pool, inner nodes in DRAM).
 *
 * An entry is
 *
 *		key bytes (key_len)  normalised, order-preserving
 *		row id (5)           big-endian
 *		tuple (8)            only if has_tuples: reference to a TreeTuple (an
 *							 address, or a PMPtr), or NULL
 *
 * Entries are ordered by key bytes; where those are equal and both entries have
 * a tuple, by the comparison that the probe brings along; then by row id.
 *
 * Functions that find their way through a tree which other processes may change
 * (tree_insert.c, tree_delete.c, tree_scan.c, tree_read_leaf_sweeping(),
 * tree_verify()), and what follows the tuple of an entry, must run inside
 * epoch_enter()/epoch_exit(): nodes and tuples that others unlink stay until then.
 * No epoch is needed for a tree that nobody else has found yet or can find any
 * more (making, building, opening, destroying it) or from which nobody deletes yet
 * (drain_delta()), for counters, and for giving back what was never in a tree.
 * tree_sweep_end() must run outside of any.
 *
 * None takes a heavyweight lock; latches are held for the change of at most three
 * nodes and never while a comparison or any other foreign code runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_INDEXAM_TREE_H
#define SOFORT_INDEXAM_TREE_H

#include "access/itup.h"
#include "port/atomics.h"
#include "sofort/pmem/pool.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"

#define TREE_NODE_SIZE		1024
#define TREE_NODE_HEADER	16
#define TREE_NODE_DATA		(TREE_NODE_SIZE - TREE_NODE_HEADER)
#define TREE_ROW_BYTES		5
#define TREE_MIN_KEY		3	/* so that 8-byte loads stay inside an entry */
#define TREE_MAX_KEY		80
#define TREE_MAX_STRIDE		96
#define TREE_MAX_LEVELS		24
#define TREE_LEAF_BYTES		1408	/* entries of a leaf, wherever it lies */

/*
 * Copy of an index tuple.  In DRAM it is shared by the leaf entry and the
 * separators above it.  In the pool an entry and a lower fence of a leaf have
 * one each; separators refer to that of their leaf's fence.
 */
typedef struct TreeTuple
{
	struct TreeTuple *next;		/* in a list of retired ones */
	pg_atomic_uint32 refs;		/* in the pool: life of the last use */
	uint16		size;
	uint16		check;			/* in the pool: of size and tuple */
	IndexTupleData tuple;		/* and what follows it */
} TreeTuple;

/* Where a tree lies. */
typedef enum TreePlacement
{
	TREE_DRAM,
	TREE_PMEM,
	TREE_HYBRID					/* leaves in the pool, inner nodes in DRAM */
} TreePlacement;

/*
 * Node. n, check, level and life change by one store. version: bit 0 latched, bit 1
 * obsolete; bits 2..31 count changes and are never reset within a server life; bits 32..63
 * are the life, and a node of an earlier life reads as neither latched nor obsolete.  Leaf:
 * n entries at data.  Inner node (level > 0): n separators and n + 1 children, the children
 * first; separator i is a lower bound of everything below child i + 1.
 */
typedef struct TreeNode
{
	uint64		version;
	uint8		n;
	uint8		check;			/* inner nodes in the pool: of n, level, separators */
	uint16		level;			/* 0: leaf */
	uint32		life;			/* in the pool: of the last use of the slot */
	uint8		data[TREE_NODE_DATA];
} TreeNode;

StaticAssertDecl(sizeof(TreeNode) == TREE_NODE_SIZE, "size of a tree node");

typedef struct ArenaChunk ArenaChunk;
typedef struct TreeSpace TreeSpace;

typedef struct Tree
{
	/* fixed when the tree is made */
	uint16		key_len;
	uint16		cmp_len;		/* key_len + TREE_ROW_BYTES */
	uint16		stride;
	uint16		leaf_capacity;
	uint16		inner_capacity; /* separators */
	bool		has_tuples;
	uint8		placement;		/* TreePlacement */
	uint32		life;			/* of the server, as in versions of nodes */
	uint64		ref_base;		/* address = ref_base + low 48 bits of a reference to a child */

	TreeNode   *root;			/* changed under the old root's latch */
	TreeSpace  *space;			/* NULL: everything is in DRAM */
	uint64	   *entries;		/* atomic; "own_entries", or in the pool */
	bool		entries_exact;	/* no crash since they were counted */

	/* allocation; protected by mutex */
	slock_t		mutex;
	ArenaChunk *chunks;
	uint32		next_chunk;		/* nodes in the next chunk */
	TreeNode   *free_nodes;
	TreeNode   *retired_nodes;	/* unlinked since the last turn */
	TreeTuple  *retired_tuples;
	TreeNode   *waiting_nodes;	/* unlinked before waiting_epoch */
	TreeTuple  *waiting_tuples;
	uint64		waiting_epoch;
	uint64		node_bytes;
	uint64		nodes;			/* in use */

	/*
	 * Entries came to the last leaf, but not in order: leave room in leaves that
	 * are full.  A hint.
	 */
	bool		nearly_ordered;

	uint64		own_entries;
	pg_atomic_uint64 tuple_bytes;	/* of entries */
} Tree;

/*
 * A position to look for. bytes holds cmp_len bytes. compare == NULL: all of them count,
 * and tuples do not.  Otherwise the first nbytes decide, and compare says where the probe
 * is relative to an entry that is equal in these (< 0: before it, 0: equal, > 0: after it).
 * The entry it gets is a private copy; its tuple is protected by the epoch.  It may raise
 * an error.
 */
typedef struct TreeProbe TreeProbe;
typedef int (*TreeCompare) (const TreeProbe *probe, const uint8 *entry);

struct TreeProbe
{
	const uint8 *bytes;
	uint16		nbytes;
	TreeCompare compare;
	void	   *arg;
};

/* The complete order of two entries, ties included.  May raise an error. */
typedef int (*TreeCompareEntries) (void *arg, const uint8 *a, const uint8 *b);

typedef struct TreeOrder
{
	TreeCompareEntries compare;
	void	   *arg;
} TreeOrder;

typedef enum TreeResult
{
	TREE_DONE,					/* inserted, deleted, found */
	TREE_EXISTS,				/* this very entry is there already */
	TREE_ABSENT,
	TREE_FULL					/* the arena is full; the tree is unchanged */
} TreeResult;

/* Part of a leaf, copied out. */
typedef struct TreeLeaf
{
	int			n;
	bool		has_low;		/* there are leaves to the left: all their
								 * entries are below "low" */
	bool		has_high;		/* ... right: entries are >= "high" */
	bool		cut_low;		/* entries of the leaf below the lower bound were
								 * left out */
	bool		cut_high;
	uint8		low[TREE_MAX_STRIDE];
	uint8		high[TREE_MAX_STRIDE];
	uint8		entries[TREE_LEAF_BYTES];
} TreeLeaf;

/* ---- tree.c ---- */

/* An empty tree in DRAM; NULL if the arena is full.  The caller owns it. */
extern Tree *tree_create(int key_len, bool has_tuples);

/*
 * A tree in the pool, whose store was just made for it (and is dropped by
 * whoever made it, if this fails).  NULL: arena or pool is full, see
 * tree_raise_full().  grow_lock: LWLock, taken for a short time when it grows.
 */
extern Tree *tree_create_in_pool(StoreHeader *store, TreePlacement placement, int key_len,
								 bool has_tuples, const void *format, int format_size,
								 uint64 collations, LWLock *grow_lock);

/* Makes everything durable and marks the tree complete: later lives may use it. */
extern void tree_complete(Tree *tree);

/*
 * Open a complete tree of the pool.  pmem: at once; hybrid: reads the lower
 * fence of each leaf.  NULL: the arena is full.
 */
extern Tree *tree_open(StoreHeader *store, LWLock *grow_lock);

/* What is wrong with the header of a tree in the pool, or NULL; raises no error. */
extern const char *tree_header_problem(const StoreHeader *store);

/* The error for damage in a tree of the pool */
pg_noreturn extern void tree_damaged(const char *problem);

static inline bool
tree_in_pool(const Tree *tree)
{
	return tree->space != NULL;
}

/*
 * After an allocation has failed: raises 53100 if the pool was full.  Returns if it was the
 * arena: the caller raises 53200, and can name the index.
 */
extern void tree_raise_full(const Tree *tree);

/*
 * Frees what is in DRAM, which may be all of it; no other process may use the tree.  What
 * is in the pool goes with its store, and may be gone already.
 */
extern void tree_destroy(Tree *tree);

/*
 * The same for a tree in DRAM that shares tuples with another one, which is in use: whoever
 * has found one there may still look at it.
 */
extern void tree_destroy_beside(Tree *tree, Tree *heir);

/*
 * A tuple in the arena with one reference, NULL if the arena is full.  It
 * belongs to no tree before tree_count_tuple().
 */
extern TreeTuple *tree_tuple_make(IndexTuple itup);

/* Drops one reference to a tuple that no tree owns (NULL: nothing to do). */
extern void tree_tuple_discard(TreeTuple *tuple);

/*
 * The same for one that a tree has had, and its readers: if nothing else refers to it, it
 * waits for them.  heir: NULL if nobody can find that tree any more.
 */
extern void tree_leave_tuple(TreeTuple *tuple, Tree *heir);

/* A tuple for a tree in the pool; flushed.  NULL if the pool is full. */
extern TreeTuple *tree_pool_tuple_make(Tree *tree, IndexTuple itup);

/* Frees one that was never published. */
extern void tree_pool_tuple_discard(Tree *tree, TreeTuple *tuple);

/* The tree has taken over a reference: counts it in the tree's size. */
extern void tree_count_tuple(Tree *tree, const TreeTuple *tuple);

/* Makes reusable what was unlinked and cannot be read by anybody any more. */
extern void tree_reclaim(Tree *tree);

extern int	tree_height(const Tree *tree);
extern uint64 tree_dram_bytes(const Tree *tree);
extern uint64 tree_pool_bytes(const Tree *tree);

static inline uint64
tree_entries(const Tree *tree)
{
	return __atomic_load_n(tree->entries, __ATOMIC_RELAXED);
}

/* ---- tree_insert.c ---- */

/* Insert the entry at its place; probe is the same entry, exactly. */
extern TreeResult tree_insert(Tree *tree, const uint8 *entry, const TreeProbe *probe,
							  const TreeOrder *order);

/* ---- tree_delete.c ---- */

/*
 * Deletes the entries that equal the probes, which are in order.  Returns how many there
 * were. left[] (may be NULL): how many entries the leaf of each still has; -1: the entry
 * was not there.
 */
extern int	tree_delete(Tree *tree, TreeProbe *const *probes, int n, int *left);

/* Is a leaf with so many entries to be merged with a neighbour? */
static inline bool
tree_leaf_is_sparse(const Tree *tree, int n)
{
	return n * 4 <= tree->leaf_capacity;
}

/*
 * Merge underfull nodes on the path to the probe with a neighbour, as long as
 * there are any.  Best effort.
 */
extern void tree_shrink(Tree *tree, const TreeProbe *probe);

/* ---- tree_scan.c ---- */

/*
 * Copy the entries e with lower <= e < upper (NULL: no bound) of one leaf: the
 * one that holds the probe's place (NULL: the leftmost, or the rightmost if
 * before).  before: the leaf that holds what comes before the probe.
 */
extern void tree_read_leaf(Tree *tree, const TreeProbe *seek, bool before,
						   const TreeProbe *lower, const TreeProbe *upper,
						   const TreeOrder *order, TreeLeaf *leaf);

/* Sign of probe - entry (private copy or separator). */
extern int	tree_probe_compare(const Tree *tree, const TreeProbe *probe, const uint8 *entry);

/* ---- tree_sweep.c ---- */

/*
 * Find the space in the pool that is free since an earlier life.  Between begin
 * (NULL: there is nothing to find) and end the caller reads the whole tree with
 * tree_read_leaf_sweeping(), outside of any epoch at the end; nobody else sweeps
 * meanwhile.  Memory is palloc'd; an error loses nothing.  Returns how many
 * pieces were found.
 */
typedef struct TreeSweep TreeSweep;

extern bool tree_needs_sweep(const Tree *tree);
extern TreeSweep *tree_sweep_begin(Tree *tree);
extern uint64 tree_sweep_end(TreeSweep *sweep);

/* tree_read_leaf() from seek on, forward; sweep may be NULL. */
extern void tree_read_leaf_sweeping(Tree *tree, const TreeProbe *seek, const TreeOrder *order,
									TreeLeaf *leaf, TreeSweep *sweep);

/* ---- tree_build.c ---- */

typedef struct TreeBuilder
{
	Tree	   *tree;
	int			leaf_fill;		/* entries per leaf */
	int			inner_fill;
	int			nlevels;
	TreeNode   *level[TREE_MAX_LEVELS];
	uint8		last[TREE_MAX_STRIDE];
} TreeBuilder;

/* Fill an empty tree from entries in strictly ascending order. */
extern void tree_build_begin(TreeBuilder *builder, Tree *tree, int fillfactor);
extern bool tree_build_add(TreeBuilder *builder, const uint8 *entry);	/* false: arena full */
extern void tree_build_end(TreeBuilder *builder);

/* Instead of entries: the next leaf, which is filled, and its lower fence. */
extern bool tree_build_add_leaf(TreeBuilder *builder, const uint8 *low, TreeNode *leaf);

/*
 * Sort n entries of this width by their first cmp_len bytes, of which those
 * from sorted_from on are in order already wherever the bytes before are equal.
 * scratch is as large as entries; returns the one that holds the result.
 */
extern uint8 *tree_sort(uint8 *entries, uint8 *scratch, uint64 n, int stride, int cmp_len,
						int sorted_from);

/* ---- tree_verify.c ---- */

typedef void (*TreeReport) (void *arg, const char *place, const char *problem);

/*
 * Walk the whole tree: order within and between nodes, separators, levels,
 * counts.  No other process may change it meanwhile.  Returns the number of
 * entries.
 */
extern uint64 tree_verify(Tree *tree, const TreeOrder *order, TreeReport report,
						  void *report_arg);

/* ---- parts of an entry ---- */

static inline uint64
tree_row_of(const uint8 *p)
{
	return ((uint64) p[0] << 32) | ((uint64) p[1] << 24) | ((uint64) p[2] << 16) |
		((uint64) p[3] << 8) | (uint64) p[4];
}

static inline uint64
tree_entry_row(const Tree *tree, const uint8 *entry)
{
	return tree_row_of(entry + tree->key_len);
}

static inline void
tree_entry_set_row(uint8 *p, uint64 row)
{
	p[0] = (uint8) (row >> 32);
	p[1] = (uint8) (row >> 24);
	p[2] = (uint8) (row >> 16);
	p[3] = (uint8) (row >> 8);
	p[4] = (uint8) row;
}

/* A tuple in the pool; XX002 if it is damaged: who reads it believes the lengths in it. */
extern TreeTuple *tree_pool_tuple(PMPtr ref);

/*
 * The tuple that the last 8 bytes of an entry refer to.  Addresses have no bits
 * where a PMPtr has the pool's number.
 */
static inline TreeTuple *
tree_tuple_at(const uint8 *reference)
{
	uint64		ref;

	memcpy(&ref, reference, sizeof(ref));
	return (ref >> PM_OFFSET_BITS) != 0 ? tree_pool_tuple(ref) : (TreeTuple *) ref;
}

/* What an entry of this tree holds for a tuple that was made for it */
static inline void
tree_entry_set_tuple(const Tree *tree, uint8 *entry, const TreeTuple *tuple)
{
	uint64		ref = (uint64) tuple;

	if (tuple != NULL && tree_in_pool(tree))
		ref = pm_ptr(tuple);
	memcpy(entry + tree->cmp_len, &ref, sizeof(ref));
}

static inline TreeTuple *
tree_entry_tuple(const Tree *tree, const uint8 *entry)
{
	if (!tree->has_tuples)
		return NULL;
	return tree_tuple_at(entry + tree->cmp_len);
}

/*
 * The same for a caller that gives the tuple back, perhaps under a latch: NULL if it is
 * damaged.
 */
extern TreeTuple *tree_entry_tuple_quietly(const Tree *tree, const uint8 *entry);

/*
 * Lets a copied entry outlive the epoch: its tuple, if it has one, is replaced by a copy,
 * which is returned.  To be called inside the epoch in which the entry was read.  XX002 if
 * the tuple is damaged in the pool.
 */
extern TreeTuple *tree_copy_tuple(const Tree *tree, uint8 *entry, MemoryContext context);

#endif							/* SOFORT_INDEXAM_TREE_H */
