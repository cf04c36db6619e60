-- Constraints: the index behind each, and the same answers as heap.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_constraints;
SET search_path = reg_constraints;
-- Runs a statement on a sofort table (@x becomes s_x) and on its heap twin
-- (h_x), and says what came back, or how the two differ.
CREATE FUNCTION pg_temp.half(stmt text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE r text[]; n bigint; msg text;
BEGIN
    IF stmt ~* '^\s*(SELECT|VALUES|TABLE)' THEN
        EXECUTE 'SELECT array_agg(x::text ORDER BY x::text COLLATE "C") FROM (' || stmt || ') x' INTO r;
        RETURN array_prepend(coalesce(cardinality(r), 0) || ' rows', r);
    END IF;
    EXECUTE stmt;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN ARRAY[n || ' affected'];
EXCEPTION WHEN OTHERS THEN
    msg := regexp_replace(SQLERRM, '\m[sh]_', '@', 'g');
    RETURN ARRAY['ERROR ' || SQLSTATE || ': ' || msg];
END $$;
CREATE FUNCTION pg_temp.twin(stmt text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s text[]; h text[];
BEGIN
    s := pg_temp.half(regexp_replace(stmt, '@(\w)', 's_\1', 'g'));
    h := pg_temp.half(regexp_replace(stmt, '@(\w)', 'h_\1', 'g'));
    IF s IS DISTINCT FROM h THEN
        RETURN 'DIFFERENT: sofort ' || left(s::text, 500) || ' heap ' || left(h::text, 500);
    END IF;
    RETURN s[1];
END $$;
-- Makes both tables: columns and constraints follow.
CREATE FUNCTION pg_temp.make(name text, columns text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE s_%s (%s) USING sofort', name, regexp_replace(columns, '@(\w)', 's_\1', 'g'));
    EXECUTE format('CREATE TABLE h_%s (%s) USING heap', name, regexp_replace(columns, '@(\w)', 'h_\1', 'g'));
END $$;
CREATE VIEW s_am AS SELECT c.relname, a.amname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam WHERE c.relname LIKE 's\_%' AND c.relnamespace IN ('reg_constraints'::regnamespace, to_regnamespace('s_sch'));
SELECT pg_temp.make('pk', 'a int, b text, c date DEFAULT ''2000-01-01'', PRIMARY KEY (a, b) INCLUDE (c)');
SELECT pg_temp.twin('INSERT INTO @pk SELECT i % 10, ''b'' || i FROM generate_series(1, 100) i');
SELECT pg_temp.twin('INSERT INTO @pk VALUES (1, ''b1'')');
SELECT pg_temp.twin('INSERT INTO @pk VALUES (1, ''b2'')');
SELECT pg_temp.twin('UPDATE @pk SET a = a + 1');
SELECT pg_temp.twin('UPDATE @pk SET a = 1, b = ''b1'' WHERE b = ''b3''');
SELECT pg_temp.twin('SELECT * FROM @pk');
SELECT * FROM s_am WHERE relname LIKE 's\_pk%';
-- within one command, and after a delete
SELECT pg_temp.twin('INSERT INTO @pk VALUES (50, ''x''), (50, ''x'')');
SELECT pg_temp.twin('DELETE FROM @pk WHERE a = 5');
SELECT pg_temp.twin('INSERT INTO @pk SELECT 5, ''b'' || i FROM generate_series(1, 100) i');
SELECT pg_temp.twin('SELECT * FROM @pk');
-- NULLs
SELECT pg_temp.make('un', 'a int UNIQUE, b int UNIQUE NULLS NOT DISTINCT, c int, d int, UNIQUE NULLS NOT DISTINCT (c, d)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (NULL, 1, 1, NULL), (NULL, 2, NULL, 1), (3, NULL, 1, 1)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (NULL, 5, 5, 5)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (5, NULL, 6, 6)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (6, 6, 1, NULL)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (7, 7, NULL, NULL)');
SELECT pg_temp.twin('INSERT INTO @un VALUES (8, 8, NULL, NULL)');
SELECT pg_temp.twin('SELECT * FROM @un');
-- equal values that look different
SELECT pg_temp.make('eq', 'n numeric UNIQUE, f float8 UNIQUE, c char(4) UNIQUE');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (1.0, 0, ''a'')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (1.00, 1, ''b'')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (2, ''-0'', ''c'')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (3, ''NaN'', ''a  '')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (''NaN'', ''NaN'', ''d'')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (4, ''NaN'', ''e'')');
SELECT pg_temp.twin('INSERT INTO @eq VALUES (''NaN'', 4, ''f'')');
-- deferrable
SELECT pg_temp.make('df', 'a int UNIQUE DEFERRABLE, b int UNIQUE DEFERRABLE INITIALLY DEFERRED');
SELECT pg_temp.twin('INSERT INTO @df SELECT i, i FROM generate_series(1, 100) i');
SELECT pg_temp.twin('UPDATE @df SET a = a + 1');
SELECT pg_temp.twin('UPDATE @df SET a = a - 1, b = b + 1');
SELECT pg_temp.twin('UPDATE @df SET a = 1');
SELECT pg_temp.twin('SELECT * FROM @df');
BEGIN;
UPDATE s_df SET b = 1 WHERE a = 5;
INSERT INTO s_df VALUES (200, 2), (201, 2);
UPDATE s_df SET b = -a WHERE b IN (1, 2);
COMMIT;
SELECT count(*), count(DISTINCT b) FROM s_df;
BEGIN;
UPDATE s_df SET b = 50 WHERE a = 5;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
BEGIN;
INSERT INTO s_df VALUES (300, 50);
COMMIT;
SELECT count(*), count(DISTINCT b) FROM s_df;
-- foreign keys: every action
SELECT pg_temp.make('p', 'id int PRIMARY KEY, u text UNIQUE');
SELECT pg_temp.make('q', 'id int, a int REFERENCES @p ON DELETE CASCADE ON UPDATE CASCADE, b int REFERENCES @p ON DELETE SET NULL ON UPDATE SET NULL,
    c int DEFAULT 1 REFERENCES @p ON DELETE SET DEFAULT ON UPDATE SET DEFAULT, d int REFERENCES @p ON DELETE RESTRICT ON UPDATE RESTRICT, e int REFERENCES @p, f text REFERENCES @p (u) DEFERRABLE INITIALLY DEFERRED');
SELECT pg_temp.twin('INSERT INTO @p SELECT i, ''u'' || i FROM generate_series(1, 50) i');
SELECT pg_temp.twin('INSERT INTO @q SELECT i, i, i + 1, i + 2, NULL, NULL, ''u'' || i FROM generate_series(1, 30) i');
SELECT pg_temp.twin('INSERT INTO @q (id, a) VALUES (99, 99)');
SELECT pg_temp.twin('UPDATE @q SET b = 1000 WHERE id = 1');
SELECT pg_temp.twin('INSERT INTO @q (id, d) VALUES (100, 40)');
SELECT pg_temp.twin('INSERT INTO @q (id, e) VALUES (101, 41)');
SELECT pg_temp.twin('DELETE FROM @p WHERE id = 40') ~ '^ERROR 23(503|001)';      -- 001 (restrict violation) since 18
SELECT pg_temp.twin('UPDATE @p SET id = 140 WHERE id = 40') ~ '^ERROR 23(503|001)';      -- 001 (restrict violation) since 18
SELECT pg_temp.twin('DELETE FROM @p WHERE id = 41');
SELECT pg_temp.twin('UPDATE @p SET id = 141 WHERE id = 41');
SELECT pg_temp.twin('UPDATE @q SET f = NULL WHERE id < 20');
SELECT pg_temp.twin('DELETE FROM @p WHERE id IN (5, 15)');
SELECT pg_temp.twin('UPDATE @p SET id = id + 1000 WHERE id IN (6, 16)');
SELECT pg_temp.twin('UPDATE @p SET u = u || ''x'' WHERE id < 20');
SELECT pg_temp.twin('SELECT * FROM @p');
SELECT pg_temp.twin('SELECT * FROM @q');
BEGIN;
DELETE FROM s_p WHERE id = 25;
INSERT INTO s_p VALUES (25, 'u25');
COMMIT;
BEGIN;
UPDATE s_q SET f = 'nobody' WHERE id = 26;
COMMIT;
TRUNCATE s_p;
SELECT * FROM s_am WHERE relname ~ '^s_[pq]_' ORDER BY 1;
-- heap to sofort and sofort to heap; self-reference; added later
CREATE TABLE h_ref (i int REFERENCES s_p);
INSERT INTO h_ref VALUES (1);
INSERT INTO h_ref VALUES (5);
CREATE TABLE s_ref (i int PRIMARY KEY, up int REFERENCES s_ref ON DELETE CASCADE, h int REFERENCES h_p) USING sofort;
INSERT INTO s_ref VALUES (1, 1, 1), (2, 1, 2), (3, 2, NULL), (4, 4, NULL);
DELETE FROM s_ref WHERE i = 1;
SELECT * FROM s_ref;
CREATE TABLE s_later (i int) USING sofort;
INSERT INTO s_later SELECT generate_series(1, 5);
ALTER TABLE s_later ADD FOREIGN KEY (i) REFERENCES s_p;
DELETE FROM s_later WHERE i = 5;
ALTER TABLE s_later ADD FOREIGN KEY (i) REFERENCES s_p;
-- FK check, update that touches no key, delete
BEGIN;
INSERT INTO s_later VALUES (10);
UPDATE s_p SET u = 'changed' WHERE id = 10;
DELETE FROM s_p WHERE id = 10;
ROLLBACK;
-- CHECK, NOT NULL, EXCLUDE
SELECT pg_temp.half('CREATE TABLE s_exclude (i int, EXCLUDE USING sofort_index (i WITH =)) USING sofort');
CREATE TABLE s_exclude (i int) USING sofort;
SELECT pg_temp.half('ALTER TABLE s_exclude ADD CONSTRAINT x EXCLUDE USING sofort_index (i WITH =)');
SELECT pg_temp.half('ALTER TABLE s_exclude ADD j int, ADD EXCLUDE USING sofort_index ((i + 1) WITH =)');
SELECT pg_temp.half('CREATE TABLE h_exclude (i int, EXCLUDE USING sofort_index (i WITH =)) USING heap');
\set VERBOSITY default
ALTER TABLE s_exclude ADD EXCLUDE USING sofort_index (i WITH =);
\set VERBOSITY terse
ALTER TABLE s_exclude ADD CONSTRAINT s_exclude_btree EXCLUDE USING btree (i WITH =), ADD EXCLUDE (i WITH =);
INSERT INTO s_exclude VALUES (1), (1);
SELECT pg_temp.make('x', 'r int4range, n int NOT NULL CHECK (n > 0), EXCLUDE USING gist (r WITH &&)');
SELECT pg_temp.twin('INSERT INTO @x SELECT int4range(i * 10, i * 10 + 5), i + 1 FROM generate_series(0, 50) i');
SELECT pg_temp.twin('INSERT INTO @x VALUES (''[3,12)'', 1)');
SELECT pg_temp.twin('INSERT INTO @x VALUES (''[5,10)'', 0)');
SELECT pg_temp.twin('INSERT INTO @x VALUES (''[5,10)'', NULL)');
SELECT pg_temp.twin('INSERT INTO @x VALUES (''[5,10)'', 5)');
SELECT pg_temp.twin('UPDATE @x SET r = ''[0,100)'' WHERE n = 1');
SELECT pg_temp.twin('DELETE FROM @x WHERE r && ''[0,100)''');
SELECT pg_temp.twin('INSERT INTO @x VALUES (''[0,100)'', 5)');
SELECT pg_temp.twin('SELECT * FROM @x');
-- which index access method
CREATE TABLE s_i1 (a int PRIMARY KEY, b point, c int UNIQUE) USING sofort;
CREATE TABLE s_i2 (LIKE h_p INCLUDING ALL) USING sofort;
CREATE TABLE h_i3 (LIKE s_i1 INCLUDING ALL) USING heap;
CREATE TABLE s_i4 (a int PRIMARY KEY WITH (deduplicate_items = off), b int UNIQUE WITH (fillfactor = 70)) USING sofort;
ALTER TABLE s_i1 ADD d serial UNIQUE, ADD UNIQUE (a, c);
SET sofort.default_index = btree;
CREATE TABLE s_i5 (a int PRIMARY KEY) USING sofort;
RESET sofort.default_index;
CREATE SCHEMA s_sch CREATE TABLE s_i6 (a int PRIMARY KEY) CREATE TABLE s_i7 (b int UNIQUE);
CREATE TABLE s_i8 () INHERITS (s_i1) USING sofort;
ALTER TABLE s_i8 ADD PRIMARY KEY (c);
SET default_table_access_method = sofort;
CREATE TABLE s_i9 (a text PRIMARY KEY);
PREPARE mk AS SELECT 1;
DO 'BEGIN CREATE TABLE s_i10 (a uuid PRIMARY KEY); END';
RESET default_table_access_method;
SELECT * FROM s_am WHERE relname ~ '^s_i[0-9]' ORDER BY 1;
SELECT c.relname, amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname LIKE 'h\_i3%' ORDER BY 1;
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 's_i1'::regclass AND contype <> 'n' ORDER BY 1;
-- ALTER COLUMN TYPE keeps the access method
INSERT INTO s_i1 VALUES (1, NULL, 1, 1);
ALTER TABLE s_i1 ALTER a TYPE bigint, ALTER c TYPE numeric;
INSERT INTO s_i1 VALUES (1, NULL, 2, 2);
SELECT * FROM s_am WHERE relname LIKE 's\_i1\_%' ORDER BY 1;
-- ... also through the type of typed tables, and through parents that are foreign
CREATE VIEW s_options AS SELECT relname, amname, reloptions FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relkind = 'i' AND relnamespace = 'reg_constraints'::regnamespace;
CREATE TYPE person AS (n int, m text);
CREATE TABLE s_typed OF person (n WITH OPTIONS PRIMARY KEY, m WITH OPTIONS CONSTRAINT s_typed_m UNIQUE WITH (placement = pmem, fillfactor = 70)) USING sofort;
CREATE TABLE s_typed_child (CONSTRAINT s_typed_child_key UNIQUE (n) WITH (placement = hybrid)) INHERITS (s_typed) USING sofort;
CREATE TABLE h_typed OF person (n WITH OPTIONS PRIMARY KEY) USING heap;
INSERT INTO s_typed SELECT i, 'm' || i FROM generate_series(1, 100) i;
INSERT INTO s_typed_child SELECT i, 'c' || i FROM generate_series(1, 100) i;
ALTER TYPE person ALTER ATTRIBUTE n TYPE bigint;
ALTER TYPE person ALTER ATTRIBUTE n TYPE bigint CASCADE, ALTER ATTRIBUTE m TYPE varchar CASCADE;
SELECT relname, amname, CASE WHEN relname !~ 'typed_pkey' THEN reloptions END FROM s_options WHERE relname ~ 'typed' ORDER BY 1;
INSERT INTO s_typed VALUES (101, 'm7');
INSERT INTO s_typed_child VALUES (7, 'x');
SELECT n, m FROM s_typed WHERE n = 7 ORDER BY m;
SELECT * FROM sofort.verify('s_typed');
SELECT * FROM sofort.verify('s_typed_child');
CREATE FOREIGN DATA WRAPPER s_nowhere;
CREATE SERVER s_nowhere FOREIGN DATA WRAPPER s_nowhere;
CREATE FOREIGN TABLE f_parent (a int, b int) SERVER s_nowhere;
CREATE TABLE s_of_foreign (PRIMARY KEY (a), UNIQUE (b) WITH (placement = pmem)) INHERITS (f_parent) USING sofort;
INSERT INTO s_of_foreign SELECT i, i FROM generate_series(1, 100) i;
ALTER FOREIGN TABLE f_parent ALTER a TYPE bigint;
ALTER TABLE f_parent ALTER b TYPE bigint;
SELECT relname, amname, CASE WHEN relname !~ 'pkey' THEN reloptions END FROM s_options WHERE relname ~ 'of_foreign' ORDER BY 1;
INSERT INTO s_of_foreign VALUES (101, 7);
SELECT * FROM sofort.verify('s_of_foreign');
ALTER FOREIGN TABLE f_parent SET ACCESS METHOD sofort;
DROP SERVER s_nowhere CASCADE;
DROP FOREIGN DATA WRAPPER s_nowhere;
-- ... and SET EXPRESSION (17)
CREATE TABLE s_generated (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a % 500) STORED, c int GENERATED ALWAYS AS (-a) STORED, CONSTRAINT s_generated_c UNIQUE (c) WITH (placement = pmem), CONSTRAINT s_generated_ab UNIQUE (b, a)) USING sofort;
INSERT INTO s_generated SELECT i FROM generate_series(1, 100) i;
DO $$ BEGIN
    IF current_setting('server_version_num')::int >= 170000 THEN
        EXECUTE 'ALTER TABLE s_generated ALTER b SET EXPRESSION AS (a % 50), ALTER c SET EXPRESSION AS (-a - 1)';
    END IF;
END $$;
SELECT relname, amname, CASE WHEN relname = 's_generated_c' THEN reloptions END FROM s_options WHERE relname ~ '^s_generated' ORDER BY 1;
SELECT * FROM sofort.verify('s_generated');
-- what a constraint of the same name had is not passed on
CREATE FUNCTION pg_temp.options(t regclass) RETURNS TABLE (index name, am name, fill text) LANGUAGE sql AS
$$ SELECT c.relname, amname, substring(reloptions::text FROM 'fillfactor=\d+') FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE indrelid = t ORDER BY 1 $$;
CREATE TABLE s_o (a int CONSTRAINT s_o_k PRIMARY KEY WITH (fillfactor = 80), b int NOT NULL, c int UNIQUE WITH (fillfactor = 60)) USING sofort;
ALTER TABLE s_o ALTER a TYPE bigint, DROP CONSTRAINT s_o_k, ADD CONSTRAINT s_o_k PRIMARY KEY (b);
SELECT * FROM pg_temp.options('s_o');
ALTER TABLE s_o ALTER b TYPE bigint, DROP CONSTRAINT s_o_k, ADD CONSTRAINT s_o_k PRIMARY KEY (b) WITH (fillfactor = 50);
SELECT * FROM pg_temp.options('s_o');
ALTER TABLE s_o ALTER c TYPE bigint, DROP CONSTRAINT s_o_k, ADD CONSTRAINT s_o_k PRIMARY KEY (b) WITH (deduplicate_items = off);
SELECT * FROM pg_temp.options('s_o');
ALTER TABLE s_o ALTER c TYPE int, ALTER b TYPE int, DROP CONSTRAINT s_o_c_key, ADD UNIQUE (c);
SELECT * FROM pg_temp.options('s_o');
CREATE TABLE s_oo (a int PRIMARY KEY WITH (fillfactor = 80), b int NOT NULL, c int UNIQUE WITH (fillfactor = 60)) USING sofort;
ALTER TABLE s_oo ALTER c TYPE bigint, DROP COLUMN a, ADD PRIMARY KEY (b);
SELECT * FROM pg_temp.options('s_oo');
-- ADD CONSTRAINT USING INDEX
CREATE UNIQUE INDEX s_i1_own ON s_i1 USING sofort_index (d, a);
ALTER TABLE s_i1 ADD CONSTRAINT s_i1_own UNIQUE USING INDEX s_i1_own;
ALTER TABLE s_i2 DROP CONSTRAINT s_i2_pkey;
CREATE UNIQUE INDEX s_i2_pk ON s_i2 USING sofort_index (id);
INSERT INTO s_i2 SELECT i, 'x' || i FROM generate_series(1, 1000) i;
ALTER TABLE s_i2 ADD PRIMARY KEY USING INDEX s_i2_pk, ADD z int;
INSERT INTO s_i2 VALUES (77, 'new');
SELECT * FROM s_i2 WHERE id = 77;
SELECT * FROM s_am WHERE relname IN ('s_i1_own', 's_i2_pk') ORDER BY 1;
-- a type that needs no rewrite, and what reads the table before the command has ended
CREATE TABLE s_wider (id int, code varchar(10) UNIQUE) USING sofort;
INSERT INTO s_wider VALUES (1, 'a'), (2, 'b');
ALTER TABLE s_wider ALTER code TYPE varchar(20), ADD FOREIGN KEY (id) REFERENCES s_i2;
SELECT * FROM s_am WHERE relname LIKE 's\_wider%' ORDER BY 1;
CREATE FUNCTION s_reads() RETURNS event_trigger LANGUAGE plpgsql AS
    'DECLARE n int; BEGIN SELECT count(*) INTO n FROM s_wider WHERE code = ''a''; RAISE NOTICE ''read %'', n; END';
CREATE EVENT TRIGGER s_reads ON ddl_command_end EXECUTE FUNCTION s_reads();
SET client_min_messages = notice;
ALTER TABLE s_wider ALTER code TYPE varchar(30);
CREATE UNIQUE INDEX s_wider_id ON s_wider USING sofort_index (id);
ALTER TABLE s_wider ADD PRIMARY KEY USING INDEX s_wider_id;
SET client_min_messages = warning;
DROP EVENT TRIGGER s_reads;
INSERT INTO s_wider VALUES (3, 'a');
SELECT * FROM s_wider WHERE code = 'a';
SELECT * FROM s_am WHERE relname LIKE 's\_wider%' ORDER BY 1;
SELECT * FROM sofort.verify('s_wider');
-- partitions: unique indexes stay btrees
CREATE TABLE s_part (a int, b int) PARTITION BY RANGE (a);
ALTER TABLE s_part ADD PRIMARY KEY (a);
CREATE TABLE s_part1 PARTITION OF s_part (UNIQUE (b)) FOR VALUES FROM (0) TO (10) USING sofort;
CREATE TABLE s_part2 (a int PRIMARY KEY, b int UNIQUE) USING sofort;
INSERT INTO s_part2 VALUES (11, 11);
SELECT * FROM s_am WHERE relname LIKE 's\_part%' ORDER BY 1;
ALTER TABLE s_part ATTACH PARTITION s_part2 FOR VALUES FROM (10) TO (20);
SELECT * FROM s_am WHERE relname LIKE 's\_part%' ORDER BY 1;
INSERT INTO s_part VALUES (1, 1), (11, 12);
INSERT INTO s_part VALUES (1, 1), (11, 12), (12, 12) ON CONFLICT DO NOTHING;
INSERT INTO s_part VALUES (1, 5) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b;
UPDATE s_part SET a = a + 10 WHERE a = 1;
UPDATE s_part SET a = 3 WHERE a = 12;
SELECT tableoid::regclass, * FROM s_part ORDER BY a;
SELECT * FROM sofort.verify('s_pk');
SELECT * FROM sofort.verify('s_un');
SELECT * FROM sofort.verify('s_eq');
SELECT * FROM sofort.verify('s_df');
SELECT * FROM sofort.verify('s_p');
SELECT * FROM sofort.verify('s_q');
SELECT * FROM sofort.verify('s_i1');
SELECT * FROM sofort.verify('s_i2');
-- what reads a table, by its indexes, while a command changes their access method
SET enable_seqscan = off;
CREATE TABLE s_read (id int PRIMARY KEY, code varchar(10) UNIQUE) USING heap;
INSERT INTO s_read SELECT i, 'c' || i FROM generate_series(1, 2000) i;
CREATE FUNCTION s_reader(int) RETURNS int LANGUAGE plpgsql AS
    'BEGIN RETURN (SELECT count(*) FROM s_read WHERE id BETWEEN 100 AND 109) + (SELECT count(*) FROM s_read WHERE code = ''c7''); END';
CREATE FUNCTION s_reading() RETURNS event_trigger LANGUAGE plpgsql AS
    'BEGIN RAISE NOTICE ''%: read %'', tg_event, s_reader(0); END';
CREATE EVENT TRIGGER s_rewrite ON table_rewrite EXECUTE FUNCTION s_reading();
CREATE EVENT TRIGGER s_start ON ddl_command_start EXECUTE FUNCTION s_reading();
SET client_min_messages = notice;
ALTER TABLE s_read SET ACCESS METHOD sofort;
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
ALTER TABLE s_read DROP CONSTRAINT s_read_code_key;
CREATE UNIQUE INDEX s_read_code_key ON s_read USING sofort_index (code);
ALTER TABLE s_read ADD UNIQUE USING INDEX s_read_code_key;
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
ALTER TABLE s_read SET ACCESS METHOD heap;
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
ALTER EVENT TRIGGER s_rewrite DISABLE;
ALTER EVENT TRIGGER s_start DISABLE;
ALTER TABLE s_read SET ACCESS METHOD sofort, ADD n int DEFAULT s_reader(1);
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
ALTER TABLE s_read ADD CHECK (s_reader(id) >= 0);
ALTER TABLE s_read ALTER code TYPE varchar(20);
ALTER TABLE s_read SET ACCESS METHOD heap, ADD m int DEFAULT s_reader(1);
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
SET client_min_messages = warning;
CREATE TABLE s_up (id varchar(10) PRIMARY KEY) USING sofort;
CREATE FUNCTION s_reads_up(text) RETURNS bool LANGUAGE plpgsql AS
    'BEGIN RETURN (SELECT count(*) FROM ONLY s_up WHERE id = $1) >= 0; END';
CREATE TABLE s_down (CHECK (s_reads_up(id))) INHERITS (s_up) USING sofort;
INSERT INTO s_up VALUES ('x');
INSERT INTO s_down VALUES ('x');
ALTER TABLE s_up ALTER id TYPE varchar(20);
SELECT * FROM s_am WHERE relname LIKE 's\_up%' ORDER BY 1;
DROP TABLE s_down, s_up;
DROP FUNCTION s_reads_up;
ALTER TABLE s_read SET ACCESS METHOD sofort;
SELECT * FROM s_am WHERE relname LIKE 's\_read%' ORDER BY 1;
SELECT count(*), min(n), s_reader(0) FROM s_read;
SELECT * FROM sofort.verify('s_read');
DROP EVENT TRIGGER s_rewrite;
DROP EVENT TRIGGER s_start;
DROP TABLE s_read;
DROP FUNCTION s_reading, s_reader;
RESET enable_seqscan;
-- SET ACCESS METHOD beside what makes an index of a constraint again, or another one of its name
CREATE TABLE s_twice (id int PRIMARY KEY, code int CONSTRAINT s_twice_code UNIQUE, v varchar(10), UNIQUE (v) WITH (fillfactor = 70)) USING heap;
INSERT INTO s_twice SELECT i, i, 'v' || i FROM generate_series(1, 2000) i;
ALTER TABLE s_twice ALTER id TYPE bigint, SET ACCESS METHOD sofort;
SELECT * FROM s_am WHERE relname LIKE 's\_twice%' ORDER BY 1;
ALTER TABLE s_twice SET ACCESS METHOD heap, ALTER code TYPE bigint;
SELECT * FROM s_am WHERE relname LIKE 's\_twice%' ORDER BY 1;
ALTER TABLE s_twice SET ACCESS METHOD sofort, ALTER v TYPE text, DROP CONSTRAINT s_twice_code,
    ADD CONSTRAINT s_twice_code UNIQUE (code) WITH (deduplicate_items = off);
SELECT * FROM s_am WHERE relname LIKE 's\_twice%' ORDER BY 1;
SELECT 'fillfactor=70' = ANY (reloptions) FROM pg_class WHERE relname = 's_twice_v_key';
SET enable_seqscan = off;
SELECT * FROM s_twice WHERE id = 7 AND v = 'v7' AND code = 7;
RESET enable_seqscan;
INSERT INTO s_twice VALUES (2001, 2001, 'v7');
SELECT * FROM sofort.verify('s_twice');
DROP TABLE s_twice;
-- the same for ADD CONSTRAINT USING INDEX
CREATE TABLE s_using (id int NOT NULL, code int, v varchar(10) UNIQUE) USING sofort;
INSERT INTO s_using SELECT i, i, 'v' || i FROM generate_series(1, 2000) i;
CREATE UNIQUE INDEX s_using_id ON s_using USING sofort_index (id) WITH (placement = pmem, fillfactor = 70);
CREATE UNIQUE INDEX s_using_code ON s_using USING sofort_index (code) WITH (placement = pmem);
ALTER TABLE s_using ADD CONSTRAINT s_using_pk PRIMARY KEY USING INDEX s_using_id, ALTER id TYPE bigint, ALTER v TYPE text;
ALTER TABLE s_using ALTER code TYPE bigint, ADD UNIQUE USING INDEX s_using_code;
SELECT * FROM s_am WHERE relname LIKE 's\_using%' ORDER BY 1;
SELECT relname, reloptions FROM pg_class WHERE relname IN ('s_using_pk', 's_using_code') ORDER BY 1;
SET enable_seqscan = off;
SELECT * FROM s_using WHERE id = 7 AND v = 'v7' AND code = 7;
RESET enable_seqscan;
INSERT INTO s_using VALUES (2001, 7);
SELECT * FROM sofort.verify('s_using');
DROP TABLE s_using;
-- ADD CONSTRAINT USING INDEX, then TRUNCATE: the index keeps its options, and no others
BEGIN;
CREATE TABLE s_truncated (id int NOT NULL, v text) USING sofort;
CREATE UNIQUE INDEX s_truncated_id ON s_truncated USING sofort_index (id) WITH (placement = pmem, fillfactor = 50);
CREATE UNIQUE INDEX s_truncated_v ON s_truncated USING sofort_index (v) WITH (placement = dram, fillfactor = 90);
ALTER TABLE s_truncated ADD PRIMARY KEY USING INDEX s_truncated_id;
ALTER TABLE s_truncated ADD UNIQUE USING INDEX s_truncated_v;
TRUNCATE s_truncated;
INSERT INTO s_truncated SELECT i, 'text ' || i FROM generate_series(1, 20000) i;
SELECT index, placement, status FROM sofort.indexes WHERE relation = 's_truncated'::regclass ORDER BY 1;
COMMIT;
SET enable_seqscan = off;
SELECT count(*), min(id), max(id) FROM s_truncated WHERE id BETWEEN 5 AND 19995;
RESET enable_seqscan;
SELECT index, placement, status FROM sofort.indexes WHERE relation = 's_truncated'::regclass ORDER BY 1;
SELECT * FROM sofort.verify('s_truncated');
DROP TABLE s_truncated;
