/*-------------------------------------------------------------------------
 *
 * generate.c
 *	  TATP's population as COPY text.
 *
 *	generate TABLE SUBSCRIBERS [SEED]
 *
 * TABLE is subscriber, access_info, special_facility or call_forwarding. Each
 * subscriber's rows follow from (SEED, s_id) alone, so the tables fit together
 * and the same call always writes the same bytes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"

/* One stream per subscriber and purpose */
enum Stream
{
	STREAM_SUBSCRIBER = 1,
	STREAM_ACCESS,
	STREAM_FACILITY,
	STREAM_FORWARDING
};

static Random
stream(uint64_t seed, uint64_t s_id, enum Stream which)
{
	Random		r = {seed * UINT64_C(0xD1B54A32D192ED03) + s_id * 8 + which};

	r.state = random_next(&r);
	return r;
}

/* A random subset, 1 to 4 of the types 1..4; returns how many. */
static int
choose_types(Random *r, int types[4])
{
	int			n = (int) random_between(r, 1, 4);

	for (int i = 0; i < 4; i++)
		types[i] = i + 1;
	for (int i = 0; i < n; i++)
	{
		int			j = (int) random_between(r, i, 3);
		int			t = types[i];

		types[i] = types[j];
		types[j] = t;
	}
	return n;
}

static char *out;

static void
put_number(uint64_t v)
{
	char		digits[20];
	int			n = 0;

	do
	{
		digits[n++] = (char) ('0' + v % 10);
		v /= 10;
	} while (v != 0);
	while (n > 0)
		*out++ = digits[--n];
}

static void
put_field(uint64_t v)
{
	*out++ = '\t';
	put_number(v);
}

static void
put_letters(Random *r, int n)
{
	*out++ = '\t';
	while (n-- > 0)
		*out++ = (char) ('A' + random_between(r, 0, 25));
}

static void
subscriber(uint64_t seed, uint64_t s_id)
{
	Random		r = stream(seed, s_id, STREAM_SUBSCRIBER);
	uint64_t	v = s_id;

	put_number(s_id);
	*out++ = '\t';
	for (int i = 14; i >= 0; i--, v /= 10)
		out[i] = (char) ('0' + v % 10);
	out += 15;
	for (int i = 0; i < 10; i++)
		put_field(random_between(&r, 0, 1));
	for (int i = 0; i < 10; i++)
		put_field(random_between(&r, 0, 15));
	for (int i = 0; i < 10; i++)
		put_field(random_between(&r, 0, 255));
	put_field(random_between(&r, 1, UINT32_MAX));
	put_field(random_between(&r, 1, UINT32_MAX));
	*out++ = '\n';
}

static void
access_info(uint64_t seed, uint64_t s_id)
{
	Random		r = stream(seed, s_id, STREAM_ACCESS);
	int			types[4];
	int			n = choose_types(&r, types);

	for (int i = 0; i < n; i++)
	{
		put_number(s_id);
		put_field(types[i]);
		put_field(random_between(&r, 0, 255));
		put_field(random_between(&r, 0, 255));
		put_letters(&r, 3);
		put_letters(&r, 5);
		*out++ = '\n';
	}
}

static void
special_facility(uint64_t seed, uint64_t s_id)
{
	Random		r = stream(seed, s_id, STREAM_FACILITY);
	int			types[4];
	int			n = choose_types(&r, types);

	for (int i = 0; i < n; i++)
	{
		put_number(s_id);
		put_field(types[i]);
		put_field(random_between(&r, 1, 100) <= 85 ? 1 : 0);
		put_field(random_between(&r, 0, 255));
		put_field(random_between(&r, 0, 255));
		put_letters(&r, 5);
		*out++ = '\n';
	}
}

static void
call_forwarding(uint64_t seed, uint64_t s_id)
{
	Random		facility = stream(seed, s_id, STREAM_FACILITY);
	Random		r = stream(seed, s_id, STREAM_FORWARDING);
	int			types[4];
	int			n = choose_types(&facility, types);

	for (int i = 0; i < n; i++)
	{
		int			starts[3] = {0, 8, 16};
		int			rows = (int) random_between(&r, 0, 3);

		for (int k = 0; k < rows; k++)
		{
			int			j = (int) random_between(&r, k, 2);
			int			start = starts[j];

			starts[j] = starts[k];
			put_number(s_id);
			put_field(types[i]);
			put_field(start);
			put_field(start + random_between(&r, 1, 8));
			*out++ = '\t';
			for (int d = 0; d < 15; d++)
				*out++ = (char) ('0' + random_between(&r, 0, 9));
			*out++ = '\n';
		}
	}
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		void		(*write_rows) (uint64_t seed, uint64_t s_id);
	}			tables[] = {
		{"subscriber", subscriber},
		{"access_info", access_info},
		{"special_facility", special_facility},
		{"call_forwarding", call_forwarding},
	};
	static char buffer[1 << 20];
	long long	subscribers = argc > 2 ? atoll(argv[2]) : 0;
	uint64_t	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;

	for (size_t t = 0; argc > 2 && t < sizeof(tables) / sizeof(tables[0]); t++)
	{
		if (strcmp(argv[1], tables[t].name) != 0 || subscribers < 1)
			continue;
		out = buffer;
		for (long long s_id = 1; s_id <= subscribers; s_id++)
		{
			tables[t].write_rows(seed, (uint64_t) s_id);
			/* No subscriber's rows take more than 4 kB. */
			if (s_id == subscribers || out - buffer > (long) sizeof(buffer) - 4096)
			{
				if (fwrite(buffer, 1, out - buffer, stdout) != (size_t) (out - buffer))
				{
					perror("generate");
					return 1;
				}
				out = buffer;
			}
		}
		if (fflush(stdout) != 0)
		{
			perror("generate");
			return 1;
		}
		return 0;
	}
	fprintf(stderr, "usage: generate subscriber|access_info|special_facility|call_forwarding SUBSCRIBERS [SEED]\n");
	return 2;
}
