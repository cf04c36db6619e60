-- Pool and arena full: the statement fails, nothing is lost, work goes on.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_memory;
SET search_path = reg_memory;
CREATE TABLE s_full (i int PRIMARY KEY, t text) USING sofort;
ALTER TABLE s_full ALTER t SET STORAGE EXTERNAL;
INSERT INTO s_full SELECT i, 'before' FROM generate_series(1, 100) i;
ALTER SYSTEM SET sofort.pool_size = '600MB';
SELECT pg_reload_conf();
SELECT pg_sleep(0.3);
SELECT quota_bytes / 1024 / 1024 FROM sofort.pool;
-- an allocation that never becomes part of anything is given back
SELECT used_bytes AS used FROM sofort.pool \gset
SELECT sofort_test.reserve_and_error(10000000);
SELECT used_bytes - :used AS leaked FROM sofort.pool;
-- pool full in the middle of an INSERT ... SELECT, of a COPY, of an index build
BEGIN;
SELECT sofort_test.fill_pool(4 * 1024 * 1024) > 0;
SAVEPOINT a;
INSERT INTO s_full SELECT i, repeat('x', 100000) FROM generate_series(1000, 3000) i;
ROLLBACK TO a;
SELECT count(*) FROM s_full;
INSERT INTO s_full VALUES (101, 'small');
COMMIT;
SELECT count(*) FROM s_full;
BEGIN;
SELECT sofort_test.fill_pool(1024 * 1024) > 0;
COPY s_full FROM PROGRAM 'i=200000; while [ $i -lt 260000 ]; do echo "$i	value number $i that is a little longer than others"; i=$((i+1)); done';
ROLLBACK;
SELECT count(*) FROM s_full;
SELECT * FROM sofort.verify('s_full');
SELECT count(*) FROM sofort.verify_pool();
-- afterwards everything goes on
INSERT INTO s_full SELECT i, repeat('x', 100000) FROM generate_series(1000, 1100) i;
SELECT count(*), sum(length(t)) FROM s_full;
-- arena full
INSERT INTO s_full SELECT i, 'arena' || i FROM generate_series(100000, 199999) i;
SELECT sofort_test.fill_arena(65536) > 0;
CREATE INDEX s_full_t ON s_full USING sofort_index (md5(t), i);
INSERT INTO s_full SELECT i, 'arena' || i FROM generate_series(200000, 299999) i;
SELECT count(*), sum(length(t)) FROM s_full;
SELECT * FROM s_full WHERE i = 100077;
SELECT sofort_test.empty_arena();
CREATE INDEX s_full_t ON s_full USING sofort_index (md5(t), i);
INSERT INTO s_full SELECT i, 'arena' || i FROM generate_series(200000, 201000) i;
SELECT count(*), sum(length(t)) FROM s_full;
SELECT * FROM s_full WHERE md5(t) = md5('arena100077');
SELECT * FROM sofort.verify('s_full');
DROP TABLE s_full;
ALTER SYSTEM RESET sofort.pool_size;
SELECT pg_reload_conf();
