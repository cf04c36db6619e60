-- Version chains: with and without changes of indexed columns.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_updates;
SET search_path = reg_updates;
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
SELECT pg_temp.make('u', 'id int PRIMARY KEY, k int, hot int, t text');
CREATE INDEX ON s_u (k);
CREATE INDEX ON h_u (k);
CREATE INDEX s_u_hot ON s_u USING sofort_index (k DESC);
SELECT pg_temp.twin('INSERT INTO @u SELECT i, i % 50, 0, ''t'' FROM generate_series(1, 500) i');
-- one row, many versions
DO $$ BEGIN
    FOR i IN 1..3000 LOOP
        UPDATE s_u SET hot = hot + 1 WHERE id = 7;
        UPDATE h_u SET hot = hot + 1 WHERE id = 7;
    END LOOP;
END $$;
SELECT pg_temp.twin('SELECT * FROM @u WHERE id = 7');
SELECT pg_temp.twin('SELECT * FROM @u WHERE k = 7');
-- many transactions, one version each
CREATE PROCEDURE s_bump(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP
        UPDATE s_u SET hot = hot + 1, t = 'v' || i WHERE id = 8;
        UPDATE h_u SET hot = hot + 1, t = 'v' || i WHERE id = 8;
        COMMIT;
    END LOOP;
END $$;
CALL s_bump(500);
SELECT pg_temp.twin('SELECT * FROM @u WHERE id = 8');
SELECT pg_temp.twin('SELECT * FROM @u');
-- the same row over and over, by different paths
SELECT pg_temp.twin('UPDATE @u SET k = k + 1000 WHERE id % 10 = 0');
SELECT pg_temp.twin('UPDATE @u SET hot = -1 WHERE k >= 1000');
SELECT pg_temp.twin('UPDATE @u SET id = id + 10000 WHERE k >= 1040');
SELECT pg_temp.twin('UPDATE @u SET hot = hot - 1 WHERE id > 10000');
SELECT pg_temp.twin('UPDATE @u SET k = k - 1000 WHERE k >= 1000');
SELECT pg_temp.twin('SELECT * FROM @u');
SET enable_seqscan = off;
SELECT pg_temp.twin('SELECT * FROM @u WHERE k BETWEEN 10 AND 20');
SELECT pg_temp.twin('SELECT k FROM @u WHERE k BETWEEN 10 AND 20');
SELECT pg_temp.twin('SELECT * FROM @u WHERE id > 10000');
SELECT pg_temp.twin('SELECT id FROM @u WHERE id < 30');
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT pg_temp.twin('SELECT * FROM @u WHERE k BETWEEN 10 AND 20 OR id < 40');
RESET enable_indexscan;
RESET enable_indexonlyscan;
RESET enable_seqscan;
-- an old snapshot goes on seeing the old versions, through every path
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*), sum(hot) FROM s_u;
SELECT sum(hot) FROM s_u WHERE k = 9;
DECLARE before CURSOR FOR SELECT id, k, hot FROM s_u WHERE id IN (7, 8, 9) ORDER BY id;
UPDATE s_u SET hot = 100 WHERE id = 9;
UPDATE s_u SET k = 77, hot = 101 WHERE id = 9;
UPDATE s_u SET hot = 102 WHERE id = 9;
DELETE FROM s_u WHERE id = 8;
FETCH ALL FROM before;
SELECT id, k, hot FROM s_u WHERE id IN (7, 8, 9) ORDER BY id;
ROLLBACK;
SELECT id, k, hot FROM s_u WHERE id IN (7, 8, 9) ORDER BY id;
SELECT pg_temp.twin('SELECT * FROM @u');
-- update and delete in one command; update of a row that the command made
SELECT pg_temp.twin('UPDATE @u SET hot = 5 FROM generate_series(1, 3) g WHERE id = 11 AND g > 0');
SELECT pg_temp.twin('SELECT * FROM @u WHERE id = 11');
WITH a AS (UPDATE s_u SET hot = 6 WHERE id = 12 RETURNING id), b AS (DELETE FROM s_u WHERE id = 12 RETURNING id) SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) AS once;
SELECT count(*) <= 1 FROM s_u WHERE id = 12;
DELETE FROM h_u WHERE id = 12;
DELETE FROM s_u WHERE id = 12;
-- index made over existing chains
UPDATE s_u SET hot = id WHERE id < 200;
UPDATE h_u SET hot = id WHERE id < 200;
UPDATE s_u SET hot = id + 1 WHERE id < 100;
UPDATE h_u SET hot = id + 1 WHERE id < 100;
CREATE INDEX s_u_h ON s_u USING sofort_index (hot);
CREATE INDEX h_u_h ON h_u (hot);
CREATE INDEX s_u_hb ON s_u USING btree (hot);
SET enable_seqscan = off;
SELECT pg_temp.twin('SELECT * FROM @u WHERE hot BETWEEN 50 AND 150');
DROP INDEX s_u_h;
SELECT pg_temp.twin('SELECT * FROM @u WHERE hot BETWEEN 50 AND 150');
RESET enable_seqscan;
SELECT pg_temp.twin('DELETE FROM @u WHERE id % 2 = 0');
SELECT pg_temp.twin('UPDATE @u SET hot = 0');
SELECT pg_temp.twin('SELECT * FROM @u');
SELECT * FROM sofort.verify('s_u');
VACUUM s_u;
SELECT pg_temp.twin('SELECT * FROM @u');
SELECT * FROM sofort.verify('s_u');
-- a small table stays in its order when all rows are updated, whatever was freed before
CREATE TABLE small (id int, n int) USING sofort WITH (autovacuum_enabled = off);
INSERT INTO small SELECT i, 0 FROM generate_series(1, 20) i;
UPDATE small SET n = 1;
UPDATE small SET n = 2;
UPDATE small SET n = 3;
VACUUM small;
UPDATE small SET n = 4;
VACUUM small;
UPDATE small SET n = 5;
UPDATE small SET n = 6;
UPDATE small SET n = 7;
VACUUM small;
UPDATE small SET n = 8;
UPDATE small SET n = 9;
UPDATE small SET n = 10;
UPDATE small SET n = 11;
UPDATE small SET n = 12;
UPDATE small SET n = 13;
UPDATE small SET n = 14;
UPDATE small SET n = 15;
UPDATE small SET n = 16;
UPDATE small SET n = 17;
UPDATE small SET n = 18;
UPDATE small SET n = 19;
UPDATE small SET n = 20;
SELECT array_agg(id) = array_agg(id ORDER BY id) FROM (SELECT id FROM small) x;

-- An input function may leave other bytes of a Datum than a row does (oid): nothing has changed.
CREATE TABLE high (id oid PRIMARY KEY, v int) USING sofort;
INSERT INTO high VALUES (3000000000, 0);
BEGIN;
UPDATE high SET id = 3000000000, v = 1;
UPDATE high SET id = 3000000000, v = 2;
UPDATE high SET id = 3000000000, v = 3;
SELECT entries FROM sofort.indexes WHERE relation = 'high'::regclass;
COMMIT;
SELECT * FROM high;
DROP TABLE high;
