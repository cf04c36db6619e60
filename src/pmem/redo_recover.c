/*-------------------------------------------------------------------------
 *
 * redo_recover.c
 *	  Replays the redo log into the pool file, at a cold start, before anybody
 *	  (libpmemobj included) reads the pool.  See redo.c and README.md.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pm_internal.h"
#include "portability/instr_time.h"

#define READ_BYTES		((Size) 1 << 20)
#define RUN_BYTES		65536	/* written at once, at most */

typedef struct Replay
{
	int			fd;				/* the pool */
	RedoHeader	header;
	char	   *ring;
	Size		ring_bytes;
	const RedoChunk **chunks;
	uint64		nchunks;
	const RedoEntry **entries;	/* in the order of the log */
	uint64		nentries;
	uint64	   *given_back;		/* of each granule of the file: what entries below this one
								 * have for it is not needed */
} Replay;

/* The granule was given back and not allocated again. */
#define GIVEN_BACK_FOR_GOOD PG_UINT64_MAX

#define GIVEN_BACK_BYTES	(PM_POOL_FILE_BYTES / PM_GRANULE * sizeof(uint64))

/* A line of the pool and when it was logged: number in "entries" */
typedef struct LineVersion
{
	uint64		offset;
	uint64		number;
} LineVersion;

static void *
take_memory(Size bytes)
{
	void	   *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* ---- which log ---- */

static bool
valid_header(const RedoHeader *header, const PoolControl *control)
{
	return header->magic == REDO_MAGIC && header->crc == redo_header_crc(header) &&
		header->layout_version == SOFORT_LAYOUT_VERSION && header->nblocks > 0 &&
		memcmp(header->pool_id, control->pool_id, sizeof(header->pool_id)) == 0;
}

/* Reads the header that counts; *found = false if there is none for this pool. */
static bool
read_header(int redo, const PoolControl *control, RedoHeader *header, bool *found,
			PoolRefusal *why)
{
	*found = false;
	for (int i = 0; i < 2; i++)
	{
		RedoHeader	h;
		ssize_t		n = pread(redo, &h, sizeof(h), (off_t) i * REDO_BLOCK);

		if (n < 0)
			return pool_refuse_errno(why, "read", redo_path(), NULL);
		if (n != sizeof(h) || !valid_header(&h, control) ||
			(*found && h.sequence < header->sequence))
			continue;
		*header = h;
		*found = true;
	}
	return true;
}

/*
 * Does the pool need a log?  *needed = false also for a file that will be
 * refused for other reasons: it is not touched.
 */
static bool
pool_needs_log(int fd, const PoolControl *control, uint64 superblock_offset, uint64 *nonce,
			   bool *needed, PoolRefusal *why)
{
	PoolSuperblock super;
	ssize_t		n;

	*needed = false;
	if (superblock_offset == 0)
		return true;			/* no log was ever begun */
	n = pread(fd, &super, sizeof(super), (off_t) superblock_offset);
	if (n < 0)
		return pool_refuse_errno(why, "read", pm_pool_file, NULL);
	if (n != sizeof(super) || super.magic != SOFORT_POOL_MAGIC ||
		super.layout_version != SOFORT_LAYOUT_VERSION ||
		memcmp(super.identity.pool_id, control->pool_id, sizeof(control->pool_id)) != 0)
		return true;
	memcpy(nonce, super.redo_nonce, sizeof(super.redo_nonce));
	*needed = nonce[0] != 0;
	return true;
}

/* ---- reading ---- */

static bool
read_ring(Replay *r, int redo, PoolRefusal *why)
{
	Size		at;

	r->ring_bytes = (Size) r->header.nblocks * REDO_BLOCK;
	r->ring = take_memory(r->ring_bytes);
	r->chunks = take_memory(r->header.nblocks * sizeof(RedoChunk *));
	if (r->ring == NULL || r->chunks == NULL)
		return pool_refuse_errno(why, "read", redo_path(), NULL);
	(void) posix_fadvise(redo, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (at = 0; at < r->ring_bytes;)
	{
		ssize_t		n = pread(redo, r->ring + at, Min(READ_BYTES, r->ring_bytes - at),
							  (off_t) (2 * REDO_BLOCK + at));

		if (n <= 0)
		{
			errno = n == 0 ? EIO : errno;
			return pool_refuse_errno(why, "read", redo_path(), NULL);
		}
		at += (Size) n;
	}
	return true;
}

/* Is there a chunk of this log, written completely, not before the log's start? */
static bool
valid_chunk(const Replay *r, uint64 block)
{
	const RedoChunk *chunk = (const RedoChunk *) (r->ring + block * REDO_BLOCK);
	const RedoHeader *header = &r->header;

	return chunk->magic == REDO_CHUNK_MAGIC &&
		memcmp(chunk->nonce, header->nonce, sizeof(chunk->nonce)) == 0 &&
		chunk->position >= header->start &&
		chunk->position < header->start + header->nblocks &&
		chunk->position % header->nblocks == block &&
		chunk->nentries <= REDO_CHUNK_LINES &&
		chunk->nblocks == REDO_CHUNK_BLOCKS(chunk->nentries) &&
		block + chunk->nblocks <= header->nblocks &&
		redo_chunk_crc(chunk) == chunk->crc;
}

static int
compare_chunks(const void *a, const void *b)
{
	uint64		x = (*(RedoChunk *const *) a)->position;
	uint64		y = (*(RedoChunk *const *) b)->position;

	return x < y ? -1 : x > y;
}

static void
find_chunks(Replay *r)
{
	uint64		block = 0;

	while (block < r->header.nblocks)
	{
		const RedoChunk *chunk = (const RedoChunk *) (r->ring + block * REDO_BLOCK);

		if (!valid_chunk(r, block))
		{
			block++;
			continue;
		}
		r->chunks[r->nchunks++] = chunk;
		r->nentries += chunk->nentries;
		block += chunk->nblocks;
	}
	qsort(r->chunks, r->nchunks, sizeof(RedoChunk *), compare_chunks);
}

/* ---- applying ---- */

static int
kind_of_entry(const RedoEntry *e)
{
	return (int) (e->where & REDO_KIND_MASK);
}

static uint64
place_of(const RedoEntry *e)
{
	return e->where & ~REDO_KIND_MASK;
}

/*
 * Was the granule of this place given back later, or given back before and not allocated
 * since (a process may log a line long after it has flushed it)?  Then what entry i has for
 * it is not needed, and the file system may have no room for it any more.
 */
static bool
is_given_back(const Replay *r, uint64 i, uint64 at)
{
	return r->given_back[at / PM_GRANULE] > i;
}

/* Notes that entry i has given granules back, or allocated them. */
static void
note_space(Replay *r, uint64 i)
{
	const RedoEntry *e = r->entries[i];
	uint64		end = place_of(e) + e->word[0];

	for (uint64 g = place_of(e) / PM_GRANULE; g * PM_GRANULE < end; g++)
	{
		if (kind_of_entry(e) == REDO_PUNCH)
			r->given_back[g] = GIVEN_BACK_FOR_GOOD;
		else if (r->given_back[g] == GIVEN_BACK_FOR_GOOD)
			r->given_back[g] = i;
	}
}

/* Reads all entries, and gives back again what was given back. */
static bool
gather_entries(Replay *r, PoolRefusal *why)
{
	uint64		n = 0;

	r->entries = take_memory(Max(r->nentries, 1) * sizeof(RedoEntry *));
	r->given_back = take_memory(GIVEN_BACK_BYTES);
	if (r->entries == NULL || r->given_back == NULL)
		return pool_refuse_errno(why, "read", redo_path(), NULL);
	for (uint64 i = 0; i < r->nchunks; i++)
	{
		const RedoEntry *e = (const RedoEntry *) (r->chunks[i] + 1);

		for (uint32 k = 0; k < r->chunks[i]->nentries; k++, e++)
		{
			r->entries[n++] = e;
			if (kind_of_entry(e) == REDO_LINE)
				continue;
			note_space(r, n - 1);
			if (kind_of_entry(e) != REDO_PUNCH)
				continue;
			/* if this fails, it only costs space */
			while (fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
							 (off_t) place_of(e), (off_t) e->word[0]) != 0 && errno == EINTR)
				;
		}
	}
	return true;
}

/* Allocates what entry i has allocated, except what was given back later. */
static bool
allocate_again(const Replay *r, uint64 i, PoolRefusal *why)
{
	uint64		start = place_of(r->entries[i]);
	uint64		end = start + r->entries[i]->word[0];

	while (start < end)
	{
		bool		gone = is_given_back(r, i, start);
		uint64		at = start;

		do
			at = Min((at / PM_GRANULE + 1) * PM_GRANULE, end);
		while (at < end && is_given_back(r, i, at) == gone);
		while (!gone && fallocate(r->fd, 0, (off_t) start, (off_t) (at - start)) != 0)
		{
			if (errno != EINTR)
				return pool_refuse_errno(why, "allocate space in", pm_pool_file, NULL);
		}
		start = at;
	}
	return true;
}

static bool
apply_space(Replay *r, PoolRefusal *why)
{
	for (uint64 i = 0; i < r->nentries; i++)
	{
		if (kind_of_entry(r->entries[i]) == REDO_ALLOCATE && !allocate_again(r, i, why))
			return false;
	}
	return true;
}

static int
compare_versions(const void *a, const void *b)
{
	const LineVersion *x = a;
	const LineVersion *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

/* The last version of each line, by place; returns how many. */
static uint64
last_versions(const Replay *r, LineVersion *v)
{
	uint64		i;
	uint64		nlines = 0;
	uint64		n = 0;

	for (i = 0; i < r->nentries; i++)
	{
		uint64		at = place_of(r->entries[i]);

		if (kind_of_entry(r->entries[i]) == REDO_LINE && !is_given_back(r, i, at))
			v[nlines++] = (LineVersion) {.offset = at,.number = i};
	}
	qsort(v, nlines, sizeof(LineVersion), compare_versions);
	for (i = 0; i < nlines; i++)
	{
		if (n > 0 && v[n - 1].offset == v[i].offset)
			n--;
		v[n++] = v[i];
	}
	return n;
}

/* Lets the kernel read the pages that are changed in part, all at the same time. */
static void
read_ahead(const Replay *r, const LineVersion *v, uint64 n)
{
	uint64		last = ~UINT64CONST(0);

	for (uint64 i = 0; i < n; i++)
	{
		if (v[i].offset / 4096 == last)
			continue;
		last = v[i].offset / 4096;
		(void) posix_fadvise(r->fd, (off_t) (last * 4096), 4096, POSIX_FADV_WILLNEED);
	}
}

static bool
apply_lines(const Replay *r, PoolRefusal *why)
{
	static char run[RUN_BYTES];
	LineVersion *v = take_memory(Max(r->nentries, 1) * sizeof(LineVersion));
	uint64		n;
	uint64		i = 0;
	bool		ok = v != NULL;

	if (!ok)
		return pool_refuse_errno(why, "read", redo_path(), NULL);
	n = last_versions(r, v);
	read_ahead(r, v, n);
	while (ok && i < n)
	{
		uint64		start = v[i].offset;
		Size		len = 0;

		for (; i < n && v[i].offset == start + len && len < RUN_BYTES; i++, len += PM_LINE)
			memcpy(run + len, r->entries[v[i].number]->word, PM_LINE);
		errno = ENOSPC;
		ok = pwrite(r->fd, run, len, (off_t) start) == (ssize_t) len;
	}
	if (!ok)
		(void) pool_refuse_errno(why, "write", pm_pool_file, NULL);
	munmap(v, Max(r->nentries, 1) * sizeof(LineVersion));
	return ok;
}

/* Everything is in the pool file: it no longer needs the log. */
static bool
finish(int fd, uint64 superblock_offset, PoolRefusal *why)
{
	static const uint64 none[2] = {0, 0};

	if (!redo_sync_replayed(fd) ||
		pwrite(fd, none, sizeof(none), (off_t) (superblock_offset +
												offsetof(PoolSuperblock, redo_nonce))) != sizeof(none) ||
		!redo_sync_replayed(fd))
		return pool_refuse_errno(why, "synchronize", pm_pool_file, NULL);
	return true;
}

static bool
replay(int fd, int redo, const RedoHeader *header, PoolRefusal *why)
{
	Replay		r = {.fd = fd,.header = *header};
	instr_time	start;
	instr_time	end;
	bool		ok;

	INSTR_TIME_SET_CURRENT(start);
	ok = read_ring(&r, redo, why);
	if (ok)
		find_chunks(&r);
	ok = ok && gather_entries(&r, why) && apply_space(&r, why) && apply_lines(&r, why) &&
		finish(fd, header->superblock_offset, why);
	if (r.ring != NULL)
		munmap(r.ring, r.ring_bytes);
	if (r.chunks != NULL)
		munmap(r.chunks, header->nblocks * sizeof(RedoChunk *));
	if (r.entries != NULL)
		munmap(r.entries, Max(r.nentries, 1) * sizeof(RedoEntry *));
	if (r.given_back != NULL)
		munmap(r.given_back, GIVEN_BACK_BYTES);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, start);
	if (ok)
		ereport(LOG,
				(errmsg("replayed " UINT64_FORMAT " lines of \"%s\" in %.1f ms", r.nentries,
						redo_path(), INSTR_TIME_GET_MILLISEC(end))));
	return ok;
}

/*
 * Replays the log. fd: the pool, open for reading and writing; the pool's lock is held.
 * False with a reason if the pool is not complete and its log is missing.
 */
bool
redo_recover(int fd, const PoolControl *control, PoolRefusal *why)
{
	int			redo = -1;
	RedoHeader	header;
	uint64		nonce[2];
	bool		exists;
	bool		found = false;
	bool		needed;
	bool		ok;

	memset(&header, 0, sizeof(header));
	if (!pool_file_find(redo_path(), &exists, why) ||
		(exists && !pool_file_open_checked(redo_path(), O_RDONLY, &redo, why)))
		return false;
	ok = redo < 0 || read_header(redo, control, &header, &found, why);
	ok = ok && pool_needs_log(fd, control, control->superblock_offset != 0 ?
							  control->superblock_offset : header.superblock_offset,
							  nonce, &needed, why);
	if (ok && needed && (!found || memcmp(nonce, header.nonce, sizeof(nonce)) != 0))
		ok = pool_refuse(why, found || redo >= 0 ? ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE :
						 ERRCODE_UNDEFINED_FILE,
						 "Put back the file that was beside the pool when the server ended, or restore pool and data directory from one backup.",
						 redo < 0 ? "The file does not exist." : "The file belongs to another pool, or to another time.",
						 "sofort pool \"%s\" is not complete without its redo log \"%s\"",
						 pm_pool_file, redo_path());
	else if (ok && needed)
		ok = redo_find_doubt(why) && replay(fd, redo, &header, why);
	if (redo >= 0)
		close(redo);
	return ok;
}
