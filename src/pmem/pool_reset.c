/*-------------------------------------------------------------------------
 *
 * pool_reset.c
 *	  Has pg_resetwal thrown away WAL that the pool relies on?
 *
 * What tells is in sofort.control (README.md, "WAL that was reset"): where the WAL began
 * at the last start, and whether the server was stopped in order since.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecord.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pm_internal.h"
#include "storage/ipc.h"

/* pg_control as this start has found it */
static ControlFileData pg;
static bool pg_is_known = false;

static bool
read_pg_control(ControlFileData *control)
{
	bool		crc_ok;
	ControlFileData *copy = get_controlfile(DataDir, &crc_ok);

	*control = *copy;
	pfree(copy);
	return crc_ok;				/* (otherwise the server will not start) */
}

void
reset_read_pg_control(void)
{
	pg_is_known = read_pg_control(&pg);
}

bool
pool_server_has_crashed(void)
{
	return !pg_is_known || pg.state != DB_SHUTDOWNED || pm_shared->restoring;
}

/* PoolControl.wal_start: a reset begins with a new segment, of 1 MB at least. */
static uint32
wal_megabyte(XLogRecPtr lsn)
{
	return (uint32) (lsn >> 20);
}

/*
 * Is the checkpoint from which the server starts the one that pg_resetwal writes?  It is the
 * first record of a segment, and it alone follows no other record.  (So does the first one
 * of initdb, which has written more by the time that it ends.)
 */
static bool
checkpoint_follows_nothing(void)
{
	char		path[MAXPGPATH];
	XLogRecord	record;
	XLogSegNo	segment;
	int			segment_bytes = (int) pg.xlog_seg_size;
	ssize_t		n;
	int			fd;

	if (XLogSegmentOffset(pg.checkPoint, segment_bytes) != SizeOfXLogLongPHD)
		return false;
	XLByteToSeg(pg.checkPoint, segment, segment_bytes);
	XLogFilePath(path, pg.checkPointCopy.ThisTimeLineID, segment, segment_bytes);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;			/* nor can the server start from it */
	n = pread(fd, &record, SizeOfXLogRecord, SizeOfXLogLongPHD);
	close(fd);
	return n == SizeOfXLogRecord && record.xl_rmid == RM_XLOG_ID &&
		(record.xl_info & ~XLR_INFO_MASK) == XLOG_CHECKPOINT_SHUTDOWN &&
		record.xl_prev == InvalidXLogRecPtr;
}

/* Notes where the WAL of this start begins; the caller writes the control file. */
void
reset_note_start(PoolControl *control)
{
	control->wal_flags = 0;
	if (!pg_is_known)
		return;
	control->wal_flags = CONTROL_WAL_NOTED;
	control->wal_start = wal_megabyte(pg.checkPoint);
}

static bool
file_control(const PoolControl *control, PoolRefusal *why)
{
	if (control_write(control, LOG))
		return true;
	return pool_refuse(why, ERRCODE_IO_ERROR, "See the server log.", NULL,
					   "could not write file \"%s\"", control_file());
}

/*
 * Before the pool is opened, which may fail: notes a reset that lost WAL, durably, because
 * the next checkpoint takes away what tells of it.
 */
bool
reset_find(PoolControl *control, PoolRefusal *why)
{
	if (control->state != CONTROL_READY ||
		(control->wal_flags & (CONTROL_WAL_NOTED | CONTROL_WAL_STOPPED)) != CONTROL_WAL_NOTED)
		return true;
	if (!pg_is_known || wal_megabyte(pg.checkPoint) == control->wal_start ||
		!checkpoint_follows_nothing())
		return true;
	/* no id in the pool is above the mark: that was in the file before they were in the pool */
	if (U64FromFullTransactionId(pg.checkPointCopy.nextXid) > control->hw_xid)
		control->wal_flags |= CONTROL_WAL_ACCEPTABLE;
	control->state = CONTROL_RESET;
	return file_control(control, why);
}

static uint64
newest_xid(void)
{
	uint64		newest = 0;

	for (uint64 slot = 0; slot < pm_vector_count(&PoolSuper->tcbs); slot++)
		newest = Max(newest, ((Tcb *) pm_vector_get(&PoolSuper->tcbs, slot))->xid);
	return newest;
}

/*
 * The server goes on without the pool, and uses up transaction ids.  So it is now, while
 * pg_control has the next one after the reset, that ids of the pool can be found to be
 * among them.
 */
static bool
check_ids_after_reset(PoolControl *control, PoolRefusal *why)
{
	uint64		next = U64FromFullTransactionId(pg.checkPointCopy.nextXid);
	char	   *detail;

	if (!pg_is_known || !checkpoint_follows_nothing())
		return true;
	if (newest_xid() < next)
	{
		control->wal_flags |= CONTROL_WAL_ACCEPTABLE;
		return file_control(control, why);
	}
	control->state = CONTROL_CONTRADICTED;
	if (!file_control(control, why))
		return false;
	detail = psprintf("The pool knows transaction " UINT64_FORMAT ", the server's next one was " UINT64_FORMAT ".",
					  newest_xid(), next);
	return pool_refuse(why, ERRCODE_DATA_CORRUPTED, CONTRADICTION_HINT, detail,
					   "sofort pool \"%s\" is newer than data directory \"%s\"",
					   pm_pool_file, DataDir);
}

/* When the pool is open, before anything in it changes: refuses it if WAL was lost. */
bool
reset_check(PoolControl *control, PoolRefusal *why)
{
	if (control->state != CONTROL_RESET)
		return true;
	if ((control->wal_flags & CONTROL_WAL_ACCEPTABLE) == 0 && !check_ids_after_reset(control, why))
		return false;
	return pool_refuse(why, ERRCODE_DATA_CORRUPTED,
					   "Restore pool and data directory from the same backup; or call sofort.accept_reset(), restart the server, and dump and restore what is left.",
					   "The server had not been stopped in order when pg_resetwal was run. Of a transaction that wrote heap and sofort tables the part in sofort tables may be there alone.",
					   "WAL that sofort pool \"%s\" belongs to was thrown away", pm_pool_file);
}

void
pool_accept_reset(void)
{
	PoolControl control;

	if (pm_shared == NULL)
		pool_require();
	LWLockAcquire(pm_shared->control_lock, LW_EXCLUSIVE);
	if (!control_read_or_raise(&control) || control.state != CONTROL_RESET)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the sofort pool was not refused because of pg_resetwal")));
	if ((control.wal_flags & CONTROL_WAL_ACCEPTABLE) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the sofort pool cannot be used after pg_resetwal"),
				 errdetail("It could not be read at the first start after it, so it is unknown whether it has transactions whose ids were used again."),
				 errhint(CONTRADICTION_HINT)));
	control.state = CONTROL_READY;
	control.wal_flags = CONTROL_WAL_NOTED | CONTROL_WAL_STOPPED;
	(void) control_write(&control, ERROR);
	LWLockRelease(pm_shared->control_lock);
	ereport(NOTICE,
			(errmsg("the sofort pool will be used as it is when the server starts next"),
			 errhint("Restart the server, and dump and restore what is left. Until then indexes of other access methods than sofort_index may not fit their tables: REINDEX makes them anew.")));
}

/*
 * At the end of the postmaster, or of a single-user server: if PostgreSQL was shut down,
 * with its last checkpoint, all WAL has arrived where it belongs.
 */
static void
note_stop(int code, Datum arg)
{
	ControlFileData now;
	PoolControl control;
	PoolRefusal why;
	bool		exists;

	if (IsUnderPostmaster)
		return;
	memset(&why, 0, sizeof(why));
	if (!read_pg_control(&now) || now.state != DB_SHUTDOWNED ||
		!control_read(&control, &exists, &why) || !exists ||
		control.state != CONTROL_READY || control.wal_flags != CONTROL_WAL_NOTED)
		return;
	control.wal_flags |= CONTROL_WAL_STOPPED;
	(void) control_write(&control, LOG);
}

/* Only if reset_find() has not found anything wrong, or noted it. */
void
reset_watch_stop(void)
{
	on_shmem_exit(note_stop, (Datum) 0);
}
