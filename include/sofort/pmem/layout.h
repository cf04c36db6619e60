/*-------------------------------------------------------------------------
 *
 * layout.h
 *	  Every structure that lives on the persistent medium, and nothing else.
 *
 * Sizes and offsets are asserted below.  Whoever changes one raises
 * SOFORT_LAYOUT_VERSION.  All integers are in native byte order; the pool
 * records the byte order and alignment it was written with (PoolIdentity).
 *
 * src/pmem/README.md, src/txn/README.md and src/store/README.md describe the
 * formats bit by bit, and what a crash between any two stores leaves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_LAYOUT_H
#define SOFORT_PMEM_LAYOUT_H

#include "postgres.h"

#define SOFORT_LAYOUT_VERSION	15
#define SOFORT_POOL_LAYOUT_NAME "sofort"	/* libpmemobj layout name */

#define SOFORT_POOL_MAGIC		UINT64CONST(0x4c4f4f50544f4653)	/* SFOTPOOL */
#define SOFORT_STORE_MAGIC		0x53544f52	/* STOR */
#define SOFORT_BLOCK_MAGIC		0x424c
#define SOFORT_RUN_MAGIC		0x52554e31
#define SOFORT_TREE_MAGIC		0x54524545	/* TREE */
#define SOFORT_CHUNK_MAGIC		0x4348554e	/* CHUN */
#define SOFORT_DICT_MAGIC		0x44494354	/* DICT */

#define PM_LINE					64			/* cache line */
#define PM_GRANULE				65536		/* unit of segment allocation */
#define PM_MAX_EXTENTS			63

/*
 * Self-checking words.  A word that has bits to spare carries a check of the
 * others, so that it changes by one store and is right by itself; see
 * src/pmem/README.md, "Damage".  The top n bits (n >= 8) of a product with this
 * factor differ whenever one bit of the other factor does: it has no run of
 * more than seven equal bits, but for the zeroes that a shift lets in behind its
 * lowest 1.
 */
#define PM_CHECK_FACTOR			UINT64CONST(0x9e3779b97f4a7c15)
#define PM_CHECK(value, bits)	(((uint64) (value) * PM_CHECK_FACTOR) >> (64 - (bits)))

/*
 * PMPtr: a reference on the medium.  Bits 0..47: offset in the pool file; bit
 * 48: set; bits 49..63: check of the offset + 1.  0 is the null reference.
 */
typedef uint64 PMPtr;

#define PM_NULL					((PMPtr) 0)
#define PM_OFFSET_BITS			48
#define PM_OFFSET_MASK			((UINT64CONST(1) << PM_OFFSET_BITS) - 1)
#define PM_REF(offset) \
	((uint64) (offset) | (UINT64CONST(1) << PM_OFFSET_BITS) | (PM_CHECK((uint64) (offset) + 1, 15) << 49))

static inline bool
pm_ref_is_valid(PMPtr p)
{
	return p == PM_REF(p & PM_OFFSET_MASK);
}

/* A number below 2^32 and its check; 0 stays 0. */
typedef uint64 PmSealed;

#define PM_SEAL(n)				((uint64) (n) | (PM_CHECK(n, 32) << 32))
#define PM_UNSEAL(w)			((uint64) (uint32) (w))
#define PM_SEALED_RIGHT(w)		((w) == PM_SEAL(PM_UNSEAL(w)))

/* The same for 16 bits in 32 */
#define PM_SEAL16(n)			((uint32) (n) | (uint32) (PM_CHECK(n, 16) << 16))
#define PM_SEALED16_RIGHT(w)	((w) == PM_SEAL16((w) & 0xffff))

/* Small numbers that differ in many bits */
#define PM_CODE32(n)			((uint32) (n) * 0x11111111)

/*
 * Owner of an allocation: the pool-unique id of a store, never reused, or one
 * of the fixed owners.  36 bits, so that it fits a segment word.
 */
typedef uint64 StoreId;

#define PM_OWNER_BITS			36
#define PM_OWNER_MASK			((UINT64CONST(1) << PM_OWNER_BITS) - 1)
#define PM_OWNER_SHARED			UINT64CONST(0)	/* slab shared by small stores */
#define PM_OWNER_POOL			UINT64CONST(1)
#define PM_OWNER_TXN			UINT64CONST(2)
#define PM_FIRST_STORE_ID		UINT64CONST(16)

/* A StoreId on the medium, with a check in the other bits; 0 stays 0. */
#define PM_SEAL_ID(id)			((uint64) (id) | (PM_CHECK(id, 28) << PM_OWNER_BITS))
#define PM_UNSEAL_ID(w)			((StoreId) ((w) & PM_OWNER_MASK))
#define PM_SEALED_ID_RIGHT(w)	((w) == PM_SEAL_ID(PM_UNSEAL_ID(w)))

/*
 * Segment word, one per granule, at the head of each extent.
 *	 bits  0..2   state: 0 free, 1 segment, 2 slab
 *	 bit   3	  makes the number of bits that are set even
 *	 bits  4..27  segment: number of granules; slab: size class
 *	 bits 28..63  owner
 * Only the word of a segment's first granule is set.
 */
#define SEGWORD_FREE			0
#define SEGWORD_SEGMENT			1
#define SEGWORD_SLAB			2
#define SEGWORD_STATE(w)		((int) ((w) & 0x7))
#define SEGWORD_PARITY			0x8
#define SEGWORD_COUNT(w)		((uint32) (((w) >> 4) & 0xffffff))
#define SEGWORD_OWNER(w)		((StoreId) ((w) >> 28))
#define SEGWORD_IS_RIGHT(w)		(__builtin_parityll(w) == 0)

static inline uint64
segword_make(int state, uint32 count, StoreId owner)
{
	uint64		w = (uint64) state | ((uint64) count << 4) | (owner << 28);

	return __builtin_parityll(w) ? w | SEGWORD_PARITY : w;
}

/* One extent: a large libpmemobj object, aligned inward to 2 MB. */
typedef struct PoolExtent
{
	uint64		offset;			/* of the ExtentHeader, in the pool file */
	uint64		size;			/* from there, in bytes */
} PoolExtent;

/*
 * Head of an extent.  The segment words follow at PM_GRANULE; the first
 * granule for data is at first_granule_offset.
 */
typedef struct ExtentHeader
{
	uint64		magic;
	uint64		ngranules;		/* granules for data */
	uint64		first_granule_offset;	/* in the pool file */
	PmSealed	words_prepared; /* words below are backed by storage and
								 * valid; those at or above were never used */
	uint32		crc;			/* of the first three */
	uint32		unused;
	uint64		spare[3];
} ExtentHeader;

/* What a pool must agree on with the server that opens it. */
typedef struct PoolIdentity
{
	uint64		system_identifier;
	uint8		pool_id[16];	/* random, made with the pool */
	uint32		pg_major;
	uint32		catalog_version;
	uint16		byte_order;		/* 0x0102 as written */
	uint16		max_align;
	uint16		float8_by_value;
	uint16		block_rows;		/* SOFORT_BLOCK_ROWS */
	uint32		unused;
	uint32		crc;			/* CRC-32C of all fields before */
} PoolIdentity;

/* libpmemobj's root object.  Written once, when the pool is made. */
typedef struct PoolRoot
{
	uint64		magic;			/* SOFORT_POOL_MAGIC; set last */
	uint32		layout_version;
	uint32		nextents;
	PoolExtent	extents[PM_MAX_EXTENTS];
	uint64		superblock_offset;	/* first data granule of extent 0 */
	uint32		crc;			/* CRC-32C of all before, magic set */
	uint32		unused;
} PoolRoot;

/*
 * PmVector: an array that grows in place.  Chunk 0 holds 2^first_shift
 * elements, chunk k > 0 as many as all chunks before it.  An element never
 * moves.  "length" is the published one: what lies below it is durable.
 */
#define PM_VECTOR_CHUNKS		30

typedef struct PmVector
{
	PmSealed	length;			/* pm_vector_count() */
	uint32		elem_size;
	uint16		first_shift;
	uint16		check;			/* of both, PM_VECTOR_CHECK */
	PMPtr		chunks[PM_VECTOR_CHUNKS];
} PmVector;

#define PM_VECTOR_CHECK(elem_size, first_shift) \
	((uint16) PM_CHECK(((uint64) (elem_size) << 16) | (first_shift), 16))

/*
 * Superblock: the pool's mutable roots.  Occupies the first data granule of
 * extent 0.
 */
#define SUPERBLOCK_LIFE_PENDING	0x1 /* "life" may lead the control file by 1 */
#define SUPERBLOCK_MARK_PENDING	0x2 /* "hw_sequence" may lead it by one mark */
#define SUPERBLOCK_FRESH		0x4 /* no high-water mark was raised in this pool
									 * yet: it holds no xid */

#define SUPERBLOCK_BACKUP		0x8 /* a copy by sofort.backup(): only for a data
									 * directory restored to backup_lsn */

typedef struct PoolSuperblock
{
	uint64		magic;
	uint32		layout_version;
	uint32		flags;			/* SUPERBLOCK_ bits, PM_SEAL16 */
	PoolIdentity identity;
	uint64		redo_nonce[2];	/* of the redo log that belongs to the file; 0:
								 * the file is complete without one */
	uint64		pad0[6];

	/* line-aligned from here: agreement with the data directory */
	uint64		life;			/* number of this server start */
	uint64		hw_sequence;	/* sequence number of the last mark */
	uint64		hw_xid;			/* FullTransactionId: no xid in the pool is
								 * above it */
	uint64		next_store_id;	/* ids below were handed out; PM_SEAL_ID */
	uint64		hw_filed;		/* while SUPERBLOCK_MARK_PENDING: the control
								 * file holds this or hw_sequence */
	uint64		backup_lsn;		/* of a copy: end of the restore point's record */
	uint64		backup_timeline;
	uint64		pad1[1];

	PmVector	stores;			/* of PMPtr to StoreHeader; 0 = free entry */
	PmVector	intents;		/* of AllocIntents, two per process */
	PmVector	tcbs;			/* of Tcb */
	PmVector	workload;		/* of WorkloadRecord */
	PmVector	kept;			/* of KeptRecord */
} PoolSuperblock;

/*
 * Redo log of a pool in an ordinary file: a file beside it.  Two blocks for the
 * header, written in turn (the valid one with the higher sequence counts), then
 * a ring of blocks.  Block p of the log is block p % nblocks of the ring.
 */
#define REDO_BLOCK				4096
#define REDO_MAGIC				UINT64CONST(0x4f444552544f4653) /* SFOTREDO */
#define REDO_CHUNK_MAGIC		0x4b4e4843	/* CHNK */

typedef struct RedoHeader
{
	uint64		magic;
	uint32		layout_version;
	uint32		crc;			/* CRC-32C of all others */
	uint64		sequence;
	uint64		nonce[2];		/* random: of this log and no other */
	uint8		pool_id[16];
	uint64		superblock_offset;	/* in the pool file */
	uint64		nblocks;
	uint64		start;			/* what lies before is in the pool file */
} RedoHeader;

/* What one process wrote at once: whole blocks, not around the ring's end */
typedef struct RedoChunk
{
	uint32		magic;
	uint32		crc;			/* CRC-32C of all else, without padding */
	uint64		nonce[2];
	uint64		position;		/* of its first block in the log, from 1 */
	uint32		nblocks;
	uint32		nentries;
	uint64		pad[3];
} RedoChunk;

#define REDO_LINE				0	/* contents of a line */
#define REDO_ALLOCATE			1	/* word[0] bytes were allocated in the file */
#define REDO_PUNCH				2	/* ... were given back */
#define REDO_KIND_MASK			UINT64CONST(63)

typedef struct RedoEntry
{
	uint64		where;			/* offset in the pool file; low 6 bits: kind */
	uint64		word[8];
} RedoEntry;

/*
 * Allocation intents of one backend.  A target whose link does not hold it
 * after a crash is free.  nlinks > 1: the links are consecutive PMPtrs that
 * point into the target; the first is stored last and zeroed first.
 */
#define PM_INTENTS_PER_BACKEND	64

typedef struct AllocIntent
{
	PMPtr		target;			/* stored last; 0 = unused */
	PMPtr		link;			/* address of the owning PMPtr slot */
	uint64		nlinks;
	uint64		size;			/* of the target, in bytes */
} AllocIntent;

typedef struct AllocIntents
{
	AllocIntent intent[PM_INTENTS_PER_BACKEND];
} AllocIntents;

/*
 * Slab: a granule cut into slots of one size class.  Slot i belongs to
 * owner[i] (PM_SEAL_ID; 0 = free).  Slots follow at slots_offset.
 */
typedef struct SlabHeader
{
	uint32		magic;
	uint16		size_class;
	uint16		nslots;
	uint32		slot_size;
	uint32		slots_offset;	/* from the start of the granule */

	/* volatile, never flushed: valid only while "tag" is that of the slab set
	 * in shared memory; the list of the set's slabs that have free slots */
	uint64		tag;
	PMPtr		next;
	PMPtr		prev;
	uint32		nfree;
	uint32		cursor;			/* search for a free slot starts here */
	uint64		pad[2];

	uint64		owner[FLEXIBLE_ARRAY_MEMBER];
} SlabHeader;

/* ------------------------------------------------------------------------
 * Transactions
 * ------------------------------------------------------------------------
 */

/*
 * Write-set entry.
 *	 what: bits  0..35  store id
 *		   bits 36..49  generation of the TCB (the entry counts only if equal)
 *		   bits 50..55  kind (TxnEntryKind)
 *	 row:  bits  0..39  first row, or column or other number
 *		   bits 40..63  number of rows (ranges), at least 1
 * row is stored first, what last; both lie in one cache line.
 */
typedef struct TcbEntry
{
	uint64		what;
	uint64		row;
} TcbEntry;

#define TCB_INLINE_ENTRIES		14

/*
 * Transaction control block.
 *	 state: bits  0..3   TcbState
 *			bits  4..17  generation
 *			bits 18..63  life number in which it became active
 */
typedef struct Tcb
{
	uint64		state;
	uint64		xid;			/* FullTransactionId of the top transaction */
	PMPtr		overflow;		/* first TcbChunk */
	uint64		spare;
	TcbEntry	entries[TCB_INLINE_ENTRIES];
} Tcb;

/* More entries of a write set: one granule. */
#define TCB_CHUNK_ENTRIES		4092

typedef struct TcbChunk
{
	PMPtr		next;
	uint64		pad[7];
	TcbEntry	entries[TCB_CHUNK_ENTRIES];
} TcbChunk;

/*
 * How far a kept transaction had come when a statement ended.  Of the two the
 * one with the higher sequence counts; the other is written next, its sequence
 * last.  entries: of the write set; later ones belong to a statement that was
 * cut short, as do words of command "command" or later.
 */
typedef struct KeptBoundary
{
	uint64		sequence;		/* 0: never written */
	uint64		statements;		/* finished, for the client */
	uint64		entries;
	uint64		command;		/* CommandId */
} KeptBoundary;

/*
 * Kept transaction, and for a day its outcome.
 *	 state: bits  0..3   KeptState
 *			bits  4..21  slot of its TCB
 *			bits 22..35  generation of its TCB
 * Its second line holds the boundaries, so that their stores become durable in
 * their order.
 */
typedef struct KeptRecord
{
	uint64		state;
	int64		ended;			/* TimestampTz; while it is open 0 */
	int64		started;
	Oid			db_oid;
	Oid			role;
	uint8		token_hash[32]; /* SHA-256 */
	KeptBoundary boundary[2];
	PMPtr		locks;			/* TcbChunks: row locks that others gave to it */
	uint64		first_xid;		/* its FullTransactionId before any crash */
	uint64		pad[6];
	char		label[NAMEDATALEN];
} KeptRecord;

/* ------------------------------------------------------------------------
 * Stores
 * ------------------------------------------------------------------------
 */

#define SOFORT_BLOCK_ROWS		256
#define SOFORT_FIRST_BLOCK_ROWS 8

typedef enum StoreState
{
	STORE_FREE = 0,
	STORE_LIVE = PM_CODE32(1),	/* created, perhaps by an open transaction */
	STORE_DROPPING = PM_CODE32(2)	/* its segments may be freed already */
} StoreState;

/* Flags in bits 0..15 of StoreHeader.flag_word */
#define STORE_UNLOGGED			UINT64CONST(2)	/* empty after a crash */
#define STORE_CHAINS_DIFFER		UINT64CONST(4)	/* store_chains_differ() */
#define STORE_TREE				UINT64CONST(8)	/* an index: see TreeHeader */
#define STORE_TREE_COMPLETE		UINT64CONST(16) /* else its build was cut short */

/*
 * Store: the data of one relation file.  Its locator only finds it; everything
 * else uses the id, which is never reused.  Of an index (STORE_TREE) "blocks"
 * holds the chunks of its tree; columns and shapes are not used.
 */
typedef struct StoreHeader
{
	uint32		magic;
	uint32		state;			/* StoreState */
	uint64		sealed_id;		/* PM_SEAL_ID; store_id_of() */
	Oid			spc_oid;		/* 0: the default tablespace of its database */
	Oid			db_oid;
	Oid			rel_number;
	Oid			rel_oid;		/* when created: for messages only */
	uint64		flag_word;		/* bits 0..31: STORE_ flags, PM_SEAL16; 32..63: CRC-32C of
								 * magic, id, spc_oid to rel_oid; store_flags() */
	PmSealed	nblocks;		/* blocks at or above were never used */
	PMPtr		tree;			/* STORE_TREE: TreeHeader */

	/* how TIDs are numbered (src/store/tid.c); written as one word, while empty */
	uint16		tid_rows;		/* rows in a block of PostgreSQL's: in all, or in the first */
	uint16		tid_first;		/* these blocks, which hold the rows of blocks 0 to 4 */
	uint16		tid_fill;		/* not 0: in all, and so many of them are for insertions */
	uint16		tid_check;		/* PM_CHECK of the three, 16 bits */

	PmVector	blocks;			/* of PMPtr to BlockHeader; 0 = no block */
	PmVector	columns;		/* of ColumnHeader */
	PmVector	shapes;			/* of PMPtr to ShapeHeader */
} StoreHeader;

typedef enum ColumnState
{
	COLUMN_FREE = 0,
	COLUMN_LIVE = PM_CODE32(1),
	COLUMN_DROPPED = PM_CODE32(2)	/* its creating transaction aborted */
} ColumnState;

/* A column: (attnum, type, creating transaction). */
typedef struct ColumnHeader
{
	uint32		state;			/* ColumnState; stored last */
	int16		attnum;
	int16		attlen;
	Oid			type_oid;
	char		attalign;
	char		attstorage;
	bool		attbyval;
	uint8		dict_placement; /* asked for: COLUMN_PLACEMENT(DictPlacement); 0: the default */
	PMPtr		dictionary;		/* DictionaryHeader of the current generation */
	uint32		crc;			/* CRC-32C of attnum to attbyval */
	uint32		unused;
	uint64		pad[4];
} ColumnHeader;

/* Differ in many bits, as states do */
#define COLUMN_PLACEMENT(p)		((uint8) (((p) + 1) * 0x55))

typedef enum ColumnEncoding
{
	ENCODING_ABSENT = 0,		/* not in this shape: attmissingval */
	ENCODING_PLAIN = 1,			/* attlen bytes, as in a heap tuple */
	ENCODING_DICTIONARY = 2,	/* code of width 1, 2 or 4 */
	ENCODING_INLINE = 3,		/* varlena with a 1-byte header, in place */
	ENCODING_REFERENCE = 4,		/* PMPtr to the value, 8 bytes, aligned */
	ENCODING_NARROW = 5			/* by-value type: its low bytes, the others are 0 */
} ColumnEncoding;

/* ShapeColumn.flags */
#define SHAPE_UNDECIDED			0x1 /* too few values were known: the first form,
									 * decided when there are more */
#define SHAPE_LATE				0x2 /* a dictionary that came with a later look: rows of
									 * shapes before it are not filled again */
#define SHAPE_LEFT				0x4 /* has left its dictionary, and gets no other one */

/* null_bit of a column that has no NULL in blocks of this shape */
#define SHAPE_NEVER_NULL		0xffff

/* Where the values of one column lie in a block of this shape. */
typedef struct ShapeColumn
{
	uint16		column;			/* index in StoreHeader.columns */
	uint8		encoding;		/* ColumnEncoding */
	uint8		width;			/* bytes per row */
	uint16		null_bit;		/* bit in the row's NULL bitmap, or no bit */
	uint16		flags;			/* SHAPE_ */
	uint32		offset;			/* of row 0, from the start of the block */
	uint32		stride;			/* bytes from one row to the next */
	PMPtr		dictionary;		/* ENCODING_DICTIONARY only */
} ShapeColumn;

/*
 * Shape: the layout of a block.  Immutable once published.  The record of row
 * i (begin word, end word, values, NULL bitmap) is at
 * record_offset + i * record_stride.
 */
typedef struct ShapeHeader
{
	uint32		id;				/* index in StoreHeader.shapes */
	uint16		ncolumns;
	uint16		capacity;		/* rows; 0 = any: no minipages */
	uint32		record_offset;
	uint32		record_stride;
	uint32		null_offset;	/* of the NULL bitmap, within the record */
	uint32		block_size;		/* bytes, for "capacity" rows */
	uint32		crc;			/* CRC-32C of all else, with crc = 0 */
	uint32		unused;
	uint64		pad[4];
	ShapeColumn columns[FLEXIBLE_ARRAY_MEMBER];
} ShapeHeader;

#define SETTLED_WORDS	8

/* Head of a block: at most 256 rows.  (PostgreSQL's virtual blocks: src/store/tid.c) */
typedef struct BlockHeader
{
	uint16		magic;
	uint16		capacity;		/* rows that have storage */
	uint32		shape;			/* index in StoreHeader.shapes */
	StoreId		store;
	uint64		block_number;
	PMPtr		links;			/* uint64[capacity]; 0 = none yet */
	PMPtr		successors;		/* uint64[capacity]; 0 = none yet */
	uint32		crc;			/* CRC-32C of magic to block_number */
	uint32		head_check;		/* PM_CHECK of the first 8 bytes: looked at by all readers */
	uint64		unused[2];
	/* a line of its own, see store/settled.c; never flushed, void in another life */
	uint64		settled[SETTLED_WORDS];
} BlockHeader;

/*
 * A word of BlockHeader.settled is 0, a ticket, or a mark: bits 33 to 62 are the life of the
 * server, and each of the lower 32 stands for a row that must be looked at.
 */
#define SETTLED_TICKET	(UINT64CONST(1) << 63)	/* somebody is looking at the rows */
#define SETTLED_CHAINS	(UINT64CONST(1) << 32)	/* settled rows may be roots that were replaced */
#define SETTLED_ROWS	UINT64CONST(0xffffffff)
#define SETTLED_WORD_ROWS	32

/* Of a row, by its index in the block */
#define SETTLED_WORD(index)		((index) / SETTLED_WORD_ROWS)
#define SETTLED_ROW(index)	(UINT64CONST(1) << (index) % SETTLED_WORD_ROWS)

/* Begin and end word of a row version: the head of its record. */
typedef struct RowWords
{
	uint64		begin;
	uint64		end;
} RowWords;

/*
 * Run: a segment that holds several consecutive blocks.  The header takes a
 * line; blocks follow, each block_size bytes.
 */
typedef struct RunHeader
{
	uint32		magic;
	uint32		nblocks;
	uint64		first_block;
	StoreId		store;
	uint64		block_size;
	uint32		crc;			/* CRC-32C of all before */
	uint32		unused;
	uint64		pad[3];
} RunHeader;

/* Where the index of a dictionary lies. */
typedef enum DictPlacement
{
	DICT_DRAM = 0,
	DICT_PMEM = 1,
	DICT_HYBRID = 2				/* the latest values in DRAM */
} DictPlacement;

/*
 * A dictionary: code -> value.  The index value -> code is secondary data.  A value
 * by reference is followed by the CRC-32C of its bytes (as a value by reference in
 * a row is); those of fixed-length ones are in "checks", which is as long as
 * "values": 0 while its value is replaced, never 0 else.
 */
typedef struct DictionaryHeader
{
	StoreId		store;
	uint32		column;			/* index in StoreHeader.columns */
	uint32		generation;
	int16		attlen;			/* >0: fixed-width elements; -1, -2: PMPtrs */
	char		attalign;
	bool		attbyval;
	uint32		placement;		/* DictPlacement, PM_CODE32: where the index lies */
	PMPtr		index;			/* DictMedia: pmem, hybrid */
	uint32		crc;			/* CRC-32C of store to attbyval */
	uint32		unused;
	uint64		pad[3];
	PmVector	values;
	PmVector	checks;			/* of uint32; its own length is not used */
} DictionaryHeader;

/*
 * Hash index of a dictionary, in the pool: value -> code.
 *	 slot: bits  0..31  code + 1; the whole word is 0 in an empty slot
 *		   bits 32..63  of the value's hash
 * A slot that a crash loses makes its value unknown: it gets another code.
 */
typedef struct DictMedia
{
	uint32		magic;
	uint32		crc;			/* CRC-32C of magic, mask, covered */
	uint64		mask;			/* slots - 1 */
	uint64		unused;
	uint64		covered;		/* hybrid: no code at or above it is here */
	PMPtr		older;			/* the one it has replaced, until that is freed */
	uint64		pad[3];
	uint64		slot[FLEXIBLE_ARRAY_MEMBER];
} DictMedia;

/* ------------------------------------------------------------------------
 * Usage of structures
 * ------------------------------------------------------------------------
 */

#define WORKLOAD_STRUCTURES		4	/* per kind of statement */
#define WORKLOAD_SUBSETS		(1 << WORKLOAD_STRUCTURES)

/*
 * A kind of statement, and how often it was executed.  "valid" is 0 while
 * anything from fingerprint on is written; executions and as_of change alone,
 * and any mixture of old and new ones will do.
 *	 valid: bits  0..31  CRC-32C of all fields from fingerprint on
 *			bits 32..63  WORKLOAD_VALID; the whole word is 0 in a free record
 */
#define WORKLOAD_VALID			UINT64CONST(0x574f524b)	/* WORK */

typedef struct WorkloadRecord
{
	uint64		valid;
	double		executions;		/* fading with age; as they were at as_of */
	int64		as_of;			/* TimestampTz */
	uint64		fingerprint;
	Oid			db_oid;
	uint32		command;		/* CmdType */
	Oid			structures[WORKLOAD_STRUCTURES];	/* indexes; InvalidOid: none */
	Oid			tables[WORKLOAD_STRUCTURES];	/* theirs */
	double		cost[WORKLOAD_SUBSETS]; /* of one execution, by the set of
										 * structures that are there */
	uint64		pad[7];
} WorkloadRecord;

/* ------------------------------------------------------------------------
 * Index trees (placements pmem and hybrid); src/indexam/README.md
 * ------------------------------------------------------------------------
 */

/*
 * Head of a tree.  The first line is fixed when the build is complete, but for
 * root.  format: a KeyFormat, only compared; one of another version of sofort
 * differs, and the tree is built anew.
 */
typedef struct TreeHeader
{
	uint32		magic;
	uint16		key_len;
	uint8		has_tuples;
	uint8		placement;		/* TreePlacement */
	uint16		leaf_capacity;
	uint16		leaf_size;
	uint16		format_size;
	uint16		unused;
	uint64		collations;		/* versions of the key's collations, hashed */
	PMPtr		root;			/* pmem: changed by one store */
	PMPtr		first_leaf;		/* hybrid: changed by no one */
	uint32		crc;			/* CRC-32C of magic to collations, and of format */
	uint32		unused0;
	uint64		pad0[2];

	uint64		entries;		/* never flushed: an estimate after power loss */
	uint64		bytes;			/* of chunks; likewise */
	uint64		pad1[6];
	uint8		format[FLEXIBLE_ARRAY_MEMBER];
} TreeHeader;

/* Nodes or tuples of one size: slots of slot_size bytes follow. */
typedef struct TreeChunk
{
	uint32		magic;
	uint32		class;			/* leaves, inner nodes, or tuples of a size */
	uint32		slot_size;
	uint32		nslots;
	uint32		crc;			/* CRC-32C of all before */
	uint32		unused;
	uint64		pad[5];
} TreeChunk;

#define SOFORT_LEAF_SLOTS		56

/*
 * Leaf.  Entry i is there if bit i of state is set; it is complete before.
 * Bit 56 of state says which "next" holds, bit 63 makes the number of bits that
 * are set even.  version, n, list, fingerprint are volatile: those of an earlier
 * life are made anew at the first visit.
 *
 * check: bit i of each is a parity of entry i, bit 56 of the lower fence; they are
 * stored before the bit of the entry in state, which is in the same line.
 */
typedef struct TreeLeafNode
{
	uint64		version;		/* as in inner nodes */
	uint8		n;				/* bits that are set */
	uint8		unused;
	uint16		level;			/* 0 */
	uint32		life;			/* in which the slot was last taken or freed */
	uint64		state;
	PMPtr		next[2];		/* hybrid: the leaf to the right; 0: none */
	uint64		list;			/* of free or retired nodes */
	uint64		check[2];
	uint8		fingerprint[64];
	uint8		data[FLEXIBLE_ARRAY_MEMBER];	/* lower fence, entries */
} TreeLeafNode;

#define LEAF_SLOTS_MASK			((UINT64CONST(1) << SOFORT_LEAF_SLOTS) - 1)
#define LEAF_SECOND_NEXT		(UINT64CONST(1) << SOFORT_LEAF_SLOTS)
#define LEAF_PARITY				(UINT64CONST(1) << 63)

StaticAssertDecl(sizeof(RedoHeader) == 80 && sizeof(RedoChunk) == 64 && sizeof(RedoEntry) == 72,
				 "on-media size");
StaticAssertDecl(sizeof(ExtentHeader) == 64, "on-media size");
StaticAssertDecl(sizeof(PoolIdentity) == 48, "on-media size");
StaticAssertDecl(sizeof(PmVector) == 256, "on-media size");
StaticAssertDecl(offsetof(PoolSuperblock, life) == 2 * PM_LINE, "on-media offset");
StaticAssertDecl(sizeof(AllocIntents) == 2048, "on-media size");
StaticAssertDecl(offsetof(SlabHeader, owner) == PM_LINE, "on-media offset");
StaticAssertDecl(sizeof(Tcb) == 256, "on-media size");
StaticAssertDecl(offsetof(Tcb, entries) == 32, "two entries share the first line");
StaticAssertDecl(sizeof(TcbChunk) <= PM_GRANULE, "on-media size");
StaticAssertDecl(sizeof(KeptBoundary) == PM_LINE / 2, "on-media size");
StaticAssertDecl(sizeof(KeptRecord) == 4 * PM_LINE, "on-media size");
StaticAssertDecl(offsetof(KeptRecord, boundary) == PM_LINE, "on-media offset");
StaticAssertDecl(sizeof(StoreHeader) == 64 + 3 * 256, "on-media size");
StaticAssertDecl(sizeof(ColumnHeader) == 64, "on-media size");
StaticAssertDecl(sizeof(ShapeColumn) == 24, "on-media size");
StaticAssertDecl(offsetof(ShapeHeader, columns) == PM_LINE, "on-media offset");
StaticAssertDecl(sizeof(BlockHeader) == 2 * PM_LINE, "on-media size");
StaticAssertDecl(offsetof(BlockHeader, settled) == PM_LINE, "on-media place");
StaticAssertDecl(sizeof(RowWords) == 16, "on-media size");
StaticAssertDecl(sizeof(RunHeader) == PM_LINE, "on-media size");
StaticAssertDecl(sizeof(DictionaryHeader) == 64 + 2 * 256, "on-media size");
StaticAssertDecl(offsetof(DictMedia, slot) == PM_LINE, "on-media offset");
StaticAssertDecl(offsetof(WorkloadRecord, fingerprint) == 24, "the CRC begins here");
StaticAssertDecl(sizeof(WorkloadRecord) == 4 * PM_LINE, "on-media size");
StaticAssertDecl(offsetof(TreeHeader, entries) == PM_LINE, "on-media offset");
StaticAssertDecl(offsetof(TreeHeader, format) == 2 * PM_LINE, "on-media offset");
StaticAssertDecl(sizeof(TreeChunk) == PM_LINE, "on-media size");
StaticAssertDecl(offsetof(TreeLeafNode, fingerprint) == PM_LINE,
				 "state and both next lie in one line, in this order of stores");
StaticAssertDecl(offsetof(TreeLeafNode, data) == 2 * PM_LINE, "on-media offset");

#endif							/* SOFORT_PMEM_LAYOUT_H */
