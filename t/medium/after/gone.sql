-- step a leaf is visited by who only reads @8
SET enable_seqscan = off;
SELECT count(*) FROM gone WHERE lpad(id::text, 32, '0')::uuid = lpad('2', 32, '0')::uuid;
-- step rows without entries are freed @9
VACUUM gone;
-- step time goes by @10
INSERT INTO other VALUES (700, 'others');
-- step and more @11
INSERT INTO other VALUES (701, 'others');
-- step so that they are usable @10
VACUUM other;
-- step used, with entries in another leaf @11
INSERT INTO gone VALUES (101), (102), (103);
-- step others @10
INSERT INTO other VALUES (702, 'others');
