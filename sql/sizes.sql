-- pg_relation_size() and its like, also of heap tables
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA reg_sizes;
SET search_path = reg_sizes;
CREATE TABLE s (a int PRIMARY KEY, b text) USING sofort;
SELECT pg_relation_size('s'), pg_indexes_size('s') >= 0, pg_table_size('s') > 0;
INSERT INTO s SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i;
ANALYZE s;
SELECT pg_relation_size('s') = relpages * 8192, pg_relation_size('s', 'main') = relpages * 8192, pg_relation_size(c.oid, 'fsm') FROM pg_class c WHERE oid = 's'::regclass;
SELECT pg_table_size('s') >= t.pool_bytes + t.dram_bytes AS table_size,
       pg_relation_size('s_pkey') = i.pool_bytes + i.dram_bytes AS index_size,
       pg_table_size('s_pkey') = i.pool_bytes + i.dram_bytes AS index_size,
       pg_indexes_size('s') = i.pool_bytes + i.dram_bytes AS indexes_size
  FROM sofort.tables t, sofort.indexes i WHERE t.relation = 's'::regclass AND i.index = 's_pkey'::regclass;
CREATE INDEX s_btree ON s USING btree (b);
SELECT pg_indexes_size('s') = pg_relation_size('s_pkey') + pg_table_size('s_btree'),
       pg_total_relation_size('s') = pg_table_size('s') + pg_indexes_size('s');
-- everything else is PostgreSQL's
CREATE TABLE h (a int PRIMARY KEY, b text) USING heap;
INSERT INTO h SELECT i, repeat('x', 100) FROM generate_series(1, 10000) i;
SELECT pg_relation_size('h') > 8192, pg_relation_size('h') = pg_relation_size('h', 'main'), pg_table_size('h') >= pg_relation_size('h'),
       pg_indexes_size('h') = pg_relation_size('h_pkey'), pg_total_relation_size('h') = pg_table_size('h') + pg_indexes_size('h');
SELECT pg_relation_size(0), pg_table_size(0), pg_indexes_size(0), pg_total_relation_size(0);
SELECT pg_relation_size('s', 'nonsense');
CREATE SEQUENCE q;
CREATE TABLE p (a int) PARTITION BY LIST (a);
SELECT pg_relation_size('q'), pg_total_relation_size('p');
-- wherever they are called; what is stored names PostgreSQL's
CREATE VIEW v AS SELECT pg_total_relation_size('s') AS total;
SELECT pg_get_viewdef('v');
SELECT total = pg_total_relation_size('s') FROM v;
CREATE FUNCTION g() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN pg_total_relation_size('s'); END $$;
SELECT g() = total FROM v;
PREPARE e AS SELECT pg_total_relation_size($1) = total FROM v;
EXECUTE e ('s');
SELECT sum(pg_total_relation_size(c.oid)) > 0 FROM pg_class c WHERE relnamespace = 'reg_sizes'::regnamespace HAVING max(pg_relation_size(c.oid)) > 0;
-- by anybody, as PostgreSQL's
CREATE ROLE reg_sizes_user;
SET ROLE reg_sizes_user;
SELECT pg_total_relation_size(c.oid) > 0, pg_relation_size(c.oid) > 0 FROM pg_class c WHERE relname = 's_pkey' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'reg_sizes');
RESET ROLE;
DROP ROLE reg_sizes_user;
TRUNCATE s;
SELECT pg_relation_size('s');
DROP SCHEMA reg_sizes CASCADE;
