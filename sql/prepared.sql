-- Two-phase commit, every statement on a sofort table and its heap twin alike.
-- Crashes: t/122_prepared.pl; other sessions: specs/prepared_rows.spec.
SET client_min_messages = warning;
SET jit = off;
\set SHOW_CONTEXT never
CREATE SCHEMA reg_prepared;
SET search_path = reg_prepared;
CREATE TABLE s (id int PRIMARY KEY, v int, t text UNIQUE) USING sofort;
CREATE TABLE h (LIKE s INCLUDING ALL) USING heap;
INSERT INTO s SELECT i, 0, 't' || i FROM generate_series(1, 20) i;
INSERT INTO h TABLE s;
CREATE VIEW differences AS
    SELECT 'sofort' AS only_in, * FROM (TABLE s EXCEPT ALL TABLE h) x UNION ALL SELECT 'heap', * FROM (TABLE h EXCEPT ALL TABLE s) x;
-- rows, savepoints, both ways
BEGIN;
INSERT INTO s VALUES (21, 1, 'new'); INSERT INTO h VALUES (21, 1, 'new');
UPDATE s SET v = v + 1 WHERE id < 5; UPDATE h SET v = v + 1 WHERE id < 5;
SAVEPOINT a;
DELETE FROM s WHERE id > 10; DELETE FROM h WHERE id > 10;
ROLLBACK TO a;
UPDATE s SET id = id + 100, v = v + 1 WHERE id IN (3, 7); UPDATE h SET id = id + 100, v = v + 1 WHERE id IN (3, 7);
SAVEPOINT b;
DELETE FROM s WHERE id = 9; DELETE FROM h WHERE id = 9;
RELEASE b;
PREPARE TRANSACTION 'one';
TABLE differences;
SELECT count(*), sum(v) FROM s;
SELECT state, pid, entries > 5 AS entries FROM sofort.transactions;
COMMIT PREPARED 'one';
TABLE differences;
SELECT count(*), sum(v) FROM s;
SELECT count(*) FROM sofort.transactions;
BEGIN;
DELETE FROM s WHERE v > 0; INSERT INTO s SELECT i, 5, 'many ' || i FROM generate_series(1000, 9000) i; UPDATE s SET v = 6 WHERE id > 5000;
PREPARE TRANSACTION 'two';
SELECT count(*), sum(v) FROM s;
ROLLBACK PREPARED 'two';
TABLE differences;
SELECT * FROM sofort.verify('s');
-- the same unique key: waited for, then free or not
SET lock_timeout = '50ms';
BEGIN; INSERT INTO s VALUES (50, 0, 'fifty'); PREPARE TRANSACTION 'three';
INSERT INTO s VALUES (50, 1, 'other');
INSERT INTO s VALUES (51, 1, 'fifty');
INSERT INTO s VALUES (50, 1, 'other') ON CONFLICT DO NOTHING;
ROLLBACK PREPARED 'three';
INSERT INTO s VALUES (50, 1, 'other');
BEGIN; DELETE FROM s WHERE id = 50; PREPARE TRANSACTION 'three';
INSERT INTO s VALUES (50, 2, 'other');
COMMIT PREPARED 'three';
INSERT INTO s VALUES (50, 3, 'other') ON CONFLICT (id) DO UPDATE SET v = 99 RETURNING *;
DELETE FROM s WHERE id = 50;
RESET lock_timeout;
-- DDL
CREATE TABLE dropped (i int PRIMARY KEY) USING sofort;
INSERT INTO dropped VALUES (1);
SELECT stores AS stores FROM sofort.pool \gset
BEGIN;
CREATE TABLE made (i int PRIMARY KEY, t text DEFAULT 'x') USING sofort;
INSERT INTO made SELECT generate_series(1, 1000);
CREATE INDEX made_t ON made USING sofort_index (t);
ALTER TABLE made ADD COLUMN n int DEFAULT 3;
DROP TABLE dropped;
TRUNCATE s;
INSERT INTO s VALUES (1, 1, 'only');
CREATE MATERIALIZED VIEW mv USING sofort AS SELECT * FROM made;
PREPARE TRANSACTION 'ddl';
SELECT to_regclass('made'), to_regclass('dropped');
ROLLBACK PREPARED 'ddl';
SELECT to_regclass('made'), count(*) FROM dropped;
SELECT stores - :stores AS more FROM sofort.pool;
TABLE differences;
BEGIN;
CREATE TABLE made (i int PRIMARY KEY, t text DEFAULT 'x') USING sofort;
INSERT INTO made SELECT generate_series(1, 1000);
CREATE INDEX made_t ON made USING sofort_index (t);
ALTER TABLE made ADD COLUMN n int DEFAULT 3;
DROP TABLE dropped;
ALTER TABLE s ADD COLUMN added int;
UPDATE s SET added = 1 WHERE id = 1;
PREPARE TRANSACTION 'ddl';
COMMIT PREPARED 'ddl';
SELECT count(*), sum(n) FROM made WHERE t = 'x';
SELECT to_regclass('dropped'), sum(added) FROM s;
SELECT stores - :stores AS more FROM sofort.pool;
ALTER TABLE s DROP COLUMN added;
SELECT * FROM sofort.verify('made') UNION ALL SELECT * FROM sofort.verify('s') UNION ALL SELECT * FROM sofort.verify_pool();
BEGIN; ALTER TABLE s SET ACCESS METHOD heap; PREPARE TRANSACTION 'am';
ROLLBACK PREPARED 'am';
BEGIN; CLUSTER made USING made_t; ALTER TABLE made ALTER i TYPE bigint; PREPARE TRANSACTION 'rewrite';
COMMIT PREPARED 'rewrite';
SELECT count(*), sum(i), pg_typeof(min(i)) FROM made WHERE t = 'x';
-- deferred constraints are checked at PREPARE; sequences go on
CREATE TABLE child (id int GENERATED ALWAYS AS IDENTITY, p int REFERENCES s DEFERRABLE INITIALLY DEFERRED, u int UNIQUE DEFERRABLE INITIALLY DEFERRED) USING sofort;
BEGIN; INSERT INTO child (p, u) VALUES (77, 1); PREPARE TRANSACTION 'deferred';
BEGIN; INSERT INTO child (p, u) VALUES (1, 1), (2, 1); UPDATE child SET u = 2 WHERE p = 2; PREPARE TRANSACTION 'deferred';
COMMIT PREPARED 'deferred';
SELECT * FROM child;
DELETE FROM s WHERE id = 1;
-- what PostgreSQL refuses
BEGIN; INSERT INTO s VALUES (60, 0, 'sixty'); PREPARE TRANSACTION 'same';
BEGIN; INSERT INTO s VALUES (61, 0, 'sixty-one'); PREPARE TRANSACTION 'same';
SELECT id FROM s WHERE id >= 60;
BEGIN; COMMIT PREPARED 'same'; ROLLBACK;
COMMIT PREPARED 'no such';
BEGIN; CREATE TEMP TABLE tt (i int); INSERT INTO s VALUES (62, 0, 'sixty-two'); PREPARE TRANSACTION 'temp';
BEGIN; INSERT INTO s VALUES (62, 0, 'sixty-two'); SELECT length(pg_export_snapshot()) > 0 AS exported; PREPARE TRANSACTION 'exported';
COMMIT PREPARED 'same';
SELECT id FROM s WHERE id >= 60;
-- nothing of sofort in it; nothing left of it
BEGIN; SELECT count(*) FROM s; PREPARE TRANSACTION 'reader'; COMMIT PREPARED 'reader';
BEGIN; SAVEPOINT a; DELETE FROM s; ROLLBACK TO a; PREPARE TRANSACTION 'undone'; COMMIT PREPARED 'undone';
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM s; INSERT INTO s VALUES (63, 0, 'x'); PREPARE TRANSACTION 'ssi'; COMMIT PREPARED 'ssi';
SELECT count(*) FROM sofort.transactions;
SELECT count(*) FROM pg_prepared_xacts;
SELECT * FROM sofort.verify('s') UNION ALL SELECT * FROM sofort.verify('child');
