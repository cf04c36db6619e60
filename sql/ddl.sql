-- TRUNCATE, rewrites, access methods, tablespaces.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_ddl;
SET search_path = reg_ddl;
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
CREATE VIEW s_ams AS SELECT c.relname, a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relname ~ '^[sh]_[dm]' AND c.relnamespace = 'reg_ddl'::regnamespace;
SELECT pg_temp.make('d', 'id int PRIMARY KEY, a int UNIQUE, t text');
CREATE INDEX s_d_t ON s_d USING sofort_index (t);
CREATE INDEX s_d_b ON s_d USING btree (t, a);
SELECT pg_temp.twin('INSERT INTO @d SELECT i, -i, ''t'' || i % 100 FROM generate_series(1, 3000) i');
SELECT pg_temp.twin('UPDATE @d SET t = ''u'' WHERE id % 3 = 0');
SELECT pg_temp.twin('DELETE FROM @d WHERE id % 5 = 0');
CREATE FUNCTION pg_temp.check_d() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT pg_temp.twin('SELECT * FROM @d');
    SET LOCAL enable_seqscan = off;
    RETURN NEXT pg_temp.twin('SELECT * FROM @d WHERE id BETWEEN 100 AND 400');
    RETURN NEXT pg_temp.twin('SELECT * FROM @d WHERE a = -77');
    RETURN NEXT pg_temp.twin('SELECT * FROM @d WHERE t = ''u''');
END $$;
-- VACUUM FULL, CLUSTER
VACUUM FULL s_d;
SELECT pg_temp.check_d();
SELECT * FROM sofort.verify('s_d');
CLUSTER s_d USING s_d_b;
SELECT pg_temp.check_d();
CLUSTER s_d USING s_d_t;
SELECT pg_temp.check_d();
SELECT * FROM sofort.verify('s_d');
SELECT pg_temp.twin('UPDATE @d SET a = a - 10000 WHERE id % 7 = 0');
CLUSTER s_d;
SELECT pg_temp.check_d();
-- rewrite by ALTER TABLE, inside a transaction that rolls back, and for good
BEGIN;
ALTER TABLE s_d ALTER a TYPE bigint;
UPDATE s_d SET a = 0 WHERE id = 1;
ROLLBACK;
SELECT pg_temp.check_d();
SELECT pg_temp.twin('ALTER TABLE @d ALTER a TYPE bigint');
SELECT pg_temp.check_d();
SELECT * FROM sofort.verify('s_d');
-- SET ACCESS METHOD, both ways
ALTER TABLE s_d SET ACCESS METHOD heap;
SELECT * FROM s_ams ORDER BY 1;
SELECT pg_temp.check_d();
INSERT INTO s_d VALUES (1, 1, '');
ALTER TABLE s_d SET ACCESS METHOD sofort;
SELECT * FROM s_ams ORDER BY 1;
SELECT pg_temp.check_d();
INSERT INTO s_d VALUES (1, 1, '');
SELECT * FROM sofort.verify('s_d');
BEGIN;
ALTER TABLE s_d SET ACCESS METHOD heap;
INSERT INTO s_d VALUES (-1, 1, '');
ROLLBACK;
SELECT pg_temp.check_d();
SELECT * FROM s_ams WHERE relname LIKE 's\_d%' ORDER BY 1;
ALTER TABLE s_d SET ACCESS METHOD sofort;
SELECT pg_temp.check_d();
-- values that heap keeps out of line, and a column that needs a TOAST table since it was added
CREATE TABLE s_wide (id int, fixed char(10)) USING sofort WITH (toast.autovacuum_enabled = off);
SELECT reltoastrelid <> 0 AS has_toast_table FROM pg_class WHERE relname = 's_wide';
ALTER TABLE s_wide ADD t text;
ALTER TABLE s_wide ALTER t SET STORAGE EXTERNAL;
INSERT INTO s_wide SELECT i, i, repeat(md5(i::text), 1000) FROM generate_series(1, 5) i;
SELECT pg_relation_size(reltoastrelid) AS toast_bytes FROM pg_class WHERE relname = 's_wide';
ALTER TABLE s_wide SET ACCESS METHOD heap;
SELECT count(*), bool_and(t = repeat(md5(id::text), 1000)) AS same FROM s_wide;
ALTER TABLE s_wide SET ACCESS METHOD sofort;
SELECT count(*), bool_and(t = repeat(md5(id::text), 1000)) AS same FROM s_wide;
SELECT pg_relation_size(reltoastrelid) AS toast_bytes FROM pg_class WHERE relname = 's_wide';
VACUUM FULL s_wide;
SELECT count(*), bool_and(t = repeat(md5(id::text), 1000)) AS same FROM s_wide;
DROP TABLE s_wide;
-- TRUNCATE
SELECT pg_temp.twin('TRUNCATE @d');
SELECT pg_temp.check_d();
SELECT pg_temp.twin('INSERT INTO @d SELECT i, i, ''new'' FROM generate_series(1, 300) i');
SELECT pg_temp.check_d();
BEGIN;
TRUNCATE s_d;
INSERT INTO s_d VALUES (1, 1, 'x');
SELECT count(*) FROM s_d;
ROLLBACK;
SELECT pg_temp.check_d();
BEGIN;
CREATE TABLE s_dnew (i int PRIMARY KEY) USING sofort;
INSERT INTO s_dnew SELECT generate_series(1, 500);
TRUNCATE s_dnew;
INSERT INTO s_dnew SELECT generate_series(1, 5);
TRUNCATE s_dnew;
INSERT INTO s_dnew VALUES (3);
COMMIT;
SELECT * FROM s_dnew;
CREATE TABLE s_did (i int GENERATED ALWAYS AS IDENTITY, t text) USING sofort;
INSERT INTO s_did (t) VALUES ('a'), ('b');
TRUNCATE s_did RESTART IDENTITY;
INSERT INTO s_did (t) VALUES ('c');
SELECT * FROM s_did;
-- tablespaces
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE s_space LOCATION '';
ALTER TABLE s_d SET TABLESPACE s_space;
SELECT pg_temp.check_d();
ALTER INDEX s_d_pkey SET TABLESPACE s_space;
ALTER INDEX s_d_b SET TABLESPACE s_space;
SELECT pg_temp.check_d();
INSERT INTO s_d VALUES (1, 1, 'dup');
SELECT * FROM sofort.verify('s_d');
BEGIN;
ALTER TABLE s_d SET TABLESPACE pg_default;
UPDATE s_d SET t = 'moved';
ROLLBACK;
SELECT pg_temp.check_d();
ALTER TABLE s_d SET TABLESPACE pg_default;
ALTER INDEX s_d_pkey SET TABLESPACE pg_default;
ALTER INDEX s_d_b SET TABLESPACE pg_default;
-- the indexes are rebuilt by a command that moves the table, not by one after it has failed
BEGIN;
SELECT relfilenode AS file FROM pg_class WHERE relname = 's_d_pkey' \gset
SAVEPOINT moving;
SELECT sofort_test.arm('tablespace-copied', 'error');
ALTER TABLE s_d SET TABLESPACE s_space;
ROLLBACK TO moving;
SELECT sofort_test.disarm('tablespace-copied');
ALTER TABLE s_d SET (fillfactor = 90);
SELECT relfilenode = :file AS same FROM pg_class WHERE relname = 's_d_pkey';
SAVEPOINT moved;
ALTER TABLE s_d SET TABLESPACE s_space;
SELECT relfilenode = :file AS same FROM pg_class WHERE relname = 's_d_pkey';
ROLLBACK;
SELECT pg_temp.check_d();
DROP TABLESPACE s_space;
-- materialized views
CREATE MATERIALIZED VIEW s_m USING sofort AS SELECT id, t FROM s_d WHERE id <= 100;
CREATE UNIQUE INDEX ON s_m (id);
SELECT count(*) FROM s_m;
DELETE FROM s_d WHERE id <= 10;
DELETE FROM h_d WHERE id <= 10;
REFRESH MATERIALIZED VIEW s_m;
SELECT count(*) FROM s_m;
CREATE INDEX s_m_t ON s_m USING sofort_index (t);
DELETE FROM s_d WHERE id <= 20;
DELETE FROM h_d WHERE id <= 20;
BEGIN;
REFRESH MATERIALIZED VIEW s_m;
SELECT count(*) FROM s_m;
ROLLBACK;
SELECT count(*) FROM s_m;
REFRESH MATERIALIZED VIEW s_m WITH NO DATA;
SELECT count(*) FROM s_m;
REFRESH MATERIALIZED VIEW s_m;
SELECT count(*) FROM s_m;
-- partitions
CREATE TABLE s_dp (k int, v text) PARTITION BY LIST (k);
CREATE TABLE s_dp1 PARTITION OF s_dp FOR VALUES IN (1) USING sofort;
CREATE TABLE s_dp2 PARTITION OF s_dp FOR VALUES IN (2) USING heap;
CREATE TABLE s_dp3 PARTITION OF s_dp DEFAULT USING sofort;
CREATE INDEX ON s_dp (v);
INSERT INTO s_dp SELECT i % 4, 'v' || i FROM generate_series(1, 400) i;
SELECT tableoid::regclass, count(*) FROM s_dp GROUP BY 1 ORDER BY 1;
UPDATE s_dp SET k = k + 1;
SELECT tableoid::regclass, count(*) FROM s_dp GROUP BY 1 ORDER BY 1;
DELETE FROM s_dp WHERE k = 2;
ALTER TABLE s_dp DETACH PARTITION s_dp1;
SELECT count(*) FROM s_dp1;
SELECT tableoid::regclass, count(*) FROM s_dp GROUP BY 1 ORDER BY 1;
-- drop, schemas, ownership, event triggers seeing it
DROP TABLE s_dnew, s_did;
CREATE SCHEMA s_ds;
CREATE TABLE s_ds.a (i int PRIMARY KEY) USING sofort;
ALTER TABLE s_dp1 SET SCHEMA s_ds;
DROP SCHEMA s_ds CASCADE;
SELECT to_regclass('s_ds.a'), to_regclass('s_dp1');
CREATE TABLE s_dd (i int) USING sofort;
INSERT INTO s_dd VALUES (1);
BEGIN;
DROP TABLE s_dd;
ROLLBACK;
SELECT * FROM s_dd;
ALTER TABLE s_dd RENAME TO s_de;
SELECT * FROM s_de;
SELECT pg_relation_filepath('s_de') IS NOT NULL;
LOCK TABLE s_de IN ACCESS EXCLUSIVE MODE;
SELECT * FROM sofort.verify('s_d');
-- a drop shuts others out of the slabs in which the table has something, not of all that small tables share
DO $$ BEGIN FOR i IN 1..400 LOOP EXECUTE format('CREATE TABLE s_slab_%s (a int, b text) USING sofort', i); EXECUTE format('INSERT INTO s_slab_%s VALUES (1, %L)', i, i); END LOOP; END $$;
SELECT sofort_test.arm('pmem-shared-slab-locked', 'wait', 1000000000);
DROP TABLE s_slab_200;
SELECT CASE WHEN n BETWEEN 1 AND 8 THEN 'few' ELSE n::text END FROM sofort_test.passages('pmem-shared-slab-locked') n;
SELECT sofort_test.disarm('pmem-shared-slab-locked');
DO $$ BEGIN FOR i IN 1..400 LOOP EXECUTE format('DROP TABLE IF EXISTS s_slab_%s', i); END LOOP; END $$;
