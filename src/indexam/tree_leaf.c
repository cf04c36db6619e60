/*-------------------------------------------------------------------------
 *
 * tree_leaf.c
 *	  Leaves in the pool.
 *
 * Entries lie in slots, in no order; the bits of "state" say which slots are in
 * use, and nothing else on the medium does.  An entry is durable before its bit
 * is set, and a cleared bit is durable before its slot can be used again.  So
 * whatever a crash leaves, each bit stands for one whole entry.
 *
 * Fingerprints and the number of entries are volatile, though they lie in the
 * node: the first visit in a life makes them anew (leaf_revive()).
 *
 *-------------------------------------------------------------------------
 */
#include <emmintrin.h>

#include "tree_pool.h"

#define LEAF_TARGET		1536	/* bytes, at most */

void
leaf_geometry(int stride, uint16 *capacity, uint16 *size)
{
	*capacity = Min(SOFORT_LEAF_SLOTS, (LEAF_TARGET - sizeof(TreeLeafNode)) / stride - 1);
	*size = TYPEALIGN(PM_LINE, sizeof(TreeLeafNode) + (*capacity + 1) * stride);
	Assert(*capacity * stride <= TREE_LEAF_BYTES);
}

/* One byte of the key's bytes, for those that look for one key. */
static uint8
fingerprint(const Tree *tree, const uint8 *entry)
{
	int			len = tree->key_len;
	uint64		h = len;
	uint64		w = 0;

	for (; len >= 8; len -= 8, entry += 8)
	{
		memcpy(&w, entry, 8);
		h = (h ^ w) * UINT64CONST(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	if (len > 0)
	{
		w = 0;
		memcpy(&w, entry, len);
		h = (h ^ w) * UINT64CONST(0x9e3779b97f4a7c15);
	}
	return (uint8) (h >> 56);
}

/* Slots with this fingerprint, perhaps also some that are not in use. */
static uint64
slots_with(const TreeLeafNode *leaf, uint8 print)
{
	__m128i		wanted = _mm_set1_epi8((char) print);
	uint64		found = 0;
	int			i;

	for (i = 0; i < 4; i++)
	{
		__m128i		some = _mm_load_si128((const __m128i *) leaf->fingerprint + i);

		found |= (uint64) (uint32) _mm_movemask_epi8(_mm_cmpeq_epi8(some, wanted)) << (16 * i);
	}
	return found;
}

static inline uint64
leaf_slots(const TreeLeafNode *leaf)
{
	return __atomic_load_n(&leaf->state, __ATOMIC_RELAXED) & LEAF_SLOTS_MASK;
}

void
leaf_revive(const Tree *tree, TreeLeafNode *leaf)
{
	uint64		slots = leaf_slots(leaf);

	leaf->n = (uint16) pg_popcount64(slots);
	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		leaf->fingerprint[slot] = fingerprint(tree, leaf_entry(tree, leaf, slot));
	}
}

/* Has every slot in use its fingerprint?  For checks. */
bool
leaf_fingerprints_right(const Tree *tree, const TreeLeafNode *leaf)
{
	uint64		slots = leaf_slots(leaf);

	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		if (leaf->fingerprint[slot] != fingerprint(tree, leaf_entry(tree, leaf, slot)))
			return false;
	}
	return true;
}

/* ---- reading ---- */

/* Copy the entries of these slots.  Returns how many; -1: changed since v. */
static int
copy_slots(const Tree *tree, const TreeNode *node, uint64 v, uint64 slots, uint8 *out)
{
	const TreeLeafNode *leaf = pool_leaf(node);
	int			n = 0;

	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		if (slot >= tree->leaf_capacity)
			return -1;			/* torn: reused meanwhile */
		memcpy(out + n++ * tree->stride, leaf_entry(tree, leaf, slot), tree->stride);
	}
	return node_unchanged(node, v) ? n : -1;
}

/* Insertion sort: few entries, which often came in order.  slots may be NULL. */
static void
sort_leaf(const Tree *tree, uint8 *entries, uint8 *slots, int n, const TreeOrder *order)
{
	int			stride = tree->stride;
	uint8		hold[TREE_MAX_STRIDE];
	int			i;

	for (i = 1; i < n; i++)
	{
		int			low = 0;
		int			high = i;
		const uint8 *e = entries + i * stride;

		/* often it belongs where it is */
		if (tree->has_tuples ? order->compare(order->arg, e - stride, e) < 0 :
			bytes_compare(e - stride, e, tree->cmp_len) < 0)
			continue;
		while (low < high)
		{
			int			half = (low + high) / 2;
			int			c = tree->has_tuples ?
				order->compare(order->arg, entries + half * stride, e) :
				bytes_compare(entries + half * stride, e, tree->cmp_len);

			if (c < 0)
				low = half + 1;
			else
				high = half;
		}
		memcpy(hold, e, stride);
		memmove(entries + (low + 1) * stride, entries + low * stride, (i - low) * stride);
		memcpy(entries + low * stride, hold, stride);
		if (slots != NULL)
		{
			uint8		slot = slots[i];

			memmove(slots + low + 1, slots + low, i - low);
			slots[low] = slot;
		}
	}
}

/* Do both bounds enclose a single key, all of whose bytes count? */
static bool
is_one_key(const Tree *tree, const TreeProbe *lower, const TreeProbe *upper)
{
	return lower != NULL && upper != NULL &&
		(lower->compare == NULL || lower->nbytes >= tree->key_len) &&
		(upper->compare == NULL || upper->nbytes >= tree->key_len) &&
		memcmp(lower->bytes, upper->bytes, tree->key_len) == 0;
}

bool
leaf_read(Tree *tree, const TreeNode *node, uint64 v, const TreeProbe *lower,
		  const TreeProbe *upper, const TreeOrder *order, TreeLeaf *out)
{
	const TreeLeafNode *leaf = pool_leaf(node);
	uint64		slots = leaf_slots(leaf);
	int			n;
	int			kept = 0;
	int			i;

	pm_read_miss(1);
	pm_note_read(leaf);
	if (is_one_key(tree, lower, upper))
		slots &= slots_with(leaf, fingerprint(tree, lower->bytes));
	if (slots != 0)
		pm_read_miss(1);
	n = copy_slots(tree, node, v, slots, out->entries);
	if (n < 0)
		return false;

	/* from here on private */
	out->cut_low = out->cut_high = false;
	for (i = 0; i < n; i++)
	{
		uint8	   *e = out->entries + i * tree->stride;

		if (lower != NULL && tree_probe_compare(tree, lower, e) > 0)
			out->cut_low = true;
		else if (upper != NULL && tree_probe_compare(tree, upper, e) <= 0)
			out->cut_high = true;
		else
		{
			if (kept < i)
				memcpy(out->entries + kept * tree->stride, e, tree->stride);
			kept++;
		}
	}
	sort_leaf(tree, out->entries, NULL, kept, order);
	out->n = kept;
	return true;
}

bool
leaf_copy_sorted(Tree *tree, const TreeNode *node, uint64 v, const TreeOrder *order,
				 SortedLeaf *out)
{
	uint64		slots = leaf_slots(pool_leaf(node));

	pm_read_miss(1);
	pm_note_read(node);
	out->n = copy_slots(tree, node, v, slots, out->entries);
	if (out->n < 0)
		return false;
	for (int i = 0; i < out->n; i++, slots &= slots - 1)
		out->slots[i] = __builtin_ctzll(slots);
	sort_leaf(tree, out->entries, out->slots, out->n, order);
	return true;
}

int
leaf_find(Tree *tree, const TreeNode *node, uint64 v, const TreeProbe *probe)
{
	const TreeLeafNode *leaf = pool_leaf(node);
	uint64		slots = leaf_slots(leaf) & slots_with(leaf, fingerprint(tree, probe->bytes));
	uint8		copy[TREE_MAX_STRIDE];

	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		if (slot >= tree->leaf_capacity)
			return -2;
		memcpy(copy, leaf_entry(tree, leaf, slot), tree->stride);
		if (bytes_compare(copy, probe->bytes, tree->cmp_len) != 0)
			continue;
		if (!node_unchanged(node, v))
			return -2;
		if (tree_probe_compare(tree, probe, copy) == 0)
			return slot;
	}
	return node_unchanged(node, v) ? -1 : -2;
}

/* ---- checks ---- */

/*
 * Two parities of an entry: of the even and of the odd bits.  Any single bit changes
 * one of them.
 */
static void
entry_parities(const Tree *tree, const uint8 *entry, uint64 parity[2])
{
	const uint64 even = UINT64CONST(0x5555555555555555);
	uint64		sum = tree_fold(0, entry, tree->stride);

	parity[0] = (uint64) __builtin_parityll(sum & even);
	parity[1] = (uint64) __builtin_parityll(sum & ~even);
}

void
leaf_put_check(const Tree *tree, TreeLeafNode *leaf, int slot, const uint8 *entry)
{
	uint64		parity[2];

	entry_parities(tree, entry, parity);
	for (int i = 0; i < 2; i++)
		leaf->check[i] = (leaf->check[i] & ~(UINT64CONST(1) << slot)) | parity[i] << slot;
}

static bool
check_is_right(const Tree *tree, const TreeLeafNode *leaf, int slot, const uint8 *entry)
{
	uint64		parity[2];

	entry_parities(tree, entry, parity);
	return ((leaf->check[0] >> slot) & 1) == parity[0] &&
		((leaf->check[1] >> slot) & 1) == parity[1];
}

/* All checks of a private leaf, whose state has no parity yet */
static void
leaf_make_checks(const Tree *tree, TreeLeafNode *leaf)
{
	uint64		slots = leaf_slots(leaf);

	leaf_put_check(tree, leaf, LEAF_FENCE, leaf_low(leaf));
	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		leaf_put_check(tree, leaf, slot, leaf_entry(tree, leaf, slot));
	}
	leaf->state = leaf_seal(leaf->state);
}

/* The lines of a leaf that are in use */
static void
leaf_flush(const Tree *tree, const TreeNode *node)
{
	const TreeLeafNode *leaf = pool_leaf(node);
	uint64		slots = leaf_slots(leaf);
	int			used = slots == 0 ? 0 : 64 - __builtin_clzll(slots);

	pm_flush(leaf, PM_LINE);
	pm_flush(leaf->data, (Size) (used + 1) * tree->stride);
}

void
leaf_complete(Tree *tree, TreeNode *node)
{
	leaf_revive(tree, pool_leaf(node));
	leaf_make_checks(tree, pool_leaf(node));
	leaf_flush(tree, node);
}

const char *
leaf_head_problem(const Tree *tree, const TreeLeafNode *leaf)
{
	uint64		state = __atomic_load_n(&leaf->state, __ATOMIC_RELAXED);
	PMPtr		next = leaf->next[(state & LEAF_SECOND_NEXT) != 0];

	if (state != leaf_seal(state) ||
		(state & ~(LEAF_SLOTS_MASK | LEAF_SECOND_NEXT | LEAF_PARITY)) != 0)
		return "the state of a leaf is damaged";
	if ((state & LEAF_SLOTS_MASK) >> tree->leaf_capacity != 0)
		return "a leaf uses slots that it does not have";
	if (next != PM_NULL && !pm_ref_is_valid(next))
		return "the reference of a leaf to the next one is damaged";
	if (!check_is_right(tree, leaf, LEAF_FENCE, leaf_low(leaf)))
		return "the lower fence of a leaf is damaged";
	return NULL;
}

const char *
leaf_problem(const Tree *tree, const TreeLeafNode *leaf)
{
	uint64		slots = leaf_slots(leaf);
	const char *problem = leaf_head_problem(tree, leaf);

	if (problem != NULL)
		return problem;
	for (; slots != 0; slots &= slots - 1)
	{
		int			slot = __builtin_ctzll(slots);

		if (!check_is_right(tree, leaf, slot, leaf_entry(tree, leaf, slot)))
			return "an entry of a leaf is damaged";
	}
	return NULL;
}

/* ---- changing ---- */

void
leaf_add(Tree *tree, TreeNode *node, const uint8 *entry)
{
	TreeLeafNode *leaf = pool_leaf(node);
	int			slot = __builtin_ctzll(~leaf->state);
	uint8	   *place = leaf_entry(tree, leaf, slot);

	Assert(slot < tree->leaf_capacity);
	memcpy(place, entry, tree->stride);
	leaf->fingerprint[slot] = fingerprint(tree, entry);
	pm_flush(place, tree->stride);
	pm_drain();					/* and the tuple */
	SOFORT_STOP("tree-entry-written");
	leaf_put_check(tree, leaf, slot, entry);
	pm_store8(&leaf->state, leaf_seal(leaf->state | (UINT64CONST(1) << slot)));
	leaf->n++;
}

void
leaf_remove(TreeNode *node, uint64 slots)
{
	TreeLeafNode *leaf = pool_leaf(node);

	pm_store8_persist(&leaf->state, leaf_seal(leaf->state & ~slots));
	leaf->n -= pg_popcount64(slots);
}

void
leaf_fill(Tree *tree, TreeNode *node, const uint8 *low, const uint8 *entries, int n)
{
	TreeLeafNode *leaf = pool_leaf(node);

	Assert(n <= tree->leaf_capacity);
	memcpy(leaf_low(leaf), low, tree->stride);
	memcpy(leaf_entry(tree, leaf, 0), entries, n * tree->stride);
	leaf->state = (UINT64CONST(1) << n) - 1;
	leaf_complete(tree, node);
}
