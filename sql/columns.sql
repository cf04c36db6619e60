-- Columns come and go.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_columns;
SET search_path = reg_columns;
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
SELECT pg_temp.make('c', 'id int PRIMARY KEY, a text');
SELECT pg_temp.twin('INSERT INTO @c SELECT i, ''a'' || i FROM generate_series(1, 600) i');
-- defaults that need no rewrite: old rows take the missing value
SELECT pg_temp.twin('ALTER TABLE @c ADD b int DEFAULT 42');
SELECT pg_temp.twin('ALTER TABLE @c ADD d text');
SELECT pg_temp.twin('ALTER TABLE @c ADD e numeric NOT NULL DEFAULT 1.50');
SELECT pg_temp.twin('SELECT * FROM @c');
SELECT pg_temp.twin('INSERT INTO @c (id, b) SELECT i, NULL FROM generate_series(601, 900) i');
SELECT pg_temp.twin('INSERT INTO @c (id) SELECT i FROM generate_series(901, 1000) i');
SELECT pg_temp.twin('UPDATE @c SET d = ''set'' WHERE id % 50 = 0');
SELECT pg_temp.twin('ALTER TABLE @c ALTER b SET DEFAULT 7');
SELECT pg_temp.twin('SELECT * FROM @c');
SELECT pg_temp.twin('SELECT b, e, count(*), count(d) FROM @c GROUP BY 1, 2');
-- a volatile default rewrites
SELECT pg_temp.twin('ALTER TABLE @c ADD f int DEFAULT length(random()::text) * 0 + 5');
SELECT pg_temp.twin('SELECT * FROM @c');
-- drop, and use the name again
SELECT pg_temp.twin('ALTER TABLE @c DROP a');
SELECT pg_temp.twin('SELECT * FROM @c');
SELECT pg_temp.twin('ALTER TABLE @c ADD a int');
SELECT pg_temp.twin('UPDATE @c SET a = id WHERE id < 100');
SELECT pg_temp.twin('INSERT INTO @c (id, a) VALUES (2000, 2000)');
SELECT pg_temp.twin('SELECT * FROM @c');
SELECT pg_temp.twin('SELECT a FROM @c WHERE a IS NOT NULL');
-- rolled back, then again with another type
CREATE TABLE s_r (i int) USING sofort;
INSERT INTO s_r SELECT generate_series(1, 3);
BEGIN;
ALTER TABLE s_r ADD c text;
INSERT INTO s_r SELECT i, 'text ' || i FROM generate_series(10, 1500) i;
UPDATE s_r SET c = 'was there' WHERE i < 4;
SELECT count(*), count(c) FROM s_r;
ROLLBACK;
SELECT * FROM s_r ORDER BY i;
ALTER TABLE s_r ADD c int;
SELECT * FROM s_r ORDER BY i;
INSERT INTO s_r SELECT i, -i FROM generate_series(10, 1500) i;
SELECT count(*), sum(c), min(c), count(c) FROM s_r;
-- the same in a savepoint, with another length and by-value-ness
BEGIN;
SAVEPOINT a;
ALTER TABLE s_r ADD d bigint DEFAULT 5;
INSERT INTO s_r VALUES (1, 1, 1);
ROLLBACK TO a;
ALTER TABLE s_r ADD d boolean DEFAULT true;
INSERT INTO s_r VALUES (2001, 1, false);
SAVEPOINT b;
ALTER TABLE s_r DROP d;
INSERT INTO s_r VALUES (2002, 2);
ROLLBACK TO b;
ALTER TABLE s_r ADD e uuid;
COMMIT;
SELECT d, count(*), count(e) FROM s_r GROUP BY d ORDER BY d;
SELECT * FROM s_r WHERE i > 2000;
-- types: with and without rewrite
SELECT pg_temp.make('t', 'id int PRIMARY KEY, v varchar(10), n numeric(10,2), i int, ts timestamptz, c char(5)');
SELECT pg_temp.twin('INSERT INTO @t SELECT i, ''v'' || i % 20, i / 3.0, i, timestamptz ''2024-01-01 00:00+00'' + i * interval ''1 day'', ''c'' || i % 4 FROM generate_series(1, 1500) i');
SELECT pg_temp.twin('ALTER TABLE @t ALTER v TYPE text');
SELECT pg_temp.twin('SELECT * FROM @t');
SELECT pg_temp.twin('ALTER TABLE @t ALTER n TYPE numeric');
SELECT pg_temp.twin('ALTER TABLE @t ALTER i TYPE bigint');
SELECT pg_temp.twin('ALTER TABLE @t ALTER i TYPE text USING ''i'' || i');
SELECT pg_temp.twin('ALTER TABLE @t ALTER c TYPE varchar(3)');
SELECT pg_temp.twin('SELECT * FROM @t');
SET timezone = 'UTC';
SELECT pg_temp.twin('ALTER TABLE @t ALTER ts TYPE timestamp');
SELECT pg_temp.twin('SELECT * FROM @t');
SELECT pg_temp.twin('ALTER TABLE @t ALTER v TYPE varchar(3)');
SELECT pg_temp.twin('ALTER TABLE @t ALTER v TYPE varchar(5)');
SELECT pg_temp.twin('ALTER TABLE @t ALTER id TYPE bigint');
SELECT pg_temp.twin('INSERT INTO @t (id) VALUES (17)');
SELECT pg_temp.twin('INSERT INTO @t (id) VALUES (17000000000)');
SELECT pg_temp.twin('SELECT * FROM @t');
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = 's_t_pkey'::regclass;
-- rename, reorder by NOT NULL and CHECK
SELECT pg_temp.twin('ALTER TABLE @t RENAME i TO renamed');
SELECT pg_temp.twin('ALTER TABLE @t ALTER renamed SET NOT NULL');
SELECT pg_temp.twin('DELETE FROM @t WHERE renamed IS NULL');
SELECT pg_temp.twin('ALTER TABLE @t ALTER renamed SET NOT NULL');
SELECT pg_temp.twin('ALTER TABLE @t ADD CHECK (n >= 1)');
SELECT pg_temp.twin('SELECT * FROM @t');
-- many columns added and dropped
DO $$ BEGIN
    FOR i IN 1..40 LOOP
        EXECUTE format('ALTER TABLE s_r ADD x%s int DEFAULT %s', i, i);
        EXECUTE format('INSERT INTO s_r (i) VALUES (%s)', 3000 + i);
        EXECUTE format('ALTER TABLE s_r DROP x%s', i);
    END LOOP;
END $$;
SELECT count(*), count(c), sum(i) FROM s_r;
-- inheritance
CREATE TABLE s_par (a int, b text) USING sofort;
CREATE TABLE s_chi (c int DEFAULT 3) INHERITS (s_par) USING sofort;
INSERT INTO s_par VALUES (1, 'p');
INSERT INTO s_chi VALUES (2, 'c');
ALTER TABLE s_par ADD d int DEFAULT 4;
UPDATE s_par SET d = d + a;
SELECT tableoid::regclass, * FROM s_par ORDER BY a;
SELECT * FROM s_chi;
ALTER TABLE s_par DROP b;
SELECT tableoid::regclass, * FROM s_par ORDER BY a;
SELECT * FROM sofort.verify('s_c');
SELECT * FROM sofort.verify('s_r');
SELECT * FROM sofort.verify('s_t');
