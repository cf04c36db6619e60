-- Tables with a fill factor: TIDs as on heap, updates within their block.
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA reg_fillfactor;
SET search_path = reg_fillfactor;
CREATE PROCEDURE pg_temp.check(t regclass) LANGUAGE plpgsql AS $$
DECLARE r record; BEGIN
    FOR r IN SELECT * FROM sofort.verify(t) LOOP RAISE WARNING '%', r; END LOOP;
    EXECUTE format('SELECT count(*), count(DISTINCT ctid) AS tids, count(DISTINCT id) AS ids FROM %s', t) INTO r;
    RAISE WARNING '% rows, % TIDs, % ids', r.count, r.tids, r.ids;
END $$;
-- the same TIDs as on heap
CREATE TABLE h (id int, a int, b bigint, c char(50)) USING heap WITH (fillfactor = 30, autovacuum_enabled = off);
CREATE TABLE s (LIKE h) USING sofort WITH (fillfactor = 30, autovacuum_enabled = off);
INSERT INTO h SELECT i, i, i, i FROM generate_series(1, 3000) i;
INSERT INTO s SELECT * FROM h;
SELECT count(*) FROM h JOIN s USING (id) WHERE h.ctid = s.ctid;
-- in one after the other, and by COPY
TRUNCATE h, s;
DO $$ BEGIN
    FOR i IN 1..100 LOOP
        INSERT INTO h VALUES (i, i, i, i);
        INSERT INTO s VALUES (i, i, i, i);
    END LOOP;
END $$;
SELECT count(*) FROM h JOIN s USING (id) WHERE h.ctid = s.ctid;
-- an update stays in its block while there is room
CREATE INDEX ON s USING brin (id) WITH (pages_per_range = 1);
CREATE INDEX ON s USING sofort_index (id);
CREATE INDEX ON s USING btree (a);
VACUUM s;
CREATE TABLE before AS SELECT id, ctid AS t FROM s;
UPDATE s SET c = 'one';
UPDATE s SET a = a + 1;
SELECT count(*) FROM s JOIN before b USING (id) WHERE (s.ctid::text::point)[0] = (b.t::text::point)[0];
SELECT count(*) FROM s JOIN before b USING (id) WHERE s.ctid = b.t;
SELECT brin_summarize_new_values('s_id_idx');
CALL pg_temp.check('s');
-- few rows say nothing about what is to come: larger ones stay where they are, too
CREATE TABLE f (id int, n bigint, t text, x char(400)) USING sofort WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO f SELECT i, i, 'short', 'wide' FROM generate_series(1, 100) i;
CREATE INDEX f_n ON f USING brin (n) WITH (pages_per_range = 1);
SELECT array_agg(DISTINCT encoding) FROM sofort.columns WHERE relation = 'f'::regclass AND column_name IN ('n', 't');
CREATE TABLE f_before AS SELECT id, ctid AS c FROM f;
UPDATE f SET n = n * 100000000000, t = repeat('long', 20);
SELECT count(*) FROM f JOIN f_before b USING (id) WHERE (f.ctid::text::point)[0] = (b.c::text::point)[0];
-- with many the encodings are decided
INSERT INTO f SELECT i, i, 'short' || i, 'wide' FROM generate_series(1, 3000) i;
SELECT column_name, encoding FROM sofort.columns WHERE relation = 'f'::regclass AND column_name IN ('n', 't');
SELECT count(*), sum(n), sum(length(t)) FROM f;
CALL pg_temp.check('f');
-- the planner knows how many there are, without ANALYZE
CREATE FUNCTION pg_temp.estimate(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; BEGIN
    FOR line IN EXECUTE 'EXPLAIN ' || query LOOP RETURN substring(line FROM 'rows=(\d+)'); END LOOP;
END $$;
SELECT pg_temp.estimate('SELECT * FROM f');
-- until it is used up
DO $$ BEGIN FOR i IN 1..4 LOOP UPDATE s SET a = a + 1; END LOOP; END $$;
SELECT count(*) < 100 FROM s JOIN before b USING (id) WHERE (s.ctid::text::point)[0] = (b.t::text::point)[0];
CALL pg_temp.check('s');
-- what is rolled back, and what VACUUM frees, is used again
BEGIN;
UPDATE s SET a = 0;
SAVEPOINT x;
UPDATE s SET a = 1;
INSERT INTO s SELECT i, i, i, i FROM generate_series(101, 150) i;
ROLLBACK TO x;
UPDATE s SET a = 2 WHERE id > 50;
COMMIT;
DELETE FROM s WHERE id % 2 = 0;
VACUUM s;
INSERT INTO s SELECT i, i, i, i FROM generate_series(1001, 3000) i;
UPDATE s SET id = id + 10000 WHERE id > 1500;
CALL pg_temp.check('s');
SET enable_seqscan = off;
SELECT count(*), sum(id) FROM s WHERE id > 0;
SELECT count(*), sum(id) FROM s WHERE ctid >= '(0,0)';
SELECT (SELECT count(*) FROM s WHERE ctid < '(5,3)') + (SELECT count(*) FROM s WHERE ctid >= '(5,3)') = (SELECT count(*) FROM s) AS adds_up;
SET enable_indexscan = off;
SELECT count(*), sum(id) FROM s WHERE a > -1;
RESET enable_indexscan;
RESET enable_seqscan;
-- many rows, wide and narrow ones; a column that makes a new shape
CREATE TABLE w (id int, t text) USING sofort WITH (fillfactor = 70);
INSERT INTO w SELECT i, repeat('x', i % 300) FROM generate_series(1, 5000) i;
ALTER TABLE w ADD n int;
UPDATE w SET n = id, t = t || 'y';
UPDATE w SET t = repeat('z', 100) WHERE id % 3 = 0;
CALL pg_temp.check('w');
SELECT count(*), sum(n), sum(length(t)) FROM w;
VACUUM w;
UPDATE w SET n = n + 1;
CALL pg_temp.check('w');
-- rewritten; with another fill factor, and without
CREATE INDEX w_id ON w (id);
CLUSTER w USING w_id;
CALL pg_temp.check('w');
ALTER TABLE w SET (fillfactor = 10);
VACUUM FULL w;
CALL pg_temp.check('w');
ALTER TABLE w RESET (fillfactor);
VACUUM FULL w;
CALL pg_temp.check('w');
SELECT max(ctid) FROM w;
-- the first row decides; a row as wide as a page, and one of no columns
CREATE TABLE one (id int, t text) USING sofort WITH (fillfactor = 10);
INSERT INTO one SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 5) i;
SELECT ctid, id, length(t) FROM one;
UPDATE one SET id = id + 1;
SELECT ctid, id, length(t) FROM one ORDER BY id;
CALL pg_temp.check('one');
CREATE TABLE nothing () USING sofort WITH (fillfactor = 50);
INSERT INTO nothing SELECT FROM generate_series(1, 1000);
SELECT count(*), count(DISTINCT ctid) FROM nothing;
DROP SCHEMA reg_fillfactor CASCADE;
