/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *	  VACUUM: prunes blocks, removes index entries of dead rows, frees rows.
 *
 * Order of a pass: collect dead roots until maintenance_work_mem is full;
 * remove their entries from all indexes; make that removal durable (the
 * indexes write WAL, and nobody has flushed it); only then free the rows.  A
 * crash before the last step leaves dead roots without entries, which the next
 * VACUUM finds again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/multixact.h"
#include "commands/dbcommands.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/persist.h"
#include "sofort/tableam/callbacks.h"
#include "sofort/tableam/tableam.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_rusage.h"
#include "utils/timestamp.h"

/* Orphans of crashed CREATEs are looked for at most this often, per backend. */
#define ORPHAN_INTERVAL_MS		60000
#define BLOCKS_TOGETHER 16		/* whose dead roots are freed at a time, if that waits for a disk */

bool		(*tableam_index_is_complete) (Relation index) = NULL;

typedef struct VacuumState
{
	Relation	rel;
	StoreDesc  *store;
	BufferAccessStrategy strategy;
	TransactionId oldest_xmin;	/* for the report; "horizon" decides */
	uint64		horizon;
	Bitmapset  *key_columns;	/* columns to which indexes refer */
	bool		skip_settled;	/* not DISABLE_PAGE_SKIPPING */
	bool		index_vacuum;	/* INDEX_CLEANUP */
	int			nindexes;
	Relation   *indexes;
	IndexBulkDeleteResult **index_stats;

	/* dead roots, ascending */
	uint64	   *dead;
	int64		ndead;
	int64		max_dead;

	/* the same as bits, while entries are removed; NULL: that would take more than max_bits */
	uint8	   *dead_bits;
	uint64		first_bit;		/* the row for which it stands */
	Size		max_bits;		/* bytes */

	/* results */
	BlockNumber nblocks;
	BlockNumber released;
	BlockNumber dead_blocks;	/* blocks with dead roots */
	BlockNumber blocks_vacuumed;	/* whose dead roots were freed */
	int			index_scans;
	int64		removed;
	int64		dead_roots;		/* of these, those that had index entries to be removed */
	int64		kept_dead;		/* INDEX_CLEANUP off */
	int64		live;
	int64		settled;		/* of these, settled */
	int64		recently_dead;
} VacuumState;

/* Is none of its indexes being rebuilt, or waiting for that? */
static bool
indexes_are_complete(const VacuumState *vac)
{
	for (int i = 0; i < vac->nindexes; i++)
		if (tableam_index_is_complete != NULL && !tableam_index_is_complete(vac->indexes[i]))
			return false;
	return true;
}

static void
open_vacuum(VacuumState *vac, Relation rel, VacuumParams *params,
			BufferAccessStrategy strategy)
{
	int			work_mem;

	memset(vac, 0, sizeof(*vac));
	vac->rel = rel;
	vac->store = store_open(rel);
	vac->strategy = strategy;
	vac->oldest_xmin = GetOldestNonRemovableTransactionId(rel);
	vac->horizon = txn_horizon(rel);
	store_lock_roots(rel);
	vac_open_indexes(rel, RowExclusiveLock, &vac->nindexes, &vac->indexes);
	/* the values of columns without an index go: no crash may bring back one whose drop was seen */
	txn_flush_seen_commits();
	vac->key_columns = store_key_columns(rel, vac->store);
	store_vacuum_begin(rel, vac->store, indexes_are_complete(vac));
	vac->nblocks = store_tid_blocks(vac->store);
	vac->skip_settled = (params->options & VACOPT_DISABLE_PAGE_SKIPPING) == 0;
	vac->index_vacuum = params->index_cleanup != VACOPTVALUE_DISABLED;
	vac->index_stats = palloc0((vac->nindexes + 1) * sizeof(IndexBulkDeleteResult *));

	work_mem = AmAutoVacuumWorkerProcess() && autovacuum_work_mem != -1 ?
		autovacuum_work_mem : maintenance_work_mem;
	vac->max_bits = Min((Size) work_mem * 1024 / 4,
						((Size) store_nblocks(vac->store) + 1) * (SOFORT_BLOCK_ROWS / BITS_PER_BYTE));
	vac->max_dead = ((int64) work_mem * 1024 - (int64) vac->max_bits) / sizeof(uint64);
	vac->max_dead = Min(vac->max_dead, ((int64) vac->nblocks + 1) * SOFORT_BLOCK_ROWS);
	vac->max_dead = Max(vac->max_dead, SOFORT_BLOCK_ROWS);
	vac->dead = MemoryContextAllocHuge(CurrentMemoryContext, vac->max_dead * sizeof(uint64));
}

/* ------------------------------------------------------------------------
 * Indexes
 * ------------------------------------------------------------------------
 */

/*
 * A bit for each row from the block of the first dead one to that of the last, because entries
 * that follow each other in an index may lead anywhere: one cache miss for each, and not those
 * of a search.  Where dead rows lie so far apart that this would take much memory they are
 * searched.
 */
static void
make_dead_bits(VacuumState *vac)
{
	uint64		first = vac->dead[0] / SOFORT_BLOCK_ROWS;
	uint64		nblocks = vac->dead[vac->ndead - 1] / SOFORT_BLOCK_ROWS - first + 1;
	Size		size = nblocks * (SOFORT_BLOCK_ROWS / BITS_PER_BYTE);

	if (size > vac->max_bits)
		return;
	vac->first_bit = first * SOFORT_BLOCK_ROWS;
	vac->dead_bits = MemoryContextAllocExtended(CurrentMemoryContext, size,
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int64 i = 0; i < vac->ndead; i++)
	{
		uint64		bit = vac->dead[i] - vac->first_bit;

		vac->dead_bits[bit / BITS_PER_BYTE] |= 1 << bit % BITS_PER_BYTE;
	}
}

static void
free_dead_bits(VacuumState *vac)
{
	if (vac->dead_bits != NULL)
		pfree(vac->dead_bits);
	vac->dead_bits = NULL;
}

static int
compare_rows(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

static bool
entry_is_dead(ItemPointer tid, void *arg)
{
	VacuumState *vac = arg;
	uint64		row;

	if (!row_tid_is_valid(tid))
		return false;
	row = row_from_tid(vac->store, tid);
	if (row < vac->dead[0] || row > vac->dead[vac->ndead - 1])
		return false;
	if (vac->dead_bits != NULL)
	{
		row -= vac->first_bit;
		return (vac->dead_bits[row / BITS_PER_BYTE] >> row % BITS_PER_BYTE & 1) != 0;
	}
	return bsearch(&row, vac->dead, vac->ndead, sizeof(uint64), compare_rows) != NULL;
}

/* PostgreSQL's number of the block in which a row lies */
static inline BlockNumber
tid_block(VacuumState *vac, uint64 row)
{
	return (BlockNumber) (row_to_position(vac->store, row) / SOFORT_BLOCK_ROWS);
}

static IndexVacuumInfo
index_vacuum_info(VacuumState *vac, Relation index, double rows, bool estimated)
{
	IndexVacuumInfo info;

	memset(&info, 0, sizeof(info));
	info.index = index;
	info.analyze_only = false;
	info.report_progress = false;
	info.estimated_count = estimated;
	info.message_level = DEBUG2;
	info.num_heap_tuples = rows;
	info.strategy = vac->strategy;
	compat_set_vacuum_heap(&info, vac->rel);
	return info;
}

static void
remove_index_entries(VacuumState *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_INDEX);
	compat_progress_indexes(vac->nindexes, 0);
	make_dead_bits(vac);
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexVacuumInfo info = index_vacuum_info(vac, vac->indexes[i],
												 vac->rel->rd_rel->reltuples, true);

		vac->index_stats[i] = index_bulk_delete(&info, vac->index_stats[i],
												entry_is_dead, vac);
		compat_progress_indexes(vac->nindexes, i + 1);
	}
	free_dead_bits(vac);
	vac->index_scans++;
	compat_progress_indexes(0, 0);
	pgstat_progress_update_param(PROGRESS_VACUUM_NUM_INDEX_VACUUMS, vac->index_scans);
}

/* Frees the dead roots collected so far. */
static void
free_dead_rows(VacuumState *vac)
{
	if (vac->ndead == 0)
		return;
	SOFORT_STOP("vacuum-dead-rows-listed");
	if (vac->nindexes > 0)
	{
		if (!vac->index_vacuum)
		{
			vac->kept_dead += vac->ndead;
			vac->ndead = 0;
			return;
		}
		remove_index_entries(vac);
		txn_flush_all_wal();
	}
	else						/* otherwise a crash could bring back an index whose drop was
								 * seen */
		txn_flush_seen_commits();

	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_HEAP);
	for (int64 done = 0; done < vac->ndead;)
	{
		int64		next = done + 1;
		int			most = pm_drain_is_slow() ? BLOCKS_TOGETHER : 1;
		int			nblocks = 1;

		for (; next < vac->ndead; next++)
		{
			if (tid_block(vac, vac->dead[next]) != tid_block(vac, vac->dead[next - 1]) &&
				++nblocks > most)
				break;
		}
		nblocks = Min(nblocks, most);
		compat_vacuum_delay_point();
		store_free_rows(vac->rel, vac->store, vac->dead + done, (int) (next - done));
		done = next;
		vac->blocks_vacuumed += nblocks;
		pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_VACUUMED, vac->blocks_vacuumed);
	}
	vac->removed += vac->ndead;
	vac->ndead = 0;
	compat_progress_dead(0);
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_SCAN_HEAP);
}

static void
cleanup_indexes(VacuumState *vac)
{
	if (!vac->index_vacuum)
		return;

	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_INDEX_CLEANUP);
	compat_progress_indexes(vac->nindexes, 0);
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexVacuumInfo info = index_vacuum_info(vac, vac->indexes[i], (double) vac->live, false);
		IndexBulkDeleteResult *stats;

		stats = index_vacuum_cleanup(&info, vac->index_stats[i]);
		vac->index_stats[i] = stats;
		if (stats != NULL && !stats->estimated_count)
			compat_update_relstats(vac->indexes[i], stats->num_pages, stats->num_index_tuples,
								   false, InvalidTransactionId, InvalidMultiXactId);
		compat_progress_indexes(vac->nindexes, i + 1);
	}
	compat_progress_indexes(0, 0);
}

/* ------------------------------------------------------------------------
 * The table
 * ------------------------------------------------------------------------
 */

static void
prune_block(VacuumState *vac, BlockNumber block, StorePruneResult *result)
{
	store_prune_block(vac->rel, vac->store, block, vac->horizon, vac->key_columns,
					  vac->skip_settled, result);
	for (int i = 0; i < result->ndead; i++)
	{
		if (vac->ndead == 0 ||
			tid_block(vac, vac->dead[vac->ndead - 1]) != tid_block(vac, result->dead[i]))
			vac->dead_blocks++;
		vac->dead[vac->ndead++] = result->dead[i];
	}
	vac->dead_roots += result->ndead;
	vac->live += result->nlive;
	vac->settled += result->nsettled;
	vac->recently_dead += result->nrecently_dead;
	vac->removed += result->nfreed;
}

static void
prune_table(VacuumState *vac)
{
	StorePruneResult *result = palloc0(sizeof(StorePruneResult));
	StoreReadAhead ahead = {0};

	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_VACUUM_TOTAL_HEAP_BLKS, vac->nblocks);
	compat_progress_max_dead(vac->max_dead);

	for (BlockNumber block = 0; block < vac->nblocks; block++)
	{
		BlockNumber first = store_first_block(vac->store, block);
		BlockNumber end = store_first_block(vac->store, block + 1);

		compat_vacuum_delay_point();
		for (; first < end; first++)
		{
			if (vac->ndead + SOFORT_BLOCK_ROWS > vac->max_dead)
				free_dead_rows(vac);
			if (result->read)	/* where all rows are settled the header alone is */
				store_scan_ahead(vac->store, &ahead, first, store_nblocks(vac->store));
			prune_block(vac, first, result);
		}

		if (VacuumCostActive)
			VacuumCostBalance += VacuumCostPageHit;
		pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_SCANNED, block + 1);
		compat_progress_dead(vac->ndead);
	}
	store_vacuum_end(vac->store, indexes_are_complete(vac));
	free_dead_rows(vac);
	pfree(result);
}

/*
 * Rows hold no 32-bit transaction ids, and only words of running transactions need the
 * commit log.  So relfrozenxid, where ALTER TABLE or REFRESH have set it, is simply
 * advanced.
 */
static void
update_statistics(VacuumState *vac, TransactionId oldest_xmin, MultiXactId oldest_mxact)
{
	Form_pg_class form = vac->rel->rd_rel;

	store_note_settled(vac->store, vac->settled);
	compat_update_relstats(vac->rel, store_tid_blocks(vac->store), (double) vac->live,
						   vac->nindexes > 0,
						   TransactionIdIsValid(form->relfrozenxid) ? oldest_xmin :
						   InvalidTransactionId,
						   MultiXactIdIsValid(form->relminmxid) ? oldest_mxact :
						   InvalidMultiXactId);
}

static void
collect_orphans_now_and_then(void)
{
	int			n;

	if (!store_orphans_are_due(ORPHAN_INTERVAL_MS))
		return;
	n = store_collect_orphans();
	if (n > 0)
		ereport(LOG,
				(errmsg_plural("dropped the data of %d sofort table whose creation was lost in a crash",
							   "dropped the data of %d sofort tables whose creation was lost in a crash",
							   n, n)));
}

/* ------------------------------------------------------------------------
 * Report: the lines of heap's.  Blocks are virtual ones; buffers and WAL are
 * those of the catalogs and of indexes of other access methods.
 * ------------------------------------------------------------------------
 */

typedef struct ReportStart
{
	PGRUsage	usage;
	TimestampTz time;
	PgStat_Counter read_time;
	PgStat_Counter write_time;
	WalUsage	wal;
	BufferUsage buffers;
} ReportStart;

static void
report_start(ReportStart *start)
{
	pg_rusage_init(&start->usage);
	start->time = GetCurrentTimestamp();
	start->read_time = pgStatBlockReadTime;
	start->write_time = pgStatBlockWriteTime;
	start->wal = pgWalUsage;
	start->buffers = pgBufferUsage;
}

static bool
report_wanted(const VacuumParams *params, TimestampTz start)
{
	if (params->options & VACOPT_VERBOSE)
		return true;
	return AmAutoVacuumWorkerProcess() && params->log_min_duration >= 0 &&
		(params->log_min_duration == 0 ||
		 TimestampDifferenceExceeds(start, GetCurrentTimestamp(), params->log_min_duration));
}

static void
report_table(VacuumState *vac, const VacuumParams *params, StringInfo buf)
{
	const char *format;
	BlockNumber total = vac->nblocks;

	if (params->options & VACOPT_VERBOSE)
		format = _("finished vacuuming \"%s.%s.%s\": index scans: %d\n");
	else if (params->is_wraparound)
		format = _("automatic vacuum to prevent wraparound of table \"%s.%s.%s\": index scans: %d\n");
	else
		format = _("automatic vacuum of table \"%s.%s.%s\": index scans: %d\n");
	appendStringInfo(buf, format, get_database_name(MyDatabaseId),
					 get_namespace_name(RelationGetNamespace(vac->rel)),
					 RelationGetRelationName(vac->rel), vac->index_scans);
	appendStringInfo(buf, _("pages: %u removed, %u remain, %u scanned (%.2f%% of total)\n"),
					 vac->released, store_tid_blocks(vac->store), total, 100.0);
	appendStringInfo(buf,
					 _("tuples: %lld removed, %lld remain, %lld are dead but not yet removable\n"),
					 (long long) vac->removed,
					 (long long) (vac->live + vac->recently_dead + vac->kept_dead),
					 (long long) vac->recently_dead);
	appendStringInfo(buf,
					 _("removable cutoff: %u, which was %d XIDs old when operation ended\n"),
					 vac->oldest_xmin,
					 (int32) (ReadNextTransactionId() - vac->oldest_xmin));
	if (!vac->index_vacuum)
	{
		appendStringInfoString(buf, _("index scan bypassed: "));
		format = _("%u pages from table (%.2f%% of total) have %lld dead item identifiers\n");
	}
	else
	{
		appendStringInfoString(buf, vac->index_scans == 0 ? _("index scan not needed: ") :
							   _("index scan needed: "));
		format = _("%u pages from table (%.2f%% of total) had %lld dead item identifiers removed\n");
	}
	appendStringInfo(buf, format, vac->dead_blocks,
					 total == 0 ? 100.0 : 100.0 * vac->dead_blocks / total,
					 (long long) vac->dead_roots);
}

static void
report_indexes(VacuumState *vac, StringInfo buf)
{
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexBulkDeleteResult *stats = vac->index_stats[i];

		if (stats != NULL)
			appendStringInfo(buf,
							 _("index \"%s\": pages: %u in total, %u newly deleted, %u currently deleted, %u reusable\n"),
							 RelationGetRelationName(vac->indexes[i]), stats->num_pages,
							 stats->pages_newly_deleted, stats->pages_deleted,
							 stats->pages_free);
	}
}

static void
report_usage(const ReportStart *start, StringInfo buf)
{
	WalUsage	wal = {0};
	BufferUsage used = {0};
	long		secs;
	int			usecs;
	double		elapsed;
	double		mb = BLCKSZ / (1024.0 * 1024.0);

	WalUsageAccumDiff(&wal, &pgWalUsage, &start->wal);
	BufferUsageAccumDiff(&used, &pgBufferUsage, &start->buffers);
	TimestampDifference(start->time, GetCurrentTimestamp(), &secs, &usecs);
	elapsed = secs + usecs / 1000000.0;
	if (track_io_timing)
		appendStringInfo(buf, _("I/O timings: read: %.3f ms, write: %.3f ms\n"),
						 (pgStatBlockReadTime - start->read_time) / 1000.0,
						 (pgStatBlockWriteTime - start->write_time) / 1000.0);
	appendStringInfo(buf, _("avg read rate: %.3f MB/s, avg write rate: %.3f MB/s\n"),
					 elapsed > 0 ? used.shared_blks_read * mb / elapsed : 0,
					 elapsed > 0 ? used.shared_blks_dirtied * mb / elapsed : 0);
	appendStringInfo(buf, _("buffer usage: %lld hits, %lld misses, %lld dirtied\n"),
					 (long long) used.shared_blks_hit, (long long) used.shared_blks_read,
					 (long long) used.shared_blks_dirtied);
	appendStringInfo(buf, _("WAL usage: %lld records, %lld full page images, %llu bytes\n"),
					 (long long) wal.wal_records, (long long) wal.wal_fpi,
					 (unsigned long long) wal.wal_bytes);
	appendStringInfo(buf, _("system usage: %s"), pg_rusage_show(&start->usage));
}

static void
report(VacuumState *vac, const VacuumParams *params, const ReportStart *start)
{
	StringInfoData buf;

	if (!report_wanted(params, start->time))
		return;
	initStringInfo(&buf);
	report_table(vac, params, &buf);
	report_indexes(vac, &buf);
	report_usage(start, &buf);
	ereport((params->options & VACOPT_VERBOSE) ? INFO : LOG, (errmsg_internal("%s", buf.data)));
	pfree(buf.data);
}

/*
 * The number of parallel workers asked for is an upper limit: indexes are vacuumed one
 * after the other here.
 */
void
tableam_relation_vacuum(Relation rel, VacuumParams *params, BufferAccessStrategy strategy)
{
	MultiXactId oldest_mxact;
	VacuumState vac;
	ReportStart start;

	report_start(&start);
	pgstat_progress_start_command(PROGRESS_COMMAND_VACUUM, RelationGetRelid(rel));
	if (params->options & VACOPT_VERBOSE)
		ereport(INFO,
				(errmsg("vacuuming \"%s.%s.%s\"", get_database_name(MyDatabaseId),
						get_namespace_name(RelationGetNamespace(rel)),
						RelationGetRelationName(rel))));

	oldest_mxact = GetOldestMultiXactId();
	open_vacuum(&vac, rel, params, strategy);

	prune_table(&vac);
	cleanup_indexes(&vac);
	store_free_values(vac.store);
	if (params->truncate != VACOPTVALUE_DISABLED)
	{
		pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_TRUNCATE);
		vac.released = store_release_empty(rel, vac.store);
	}
	/* after blocks were given back, because a new shape needs space */
	store_reconsider(rel, vac.store);

	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_FINAL_CLEANUP);
	update_statistics(&vac, vac.oldest_xmin, oldest_mxact);
	compat_report_vacuum(rel, vac.live, vac.recently_dead + vac.kept_dead, start.time);
	collect_orphans_now_and_then();
	pgstat_progress_end_command();
	report(&vac, params, &start);

	vac_close_indexes(vac.nindexes, vac.indexes, NoLock);
	pfree(vac.dead);
}
