-- step the tree is opened by who only reads @8
SET enable_seqscan = off;
SELECT count(*) FROM chained WHERE lpad(id::text, 32, '0')::uuid = lpad('18', 32, '0')::uuid;
-- step a key behind what was split off @9
INSERT INTO chained VALUES (18);
-- step others @10
INSERT INTO other VALUES (700, 'others');
