/*-------------------------------------------------------------------------
 *
 * lock.c
 *	  Row locks: SELECT FOR UPDATE and its weaker forms, EvalPlanQual,
 *	  ON CONFLICT, foreign keys.
 *
 * txn_lock_row() locks one version.  This file goes from version to version: to the
 * newest one if the row was updated meanwhile (FIND_LAST_VERSION), and to later ones
 * beside an update that does not conflict, because a lock belongs to the row: it must
 * also hold against those who delete the successor.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "sofort/tableam/callbacks.h"

/*
 * The version that followed one which has ended for good, to be locked instead.
 * Waits for its creator if that is another transaction in progress: it may yet
 * abort, and then an older version counts.
 *
 * TM_Ok: *next is it.  TM_Deleted: there is none.  TM_SelfModified (tmfd
 * filled): made by the running command.  TM_WouldBlock as the policy says.
 */
static TM_Result
find_next_version(Relation rel, StoreDesc *store, const RowRef *ref, CommandId cid,
				  LockWaitPolicy policy, TM_FailureData *tmfd, RowRef *next)
{
	RowRef		current = *ref;

	for (;;)
	{
		uint64		end = word_read(&current.words->end);
		uint64		begin;
		TransactionId xid;
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		/* the creator may have committed and not stamped yet, or is this transaction */
		if ((WORD_TAG(end) == WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_PROGRESS) &&
			(end & END_MOVED))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("tuple to be locked was already moved to another partition due to concurrent update")));

		if (!(end & END_UPDATED) || !store_successor(store, &current, next))
			return TM_Deleted;

		begin = word_read(&next->words->begin);
		if (WORD_TAG(begin) == WORD_TAG_STAMP)
			return TM_Ok;
		if (WORD_TAG(begin) != WORD_TAG_PROGRESS)
			continue;			/* its creator has just aborted: look again */

		if (txn_word_is_mine(begin))
		{
			if (txn_word_command(begin) < cid)
				return TM_Ok;
			if (txn_word_is_mine(word_read(&next->words->end)))
			{
				current = *next;	/* we have ended it, too */
				continue;
			}
			tmfd->xmax = txn_word_xid(begin);
			tmfd->cmax = txn_word_command(begin);
			return TM_SelfModified;
		}
		/* a subtransaction may be rolled back long before its parent ends */
		xid = txn_word_waitable_xid(begin);
		if (word_read(&next->words->begin) != begin || !TransactionIdIsValid(xid))
			continue;

		row_to_tid(store, next->row, &tid);
		/* rows are stamped, or undone, before a transaction's lock is released */
		if (!txn_wait_for_xid(rel, xid, &tid, policy, XLTW_FetchUpdated))
			return TM_WouldBlock;
	}
}

/* Was the version updated in a way that leaves room for KEY SHARE? */
static bool
has_compatible_successor(const RowRef *ref)
{
	uint64		end = word_read(&ref->words->end);

	return (WORD_TAG(end) == WORD_TAG_STAMP || WORD_TAG(end) == WORD_TAG_PROGRESS) &&
		(end & END_UPDATED) && !(end & END_KEYS);
}

/*
 * The versions of a row that may become the current one: the newest, and if its creator is
 * in progress, those that count if it aborts, back to the last committed one.  Newest
 * first; without *after, which is locked already.
 */
static List *
possible_versions(StoreDesc *store, const RowRef *after, const RowRef *newest)
{
	List	   *versions = NIL;
	RowRef		current = *newest;
	RowRef		older;

	for (;;)
	{
		uint64		begin = word_read(&current.words->begin);
		RowRef	   *copy = palloc(sizeof(RowRef));

		*copy = current;
		versions = lappend(versions, copy);
		if (WORD_TAG(begin) == WORD_TAG_STAMP || !(begin & BEGIN_HEAP_ONLY) ||
			!store_chain_older(store, &current, &older) || older.row == after->row)
			return versions;
		current = older;
	}
}

/*
 * A version was locked although it has been (or is being) updated: lock its
 * successors too, oldest first.  TM_Ok, or why the row cannot be locked; then
 * *tmfd is filled.
 */
static TM_Result
lock_successors(Relation rel, StoreDesc *store, const RowRef *ref, CommandId cid,
				LockTupleMode mode, TM_FailureData *tmfd)
{
	RowRef		current = *ref;
	RowRef		newest;

	while (has_compatible_successor(&current) && store_successor(store, &current, &newest))
	{
		List	   *versions = possible_versions(store, &current, &newest);
		int			tag;

		for (int i = list_length(versions) - 1; i >= 0; i--)
		{
			TxnRow		row = tableam_txn_row(rel, store, list_nth(versions, i));
			TM_Result	result = txn_lock_successor(&row, cid, mode);

			if (result != TM_Ok)
			{
				tmfd->xmax = txn_word_xid(word_read(&ref->words->end));
				tmfd->cmax = InvalidCommandId;
				return result;
			}
		}
		list_free_deep(versions);

		tag = WORD_TAG(word_read(&newest.words->begin));
		/* a creator in progress may have made another version meanwhile */
		if (tag == WORD_TAG_STAMP || tag == WORD_TAG_PROGRESS)
			current = newest;
		/* else its creator has aborted: look again */
		CHECK_FOR_INTERRUPTS();
	}
	return TM_Ok;
}

TM_Result
tableam_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				   CommandId cid, LockTupleMode mode, LockWaitPolicy policy, uint8 flags,
				   TM_FailureData *tmfd)
{
	StoreDesc  *store;
	RowRef		ref;
	bool		traversed = false;
	TM_Result	result;

	tmfd->traversed = false;
	/*
	 * the executor keeps such rows as heap tuples, and loses our row id: "gone" would be
	 * wrong
	 */
	if (!row_tid_is_valid(tid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot lock a row of \"%s\" that a scan has put in order of its distance",
						RelationGetRelationName(rel)),
				 errhint("Find the keys of the rows in a subquery, and lock the rows by their keys.")));
	txn_begin_write();
	store = store_open(rel);
	if (!tableam_locate(store, tid, &ref))
		return tableam_row_is_gone(tid, tmfd);

	for (;;)
	{
		TxnRow		row = tableam_txn_row(rel, store, &ref);
		bool		have_lock = false;
		RowRef		next;

		result = txn_lock_row(&row, cid, mode, policy, &have_lock, tmfd);
		if (result == TM_Ok && (flags & TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS))
			result = lock_successors(rel, store, &ref, cid, mode, tmfd);
		txn_release_tuple_lock(&row, mode, &have_lock);

		/* Heap goes on from later versions that we have ended, by whatever command. */
		if (traversed && (result == TM_SelfModified || result == TM_Invisible))
			result = TM_Updated;
		if (result == TM_Ok || result == TM_Invisible)
			break;
		result = tableam_fill_ctid(store, &ref, result, tmfd);
		if (result != TM_Updated || !(flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION))
			break;

		result = find_next_version(rel, store, &ref, cid, policy, tmfd, &next);
		if (result != TM_Ok)
			return result;
		ref = next;
		row_to_tid(store, ref.row, tid);
		tmfd->traversed = traversed = true;
	}

	tableam_store_row(slot, rel, store, &ref);
	return result;
}
