-- Index entries of rows that nobody sees any more: scans remove them, as far as
-- they meet them, and only then.
CREATE SCHEMA reg_dead_entries;
SET search_path = reg_dead_entries, public;
SET client_min_messages = warning;
SET jit = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE q (id int PRIMARY KEY, n int, t text) USING sofort WITH (autovacuum_enabled = off);
CREATE INDEX q_n ON q USING sofort_index (n);
CREATE INDEX q_t ON q USING sofort_index (t) INCLUDE (id);
INSERT INTO q SELECT i, i % 10, repeat('long ', 10) || i FROM generate_series(1, 2000) i;
CREATE VIEW entries AS SELECT index, entries FROM sofort.indexes WHERE relation = 'q'::regclass;
-- repeats a query, each time in a transaction of its own, until an index has so
-- many entries (other sessions of the server may hold back the horizon)
CREATE PROCEDURE until_entries(query text, which text, goal bigint) LANGUAGE plpgsql AS $$
DECLARE
    seen bigint;
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE query;
        COMMIT;
        SELECT entries INTO seen FROM sofort.indexes WHERE relation = 'q'::regclass AND index::text = which;
        EXIT WHEN seen = goal;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE INFO '%: % entries', which, seen;
END $$;
SELECT * FROM entries ORDER BY 1;
BEGIN;
DELETE FROM q WHERE id <= 1500;
SELECT count(*), min(id) FROM q WHERE id > 0;
ROLLBACK;
SELECT count(*), min(id) FROM q WHERE id > 0;
SELECT * FROM entries ORDER BY 1;
DELETE FROM q WHERE id <= 1500;
CALL until_entries('SELECT min(id) FROM q', 'q_pkey', 500);
SELECT * FROM entries ORDER BY 1;
CALL until_entries('SELECT count(*) FROM q WHERE n = 3 AND id > 0', 'q_n', 1850);
CALL until_entries('SELECT t FROM q ORDER BY t DESC', 'q_t', 500);
CALL until_entries('SELECT n FROM q WHERE n > -1 ORDER BY n', 'q_n', 500);
SELECT count(*), min(id), max(id), count(DISTINCT n) FROM q WHERE id > 0;
SELECT count(*) FROM q WHERE n = 3;
SELECT count(*) FROM q WHERE t LIKE 'long%';
-- an entry that was removed is no obstacle for a new row, nor for VACUUM
INSERT INTO q SELECT i, i % 10, repeat('long ', 10) || i FROM generate_series(1, 1500) i;
SELECT count(*), sum(id) FROM q WHERE id > 0;
VACUUM q;
SELECT * FROM entries ORDER BY 1;
SELECT count(*), sum(id) FROM q WHERE n >= 0;
-- rows of an aborted transaction; updates of an indexed column
BEGIN;
INSERT INTO q SELECT i, 77, 'aborted' FROM generate_series(5001, 5100) i;
ROLLBACK;
UPDATE q SET n = n + 100 WHERE id <= 100;
CALL until_entries('SELECT count(*) FROM q WHERE id > 5000', 'q_pkey', 2100);
CALL until_entries('SELECT n FROM q WHERE n >= 0 AND n < 100', 'q_n', 2000);
SELECT count(*), sum(n) FROM q WHERE n >= 0;
-- a cursor that turns round in a batch, a merge join that returns to marks
DELETE FROM q WHERE id % 3 = 0;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM q WHERE id BETWEEN 1 AND 12 ORDER BY id;
FETCH FORWARD 5 FROM c;
FETCH BACKWARD 3 FROM c;
FETCH FORWARD ALL FROM c;
FETCH BACKWARD ALL FROM c;
COMMIT;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT count(*) FROM q a JOIN q b ON a.id = b.id AND a.n = b.n;
SELECT count(*) FROM (SELECT n FROM q WHERE n IN (1, 2) ORDER BY n) a JOIN (SELECT n FROM q WHERE n IN (1, 2) ORDER BY n) b USING (n);
SELECT * FROM sofort.verify('q');
-- a key that is inserted and rolled back again and again: who inserts it removes the entries of before
CREATE TABLE again (id int PRIMARY KEY, t text UNIQUE, d int UNIQUE DEFERRABLE)
    USING sofort WITH (autovacuum_enabled = off);
DO $$BEGIN FOR i IN 1..40 LOOP INSERT INTO again VALUES (1, 'a key that is longer than an entry', 1); ROLLBACK; END LOOP; END$$;
DO $$BEGIN FOR i IN 1..40 LOOP
	BEGIN
		INSERT INTO again VALUES (1, 'a key that is longer than an entry', 1);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END LOOP; END$$;
SELECT index, entries <= 2 AS few FROM sofort.indexes WHERE relation = 'again'::regclass ORDER BY index::text;
INSERT INTO again VALUES (1, 'a key that is longer than an entry', 1);
INSERT INTO again VALUES (1, 'another', 2);
INSERT INTO again VALUES (2, 'a key that is longer than an entry', 2);
INSERT INTO again VALUES (2, 'another', 1);
SELECT * FROM again WHERE id = 1;
SELECT * FROM sofort.verify('again');
VACUUM again;
SELECT index, entries FROM sofort.indexes WHERE relation = 'again'::regclass ORDER BY index::text;
SELECT * FROM sofort.verify('again');
DROP SCHEMA reg_dead_entries CASCADE;
