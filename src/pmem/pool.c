/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  The pool as a whole: start-up, agreement with the data directory, lives,
 *	  store ids, figures and verification.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "pm_internal.h"
#include "sofort/compat/compat.h"
#include "sofort/pmem/fault.h"
#include "storage/shmem.h"
#include "utils/acl.h"

PmShared   *pm_shared = NULL;
uint64	   *pm_bitmap = NULL;
EpochSlot  *pm_epochs = NULL;

#define BITMAP_BYTES	((Size) PM_MAX_EXTENTS * PM_MAX_GRANULES / 8)

/*
 * Notes why the pool cannot be used; always returns false, so that callers can return that.
 * hint and detail may be NULL.
 */
bool
pool_refuse(PoolRefusal *why, int sqlstate, const char *hint, const char *detail,
			const char *fmt,...)
{
	va_list		args;

	why->sqlstate = sqlstate;
	strlcpy(why->hint, hint != NULL ? hint : "", sizeof(why->hint));
	strlcpy(why->detail, detail != NULL ? detail : "", sizeof(why->detail));
	va_start(args, fmt);
	vsnprintf(why->message, sizeof(why->message), fmt, args);
	va_end(args);
	return false;
}

/* ---- shared memory ---- */

Size
pool_shmem_size(void)
{
	return add_size(add_size(add_size(sizeof(PmShared) + PM_LINE, BITMAP_BYTES),
							 epoch_shmem_size() + backup_shmem_size()), redo_shmem_size());
}

int
pool_lwlocks(void)
{
	return 4 + SLAB_LOCKS;
}

/* False if it exists already (nothing to do then). */
static bool
make_shared(void)
{
	LWLockPadded *locks;
	bool		found;
	char	   *p;

	p = ShmemInitStruct("sofort pmem", pool_shmem_size(), &found);
	pm_shared = (PmShared *) p;
	p = (char *) TYPEALIGN(PM_LINE, p + sizeof(PmShared));
	pm_epochs = (EpochSlot *) p;
	pm_bitmap = (uint64 *) (p + epoch_shmem_size());
	p += epoch_shmem_size() + BITMAP_BYTES;
	backup_init_shared(p);
	p += backup_shmem_size();
	if (found)
		return false;

	memset(pm_shared, 0, sizeof(PmShared));
	locks = GetNamedLWLockTranche("sofort_pmem");
	pm_shared->segment_lock = &locks[0].lock;
	pm_shared->control_lock = &locks[1].lock;
	redo_init_shared(p, &locks[2].lock);
	pm_shared->trim_lock = &locks[3].lock;
	pm_shared->slab_locks = &locks[4];
	pm_shared->status = POOL_UNAVAILABLE;
	pg_atomic_init_u64(&pm_shared->used_granules, 0);
	pg_atomic_init_u32(&pm_shared->slab_serial, 0);
	epoch_startup();
	return true;
}

/* ---- start-up ---- */

/*
 * Is this data directory a copy that recovery brings up to date?  Then a pool beside it is
 * not its own, or is of another time.
 */
static bool
is_restored_copy(void)
{
	return access("standby.signal", F_OK) == 0 || access("recovery.signal", F_OK) == 0 ||
		access("backup_label", F_OK) == 0;
}

/*
 * A restored data directory with a copy that sofort.backup() made: it is opened, and the
 * end of recovery will tell whether the two are of the same moment (pool_check_restored()).
 * False: there is none.  If the control file says RESTORING or ADOPTED already, an earlier
 * recovery has crashed: then the pool file may be older than its redo log, which was not
 * replayed yet.
 */
static bool
adopt_copy(PoolControl *control, bool have_control)
{
	PoolSuperblock super;
	bool		readable;
	bool		again;
	int			fd;

	if (!have_control || control->superblock_offset == 0 || access("standby.signal", F_OK) == 0)
		return false;
	fd = open(pm_pool_file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	readable = pread(fd, &super, sizeof(super), (off_t) control->superblock_offset) == sizeof(super);
	close(fd);
	if (!readable || super.magic != SOFORT_POOL_MAGIC ||
		super.layout_version != SOFORT_LAYOUT_VERSION || (super.flags & SUPERBLOCK_BACKUP) == 0 ||
		super.identity.system_identifier != GetSystemIdentifier() ||
		memcmp(super.identity.pool_id, control->pool_id, sizeof(control->pool_id)) != 0)
		return false;
	again = control->state == CONTROL_RESTORING || control->state == CONTROL_ADOPTED;
	if (!again || super.life > control->life || super.hw_sequence > control->hw_sequence)
	{
		control->life = super.life;
		control->hw_sequence = super.hw_sequence;
		control->hw_xid = super.hw_xid;
	}
	control->state = CONTROL_RESTORING;
	return control_write(control, LOG);
}

/*
 * Refuses the pool of a restored data directory, and notes that in the control file,
 * because the signal file will go; also where sofort is new, as tables may come with the
 * WAL, or have come with the copy.
 */
static bool
refuse_restored(PoolControl *control, bool have_control, PoolRefusal *why)
{
	pm_shared->left_behind = true;
	if (!have_control)
		control_init(control);
	if (control->state != CONTROL_RESTORED)
	{
		control->state = CONTROL_RESTORED;
		(void) control_write(control, LOG);
	}
	return pool_refuse(why, ERRCODE_READ_ONLY_SQL_TRANSACTION,
					   "Use sofort relations on the primary server only.",
					   "A standby or restored server has no pool of its own.",
					   "cannot use sofort relations during recovery");
}

static bool
refuse_missing(const PoolControl *control, PoolRefusal *why)
{
	why->missing = true;
	pm_shared->left_behind = control->state == CONTROL_RESTORED;
	if (pm_shared->left_behind)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "sofort.create_pool() makes a new, empty pool; the data of existing sofort tables stays lost.",
						   "It was restored from a backup or was a standby; the pool is not part of that.",
						   "the data directory \"%s\" has no sofort pool", DataDir);
	return pool_refuse(why, ERRCODE_UNDEFINED_FILE,
					   "Put the pool back, or set sofort.pool_path; sofort.create_pool() makes a new, empty pool, and the data of existing sofort tables stays lost.",
					   NULL, "sofort pool \"%s\" does not exist", pm_pool_file);
}

/* No control file: sofort is new here.  Announce a pool, durably. */
static bool
first_start(PoolControl *control, PoolRefusal *why)
{
	bool		exists;

	if (!pool_file_find(pm_pool_file, &exists, why))
		return false;
	if (exists)
	{
		char	   *detail = psprintf("There is no file \"%s\", so this data directory has never used a pool.",
									  control_file());

		return pool_refuse(why, ERRCODE_DUPLICATE_FILE,
						   "Set sofort.pool_path to another path, or move the file away.", detail,
						   "file \"%s\" already exists and does not belong to this data directory",
						   pm_pool_file);
	}
	control_init(control);
	if (!control_write(control, LOG))
		return pool_refuse(why, ERRCODE_IO_ERROR, "See the server log.", NULL,
						   "could not write file \"%s\"", control_file());
	return true;
}

/* Locks the pool, creates it if that is due, opens and maps it: once per postmaster. */
static bool
open_pool(PoolControl *control, bool have_control, PoolRefusal *why)
{
	bool		exists;

	if (!pool_file_lock(why))
		return false;
	if (!have_control && !first_start(control, why))
		return false;
	if (control->system_identifier != GetSystemIdentifier())
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Remove the file if it was copied here by mistake.", NULL,
						   "file \"%s\" belongs to another cluster", control_file());
	if (control->state == CONTROL_RESTORED)
		return refuse_missing(control, why);
	if (!pool_file_find(pm_pool_file, &exists, why))
		return false;
	if (!exists && control->state != CONTROL_CREATING)
		return refuse_missing(control, why);
	if (!exists)
	{
		if (!pool_file_create(control, why))
			return false;
	}
	/*
	 * the process that made it may have been killed, or got an error, before its name was
	 * on the disk
	 */
	else if (control->state == CONTROL_CREATING && !pool_file_make_name_durable(pm_pool_file))
		return pool_refuse_errno(why, "synchronize the directory of", pm_pool_file, NULL);
	return pool_file_open(control, why);
}

/* The control file as the superblock has it */
static bool
file_superblock(PoolControl *control, PoolRefusal *why)
{
	/* (killed between flag and file, in pool_finish_restore()) */
	if (control->state == CONTROL_CREATING ||
		(control->state == CONTROL_ADOPTED && (PoolSuper->flags & SUPERBLOCK_BACKUP) == 0))
		control->state = CONTROL_READY;
	control->superblock_offset = (uint64) ((char *) PoolSuper - PoolBase);
	control->life = PoolSuper->life;
	control->hw_sequence = PoolSuper->hw_sequence;
	control->hw_xid = PoolSuper->hw_xid;
	reset_note_start(control);
	if (control_write(control, LOG))
		return true;
	return pool_refuse(why, ERRCODE_IO_ERROR, "See the server log.", NULL,
					   "could not write file \"%s\"", control_file());
}

static void
set_flags(uint32 flags)
{
	PoolSuper->flags = PM_SEAL16(flags & 0xffff);
	pm_persist(&PoolSuper->flags, sizeof(uint32));
}

/*
 * Begins a new life: in the pool, then in the control file.  By that the next start notices
 * an older copy of either.  What an interrupted step left is finished first.
 */
static bool
start_life(PoolControl *control, PoolRefusal *why)
{
	const uint32 pending = SUPERBLOCK_LIFE_PENDING | SUPERBLOCK_MARK_PENDING;

	pm_persist(PoolSuper, sizeof(PoolSuperblock));
	if (PoolSuper->life != control->life || PoolSuper->hw_sequence != control->hw_sequence)
	{
		if (!file_superblock(control, why))
			return false;
	}
	set_flags((PoolSuper->flags & ~pending) | SUPERBLOCK_LIFE_PENDING);
	pm_store8_persist(&PoolSuper->life, PoolSuper->life + 1);
	SOFORT_STOP("pmem-life-raised");
	if (!file_superblock(control, why))
		return false;
	set_flags(PoolSuper->flags & ~pending);
	pm_shared->life = PoolSuper->life;
	pm_shared->first_store_of_life = PM_UNSEAL_ID(PoolSuper->next_store_id);
	return true;
}

static bool
start_pool(PoolRefusal *why)
{
	PoolControl control;
	bool		have_control;
	int			rc;

	reset_read_pg_control();
	memset(&control, 0, sizeof(control));
	if (!control_read(&control, &have_control, why))
		return false;
	/*
	 * its writer may have been killed before it was durable, and what follows in the pool
	 * relies on it
	 */
	if (have_control && !control_make_durable(why))
		return false;
	if (is_restored_copy())
	{
		if (!adopt_copy(&control, have_control))
			return refuse_restored(&control, have_control, why);
		pm_shared->restoring = true;
	}
	else if (have_control && control.state == CONTROL_RESTORING)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Restore the base backup and the copy of the pool again, and let recovery end.",
						   "Recovery to the point of the pool's copy was not finished.",
						   "the data directory \"%s\" is not restored completely", DataDir);
	if (!reset_find(&control, why))
		return false;
	reset_watch_stop();
	if (PoolBase == NULL)
	{
		if (!open_pool(&control, have_control, why))
			return false;
	}
	else if (!have_control)
		return pool_refuse(why, ERRCODE_UNDEFINED_FILE,
						   "Restart the server after restoring the file.", NULL,
						   "file \"%s\" has disappeared", control_file());
	else if (!redo_recover_doubtful(&control, why) ||
			 !pool_check_superblock(PoolSuper, &control, why) ||
			 !pool_check_agreement(PoolSuper, &control, why))
		return false;
	if (!arena_reserve(why))
		return false;
	if (persist_logs() && !redo_begin(control.pool_id, why))
		return false;

	if (!segment_startup(why) || !pool_check_structure(PoolSuper, why) ||
		!reset_check(&control, why))
		return false;
	alloc_startup();
	if (!start_life(&control, why))
		return false;
	rc = alloc_prepare_intents();
	if (rc != 0)
		return pool_refuse(why, rc > 0 && rc != ENOSPC ? ERRCODE_IO_ERROR : ERRCODE_DISK_FULL,
						   "Free space on the file system that holds the pool, and restart the server.",
						   NULL, "could not reserve space for %d processes in sofort pool \"%s\": %s",
						   MaxBackends, pm_pool_file, rc > 0 ? strerror(rc) : "pool is full");
	segment_fill_spare();
	arena_startup();
	return true;
}

/*
 * From now on pool_require() raises this in every process, until the next start.  Strings
 * are copied (detail, hint may be NULL).
 */
static void
declare_unavailable(int sqlstate, const char *message, const char *detail, const char *hint)
{
	pm_shared->sqlstate = sqlstate;
	strlcpy(pm_shared->message, message, PM_REASON_BYTES);
	strlcpy(pm_shared->detail, detail != NULL ? detail : "", PM_REASON_BYTES);
	strlcpy(pm_shared->hint, hint != NULL ? hint : "", PM_REASON_BYTES);
	pg_write_barrier();
	pm_shared->status = POOL_UNAVAILABLE;
	ereport(LOG,
			(errmsg("sofort relations cannot be used: %s", pm_shared->message),
			 pm_shared->detail[0] != '\0' ? errdetail("%s", pm_shared->detail) : 0,
			 pm_shared->hint[0] != '\0' ? errhint("%s", pm_shared->hint) : 0));
}

void
pool_log_start(double ms)
{
	PmMedium	medium = pm_medium();

	if (pool_status() != POOL_READY)
		return;
	ereport(LOG,
			(errmsg("sofort pool \"%s\" is ready in %.3f ms (medium %s, flush by %s, start " UINT64_FORMAT ")",
					pm_pool_file, ms, pm_medium_name(medium), pm_flush_method(), PoolSuper->life),
			 errdetail("%s", pm_medium_promise(medium))));
	if (medium == PM_MEDIUM_PROCESS)
		ereport(WARNING,
				(errmsg("sofort.durability is \"process\": sofort tables do not survive power loss or a crash of the operating system")));
	if (pm_shared->restoring)
		declare_unavailable(ERRCODE_READ_ONLY_SQL_TRANSACTION,
							"cannot use sofort relations during recovery",
							"The pool is a copy; the server recovers to the moment at which it was made.",
							NULL);
}

/* ---- restoring ---- */

bool
pool_left_behind(void)
{
	return pm_shared != NULL && pm_shared->left_behind;
}

void
pool_check_restored(XLogRecPtr replayed, TimeLineID timeline)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;
	bool		same;

	if (pm_shared == NULL || !pm_shared->restoring || PoolBase == NULL)
		return;
	memset(&why, 0, sizeof(why));
	same = replayed == PoolSuper->backup_lsn && timeline == PoolSuper->backup_timeline;
	if (!control_read(&control, &exists, &why) || !exists)
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR), errmsg("could not read file \"%s\"", control_file())));
	control.state = same ? CONTROL_ADOPTED : CONTROL_RESTORED;
	(void) control_write(&control, ERROR);
	if (same)
	{
		/* if the pool was refused for another reason, this waits for the next start */
		pg_write_barrier();
		if (pm_shared->started)
			pm_shared->status = POOL_READY;
		ereport(LOG,
				(errmsg("sofort pool \"%s\" and data directory are restored to the same point, %X/%X",
						pm_pool_file, LSN_FORMAT_ARGS(replayed))));
		return;
	}
	declare_unavailable(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						psprintf("sofort pool \"%s\" and data directory are not restored to the same point", pm_pool_file),
						psprintf("Recovery of the data directory ended at %X/%X on timeline %u, the pool was copied at %X/%X on timeline %u.",
								 LSN_FORMAT_ARGS(replayed), timeline,
								 LSN_FORMAT_ARGS((XLogRecPtr) PoolSuper->backup_lsn),
								 (TimeLineID) PoolSuper->backup_timeline),
						"Restore the base backup and the copy of the pool again, with recovery_target_name as sofort.backup() returned it.");
}

void
pool_finish_restore(void)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	if (likely((PoolSuper->flags & SUPERBLOCK_BACKUP) == 0))
		return;
	memset(&why, 0, sizeof(why));
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	if (!control_read(&control, &exists, &why) || !exists || control.state != CONTROL_ADOPTED)
		elog(ERROR, "sofort pool is a copy, but \"%s\" does not say so", control_file());

	/* flag, then file: a copy without the flag is an ordinary pool */
	set_flags(PoolSuper->flags & ~SUPERBLOCK_BACKUP);
	control.state = CONTROL_READY;
	PG_TRY();
	{
		(void) control_write(&control, ERROR);
	}
	PG_CATCH();
	{
		/*
		 * On an error the next caller tries again: a file that says ADOPTED lets a copy
		 * pass.  (A file that could not be flushed has its new contents.)
		 */
		if (control_read(&control, &exists, &why) && exists && control.state == CONTROL_ADOPTED)
			set_flags(PoolSuper->flags | SUPERBLOCK_BACKUP);
		PG_RE_THROW();
	}
	PG_END_TRY();
	LWLockRelease(pm_shared->control_lock);
}

void
pool_startup(void)
{
	PoolRefusal why;

	if (!make_shared())
		return;
	pool_file_path();
	memset(&why, 0, sizeof(why));
	if (start_pool(&why))
	{
		pm_shared->started = true;
		pm_shared->status = POOL_READY;
		return;
	}
	pm_shared->missing = why.missing;
	declare_unavailable(why.sqlstate, why.message, why.detail, why.hint);
}

/* ---- status ---- */

bool
pool_contains(const void *addr)
{
	const PmExtent *last = &pm_extent[pm_nextents - 1];

	return pm_nextents > 0 && (const char *) addr >= PoolBase &&
		(const char *) addr < PoolBase + last->offset + last->size;
}

PoolStatus
pool_status(void)
{
	return pm_shared == NULL ? POOL_UNUSED : pm_shared->status;
}

void
pool_refuse_life(int sqlstate, const char *message, const char *detail, const char *hint)
{
	pm_shared->started = false;
	declare_unavailable(sqlstate, message, detail, hint);
}

/*
 * May the message name files?  Only to roles that may read all settings.  Without a
 * transaction privileges cannot be looked up; then this is a background process, which
 * writes to the log.
 */
static bool
may_know_paths(void)
{
	if (!IsTransactionState())
		return MyProcPort == NULL;
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS);
}

/* detail and hint may be empty. */
pg_noreturn static void
raise_unusable(int sqlstate, const char *message, const char *detail, const char *hint)
{
	if ((strchr(message, '/') != NULL || strchr(detail, '/') != NULL) && !may_know_paths())
		ereport(ERROR,
				(errcode(sqlstate),
				 errmsg("the sofort pool cannot be used"),
				 errdetail("Roles with the privileges of pg_read_all_settings are told why."),
				 errdetail_log("%s%s%s", message, detail[0] != '\0' ? ": " : "", detail)));
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("%s", message),
			 detail[0] != '\0' ? errdetail("%s", detail) : 0,
			 hint[0] != '\0' ? errhint("%s", hint) : 0));
}

void
pool_declare_contradiction(const char *message, const char *detail)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	memset(&why, 0, sizeof(why));
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	if (control_read(&control, &exists, &why) && exists)
	{
		control.state = CONTROL_CONTRADICTED;
		(void) control_write(&control, LOG);
	}
	LWLockRelease(pm_shared->control_lock);
	declare_unavailable(ERRCODE_DATA_CORRUPTED, message, detail, CONTRADICTION_HINT);
}

void
pool_require(void)
{
	if (likely(pm_shared != NULL && pm_shared->status == POOL_READY))
	{
		if (unlikely(pm_shared->restoring && RecoveryInProgress()))
			ereport(ERROR,
					(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
					 errmsg("cannot use sofort relations during recovery")));
		return;
	}
	if (pm_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("sofort must be loaded through shared_preload_libraries"),
				 errhint("Put sofort first in shared_preload_libraries and restart the server.")));
	pg_read_barrier();
	if (pm_shared->sqlstate == ERRCODE_READ_ONLY_SQL_TRANSACTION && !RecoveryInProgress())
		raise_unusable(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   psprintf("the data directory \"%s\" has no sofort pool", DataDir),
					   "The server was started as a standby or from a backup.",
					   "Restart the server; then sofort.create_pool() can make a new, empty pool.");
	raise_unusable(pm_shared->sqlstate, pm_shared->message, pm_shared->detail, pm_shared->hint);
}

uint64
pool_life(void)
{
	return pm_shared == NULL ? 0 : pm_shared->life;
}

/* High-water marks continue from the old control file, because the WAL has them. */
void
pool_create_anew(void)
{
	PoolControl old;
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	if (pm_shared == NULL)
		pool_require();
	if (pm_shared->status == POOL_READY)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("sofort pool \"%s\" is in use", pm_pool_file)));
	if (!pm_shared->missing)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the sofort pool is not missing"),
				 errdetail("It cannot be used: %s.", pm_shared->message),
				 errhint("sofort.create_pool() only replaces a pool that did not exist when the server started.")));

	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	control_init(&control);
	if (control_read_or_raise(&old))
	{
		control.hw_sequence = old.hw_sequence;
		control.hw_xid = old.hw_xid;
	}
	memset(&why, 0, sizeof(why));
	if (!pool_file_find(pm_pool_file, &exists, &why))
		ereport(ERROR,
				(errcode(why.sqlstate), errmsg("%s", why.message)));
	if (exists)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_FILE),
				 errmsg("file \"%s\" already exists", pm_pool_file),
				 errhint("Move the file away if its data are of no use.")));
	(void) control_write(&control, ERROR);
	LWLockRelease(pm_shared->control_lock);
	ereport(NOTICE,
			(errmsg("a new sofort pool will be made at \"%s\" when the server starts next",
					pm_pool_file)));
}

/* ---- marks and ids ---- */

void
pool_reserve_high_water(void)
{
	pool_require();
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	(void) control_reserve(ERROR);
	LWLockRelease(pm_shared->control_lock);
}

void
pool_raise_high_water(uint64 sequence, uint64 hw_xid)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	pool_require();
	memset(&why, 0, sizeof(why));
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	if (sequence <= PoolSuper->hw_sequence && !(PoolSuper->flags & SUPERBLOCK_MARK_PENDING))
	{
		LWLockRelease(pm_shared->control_lock);
		return;
	}
	if (!control_read(&control, &exists, &why) || !exists)
		ereport(ERROR,
				(errcode(exists ? why.sqlstate : ERRCODE_UNDEFINED_FILE),
				 errmsg("could not read file \"%s\"", CONTROL_FILE),
				 why.message[0] != '\0' ? errdetail_log("%s", why.message) : 0));

	/* An earlier call failed between pool and file: finish that first. */
	if (PoolSuper->flags & SUPERBLOCK_MARK_PENDING)
	{
		control.hw_sequence = PoolSuper->hw_sequence;
		control.hw_xid = PoolSuper->hw_xid;
		(void) control_write(&control, ERROR);
		set_flags(PoolSuper->flags & ~SUPERBLOCK_MARK_PENDING);
	}
	if (sequence > PoolSuper->hw_sequence)
	{
		set_flags((PoolSuper->flags & ~SUPERBLOCK_FRESH) | SUPERBLOCK_MARK_PENDING);
		/* one line, in this order: whoever finds the new number finds the others, too */
		PoolSuper->hw_filed = PoolSuper->hw_sequence;
		PoolSuper->hw_xid = Max(PoolSuper->hw_xid, hw_xid);
		pm_store8_persist(&PoolSuper->hw_sequence, sequence);
		SOFORT_STOP("pmem-mark-raised");
		control.hw_sequence = sequence;
		control.hw_xid = PoolSuper->hw_xid;
		(void) control_write(&control, ERROR);
		SOFORT_STOP("pmem-mark-filed");
		set_flags(PoolSuper->flags & ~SUPERBLOCK_MARK_PENDING);
	}
	LWLockRelease(pm_shared->control_lock);
}

StoreId
pool_next_store_id(void)
{
	StoreId		id;

	pool_require();
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	id = PM_UNSEAL_ID(PoolSuper->next_store_id);
	if (id >= PM_OWNER_MASK)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the sofort pool has no store ids left"),
				 errhint("Dump the database and restore it into a new pool.")));
	pm_store8(&PoolSuper->next_store_id, PM_SEAL_ID(id + 1));
	LWLockRelease(pm_shared->control_lock);
	return id;
}

/* ---- figures ---- */

const char *
pool_path(void)
{
	return pm_shared != NULL ? pm_pool_file : NULL;
}

void
pool_usage(PoolUsage *usage)
{
	struct stat st;
	int			e;

	pool_require();
	memset(usage, 0, sizeof(PoolUsage));
	usage->quota_bytes = (uint64) sofort_pool_size_mb << 20;
	usage->used_bytes = pg_atomic_read_u64(&pm_shared->used_granules) * PM_GRANULE;
	for (e = 0; e < pm_nextents; e++)
	{
		uint64		prepared = words_prepared(e);
		uint64		g;

		for (g = 0; g < prepared; g++)
		{
			if (SEGWORD_STATE(segment_word(e, (uint32) g)) == SEGWORD_SLAB)
				usage->slab_bytes += PM_GRANULE;
		}
	}
	if (fstat(pm_pool_fd, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat the sofort pool: %m"),
				 errdetail_log("The pool is \"%s\".", pm_pool_file)));
	usage->file_bytes = (uint64) st.st_blocks * 512;
	arena_usage(&usage->dram_total, &usage->dram_used);
}
