/*-------------------------------------------------------------------------
 *
 * backup.c
 *	  Makes a copy of the pool, as a power cut at one moment would have left it, while
 *	  others go on.  The argument is in README.md, "Backup".
 *
 * The pool is copied in passes: first all that is in use, then what was flushed
 * meanwhile.  During the last pass drains are held back, so that nobody builds on
 * anything that was stored meanwhile; in that moment the restore point is written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access/xlog.h"
#include "pm_internal.h"
#include "portability/instr_time.h"
#include "sofort/pmem/fault.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#define CHUNK			PM_GRANULE	/* unit of copying, in the file */
#define DIRTY_WORDS		(PM_POOL_FILE_BYTES / CHUNK / 64)
#define PASSES			8			/* with writers running, at most */
#define FEW_CHUNKS		64			/* so few chunks can be copied while drains wait */

/* The copy until it is complete */
static char partial[MAXPGPATH + 8];

/* One bit per chunk of the file: flushed since it was copied */
static pg_atomic_uint64 *dirty = NULL;

typedef struct Copy
{
	int			fd;
	char	   *buffer;			/* CHUNK bytes */
	char	   *again;			/* the same */
	PmBackup   *result;
} Copy;

Size
backup_shmem_size(void)
{
	return DIRTY_WORDS * sizeof(pg_atomic_uint64);
}

void
backup_init_shared(void *p)
{
	dirty = p;
	for (uint64 i = 0; i < DIRTY_WORDS; i++)
		pg_atomic_init_u64(&dirty[i], 0);
}

/*
 * Notes a range that was flushed while a backup runs.  (An atomic OR is a full fence: the
 * stores are visible first.)
 */
void
backup_note_flush(const void *addr, Size len)
{
	uint64		start = (uint64) ((const char *) addr - PoolBase) / CHUNK;
	uint64		end = (uint64) ((const char *) addr - PoolBase + len - 1) / CHUNK;

	for (; start <= end; start++)
		(void) pg_atomic_fetch_or_u64(&dirty[start / 64], UINT64CONST(1) << (start % 64));
}

/* Wait, before a drain, until the last pass is over. */
void
backup_wait(void)
{
	while (pm_shared->backup_hold)
		pg_usleep(50L);
}

/* ---- barriers against the others ---- */

/*
 * On return every process has passed a full fence, and sees what was stored before.  So
 * flushes and drains need not execute one for the sake of backups.
 */
static void
barrier_everywhere(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("could not order memory accesses of all processes: %m"),
				 errdetail("sofort.backup() needs the system call membarrier().")));
}

static void
hold_drains(void)
{
	pm_shared->backup_hold = true;
	barrier_everywhere();
	for (int i = 0; i < pm_shared->nepochs; i++)
	{
		while (pm_epochs[i].draining)
			pg_usleep(20L);
	}
	pg_memory_barrier();
}

/* Also called after an error: removes an incomplete copy. */
static void
end_backup(int code, Datum arg)
{
	if (partial[0] != '\0')
		(void) unlink(partial);
	partial[0] = '\0';
	pm_shared->backup_hold = false;
	pm_shared->backup_tracking = false;
	pm_shared->backup_pid = 0;
}

/* ---- copying ---- */

static void
read_at(char *to, Size len, uint64 offset)
{
	Size		done = 0;

	while (done < len)
	{
		ssize_t		n = pread(pm_pool_fd, to + done, len - done, (off_t) (offset + done));

		if (n <= 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read sofort pool \"%s\": %m", pm_pool_file)));
		done += (Size) n;
	}
}

static void
write_at(const Copy *copy, const char *from, Size len, uint64 offset)
{
	errno = ENOSPC;
	if (pwrite(copy->fd, from, len, (off_t) offset) != (ssize_t) len)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", copy->result->path)));
	copy->result->bytes += len;
}

/*
 * Each line is copied as it is at one moment: it is read until two readings agree.  (From
 * the file, not from memory: a chunk may be given back meanwhile.)
 */
static void
copy_chunk(const Copy *copy, uint64 chunk, bool fresh)
{
	uint64		offset = chunk * CHUNK;

	read_at(copy->buffer, CHUNK, offset);
	read_at(copy->again, CHUNK, offset);
	for (Size at = 0; at < CHUNK; at += PM_LINE)
	{
		while (memcmp(copy->buffer + at, copy->again + at, PM_LINE) != 0)
		{
			memcpy(copy->buffer + at, copy->again + at, PM_LINE);
			read_at(copy->again + at, PM_LINE, offset + at);
		}
	}
	if (fresh)
	{
		static const char zero[PM_LINE];
		Size		at = 0;

		while (at < CHUNK && memcmp(copy->buffer + at, zero, PM_LINE) == 0)
			at += PM_LINE;
		if (at == CHUNK)
			return;				/* zeroes may stay a hole: a start allocates it */
	}
	write_at(copy, copy->buffer, CHUNK, offset);
}

static void
forget_and_copy(const Copy *copy, uint64 chunk, bool fresh)
{
	(void) pg_atomic_fetch_and_u64(&dirty[chunk / 64], ~(UINT64CONST(1) << (chunk % 64)));
	copy_chunk(copy, chunk, fresh);
}

/* Copies libpmemobj's metadata, which nobody changes while the server runs. */
static void
copy_metadata(const Copy *copy)
{
	off_t		at = 0;

	while ((at = lseek(pm_pool_fd, at, SEEK_DATA)) >= 0)
	{
		off_t		end = lseek(pm_pool_fd, at, SEEK_HOLE);

		while (at < end)
		{
			uint64		next = PM_POOL_FILE_BYTES;
			Size		len;
			bool		inside = false;

			for (int e = 0; e < pm_nextents && !inside; e++)
			{
				if ((uint64) at < pm_extent[e].offset)
				{
					next = pm_extent[e].offset;
					break;
				}
				inside = (uint64) at < pm_extent[e].offset + pm_extent[e].size;
				if (inside)
					next = pm_extent[e].offset + pm_extent[e].size;
			}
			if (inside)
			{
				at = (off_t) next;
				break;			/* look for data again from there */
			}
			len = Min(Min((uint64) (end - at), next - (uint64) at), CHUNK);
			read_at(copy->buffer, len, (uint64) at);
			write_at(copy, copy->buffer, len, (uint64) at);
			at += (off_t) len;
			CHECK_FOR_INTERRUPTS();
		}
	}
	if (errno != ENXIO)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read sofort pool \"%s\": %m", pm_pool_file)));
}

/* Copies headers, words, and granules that are in use */
static void
copy_extent(const Copy *copy, int e)
{
	const PmExtent *x = &pm_extent[e];
	uint32		prepared = (uint32) PM_UNSEAL(((volatile ExtentHeader *) x->header)->words_prepared);
	uint64		words_end = x->offset + PM_GRANULE + prepared * sizeof(uint64);
	uint64		chunk;

	for (chunk = x->offset / CHUNK; chunk * CHUNK < words_end; chunk++)
		forget_and_copy(copy, chunk, true);
	for (uint32 g = 0; g < Min(prepared, x->ngranules); g++)
	{
		CHECK_FOR_INTERRUPTS();
		if (segment_is_used(e, g))
			forget_and_copy(copy, granule_offset(e, g) / CHUNK, true);
	}
}

/* Copies again what was flushed since it was copied; returns how many chunks. */
static uint64
copy_dirty(const Copy *copy, bool interruptible)
{
	uint64		n = 0;

	for (uint64 i = 0; i < DIRTY_WORDS; i++)
	{
		uint64		word = pg_atomic_read_u64(&dirty[i]);

		for (; word != 0; word &= word - 1, n++)
			forget_and_copy(copy, i * 64 + (uint64) __builtin_ctzll(word), false);
		if (interruptible)
			CHECK_FOR_INTERRUPTS();
	}
	return n;
}

static uint64
count_dirty(void)
{
	uint64		n = 0;

	for (uint64 i = 0; i < DIRTY_WORDS; i++)
		n += (uint64) __builtin_popcountll(pg_atomic_read_u64(&dirty[i]));
	return n;
}

/* Marks the copy as one, so that only a restored data directory may use it. */
static void
label_copy(const Copy *copy)
{
	PoolSuperblock super;
	uint64		offset = (uint64) ((char *) PoolSuper - PoolBase);

	if (pread(copy->fd, &super, sizeof(super), (off_t) offset) != sizeof(super))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", copy->result->path)));
	super.flags = PM_SEAL16((super.flags & 0xffff) | SUPERBLOCK_BACKUP);
	super.backup_lsn = copy->result->lsn;
	super.backup_timeline = copy->result->timeline;
	memset(super.redo_nonce, 0, sizeof(super.redo_nonce));
	write_at(copy, (const char *) &super, sizeof(super), offset);
}

/* The last pass, and the restore point */
static void
finish_copy(const Copy *copy)
{
	PmBackup   *result = copy->result;
	instr_time	start;
	instr_time	end;

	INSTR_TIME_SET_CURRENT(start);
	hold_drains();
	(void) copy_dirty(copy, false);
	result->lsn = XLogRestorePoint(result->restore_point);
	pm_shared->backup_hold = false;
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	result->held_ms = INSTR_TIME_GET_MILLISEC(end);
	result->timeline = GetWALInsertionTimeLine();
	XLogFlush(result->lsn);
	label_copy(copy);
}

static void
make_copy(const Copy *copy)
{
	for (uint64 i = 0; i < DIRTY_WORDS; i++)
		pg_atomic_write_u64(&dirty[i], 0);
	pm_shared->backup_tracking = true;
	barrier_everywhere();		/* from here on every flush is noted */

	copy_metadata(copy);
	for (int e = 0; e < pm_nextents; e++)
		copy_extent(copy, e);
	for (int pass = 0; pass < PASSES && count_dirty() > FEW_CHUNKS; pass++)
		(void) copy_dirty(copy, true);
	/* what is synchronised now need not be synchronised while commits wait, or later */
	if (fdatasync(copy->fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not synchronize file \"%s\": %m", copy->result->path)));
	(void) copy_dirty(copy, true);
	SOFORT_STOP("backup-copied");
	finish_copy(copy);
	if (fsync(copy->fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not synchronize file \"%s\": %m", copy->result->path)));
}

/* ---- the interface ---- */

static void
check_path(const char *path)
{
	char		parent[MAXPGPATH];
	char		real_parent[PATH_MAX];
	char		real_data[PATH_MAX];

	if (!is_absolute_path(path) || strlen(path) > MAXPGPATH - 16)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("path of the copy must be absolute, and at most %d bytes", MAXPGPATH - 16)));
	strlcpy(parent, path, sizeof(parent));
	get_parent_directory(parent);
	if (realpath(parent, real_parent) == NULL || realpath(DataDir, real_data) == NULL)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not access directory \"%s\": %m", parent)));
	if (path_is_prefix_of_path(real_data, real_parent))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the copy must not be inside the data directory")));
}

static void
begin_backup(void)
{
	uint32		nobody = 0;
	pg_atomic_uint32 *pid = (pg_atomic_uint32 *) &pm_shared->backup_pid;

	if (!pg_atomic_compare_exchange_u32(pid, &nobody, (uint32) MyProcPid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("a backup of the sofort pool is already running"),
				 errdetail("Process %u makes it.", nobody)));
}

void
pool_backup(PmBackup *result)
{
	Copy		copy = {.fd = -1,.result = result};
	struct stat st;

	pool_require();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot back up the sofort pool during recovery")));
	if (wal_level < WAL_LEVEL_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("wal_level is not sufficient for a backup"),
				 errhint("wal_level must be set to \"replica\" or \"logical\" at server start.")));
	check_path(result->path);
	if (lstat(result->path, &st) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_FILE),
				 errmsg("file \"%s\" already exists", result->path)));
	snprintf(result->restore_point, sizeof(result->restore_point), "sofort-" UINT64_FORMAT "-" INT64_FORMAT,
			 pm_shared->life, (int64) GetCurrentTimestamp());
	copy.buffer = palloc(CHUNK);
	copy.again = palloc(CHUNK);

	begin_backup();
	snprintf(partial, sizeof(partial), "%s.partial", result->path);
	PG_ENSURE_ERROR_CLEANUP(end_backup, (Datum) 0);
	{
		if (unlink(partial) != 0 && errno != ENOENT)
			ereport(ERROR,
					(errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", partial)));
		copy.fd = OpenTransientFilePerm(partial, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | PG_BINARY, 0600);
		if (copy.fd < 0 || ftruncate(copy.fd, PM_POOL_FILE_BYTES) != 0)
			ereport(ERROR,
					(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", partial)));
		make_copy(&copy);
		CloseTransientFile(copy.fd);
		(void) durable_rename(partial, result->path, ERROR);
		partial[0] = '\0';
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_backup, (Datum) 0);
	end_backup(0, (Datum) 0);
}
