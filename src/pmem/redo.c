/*-------------------------------------------------------------------------
 *
 * redo.c
 *	  Redo log of a pool in an ordinary file (medium msync): writing it,
 *	  checkpoints.  redo_recover.c replays it.
 *
 * pm_drain() writes the flushed lines to the log, in one sequential write that
 * it waits for, instead of writing scattered pages.  The kernel writes the pages
 * when it likes; a checkpoint makes sure that all before some position of the
 * log has been written, and frees the log up to there.
 *
 * Each process writes its own chunks, side by side with the others: the file system and
 * the device group what they synchronise at the same time.  A chunk that was not
 * completed leaves a gap, on which nobody has relied.
 *
 * The argument is in README.md, "Redo log".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pm_internal.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/pmem/redo.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/spin.h"
#include "utils/wait_event.h"

#define WRITE_HINT	"Make sure that the file can be written, and restart the server."

/* In shared memory, so it ends with the server life; the next one begins another log. */
typedef struct RedoShared
{
	LWLock	   *checkpoint_lock;
	RedoHeader	header;			/* checkpoint lock */

	slock_t		mutex;			/* to move head */
	pg_atomic_uint64 head;		/* next position */
	pg_atomic_uint64 start;		/* blocks before it may be overwritten */
	uint64		nblocks;
	volatile int worker;		/* PGPROC number, or -1 */
	pg_atomic_uint32 asked;		/* the worker was */

	/*
	 * Per process: 0, or a position at or before that of the chunk which it is
	 * writing.
	 */
	pg_atomic_uint64 in_flight[FLEXIBLE_ARRAY_MEMBER];
} RedoShared;

int			sofort_redo_size_mb = 256;

static RedoShared *redo = NULL;

/* Set by the postmaster, inherited */
static int	redo_fd = -1;

/*
 * Outlives all processes: set if nobody saw the last synchronisation of the pool file
 * succeed.  The kernel reports a failure once, and takes the pages for clean after that.
 */
static pg_atomic_uint32 *in_doubt = NULL;

/* Of this process: chunks were written that are not synchronised. */
static bool unsynced = false;
static char chunk_buffer[REDO_CHUNK_BYTES] __attribute__((aligned(REDO_BLOCK)));

PGDLLEXPORT void sofort_redo_worker(Datum arg);

const char *
redo_path(void)
{
	static char path[MAXPGPATH + 8];

	snprintf(path, sizeof(path), "%s.redo", pm_pool_file);
	return path;
}

static int
redo_processes(void)
{
	return 1 + MaxBackends + NUM_AUXILIARY_PROCS;
}

Size
redo_shmem_size(void)
{
	return add_size(offsetof(RedoShared, in_flight),
					mul_size(sizeof(pg_atomic_uint64), redo_processes()));
}

void
redo_init_shared(void *p, LWLock *lock)
{
	redo = p;
	memset(redo, 0, redo_shmem_size());
	redo->checkpoint_lock = lock;
	redo->worker = -1;
	SpinLockInit(&redo->mutex);
	pg_atomic_init_u64(&redo->head, 1);
	pg_atomic_init_u64(&redo->start, 1);
	pg_atomic_init_u32(&redo->asked, 0);
	for (int i = 0; i < redo_processes(); i++)
		pg_atomic_init_u64(&redo->in_flight[i], 0);
}

/* A log that could not be written may never become complete, so this is a PANIC. */
static void
panic(const char *what, const char *path)
{
	ereport(PANIC,
			(errcode_for_file_access(),
			 errmsg("could not %s file \"%s\": %m", what, last_dir_separator(path) + 1),
			 errdetail_log("The file is \"%s\".", path)));
}

/* ---- checksums ---- */

uint32
redo_header_crc(const RedoHeader *header)
{
	RedoHeader	copy = *header;

	copy.crc = 0;
	return pm_crc(&copy, sizeof(copy));
}

uint32
redo_chunk_crc(const RedoChunk *chunk)
{
	return pm_crc(&chunk->nonce, sizeof(RedoChunk) - offsetof(RedoChunk, nonce) +
				  chunk->nentries * sizeof(RedoEntry));
}

/* ---- checkpoints ---- */

/*
 * Synchronises the pool file.  It is in doubt meanwhile, because a process that is killed
 * before it has looked at the result may be the only one to which a failure was reported.
 * (Signals that would end us wait for the result.) doubt: the state if it succeeds.  False:
 * errno is set.
 */
static bool
sync_pool(int fd, uint32 doubt)
{
	sigset_t	all;
	sigset_t	before;
	int			rc;
	int			err;

	sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, &before);
	pg_atomic_write_u32(in_doubt, 1);
	rc = fdatasync(fd);
	err = errno;
	if (rc == 0)
		pg_atomic_write_u32(in_doubt, doubt);
	(void) sigprocmask(SIG_SETMASK, &before, NULL);
	errno = err;
	return rc == 0;
}

static bool
was_in_doubt(void)
{
	return in_doubt != NULL && pg_atomic_read_u32(in_doubt) != 0;
}

/*
 * For redo_recover().  Success does not end an older doubt: that takes write_again(), of what
 * was not replayed.
 */
bool
redo_sync_replayed(int fd)
{
	return sync_pool(fd, pg_atomic_read_u32(in_doubt));
}

bool
redo_find_doubt(PoolRefusal *why)
{
	return in_doubt != NULL || pool_file_word(&in_doubt, why);
}

/* Writes the header into the block whose turn it is; false: errno is set */
static bool
write_header(RedoHeader *header)
{
	static char block[REDO_BLOCK] __attribute__((aligned(REDO_BLOCK)));

	header->sequence++;
	header->crc = redo_header_crc(header);
	memset(block, 0, sizeof(block));
	memcpy(block, header, sizeof(RedoHeader));
	errno = EIO;
	return pwrite(redo_fd, block, REDO_BLOCK, (off_t) (header->sequence % 2) * REDO_BLOCK) == REDO_BLOCK &&
		fdatasync(redo_fd) == 0;
}

/* Waits until nobody writes a chunk before this position any more. */
static void
wait_for_writers(uint64 position)
{
	pg_memory_barrier();
	for (int i = 0; i < redo_processes(); i++)
	{
		uint64		at;

		while ((at = pg_atomic_read_u64(&redo->in_flight[i])) != 0 && at < position)
			pg_usleep(50L);
	}
	pg_memory_barrier();
}

/*
 * Checkpoint: on return everything that the log had is in the pool file, and the blocks can
 * be used again.  Returns at once if somebody else did that since the log's start was
 * "seen".  Takes no other lock; a process that writes a chunk waits for no lock.
 */
static void
checkpoint_since(uint64 seen)
{
	uint64		position;

	LWLockAcquire(redo->checkpoint_lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&redo->start) == seen)
	{
		SpinLockAcquire(&redo->mutex);
		position = pg_atomic_read_u64(&redo->head);
		SpinLockRelease(&redo->mutex);
		wait_for_writers(position);
		Assert(!was_in_doubt());	/* a process that failed has kept the lock */
		if (!sync_pool(pm_pool_fd, 0))
			panic("synchronize", pm_pool_file);
		redo->header.start = position;
		if (!write_header(&redo->header))
			panic("write", redo_path());
		pg_atomic_write_u64(&redo->start, position);
	}
	/*
	 * last, even if it was done for us: a process that goes by the old start does not ask
	 * again
	 */
	pg_atomic_write_u32(&redo->asked, 0);
	LWLockRelease(redo->checkpoint_lock);
}

void
redo_checkpoint(void)
{
	checkpoint_since(pg_atomic_read_u64(&redo->start));
}

/* ---- writing ---- */

static bool
reserve(uint64 n, uint64 *position, uint64 *start)
{
	uint64		at;
	bool		fits;

	SpinLockAcquire(&redo->mutex);
	at = pg_atomic_read_u64(&redo->head);
	if (at % redo->nblocks + n > redo->nblocks)
		at += redo->nblocks - at % redo->nblocks;
	*start = pg_atomic_read_u64(&redo->start);
	fits = at + n <= *start + redo->nblocks;
	if (fits)
		pg_atomic_write_u64(&redo->head, at + n);
	SpinLockRelease(&redo->mutex);
	*position = at;
	return fits;
}

static void
ask_worker(uint64 used)
{
	int			worker = redo->worker;
	uint32		no = 0;

	if (used > redo->nblocks / 2 && worker >= 0 &&
		pg_atomic_compare_exchange_u32(&redo->asked, &no, 1))
		SetLatch(&ProcGlobal->allProcs[worker].procLatch);
}

/*
 * Takes a place for n blocks.  From here to leave_log() no checkpoint passes it.  The order
 * matters: first in_flight, then the position is taken (README.md).
 */
static uint64
enter_log(uint64 n)
{
	pg_atomic_uint64 *mine = &redo->in_flight[pm_process_number()];
	uint64		position;
	uint64		start;

	for (;;)
	{
		pg_atomic_write_u64(mine, pg_atomic_read_u64(&redo->head));
		pg_memory_barrier();
		if (reserve(n, &position, &start))
			break;
		pg_atomic_write_u64(mine, 0);
		checkpoint_since(start);
	}
	ask_worker(position + n - start);
	return position;
}

static void
leave_log(void)
{
	pg_memory_barrier();
	pg_atomic_write_u64(&redo->in_flight[pm_process_number()], 0);
}

/*
 * Copies the line as it is at one moment, because two stores of another process to it must
 * not be seen in the wrong order.  So it is read until two readings agree.
 */
static inline void
copy_line(uint64 *to, const uint64 *from)
{
	bool		same;

	for (int i = 0; i < PM_LINE / 8; i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
	do
	{
		same = true;
		for (int i = 0; i < PM_LINE / 8; i++)
		{
			uint64		word = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);

			same &= word == to[i];
			to[i] = word;
		}
	} while (unlikely(!same));
}

static void
sync_log(void)
{
	if (fdatasync(redo_fd) != 0)
		panic("synchronize", redo_path());
}

bool
redo_unsynced(void)
{
	return unsynced;
}

void
redo_sync(void)
{
	if (unsynced)
		sync_log();
	unsynced = false;
}

/* Complete the chunk in the buffer and write it. */
static void
write_chunk(uint64 position, uint32 nblocks, uint32 nentries, bool sync)
{
	RedoChunk  *chunk = (RedoChunk *) chunk_buffer;
	Size		bytes = (Size) nblocks * REDO_BLOCK;
	Size		used = sizeof(RedoChunk) + nentries * sizeof(RedoEntry);
	struct iovec io = {.iov_base = chunk_buffer, .iov_len = bytes};
	off_t		at = (off_t) (2 + position % redo->nblocks) * REDO_BLOCK;

	memset(chunk, 0, sizeof(RedoChunk));
	chunk->magic = REDO_CHUNK_MAGIC;
	memcpy(chunk->nonce, redo->header.nonce, sizeof(chunk->nonce));
	chunk->position = position;
	chunk->nblocks = nblocks;
	chunk->nentries = nentries;
	chunk->crc = redo_chunk_crc(chunk);
	memset(chunk_buffer + used, 0, bytes - used);

	errno = ENOSPC;
	if (pwritev2(redo_fd, &io, 1, at, sync ? RWF_DSYNC : 0) != (ssize_t) bytes)
		panic("write", redo_path());
	/* with FUA the device's cache keeps earlier writes */
	if (sync && unsynced)
		sync_log();
	unsynced = !sync;
}

/*
 * Writes n lines to the log.  With sync, they and all that this process has written to the
 * log before are durable on return.
 *
 * publish (may be NULL) is an aligned word in one of the lines: it gets the value first in
 * the log and, when that is durable, in memory (sync is needed).  Nobody else may flush its
 * line meanwhile.
 *
 * The lines are read after the place was taken: a later chunk with the same line has the
 * same contents or newer ones.
 */
void
redo_write_lines(const uintptr_t *lines, int n, uint64 *publish, uint64 value, bool sync)
{
	RedoEntry  *entry = (RedoEntry *) (chunk_buffer + sizeof(RedoChunk));
	uint32		nblocks = REDO_CHUNK_BLOCKS(n);
	uint64		position;

	Assert(n > 0 && n <= (int) REDO_CHUNK_LINES);
	/* the word must not become durable before the lines that did not fit its chunk */
	if (publish != NULL)
		redo_sync();
	position = enter_log(nblocks);
	for (int i = 0; i < n; i++, entry++)
	{
		entry->where = (uint64) ((char *) lines[i] - PoolBase) | REDO_LINE;
		copy_line(entry->word, (const uint64 *) lines[i]);
		if ((uintptr_t) publish - lines[i] < PM_LINE)
			entry->word[((uintptr_t) publish - lines[i]) / 8] = value;
	}
	write_chunk(position, nblocks, n, sync);
	if (publish != NULL)
		__atomic_store_n(publish, value, __ATOMIC_RELEASE);
	leave_log();
}

/* Logs that space of the file was taken or given back.  Not synchronised. */
void
redo_write_space(int kind, uint64 offset, uint64 bytes)
{
	RedoEntry  *entry = (RedoEntry *) (chunk_buffer + sizeof(RedoChunk));
	uint64		position = enter_log(1);

	memset(entry, 0, sizeof(RedoEntry));
	entry->where = offset | (uint64) kind;
	entry->word[0] = bytes;
	write_chunk(position, 1, 1, false);
	leave_log();
}

/* Makes durable what redo_write_space() has logged; does nothing on other media. */
void
redo_drain_space(void)
{
	if (persist_logs())
		pm_drain();
}

/* ---- begin and end ---- */

/* Sets the superblock's nonce, durably, in the pool file */
static bool
set_nonce(const uint64 *nonce)
{
	char	   *page = (char *) ((uintptr_t) PoolSuper & ~(uintptr_t) 4095);

	memcpy(PoolSuper->redo_nonce, nonce, sizeof(PoolSuper->redo_nonce));
	return msync(page, 4096, MS_SYNC) == 0;
}

/* Also true of a range that was allocated and never written: a write may find no room. */
static bool
has_holes(int fd, uint64 bytes)
{
	off_t		hole = lseek(fd, 0, SEEK_HOLE);

	return hole >= 0 && (uint64) hole < bytes;
}

/*
 * Makes a file of the right size whose blocks are all written, so that later writes change
 * no metadata and need no space.  A copy may have holes where the ring was never used; no
 * log is needed at this point, so it is made anew.  It is synchronised with its header.
 */
static bool
make_file(uint64 bytes)
{
	static const char zero[1 << 20] __attribute__((aligned(REDO_BLOCK)));
	int			fd;
	uint64		at;
	struct stat st;
	bool		ok;

	fd = open(redo_path(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	ok = fstat(fd, &st) == 0 && fchmod(fd, 0600) == 0;
	if (ok && ((uint64) st.st_size != bytes || has_holes(fd, bytes)))
	{
		ok = ftruncate(fd, 0) == 0;
		for (at = 0; ok && at < bytes; at += sizeof(zero))
		{
			errno = ENOSPC;
			ok = pwrite(fd, zero, Min(sizeof(zero), bytes - at), (off_t) at) ==
				(ssize_t) Min(sizeof(zero), bytes - at);
		}
	}
	if (close(fd) != 0 || !ok)
		return false;

	return pool_file_make_name_durable(redo_path());
}

static bool
open_file(void)
{
	if (redo_fd >= 0)
		return true;
	redo_fd = open(redo_path(), O_RDWR | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
	if (redo_fd < 0 && errno == EINVAL)
		redo_fd = open(redo_path(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return redo_fd >= 0;
}

/*
 * The postmaster ends, after all its children: writes everything back, so that the pool
 * file is complete without the log.  (Shared memory is gone already.)  If the postmaster
 * was ended otherwise, some children may still be there and write to the log.
 */
static void
end_log(int code, Datum arg)
{
	static const uint64 none[2] = {0, 0};

	if (code != 0 || MyProcPid != (int) DatumGetInt32(arg))
		return;
	if (was_in_doubt())
	{
		ereport(LOG,
				(errmsg("sofort pool \"%s\" could not be written back", pm_pool_file),
				 errdetail("The next start replays its redo log.")));
		return;
	}
	if (!sync_pool(pm_pool_fd, 0) || !set_nonce(none))
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not synchronize sofort pool \"%s\": %m", pm_pool_file)));
	else
		ereport(LOG, (errmsg("sofort pool \"%s\" is written back", pm_pool_file)));
}

/*
 * After a crash of one backend, before anybody reads the pool.  What is in memory is newer
 * than the log, and redo_begin() gives the log up; but not if the pool file may have pages
 * that the kernel could not write, and will not write again.
 */
bool
redo_recover_doubtful(const PoolControl *control, PoolRefusal *why)
{
	return !was_in_doubt() || redo_recover(pm_pool_fd, control, why);
}

/*
 * Is this page, of zeros, in a hole of the file?  Then there is nothing that it could change
 * back to.  (The kernel reads ahead, so many of them are in memory.)
 */
static bool
is_in_hole(const char *page, uint64 offset)
{
	static const char zeros[4096];
	off_t		data;

	if (memcmp(page, zeros, sizeof(zeros)) != 0)
		return false;
	data = lseek(pm_pool_fd, (off_t) offset, SEEK_DATA);
	return data < 0 ? errno == ENXIO : (uint64) data >= offset + sizeof(zeros);
}

/*
 * Makes all pages dirty that are in memory.  One that the kernel wrongly takes for clean,
 * and that was not replayed, could change back after somebody has read it.
 */
static bool
write_again(void)
{
	static unsigned char resident[1024];
	static char page[4096];
	const uint64 step = sizeof(resident) * sizeof(page);
	uint64		npages = 0;

	for (int e = 0; e < pm_nextents; e++)
	{
		uint64		end = granule_offset(e, Min(words_prepared(e), pm_extent[e].ngranules));

		for (uint64 at = pm_extent[e].offset; at < end; at += step)
		{
			uint64		len = Min(step, end - at);

			if (mincore(PoolBase + at, len, resident) != 0)
				return false;
			for (uint64 i = 0; i < len / sizeof(page); i++)
			{
				uint64		offset = at + i * sizeof(page);

				if ((resident[i] & 1) == 0)
					continue;
				memcpy(page, PoolBase + offset, sizeof(page));
				if (is_in_hole(page, offset))
					continue;
				errno = ENOSPC;
				if (pwrite(pm_pool_fd, page, sizeof(page), (off_t) offset) == sizeof(page))
					npages++;
				else if (errno != ENOSPC && errno != EDQUOT)
					return false;
				/* else nobody uses it: its space was given back */
			}
		}
	}
	ereport(LOG,
			(errmsg("sofort pool \"%s\" was perhaps not written back: " UINT64_FORMAT " pages are written again",
					pm_pool_file, npages)));
	return true;
}

/*
 * Begins a new, empty log, in the postmaster, before anybody flushes anything.  After a
 * crash of one backend the memory is newer than the old log, or the log has been replayed.
 * Order: file written back | nonce 0 | header | nonce.
 */
bool
redo_begin(const uint8 *pool_id, PoolRefusal *why)
{
	static const uint64 none[2] = {0, 0};
	static bool exit_registered = false;
	RedoHeader *header = &redo->header;
	uint64		bytes = (uint64) sofort_redo_size_mb << 20;

	redo->nblocks = bytes / REDO_BLOCK - 2;
	if (!redo_find_doubt(why))
		return false;
	if (was_in_doubt() && !write_again())
		return pool_refuse_errno(why, "write", pm_pool_file, WRITE_HINT);
	if (!sync_pool(pm_pool_fd, 0) || !set_nonce(none))
		return pool_refuse_errno(why, "synchronize", pm_pool_file, WRITE_HINT);

	header->magic = REDO_MAGIC;
	header->layout_version = SOFORT_LAYOUT_VERSION;
	memcpy(header->pool_id, pool_id, sizeof(header->pool_id));
	header->superblock_offset = (uint64) ((char *) PoolSuper - PoolBase);
	header->nblocks = redo->nblocks;
	header->start = 1;
	if (!pg_strong_random(header->nonce, sizeof(header->nonce)))
		return pool_refuse(why, ERRCODE_INTERNAL_ERROR, NULL, NULL,
						   "could not generate a random number for \"%s\"", redo_path());
	header->nonce[0] |= 1;		/* never none */

	/* both blocks: an older header must not win */
	if (!make_file(bytes) || !open_file() || !write_header(header) || !write_header(header))
		return pool_refuse(why, errno == ENOSPC || errno == EDQUOT ? ERRCODE_DISK_FULL : ERRCODE_IO_ERROR,
						   "Free space on the file system that holds the pool, or lower sofort.redo_size.",
						   NULL, "could not write file \"%s\": %s", redo_path(), strerror(errno));
	if (!set_nonce(header->nonce))
		return pool_refuse_errno(why, "synchronize", pm_pool_file, WRITE_HINT);
	if (!exit_registered)
		on_proc_exit(end_log, Int32GetDatum(MyProcPid));
	exit_registered = true;
	return true;
}

/* ---- worker ---- */

/*
 * Entry point of the worker: writes the pool back when half of the log is used, so that
 * nobody has to wait for that.
 */
void
sofort_redo_worker(Datum arg)
{
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SIG_IGN);
	BackgroundWorkerUnblockSignals();
	if (!persist_logs())
		proc_exit(0);			/* and not again */
	redo->worker = my_proc_number();
	while (!ShutdownRequestPending)
	{
		if (pg_atomic_read_u32(&redo->asked) != 0)
			redo_checkpoint();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	redo->worker = -1;
	proc_exit(1);
}

void
redo_register_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "sofort", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "sofort_redo_worker", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "sofort pool writer", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "sofort pool writer", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
