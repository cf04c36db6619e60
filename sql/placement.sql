-- Where indexes lie: storage parameter, setting, changes online.
CREATE TABLE pl (id int PRIMARY KEY, v text, n numeric) USING sofort;
CREATE INDEX pl_pmem ON pl USING sofort_index (v) WITH (placement = pmem);
CREATE INDEX pl_hybrid ON pl USING sofort_index (n) INCLUDE (id) WITH (placement = hybrid, fillfactor = 70);
INSERT INTO pl SELECT i, 'value ' || i % 700 || repeat('x', i % 30), i / 7.0 FROM generate_series(1, 3000) i;

CREATE FUNCTION pl_where() RETURNS TABLE (index regclass, placement text, status text, entries bigint, in_dram bool, in_pool bool)
LANGUAGE sql AS $$
    SELECT index, placement, status, entries, dram_bytes > 20000, pool_bytes > 20000
    FROM sofort.indexes WHERE relation = 'pl'::regclass ORDER BY index::text
$$;
SELECT * FROM pl_where();

-- The parameter takes effect when the index is built.
ALTER INDEX pl_pkey SET (placement = hybrid);
ALTER INDEX pl_hybrid SET (placement = dram);
ALTER INDEX pl_pmem SET (placement = nowhere);
SELECT index, placement FROM pl_where();
REINDEX INDEX pl_pkey;
REINDEX INDEX CONCURRENTLY pl_hybrid;
SELECT * FROM pl_where();

-- New indexes without it get it from the setting; others are in DRAM.
ALTER INDEX pl_hybrid RESET (placement);
ALTER INDEX pl_pkey RESET (placement);
ALTER INDEX pl_pmem RESET (placement);
SET sofort.index_placement = hybrid;
CREATE UNIQUE INDEX pl_new ON pl USING sofort_index (id DESC, v) WHERE id % 2 = 0;
REINDEX INDEX pl_pmem;
SET sofort.index_placement = pmem;
REINDEX INDEX CONCURRENTLY pl_hybrid;
ALTER TABLE pl ADD UNIQUE (n, id);
SELECT relname, reloptions FROM pg_class WHERE relname ~ '^pl_' AND relkind = 'i' ORDER BY 1;
SET sofort.index_placement = nowhere;
SELECT * FROM pl_where();
SELECT * FROM sofort.verify('pl');

-- All give the same answers.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*), min(id), max(id) FROM pl WHERE v = 'value 17xxxxxxxxxxxxxxxxx';
SELECT count(*) FROM pl WHERE v BETWEEN 'value 2' AND 'value 3';
SELECT id FROM pl WHERE n > 400 ORDER BY n LIMIT 3;
SELECT id FROM pl WHERE n < 400 ORDER BY n DESC LIMIT 3;
SELECT id FROM pl WHERE id % 2 = 0 AND id > 100 ORDER BY id DESC, v LIMIT 3;
SELECT id FROM pl WHERE id IN (5, 2999, 77, 4000) ORDER BY id;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Rolled back, and in one transaction with their table
BEGIN;
DROP INDEX pl_new;
CREATE INDEX pl_gone ON pl USING sofort_index (v DESC);
REINDEX INDEX pl_pmem;
SAVEPOINT s;
TRUNCATE pl;
ROLLBACK TO s;
SELECT count(*) FROM pl WHERE v LIKE 'value 1%';
ROLLBACK;
BEGIN;
CREATE TABLE pl2 (id int PRIMARY KEY, t text) USING sofort;
INSERT INTO pl2 SELECT i, 'a' FROM generate_series(1, 300) i;
TRUNCATE pl2;
INSERT INTO pl2 SELECT i, 'b' FROM generate_series(1, 300) i;
COMMIT;
SELECT count(*) FROM pl2 WHERE id BETWEEN 100 AND 109;
INSERT INTO pl2 VALUES (7, 'again');
ALTER TABLE pl2 ALTER id TYPE int8;
SELECT placement, status, entries FROM sofort.indexes WHERE relation = 'pl2'::regclass;
SELECT * FROM sofort.verify('pl2');
SELECT * FROM pl_where();
SELECT * FROM sofort.verify('pl');

-- Entries go, nodes are merged.
DELETE FROM pl WHERE id % 10 <> 0;
VACUUM pl;
SELECT * FROM sofort.verify('pl');
SELECT index, placement, status, entries FROM pl_where();

-- Dropped concurrently, that is, in a later one of several transactions
SELECT count(DISTINCT owner) AS owners FROM sofort_test.allocations() \gset
SELECT structures_ready AS ready FROM sofort.recovery \gset
CREATE INDEX CONCURRENTLY pl_drop ON pl USING sofort_index (id) WITH (placement = pmem);
CREATE INDEX CONCURRENTLY pl_drop2 ON pl USING sofort_index (id) WITH (placement = dram);
DROP INDEX CONCURRENTLY pl_drop;
DROP INDEX CONCURRENTLY pl_drop2;
SELECT count(DISTINCT owner) - :owners AS left_in_pool FROM sofort_test.allocations();
SELECT structures_ready - :ready AS left_in_dram FROM sofort.recovery;
SELECT * FROM sofort.verify('pl');

-- An index that becomes a btree takes its tree along
SELECT count(DISTINCT owner) AS owners FROM sofort_test.allocations() \gset
SELECT structures_ready AS ready FROM sofort.recovery \gset
CREATE TABLE pl_turns (id int PRIMARY KEY WITH (placement = pmem), n int UNIQUE WITH (placement = dram)) USING sofort;
INSERT INTO pl_turns SELECT i, i FROM generate_series(1, 1000) i;
BEGIN;
ALTER TABLE pl_turns SET ACCESS METHOD heap;
ROLLBACK;
SELECT count(*) FROM pl_turns WHERE id BETWEEN 10 AND 19;
SELECT count(DISTINCT owner) - :owners AS in_pool FROM sofort_test.allocations();
ALTER TABLE pl_turns SET ACCESS METHOD heap;
SELECT count(DISTINCT owner) - :owners AS in_pool FROM sofort_test.allocations();
SELECT structures_ready - :ready AS in_dram FROM sofort.recovery;
ALTER TABLE pl_turns SET ACCESS METHOD sofort;
ALTER INDEX pl_turns_pkey SET (placement = pmem);
REINDEX INDEX pl_turns_pkey;
CREATE TABLE pl_parent (id int, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
ALTER TABLE pl_turns DROP CONSTRAINT pl_turns_n_key;
ALTER TABLE pl_parent ATTACH PARTITION pl_turns DEFAULT;
SELECT relname, amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'pl_turns_pkey';
SELECT count(DISTINCT owner) - :owners AS in_pool FROM sofort_test.allocations();
SELECT structures_ready - :ready AS in_dram FROM sofort.recovery;
DROP TABLE pl_parent;

-- Unlogged tables are empty after a crash: their indexes are not kept.
SET sofort.index_placement = pmem;
CREATE UNLOGGED TABLE pl_u (id int PRIMARY KEY) USING sofort;
SELECT placement FROM sofort.indexes WHERE relation = 'pl_u'::regclass;
CREATE INDEX pl_u_bad ON pl_u USING sofort_index (id) WITH (placement = hybrid);
RESET sofort.index_placement;
ALTER TABLE pl SET UNLOGGED;
DROP TABLE pl, pl2, pl_u;
DROP FUNCTION pl_where();
SELECT * FROM sofort.verify_pool();
