-- (a, b) > (x, y): the leading column is an index condition
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET jit = off;
CREATE SCHEMA reg_row_compare;
SET search_path = reg_row_compare;
CREATE TABLE s (a int, b int, c text) USING sofort;
INSERT INTO s SELECT i / 10, i % 10, i FROM generate_series(0, 9999) i;
INSERT INTO s VALUES (NULL, 1, 'null'), (5, NULL, 'null'), (NULL, NULL, 'null');
CREATE INDEX s_ab ON s USING sofort_index (a, b);
CREATE TABLE h (LIKE s) USING heap;
INSERT INTO h SELECT * FROM s;
ANALYZE s, h;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (a, b) > (990, 3) ORDER BY a, b LIMIT 3;
SELECT * FROM s WHERE (a, b) > (990, 3) ORDER BY a, b LIMIT 3;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (a, b) <= (3, 3) ORDER BY a DESC, b DESC;
RESET enable_bitmapscan;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (3, 3) > (a, b);
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (b, a) > (3, 3) AND (a, b) < (7, 1);
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (a, b) > (995, 3);
SELECT count(*) FROM s WHERE (a, b) > (995, 3);
RESET enable_indexscan;
RESET enable_indexonlyscan;
-- the same rows as on heap
SET enable_seqscan = off;
DO $$
DECLARE op text; x text; y text; same boolean; n bigint; total bigint := 0; BEGIN
    FOREACH op IN ARRAY ARRAY['<', '<=', '>=', '>'] LOOP
        FOREACH x IN ARRAY ARRAY['0', '5', '500', '999', '-1', '1000', 'NULL::int', '500::bigint', '7.5'] LOOP
            FOREACH y IN ARRAY ARRAY['0', '9', '4', 'NULL::int'] LOOP
                EXECUTE format('SELECT (SELECT array_agg(c ORDER BY a, b) FROM s WHERE (a, b) %1$s (%2$s, %3$s)) IS NOT DISTINCT FROM
                    (SELECT array_agg(c ORDER BY a, b) FROM h WHERE (a, b) %1$s (%2$s, %3$s)),
                    (SELECT count(*) FROM s WHERE (a, b) %1$s (%2$s, %3$s))', op, x, y) INTO same, n;
                total := total + n;
                IF NOT same THEN RAISE WARNING 'differs: % % %', op, x, y; END IF;
            END LOOP;
        END LOOP;
    END LOOP;
    RAISE WARNING '% rows', total;
END $$;
-- of a sample, not of the whole table
SELECT count(*) FROM s TABLESAMPLE BERNOULLI (0) WHERE (a, b) > (990, 3);
SELECT count(*) FROM s TABLESAMPLE SYSTEM (0) WHERE (a, b) > (990, 3);
PREPARE p AS SELECT count(*) FROM s WHERE (a, b) > ($1, $2);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p (990, 4);
EXECUTE p (990, 4);
EXECUTE p (NULL, 4);
RESET plan_cache_mode;
RESET enable_seqscan;
-- with many equal a: two scans that follow each other, and read no row that does not match
CREATE TABLE m (k int, a int, b int, c text COLLATE "C", n numeric) USING sofort;
INSERT INTO m SELECT i % 2, i / 400, i * 7919 % 401, i % 5, i % 7 FROM generate_series(0, 3999) i;
CREATE INDEX m_abc ON m USING sofort_index (a, b, c);
CREATE INDEX m_kab ON m USING sofort_index (k, a, b DESC);
CREATE INDEX m_nc ON m USING sofort_index (n, c DESC);
ANALYZE m;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE (a, b) > (4, 300) ORDER BY a, b LIMIT 3;
SELECT a, b FROM m WHERE (a, b) > (4, 396) ORDER BY a, b LIMIT 7;
SELECT a, b FROM m WHERE (4, 3) > (a, b) ORDER BY a DESC, b DESC LIMIT 7;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE (a, b, c) <= (4, 250, '2') ORDER BY a DESC, b DESC, c DESC LIMIT 3;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE (a, b, c) <= (4, 250, '2') AND (a, b) > (2, 7) ORDER BY a, b, c LIMIT 3;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE k = 1 AND (a, b, n) >= (4, 250, 2) ORDER BY a, b DESC LIMIT 3;
EXPLAIN (COSTS OFF) SELECT a, b FROM m WHERE (a, b) > (4, 300) ORDER BY a LIMIT 3;
PREPARE page AS SELECT a, b FROM m WHERE (a, b) > ($1, $2) ORDER BY a, b LIMIT 3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE page (4, 397);
EXECUTE page (4, 397);
EXECUTE page (NULL, 397);
EXECUTE page (4, NULL);
RESET plan_cache_mode;
-- one scan: the order does not begin with the comparison's columns, or has both directions
-- where these decide; values that may change; a row that is checked again; WHERE CURRENT OF
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := ''; BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP result := result || line || E'\n'; END LOOP;
    RETURN CASE WHEN result ~ 'Append' THEN 'parts' ELSE 'one scan' END; END $$;
CREATE INDEX m_adb ON m USING sofort_index (a, b DESC, c);
SELECT q, plan(q) FROM (VALUES
    ('SELECT * FROM m WHERE (a, b) > (4, 300) ORDER BY b, a LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, 300) ORDER BY a, b DESC LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b, c) > (4, 300, ''2'') ORDER BY a, b DESC, c LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, (random() * 9)::int) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, length(current_setting(''search_path''))) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, CASE WHEN 1 IN (SELECT (random() * 9)::int) THEN 2 ELSE 300 END) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (b, 4) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, (7 IN (SELECT s.b FROM s WHERE random() < 0.5))::int) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > ((SELECT min(s.b) + 4 FROM s), 300) ORDER BY a, b LIMIT 3'),
    ('SELECT * FROM m WHERE (a, b) > (4, 300) ORDER BY a, b LIMIT 3 FOR UPDATE'),
    ('UPDATE m SET c = c WHERE (a, b) > (4, 300) AND a < 6'),
    ('DELETE FROM m WHERE (a, b) > (4, 300) AND a < 6'),
    ('UPDATE s SET b = s.b FROM m WHERE (m.a, m.b) > (4, 390) AND s.a = m.a'),
    ('SELECT m.a FROM m JOIN s ON s.a = m.a WHERE (m.a, m.b) > (4, 390) ORDER BY m.a, m.b LIMIT 3 FOR UPDATE OF s'),
    ('SELECT m.a FROM m JOIN s ON s.a = m.a WHERE (m.a, m.b) > (4, 300) ORDER BY m.a, m.b LIMIT 3'),
    ('DECLARE c CURSOR FOR SELECT * FROM m WHERE (a, b) > (4, 300) ORDER BY a, b')) v (q);
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM m WHERE (a, b) > (4, 396) ORDER BY a, b;
MOVE 3 FROM c;
UPDATE m SET c = 'current' WHERE CURRENT OF c RETURNING a, b, c;
ROLLBACK;
DO $$ DECLARE c CURSOR FOR SELECT * FROM m WHERE (a, b) > (4, 396) ORDER BY a, b; r m; BEGIN
    OPEN c; FETCH c INTO r; DELETE FROM m WHERE CURRENT OF c; CLOSE c;
    ASSERT NOT EXISTS (SELECT FROM m WHERE (a, b) = (r.a, r.b)); END $$;
-- pages as on heap: all operators, orders, edges
CREATE TABLE mh (LIKE m) USING heap;
INSERT INTO m SELECT 0, a, b, 'null', 1 FROM (VALUES (4, NULL::int), (NULL, 4), (NULL, NULL), (10, 3), (-2147483648, 0), (2147483647, 9)) v (a, b);
INSERT INTO mh SELECT * FROM m;
CREATE INDEX ON mh (a, b, c);
CREATE INDEX ON mh (n, c DESC);
ANALYZE m, mh;
DO $$
DECLARE op text; x text; y text; o text; row text; q text; same boolean; n bigint; total bigint := 0; parts bigint := 0; BEGIN
    FOREACH row IN ARRAY ARRAY['(a, b) %s (%s, %s)', '(%2$s, %3$s) %1$s (a, b)', '(a, b, c) %s (%s, %s, ''2'')', '(a, b, n) %s (%s, %s, 3)', 'k = 1 AND (a, b) %s (%s, %s)',
            '(a, b) %s (%s, %s) AND (a, b) BETWEEN (2, 7) AND (7, 7)', '(n, c) %s (%s, %s::text)'] LOOP
        FOREACH op IN ARRAY ARRAY['<', '<=', '>=', '>'] LOOP
            FOREACH x IN ARRAY ARRAY['4', '0', '-1', '10', 'NULL::int', '4::bigint', '3.5', '2147483647'] LOOP
                FOREACH y IN ARRAY ARRAY['300', '0', 'NULL::int', '400'] LOOP
                    CONTINUE WHEN row LIKE '(n%%' AND x LIKE '%%int';
                    FOREACH o IN ARRAY ARRAY['a, b, c, k, n', 'a DESC, b DESC, c DESC, k, n', 'a, b DESC, c, k, n', 'n, c DESC, a, b, k', 'a DESC, n, c, b, k'] LOOP
                        CONTINUE WHEN (row LIKE '(n%%') <> (o LIKE 'n%%');
                        q := format('FROM @ WHERE ' || row || ' ORDER BY ' || o || ' LIMIT 40', op, x, y);
                        EXECUTE format('SELECT ours IS NOT DISTINCT FROM heaps, cardinality(heaps) FROM
                            (SELECT array_agg(r) AS ours FROM (SELECT ROW(k, a, b, c, n)::text AS r %s) x) x,
                            (SELECT array_agg(r) AS heaps FROM (SELECT ROW(k, a, b, c, n)::text AS r %s) y) y',
                            replace(q, '@', 'm'), replace(q, '@', 'mh')) INTO same, n;
                        total := total + coalesce(n, 0);
                        IF plan(replace('SELECT * ' || q, '@', 'm')) = 'parts' THEN parts := parts + 1; END IF;
                        IF same IS NOT TRUE THEN RAISE WARNING 'differs: %', q; END IF;
                    END LOOP;
                END LOOP;
            END LOOP;
        END LOOP;
    END LOOP;
    RAISE WARNING '% rows, more than a thousand plans by parts: %', total, parts > 1000;
END $$;
-- a family of operators that calls greater what others call less
CREATE FUNCTION reverse_order(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($2, $1)';
BEGIN;
CREATE OPERATOR CLASS reverse_ops FOR TYPE int USING btree AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 reverse_order(int, int);
EXPLAIN (COSTS OFF) SELECT a, b FROM m WHERE (a, b) > (4, 396) ORDER BY a, b LIMIT 7;
SELECT a, b FROM m WHERE (a, b) > (4, 396) ORDER BY a, b LIMIT 7;
SELECT a, b FROM m WHERE (a, b) < (4, 3) ORDER BY a DESC, b DESC LIMIT 7;
ROLLBACK;
-- a partitioned table; row security: nothing is evaluated before its policies
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (500) USING sofort;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (500) TO (1000) USING sofort;
CREATE INDEX ON p USING sofort_index (a, b);
INSERT INTO p SELECT a, b FROM s WHERE a IS NOT NULL;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE (a, b) > (498, 3) ORDER BY a, b LIMIT 100;
SELECT count(*), min(a), max(b) FROM (SELECT * FROM p WHERE (a, b) > (498, 3) ORDER BY a, b LIMIT 100) x;
-- nor does the condition that the query does not name need a privilege
CREATE ROLE row_compare_user;
GRANT USAGE ON SCHEMA reg_row_compare TO row_compare_user;
GRANT SELECT ON s TO row_compare_user;
BEGIN;
REVOKE EXECUTE ON FUNCTION int4ge(int, int) FROM PUBLIC;
SET LOCAL ROLE row_compare_user;
SELECT * FROM s WHERE (a, b) > (990, 3) ORDER BY a, b LIMIT 1;
ROLLBACK;
DROP SCHEMA reg_row_compare CASCADE;
DROP ROLE row_compare_user;
