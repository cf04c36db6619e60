/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  The table access method's routine.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "sofort/compat/table_callbacks.h"
#include "sofort/tableam/callbacks.h"

PG_FUNCTION_INFO_V1(sofort_handler);

static const TableAmRoutine sofort_routine = {
	.type = T_TableAmRoutine,

	.slot_callbacks = tableam_slot_callbacks,

	.scan_begin = tableam_scan_begin,
	.scan_end = tableam_scan_end,
	.scan_rescan = tableam_scan_rescan,
	.scan_getnextslot = tableam_scan_getnextslot,
	.scan_set_tidrange = tableam_scan_set_tidrange,
	.scan_getnextslot_tidrange = tableam_scan_getnextslot,

	.parallelscan_estimate = table_block_parallelscan_estimate,
	.parallelscan_initialize = tableam_parallelscan_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,

	.index_fetch_begin = tableam_index_fetch_begin,
	.index_fetch_reset = tableam_index_fetch_reset,
	.index_fetch_end = tableam_index_fetch_end,
	.index_fetch_tuple = tableam_index_fetch_tuple,

	.tuple_fetch_row_version = tableam_tuple_fetch_row_version,
	.tuple_tid_valid = tableam_tuple_tid_valid,
	.tuple_get_latest_tid = tableam_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = tableam_tuple_satisfies_snapshot,
	.index_delete_tuples = tableam_index_delete_tuples,

	.tuple_insert = tableam_tuple_insert,
	.tuple_insert_speculative = tableam_tuple_insert_speculative,
	.tuple_complete_speculative = tableam_tuple_complete_speculative,
	.multi_insert = tableam_multi_insert,
	.tuple_delete = tableam_tuple_delete,
	.tuple_update = tableam_tuple_update,
	.tuple_lock = tableam_tuple_lock,

	.COMPAT_SET_NEW_FILE = tableam_set_new_file,
	.relation_nontransactional_truncate = tableam_nontransactional_truncate,
	.relation_copy_data = tableam_copy_data,
	.relation_copy_for_cluster = tableam_copy_for_cluster,
	.relation_vacuum = tableam_relation_vacuum,
	.scan_analyze_next_block = compat_scan_analyze_next_block,
	.scan_analyze_next_tuple = tableam_scan_analyze_next_tuple,
	.index_build_range_scan = tableam_index_build_range_scan,
	.index_validate_scan = tableam_index_validate_scan,

	.relation_size = tableam_relation_size,
	.relation_needs_toast_table = tableam_needs_toast_table,
	.relation_toast_am = tableam_toast_am,
	.relation_estimate_size = tableam_estimate_size,

	COMPAT_BITMAP_CALLBACKS,
	.scan_sample_next_block = tableam_scan_sample_next_block,
	.scan_sample_next_tuple = tableam_scan_sample_next_tuple,
};

const TableAmRoutine *
tableam_routine(void)
{
	return &sofort_routine;
}

Datum
sofort_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&sofort_routine);
}
