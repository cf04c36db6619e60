-- step others @10
INSERT INTO other VALUES (700, 'others');
-- step and others @11
INSERT INTO other VALUES (701, 'others');
