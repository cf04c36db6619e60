/*-------------------------------------------------------------------------
 *
 * redo.h
 *	  Redo log of a pool in an ordinary file (medium msync): settings and the
 *	  background worker.  What the log is for: src/pmem/README.md, "Redo log".
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_REDO_H
#define SOFORT_PMEM_REDO_H

extern int	sofort_redo_size_mb;	/* GUC, PGC_POSTMASTER */

/* From _PG_init: the worker that writes the pool back. */
extern void redo_register_worker(void);

#endif							/* SOFORT_PMEM_REDO_H */
