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
	MemoryContext context;
} VerifyState;

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

static void
verify_leaves(VerifyState *state)
{
	TreeLeaf	leaf;
	EntryPlace	fence;
	bool		first = true;
	int			i;

	do
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if (!first)
			keys_place(&fence, &state->keys, leaf.high, 0);
		tree_read_leaf(state->keys.tree, first ? NULL : &fence.probe, false, NULL, NULL,
					   &state->keys.order, &leaf);
		first = false;
		old = MemoryContextSwitchTo(state->context);
		for (i = 0; i < leaf.n; i++)
			verify_entry(state, leaf.entries + i * state->keys.tree->stride);
		MemoryContextSwitchTo(old);
		MemoryContextReset(state->context);
	} while (leaf.has_high);
}

void
indexam_verify(Relation index, IndexamProblem problem, IndexamEntry entry, void *arg)
{
	VerifyState state = {.problem = problem, .entry = entry, .arg = arg};

	index_attach(&state.keys, index);
	state.context = AllocSetContextCreate(CurrentMemoryContext, "sofort verify",
										  ALLOCSET_DEFAULT_SIZES);
	/* nobody writes: one epoch for all is no burden */
	epoch_enter();
	(void) tree_verify(state.keys.tree, &state.keys.order, problem, arg);
	verify_leaves(&state);
	epoch_exit();
	MemoryContextDelete(state.context);
}
