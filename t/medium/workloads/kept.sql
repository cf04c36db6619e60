-- Kept transactions: after each cut chk.kept() goes on with the one that was open: it has the
-- statements that were acknowledged. Statement n of each leaves rows that are a function of n.

-- step create
CREATE TABLE kt (step int PRIMARY KEY, v int, t text) USING sofort;
-- step total
CREATE TABLE kt_total (id int PRIMARY KEY, n int) USING sofort;
-- step locked
CREATE TABLE locked (id int PRIMARY KEY, v int) USING sofort;
-- step rows
INSERT INTO locked VALUES (0, 0), (1, 0), (2, 0);
-- step one
INSERT INTO kt_total VALUES (1, 0);
-- step kept 0 (kept)
BEGIN;
SELECT sofort.keep_transaction('0');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
DO $$ BEGIN INSERT INTO kt VALUES (4, 4, repeat('t', 120)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 3; DELETE FROM kt WHERE step = 1; UPDATE kt_total SET n = 4; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
WITH a AS (INSERT INTO kt VALUES (6, 6, repeat('t', 180))), b AS (UPDATE kt_total SET n = 6), c AS (DELETE FROM kt WHERE step = 3) UPDATE kt SET v = v + 1 WHERE step = 5;
WITH a AS (INSERT INTO kt VALUES (7, 7, repeat('t', 210))), b AS (UPDATE kt_total SET n = 7), c AS (DELETE FROM kt WHERE step = 4) UPDATE kt SET v = v + 1 WHERE step = 6;
DO $$ BEGIN INSERT INTO kt VALUES (8, 8, repeat('t', 240)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 7; DELETE FROM kt WHERE step = 5; UPDATE kt_total SET n = 8; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
WITH a AS (INSERT INTO kt VALUES (10, 10, repeat('t', 300))), b AS (UPDATE kt_total SET n = 10), c AS (DELETE FROM kt WHERE step = 7) UPDATE kt SET v = v + 1 WHERE step = 9;
WITH a AS (INSERT INTO kt VALUES (11, 11, repeat('t', 330))), b AS (UPDATE kt_total SET n = 11), c AS (DELETE FROM kt WHERE step = 8) UPDATE kt SET v = v + 1 WHERE step = 10;
DO $$ BEGIN INSERT INTO kt VALUES (12, 12, repeat('t', 360)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 11; DELETE FROM kt WHERE step = 9; UPDATE kt_total SET n = 12; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
COMMIT;
-- step others 0
UPDATE locked SET v = v + 1;
-- step again 0
DELETE FROM kt;
-- step zero 0
UPDATE kt_total SET n = 0;
-- step kept 1 (kept)
BEGIN;
SELECT sofort.keep_transaction('1');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
DO $$ BEGIN INSERT INTO kt VALUES (3, 3, repeat('t', 90)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 2; DELETE FROM kt WHERE step = 0; UPDATE kt_total SET n = 3; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (4, 4, repeat('t', 120))), b AS (UPDATE kt_total SET n = 4), c AS (DELETE FROM kt WHERE step = 1) UPDATE kt SET v = v + 1 WHERE step = 3;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
WITH a AS (INSERT INTO kt VALUES (6, 6, repeat('t', 180))), b AS (UPDATE kt_total SET n = 6), c AS (DELETE FROM kt WHERE step = 3) UPDATE kt SET v = v + 1 WHERE step = 5;
DO $$ BEGIN INSERT INTO kt VALUES (7, 7, repeat('t', 210)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 6; DELETE FROM kt WHERE step = 4; UPDATE kt_total SET n = 7; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (8, 8, repeat('t', 240))), b AS (UPDATE kt_total SET n = 8), c AS (DELETE FROM kt WHERE step = 5) UPDATE kt SET v = v + 1 WHERE step = 7;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
ROLLBACK;
-- step others 1
UPDATE locked SET v = v + 1;
-- step again 1
DELETE FROM kt;
-- step zero 1
UPDATE kt_total SET n = 0;
-- step kept 2 (kept)
BEGIN;
SELECT sofort.keep_transaction('2');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
DO $$ BEGIN INSERT INTO kt VALUES (2, 2, repeat('t', 60)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 1; DELETE FROM kt WHERE step = -1; UPDATE kt_total SET n = 2; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
WITH a AS (INSERT INTO kt VALUES (4, 4, repeat('t', 120))), b AS (UPDATE kt_total SET n = 4), c AS (DELETE FROM kt WHERE step = 1) UPDATE kt SET v = v + 1 WHERE step = 3;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
DO $$ BEGIN INSERT INTO kt VALUES (6, 6, repeat('t', 180)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 5; DELETE FROM kt WHERE step = 3; UPDATE kt_total SET n = 6; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (7, 7, repeat('t', 210))), b AS (UPDATE kt_total SET n = 7), c AS (DELETE FROM kt WHERE step = 4) UPDATE kt SET v = v + 1 WHERE step = 6;
WITH a AS (INSERT INTO kt VALUES (8, 8, repeat('t', 240))), b AS (UPDATE kt_total SET n = 8), c AS (DELETE FROM kt WHERE step = 5) UPDATE kt SET v = v + 1 WHERE step = 7;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
DO $$ BEGIN INSERT INTO kt VALUES (10, 10, repeat('t', 300)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 9; DELETE FROM kt WHERE step = 7; UPDATE kt_total SET n = 10; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (11, 11, repeat('t', 330))), b AS (UPDATE kt_total SET n = 11), c AS (DELETE FROM kt WHERE step = 8) UPDATE kt SET v = v + 1 WHERE step = 10;
WITH a AS (INSERT INTO kt VALUES (12, 12, repeat('t', 360))), b AS (UPDATE kt_total SET n = 12), c AS (DELETE FROM kt WHERE step = 9) UPDATE kt SET v = v + 1 WHERE step = 11;
WITH a AS (INSERT INTO kt VALUES (13, 13, repeat('t', 390))), b AS (UPDATE kt_total SET n = 13), c AS (DELETE FROM kt WHERE step = 10) UPDATE kt SET v = v + 1 WHERE step = 12;
DO $$ BEGIN INSERT INTO kt VALUES (14, 14, repeat('t', 420)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 13; DELETE FROM kt WHERE step = 11; UPDATE kt_total SET n = 14; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
COMMIT;
-- step others 2
UPDATE locked SET v = v + 1;
-- step again 2
DELETE FROM kt;
-- step zero 2
UPDATE kt_total SET n = 0;
-- step kept 3 (kept)
BEGIN;
SELECT sofort.keep_transaction('3');
DO $$ BEGIN INSERT INTO kt VALUES (1, 1, repeat('t', 30)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 0; DELETE FROM kt WHERE step = -2; UPDATE kt_total SET n = 1; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
WITH a AS (INSERT INTO kt VALUES (4, 4, repeat('t', 120))), b AS (UPDATE kt_total SET n = 4), c AS (DELETE FROM kt WHERE step = 1) UPDATE kt SET v = v + 1 WHERE step = 3;
DO $$ BEGIN INSERT INTO kt VALUES (5, 5, repeat('t', 150)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 4; DELETE FROM kt WHERE step = 2; UPDATE kt_total SET n = 5; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (6, 6, repeat('t', 180))), b AS (UPDATE kt_total SET n = 6), c AS (DELETE FROM kt WHERE step = 3) UPDATE kt SET v = v + 1 WHERE step = 5;
WITH a AS (INSERT INTO kt VALUES (7, 7, repeat('t', 210))), b AS (UPDATE kt_total SET n = 7), c AS (DELETE FROM kt WHERE step = 4) UPDATE kt SET v = v + 1 WHERE step = 6;
WITH a AS (INSERT INTO kt VALUES (8, 8, repeat('t', 240))), b AS (UPDATE kt_total SET n = 8), c AS (DELETE FROM kt WHERE step = 5) UPDATE kt SET v = v + 1 WHERE step = 7;
DO $$ BEGIN INSERT INTO kt VALUES (9, 9, repeat('t', 270)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 8; DELETE FROM kt WHERE step = 6; UPDATE kt_total SET n = 9; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (10, 10, repeat('t', 300))), b AS (UPDATE kt_total SET n = 10), c AS (DELETE FROM kt WHERE step = 7) UPDATE kt SET v = v + 1 WHERE step = 9;
WITH a AS (INSERT INTO kt VALUES (11, 11, repeat('t', 330))), b AS (UPDATE kt_total SET n = 11), c AS (DELETE FROM kt WHERE step = 8) UPDATE kt SET v = v + 1 WHERE step = 10;
WITH a AS (INSERT INTO kt VALUES (12, 12, repeat('t', 360))), b AS (UPDATE kt_total SET n = 12), c AS (DELETE FROM kt WHERE step = 9) UPDATE kt SET v = v + 1 WHERE step = 11;
COMMIT;
-- step others 3
UPDATE locked SET v = v + 1;
-- step again 3
DELETE FROM kt;
-- step zero 3
UPDATE kt_total SET n = 0;
-- step kept 4 (kept)
BEGIN;
SELECT sofort.keep_transaction('4');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
DO $$ BEGIN INSERT INTO kt VALUES (4, 4, repeat('t', 120)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 3; DELETE FROM kt WHERE step = 1; UPDATE kt_total SET n = 4; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
WITH a AS (INSERT INTO kt VALUES (6, 6, repeat('t', 180))), b AS (UPDATE kt_total SET n = 6), c AS (DELETE FROM kt WHERE step = 3) UPDATE kt SET v = v + 1 WHERE step = 5;
WITH a AS (INSERT INTO kt VALUES (7, 7, repeat('t', 210))), b AS (UPDATE kt_total SET n = 7), c AS (DELETE FROM kt WHERE step = 4) UPDATE kt SET v = v + 1 WHERE step = 6;
DO $$ BEGIN INSERT INTO kt VALUES (8, 8, repeat('t', 240)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 7; DELETE FROM kt WHERE step = 5; UPDATE kt_total SET n = 8; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
ROLLBACK;
-- step others 4
UPDATE locked SET v = v + 1;
-- step again 4
DELETE FROM kt;
-- step zero 4
UPDATE kt_total SET n = 0;
-- step kept 5 (kept)
BEGIN;
SELECT sofort.keep_transaction('5');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
WITH a AS (INSERT INTO kt VALUES (2, 2, repeat('t', 60))), b AS (UPDATE kt_total SET n = 2), c AS (DELETE FROM kt WHERE step = -1) UPDATE kt SET v = v + 1 WHERE step = 1;
DO $$ BEGIN INSERT INTO kt VALUES (3, 3, repeat('t', 90)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 2; DELETE FROM kt WHERE step = 0; UPDATE kt_total SET n = 3; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (4, 4, repeat('t', 120))), b AS (UPDATE kt_total SET n = 4), c AS (DELETE FROM kt WHERE step = 1) UPDATE kt SET v = v + 1 WHERE step = 3;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
WITH a AS (INSERT INTO kt VALUES (6, 6, repeat('t', 180))), b AS (UPDATE kt_total SET n = 6), c AS (DELETE FROM kt WHERE step = 3) UPDATE kt SET v = v + 1 WHERE step = 5;
DO $$ BEGIN INSERT INTO kt VALUES (7, 7, repeat('t', 210)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 6; DELETE FROM kt WHERE step = 4; UPDATE kt_total SET n = 7; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (8, 8, repeat('t', 240))), b AS (UPDATE kt_total SET n = 8), c AS (DELETE FROM kt WHERE step = 5) UPDATE kt SET v = v + 1 WHERE step = 7;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
WITH a AS (INSERT INTO kt VALUES (10, 10, repeat('t', 300))), b AS (UPDATE kt_total SET n = 10), c AS (DELETE FROM kt WHERE step = 7) UPDATE kt SET v = v + 1 WHERE step = 9;
DO $$ BEGIN INSERT INTO kt VALUES (11, 11, repeat('t', 330)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 10; DELETE FROM kt WHERE step = 8; UPDATE kt_total SET n = 11; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (12, 12, repeat('t', 360))), b AS (UPDATE kt_total SET n = 12), c AS (DELETE FROM kt WHERE step = 9) UPDATE kt SET v = v + 1 WHERE step = 11;
WITH a AS (INSERT INTO kt VALUES (13, 13, repeat('t', 390))), b AS (UPDATE kt_total SET n = 13), c AS (DELETE FROM kt WHERE step = 10) UPDATE kt SET v = v + 1 WHERE step = 12;
WITH a AS (INSERT INTO kt VALUES (14, 14, repeat('t', 420))), b AS (UPDATE kt_total SET n = 14), c AS (DELETE FROM kt WHERE step = 11) UPDATE kt SET v = v + 1 WHERE step = 13;
DO $$ BEGIN INSERT INTO kt VALUES (15, 15, repeat('t', 450)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 14; DELETE FROM kt WHERE step = 12; UPDATE kt_total SET n = 15; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (16, 16, repeat('t', 480))), b AS (UPDATE kt_total SET n = 16), c AS (DELETE FROM kt WHERE step = 13) UPDATE kt SET v = v + 1 WHERE step = 15;
COMMIT;
-- step others 5
UPDATE locked SET v = v + 1;
-- step again 5
DELETE FROM kt;
-- step zero 5
UPDATE kt_total SET n = 0;
-- step kept 6 (kept)
BEGIN;
SELECT sofort.keep_transaction('6');
WITH a AS (INSERT INTO kt VALUES (1, 1, repeat('t', 30))), b AS (UPDATE kt_total SET n = 1), c AS (DELETE FROM kt WHERE step = -2) UPDATE kt SET v = v + 1 WHERE step = 0;
DO $$ BEGIN INSERT INTO kt VALUES (2, 2, repeat('t', 60)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 1; DELETE FROM kt WHERE step = -1; UPDATE kt_total SET n = 2; PERFORM FROM locked WHERE id = 2 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
WITH a AS (INSERT INTO kt VALUES (4, 4, repeat('t', 120))), b AS (UPDATE kt_total SET n = 4), c AS (DELETE FROM kt WHERE step = 1) UPDATE kt SET v = v + 1 WHERE step = 3;
WITH a AS (INSERT INTO kt VALUES (5, 5, repeat('t', 150))), b AS (UPDATE kt_total SET n = 5), c AS (DELETE FROM kt WHERE step = 2) UPDATE kt SET v = v + 1 WHERE step = 4;
DO $$ BEGIN INSERT INTO kt VALUES (6, 6, repeat('t', 180)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 5; DELETE FROM kt WHERE step = 3; UPDATE kt_total SET n = 6; PERFORM FROM locked WHERE id = 0 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (7, 7, repeat('t', 210))), b AS (UPDATE kt_total SET n = 7), c AS (DELETE FROM kt WHERE step = 4) UPDATE kt SET v = v + 1 WHERE step = 6;
WITH a AS (INSERT INTO kt VALUES (8, 8, repeat('t', 240))), b AS (UPDATE kt_total SET n = 8), c AS (DELETE FROM kt WHERE step = 5) UPDATE kt SET v = v + 1 WHERE step = 7;
WITH a AS (INSERT INTO kt VALUES (9, 9, repeat('t', 270))), b AS (UPDATE kt_total SET n = 9), c AS (DELETE FROM kt WHERE step = 6) UPDATE kt SET v = v + 1 WHERE step = 8;
DO $$ BEGIN INSERT INTO kt VALUES (10, 10, repeat('t', 300)); BEGIN DELETE FROM kt; UPDATE kt_total SET n = -7; RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; UPDATE kt SET v = v + 1 WHERE step = 9; DELETE FROM kt WHERE step = 7; UPDATE kt_total SET n = 10; PERFORM FROM locked WHERE id = 1 FOR UPDATE; END $$;
WITH a AS (INSERT INTO kt VALUES (11, 11, repeat('t', 330))), b AS (UPDATE kt_total SET n = 11), c AS (DELETE FROM kt WHERE step = 8) UPDATE kt SET v = v + 1 WHERE step = 10;
WITH a AS (INSERT INTO kt VALUES (12, 12, repeat('t', 360))), b AS (UPDATE kt_total SET n = 12), c AS (DELETE FROM kt WHERE step = 9) UPDATE kt SET v = v + 1 WHERE step = 11;
COMMIT;
-- step others 6
UPDATE locked SET v = v + 1;
-- step again 6
DELETE FROM kt;
-- step zero 6
UPDATE kt_total SET n = 0;
