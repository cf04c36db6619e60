/*-------------------------------------------------------------------------
 *
 * tree_scan.c
 *	  Reading a leaf.
 *
 * Leaves are not chained.  A scan gets, with the entries of a leaf, the
 * separators on both sides of it, and continues by descending to one of these:
 * whatever was split or merged meanwhile, the entries from the right separator
 * on (or before the left one) are where the descent leads.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

/* Remember the separators around child "slot"; deeper levels are narrower. */
static void
note_fences(const Tree *tree, const TreeNode *node, int slot, int n, TreeLeaf *leaf)
{
	const uint8 *entries = node_entries(tree, node);

	if (slot > 0)
	{
		memcpy(leaf->low, entries + (slot - 1) * tree->stride, tree->stride);
		leaf->has_low = true;
	}
	if (slot < n)
	{
		memcpy(leaf->high, entries + slot * tree->stride, tree->stride);
		leaf->has_high = true;
	}
}

/* Which child; -1: the node has changed */
static int
choose_child(const Tree *tree, const TreeNode *node, uint64 v, int n, const TreeProbe *seek,
			 bool before)
{
	if (seek == NULL)
		return before ? n : 0;
	return tree_count_before(tree, node, v, node_entries(tree, node), n, seek, !before);
}

/* Nodes on the way to a leaf; levels are those of the nodes */
typedef struct Path
{
	int			height;
	TreeNode   *node[TREE_MAX_LEVELS];
} Path;

/* Leaf for the seek; NULL if something changed under way.  path may be NULL. */
static TreeNode *
find_leaf_and_fences(Tree *tree, const TreeProbe *seek, bool before, TreeLeaf *leaf,
					 uint64 *version, Path *path)
{
	TreeNode   *node = tree_root(tree);
	uint64		v = node_version(tree, node);

	leaf->has_low = leaf->has_high = false;
	if (tree_root(tree) != node)
		return NULL;
	while (node->level > 0)
	{
		int			n = Min(node->n, tree->inner_capacity);
		int			slot;
		TreeNode   *child;
		uint64		child_version;

		node_miss(tree, node);
		slot = choose_child(tree, node, v, n, seek, before);
		if (slot < 0)
			return NULL;
		if (path != NULL && path->height < TREE_MAX_LEVELS)
			path->node[path->height++] = node;
		child = node_child(tree, node, slot);
		note_fences(tree, node, slot, n, leaf);
		if (!node_unchanged(node, v))
			return NULL;
		node_prefetch(tree, child, node->level - 1);
		child_version = node_version(tree, child);
		if (!node_unchanged(node, v))
			return NULL;
		check_child_level(node, child);
		node = child;
		v = child_version;
	}
	*version = v;
	return node;
}

/* Entries [from, to) between the bounds, among n at base */
static bool
find_range(const Tree *tree, const TreeNode *node, uint64 v, const uint8 *base, int n,
		   const TreeProbe *lower, const TreeProbe *upper, int *from, int *to)
{
	*from = 0;
	*to = n;
	if (lower != NULL)
		*from = tree_count_before(tree, node, v, base, n, lower, false);
	if (*from < 0)
		return false;
	if (upper != NULL)
		*to = tree_count_before(tree, node, v, base, n, upper, false);
	if (*to < 0)
		return false;
	if (*to < *from)
		*to = *from;
	return true;
}

void
tree_read_leaf(Tree *tree, const TreeProbe *seek, bool before, const TreeProbe *lower,
			   const TreeProbe *upper, const TreeOrder *order, TreeLeaf *leaf)
{
	for (;;)
	{
		uint64		v = 0;
		TreeNode   *node = find_leaf_and_fences(tree, seek, before, leaf, &v, NULL);
		int			n;
		int			from;
		int			to;

		if (node == NULL)
			continue;
		if (tree_in_pool(tree))
		{
			if (leaf_read(tree, node, v, lower, upper, order, leaf))
				return;
			continue;
		}
		n = Min(node->n, tree->leaf_capacity);
		if (!find_range(tree, node, v, node->data, n, lower, upper, &from, &to))
			continue;
		memcpy(leaf->entries, node->data + from * tree->stride, (to - from) * tree->stride);
		if (!node_unchanged(node, v))
			continue;
		leaf->n = to - from;
		leaf->cut_low = from > 0;
		leaf->cut_high = to < n;
		return;
	}
}

/* Notes for the sweep that everything the leaf and its path refer to is in use. */
static void
mark_reached(Tree *tree, const Path *path, TreeNode *node, TreeLeaf *leaf, TreeSweep *sweep)
{
	int			i;

	tree_sweep_reached(sweep, node);
	if (tree->placement == TREE_PMEM)
		for (i = 0; i < path->height; i++)
			tree_sweep_reached(sweep, path->node[i]);
	if (!tree->has_tuples)
		return;
	for (i = 0; i < leaf->n; i++)
	{
		TreeTuple  *tuple = tree_entry_tuple(tree, leaf->entries + i * tree->stride);

		if (tuple != NULL)
			tree_sweep_reached(sweep, tuple);
	}
}

void
tree_read_leaf_sweeping(Tree *tree, const TreeProbe *seek, const TreeOrder *order, TreeLeaf *leaf,
						TreeSweep *sweep)
{
	for (;;)
	{
		Path		path = {.height = 0};
		uint8		low[TREE_MAX_STRIDE];
		uint64		v = 0;
		TreeNode   *node;
		TreeTuple  *tuple;

		if (sweep == NULL)
		{
			tree_read_leaf(tree, seek, false, seek, NULL, order, leaf);
			return;
		}
		node = find_leaf_and_fences(tree, seek, false, leaf, &v, &path);
		if (node == NULL)
			continue;
		memcpy(low, leaf_low(pool_leaf(node)), tree->stride);
		if (!leaf_read(tree, node, v, seek, NULL, order, leaf))
			continue;
		mark_reached(tree, &path, node, leaf, sweep);
		tuple = tree_entry_tuple(tree, low);
		if (tuple != NULL)
			tree_sweep_reached(sweep, tuple);
		return;
	}
}
