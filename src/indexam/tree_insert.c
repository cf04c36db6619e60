/*-------------------------------------------------------------------------
 *
 * tree_insert.c
 *	  Insertion and splitting.
 *
 * The descent reads optimistically and splits full nodes on its way, so a
 * split never has to climb.  A node is changed only between node_latch() (which
 * fails if anything was changed since it was read) and node_unlatch(); memory
 * is taken before the first latch.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

bool
tree_latch_pair(Tree *tree, Descent *d)
{
	HOLD_INTERRUPTS();
	if (d->parent != NULL && !node_latch(d->parent, d->parent_version))
	{
		RESUME_INTERRUPTS();
		return false;
	}
	if (node_latch(d->node, d->version))
	{
		if (d->parent != NULL || tree_root(tree) == d->node)
			return true;
		node_unlatch_unchanged(d->node);
	}
	if (d->parent != NULL)
		node_unlatch_unchanged(d->parent);
	RESUME_INTERRUPTS();
	return false;
}

void
tree_link_right(Tree *tree, Descent *d, TreeNode *new_root, const uint8 *separator,
				TreeNode *right)
{
	TreeNode   *parent = d->parent != NULL ? d->parent : new_root;
	uint64	   *refs = node_refs(parent);
	int			slot = d->parent != NULL ? d->slot : 0;
	uint8	   *place;

	if (d->parent == NULL)
		refs[0] = node_ref(tree, d->node);
	place = node_entries(tree, parent) + slot * tree->stride;
	memmove(place + tree->stride, place, (parent->n - slot) * tree->stride);
	memmove(refs + slot + 2, refs + slot + 1, (parent->n - slot) * sizeof(uint64));
	memcpy(place, separator, tree->stride);
	refs[slot + 1] = node_ref(tree, right);
	parent->n++;
	if (d->parent == NULL)
		tree_set_root(tree, new_root);
}

/*
 * Split of a full inner node, or of a full leaf in the middle.  The right edge
 * of the tree keeps its left node full, for ascending insertions.
 */
static TreeResult
split_node(Tree *tree, Descent *d)
{
	TreeNode   *node = d->node;
	TreeNode   *right = tree_node_alloc(tree, node->level);
	TreeNode   *new_root = NULL;
	uint8		separator[TREE_MAX_STRIDE];
	uint8	   *entries;
	int			n;
	int			keep;

	if (right != NULL && d->parent == NULL)
		new_root = tree_node_alloc(tree, node->level + 1);
	if (right == NULL || (d->parent == NULL && new_root == NULL))
	{
		tree_node_unused(tree, right);
		return TREE_FULL;
	}
	if (!tree_latch_pair(tree, d))
	{
		tree_node_unused(tree, right);
		tree_node_unused(tree, new_root);
		return TREE_ABSENT;		/* start again */
	}

	n = node->n;
	entries = node_entries(tree, node);
	if (node->level == 0)
	{
		/* entries that come nearly in order: leave little room behind them */
		keep = d->rightmost ? n - 1 - n / 10 : n / 2;
		right->n = n - keep;
		memcpy(right->data, entries + keep * tree->stride, right->n * tree->stride);
		memcpy(separator, right->data, tree->stride);
		entry_add_ref(tree, separator);
	}
	else
	{
		/* separator "keep" moves up with its reference */
		keep = d->rightmost ? n - 1 : n / 2;
		right->n = n - keep - 1;
		memcpy(separator, entries + keep * tree->stride, tree->stride);
		memcpy(node_entries(tree, right), entries + (keep + 1) * tree->stride,
			   right->n * tree->stride);
		memcpy(node_refs(right), node_refs(node) + keep + 1, (right->n + 1) * sizeof(uint64));
	}
	node->n = keep;
	tree_link_right(tree, d, new_root, separator, right);

	node_unlatch(node);
	if (d->parent != NULL)
		node_unlatch(d->parent);
	RESUME_INTERRUPTS();
	return TREE_DONE;
}

/* The entry comes after all others and its leaf is full: a leaf of its own. */
static TreeResult
append_leaf(Tree *tree, Descent *d, const uint8 *entry)
{
	TreeNode   *right = tree_node_alloc(tree, 0);
	TreeNode   *new_root = NULL;

	if (right != NULL && d->parent == NULL)
		new_root = tree_node_alloc(tree, 1);
	if (right == NULL || (d->parent == NULL && new_root == NULL))
	{
		tree_node_unused(tree, right);
		return TREE_FULL;
	}
	memcpy(right->data, entry, tree->stride);
	right->n = 1;
	if (!tree_latch_pair(tree, d))
	{
		tree_node_unused(tree, right);
		tree_node_unused(tree, new_root);
		return TREE_ABSENT;
	}
	entry_add_ref(tree, entry);
	tree_link_right(tree, d, new_root, entry, right);
	node_unlatch(d->node);
	if (d->parent != NULL)
		node_unlatch(d->parent);
	RESUME_INTERRUPTS();
	return TREE_DONE;
}

static bool
add_to_leaf(Tree *tree, Descent *d, int pos, const uint8 *entry)
{
	TreeNode   *leaf = d->node;
	uint8	   *place = leaf->data + pos * tree->stride;

	HOLD_INTERRUPTS();
	if (!node_latch(leaf, d->version))
	{
		RESUME_INTERRUPTS();
		return false;
	}
	memmove(place + tree->stride, place, (leaf->n - pos) * tree->stride);
	memcpy(place, entry, tree->stride);
	leaf->n++;
	node_unlatch(leaf);
	RESUME_INTERRUPTS();
	return true;
}

/* One step down.  False: something has changed, start again. */
static bool
step_down(Tree *tree, Descent *d, const TreeProbe *probe)
{
	TreeNode   *node = d->node;
	int			n = node->n;
	int			slot;
	TreeNode   *child;

	node_miss(tree, node);
	slot = tree_count_before(tree, node, d->version, node_entries(tree, node), n, probe, true);
	if (slot < 0)
		return false;
	child = node_child(tree, node, slot);
	if (!node_unchanged(node, d->version))
		return false;
	node_prefetch(tree, child, node->level - 1);
	d->grand = d->parent;
	d->grand_version = d->parent_version;
	d->parent_slot = d->slot;
	d->parent = node;
	d->parent_version = d->version;
	d->slot = slot;
	d->rightmost = d->rightmost && slot == n;
	d->node = child;
	d->version = node_version(tree, child);
	if (!node_unchanged(node, d->parent_version))
		return false;
	check_child_level(node, child);
	return true;
}

/* To the leaf of the probe, with room in every inner node on the path. */
static TreeResult
find_leaf_with_room(Tree *tree, Descent *d, const TreeProbe *probe)
{
	for (;;)
	{
		TreeResult	result = TREE_DONE;

		d->grand = d->parent = NULL;
		d->rightmost = true;
		d->node = tree_root(tree);
		d->version = node_version(tree, d->node);
		if (tree_root(tree) != d->node)
			continue;
		while (d->node->level > 0)
		{
			if (d->node->n >= tree->inner_capacity)
			{
				if (!node_unchanged(d->node, d->version))
					break;
				result = tree_level_in_pool(tree, d->node->level) ?
					pool_split_inner(tree, d) : split_node(tree, d);
				if (result == TREE_FULL)
					return TREE_FULL;
				break;
			}
			if (!step_down(tree, d, probe))
				break;
		}
		if (d->node->level == 0 && node_unchanged(d->node, d->version) &&
			(d->parent == NULL || node_unchanged(d->parent, d->parent_version)))
			return TREE_DONE;
	}
}

/* The entry at pos equals the probe: -1 if the leaf has changed. */
static int
is_equal(Tree *tree, const Descent *d, int pos, int n, const TreeProbe *probe)
{
	uint8		copy[TREE_MAX_STRIDE];

	if (pos >= n)
		return node_unchanged(d->node, d->version) ? 0 : -1;
	memcpy(copy, d->node->data + pos * tree->stride, tree->stride);
	if (!node_unchanged(d->node, d->version))
		return -1;
	return tree_probe_compare(tree, probe, copy) == 0;
}

/* The same for a leaf in the pool; TREE_ABSENT: something has changed. */
static TreeResult
insert_in_pool(Tree *tree, Descent *d, const uint8 *entry, const TreeProbe *probe,
			   const TreeOrder *order)
{
	TreeNode   *leaf = d->node;
	int			n = leaf->n;
	int			slot = leaf_find(tree, leaf, d->version, probe);

	pm_read_miss(slot >= 0 ? 2 : 1);	/* head, entry */
	if (slot == -2)
		return TREE_ABSENT;
	if (slot >= 0)
		return TREE_EXISTS;		/* durable in time: see README.md, "Trees in the pool" */
	if (n >= tree->leaf_capacity)
	{
		TreeResult	result = pool_split_leaf(tree, d, entry, order);

		return result == TREE_DONE ? TREE_ABSENT : result;
	}
	HOLD_INTERRUPTS();
	if (!node_latch(leaf, d->version))
	{
		RESUME_INTERRUPTS();
		return TREE_ABSENT;
	}
	leaf_add(tree, leaf, entry);
	node_unlatch(leaf);
	RESUME_INTERRUPTS();
	tree_count(tree, 1);
	return TREE_DONE;
}

TreeResult
tree_insert(Tree *tree, const uint8 *entry, const TreeProbe *probe, const TreeOrder *order)
{
	for (;;)
	{
		Descent		d;
		TreeResult	result;
		int			n;
		int			pos;
		int			equal;

		if (find_leaf_with_room(tree, &d, probe) == TREE_FULL)
			return TREE_FULL;
		if (tree_in_pool(tree))
		{
			result = insert_in_pool(tree, &d, entry, probe, order);
			if (result == TREE_ABSENT)
				continue;
			return result;
		}
		n = d.node->n;
		if (n > tree->leaf_capacity)
			continue;			/* torn: reused meanwhile */
		pos = tree_count_before(tree, d.node, d.version, d.node->data, n, probe, false);
		if (pos < 0)
			continue;
		equal = is_equal(tree, &d, pos, n, probe);
		if (equal < 0)
			continue;
		if (equal)
			return TREE_EXISTS;

		if (d.rightmost && pos < n && !tree->nearly_ordered)
			tree->nearly_ordered = true;
		if (n < tree->leaf_capacity)
			result = add_to_leaf(tree, &d, pos, entry) ? TREE_DONE : TREE_ABSENT;
		else if (d.rightmost && pos == n && !tree->nearly_ordered)
			result = append_leaf(tree, &d, entry);
		else
		{
			if (split_node(tree, &d) == TREE_FULL)
				return TREE_FULL;
			continue;
		}
		if (result == TREE_FULL)
			return TREE_FULL;
		if (result == TREE_DONE)
		{
			tree_count(tree, 1);
			return TREE_DONE;
		}
	}
}
