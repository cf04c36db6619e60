/*-------------------------------------------------------------------------
 *
 * shadow_log.h
 *	  Format of the file that a server built with SOFORT_SHADOW_MEDIUM writes:
 *	  everything that was flushed and drained, in order.  Shared with
 *	  t/medium.c, which makes images of the medium from it; so nothing of
 *	  PostgreSQL is used here.
 *
 * The file is a header and records.  Records follow each other at multiples of
 * 8 bytes up to header.tail, which is stored after a record is complete.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_SHADOW_LOG_H
#define SOFORT_PMEM_SHADOW_LOG_H

#include <stdint.h>

#define SHADOW_MAGIC		UINT64_C(0x574f444148534653)
#define SHADOW_MAX_SITES	700
#define SHADOW_LINE			64
#define SHADOW_RECORDS		65536	/* offset of the first record */
#define SHADOW_CALLS_OFFSET 512 /* of the sites in the header */

typedef enum ShadowKind
{
	SHADOW_FLUSH = 1,			/* lines as they were when pm_flush() was called */
	SHADOW_DRAIN = 2,			/* lines that differ from what any record before
								 * said: what was stored; then the flushed lines
								 * of this process are durable */
	SHADOW_CONTROL = 3,			/* sofort.control was replaced, durably */
	SHADOW_ORDER = 4			/* a line as it is before what will be stored to
								 * it next */
} ShadowKind;

/* A call in the sources: a flush or a drain that can be left out. */
typedef struct ShadowSite
{
	char		file[32];		/* without src/ or include/sofort/ */
	char		function[48];
	uint32_t	line;
	uint32_t	kind;			/* SHADOW_FLUSH or SHADOW_DRAIN */
} ShadowSite;

typedef struct ShadowHeader
{
	uint64_t	magic;			/* stored last */
	uint64_t	size;			/* of the file */
	volatile uint64_t tail;		/* end of the last complete record */
	volatile uint64_t drains;	/* records of that kind */
	volatile uint64_t freeze_at;	/* set by a test: the process that would
									 * write the drain of this number (from 1)
									 * stops, and so does everybody else at the
									 * next flush; 0: never */
	volatile uint32_t frozen;
	volatile uint32_t lock;
	volatile uint32_t nprocesses;
	uint32_t	nsites;
	volatile uint32_t delay;	/* set by a test: up to so many microseconds
								 * pass between some flushes and their drain */
	uint32_t	unused;
	uint64_t	pad[7];
} ShadowHeader;

/* ShadowSites follow at SHADOW_CALLS_OFFSET. */

typedef struct ShadowRecord
{
	uint32_t	kind;
	uint32_t	process;		/* small number, never reused */
	uint32_t	site;
	uint32_t	n;				/* lines, or bytes of SHADOW_CONTROL */
	uint64_t	wal_flushed;	/* LSN; 0: as before */
	uint64_t	wal_written;
	/* n ShadowLines, or n bytes and padding */
} ShadowRecord;

typedef struct ShadowLine
{
	uint64_t	offset;			/* in the pool file */
	uint64_t	word[SHADOW_LINE / 8];
} ShadowLine;

#endif							/* SOFORT_PMEM_SHADOW_LOG_H */
