-- CREATE DATABASE ... TEMPLATE with sofort tables; killed on the way:
-- t/170_template.pl.
SET client_min_messages = warning;
SET jit = off;
\set db :DBNAME
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE s_space LOCATION '';
CREATE TABLESPACE s_other LOCATION '';
CREATE TABLESPACE s_third LOCATION '';
CREATE DATABASE s_tmpl TABLESPACE s_space;
\c s_tmpl
SET client_min_messages = warning;
SET jit = off;
CREATE EXTENSION sofort;
SET default_table_access_method = sofort;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, few text, n numeric, long text, c text UNIQUE, f float8, m mood, a int[]);
INSERT INTO t SELECT i, 'few ' || i % 5, i / 7.0, CASE WHEN i % 3 = 0 THEN NULL WHEN i % 100 = 1 THEN repeat(md5(i::text), 400) ELSE md5(i::text) END, 'c' || i, NULLIF(i % 4, 0), (ARRAY['sad', 'happy'])[i % 2 + 1]::mood, ARRAY[i, i]
FROM generate_series(1, 6000) i;
CREATE INDEX t_btree ON t (n);
CREATE INDEX t_gin ON t USING gin (a);
CREATE INDEX t_sofort ON t USING sofort_index (few, n) INCLUDE (id);
UPDATE t SET long = 'updated' WHERE id % 10 = 0;
UPDATE t SET n = n + 1, few = 'other' WHERE id % 11 = 0;
DELETE FROM t WHERE id BETWEEN 3000 AND 4500;
BEGIN; DELETE FROM t; ROLLBACK;
VACUUM t;
ALTER TABLE t ADD COLUMN added int DEFAULT 7;
ALTER TABLE t DROP COLUMN f;
INSERT INTO t (id, few, added) SELECT i, 'late', i FROM generate_series(7000, 7400) i;
BEGIN; INSERT INTO t (id) VALUES (9000); SELECT FROM t WHERE id = 1 FOR UPDATE; ROLLBACK;
-- values of a dictionary that VACUUM has freed; indexes in the pool; chains of old versions
CREATE TABLE churn (id int PRIMARY KEY, day text, code int) WITH (autovacuum_enabled = off);
INSERT INTO churn SELECT i, 'first day ' || i % 500, i % 300 FROM generate_series(1, 4000) i;
CREATE INDEX churn_pool ON churn USING sofort_index (code) WITH (placement = pmem);
CREATE INDEX churn_half ON churn USING sofort_index (day) WITH (placement = hybrid);
UPDATE churn SET day = 'second day ' || id % 20, code = id % 10;
VACUUM churn;
VACUUM churn;
VACUUM churn;
VACUUM churn;
INSERT INTO churn SELECT i, 'third day ' || i % 50, i % 40 FROM generate_series(5001, 5100) i;
CREATE TABLE hot (id int PRIMARY KEY, n int, t text);
INSERT INTO hot SELECT i, 0, repeat('t', 100) FROM generate_series(1, 50) i;
DO $$ BEGIN FOR i IN 1 .. 40 LOOP UPDATE hot SET n = n + 1, t = t || i; END LOOP; END $$;
CREATE TABLE empty (i int PRIMARY KEY, t text);
CREATE UNLOGGED TABLE unlogged (i int PRIMARY KEY);
INSERT INTO unlogged SELECT generate_series(1, 100);
CREATE TABLE elsewhere (i int PRIMARY KEY, t text) TABLESPACE s_other;
INSERT INTO elsewhere VALUES (1, 'one');
CREATE TABLE parted (i int, t text) PARTITION BY RANGE (i);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (200) USING heap;
INSERT INTO parted SELECT i, 'p' FROM generate_series(50, 150) i;
CREATE MATERIALIZED VIEW mv AS SELECT few, count(*) AS n FROM t GROUP BY few;
CREATE PROCEDURE look() LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL enable_seqscan = off;
    RAISE NOTICE 't: %', (SELECT md5(string_agg(x::text, ' ' ORDER BY id)) FROM t x);
    RAISE NOTICE 'tids: %', (SELECT md5(string_agg(ctid || ' ' || id, ' ' ORDER BY id)) FROM t x);
    RAISE NOTICE 'btree %, gin %, sofort %, unique %', (SELECT count(*) FROM t WHERE n > 100), (SELECT id FROM t WHERE a @> '{77}'),
        (SELECT count(*) FROM t WHERE few = 'other'), (SELECT id FROM t WHERE c = 'c123');
    RAISE NOTICE 'churn: % % % %', (SELECT md5(string_agg(x::text, ' ' ORDER BY id)) FROM churn x), (SELECT count(*) FROM churn WHERE code = 7), (SELECT count(*) FROM churn WHERE day = 'second day 7'), (SELECT count(DISTINCT day) FROM churn);
    RAISE NOTICE 'hot: %', (SELECT md5(string_agg(x::text, ' ' ORDER BY id)) FROM hot x);
    RAISE NOTICE 'others: % % % % %', (SELECT count(*) FROM empty), (SELECT count(*) FROM unlogged), (SELECT t FROM elsewhere), (SELECT count(*) FROM parted), (SELECT sum(n) FROM mv);
    RAISE NOTICE 'problems: %', (SELECT count(*) FROM pg_class r JOIN pg_am am ON am.oid = relam, sofort.verify(r.oid::regclass) WHERE amname = 'sofort');
END $$;
SET client_min_messages = notice;
\c :db
SET client_min_messages = warning;
SELECT stores AS stores FROM sofort.pool \gset
CREATE DATABASE s_copy TEMPLATE s_tmpl;
CREATE DATABASE s_files TEMPLATE s_tmpl STRATEGY file_copy TABLESPACE pg_default;
CREATE DATABASE s_bad TEMPLATE s_tmpl TABLESPACE s_other;
CREATE DATABASE s_copy TEMPLATE s_tmpl;
SELECT stores - :stores AS more FROM sofort.pool;
\c s_tmpl
CALL look();
\c s_copy
CALL look();
\c s_files
CALL look();
-- they are independent
INSERT INTO t (id, long, c) VALUES (3500, repeat('x', 3000), 'new');
UPDATE t SET few = 'changed', long = long || '!' WHERE id < 500;
DELETE FROM t WHERE id > 7000;
TRUNCATE elsewhere;
UPDATE churn SET day = 'last day ' || id % 700 WHERE id % 2 = 0;
DO $$ BEGIN FOR i IN 1 .. 40 LOOP UPDATE hot SET n = n + 1, t = t || i; END LOOP; END $$;
VACUUM churn, hot;
SELECT n, count(*), md5(string_agg(t, ' ' ORDER BY id)) FROM hot GROUP BY n;
SELECT count(*), count(DISTINCT day) FROM churn WHERE code < 10;
SELECT index, placement, status FROM sofort.indexes WHERE index::text IN ('churn_pool', 'churn_half') ORDER BY 1;
INSERT INTO empty SELECT i, 'e' FROM generate_series(1, 3000) i;
VACUUM t;
SELECT count(*), count(DISTINCT few), max(length(long)) FROM t;
SELECT count(*) FROM pg_class r JOIN pg_am am ON am.oid = relam, sofort.verify(r.oid::regclass) WHERE amname = 'sofort';
\c s_copy
CALL look();
DROP TABLE t;
-- ALTER DATABASE SET TABLESPACE
CREATE UNLOGGED TABLE gone (i int PRIMARY KEY) TABLESPACE s_other;
\c :db
ALTER DATABASE s_copy SET TABLESPACE s_other;
ALTER DATABASE s_copy SET TABLESPACE s_third;
\c s_copy
CALL look();
SELECT index, placement, status FROM sofort.indexes WHERE index::text IN ('churn_pool', 'churn_half') ORDER BY 1;
DROP TABLE gone;
UPDATE t SET n = -n WHERE id < 100;
CREATE TABLE made (i int PRIMARY KEY, t text);
INSERT INTO made SELECT i, 'made' FROM generate_series(1, 10) i;
ALTER TABLE elsewhere SET TABLESPACE s_third;
ALTER TABLE hot SET TABLESPACE s_other;
ALTER INDEX churn_pool SET TABLESPACE s_other;
VACUUM;
\c :db
ALTER DATABASE s_copy SET TABLESPACE s_space;
CREATE DATABASE s_again TEMPLATE s_copy;
\c s_again
CALL look();
SELECT count(*), min(n) FROM t WHERE id < 100;
SELECT * FROM made WHERE i = 7;
INSERT INTO made VALUES (7, 'twice');
TRUNCATE made, hot;
VACUUM;
\c s_copy
CALL look();
SELECT * FROM made WHERE i = 7;
SELECT count(*) FROM hot;
\c s_tmpl
CALL look();
\c :db
SELECT * FROM sofort.verify_pool();
DROP DATABASE s_copy;
DROP DATABASE s_again;
DROP DATABASE s_files;
DROP DATABASE s_tmpl;
DROP TABLESPACE s_space;
DROP TABLESPACE s_other;
DROP TABLESPACE s_third;
