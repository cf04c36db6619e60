CREATE TABLE t (id int PRIMARY KEY, n int, s text) USING :am1;
CREATE TABLE log (seq serial, what text) USING :am2;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN INSERT INTO log (what) SELECT 'new ' || string_agg(id || ':' || coalesce(n::text, '-'), ',' ORDER BY id) FROM new_rows;
    ELSIF TG_OP = 'UPDATE' THEN INSERT INTO log (what) SELECT 'upd ' || string_agg(o.id || ':' || o.n || '>' || w.n, ',' ORDER BY o.id) FROM old_rows o JOIN new_rows w USING (id);
    ELSE INSERT INTO log (what) SELECT 'del ' || string_agg(id::text, ',' ORDER BY id) FROM old_rows; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER i AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER u AFTER UPDATE ON t REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER d AFTER DELETE ON t REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION note();
INSERT INTO t SELECT i, i, 's' FROM generate_series(1, 8) i;
UPDATE t SET n = n * 10 WHERE id % 2 = 0;
DELETE FROM t WHERE id > 6;
INSERT INTO t VALUES (1, 0, 'c'), (20, 20, 'c') ON CONFLICT (id) DO UPDATE SET n = -t.n;
MERGE INTO t USING (VALUES (1), (2), (30)) x(id) ON t.id = x.id WHEN MATCHED AND x.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET n = 5 WHEN NOT MATCHED THEN INSERT VALUES (x.id, 3, 'm');
WITH a AS (UPDATE t SET n = n + 1 WHERE id = 3 RETURNING id), b AS (DELETE FROM t WHERE id = 4 RETURNING id) INSERT INTO t SELECT id + 100, id, 'cte' FROM (TABLE a UNION ALL TABLE b) x;
SELECT what FROM log ORDER BY seq;
SELECT * FROM t ORDER BY id;
MERGE INTO t USING (VALUES (1), (1)) x(id) ON t.id = x.id WHEN MATCHED THEN UPDATE SET n = 6;
DROP TRIGGER i ON t; DROP TRIGGER u ON t; DROP TRIGGER d ON t;
-- row triggers: change, suppress, see old and new; constraint triggers; a trigger that changes the same row
CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN IF OLD.s = 'keep' THEN RETURN NULL; END IF; RETURN OLD; END IF;
    IF NEW.n = 13 THEN RETURN NULL; END IF;
    NEW.s := coalesce(NEW.s, 'default') || CASE WHEN TG_OP = 'UPDATE' THEN '<' || OLD.s ELSE '' END;
    RETURN NEW;
END $$;
CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION before_row();
CREATE FUNCTION after_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (what) VALUES (TG_NAME || ' ' || coalesce(OLD::text, '') || coalesce(NEW::text, '')); RETURN NULL; END $$;
CREATE TRIGGER a AFTER UPDATE OF n ON t FOR EACH ROW WHEN (OLD.n IS DISTINCT FROM NEW.n) EXECUTE FUNCTION after_row();
CREATE CONSTRAINT TRIGGER c AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION after_row();
TRUNCATE log, t;
INSERT INTO t VALUES (1, 1, 'keep'), (2, 13, 'no'), (3, 3, NULL);
BEGIN; INSERT INTO t VALUES (4, 4, 'four'); SELECT count(*) FROM log; COMMIT;
UPDATE t SET n = n + 1, s = 'u' WHERE id <> 1;
UPDATE t SET s = 'only s' WHERE id = 3;
DELETE FROM t;
SELECT * FROM t ORDER BY id;
SELECT what FROM log ORDER BY seq;
CREATE FUNCTION self() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE t SET n = n + 100 WHERE id = OLD.id; RETURN coalesce(NEW, OLD); END $$;
CREATE TRIGGER z BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.n < 50) EXECUTE FUNCTION self();
UPDATE t SET s = 'self';
SELECT * FROM t ORDER BY id;
-- savepoints
TRUNCATE t, log;
DROP TRIGGER b ON t; DROP TRIGGER z ON t; DROP TRIGGER a ON t; DROP TRIGGER c ON t;
BEGIN;
INSERT INTO t VALUES (1, 1);
SAVEPOINT a; INSERT INTO t VALUES (2, 2); UPDATE t SET n = n + 10;
SAVEPOINT b; DELETE FROM t; SELECT count(*) FROM t; INSERT INTO t VALUES (1, 77);
ROLLBACK TO b; SELECT * FROM t ORDER BY id; INSERT INTO t VALUES (1, 78);
ROLLBACK TO b; SAVEPOINT b; UPDATE t SET n = n + 100 WHERE id = 2; RELEASE a; SELECT * FROM t ORDER BY id;
COMMIT;
SELECT * FROM t ORDER BY id;
CREATE PROCEDURE blocks(rounds int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. rounds LOOP
        BEGIN
            INSERT INTO t VALUES (i % 40, i, 'block') ON CONFLICT (id) DO UPDATE SET n = t.n + 1;
            IF i % 3 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
            IF i % 7 = 0 THEN DELETE FROM t WHERE id = i % 40; END IF;
        EXCEPTION WHEN raise_exception THEN NULL;
        END;
    END LOOP;
END $$;
CALL blocks(6000);
SELECT count(*), sum(n), sum(id) FROM t;
-- cursors
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT * FROM t ORDER BY id;
DECLARE s SCROLL CURSOR FOR SELECT * FROM t ORDER BY id;
FETCH 3 FROM h;
FETCH LAST FROM s; FETCH BACKWARD 2 FROM s; FETCH ABSOLUTE 4 FROM s; FETCH RELATIVE -2 FROM s;
UPDATE t SET n = -1 WHERE id < 5;
FETCH NEXT FROM s;
DECLARE c CURSOR FOR SELECT * FROM t WHERE id BETWEEN 5 AND 9 FOR UPDATE;
FETCH 2 FROM c;
UPDATE t SET s = 'current' WHERE CURRENT OF c RETURNING id, s;
FETCH 1 FROM c;
DELETE FROM t WHERE CURRENT OF c RETURNING id;
DELETE FROM t WHERE CURRENT OF c;
COMMIT;
DELETE FROM t WHERE id < 20;
FETCH 3 FROM h;
CLOSE h;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT count(*) FROM t; COMMIT;
BEGIN READ ONLY; DELETE FROM t; ROLLBACK;
-- samples, JIT, COPY
SELECT count(*) FROM t TABLESAMPLE SYSTEM (100);
SELECT count(*) FROM t TABLESAMPLE BERNOULLI (100) REPEATABLE (1);
SELECT count(*) FROM t TABLESAMPLE BERNOULLI (0);
SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET jit_optimize_above_cost = 0;
SELECT s, count(*), sum(n * 2 + id), max(upper(s)), bool_or(n IS NULL) FROM t WHERE id * 3 > 60 AND coalesce(n, 0) < 100000 GROUP BY s ORDER BY s;
RESET jit;
COPY (SELECT * FROM t WHERE id < 23 ORDER BY id) TO stdout (FORMAT csv, HEADER, FORCE_QUOTE *);
COPY t FROM stdin (FORMAT csv, NULL 'nil') WHERE id > 1001;
1001,1,no
1002,nil,"a ""quoted"" text"
1003,3,nil
\.
SELECT * FROM t WHERE id > 1000 ORDER BY id;
COPY t FROM stdin;
1010	1	ok
1002	1	twice
\.
BEGIN; CREATE TABLE fr (id int) USING :am1; COPY fr FROM stdin (FREEZE);
1
2
\.
SELECT * FROM fr; COMMIT;
SELECT * FROM fr;
UPDATE t SET n = 1 WHERE ctid = (SELECT ctid FROM t WHERE id = 1002) RETURNING id, tableoid::regclass, xmin::text = (pg_current_xact_id()::text::bigint % 4294967296)::text;
SELECT t.*, t IS NOT NULL, row_to_json(t) FROM t WHERE id IN (1002, 1003) ORDER BY id;
