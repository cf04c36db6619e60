/*-------------------------------------------------------------------------
 *
 * media.c
 *	  Checksums of what a store has in the pool, and what is wrong with it.
 *
 * README.md, "Damage", says which structure is covered by what.  The functions
 * here follow a reference only if its check is right, and raise no error, so that
 * they may look at anything, also when the server starts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sofort/store/store_internal.h"

/* ---- checksums ---- */

/* CRC of what never changes in a header: whose it is */
static uint32
identity_crc(const StoreHeader *header)
{
	struct
	{
		uint32		magic;
		uint32		zero;
		uint64		sealed_id;
		Oid			oids[4];
	}			identity = {
		header->magic, 0, header->sealed_id,
		{header->spc_oid, header->db_oid, header->rel_number, header->rel_oid}
	};

	return pm_crc(&identity, sizeof(identity));
}

uint64
store_flag_word(const StoreHeader *header, uint64 flags)
{
	return PM_SEAL16(flags) | (uint64) identity_crc(header) << 32;
}

void
store_set_flags(StoreHeader *header, uint64 flags)
{
	pm_store8_persist(&header->flag_word, store_flag_word(header, flags));
}

uint32
column_crc(const ColumnHeader *c)
{
	return pm_crc(&c->attnum, offsetof(ColumnHeader, dict_placement) - offsetof(ColumnHeader, attnum));
}

uint32
shape_crc(const ShapeHeader *s)
{
	ShapeHeader head = *s;

	head.crc = 0;
	return pm_crc_of_two(&head, sizeof(head), s->columns, s->ncolumns * sizeof(ShapeColumn));
}

uint32
block_crc(const BlockHeader *b)
{
	return pm_crc(b, offsetof(BlockHeader, links));
}

uint32
run_crc(const RunHeader *run)
{
	return pm_crc(run, offsetof(RunHeader, crc));
}

uint32
dictionary_crc(const DictionaryHeader *d)
{
	return pm_crc(d, offsetof(DictionaryHeader, placement));
}

uint32
dict_media_crc(const DictMedia *media)
{
	uint64		fields[3] = {media->magic, media->mask, media->covered};

	return pm_crc(fields, sizeof(fields));
}

/* Check of a value of fixed length; never 0 */
uint32
dictionary_check(const void *bytes, Size len)
{
	return Max(pm_crc(bytes, len), 1);
}

/* The part of a plan that row_check() needs; palloc'd in one piece. */
ShapePlan *
row_check_plan(const ShapeHeader *shape)
{
	ShapePlan  *plan = palloc0(sizeof(ShapePlan) + 2 * shape->ncolumns * sizeof(uint32));

	plan->record_stride = shape->record_stride;
	plan->mini_offset = (uint32 *) (plan + 1);
	plan->mini_stride = plan->mini_offset + shape->ncolumns;
	plan_minipages(plan, shape);
	return plan;
}

/* ---- headers ---- */

/* What is wrong with what says that this is a store's header, and whose; NULL: nothing */
const char *
store_identity_problem(const StoreHeader *header)
{
	if (header->magic != SOFORT_STORE_MAGIC)
		return "header has no magic number";
	if (!PM_SEALED_ID_RIGHT(header->sealed_id))
		return "store id is damaged";
	if (word_read((const uint64 *) &header->flag_word) >> 32 != identity_crc(header))
		return "checksum of the header is wrong";
	return NULL;
}

/* Others may set or replace it meanwhile: it is looked at as it was once. */
static bool
is_damaged_reference(const PMPtr *reference)
{
	PMPtr		p = word_read((const uint64 *) reference);

	return p != PM_NULL && !pm_ref_is_valid(p);
}

/*
 * Length, sizes and references of a vector that has storage for n elements; not
 * whether they are allocated.  Others make it grow meanwhile: each word is read once.
 */
static const char *
vector_problem_to(const PmVector *v, uint64 n, uint32 elem_size, const char *problem)
{
	uint64		length = word_read((const uint64 *) &v->length);
	uint64		within;
	int			last;
	int			i;

	if (!PM_SEALED_RIGHT(length) || v->elem_size != elem_size || v->first_shift > 31 ||
		v->check != PM_VECTOR_CHECK(v->elem_size, v->first_shift))
		return problem;
	last = n == 0 ? -1 : pm_vector_chunk(v, n - 1, &within);
	for (i = 0; i < PM_VECTOR_CHUNKS; i++)
	{
		PMPtr		chunk = word_read((const uint64 *) &v->chunks[i]);

		if ((chunk == PM_NULL) ? i <= last : !pm_ref_is_valid(chunk))
			return problem;
	}
	return NULL;
}

static const char *
vector_problem(const PmVector *v, uint32 elem_size, const char *problem)
{
	return vector_problem_to(v, pm_vector_count(v), elem_size, problem);
}

/*
 * Are the numbers of tid.c right?  The first row of a table changes them, as one word, while
 * others open it: so they are read as one.
 */
static bool
numbering_is_right(const StoreHeader *header)
{
	uint64		word = word_read((const uint64 *) &header->tid_rows);
	uint16		fields[4];

	memcpy(fields, &word, sizeof(word));
	return fields[3] == tid_check(fields);
}

/* All of the header */
const char *
store_header_problem(const StoreHeader *header)
{
	const char *problem = store_identity_problem(header);
	/* (others change them meanwhile: each is looked at as it was once) */
	uint32		state = *(const volatile uint32 *) &header->state;
	uint32		flag_word = (uint32) word_read((const uint64 *) &header->flag_word);
	uint64		nblocks = word_read((const uint64 *) &header->nblocks);

	if (problem != NULL)
		return problem;
	if (state != STORE_LIVE && state != STORE_DROPPING)
		return "state is damaged";
	if (!PM_SEALED16_RIGHT(flag_word))
		return "flags are damaged";
	if (!PM_SEALED_RIGHT(nblocks))
		return "number of blocks is damaged";
	if (is_damaged_reference(&header->tree))
		return "reference to the tree is damaged";
	if (!numbering_is_right(header))
		return "numbering of TIDs is damaged";
	problem = vector_problem(&header->blocks, sizeof(PMPtr), "directory of blocks is damaged");
	if (problem == NULL)
		problem = vector_problem(&header->columns, sizeof(ColumnHeader),
								 "directory of columns is damaged");
	if (problem == NULL)
		problem = vector_problem(&header->shapes, sizeof(PMPtr), "directory of shapes is damaged");
	if (problem == NULL && store_block_count(header) > pm_vector_count(&header->blocks))
		return "number of blocks is damaged";
	return problem;
}

const char *
column_problem(const ColumnHeader *c)
{
	uint32		state;

	if (c == NULL)
		return "not there";
	if (c->crc != column_crc(c))
		return "checksum is wrong";
	/* (a column may be dropped meanwhile) */
	state = *(const volatile uint32 *) &c->state;
	if (state != COLUMN_LIVE && state != COLUMN_DROPPED)
		return "state is damaged";
	if (c->dict_placement % COLUMN_PLACEMENT(0) != 0 ||
		c->dict_placement / COLUMN_PLACEMENT(0) > DICT_HYBRID + 1)
		return "placement is damaged";
	if (is_damaged_reference(&c->dictionary))
		return "reference to the dictionary is damaged";
	return NULL;
}

const char *
shape_problem(const StoreHeader *header, const ShapeHeader *s, uint64 id)
{
	int			k;

	if (s == NULL)
		return "reference is damaged";
	/* (the checksum covers as many columns as ncolumns says) */
	if (s->ncolumns > pm_vector_count(&header->columns) || s->crc != shape_crc(s))
		return "checksum is wrong";
	if (s->id != id)
		return "misnumbered";
	for (k = 0; k < s->ncolumns; k++)
	{
		const ShapeColumn *c = &s->columns[k];

		if (c->column >= pm_vector_count(&header->columns) ||
			c->offset + (SOFORT_BLOCK_ROWS - 1) * c->stride + c->width > s->block_size)
			return "a column lies outside";
		if (c->encoding == ENCODING_DICTIONARY && !pm_ref_is_valid(c->dictionary))
			return "reference to a dictionary is damaged";
	}
	return NULL;
}

const char *
dictionary_header_problem(const StoreHeader *header, const DictionaryHeader *d, uint64 column)
{
	const char *problem;
	uint32		placement;

	if (d->crc != dictionary_crc(d))
		return "checksum of the dictionary is wrong";
	if (d->store != store_id_of(header) || d->column != column)
		return "dictionary belongs to another column";
	/* (others move the index meanwhile) */
	placement = *(const volatile uint32 *) &d->placement;
	if (placement != PM_CODE32(placement & 0xf) || placement > PM_CODE32(DICT_HYBRID))
		return "placement of the dictionary is damaged";
	if (is_damaged_reference(&d->index))
		return "reference to the index of the dictionary is damaged";
	problem = vector_problem(&d->values, d->attlen > 0 ? (uint32) d->attlen : sizeof(PMPtr),
							 "directory of the dictionary is damaged");
	/* (the length of this one is always 0) */
	if (problem == NULL)
		problem = vector_problem_to(&d->checks, d->attlen > 0 ? pm_vector_count(&d->values) : 0,
									sizeof(uint32), "checksums of the dictionary are damaged");
	return problem;
}

/* The header of the dictionary that a column refers to */
const char *
dictionary_problem(const StoreHeader *header, const ColumnHeader *c, uint64 column)
{
	const DictionaryHeader *d = pm_deref_quietly(c->dictionary);

	return d == NULL ? "reference to the dictionary is damaged" :
		dictionary_header_problem(header, d, column);
}

/* The head of a dictionary's index in the pool; its size, too, as it is read at once */
const char *
dict_media_problem(const DictionaryHeader *d)
{
	PMPtr		index = word_read((const uint64 *) &d->index);
	const DictMedia *media = pm_deref_quietly(index);
	Size		allocated = pm_allocated_size(index);

	if (media == NULL || allocated < sizeof(DictMedia))
		return "index of the dictionary is not allocated";
	if (media->magic != SOFORT_DICT_MAGIC || media->crc != dict_media_crc(media) ||
		media->unused != 0 || (media->mask & (media->mask + 1)) != 0 ||
		is_damaged_reference(&media->older) ||
		media->mask >= allocated / sizeof(uint64) ||
		allocated < offsetof(DictMedia, slot) + (media->mask + 1) * sizeof(uint64))
		return "index of the dictionary is damaged";
	return NULL;
}

const char *
block_problem(const StoreHeader *header, const BlockHeader *b, uint64 number)
{
	const ShapeHeader *shape;

	if (b->magic != SOFORT_BLOCK_MAGIC || b->crc != block_crc(b) ||
		b->head_check != block_head_check(b))
		return "checksum of the header is wrong";
	if (b->store != store_id_of(header) || b->block_number != number ||
		b->capacity != block_capacity(number))
		return "header does not belong here";
	shape = shape_get(header, b->shape);
	if (shape == NULL)
		return "its shape does not exist";
	if (is_damaged_reference(&b->links))
		return "reference to its links is damaged";
	if (is_damaged_reference(&b->successors))
		return "reference to its successors is damaged";
	return NULL;
}

/* Is the store unusable, by what the start has found, or by its metadata now? */
bool
store_node_problem(const StoreNode *node, char *problem, Size size)
{
	if (node->damage == NULL)
		return store_metadata_problem(node->header, problem, size);
	strlcpy(problem, node->damage, size);
	return true;
}

/*
 * Is anything damaged that is read whenever the store is used (header, columns, shapes,
 * heads of dictionaries)?  If so, "problem" says what.
 */
bool
store_metadata_problem(const StoreHeader *header, char *problem, Size size)
{
	const char *what = store_header_problem(header);
	uint64		i;

	if (what != NULL)
	{
		strlcpy(problem, what, size);
		return true;
	}
	for (i = 0; i < pm_vector_count(&header->columns); i++)
	{
		const ColumnHeader *c = column_get(header, i);

		what = column_problem(c);
		if (what == NULL && c->dictionary != PM_NULL)
			what = dictionary_problem(header, c, i);
		if (what != NULL)
		{
			snprintf(problem, size, "column " UINT64_FORMAT ": %s", i, what);
			return true;
		}
	}
	for (i = 0; i < pm_vector_count(&header->shapes); i++)
	{
		what = shape_problem(header, shape_get(header, (uint32) i), i);
		if (what != NULL)
		{
			snprintf(problem, size, "shape " UINT64_FORMAT ": %s", i, what);
			return true;
		}
	}
	return false;
}
