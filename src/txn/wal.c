/*-------------------------------------------------------------------------
 *
 * wal.c
 *	  What sofort writes to PostgreSQL's WAL, and what it needs flushed.
 *
 * Resource manager 181 "sofort" has two records.  Redo touches no pool, so
 * standbys, PITR and restore hosts need only the library.
 *
 *	 0x00 high-water mark: no xid up to it is handed out again
 *	 0x10 committed: transactions whose commit records a crash had lost
 *	 0x20 skipped: by a recovery, xids up to the mark that are not in the WAL
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/commit_ts.h"
#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "access/xlogreader.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_class.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "sofort/compat/compat.h"
#include "sofort/compat/lock.h"
#include "sofort/pmem/fault.h"
#include "sofort/pmem/pool.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/rel.h"

#include "txn_internal.h"

#define SOFORT_RMGR_ID			181
#define XLOG_SOFORT_MARK		0x00
#define XLOG_SOFORT_COMMITTED	0x10
#define XLOG_SOFORT_SKIPPED		0x20

typedef struct MarkRecord
{
	uint64		sequence;
	uint64		fxid;
} MarkRecord;

/* Xids of which the WAL says nothing, because a recovery has skipped them */
typedef struct SkippedRecord
{
	uint64		first;
	uint64		next;			/* the one after them */
} SkippedRecord;

/* So many of them a standby notes at a time: it has room for more of each process. */
#define SKIPPED_STEP	64

/* Xids on a page of the commit log, of commit timestamps and of pg_subtrans */
#define CLOG_XIDS_PER_PAGE		(BLCKSZ * 4)
#define SUBTRANS_XIDS_PER_PAGE	(BLCKSZ / sizeof(TransactionId))
#define COMMIT_TS_XIDS_PER_PAGE (BLCKSZ / (sizeof(TimestampTz) + sizeof(RepOriginId)))

/* Sequences that this transaction uses.  If there are more, or unknown ones, all WAL counts. */
#define MAX_SEQUENCES	16

static Oid	sequences[MAX_SEQUENCES];
static int	nsequences = 0;
static bool unpublished = false;	/* perhaps they were used since they were published */
static bool foreign_wal = false;
static bool async_noted = false;

/* In the startup process */
static uint64 replayed_mark = 0;
static SkippedRecord skipped_xids;

/* WAL up to here is known to be flushed: saves a call. */
static XLogRecPtr flushed_to = InvalidXLogRecPtr;

/* ------------------------------------------------------------------------
 * Resource manager
 * ------------------------------------------------------------------------
 */

/*
 * A hot standby makes pages of pg_subtrans as it observes xids; when it is promoted, nobody
 * would make those of the ids that were skipped.  (They are empty; an xid observed later
 * makes its page once more.)
 */
static void
extend_subtrans(uint64 fxid)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	if (standbyState < STANDBY_INITIALIZED)
		return;
	for (next += -next % SUBTRANS_XIDS_PER_PAGE; next <= fxid; next += SUBTRANS_XIDS_PER_PAGE)
		ExtendSUBTRANS((TransactionId) next);
}

static void
mark_redo(XLogReaderState *record)
{
	MarkRecord	mark;

	memcpy(&mark, XLogRecGetData(record), sizeof(mark));
	replayed_mark = mark.fxid;
	if (TxnShmem != NULL)
	{
		TxnShmem->redo_sequence = mark.sequence;
		TxnShmem->redo_fxid = mark.fxid;
		TxnShmem->redo_seen = true;
	}
}

static void
committed_redo(XLogReaderState *record)
{
	Size		n = XLogRecGetDataLen(record) / sizeof(TransactionId);
	Size		i;

	for (i = 0; i < n; i++)
	{
		TransactionId xid;

		memcpy(&xid, XLogRecGetData(record) + i * sizeof(xid), sizeof(xid));
		TransactionIdCommitTree(xid, 0, NULL);
	}
}

/*
 * A hot standby takes all xids up to one that it sees for running, until it hears of their
 * ends, and has room for some 65 of each process; a recovery may skip 32,768.  So it is led
 * past them step by step.
 */
static void
skipped_redo(XLogReaderState *record)
{
	SkippedRecord skipped;
	TransactionId xids[SKIPPED_STEP];
	uint64		fxid;
	int			n = 0;

	if (standbyState < STANDBY_INITIALIZED)
		return;
	memcpy(&skipped, XLogRecGetData(record), sizeof(skipped));
	for (fxid = skipped.first; fxid < skipped.next; fxid++)
	{
		if (TransactionIdIsNormal((TransactionId) fxid))
			xids[n++] = (TransactionId) fxid;
		if (n == SKIPPED_STEP || (n > 0 && fxid == skipped.next - 1))
		{
			RecordKnownAssignedTransactionIds(xids[n - 1]);
			ExpireTreeKnownAssignedTransactionIds(xids[0], n - 1, xids + 1, xids[n - 1]);
			n = 0;
		}
	}
}

static void
sofort_redo(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	if (info == XLOG_SOFORT_MARK)
		mark_redo(record);
	else if (info == XLOG_SOFORT_COMMITTED)
		committed_redo(record);
	else if (info == XLOG_SOFORT_SKIPPED)
		skipped_redo(record);
	else
		elog(PANIC, "sofort_redo: unknown op code %u", info);
}

static void
sofort_desc(StringInfo buf, XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	if (info == XLOG_SOFORT_MARK)
	{
		MarkRecord	mark;

		memcpy(&mark, XLogRecGetData(record), sizeof(mark));
		appendStringInfo(buf, "sequence %llu, xid %llu", (unsigned long long) mark.sequence,
						 (unsigned long long) mark.fxid);
	}
	else if (info == XLOG_SOFORT_SKIPPED)
	{
		SkippedRecord skipped;

		memcpy(&skipped, XLogRecGetData(record), sizeof(skipped));
		appendStringInfo(buf, "first %llu, next %llu", (unsigned long long) skipped.first,
						 (unsigned long long) skipped.next);
	}
	else
		appendStringInfo(buf, "%u transactions",
						 (unsigned) (XLogRecGetDataLen(record) / sizeof(TransactionId)));
}

static const char *
sofort_identify(uint8 info)
{
	switch (info & ~XLR_INFO_MASK)
	{
		case XLOG_SOFORT_MARK:
			return "HIGH_WATER_MARK";
		case XLOG_SOFORT_COMMITTED:
			return "COMMITTED";
		case XLOG_SOFORT_SKIPPED:
			return "SKIPPED";
	}
	return NULL;
}

/*
 * Inserts a record and flushes it.  That does not make the transaction a mixed one:
 * XactLastRecEnd stays as it is.
 */
static XLogRecPtr
insert_and_flush(uint8 info, void *data, int len)
{
	XLogRecPtr	saved = XactLastRecEnd;
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) data, len);
	lsn = XLogInsert(SOFORT_RMGR_ID, info);
	XactLastRecEnd = saved;
	XLogFlush(lsn);
	return lsn;
}

/* At the end of the startup process: after a crash nobody else could get an xid until then. */
static void
log_skipped(int code, Datum arg)
{
	if (code == 0 && !RecoveryInProgress() && XLogStandbyInfoActive())
		(void) insert_and_flush(XLOG_SOFORT_SKIPPED, &skipped_xids, sizeof(skipped_xids));
}

/* At the end of redo, in the startup process */
static void
sofort_cleanup(void)
{
	TimeLineID	timeline;
	XLogRecPtr	replayed = GetXLogReplayRecPtr(&timeline);

	pool_check_restored(replayed, timeline);
	skipped_xids.first = U64FromFullTransactionId(ReadNextFullTransactionId());
	if (replayed_mark >= skipped_xids.first && !pool_left_behind())
	{
		extend_subtrans(replayed_mark);
		AdvanceNextFullTransactionIdPastXid((TransactionId) replayed_mark);
		skipped_xids.next = U64FromFullTransactionId(ReadNextFullTransactionId());
		/* (a single-user server has written its last record by then) */
		if (IsUnderPostmaster)
			before_shmem_exit(log_skipped, (Datum) 0);
	}
	if (TxnShmem != NULL)
		TxnShmem->redo_next = U64FromFullTransactionId(ReadNextFullTransactionId());

	/*
	 * The commit log gets the page of an epoch's first xid when that is assigned; after a
	 * mark that ends with the epoch, the end of recovery looks for this page already.
	 * Here, in recovery, a page that does not exist reads as zeroes, and stays in its
	 * buffer.
	 */
	if (XidFromFullTransactionId(ReadNextFullTransactionId()) == FirstNormalTransactionId)
		(void) TransactionIdDidCommit(FirstNormalTransactionId);
}

void
wal_init(void)
{
	static RmgrData rmgr = {
		.rm_name = "sofort",
		.rm_redo = sofort_redo,
		.rm_desc = sofort_desc,
		.rm_identify = sofort_identify,
		.rm_cleanup = sofort_cleanup,
	};

	RegisterCustomRmgr(SOFORT_RMGR_ID, &rmgr);
}

void
wal_startup(void)
{
	pg_atomic_init_u64(&TxnShmem->mark_fxid, 0);
	pg_atomic_init_u64(&TxnShmem->mark_lsn, 0);
	pg_atomic_init_u64(&TxnShmem->async_started, 0);
	pg_atomic_init_u64(&TxnShmem->async_done, 0);
	pg_atomic_init_u64(&TxnShmem->async_lsn, 0);
}

/* ------------------------------------------------------------------------
 * High-water mark
 * ------------------------------------------------------------------------
 */

/*
 * Last xid that a mark for fxid may name.  Redo makes nextXid follow it, but
 * extends neither the commit log nor commit timestamps: stay on their pages.
 */
static uint64
mark_limit(uint64 fxid)
{
	TransactionId xid = (TransactionId) fxid;
	uint64		limit = xid | (CLOG_XIDS_PER_PAGE - 1);

	if (track_commit_timestamp)
		limit = Min(limit,
					((uint64) xid / COMMIT_TS_XIDS_PER_PAGE + 1) * COMMIT_TS_XIDS_PER_PAGE - 1);
	limit = Min(limit, PG_UINT32_MAX);
	return (fxid & ~UINT64CONST(0xffffffff)) | limit;
}

static inline bool
mark_covers(uint64 fxid)
{
	/*
	 * The redo pointer is published before a checkpoint reads nextXid.  A record
	 * that ends there is not replayed.
	 */
	return fxid <= pg_atomic_read_u64(&TxnShmem->mark_fxid) &&
		pg_atomic_read_u64(&TxnShmem->mark_lsn) > GetRedoRecPtr();
}

/*
 * Makes sure that no crash can give this xid, which was assigned before, to another
 * transaction.  Order: WAL record, pool, file in the data directory, each durable before
 * the next.  After an error the next caller tries again under the same sequence number.
 */
void
wal_cover_xid(uint64 fxid)
{
	if (likely(mark_covers(fxid)))
		return;

	LWLockAcquire(txn_lwlock(TXN_LWLOCK_MARK), LW_EXCLUSIVE);
	if (!mark_covers(fxid))
	{
		MarkRecord	mark;
		XLogRecPtr	lsn;

		mark.sequence = PoolSuper->hw_sequence + 1;
		mark.fxid = Max(mark_limit(fxid), pg_atomic_read_u64(&TxnShmem->mark_fxid));
		/* otherwise a full disk would get a record for each attempt */
		pool_reserve_high_water();
		lsn = insert_and_flush(XLOG_SOFORT_MARK, &mark, sizeof(mark));
		SOFORT_STOP("highwater-wal");
		pool_raise_high_water(mark.sequence, mark.fxid);
		SOFORT_STOP("highwater-pool");
		pg_atomic_write_u64(&TxnShmem->mark_fxid, mark.fxid);
		pg_atomic_write_u64(&TxnShmem->mark_lsn, lsn);
	}
	LWLockRelease(txn_lwlock(TXN_LWLOCK_MARK));
}

/*
 * After redo, under TXN_LWLOCK_RESOLVE: the last record that it saw must be the
 * last mark of the pool, or the next one (a crash in between).
 */
void
wal_check_redo(void)
{
	bool		follows;

	if (!TxnShmem->redo_seen)
		return;
	/* a pool without a mark may have been made beside any data directory */
	follows = PoolSuper->flags & SUPERBLOCK_FRESH ?
		TxnShmem->redo_sequence > PoolSuper->hw_sequence :
		TxnShmem->redo_sequence == PoolSuper->hw_sequence + 1;
	if (follows)
		pool_raise_high_water(TxnShmem->redo_sequence,
							  Max(TxnShmem->redo_fxid, PoolSuper->hw_xid));
	else if (TxnShmem->redo_sequence != PoolSuper->hw_sequence &&
			 (PoolSuper->flags & SUPERBLOCK_FRESH) == 0)
	{
		pool_declare_contradiction(psprintf("sofort pool \"%s\" does not match data directory \"%s\"",
											pool_path(), DataDir),
								   psprintf("The last mark in the WAL is number %llu, the last one in the pool is number %llu: the %s is older.",
											(unsigned long long) TxnShmem->redo_sequence,
											(unsigned long long) PoolSuper->hw_sequence,
											TxnShmem->redo_sequence > PoolSuper->hw_sequence ?
											"pool" : "data directory"));
		pool_require();
	}
}

void
wal_log_committed(const TransactionId *xids, int n)
{
	int			i;

	/* no checkpoint may start its redo between the record and its effect */
	Assert((MyProc->delayChkptFlags & DELAY_CHKPT_START) == 0);
	START_CRIT_SECTION();
	MyProc->delayChkptFlags |= DELAY_CHKPT_START;
	(void) insert_and_flush(XLOG_SOFORT_COMMITTED, unconstify(TransactionId *, xids),
							n * (int) sizeof(TransactionId));
	for (i = 0; i < n; i++)
		TransactionIdCommitTree(xids[i], 0, NULL);
	MyProc->delayChkptFlags &= ~DELAY_CHKPT_START;
	END_CRIT_SECTION();
}

/* ------------------------------------------------------------------------
 * WAL that a pure commit depends on
 * ------------------------------------------------------------------------
 */

/* From now on pure commits flush WAL up to here. */
static void
raise_async_lsn(XLogRecPtr to)
{
	uint64		lsn = pg_atomic_read_u64(&TxnShmem->async_lsn);

	while (lsn < to && !pg_atomic_compare_exchange_u64(&TxnShmem->async_lsn, &lsn, to))
		;
}

/* (On a standby nobody draws numbers, and nobody inserts WAL.) */
static void
raise_to_all_wal(void)
{
	if (!RecoveryInProgress())
		raise_async_lsn(GetXLogInsertEndRecPtr());
}

/*
 * A transaction that wrote WAL is about to commit without waiting for it:
 * others can see its effects before they are durable.
 */
void
wal_note_async_commit(void)
{
	if (async_noted)
		return;
	pg_atomic_fetch_add_u64(&TxnShmem->async_started, 1);
	async_noted = true;
}

/* The transaction has committed, or failed. */
void
wal_async_commit_done(bool committed)
{
	if (!async_noted)
		return;
	if (committed)
		raise_async_lsn(XactLastCommitEnd);
	pg_atomic_fetch_add_u64(&TxnShmem->async_done, 1);
	async_noted = false;
}

void
txn_note_sequence(Oid sequence)
{
	int			i;

	unpublished = true;
	for (i = 0; i < Min(nsequences, MAX_SEQUENCES); i++)
	{
		if (sequences[i] == sequence)
			return;
	}
	if (nsequences < MAX_SEQUENCES && OidIsValid(sequence))
		sequences[nsequences++] = sequence;
	else
		nsequences = MAX_SEQUENCES + 1; /* until the transaction ends */
}

void
txn_sequences_may_be_used(bool others)
{
	unpublished |= others || nsequences > 0;
}

void
txn_sequences_used_unseen(void)
{
	txn_note_sequence(InvalidOid);
	if (TxnShmem != NULL)
		wal_note_async_commit();
}

/*
 * What this transaction has done depends on WAL that others have written, and perhaps
 * nobody has flushed.
 */
void
txn_note_foreign_wal(void)
{
	foreign_wal = true;
}

/*
 * LSN of the page of a sequence, if it was used: then nextval keeps its lock on it until
 * the transaction ends, so the page stays where it is if the sequence still exists.
 */
static XLogRecPtr
sequence_lsn(Oid oid)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;
	LOCKTAG		tag;
	Relation	rel;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, oid);
	if (!compat_lock_held_by_me(&tag, RowExclusiveLock))
		return lsn;
	rel = RelationIdGetRelation(oid);
	if (!RelationIsValid(rel))
		return lsn;
	if (rel->rd_rel->relkind == RELKIND_SEQUENCE && RelationIsPermanent(rel))
	{
		/* RESTART: numbers drawn before are in another file, which comes back on rollback */
		if (rel->rd_firstRelfilelocatorSubid != InvalidSubTransactionId)
			lsn = GetXLogInsertEndRecPtr();
		else
		{
			Buffer		buf = ReadBuffer(rel, 0);

			LockBuffer(buf, BUFFER_LOCK_SHARE);
			lsn = PageGetLSN(BufferGetPage(buf));
			UnlockReleaseBuffer(buf);
		}
	}
	RelationClose(rel);
	return lsn;
}

/*
 * Publishes all that the transaction has noted: a cursor, or an expression that is prepared
 * once for a transaction, goes on drawing numbers without being seen again.
 */
void
txn_publish_sequences(void)
{
	int			i;

	if (nsequences == 0 || TxnShmem == NULL)
		 /* nothing */ ;
	else if (nsequences > MAX_SEQUENCES || !IsTransactionState())
		raise_to_all_wal();
	else
	{
		for (i = 0; i < nsequences; i++)
			raise_async_lsn(sequence_lsn(sequences[i]));
	}
	unpublished = false;
}

/* The same without looking at catalogs */
void
txn_publish_sequences_on_error(void)
{
	if (unpublished && TxnShmem != NULL)
		raise_to_all_wal();
	unpublished = false;
}

/* Publishes what no statement's end has: deferred triggers of PL/pgSQL, unseen calls */
void
wal_publish_last_sequences(void)
{
	if (unpublished || nsequences > MAX_SEQUENCES)
		txn_publish_sequences();
}

void
wal_forget_dependencies(void)
{
	nsequences = 0;
	unpublished = false;
	foreign_wal = false;
}

/* Flushes all commits that this transaction may have seen.  In the common case three loads. */
void
txn_flush_seen_commits(void)
{
	uint64		done;
	uint64		started;
	XLogRecPtr	lsn;

	done = pg_atomic_read_u64(&TxnShmem->async_done);
	/* in this order: if they are equal, all that had started have been counted */
	pg_read_barrier();
	started = pg_atomic_read_u64(&TxnShmem->async_started);
	pg_read_barrier();
	lsn = pg_atomic_read_u64(&TxnShmem->async_lsn);

	if (unlikely(started != done || foreign_wal))
		lsn = Max(lsn, GetXLogInsertEndRecPtr());
	if (lsn > flushed_to)
	{
		XLogFlush(lsn);
		flushed_to = lsn;
	}
}

/*
 * Before the durable point of a pure transaction: flushes everything in the WAL that it may
 * have seen.
 */
void
wal_flush_dependencies(void)
{
	wal_publish_last_sequences();
	txn_flush_seen_commits();
	SOFORT_STOP("commit-wal-flushed");
}

void
txn_flush_all_wal(void)
{
	XLogFlush(GetXLogInsertEndRecPtr());
}
