-- What the other workload does not come to: prepared transactions, values of dictionaries that are freed, dictionaries that come late, long
-- runs of blocks, runs that are given back, unlogged tables, speculative insertion; and, with sessions that stop at named points with what they have
-- stored and not drained, what others build on that.

-- step q
CREATE TABLE q (id int PRIMARY KEY, v int, t text) USING sofort;
-- step its rows
INSERT INTO q SELECT i, i, 'q' || i FROM generate_series(1, 12) i;
-- step prepared @2
BEGIN;
INSERT INTO q VALUES (100, 1, 'prepared');
UPDATE q SET v = 0 WHERE id = 1;
DELETE FROM q WHERE id = 2;
PREPARE TRANSACTION 'one';
-- step others go on beside it
INSERT INTO q VALUES (20, 20, 'beside');
-- step commit prepared
COMMIT PREPARED 'one';
-- step prepared to be rolled back @2
BEGIN;
INSERT INTO q VALUES (101, 1, repeat('prepared', 300));
UPDATE q SET v = -1 WHERE id < 6;
SAVEPOINT s;
DELETE FROM q WHERE id = 7;
ROLLBACK TO s;
PREPARE TRANSACTION 'two';
-- step prepared with locks @3
BEGIN;
SELECT * FROM q WHERE id IN (8, 9) FOR UPDATE;
SELECT * FROM q WHERE id = 10 FOR KEY SHARE;
PREPARE TRANSACTION 'three';
-- step update beside a lock
UPDATE q SET v = v + 1 WHERE id = 10;
-- step rollback prepared
ROLLBACK PREPARED 'two';
-- step commit prepared with locks
COMMIT PREPARED 'three';
-- step their rows again
UPDATE q SET v = v + 1 WHERE id IN (1, 3, 8, 9);
-- step unlogged
CREATE UNLOGGED TABLE u (id int PRIMARY KEY, t text) USING sofort;
-- step unlogged rows
INSERT INTO u SELECT i, repeat('unlogged', i) FROM generate_series(1, 40) i;

-- step a root that differs from its chain
CREATE TABLE differ (id int PRIMARY KEY, v int) USING sofort;
-- step its root
INSERT INTO differ VALUES (1, 10), (2, 20);
-- step its second version
UPDATE differ SET v = v + 1;
-- step the index of what was changed @2
CREATE INDEX differ_v ON differ USING sofort_index (v);
-- step used
UPDATE differ SET v = 5 WHERE v = 21;

-- step vacuum 1
VACUUM dict;
-- step something else 1
UPDATE q SET v = v + 1 WHERE id = 3;
-- step vacuum 2
VACUUM dict;
-- step something else 2
UPDATE q SET v = v + 1 WHERE id = 3;
-- step vacuum 3
VACUUM dict;
-- step something else 3
UPDATE q SET v = v + 1 WHERE id = 3;
-- step vacuum 4
VACUUM dict;
-- step codes given out again
INSERT INTO dict SELECT 2000 + i, 'new value ' || i % 9, i % 8 + 0.25, i % 7 FROM generate_series(1, 30) i;
-- step blocks in which a late column has a dictionary
INSERT INTO late SELECT i, 'late ' || i % 6 FROM generate_series(3001, 3330) i;
-- step a late value
INSERT INTO late VALUES (4000, 'latest');
-- step a late column of rows that have none
UPDATE late SET x = 'latest' WHERE id < 4;

-- step a run of many blocks
INSERT INTO long SELECT i, i FROM generate_series(3001, 3290) i;
-- step rows of its second block go
DELETE FROM long WHERE id > 3250;
-- step the one in the middle goes
DELETE FROM runs WHERE id BETWEEN 1273 AND 1528;
-- step and is given back
VACUUM runs;
-- step its place is used
INSERT INTO runs SELECT i, (i::int8 << 33) + 0, (i::int8 << 33) + 1, (i::int8 << 33) + 2, (i::int8 << 33) + 3, (i::int8 << 33) + 4, (i::int8 << 33) + 5, (i::int8 << 33) + 6, (i::int8 << 33) + 7, (i::int8 << 33) + 8, (i::int8 << 33) + 9, (i::int8 << 33) + 10, (i::int8 << 33) + 11, (i::int8 << 33) + 12, (i::int8 << 33) + 13, (i::int8 << 33) + 14, (i::int8 << 33) + 15, (i::int8 << 33) + 16, (i::int8 << 33) + 17, (i::int8 << 33) + 18, (i::int8 << 33) + 19, (i::int8 << 33) + 20, (i::int8 << 33) + 21, (i::int8 << 33) + 22, (i::int8 << 33) + 23, (i::int8 << 33) + 24, (i::int8 << 33) + 25, (i::int8 << 33) + 26 FROM generate_series(2001, 2180) i;
-- step the last one goes
DELETE FROM runs WHERE id BETWEEN 1529 AND 2170;
-- step and is given back, at the end
VACUUM runs;
-- step used again
INSERT INTO runs SELECT i, (i::int8 << 33) + 0, (i::int8 << 33) + 1, (i::int8 << 33) + 2, (i::int8 << 33) + 3, (i::int8 << 33) + 4, (i::int8 << 33) + 5, (i::int8 << 33) + 6, (i::int8 << 33) + 7, (i::int8 << 33) + 8, (i::int8 << 33) + 9, (i::int8 << 33) + 10, (i::int8 << 33) + 11, (i::int8 << 33) + 12, (i::int8 << 33) + 13, (i::int8 << 33) + 14, (i::int8 << 33) + 15, (i::int8 << 33) + 16, (i::int8 << 33) + 17, (i::int8 << 33) + 18, (i::int8 << 33) + 19, (i::int8 << 33) + 20, (i::int8 << 33) + 21, (i::int8 << 33) + 22, (i::int8 << 33) + 23, (i::int8 << 33) + 24, (i::int8 << 33) + 25, (i::int8 << 33) + 26 FROM generate_series(3001, 3300) i;
-- step all go
TRUNCATE runs;

-- step held: between the look for a key and the insertion @8 (held at store-row-written)
BEGIN;
INSERT INTO q VALUES (200, 1, 'before it');
INSERT INTO q VALUES (201, 1, 'second') ON CONFLICT DO NOTHING;
-- step another has the key
INSERT INTO q VALUES (201, 1, 'first');
-- step the first gives up @8 (goes on)
COMMIT;
-- step others after that
UPDATE q SET v = v + 1 WHERE id = 201;

-- step an error behind the durable point: its transaction @9
BEGIN;
INSERT INTO q VALUES (300, 1, 'taken back');
SELECT sofort_test.arm('commit-durable', 'error');
-- step taken back, and the client has heard of it @9 (held at abort-before-undo) (may fail) (may have committed)
COMMIT;
-- step others while it is not undone
INSERT INTO q VALUES (301, 1, 'beside');
-- step undone @9 (goes on) (may fail)
SELECT 1;
-- step after it
INSERT INTO q VALUES (302, 1, 'after');

-- step values
CREATE TABLE val (id int PRIMARY KEY, t text) USING sofort;
-- step another table
CREATE TABLE val2 (id int PRIMARY KEY, t text) USING sofort;
-- step their rows
INSERT INTO val SELECT i, repeat('long', 500) FROM generate_series(1, 8) i;
-- step rows of the other
INSERT INTO val2 SELECT i, repeat('other', 400) FROM generate_series(1, 3) i;
-- step a value with a segment of its own
INSERT INTO val SELECT 9, string_agg(md5(i::text), '') FROM generate_series(1, 4000) i;
-- step they go
DELETE FROM val WHERE id > 3;
-- step a value is freed; its intent is not drained @10 (held at pmem-freed)
VACUUM val;
-- step its slot goes to another @11
INSERT INTO val2 SELECT 100 + i, repeat('takes', 400) FROM generate_series(1, 12) i;
-- step a segment goes to another @11
INSERT INTO val2 SELECT 200, string_agg(md5(i::text), '') FROM generate_series(1, 4000) i;
-- step vacuum ends @10 (goes on)
SELECT 1;
-- step something is published; its intent is not drained @10 (held at pmem-forgotten)
INSERT INTO published VALUES (20, 'held');
-- step others take values
INSERT INTO val2 SELECT 300 + i, repeat('more', 500) FROM generate_series(1, 5) i;
-- step published @10 (goes on)
SELECT 1;
-- step rows are freed and not drained: they go
DELETE FROM val2 WHERE id > 200;
-- step rows are freed @10 (held at store-rows-freed)
VACUUM val2;
-- step rows elsewhere
INSERT INTO val SELECT 40 + i, repeat('else', 500) FROM generate_series(1, 8) i;
-- step rows are free @10 (goes on)
SELECT 1;
-- step used again
INSERT INTO val2 SELECT 400 + i, repeat('again', 400) FROM generate_series(1, 5) i;
-- step dropped
CREATE TABLE dropped (id int PRIMARY KEY, t text) USING sofort;
-- step with rows
INSERT INTO dropped SELECT i, repeat('drop', i * 40) FROM generate_series(1, 30) i;
-- step space of a dropped table is free and not drained @12 (held at pmem-owner-freed)
DROP TABLE dropped;
-- step others take it @11
INSERT INTO val SELECT 60 + i, repeat('drop', i * 40) FROM generate_series(1, 30) i;
-- step it is gone @12 (goes on)
SELECT 1;
-- step dropped with segments
CREATE TABLE dropped (id int, t text) USING sofort;
-- step with many, each with a line of words between its first and its last
INSERT INTO dropped SELECT j, string_agg(md5((i + j)::text), '') FROM generate_series(1, 1500) i, generate_series(1, 24) j GROUP BY j;
-- step segments of a dropped table are free and not drained @12 (held at pmem-owner-freed)
DROP TABLE dropped;
-- step others take them @11
INSERT INTO val2 SELECT 600, string_agg(md5(i::text), '') FROM generate_series(1, 36000) i;
-- step they are gone @12 (goes on)
SELECT 1;
-- step a link that is not drained @10 (held at store-link-published)
UPDATE q SET v = v + 1 WHERE id = 4;
-- step others update elsewhere
UPDATE val SET t = 'elsewhere' WHERE id = 1;
-- step linked @10 (goes on)
SELECT 1;
-- step the next version
UPDATE q SET v = v + 1 WHERE id = 4;
-- step an update under a savepoint that goes @10 (held at abort-undone)
BEGIN;
SAVEPOINT s;
UPDATE q SET v = -5 WHERE id = 5;
INSERT INTO q VALUES (501, 1, repeat('undone', 50));
ROLLBACK TO s;
-- step others beside it
INSERT INTO val VALUES (100, 'beside');
-- step commits after that @10 (goes on)
INSERT INTO q VALUES (500, 1, 'kept');
COMMIT;
-- step all again
VACUUM q, val, val2, dict;
-- step last
INSERT INTO q VALUES (999, 1, 'last');
