-- step xids go by @9
SELECT sofort_test.burn_xids(1200000);
-- step the commit log of earlier ones is not needed elsewhere @9
UPDATE pg_database SET datfrozenxid = txid_current()::text::xid WHERE datname IN ('template0', 'template1');
-- step nor here @9
VACUUM (FREEZE);
-- step others @10
INSERT INTO other VALUES (700, 'others');
-- step and others @11
INSERT INTO other VALUES (701, 'others');
