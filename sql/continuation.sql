-- What cannot be kept: each refused, before sofort.keep_transaction() or after it
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET sofort.index_placement = dram;
CREATE TABLE kt (id int PRIMARY KEY, v int) USING sofort;
CREATE TABLE kt_heap (id int PRIMARY KEY, v int) USING heap;
CREATE TABLE kt_btree (id int PRIMARY KEY, v int) USING sofort;
CREATE INDEX kt_btree_v ON kt_btree USING btree (v);
CREATE UNLOGGED TABLE kt_unlogged (id int) USING sofort;
CREATE TABLE kt_parent (id int, v int) PARTITION BY RANGE (id);
CREATE TABLE kt_part1 PARTITION OF kt_parent FOR VALUES FROM (0) TO (10) USING sofort;
CREATE TABLE kt_part2 PARTITION OF kt_parent FOR VALUES FROM (10) TO (20) USING heap;
CREATE TABLE kt_deferred (id int PRIMARY KEY, kt int REFERENCES kt DEFERRABLE INITIALLY DEFERRED) USING sofort;
CREATE TABLE kt_references_heap (id int PRIMARY KEY, h int REFERENCES kt_heap) USING sofort;
CREATE SEQUENCE kt_seq;
INSERT INTO kt SELECT i, i FROM generate_series(1, 10) i;
INSERT INTO kt_heap SELECT i, i FROM generate_series(1, 10) i;
INSERT INTO kt_btree SELECT i, i FROM generate_series(1, 10) i;
CREATE TABLE kt_heap_child (id int PRIMARY KEY, kt int REFERENCES kt ON DELETE CASCADE) USING heap;
CREATE VIEW kt_view AS SELECT * FROM kt_heap;
CREATE TABLE kt_ruled (id int) USING sofort;
CREATE RULE kt_rule AS ON INSERT TO kt_ruled DO ALSO NOTIFY kt_channel;
CREATE TEMP TABLE kt_temp_of_before (i int) ON COMMIT DELETE ROWS;
CREATE TEMP SEQUENCE kt_temp_seq;
CREATE FUNCTION kt_cursor() RETURNS refcursor LANGUAGE plpgsql AS $$ DECLARE c refcursor; BEGIN OPEN c FOR SELECT 1; RETURN 'opened'; END $$;
CREATE FUNCTION kt_advisory(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF i > 0 THEN PERFORM pg_advisory_xact_lock(i); END IF; RETURN i; END $$;
CREATE OPERATOR !! (rightarg = bigint, function = pg_advisory_xact_lock);

-- Runs statements in transaction blocks of their own, with the call behind the
-- first of them, or before it; says what the server says.
CREATE FUNCTION kt_keep() RETURNS boolean LANGUAGE sql AS 'SELECT length(sofort.keep_transaction()) = 32';

CREATE PROCEDURE kt_procedure() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';

-- not at all
SELECT kt_keep();
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT kt_keep(); ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT kt_keep(); ROLLBACK;
BEGIN; SAVEPOINT a; SELECT kt_keep(); ROLLBACK;
BEGIN; DO $$ BEGIN PERFORM kt_keep(); EXCEPTION WHEN division_by_zero THEN NULL; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT kt_keep(); ROLLBACK;
BEGIN READ ONLY; SELECT kt_keep(); ROLLBACK;
BEGIN; SET TRANSACTION READ ONLY; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT sofort.keep_transaction(repeat('é', 32)); ROLLBACK;

-- before
BEGIN; INSERT INTO kt_heap VALUES (11, 1); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT id FROM kt_heap WHERE id = 1 FOR SHARE; SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_btree VALUES (11, 1); SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_unlogged VALUES (1); SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_parent VALUES (1, 1); SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_deferred VALUES (1, 1); SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_references_heap VALUES (1, 1); SELECT kt_keep(); ROLLBACK;
BEGIN; CREATE TEMP TABLE kt_temp (i int); SELECT kt_keep(); ROLLBACK;
BEGIN; CREATE TABLE kt_new (i int) USING sofort; SELECT kt_keep(); ROLLBACK;
BEGIN; ALTER TABLE kt ADD w int; SELECT kt_keep(); ROLLBACK;
BEGIN; TRUNCATE kt CASCADE; SELECT kt_keep(); ROLLBACK;
BEGIN; NOTIFY kt_channel; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT pg_notify('kt_channel', ''); SELECT kt_keep(); ROLLBACK;
BEGIN; LISTEN kt_channel; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT pg_advisory_xact_lock(1); SELECT kt_keep(); ROLLBACK;
SELECT pg_advisory_lock(1);
BEGIN; SELECT kt_keep(); ROLLBACK;
SELECT pg_advisory_unlock(1);
BEGIN; DECLARE c CURSOR FOR SELECT 1; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT lo_create(0) > 0; SELECT kt_keep(); ROLLBACK;
BEGIN; SET CONSTRAINTS ALL IMMEDIATE; SELECT kt_keep(); ROLLBACK;
BEGIN; SET LOCAL work_mem = '1MB'; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT set_config('work_mem', '1MB', true); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT pg_replication_origin_create('kt') > 0; SELECT kt_keep(); ROLLBACK;
BEGIN; SET LOCAL ROLE pg_read_all_stats; RESET ROLE; SELECT kt_keep(); ROLLBACK;
BEGIN; LOCK TABLE kt IN ROW SHARE MODE; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT length(pg_export_snapshot()) > 0; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT length(pg_logical_emit_message(true, 'kt', '')::text) > 0; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT kt_cursor(); SELECT kt_keep(); ROLLBACK;
BEGIN; INSERT INTO kt_ruled VALUES (1); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT kt_advisory(1); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT !! 1::bigint; SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT * FROM sofort.verify('kt'); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT nextval('kt_temp_seq'); SELECT kt_keep(); ROLLBACK;
BEGIN; SELECT count(*) FROM kt_temp_of_before; SELECT kt_keep(); ROLLBACK;
BEGIN; DO $$ BEGIN EXECUTE 'EXPLAIN (ANALYZE) CREATE TABLE kt_new AS SELECT 1'; END $$; SELECT kt_keep(); ROLLBACK;
BEGIN; DO $$ BEGIN EXECUTE 'LOCK TABLE kt'; END $$; SELECT kt_keep(); ROLLBACK;
BEGIN; DELETE FROM kt WHERE id = 2; SELECT kt_keep(); ROLLBACK;
BEGIN; DECLARE kt_held CURSOR WITH HOLD FOR SELECT 1; COMMIT;
BEGIN; SELECT kt_keep(); ROLLBACK;
CLOSE kt_held;

-- behind
BEGIN; SELECT kt_keep(); INSERT INTO kt_heap VALUES (11, 1); ROLLBACK;
BEGIN; SELECT kt_keep(); UPDATE kt_heap SET v = 1 WHERE id = 77; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT id FROM kt_heap WHERE id = 1 FOR KEY SHARE; ROLLBACK;
BEGIN; SELECT kt_keep(); COPY kt_heap FROM '/dev/null'; ROLLBACK;
BEGIN; SELECT kt_keep(); DELETE FROM kt_btree; ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_unlogged VALUES (1); ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_parent VALUES (1, 1); ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_deferred VALUES (1, 1); ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_references_heap VALUES (1, 1); ROLLBACK;
BEGIN; SELECT kt_keep(); CREATE TEMP TABLE kt_temp (i int); ROLLBACK;
BEGIN; SELECT kt_keep(); CREATE TABLE kt_new AS SELECT 1; ROLLBACK;
BEGIN; SELECT kt_keep(); CREATE INDEX ON kt USING sofort_index (v); ROLLBACK;
BEGIN; SELECT kt_keep(); TRUNCATE kt; ROLLBACK;
BEGIN; SELECT kt_keep(); NOTIFY kt_channel; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT pg_notify('kt_channel', ''); ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT pg_try_advisory_lock_shared(1, 2); ROLLBACK;
BEGIN; SELECT kt_keep(); DECLARE c CURSOR FOR SELECT 1; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT lo_create(0) > 0; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT pg_replication_origin_create('kt') > 0; ROLLBACK;
BEGIN; SELECT kt_keep(); SET CONSTRAINTS ALL DEFERRED; ROLLBACK;
BEGIN; SELECT kt_keep(); SET work_mem = '1MB'; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT set_config('work_mem', '1MB', false); ROLLBACK;
BEGIN; SELECT kt_keep(); LOCK TABLE kt IN ACCESS SHARE MODE; ROLLBACK;
BEGIN; SELECT kt_keep(); SAVEPOINT a; ROLLBACK;
BEGIN; SELECT kt_keep(); PREPARE TRANSACTION 'kt'; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT pg_export_snapshot(); ROLLBACK;
BEGIN; SELECT kt_keep(); DO $$ BEGIN SET LOCAL work_mem = '1MB'; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); SET TRANSACTION READ ONLY; ROLLBACK;
BEGIN; SELECT kt_keep(); SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT pg_logical_emit_message(false, 'kt', ''); ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT kt_cursor(); ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_ruled VALUES (1); ROLLBACK;
BEGIN; SELECT kt_advisory(0); SELECT kt_keep(); SELECT kt_advisory(1); ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT !! 1::bigint; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT nextval('kt_temp_seq'); ROLLBACK;
BEGIN; SELECT kt_keep(); INSERT INTO kt_temp_of_before VALUES (1); ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT count(*) FROM kt_temp_of_before; ROLLBACK;
BEGIN; SELECT kt_keep(); DO $$ BEGIN EXECUTE 'EXPLAIN (ANALYZE) CREATE TABLE kt_new AS SELECT 1'; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT 1 AS i INTO kt_new; ROLLBACK;
BEGIN; SELECT kt_keep(); EXPLAIN (ANALYZE) UPDATE kt_heap SET v = 1; ROLLBACK;
BEGIN; SELECT kt_keep(); COPY (UPDATE kt_heap SET v = 1 RETURNING id) TO STDOUT; ROLLBACK;
BEGIN; SELECT kt_keep(); COPY (SELECT id FROM kt_heap FOR UPDATE) TO STDOUT; ROLLBACK;
BEGIN; SELECT kt_keep(); UPDATE kt_view SET v = 1; ROLLBACK;
BEGIN; SELECT kt_keep(); SELECT id FROM kt_view FOR NO KEY UPDATE; ROLLBACK;
BEGIN; SELECT kt_keep(); WITH w AS (DELETE FROM kt_heap RETURNING id) SELECT count(*) FROM w; ROLLBACK;
BEGIN; SELECT kt_keep(); MERGE INTO kt_heap h USING kt ON h.id = kt.id WHEN MATCHED THEN DELETE; ROLLBACK;
BEGIN; SELECT kt_keep(); DELETE FROM kt WHERE id = 2; ROLLBACK;
BEGIN; SELECT kt_keep(); UPDATE kt SET v = 0 WHERE id = 1; ROLLBACK;
BEGIN; SELECT kt_keep(); DO $$ BEGIN PERFORM FROM kt_heap FOR KEY SHARE; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); DO $$ BEGIN EXECUTE 'ALTER TABLE kt ADD w int'; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); DO $$ BEGIN EXECUTE 'TRUNCATE kt_btree'; END $$; ROLLBACK;
BEGIN; SELECT kt_keep(); CREATE TEMP TABLE kt_drop ON COMMIT DROP AS SELECT 1; ROLLBACK;
BEGIN; SELECT kt_keep(); SET LOCAL ROLE pg_read_all_stats; ROLLBACK;
BEGIN; SELECT kt_keep(); RESET ALL; ROLLBACK;
BEGIN; SELECT kt_keep(); LISTEN kt_channel; ROLLBACK;
BEGIN; SELECT kt_keep(); UNLISTEN *; ROLLBACK;
BEGIN; SELECT kt_keep(); COMMENT ON TABLE kt IS 'x'; ROLLBACK;
BEGIN; SELECT kt_keep(); ANALYZE kt; ROLLBACK;
BEGIN; SELECT kt_keep(); DISCARD PLANS; ROLLBACK;
BEGIN; SELECT kt_keep(); FETCH NEXT FROM c; ROLLBACK;
BEGIN; SELECT kt_keep(); REFRESH MATERIALIZED VIEW kt_view; ROLLBACK;
BEGIN; SELECT kt_keep(); LOAD 'plpgsql'; ROLLBACK;
BEGIN; SELECT kt_keep(); CALL kt_procedure(); ROLLBACK;
-- refused in a block with an exception clause, too; what it left is rolled back
BEGIN; SELECT kt_keep(); DO $$ BEGIN UPDATE kt_heap SET v = 77; EXCEPTION WHEN feature_not_supported THEN INSERT INTO kt VALUES (77, 77); END $$; COMMIT;
SELECT (SELECT count(*) FROM kt_heap WHERE v = 77), (SELECT count(*) FROM kt WHERE id = 77);
DELETE FROM kt_heap_child; DELETE FROM kt WHERE id = 77;

-- what can be kept
BEGIN;
SAVEPOINT a; INSERT INTO kt VALUES (11, 11); RELEASE a;
SELECT nextval('kt_seq');
SELECT count(*) FROM kt_heap;
SELECT kt_keep();
INSERT INTO kt VALUES (12, 12);
DO $$ BEGIN INSERT INTO kt VALUES (13, 13); INSERT INTO kt VALUES (1, 1); EXCEPTION WHEN unique_violation THEN INSERT INTO kt VALUES (14, 14); END $$;
COPY kt FROM stdin;
15	15
\.
SELECT nextval('kt_seq');
PREPARE kt_statement AS UPDATE kt SET v = v + 100 WHERE id = $1;
EXECUTE kt_statement(11);
EXECUTE kt_statement(12);
EXPLAIN (COSTS OFF) SELECT 1;
SELECT id FROM kt WHERE id = 3 FOR KEY SHARE;
SELECT id FROM kt WHERE id = 3 FOR UPDATE;
SELECT id FROM kt_btree WHERE id = 3 FOR UPDATE;
SELECT state, label, statements, expires FROM sofort.transactions WHERE pid = pg_backend_pid();
COMMIT;
SELECT * FROM kt WHERE id > 10 ORDER BY id;

-- an error ends it, as any transaction
BEGIN; SELECT sofort.keep_transaction('label') AS token \gset
SELECT label, statements FROM sofort.transactions WHERE pid = pg_backend_pid();
SELECT sofort.transaction_outcome(:'token');
INSERT INTO kt VALUES (1, 1);
ROLLBACK;
SELECT sofort.transaction_outcome(:'token');
BEGIN; SELECT sofort.resume_transaction(:'token'); ROLLBACK;
SELECT sofort.abort_transaction(:'token');

-- tokens
SELECT sofort.transaction_outcome('00000000000000000000000000000000'), sofort.transaction_outcome('x');
BEGIN; SELECT sofort.resume_transaction('00000000000000000000000000000000'); ROLLBACK;
SELECT sofort.abort_transaction('nonsense');
SELECT sofort.resume_transaction('00000000000000000000000000000000');
BEGIN; SELECT 1; SELECT sofort.resume_transaction('00000000000000000000000000000000'); ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sofort.resume_transaction('00000000000000000000000000000000'); ROLLBACK;
BEGIN READ ONLY; SELECT sofort.resume_transaction('00000000000000000000000000000000'); ROLLBACK;

-- after it nothing of all this holds
BEGIN; SELECT kt_keep(); COMMIT AND CHAIN; SAVEPOINT a; NOTIFY kt_channel; ROLLBACK;

DEALLOCATE kt_statement;
DROP OPERATOR !! (NONE, bigint);
DROP TABLE kt_heap_child, kt_temp_of_before, kt_ruled;
DROP SEQUENCE kt_temp_seq;
DROP VIEW kt_view;
DROP FUNCTION kt_cursor(), kt_advisory(int);
DROP PROCEDURE kt_procedure();
DROP TABLE kt_deferred, kt_references_heap, kt, kt_heap, kt_btree, kt_unlogged, kt_parent;
DROP FUNCTION kt_keep();
DROP SEQUENCE kt_seq;
