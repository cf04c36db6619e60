-- Insert, select, update, delete, COPY, against a heap twin.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_basics;
SET search_path = reg_basics;
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
SELECT pg_temp.make('b', 'id int PRIMARY KEY, a int, b text, c numeric, d date');
SELECT pg_temp.twin('SELECT * FROM @b');
SELECT pg_temp.twin('INSERT INTO @b SELECT i, i % 10, ''t'' || i % 7, i * 1.5, date ''2000-01-01'' + i FROM generate_series(1, 2000) i');
SELECT pg_temp.twin('SELECT * FROM @b');
SELECT pg_temp.twin('SELECT * FROM @b WHERE id = 77');
SELECT pg_temp.twin('SELECT * FROM @b WHERE id BETWEEN 100 AND 200 AND a = 3');
SELECT pg_temp.twin('SELECT a, count(*), sum(c), min(d), max(b) FROM @b GROUP BY a');
SELECT pg_temp.twin('UPDATE @b SET c = c + 1 WHERE a = 1');
SELECT pg_temp.twin('UPDATE @b SET id = -id WHERE a = 2');
SELECT pg_temp.twin('DELETE FROM @b WHERE a = 3');
SELECT pg_temp.twin('UPDATE @b SET b = NULL, d = NULL WHERE a = 4');
SELECT pg_temp.twin('SELECT * FROM @b');
SELECT pg_temp.twin('SELECT * FROM @b WHERE id < 0');
SELECT pg_temp.twin('INSERT INTO @b VALUES (5, 1, ''dup'', 0, NULL)');
SELECT pg_temp.twin('INSERT INTO @b VALUES (NULL, 1, ''null'', 0, NULL)');
SELECT pg_temp.twin('SELECT x.id, y.b FROM @b x JOIN @b y ON y.id = x.a WHERE x.id > 1900');
SELECT pg_temp.twin('SELECT * FROM @b WHERE b IS NULL');
SELECT pg_temp.twin('SELECT count(*), count(b), count(d) FROM @b');
SELECT pg_temp.twin('DELETE FROM @b WHERE id IN (SELECT id + 1 FROM @b)');
SELECT pg_temp.twin('SELECT * FROM @b');
-- whole-row, system columns
SELECT pg_temp.twin('SELECT b, b IS NULL FROM @b b WHERE id < 0');
SELECT tableoid::regclass, count(*), count(DISTINCT ctid) = count(*) AS ctids,
       bool_and(xmin IS NOT NULL) AS xmin, bool_and(xmax = '0') AS unlocked,
       bool_and(cmin IS NOT NULL) AS cmin FROM s_b GROUP BY 1;
SELECT count(*) FROM s_b x JOIN s_b y ON x.ctid = y.ctid;
-- RETURNING
CREATE TABLE s_ret (i int, t text) USING sofort;
INSERT INTO s_ret VALUES (1, 'one'), (2, 'two') RETURNING *, tableoid::regclass;
UPDATE s_ret SET t = t || '!' WHERE i = 1 RETURNING *;
DELETE FROM s_ret WHERE i = 2 RETURNING i, t;
SELECT * FROM s_ret;
-- nothing but NULLs, no columns at all
CREATE TABLE s_none () USING sofort;
INSERT INTO s_none DEFAULT VALUES;
INSERT INTO s_none SELECT FROM generate_series(1, 999);
SELECT count(*) FROM s_none;
DELETE FROM s_none;
SELECT count(*) FROM s_none;
-- COPY
CREATE TABLE s_when (i int) USING sofort;
CREATE FUNCTION s_when() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'row % of %', NEW.i, TG_TABLE_NAME; RETURN NULL; END $$;
CREATE TRIGGER s_when AFTER INSERT ON s_when FOR EACH ROW WHEN (NEW.xmin = pg_current_xact_id()::xid AND NEW.tableoid = 's_when'::regclass AND NEW.ctid <> '(0,1)') EXECUTE FUNCTION s_when();
COPY s_when FROM stdin;
1
2
3
\.
DROP TABLE s_when;
DROP FUNCTION s_when;
CREATE TABLE s_copy (i int PRIMARY KEY, t text, n numeric) USING sofort;
COPY s_copy FROM stdin;
1	one	1.0
2	\N	1.00
3	three	NaN
\.
COPY s_copy (i) FROM stdin;
4
\.
COPY s_copy FROM stdin;
5	five	5
1	again	0
\.
COPY (SELECT * FROM s_copy ORDER BY i) TO stdout;
COPY (SELECT i, t, c, d FROM (SELECT id i, b t, c, d FROM s_b) x ORDER BY i LIMIT 3) TO stdout;
-- cursors, forward and backward, over a table that changes
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT i FROM s_copy;
FETCH 2 FROM c;
UPDATE s_copy SET i = i + 10;
INSERT INTO s_copy VALUES (99);
FETCH ALL FROM c;
FETCH BACKWARD 2 FROM c;
MOVE ABSOLUTE 0 IN c;
FETCH NEXT FROM c;
UPDATE s_copy SET t = 'current' WHERE CURRENT OF c;
COMMIT;
SELECT * FROM s_copy ORDER BY i;
BEGIN;
DECLARE c CURSOR FOR SELECT i FROM s_copy WHERE i = 12 FOR UPDATE;
FETCH c;
UPDATE s_copy SET t = 'current' WHERE CURRENT OF c RETURNING *;
DELETE FROM s_copy WHERE CURRENT OF c;
COMMIT;
SELECT i, t FROM s_copy ORDER BY i;
-- own changes, and who sees what within one command
CREATE FUNCTION pg_temp.countb() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT count(*) FROM s_ret';
CREATE FUNCTION pg_temp.countstable() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM s_ret';
INSERT INTO s_ret SELECT pg_temp.countb(), 'volatile' FROM generate_series(1, 3);
INSERT INTO s_ret SELECT pg_temp.countstable(), 'stable' FROM generate_series(1, 3);
SELECT * FROM s_ret ORDER BY 2, 1;
WITH x AS (UPDATE s_ret SET i = 1000 + i RETURNING i) SELECT count(*), (SELECT count(*) FROM s_ret WHERE i >= 1000) AS seen FROM x;
-- MERGE
SELECT pg_temp.make('m', 'id int PRIMARY KEY, v int');
SELECT pg_temp.twin('INSERT INTO @m SELECT i, i FROM generate_series(1, 100) i');
SELECT pg_temp.twin('MERGE INTO @m m USING (SELECT i * 2 AS i FROM generate_series(1, 100) i) s ON s.i = m.id
    WHEN MATCHED AND s.i % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -v WHEN NOT MATCHED THEN INSERT VALUES (s.i, 0)');
SELECT pg_temp.twin('SELECT * FROM @m');
SELECT pg_temp.twin('MERGE INTO @m m USING (VALUES (1), (1)) s(i) ON s.i = m.id WHEN MATCHED THEN UPDATE SET v = v + 1');
SELECT pg_temp.twin('SELECT * FROM @m');
-- triggers see old and new rows
CREATE TABLE s_log (n int GENERATED ALWAYS AS IDENTITY, what text) USING sofort;
CREATE FUNCTION s_logger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO s_log (what) VALUES (concat_ws(' ', TG_WHEN, TG_OP, CASE WHEN TG_OP <> 'INSERT' THEN OLD::text END, CASE WHEN TG_OP <> 'DELETE' THEN NEW::text END));
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TABLE s_trg (i int PRIMARY KEY, t text) USING sofort;
CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON s_trg FOR EACH ROW EXECUTE FUNCTION s_logger();
CREATE CONSTRAINT TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON s_trg DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION s_logger();
BEGIN;
INSERT INTO s_trg VALUES (1, 'x');
UPDATE s_trg SET t = 'y';
DELETE FROM s_trg;
SELECT what FROM s_log ORDER BY n;
COMMIT;
SELECT what FROM s_log ORDER BY n;
CREATE TABLE s_old (i int, t text) USING sofort;
CREATE FUNCTION s_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING 'old % new %', (SELECT string_agg(o::text, ',' ORDER BY o) FROM o), (SELECT string_agg(n::text, ',' ORDER BY n) FROM n);
    RETURN NULL;
END $$;
CREATE TRIGGER t AFTER UPDATE ON s_old REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION s_transition();
INSERT INTO s_old VALUES (1, 'a'), (2, 'b');
UPDATE s_old SET i = i * 10;
