-- Sequential, TID, sample, lossy bitmap and parallel scans.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_scans;
SET search_path = reg_scans;
-- Runs a statement on a sofort table (@x becomes s_x) and on its heap twin
-- (h_x), and says what came back, or how the two differ.
CREATE FUNCTION pg_temp.half(stmt text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE r text[]; n bigint; msg text;
BEGIN
    IF stmt ~* '^\s*(SELECT|VALUES|TABLE)' THEN
        EXECUTE 'SELECT array_agg(x::text ORDER BY x::text COLLATE "C") FROM (' || stmt || ') x' INTO r;
        RETURN array_prepend(coalesce(cardinality(r), 0) || ' rows', r);
    END IF;
    EXECUTE stmt;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN ARRAY[n || ' affected'];
EXCEPTION WHEN OTHERS THEN
    msg := regexp_replace(SQLERRM, '\m[sh]_', '@', 'g');
    RETURN ARRAY['ERROR ' || SQLSTATE || ': ' || msg];
END $$;
CREATE FUNCTION pg_temp.twin(stmt text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s text[]; h text[];
BEGIN
    s := pg_temp.half(regexp_replace(stmt, '@(\w)', 's_\1', 'g'));
    h := pg_temp.half(regexp_replace(stmt, '@(\w)', 'h_\1', 'g'));
    IF s IS DISTINCT FROM h THEN
        RETURN 'DIFFERENT: sofort ' || left(s::text, 500) || ' heap ' || left(h::text, 500);
    END IF;
    RETURN s[1];
END $$;
-- Makes both tables: columns and constraints follow.
CREATE FUNCTION pg_temp.make(name text, columns text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE s_%s (%s) USING sofort', name, regexp_replace(columns, '@(\w)', 's_\1', 'g'));
    EXECUTE format('CREATE TABLE h_%s (%s) USING heap', name, regexp_replace(columns, '@(\w)', 'h_\1', 'g'));
END $$;
SELECT pg_temp.make('n', 'id int, a int, t text');
SELECT pg_temp.twin('INSERT INTO @n SELECT i, i % 100, ''t'' || i % 1000 FROM generate_series(1, 20000) i');
SELECT pg_temp.twin('DELETE FROM @n WHERE id % 9 = 0');
SELECT pg_temp.twin('UPDATE @n SET t = ''changed'' WHERE id % 11 = 0');
ANALYZE s_n, h_n;
-- TID scans
SELECT count(*) FROM s_n x, s_n y WHERE y.ctid = x.ctid AND y.id = x.id;
SELECT count(*) = 0 FROM s_n WHERE ctid IN ('(0,0)', '(4000000000,1)', '(0,999)');
CREATE FUNCTION pg_temp.refetch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE r record; f int; n bigint := 0;
BEGIN
    FOR r IN SELECT ctid AS t, id FROM s_n WHERE id % 97 = 1 LOOP
        SELECT id INTO f FROM s_n WHERE ctid = r.t;
        IF f IS DISTINCT FROM r.id THEN n := n + 1; END IF;
    END LOOP;
    RETURN n;
END $$;
SELECT pg_temp.refetch() AS wrong;
EXPLAIN (COSTS OFF) SELECT * FROM s_n WHERE ctid = '(1,1)';
EXPLAIN (COSTS OFF) SELECT * FROM s_n WHERE ctid >= '(1,1)' AND ctid < '(3,7)';
-- TID ranges add up
SELECT (SELECT count(*) FROM s_n WHERE ctid < '(5,10)') + (SELECT count(*) FROM s_n WHERE ctid >= '(5,10)') = (SELECT count(*) FROM s_n) AS adds_up;
SELECT (SELECT array_agg(id ORDER BY id) FROM s_n WHERE ctid > '(2,3)' AND ctid <= '(9,200)')
     = (SELECT array_agg(id ORDER BY id) FROM (SELECT id, ctid::text::point AS p FROM s_n) x WHERE (p[0], p[1]) > (2, 3) AND (p[0], p[1]) <= (9, 200)) AS same;
SELECT count(*) FROM s_n WHERE ctid < '(0,0)';
SELECT count(*) = (SELECT count(*) FROM s_n) FROM s_n WHERE ctid >= '(0,0)' AND ctid <= '(4294967294,65535)';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM s_n WHERE ctid < '(1,0)' LIMIT 3;
FETCH ALL FROM c;
FETCH BACKWARD ALL FROM c;
COMMIT;
-- samples
SELECT count(*) = (SELECT count(*) FROM s_n) FROM s_n TABLESAMPLE SYSTEM (100);
SELECT count(*) = (SELECT count(*) FROM s_n) FROM s_n TABLESAMPLE BERNOULLI (100);
SELECT count(*) FROM s_n TABLESAMPLE SYSTEM (0);
SELECT count(*) BETWEEN 500 AND 8000 FROM s_n TABLESAMPLE BERNOULLI (20) REPEATABLE (1);
SELECT count(DISTINCT x) FROM (SELECT (SELECT sum(id) FROM s_n TABLESAMPLE SYSTEM (30) REPEATABLE (5)) x FROM generate_series(1, 3)) y;
-- lossy bitmaps over long chains and BRIN
CREATE INDEX s_n_a ON s_n USING sofort_index (a);
CREATE INDEX h_n_a ON h_n (a);
CREATE INDEX s_n_b ON s_n USING brin (a) WITH (pages_per_range = 4);
DO $$ BEGIN
    FOR i IN 1..30 LOOP
        UPDATE s_n SET t = 'chain' || i WHERE a = 5;
        UPDATE h_n SET t = 'chain' || i WHERE a = 5;
    END LOOP;
END $$;
SET enable_seqscan = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT pg_temp.twin('SELECT * FROM @n WHERE a < 60');
SET work_mem = '64kB';
SELECT pg_temp.twin('SELECT * FROM @n WHERE a < 60');
SELECT pg_temp.twin('SELECT * FROM @n WHERE a = 5');
SELECT pg_temp.twin('SELECT * FROM @n WHERE a < 60 AND a > 2 OR a = 99');
SELECT pg_temp.twin('UPDATE @n SET t = ''bitmap'' WHERE a BETWEEN 3 AND 50');
SELECT pg_temp.twin('SELECT * FROM @n WHERE a < 60');
DROP INDEX s_n_a;
SELECT pg_temp.twin('SELECT * FROM @n WHERE a = 5');
SELECT pg_temp.twin('UPDATE @n SET a = a + 1000 WHERE a = 5');
SELECT pg_temp.twin('SELECT * FROM @n WHERE a >= 1000');
SELECT pg_temp.twin('SELECT * FROM @n WHERE a = 5');
RESET work_mem;
RESET enable_seqscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;
-- parallel
CREATE INDEX s_n_id ON s_n USING sofort_index (id);
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET max_parallel_workers_per_gather = 3;
EXPLAIN (COSTS OFF) SELECT count(*), sum(id) FROM s_n;
SELECT pg_temp.twin('SELECT count(*), sum(id), sum(hashtext(t)) FROM @n');
SELECT pg_temp.twin('SELECT a, count(*) FROM @n GROUP BY a');
SELECT pg_temp.twin('SELECT count(*), sum(x.id) FROM @n x JOIN @n y ON x.id = y.id + 1');
BEGIN;
UPDATE s_n SET t = 'leader' WHERE id BETWEEN 100 AND 200;
DELETE FROM s_n WHERE id BETWEEN 201 AND 210;
INSERT INTO s_n SELECT i, -1, 'leader' FROM generate_series(30001, 30400) i;
SAVEPOINT a;
INSERT INTO s_n SELECT i, -1, 'sub' FROM generate_series(30401, 30500) i;
SELECT count(*), count(*) FILTER (WHERE t = 'leader'), count(*) FILTER (WHERE t = 'sub') FROM s_n;
ROLLBACK TO a;
SELECT count(*), count(*) FILTER (WHERE t = 'leader'), count(*) FILTER (WHERE t = 'sub') FROM s_n;
ROLLBACK;
SELECT pg_temp.twin('SELECT count(*), sum(id), sum(hashtext(t)) FROM @n');
CREATE TABLE s_ctas USING sofort AS SELECT * FROM s_n WHERE id < 5000;
SELECT count(*), sum(id) FROM s_ctas;
SET enable_seqscan = off;
SELECT pg_temp.twin('SELECT count(*), sum(a) FROM @n WHERE id BETWEEN 500 AND 15000');
RESET enable_seqscan;
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SELECT pg_temp.twin('SELECT count(*), sum(id) FROM @n WHERE a = 7');
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SET max_parallel_workers_per_gather = 0;
-- statistics
SELECT reltuples BETWEEN 17000 AND 19000 FROM pg_class WHERE oid = 's_n'::regclass;
SELECT attname, n_distinct < 0 OR n_distinct > 90 AS many, null_frac FROM pg_stats WHERE tablename = 's_n' ORDER BY attname;
-- EXPLAIN ANALYZE, cursors with hold, functions
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM s_n WHERE id < 5 ORDER BY id;
COMMIT;
DELETE FROM s_n WHERE id < 5;
FETCH ALL FROM h;
CLOSE h;
SELECT * FROM sofort.verify('s_n');
