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

enum Statement
{
	GET_SUBSCRIBER,
	GET_DESTINATION,
	GET_ACCESS,
	SET_BIT,
	SET_DATA,
	SET_LOCATION,
	FIND_SUBSCRIBER,
	FIND_FACILITIES,
	INSERT_FORWARDING,
	DELETE_FORWARDING
};

static const char *const statements[] = {
	"SELECT s_id, sub_nbr, bit_1, bit_2, bit_3, bit_4, bit_5, bit_6, bit_7, bit_8, bit_9, bit_10,"
	" hex_1, hex_2, hex_3, hex_4, hex_5, hex_6, hex_7, hex_8, hex_9, hex_10,"
	" byte2_1, byte2_2, byte2_3, byte2_4, byte2_5, byte2_6, byte2_7, byte2_8, byte2_9, byte2_10,"
	" msc_location, vlr_location FROM subscriber WHERE s_id = $1",
	"SELECT cf.numberx FROM special_facility sf, call_forwarding cf WHERE sf.s_id = $1 AND sf.sf_type = $2"
	" AND sf.is_active = 1 AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= $3"
	" AND $4 < cf.end_time",
	"SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2",
	"UPDATE subscriber SET bit_1 = $2 WHERE s_id = $1",
	"UPDATE special_facility SET data_a = $3 WHERE s_id = $1 AND sf_type = $2",
	"UPDATE subscriber SET vlr_location = $2 WHERE sub_nbr = $1",
	"SELECT s_id FROM subscriber WHERE sub_nbr = $1",
	"SELECT sf_type FROM special_facility WHERE s_id = $1",
	"INSERT INTO call_forwarding VALUES ($1, $2, $3, $4, $5)",
	"DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3",
	NULL
};

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
static uint64_t nurand_a;

static bool
choose_mix(const char *mix, long size)
{
	subscribers = size;
	nurand_a = size <= 1000000 ? 65535 : size <= 10000000 ? 1048575 : 2097151;
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
	return statements;
}

static long
any_subscriber(void)
{
	return (long) ((rnd(0, nurand_a) | rnd(1, subscribers)) % subscribers) + 1;
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
end(Outcome outcome)
{
	Outcome		ended;

	if (outcome == GONE)
		return GONE;
	ended = simple(outcome == SUCCESS ? "COMMIT" : "ROLLBACK");
	return ended == SUCCESS ? outcome : ended;
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
	return end(if_found(outcome, rows));
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
	return end(if_found(outcome, rows));
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
	return end(if_found(outcome, rows));
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
