-- Indexes of dictionaries in the pool (t/160_power_cuts.pl). A dictionary needs a
-- thousand rows, which the setup has made. Values come in tens, so that the indexes grow.

-- step pmem dictionaries
INSERT INTO p SELECT i, repeat('value ', 6) || i % 20, i % 20 * 1000 FROM generate_series(1017, 1030) i;
-- step pmem new values
INSERT INTO p SELECT i, repeat('value ', 6) || i % 40, i % 40 * 1000 FROM generate_series(1031, 1070) i;
-- step pmem new values rolled back
BEGIN;
INSERT INTO p SELECT i, repeat('never ', 6) || i, -i FROM generate_series(1, 4) i;
ROLLBACK;
-- step pmem grows
INSERT INTO p SELECT i, repeat('value ', 6) || i % 60, i % 60 * 1000 FROM generate_series(1081, 1140) i;
-- step pmem again
UPDATE p SET s = repeat('value ', 6) || id % 70, n = id % 70 * 1000 WHERE id > 1120;
-- step pmem to hybrid
SELECT sofort.set_dictionary_placement('p', 's', 'hybrid');
-- step hybrid new values
INSERT INTO p SELECT i, repeat('value ', 6) || i, i * 1000 FROM generate_series(1141, 1150) i;
-- step hybrid grows
INSERT INTO p SELECT i, repeat('value ', 6) || i, i * 1000 FROM generate_series(1151, 1220) i;
-- step hybrid to dram
SELECT sofort.set_dictionary_placement('p', 's', 'dram');
-- step dram new values
INSERT INTO p SELECT i, repeat('value ', 6) || i, i * 1000 FROM generate_series(1221, 1224) i;
-- step dram to pmem
SELECT sofort.set_dictionary_placement('p', 's', 'pmem');
-- step unused values
UPDATE p SET s = repeat('later ', 6) || id % 4, n = id % 4 * 1000000 WHERE id > 1000;
-- step fewer rows
DELETE FROM p WHERE id BETWEEN 900 AND 999;
-- step vacuum 1
VACUUM p;
-- step vacuum 2
VACUUM p;
-- step vacuum 3
VACUUM p;
-- step codes again
INSERT INTO p SELECT i, repeat('again ', 6) || i, i * 10000 FROM generate_series(1, 12) i;
-- step few rows to rewrite
DELETE FROM p WHERE id < 900;
-- step rewrite
VACUUM FULL p;
-- step again: vacuum finds that values repeat
VACUUM again;
-- step again: new roots
UPDATE again SET n = 1 WHERE id BETWEEN 91 AND 106;
-- step again: in their chains
UPDATE again SET n = 2, t = repeat('repeated ', 12) || 'new ' || id % 3 WHERE id BETWEEN 95 AND 104;
-- step again: rolled back
BEGIN;
UPDATE again SET n = 3 WHERE id BETWEEN 101 AND 112;
ROLLBACK;
-- step again: a savepoint rolled back
BEGIN;
UPDATE again SET n = 4 WHERE id = 107;
SAVEPOINT s;
UPDATE again SET n = 5 WHERE id BETWEEN 105 AND 108;
ROLLBACK TO s;
COMMIT;
-- step again: what is left lies in the newest shape
DELETE FROM again WHERE id NOT BETWEEN 91 AND 107;
-- step again: vacuum frees
VACUUM again;
-- step again: later
UPDATE again SET n = 6 WHERE id = 92;
-- step again: vacuum gives runs back
VACUUM again;
-- step again: others use the space
INSERT INTO again SELECT i, i, repeat('repeated ', 12) || i % 10 FROM generate_series(2001, 2040) i;
-- step truncate
TRUNCATE p;
-- step after truncate
INSERT INTO p VALUES (1, 'one', 1);
-- step drop
DROP TABLE p;
