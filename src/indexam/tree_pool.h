/*-------------------------------------------------------------------------
 *
 * tree_pool.h
 *	  Nodes and tuples of trees in the pool; shared by the tree's files only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TREE_POOL_H
#define SOFORT_TREE_POOL_H

#include "sofort/pmem/alloc.h"
#include "sofort/pmem/latency.h"
#include "sofort/pmem/persist.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "tree_internal.h"

/* ---- tree_pool.c: slots ---- */

/* Classes of slots: leaves, inner nodes, tuples by size */
#define SLOT_LEAF			0
#define SLOT_INNER			1
#define SLOT_FIRST_TUPLE	2
#define SLOT_CLASSES		19

/* Volatile; protected by the mutex.  Lists go through the slots themselves. */
typedef struct SlotClass
{
	uint32		slot_size;
	uint32		next_slots;		/* in the next chunk */
	uint32		nfresh;			/* slots of the newest chunk, never taken */
	char	   *fresh;
	char	   *free;
	char	   *retired;		/* unlinked since the last turn */
	char	   *waiting;		/* unlinked before waiting_epoch */
} SlotClass;

/* Where an allocation of the pool lies, and which of its slots are in use */
typedef struct SweepChunk
{
	char	   *slots;
	int			class;
	uint32		slot_size;
	uint32		nslots;
	uint8	   *reached;		/* bit per slot */
} SweepChunk;

struct TreeSpace
{
	StoreHeader *store;
	TreeHeader *header;
	LWLock	   *grow_lock;		/* protects the vector of chunks */
	slock_t		mutex;
	bool		any_waiting;
	uint64		waiting_epoch;
	uint64		old_chunks;		/* chunks below are of earlier lives: what is
								 * free there is not known until a sweep */
	SlotClass	classes[SLOT_CLASSES];
};

/* NULL if the arena is full. */
extern TreeSpace *pool_space_open(StoreHeader *store, TreeHeader *header, LWLock *grow_lock);
extern void pool_space_close(TreeSpace *space);

/* A slot that nobody else knows; NULL if the pool is full. */
extern void *pool_slot_take(Tree *tree, int class);

/* Gives back a slot that was never linked. */
extern void pool_slot_give(Tree *tree, int class, void *slot);

/* Gives back a slot that is unlinked, durably; it is free when its epoch has passed. */
extern void pool_slot_retire(Tree *tree, int class, void *slot);

extern void pool_reclaim(Tree *tree);
extern uint32 tree_chunk_crc(const TreeChunk *chunk);

/* Raises 53100 if it was the pool that was full last in this process; else returns. */
extern void pool_raise_full(void);
extern int	pool_tuple_class(Size size);

/*
 * A slot of an earlier life that nothing refers to becomes free; false: it was used in this
 * life.
 */
extern bool pool_slot_reclaim(Tree *tree, int class, void *slot);

/* ---- tree_sweep.c ---- */
extern void tree_sweep_reached(TreeSweep *sweep, const void *slot);

/* ---- tree_leaf.c: leaves in the pool ---- */

/* All entries of a leaf, copied and sorted */
typedef struct SortedLeaf
{
	int			n;
	uint8		slots[SOFORT_LEAF_SLOTS];	/* where they were */
	uint8		entries[TREE_LEAF_BYTES];
} SortedLeaf;

static inline TreeLeafNode *
pool_leaf(const TreeNode *node)
{
	return (TreeLeafNode *) node;
}

static inline uint8 *
leaf_low(const TreeLeafNode *leaf)
{
	return (uint8 *) leaf->data;
}

static inline uint8 *
leaf_entry(const Tree *tree, const TreeLeafNode *leaf, int slot)
{
	return (uint8 *) leaf->data + (slot + 1) * tree->stride;
}

static inline TreeNode *
leaf_next(const TreeLeafNode *leaf)
{
	PMPtr		next = leaf->next[(leaf->state & LEAF_SECOND_NEXT) != 0];

	return next == PM_NULL ? NULL : pm_deref(next);
}

/* Sizes by stride: entries per leaf, and bytes */
extern void leaf_geometry(int stride, uint16 *capacity, uint16 *size);

/* Makes what is volatile in a leaf from what is durable; the leaf is latched, or private. */
extern void leaf_revive(const Tree *tree, TreeLeafNode *leaf);

/* state with its parity */
static inline uint64
leaf_seal(uint64 state)
{
	return __builtin_parityll(state & ~LEAF_PARITY) ? state | LEAF_PARITY : state & ~LEAF_PARITY;
}

/* The number of the lower fence in "check" */
#define LEAF_FENCE			SOFORT_LEAF_SLOTS

/* Store the parities of what is in a slot, before its bit is set. */
extern void leaf_put_check(const Tree *tree, TreeLeafNode *leaf, int slot, const uint8 *entry);

/* What is wrong with the durable parts of a leaf (without its entries), or NULL. */
extern const char *leaf_head_problem(const Tree *tree, const TreeLeafNode *leaf);
extern const char *leaf_problem(const Tree *tree, const TreeLeafNode *leaf);

/* The same for an inner node in the pool (placement pmem) */
extern const char *pool_inner_problem(const Tree *tree, const TreeNode *node);

/* What is wrong with the tuple of an entry, or NULL */
extern const char *pool_tuple_problem(const Tree *tree, const uint8 *entry);

/*
 * Copy the entries between the bounds, in order.  False: the leaf has changed
 * since version v.
 */
extern bool leaf_read(Tree *tree, const TreeNode *node, uint64 v, const TreeProbe *lower,
					  const TreeProbe *upper, const TreeOrder *order, TreeLeaf *out);

extern bool leaf_fingerprints_right(const Tree *tree, const TreeLeafNode *leaf);

extern bool leaf_copy_sorted(Tree *tree, const TreeNode *node, uint64 v, const TreeOrder *order,
							 SortedLeaf *out);

/* Slot of the entry that equals the probe, -1 if there is none, -2: changed. */
extern int	leaf_find(Tree *tree, const TreeNode *node, uint64 v, const TreeProbe *probe);

/*
 * Adds an entry in a free slot of a latched leaf.  The entry is durable before its bit is
 * set.
 */
extern void leaf_add(Tree *tree, TreeNode *node, const uint8 *entry);

/* Removes the entries in these slots of a latched leaf, durably. */
extern void leaf_remove(TreeNode *node, uint64 slots);

/* Fills in the rest of a private leaf that has its entries, fence and bits; flushed. */
extern void leaf_complete(Tree *tree, TreeNode *node);

/* Fill a private, empty leaf with entries and its lower fence; flushed. */
extern void leaf_fill(Tree *tree, TreeNode *node, const uint8 *low, const uint8 *entries, int n);

/* Makes a lower fence of the entry, with a tuple of its own, flushed.  False: no space. */
extern bool tree_make_fence(Tree *tree, const uint8 *entry, uint8 *fence);

#endif							/* SOFORT_TREE_POOL_H */
