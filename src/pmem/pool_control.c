/*-------------------------------------------------------------------------
 *
 * pool_control.c
 *	  The file sofort.control in the data directory: which pool belongs to it,
 *	  and how far both have come (pm_internal.h, README.md).
 *
 * It is replaced as a whole (written beside, synchronised, exchanged by name, directory
 * synchronised), so it is never torn.  The previous file stays beside it, with its
 * block, so that replacing works on a full file system.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/file_perm.h"
#include "pm_internal.h"
#include "storage/fd.h"

#define CONTROL_MAGIC	0x43544c31
#define CONTROL_VERSION 1
#define CONTROL_TEMP	CONTROL_FILE ".tmp"

StaticAssertDecl(sizeof(PoolControl) == 88, "format of the control file");

/* Absolute name, for messages. */
const char *
control_file(void)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s", DataDir, CONTROL_FILE);
	return path;
}

static uint32
control_crc(const PoolControl *control)
{
	return pm_crc(control, offsetof(PoolControl, crc));
}

/* A control file for a pool that is yet to be made, with a new random id. */
void
control_init(PoolControl *control)
{
	memset(control, 0, sizeof(PoolControl));
	control->magic = CONTROL_MAGIC;
	control->version = CONTROL_VERSION;
	control->system_identifier = GetSystemIdentifier();
	if (!pg_strong_random(control->pool_id, sizeof(control->pool_id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random pool id")));
	control->state = CONTROL_CREATING;
	control->file_bytes = PM_POOL_FILE_BYTES;
}

/*
 * *exists = false if there is none (true is returned then).  Works in the
 * postmaster: no ereport.
 */
bool
control_read(PoolControl *control, bool *exists, PoolRefusal *why)
{
	int			fd;
	ssize_t		n;
	int			err;

	*exists = false;
	fd = open(CONTROL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return true;
	if (fd < 0)
	{
		err = errno;
		return pool_refuse(why, ERRCODE_IO_ERROR, NULL, NULL,
						   "could not open file \"%s\": %s", control_file(), strerror(err));
	}
	n = read(fd, control, sizeof(PoolControl));
	err = errno;
	close(fd);
	if (n < 0)
		return pool_refuse(why, ERRCODE_IO_ERROR, NULL, NULL,
						   "could not read file \"%s\": %s", control_file(), strerror(err));
	if (n != sizeof(PoolControl) || control->magic != CONTROL_MAGIC ||
		(control->version == CONTROL_VERSION && control->crc != control_crc(control)))
		return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
						   "Restore the file together with the data directory and the pool from one backup.",
						   NULL, "file \"%s\" is damaged", control_file());
	if (control->version != CONTROL_VERSION)
		return pool_refuse(why, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "Use the version of sofort that wrote it.", NULL,
						   "file \"%s\" has version %u, but this sofort reads version %u",
						   control_file(), control->version, CONTROL_VERSION);
	*exists = true;
	return true;
}

bool
control_read_or_raise(PoolControl *control)
{
	PoolRefusal why;
	bool		exists;

	memset(&why, 0, sizeof(why));
	if (!control_read(control, &exists, &why))
		ereport(ERROR,
				(errcode(why.sqlstate), errmsg("%s", why.message)));
	return exists;
}

/* Makes sure that what was read is on the disk, and its name, too. */
bool
control_make_durable(PoolRefusal *why)
{
	if (fsync_fname_ext(CONTROL_FILE, false, false, LOG) != 0)
		return pool_refuse_errno(why, "synchronize", control_file(), NULL);
	if (fsync_fname_ext(".", true, false, LOG) != 0)
		return pool_refuse_errno(why, "synchronize", DataDir, NULL);
	return true;
}

/*
 * Writes these contents to the file beside, durably.  It may have been the control file
 * until a moment ago: before it changes, it must no longer be that on the disk.
 */
static bool
write_beside(const PoolControl *control, int elevel)
{
	struct stat st;
	int			fd;
	bool		written;

	if (fsync_fname_ext(".", true, false, elevel) != 0)
		return false;
	fd = open(CONTROL_TEMP, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, pg_file_create_mode);
	if (fd < 0)
	{
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", CONTROL_TEMP)));
		return false;
	}
	errno = ENOSPC;
	written = pwrite(fd, control, sizeof(PoolControl), 0) == (ssize_t) sizeof(PoolControl) &&
		fstat(fd, &st) == 0 &&
		(st.st_size == sizeof(PoolControl) || ftruncate(fd, sizeof(PoolControl)) == 0) &&
		fsync(fd) == 0;
	if (!written)
	{
		int			err = errno;

		close(fd);
		errno = err;
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", CONTROL_TEMP)));
		return false;
	}
	close(fd);
	return true;
}

/*
 * Exchanges the two names; where that is not possible, or there is only one file, renames
 * it.
 */
static bool
exchange(int elevel)
{
	if (renameat2(AT_FDCWD, CONTROL_TEMP, AT_FDCWD, CONTROL_FILE, RENAME_EXCHANGE) == 0)
		return fsync_fname_ext(".", true, false, elevel) == 0;
	return durable_rename(CONTROL_TEMP, CONTROL_FILE, elevel) == 0;
}

/*
 * Makes room for the next control_write(), which then cannot fail for lack of it. elevel as
 * there.
 */
bool
control_reserve(int elevel)
{
	static const PoolControl empty = {0};
	struct stat st;

	if (lstat(CONTROL_TEMP, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == sizeof(PoolControl))
		return true;
	return write_beside(&empty, elevel);
}

/*
 * Replaces the file, durably. elevel < ERROR: returns false on failure.  An error may be
 * shown to any role, so it names no directory.
 */
bool
control_write(const PoolControl *control, int elevel)
{
	PoolControl copy = *control;

	copy.crc = control_crc(&copy);
	if (!write_beside(&copy, elevel) || !exchange(elevel))
		return false;
	shadow_control_written(&copy, sizeof(copy));
	return true;
}
