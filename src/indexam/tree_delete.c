/*-------------------------------------------------------------------------
 *
 * tree_delete.c
 *	  Deletion, and merging of underfull nodes.
 *
 * Two neighbours under one parent are merged into the left one; the right one is marked
 * obsolete and retired.  So the leftmost leaf never goes away.  A root with a single
 * child is replaced by that child.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

/* Leaf of the probe; its version in *version */
static TreeNode *
find_leaf(Tree *tree, const TreeProbe *probe, uint64 *version)
{
	for (;;)
	{
		TreeNode   *node = tree_root(tree);
		uint64		v = node_version(tree, node);

		if (tree_root(tree) != node)
			continue;
		for (;;)
		{
			int			slot;
			TreeNode   *child;
			uint64		child_version;

			if (node->level == 0)
			{
				if (!node_unchanged(node, v))
					break;
				*version = v;
				return node;
			}
			node_miss(tree, node);
			slot = tree_count_before(tree, node, v, node_entries(tree, node),
									 Min(node->n, tree->inner_capacity), probe, true);
			if (slot < 0)
				break;
			child = node_child(tree, node, slot);
			if (!node_unchanged(node, v))
				break;
			node_prefetch(tree, child, node->level - 1);
			child_version = node_version(tree, child);
			if (!node_unchanged(node, v))
				break;
			check_child_level(node, child);
			node = child;
			v = child_version;
		}
	}
}

/*
 * Deletes, from a leaf in the pool, those of these entries that lie in the leaf of the
 * first one, by one store and with one drain.  *done: how many of the probes need not be
 * looked at again.
 */
static int
delete_from_leaf(Tree *tree, TreeProbe *const *probes, int n, int *left, int *done)
{
	TreeTuple  *tuples[SOFORT_LEAF_SLOTS];
	TreeNode   *leaf;
	uint64		slots;
	uint64		rest;
	uint64		v;
	int			ntuples = 0;
	bool		first;
	int			i;

	do
	{
		int			slot = -1;

		leaf = find_leaf(tree, probes[0], &v);
		slots = 0;
		first = false;
		for (i = 0; i < n; i++)
		{
			slot = leaf_find(tree, leaf, v, probes[i]);
			first |= i == 0 && slot >= 0;
			if (slot >= 0)
				slots |= UINT64CONST(1) << slot;
			else if (i > 0 || slot == -2)
				break;			/* perhaps it is in the next leaf */
		}
		if (slot == -2)
			continue;
		*done = i;
		if (slots == 0)
		{
			left[0] = -1;
			return 0;
		}
		HOLD_INTERRUPTS();
		if (node_latch(leaf, v))
			break;
		RESUME_INTERRUPTS();
	} while (true);

	for (rest = slots; rest != 0 && tree->has_tuples; rest &= rest - 1)
	{
		tuples[ntuples] = tree_entry_tuple_quietly(tree, leaf_entry(tree, pool_leaf(leaf),
																	__builtin_ctzll(rest)));
		ntuples += tuples[ntuples] != NULL;
	}
	leaf_remove(leaf, slots);
	for (i = 0; i < *done; i++)
		left[i] = i > 0 || first ? (int) leaf->n : -1;
	node_unlatch(leaf);
	RESUME_INTERRUPTS();
	SOFORT_STOP("tree-entry-removed");
	for (i = 0; i < ntuples; i++)
		tree_tuple_release(tree, tuples[i]);
	tree_count(tree, -(int64) pg_popcount64(slots));
	return pg_popcount64(slots);
}

/*
 * Deletes an entry from a tree in DRAM.  Returns how many entries its leaf still has; -1:
 * the entry is not there.
 */
static int
delete_one(Tree *tree, const TreeProbe *probe)
{
	for (;;)
	{
		uint64		v;
		TreeNode   *leaf = find_leaf(tree, probe, &v);
		int			n = Min(leaf->n, tree->leaf_capacity);
		int			pos;
		int			left;
		uint8		copy[TREE_MAX_STRIDE];
		uint8	   *place;

		pos = tree_count_before(tree, leaf, v, leaf->data, n, probe, false);
		if (pos < 0)
			continue;
		place = leaf->data + pos * tree->stride;
		if (pos < n)
			memcpy(copy, place, tree->stride);
		if (!node_unchanged(leaf, v))
			continue;
		if (pos >= n || tree_probe_compare(tree, probe, copy) != 0)
			return -1;

		HOLD_INTERRUPTS();
		if (node_latch(leaf, v))
		{
			memmove(place, place + tree->stride, (n - pos - 1) * tree->stride);
			left = --leaf->n;
			node_unlatch(leaf);
			RESUME_INTERRUPTS();
			tree_drop_entry_tuple(tree, tree_entry_tuple(tree, copy));
			tree_count(tree, -1);
			return left;
		}
		RESUME_INTERRUPTS();
	}
}

int
tree_delete(Tree *tree, TreeProbe *const *probes, int n, int *left)
{
	int			deleted = 0;
	int			i;

	if (tree_in_pool(tree))
	{
		int			done;
		int			of_leaf[SOFORT_LEAF_SLOTS];

		for (i = 0; i < n; i += done)
		{
			deleted += delete_from_leaf(tree, probes + i, Min(n - i, SOFORT_LEAF_SLOTS),
										of_leaf, &done);
			if (left != NULL)
				memcpy(left + i, of_leaf, done * sizeof(int));
		}
		return deleted;
	}
	for (i = 0; i < n; i++)
	{
		int			rest = delete_one(tree, probes[i]);

		if (left != NULL)
			left[i] = rest;
		deleted += rest >= 0;
	}
	return deleted;
}

/* Would both fit into one node, with room to spare? */
static bool
should_merge(const Tree *tree, const MergePair *pair)
{
	int			n = pair->left->n + pair->right->n;

	if (pair->left->level > 0)
		n++;
	return n <= node_capacity(tree, pair->left) * 3 / 5;
}

/* Parent and both nodes, with interrupts held */
static bool
latch_pair(const MergePair *pair)
{
	HOLD_INTERRUPTS();
	if (node_latch(pair->parent, pair->parent_version))
	{
		if (node_latch(pair->left, pair->left_version))
		{
			if (node_latch(pair->right, pair->right_version))
				return true;
			node_unlatch_unchanged(pair->left);
		}
		node_unlatch_unchanged(pair->parent);
	}
	RESUME_INTERRUPTS();
	return false;
}

/* Merge; false if something has changed meanwhile. */
static bool
merge(Tree *tree, const MergePair *pair)
{
	TreeNode   *parent = pair->parent;
	TreeNode   *left = pair->left;
	TreeNode   *right = pair->right;
	TreeTuple  *dropped = NULL;
	uint8	   *separator;
	uint8	   *end;
	int			after;

	if (tree_level_in_pool(tree, parent->level))
		return pool_merge(tree, pair);
	if (!latch_pair(pair))
		return false;

	separator = node_entries(tree, parent) + pair->slot * tree->stride;
	end = node_entries(tree, left) + left->n * tree->stride;
	if (left->level == 0)
	{
		dropped = tree_entry_tuple_quietly(tree, separator);
		if (tree_in_pool(tree))
			pool_absorb_leaf(tree, left, right);
		else
		{
			memcpy(end, right->data, right->n * tree->stride);
			left->n += right->n;
		}
	}
	else
	{
		/* the separator comes down with its reference */
		memcpy(end, separator, tree->stride);
		memcpy(end + tree->stride, node_entries(tree, right), right->n * tree->stride);
		memcpy(node_refs(left) + left->n + 1, node_refs(right),
			   (right->n + 1) * sizeof(uint64));
		left->n += right->n + 1;
	}
	after = parent->n - pair->slot - 1;
	memmove(separator, separator + tree->stride, after * tree->stride);
	memmove(node_refs(parent) + pair->slot + 1, node_refs(parent) + pair->slot + 2,
			after * sizeof(uint64));
	parent->n--;

	node_unlatch_obsolete(right);
	node_unlatch(left);
	node_unlatch(parent);
	tree_node_retire(tree, right);
	RESUME_INTERRUPTS();
	SOFORT_STOP("tree-merge-done");
	tree_tuple_release(tree, dropped);
	return true;
}

/* The root has one child: that becomes the root. */
static void
lower_root(Tree *tree, TreeNode *root, uint64 version)
{
	HOLD_INTERRUPTS();
	if (node_latch(root, version))
	{
		if (tree_root(tree) == root)
		{
			tree_set_root(tree, node_child(tree, root, 0));
			node_unlatch_obsolete(root);
			tree_node_retire(tree, root);
		}
		else
			node_unlatch_unchanged(root);
	}
	RESUME_INTERRUPTS();
}

/*
 * Look at the child of the probe and one neighbour.  Sets *child; returns
 * whether the parent is unchanged, and *merged if the pair was merged.
 */
static bool
try_pair(Tree *tree, const Descent *d, const TreeProbe *probe, TreeNode **child,
		 uint64 *child_version, int *child_slot, bool *merged)
{
	TreeNode   *node = d->node;
	uint64		v = d->version;
	MergePair	pair = {.grand = d->parent, .grand_version = d->parent_version,
	.parent_slot = d->slot, .parent = node, .parent_version = v};
	int			n = Min(node->n, tree->inner_capacity);
	int			slot;

	*merged = false;
	node_miss(tree, node);
	slot = tree_count_before(tree, node, v, node_entries(tree, node), n, probe, true);
	if (slot < 0)
		return false;
	*child = node_child(tree, node, slot);
	*child_slot = slot;
	pair.slot = slot < n ? slot : slot - 1;
	if (n > 0)
	{
		pair.left = node_child(tree, node, pair.slot);
		pair.right = node_child(tree, node, pair.slot + 1);
	}
	if (!node_unchanged(node, v))
		return false;
	*child_version = node_version(tree, *child);
	if (!node_unchanged(node, v))
		return false;
	check_child_level(node, *child);
	if (n > 0)
	{
		pair.left_version = node_version(tree, pair.left);
		pair.right_version = node_version(tree, pair.right);
		*child_version = *child == pair.left ? pair.left_version : pair.right_version;
		if (!node_unchanged(node, v))
			return false;
		check_child_level(node, pair.left);
		check_child_level(node, pair.right);
		if (should_merge(tree, &pair))
			*merged = merge(tree, &pair);
	}
	return node_unchanged(node, v);
}

void
tree_shrink(Tree *tree, const TreeProbe *probe)
{
	int			tries = 0;

	while (tries++ < 100)
	{
		Descent		d = {.node = tree_root(tree)};
		bool		again = false;

		d.version = node_version(tree, d.node);
		if (tree_root(tree) != d.node)
			continue;
		if (d.node->level > 0 && d.node->n == 0 && node_unchanged(d.node, d.version))
		{
			lower_root(tree, d.node, d.version);
			continue;
		}
		while (d.node->level > 0)
		{
			TreeNode   *child;
			uint64		child_version;
			int			slot;
			bool		merged;

			if (!try_pair(tree, &d, probe, &child, &child_version, &slot, &merged) || merged)
			{
				again = true;
				break;
			}
			d.parent = d.node;
			d.parent_version = d.version;
			d.slot = slot;
			d.node = child;
			d.version = child_version;
		}
		if (!again)
			break;
	}
}
