-- step most of the pool @2
BEGIN;
SELECT sofort_test.fill_pool(33 * 1024 * 1024);
-- step granules whose words were prepared before
INSERT INTO val SELECT 701, string_agg(md5(i::text), '') FROM generate_series(1, 70000) i;
-- step the rest @2
ROLLBACK;
