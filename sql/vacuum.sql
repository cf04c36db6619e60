-- VACUUM takes away what is dead, and nothing else.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_vacuum;
SET search_path = reg_vacuum;
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
SELECT pg_temp.make('v', 'id int PRIMARY KEY, a int, t text');
CREATE INDEX s_v_a ON s_v USING sofort_index (a);
CREATE INDEX s_v_b ON s_v USING btree (a);
CREATE INDEX s_v_g ON s_v USING gin (to_tsvector('simple', t));
SELECT pg_temp.twin('INSERT INTO @v SELECT i, i % 50, ''w'' || i % 20 || repeat('' filler'', 10) FROM generate_series(1, 5000) i');
CREATE FUNCTION pg_temp.check_v() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT pg_temp.twin('SELECT * FROM @v');
    SET LOCAL enable_seqscan = off;
    RETURN NEXT pg_temp.twin('SELECT * FROM @v WHERE a = 7');
    RETURN NEXT pg_temp.twin('SELECT * FROM @v WHERE id % 100 = 1 AND id > 50');
    RETURN NEXT pg_temp.twin('SELECT id FROM @v WHERE to_tsvector(''simple'', t) @@ ''w3''');
END $$;
SELECT pg_temp.check_v();
-- rounds of changes and vacuum: row ids are used again
CREATE PROCEDURE s_round(r int) LANGUAGE plpgsql AS $$
DECLARE x text;
BEGIN
    FOREACH x IN ARRAY ARRAY['s', 'h'] LOOP
        EXECUTE format('DELETE FROM %s_v WHERE (id + %s) %% 3 = 0', x, r);
        EXECUTE format('UPDATE %s_v SET a = a + 1 WHERE id %% 4 = %s %% 4', x, r);
        EXECUTE format('UPDATE %s_v SET t = ''w%s round'' WHERE id %% 5 = %s %% 5', x, r, r);
        EXECUTE format('INSERT INTO %s_v SELECT i, i %% 50, ''w3 again %s'' FROM generate_series(%s, %s) i', x, r, 10000 * r, 10000 * r + 1500);
    END LOOP;
END $$;
CALL s_round(1);
VACUUM s_v;
SELECT pg_temp.check_v();
SELECT * FROM sofort.verify('s_v');
CALL s_round(2);
VACUUM (ANALYZE) s_v;
CALL s_round(3);
SELECT pg_temp.check_v();
VACUUM s_v;
VACUUM s_v;
SELECT pg_temp.check_v();
SELECT * FROM sofort.verify('s_v');
CALL s_round(4);
VACUUM (INDEX_CLEANUP off) s_v;
CALL s_round(5);
VACUUM (FREEZE) s_v;
SELECT pg_temp.check_v();
SELECT * FROM sofort.verify('s_v');
-- an aborted load goes away, too
BEGIN;
INSERT INTO s_v SELECT i, 7, 'w3 aborted' FROM generate_series(100000, 110000) i;
ROLLBACK;
SELECT pg_temp.check_v();
VACUUM s_v;
SELECT pg_temp.check_v();
SELECT * FROM sofort.verify('s_v');
-- space is used again: the table does not grow
CREATE TABLE s_sp (id int PRIMARY KEY, t text) USING sofort;
INSERT INTO s_sp SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i;
CREATE PROCEDURE s_churn() LANGUAGE plpgsql AS 'BEGIN UPDATE s_sp SET t = t || ''y''; COMMIT; END';
CALL s_churn();
VACUUM s_sp;
CREATE TABLE s_size AS SELECT blocks, pool_bytes FROM sofort.tables WHERE relation = 's_sp'::regclass;
CALL s_churn();
VACUUM s_sp;
CALL s_churn();
VACUUM s_sp;
CALL s_churn();
VACUUM s_sp;
CALL s_churn();
VACUUM s_sp;
SELECT t.blocks < 3 * s.blocks AS few_blocks, t.pool_bytes < 3 * s.pool_bytes AS few_bytes FROM sofort.tables t, s_size s WHERE relation = 's_sp'::regclass;
-- all deleted: space goes back to the pool
DELETE FROM s_sp;
VACUUM s_sp;
VACUUM s_sp;
SELECT t.pool_bytes < s.pool_bytes AS smaller FROM sofort.tables t, s_size s WHERE relation = 's_sp'::regclass;
INSERT INTO s_sp SELECT i, 'again' FROM generate_series(1, 100) i;
SELECT count(*), min(t) FROM s_sp;
SELECT * FROM sofort.verify('s_sp');
-- long values are given back
CREATE TABLE s_lob (id int PRIMARY KEY, t text) USING sofort;
ALTER TABLE s_lob ALTER t SET STORAGE EXTERNAL;
INSERT INTO s_lob SELECT i, repeat('x', 1000000) FROM generate_series(1, 10) i;
SELECT pool_bytes >= 10000000 FROM sofort.tables WHERE relation = 's_lob'::regclass;
DELETE FROM s_lob;
VACUUM s_lob;
VACUUM s_lob;
SELECT pool_bytes < 10000000 FROM sofort.tables WHERE relation = 's_lob'::regclass;
-- statistics for autovacuum
SELECT pg_stat_force_next_flush();
SELECT n_tup_ins >= 3100, n_tup_upd >= 15000, n_tup_del >= 3000, vacuum_count > 5 FROM pg_stat_user_tables WHERE relname = 's_sp';
VACUUM (VERBOSE false, DISABLE_PAGE_SKIPPING) s_v;
VACUUM (TRUNCATE false, PROCESS_TOAST false) s_v;
SELECT relfrozenxid::text::bigint >= 0 FROM pg_class WHERE oid = 's_v'::regclass;
SELECT pg_temp.check_v();
-- The first of PostgreSQL's blocks is several of ours; rows behind those that were given back are still met
CREATE TABLE s_few (id int, n int) USING sofort;
INSERT INTO s_few SELECT i, i FROM generate_series(1, 1100) i;
DELETE FROM s_few WHERE id % 150 > 2;
VACUUM s_few;
DELETE FROM s_few WHERE id = 150;
VACUUM s_few;
VACUUM s_few;
SELECT count(*), sum(id) FROM s_few;
SELECT id FROM s_few WHERE ctid >= '(0,121)' AND ctid < '(1,0)';
CREATE INDEX s_few_dram ON s_few USING sofort_index (id);
CREATE INDEX s_few_btree ON s_few (n);
SET enable_seqscan = off;
SELECT count(*), sum(id) FROM s_few WHERE id > 0;
SELECT count(*), sum(n) FROM s_few WHERE n > 0;
SELECT count(*) FROM s_few TABLESAMPLE system (100);
RESET enable_seqscan;
SELECT * FROM sofort.verify('s_few');
-- what ANALYZE counts as dead: not the roots of rows that live
CREATE TABLE s_roots (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO s_roots SELECT i, 0 FROM generate_series(1, 10000) i;
UPDATE s_roots SET v = v + 1;
SELECT pg_stat_force_next_flush();
VACUUM s_roots;
ANALYZE s_roots;
SELECT pg_stat_get_live_tuples('s_roots'::regclass), pg_stat_get_dead_tuples('s_roots'::regclass);
VACUUM ANALYZE s_roots;
SELECT pg_stat_get_live_tuples('s_roots'::regclass), pg_stat_get_dead_tuples('s_roots'::regclass);
UPDATE s_roots SET v = v + 1 WHERE id <= 1000;
SELECT pg_stat_force_next_flush();
ANALYZE s_roots;
SELECT pg_stat_get_live_tuples('s_roots'::regclass), pg_stat_get_dead_tuples('s_roots'::regclass);
DELETE FROM s_roots WHERE id BETWEEN 1001 AND 1010;
SELECT pg_stat_force_next_flush();
ANALYZE s_roots;
SELECT pg_stat_get_live_tuples('s_roots'::regclass), pg_stat_get_dead_tuples('s_roots'::regclass) - 1000 BETWEEN 10 AND 20;
-- what updaters and deleters have freed is not counted as dead any more
CREATE TABLE s_freed (id int PRIMARY KEY, v int) USING sofort;
INSERT INTO s_freed SELECT i, 0 FROM generate_series(1, 50) i;
DO $$ BEGIN FOR i IN 1..3000 LOOP UPDATE s_freed SET v = v + 1 WHERE id = 1; COMMIT; END LOOP; END $$;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_tuples_updated('s_freed'::regclass), pg_stat_get_dead_tuples('s_freed'::regclass) < 500;
DO $$ BEGIN FOR i IN 1..3000 LOOP UPDATE s_freed SET v = v + 1 WHERE id = i % 50 + 1; COMMIT; END LOOP; END $$;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_tuples_updated('s_freed'::regclass), pg_stat_get_dead_tuples('s_freed'::regclass) < 500;
DO $$ BEGIN FOR i IN 1..3000 LOOP UPDATE s_freed SET id = 50 + i WHERE id = 49 + i; COMMIT; END LOOP; END $$;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_tuples_updated('s_freed'::regclass), pg_stat_get_dead_tuples('s_freed'::regclass) < 500;
DO $$ BEGIN FOR i IN 1..3000 LOOP INSERT INTO s_freed VALUES (i + 10000, 0); COMMIT; DELETE FROM s_freed WHERE id = i + 10000; COMMIT; END LOOP; END $$;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_tuples_deleted('s_freed'::regclass), pg_stat_get_dead_tuples('s_freed'::regclass) < 500;
-- stores of lost tables are looked for once in a while, not by each process anew
SELECT sofort_test.arm('store-orphans-sought', 'wait', 1000000000);
SELECT current_database() AS db \gset
VACUUM s_freed;
\c :db
VACUUM reg_vacuum.s_freed;
\c :db
VACUUM reg_vacuum.s_freed;
SELECT sofort_test.passages('store-orphans-sought') <= 1 AS once;
SELECT sofort_test.disarm('store-orphans-sought');
