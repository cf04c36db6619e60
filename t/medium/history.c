/*-------------------------------------------------------------------------
 *
 * history.c
 *	  What a line of the medium has held since it was durable for the last time.
 *
 * A power cut may leave any of these contents.  Between two that follow each
 * other stores were made in an order that nobody promises, so that any of the
 * words that differ may have arrived; over two or more steps the order is known
 * (pm_line_order(), pm_store8()): later words never arrive without the earlier.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "medium.h"

#define BUCKETS		(1 << 16)
#define MAX_STATES	48

typedef struct State
{
	uint64_t	at;				/* position of the record */
	bool		gap;			/* those right before it were forgotten */
	uint64_t	word[SHADOW_LINE / 8];
} State;

typedef struct History
{
	struct History *next;
	uint64_t	line;
	unsigned	n;
	unsigned	space;
	State	   *state;			/* oldest first */
} History;

static History *bucket[BUCKETS];

static History *
find(uint64_t line, bool make)
{
	History   **head = &bucket[(line * UINT64_C(0x9E3779B97F4A7C15)) >> 48];
	History    *h;

	for (h = *head; h != NULL && h->line != line; h = h->next)
		;
	if (h == NULL && make)
	{
		h = allocate(sizeof(History));
		h->line = line;
		h->next = *head;
		*head = h;
	}
	return h;
}

static void
forget(History *h, unsigned n)
{
	memmove(h->state, h->state + n, (h->n - n) * sizeof(State));
	h->n -= n;
}

void
history_clear(void)
{
	int			i;

	for (i = 0; i < BUCKETS; i++)
	{
		while (bucket[i] != NULL)
		{
			History    *h = bucket[i];

			bucket[i] = h->next;
			free(h->state);
			free(h);
		}
	}
}

/*
 * The line holds this now.  gap: what it held in between is not known.  Returns
 * true if the line had no history.
 */
bool
history_add(uint64_t line, uint64_t at, const uint64_t *word, bool gap)
{
	History    *h = find(line, true);
	State	   *s;

	if (h->n == MAX_STATES)
	{
		forget(h, MAX_STATES / 2);
		h->state[0].gap = true;
	}
	if (h->n == h->space)
	{
		h->space = h->space * 2 + 2;
		h->state = reallocate(h->state, h->space * sizeof(State));
	}
	s = &h->state[h->n++];
	s->at = at;
	s->gap = gap;
	memcpy(s->word, word, SHADOW_LINE);
	return h->n == 1;
}

/* What the line held at that record is durable.  True if nothing came later. */
bool
history_durable(uint64_t line, uint64_t at)
{
	History    *h = find(line, false);
	unsigned	n = 0;

	if (h == NULL || h->n == 0)
		return false;
	while (n < h->n && h->state[n].at <= at)
		n++;
	if (n == 0)
		return false;
	forget(h, n);
	return h->n == 0;
}

/* Any content of the line since it was durable, or something between two. */
void
history_pick(uint64_t line, bool torn, uint64_t *random, char *to)
{
	const History *h = find(line, false);
	const State *s;
	uint64_t	words;
	int			i;

	if (h == NULL || h->n == 0)
		return;
	i = (int) (random_next(random) % (h->n + 1)) - 1;
	if (i >= 0)
		memcpy(to, h->state[i].word, SHADOW_LINE);
	if (!torn || i + 1 == (int) h->n || h->state[i + 1].gap)
		return;
	s = &h->state[i + 1];
	words = random_next(random) >> 8;
	for (i = 0; i < SHADOW_LINE / 8; i++)
	{
		if (words & (UINT64_C(1) << i))
			memcpy(to + i * 8, &s->word[i], 8);
	}
}
