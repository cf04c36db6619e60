-- sofort.workload: which kinds of statements need which indexes.
CREATE SCHEMA workload_test;
SET search_path = workload_test;
CREATE TABLE item (id int PRIMARY KEY, place int, code text UNIQUE, note text) USING sofort;
CREATE INDEX item_place ON item USING sofort_index (place);
CREATE INDEX item_note ON item USING btree (note);
-- (a load)
DO $$ BEGIN
  INSERT INTO item SELECT i, i / 10, 'c' || i, 'n' || i FROM generate_series(1, 10000) i;
END $$;
ANALYZE item;

CREATE VIEW usage AS
    SELECT command, relation, index, executions, cost < cost_without AS pays
    FROM sofort.workload
    WHERE relation::text IN ('item', 'part', 'parent', 'child') AND executions > 0
    ORDER BY command, executions, relation::text, index::text, cost < cost_without;
TABLE usage;

-- constants, parameters and the length of lists make no difference
SELECT place FROM item WHERE id = 1;
SELECT place FROM item WHERE id = 2;
PREPARE by_id(int) AS SELECT place FROM item WHERE id = $1;
EXECUTE by_id(3);
EXECUTE by_id(4);
SELECT count(*) FROM item WHERE place IN (1, 2);
SELECT count(*) FROM item WHERE place IN (1, 2, 3);
-- another kind: other column, other connective, other order
SELECT count(*) FROM item WHERE id = 5 AND place = 0;
SELECT count(*) FROM item WHERE id = 5 OR place = 0;
-- ... other groups
SELECT count(*) AS kinds FROM sofort.workload WHERE index = 'item_pkey'::regclass \gset
SELECT count(*) FROM item WHERE id BETWEEN 20 AND 29 GROUP BY place;
SELECT count(*) FROM item WHERE id BETWEEN 20 AND 29 GROUP BY place % 2;
SELECT count(*) FROM item WHERE id BETWEEN 30 AND 39 GROUP BY place;
SELECT count(*) - :kinds AS more FROM sofort.workload WHERE index = 'item_pkey'::regclass;
-- planned, not executed
EXPLAIN (COSTS OFF) SELECT note FROM item WHERE code = 'c7';
-- a btree survives a restart: not of interest
SELECT id FROM item WHERE note = 'n8';
-- whatever the session thinks of index scans
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_seqscan = off;
SELECT id FROM item WHERE code = 'c9';
RESET enable_indexscan;
RESET enable_bitmapscan;
RESET enable_seqscan;
TABLE usage;

-- writing: unique indexes are looked up, others are not
INSERT INTO item VALUES (-1, 0, 'x1', NULL);
INSERT INTO item VALUES (-2, 0, 'x2', NULL), (-3, 0, 'x3', NULL);
INSERT INTO item VALUES (-2, 0, 'x2', NULL), (-4, 0, 'x4', NULL) ON CONFLICT DO NOTHING;
UPDATE item SET place = -1 WHERE id = -1;
UPDATE item SET code = 'y1' WHERE id = -1;
DELETE FROM item WHERE place = -1;
SELECT * FROM usage WHERE command <> 'SELECT';

-- functions, foreign keys, partitions, joins
CREATE TABLE parent (id int PRIMARY KEY) USING sofort;
CREATE TABLE child (id int, parent int REFERENCES parent) USING sofort;
INSERT INTO parent SELECT generate_series(1, 1000);
INSERT INTO child SELECT i, i FROM generate_series(1, 5) i;
CREATE TABLE part (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10000) USING sofort;
INSERT INTO part SELECT i, i FROM generate_series(1, 5000) i;
CREATE FUNCTION place_of(which int) RETURNS int LANGUAGE plpgsql STABLE AS
  'DECLARE result int; BEGIN SELECT place INTO result FROM item WHERE id = which AND note IS NOT NULL; RETURN result; END';
SELECT sum(place_of(i)) FROM generate_series(1, 20) i;
SELECT sum(item.place) FROM child JOIN item USING (id);
SELECT * FROM usage WHERE relation::text = 'parent' AND command = 'SELECT';
SELECT command, relation, index, executions FROM usage WHERE executions = 20 AND command = 'SELECT';

-- two indexes that serve the same lookup: with either the other saves nothing
CREATE TABLE twice (id int, v int) USING sofort;
CREATE INDEX twice_1 ON twice USING sofort_index (id);
CREATE INDEX twice_2 ON twice USING sofort_index (id);
INSERT INTO twice SELECT i, i FROM generate_series(1, 5000) i;
ANALYZE twice;
SELECT v FROM twice WHERE id = 5;
SELECT index, cost < cost_without AS pays FROM sofort.workload
WHERE relation = 'twice'::regclass AND command = 'SELECT' ORDER BY index::text;

-- what is dropped is forgotten; what is rolled back is not
BEGIN;
DROP INDEX twice_2;
ROLLBACK;
BEGIN;
SAVEPOINT s;
DROP INDEX twice_2;
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM sofort.workload WHERE relation = 'twice'::regclass AND command = 'SELECT';
DROP INDEX twice_2;
SELECT index, executions, cost < cost_without AS pays FROM sofort.workload
WHERE relation = 'twice'::regclass AND command = 'SELECT' ORDER BY index::text;
SELECT count(*) AS kinds FROM sofort.workload \gset
DROP TABLE twice;
SELECT :kinds - count(*) AS fewer FROM sofort.workload;
SELECT count(*) FROM sofort.workload WHERE relation::text ~ '^[0-9]';
REINDEX INDEX item_place;
REINDEX INDEX CONCURRENTLY item_place;
SELECT count(*) FROM usage WHERE index::text = 'item_place';
DELETE FROM item WHERE place = -1;
SELECT * FROM usage WHERE index::text = 'item_place';

-- who sees what
CREATE ROLE workload_reader;
GRANT USAGE ON SCHEMA workload_test, sofort TO workload_reader;
SELECT count(*) FROM item;
SELECT DISTINCT relation FROM sofort.workload WHERE relation = 'item'::regclass AND index IS NULL;
SET ROLE workload_reader;
SELECT count(*) FROM sofort.workload WHERE relation::text LIKE 'workload_test%';
SELECT count(*) FROM sofort.recovery_order WHERE relation::text LIKE 'workload_test%';
RESET ROLE;
GRANT SELECT ON item TO workload_reader;
SET ROLE workload_reader;
SELECT DISTINCT relation FROM sofort.workload WHERE relation = 'workload_test.item'::regclass;
SELECT relation, index, status, "position", workers FROM sofort.recovery_order
WHERE relation = 'workload_test.item'::regclass ORDER BY index::text;
RESET ROLE;
GRANT pg_read_all_stats TO workload_reader;
SET ROLE workload_reader;
SELECT count(DISTINCT relation) > 1 AS several FROM sofort.workload;
RESET ROLE;

-- what exploring a new kind plans again is not heard twice
CREATE FUNCTION loud() RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN RAISE NOTICE ''planned''; RETURN 1; END';
SELECT count(*) FROM item WHERE id = loud() AND id < loud();
SELECT count(*) FROM item WHERE id = loud() AND id < loud();

-- functions that planning evaluates are called as often as on a heap table ...
CREATE TABLE heap_item (LIKE item) USING heap;
INSERT INTO heap_item SELECT * FROM item;
CREATE UNIQUE INDEX ON heap_item (id);
CREATE UNIQUE INDEX ON heap_item (code);
ANALYZE item, heap_item;
CREATE SEQUENCE calls;
CREATE FUNCTION five() RETURNS int STABLE LANGUAGE plpgsql AS
	'BEGIN PERFORM nextval(''workload_test.calls''); RETURN 5; END';
CREATE FUNCTION pure_five() RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN PERFORM nextval(''workload_test.calls''); RETURN 5; END';
CREATE FUNCTION as_sql(x int) RETURNS int STABLE LANGUAGE sql AS 'SELECT x + workload_test.five()';
CREATE FUNCTION calls_of(stmt text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM setval('calls', 1);
	EXECUTE stmt;
	RETURN nextval('calls') - 2;
END $$;
CREATE FUNCTION calls_and_heaps(stmt text) RETURNS text LANGUAGE sql AS $$
	SELECT calls_of(format(stmt, 'item')) || ' ' || calls_of(format(stmt, 'heap_item'))
$$;
SELECT calls_and_heaps(stmt) FROM unnest(ARRAY[
	'SELECT place FROM %s WHERE id = five()',
	'UPDATE %s SET note = note WHERE id = five() + 1',
	'SELECT place FROM %s WHERE id = pure_five() AND place >= 0',
	'SELECT place FROM %s WHERE id = as_sql(1)',
	'SELECT place FROM %s WHERE id = (SELECT five())',
	'SELECT place FROM %s WHERE id = ANY (ARRAY[five(), 7])',
	'SELECT place FROM %s JOIN (SELECT 1 AS one) x ON id = as_sql(one)',
	'SELECT place FROM %s WHERE id = five() AND place_of(id) >= 0',
	'EXPLAIN SELECT FROM %1$s a FULL JOIN %1$s b ON pure_five() = 5']) stmt;
CREATE UNIQUE INDEX item_partial ON item (note) WHERE place > pure_five();
INSERT INTO item VALUES (-9, 9, 'z9', 'n90') ON CONFLICT (note) WHERE place > pure_five() DO NOTHING;
-- ... and it is known which index such statements use
SELECT place FROM item WHERE code = 'c' || five() AND place + 0 >= 0;
SELECT place FROM item WHERE code = 'c' || five() AND place + 0 >= 0;
SELECT * FROM usage WHERE index::text = 'item_code_key' AND executions = 2 AND command = 'SELECT';

-- exploring that fails is not tried again by the next execution; here, by a
-- function that is called for common values, and fails when planning has called it
CREATE FUNCTION tired(int, int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('workload_test.calls') > current_setting('workload.calls')::int THEN
		RAISE 'tired';
	END IF;
	RETURN $1 = $2;
END $$;
CREATE OPERATOR === (FUNCTION = tired, LEFTARG = int, RIGHTARG = int, RESTRICT = eqsel);
SET workload.calls = 1000000;
SELECT calls_of('EXPLAIN SELECT FROM heap_item WHERE place === 5 AND id > 0') + 1 AS calls \gset
SELECT :calls > 1 AS some;
SELECT set_config('workload.calls', :'calls', false) = :'calls' AS set;
SELECT calls_of('EXPLAIN SELECT FROM item WHERE place === 5 AND id > 0') + 1 = :calls AS as_many;
SELECT calls_of('EXPLAIN SELECT FROM item WHERE place === 5 AND id > 0') + 1 = :calls AS as_many;

-- of more kinds than there are places for only one a second is explored
-- (a stop point that never fires counts)
SELECT sofort_test.arm('exec-kind-explored', 'wait', 1000000000);
CREATE TABLE many (a int PRIMARY KEY, b int, c int, d int, e int, f int, g int, h int, i int, j int, k int) USING sofort;
CREATE FUNCTION explored(first int, last int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := sofort_test.passages('exec-kind-explored');
BEGIN
	FOR n IN first .. last LOOP
		EXECUTE 'SELECT FROM many WHERE a = 1' || (SELECT coalesce(string_agg(format(' AND %s = 1', chr(ascii('b') + bit)), ''), '')
			FROM generate_series(0, 9) bit WHERE n & (1 << bit) <> 0) || CASE WHEN n > 1023 THEN ' AND a < 5' ELSE '' END;
	END LOOP;
	RETURN sofort_test.passages('exec-kind-explored') - before;
END $$;
SELECT explored(0, 1023) > 100 AS most;
SELECT explored(1024, 1900) < 10 AS few;
SELECT sofort_test.disarm('exec-kind-explored');

SET client_min_messages = warning;
DROP SCHEMA workload_test CASCADE;
REVOKE USAGE ON SCHEMA sofort FROM workload_reader;
DROP ROLE workload_reader;
