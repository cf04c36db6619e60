/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  The pool: one file, opened by the postmaster, mapped for everybody.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_POOL_H
#define SOFORT_PMEM_POOL_H

#include "access/xlog_internal.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/layout.h"
#include "storage/latch.h"

/* GUCs (defined in src/sofort.c) */
extern char *sofort_pool_path;
extern int	sofort_pool_size_mb;	/* quota, PGC_SIGHUP */
extern int	sofort_durability;		/* PmDurability */
extern int	sofort_dram_size_mb;	/* PGC_POSTMASTER */

typedef enum PmDurability
{
	PM_DURABILITY_AUTO,
	PM_DURABILITY_PMEM,
	PM_DURABILITY_MSYNC,
	PM_DURABILITY_PROCESS
} PmDurability;

typedef enum PoolStatus
{
	POOL_UNUSED = 0,			/* library not preloaded: nothing is mapped */
	POOL_READY,
	POOL_UNAVAILABLE			/* pool_require() raises the reason */
} PoolStatus;

/* Address of offset 0 of the pool file; the same in every process. */
extern char *PoolBase;
extern PoolSuperblock *PoolSuper;

/*
 * Damage.  pm_damaged() raises the error for what is damaged in the pool (named by
 * "what"); pm_crc() is the CRC-32C of some bytes.
 */
pg_noreturn extern void pm_damaged(const char *what);
pg_noreturn extern void pm_damaged_reference(PMPtr p);
extern uint32 pm_crc(const void *bytes, Size len);
extern uint32 pm_crc_of_two(const void *a, Size a_len, const void *b, Size b_len);

/* Address of what a reference leads to.  Raises an error if the reference is damaged. */
static inline void *
pm_deref(PMPtr p)
{
	if (unlikely(!pm_ref_is_valid(p)))
		pm_damaged_reference(p);
	return PoolBase + (p & PM_OFFSET_MASK);
}

/*
 * The same without an error: NULL for a damaged reference, and for PM_NULL.  For checks,
 * and where an error would do harm.
 */
static inline void *
pm_deref_quietly(PMPtr p)
{
	return pm_ref_is_valid(p) ? PoolBase + (p & PM_OFFSET_MASK) : NULL;
}

static inline PMPtr
pm_ptr(const void *addr)
{
	return PM_REF((uint64) ((const char *) addr - PoolBase));
}

/* Does the address lie in the mapped pool? */
extern bool pool_contains(const void *addr);

/* Shared memory; called from the hooks in sofort.c. */
extern Size pool_shmem_size(void);
extern int	pool_lwlocks(void);		/* of the named tranche "sofort_pmem" */

/*
 * In the postmaster, from shmem_startup_hook, under AddinShmemInitLock; also
 * after a crash-restart.  Opens or creates the pool, checks it against the
 * data directory, maps it, repairs allocation, empties the DRAM arena, starts
 * a new life.  A pool that cannot be used is not an error here: the server
 * starts, the log says why, and pool_require() raises it.  (A broken
 * configuration is FATAL.)
 */
extern void pool_startup(void);

/* After all modules have started: one line in the log, if the pool is usable.
 * ms: what sofort has added to the start of the server. */
extern void pool_log_start(double ms);

extern PoolStatus pool_status(void);

/*
 * After pool_startup(), if the pool is usable: will PostgreSQL recover, reset unlogged
 * tables, and throw away its statistics?  Decided as in StartupXLOG(): a data directory that
 * is being restored recovers in any case, also if it was copied after a shutdown.  If a
 * start is interrupted, the next one finds the same answer.
 */
extern bool pool_server_has_crashed(void);

/*
 * For a module that cannot start, and at the end of a restore: from now on pool_require()
 * raises this in every process, until the next start.  Strings are copied (detail, hint may
 * be NULL).
 */
extern void pool_refuse_life(int sqlstate, const char *message, const char *detail,
							 const char *hint);

/*
 * Pool and data directory contradict each other, which only a check after redo can see
 * (txn: transaction ids and high-water marks).  The server goes on without sofort and uses
 * up transaction ids, so the next start might not see it any more: "sofort.control" keeps
 * it.
 */
extern void pool_declare_contradiction(const char *message, const char *detail);

/*
 * Raise the error that says why sofort relations cannot be used (library not
 * preloaded, pool missing / foreign / damaged / of another layout, standby),
 * or return.  Cheap when all is well.
 */
extern void pool_require(void);

/*
 * sofort.create_pool(): makes a fresh pool where the old one is missing, at the next start.
 * The caller has checked that the user is a superuser, and the server not in recovery.
 */
extern void pool_create_anew(void);

/* sofort.accept_reset(): use the pool although pg_resetwal has thrown away WAL; the same. */
extern void pool_accept_reset(void);

/* Number of this server life, never 0 when the pool is ready. */
extern uint64 pool_life(void);

/*
 * Raises the xid high-water mark.  The caller (txn) has made the WAL record durable; this
 * makes the pool and then the file in the data directory follow, durably.
 */
extern void pool_raise_high_water(uint64 sequence, uint64 hw_xid);

/* To be called before that record: raises an error if there is no room for what follows it. */
extern void pool_reserve_high_water(void);

/* A new store id: given out durably with this process's next drain, so before anything has it. */
extern StoreId pool_next_store_id(void);

/* A backup: the caller sets path, pool_backup() the rest. */
typedef struct PmBackup
{
	const char *path;			/* of the copy; must not exist */
	char		restore_point[MAXFNAMELEN];
	XLogRecPtr	lsn;			/* end of its record */
	TimeLineID	timeline;
	uint64		bytes;			/* written */
	double		held_ms;		/* milliseconds that drains had to wait */
} PmBackup;

/* Copy the pool while others go on; see README.md, "Backup".  Raises errors. */
extern void pool_backup(PmBackup *result);

/*
 * Restoring. pool_check_restored() is called by the startup process at the end of redo:
 * refuses the pool unless the data directory was restored to exactly its point.
 * pool_finish_restore() is called by the first process that uses the pool after recovery.
 */
extern void pool_check_restored(XLogRecPtr replayed, TimeLineID timeline);
extern void pool_finish_restore(void);

/*
 * Is this data directory a copy without a pool (a standby, or one that was restored)?  It
 * will never have the pool to which its WAL belongs.
 */
extern bool pool_left_behind(void);

/* Numbers for sofort.pool */
typedef struct PoolUsage
{
	uint64		quota_bytes;
	uint64		used_bytes;		/* granules in use */
	uint64		slab_bytes;		/* of these, cut into slabs */
	uint64		file_bytes;		/* taken from the file system */
	uint64		dram_total;
	uint64		dram_used;
} PoolUsage;

extern void pool_usage(PoolUsage *usage);

/*
 * Gives blocks of the file back that were kept though they are free, and that nobody needs.
 * To be called about once in a second as long as it returns true, and again when it sets
 * the latch; by one process.  NULL: for the last time, all are given back.
 */
extern bool pm_trim(Latch *latch);

/* Gives all of them back at once; for half a minute none are kept. */
extern void pm_give_back_free(void);

/* The pool's path, even if the pool cannot be used; NULL if not preloaded. */
extern const char *pool_path(void);

/*
 * Checks words, slabs, intents and identity; calls report for each problem.  False: the
 * directories of the superblock cannot be followed.
 */
typedef void (*PmReport) (void *arg, const char *kind, const char *place, const char *problem);
extern bool pool_verify(PmReport report, void *arg);

#endif							/* SOFORT_PMEM_POOL_H */
