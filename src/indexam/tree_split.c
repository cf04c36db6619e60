/*-------------------------------------------------------------------------
 *
 * tree_split.c
 *	  Splits and merges in the pool.
 *
 * Each takes effect by one store of 8 bytes, so a crash finds it done or not
 * begun.
 *
 *	 pmem	 New nodes take the place of all that change, and a new parent that
 *			 of their parent; the store swings the reference to the parent (or
 *			 to the root).  Only a leaf at the right edge of its parent is added
 *			 without a copy: behind the last child, then n.
 *	 hybrid	 Leaves are chained.  The store is that of the left leaf's "state",
 *			 which gives up (or takes over) entries and chooses the other "next"
 *			 at once; that one lies in the same line and was stored before.
 *
 * New nodes are durable before that store, and but for a leaf at the right edge
 * before the first latch is taken.  Latches are held until the store is durable,
 * so nobody builds on what a crash could take back.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

/* ---- pieces ---- */

bool
tree_make_fence(Tree *tree, const uint8 *entry, uint8 *fence)
{
	TreeTuple  *tuple = tree_entry_tuple(tree, entry);
	TreeTuple  *copy;

	memcpy(fence, entry, tree->stride);
	if (tuple == NULL)
		return true;
	copy = tree_pool_tuple_make(tree, &tuple->tuple);
	if (copy == NULL)
		return false;
	tree_entry_set_tuple(tree, fence, copy);
	return true;
}

static void
discard_fence(Tree *tree, const uint8 *fence)
{
	tree_pool_tuple_discard(tree, tree_entry_tuple(tree, fence));
}

/*
 * Check of an inner node with n separators (references have checks of their own).  It lies
 * in the same word as n.
 */
static uint8
pool_inner_check(const Tree *tree, const TreeNode *node, int n)
{
	uint64		sum = tree_fold(0, node_entries(tree, node), (Size) n * tree->stride);

	return (uint8) PM_CHECK(sum ^ ((uint64) n << 32) ^ node->level, 8);
}

const char *
pool_inner_problem(const Tree *tree, const TreeNode *node)
{
	if (node->level == 0 || node->level >= TREE_MAX_LEVELS || node->n > tree->inner_capacity)
		return "the head of an inner node is damaged";
	if (node->check != pool_inner_check(tree, node, node->n))
		return "an inner node is damaged";
	for (int i = 0; i <= node->n; i++)
		if (!pm_ref_is_valid(node_refs(node)[i]))
			return "a reference of an inner node is damaged";
	return NULL;
}

/*
 * Flushes a complete node that nobody else knows, after setting its check, or one that has
 * its check already
 */
void
pool_inner_flush(const Tree *tree, TreeNode *node)
{
	node->check = pool_inner_check(tree, node, node->n);
	pm_flush(node, offsetof(TreeNode, data) + (node->n + 1) * sizeof(uint64));
	pm_flush(node_entries(tree, node), (Size) node->n * tree->stride);
}

/* n, check and level are one aligned word. */
static void
store_n(const Tree *tree, TreeNode *node, int n)
{
	union
	{
		uint64		word;
		struct
		{
			uint8		n;
			uint8		check;
			uint16		level;
			uint32		life;
		}			f;
	}			u;

	StaticAssertStmt(offsetof(TreeNode, n) % sizeof(uint64) == 0, "one aligned word");
	u.f.n = (uint8) n;
	u.f.check = pool_inner_check(tree, node, n);
	u.f.level = node->level;
	u.f.life = node->life;
	pm_store8_persist((uint64 *) &node->n, u.word);
}

/* Child and separator number "slot" more than the node had; private. */
static void
insert_child(Tree *tree, TreeNode *node, int slot, const uint8 *separator, TreeNode *right)
{
	uint64	   *refs = node_refs(node);
	uint8	   *place = node_entries(tree, node) + slot * tree->stride;

	memmove(place + tree->stride, place, (node->n - slot) * tree->stride);
	memmove(refs + slot + 2, refs + slot + 1, (node->n - slot) * sizeof(uint64));
	memcpy(place, separator, tree->stride);
	refs[slot + 1] = node_ref(tree, right);
	node->n++;
}

/* A copy of an inner node that is as it was at version v, or NULL. */
static TreeNode *
copy_inner(Tree *tree, const TreeNode *node, uint64 v, TreeResult *why)
{
	TreeNode   *copy = tree_node_alloc(tree, node->level);

	*why = TREE_FULL;
	if (copy == NULL)
		return NULL;
	*why = TREE_ABSENT;
	copy->n = node->n;
	memcpy(copy->data, node->data, sizeof(copy->data));
	if (node_unchanged(node, v))
		return copy;
	tree_node_unused(tree, copy);
	return NULL;
}

/* ---- swinging a reference (pmem) ---- */

/* Latch if not NULL */
static bool
latch_if(TreeNode *node, uint64 v)
{
	return node == NULL || node_latch(node, v);
}

static void
unlatch_if(TreeNode *node)
{
	if (node != NULL)
		node_unlatch_unchanged(node);
}

/*
 * Grandparent, parent and node, with interrupts held; parent is the root if
 * there is no grandparent, and node if there is no parent.
 */
static bool
latch_path(Tree *tree, TreeNode *grand, uint64 gv, TreeNode *parent, uint64 pv, TreeNode *node,
		   uint64 v)
{
	HOLD_INTERRUPTS();
	if (latch_if(grand, gv))
	{
		if (latch_if(parent, pv))
		{
			if (node_latch(node, v))
			{
				if (grand != NULL || tree_root(tree) == (parent != NULL ? parent : node))
					return true;
				node_unlatch_unchanged(node);
			}
			unlatch_if(parent);
		}
		unlatch_if(grand);
	}
	RESUME_INTERRUPTS();
	return false;
}

/* The reference in grand, or to the root, leads to another node, durably. */
static void
swing(Tree *tree, TreeNode *grand, int slot, TreeNode *to)
{
	if (grand == NULL)
		tree_set_root(tree, to);
	else
	{
		pm_store8_persist(&node_refs(grand)[slot], node_ref(tree, to));
		node_unlatch(grand);
	}
}

/* Nobody finds it any more. */
static void
drop_node(Tree *tree, TreeNode *node)
{
	node_unlatch_obsolete(node);
	tree_node_retire(tree, node);
}

/*
 * left and right take the place of d->node (left may be it); flushed.  The
 * caller gives them back if this does not say TREE_DONE.
 */
static TreeResult
replace_by_two(Tree *tree, Descent *d, TreeNode *left, const uint8 *separator, TreeNode *right)
{
	TreeNode   *top;
	TreeResult	why = TREE_FULL;

	if (d->parent == NULL)
	{
		top = tree_node_alloc(tree, right->level + 1);
		if (top != NULL)
			node_refs(top)[0] = node_ref(tree, left);
	}
	else
	{
		top = copy_inner(tree, d->parent, d->parent_version, &why);
		if (top != NULL)
			node_refs(top)[d->slot] = node_ref(tree, left);
	}
	if (top == NULL)
		return why;
	insert_child(tree, top, d->parent == NULL ? 0 : d->slot, separator, right);
	pool_inner_flush(tree, top);
	pm_drain();
	SOFORT_STOP("tree-split-written");
	if (!latch_path(tree, d->grand, d->grand_version, d->parent, d->parent_version, d->node,
					d->version))
	{
		tree_node_unused(tree, top);
		return TREE_ABSENT;
	}
	swing(tree, d->grand, d->parent_slot, top);
	if (left == d->node)
		node_unlatch_unchanged(d->node);
	else
		drop_node(tree, d->node);
	if (d->parent != NULL)
		drop_node(tree, d->parent);
	RESUME_INTERRUPTS();
	SOFORT_STOP("tree-split-done");
	return TREE_DONE;
}

/* The same where left == d->node, which is the last child of its parent. */
static TreeResult
add_behind(Tree *tree, Descent *d, const uint8 *separator, TreeNode *right)
{
	TreeNode   *parent = d->parent;
	int			n;

	if (!latch_path(tree, d->grand, d->grand_version, parent, d->parent_version, d->node,
					d->version))
		return TREE_ABSENT;
	n = parent->n;
	Assert(d->slot == n && n < tree->inner_capacity);
	node_refs(parent)[n + 1] = node_ref(tree, right);
	memcpy(node_entries(tree, parent) + n * tree->stride, separator, tree->stride);
	pm_flush(&node_refs(parent)[n + 1], sizeof(uint64));
	pm_flush(node_entries(tree, parent) + n * tree->stride, tree->stride);
	pm_drain();					/* the new leaf, too */
	SOFORT_STOP("tree-leaf-appended");
	store_n(tree, parent, n + 1);
	node_unlatch_unchanged(d->node);
	node_unlatch(parent);
	unlatch_if(d->grand);
	RESUME_INTERRUPTS();
	SOFORT_STOP("tree-split-done");
	return TREE_DONE;
}

/* ---- splits ---- */

TreeResult
pool_split_inner(Tree *tree, Descent *d)
{
	TreeNode   *node = d->node;
	TreeNode   *left;
	TreeNode   *right = NULL;
	TreeResult	result = TREE_FULL;
	uint8	   *entries;
	int			n;
	int			keep;

	left = copy_inner(tree, node, d->version, &result);
	if (left != NULL)
	{
		right = tree_node_alloc(tree, node->level);
		if (right == NULL)
			result = TREE_FULL;
	}
	if (right != NULL)
	{
		n = left->n;
		keep = d->rightmost ? n - 1 : n / 2;
		entries = node_entries(tree, left);
		right->n = n - keep - 1;
		memcpy(node_entries(tree, right), entries + (keep + 1) * tree->stride,
			   right->n * tree->stride);
		memcpy(node_refs(right), node_refs(left) + keep + 1, (right->n + 1) * sizeof(uint64));
		left->n = keep;
		pool_inner_flush(tree, left);
		pool_inner_flush(tree, right);
		result = replace_by_two(tree, d, left, entries + keep * tree->stride, right);
	}
	if (result != TREE_DONE)
	{
		tree_node_unused(tree, left);
		tree_node_unused(tree, right);
	}
	return result;
}

/* The left half stays; nothing but its state changes. */
static TreeResult
split_chained(Tree *tree, Descent *d, uint64 left_slots, int left_n, const uint8 *fence,
			  TreeNode *right)
{
	TreeLeafNode *leaf = pool_leaf(d->node);
	TreeNode   *new_root = NULL;
	uint64		which = leaf->state & LEAF_SECOND_NEXT;

	if (d->parent == NULL)
	{
		new_root = tree_node_alloc(tree, 1);
		if (new_root == NULL)
			return TREE_FULL;
	}
	/* if this is not what it was at version v, the latch fails */
	pool_leaf(right)->next[0] = leaf->next[which != 0];
	pm_flush(right, PM_LINE);
	pm_drain();
	SOFORT_STOP("tree-split-written");
	if (!tree_latch_pair(tree, d))
	{
		tree_node_unused(tree, new_root);
		return TREE_ABSENT;
	}
	which ^= LEAF_SECOND_NEXT;
	leaf->next[which != 0] = pm_ptr(right);
	pm_store8_persist(&leaf->state, leaf_seal(left_slots | which));
	leaf->n = left_n;
	SOFORT_STOP("tree-split-done");
	tree_link_right(tree, d, new_root, fence, right);
	node_unlatch(d->node);
	if (d->parent != NULL)
		node_unlatch(d->parent);
	RESUME_INTERRUPTS();
	return TREE_DONE;
}

/* Slots of the first n entries (hybrid) */
static uint64
slots_of_first(const SortedLeaf *sorted, int n)
{
	uint64		slots = 0;
	int			i;

	for (i = 0; i < n; i++)
		slots |= UINT64CONST(1) << sorted->slots[i];
	return slots;
}

/* A leaf with these entries, and its fence; NULL: no space. */
static TreeNode *
make_right(Tree *tree, const uint8 *entries, int n, uint8 *fence)
{
	TreeNode   *right = tree_node_alloc(tree, 0);

	if (right == NULL)
		return NULL;
	if (!tree_make_fence(tree, entries, fence))
	{
		tree_node_unused(tree, right);
		return NULL;
	}
	leaf_fill(tree, right, fence, entries, n);
	return right;
}

/*
 * Splits so that the leaf keeps the first "keep" of its entries, or all of them if one more
 * is added.
 */
static TreeResult
split_at(Tree *tree, Descent *d, const SortedLeaf *sorted, int keep, uint8 *fence,
		 TreeNode *right)
{
	const TreeLeafNode *leaf = pool_leaf(d->node);
	TreeNode   *left;
	uint8		low[TREE_MAX_STRIDE];
	TreeResult	result;

	if (tree->placement == TREE_HYBRID)
		return split_chained(tree, d, slots_of_first(sorted, keep), keep, fence, right);
	if (keep == sorted->n)
	{
		if (d->parent != NULL && d->slot == d->parent->n &&
			node_unchanged(d->parent, d->parent_version))
			return add_behind(tree, d, fence, right);
		return replace_by_two(tree, d, d->node, fence, right);
	}
	left = tree_node_alloc(tree, 0);
	if (left == NULL)
		return TREE_FULL;
	memcpy(low, leaf_low(leaf), tree->stride);	/* its tuple stays with it */
	leaf_fill(tree, left, low, sorted->entries, keep);
	result = replace_by_two(tree, d, left, fence, right);
	if (result != TREE_DONE)
		tree_node_unused(tree, left);
	return result;
}

TreeResult
pool_split_leaf(Tree *tree, Descent *d, const uint8 *entry, const TreeOrder *order)
{
	SortedLeaf	sorted;
	TreeNode   *right;
	uint8		fence[TREE_MAX_STRIDE];
	int			keep;
	TreeResult	result;
	bool		append;

	if (!leaf_copy_sorted(tree, d->node, d->version, order, &sorted))
		return TREE_ABSENT;
	append = d->rightmost && order->compare(order->arg, sorted.entries +
											(sorted.n - 1) * tree->stride, entry) < 0;
	if (d->rightmost && !append)
		tree->nearly_ordered = true;
	if (append && !tree->nearly_ordered)
	{
		/* the entry itself comes later; its leaf begins with it */
		keep = sorted.n;
		right = make_right(tree, entry, 0, fence);
	}
	else
	{
		keep = d->rightmost ? sorted.n - 1 - sorted.n / 10 : sorted.n / 2;
		right = make_right(tree, sorted.entries + keep * tree->stride, sorted.n - keep, fence);
	}
	if (right == NULL)
		return TREE_FULL;
	result = split_at(tree, d, &sorted, keep, fence, right);
	if (result != TREE_DONE)
	{
		discard_fence(tree, fence);
		tree_node_unused(tree, right);
	}
	return result;
}

/* ---- merges ---- */

void
pool_absorb_leaf(Tree *tree, TreeNode *left, TreeNode *right)
{
	TreeLeafNode *l = pool_leaf(left);
	const TreeLeafNode *r = pool_leaf(right);
	uint64		state = l->state;
	uint64		slots = r->state & LEAF_SLOTS_MASK;

	for (; slots != 0; slots &= slots - 1)
	{
		int			from = __builtin_ctzll(slots);
		int			to = __builtin_ctzll(~state);

		memcpy(leaf_entry(tree, l, to), leaf_entry(tree, r, from), tree->stride);
		l->fingerprint[to] = r->fingerprint[from];
		leaf_put_check(tree, l, to, leaf_entry(tree, l, to));
		pm_flush(leaf_entry(tree, l, to), tree->stride);
		state |= UINT64CONST(1) << to;
	}
	pm_drain();
	state ^= LEAF_SECOND_NEXT;
	l->next[(state & LEAF_SECOND_NEXT) != 0] =
		r->next[(r->state & LEAF_SECOND_NEXT) != 0];
	SOFORT_STOP("tree-merge-written");
	pm_store8_persist(&l->state, leaf_seal(state));
	l->n += r->n;
}

/* Both nodes in one; NULL: something has changed, or no space. */
static TreeNode *
merged_node(Tree *tree, const MergePair *pair, const uint8 *separator)
{
	TreeNode   *left = pair->left;
	TreeNode   *right = pair->right;
	TreeNode   *node;
	TreeResult	why;
	int			n;

	if (left->level == 0)
	{
		const TreeLeafNode *l = pool_leaf(left);
		const TreeLeafNode *r = pool_leaf(right);
		uint64		slots;

		node = tree_node_alloc(tree, 0);
		if (node == NULL)
			return NULL;
		memcpy(leaf_low(pool_leaf(node)), leaf_low(l), tree->stride);
		pool_leaf(node)->state = __atomic_load_n(&l->state, __ATOMIC_RELAXED) & LEAF_SLOTS_MASK;
		memcpy(leaf_entry(tree, pool_leaf(node), 0), leaf_entry(tree, l, 0),
			   tree->leaf_capacity * tree->stride);
		node->n = pg_popcount64(pool_leaf(node)->state);
		/*
		 * read once, so that what is checked is what is copied: nobody is kept from
		 * inserting meanwhile
		 */
		slots = __atomic_load_n(&r->state, __ATOMIC_RELAXED) & LEAF_SLOTS_MASK;
		if (node_unchanged(left, pair->left_version) &&
			node->n + pg_popcount64(slots) <= tree->leaf_capacity)
		{
			for (; slots != 0; slots &= slots - 1)
			{
				int			to = __builtin_ctzll(~pool_leaf(node)->state);

				memcpy(leaf_entry(tree, pool_leaf(node), to),
					   leaf_entry(tree, r, __builtin_ctzll(slots)), tree->stride);
				pool_leaf(node)->state |= UINT64CONST(1) << to;
			}
		}
		leaf_complete(tree, node);
		return node;
	}
	node = copy_inner(tree, left, pair->left_version, &why);
	if (node == NULL)
		return NULL;
	n = *(volatile const uint8 *) &right->n;
	if (node->n + n + 1 <= tree->inner_capacity)
	{
		uint8	   *end = node_entries(tree, node) + node->n * tree->stride;

		memcpy(end, separator, tree->stride);
		memcpy(end + tree->stride, node_entries(tree, right), n * tree->stride);
		memcpy(node_refs(node) + node->n + 1, node_refs(right), (n + 1) * sizeof(uint64));
		node->n += n + 1;
	}
	pool_inner_flush(tree, node);
	return node;
}

/* Copy of the parent with "node" for both; NULL: as above. */
static TreeNode *
merged_parent(Tree *tree, const MergePair *pair, TreeNode *node)
{
	TreeResult	why;
	TreeNode   *parent = copy_inner(tree, pair->parent, pair->parent_version, &why);
	uint8	   *separator;
	int			after;

	if (parent == NULL)
		return NULL;
	separator = node_entries(tree, parent) + pair->slot * tree->stride;
	after = parent->n - pair->slot - 1;
	memmove(separator, separator + tree->stride, after * tree->stride);
	memmove(node_refs(parent) + pair->slot + 1, node_refs(parent) + pair->slot + 2,
			after * sizeof(uint64));
	node_refs(parent)[pair->slot] = node_ref(tree, node);
	parent->n--;
	pool_inner_flush(tree, parent);
	return parent;
}

/* As latch_path(), and the right node */
static bool
latch_path_and_right(Tree *tree, const MergePair *pair)
{
	if (!latch_path(tree, pair->grand, pair->grand_version, pair->parent, pair->parent_version,
					pair->left, pair->left_version))
		return false;
	if (node_latch(pair->right, pair->right_version))
		return true;
	node_unlatch_unchanged(pair->left);
	node_unlatch_unchanged(pair->parent);
	unlatch_if(pair->grand);
	RESUME_INTERRUPTS();
	return false;
}

bool
pool_merge(Tree *tree, const MergePair *pair)
{
	uint8		separator[TREE_MAX_STRIDE];
	TreeNode   *node;
	TreeNode   *parent;

	memcpy(separator, node_entries(tree, pair->parent) + pair->slot * tree->stride, tree->stride);
	node = merged_node(tree, pair, separator);
	if (node == NULL)
		return false;
	parent = merged_parent(tree, pair, node);
	pm_drain();
	SOFORT_STOP("tree-merge-written");
	/* what was copied is consistent if the versions have not changed */
	if (parent == NULL || !latch_path_and_right(tree, pair))
	{
		tree_node_unused(tree, parent);
		tree_node_unused(tree, node);
		return false;
	}
	swing(tree, pair->grand, pair->parent_slot, parent);
	drop_node(tree, pair->left);
	drop_node(tree, pair->right);
	drop_node(tree, pair->parent);
	RESUME_INTERRUPTS();
	SOFORT_STOP("tree-merge-done");
	if (node->level == 0)
		tree_tuple_release(tree, tree_entry_tuple_quietly(tree, separator));
	return true;
}
