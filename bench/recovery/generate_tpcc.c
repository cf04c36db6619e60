/*-------------------------------------------------------------------------
 *
 * generate_tpcc.c
 *	  TPC-C's initial population (clause 4.3.3) as COPY text.
 *
 *	generate_tpcc TABLE WAREHOUSES [DIVISOR]
 *
 * DIVISOR makes small test data: that part of the customers, orders and items.
 * The same call always writes the same bytes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"

#define DISTRICTS	10
#define C_LAST		157			/* C of NURand for names, while loading */

static Random stream;
static int	customers = 3000;
static int	items = 100000;

static void
seed(int table, int w, int d)
{
	stream.state = ((uint64_t) table * 1000003 + w) * 1009 + d;
}

static int
rnd(int lo, int hi)
{
	return lo + (int) random_between(&stream, 0, (uint64_t) (hi - lo));
}

/* A random string of lo..hi characters */
static const char *
letters(int lo, int hi)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	static char buffer[16][512];
	static int	next = 0;
	char	   *s = buffer[next = (next + 1) % 16];
	int			n = rnd(lo, hi);

	for (int i = 0; i < n; i++)
		s[i] = set[rnd(0, (int) sizeof(set) - 2)];
	s[n] = '\0';
	return s;
}

static const char *
zip(void)
{
	static char s[12];

	snprintf(s, sizeof(s), "%04d11111", rnd(0, 9999));
	return s;
}

/* i_data, s_data: a tenth contains ORIGINAL */
static const char *
data(void)
{
	static char s[64];

	strcpy(s, letters(26, 50));
	if (rnd(1, 10) == 1)
		memcpy(s + rnd(0, (int) strlen(s) - 8), "ORIGINAL", 8);
	return s;
}

static const char *
last_name(int number)
{
	static const char *const syllables[] = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI",
	"CALLY", "ATION", "EING"};
	static char s[20];

	snprintf(s, sizeof(s), "%s%s%s", syllables[number / 100], syllables[number / 10 % 10],
			 syllables[number % 10]);
	return s;
}

static int
nurand(int a, int c, int lo, int hi)
{
	return (((rnd(0, a) | rnd(lo, hi)) + c) % (hi - lo + 1)) + lo;
}

#define WHEN "2026-01-01 00:00:00"

static void
warehouse(int w)
{
	printf("%d\t%s\t%s\t%s\t%s\t%s\t%s\t0.%04d\t300000.00\n", w, letters(6, 10), letters(10, 20),
		   letters(10, 20), letters(10, 20), letters(2, 2), zip(), rnd(0, 2000));
}

static void
district(int w, int d)
{
	printf("%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t0.%04d\t30000.00\t%d\n", w, d, letters(6, 10),
		   letters(10, 20), letters(10, 20), letters(10, 20), letters(2, 2), zip(), rnd(0, 2000),
		   customers + 1);
}

static void
customer(int w, int d)
{
	for (int c = 1; c <= customers; c++)
	{
		int			name = c <= 1000 ? c - 1 : nurand(255, C_LAST, 0, 999);

		printf("%d\t%d\t%d\t%s\tOE\t%s\t%s\t%s\t%s\t%s\t%s\t%d%09d%06d\t" WHEN
			   "\t%s\t50000.00\t0.%04d\t-10.00\t10.00\t1\t0\t%s\n", w, d, c, letters(8, 16),
			   last_name(name), letters(10, 20), letters(10, 20), letters(10, 20), letters(2, 2),
			   zip(), rnd(1, 9), rnd(0, 999999999), rnd(0, 999999), rnd(1, 10) == 1 ? "BC" : "GC",
			   rnd(0, 5000), letters(300, 500));
	}
}

static void
history(int w, int d)
{
	for (int c = 1; c <= customers; c++)
		printf("%d\t%d\t%d\t%d\t%d\t" WHEN "\t10.00\t%s\n", c, d, w, d, w, letters(12, 24));
}

/* Orders from this one on are not delivered. */
static int
first_new(void)
{
	return customers * 7 / 10 + 1;
}

static void
new_order(int w, int d)
{
	for (int o = first_new(); o <= customers; o++)
		printf("%d\t%d\t%d\n", w, d, o);
}

/* The number of lines follows from the order alone, for orders and order_line. */
static int
line_count(int w, int d, int o)
{
	Random		kept = stream;
	int			n;

	stream.state = (((uint64_t) w * 16 + d) * 100000 + o) * 7919;
	n = rnd(5, 15);
	stream = kept;
	return n;
}

static void
orders(int w, int d)
{
	int		   *permutation = malloc(customers * sizeof(int));

	if (permutation == NULL)
		exit(1);
	for (int i = 0; i < customers; i++)
		permutation[i] = i + 1;
	for (int o = 1; o <= customers; o++)
	{
		int			j = rnd(o - 1, customers - 1);
		int			c = permutation[j];

		permutation[j] = permutation[o - 1];
		printf("%d\t%d\t%d\t%d\t" WHEN "\t", w, d, o, c);
		if (o < first_new())
			printf("%d", rnd(1, 10));
		else
			printf("\\N");
		printf("\t%d\t1\n", line_count(w, d, o));
	}
	free(permutation);
}

static void
order_line(int w, int d)
{
	for (int o = 1; o <= customers; o++)
	{
		int			n = line_count(w, d, o);

		for (int l = 1; l <= n; l++)
		{
			printf("%d\t%d\t%d\t%d\t%d\t%d\t%s\t5\t", w, d, o, l, rnd(1, items), w,
				   o < first_new() ? WHEN : "\\N");
			if (o < first_new())
				printf("0.00");
			else
				printf("%d.%02d", rnd(0, 9999), rnd(1, 99));
			printf("\t%s\n", letters(24, 24));
		}
	}
}

static void
item(void)
{
	for (int i = 1; i <= items; i++)
		printf("%d\t%d\t%s\t%d.%02d\t%s\n", i, rnd(1, 10000), letters(14, 24), rnd(1, 99), rnd(0, 99),
			   data());
}

static void
stock(int w)
{
	for (int i = 1; i <= items; i++)
	{
		printf("%d\t%d\t%d", w, i, rnd(10, 100));
		for (int d = 0; d < DISTRICTS; d++)
			printf("\t%s", letters(24, 24));
		printf("\t0\t0\t0\t%s\n", data());
	}
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		void		(*per_warehouse) (int w);
		void		(*per_district) (int w, int d);
		void		(*once) (void);
	}			tables[] = {
		{"warehouse", warehouse, NULL, NULL},
		{"district", NULL, district, NULL},
		{"customer", NULL, customer, NULL},
		{"history", NULL, history, NULL},
		{"new_order", NULL, new_order, NULL},
		{"orders", NULL, orders, NULL},
		{"order_line", NULL, order_line, NULL},
		{"item", NULL, NULL, item},
		{"stock", stock, NULL, NULL},
	};
	int			warehouses = argc > 2 ? atoi(argv[2]) : 0;
	int			divisor = argc > 3 ? atoi(argv[3]) : 1;
	static char buffer[1 << 20];

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (size_t t = 0; argc > 2 && t < sizeof(tables) / sizeof(tables[0]); t++)
	{
		if (strcmp(argv[1], tables[t].name) != 0 || warehouses < 1 || divisor < 1 || divisor > 100)
			continue;
		customers /= divisor;
		items /= divisor;
		seed((int) t, 0, 0);
		if (tables[t].once)
			tables[t].once();
		for (int w = 1; w <= warehouses && !tables[t].once; w++)
		{
			seed((int) t, w, 0);
			if (tables[t].per_warehouse)
				tables[t].per_warehouse(w);
			for (int d = 1; d <= DISTRICTS && tables[t].per_district; d++)
			{
				seed((int) t, w, d);
				tables[t].per_district(w, d);
			}
		}
		return fflush(stdout) != 0 || ferror(stdout);
	}
	fprintf(stderr, "usage: generate_tpcc TABLE WAREHOUSES [DIVISOR]\n");
	return 2;
}
