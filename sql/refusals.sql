-- What this version does not support, and limits.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_refusals;
SET search_path = reg_refusals;
\set VERBOSITY default
\set SHOW_CONTEXT never
RESET client_min_messages;
CREATE TABLE s_x (i int PRIMARY KEY, t text) USING sofort;
INSERT INTO s_x VALUES (1, 'one');
-- temporary tables: sql/temporary.sql
CREATE TEMP TABLE s_t (i int) USING sofort;
-- recovery modes and placements
SET sofort.recovery_mode = instant;
ALTER SYSTEM SET sofort.recovery_mode = 'no such mode';
CREATE INDEX s_bad ON s_x USING sofort_index (t) WITH (placement = nowhere);
CREATE INDEX s_bad ON s_x USING sofort_index (t) WITH (fillfactor = 5);
CREATE INDEX s_bad ON s_x USING sofort_index (t) WITH (deduplicate_items = off);
CREATE INDEX s_good ON s_x USING sofort_index (t) WITH (placement = dram);
ALTER TABLE s_x ADD CONSTRAINT s_gu UNIQUE (t) WITH (placement = dram, fillfactor = 60);
ALTER TABLE s_x ALTER t TYPE varchar(9) USING t || 'x';
SELECT relname, reloptions FROM pg_class WHERE relname IN ('s_good', 's_gu') ORDER BY 1;
SELECT * FROM s_x WHERE t = 'onex';
SET sofort.default_index = hash;
-- databases

\set db :DBNAME
CREATE DATABASE s_tmpl;
\c s_tmpl
SET client_min_messages = warning;
SET jit = off;
CREATE EXTENSION sofort;
CREATE TABLE a (i int PRIMARY KEY) USING sofort;
INSERT INTO a VALUES (1);
\c :db
SET search_path = reg_refusals;
\pset format unaligned
\pset tuples_only on
ALTER DATABASE s_tmpl SET TABLESPACE pg_global;
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE s_dbspace LOCATION '';
SELECT stores AS before FROM sofort.pool \gset
DROP DATABASE s_tmpl;
SELECT stores - :before AS stores_dropped FROM sofort.pool;
DROP TABLESPACE s_dbspace;
-- indexes
CREATE TABLE s_heap (i int) USING heap;
CREATE INDEX ON s_heap USING sofort_index (i);
CREATE TABLE s_p (i int) PARTITION BY LIST (i);
CREATE TABLE s_p1 PARTITION OF s_p FOR VALUES IN (1) USING sofort;
CREATE INDEX ON s_p USING sofort_index (i);
ALTER TABLE s_p1 SET ACCESS METHOD heap;
SELECT indexrelid::regclass, amname FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am ON pg_am.oid = c.relam WHERE indrelid IN ('s_p'::regclass, 's_p1'::regclass) ORDER BY 1;
CREATE INDEX s_p1_own ON s_p1 USING sofort_index (i);
DROP INDEX s_p_i_idx;
ALTER TABLE s_p1 SET ACCESS METHOD heap;
SELECT indexrelid::regclass, amname FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am ON pg_am.oid = c.relam WHERE indrelid IN ('s_p'::regclass, 's_p1'::regclass) ORDER BY 1;
ALTER TABLE s_p1 SET ACCESS METHOD sofort;
CREATE TABLE s_pt (p point) USING sofort;
CREATE INDEX ON s_pt USING sofort_index (p);
CREATE TABLE s_xl (x xml) USING sofort;
CREATE INDEX ON s_xl USING sofort_index (x);
CREATE INDEX ON s_x USING sofort_index (i) WHERE random() > 0;
CREATE OPERATOR CLASS own_ops FOR TYPE int4 USING sofort_index AS FUNCTION 1 btint4cmp(int4, int4);
CREATE INDEX ON s_x USING sofort_index (i own_ops);
-- a function of an index that verifies the table
CREATE TABLE s_v (i int) USING sofort;
INSERT INTO s_v VALUES (1);
CREATE FUNCTION verifies(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM * FROM sofort.verify('reg_refusals.s_v'); RETURN i; END $$;
CREATE INDEX s_verifies ON s_v USING sofort_index (verifies(i));
SELECT * FROM sofort.verify('s_v');
DROP TABLE s_v;
-- a converted index in a savepoint
BEGIN;
CREATE TABLE s_sub (i int PRIMARY KEY) USING sofort;
SAVEPOINT a;
ALTER TABLE s_sub SET ACCESS METHOD heap;
ROLLBACK;
-- publications
CREATE PUBLICATION s_pub FOR TABLE s_heap, s_x;
SET client_min_messages = error;
CREATE PUBLICATION s_pub FOR TABLE s_heap;
ALTER PUBLICATION s_pub ADD TABLE s_x;
ALTER PUBLICATION s_pub SET TABLE s_x;
ALTER PUBLICATION s_pub DROP TABLE s_x;
ALTER TABLE s_heap SET ACCESS METHOD sofort;
ALTER PUBLICATION s_pub DROP TABLE s_heap;
ALTER TABLE s_heap SET ACCESS METHOD sofort;
ALTER TABLE s_heap SET ACCESS METHOD heap;
CREATE TABLE s_parent (i int PRIMARY KEY) USING heap;
CREATE TABLE s_child () INHERITS (s_parent) USING heap;
CREATE TABLE s_grandchild () INHERITS (s_child) USING sofort;
ALTER PUBLICATION s_pub ADD TABLE s_parent;
ALTER PUBLICATION s_pub ADD TABLE s_heap, s_child *;
ALTER PUBLICATION s_pub ADD TABLE ONLY s_child, ONLY s_parent;
SELECT tablename FROM pg_publication_tables WHERE pubname = 's_pub' ORDER BY 1;
DROP TABLE s_parent CASCADE;
DROP PUBLICATION s_pub;
RESET client_min_messages;
-- a foreign object, a wrong kind of relation
SELECT * FROM sofort.verify('s_heap');
SELECT * FROM sofort.verify('s_p');
SELECT * FROM sofort.verify('s_x_pkey');
SELECT * FROM sofort.verify(0);
SELECT * FROM sofort.table_info('s_heap');
SELECT * FROM sofort.index_info('s_x');
-- a parallel worker may not write (nobody can ask for it), a read-only transaction neither
BEGIN READ ONLY;
INSERT INTO s_x VALUES (5, 'five');
ROLLBACK;
-- equality of a nondeterministic collation is not that of the bytes by which these classes order
CREATE COLLATION s_no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE s_pattern (t text COLLATE s_no_case, v varchar(9) COLLATE s_no_case, c char(3) COLLATE s_no_case, n name) USING sofort;
CREATE INDEX ON s_pattern USING sofort_index (n, t text_pattern_ops);
CREATE INDEX ON s_pattern USING sofort_index (v varchar_pattern_ops);
CREATE INDEX ON s_pattern USING sofort_index (c bpchar_pattern_ops);
CREATE INDEX ON s_pattern USING sofort_index (t COLLATE "C" text_pattern_ops);
ALTER TABLE s_pattern ADD d text COLLATE "C";
CREATE INDEX ON s_pattern USING sofort_index (d text_pattern_ops);
ALTER TABLE s_pattern ALTER d TYPE text COLLATE s_no_case;
DROP TABLE s_pattern;
DROP COLLATION s_no_case;
-- what changes the access method of an index by the way, under a savepoint, if the index is of this transaction
CREATE TABLE s_whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
BEGIN;
CREATE TABLE s_part (LIKE s_whole INCLUDING ALL) USING sofort;
SAVEPOINT s;
ALTER TABLE s_whole ATTACH PARTITION s_part FOR VALUES FROM (1) TO (9);
ROLLBACK;
BEGIN;
CREATE TABLE s_checked (id int PRIMARY KEY CHECK (id > 0)) USING sofort;
SAVEPOINT s;
ALTER TABLE s_checked ALTER id TYPE bigint;
ROLLBACK;
BEGIN;
CREATE TABLE s_using (id int NOT NULL) USING sofort;
CREATE UNIQUE INDEX s_using_id ON s_using USING sofort_index (id);
SAVEPOINT s;
ALTER TABLE s_using ADD CONSTRAINT s_using_key UNIQUE USING INDEX s_using_id;
ROLLBACK;
DROP TABLE s_whole;
-- rows that PostgreSQL has put in order of distance have no system columns
CREATE TABLE s_near (c circle) USING sofort;
INSERT INTO s_near SELECT circle(point(i, i), i) FROM generate_series(1, 3) i;
CREATE INDEX ON s_near USING gist (c);
SET enable_seqscan = off;
SELECT c FROM s_near ORDER BY c <-> point(0, 0);
SELECT xmin FROM s_near ORDER BY c <-> point(0, 0);
RESET enable_seqscan;
DROP TABLE s_near;
-- a type that was changed by hand
CREATE TABLE s_hand (i int, j int) USING sofort;
INSERT INTO s_hand VALUES (1, 2);
BEGIN;
UPDATE pg_attribute SET atttypid = 'int8'::regtype, attlen = 8, attalign = 'd' WHERE attrelid = 's_hand'::regclass AND attname = 'j';
SELECT * FROM s_hand;
ROLLBACK;
-- a function that reads the table while its rows are converted
CREATE FUNCTION s_hand_sum(int) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT sum(j) FROM s_hand); END';
ALTER TABLE s_hand ALTER COLUMN j TYPE bigint USING s_hand_sum(j);
SELECT * FROM s_hand;
DROP FUNCTION s_hand_sum;
DROP TABLE s_hand;
-- the extension cannot go while its tables are there
\set VERBOSITY terse
DROP EXTENSION sofort;
DROP ACCESS METHOD sofort;
