/*-------------------------------------------------------------------------
 *
 * tree_verify.c
 *	  Structural check of a tree that nobody changes meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/pmem/fault.h"

#include "tree_pool.h"

typedef struct VerifyState
{
	Tree	   *tree;
	const TreeOrder *order;
	TreeReport	report;
	void	   *report_arg;
	const uint8 *previous;		/* last leaf entry seen */
	uint8		last[TREE_MAX_STRIDE];	/* where it is, of a leaf in the pool */
	TreeNode   *previous_leaf;
	uint64		entries;
	uint64		nodes;
	bool		damaged;		/* parts were not looked at */
} VerifyState;

static int
compare(VerifyState *state, const uint8 *a, const uint8 *b)
{
	return state->order->compare(state->order->arg, a, b);
}

static void
problem(VerifyState *state, const TreeNode *node, const char *text)
{
	char		place[64];

	snprintf(place, sizeof(place), "level %d, entry " UINT64_FORMAT, (int) node->level,
			 state->entries);
	state->report(state->report_arg, place, text);
}

/* Entries of one node against each other and against the fences */
static void
verify_entries(VerifyState *state, TreeNode *node, const uint8 *entries, int n,
			   const uint8 *low, const uint8 *high)
{
	Tree	   *tree = state->tree;
	int			i;

	for (i = 0; i < n; i++)
	{
		const uint8 *e = entries + i * tree->stride;

		if (i > 0 && compare(state, e - tree->stride, e) >= 0)
			problem(state, node, "entries are not in ascending order");
		if (low != NULL && compare(state, low, e) > 0)
			problem(state, node, "an entry is below the separator of its node");
		if (high != NULL && compare(state, e, high) >= 0)
			problem(state, node, "an entry is not below the next separator");
	}
}

/* Comparisons look into tuples: those of this leaf and of its fence first */
static bool
tuples_right(VerifyState *state, const TreeNode *node, const TreeLeafNode *leaf)
{
	uint64		slots = leaf->state & LEAF_SLOTS_MASK;
	const char *text = pool_tuple_problem(state->tree, leaf_low(leaf));

	for (; text == NULL && slots != 0; slots &= slots - 1)
		text = pool_tuple_problem(state->tree, leaf_entry(state->tree, leaf, __builtin_ctzll(slots)));
	if (text != NULL)
		problem(state, node, text);
	return text == NULL;
}

/* A leaf in the pool: what is volatile, its fence, its place in the chain */
static void
verify_pool_leaf(VerifyState *state, TreeNode *node, const uint8 *low, const uint8 *high)
{
	Tree	   *tree = state->tree;
	TreeLeafNode *leaf = pool_leaf(node);
	SortedLeaf	sorted;

	if (node->n != pg_popcount64(leaf->state & LEAF_SLOTS_MASK))
		problem(state, node, "the number of entries of a leaf is wrong");
	if (!leaf_fingerprints_right(tree, leaf))
		problem(state, node, "a fingerprint does not belong to its entry");
	if (low != NULL && memcmp(low, leaf_low(leaf), tree->stride) != 0)
		problem(state, node, "the lower fence of a leaf is not its separator");
	if (tree->placement == TREE_HYBRID)
	{
		if (state->previous_leaf != NULL && leaf_next(pool_leaf(state->previous_leaf)) != node)
			problem(state, node, "the chain of leaves does not lead here");
		if (high == NULL && leaf_next(leaf) != NULL)
			problem(state, node, "the chain of leaves does not end with the last one");
	}
	state->previous_leaf = node;
	if (!tuples_right(state, node, leaf))
		return;
	if (!leaf_copy_sorted(tree, node, node_version(tree, node), state->order, &sorted))
	{
		problem(state, node, "a leaf changes while it is checked");
		return;
	}
	verify_entries(state, node, sorted.entries, sorted.n, low, high);
	state->entries += sorted.n;
	if (sorted.n == 0)
		return;
	if (state->previous != NULL && compare(state, state->previous, sorted.entries) >= 0)
		problem(state, node, "leaves are not in ascending order");
	memcpy(state->last, sorted.entries + (sorted.n - 1) * tree->stride, tree->stride);
	state->previous = state->last;
}

static void
verify_node(VerifyState *state, TreeNode *node, int level, const uint8 *low, const uint8 *high)
{
	Tree	   *tree = state->tree;
	int			i;

	state->nodes++;
	if (tree_in_pool(tree) && (level == 0 || tree->placement == TREE_PMEM))
	{
		const char *text = level == 0 ? leaf_problem(tree, pool_leaf(node)) :
			pool_inner_problem(tree, node);

		if (text == NULL && node->level != level)
			text = "a node is on the wrong level";
		if (text != NULL)
		{
			state->damaged = true;
			problem(state, node, text);
			return;
		}
	}
	(void) node_version(tree, node);
	if (node->version & (VERSION_LATCHED | VERSION_OBSOLETE))
		problem(state, node, "a linked node is latched or obsolete");
	if (node->level != level)
	{
		problem(state, node, "a node is on the wrong level");
		return;
	}
	if (level == 0 && tree_in_pool(tree))
	{
		verify_pool_leaf(state, node, low, high);
		return;
	}
	if (node->n > node_capacity(tree, node))
	{
		problem(state, node, "a node holds more entries than it has room for");
		return;
	}
	verify_entries(state, node, node_entries(tree, node), node->n, low, high);
	if (level == 0)
	{
		if (node->n > 0)
		{
			if (state->previous != NULL &&
				compare(state, state->previous, node->data) >= 0)
				problem(state, node, "leaves are not in ascending order");
			state->previous = node->data + (node->n - 1) * tree->stride;
		}
		state->entries += node->n;
		return;
	}
	SOFORT_STOP("verify-children");
	for (i = 0; i <= node->n; i++)
	{
		uint8	   *entries = node_entries(tree, node);

		verify_node(state, node_child(tree, node, i), level - 1,
					i > 0 ? entries + (i - 1) * tree->stride : low,
					i < node->n ? entries + i * tree->stride : high);
	}
}

/*
 * Header and chunks of a tree in the pool, and what they are linked by.  (Of an open tree
 * the header is not used any more; the next start needs it.)
 */
static bool
verify_chunks(VerifyState *state, const StoreHeader *store)
{
	const char *text = tree_header_problem(store);
	uint64		i;

	if (text == NULL)
		text = pm_vector_problem(&store->blocks, sizeof(PMPtr));
	for (i = 0; text == NULL && i < pm_vector_count(&store->blocks); i++)
	{
		PMPtr		p = *(PMPtr *) pm_vector_get(&store->blocks, i);
		const TreeChunk *chunk = pm_deref_quietly(p);

		if (pm_allocated_size(p) < sizeof(TreeChunk))
			text = "a chunk is not allocated";
		else if (chunk->magic != SOFORT_CHUNK_MAGIC || chunk->crc != tree_chunk_crc(chunk) ||
				 pm_allocated_size(p) < sizeof(TreeChunk) + (Size) chunk->nslots * chunk->slot_size)
			text = "the head of a chunk is damaged";
	}
	if (text != NULL)
		state->report(state->report_arg, "tree", text);
	return text == NULL;
}

uint64
tree_verify(Tree *tree, const TreeOrder *order, TreeReport report, void *report_arg)
{
	VerifyState state = {.tree = tree, .order = order, .report = report,
	.report_arg = report_arg};
	TreeNode   *root = tree_root(tree);

	if (tree_in_pool(tree) && !verify_chunks(&state, tree->space->store))
		return 0;
	verify_node(&state, root, root->level, NULL, NULL);
	if (tree->entries_exact && !state.damaged && state.entries != tree_entries(tree))
		problem(&state, root, "the number of entries differs from the counter");
	if (!tree_in_pool(tree) && state.nodes != tree->nodes)
		problem(&state, root, "the number of nodes differs from the counter");
	return state.entries;
}
