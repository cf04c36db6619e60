-- Values of every kind, against a heap twin.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_types;
SET search_path = reg_types;
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
-- fixed width, by value and by reference
SELECT pg_temp.make('f', 'i2 smallint, i4 int, i8 bigint, f4 real, f8 float8, b bool, c "char", o oid, d date,
    ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval, u uuid, m money, n name, p point, ls lseg, bx box, ci circle, mac macaddr, mac8 macaddr8, ln line, x xid, t tid');
SELECT pg_temp.twin('INSERT INTO @f VALUES (-32768, -2147483648, -9223372036854775808, ''-Infinity'', ''-0'', false, '''', 0, ''-infinity'',
    ''00:00'', ''00:00+14'', ''-infinity'', ''infinity'', ''-178000000 years'', ''00000000-0000-0000-0000-000000000000'', ''-92233720368547758.08'', '''', ''(0,-0)'', ''((0,0),(1,1))'', ''(1,1),(0,0)'', ''<(0,0),1>'', ''00:00:00:00:00:00'', ''00:00:00:00:00:00:00:00'', ''{1,2,3}'', ''0'', ''(0,1)'')');
SELECT pg_temp.twin('INSERT INTO @f VALUES (32767, 2147483647, 9223372036854775807, ''NaN'', ''NaN'', true, ''z'', 4294967295, ''infinity'',
    ''24:00'', ''23:59:59.999999-14'', ''infinity'', ''-infinity'', ''178000000 years'', ''ffffffff-ffff-ffff-ffff-ffffffffffff'', ''92233720368547758.07'', repeat(''n'', 63)::name, ''(Infinity,NaN)'', ''((-1,2),(3,4))'', ''(3,4),(1,2)'', ''<(9,9),0>'', ''ff:ff:ff:ff:ff:ff'', ''ff:ff:ff:ff:ff:ff:ff:ff'', ''{-1,0.5,0}'', ''4294967295'', ''(4294967294,65533)'')');
SELECT pg_temp.twin('INSERT INTO @f DEFAULT VALUES');
SELECT pg_temp.twin('INSERT INTO @f SELECT i, i, i::bigint << 30, i / 7.0, i / 3.0, i % 2 = 0, chr(65 + i % 26)::"char", i, date ''1999-12-31'' + i,
    time ''00:00'' + i * interval ''1 s'', timetz ''12:00+01'' + i * interval ''1 s'', timestamp ''2020-01-01'' + i * interval ''1 h'', timestamptz ''2020-01-01 00:00+00'' + i * interval ''1 h'', i * interval ''1 day 1 us'',
    md5(i::text)::uuid, i::numeric::money, ''n'' || i, point(i, -i), lseg(point(i, 0), point(0, i)), box(point(i, i), point(0, 0)), circle(point(i, i), i), ''08:00:2b:01:02:03'', NULL, NULL, i::text::xid, (''('' || i || '',1)'')::tid
    FROM generate_series(1, 3000) i');
SELECT pg_temp.twin('SELECT * FROM @f');
SELECT pg_temp.twin('SELECT f8::text, f4::text, encode(float8send(f8), ''hex'') FROM @f');
SELECT pg_temp.twin('UPDATE @f SET f8 = -f8, iv = -iv, u = NULL WHERE i2 % 3 = 0');
SELECT pg_temp.twin('SELECT * FROM @f');
-- variable width
SELECT pg_temp.make('v', 'id int PRIMARY KEY, t text, v varchar(20), bp char(10), b bytea, n numeric, a int[], ta text[], j json, jb jsonb, bi bit(9), vb varbit, ine inet, ci cidr, r int4range, mr int4multirange, ts tsvector, tq tsquery, x xml, pa path, po polygon');
SELECT pg_temp.twin('INSERT INTO @v VALUES (1, '''', '''', '''', '''', 0, ''{}'', ''{}'', ''{}'', ''{}'', B''000000000'', B'''', ''::'', ''0/0'', ''empty'', ''{}'', '''', '''', ''<a/>'', ''(0,0)'', ''(0,0)'')');
SELECT pg_temp.twin('INSERT INTO @v (id) VALUES (2)');
SELECT pg_temp.twin('INSERT INTO @v SELECT i, repeat(chr(97 + i % 26), i), left(md5(i::text), i % 20), i, decode(repeat(''00ff'', i), ''hex''), (i || ''.'' || repeat(''0'', i % 30))::numeric, ARRAY[i, NULL, -i], ARRAY[repeat(''x'', i), NULL],
    json_build_object(''k'', i), jsonb_build_object(''k'', repeat(''v'', i)), (i % 512)::bit(9), repeat(''1'', i)::varbit, (''10.0.0.'' || i % 256)::inet, (''10.'' || i % 256 || ''.0.0/16'')::cidr, int4range(i, 2 * i), int4multirange(int4range(i, i + 1), int4range(i + 5, i + 9)),
    to_tsvector(''simple'', ''w'' || i || '' x''), to_tsquery(''simple'', ''w'' || i), (''<a>'' || i || ''</a>'')::xml, path(polygon(3 + i % 9, circle(point(i, i), i))), polygon(3 + i % 9, circle(point(i, i), i))
    FROM generate_series(3, 400) i');
SELECT pg_temp.twin('SELECT id, t, v, bp, b, n, a, ta, j::text, jb, bi, vb, ine, ci, r, mr, ts, tq, x::text, pa, po::text FROM @v');
-- 1.0 is not 1.00, 'a' is not 'a ' in text; ' ' pads char
SELECT pg_temp.twin('INSERT INTO @v (id, n, t, bp) VALUES (1001, 1.0, ''a'', ''a''), (1002, 1.00, ''a '', ''a ''), (1003, 1, ''A'', ''A'')');
SELECT id, n, t || '|' AS t, bp || '|' AS bp FROM s_v WHERE id > 1000 ORDER BY id;
-- sizes around every limit, and tens of megabytes, compressible or not
SELECT pg_temp.make('l', 'id int, kind text, t text, e text, m text, p text');
ALTER TABLE s_l ALTER e SET STORAGE EXTERNAL, ALTER m SET STORAGE MAIN, ALTER p SET STORAGE PLAIN;
ALTER TABLE h_l ALTER e SET STORAGE EXTERNAL, ALTER m SET STORAGE MAIN;
SELECT pg_temp.twin('INSERT INTO @l SELECT n, ''repeat'', repeat(''x'', n), repeat(''y'', n), repeat(''z'', n), NULL FROM unnest(ARRAY[0, 1, 2, 6, 7, 8, 30, 31, 32, 33, 125, 126, 127, 128, 255, 256, 1000, 1999, 2000, 2001, 8191, 8192, 32639, 32640, 32641, 65535, 65536, 65537, 1000000, 1048576, 3000000]) n');
SELECT pg_temp.twin('INSERT INTO @l SELECT n, ''random'', r, r, r, NULL FROM unnest(ARRAY[20, 33, 120, 130, 2000, 9000, 40000, 70000, 500000, 2000000]) n, LATERAL (SELECT left(string_agg(md5(i::text), ''''), n) r FROM generate_series(1, n / 32 + 1) i) x');
SELECT pg_temp.twin('INSERT INTO @l VALUES (1, ''big'', repeat(''0123456789'', 3000000), NULL, NULL, NULL)');
SELECT pg_temp.twin('SELECT id, kind, md5(t), md5(e), md5(m), length(t), length(e), length(m) FROM @l');
INSERT INTO s_l (id, kind, p) VALUES (9, 'plain', repeat('p', 100000));
SELECT length(p), md5(p) = md5(repeat('p', 100000)) AS same FROM s_l WHERE kind = 'plain';
SELECT pg_temp.twin('UPDATE @l SET t = t || ''tail'', e = NULL WHERE id % 2 = 1 AND kind <> ''plain''');
SELECT pg_temp.twin('SELECT id, kind, md5(t), e IS NULL, md5(m) FROM @l WHERE kind <> ''plain''');
SELECT pg_temp.twin('SELECT id, substr(t, length(t) - 5), substr(t, 100, 10) FROM @l WHERE kind <> ''plain''');
-- toasted and compressed datums of another table, and back
CREATE TABLE h_toast (i int, t text, c text COMPRESSION pglz) USING heap;
ALTER TABLE h_toast ALTER t SET STORAGE EXTERNAL;
INSERT INTO h_toast SELECT i, repeat(md5(i::text), 1000), repeat('c', 50000) FROM generate_series(1, 20) i;
CREATE TABLE s_toast USING sofort AS SELECT * FROM h_toast;
DROP TABLE h_toast;
SELECT count(*), bool_and(t = repeat(md5(i::text), 1000)) AS t, bool_and(c = repeat('c', 50000)) AS c FROM s_toast;
CREATE TABLE h_back USING heap AS SELECT * FROM s_toast;
DROP TABLE s_toast;
SELECT count(*), bool_and(t = repeat(md5(i::text), 1000)) AS t, bool_and(c = repeat('c', 50000)) AS c FROM h_back;
-- expanded arrays and records
CREATE TABLE s_exp (i int, a int[], r int4range[]) USING sofort;
DO $$
DECLARE arr int[] := '{}';
BEGIN
    FOR i IN 1..1000 LOOP arr[i] := i; END LOOP;
    INSERT INTO s_exp VALUES (1, arr, NULL);
    arr[500] := NULL;
    INSERT INTO s_exp VALUES (2, arr, ARRAY[int4range(1, 2)]);
    UPDATE s_exp SET a = a || 7 WHERE i = 1;
END $$;
SELECT i, cardinality(a), a[1], a[500], a[1000:], r FROM s_exp ORDER BY i;
-- composite, domain, enum, range over them, polymorphic default
CREATE TYPE s_mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE s_pair AS (x int, y text);
CREATE DOMAIN s_posint AS int CHECK (VALUE > 0);
SELECT pg_temp.make('d', 'm s_mood, p s_pair, d s_posint DEFAULT 3, pa s_pair[], ma s_mood[]');
SELECT pg_temp.twin('INSERT INTO @d VALUES (''ok'', (1, ''one''), 5, ARRAY[(1, ''a'')::s_pair, NULL], ''{sad,NULL}''), (NULL, NULL, DEFAULT, ''{}'', ''{}''), (''happy'', ROW(NULL, NULL), 1, NULL, NULL)');
SELECT pg_temp.twin('INSERT INTO @d (d) VALUES (-1)');
SELECT pg_temp.twin('SELECT *, p IS NULL, (p).y FROM @d');
ALTER TYPE s_mood ADD VALUE 'meh' BEFORE 'ok';
SELECT pg_temp.twin('INSERT INTO @d (m) VALUES (''meh'')');
SELECT pg_temp.twin('SELECT m, m > ''meh'' FROM @d');
-- generated columns
SELECT pg_temp.make('g', 'a int, b int GENERATED ALWAYS AS (a * 2) STORED, c text GENERATED ALWAYS AS (repeat(''x'', a)) STORED');
SELECT pg_temp.twin('INSERT INTO @g SELECT i FROM generate_series(0, 50) i');
SELECT pg_temp.twin('UPDATE @g SET a = a + 1 WHERE a > 10');
SELECT pg_temp.twin('SELECT * FROM @g');
-- many distinct, then few; few, then many: encodings must not show
SELECT pg_temp.make('e', 'k int, a int, b text, c bigint, d numeric');
SELECT pg_temp.twin('INSERT INTO @e SELECT i, i % 3, ''c'' || i % 3, i % 5, i % 4 FROM generate_series(1, 3000) i');
SELECT pg_temp.twin('INSERT INTO @e SELECT i, i, ''long value number '' || i, i::bigint << 33, i / 7.0 FROM generate_series(3001, 9000) i');
SELECT pg_temp.twin('INSERT INTO @e SELECT i, NULL, NULL, NULL, NULL FROM generate_series(9001, 9300) i');
SELECT pg_temp.twin('SELECT * FROM @e');
SELECT pg_temp.twin('SELECT a, b, count(*) FROM @e GROUP BY 1, 2');
SELECT pg_temp.twin('UPDATE @e SET b = ''brand new '' || k, a = -k WHERE k % 2 = 0');
SELECT pg_temp.twin('SELECT * FROM @e');
-- wide rows
DO $$ BEGIN
    EXECUTE 'CREATE TABLE s_w (' || (SELECT string_agg('c' || i || CASE i % 4 WHEN 0 THEN ' int' WHEN 1 THEN ' text' WHEN 2 THEN ' bool' ELSE ' smallint' END, ', ') FROM generate_series(1, 1000) i) || ') USING sofort';
    EXECUTE 'CREATE TABLE h_w (LIKE s_w) USING heap';
END $$;
INSERT INTO h_w (c1, c2, c3, c4, c999, c1000) SELECT 't' || i, i % 2 = 0, i, i, i, i FROM generate_series(1, 300) i;
INSERT INTO s_w SELECT * FROM h_w;
SELECT pg_temp.twin('SELECT * FROM @w');
