/*-------------------------------------------------------------------------
 *
 * statements.h
 *	  The SQL of TATP's transactions, for clients that prepare it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TATP_STATEMENTS_H
#define TATP_STATEMENTS_H

typedef enum TatpStatement
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
	DELETE_FORWARDING,
	TATP_STATEMENTS
} TatpStatement;

/* NULL at the end */
static const char *const tatp_statements[TATP_STATEMENTS + 1] = {
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

#endif							/* TATP_STATEMENTS_H */
