-- Large scans decode only the columns that the plan uses: every way to use one
-- must be known.  Each query runs on a sofort table and on its heap twin.
CREATE TABLE nc_s (a int, b text, c numeric, d int, e text, f int[], g int) USING sofort;
CREATE TABLE nc_h (LIKE nc_s) USING heap;
INSERT INTO nc_h SELECT i, 'b' || i % 7, i / 3.0, i % 11, nullif('e' || i % 13, 'e5'),
  ARRAY[i, i % 5], i % 3 FROM generate_series(1, 3000) i;
INSERT INTO nc_s SELECT * FROM nc_h;
CREATE INDEX ON nc_s (d);
CREATE INDEX ON nc_h (d);
ANALYZE nc_s, nc_h;

CREATE FUNCTION nc_compare(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s text; h text;
BEGIN
  EXECUTE format('SELECT md5(string_agg(q::text, '';'' ORDER BY q::text)) FROM (%s) q',
    replace(query, '@', 'nc_s')) INTO s;
  EXECUTE format('SELECT md5(string_agg(q::text, '';'' ORDER BY q::text)) FROM (%s) q',
    replace(query, '@', 'nc_h')) INTO h;
  RETURN CASE WHEN s IS NOT DISTINCT FROM h THEN 'same' ELSE 'DIFFERENT: ' || query END;
END $$;

SELECT nc_compare(q) FROM (VALUES
  ('SELECT e FROM @'),
  ('SELECT a, e FROM @ WHERE c > 500 AND g = 1'),
  ('SELECT * FROM @ WHERE d < 9'),
  ('SELECT t FROM @ t WHERE d < 9'),
  ('SELECT t.a, t FROM @ t WHERE g <> 1'),
  ('SELECT sum(g), max(e), count(*), count(e) FROM @'),
  ('SELECT count(*) FROM @'),
  ('SELECT d, sum(c) FROM @ GROUP BY d'),
  ('SELECT d, g, string_agg(b, e ORDER BY a, c) FILTER (WHERE f[2] > 1) FROM @ GROUP BY d, g HAVING max(a) > 10'),
  ('SELECT g, d, count(DISTINCT b) FROM @ GROUP BY GROUPING SETS ((g), (d), (g, d), ())'),
  ('SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY c), mode() WITHIN GROUP (ORDER BY e) FROM @'),
  ('SELECT d, (SELECT max(x.b) FROM @ x WHERE x.g = t.g AND x.d = t.d) FROM @ t WHERE a % 50 = 0'),
  ('SELECT sum((SELECT count(*) FROM @ x WHERE x.a < t.d AND x.e > t.b)) FROM @ t WHERE a % 100 = 0'),
  ('SELECT b, rank() OVER (PARTITION BY g ORDER BY c) FROM @'),
  ('SELECT x.b, y.e FROM @ x JOIN @ y ON x.a = y.a AND x.c = y.c WHERE y.g = 2'),
  ('SELECT DISTINCT e, g FROM @'),
  ('SELECT b FROM @ ORDER BY e, c DESC LIMIT 700'),
  ('SELECT e FROM @ WHERE ctid IS NOT NULL AND tableoid IS NOT NULL AND xmin IS NOT NULL'),
  ('SELECT b FROM @ TABLESAMPLE SYSTEM (100)'),
  ('SELECT unnest(f), g FROM @'),
  ('SELECT e FROM @ UNION ALL SELECT b FROM @ WHERE d = 3'),
  ('SELECT max(c) FROM @ WHERE (b, e) > (''b2'', ''e1'')')
) v(q);

-- The same through index and bitmap scans.
SET enable_seqscan = off;
SELECT nc_compare(q) FROM (VALUES
  ('SELECT e FROM @ WHERE d BETWEEN 1 AND 8'),
  ('SELECT sum(g) FROM @ WHERE d BETWEEN 1 AND 8 AND c > 10')
) v(q);
SET enable_bitmapscan = off;
SELECT nc_compare(q) FROM (VALUES
  ('SELECT e FROM @ WHERE d BETWEEN 1 AND 8'),
  ('SELECT sum(g) FROM @ WHERE d BETWEEN 1 AND 8 AND c > 10')
) v(q);
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Row security reads columns that the query does not name; so do updates,
-- triggers and RETURNING.
CREATE POLICY nc_policy ON nc_s USING (g <> 2 AND e IS NOT NULL);
CREATE POLICY nc_policy ON nc_h USING (g <> 2 AND e IS NOT NULL);
ALTER TABLE nc_s ENABLE ROW LEVEL SECURITY;
ALTER TABLE nc_h ENABLE ROW LEVEL SECURITY;
CREATE ROLE nc_user;
GRANT SELECT ON nc_s, nc_h TO nc_user;
SET ROLE nc_user;
SELECT nc_compare('SELECT a FROM @'), nc_compare('SELECT sum(a) FROM @');
RESET ROLE;
UPDATE nc_s SET g = g + 1 WHERE d > 1;
UPDATE nc_h SET g = g + 1 WHERE d > 1;
CREATE TABLE nc_log (who text, gone text);
CREATE FUNCTION nc_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO nc_log VALUES (TG_TABLE_NAME, OLD::text); RETURN OLD; END $$;
CREATE TRIGGER t BEFORE DELETE ON nc_s FOR EACH ROW EXECUTE FUNCTION nc_log();
CREATE TRIGGER t BEFORE DELETE ON nc_h FOR EACH ROW EXECUTE FUNCTION nc_log();
DELETE FROM nc_s WHERE d > 2;
DELETE FROM nc_h WHERE d > 2;
SELECT md5(string_agg(gone, ';' ORDER BY gone)) =
  (SELECT md5(string_agg(gone, ';' ORDER BY gone)) FROM nc_log WHERE who = 'nc_h') AS same_log
  FROM nc_log WHERE who = 'nc_s';
SELECT nc_compare('SELECT * FROM @');

DROP TABLE nc_s, nc_h, nc_log;
DROP FUNCTION nc_compare, nc_log;
DROP ROLE nc_user;
