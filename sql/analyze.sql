--
-- ANALYZE: statistics as heap's, and a sample that does not hold long values
--
CREATE TABLE a_heap (id int, few text, wide text, list int[], words tsvector, doc jsonb, many text) USING heap;
ALTER TABLE a_heap ALTER wide SET STORAGE EXTERNAL, ALTER list SET STORAGE EXTERNAL;
INSERT INTO a_heap SELECT i, CASE WHEN i % 4 > 0 THEN 'few ' || i % 4 END,
	CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'short' ELSE repeat(chr(97 + i % 20), 200000) END,
	(SELECT array_agg(k) FROM generate_series(i % 3, i % 3 + i) k),
	to_tsvector('simple', (SELECT string_agg('word' || k, ' ') FROM generate_series(1, i % 50 + 1) k)),
	jsonb_build_object('k', i % 3, 'v', repeat('x', i * 20)),
	repeat(chr(97 + i % 10), 900)
	FROM generate_series(1, 280) i;
CREATE TABLE a_sofort (LIKE a_heap INCLUDING ALL) USING sofort;
INSERT INTO a_sofort SELECT * FROM a_heap;
-- it has grown by a long default
ALTER TABLE a_heap ADD later text DEFAULT repeat('y', 5000);
ALTER TABLE a_sofort ADD later text DEFAULT repeat('y', 5000);
-- says how much memory the sample has
CREATE FUNCTION first_letter(int, text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF $1 = 100 AND (SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'Analyze') > 8000000 THEN
		RAISE WARNING 'ANALYZE holds long values';
	END IF;
	RETURN left($2, 1);
END $$;
CREATE INDEX a_heap_first ON a_heap (first_letter(id, wide));
CREATE INDEX a_sofort_first ON a_sofort (first_letter(id, wide));
CREATE STATISTICS a_heap_both (ndistinct, dependencies, mcv) ON few, wide, many FROM a_heap;
CREATE STATISTICS a_sofort_both (ndistinct, dependencies, mcv) ON few, wide, many FROM a_sofort;
SET default_statistics_target = 1;
ANALYZE a_heap;
ANALYZE a_sofort;
-- the order of the rows in the sample may differ, and so what is first among equals
CREATE VIEW a_stats AS
	SELECT replace(tablename, 'heap', 'sofort') AS tablename, attname, null_frac, n_distinct, correlation IS NULL AS uncorrelated,
		most_common_freqs, (SELECT array_agg(left(v, 20)) FROM unnest(most_common_vals::text::text[]) v) AS vals,
		elem_count_histogram, md5(most_common_elem_freqs::text) AS elem_freqs, tablename LIKE '%heap%' AS heap
	FROM pg_stats WHERE tablename IN ('a_heap', 'a_sofort', 'a_heap_first', 'a_sofort_first');
SELECT count(*), count(*) FILTER (WHERE heap) FROM a_stats;
SELECT tablename, attname, n_distinct, vals FROM a_stats WHERE NOT heap ORDER BY 1, 2;
SELECT tablename, attname, null_frac, n_distinct, uncorrelated, most_common_freqs, vals, elem_count_histogram, elem_freqs FROM a_stats WHERE heap
EXCEPT SELECT tablename, attname, null_frac, n_distinct, uncorrelated, most_common_freqs, vals, elem_count_histogram, elem_freqs FROM a_stats WHERE NOT heap;
SELECT h.n_distinct::text = s.n_distinct::text AS n_distinct, h.dependencies::text = s.dependencies::text AS dependencies, h.most_common_freqs = s.most_common_freqs AS freqs
	FROM pg_stats_ext h, pg_stats_ext s WHERE h.statistics_name = 'a_heap_both' AND s.statistics_name = 'a_sofort_both';
-- types of PLAIN storage, whose functions do not expect references
CREATE TABLE a_plain (v1 oidvector, v2 oidvector, v3 oidvector, v4 oidvector, v5 oidvector, v6 oidvector, a int, b int) USING sofort;
INSERT INTO a_plain SELECT v, v, v, v, v, v, i, 80000000 FROM (SELECT i, (SELECT string_agg((i % 3 + k)::text, ' ')::oidvector FROM generate_series(1, 100) k) AS v FROM generate_series(1, 50) i) q;
CREATE INDEX ON a_plain ((v1::text));
CREATE STATISTICS a_plain_both (ndistinct) ON v1, a FROM a_plain;
ANALYZE a_plain;
SELECT n_distinct FROM pg_stats WHERE tablename = 'a_plain_v1_idx';
DROP TABLE a_plain;
-- with what it has written itself
BEGIN;
UPDATE a_sofort SET wide = repeat('z', 100000) WHERE id % 5 > 1;
ANALYZE a_sofort (id, few, wide, many);
SELECT attname, null_frac, n_distinct, avg_width FROM pg_stats WHERE tablename = 'a_sofort' AND attname IN ('wide', 'few') ORDER BY 1;
ROLLBACK;
VACUUM ANALYZE a_sofort;
SELECT reltuples FROM pg_class WHERE relname = 'a_sofort';
RESET default_statistics_target;
DROP VIEW a_stats;
DROP TABLE a_heap, a_sofort;
DROP FUNCTION first_letter;
-- a table is as large for the planner as heap's, also with columns that are mostly NULL, and NULL alone
CREATE FUNCTION scan_cost(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE line text; BEGIN
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP RETURN substring(line FROM '\.\.([0-9.]+)'); END LOOP;
END $$;
DO $$
DECLARE
	columns text;
	kind record;
	factor numeric;
BEGIN
	FOR kind IN VALUES ('all', 'NULL'), ('mostly', 'CASE WHEN (i + c) % 20 = 0 THEN repeat(''x'', 40) END'), ('half', 'CASE WHEN i % 2 = 0 THEN repeat(''x'', 10) END'), ('none', '''value''') LOOP
		FOREACH columns IN ARRAY ARRAY['1', '30', '100'] LOOP
			EXECUTE (SELECT format('CREATE TABLE a_nulls_heap (id int, %s) USING heap', string_agg(format('c%s text', c), ', ')) FROM generate_series(1, columns::int) c);
			EXECUTE (SELECT format('INSERT INTO a_nulls_heap SELECT i, %s FROM generate_series(1, 4000) i', string_agg(regexp_replace(kind.column2, '\mc\M', c::text), ', ')) FROM generate_series(1, columns::int) c);
			CREATE TABLE a_nulls_sofort USING sofort AS TABLE a_nulls_heap;
			ANALYZE a_nulls_heap, a_nulls_sofort;
			factor := scan_cost('TABLE a_nulls_sofort') / scan_cost('TABLE a_nulls_heap');
			IF factor NOT BETWEEN 0.9 AND 1.1 THEN
				RAISE WARNING '% columns, % of them NULL: % times as much as heap', columns, kind.column1, factor;
			END IF;
			DROP TABLE a_nulls_heap, a_nulls_sofort;
		END LOOP;
	END LOOP;
END $$;
-- and with columns that are aligned (from 16 on heap extends a table by more pages than it needs: VACUUM takes them away)
CREATE TABLE a_mixed_heap USING heap AS SELECT i % 2 = 0 AS a, i::bigint AS b, i::smallint AS c, now() AS d, ('v' || i)::varchar(10) AS e, i / 3.0 AS f, 'x'::"char" AS g, i AS h,
	CASE WHEN i % 3 > 0 THEN i::float8 END AS j, CASE WHEN i % 4 = 0 THEN i % 2 = 0 END AS k, i AS l, repeat('t', 200) AS m, i AS n, point(i, i) AS o FROM generate_series(1, 4000) i;
CREATE TABLE a_mixed_sofort USING sofort AS TABLE a_mixed_heap;
VACUUM ANALYZE a_mixed_heap, a_mixed_sofort;
SELECT scan_cost('TABLE a_mixed_sofort') / scan_cost('TABLE a_mixed_heap') BETWEEN 0.95 AND 1.05 AS same;
DROP TABLE a_mixed_heap, a_mixed_sofort;
DROP FUNCTION scan_cost;
