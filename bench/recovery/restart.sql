-- One table of four columns. psql variables: am, index_am, rows, distinct.
-- The first rows repeat few values, so that the columns get dictionaries; those
-- that follow have each value four times, so that they keep them.
SET client_min_messages = warning;
CREATE TABLE t (k int PRIMARY KEY, a text, b int, c text) USING :am;
INSERT INTO t SELECT i, 'value-' || lpad((v * 7919 % :distinct)::text, 12, '0'), v, 'other-' || lpad((v * 104729 % :distinct)::text, 12, '0')
FROM (SELECT i, CASE WHEN i <= 4000 THEN i % 10 ELSE (i::bigint / 4 * 7907) % :distinct END AS v FROM generate_series(1, :rows) i) x;
VACUUM ANALYZE t;
