-- After all other tests: every table that they left, and the pool.
\pset format unaligned
\pset tuples_only on
SELECT count(*) > 50 FROM sofort.tables;
SELECT relation FROM sofort.tables WHERE store_id IS NULL;
SELECT t.relation, v.* FROM sofort.tables t, LATERAL sofort.verify(t.relation) v;
VACUUM;
SELECT t.relation, v.* FROM sofort.tables t, LATERAL sofort.verify(t.relation) v;
SELECT * FROM sofort.verify_pool();
