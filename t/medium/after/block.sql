-- step a row where the block is that was counted
INSERT INTO extended VALUES (10, 'first');
-- step others
INSERT INTO q VALUES (710, 1, 'others');
