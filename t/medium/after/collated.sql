-- step the tree is built anew, in the place of the old one @9
INSERT INTO collated VALUES (100, 'new');
-- step others @10
INSERT INTO other VALUES (700, 'others');
