/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Storage parameters of sofort indexes.
 *
 *	 placement	 dram (others are refused in this version)
 *	 fillfactor	 how full a build leaves the nodes, in percent
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"

#include "am_internal.h"

typedef enum IndexPlacement
{
	PLACEMENT_DRAM,
	PLACEMENT_PMEM,
	PLACEMENT_HYBRID
} IndexPlacement;

typedef struct IndexOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			placement;
	int			fillfactor;
} IndexOptions;

#define DEFAULT_FILLFACTOR	90

static relopt_kind index_relopts;

static relopt_enum_elt_def placements[] = {
	{"dram", PLACEMENT_DRAM},
	{"pmem", PLACEMENT_PMEM},
	{"hybrid", PLACEMENT_HYBRID},
	{(const char *) NULL}		/* list terminator */
};

void
options_init(void)
{
	index_relopts = add_reloption_kind();
	add_enum_reloption(index_relopts, "placement", "Where the index lies", placements,
					   PLACEMENT_DRAM, "Valid values are \"dram\", \"pmem\" and \"hybrid\".",
					   AccessExclusiveLock);
	add_int_reloption(index_relopts, "fillfactor",
					  "How full a build leaves the nodes of the index, in percent",
					  DEFAULT_FILLFACTOR, 10, 100, ShareUpdateExclusiveLock);
}

bytea *
options_parse(Datum reloptions, bool validate)
{
	static const relopt_parse_elt tab[] = {
		{.optname = "placement",.opttype = RELOPT_TYPE_ENUM,.offset = offsetof(IndexOptions, placement)},
		{.optname = "fillfactor",.opttype = RELOPT_TYPE_INT,.offset = offsetof(IndexOptions, fillfactor)},
	};
	IndexOptions *options = build_reloptions(reloptions, validate, index_relopts,
											 sizeof(IndexOptions), tab, lengthof(tab));

	if (validate && options != NULL && options->placement != PLACEMENT_DRAM)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index placement \"%s\" is not supported in this version of sofort",
						placements[options->placement].string_val),
				 errhint("Only \"dram\" is supported.")));
	return (bytea *) options;
}

int
am_fillfactor(Relation index)
{
	IndexOptions *options = (IndexOptions *) index->rd_options;

	return options != NULL ? options->fillfactor : DEFAULT_FILLFACTOR;
}
