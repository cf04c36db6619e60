/*-------------------------------------------------------------------------
 *
 * tree_open.c
 *	  Trees in the pool: made, completed, opened after a start.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

#include "sofort/store/store.h"

/* Of what never changes */
static uint32
header_crc(const TreeHeader *header)
{
	return pm_crc_of_two(header, offsetof(TreeHeader, root), header->format, header->format_size);
}

const char *
tree_header_problem(const StoreHeader *store)
{
	const TreeHeader *header = pm_deref_quietly(store->tree);
	Size		allocated = pm_allocated_size(store->tree);

	if (header == NULL || allocated < sizeof(TreeHeader))
		return "header of the tree is not allocated";
	if (header->magic != SOFORT_TREE_MAGIC ||
		header->format_size > allocated - offsetof(TreeHeader, format) ||
		header->crc != header_crc(header))
		return "checksum of the tree's header is wrong";
	/* (others replace the root meanwhile: it is looked at as it was once) */
	if (!pm_ref_is_valid(*(const volatile PMPtr *) (header->placement == TREE_PMEM ? &header->root :
													&header->first_leaf)))
		return "reference to the root is damaged";
	return NULL;
}

static void
take_over_header(Tree *tree, TreeSpace *space)
{
	TreeHeader *header = space->header;

	tree->space = space;
	tree->leaf_capacity = header->leaf_capacity;
	tree->entries = &header->entries;
	if (tree->placement == TREE_PMEM)
		tree->ref_base = (uint64) PoolBase;
}

/* The header of a new tree, linked; NULL if the pool is full. */
static TreeHeader *
make_header(StoreHeader *store, TreePlacement placement, int key_len, bool has_tuples,
			const void *format, int format_size, uint64 collations)
{
	int			stride = key_len + TREE_ROW_BYTES + (has_tuples ? sizeof(uint64) : 0);
	PmReservation r;
	TreeHeader *header;

	pm_reserve(&r, store_id_of(store), offsetof(TreeHeader, format) + format_size, &store->tree, 1,
			   PM_RESERVE_SHARED_SLAB | PM_RESERVE_ZERO);
	header = r.addr;
	header->magic = SOFORT_TREE_MAGIC;
	header->key_len = key_len;
	header->has_tuples = has_tuples;
	header->placement = placement;
	leaf_geometry(stride, &header->leaf_capacity, &header->leaf_size);
	header->format_size = format_size;
	header->collations = collations;
	memcpy(header->format, format, format_size);
	header->crc = header_crc(header);
	pm_flush(header, offsetof(TreeHeader, format) + format_size);
	pm_publish(&r);
	return header;
}

Tree *
tree_create_in_pool(StoreHeader *store, TreePlacement placement, int key_len, bool has_tuples,
					const void *format, int format_size, uint64 collations, LWLock *grow_lock)
{
	TreeHeader *header = make_header(store, placement, key_len, has_tuples, format,
									 format_size, collations);
	Tree	   *tree = tree_make(placement, key_len, has_tuples);
	TreeSpace  *space;
	TreeNode   *leaf;
	uint8		low[TREE_MAX_STRIDE] = {0};

	if (tree == NULL)
		return NULL;
	space = pool_space_open(store, header, grow_lock);
	if (space == NULL)
	{
		arena_free(tree);
		return NULL;
	}
	take_over_header(tree, space);
	leaf = tree_node_alloc(tree, 0);
	if (leaf == NULL)
	{
		/* for tree_raise_full(): without a tree the caller says that memory is short */
		tree_destroy(tree);
		pool_raise_full();
		return NULL;
	}
	leaf_fill(tree, leaf, low, low, 0);
	header->first_leaf = pm_ptr(leaf);	/* durable with tree_complete() */
	tree_set_root(tree, leaf);
	return tree;
}

/* Built, or opened: all of it is durable before others rely on it. */
void
tree_complete(Tree *tree)
{
	StoreHeader *store = tree->space->store;

	pm_flush(tree->space->header, sizeof(TreeHeader));
	pm_drain();
	SOFORT_STOP("tree-built");
	store_set_flags(store, store_flags(store) | STORE_TREE_COMPLETE);
	SOFORT_STOP("tree-complete");
}

/*
 * Inner nodes above the chain of leaves; false: the arena is full, or *problem.
 * (Entries are looked at when a leaf is visited first.)  Leaves are flushed, and
 * drained by tree_complete().
 */
static bool
build_inner_nodes(Tree *tree, const char **problem)
{
	TreeBuilder builder;
	TreeLeafNode *leaf = pool_leaf(tree->root);
	uint64		left = tree->space->old_chunks * (PM_GRANULE / tree->space->header->leaf_size);
	uint64		entries = 0;

	tree_build_begin(&builder, tree, 90);
	for (;;)
	{
		TreeNode   *next;

		*problem = leaf_head_problem(tree, leaf);
		if (*problem == NULL && left-- == 0)
			*problem = "the chain of leaves leads round and round";
		if (*problem != NULL)
			return false;
		next = leaf_next(leaf);
		/* from now on no leaf has to be reached through the one before it */
		if (!pm_found_is_durable())
			pm_flush(leaf, PM_LINE);
		entries += pg_popcount64(leaf->state & LEAF_SLOTS_MASK);
		if (next == NULL)
			break;
		pm_note_read(next);
		__builtin_prefetch(next);
		__builtin_prefetch(leaf_low(pool_leaf(next)));
		if (!tree_build_add_leaf(&builder, leaf_low(pool_leaf(next)), next))
			return false;
		leaf = pool_leaf(next);
		pm_read_miss(1);
	}
	__atomic_store_n(tree->entries, entries, __ATOMIC_RELAXED);
	return true;
}

/*
 * What a killed process stored last in the header may not be durable: tree_complete()
 * flushes it before anybody finds the tree.
 */
Tree *
tree_open(StoreHeader *store, LWLock *grow_lock)
{
	TreeHeader *header = pm_deref(store->tree);
	const char *problem = NULL;
	Tree	   *tree = tree_make(header->placement, header->key_len, header->has_tuples);
	TreeSpace  *space = tree == NULL ? NULL : pool_space_open(store, header, grow_lock);

	if (space == NULL)
	{
		if (tree != NULL)
			arena_free(tree);
		return NULL;
	}
	take_over_header(tree, space);
	tree->root = pm_deref(tree->placement == TREE_PMEM ? header->root : header->first_leaf);
	if (tree->placement == TREE_PMEM)
		tree->entries_exact = false;
	else if (!build_inner_nodes(tree, &problem))
	{
		tree_destroy(tree);
		if (problem != NULL)
			tree_damaged(problem);
		return NULL;
	}
	return tree;
}
