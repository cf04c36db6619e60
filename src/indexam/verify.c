/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Check of one index for sofort.verify().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "miscadmin.h"
#include "sofort/compat/lock.h"
#include "sofort/indexam/indexam.h"
#include "sofort/pmem/arena.h"
#include "utils/memutils.h"

#include "am_internal.h"

typedef struct VerifyState
{
	IndexKeys	keys;
	IndexamProblem problem;
	IndexamEntry entry;
	void	   *arg;
	bool		damaged;		/* the structure */
	MemoryContext context;		/* of one entry */
	MemoryContext leaf_context[2];	/* for copied tuples: those of this leaf, and of the one
									 * before, which had the separator */
	int			turn;
	TreeLeaf	leaf;
} VerifyState;

/* ---- readers that remove entries, and who looks at the whole tree ---- */

/*
 * A scan removes entries of rows that nobody sees while it holds only AccessShareLock on
 * the table.  For each removal it takes this lock, if it is available at once; verify holds
 * it as long as it looks at the tree.  It is the lock of a tuple that no index has.
 */
static void
whole_tree_tid(ItemPointer tid)
{
	ItemPointerSet(tid, 0, 2);	/* (0,1) is the build lock */
}

/* Raises no error: false also if the lock table is full. */
bool
index_try_change_tree(Relation index)
{
	ItemPointerData tid;

	whole_tree_tid(&tid);
	return compat_try_lock_tuple(index, &tid, ShareLock);
}

void
index_end_change_tree(Relation index)
{
	ItemPointerData tid;

	whole_tree_tid(&tid);
	UnlockTuple(index, &tid, ShareLock);
}

static void
lock_whole_tree(Relation index)
{
	ItemPointerData tid;

	whole_tree_tid(&tid);
	LockTuple(index, &tid, ExclusiveLock);
}

static void
unlock_whole_tree(Relation index)
{
	ItemPointerData tid;

	whole_tree_tid(&tid);
	UnlockTuple(index, &tid, ExclusiveLock);
}

/* ---- verify ---- */

/* The values of an entry, encoded again, give its bytes. */
static void
verify_entry(VerifyState *state, const uint8 *entry)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	uint8		bytes[TREE_MAX_STRIDE];
	ItemPointerData tid;
	bool		needs_tuple;
	char		place[64];

	index_entry_tid(&state->keys, entry, &tid);
	keys_deform(&state->keys, entry, values, isnull);
	needs_tuple = keys_encode(&state->keys.format, values, isnull, bytes);
	snprintf(place, sizeof(place), "row (%u,%u)", ItemPointerGetBlockNumberNoCheck(&tid),
			 ItemPointerGetOffsetNumberNoCheck(&tid));
	if (memcmp(bytes, entry, state->keys.format.key_len) != 0)
		state->problem(state->arg, place, "the key's bytes do not belong to its values");
	if (needs_tuple != (tree_entry_tuple(state->keys.tree, entry) != NULL))
		state->problem(state->arg, place, "an entry lacks its tuple, or has one in vain");
	if (state->entry)
		state->entry(state->arg, values, isnull, &tid);
}

/* The leaf at the fence (NULL: the first one), with copies of its tuples */
static void
copy_leaf(VerifyState *state, const EntryPlace *fence)
{
	Tree	   *tree = state->keys.tree;
	TreeLeaf   *leaf = &state->leaf;
	MemoryContext context;
	int			i;

	state->turn = !state->turn;
	context = state->leaf_context[state->turn];
	MemoryContextReset(context);
	epoch_enter();
	tree_read_leaf(tree, fence ? &fence->probe : NULL, false, NULL, NULL, &state->keys.order,
				   leaf);
	for (i = 0; i < leaf->n; i++)
		tree_copy_tuple(tree, leaf->entries + i * tree->stride, context);
	if (leaf->has_high)
		tree_copy_tuple(tree, leaf->high, context);
	epoch_exit();
}

/*
 * Outside of epochs, because checking an entry evaluates expressions of the index, which
 * may take any time, and may wait for the rebuild of another index.
 */
static void
verify_leaves(VerifyState *state)
{
	EntryPlace	fence;
	bool		first = true;
	int			i;

	do
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (!first)
			keys_place(&fence, &state->keys, state->leaf.high, 0);
		copy_leaf(state, first ? NULL : &fence);
		first = false;
		old = MemoryContextSwitchTo(state->context);
		for (i = 0; i < state->leaf.n; i++)
			verify_entry(state, state->leaf.entries + i * state->keys.tree->stride);
		MemoryContextSwitchTo(old);
		MemoryContextReset(state->context);
	} while (state->leaf.has_high);
}

static void
note_damage(void *arg, const char *place, const char *problem)
{
	VerifyState *state = arg;

	state->damaged = true;
	state->problem(state->arg, place, problem);
}

/*
 * Entries of a damaged tree are not looked at: they may be anything, as one wrong length is
 * enough.
 */
bool
indexam_verify(Relation index, IndexamProblem problem, IndexamEntry entry, void *arg)
{
	VerifyState state = {.problem = problem, .entry = entry, .arg = arg};
	int			i;

	index_attach(&state.keys, index);
	state.context = AllocSetContextCreate(CurrentMemoryContext, "sofort verify",
										  ALLOCSET_DEFAULT_SIZES);
	for (i = 0; i < (int) lengthof(state.leaf_context); i++)
		state.leaf_context[i] = AllocSetContextCreate(CurrentMemoryContext, "sofort verify leaf",
													  ALLOCSET_DEFAULT_SIZES);
	lock_whole_tree(index);		/* an error gives it back */
	epoch_enter();
	(void) tree_verify(state.keys.tree, &state.keys.order, note_damage, &state);
	epoch_exit();
	if (!state.damaged)
		verify_leaves(&state);
	unlock_whole_tree(index);
	for (i = 0; i < (int) lengthof(state.leaf_context); i++)
		MemoryContextDelete(state.leaf_context[i]);
	MemoryContextDelete(state.context);
	return !state.damaged;
}
