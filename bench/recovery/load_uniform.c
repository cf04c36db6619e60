/*-------------------------------------------------------------------------
 *
 * load_uniform.c
 *	  Many tables with an index on each column, all looked up equally often:
 *	  no order of rebuilding is better than another.
 *
 * Size: rows of a table.  Mix: "TABLESxCOLUMNS".
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "client.h"

#define MAX_STATEMENTS	1000

static const char *statements[MAX_STATEMENTS + 1];
static int	nstatements;
static long rows;

static bool
choose_mix(const char *mix, long size)
{
	int			tables;
	int			columns;

	rows = size;
	if (sscanf(mix, "%dx%d", &tables, &columns) != 2 || tables < 1 || columns < 1 ||
		tables > MAX_STATEMENTS / columns)
		return false;
	if (nstatements > 0)
		return nstatements == tables * columns;
	for (int t = 1; t <= tables; t++)
	{
		for (int c = 1; c <= columns; c++)
		{
			char	   *sql = malloc(80);

			if (sql == NULL)
				fail("out of memory");
			snprintf(sql, 80, "SELECT c%d FROM t%d WHERE c%d = $1", c % columns + 1, t, c);
			statements[nstatements++] = sql;
		}
	}
	return true;
}

static const char *const *
get_statements(void)
{
	return statements;
}

/* Each value 1..rows stands once in each column. */
static Outcome
transaction(void)
{
	int			n = 0;
	Outcome		outcome = run((int) rnd(0, nstatements - 1), &n, "d", (long) rnd(1, rows));

	if (outcome == SUCCESS && n != 1)
		fail("%d rows, not one", n);
	return outcome;
}

const Load	load_uniform = {"uniform", choose_mix, get_statements, transaction};
