/*-------------------------------------------------------------------------
 *
 * tree_pool.c
 *	  Space of a tree in the pool: slots for nodes and tuples.
 *
 * Slots lie in chunks that belong to the tree's store and go with it.  Which
 * slots are free is known in DRAM only: a start forgets it, and new slots come
 * from new chunks until a sweep (VACUUM) has found what no node refers to.  So
 * taking and freeing a slot writes nothing durable, and nothing is lost for
 * good.
 *
 *-------------------------------------------------------------------------
 */
#include "tree_pool.h"

#include "sofort/store/store.h"

#define CHUNK_HEADER	sizeof(TreeChunk)

static const uint32 tuple_sizes[SLOT_CLASSES - SLOT_FIRST_TUPLE] = {
	32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8256
};

/* Why this process could not get space last */
static int	full_result = 0;
static Size full_size = 0;

void
pool_raise_full(void)
{
	if (full_result != 0)
		pm_raise_full(full_result, full_size);
}

int
pool_tuple_class(Size size)
{
	int			class;

	for (class = SLOT_FIRST_TUPLE; class < SLOT_CLASSES - 1; class++)
		if (size <= tuple_sizes[class - SLOT_FIRST_TUPLE])
			break;
	Assert(size <= tuple_sizes[class - SLOT_FIRST_TUPLE]);
	return class;
}

TreeSpace *
pool_space_open(StoreHeader *store, TreeHeader *header, LWLock *grow_lock)
{
	TreeSpace  *space = arena_alloc(sizeof(TreeSpace), ARENA_NO_OOM | ARENA_ZERO);
	int			class;

	if (space == NULL)
		return NULL;
	space->store = store;
	space->header = header;
	space->grow_lock = grow_lock;
	space->old_chunks = pm_vector_count(&store->blocks);
	SpinLockInit(&space->mutex);
	for (class = 0; class < SLOT_CLASSES; class++)
	{
		space->classes[class].next_slots = 1;
		space->classes[class].slot_size = class == SLOT_LEAF ? header->leaf_size :
			class == SLOT_INNER ? TREE_NODE_SIZE : tuple_sizes[class - SLOT_FIRST_TUPLE];
	}
	return space;
}

void
pool_space_close(TreeSpace *space)
{
	arena_free(space);
}

/* ---- lists through slots ---- */

static inline char **
slot_link(int class, char *slot)
{
	if (class == SLOT_LEAF || class == SLOT_INNER)
		return (char **) (slot + offsetof(TreeLeafNode, list));
	return (char **) &((TreeTuple *) slot)->next;
}

/* When the slot was last taken or freed, for the sweep */
static inline uint32 *
slot_life(int class, char *slot)
{
	if (class == SLOT_LEAF || class == SLOT_INNER)
		return &((TreeNode *) slot)->life;
	return (uint32 *) &((TreeTuple *) slot)->refs;
}

static inline void
push_slot(int class, char **list, char *slot)
{
	*slot_link(class, slot) = *list;
	*list = slot;
}

static char *
take_free(SlotClass *c, int class)
{
	char	   *slot = c->free;

	if (slot != NULL)
		c->free = *slot_link(class, slot);
	else if (c->nfresh > 0)
	{
		slot = c->fresh;
		c->fresh += c->slot_size;
		c->nfresh--;
	}
	return slot;
}

/* ---- chunks ---- */

uint32
tree_chunk_crc(const TreeChunk *chunk)
{
	return pm_crc(chunk, offsetof(TreeChunk, crc));
}

static uint32
chunk_slots(const SlotClass *c)
{
	if (CHUNK_HEADER + (Size) c->next_slots * c->slot_size <= PM_SLAB_MAX)
		return c->next_slots;
	return (PM_GRANULE - CHUNK_HEADER) / c->slot_size;
}

/*
 * Adds a chunk, linked and counted, durably.  NULL: the pool is full.  A chunk that was
 * linked but, because of a crash, not counted is freed first.
 */
static TreeChunk *
add_chunk(TreeSpace *space, int class, uint32 nslots)
{
	uint32		slot_size = space->classes[class].slot_size;
	PmVector   *chunks = &space->store->blocks;
	PmReservation r;
	TreeChunk  *chunk;
	PMPtr	   *link;

	full_result = pm_vector_try_reserve(chunks, pm_vector_count(chunks), store_id_of(space->store),
										PM_RESERVE_SHARED_SLAB, &full_size);
	if (full_result != 0)
		return NULL;
	link = pm_vector_get(chunks, pm_vector_count(chunks));
	if (*link != PM_NULL)
		pm_free(store_id_of(space->store), link, 1);
	full_size = CHUNK_HEADER + (Size) nslots * slot_size;
	full_result = pm_try_reserve(&r, store_id_of(space->store), full_size, link, 1,
								 full_size <= PM_SLAB_MAX ? PM_RESERVE_SHARED_SLAB : 0);
	if (full_result != 0)
		return NULL;
	chunk = r.addr;
	memset(chunk, 0, CHUNK_HEADER);
	chunk->magic = SOFORT_CHUNK_MAGIC;
	chunk->class = class;
	chunk->slot_size = slot_size;
	chunk->nslots = nslots;
	chunk->crc = tree_chunk_crc(chunk);
	pm_flush(chunk, CHUNK_HEADER);
	pm_publish(&r);
	SOFORT_STOP("tree-chunk-linked");
	pm_vector_publish(chunks, pm_vector_count(chunks) + 1);
	__atomic_fetch_add(&space->header->bytes, full_size, __ATOMIC_RELAXED);
	return chunk;
}

/* More slots of a class; false: the pool is full. */
static bool
grow(Tree *tree, int class)
{
	TreeSpace  *space = tree->space;
	SlotClass  *c = &space->classes[class];
	TreeChunk  *chunk = NULL;

	LWLockAcquire(space->grow_lock, LW_EXCLUSIVE);
	if (c->free == NULL && c->nfresh == 0)
	{
		chunk = add_chunk(space, class, chunk_slots(c));
		if (chunk == NULL && c->next_slots > 1)
			chunk = add_chunk(space, class, 1);	/* the last room there is */
		if (chunk == NULL)
		{
			LWLockRelease(space->grow_lock);
			return false;
		}
		SpinLockAcquire(&space->mutex);
		/* the fresh slots are used up: nobody else adds any */
		c->fresh = (char *) chunk + CHUNK_HEADER;
		c->nfresh = chunk->nslots;
		c->next_slots = Min(Max(c->next_slots, chunk->nslots) * 2, PM_GRANULE);
		SpinLockRelease(&space->mutex);
	}
	LWLockRelease(space->grow_lock);
	return true;
}

/* ---- slots ---- */

void *
pool_slot_take(Tree *tree, int class)
{
	TreeSpace  *space = tree->space;
	SlotClass  *c = &space->classes[class];
	bool		reclaimed = false;

	for (;;)
	{
		char	   *slot;

		SpinLockAcquire(&space->mutex);
		slot = take_free(c, class);
		if (slot != NULL)
			*slot_life(class, slot) = tree->life;
		SpinLockRelease(&space->mutex);
		if (slot != NULL)
			return slot;
		if (!reclaimed && (c->retired != NULL || c->waiting != NULL))
			pool_reclaim(tree);
		else if (!grow(tree, class))
			return NULL;
		reclaimed = true;
	}
}

void
pool_slot_give(Tree *tree, int class, void *slot)
{
	SlotClass  *c = &tree->space->classes[class];

	SpinLockAcquire(&tree->space->mutex);
	push_slot(class, &c->free, slot);
	SpinLockRelease(&tree->space->mutex);
}

void
pool_slot_retire(Tree *tree, int class, void *slot)
{
	SlotClass  *c = &tree->space->classes[class];

	SpinLockAcquire(&tree->space->mutex);
	*slot_life(class, slot) = tree->life;
	push_slot(class, &c->retired, slot);
	SpinLockRelease(&tree->space->mutex);
}

bool
pool_slot_reclaim(Tree *tree, int class, void *slot)
{
	bool		unused;

	SpinLockAcquire(&tree->space->mutex);
	unused = *slot_life(class, slot) != tree->life;
	if (unused)
		push_slot(class, &tree->space->classes[class].free, slot);
	SpinLockRelease(&tree->space->mutex);
	return unused;
}

/* All slots of a list become free. */
static void
free_list(TreeSpace *space, int class, char *list)
{
	char	   *tail = list;

	while (*slot_link(class, tail) != NULL)
		tail = *slot_link(class, tail);
	SpinLockAcquire(&space->mutex);
	*slot_link(class, tail) = space->classes[class].free;
	space->classes[class].free = list;
	SpinLockRelease(&space->mutex);
}

void
pool_reclaim(Tree *tree)
{
	TreeSpace  *space = tree->space;
	char	   *lists[SLOT_CLASSES] = {0};
	bool		retired = false;
	int			class;

	SpinLockAcquire(&space->mutex);
	if (space->any_waiting && epoch_passed(space->waiting_epoch))
	{
		for (class = 0; class < SLOT_CLASSES; class++)
		{
			lists[class] = space->classes[class].waiting;
			space->classes[class].waiting = NULL;
		}
		space->any_waiting = false;
	}
	if (!space->any_waiting)
	{
		for (class = 0; class < SLOT_CLASSES; class++)
		{
			SlotClass  *c = &space->classes[class];

			c->waiting = c->retired;
			c->retired = NULL;
			retired = retired || c->waiting != NULL;
		}
		if (retired)
		{
			space->waiting_epoch = epoch_advance();
			space->any_waiting = true;
		}
	}
	SpinLockRelease(&space->mutex);
	for (class = 0; class < SLOT_CLASSES; class++)
		if (lists[class] != NULL)
			free_list(space, class, lists[class]);
}
