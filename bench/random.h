/*-------------------------------------------------------------------------
 *
 * random.h
 *	  Random numbers of the benches: splitmix64.  The same state gives the same
 *	  numbers everywhere, so loaded data and loads can be repeated.
 *
 *-------------------------------------------------------------------------
 */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include <stdint.h>

typedef struct Random
{
	uint64_t	state;
} Random;

static inline uint64_t
random_next(Random *r)
{
	uint64_t	z = (r->state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* Uniform in lo..hi; the bias of the multiplication is below 2^-32 for ranges below 2^32. */
static inline uint64_t
random_between(Random *r, uint64_t lo, uint64_t hi)
{
	return lo + (uint64_t) (((unsigned __int128) random_next(r) * (hi - lo + 1)) >> 64);
}

#endif							/* BENCH_RANDOM_H */
