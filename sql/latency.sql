-- Emulated latency: who may set it, and that every miss and every drain is delayed.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_latency;
SET search_path = reg_latency;
SHOW sofort.scm_read_latency;
SHOW sofort.scm_write_latency;
SET sofort.scm_read_latency = -1;
SET sofort.scm_write_latency = 1000001;
CREATE ROLE regress_sofort_latency;
SET ROLE regress_sofort_latency;
SET sofort.scm_read_latency = 100;
SET sofort.scm_write_latency = 100;
RESET ROLE;
DROP ROLE regress_sofort_latency;

-- Delays, drains, and whether the time passed that the delays must take, since the last mark
CREATE TEMP TABLE mark AS SELECT *, clock_timestamp() AS at FROM sofort_test.flush_counters();
CREATE FUNCTION pg_temp.mark() RETURNS void LANGUAGE sql AS $$
    UPDATE mark SET (lines_flushed, drains, bytes_copied, read_delays, write_delays, at) =
        (SELECT f.*, clock_timestamp() FROM sofort_test.flush_counters() f)
$$;
CREATE FUNCTION pg_temp.delays(OUT reads bigint, OUT writes bigint, OUT drains bigint, OUT waited boolean) LANGUAGE sql AS $$
    SELECT f.read_delays - m.read_delays, f.write_delays - m.write_delays, f.drains - m.drains,
        clock_timestamp() - m.at >= make_interval(secs =>
            ((f.read_delays - m.read_delays) * current_setting('sofort.scm_read_latency')::bigint +
             (f.write_delays - m.write_delays) * current_setting('sofort.scm_write_latency')::bigint) / 1e9)
    FROM mark m, sofort_test.flush_counters() f
$$;
CREATE TABLE t (id int PRIMARY KEY, v int, long text) USING sofort;
INSERT INTO t SELECT i, i, i || repeat('x', 100) FROM generate_series(1, 3000) i;
VACUUM ANALYZE t;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
PREPARE get AS SELECT v FROM t WHERE id = $1;
PREPARE get_long AS SELECT length(long) FROM t WHERE id = $1;
PREPARE put AS UPDATE t SET v = v + 1 WHERE id = $1;
EXECUTE get(2000);
EXECUTE put(1000);

-- off: nothing is counted
SELECT pg_temp.mark();
EXECUTE get(2000);
EXECUTE put(1000);
SELECT reads, writes, drains > 0 FROM pg_temp.delays();

-- reads: a record, and the minipage of the key; a value by reference
SET sofort.scm_read_latency = 100000;
SELECT pg_temp.mark();
EXECUTE get(2000);
SELECT reads, writes, waited FROM pg_temp.delays();
SELECT pg_temp.mark();
EXECUTE get_long(2000);
SELECT reads, writes, waited FROM pg_temp.delays();
-- the second version in a chain
SELECT pg_temp.mark();
EXECUTE get(1000);
SELECT reads > 2, writes, waited FROM pg_temp.delays();
-- a scan: each block once
SET enable_seqscan = on;
SET enable_indexscan = off;
SELECT pg_temp.mark();
SELECT count(*) FROM t;
SELECT reads = (SELECT blocks FROM sofort.tables WHERE relation = 't'::regclass), writes, waited FROM pg_temp.delays();
RESET enable_indexscan;
SET enable_seqscan = off;
-- an index in the pool: head of the leaf, its entry; the inner node above, if that is there, too
ALTER INDEX t_pkey SET (placement = hybrid);
REINDEX TABLE t;
EXECUTE get(2000);
SELECT pg_temp.mark();
EXECUTE get(2000);
SELECT reads, writes, waited FROM pg_temp.delays();
ALTER INDEX t_pkey SET (placement = pmem);
REINDEX TABLE t;
EXECUTE get(2000);
SELECT pg_temp.mark();
EXECUTE get(2000);
SELECT reads, writes, waited FROM pg_temp.delays();
ALTER INDEX t_pkey RESET (placement);
REINDEX TABLE t;
EXECUTE get(2000);
-- index scans, one for each row: the record; an index-only scan: marks of many rows
CREATE INDEX t_v ON t USING sofort_index (v);
SET sofort.scm_read_latency = 1;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
EXPLAIN (COSTS OFF) SELECT count(t.id) FROM generate_series(1, 900) g JOIN t ON t.v = g;
SELECT pg_temp.mark();
SELECT count(t.id) FROM generate_series(1, 900) g JOIN t ON t.v = g;
SELECT reads >= 900, writes, waited FROM pg_temp.delays();
EXPLAIN (COSTS OFF) SELECT count(*) FROM generate_series(1, 900) g JOIN t ON t.v = g;
SELECT pg_temp.mark();
SELECT count(*) FROM generate_series(1, 900) g JOIN t ON t.v = g;
SELECT reads < 100, writes, waited FROM pg_temp.delays();
DROP INDEX t_v;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_memoize;
RESET sofort.scm_read_latency;

-- writes: each drain once
SET sofort.scm_write_latency = 100000;
SELECT pg_temp.mark();
EXECUTE put(1500);
EXECUTE put(1500);
SELECT reads, writes = drains, writes > 2, waited FROM pg_temp.delays();
RESET sofort.scm_write_latency;
SELECT pg_temp.mark();
EXECUTE put(1500);
SELECT reads, writes, drains > 0 FROM pg_temp.delays();
SELECT v - id FROM t WHERE id IN (1000, 1500) ORDER BY id;
DROP TABLE t;
