/*-------------------------------------------------------------------------
 *
 * kept.h
 *	  Transactions that stay open when the server dies.
 *
 * See src/txn/README.md, "Kept transactions".
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_TXN_KEPT_H
#define SOFORT_TXN_KEPT_H

#include "datatype/timestamp.h"
#include "sofort/pmem/layout.h"
#include "storage/lockdefs.h"

/* GUC: seconds that a transaction waits to be resumed after a start; 0: none waits. */
extern int	sofort_continuation_timeout;

extern void kept_init(void);	/* _PG_init while preloading: setting, worker */

/* ---- in the session that runs it ---- */

/* Has this transaction called txn_keep() or txn_resume()? */
extern bool txn_is_kept(void);

/*
 * Keeps this transaction from the end of the statement on. hash: of its token, 32 bytes.
 * The caller has made sure that all of it can be kept.  Raises 55000 if the keeper does not
 * run or the transaction is kept already, 53400 if too many are, 53100.
 */
extern void txn_keep(const uint8 *hash, const char *label, TimestampTz started);

/*
 * A top-level statement of a kept transaction has ended, and the client has not heard of it
 * yet: makes everything so far durable, then the number of finished statements.  May raise
 * errors.
 */
extern void txn_statement_finished(uint64 statements);

/* ---- by token ---- */

typedef enum TxnKeptOutcome
{
	TXN_KEPT_UNKNOWN = 0,
	TXN_KEPT_RUNNING,			/* in some session */
	TXN_KEPT_WAITING,			/* to be resumed */
	TXN_KEPT_COMMITTED,
	TXN_KEPT_ABORTED,
	TXN_KEPT_EXPIRED
} TxnKeptOutcome;

typedef struct TxnKeptInfo
{
	TxnKeptOutcome outcome;
	uint32		place;			/* WAITING: for the functions below */
	uint64		record;
	Oid			db_oid;
	Oid			role;
	TimestampTz started;
	uint64		statements;
	char		label[NAMEDATALEN];
} TxnKeptInfo;

extern void txn_kept_find(const uint8 *hash, TxnKeptInfo *info);

/* Is it this transaction? */
extern bool txn_runs(const TxnKeptInfo *info);

/*
 * Goes on with it in this transaction, which has done nothing yet, at READ COMMITTED; the
 * caller has locked its relations.  False if it no longer waits.  Command ids continue
 * above all that it has used.
 */
extern bool txn_resume(const TxnKeptInfo *info);

/*
 * Between begin_taking and end_taking it does not expire, because this session is about to
 * resume it.  (The end of the session is an end_taking.) txn_lock_for_resume() raises 55P03
 * instead of waiting.
 */
extern void txn_lock_for_resume(Oid relid, LOCKMODE mode);
extern void txn_kept_begin_taking(const TxnKeptInfo *info);
extern void txn_kept_end_taking(void);

/* Rolls it back; false if it no longer waits. */
extern bool txn_kept_abort(const TxnKeptInfo *info);

/* ---- those that wait ---- */

/* Are there any?  One load. */
extern bool txn_any_kept_waits(void);

/*
 * Visits the stores that they have changed, or in which they have only locked rows; a store
 * may come twice.
 */
typedef void (*TxnKeptVisitor) (void *arg, StoreId store, bool changed);
extern void txn_kept_visit_stores(uint32 place, TxnKeptVisitor fn, void *arg);
extern void txn_all_kept_visit_stores(Oid db_oid, TxnKeptVisitor fn, void *arg);
extern int	txn_kept_count_in_database(Oid db_oid);

/*
 * Does any of them use this store, of this database?  Nobody has a lock on its relation, and
 * it may be undone at any moment, until that is done.  "No" is for good in this life, if
 * the caller has a lock with which nobody can resume it.
 */
extern bool txn_kept_uses_store(StoreId store);

#endif							/* SOFORT_TXN_KEPT_H */
