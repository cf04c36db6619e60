/*-------------------------------------------------------------------------
 *
 * sofort.c
 *	  Entry of the library: settings, shared memory, hooks, workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "sofort/exec/exec.h"
#include "sofort/indexam/indexam.h"
#include "sofort/indexam/tree.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/latency.h"
#include "sofort/pmem/pool.h"
#include "sofort/pmem/redo.h"
#include "sofort/recovery/recovery.h"
#include "sofort/store/store.h"
#include "sofort/tableam/tableam.h"
#include "sofort/txn/kept.h"
#include "sofort/txn/txn.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* ---- settings ---- */

char	   *sofort_pool_path = NULL;
int			sofort_pool_size_mb = 4096;
int			sofort_durability = PM_DURABILITY_AUTO;
int			sofort_dram_size_mb = 2048;

static const struct config_enum_entry durability_options[] = {
	{"auto", PM_DURABILITY_AUTO, false},
	{"pmem", PM_DURABILITY_PMEM, false},
	{"msync", PM_DURABILITY_MSYNC, false},
	{"process", PM_DURABILITY_PROCESS, false},
	{NULL, 0, false}
};

static const struct config_enum_entry placement_options[] = {
	{"dram", TREE_DRAM, false},
	{"pmem", TREE_PMEM, false},
	{"hybrid", TREE_HYBRID, false},
	{NULL, 0, false}
};

static const struct config_enum_entry dictionary_placement_options[] = {
	{"dram", DICT_DRAM, false},
	{"pmem", DICT_PMEM, false},
	{"hybrid", DICT_HYBRID, false},
	{NULL, 0, false}
};

static void
define_latency_settings(void)
{
	DefineCustomIntVariable("sofort.scm_read_latency",
							"Emulation: nanoseconds added to each cache miss in the pool.",
							"For benchmarks. Only misses that sofort knows of; 0 switches it off.",
							&sofort_scm_read_latency, 0, 0, PM_MAX_LATENCY, PGC_SUSET,
							GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("sofort.scm_write_latency",
							"Emulation: nanoseconds added to each wait for flushed lines.",
							"For benchmarks. 0 switches it off.",
							&sofort_scm_write_latency, 0, 0, PM_MAX_LATENCY, PGC_SUSET,
							GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

static void
define_pool_settings(void)
{
	DefineCustomStringVariable("sofort.pool_path",
							   "Path of the persistent-memory pool.",
							   "Empty: the data directory's path with \".sofort\" appended. "
							   "Must not be inside the data directory.",
							   &sofort_pool_path, "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("sofort.pool_size",
							"Largest amount of data in the pool.",
							"The file is sparse; space is taken when it is needed and given back.",
							&sofort_pool_size_mb, 4096, 8, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("sofort.durability",
							 "What committed transactions on sofort tables must survive.",
							 "auto: power loss, by whatever the pool's file system offers; "
							 "process: crashes of the server only.",
							 &sofort_durability, PM_DURABILITY_AUTO, durability_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("sofort.redo_size",
							"Size of the redo log of a pool in an ordinary file.",
							"A file beside the pool, allocated at start. Used with medium msync only.",
							&sofort_redo_size_mb, 256, 16, 64 * 1024, PGC_POSTMASTER,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("sofort.dram_size",
							"Memory for indexes and dictionaries of sofort tables.",
							"Address space is reserved at start; memory is taken when it is needed.",
							&sofort_dram_size_mb, 2048, 16, 1024 * 1024, PGC_POSTMASTER,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomEnumVariable("sofort.index_placement",
							 "Where new sofort indexes lie.",
							 "dram: rebuilt after a start; pmem: usable at once; "
							 "hybrid: leaves in the pool, inner nodes in memory.",
							 &sofort_index_placement, TREE_DRAM, placement_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("sofort.dictionary_placement",
							 "Where the indexes of new dictionaries lie.",
							 "dram: rebuilt after a start; pmem: usable at once; "
							 "hybrid: in the pool, the latest values in memory.",
							 &sofort_dictionary_placement, DICT_DRAM, dictionary_placement_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
}

/* ---- shared memory ---- */

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static void
request_shared_memory(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(fault_shmem_size());
	RequestAddinShmemSpace(pool_shmem_size());
	RequestAddinShmemSpace(txn_shmem_size());
	RequestAddinShmemSpace(store_shmem_size());
	RequestAddinShmemSpace(indexam_shmem_size());
	RequestAddinShmemSpace(recovery_shmem_size());
	RequestNamedLWLockTranche("sofort_pmem", pool_lwlocks());
	RequestNamedLWLockTranche("sofort_txn", txn_lwlocks());
	RequestNamedLWLockTranche("sofort_store", store_lwlocks());
}

/*
 * At the start of the server and of every life after a crash of one backend.
 * The store tells txn how to finish what it finds, so it comes before txn.
 */
static void
start_modules(void)
{
	instr_time	start;
	instr_time	end;

	if (prev_shmem_startup)
		prev_shmem_startup();
	INSTR_TIME_SET_CURRENT(start);
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	fault_startup();
	pool_startup();
	store_startup();
	txn_startup();
	indexam_startup();
	recovery_startup();
	LWLockRelease(AddinShmemInitLock);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	pool_log_start(INSTR_TIME_GET_MILLISEC(end));
}

/*
 * Without shared_preload_libraries there is no pool; the library loads all the
 * same, so that its functions and access methods can say so.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		indexam_init();
		tableam_init();
		return;
	}

	define_pool_settings();
	define_latency_settings();
	latency_init();

	/*
	 * A transaction whose commit record is not flushed wakes the WAL writer,
	 * and those of sofort never flush it: a tenth of a short transaction's
	 * time.  A value in postgresql.conf has priority.
	 */
	SetConfigOption("wal_writer_flush_after", "0", PGC_POSTMASTER, PGC_S_DYNAMIC_DEFAULT);
	txn_init();
	kept_init();
	indexam_init();
	exec_init();
	tableam_init();
	recovery_register_workers();
	redo_register_worker();
	MarkGUCPrefixReserved("sofort");

	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_modules;
}
