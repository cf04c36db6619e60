/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Range scan over bit-packed codes (AVX2), on memory of emulated latency.
 *
 *	scan MEGABYTES BITS LATENCY PREFETCH DISTANCE REPEATS
 *
 * BITS: width of a code, 1 to 32. LATENCY: nanoseconds added to each read of
 * 256 bytes that nobody prefetched. PREFETCH: "none": each unit of 256
 * bytes waits for its latency. "ahead": the request for a unit is made when
 * the one DISTANCE units before it is scanned, so the scan waits only for what
 * is left of the latency then; at most DISTANCE requests are under way, which is
 * also what limits the throughput.
 *
 * Prints nanoseconds per 1000 codes (the best of REPEATS scans) and the number of
 * hits, which is checked against a scan without SIMD.
 *
 *-------------------------------------------------------------------------
 */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define UNIT			256		/* bytes */
#define MAX_DISTANCE	1024

static double ticks_per_ns;

static int64_t
clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static void
calibrate(void)
{
	int64_t		start = clock_ns();
	uint64_t	ticks = __rdtsc();

	while (clock_ns() - start < 20000000)
		;
	ticks_per_ns = (double) (__rdtsc() - ticks) / (double) (clock_ns() - start);
}

/* ---- codes ---- */

static inline uint32_t
code_at(const uint8_t *data, uint64_t i, int bits)
{
	uint64_t	bit = i * bits;
	uint64_t	word;

	memcpy(&word, data + bit / 8, 8);
	return (uint32_t) (word >> (bit % 8)) & (bits == 32 ? UINT32_MAX : (UINT32_C(1) << bits) - 1);
}

/*
 * Eight codes take "bits" bytes. Up to 25 bits a code and its offset within a
 * byte fit four bytes: two shuffles of 16 bytes bring each to a lane of its own.
 */
typedef struct Pattern
{
	uint8_t		shuffle[32];
	uint32_t	shift[8];
	uint32_t	second;			/* byte at which the second half is loaded */
} Pattern;

static void
make_pattern(Pattern *p, int bits)
{
	p->second = 4 * bits / 8;
	for (int i = 0; i < 8; i++)
	{
		uint32_t	bit = i * bits - (i < 4 ? 0 : p->second * 8);

		for (int b = 0; b < 4; b++)
			p->shuffle[i * 4 + b] = (uint8_t) (bit / 8 + b);
		p->shift[i] = bit % 8;
	}
}

/* Codes in lo..hi among the n (a multiple of 8) that begin at data */
__attribute__((target("avx2"))) static uint64_t
count_narrow(const uint8_t *data, uint64_t n, int bits, const Pattern *p, uint32_t lo, uint32_t hi)
{
	__m256i		shuffle = _mm256_loadu_si256((const __m256i *) p->shuffle);
	__m256i		shift = _mm256_loadu_si256((const __m256i *) p->shift);
	__m256i		mask = _mm256_set1_epi32((1 << bits) - 1);
	__m256i		below = _mm256_set1_epi32((int) lo - 1);
	__m256i		above = _mm256_set1_epi32((int) hi + 1);
	__m256i		sum = _mm256_setzero_si256();

	for (uint64_t i = 0; i < n; i += 8, data += bits)
	{
		__m256i		v = _mm256_loadu2_m128i((const __m128i *) (data + p->second), (const __m128i *) data);

		v = _mm256_and_si256(_mm256_srlv_epi32(_mm256_shuffle_epi8(v, shuffle), shift), mask);
		v = _mm256_and_si256(_mm256_cmpgt_epi32(v, below), _mm256_cmpgt_epi32(above, v));
		sum = _mm256_sub_epi32(sum, v);
	}
	{
		uint32_t	lane[8];
		uint64_t	total = 0;

		_mm256_storeu_si256((__m256i *) lane, sum);
		for (int i = 0; i < 8; i++)
			total += lane[i];
		return total;
	}
}

/* The same from 26 bits on: four codes in lanes of 64 bits */
__attribute__((target("avx2"))) static uint64_t
count_wide(const uint8_t *data, uint64_t n, int bits, uint32_t lo, uint32_t hi)
{
	__m256i		mask = _mm256_set1_epi64x(bits == 32 ? 0xffffffffLL : (1LL << bits) - 1);
	__m256i		below = _mm256_set1_epi64x((long long) lo - 1);
	__m256i		above = _mm256_set1_epi64x((long long) hi + 1);
	__m256i		sum = _mm256_setzero_si256();

	for (uint64_t i = 0; i < n; i += 8, data += bits)
	{
		for (int half = 0; half < 8; half += 4)
		{
			uint64_t	word[4];
			__m256i		shift;
			__m256i		v;

			for (int k = 0; k < 4; k++)
				memcpy(&word[k], data + (half + k) * bits / 8, 8);
			shift = _mm256_set_epi64x((half + 3) * bits % 8, (half + 2) * bits % 8,
									  (half + 1) * bits % 8, half * bits % 8);
			v = _mm256_loadu_si256((const __m256i *) word);
			v = _mm256_and_si256(_mm256_srlv_epi64(v, shift), mask);
			v = _mm256_and_si256(_mm256_cmpgt_epi64(v, below), _mm256_cmpgt_epi64(above, v));
			sum = _mm256_sub_epi64(sum, v);
		}
	}
	{
		uint64_t	lane[4];

		_mm256_storeu_si256((__m256i *) lane, sum);
		return lane[0] + lane[1] + lane[2] + lane[3];
	}
}

/* ---- the emulated memory ---- */

static uint64_t requested[MAX_DISTANCE];	/* when unit i % distance was asked for */

static inline void
wait_until(uint64_t ticks)
{
	while ((int64_t) (__rdtsc() - ticks) < 0)
		;
}

/* A unit of 256 bytes holds whole groups of eight codes only on average: groups
 * are scanned in the unit in which they begin. */
static uint64_t
scan(const uint8_t *data, uint64_t groups, int bits, const Pattern *p, uint32_t lo, uint32_t hi,
	 uint64_t latency_ticks, bool ahead, uint64_t distance)
{
	uint64_t	hits = 0;
	uint64_t	group = 0;

	for (uint64_t i = 0; i < distance; i++)
		requested[i] = __rdtsc();
	for (uint64_t unit = 0; group < groups; unit++)
	{
		uint64_t	end = ((unit + 1) * UNIT + bits - 1) / bits;
		const uint8_t *from = data + group * bits;

		if (end > groups)
			end = groups;
		if (latency_ticks > 0 && !ahead)
			wait_until(__rdtsc() + latency_ticks);
		else if (latency_ticks > 0)
		{
			uint64_t   *slot = &requested[unit % distance];

			wait_until(*slot + latency_ticks);
			*slot = __rdtsc();
		}
		if (bits <= 25)
			hits += count_narrow(from, (end - group) * 8, bits, p, lo, hi);
		else
			hits += count_wide(from, (end - group) * 8, bits, lo, hi);
		group = end;
	}
	return hits;
}

int
main(int argc, char **argv)
{
	uint64_t	bytes;
	int			bits;
	uint64_t	distance;
	uint64_t	groups;
	uint64_t	latency_ticks;
	uint64_t	hits = 0;
	uint64_t	expected = 0;
	uint64_t	x = 1;
	uint32_t	lo;
	uint32_t	hi;
	bool		ahead;
	double		best = 0;
	uint8_t    *data;
	Pattern		pattern;

	if (argc != 7 || (bits = atoi(argv[2])) < 1 || bits > 32 || atoi(argv[1]) < 1 ||
		(distance = strtoull(argv[5], NULL, 10)) < 1 || distance > MAX_DISTANCE)
	{
		fprintf(stderr, "usage: scan MEGABYTES BITS LATENCY none|ahead DISTANCE REPEATS\n");
		return 2;
	}
	if (!__builtin_cpu_supports("avx2"))
	{
		fprintf(stderr, "scan: this processor has no AVX2\n");
		return 2;
	}
	bytes = (uint64_t) atoi(argv[1]) << 20;
	groups = bytes / bits;
	ahead = strcmp(argv[4], "ahead") == 0;
	calibrate();
	latency_ticks = (uint64_t) (atof(argv[3]) * ticks_per_ns);
	data = mmap(NULL, bytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
	{
		perror("mmap");
		return 2;
	}
	for (uint64_t i = 0; i < bytes; i += 8)
	{
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(data + i, &x, 8);
	}

	/* The middle tenth of the domain (for one bit: the value 1) */
	lo = (uint32_t) (((UINT64_C(1) << bits) * 9) / 20);
	hi = (uint32_t) (((UINT64_C(1) << bits) * 11) / 20);
	if (hi > 0 && bits < 4)
		hi = lo = 1;
	make_pattern(&pattern, bits);

	for (int r = 0; r < atoi(argv[6]) || r == 0; r++)
	{
		int64_t		start = clock_ns();
		double		ns;

		hits = scan(data, groups, bits, &pattern, lo, hi, latency_ticks, ahead, distance);
		ns = (double) (clock_ns() - start) * 1000 / (double) (groups * 8);
		if (best == 0 || ns < best)
			best = ns;
	}
	for (uint64_t i = 0; i < groups * 8 && i < 1000000; i++)
		expected += code_at(data, i, bits) >= lo && code_at(data, i, bits) <= hi;
	if (groups * 8 > 1000000)
		hits = scan(data, 125000, bits, &pattern, lo, hi, 0, false, distance);
	if (hits != expected)
	{
		fprintf(stderr, "scan: %llu hits, %llu expected\n", (unsigned long long) hits,
				(unsigned long long) expected);
		return 1;
	}
	printf("%.3f %llu\n", best, (unsigned long long) hits);
	return 0;
}
