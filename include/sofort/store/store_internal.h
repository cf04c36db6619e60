/*-------------------------------------------------------------------------
 *
 * store_internal.h
 *	  What the files of src/store share.
 *
 * Lock order (src/store/README.md): chain, structure, space; dictionary and registry
 * locks are taken while no other of them is held.
 *
 * What a function asks of its caller, and which errors it does not raise, is said here or
 * where it is defined.  If nothing is said:
 *	- "row" is a row id, "block" and "shape" are numbers, sizes and offsets are bytes; a
 *	  version that was ended before "horizon", a full transaction id, is dead to all;
 *	- it takes the locks that it needs, so the caller holds none of those or of what comes
 *	  after them ("X lock held": the caller has that one);
 *	- it may raise 53100 (pool full), 53200 (arena or memory full) and XX001 (damage);
 *	- the caller has a lock on the relation (or nobody else can know the store), which
 *	  keeps StoreNode, StoreHeader, StoreShared and what they own where they are; tables
 *	  of dictionaries that were replaced stay as long as the epochs of those who may look.
 *	  A StoreDesc and its plans belong to this backend, until the store is forgotten.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_STORE_STORE_INTERNAL_H
#define SOFORT_STORE_STORE_INTERNAL_H

#include "lib/ilist.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/arena.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/latency.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "sofort/store/store.h"
#include "sofort/store/value.h"
#include "sofort/txn/txn.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

/* Blocks below this one are allocated one by one and have the first shape; the
 * encodings are decided when this block is made (1,016 rows before it). */
#define STORE_SINGLE_BLOCKS		8

#define STORE_RUN_MAX			64	/* blocks in a run */
#define STORE_SAMPLE_ROWS		1016	/* rows of the first blocks */
#define STORE_NARROW_WIDTH	4		/* bytes of a NARROW value */
#define STORE_DICTIONARY_VALUE_MAX	8192	/* bytes; a column with longer ones has no dictionary */
#define STORE_INLINE_MAX		32	/* bytes of an INLINE value with header */

/* ---- locks of the tranche "sofort_store" ---- */

#define STORE_LOCK_PARTITIONS	64
#define STORE_CHAIN_PARTITIONS	256
#define STORE_NLOCKS			(1 + 3 * STORE_LOCK_PARTITIONS + STORE_CHAIN_PARTITIONS)

extern LWLockPadded *StoreLocks;

static inline LWLock *
registry_lock(void)
{
	return &StoreLocks[0].lock;
}

/* Shapes, columns, blocks, the vectors of one store */
static inline LWLock *
structure_lock(StoreId id)
{
	return &StoreLocks[1 + id % STORE_LOCK_PARTITIONS].lock;
}

/* Free list and quarantine of one store */
static inline LWLock *
space_lock(StoreId id)
{
	return &StoreLocks[1 + STORE_LOCK_PARTITIONS + id % STORE_LOCK_PARTITIONS].lock;
}

static inline LWLock *
dictionary_lock(const DictionaryHeader *d)
{
	return &StoreLocks[1 + 2 * STORE_LOCK_PARTITIONS +
					   (d->store * 31 + d->column) % STORE_LOCK_PARTITIONS].lock;
}

static inline LWLock *
chain_lock(StoreId id, uint64 root)
{
	return &StoreLocks[1 + 3 * STORE_LOCK_PARTITIONS +
					   ((root ^ (id << 5)) * UINT64CONST(0x9e3779b97f4a7c15) >> 56)].lock;
}

/* ---- volatile, shared (arena) ---- */

/*
 * Hash table of a dictionary, value -> code; open addressing, slots as in
 * DictMedia.  They lie behind this struct, or in the pool.
 */
typedef struct DictTable
{
	uint64		mask;			/* slots - 1 */
	uint64	   *slot;
	uint64		used;
	DictMedia  *media;			/* NULL: in DRAM */
	uint64		retired_epoch;
	struct DictTable *retired_next;
} DictTable;

/* Codes that rows were seen to use, or that were written meanwhile (dict_vacuum.c). */
typedef struct DictUse
{
	uint32		ncodes;			/* later ones count as used */
	bool		in_keys;		/* an index refers to the column: dead roots are
								 * counted, too */
	Size		bytes;
	uint64		bits[FLEXIBLE_ARRAY_MEMBER];
} DictUse;

typedef enum DictStep
{
	DICT_IDLE,
	DICT_MARKING,				/* writers mark; others have not ended yet */
	DICT_COUNTING,				/* VACUUM looks at all rows */
	DICT_UNLINKED				/* unused values wait to be freed */
} DictStep;

/* Secondary data of a dictionary: value -> code. */
typedef struct DictIndex
{
	struct DictIndex *next;
	DictionaryHeader *dictionary;
	DictTable  *volatile table; /* NULL until built after a restart */
	DictTable  *volatile delta; /* hybrid: the values that "table" does not cover */
	DictTable  *retired;

	/* dictionary lock */
	bool		absent_known;	/* values that earlier lives freed were found */
	uint64	   *absent;			/* bit per code that is not in the table */
	uint32		nabsent_bits;
	uint32		nfree;			/* codes to be given out again, descending */
	uint32	   *free;
	uint32		nfree_size;
	uint32		longest;		/* bytes, of the values that were added since the start */
	uint64		uncounted;		/* codes from before the start, whose values may have been
								 * freed */
	bool		collides;		/* a value found no place in a table (dict_table.h); read
								 * without the lock */

	/* of VACUUM */
	DictStep	step;
	DictUse    *use;			/* read by writers */
	uint64		wait_for;		/* horizon at which the next step may be done */
	uint64		last_used;		/* values in use when counted last */
	int			vacuums;		/* since then */
	uint32		nunlinked;
	uint32	   *unlinked;
	uint32		unlinked_size;
	uint64		complete_epoch; /* all indexes were complete before it; 0: not known */
	DictUse    *retired_use;
	uint64		retired_use_epoch;
} DictIndex;

/*
 * Ranges of free row ids.  entry: bits 0..39 first row, bits 40..63 number
 * (within one block).  "usable_after": the rows may be reused when
 * txn_horizon(NULL) is beyond it; 0 = at once; FREE_OPEN = still being filled.
 */
#define FREE_CHUNK_MIN			14
#define FREE_CHUNK_MAX			254
#define FREE_IN_ORDER			62	/* that few free rows are used in their order */
#define FREE_OPEN				PG_UINT64_MAX
#define FREE_ROW(e)				((e) & ((UINT64CONST(1) << 40) - 1))
#define FREE_COUNT(e)			((uint32) ((e) >> 40))
#define FREE_MAKE(row, n)		((uint64) (row) | ((uint64) (n) << 40))

typedef struct FreeChunk
{
	struct FreeChunk *next;
	uint64		usable_after;
	uint32		n;
	uint32		size;
	uint64		entry[FLEXIBLE_ARRAY_MEMBER];
} FreeChunk;

/* A chain with a version that this transaction has ended (garbage.c). */
typedef struct GarbageChain
{
	uint64		root;
	uint64		ended_by;		/* FullTransactionId */
} GarbageChain;

typedef struct GarbageRing
{
	GarbageChain *entry;		/* size entries, a power of two; NULL: none yet */
	uint32		size;
	uint32		head;			/* next to be filled */
	uint32		tail;			/* oldest */
} GarbageRing;

/* Chains with milestones: open addressing (milestone.c) */
typedef struct LongChain LongChain;
typedef struct LongChains
{
	LongChain  *slot;
	uint32		size;			/* a power of two, or 0 */
	uint32		n;
} LongChains;

struct StoreShared
{
	StoreId		id;
	StoreHeader *header;

	/* bits 0..39 next row to append, 40..63 how many have storage from there */
	pg_atomic_uint64 append;
	pg_atomic_uint32 current_shape; /* for new blocks; UINT32_MAX: none yet */
	pg_atomic_uint32 retired_below; /* rows of shapes before this are not filled */
	pg_atomic_uint32 nfree;		/* hint: ranges in the lists but free_retired */
	pg_atomic_uint32 nmarking;	/* dictionaries whose use writers mark */
	pg_atomic_uint32 making_links;	/* structure lock: a block's reference to its links may
									 * be seen, and not be durable */
	bool		values_freed;	/* of dictionaries, in this server life */

	/* structure lock */
	bool		append_ready;	/* the next three are set */
	uint64		first_row;		/* EMPTY rows below it belong to nobody until
								 * their block was collected */
	uint8	   *collected;		/* bit per block below first_row */
	bool		holes;			/* blocks were released */
	uint64		hole_from;		/* none below this block */
	uint64		undecided_rows; /* made with columns that are to be decided */
	uint64		undecided_wait; /* decide when there are so many */
	uint64		unreviewed_rows;	/* made since encodings were looked at again */
	DictIndex  *dictionaries;

	/* space lock */
	FreeChunk  *free;			/* usable at once, in blocks of the newest shape */
	FreeChunk  *free_older;		/* the same, in other blocks */
	FreeChunk  *free_retired;	/* not to be filled; their values are to be freed */
	FreeChunk  *quarantine_head;
	FreeChunk  *quarantine_tail;
	struct SpareRows *spare;	/* by PostgreSQL's block, see tid.c */
	uint32		nspare;
	GarbageRing old_versions;	/* chains with some to be freed */
	GarbageRing ended_chains;	/* deleted rows, or there is a new root */
	LongChains	long_chains;

	pg_atomic_uint64 live;
	pg_atomic_uint64 dead;
	pg_atomic_uint64 unreported;	/* dead when the server had crashed, and PostgreSQL's
									 * statistics do not know */
	pg_atomic_uint64 settled;	/* of these, settled at the last VACUUM or start */
	pg_atomic_uint64 bytes_dram;
};

/* One store in the registry. */
typedef struct StoreNode
{
	StoreId		id;
	RelFileLocator key;			/* tablespace 0: the database's default one */
	StoreHeader *header;
	Oid			rel_oid;		/* as in the header, which may come to be damaged */
	uint64		slot;			/* in PoolSuper->stores */
	StoreShared *shared;		/* made at first use */
	bool		this_life;		/* created since the server started */
	bool		emptied;		/* unlogged, and the server had crashed */
	const char *damage;			/* what is wrong with the header, or NULL */
	struct StoreNode *next_by_id;
	struct StoreNode *next_by_locator;
	struct StoreNode *next_by_owner;
} StoreNode;

/* ---- volatile, of this backend ---- */

typedef enum AttrKind
{
	ATTR_MISSING,				/* absent: plan->missing */
	ATTR_BYVAL1, ATTR_BYVAL2, ATTR_BYVAL4, ATTR_BYVAL8,
	ATTR_IN_PLACE,				/* by reference: points into the row */
	ATTR_INLINE,				/* the same, a varlena of at most chunk0 bytes */
	ATTR_POINTER,				/* PMPtr in the row; to a varlena if chunk0 is 1 */
	ATTR_NARROW,				/* the low 4 bytes of an 8-byte value */
	ATTR_CODE1_2, ATTR_CODE1_4, /* one-byte code, value of 2, 4 bytes */
	ATTR_CODE					/* any other dictionary column */
} AttrKind;

/* How to decode one attribute; hot, so two to a line. */
typedef struct AttrPlan
{
	uint8		kind;			/* AttrKind */
	uint8		null_mask;
	uint16		null_byte;		/* of the row's null bits */
	uint32		offset;			/* from the start of the block */
	uint32		stride;
	uint32		chunk0;			/* dictionary values in its first chunk */
	const char *values;			/* the first chunk */
	const DictionaryHeader *dictionary;
} AttrPlan;

/* A shape as seen through the tuple descriptor. */
typedef struct ShapePlan
{
	const ShapeHeader *shape;
	uint32		record_offset;
	uint32		record_stride;
	uint32		null_offset;
	uint32		null_bytes;
	int			natts;
	AttrPlan   *plan;			/* [natts] */
	DictIndex **index;			/* [natts], attached when first needed */
	Datum	   *missing;		/* [natts] */
	bool	   *missing_null;
	int			nrefs;			/* REFERENCE columns, also those not mapped */
	uint32	   *ref_offset;
	uint32	   *ref_stride;
	int			nminipages;
	uint32	   *mini_offset;
	uint32	   *mini_stride;
	ShapeReader *reader;
} ShapePlan;

/* Of a row, by its index in a block of this shape */
static inline RowWords *
plan_words(const ShapePlan *plan, const BlockHeader *block, uint32 index)
{
	return (RowWords *) ((char *) block + plan->record_offset + (Size) index * plan->record_stride);
}

/* Of a column that the rows of this shape have */
static inline bool
attr_is_null(const ShapePlan *plan, const AttrPlan *a, const RowRef *ref)
{
	const uint8 *nulls = (const uint8 *) ref->words + plan->null_offset;

	return (nulls[a->null_byte] & a->null_mask) != 0;
}

/* For one who reads what an ATTR_POINTER refers to */
static inline void *
attr_deref(const AttrPlan *a, PMPtr p)
{
	void	   *value = a->chunk0 ? varlena_deref(p) : pm_deref(p);

	pm_note_read(value);
	return value;
}

/* Consecutive rows of one block that this transaction may fill. */
typedef struct Reservation
{
	uint64		row;
	uint32		count;
	uint32		grow;			/* size of the next reservation */
	int			misfits;		/* values that did not fit, in a row */
} Reservation;

/* Rows of a block that are kept for updates: [next, end), offsets from 0 */
typedef struct SpareRows
{
	uint16		next;
	uint16		end;
} SpareRows;

/* Vectors of links were made for so many blocks, the last time in this part of the table */
typedef struct LinksMade
{
	uint64		next;			/* block behind them */
	uint32		n;
	bool		successors;
} LinksMade;

#define STORE_LINKS_MADE	4	/* an UPDATE makes them in three places */

struct StoreLocal
{
	StoreDesc	desc;
	MemoryContext self_cxt;		/* this struct */
	MemoryContext cxt;			/* map and plans; replaced as a whole */
	TupleDesc	tupdesc;
	int			natts;
	int32	   *column;			/* column of each attribute, -1: none yet */
	uint64		columns_seen;
	uint64		verified_version;	/* of the registry: the store was there */
	bool		stale;			/* compare with the relation again */
	ShapePlan **plans;
	uint32		nplans;

	dlist_node	active;			/* has a reservation in this transaction */
	bool		is_active;
	bool		avoid_older;	/* values of this transaction do not fit older
								 * shapes */
	Reservation main;
	Reservation other;			/* one row, where a value did not fit main */
	Reservation near;			/* one row, near the version that it replaces */
	uint64		near_block;		/* PostgreSQL's number of its block */
	bool		new_storage;	/* goes with this subtransaction, or a crash */
	uint64		horizon;		/* for the quarantine; see space_take() */
	uint64		reserved;		/* rows of main in this transaction so far */
	int			first_row_bytes;	/* on heap, of the row that is the table's first */
	int		   *ref_atts;		/* scratch: REFERENCE attributes of a row */
	uint64	   *ref_fields;
	Datum	   *ref_values;

	const ShapePlan *guess;		/* prefetch: of the row located last, or NULL */
	LinksMade	links_made[STORE_LINKS_MADE];
	uint32		links_made_next;
	TimestampTz read_ahead_at;	/* a small table: when all of it was asked for; 0: never */

	/*
	 * Root of the version that store_chain_fetch() found last: an UPDATE asks
	 * for it.  Row and begin word together name one version, if the word is a stamp
	 * for ever, else as long as the transaction that looked.
	 */
	uint64		fetched_row;
	uint64		fetched_begin;
	uint64		fetched_root;
	uint64		fetched_in;		/* which transaction of this process */
};

/* ---- registry.c ---- */

/*
 * Both NULL: there is none.  The node stays as long as the relation is locked; without a
 * lock only whether there is one counts.  Nodes of damaged stores are found, too.
 */
extern StoreNode *registry_find_id(StoreId id);
extern StoreNode *registry_find_locator(const RelFileLocator *locator);
extern bool store_file_is_gone(RelFileLocator key, bool wait);
extern bool store_file_was_reset(const RelFileLocator *key);
extern StoreHeader *registry_find_shared(StoreId id, StoreShared **shared);
extern void registry_drop_stale(const RelFileLocator *locator);

/* Changes with every store made or dropped: a store that was cached may be gone then. */
extern uint64 registry_version(void);
extern StoreShared *registry_attach(StoreNode *node);
extern void registry_add(StoreId id, const RelFileLocator *locator, Oid rel_oid, uint64 flags,
						 int natts);
extern void registry_drop(StoreId id);
extern void registry_empty(StoreHeader *header);
typedef bool (*StoreFilter) (void *arg, const StoreNode *node);
extern StoreNode *registry_list(StoreFilter fn, void *arg, int *n);
extern bool registry_is_emptied(StoreId id);
extern uint64 store_cached_horizon(bool refresh);

/*
 * Columns, shapes, dictionaries, directories: a few small pieces for each store,
 * which would leave a granule of their own nearly empty.
 */
#define STORE_METADATA	PM_RESERVE_SHARED_SLAB

/* For rows' values and links: stores that are small share granules, too. */
extern int	store_slab_flags(const StoreHeader *header);

/* ---- desc.c ---- */
extern StoreDesc *desc_find(StoreId id);
extern void desc_forget(StoreId id);
extern void desc_mark_stale(StoreId id);

/* Maps attributes to the columns that there are now (see column_ensure()). */
extern void desc_refresh_columns(StoreDesc *store);
extern ShapePlan *plan_compile(StoreDesc *store, uint32 shape);
extern void plan_minipages(ShapePlan *p, const ShapeHeader *s);

static inline ShapePlan *
plan_get(StoreDesc *store, uint32 shape)
{
	struct StoreLocal *local = store->local;

	if (likely(shape < local->nplans && local->plans[shape] != NULL))
		return local->plans[shape];
	return plan_compile(store, shape);
}

/*
 * ---- media.c: checksums ----
 *
 * Functions named _crc compute what the field of that name must hold (store_flag_word():
 * the word, with these flags).  Those named _problem read only and raise no error, also
 * where references are damaged: NULL, or false, if nothing is wrong; else what, as a
 * constant, or in "problem".  They are asked at a start, when the store is opened, and by
 * sofort.verify().
 */
extern uint64 store_flag_word(const StoreHeader *header, uint64 flags);
extern uint32 column_crc(const ColumnHeader *c);
extern uint32 shape_crc(const ShapeHeader *s);
extern uint32 block_crc(const BlockHeader *b);
extern uint32 run_crc(const RunHeader *run);
extern uint32 dictionary_crc(const DictionaryHeader *d);
extern uint32 dict_media_crc(const DictMedia *media);
extern uint32 dictionary_check(const void *bytes, Size len);
extern ShapePlan *row_check_plan(const ShapeHeader *shape);
extern const char *store_identity_problem(const StoreHeader *header);
extern bool store_node_problem(const StoreNode *node, char *problem, Size size);
extern bool store_metadata_problem(const StoreHeader *header, char *problem, Size size);
extern const char *column_problem(const ColumnHeader *c);
extern const char *shape_problem(const StoreHeader *header, const ShapeHeader *s, uint64 id);
extern const char *dictionary_problem(const StoreHeader *header, const ColumnHeader *c,
									  uint64 column);
extern const char *dictionary_header_problem(const StoreHeader *header,
											 const DictionaryHeader *d, uint64 column);
extern const char *dict_media_problem(const DictionaryHeader *d);
extern const char *block_problem(const StoreHeader *header, const BlockHeader *b, uint64 number);

static inline DictPlacement
dictionary_placement_of(const DictionaryHeader *d)
{
	return (DictPlacement) (d->placement & 0xf);
}

/* Bytes of a row in one array, folded into 8 */
static inline uint64
fold_bytes(uint64 sum, const char *p, uint32 n)
{
	uint64		word;

	for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word))
	{
		memcpy(&word, p, sizeof(word));
		sum ^= word;
	}
	if (n > 0)
	{
		word = 0;
		memcpy(&word, p, n);
		sum ^= word;
	}
	return sum;
}

/* Three parities, each of every third bit (the first also of bit 63) */
static inline uint64
fold_check(uint64 sum)
{
	const uint64 third = UINT64CONST(0x9249249249249249);

	return (uint64) __builtin_parityll(sum & third) |
		(uint64) __builtin_parityll(sum & (third << 1 & ~third)) << 1 |
		(uint64) __builtin_parityll(sum & (third << 2 & ~third)) << 2;
}

/* Check of the fields of a row, for its begin word: any single bit changes it. */
static inline uint64
row_check(const ShapePlan *plan, const RowRef *ref)
{
	uint64		sum = fold_bytes(0, (const char *) (ref->words + 1),
								 plan->record_stride - (uint32) sizeof(RowWords));

	for (int i = 0; i < plan->nminipages; i++)
		sum = fold_bytes(sum, (const char *) ref->block + plan->mini_offset[i] +
						 (Size) ref->index * plan->mini_stride[i], plan->mini_stride[i]);
	return fold_check(sum);
}

/* ---- column.c ---- */
extern void column_create_all(StoreHeader *header, TupleDesc tupdesc);
extern void column_ensure(Relation rel, StoreDesc *store);
#define COLUMN_MISMATCH (-2)	/* stored with another physical type */
extern int	column_find(const StoreHeader *header, Form_pg_attribute att);
pg_noreturn extern void column_mismatch(const StoreHeader *header, Form_pg_attribute att);
extern void column_drop(StoreHeader *header, uint64 column);

static inline ColumnHeader *
column_get(const StoreHeader *header, uint64 column)
{
	return pm_vector_get(&header->columns, column);
}

/* ---- shape.c, sample.c ---- */
typedef struct ColumnChoice
{
	uint16		column;
	uint8		encoding;
	uint8		width;
	bool		minipage;
	bool		nullable;		/* has a bit in the NULL bitmap */
	bool		undecided;
	bool		late;			/* SHAPE_LATE */
	bool		left;			/* SHAPE_LEFT */
	PMPtr		dictionary;
} ColumnChoice;

/* A value of a row that does not fit a shape */
typedef struct ShapeMisfit
{
	int			attno;			/* 0-based */
	bool		isnull;
	Size		size;			/* bytes, of a varlena without its header */
} ShapeMisfit;

/* Why there was no room in the pool: for pm_raise_full() */
typedef struct NoRoom
{
	int			result;
	Size		size;
} NoRoom;

extern ColumnChoice choice_initial(const ColumnHeader *c, int32 typmod);
extern bool shape_try_publish(StoreDesc *store, ColumnChoice *choices, int n, bool final,
							  NoRoom *why);

/* The first shape, of columns about which nothing is known.  Structure lock held. */
extern void shape_make_initial(StoreDesc *store);
extern void shape_widen(StoreDesc *store, uint32 seen, const ShapeMisfit *misfit, int nmisfits);

/* Bytes of the NULL bitmap of a row */
extern uint32 shape_null_bytes(const ShapeHeader *s);
extern void shape_decide(StoreDesc *store, Bitmapset *indexed);

/* Has it a column whose encoding waits for values? */
extern bool shape_is_undecided(const ShapeHeader *s);
extern ColumnChoice *shape_choices(StoreDesc *store, const ShapeHeader *like, int *n);
extern void shape_decide_late(StoreDesc *store, Bitmapset *indexed);

/* Has the newest shape columns that may get a dictionary after all?  A hint, without locks. */
extern bool shape_may_reconsider(StoreDesc *store);
extern void shape_reconsider(StoreDesc *store, Bitmapset *indexed);
extern uint32 shape_retired_below(const StoreHeader *header, uint32 newest);
extern const ShapeColumn *shape_column(const ShapeHeader *s, int64 column);
extern ShapeHeader *shape_current(StoreDesc *store);

/* NULL: there is no such shape, or the reference to it is damaged.  No ERROR. */
extern ShapeHeader *shape_get(const StoreHeader *header, uint32 shape);
extern const char *encoding_name(int encoding);

static inline uint32
shape_align(uint8 encoding, uint8 width, const ColumnHeader *c)
{
	if (encoding == ENCODING_DICTIONARY || encoding == ENCODING_NARROW)
		return width;
	if (encoding == ENCODING_REFERENCE)
		return sizeof(PMPtr);
	if (encoding == ENCODING_INLINE)
		return 1;
	return c->attalign == 'd' ? 8 : c->attalign == 'i' ? 4 : c->attalign == 's' ? 2 : 1;
}

/* ---- dictionary.c ---- */
extern DictionaryHeader *dictionary_create(StoreHeader *header, uint64 column, NoRoom *why);
extern DictIndex *dictionary_attach(StoreShared *shared, DictionaryHeader *dictionary, int flags);
#define DICT_FULL		PG_UINT32_MAX
extern uint32 dictionary_code(StoreShared *shared, DictIndex *index, const void *bytes, Size len,
							  uint64 limit, uint64 own_rows);
extern uint32 dictionary_code_byval(StoreShared *shared, DictIndex *index, const void *bytes,
									int len, const char *values, uint32 n, uint64 limit,
									uint64 own_rows);
extern DictIndex *dictionary_index_of(StoreShared *shared, const DictionaryHeader *dictionary);

/* The first of a store's list, without the structure lock: others are put before it meanwhile. */
static inline DictIndex *
dictionary_first(const StoreShared *shared)
{
	return __atomic_load_n(&shared->dictionaries, __ATOMIC_ACQUIRE);
}

extern bool dictionary_is_crowded(StoreShared *shared, const DictIndex *index, uint64 own_rows);

/* The value, or the reference to it, in the pool; the dictionary has this code. */
extern void *dictionary_element(const DictionaryHeader *d, uint64 code);

/* The same of a column's dictionary, which has this code */
static inline const char *
code_element(const AttrPlan *a, uint64 code)
{
	return code < a->chunk0 ? a->values + code * a->dictionary->values.elem_size :
		dictionary_element(a->dictionary, code);
}

extern bool dictionary_hash_of(const DictionaryHeader *d, uint64 code, uint64 *hash);

/* Of a store that goes away or becomes empty: nobody can look at it any more.  No ERROR. */
extern void dictionary_free_index(DictIndex *index);
extern bool dictionary_code_is_void(const DictionaryHeader *d, uint64 code);
extern bool dictionary_is_absent(const DictIndex *index, uint32 code);
extern bool dictionary_value_may_go(StoreShared *shared, const DictionaryHeader *dictionary,
									uint32 code);
extern bool dictionary_find_absent(StoreShared *shared, DictIndex *index);
extern bool dictionary_unlink(StoreShared *shared, DictIndex *index, const DictUse *use,
							  uint32 nunused);
extern void dictionary_give_codes(StoreShared *shared, DictIndex *index, uint32 n);

/* ---- dict_table.c ---- */
extern void dict_flush_found_placements(const StoreHeader *header);

/* ---- dict_vacuum.c ---- */
extern void dictionary_mark_row(StoreShared *shared, const ShapeHeader *s, const RowRef *ref,
								bool keys_only);

/* Codes that came after the count began count as used. */
extern bool dictionary_code_is_used(const DictUse *use, uint32 code);

/* ---- block.c ---- */

/* Of magic, capacity and shape: what readers need of a block's header */
static inline uint32
block_head_check(const BlockHeader *b)
{
	uint64		head;

	memcpy(&head, b, sizeof(head));
	return (uint32) PM_CHECK(head, 32);
}

/* Rows that the block has, or would have if it were made */
extern uint32 block_capacity(uint64 block);

/* Where the reference to the block lies; NULL: the directory does not reach so far. */
extern PMPtr *block_entry(const StoreHeader *header, uint64 block);
extern void block_set_count(StoreHeader *header, uint64 n);

/* NULL: it was never made, or released.  XX001 if its header would lead out of it. */
extern BlockHeader *block_get(const StoreHeader *header, uint64 block);

/* Finds the append position, if nobody has done so in this life.  A chain lock may be held. */
extern void block_append_init(StoreDesc *store);

/*
 * Blocks that are made where others were released before this life, or released in it:
 * what is EMPTY there is not left from an earlier life, to be collected.
 */
extern void block_note_collected(StoreShared *shared, uint64 b, uint32 n);
extern void block_extend(Relation rel, StoreDesc *store, bool force);
extern uint64 *block_ensure_links(StoreDesc *store, BlockHeader *block, bool successors);
extern uint32 block_run_length(const StoreHeader *header, uint64 block);
extern const RunHeader *block_begins_run(const BlockHeader *b, uint64 number);
extern bool header_locate(const StoreHeader *header, uint64 row, RowRef *ref);

static inline uint64 *
link_slot(const BlockHeader *block, uint32 index)
{
	PMPtr		p = *(const volatile PMPtr *) &block->links;

	return p == PM_NULL ? NULL : (uint64 *) pm_deref(p) + index;
}

/*
 * Of a link or successor word.  A damaged one leads into the chain of another row, to be
 * changed there, or round and round.
 */
static inline uint64
link_checked(uint64 link)
{
	if (unlikely(link != 0 && !LINK_IS_RIGHT(link)))
		pm_damaged("a link between row versions is damaged");
	return link;
}

static inline uint64
link_read(const BlockHeader *block, uint32 index)
{
	uint64	   *slot = link_slot(block, index);

	return slot == NULL ? 0 : link_checked(word_read(slot));
}

static inline uint64 *
successor_slot(const BlockHeader *block, uint32 index)
{
	PMPtr		p = *(const volatile PMPtr *) &block->successors;

	return p == PM_NULL ? NULL : (uint64 *) pm_deref(p) + index;
}

/* For undo and checks, which raise no error: where the reference is damaged there are no links. */
static inline uint64 *
word_slot_quietly(const PMPtr *vector, uint32 index)
{
	uint64	   *words = pm_deref_quietly(*(const volatile PMPtr *) vector);

	return words == NULL ? NULL : words + index;
}

static inline uint64
link_read_quietly(const BlockHeader *block, uint32 index)
{
	const uint64 *slot = word_slot_quietly(&block->links, index);
	uint64		link = slot == NULL ? 0 : word_read(slot);

	return LINK_IS_RIGHT(link) ? link : 0;
}

static inline bool
words_straddle(const RowWords *w)
{
	return ((uintptr_t) w & (PM_LINE - 1)) == PM_LINE - sizeof(uint64);
}

/* A dictionary code of width 1, 2 or 4 bytes */
static inline uint32
code_get(const char *p, int width)
{
	return width == 1 ? *(const uint8 *) p : width == 2 ? *(const uint16 *) p : *(const uint32 *) p;
}

/* Sets of blocks, a bit for each (block.c, vacuum.c, space.c) */
static inline bool
block_is_marked(const uint8 *marked, uint64 block)
{
	return (marked[block / 8] & (1 << (block % 8))) != 0;
}

static inline void
block_mark(uint8 *marked, uint64 block)
{
	marked[block / 8] |= 1 << (block % 8);
}

static inline void
block_unmark(uint8 *marked, uint64 block)
{
	marked[block / 8] &= ~(1 << (block % 8));
}

/* ---- space.c ---- */
extern void space_give(StoreShared *shared, uint64 row, uint32 count);
extern void space_before_free(StoreDesc *store, uint64 block);
extern void space_quarantine(StoreShared *shared, uint64 row);
extern void space_shape_changed(StoreShared *shared, uint32 retired_below);
extern void space_seal(StoreShared *shared);
extern void space_drain(StoreDesc *store);
extern void space_unmark_quarantined(StoreShared *shared, uint8 *marked, uint64 n);
extern void space_forget_marked(StoreShared *shared, const uint8 *marked, uint64 n);
extern void space_reserve(Relation rel, StoreDesc *store, uint32 want);
extern void space_reserve_other(Relation rel, StoreDesc *store);
extern bool space_reserve_near(Relation rel, StoreDesc *store, uint64 row);
extern void space_end_of_xact(void);
extern void space_forget(struct StoreLocal *local);
extern void space_free_all(StoreShared *shared);

/* ---- tid.c ---- */
extern uint16 tid_check(const uint16 *fields);
extern void tid_note_row(Relation rel, StoreDesc *store, const Datum *values,
						 const bool *isnull);
extern void tid_decide(Relation rel, StoreDesc *store);
extern void tid_copy(StoreHeader *target, const StoreHeader *source);
extern void spread_step_over(StoreDesc *store);
extern void spread_complete_block(Relation rel, StoreDesc *store);
extern uint32 spread_room(const StoreDesc *store, uint64 row, uint32 n);
extern bool spread_take(Relation rel, StoreDesc *store, uint64 row, uint64 *spare);
extern void spread_forget_blocks(StoreShared *shared, uint64 block, uint32 n);
extern void spread_forget_all(StoreShared *shared);

/* ---- row.c ---- */

/* Links of rows that are EMPTY, to values that go */
typedef struct ReferenceBatch
{
	StoreId		owner;
	int			n;
	PMPtr	   *link[PM_INTENTS_PER_BACKEND];
} ReferenceBatch;

extern void row_note_references(ReferenceBatch *batch, const ShapePlan *plan, const RowRef *ref);
extern void row_note_unread_references(ReferenceBatch *batch, const ShapeHeader *s,
									   const RowRef *ref, const Bitmapset *key_columns);

/* Frees them durably, and empties the batch.  No ERROR. */
extern void references_free(ReferenceBatch *batch);

/* ---- chain.c ---- */

/* Aborted, or ended below the horizon.  No ERROR. */
extern bool version_is_dead(const RowWords *words, uint64 horizon);
extern bool version_free(StoreDesc *store, const RowRef *ref);
extern int	chain_prune_inline(StoreDesc *store, const RowRef *root, const RowRef *from);

/*
 * Follows the links of a version to its root; false: they do not lead to one (any more),
 * because rows were freed meanwhile.  Without a lock.  The second raises no error.
 */
extern bool chain_root_of(const StoreHeader *header, const RowRef *ref, RowRef *root);
extern bool chain_root_quietly(const StoreHeader *header, const RowRef *ref, RowRef *root);

/* A chain has no more versions than the table has rows, or its links lead round and round. */
static inline uint64
chain_limit(const StoreHeader *header)
{
	return store_block_count(header) * SOFORT_BLOCK_ROWS;
}

/* XX001: the links of a chain lead round and round */
pg_noreturn extern void chain_is_endless(void);

#define CHAIN_WALK_CHECK	1024	/* versions, a power of two: then look round */
extern void chain_walked_far(uint64 steps);

/*
 * Of a walk without a lock, after so many versions, which may be foreign ones, of rows that
 * were freed and filled again: once in a while it can be cancelled, and it ends.
 */
static inline void
chain_walk_step(uint64 steps)
{
	if (unlikely(steps % CHAIN_WALK_CHECK == 0))
		chain_walked_far(steps);
}

extern bool chain_contains(const StoreHeader *header, const RowRef *root, uint64 row);
extern void chain_flush(const StoreHeader *header, const RowRef *root);
extern void chain_unlink(StoreHeader *header, const RowRef *ref);

/* What store_chain_fetch() found last may be another version from now on. */
extern void chain_end_of_xact(void);
extern void chain_restore_newest(StoreHeader *header, const RowRef *ref);
extern int	chain_remove_dead(StoreDesc *store, const RowRef *root, uint64 horizon);
extern int	chain_unlink_dead(StoreDesc *store, const RowRef *root, uint64 horizon, RowRef *dead,
							  int max);

/* ---- garbage.c ---- */
extern bool garbage_note(StoreDesc *store, uint64 root, const RowRef *version);
extern int	garbage_collect(StoreDesc *store);
extern void garbage_free_all(StoreShared *shared);

/* ---- settled.c ---- */

/* The mark in BlockHeader.settled in this life, for rows that are all settled */
extern uint64 settled_mark_of_life(void);

/*
 * Marks the rows of the block that are settled.  All transactions before the horizon have
 * ended for everybody.  Any number of processes may do so at the same time. all: looks at
 * those again that are marked.
 */
extern void block_settle(StoreDesc *store, BlockHeader *block, uint64 horizon, bool all);

/* Does a mark of whatever life say so of this row? */
static inline bool
mark_says_settled(uint64 mark, uint32 index)
{
	return mark != 0 && (mark & (SETTLED_TICKET | SETTLED_ROW(index))) == 0;
}

/* Is each row of the block settled, and no replaced root? */
extern bool block_is_current(const StoreDesc *store, const BlockHeader *block);

/* How many rows of the block are settled */
extern int	block_settled_rows(const StoreDesc *store, const BlockHeader *block);

/* ---- milestone.c ---- */
extern void milestone_note(StoreDesc *store, uint64 root, const RowRef *version);
extern void milestone_consider(StoreDesc *store, uint64 root, const RowRef *version);
extern bool milestone_find(StoreDesc *store, uint64 root, Snapshot snapshot, RowRef *found);
extern void milestone_sweep(StoreDesc *store);
extern Size milestone_bytes(StoreDesc *store);
extern void milestone_free_all(StoreShared *shared);

/* ---- vacuum.c ---- */
extern bool chain_is_dead(StoreDesc *store, const RowRef *root, uint64 horizon);
extern int	free_dead_chains(StoreDesc *store, const uint64 *rows, int n, uint64 horizon);

/* ---- ops.c ---- */
extern const TxnStoreOps StoreOps;

/* ---- stats.c ---- */

/*
 * Adds to the numbers of live and dead versions.  Gathered in this backend for one store at
 * a time; the second adds what was gathered.  No locks, no ERROR.
 */
extern void stats_count(StoreShared *shared, int64 live, int64 dead);
extern void stats_end_of_xact(void);
extern void stats_init(StoreShared *shared, bool crashed);
extern void stats_report_left(Relation rel, StoreShared *shared);
extern void stats_forget(StoreShared *shared);

/* ---- verify_space.c ---- */

/*
 * For sofort.verify(): does each allocation of the store have one reference, and each
 * reference an allocation?  The caller keeps writers away.
 */
extern void store_verify_space(const StoreHeader *header, StoreReport report, void *arg);

#endif							/* SOFORT_STORE_STORE_INTERNAL_H */
