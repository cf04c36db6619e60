# sofort.backup() under load, and restoring: base backup, WAL up to exactly the
# restore point, and the copy of the pool give the state of that moment; every
# other combination is refused.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $writers = 3;
my $node = SofortNode->new('main');
$node->init(allows_streaming => 1, has_archiving => 1, conf => [ 'max_prepared_transactions = 4' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE s (w int, i int, t text, PRIMARY KEY (w, i)) USING sofort;
	CREATE TABLE p (w int, i int, PRIMARY KEY (w, i)) USING sofort;
	CREATE INDEX p_i ON p USING sofort_index (i) WITH (placement = pmem);
	CREATE TABLE h (w int, i int) USING heap;
	CREATE TABLE account (id int PRIMARY KEY, balance int) USING sofort;
	INSERT INTO account SELECT g, 100 FROM generate_series(0, 99) g;
	CREATE TABLE marker (what text) USING sofort;
	CREATE TABLE big (a int, b text) USING sofort;
	INSERT INTO big SELECT g, repeat('b', g % 500) FROM generate_series(1, 50000) g;
	CREATE UNLOGGED TABLE u (i int) USING sofort;
	CREATE INDEX u_i ON u USING btree (i);
	INSERT INTO u SELECT generate_series(1, 1000)});

# A base backup of another kind: a copy of the files of a server that was stopped
$node->stop;
$node->backup_fs_cold('cold');
$node->start;

# Writer w: for i = 1, 2, ... one transaction on heap and sofort, one on sofort alone, a transfer.
sub start_writer
{
	my ($w) = @_;
	my $pid = fork();
	BAIL_OUT("fork: $!") unless defined $pid;
	return $pid if $pid;
	$SIG{TERM} = 'DEFAULT';		# since 18 the test framework would stop the servers
	open(STDOUT, '>', '/dev/null');
	open(STDERR, '>&', \*STDOUT);
	open(my $psql, '|-', 'psql', '-Xq', '-d', $node->connstr('postgres')) or POSIX::_exit(1);
	for my $i (1 .. 1_000_000)
	{
		my ($from, $to) = sort { $a <=> $b } int(rand(100)), int(rand(100));
		print $psql "BEGIN; INSERT INTO h VALUES ($w, $i); INSERT INTO s VALUES ($w, $i, repeat('t', $i % 300)); COMMIT;\n",
		  "INSERT INTO p VALUES ($w, $i);\n",
		  "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = $from; UPDATE account SET balance = balance + 1 WHERE id = $to; COMMIT;\n"
		  or last;
		print $psql "UPDATE big SET b = b || 'x' WHERE a BETWEEN $i AND $i + 20;\n" if $i % 50 == 0;
	}
	POSIX::_exit(0);
}

my $main_pool = $node->pool_file;
my $copy = "$main_pool.copy";

# What is refused
like($node->error_of("SELECT sofort.backup('copy')"), qr/^42602: path of the copy must be absolute/, 'relative path');
like($node->error_of("SELECT sofort.backup('" . $node->data_dir . "/copy')"), qr/^22023: .*inside the data directory/, 'inside the data directory');
like($node->error_of("SELECT sofort.backup('$main_pool')"), qr/^42710: file .* already exists|^58P02: file .* already exists/, 'existing file');
like($node->error_of("SELECT sofort.backup('/nowhere/at/all')"), qr/^58P01: could not access directory/, 'no such directory');
$node->safe_psql('postgres', 'CREATE ROLE plain; GRANT USAGE ON SCHEMA sofort TO plain');
like($node->error_of("SET ROLE plain; SELECT sofort.backup('$copy')"), qr/^42501:/, 'not for everybody');

# One at a time
{
	my $first = $node->background_psql('postgres');
	$node->arm('backup-copied', 'wait');
	$first->{stdin} .= "SELECT sofort.backup('$copy.first');\n";
	$first->{run}->pump_nb;
	ok($node->wait_at('backup-copied'), 'a backup is running');
	like($node->error_of("SELECT sofort.backup('$copy.second')"), qr/^55006: a backup of the sofort pool is already running/, 'a second one is refused');
	$node->disarm('backup-copied');
	$first->quit;
	ok(-e "$copy.first" && !-e "$copy.second", 'the first one ends');
	unlink "$copy.first";
}

my @pids = map { start_writer($_) } 1 .. $writers;
usleep(500_000);
$node->backup('base');
$node->safe_psql('postgres', "INSERT INTO marker VALUES ('before');
	BEGIN; INSERT INTO marker VALUES ('prepared'); PREPARE TRANSACTION 'p'");
my ($point, $lsn, $bytes, $held) =
  split /\|/, $node->safe_psql('postgres', "SELECT * FROM sofort.backup('$copy')");
$node->safe_psql('postgres', "INSERT INTO marker VALUES ('after')");
note("restore point $point at $lsn, $bytes bytes, commits held for $held ms");
usleep(300_000);
kill('TERM', @pids);
waitpid($_, 0) foreach @pids;
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM p');
cmp_ok($rows, '>', 100, 'there was load');
is((stat $copy)[2] & 07777, 0600, 'mode of the copy');
cmp_ok((stat $copy)[12] * 512, '<', 2 * (stat $main_pool)[12] * 512 + 1e6, 'the copy is sparse');
ok(!-e "$copy.partial", 'nothing is left');
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
$node->poll_query_until('postgres', "SELECT last_archived_wal >= pg_walfile_name('$lsn') FROM pg_stat_archiver")
  or BAIL_OUT('WAL is not archived');

my ($wrapper, $hold_launcher);
my $base = 'base';
sub restore
{
	my ($name, $pool, @conf) = @_;
	my $restored = SofortNode->new($name);
	$restored->{_wrapper} = $wrapper;
	$restored->init_from_backup($node, $base, has_restoring => 1, standby => 0);
	$restored->{_sofort_loaded} = $restored->{_sofort_created} = 1;
	run_log([ 'cp', '--sparse=always', $pool, $restored->pool_file ]) if defined $pool;
	$restored->append_conf('postgresql.conf', join("\n",
		"sofort.pool_path = '" . $restored->pool_file . "'", 'archive_mode = off', @conf, ''));
	$restored->arm_at_start('launcher-started', 'wait') if $hold_launcher;
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or BAIL_OUT('recovery does not end');
	return $restored;
}
my @exact = ("recovery_target_name = '$point'", "recovery_target_action = 'promote'");

# ---- the right way ----

my $restored = restore('restored', $copy, @exact);
sub check_state
{
	my ($when) = @_;
	is($restored->safe_psql('postgres', 'SELECT string_agg(what, $$,$$) FROM marker'), 'before', "$when: commits before, none after");
	is($restored->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM (TABLE h EXCEPT SELECT w, i FROM s) x) || ',' ||
			(SELECT count(*) FROM (SELECT w, i FROM s EXCEPT TABLE h) x)}), '0,0', "$when: transactions on both are whole");
	is($restored->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT w, max(i) = count(*) AS whole, max(i) AS n FROM s GROUP BY w) s
			JOIN (SELECT w, max(i) = count(*) AS whole, max(i) AS n FROM p GROUP BY w) p USING (w)
		WHERE s.whole AND p.whole AND p.n IN (s.n, s.n - 1)}), $writers, "$when: of each writer all up to some moment");
	is($restored->safe_psql('postgres', 'SELECT sum(balance) FROM account'), 10000, "$when: transfers are whole");
	is($restored->verify_problems, '', "$when: tables, indexes and pool agree");
	return;
}
is($restored->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'), 'p', 'the prepared transaction is there');
# (it has a lock for which verify() would wait)
$restored->safe_psql('postgres', "COMMIT PREPARED 'p'");
$restored->safe_psql('postgres', "DELETE FROM marker WHERE what = 'prepared'");
check_state('restored');
$restored->safe_psql('postgres', 'INSERT INTO big SELECT g, $$new$$ FROM generate_series(1, 1000) g; VACUUM big');
$restored->kill9;
$restored->start;
check_state('after a crash of the restored server');
$restored->restart;
check_state('after a restart');
$restored->stop;

# From either base backup PostgreSQL recovers, and empties its indexes of unlogged tables. They
# are empty for good, as on heap, whether somebody looks at them at once or after a restart.
foreach ('base', 'cold')
{
	$base = $_;
	$restored = restore("unlogged_$base", $copy, @exact);
	$restored->safe_psql('postgres', "COMMIT PREPARED 'p'");
	foreach my $when ('restored', 'restarted')
	{
		is($restored->safe_psql('postgres', q{SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM marker WHERE what = 'before')}), '0|1', "$base, $when: an unlogged table is empty");
		is($restored->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM u WHERE i = 5'), 0, "$base, $when: by an index, too");
		$restored->restart if $when eq 'restored';
	}
	$restored->stop;
}

# The same in a server that could not use the pool for another reason: the next one can. (Of the copied
# files: only those of unlogged tables show it that PostgreSQL has reset them.)
SKIP:
{
	skip 'sanitizers need more address space', 8 if $ENV{SOFORT_SANITIZED};
	$wrapper = [ 'prlimit', '--as=1500000000000' ];
	$restored = restore('limited', $copy, @exact, "sofort.dram_size = '1TB'");
	$wrapper = undef;
	like($restored->error_of($_), qr/^53200: could not reserve \d+ MB of memory for sofort\.dram_size/, "without memory: $_")
	  foreach ('TABLE s', 'CREATE TABLE new (i int) USING sofort');
	$restored->stop;
	delete $restored->{_wrapper};
	$restored->append_conf('postgresql.conf', "sofort.dram_size = '2GB'\n");
	$restored->start;
	$restored->safe_psql('postgres', "COMMIT PREPARED 'p'");
	$restored->safe_psql('postgres', "DELETE FROM marker WHERE what = 'prepared'");
	check_state('restored without memory, and with it');
	is($restored->safe_psql('postgres', 'SELECT count(*) FROM u'), 0, 'restored without memory, and with it: an unlogged table is empty');
	$restored->stop;
}

# The first use writes the control file, and cannot at first: then the server is restored all the
# same, and takes no copy of its own pool for that of a restore any more.
$base = 'base';
$hold_launcher = 1;
$restored = restore('full', $copy, @exact);
$hold_launcher = 0;
ok($restored->wait_at('launcher-started'), 'nobody has used the pool yet');
unlink($restored->data_dir . '/sofort.control.tmp');
mkdir($restored->data_dir . '/sofort.control.tmp') or die;
like($restored->error_of('TABLE s'), qr/^\S{5}: could not .*sofort\.control\.tmp/, 'the control file cannot be written');
rmdir($restored->data_dir . '/sofort.control.tmp') or die;
is($restored->error_of('TABLE s'), '', 'now it can');
$restored->disarm('launcher-started');
my $own_copy = $node->basedir . '/own_copy';
$restored->safe_psql('postgres', "INSERT INTO marker VALUES ('earlier')");
$restored->safe_psql('postgres', "SELECT sofort.backup('$own_copy')");
$restored->safe_psql('postgres', "INSERT INTO marker VALUES ('later')");
$restored->stop;
run_log([ 'mv', $restored->pool_file, $restored->pool_file . '.own' ]);
run_log([ 'cp', '--sparse=always', $own_copy, $restored->pool_file ]);
$restored->expect_damage;
$restored->start;
like($restored->error_of('TABLE s'), qr/^55000: sofort pool .* is a copy made by sofort\.backup/, 'a copy of its own pool is refused afterwards');
$restored->stop;
run_log([ 'mv', $restored->pool_file . '.own', $restored->pool_file ]);
$restored->start;
is($restored->safe_psql('postgres', q{SELECT count(*) FROM marker WHERE what = 'later'}), 1, 'its own is not');
$restored->stop;

# ---- every other combination ----

my $other = restore('end_of_wal', $copy);
like($other->error_of('TABLE s'), qr/^55000: sofort pool .* and data directory are not restored to the same point/, 'recovered beyond the point');
cmp_ok($other->safe_psql('postgres', 'SELECT count(*) FROM h'), '>', 0, 'heap can be used');
$other->restart;
like($other->error_of('TABLE s'), qr/^55000: the data directory .* has no sofort pool/, 'and stays so');
$other->stop('immediate');

$rows = $node->safe_psql('postgres', 'SELECT count(*) FROM p');
$node->stop;
$other = restore('ordinary_pool', $main_pool, @exact);
like($other->error_of('TABLE s'), qr/has no sofort pool/, 'an ordinary pool instead of a copy');
$other->stop('immediate');

rename($main_pool, "$main_pool.kept");
run_log([ 'cp', '--sparse=always', $copy, $main_pool ]);
$node->start;
like($node->error_of('TABLE s'), qr/^55000: sofort pool .* is a copy made by sofort\.backup\(\)/, 'a copy with the running data directory');
$node->stop;
rename("$main_pool.kept", $main_pool);
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM p'), $rows, 'its own pool is as it was');
is($node->safe_psql('postgres', "SELECT count(*) FROM marker WHERE what = 'after'"), 1, 'with all rows');
$node->stop;
unlink $copy;
$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\narchive_mode = off");
$node->start;
like($node->error_of("SELECT sofort.backup('$copy')"), qr/^55000: wal_level is not sufficient for a backup/, 'wal_level = minimal');
ok(!-e $copy && !-e "$copy.partial", 'nothing was written');
$node->stop;

done_testing();
