-- step the old tree goes @9 (held at pmem-owner-slots-freed)
INSERT INTO collated VALUES (100, 'new');
-- step others have its slots @10
INSERT INTO other SELECT 700 + i, string_agg(md5(i::text || k::text), '') FROM generate_series(1, 40) i, generate_series(1, 40) k WHERE k <= i GROUP BY i;
-- step others @10
INSERT INTO other VALUES (750, 'others');
-- step the new one is built in its place @9 (goes on)
SELECT 1;
-- step others again @10
INSERT INTO other VALUES (751, 'others');
