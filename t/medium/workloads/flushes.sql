-- For single flushes and drains that nothing in the other workloads depends on: mostly, one session stops with
-- what it has stored and not drained, and others build on that (t/160_power_cuts.pl).

-- step entered: a value of fixed length at a freed code @8 (held at dictionary-value-entered)
INSERT INTO freed VALUES (5000, 777.5);
-- step another has the same value @9
INSERT INTO freed VALUES (5001, 777.5);
-- step it goes on @8 (goes on)
SELECT 1;
-- step entered: a new value @8 (held at dictionary-value-entered)
INSERT INTO fresh VALUES (5000, 'brand new');
-- step another has the new value @9
INSERT INTO fresh VALUES (5001, 'brand new');
-- step that goes on @8 (goes on)
SELECT 1;

-- step extended
CREATE TABLE extended (id int, v text) USING sofort;
-- step extended: a block @8 (held at store-extended)
INSERT INTO extended VALUES (1, 'first');
-- step another uses it @9
INSERT INTO extended VALUES (2, 'second'), (3, 'third');
-- step a block goes on @8 (goes on)
SELECT 1;

-- step taken: most of the pool @2
BEGIN;
SELECT sofort_test.fill_pool(33 * 1024 * 1024);
-- step taken: words of granules that were never used @8 (held at pmem-granules-taken)
INSERT INTO val SELECT 700, string_agg(md5(i::text), '') FROM generate_series(1, 70000) i;
-- step another takes more @9
INSERT INTO val2 SELECT 700, string_agg(md5(i::text), '') FROM generate_series(1, 40000) i;
-- step the granules go on @8 (goes on)
SELECT 1;
-- step room again @2
ROLLBACK;
-- step room
DELETE FROM val WHERE id = 700;
-- step more room
DELETE FROM val2 WHERE id = 700;
-- step given back
VACUUM val, val2;

-- step runs: the middle goes
DELETE FROM middle WHERE id BETWEEN 1100 AND 3000;
-- step runs: is given back @9
VACUUM middle;
-- step runs: and used
INSERT INTO val SELECT 800 + j, string_agg(md5((i + j)::text), '') FROM generate_series(1, 1900) i, generate_series(1, 12) j GROUP BY j;
-- step runs: and free again
DELETE FROM val WHERE id > 800;
-- step runs: given back once more
VACUUM val;
-- step linked: an error behind a link @13 (may fail)
SELECT sofort_test.arm('pmem-linked', 'error');
INSERT INTO val VALUES (820, repeat('gone', 500));
-- step linked: others go on @9
INSERT INTO q VALUES (400, 1, 'others');
-- step linked: its place is used, and its slot @9
INSERT INTO val SELECT 830 + i, repeat('slot', 500) FROM generate_series(1, 40) i;
-- step forgotten: an error in a hole @14 (may fail)
SELECT sofort_test.arm('store-block-published', 'error');
INSERT INTO middle SELECT i, i FROM generate_series(5001, 7500) i;
-- step forgotten: given back by another @9
VACUUM middle;
-- step forgotten: and used by a third
INSERT INTO val2 SELECT 800 + j, string_agg(md5((i + j)::text), '') FROM generate_series(1, 1900) i, generate_series(1, 12) j GROUP BY j;
-- step forgotten: free again
DELETE FROM val2 WHERE id > 800;

-- step dropped
CREATE TABLE dropped (id int, t text) USING sofort;
-- step dropped: with segments of many granules
INSERT INTO dropped SELECT j, string_agg(md5((i + j)::text), '') FROM generate_series(1, 33000) i, generate_series(1, 3) j GROUP BY j;
-- step dropped: and not drained @10 (held at pmem-owner-freed)
DROP TABLE dropped;
-- step dropped: others take them @9
INSERT INTO val2 SELECT 600, string_agg(md5(i::text), '') FROM generate_series(1, 80000) i;
-- step dropped: they are gone @10 (goes on)
SELECT 1;
-- step dropped: no more
DELETE FROM val2 WHERE id = 600;

-- step slot: values go
DELETE FROM val WHERE id > 3;
-- step slot: one is freed; its intent is not drained @10 (held at pmem-freed)
VACUUM val;
-- step slot: goes to another @9
INSERT INTO val SELECT 100 + i, repeat('takes', 400) FROM generate_series(1, 40) i;
-- step slot: vacuum ends @10 (goes on)
SELECT 1;

-- step links
CREATE TABLE links (id int PRIMARY KEY, v int) USING sofort;
-- step links: roots, whose links are a line
INSERT INTO links SELECT i, i FROM generate_series(1, 8) i;
-- step links: second versions
UPDATE links SET v = v + 1;
-- step links: third versions
UPDATE links SET v = v + 1;
-- step links: they die
DELETE FROM links;
-- step links: they are taken apart
VACUUM links;
-- step links: time goes by
INSERT INTO q VALUES (602, 1, 'others');
-- step links: and more @10
INSERT INTO q VALUES (603, 1, 'others');
-- step links: so that it is usable
VACUUM q;
-- step links: all of their rows are used again
INSERT INTO links SELECT 10 + i, i FROM generate_series(1, 18) i;
-- step links: once more
UPDATE links SET v = v + 1;
-- step links: die
DELETE FROM links;
-- step links: apart
VACUUM links;
-- step links, twice: time goes by
INSERT INTO q VALUES (604, 1, 'others');
-- step links, twice: and more @10
INSERT INTO q VALUES (605, 1, 'others');
-- step links, twice: so that it is usable
VACUUM q;
-- step links: used
INSERT INTO links SELECT 40 + i, i FROM generate_series(1, 36) i;

-- step straddle
CREATE TABLE straddle (a int8, b int8) USING sofort;
-- step straddle: rows, of which one has its words in two lines
INSERT INTO straddle SELECT i, i FROM generate_series(1, 8) i;
-- step straddle: version 1
UPDATE straddle SET b = b + 1 WHERE a = 1;
-- step straddle: version 2
UPDATE straddle SET b = b + 1 WHERE a = 2;
-- step straddle: version 3
UPDATE straddle SET b = b + 1 WHERE a = 3;
-- step straddle: version 4
UPDATE straddle SET b = b + 1 WHERE a = 4;
-- step straddle: version 5
UPDATE straddle SET b = b + 1 WHERE a = 5;
-- step straddle: version 6
UPDATE straddle SET b = b + 1 WHERE a = 6;
-- step straddle: and a version between others; it dies
DELETE FROM straddle WHERE a = 4;
-- step straddle: is freed
VACUUM straddle;
-- step straddle: time goes by
INSERT INTO q VALUES (606, 1, 'others');
-- step straddle: and more @10
INSERT INTO q VALUES (607, 1, 'others');
-- step straddle: so that it is usable
VACUUM q;
-- step straddle: its root is used
INSERT INTO straddle VALUES (101, 0);
-- step straddle: and it
INSERT INTO straddle VALUES (102, 0);

-- step pruned
CREATE TABLE pruned (id int, v int) USING sofort;
-- step pruned: a row
INSERT INTO pruned VALUES (1, 1);
-- step pruned: an old snapshot @2
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM q;
-- step pruned: version 1
UPDATE pruned SET v = v + 1;
-- step pruned: version 2
UPDATE pruned SET v = v + 1;
-- step pruned: version 3
UPDATE pruned SET v = v + 1;
-- step pruned: version 4
UPDATE pruned SET v = v + 1;
-- step pruned: version 5
UPDATE pruned SET v = v + 1;
-- step pruned: version 6
UPDATE pruned SET v = v + 1;
-- step pruned: version 7
UPDATE pruned SET v = v + 1;
-- step pruned: version 8
UPDATE pruned SET v = v + 1;
-- step pruned: version 9
UPDATE pruned SET v = v + 1;
-- step pruned: version 10
UPDATE pruned SET v = v + 1;
-- step pruned: version 11
UPDATE pruned SET v = v + 1;
-- step pruned: version 12
UPDATE pruned SET v = v + 1;
-- step pruned: version 13
UPDATE pruned SET v = v + 1;
-- step pruned: version 14
UPDATE pruned SET v = v + 1;
-- step pruned: version 15
UPDATE pruned SET v = v + 1;
-- step pruned: version 16
UPDATE pruned SET v = v + 1;
-- step pruned: version 17
UPDATE pruned SET v = v + 1;
-- step pruned: version 18
UPDATE pruned SET v = v + 1;
-- step pruned: version 19
UPDATE pruned SET v = v + 1;
-- step pruned: version 20
UPDATE pruned SET v = v + 1;
-- step pruned: the snapshot goes @2
COMMIT;
-- step pruned: old versions are freed @9
VACUUM pruned;
-- step pruned: time goes by
INSERT INTO q VALUES (608, 1, 'others');
-- step pruned: and more @10
INSERT INTO q VALUES (609, 1, 'others');
-- step pruned: so that it is usable
VACUUM q;
-- step pruned: and used
INSERT INTO pruned VALUES (2, 1), (3, 1);
-- step pruned: others
INSERT INTO q VALUES (401, 1, 'others');

-- step wide
CREATE TABLE wide (id int PRIMARY KEY, a int8, b int8, c int8, d int8, e int8, f int8, g int8, h int8) USING sofort;
-- step wide: held between the look for a key and the insertion @8 (held at store-row-written)
BEGIN;
INSERT INTO wide VALUES (200, 1);
INSERT INTO wide VALUES (201, 1) ON CONFLICT DO NOTHING;
-- step wide: another has the key
INSERT INTO wide VALUES (201, 2);
-- step wide: the first gives up @8 (goes on)
COMMIT;
-- step wide: others after that
UPDATE wide SET a = a + 1 WHERE id = 201;

-- step btree: entries of an open transaction @2
BEGIN;
INSERT INTO bt VALUES (100, 100);
-- step btree: others flush its WAL
CREATE TABLE sometable (id int) USING heap;
-- step btree: and drain
INSERT INTO q VALUES (402, 1, 'others');
-- step btree: it goes @2
ROLLBACK;
-- step btree: new keys of an open transaction @2
BEGIN;
UPDATE bt SET id = 200 WHERE id = 3;
-- step btree: others flush that
DROP TABLE sometable;
-- step btree: that goes @2
ROLLBACK;

-- step btree: rows are copied, by a transaction that is open @2
BEGIN;
COPY bt FROM STDIN;
300	1
301	2
302	3
\.
-- step btree: others flush its WAL, too
CREATE TABLE sometable (id int) USING heap;
-- step btree: and drain, too
INSERT INTO q VALUES (407, 1, 'others');
-- step btree: no rows @2
ROLLBACK;

-- step follow: a new key
UPDATE follow SET id = 10 WHERE id = 1;
-- step follow: another new key
UPDATE follow SET id = 11 WHERE id = 10;

-- step follow: new keys, undone @12
BEGIN;
UPDATE follow SET id = id + 100;
ROLLBACK;
-- step follow: others
INSERT INTO q VALUES (406, 1, 'others');
-- step follow: their write set is forgotten @12
DO $$ BEGIN FOR i IN 1..20 LOOP UPDATE q SET v = v WHERE id = 402; COMMIT; END LOOP; END $$;
-- step follow: old versions are kept @2
BEGIN;
INSERT INTO q VALUES (408, 1, 'prepared');
PREPARE TRANSACTION 'follow';
-- step follow: once more, held when that is undone @12 (held at abort-undone)
BEGIN;
UPDATE follow SET id = id + 100;
ROLLBACK;
-- step follow: others go on with these versions
UPDATE follow SET v = v + 1;
-- step follow: and again
UPDATE follow SET v = v + 1;
-- step follow: it ends @12 (goes on)
SELECT 1;
-- step follow: kept no longer
ROLLBACK PREPARED 'follow';

-- step follow: an old snapshot @2
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM q;
-- step follow: a new key beside it
UPDATE follow SET id = 20 WHERE id = 2;
-- step follow: copied, with the old version
CLUSTER follow USING follow_pkey;
-- step follow: the snapshot goes @2
COMMIT;

-- step taken back: a version @12
BEGIN;
UPDATE back SET v = 0 WHERE id = 1;
INSERT INTO q VALUES (476, 1, 'drains');
ROLLBACK;
-- step taken back: it is freed @9
VACUUM back;
-- step taken back: time goes by
INSERT INTO q VALUES (474, 1, 'others');
-- step taken back: and more @10
INSERT INTO q VALUES (475, 1, 'others');
-- step taken back: so that its place is usable
VACUUM q;
-- step taken back: its row ends
DELETE FROM back WHERE id = 1;
-- step taken back: its place is used
UPDATE back SET v = 0 WHERE id = 20;
-- step taken back: and again
INSERT INTO back VALUES (21, 21);

-- step counted
CREATE TABLE counted (id int PRIMARY KEY) USING sofort;
-- step counted: a row
INSERT INTO counted VALUES (1);
-- step counted: used and saved @13
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT count(*) FROM q;
DO $$ DECLARE saves bigint := sofort_test.workload_saves(); BEGIN
    FOR i IN 1..100 LOOP EXIT WHEN sofort_test.workload_saves() >= saves + 2; PERFORM pg_sleep(0.1); END LOOP; END $$;
-- step counted: others
INSERT INTO q VALUES (403, 1, 'others');
-- step counted: more @13
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT FROM counted WHERE id = 1;
SELECT count(*) FROM q;
DO $$ DECLARE saves bigint := sofort_test.workload_saves(); BEGIN
    FOR i IN 1..100 LOOP EXIT WHEN sofort_test.workload_saves() >= saves + 2; PERFORM pg_sleep(0.1); END LOOP; END $$;
-- step counted: others again
INSERT INTO q VALUES (404, 1, 'others');

-- step placed: another place @9
SELECT sofort.set_dictionary_placement('placed', 'n', 'hybrid');
-- step placed: back @9
SELECT sofort.set_dictionary_placement('placed', 'n', 'pmem');
-- step placed: values
INSERT INTO placed SELECT 2000 + i, 'new value ' || i, i FROM generate_series(1, 60) i;
-- step placed: a rewrite keeps it @9
TRUNCATE placed;
-- step placed: rows again
INSERT INTO placed SELECT i, repeat('value ', 6) || i % 20, i % 20 * 1000 FROM generate_series(1, 1100) i;
-- step placed: before there is a dictionary @9
SELECT sofort.set_dictionary_placement('early', 's', 'pmem');
-- step placed: it is made
INSERT INTO early SELECT i, 'value ' || i % 20 FROM generate_series(1001, 1200) i;

-- step ascending
CREATE TABLE up (id int) USING sofort;
-- step ascending: wide keys, so that nodes are small
CREATE INDEX up_wide ON up USING sofort_index ((lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid),
    (lpad(id::text, 32, '0')::uuid), (id::int8)) WITH (placement = pmem);
-- step ascending: leaves
INSERT INTO up SELECT i FROM generate_series(1, 60) i;
-- step ascending: inner nodes
INSERT INTO up SELECT i FROM generate_series(61, 224) i;
-- step ascending: there is a leaf behind the last, which is full @8 (held at tree-split-done)
INSERT INTO up VALUES (225);
-- step ascending: another comes into it @9
INSERT INTO up VALUES (226);
-- step ascending: and goes on @8 (goes on)
SELECT 1;
-- step merged: all leaves are visited, and most of one goes @9
SET enable_seqscan = off;
SELECT count(*) FROM merged WHERE lpad(id::text, 32, '0')::uuid >= lpad('0', 32, '0')::uuid;
DELETE FROM merged WHERE id BETWEEN 5 AND 16;
-- step merged: what is left comes to its neighbour @8 (held at index-leaf-vacuumed)
VACUUM merged;
-- step merged: time goes by, with a new leaf @9
INSERT INTO merged SELECT i FROM generate_series(61, 80) i;
-- step merged: its place is taken by another @9
INSERT INTO merged VALUES (81);
-- step merged: the leaf goes on @8 (goes on)
SELECT 1;
-- step validated: an index @8 (held at tree-complete)
CREATE INDEX CONCURRENTLY up_id ON up USING sofort_index (id) WITH (placement = pmem);
-- step validated: a row that its build has not seen
INSERT INTO up VALUES (1000);
-- step validated: it goes on @8 (goes on)
-- step validated: others
INSERT INTO q VALUES (405, 1, 'others');

-- step undone drop
CREATE TABLE stays (id int, v text) USING sofort;
-- step undone drop: rows
INSERT INTO stays VALUES (1, 'stays');
-- step undone drop: under a savepoint @9
BEGIN;
INSERT INTO q VALUES (410, 1, 'with it');
INSERT INTO val VALUES (410, 'with it');
INSERT INTO links VALUES (410, 1);
SAVEPOINT s;
DROP TABLE stays;
ROLLBACK TO s;
COMMIT;
-- step undone drop: it is there
INSERT INTO stays VALUES (2, 'still');

-- step leaves: with stamps that are not drained @15 (leaves)
INSERT INTO wide SELECT i, i FROM generate_series(300, 304) i;
-- step leaves: its place is taken, and its slots @15
DO $$ BEGIN FOR i IN 1..40 LOOP UPDATE q SET v = v WHERE id = 3; ROLLBACK; END LOOP; END $$;
-- step leaves: others
INSERT INTO q VALUES (420, 1, 'others');

-- step generations: a first one @14
SELECT sofort_test.set_generations(0);
BEGIN;
INSERT INTO q VALUES (430, 1, 'first');
INSERT INTO val VALUES (430, 'first');
INSERT INTO links VALUES (430, 1);
CREATE TABLE first (id int, v text) USING sofort;
INSERT INTO first VALUES (1, 'first');
COMMIT;
-- step generations: slots come round @14
DO $$ BEGIN FOR i IN 1..15 LOOP UPDATE q SET v = v WHERE id = 3; ROLLBACK; END LOOP; END $$;
-- step generations: and numbers @14
SELECT sofort_test.set_generations(16383);
BEGIN;
INSERT INTO q VALUES (431, 1, 'open');
-- step generations: others
INSERT INTO wide VALUES (431, 1);
-- step generations: ends @14
COMMIT;
-- step undone links: several versions @5
BEGIN;
UPDATE q SET v = -1 WHERE id < 6;
UPDATE q SET v = -2 WHERE id < 6;
ROLLBACK;
-- step undone links: others @6
INSERT INTO wide VALUES (440, 1);
-- step undone rows: new ones @4
BEGIN;
INSERT INTO wide SELECT i, i FROM generate_series(450, 453) i;
DELETE FROM wide WHERE id = 300;
ROLLBACK;
-- step undone rows: others @6
INSERT INTO q VALUES (441, 1, 'others');
-- step valued: values that are new @9
INSERT INTO placed SELECT 3000 + i, 'another value ' || i, i FROM generate_series(1, 60) i;
-- step aborted column
CREATE TABLE aborted (id int, a int) USING sofort;
-- step aborted column: rows
INSERT INTO aborted SELECT i, i FROM generate_series(1, 5) i;
-- step aborted column: rolled back @14
BEGIN;
ALTER TABLE aborted ADD b int;
INSERT INTO aborted VALUES (6, 6, 6);
ROLLBACK;
-- step aborted column: slots come round @14
DO $$ BEGIN FOR i IN 1..17 LOOP UPDATE q SET v = v WHERE id = 3; ROLLBACK; END LOOP; END $$;
-- step aborted column: with another type
ALTER TABLE aborted ADD b text;
-- step aborted column: used
INSERT INTO aborted VALUES (7, 7, 'seven');
-- step aborted column: and then
INSERT INTO q VALUES (998, 1, 'others');
-- step shrunk: before
INSERT INTO q VALUES (996, 1, 'before');
-- step shrunk: in place
BEGIN;
CREATE TABLE shrunk (id int, t text) USING sofort;
INSERT INTO shrunk SELECT i, repeat('shrunk', 20) || i FROM generate_series(1, 20) i;
TRUNCATE shrunk;
INSERT INTO shrunk VALUES (1, 'one');
COMMIT;
-- step shrunk: others
INSERT INTO q VALUES (997, 1, 'others');
-- step reused: roots and versions @13
BEGIN;
CREATE TABLE reused (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO reused SELECT i, i FROM generate_series(1, 40) i;
UPDATE reused SET v = 101 WHERE id = 1;
CREATE TABLE tail (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO tail SELECT i, i FROM generate_series(1, 40) i;
UPDATE tail SET v = 101 WHERE id = 1;
INSERT INTO tail SELECT i, i FROM generate_series(51, 60) i;
COMMIT;
-- step reused: roots in other lines go @13
BEGIN;
DELETE FROM reused WHERE id = 20;
DELETE FROM tail WHERE id = 60;
COMMIT;
-- step reused: slots come round @13
DO $$ BEGIN FOR i IN 1..17 LOOP UPDATE q SET v = v WHERE id = 3; ROLLBACK; END LOOP; END $$;
-- step reused: is freed @14
VACUUM reused;
-- step reused tail: is freed
VACUUM tail;
-- step reused: time goes by @9
INSERT INTO q VALUES (460, 1, 'others');
-- step reused: and more
UPDATE reused SET v = 102 WHERE id = 1;
-- step reused: so that it is usable
VACUUM reused;
-- step reused: for the next version
UPDATE reused SET v = 103 WHERE id = 1;
-- step reused: others
INSERT INTO q VALUES (461, 1, 'others');
-- step stale
CREATE TABLE stale (id int PRIMARY KEY, v int, t text) USING sofort;
-- step stale: roots, whose links are a line
INSERT INTO stale SELECT i, i, repeat('t' || i, 20) FROM generate_series(1, 8) i;
-- step stale: second versions
UPDATE stale SET v = v + 1;
-- step stale: third versions, whose links lead to these
UPDATE stale SET v = v + 1;
-- step stale: fourth versions
UPDATE stale SET v = v + 1;
-- step stale: they die
DELETE FROM stale;
-- step stale: they are taken apart
VACUUM stale;
-- step stale: time goes by
INSERT INTO q VALUES (462, 1, 'others');
-- step stale: and more @10
INSERT INTO q VALUES (463, 1, 'others');
-- step stale: so that it is usable
VACUUM q;
-- step stale: rows in the places of the second versions
INSERT INTO stale SELECT 10 + i, i, repeat('u' || i, 20) FROM generate_series(1, 16) i;
-- step stale: and of the third
INSERT INTO stale SELECT 30 + i, i, repeat('v' || i, 20) FROM generate_series(1, 16) i;
-- step led
CREATE TABLE led (id int PRIMARY KEY, v int) USING sofort;
-- step led: roots
INSERT INTO led SELECT i, i FROM generate_series(1, 8) i;
-- step led: second versions
UPDATE led SET v = v + 1;
-- step led: third versions, whose links lead to these
UPDATE led SET v = v + 1;
-- step led: they die
DELETE FROM led;
-- step led: they are taken apart
VACUUM led;
-- step led: time goes by
INSERT INTO q VALUES (471, 1, 'others');
-- step led: and more @10
INSERT INTO q VALUES (472, 1, 'others');
-- step led: so that it is usable
VACUUM q;
-- step led: rows in their places, by one who does not drain @8
BEGIN;
INSERT INTO led SELECT 10 + i, i FROM generate_series(1, 24) i;
-- step led: others
INSERT INTO q VALUES (473, 1, 'others');
-- step led: it ends @8
COMMIT;
-- step loser
CREATE TABLE loser (id int PRIMARY KEY, t text) USING sofort;
-- step loser: rows
INSERT INTO loser SELECT i, string_agg(md5((100 * i + k)::text), '') FROM generate_series(1, 20) i, generate_series(1, 62) k GROUP BY i;
-- step loser: held between the look for a key and the insertion @8 (held at pmem-linked)
BEGIN;
INSERT INTO loser VALUES (0, repeat('lost', 496)) ON CONFLICT DO NOTHING;
-- step loser: another has the key @9
INSERT INTO loser VALUES (0, repeat('won ', 496));
-- step loser: it has lost @8 (goes on)
SELECT 1;
-- step loser: time goes by
INSERT INTO q VALUES (464, 1, 'others');
-- step loser: its row is freed @9
VACUUM loser;
-- step loser: and more @10
INSERT INTO q VALUES (465, 1, 'others');
-- step loser: it has ended for others @8 (held at pmem-releasing)
ROLLBACK;
-- step loser: and more, too @10
INSERT INTO q VALUES (466, 1, 'others');
-- step loser: so that it is usable @9
VACUUM q;
-- step loser: its place is used, and what it had @9
INSERT INTO loser SELECT i, string_agg(md5((100 * i + k)::text), '') FROM generate_series(101, 145) i, generate_series(1, 62) k GROUP BY i;
-- step loser: others
INSERT INTO q VALUES (467, 1, 'others');
-- step loser: it ends @8 (goes on)
SELECT 1;
-- step vector
CREATE TABLE vector (id int PRIMARY KEY, v int) USING sofort;
-- step vector: rows
INSERT INTO vector SELECT i, i FROM generate_series(1, 5) i;
-- step vector: their block gets links, which are not drained @8 (held at pmem-linked)
UPDATE vector SET v = 0 WHERE id = 1;
-- step vector: another uses them @9
UPDATE vector SET v = 0 WHERE id = 2;
-- step vector: others
INSERT INTO q VALUES (468, 1, 'others');
-- step vector: the first goes on @8 (goes on)
SELECT 1;
-- step resolved
CREATE TABLE resolved (id int PRIMARY KEY, v int) USING sofort;
-- step resolved: rows
INSERT INTO resolved SELECT i, i FROM generate_series(1, 5) i;
-- step resolved: prepared @10
BEGIN;
UPDATE resolved SET v = 0 WHERE id < 3;
INSERT INTO resolved VALUES (6, 6);
PREPARE TRANSACTION 'resolved';
-- step resolved: an error behind the stamps @13 (may fail)
SELECT sofort_test.arm('twophase-stamped', 'error');
COMMIT PREPARED 'resolved';
-- step resolved: another goes on @9
INSERT INTO q VALUES (469, 1, 'others');
-- step resolved: others
INSERT INTO q VALUES (470, 1, 'others');
-- step copied: more values than there are intents
COPY val FROM PROGRAM 'awk "BEGIN { for (i = 2000; i < 2250; i++) printf \"%d,a value of its own for row number %d\n\", i, i * 7919 }"' (FORMAT csv);
-- step last
INSERT INTO q VALUES (999, 1, 'last');
