-- Savepoints, aborts, command ids.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_savepoints;
SET search_path = reg_savepoints;
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
SELECT pg_temp.make('s', 'id int PRIMARY KEY, v text');
SELECT pg_temp.twin('INSERT INTO @s SELECT i, ''base'' FROM generate_series(1, 300) i');
-- abort
BEGIN;
INSERT INTO s_s SELECT i, 'gone' FROM generate_series(1001, 2500) i;
UPDATE s_s SET v = 'gone' WHERE id < 50;
DELETE FROM s_s WHERE id BETWEEN 100 AND 150;
SELECT count(*) FROM s_s;
ROLLBACK;
SELECT pg_temp.twin('SELECT * FROM @s');
-- nested savepoints, one released, one rolled back
DO $$
DECLARE x text;
BEGIN
    FOREACH x IN ARRAY ARRAY['s', 'h'] LOOP
        EXECUTE format('UPDATE %s_s SET v = ''1'' WHERE id <= 10', x);
        BEGIN
            EXECUTE format('UPDATE %s_s SET v = ''2'' WHERE id <= 9', x);
            EXECUTE format('DELETE FROM %s_s WHERE id = 1', x);
            BEGIN
                EXECUTE format('UPDATE %s_s SET v = ''3'' WHERE id <= 8', x);
                EXECUTE format('INSERT INTO %s_s SELECT i, ''3'' FROM generate_series(401, 1000) i', x);
                RAISE division_by_zero;
            EXCEPTION WHEN division_by_zero THEN
                EXECUTE format('UPDATE %s_s SET v = ''4'' WHERE id <= 7', x);
            END;
            EXECUTE format('INSERT INTO %s_s VALUES (401, ''4'')', x);
        EXCEPTION WHEN unique_violation THEN RAISE;
        END;
        BEGIN
            EXECUTE format('UPDATE %s_s SET v = ''5'', id = id + 5000 WHERE id <= 6', x);
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
        EXECUTE format('UPDATE %s_s SET v = v || ''!'' WHERE id <= 5', x);
    END LOOP;
END $$;
SELECT pg_temp.twin('SELECT * FROM @s');
SELECT * FROM s_s WHERE id <= 10 OR id > 300 ORDER BY id;
-- by hand, looking in between
BEGIN;
UPDATE s_s SET v = 'a' WHERE id = 20;
SAVEPOINT one;
UPDATE s_s SET v = 'b' WHERE id = 20;
DELETE FROM s_s WHERE id = 21;
SAVEPOINT two;
UPDATE s_s SET v = 'c', id = 20000 WHERE id = 20;
INSERT INTO s_s VALUES (21, 'again');
SELECT * FROM s_s WHERE id IN (20, 21, 20000) ORDER BY id;
ROLLBACK TO two;
SELECT * FROM s_s WHERE id IN (20, 21, 20000) ORDER BY id;
RELEASE two;
SAVEPOINT three;
UPDATE s_s SET v = 'd' WHERE id = 20;
RELEASE three;
SELECT * FROM s_s WHERE id IN (20, 21, 20000) ORDER BY id;
ROLLBACK TO one;
SELECT * FROM s_s WHERE id IN (20, 21, 20000) ORDER BY id;
DELETE FROM s_s WHERE id = 20;
ROLLBACK TO one;
UPDATE s_s SET v = v || 'e' WHERE id = 20;
COMMIT;
SELECT * FROM s_s WHERE id IN (20, 21, 20000) ORDER BY id;
-- parent and child write rows of the same block in turn
BEGIN;
UPDATE s_s SET v = 'parent' WHERE id BETWEEN 200 AND 220;
SAVEPOINT a;
UPDATE s_s SET v = 'child' WHERE id BETWEEN 210 AND 230;
DELETE FROM s_s WHERE id BETWEEN 225 AND 240;
ROLLBACK TO a;
SELECT v, count(*) FROM s_s WHERE id BETWEEN 200 AND 240 GROUP BY v ORDER BY v;
SAVEPOINT b;
DELETE FROM s_s WHERE id BETWEEN 200 AND 210;
RELEASE b;
SAVEPOINT c;
INSERT INTO s_s SELECT i, 'child' FROM generate_series(200, 205) i;
ROLLBACK TO c;
COMMIT;
SELECT v, count(*) FROM s_s WHERE id BETWEEN 200 AND 240 GROUP BY v ORDER BY v;
-- a failing statement undoes itself only
BEGIN;
INSERT INTO s_s VALUES (7001, 'x');
SAVEPOINT a;
INSERT INTO s_s SELECT i, 'x' FROM generate_series(7010, 7001, -1) i;
ROLLBACK TO a;
SELECT * FROM s_s WHERE id > 7000;
COMMIT;
SELECT * FROM s_s WHERE id > 7000;
-- deep nesting, and many in a row
DO $$
BEGIN
    FOR i IN 1..200 LOOP
        BEGIN
            INSERT INTO s_s VALUES (8000 + i, 'sub');
            IF i % 3 = 0 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT count(*), min(id), max(id) FROM s_s WHERE v = 'sub';
CREATE FUNCTION s_deep(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO s_s VALUES (9000 + n, 'deep');
    IF n < 100 THEN
        BEGIN
            PERFORM s_deep(n + 1);
            IF n = 60 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END IF;
END $$;
SELECT s_deep(1);
SELECT count(*), max(id) FROM s_s WHERE v = 'deep';
-- locks taken in a savepoint
BEGIN;
SELECT id FROM s_s WHERE id = 22 FOR KEY SHARE;
SAVEPOINT a;
SELECT id FROM s_s WHERE id = 22 FOR UPDATE;
UPDATE s_s SET v = 'locked' WHERE id = 22;
ROLLBACK TO a;
SELECT * FROM s_s WHERE id = 22 FOR SHARE;
UPDATE s_s SET v = 'mine' WHERE id = 22;
COMMIT;
SELECT * FROM s_s WHERE id = 22;
-- nested savepoints let go of their own locks, and of no others
CREATE TABLE s_l (id int PRIMARY KEY, n int) USING sofort;
INSERT INTO s_l SELECT i, 0 FROM generate_series(1, 2000) i;
BEGIN;
SELECT count(*) FROM (SELECT * FROM s_l WHERE id <= 100 FOR SHARE) q;
SAVEPOINT a;
SELECT count(*) FROM (SELECT * FROM s_l WHERE id <= 50 FOR UPDATE) q;
SAVEPOINT b;
SELECT count(*) FROM (SELECT * FROM s_l WHERE id BETWEEN 31 AND 80 FOR UPDATE) q;
SAVEPOINT c;
SELECT count(*) FROM (SELECT * FROM s_l WHERE id BETWEEN 71 AND 90 FOR UPDATE) q;
RELEASE c;
SAVEPOINT d;
SELECT count(*) FROM (SELECT * FROM s_l WHERE id BETWEEN 91 AND 100 FOR UPDATE) q;
SELECT sofort_test.lock_entries();
ROLLBACK TO d;
SELECT sofort_test.lock_entries();
ROLLBACK TO b;
SELECT sofort_test.lock_entries();
SELECT count(*) FROM (SELECT * FROM s_l WHERE id = 60 FOR UPDATE) q;
RELEASE b;
SELECT sofort_test.lock_entries();
ROLLBACK TO a;
SELECT sofort_test.lock_entries();
COMMIT;
SELECT sofort_test.lock_entries();
-- looking only at what has come since they began
CREATE FUNCTION pg_temp.blocks(stmt text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE before bigint := sofort_test.release_steps(); n bigint;
BEGIN
    FOR i IN 1..2000 LOOP
        BEGIN
            EXECUTE stmt USING i;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
    n := sofort_test.release_steps() - before;
    RETURN CASE WHEN n <= 4 * 2000 THEN 'few' ELSE n::text END;
END $$;
BEGIN;
SELECT count(*) FROM (SELECT * FROM s_l FOR SHARE) q;
SELECT sofort_test.release_steps() AS before \gset
SAVEPOINT a;
SELECT count(*) FROM (SELECT * FROM s_l FOR UPDATE) q;
SELECT sofort_test.lock_entries();
ROLLBACK TO a;
SELECT sofort_test.lock_entries();
SELECT CASE WHEN n <= 3 * 4000 THEN 'few' ELSE n::text END AS looked_at FROM (SELECT sofort_test.release_steps() - :before AS n) q;
SELECT pg_temp.blocks('SELECT * FROM s_l WHERE id = $1 FOR UPDATE');
SELECT pg_temp.blocks('UPDATE s_l SET n = 1 WHERE id = $1');
SELECT pg_temp.blocks('INSERT INTO s_l VALUES ($1 + 10000, 0)');
SELECT sofort_test.lock_entries();
ROLLBACK;
BEGIN;
SELECT count(*) FROM (SELECT * FROM s_l FOR KEY SHARE) q;
SELECT pg_temp.blocks('SELECT * FROM s_l WHERE id = $1 FOR UPDATE');
COMMIT;
BEGIN;
SELECT count(*) FROM (SELECT * FROM s_l FOR KEY SHARE) q;
SELECT pg_temp.blocks('DELETE FROM s_l WHERE id = $1');
COMMIT;
SELECT sofort_test.lock_entries();
SELECT count(*), sum(n) FROM s_l;
-- DDL and data together
BEGIN;
CREATE TABLE s_new (i int PRIMARY KEY) USING sofort;
INSERT INTO s_new SELECT generate_series(1, 1000);
SAVEPOINT a;
TRUNCATE s_new;
INSERT INTO s_new VALUES (1);
SELECT count(*) FROM s_new;
ROLLBACK TO a;
SELECT count(*) FROM s_new;
SAVEPOINT b;
DROP TABLE s_new;
ROLLBACK TO b;
SELECT count(*), max(i) FROM s_new;
CREATE INDEX ON s_new USING sofort_index ((i % 10));
SAVEPOINT c;
CREATE TABLE s_new2 (i int) USING sofort;
INSERT INTO s_new2 VALUES (1);
ROLLBACK TO c;
COMMIT;
SELECT count(*), max(i) FROM s_new;
SELECT to_regclass('s_new2');
BEGIN;
TRUNCATE s_new;
INSERT INTO s_new VALUES (5);
ROLLBACK;
SELECT count(*) FROM s_new;
SELECT * FROM sofort.verify('s_new');
SELECT * FROM sofort.verify('s_s');
-- A subtransaction that begins within a statement has a command id of that statement's rows; so do those within it
SELECT pg_temp.make('nest', 'id int PRIMARY KEY, v int');
SELECT pg_temp.twin('INSERT INTO @nest SELECT i, 0 FROM generate_series(1, 100) i');
CREATE FUNCTION nest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1;
    BEGIN
        EXECUTE format('UPDATE %I SET v = v + 1 WHERE id BETWEEN 11 AND 20', TG_TABLE_NAME);
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    RAISE 'no';
EXCEPTION WHEN raise_exception THEN RETURN NULL;
END $$;
CREATE FUNCTION nest_row(n int, name text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1;
    BEGIN
        EXECUTE format('UPDATE %I SET v = v + 100 WHERE id BETWEEN 51 AND 60', name);
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    RAISE 'no';
EXCEPTION WHEN raise_exception THEN RETURN n + 1;
END $$;
CREATE TRIGGER nest AFTER DELETE OR UPDATE OF id ON s_nest FOR EACH STATEMENT EXECUTE FUNCTION nest();
CREATE TRIGGER nest AFTER DELETE OR UPDATE OF id ON h_nest FOR EACH STATEMENT EXECUTE FUNCTION nest();
DELETE FROM s_nest WHERE id = 22;
DELETE FROM h_nest WHERE id = 22;
SELECT pg_temp.twin('TABLE @nest');
UPDATE s_nest SET id = id + 1000 WHERE id IN (23, 24);
UPDATE h_nest SET id = id + 1000 WHERE id IN (23, 24);
SELECT pg_temp.twin('TABLE @nest');
SELECT pg_temp.twin('UPDATE @nest SET v = nest_row(v, ''@nest'') WHERE id BETWEEN 31 AND 34');
SELECT pg_temp.twin('WITH d AS (DELETE FROM @nest WHERE id BETWEEN 41 AND 44 RETURNING nest_row(v, ''@nest'')) SELECT * FROM d');
SELECT pg_temp.twin('TABLE @nest');
SELECT * FROM sofort.verify('s_nest');
-- a row that is claimed twice within such a subtransaction: the second time fails, the first one counts
SELECT pg_temp.make('twice', 'id int PRIMARY KEY, v int');
SELECT pg_temp.twin('INSERT INTO @twice SELECT i, 0 FROM generate_series(1, 40) i');
CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE t text := TG_ARGV[0];
BEGIN
    IF NEW.id % 3 = 0 THEN
        EXECUTE format('DELETE FROM %I USING (VALUES ($1), ($1)) x(i) WHERE id = i', t) USING NEW.v;
    ELSIF NEW.id % 3 = 1 THEN
        EXECUTE format('UPDATE %I SET v = v + 1 FROM (VALUES ($1), ($1), ($1 + 1), ($1 + 1)) x(i) WHERE id = i', t) USING NEW.v;
    ELSE
        EXECUTE format('MERGE INTO %I USING (VALUES ($1), ($1)) x(i) ON id = i WHEN MATCHED THEN DELETE', t) USING NEW.v;
    END IF;
    IF NEW.id >= 10 THEN RAISE 'no'; END IF;
    RETURN NULL;
EXCEPTION WHEN raise_exception OR cardinality_violation THEN RETURN NULL;
END $$;
CREATE TABLE s_fires (id int, v int) USING sofort;
CREATE TABLE h_fires (id int, v int) USING heap;
CREATE TRIGGER twice AFTER INSERT ON s_fires FOR EACH ROW EXECUTE FUNCTION twice('s_twice');
CREATE TRIGGER twice AFTER INSERT ON h_fires FOR EACH ROW EXECUTE FUNCTION twice('h_twice');
INSERT INTO s_fires VALUES (0, 1), (1, 2), (2, 4);
INSERT INTO h_fires VALUES (0, 1), (1, 2), (2, 4);
INSERT INTO s_fires VALUES (12, 11), (13, 12), (14, 14);
INSERT INTO h_fires VALUES (12, 11), (13, 12), (14, 14);
BEGIN;
INSERT INTO s_fires VALUES (3, 21), (4, 22), (5, 24);
ROLLBACK;
SELECT pg_temp.twin('TABLE @twice');
-- the slot comes round
CREATE PROCEDURE small_ones() LANGUAGE plpgsql AS 'BEGIN FOR i IN 1 .. 40 LOOP INSERT INTO s_fires VALUES (100 + 3 * i, -1); COMMIT; END LOOP; END';
CALL small_ones();
SELECT pg_temp.twin('TABLE @twice');
SELECT pg_temp.twin('UPDATE @twice SET v = v + 1');
VACUUM s_twice;
SELECT * FROM sofort.verify('s_twice');
