/*-------------------------------------------------------------------------
 *
 * verify_space.c
 *	  Is everything that a store has allocated referred to exactly once, and is
 *	  everything that it refers to allocated?
 *
 * Other writers are held off meanwhile (ShareLock on the table), so nothing of theirs is
 * on its way between allocation and reference.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/store/store_internal.h"

typedef struct Space
{
	StoreReport report;
	void	   *arg;
	PMPtr	   *start;			/* of allocations, one for each reference */
	Size		n;
	Size		size;			/* of the array */
	bool	   *owned;			/* references of the store whose targets are among its
								 * allocations */
} Space;

/* Notes a reference.  One that leads nowhere is reported elsewhere. */
static void
refer(Space *s, PMPtr p)
{
	PMPtr		start = p != PM_NULL ? pm_allocation_start(p) : PM_NULL;

	if (start == PM_NULL)
		return;
	if (s->n == s->size)
	{
		s->size *= 2;
		s->start = repalloc_huge(s->start, s->size * sizeof(PMPtr));
	}
	s->start[s->n++] = start;
}

static void
refer_vector(Space *s, const PmVector *v)
{
	int			i;

	for (i = 0; i < PM_VECTOR_CHUNKS; i++)
		refer(s, v->chunks[i]);
}

/* Elements of a vector of references, up to the one that is not counted yet */
static void
refer_elements(Space *s, const PmVector *v)
{
	uint64		i;

	refer_vector(s, v);
	for (i = 0; i <= pm_vector_count(v); i++)
	{
		const PMPtr *p = pm_vector_get(v, i);

		if (p != NULL)
			refer(s, *p);
	}
}

/* Notes the index of a dictionary, and the tables that it has replaced */
static void
refer_tables(Space *s, const DictionaryHeader *d)
{
	PMPtr		p = d->index;

	while (p != PM_NULL && pm_allocated_size(p) > sizeof(DictMedia))
	{
		refer(s, p);
		p = ((DictMedia *) pm_deref(p))->older;
	}
}

static void
refer_columns(Space *s, const StoreHeader *h)
{
	uint64		i;

	refer_vector(s, &h->columns);
	for (i = 0; i < pm_vector_count(&h->columns); i++)
	{
		const ColumnHeader *c = column_get(h, i);
		const DictionaryHeader *d;

		if (c == NULL || c->dictionary == PM_NULL ||
			pm_allocated_size(c->dictionary) < sizeof(DictionaryHeader))
			continue;
		refer(s, c->dictionary);
		d = pm_deref(c->dictionary);
		refer_tables(s, d);
		if (d->attlen > 0)
		{
			refer_vector(s, &d->values);
			refer_vector(s, &d->checks);
		}
		else
			refer_elements(s, &d->values);
	}
}

/*
 * Notes the values of all rows, whatever their state: an EMPTY row may have some that its
 * next user frees, and the field of a NULL is 0 or was left by an earlier user.
 */
static void
refer_values(Space *s, const ShapeHeader *shape, const BlockHeader *b)
{
	int			k;
	uint32		i;

	for (k = 0; k < shape->ncolumns; k++)
	{
		const ShapeColumn *c = &shape->columns[k];

		if (c->encoding != ENCODING_REFERENCE)
			continue;
		for (i = 0; i < b->capacity; i++)
			refer(s, *(const PMPtr *) ((const char *) b + c->offset + (Size) i * c->stride));
	}
}

static void
refer_blocks(Space *s, const StoreHeader *h)
{
	uint64		n;

	refer_vector(s, &h->blocks);
	for (n = 0; n < store_block_count(h) + STORE_RUN_MAX; n++)
	{
		const PMPtr *entry = block_entry(h, n);
		const BlockHeader *b;
		const ShapeHeader *shape;

		CHECK_FOR_INTERRUPTS();
		if (entry == NULL || *entry == PM_NULL)
			continue;
		b = pm_deref_quietly(*entry);
		if (b == NULL || pm_allocated_size(*entry) < sizeof(BlockHeader) ||
			block_problem(h, b, n) != NULL)
		{
			if (n >= store_block_count(h))
				s->report(s->arg, "block", "behind the last one", "reference is damaged");
			refer(s, *entry);
			continue;			/* told already */
		}
		if (n < STORE_SINGLE_BLOCKS || block_begins_run(b, n) != NULL)
			refer(s, *entry);
		refer(s, b->links);
		refer(s, b->successors);
		shape = shape_get(h, b->shape);
		if (shape != NULL)
			refer_values(s, shape, b);
	}
}

static int
compare_starts(const void *a, const void *b)
{
	PMPtr		x = *(const PMPtr *) a;
	PMPtr		y = *(const PMPtr *) b;

	return x < y ? -1 : x > y;
}

static void
tell(const Space *s, PMPtr p, Size size, const char *problem)
{
	char		place[64];

	snprintf(place, sizeof(place), "%zu bytes at " UINT64_FORMAT, size, p & PM_OFFSET_MASK);
	s->report(s->arg, "space", place, problem);
}

static void
look_up(void *arg, PMPtr target, Size size, StoreId owner)
{
	const Space *s = arg;
	const PMPtr *found = bsearch(&target, s->start, s->n, sizeof(PMPtr), compare_starts);

	if (found == NULL)
		tell(s, target, size, "is allocated, and nothing refers to it");
	else
		s->owned[found - s->start] = true;
}

/* Reports references to the same allocation, and keeps one of each. */
static void
tell_twice(Space *s)
{
	Size		n = 0;
	Size		i;

	for (i = 0; i < s->n; i++)
	{
		if (n > 0 && s->start[i] == s->start[n - 1])
			tell(s, s->start[i], pm_allocated_size(s->start[i]), "is referred to twice");
		else
			s->start[n++] = s->start[i];
	}
	s->n = n;
}

void
store_verify_space(const StoreHeader *header, StoreReport report, void *arg)
{
	Space		s = {.report = report,.arg = arg,.size = 1024};
	Size		i;

	/* what this transaction has reserved for rows to come is not referred to yet */
	pm_give_up_ahead();
	s.start = palloc(s.size * sizeof(PMPtr));
	refer_blocks(&s, header);
	refer_columns(&s, header);
	refer_elements(&s, &header->shapes);
	qsort(s.start, s.n, sizeof(PMPtr), compare_starts);
	tell_twice(&s);

	s.owned = MemoryContextAllocExtended(CurrentMemoryContext, Max(s.n, 1) * sizeof(bool),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	pm_visit_allocations(store_id_of(header), look_up, &s);
	for (i = 0; i < s.n; i++)
	{
		if (!s.owned[i])
			tell(&s, s.start[i], pm_allocated_size(s.start[i]),
				 "is referred to, and belongs to somebody else or to nobody");
	}
	pfree(s.owned);
	pfree(s.start);
}
