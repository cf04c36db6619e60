-- INSERT ... ON CONFLICT with sofort arbiters.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_on_conflict;
SET search_path = reg_on_conflict;
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
SELECT pg_temp.make('o', 'id int PRIMARY KEY, u text UNIQUE, v int, d int UNIQUE DEFERRABLE');
CREATE UNIQUE INDEX s_o_part ON s_o USING sofort_index (v) WHERE v > 100;
CREATE UNIQUE INDEX h_o_part ON h_o (v) WHERE v > 100;
CREATE UNIQUE INDEX s_o_expr ON s_o USING sofort_index (lower(u));
CREATE UNIQUE INDEX h_o_expr ON h_o (lower(u));
SELECT pg_temp.twin('INSERT INTO @o SELECT i, ''u'' || i, i FROM generate_series(1, 150) i');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''u1'', 1) ON CONFLICT DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''other'', 1) ON CONFLICT (id) DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''other'', 1) ON CONFLICT (u) DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''other'', 1) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v - 10, u = EXCLUDED.u');
SELECT pg_temp.twin('INSERT INTO @o VALUES (2, ''u3'', 1) ON CONFLICT (u) DO UPDATE SET v = -3');
SELECT pg_temp.twin('INSERT INTO @o VALUES (2, ''u3'', 1) ON CONFLICT (id) DO UPDATE SET u = ''u4''');
SELECT pg_temp.twin('INSERT INTO @o VALUES (900, ''U5'', 1) ON CONFLICT (lower(u)) DO UPDATE SET v = -5');
SELECT pg_temp.twin('INSERT INTO @o VALUES (901, ''u901'', 120) ON CONFLICT (v) WHERE v > 100 DO UPDATE SET v = -120');
SELECT pg_temp.twin('INSERT INTO @o VALUES (901, ''u901'', 50) ON CONFLICT (v) WHERE v > 100 DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''z'', 1) ON CONFLICT (v) DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o (id, d) VALUES (902, 1) ON CONFLICT (d) DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (1, ''z'', 1) ON CONFLICT ON CONSTRAINT @o_pkey DO UPDATE SET v = 1000 WHERE @o.v > 0');
SELECT pg_temp.twin('INSERT INTO @o VALUES (7, ''z'', 1) ON CONFLICT ON CONSTRAINT @o_pkey DO UPDATE SET v = 1000 WHERE @o.v > 0');
SELECT pg_temp.twin('INSERT INTO @o SELECT i % 300, ''n'' || i, i FROM generate_series(200, 800) i ON CONFLICT (id) DO NOTHING');
SELECT pg_temp.twin('INSERT INTO @o VALUES (5000, ''a'', 0), (5000, ''b'', 0) ON CONFLICT (id) DO UPDATE SET v = 1');
SELECT pg_temp.twin('INSERT INTO @o VALUES (5000, ''a'', 0), (5000, ''b'', 0) ON CONFLICT DO NOTHING');
SELECT pg_temp.twin('SELECT * FROM @o');
INSERT INTO s_o VALUES (8, 'x', 0), (6000, 'y', 0) ON CONFLICT (id) DO UPDATE SET v = s_o.v + 1 RETURNING id, u, v;
-- prepared, in a CTE, in PL/pgSQL, explained
PREPARE up(int, text) AS INSERT INTO s_o VALUES ($1, $2, 0) ON CONFLICT (id) DO UPDATE SET v = coalesce(s_o.v, 0) + 1;
DO $$ BEGIN FOR i IN 1..5 LOOP INSERT INTO s_o VALUES (7000, 'seven', 0) ON CONFLICT (id) DO UPDATE SET v = s_o.v + 1; END LOOP; END $$;
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
EXECUTE up(7000, 'q');
SELECT v FROM s_o WHERE id = 7000;
WITH w AS (INSERT INTO s_o VALUES (7000, 'r', 0), (7001, 's', 0) ON CONFLICT (id) DO NOTHING RETURNING id) SELECT * FROM w;
EXPLAIN (COSTS OFF) INSERT INTO s_o VALUES (7000, 'r', 0) ON CONFLICT (id) DO NOTHING;
DO $$ DECLARE line text; BEGIN
    FOR line IN EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
        INSERT INTO s_o VALUES (7000, 'r', 0) ON CONFLICT (id) DO NOTHING
    LOOP
        RAISE WARNING '%', regexp_replace(line, 'rows=(\d+)\.00', 'rows=\1');     -- 18 shows fractions
    END LOOP;
END $$;
-- own rows of the same transaction, and after a delete
BEGIN;
INSERT INTO s_o VALUES (8000, 'eight', 1);
INSERT INTO s_o VALUES (8000, 'nine', 1) ON CONFLICT (id) DO UPDATE SET v = 2;
DELETE FROM s_o WHERE id = 8000;
INSERT INTO s_o VALUES (8000, 'ten', 1) ON CONFLICT (id) DO UPDATE SET v = 3;
SELECT id, u, v FROM s_o WHERE id = 8000;
ROLLBACK;
SELECT id, u, v FROM s_o WHERE id = 8000;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO s_o VALUES (7000, 'r', 0) ON CONFLICT (id) DO UPDATE SET v = 99;
SELECT v FROM s_o WHERE id = 7000;
COMMIT;
-- a btree arbiter beside sofort indexes, and the other way round
CREATE TABLE s_mix (a int PRIMARY KEY, b int) USING sofort;
CREATE UNIQUE INDEX ON s_mix USING btree (b);
INSERT INTO s_mix VALUES (1, 1), (2, 2);
INSERT INTO s_mix VALUES (3, 1) ON CONFLICT (b) DO UPDATE SET a = 10;
INSERT INTO s_mix VALUES (2, 9) ON CONFLICT (a) DO UPDATE SET b = 20;
INSERT INTO s_mix VALUES (2, 9), (5, 20), (6, 6) ON CONFLICT DO NOTHING;
SELECT * FROM s_mix ORDER BY a;
-- exclusion constraint
CREATE TABLE s_ex (r int4range, EXCLUDE USING gist (r WITH &&)) USING sofort;
INSERT INTO s_ex VALUES ('[1,5)'), ('[4,6)'), ('[5,6)') ON CONFLICT DO NOTHING;
SELECT * FROM s_ex ORDER BY r;
-- triggers and rules on the way
CREATE FUNCTION s_oc() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.u := NEW.u || ''+''; RETURN NEW; END';
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON s_o FOR EACH ROW EXECUTE FUNCTION s_oc();
INSERT INTO s_o VALUES (7000, 'r', 0), (9000, 'new', 0) ON CONFLICT (id) DO UPDATE SET u = EXCLUDED.u RETURNING id, u;
-- RETURNING xmax = 0 tells insertions from updates, as applications do
CREATE TABLE s_x (id int PRIMARY KEY, u int UNIQUE, v int) USING sofort;
CREATE TABLE h_x (id int PRIMARY KEY, u int UNIQUE, v int) USING heap;
CREATE FUNCTION pg_temp.inserted(stmt text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s bool[]; h bool[];
BEGIN
    EXECUTE format('WITH i AS (%s RETURNING id, xmax = 0 AS x) SELECT array_agg(x ORDER BY id) FROM i', replace(stmt, '@x', 's_x')) INTO s;
    EXECUTE format('WITH i AS (%s RETURNING id, xmax = 0 AS x) SELECT array_agg(x ORDER BY id) FROM i', replace(stmt, '@x', 'h_x')) INTO h;
    RETURN CASE WHEN s = h THEN s::text ELSE format('DIFFERENT: sofort %s heap %s', s, h) END;
END $$;
SELECT pg_temp.inserted('INSERT INTO @x VALUES (1, 1, 1), (2, 2, 2)');
SELECT pg_temp.inserted('INSERT INTO @x VALUES (1, 1, 5), (3, 3, 3) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v');
SELECT pg_temp.inserted('INSERT INTO @x VALUES (1, 9, 5), (4, 4, 3) ON CONFLICT (id) DO UPDATE SET u = EXCLUDED.u');
SELECT pg_temp.inserted('INSERT INTO @x VALUES (2, 2, 5), (5, 5, 3) ON CONFLICT (u) DO UPDATE SET id = 22');
SELECT pg_temp.inserted('INSERT INTO @x VALUES (4, 0, 5), (6, 6, 3) ON CONFLICT (id) DO UPDATE SET v = 5 WHERE @x.v < 0');
BEGIN;
SELECT pg_temp.inserted('INSERT INTO @x VALUES (7, 7, 7)');
SAVEPOINT s;
SELECT pg_temp.inserted('INSERT INTO @x VALUES (7, 0, 5), (8, 8, 8) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v');
COMMIT;
CREATE FUNCTION s_xv() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := NEW.v + 1; RETURN NEW; END';
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON s_x FOR EACH ROW EXECUTE FUNCTION s_xv();
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON h_x FOR EACH ROW EXECUTE FUNCTION s_xv();
SELECT pg_temp.inserted('INSERT INTO @x VALUES (1, 0, 5), (10, 10, 3) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v');
-- Unlike on heap, xmax shows nothing of transactions that have ended.
BEGIN;
SELECT id, xmax = 0 FROM s_x WHERE id = 1 FOR UPDATE;
SELECT id, xmax = 0 FROM s_x WHERE id = 1;
COMMIT;
-- Nor does it show locks of several transactions, or savepoints, of one row.
BEGIN;
SELECT id, xmax = 0 FROM s_x WHERE id = 1 FOR SHARE;
SAVEPOINT s;
SELECT id, xmax = 0 FROM s_x WHERE id = 1 FOR UPDATE;
SELECT id, xmax = 0 FROM s_x WHERE id = 1;
COMMIT;
BEGIN;
UPDATE s_x SET v = 0 WHERE id = 3;
ROLLBACK;
SELECT count(*) FROM s_x WHERE xmax <> 0;
-- views
CREATE VIEW s_ov AS SELECT id, u FROM s_o WHERE id >= 9000 WITH CHECK OPTION;
INSERT INTO s_ov VALUES (9000, 'view') ON CONFLICT (id) DO UPDATE SET u = 'updated' RETURNING *;
CREATE TABLE s_w (id int PRIMARY KEY, u text) USING sofort;
CREATE TABLE h_w (id int PRIMARY KEY, u text) USING heap;
CREATE VIEW s_wv AS SELECT id, u FROM s_w WHERE id >= 9000 WITH CHECK OPTION;
CREATE VIEW h_wv AS SELECT id, u FROM h_w WHERE id >= 9000 WITH CHECK OPTION;
SELECT pg_temp.twin('INSERT INTO @w VALUES (1, ''one'')');
-- (the message differs between minor versions)
SELECT pg_temp.twin('INSERT INTO @wv VALUES (1, ''view'') ON CONFLICT (id) DO UPDATE SET u = ''updated''') LIKE 'ERROR%';
SELECT * FROM sofort.verify('s_o');
SELECT * FROM sofort.verify('s_mix');
