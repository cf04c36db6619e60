/*-------------------------------------------------------------------------
 *
 * load_tatp.c
 *	  TATP's transactions, statements and keys as specified.
 *
 * Mixes: "tatp" (the seven with their weights), "80-20" (GET_SUBSCRIBER_DATA
 * and UPDATE_LOCATION), "get".
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "../tatp/keys.h"
#include "../tatp/statements.h"

/* Per hundred, in the order of one_of() */
static const struct
{
	const char *name;
	int			weight[7];
}			mixes[] = {
	{"tatp", {35, 10, 35, 2, 14, 2, 2}},
	{"80-20", {80, 0, 0, 0, 20, 0, 0}},
	{"get", {100, 0, 0, 0, 0, 0, 0}},
};

static const int *weight;
static long subscribers;

static bool
choose_mix(const char *mix, long size)
{
	subscribers = size;
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
	{
		if (strcmp(mix, mixes[i].name) == 0)
		{
			weight = mixes[i].weight;
			return true;
		}
	}
	return false;
}

static const char *const *
get_statements(void)
{
	return tatp_statements;
}

static long
any_subscriber(void)
{
	return (long) tatp_any_subscriber(&random_stream, (uint64_t) subscribers);
}

static const char *
digits(uint64_t number)
{
	static char buffer[2][24];
	static int	next = 0;

	next ^= 1;
	snprintf(buffer[next], sizeof(buffer[next]), "%015llu", (unsigned long long) number);
	return buffer[next];
}

static Outcome
if_found(Outcome outcome, int rows)
{
	return outcome == SUCCESS && rows == 0 ? NO_SUCCESS : outcome;
}

static Outcome
update_subscriber_data(void)
{
	long		s_id = any_subscriber();
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	if (outcome == SUCCESS)
		outcome = run(SET_BIT, NULL, "dd", s_id, (long) rnd(0, 1));
	if (outcome == SUCCESS)
		outcome = run(SET_DATA, &rows, "ddd", s_id, (long) rnd(1, 4), (long) rnd(0, 255));
	return end_transaction(if_found(outcome, rows));
}

static Outcome
insert_call_forwarding(void)
{
	long		s_id = any_subscriber();
	long		start = (long) rnd(0, 2) * 8;
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	if (outcome == SUCCESS)
		outcome = run(FIND_SUBSCRIBER, NULL, "s", digits(s_id));
	if (outcome == SUCCESS)
		outcome = run(FIND_FACILITIES, NULL, "d", s_id);
	if (outcome == SUCCESS)
		outcome = run(INSERT_FORWARDING, &rows, "dddds", s_id, (long) rnd(1, 4), start,
					  start + (long) rnd(1, 8), digits(rnd(0, UINT64_C(999999999999999))));
	return end_transaction(if_found(outcome, rows));
}

static Outcome
delete_call_forwarding(void)
{
	long		s_id = any_subscriber();
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	if (outcome == SUCCESS)
		outcome = run(FIND_SUBSCRIBER, NULL, "s", digits(s_id));
	if (outcome == SUCCESS)
		outcome = run(DELETE_FORWARDING, &rows, "ddd", s_id, (long) rnd(1, 4), (long) rnd(0, 2) * 8);
	return end_transaction(if_found(outcome, rows));
}

static Outcome
one_of(int which)
{
	int			rows = 0;
	Outcome		outcome;

	switch (which)
	{
		case 0:
			outcome = run(GET_SUBSCRIBER, &rows, "d", any_subscriber());
			return if_found(outcome, rows);
		case 1:
			outcome = run(GET_DESTINATION, &rows, "dddd", any_subscriber(), (long) rnd(1, 4),
						  (long) rnd(0, 2) * 8, (long) rnd(1, 24));
			return if_found(outcome, rows);
		case 2:
			outcome = run(GET_ACCESS, &rows, "dd", any_subscriber(), (long) rnd(1, 4));
			return if_found(outcome, rows);
		case 3:
			return update_subscriber_data();
		case 4:
			outcome = run(SET_LOCATION, &rows, "sd", digits(any_subscriber()),
						  (long) rnd(1, UINT32_MAX));
			return if_found(outcome, rows);
		case 5:
			return insert_call_forwarding();
		default:
			return delete_call_forwarding();
	}
}

static Outcome
transaction(void)
{
	int			dice = (int) rnd(0, 99);
	int			which = 0;

	while (dice >= weight[which])
		dice -= weight[which++];
	return one_of(which);
}

const Load	load_tatp = {"tatp", choose_mix, get_statements, transaction};
