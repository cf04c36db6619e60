# Power cuts of a file system that holds data directory, WAL and pool (medium
# msync), under load: a loop device with ext4 is shut down, so that nothing gets
# to it any more and what was not synchronised is gone; the server is killed, the
# file system mounted again. The outside witness says what must be there.
#
# Needs root (for ./check; the server runs as postgres) and loop devices.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $dir = $ENV{SOFORT_POWER_SWITCH};
my $mnt;

# One command for scripts/power_switch: '' or what went wrong
sub switch
{
	my ($command) = @_;
	open(my $request, '>', "$dir/request") or return "$dir/request: $!";
	print $request "$command\n";
	close $request;
	open(my $answer, '<', "$dir/answer") or return "$dir/answer: $!";
	my $line = <$answer>;
	chomp $line;
	return $line eq 'ok' ? '' : $line;
}

sub must
{
	my ($command) = @_;
	my $problem = switch($command);
	BAIL_OUT("power switch, $command: $problem") if $problem ne '';
	return;
}

my $why = $dir ? switch('make') : './check was not started as root';
if ($why ne '')
{
	diag("NOT TESTED: power cuts of a real file system ($why)");
	plan skip_all => "no power cuts of a real file system: $why";
}
plan skip_all => 'nothing of heap is under test here' if $SofortNode::am ne 'sofort';
$mnt = "$dir/mnt";

my $rounds = $ENV{SOFORT_LONG} ? 20 : 3;
my $writers = 4;
my $seed = $ENV{SOFORT_SEED} || time();
srand($seed);
note("SOFORT_SEED=$seed");

my $node = SofortNode->new('main');
$node->{_sofort_pool} = "$mnt/pool";
$node->init(conf => [ "sofort.durability = 'msync'", 'sofort.redo_size = 16MB', 'max_wal_size = 64MB' ]);
run_log([ 'mv', $node->data_dir, "$mnt/data" ]) && symlink("$mnt/data", $node->data_dir)
  or BAIL_OUT('cannot move the data directory');
run_log([ 'sync', '-f', $mnt ]);	# what initdb and mv wrote is not under test
$node->start;
is($node->safe_psql('postgres', 'SELECT medium, flush FROM sofort.pool'), 'msync|redo log', 'medium');
like($node->safe_psql('postgres', 'SELECT promise FROM sofort.pool'), qr/survive crashes and power loss/, 'promise');
$node->witness_init('sofort', 'heap');
$node->safe_psql('postgres', q{
	CREATE TABLE churn (a int PRIMARY KEY, b text) USING sofort;
	CREATE INDEX ON churn USING sofort_index (b) WITH (placement = pmem)});

sub cut
{
	must('cut');
	$node->kill9;
	must('mount');
	return;
}

# One process dies while it changes rows and an index in the pool, and the others with it: what
# they had stored and not drained is visible in the next life, which relies on it.
sub kill_one
{
	my $life = $node->life;
	my $session = fork();
	if ($session == 0)
	{
		open(STDOUT, '>', '/dev/null');
		open(STDERR, '>&', \*STDOUT);
		exec('psql', '-Xq', '-d', $node->connstr('postgres'), '-c',
			'DO $$ BEGIN LOOP UPDATE churn SET b = left(b, 1000) || a; END LOOP; END $$') or POSIX::_exit(1);
	}
	my $backend = q{FROM pg_stat_activity WHERE query LIKE 'DO%'};
	$node->wait_until("SELECT count(*) > 0 $backend");
	usleep(int(rand(400_000)));
	kill('KILL', $node->safe_psql('postgres', "SELECT pid $backend"));
	waitpid($session, 0);
	ok($node->wait_new_life($life), 'the server goes on after the death of one process');
	return;
}

my $acknowledged = 0;
for my $round (1 .. $rounds)
{
	kill_one() if $round % 3 == 0;
	my $before = $node->safe_psql('postgres', 'SELECT coalesce(sum(n), 0) FROM w_counter');
	my $witness = $node->witness_start($writers, 60);
	# Bulk and space: the log goes round, granules are taken and given back.
	my $churn = fork();
	if ($churn == 0)
	{
		open(STDOUT, '>', '/dev/null');
		open(STDERR, '>&', \*STDOUT);
		exec('psql', '-Xq', '-d', $node->connstr('postgres'), '-c',
			$round % 3 == 0 ? () : ("TRUNCATE churn; INSERT INTO churn SELECT g, repeat('x', g % 2000) FROM generate_series(1, 20000) g", '-c'),
			'UPDATE churn SET b = b || a', '-c', 'DELETE FROM churn WHERE a % 3 = 0', '-c', 'VACUUM churn')
		  or POSIX::_exit(1);
	}
	$node->wait_until("SELECT coalesce(sum(n), 0) > $before + 10 FROM w_counter");
	usleep(int(rand(1_500_000)));
	$node->psql('postgres', 'CHECKPOINT', on_error_die => 0) if $round % 3 == 2;
	cut();
	# 2: the disk was gone before the server, so it met errors
	isnt(SofortNode::witness_finish($witness), 1, "cut $round: what was shown under load was whole");
	waitpid($churn, 0);

	# Every second time the power fails again while the server recovers.
	if ($round % 2 == 0)
	{
		$node->spawn;
		usleep(int(rand(300_000)));
		cut();
	}
	$node->start;
	my ($rc, $totals, $text) = $node->witness_verify($writers);
	is($rc, 0, "cut $round: every acknowledged transaction is there, nothing else is") or diag($text);
	cmp_ok($totals->{acknowledged} || 0, '>', $acknowledged, "cut $round: something was acknowledged");
	$acknowledged = $totals->{acknowledged} || 0;
	is($node->verify_problems, '', "cut $round: tables, indexes and pool agree");
}
note("$acknowledged transactions acknowledged");

# After an orderly stop the pool is complete without its log.
$node->stop;
unlink("$mnt/pool.redo") or BAIL_OUT("unlink: $!");
$node->start;
is(($node->witness_verify($writers))[0], 0, 'after an orderly stop the log is not needed');

# After a crash it is; and it must be that of the crash.
$node->safe_psql('postgres', "INSERT INTO churn VALUES (-1, 'after')");
run_log([ 'cp', "$mnt/pool.redo", "$mnt/older" ]);
$node->kill9;
$node->start;
$node->kill9;
my $error = qr/is not complete without its redo log/;
rename("$mnt/pool.redo", "$mnt/newer");
$node->start(no_extension => 1);
like($node->error_of('TABLE churn'), $error, 'log missing after a crash');
$node->kill9;
rename("$mnt/older", "$mnt/pool.redo");
$node->start(no_extension => 1);
like($node->error_of('TABLE churn'), $error, 'log of an earlier start');
$node->kill9;
rename("$mnt/newer", "$mnt/pool.redo");
$node->start;
is($node->safe_psql('postgres', 'SELECT b FROM churn WHERE a = -1'), 'after', 'the right one');

# The test can fail: without durability a cut loses what was acknowledged.
$node->append_conf('postgresql.conf', "sofort.durability = 'process'");
$node->restart;
is($node->safe_psql('postgres', 'SELECT medium FROM sofort.pool'), 'process', 'another medium');
run_log([ 'sync', "$mnt/data/postgresql.conf" ]);
my $witness = $node->witness_start($writers, 60);
usleep(800_000);
cut();
SofortNode::witness_finish($witness);
$node->start(no_extension => 1);
ok($node->safe_psql('postgres', 'SELECT status FROM sofort.pool') ne 'ready'
	  || ($node->witness_verify($writers))[0] != 0
	  || $node->verify_problems ne '', 'process: power cuts are noticed by this test');
$node->kill9;
must('remove');

done_testing();
