--
-- what the statistics views count is what they count for heap (but for what depends on free space
-- within pages, n_tup_hot_upd, on the version, idx_scan for = ANY, and on costs, CLUSTER)
--
CREATE TABLE st_steps (n int GENERATED ALWAYS AS IDENTITY, statement text);
INSERT INTO st_steps (statement) VALUES
	('INSERT INTO $t SELECT i, i % 10, ''t'' || i FROM generate_series(1, 1000) i'),
	('CREATE INDEX ON $t (few)'),
	('CREATE UNIQUE INDEX ON $t ((id + 1)) WHERE few < 5'),
	('REINDEX TABLE $t'),
	('SELECT count(*) FROM $t'),
	('SELECT count(*) FROM $t WHERE note = ''t7'''),
	('SELECT * FROM $t LIMIT 10'),
	('SELECT * FROM $t WHERE id = 7'),
	('SELECT * FROM $t WHERE id = 70000'),
	('SELECT count(*) FROM $t WHERE id BETWEEN 100 AND 199'),
	('SELECT count(note) FROM $t WHERE id BETWEEN 100 AND 199'),
	('SELECT * FROM $t WHERE few = 3 ORDER BY id LIMIT 1'),
	('SELECT count(*) FROM $t a JOIN $t b ON b.id = a.id + 1 WHERE a.id < 20'),
	('SELECT * FROM $t WHERE ctid = ''(0,1)'''),
	('SELECT * FROM $t WHERE id = 9 FOR UPDATE'),
	('SELECT count(*) FROM $t TABLESAMPLE SYSTEM (100)'),
	('UPDATE $t SET note = ''new'' WHERE id = 7'),
	('UPDATE $t SET few = 11 WHERE id = 8'),
	('UPDATE $t SET note = ''all'''),
	('DELETE FROM $t WHERE id = 9'),
	('DELETE FROM $t WHERE few = 4'),
	('INSERT INTO $t VALUES (1, 1, ''dup'') ON CONFLICT DO NOTHING'),
	('INSERT INTO $t VALUES (1, 1, ''dup'') ON CONFLICT (id) DO UPDATE SET note = excluded.note'),
	('MERGE INTO $t USING (VALUES (1), (5000)) v (k) ON id = k WHEN MATCHED THEN UPDATE SET note = ''m'' WHEN NOT MATCHED THEN INSERT VALUES (k, 1)'),
	('DO $d$ BEGIN INSERT INTO $t VALUES (6000, 1); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $d$'),
	('DO $d$ BEGIN UPDATE $t SET note = NULL; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $d$'),
	('ALTER TABLE $t ALTER few TYPE bigint'),
	('ALTER TABLE $t ADD CHECK (id > 0)'),
	('ALTER TABLE $t ALTER note SET DEFAULT ''x'', ADD COLUMN more int DEFAULT 4'),
	('ALTER TABLE $t ALTER few SET NOT NULL'),
	('ANALYZE $t'),
	('TRUNCATE $t');
CREATE FUNCTION st_run(name text) RETURNS TABLE (step int, s text, counts bigint[]) LANGUAGE plpgsql AS $$
DECLARE
	before bigint[];
BEGIN
	FOR step, s IN TABLE st_steps ORDER BY n LOOP
		SELECT ARRAY[seq_scan, seq_tup_read, idx_scan, idx_tup_fetch, n_tup_ins, n_tup_upd, n_tup_del] INTO before FROM pg_stat_xact_user_tables WHERE relname = name;
		EXECUTE replace(s, '$t', name);
		SELECT array_agg(a - b ORDER BY o) INTO counts FROM pg_stat_xact_user_tables,
			unnest(ARRAY[seq_scan, seq_tup_read, idx_scan, idx_tup_fetch, n_tup_ins, n_tup_upd, n_tup_del], before) WITH ORDINALITY q (a, b, o) WHERE relname = name;
		RETURN NEXT;
	END LOOP;
END $$;
CREATE TABLE st_heap (id int PRIMARY KEY, few int, note text) USING heap WITH (autovacuum_enabled = off);
CREATE TABLE st_sofort (id int PRIMARY KEY, few int, note text) USING sofort WITH (autovacuum_enabled = off);
SET max_parallel_workers_per_gather = 0;
SET max_parallel_maintenance_workers = 0;
CREATE TEMP TABLE st_counts AS SELECT 'heap' AS am, * FROM st_run('st_heap') UNION ALL SELECT 'sofort', * FROM st_run('st_sofort');
SELECT left(h.s, 70), h.counts, s.counts FROM st_counts h JOIN st_counts s USING (step) WHERE h.am = 'heap' AND s.am = 'sofort' AND h.counts <> s.counts ORDER BY step;
SELECT count(*), sum(counts[2]) > 10000 FROM st_counts;
DROP TABLE st_steps, st_counts, st_heap, st_sofort;
DROP FUNCTION st_run;
-- since 16: updates whose row went to another block, which are not "hot"
CREATE TABLE st_pages (id int PRIMARY KEY, n int) USING sofort WITH (autovacuum_enabled = off);
INSERT INTO st_pages SELECT i, i FROM generate_series(1, 5000) i;
BEGIN;
UPDATE st_pages SET n = n + 1;
SELECT n_tup_upd, n_tup_hot_upd, coalesce((to_jsonb(s) ->> 'n_tup_newpage_upd')::int, 0) AS to_other_blocks FROM pg_stat_xact_user_tables s WHERE relname = 'st_pages';
UPDATE st_pages SET id = id + 10000;
SELECT n_tup_upd, n_tup_hot_upd, coalesce((to_jsonb(s) ->> 'n_tup_newpage_upd')::int > 4000, current_setting('server_version_num')::int < 160000) AS to_other_blocks FROM pg_stat_xact_user_tables s WHERE relname = 'st_pages';
ROLLBACK;
DROP TABLE st_pages;
