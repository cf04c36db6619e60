-- step values
INSERT INTO val SELECT 900 + i, repeat('again', 400) FROM generate_series(1, 60) i;
-- step others
INSERT INTO val2 SELECT 900 + i, repeat('others', 400) FROM generate_series(1, 60) i;
-- step longer ones
INSERT INTO val2 SELECT 1000 + j, string_agg(md5((i + j)::text), '') FROM generate_series(1, 33000) i, generate_series(1, 3) j GROUP BY j;
