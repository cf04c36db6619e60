-- step freed rows are found @9
VACUUM unlocked;
-- step time goes by @10
INSERT INTO other VALUES (700, 'others');
-- step and more @11
INSERT INTO other VALUES (701, 'others');
-- step so that they are usable @10
VACUUM other;
-- step rows in place of freed ones @9
INSERT INTO unlocked SELECT 100 + i, 0 FROM generate_series(1, 12) i;
-- step others @10
INSERT INTO other VALUES (702, 'others');
