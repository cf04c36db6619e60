-- step freed
VACUUM q, links, straddle;
-- step new rows
INSERT INTO q SELECT 700 + i, i, 'new' FROM generate_series(1, 30) i;
-- step and versions
UPDATE q SET v = v + 1;
