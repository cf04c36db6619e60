/*-------------------------------------------------------------------------
 *
 * redo.c
 *	  The redo log of an ordinary file (src/pmem/redo.c, redo_recover.c).
 *
 * Each life of the server is a process.  It ends in the middle of something; then
 * the pool file gets, page by page, what the kernel had to write (what the file held
 * when it was last synchronised), or whatever it might have written since,
 * and the log loses what was not synchronised: chunks, headers, its name.  The next life
 * replays the log: each line must hold what it held at its last drained flush, or something
 * later.
 *
 * The calls into the kernel that the argument in src/pmem/README.md rests on are
 * seen here (redo_calls.h).
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"
#include "redo_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sofort/pmem/redo.h"
#include "storage/ipc.h"
#include "storage/latch.h"

/* the calls themselves: those of all other sources come here (redo_calls.h) */
#undef fallocate
#undef fdatasync
#undef msync
#undef pwrite
#undef pwritev2

#define PAGE			4096
#define AREA_GRANULES	8
#define AREA			((Size) AREA_GRANULES * PM_GRANULE)
#define AREA_LINES		(AREA / PM_LINE)
#define AREA_PAGES		(AREA / PAGE)
#define MOST_UNSYNCED	64

/* Of all lives */
typedef struct Shared
{
	uint64		area;			/* offset in the pool file; 0: there is none yet */
	uint64		super;			/* the same of the superblock's page */
	uint64		durable[AREA_LINES];	/* version at the last drained flush */
	uint64		stored[AREA_LINES]; /* last version */
	uint64		flushed[AREA_LINES];	/* last version that was flushed */
	char		synced[AREA];	/* the file, when its last synchronisation began */
	char		super_synced[PAGE];
	uint64		checkpoints;
	uint64		chunks;

	/* chunks written without synchronisation, or being written */
	int			nunsynced;
	struct
	{
		off_t		at;
		Size		bytes;
	}			unsynced[MOST_UNSYNCED];

	/* headers that were written since, and what was there */
	bool		header_open[2];
	char		header_before[2][PAGE];
	bool		log_named;		/* its directory was synchronised */

	/*
	 * The next synchronisation of the pool file, or write of a chunk, fails.  The file's
	 * pages count as clean then: none is written that is not dirtied again.
	 */
	bool		fail_sync;
	int			fail_errno;		/* of a synchronisation; 0: EIO */
	bool		fail_chunk;
	int			refusal;		/* SQLSTATE of the last start that has failed */
	bool		clean[AREA_PAGES];
	char		failed[AREA];	/* what they held */

	/* a range that was given back; how often it was allocated as a whole, and written to, since */
	uint64		freed;
	uint64		freed_bytes;
	int			taken_again;

	/* each call into the kernel is an event: end the life before the nth; 0: do not */
	uint64		cut_at;
	uint64		events;
	bool		counting;
	uint64		published;		/* last value of the word that pm_publish8() stores */
	uint64		publishing;
	uint64		needed[AREA_LINES]; /* by publishing: what was flushed before */
} Shared;

static Shared *shared;

extern void sofort_redo_worker(Datum arg);
static const RedoCall *lost = NULL; /* does nothing */
static const char *lost_function = NULL;
static void (*while_pool_syncs) (void) = NULL;

void
fault_reached(const char *point)
{
}

volatile uint32 *fault_armed = NULL;

/* ---- what the kernel is asked for ---- */

static const char *
log_name(void)
{
	static char path[MAXPGPATH + 8];

	snprintf(path, sizeof(path), "%s.redo", sofort_pool_path);
	return path;
}

static bool
is_file(int fd, const char *path)
{
	struct stat a;
	struct stat b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static void
event(void)
{
	if (shared->counting && ++shared->events == shared->cut_at)
		_exit(0);
}

/* (through a descriptor of its own: others may have O_DIRECT) */
static void
read_at(const char *path, char *to, Size bytes, uint64 at)
{
	int			fd = open(path, O_RDONLY);

	memset(to, 0, bytes);
	if (fd < 0 || pread(fd, to, bytes, (off_t) at) < 0)
		abort();
	close(fd);
}

/* The pool file is durable as it is, but for what the kernel takes for clean. */
static void
note_synced(void)
{
	static char now[AREA];

	read_at(sofort_pool_path, now, AREA, shared->area);
	for (uint64 i = 0; i < AREA_PAGES; i++)
	{
		if (shared->clean[i] && memcmp(now + i * PAGE, shared->failed + i * PAGE, PAGE) == 0)
			continue;
		shared->clean[i] = false;
		memcpy(shared->synced + i * PAGE, now + i * PAGE, PAGE);
	}
	read_at(sofort_pool_path, shared->super_synced, PAGE, shared->super);
}

static void
note_failed(void)
{
	read_at(sofort_pool_path, shared->failed, AREA, shared->area);
	for (uint64 i = 0; i < AREA_PAGES; i++)
		shared->clean[i] = memcmp(shared->failed + i * PAGE, shared->synced + i * PAGE, PAGE) != 0;
}

/* Pages that are written are dirty again, also if nothing in them changes. */
static void
note_written(off_t at, size_t n)
{
	for (uint64 page = (uint64) at / PAGE; page * PAGE < (uint64) at + n; page++)
	{
		if (page >= shared->area / PAGE && page - shared->area / PAGE < AREA_PAGES)
			shared->clean[page - shared->area / PAGE] = false;
	}
}

/* (No power fails but ours: the files themselves need not be synchronised.) */
int
redo_fdatasync(int fd, const RedoCall *site)
{
	event();
	if (site == lost)
		return 0;
	if (is_file(fd, sofort_pool_path) && shared->area != 0)
	{
		if (shared->fail_sync)
		{
			shared->fail_sync = false;
			note_failed();
			errno = shared->fail_errno != 0 ? shared->fail_errno : EIO;
			return -1;
		}
		note_synced();
		shared->checkpoints++;
		if (while_pool_syncs != NULL)
			while_pool_syncs();
	}
	if (is_file(fd, log_name()))
	{
		shared->nunsynced = 0;
		shared->header_open[0] = shared->header_open[1] = false;
	}
	return 0;
}

/* (of the superblock's page) */
int
redo_msync(void *p, size_t n, int flags, const RedoCall *site)
{
	event();
	if (site == lost)
		return 0;
	memcpy(shared->super_synced, p, PAGE);
	return 0;
}

static bool
was_freed(uint64 at, uint64 n)
{
	return at < shared->freed + shared->freed_bytes && at + n > shared->freed;
}

/* (single granules are kept back at each start) */
int
redo_fallocate(int fd, int mode, off_t at, off_t n)
{
	if (mode == 0 && n > PM_GRANULE && was_freed((uint64) at, (uint64) n))
		shared->taken_again++;
	return fallocate(fd, mode, at, n);
}

/* Headers of the log; and of the pool what is replayed (no events: many), and the nonce */
ssize_t
redo_pwrite(int fd, const void *p, size_t n, off_t at)
{
	bool		pool = is_file(fd, sofort_pool_path);

	if (!pool || n < PM_LINE)
		event();
	if (pool && was_freed((uint64) at, n))
		shared->taken_again++;
	if (pool)
		note_written(at, n);
	else if (is_file(fd, log_name()) && at < 2 * REDO_BLOCK)
	{
		for (int i = (int) (at / REDO_BLOCK); i < 2 && (off_t) i * REDO_BLOCK < at + (off_t) n; i++)
		{
			if (!shared->header_open[i])
				read_at(log_name(), shared->header_before[i], PAGE, (uint64) i * REDO_BLOCK);
			shared->header_open[i] = true;
		}
	}
	return pwrite(fd, p, n, at);
}

ssize_t
redo_pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags, const RedoCall *site)
{
	ssize_t		rc;

	shared->chunks++;
	if (shared->nunsynced == MOST_UNSYNCED)
		abort();
	shared->unsynced[shared->nunsynced].at = at;
	shared->unsynced[shared->nunsynced++].bytes = io->iov_len;
	rc = pwritev2(fd, io, n, at, 0);
	event();
	if (shared->fail_chunk)
	{
		shared->fail_chunk = false;
		errno = EIO;
		return -1;
	}
	/* this one alone; redo.c synchronises those before it */
	if ((flags & RWF_DSYNC) && site != lost)
		shared->nunsynced--;
	return rc;
}

extern void __real_redo_drain_space(void);
extern void __wrap_redo_drain_space(void);
extern int	__real_fsync_fname_ext(const char *name, bool isdir, bool ignore_perm, int elevel);
extern int	__wrap_fsync_fname_ext(const char *name, bool isdir, bool ignore_perm, int elevel);

static bool
is_lost(const char *function)
{
	return lost_function != NULL && strcmp(lost_function, function) == 0;
}

void
__wrap_redo_drain_space(void)
{
	if (!is_lost("redo_drain_space"))
		__real_redo_drain_space();
}

int
__wrap_fsync_fname_ext(const char *name, bool isdir, bool ignore_perm, int elevel)
{
	event();
	if (is_lost("fsync_fname_ext"))
		return 0;
	shared->log_named = true;
	return __real_fsync_fname_ext(name, isdir, ignore_perm, elevel);
}

/* ---- what the worker is made of ---- */

static PGPROC worker_proc[UNIT_PROCESSES];
static PROC_HDR worker_header = {.allProcs = worker_proc};
static bool woken;				/* its latch */
static void (*while_it_sleeps) (void) = NULL;

volatile sig_atomic_t ShutdownRequestPending = false;
struct Latch *MyLatch = NULL;

void
SetLatch(Latch *latch)
{
	woken = true;
}

void
ResetLatch(Latch *latch)
{
	woken = false;
}

int
WaitLatch(Latch *latch, int events, long timeout, uint32 info)
{
	while_it_sleeps();
	ShutdownRequestPending = true;
	return WL_LATCH_SET;
}

pqsigfunc
pqsignal(int signo, pqsigfunc function)
{
	return NULL;
}

void
SignalHandlerForShutdownRequest(SIGNAL_ARGS)
{
}

void
BackgroundWorkerUnblockSignals(void)
{
}

void
proc_exit(int code)
{
	_exit(code == 1 ? 0 : 9);
}

/* ---- a life ---- */

static uint64 *
line_at(uint64 i)
{
	return (uint64 *) (PoolBase + shared->area + i * PM_LINE);
}

/* All words of a line follow from its number and version. */
static uint64
word_of(uint64 line, uint64 version, int k)
{
	return version == 0 ? 0 : (version << 24 | line << 3 | (uint64) k);
}

static void
store_line(uint64 i)
{
	uint64	   *word = line_at(i);
	uint64		version = shared->stored[i] + 1;

	for (int k = 0; k < 8; k++)
		word[k] = word_of(i, version, k);
	shared->stored[i] = version;
}

static void
flush_line(uint64 i)
{
	pm_flush(line_at(i), PM_LINE);
	shared->flushed[i] = shared->stored[i];
}

static void
drain(void)
{
	static uint64 flushed[AREA_LINES];

	memcpy(flushed, shared->flushed, sizeof(flushed));
	pm_drain();
	memcpy(shared->durable, flushed, sizeof(flushed));
}

/* The word of line 0 that is published: nothing that was flushed before may be older. */
static void
publish(void)
{
	static uint64 flushed[AREA_LINES];

	memcpy(flushed, shared->flushed, sizeof(flushed));
	memcpy(shared->needed, flushed, sizeof(flushed));
	shared->publishing = shared->published + 1;
	pm_drain_to_publish();
	pm_publish8(line_at(0), shared->publishing << 24);
	memcpy(shared->durable, flushed, sizeof(flushed));
	shared->published = shared->publishing;
}

static void
load(uint64 steps)
{
	for (uint64 n = 0; n < steps; n++)
	{
		uint64		k = 1 + random_below(random_below(20) == 0 ? 1200 : 12);

		while (k-- > 0)
		{
			/* some lines again and again */
			uint64		i = 1 + random_below(random_below(2) ? 40 : AREA_LINES - 1);

			store_line(i);
			if (random_below(8) != 0)
				flush_line(i);
		}
		switch (random_below(8))
		{
			case 0:
				break;			/* not drained */
			case 1:
				publish();
				break;
			default:
				drain();
				break;
		}
	}
}

static PmReservation area;

static void
make_area(void)
{
	pm_vector_reserve(&PoolSuper->stores, 8, PM_OWNER_POOL, 0);
	pm_reserve(&area, pool_next_store_id(), AREA, pm_vector_get(&PoolSuper->stores, 0), 1, PM_RESERVE_ZERO);
	pm_publish(&area);
	shared->area = area.target & PM_OFFSET_MASK;
	shared->super = (uint64) ((char *) PoolSuper - PoolBase) & ~(uint64) (PAGE - 1);
}

/* Is each line at least as new as it must be, and of one version? */
static void
check_area(void)
{
	uint64		bad = 0;

	/* the word is there: so must be all that was flushed before */
	if (shared->publishing != shared->published && *line_at(0) == shared->publishing << 24)
		memcpy(shared->durable, shared->needed, sizeof(shared->durable));
	for (uint64 i = 1; i < AREA_LINES; i++)
	{
		const uint64 *word = line_at(i);
		uint64		version = word[0] >> 24;
		bool		right = version >= shared->durable[i] && version <= shared->stored[i];

		for (int k = 0; k < 8; k++)
			right &= word[k] == word_of(i, version, k);
		if (!right && bad++ < 5)
			fprintf(stderr, "line " UINT64_FORMAT " has version " UINT64_FORMAT " of " UINT64_FORMAT ", " UINT64_FORMAT " was durable\n",
					i, version, shared->stored[i], shared->durable[i]);
		shared->stored[i] = shared->flushed[i] = shared->durable[i] = version;
	}
	if (*line_at(0) != shared->published << 24 && *line_at(0) != shared->publishing << 24)
	{
		fprintf(stderr, "the published word is " UINT64_FORMAT ", not " UINT64_FORMAT "\n", *line_at(0) >> 24, shared->published);
		bad++;
	}
	shared->published = shared->publishing = *line_at(0) >> 24;
	if (bad > 0)
		_exit(3);
}

/* Runs in a process of its own; its exit code is 0 if all was well. */
static int
in_life(void (*run) (uint64 arg), uint64 arg)
{
	pid_t		pid;
	int			status;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
	{
		if (!server_try_start())
		{
			fprintf(stderr, "%s\n", pm_shared->message);
			shared->refusal = pm_shared->sqlstate;
			_exit(2);
		}
		run(arg);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* ---- what is left in the files ---- */

/* Pages of the pool file: as they were when it was synchronised, or as they are */
static void
cut_pool_file(void)
{
	int			fd = open(sofort_pool_path, O_RDWR);

	check(fd >= 0);
	for (Size at = 0; at < AREA; at += PAGE)
	{
		if (shared->clean[at / PAGE] || random_below(3) != 0)
			check(pwrite(fd, shared->synced + at, PAGE, (off_t) (shared->area + at)) == PAGE);
	}
	if (random_below(2))
		check(pwrite(fd, shared->super_synced, PAGE, (off_t) shared->super) == PAGE);
	close(fd);
	memset(shared->clean, 0, sizeof(shared->clean));
	note_synced();

	/* The word in the lock file is what it was at some time. */
	if (random_below(2))
	{
		char		path[MAXPGPATH + 8];

		snprintf(path, sizeof(path), "%s.lock", sofort_pool_path);
		check(truncate(path, 0) == 0);
	}
}

/* The kernel needs memory: pages that count as clean are read again when they are used. */
static void
evict_pages(void)
{
	int			fd = open(sofort_pool_path, O_RDWR);

	check(fd >= 0);
	for (Size at = 0; at < AREA; at += PAGE)
	{
		if (shared->clean[at / PAGE] && random_below(2))
		{
			check(pwrite(fd, shared->synced + at, PAGE, (off_t) (shared->area + at)) == PAGE);
			memcpy(shared->failed + at, shared->synced + at, PAGE);
		}
	}
	close(fd);
}

/* Headers and chunks that were not synchronised: whole, or each block there, or not, or half */
static void
cut_log(void)
{
	static char junk[PAGE];
	int			fd = open(log_name(), O_RDWR);

	for (int i = 0; i < 2; i++)
	{
		if (shared->header_open[i] && random_below(2))
			check(pwrite(fd, shared->header_before[i], PAGE, (off_t) i * REDO_BLOCK) == PAGE);
		shared->header_open[i] = false;
	}
	for (int i = 0; i < shared->nunsynced; i++)
	{
		if (random_below(2))
			continue;
		for (Size at = 0; at < shared->unsynced[i].bytes; at += PAGE)
		{
			Size		from = random_below(2) * (PAGE / 2);

			memset(junk, (int) random_below(256), sizeof(junk));
			if (random_below(2))
				check(pwrite(fd, junk + from, PAGE - from, shared->unsynced[i].at + (off_t) (at + from)) > 0);
		}
	}
	if (fd >= 0)
		close(fd);
	shared->nunsynced = 0;
	if (!shared->log_named)
		(void) unlink(log_name());
}

static void
first_life(uint64 steps)
{
	/* what was allocated for others to use is in the log */
	if (shared->nunsynced != 0)
		_exit(4);
	make_area();
	redo_checkpoint();
	load(steps);
}

static void
begin_counting(void)
{
	shared->counting = true;
}

static void
next_life(uint64 steps)
{
	check_area();
	begin_counting();
	load(steps);
}

/*
 * One backend crashes: what is in memory is newer than the log.  From the start on all of it is
 * durable, whether it was drained or not (pm_found_is_durable()).
 */
static void
restarted_life(uint64 steps)
{
	check_area();
	load(steps);
	begin_counting();
	if (!server_try_start())
		_exit(2);
	check_area();
	load(10);
}

/*
 * A backend meets an error of the disk and dies of that, PANIC.  The server goes on, or it
 * ends (restart_after_crash), or all else dies, too.
 */
static void
failed_life(uint64 steps)
{
	bool		chunk = random_below(3) == 0;
	pid_t		pid;
	int			status;

	check_area();
	load(steps / 2);
	redo_checkpoint();
	fflush(NULL);
	pid = fork();
	if (pid == 0)
	{
		close(STDERR_FILENO);	/* the PANIC */
		load(steps);
		shared->fail_sync = !chunk;
		shared->fail_chunk = chunk;
		if (chunk)
		{
			store_line(1);
			flush_line(1);
			drain();
		}
		else
			redo_checkpoint();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		_exit(7);
	evict_pages();
	switch (random_below(3))
	{
		case 0:
			return;
		case 1:
			server_stop();
			return;
	}
	begin_counting();
	if (!server_try_start())
		_exit(2);
	check_area();
	load(random_below(30));
}

/* It ends in order: the pool file is complete alone. */
static void
stopped_life(uint64 steps)
{
	check_area();
	load(steps);
	drain();
	server_stop();
	if (unlink(log_name()) != 0)
		_exit(5);
	shared->log_named = false;
}

/* The same, and the log stays */
static void
ended_life(uint64 steps)
{
	check_area();
	server_stop();
}

/* On a medium without a log: the file must not ask for one any more, now and after a power cut. */
static void
other_life(uint64 steps)
{
	const PoolSuperblock *super = (const PoolSuperblock *)
		(shared->super_synced + (((char *) PoolSuper - PoolBase) & (PAGE - 1)));

	check_area();
	if (super->redo_nonce[0] != 0)
		_exit(6);
}

static int
begin(void **state)
{
	shared = shared_memory(sizeof(Shared));
	sofort_durability = PM_DURABILITY_MSYNC;
	sofort_redo_size_mb = 1;
	server_begin();
	seed_random(unit_seed());
	return 0;
}

static int
end(void **state)
{
	server_end();
	munmap(shared, sizeof(Shared));
	return 0;
}

static void
one_life(void (*run) (uint64), uint64 steps, uint64 cut_at, bool in_start)
{
	shared->cut_at = cut_at;
	shared->events = 0;
	shared->counting = in_start;
	check(in_life(run, steps) == 0);
	shared->counting = false;
	/* the children draw from a sequence of their own */
	seed_random(random_below(1000000) + unit_seed());
}

static void
life(void (*run) (uint64), uint64 steps, uint64 cut_at)
{
	one_life(run, steps, cut_at, false);
}

/* ---- tests ---- */

/* Power fails between two steps, or in a write of the log, again and again. */
static void
test_power_cuts(void **state)
{
	life(first_life, 40, 0);
	for (int i = 0; i < 40; i++)
	{
		cut_pool_file();
		cut_log();
		life(next_life, 10 + random_below(600), i % 3 == 0 ? 0 : 30 + random_below(800));
	}
	print_message("%d chunks, %d checkpoints\n", (int) shared->chunks, (int) shared->checkpoints);
	assert_true(shared->chunks > 1000);
	/* the ring was used again and again */
	assert_true(shared->checkpoints > 15);
}

/* What the kernel could not write it takes for clean: the log is needed until all is written again. */
static void
test_failed_writes(void **state)
{
	life(first_life, 40, 0);
	for (int i = 0; i < 24; i++)
	{
		cut_pool_file();
		cut_log();
		life(failed_life, 10 + random_below(100), i % 3 != 0 ? 0 : 1 + random_below(20));
		/* and when it has recovered, all are killed: the file is as it was */
		if (i % 4 == 0)
			life(next_life, random_below(10), 0);
	}
}

/* More is flushed than a chunk holds, and then a word is published. */
static void
publish_many(uint64 steps)
{
	check_area();
	begin_counting();
	for (uint64 n = 0; n < steps; n++)
	{
		for (uint64 i = 1; i <= 2500; i++)
		{
			store_line(i);
			flush_line(i);
		}
		publish();
	}
}

/* Power fails in each write of such a publication. */
static void
test_large_publication(void **state)
{
	life(first_life, 5, 0);
	for (int i = 0; i < 60; i++)
	{
		cut_pool_file();
		cut_log();
		life(publish_many, 2, 1 + i % 6);
	}
	cut_pool_file();
	cut_log();
	life(next_life, 1, 0);
}

/* The test's own test: a page that is older than the last checkpoint is noticed. */
static void
test_lost_page(void **state)
{
	static char old[AREA];

	life(first_life, 5, 0);
	memcpy(old, shared->synced, AREA);
	cut_log();
	life(next_life, 2000, 0);
	memcpy(shared->synced, old, AREA);
	cut_pool_file();
	cut_log();
	assert_int_equal(in_life(next_life, 0), 3);
}

/* ... and a chunk that was synchronised, and is gone */
static void
test_lost_chunk(void **state)
{
	int			fd;
	static char zero[PAGE];

	life(first_life, 30, 0);
	cut_pool_file();
	fd = open(log_name(), O_RDWR);
	for (int block = 2; block < 256; block++)
		assert_int_equal(pwrite(fd, zero, PAGE, (off_t) block * PAGE), PAGE);
	close(fd);
	for (Size at = 0; at < AREA; at += PAGE)
	{
		fd = open(sofort_pool_path, O_RDWR);
		assert_int_equal(pwrite(fd, shared->synced + at, PAGE, (off_t) (shared->area + at)), PAGE);
		close(fd);
	}
	assert_int_equal(in_life(next_life, 0), 3);
}

static void
no_life(uint64 arg)
{
}

/* A start is refused with this. */
static void
refused_with(int sqlstate)
{
	shared->refusal = 0;
	assert_int_equal(in_life(no_life, 0), 2);
	assert_int_equal(shared->refusal, sqlstate);
}

static void
full_life(uint64 arg)
{
	shared->fail_sync = true;
	if (server_try_start())
		_exit(8);
	shared->refusal = pm_shared->sqlstate;
}

/* The disk is full when the log is replayed, when one begins, and after the crash of a backend. */
static void
test_disk_full(void **state)
{
	life(first_life, 40, 0);
	cut_pool_file();
	cut_log();
	shared->fail_errno = ENOSPC;
	shared->fail_sync = true;
	refused_with(ERRCODE_DISK_FULL);
	/* replayed and stopped in order: the first synchronisation is that of a new log */
	life(stopped_life, 0, 0);
	shared->fail_sync = true;
	refused_with(ERRCODE_DISK_FULL);
	shared->refusal = 0;
	life(full_life, 0, 0);
	assert_int_equal(shared->refusal, ERRCODE_DISK_FULL);
	life(next_life, 0, 0);
}

static void
short_life(uint64 steps)
{
	check_area();
	load(steps);
	drain();
	redo_checkpoint();
}

/* All processes are killed; when the log has been replayed, the disk fails; later the power, too. */
static void
test_failed_replay(void **state)
{
	life(first_life, 40, 0);
	for (int i = 0; i < 24; i++)
	{
		life(next_life, 10 + random_below(100), 30 + random_below(300));
		shared->fail_sync = true;
		refused_with(ERRCODE_IO_ERROR);
		evict_pages();
		life(short_life, random_below(3), 0);
		cut_pool_file();
		cut_log();
	}
	life(next_life, 0, 0);
}

/* A log that others may read or write is refused as such a pool is, needed or not. */
static void
test_log_of_others(void **state)
{
	char		away[MAXPGPATH + 16];

	snprintf(away, sizeof(away), "%s.away", log_name());
	life(first_life, 10, 0);
	for (int needed = 1; needed >= 0; needed--)
	{
		assert_int_equal(chmod(log_name(), 0640), 0);
		refused_with(ERRCODE_INSUFFICIENT_PRIVILEGE);
		assert_int_equal(chmod(log_name(), 0602), 0);
		refused_with(ERRCODE_INSUFFICIENT_PRIVILEGE);
		assert_int_equal(chmod(log_name(), 0600), 0);
		if (geteuid() == 0)
		{
			assert_int_equal(chown(log_name(), 1, (gid_t) -1), 0);
			refused_with(ERRCODE_INSUFFICIENT_PRIVILEGE);
			assert_int_equal(chown(log_name(), 0, (gid_t) -1), 0);
		}
		assert_int_equal(rename(log_name(), away), 0);
		assert_int_equal(symlink(away, log_name()), 0);
		refused_with(ERRCODE_WRONG_OBJECT_TYPE);
		assert_int_equal(unlink(log_name()), 0);
		/* (nobody waits for who would write to it) */
		assert_int_equal(mkfifo(log_name(), 0600), 0);
		alarm(30);
		refused_with(ERRCODE_WRONG_OBJECT_TYPE);
		alarm(0);
		assert_int_equal(unlink(log_name()), 0);
		assert_int_equal(rename(away, log_name()), 0);
		life(needed ? ended_life : next_life, 0, 0);
	}
}

/* A granule that is kept back is in the log before others can take it. */
static void
spare_life(uint64 arg)
{
	PMPtr	   *link = pm_vector_get(&PoolSuper->stores, 1);
	StoreId		owner = pool_next_store_id();
	PmReservation r;

	check_area();
	server_become(1);
	pm_reserve(&r, owner, PM_GRANULE, link, 1, 0);
	pm_publish(&r);
	pm_shared->nspare--;
	if (!pm_free(owner, link, 1) || pm_shared->nspare != PM_SPARE_GRANULES || shared->nunsynced != 0)
		_exit(4);
}

/* Allocate, fill, free; some of it is allocated again, with other contents. */
static void
freeing_life(uint64 again)
{
	PMPtr	   *link = pm_vector_get(&PoolSuper->stores, 1);
	StoreId		owner = pool_next_store_id();
	PmReservation r;

	check_area();
	server_become(1);
	pm_reserve(&r, owner, 4 * PM_GRANULE, link, 1, 0);
	memset(r.addr, 0x55, r.size);
	pm_flush(r.addr, r.size);
	pm_publish(&r);
	if (!pm_free(owner, link, 1))
		_exit(4);
	shared->freed = r.target & PM_OFFSET_MASK;
	shared->freed_bytes = r.size;

	/* who had flushed something of it before learns nothing of that, and drains */
	pm_flush(r.addr, r.size);
	pm_drain();
	if (again == 0)
		return;
	pm_reserve(&r, owner, PM_GRANULE, link, 1, 0);
	if ((r.target & PM_OFFSET_MASK) != shared->freed)
		_exit(10);
	memset(r.addr, 0x66, r.size / 2);
	pm_flush(r.addr, r.size / 2);
	pm_publish(&r);
	shared->freed += PM_GRANULE;
	shared->freed_bytes -= PM_GRANULE;
}

static void
life_after_freeing(uint64 again)
{
	PMPtr	   *link = pm_vector_get(&PoolSuper->stores, 1);

	check_area();
	if (shared->taken_again != 0)
		_exit(11);
	for (Size i = 0; again != 0 && i < PM_GRANULE / 2; i++)
		if (((unsigned char *) pm_deref(*link))[i] != 0x66)
			_exit(12);
	if (again != 0 && !pm_free(PM_UNSEAL_ID(PoolSuper->next_store_id) - 1, link, 1))
		_exit(4);
}

/* What was given back is not taken again to be replayed: the file system may be full by now. */
static void
test_freed_space(void **state)
{
	life(first_life, 10, 0);
	for (uint64 again = 0; again < 2; again++)
	{
		life(freeing_life, again, 0);
		cut_pool_file();
		cut_log();
		life(life_after_freeing, again, 0);
		shared->freed_bytes = 0;
	}
}

/* Freed granules keep their blocks, and are taken again: the log has no entry for that. */
static void
keeping_life(uint64 unused)
{
	static Latch trimmer;
	PMPtr	   *link = pm_vector_get(&PoolSuper->stores, 1);
	StoreId		owner = pool_next_store_id();
	PmReservation r;
	PMPtr		first;

	check_area();
	server_become(1);
	(void) pm_trim(&trimmer);
	pm_reserve(&r, owner, 2 * PM_GRANULE, link, 1, 0);
	memset(r.addr, 0x55, r.size);
	pm_flush(r.addr, r.size);
	pm_publish(&r);
	first = r.target;
	if (!pm_free(owner, link, 1))
		_exit(4);
	pm_flush(r.addr, r.size);
	pm_reserve(&r, owner, 2 * PM_GRANULE, link, 1, 0);
	if (r.target != first || pm_shared->free_cache.nruns != 0)
		_exit(10);
	memset(r.addr, 0x66, r.size / 2);
	pm_flush(r.addr, r.size / 2);
	pm_publish(&r);
	assert_pool_is_sound();
}

static void
life_after_keeping(uint64 unused)
{
	const unsigned char *bytes = pm_deref(*(PMPtr *) pm_vector_get(&PoolSuper->stores, 1));

	check_area();
	for (Size i = 0; i < PM_GRANULE; i++)
		if (bytes[i] != 0x66)
			_exit(12);
	assert_pool_is_sound();
}

static void
test_kept_space(void **state)
{
	life(first_life, 10, 0);
	life(keeping_life, 0, 0);
	cut_pool_file();
	cut_log();
	life(life_after_keeping, 0, 0);
}

/* Chunks until the worker is woken, or there are so many */
static int
write_chunks(int process, int most)
{
	int			n = 0;

	server_become(process);
	woken = false;
	for (; n < most && !woken; n++)
	{
		store_line(1);
		flush_line(1);
		drain();
	}
	return n;
}

static void
write_meanwhile(void)
{
	while_pool_syncs = NULL;
	/* (if that wakes the worker, he waits for who does it, and goes back to sleep) */
	(void) write_chunks(3, 10);
	server_become(2);
}

static void
sleep_of_worker(void)
{
	const int	nblocks = (sofort_redo_size_mb << 20) / REDO_BLOCK - 2;

	redo_checkpoint();
	if (write_chunks(2, nblocks) < nblocks / 2 - 1 || !woken)
		_exit(11);
	while_pool_syncs = write_meanwhile;
	redo_checkpoint();
	if (while_pool_syncs != NULL)
		_exit(12);

	/* when half is used again, it is woken again */
	if (write_chunks(2, nblocks) > nblocks / 2 + 1)
		_exit(13);
}

static void
woken_life(uint64 arg)
{
	check_area();
	ProcGlobal = &worker_header;
	while_it_sleeps = sleep_of_worker;
	server_become(1);
	sofort_redo_worker((Datum) 0);
}

/* Somebody writes the pool back himself, and is asked for that meanwhile: the worker will not be forgotten. */
static void
test_worker_is_woken(void **state)
{
	life(first_life, 10, 0);
	life(woken_life, 0, 0);
}

static void
test_spare_granules(void **state)
{
	life(first_life, 10, 0);
	life(spare_life, 0, 0);
}

/* A pool that needs its log is refused without it, and with another one. */
static void
test_wrong_log(void **state)
{
	char		path[MAXPGPATH + 8];
	char		other[MAXPGPATH + 16];
	int			fd;
	uint64		nonce;
	off_t		at = offsetof(RedoHeader, nonce);

	life(first_life, 10, 0);
	snprintf(path, sizeof(path), "%s.redo", sofort_pool_path);
	snprintf(other, sizeof(other), "%s.away", path);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(in_life(no_life, 0), 2);
	assert_int_equal(rename(other, path), 0);

	/* headers that are damaged do not count */
	fd = open(path, O_RDWR);
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(pread(fd, &nonce, 8, i * REDO_BLOCK + at), 8);
		nonce ^= 4;
		assert_int_equal(pwrite(fd, &nonce, 8, i * REDO_BLOCK + at), 8);
	}
	assert_int_equal(in_life(no_life, 0), 2);
	for (int i = 0; i < 2; i++)
	{
		assert_int_equal(pread(fd, &nonce, 8, i * REDO_BLOCK + at), 8);
		nonce ^= 4;
		assert_int_equal(pwrite(fd, &nonce, 8, i * REDO_BLOCK + at), 8);
	}
	/* one of them will do: power failed while the other was written */
	assert_int_equal(pwrite(fd, "junk", 4, 0), 4);
	close(fd);
	cut_log();
	life(next_life, 0, 0);
}

/* ---- the test of the tests ---- */

/* Lives of all kinds, which end anywhere, also while they start */
static void
workout(void)
{
	static void (*const runs[]) (uint64) = {next_life, next_life, restarted_life, stopped_life};

	one_life(first_life, 40, 0, false);
	for (int i = 0; i < 60; i++)
	{
		cut_pool_file();
		cut_log();
		if (i % 8 == 7)
		{
			sofort_durability = PM_DURABILITY_PROCESS;
			one_life(other_life, 0, 0, false);
			sofort_durability = PM_DURABILITY_MSYNC;
			/* what that medium did survives no power cut: there is none */
			note_synced();
		}
		else if (i % 3 == 0)
			/* each of the first events of a start */
			one_life(next_life, random_below(200), 1 + i / 3 % 14, true);
		else
			one_life(runs[random_below(lengthof(runs))], random_below(200), random_below(3) == 0 ? 0 : 1 + random_below(300), false);
	}
}

static void
test_lives(void **state)
{
	workout();
}

extern RedoCall *const __start_redo_calls[];
extern RedoCall *const __stop_redo_calls[];

#define LOSS_SEEDS	10

static void
lose_call(const void *call)
{
	lost = call;
}

static void
lose_function(const void *function)
{
	lost_function = function;
}

/* Is it noticed with any of these dice? */
static bool
fails_without(void (*lose) (const void *what), const void *what, const char *name)
{
	for (uint64 seed = 1; seed <= LOSS_SEEDS; seed++)
	{
		if (unit_fails(seed, begin, lose, what, workout))
		{
			if (getenv("UNIT_VERBOSE") != NULL)
				print_message("%s: noticed with seed %d\n", name, (int) seed);
			return true;
		}
	}
	return false;
}

/* Each call that makes something of the log durable: the workout must fail without it. */
static void
test_lost_calls(void **state)
{
	static const char *const functions[] = {"redo_drain_space", "fsync_fname_ext"};
	const char *only = getenv("UNIT_CALL");
	int			tried = 0;
	int			bad = 0;

	for (RedoCall *const *c = __start_redo_calls; c < __stop_redo_calls; c++)
	{
		char		name[256];

		if (strstr((*c)->file, "redo") == NULL || strstr((*c)->file, "unit") != NULL)
			continue;
		snprintf(name, sizeof(name), "%s:%s:%s:%u", (*c)->file, (*c)->function, (*c)->what, (*c)->line);
		tried++;
		if ((only == NULL || strstr(name, only) != NULL) && !fails_without(lose_call, *c, name))
		{
			bad++;
			print_message("nothing notices that %s is left out\n", name);
		}
	}
	for (int i = 0; i < (int) lengthof(functions); i++)
	{
		if ((only == NULL || strcmp(functions[i], only) == 0) && !fails_without(lose_function, functions[i], functions[i]))
		{
			bad++;
			print_message("nothing notices that %s() is left out\n", functions[i]);
		}
	}
	assert_int_equal(bad, 0);
	assert_true(tried > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_power_cuts, begin, end),
		cmocka_unit_test_setup_teardown(test_failed_writes, begin, end),
		cmocka_unit_test_setup_teardown(test_large_publication, begin, end),
		cmocka_unit_test_setup_teardown(test_lost_page, begin, end),
		cmocka_unit_test_setup_teardown(test_lost_chunk, begin, end),
		cmocka_unit_test_setup_teardown(test_wrong_log, begin, end),
		cmocka_unit_test_setup_teardown(test_disk_full, begin, end),
		cmocka_unit_test_setup_teardown(test_failed_replay, begin, end),
		cmocka_unit_test_setup_teardown(test_log_of_others, begin, end),
		cmocka_unit_test_setup_teardown(test_freed_space, begin, end),
		cmocka_unit_test_setup_teardown(test_kept_space, begin, end),
		cmocka_unit_test_setup_teardown(test_worker_is_woken, begin, end),
		cmocka_unit_test_setup_teardown(test_spare_granules, begin, end),
		cmocka_unit_test_setup_teardown(test_lives, begin, end),
		cmocka_unit_test(test_lost_calls),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("redo", tests, NULL, NULL);
}
