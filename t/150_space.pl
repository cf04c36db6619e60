# Space comes back without VACUUM FULL: old versions of updated rows, also of one
# hot row and after an old snapshot has ended; values of dictionaries that no row
# uses any more, whoever looks at them meanwhile and wherever a crash hits.
# SOFORT_LONG: a hot row is updated a million times instead of 20,000 times.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('space');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_prepared_transactions = 1', "sofort.pool_size = '1GB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub bytes { return sql("SELECT pool_bytes FROM sofort.tables WHERE relation = '$_[0]'::regclass"); }

# ---- updates at random: updaters free what nobody sees any more ----
sql(q{CREATE TABLE t (id int PRIMARY KEY, n int, v bigint, s text) USING sofort;
	INSERT INTO t SELECT i, 0, i * 7, 'row number ' || i % 100 FROM generate_series(1, 4000) i;
	CREATE PROCEDURE churn(rounds int, commits boolean) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN 1 .. rounds * 4000 LOOP
			UPDATE t SET n = n + 1 WHERE id = 1 + (r * 1777) % 4000;
			IF commits THEN COMMIT; END IF;
		END LOOP;
	END $$});
my $live = bytes('t');
sql('CALL churn(12, true)');
cmp_ok(bytes('t'), '<', 2.5 * $live, 'a table without VACUUM stays within 2.5 times its size');
is(sql('SELECT count(*), min(n), max(n) FROM t'), '4000|12|12', 'and no update is lost');
is(sql('SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, 4000) i JOIN t ON t.id = i AND n = 12'), 4000, 'each row is found by its index');
is($node->verify_problems, '', 'updates: verify');

# an old snapshot keeps what it sees; VACUUM frees it afterwards
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
sql('CALL churn(3, true)');
is($old->query_safe('SELECT count(*), min(n), max(n) FROM t'), '4000|12|12', 'an old snapshot sees its versions');
is($old->query_safe('SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, 4000) i JOIN t ON t.id = i AND n = 12'), 4000, 'also by the index');
my $grown = bytes('t');
$old->query_safe('COMMIT');
sql('VACUUM t; CALL churn(5, true)');
cmp_ok(bytes('t'), '<=', $grown, 'when it has ended, its space is used again');
is(sql('SELECT count(*), min(n), max(n) FROM t'), '4000|20|20', 'no update is lost');

$old->quit;

# killed between unlinking old versions and freeing them
ok($node->crash_at('store-garbage-unlinked', 'CALL churn(2, true)', 5), 'killed while old versions are freed');
$node->start;
is($node->verify_problems, '', 'killed while old versions are freed: verify');
is(sql('SELECT count(*) FROM t WHERE n BETWEEN 20 AND 22'), 4000, 'no row is lost');
sql('VACUUM t');
is($node->verify_problems, '', 'after VACUUM: verify');

# two sessions, one of them waits with unlinked versions while VACUUM runs
$node->arm('store-garbage-unlinked', 'wait');
my $updater = $node->background_psql('postgres');
$updater->query_until(qr/start/, "\\echo start\nCALL churn(2, true);\n");
ok($node->wait_at('store-garbage-unlinked'), 'an updater waits with unlinked versions');
sql('VACUUM t; UPDATE t SET n = n + 1 WHERE id IN (SELECT id FROM t WHERE id % 3 = 0 FOR UPDATE SKIP LOCKED); VACUUM t');
$node->disarm('store-garbage-unlinked');
$updater->query_safe('SELECT 1');
$updater->quit;
is($node->verify_problems, '', 'beside VACUUM: verify');
is(sql('SELECT count(*), count(DISTINCT id) FROM t'), '4000|4000', 'beside VACUUM: every row once');

# ---- a hot row is found in constant time, also beside an old snapshot ----
my $updates = $ENV{SOFORT_LONG} ? 1_000_000 : 20_000;
sql(q{CREATE TABLE hot (id int PRIMARY KEY, n int) USING sofort; INSERT INTO hot SELECT i, 0 FROM generate_series(1, 100) i;
	CREATE PROCEDURE heat(updates int) LANGUAGE plpgsql AS $$
	BEGIN FOR r IN 1 .. updates LOOP UPDATE hot SET n = n + 1 WHERE id = 7; COMMIT; END LOOP; END $$});

# Cache misses of looking for the row, in a session of its own
sub misses
{
	return sql(q{SET enable_seqscan = off; SET sofort.scm_read_latency = 1;
		SELECT n FROM hot WHERE id = 7 \gset
		SELECT read_delays AS before FROM sofort_test.flush_counters() \gset
		SELECT n FROM hot WHERE id = 7 \gset
		SELECT read_delays - :before FROM sofort_test.flush_counters()});
}
$old = $node->background_psql('postgres');
sql('CALL heat(1)');
my $few = misses();
cmp_ok($few, '>', 0, "looking for a row that was updated once: $few cache misses");
$live = bytes('hot');
sql("CALL heat($updates)");
is(sql('SELECT n FROM hot WHERE id = 7'), $updates + 1, "after $updates updates the row is right");
# (one more: by now blocks have minipages)
cmp_ok(misses(), '<=', $few + 1, 'and found as fast as after one');
cmp_ok(bytes('hot'), '<', $live + 200_000, 'it has taken no space to speak of');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
$old->query_safe('DECLARE c CURSOR FOR SELECT n FROM hot WHERE id = 7');
sql("CALL heat($updates)");
cmp_ok(misses(), '<=', $few + 1, "$updates updates beside an old snapshot: as fast");
is($old->query_safe('FETCH c'), $updates + 1, 'its cursor sees its version');
is($old->query_safe('SELECT n FROM hot WHERE id = 7'), $updates + 1, 'and so does a query');
$grown = bytes('hot');
$old->query_safe('COMMIT');
sql('VACUUM hot; SELECT txid_current(); VACUUM hot');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
sql("CALL heat($updates)");
cmp_ok(bytes('hot'), '<', 1.1 * $grown, 'when it has ended, its space is used again');
$old->query_safe('COMMIT');
is(sql('SELECT n FROM hot WHERE id = 7'), 3 * $updates + 1, 'the row is right');
sql('DELETE FROM hot; VACUUM hot; SELECT txid_current(); VACUUM hot; SELECT txid_current(); VACUUM hot');
cmp_ok(bytes('hot'), '<', $grown / 2, 'and goes back to the pool');
is($node->verify_problems, '', 'hot row: verify');

# ---- values of dictionaries that nobody uses ----
sql(q{CREATE TABLE d (id int PRIMARY KEY, status text, day date, n int) USING sofort;
	INSERT INTO d SELECT i, 'initial status ' || i % 400, '2000-01-01'::date + i % 400, 0 FROM generate_series(1, 4000) i;
	CREATE PROCEDURE day(first int, last int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN first .. last LOOP
			UPDATE d SET status = 'status of day ' || r || ' number ' || id % 200, day = '2001-01-01'::date + r * 200 + id % 200;
			COMMIT;
		END LOOP;
	END $$});

sub entries
{
	return sql("SELECT dictionary_entries FROM sofort.columns WHERE relation = 'd'::regclass AND column_name = 'status'");
}

sub contents_are
{
	my ($day, $what) = @_;
	is(sql("SELECT count(*) FROM d WHERE status = 'status of day $day number ' || id % 200 AND day = '2001-01-01'::date + $day * 200 + id % 200"),
		4000, "$what: every value is right");
	is($node->verify_problems, '', "$what: verify");
	return;
}

# Each step waits for transactions that a reader's snapshot could stand for.
sub vacuum
{
	sql('VACUUM d; SELECT txid_current(); VACUUM d; SELECT txid_current(); VACUUM d; SELECT txid_current()');
	return;
}
is(entries(), 400, 'a dictionary');
sql('CALL day(1, 4)');
is(entries(), 1200, 'it grows with new values');
vacuum();
is(entries(), 200, 'VACUUM frees the values that no row uses');
contents_are(4, 'freed');
sql('CALL day(5, 6)');
vacuum();
my $size = bytes('d');
foreach my $day (3 .. 20)
{
	sql('CALL day(' . ($day * 2 + 1) . ', ' . ($day * 2 + 2) . ')');
	vacuum();
}
is(entries(), 200, 'after forty days: as many values as are used');
cmp_ok(bytes('d'), '<=', 1.1 * $size, 'a column with ever new values does not grow');
contents_are(42, 'forty days');

# An old snapshot reads old values; a transaction that has found a value, or
# copies its code, keeps it.
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM d');
sql('CALL day(43, 46)');
vacuum();
is($old->query_safe(q{SELECT count(*) FROM d WHERE status = 'status of day 42 number ' || id % 200}), 4000, 'an old snapshot reads its values');
$old->query_safe('COMMIT');
my $writer = $node->background_psql('postgres');
$writer->query_safe(q{BEGIN; INSERT INTO d VALUES (-1, 'status of day 43 number 7', '2000-02-02', 1)});
sql('VACUUM d; VACUUM d');
$writer->query_safe(q{INSERT INTO d VALUES (-2, 'status of day 44 number 8', '2000-02-02', 1)});
sql('VACUUM d; VACUUM d');
$writer->query_safe('COMMIT');
is(sql(q{SELECT string_agg(status, ', ' ORDER BY id DESC) FROM d WHERE id < 0}), 'status of day 43 number 7, status of day 44 number 8', 'a value that was found stays');
foreach (1 .. 4) { sql('UPDATE d SET n = n + 1'); vacuum(); }
is(entries(), 202, 'the others go');
is(sql(q{SELECT string_agg(status, ', ' ORDER BY id DESC) FROM d WHERE id < 0}), 'status of day 43 number 7, status of day 44 number 8', 'codes that updates copied');
sql('DELETE FROM d WHERE id < 0');
contents_are(46, 'old snapshot, open writer');

# the same value again, between being unlinked and being freed
$writer->query_safe('BEGIN; CREATE TEMP TABLE holds_the_horizon ON COMMIT DROP AS SELECT 1');
sql('CALL day(47, 50)');
sql('VACUUM d');
$writer->query_safe('COMMIT; BEGIN; CREATE TEMP TABLE holds_the_horizon ON COMMIT DROP AS SELECT 1');
sql('VACUUM d');
sql(q{INSERT INTO d SELECT -i, 'status of day 47 number ' || i, '2000-01-01', 1 FROM generate_series(1, 20) i});
$writer->query_safe('COMMIT');
vacuum();
is(sql(q{SELECT count(*) FROM d WHERE id < 0 AND status = 'status of day 47 number ' || -id}), 20, 'a value that comes again while it goes');
sql('DELETE FROM d WHERE id < 0');
contents_are(50, 'values again');

# killed in every step; a code is given out again
my $day = 50;
my $vacuums = 'VACUUM d; SELECT txid_current(); ' x 12;
foreach my $case ([ 'dictionary-values-unlinked', $vacuums, 1 ], [ 'dictionary-value-freed', $vacuums, 300 ],
	[ 'dictionary-value-durable', q{CALL day(1000, 1000)}, 100 ])
{
	my ($point, $statement, $nth) = @$case;
	sql('CALL day(' . ($day + 1) . ', ' . ($day + 4) . ')');
	$day += 4;
	vacuum() if $point eq 'dictionary-value-durable';
	ok($node->crash_at($point, $statement, $nth), "killed at $point");
	$node->start;
	contents_are($day, "killed at $point");
	vacuum();
	contents_are($day, "killed at $point, and VACUUM");
	cmp_ok(entries(), '<=', 400, "killed at $point: values that nobody uses go");
}

# ---- values that are new with every update leave their dictionaries ----
# (Rows of the old shape, which they do not fit, must not be found first for ever.)
sql(q{CREATE TABLE ever (id int PRIMARY KEY, status text, n int, u uuid, long text) USING sofort;
	INSERT INTO ever SELECT i, 'status ' || i % 10, i % 9, md5((i % 8)::text)::uuid, repeat('long ', 20) || i % 7 FROM generate_series(1, 4000) i;
	CREATE PROCEDURE renew(first int, last int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN first .. last LOOP
			UPDATE ever SET status = 'number ' || r, n = r, u = md5(r::text)::uuid, long = repeat('new ', 20) || r WHERE id = 1 + r % 4000;
			COMMIT;
		END LOOP;
	END $$;
	CREATE TABLE model (LIKE ever) USING heap;
	CREATE FUNCTION contents(relation text) RETURNS SETOF text LANGUAGE plpgsql AS $$
	DECLARE condition text;
	BEGIN
		FOREACH condition IN ARRAY '{status = ''status 3'', status = ''number 5000'', status < ''number 3'', status >= ''status 4'',
			status LIKE ''status%'', status LIKE ''%7'', n = 5, n = 5000, n BETWEEN 3 AND 4100, n < 5, long LIKE ''%w 41%'',
			u = ''8f14e45f-ceea-167a-5a36-dedd4bea2543'', u > ''80000000-0000-0000-0000-000000000000'', long = ''none'', true}'::text[] LOOP
			RETURN QUERY EXECUTE format('SELECT %L || count(*) || coalesce(md5(string_agg(x::text, '','' ORDER BY id)), '''') FROM %I x WHERE %s',
				condition, relation, condition);
		END LOOP;
	END $$});
is(sql(q{SELECT string_agg(encoding, ' ' ORDER BY attnum) FROM sofort.columns WHERE relation = 'ever'::regclass}), 'plain dictionary dictionary dictionary dictionary', 'columns with dictionaries');

# $last: the update that was the last
sub ever_is
{
	my ($last, $what) = @_;
	sql(qq{TRUNCATE model; INSERT INTO model SELECT id, 'number ' || r, r, md5(r::text)::uuid, repeat('new ', 20) || r
		FROM (SELECT id, $last - ($last + 1 - id) % 4000 FROM generate_series(1, 4000) id) x(id, r) WHERE $last + 1 >= id AND r > 0;
		INSERT INTO model SELECT i, 'status ' || i % 10, i % 9, md5((i % 8)::text)::uuid, repeat('long ', 20) || i % 7 FROM generate_series(1, 4000) i
		WHERE NOT EXISTS (SELECT FROM model WHERE id = i)});
	my $model = sql(q{SELECT contents('model')});
	is(sql(q{SELECT contents('ever')}), $model, "$what: sequential scans");
	is(sql(q{CREATE INDEX ever_status ON ever USING sofort_index (status, long); CREATE INDEX ever_n ON ever USING sofort_index (n); CREATE INDEX ever_u ON ever USING sofort_index (u);
		SET enable_seqscan = off; SELECT contents('ever'); DROP INDEX ever_status, ever_n, ever_u}), $model, "$what: index scans");
	is($node->verify_problems, '', "$what: verify");
	return;
}

sub stays_small
{
	my ($what) = @_;
	sql('CREATE TABLE fresh (LIKE ever INCLUDING INDEXES) USING sofort; INSERT INTO fresh TABLE ever');
	cmp_ok(bytes('ever'), '<', 2.5 * bytes('fresh'), "$what: within 2.5 times the size of a copy");
	sql('DROP TABLE fresh');
	return;
}
sql('CALL renew(1, 2500)');
ever_is(2500, 'new texts and old ones');
is(sql(q{SELECT string_agg(encoding, ' ' ORDER BY attnum) FROM sofort.columns WHERE relation = 'ever'::regclass}), 'plain inline plain plain reference', 'the columns have left their dictionaries');
is(sql(q{SELECT count(*), max(dictionary_entries) < 4000 / 3 + 100 FROM sofort.columns WHERE relation = 'ever'::regclass AND dictionary_entries > 0}), '4|t', 'which have not grown further');
foreach my $round (1 .. 5)
{
	sql('CALL renew(' . ($round * 4000 - 1499) . ', ' . ($round * 4000 + 2500) . ')');
	stays_small("texts that are new every time, round $round, no VACUUM");
}
ever_is(22500, 'each text new several times');
sql('VACUUM ever; SELECT txid_current(); VACUUM ever; SELECT txid_current(); VACUUM ever');
is(sql(q{SELECT coalesce(sum(dictionary_entries), 0) FROM sofort.columns WHERE relation = 'ever'::regclass AND attnum IN (2, 5)}), '0', 'VACUUM frees what the dictionaries hold');
sql('CALL renew(22501, 30000)');
stays_small('after VACUUM');
ever_is(30000, 'after VACUUM');

# the decision is in nobody's way when it is cut, wherever
foreach my $case ([ 'store-shape-published', 1 ], [ 'store-shape-published', 4 ], [ 'store-shape-published', 5 ], [ 'store-block-published', 6 ])
{
	my ($point, $nth) = @$case;
	sql(q{TRUNCATE ever; INSERT INTO ever SELECT i, 'status ' || i % 10, i % 9, md5((i % 8)::text)::uuid, repeat('long ', 20) || i % 7 FROM generate_series(1, 4000) i});
	ok($node->crash_at($point, 'CALL renew(1, 8000)', $nth), "killed at $point, time $nth");
	$node->start;
	my $last = sql('SELECT max(n) FROM ever');
	note("after $last updates");
	ever_is($last, "killed at $point, time $nth");
	sql('CALL renew(' . ($last + 1) . ", $last + 6000)");
	ever_is($last + 6000, "killed at $point, time $nth, and on");
	stays_small("killed at $point, time $nth, and on");
}

# loads keep dictionaries that grow with them, in one transaction and by a rewrite, also by several sessions
sql(q{CREATE FUNCTION growing(i int) RETURNS text LANGUAGE sql AS $$ SELECT 'a status ' || CASE WHEN i <= 2000 THEN i % 50 WHEN i % 4 = 0 THEN i / 4 ELSE i * 7919 % (i / 4) END $$;
	CREATE TABLE loaded (id int PRIMARY KEY, status text) USING sofort; INSERT INTO loaded SELECT i, growing(i) FROM generate_series(1, 40000) i});
sub kept
{
	my ($values, $what) = @_;
	my ($encoding, $entries) = split /\|/, sql(q{SELECT encoding, dictionary_entries FROM sofort.columns WHERE relation = 'loaded'::regclass AND attnum = 2});
	is($encoding, 'dictionary', $what);
	cmp_ok($entries, '>', $values, "$what: its values");
	return;
}
kept(9400, 'a load keeps its dictionary');
sql('VACUUM FULL loaded');
kept(9400, 'a rewrite, too');
sql(q{INSERT INTO loaded SELECT i, growing(i) FROM generate_series(40001, 60000) i});
kept(14400, 'and what comes after it');
is(sql('SELECT count(*) FROM loaded WHERE status = growing(id)'), 60000, 'a load: values');

# ---- what VACUUM reports ----
sql('VACUUM ever');		# rows that were reserved, and never used, when a crash came
sql('DELETE FROM ever WHERE id <= 1000; SELECT txid_current()');
$node->psql('postgres', 'VACUUM (VERBOSE) ever', stderr => \my $report);
like($report, qr/INFO:  finished vacuuming "postgres\.public\.ever": index scans: 1
pages: \d+ removed, \d+ remain, \d+ scanned \(100\.00% of total\)
tuples: \d+ removed, 3000 remain, 0 are dead but not yet removable
removable cutoff: \d+, which was \d+ XIDs old when operation ended
index scan needed: \d+ pages from table \([\d.]+% of total\) had 1000 dead item identifiers removed
index "ever_pkey": pages: \d+ in total, \d+ newly deleted, \d+ currently deleted, \d+ reusable
avg read rate: .*
buffer usage: .*
WAL usage: .*
system usage: /, 'VACUUM (VERBOSE)');

# Dead rows for which maintenance_work_mem is too small go in several passes; rows that lie far
# apart are searched, others have bits
sql('CREATE TABLE passes (a int PRIMARY KEY, b int) USING sofort; CREATE INDEX passes_b ON passes USING btree (b); INSERT INTO passes SELECT i, i * 7919::bigint % 2200013 FROM generate_series(1, 2200000) i');
foreach my $step ([ 'a % 7 = 0', 4, 314285 ], [ 'a < 100 OR a > 2199900 OR a BETWEEN 1000000 AND 1000100', 1, 258 ])
{
	my ($dead, $passes, $n) = @$step;
	my $left = sql("SELECT count(*), sum(a), sum(b) FROM passes WHERE NOT ($dead)");
	sql("DELETE FROM passes WHERE $dead; SELECT txid_current()");
	$node->psql('postgres', q{SET maintenance_work_mem = '1MB'; VACUUM (VERBOSE) passes}, stderr => \$report);
	like($report, qr/"postgres\.public\.passes": index scans: $passes\n/, "VACUUM of $dead: passes over the indexes");
	like($report, qr/had $n dead item identifiers removed/, '... dead rows');
	is(sql('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(a), (SELECT sum(b) FROM passes WHERE b >= 0) FROM passes WHERE a > 0'), $left, '... both indexes have what is left');
	is(sql(q{SELECT * FROM sofort.verify('passes')}), '', '... verify');
}
sql('DROP TABLE passes');

sql('DELETE FROM ever WHERE id <= 2000; SELECT txid_current()');
$node->arm('store-roots-freed', 'wait');
my $vacuum = $node->background_psql('postgres');
$vacuum->query_until(qr/start/, "\\echo start\nVACUUM ever;\n");
ok($node->wait_at('store-roots-freed'), 'VACUUM frees rows');
is(sql('SELECT relid::regclass, phase, heap_blks_total > 0 AND heap_blks_total = heap_blks_scanned, index_vacuum_count FROM pg_stat_progress_vacuum'),
	'ever|vacuuming heap|t|1', 'pg_stat_progress_vacuum');
$node->disarm('store-roots-freed');
$vacuum->query_safe('SELECT 1');
$vacuum->quit;
is(sql(q{SELECT pg_stat_force_next_flush(); SELECT n_live_tup, n_dead_tup, vacuum_count >= 2 FROM pg_stat_user_tables WHERE relname = 'ever'}), "\n2000|0|t", 'pg_stat_user_tables');
sql(q{CREATE TABLE indexed (id int) USING sofort; CREATE INDEX indexed_btree ON indexed (id);
	CREATE INDEX indexed_sofort ON indexed USING sofort_index (id);
	INSERT INTO indexed SELECT generate_series(1, 100); DELETE FROM indexed WHERE id <= 50; SELECT txid_current()});
$node->arm('index-leaf-vacuumed', 'wait');
$vacuum = $node->background_psql('postgres');
$vacuum->query_until(qr/start/, "\\echo start\nVACUUM indexed;\n");
ok($node->wait_at('index-leaf-vacuumed'), 'VACUUM is in the second index');
SKIP:
{
	skip 'pg_stat_progress_vacuum has no indexes', 1 if $node->pg_version < 17;
	is(sql('SELECT phase, indexes_total, indexes_processed FROM pg_stat_progress_vacuum'), 'vacuuming indexes|2|1', 'and the first is counted');
}
$node->disarm('index-leaf-vacuumed');
$vacuum->query_safe('SELECT 1');
$vacuum->quit;

# ---- columns that have no values at first, or are added: decided when they have ----
sql(q{CREATE TABLE late (id int PRIMARY KEY, empty text, n numeric) USING sofort;
	CREATE TABLE late_heap (LIKE late) USING heap;
	CREATE PROCEDURE twins(statement text) LANGUAGE plpgsql AS $$
	BEGIN EXECUTE replace(statement, '@', 'late'); EXECUTE replace(statement, '@', 'late_heap'); COMMIT; END $$;
	CREATE FUNCTION encodings() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(column_name || ' ' || encoding, ', ' ORDER BY attnum) FROM sofort.columns WHERE relation = 'late'::regclass AND attnum > 1 $$;
	CALL twins('INSERT INTO @ SELECT i, NULL, i % 10 FROM generate_series(1, 3000) i')});
is(sql('SELECT encodings()'), 'empty reference, n dictionary', 'a column without values');
sql(q{CALL twins('ALTER TABLE @ ADD COLUMN added text, ADD COLUMN preset text DEFAULT ''preset''');
	CALL twins('INSERT INTO @ SELECT i, ''filled '' || i % 20, i % 10, ''added '' || i % 300, ''set '' || i % 3 FROM generate_series(3001, 9000) i')});
is(sql('SELECT encodings()'), 'empty dictionary, n dictionary, added dictionary, preset dictionary', 'a dictionary when there are values');
sql(q{CALL twins('UPDATE @ SET added = NULL, preset = NULL WHERE id % 7 = 0');
	CALL twins('UPDATE @ SET empty = ''changed '' || id WHERE id % 5 = 0');
	CALL twins('UPDATE @ SET empty = NULL, added = ''late '' || id % 11 WHERE id % 3 = 0')});
my $differences = 'SELECT count(*) FROM ((TABLE late EXCEPT ALL TABLE late_heap) UNION ALL (TABLE late_heap EXCEPT ALL TABLE late)) x';
is(sql($differences), 0, 'late decisions: contents are those of heap');
$node->kill9;
$node->start;
sql(q{CALL twins('INSERT INTO @ SELECT i, ''filled '' || i % 20, i % 10, ''added '' || i % 300, ''set '' || i % 3 FROM generate_series(9001, 20000) i')});
is(sql($differences), 0, 'late decisions: also after a crash');
is($node->verify_problems, '', 'late decisions: verify');

# ---- rows that do not fit hundreds of columns: a new shape, not one for each of them ----
{
	my $each = sub { my ($what, $n) = @_; return join(', ', map { $what =~ s/@/$_/gr } 1 .. ($n // 300)); };
	my $values = sub { my ($what) = @_; return 'SELECT i, ' . $each->($what) . ' FROM generate_series'; };

	foreach my $case (
		[ 'NULL', 'int', 'i * @', 'NULL', '(3001, 3001)' ],
		[ 'bigint', 'bigint', 'i * @', '(1::bigint << 40) + i * @', '(3001, 3001)' ],
		[ 'longer text', 'text', q{left(md5((i * @)::text), 12)}, q{repeat('x', 29 + @ % 3)}, '(3001, 3001)' ],
		[ 'more than 256 values', 'int', '(i + @) % 250', '(i + @) % 250 + (i - 3000) * 1000', '(3001, 3020)' ])
	{
		my ($what, $type, $old, $new, $series) = @$case;
		sql('CREATE TABLE wide (id int PRIMARY KEY, ' . $each->("c@ $type") . ') USING sofort; CREATE TABLE wide_heap (LIKE wide) USING heap');
		my $full;
		foreach my $table ('wide', 'wide_heap')
		{
			sql("INSERT INTO $table " . $values->($old) . '(1, 3000) i');
			$full = bytes('wide') if $table eq 'wide';
			sql("INSERT INTO $table " . $values->($new) . "$series i");
		}
		my $more = bytes('wide') - $full;
		cmp_ok($more, '<', 3_000_000, "$what in 300 columns: $more bytes more");
		is(sql('SELECT count(*) FROM ((TABLE wide EXCEPT ALL TABLE wide_heap) UNION ALL (TABLE wide_heap EXCEPT ALL TABLE wide)) x'), 0, "$what: contents are those of heap");
		is($node->verify_problems, '', "$what: verify");
		sql('DROP TABLE wide, wide_heap');
	}

	# each in another row: a column that had no NULL yet
	sql('CREATE TABLE wide (id int PRIMARY KEY, ' . $each->('c@ int') . ') USING sofort; INSERT INTO wide ' . $values->('i * @') . '(1, 3000) i');
	my $full = bytes('wide');
	sql(q{DO $$ BEGIN FOR k IN 1 .. 300 LOOP EXECUTE format('UPDATE wide SET c%s = NULL WHERE id = %s', k, k); COMMIT; END LOOP; END $$});
	my $more = bytes('wide') - $full;
	cmp_ok($more, '<', 3_000_000, "300 updates, each sets another column to NULL: $more bytes more");
	is(sql('SELECT count(*) FROM wide WHERE num_nulls(VARIADIC ARRAY[' . $each->('c@') . ']) = 1 AND id <= 300'), 300, 'and all are NULL');
	is($node->verify_problems, '', 'other columns: verify');
	sql('DROP TABLE wide');

	# the same of a large number, in a table that makes dozens of blocks at once
	sql('CREATE TABLE wide (id int PRIMARY KEY, ' . $each->('c@ bigint', 20) . ') USING sofort; INSERT INTO wide SELECT i, ' . $each->('i * @', 20) . ' FROM generate_series(1, 100000) i');
	$full = bytes('wide');
	sql(q{DO $$ BEGIN FOR k IN 1 .. 20 LOOP EXECUTE format('UPDATE wide SET c%s = 1::bigint << 40 WHERE id = %s', k, k); COMMIT; END LOOP; END $$});
	$more = bytes('wide') - $full;
	cmp_ok($more, '<', 2_000_000, "20 updates, each makes another column wider: $more bytes more");
	sql('INSERT INTO wide SELECT i, ' . $each->('(1::bigint << 40) + i', 20) . ' FROM generate_series(100001, 200000) i');
	cmp_ok(bytes('wide') - $full, '<', 1.2 * 100000 * (20 * 8 + 16 + 4), 'and rows for the new layout have what they need');
	is(sql('SELECT count(*), sum(c7 >> 40), sum(c20 >> 40) FROM wide'), '200000|100001|100001', 'other columns that are wider: values');
	is($node->verify_problems, '', 'other columns that are wider: verify');
	sql('DROP TABLE wide');
}

# ---- the first blocks are small, and lie in few of PostgreSQL's (226 rows in each, as on heap): each can go without the others ----
foreach my $gone ([ 1, 8 ], [ 9, 24 ], [ 25, 120 ], [ 1, 248 ])
{
	my ($first, $last) = @$gone;
	my $left = 400 - ($last - $first + 1);
	sql('CREATE TABLE small (id int PRIMARY KEY, v int) USING sofort; INSERT INTO small SELECT i, i FROM generate_series(1, 400) i');
	sql("DELETE FROM small WHERE id BETWEEN $first AND $last");
	sql('SELECT txid_current(); VACUUM small') foreach 1 .. 3;
	is(sql('SELECT count(*), sum(id) FROM small'), "$left|" . sql("SELECT sum(i) FROM generate_series(1, 400) i WHERE i NOT BETWEEN $first AND $last"), "rows $first to $last are gone: the others are scanned");
	sql('CREATE INDEX small_btree ON small USING btree (v); CREATE INDEX small_sofort ON small USING sofort_index (v); REINDEX INDEX small_pkey');
	is(sql("SET enable_seqscan = off; SELECT count(*) FROM small WHERE $_ > 0"), $left, "and are in a new index ($_)") foreach ('id', 'v', 'v + 0');
	sql('DROP INDEX small_btree');
	is(sql('SET enable_seqscan = off; SELECT count(*) FROM small WHERE v > 0'), $left, 'and in the other one');
	is(sql("SELECT count(*) FROM small TABLESAMPLE SYSTEM (100)"), $left, 'and sampled');
	is(sql("SELECT count(*) FROM small WHERE ctid < '(1,0)'"), sql("SELECT count(*) FROM generate_series(1, 226) i WHERE i NOT BETWEEN $first AND $last"), 'and in a range of TIDs');
	is($node->verify_problems, '', 'verify');
	sql('DROP TABLE small');
}

# ---- blocks that were given back before a start are made anew: each of their rows is used once ----
foreach my $with ('', 'WITH (fillfactor = 40)')
{
	sql("CREATE TABLE holes (id int, v int) USING sofort $with; INSERT INTO holes SELECT i, 0 FROM generate_series(1, 20000) i");
	sql('DELETE FROM holes WHERE id BETWEEN 2001 AND 18000');
	my $full = bytes('holes');
	sql('SELECT txid_current(); VACUUM holes') foreach 1 .. 3;
	cmp_ok(bytes('holes'), '<', $full / 2, "blocks are given back $with");
	$node->restart;
	sql('INSERT INTO holes SELECT i, 1 FROM generate_series(20001, 26000) i');
	sql('VACUUM holes');
	sql("UPDATE holes SET v = v + 1 WHERE id > 20000; INSERT INTO holes SELECT i, 2 FROM generate_series($_, $_ + 999) i") foreach map { 26001 + $_ * 1000 } 0 .. 19;
	is(sql('SELECT count(*), count(DISTINCT id) FROM holes'), '30000|30000', "after a start they are filled again, and no row is lost $with");
	is($node->verify_problems, '', "blocks that are filled again: verify $with");
	sql('DROP TABLE holes');
}

# ---- DROP and TRUNCATE: to the byte, but for what the pool itself has learned ----
foreach my $how ('DROP TABLE x', 'TRUNCATE x; DROP TABLE x', 'BEGIN; DROP TABLE x; ROLLBACK; DROP TABLE x')
{
	my $used;
	foreach my $round (1, 2)
	{
		$used = sql('SELECT used_bytes FROM sofort.pool');
		sql("CREATE TABLE x (id int PRIMARY KEY, v text) USING sofort; INSERT INTO x SELECT i, repeat('x', i % 300) FROM generate_series(1, 5000) i; UPDATE x SET v = v || 'y'; $how");
	}
	is(sql('SELECT used_bytes FROM sofort.pool'), $used, "$how: as many bytes are used as before");
}

# ---- row locks in a table that goes: the pool's file shrinks all the same ----
# (What has been given back to the file system must not be touched again.)
{
	my $make = q{CREATE TABLE x (id int, v text) USING sofort; INSERT INTO x SELECT i, 'row' FROM generate_series(1, 100000) i};
	my $lock = 'SELECT count(*) FROM (SELECT FROM x FOR UPDATE) l';
	my $file = sub { sql('SELECT sofort_test.give_back_free()'); return (stat($node->pool_file))[12] * 512; };
	my $least;
	sql("$make; DROP TABLE x");
	$least = $file->();
	sql($make);
	cmp_ok($file->(), '>', $least + 1_000_000, 'the table takes space in the file');
	sql('DROP TABLE x');
	cmp_ok($file->(), '<=', $least + 200_000, 'which comes back');
	foreach my $case (
		[ 'DROP', "$make; BEGIN; $lock; DROP TABLE x; COMMIT" ],
		[ 'DROP, locked in subtransactions', "$make; BEGIN; SAVEPOINT a; $lock; RELEASE a; SAVEPOINT b; DROP TABLE x; RELEASE b; COMMIT" ],
		[ 'TRUNCATE', "$make; BEGIN; $lock; TRUNCATE x; COMMIT" ],
		[ 'ROLLBACK of CREATE TABLE', "BEGIN; $make; $lock; ROLLBACK" ],
		[ 'ROLLBACK TO before CREATE TABLE', "BEGIN; SAVEPOINT a; $make; $lock; ROLLBACK TO a; CREATE TABLE y (i int) USING sofort; INSERT INTO y VALUES (1); COMMIT; DROP TABLE y" ],
		[ 'a rewrite, and DROP', "$make; BEGIN; $lock; ALTER TABLE x ALTER v TYPE varchar(2) USING 'x'; $lock; DROP TABLE x; COMMIT" ],
		[ 'DROP in a prepared transaction', "$make; BEGIN; $lock; DROP TABLE x; PREPARE TRANSACTION 'x'; COMMIT PREPARED 'x'" ],
		[ 'ROLLBACK PREPARED of CREATE TABLE', "BEGIN; $make; $lock; PREPARE TRANSACTION 'x'; ROLLBACK PREPARED 'x'" ])
	{
		my ($what, $sql) = @$case;
		sql($sql);
		sql('DROP TABLE x') if $what eq 'TRUNCATE';
		cmp_ok($file->(), '<=', $least + 200_000, "$what: the file is as small as before");
	}
	is($node->verify_problems, '', 'row locks in tables that are gone: verify');
}

# ---- counts of rows, also after a crash ----
sql(q{CREATE TABLE counted (id int PRIMARY KEY, v int) USING sofort; INSERT INTO counted SELECT i, 0 FROM generate_series(1, 3000) i;
	BEGIN; INSERT INTO counted SELECT i, 0 FROM generate_series(4001, 5100) i; ROLLBACK;
	DELETE FROM counted WHERE id <= 500});
is(sql(q{SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'counted'::regclass}), '2500|1600', 'live and dead rows');
$node->kill9;
$node->start;
is(sql(q{SELECT count(*) FROM counted; SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'counted'::regclass}), "2500\n2500|1600", 'live and dead rows after a crash');
sql('VACUUM counted');
is(sql(q{SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'counted'::regclass}), '2500|0', 'live and dead rows after VACUUM');
# (of a shorter transaction also what it had reserved, and left empty)
sql('BEGIN; INSERT INTO counted SELECT i, 0 FROM generate_series(4001, 4100) i; ROLLBACK');
$node->kill9;
$node->start;
my ($live, $dead) = split /\|/, sql(q{SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'counted'::regclass});
is($live, 2500, 'a short transaction was rolled back before a crash: live rows');
cmp_ok($dead, '>=', 100, 'dead rows');
cmp_ok($dead, '<=', 200, 'and no more places than it had rows');
sql('VACUUM counted');
is(sql(q{SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'counted'::regclass}), '2500|0', 'and VACUUM frees them');

# ---- long values in a column that has a dictionary ----
sql(q{CREATE TABLE documents (id int PRIMARY KEY, d text) USING sofort; ALTER TABLE documents ALTER d SET STORAGE EXTERNAL;
	INSERT INTO documents SELECT i, '{}' FROM generate_series(1, 3000) i});
my $encoding = q{SELECT encoding FROM sofort.columns WHERE relation = 'documents'::regclass AND column_name = 'd'};
sql(q{UPDATE documents SET d = repeat('8192 ch.', 1024) WHERE id = 1});
is(sql($encoding), 'dictionary', 'a column with values that repeat has a dictionary, up to 8 kB');
foreach my $round (1 .. 4)
{
	sql("UPDATE documents SET d = (SELECT string_agg(md5(i::text || id || $round), '') FROM generate_series(1, 3125) i) WHERE id <= 40");
	is(sql($encoding), 'reference', 'longer ones have it leave that') if $round == 1;
	is(sql('SELECT count(*), sum(length(d)), count(DISTINCT d) FROM documents'), '3000|4005920|41', "documents, round $round");
	sql(q{UPDATE documents SET d = '{}' WHERE id <= 40});
	sql('VACUUM documents; SELECT pg_current_xact_id()') for 1 .. 3;
}
cmp_ok(bytes('documents'), '<', 6_000_000, 'so that VACUUM frees them, however few they are');
is($node->verify_problems, '', 'documents: verify');
sql('DROP TABLE documents');

# ---- an error while VACUUM frees chains ----
sql(q{CREATE TABLE kept (id int PRIMARY KEY, n int, d text) USING sofort; INSERT INTO kept SELECT i, 0, repeat(md5(i::text), 3) FROM generate_series(1, 5000) i;
	UPDATE kept SET n = 1});
my $vacuum_kept = 'VACUUM kept; SELECT pg_current_xact_id(); VACUUM kept; SELECT pg_current_xact_id()';
my $blocks_kept = q{SELECT blocks FROM sofort.tables WHERE relation = 'kept'::regclass};
my $fill = q{INSERT INTO kept SELECT i, 0, repeat(md5(i::text), 3) FROM generate_series(1, 5000) i WHERE i % 10 > 0; SELECT pg_current_xact_id(); UPDATE kept SET n = 1 WHERE id % 10 > 0};
sql("SELECT pg_current_xact_id(); DELETE FROM kept WHERE id % 10 > 0; SELECT pg_current_xact_id(); $vacuum_kept");
sql($fill);
my $enough = sql($blocks_kept);
foreach ([ 'store-chain-listed', 3000 ], [ 'store-roots-freed', 1 ], [ 'store-row-freed', 1000 ])
{
	my ($point, $nth) = @$_;
	sql('SELECT pg_current_xact_id(); DELETE FROM kept WHERE id % 10 > 0; SELECT pg_current_xact_id()');
	$node->arm($point, 'error', $nth);
	like($node->error_of('VACUUM kept'), qr/stop point "$point"/, "an error at $point while VACUUM frees chains");
	$node->disarm($point);
	sql($vacuum_kept);
	is(sql(q{SELECT live_rows, dead_rows FROM sofort.tables WHERE relation = 'kept'::regclass}), '500|500', '... the next one frees all but the roots of living rows');
	sql($fill);
	is(sql($blocks_kept), $enough, '... and all rows are used again');
	is(sql('SELECT count(*), count(DISTINCT d) FROM kept'), '5000|5000', '... no row is lost');
	is($node->verify_problems, '', "... verify");
}
sql('DROP TABLE kept');

# ---- VACUUM takes time in proportion to the rows of a table ----
{
	# of the processor, in seconds
	my $vacuum = sub {
		my ($table) = @_;
		my $err;

		sql('SELECT pg_current_xact_id(); SELECT pg_current_xact_id()');	# ends the quarantine
		$node->psql('postgres', "VACUUM (VERBOSE) $table", stderr => \$err);
		die $err if $err !~ /CPU: user: ([0-9.]+) s, system: ([0-9.]+) s/;
		return $1 + $2;
	};

	sql('CREATE TABLE gone (a int, b int) USING sofort; INSERT INTO gone SELECT i, i FROM generate_series(1, 2000000) i');
	my $full = bytes('gone');
	sql('DELETE FROM gone WHERE a % 2 = 0');
	my $time = $vacuum->('gone');
	sql('DELETE FROM gone');
	cmp_ok($vacuum->('gone'), '<', 4 * $time, 'rows freed one by one, and as many in quarantine: half as fast as the first half');
	cmp_ok($vacuum->('gone'), '<', 4 * $time, 'their blocks are released as fast');
	cmp_ok(bytes('gone'), '<', $full / 20, 'and the space is back');
	is($node->verify_problems, '', 'many free rows: verify');
	sql('DROP TABLE gone');
}

$node->stop;
$node->teardown_node;
done_testing();
