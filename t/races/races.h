/*-------------------------------------------------------------------------
 *
 * races.h
 *	  The parts of the race detector (README.md).
 *
 * Nothing here may be compiled with -fsanitize=thread, or call functions that are:
 * what watches accesses must not be watched itself.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RACES_H
#define RACES_H

/* Processes are told apart by their number in the server; the last number is for the
 * postmaster, and for who has none yet. */
#define RACES_PROCESSES		256
#define RACES_POSTMASTER	(RACES_PROCESSES - 1)

typedef enum AccessKind
{
	PLAIN_READ = 1,
	VOLATILE_READ = 2,
	ATOMIC_READ = 4,
	PLAIN_WRITE = 8,
	VOLATILE_WRITE = 16,
	ATOMIC_WRITE = 32
} AccessKind;

#define ANY_WRITE	(PLAIN_WRITE | VOLATILE_WRITE | ATOMIC_WRITE)

/* Into one of 2^bits places.  (The lowest bits of what comes in may all be alike.) */
static inline uint32
races_hash(uint64 what, int bits)
{
	return (uint32) (what * UINT64CONST(0x9E3779B97F4A7C15) >> (64 - bits));
}

/* Taken for a few instructions, by a process that may be killed meanwhile: its id, or 0. */
typedef volatile int RacesLock;

/* ---- clocks.c ---- */

extern uint32 *races_clock;		/* of this process: what it has seen of each other one */
extern int	races_number;		/* of this process */

extern void *races_make_shared(Size size);
extern void races_lock(RacesLock *lock);
extern void races_unlock(RacesLock *lock);
extern void races_attach(void);
extern int	races_process_id(int number);
extern void races_acquire(const volatile void *what);
extern void races_release(const volatile void *what);
extern void races_acquire_later(const volatile void *what);
extern void races_acquire_noted(void);
extern void races_acquire_lock(const volatile void *lock, bool exclusive);
extern void races_release_lock(const volatile void *lock, bool exclusive);
extern void races_begin_life(void);

/* ---- shadow.c ---- */

extern bool races_is_watched(const volatile void *address);
extern void races_watch(const char *name, void *from, Size size);
extern void races_access(const volatile void *address, Size size, AccessKind kind, void *caller);

#define RACES_CALLER	__builtin_return_address(0)

#endif							/* RACES_H */
