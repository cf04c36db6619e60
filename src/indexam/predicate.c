/*-------------------------------------------------------------------------
 *
 * predicate.c
 *	  Predicate locks of serializable transactions.
 *
 * The trees have no pages that locks could name.  Instead a "page" is a hash of
 * the first columns of a key: who looks for one value in each of these locks it,
 * and an insertion looks for locks on those of its first one, two ... columns.
 * Scans of other ranges lock the index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "storage/predicate.h"

#include "am_internal.h"

/* Values that are equal have equal bytes, those that bytes do not decide, too. */
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
 * Who may have looked for this key and not found it?  To be asked when the entry is
 * there: who takes a lock after that finds it.  (nbtree has a page locked meanwhile.)
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
