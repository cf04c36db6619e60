/*-------------------------------------------------------------------------
 *
 * tree.c
 *	  Memory and searching of the DRAM B+tree.
 *
 * Nodes come from chunks that double up to 64 nodes and are given back only
 * with the whole tree, so a reader with a stale pointer always finds a node.
 * What was unlinked passes two lists: "retired" collects; when "waiting" is
 * empty, retired becomes waiting under a new epoch; when that epoch has passed,
 * its nodes are free and its tuples go back to the arena.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

#define CHUNK_MAX_NODES		60	/* with the header below 64 KB */

struct ArenaChunk
{
	ArenaChunk  *next;
	uint32		nnodes;
	uint32		used;			/* nodes with a lower index were handed out */
	TreeNode   *nodes;			/* aligned to cache lines */
};

/*
 * The first visit in this server life: what is volatile in the node is made anew.  What a
 * killed process stored may be visible but not durable, and from now on others rely on it,
 * so it is flushed, unless the start has written back what there was.  A damaged node stays
 * as it is, and is an error at each visit.
 */
static void
revive_node(const Tree *tree, TreeNode *node, uint64 v)
{
	uint64		life = (uint64) tree->life << 32;
	const char *problem = NULL;

	HOLD_INTERRUPTS();
	if (__atomic_compare_exchange_n(&node->version, &v, life | VERSION_LATCHED, false,
									__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
	{
		if (VERSION_LIFE(v) == 0)
			problem = "a node was never used";	/* zeros: all checks are right */
		else
			problem = node->level == 0 ? leaf_problem(tree, pool_leaf(node)) :
				pool_inner_problem(tree, node);
		if (problem == NULL)
		{
			if (node->level == 0)
				leaf_revive(tree, pool_leaf(node));
			if (!pm_found_is_durable())
			{
				if (node->level == 0)
					pm_flush(node, PM_LINE);
				else
					pool_inner_flush(tree, node);
				pm_drain();
			}
			node_unlatch(node);
		}
		else
			__atomic_store_n(&node->version, v, __ATOMIC_RELEASE);
	}
	RESUME_INTERRUPTS();
	if (problem != NULL)
		tree_damaged(problem);
}

/* Waits until the latch is released, which does not take long; returns the node's version. */
uint64
tree_wait_for_node(const Tree *tree, TreeNode *node)
{
	int			spins = 0;
	uint64		v;

	for (;;)
	{
		v = __atomic_load_n(&node->version, __ATOMIC_ACQUIRE);
		if (VERSION_LIFE(v) != tree->life)
		{
			revive_node(tree, node, v);
			continue;
		}
		if (!(v & VERSION_LATCHED))
			return v;
		if (++spins < 200)
			__builtin_ia32_pause();
		else
			pg_usleep(spins < 1000 ? 1 : 1000);
	}
}

Tree *
tree_make(TreePlacement placement, int key_len, bool has_tuples)
{
	Tree	   *tree = arena_alloc(sizeof(Tree), ARENA_NO_OOM | ARENA_ZERO);

	if (tree == NULL)
		return NULL;
	Assert(key_len >= TREE_MIN_KEY && key_len <= TREE_MAX_KEY);
	tree->key_len = key_len;
	tree->cmp_len = key_len + TREE_ROW_BYTES;
	tree->stride = tree->cmp_len + (has_tuples ? sizeof(TreeTuple *) : 0);
	Assert(tree->stride <= TREE_MAX_STRIDE);
	tree->has_tuples = has_tuples;
	tree->leaf_capacity = TREE_NODE_DATA / tree->stride;
	tree->inner_capacity = (TREE_NODE_DATA - sizeof(uint64)) / (tree->stride + sizeof(uint64));
	tree->placement = placement;
	tree->life = (uint32) pool_life();
	tree->entries = &tree->own_entries;
	tree->entries_exact = true;
	tree->next_chunk = 1;
	tree->node_bytes = sizeof(Tree);
	SpinLockInit(&tree->mutex);
	pg_atomic_init_u64(&tree->tuple_bytes, 0);
	return tree;
}

Tree *
tree_create(int key_len, bool has_tuples)
{
	Tree	   *tree = tree_make(TREE_DRAM, key_len, has_tuples);

	if (tree == NULL)
		return NULL;
	tree->root = tree_node_alloc(tree, 0);
	if (tree->root == NULL)
	{
		arena_free(tree);
		return NULL;
	}
	return tree;
}

/* ---- tuples ---- */

static uint16
tuple_check(const TreeTuple *tuple)
{
	return (uint16) PM_CHECK(tree_fold(tuple->size, &tuple->tuple, tuple->size), 16);
}

/* (Of nothing but zeros the check is right, too.) */
static bool
tuple_is_whole(const TreeTuple *tuple)
{
	return tuple->size >= sizeof(IndexTupleData) && IndexTupleSize(&tuple->tuple) == tuple->size &&
		tuple->check == tuple_check(tuple);
}

TreeTuple *
tree_pool_tuple(PMPtr ref)
{
	TreeTuple  *tuple = pm_deref(ref);

	if (unlikely(!tuple_is_whole(tuple)))
		tree_damaged("the tuple of an entry is damaged");
	return tuple;
}

/*
 * NULL for a damaged tuple.  Its class might not be that of its slot, which would then be
 * given to a caller who needs more.  It is left to the sweep of a later life.
 */
TreeTuple *
tree_entry_tuple_quietly(const Tree *tree, const uint8 *entry)
{
	TreeTuple  *tuple;
	PMPtr		ref;

	if (!tree->has_tuples || !tree_in_pool(tree))
		return tree_entry_tuple(tree, entry);
	memcpy(&ref, entry + tree->cmp_len, sizeof(ref));
	tuple = pm_deref_quietly(ref);
	return tuple != NULL && tuple_is_whole(tuple) ? tuple : NULL;
}

TreeTuple *
tree_copy_tuple(const Tree *tree, uint8 *entry, MemoryContext context)
{
	TreeTuple  *tuple = tree_entry_tuple(tree, entry);
	TreeTuple  *copy;
	Size		size;

	if (tuple == NULL)
		return NULL;
	size = offsetof(TreeTuple, tuple) + tuple->size;
	copy = MemoryContextAlloc(context, size);
	memcpy(copy, tuple, size);
	memcpy(entry + tree->cmp_len, &copy, sizeof(copy));
	return copy;
}

TreeTuple *
tree_tuple_make(IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);
	TreeTuple  *tuple = arena_alloc(offsetof(TreeTuple, tuple) + size, ARENA_NO_OOM);

	if (tuple == NULL)
		return NULL;
	tuple->next = NULL;
	pg_atomic_init_u32(&tuple->refs, 1);
	tuple->size = (uint16) size;
	memcpy(&tuple->tuple, itup, size);
	return tuple;
}

/* For checks: nothing is read that is not allocated. */
const char *
pool_tuple_problem(const Tree *tree, const uint8 *entry)
{
	const TreeTuple *tuple;
	PMPtr		ref;
	Size		left;

	if (!tree->has_tuples)
		return NULL;
	memcpy(&ref, entry + tree->cmp_len, sizeof(ref));
	if (ref == PM_NULL)
		return NULL;
	left = pm_allocated_size(ref);
	tuple = pm_deref_quietly(ref);
	if (left == 0)
		return "the tuple of an entry is not allocated";
	left -= (ref & PM_OFFSET_MASK) - (pm_allocation_start(ref) & PM_OFFSET_MASK);
	if (left < sizeof(TreeTuple) || left - offsetof(TreeTuple, tuple) < tuple->size ||
		!tuple_is_whole(tuple))
		return "the tuple of an entry is damaged";
	return NULL;
}

void
tree_damaged(const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("a sofort index is damaged in the pool: %s", problem),
			 errhint("sofort.verify() for its table tells which one; REINDEX it.")));
}

TreeTuple *
tree_pool_tuple_make(Tree *tree, IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);
	Size		total = offsetof(TreeTuple, tuple) + size;
	TreeTuple  *tuple = pool_slot_take(tree, pool_tuple_class(total));

	if (tuple == NULL)
		return NULL;
	tuple->next = NULL;
	tuple->size = (uint16) size;
	memcpy(&tuple->tuple, itup, size);
	tuple->check = tuple_check(tuple);
	pm_flush(tuple, total);
	return tuple;
}

void
tree_pool_tuple_discard(Tree *tree, TreeTuple *tuple)
{
	if (tuple != NULL)
		pool_slot_give(tree, pool_tuple_class(offsetof(TreeTuple, tuple) + tuple->size), tuple);
}

void
tree_count_tuple(Tree *tree, const TreeTuple *tuple)
{
	if (tree_in_pool(tree))
		return;
	pg_atomic_fetch_add_u64(&tree->tuple_bytes, offsetof(TreeTuple, tuple) + tuple->size);
}

/* An entry of a tree in DRAM is gone: so is its reference, and what it counted for. */
void
tree_drop_entry_tuple(Tree *tree, TreeTuple *tuple)
{
	if (tuple == NULL)
		return;
	pg_atomic_fetch_sub_u64(&tree->tuple_bytes, offsetof(TreeTuple, tuple) + tuple->size);
	tree_tuple_release(tree, tuple);
}

void
tree_tuple_discard(TreeTuple *tuple)
{
	if (tuple != NULL && pg_atomic_sub_fetch_u32(&tuple->refs, 1) == 0)
		arena_free(tuple);
}

/* One reference less; the last one retires it. */
void
tree_tuple_release(Tree *tree, TreeTuple *tuple)
{
	if (tuple != NULL && tree_in_pool(tree))
	{
		pool_slot_retire(tree, pool_tuple_class(offsetof(TreeTuple, tuple) + tuple->size), tuple);
		return;
	}
	if (tuple == NULL || pg_atomic_sub_fetch_u32(&tuple->refs, 1) > 0)
		return;
	SpinLockAcquire(&tree->mutex);
	tuple->next = tree->retired_tuples;
	tree->retired_tuples = tuple;
	SpinLockRelease(&tree->mutex);
}

/* ---- nodes ---- */

static inline bool
chunk_has_room(const ArenaChunk *chunk)
{
	return chunk != NULL && chunk->used < chunk->nnodes;
}

/* A new chunk; its size is decided under the mutex, filled in outside. */
static bool
chunk_add(Tree *tree)
{
	uint32		nnodes = tree->next_chunk;
	Size		size = sizeof(ArenaChunk) + PG_CACHE_LINE_SIZE + (Size) nnodes * TREE_NODE_SIZE;
	ArenaChunk  *chunk = arena_alloc(size, ARENA_NO_OOM | ARENA_ZERO);

	if (chunk == NULL && nnodes > 1)
	{
		nnodes = 1;				/* the last room there is */
		size = sizeof(ArenaChunk) + PG_CACHE_LINE_SIZE + TREE_NODE_SIZE;
		chunk = arena_alloc(size, ARENA_NO_OOM | ARENA_ZERO);
	}
	if (chunk == NULL)
		return false;
	chunk->nnodes = nnodes;
	chunk->nodes = (TreeNode *) TYPEALIGN(64, (char *) chunk + sizeof(ArenaChunk));

	SpinLockAcquire(&tree->mutex);
	if (chunk_has_room(tree->chunks))
	{
		/* somebody was faster: behind another one its nodes would never be used */
		SpinLockRelease(&tree->mutex);
		arena_free(chunk);
		return true;
	}
	chunk->next = tree->chunks;
	tree->chunks = chunk;
	tree->next_chunk = Min(Max(tree->next_chunk, nnodes) * 2, CHUNK_MAX_NODES);
	tree->node_bytes += size;
	SpinLockRelease(&tree->mutex);
	return true;
}

/* From the free list or the newest chunk; NULL if both are empty. */
static TreeNode *
node_take(Tree *tree)
{
	TreeNode   *node = NULL;

	SpinLockAcquire(&tree->mutex);
	if (tree->free_nodes != NULL)
	{
		node = tree->free_nodes;
		memcpy(&tree->free_nodes, node->data, sizeof(TreeNode *));
	}
	else if (chunk_has_room(tree->chunks))
		node = &tree->chunks->nodes[tree->chunks->used++];
	if (node != NULL)
		tree->nodes++;
	SpinLockRelease(&tree->mutex);
	return node;
}

/* In the pool; all but the version is zero. */
static TreeNode *
pool_node_alloc(Tree *tree, int level)
{
	TreeNode   *node = pool_slot_take(tree, level == 0 ? SLOT_LEAF : SLOT_INNER);

	if (node != NULL && level == 0)
	{
		TreeLeafNode *leaf = pool_leaf(node);

		leaf->state = leaf->list = 0;
		memset(leaf->next, 0, sizeof(leaf->next));
		memset(leaf->check, 0, sizeof(leaf->check));
	}
	return node;
}

/* From the arena */
static TreeNode *
arena_node_alloc(Tree *tree)
{
	TreeNode   *node = node_take(tree);

	if (node == NULL && (tree->retired_nodes != NULL || tree->waiting_nodes != NULL))
	{
		tree_reclaim(tree);
		node = node_take(tree);
	}
	while (node == NULL)
	{
		/* another process may take the whole chunk first */
		if (!chunk_add(tree))
			return NULL;
		node = node_take(tree);
	}
	return node;
}

/* An empty node that nobody else knows; NULL if arena or pool is full. */
TreeNode *
tree_node_alloc(Tree *tree, int level)
{
	TreeNode   *node = tree_level_in_pool(tree, level) ? pool_node_alloc(tree, level) :
		arena_node_alloc(tree);

	if (node == NULL)
		return NULL;
	node->version = version_next(((uint64) tree->life << 32) |
								 ((uint32) node->version & ~(VERSION_OBSOLETE | VERSION_LATCHED)));
	node->level = level;
	node->n = 0;
	return node;
}

/* One node in DRAM less; its place is linked through its first bytes. */
static void
put_on_list(Tree *tree, TreeNode **list, TreeNode *node)
{
	SpinLockAcquire(&tree->mutex);
	memcpy(node->data, list, sizeof(TreeNode *));
	*list = node;
	tree->nodes--;
	SpinLockRelease(&tree->mutex);
}

/* Gives back a node that was never linked. */
void
tree_node_unused(Tree *tree, TreeNode *node)
{
	if (node == NULL)
		return;
	if (tree_level_in_pool(tree, node->level))
	{
		pool_slot_give(tree, node->level == 0 ? SLOT_LEAF : SLOT_INNER, node);
		return;
	}
	put_on_list(tree, &tree->free_nodes, node);
}

/*
 * Retires a node that was unlinked and is marked obsolete.  Its contents are overwritten at
 * once: readers see that it is obsolete before they use them.
 */
void
tree_node_retire(Tree *tree, TreeNode *node)
{
	if (tree_level_in_pool(tree, node->level))
	{
		pool_slot_retire(tree, node->level == 0 ? SLOT_LEAF : SLOT_INNER, node);
		return;
	}
	put_on_list(tree, &tree->retired_nodes, node);
}

/* Nodes of a list become free. */
static void
free_nodes(Tree *tree, TreeNode *list)
{
	TreeNode   *tail = list;
	TreeNode   *next;

	if (list == NULL)
		return;
	for (;;)
	{
		memcpy(&next, tail->data, sizeof(TreeNode *));
		if (next == NULL)
			break;
		tail = next;
	}
	SpinLockAcquire(&tree->mutex);
	memcpy(tail->data, &tree->free_nodes, sizeof(TreeNode *));
	tree->free_nodes = list;
	SpinLockRelease(&tree->mutex);
}

void
tree_reclaim(Tree *tree)
{
	TreeNode   *nodes = NULL;
	TreeTuple  *free_tuples = NULL;

	if (tree_in_pool(tree))
		pool_reclaim(tree);
	SpinLockAcquire(&tree->mutex);
	if ((tree->waiting_nodes != NULL || tree->waiting_tuples != NULL) &&
		epoch_passed(tree->waiting_epoch))
	{
		nodes = tree->waiting_nodes;
		free_tuples = tree->waiting_tuples;
		tree->waiting_nodes = NULL;
		tree->waiting_tuples = NULL;
	}
	if (tree->waiting_nodes == NULL && tree->waiting_tuples == NULL &&
		(tree->retired_nodes != NULL || tree->retired_tuples != NULL))
	{
		tree->waiting_nodes = tree->retired_nodes;
		tree->waiting_tuples = tree->retired_tuples;
		tree->retired_nodes = NULL;
		tree->retired_tuples = NULL;
		tree->waiting_epoch = epoch_advance();
	}
	SpinLockRelease(&tree->mutex);

	free_nodes(tree, nodes);
	while (free_tuples != NULL)
	{
		TreeTuple  *tuple = free_tuples;

		free_tuples = tuple->next;
		arena_free(tuple);
	}
}

void
tree_leave_tuple(TreeTuple *tuple, Tree *heir)
{
	if (heir != NULL)
		tree_tuple_release(heir, tuple);
	else
		tree_tuple_discard(tuple);
}

/* Give up the tuples of all entries below this node. */
static void
leave_tuples(Tree *tree, TreeNode *node, Tree *heir)
{
	uint8	   *entry = node_entries(tree, node);
	int			i;

	for (i = 0; i < node->n; i++, entry += tree->stride)
		tree_leave_tuple(tree_entry_tuple(tree, entry), heir);
	if (node->level > 0)
	{
		for (i = 0; i <= node->n; i++)
			leave_tuples(tree, node_child(tree, node, i), heir);
	}
}

static void
free_tuple_list(TreeTuple *tuple)
{
	while (tuple != NULL)
	{
		TreeTuple  *next = tuple->next;

		arena_free(tuple);
		tuple = next;
	}
}

void
tree_destroy(Tree *tree)
{
	tree_destroy_beside(tree, NULL);
}

void
tree_destroy_beside(Tree *tree, Tree *heir)
{
	ArenaChunk  *chunk = tree->chunks;

	if (tree_in_pool(tree))
		pool_space_close(tree->space);
	else if (tree->has_tuples)
	{
		leave_tuples(tree, tree->root, heir);
		free_tuple_list(tree->retired_tuples);
		free_tuple_list(tree->waiting_tuples);
	}
	while (chunk != NULL)
	{
		ArenaChunk  *next = chunk->next;

		arena_free(chunk);
		chunk = next;
	}
	arena_free(tree);
}

int
tree_height(const Tree *tree)
{
	return tree_root(tree)->level;
}

uint64
tree_dram_bytes(const Tree *tree)
{
	return tree->node_bytes +
		pg_atomic_read_u64((pg_atomic_uint64 *) &tree->tuple_bytes);
}

uint64
tree_pool_bytes(const Tree *tree)
{
	return tree_in_pool(tree) ?
		__atomic_load_n(&tree->space->header->bytes, __ATOMIC_RELAXED) : 0;
}

void
tree_set_root(Tree *tree, TreeNode *node)
{
	if (tree->placement == TREE_PMEM)
		pm_store8_persist(&tree->space->header->root, pm_ptr(node));
	__atomic_store_n(&tree->root, node, __ATOMIC_RELEASE);
}

void
tree_raise_full(const Tree *tree)
{
	if (tree_in_pool(tree))
		pool_raise_full();
}

/* ---- searching ---- */

int
tree_probe_compare(const Tree *tree, const TreeProbe *probe, const uint8 *entry)
{
	int			c;

	if (probe->compare == NULL)
		return bytes_compare(probe->bytes, entry, tree->cmp_len);
	c = memcmp(probe->bytes, entry, probe->nbytes);
	return c != 0 ? c : probe->compare(probe, entry);
}

/* Entries of 8 to 16 bytes: two loads each, no branches but the loop's. */
static int
count_before_16(const uint8 *base, int n, int stride, int len, const uint8 *bytes, bool or_equal)
{
	uint64		p0 = load_be64(bytes);
	uint64		p1 = load_be64(bytes + len - 8) + (or_equal ? 1 : 0);
	int			low = 0;

	/* e <= p is e < p + 1; the row id 2^40 - 1 is never used: no overflow */
	while (n > 0)
	{
		int			half = n >> 1;
		const uint8 *e = base + (low + half) * stride;
		uint64		e0 = load_be64(e);
		uint64		e1 = load_be64(e + len - 8);
		bool		before = (e0 < p0) | ((e0 == p0) & (e1 < p1));

		low = before ? low + half + 1 : low;
		n = before ? n - half - 1 : half;
	}
	return low;
}

static int
count_before_bytes(const uint8 *base, int n, int stride, int len, const uint8 *bytes,
				   bool or_equal)
{
	int			low = 0;

	while (n > 0)
	{
		int			half = n >> 1;
		int			c = bytes_compare(base + (low + half) * stride, bytes, len);

		if (c < 0 || (or_equal && c == 0))
		{
			low += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	return low;
}

int
tree_count_before(const Tree *tree, const TreeNode *node, uint64 v, const uint8 *base, int n,
				  const TreeProbe *probe, bool or_equal)
{
	int			low = 0;

	if (probe->compare == NULL)
	{
		if (tree->cmp_len <= 16)
		{
			static const uint8 all_ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};

			/* only an upper bound has these bytes; no entry is equal to it */
			if (memcmp(probe->bytes + tree->cmp_len - 8, all_ones, 8) == 0)
				or_equal = false;
			return count_before_16(base, n, tree->stride, tree->cmp_len, probe->bytes, or_equal);
		}
		return count_before_bytes(base, n, tree->stride, tree->cmp_len, probe->bytes, or_equal);
	}

	while (n > 0)
	{
		int			half = n >> 1;
		const uint8 *e = base + (low + half) * tree->stride;
		int			c = memcmp(e, probe->bytes, probe->nbytes);

		if (c == 0)
		{
			uint8		copy[TREE_MAX_STRIDE];

			/* the tuple may only be looked at if the entry is real */
			memcpy(copy, e, tree->stride);
			if (node != NULL && !node_unchanged(node, v))
				return -1;
			c = -probe->compare(probe, copy);
		}
		if (c < 0 || (or_equal && c == 0))
		{
			low += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	return low;
}
