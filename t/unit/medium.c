/*-------------------------------------------------------------------------
 *
 * medium.c
 *	  A medium whose power can be cut, within one process: takes the place of
 *	  src/pmem/shadow.c.
 *
 * For each line of the pool it knows what is durable (a private copy of the
 * pool), and the states that the line had since: whenever it was flushed, and
 * before each store whose order counts (pm_line_order, pm_store8).  A line that
 * power cut finds on its way holds one of these states, what it held last, or of
 * two that follow each other some of the 8-byte words of each: the rule in
 * src/pmem/README.md, "What is not drained".  Stores that nobody flushed are
 * found by comparing all granules that are in use.
 *
 * A drain makes durable what its process has flushed, as it was when it did.
 *
 *-------------------------------------------------------------------------
 */
#define SHADOW_IMPLEMENTATION
#include "unit.h"

#include <sys/mman.h>
#include <unistd.h>

#define WORDS			(PM_LINE / 8)
#define STATES			16		/* of one line; older ones are dropped */
#define TABLE_SIZE		131072
#define PENDING			65536
#define MOST_GRANULES	4096	/* of extent 0, looked at */

typedef struct Line
{
	uint64		offset;			/* 0: unused */
	int			n;
	uint64		state[STATES][WORDS];
} Line;

typedef struct Pending
{
	uint64		offset;
	int			process;
	uint64		word[WORDS];
} Pending;

sigjmp_buf	medium_stop;
volatile uint32 *fault_armed = NULL;

static uint32 armed = 0;
static bool active = false;
static char *durable = NULL;	/* as large as the pool; sparse */
static Line *lines = NULL;
static uint32 *lines_used = NULL;
static uint32 nlines_used = 0;
static Pending *pending = NULL;
static int	npending = 0;
static uint8 touched[MOST_GRANULES];
static uint64 events;
static uint64 stop_at;
static bool may_stop;
static const ShadowCall *lost = NULL;	/* does nothing */
static char stopped_at[128];
static const char *error_point = NULL;
sigjmp_buf	medium_error;

/* Lines that the call that is left out should have made durable since the last cut */
#define LOST_LINES	4096
static uint64 lost_lines[LOST_LINES];
static int	nlost_lines = 0;

/* ---- events ---- */

void
medium_stop_at(uint64 nth)
{
	events = 0;
	stop_at = nth;
	may_stop = nth != 0;
}

bool
medium_run_until(void (*op) (void), uint64 nth)
{
	medium_stop_at(nth);
	if (sigsetjmp(medium_stop, 0) != 0)
		return false;
	op();
	medium_stop_at(0);
	return true;
}

uint64
medium_events(void)
{
	return events;
}

const char *
medium_stopped_at(void)
{
	return stopped_at;
}

static void
event(const char *name, const char *function, uint32 line)
{
	if (!active)
		return;
	events++;
	if (events != stop_at)
		return;
	stop_at = 0;
	may_stop = false;
	npending = 0;				/* what it had flushed, and not drained */
	snprintf(stopped_at, sizeof(stopped_at), "%s %s:%u", name, function, line);
	siglongjmp(medium_stop, 1);
}

void
fault_reached(const char *point)
{
	const char *error = error_point;

	if (active && error != NULL && strcmp(error, point) == 0)
	{
		error_point = NULL;
		siglongjmp(medium_error, 1);
	}
	event(point, "", 0);
}

void
medium_error_at(const char *point)
{
	error_point = point;
}

/* What is left out shows soon after it, mostly. */
static bool
is_lost(const ShadowCall *site)
{
	if (site != lost)
		return false;
	if (nlost_lines > LOST_LINES / 2)
		nlost_lines = 0;
	if (may_stop && random_below(3) != 0)
		stop_at = events + 1 + random_below(random_below(3) ? 2 : 30);
	return true;
}

/* ---- lines ---- */

/* Where the line is in the table, or belongs */
static uint32
place_of(uint64 offset)
{
	uint32		i = (uint32) ((offset / PM_LINE * UINT64CONST(0x9e3779b97f4a7c15)) >> 48);

	while (lines[i].offset != 0 && lines[i].offset != offset)
		i = (i + 1) % TABLE_SIZE;
	return i;
}

/* Lines that are durable as they are need no entry. */
static void
forget_durable_lines(void)
{
	uint32		n = 0;
	Line	   *kept = calloc(nlines_used, sizeof(Line));

	for (uint32 i = 0; i < nlines_used; i++)
	{
		Line	   *line = &lines[lines_used[i]];

		if (line->n > 0)
			kept[n++] = *line;
		line->offset = 0;
	}
	for (uint32 i = 0; i < n; i++)
	{
		lines_used[i] = place_of(kept[i].offset);
		lines[lines_used[i]] = kept[i];
	}
	nlines_used = n;
	free(kept);
}

static Line *
find_line(uint64 offset, bool make)
{
	uint32		i = place_of(offset);

	if (lines[i].offset == 0 && !make)
		return NULL;
	if (lines[i].offset == 0)
	{
		if (nlines_used == TABLE_SIZE / 2)
			abort();
		if (nlines_used >= TABLE_SIZE / 4 && nlines_used % 4096 == 0)
		{
			forget_durable_lines();
			i = place_of(offset);
		}
		lines[i].offset = offset;
		lines[i].n = 0;
		lines_used[nlines_used++] = i;
	}
	return &lines[i];
}

static void
forget_lines(void)
{
	for (uint32 i = 0; i < nlines_used; i++)
		lines[lines_used[i]].offset = 0;
	nlines_used = 0;
	npending = 0;
}

static void
touch(uint64 offset)
{
	int			e;
	uint32		g;

	if (segment_find(offset, &e, &g) && e == 0 && g < MOST_GRANULES)
		touched[g] = 1;
}

/* The line was in this state at some time. */
static void
note_state(uint64 offset)
{
	Line	   *line = find_line(offset, true);

	if (line->n > 0 && memcmp(line->state[line->n - 1], PoolBase + offset, PM_LINE) == 0)
		return;
	if (line->n == STATES)
	{
		memmove(line->state[0], line->state[1], sizeof(line->state[0]) * (STATES - 1));
		line->n--;
	}
	memcpy(line->state[line->n++], PoolBase + offset, PM_LINE);
	touch(offset);
}

/* It is durable in this state: what it was before cannot be any more. */
static void
make_durable(const Pending *p)
{
	Line	   *line = find_line(p->offset, true);
	int			i;

	for (i = line->n - 1; i >= 0; i--)
	{
		if (memcmp(line->state[i], p->word, PM_LINE) == 0)
			break;
	}
	if (i < 0)
		return;					/* another process has made a later state durable */
	memcpy(durable + p->offset, p->word, PM_LINE);
	line->n -= i + 1;
	memmove(line->state[0], line->state[i + 1], sizeof(line->state[0]) * line->n);
}

/* ---- calls of the code under test ---- */

void
shadow_begin(int fd)
{
}

void
shadow_control_written(const void *control, Size len)
{
	event("control", "", 0);
}

void
shadow_line_order(const void *addr)
{
	pg_write_barrier();
	if (active)
		note_state((uint64) ((const char *) addr - PoolBase) & ~(uint64) (PM_LINE - 1));
}

static void
note_flush(const void *addr, Size len, const ShadowCall *site)
{
	uint64		from = (uint64) ((const char *) addr - PoolBase) & ~(uint64) (PM_LINE - 1);
	uint64		end = (uint64) ((const char *) addr - PoolBase) + len;
	bool		left_out;

	if (!active || len == 0)
		return;
	left_out = is_lost(site);
	for (; from < end; from += PM_LINE)
	{
		note_state(from);
		if (left_out)
		{
			if (nlost_lines < LOST_LINES)
				lost_lines[nlost_lines++] = from;
			continue;
		}
		if (npending == PENDING)
			abort();
		pending[npending].offset = from;
		pending[npending].process = pm_process_number();
		memcpy(pending[npending++].word, PoolBase + from, PM_LINE);
	}
}

void
shadow_flush(const void *addr, Size len, ShadowCall *site)
{
	note_flush(addr, len, site);
	pm_flush(addr, len);
}

void
shadow_drain(ShadowCall *site)
{
	int			kept = 0;

	if (active)
	{
		event("drain", site->function, site->line);
		if (is_lost(site))
		{
			for (int i = 0; i < npending && nlost_lines < LOST_LINES; i++)
				lost_lines[nlost_lines++] = pending[i].offset;
			return;
		}
		for (int i = 0; i < npending; i++)
		{
			if (pending[i].process == pm_process_number())
				make_durable(&pending[i]);
			else
				pending[kept++] = pending[i];
		}
		npending = kept;
	}
	pm_drain();
}

void
shadow_copy_nodrain(void *dst, const void *src, Size len, ShadowCall *site)
{
	pm_copy_nodrain(dst, src, len);
	note_flush(dst, len, site);
}

void
shadow_zero_nodrain(void *dst, Size len, ShadowCall *site)
{
	pm_zero_nodrain(dst, len);
	note_flush(dst, len, site);
}

void
shadow_drain_to_publish(ShadowCall *site)
{
	shadow_drain(site);
}

void
shadow_publish8(uint64 *addr, uint64 value, ShadowCall *flush, ShadowCall *drain)
{
	shadow_store8(addr, value, flush);
	shadow_drain(drain);
}

/* ---- power ---- */

/* Ranges of the pool that may differ from what is durable: fn for each */
static void
each_range(void (*fn) (uint64 offset, uint64 len, void *arg), void *arg)
{
	uint32		prepared = words_prepared(0);

	fn(pm_extent[0].offset, PM_LINE, arg);
	fn(pm_extent[0].offset + PM_GRANULE, prepared * sizeof(uint64), arg);
	for (uint32 g = 0; g < prepared && g < MOST_GRANULES; g++)
	{
		if (segment_is_used(0, g))
			touched[g] = 1;
		if (touched[g])
			fn(granule_offset(0, g), PM_GRANULE, arg);
	}
}

static void
copy_to_durable(uint64 offset, uint64 len, void *arg)
{
	memcpy(durable + offset, PoolBase + offset, len);
}

void
medium_begin(void)
{
	if (durable == NULL)
	{
		durable = mmap(NULL, PM_POOL_FILE_BYTES, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		lines = mmap(NULL, TABLE_SIZE * sizeof(Line), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (durable == MAP_FAILED || lines == MAP_FAILED)
			abort();
		lines_used = calloc(TABLE_SIZE, sizeof(uint32));
		pending = calloc(PENDING, sizeof(Pending));
	}
	memset(touched, 0, sizeof(touched));
	forget_lines();
	each_range(copy_to_durable, NULL);
	events = stop_at = 0;
	active = true;
	armed = 1;
	fault_armed = &armed;
}

void
medium_end(void)
{
	active = false;
	armed = 0;
}

static int	directed = 0;		/* see choose_content() */

/* What a line that is not durable as it is holds after the cut */
static void
choose_content(uint64 offset, MediumSurvival survival, uint64 *to)
{
	const uint64 *now = (const uint64 *) (PoolBase + offset);
	const uint64 *before = (const uint64 *) (durable + offset);
	const uint64 *after = now;

	if (directed != 0)
	{
		/* what should be durable does not arrive and all else does; or the reverse */
		bool		is_one = false;

		for (int i = 0; i < nlost_lines; i++)
			is_one |= lost_lines[i] == offset;
		if (is_one == (directed == 1))
			after = before;
		else
			before = now;
	}
	else if (survival == SURVIVES_NOTHING)
		after = before;
	else if (survival == SURVIVES_EVERYTHING)
		before = now;
	else
	{
		/* durable, the states since, now: between two of them */
		const Line *line = find_line(offset, false);
		int			n = line == NULL ? 0 : line->n;
		int			i = (int) random_below(n + 1);

		if (i > 0)
			before = line->state[i - 1];
		if (i < n)
			after = line->state[i];
		switch (random_below(3))
		{
			case 0:
				after = before;
				break;
			case 1:
				before = after;
				break;
			default:
				break;
		}
	}
	for (int i = 0; i < WORDS; i++)
		to[i] = random_below(2) ? before[i] : after[i];
}

static void
cut_range(uint64 offset, uint64 len, void *arg)
{
	MediumSurvival survival = *(MediumSurvival *) arg;
	uint64		word[WORDS];

	for (uint64 end = offset + len; offset < end; offset += PM_LINE)
	{
		if (offset % 4096 == 0 && offset + 4096 <= end &&
			memcmp(durable + offset, PoolBase + offset, 4096) == 0)
		{
			offset += 4096 - PM_LINE;
			continue;
		}
		if (memcmp(durable + offset, PoolBase + offset, PM_LINE) == 0 &&
			(survival != SURVIVES_SOMETHING || find_line(offset, false) == NULL))
			continue;
		choose_content(offset, survival, word);
		memcpy(PoolBase + offset, word, PM_LINE);
		memcpy(durable + offset, word, PM_LINE);
	}
}

void
medium_cut(MediumSurvival survival)
{
	directed = nlost_lines > 0 ? (int) random_below(3) : 0;
	each_range(cut_range, &survival);
	nlost_lines = 0;
	forget_lines();
	stop_at = 0;
	active = false;
	pm_drain();					/* of persist.c, so that it holds nothing of before */
	active = true;
}

/* ---- the test of the tests ---- */

/* The linker's names for begin and end of a section */
extern ShadowCall *const __start_sofort_calls[];
extern ShadowCall *const __stop_sofort_calls[];

/* As t/medium names them: file, function, kind, number within the function */
static const char *
name_of(const ShadowCall *call)
{
	static char name[256];
	int			number = 1;
	const char *file = strstr(call->file, "src/");

	for (ShadowCall *const *c = __start_sofort_calls; c < __stop_sofort_calls; c++)
	{
		if (strcmp((*c)->file, call->file) == 0 && strcmp((*c)->function, call->function) == 0 &&
			(*c)->kind == call->kind && (*c)->line < call->line)
			number++;
	}
	snprintf(name, sizeof(name), "%s:%s:%s:%d", file != NULL ? file + 4 : call->file, call->function,
			 call->kind == SHADOW_FLUSH ? "flush" : "drain", number);
	return name;
}

static bool
is_in_list(const char *name, const char *list)
{
	Size		len = strlen(name);

	for (const char *at = list; (at = strstr(at, name)) != NULL; at += len)
	{
		if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	}
	return false;
}

/* (NULL: none) */
static void
lose_call(const void *call)
{
	medium_begin();
	lost = call;
}

/* Does the work fail, when this call (NULL: none) does nothing? */
static bool
fails_without(const ShadowCall *call, uint64 seed, int (*begin) (void **state), void (*workout) (void))
{
	return unit_fails(seed, begin, lose_call, call, workout);
}

void
medium_lose_each_call(const char *files, const char *argued, int (*begin) (void **state),
					  void (*workout) (void))
{
	const char *only = getenv("UNIT_CALL");
	int			tried = 0;
	int			bad = 0;

	assert_false(fails_without(NULL, 1, begin, workout));
	if (only == NULL && getenv("UNIT_LONG") == NULL)
		return;
	for (ShadowCall *const *c = __start_sofort_calls; c < __stop_sofort_calls; c++)
	{
		const char *name = name_of(*c);
		const char *file = strstr((*c)->file, "src/");

		if (!is_in_list(file != NULL ? file : (*c)->file, files) || is_in_list(name, argued) ||
			(only != NULL && strcmp(only, name) != 0))
			continue;
		tried++;
		if (!fails_without(*c, 1, begin, workout))
		{
			bad++;
			print_message("%s: nothing notices that it is left out\n", name);
		}
	}
	/* a workout of this length meets the moment of some of them by chance only */
	print_message("%d calls were left out in turn, %d without notice\n", tried, bad);
	assert_true(tried > 0);
}

#define LOSS_SEEDS	20

void
medium_lose_calls(const char *calls, int (*begin) (void **state), void (*workout) (void))
{
	const char *only = getenv("UNIT_CALL");
	Size		found = 0;
	uint64		seed;

	for (ShadowCall *const *c = __start_sofort_calls; c < __stop_sofort_calls; c++)
	{
		const char *name = name_of(*c);

		if (!is_in_list(name, calls))
			continue;
		found += strlen(name) + 1;
		if (only != NULL && strcmp(only, name) != 0)
			continue;
		for (seed = 1; seed <= LOSS_SEEDS && !fails_without(*c, seed, begin, workout); seed++)
			;
		if (seed > LOSS_SEEDS)
			fail_msg("nothing notices that %s is left out", name);
		if (getenv("UNIT_VERBOSE") != NULL)
			print_message("%s: noticed with seed %d\n", name, (int) seed);
	}
	assert_int_equal(found, strlen(calls) + 1); /* all of them are there */
	assert_false(fails_without(NULL, 1, begin, workout));
}
