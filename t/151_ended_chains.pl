# Rows that were deleted, or whose indexed columns were changed, are freed by later
# updates and deletions, with their index entries: tables under such load hardly
# grow without VACUUM, beside old snapshots, VACUUM, builds of indexes and crashes
# no row is lost or found twice, and no entry is left behind.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('ended');
$node->init(conf => [ 'autovacuum = off', 'jit = off', "sofort.pool_size = '1GB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub bytes { return sql("SELECT pool_bytes FROM sofort.tables WHERE relation = '$_[0]'::regclass"); }
my ($live, $grown, $old);

# ---- updates of indexed columns, deletions: updaters remove index entries, too ----
sub create_keys
{
	my ($placement, $rows) = @_;
	sql(qq{DROP TABLE IF EXISTS k; SET sofort.index_placement = $placement;
		CREATE TABLE k (id int PRIMARY KEY, n int, s text, d text) USING sofort;
		CREATE INDEX k_n ON k USING sofort_index (n) INCLUDE (id);
		CREATE INDEX k_s ON k USING sofort_index (s, n DESC);
		CREATE INDEX k_d ON k USING sofort_index (d) WHERE n % 2 = 0;
		INSERT INTO k SELECT i, 0, 'a text that is longer than sixteen bytes ' || i, 'status ' || i % 10 FROM generate_series(1, $rows) i});
	return;
}

# Every row by each of its keys, and nothing else
sub keys_are
{
	my ($rows, $n, $what) = @_;
	is(sql("SELECT count(*), count(DISTINCT id) FROM k"), "$rows|$rows", "$what: every row once");
	foreach my $by ('id = i', "n BETWEEN $n - 2 AND $n AND n = i % 1 + k.n AND id = i", q{s LIKE 'a text that%' AND id = i}, q{d = 'status ' || i % 10 AND n % 2 = 0 AND id = i})
	{
		my $expected = sql("SELECT count(*) FROM k, generate_series(1, $rows) i WHERE $by");
		is(sql("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SELECT count(*) FROM generate_series(1, $rows) i, k WHERE $by"), $expected, "$what: by index ($by)");
	}
	is($node->verify_problems, '', "$what: verify");
	return;
}

sql(q{CREATE PROCEDURE rekey(first int, rounds int, rows int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN first * rows + 1 .. (first + rounds) * rows LOOP
			UPDATE k SET n = n + 1, d = 'status ' || r % 10, s = 'a text that is longer than sixteen bytes ' || r % 50 WHERE id = 1 + (r::bigint * 1777) % rows;
			COMMIT;
		END LOOP;
	END $$;
	CREATE PROCEDURE queue(rounds int) LANGUAGE plpgsql AS $$
	DECLARE next int := (SELECT max(id) + 1 FROM k);
	BEGIN
		FOR r IN next .. next + rounds - 1 LOOP
			INSERT INTO k VALUES (r, 0, 'a text that is longer than sixteen bytes ' || r, 'status ' || r % 10);
			DELETE FROM k WHERE id = (SELECT id FROM k ORDER BY id LIMIT 1);
			COMMIT;
		END LOOP;
	END $$});
sub index_bytes { return sql(q{SELECT sum(dram_bytes + pool_bytes) FROM sofort.indexes WHERE relation = 'k'::regclass}); }
foreach my $placement ('dram', 'pmem', 'hybrid')
{
	create_keys($placement, 1000);
	$live = bytes('k');
	my $index_live = index_bytes();
	sql('CALL rekey(0, 6, 1000)');
	cmp_ok(bytes('k'), '<', 1.6 * $live, "$placement: updates of indexed columns: a table without VACUUM hardly grows");
	cmp_ok(index_bytes(), '<', 2.5 * $index_live, "$placement: its indexes do not grow much");
	cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '<', 200, "$placement: few dead rows");
	keys_are(1000, 6, $placement);
	sql('CALL queue(3000)');
	cmp_ok(bytes('k'), '<', 2 * $live, "$placement: a queue does not grow");
	cmp_ok(index_bytes(), '<', 3 * $index_live, "$placement: nor do its indexes");
	is(sql('SELECT min(id), max(id), count(*) FROM k'), '3001|4000|1000', "$placement: the queue holds what it should");
	is($node->verify_problems, '', "$placement: queue: verify");

	# killed between the removal of entries and freeing the rows
	ok($node->crash_at('store-entries-removed', 'UPDATE k SET id = id - 3000; CALL rekey(0, 1, 1000)', 20), "$placement: killed when entries were removed");
	$node->start;
	is($node->verify_problems, '', "$placement: killed when entries were removed: verify");
	sql('UPDATE k SET id = id - 3000 WHERE id > 3000; CALL rekey(0, 2, 1000)');
	is($node->verify_problems, '', "$placement: goes on after it: verify");
	sql('VACUUM k; CALL rekey(0, 1, 1000)');
	is(sql('SELECT count(*), count(DISTINCT id), min(id), max(id) FROM k'), '1000|1000|1|1000', "$placement: no row is lost");
	is($node->verify_problems, '', "$placement: after VACUUM: verify");
}

# an old snapshot keeps its versions and their entries
create_keys('dram', 2000);
$old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM k');
sql('CALL rekey(0, 3, 2000)');
is($old->query_safe('SET enable_seqscan = off; SELECT count(*) FROM k WHERE n = 0'), 2000, 'indexed columns: an old snapshot finds its versions');
is($old->query_safe('SELECT count(*) FROM generate_series(1, 2000) i JOIN k ON k.id = i AND n = 0'), 2000, 'by each index');
$grown = bytes('k');
$old->query_safe('COMMIT');
$old->quit;
sql('CALL rekey(3, 6, 2000)');
cmp_ok(bytes('k'), '<=', $grown, 'indexed columns: when it has ended, its space is used again');
cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '<', 200, 'without VACUUM');
keys_are(2000, 9, 'old snapshot, indexed columns');

# VACUUM has a list of dead rows: until it has freed them, nobody else may
sql('DELETE FROM k WHERE id % 2 = 0; SELECT txid_current()');
$node->arm('vacuum-dead-rows-listed', 'wait');
my $lister = $node->background_psql('postgres');
$lister->query_until(qr/start/, "\\echo start\nVACUUM k;\n");
ok($node->wait_at('vacuum-dead-rows-listed'), 'VACUUM has listed dead rows');
sql(q{INSERT INTO k SELECT i, 0, 'a text that is longer than sixteen bytes ' || i, 'status ' || i % 10 FROM generate_series(2, 2000, 2) i; CALL rekey(0, 4, 2000)});
$node->disarm('vacuum-dead-rows-listed');
$lister->query_safe('SELECT 1');
is(sql('SELECT count(*), count(DISTINCT id) FROM k'), '2000|2000', 'beside VACUUM: every row once');
is($node->verify_problems, '', 'beside VACUUM, indexed columns: verify');

# indexes that are built meanwhile
$lister->query_until(qr/start/, "\\echo start\nCALL rekey(0, 12, 2000);\n");
foreach my $i (1 .. 3)
{
	sql("CREATE INDEX CONCURRENTLY k_more$i ON k USING sofort_index (n, d)");
	sql('REINDEX INDEX CONCURRENTLY k_s');
	sql("DROP INDEX CONCURRENTLY k_more$i") if $i < 3;
}
$lister->query_safe('SELECT 1');
is($node->verify_problems, '', 'beside concurrent builds: verify');
sql('CALL rekey(0, 1, 2000)');
is(sql('SELECT count(*), count(DISTINCT id) FROM k'), '2000|2000', 'beside concurrent builds: every row once');
is($node->verify_problems, '', 'after concurrent builds: verify');
$lister->quit;

# values of dictionaries that dead rows still refer to were freed, and their codes
# given to other values: such rows do not tell where their entries are
sql(q{DROP TABLE k; CREATE TABLE k (id int PRIMARY KEY, v text) USING sofort; CREATE INDEX ON k USING sofort_index (v);
	INSERT INTO k SELECT i, 'first ' || i % 500 FROM generate_series(1, 3000) i});
sql(q{UPDATE k SET v = 'second ' || id % 500});
sql('VACUUM (INDEX_CLEANUP off) k; SELECT txid_current()') foreach 1 .. 10;
is(sql(q{SELECT dictionary_entries FROM sofort.columns WHERE relation = 'k'::regclass AND column_name = 'v'}), 500, 'values that only dead rows use are freed');
foreach my $text ('third', 'fourth', 'fifth')
{
	sql("UPDATE k SET v = '$text ' || id % 500 WHERE id <= 1500; UPDATE k SET v = '$text ' || id % 500 WHERE id > 1500");
	is($node->verify_problems, '', "$text values: verify");
}
is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM k WHERE v LIKE 'fifth %'; SELECT count(*) FROM k WHERE v >= 'a'}), "3000\n3000", 'rows by values whose codes were used before');
sql('VACUUM k');
is($node->verify_problems, '', 'values: after VACUUM: verify');
sql('DROP TABLE k');

# an index that was made when chains had versions with other values than their
# roots: the newest version tells where the entry is
sql(q{CREATE TABLE k (id int PRIMARY KEY, n int, s text) USING sofort;
	INSERT INTO k SELECT i, i, 'text ' || i % 100 FROM generate_series(1, 2000) i;
	UPDATE k SET n = n + 1000000, s = 'later ' || id % 90});
sql('CREATE INDEX k_n ON k USING sofort_index (n); CREATE INDEX k_s ON k USING sofort_index (s, n)');
sql(q{CREATE PROCEDURE lower(first int, last int) LANGUAGE plpgsql AS $$
	BEGIN FOR r IN first .. last LOOP UPDATE k SET n = n - 1000000 WHERE id = r; COMMIT; END LOOP; END $$});
sql('CALL lower(1, 2000)');
cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '<', 500, 'chains that differ from their roots are freed');
is($node->verify_problems, '', 'chains that differ: verify');
sql(q{INSERT INTO k SELECT i, i, 'new ' || i FROM generate_series(2001, 5000) i});
is(sql('SET enable_seqscan = off; SELECT count(*), min(n), max(n) FROM k WHERE n > 0'), '5000|1|5000', 'chains that differ: rows by the new index');
is($node->verify_problems, '', 'chains that differ, and row ids used again: verify');

# while an index is being built the chains wait, and are not forgotten
sql(q{DROP TABLE k; CREATE TABLE k (id int PRIMARY KEY, n int, s text) USING sofort; CREATE INDEX k_n ON k USING sofort_index (n);
	INSERT INTO k SELECT i, i, 'new ' || i FROM generate_series(1, 5000) i});
$old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM k');
my $builder = $node->background_psql('postgres');
$builder->query_until(qr/start/, "\\echo start\nCREATE INDEX CONCURRENTLY k_built ON k USING sofort_index (s);\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots'}) or die;
$old->query_safe('COMMIT');
$builder->query_safe('SELECT 1');
$old->query_safe('BEGIN; LOCK TABLE k IN ROW EXCLUSIVE MODE');
$builder->query_until(qr/start/, "\\echo start\nREINDEX INDEX CONCURRENTLY k_built;\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for writers%'}) or die;
sql(q{CREATE PROCEDURE drain(first int, last int) LANGUAGE plpgsql AS $$
	BEGIN FOR r IN first .. last LOOP DELETE FROM k WHERE id = r; COMMIT; END LOOP; END $$});
sql('CALL drain(1, 1500)');
cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '>=', 1500, 'nothing is freed while an index is being built');
$old->query_safe('COMMIT');
$builder->query_safe('SELECT 1');
sql('CALL drain(1501, 2500)');
cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '<', 500, 'but afterwards');
is($node->verify_problems, '', 'chains that have waited: verify');
is(sql('SELECT count(*), min(id) FROM k'), '2500|2501', 'no row is lost');

# nor by a transaction that may bring back an index that it has dropped or made anew
{
	my %change = ('DROP INDEX' => 'DROP INDEX x_n', 'REINDEX' => 'REINDEX INDEX x_n', 'REINDEX TABLE' => 'REINDEX TABLE x',
		'DROP CONSTRAINT' => 'ALTER TABLE x DROP CONSTRAINT x_u', 'DROP COLUMN' => 'ALTER TABLE x DROP COLUMN n', 'TYPE' => 'ALTER TABLE x ALTER v TYPE varchar(30)',
		'TABLESPACE' => 'ALTER INDEX x_n SET TABLESPACE elsewhere', 'btree' => 'DROP INDEX x_b');
	mkdir $node->basedir . '/elsewhere';
	sql("CREATE TABLESPACE elsewhere LOCATION '" . $node->basedir . "/elsewhere'");
	foreach my $what (sort keys %change)
	{
		foreach my $how ('ROLLBACK', 'savepoint', 'crash')
		{
			my $placement = (qw(dram hybrid pmem))[ length("$what$how") % 3 ];
			sql(qq{SET sofort.index_placement = $placement;
				CREATE TABLE x (id int PRIMARY KEY, n int, u int CONSTRAINT x_u UNIQUE, v varchar(20)) USING sofort;
				CREATE INDEX x_n ON x USING sofort_index (n); CREATE INDEX x_v ON x USING sofort_index (v);
				INSERT INTO x SELECT i, i, i, i FROM generate_series(1, 1000) i});
			sql('CREATE INDEX x_b ON x USING btree (n)') if $what eq 'btree';
			sql('DELETE FROM x WHERE id <= 100');
			sql('SELECT pg_current_xact_id()') foreach 1 .. 3;
			my $session = $node->background_psql('postgres');
			$session->query_safe('BEGIN');
			$session->query_safe('SAVEPOINT s') if $how eq 'savepoint';
			$session->query_safe("$change{$what}; DELETE FROM x WHERE id BETWEEN 101 AND 400");
			if ($how eq 'crash')
			{
				$node->crash_and_start($session);
			}
			else
			{
				$session->query_safe($how eq 'ROLLBACK' ? 'ROLLBACK' : 'ROLLBACK TO s; COMMIT');
				$session->quit;
			}
			sql('INSERT INTO x SELECT i, 1000000 + i, i, i FROM generate_series(2001, 2400) i');
			is(sql(q{SET enable_seqscan = off; SELECT count(*), count(*) FILTER (WHERE n <= 400) FROM x WHERE n BETWEEN 1 AND 400; SELECT count(*) FROM x WHERE u BETWEEN 1 AND 400; SELECT count(*) FROM x WHERE v = '50'}),
				"300|300\n300\n0", "$what, $how, $placement: rows by index");
			is($node->verify_problems, '', "$what, $how, $placement: verify");
			sql('DROP TABLE x');
		}
	}
}

# beside an index of another kind, and one with an expression, they wait for VACUUM
foreach my $index ('USING btree (n)', 'USING sofort_index ((n + 1))')
{
	sql("CREATE INDEX k_other ON k $index");
	my $from = sql('SELECT min(id) FROM k');
	sql("CALL drain($from, $from + 499)");
	cmp_ok(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), '>=', 500, "$index: deleted rows wait for VACUUM");
	sql('SET enable_seqscan = off; SELECT count(*) FROM k WHERE n > 0; VACUUM k');
	is(sql(q{SELECT dead_rows FROM sofort.tables WHERE relation = 'k'::regclass}), 0, "$index: VACUUM frees them");
	is($node->verify_problems, '', "$index: verify");
	sql('DROP INDEX k_other');
}
$old->quit;
$builder->quit;

# what a prepared transaction has deleted stays until it is decided
sql('ALTER SYSTEM SET max_prepared_transactions = 5');
$node->restart;
sql(q{BEGIN; DELETE FROM k WHERE id BETWEEN 4001 AND 4200; UPDATE k SET n = n + 1 WHERE id BETWEEN 4201 AND 4400; PREPARE TRANSACTION 'p'});
sql('CALL drain(3501, 4000)');
sql(q{ROLLBACK PREPARED 'p'; CALL drain(4401, 4600)});
is(sql('SELECT count(*) FROM k'), 800, 'what it had deleted is there when it is rolled back');
is($node->verify_problems, '', 'rolled back: verify');
is(sql('SET enable_seqscan = off; SELECT count(*) FROM k WHERE n BETWEEN 4001 AND 4400'), 400, 'and found by its keys');

$node->stop;
$node->teardown_node;
done_testing();
