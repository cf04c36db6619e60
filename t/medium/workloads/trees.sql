-- Indexes in the pool (t/160_power_cuts.pl). Wide keys make leaves of 16 entries
-- and inner nodes of 11, so that few rows split and merge nodes of all levels.

-- step pmem
CREATE TABLE p (id int PRIMARY KEY WITH (fillfactor = 90), t text) USING sofort;
-- step pmem primary key
BEGIN;
SET LOCAL sofort.index_placement = pmem;
REINDEX TABLE p;
COMMIT;
-- step pmem wide
CREATE INDEX p_wide ON p USING sofort_index ((md5(id::text)::uuid), (md5(id::text)::uuid), (md5(id::text)::uuid),
    (md5(id::text)::uuid), ((id % 3)::int8)) WITH (placement = pmem);
-- step pmem tuples
CREATE UNIQUE INDEX p_t ON p USING sofort_index (t) INCLUDE (id) WITH (placement = pmem);
-- step pmem insert one
INSERT INTO p VALUES (1, 'one');
-- step pmem insert some
INSERT INTO p SELECT i, repeat('t', i % 40) || i FROM generate_series(2, 30) i;
-- step pmem rolled back
BEGIN;
INSERT INTO p SELECT i, 'never ' || i FROM generate_series(501, 510) i;
ROLLBACK;
-- step pmem splits
INSERT INTO p SELECT i, repeat('t', i % 40) || i FROM generate_series(31, 110) i;
-- step pmem splits of inner nodes
INSERT INTO p SELECT i, repeat('t', i % 40) || i FROM generate_series(111, 150) i;
-- step pmem unique violation (may fail)
INSERT INTO p VALUES (600, 'new'), (601, 'one');
-- step pmem update of keys
UPDATE p SET t = 'changed ' || id WHERE id < 12;
-- step pmem delete
DELETE FROM p WHERE id % 8 <> 0;
-- step pmem vacuum merges
VACUUM p;
-- step pmem reuse
INSERT INTO p SELECT i, 'reused ' || i FROM generate_series(201, 230) i;
-- step pmem delete all
DELETE FROM p WHERE id > 20;
-- step pmem vacuum again
VACUUM p;
-- step pmem and again
INSERT INTO p SELECT i, 'again ' || i FROM generate_series(301, 315) i;
-- step pmem reindex
REINDEX INDEX p_wide;
-- step pmem reindex concurrently
REINDEX INDEX CONCURRENTLY p_t;
-- step pmem drop and rolled back
BEGIN;
DROP INDEX p_wide;
ROLLBACK;
-- step pmem created and rolled back
BEGIN;
CREATE INDEX p_never ON p USING sofort_index (t, id) WITH (placement = pmem);
ROLLBACK;
-- step pmem truncate
TRUNCATE p;
-- step pmem after truncate
INSERT INTO p VALUES (1, 'one'), (2, 'two');
-- step pmem drop index
DROP INDEX p_wide;

-- step hybrid
CREATE TABLE h (id int, t text) USING sofort;
-- step hybrid wide
CREATE INDEX h_wide ON h USING sofort_index ((md5(id::text)::uuid), (md5(id::text)::uuid), (md5(id::text)::uuid),
    (md5(id::text)::uuid), ((id % 3)::int8)) WITH (placement = hybrid);
-- step hybrid tuples
CREATE UNIQUE INDEX h_t ON h USING sofort_index (t) INCLUDE (id) WITH (placement = hybrid);
-- step hybrid insert one
INSERT INTO h VALUES (1, 'one');
-- step hybrid insert some
INSERT INTO h SELECT i, repeat('t', i % 40) || i FROM generate_series(2, 30) i;
-- step hybrid rolled back
BEGIN;
INSERT INTO h SELECT i, 'never ' || i FROM generate_series(501, 510) i;
ROLLBACK;
-- step hybrid splits
INSERT INTO h SELECT i, repeat('t', i % 40) || i FROM generate_series(31, 120) i;
-- step hybrid update of keys
UPDATE h SET t = 'changed ' || id WHERE id < 12;
-- step hybrid delete
DELETE FROM h WHERE id % 8 <> 0;
-- step hybrid vacuum merges
VACUUM h;
-- step hybrid reuse
INSERT INTO h SELECT i, 'reused ' || i FROM generate_series(201, 230) i;
-- step hybrid delete all
DELETE FROM h WHERE id > 20;
-- step hybrid vacuum again
VACUUM h;
-- step hybrid and again
INSERT INTO h SELECT i, 'again ' || i FROM generate_series(301, 315) i;
-- step hybrid to pmem
ALTER INDEX h_wide SET (placement = pmem);
-- step hybrid reindex
REINDEX INDEX h_wide;
-- step hybrid reindex concurrently
REINDEX INDEX CONCURRENTLY h_t;
-- step hybrid drop
DROP TABLE h;

-- step ended
CREATE TABLE e (id int PRIMARY KEY, n int, t text) USING sofort;
-- step ended indexes
CREATE INDEX e_t ON e USING sofort_index (t) INCLUDE (n) WITH (placement = pmem);
-- step ended indexes
CREATE INDEX e_n ON e USING sofort_index (n DESC) WITH (placement = hybrid);
-- step ended rows
INSERT INTO e SELECT i, i, repeat('t', i % 40) || i FROM generate_series(1, 150) i;
-- step ended deletion
DELETE FROM e WHERE id <= 60;
-- step ended update of keys, which frees deleted rows
UPDATE e SET n = n + 1, t = 'changed ' || id;
-- step ended reuse
INSERT INTO e SELECT i, i, repeat('u', i % 40) || i FROM generate_series(201, 240) i;
-- step ended deletion, which frees old versions
DELETE FROM e WHERE id <= 120;
-- step ended rolled back
BEGIN;
DELETE FROM e;
ROLLBACK;
-- step ended reuse again
INSERT INTO e SELECT i, i, 'again ' || i FROM generate_series(301, 330) i;
-- step ended and vacuum
VACUUM e;
-- step ended drop
DROP TABLE e;
