/*-------------------------------------------------------------------------
 *
 * pool_verify.c
 *	  sofort.verify_pool(): superblock, segment words, slabs, intents.
 *
 * Runs beside other sessions: what looks wrong is read again before it is
 * reported.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pm_internal.h"

typedef struct Verify
{
	PmReport	report;
	void	   *arg;
} Verify;

static void
tell(Verify *v, const char *kind, const char *place, const char *problem)
{
	v->report(v->arg, kind, place, problem);
}

static void
tell_granule(Verify *v, const char *kind, int extent, uint32 granule, const char *problem)
{
	char		place[64];

	snprintf(place, sizeof(place), "extent %d granule %u", extent, granule);
	tell(v, kind, place, problem);
}

static void
tell_refusal(Verify *v, const PoolRefusal *why)
{
	tell(v, "superblock", pm_pool_file, why->detail[0] != '\0' ? why->detail : why->message);
}

/* False: its directories cannot be followed. */
static bool
verify_superblock(Verify *v)
{
	PoolControl control;
	PoolRefusal why;
	bool		exists;
	bool		sound;

	memset(&why, 0, sizeof(why));
	LWLockAcquire(pm_shared->control_lock, LW_SHARED);
	if (!control_read(&control, &exists, &why))
		tell(v, "control file", control_file(), why.message);
	else if (!exists)
		tell(v, "control file", control_file(), "does not exist");
	else if (!pool_check_superblock(PoolSuper, &control, &why) ||
			 !pool_check_agreement(PoolSuper, &control, &why))
		tell_refusal(v, &why);
	LWLockRelease(pm_shared->control_lock);
	memset(&why, 0, sizeof(why));
	sound = pool_check_structure(PoolSuper, &why);
	if (!sound)
		tell_refusal(v, &why);
	return sound;
}

static bool
owner_exists(uint64 word)
{
	StoreId		owner = SEGWORD_OWNER(word);

	if (owner == PM_OWNER_SHARED)
		return SEGWORD_STATE(word) == SEGWORD_SLAB;
	return owner == PM_OWNER_POOL || owner == PM_OWNER_TXN ||
		(owner >= PM_FIRST_STORE_ID && owner < PM_UNSEAL_ID(PoolSuper->next_store_id));
}

/* What is wrong with the word of a granule, by itself */
static const char *
word_problem(int extent, uint32 granule, uint64 word)
{
	uint32		n = SEGWORD_COUNT(word);
	uint32		i;

	if (!SEGWORD_IS_RIGHT(word))
		return "segment word is damaged";
	if (SEGWORD_STATE(word) != SEGWORD_SEGMENT && SEGWORD_STATE(word) != SEGWORD_SLAB)
		return "unknown state";
	if (!owner_exists(word))
		return "owner does not exist";
	if (SEGWORD_STATE(word) == SEGWORD_SLAB)
		n = 1;
	if (n == 0 || n > pm_extent[extent].ngranules - granule)
		return "number of granules is impossible";
	for (i = 0; i < n; i++)
	{
		if (!segment_is_used(extent, granule + i))
			return "granule is in use but counted as free";
		if (i > 0 && segment_word(extent, granule + i) != 0)
			return "segments overlap";
	}
	return NULL;
}

/* Reports only stable problems: the word must be the same before and after. */
static uint32
verify_word(Verify *v, int extent, uint32 granule)
{
	uint64		word = segment_word(extent, granule);
	const char *problem;

	if (word == 0)
		return 1;
	if (SEGWORD_STATE(word) == SEGWORD_SLAB && word_problem(extent, granule, word) == NULL)
	{
		problem = slab_problem(extent, granule, word);
		if (problem != NULL)
			tell_granule(v, "slab", extent, granule, problem);
		return 1;
	}
	problem = word_problem(extent, granule, word);
	if (problem != NULL)
	{
		pg_usleep(1000L);
		problem = segment_word(extent, granule) == word ? word_problem(extent, granule, word) : NULL;
	}
	if (problem != NULL)
	{
		tell_granule(v, "segment", extent, granule, problem);
		return 1;
	}
	return SEGWORD_STATE(word) == SEGWORD_SEGMENT ? Max(SEGWORD_COUNT(word), 1) : 1;
}

static void
verify_intents(Verify *v)
{
	uint64		s;
	int			i;

	for (s = 0; s < pm_vector_count(&PoolSuper->intents); s++)
	{
		AllocIntents *set = pm_vector_get(&PoolSuper->intents, s);

		if (set == NULL)
		{
			tell(v, "intents", "superblock", "a chunk is missing");
			return;
		}
		for (i = 0; i < PM_INTENTS_PER_BACKEND; i++)
		{
			PMPtr		target = *(volatile PMPtr *) &set->intent[i].target;
			char		place[64];
			int			e;
			uint32		g;

			if (target == PM_NULL ||
				(pm_ref_is_valid(target) && segment_find(target & PM_OFFSET_MASK, &e, &g)))
				continue;
			snprintf(place, sizeof(place), "set " UINT64_FORMAT " intent %d", s, i);
			tell(v, "intents", place, "target is in no extent");
		}
	}
}

bool
pool_verify(PmReport report, void *arg)
{
	Verify		v = {.report = report,.arg = arg};
	bool		sound;
	int			e;

	pool_require();
	sound = verify_superblock(&v);
	for (e = 0; e < pm_nextents; e++)
	{
		const ExtentHeader *h = pm_extent[e].header;

		if (h->crc != extent_header_crc(h) || !PM_SEALED_RIGHT(h->words_prepared))
			tell_granule(&v, "extent", e, 0, "header is damaged");
	}
	for (e = 0; e < pm_nextents; e++)
	{
		uint32		prepared = words_prepared(e);
		uint32		g;

		for (g = 0; g < prepared;)
		{
			CHECK_FOR_INTERRUPTS();
			g += verify_word(&v, e, g);
		}
	}
	if (sound)
		verify_intents(&v);
	return sound;
}
