/*-------------------------------------------------------------------------
 *
 * image.c
 *	  The medium at any point of a shadow log.
 *
 * Two pictures of the pool file are kept: what is durable for certain, and what
 * was stored last (what the caches hold).  After a power cut each line is one of
 * the two, or something that it was in between (history.c).
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "medium.h"

#define PAGE		4096
#define PAGE_LINES	(PAGE / SHADOW_LINE)
#define MAX_PAGES	(1 << 20)

const char *const survival_name[SURVIVALS + 1] = {"none", "half", "torn", "all", "later"};

static const ShadowHeader *header;
static uint64_t pool_bytes;
static char *durable;
static char *stored;
static uint64_t *flushed_at;	/* per line: record whose flush it has */
static unsigned char *touched;	/* per page */
static unsigned char *pending;	/* per page: lines that have a history */
static uint32_t *pages;			/* the touched ones */
static uint32_t npages;
static bool pages_sorted;
static char base_path[4096];

/* Flushes that wait for the drain of their process */
typedef struct Process
{
	uint64_t   *record;			/* positions in the log */
	size_t		n;
	size_t		space;
} Process;

static Process *process;
static uint32_t nprocesses;
static uint64_t position;
static uint64_t drains;
static Cut	now_at;
static bool early_cuts = false;
static uint64_t early_seed;

static char **site_names;

/* Calls left out, and the lines that are not durable for that reason */
static bool left_out[SHADOW_MAX_SITES];
static bool leaving_out;
static unsigned leave_out_every;
static uint64_t leave_out_seed;
typedef struct Lost
{
	uint64_t	offset;
	uint64_t	since;			/* drain */
	uint64_t	word[SHADOW_LINE / 8];	/* what should have become durable */
} Lost;

static Lost *lost;
static unsigned nlost;
static unsigned lost_space;
static unsigned char *is_lost;	/* per line; LOST_LATER: it was stored to since */
#define LOST_LATER	2

static void *
sparse(uint64_t bytes)
{
	void	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return p;
}

/* ---- the log ---- */

const ShadowSite *
log_site(uint32_t site)
{
	return (const ShadowSite *) ((const char *) header + SHADOW_CALLS_OFFSET) + site;
}

/*
 * Names survive changes of the sources elsewhere: file, function, kind, and the
 * its number among those of that kind in the function.  Calls of an inline function, which
 * are in the log once for each file that includes it, have the same name.
 */
static char *
site_name(uint32_t i)
{
	const ShadowSite *s = log_site(i);
	uint32_t	last_line = 0;
	uint32_t	line;
	int			n = 1;
	uint32_t	k;

	/* lines of other calls before it, each counted once, in ascending order */
	for (line = 0; last_line != UINT32_MAX; line = last_line)
	{
		last_line = UINT32_MAX;
		for (k = 0; k < header->nsites; k++)
		{
			const ShadowSite *o = log_site(k);

			if (o->kind == s->kind && o->line > line && o->line < s->line && o->line < last_line &&
				strcmp(o->file, s->file) == 0 && strcmp(o->function, s->function) == 0)
				last_line = o->line;
		}
		n += last_line != UINT32_MAX;
	}
	return print("%s:%s:%s:%d", s->file, s->function, s->kind == SHADOW_FLUSH ? "flush" : "drain", n);
}

const ShadowHeader *
log_open(const char *path)
{
	struct stat st;
	uint32_t	i;
	int			fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) != 0)
		die("%s: %s", path, strerror(errno));
	if (st.st_size == 0)
		die("%s is empty: is the server built with SOFORT_SHADOW_MEDIUM?", path);
	header = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	close(fd);
	if (header->magic != SHADOW_MAGIC)
		die("%s is no shadow log", path);
	site_names = allocate(header->nsites * sizeof(char *));
	for (i = 0; i < header->nsites; i++)
		site_names[i] = site_name(i);
	return header;
}

static const ShadowRecord *
record_at(uint64_t at)
{
	return (const ShadowRecord *) ((const char *) header + at);
}

static uint64_t
record_end(uint64_t at)
{
	const ShadowRecord *r = record_at(at);
	uint64_t	payload = r->kind == SHADOW_CONTROL ? (r->n + 7) & ~7u : r->n * sizeof(ShadowLine);

	return at + sizeof(ShadowRecord) + payload;
}

/* The end of the last drain: what is durable when the server has ended */
uint64_t
log_last_drain(void)
{
	uint64_t	at;
	uint64_t	last = 0;

	for (at = SHADOW_RECORDS; at < header->tail; at = record_end(at))
	{
		if (record_at(at)->kind == SHADOW_DRAIN)
			last = record_end(at);
	}
	return last;
}

static int
compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

char	  **
log_calls(int *n)
{
	char	  **names = allocate(header->nsites * sizeof(char *));
	uint32_t	i;
	uint32_t	n_ours = 0;
	int			unique = 0;

	for (i = 0; i < header->nsites; i++)
	{
		/* libpmemobj's are its own */
		if (log_site(i)->function[0] != '\0')
			names[n_ours++] = site_names[i];
	}
	qsort(names, n_ours, sizeof(char *), compare_strings);
	for (i = 0; i < n_ours; i++)
	{
		if (unique == 0 || strcmp(names[unique - 1], names[i]) != 0)
			names[unique++] = names[i];
	}
	*n = unique;
	return names;
}

uint64_t
log_calls_made(const char *call)
{
	uint64_t	n = 0;
	uint64_t	at;
	bool		is[SHADOW_MAX_SITES] = {0};
	uint32_t	i;

	for (i = 0; i < header->nsites; i++)
		is[i] = strcmp(site_names[i], call) == 0;
	for (at = SHADOW_RECORDS; at < header->tail; at = record_end(at))
	{
		const ShadowRecord *r = record_at(at);

		n += (r->kind == SHADOW_FLUSH || r->kind == SHADOW_DRAIN) && is[r->site];
	}
	return n;
}

bool
image_leave_out(const char *call)
{
	uint32_t	i;

	leaving_out = call != NULL;
	leave_out_every = 0;
	memset(left_out, 0, sizeof(left_out));
	for (i = 0; call != NULL && i < header->nsites; i++)
		left_out[i] = strcmp(site_names[i], call) == 0;
	return true;
}

void
image_leave_out_every(unsigned every, uint64_t seed)
{
	image_leave_out(NULL);
	leaving_out = true;
	leave_out_every = every;
	leave_out_seed = seed * 2 + 1;
}

/* ---- pages ---- */

static void
touch(uint64_t offset)
{
	uint64_t	page = offset / PAGE;

	if (touched[page])
		return;
	if (npages == MAX_PAGES)
		die("the pool has more than %d pages", MAX_PAGES);
	touched[page] = 1;
	pages[npages++] = (uint32_t) page;
	pages_sorted = false;
}

static int
compare_pages(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return x < y ? -1 : x > y;
}

static void
sort_pages(void)
{
	if (!pages_sorted)
		qsort(pages, npages, sizeof(uint32_t), compare_pages);
	pages_sorted = true;
}

/* The pool as it was when the log begins */
void
image_load(const char *pool)
{
	struct stat st;

	if (stat(pool, &st) != 0)
		die("%s: %s", pool, strerror(errno));
	pool_bytes = (uint64_t) st.st_size;
	snprintf(base_path, sizeof(base_path), "%s", pool);
	pages = sparse(MAX_PAGES * sizeof(uint32_t));
	image_restart();
}

/* What has data in a file, into a picture */
static void
read_picture(const char *path, char *picture)
{
	int			fd = open(path, O_RDONLY);
	off_t		at = 0;

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0)
	{
		off_t		end = lseek(fd, at, SEEK_HOLE);

		for (; at < end; at += PAGE)
		{
			if (pread(fd, picture + at, PAGE, at) <= 0)
				die("%s: %s", path, strerror(errno));
			touch((uint64_t) at);
		}
	}
	close(fd);
}

/* After a process crash more was stored when the log begins than was durable. */
static void
read_base(void)
{
	char	   *visible = print("%s.visible", base_path);
	uint32_t	i;

	read_picture(base_path, durable);
	read_picture(access(visible, F_OK) == 0 ? visible : base_path, stored);
	free(visible);
	for (i = 0; i < npages; i++)
	{
		uint64_t	at = (uint64_t) pages[i] * PAGE;
		uint64_t	end = at + PAGE;

		for (; at < end; at += SHADOW_LINE)
		{
			if (memcmp(durable + at, stored + at, SHADOW_LINE) != 0)
				pending[at / PAGE] += history_add(at / SHADOW_LINE, 0,
												  (const uint64_t *) (stored + at), true);
		}
	}
}

/* Back to the beginning of the log */
void
image_restart(void)
{
	uint32_t	p;

	if (durable != NULL)
	{
		munmap(durable, pool_bytes);
		munmap(stored, pool_bytes);
		munmap(flushed_at, pool_bytes / SHADOW_LINE * 8);
		munmap(touched, pool_bytes / PAGE);
		munmap(pending, pool_bytes / PAGE);
		munmap(is_lost, pool_bytes / SHADOW_LINE);
	}
	durable = sparse(pool_bytes);
	stored = sparse(pool_bytes);
	flushed_at = sparse(pool_bytes / SHADOW_LINE * 8);
	touched = sparse(pool_bytes / PAGE);
	pending = sparse(pool_bytes / PAGE);
	history_clear();
	is_lost = sparse(pool_bytes / SHADOW_LINE);
	npages = 0;
	nlost = 0;
	for (p = 0; p < nprocesses; p++)
		free(process[p].record);
	free(process);
	nprocesses = 0;
	process = NULL;
	position = SHADOW_RECORDS;
	drains = 0;
	memset(&now_at, 0, sizeof(now_at));
	read_base();
}

/* ---- going forward ---- */

static Process *
process_of(const ShadowRecord *r)
{
	if (r->process >= nprocesses)
	{
		uint32_t	n = r->process + 16;

		process = reallocate(process, n * sizeof(Process));
		memset(process + nprocesses, 0, (n - nprocesses) * sizeof(Process));
		nprocesses = n;
	}
	return &process[r->process];
}

static void
apply_stored(uint64_t at)
{
	const ShadowRecord *r = record_at(at);
	const ShadowLine *line = (const ShadowLine *) (r + 1);
	uint32_t	i;

	for (i = 0; i < r->n; i++)
	{
		touch(line[i].offset);
		memcpy(stored + line[i].offset, line[i].word, SHADOW_LINE);
		pending[line[i].offset / PAGE] +=
			history_add(line[i].offset / SHADOW_LINE, at, line[i].word, false);
	}
}

static void
note_lost(const ShadowRecord *r)
{
	const ShadowLine *line = (const ShadowLine *) (r + 1);
	uint32_t	i;

	for (i = 0; i < r->n; i++)
	{
		if (is_lost[line[i].offset / SHADOW_LINE])
			continue;
		is_lost[line[i].offset / SHADOW_LINE] = 1;
		if (nlost == lost_space)
		{
			lost_space = lost_space * 2 + 1024;
			lost = reallocate(lost, lost_space * sizeof(Lost));
		}
		lost[nlost].offset = line[i].offset;
		memcpy(lost[nlost].word, line[i].word, SHADOW_LINE);
		lost[nlost++].since = drains;
	}
}

/* A later flush of a line wins, whoever drains first. */
static void
make_durable(uint64_t at)
{
	const ShadowRecord *r = record_at(at);
	const ShadowLine *line = (const ShadowLine *) (r + 1);
	uint32_t	i;

	for (i = 0; i < r->n; i++)
	{
		uint64_t	n = line[i].offset / SHADOW_LINE;

		if (flushed_at[n] > at)
			continue;
		flushed_at[n] = at;
		memcpy(durable + line[i].offset, line[i].word, SHADOW_LINE);
		pending[line[i].offset / PAGE] -= history_durable(n, at);
	}
}

static bool
is_left_out(const ShadowRecord *r, uint64_t at)
{
	if (!leaving_out)
		return false;
	if (leave_out_every != 0)
	{
		uint64_t	x = at * leave_out_seed;

		return r->kind == SHADOW_FLUSH && random_next(&x) % leave_out_every == 0;
	}
	return left_out[r->site];
}

static void
replay(uint64_t at)
{
	const ShadowRecord *r = record_at(at);
	Process    *p = process_of(r);
	size_t		i;

	if (r->kind == SHADOW_CONTROL)
	{
		now_at.control = r + 1;
		now_at.control_size = r->n;
		return;
	}
	apply_stored(at);
	if (r->kind == SHADOW_ORDER)
		return;
	if (r->kind == SHADOW_FLUSH)
	{
		if (is_left_out(r, at))
		{
			note_lost(r);
			return;
		}
		if (p->n == p->space)
		{
			p->space = p->space * 2 + 256;
			p->record = reallocate(p->record, p->space * sizeof(uint64_t));
		}
		p->record[p->n++] = at;
		return;
	}
	if (is_left_out(r, at))
	{
		for (i = 0; i < p->n; i++)
			note_lost(record_at(p->record[i]));
		return;
	}
	for (i = 0; i < p->n; i++)
		make_durable(p->record[i]);
	p->n = 0;
}

/* Lines that are stored and not durable */
unsigned
image_differing(void)
{
	unsigned	n = 0;
	uint32_t	i;

	for (i = 0; i < npages; i++)
	{
		uint64_t	at = (uint64_t) pages[i] * PAGE;
		int			k;

		if (memcmp(durable + at, stored + at, PAGE) == 0)
			continue;
		for (k = 0; k < PAGE_LINES; k++)
			n += memcmp(durable + at + k * SHADOW_LINE, stored + at + k * SHADOW_LINE, SHADOW_LINE) != 0;
	}
	return n;
}

/* Is a line on its way that a call of this name has flushed?  One flag per site. */
void
image_flushes_open(bool *open)
{
	uint32_t	p;
	size_t		i;
	uint32_t	k;

	memset(open, 0, SHADOW_MAX_SITES * sizeof(bool));
	for (p = 0; p < nprocesses; p++)
	{
		for (i = 0; i < process[p].n; i++)
		{
			const ShadowRecord *r = record_at(process[p].record[i]);
			const ShadowLine *line = (const ShadowLine *) (r + 1);

			for (k = 0; k < r->n && !open[r->site]; k++)
				open[r->site] = memcmp(durable + line[k].offset, line[k].word, SHADOW_LINE) != 0;
		}
	}
}

const char *
log_site_name(uint32_t site)
{
	return site < header->nsites ? site_names[site] : NULL;
}

/*
 * Half of the cuts before a drain come earlier: right after the last flush before it.  Else
 * the WAL would always be as far as it was at the drain, which what was flushed before may
 * have to wait for.
 */
void
image_cut_early(uint64_t seed)
{
	early_cuts = true;
	early_seed = seed;
}

/* Is that so for the drain at this place?  The flush, or 0. */
static uint64_t
early_flush(uint64_t drain_at)
{
	uint64_t	dice = (early_seed * 1000003 + drains) * 2 + 1;
	uint64_t	flush = 0;
	uint64_t	at;

	if (!early_cuts || (random_next(&dice) & 0x100) == 0)
		return 0;
	for (at = position; at < drain_at; at = record_end(at))
	{
		if (record_at(at)->kind == SHADOW_FLUSH && record_at(at)->wal_flushed != 0)
			flush = at;
	}
	return flush;
}

static void
note_wal(const ShadowRecord *r)
{
	if (r->wal_flushed == 0)
		return;
	now_at.wal_flushed = r->wal_flushed;
	now_at.wal_written = r->wal_written;
}

static uint64_t
find_drain(void)
{
	uint64_t	at = position;

	while (at < header->tail && record_at(at)->kind != SHADOW_DRAIN)
		at = record_end(at);
	return at;
}

static void
replay_until(uint64_t end)
{
	for (; position < end; position = record_end(position))
		replay(position);
}

/*
 * Go on to the next drain: to the moment before it takes effect, when all that
 * was stored until then may have arrived (or somewhat earlier, see image_cut_early()),
 * or to that after it.
 */
bool
image_next_drain(Cut *cut, bool before)
{
	static uint64_t held = 0;	/* a drain that was cut before */
	uint64_t	drain;
	uint64_t	flush;

	if (position == SHADOW_RECORDS)
		held = 0;
	if (held != 0)
		replay_until(record_end(held));
	held = 0;
	drain = find_drain();
	if (drain >= header->tail)
	{
		replay_until(drain);
		return false;
	}
	drains++;
	now_at.drain = drains;
	if (!before)
	{
		replay_until(record_end(drain));
		note_wal(record_at(drain));
		now_at.position = position;
	}
	else if ((flush = early_flush(drain)) != 0)
	{
		/* whoever was answered after the flush was recorded is not counted */
		replay_until(record_end(flush));
		note_wal(record_at(flush));
		now_at.position = flush;
		held = drain;
	}
	else
	{
		replay_until(drain);
		(void) process_of(record_at(drain));
		apply_stored(drain);
		note_wal(record_at(drain));
		now_at.position = drain;
		held = drain;
	}
	*cut = now_at;
	return true;
}

/*
 * Is anything missing on the medium because of the calls that are left out?  0,
 * or a number for what is.  *age: for how many drains the oldest line was missing
 * that has arrived after all since the last call.
 */
uint64_t
image_lost_lines(uint64_t *age)
{
	uint64_t	sum = 0;
	unsigned	kept = 0;
	unsigned	i;

	*age = 0;
	for (i = 0; i < nlost; i++)
	{
		uint64_t	at = lost[i].offset;

		if (memcmp(durable + at, stored + at, SHADOW_LINE) != 0)
		{
			sum = sum * 31 + at / SHADOW_LINE + 1;
			lost[kept++] = lost[i];
		}
		else
		{
			is_lost[at / SHADOW_LINE] = 0;
			*age = drains - lost[i].since > *age ? drains - lost[i].since : *age;
		}
	}
	nlost = kept;
	return sum;
}

/* ---- images ---- */

static void
survive_page(char *page, uint64_t at, Survival survival, uint64_t *random)
{
	uint64_t	line = at / SHADOW_LINE;
	int			k;

	memcpy(page, durable + at, PAGE);
	if (survival == SURVIVES_NONE || pending[at / PAGE] == 0)
		return;
	for (k = 0; k < PAGE_LINES; k++, line++)
	{
		if (is_lost[line] && (survival != SURVIVES_LATER || is_lost[line] != LOST_LATER))
			continue;
		if (survival >= SURVIVES_ALL)
			memcpy(page + k * SHADOW_LINE, stored + at + k * SHADOW_LINE, SHADOW_LINE);
		else if (random_next(random) & 0x100)
			history_pick(line, survival == SURVIVES_TORN, random, page + k * SHADOW_LINE);
	}
}

static void
find_stored_later(void)
{
	unsigned	i;

	for (i = 0; i < nlost; i++)
		is_lost[lost[i].offset / SHADOW_LINE] =
			memcmp(stored + lost[i].offset, lost[i].word, SHADOW_LINE) != 0 ? LOST_LATER : 1;
}

/*
 * Write an image.  Lines that are missing because of a call that was left out
 * do not arrive by chance.
 */
void
image_write(const char *path, Survival survival, uint64_t seed)
{
	static char buffer[256 * PAGE];
	int			fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t	random = seed * 0x9E3779B97F4A7C15u + 1;
	uint64_t	start = 0;
	size_t		n = 0;
	uint32_t	i;

	if (fd < 0 || ftruncate(fd, (off_t) pool_bytes) != 0)
		die("%s: %s", path, strerror(errno));
	(void) random_next(&random);
	find_stored_later();
	sort_pages();
	for (i = 0; i < npages; i++)
	{
		uint64_t	at = (uint64_t) pages[i] * PAGE;

		if (n > 0 && (at != start + n || n == sizeof(buffer)))
		{
			if (pwrite(fd, buffer, n, (off_t) start) != (ssize_t) n)
				die("%s: %s", path, strerror(errno));
			n = 0;
		}
		if (n == 0)
			start = at;
		survive_page(buffer + n, at, survival, &random);
		n += PAGE;
	}
	if (n > 0 && pwrite(fd, buffer, n, (off_t) start) != (ssize_t) n)
		die("%s: %s", path, strerror(errno));
	close(fd);
}
