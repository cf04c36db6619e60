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
