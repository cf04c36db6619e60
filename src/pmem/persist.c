/*-------------------------------------------------------------------------
 *
 * persist.c
 *	  Flush and drain.  See include/sofort/pmem/persist.h.
 *
 * pm_flush() collects lines in a small array of this process, so that a line that is
 * written several times between two drains is written back once. pm_drain() writes the
 * lines of the array back; so does pm_flush() when it is full.
 *
 *-------------------------------------------------------------------------
 */
#define SHADOW_IMPLEMENTATION	/* the functions themselves */
#include "postgres.h"

#include <cpuid.h>
#include <emmintrin.h>
#include <libpmem.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pm_internal.h"
#include "sofort/pmem/latency.h"
#include "sofort/pmem/read_ahead.h"

#ifndef __x86_64__
#error "src/pmem/persist.c has cache-line instructions for x86-64 only"
#endif

#define MAX_PENDING		128		/* lines */
#define MAX_LOGGED		896		/* lines, msync only */
#define RECENT_SLOTS	64
#define COPY_PAST_CACHE 256		/* shorter copies go through the cache */
#define PAGE			((uintptr_t) 4096)

typedef enum FlushInstruction
{
	FLUSH_CLFLUSH,
	FLUSH_CLFLUSHOPT,
	FLUSH_CLWB,
	FLUSH_NONE					/* eADR: power loss flushes the caches */
} FlushInstruction;

/* Set by the postmaster, inherited by every process */
static PmMedium medium = PM_MEDIUM_NONE;
static FlushInstruction instruction = FLUSH_CLFLUSH;
static int	max_pending = MAX_PENDING;

/* Of this process */
static uintptr_t pending[MAX_LOGGED];
static int	npending = 0;
static uintptr_t recent[RECENT_SLOTS];	/* lines in pending, by hash */
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
			return "Committed transactions survive crashes and power loss (ordinary file and redo log).";
		case PM_MEDIUM_PROCESS:
			return "Committed transactions survive crashes of the server, but not a crash of the "
				"operating system or power loss.";
	}
	return "";
}

/* How lines get to the medium: for sofort.pool and the log */
const char *
pm_flush_method(void)
{
	if (medium == PM_MEDIUM_NONE)
		return "none";
	if (medium == PM_MEDIUM_MSYNC)
		return "redo log";
	switch (instruction)
	{
		case FLUSH_CLFLUSH:
			return "clflush";
		case FLUSH_CLFLUSHOPT:
			return "clflushopt";
		case FLUSH_CLWB:
			return "clwb";
		case FLUSH_NONE:
			return "none (eADR)";
	}
	return "unknown";
}

/* Does a drain write to the redo log? */
bool
persist_logs(void)
{
	return medium == PM_MEDIUM_MSYNC;
}

/*
 * Does a drain wait for a disk?  Then it pays to prepare something in order to wait once
 * less; elsewhere a few more lines cost as much as the drain.
 */
bool
pm_drain_is_slow(void)
{
	return persist_logs() || shadow_slow_drains();
}

bool
pm_found_is_durable(void)
{
	return persist_logs();
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

	if (m == PM_MEDIUM_PMEM && pmem_has_auto_flush() == 1)
		instruction = FLUSH_NONE;
	max_pending = m == PM_MEDIUM_MSYNC ? MAX_LOGGED : MAX_PENDING;

	/* Large folios would turn 8 dirty bytes into megabytes of writes. */
	if (m == PM_MEDIUM_MSYNC)
		(void) madvise(base, size, MADV_RANDOM);
	medium = m;
	pm_on_disk = persist_logs();
	return true;
}

/* ---- backups ---- */

/*
 * Called before making anything durable: until leave_drain() no backup begins its last
 * pass, and while that runs we wait here.  The fence between the two accesses is the
 * backup's (barrier_everywhere() in backup.c).
 */
static inline void
enter_drain(void)
{
	volatile uint32 *mine = &pm_epochs[pm_process_number()].draining;

	for (;;)
	{
		*mine = 1;
		pg_compiler_barrier();
		if (likely(!pm_shared->backup_hold))
			return;
		*mine = 0;
		backup_wait();
	}
}

static inline void
leave_drain(void)
{
	pg_write_barrier();
	pm_epochs[pm_process_number()].draining = 0;
}

/* ---- lines ---- */

/* A line that is written again from here on needs another write-back. */
static void
forget_pending(void)
{
	for (int i = 0; i < npending; i++)
		recent[(pending[i] / PM_LINE) % RECENT_SLOTS] = 0;
	npending = 0;
}

static void
write_back_pending(void)
{
	int			i;

	if (medium == PM_MEDIUM_MSYNC)
		redo_write_lines(pending, npending, NULL, 0, false);
	else if (medium == PM_MEDIUM_NONE || instruction == FLUSH_NONE)
	{
		/* nothing is mapped, or the caches are persistent */
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
	if (npending > 0)
		fence_due = true;
	forget_pending();
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
	pg_compiler_barrier();
	if (unlikely(pm_shared->backup_tracking))
		backup_note_flush(addr, len);
	for (; line < end; line += PM_LINE)
	{
		uintptr_t  *slot = &recent[(line / PM_LINE) % RECENT_SLOTS];

		if (*slot == line)
			continue;
		if (npending == max_pending)
			write_back_pending();
		*slot = line;
		pending[npending++] = line;
		counters.lines_flushed++;
	}
}

/* (Lines for the log are only read, later; what they hold then is as good.) */
void
pm_start_writeback(void)
{
	if (npending > 0 && medium != PM_MEDIUM_MSYNC)
		write_back_pending();
}

static void
count_drain(void)
{
	fence_due = false;
	counters.drains++;
	if (unlikely(sofort_scm_write_latency != 0))
		pm_delay_write();
}

/* Wait until all that this process flushed is on the medium. */
void
pm_drain(void)
{
	if (medium == PM_MEDIUM_MSYNC)
	{
		if (npending == 0 && !redo_unsynced())
			return;
		enter_drain();
		if (npending > 0)
			redo_write_lines(pending, npending, NULL, 0, true);
		else
			redo_sync();
		forget_pending();
		count_drain();
		leave_drain();
		return;
	}
	if (npending > 0)
		write_back_pending();
	if (!fence_due)
		return;
	enter_drain();
	_mm_sfence();
	count_drain();
	leave_drain();
}

/* ---- publishing ---- */

void
pm_drain_to_publish(void)
{
	if (medium != PM_MEDIUM_MSYNC)
		pm_drain();
}

void
pm_publish8(uint64 *addr, uint64 value)
{
	if (medium != PM_MEDIUM_MSYNC)
	{
		pm_store8_persist(addr, value);
		return;
	}
	pm_flush(addr, sizeof(uint64));
	pg_write_barrier();
	enter_drain();
	redo_write_lines(pending, npending, addr, value, true);
	if (unlikely(pm_shared->backup_tracking))
		backup_note_flush(addr, sizeof(uint64));	/* it was stored after the flush */
	forget_pending();
	count_drain();
	leave_drain();
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
	if (unlikely(pm_shared->backup_tracking))
		backup_note_flush(dst, (Size) (to - (char *) dst));
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
	if (unlikely(pm_shared->backup_tracking))
		backup_note_flush(dst, (Size) (to - (char *) dst));
	memset(to, 0, len);
	pm_flush(to, len);
}
