/*-------------------------------------------------------------------------
 *
 * load_uniform.c
 *	  Many tables with an index on each column, all looked up equally often:
 *	  no order of rebuilding is better than another.  Or some of the tables, by ranges:
 *	  neither zones nor hashes help where values lie anywhere.
 *
 * Size: rows of a table.  Mix: "TABLESxCOLUMNS" or "TABLESxCOLUMNS/FROM-TO/VALUES",
 * numbers of tables, and values of a range.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "client.h"

#define MAX_STATEMENTS	1000

static const char *statements[MAX_STATEMENTS + 1];
static int	nstatements;
static bool ranges;				/* they are by ranges */
static int	first_statement;	/* of those in the mix */
static int	last_statement;
static long width;				/* values of a range */
static long rows;

static bool
choose_mix(const char *mix, long size)
{
	int			tables;
	int			columns;
	int			from = 1;
	int			to;
	int			n;

	rows = size;
	width = 1;
	n = sscanf(mix, "%dx%d/%d-%d/%ld", &tables, &columns, &from, &to, &width);
	if (n == 2)
		to = tables;
	else if (n != 5)
		return false;
	if (tables < 1 || columns < 1 || tables > MAX_STATEMENTS / columns || from < 1 || from > to ||
		to > tables || width < 1 || width > rows)
		return false;
	first_statement = (from - 1) * columns;
	last_statement = to * columns - 1;
	if (nstatements > 0)
		return nstatements == tables * columns && ranges == (n == 5);
	for (int t = 1; t <= tables; t++)
	{
		for (int c = 1; c <= columns; c++)
		{
			char	   *sql = malloc(80);

			if (sql == NULL)
				fail("out of memory");
			snprintf(sql, 80, n == 2 ? "SELECT c%d FROM t%d WHERE c%d = $1" :
					 "SELECT c%d FROM t%d WHERE c%d BETWEEN $1 AND $2", c % columns + 1, t, c);
			statements[nstatements++] = sql;
		}
	}
	ranges = n == 5;
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
	int			which = (int) rnd(first_statement, last_statement);
	long		low = (long) rnd(1, rows - width + 1);
	int			n = 0;
	Outcome		outcome = ranges ? run(which, &n, "dd", low, low + width - 1) :
		run(which, &n, "d", low);

	if (outcome == SUCCESS && n != width)
		fail("%d rows, not %ld", n, width);
	return outcome;
}

const Load	load_uniform = {"uniform", choose_mix, get_statements, transaction};
