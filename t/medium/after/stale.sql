-- step freed rows are found @9
VACUUM stale;
-- step time goes by @10
INSERT INTO q VALUES (710, 1, 'others');
-- step and more @11
INSERT INTO q VALUES (711, 1, 'others');
-- step so that they are usable @10
VACUUM q;
-- step one is used @11
INSERT INTO stale VALUES (100, 1, repeat('w0', 20));
-- step others @10
INSERT INTO q VALUES (712, 1, 'others');
-- step and another @11
INSERT INTO stale VALUES (101, 1, repeat('w1', 20));
-- step others again @10
INSERT INTO q VALUES (713, 1, 'others');
