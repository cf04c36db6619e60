/*-------------------------------------------------------------------------
 *
 * shadow.c
 *	  The shadow medium: records what is flushed and drained, so that a test
 *	  can make every image that a power cut could have left.  Compiled only
 *	  with SOFORT_SHADOW_MEDIUM; see include/sofort/pmem/shadow.h.
 *
 * The contract that is tested is that of the hardware: durable is the content
 * that a line had when it was flushed, once the flushing process has drained.
 * (pm_flush() itself may write it back later, and so with more in it.)  Any
 * later content of a line may be durable too, or not: every content that a record
 * has, and between two of them any of the 8-byte words that differ.
 *
 * A lock makes the order of records that of what they describe.  At a drain
 * the pool is compared with a private copy, so that the record also has all
 * that was stored and not flushed.  Nobody gets past a drain meanwhile; so no
 * two stores of which one waits for the other's drain are seen the wrong way.
 *
 * libpmemobj calls libpmem dynamically, and finds the functions below first.
 *
 *-------------------------------------------------------------------------
 */
#define SHADOW_IMPLEMENTATION
#include "postgres.h"

#ifdef SOFORT_SHADOW_MEDIUM

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "pm_internal.h"
#include "storage/shmem.h"

#define LOG_BYTES	((uint64) 16 << 30) /* sparse */

/* The linker's names for begin and end of a section */
extern ShadowCall *const __start_sofort_calls[];
extern ShadowCall *const __stop_sofort_calls[];

static ShadowCall library_flush = {.file = "libpmemobj", .function = "", .kind = SHADOW_FLUSH};
static ShadowCall library_drain = {.file = "libpmemobj", .function = "", .kind = SHADOW_DRAIN};

/* Set by the postmaster, inherited */
static ShadowHeader *header = NULL;
static const char *live = NULL;	/* the pool file, read only */
static char *seen = NULL;		/* what records have told of it */
static uint64 pool_bytes = 0;
static int	pool_fd = -1;

/* Of this process */
static pid_t my_pid = 0;
static uint32 my_number;
static bool undrained = false;

/* ---- writing records ---- */

static void
die(const char *what)
{
	fprintf(stderr, "sofort shadow medium: %s: %m\n", what);
	abort();
}

static void
lock_log(void)
{
	while (__atomic_exchange_n(&header->lock, 1, __ATOMIC_ACQUIRE) != 0)
		pg_usleep(20L);
	if (my_pid != getpid())
	{
		my_pid = getpid();
		my_number = ++header->nprocesses;
		undrained = false;
	}
}

static void
unlock_log(void)
{
	__atomic_store_n(&header->lock, 0, __ATOMIC_RELEASE);
}

static ShadowRecord *
begin_record(ShadowKind kind, ShadowCall *site)
{
	ShadowRecord *r = (ShadowRecord *) ((char *) header + header->tail);

	if (header->tail + (64 << 20) > header->size)
		die("the log is full");
	r->kind = kind;
	r->process = my_number;
	r->site = site != NULL ? site->number : 0;
	r->n = 0;
	r->wal_flushed = 0;
	r->wal_written = 0;
	return r;
}

static void
end_record(ShadowRecord *r, Size payload)
{
	uint64		end = header->tail + sizeof(ShadowRecord) + MAXALIGN(payload);

	__atomic_store_n(&header->tail, end, __ATOMIC_RELEASE);
}

/* The words of a line are copied one by one: others may store at this moment. */
static inline void
copy_line(uint64 *to, const char *from)
{
	int			i;

	for (i = 0; i < SHADOW_LINE / 8; i++)
		to[i] = __atomic_load_n((const uint64 *) from + i, __ATOMIC_ACQUIRE);
}

static void
add_line(ShadowRecord *r, uint64 offset, const char *from)
{
	ShadowLine *line = (ShadowLine *) (r + 1) + r->n++;

	line->offset = offset;
	copy_line(line->word, from);
	memcpy(seen + offset, line->word, SHADOW_LINE);
}

/* Stops at the drain at which a test wants everything to stop.  The lock is kept. */
static void
freeze_if_asked(void)
{
	if (header->freeze_at != 0 && header->drains + 1 >= header->freeze_at)
	{
		header->frozen = 1;
		for (;;)
			pause();
	}
}

/* ---- comparing ---- */

static void
compare_range(ShadowRecord *r, uint64 start, uint64 end)
{
	uint64		at;

	for (at = start; at < end; at += PM_LINE)
	{
		if (memcmp(live + at, seen + at, PM_LINE) != 0)
			add_line(r, at, live + at);
	}
}

/* A range that the file has given back: it reads as zeroes from now on. */
static void
zero_range(ShadowRecord *r, uint64 start, uint64 end)
{
	static const uint64 zero[PM_LINE / 8];
	uint64		at;

	for (at = start; at < end; at += PM_LINE)
	{
		if (memcmp(zero, seen + at, PM_LINE) != 0)
			add_line(r, at, (const char *) zero);
	}
}

/*
 * Compares the ranges that have data in the file, or had at the last comparison; nothing
 * else is read, because that would allocate it.  Once the pool is mapped, libpmemobj's own
 * data do not change any more.
 */
static void
compare_all(ShadowRecord *r)
{
	static uint64 data[8192][2];
	static uint64 (*before)[2] = NULL;
	static uint64 *nbefore = NULL;
	const uint64 first = pm_nextents > 0 ? pm_extent[0].offset : 0;
	uint64		at = first;
	int			n = 0;
	uint64		b;

	if (before == NULL)
	{
		before = (uint64 (*)[2]) ((char *) seen + pool_bytes);
		nbefore = (uint64 *) ((char *) seen + pool_bytes + sizeof(data));
	}
	while (at < pool_bytes)
	{
		off_t		from = lseek(pool_fd, (off_t) at, SEEK_DATA);
		off_t		to;

		if (from < 0)
			break;
		to = lseek(pool_fd, from, SEEK_HOLE);
		if (to < 0 || n == lengthof(data))
			die("cannot tell data from holes");
		data[n][0] = (uint64) from;
		data[n++][1] = (uint64) to;
		at = (uint64) to;
		compare_range(r, (uint64) from, (uint64) to);
	}

	/* ranges of before without data now: both lists ascend */
	at = 0;
	for (b = 0; b < *nbefore; b++)
	{
		uint64		start = Max(before[b][0], first);

		while (start < before[b][1])
		{
			while (at < (uint64) n && data[at][1] <= start)
				at++;
			if (at == (uint64) n || data[at][0] >= before[b][1])
			{
				zero_range(r, start, before[b][1]);
				break;
			}
			if (data[at][0] > start)
				zero_range(r, start, data[at][0]);
			start = data[at][1];
		}
	}
	memcpy(before, data, sizeof(data[0]) * n);
	*nbefore = n;
}

/* ---- start ---- */

static void
copy_file(void)
{
	off_t		at = 0;

	while ((at = lseek(pool_fd, at, SEEK_DATA)) >= 0)
	{
		off_t		end = lseek(pool_fd, at, SEEK_HOLE);

		memcpy(seen + at, live + at, end - at);
		at = end;
	}
}

static void
note_site(ShadowCall *call)
{
	ShadowSite *to = (ShadowSite *) ((char *) header + SHADOW_CALLS_OFFSET) + header->nsites;
	const char *name = strstr(call->file, "include/sofort/");

	if (header->nsites == SHADOW_MAX_SITES)
		die("too many calls");
	if (name != NULL)
		name += strlen("include/sofort/");
	else
		name = strncmp(call->file, "src/", 4) == 0 ? call->file + 4 : call->file;
	strlcpy(to->file, name, sizeof(to->file));
	strlcpy(to->function, call->function, sizeof(to->function));
	to->line = call->line;
	to->kind = call->kind;
	call->number = header->nsites++;
}

static void
note_sites(void)
{
	ShadowCall *const *call;

	header->nsites = 0;
	for (call = __start_sofort_calls; call < __stop_sofort_calls; call++)
		note_site(*call);
	note_site(&library_flush);
	note_site(&library_drain);
}

static void *
map(Size bytes, int prot, int flags, int fd)
{
	void	   *p = mmap(NULL, bytes, prot, flags | MAP_NORESERVE, fd, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

void
shadow_begin(int fd)
{
	const char *path = getenv("SOFORT_SHADOW_LOG");
	struct stat st;
	int			log;

	if (path == NULL || header != NULL)
		return;
	if (fstat(fd, &st) != 0)
		die("fstat");
	pool_bytes = (uint64) st.st_size;
	pool_fd = dup(fd);
	live = map(pool_bytes, PROT_READ, MAP_SHARED, fd);
	seen = map(pool_bytes + (1 << 20), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	copy_file();

	log = open(path, O_RDWR | O_CLOEXEC);
	if (log < 0 || ftruncate(log, (off_t) LOG_BYTES) != 0)
		die(path);
	header = map(LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, log);
	close(log);
	if (header->tail == 0)
		header->tail = SHADOW_RECORDS;
	header->size = LOG_BYTES;
	note_sites();
	__atomic_store_n(&header->magic, SHADOW_MAGIC, __ATOMIC_RELEASE);
}

bool
shadow_slow_drains(void)
{
	return header != NULL && getenv("SOFORT_SHADOW_SLOW") != NULL;
}

/* ---- what persist.h calls ---- */

/* After the lines: a stamp among them follows a flushed commit record. */
static void
note_wal(ShadowRecord *r)
{
	if (!IsUnderPostmaster || !ShmemAddrIsValid(pm_shared) || RecoveryInProgress())
		return;
	r->wal_flushed = GetFlushRecPtr(NULL);
	r->wal_written = GetXLogWriteRecPtr();
}

static void
record_flush(uint64 offset, Size len, ShadowCall *site)
{
	uint64		at = offset & ~(uint64) (PM_LINE - 1);
	ShadowRecord *r;

	lock_log();
	r = begin_record(SHADOW_FLUSH, site);
	for (; at < offset + len; at += PM_LINE)
		add_line(r, at, live + at);
	note_wal(r);
	end_record(r, r->n * sizeof(ShadowLine));
	undrained = true;
	unlock_log();
}

/* Delays, so that others meet what is flushed and not drained. */
static void
dawdle(void)
{
	static uint32 state = 0;

	if (state == 0)
		state = (uint32) getpid() * 2654435761u | 1;
	state = state * 1664525u + 1013904223u;
	if ((state >> 28) < 4)
		pg_usleep((state >> 8) % header->delay);
}

static void
record_drain(ShadowCall *site)
{
	ShadowRecord *r;

	if (my_pid != getpid() || !undrained)
		return;
	if (header->delay != 0)
		dawdle();
	lock_log();
	freeze_if_asked();
	r = begin_record(SHADOW_DRAIN, site);
	compare_all(r);
	note_wal(r);
	end_record(r, r->n * sizeof(ShadowLine));
	header->drains++;
	undrained = false;
	unlock_log();
}

static inline bool
in_pool(const void *addr)
{
	return header != NULL && PoolBase != NULL && (const char *) addr >= PoolBase &&
		(const char *) addr < PoolBase + pool_bytes;
}

void
shadow_flush(const void *addr, Size len, ShadowCall *site)
{
	if (in_pool(addr) && len > 0)
		record_flush((uint64) ((const char *) addr - PoolBase), len, site);
	pm_flush(addr, len);
}

void
shadow_line_order(const void *addr)
{
	uint64		at;
	ShadowRecord *r;

	if (!in_pool(addr))
		return;
	at = (uint64) ((const char *) addr - PoolBase) & ~(uint64) (PM_LINE - 1);
	lock_log();
	if (memcmp(live + at, seen + at, PM_LINE) != 0)
	{
		r = begin_record(SHADOW_ORDER, NULL);
		add_line(r, at, live + at);
		end_record(r, sizeof(ShadowLine));
	}
	unlock_log();
}

void
shadow_drain(ShadowCall *site)
{
	pm_drain();
	if (header != NULL)
		record_drain(site);
}

/* (With a redo log there is no recording: what is durable is not the lines alone.) */
void
shadow_drain_to_publish(ShadowCall *site)
{
	if (persist_logs())
		pm_drain_to_publish();
	else
		shadow_drain(site);
}

void
shadow_publish8(uint64 *addr, uint64 value, ShadowCall *flush, ShadowCall *drain)
{
	if (persist_logs())
	{
		pm_publish8(addr, value);
		return;
	}
	shadow_store8(addr, value, flush);
	shadow_drain(drain);
}

void
shadow_copy_nodrain(void *dst, const void *src, Size len, ShadowCall *site)
{
	pm_copy_nodrain(dst, src, len);
	if (in_pool(dst) && len > 0)
		record_flush((uint64) ((char *) dst - PoolBase), len, site);
}

void
shadow_zero_nodrain(void *dst, Size len, ShadowCall *site)
{
	pm_zero_nodrain(dst, len);
	if (in_pool(dst) && len > 0)
		record_flush((uint64) ((char *) dst - PoolBase), len, site);
}

void
shadow_control_written(const void *control, Size len)
{
	ShadowRecord *r;

	if (header == NULL)
		return;
	lock_log();
	r = begin_record(SHADOW_CONTROL, NULL);
	memcpy(r + 1, control, len);
	r->n = (uint32) len;
	end_record(r, len);
	unlock_log();
}

/* ---- what libpmemobj calls ---- */

/* The library has a mapping of its own, in the postmaster, while it recovers. */
static bool
library_offset(const void *addr, uint64 *offset)
{
	FILE	   *f;
	char		line[MAXPGPATH + 200];
	bool		found = false;

	if (header == NULL || (f = fopen("/proc/self/maps", "r")) == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL)
	{
		unsigned long start,
					end,
					at;
		int			name = 0;

		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %n", &start, &end, &at, &name) < 3 || name == 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		if ((unsigned long) addr < start || (unsigned long) addr >= end ||
			strcmp(line + name, pm_pool_file) != 0)
			continue;
		*offset = (uint64) ((unsigned long) addr - start + at);
		found = true;
	}
	fclose(f);
	return found;
}

static void
library_flushed(const void *addr, size_t len)
{
	uint64		offset;

	if (len > 0 && library_offset(addr, &offset))
		record_flush(offset, len, &library_flush);
}

static void
library_drained(void)
{
	if (header != NULL)
		record_drain(&library_drain);
}

#define NEXT(name) \
	static __typeof__(name) *next = NULL; \
	if (next == NULL && (next = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)) == NULL) \
		die(#name)

#define PMEM_F_MEM_NODRAIN	1U
#define PMEM_F_MEM_NOFLUSH	32U

extern PGDLLEXPORT void pmem_flush(const void *addr, size_t len);
extern PGDLLEXPORT void pmem_deep_flush(const void *addr, size_t len);
extern PGDLLEXPORT void pmem_drain(void);
extern PGDLLEXPORT void pmem_persist(const void *addr, size_t len);
extern PGDLLEXPORT int pmem_msync(const void *addr, size_t len);
extern PGDLLEXPORT void *pmem_memcpy(void *dst, const void *src, size_t len, unsigned flags);
extern PGDLLEXPORT void *pmem_memmove(void *dst, const void *src, size_t len, unsigned flags);
extern PGDLLEXPORT void *pmem_memset(void *dst, int c, size_t len, unsigned flags);

void
pmem_flush(const void *addr, size_t len)
{
	NEXT(pmem_flush);
	next(addr, len);
	library_flushed(addr, len);
}

void
pmem_deep_flush(const void *addr, size_t len)
{
	NEXT(pmem_deep_flush);
	next(addr, len);
	library_flushed(addr, len);
}

void
pmem_drain(void)
{
	NEXT(pmem_drain);
	next();
	library_drained();
}

void
pmem_persist(const void *addr, size_t len)
{
	NEXT(pmem_persist);
	next(addr, len);
	library_flushed(addr, len);
	library_drained();
}

int
pmem_msync(const void *addr, size_t len)
{
	NEXT(pmem_msync);
	library_flushed(addr, len);
	library_drained();
	return next(addr, len);
}

static void
library_wrote(const void *dst, size_t len, unsigned flags)
{
	if (flags & PMEM_F_MEM_NOFLUSH)
		return;
	library_flushed(dst, len);
	if (!(flags & PMEM_F_MEM_NODRAIN))
		library_drained();
}

void *
pmem_memcpy(void *dst, const void *src, size_t len, unsigned flags)
{
	NEXT(pmem_memcpy);
	next(dst, src, len, flags);
	library_wrote(dst, len, flags);
	return dst;
}

void *
pmem_memmove(void *dst, const void *src, size_t len, unsigned flags)
{
	NEXT(pmem_memmove);
	next(dst, src, len, flags);
	library_wrote(dst, len, flags);
	return dst;
}

void *
pmem_memset(void *dst, int c, size_t len, unsigned flags)
{
	NEXT(pmem_memset);
	next(dst, c, len, flags);
	library_wrote(dst, len, flags);
	return dst;
}

#endif							/* SOFORT_SHADOW_MEDIUM */
