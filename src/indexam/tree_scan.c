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
#include "tree_internal.h"

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

/* Leaf for the seek; NULL if something changed under way. */
static TreeNode *
descend(Tree *tree, const TreeProbe *seek, bool before, TreeLeaf *leaf, uint64 *version)
{
	TreeNode   *node = tree_root(tree);
	uint64		v = node_version(tree, node);

	leaf->has_low = leaf->has_high = false;
	if (tree_root(tree) != node)
		return NULL;
	while (node->level > 0)
	{
		int			n = Min(node->n, tree->inner_capacity);
		int			slot = choose_child(tree, node, v, n, seek, before);
		TreeNode   *child;
		uint64		child_version;

		if (slot < 0)
			return NULL;
		child = node_child(tree, node, slot);
		note_fences(tree, node, slot, n, leaf);
		if (!node_unchanged(node, v))
			return NULL;
		child_version = node_version(tree, child);
		if (!node_unchanged(node, v))
			return NULL;
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
		TreeNode   *node = descend(tree, seek, before, leaf, &v);
		int			n;
		int			from;
		int			to;

		if (node == NULL)
			continue;
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
