-- Updates where drains are slow (160 records it so): the row that holds a new version is not drained before the link to it.

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
-- step an insertion and its next version
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

-- Statements of many rows: space for values is reserved for rows to come.
-- step rows with values as long
INSERT INTO wide SELECT 100 + i, i, i, i, i, i, i, i, i, repeat('v', 40) FROM generate_series(1, 40) i;
-- step with values of other lengths, and none
INSERT INTO wide SELECT 200 + i, i, i, i, i, i, i, i, i, CASE WHEN i % 3 > 0 THEN repeat('w', 20 + i * 10) END FROM generate_series(1, 20) i;
-- step taken back, and again
BEGIN;
INSERT INTO wide (id, t) SELECT 300 + i, repeat('s', 50) FROM generate_series(1, 9) i;
SAVEPOINT s;
INSERT INTO wide (id, t) SELECT 310 + i, repeat('s', 50) FROM generate_series(1, 9) i;
ROLLBACK TO s;
INSERT INTO wide (id, t) SELECT 320 + i, repeat('s', 50) FROM generate_series(1, 9) i;
COMMIT;
-- step rolled back with values
BEGIN;
INSERT INTO wide (id, t) SELECT 400 + i, repeat('r', 50) FROM generate_series(1, 12) i;
UPDATE wide SET a = 0;
ROLLBACK;
-- step all versions in their order
UPDATE wide SET a = a + 1;
-- step and again
UPDATE wide SET a = a + 1, b = b + 1;
-- step every third
UPDATE wide SET a = a + 1 WHERE id % 3 = 0;
-- step with other values
UPDATE wide SET t = t || 'x';
-- step several statements in order
BEGIN;
UPDATE wide SET c = c + 1 WHERE id > 100;
UPDATE wide SET c = c + 1 WHERE id BETWEEN 110 AND 220;
SAVEPOINT s;
UPDATE wide SET d = d + 1 WHERE id BETWEEN 105 AND 205;
ROLLBACK TO s;
UPDATE wide SET d = d + 1 WHERE id BETWEEN 200 AND 330;
COMMIT;
-- step held among many @1
BEGIN;
UPDATE wide SET e = e + 1 WHERE id BETWEEN 101 AND 117;
-- step goes on, held @1 (held at store-link-published)
UPDATE wide SET e = e + 1 WHERE id BETWEEN 118 AND 130;
-- step their neighbours are replaced by another @2
UPDATE wide SET f = f + 1 WHERE id IN (131, 132);
-- step held with what was reserved @7 (held at pmem-linked)
INSERT INTO wide (id, t) SELECT 500 + i, repeat('h', 50) FROM generate_series(1, 12) i;
-- step beside it all @2
INSERT INTO wide (id, t) SELECT 600 + i, repeat('b', 50) FROM generate_series(1, 12) i;
-- step the first goes on @1 (goes on)
-- step and replaces what is new @1
UPDATE wide SET f = f + 1 WHERE id BETWEEN 125 AND 140;
-- step and ends @1
COMMIT;
-- step the second goes on @7 (goes on)
-- step an indexed column of every row
UPDATE d SET k = k + 1;
-- step and of some, with other columns
BEGIN;
UPDATE d SET k = k + 1, v = 7 WHERE id % 3 = 1;
UPDATE d SET v = v + 1 WHERE id < 12;
SAVEPOINT s;
UPDATE d SET k = k + 1 WHERE id BETWEEN 5 AND 15;
ROLLBACK TO s;
UPDATE d SET k = k - 1 WHERE id BETWEEN 9 AND 19;
COMMIT;
-- step rolled back with new keys
BEGIN;
UPDATE d SET k = k + 100;
ROLLBACK;
-- step others in their places
UPDATE d SET v = v + 1 WHERE id > 3;
-- step leaves with new keys @7 (held at commit-before-durable)
UPDATE d SET k = k + 1000 WHERE id BETWEEN 4 AND 8;
-- step beside them @2
UPDATE d SET k = k + 1 WHERE id BETWEEN 10 AND 12;
-- step and goes on @7 (goes on)
-- step a table of heap
CREATE TABLE beside (id int) USING heap;
-- step versions that PostgreSQL's commit record has committed @2
BEGIN;
INSERT INTO beside VALUES (1);
UPDATE d SET v = v + 1 WHERE id IN (3, 17);
UPDATE d SET k = k + 1 WHERE id = 18;
COMMIT;
-- step and the next ones, held @7 (held at store-link-published)
UPDATE d SET v = v + 1 WHERE id IN (3, 17, 18);
-- step beside these @1
UPDATE d SET v = v + 1 WHERE id IN (1, 2);
-- step go on @7 (goes on)
-- step versions of a later session @10
BEGIN;
INSERT INTO beside VALUES (2);
UPDATE d SET v = v + 1 WHERE id IN (3, 9, 17);
UPDATE d SET k = k + 1 WHERE id = 18;
-- step committed by that record, and not stamped @10 (held at commit-before-stamp)
COMMIT;
-- step and the next ones in an earlier one @1
BEGIN;
UPDATE d SET v = v + 1 WHERE id IN (3, 9, 17, 18);
-- step others drain beside them @2
UPDATE d SET v = v + 1 WHERE id IN (1, 2);
-- step they go back @1
ROLLBACK;
-- step has its stamps @10 (goes on)
-- step the other way round @1
BEGIN;
INSERT INTO beside VALUES (3);
UPDATE d SET v = v + 1 WHERE id IN (3, 9, 17);
-- step committed, and not stamped either @1 (held at commit-before-stamp)
COMMIT;
-- step the next ones in a later session @10
BEGIN;
UPDATE d SET v = v + 1 WHERE id IN (3, 9, 17);
-- step others drain beside it @2
UPDATE d SET v = v + 1 WHERE id IN (1, 2);
-- step it goes back @10
ROLLBACK;
-- step stamps at last @1 (goes on)
-- step a place for successor words
UPDATE succeeded SET id = id + 100 WHERE id = 5;
-- step a new key, with nothing that is drained between claim and successor word
UPDATE succeeded SET id = id + 100 WHERE id = 6;
-- step a table with an index of another access method
CREATE TABLE bt (id int, v int) USING sofort;
-- step that index
CREATE INDEX bt_id ON bt USING btree (id);
-- step its rows
INSERT INTO bt SELECT i, i FROM generate_series(1, 8) i;
-- step new rows of an open transaction @2
BEGIN;
INSERT INTO bt VALUES (100, 100);
-- step and new keys @2
UPDATE bt SET id = id + 100 WHERE id IN (3, 5);
-- step others flush its WAL
CREATE TABLE sometable (id int) USING heap;
-- step and drain
INSERT INTO d VALUES (403, 1, 'others', 1);
-- step its new keys go @2
ROLLBACK;
-- step some go
DELETE FROM wide WHERE id % 2 = 0;
-- step and their places are freed
VACUUM wide;
-- step others pass
INSERT INTO d VALUES (401, 1, 'others', 1);
-- step and pass @10
INSERT INTO d VALUES (402, 1, 'others', 1);
-- step so that places are usable
VACUUM wide;
-- step versions and values in these
UPDATE wide SET g = g + 1, t = repeat('u', 45);
-- step and all of it is freed
DELETE FROM wide WHERE id > 20;
-- step for good
VACUUM wide;

-- Entries that a session expects, because transactions before it were alike (src/txn/README.md)
-- step tables of transactions that are alike
CREATE TABLE few (id int PRIMARY KEY, n int) USING sofort;
-- step and another
CREATE TABLE log (id int, n int) USING sofort;
-- step their rows
INSERT INTO few SELECT i, 0 FROM generate_series(1, 5) i;
-- step one of those that are alike @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 12;
UPDATE few SET n = n + 1 WHERE id = 1;
INSERT INTO log VALUES (1, 1);
COMMIT;
-- step the second one @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 13;
UPDATE few SET n = n + 1 WHERE id = 2;
INSERT INTO log VALUES (2, 1);
COMMIT;
-- step the third one @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 14;
UPDATE few SET n = n + 1 WHERE id = 2;
INSERT INTO log VALUES (3, 1);
COMMIT;
-- step the fourth one, beside a savepoint @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 15;
UPDATE few SET n = n + 1 WHERE id = 3;
SAVEPOINT a;
INSERT INTO log VALUES (4, 1);
ROLLBACK TO a;
INSERT INTO log VALUES (5, 1);
COMMIT;
-- step one that is rolled back @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 12;
UPDATE few SET n = n + 1 WHERE id = 1;
INSERT INTO log VALUES (6, 1);
ROLLBACK;
-- step one that is held when it expects something @11 (held at txn-activated)
UPDATE d SET v = v + 1 WHERE id = 13;
-- step others change what it expects @12
UPDATE few SET n = n + 10;
-- step and again @12
UPDATE few SET n = n + 10 WHERE id > 2;
-- step and add rows @12
INSERT INTO log SELECT i, 12 FROM generate_series(10, 15) i;
-- step and take some back @12
BEGIN;
INSERT INTO log SELECT i, 12 FROM generate_series(20, 25) i;
UPDATE few SET n = n + 100;
ROLLBACK;
-- step it goes on @11 (goes on)
-- step one that expects too much @11
UPDATE d SET v = v + 1 WHERE id = 12;
-- step the next one @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 14;
INSERT INTO log VALUES (7, 1);
UPDATE few SET n = n + 1 WHERE id = 5;
COMMIT;
-- step one more that is held, and was prepared @11 (held at txn-logged)
UPDATE d SET v = v + 1 WHERE id = 12;
-- step what it expects is dropped @12
DROP TABLE log;
-- step and vacuumed @12
VACUUM few;
-- step and used again @12
UPDATE few SET n = n + 10;
-- step it goes on without @11 (goes on)
-- step the last one @11
BEGIN;
UPDATE d SET v = v + 1 WHERE id = 14;
UPDATE few SET n = n + 1 WHERE id = 5;
COMMIT;

-- Transactions that begin where others did: the commit of one prepares the next
-- step a table for them
CREATE TABLE many (id int PRIMARY KEY, n int) USING sofort;
-- step row 1 @9
INSERT INTO many VALUES (1, 1);
-- step row 2 @9
INSERT INTO many VALUES (2, 1);
-- step row 3 @9
INSERT INTO many VALUES (3, 1);
-- step row 4 @9
INSERT INTO many VALUES (4, 1);
-- step row 5 @9
INSERT INTO many VALUES (5, 1);
-- step row 6 @9
INSERT INTO many VALUES (6, 1);
-- step row 7 @9
INSERT INTO many VALUES (7, 1);
-- step row 8 @9
INSERT INTO many VALUES (8, 1);
-- step one that only locks @9
SELECT FROM many WHERE id = 1 FOR UPDATE;
-- step row 9 @9
INSERT INTO many VALUES (9, 1);
-- step rolled back, when it was prepared @9
BEGIN;
INSERT INTO many VALUES (10, 1);
ROLLBACK;
-- step row 11 @9
INSERT INTO many VALUES (11, 1);
-- step row 12, held before its commit @9 (held at commit-before-durable)
INSERT INTO many VALUES (12, 1);
-- step others add theirs @12
INSERT INTO many SELECT i, 2 FROM generate_series(20, 24) i;
-- step and change them @12
UPDATE many SET n = n + 1;
-- step row 12 is there @9 (goes on)
-- step an update @9
UPDATE many SET n = n + 1 WHERE id = 2;
-- step again @9
UPDATE many SET n = n + 1 WHERE id = 2;
-- step and again @9
UPDATE many SET n = n + 1 WHERE id = 2;
-- step and once more @9
UPDATE many SET n = n + 1 WHERE id = 2;
-- step one that is held behind its link @9 (held at store-link-published)
UPDATE many SET n = n + 1 WHERE id = 2;
-- step others drain lines of it @12
INSERT INTO many VALUES (30, 2);
-- step and update @12
UPDATE many SET n = n + 1 WHERE id IN (3, 4, 30);
-- step it ends @9 (goes on)
-- step what it has prepared is emptied @12
TRUNCATE many;
-- step and filled @12
INSERT INTO many SELECT i, 3 FROM generate_series(1, 9) i;
-- step the session ends @9 (leaves)
INSERT INTO many VALUES (40, 1);
-- step its table goes @12
DROP TABLE many;

-- step a table of many rows @12
CREATE TABLE bulk (id int, n int) USING sofort;
-- step blocks in turn @12
INSERT INTO bulk SELECT i, 0 FROM generate_series(1, 3000) i;
-- step all of them changed @12
UPDATE bulk SET n = n + 1;
-- step changed and rolled back @12
BEGIN;
UPDATE bulk SET n = n + 1;
INSERT INTO bulk SELECT i, 1 FROM generate_series(1, 1500) i;
ROLLBACK;
-- step a savepoint in the middle of a run @12
BEGIN;
UPDATE bulk SET n = n + 1 WHERE id <= 1200;
SAVEPOINT s;
DELETE FROM bulk WHERE id > 600;
INSERT INTO bulk SELECT i, 7 FROM generate_series(1, 600) i;
ROLLBACK TO s;
DELETE FROM bulk WHERE id % 3 = 0;
COMMIT;
-- step their places are freed @12
VACUUM bulk;
-- step and used @12
INSERT INTO bulk SELECT i, 2 FROM generate_series(3001, 5000) i;
-- step a run that others cross @12
BEGIN;
UPDATE bulk SET n = n + 1 WHERE id % 2 = 0;
-- step they add rows to its blocks @11
INSERT INTO bulk SELECT i, 3 FROM generate_series(6001, 6700) i;
-- step and change some @11
UPDATE bulk SET n = n + 1 WHERE id % 4 = 1;
-- step it ends @12
COMMIT;
-- step few rows of each block are deleted @12
DELETE FROM bulk WHERE id % 100 = 7;
