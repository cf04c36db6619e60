/*-------------------------------------------------------------------------
 *
 * builtins.h
 *	  Included before each source of the build with the race detector.
 *
 * The compiler tells the detector of its own atomic operations, but not of what
 * PostgreSQL's headers write in assembler for this processor.  So here the headers
 * are read such that they use the compiler's operations.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RACES_BUILTINS_H
#define RACES_BUILTINS_H

/* memcpy() shall be called by its name, not as __memcpy_chk() */
#undef _FORTIFY_SOURCE

#include "postgres.h"

#include "storage/s_lock.h"

/*
 * Without the processor's name, port/atomics.h takes what it has for any processor of
 * this compiler; that a word of 8 bytes is read and written whole is still so.
 */
#undef __x86_64__
#define PG_HAVE_8BYTE_SINGLE_COPY_ATOMICITY
#include "port/atomics.h"
#define __x86_64__ 1

extern void races_spin_acquired(volatile slock_t *lock);
extern void races_spin_release(volatile slock_t *lock);

/* A lock that is taken waits in the server, which tells nobody: so it is said here. */
#undef S_LOCK
#define S_LOCK(lock) \
	((void) (TAS(lock) ? s_lock((lock), __FILE__, __LINE__, __func__) : 0), \
	 races_spin_acquired(lock))

#undef S_UNLOCK
#define S_UNLOCK(lock) \
	races_spin_release(lock)

#endif							/* RACES_BUILTINS_H */
