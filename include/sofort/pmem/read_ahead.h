/*-------------------------------------------------------------------------
 *
 * read_ahead.h
 *	  What will be read soon of a pool on a disk.
 *
 * Hints: the range need not be allocated (any more).  They take no lock, never fail, and do
 * not wait, unless the disk has too much to do.  On other media each is one untaken branch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_READ_AHEAD_H
#define SOFORT_PMEM_READ_AHEAD_H

#include "postgres.h"

/* The medium is a disk: what is not in memory takes long to read */
extern bool pm_on_disk;

extern void pm_read_disk_ahead(const void *addr, Size len);
extern void pm_note_disk_read(const void *addr);

/* This part of the pool will be read. */
static inline void
pm_read_ahead(const void *addr, Size len)
{
	if (unlikely(pm_on_disk))
		pm_read_disk_ahead(addr, len);
}

/* Something short is read here.  Where such things lie beside each other, others are read ahead. */
static inline void
pm_note_read(const void *addr)
{
	if (unlikely(pm_on_disk))
		pm_note_disk_read(addr);
}

#endif							/* SOFORT_PMEM_READ_AHEAD_H */
