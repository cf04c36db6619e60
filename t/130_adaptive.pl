# Adaptive recovery: what the workload needs is rebuilt first, in the order that
# the statistics of before the crash and since the start give; statistics
# survive crashes at any moment, and go with what they are about.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

my $node = SofortNode->new('adaptive');
$node->init(conf => [
	'autovacuum = off', 'sofort.recovery_mode = adaptive', 'sofort.recovery_workers = 0',
	'sofort.recovery_alpha = 0.9', 'sofort.pool_size = 256MB' ]);
$node->start;

sub sql { return $node->safe_psql($_[1] || 'postgres', $_[0]); }

# n executions of a lookup in one column. LIMIT (SELECT 0): it counts, but the
# index is not needed yet.
sub lookups
{
	my ($n, $table, $column, $db) = @_;
	my $limit = $_[4] ? 'LIMIT (SELECT 0)' : '';
	my $text = join("\n", map { "SELECT count(*) FROM (SELECT 1 FROM $table WHERE $column = $_ $limit) x;" } 1 .. $n);
	sql($text, $db);
	return;
}

sub saved
{
	ok($node->workload_is_saved('bell'), 'statistics were saved');
	return;
}

sub workers
{
	sql("ALTER SYSTEM SET sofort.recovery_workers = $_[0]");
	sql('SELECT pg_reload_conf()');
	return;
}

sub rebuilt
{
	my ($n, $db) = @_;
	my $until = time() + 60;
	usleep(10_000)
	  while (time() < $until && sql('SELECT count(rebuilt_as) FROM sofort.recovery_order', $db) < $n);
	return sql(q{SELECT string_agg(index::text, ' ' ORDER BY rebuilt_as) FROM sofort.recovery_order}, $db);
}

sub planned
{
	return sql(q{SELECT string_agg(index::text, ' ' ORDER BY position) FROM sofort.recovery_order WHERE rank > 0});
}

# Four columns with equal indexes, so that the workload alone makes the order.
my $define = join(';',
	'CREATE TABLE t (a int, b int, c int, d int) USING sofort',
	'INSERT INTO t SELECT i, i, i, i FROM generate_series(1, 5000) i',
	(map { "CREATE INDEX i_$_ ON t USING sofort_index ($_)" } qw(a b c d)), 'ANALYZE t');
sql('CREATE TABLE bell () USING sofort');
sql($define);

lookups(30, 't', 'c');
lookups(20, 't', 'a');
lookups(5, 't', 'd');
saved();
$node->kill9;
$node->start;

is(sql(q{SELECT string_agg(index || ' ' || round(past_executions) || ' ' || executions, ', ' ORDER BY past_executions DESC)
		 FROM sofort.workload WHERE command = 'SELECT' AND index IS NOT NULL}),
	'i_c 30 0, i_a 20 0, i_d 5 0', 'statistics survive SIGKILL');
is(planned(), 'i_c i_a i_d', 'the order follows the workload before the crash');
is(sql(q{SELECT count(*) FROM sofort.recovery_order WHERE status = 'ready'}), 0, 'nothing is rebuilt yet');
workers(1);
is(rebuilt(4), 'i_c i_a i_d i_b', 'indexes are rebuilt in that order, the unused one last');
is(planned(), '', 'nothing is left to do');

# The workload changes while nothing is rebuilt yet.
workers(0);
lookups(10, 't', 'b');
saved();
$node->kill9;
$node->start;
is(planned(), 'i_c i_a i_b i_d', 'both lives before count');
lookups(1, 't', 'd', undef, 1);
is(planned(), 'i_c i_a i_d i_b', 'after one other statement');
lookups(20, 't', 'd', undef, 1);
is(planned(), 'i_d i_c i_a i_b', 'after many');
workers(1);
is(rebuilt(4), 'i_d i_c i_a i_b', 'the order has changed with the workload');

# The same with alpha 1: the past alone decides.
workers(0);
saved();
$node->append_conf('postgresql.conf', 'sofort.recovery_alpha = 1');
$node->kill9;
$node->start;
my $past = planned();
lookups(50, 't', 'b', undef, 1);
is(planned(), $past, 'with alpha 1 nothing changes');
$node->append_conf('postgresql.conf', 'sofort.recovery_alpha = 0.9');
sql('SELECT pg_reload_conf()');
ok($node->wait_until(q{SELECT index = 'i_b'::regclass FROM sofort.recovery_order WHERE position = 1}), 'until it is set');
is(sql('SELECT count(*) FROM t WHERE a = 7 AND b = 7 AND c = 7 AND d = 7'), 1, 'queries work meanwhile');

# An index that serves the same lookups as one that is there has no benefit.
sql('CREATE TABLE u (a int, b int) USING sofort;
	INSERT INTO u SELECT i, i FROM generate_series(1, 5000) i;
	CREATE INDEX u_1 ON u USING sofort_index (a); CREATE INDEX u_2 ON u USING sofort_index (a);
	ANALYZE u');
lookups(200, 'u', 'a');
saved();
$node->kill9;
$node->start;
like(planned(), qr/^u_[12] (?!.*u_)/, 'one of two equal indexes');
$node->append_conf('postgresql.conf', 'sofort.recovery_benefit = independent');
sql('SELECT pg_reload_conf()');
ok($node->wait_until(q{SELECT count(*) = 2 FROM sofort.recovery_order WHERE position <= 2 AND relation = 'u'::regclass}),
	'both, if benefits are independent');

# Rebuilding waits its turn while to do without the index has cost less than it would;
# then it gets a worker of normal priority. (Blocks in no order: zones leave nothing out.)
sub worker
{
	return sql(q{SELECT pid || ' ' || query FROM pg_stat_activity
				 WHERE backend_type = 'sofort recovery worker' AND query <> ''});
}

workers(0);
sql('CREATE TABLE v (a int) USING sofort;
	INSERT INTO v SELECT (i * 7919::bigint) % 100003 FROM generate_series(1, 100000) i;
	CREATE INDEX v_a ON v USING sofort_index (a); ANALYZE v');
lookups(1000, 'v', 'a');
saved();
$node->append_conf('postgresql.conf', "sofort.rebuild_segment = 8\nmax_worker_processes = 4");
$node->kill9;
$node->start;
like(planned(), qr/^v_a/, 'the index comes first');
is(sql(q{SELECT search_seconds || ' ' || (rebuild_seconds BETWEEN 0.01 AND 0.03) FROM sofort.recovery_order WHERE index = 'v_a'::regclass}),
	'0 true', 'nothing was searched yet');
$node->arm('rebuild-block', 'wait');
workers(32);					# PostgreSQL has room for one: the next is tried after ten seconds
ok($node->wait_at('rebuild-block'), 'a worker is at work');
my ($first, $low) = worker() =~ /^(\d+) (.*)$/;
is($low, 'rebuilding a sofort index, at low priority', 'queries first');
sub searched
{
	return sql(q{SELECT search_seconds >= rebuild_seconds FROM sofort.recovery_order WHERE index = 'v_a'::regclass}) eq 't';
}
my $until = time() + 60;
lookups(50, 'v', 'a') while (!searched() && time() < $until);
ok(searched(), 'what searches have cost is counted');
my $age = q{extract(epoch FROM backend_start) FROM pg_stat_activity WHERE backend_type = 'sofort recovery worker'};
my $started = sql("SELECT $age");
$node->arm('rebuild-segment-done', 'wait', 3);
my $late = sql("SELECT extract(epoch FROM clock_timestamp()) - $started > 7") eq 't';
$node->disarm('rebuild-block');
ok($node->wait_at('rebuild-segment-done'), 'it goes on');
ok($late || sql("SELECT $age") < $started + 9.5, 'at once');
my ($second, $normal) = worker() =~ /^(\d+) (.*)$/;
isnt($second, $first, 'in another process');
is($normal, 'rebuilding a sofort index', 'which has normal priority');
$node->disarm('rebuild-segment-done');
ok($node->wait_until(q{SELECT status = 'ready' FROM sofort.indexes WHERE index = 'v_a'::regclass}), 'to its end');
is(sql('SELECT failures FROM sofort.recovery'), 0, 'no worker has failed');

# All of them count, with what their process has computed, not with what has passed.
cmp_ok(sql('SELECT sofort_test.searches(200, 20, 0)'), '>=', 3800, 'short searches count');
my $slept = sql('SELECT sofort_test.searches(5, 20, 0); SELECT sofort_test.searches(1, 0, 200000)');
cmp_ok((split ' ', $slept)[-1], '<', 100000, 'one that sleeps does not cost what has passed');
my $long = sql('SELECT sofort_test.searches(5, 20, 0); SELECT sofort_test.searches(1, 30000, 0)');
cmp_ok((split ' ', $long)[-1], '>=', 29000, 'one that computes costs what it computes');
cmp_ok(sql('SELECT sofort_test.searches(1, 20000, 0)'), '>=', 19000, 'also as the first one of a session');

# Uniqueness checks count as well.
workers(0);
sql('CREATE TABLE w (a int PRIMARY KEY) USING sofort; INSERT INTO w SELECT i FROM generate_series(1, 20000) i');
saved();
$node->kill9;
$node->start;
sql('INSERT INTO w SELECT i FROM generate_series(20001, 21000) i');
is(sql(q{SELECT search_seconds > 0 FROM sofort.recovery_order WHERE index = 'w_pkey'::regclass}), 't',
	'so are those of uniqueness checks');
sql('DROP TABLE v; DROP TABLE w');
$node->append_conf('postgresql.conf', "sofort.rebuild_segment = 256\nmax_worker_processes = 8");
$node->restart;

# A kill while a record is written costs that record at most.
foreach my $point ('workload-invalid', 'workload-filled')
{
	sql("SELECT sofort_test.arm('$point', 'kill', 1)");
	$node->psql('postgres', "SELECT a FROM t WHERE b = 1 AND c = 1 AND length('$point') > 0 AND a "
		  . ($point =~ /filled/ ? '>' : '<') . ' 0', on_error_die => 0);
	ok($node->reap, "killed at $point");
	$node->start;
	is(sql(q{SELECT count(*) > 2 FROM sofort.workload WHERE command = 'SELECT' AND past_executions > 0.1}),
		't', "$point: the other records are there");
	is($node->verify_problems, '', "$point: nothing is damaged");
}

# An orderly stop saves what was counted in its last second, a crash of one
# backend what was saved.
sql('SELECT count(*) FROM t x WHERE x.a = 1 AND x.b = 2 AND x.c = 3 AND x.d = 4');
my $kinds = sql('SELECT count(DISTINCT statement) FROM sofort.workload');
$node->restart;
is(sql('SELECT count(DISTINCT statement) FROM sofort.workload'), $kinds, 'an orderly stop loses nothing');
my $life = $node->life;
$node->psql('postgres', "SELECT sofort_test.arm('txn-activated', 'kill_backend'); INSERT INTO t VALUES (0, 0, 0, 0)");
ok($node->wait_new_life($life), 'one backend crashed');
is(sql(q{SELECT count(DISTINCT statement) >= 5 FROM sofort.workload}), 't', 'the statistics are there');

# What could not be saved, because the pool was full or for another error, is saved later.
foreach my $column ('a', 'b')
{
	my $full = $column eq 'a';
	my $what = $full ? 'a full pool' : 'an error';
	my $from = -s $node->logfile;
	my $holder = $node->background_psql('postgres');
	$holder->query_safe($full ? 'BEGIN; SELECT sofort_test.fill_pool(0)' : q{SELECT sofort_test.arm('pmem-linked', 'error')});
	sql('SELECT ' . join(', ', ('a') x $_) . " FROM t WHERE $column = 1") foreach 1 .. 100;
	ok($node->wait_for_log(qr/statistics of the workload cannot be kept in the sofort pool: /, $from), $what);
	$holder->quit;
	saved();
	$kinds = sql('SELECT count(DISTINCT statement) FROM sofort.workload');
	$node->kill9;
	$node->start;
	is(sql('SELECT count(DISTINCT statement) FROM sofort.workload'), $kinds, "$what: statistics were saved later");
}

# Dropped things, in this database and another; what was dropped stays away.
$node->safe_psql('postgres', 'CREATE DATABASE other');
sql('CREATE EXTENSION sofort', 'other');
sql($define, 'other');
lookups(5, 't', 'a', 'other');
is(sql(q{SELECT count(*) FROM sofort.workload WHERE command = 'SELECT'}, 'other'), 1, 'each database has its own');
sql('DROP DATABASE other');
sql('DROP INDEX u_1');
sql('DROP TABLE t');
saved();
$node->kill9;
$node->start;
is(sql(q{SELECT count(*) FROM sofort.workload WHERE relation::text NOT IN ('u', 'bell')}), 0, 'statistics of dropped tables are gone');
is(sql(q{SELECT string_agg(DISTINCT index::text, ' ') FROM sofort.workload}), 'u_2', 'and those of a dropped index');
is(sql(q{SELECT sofort_test.workload_records()}), sql('SELECT count(DISTINCT statement) FROM sofort.workload'),
	'also in other databases');
is($node->verify_problems, '', 'pool and tables agree');

# What somebody else has for himself, or was cancelled, when the workers are through with the
# rest is done later: queries alone would never complete it.
sql('CREATE TABLE l (a int PRIMARY KEY) USING sofort; INSERT INTO l SELECT i FROM generate_series(1, 20000) i');
foreach my $mode ('adaptive', 'instant')
{
	$node->append_conf('postgresql.conf', "sofort.recovery_mode = $mode");
	workers(0);
	$node->kill9;
	$node->start;
	my $other = $node->background_psql('postgres');
	$other->query_safe('BEGIN; LOCK TABLE l');
	workers(1);
	ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), "$mode: the workers do not wait for a lock");
	$node->arm('rebuild-block', 'wait');
	$other->query_safe('COMMIT');
	$other->quit;
	ok($node->wait_at('rebuild-block'), "$mode: when it is free a worker comes back");
	sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'sofort recovery worker'});
	ok($node->wait_until(q{SELECT status = 'ready' FROM sofort.indexes WHERE index = 'l_pkey'::regclass}),
		"$mode: and once more, after it was cancelled");
	is(sql('SELECT failures FROM sofort.recovery'), 1, "$mode: that counts as a failure");
}

# The inner nodes of a hybrid index that nobody uses are built like the rest, and that ends.
$node->append_conf('postgresql.conf', 'sofort.recovery_mode = adaptive');
sql('CREATE TABLE hybrid (a int) USING sofort; INSERT INTO hybrid SELECT generate_series(1, 20000); CREATE INDEX hybrid_a ON hybrid USING sofort_index (a) WITH (placement = hybrid)');
$node->restart;
ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), 'hybrid: recovery ends');
is(sql(q{SELECT placement, status FROM sofort.indexes WHERE index = 'hybrid_a'::regclass}), 'hybrid|ready', 'and the index is there');

# Many small indexes that do not pay, where no processor is ever idle: not one of them a second
workers(0);
sql(join(';', map { "CREATE TABLE tiny$_ (a int PRIMARY KEY) USING sofort; INSERT INTO tiny$_ VALUES (1)" } 1 .. 200));
$node->kill9;
$node->start;
my @hogs = map { IPC::Run::start([ $^X, '-e', 'alarm 90; 1 while 1' ]) } 1 .. 2 * (grep { /^processor/ } split /\n/, slurp_file('/proc/cpuinfo'));
workers(1);
ok($node->wait_until(q{SELECT count(*) = 200 FROM sofort.indexes WHERE index::text LIKE 'tiny%' AND status = 'ready'}), 'a busy machine: many small indexes are rebuilt');
$_->kill_kill foreach @hogs;
$node->stop;

done_testing();
