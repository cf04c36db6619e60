/*-------------------------------------------------------------------------
 *
 * dict_table.h
 *	  Hash tables of dictionaries: what dictionary.c uses of dict_table.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_DICT_TABLE_H
#define SOFORT_DICT_TABLE_H

#include "common/hashfn.h"
#include "sofort/store/store_internal.h"

/* The latency model takes tables up to this size for cached. */
#define DICT_CACHED_SLOTS	32768

/*
 * A slot is at most this far from where its hash points.  Someone who knows the hash
 * function can choose values that all point to one slot; each look-up, and each value when
 * a table is rebuilt, would walk past all others.  By chance it does not happen: in a table
 * that is three quarters full a value has to go this far once in 10^15 times.
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
 * For all of these the dictionary lock must be held.
 *
 * Rebuilds the tables, with room for "values" values, as the placement says; they hold all
 * values that are not absent.  False, and nothing has changed, if there is no room and flags
 * has ARENA_NO_OOM; else that is an error.
 */
extern bool dict_tables_make(StoreShared *shared, DictIndex *index, DictPlacement placement,
							 uint64 values, int flags);

/*
 * After a start: uses the table in the pool.  False: there is none that may be used.  (If
 * there is one, but no memory to use it, and flags has ARENA_NO_OOM, index->table stays
 * NULL.)
 */
extern bool dict_tables_open(StoreShared *shared, DictIndex *index, int flags);

/*
 * Makes room for one more value, which will have this code.  False: too many others are
 * where its hash points.
 */
extern bool dict_tables_make_room(StoreShared *shared, DictIndex *index, uint64 hash, uint64 code);

/* Enters a value that is durable and counted.  There must be room. */
extern void dict_tables_enter(DictIndex *index, uint64 hash, uint64 code);

/* Frees tables that were replaced and that nobody can look at any more (or all). */
extern void dict_tables_free_retired(DictIndex *index, bool all);

#endif							/* SOFORT_DICT_TABLE_H */
