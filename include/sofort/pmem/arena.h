/*-------------------------------------------------------------------------
 *
 * arena.h
 *	  The DRAM arena: volatile memory at one address in all processes, so that
 *	  trees and other secondary data use raw pointers.  A DSA area
 *	  (PostgreSQL's allocator) laid in place over an anonymous shared mapping.
 *
 * Its contents are gone after a crash-restart.  Out of memory: 53200, hint
 * sofort.dram_size.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_PMEM_ARENA_H
#define SOFORT_PMEM_ARENA_H

#include "postgres.h"
#include "sofort/compat/compat.h"
#include "utils/dsa.h"

#define ARENA_NO_OOM	0x1		/* return NULL instead of raising */
#define ARENA_ZERO		0x2

extern void *arena_alloc(Size size, int flags);

/* The error of arena_alloc(), for who called it with ARENA_NO_OOM; size 0: not known */
pg_noreturn extern void arena_raise_full(Size size);

/* At the start, where an error would end the server: refuses the pool instead. */
extern void arena_refuse_start(const char *what);
extern void arena_free(void *p);

/* The DSA area itself, for dshash. */
extern dsa_area *arena_dsa(void);

/* Epochs: see src/pmem/README.md.  A backend that is inside one may follow
 * pointers to memory that was unlinked after it entered.  Nesting is fine. */
extern void epoch_enter(void);
extern void epoch_exit(void);

/* Is this process inside one?  Then it must not wait for epochs to pass. */
extern bool epoch_is_inside(void);

/* Begins a new epoch and returns it; to be called after unlinking. */
extern uint64 epoch_advance(void);

/* Has every process left that was inside when "epoch" began? */
extern bool epoch_passed(uint64 epoch);

/* Leaves all epochs; called at transaction end and in error cleanup. */
extern void epoch_reset(void);

#endif							/* SOFORT_PMEM_ARENA_H */
