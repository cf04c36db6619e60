/*-------------------------------------------------------------------------
 *
 * dict_table.h
 *	  Hash tables of dictionaries; between dictionary.c and dict_table.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_DICT_TABLE_H
#define SOFORT_DICT_TABLE_H

#include "common/hashfn.h"
#include "sofort/store/store_internal.h"

/* Larger tables than this are not taken for cached by the latency model. */
#define DICT_CACHED_SLOTS	32768

/*
 * A slot is at most this far from where its hash points.  Whoever knows the hash can
 * choose values that all point to one slot; each look-up, and each value of a table that
 * is made anew, would walk past all others.  Without intent it does not happen: in a
 * table that is three quarters full a value has to go this far once in 10^15 times.
 */
#define DICT_MOST_STEPS	1024

/* Finalizer of murmur hash 3 */
static inline uint64
dict_mix(uint64 h)
{
	h ^= h >> 33;
	h *= UINT64CONST(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64CONST(0xc4ceb9fe1a85ec53);
	h ^= h >> 33;
	return h;
}

static inline uint64
dict_hash(const void *bytes, Size len)
{
	uint64		h = 0;

	if (len > 8)
		return hash_bytes_extended(bytes, (int) len, 0);
	memcpy(&h, bytes, len);
	return dict_mix(h);
}

/* Emulation: a look-up in a table in the pool reads one of its lines. */
static inline void
dict_table_miss(const DictTable *t)
{
	if (unlikely(sofort_scm_read_latency != 0) && t->media != NULL && t->mask >= DICT_CACHED_SLOTS)
		pm_read_miss(1);
}

/*
 * All here: dictionary lock held.
 *
 * Make the tables anew, with room for "values" values, as the placement says;
 * they hold all values that are not absent.  False, and nothing has changed, if
 * there is no room and flags has ARENA_NO_OOM; else that is an error.
 */
extern bool dict_tables_make(StoreShared *shared, DictIndex *index, DictPlacement placement,
							 uint64 values, int flags);

/*
 * After a start: use the table in the pool.  False: there is none that may be used.  (There
 * is one, but no memory to use it, and flags has ARENA_NO_OOM: index->table stays NULL.)
 */
extern bool dict_tables_open(StoreShared *shared, DictIndex *index, int flags);

pg_noreturn extern void dict_raise_out_of_memory(void);

/*
 * Room for one more value, which will have this code.  False: too many others are where
 * its hash points.
 */
extern bool dict_tables_make_room(StoreShared *shared, DictIndex *index, uint64 hash, uint64 code);

/* A value that is durable, and counted.  There is room. */
extern void dict_tables_enter(DictIndex *index, uint64 hash, uint64 code);

/* Tables that were replaced, and that nobody can look at any more (or all). */
extern void dict_tables_free_retired(DictIndex *index, bool all);

#endif							/* SOFORT_DICT_TABLE_H */
