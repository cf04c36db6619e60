/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  Which subscriber a TATP transaction is about: drawn as the specification says,
 *	  not uniformly, so that some are met more often than others.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TATP_KEYS_H
#define TATP_KEYS_H

#include "../random.h"

/* 1..n */
static inline uint64_t
tatp_any_subscriber(Random *r, uint64_t n)
{
	uint64_t	a = n <= 1000000 ? 65535 : n <= 10000000 ? 1048575 : 2097151;
	uint64_t	x = random_between(r, 0, a);

	return (x | random_between(r, 1, n)) % n + 1;
}

#endif							/* TATP_KEYS_H */
