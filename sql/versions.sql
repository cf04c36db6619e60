-- What PostgreSQL versions allow differently: versions.out is for 15 and 17,
-- versions_1.out for 18.
\pset format unaligned
\pset tuples_only on
CREATE SCHEMA reg_versions;
SET search_path = reg_versions;
CREATE TABLE s_p (i int, t text) PARTITION BY LIST (i);
CREATE TABLE s_p1 PARTITION OF s_p FOR VALUES IN (1) USING sofort;
CREATE UNIQUE INDEX ON s_p USING sofort_index (i);
CREATE UNIQUE INDEX ON s_p1 USING sofort_index (i);
CREATE UNIQUE INDEX ON s_p (i);
INSERT INTO s_p VALUES (1, 'one');
INSERT INTO s_p VALUES (1, 'two') ON CONFLICT (i) DO UPDATE SET t = EXCLUDED.t RETURNING *;
INSERT INTO s_p1 VALUES (1, 'three') ON CONFLICT (i) DO NOTHING RETURNING *;
INSERT INTO s_p VALUES (1, 'four');
SELECT * FROM s_p;
SELECT * FROM sofort.verify('s_p1');
-- virtual generated columns are not stored
SELECT current_setting('server_version_num')::int >= 180000 AS virtual \gset
\if :virtual
CREATE TABLE s_v (a int, b int, x int GENERATED ALWAYS AS (a + b) VIRTUAL, c text) USING sofort;
INSERT INTO s_v (a, b, c) VALUES (1, 2, 'c'), (3, 4, NULL);
ALTER TABLE s_v ALTER x TYPE numeric;
UPDATE s_v SET b = b + 10 WHERE x = 3;
ALTER TABLE s_v ADD y bigint GENERATED ALWAYS AS (a * 100) VIRTUAL;
SELECT * FROM s_v ORDER BY a;
SELECT x, s_v FROM s_v WHERE y = 300;
VACUUM FULL s_v;
SELECT a, b, x, c, y FROM s_v ORDER BY a;
\endif
-- a NOT NULL constraint that is not valid yet holds for every row that is updated, by whatever column
\if :virtual
CREATE TABLE s_n (id int PRIMARY KEY, a int, n int) USING sofort;
INSERT INTO s_n VALUES (1, NULL, 0), (2, 2, 0);
ALTER TABLE s_n ADD CONSTRAINT a_there NOT NULL a NOT VALID;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
UPDATE s_n SET n = n + 1 WHERE id = 1;
UPDATE s_n SET n = n + 1 WHERE id = 2;
UPDATE s_n SET a = 1 WHERE id = 1;
ALTER TABLE s_n VALIDATE CONSTRAINT a_there;
UPDATE s_n SET n = n + 1;
SELECT * FROM s_n ORDER BY id;
RESET enable_seqscan;
RESET enable_bitmapscan;
\endif
-- before 18, REFRESH CONCURRENTLY wants a btree
CREATE TABLE s_base (i int) USING sofort;
INSERT INTO s_base VALUES (1);
CREATE MATERIALIZED VIEW s_view USING sofort AS SELECT * FROM s_base;
CREATE UNIQUE INDEX s_view_i ON s_view USING sofort_index (i);
INSERT INTO s_base VALUES (2);
REFRESH MATERIALIZED VIEW CONCURRENTLY s_view;
TABLE s_view ORDER BY i;
CREATE UNIQUE INDEX s_view_btree ON s_view (i);
REFRESH MATERIALIZED VIEW CONCURRENTLY s_view;
TABLE s_view ORDER BY i;
-- each version passes over entries between the bounds of a scan, and knows what that costs
CREATE TABLE s_big (a int, b int, c text) USING sofort;
INSERT INTO s_big SELECT i % 10, i, 'c' || i FROM generate_series(1, 200000) i;
CREATE INDEX s_big_a_b ON s_big USING sofort_index (a, b);
ANALYZE s_big;
CREATE TABLE s_small (x int) USING sofort;
INSERT INTO s_small SELECT i * 1000 FROM generate_series(1, 100) i;
ANALYZE s_small;
CREATE FUNCTION cost_by_index(condition text) RETURNS float LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) SELECT c FROM s_big WHERE ' || condition INTO plan;
    ASSERT plan -> 0 -> 'Plan' ->> 'Index Name' = 's_big_a_b';
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT cost_by_index('b = 42') < cost_by_index('b > 0') / 20 AS some_of_it, cost_by_index('b = 42') > 2 * cost_by_index('a = 2 AND b = 42') AS of_each, cost_by_index('a = 2 AND b = 42') < 50 AS one, cost_by_index('a IN (1, 2) AND b = 42') < 50 AS two,
    cost_by_index('a > 4 AND b = 42') < cost_by_index('b = 42') * 0.7 AS half, cost_by_index('a IS NULL AND b = 42') < 50 AS nulls;
SET max_parallel_workers_per_gather = 0;
EXPLAIN (COSTS OFF) SELECT count(c) FROM s_small JOIN s_big ON b = x;
