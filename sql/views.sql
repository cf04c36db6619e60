-- What the views show.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_views;
SET search_path = reg_views;
SELECT status, reason, medium, promise <> '', life >= 1, layout_version > 0, quota_bytes > used_bytes, used_bytes > 0, slab_bytes <= used_bytes, file_bytes >= used_bytes, dram_total > dram_used, dram_used > 0, path LIKE '/%' FROM sofort.pool;
CREATE TABLE s_v (id int PRIMARY KEY, name text, few text, dropped int, big text) USING sofort;
ALTER TABLE s_v DROP dropped;
ALTER TABLE s_v ADD added int DEFAULT 7;
SELECT relation, live_rows, dead_rows, blocks, pool_bytes >= 0, dram_bytes >= 0 FROM sofort.tables WHERE relation = 's_v'::regclass;
SELECT stores AS before FROM sofort.pool \gset
INSERT INTO s_v SELECT i, 'name ' || i, 'few' || i % 3, repeat('b', 3000), i FROM generate_series(1, 3000) i;
SELECT relation, live_rows, dead_rows, blocks >= 12, pool_bytes > 0, dram_bytes >= 0 FROM sofort.tables WHERE relation = 's_v'::regclass;
SELECT relation, attnum, column_name, type, encoding IN ('plain', 'dictionary', 'inline', 'reference', 'absent'), reason <> '' FROM sofort.columns WHERE relation = 's_v'::regclass ORDER BY attnum;
SELECT encoding, dictionary_entries, dictionary_bytes > 0 FROM sofort.columns WHERE relation = 's_v'::regclass AND column_name = 'few';
SELECT relation, index, is_unique, is_primary, placement, status, entries, dram_bytes > 0 FROM sofort.indexes WHERE relation = 's_v'::regclass;
SELECT stores - :before FROM sofort.pool;
BEGIN;
SELECT count(*) FROM sofort.transactions WHERE pid = pg_backend_pid();
INSERT INTO s_v VALUES (9999);
SELECT state, xid = pg_current_xact_id(), entries > 0, life = (SELECT life FROM sofort.pool) FROM sofort.transactions WHERE pid = pg_backend_pid();
ROLLBACK;
SELECT count(*) FROM sofort.transactions WHERE pid = pg_backend_pid() AND state = 'active';
DELETE FROM s_v WHERE id <= 1000;
SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 's_v'::regclass;
-- of several tables, the bytes are those of each (functions for one table look by themselves)
CREATE TABLE s_v2 (id int PRIMARY KEY, t text) USING sofort;
INSERT INTO s_v2 SELECT i, repeat('v', 5000) FROM generate_series(1, 100) i;
CREATE TABLE s_v3 (id int) USING sofort;
CREATE FUNCTION pg_temp.toast_bytes(r regclass) RETURNS bigint LANGUAGE sql AS $$ SELECT coalesce(sum(pg_total_relation_size(reltoastrelid)), 0) FROM pg_class WHERE oid = r AND reltoastrelid <> 0 $$;
SELECT relation, pool_bytes > 0, pool_bytes + dram_bytes + pg_temp.toast_bytes(relation) = sofort.table_size(relation) AS same FROM sofort.tables WHERE relation IN ('s_v'::regclass, 's_v2'::regclass, 's_v3'::regclass) ORDER BY 1;
DROP TABLE s_v2, s_v3;
DROP TABLE s_v;
SELECT stores - :before FROM sofort.pool;
-- everything is described
SELECT extname, pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND extname LIKE 'sofort%'
  AND NOT EXISTS (SELECT FROM pg_depend i WHERE i.classid = d.classid AND i.objid = d.objid AND i.deptype = 'i') -- row types of views
  AND NOT EXISTS (SELECT FROM pg_description t WHERE t.classoid = d.classid AND t.objoid = d.objid AND t.objsubid = 0) ORDER BY 1, 2;
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'sofort'::regnamespace AND c.relkind = 'v' AND a.attnum > 0 AND col_description(c.oid, a.attnum) IS NULL;
-- every function of ours states its volatility and parallel safety; nothing dangerous is open
SELECT proname FROM pg_proc WHERE pronamespace = 'sofort'::regnamespace AND NOT has_function_privilege('public', oid, 'EXECUTE') ORDER BY 1;
SELECT proname FROM pg_proc WHERE pronamespace = 'sofort_test'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE');
-- this session's flushes
CREATE TABLE s_flush (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO s_flush VALUES (1, 1);
CREATE TEMP TABLE c AS SELECT * FROM sofort_test.flush_counters();
UPDATE s_flush SET v = 2 WHERE id = 1;
SELECT f.lines_flushed > c.lines_flushed, f.drains > c.drains FROM c, sofort_test.flush_counters() f;
-- stop points
SELECT sofort_test.arm('nowhere', 'wait');
SELECT sofort_test.waiters('nowhere'), sofort_test.passages('nowhere');
SELECT sofort_test.arm('nowhere', 'dance');
SELECT sofort_test.arm('nowhere', 'wait', 0);
SELECT sofort_test.disarm('nowhere');
SELECT sofort_test.disarm();
SELECT sofort_test.burn_xids(-1);
BEGIN;
SELECT pg_current_xact_id() IS NOT NULL;
SELECT sofort_test.burn_xids(10);
ROLLBACK;
SELECT sofort_test.burn_xids(100000)::text::bigint >= 100000;
INSERT INTO s_flush VALUES (2, 2);
SELECT xmin::text::bigint > 100000 FROM s_flush WHERE id = 2;
SELECT * FROM s_flush ORDER BY id;
