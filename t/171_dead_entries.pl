# Scans remove index entries of rows that nobody sees any more: queues of all
# placements, keys that come and go, VACUUM beside them, old snapshots, and crashes.
# Nothing is taken from a queue twice, and nothing is lost; parallel scans of an
# index that is being rebuilt. SOFORT_LONG: longer.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

my $seconds = $ENV{SOFORT_LONG} ? 30 : 3;
my $node = SofortNode->new('queue');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_connections = 30', 'max_worker_processes = 12' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE SEQUENCE s;
	CREATE TABLE keys (k int, n int) USING sofort;
	CREATE INDEX keys_k ON keys USING sofort_index (k);
	CREATE INDEX keys_pmem ON keys USING sofort_index (k, n) WITH (placement = pmem);
	CREATE TABLE done (queue text, id bigint) USING heap});
foreach my $placement (qw(dram pmem hybrid))
{
	$node->safe_psql('postgres', qq{
		SET sofort.index_placement = $placement;
		CREATE TABLE q_$placement (id bigint PRIMARY KEY, t text) USING sofort;
		CREATE TABLE put_$placement (id bigint) USING heap});
}

my %script;
foreach my $placement (qw(dram pmem hybrid))
{
	# both tables at once, so that what was put and what is left can be compared
	$script{$placement} = $node->basedir . "/$placement.sql";
	append_to_file($script{$placement}, qq{
WITH new AS (INSERT INTO q_$placement SELECT nextval('s'), 'text' FROM generate_series(1, 3) RETURNING id) INSERT INTO put_$placement SELECT id FROM new;
WITH got AS (DELETE FROM q_$placement WHERE id = (SELECT id FROM q_$placement ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id) INSERT INTO done SELECT '$placement', id FROM got;
WITH got AS (DELETE FROM q_$placement WHERE id = (SELECT id FROM q_$placement ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id) INSERT INTO done SELECT '$placement', id FROM got;
WITH got AS (DELETE FROM q_$placement WHERE id IN (SELECT id FROM q_$placement ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 2) RETURNING id) INSERT INTO done SELECT '$placement', id FROM got;
});
}
$script{keys} = $node->basedir . '/keys.sql';
append_to_file($script{keys}, q{\set k random(1, 40)
\set m random(1, 40)
DELETE FROM keys WHERE k = :k;
INSERT INTO keys SELECT :k, i FROM generate_series(1, 3) i;
SELECT count(*) FROM keys WHERE k = :m;
SELECT count(*) FROM keys WHERE k > :m AND n = 2;
});
$script{vacuum} = $node->basedir . '/vacuum.sql';
append_to_file($script{vacuum}, "VACUUM keys;\nVACUUM q_dram, q_pmem, q_hybrid;\nSELECT pg_sleep(0.02);\n");
$script{old} = $node->basedir . '/old.sql';
append_to_file($script{old}, q{BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) AS n FROM keys \gset
SELECT pg_sleep(0.05);
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
SELECT 1 / (CASE WHEN count(*) = :n THEN 1 ELSE 0 END) FROM keys WHERE k > 0;
SELECT 1 / (CASE WHEN count(*) = :n THEN 1 ELSE 0 END) FROM keys WHERE k > 0 AND n > 0;
COMMIT;
});

sub start_load
{
	my ($seconds) = @_;
	my @jobs;
	foreach my $name (sort keys %script)
	{
		my ($out, $err) = ('', '');
		my $clients = $name eq 'vacuum' ? 1 : 2;
		push @jobs, { name => $name, err => \$err,
			run => IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-T', $seconds, '-f', $script{$name}, $node->connstr('postgres') ],
				'<', \undef, '>', \$out, '2>', \$err) };
	}
	return @jobs;
}

sub check
{
	my ($what) = @_;
	is($node->verify_problems, '', "$what: verify");
	foreach my $placement (qw(dram pmem hybrid))
	{
		is($node->safe_psql('postgres', "SELECT id FROM done WHERE queue = '$placement' GROUP BY id HAVING count(*) > 1"), '', "$what, $placement: nothing was taken twice");
		is($node->safe_psql('postgres', "(SELECT id FROM put_$placement EXCEPT (SELECT id FROM done WHERE queue = '$placement' UNION ALL SELECT id FROM q_$placement))
			UNION ALL (SELECT id FROM q_$placement UNION ALL SELECT id FROM done WHERE queue = '$placement') EXCEPT SELECT id FROM put_$placement"), '', "$what, $placement: nothing was lost");
	}
	my $all = $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT k, count(*), sum(n) FROM keys GROUP BY k ORDER BY k');
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT k, count(*), sum(n) FROM keys WHERE k > 0 $_ GROUP BY k ORDER BY k"), $all, "$what: keys") foreach ('', 'AND n > 0');
	return;
}

foreach my $round (1 .. 3)
{
	my @jobs = start_load($round == 1 ? $seconds : 60);
	if ($round > 1)
	{
		usleep($seconds * 500_000);
		$node->kill9;
	}
	foreach my $job (@jobs)
	{
		my $ok = $job->{run}->finish;
		ok($ok, "load $job->{name}") || diag(${ $job->{err} }) if $round == 1;
	}
	$node->start if $round > 1;
	check($round == 1 ? 'load' : 'after a crash');
}
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM done'), '>', 100, 'something was taken');

# a queue needs no VACUUM: its index does not grow
$node->safe_psql('postgres', q{TRUNCATE q_dram, q_pmem, q_hybrid;
	CREATE PROCEDURE work(q text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 3000 LOOP
			EXECUTE format('INSERT INTO %I VALUES (%s)', q, i);
			EXECUTE format('DELETE FROM %I WHERE id = (SELECT id FROM %I ORDER BY id LIMIT 1)', q, q);
			COMMIT;
		END LOOP;
	END $$});
foreach my $placement (qw(dram pmem hybrid))
{
	$node->safe_psql('postgres', "CALL work('q_$placement')");
	cmp_ok($node->safe_psql('postgres', "SELECT entries FROM sofort.indexes WHERE relation = 'q_$placement'::regclass"), '<', 600, "$placement: most entries are gone");
}
is($node->verify_problems, '', 'queue: verify');

# sofort.verify() looks at a tree as a whole: meanwhile scans leave entries of dead rows alone
foreach my $placement (qw(dram hybrid pmem))
{
	$node->safe_psql('postgres', qq{SET sofort.index_placement = $placement;
		CREATE TABLE w (id int PRIMARY KEY, t text) USING sofort; CREATE INDEX w_t ON w USING sofort_index (t);
		INSERT INTO w SELECT i, 'a text of some length ' || i FROM generate_series(1, 30000) i;
		DELETE FROM w WHERE id % 50 <> 0});
	$node->safe_psql('postgres', 'SELECT pg_current_xact_id()') foreach 1 .. 3;
	my $entries = q{SELECT string_agg(entries::text, ' ' ORDER BY index) FROM sofort.indexes WHERE relation = 'w'::regclass};
	my $scans = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM (SELECT id FROM w WHERE id > 0 ORDER BY id DESC) x; SELECT count(*) FROM (SELECT t FROM w ORDER BY t DESC) x';
	my $before = $node->safe_psql('postgres', $entries);
	$node->arm('verify-children', 'wait');
	my ($found, $errors) = ('', '');
	my $verify = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{SELECT * FROM sofort.verify('w')} ],
		'<', \undef, '>', \$found, '2>', \$errors);
	ok($node->wait_at('verify-children'), "$placement: verify is at a root");
	is($node->safe_psql('postgres', $scans), "600\n600", "$placement: a scan beside it");
	is($node->safe_psql('postgres', q{SELECT index::regclass::text FROM sofort.indexes WHERE relation = 'w'::regclass AND entries < 30000}), 'w_t', "$placement: the other index has lost entries");
	$node->disarm('verify-children');
	$verify->finish;
	is($found . $errors, '', "$placement: nothing is wrong");
	is($node->safe_psql('postgres', $scans), "600\n600", "$placement: a scan afterwards");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sofort.indexes WHERE relation = 'w'::regclass AND entries < 1000}), '2', "$placement: removes the entries");
	is($node->verify_problems, '', "$placement: verify");
	$node->safe_psql('postgres', 'DROP TABLE w');
}

# parallel scans while the index is rebuilt: one process reads it all, or waits
$node->safe_psql('postgres', q{CREATE TABLE p (id int, t text, f int) USING sofort;
	INSERT INTO p SELECT i, 't' || i, i % 10 FROM generate_series(1, 150000) i;
	CREATE INDEX p_id ON p USING sofort_index (id); CREATE INDEX p_f ON p USING sofort_index (f, id); ANALYZE p});
my $parallel = 'SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0; SET enable_seqscan = off; SET enable_bitmapscan = off;';
foreach my $mode (qw(instant synchronous))
{
	$node->append_conf('postgresql.conf', "sofort.recovery_mode = $mode\nsofort.recovery_workers = 0\n");
	$node->kill9;
	$node->start;
	like($node->safe_psql('postgres', "$parallel EXPLAIN SELECT count(*), sum(f) FROM p WHERE id BETWEEN 100 AND 149000"), qr/Parallel Index/, "$mode: a parallel plan");
	is($node->safe_psql('postgres', "$parallel SELECT count(*), sum(f) FROM p WHERE id BETWEEN 100 AND 3000"), '2901|13050', "$mode: a part");
	is($node->safe_psql('postgres', "$parallel SELECT count(*), sum(f) FROM p WHERE id BETWEEN 100 AND 149000"), '148901|670050', "$mode: nearly all");
	is($node->safe_psql('postgres', "$parallel SELECT count(*), sum(id) FROM p WHERE f IN (1, 3, 5, 7, 9)"), '75000|5625000000', "$mode: by an array");
}

$node->stop;
$node->teardown_node;
done_testing();
