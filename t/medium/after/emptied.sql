-- step rows in place of those that the crash has taken @9
INSERT INTO emptied SELECT 100 + i, 0 FROM generate_series(1, 6) i;
-- step others @10
INSERT INTO other VALUES (700, 'others');
