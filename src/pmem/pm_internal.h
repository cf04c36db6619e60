/*-------------------------------------------------------------------------
 *
 * pm_internal.h
 *	  What the files of src/pmem share among themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PM_INTERNAL_H
#define SOFORT_PM_INTERNAL_H

#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/alloc.h"
#include "sofort/pmem/persist.h"
#include "sofort/pmem/pool.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#define PM_ALIGN_EXTENT		((uint64) 2 << 20)	/* extents start and end here */
#define PM_POOL_FILE_BYTES	((uint64) 1 << 40)	/* sparse, for ever */
#define PM_MAX_GRANULES		262144	/* of one extent: 16 GB */
#define PM_EXTENT_MAGIC		UINT64CONST(0x544e545845465053)

/* Intents of the postmaster (or single user) and of every PGPROC: one set for
 * reservations, one for frees. */
#define PM_INTENT_SETS		(2 * (1 + MaxBackends + NUM_AUXILIARY_PROCS))
#define PM_INTENTS_OFFSET	4096	/* of chunk 0, in the superblock's granule */
#define PM_INTENTS_SHIFT	4

/* ---- volatile state in shared memory ---- */

#define SLAB_LOCKS			64
#define SLAB_BUCKETS		1024
#define SLAB_WAYS			8

/* Slabs of one (owner, class); see slab.c. */
typedef struct SlabSet
{
	uint64		key;			/* 0 = unused */
	uint64		tag;			/* never reused: life and a counter */
	PMPtr		head;			/* list of slabs with free slots */
	uint32		scan_extent;	/* older slabs are found from here on */
	uint32		scan_granule;
	bool		scan_done;
} SlabSet;

typedef struct SlabBucket
{
	SlabSet		set[SLAB_WAYS];
	uint32		victim;			/* next to be evicted */
	bool		evicted;		/* some set of this life was forgotten */
} SlabBucket;

typedef struct EpochSlot
{
	pg_atomic_uint64 epoch;		/* 0 = in none */
	volatile uint32 draining;	/* backup.c: state of a backup */
	char		pad[PM_LINE - sizeof(pg_atomic_uint64) - sizeof(uint32)];
} EpochSlot;

#define PM_REASON_BYTES		1024

#define PM_SPARE_GRANULES	8	/* granules kept back for what makes room */

/* Free granules that keep their blocks; see free_cache.c.  Under the segment lock. */
#define FREE_CACHE_RUNS		1024
#define FREE_CACHE_GRANULES	1024	/* 64 MB */

typedef struct FreeRun
{
	uint64		offset;
	uint32		n;				/* granules */
	uint32		round;			/* of pm_trim(), when it was freed */
} FreeRun;

typedef struct FreeCache
{
	FreeRun		run[FREE_CACHE_RUNS];	/* the oldest first */
	int			nruns;
	uint32		granules;		/* of all runs */
	uint32		round;			/* calls of pm_trim() */
	volatile uint32 rounds_off; /* nothing is kept for so many more */
	int			next_extent;	/* pm_trim() has not looked here yet (trim_lock) */
	uint32		next_granule;
	Latch	   *volatile trimmer;	/* who calls pm_trim() */
	volatile bool trimming;		/* it will call without being woken */
} FreeCache;

typedef struct PmShared
{
	PoolStatus	status;
	int			sqlstate;		/* of pool_require() if unavailable */
	char		message[PM_REASON_BYTES];
	char		detail[PM_REASON_BYTES];
	char		hint[PM_REASON_BYTES];

	uint64		life;
	StoreId		first_store_of_life;
	bool		missing;		/* pool_create_anew() is the remedy */
	bool		started;		/* the pool can be used, as far as the start could tell */
	bool		restoring;		/* the pool is a copy, and recovery has to reach
								 * its point */
	bool		left_behind;	/* pool_left_behind() */

	/* backup.c */
	volatile bool backup_tracking;	/* flushes are noted */
	volatile bool backup_hold;	/* drains wait */
	uint32		backup_pid;		/* who makes one; atomic */

	LWLock	   *segment_lock;	/* bitmap, hints, used, words_prepared */
	LWLock	   *control_lock;	/* control file, high-water mark, store ids */
	LWLock	   *trim_lock;		/* held while free granules are looked at or given back */
	LWLockPadded *slab_locks;	/* SLAB_LOCKS of them */

	pg_atomic_uint64 used_granules;
	uint32		nspare;			/* segment lock */
	uint64		spare[PM_SPARE_GRANULES];	/* offsets */
	FreeCache	free_cache;
	uint64		extent_used[PM_MAX_EXTENTS];
	uint32		extent_hint[PM_MAX_EXTENTS];	/* granules below are used */

	pg_atomic_uint32 slab_serial;
	SlabBucket	slab_buckets[SLAB_BUCKETS];

	int			arena_tranche;
	bool		arena_ready;

	pg_atomic_uint64 epoch;		/* current */
	pg_atomic_uint64 epoch_passed;	/* known to have passed */
	int			nepochs;

	/* uint64 bitmap[PM_MAX_EXTENTS][PM_MAX_GRANULES / 64]; then EpochSlots */
} PmShared;

extern PmShared *pm_shared;
extern uint64 *pm_bitmap;
extern EpochSlot *pm_epochs;

/* The process's number, for per-process slots: 0 = postmaster, single user */
static inline int
pm_process_number(void)
{
	return MyProc != NULL ? my_proc_number() + 1 : 0;
}

/* ---- the mapping: set by the postmaster, inherited ---- */

typedef struct PmExtent
{
	uint64		offset;			/* of the header, in the file */
	uint64		size;
	uint64		first;			/* offset of the first granule */
	uint32		ngranules;
	ExtentHeader *header;
	uint64	   *words;
} PmExtent;

extern PmExtent pm_extent[PM_MAX_EXTENTS];
extern int	pm_nextents;
extern int	pm_pool_fd;
extern char pm_pool_file[MAXPGPATH];

/* persist.c */
extern bool persist_configure(PmMedium medium, int fd, char *base, uint64 size);
extern bool persist_logs(void);
extern void pm_count_delays(uint32 reads, uint32 writes);

typedef struct PoolRefusal
{
	int			sqlstate;		/* 0: none */
	bool		missing;
	char		message[PM_REASON_BYTES];
	char		detail[PM_REASON_BYTES];
	char		hint[PM_REASON_BYTES];
} PoolRefusal;

extern bool pool_refuse(PoolRefusal *why, int sqlstate, const char *hint,
						const char *detail, const char *fmt,...) pg_attribute_printf(5, 6);

/* pool_control.c: the file in the data directory */
#define CONTROL_FILE		"sofort.control"
#define CONTRADICTION_HINT	"Restore pool and data directory from the same backup."

typedef enum ControlState
{
	CONTROL_CREATING = 1,		/* the pool is being made: nothing ran on it */
	CONTROL_READY = 2,
	CONTROL_RESTORED = 3,		/* this data directory is a copy: base backup,
								 * standby, point-in-time recovery */
	CONTROL_RESTORING = 4,		/* the same, with a copy of the pool, not
								 * recovered yet */
	CONTROL_ADOPTED = 5,		/* recovered to the point of that copy */
	CONTROL_CONTRADICTED = 6,	/* a start has found that it does not go with
								 * the pool */
	CONTROL_RESET = 7			/* pg_resetwal has thrown away WAL that the
								 * pool belongs to */
} ControlState;

/* PoolControl.wal_flags (0: written before there were any; nothing is known then) */
#define CONTROL_WAL_NOTED		0x1 /* wal_start is valid */
#define CONTROL_WAL_STOPPED		0x2 /* the server was stopped in order since */
#define CONTROL_WAL_ACCEPTABLE	0x4 /* CONTROL_RESET: no id in the pool was used again */

typedef struct PoolControl
{
	uint32		magic;
	uint32		version;
	uint64		system_identifier;
	uint8		pool_id[16];
	uint32		state;			/* ControlState */
	uint32		wal_flags;		/* CONTROL_WAL_ bits */
	uint64		file_bytes;		/* size of the pool file */
	uint64		superblock_offset;	/* 0 while creating */
	uint64		life;
	uint64		hw_sequence;
	uint64		hw_xid;
	uint32		wal_start;		/* checkpoint that the last start began with, in
								 * MB of WAL */
	uint32		crc;			/* CRC-32C of all before */
} PoolControl;

extern bool control_read(PoolControl *control, bool *exists, PoolRefusal *why);

/* The same in a session, with the control lock: false if there is none; what is wrong is an error. */
extern bool control_read_or_raise(PoolControl *control);
extern bool control_make_durable(PoolRefusal *why);
extern bool control_reserve(int elevel);
extern bool control_write(const PoolControl *control, int elevel);
extern void control_init(PoolControl *control);
extern const char *control_file(void);

/* pool_reset.c: pg_resetwal.  The first one comes before all others. */
extern void reset_read_pg_control(void);
extern void reset_note_start(PoolControl *control);
extern bool reset_find(PoolControl *control, PoolRefusal *why);
extern bool reset_check(PoolControl *control, PoolRefusal *why);
extern void reset_watch_stop(void);

/* backup.c */
extern Size backup_shmem_size(void);
extern void backup_init_shared(void *p);
extern void backup_note_flush(const void *addr, Size len);
extern void backup_wait(void);

/* redo.c, redo_recover.c: medium msync */
#define REDO_CHUNK_BYTES	65536
#define REDO_CHUNK_LINES	((REDO_CHUNK_BYTES - sizeof(RedoChunk)) / sizeof(RedoEntry))
#define REDO_CHUNK_BLOCKS(n) \
	((uint32) ((sizeof(RedoChunk) + (n) * sizeof(RedoEntry) + REDO_BLOCK - 1) / REDO_BLOCK))

extern const char *redo_path(void);
extern Size redo_shmem_size(void);
extern void redo_init_shared(void *p, LWLock *lock);
extern uint32 redo_header_crc(const RedoHeader *header);
extern uint32 redo_chunk_crc(const RedoChunk *chunk);
extern bool redo_recover(int fd, const PoolControl *control, PoolRefusal *why);
extern bool redo_find_doubt(PoolRefusal *why);
extern bool redo_sync_replayed(int fd);
extern bool redo_recover_doubtful(const PoolControl *control, PoolRefusal *why);
extern bool redo_begin(const uint8 *pool_id, PoolRefusal *why);
extern void redo_write_lines(const uintptr_t *lines, int n, uint64 *publish, uint64 value,
							 bool sync);
extern void redo_write_space(int kind, uint64 offset, uint64 bytes);
extern bool redo_unsynced(void);
extern void redo_sync(void);
extern void redo_drain_space(void);
extern void redo_checkpoint(void);

/* pool_file.c */
extern void pool_file_path(void);
extern bool pool_file_lock(PoolRefusal *why);
extern bool pool_file_word(pg_atomic_uint32 **word, PoolRefusal *why);
extern bool pool_file_create(const PoolControl *control, PoolRefusal *why);
extern bool pool_file_make_name_durable(const char *path);
extern bool pool_refuse_errno(PoolRefusal *why, const char *action, const char *path,
							  const char *hint);
extern bool pool_file_find(const char *path, bool *exists, PoolRefusal *why);
extern bool pool_file_open_checked(const char *path, int flags, int *fd, PoolRefusal *why);
extern bool pool_file_open(const PoolControl *control, PoolRefusal *why);

/* pool_check.c: does it belong to this server? */
extern void pool_identity_fill(PoolIdentity *identity, const uint8 *pool_id);
extern bool pool_check_superblock(const PoolSuperblock *super, const PoolControl *control,
								  PoolRefusal *why);
extern uint32 pool_root_crc(const PoolRoot *root);
extern uint32 extent_header_crc(const ExtentHeader *header);
extern bool pool_check_structure(const PoolSuperblock *super, PoolRefusal *why);
extern bool pool_check_agreement(const PoolSuperblock *super, const PoolControl *control,
								 PoolRefusal *why);

/* segment.c */
#define PM_NO_QUOTA			0x100	/* flag of pm_try_reserve: start-up, write sets */

/* Result of taking space: 0, an errno of the file system, or one of these. */
#define PM_FULL_QUOTA		(-1)
#define PM_FULL_POOL		(-2)

extern bool segment_startup(PoolRefusal *why);
extern void segment_fill_spare(void);
extern int	segment_take(uint32 n, int flags, uint64 *offset);
extern void segment_punch(uint64 offset, uint32 n);
extern void segment_clear(uint64 offset, uint32 n);
extern uint32 segment_make_spare(uint64 *offset, uint32 *n);
extern void segment_count_used(int n);
extern void segment_release(uint64 offset, uint32 n);
extern bool segment_take_next_free(int *extent, uint32 *granule, uint64 *offset, uint32 *n);
extern bool segment_find(uint64 offset, int *extent, uint32 *granule);
extern bool segment_is_used(int extent, uint32 granule);

/* First granule of the segment or slab that covers an offset; its word, or 0 */
extern uint64 segment_covering(uint64 offset, int *extent, uint32 *granule);

static inline uint64
granule_offset(int extent, uint32 granule)
{
	return pm_extent[extent].first + (uint64) granule * PM_GRANULE;
}

/* Words of an extent that have storage */
static inline uint32
words_prepared(int extent)
{
	return (uint32) PM_UNSEAL(*(volatile PmSealed *) &pm_extent[extent].header->words_prepared);
}

static inline uint64
segment_word(int extent, uint32 granule)
{
	return *(volatile uint64 *) &pm_extent[extent].words[granule];
}

/* free_cache.c */
extern bool free_cache_take(uint32 n, uint64 *offset);
extern bool free_cache_add(uint64 offset, uint32 n);

/* slab.c */
extern int	slab_class(Size size);
extern Size slab_class_size(int class);
extern uint32 slab_class_offset(int class);
extern int	slab_nclasses(void);

/* A slot to be taken, with the intent for it */
typedef struct SlabTake
{
	int			class;
	AllocIntent *intent;		/* written, durable, before the slot is taken; or NULL */
	PMPtr		link;
	uint64		nlinks;
	SlabHeader *slab;			/* these are found */
	uint32		slot;
	PMPtr		target;
} SlabTake;

extern int	slab_take(SlabTake *take, int n, StoreId owner, bool shared, int flags);

/* The slots become free and the intents forgotten, both durable. */
extern void slab_give_back(AllocIntent **intent, int n);
extern void slab_free_owner(int extent, uint32 granule, StoreId owner, bool again);
extern void slab_forget_owner(StoreId owner);
#define MAX_SLAB_SLOTS	4096	/* of any class */
extern int	slab_copy_slots(int extent, uint32 granule, uint64 word, StoreId owner,
							uint16 *slots, StoreId *owners);
extern const char *slab_problem(int extent, uint32 granule, uint64 word);
extern bool slab_slot_of(int extent, uint32 granule, uint64 offset, uint32 *slot);
extern StoreId slab_slot_owner(int extent, uint32 granule, uint32 slot);

/* alloc.c, vector.c */
extern void alloc_startup(void);
extern int	alloc_prepare_intents(void);

/* ---- owner.c ---- */
extern bool allocation_of(PMPtr p, PMPtr *target, uint64 *size, StoreId *owner);

/* arena.c, epoch.c */
extern bool arena_reserve(PoolRefusal *why);
extern void arena_startup(void);
extern void arena_usage(uint64 *total, uint64 *used);
extern Size epoch_shmem_size(void);
extern void epoch_startup(void);

#endif							/* SOFORT_PM_INTERNAL_H */
