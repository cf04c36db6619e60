/*-------------------------------------------------------------------------
 *
 * predicate.c
 *	  Predicate locks of serializable transactions.
 *
 * The trees have no pages that locks could name.  Instead a "page" is a hash of the
 * first columns of a key: a scan for one value in each of these columns locks it, and
 * an insertion looks for locks on the pages of its first one, two ... columns.  Scans
 * of other ranges lock the index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "storage/predicate.h"

#include "am_internal.h"

/* Equal values have equal bytes, also those that bytes do not decide. */
static BlockNumber
key_page(const KeyFormat *format, const uint8 *bytes, int ncolumns)
{
	const KeyColumn *last = &format->columns[ncolumns - 1];

	return hash_bytes(bytes, last->offset + 1 + last->width) % MaxBlockNumber;
}

/* Before anything is read. */
void
predicate_lock_range(const IndexKeys *keys, const uint8 *bytes, int nequal, Snapshot snapshot)
{
	if (likely(!IsolationIsSerializable()))
		return;
	if (nequal > 0)
		PredicateLockPage(keys->index, key_page(&keys->format, bytes, nequal), snapshot);
	else
		PredicateLockRelation(keys->index, snapshot);
}

/*
 * Conflicts with transactions that may have looked for this key and not found it.  To be
 * called when the entry is in the tree: a scan that takes its lock later finds the entry.
 * (nbtree holds a page lock meanwhile.)
 */
void
predicate_check_key(const IndexKeys *keys, const uint8 *bytes)
{
	if (likely(!IsolationIsSerializable()))
		return;
	CheckForSerializableConflictIn(keys->index, NULL, InvalidBlockNumber);
	for (int n = 1; n <= keys->format.ncolumns; n++)
		CheckForSerializableConflictIn(keys->index, NULL, key_page(&keys->format, bytes, n));
}
