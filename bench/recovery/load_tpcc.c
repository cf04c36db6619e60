/*-------------------------------------------------------------------------
 *
 * load_tpcc.c
 *	  TPC-C's five transactions (clause 2), on a population of
 *	  generate_tpcc.c.
 *
 * Size: warehouses.  Mixes: "tpcc" (45 % New-Order, 43 % Payment, 4 % each of
 * the others), "50-50" (Order-Status and Stock-Level); "/N" after the name: the
 * divisor that the population was made with.
 *
 * Differences from the specification: the warehouse is drawn for each
 * transaction, because there are fewer clients than warehouses; there are no
 * keying and thinking times.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

#define DISTRICTS		10
#define C_LAST			223		/* 66 from that of the population: 2.1.6.1 */
#define C_ID			259
#define I_ID			4321
#define NEXT_NUMBER_LEN 16

enum Statement
{
	CUSTOMERS_BY_NAME,
	CUSTOMER_BY_ID,
	LAST_ORDER,
	LINES,
	NEXT_ORDER,
	STOCK_LEVEL,
	WAREHOUSE_TAX,
	TAKE_ORDER_ID,
	CUSTOMER_DISCOUNT,
	ADD_ORDER,
	ADD_NEW_ORDER,
	ITEM_PRICE,
	TAKE_STOCK,
	ADD_LINE,
	PAY_WAREHOUSE,
	PAY_DISTRICT,
	PAY_CUSTOMER,
	PAY_BAD_CUSTOMER,
	ADD_HISTORY,
	OLDEST_NEW_ORDER,
	DELETE_NEW_ORDER,
	SET_CARRIER,
	DELIVER_LINES,
	SUM_LINES,
	DELIVER_CUSTOMER
};

static const char *const statements[] = {
	"SELECT c_id, c_balance, c_first, c_middle, c_credit FROM customer"
	" WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
	"SELECT c_id, c_balance, c_first, c_middle, c_credit FROM customer"
	" WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
	"SELECT o_id, o_carrier_id, o_entry_d FROM orders"
	" WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
	"SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line"
	" WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
	"SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
	"SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2"
	" AND ol_o_id < $3 AND ol_o_id >= $4 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5",
	"SELECT w_tax FROM warehouse WHERE w_id = $1",
	"UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2"
	" RETURNING d_next_o_id - 1, d_tax",
	"SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
	"INSERT INTO orders VALUES ($1, $2, $3, $4, now(), NULL, $5, $6)",
	"INSERT INTO new_order VALUES ($1, $2, $3)",
	"SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
	"UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3::int + 10 THEN s_quantity - $3::int"
	" ELSE s_quantity - $3::int + 91 END, s_ytd = s_ytd + $3::int, s_order_cnt = s_order_cnt + 1,"
	" s_remote_cnt = s_remote_cnt + $4::int WHERE s_w_id = $1 AND s_i_id = $2 RETURNING s_dist_01, s_data",
	"INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $7::smallint * $8::numeric, $9)",
	"UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 RETURNING w_name",
	"UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_name",
	"UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,"
	" c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
	"UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,"
	" c_payment_cnt = c_payment_cnt + 1, c_data = left(concat_ws(' ', c_id, c_d_id, c_w_id, $5::int,"
	" $6::int, $4::numeric, c_data), 500) WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
	"INSERT INTO history VALUES ($1, $2, $3, $4, $5, now(), $6, $7)",
	"SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1",
	"DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
	"UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
	"UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
	"SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
	"UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1"
	" WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
	NULL
};

static long warehouses;
static long customers;
static long items;
static bool full_mix;

static bool
choose_mix(const char *mix, long size)
{
	const char *slash = strchr(mix, '/');
	size_t		len = slash != NULL ? (size_t) (slash - mix) : strlen(mix);
	long		divisor = slash != NULL ? atol(slash + 1) : 1;

	if (divisor < 1 || divisor > 100)
		return false;
	warehouses = size;
	customers = 3000 / divisor;
	items = 100000 / divisor;
	full_mix = len == 4 && memcmp(mix, "tpcc", len) == 0;
	return full_mix || (len == 5 && memcmp(mix, "50-50", len) == 0);
}

static const char *const *
get_statements(void)
{
	return statements;
}

static long
nurand(long a, long c, long lo, long hi)
{
	return (long) (((rnd(0, a) | rnd(lo, hi)) + c) % (uint64_t) (hi - lo + 1)) + lo;
}

static long
any_customer(void)
{
	return nurand(1023, C_ID, 1, customers);
}

static long
any_item(void)
{
	return nurand(8191, I_ID, 1, items);
}

static const char *
any_last_name(void)
{
	static const char *const syllables[] = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI",
	"CALLY", "ATION", "EING"};
	static char s[20];
	long		n = nurand(255, C_LAST, 0, customers < 1000 ? customers - 1 : 999);

	snprintf(s, sizeof(s), "%s%s%s", syllables[n / 100], syllables[n / 10 % 10], syllables[n % 10]);
	return s;
}

/* 60 % by name (the middle one of those that have it), 40 % by id */
static Outcome
choose_customer(long w, long d, long *c, bool *bad_credit)
{
	int			rows = 0;
	int			row;
	Outcome		outcome;

	if (rnd(1, 100) <= 60)
		outcome = run(CUSTOMERS_BY_NAME, &rows, "dds", w, d, any_last_name());
	else
		outcome = run(CUSTOMER_BY_ID, &rows, "ddd", w, d, any_customer());
	if (outcome != SUCCESS || rows == 0)
		return outcome == GONE ? GONE : NO_SUCCESS;
	row = (rows + 1) / 2 - 1;
	*c = number(row, 0);
	*bad_credit = strcmp(value(row, 4), "BC") == 0;
	return SUCCESS;
}

static Outcome
order_status(void)
{
	long		w = (long) rnd(1, warehouses);
	long		d = (long) rnd(1, DISTRICTS);
	long		c;
	bool		bad;
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	if (outcome == SUCCESS)
		outcome = choose_customer(w, d, &c, &bad);
	if (outcome == SUCCESS)
		outcome = run(LAST_ORDER, &rows, "ddd", w, d, c);
	if (outcome == SUCCESS && rows == 1)
		outcome = run(LINES, &rows, "ddd", w, d, number(0, 0));
	if (outcome == SUCCESS && rows == 0)
		outcome = NO_SUCCESS;
	return end_transaction(outcome);
}

static Outcome
stock_level(void)
{
	long		w = (long) rnd(1, warehouses);
	long		d = (long) rnd(1, DISTRICTS);
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	if (outcome == SUCCESS)
		outcome = run(NEXT_ORDER, &rows, "dd", w, d);
	if (outcome == SUCCESS)
	{
		long		next = number(0, 0);

		outcome = run(STOCK_LEVEL, &rows, "ddddd", w, d, next, next - 20, (long) rnd(10, 20));
	}
	return end_transaction(outcome);
}

/* One line of a new order; *rollback: the item does not exist. */
static Outcome
order_item(long w, long d, long o, long line, long item, long supply, bool *rollback)
{
	char		price[NEXT_NUMBER_LEN];
	char		info[32];
	long		quantity = (long) rnd(1, 10);
	int			rows = 0;
	Outcome		outcome = run(ITEM_PRICE, &rows, "d", item);

	if (outcome != SUCCESS)
		return outcome;
	if (rows == 0)
	{
		*rollback = true;
		return NO_SUCCESS;
	}
	snprintf(price, sizeof(price), "%s", value(0, 0));
	outcome = run(TAKE_STOCK, &rows, "dddd", supply, item, quantity, (long) (supply != w));
	if (outcome != SUCCESS || rows != 1)
		return outcome == SUCCESS ? NO_SUCCESS : outcome;
	snprintf(info, sizeof(info), "%s", value(0, 0));
	return run(ADD_LINE, NULL, "dddddddss", w, d, o, line, item, supply, quantity, price, info);
}

static int
compare_longs(const void *a, const void *b)
{
	long		x = *(const long *) a;
	long		y = *(const long *) b;

	return (x > y) - (x < y);
}

/* Items are taken in ascending order, so that two orders cannot deadlock. */
static Outcome
new_order(void)
{
	long		w = (long) rnd(1, warehouses);
	long		d = (long) rnd(1, DISTRICTS);
	long		c = any_customer();
	long		n = (long) rnd(5, 15);
	long		item[15];
	long		o = 0;
	bool		rollback = false;
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	for (long i = 0; i < n; i++)
		item[i] = any_item();
	qsort(item, n, sizeof(long), compare_longs);
	if (rnd(1, 100) == 1)
		item[n - 1] = items + 1;	/* "unused" */

	if (outcome == SUCCESS)
		outcome = run(WAREHOUSE_TAX, &rows, "d", w);
	if (outcome == SUCCESS)
		outcome = run(TAKE_ORDER_ID, &rows, "dd", w, d);
	if (outcome == SUCCESS)
	{
		o = number(0, 0);
		outcome = run(CUSTOMER_DISCOUNT, &rows, "ddd", w, d, c);
	}
	if (outcome == SUCCESS)
		outcome = run(ADD_ORDER, NULL, "dddddd", w, d, o, c, n, 1L);
	if (outcome == SUCCESS)
		outcome = run(ADD_NEW_ORDER, NULL, "ddd", w, d, o);
	for (long i = 0; i < n && outcome == SUCCESS; i++)
	{
		long		supply = rnd(1, 100) == 1 ? (long) rnd(1, warehouses) : w;

		outcome = order_item(w, d, o, i + 1, item[i], supply, &rollback);
	}
	return end_transaction(outcome);
}

static Outcome
payment(void)
{
	long		w = (long) rnd(1, warehouses);
	long		d = (long) rnd(1, DISTRICTS);
	long		c_w = rnd(1, 100) <= 85 ? w : (long) rnd(1, warehouses);
	long		c_d = c_w == w ? d : (long) rnd(1, DISTRICTS);
	long		c = 0;
	bool		bad = false;
	char		amount[NEXT_NUMBER_LEN];
	char		names[40] = "";
	int			rows = 0;
	Outcome		outcome = simple("BEGIN");

	snprintf(amount, sizeof(amount), "%d.%02d", (int) rnd(1, 4999), (int) rnd(0, 99));
	if (outcome == SUCCESS)
		outcome = run(PAY_WAREHOUSE, &rows, "ds", w, amount);
	if (outcome == SUCCESS)
	{
		snprintf(names, sizeof(names), "%.10s    ", value(0, 0));
		outcome = run(PAY_DISTRICT, &rows, "dds", w, d, amount);
	}
	if (outcome == SUCCESS)
	{
		strncat(names, value(0, 0), 10);
		outcome = choose_customer(c_w, c_d, &c, &bad);
	}
	if (outcome == SUCCESS && bad)
		outcome = run(PAY_BAD_CUSTOMER, NULL, "dddsdd", c_w, c_d, c, amount, d, w);
	else if (outcome == SUCCESS)
		outcome = run(PAY_CUSTOMER, NULL, "ddds", c_w, c_d, c, amount);
	if (outcome == SUCCESS)
		outcome = run(ADD_HISTORY, NULL, "dddddss", c, c_d, c_w, d, w, amount, names);
	return end_transaction(outcome);
}

/* The oldest order of one district; one that another delivers is left to it. */
static Outcome
deliver_district(long w, long d, long carrier)
{
	long		o;
	long		c;
	int			rows = 0;
	char		amount[NEXT_NUMBER_LEN];
	Outcome		outcome = run(OLDEST_NEW_ORDER, &rows, "dd", w, d);

	if (outcome != SUCCESS || rows == 0)
		return outcome;
	o = number(0, 0);
	outcome = run(DELETE_NEW_ORDER, &rows, "ddd", w, d, o);
	if (outcome != SUCCESS || rows == 0)
		return outcome;
	outcome = run(SET_CARRIER, &rows, "dddd", w, d, o, carrier);
	if (outcome != SUCCESS)
		return outcome;
	c = number(0, 0);
	outcome = run(DELIVER_LINES, NULL, "ddd", w, d, o);
	if (outcome == SUCCESS)
		outcome = run(SUM_LINES, &rows, "ddd", w, d, o);
	if (outcome != SUCCESS)
		return outcome;
	snprintf(amount, sizeof(amount), "%s", value(0, 0));
	return run(DELIVER_CUSTOMER, NULL, "ddds", w, d, c, amount);
}

static Outcome
delivery(void)
{
	long		w = (long) rnd(1, warehouses);
	long		carrier = (long) rnd(1, 10);
	Outcome		outcome = simple("BEGIN");

	for (long d = 1; d <= DISTRICTS && outcome == SUCCESS; d++)
		outcome = deliver_district(w, d, carrier);
	return end_transaction(outcome);
}

static Outcome
transaction(void)
{
	uint64_t	dice = rnd(1, 100);

	if (!full_mix)
		return dice <= 50 ? order_status() : stock_level();
	if (dice <= 45)
		return new_order();
	if (dice <= 88)
		return payment();
	if (dice <= 92)
		return order_status();
	return dice <= 96 ? delivery() : stock_level();
}

const Load	load_tpcc = {"tpcc", choose_mix, get_statements, transaction};
