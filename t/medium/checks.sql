-- What t/medium asks the database of an image. An empty string: all is well.
CREATE SCHEMA chk;
CREATE TABLE chk.usable (id int PRIMARY KEY, v text) USING sofort;

-- Tables under test, and matching words in the text of contents()
CREATE VIEW chk.tables AS
    SELECT c.oid, c.oid::regclass AS name, c.relkind, c.relpersistence, am.amname
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_am am ON am.oid = c.relam
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'm')
    ORDER BY c.relname;

-- Names, columns, indexes and a hash of the rows of every table (unlogged ones are
-- empty after a crash); prepared transactions, or kept ones with their finished statements
CREATE FUNCTION chk.contents() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
    columns text;
    indexes text;
    hash text;
    places text;
    result text := '';
BEGIN
    FOR r IN SELECT * FROM chk.tables LOOP
        SELECT string_agg(attname || ':' || replace(atttypid::regtype::text, ' ', '_'), ',' ORDER BY attnum)
            INTO columns FROM pg_attribute WHERE attrelid = r.oid AND attnum > 0 AND NOT attisdropped;
        SELECT string_agg(indexrelid::regclass::text, ',' ORDER BY indexrelid::regclass::text)
            INTO indexes FROM pg_index WHERE indrelid = r.oid AND indisvalid;
        -- (t.*: of a table with a column t, t is that column)
        EXECUTE format('SELECT count(*) || ''/'' || md5(coalesce(string_agg((t.*)::text, E''\n'' ORDER BY (t.*)::text), '''')) FROM %s t',
            r.name) INTO hash;
        IF r.relpersistence = 'u' THEN
            hash := 'unlogged';
        END IF;
        -- where indexes of dictionaries lie (which come with the rows); the newest version of the first row
        places := NULL;
        IF r.name::text IN ('placed', 'early') AND split_part(hash, '/', 1)::int > 1000 THEN
            SELECT string_agg(column_name || ':' || dictionary_placement, ',' ORDER BY column_name) INTO places
                FROM sofort.columns WHERE relation = r.name AND dictionary_placement <> 'dram';
        ELSIF r.name::text IN ('placed', 'early') THEN
            places := 'asked:' || replace(sofort_test.placements_asked(r.name), ' ', ',');
        END IF;
        IF r.amname = 'sofort' AND r.name::text LIKE 'follow%' THEN
            places := coalesce(places, '') || currtid2(r.name::text, '(0,1)');
        END IF;
        IF r.name::text = 'counted' THEN
            -- (they fade with time, all alike: how many for the one INSERT)
            SELECT coalesce(ratio > 3.5, false) || '/' || coalesce(ratio > 10.5, false) INTO places
                FROM (SELECT sum(seen) FILTER (WHERE command = 'SELECT') / nullif(sum(seen) FILTER (WHERE command = 'INSERT'), 0) AS ratio
                      FROM (SELECT command, executions + past_executions AS seen
                            FROM sofort.workload WHERE relation = r.oid AND index IS NOT NULL) w) x;
        END IF;
        result := result || format('%s(%s)[%s]%s=%s ', r.name, columns, coalesce(indexes, ''), places, hash);
    END LOOP;
    IF EXISTS (SELECT FROM pg_database WHERE datname = 'copy') THEN
        EXECUTE $q$ SELECT n FROM dblink(format('dbname=copy host=%s port=%s', current_setting('unix_socket_directories'), current_setting('port')),
            'SELECT count(*) || ''/'' || md5(string_agg((t.*)::text || ctid, '' '' ORDER BY id)) || ''/'' || (SELECT count(*) FROM sofort.verify(''t'')) FROM t') AS x (n text) $q$
            INTO hash;
        result := result || format('copy=%s ', hash);
    END IF;
    SELECT result || coalesce(string_agg('prepared:' || gid, ' ' ORDER BY gid), '') INTO result FROM pg_prepared_xacts;
    SELECT result || coalesce(string_agg(format('kept:%s/%s', label, statements), ' ' ORDER BY label), '') INTO result
        FROM sofort.transactions WHERE label IS NOT NULL;
    RETURN result;
END $$;

-- What contents() looks at without showing it, for who wonders why that differs
CREATE FUNCTION chk.statistics() RETURNS text LANGUAGE sql AS $$
    SELECT format('of %s kinds; ', count(DISTINCT w.statement)) ||
        coalesce(string_agg(w::text, ' ' ORDER BY w.statement) FILTER (WHERE w.relation = to_regclass('counted')), 'none of counted')
        FROM sofort.workload w
$$;

-- A scan of an index finds as many rows as there are.
CREATE FUNCTION chk.index_scans() RETURNS SETOF text LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
DECLARE
    r record;
    n bigint;
    m bigint;
BEGIN
    FOR r IN SELECT i.indexrelid::regclass AS index, t.name, pg_get_indexdef(i.indexrelid, 1, true) AS col
        FROM chk.tables t JOIN pg_index i ON i.indrelid = t.oid
        WHERE i.indisvalid AND t.relkind = 'r' AND t.amname = 'sofort' AND t.relpersistence = 'p' LOOP
        EXECUTE format('SELECT count(*) FROM (SELECT ctid FROM %s WHERE %s IS NOT NULL ORDER BY %2$s OFFSET 0) x',
            r.name, r.col) INTO n;
        -- (not by an index: the scan below has no condition)
        EXECUTE format('SELECT count(*) FROM (SELECT * FROM %s OFFSET 0) x WHERE %s IS NOT NULL', r.name, r.col) INTO m;
        IF n <> m THEN
            RETURN NEXT format('index %s finds %s rows of %s', r.index, n, m);
        END IF;
    END LOOP;
END $$;

-- Values whose slots in an index of a dictionary in the pool are lost get other codes; each
-- process may have lost the last one.
CREATE FUNCTION chk.dictionary_codes() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    r record;
    n bigint;
BEGIN
    FOR r IN SELECT c.* FROM sofort.columns c JOIN chk.tables t ON t.name = c.relation
        WHERE c.dictionary_placement IN ('pmem', 'hybrid') AND t.relkind = 'r' LOOP
        BEGIN
            EXECUTE format('INSERT INTO %s SELECT * FROM %1$s', r.relation);
            SELECT dictionary_entries INTO n FROM sofort.columns WHERE relation = r.relation AND attnum = r.attnum;
            RAISE 'undo' USING ERRCODE = 'ZZZZZ';
        EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN
            IF n > r.dictionary_entries + 6 THEN
                RETURN NEXT format('%s values of %s.%s were not in the index of its dictionary', n - r.dictionary_entries,
                    r.relation, r.column_name);
            END IF;
        WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
END $$;

CREATE FUNCTION chk.problems() RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(v::text, E'\n'), '') FROM (
        SELECT v.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, sofort.verify(c.oid::regclass) v
        WHERE a.amname = 'sofort' AND c.relkind IN ('r', 'm', 't')
        UNION ALL SELECT * FROM sofort.verify_pool()) v
$$;

-- Rows of workloads/lives.sql that nobody has locked, as a prepared transaction has others;
-- and one of corners.sql that it has locked, by a version that another has replaced since
CREATE FUNCTION chk.locks() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t text;
    n bigint;
BEGIN
    FOREACH t IN ARRAY '{unlocked, emptied}'::text[] LOOP
        IF to_regclass(t) IS NOT NULL THEN
            EXECUTE format('SELECT (SELECT count(*) FROM %1$s WHERE id >= 100) - (SELECT count(*) FROM (SELECT FROM %1$s WHERE id >= 100 FOR UPDATE SKIP LOCKED) x)', t)
                INTO n;
            IF n <> 0 THEN
                RETURN format('%s rows of %s are locked that nobody has locked', n, t);
            END IF;
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = 'three') THEN
        PERFORM FROM q WHERE id = 10 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN 'the lock of a prepared transaction is lost';
        END IF;
    END IF;
    RETURN '';
END $$;

-- Versions that a prepared transaction keeps from VACUUM, in a table that it has not used
CREATE FUNCTION chk.old_versions() RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(v::text, E'\n'), '')
        FROM pg_prepared_xacts, sofort.verify(CASE WHEN gid = 'follow' THEN to_regclass(gid) END) v
$$;

-- Memory of all sizes: what is free by mistake becomes another's.
CREATE FUNCTION chk.occupy() RETURNS text LANGUAGE sql AS $$
    INSERT INTO chk.usable SELECT -1000 * size - i, left(repeat(md5(i::text), 500), size)
        FROM unnest('{40, 200, 900, 1900, 3900, 8000, 16000}'::int[]) size, generate_series(0, least(200, 60000 / size)) i;
    DELETE FROM chk.usable WHERE id < 0;
    SELECT '';
$$;

-- What the structures do not tell of themselves
CREATE FUNCTION chk.losses() RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(v, E'\n'), '') FROM (
        SELECT chk.index_scans() AS v UNION ALL SELECT chk.dictionary_codes()) x
$$;

-- Changes every table, all its rows or some, and leaves its contents as they are.
CREATE FUNCTION chk.write(most int DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
    col text;
    n int;
BEGIN
    -- (who follows versions of that table needs them where they are)
    FOR r IN SELECT * FROM chk.tables WHERE relkind = 'r' AND name::text NOT LIKE 'follow%' LOOP
        EXECUTE format('WITH d AS (DELETE FROM %1$s WHERE ctid IN (SELECT ctid FROM %1$s LIMIT 3) RETURNING *) INSERT INTO %1$s SELECT * FROM d',
            r.name);
        SELECT quote_ident(attname) INTO col FROM pg_attribute
            WHERE attrelid = r.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum DESC LIMIT 1;
        EXECUTE format('UPDATE %1$s SET %2$s = %2$s WHERE ctid IN (SELECT ctid FROM %1$s ORDER BY ctid DESC LIMIT %3$L)', r.name, col, most);
    END LOOP;
    INSERT INTO chk.usable SELECT i, repeat('value', 20) || i FROM generate_series(1, 20) i;
    UPDATE chk.usable SET v = v || 'x' WHERE id % 2 = 0;
    DELETE FROM chk.usable WHERE id % 3 = 0;
    SELECT count(*) INTO n FROM chk.usable;
    DELETE FROM chk.usable;
    RETURN CASE WHEN n = 14 THEN '' ELSE format('%s rows instead of 14', n) END;
END $$;

CREATE FUNCTION chk.vacuum_command() RETURNS text LANGUAGE sql AS $$
    SELECT 'VACUUM chk.usable' || coalesce(string_agg(', ' || name::text, ''), '') FROM chk.tables
    WHERE amname = 'sofort' AND name::text NOT LIKE 'follow%'
$$;

CREATE FUNCTION chk.drop_all() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM chk.tables WHERE relkind = 'r' LOOP
        EXECUTE format('DROP TABLE %s CASCADE', r.name);
    END LOOP;
    TRUNCATE chk.usable;
    RETURN '';
END $$;

CREATE TABLE chk.allowance (pieces numeric, bytes numeric) USING heap;

-- When all tables under test are gone, stores own what they did before them; what
-- the pool and transactions own, verify_pool() accounts for.
CREATE FUNCTION chk.leaks() RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(p, E'\n'), '') FROM (
        SELECT format('stores have %s pieces, %s bytes; allowed are %s, %s', sum(a.pieces), sum(a.bytes), w.pieces, w.bytes) AS p
        FROM sofort_test.allocations() a, chk.allowance w
        WHERE a.owner >= 16 AND NOT EXISTS (SELECT FROM pg_database WHERE datname = 'copy') GROUP BY w.pieces, w.bytes HAVING sum(a.pieces) > w.pieces OR sum(a.bytes) > w.bytes
        UNION ALL SELECT v::text FROM sofort.verify_pool() v) x
$$;

CREATE FUNCTION chk.begin() RETURNS void LANGUAGE sql AS $$
    INSERT INTO chk.allowance SELECT coalesce(sum(pieces), 0), coalesce(sum(bytes), 0)
        FROM sofort_test.allocations() WHERE owner >= 16
$$;

-- Rows of one client (clients.c)
CREATE FUNCTION chk.contents_of(w int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    one text;
    two text;
BEGIN
    SELECT count(*) || '/' || md5(coalesce(string_agg((t.*)::text, E'\n' ORDER BY (t.*)::text), '')) INTO one FROM many t WHERE who = w;
    SELECT count(*) || '/' || md5(coalesce(string_agg((t.*)::text, E'\n' ORDER BY (t.*)::text), '')) INTO two FROM heap_many t WHERE who = w;
    RETURN one || ' heap ' || two;
END $$;

-- Goes on with the kept transaction of workloads/kept.sql (or lives.sql): the rows are a
-- function of the number of its finished statements, which are not fewer than somebody was
-- told. Ends with an error if all is well, too.
CREATE FUNCTION chk.kept() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    done bigint := sofort_test.resume_waiting();
    found text;
    expected text;
    told bigint := 0;
BEGIN
    IF done IS NULL THEN
        RETURN 'there is none';
    END IF;
    IF to_regclass('told') IS NOT NULL THEN
        EXECUTE 'SELECT coalesce(max(n), 0) FROM told' INTO told;
    END IF;
    IF done < told THEN
        RETURN format('%s statements are finished, and somebody was told of %s', done, told);
    END IF;
    SELECT string_agg(step || ':' || v || ':' || length(t), ' ' ORDER BY step) INTO found FROM kt;
    SELECT string_agg(step || ':' || step + (step < done)::int || ':' || step * 30, ' ' ORDER BY step) INTO expected
        FROM generate_series(greatest(done - 2, 1), done) step;
    IF found IS DISTINCT FROM expected OR (SELECT n FROM kt_total) <> done THEN
        RETURN format('%s statements are finished, total is %s, rows are %s, should be %s', done, (SELECT n FROM kt_total), found, expected);
    END IF;
    -- and goes on
    INSERT INTO kt VALUES (done + 1, 0, '');
    UPDATE kt_total SET n = -1;
    DELETE FROM kt WHERE step <= done;
    IF (SELECT count(*) FROM kt) <> 1 THEN
        RETURN 'it cannot go on';
    END IF;
    RAISE 'the kept transaction went on';
END $$;
