-- step the freed root gets an owner @8
VACUUM reused;
-- step and is used for a version @9
UPDATE reused SET v = 120 WHERE id = 1;
-- step and once more @9
UPDATE reused SET v = 121 WHERE id = 1;
-- step others
INSERT INTO q VALUES (720, 1, 'others');
