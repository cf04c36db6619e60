/*-------------------------------------------------------------------------
 *
 * vector.c
 *	  PmVector: arrays that grow in place by chunks (layout.h, alloc.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pm_internal.h"
#include "port/pg_bitutils.h"
#include "sofort/pmem/fault.h"

/* Not flushed: that is done with the structure that contains the vector. */
void
pm_vector_init(PmVector *v, uint32 elem_size, uint32 first_elems)
{
	memset(v, 0, sizeof(PmVector));
	v->elem_size = elem_size;
	v->first_shift = first_elems <= 1 ? 0 : (uint16) pg_ceil_log2_32(first_elems);
	v->check = PM_VECTOR_CHECK(v->elem_size, v->first_shift);
}

void *
pm_vector_get(const PmVector *v, uint64 i)
{
	uint64		within;
	int			chunk = pm_vector_chunk(v, i, &within);
	PMPtr		p;

	if (chunk >= PM_VECTOR_CHUNKS)
		return NULL;
	p = *(const volatile PMPtr *) &v->chunks[chunk];
	if (p == PM_NULL)
		return NULL;
	return (char *) pm_deref(p) + within * v->elem_size;
}

/* pm_vector_reserve() without an error; *wanted: size of the chunk that failed */
int
pm_vector_try_reserve(PmVector *v, uint64 i, StoreId owner, int flags, Size *wanted)
{
	uint64		within;
	int			last = pm_vector_chunk(v, i, &within);
	int			chunk;

	*wanted = 0;
	if (last >= PM_VECTOR_CHUNKS)
		return PM_FULL_POOL;
	for (chunk = 0; chunk <= last; chunk++)
	{
		PmReservation r;
		int			rc;

		if (v->chunks[chunk] != PM_NULL)
			continue;
		*wanted = pm_vector_chunk_elems(v, chunk) * v->elem_size;
		rc = pm_try_reserve(&r, owner, *wanted, &v->chunks[chunk], 1, flags | PM_RESERVE_ZERO);
		if (rc != 0)
			return rc;
		pm_publish(&r);
	}
	return 0;
}

void
pm_vector_reserve(PmVector *v, uint64 i, StoreId owner, int flags)
{
	Size		wanted;
	int			rc;

	pool_require();
	rc = pm_vector_try_reserve(v, i, owner, flags, &wanted);
	if (rc != 0)
		pm_raise_full(rc, wanted);
}

void
pm_vector_publish(PmVector *v, uint64 n)
{
	Assert(n <= PG_UINT32_MAX);
	pm_store8(&v->length, PM_SEAL(n));
	SOFORT_STOP("pmem-vector-published");
	pm_drain();
}

/*
 * For checks: length, sizes, the chunks below the length, and that what they lead
 * to is allocated.  May run while the vector grows.
 */
const char *
pm_vector_problem(const PmVector *v, uint32 elem_size)
{
	PmSealed	length = *(const volatile PmSealed *) &v->length;
	uint64		n = PM_UNSEAL(length);
	uint64		within;
	int			chunk;
	int			last;

	if (!PM_SEALED_RIGHT(length))
		return "length of a directory is damaged";
	if (v->check != PM_VECTOR_CHECK(v->elem_size, v->first_shift) ||
		v->elem_size != elem_size || v->first_shift > 31)
		return "size of a directory's elements is damaged";
	last = n == 0 ? -1 : pm_vector_chunk(v, n - 1, &within);
	if (last >= PM_VECTOR_CHUNKS)
		return "length of a directory is impossible";
	for (chunk = 0; chunk < PM_VECTOR_CHUNKS; chunk++)
	{
		PMPtr		p = *(const volatile PMPtr *) &v->chunks[chunk];

		if (p == PM_NULL && chunk > last)
			continue;
		if (!pm_ref_is_valid(p) ||
			pm_allocated_size(p) < pm_vector_chunk_elems(v, chunk) * elem_size)
			return "part of a directory is not allocated";
	}
	return NULL;
}
