-- step the freed root is behind the append position @8
VACUUM tail;
-- step and is used for a version @9
UPDATE tail SET v = 120 WHERE id = 1;
-- step others
INSERT INTO q VALUES (720, 1, 'others');
