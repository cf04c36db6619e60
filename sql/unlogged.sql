-- Unlogged tables; what a crash does to them: t/113_unlogged.pl.
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_unlogged;
SET search_path = reg_unlogged;
SET default_table_access_method = sofort;
CREATE FUNCTION am(rel oid) RETURNS text LANGUAGE sql SET search_path = pg_catalog AS
    $$ SELECT amname || ' ' || relpersistence::text FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = rel $$;
CREATE UNLOGGED TABLE u (i int PRIMARY KEY, t text UNIQUE, n int);
CREATE INDEX u_btree ON u (n);
CREATE INDEX u_sofort ON u USING sofort_index (n, t);
CREATE INDEX u_gin ON u USING gin ((ARRAY[i, n]));
CREATE UNLOGGED TABLE u_as AS SELECT i, i % 3 AS k FROM generate_series(1, 10) i;
SELECT i INTO UNLOGGED u_into FROM u_as;
SELECT relname, am(oid) FROM pg_class WHERE relnamespace = 'reg_unlogged'::regnamespace AND relkind IN ('r', 'i') ORDER BY relname COLLATE "C";
INSERT INTO u SELECT i, 't' || i, i % 50 FROM generate_series(1, 2000) i;
INSERT INTO u VALUES (5, 'twice', 1);
INSERT INTO u VALUES (5, 'again', 1) ON CONFLICT (i) DO UPDATE SET t = excluded.t RETURNING *;
BEGIN; DELETE FROM u WHERE n = 3; SAVEPOINT a; UPDATE u SET n = 3 WHERE n = 4; ROLLBACK TO a; COMMIT;
CREATE FUNCTION look(rel regclass) RETURNS TABLE (am text, n bigint, by_btree bigint, by_sofort bigint, problems bigint) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT count(*) FROM %s', rel) INTO n;
    SET LOCAL enable_seqscan = off;
    EXECUTE format('SELECT count(*) FROM %s WHERE n >= 0', rel) INTO by_btree;
    SET LOCAL enable_bitmapscan = off;
    EXECUTE format('SELECT count(*) FROM %s WHERE i >= 0', rel) INTO by_sofort;
    SET LOCAL enable_seqscan = on;
    SELECT count(*) INTO problems FROM sofort.verify(rel);
    am := am(rel);
    RETURN NEXT;
END $$;
SELECT * FROM look('u');
-- to and fro
ALTER TABLE u SET LOGGED;
SELECT * FROM look('u');
ALTER TABLE u SET UNLOGGED;
SELECT * FROM look('u');
BEGIN; ALTER TABLE u SET LOGGED; UPDATE u SET n = n + 1; ROLLBACK;
SELECT * FROM look('u');
ALTER TABLE u SET ACCESS METHOD heap;
SELECT am('u'::regclass), count(*) FROM u;
SET sofort.index_placement = dram;
ALTER TABLE u SET ACCESS METHOD sofort, SET LOGGED;
RESET sofort.index_placement;
SELECT * FROM look('u');
ALTER TABLE u SET UNLOGGED, ALTER n TYPE bigint;
SELECT * FROM look('u');
-- whatever makes a new file keeps them unlogged
VACUUM FULL u;
CLUSTER u USING u_sofort;
REINDEX TABLE u;
SELECT * FROM look('u');
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE unlogged_space LOCATION '';
ALTER TABLE u SET TABLESPACE unlogged_space;
SELECT * FROM look('u');
ALTER TABLE u SET TABLESPACE pg_default;
DROP TABLESPACE unlogged_space;
BEGIN; TRUNCATE u; INSERT INTO u VALUES (1, 'one', 1); SELECT * FROM look('u'); ROLLBACK;
SELECT * FROM look('u');
TRUNCATE u;
INSERT INTO u VALUES (1, 'one', 1);
SELECT * FROM look('u');
SELECT relname FROM pg_class, LATERAL pg_relation_filepath(oid) path, LATERAL pg_stat_file(path || '_init', true) f
WHERE relnamespace = 'reg_unlogged'::regnamespace AND f.size IS NOT NULL ORDER BY relname COLLATE "C";
-- an index that is kept in the pool stands in the way of each way to become unlogged
CREATE TABLE placed (i int PRIMARY KEY WITH (placement = pmem), n int UNIQUE WITH (placement = hybrid)) USING sofort;
INSERT INTO placed SELECT i, i FROM generate_series(1, 100) i;
-- (LIKE leaves the placement out)
CREATE UNLOGGED TABLE placed_like (LIKE placed INCLUDING ALL) USING sofort;
SELECT index, placement, status FROM sofort.indexes WHERE relation = 'placed_like'::regclass ORDER BY index::text COLLATE "C";
\set VERBOSITY terse
-- (the parameter can be set; what builds the index next is refused)
ALTER INDEX placed_like_pkey SET (placement = pmem);
REINDEX INDEX placed_like_pkey;
DROP TABLE placed_like;
ALTER TABLE placed SET UNLOGGED;
ALTER TABLE placed SET UNLOGGED, ALTER n TYPE bigint;
ALTER INDEX placed_pkey SET (placement = dram);
ALTER TABLE placed SET UNLOGGED, ALTER n TYPE bigint;
ALTER TABLE placed SET UNLOGGED, ALTER n TYPE bigint, DROP CONSTRAINT placed_n_key;
\set VERBOSITY default
SELECT index, placement, status FROM sofort.indexes WHERE relation = 'placed'::regclass;
DROP TABLE placed;
-- an unlogged table may refer to a permanent one, not the other way round
CREATE TABLE perm (i int PRIMARY KEY);
CREATE UNLOGGED TABLE u_ref (i int REFERENCES perm, j int REFERENCES u);
CREATE TABLE perm_ref (i int REFERENCES u);
DROP TABLE u CASCADE;
-- rows that C code put into the file of a table, past its access method
CREATE EXTENSION IF NOT EXISTS sofort_test;
CREATE TABLE past (i int);
CREATE UNLOGGED TABLE u_past (i int);
SELECT count(*) FROM past, u_past;
SELECT * FROM sofort.verify('past') UNION ALL SELECT * FROM sofort.verify('u_past');
SELECT sofort_test.heap_insert('past'), sofort_test.heap_insert('u_past');
SELECT count(*) FROM past, u_past;
SELECT * FROM sofort.verify('past') UNION ALL SELECT * FROM sofort.verify('u_past');
-- (where rows are it is an error)
CREATE TABLE past_rows AS SELECT 1 AS i;
\set VERBOSITY sqlstate
SELECT sofort_test.heap_insert('past_rows');
\set VERBOSITY default
SELECT * FROM sofort.verify('past_rows');
-- a new file is empty
TRUNCATE past;
VACUUM FULL u_past;
SELECT * FROM sofort.verify('past') UNION ALL SELECT * FROM sofort.verify('u_past');
DROP TABLE past, u_past, past_rows;
RESET default_table_access_method;
