-- Where indexes of dictionaries lie: sofort.dictionary_placement, sofort.set_dictionary_placement().
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
CREATE SCHEMA reg_dictionaries;
SET search_path = reg_dictionaries;
SHOW sofort.dictionary_placement;
SET sofort.dictionary_placement = nowhere;

-- by the setting
CREATE TABLE d (id int PRIMARY KEY, a int, s text, u uuid, n name) USING sofort;
CREATE VIEW placed AS
    SELECT column_name, encoding, dictionary_placement, dictionary_entries FROM sofort.columns
    WHERE relation = 'reg_dictionaries.d'::regclass AND encoding = 'dictionary' ORDER BY attnum;
CREATE FUNCTION fill(first int, last int, modulo int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO d SELECT i, i % modulo * 1000, repeat('text ', 10) || i % modulo, md5((i % modulo)::text)::uuid, 'n' || i % modulo
    FROM generate_series(first, last) i
$$;
CREATE FUNCTION wrong() RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM d WHERE s <> repeat('text ', 10) || a / 1000 OR u <> md5((a / 1000)::text)::uuid OR n <> 'n' || a / 1000
$$;
SET sofort.dictionary_placement = pmem;
SELECT fill(1, 4000, 400);
RESET sofort.dictionary_placement;
SELECT * FROM placed;
-- values that are there are found, new ones added, and the index grows
SELECT fill(4001, 8000, 400);
SELECT fill(8001, 16000, 3000);
SELECT * FROM placed;
SELECT wrong(), count(*) FROM d;
SELECT dram_bytes < 20000 FROM sofort.tables WHERE relation = 'd'::regclass;

-- by the function, back and forth
SELECT sofort.set_dictionary_placement('d', 's', 'hybrid');
SELECT sofort.set_dictionary_placement('d', 'u', 'DRAM');
BEGIN;
SELECT sofort.set_dictionary_placement('d', 'n', 'hybrid');
ROLLBACK;
SELECT * FROM placed;
SELECT * FROM sofort.verify('d');
SELECT fill(16001, 24000, 3000);
SELECT fill(24001, 40000, 10000);
SELECT * FROM placed;
SELECT wrong(), count(*) FROM d;
SELECT * FROM sofort.verify('d');
SELECT sofort.set_dictionary_placement('d', 's', 'pmem');
SELECT sofort.set_dictionary_placement('d', 'u', 'hybrid');
SELECT sofort.set_dictionary_placement('d', 'u', 'pmem');
SELECT sofort.set_dictionary_placement('d', 'n', 'dram');
SELECT sofort.set_dictionary_placement('d', 'n', 'dram');
SELECT fill(40001, 52000, 12000);
SELECT * FROM placed;
SELECT wrong(), count(*) FROM d;
VACUUM d;
SELECT * FROM sofort.verify('d');

-- rewrites and TRUNCATE keep it
VACUUM FULL d;
SELECT * FROM placed;
ALTER TABLE d ALTER id TYPE bigint;
SELECT * FROM placed;
SELECT wrong(), count(*) FROM d;
TRUNCATE d;
SELECT fill(1, 4000, 400);
SELECT * FROM placed;
BEGIN;
TRUNCATE d;
SELECT fill(1, 4000, 300);
ROLLBACK;
SELECT wrong(), count(*) FROM d;

-- a column without a dictionary: it has one later
CREATE TABLE e (id int, s text) USING sofort;
SELECT sofort.set_dictionary_placement('e', 's', 'pmem');
INSERT INTO e SELECT i, repeat('text ', 10) || i % 10 FROM generate_series(1, 3000) i;
SELECT encoding, dictionary_placement, dictionary_entries FROM sofort.columns WHERE relation = 'e'::regclass AND attnum = 2;
ALTER TABLE e ADD later text;
SELECT sofort.set_dictionary_placement('e', 'later', 'pmem');
INSERT INTO e VALUES (0, 'x', 'y');
SELECT sofort.set_dictionary_placement('e', 'later', 'pmem');
SELECT * FROM sofort.verify('e');
-- VACUUM takes values out of an index in the pool, and their codes are used again
CREATE FUNCTION renew(text) RETURNS void LANGUAGE sql AS $$ UPDATE e SET s = repeat($1, 8) || id % 200 $$;
SELECT renew('first');
SELECT renew('second');
VACUUM e;
SELECT renew('third');
VACUUM e;
SELECT txid_current() > 0;
VACUUM e;
SELECT txid_current() > 0;
VACUUM e;
SELECT renew('fourth');
SELECT count(*) FROM e WHERE s <> repeat('fourth', 8) || id % 200;
SELECT * FROM sofort.verify('e');

-- memory that TRUNCATE has given back does not count
BEGIN;
CREATE TABLE f (id int, s text) USING sofort;
DO $$
BEGIN
    FOR r IN 1 .. 20 LOOP
        TRUNCATE f;
        INSERT INTO f SELECT i, repeat('text ', 8) || i % 500 FROM generate_series(1, 3000) i;
    END LOOP;
END $$;
COMMIT;
SELECT dram_bytes < 40000 FROM sofort.tables WHERE relation = 'f'::regclass;

-- refusals
SELECT sofort.set_dictionary_placement('e', 's', 'nowhere');
SELECT sofort.set_dictionary_placement('e', 'missing', 'pmem');
SELECT sofort.set_dictionary_placement('e', 'ctid', 'pmem');
SELECT sofort.set_dictionary_placement('pg_class', 'relname', 'pmem');
SELECT sofort.set_dictionary_placement('d_pkey', 'id', 'pmem');
SELECT sofort.set_dictionary_placement(0, 'id', 'pmem');
CREATE ROLE regress_sofort_dictionaries;
GRANT USAGE ON SCHEMA reg_dictionaries, sofort TO regress_sofort_dictionaries;
GRANT ALL ON e TO regress_sofort_dictionaries;
SET ROLE regress_sofort_dictionaries;
SELECT sofort.set_dictionary_placement('e', 's', 'dram');
RESET ROLE;
REVOKE ALL ON e FROM regress_sofort_dictionaries;
REVOKE ALL ON SCHEMA reg_dictionaries, sofort FROM regress_sofort_dictionaries;
DROP ROLE regress_sofort_dictionaries;
