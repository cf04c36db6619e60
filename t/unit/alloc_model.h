/*-------------------------------------------------------------------------
 *
 * alloc_model.h
 *	  The model that allocation is compared with: links in the pool, what hangs on
 *	  them, and what a crash may leave of an operation that was under way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOFORT_ALLOC_MODEL_H
#define SOFORT_ALLOC_MODEL_H

#include "unit.h"

#define LINKS			320		/* of the model; those from GROUPS on in groups */
#define GROUPS			128
#define GROUP			24		/* more than a line */
#define OWNERS			3
#define BATCH			4
#define MOST_CONTENT	16384	/* bytes of an allocation that are filled */

/* Where an allocation hangs, and what is in it */
typedef struct ModelLink
{
	bool		used;
	StoreId		owner;
	Size		size;			/* asked for */
	uint64		stamp;			/* its contents follow from that */
} ModelLink;

/* What is to be before, or after, an operation that was cut short */
typedef struct Model
{
	ModelLink	link[LINKS];
	StoreId		owner[OWNERS];
	StoreId		dropping;		/* its links are gone, it is to be freed */
	StoreId		made;			/* by a transaction that has not committed */
	uint64		commit;			/* what the word of the last transaction holds */
	uint64		rows;			/* links below 64 that it has stored, as bits */
	uint64		gone;			/* those that lay in a store that goes */
	uint64		stamp;
} Model;

extern Model model;				/* after all that is finished */
extern Model after;				/* if what is under way had been finished, too */
extern bool crowded;			/* few links, few slots: what is freed is soon taken again */

/* A pool with the model's links, and nothing on them; the end of it */
extern int	model_begin(void **state);
extern int	model_end(void **state);

extern PMPtr *link_at(int i);
extern uint64 content(uint64 stamp, Size k);
extern void fill(void *addr, Size size, uint64 stamp);
extern Size random_size(void);
extern int	random_flags(void);

/* Is link i as the model says? */
extern bool link_is(const Model *m, int i);

/* The pool is what the model is: nothing is lost, nothing left over, nothing has two owners. */
extern void check_model(void);

/* After a crash each link is what it was before, or what it was to be: that is the model now. */
extern void adopt_outcome(void);

/* Start again, as after a crash; the medium holds what it holds. */
extern void recover(void);

typedef void (*Operation) (void);

typedef struct NamedOperation
{
	const char *name;
	Operation	run;
	int			weight;			/* of random_operation() */
} NamedOperation;

extern const NamedOperation operations[];
extern const int noperations;

extern Operation random_operation(void);
extern void op_publish(void);
extern void op_rows(void);
extern void op_failed_rows(void);
extern void op_group(void);
extern void op_free(void);
extern void op_free_batch(void);
extern void op_free_group(void);
extern void op_store_undone(void);
extern void op_trim(void);

/* False: it was stopped at the nth event; so for a start. */
extern bool run_until(Operation op, uint64 nth);
extern bool start_until(uint64 nth);

#endif							/* SOFORT_ALLOC_MODEL_H */
