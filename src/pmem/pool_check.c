/*-------------------------------------------------------------------------
 *
 * pool_check.c
 *	  Does the pool belong to this server, and is it as old as the data
 *	  directory?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/catversion.h"
#include "miscadmin.h"
#include "pm_internal.h"

#define BYTE_ORDER_MARK	0x0102

static uint32
identity_crc(const PoolIdentity *identity)
{
	return pm_crc(identity, offsetof(PoolIdentity, crc));
}

/* CRC of the root as it is when the pool is complete */
uint32
pool_root_crc(const PoolRoot *root)
{
	PoolRoot	copy = *root;

	copy.magic = SOFORT_POOL_MAGIC;
	return pm_crc(&copy, offsetof(PoolRoot, crc));
}

uint32
extent_header_crc(const ExtentHeader *header)
{
	return pm_crc(header, offsetof(ExtentHeader, words_prepared));
}

/* Fills in the identity of a pool that this server makes. */
void
pool_identity_fill(PoolIdentity *identity, const uint8 *pool_id)
{
	memset(identity, 0, sizeof(PoolIdentity));
	identity->system_identifier = GetSystemIdentifier();
	memcpy(identity->pool_id, pool_id, sizeof(identity->pool_id));
	identity->pg_major = PG_VERSION_NUM / 10000;
	identity->catalog_version = CATALOG_VERSION_NO;
	identity->byte_order = BYTE_ORDER_MARK;
	identity->max_align = MAXIMUM_ALIGNOF;
	identity->float8_by_value = FLOAT8PASSBYVAL;
	identity->block_rows = SOFORT_BLOCK_ROWS;
	identity->crc = identity_crc(identity);
}

/* Layout and architecture */
static bool
check_format(const PoolSuperblock *super, PoolRefusal *why)
{
	const PoolIdentity *id = &super->identity;

	if (super->layout_version != SOFORT_LAYOUT_VERSION)
		return pool_refuse(why, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "Use the version of sofort that made the pool; dump and restore to change over.",
						   NULL,
						   "sofort pool \"%s\" has layout version %u, but this sofort reads version %d",
						   pm_pool_file, super->layout_version, SOFORT_LAYOUT_VERSION);
	if (identity_crc(id) != id->crc || !PM_SEALED16_RIGHT(super->flags) ||
		!PM_SEALED_ID_RIGHT(super->next_store_id))
		return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						   "Restore pool and data directory from one backup.",
						   "A checksum in the superblock is wrong.",
						   "sofort pool \"%s\" is damaged", pm_pool_file);
	if (id->pg_major != PG_VERSION_NUM / 10000 || id->catalog_version != CATALOG_VERSION_NO)
		return pool_refuse(why, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "Dump with the old server and restore into a new pool.", NULL,
						   "sofort pool \"%s\" was made by PostgreSQL %u (catalog version %u), but this is PostgreSQL %d (catalog version %d)",
						   pm_pool_file, id->pg_major, id->catalog_version,
						   PG_VERSION_NUM / 10000, CATALOG_VERSION_NO);
	if (id->byte_order != BYTE_ORDER_MARK || id->max_align != MAXIMUM_ALIGNOF ||
		id->float8_by_value != FLOAT8PASSBYVAL || id->block_rows != SOFORT_BLOCK_ROWS)
		return pool_refuse(why, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "Dump on the machine that made the pool and restore into a new one.",
						   "Byte order, alignment, float8 passing or rows per block differ.",
						   "sofort pool \"%s\" was made by a server of another architecture or build",
						   pm_pool_file);
	return true;
}

/* Checks layout, architecture, cluster and identity; changes nothing. */
bool
pool_check_superblock(const PoolSuperblock *super, const PoolControl *control, PoolRefusal *why)
{
	const PoolIdentity *id = &super->identity;

	if (super->magic != SOFORT_POOL_MAGIC)
		return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						   "Restore pool and data directory from one backup.",
						   "The superblock has no magic number.",
						   "sofort pool \"%s\" is damaged, or is not a sofort pool", pm_pool_file);
	if (!check_format(super, why))
		return false;
	if (id->system_identifier != GetSystemIdentifier())
	{
		char	   *detail = psprintf("The pool's system identifier is " UINT64_FORMAT ", this cluster's is " UINT64_FORMAT ".",
									  id->system_identifier, GetSystemIdentifier());

		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Set sofort.pool_path to this cluster's own pool.", detail,
						   "sofort pool \"%s\" belongs to another cluster", pm_pool_file);
	}
	if (memcmp(id->pool_id, control->pool_id, sizeof(id->pool_id)) != 0)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Set sofort.pool_path to the pool that this data directory uses.",
						   "The pool ids in both files differ.",
						   "sofort pool \"%s\" is not the one that \"%s\" names",
						   pm_pool_file, control_file());
	if ((super->flags & SUPERBLOCK_BACKUP) != 0 &&
		control->state != CONTROL_RESTORING && control->state != CONTROL_ADOPTED)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Restore a base backup up to the restore point that sofort.backup() returned, or put the server's own pool back.",
						   "The data directory was not restored to the moment at which the copy was made.",
						   "sofort pool \"%s\" is a copy made by sofort.backup()", pm_pool_file);
	return true;
}

/*
 * Are pool and data directory of the same age?  Writes go to the pool first and
 * then to the file, with a mark in the pool in between: only then may the file
 * still hold the previous number.
 */
static bool
check_pair(uint64 in_pool, uint64 in_file, bool pending, uint64 previous, const char *what,
		   PoolRefusal *why)
{
	char	   *detail;

	if (in_pool == in_file || (pending && in_file == previous))
		return true;
	detail = psprintf("The %s is " UINT64_FORMAT " in the pool and " UINT64_FORMAT " in the data directory.",
					  what, in_pool, in_file);
	return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					   "Use pool and data directory of the same time: restore both from one backup.",
					   detail,
					   in_pool < in_file ?
					   "sofort pool \"%s\" is an older copy than the data directory with \"%s\"" :
					   "the data directory with \"%2$s\" is an older copy than sofort pool \"%1$s\"",
					   pm_pool_file, control_file());
}

/*
 * Checks the directories of the superblock, once it is known what is allocated: start-up
 * reads them where no error can be raised.
 */
bool
pool_check_structure(const PoolSuperblock *super, PoolRefusal *why)
{
	const struct
	{
		const PmVector *v;
		uint32		elem_size;
		const char *name;
	}			directories[] = {
		{&super->stores, sizeof(PMPtr), "stores"},
		{&super->intents, sizeof(AllocIntents), "intents"},
		{&super->tcbs, sizeof(Tcb), "transactions"},
		{&super->workload, sizeof(WorkloadRecord), "statements"},
		{&super->kept, sizeof(KeptRecord), "kept transactions"}
	};

	for (int i = 0; i < (int) lengthof(directories); i++)
	{
		const PmVector *v = directories[i].v;
		PmVector	unused = {0};
		const char *problem;

		/* one that was never used is all zeroes */
		if (memcmp(v, &unused, sizeof(PmVector)) == 0)
			continue;
		problem = pm_vector_problem(v, directories[i].elem_size);
		if (problem != NULL)
		{
			char	   *detail = psprintf("Directory of %s: %s.", directories[i].name, problem);

			return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
							   "Restore pool and data directory from one backup.", detail,
							   "sofort pool \"%s\" is damaged", pm_pool_file);
		}
	}
	return true;
}

bool
pool_check_agreement(const PoolSuperblock *super, const PoolControl *control, PoolRefusal *why)
{
	if (control->state == CONTROL_CONTRADICTED)
		return pool_refuse(why, ERRCODE_DATA_CORRUPTED, CONTRADICTION_HINT,
						   "An earlier start has found that one of them is older; its log says how.",
						   "sofort pool \"%s\" does not match data directory \"%s\"",
						   pm_pool_file, DataDir);
	return check_pair(super->life, control->life,
					  (super->flags & SUPERBLOCK_LIFE_PENDING) != 0, super->life - 1,
					  "number of starts", why) &&
		check_pair(super->hw_sequence, control->hw_sequence,
				   (super->flags & SUPERBLOCK_MARK_PENDING) != 0, super->hw_filed,
				   "number of transaction id marks", why);
}
