/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Storage parameters of sofort indexes.
 *
 *	 placement	 dram, pmem, hybrid; takes effect when the index is built
 *	 fillfactor	 how full a build leaves the nodes, in percent
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"

#include "am_internal.h"

typedef struct IndexOptions
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			placement;		/* TreePlacement, or UNSET */
	int			fillfactor;
} IndexOptions;

#define DEFAULT_FILLFACTOR	90
#define PLACEMENT_UNSET		(-1)

static relopt_kind index_relopts;

static relopt_enum_elt_def placements[] = {
	{"dram", TREE_DRAM},
	{"pmem", TREE_PMEM},
	{"hybrid", TREE_HYBRID},
	{(const char *) NULL}		/* list terminator */
};

void
options_init(void)
{
	index_relopts = add_reloption_kind();
	add_enum_reloption(index_relopts, "placement", "Where the index lies", placements,
					   PLACEMENT_UNSET, "Valid values are \"dram\", \"pmem\" and \"hybrid\".",
					   ShareUpdateExclusiveLock);
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

	return (bytea *) build_reloptions(reloptions, validate, index_relopts,
									  sizeof(IndexOptions), tab, lengthof(tab));
}

bool
am_placement(Relation index, TreePlacement *placement)
{
	IndexOptions *options = (IndexOptions *) index->rd_options;

	if (options == NULL || options->placement == PLACEMENT_UNSET)
		return false;
	*placement = (TreePlacement) options->placement;
	return true;
}

int
am_fillfactor(Relation index)
{
	IndexOptions *options = (IndexOptions *) index->rd_options;

	return options != NULL ? options->fillfactor : DEFAULT_FILLFACTOR;
}
