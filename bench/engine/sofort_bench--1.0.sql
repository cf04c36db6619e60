/* sofort_bench--1.0.sql: benchmarks inside the server */

\echo Use "CREATE EXTENSION sofort_bench" to load this file. \quit

CREATE FUNCTION start(file text, workers integer, seconds float8, subscribers integer,
    weights integer[] DEFAULT '{35,10,35,2,14,2,2}', seed bigint DEFAULT 1)
RETURNS void AS 'MODULE_PATHNAME', 'bench_start' LANGUAGE C STRICT;
COMMENT ON FUNCTION start(text, integer, float8, integer, integer[], bigint) IS
    'runs TATP on the tables in the search path, in background workers, and counts in a file';

CREATE FUNCTION running(file text)
RETURNS integer AS 'MODULE_PATHNAME', 'bench_running' LANGUAGE C STRICT;
COMMENT ON FUNCTION running(text) IS 'workers that have not reached the end of the run';

CREATE FUNCTION bins(file text, OUT worker integer, OUT bin integer, OUT transactions bigint,
    OUT successes bigint, OUT busy_us bigint, OUT longest_us bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'bench_bins' LANGUAGE C STRICT;
COMMENT ON FUNCTION bins(text) IS 'what was counted in each 10 ms since the start of the run';

CREATE FUNCTION started_at(file text)
RETURNS timestamptz AS 'MODULE_PATHNAME', 'bench_started_at' LANGUAGE C STRICT;
COMMENT ON FUNCTION started_at(text) IS 'beginning of the first bin';

CREATE FUNCTION index_lookups(index regclass, first bigint, last bigint, n bigint, seed bigint DEFAULT 1)
RETURNS float8 AS 'MODULE_PATHNAME', 'bench_index_lookups' LANGUAGE C STRICT;
COMMENT ON FUNCTION index_lookups(regclass, bigint, bigint, bigint, bigint) IS
    'nanoseconds for one of n lookups of random keys in a range, in the index alone; every key must be there';

CREATE FUNCTION index_inserts(index regclass, first bigint, last bigint, n bigint, seed bigint DEFAULT 1)
RETURNS float8 AS 'MODULE_PATHNAME', 'bench_index_inserts' LANGUAGE C STRICT;
COMMENT ON FUNCTION index_inserts(regclass, bigint, bigint, bigint, bigint) IS
    'nanoseconds for one of n inserts of random keys into the index alone: drop it afterwards';

CREATE FUNCTION table_scan(tab regclass, attnum integer, OUT rows bigint, OUT sum bigint, OUT ns_per_row float8)
RETURNS record AS 'MODULE_PATHNAME', 'bench_table_scan' LANGUAGE C STRICT;
COMMENT ON FUNCTION table_scan(regclass, integer) IS
    'sequential scan that reads one column of type smallint, integer or bigint, without executor';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @extschema@ FROM PUBLIC;
