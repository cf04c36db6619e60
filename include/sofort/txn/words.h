/*-------------------------------------------------------------------------
 *
 * words.h
 *	  Begin, end, link and successor words of a row version.
 *
 * A begin or end word:
 *
 *	 bits 61..63  tag
 *	 bits 57..60  flags
 *	 bits  0..56  STAMP: bits 0..47 FullTransactionId
 *						 bits 48..56 check of all other bits
 *				  PROGRESS, LOCK: bits 39..56 slot of the TCB (18 bits)
 *								  bits 25..38 generation (14 bits)
 *				  PROGRESS:		  bits  0..24 command id (25 bits)
 *				  LOCK:			  bits 17..24 server life, low 8 bits
 *								  bits  0..16 subtransaction
 *				  otherwise 0
 *
 *	 begin		  meaning
 *	 EMPTY (0)	  the row id is free (or reserved, nothing written)
 *	 STAMP		  created by a transaction that committed; FrozenTransactionId:
 *				  visible to all, in a store that is dropped if its maker aborts
 *	 PROGRESS	  created by the transaction in that TCB
 *	 ABORTED	  its creator aborted; VACUUM makes it EMPTY
 *
 *	 end		  meaning
 *	 EMPTY (0)	  current version, no locker
 *	 STAMP		  deleted or updated by a transaction that committed
 *	 PROGRESS	  deleted or updated by the transaction in that TCB
 *	 LOCK		  row-locked by one transaction; flags hold LockTupleMode; reads
 *				  as EMPTY once that generation, or that server life, has ended
 *	 LOCKERS	  row-locked; the holders are in the lock table (DRAM)
 *
 * A begin word never names a slot and generation that was released (it may name one
 * whose transaction has ended, until it gets its stamp); an end word does so only as LOCK.
 *
 * Words change only by compare-and-swap (or by a plain store while the row is
 * reserved and invisible to everybody), and are read by one 8-byte load.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TXN_WORDS_H
#define SOFORT_TXN_WORDS_H

#include "postgres.h"
#include "access/transam.h"
#include "nodes/lockoptions.h"
#include "sofort/pmem/layout.h"

#define WORD_TAG_SHIFT		61
#define WORD_TAG_EMPTY		0
#define WORD_TAG_STAMP		1
#define WORD_TAG_PROGRESS	2
#define WORD_TAG_ABORTED	3
#define WORD_TAG_LOCK		4
#define WORD_TAG_LOCKERS	5

#define WORD_FLAG_SHIFT		57
#define WORD_FLAG(n)		(UINT64CONST(1) << (WORD_FLAG_SHIFT + (n)))
#define WORD_FLAGS_MASK		(UINT64CONST(0xf) << WORD_FLAG_SHIFT)
#define WORD_PAYLOAD_MASK	((UINT64CONST(1) << WORD_FLAG_SHIFT) - 1)

/* begin word */
#define BEGIN_HEAP_ONLY		WORD_FLAG(0)	/* no index entry points here */
#define BEGIN_CHECK_SHIFT	(WORD_FLAG_SHIFT + 1)	/* three bits: check of the row's
													 * fields (store) */
#define BEGIN_CHECK_MASK	(UINT64CONST(7) << BEGIN_CHECK_SHIFT)

/* end word, tags STAMP and PROGRESS */
#define END_UPDATED			WORD_FLAG(0)	/* by UPDATE: there is a successor */
#define END_KEYS			WORD_FLAG(1)	/* DELETE, or UPDATE of key columns:
											 * excludes KEY SHARE */
#define END_LOCKERS			WORD_FLAG(2)	/* holders beside, in the lock table */
#define END_MOVED			WORD_FLAG(3)	/* row moved to another partition */

#define WORD_SLOT_BITS		18
#define WORD_GENERATION_BITS 14
#define WORD_COMMAND_BITS	25
#define WORD_MAX_COMMAND	((1U << WORD_COMMAND_BITS) - 1)

#define WORD_TAG(w)			((int) ((w) >> WORD_TAG_SHIFT))
#define WORD_XID_BITS		48
#define WORD_XID(w)			((w) & ((UINT64CONST(1) << WORD_XID_BITS) - 1)) /* STAMP */
#define WORD_CHECK_MASK		(WORD_PAYLOAD_MASK & ~((UINT64CONST(1) << WORD_XID_BITS) - 1))
#define WORD_SLOT(w)		((uint32) (((w) >> 39) & 0x3ffff))
#define WORD_GENERATION(w)	((uint32) (((w) >> 25) & 0x3fff))
#define WORD_COMMAND(w)		((CommandId) ((w) & 0x1ffffff))
#define WORD_LOCK_MODE(w)	((LockTupleMode) (((w) >> WORD_FLAG_SHIFT) & 3))

/* without its check, which word_seal() adds when it is stored */
#define WORD_MAKE_STAMP(fxid) \
	(((uint64) WORD_TAG_STAMP << WORD_TAG_SHIFT) | (uint64) (fxid))
#define WORD_MAKE_PROGRESS(slot, gen, cid) \
	(((uint64) WORD_TAG_PROGRESS << WORD_TAG_SHIFT) | ((uint64) (slot) << 39) | \
	 ((uint64) (gen) << 25) | (uint64) (cid))
#define WORD_MAKE_LOCK(slot, gen, life, sub, mode) \
	(((uint64) WORD_TAG_LOCK << WORD_TAG_SHIFT) | \
	 ((uint64) (mode) << WORD_FLAG_SHIFT) | ((uint64) (slot) << 39) | \
	 ((uint64) (gen) << 25) | (((uint64) (life) & 0xff) << 17) | (uint64) (sub))
#define WORD_LOCK_LIFE(w)	((uint32) (((w) >> 17) & 0xff))
#define WORD_LOCK_SUB(w)	((SubTransactionId) ((w) & 0x1ffff))
#define WORD_MAX_LOCK_SUB	0x1ffff /* later ones use the lock table */
#define WORD_EMPTY			UINT64CONST(0)
#define WORD_ABORTED		((uint64) WORD_TAG_ABORTED << WORD_TAG_SHIFT)
#define WORD_LOCKERS		((uint64) WORD_TAG_LOCKERS << WORD_TAG_SHIFT)

/* Does a row with this begin word hold a version, that is, is it neither free nor undone? */
static inline bool
begin_is_of_version(uint64 begin)
{
	return WORD_TAG(begin) != WORD_TAG_EMPTY && WORD_TAG(begin) != WORD_TAG_ABORTED;
}

/*
 * Link word (in a vector of the block, made at its first update; no vector
 * reads as 0).
 *
 *	 of a root (index entries point to it): the newest version of its chain,
 *		or 0 if it is the only one
 *	 of a heap-only version: the next older version that is still linked, which
 *		is another heap-only version, or the root (LINK_ROOT set)
 *
 * Successor word (second vector): set when a version was updated with a change
 * of indexed columns: row id of the new root.
 *
 *	 bits 0..40 row id + 1 (0 = none), bit 63 LINK_ROOT; bits 41..62 check of the
 *	 others, 0 in an empty word
 */
#define LINK_ROOT			(UINT64CONST(1) << 63)
#define LINK_ROW_MASK		((UINT64CONST(1) << 41) - 1)
#define LINK_IS_SET(l)		(((l) & LINK_ROW_MASK) != 0)
#define LINK_ROW(l)			(((l) & LINK_ROW_MASK) - 1)
#define LINK_CHECK(l)		(PM_CHECK((l) & (LINK_ROOT | LINK_ROW_MASK), 22) << 41)
#define LINK_SEAL(l)		((l) | LINK_CHECK(l))
#define LINK_MAKE(row)		LINK_SEAL((uint64) (row) + 1)
#define LINK_MAKE_ROOT(row) LINK_SEAL(LINK_ROOT | ((uint64) (row) + 1))
#define LINK_IS_RIGHT(l)	((l) == LINK_SEAL((l) & (LINK_ROOT | LINK_ROW_MASK)))

static inline uint64
word_read(const uint64 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* With its check, if it is a stamp: whoever stores a word stores this. */
static inline uint64
word_seal(uint64 word)
{
	if (WORD_TAG(word) != WORD_TAG_STAMP)
		return word;
	word &= ~WORD_CHECK_MASK;
	return word | (PM_CHECK(word, 9) << WORD_XID_BITS);
}

/*
 * What is wrong with a word by itself, or NULL.  (A stamp has a check; the others
 * live as long as their transaction, but for the marks of single lockers: of these
 * the unused bits and the subtransaction are looked at.)
 */
static inline const char *
word_problem(uint64 word, bool begin)
{
	int			tag = WORD_TAG(word);

	if (word == WORD_EMPTY)
		return NULL;
	if (tag == WORD_TAG_STAMP)
		return word == word_seal(word) && WORD_XID(word) != 0 ? NULL : "stamp is damaged";
	if (tag == WORD_TAG_EMPTY || tag > WORD_TAG_LOCKERS ||
		(begin ? tag > WORD_TAG_ABORTED : tag == WORD_TAG_ABORTED) ||
		(tag == WORD_TAG_ABORTED && (word & WORD_PAYLOAD_MASK) != 0) ||
		(tag == WORD_TAG_LOCKERS && (word & WORD_PAYLOAD_MASK) != 0) ||
		(tag == WORD_TAG_LOCK && WORD_LOCK_SUB(word) == InvalidSubTransactionId))
		return "word has no meaning";
	return NULL;
}

static inline bool
word_cas(uint64 *word, uint64 expected, uint64 desired)
{
	desired = word_seal(desired);
	return __atomic_compare_exchange_n(word, &expected, desired, false,
									   __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}

#endif							/* SOFORT_TXN_WORDS_H */
