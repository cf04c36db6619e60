-- Temporary tables where sofort is the default are heap tables, whichever way
-- they are made.
SET client_min_messages = warning;
SET jit = off;
\set SHOW_CONTEXT never
CREATE SCHEMA reg_temporary;
SET search_path = reg_temporary;
SET default_table_access_method = sofort;
CREATE FUNCTION am(rel oid) RETURNS text LANGUAGE sql SET search_path = pg_catalog AS
    $$ SELECT amname || ' ' || relpersistence::text FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = rel $$;
CREATE TABLE perm (i int PRIMARY KEY, t text UNIQUE, g int GENERATED ALWAYS AS (i + 1) STORED);
CREATE INDEX ON perm USING sofort_index (g);
INSERT INTO perm VALUES (1, 'one');
CREATE TEMP TABLE t_create (i int PRIMARY KEY, t text UNIQUE) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE t_as AS SELECT * FROM perm;
SELECT * INTO TEMP t_into FROM perm;
CREATE TABLE pg_temp.t_schema (i int);
SET search_path = pg_temp, reg_temporary;
CREATE TABLE t_path (i int);
CREATE TABLE t_path_as AS SELECT 1 AS i;
SET search_path = reg_temporary;
CREATE TEMP TABLE t_like (LIKE perm INCLUDING ALL);
CREATE TEMP TABLE t_child (more text) INHERITS (perm);
CREATE TEMP TABLE t_part (i int, t text) PARTITION BY LIST (i);
CREATE TEMP TABLE t_part1 PARTITION OF t_part FOR VALUES IN (1);
CREATE TEMP TABLE t_part_default PARTITION OF t_part DEFAULT;
CREATE TYPE pair AS (a int, b text);
CREATE TEMP TABLE t_typed OF pair (PRIMARY KEY (a));
PREPARE make_it AS SELECT 7 AS seven;
CREATE TEMP TABLE t_execute AS EXECUTE make_it;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) CREATE TEMP TABLE t_explain AS SELECT 8 AS eight \g /dev/null
CREATE FUNCTION made(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE result bigint;
BEGIN
    FOR k IN 1 .. n LOOP
        CREATE TEMP TABLE in_function (i int PRIMARY KEY) ON COMMIT DROP;
        INSERT INTO in_function SELECT generate_series(1, k);
        CREATE TEMP TABLE in_function_as ON COMMIT DROP AS SELECT * FROM in_function;
        SELECT sum(i) INTO result FROM in_function_as;
        DROP TABLE in_function, in_function_as;
    END LOOP;
    RETURN result;
END $$;
SELECT made(3), made(4);
SELECT relname, am(oid) FROM pg_class
WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r' ORDER BY relname COLLATE "C";
SELECT relname, am(oid) FROM pg_class
WHERE relnamespace = pg_my_temp_schema() AND relkind = 'i' AND relname LIKE 't\_like%' ORDER BY relname COLLATE "C";
-- they work, also with permanent tables in one transaction
BEGIN;
INSERT INTO t_create VALUES (1, 'a'), (2, 'b');
INSERT INTO perm SELECT i + 10, t FROM t_create;
SAVEPOINT a;
UPDATE t_create SET t = t || '!' RETURNING *;
ROLLBACK TO a;
SELECT * FROM t_create ORDER BY 1;
COMMIT;
SELECT count(*) FROM t_create;
INSERT INTO t_child VALUES (30, 'thirty', DEFAULT, 'child');
UPDATE perm SET t = t || '+' WHERE i > 10 RETURNING tableoid::regclass, i, t, g;
INSERT INTO t_part VALUES (1, 'x'), (2, 'y');
UPDATE t_part SET i = 3 - i RETURNING tableoid::regclass, *;
INSERT INTO t_like VALUES (1, 'a') ON CONFLICT (i) DO UPDATE SET t = 'never';
INSERT INTO t_like VALUES (1, 'a') ON CONFLICT (i) DO UPDATE SET t = 'updated' RETURNING *;
ALTER TABLE t_as ADD COLUMN more int DEFAULT 5, ALTER i TYPE bigint;
CREATE INDEX ON t_as (i);
VACUUM FULL t_as;
CLUSTER t_as USING t_as_i_idx;
TRUNCATE t_into;
SELECT am('t_as'::regclass), am('t_into'::regclass), * FROM t_as;
-- whose default is something else notices nothing; nor does a permanent table
SET default_table_access_method = heap;
CREATE TEMP TABLE t_heap (i int);
SET default_table_access_method = sofort;
CREATE TABLE perm_as AS SELECT 1 AS i;
SELECT am('t_heap'::regclass), am('perm_as'::regclass);
-- by name it is refused
\set VERBOSITY sqlstate
CREATE TEMP TABLE bad (i int) USING sofort;
\set VERBOSITY default
CREATE TEMP TABLE bad USING sofort AS SELECT 1;
CREATE TABLE pg_temp.bad (i int) USING sofort;
ALTER TABLE t_as SET ACCESS METHOD sofort;
CREATE INDEX ON t_as USING sofort_index (i);
-- the errors are the command's own
CREATE TABLE no_such_schema.t (i int);
SET search_path = no_such_schema;
CREATE TABLE t (i int);
SET search_path = reg_temporary;

-- REFRESH MATERIALIZED VIEW CONCURRENTLY goes through temporary tables
CREATE TABLE source (k int, v text, n numeric);
INSERT INTO source SELECT i, 'v' || i % 7, i * 1.5 FROM generate_series(1, 500) i;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM source;
CREATE MATERIALIZED VIEW mv_heap USING heap AS SELECT * FROM source;
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
CREATE UNIQUE INDEX ON mv (k);
CREATE INDEX ON mv USING sofort_index (v);
CREATE UNIQUE INDEX ON mv_heap (k);
CREATE FUNCTION refresh() RETURNS TABLE (am text, stores bigint, n bigint, lost bigint, extra bigint) LANGUAGE plpgsql AS $$
BEGIN
    REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
    REFRESH MATERIALIZED VIEW CONCURRENTLY mv_heap;
    RETURN QUERY SELECT am('mv'::regclass), (SELECT count(*) FROM sofort.tables t WHERE t.relation = 'mv'::regclass),
        (SELECT count(*) FROM mv),
        (SELECT count(*) FROM (TABLE mv_heap EXCEPT ALL TABLE mv) x), (SELECT count(*) FROM (TABLE mv EXCEPT ALL TABLE mv_heap) x);
END $$;
SELECT * FROM refresh();
DELETE FROM source WHERE k % 5 = 0;
UPDATE source SET n = n + 1 WHERE k % 3 = 0;
INSERT INTO source SELECT i, 'new', NULL FROM generate_series(1000, 1100) i;
SELECT * FROM refresh();
SET enable_seqscan = off;
SELECT count(*), min(n), max(k) FROM mv WHERE v = 'v3';
SELECT * FROM mv WHERE k = 7;
RESET enable_seqscan;
INSERT INTO source VALUES (7, 'double', 0);
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
DELETE FROM source WHERE v = 'double';
BEGIN;
TRUNCATE source;
SELECT * FROM refresh();
ROLLBACK;
SELECT * FROM refresh();
SELECT v.* FROM sofort.verify('mv') v;

-- pg_repack exchanges the files of a table and of a copy for which it names no access method
CREATE SCHEMA repack;
CREATE TABLE original (i int PRIMARY KEY, t text) USING sofort;
CREATE TABLE original_heap (i int PRIMARY KEY, t text) USING heap;
INSERT INTO original VALUES (1, 'one');
INSERT INTO original_heap VALUES (1, 'one');
CREATE FUNCTION copies(default_am text) RETURNS TABLE (original name, of_original text, of_copy text, named text, other text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('default_table_access_method', default_am, true);
    FOR original, of_original IN SELECT relname, am(oid) FROM pg_class WHERE oid IN ('original'::regclass, 'original_heap'::regclass) ORDER BY 1 LOOP
        EXECUTE format('CREATE TABLE repack.table_%s AS SELECT * FROM %I WITH NO DATA', original::regclass::oid, original);
        of_copy := am(format('repack.table_%s', original::regclass::oid)::regclass);
        EXECUTE format('DROP TABLE repack.table_%s', original::regclass::oid);
        EXECUTE format('CREATE TABLE repack.table_%s USING %s AS SELECT * FROM %I', original::regclass::oid, default_am, original);
        named := am(format('repack.table_%s', original::regclass::oid)::regclass);
        EXECUTE format('CREATE TABLE repack.table_0%s AS SELECT * FROM %I', original::regclass::oid, original);
        other := am(format('repack.table_0%s', original::regclass::oid)::regclass);
        EXECUTE format('DROP TABLE repack.table_%s, repack.table_0%s', original::regclass::oid, original::regclass::oid);
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM copies('sofort');
SELECT * FROM copies('heap');
CREATE TABLE repack.table_1 AS SELECT * FROM original;
SELECT am('repack.table_1'::regclass);
DROP SCHEMA repack CASCADE;

RESET default_table_access_method;
DISCARD TEMP;
