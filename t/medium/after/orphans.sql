-- step versions that nothing leads to are freed @9
VACUUM pruned;
-- step time goes by @10
INSERT INTO q VALUES (710, 1, 'others');
-- step and more @11
INSERT INTO q VALUES (711, 1, 'others');
-- step so that they are usable @10
VACUUM q;
-- step used @11
INSERT INTO pruned VALUES (10, 1), (11, 1);
-- step others
INSERT INTO q VALUES (712, 1, 'others');
