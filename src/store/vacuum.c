/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  Pruning, freeing rows, giving runs of empty blocks back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "sofort/txn/kept.h"
#include "storage/lmgr.h"

#define LOCK_TRIES		20		/* for the exclusive lock, 10 ms apart */
#define ROWS_TOGETHER	256		/* whose values are freed with few drains */

/*
 * Is a version not linked in the chain to which its own links lead?  If so, free
 * it if asked to.  "No" is always true; "yes" only as long as no row on the way
 * is filled again: see txn_hold_horizon().
 */
static bool
is_orphan(StoreDesc *store, const RowRef *ref, bool free)
{
	RowRef		root;
	bool		orphan;

	if (!chain_root_of(store->header, ref, &root))
		return !free || version_free(store, ref);
	SOFORT_STOP("store-orphan-walk");
	LWLockAcquire(chain_lock(store->id, root.row), LW_EXCLUSIVE);
	orphan = !chain_contains(store->header, &root, ref->row);
	if (orphan && free)
	{
		/* who took it out may have been killed before that was durable */
		chain_flush(store->header, &root);
		pm_drain();
		orphan = version_free(store, ref);
	}
	LWLockRelease(chain_lock(store->id, root.row));
	return orphan;
}

/*
 * A heap-only version that was dead: free it if nothing links to it.  VACUUM's own
 * transaction keeps no row from being freed and filled again, so what looks like an
 * orphan is looked at anew while it does.
 */
static bool
free_if_orphan(StoreDesc *store, const RowRef *ref, uint64 horizon)
{
	TxnHold		hold;
	bool		freed;

	if (!is_orphan(store, ref, false))
		return false;
	hold = txn_hold_horizon();
	freed = txn_version_state(ref->words, horizon, NULL) == VERSION_DEAD &&
		(word_read(&ref->words->begin) & BEGIN_HEAP_ONLY) != 0 &&
		is_orphan(store, ref, true);
	txn_release_horizon(hold);
	return freed;
}

/*
 * Is every version of the chain of this dead root dead?  Under the chain lock:
 * the newest one could be replaced, freed and filled again before it is read.
 */
bool
chain_is_dead(StoreDesc *store, const RowRef *root, uint64 horizon)
{
	RowRef		newest;
	bool		dead;

	LWLockAcquire(chain_lock(store->id, root->row), LW_SHARED);
	dead = store_chain_newest(store, root, &newest) &&
		(newest.row == root->row ||
		 txn_version_state(newest.words, horizon, NULL) == VERSION_DEAD);
	LWLockRelease(chain_lock(store->id, root->row));
	return dead;
}

bool
store_root_is_needed(StoreDesc *store, const RowRef *root, uint64 horizon)
{
	return (word_read(&root->words->begin) & BEGIN_HEAP_ONLY) == 0 &&
		LINK_IS_SET(link_read(root->block, root->index)) &&
		!chain_is_dead(store, root, horizon);
}

/*
 * Is a version between the newest and the root dead?  Without the lock: beside an old
 * snapshot there may be millions that are not.  Rows on the way may be freed and
 * filled again; then the answer is one of another chain, and this one waits.
 */
static bool
chain_has_dead(StoreDesc *store, const RowRef *root, uint64 horizon)
{
	uint64		steps = 0;
	RowRef		at;

	if (!store_chain_newest(store, root, &at) || at.row == root->row)
		return false;
	while (store_chain_older(store, &at, &at) && at.row != root->row)
	{
		if (version_is_dead(at.words, horizon))
			return true;
		chain_walk_step(++steps);
	}
	return false;
}

/* Free what is dead between a chain's newest version and its root. */
static int
prune_chain(StoreDesc *store, const RowRef *root, uint64 horizon)
{
	int			total = 0;
	int			freed = 1;

	while (freed > 0 && chain_has_dead(store, root, horizon))
	{
		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(chain_lock(store->id, root->row), LW_EXCLUSIVE);
		freed = chain_remove_dead(store, root, horizon);
		LWLockRelease(chain_lock(store->id, root->row));
		total += freed;
	}
	return total;
}

/*
 * A dead version that lies before its root, or behind one that was pruned too
 * early: all that are dead in its chain go at once.  To look each up in the chain
 * would take time with the square of their number.  Rows on the way to the root may
 * be freed and filled again: then another chain is pruned, or none.
 */
static int
prune_chain_of(StoreDesc *store, const RowRef *ref, uint64 horizon)
{
	RowRef		root;

	if (!chain_root_of(store->header, ref, &root))
		return 0;
	SOFORT_STOP("store-prune-walk");
	return prune_chain(store, &root, horizon);
}

/* True: the root keeps its slot, and index builds read its key. */
static bool
prune_root(StoreDesc *store, const RowRef *ref, TxnVersionState state, uint64 horizon,
		   StorePruneResult *result)
{
	if (LINK_IS_SET(link_read(ref->block, ref->index)))
		result->nfreed += prune_chain(store, ref, horizon);
	if (state != VERSION_ABORTED &&
		(state != VERSION_DEAD || !chain_is_dead(store, ref, horizon)))
		return true;
	result->dead[result->ndead++] = ref->row;
	return false;
}

Bitmapset *
store_key_columns(Relation rel, StoreDesc *store)
{
	Bitmapset  *indexed = compat_indexed_attrs(rel);
	bool		whole_row = bms_is_member(-FirstLowInvalidHeapAttributeNumber, indexed);
	Bitmapset  *columns = NULL;

	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);
		int			column = compat_is_stored(att) ? column_find(store->header, att) : -1;

		if (column >= 0 &&
			(whole_row || bms_is_member(att->attnum - FirstLowInvalidHeapAttributeNumber, indexed)))
			columns = bms_add_member(columns, column);
	}
	bms_free(indexed);
	return columns;
}

/* VACUUM at one block */
typedef struct PruneState
{
	StoreDesc  *store;
	const ShapeHeader *shape;	/* of the block */
	uint64		horizon;
	bool		counting;		/* which values of dictionaries are used */
	const Bitmapset *key_columns;
	ReferenceBatch unread;
	StorePruneResult *result;
} PruneState;

static void
prune_heap_only(PruneState *p, const RowRef *ref, uint64 begin, TxnVersionState state)
{
	if (state == VERSION_ABORTED)
	{
		/*
		 * Out of its chain, durably, before it became so; VACUUM alone frees it. Not if it
		 * was freed and is the root of another row by now: entries first.
		 */
		if (word_read(&ref->words->begin) == (WORD_ABORTED | BEGIN_HEAP_ONLY))
			p->result->nfreed += version_free(p->store, ref);
	}
	else if (state == VERSION_DEAD)
	{
		p->result->nfreed += prune_chain_of(p->store, ref, p->horizon);
		if (word_read(&ref->words->begin) == begin && free_if_orphan(p->store, ref, p->horizon))
			p->result->nfreed++;
	}
}

static void
prune_row(PruneState *p, const RowRef *ref)
{
	uint64		begin = word_read(&ref->words->begin);
	bool		is_root = (begin & BEGIN_HEAP_ONLY) == 0;
	TxnVersionState state;
	bool		is_needed;
	bool		keeps_key;

	if (begin == WORD_EMPTY)
		return;
	SOFORT_STOP("store-prune-state");
	state = txn_version_state(ref->words, p->horizon, NULL);
	if (state == VERSION_LIVE || state == VERSION_DELETING)
		p->result->nlive++;
	else if (state == VERSION_RECENTLY_DEAD)
		p->result->nrecently_dead++;
	if (state == VERSION_FREE)
		return;
	is_needed = state != VERSION_DEAD && state != VERSION_ABORTED;
	keeps_key = is_root && prune_root(p->store, ref, state, p->horizon, p->result);
	if (p->counting && (is_needed || keeps_key))
		dictionary_mark_row(p->store->shared, p->shape, ref, !is_needed);
	if (!is_root)
		prune_heap_only(p, ref, begin, state);
	else if (keeps_key && state == VERSION_DEAD)
		row_note_unread_references(&p->unread, p->shape, ref, p->key_columns);
}

void
store_prune_block(Relation rel, StoreDesc *store, BlockNumber block, uint64 horizon,
				  const Bitmapset *key_columns, bool skip_settled, StorePruneResult *result)
{
	PruneState	p = {.store = store,.horizon = horizon,.key_columns = key_columns,
	.unread = {.owner = store->id},.result = result};
	BlockHeader *b = store_block(store, block);
	BlockCursor cursor;
	bool		may_skip;
	uint32		i;

	result->ndead = result->nlive = result->nrecently_dead = result->nfreed = 0;
	result->nsettled = 0;
	result->read = false;
	p.counting = pg_atomic_read_u32(&store->shared->nmarking) > 0;
	if (b == NULL)
		return;
	pm_read_miss(1);
	/* current rows are not dead; but values of dictionaries may have to be counted */
	may_skip = skip_settled && !p.counting;
	if (may_skip && block_is_current(store, b))
	{
		result->nlive = result->nsettled = b->capacity;
		return;
	}
	result->read = true;
	space_before_free(store, block);
	p.shape = shape_get(store->header, b->shape);
	store_cursor_init(&cursor);
	for (i = 0; i < b->capacity; i++)
	{
		uint64		mark = store_settled_mark(b, i);
		bool		settled = may_skip && store_mark_says_settled(store, mark, i);
		RowRef		ref;

		if (settled && !store_mark_has_chains(mark))
			result->nlive++;
		else if (!store_cursor_locate(store, &cursor, (uint64) block * SOFORT_BLOCK_ROWS + i, &ref))
			continue;
		else if (settled && word_read(&ref.words->end) == WORD_EMPTY)
			result->nlive++;
		else
			prune_row(&p, &ref);
	}
	references_free(&p.unread);
	SOFORT_STOP("store-unread-freed");
	block_settle(store, b, horizon, !skip_settled);
	/* (the last block fills up, and is too small to matter) */
	result->nsettled = block + 1 == store_nblocks(store) ? result->nlive :
		block_settled_rows(store, b);
	stats_end_of_xact();
}

/* ---- freeing rows ---- */

typedef struct RowList
{
	uint64	   *rows;
	int			n;
	int			size;
	int			ndissolved;		/* of chains that were taken apart; the others did not change */
	int			nfreed;			/* of these, in quarantine */
} RowList;

static void
list_add(RowList *list, uint64 row)
{
	if (list->n == list->size)
	{
		list->size *= 2;
		list->rows = repalloc_huge(list->rows, list->size * sizeof(uint64));
	}
	list->rows[list->n++] = row;
}

/*
 * Takes a dead chain apart: its rows go into the list, its root becomes EMPTY, flushed, and
 * has no link.  After that it can be reached only by row ids.  Under the chain lock,
 * because updaters collect the dead versions of any chain (garbage.c).  A row that is not a
 * heap-only version does not belong to this chain, and stays.
 *
 * The list, and the arena, may have no memory while the lock is held: an error releases it,
 * and comes before anything of this chain has changed.  Allocating takes no lock that is
 * above this one.
 */
static void
dissolve_chain(StoreDesc *store, const RowRef *root, RowList *list)
{
	uint64		link;
	int64		limit = (int64) chain_limit(store->header);
	int			first = list->n;
	int			i;

	LWLockAcquire(chain_lock(store->id, root->row), LW_EXCLUSIVE);
	link = link_read(root->block, root->index);
	while (LINK_IS_SET(link) && (link & LINK_ROOT) == 0)
	{
		RowRef		at;

		if (!store_locate(store, LINK_ROW(link), &at) ||
			(word_read(&at.words->begin) & BEGIN_HEAP_ONLY) == 0)
			break;
		if (list->n - first > limit)
			chain_is_endless();
		list_add(list, at.row);
		link = link_read(at.block, at.index);
	}
	list_add(list, root->row);
	SOFORT_STOP("store-chain-listed");
	for (i = first; i < list->n; i++)
		space_before_free(store, list->rows[i] / SOFORT_BLOCK_ROWS);
	pm_store8(&root->words->begin, WORD_EMPTY);
	/* (flushed by whoever uses the row next; nobody follows the link of an EMPTY one) */
	if (link_slot(root->block, root->index) != NULL)
		__atomic_store_n(link_slot(root->block, root->index), 0, __ATOMIC_RELEASE);
	list->ndissolved = list->n;
	LWLockRelease(chain_lock(store->id, root->row));
}

/* Roots are locked. */
static void
dissolve_dead_chains(StoreDesc *store, const uint64 *rows, int n, uint64 horizon, RowList *list)
{
	int			i;

	for (i = 0; i < n; i++)
	{
		RowRef		root;
		TxnVersionState state;

		if (!store_locate(store, rows[i], &root) ||
			(word_read(&root.words->begin) & BEGIN_HEAP_ONLY))
			continue;
		state = txn_version_state(root.words, horizon, NULL);
		if (state == VERSION_ABORTED ||
			(state == VERSION_DEAD && chain_is_dead(store, &root, horizon)))
			dissolve_chain(store, &root, list);
	}
}

static void
make_empty(const RowRef *ref)
{
	if (word_read(&ref->words->begin) != WORD_EMPTY)
		__atomic_store_n(&ref->words->begin, WORD_EMPTY, __ATOMIC_RELEASE);
}

/* Makes the row EMPTY; frees its values at once if it was dead to all snapshots. */
static void
empty_listed_row(StoreDesc *store, uint64 row, uint64 horizon, ReferenceBatch *values)
{
	RowRef		ref;
	bool		dead;

	if (!store_locate(store, row, &ref))
		return;
	dead = WORD_TAG(word_read(&ref.words->end)) == WORD_TAG_STAMP &&
		WORD_XID(word_read(&ref.words->end)) < horizon;
	make_empty(&ref);
	if (dead)
		row_note_references(values, plan_get(store, ref.block->shape), &ref);
}

/*
 * That the roots are EMPTY and have no link must be durable before any row of their chains,
 * or the root itself, can be used again for a version with a link of its own: a dead root
 * must never lead into another chain.
 */
static void
drain_dissolved(void)
{
	pm_drain();
	SOFORT_STOP("store-roots-freed");
}

/* The rows of the list before this one, which are EMPTY, get their owner. */
static void
quarantine_listed_rows(StoreDesc *store, RowList *list, int end)
{
	while (list->nfreed < end)
	{
		space_quarantine(store->shared, list->rows[list->nfreed++]);
		stats_count(store->shared, 0, -1);
		SOFORT_STOP("store-row-freed");
	}
}

/* Frees the values of some rows together, before anybody can have the rows. */
static void
free_listed_rows(StoreDesc *store, RowList *list, uint64 horizon)
{
	ReferenceBatch values = {.owner = store->id,.n = 0};

	while (list->nfreed < list->n)
	{
		int			end = Min(list->nfreed + ROWS_TOGETHER, list->n);
		int			i;

		for (i = list->nfreed; i < end; i++)
			empty_listed_row(store, list->rows[i], horizon, &values);
		references_free(&values);
		quarantine_listed_rows(store, list, end);
	}
}

/*
 * After an error: no root leads to the rows any more, so nobody would find them before the
 * next start.  Their values are left to who uses them next.
 */
static void
free_after_error(StoreDesc *store, RowList *list)
{
	int			i;

	/* the lock of the chain at which it happened, and what was locked below it */
	LWLockReleaseAll();
	drain_dissolved();
	for (i = list->nfreed; i < list->ndissolved; i++)
	{
		RowRef		ref;

		if (store_locate(store, list->rows[i], &ref))
			make_empty(&ref);
	}
	quarantine_listed_rows(store, list, list->ndissolved);
}

/*
 * Frees dead chains.  Roots are locked, and no LWLock is held.  Returns how many versions
 * were freed.
 */
int
free_dead_chains(StoreDesc *store, const uint64 *rows, int n, uint64 horizon)
{
	RowList    *list = palloc0(sizeof(RowList));	/* (read after a longjmp) */
	int			nfreed;

	list->size = Max(n, 64);
	list->rows = MemoryContextAllocHuge(CurrentMemoryContext, list->size * sizeof(uint64));
	PG_TRY();
	{
		dissolve_dead_chains(store, rows, n, horizon, list);
		drain_dissolved();
		free_listed_rows(store, list, horizon);
		SOFORT_STOP("store-rows-freed");
	}
	PG_CATCH();
	{
		free_after_error(store, list);
		PG_RE_THROW();
	}
	PG_END_TRY();
	nfreed = list->n;
	pfree(list->rows);
	pfree(list);
	return nfreed;
}

void
store_free_rows(Relation rel, StoreDesc *store, const uint64 *rows, int n)
{
	if (n == 0)
		return;
	(void) free_dead_chains(store, rows, n, txn_horizon(rel));
	space_seal(store->shared);
	stats_end_of_xact();
}

/* ---- giving blocks back ---- */

static bool
row_is_empty(StoreDesc *store, uint64 row)
{
	RowRef		ref;

	return store_locate(store, row, &ref) && word_read(&ref.words->begin) == WORD_EMPTY;
}

/*
 * Must the rows that are kept for updates stay (see tid.c)?  Yes, as long as their block,
 * as PostgreSQL counts blocks, has rows.
 */
static bool
spares_are_wanted(StoreDesc *store, uint64 first, uint64 n)
{
	uint32		tid_rows = store->header->tid_rows;
	uint64		ordinal = row_to_ordinal(first * SOFORT_BLOCK_ROWS);
	uint64		end = row_to_ordinal((first + n) * SOFORT_BLOCK_ROWS);

	if (store->header->tid_fill == 0)
		return false;
	ordinal -= ordinal % tid_rows;
	end += tid_rows - 1;
	end -= end % tid_rows;
	for (; ordinal < end; ordinal++)
	{
		RowRef		ref;

		if (store_locate(store, row_from_ordinal(ordinal), &ref) &&
			word_read(&ref.words->begin) != WORD_EMPTY)
			return true;
	}
	return false;
}

static bool
run_is_empty(StoreDesc *store, uint64 first, uint64 n)
{
	uint64		b;

	for (b = first; b < first + n; b++)
	{
		uint32		i;

		for (i = 0; i < block_capacity(b); i++)
			if (!row_is_empty(store, b * SOFORT_BLOCK_ROWS + i))
				return false;
	}
	return !spares_are_wanted(store, first, n);
}

/* Does the run hold the append position?  Then it stays. */
static bool
holds_append_position(StoreShared *shared, uint64 first, uint32 n)
{
	uint64		a = pg_atomic_read_u64(&shared->append);
	uint64		b = FREE_ROW(a) / SOFORT_BLOCK_ROWS;
	uint64		last = (FREE_ROW(a) + Max(FREE_COUNT(a), 1) - 1) / SOFORT_BLOCK_ROWS;

	return FREE_COUNT(a) > 0 && b < first + n && last >= first;
}

static bool
any_empty_run(StoreDesc *store)
{
	uint64		n = store_block_count(store->header);
	uint64		b;

	for (b = 0; b < n; b += block_run_length(store->header, b))
	{
		CHECK_FOR_INTERRUPTS();
		if (block_get(store->header, b) != NULL &&
			run_is_empty(store, b, block_run_length(store->header, b)) &&
			!holds_append_position(store->shared, b, block_run_length(store->header, b)))
			return true;
	}
	return false;
}

/* Relation locked exclusively, structure lock held. */
static void
release_run(StoreDesc *store, uint64 first, uint32 n)
{
	StoreShared *shared = store->shared;
	uint64		b;

	for (b = first; b < first + n; b++)
	{
		BlockHeader *block = block_get(store->header, b);
		const ShapePlan *plan = plan_get(store, block->shape);
		ReferenceBatch values = {.owner = store->id,.n = 0};
		uint32		i;

		for (i = 0; i < block->capacity && plan->nrefs > 0; i++)
		{
			RowRef		ref;

			if (store_locate(store, b * SOFORT_BLOCK_ROWS + i, &ref))
				row_note_references(&values, plan, &ref);
		}
		references_free(&values);
		pm_free(store->id, &block->links, 1);
		pm_free(store->id, &block->successors, 1);
	}
	block_note_collected(shared, first, n);
	pm_free(store->id, block_entry(store->header, first), n);
	SOFORT_STOP("store-run-released");
	shared->holes = true;
	shared->hole_from = Min(shared->hole_from, first);
}

/*
 * Marks the blocks that can be released.  Rows in quarantine are looked at once for all
 * runs, because there may be as many as the table has rows.
 */
static void
mark_releasable(StoreDesc *store, uint8 *marked, uint64 n)
{
	StoreHeader *header = store->header;
	uint64		b;
	uint64		i;
	uint32		run;

	for (b = 0; b < n; b += run)
	{
		run = block_run_length(header, b);
		if (block_get(header, b) != NULL && run_is_empty(store, b, run) &&
			!holds_append_position(store->shared, b, run))
			for (i = b; i < b + run; i++)
				block_mark(marked, i);
	}
	space_unmark_quarantined(store->shared, marked, n);
	/* all blocks of a run, or none */
	for (b = 0; b < n; b += run)
	{
		bool		whole = true;

		run = block_run_length(header, b);
		for (i = b; i < b + run; i++)
			whole = whole && block_is_marked(marked, i);
		for (i = b; i < b + run && !whole; i++)
			block_unmark(marked, i);
	}
}

static BlockNumber
release_empty_runs(StoreDesc *store)
{
	StoreHeader *header = store->header;
	uint64		b = 0;
	uint64		n = store_block_count(header);
	uint8	   *marked = MemoryContextAllocExtended(CurrentMemoryContext, n / 8 + 1,
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	BlockNumber released = 0;

	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	mark_releasable(store, marked, n);
	space_forget_marked(store->shared, marked, n);
	while (b < n)
	{
		uint32		run = block_run_length(header, b);

		if (block_is_marked(marked, b))
		{
			release_run(store, b, run);
			released += run;
		}
		b += run;
	}
	while (n > 0 && *block_entry(header, n - 1) == PM_NULL)
		n--;
	if (n < store_block_count(header))
		block_set_count(header, n);
	LWLockRelease(structure_lock(store->id));
	pfree(marked);
	return released;
}

/*
 * Replaces encodings that no longer suit the values ("Looking again" in the README): in a
 * table that does not grow, values may have been replaced by others.
 */
void
store_reconsider(Relation rel, StoreDesc *store)
{
	Bitmapset  *indexed;
	TxnHold		hold;

	if (!shape_may_reconsider(store))
		return;
	column_ensure(rel, store);
	indexed = compat_indexed_attrs(rel);
	/* otherwise the values that are looked at could be freed */
	hold = txn_hold_horizon();
	LWLockAcquire(structure_lock(store->id), LW_EXCLUSIVE);
	shape_reconsider(store, indexed);
	LWLockRelease(structure_lock(store->id));
	txn_release_horizon(hold);
	bms_free(indexed);
}

/* Frees the values of rows that can be filled, for VACUUM. */
void
store_free_values(StoreDesc *store)
{
	block_append_init(store);
	space_drain(store);
}

/*
 * Nobody may be reading a block that is given back.  So this needs the exclusive lock, and
 * is left for another time if the lock is not available soon (like heap's truncation).
 */
BlockNumber
store_release_empty(Relation rel, StoreDesc *store)
{
	BlockNumber released;
	int			i;

	block_append_init(store);
	if (!any_empty_run(store))
		return 0;
	for (i = 0; !ConditionalLockRelation(rel, AccessExclusiveLock); i++)
	{
		if (i == LOCK_TRIES)
			return 0;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000);
	}
	txn_resolve_prepared();
	/* (who undoes one that waits has no lock on its tables) */
	released = txn_kept_uses_store(store->id) ? 0 : release_empty_runs(store);
	UnlockRelation(rel, AccessExclusiveLock);
	return released;
}
