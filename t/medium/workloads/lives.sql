-- What only the next lives show (t/161_lost_flushes.pl): all processes are killed in the middle of one of these steps, and
-- what is built on what they have left is cut. (Transactions of session 8 are resolved last.)
-- slots 2 3 4 5 6 9 8

-- step other @8
CREATE TABLE other (id int PRIMARY KEY, v text) USING sofort;
-- step mixed @8
CREATE TABLE mixed (id int) USING sofort;
-- step other: rows
INSERT INTO other SELECT i, 'other' FROM generate_series(1, 5) i;

-- step collated: the version of its collation changes
DO $$ DECLARE locale name := (SELECT attname FROM pg_attribute WHERE attrelid = 'pg_collation'::regclass AND attname IN ('colliculocale', 'colllocale')); BEGIN EXECUTE format('UPDATE pg_collation c SET %1$I = (SELECT o.%1$I FROM pg_collation o WHERE o.collprovider = ''i'' AND o.collversion <> c.collversion ORDER BY o.collname LIMIT 1) WHERE collname = ''changes''', locale); END $$;
-- step collated: others
INSERT INTO other VALUES (10, 'others');

-- step root
CREATE TABLE rooted (id int) USING sofort;
-- step root: wide keys, 16 to a leaf
CREATE INDEX rooted_wide ON rooted USING sofort_index ((lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid),
    (lpad(id::text, 32, '0')::uuid), (id::int8)) WITH (placement = pmem);
-- step root: a full leaf
INSERT INTO rooted SELECT i FROM generate_series(1, 16) i;
-- step root: another one
INSERT INTO rooted VALUES (17);
-- step root: others
INSERT INTO other VALUES (20, 'others');

-- step chained
CREATE TABLE chained (id int) USING sofort;
-- step chained: wide keys, 16 to a leaf
CREATE INDEX chained_wide ON chained USING sofort_index ((lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid),
    (lpad(id::text, 32, '0')::uuid), (id::int8)) WITH (placement = hybrid);
-- step chained: a full leaf
INSERT INTO chained SELECT i FROM generate_series(1, 16) i;
-- step chained: another one
INSERT INTO chained VALUES (17);
-- step chained: others
INSERT INTO other VALUES (30, 'others');

-- step gone
CREATE TABLE gone (id int) USING sofort;
-- step gone: wide keys, 16 to a leaf
CREATE INDEX gone_wide ON gone USING sofort_index ((lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid), (lpad(id::text, 32, '0')::uuid),
    (lpad(id::text, 32, '0')::uuid), (id::int8)) WITH (placement = pmem);
-- step gone: two leaves
INSERT INTO gone SELECT i FROM generate_series(1, 30) i;
-- step gone: rows
DELETE FROM gone WHERE id IN (3, 4);
-- step gone: and their entries @9
VACUUM gone;
-- step gone: others
INSERT INTO other VALUES (40, 'others');

-- step emptied
CREATE UNLOGGED TABLE emptied (id int, v int) USING sofort;
-- step emptied: rows
INSERT INTO emptied SELECT i, i FROM generate_series(1, 6) i;
-- step emptied: one that nobody writes to any more
CREATE UNLOGGED TABLE forgotten (id int, v int) USING sofort;
-- step emptied: its rows
INSERT INTO forgotten SELECT i, i FROM generate_series(1, 300) i;

-- step locked
CREATE TABLE unlocked (id int, v int) USING sofort;
-- step locked: a row
INSERT INTO unlocked VALUES (1, 1);
-- step locked: its second version
UPDATE unlocked SET v = 2;
-- step locked: a row between the versions
INSERT INTO unlocked VALUES (2, 1);
-- step locked: a third one, in progress @4
BEGIN;
UPDATE unlocked SET v = 3 WHERE id = 1;
-- step locked: by one that is prepared @2
BEGIN;
SELECT FROM unlocked WHERE id = 1 FOR KEY SHARE;
SELECT FROM emptied WHERE id < 4 FOR KEY SHARE;
PREPARE TRANSACTION 'locks';
-- step locked: it is there @4
COMMIT;
-- step locked: the second version is freed @9
VACUUM unlocked;
-- step locked: others
INSERT INTO other VALUES (50, 'others');
-- step locked: no more
ROLLBACK PREPARED 'locks';

-- step kept
CREATE TABLE kt (step int PRIMARY KEY, v int, t text) USING sofort;
-- step kept: total
CREATE TABLE kt_total (id int PRIMARY KEY, n int) USING sofort;
-- step kept: what somebody was told
CREATE TABLE told (n bigint) USING sofort;
-- step kept: one
INSERT INTO kt_total VALUES (1, 0);
-- step kept: begins @8 (kept)
BEGIN;
SELECT sofort.keep_transaction('kept');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
-- step kept: goes on @8
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
-- step kept: others
INSERT INTO other VALUES (60, 'others');
-- step kept: a statement that is cut @8
DO $$ BEGIN INSERT INTO kt VALUES (3, 3, repeat('t', 90)); INSERT INTO kt SELECT 100 + i, i, 'between' FROM generate_series(1, 8) i; UPDATE kt_total SET n = 3; DELETE FROM kt WHERE step = 0 OR step > 100; UPDATE kt SET v = v + 1 WHERE step = 2; END $$;
-- step kept: others again
INSERT INTO other VALUES (61, 'others');
-- step kept: rolled back @8
ROLLBACK;

-- step finished: one that is prepared @2
BEGIN;
INSERT INTO other VALUES (80, 'prepared');
PREPARE TRANSACTION 'finished';
-- step finished: by who does nothing else @3
COMMIT PREPARED 'finished';
-- step finished: xids go by @9
SELECT sofort_test.burn_xids(1200000);
-- step finished: the commit log of earlier ones is not needed elsewhere @9
UPDATE pg_database SET datfrozenxid = txid_current()::text::xid WHERE datname IN ('template0', 'template1');
-- step finished: nor here @9
VACUUM (FREEZE);
-- step finished: others
INSERT INTO other VALUES (81, 'others');
-- step last
INSERT INTO other VALUES (999, 'last');
