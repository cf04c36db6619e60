/*-------------------------------------------------------------------------
 *
 * desc.c
 *	  This backend's view of stores: descriptors, attribute maps, and shapes
 *	  compiled for the tuple descriptor.
 *
 * A descriptor lives as long as the backend or its store.  Map and plans lie in
 * one memory context that is replaced when the tuple descriptor changes; the old
 * one goes at transaction end, because a scan may still use it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "sofort/compat/relcache.h"
#include "sofort/store/store_internal.h"
#include "utils/hsearch.h"
#include "utils/inval.h"

typedef struct DescEntry
{
	StoreId		id;
	struct StoreLocal *local;
} DescEntry;

/* Direct-mapped, for store_open() */
#define OPEN_CACHE	64
typedef struct OpenEntry
{
	RelFileLocator locator;
	uint64		registry_version;
	uint64		invalidations;
	StoreDesc  *desc;
} OpenEntry;

static HTAB *descs = NULL;
static MemoryContext desc_cxt = NULL;
static MemoryContext replaced_cxt = NULL;	/* parent of replaced maps */
static OpenEntry open_cache[OPEN_CACHE];
static StoreDesc *last_desc = NULL;
static uint64 invalidations = 1;	/* incremented by relcache invalidations and our own undo */
static uint64 swept_version = 0;

static void
on_relcache_invalidation(Datum arg, Oid relid)
{
	invalidations++;
}

static void
free_replaced(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			MemoryContextReset(replaced_cxt);
			break;
		default:
			break;
	}
}

static void
init_once(void)
{
	HASHCTL		ctl = {.keysize = sizeof(StoreId), .entrysize = sizeof(DescEntry)};

	desc_cxt = AllocSetContextCreate(TopMemoryContext, "sofort stores", ALLOCSET_SMALL_SIZES);
	replaced_cxt = AllocSetContextCreate(TopMemoryContext, "sofort replaced maps",
										 ALLOCSET_SMALL_SIZES);
	ctl.hcxt = desc_cxt;
	CacheRegisterRelcacheCallback(on_relcache_invalidation, (Datum) 0);
	RegisterXactCallback(free_replaced, NULL);
	descs = hash_create("sofort stores", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * The descriptor, or NULL if this backend has not opened the store.  If any store was
 * dropped since, checks that this one is still there: otherwise its memory is gone.  No
 * palloc, no ERROR.
 */
StoreDesc *
desc_find(StoreId id)
{
	uint64		version = registry_version();
	StoreDesc  *desc = last_desc;

	if (desc == NULL || desc->id != id)
	{
		DescEntry  *e = descs == NULL ? NULL : hash_search(descs, &id, HASH_FIND, NULL);

		if (e == NULL)
			return NULL;
		desc = &e->local->desc;
	}
	if (desc->local->verified_version != version)
	{
		if (registry_find_id(id) == NULL)
		{
			desc_forget(id);
			return NULL;
		}
		desc->local->verified_version = version;
	}
	return last_desc = desc;
}

/* The store is gone.  No palloc, no ERROR. */
void
desc_forget(StoreId id)
{
	DescEntry  *e = descs == NULL ? NULL : hash_search(descs, &id, HASH_FIND, NULL);
	struct StoreLocal *local;
	int			i;

	if (e == NULL)
		return;
	local = e->local;
	space_forget(local);
	for (i = 0; i < OPEN_CACHE; i++)
		if (open_cache[i].desc == &local->desc)
			open_cache[i].desc = NULL;
	if (last_desc == &local->desc)
		last_desc = NULL;
	hash_search(descs, &id, HASH_REMOVE, NULL);
	/* a caller up the stack may still hold the descriptor: free it later */
	local->desc.shared = NULL;
	local->desc.header = NULL;
	if (local->cxt != NULL)
		MemoryContextSetParent(local->cxt, replaced_cxt);
	MemoryContextSetParent(local->self_cxt, replaced_cxt);
}

/* To be called when columns were dropped by undo, or all of them by a truncation. */
void
desc_mark_stale(StoreId id)
{
	StoreDesc  *desc = desc_find(id);

	if (desc != NULL)
	{
		desc->local->stale = true;
		invalidations++;
	}
}

/* Forgets, now and then, stores that others have dropped. */
static void
sweep(void)
{
	HASH_SEQ_STATUS seq;
	DescEntry  *e;

	swept_version = registry_version();
	hash_seq_init(&seq, descs);
	while ((e = hash_seq_search(&seq)) != NULL)
	{
		if (!e->local->is_active && registry_find_id(e->id) == NULL)
			desc_forget(e->id);
	}
}

/* ---- attribute map ---- */

void
desc_refresh_columns(StoreDesc *store)
{
	struct StoreLocal *local = store->local;
	int			i;

	local->columns_seen = pm_vector_count(&store->header->columns);
	for (i = 0; i < local->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(local->tupdesc, i);

		local->column[i] = compat_is_stored(att) ? column_find(store->header, att) : -1;
	}
}

static void
build_map(struct StoreLocal *local, TupleDesc tupdesc)
{
	MemoryContext cxt = AllocSetContextCreate(desc_cxt, "sofort store", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	int			natts = tupdesc->natts;
	TupleDesc	copy = CreateTupleDescCopyConstr(tupdesc);
	int32	   *column = palloc(Max(natts, 1) * sizeof(int32));
	int			max_refs = natts + PM_INTENTS_PER_BACKEND;	/* of a row, behind some of others */
	int		   *ref_atts = palloc(max_refs * sizeof(int));
	uint64	   *ref_fields = palloc(max_refs * sizeof(uint64));
	Datum	   *ref_values = palloc(max_refs * sizeof(Datum));

	MemoryContextSwitchTo(old);
	if (local->cxt != NULL)
		MemoryContextSetParent(local->cxt, replaced_cxt);
	local->cxt = cxt;
	local->tupdesc = copy;
	local->natts = natts;
	local->column = column;
	local->ref_atts = ref_atts;
	local->ref_fields = ref_fields;
	local->ref_values = ref_values;
	local->plans = NULL;
	local->guess = NULL;
	local->nplans = 0;
	local->stale = true;		/* should the next line fail */
	desc_refresh_columns(&local->desc);
	local->stale = false;
}

/* sofort.verify() and sofort.salvage() do without a descriptor. */
pg_noreturn static void
raise_damaged(Relation rel, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("relation \"%s\" is damaged in the sofort pool", RelationGetRelationName(rel)),
			 errdetail("%s.", problem),
			 errhint("Restore it from a backup, or read what is readable with sofort.salvage().")));
}

static struct StoreLocal *
make_local(StoreNode *node)
{
	StoreShared *shared = registry_attach(node);
	StoreId		id = node->id;
	MemoryContext cxt;
	struct StoreLocal *local;
	DescEntry  *e;

	cxt = AllocSetContextCreate(desc_cxt, "sofort store descriptor", ALLOCSET_SMALL_SIZES);
	local = MemoryContextAllocZero(cxt, sizeof(struct StoreLocal));
	local->self_cxt = cxt;
	local->desc.id = id;
	local->desc.header = node->header;
	local->desc.shared = shared;
	local->desc.settled_mark = settled_mark_of_life();
	local->desc.local = local;
	local->stale = true;
	e = hash_search(descs, &id, HASH_ENTER, NULL);
	e->local = local;
	return local;
}

static StoreDesc *
open_slowly(Relation rel, OpenEntry *entry)
{
	const RelFileLocator *locator = relation_locator(rel);
	uint64		version = registry_version();
	uint64		seen = invalidations;
	StoreNode  *node;
	StoreDesc  *desc;
	struct StoreLocal *local;

	if (descs == NULL)
		init_once();
	if (swept_version + 1000 < version)
		sweep();
	node = registry_find_locator(locator);
	if (node == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the pool holds no data for relation \"%s\"", RelationGetRelationName(rel)),
				 errdetail("There is no store for file %u/%u/%u.", locator_spc(locator),
						   locator_db(locator), locator_number(locator)),
				 errhint("The pool may be an older copy, or was made anew. Restore pool and data directory together, or drop the table.")));
	if (node->damage != NULL)
		raise_damaged(rel, node->damage);
	desc = desc_find(node->id);
	if (desc == NULL || desc->local->cxt == NULL)
	{
		char		problem[128];

		if (store_metadata_problem(node->header, problem, sizeof(problem)))
			raise_damaged(rel, problem);
	}
	/* must precede any change of a store that the start has emptied */
	if (store_flags(node->header) & STORE_UNLOGGED)
		store_mark_unlogged_file(locator);
	local = desc == NULL ? make_local(node) : desc->local;
	if (local->stale || local->cxt == NULL ||
		!equalTupleDescs(local->tupdesc, RelationGetDescr(rel)))
		build_map(local, RelationGetDescr(rel));
	stats_report_left(rel, local->desc.shared);
	entry->locator = *locator;
	entry->registry_version = version;
	entry->invalidations = seen;
	entry->desc = &local->desc;
	return entry->desc;
}

StoreDesc *
store_open(Relation rel)
{
	const RelFileLocator *l = relation_locator(rel);
	OpenEntry  *e = &open_cache[locator_number(l) % OPEN_CACHE];

	pool_require();
	txn_resolve_leftovers();
	if (likely(e->desc != NULL && locator_equal(&e->locator, l) &&
			   e->registry_version == registry_version() &&
			   e->invalidations == invalidations))
		return e->desc;
	return open_slowly(rel, e);
}

StoreDesc *
store_open_as(Relation rel, TupleDesc tupdesc)
{
	StoreDesc  *desc = store_open(rel);
	struct StoreLocal *local;

	if (equalTupleDescs(desc->local->tupdesc, tupdesc))
		return desc;
	local = palloc0(sizeof(struct StoreLocal));
	local->desc = *desc;
	local->desc.local = local;
	build_map(local, tupdesc);
	MemoryContextSetParent(local->cxt, CurrentMemoryContext);
	return &local->desc;
}

/* ---- plans ---- */

/* Columns side by side in one minipage count once. */
static void
add_minipage(ShapePlan *p, const ShapeColumn *c)
{
	int			i;

	for (i = 0; i < p->nminipages; i++)
	{
		if (p->mini_stride[i] == c->stride &&
			Max(p->mini_offset[i], c->offset) - Min(p->mini_offset[i], c->offset) < c->stride)
		{
			p->mini_offset[i] = Min(p->mini_offset[i], c->offset);
			return;
		}
	}
	p->mini_offset[p->nminipages] = c->offset;
	p->mini_stride[p->nminipages++] = c->stride;
}

/* Arrays are the caller's. */
void
plan_minipages(ShapePlan *p, const ShapeHeader *s)
{
	for (int i = 0; i < s->ncolumns; i++)
		if (s->columns[i].offset < s->record_offset)
			add_minipage(p, &s->columns[i]);
}

static void
plan_columns_of_shape(ShapePlan *p, const ShapeHeader *s)
{
	int			i;

	p->ref_offset = palloc(s->ncolumns * sizeof(uint32) + 1);
	p->ref_stride = palloc(s->ncolumns * sizeof(uint32) + 1);
	p->mini_offset = palloc(s->ncolumns * sizeof(uint32) + 1);
	p->mini_stride = palloc(s->ncolumns * sizeof(uint32) + 1);
	for (i = 0; i < s->ncolumns; i++)
	{
		const ShapeColumn *c = &s->columns[i];

		if (c->encoding == ENCODING_REFERENCE)
		{
			p->ref_offset[p->nrefs] = c->offset;
			p->ref_stride[p->nrefs++] = c->stride;
		}
	}
	plan_minipages(p, s);
}

static AttrKind
byval_kind(int16 attlen)
{
	return attlen == 1 ? ATTR_BYVAL1 : attlen == 2 ? ATTR_BYVAL2 :
		attlen == 4 ? ATTR_BYVAL4 : ATTR_BYVAL8;
}

static void
plan_present(AttrPlan *a, ShapeAttr *attr, const ShapeColumn *c)
{
	attr->encoding = c->encoding;
	attr->width = c->width;
	attr->null_bit = c->null_bit;
	attr->offset = a->offset = c->offset;
	attr->stride = a->stride = c->stride;
	switch (c->encoding)
	{
		case ENCODING_PLAIN:
			a->kind = attr->byval ? byval_kind(attr->attlen) : ATTR_IN_PLACE;
			break;
		case ENCODING_INLINE:
			a->kind = ATTR_INLINE;
			a->chunk0 = c->width;
			break;
		case ENCODING_REFERENCE:
			a->kind = ATTR_POINTER;
			a->chunk0 = attr->attlen == -1;
			break;
		case ENCODING_NARROW:
			a->kind = ATTR_NARROW;
			break;
		default:
			a->dictionary = attr->dictionary = pm_deref(c->dictionary);
			a->values = pm_deref(a->dictionary->values.chunks[0]);
			a->chunk0 = 1U << a->dictionary->values.first_shift;
			a->kind = ATTR_CODE;
			if (c->width == 1 && attr->byval && a->chunk0 >= 256 && attr->attlen == 2)
				a->kind = ATTR_CODE1_2;
			if (c->width == 1 && attr->byval && a->chunk0 >= 256 && attr->attlen == 4)
				a->kind = ATTR_CODE1_4;
	}
}

static void
plan_attribute(struct StoreLocal *local, ShapePlan *p, int i)
{
	const ShapeHeader *s = p->shape;
	Form_pg_attribute att = TupleDescAttr(local->tupdesc, i);
	ShapeAttr  *attr = &p->reader->attr[i];
	AttrPlan   *a = &p->plan[i];
	const ShapeColumn *c;

	attr->byval = att->attbyval;
	attr->attlen = att->attlen;
	attr->dropped = !compat_is_stored(att);
	a->kind = ATTR_MISSING;
	p->missing_null[i] = true;
	if (attr->dropped)
		return;
	if (local->column[i] == COLUMN_MISMATCH)
		column_mismatch(local->desc.header, att);
	c = shape_column(s, local->column[i]);
	if (c == NULL)
	{
		p->missing[i] = getmissingattr(local->tupdesc, i + 1, &p->missing_null[i]);
		return;
	}
	if (c->null_bit != SHAPE_NEVER_NULL)
	{
		a->null_byte = (uint16) (c->null_bit / 8);
		a->null_mask = 1 << (c->null_bit % 8);
	}
	plan_present(a, attr, c);
}

/*
 * Compiles a shape.  Columns that somebody else made since the map was built are found now,
 * because they are older than the shape.
 */
ShapePlan *
plan_compile(StoreDesc *store, uint32 shape)
{
	struct StoreLocal *local = store->local;
	ShapeHeader *s = shape_get(store->header, shape);
	int			natts = local->natts;
	MemoryContext old;
	ShapePlan  *p;
	int			i;

	if (s == NULL)
		elog(ERROR, "sofort store " UINT64_FORMAT " has no shape %u", store->id, shape);
	if (local->columns_seen != pm_vector_count(&store->header->columns))
		desc_refresh_columns(store);
	old = MemoryContextSwitchTo(local->cxt);
	p = palloc0(sizeof(ShapePlan));
	p->shape = s;
	p->record_offset = s->record_offset;
	p->record_stride = s->record_stride;
	p->null_bytes = shape_null_bytes(s);
	/*
	 * attr_is_null() reads a byte even of a column without a bit: without a bitmap it is one
	 * of the row's own.  What lies behind the last row may be a hole of the file.
	 */
	p->null_offset = p->null_bytes > 0 ? s->null_offset : 0;
	p->natts = natts;
	p->plan = palloc0(Max(natts, 1) * sizeof(AttrPlan));
	p->index = palloc0(Max(natts, 1) * sizeof(DictIndex *));
	p->missing = palloc0(Max(natts, 1) * sizeof(Datum));
	p->missing_null = palloc0(Max(natts, 1) * sizeof(bool));
	p->reader = palloc0(offsetof(ShapeReader, attr) + Max(natts, 1) * sizeof(ShapeAttr));
	p->reader->shape = s;
	plan_columns_of_shape(p, s);
	for (i = 0; i < natts; i++)
		plan_attribute(local, p, i);
	if (shape >= local->nplans)
	{
		uint32		n = Max(8, shape + 4);
		ShapePlan **plans = palloc0(n * sizeof(ShapePlan *));

		if (local->nplans > 0)
			memcpy(plans, local->plans, local->nplans * sizeof(ShapePlan *));
		local->plans = plans;
		local->nplans = n;
	}
	local->plans[shape] = p;
	local->guess = p;
	MemoryContextSwitchTo(old);
	return p;
}
