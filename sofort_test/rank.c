/*-------------------------------------------------------------------------
 *
 * rank.c
 *	  sofort_test.rank(): the ranking of structures for a given workload;
 *	  sofort_test.workload_saves(); sofort_test.searches().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "port/atomics.h"
#include "sofort/indexam/indexam.h"
#include "sofort/recovery/rank.h"
#include "sofort/store/workload.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(sofort_test_rank);
PG_FUNCTION_INFO_V1(sofort_test_workload_saves);

PG_FUNCTION_INFO_V1(sofort_test_workload_records);
PG_FUNCTION_INFO_V1(sofort_test_searches);

static double
processor_microseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* (As those of uniqueness checks, which do not wait) */
Datum
sofort_test_searches(PG_FUNCTION_ARGS)
{
	int32		n = PG_GETARG_INT32(0);
	int32		computing = PG_GETARG_INT32(1);
	int32		sleeping = PG_GETARG_INT32(2);
	pg_atomic_uint64 searched;

	if (indexam_before_search == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("searches are not measured in this mode of recovery")));
	pg_atomic_init_u64(&searched, 0);
	for (int32 i = 0; i < n; i++)
	{
		double		begin;

		indexam_before_search(NULL, NULL);
		begin = processor_microseconds();
		while (processor_microseconds() < begin + computing)
			;
		if (sleeping > 0)
			pg_usleep(sleeping);
		indexam_after_search(&searched);
	}
	PG_RETURN_INT64((int64) pg_atomic_read_u64(&searched));
}

/* In all databases */
Datum
sofort_test_workload_records(PG_FUNCTION_ARGS)
{
	int			n;

	pfree(workload_snapshot(InvalidOid, &n));
	PG_RETURN_INT64(n);
}

Datum
sofort_test_workload_saves(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) workload_saves());
}

/* Blank-separated words of each element of a text array. */
static char ***
words_of(ArrayType *array, int *n)
{
	Datum	   *elements;
	char	 ***result;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, n);
	result = palloc0(sizeof(char **) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		char	   *rest = TextDatumGetCString(elements[i]);
		char	   *word;
		int			k = 0;

		result[i] = palloc0(sizeof(char *) * (strlen(rest) + 2));
		while ((word = strsep(&rest, " ")) != NULL)
			if (*word != '\0')
				result[i][k++] = word;
	}
	return result;
}

static double
number(const char *word)
{
	if (word == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a number is missing")));
	return DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(word)));
}

/* name rebuild [persistent|available|needed ...] */
static void
parse_structure(char **words, RankStructure *s)
{
	s->rebuild = number(words[1]);
	for (int k = 2; words[k] != NULL; k++)
	{
		if (strcmp(words[k], "persistent") == 0)
			s->persistent = true;
		else if (strcmp(words[k], "available") == 0)
			s->available = true;
		else if (strcmp(words[k], "needed") == 0)
			s->needed = true;
		else
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("unknown word \"%s\"", words[k])));
	}
}

/* past restart structure,structure... cost cost ... (a "-" names none) */
static void
parse_statement(char **words, char ***structures, int nstructures, RankStatement *q)
{
	char	   *rest;
	char	   *name;

	q->past = number(words[0]);
	q->restart = number(words[0] == NULL ? NULL : words[1]);
	rest = words[2];
	while (rest != NULL && (name = strsep(&rest, ",")) != NULL && strcmp(name, "-") != 0)
	{
		if (q->nstructures == RANK_MAX_STRUCTURES)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("too many structures")));
		q->structure[q->nstructures] = -1;
		for (int i = 0; i < nstructures; i++)
			if (strcmp(structures[i][0], name) == 0)
				q->structure[q->nstructures] = i;
		q->nstructures++;
	}
	for (int m = 0; m < 1 << q->nstructures; m++)
		q->cost[m] = number(words[3 + m]);
}

Datum
sofort_test_rank(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	RankInput	input = {0};
	char	 ***structures = words_of(PG_GETARG_ARRAYTYPE_P(0), &input.nstructures);
	char	 ***statements = words_of(PG_GETARG_ARRAYTYPE_P(1), &input.nstatements);
	RankStatement *q = palloc0(sizeof(RankStatement) * Max(input.nstatements, 1));
	int		   *order = palloc0(sizeof(int) * Max(input.nstructures, 1));
	int			limit = PG_GETARG_INT32(4);
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	input.structures = palloc0(sizeof(RankStructure) * Max(input.nstructures, 1));
	for (int i = 0; i < input.nstructures; i++)
	{
		input.structures[i].id = (uint64) i;
		parse_structure(structures[i], &input.structures[i]);
	}
	for (int i = 0; i < input.nstatements; i++)
		parse_statement(statements[i], structures, input.nstructures, &q[i]);
	input.statements = q;
	input.alpha = PG_GETARG_FLOAT8(2);
	input.benefit = PG_GETARG_BOOL(3) ? RANK_DEPENDENT : RANK_INDEPENDENT;

	n = rank_structures(&input, Min(limit, input.nstructures), order);
	for (int i = 0; i < n; i++)
	{
		const RankStructure *s = &input.structures[order[i]];
		Datum		values[4];
		bool		nulls[4] = {0};

		values[0] = Int32GetDatum(s->position);
		values[1] = CStringGetTextDatum(structures[order[i]][0]);
		values[2] = Float8GetDatum(s->benefit);
		values[3] = Float8GetDatum(s->rank);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
