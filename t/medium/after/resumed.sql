-- step it goes on @8 (kept)
BEGIN;
SELECT sofort_test.resume_waiting();
WITH a AS (INSERT INTO kt VALUES (3, 3, repeat('t', 90))), b AS (UPDATE kt_total SET n = 3), c AS (DELETE FROM kt WHERE step = 0) UPDATE kt SET v = v + 1 WHERE step = 2;
COMMIT;
-- step others @10
INSERT INTO other VALUES (700, 'others');
-- step and others @11
INSERT INTO other VALUES (701, 'others');
