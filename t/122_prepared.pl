# PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED: SIGKILL at every
# named point of each, and of the start that takes them up again. A transaction
# is prepared or absent, then whole or absent, in sofort and heap tables alike;
# while it is prepared its row locks are in force, also those that went to later
# versions, also after a clean restart.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('prepared');
$node->init(conf => [ 'max_prepared_transactions = 3', 'autovacuum = off', 'checkpoint_timeout = 1h' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE p (id int PRIMARY KEY, v int, t text) USING sofort;
	CREATE TABLE h (id int PRIMARY KEY, v int, t text) USING heap;
	INSERT INTO p VALUES (-1, 0, 'counter'), (0, 0, 'row');
	INSERT INTO h VALUES (-1, 0, 'counter'), (0, 0, 'row');
	CREATE TABLE truncated (i int PRIMARY KEY) USING sofort;
	INSERT INTO truncated VALUES (0);
	CREATE TABLE made_0 (i int PRIMARY KEY) USING sofort;
	INSERT INTO made_0 VALUES (0);
	CREATE TABLE l (id int PRIMARY KEY, v int) USING sofort;
	INSERT INTO l SELECT i, 0 FROM generate_series(1, 8) i;
	CREATE FUNCTION probe(OUT result text) LANGUAGE plpgsql AS $$
	DECLARE row int; mode text;
	BEGIN
		result := '';
		FOR row IN 1 .. 4 LOOP
			FOREACH mode IN ARRAY ARRAY['KEY SHARE', 'SHARE', 'NO KEY UPDATE', 'UPDATE'] LOOP
				BEGIN
					EXECUTE format('SELECT 1 FROM l WHERE id = %s FOR %s NOWAIT', row, mode);
					result := result || '1';
				EXCEPTION WHEN lock_not_available THEN
					result := result || '0';
				END;
			END LOOP;
			result := result || ' ';
		END LOOP;
	END $$});
my $all_free = '1111 1111 1111 1111 ';
my $all_held = '0000 1000 1100 1110 ';
my $n = 0;

# Transaction n: rows in two tables, a savepoint rolled back, tables made,
# dropped and truncated, locks of all strengths.
sub work
{
	my ($to, %skip) = @_;
	my $from = $to - 1;
	return 'BEGIN;'
	  . join('', map { "INSERT INTO $_ VALUES ($to, $to, 'row'); SAVEPOINT a; DELETE FROM $_; ROLLBACK TO a; UPDATE $_ SET v = $to WHERE id = -1; DELETE FROM $_ WHERE id BETWEEN 0 AND $from;" }
		  ('p', $skip{heap} ? () : 'h'))
	  . ($skip{ddl} ? '' : "CREATE TABLE made_$to (i int PRIMARY KEY) USING sofort; INSERT INTO made_$to VALUES ($to); CREATE INDEX ON p USING sofort_index (v);"
		  . "DROP TABLE made_$from; TRUNCATE truncated; INSERT INTO truncated VALUES ($to);")
	  . 'SELECT FROM l WHERE id = 1 FOR UPDATE; SELECT FROM l WHERE id = 2 FOR NO KEY UPDATE; SELECT FROM l WHERE id = 3 FOR SHARE;'
	  . 'SELECT FROM l WHERE id = 4 FOR KEY SHARE;';
}

# What of transaction n - 1 and what of n is there; n's tables may be locked.
sub state_is
{
	my ($expected, $what, $prepared) = @_;
	my $rows = "-1:$expected:counter $expected:$expected:row";
	my $next = $expected + 1;
	my @is = (
		[ 'SELECT probe()', $prepared ? $all_held : $all_free ],
		[ q{SELECT coalesce(string_agg(gid, ','), '-') FROM pg_prepared_xacts}, $prepared ? 'g' : '-' ],
		[ q{SELECT count(*) FROM sofort.transactions WHERE state = 'prepared' AND entries > 0}, $prepared ? 1 : 0 ]);
	if (($prepared || '') ne 'locked')
	{
		push @is, [ "SELECT string_agg(id || ':' || v || ':' || t, ' ' ORDER BY id) FROM $_", $rows ] foreach ('p', 'h');
	}
	if (!$prepared)
	{
		push @is, [ 'SELECT i FROM truncated', $expected ], [ "SELECT i FROM made_$expected", $expected ],
		  [ "SELECT to_regclass('made_$next') IS NULL", 't' ],
		  [ q{SELECT stores - (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'sofort') FROM sofort.pool}, 0 ],
		  [ q{SELECT coalesce(string_agg(v::text, ' '), 'clean') FROM pg_class c JOIN pg_am a ON a.oid = c.relam, sofort.verify(c.oid::regclass) v WHERE a.amname = 'sofort'}, 'clean' ];
	}
	is($node->safe_psql('postgres', join(';', map { $_->[0] } @is)), join("\n", map { $_->[1] } @is), $what);
	return;
}

sub finish
{
	my ($how) = @_;
	$node->safe_psql('postgres', "$how PREPARED 'g'");
	$n++ if $how eq 'COMMIT';
	return;
}

# ---- killed in PREPARE TRANSACTION ----
my $round = 0;
foreach my $case (
	[ 'twophase-locks-logged', 0 ], [ 'twophase-before-durable', 0 ],
	[ 'twophase-durable', 0 ], [ 'twophase-prepared', 1 ])
{
	my ($point, $prepared) = @$case;
	my $what = "PREPARE killed at $point";
	ok($node->crash_at($point, work($n + 1) . q{PREPARE TRANSACTION 'g'}), $what);
	if ($round++ % 2 == 1)
	{
		$node->arm_at_start($prepared ? 'twophase-adopted' : 'leftover-resolved', 'kill');
		$node->spawn;
		ok($node->reap, "$what: killed again at the next start");
	}
	$node->start;
	state_is($n, $what, $prepared ? 'locked' : '');
	next unless $prepared;
	finish('ROLLBACK');
	state_is($n, "$what: in the end");
}

# ---- killed in COMMIT PREPARED and ROLLBACK PREPARED; between PREPARE and it
# nothing, a clean restart, or a crash ----
foreach my $how ('COMMIT', 'ROLLBACK')
{
	foreach my $point ('twophase-finished', 'twophase-stamped', 'twophase-released', 'store-drop-begun', 'store-drop-freed')
	{
		next if $how eq 'ROLLBACK' && $point !~ /-(stamped|freed)$/ && !$ENV{SOFORT_LONG};
		my $what = "$how PREPARED killed at $point";
		$node->safe_psql('postgres', work($n + 1) . q{PREPARE TRANSACTION 'g'});
		if (++$round % 3 == 1) { $node->restart; }
		elsif ($round % 3 == 2) { $node->kill9; $node->start; }
		state_is($n, "$what: before", 'locked') if $round % 3 < 2;
		ok($node->crash_at($point, "$how PREPARED 'g'"), $what);
		$n++ if $how eq 'COMMIT';
		if ($round % 3 == 0)
		{
			$node->arm_at_start($point eq 'twophase-released' ? 'pmem-life-raised' : 'leftover-resolved', 'kill');
			$node->spawn;
			ok($node->reap, "$what: killed again at the next start");
		}
		$node->start;
		state_is($n, $what);
	}
}

# ---- one backend killed ----
foreach my $how ('COMMIT', 'ROLLBACK')
{
	my $life;
	$node->safe_psql('postgres', work($n + 1) . q{PREPARE TRANSACTION 'g'});
	$life = $node->life;
	$node->psql('postgres', q{SELECT sofort_test.arm('commit-before-durable', 'kill_backend'); BEGIN; UPDATE l SET v = 1 WHERE id = 8; COMMIT});
	ok($node->wait_new_life($life), "$how: crash-restart of prepared transactions");
	state_is($n, "$how: crash-restart", 'locked');
	$life = $node->life;
	$node->psql('postgres', "SELECT sofort_test.arm('twophase-stamped', 'kill_backend'); $how PREPARED 'g'");
	$n++ if $how eq 'COMMIT';
	ok($node->wait_new_life($life), "$how: crash-restart while it is finished");
	state_is($n, "$how: in the end");
}

# ---- only rows of sofort tables, only locks: no WAL but PostgreSQL's own ----
foreach my $how ('COMMIT', 'ROLLBACK')
{
	$node->safe_psql('postgres', work($n + 1, heap => 1, ddl => 1) . q{PREPARE TRANSACTION 'g'});
	state_is($n, "sofort rows only, $how", 'prepared');
	$node->kill9;
	$node->start;
	state_is($n, "sofort rows only, $how, after a crash", 'prepared');
	$node->safe_psql('postgres', "$how PREPARED 'g'");
	my $to = $n + 1;
	if ($how eq 'COMMIT')
	{
		$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES ($to, $to, 'row'); UPDATE h SET v = $to WHERE id = -1; DELETE FROM h WHERE id BETWEEN 0 AND $n; ALTER TABLE made_$n RENAME TO made_$to; UPDATE made_$to SET i = $to; UPDATE truncated SET i = $to; COMMIT");
		$n++;
	}
	$node->kill9;
	$node->start;
	state_is($n, "sofort rows only, $how PREPARED and a crash");
}
$node->safe_psql('postgres', q{BEGIN; SELECT FROM l WHERE id = 1 FOR UPDATE; SELECT FROM l WHERE id = 2 FOR NO KEY UPDATE; SELECT FROM l WHERE id = 3 FOR SHARE; SELECT FROM l WHERE id = 4 FOR KEY SHARE; PREPARE TRANSACTION 'g'});
foreach my $after ('crash', 'restart', 'crash')
{
	$after eq 'crash' ? $node->kill9 : $node->stop;
	$node->start;
	state_is($n, "locks only, after a $after", 'prepared');
}
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'g'});
state_is($n, 'locks only, rolled back');

# ---- locks that went to a new version (FK check, update of other columns,
# crash, DELETE): also if the old version is gone, and many of them ----
$node->safe_psql('postgres', q{
	CREATE TABLE parent (i int PRIMARY KEY, v int) USING sofort;
	CREATE TABLE child (i int REFERENCES parent) USING sofort;
	INSERT INTO parent SELECT i, 0 FROM generate_series(1, 300) i});
my $older = $node->background_psql('postgres');
$older->query_safe('BEGIN; UPDATE l SET v = v WHERE id = 7');
$node->safe_psql('postgres', q{BEGIN; INSERT INTO child SELECT i FROM parent WHERE i > 1; PREPARE TRANSACTION 'g'});
# (by a transaction that is older than the prepared one, so that its horizon
# does not protect the old version)
$older->query_safe('UPDATE parent SET v = 1; UPDATE parent SET v = 2; COMMIT');
$older->quit;
$node->safe_psql('postgres', 'UPDATE parent SET v = 3 WHERE i % 2 = 0; VACUUM parent');
my $deny = sub {
	my ($what) = @_;
	is($node->error_of("SET lock_timeout = '50ms'; DELETE FROM parent WHERE i = $_"), '55P03: canceling statement due to lock timeout', "$what: row $_ cannot be deleted")
	  foreach (2, 3, 299, 300);
	is($node->safe_psql('postgres', 'WITH d AS (SELECT i FROM parent FOR UPDATE SKIP LOCKED) SELECT count(*) FROM d'), '1', "$what: one row is free");
	$node->safe_psql('postgres', 'UPDATE parent SET v = v + 1 WHERE i IN (2, 5, 299)');
};
$deny->('before the crash');
$node->kill9;
$node->start;
$deny->('after a crash');
ok($node->crash_at('twophase-lock-carried', 'UPDATE parent SET v = v + 1', 3), 'killed while locks are carried');
$node->start;
$node->safe_psql('postgres', 'VACUUM parent');
$deny->('after the next crash');
$node->safe_psql('postgres', 'VACUUM parent');
$node->kill9;
$node->start;
$deny->('and another one');
# ids of rows that are gone are not locked under another's name
is($node->safe_psql('postgres', q{INSERT INTO parent SELECT i, 0 FROM generate_series(1001, 3000) i; VACUUM parent; SELECT count(*) FROM (SELECT FROM parent WHERE i > 1000 FOR UPDATE SKIP LOCKED) x}), '2000', 'new rows are free');
$node->safe_psql('postgres', q{COMMIT PREPARED 'g'});
is($node->error_of('DELETE FROM parent WHERE i = 2'), '23503: update or delete on table "parent" violates foreign key constraint "child_i_fkey" on table "child"', 'the reference holds');
is($node->safe_psql('postgres', 'SELECT count(*) FROM child'), '299', 'and is there');
$node->safe_psql('postgres', 'DELETE FROM parent WHERE i = 1');

# ---- PREPARE fails while it lists its row locks, and an updater that has met one of them
# waits to add it: nothing may be written over what is to be undone ----
$node->safe_psql('postgres', q{
	CREATE TABLE far (i int PRIMARY KEY) USING sofort; INSERT INTO far SELECT generate_series(1, 40000);
	BEGIN; DELETE FROM far WHERE i IN (300, 600, 900, 1200, 1500); PREPARE TRANSACTION 'short'; ROLLBACK PREPARED 'short'});
{
	my ($failing, $updater) = map { $node->background_psql('postgres', on_error_stop => 0) } 1, 2;
	$failing->query_safe('BEGIN; ' . join(';', map { "DELETE FROM far WHERE i = $_ * 300" } 1 .. 12));
	$failing->query_safe('SELECT FROM parent WHERE i = 9 FOR KEY SHARE; SELECT count(*) FROM (SELECT FROM far WHERE i > 4000 AND i % 2 = 0 FOR UPDATE) x');
	# the list needs five chunks, of which the session's control block may have some from before
	$node->arm('pmem-published', 'wait');
	$failing->query_until(qr/go/, "\\echo go\nPREPARE TRANSACTION 'g';\n");
	ok($node->wait_at('pmem-published'), 'PREPARE waits while it lists its locks');
	my $pid = $updater->query_safe('SELECT pg_backend_pid()');
	$updater->query_until(qr/go/, "\\echo go\nUPDATE parent SET v = -9 WHERE i = 9;\n");
	ok($node->wait_until("SELECT wait_event = 'sofort_txn' FROM pg_stat_activity WHERE pid = $pid"), 'an updater waits for it');
	$node->arm('pmem-reserved', 'error');
	$node->arm('twophase-failed', 'wait');
	$node->disarm('pmem-published');
	ok($node->wait_at('twophase-failed'), 'it fails');
	is($updater->query('SELECT v FROM parent WHERE i = 9'), '-9', 'the updater goes on');
	$node->disarm('twophase-failed');
	$failing->query('SELECT 1');
	like($failing->{stderr}, qr/stop point "pmem-reserved" raised an error/, 'the error');
	$node->disarm('pmem-reserved');
	$_->quit foreach ($failing, $updater);
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM far'), '40000', 'all that it had deleted is there again');
my $held = $node->safe_psql('postgres', q{SELECT coalesce(string_agg(i::text, ' '), 'none') FROM far WHERE xmax <> 0});
is($held, 'none', 'no row says that it is held') or BAIL_OUT('who wants that row would wait without end');
is($node->safe_psql('postgres', 'WITH d AS (DELETE FROM far RETURNING 1) SELECT count(*) FROM d'), '40000', 'and nobody holds it');
is($node->verify_problems, '', 'PREPARE that failed: verify');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sofort.transactions'), '0', 'nothing is left of it');

# ---- who waits for a prepared transaction goes on as after any other ----
foreach my $case (
	[ 'COMMIT', 'UPDATE l SET v = v + 10 WHERE id = 5 RETURNING v', '11' ], [ 'ROLLBACK', 'UPDATE l SET v = v + 10 WHERE id = 5 RETURNING v', '11' ],
	[ 'COMMIT', 'DELETE FROM l WHERE id = 6 RETURNING v', '' ], [ 'ROLLBACK', 'DELETE FROM l WHERE id = 60 RETURNING v', '0' ],
	[ 'COMMIT', 'INSERT INTO l VALUES (61, 5) ON CONFLICT (id) DO UPDATE SET v = l.v + 100 RETURNING v', '161' ],
	[ 'ROLLBACK', 'INSERT INTO l VALUES (62, 5) ON CONFLICT (id) DO UPDATE SET v = l.v + 100 RETURNING v', '5' ])
{
	my ($how, $sql, $result) = @$case;
	$node->safe_psql('postgres', q{UPDATE l SET v = 0 WHERE id = 5; INSERT INTO l VALUES (6, 0), (60, 0) ON CONFLICT DO NOTHING; DELETE FROM l WHERE id IN (61, 62);
		BEGIN; UPDATE l SET v = v + 1 WHERE id = 5; DELETE FROM l WHERE id IN (6, 60); INSERT INTO l VALUES (61, 61), (62, 62); PREPARE TRANSACTION 'g'});
	my $waiter = $node->background_psql('postgres');
	my $pid = $waiter->query_safe('SELECT pg_backend_pid()');
	$waiter->query_until(qr/go/, "\\echo go\n$sql;\n");
	ok($node->wait_until("SELECT wait_event = 'transactionid' FROM pg_stat_activity WHERE pid = $pid"), "$how: $sql waits");
	$node->safe_psql('postgres', "$how PREPARED 'g'");
	my $got = $waiter->query_safe('SELECT 1');
	$waiter->quit;
	$result = '10' if $how eq 'ROLLBACK' && $result eq '11';
	is($got =~ s/\n?1$//r, $result, "$how: and goes on");
}
$node->safe_psql('postgres', 'DELETE FROM l WHERE id > 20');

# ---- an older REPEATABLE READ snapshot of this life does not see what was
# prepared in the last one and is committed now ----
$node->safe_psql('postgres', work($n + 1, ddl => 1) . q{PREPARE TRANSACTION 'g'});
$node->kill9;
$node->start;
my $reader = $node->background_psql('postgres');
my $look = q{SELECT string_agg(id || ':' || v, ' ' ORDER BY id) FROM p};
my $before = $reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $look");
$node->safe_psql('postgres', q{COMMIT PREPARED 'g'});
my $to = $n + 1;
is($node->safe_psql('postgres', $look), "-1:$to $to:$to", 'committed');
is($reader->query_safe($look), $before, 'the old snapshot does not see it');
is($reader->query_safe("SET enable_seqscan = off; $look"), $before, 'nor by an index');
$reader->query_safe('COMMIT');
is($reader->query_safe($look), "-1:$to $to:$to", 'a new one does');
$reader->quit;

# ---- finished while the start takes it up again, between its look at all and its places ----
foreach my $how ('COMMIT', 'ROLLBACK')
{
	my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
	my %place;
	$place{ $_->query_safe('SELECT slot FROM sofort.transactions WHERE pid = pg_backend_pid()') } = $_
	  foreach map { $_->query_safe('BEGIN; INSERT INTO l VALUES (' . (++$n + 1000) . ')'); $_ } @sessions;
	my ($first) = map { $place{$_} } sort { $a <=> $b } keys %place;
	$first->query_safe(q{INSERT INTO l VALUES (50, 1); UPDATE l SET v = v + 1 WHERE id = 5; DELETE FROM l WHERE id = 6; PREPARE TRANSACTION 'w'});
	my $v = $node->safe_psql('postgres', 'SELECT v FROM l WHERE id = 5');
	$node->arm_at_start('leftover-resolved', 'wait');
	$node->crash_and_start(@sessions);
	ok($node->wait_at('leftover-resolved'), 'what the crash has left is being resolved');
	$node->safe_psql('postgres', "$how PREPARED 'w'");
	$node->disarm('leftover-resolved');
	my $done = $how eq 'COMMIT';
	is($node->safe_psql('postgres', 'SELECT count(*) FROM l WHERE id = 50; SELECT v FROM l WHERE id = 5; SELECT count(*) FROM l WHERE id = 6'),
		($done ? 1 : 0) . "\n" . ($done ? $v + 1 : $v) . "\n" . ($done ? 0 : 1), "$how PREPARED meanwhile: rows");
	is($node->error_of(q{SET statement_timeout = '20s'; INSERT INTO l VALUES (50, 2); UPDATE l SET v = v WHERE id = 5}),
		$done ? '23505: duplicate key value violates unique constraint "l_pkey"' : '', 'its key');
	is($node->error_of(q{SET statement_timeout = '20s'; UPDATE l SET v = v WHERE id IN (5, 6)}), '', 'its rows can be written');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM sofort.transactions'), '0', 'nothing is left of it');
	$node->safe_psql('postgres', 'DELETE FROM l WHERE id > 8; INSERT INTO l VALUES (6, 0) ON CONFLICT DO NOTHING');
	is($node->verify_problems, '', 'verify');
}

# ---- more than a backend has slots, by one backend; unlogged; full ----
is($node->error_of(q{BEGIN; INSERT INTO l VALUES (20); PREPARE TRANSACTION 'a'; BEGIN; INSERT INTO l VALUES (21); PREPARE TRANSACTION 'b';
	BEGIN; INSERT INTO l VALUES (22); PREPARE TRANSACTION 'c'; BEGIN; INSERT INTO l VALUES (23); PREPARE TRANSACTION 'd'}),
	'53200: maximum number of prepared transactions reached', 'too many');
my $many = join('', map { "BEGIN; UPDATE l SET v = $_ WHERE id = 8; COMMIT;" } 1 .. 50);
$node->safe_psql('postgres', "COMMIT PREPARED 'b'; $many");
is($node->safe_psql('postgres', 'SELECT string_agg(id::text, $$,$$ ORDER BY id) FROM l WHERE id > 8'), '21', 'one of them');
$node->safe_psql('postgres', join('', map { "BEGIN; INSERT INTO l VALUES ($_); PREPARE TRANSACTION 'x'; COMMIT PREPARED 'x';" } 100 .. 160) . $many);
is($node->safe_psql('postgres', 'SELECT count(*) FROM l WHERE id >= 100'), '61', 'one after another');
$node->safe_psql('postgres', q{CREATE UNLOGGED TABLE u (i int PRIMARY KEY) USING sofort; INSERT INTO u SELECT generate_series(1, 100); BEGIN; DELETE FROM u WHERE i = 1; INSERT INTO u VALUES (200); SELECT FROM u FOR UPDATE; PREPARE TRANSACTION 'u'});
$node->append_conf('postgresql.conf', "max_connections = 6\nsuperuser_reserved_connections = 1\nmax_worker_processes = 4\nautovacuum_max_workers = 1");
$node->kill9;
$node->start;
$node->safe_psql('postgres', 'INSERT INTO u SELECT generate_series(1, 300)');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'a'; COMMIT PREPARED 'c'; COMMIT PREPARED 'u'});
is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM u'), '300|45150', 'unlogged table: only what came after the crash');
is($node->safe_psql('postgres', 'SELECT string_agg(id::text, $$,$$ ORDER BY id) FROM l WHERE id BETWEEN 9 AND 99'), '21,22', 'with fewer connections');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sofort.transactions'), '0', 'nothing is left');
is($node->verify_problems, '', 'verify');

$node->append_conf('postgresql.conf', 'max_prepared_transactions = 0');
$node->restart;
is($node->error_of(q{BEGIN; INSERT INTO l VALUES (500); PREPARE TRANSACTION 'a'}), '55000: prepared transactions are disabled', 'disabled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM l WHERE id = 500'), '0', 'rolled back');
is($node->verify_problems, '', 'verify');

$node->stop;
$node->teardown_node;
done_testing();
