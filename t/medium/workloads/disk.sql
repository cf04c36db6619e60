-- Updates where drains are slow (160 records it so): the row that holds a new version is made ready before the old one is
-- claimed, and is not drained before the link to it.

-- step tables
CREATE TABLE d (id int PRIMARY KEY, v int, t text, k int) USING sofort;
-- step an index
CREATE INDEX d_k ON d USING sofort_index (k);
-- step rows
INSERT INTO d SELECT i, 0, 'row ' || i, i % 5 FROM generate_series(1, 24) i;
-- step more columns
CREATE TABLE wide (id int PRIMARY KEY, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint, g bigint, h bigint, t text) USING sofort;
-- step their rows
INSERT INTO wide SELECT i, i, i, i, i, i, i, i, i, repeat('t', i * 20) FROM generate_series(1, 12) i;

-- step one row
UPDATE d SET v = v + 1 WHERE id = 1;
-- step the same again
UPDATE d SET v = v + 1 WHERE id = 1;
-- step its neighbour
UPDATE d SET v = v + 1 WHERE id = 2;
-- step twice in one transaction
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 1;
UPDATE d SET v = v + 1, t = repeat('long', 50) WHERE id = 1;
COMMIT;
-- step rolled back
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 3;
UPDATE d SET v = v + 1 WHERE id = 1;
ROLLBACK;
-- step the place of what was rolled back
UPDATE d SET v = v + 10 WHERE id = 4;
-- step a savepoint
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 5;
SAVEPOINT s;
UPDATE d SET v = v + 1 WHERE id = 5;
UPDATE d SET v = v + 1 WHERE id = 6;
ROLLBACK TO s;
UPDATE d SET v = v + 1 WHERE id = 7;
COMMIT;
-- step an indexed column
UPDATE d SET k = k + 1 WHERE id = 8;
-- step and then another one
UPDATE d SET v = v + 1 WHERE id = 8;
-- step every row
UPDATE d SET v = v + 1;
-- step every row again
UPDATE d SET v = v + 1, t = 'text ' || id;
-- step wide rows
UPDATE wide SET c = c + 1 WHERE id = 3;
-- step with long texts
UPDATE wide SET t = repeat('new', 100), h = 0 WHERE id IN (3, 4);
-- step deleted
DELETE FROM wide WHERE id = 4;

-- step held with a link that nothing has drained @1 (held at store-link-published)
UPDATE d SET v = v + 100 WHERE id = 10;
-- step a neighbour whose link is in its line @2
UPDATE d SET v = v + 1 WHERE id = 11;
-- step and one more @3
UPDATE d SET v = v + 1 WHERE id = 12;
-- step goes on @1 (goes on)
-- step held with a row that nothing leads to @1 (held at store-row-written)
UPDATE wide SET a = a + 100 WHERE id = 6;
-- step neighbours of that @2
UPDATE wide SET a = a + 1 WHERE id IN (5, 7);
-- step goes on again @1 (goes on)
-- step leaves before it commits @7 (held at commit-before-durable)
UPDATE d SET v = v + 1000 WHERE id = 13;
-- step beside it @2
UPDATE d SET v = v + 1 WHERE id = 14;
-- step goes on at last @7 (goes on)

-- step prepared @2
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 15;
UPDATE wide SET b = b + 1 WHERE id = 8;
PREPARE TRANSACTION 'slow';
-- step beside what is prepared
UPDATE d SET v = v + 1 WHERE id = 16;
-- step committed
COMMIT PREPARED 'slow';

-- step rows again and again 1
UPDATE d SET v = v + 1 WHERE id = 20;
-- step rows again and again 2
UPDATE d SET v = v + 1 WHERE id = 20;
-- step rows again and again 3
UPDATE d SET v = v + 1 WHERE id = 20;
-- step rows again and again 4
UPDATE d SET v = v + 1 WHERE id = 20;
-- step rows again and again 5
UPDATE d SET v = v + 1 WHERE id = 20;
-- step vacuum
VACUUM d;
-- step places used again 1
UPDATE d SET v = v + 1 WHERE id = 20;
-- step places used again 2
UPDATE d SET v = v + 1 WHERE id = 21;
-- step places used again 3
UPDATE d SET v = v + 1 WHERE id IN (1, 2, 20);
-- step in a row of its own, with a value that does not fit
UPDATE d SET v = NULL WHERE id = 22;
-- step an insertion into what an update has made ready
BEGIN;
INSERT INTO d VALUES (100, 1, 'new', 1);
UPDATE d SET v = v + 1 WHERE id = 100;
COMMIT;
-- step both sides
UPDATE d SET v = wide.a FROM wide WHERE wide.id = d.id;
-- step rows that were never updated go
DELETE FROM wide WHERE id <= 2;
-- step and are freed
VACUUM wide;
-- step time goes by
INSERT INTO d VALUES (201, 1, 'others', 1);
-- step and more @10
INSERT INTO d VALUES (202, 1, 'others', 1);
-- step so that they are usable
VACUUM d;
-- step versions in their places @9
UPDATE wide SET a = a + 1 WHERE id = 9;
-- step and in another @9
UPDATE wide SET a = a + 1 WHERE id = 10;

-- A version without an index entry of its own, which nobody sees any more, leaves its place to another
-- row's next version: the medium has the dead one there until that is made ready.
-- step a table of its own
CREATE TABLE succeeded (id int PRIMARY KEY, v int) USING sofort;
-- step its rows
INSERT INTO succeeded SELECT i, 0 FROM generate_series(1, 6) i;
-- step versions of one row
BEGIN;
UPDATE succeeded SET v = 1 WHERE id = 1;
UPDATE succeeded SET v = 2 WHERE id = 1;
UPDATE succeeded SET v = 3 WHERE id = 1;
UPDATE succeeded SET v = 4 WHERE id = 1;
UPDATE succeeded SET v = 5 WHERE id = 1;
COMMIT;
-- step one of each other
UPDATE succeeded SET v = 1 WHERE id > 1;
-- step nobody sees the dead ones
VACUUM succeeded;
-- step others come and go
INSERT INTO d VALUES (301, 1, 'others', 1);
-- step and again @10
INSERT INTO d VALUES (302, 1, 'others', 1);
-- step their places are free
VACUUM succeeded;
-- step in the place of one @9
UPDATE succeeded SET v = 2 WHERE id = 2;
-- step of another @9
UPDATE succeeded SET v = 2 WHERE id = 3;
-- step of the third @9
UPDATE succeeded SET v = 2 WHERE id = 4;
-- step and the last @9
UPDATE succeeded SET v = 2 WHERE id = 5;
