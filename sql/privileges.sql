-- Who may do and see what.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_privileges;
SET search_path = reg_privileges;
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
CREATE ROLE s_owner;
CREATE ROLE s_reader;
CREATE ROLE s_nobody;
CREATE ROLE s_monitor IN ROLE pg_monitor;
GRANT CREATE ON SCHEMA reg_privileges TO s_owner;
GRANT USAGE ON SCHEMA reg_privileges, sofort TO s_owner, s_reader, s_nobody, s_monitor;
SET ROLE s_owner;
CREATE TABLE s_priv (id int PRIMARY KEY, secret text, open text) USING sofort;
INSERT INTO s_priv VALUES (1, 'secret', 'open');
GRANT SELECT ON s_priv TO s_reader;
SELECT * FROM sofort.verify('s_priv');
SELECT relation, live_rows FROM sofort.tables WHERE relation = 's_priv'::regclass;
SELECT * FROM sofort.verify_pool();
SELECT sofort.create_pool();
SELECT sofort.accept_reset();
SELECT sofort_test.disarm();
SELECT path FROM sofort.pool;
RESET ROLE;
SET ROLE s_reader;
SELECT * FROM s_priv;
INSERT INTO s_priv VALUES (2);
SELECT relation, live_rows FROM sofort.tables WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.columns WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.indexes WHERE relation = 's_priv'::regclass;
SELECT * FROM sofort.verify('s_priv');
RESET ROLE;
SET ROLE s_nobody;
SELECT * FROM s_priv;
SELECT count(*) FROM sofort.tables WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.columns WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.indexes WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.table_info('s_priv');
SELECT count(*) FROM sofort.column_info('s_priv');
SELECT count(*) FROM sofort.index_info('s_priv_pkey');
SELECT status, path FROM sofort.pool;
SELECT * FROM sofort.verify('s_priv');
ALTER TABLE s_priv ADD UNIQUE (secret);
ALTER TABLE s_priv SET ACCESS METHOD heap;
RESET ROLE;
SET ROLE s_monitor;
SELECT relation, live_rows FROM sofort.tables WHERE relation = 's_priv'::regclass;
SELECT count(*) FROM sofort.columns WHERE relation = 's_priv'::regclass;
SELECT path IS NOT NULL FROM sofort.pool;
SELECT * FROM s_priv;
RESET ROLE;
-- columns, row security, views, security definer
GRANT SELECT (id, open) ON s_priv TO s_nobody;
SET ROLE s_nobody;
SELECT id, open FROM s_priv;
SELECT secret FROM s_priv;
RESET ROLE;
ALTER TABLE s_priv ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s_priv TO s_reader USING (id > 1);
INSERT INTO s_priv VALUES (2, 'two', 'two');
SET ROLE s_reader;
SELECT * FROM s_priv;
SELECT * FROM s_priv WHERE id = 1;
RESET ROLE;
-- what grows by each value that is new says whether a hidden row has it
CREATE TABLE s_coded (id int, email text) USING sofort;
INSERT INTO s_coded SELECT i, 'user ' || i % 10 FROM generate_series(1, 5000) i;
GRANT SELECT, INSERT ON s_coded TO s_reader;
ALTER TABLE s_coded ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s_coded TO s_reader USING (id > 4999) WITH CHECK (true);
SET ROLE s_reader;
BEGIN;
INSERT INTO s_coded VALUES (6000, 'user 5'), (6001, 'a guess');
ROLLBACK;
SELECT encoding, dictionary_entries, dictionary_bytes FROM sofort.columns WHERE relation = 's_coded'::regclass AND attnum = 2;
SELECT live_rows, pool_bytes, dram_bytes FROM sofort.tables WHERE relation = 's_coded'::regclass;
RESET ROLE;
SET ROLE s_monitor;
SELECT encoding, dictionary_entries, dictionary_bytes > 0 AS has_bytes FROM sofort.columns WHERE relation = 's_coded'::regclass AND attnum = 2;
SELECT live_rows, pool_bytes > 0 AS has_bytes FROM sofort.tables WHERE relation = 's_coded'::regclass;
RESET ROLE;
DROP TABLE s_coded;
-- index expressions run as the owner of the table when somebody verifies
CREATE FUNCTION s_who(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE WARNING 'as %', current_user; RETURN $1; END $$;
CREATE TABLE s_expr (i int) USING sofort;
INSERT INTO s_expr VALUES (1);
ALTER TABLE s_expr OWNER TO s_owner;
CREATE INDEX ON s_expr USING sofort_index (s_who(i));
SELECT * FROM sofort.verify('s_expr');
DROP OWNED BY s_owner, s_reader, s_nobody, s_monitor;
DROP ROLE s_owner, s_reader, s_nobody, s_monitor;
