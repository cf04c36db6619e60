-- step somebody is told how far it had come @9
INSERT INTO told SELECT max(statements) FROM sofort.transactions;
-- step others @10
INSERT INTO other VALUES (700, 'others');
-- step and others @11
INSERT INTO other VALUES (701, 'others');
