/*-------------------------------------------------------------------------
 *
 * damage.c
 *	  Checksums, and the errors for what is damaged in the pool.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pm_internal.h"
#include "port/pg_crc32c.h"

uint32
pm_crc(const void *bytes, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, len);
	FIN_CRC32C(crc);
	return crc;
}

/* CRC of both, one after the other */
uint32
pm_crc_of_two(const void *a, Size a_len, const void *b, Size b_len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, a, a_len);
	COMP_CRC32C(crc, b, b_len);
	FIN_CRC32C(crc);
	return crc;
}

void
pm_damaged(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("sofort pool is damaged: %s", what),
			 errdetail_log("The pool is \"%s\".", pm_pool_file),
			 errhint("sofort.verify() and sofort.verify_pool() find what else is damaged; sofort.salvage() reads what is readable of a table.")));
}

void
pm_damaged_reference(PMPtr p)
{
	char		what[64];

	snprintf(what, sizeof(what), "there is no reference %016llX", (unsigned long long) p);
	pm_damaged(what);
}
