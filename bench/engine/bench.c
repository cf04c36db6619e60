/*-------------------------------------------------------------------------
 *
 * bench.c
 *	  Entry of the library; starting runs and reading what they counted.
 *
 *-------------------------------------------------------------------------
 */
#include "sofort_bench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

PG_FUNCTION_INFO_V1(bench_start);
PG_FUNCTION_INFO_V1(bench_running);
PG_FUNCTION_INFO_V1(bench_bins);
PG_FUNCTION_INFO_V1(bench_started_at);

static char *resume_file = NULL;

int64
bench_now_us(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (int64) tv.tv_sec * 1000000 + tv.tv_usec;
}

/* ---- the file ---- */

static Size
run_size(uint32 workers, uint32 nbins)
{
	return offsetof(BenchRun, bins) + (Size) workers * nbins * sizeof(BenchBin);
}

static BenchRun *
map_file(int fd, Size size)
{
	void	   *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

BenchRun *
bench_map(const char *file)
{
	int			fd = open(file, O_RDWR);
	struct stat st;
	BenchRun   *run;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0 || st.st_size < (off_t) sizeof(BenchRun))
	{
		close(fd);
		return NULL;
	}
	run = map_file(fd, st.st_size);
	if (run != NULL && (run->magic != BENCH_MAGIC ||
						run_size(run->workers, run->nbins) != (Size) st.st_size))
	{
		munmap(run, st.st_size);
		return NULL;
	}
	return run;
}

static BenchRun *
create_run(const char *file, uint32 workers, uint32 nbins)
{
	int			fd;
	Size		size = run_size(workers, nbins);
	BenchRun   *run = NULL;

	(void) unlink(file);
	fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || ftruncate(fd, size) != 0 || (run = map_file(fd, size)) == NULL)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", file)));
	run->workers = workers;
	run->nbins = nbins;
	return run;
}

/* ---- workers ---- */

static void
describe_worker(BackgroundWorker *worker, const char *file, uint32 number)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, "sofort_bench", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, "bench_worker_main", sizeof(worker->bgw_function_name));
	snprintf(worker->bgw_name, BGW_MAXLEN, "sofort_bench worker %u", number);
	strlcpy(worker->bgw_type, "sofort_bench worker", sizeof(worker->bgw_type));
	worker->bgw_main_arg = UInt32GetDatum(number);
	strlcpy(worker->bgw_extra, file, sizeof(worker->bgw_extra));
}

/* A run that a crash has interrupted goes on. */
static void
resume_run(void)
{
	BenchRun   *run = bench_map(resume_file);

	if (run == NULL || bench_now_us() >= run->end_us)
		return;
	for (uint32 i = 0; i < run->workers; i++)
	{
		BackgroundWorker worker;

		describe_worker(&worker, resume_file, i);
		RegisterBackgroundWorker(&worker);
	}
	munmap(run, run_size(run->workers, run->nbins));
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomStringVariable("sofort_bench.resume",
							   "File of a run that goes on when the server starts.",
							   "Nothing happens if there is no such file, or its time is over.",
							   &resume_file, "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	MarkGUCPrefixReserved("sofort_bench");
	if (resume_file[0] != '\0')
		resume_run();
}

/* ---- SQL functions ---- */

static char *
file_argument(const text *arg)
{
	char	   *file = text_to_cstring(arg);

	if (!is_absolute_path(file) || strlen(file) >= BGW_EXTRALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("file must be an absolute path of less than %d bytes", BGW_EXTRALEN)));
	return file;
}

static BenchRun *
run_argument(const text *arg)
{
	char	   *file = file_argument(arg);
	BenchRun   *run = bench_map(file);

	if (run == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("file \"%s\" describes no run", file)));
	return run;
}

static void
read_weights(ArrayType *array, uint32 *weights)
{
	Datum	   *values;
	bool	   *nulls;
	int			n;
	int64		sum = 0;

	deconstruct_array(array, INT4OID, sizeof(int32), true, TYPALIGN_INT, &values, &nulls, &n);
	for (int i = 0; i < n && n == TATP_TRANSACTIONS; i++)
	{
		int32		weight = nulls[i] ? -1 : DatumGetInt32(values[i]);

		weights[i] = (uint32) weight;
		sum += weight < 0 ? 1000 : weight;
	}
	if (sum != 100)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d percentages that add up to 100 are needed", TATP_TRANSACTIONS)));
}

/* The tables are those of the first schema in the search path. */
Datum
bench_start(PG_FUNCTION_ARGS)
{
	char	   *file = file_argument(PG_GETARG_TEXT_PP(0));
	int32		workers = PG_GETARG_INT32(1);
	float8		seconds = PG_GETARG_FLOAT8(2);
	int32		subscribers = PG_GETARG_INT32(3);
	BenchRun   *run;

	if (workers < 1 || workers > BENCH_MAX_WORKERS || !(seconds > 0 && seconds <= 3600) ||
		subscribers < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("1 to %d workers, up to 3600 seconds, and at least one subscriber are needed",
						BENCH_MAX_WORKERS)));
	run = create_run(file, workers, (uint32) (seconds * 1e6 / BENCH_BIN_US) + 1);
	read_weights(PG_GETARG_ARRAYTYPE_P(4), run->weights);
	run->subscribers = subscribers;
	run->seed = (uint64) PG_GETARG_INT64(5);
	run->database = MyDatabaseId;
	run->schema = linitial_oid(fetch_search_path(false));
	run->start_us = bench_now_us();
	run->end_us = run->start_us + (int64) (seconds * 1e6);
	run->magic = BENCH_MAGIC;

	for (int i = 0; i < workers; i++)
	{
		BackgroundWorker worker;
		BackgroundWorkerHandle *handle;

		describe_worker(&worker, file, i);
		if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		{
			run->end_us = 0;
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not register background worker"),
					 errhint("Increase \"max_worker_processes\".")));
		}
	}
	PG_RETURN_VOID();
}

Datum
bench_running(PG_FUNCTION_ARGS)
{
	BenchRun   *run = run_argument(PG_GETARG_TEXT_PP(0));
	int32		n = 0;

	for (uint32 i = 0; i < run->workers; i++)
		n += run->finished[i] == 0;
	PG_RETURN_INT32(n);
}

Datum
bench_started_at(PG_FUNCTION_ARGS)
{
	BenchRun   *run = run_argument(PG_GETARG_TEXT_PP(0));

	PG_RETURN_TIMESTAMPTZ(run->start_us -
						  (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
}

Datum
bench_bins(PG_FUNCTION_ARGS)
{
	BenchRun   *run = run_argument(PG_GETARG_TEXT_PP(0));
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 w = 0; w < run->workers; w++)
	{
		for (uint32 b = 0; b < run->nbins; b++)
		{
			const BenchBin *bin = &run->bins[(Size) w * run->nbins + b];
			Datum		values[6];
			bool		nulls[6] = {0};

			values[0] = Int32GetDatum((int32) w);
			values[1] = Int32GetDatum((int32) b);
			values[2] = Int64GetDatum(bin->transactions);
			values[3] = Int64GetDatum(bin->successes);
			values[4] = Int64GetDatum((int64) (bin->busy_ns / 1000));
			values[5] = Int64GetDatum(bin->longest_us);
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}
