/*-------------------------------------------------------------------------
 *
 * arena.c
 *	  The DRAM arena.
 *
 * The postmaster reserves one shared anonymous mapping before it forks, so
 * that it lies at one address in every process; pages are taken when they are
 * touched.  A DSA area is made in place in it.  The area is limited to this
 * one segment, so a dsa_pointer is the offset in the mapping.
 *
 * The mapping outlives the shared memory of a server life: after the crash of a
 * process a new DSA area is made in it.  Its pages stay: to give them back would hold
 * up the start by 0.1 s per GB, and to take them anew the rebuilding of indexes.
 * Nobody takes what lies there for zeroes, as it may be memory that was freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "pm_internal.h"
#include "sofort/pmem/arena.h"
#include "utils/memutils.h"

#define ARENA_ALIGN		((uint64) 2 << 20)	/* of huge pages */

/* Set by the postmaster, inherited */
static char *arena_base = NULL;
static Size arena_size = 0;

/* Of this process */
static dsa_area *area = NULL;

/*
 * Reserves the mapping; once per postmaster.  False with a reason if there is no such
 * address space.
 */
bool
arena_reserve(PoolRefusal *why)
{
	Size		size = (Size) sofort_dram_size_mb << 20;
	char	   *raw;
	char	   *base;

	if (arena_base != NULL)
		return true;
	raw = mmap(NULL, size + ARENA_ALIGN, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
	{
		int			err = errno;

		return pool_refuse(why, ERRCODE_OUT_OF_MEMORY,
						   "Lower sofort.dram_size, or allow the server more memory.", NULL,
						   "could not reserve %d MB of memory for sofort.dram_size: %s",
						   sofort_dram_size_mb, strerror(err));
	}
	base = (char *) TYPEALIGN(ARENA_ALIGN, raw);
	if (base > raw)
		munmap(raw, base - raw);
	if (raw + ARENA_ALIGN > base)
		munmap(base + size, raw + ARENA_ALIGN - base);
	(void) madvise(base, size, MADV_DONTDUMP);
	/* the kernel follows this where shmem_enabled (transparent_hugepage) is "advise" */
	(void) madvise(base, size, MADV_HUGEPAGE);
	arena_base = base;
	arena_size = size;
	return true;
}

/* Makes a new, empty area; called whenever shared memory is made (postmaster). */
void
arena_startup(void)
{
	MemoryContext old;
	dsa_area   *made;

	area = NULL;
	pm_shared->arena_ready = false;
	pm_shared->arena_tranche = LWLockNewTrancheId();
	old = MemoryContextSwitchTo(TopMemoryContext);
	made = dsa_create_in_place(arena_base, arena_size, pm_shared->arena_tranche, NULL);
	dsa_set_size_limit(made, arena_size);
	dsa_pin(made);
	dsa_detach(made);
	MemoryContextSwitchTo(old);
	pm_shared->arena_ready = true;
}

dsa_area *
arena_dsa(void)
{
	MemoryContext old;

	if (likely(area != NULL))
		return area;
	if (pm_shared == NULL || !pm_shared->arena_ready)
	{
		pool_require();
		elog(ERROR, "the sofort arena does not exist");
	}
	LWLockRegisterTranche(pm_shared->arena_tranche, "sofort_arena");
	old = MemoryContextSwitchTo(TopMemoryContext);
	area = dsa_attach_in_place(arena_base, NULL);
	MemoryContextSwitchTo(old);

	/*
	 * It is pinned, so nobody lets go of it at exit.  The postmaster must not, when it
	 * restarts the server: a process that was killed may hold its lock.
	 */
	return area;
}

void
arena_raise_full(Size size)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory for sofort's indexes and dictionaries"),
			 size == 0 ? 0 :
			 errdetail("%zu bytes were asked for; the arena has %d MB (sofort.dram_size).",
					   size, sofort_dram_size_mb),
			 errhint("Raise sofort.dram_size and restart the server, or drop indexes on sofort tables.")));
}

/*
 * Memory for all processes, aligned to 8 bytes (to 64 if the size is a
 * multiple of 64 and a power of two).  53200 if there is none left, or NULL
 * with ARENA_NO_OOM.
 */
void *
arena_alloc(Size size, int flags)
{
	dsa_area   *dsa = arena_dsa();
	dsa_pointer p;

	p = dsa_allocate_extended(dsa, size, DSA_ALLOC_HUGE | DSA_ALLOC_NO_OOM |
							  ((flags & ARENA_ZERO) ? DSA_ALLOC_ZERO : 0));
	if (unlikely(!DsaPointerIsValid(p)))
	{
		if (flags & ARENA_NO_OOM)
			return NULL;
		arena_raise_full(size);
	}
	return arena_base + p;
}

void
arena_refuse_start(const char *what)
{
	pool_refuse_life(ERRCODE_OUT_OF_MEMORY,
					 psprintf("out of memory for the %s of the sofort pool", what),
					 psprintf("The arena has %d MB (sofort.dram_size).", sofort_dram_size_mb),
					 "Raise sofort.dram_size and restart the server.");
}

void
arena_free(void *p)
{
#ifdef USE_ASSERT_CHECKING
	/* nobody may look at it any more (of its size only the least is known) */
	memset(p, 0x5A, sizeof(uint64));
#endif
	dsa_free(arena_dsa(), (dsa_pointer) ((char *) p - arena_base));
}

/* used: memory that was ever touched in this life */
void
arena_usage(uint64 *total, uint64 *used)
{
	unsigned char resident[4096];
	Size		step = sizeof(resident) * 4096;
	Size		at;

	*total = arena_size;
	*used = 0;
	for (at = 0; at < arena_size; at += step)
	{
		Size		len = Min(step, arena_size - at);
		Size		pages = len / 4096;
		Size		i;

		if (mincore(arena_base + at, len, resident) != 0)
			return;
		for (i = 0; i < pages; i++)
			*used += (resident[i] & 1) ? 4096 : 0;
	}
}
