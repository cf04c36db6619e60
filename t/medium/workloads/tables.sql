-- The workload whose every drain is a power cut (t/160_power_cuts.pl). Steps
-- are small: what counts is how many different things happen, not how often.

-- step what others have left in the space that is used again
CREATE TABLE junk (id int PRIMARY KEY, t text, u text) USING sofort;
-- step junk of all sizes
INSERT INTO junk SELECT i, repeat('junk', i * i), repeat(chr(250), i * 3) FROM generate_series(1, 60) i;
-- step junk of whole segments
INSERT INTO junk SELECT 100 + i, string_agg(md5(j::text), ''), NULL FROM generate_series(1, 3) i, generate_series(1, 4000) j GROUP BY i;
-- step junk is dropped
DROP TABLE junk;
-- step create
CREATE TABLE a (id int PRIMARY KEY, v int, t text, n numeric) USING sofort;
-- step insert one
INSERT INTO a VALUES (1, 10, 'one', 1.5);
-- step insert some
INSERT INTO a SELECT i, i * 10, 'row ' || i, i / 3.0 FROM generate_series(2, 12) i;
-- step update without index
UPDATE a SET v = v + 1 WHERE id = 1;
-- step update of the key
UPDATE a SET id = 101 WHERE id = 1;
-- step delete
DELETE FROM a WHERE id IN (2, 3);
-- step rolled back
BEGIN;
INSERT INTO a VALUES (200, 0, 'never', 0);
UPDATE a SET v = -1;
DELETE FROM a WHERE id = 5;
ROLLBACK;
-- step several statements
BEGIN;
INSERT INTO a VALUES (13, 130, 'thirteen', 13);
UPDATE a SET t = t || ' changed' WHERE id < 8;
DELETE FROM a WHERE id = 9;
COMMIT;
-- step unique violation (may fail)
INSERT INTO a VALUES (300, 0, 'first', 0), (13, 0, 'duplicate', 0);
-- step savepoints
BEGIN;
INSERT INTO a VALUES (14, 140, 'fourteen', 14);
SAVEPOINT s1;
INSERT INTO a VALUES (15, 150, 'undone', 15);
UPDATE a SET v = 0 WHERE id = 13;
SAVEPOINT s2;
DELETE FROM a WHERE id = 12;
ROLLBACK TO s2;
UPDATE a SET v = 1 WHERE id = 14;
RELEASE s2;
ROLLBACK TO s1;
UPDATE a SET v = v + 5 WHERE id = 14;
SAVEPOINT s3;
INSERT INTO a VALUES (16, 160, 'sixteen', 16);
RELEASE s3;
COMMIT;
-- step chain 1
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain 2
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain 3
UPDATE a SET v = v + 1, t = 'four' WHERE id = 4;
-- step chain, several in one transaction
BEGIN;
UPDATE a SET v = v + 1 WHERE id = 4;
UPDATE a SET v = v + 1 WHERE id = 4;
UPDATE a SET v = v + 1 WHERE id = 4;
UPDATE a SET v = v + 1 WHERE id = 4;
COMMIT;
-- step chain, long enough to be pruned
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain, pruned 1
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain, pruned 2
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain, pruned 3
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain, pruned 4
UPDATE a SET v = v + 1 WHERE id = 4;
-- step chain, rolled back
BEGIN;
UPDATE a SET v = 0 WHERE id = 4;
UPDATE a SET v = 1 WHERE id = 4;
ROLLBACK;
-- step update of everything
UPDATE a SET n = n * 2;
-- step update of every key
UPDATE a SET id = id + 1000;

-- step chains that will be dead as a whole
CREATE TABLE ch (id int PRIMARY KEY, v int) USING sofort;
-- step their roots
INSERT INTO ch SELECT i, i FROM generate_series(1, 6) i;
-- step their second versions
UPDATE ch SET v = v + 1;
-- step their third versions
UPDATE ch SET v = v + 1;
-- step they die
DELETE FROM ch;
-- step they are taken apart
VACUUM ch;
-- step two of their rows are used again
INSERT INTO ch VALUES (10, 10), (11, 11);
-- step and are not dead
UPDATE ch SET v = v + 1;
-- step and two more
INSERT INTO ch VALUES (12, 12), (13, 13);

-- step another table
CREATE TABLE b (id int PRIMARY KEY, c varchar(24), d int8, e float8, f char(10), g varchar(12)) USING sofort;
-- step copy
COPY b FROM STDIN;
1	red	1	1.5	aaa	x
2	green	2	2.5	bbb	\N
3	blue	3	\N	ccc	yy
4	red	4	4.5	\N	zzz
\.
-- step copy that fails (may fail)
COPY b FROM STDIN;
5	red	5	5.5	eee	e
1	red	1	1.5	aaa	x
\.
-- step fill the first blocks
INSERT INTO b SELECT i, 'colour ' || i % 7, i % 5, i / 2.0, 'f' || i % 3, NULL FROM generate_series(5, 20) i;
-- step the block at which encodings are decided
COPY b FROM PROGRAM 'awk "BEGIN { for (i = 21; i < 1025; i++) printf \"%d,colour %d,%d,%d,f%d,\\n\", i, i % 7, i % 5, i / 2, i % 3 }"' (FORMAT csv);
-- step rows of the new shape
INSERT INTO b SELECT i, 'colour ' || i % 7, i % 5, i / 2.0, 'f' || i % 3, NULL FROM generate_series(1101, 1110) i;
-- step a new value in a dictionary
INSERT INTO b VALUES (2000, 'a new colour', 77, 1, 'g', 'v');
-- step values that change nothing
INSERT INTO b VALUES (2001, 'a new colour', 77, 1, 'g', 'v');
-- step dictionary value of an aborted transaction
BEGIN;
INSERT INTO b VALUES (2002, 'aborted colour', 78, 1, 'h', 'v');
ROLLBACK;
-- step the aborted value again
INSERT INTO b VALUES (2003, 'aborted colour', 78, 1, 'h', 'v');
-- step dictionary value of an open transaction @2
BEGIN;
INSERT INTO b VALUES (2010, 'open colour', 79, 1, 'i', 'v');
-- step the same value of another @3
INSERT INTO b VALUES (2011, 'open colour', 79, 1, 'i', 'v');
-- step the open transaction ends @2
ROLLBACK;
-- step a wider shape
INSERT INTO b VALUES (2020, 'longer than any before', 1::int8 << 40, 1, 'j', 'w');
-- step many new values
INSERT INTO b SELECT 3000 + i, 'many ' || i % 15, i, 0, 'k' || i % 5, NULL FROM generate_series(1, 30) i;
-- step update across shapes
UPDATE b SET c = 'updated' WHERE id IN (1, 500, 1110, 2020);
-- step first NULL of a column
UPDATE b SET id = id + 10000, d = NULL WHERE id BETWEEN 1100 AND 1103;
-- step delete many
DELETE FROM b WHERE id BETWEEN 300 AND 400 OR id BETWEEN 800 AND 830;
-- step vacuum
VACUUM b;
-- step rows reused
INSERT INTO b SELECT i, 'reused', i % 3, i, 'r', NULL FROM generate_series(300, 315) i;
-- step rows reused again
INSERT INTO b SELECT i, 'reused', i % 3, i, 'r', NULL FROM generate_series(316, 330) i;
-- step vacuum after vacuum
VACUUM b;
-- step delete all
DELETE FROM b;
-- step vacuum releases runs
VACUUM b;
-- step after that
INSERT INTO b SELECT i, 'after', i, i, 'r', NULL FROM generate_series(1, 30) i;

-- step values by reference
CREATE TABLE r (id int PRIMARY KEY, big text, bytes bytea, arr int[]) USING sofort;
-- step long values
INSERT INTO r VALUES (1, repeat('abc', 1000), '\x00ff', ARRAY[1, 2, 3]), (2, repeat('x', 100), NULL, NULL);
-- step incompressible
INSERT INTO r SELECT 3, string_agg(md5(i::text), ''), NULL, NULL FROM generate_series(1, 400) i;
-- step a segment of its own
INSERT INTO r SELECT 4, string_agg(md5(i::text), ''), NULL, NULL FROM generate_series(1, 4000) i;
-- step long value rolled back
BEGIN;
INSERT INTO r SELECT 5, string_agg(md5(i::text), ''), NULL, NULL FROM generate_series(1, 4000) i;
ROLLBACK;
-- step long value updated
UPDATE r SET big = big || 'more' WHERE id = 4;
-- step short values, many slabs
INSERT INTO r SELECT i, repeat(chr(65 + i % 26), 20 + i % 60), NULL, ARRAY[i] FROM generate_series(10, 30) i;
-- step delete long
DELETE FROM r WHERE id IN (3, 4);
-- step vacuum long
VACUUM r;
-- step freed values reused
INSERT INTO r SELECT i, repeat(chr(65 + i % 26), 20 + i % 60), NULL, ARRAY[i] FROM generate_series(61, 70) i;
-- step freed rows reused with references
INSERT INTO r SELECT 100 + i, string_agg(md5(j::text), ''), NULL, NULL FROM generate_series(1, 4) i, generate_series(1, 100) j GROUP BY i;

-- step a second table
CREATE TABLE r2 (id int PRIMARY KEY, big text) USING sofort;
-- step its first row
INSERT INTO r2 VALUES (0, 'first');
-- step a value for a short time; its process does nothing after this @8
INSERT INTO r SELECT 900, string_agg(md5(i::text), ''), NULL, NULL FROM generate_series(1, 4000) i;
-- step another process deletes it @9
DELETE FROM r WHERE id = 900;
-- step and frees it, and does nothing after this @9
VACUUM r;
-- step its space goes to the other table @10
INSERT INTO r2 SELECT j, string_agg(md5(i::text), '') FROM generate_series(1, 4000) i, generate_series(1, 3) j GROUP BY j;
-- step a short value for a short time @11
INSERT INTO r VALUES (901, repeat('short', 380), NULL, NULL);
-- step another process deletes the short one @12
DELETE FROM r WHERE id = 901;
-- step and frees it @12
VACUUM r;
-- step its slot goes to the other table @13
INSERT INTO r2 SELECT 1000 + i, repeat('other', 380) FROM generate_series(1, 40) i;
-- step update of the key rolled back
BEGIN;
UPDATE r2 SET id = id + 100;
UPDATE a SET id = id + 5000 WHERE id < 1010;
ROLLBACK;
-- step update of the key under a savepoint
BEGIN;
SAVEPOINT s;
UPDATE r2 SET id = id + 100;
ROLLBACK TO s;
UPDATE r2 SET id = id + 200;
COMMIT;
-- step reserved and never used (may fail)
SELECT sofort_test.reserve_and_error(100000);
-- step reserved and never used, small (may fail)
SELECT sofort_test.reserve_and_error(1000);
-- step a second value that does not fit (may fail)
BEGIN;
SELECT sofort_test.fill_pool(400000);
INSERT INTO r SELECT 903, string_agg(md5(i::text), ''), (SELECT string_agg(sha512(j::text::bytea), '') FROM generate_series(1, 10000) j), NULL FROM generate_series(1, 4000) i;
ROLLBACK;
-- step secondary indexes
CREATE INDEX a_v ON a (v);
-- step unique expression index
CREATE UNIQUE INDEX a_t ON a ((t || id));
-- step btree beside
CREATE INDEX a_n ON a USING btree (n);
-- step insert with indexes
INSERT INTO a VALUES (50, 1, 'with indexes', 5), (51, 2, 'with indexes', 6);
-- step update with indexes
UPDATE a SET v = v + 1, n = n + 1 WHERE id = 50;
-- step update without indexed columns moved
UPDATE a SET t = 'x' WHERE id = 51;
-- step delete with btree
DELETE FROM a WHERE id = 51;
-- step vacuum with btree
VACUUM a;
-- step reuse after vacuum with btree
INSERT INTO a VALUES (52, 1, 'reuse', 5), (53, 2, 'reuse', 6), (54, 3, 'reuse', 7);
-- step drop btree
DROP INDEX a_n;
-- step drop index
DROP INDEX a_v;
-- step reindex
REINDEX TABLE a;

-- step heap twin
CREATE TABLE h (id int PRIMARY KEY, v int, t text) USING heap;
-- step mixed insert
BEGIN;
INSERT INTO h VALUES (1, 1, 'heap');
INSERT INTO a VALUES (401, 1, 'mixed', 0);
COMMIT;
-- step mixed update
BEGIN;
UPDATE a SET v = v + 1 WHERE id = 401;
UPDATE h SET v = v + 1;
COMMIT;
-- step mixed rolled back
BEGIN;
UPDATE a SET v = v + 1 WHERE id = 401;
UPDATE h SET v = v + 1;
DELETE FROM b;
ROLLBACK;
-- step heap only
INSERT INTO h VALUES (2, 2, 'alone');
-- step pure after heap
UPDATE a SET v = v + 1 WHERE id = 401;
-- step mixed, many rows
BEGIN;
INSERT INTO a SELECT 500 + i, i, 'bulk', i FROM generate_series(1, 12) i;
INSERT INTO h SELECT 500 + i, i, 'bulk' FROM generate_series(1, 12) i;
COMMIT;

-- step write set longer than its block
UPDATE b SET d = d + 1;
-- step write set with chunks
BEGIN;
INSERT INTO b SELECT i, 'chunk', i, i, 'r', NULL FROM generate_series(5000, 5030) i;
DELETE FROM b WHERE id < 20;
UPDATE b SET c = 'u' WHERE id % 2 = 0;
COMMIT;
-- step write set with chunks rolled back
BEGIN;
DELETE FROM b WHERE id > 5020;
UPDATE b SET c = 'v' WHERE id % 2 = 0;
UPDATE b SET c = 'w' WHERE id % 2 = 1;
ROLLBACK;

-- step add column
ALTER TABLE a ADD COLUMN x int;
-- step use it
INSERT INTO a VALUES (600, 1, 'new column', 0, 42);
-- step update it
UPDATE a SET x = id WHERE id < 60;
-- step add column with default
ALTER TABLE a ADD COLUMN y text DEFAULT 'missing';
-- step use default
INSERT INTO a (id, v) VALUES (601, 1);
-- step add column rolled back
BEGIN;
ALTER TABLE a ADD COLUMN z text;
INSERT INTO a (id, z) VALUES (602, 'zzz');
ROLLBACK;
-- step add it with another type
BEGIN;
ALTER TABLE a ADD COLUMN z int;
INSERT INTO a (id, z) VALUES (603, 7);
COMMIT;
-- step drop column
ALTER TABLE a DROP COLUMN x;
-- step rewrite
ALTER TABLE a ALTER COLUMN v TYPE bigint;
-- step after rewrite
INSERT INTO a (id, v) VALUES (604, 1);
-- step cluster
CLUSTER a USING a_pkey;
-- step vacuum full
VACUUM FULL r;
-- step after vacuum full
UPDATE r SET arr = ARRAY[9] WHERE id = 1;
-- step truncate
TRUNCATE r;
-- step after truncate
INSERT INTO r VALUES (1, repeat('abc', 1000), '\x00ff', ARRAY[1, 2, 3]);
-- step truncate rolled back
BEGIN;
TRUNCATE r;
INSERT INTO r VALUES (2, 'x', NULL, NULL);
ROLLBACK;
-- step create and drop in one transaction
BEGIN;
CREATE TABLE c (id int PRIMARY KEY, v text) USING sofort;
INSERT INTO c SELECT i, 'c' || i FROM generate_series(1, 20) i;
DROP TABLE c;
COMMIT;
-- step create rolled back
BEGIN;
CREATE TABLE c (id int PRIMARY KEY, v text) USING sofort;
INSERT INTO c SELECT i, 'c' || i FROM generate_series(1, 20) i;
ROLLBACK;
-- step create, fill and truncate in one transaction
BEGIN;
CREATE TABLE c (id int PRIMARY KEY, v text) USING sofort;
INSERT INTO c SELECT i, 'c' || i FROM generate_series(1, 20) i;
TRUNCATE c;
INSERT INTO c VALUES (1, 'one');
COMMIT;
-- step create table as
CREATE TABLE d USING sofort AS SELECT i AS id, 'd' || i AS v FROM generate_series(1, 30) i;
-- step drop
DROP TABLE d;
-- step drop rolled back
BEGIN;
DROP TABLE c;
ROLLBACK;
-- step create under a savepoint
BEGIN;
SAVEPOINT s;
CREATE TABLE e (id int PRIMARY KEY) USING sofort;
INSERT INTO e VALUES (1);
ROLLBACK TO s;
CREATE TABLE e (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO e VALUES (1, 2);
COMMIT;
-- step row locks
BEGIN;
SELECT * FROM e FOR UPDATE;
SELECT * FROM c FOR SHARE;
UPDATE e SET v = 3;
COMMIT;
-- step foreign key
CREATE TABLE f (id int PRIMARY KEY, e int REFERENCES e) USING sofort;
-- step insert child
INSERT INTO f VALUES (1, 1), (2, 1);
-- step on conflict
INSERT INTO e VALUES (1, 1), (2, 2) ON CONFLICT (id) DO UPDATE SET v = e.v + 100;
-- step on conflict do nothing
INSERT INTO e VALUES (1, 1), (3, 2) ON CONFLICT DO NOTHING;
-- step merge
MERGE INTO e USING (VALUES (3, 30), (4, 40)) s (id, v) ON e.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v);
-- step slots in turn 1
UPDATE e SET v = v + 1 WHERE id = 1;
-- step slots in turn 2
UPDATE e SET v = v + 1 WHERE id = 2;
-- step slots in turn 3
UPDATE e SET v = v + 1 WHERE id = 3;
-- step slots in turn 4
UPDATE e SET v = v + 1 WHERE id = 4;
-- step two at once @2
BEGIN;
UPDATE e SET v = -1 WHERE id = 1;
-- step second @3
BEGIN;
UPDATE e SET v = -2 WHERE id = 2;
-- step second commits @3
COMMIT;
-- step first commits @2
COMMIT;
-- step first again @2
BEGIN;
INSERT INTO e VALUES (10, 10);
DELETE FROM e WHERE id = 2;
-- step pure while open @3
INSERT INTO e VALUES (11, 11);
-- step first rolls back @2
ROLLBACK;
-- step copied frozen
BEGIN;
CREATE TABLE frozen (id int PRIMARY KEY, t text, v int) USING sofort;
COPY frozen FROM STDIN (FREEZE);
1	one	1
2	two	\N
3	a text that has a place of its own, behind the record, because it is longer than the others	3
\.
COMMIT;
-- step a frozen row is updated
UPDATE frozen SET v = 10 WHERE id = 1;
-- step and another deleted
DELETE FROM frozen WHERE id = 2;
-- step copied frozen into what was there before
BEGIN;
TRUNCATE frozen;
COPY frozen FROM PROGRAM 'awk "BEGIN { for (i = 1; i < 41; i++) printf \"%d,text %d,%d\n\", i, i % 9, i }"' (FORMAT csv, FREEZE);
COMMIT;
-- step copied frozen and rolled back
BEGIN;
TRUNCATE frozen;
COPY frozen FROM STDIN (FREEZE);
1	never	1
\.
ROLLBACK;
-- step beside frozen rows
INSERT INTO frozen VALUES (2000, 'not frozen', 1);
-- step materialized view
CREATE MATERIALIZED VIEW totals USING sofort AS SELECT t, count(*) AS n, sum(v) AS v FROM frozen GROUP BY t;
-- step index of a materialized view
CREATE UNIQUE INDEX totals_t ON totals (t);
-- step what the view does not know yet
UPDATE frozen SET t = 'text 0' WHERE id < 4;
-- step refresh
REFRESH MATERIALIZED VIEW totals;
-- step it changes again
DELETE FROM frozen WHERE id BETWEEN 10 AND 12;
-- step refresh concurrently
REFRESH MATERIALIZED VIEW CONCURRENTLY totals;
-- step refresh rolled back
BEGIN;
UPDATE frozen SET v = 0 WHERE id = 5;
REFRESH MATERIALIZED VIEW totals;
ROLLBACK;
-- step vacuum of frozen rows
VACUUM frozen, totals;
-- step vacuum everything
VACUUM a, b, c, e, f, r;
-- step last
INSERT INTO e VALUES (12, 12);
