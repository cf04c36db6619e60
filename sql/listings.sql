-- What psql's listings, EXPLAIN, and the catalogs' functions and statistics show.
SET client_min_messages = warning;
SET jit = off;
\set HIDE_TABLEAM off
\set HIDE_TOAST_COMPRESSION off
SET sofort.index_placement = dram;
CREATE SCHEMA reg_listings;
SET search_path = reg_listings;
\dA+ sofort*
CREATE TABLE item (id int UNIQUE, name text, price numeric(8,2), place point) USING sofort WITH (fillfactor = 90);
COMMENT ON TABLE item IS 'things';
CREATE INDEX item_name ON item USING sofort_index (lower(name) COLLATE "C" DESC NULLS LAST, price) INCLUDE (id) WITH (fillfactor = 80, placement = pmem) WHERE price > 0;
CREATE INDEX item_place ON item USING gist (place);
CREATE TABLE part (k int, v text) PARTITION BY RANGE (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) USING sofort;
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20) USING heap;
CREATE INDEX part_k ON part (k);
CREATE MATERIALIZED VIEW totals USING sofort AS SELECT count(*) AS n FROM item;
INSERT INTO item SELECT i, 'name ' || i, i, point(i, i) FROM generate_series(1, 1000) i;
INSERT INTO part SELECT i, 'v' FROM generate_series(0, 19) i;
ANALYZE item, part;
\d+ item
\d+ item_name
\d+ part_1
\d+ totals
-- sizes without the number
\setenv PGDATABASE :DBNAME
\setenv PGOPTIONS '-c search_path=reg_listings'
\! psql -Xq -c '\dt+' -c '\di+' -c '\dm+' | sed -E "s/ $(id -un) / OWNER /" | sed -E 's/ *[0-9]+ (bytes|kB) */ SIZE /; s/ +\|/ |/g; s/-+/-/g; s/ +$//; /^ *List of/d'
\pset format unaligned
\pset tuples_only on
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN ('item'::regclass, 'part'::regclass, 'part_1'::regclass) ORDER BY 1;
SELECT pg_get_indexdef('item_name'::regclass, 1, false), pg_get_indexdef('item_name'::regclass, 2, true);
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'reg_listings' AND tablename = 'item' ORDER BY 1;
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'item'::regclass AND contype = 'u';
SELECT amname, amtype, pg_indexam_has_property(oid, 'can_order') AS ordered, pg_indexam_has_property(oid, 'can_unique') AS uniq, pg_indexam_has_property(oid, 'can_include') AS include
  FROM pg_am WHERE amname ~ '^sofort' ORDER BY 1;
SELECT pg_index_has_property('item_name', 'clusterable'), pg_index_has_property('item_name', 'index_scan'), pg_index_has_property('item_name', 'bitmap_scan'), pg_index_has_property('item_name', 'backward_scan');
SELECT pg_index_column_has_property('item_name', 1, 'desc'), pg_index_column_has_property('item_name', 1, 'nulls_last'), pg_index_column_has_property('item_name', 2, 'returnable');
-- EXPLAIN
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE id = 5;
EXPLAIN (COSTS OFF) SELECT id FROM item WHERE id BETWEEN 5 AND 7 ORDER BY id DESC;
EXPLAIN (COSTS OFF) UPDATE item SET price = 2 WHERE id = 5;
EXPLAIN (COSTS OFF, VERBOSE) DELETE FROM item WHERE id = 5;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE lower(name) COLLATE "C" = 'name 7' AND price > 0;
EXPLAIN (COSTS OFF) SELECT * FROM part WHERE k = 5;
EXPLAIN (COSTS OFF) SELECT * FROM item TABLESAMPLE BERNOULLI (50);
SET enable_seqscan = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE id IN (5, 7);
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE ctid = '(0,1)';
RESET enable_seqscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;
-- statistics
UPDATE item SET price = 1 WHERE id <= 10;
UPDATE item SET id = id + 5000 WHERE id > 990;
DELETE FROM item WHERE id BETWEEN 100 AND 119;
SET enable_seqscan = off;
SELECT count(*) FROM item WHERE id = 500;
RESET enable_seqscan;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) FROM item;
RESET enable_indexscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
SELECT pg_stat_force_next_flush();
VACUUM item;
SELECT pg_stat_force_next_flush();
SELECT n_tup_ins, n_tup_upd, n_tup_del, n_live_tup, n_dead_tup, seq_scan > 0 AS seq, idx_scan > 0 AS idx, vacuum_count, analyze_count, last_vacuum > last_analyze AS last FROM pg_stat_user_tables WHERE relid = 'item'::regclass;
SELECT idx_scan > 0, idx_tup_read > 0, idx_tup_fetch > 0 FROM pg_stat_user_indexes WHERE indexrelid = 'item_id_key'::regclass;
SELECT relpages > 0, reltuples, relallvisible <= relpages FROM pg_class WHERE oid = 'item'::regclass;
SET client_min_messages = error;
DROP SCHEMA reg_listings CASCADE;
