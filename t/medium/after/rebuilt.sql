-- step a row that is not drained @8 (held at store-row-written)
INSERT INTO collated VALUES (200, 'held');
-- step the tree is built anew, with that row @9
SET enable_seqscan = off;
SELECT count(*) FROM collated WHERE t = 'row 3';
-- step others @10
INSERT INTO other VALUES (700, 'others');
-- step its writer goes on @8 (goes on)
SELECT 1;
-- step a chain of leaves is built anew, too @9
SELECT count(*) FROM leaves WHERE t = 'row 3';
-- step others again @10
INSERT INTO other VALUES (701, 'others');
