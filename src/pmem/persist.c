/*-------------------------------------------------------------------------
 *
 * persist.c
 *	  Flush and drain.  See include/sofort/pmem/persist.h.
 *
 * pm_flush() collects lines in a small array of this process, so that a line
 * that is written several times between two drains is written back once.  The
 * array is worked off by pm_drain(), or before that when it is full.
 *
 *-------------------------------------------------------------------------
 */
#define SHADOW_IMPLEMENTATION	/* the functions themselves */
#include "postgres.h"

#include <cpuid.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pm_internal.h"
#include "sofort/pmem/latency.h"

#ifndef __x86_64__
#error "src/pmem/persist.c has cache-line instructions for x86-64 only"
#endif

#define MAX_PENDING		128		/* lines */
#define MAX_RUNS		64		/* of pages, msync only */
#define RECENT_SLOTS	64
#define COPY_PAST_CACHE 256		/* shorter copies go through the cache */
#define PAGE			((uintptr_t) 4096)

typedef enum FlushInstruction
{
	FLUSH_CLFLUSH,
	FLUSH_CLFLUSHOPT,
	FLUSH_CLWB
} FlushInstruction;

typedef struct PageRun
{
	uintptr_t	start;
	uintptr_t	end;
} PageRun;

/* Set by the postmaster, inherited by every process */
static PmMedium medium = PM_MEDIUM_NONE;
static FlushInstruction instruction = FLUSH_CLFLUSH;

/* Of this process */
static uintptr_t pending[MAX_PENDING];
static int	npending = 0;
static uintptr_t recent[RECENT_SLOTS];	/* lines in pending, by hash */
static PageRun runs[MAX_RUNS];
static int	nruns = 0;
static bool fence_due = false;
static PmCounters counters;

PmMedium
pm_medium(void)
{
	return pool_status() == POOL_READY ? medium : PM_MEDIUM_NONE;
}

const char *
pm_medium_name(PmMedium m)
{
	switch (m)
	{
		case PM_MEDIUM_NONE:
			return "none";
		case PM_MEDIUM_PMEM:
			return "pmem";
		case PM_MEDIUM_MSYNC:
			return "msync";
		case PM_MEDIUM_PROCESS:
			return "process";
	}
	return "unknown";
}

const char *
pm_medium_promise(PmMedium m)
{
	switch (m)
	{
		case PM_MEDIUM_NONE:
			return "No pool is open.";
		case PM_MEDIUM_PMEM:
			return "Committed transactions survive crashes and power loss (persistent memory).";
		case PM_MEDIUM_MSYNC:
			return "Committed transactions survive crashes and power loss (ordinary file, msync).";
		case PM_MEDIUM_PROCESS:
			return "Committed transactions survive crashes of the server, but not a crash of the "
				"operating system or power loss.";
	}
	return "";
}

const PmCounters *
pm_counters(void)
{
	return &counters;
}

void
pm_count_delays(uint32 reads, uint32 writes)
{
	counters.read_delays += reads;
	counters.write_delays += writes;
}

/*
 * Called once in the postmaster, when the pool is mapped.  False: this
 * processor cannot do what the medium needs.
 */
bool
persist_configure(PmMedium m, int fd, char *base, uint64 size)
{
	unsigned int a,
				b,
				c,
				d;

	if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (d & (1u << 19)) == 0)
		return false;
	instruction = FLUSH_CLFLUSH;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0)
	{
		if (b & (1u << 24))
			instruction = FLUSH_CLWB;
		else if (b & (1u << 23))
			instruction = FLUSH_CLFLUSHOPT;
	}

	/* Large folios would turn 8 dirty bytes into megabytes of writes. */
	if (m == PM_MEDIUM_MSYNC)
		(void) madvise(base, size, MADV_RANDOM);
	medium = m;
	return true;
}

/* ---- msync ---- */

static int
compare_runs(const void *a, const void *b)
{
	uintptr_t	x = ((const PageRun *) a)->start;
	uintptr_t	y = ((const PageRun *) b)->start;

	return x < y ? -1 : x > y;
}

/* A page that could not be written may be lost silently by a retry: PANIC. */
static void
sync_runs(void)
{
	int			i = 0;

	if (nruns > 1)
		qsort(runs, nruns, sizeof(PageRun), compare_runs);
	while (i < nruns)
	{
		uintptr_t	start = runs[i].start;
		uintptr_t	end = runs[i].end;

		for (i++; i < nruns && runs[i].start <= end; i++)
			end = Max(end, runs[i].end);
		if (msync((void *) start, end - start, MS_SYNC) != 0)
			ereport(PANIC,
					(errcode_for_file_access(),
					 errmsg("could not synchronize sofort pool \"%s\": %m", pm_pool_file)));
	}
	nruns = 0;
}

static void
add_page_run(uintptr_t start, uintptr_t end)
{
	start &= ~(PAGE - 1);
	end = (end + PAGE - 1) & ~(PAGE - 1);
	if (nruns > 0 && start >= runs[nruns - 1].start && start <= runs[nruns - 1].end)
	{
		runs[nruns - 1].end = Max(runs[nruns - 1].end, end);
		return;
	}
	if (nruns == MAX_RUNS)
		sync_runs();
	runs[nruns].start = start;
	runs[nruns].end = end;
	nruns++;
}

/* ---- lines ---- */

static void
write_back_pending(void)
{
	int			i;

	if (medium == PM_MEDIUM_MSYNC)
	{
		for (i = 0; i < npending; i++)
			add_page_run(pending[i], pending[i] + PM_LINE);
	}
	else if (medium == PM_MEDIUM_NONE)
	{
		/* nothing is mapped */
	}
	else if (instruction == FLUSH_CLWB)
	{
		for (i = 0; i < npending; i++)
			__asm__ volatile ("clwb %0":"+m" (*(volatile char *) pending[i])::"memory");
	}
	else if (instruction == FLUSH_CLFLUSHOPT)
	{
		for (i = 0; i < npending; i++)
			__asm__ volatile ("clflushopt %0":"+m" (*(volatile char *) pending[i])::"memory");
	}
	else
	{
		for (i = 0; i < npending; i++)
			_mm_clflush((void *) pending[i]);
	}

	/* A line that is written again from here on needs another write-back. */
	for (i = 0; i < npending; i++)
		recent[(pending[i] / PM_LINE) % RECENT_SLOTS] = 0;
	if (npending > 0)
		fence_due = true;
	npending = 0;
}

/*
 * Note the lines of a range for write-back.  Never fails (msync: PANIC).
 */
void
pm_flush(const void *addr, Size len)
{
	uintptr_t	line = (uintptr_t) addr & ~(uintptr_t) (PM_LINE - 1);
	uintptr_t	end = (uintptr_t) addr + len;

	if (len == 0)
		return;
	for (; line < end; line += PM_LINE)
	{
		uintptr_t  *slot = &recent[(line / PM_LINE) % RECENT_SLOTS];

		if (*slot == line)
			continue;
		if (npending == MAX_PENDING)
			write_back_pending();
		*slot = line;
		pending[npending++] = line;
		counters.lines_flushed++;
	}
}

void
pm_start_writeback(void)
{
	if (npending > 0)
		write_back_pending();
}

/* Wait until all that this process flushed is on the medium. */
void
pm_drain(void)
{
	if (npending > 0)
		write_back_pending();
	if (!fence_due)
		return;
	if (medium == PM_MEDIUM_MSYNC)
		sync_runs();
	else
		_mm_sfence();
	fence_due = false;
	counters.drains++;
	if (unlikely(sofort_scm_write_latency != 0))
		pm_delay_write();
}

/* ---- copies past the cache ---- */

/* Bytes of dst up to the next line boundary, at most len. */
static inline Size
head_bytes(const void *dst, Size len)
{
	Size		head = (Size) (-(uintptr_t) dst) & (PM_LINE - 1);

	return Min(head, len);
}

void
pm_copy_nodrain(void *dst, const void *src, Size len)
{
	char	   *to = dst;
	const char *from = src;
	Size		head;

	counters.bytes_copied += len;
	if (len < COPY_PAST_CACHE || medium == PM_MEDIUM_MSYNC)
	{
		memcpy(dst, src, len);
		pm_flush(dst, len);
		return;
	}

	head = head_bytes(to, len);
	memcpy(to, from, head);
	pm_flush(to, head);
	to += head;
	from += head;
	len -= head;
	for (; len >= PM_LINE; len -= PM_LINE, to += PM_LINE, from += PM_LINE)
	{
		__m128i		a = _mm_loadu_si128((const __m128i *) from);
		__m128i		b = _mm_loadu_si128((const __m128i *) (from + 16));
		__m128i		c = _mm_loadu_si128((const __m128i *) (from + 32));
		__m128i		d = _mm_loadu_si128((const __m128i *) (from + 48));

		_mm_stream_si128((__m128i *) to, a);
		_mm_stream_si128((__m128i *) (to + 16), b);
		_mm_stream_si128((__m128i *) (to + 32), c);
		_mm_stream_si128((__m128i *) (to + 48), d);
	}
	fence_due = true;
	memcpy(to, from, len);
	pm_flush(to, len);
}

void
pm_zero_nodrain(void *dst, Size len)
{
	char	   *to = dst;
	Size		head;
	__m128i		zero = _mm_setzero_si128();

	counters.bytes_copied += len;
	if (len < COPY_PAST_CACHE || medium == PM_MEDIUM_MSYNC)
	{
		memset(dst, 0, len);
		pm_flush(dst, len);
		return;
	}

	head = head_bytes(to, len);
	memset(to, 0, head);
	pm_flush(to, head);
	to += head;
	len -= head;
	for (; len >= PM_LINE; len -= PM_LINE, to += PM_LINE)
	{
		_mm_stream_si128((__m128i *) to, zero);
		_mm_stream_si128((__m128i *) (to + 16), zero);
		_mm_stream_si128((__m128i *) (to + 32), zero);
		_mm_stream_si128((__m128i *) (to + 48), zero);
	}
	fence_due = true;
	memset(to, 0, len);
	pm_flush(to, len);
}
