# SIGKILL for the server at every named point of a commit, an abort, a rollback
# to a savepoint, the raising of the transaction id mark, and of recovery. After
# the restart the transaction is whole or absent, as the point demands; with a
# heap table in the same transaction in both tables alike.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('points');
$node->init(
	conf => [
		'checkpoint_timeout = 1h', 'wal_writer_delay = 10s',
		'track_commit_timestamp = on', 'autovacuum = off'
	]);
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE TABLE p (id int PRIMARY KEY, v int, t text) USING sofort;
	CREATE TABLE h (id int PRIMARY KEY, v int, t text) USING heap;
	INSERT INTO p VALUES (-1, 0, 'counter'), (0, 0, 'row');
	INSERT INTO h VALUES (-1, 0, 'counter'), (0, 0, 'row')});

# Step n inserts row n, deletes row n - 1, and writes n to the counter: three
# things that must happen together.
my $n = 0;

sub step
{
	my ($to, @tables) = @_;
	return join("\n", map { "INSERT INTO $_ VALUES ($to, $to, 'row'); UPDATE $_ SET v = $to WHERE id = -1; DELETE FROM $_ WHERE id BETWEEN 0 AND $to - 1;" } @tables);
}

sub key_update
{
	my ($to) = @_;
	return "BEGIN; UPDATE p SET id = $to, v = $to WHERE id = $to - 1; UPDATE p SET v = $to WHERE id = -1; COMMIT;";
}

sub contents
{
	my ($table, $index) = @_;
	return $node->safe_psql('postgres',
		"SET enable_seqscan = " . ($index ? 'off' : 'on') . "; SET enable_bitmapscan = off;"
		  . "SELECT string_agg(id || ':' || v || ':' || t, ' ' ORDER BY id) FROM $table WHERE id >= -1");
}

sub state_is
{
	my ($expected, $what) = @_;
	my $wanted = "-1:$expected:counter $expected:$expected:row";
	is(contents('p', 0), $wanted, "$what: sofort table");
	is(contents('p', 1), $wanted, "$what: sofort table, by its index");
	is(contents('h', 0), $wanted, "$what: heap table");
}

# Heap follows where the transaction had no heap part.
sub follow
{
	my ($to) = @_;
	$node->safe_psql('postgres', 'BEGIN;' . step($to, 'h') . 'COMMIT;') if $to > 0;
	return;
}

my $cases = 0;

sub crash_case
{
	my ($kind, $point, $outcome, $nth, $sql, $before) = @_;
	my $to = $n + 1;
	my $what = "$kind, killed at $point" . ($nth ? " ($nth)" : '');
	$sql = { pure => 'BEGIN;' . step($to, 'p') . 'COMMIT;',
		mixed => 'BEGIN;' . step($to, 'p', 'h') . 'COMMIT;' }->{$kind} unless defined $sql;
	my $warm = ($sql =~ s/(COMMIT|ROLLBACK);$/ROLLBACK;/r) . ($before || '');
	ok($node->crash_at($point, $sql, $nth, $warm), "$what: it dies there");
	# every third time once more, while it recovers
	if (++$cases % 3 == 0)
	{
		foreach my $again ('pmem-life-raised', 'leftover-resolved')
		{
			$node->arm_at_start($again, 'kill');
			$node->spawn;
			ok($node->reap, "$what: killed again at $again");
		}
	}
	$node->start;
	if ($outcome eq 'whole')
	{
		$n = $to;
		follow($n) if $sql !~ / h /;
	}
	state_is($n, "$what: $outcome");
	is($node->verify_problems, '', "$what: verify") if $cases % 4 == 0;
	return;
}

# ---- the commit of a transaction with sofort tables only ----
crash_case('pure', 'txn-activated', 'absent');
crash_case('pure', 'txn-logged', 'absent', $_) for 1 .. 3;
crash_case('pure', 'store-row-written', 'absent', $_) for 1 .. 2;
crash_case('pure', 'store-link-published', 'absent');
crash_case('key update', $_, 'absent', undef, key_update($n + 1)) for ('store-row-written', 'store-successor-published');
crash_case('key update', 'commit-durable', 'whole', undef, key_update($n + 1));
crash_case('pure', 'commit-wal-flushed', 'absent');
crash_case('pure', 'commit-before-durable', 'absent');
crash_case('pure', 'commit-durable', 'whole');
crash_case('pure', 'commit-before-stamp', 'whole');
crash_case('pure', 'commit-stamped', 'whole');

# ---- with a heap table: PostgreSQL's commit record decides ----
crash_case('mixed', 'prepare-before-durable', 'absent');
crash_case('mixed', 'prepare-durable', 'absent');
crash_case('mixed', 'commit-before-stamp', 'whole');
crash_case('mixed', 'commit-stamped', 'whole');
crash_case('mixed', 'slot-release', 'whole');

# ---- many rows: write set in chunks, slot released at once ----
sub many
{
	my ($to) = @_;
	return 'BEGIN;' . step($to, 'p')
	  . "INSERT INTO p SELECT -1000 - i, 1, 'bulk ' || i FROM generate_series(1, 3000) i;"
	  . "DELETE FROM p WHERE id < -1 AND id % 2 = 0; UPDATE p SET t = 'x' WHERE id < -1; DELETE FROM p WHERE id < -1;";
}
crash_case('many rows', 'commit-before-durable', 'absent', undef, many($n + 1) . 'COMMIT;');
crash_case('many rows', 'commit-durable', 'whole', undef, many($n + 1) . 'COMMIT;');
crash_case('many rows', 'commit-stamped', 'whole', undef, many($n + 1) . 'COMMIT;');
crash_case('many rows', 'slot-release', 'whole', undef, many($n + 1) . 'COMMIT;');

# What a start must stamp again, before anybody is let in, is bounded by rows, not only by chunks.
sub released_at_once
{
	my ($rows, $end) = @_;
	my $point = "sofort_test.passages('slot-release')";
	return $node->safe_psql('postgres', "SELECT $point; BEGIN; INSERT INTO batch SELECT generate_series(1, $rows); $end; SELECT $point")
	  =~ /^(\d+)\n(\d+)$/ ? $2 - $1 : 'nothing';
}
$node->safe_psql('postgres', 'CREATE TABLE batch (id int) USING sofort; INSERT INTO batch SELECT generate_series(1, 3000)');
$node->arm('slot-release', 'wait', 1_000_000);	# (it counts)
is(released_at_once(300, 'COMMIT'), 0, '300 rows: their slot is released later');
is(released_at_once(1100, 'COMMIT'), 1, '1,100 rows: at once');
is(released_at_once(1100, 'ROLLBACK'), 1, '1,100 rows, rolled back: at once');
$node->disarm('slot-release');

# ---- abort ----
crash_case('abort', 'abort-before-undo', 'absent', undef, 'BEGIN;' . step($n + 1, 'p') . 'ROLLBACK;');
crash_case('abort', 'abort-unlinked', 'absent', undef, 'BEGIN;' . step($n + 1, 'p') . 'ROLLBACK;');
crash_case('abort', 'abort-undone', 'absent', undef, 'BEGIN;' . step($n + 1, 'p') . 'ROLLBACK;');
crash_case('abort of many rows', 'slot-release', 'absent', undef, many($n + 1) . 'ROLLBACK;');

# ---- savepoints: what was rolled back stays so, the rest is whole or absent ----
sub savepoint
{
	my ($to, @tables) = @_;
	return 'BEGIN;'
	  . join('', map { "INSERT INTO $_ VALUES ($to, $to, 'row');" } @tables)
	  . 'SAVEPOINT a;'
	  . join('', map { "INSERT INTO $_ VALUES (5000, 1, 'never'); DELETE FROM $_ WHERE id = -1; UPDATE $_ SET v = 77 WHERE id = $to;" } @tables)
	  . 'ROLLBACK TO a;'
	  . join('', map { "UPDATE $_ SET v = $to WHERE id = -1; DELETE FROM $_ WHERE id BETWEEN 0 AND $to - 1;" } @tables)
	  . 'COMMIT;';
}
sub released
{
	my ($to) = @_;
	return "BEGIN; INSERT INTO p VALUES ($to, 0, 'sub'); SAVEPOINT a; UPDATE p SET v = $to, t = 'row' WHERE id = $to; SAVEPOINT b;"
	  . "UPDATE p SET v = $to WHERE id = -1; DELETE FROM p WHERE id BETWEEN 0 AND $to - 1; RELEASE a; COMMIT;";
}
crash_case('savepoint', 'abort-before-undo', 'absent', undef, savepoint($n + 1, 'p'));
crash_case('savepoint', 'abort-unlinked', 'absent', undef, savepoint($n + 1, 'p'));
crash_case('savepoint', 'abort-undone', 'absent', undef, savepoint($n + 1, 'p'));
# (a rollback to a savepoint writes an abort record: not pure any more)
crash_case('savepoint', 'prepare-durable', 'absent', undef, savepoint($n + 1, 'p'));
crash_case('savepoint', 'commit-before-stamp', 'whole', undef, savepoint($n + 1, 'p'));
crash_case('released savepoint', 'commit-before-durable', 'absent', undef, released($n + 1));
crash_case('released savepoint', 'commit-durable', 'whole', undef, released($n + 1));
crash_case('savepoint', 'prepare-durable', 'absent', undef, savepoint($n + 1, 'p', 'h'));
crash_case('savepoint', 'commit-before-stamp', 'whole', undef, savepoint($n + 1, 'p', 'h'));

# ---- the high-water mark: the first transaction id after a checkpoint raises it ----
foreach my $point ('highwater-wal', 'pmem-mark-raised', 'pmem-mark-filed', 'highwater-pool')
{
	crash_case('pure', $point, 'absent', undef, undef, 'CHECKPOINT;');
}

# A mark that could not be raised fails the transaction, and is raised by the next.
foreach my $point ('pmem-mark-raised', 'pmem-mark-filed')
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->arm($point, 'error');
	is($node->error_of('BEGIN;' . step($n + 1, 'p') . 'COMMIT;'),
		qq{XX000: stop point "$point" raised an error}, "error at $point");
	$node->disarm($point);
	$node->safe_psql('postgres', 'BEGIN;' . step($n + 1, 'p', 'h') . 'COMMIT;');
	$n++;
	$node->kill9;
	$node->start;
	state_is($n, "after an error at $point and a crash");
}

# ---- one backend killed: the others are restarted by the postmaster ----
foreach my $case (
	[ 'pure', 'commit-before-durable', 'absent' ], [ 'pure', 'commit-durable', 'whole' ],
	[ 'pure', 'commit-before-stamp', 'whole' ], [ 'mixed', 'prepare-durable', 'absent' ],
	[ 'mixed', 'commit-stamped', 'whole' ])
{
	my ($kind, $point, $outcome) = @$case;
	my $to = $n + 1;
	my $what = "$kind, backend killed at $point";
	my $life = $node->life;
	my ($out, $err);
	my $sql = 'BEGIN;' . step($to, $kind eq 'pure' ? ('p') : ('p', 'h'));
	my $rc = $node->psql('postgres', "$sql ROLLBACK; SELECT sofort_test.arm('$point', 'kill_backend'); $sql COMMIT;",
		stdout => \$out, stderr => \$err);
	is($rc, 2, "$what: the connection is lost");
	ok($node->wait_new_life($life), "$what: crash-restart");
	if ($outcome eq 'whole')
	{
		$n = $to;
		follow($n) if $kind eq 'pure';
	}
	state_is($n, "$what: $outcome");
}

# ---- transaction ids are never given out twice ----
my $last = 0;
foreach my $round (1 .. 4)
{
	# Every other time from far away: pages of commit log and commit
	# timestamps that no WAL record has made.
	$node->safe_psql('postgres', "SELECT sofort_test.burn_xids($round * 20000)") if $round % 2 == 0;
	my $xid = $node->safe_psql('postgres',
		'BEGIN;' . step($n + 1, 'p') . 'SELECT pg_current_xact_id(); COMMIT;');
	$n++;
	$node->kill9;
	$node->start;
	my ($next, $status) = split /\|/, $node->safe_psql('postgres',
		"SELECT pg_current_xact_id(), pg_xact_status('$xid')");
	cmp_ok($xid, '>', $last, "round $round: new transaction id after the last crash");
	cmp_ok($next, '>', $xid, "round $round: the next transaction id differs from the committed one");
	is($status, 'committed', "round $round: pg_xact_status");
	is($node->error_of("SELECT pg_xact_commit_timestamp((xid '$_'))"), '', "round $round: commit timestamp of $_ can be asked for")
	  foreach ($xid % 2**32, $next % 2**32);
	follow($n);
	state_is($n, "round $round");
	$last = $next;
}
is($node->safe_psql('postgres', q{SELECT l.xid = x.xmin FROM pg_last_committed_xact() l, (SELECT xmin FROM h WHERE id > 0) x}),
	't', 'the last commit timestamp is that of the last commit');

# ---- rows that no write set names, because their store goes as a whole (frozen rows) ----
$node->safe_psql(
	'postgres', q{
	CREATE TABLE f (v int PRIMARY KEY) USING sofort;
	INSERT INTO f VALUES (0);
	CREATE MATERIALIZED VIEW m USING sofort AS SELECT v FROM f;
	INSERT INTO f VALUES (1)});
my $copy = q{BEGIN; TRUNCATE f; COPY f FROM PROGRAM 'seq 100' (FREEZE); DELETE FROM f WHERE v > 90; COMMIT;};
my $refresh = 'REFRESH MATERIALIZED VIEW m;';
foreach my $case (
	[ $refresh, 'store-row-written', '2|1', '1|0' ], [ $refresh, 'commit-before-stamp', '2|1', '2|1' ],
	[ $copy, 'store-rows-written', '2|1', '2|1' ], [ $copy, 'commit-before-stamp', '90|4095', '2|1' ])
{
	my ($sql, $point, $rows, $seen) = @$case;
	my $what = substr($sql, 0, 7) . " killed at $point";
	ok($node->crash_at($point, $sql), $what);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM f'), $rows, "$what: the table");
	is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM m'), $seen, "$what: the view");
	is($node->verify_problems, '', "$what: verify");
}

is($node->verify_problems, '', 'verify');
$node->stop;
$node->teardown_node;
done_testing();
