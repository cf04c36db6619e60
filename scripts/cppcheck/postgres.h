/*
 * What cppcheck (./check build) reads in place of PostgreSQL's headers, which would take it
 * minutes: macros that it must know to parse our sources, and which calls do not return.
 */
#include <stdlib.h>

#define PG_VERSION_NUM 150000

#define foreach(cell, list) for (cell = list_head(list); cell != 0; cell = lnext(list, cell))
#define forboth(c1, l1, c2, l2) \
	for (c1 = list_head(l1), c2 = list_head(l2); c2 != 0; c1 = lnext(l1, c1), c2 = lnext(l2, c2))

#define ERROR 21
#define FATAL 22
#define PANIC 23
#define ereport(level, ...) do { if ((level) >= ERROR) abort(); } while (0)
#define elog(level, ...) ereport(level, 0)
#define pg_unreachable() abort()
