-- Look-ups and updates by index run without the executor's own nodes. Each
-- statement runs both ways and must do the same.
CREATE TABLE direct (
	id int PRIMARY KEY,
	code text UNIQUE,
	n int NOT NULL DEFAULT 0,
	note text,
	amount numeric
) USING sofort;
INSERT INTO direct SELECT i, 'code ' || i, i, repeat('x', i % 50), i / 3.0 FROM generate_series(1, 2000) i;
CREATE INDEX direct_note ON direct USING sofort_index (note);
VACUUM ANALYZE direct;
SET plan_cache_mode = force_generic_plan;

-- a stop point that never fires counts the statements that ran directly
SELECT sofort_test.arm('exec-direct', 'wait', 1000000000);
CREATE FUNCTION both_ways(query text, OUT way text, OUT direct bigint, OUT result text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	r text;
	touched bigint;
BEGIN
	FOREACH way IN ARRAY '{on,off}'::text[] LOOP
		PERFORM set_config('sofort.direct_execution', way, true);
		BEGIN
			direct := sofort_test.passages('exec-direct');
			EXECUTE query;
			GET DIAGNOSTICS touched = ROW_COUNT;
			SELECT string_agg(d::text, ' ' ORDER BY id) INTO r FROM direct d WHERE id BETWEEN 1 AND 3;
			result := touched || ' rows: ' || r;
			RAISE EXCEPTION 'undo' USING ERRCODE = 'UUUUU';
		EXCEPTION
			WHEN SQLSTATE 'UUUUU' THEN NULL;
			WHEN OTHERS THEN result := SQLSTATE || ' ' || SQLERRM;
		END;
		direct := sofort_test.passages('exec-direct') - direct;
		RETURN NEXT;
	END LOOP;
END $$;

-- values of all kinds
SELECT * FROM both_ways($$UPDATE direct SET n = n + 1 WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET n = 7, amount = amount * 2 WHERE code = 'code 1'$$);
SELECT * FROM both_ways($$UPDATE direct SET amount = NULL WHERE id = 1$$);
SELECT * FROM both_ways($$UPDATE direct SET amount = length(note) + n WHERE id = 3$$);
-- nothing there; several rows; a condition beside the index; a NULL key
SELECT * FROM both_ways($$UPDATE direct SET n = 0 WHERE id = 0$$);
SELECT * FROM both_ways($$UPDATE direct SET n = -n WHERE id <= 3$$);
SELECT * FROM both_ways($$UPDATE direct SET n = 9 WHERE id = 1 AND n > 5$$);
SELECT * FROM both_ways($$UPDATE direct SET n = 9 WHERE id = NULL::int$$);
-- left to the ordinary nodes: NOT NULL, an indexed column, a unique violation
SELECT * FROM both_ways($$UPDATE direct SET n = NULL WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET note = 'indexed' WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET id = 3 WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET code = 'code 3' WHERE id = 2$$);
-- volatile functions stay with the ordinary nodes; this one changes the same row
CREATE FUNCTION meddle() RETURNS int LANGUAGE plpgsql AS $$
BEGIN UPDATE direct SET n = 100 WHERE id = 2; RETURN 1; END $$;
SELECT * FROM both_ways($$UPDATE direct SET n = meddle() WHERE id = 2$$);
-- the second of two rows is changed by the first one's function
CREATE FUNCTION meddle_later(int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN IF $1 = 1 THEN UPDATE direct SET n = 100 WHERE id = 2; END IF; RETURN 1; END $$;
SELECT * FROM both_ways($$UPDATE direct SET n = meddle_later(id) WHERE id BETWEEN 1 AND 3$$);

-- what a table may have
ALTER TABLE direct ADD CONSTRAINT n_limit CHECK (n < 3000);
SELECT * FROM both_ways($$UPDATE direct SET n = 3000 WHERE id = 2$$);
ALTER TABLE direct DROP CONSTRAINT n_limit;
ALTER TABLE direct ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED;
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
ALTER TABLE direct DROP COLUMN twice;
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
ALTER TABLE direct ADD COLUMN late text DEFAULT 'late';
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET late = late || '!' WHERE id = 2$$);

CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.amount := 42; RETURN NEW; END $$;
CREATE TRIGGER shout BEFORE UPDATE ON direct FOR EACH ROW EXECUTE FUNCTION shout();
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
ALTER TABLE direct DISABLE TRIGGER shout;
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
DROP TRIGGER shout ON direct;
CREATE TABLE changes (old_n int, new_n int);
CREATE FUNCTION record_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO changes VALUES (OLD.n, NEW.n); RETURN NULL; END $$;
CREATE TRIGGER record_change AFTER UPDATE ON direct FOR EACH ROW EXECUTE FUNCTION record_change();
UPDATE direct SET n = 22 WHERE id = 4;
SELECT * FROM changes;
DROP TRIGGER record_change ON direct;

-- both sides of foreign keys
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES direct ON UPDATE CASCADE, x int) USING sofort;
INSERT INTO child VALUES (1, 2, 0);
SELECT * FROM both_ways($$UPDATE direct SET n = 21 WHERE id = 2$$);
SELECT * FROM both_ways($$UPDATE direct SET id = 5000 WHERE id = 2$$);
UPDATE child SET x = 1 WHERE id = 1;
UPDATE child SET parent = 6000 WHERE id = 1;
BEGIN;
INSERT INTO child VALUES (2, 3, 0);
UPDATE child SET x = 2 WHERE id = 2;
UPDATE direct SET id = 2001 WHERE id = 3;
TABLE child ORDER BY id;
ROLLBACK;

-- SELECT: columns, names, cursors, WHERE CURRENT OF, PL/pgSQL, prepared
SELECT note, id AS "the id", n FROM direct WHERE id = 2;
SELECT * FROM direct WHERE code = 'code 2';
SELECT id FROM direct WHERE note = 'xx' AND id < 200 ORDER BY id;
SELECT id FROM direct WHERE id BETWEEN 5 AND 8 ORDER BY id;
SELECT id FROM direct WHERE id BETWEEN 5 AND 8 ORDER BY id DESC LIMIT 2;
PREPARE look(int) AS SELECT id, n FROM direct WHERE id = $1;
EXECUTE look(1);
EXECUTE look(NULL);
EXECUTE look(-1);
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT id, n FROM direct WHERE id BETWEEN 10 AND 12;
FETCH 1 FROM c;
UPDATE direct SET n = -10 WHERE CURRENT OF c;
FETCH ALL FROM c;
SELECT id, n FROM direct WHERE id BETWEEN 10 AND 12 ORDER BY id;
ROLLBACK;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM direct WHERE id BETWEEN 10 AND 12;
FETCH 1 FROM h;
COMMIT;
FETCH ALL FROM h;
CLOSE h;
DO $$
DECLARE r record; total int := 0;
BEGIN
	FOR i IN 1..10 LOOP
		SELECT n INTO STRICT r FROM direct WHERE id = i;
		total := total + r.n;
		UPDATE direct SET n = n WHERE id = i;
	END LOOP;
	RAISE NOTICE 'total %', total;
END $$;

-- privileges and row security are checked as always
CREATE ROLE direct_user;
GRANT SELECT (id, n), UPDATE (n) ON direct TO direct_user;
SET ROLE direct_user;
SELECT id, n FROM direct WHERE id = 1;
SELECT id, note FROM direct WHERE id = 1;
UPDATE direct SET n = 5 WHERE id = 1;
UPDATE direct SET amount = 5 WHERE id = 1;
RESET ROLE;
ALTER TABLE direct ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON direct TO direct_user USING (n < 100) WITH CHECK (n < 200);
SET ROLE direct_user;
SELECT id, n FROM direct WHERE id = 150;
UPDATE direct SET n = 7 WHERE id = 150;
UPDATE direct SET n = 300 WHERE id = 1;
UPDATE direct SET n = 150 WHERE id = 1;
RESET ROLE;
ALTER TABLE direct DISABLE ROW LEVEL SECURITY;
BEGIN;
REVOKE EXECUTE ON FUNCTION int4eq(int, int) FROM PUBLIC;
SET LOCAL ROLE direct_user;
SAVEPOINT s;
SELECT id, n FROM direct WHERE id = 1;
ROLLBACK TO s;
UPDATE direct SET n = 8 WHERE id = 1;
ROLLBACK;
-- also of the functions of an indexed expression
CREATE FUNCTION thrice(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 3 * $1; END';
REVOKE EXECUTE ON FUNCTION thrice FROM PUBLIC;
CREATE INDEX direct_thrice ON direct USING sofort_index ((thrice(id) + 1));
ANALYZE direct;
SET enable_seqscan = off;
SET ROLE direct_user;
SELECT id, n FROM direct WHERE thrice(id) + 1 = 7;
UPDATE direct SET n = 8 WHERE thrice(id) + 1 = 7;
RESET ROLE;
SELECT * FROM both_ways($$UPDATE direct SET n = 8 WHERE thrice(id) + 1 = 7$$);
RESET enable_seqscan;
DROP INDEX direct_thrice;
DROP FUNCTION thrice;
BEGIN READ ONLY;
SELECT n FROM direct WHERE id = 1;
UPDATE direct SET n = 8 WHERE id = 1;
ROLLBACK;

-- sequences that an update uses; statistics
CREATE SEQUENCE numbers;
UPDATE direct SET n = nextval('numbers') WHERE id = 1;
SELECT n FROM direct WHERE id = 1;

-- partitions and inheritance
CREATE TABLE parts (k int, v int) PARTITION BY RANGE (k);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10) USING sofort;
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (10) TO (20) USING sofort;
CREATE INDEX ON parts1 USING sofort_index (k);
INSERT INTO parts SELECT i, i FROM generate_series(0, 19) i;
ANALYZE parts;
SET enable_seqscan = off;
UPDATE parts1 SET v = 100 WHERE k = 1;
UPDATE parts1 SET k = 15 WHERE k = 1;
UPDATE parts SET v = 101 WHERE k = 1;
SELECT tableoid::regclass, * FROM parts WHERE k = 1;
RESET enable_seqscan;

-- the result is described as by the executor: names, types, lengths, collations
CREATE TABLE described (dropped int, id int PRIMARY KEY, c char(3) NOT NULL DEFAULT 'c', v varchar(5) COLLATE "C",
	n numeric(7, 2) DEFAULT 1, a int[], t text DEFAULT 't', g int GENERATED ALWAYS AS (id * 2) STORED) USING sofort;
ALTER TABLE described DROP COLUMN dropped, ALTER COLUMN t SET STORAGE PLAIN;
INSERT INTO described (id) SELECT generate_series(1, 100);
ANALYZE described;
SET enable_seqscan = off;
SELECT sofort_test.passages('exec-direct') AS before \gset
SELECT v AS id, n AS "a long name", id, id AS again, c FROM described WHERE id = 7;
CREATE TABLE described_on AS SELECT v AS x, n, id, id AS again, c, a, t, g FROM described WHERE id = 7;
SELECT sofort_test.passages('exec-direct') - :before AS direct;
SET sofort.direct_execution = off;
CREATE TABLE described_off AS SELECT v AS x, n, id, id AS again, c, a, t, g FROM described WHERE id = 7;
RESET sofort.direct_execution;
SELECT attname, format_type(atttypid, atttypmod), attcollation::regcollation, attstorage, attnotnull
	FROM pg_attribute WHERE attrelid = 'described_on'::regclass AND attnum > 0 ORDER BY attnum;
SELECT count(*) FROM pg_attribute a JOIN pg_attribute b USING (attname, atttypid, atttypmod, attcollation, attstorage, attnotnull, attlen, attalign)
	WHERE a.attrelid = 'described_on'::regclass AND b.attrelid = 'described_off'::regclass AND a.attnum > 0;
TABLE described_on EXCEPT TABLE described_off;
RESET enable_seqscan;
DROP TABLE described, described_on, described_off;

SELECT sofort_test.disarm('exec-direct');
SELECT sofort.verify('direct');
DROP TABLE child, direct, parts, changes;
DROP FUNCTION both_ways, meddle, meddle_later, shout, record_change;
DROP SEQUENCE numbers;
DROP ROLE direct_user;
