/*-------------------------------------------------------------------------
 *
 * pool_file.c
 *	  The pool file: lock, creation and opening through libpmemobj, medium,
 *	  mapping.  Runs in the postmaster (or single user) only; nobody else calls
 *	  libpmemobj, and it is closed again before the first fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <libpmemobj.h>
#include <linux/magic.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "access/xlog.h"
#include "pm_internal.h"
#include "storage/fd.h"

#define EXTENT_TYPE			1	/* libpmemobj type number */
#define MAP_ALIGN			((uint64) 1 << 30)
#define FREE_BYTES_NEEDED	((uint64) 16 << 20) /* file system, to create */
#define LOCK_TRIES			20	/* 50 ms apart: children of a dead server */

#ifndef RAMFS_MAGIC
#define RAMFS_MAGIC			0x858458f6
#endif

char		pm_pool_file[MAXPGPATH];
int			pm_pool_fd = -1;
PmExtent	pm_extent[PM_MAX_EXTENTS];
int			pm_nextents = 0;
char	   *PoolBase = NULL;
PoolSuperblock *PoolSuper = NULL;

static int	lock_fd = -1;

/* What a message calls the file */
static const char *
kind_of(const char *path)
{
	return strcmp(path, redo_path()) == 0 ? "file" : "sofort pool";
}

/*
 * Refuses the pool for an error of the operating system (errno), in the pool or in a file
 * beside it
 */
bool
pool_refuse_errno(PoolRefusal *why, const char *action, const char *path, const char *hint)
{
	int			err = errno;
	int			sqlstate = ERRCODE_IO_ERROR;

	if (err == ENOSPC || err == EDQUOT)
	{
		sqlstate = ERRCODE_DISK_FULL;
		hint = "Free space on the file system that holds the pool, and restart the server.";
	}
	else if (err == EACCES || err == EPERM)
		sqlstate = ERRCODE_INSUFFICIENT_PRIVILEGE;
	else if (err == ENOENT)
		sqlstate = ERRCODE_UNDEFINED_FILE;
	return pool_refuse(why, sqlstate, hint, NULL, "could not %s %s \"%s\": %s",
					   action, kind_of(path), path, strerror(err));
}

/* ---- name ---- */

/*
 * Sets pm_pool_file from the configuration.  FATAL for a path that is relative
 * or inside the data directory (a base backup would copy the pool).
 */
void
pool_file_path(void)
{
	char		parent[MAXPGPATH];
	char		real_parent[PATH_MAX];
	char		real_data[PATH_MAX];

	if (sofort_pool_path != NULL && sofort_pool_path[0] != '\0')
		strlcpy(pm_pool_file, sofort_pool_path, sizeof(pm_pool_file));
	else
		snprintf(pm_pool_file, sizeof(pm_pool_file), "%s.sofort", DataDir);
	if (!is_absolute_path(pm_pool_file) || strlen(pm_pool_file) > MAXPGPATH - 16)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("sofort.pool_path must be an absolute path of at most %d bytes",
						MAXPGPATH - 16)));
	canonicalize_path(pm_pool_file);

	/* The directory may be a symbolic link; the file may not. */
	strlcpy(parent, pm_pool_file, sizeof(parent));
	get_parent_directory(parent);
	if (realpath(parent, real_parent) == NULL)
		strlcpy(real_parent, parent, sizeof(real_parent));
	if (realpath(DataDir, real_data) == NULL)
		strlcpy(real_data, DataDir, sizeof(real_data));
	if (path_is_prefix_of_path(real_data, real_parent) ||
		path_is_prefix_of_path(DataDir, pm_pool_file))
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("sofort.pool_path must not be inside the data directory"),
				 errdetail("The path is \"%s\", the data directory is \"%s\".",
						   pm_pool_file, DataDir),
				 errhint("A base backup would copy the whole pool; choose a path beside the data directory.")));
}

static bool
check_kind(const struct stat *st, const char *path, PoolRefusal *why)
{
	if (!S_ISREG(st->st_mode))
		return pool_refuse(why, ERRCODE_WRONG_OBJECT_TYPE,
						   "Set sofort.pool_path to the file itself, not to a symbolic link, directory or device.",
						   NULL, "%s \"%s\" is not a regular file", kind_of(path), path);
	if (st->st_uid != geteuid() || (st->st_mode & (S_IRWXG | S_IRWXO)) != 0)
		return pool_refuse(why, ERRCODE_INSUFFICIENT_PRIVILEGE,
						   "The file must belong to the user of the server and have mode 0600.",
						   NULL, "%s \"%s\" can be read or written by others", kind_of(path), path);
	return true;
}

/*
 * Is there such a file, the pool or its redo log?  *exists says so; false with a
 * reason if what is there cannot be one.
 */
bool
pool_file_find(const char *path, bool *exists, PoolRefusal *why)
{
	struct stat st;

	*exists = false;
	if (lstat(path, &st) != 0)
	{
		if (errno == ENOENT)
			return true;
		return pool_refuse_errno(why, "access", path, NULL);
	}
	*exists = true;
	return check_kind(&st, path, why);
}

/*
 * Opens it and checks again: the name that pool_file_find() looked at may now be another
 * file's.
 */
bool
pool_file_open_checked(const char *path, int flags, int *fd, PoolRefusal *why)
{
	struct stat st;
	bool		ok;

	*fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
	if (*fd < 0)
		return pool_refuse_errno(why, "open", path,
								 "The server's user must own the file and be able to read and write it.");
	if (fstat(*fd, &st) != 0)
		ok = pool_refuse_errno(why, "examine", path, NULL);
	else
		ok = check_kind(&st, path, why);
	if (!ok)
		close(*fd);
	return ok;
}

/* ---- exclusion ---- */

/*
 * A lock of our own on a file beside the pool, because libpmemobj's ends when the pool is
 * closed.  Children inherit it, so it is held while any orphan lives.
 */
bool
pool_file_lock(PoolRefusal *why)
{
	char		path[MAXPGPATH + 8];
	int			fd;
	int			i;

	if (lock_fd >= 0)
		return true;
	snprintf(path, sizeof(path), "%s.lock", pm_pool_file);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return pool_refuse_errno(why, "open the lock file of", path,
							"Make sure that the directory of sofort.pool_path exists and that the server may write there.");
	for (i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
	{
		int			err = errno;

		if (err == EWOULDBLOCK && i < LOCK_TRIES)
		{
			pg_usleep(50000L);
			continue;
		}
		close(fd);
		errno = err;
		if (err != EWOULDBLOCK)
			return pool_refuse_errno(why, "lock", path, NULL);
		return pool_refuse(why, ERRCODE_OBJECT_IN_USE,
						   "Give each server its own sofort.pool_path, or stop the other server.",
						   NULL, "sofort pool \"%s\" is in use by another server", pm_pool_file);
	}
	lock_fd = fd;
	return true;
}

/*
 * A word in the lock file: like the pool's page cache it outlives all processes; after a
 * power cut it does not matter.
 */
bool
pool_file_word(pg_atomic_uint32 **word, PoolRefusal *why)
{
	uint32		value = 0;
	void	   *p;

	/* written, so that it is in no hole: a store into one may be a SIGBUS */
	errno = ENOSPC;
	if (pread(lock_fd, &value, sizeof(value), 0) < 0 ||
		pwrite(lock_fd, &value, sizeof(value), 0) != sizeof(value))
		return pool_refuse_errno(why, "write the lock file of", pm_pool_file, NULL);
	p = mmap(NULL, sizeof(value), PROT_READ | PROT_WRITE, MAP_SHARED, lock_fd, 0);
	if (p == MAP_FAILED)
		return pool_refuse_errno(why, "map the lock file of", pm_pool_file, NULL);
	*word = p;
	return true;
}

/* ---- medium ---- */

static bool
file_is_dax(int fd)
{
#ifdef MAP_SYNC
	void	   *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);

	if (p != MAP_FAILED)
	{
		munmap(p, 4096);
		return true;
	}
#endif
	return false;
}

/*
 * Chooses the medium that sofort.durability asks for, if this file can provide it. fd: of a
 * file on the pool's file system, not empty.
 */
static bool
choose_medium(int fd, PmMedium *medium, PoolRefusal *why)
{
	struct statfs fs;
	bool		dax = file_is_dax(fd);
	bool		in_memory;

	if (fstatfs(fd, &fs) != 0)
		return pool_refuse_errno(why, "examine", pm_pool_file, NULL);
	in_memory = fs.f_type == TMPFS_MAGIC || (unsigned int) fs.f_type == RAMFS_MAGIC;

	if (sofort_durability == PM_DURABILITY_PROCESS)
	{
		*medium = PM_MEDIUM_PROCESS;
		return true;
	}
	if (in_memory)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Set sofort.durability = 'process' if committed transactions need not survive a crash of the operating system or power loss; else put the pool on another file system.",
						   "The file system is in memory (tmpfs).",
						   "sofort pool \"%s\" would not survive power loss", pm_pool_file);
	if (sofort_durability == PM_DURABILITY_PMEM && !dax)
		return pool_refuse(why, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						   "Put the pool on a file system mounted with the option dax, or set sofort.durability to 'auto' or 'msync'.",
						   "The file cannot be mapped with MAP_SYNC.",
						   "sofort pool \"%s\" is not on persistent memory", pm_pool_file);
	*medium = dax && sofort_durability != PM_DURABILITY_MSYNC ? PM_MEDIUM_PMEM : PM_MEDIUM_MSYNC;
	return true;
}

/* ---- creation ---- */

/* fallocate and write at once: a full file system is an error, not a SIGBUS. */
static bool
back_file(int fd, uint64 offset, uint64 len)
{
	int			rc;

	do
		rc = fallocate(fd, 0, (off_t) offset, (off_t) len);
	while (rc != 0 && errno == EINTR);
	return rc == 0;
}

/* Extent from a libpmemobj object of so many bytes at this offset */
static void
layout_extent(PoolExtent *extent, uint64 object, uint64 bytes)
{
	extent->offset = TYPEALIGN64(PM_ALIGN_EXTENT, object);
	extent->size = ((object + bytes) & ~(PM_ALIGN_EXTENT - 1)) - extent->offset;
}

static void
describe_extent(ExtentHeader *header, const PoolExtent *extent)
{
	uint64		words = extent->size / PM_GRANULE * sizeof(uint64);

	memset(header, 0, sizeof(ExtentHeader));
	header->magic = PM_EXTENT_MAGIC;
	header->first_granule_offset = TYPEALIGN64(PM_ALIGN_EXTENT, extent->offset + PM_GRANULE + words);
	header->ngranules = (extent->offset + extent->size - header->first_granule_offset) / PM_GRANULE;
	header->crc = extent_header_crc(header);
}

/*
 * Extents for all of the file, published in the root by one atomic step of
 * libpmemobj, with the headers that they point to already in place.  (The
 * count follows; a pool without its magic number is never used.)
 */
static bool
publish_extents(PMEMobjpool *pop, int fd, PoolRoot *root)
{
	static struct pobj_action acts[3 * PM_MAX_EXTENTS + 3];
	int			nacts = 0;
	uint32		n = 0;

	while (n < PM_MAX_EXTENTS)
	{
		PMEMoid		oid = pmemobj_reserve(pop, &acts[nacts], PMEMOBJ_MAX_ALLOC_SIZE, EXTENT_TYPE);
		PoolExtent	x;
		ExtentHeader *header;

		if (OID_IS_NULL(oid))
			break;
		nacts++;
		layout_extent(&x, oid.off, PMEMOBJ_MAX_ALLOC_SIZE);
		if (!back_file(fd, x.offset, 4096))
			return false;
		header = (ExtentHeader *) ((char *) pop + x.offset);
		describe_extent(header, &x);
		pmemobj_persist(pop, header, sizeof(ExtentHeader));
		pmemobj_set_value(pop, &acts[nacts++], &root->extents[n].offset, x.offset);
		pmemobj_set_value(pop, &acts[nacts++], &root->extents[n].size, x.size);
		if (n == 0)
			pmemobj_set_value(pop, &acts[3 * PM_MAX_EXTENTS + 2], &root->superblock_offset,
							  header->first_granule_offset);
		n++;
	}
	if (n == 0)
	{
		errno = ENOSPC;
		return false;
	}
	acts[nacts++] = acts[3 * PM_MAX_EXTENTS + 2];
	if (pmemobj_publish(pop, acts, (size_t) nacts) != 0)
		return false;
	root->nextents = n;
	pmemobj_persist(pop, root, sizeof(PoolRoot));
	return true;
}

/* The superblock, in granule 0 of extent 0, with the first intents */
static bool
make_superblock(PMEMobjpool *pop, int fd, PoolRoot *root, const PoolControl *control)
{
	ExtentHeader *header = (ExtentHeader *) ((char *) pop + root->extents[0].offset);
	uint64	   *words = (uint64 *) ((char *) header + PM_GRANULE);
	PoolSuperblock *super = (PoolSuperblock *) ((char *) pop + root->superblock_offset);

	if (!back_file(fd, root->extents[0].offset + PM_GRANULE, 4096) ||
		!back_file(fd, root->superblock_offset, PM_GRANULE))
		return false;
	memset(super, 0, PM_GRANULE);
	super->magic = SOFORT_POOL_MAGIC;
	super->layout_version = SOFORT_LAYOUT_VERSION;
	super->flags = PM_SEAL16(SUPERBLOCK_FRESH);
	pool_identity_fill(&super->identity, control->pool_id);
	super->life = control->life;
	super->hw_sequence = control->hw_sequence;
	super->hw_xid = control->hw_xid;
	super->next_store_id = PM_SEAL_ID(PM_FIRST_STORE_ID);
	pm_vector_init(&super->stores, sizeof(PMPtr), 1024);
	pm_vector_init(&super->tcbs, sizeof(Tcb), PM_GRANULE / sizeof(Tcb));
	pm_vector_init(&super->workload, sizeof(WorkloadRecord), 32);
	pm_vector_init(&super->kept, sizeof(KeptRecord), PM_GRANULE / sizeof(KeptRecord));
	super->intents.elem_size = sizeof(AllocIntents);
	super->intents.first_shift = PM_INTENTS_SHIFT;
	super->intents.check = PM_VECTOR_CHECK(sizeof(AllocIntents), PM_INTENTS_SHIFT);
	super->intents.chunks[0] = PM_REF(root->superblock_offset + PM_INTENTS_OFFSET);
	super->intents.length = PM_SEAL(1 << PM_INTENTS_SHIFT);
	pmemobj_persist(pop, super, PM_GRANULE);
	words[0] = segword_make(SEGWORD_SEGMENT, 1, PM_OWNER_POOL);
	pmemobj_persist(pop, words, sizeof(uint64));
	header->words_prepared = PM_SEAL(512);
	pmemobj_persist(pop, header, sizeof(ExtentHeader));

	root->layout_version = SOFORT_LAYOUT_VERSION;
	root->crc = pool_root_crc(root);
	pmemobj_persist(pop, root, sizeof(PoolRoot));
	root->magic = SOFORT_POOL_MAGIC;
	pmemobj_persist(pop, root, sizeof(PoolRoot));
	return true;
}

static void
configure_library(void)
{
	int			zero = 0;

	(void) pmemobj_ctl_set(NULL, "fallocate.at_create", &zero);
	(void) pmemobj_ctl_set(NULL, "prefault.at_create", &zero);
	(void) pmemobj_ctl_set(NULL, "prefault.at_open", &zero);
}

/* Fill a new sparse file; errno or pmemobj_errormsg() says what failed. */
static bool
format_pool(const char *path, int fd, const PoolControl *control)
{
	PMEMobjpool *pop;
	PMEMoid		oid;
	PoolRoot   *root;
	bool		ok;

	configure_library();
	pop = pmemobj_create(path, SOFORT_POOL_LAYOUT_NAME, 0, 0600);
	if (pop == NULL)
		return false;
	oid = pmemobj_root(pop, sizeof(PoolRoot));
	root = OID_IS_NULL(oid) ? NULL : pmemobj_direct(oid);
	ok = root != NULL && publish_extents(pop, fd, root) &&
		make_superblock(pop, fd, root, control);
	pmemobj_close(pop);
	if (!ok)
		return false;

	/* touch what an opening touches, while failing is still harmless */
	pop = pmemobj_open(path, SOFORT_POOL_LAYOUT_NAME);
	if (pop == NULL)
		return false;
	pmemobj_close(pop);
	return fsync(fd) == 0;
}

static bool
check_free_space(int fd, PoolRefusal *why)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) != 0)
		return pool_refuse_errno(why, "examine", pm_pool_file, NULL);
	if ((uint64) fs.f_bavail * fs.f_frsize < FREE_BYTES_NEEDED)
		return pool_refuse(why, ERRCODE_DISK_FULL,
						   "Free at least 16 MB on the file system that holds the pool.", NULL,
						   "could not create sofort pool \"%s\": %s", pm_pool_file, strerror(ENOSPC));
	return true;
}

/*
 * Make the pool that the control file announces: under another name, complete
 * and synchronised, then renamed.  The lock is held; there is no such file.
 */
bool
pool_file_create(const PoolControl *control, PoolRefusal *why)
{
	char		path[MAXPGPATH + 8];
	PmMedium	medium;
	int			fd;
	bool		ok;

	snprintf(path, sizeof(path), "%s.new", pm_pool_file);
	if (unlink(path) != 0 && errno != ENOENT)
		return pool_refuse_errno(why, "remove a half-made", path, NULL);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return pool_refuse_errno(why, "create", path, NULL);
	if (fchmod(fd, 0600) != 0 || ftruncate(fd, (off_t) control->file_bytes) != 0)
		ok = pool_refuse_errno(why, "create", path,
						  "The file system must allow sparse files of 1 TB.");
	else if (!check_free_space(fd, why) || !choose_medium(fd, &medium, why))
		ok = false;
	else if (!back_file(fd, 0, 8192))
		ok = pool_refuse_errno(why, "allocate space for", path,
						  "The file system must support fallocate().");
	else
	{
		errno = 0;
		ok = format_pool(path, fd, control);
		if (!ok && (errno == ENOSPC || errno == EDQUOT))
			pool_refuse_errno(why, "create", path, NULL);
		else if (!ok)
			pool_refuse(why, ERRCODE_IO_ERROR, NULL, pmemobj_errormsg(),
						"could not create sofort pool \"%s\"", path);
		malloc_trim(0);
	}
	close(fd);
	if (ok && durable_rename(path, pm_pool_file, LOG) != 0)
		ok = pool_refuse_errno(why, "rename", path, NULL);
	if (!ok)
		(void) unlink(path);
	return ok;
}

/* The name of the pool or its redo log is on the disk.  False, with errno and a message in the log. */
bool
pool_file_make_name_durable(const char *path)
{
	char		directory[MAXPGPATH];

	strlcpy(directory, path, sizeof(directory));
	get_parent_directory(directory);
	return fsync_fname_ext(directory, true, false, LOG) == 0;
}

/* ---- opening ---- */

/*
 * Checks everything that can be checked without changing the file: size, superblock, age.
 * The control file says where the superblock is (0: not known yet).
 */
static bool
check_file(int fd, const PoolControl *control, PoolRefusal *why)
{
	PoolSuperblock super;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return pool_refuse_errno(why, "examine", pm_pool_file, NULL);
	if ((uint64) st.st_size != control->file_bytes)
	{
		char	   *detail = psprintf("It has %lld bytes instead of " UINT64_FORMAT ".",
									  (long long) st.st_size, control->file_bytes);

		return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						   "Restore pool and data directory from one backup.", detail,
						   "sofort pool \"%s\" is truncated or has the wrong size", pm_pool_file);
	}
	if (control->superblock_offset == 0)
		return true;
	if (pread(fd, &super, sizeof(super), (off_t) control->superblock_offset) != sizeof(super))
		return pool_refuse_errno(why, "read", pm_pool_file, NULL);
	return pool_check_superblock(&super, control, why) &&
		pool_check_agreement(&super, control, why);
}

/* Runs libpmemobj's recovery, and copies the root */
static bool
recover_by_library(PoolRoot *root, PoolRefusal *why)
{
	PMEMobjpool *pop;
	size_t		size;

	configure_library();
	errno = 0;
	pop = pmemobj_open(pm_pool_file, SOFORT_POOL_LAYOUT_NAME);
	if (pop == NULL)
	{
		int			sqlstate = errno == EACCES || errno == EPERM ? ERRCODE_INSUFFICIENT_PRIVILEGE :
			errno == EAGAIN || errno == EWOULDBLOCK ? ERRCODE_OBJECT_IN_USE : ERRCODE_DATA_CORRUPTED;

		return pool_refuse(why, sqlstate, "Restore pool and data directory from one backup.",
						   pmemobj_errormsg(), "could not open sofort pool \"%s\"", pm_pool_file);
	}
	size = pmemobj_root_size(pop);
	if (size >= sizeof(PoolRoot))
		memcpy(root, pmemobj_direct(pmemobj_root(pop, size)), sizeof(PoolRoot));
	pmemobj_close(pop);
	malloc_trim(0);
	if (size < sizeof(PoolRoot) || root->magic != SOFORT_POOL_MAGIC ||
		root->nextents < 1 || root->nextents > PM_MAX_EXTENTS ||
		root->crc != pool_root_crc(root))
		return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						   "Restore pool and data directory from one backup.",
						   "The root object is not that of a sofort pool.",
						   "sofort pool \"%s\" is damaged", pm_pool_file);
	return true;
}

static bool
map_file(int fd, uint64 size, PmMedium medium, char **base, PoolRefusal *why)
{
	int			flags = MAP_SHARED | MAP_FIXED;
	char	   *raw;
	char	   *aligned;

	raw = mmap(NULL, size + MAP_ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return pool_refuse_errno(why, "reserve address space for", pm_pool_file,
							"Allow the server 1 TB of address space (ulimit -v).");
	aligned = (char *) TYPEALIGN64(MAP_ALIGN, (uint64) raw);
	if (aligned > raw)
		munmap(raw, aligned - raw);
	if (raw + MAP_ALIGN > aligned)
		munmap(aligned + size, raw + MAP_ALIGN - aligned);
#ifdef MAP_SYNC
	if (medium == PM_MEDIUM_PMEM)
		flags = MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED;
#endif
	*base = mmap(aligned, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (*base == MAP_FAILED)
	{
		(void) pool_refuse_errno(why, "map", pm_pool_file, NULL);
		munmap(aligned, size);
		return false;
	}
	return true;
}

/* Set pm_extent from the root; false if it makes no sense. */
static bool
set_extents(const PoolRoot *root, char *base, uint64 size)
{
	uint32		i;
	uint64		end = 0;

	for (i = 0; i < root->nextents; i++)
	{
		const PoolExtent *x = &root->extents[i];
		ExtentHeader *h = (ExtentHeader *) (base + x->offset);

		if (x->offset % PM_ALIGN_EXTENT != 0 || x->offset < end || x->size > size ||
			x->offset + x->size > size || h->magic != PM_EXTENT_MAGIC ||
			h->ngranules > PM_MAX_GRANULES || h->crc != extent_header_crc(h) ||
			!PM_SEALED_RIGHT(h->words_prepared) || PM_UNSEAL(h->words_prepared) > PM_MAX_GRANULES ||
			h->first_granule_offset < x->offset ||
			h->first_granule_offset + h->ngranules * PM_GRANULE > x->offset + x->size)
			return false;
		end = x->offset + x->size;
		pm_extent[i].offset = x->offset;
		pm_extent[i].size = x->size;
		pm_extent[i].first = h->first_granule_offset;
		pm_extent[i].ngranules = (uint32) h->ngranules;
		pm_extent[i].header = h;
		pm_extent[i].words = (uint64 *) ((char *) h + PM_GRANULE);
	}
	pm_nextents = (int) root->nextents;
	return root->superblock_offset == pm_extent[0].first;
}

/* Protects libpmemobj's metadata: a stray write faults instead of ruining the pool. */
static bool
protect_metadata(char *base, uint64 size)
{
	uint64		at = 0;
	int			i;

	for (i = 0; i < pm_nextents; i++)
	{
		if (pm_extent[i].offset > at &&
			mprotect(base + at, pm_extent[i].offset - at, PROT_READ) != 0)
			return false;
		at = pm_extent[i].offset + pm_extent[i].size;
	}
	return at >= size || mprotect(base + at, size - at, PROT_READ) == 0;
}

/* Map, and check what can be checked in the mapping. */
static bool
map_pool(int fd, const PoolRoot *root, const PoolControl *control, PoolRefusal *why)
{
	uint64		size = control->file_bytes;
	PmMedium	medium;
	char	   *base = NULL;
	bool		ok;

	if (!choose_medium(fd, &medium, why) || !map_file(fd, size, medium, &base, why))
		return false;
	if (!set_extents(root, base, size))
		ok = pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						 "Restore pool and data directory from one backup.",
						 "The extents do not fit the file.",
						 "sofort pool \"%s\" is damaged", pm_pool_file);
	else
	{
		PoolSuperblock *super = (PoolSuperblock *) (base + root->superblock_offset);

		ok = pool_check_superblock(super, control, why) &&
			pool_check_agreement(super, control, why);
	}
	if (ok && !protect_metadata(base, size))
		ok = pool_refuse_errno(why, "protect the metadata of", pm_pool_file, NULL);
	if (ok && !persist_configure(medium, fd, base, size))
		ok = pool_refuse(why, ERRCODE_FEATURE_NOT_SUPPORTED, NULL, NULL,
						 "this processor has no instruction to flush cache lines");
	if (!ok)
	{
		pm_nextents = 0;
		munmap(base, size);
		return false;
	}
	PoolBase = base;
	PoolSuper = (PoolSuperblock *) (base + root->superblock_offset);
	return true;
}

/*
 * Open and map the pool that the control file names; sets the globals.  Once
 * per postmaster: a crash-restart keeps the mapping.
 */
bool
pool_file_open(const PoolControl *control, PoolRefusal *why)
{
	PoolRoot	root;
	int			fd;
	bool		ok;

	if (!pool_file_open_checked(pm_pool_file, O_RDWR, &fd, why))
		return false;
	shadow_begin(fd);
	ok = redo_recover(fd, control, why) && check_file(fd, control, why) &&
		recover_by_library(&root, why) && map_pool(fd, &root, control, why);
	if (!ok)
		close(fd);
	else
		pm_pool_fd = fd;
	return ok;
}
