-- Parallel index scans and parallel index-only scans: the rows of a heap twin.
CREATE SCHEMA reg_parallel_index;
SET search_path = reg_parallel_index, public;
SET client_min_messages = warning;
SET jit = off;
\set SHOW_CONTEXT never
CREATE FUNCTION long_key(i int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT repeat('x', 20 + i % 300) || i $$;
CREATE TABLE h (id int, k text, n numeric, f int, d date) USING heap;
INSERT INTO h SELECT i, long_key((i::bigint * 7919 % 60000)::int), NULLIF(i % 1000, 7) / 3.0, i % 100, date '2020-01-01' + i % 3000
FROM generate_series(1, 60000) i;
CREATE TABLE t (LIKE h) USING sofort;
INSERT INTO t SELECT * FROM h;
CREATE INDEX t_id ON t USING sofort_index (id);
CREATE INDEX t_k ON t USING sofort_index (k COLLATE "C") INCLUDE (f);
CREATE INDEX t_n ON t USING sofort_index (n DESC NULLS LAST, id);
CREATE INDEX t_f ON t USING sofort_index (f, id);
CREATE INDEX t_d ON t USING sofort_index (d) WHERE f < 50;
-- dead rows and chains
DELETE FROM t WHERE id % 17 = 0;
DELETE FROM h WHERE id % 17 = 0;
UPDATE t SET d = d + 1 WHERE id % 13 = 0;
UPDATE h SET d = d + 1 WHERE id % 13 = 0;
UPDATE t SET n = -n WHERE id % 19 = 0;
UPDATE h SET n = -n WHERE id % 19 = 0;
ANALYZE t;
ANALYZE h;
-- are the answers the same, in this order if there is one? The plan, if it is not
-- parallel; which index it takes is a matter of statistics
CREATE FUNCTION same(query text, is_parallel bool DEFAULT true) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    plan text = '';
    line text;
    a text;
    b text;
    n int;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || format(query, 't') LOOP
        plan := plan || line || E'\n';
    END LOOP;
    IF is_parallel AND plan !~ 'Parallel Index (Only )?Scan' THEN
        RETURN NEXT plan;
    END IF;
    EXECUTE 'SELECT count(*), md5(string_agg(x::text, E''\n'')) FROM (' || format(query, 't') || ') x' INTO n, a;
    PERFORM set_config('max_parallel_workers_per_gather', '0', true);
    PERFORM set_config('enable_seqscan', 'on', true);
    EXECUTE 'SELECT md5(string_agg(x::text, E''\n'')) FROM (' || format(query, 'h') || ') x' INTO b;
    PERFORM set_config('max_parallel_workers_per_gather', '3', true);
    PERFORM set_config('enable_seqscan', 'off', true);
    RETURN NEXT n || CASE WHEN a = b THEN ' rows, the same' ELSE ' rows, DIFFERENT' END;
END $$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_index_scan_size = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 3;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
\pset tuples_only on
\pset format unaligned
SELECT same('SELECT count(*), sum(n), sum(f), sum(id) FROM %s WHERE id BETWEEN 1000 AND 50000');
SELECT same('SELECT count(*), sum(id) FROM %s WHERE id > 59990', false);
SELECT same('SELECT count(*), sum(id) FROM %s WHERE id > 70000', false);
-- entries with tuples: separators that are longer than an entry
SELECT same('SELECT count(*), sum(f), min(k COLLATE "C"), max(k COLLATE "C") FROM %s WHERE k COLLATE "C" > repeat(''x'', 100)');
SELECT same('SELECT count(*), sum(id), sum(n) FROM %s WHERE n < 200 AND n > -300');
SELECT same('SELECT count(*), sum(id) FROM %s WHERE n IS NULL', false);
-- arrays
SELECT same('SELECT count(*), sum(id) FROM %s WHERE f = ANY (''{0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64,66,68,70,72,74,76,78,1000,4}'')');
SELECT same('SELECT count(*), sum(id) FROM %s WHERE f = ANY (''{3,50,7}'') AND id = ANY (ARRAY(SELECT generate_series(1, 20000, 3)))', false);
SELECT same('SELECT count(*), sum(id) FROM %s WHERE f = ANY (''{}'') AND id > 5000', false);
-- more combinations of two arrays than the index has entries
CREATE TABLE arrays (f int, id int) USING sofort;
INSERT INTO arrays SELECT f, id FROM t;
CREATE INDEX arrays_f_id ON arrays USING sofort_index (f, id);
ANALYZE arrays;
SELECT array_agg(DISTINCT i % 100) AS f, array_agg(i) AS id FROM generate_series(1, 60000, 7) i WHERE i % 100 < 50 \gset
SELECT count(*), sum(id), min(f), max(f) FROM arrays WHERE f = ANY (:'f') AND id = ANY (:'id');
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_seqscan = on;
SELECT count(*), sum(id), min(f), max(f) FROM arrays WHERE f = ANY (:'f') AND id = ANY (:'id');
SET enable_indexscan = on; SET enable_indexonlyscan = on; SET enable_seqscan = off;
DROP TABLE arrays;
-- a predicate
SELECT same('SELECT count(*), sum(id), min(d), max(d) FROM %s WHERE f < 50 AND d > ''2021-01-01''');
-- in order, in both directions
SELECT same('SELECT id, n, k FROM %s WHERE id BETWEEN 300 AND 40000 AND f %% 3 = 1 ORDER BY id');
SELECT same('SELECT id, n, k FROM %s WHERE id BETWEEN 300 AND 40000 AND f %% 3 = 1 ORDER BY id DESC');
SELECT same('SELECT f, id FROM %s WHERE f = ANY (''{5,9,11,40}'') ORDER BY f, id', false);
SELECT same('SELECT n, id FROM %s WHERE id %% 5 = 1 ORDER BY n DESC NULLS LAST, id');
SELECT same('SELECT n, id FROM %s WHERE id %% 5 = 1 ORDER BY n NULLS FIRST, id DESC');
-- scanned again and again
SELECT same('SELECT v, (SELECT count(*) FROM %s x WHERE x.id BETWEEN v AND v + 9000 AND x.f < 30) FROM (VALUES (1), (30000), (100), (90000), (1)) s(v)', false);
SET enable_material = off;
SELECT same('SELECT a.v, b.c FROM (VALUES (1), (30000), (100)) a(v) LEFT JOIN (SELECT count(*) c FROM %s WHERE id > 5000 AND k > ''x'') b ON b.c > a.v');
SELECT same('SELECT a.v, b.c FROM (VALUES (1), (30000), (100)) a(v) LEFT JOIN (SELECT count(*) c FROM %s WHERE f = ANY (''{0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64,66,68,70,72,74,76,78,1000,4}'')) b ON b.c > a.v');
-- every worker reads its own transaction's rows
BEGIN;
UPDATE t SET n = 0 WHERE id < 30000 AND id % 2 = 0;
UPDATE h SET n = 0 WHERE id < 30000 AND id % 2 = 0;
DELETE FROM t WHERE id > 55000;
DELETE FROM h WHERE id > 55000;
SELECT same('SELECT count(*), sum(n), sum(id) FROM %s WHERE id > 20000');
SELECT same('SELECT count(*), sum(id) FROM %s WHERE n = 0', false);
ROLLBACK;
SELECT same('SELECT count(*), sum(n), sum(id) FROM %s WHERE id > 20000');
-- an error in the middle; and a query that stops early
SELECT sum(100 / (id - 30011)) FROM t WHERE id > 1;
SELECT same('SELECT id FROM %s WHERE id > 30000 ORDER BY id LIMIT 7', false);
RESET ALL;
DROP SCHEMA reg_parallel_index CASCADE;
