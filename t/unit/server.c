/*-------------------------------------------------------------------------
 *
 * server.c
 *	  As much of PostgreSQL as the pmem and store layers need outside of it:
 *	  shared memory, LWLocks, errors, memory, files.  Processes are real ones
 *	  (fork), or one that says who it is; LWLocks work between processes.
 *
 * Nothing here makes the code under test easier than it is: a lock that is held
 * twice, an error nobody catches, and PANIC end the test.
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "common/controldata_utils.h"
#include "sofort/pmem/redo.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"

#define SHARED_AREAS	8

/* ---- PostgreSQL's variables ---- */

PGPROC	   *MyProc = NULL;
PROC_HDR   *ProcGlobal = NULL;
int			MyProcPid = 0;
pid_t		PostmasterPid = 0;
volatile sig_atomic_t postmaster_possibly_dead = false;
int			MaxBackends = UNIT_PROCESSES;
char	   *DataDir = NULL;
bool		IsUnderPostmaster = false;
struct Port *MyProcPort = NULL;
volatile sig_atomic_t InterruptPending = false;
volatile uint32 InterruptHoldoffCount = 0;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
MemoryContext CurrentMemoryContext = NULL;
MemoryContext TopMemoryContext = NULL;
int			pg_file_create_mode = 0600;
#if PG_VERSION_NUM >= 170000
ProcNumber	MyProcNumber = INVALID_PROC_NUMBER;
#endif

/* Settings of sofort (src/sofort.c) */
char	   *sofort_pool_path = NULL;
int			sofort_pool_size_mb = 64;
int			sofort_durability = PM_DURABILITY_PROCESS;
int			sofort_dram_size_mb = 64;

static char directory[MAXPGPATH];

static PGPROC procs[UNIT_PROCESSES];

/* ---- processes ---- */

void
server_become(int n)
{
	Assert(n >= 0 && n <= UNIT_PROCESSES);
	MyProcPid = getpid();
	MyProc = n == 0 ? NULL : &procs[n - 1];
#if PG_VERSION_NUM < 170000
	if (n > 0)
		MyProc->pgprocno = n - 1;
#else
	MyProcNumber = n - 1;
#endif
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
}

void
cancel_before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
}

void
on_shmem_exit(pg_on_exit_callback function, Datum arg)
{
}

static pg_on_exit_callback at_exit = NULL;
static Datum at_exit_arg;

void
on_proc_exit(pg_on_exit_callback function, Datum arg)
{
	at_exit = function;
	at_exit_arg = arg;
}

void
server_stop(void)
{
	if (at_exit != NULL)
		at_exit(0, at_exit_arg);
}

void
RegisterXactCallback(XactCallback callback, void *arg)
{
}

void
RegisterSubXactCallback(SubXactCallback callback, void *arg)
{
}

bool
PostmasterIsAliveInternal(void)
{
	return true;
}

void
ProcessInterrupts(void)
{
}

/* ---- shared memory ---- */

static struct
{
	char		name[64];
	void	   *memory;
	Size		size;
}			areas[SHARED_AREAS];

void *
shared_memory(Size size)
{
	void	   *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
						 -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	int			i;

	for (i = 0; i < SHARED_AREAS && areas[i].memory != NULL; i++)
	{
		if (strcmp(areas[i].name, name) == 0)
		{
			*found = true;
			return areas[i].memory;
		}
	}
	if (i == SHARED_AREAS)
		abort();
	*found = false;
	strlcpy(areas[i].name, name, sizeof(areas[i].name));
	areas[i].size = size;
	return areas[i].memory = shared_memory(size);
}

static void
forget_shared_memory(void)
{
	for (int i = 0; i < SHARED_AREAS && areas[i].memory != NULL; i++)
	{
		munmap(areas[i].memory, areas[i].size);
		areas[i].memory = NULL;
	}
}

/* Some releases have these two in libpgcommon. */
__attribute__((weak)) Size
add_size(Size a, Size b)
{
	return a + b;
}

__attribute__((weak)) Size
mul_size(Size a, Size b)
{
	return a * b;
}

/* ---- locks ---- */

#define EXCLUSIVE	0x1000000u
#define MOST_HELD	200			/* as the server's */

static LWLock *held[MOST_HELD];
static int	nheld = 0;

LWLockPadded *
GetNamedLWLockTranche(const char *name)
{
	bool		found;
	LWLockPadded *locks = ShmemInitStruct(name, 1024 * sizeof(LWLockPadded), &found);

	nheld = 0;
	return locks;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	uint32		state;
	uint32		wanted;

	for (int i = 0; i < nheld; i++)
	{
		if (held[i] == lock)
			elog(PANIC, "a lock is taken twice");
	}
	if (nheld == MOST_HELD)
		elog(PANIC, "too many locks are held");
	for (;;)
	{
		state = pg_atomic_read_u32(&lock->state);
		wanted = mode == LW_EXCLUSIVE ? EXCLUSIVE : state + 1;
		if ((mode == LW_EXCLUSIVE ? state == 0 : state < EXCLUSIVE) &&
			pg_atomic_compare_exchange_u32(&lock->state, &state, wanted))
			break;
		sched_yield();
	}
	held[nheld++] = lock;
	HOLD_INTERRUPTS();
	return true;
}

void
LWLockRelease(LWLock *lock)
{
	int			i = nheld;

	while (--i >= 0 && held[i] != lock)
		;
	if (i < 0)
		elog(PANIC, "a lock that is not held is released");
	held[i] = held[--nheld];
	if (pg_atomic_read_u32(&lock->state) >= EXCLUSIVE)
		pg_atomic_fetch_sub_u32(&lock->state, EXCLUSIVE);
	else
		pg_atomic_fetch_sub_u32(&lock->state, 1);
	RESUME_INTERRUPTS();
}

bool
LWLockHeldByMe(LWLock *lock)
{
	for (int i = 0; i < nheld; i++)
	{
		if (held[i] == lock)
			return true;
	}
	return false;
}

int
s_lock(volatile slock_t *lock, const char *file, int line, const char *func)
{
	while (TAS(lock))
		sched_yield();
	return 1;
}

/* ---- errors ---- */

static int	elevel_now;
static char message[2048];
static int	sqlstate;

const char *
server_message(void)
{
	return message;
}

int
server_sqlstate(void)
{
	return sqlstate;
}

void
server_forget(void)
{
	message[0] = '\0';
	sqlstate = 0;
}

/* What PostgreSQL does when it has caught an error */
void
server_after_error(void)
{
	while (nheld > 0)
		LWLockRelease(held[nheld - 1]);
	InterruptHoldoffCount = 0;
}

bool
errstart(int elevel, const char *domain)
{
	elevel_now = elevel;
	return elevel >= WARNING || elevel == LOG;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errcode(int code)
{
	sqlstate = code;
	return 0;
}

int
errcode_for_file_access(void)
{
	sqlstate = ERRCODE_IO_ERROR;
	return 0;
}

static void
note_message(const char *fmt, va_list args)
{
	if (elevel_now >= WARNING)
		vsnprintf(message, sizeof(message), fmt, args);
}

int
errmsg(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	note_message(fmt, args);
	va_end(args);
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	note_message(fmt, args);
	va_end(args);
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errdetail_log(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (elevel_now < ERROR)
		return;
	if (elevel_now == ERROR && PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	fprintf(stderr, "%s, in %s (%s:%d)\n", message, funcname, filename, lineno);
	abort();
}

void
pg_re_throw(void)
{
	if (PG_exception_stack == NULL)
		abort();
	siglongjmp(*PG_exception_stack, 1);
}

void
ExceptionalCondition(const char *condition,
#if PG_VERSION_NUM < 160000
					 const char *type,
#endif
					 const char *file, int line)
{
	fprintf(stderr, "assertion %s failed (%s:%d)\n", condition, file, line);
	abort();
}

/* ---- memory: without contexts; what is left over the process frees ---- */

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return palloc(size);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return palloc0(size);
}

/* The DRAM arena lies on DSA, which the server has. */
bool
arena_reserve(PoolRefusal *why)
{
	return true;
}

void
arena_startup(void)
{
}

void
arena_usage(uint64 *total, uint64 *used)
{
	*total = *used = 0;
}

void *
arena_alloc(Size size, int flags)
{
	return (flags & ARENA_ZERO) ? palloc0(size) : palloc(size);
}

void
arena_raise_full(Size size)
{
	abort();
}

void
arena_refuse_start(const char *what)
{
	abort();
}

void
arena_free(void *p)
{
	pfree(p);
}

/* ---- files and the rest ---- */

int
durable_rename(const char *from, const char *to, int elevel)
{
	return rename(from, to);
}

int
fsync_fname_ext(const char *name, bool isdir, bool ignore_perm, int elevel)
{
	return 0;
}

__attribute__((weak)) void
SetLatch(Latch *latch)
{
}

uint64
GetSystemIdentifier(void)
{
	return UINT64CONST(0x1234567890);
}

/* Always started from the same checkpoint, not one of pg_resetwal */
ControlFileData *
get_controlfile(const char *DataDir, bool *crc_ok_p)
{
	ControlFileData *control = palloc0(sizeof(ControlFileData));

	control->state = DB_IN_PRODUCTION;
	control->xlog_seg_size = DEFAULT_XLOG_SEG_SIZE;
	control->checkPoint = DEFAULT_XLOG_SEG_SIZE + 0x1000;
	*crc_ok_p = true;
	return control;
}

bool
RecoveryInProgress(void)
{
	return false;
}

/* (Everybody here may know everything.) */
bool
IsTransactionState(void)
{
	return true;
}

Oid
GetUserId(void)
{
	return BOOTSTRAP_SUPERUSERID;
}

bool
has_privs_of_role(Oid member, Oid role)
{
	return true;
}

bool
pg_strong_random(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t) len;
}

/* ---- the server ---- */

static void
remove_directory(const char *path)
{
	DIR		   *dir = opendir(path);
	struct dirent *e;
	char		name[MAXPGPATH * 2];

	while (dir != NULL && (e = readdir(dir)) != NULL)
	{
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(name) != 0)
			remove_directory(name);
	}
	if (dir != NULL)
		closedir(dir);
	(void) rmdir(path);
}

void
server_begin(void)
{
	const char *parent = getenv("UNIT_DIR");
	static char data[MAXPGPATH + 8];
	static char pool[MAXPGPATH + 8];

	snprintf(directory, sizeof(directory), "%s/unit.%d", parent != NULL ? parent : "/tmp", (int) getpid());
	snprintf(data, sizeof(data), "%s/data", directory);
	snprintf(pool, sizeof(pool), "%s/pool", directory);
	if (mkdir(directory, 0700) != 0 || mkdir(data, 0700) != 0 || chdir(data) != 0)
	{
		perror(directory);
		abort();
	}
	DataDir = data;
	sofort_pool_path = pool;
	server_become(0);
}

/* The pool is opened anew after this, as by another postmaster. */
void
server_end(void)
{
	forget_shared_memory();
	if (PoolBase != NULL)
	{
		munmap(PoolBase, PM_POOL_FILE_BYTES);
		close(pm_pool_fd);
		PoolBase = NULL;
		PoolSuper = NULL;
		pm_nextents = 0;
	}
	if (chdir("/") == 0)
		remove_directory(directory);
}

/* What a child that died has left */
void
server_remove(int pid)
{
	const char *parent = getenv("UNIT_DIR");
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/unit.%d", parent != NULL ? parent : "/tmp", pid);
	remove_directory(path);
}

bool
server_try_start(void)
{
	forget_shared_memory();
	server_become(0);
	nheld = 0;
	InterruptHoldoffCount = 0;
	PG_exception_stack = NULL;
	pool_startup();
	return pool_status() == POOL_READY;
}

void
server_start(void)
{
	if (!server_try_start())
		unit_fail("the pool cannot be used: %s (%s)", pm_shared->message, pm_shared->detail);
}

/* ---- checks ---- */

bool		unit_in_child = false;

void
unit_fail(const char *fmt,...)
{
	char		text[1024];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (unit_in_child && getenv("UNIT_VERBOSE") != NULL)
		fprintf(stderr, "%s\n", text);
	if (unit_in_child)
		_exit(1);
	fail_msg("%s", text);
	abort();
}

bool
unit_fails(uint64 seed, int (*begin) (void **state), void (*lose) (const void *what),
		   const void *what, void (*workout) (void))
{
	int			status;
	pid_t		child;

	fflush(NULL);
	child = fork();
	if (child == 0)
	{
		unit_in_child = true;
		if (getenv("UNIT_VERBOSE") == NULL && freopen("/dev/null", "w", stderr) == NULL)
			_exit(2);
		(void) begin(NULL);
		lose(what);
		seed_random(seed);		/* begin() has thrown those of UNIT_SEED */
		/* 120 s of its own, however busy the machine is */
		setitimer(ITIMER_PROF, &(struct itimerval) {.it_value.tv_sec = 120}, NULL);
		alarm(900);
		workout();
		server_end();
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		abort();
	server_remove(child);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void
report_problem(void *arg, const char *kind, const char *place, const char *problem)
{
	if (!unit_in_child)
		fprintf(stderr, "pool: %s, %s, %s\n", kind, place, problem);
	(*(int *) arg)++;
}

void
assert_pool_is_sound(void)
{
	const FreeCache *cache = &pm_shared->free_cache;
	int			problems = 0;
	uint64		used = pm_shared->nspare;
	uint64		kept = 0;
	uint64		bits = 0;

	(void) pool_verify(report_problem, &problems);
	check(problems == 0);
	for (int e = 0; e < pm_nextents; e++)
	{
		uint32		prepared = words_prepared(e);

		for (uint32 g = 0; g < prepared; g++)
		{
			uint64		word = segment_word(e, g);

			bits += segment_is_used(e, g);
			if (SEGWORD_STATE(word) != SEGWORD_FREE)
				used += SEGWORD_STATE(word) == SEGWORD_SEGMENT ? SEGWORD_COUNT(word) : 1;
		}
	}
	for (int i = 0; i < cache->nruns; i++)
	{
		int			e;
		uint32		g;

		check(segment_find(cache->run[i].offset, &e, &g));
		for (uint32 k = 0; k < cache->run[i].n; k++)
			check(segment_is_used(e, g + k) && segment_word(e, g + k) == 0);
		kept += cache->run[i].n;
	}
	check(kept == cache->granules && kept <= FREE_CACHE_GRANULES);
	check(used == pg_atomic_read_u64(&pm_shared->used_granules));
	check(used + kept == bits);
}

/* ---- random numbers ---- */

static uint64 random_state = 1;

void
seed_random(uint64 seed)
{
	random_state = seed * UINT64CONST(0x9e3779b97f4a7c15) + 1;
}

uint64
random_below(uint64 n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % n;
}

uint64
unit_seed(void)
{
	const char *seed = getenv("UNIT_SEED");

	return seed != NULL && *seed != '\0' ? strtoull(seed, NULL, 10) : 1;
}
