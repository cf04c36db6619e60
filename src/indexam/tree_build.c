/*-------------------------------------------------------------------------
 *
 * tree_build.c
 *	  Bottom-up construction from sorted entries, and the sort.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

/* The tree is empty and private to the caller. */
void
tree_build_begin(TreeBuilder *builder, Tree *tree, int fillfactor)
{
	Assert(tree->root->level == 0);
	builder->tree = tree;
	builder->leaf_fill = Max(1, tree->leaf_capacity * fillfactor / 100);
	builder->inner_fill = Max(2, tree->inner_capacity * fillfactor / 100);
	builder->nlevels = 1;
	builder->level[0] = tree->root;
}

/* Links a node to the right of the last one of its level. */
static bool
add_child(TreeBuilder *builder, int level, const uint8 *separator, TreeNode *left,
		  TreeNode *child)
{
	Tree	   *tree = builder->tree;
	TreeNode   *node;

	if (level == builder->nlevels)
	{
		node = tree_node_alloc(tree, level);
		if (node == NULL)
			return false;
		node_refs(node)[0] = node_ref(tree, left);
		builder->level[level] = node;
		builder->nlevels++;
		tree->root = node;
	}
	node = builder->level[level];
	if (node->n >= builder->inner_fill)
	{
		TreeNode   *next = tree_node_alloc(tree, level);

		if (next == NULL)
			return false;
		if (tree_level_in_pool(tree, level))
			pool_inner_flush(tree, node);
		node_refs(next)[0] = node_ref(tree, child);
		builder->level[level] = next;
		return add_child(builder, level + 1, separator, node, next);
	}
	memcpy(node_entries(tree, node) + node->n * tree->stride, separator, tree->stride);
	node_refs(node)[++node->n] = node_ref(tree, child);
	entry_add_ref(tree, separator);
	return true;
}

bool
tree_build_add_leaf(TreeBuilder *builder, const uint8 *low, TreeNode *leaf)
{
	TreeNode   *left = builder->level[0];

	builder->level[0] = leaf;
	return add_child(builder, 1, low, left, leaf);
}

/* The next leaf in the pool; the one before is complete. */
static TreeNode *
begin_pool_leaf(TreeBuilder *builder, const uint8 *entry)
{
	Tree	   *tree = builder->tree;
	TreeLeafNode *before = pool_leaf(builder->level[0]);
	TreeNode   *leaf = tree_node_alloc(tree, 0);
	uint8	   *low;

	if (leaf == NULL)
		return NULL;
	low = leaf_low(pool_leaf(leaf));
	if (!tree_make_fence(tree, entry, low) || !tree_build_add_leaf(builder, low, leaf))
		return NULL;
	before->next[0] = tree->placement == TREE_HYBRID ? pm_ptr(leaf) : PM_NULL;
	leaf_complete(tree, (TreeNode *) before);
	return leaf;
}

static bool
add_to_pool_leaf(TreeBuilder *builder, const uint8 *entry)
{
	Tree	   *tree = builder->tree;
	TreeNode   *leaf = builder->level[0];

	if (leaf->n >= builder->leaf_fill)
	{
		leaf = begin_pool_leaf(builder, entry);
		if (leaf == NULL)
			return false;
	}
	memcpy(leaf_entry(tree, pool_leaf(leaf), leaf->n), entry, tree->stride);
	pool_leaf(leaf)->state |= UINT64CONST(1) << leaf->n;
	leaf->n++;
	tree_count(tree, 1);
	return true;
}

bool
tree_build_add(TreeBuilder *builder, const uint8 *entry)
{
	Tree	   *tree = builder->tree;
	TreeNode   *leaf = builder->level[0];

	if (tree_in_pool(tree))
		return add_to_pool_leaf(builder, entry);
	if (leaf->n >= builder->leaf_fill)
	{
		TreeNode   *next = tree_node_alloc(tree, 0);

		if (next == NULL)
			return false;
		builder->level[0] = next;
		if (!add_child(builder, 1, entry, leaf, next))
			return false;
		leaf = next;
	}
	memcpy(leaf->data + leaf->n * tree->stride, entry, tree->stride);
	leaf->n++;
	tree_count(tree, 1);
	return true;
}

void
tree_build_end(TreeBuilder *builder)
{
	Tree	   *tree = builder->tree;
	int			level;

	for (level = 0; level < builder->nlevels; level++)
	{
		TreeNode   *node = builder->level[level];

		if (!tree_level_in_pool(tree, level))
			continue;
		if (level == 0)
			leaf_complete(tree, node);
		else
			pool_inner_flush(tree, node);
	}
	/* what lies in the pool is counted and drained when the tree is complete */
	if (tree_in_pool(tree))
		tree_set_root(tree, tree->root);
	pg_write_barrier();
}

/* ---- sorting ---- */

#define RADIX_MIN	64

/* Stable insertion sort, for few entries */
static void
sort_few(uint8 *entries, uint64 n, int stride, int cmp_len)
{
	uint8		hold[TREE_MAX_STRIDE];
	uint64		i;

	for (i = 1; i < n; i++)
	{
		uint64		j = i;

		memcpy(hold, entries + i * stride, stride);
		while (j > 0 && bytes_compare(entries + (j - 1) * stride, hold, cmp_len) > 0)
		{
			memcpy(entries + j * stride, entries + (j - 1) * stride, stride);
			j--;
		}
		memcpy(entries + j * stride, hold, stride);
	}
}

/* Move an entry; 8 to 16 bytes by two loads and stores that may overlap */
static inline void
move_entry(uint8 *to, const uint8 *from, int stride)
{
	if (stride <= 16)
	{
		uint64		a;
		uint64		b;

		memcpy(&a, from, 8);
		memcpy(&b, from + stride - 8, 8);
		memcpy(to, &a, 8);
		memcpy(to + stride - 8, &b, 8);
	}
	else
		memcpy(to, from, stride);
}

/* One pass of a least-significant-digit radix sort */
static void
radix_pass(const uint8 *from, uint8 *to, uint64 n, int stride, int byte, const uint64 *counts)
{
	uint8	   *place[256];
	uint64		sum = 0;
	uint64		i;
	int			b;

	for (b = 0; b < 256; b++)
	{
		place[b] = to + sum * stride;
		sum += counts[b];
	}
	for (i = 0; i < n; i++, from += stride)
	{
		uint8		digit = from[byte];

		move_entry(place[digit], from, stride);
		place[digit] += stride;
	}
}

static bool
is_sorted(const uint8 *entries, uint64 n, int stride, int cmp_len)
{
	uint64		i;

	for (i = 1; i < n; i++)
	{
		if (bytes_compare(entries + (i - 1) * stride, entries + i * stride, cmp_len) > 0)
			return false;
	}
	return true;
}

uint8 *
tree_sort(uint8 *entries, uint8 *scratch, uint64 n, int stride, int cmp_len, int sorted_from)
{
	uint64		counts[256];
	int			byte;

	if (n < 2 || is_sorted(entries, n, stride, cmp_len))
		return entries;
	if (n < RADIX_MIN)
	{
		sort_few(entries, n, stride, cmp_len);
		return entries;
	}
	for (byte = sorted_from - 1; byte >= 0; byte--)
	{
		uint8	   *swap = entries;
		const uint8 *p = entries + byte;
		uint64		i;

		memset(counts, 0, sizeof(counts));
		for (i = 0; i < n; i++, p += stride)
			counts[*p]++;
		if (counts[entries[byte]] == n)
			continue;			/* all alike */
		radix_pass(entries, scratch, n, stride, byte, counts);
		entries = scratch;
		scratch = swap;
	}
	return entries;
}
