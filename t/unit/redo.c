/*-------------------------------------------------------------------------
 *
 * redo.c
 *	  The redo log of an ordinary file (src/pmem/redo.c, redo_recover.c).
 *
 * Each life of the server is a process.  It ends in the middle of something; then
 * the pool file gets, page by page, what the kernel had to write (what memory held
 * when the file was last synchronised), or whatever it might have written since,
 * and the log loses what was not synchronised.  The next life replays the
 * log: each line must hold what it held at its last drained flush, or something
 * later.
 *
 * The calls into the kernel that the argument in src/pmem/README.md rests on are
 * seen by wrappers (--wrap): fdatasync() and pwritev2().
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sofort/pmem/redo.h"

#define PAGE			4096
#define AREA_GRANULES	8
#define AREA			((Size) AREA_GRANULES * PM_GRANULE)
#define AREA_LINES		(AREA / PM_LINE)
#define MOST_UNSYNCED	64

/* Of all lives */
typedef struct Shared
{
	uint64		area;			/* offset in the pool file */
	bool		tracking;
	uint64		durable[AREA_LINES];	/* version at the last drained flush */
	uint64		stored[AREA_LINES]; /* last version */
	uint64		flushed[AREA_LINES];	/* last version that was flushed */
	char		synced[AREA];	/* memory, when fdatasync() of the pool began */
	char		before[AREA];	/* the same, one before: at some time since then */
	uint64		checkpoints;
	uint64		chunks;

	/* chunks written without synchronisation, or being written */
	int			nunsynced;
	struct
	{
		off_t		at;
		Size		bytes;
	}			unsynced[MOST_UNSYNCED];
	uint64		cut_at;			/* end the life in this write after its start; 0: do not */
	uint64		writes;
	uint64		published;		/* last value of the word that pm_publish8() stores */
	uint64		publishing;
	uint64		needed[AREA_LINES]; /* by publishing: what was flushed before */
} Shared;

static Shared *shared;
static int	log_fd = -1;

void
fault_reached(const char *point)
{
}

volatile uint32 *fault_armed = NULL;

/* ---- what the kernel is asked for ---- */

extern int	__real_fdatasync(int fd);
extern int	__wrap_fdatasync(int fd);
extern ssize_t __real_pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags);
extern ssize_t __wrap_pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags);

int
__wrap_fdatasync(int fd)
{
	int			rc;

	if (shared->tracking && fd == pm_pool_fd)
	{
		memcpy(shared->before, PoolBase + shared->area, AREA);
		rc = __real_fdatasync(fd);
		memcpy(shared->synced, shared->before, AREA);
		shared->checkpoints++;
		return rc;
	}
	rc = __real_fdatasync(fd);
	if (fd == log_fd)
		shared->nunsynced = 0;
	return rc;
}

ssize_t
__wrap_pwritev2(int fd, const struct iovec *io, int n, off_t at, int flags)
{
	ssize_t		rc;

	log_fd = fd;
	shared->chunks++;
	if (shared->nunsynced == MOST_UNSYNCED)
		abort();
	shared->unsynced[shared->nunsynced].at = at;
	shared->unsynced[shared->nunsynced++].bytes = io->iov_len;
	rc = __real_pwritev2(fd, io, n, at, 0);
	if (shared->tracking && ++shared->writes == shared->cut_at)
		_exit(0);
	/* this one alone; redo.c synchronises those before it */
	if (flags & RWF_DSYNC)
		shared->nunsynced--;
	return rc;
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

/* Pages of the area: as they were when the file was synchronised, or as they are */
static void
cut_pool_file(void)
{
	int			fd = open(sofort_pool_path, O_RDWR);

	assert_true(fd >= 0);
	for (Size at = 0; at < AREA; at += PAGE)
	{
		if (random_below(3) != 0)
			assert_int_equal(pwrite(fd, shared->synced + at, PAGE, (off_t) (shared->area + at)), PAGE);
	}
	close(fd);
}

/* Chunks that were not synchronised: whole, or each block there, or not, or half */
static void
cut_log(void)
{
	char		path[MAXPGPATH + 8];
	static char junk[PAGE];
	int			fd;

	snprintf(path, sizeof(path), "%s.redo", sofort_pool_path);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (int i = 0; i < shared->nunsynced; i++)
	{
		if (random_below(2))
			continue;
		for (Size at = 0; at < shared->unsynced[i].bytes; at += PAGE)
		{
			Size		from = random_below(2) * (PAGE / 2);

			memset(junk, (int) random_below(256), sizeof(junk));
			if (random_below(2))
				assert_true(pwrite(fd, junk + from, PAGE - from, shared->unsynced[i].at + (off_t) (at + from)) > 0);
		}
	}
	close(fd);
	shared->nunsynced = 0;
}

static void
first_life(uint64 steps)
{
	make_area();
	shared->tracking = true;
	redo_checkpoint();
	load(steps);
}

static void
next_life(uint64 steps)
{
	shared->tracking = true;
	check_area();
	/* what recovery wrote to the file was synchronised */
	memcpy(shared->synced, PoolBase + shared->area, AREA);
	load(steps);
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

/* The children draw from a sequence of their own. */
static void
life(void (*run) (uint64), uint64 steps, uint64 cut_at)
{
	shared->cut_at = cut_at;
	shared->writes = 0;
	shared->tracking = false;
	assert_int_equal(in_life(run, steps), 0);
	shared->tracking = false;
	seed_random(random_below(1000000) + unit_seed());
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

/* More is flushed than a chunk holds, and then a word is published. */
static void
publish_many(uint64 steps)
{
	shared->tracking = true;
	check_area();
	memcpy(shared->synced, PoolBase + shared->area, AREA);
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
	shared->tracking = false;
	assert_int_equal(in_life(next_life, 0), 3);
}

/* ... and a chunk that was synchronised, and is gone */
static void
test_lost_chunk(void **state)
{
	char		path[MAXPGPATH + 8];
	int			fd;
	static char zero[PAGE];

	life(first_life, 30, 0);
	cut_pool_file();
	snprintf(path, sizeof(path), "%s.redo", sofort_pool_path);
	fd = open(path, O_RDWR);
	for (int block = 2; block < 256; block++)
		assert_int_equal(pwrite(fd, zero, PAGE, (off_t) block * PAGE), PAGE);
	close(fd);
	for (Size at = 0; at < AREA; at += PAGE)
	{
		fd = open(sofort_pool_path, O_RDWR);
		assert_int_equal(pwrite(fd, shared->synced + at, PAGE, (off_t) (shared->area + at)), PAGE);
		close(fd);
	}
	shared->tracking = false;
	assert_int_equal(in_life(next_life, 0), 3);
}

static void
no_life(uint64 arg)
{
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
	shared->tracking = false;
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_power_cuts, begin, end),
		cmocka_unit_test_setup_teardown(test_large_publication, begin, end),
		cmocka_unit_test_setup_teardown(test_lost_page, begin, end),
		cmocka_unit_test_setup_teardown(test_lost_chunk, begin, end),
		cmocka_unit_test_setup_teardown(test_wrong_log, begin, end),
	};

	if (getenv("UNIT_TEST") != NULL)
		cmocka_set_test_filter(getenv("UNIT_TEST"));
	return cmocka_run_group_tests_name("redo", tests, NULL, NULL);
}
