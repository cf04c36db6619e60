-- Indexes that summarize ranges of blocks: the same rows as by a sequential scan.
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_brin;
SET search_path = reg_brin;
CREATE TABLE b (id int PRIMARY KEY, v int, w int, t text, hot int) USING sofort WITH (autovacuum_enabled = off);
INSERT INTO b SELECT i, i, i % 100, 'text ' || i, 0 FROM generate_series(1, 5000) i;
CREATE INDEX b_v ON b USING brin (v) WITH (pages_per_range = 1);
CREATE INDEX b_multi ON b USING brin (v int4_minmax_multi_ops, t text_bloom_ops) WITH (pages_per_range = 2);
CREATE INDEX b_half ON b USING brin ((v / 2)) WITH (pages_per_range = 1) WHERE w < 50;
CREATE INDEX b_tree ON b USING btree (w);
ANALYZE b;
-- by a bitmap and without, for a condition
CREATE FUNCTION pg_temp.both(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seq text; idx text; plan text; line text;
    query text := 'SELECT count(*) || '','' || coalesce(sum(id), 0) || '','' || coalesce(sum(v::bigint), 0) FROM b WHERE ' || condition;
BEGIN
    SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;
    EXECUTE query INTO seq;
    SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off;
    FOR line IN EXECUTE 'EXPLAIN ' || query LOOP plan := coalesce(plan || ' ', '') || line; END LOOP;
    EXECUTE query INTO idx;
    IF plan !~ 'Bitmap Heap Scan' THEN RETURN plan; END IF;
    IF seq = idx THEN RETURN seq; END IF;
    RETURN 'DIFFERENT: ' || seq || ' and by the index ' || idx;
END $$;
CREATE PROCEDURE pg_temp.all_of_them() LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING '%', pg_temp.both('v BETWEEN 1000 AND 1010');
    RAISE WARNING '%', pg_temp.both('v > 100000');
    RAISE WARNING '%', pg_temp.both('v < 0');
    RAISE WARNING '%', pg_temp.both('t = ''changed'' ');
    RAISE WARNING '%', pg_temp.both('v / 2 > 50000 AND w < 50');
    RAISE WARNING '%', pg_temp.both('v / 2 BETWEEN 400 AND 410 AND w < 50');
    RAISE WARNING '%', pg_temp.both('v > 100000 AND w = 7');
END $$;
CALL pg_temp.all_of_them();
-- far away from what the summary of the range says
UPDATE b SET v = v + 200000 WHERE id % 100 = 7;
CALL pg_temp.all_of_them();
UPDATE b SET v = -id WHERE id % 1000 = 7;
UPDATE b SET t = 'changed' WHERE id % 500 = 3;
CALL pg_temp.all_of_them();
-- there and back, with other updates in between
UPDATE b SET v = id, hot = 1 WHERE id % 1000 = 7;
UPDATE b SET hot = hot + 1;
UPDATE b SET v = 300000 + id WHERE id % 1000 = 7;
UPDATE b SET w = w + 1 WHERE id % 1000 = 7;
CALL pg_temp.all_of_them();
-- an old snapshot sees the old values by the index
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.both('v > 100000');
\setenv PGDATABASE :DBNAME
\! psql -XAtq -c 'UPDATE reg_brin.b SET v = 5 WHERE v > 100000' -c 'VACUUM reg_brin.b'
SELECT pg_temp.both('v > 100000');
SELECT pg_temp.both('v = 5');
COMMIT;
SELECT pg_temp.both('v > 100000');
SELECT pg_temp.both('v = 5');
-- rolled back, in part
BEGIN;
UPDATE b SET v = 400000 WHERE id = 17;
SAVEPOINT x;
UPDATE b SET v = 500000 WHERE id IN (17, 18);
SELECT pg_temp.both('v >= 400000');
ROLLBACK TO x;
SELECT pg_temp.both('v >= 400000');
COMMIT;
SELECT pg_temp.both('v >= 400000');
-- summaries made anew over chains
SELECT brin_desummarize_range('b_v', 0), brin_desummarize_range('b_v', 3);
UPDATE b SET v = 600000 WHERE id = 19;
SELECT pg_temp.both('v >= 400000');
SELECT brin_summarize_new_values('b_v') > 0;
SELECT pg_temp.both('v >= 400000');
REINDEX INDEX b_v;
REINDEX INDEX CONCURRENTLY b_multi;
CALL pg_temp.all_of_them();
-- NULLs, and a lossy bitmap
UPDATE b SET v = NULL WHERE id % 10 = 1;
SELECT pg_temp.both('v IS NULL');
SET work_mem = '64kB';
SELECT pg_temp.both('v BETWEEN 10 AND 4990');
SELECT pg_temp.both('v IS NULL AND w < 90');
SELECT * FROM sofort.verify('b');
