/*-------------------------------------------------------------------------
 *
 * shadow.c
 *	  The last accesses to each word of the pool, the arena and shared memory.
 *
 * A word of 8 bytes has a cell with its last two writes and two reads since.  An access is
 * compared with those of other processes: if they touch the same bytes, one of them
 * writes, one is neither volatile nor atomic, and the clocks do not order them, they race.
 * Cells are found by a hash of the address; a word that takes another's cell begins anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "../../src/pmem/pm_internal.h"
#include "races.h"

#define CELLS_BITS		22
#define REPORTS_BITS	13
#define MAX_AREAS		16

/* Known of each word: so many writes, and reads since. */
#define ACCESSES		2

/* Longer copies are of whole blocks or values that nobody else can see yet. */
#define MAX_ACCESS		8192

typedef struct Access
{
	uint32		time;			/* of the process's clock */
	uint32		place;			/* return address, from the start of the library */
	uint8		number;			/* of the process */
	uint8		bytes;			/* of the word, one bit each; 0: none */
	uint8		kind;
} Access;

typedef struct Cell
{
	uint64		word;			/* address */
	RacesLock	lock;
	Access		write[ACCESSES];	/* the last one, and one before it of other bytes */
	Access		read[ACCESSES];
} Cell;

typedef struct Area
{
	char		name[32];
	char	   *from;
	char	   *to;
} Area;

static Cell *cells = NULL;
static uint64 *reported = NULL; /* hash of what is compared for each report made */
static char *library = NULL;	/* where the server has loaded us */

static Area area[MAX_AREAS];
static int	nareas = 0;
static char *lowest = (char *) UINTPTR_MAX; /* of all areas but the pool */
static char *highest = NULL;

/*
 * A line for report.pl, written at once: others write to the same file.  What cannot be
 * written must not end well.
 */
static void
write_line(const char *line)
{
	static int	file = -1;
	const char *name = getenv("SOFORT_RACES");
	ssize_t		length = strlen(line);

	if (file < 0)
		file = name != NULL ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : STDERR_FILENO;
	if (write(file, line, length) != length)
		abort();
}

static void
make_shadow(void)
{
	Dl_info		info;

	if (dladdr((void *) make_shadow, &info) == 0)
		abort();
	library = info.dli_fbase;
	cells = races_make_shared(sizeof(Cell) << CELLS_BITS);
	reported = races_make_shared(sizeof(uint64) << REPORTS_BITS);
	write_line("watching\n");
}

/* By the postmaster, when it makes shared memory: at the first time, and after a crash. */
void
races_watch(const char *name, void *from, Size size)
{
	int			i = 0;

	if (cells == NULL)
		make_shadow();
	while (i < nareas && strcmp(area[i].name, name) != 0)
		i++;
	if (i == MAX_AREAS)
		return;
	nareas = Max(nareas, i + 1);
	strlcpy(area[i].name, name, sizeof(area[i].name));
	area[i].from = from;
	area[i].to = area[i].from + size;
	lowest = (char *) UINTPTR_MAX;
	highest = NULL;
	for (i = 0; i < nareas; i++)
	{
		lowest = Min(lowest, area[i].from);
		highest = Max(highest, area[i].to);
	}
}

static bool
is_in_pool(const char *p)
{
	const PmExtent *last;

	if (PoolBase == NULL || p < PoolBase || pm_nextents == 0)
		return false;
	last = &pm_extent[pm_nextents - 1];
	return p < PoolBase + last->offset + last->size;
}

static const Area *
area_of(const char *p)
{
	int			i;

	if (p >= lowest && p < highest)
		for (i = 0; i < nareas; i++)
			if (p >= area[i].from && p < area[i].to)
				return &area[i];
	return NULL;
}

bool
races_is_watched(const volatile void *address)
{
	const char *p = (const char *) address;

	return cells != NULL && (is_in_pool(p) || area_of(p) != NULL);
}

/* ---- reports ---- */

/* Has this pair of places been reported?  It is from now on. */
static bool
note_report(const Access *before, const Access *now)
{
	uint64		kinds = (uint64) before->kind << 56 | (uint64) now->kind << 24;
	uint64		pair = ((uint64) before->place << 32 | now->place) ^ kinds;
	uint32		first = races_hash(pair, REPORTS_BITS);
	int			tries;

	for (tries = 0; tries < 64; tries++)
	{
		uint64	   *p = &reported[(first + tries) % (1 << REPORTS_BITS)];
		uint64		free = 0;

		if (__atomic_compare_exchange_n(p, &free, pair, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return false;
		if (free == pair)
			return true;
	}
	return false;
}

static void
report(const char *word, const Access *before, const Access *now)
{
	const Area *in = area_of(word);
	char		line[256];

	if (note_report(before, now))
		return;
	snprintf(line, sizeof(line), "race %d 0x%x %d %d 0x%x %d 0x%zx %s\n",
			 before->kind, before->place, races_process_id(before->number),
			 now->kind, now->place, MyProcPid,
			 (Size) (word - (in != NULL ? in->from : PoolBase)), in != NULL ? in->name : "pool");
	write_line(line);
}

/* ---- accesses ---- */

static bool
races_with(const Access *before, const Access *now)
{
	return (before->bytes & now->bytes) != 0 && before->number != races_number &&
		((before->kind | now->kind) & ANY_WRITE) != 0 &&
		((before->kind | now->kind) & (PLAIN_READ | PLAIN_WRITE)) != 0 &&
		races_clock[before->number] < before->time;
}

/* What is known of these bytes, unless it is of others, too. */
static void
forget(Cell *cell, uint8 bytes)
{
	int			i;

	for (i = 0; i < ACCESSES; i++)
	{
		if ((cell->write[i].bytes & ~bytes) == 0)
			cell->write[i].bytes = 0;
		if ((cell->read[i].bytes & ~bytes) == 0)
			cell->read[i].bytes = 0;
	}
}

/* A write takes the place of what was before: who races with that also races with the write. */
static void
store_write(Cell *cell, const Access *now)
{
	if ((cell->write[0].bytes & ~now->bytes) != 0)
		cell->write[1] = cell->write[0];
	forget(cell, now->bytes);
	cell->write[0] = *now;
}

static void
store_access(Cell *cell, const Access *now)
{
	if ((now->kind & ANY_WRITE) != 0)
		store_write(cell, now);
	else if (cell->read[0].bytes == 0 || cell->read[0].number == now->number)
		cell->read[0] = *now;
	else
		cell->read[1] = *now;
}

static void
access_word(char *word, const Access *now)
{
	Cell	   *cell = &cells[races_hash((uintptr_t) word >> 3, CELLS_BITS)];
	Cell		before = {0};
	int			i;

	races_lock(&cell->lock);
	if (cell->word == (uint64) (uintptr_t) word)
		before = *cell;
	else
	{
		cell->word = (uint64) (uintptr_t) word;
		forget(cell, 0xff);
	}
	store_access(cell, now);
	races_unlock(&cell->lock);

	for (i = 0; i < ACCESSES; i++)
	{
		if (races_with(&before.write[i], now))
			report(word, &before.write[i], now);
		if (races_with(&before.read[i], now))
			report(word, &before.read[i], now);
	}
}

void
races_access(const volatile void *address, Size size, AccessKind kind, void *caller)
{
	char	   *p = (char *) address;
	char	   *end = p + size;
	Access		now;

	if (size == 0 || size > MAX_ACCESS || !races_is_watched(p))
		return;
	races_attach();
	races_acquire_noted();
	now.time = races_clock[races_number];
	now.place = (uint32) ((char *) caller - library);
	now.number = races_number;
	now.kind = kind;
	while (p < end)
	{
		char	   *word = (char *) TYPEALIGN_DOWN(8, p);
		char	   *next = Min(word + 8, end);

		now.bytes = (uint8) (((1 << (next - p)) - 1) << (p - word));
		access_word(word, &now);
		p = next;
	}
}
