/*-------------------------------------------------------------------------
 *
 * read_ahead.c
 *	  Asking for parts of a pool on a disk before they are read.
 *
 * Where the medium is a disk the pool is mapped so that the kernel reads single pages
 * (README, "Reading ahead").  Who is about to read many of them in turn says so here, and finds
 * them in the page cache instead of waiting for each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "sofort/pmem/layout.h"
#include "sofort/pmem/read_ahead.h"

#define PAGE_BYTES		4096

/* What one call may ask for: the kernel cuts off what exceeds its own limit (128 kB by default) */
#define PAGES_AT_ONCE	32

bool		pm_on_disk = false;

/* Granules in which something was read lately, by number */
#define RECENT_GRANULES	64
#define MAX_DISTANCE	8		/* of those that are taken for a series */

typedef struct RecentGranule
{
	uintptr_t	number;
	int			page;			/* of it, in which the first read was */
	bool		asked_for;		/* as a whole, because there was a read in another page */
} RecentGranule;

#define NO_PAGE			(-1)

static RecentGranule recent[RECENT_GRANULES];

/*
 * Pages that are there already are left out: asking for them costs the kernel more than
 * looking does.
 */
static void
ask_for_pages(char *start, int npages)
{
	unsigned char resident[PAGES_AT_ONCE];
	int			from = 0;

	if (mincore(start, (Size) npages * PAGE_BYTES, resident) != 0)
		return;
	while (from < npages)
	{
		int			to = from;

		while (to < npages && (resident[to] & 1) == 0)
			to++;
		if (to > from)
			(void) madvise(start + (Size) from * PAGE_BYTES, (Size) (to - from) * PAGE_BYTES,
						   MADV_WILLNEED);
		from = to + 1;
	}
}

void
pm_read_disk_ahead(const void *addr, Size len)
{
	char	   *start = (char *) TYPEALIGN_DOWN(PAGE_BYTES, (uintptr_t) addr);
	Size		left = TYPEALIGN(PAGE_BYTES, (const char *) addr + len - start) / PAGE_BYTES;

	while (left > 0)
	{
		int			n = (int) Min(left, PAGES_AT_ONCE);

		ask_for_pages(start, n);
		start += (Size) n * PAGE_BYTES;
		left -= n;
	}
}

/* And for the next one, if they follow each other at this distance */
static void
ask_for_granule(uintptr_t number)
{
	static uintptr_t last = 0;
	uintptr_t	next = number + (number - last);

	pm_read_disk_ahead((const void *) (number * PM_GRANULE), PM_GRANULE);
	if (number - last <= MAX_DISTANCE)
	{
		pm_read_disk_ahead((const void *) (next * PM_GRANULE), PM_GRANULE);
		recent[next % RECENT_GRANULES] = (RecentGranule) {.number = next,.page = NO_PAGE};
	}
	last = number;
}

/*
 * Values of rows that were inserted in turn lie in turn in slabs, one for each length.  Who
 * reads in a second page of a granule soon after the first one will probably read more of it.
 */
void
pm_note_disk_read(const void *addr)
{
	uintptr_t	number = (uintptr_t) addr / PM_GRANULE;
	int			page = (uintptr_t) addr % PM_GRANULE / PAGE_BYTES;
	RecentGranule *r = &recent[number % RECENT_GRANULES];

	if (r->number != number)
		*r = (RecentGranule) {.number = number,.page = page};
	else if (r->page != page && !r->asked_for)
	{
		r->asked_for = true;
		ask_for_granule(number);
	}
}
