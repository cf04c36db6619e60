# Many clients on few rows, all kinds of statements and of maintenance, backends
# terminated and killed, the server killed between rounds: the sum over two
# tables (one of them heap) stays 0, every index agrees with its table, a
# REPEATABLE READ snapshot gives the same answer twice, verify finds nothing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;
use Time::HiRes qw(time usleep);

plan skip_all => 'needs sofort' unless $SofortNode::am eq 'sofort';

my $rounds = $ENV{SOFORT_LONG} ? 12 : 3;
my $seconds = 4;
my $node = SofortNode->new('torture');
$node->init(conf => [ 'autovacuum_naptime = 1s', 'lock_timeout = 5s', 'log_min_messages = log' ]);
$node->start;
$node->safe_psql(
	'postgres', q{
	SET default_table_access_method = sofort;
	CREATE TABLE p (id int PRIMARY KEY, bal int NOT NULL, v int, k int UNIQUE);
	CREATE INDEX p_v ON p (v);
	CREATE TABLE c (id int PRIMARY KEY, pid int NOT NULL REFERENCES p, v int, t text);
	CREATE INDEX c_pid ON c (pid);
	CREATE TABLE h (id int PRIMARY KEY, bal int NOT NULL) USING heap;
	INSERT INTO p SELECT i, 0, i % 10, i FROM generate_series(1, 100) i;
	INSERT INTO c SELECT i, 1 + i % 100, i % 50, repeat('x', i % 200) FROM generate_series(1, 1500) i;
	INSERT INTO h SELECT i, 0 FROM generate_series(1, 100) i});

my %script = (
	transfer => q{
\set a random(1, 100)
\set b random(1, 100)
\set d random(-9, 9)
BEGIN; UPDATE p SET bal = bal + :d WHERE id = least(:a, :b); UPDATE p SET bal = bal - :d WHERE id = greatest(:a, :b); END;},
	hot => q{
\set a random(1, 4)
\set d random(-9, 9)
BEGIN; UPDATE p SET bal = bal + :d WHERE id = :a; SAVEPOINT s;
UPDATE p SET bal = bal + 1000, v = v + 1, k = k + 100000 WHERE id IN (:a, 5); ROLLBACK TO s;
UPDATE p SET bal = bal - :d, v = v + 1 WHERE id = 5; END;},
	mixed => q{
\set a random(1, 100)
\set d random(-9, 9)
BEGIN; UPDATE h SET bal = bal + :d WHERE id = :a; UPDATE p SET bal = bal - :d WHERE id = :a; END;},
	again => q{
\set a random(1, 1500)
\set b random(1, 100)
BEGIN; DELETE FROM c WHERE id = :a;
INSERT INTO c VALUES (:a, :b, :a % 50, repeat('y', :b * 20)) ON CONFLICT (id) DO UPDATE SET v = excluded.v; END;},
	lock => q{
\set a random(1, 5)
\set b random(1, 1500)
BEGIN; SELECT * FROM p WHERE id = :a FOR KEY SHARE; SAVEPOINT s; SELECT * FROM p WHERE id = :a FOR UPDATE; ROLLBACK TO s;
UPDATE c SET pid = :a, v = v + 1 WHERE id = :b; SELECT * FROM p WHERE id > 90 FOR SHARE SKIP LOCKED; END;},
	serializable => q{
\set a random(1, 100)
\set b random(1, 100)
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(bal) FROM p WHERE id < 50; UPDATE p SET bal = bal - 3 WHERE id = :b;
UPDATE p SET bal = bal + 3 WHERE id = :a; END;},
	parent => q{
\set a random(201, 220)
\set m random(1, 2)
DO $$ BEGIN
IF :m = 1 THEN INSERT INTO p VALUES (:a, 0, 3, :a); INSERT INTO c VALUES (:a + 10000, :a, 1, repeat('q', 3000));
ELSE DELETE FROM c WHERE id = :a + 10000; DELETE FROM p WHERE id = :a; END IF;
EXCEPTION WHEN foreign_key_violation OR unique_violation OR deadlock_detected THEN NULL; END $$;},
	bulk => q{
\set a random(0, 6)
BEGIN; INSERT INTO c SELECT 20000 + :a * 1000 + g, 1 + g % 100, g, 'bulk' FROM generate_series(1, 200) g ON CONFLICT DO NOTHING;
DELETE FROM c WHERE id BETWEEN 20000 AND 40000 AND id % 7 = :a; END;});

my @files;
foreach my $name (sort keys %script)
{
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.sql";
	append_to_file($file, $script{$name} . "\n");
	push @files, '-f', $file;
}

my @maintenance = (
	'VACUUM p', 'VACUUM c', 'VACUUM FULL c', 'CLUSTER p USING p_v', 'REINDEX TABLE p',
	'REINDEX TABLE CONCURRENTLY c', 'CREATE INDEX CONCURRENTLY c_extra ON c (t, v)',
	'DROP INDEX IF EXISTS c_extra', 'ALTER TABLE c ADD COLUMN IF NOT EXISTS x int DEFAULT 5',
	'ALTER TABLE c DROP COLUMN IF EXISTS x', 'ANALYZE');

# A table by each of its indexes and without, twice in one snapshot.
my $look = 'SELECT count(*) AS n, count(DISTINCT id) AS d, sum(bal) AS s FROM p WHERE ';
my $check = q{BEGIN ISOLATION LEVEL REPEATABLE READ;
	SELECT (SELECT sum(bal) FROM p) + (SELECT sum(bal) FROM h) = 0;
	CREATE TEMP TABLE seen ON COMMIT DROP AS } . $look . q{true;
	SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
	SELECT pg_sleep(0.3) IS NOT NULL;}
  . join('', map { "SELECT (SELECT seen FROM seen)::text = (SELECT l FROM ($look $_) l)::text;" }
	  'id > 0', 'v > -1', 'k > 0')
  . q{SELECT count(*) = count(DISTINCT id) FROM c WHERE pid > 0;
	SELECT NOT EXISTS (SELECT FROM c WHERE NOT EXISTS (SELECT FROM p WHERE p.id = c.pid));
	COMMIT;};

sub try_sql
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \$sql, '>', \$out, '2>', \$err);
	return $ok ? $out : undef;
}

srand($ENV{SOFORT_SEED} || 4711);
my $looks = 0;
foreach my $round (1 .. $rounds)
{
	my ($out, $err) = ('', '');
	my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 8, '-T', $seconds, '--max-tries=5', @files, $node->connstr('postgres') ],
		'<', \undef, '>', \$out, '2>', \$err);
	my $until = time() + $seconds - 0.5;
	my @wrong;
	while (time() < $until)
	{
		try_sql($maintenance[ rand @maintenance ]);
		try_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench' LIMIT 1")
		  if rand() < 0.1;
		my $seen = try_sql($check);
		next unless defined $seen;
		$looks++;
		push @wrong, $seen if $seen =~ /f/;
	}
	is("@wrong", '', "round $round: what was seen meanwhile");
	if ($round % 2) { $node->kill9; }
	else
	{
		my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
		$pid =~ /^\d+$/ or BAIL_OUT('there is no checkpointer');
		kill('KILL', $pid);
	}
	IPC::Run::finish($load);
	if   ($round % 2) { $node->start; }
	else              { usleep(200_000); $node->wait_ready; }
	my $seen;
	for (1 .. 100) { last if defined($seen = try_sql($check)); usleep(50_000); }
	is($seen, "t\n" x 7, "round $round: after the crash");
	is($node->verify_problems, '', "round $round: verify");
}
cmp_ok($looks, '>', 0, 'somebody looked');
$node->stop;
done_testing();
