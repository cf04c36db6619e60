-- Indexes of every access method on a sofort table.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_indexes;
SET search_path = reg_indexes;
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
SELECT pg_temp.make('i', 'id int, a int, b text, c numeric, d timestamptz, arr int[], j jsonb, p point, tv tsvector, r int4range, n int');
SELECT pg_temp.twin('INSERT INTO @i SELECT i, i % 97, ''b'' || i % 53, (i % 31) / 7.0, timestamptz ''2024-01-01'' + (i % 200) * interval ''1 hour'', ARRAY[i % 10, i % 11], jsonb_build_object(''k'', i % 20), point(i % 50, i % 40), to_tsvector(''simple'', ''w'' || i % 30), int4range(i % 60, i % 60 + 5), CASE WHEN i % 3 = 0 THEN NULL ELSE i % 17 END FROM generate_series(1, 4000) i');
CREATE FUNCTION pg_temp.paths(q text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE m text; r text;
BEGIN
    SET LOCAL enable_seqscan = off;
    FOREACH m IN ARRAY ARRAY['index', 'bitmap', 'seq'] LOOP
        PERFORM set_config('enable_indexscan', (m = 'index')::text, true), set_config('enable_indexonlyscan', (m = 'index')::text, true),
            set_config('enable_bitmapscan', (m = 'bitmap')::text, true), set_config('enable_seqscan', (m = 'seq')::text, true);
        r := pg_temp.twin(q);
        RETURN NEXT m || ': ' || r;
    END LOOP;
END $$;
CREATE FUNCTION pg_temp.plan(q text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_bitmapscan = off;
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || q LOOP
        RETURN NEXT replace(line, ' (returns $0)', '');     -- gone in 17
    END LOOP;
END $$;
-- sofort_index, every form
CREATE INDEX s_i_a ON s_i USING sofort_index (a);
CREATE INDEX s_i_ba ON s_i USING sofort_index (b, a DESC NULLS LAST) INCLUDE (c);
CREATE INDEX s_i_n ON s_i USING sofort_index (n NULLS FIRST, id DESC);
CREATE INDEX s_i_part ON s_i USING sofort_index (c) WHERE a < 20;
CREATE INDEX s_i_expr ON s_i USING sofort_index ((a + n), upper(b));
CREATE INDEX s_i_d ON s_i USING sofort_index (d DESC);
CREATE UNIQUE INDEX s_i_id ON s_i USING sofort_index (id);
CREATE INDEX s_i_pat ON s_i USING sofort_index (b text_pattern_ops);
CREATE INDEX s_i_arr ON s_i USING sofort_index (arr);
CREATE INDEX s_i_r ON s_i USING sofort_index (r);
SELECT pg_temp.plan('SELECT a FROM s_i WHERE a BETWEEN 5 AND 9 ORDER BY a');
SELECT pg_temp.plan('SELECT b, a, c FROM s_i WHERE b = ''b7'' ORDER BY a DESC NULLS LAST');
SELECT pg_temp.plan('SELECT * FROM s_i ORDER BY a DESC');
SELECT pg_temp.plan('SELECT max(a) FROM s_i');
SELECT pg_temp.plan('SELECT c FROM s_i WHERE a < 10 AND c > 2');
SELECT pg_temp.plan('SELECT * FROM s_i WHERE a = ANY (ARRAY[1, 5, NULL, 5, 90])');
SELECT pg_temp.plan('SELECT * FROM s_i WHERE n IS NULL AND id > 3990');
SELECT pg_temp.paths('SELECT a FROM @i WHERE a BETWEEN 5 AND 9');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a = 5 AND id < 2000');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a > 90 OR a < 3');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a >= 90 AND a <= 91');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a > 90 AND a > 93 AND a < 95 AND a < 99');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a = 5::bigint');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a < 2.5');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a = ANY (ARRAY[1, 5, NULL, 5, 90])');
SELECT pg_temp.paths('SELECT * FROM @i WHERE b IN (''b1'', ''b50'', ''nope'') AND a IN (1, 2, 3, 4, 5)');
SELECT pg_temp.paths('SELECT b, a, c FROM @i WHERE b = ''b7''');
SELECT pg_temp.paths('SELECT b, a, c FROM @i WHERE b > ''b4'' AND a = 3');
SELECT pg_temp.paths('SELECT * FROM @i WHERE (b, a) > (''b5'', 50)');
SELECT pg_temp.paths('SELECT * FROM @i WHERE n IS NULL');
SELECT pg_temp.paths('SELECT * FROM @i WHERE n IS NOT NULL AND n > 10');
SELECT pg_temp.paths('SELECT * FROM @i WHERE n IS NULL AND id BETWEEN 100 AND 200');
SELECT pg_temp.paths('SELECT c FROM @i WHERE a < 20 AND c > 3');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a + n = 20');
SELECT pg_temp.paths('SELECT * FROM @i WHERE a + n = 20 AND upper(b) = ''B3''');
SELECT pg_temp.paths('SELECT * FROM @i WHERE d > timestamptz ''2024-01-08''');
SELECT pg_temp.paths('SELECT * FROM @i WHERE b LIKE ''b3%''');
SELECT pg_temp.paths('SELECT * FROM @i WHERE arr = ARRAY[3, 4]');
SELECT pg_temp.paths('SELECT * FROM @i WHERE r < int4range(3, 4)');
SELECT pg_temp.paths('SELECT * FROM @i WHERE id IN (SELECT a FROM @i WHERE n = 3)');
-- order and direction; ties by id to be comparable
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT pg_temp.twin('SELECT row_number() OVER (), x.* FROM (SELECT n, id FROM @i ORDER BY n NULLS FIRST, id DESC LIMIT 50) x');
SELECT pg_temp.twin('SELECT row_number() OVER (), x.* FROM (SELECT n, id FROM @i ORDER BY n DESC NULLS LAST, id LIMIT 50) x');
SELECT pg_temp.twin('SELECT row_number() OVER (), x.* FROM (SELECT n, id FROM @i WHERE n IS NOT NULL ORDER BY n DESC NULLS LAST, id LIMIT 50) x');
SELECT pg_temp.twin('SELECT row_number() OVER (), x.* FROM (SELECT b, a FROM @i ORDER BY b, a DESC NULLS LAST LIMIT 300) x');
SELECT pg_temp.twin('SELECT row_number() OVER (), x.* FROM (SELECT b, a FROM @i ORDER BY b DESC, a LIMIT 300) x');
SELECT pg_temp.twin('SELECT min(a), max(a), min(b), max(b), min(d), max(d), min(n), max(n) FROM @i');
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM s_i WHERE id BETWEEN 10 AND 20 ORDER BY id;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH BACKWARD 3 FROM c;
FETCH ABSOLUTE 2 FROM c;
FETCH ABSOLUTE 99 FROM c;
FETCH PRIOR FROM c;
COMMIT;
-- merge join on both orders, with mark and restore
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT pg_temp.twin('SELECT count(*), sum(x.id), sum(y.id) FROM @i x JOIN @i y ON x.a = y.a WHERE x.id < 300');
SELECT pg_temp.twin('SELECT count(*) FROM @i x FULL JOIN (SELECT n FROM @i WHERE id < 50) y ON x.n = y.n');
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT pg_temp.twin('SELECT x.id, y.c FROM (VALUES (1), (5), (4000), (4001)) x(id) LEFT JOIN @i y USING (id)');
RESET enable_seqscan;
RESET enable_bitmapscan;
-- changes through all of them
SELECT pg_temp.twin('UPDATE @i SET a = a + 1, b = b || ''x'' WHERE id % 10 = 0');
SELECT pg_temp.twin('UPDATE @i SET n = NULL WHERE id % 7 = 0');
SELECT pg_temp.twin('DELETE FROM @i WHERE id % 11 = 0');
SELECT pg_temp.twin('INSERT INTO @i (id, a, b) SELECT i, i % 97, ''late'' || i FROM generate_series(5001, 5500) i');
SELECT pg_temp.paths('SELECT id, a FROM @i WHERE a BETWEEN 20 AND 30');
SELECT pg_temp.paths('SELECT id FROM @i WHERE n IS NULL');
SELECT pg_temp.paths('SELECT id FROM @i WHERE b LIKE ''b3%''');
SELECT pg_temp.twin('INSERT INTO @i (id) SELECT 1 WHERE false');
INSERT INTO s_i (id) VALUES (1);
SELECT * FROM sofort.verify('s_i');
VACUUM s_i;
SELECT pg_temp.paths('SELECT id, a FROM @i WHERE a BETWEEN 20 AND 30');
SELECT * FROM sofort.verify('s_i');
-- REINDEX, CONCURRENTLY, CREATE ... CONCURRENTLY, on a table in use
REINDEX INDEX s_i_a;
REINDEX TABLE s_i;
REINDEX INDEX CONCURRENTLY s_i_ba;
DROP INDEX CONCURRENTLY s_i_r;
CREATE INDEX CONCURRENTLY s_i_r2 ON s_i USING sofort_index (r);
CREATE UNIQUE INDEX CONCURRENTLY s_i_bad ON s_i USING sofort_index (a);
SELECT indisvalid FROM pg_index WHERE indexrelid = 's_i_bad'::regclass;
DROP INDEX s_i_bad;
CREATE UNIQUE INDEX s_i_bad ON s_i USING sofort_index (a);
SELECT pg_temp.paths('SELECT id, a FROM @i WHERE a BETWEEN 20 AND 30');
SELECT * FROM sofort.verify('s_i');
-- the stock access methods
DROP INDEX s_i_a, s_i_ba, s_i_n, s_i_part, s_i_expr, s_i_d, s_i_pat, s_i_arr, s_i_r2;
CREATE INDEX s_i_btree ON s_i USING btree (a) INCLUDE (n);
CREATE INDEX s_i_hash ON s_i USING hash (b);
CREATE INDEX s_i_gin ON s_i USING gin (arr);
CREATE INDEX s_i_ginj ON s_i USING gin (j);
CREATE INDEX s_i_gist ON s_i USING gist (p);
CREATE INDEX s_i_spgist ON s_i USING spgist (r);
CREATE INDEX s_i_tv ON s_i USING gist (tv);
CREATE INDEX s_i_brin ON s_i USING brin (id) WITH (pages_per_range = 2);
SELECT pg_temp.paths('SELECT a, n FROM @i WHERE a BETWEEN 20 AND 30');
SELECT pg_temp.paths('SELECT * FROM @i WHERE b = ''b7''');
SELECT pg_temp.paths('SELECT * FROM @i WHERE arr @> ARRAY[3]');
SELECT pg_temp.paths('SELECT * FROM @i WHERE j @> ''{"k": 3}''');
SELECT pg_temp.paths('SELECT id FROM @i WHERE p <@ box(point(0, 0), point(10, 10))');
SELECT pg_temp.paths('SELECT * FROM @i WHERE r && int4range(3, 9)');
SELECT pg_temp.paths('SELECT * FROM @i WHERE tv @@ ''w5 | w6''::tsquery');
SELECT pg_temp.paths('SELECT * FROM @i WHERE id BETWEEN 1000 AND 1500');
SELECT pg_temp.twin('UPDATE @i SET id = id + 10000 WHERE id % 13 = 0');
SELECT pg_temp.twin('UPDATE @i SET n = 1000 WHERE id % 5 = 0');
SELECT pg_temp.twin('DELETE FROM @i WHERE id % 17 = 0');
SELECT pg_temp.twin('INSERT INTO @i SELECT i, i % 97, ''b7'', 1, now(), ARRAY[3, i], ''{"k": 3}'', point(1, 1), ''w5'', int4range(4, 5), 3 FROM generate_series(20001, 20600) i');
SELECT pg_temp.paths('SELECT a, n FROM @i WHERE a BETWEEN 20 AND 30');
SELECT pg_temp.paths('SELECT id FROM @i WHERE b = ''b7''');
SELECT pg_temp.paths('SELECT id FROM @i WHERE arr @> ARRAY[3]');
SELECT pg_temp.paths('SELECT id FROM @i WHERE j @> ''{"k": 3}''');
SELECT pg_temp.paths('SELECT id FROM @i WHERE p <@ box(point(0, 0), point(10, 10))');
SELECT pg_temp.paths('SELECT id FROM @i WHERE r && int4range(3, 9)');
SELECT pg_temp.paths('SELECT id FROM @i WHERE id BETWEEN 1000 AND 1500');
SELECT pg_temp.paths('SELECT id FROM @i WHERE id > 10000');
VACUUM s_i;
SELECT brin_summarize_new_values('s_i_brin') >= 0;
SELECT pg_temp.paths('SELECT a, n FROM @i WHERE a BETWEEN 20 AND 30');
SELECT pg_temp.paths('SELECT id FROM @i WHERE arr @> ARRAY[3]');
SELECT pg_temp.paths('SELECT id FROM @i WHERE id > 10000');
SELECT pg_temp.twin('INSERT INTO @i (id, a) SELECT i, i FROM generate_series(30001, 32000) i');
SELECT pg_temp.paths('SELECT a, n FROM @i WHERE a > 31000');
SELECT pg_temp.paths('SELECT id FROM @i WHERE id > 10000');
REINDEX TABLE s_i;
SELECT pg_temp.paths('SELECT id FROM @i WHERE b = ''b7''');
-- sofort_index is for sofort tables
CREATE INDEX ON h_i USING sofort_index (a);
-- key types
SELECT pg_temp.make('k', 'i2 smallint, i8 bigint, f4 real, f8 float8, o oid, n numeric, d date, ti time, tz timetz, ts timestamp, iv interval, u uuid, b bool, c "char", nm name, t text, v varchar, bp char(8), by bytea, ine inet, mac macaddr, bi bit(5), vb varbit, e int[], lo text COLLATE "C", m money');
SELECT pg_temp.twin('INSERT INTO @k SELECT (i % 200 - 100) * 327, (i - 250)::bigint << 40, (i - 250) / 3.0, CASE i % 9 WHEN 0 THEN ''NaN'' WHEN 1 THEN ''-0'' WHEN 2 THEN 0 ELSE (i - 250) * 1e10 END, i::bigint * 8000000, (i - 250)::numeric / 7, date ''2000-01-01'' - i, time ''00:00'' + i * interval ''97 s'', timetz ''00:00+03'' + i * interval ''97 s'', timestamp ''2000-01-01'' - i * interval ''1 h'', (i - 250) * interval ''11 h'', md5(i::text)::uuid, i % 2 = 0, chr(i % 90 + 33)::"char", ''n'' || i, substr(md5(i::text), 1, i % 30), ''v'' || i, i % 77, decode(md5(i::text), ''hex''), (''10.0.'' || i % 256 || ''.0/'' || 8 + i % 20)::inet, NULL, (i % 32)::bit(5), (i % 1000)::bit(10)::varbit, ARRAY[i % 5, i], CASE WHEN i % 10 > 0 THEN chr(i % 90 + 33) || md5(i::text) END, i::numeric::money FROM generate_series(1, 500) i');
SELECT pg_temp.twin('INSERT INTO @k DEFAULT VALUES');
CREATE FUNCTION pg_temp.keys() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE col text; v text;
BEGIN
    FOR col IN SELECT attname FROM pg_attribute WHERE attrelid = 's_k'::regclass AND attnum > 0 ORDER BY attnum LOOP
        EXECUTE format('CREATE INDEX ON s_k USING sofort_index (%I)', col);
        SET LOCAL enable_seqscan = off;
        SET LOCAL enable_bitmapscan = off;
        SET LOCAL enable_sort = off;
        RETURN NEXT col || ': ' || pg_temp.twin(format('SELECT row_number() OVER (), %1$I FROM (SELECT %1$I FROM @k ORDER BY %1$I) x', col));
        RETURN NEXT col || ' desc: ' || pg_temp.twin(format('SELECT row_number() OVER (), %1$I FROM (SELECT %1$I FROM @k ORDER BY %1$I DESC) x', col));
        EXECUTE format('SELECT %1$I::text FROM h_k WHERE %1$I IS NOT NULL OFFSET 40 LIMIT 1', col) INTO v;
        IF v IS NOT NULL THEN
            RETURN NEXT col || ' =: ' || pg_temp.twin(format('SELECT * FROM @k WHERE %1$I = %2$L', col, v));
            RETURN NEXT col || ' <: ' || pg_temp.twin(format('SELECT * FROM @k WHERE %1$I < %2$L', col, v));
            RETURN NEXT col || ' >=: ' || pg_temp.twin(format('SELECT * FROM @k WHERE %1$I >= %2$L', col, v));
        END IF;
    END LOOP;
END $$;
SELECT pg_temp.keys();
SELECT * FROM sofort.verify('s_k');
-- long keys that share a long prefix
SELECT pg_temp.make('long', 't text');
SELECT pg_temp.twin('INSERT INTO @long SELECT repeat(''p'', i % 60) || lpad((i * 7 % 1000)::text, 5, ''0'') || repeat(''q'', i % 40) FROM generate_series(1, 1500) i');
CREATE INDEX s_long_t ON s_long USING sofort_index (t);
CREATE INDEX h_long_t ON h_long (t);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT pg_temp.twin('SELECT row_number() OVER (), t FROM (SELECT t FROM @long ORDER BY t) x');
SELECT pg_temp.twin('SELECT t FROM @long WHERE t > repeat(''p'', 30)');
SELECT pg_temp.twin('DELETE FROM @long WHERE t < ''pp''');
SELECT pg_temp.twin('SELECT count(*) FROM @long');
SELECT * FROM sofort.verify('s_long');
-- arrays on a column behind one with several values: rows come in the index's order, each once
CREATE TABLE s_arrays (a int, b int, c int, t text) USING sofort;
INSERT INTO s_arrays SELECT i % 10, i / 10, nullif(i % 7, 6), 'text ' || i % 7 FROM generate_series(0, 9999) i;
CREATE INDEX ON s_arrays USING sofort_index (a, b DESC, c);
CREATE TABLE s_arrays_t (LIKE s_arrays) USING sofort;
INSERT INTO s_arrays_t TABLE s_arrays;
CREATE INDEX ON s_arrays_t USING sofort_index (a, t, c DESC, b);
ANALYZE s_arrays, s_arrays_t;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
CREATE FUNCTION pg_temp.in_order(conditions text, ordering text, direction text, relation text DEFAULT 's_arrays') RETURNS text LANGUAGE plpgsql AS $$
DECLARE r boolean; n bigint; plain bigint;
BEGIN
    EXECUTE format('SELECT count(*), bool_and(ok) FROM (SELECT coalesce(%2$s %3$s lag(%2$s) OVER (), true) AS ok FROM (SELECT * FROM %4$s WHERE %1$s OFFSET 0) x) y',
        conditions, ordering, direction, relation) INTO n, r;
    SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
    EXECUTE 'SELECT count(*) FROM ' || relation || ' WHERE ' || conditions INTO plain;
    SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
    RETURN n || CASE WHEN n = plain THEN ' rows, ' ELSE ' rows, not ' || plain || ', ' END || CASE WHEN r THEN 'in order' ELSE 'OUT OF ORDER' END;
END $$;
SELECT pg_temp.in_order('a = 5 AND b < 900 AND c = ANY (''{1,2}'')', 'b', '<=');
SELECT pg_temp.in_order('a = 5 AND b < 900 AND c = ANY (''{2,NULL,1,1}''::bigint[])', 'b', '<=');
SELECT pg_temp.in_order('a > 5 AND c = ANY (''{4,0}'')', '(a, -b)', '>=');
SELECT pg_temp.in_order('a > 5 AND b = ANY (''{4,700,3}'') AND c IS NOT NULL', '(a, -b)', '>=');
SELECT pg_temp.in_order('a = ANY (''{7,3}'') AND b = ANY (''{4,700,3}'')', '(a, -b)', '>=');
SELECT pg_temp.in_order('a = ANY (ARRAY(SELECT generate_series(-20, 7, 2))) AND b = ANY (ARRAY(SELECT generate_series(0, 2000, 3))) AND c = ANY (''{1,3,NULL,5}''::bigint[])', '(a, -b, c)', '>=');
SELECT pg_temp.in_order('a = ANY (ARRAY(SELECT generate_series(0, 40))) AND t = ANY (ARRAY(SELECT ''text '' || i FROM generate_series(1, 100) i)) AND c = ANY (ARRAY(SELECT generate_series(1, 5)))', '(a, t, -c, b)', '>=', 's_arrays_t');
SELECT pg_temp.in_order('a = 3 AND t > ''text 2'' AND c = ANY (''{3,5,1}'') AND b > 10', '(t, -c, b)', '>=', 's_arrays_t');
SELECT pg_temp.in_order('a = 3 AND t = ANY (''{text 5,text 1}'') AND c < 5', '(t, -c, b)', '>=', 's_arrays_t');
-- a column of which bytes say only whether it is NULL, and a condition behind it
CREATE TABLE s_opaque (a int, r int4range, b int) USING sofort;
INSERT INTO s_opaque SELECT i % 10, CASE WHEN i % 3 > 0 THEN int4range(i % 3, 10) END, i / 10 FROM generate_series(0, 9999) i;
CREATE INDEX ON s_opaque USING sofort_index (a, r, b);
ANALYZE s_opaque;
SELECT pg_temp.in_order('a > 5 AND r IS NOT NULL AND b > 500', '(a, r, b)', '>=', 's_opaque');
SELECT pg_temp.in_order('r IS NOT NULL AND b = 500', '(a, r, b)', '>=', 's_opaque');
SELECT pg_temp.in_order('a > 5 AND r IS NULL AND b > 500', '(a, b)', '>=', 's_opaque');
SELECT string_agg(b::text, ' ') FROM (SELECT b FROM s_arrays WHERE a = 5 AND b < 900 AND c IN (1, 2) ORDER BY b DESC LIMIT 8) x;
SELECT string_agg(b::text, ' ') FROM (SELECT b FROM s_arrays WHERE a = 5 AND b > 100 AND c IN (1, 2) ORDER BY b LIMIT 8) x;
RESET enable_seqscan; RESET enable_bitmapscan; RESET enable_sort;
-- several arrays: not far more ranges than the index has entries
CREATE TABLE s_combinations (a int, b int) USING sofort;
CREATE INDEX ON s_combinations USING sofort_index (a, b);
INSERT INTO s_combinations SELECT 0, -i FROM generate_series(1, 2000) i; ANALYZE s_combinations;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET statement_timeout = '20s';
SELECT count(*) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(1, 20000))) AND b = ANY (ARRAY(SELECT generate_series(1, 20000)));
SELECT count(*), min(b) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(-10000, 10000))) AND b = ANY (ARRAY(SELECT generate_series(-10000, 10000, 3)));
RESET enable_bitmapscan; SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT count(*) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(1, 20000))) AND b = ANY (ARRAY(SELECT generate_series(1, 20000)));
SELECT count(*), min(b) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(-10000, 10000))) AND b = ANY (ARRAY(SELECT generate_series(-10000, 10000, 3)));
RESET statement_timeout; RESET enable_seqscan; RESET enable_indexscan; RESET enable_indexonlyscan;
-- several conditions on one column: one of them gives the ranges
SET enable_seqscan = off; SET enable_bitmapscan = off; SET statement_timeout = '20s';
SELECT count(*), min(b) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(-100000, 0))) AND a = ANY (ARRAY(SELECT generate_series(0, 100000)));
SELECT count(*), min(b) FROM s_combinations WHERE a = ANY (ARRAY(SELECT generate_series(-100000, 0))) AND a = 0 AND b = ANY (ARRAY(SELECT generate_series(-100000, -1000))) AND b = ANY (ARRAY(SELECT generate_series(-1500, 100000)));
SELECT count(*) FROM s_combinations WHERE a = ANY ('{0,1,2}') AND a IS NULL;
RESET enable_bitmapscan; SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT count(*), min(b) FROM s_combinations WHERE a = 0 AND a = ANY (ARRAY(SELECT generate_series(-100000, 0))) AND a = ANY (ARRAY(SELECT generate_series(0, 100000)));
RESET statement_timeout; RESET enable_seqscan; RESET enable_indexscan; RESET enable_indexonlyscan;
DROP TABLE s_combinations;
-- building an index anew looks for the trees of its earlier files, not at those of all other indexes; they go
CREATE TABLE s_others (a int) USING sofort;
DO $$ BEGIN FOR i IN 1..100 LOOP EXECUTE 'CREATE INDEX ON s_others USING sofort_index (a)'; END LOOP; END $$;
CREATE TABLE s_former (a int PRIMARY KEY, b int UNIQUE) USING sofort;
INSERT INTO s_former SELECT i, i FROM generate_series(1, 2000) i;
SELECT sofort_test.former_steps() AS before \gset
REINDEX TABLE s_former;
BEGIN; REINDEX INDEX s_former_pkey; REINDEX INDEX s_former_pkey; ROLLBACK;
BEGIN; REINDEX INDEX s_former_pkey; REINDEX INDEX s_former_pkey; COMMIT;
ALTER TABLE s_former ALTER b TYPE bigint;
VACUUM FULL s_former;
SELECT dram_used AS dram, (SELECT count(DISTINCT owner) FROM sofort_test.allocations()) AS owners FROM sofort.pool \gset
SELECT 'REINDEX TABLE s_former' FROM generate_series(1, 20) \gexec
SELECT CASE WHEN dram_used - :dram > 500000 THEN dram_used - :dram ELSE 0 END AS dram, (SELECT count(DISTINCT owner) FROM sofort_test.allocations()) - :owners AS owners FROM sofort.pool;
TRUNCATE s_former;
SELECT CASE WHEN n BETWEEN 1 AND 300 THEN 'few' ELSE n::text END AS looked_at FROM (SELECT sofort_test.former_steps() - :before AS n) q;
SELECT count(*) FROM sofort.indexes WHERE relation = 's_former'::regclass AND entries = 0;
SELECT * FROM sofort.verify('s_former');
DROP TABLE s_others, s_former;
-- the function of an index makes another index, whose function makes another, ...: as deep as the stack allows
CREATE FUNCTION s_makes(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF i BETWEEN 0 AND 29 THEN EXECUTE format('CREATE INDEX s_nested_%s_i ON reg_indexes.s_nested_%1$s USING sofort_index (reg_indexes.s_makes_next(a))', i + 1); END IF;
    IF i < 0 THEN EXECUTE format('CREATE TABLE reg_indexes.s_endless_%s USING sofort AS SELECT %s AS a; CREATE INDEX ON reg_indexes.s_endless_%1$s USING sofort_index (reg_indexes.s_makes_next(a))', -i, i - 1); END IF;
    RETURN i;
END $$;
CREATE FUNCTION s_makes_next(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN reg_indexes.s_makes(i); END';
CREATE FUNCTION s_state(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'done'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
DO $$ BEGIN FOR i IN 1..30 LOOP EXECUTE format('CREATE TABLE s_nested_%s USING sofort AS SELECT %1$s AS a', i); END LOOP; END $$;
SELECT s_makes(0);
SELECT count(*) AS ready FROM sofort.indexes WHERE relation::text LIKE 's\_nested%' AND status = 'ready' AND entries = 1;
DO $$ BEGIN FOR i IN 1..30 LOOP EXECUTE format('DROP TABLE s_nested_%s', i); END LOOP; END $$;
SET max_stack_depth = '1MB';
SELECT dram_used AS dram, (SELECT count(DISTINCT owner) FROM sofort_test.allocations()) AS owners FROM sofort.pool \gset
SELECT s_state('SELECT s_makes(-1)') FROM generate_series(1, 3);
SELECT CASE WHEN dram_used - :dram > 500000 THEN dram_used - :dram ELSE 0 END AS dram, (SELECT count(DISTINCT owner) FROM sofort_test.allocations()) - :owners AS owners FROM sofort.pool;
RESET max_stack_depth;
DROP FUNCTION s_makes, s_makes_next, s_state;

-- As with btree, a transaction block is refused before the table or its columns are looked at.
BEGIN;
CREATE INDEX CONCURRENTLY ON reg_indexes.s_none USING sofort_index ((no_column + 1));
ROLLBACK;
