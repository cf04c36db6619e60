/*-------------------------------------------------------------------------
 *
 * tree_internal.h
 *	  Nodes, latches and comparisons; shared by the tree's files only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TREE_INTERNAL_H
#define SOFORT_TREE_INTERNAL_H

#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"
#include "sofort/indexam/tree.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/latency.h"
#include "sofort/pmem/pool.h"
#include "sofort/pmem/read_ahead.h"
#include "storage/spin.h"

#define VERSION_LATCHED		UINT64CONST(1)
#define VERSION_OBSOLETE	UINT64CONST(2)
#define VERSION_STEP		4
#define TREE_LEAF_HEAD_LINES 2		/* of a leaf in the pool: header, fingerprints */
#define VERSION_LIFE(v)		((uint32) ((v) >> 32))

/* All but root and space; NULL if the arena is full. */
extern Tree *tree_make(TreePlacement placement, int key_len, bool has_tuples);
extern TreeNode *tree_node_alloc(Tree *tree, int level);
extern void tree_node_unused(Tree *tree, TreeNode *node);
extern void tree_node_retire(Tree *tree, TreeNode *node);
extern void tree_tuple_release(Tree *tree, TreeTuple *tuple);
extern void tree_drop_entry_tuple(Tree *tree, TreeTuple *tuple);
extern uint64 tree_wait_for_node(const Tree *tree, TreeNode *node);

/* The new root, durable if it is in the pool; under the old root's latch. */
extern void tree_set_root(Tree *tree, TreeNode *node);

/* Is a node of this level in the pool? */
static inline bool
tree_level_in_pool(const Tree *tree, int level)
{
	return tree->space != NULL && (level == 0 || tree->placement == TREE_PMEM);
}

static inline void
tree_count(Tree *tree, int64 n)
{
	(void) __atomic_fetch_add(tree->entries, (uint64) n, __ATOMIC_RELAXED);
}

/* ---- latches ---- */

/*
 * Version of a node that is not being changed.  The node may be obsolete: readers go on to
 * check the pointer that led here, which has changed then.
 */
static inline uint64
node_version(const Tree *tree, const TreeNode *node)
{
	uint64		v = __atomic_load_n(&node->version, __ATOMIC_ACQUIRE);

	if (unlikely((v & VERSION_LATCHED) || VERSION_LIFE(v) != tree->life))
		v = tree_wait_for_node(tree, (TreeNode *) node);
	return v;
}

/* Is what was read from the node since node_version() consistent? */
static inline bool
node_unchanged(const TreeNode *node, uint64 version)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&node->version, __ATOMIC_RELAXED) == version;
}

/*
 * Latch the node if it has not changed since.  Never waits, so the order in
 * which latches are taken does not matter.  The caller holds off interrupts.
 */
static inline bool
node_latch(TreeNode *node, uint64 version)
{
	if (version & VERSION_OBSOLETE)
		return false;
	return __atomic_compare_exchange_n(&node->version, &version, version | VERSION_LATCHED,
									   false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* One change later; the counter stays clear of the life. */
static inline uint64
version_next(uint64 v)
{
	return (v & ~(uint64) PG_UINT32_MAX) | (uint32) ((uint32) v + VERSION_STEP);
}

static inline void
node_unlatch(TreeNode *node)
{
	__atomic_store_n(&node->version, version_next(node->version & ~VERSION_LATCHED),
					 __ATOMIC_RELEASE);
}

/* Give the latch back without having changed anything. */
static inline void
node_unlatch_unchanged(TreeNode *node)
{
	__atomic_store_n(&node->version, node->version & ~VERSION_LATCHED, __ATOMIC_RELEASE);
}

static inline void
node_unlatch_obsolete(TreeNode *node)
{
	__atomic_store_n(&node->version,
					 version_next((node->version & ~VERSION_LATCHED) | VERSION_OBSOLETE),
					 __ATOMIC_RELEASE);
}

/* ---- contents ---- */

/* References to children: see Tree.ref_base */
static inline uint64 *
node_refs(const TreeNode *node)
{
	return (uint64 *) node->data;
}

static inline TreeNode *
node_child(const Tree *tree, const TreeNode *node, int i)
{
	return (TreeNode *) (tree->ref_base + (node_refs(node)[i] & PM_OFFSET_MASK));
}

/*
 * A child that was linked in its parent all the time lies one level below it.  Damaged
 * references would lead round and round, or to an inner node that is taken for a leaf.
 */
static inline void
check_child_level(const TreeNode *parent, const TreeNode *child)
{
	if (unlikely(child->level + 1 != parent->level))
		tree_damaged("a node is on the wrong level");
}

static inline uint64
node_ref(const Tree *tree, const TreeNode *node)
{
	return tree->ref_base != 0 ? pm_ptr(node) : (uint64) node;
}

/* Entries of a leaf, separators of an inner node */
static inline uint8 *
node_entries(const Tree *tree, const TreeNode *node)
{
	return (uint8 *) node->data +
		(node->level == 0 ? 0 : (tree->inner_capacity + 1) * sizeof(uint64));
}

static inline int
node_capacity(const Tree *tree, const TreeNode *node)
{
	return node->level == 0 ? tree->leaf_capacity : tree->inner_capacity;
}

static inline TreeNode *
tree_root(const Tree *tree)
{
	return __atomic_load_n(&tree->root, __ATOMIC_ACQUIRE);
}

/* One more reference to the tuple of this entry, if it has one; DRAM only */
static inline void
entry_add_ref(const Tree *tree, const uint8 *entry)
{
	TreeTuple  *tuple = tree_in_pool(tree) ? NULL : tree_entry_tuple(tree, entry);

	if (tuple != NULL)
		pg_atomic_fetch_add_u32(&tuple->refs, 1);
}

/* Bytes as 8-byte words, added without carry */
static inline uint64
tree_fold(uint64 sum, const void *bytes, Size n)
{
	const uint8 *p = bytes;
	uint64		w;

	for (; n >= sizeof(w); n -= sizeof(w), p += sizeof(w))
	{
		memcpy(&w, p, sizeof(w));
		sum ^= w;
	}
	if (n > 0)
	{
		w = 0;
		memcpy(&w, p, n);
		sum ^= w;
	}
	return sum;
}

static inline uint64
load_be64(const uint8 *p)
{
	uint64		w;

	memcpy(&w, p, sizeof(w));
	return pg_bswap64(w);
}

/* As memcmp, len >= 8; the last 8 bytes may overlap those before. */
static inline int
bytes_compare(const uint8 *a, const uint8 *b, int len)
{
	int			i;

	for (i = 0; i < len - 8; i += 8)
	{
		uint64		x = load_be64(a + i);
		uint64		y = load_be64(b + i);

		if (x != y)
			return x < y ? -1 : 1;
	}
	{
		uint64		x = load_be64(a + len - 8);
		uint64		y = load_be64(b + len - 8);

		return x == y ? 0 : (x < y ? -1 : 1);
	}
}

/* ---- descending ---- */

/*
 * A descent comes to this node next.  In slow memory it is better to fetch its lines all at
 * once than one after the other during the search.  (Of a leaf only the head is certain to
 * be read: the fingerprints in it tell which entries are.  Above the lowest inner level,
 * and in DRAM, prefetching would cost more than it gains.)
 */
static inline void
node_prefetch(const Tree *tree, const TreeNode *node, int level)
{
	int			lines = 0;

	if (level == 0 && tree_in_pool(tree))
		lines = TREE_LEAF_HEAD_LINES;
	else if (level == 1 && tree->placement == TREE_PMEM)
		lines = TREE_NODE_SIZE / PM_LINE;
	for (int i = 0; i < lines; i++)
		__builtin_prefetch((const char *) node + i * PM_LINE);
}

/*
 * Emulation: an inner node in the pool was read.  Above the lowest of these levels there
 * are few nodes; they count as cached.
 */
static inline void
node_miss(const Tree *tree, const TreeNode *node)
{
	if (unlikely(sofort_scm_read_latency != 0) && node->level == 1 &&
		tree->placement == TREE_PMEM)
		pm_read_miss(1);
}

/* Where a descent is: a node, its parent and grandparent, and their versions */
typedef struct Descent
{
	TreeNode   *grand;			/* NULL: parent is the root, or NULL */
	uint64		grand_version;
	int			parent_slot;	/* parent = child "parent_slot" of grand */
	TreeNode   *parent;			/* NULL at the root */
	uint64		parent_version;
	int			slot;			/* node = child "slot" of parent */
	TreeNode   *node;
	uint64		version;
	bool		rightmost;		/* nothing lies to the right of node */
} Descent;

/* Latch the node and its parent, if the node is still where it was. */
extern bool tree_latch_pair(Tree *tree, Descent *d);

/*
 * Links "right" with its separator to the right of child "slot" of the parent, or puts
 * new_root above both; in DRAM.  All are latched or unknown to others.
 */
extern void tree_link_right(Tree *tree, Descent *d, TreeNode *new_root, const uint8 *separator,
							TreeNode *right);

/* Two neighbours, their parent and grandparent */
typedef struct MergePair
{
	TreeNode   *grand;
	uint64		grand_version;
	int			parent_slot;
	TreeNode   *parent;
	uint64		parent_version;
	int			slot;			/* left = child "slot" */
	TreeNode   *left;
	uint64		left_version;
	TreeNode   *right;
	uint64		right_version;
} MergePair;

/* ---- tree_split.c: changes of structure in the pool ---- */

/*
 * TREE_DONE, TREE_FULL, or TREE_ABSENT: something has changed, start again.
 * The leaf may be given one more leaf to its right instead of being split, if
 * the entry comes after all others.
 */
extern TreeResult pool_split_leaf(Tree *tree, Descent *d, const uint8 *entry,
								  const TreeOrder *order);
extern TreeResult pool_split_inner(Tree *tree, Descent *d);

/* placement pmem; false if something has changed, or there is no space. */
extern bool pool_merge(Tree *tree, const MergePair *pair);

/* placement hybrid: the entries of the right leaf into the left one, both latched. */
extern void pool_absorb_leaf(Tree *tree, TreeNode *left, TreeNode *right);

extern void pool_inner_flush(const Tree *tree, TreeNode *node);

/*
 * Number of entries before the probe (or_equal: or equal to it) among n that
 * lie at base in a node whose version is v.  -1: the node has changed.
 * node == NULL: base is private.
 */
extern int	tree_count_before(const Tree *tree, const TreeNode *node, uint64 v,
							  const uint8 *base, int n, const TreeProbe *probe, bool or_equal);

#endif							/* SOFORT_TREE_INTERNAL_H */
