CREATE TABLE p (k int, s text, v int DEFAULT 0) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) USING :am1;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200) USING :am2;
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (200) TO (300) PARTITION BY LIST (s);
CREATE TABLE p3a PARTITION OF p3 FOR VALUES IN ('a', NULL) USING :am2;
CREATE TABLE p3b PARTITION OF p3 FOR VALUES IN ('b', 'c') PARTITION BY HASH (k);
CREATE TABLE p3b0 PARTITION OF p3b FOR VALUES WITH (MODULUS 2, REMAINDER 0) USING :am1;
CREATE TABLE p3b1 PARTITION OF p3b FOR VALUES WITH (MODULUS 2, REMAINDER 1) USING :am2;
CREATE TABLE pd PARTITION OF p DEFAULT USING :am1;
INSERT INTO p SELECT i, (ARRAY['a', 'b', 'c', NULL])[1 + i % 4], i FROM generate_series(0, 350) i;
INSERT INTO p VALUES (250, 'z', 1);
INSERT INTO p VALUES (NULL, 'null', 1);
SELECT tableoid::regclass::text COLLATE "C" AS part, count(*), sum(k), sum(v) FROM p GROUP BY 1 ORDER BY 1;
CREATE INDEX p_k ON p (k);
ALTER TABLE p ADD PRIMARY KEY (k);
DELETE FROM p WHERE k IS NULL;
CREATE UNIQUE INDEX p_u ON p1 (v);
-- rows that move
UPDATE p SET k = k + 100 WHERE k BETWEEN 95 AND 105 RETURNING tableoid::regclass, k;
UPDATE p SET s = 'a' WHERE k BETWEEN 210 AND 220 AND s = 'b' RETURNING tableoid::regclass, k, s;
UPDATE p SET k = 1000 + k WHERE k < 5;
UPDATE p SET k = k - 1000 WHERE k >= 1000 RETURNING *, tableoid::regclass;
SELECT tableoid::regclass::text COLLATE "C" AS part, count(*), sum(k), sum(v) FROM p GROUP BY 1 ORDER BY 1;
-- attach and detach
CREATE TABLE n (k int NOT NULL, s text, v int) USING :am2;
INSERT INTO n VALUES (400, 'x', 1), (310, 'y', 2);
ALTER TABLE p ATTACH PARTITION n FOR VALUES FROM (400) TO (500);
DELETE FROM n WHERE k = 310;
ALTER TABLE p ATTACH PARTITION n FOR VALUES FROM (300) TO (500);
ALTER TABLE p ATTACH PARTITION n FOR VALUES FROM (400) TO (500);
SELECT * FROM p WHERE k = 400;
INSERT INTO p VALUES (401, 'into n');
ALTER TABLE p DETACH PARTITION p2;
SELECT count(*), (SELECT count(*) FROM p2) FROM p;
INSERT INTO p VALUES (150, 'default', 0);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200);
DELETE FROM p WHERE k = 150;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200);
ALTER TABLE p DETACH PARTITION pd;
ALTER TABLE p DETACH PARTITION n CONCURRENTLY;
ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY;
SELECT count(*) FROM p;
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (100);
ALTER TABLE p ATTACH PARTITION pd DEFAULT;
SELECT tableoid::regclass::text COLLATE "C" AS part, count(*), sum(k), sum(v) FROM p GROUP BY 1 ORDER BY 1;
-- through the parent
INSERT INTO p VALUES (10, 'again', 1) ON CONFLICT (k) DO NOTHING;
INSERT INTO p VALUES (10, 'again', 1), (151, 'again', 1), (252, 'a', 5), (3000, 'new', 7) ON CONFLICT (k) DO UPDATE SET v = p.v + 1000 + excluded.v RETURNING k, s, v;
MERGE INTO p USING (SELECT i AS k FROM generate_series(90, 380, 10) i) x ON p.k = x.k WHEN MATCHED AND p.k % 20 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED THEN INSERT VALUES (x.k, 'b', -2);
SELECT tableoid::regclass::text COLLATE "C" AS part, count(*), sum(k), sum(v) FROM p GROUP BY 1 ORDER BY 1;
ALTER TABLE p ADD COLUMN extra int DEFAULT 3, ALTER v TYPE bigint, DROP COLUMN IF EXISTS none;
ALTER TABLE p ADD CONSTRAINT c CHECK (k >= 0);
INSERT INTO p (k) VALUES (-1);
SET enable_seqscan = off;
SELECT k, s, v, extra FROM p WHERE k IN (7, 107, 207, 307, 999) ORDER BY k;
SELECT k FROM p WHERE k > 20 ORDER BY k LIMIT 3;
SELECT k FROM p WHERE k < 320 ORDER BY k DESC LIMIT 3;
RESET enable_seqscan;
SET enable_partitionwise_join = on;
SELECT count(*) FROM p a JOIN p b USING (k);
COPY p (k, s) FROM stdin;
5000	copied
160	copied
61	duplicate
\.
COPY p (k, s) FROM stdin;
5000	copied
6000	copied
\.
SELECT k, tableoid::regclass FROM p WHERE s = 'copied' ORDER BY k;
TRUNCATE p2;
SELECT count(*) FROM p;
TRUNCATE p;
SELECT count(*) FROM p;
-- inheritance
CREATE TABLE i0 (id int, t text) USING :am1;
CREATE TABLE i1 (extra int) INHERITS (i0) USING :am2;
CREATE TABLE i2 (id int, t text, more int) USING :am1;
INSERT INTO i0 VALUES (1, 'zero');
INSERT INTO i1 VALUES (2, 'one', 1);
INSERT INTO i2 VALUES (3, 'two', 2);
ALTER TABLE i2 INHERIT i0;
SELECT tableoid::regclass, * FROM i0 ORDER BY id;
UPDATE i0 SET t = t || '!' WHERE id > 0 RETURNING tableoid::regclass, t;
UPDATE ONLY i0 SET t = 'only';
DELETE FROM i0 WHERE id = 2;
ALTER TABLE i0 ADD x int DEFAULT 1;
ALTER TABLE i0 ALTER id TYPE bigint;
SELECT * FROM i2;
ALTER TABLE i2 NO INHERIT i0;
SELECT count(*) FROM i0;
-- materialized views
CREATE MATERIALIZED VIEW mv USING :am1 AS SELECT i AS id, i % 3 AS n FROM generate_series(1, 30) i WITH NO DATA;
SELECT * FROM mv;
REFRESH MATERIALIZED VIEW mv;
CREATE UNIQUE INDEX mv_id ON mv USING btree (id);
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
SELECT n, count(*) FROM mv GROUP BY n ORDER BY n;
ALTER MATERIALIZED VIEW mv SET ACCESS METHOD :am2;
REFRESH MATERIALIZED VIEW mv WITH NO DATA;
SELECT count(*) FROM mv;
REFRESH MATERIALIZED VIEW mv;
SELECT count(*) FROM mv;
-- LIKE, into a partitioned table that names an access method for its partitions (17)
CREATE TABLE like_source (a int PRIMARY KEY, b text, c int) USING :am1;
CREATE UNIQUE INDEX like_unique ON like_source (a, c);
CREATE INDEX like_plain ON like_source (c);
CREATE TABLE like_parent (LIKE like_source INCLUDING ALL) PARTITION BY RANGE (a) USING :am1;
CREATE TABLE like_part PARTITION OF like_parent FOR VALUES FROM (1) TO (100);
INSERT INTO like_parent VALUES (1, 'x', 2) ON CONFLICT (a) DO NOTHING;
INSERT INTO like_parent VALUES (1, 'y', 2) ON CONFLICT (a) DO UPDATE SET b = 'again';
SELECT * FROM like_parent;

-- partitions elsewhere: rows move there in batches, of copies of what came from outside
CREATE EXTENSION postgres_fdw;
DO $$BEGIN
	EXECUTE format('CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname %L, port %L, host %L)',
		current_database(), current_setting('port'), split_part(current_setting('unix_socket_directories'), ',', 1));
END$$;
CREATE USER MAPPING FOR CURRENT_USER SERVER self;
CREATE TABLE away (a int, t text) PARTITION BY LIST (a);
CREATE TABLE away_1_here (a int, t text) USING :am2;
CREATE FOREIGN TABLE away_1 PARTITION OF away FOR VALUES IN (1) SERVER self OPTIONS (schema_name 'f', table_name 'away_1_here', batch_size '10');
CREATE TABLE away_2 PARTITION OF away FOR VALUES IN (2) USING :am1;
INSERT INTO away SELECT 2, 'text ' || i FROM generate_series(1, 25) i;
UPDATE away t SET a = 1 FROM (VALUES (1), (2)) s (a) WHERE t.a = s.a AND s.a = 2;
INSERT INTO away SELECT 1 + i % 2, 'more ' || i FROM generate_series(1, 25) i;
SELECT tableoid::regclass, count(*), min(t), max(t) FROM away GROUP BY 1 ORDER BY count(*);
SELECT count(*), min(t), max(t) FROM away_1_here;
