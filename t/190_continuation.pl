# Kept transactions: SIGKILL at every point of their statements, of commit and
# rollback, of resuming, expiring and of recovery. After each the transaction is
# open with exactly its finished statements, invisible to others, its row locks in
# force; it goes on, and the end is that of one that nothing interrupted.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use SofortNode;
use Test::More;

my $node = SofortNode->new('continuation');
$node->init(conf => [ 'autovacuum = off', 'sofort.continuation_timeout = 600', 'max_prepared_transactions = 2' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE p (id int PRIMARY KEY, v int, t text) USING sofort;
	CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p, t text) USING sofort;
	CREATE INDEX ON c USING sofort_index (t);
	CREATE TABLE h (id int PRIMARY KEY, v int) USING heap;
	CREATE SEQUENCE s;
	CREATE ROLE other LOGIN;
	CREATE DATABASE elsewhere;
	GRANT USAGE ON SCHEMA sofort TO other;
	GRANT ALL ON ALL TABLES IN SCHEMA public TO other});
$node->safe_psql('elsewhere', 'CREATE EXTENSION sofort');

# One statement of each kind; number k leaves a trace of its own.
my @work = (
	q{INSERT INTO p VALUES (1000, 1, 'inserted')},
	q{UPDATE p SET v = v + 1 WHERE id <= 20},
	q{UPDATE p SET id = id + 2000 WHERE id = 40},
	q{DELETE FROM p WHERE id BETWEEN 50 AND 60},
	q{SELECT count(*) FROM (SELECT FROM p WHERE id IN (70, 71) FOR UPDATE) s},
	q{SELECT count(*) FROM (SELECT FROM p WHERE id = 72 FOR SHARE) s},
	q{INSERT INTO c VALUES (1, 80, 'child')},
	q{INSERT INTO p SELECT i, nextval('s') * 0, 'many ' || i FROM generate_series(3000, 5500) i},
	q{UPDATE p SET t = t || '!' WHERE id BETWEEN 3000 AND 4200},
	q{DO $$ BEGIN INSERT INTO c VALUES (2, 81, 'nested'); BEGIN UPDATE p SET v = -1 WHERE id = 82; RAISE 'x'; EXCEPTION WHEN raise_exception THEN UPDATE p SET v = 7 WHERE id = 82; END; END $$},
	q{MERGE INTO p USING (VALUES (83, 1), (9000, 2)) n (id, v) ON p.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.v, 'merged')},
	q{WITH gone AS (DELETE FROM c WHERE id = 1 RETURNING id) INSERT INTO c SELECT 10, 84, 'moved' FROM gone},
	q{UPDATE p SET v = v + 100 WHERE id <= 5});

my $reset = q{TRUNCATE c, p; INSERT INTO p SELECT i, 0, 'row ' || i FROM generate_series(1, 100) i};
my $contents = q{SELECT md5(string_agg(x, ',' ORDER BY x)) FROM (SELECT 'p' || id || ':' || v || ':' || t AS x FROM p UNION ALL SELECT 'c' || id || ':' || p || ':' || t FROM c) s};
my $verify = q{SELECT coalesce(string_agg(v::text, ' '), 'clean') FROM (SELECT * FROM sofort.verify('p') UNION ALL SELECT * FROM sofort.verify('c') UNION ALL SELECT * FROM sofort.verify_pool()) v};

# What the rows are after the first k statements.
my @after;
foreach my $k (0 .. @work)
{
	$node->safe_psql('postgres', $reset);
	$after[$k] = $node->safe_psql('postgres', join(';', 'BEGIN', @work[ 0 .. $k - 1 ], "$contents; ROLLBACK"));
	$after[$k] =~ s/.*\n//s;
}

# A client: token it was told, or undef; how many statements were answered.
sub client
{
	my ($first, @sql) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ], '<',
		\join("\n", map { "$_;" } $first, map { ($_, q{\echo done}) } @sql), '>', \$out, '2>', \$err);
	my ($token) = $out =~ /^([0-9a-f]{32})$/m;
	my $done = () = $out =~ /^done/mg;
	return ($token, $done, $out, $err);
}

sub outcome { return $node->safe_psql('postgres', "SELECT sofort.transaction_outcome('$_[0]')"); }

# After a crash: what others see, and may do.
sub others_see
{
	my ($what, $held) = @_;
	is($node->safe_psql('postgres', $contents), $after[0], "$what: others see nothing of it");
	if ($held)
	{
		like($node->error_of(q{SELECT FROM p WHERE id = 70 FOR SHARE NOWAIT}), qr/^55P03/, "$what: its row locks are in force");
	}
	return;
}

# Take it up, do the rest, commit. Returns the number it was told.
sub go_on
{
	my ($token, $what, $end) = @_;
	my ($out, $err) = ('', '');
	my $in = "BEGIN;\nSELECT statements AS n FROM sofort.resume_transaction('$token') \\gset\n\\echo n=:n\n$contents;\n";
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err);
	$session->pump until $out =~ /n=(\d+)\n(\w{32})\n/ || $err =~ /ERROR/;
	if ($err) { diag($err); $session->finish; return -1; }
	my ($done, $is) = ($1, $2);
	is($is, $after[$done], "$what: it has its first $done statements, whole");
	$in .= join('', map { "$_;\n" } @work[ $done .. $#work ], $contents) . ($end || 'COMMIT') . ";\n";
	$session->finish;
	is($err, '', "$what: it goes on");
	return $done;
}

sub check_end
{
	my ($token, $what, $outcome, $k) = @_;
	is(outcome($token), $outcome, "$what: outcome");
	is($node->safe_psql('postgres', $contents), $after[$k], "$what: rows in the end");
	is($node->safe_psql('postgres', "$verify; SELECT count(*) FROM sofort.transactions"), "clean\n0", "$what: clean");
	return;
}

# ---- killed at the points of its statements ----
my %passages = (
	'txn-logged' => [ 1, 3, 9, 17, 23 ],
	'kept-record-open' => [1],
	'kept-before-boundary' => [ 1 .. 14 ],
	'kept-boundary' => [ 1, 2, 6, 10, 14 ],
	'abort-before-undo' => [1],
	'abort-undone' => [1],
	'commit-before-durable' => [1]);
my $round = 0;
foreach my $point (sort keys %passages)
{
	foreach my $nth (@{ $passages{$point} })
	{
		next if $nth % 3 == 2 && $nth > 3 && !$ENV{SOFORT_LONG};
		my $what = "killed at $point, $nth";
		$node->safe_psql('postgres', $reset);
		my ($token, $done, $out, $err) = client("SELECT sofort_test.arm('$point', 'kill', $nth); BEGIN", 'SELECT sofort.keep_transaction()', @work, 'COMMIT');
		if (!ok($node->reap, $what)) { diag($out, $err); $node->kill9; }
		# again and again: in recovery
		if ($round++ % 2 == 1 && defined $token)
		{
			$node->arm_at_start($round % 4 < 2 ? 'kept-adopted' : 'kept-unfinished-undone', 'kill');
			$node->spawn;
			ok($node->reap(kill_rest => 1), "$what: killed again while it starts");
		}
		$node->start;
		if (!defined $token)
		{
			# the client has no token, so nothing may be open for it to claim
			is($node->safe_psql('postgres', $contents), $after[0], "$what: rolled back");
			$node->safe_psql('postgres', 'SELECT 1');
			$node->restart if $node->safe_psql('postgres', 'SELECT count(*) FROM sofort.transactions') ne '0';
			$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 0\n");
			$node->kill9; $node->start;
			$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 600\n");
			$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
			is($node->safe_psql('postgres', "$verify; SELECT count(*) FROM sofort.transactions"), "clean\n0", "$what: clean");
			next;
		}
		my $finished = $done - 1;
		others_see($what, $finished >= 5);
		my $n = go_on($token, $what);
		ok($n == $finished || $n == $finished + 1, "$what: $finished statements were answered, $n are finished");
		check_end($token, $what, 'committed', scalar @work);
	}
}

# ---- killed in COMMIT behind the durable point, and in ROLLBACK ----
foreach my $case ([ 'commit-durable', 'COMMIT' ], [ 'commit-before-stamp', 'COMMIT' ], [ 'kept-closed', 'COMMIT' ],
	[ 'commit-stamped', 'COMMIT' ], [ 'kept-closed', 'ROLLBACK' ], [ 'abort-undone', 'ROLLBACK' ])
{
	my ($point, $end) = @$case;
	my $what = "killed at $point of $end";
	$node->safe_psql('postgres', $reset);
	my ($token) = client('BEGIN', 'SELECT sofort.keep_transaction()', @work, "SELECT sofort_test.arm('$point', 'kill', 1)", $end);
	ok($node->reap, $what);
	$node->start;
	check_end($token, $what, $end eq 'COMMIT' ? 'committed' : 'aborted', $end eq 'COMMIT' ? scalar @work : 0);
}

# A transaction that waits, with the first k statements done.
sub waiting
{
	my ($k, $label) = @_;
	my ($token, $done);
	$label = defined $label ? "'$label'" : '';
	$node->safe_psql('postgres', $reset);
	($token, $done) = client("SELECT sofort_test.arm('kept-before-boundary', 'kill', $k + 2); BEGIN", "SELECT sofort.keep_transaction($label)", @work[ 0 .. $k - 1 ], 'SELECT 1');
	$node->reap or BAIL_OUT('not killed');
	$node->start;
	return $token;
}

# ---- killed while it is resumed: it waits again, as often as it takes ----
my $token = waiting(9);
foreach my $point ('kept-resume-stored', 'kept-resumed', 'txn-logged', 'kept-adopted')
{
	my $what = "killed at $point while it is resumed";
	my (undef, undef, undef, $err) = client("SELECT sofort_test.arm('$point', 'kill', 1); BEGIN", "SELECT sofort.resume_transaction('$token')", 'UPDATE p SET v = -5 WHERE id = 90') if $point ne 'kept-adopted';
	if ($point eq 'kept-adopted')
	{
		$node->kill9;
		$node->arm_at_start($point, 'kill');
		$node->spawn;
		$what = 'killed at the start';
	}
	ok($node->reap(kill_rest => 1), $what) or diag($err);
	$node->start;
	others_see($what, 1);
	is(outcome($token), 'open', "$what: open");
}
is(go_on($token, 'resumed after four crashes', 'ROLLBACK'), 9, 'resumed after four crashes');
check_end($token, 'rolled back after all', 'aborted', 0);

# ---- tokens: roles, databases, takers, tables ----
$token = waiting(7, 'order 17');
is($node->safe_psql('postgres', q{SELECT state, pid IS NULL, label, statements, expires > now() + interval '9 min' FROM sofort.transactions}), 'kept|t|order 17|7|t', 'view of one that waits');
my $resume = "BEGIN; SELECT sofort.resume_transaction('$token')";
like($node->error_of("SET SESSION AUTHORIZATION other; $resume"), qr/^42501.*another role/, 'another role');
like($node->error_of("SET SESSION AUTHORIZATION other; SELECT sofort.abort_transaction('$token')"), qr/^42501.*another role/, 'another role may not abort it');
is($node->safe_psql('postgres', q{SET SESSION AUTHORIZATION other; SELECT state, pid IS NULL, label, statements, entries, expires > now() FROM sofort.transactions}), 'kept|t||||t', 'nor see more than that it waits');
like($node->error_of($resume, 'elsewhere'), qr/^55000.*another database/, 'another database');
(my $wrong = $token) =~ tr/0-9a-f/1-9a-f0/;
like($node->error_of("BEGIN; SELECT sofort.resume_transaction('$wrong')"), qr/^42704/, 'wrong token');
foreach my $sql ('ALTER TABLE p ADD x int', 'DROP TABLE p CASCADE', 'TRUNCATE p CASCADE', 'CREATE INDEX ON p USING sofort_index (v)',
	'CREATE INDEX ON p (v)', 'CREATE INDEX CONCURRENTLY ON p USING sofort_index (v)', 'VACUUM FULL p', 'CLUSTER p USING p_pkey', 'REINDEX TABLE p', 'BEGIN; LOCK TABLE c IN SHARE MODE',
	'CREATE TABLE r (p int REFERENCES p) USING sofort', 'CREATE TRIGGER g AFTER DELETE ON p EXECUTE FUNCTION suppress_redundant_updates_trigger()',
	'ALTER TABLE p SET ACCESS METHOD heap', 'DROP SCHEMA public CASCADE', 'DROP OWNED BY CURRENT_USER')
{
	my $error = $node->error_of("SET lock_timeout = '20s'; $sql");
	$error = $node->error_of($sql) if $sql =~ /CONCURRENTLY|VACUUM/;
	like($error, $sql =~ /OWNED/ ? qr/^(55006|2BP01)/ : qr/^55006/, "while it waits: $sql");
}
like($node->error_of($_, 'elsewhere'), qr/^55006: database "postgres" is used by kept transactions that wait/, $_)
  foreach ('DROP DATABASE postgres', 'ALTER DATABASE postgres RENAME TO renamed', 'ALTER DATABASE postgres SET TABLESPACE pg_default', 'CREATE DATABASE copy TEMPLATE postgres');
is($node->error_of('ALTER DATABASE postgres CONNECTION LIMIT 90 ALLOW_CONNECTIONS true', 'elsewhere'), '', 'other options of a database');
$node->safe_psql('postgres', 'VACUUM p; ANALYZE p; CREATE TABLE independent (i int) USING sofort; INSERT INTO independent VALUES (1); DROP TABLE independent');
others_see('after all that', 1);

# the winner and a waiting writer
my $writer = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'UPDATE p SET v = v * 100 WHERE id = 7 RETURNING v' ], '<', \undef, '>', \my $written, '2>', \my $complaint);
ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}), 'a writer waits for it');
is($node->safe_psql('postgres', q{SET SESSION AUTHORIZATION other; SELECT count(*) FROM pg_locks l JOIN sofort.transactions t ON l.transactionid = t.xid::xid WHERE NOT l.granted AND t.state = 'kept'}), '1', 'anybody sees whom it waits for');
my @takers = map { my %t = (in => "BEGIN;\nSELECT statements FROM sofort.resume_transaction('$token');\n", out => '', err => ''); $t{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$t{in}, '>', \$t{out}, '2>', \$t{err}); \%t } 1 .. 2;
foreach my $t (@takers) { $t->{run}->pump until $t->{out} =~ /\d/ || $t->{err} =~ /ERROR/; }
is(join(' ', sort map { $_->{out} =~ /^7$/m ? 'won' : $_->{err} =~ /is run by a session/ ? 'lost' : $_->{err} } @takers), 'lost won', 'of two takers one wins');
my ($winner) = grep { $_->{out} =~ /^7$/m } @takers;
ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}), 'the writer goes on to wait for the winner');
like($node->error_of($resume), qr/^55006/, 'a third taker');
like($node->error_of("SELECT sofort.abort_transaction('$token')"), qr/^55006/, 'and one who would abort it');
$winner->{in} .= "COMMIT;\n";
foreach my $t (@takers) { $t->{run}->finish; }
$writer->finish;
is($written, "100\n", 'the writer sees what was committed') or diag($complaint);
is(outcome($token), 'committed', 'committed');
like($node->error_of($resume), qr/^55000/, 'a token is good for one end');

# a writer that waits for one that is rolled back
$token = waiting(4);
$writer = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{INSERT INTO p VALUES (1000, 8, 'other') RETURNING v} ], '<', \undef, '>', \$written, '2>', \$complaint);
ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}), 'an insertion of the same key waits');
$node->safe_psql('postgres', "SELECT sofort.abort_transaction('$token')");
$writer->finish;
is($written, "8\n", 'and goes on when it is aborted') or diag($complaint);
is(outcome($token), 'aborted', 'aborted');

# an outcome is told when a power cut cannot change it any more
$token = waiting(4);
$node->arm('kept-closing', 'wait');
my @psql = ('psql', '-XAtq', '-d', $node->connstr('postgres'), '-c');
my ($aborted, $told) = ('', '');
my $aborting = IPC::Run::start([ @psql, "SELECT sofort.abort_transaction('$token')" ], '<', \undef, '>', \$aborted, '2>', \$complaint);
ok($node->wait_at('kept-closing'), 'it is being aborted');
my $asking = IPC::Run::start([ @psql, "SELECT sofort.transaction_outcome('$token')" ], '<', \undef, '>', \$told, '2>', \$complaint);
ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT sofort.transaction_outcome%' AND wait_event_type = 'LWLock'}), 'who asks waits');
is($told, '', 'and is told nothing');
$node->disarm('kept-closing');
$_->finish foreach ($aborting, $asking);
is($told, "aborted\n", 'until it is durable') or diag($complaint);

# ---- expiry, also killed in it ----
foreach my $point ('kept-closed', 'kept-undone', 'kept-released', '')
{
	my $what = $point ? "killed at $point of expiring" : 'expired';
	$token = waiting(9);
	if ($point)
	{
		$node->arm($point, 'kill');
		$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 1\n");
		$node->{_pid} && kill('HUP', $node->{_pid});
		ok($node->reap(kill_rest => 1), $what);
		$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 600\n");
		$node->start;
	}
	else
	{
		$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 1\n");
		kill('HUP', $node->{_pid});
		ok($node->wait_until("SELECT sofort.transaction_outcome('$token') = 'expired'"), $what);
		$node->wait_until('SELECT count(*) = 0 FROM sofort.transactions');
		$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 600\n");
		kill('HUP', $node->{_pid});
	}
	check_end($token, $what, 'expired', 0);
	like($node->error_of("BEGIN; SELECT sofort.resume_transaction('$token')"), qr/^55000/, "$what: too late");
}

# ---- one backend's crash takes the others along; a clean stop ends them ----
$node->safe_psql('postgres', $reset);
my ($t1, %t);
my $life = $node->life;
($t1) = client('BEGIN', 'SELECT sofort.keep_transaction()', @work[ 0 .. 5 ], q{SELECT sofort_test.arm('kept-before-boundary', 'kill_backend', 2)}, 'SELECT 1');
ok($node->wait_new_life($life), 'one backend killed');
others_see('one backend killed', 1);
is(outcome($t1), 'open', 'one backend killed: open');
$node->restart;
is(outcome($t1), 'open', 'one that waits survives a clean restart');
$node->safe_psql('postgres', "SELECT sofort.abort_transaction('$t1')");
check_end($t1, 'aborted by its token', 'aborted', 0);

# ---- a lock that went to a later version: KEY SHARE beside an updater ----
$node->safe_psql('postgres', $reset);
%t = (in => "BEGIN;\nSELECT sofort.keep_transaction();\nINSERT INTO c VALUES (1, 80, 'child');\n\\echo ok\n", out => '', err => '');
$t{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$t{in}, '>', \$t{out}, '2>', \$t{err});
$t{run}->pump until $t{out} =~ /ok/ || $t{err} =~ /ERROR/;
$node->safe_psql('postgres', "UPDATE p SET v = $_ WHERE id = 80; VACUUM p") foreach 1 .. 3;
$node->kill9;
$t{run}->kill_kill(grace => 1);
$node->start;
($t1) = $t{out} =~ /^(\w{32})$/m;
like($node->error_of(q{SET lock_timeout = '100ms'; DELETE FROM p WHERE id = 80}), qr/^55P03/, 'its foreign key is in force on the version that others made');
$node->safe_psql('postgres', 'UPDATE p SET v = 4 WHERE id = 80; VACUUM p');
$node->kill9;
$node->start;
like($node->error_of(q{SET lock_timeout = '100ms'; DELETE FROM p WHERE id = 80}), qr/^55P03/, 'also on one that was made while it waited');
$node->safe_psql('postgres', "BEGIN; SELECT sofort.resume_transaction('$t1'); COMMIT");
like($node->error_of('DELETE FROM p WHERE id = 80'), qr/^23503/, 'and holds in the end');
is($node->safe_psql('postgres', $verify), 'clean', 'clean');

# ---- nobody waits: continuation_timeout = 0 ----
$node->append_conf('postgresql.conf', "sofort.continuation_timeout = 0\n");
$token = waiting(5);
check_end($token, 'timeout 0', 'expired', 0);

done_testing();
