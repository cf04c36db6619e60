# Races that stop points make certain: one session is held at the point where
# another one can do harm.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use Session;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

# What is freed is overwritten: who reads it notices.
$ENV{MALLOC_PERTURB_} = 85;

my $node = SofortNode->new('races');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0' ]);
$node->start;

# A session that runs this and then ends.
sub background
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	return {
		out => \$out,
		err => \$err,
		run => IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $sql ],
			'<', \undef, '>', \$out, '2>', \$err)
	};
}

# Each line a transaction of its own.
sub transactions
{
	my (@sql) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \join("\n", map { "$_;" } @sql), '>', \$out, '2>', \$err)
	  or BAIL_OUT($err);
	return;
}

sub ends_well
{
	my ($session, $what) = @_;
	ok(IPC::Run::finish($session->{run}), $what) or diag(${ $session->{err} });
	return;
}

# ---- VACUUM needs an index that is not there after a restart, and builds it ----
# Its transaction holds back nobody's horizon, unless the build sees to that: the
# version it stands on could be freed, and be another row before it is read.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE v (id int PRIMARY KEY, n int) USING sofort;
	INSERT INTO v VALUES (1, 0), (2, 0), (3, 0);
	UPDATE v SET n = 1 WHERE id = 1;
	DELETE FROM v WHERE id = 3});
transactions(map { "SELECT pg_current_xact_id()" } 1 .. 3);
$node->restart;
$node->arm('index-build-version', 'wait');
my $vacuum = background('VACUUM v');
ok($node->wait_at('index-build-version'), 'VACUUM builds the index');
# without the index: it is waited for
my @seqscan = ('SET enable_indexscan = off', 'SET enable_bitmapscan = off');
transactions(@seqscan, ("UPDATE v SET n = n + 1 WHERE id = 1") x 300);
transactions(@seqscan, ("UPDATE v SET n = n + 1 WHERE id = 2") x 600);
$node->disarm('index-build-version');
ends_well($vacuum, 'VACUUM ends');
is( $node->safe_psql(
		'postgres', q{
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	SELECT id, n FROM v WHERE id = 1; SELECT id, n FROM v WHERE id = 2; SELECT id, n FROM v WHERE id = 3}),
	"1|301\n2|600",
	'the index leads to the right rows');
is($node->verify_problems, '', 'verify');

# ---- An index is built as a whole: the build knows the newest version of a row when another one
# comes, which takes no index entry and so does not meet the build.  Or the newest is rolled back. ----
foreach my $case ([ 0, 'an update' ], [ 1, 'a rollback and an update' ])
{
	my ($rolled_back, $what) = @$case;
	$node->safe_psql(
		'postgres', q{
		DROP TABLE IF EXISTS whole;
		CREATE TABLE whole (id int, n int) USING sofort;
		INSERT INTO whole VALUES (1, 0);
		CREATE INDEX whole_id ON whole USING sofort_index ((id + 0))});
	$node->restart;
	my $first = session_on($node);
	say_to($first, 'BEGIN; UPDATE whole SET n = 1') if $rolled_back;
	$node->arm('index-build-chain', 'wait');
	my $build = background("SELECT sofort_test.rebuild('whole_id', 0)");
	ok($node->wait_at('index-build-chain'), "$what: the index is being built");
	say_to($first, 'ROLLBACK') if $rolled_back;
	transactions('UPDATE whole SET n = 2');
	$node->disarm('index-build-chain');
	ends_well($build, "$what: it is built");
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT n FROM whole WHERE id + 0 = 1'), '2', "$what: the index leads to the row");
	is($node->verify_problems, '', "$what: verify");
	$first->{run}->finish;
}

# ---- VACUUM has found the root of a dead version when both are freed and used again.  It lies
# before its root, so that VACUUM comes to it first; linked, or taken out of its chain and not
# freed, because the server was killed in between. ----
sub freed_and_used
{
	my ($point, $killed) = @_;
	$node->safe_psql(
		'postgres', q{
		DROP TABLE IF EXISTS o;
		CREATE TABLE o (id int PRIMARY KEY, n int) USING sofort;
		INSERT INTO o SELECT i, 0 FROM generate_series(1, 8) i;
		DELETE FROM o WHERE id <= 3});
	transactions(("SELECT pg_current_xact_id()") x 3, 'VACUUM o', ("SELECT pg_current_xact_id()") x 3);
	# the horizon is looked at anew every 32nd time that no row id is free
	transactions(("UPDATE o SET n = n + 1 WHERE id = 8") x 40);
	if ($killed)
	{
		ok($node->crash_at($killed, 'VACUUM o'), "VACUUM is killed at $killed");
		$node->start;
	}
	$node->arm($point, 'wait');
	my $session = background('VACUUM o');
	ok($node->wait_at($point), "VACUUM waits at $point");
	transactions(("UPDATE o SET n = n + 1 WHERE id = 8") x 300);
	transactions(map { "INSERT INTO o VALUES (1000 + $_, $_)" } 1 .. 500);
	$node->disarm($point);
	ends_well($session, "$point: VACUUM ends");
	is($node->safe_psql('postgres', 'SELECT count(*), sum(n) FROM o'), '505|125590', "$point: no row is lost");
	is($node->verify_problems, '', "$point: verify");
	return;
}
freed_and_used('store-prune-walk');
freed_and_used('store-orphan-walk', 'store-prune-unlinked');

# ---- VACUUM has found a dead version when it is freed, is the root of a new row, and that is rolled back:
# its index entries go first ----
{
	$node->safe_psql('postgres', q{
		DROP TABLE IF EXISTS o;
		CREATE TABLE o (id int PRIMARY KEY, n int) USING sofort;
		INSERT INTO o SELECT i, 0 FROM generate_series(1, 8) i;
		DELETE FROM o WHERE id <= 3});
	transactions(('SELECT pg_current_xact_id()') x 3, 'VACUUM o', ('SELECT pg_current_xact_id()') x 3);
	transactions(('UPDATE o SET n = n + 1 WHERE id = 8') x 40);
	$node->arm('store-prune-state', 'wait');
	my $session = background('VACUUM o');
	ok($node->wait_at('store-prune-state'), 'VACUUM waits between a version and its state');
	transactions(('UPDATE o SET n = n + 1 WHERE id = 8') x 300);
	transactions(map { "BEGIN; INSERT INTO o VALUES (1000 + $_, $_); ROLLBACK" } 1 .. 500);
	$node->disarm('store-prune-state');
	ends_well($session, 'VACUUM ends');
	transactions(('SELECT pg_current_xact_id()') x 3);
	transactions(map { "INSERT INTO o VALUES (5000 + $_, $_)" } 1 .. 500);
	is($node->verify_problems, '', 'no entry is left of a row that was rolled back and freed');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE id BETWEEN 1001 AND 1500'), 0, 'nor found');
}

# ---- a rollback is on its way to the root of its version when what lies there is freed and used again:
# its transaction has ended for all others, who wait for nobody's snapshot ----
{
	$node->safe_psql('postgres', q{
		DROP TABLE IF EXISTS o;
		CREATE TABLE o (id int PRIMARY KEY, n int) USING sofort;
		INSERT INTO o SELECT i, 0 FROM generate_series(1, 8) i});
	my $old = session_on($node);
	say_to($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM o');
	transactions(('UPDATE o SET n = n + 1 WHERE id = 8') x 6);
	$node->arm('store-root-walk', 'wait', 2);
	my $session = background('BEGIN; UPDATE o SET n = -1 WHERE id = 8; ROLLBACK');
	ok($node->wait_at('store-root-walk'), 'a rollback goes to the root');
	say_to($old, 'COMMIT');
	$old->{run}->finish;
	transactions(('SELECT pg_current_xact_id()') x 3, 'VACUUM o', ('SELECT pg_current_xact_id()') x 3);
	transactions(map { "INSERT INTO o VALUES (1000 + $_, $_)" } 1 .. 300);
	$node->disarm('store-root-walk');
	ends_well($session, 'the rollback ends');
	is($node->safe_psql('postgres', 'SELECT count(*), sum(n) FROM o'), '308|45156', 'no row is lost');
	transactions('DELETE FROM o', 'SELECT pg_current_xact_id()', 'VACUUM o', 'VACUUM o');
	is($node->safe_psql('postgres', q{SELECT entries FROM sofort.indexes WHERE index = 'o_pkey'::regclass}), 0, 'and its version is not left in the chain');
	is($node->verify_problems, '', 'verify');
}

# ---- a rolled back subtransaction goes through its row locks while others give it
# some, and take back what they gave ----
sub partition_of
{
	my ($store, $row) = @_;
	my $mul = sub { use integer; $_[0] * $_[1] };
	my $h = $mul->($store, 0x9e3779b97f4a7c15) ^ $row;
	$h = $mul->($h ^ $h >> 33, $_) for 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53;
	return ($h ^ $h >> 33) % 128;
}
sub nobody_locks
{
	my ($when) = @_;
	is($node->safe_psql('postgres', 'SELECT sofort_test.lock_entries()'), '0', "$when: no entry is left");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT * FROM l FOR UPDATE SKIP LOCKED) q'), '100', "$when: nobody holds a row");
	return;
}
$node->safe_psql('postgres', 'CREATE TABLE l (id int PRIMARY KEY, n int) USING sofort; INSERT INTO l SELECT i, 0 FROM generate_series(1, 100) i');
my $holder = session_on($node);
say_to($holder, 'BEGIN');
say_to($holder, 'SAVEPOINT a');
say_to($holder, 'SELECT FROM l WHERE id = 1 FOR KEY SHARE');
transactions('SELECT FROM l WHERE id = 1 FOR KEY SHARE');
is($node->safe_psql('postgres', 'SELECT sofort_test.lock_entries()'), '1', 'a lock is an entry');
$node->arm('row-lock-found', 'wait');
send_to($holder, 'ROLLBACK TO a');
ok($node->wait_at('row-lock-found'), 'it is about to be removed');
transactions('UPDATE l SET n = 1 WHERE id = 1');
is($node->safe_psql('postgres', 'SELECT sofort_test.lock_entries()'), '2', 'and is carried to the next version');
$node->disarm('row-lock-found');
is(answer($holder), '', 'rolled back');
nobody_locks('carried meanwhile');

# the lock table grows while the locks of a row are copied to its next version: none is left behind
{
	my @holders = map { session_on($node) } 1 .. 12;
	say_to($_, 'BEGIN; SELECT FROM l WHERE id = 3 FOR KEY SHARE') foreach @holders;
	my $updates = 4000;
	transactions("DO 'BEGIN FOR i IN 1 .. $updates LOOP UPDATE l SET n = i WHERE id = 3; COMMIT; END LOOP; END'");
	is($node->safe_psql('postgres', 'SELECT sofort_test.lock_entries()'), @holders * ($updates + 1), 'all locks are carried to all versions');
	while (my $session = shift @holders)
	{
		like($node->error_of('SET lock_timeout = 10; DELETE FROM l WHERE id = 3'), qr/55P03/, 1 + @holders . ' hold the newest one');
		say_to($session, 'COMMIT');
		SofortNode::drop_session($session);
	}
	nobody_locks('carried while the table grew');
}

# the entry of row 2 is taken back when the holder's next step would be to look at it
my $store = $node->safe_psql('postgres', q{SELECT store_id FROM sofort.tables WHERE relation = 'l'::regclass});
# (row ids are counted from 0; the partition of row 2 is locked meanwhile)
my ($other) = grep { partition_of($store, $_ - 1) != partition_of($store, 1) } 3, 4, 5;
say_to($holder, 'SAVEPOINT a');
say_to($holder, "SELECT FROM l WHERE id IN (2, 50, $other) FOR SHARE");
transactions('SELECT FROM l WHERE id = 50 FOR KEY SHARE');
$node->arm('row-lock-added', 'wait');
my $adder = session_on($node);
say_to($adder, 'BEGIN');
send_to($adder, 'SELECT FROM l WHERE id = 2 FOR KEY SHARE');
ok($node->wait_at('row-lock-added'), 'an entry was added for the holder');
transactions("SELECT FROM l WHERE id = $other FOR KEY SHARE");
$node->arm('row-lock-found', 'wait');
send_to($holder, 'ROLLBACK TO a');
ok($node->wait_at('row-lock-found'), 'the holder comes to a later one first');
$node->disarm('row-lock-added');
is(answer($adder), '', 'the entry is taken back');
# and is an entry of others now, which would lead the holder astray
say_to($adder, 'SELECT FROM l WHERE id BETWEEN 60 AND 70 FOR KEY SHARE');
say_to($adder, 'SAVEPOINT b');
say_to($adder, 'SELECT FROM l WHERE id BETWEEN 60 AND 70 FOR SHARE');
$node->disarm('row-lock-found');
is(answer($holder), '', 'rolled back');
say_to($adder, 'ROLLBACK');
nobody_locks('taken back meanwhile');
say_to($holder, 'ROLLBACK');
is($node->verify_problems, '', 'verify');

# ---- Who waits for a row goes on when the subtransaction that has it is rolled back, however deep
# that is: SAVEPOINT again and again, without RELEASE, goes one level down each time. A level within
# must not let him go on, one of the levels around must not keep him. ----
sub waits
{
	my ($pid, $what) = @_;
	ok($node->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE pid = $pid AND NOT granted"), $what);
	return;
}
sub goes_on
{
	my ($session, $pid, $result, $what) = @_;
	my $done = ok($node->wait_until("SELECT state <> 'active' FROM pg_stat_activity WHERE pid = $pid"), $what);
	# (else the answer would never come)
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") if !$done;
	is(answer($session), $result, "$what: result");
	return $done;
}
sub down
{
	my ($session, $levels) = @_;
	return say_to($session, join('; ', ('SAVEPOINT a') x $levels));
}
$node->safe_psql('postgres', 'CREATE TABLE deep (id int PRIMARY KEY, v int) USING sofort; INSERT INTO deep SELECT i, 0 FROM generate_series(1, 3) i');
my ($top, $waiter) = map { session_on($node) } 1, 2;
chomp(my $waiter_pid = say_to($waiter, 'SELECT pg_backend_pid()'));
DEPTH: foreach my $depth (63, 64, 65, 100, 128, 1000)
{
	foreach my $claim ('UPDATE deep SET v = 1 WHERE id = 1', 'SELECT FROM deep WHERE id = 1 FOR UPDATE')
	{
		my $what = "$depth levels, $claim";
		say_to($top, 'BEGIN; UPDATE deep SET v = 1 WHERE id = 2');
		down($top, $depth);
		is(say_to($top, $claim), '', $what);
		down($top, 1);
		say_to($top, 'UPDATE deep SET v = 1 WHERE id = 3');
		send_to($waiter, 'UPDATE deep SET v = v + 10 WHERE id = 1 RETURNING v');
		waits($waiter_pid, "$what: another one waits");
		say_to($top, 'ROLLBACK TO a; RELEASE a');
		waits($waiter_pid, "$what: also when a level within is gone");
		say_to($top, 'ROLLBACK TO a');
		goes_on($waiter, $waiter_pid, "10\n", "$what: he goes on") or last DEPTH;
		# what was released belongs to a level around, and is gone with that
		say_to($top, 'UPDATE deep SET v = v + 1 WHERE id = 1; RELEASE a; RELEASE a; SELECT FROM deep WHERE id = 3 FOR UPDATE');
		send_to($waiter, 'UPDATE deep SET v = v + 10 WHERE id = 1 RETURNING v');
		waits($waiter_pid, "$what: released, he waits");
		say_to($top, 'ROLLBACK TO a');
		goes_on($waiter, $waiter_pid, "20\n", "$what: released, he goes on") or last DEPTH;
		send_to($waiter, 'UPDATE deep SET v = v + 10 WHERE id = 2 RETURNING v');
		waits($waiter_pid, "$what: he waits for the top");
		say_to($top, 'ROLLBACK');
		goes_on($waiter, $waiter_pid, "10\n", "$what: until that ends") or last DEPTH;
		$node->safe_psql('postgres', 'UPDATE deep SET v = 0');
	}
}
say_to($_, 'ROLLBACK') foreach ($top, $waiter);
is($node->verify_problems, '', 'verify');

# ---- verify_pool() reads what is referred to, then what is allocated: what a transaction takes in between is not
# lost, even if another one takes the same space in between when it looks again ----
{
	$node->safe_psql('postgres', 'CREATE TABLE chunks (id int, n int) USING sofort; INSERT INTO chunks SELECT i, 0 FROM generate_series(1, 50000) i');
	my $writer = session_on($node);
	my $change = 'BEGIN; UPDATE chunks SET n = n + 1 WHERE id % 500 = 0';	# more entries than a control block has
	my $taken = q{SELECT start FROM sofort_test.chains() WHERE class = 'chunk'};
	say_to($writer, "$change; COMMIT");	# (takes space for versions, too)
	$node->arm('verify-referred', 'wait');
	my $check = background('SELECT * FROM sofort.verify_pool()');
	ok($node->wait_at('verify-referred'), 'the references were read');
	is(say_to($writer, $change), '', 'a transaction takes space');
	my $first = $node->safe_psql('postgres', $taken);
	like($first, qr/^\d+$/, 'for its write set');
	$node->arm('verify-look', 'wait');
	$node->disarm('verify-referred');
	ok($node->wait_at('verify-look'), 'that looks lost: another look');
	is(say_to($writer, 'COMMIT'), '', 'the transaction ends');
	$node->arm('verify-referred', 'wait');
	$node->disarm('verify-look');
	ok($node->wait_at('verify-referred'), 'the references were read again');
	is(say_to($writer, $change), '', 'the next transaction takes space');
	is($node->safe_psql('postgres', $taken), $first, 'the same');
	$node->disarm('verify-referred');
	ends_well($check, 'verify_pool() ends');
	is(${ $check->{out} }, '', 'nothing is lost');
	is(say_to($writer, 'COMMIT'), '', 'the transaction ends');
	$writer->{in} .= "\\q\n";
	IPC::Run::finish($writer->{run});
}

# ---- A row has been moved to another partition by a transaction that has committed and not stamped
# its rows yet: whoever follows the row must not take it for deleted. ----
$node->safe_psql(
	'postgres', q{
	CREATE TABLE p (id int, part int, n int) PARTITION BY LIST (part);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1) USING sofort;
	CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2) USING sofort;
	INSERT INTO p VALUES (1, 1, 0)});
foreach my $what ('UPDATE p SET n = n + 1', 'DELETE FROM p', 'SELECT * FROM p')
{
	my $gate = session_on($node);
	my $late = session_on($node);
	say_to($gate, 'SELECT pg_advisory_lock(1)');
	# the snapshot is older than what follows
	send_to($late, "$what WHERE id = 1 AND (SELECT pg_advisory_lock(1)) IS NOT NULL" . ($what =~ /SELECT/ ? ' FOR UPDATE' : ''));
	ok($node->wait_until("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"), "$what has its snapshot");
	$node->arm('commit-before-stamp', 'wait');
	my $mover = background('UPDATE p SET part = 3 - part WHERE id = 1');
	ok($node->wait_at('commit-before-stamp'), 'the row has been moved');
	say_to($gate, 'SELECT pg_advisory_unlock(1)');
	like(answer($late), qr/40001: tuple to be locked was already moved to another partition/, "$what fails");
	$node->disarm('commit-before-stamp');
	ends_well($mover, 'and the commit ends');
	foreach my $session ($gate, $late)
	{
		$session->{in} .= "\\q\n";
		IPC::Run::finish($session->{run});
	}
}
is($node->safe_psql('postgres', 'SELECT * FROM p'), '1|2|0', 'the row is where it was moved to');

# ---- a large transaction is being rolled back: who does not want to wait does not ----
{
	$node->safe_psql('postgres', 'CREATE TABLE r (id int PRIMARY KEY, n int) USING sofort; INSERT INTO r VALUES (1, 0), (2, 0)');
	$node->arm('abort-before-undo', 'wait');
	my $writer = background('BEGIN; UPDATE r SET n = n + 1 WHERE id = 1; ROLLBACK');
	ok($node->wait_at('abort-before-undo'), 'a transaction is about to be undone');
	is($node->error_of(q{SET statement_timeout = '10s'; SELECT n FROM r WHERE id = 1 FOR UPDATE NOWAIT}), '55P03: could not obtain lock on row in relation "r"', 'NOWAIT');
	is($node->safe_psql('postgres', q{SET statement_timeout = '10s'; SELECT id FROM r ORDER BY id FOR UPDATE SKIP LOCKED}), 2, 'SKIP LOCKED');
	my $waiter = background('SELECT n FROM r WHERE id = 1 FOR UPDATE');
	$node->disarm('abort-before-undo');
	ends_well($writer, 'the rollback ends');
	ends_well($waiter, 'and who waits for it');
	is(${ $waiter->{out} }, "0\n", 'has the row as it was');
	is($node->safe_psql('postgres', 'SELECT id FROM r ORDER BY id FOR UPDATE SKIP LOCKED'), "1\n2", 'nothing is locked any more');
}

# ---- a row is read whose writer has committed, but not stamped it; when xmin is asked for, the
# writer's place among the transactions has other users ----
{
	my $gate = session_on($node);
	my $reader = session_on($node);
	$node->safe_psql('postgres', 'CREATE TABLE x (id int) USING sofort; CREATE TABLE y (id int) USING sofort');
	say_to($gate, 'SELECT pg_advisory_lock(1)');
	$node->arm('commit-before-stamp', 'wait');
	my $writer = background('INSERT INTO x VALUES (1)');
	ok($node->wait_at('commit-before-stamp'), 'a row has been inserted');
	send_to($reader, q{SELECT pg_advisory_lock_shared(1) IS NULL, xmin = 0, (x.*)::text, (SELECT xmin <> 0 FROM x) FROM x});
	ok($node->wait_until("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"), 'and read');
	$node->disarm('commit-before-stamp');
	ends_well($writer, 'the commit ends');
	transactions(('INSERT INTO y VALUES (1)') x 20);
	say_to($gate, 'SELECT pg_advisory_unlock(1)');
	like(answer($reader), qr/^f\|f\|\(1\)\|t$/, 'its xmin');
	foreach my $session ($gate, $reader)
	{
		$session->{in} .= "\\q\n";
		IPC::Run::finish($session->{run});
	}
}
# ---- the comparison of keys opens the relation of their row type, which another session has locked,
# and then waits for the key: that is a deadlock like any other, and all can be cancelled ----
{
	$node->append_conf('postgresql.conf', "deadlock_timeout = '100ms'");
	$node->reload;
	$node->safe_psql(
		'postgres', q{
		CREATE TYPE pair AS (x int);
		CREATE TABLE k (k pair PRIMARY KEY) USING sofort;
		INSERT INTO k VALUES (ROW(2));
		CREATE TABLE source (k pair);
		INSERT INTO source VALUES (ROW(1))});
	foreach my $end ('deadlock', 'cancelled', 'terminated', 'granted')
	{
		my $altering = session_on($node);
		my $inserting = session_on($node);
		my $third = session_on($node);
		say_to($altering, 'BEGIN; ALTER TYPE pair RENAME ATTRIBUTE x TO y');
		my $pid = say_to($inserting, 'SELECT pg_backend_pid()');
		chomp $pid;
		send_to($inserting, 'INSERT INTO k SELECT k FROM source');
		ok($node->wait_until("SELECT count(*) = 1 FROM pg_locks WHERE relation = 'pair'::regclass AND NOT granted AND pid = $pid"), "$end: a comparison waits for the row type");
		if ($end eq 'deadlock')
		{
			# one of the two is chosen, the other one goes on
			send_to($altering, 'INSERT INTO k SELECT k FROM source');
			my @failed = grep { /40P01: deadlock detected/ } (answer($altering), do { say_to($altering, 'ROLLBACK'); answer($inserting) });
			is(scalar(@failed), 1, 'deadlock detected');
		}
		elsif ($end eq 'granted')
		{
			# nobody comes between check and insertion
			send_to($third, 'INSERT INTO k SELECT k FROM source');
			ok($node->wait_until("SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 'another one with the same key waits');
			say_to($altering, 'ROLLBACK');
			my @answers = sort(answer($inserting), answer($third));
			is($answers[0], '', 'one has the key');
			like($answers[1], qr/^ERROR:  23505/, 'and one only');
		}
		else
		{
			my $function = $end eq 'cancelled' ? 'pg_cancel_backend' : 'pg_terminate_backend';
			is($node->safe_psql('postgres', "SELECT $function($pid)"), 't', "$end while it waits");
			like(answer($inserting), $end eq 'cancelled' ? qr/57014/ : qr/57P01/, "$end");
			is(say_to($altering, 'INSERT INTO k SELECT k FROM source'), '', 'it holds nothing any more');
			say_to($altering, 'ROLLBACK');
		}
		foreach my $session ($altering, $inserting, $third)
		{
			$session->{in} .= "\\q\n";
			IPC::Run::finish($session->{run});
		}
		is($node->safe_psql('postgres', q{DELETE FROM k WHERE (k).x = 1; SELECT count(*) FROM pg_locks WHERE locktype = 'tuple'}), 0, 'no lock is left');
	}
	is($node->verify_problems, '', 'verify');
}

# ---- a session whose first guarded work came before it had a temporary schema is terminated in a later one: what
# PostgreSQL registered since, which ends the transaction and frees its memory, does not come first ----
{
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE long (t text) USING sofort;
		CREATE UNIQUE INDEX long_t ON long (t);
		CREATE TABLE many (t text) USING sofort;
		INSERT INTO many SELECT repeat(md5(i::text), 6) FROM generate_series(1, 20000) i});
	my $log = -s $node->logfile;
	foreach my $work ('build', 'insertion')
	{
		my $other = session_on($node);
		my $session = session_on($node);
		is(say_to($session, q{INSERT INTO long VALUES (repeat('a', 300)) ON CONFLICT DO NOTHING; CREATE INDEX ON long (t, t); CREATE TEMP TABLE x (n int)}), '', "$work: a session");
		chomp(my $pid = say_to($session, 'SELECT pg_backend_pid()'));
		if ($work eq 'build')
		{
			$node->arm('index-build-version', 'wait', 20000);
			send_to($session, 'CREATE INDEX many_t ON many (t)');
			ok($node->wait_at('index-build-version'), 'a build is held');
		}
		else
		{
			# (so large a statement that its memory is given back)
			say_to($other, q{BEGIN; INSERT INTO long VALUES (repeat('b', 300))});
			send_to($session, q{INSERT INTO long SELECT repeat('b', 300) FROM generate_series(1, 2) g WHERE } . join(' AND ', map { "g <> $_" } 101 .. 400));
			ok($node->wait_until("SELECT wait_event = 'transactionid' FROM pg_stat_activity WHERE pid = $pid"), 'an insertion waits for a key');
		}
		is($node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)"), 't', "$work: terminated");
		$node->disarm('index-build-version') if $work eq 'build';
		like(answer($session), qr/57P01/, "$work: that alone ends the session");
		unlike(say_to($other, 'ROLLBACK'), qr/server closed/, "$work: others go on");
		foreach my $s ($other, $session)
		{
			$s->{in} .= "\\q\n";
			eval { IPC::Run::finish($s->{run}) };
		}
		is($node->verify_problems, '', "$work: verify");
	}
	unlike(substr(slurp_file($node->logfile), $log), qr/terminated by signal/, 'no process crashed');
	$node->safe_psql('postgres', 'CREATE INDEX many_t ON many (t)');
}

# ---- an insertion has lost the race of ON CONFLICT: VACUUM may give its row to others, who free its value, and that
# to others again, when its transaction has ended for them and has not given up yet what it has reserved ----
{
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE loser (id int PRIMARY KEY, t text) USING sofort;
		INSERT INTO loser SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 100) i});
	my $session = session_on($node);
	say_to($session, 'BEGIN');
	$node->arm('pmem-linked', 'wait');
	send_to($session, q{INSERT INTO loser VALUES (0, md5('a') || md5('b')) ON CONFLICT DO NOTHING});
	ok($node->wait_at('pmem-linked'), 'an insertion is held');
	transactions(q{INSERT INTO loser VALUES (0, md5('c') || md5('d'))});
	$node->disarm('pmem-linked');
	is(answer($session), '', 'it has lost');
	transactions(('SELECT pg_current_xact_id()') x 3, 'VACUUM loser', ('SELECT pg_current_xact_id()') x 3);
	$node->arm('pmem-releasing', 'wait');
	send_to($session, 'ROLLBACK');
	ok($node->wait_at('pmem-releasing'), 'its transaction is being rolled back');
	transactions(('SELECT pg_current_xact_id()') x 3,
		map { "INSERT INTO loser SELECT i, md5(i::text) || md5((i + 1)::text) FROM generate_series(1000 + 10 * $_, 1009 + 10 * $_) i" } 1 .. 100);
	$node->disarm('pmem-releasing');
	is(answer($session), '', 'it has ended');
	transactions(map { "INSERT INTO loser VALUES (5000 + $_, md5('x$_') || md5('y$_'))" } 1 .. 50);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM loser WHERE id BETWEEN 1010 AND 2009 AND t <> md5(id::text) || md5((id + 1)::text)'), 0, 'the values of others are there');
	is($node->verify_problems, '', 'verify');
	$session->{in} .= "\\q\n";
	IPC::Run::finish($session->{run});
}

# ---- two are about to insert the first rows of a table with a fill factor: both follow it ----
{
	$node->safe_psql('postgres', join(';', map { "CREATE TABLE $_ (id int, t text) USING sofort WITH (fillfactor = 20)" } 'alone', 'filled'));
	my $copy = sub { return qq{COPY $_[0] FROM PROGRAM 'for i in `seq 1 100`; do printf "%d\\t%01900d\\n" \$i 0; done'} };
	my $most = sub { return $node->safe_psql('postgres', "SELECT max(n) FROM (SELECT count(*) n FROM $_[0] GROUP BY (ctid::text::point)[0]) q") };
	transactions(q{INSERT INTO alone VALUES (0, repeat('0', 1900))}, $copy->('alone'));
	$node->arm('store-append', 'wait');
	my $session = background($copy->('filled'));
	ok($node->wait_at('store-append'), 'COPY looks for the first row');
	transactions(q{INSERT INTO filled VALUES (0, repeat('0', 1900))});
	$node->disarm('store-append');
	ends_well($session, 'COPY ends');
	is($most->('filled'), $most->('alone'), 'no block has more rows');
}
$node->stop;

# ---- the directory of transactions has grown, which is not durable yet: who has a place in it for the first time
# waits for that, else a power cut could take the place of what he has committed ----
{
	my $young = SofortNode->new('young');
	$young->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0' ]);
	$young->start;
	# places are given out from the last to the first; from PostgreSQL 16 on the other way round. One that
	# somebody gives back meanwhile would be the next
	ok($young->wait_for_places, 'nobody else has a place');
	my %session;
	foreach my $name ($young->pg_version >= 16 ? ('low', 'middle', 'high') : ('high', 'middle', 'low'))
	{
		$session{$name} = session_on($young);
		is(say_to($session{$name}, 'SELECT 1'), "1\n", "session $name");
	}
	is(say_to($session{low}, 'CREATE TABLE y (id int) USING sofort; INSERT INTO y VALUES (1)'), '', 'the pool has transactions');
	# (their directory grows, too, when the launcher saves them)
	ok($young->workload_is_saved('y'), 'statistics of the workload are saved');
	chomp(my $pid = say_to($session{middle}, 'SELECT pg_backend_pid()'));
	$young->arm('pmem-vector-published', 'wait');
	send_to($session{high}, 'INSERT INTO y VALUES (2)');
	ok($young->wait_at('pmem-vector-published'), 'their directory grows');
	send_to($session{middle}, 'INSERT INTO y VALUES (3)');
	ok($young->wait_until("SELECT wait_event_type = 'LWLock' FROM pg_stat_activity WHERE pid = $pid"), 'another transaction waits for that');
	$young->disarm('pmem-vector-published');
	is(answer($session{$_}), '', "session $_ goes on") foreach ('high', 'middle');
	is($young->safe_psql('postgres', 'SELECT count(*) FROM y'), 3, 'rows');
	foreach my $s (values %session)
	{
		$s->{in} .= "\\q\n";
		IPC::Run::finish($s->{run});
	}
	$young->stop;
}
done_testing();
