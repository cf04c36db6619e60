# Where a drain waits for a disk (medium msync), the first drain of a transaction takes along
# entries of the write set that earlier transactions of the session had to wait for
# (src/txn/README.md, "Expected entries"). Here: how often a transaction of several statements
# waits; that a wrong guess changes no answer (against heap), leaves nothing of a table that is
# gone in a write set that others walk through, and does no harm when a start finds it; and
# sessions that are alike, killed again and again. Power cuts: t/160, "disk".
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no write sets' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new_on_disk('expected entries', 'max_prepared_transactions = 5', 'checkpoint_timeout = 1h');

sub sql { return $node->safe_psql('postgres', $_[0]); }

my @tables = qw(big mid few log);
foreach my $schema ([ 's', 'sofort' ], [ 'h', 'heap' ])
{
	my ($s, $am) = @$schema;
	sql(qq{CREATE SCHEMA $s;
		CREATE TABLE $s.big (id int PRIMARY KEY, n int NOT NULL) USING $am;
		INSERT INTO $s.big SELECT i, 0 FROM generate_series(1, 20000) i;
		CREATE TABLE $s.mid (id int PRIMARY KEY, n int NOT NULL) USING $am;
		INSERT INTO $s.mid SELECT i, 0 FROM generate_series(1, 100) i;
		CREATE TABLE $s.few (id int PRIMARY KEY, n int NOT NULL) USING $am;
		INSERT INTO $s.few SELECT i, 0 FROM generate_series(1, 10) i;
		CREATE TABLE $s.log (id int, n int NOT NULL) USING $am;
		-- (links of versions are made by the first update in a block)
		UPDATE $s.big SET n = 0; UPDATE $s.mid SET n = 0; UPDATE $s.few SET n = 0});
	sql("VACUUM $s.$_") foreach @tables;
}

# The same statements for both; they leave the same rows.
sub table_contents
{
	my ($table) = @_;
	return "SELECT '$table' t, count(*), sum(n), md5(string_agg(x::text, ' ' ORDER BY x::text)) FROM $table x";
}
my $contents = join(' UNION ALL ', map { table_contents($_) } @tables);
sub same
{
	my ($what) = @_;
	is(sql("SET search_path = s; $contents ORDER BY 1"), sql("SET search_path = h; $contents ORDER BY 1"), "$what: as on heap");
	is($node->verify_problems, '', '... tables, indexes and pool agree');
}

# One of the transactions that are alike
sub transaction
{
	my ($i, $end) = @_;
	return 'BEGIN; UPDATE big SET n = n + 1 WHERE id = ' . ($i * 7919 % 20000 + 1)
	  . '; UPDATE mid SET n = n + 1 WHERE id = ' . ($i * 31 % 100 + 1)
	  . '; UPDATE few SET n = n + 1 WHERE id = ' . ($i % 10 + 1)
	  . "; INSERT INTO log VALUES ($i, 1); " . ($end // 'COMMIT') . ";\n";
}

my $alike = join('', map { transaction($_) } 1 .. 6);
my $count = "SELECT drains FROM sofort_test.flush_counters();\n";

# How often what comes after transactions that are alike drains; runs it on heap, too
sub drains
{
	my (@sql) = @_;
	my $sql = join('', @sql);
	my @out = split /\n/, sql("SET search_path = s;\n$alike$count$sql$count");
	sql("SET search_path = h;\n$alike$sql");
	return $out[-1] - $out[0];
}

# ---- how often ----
my $n = drains(map { transaction($_) } 7 .. 26);
cmp_ok($n, '<=', 20 * 3, 'of six waits a transaction has little more than two');
note("20 transactions: $n drains");
same('transactions that are alike');
$n = drains(map { 'UPDATE big SET n = n + 1 WHERE id = ' . ($_ * 104729 % 20000 + 1) . ";\n" } 1 .. 20);
cmp_ok($n, '<=', 20 * 2 + 4, 'others do not wait more often for it');
$n = drains(map { transaction($_, 'ROLLBACK') } 1 .. 5);
same('rolled back');

# A table whose rows are changed anywhere is expected as a whole, if it is not large
sql("CREATE TABLE $_->[0].wide (id int PRIMARY KEY, n int NOT NULL) USING $_->[1]; INSERT INTO $_->[0].wide SELECT i, 0 FROM generate_series(1, 6000) i;"
	  . " UPDATE $_->[0].wide SET n = 0; INSERT INTO $_->[0].wide SELECT i, 0 FROM generate_series(6001, 6500) i")
  foreach [ 's', 'sofort' ], [ 'h', 'heap' ];
sql("VACUUM $_.wide") foreach qw(s h);
push @tables, 'wide';
$contents .= ' UNION ALL ' . table_contents('wide');

sub anywhere
{
	my ($i) = @_;
	return 'BEGIN; UPDATE big SET n = n + 1 WHERE id = ' . ($i * 7919 % 20000 + 1)
	  . '; UPDATE wide SET n = n + 1 WHERE id = ' . ($i * 2539 % 6000 + 1) . "; COMMIT;\n";
}

# (the second: what is prepared for them has room for a few blocks, so they wait, and the rest
# comes along with that)
foreach my $begin ('BEGIN', 'BEGIN; UPDATE few SET n = n + 1 WHERE id = 1')
{
	my $warm = join('', map { anywhere($_) =~ s/BEGIN/$begin/r } 1 .. 40);
	my $rest = join('', map { anywhere($_) =~ s/BEGIN/$begin/r } 41 .. 80);
	my @out = split /\n/, sql("SET search_path = s;\n$warm$count$rest$count");
	sql("SET search_path = h;\n$warm$rest");
	$n = $out[-1] - $out[0];
	cmp_ok($n, '<=', 40 * 2.5, "rows anywhere in a table of 50 blocks, $begin: little more than two waits each");
	note("40 transactions: $n drains");
	same('rows anywhere');
}

# A claim that fails, because the version was replaced meanwhile, leaves nothing in the write set:
# between it and the newest one lies nearly all of the table, which the commit would go through.
{
	my @changes = map { "UPDATE big SET n = n + 1 WHERE id = $_ * 97; UPDATE wide SET n = n + 1 WHERE id = " . ($_ * 2539 % 6000 + 17) } 1 .. 40;
	my $session = $node->background_psql('postgres');
	$session->query_safe("SET search_path = s; SET application_name = 'waits'");
	$session->query_safe("BEGIN; $_; COMMIT") foreach @changes, @changes;
	sql("SET search_path = h; $_") foreach @changes, @changes;
	my $id = sql('SELECT id FROM s.wide ORDER BY ctid OFFSET 2000 LIMIT 1');
	my $change = "UPDATE wide SET n = n + 1 WHERE id = $id";
	my $other = $node->background_psql('postgres');
	$other->query_safe('SET search_path = s');
	foreach my $both (@changes[ 0 .. 9 ])
	{
		$_->query_safe("BEGIN; $both; COMMIT") foreach $other, $session;
		sql("SET search_path = h; $both; $both");
	}
	$other->query_safe("BEGIN; $change");
	$session->query_until(qr/go/, "\\echo go\nBEGIN; UPDATE big SET n = n + 1 WHERE id = 1; $change;\n"
		  . "SELECT drains AS before FROM sofort_test.flush_counters() \\gset\nCOMMIT;\n");
	$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'waits' AND wait_event_type = 'Lock'});
	my ($old) = sql("SELECT (ctid::text::point)[0] FROM s.wide WHERE id = $id");
	$other->query_safe('COMMIT');
	my ($new) = sql("SELECT (ctid::text::point)[0] FROM s.wide WHERE id = $id");
	cmp_ok(abs($new - $old), '>', 8, 'a claim that fails was made far from the one that succeeds');
	is($session->query_safe('SELECT drains - :before FROM sofort_test.flush_counters()'), 1, '... and costs no drain at the end');
	$_->quit foreach $session, $other;
	sql("SET search_path = h; UPDATE big SET n = n + 1 WHERE id = 1; $change; $change");
	same('a claim that failed');
}

# Transactions that begin where others did: the commit of the last one has prepared the next
foreach my $alike ('INSERT INTO log VALUES (%d, 2)', 'UPDATE few SET n = n + 1 WHERE id = %d % 10 + 1', 'DELETE FROM log WHERE id = %d; INSERT INTO log VALUES (%d, 3)')
{
	my @sql = map { $alike =~ s/%d/$_/gr } 1001 .. 1040;
	my $warm = join('', map { "$_;\n" } @sql[ 0 .. 19 ]);
	my $rest = join('', map { "$_;\n" } @sql[ 20 .. 39 ]);
	my @out = split /\n/, sql("SET search_path = s;\n$warm$count$rest$count");
	sql("SET search_path = h;\n$warm$rest");
	$n = $out[-1] - $out[0];
	my $transactions = 20 * (1 + ($alike =~ tr/;//));
	cmp_ok($n, '<=', $transactions * 1.5, "$alike: little more than one wait each");
	note("$transactions transactions: $n drains");
	same($alike);
}
drains(map { ("INSERT INTO log VALUES ($_, 4);\n", "BEGIN; SELECT FROM few WHERE id = 1 FOR UPDATE; COMMIT;\n", "INSERT INTO log VALUES ($_, 5);\n") } 1 .. 10);
same('transactions that only lock rows between');
drains(map { ("INSERT INTO log VALUES ($_, 4);\n", "BEGIN; SAVEPOINT a; INSERT INTO log VALUES ($_, 5); ROLLBACK TO a; INSERT INTO log VALUES ($_, 6); COMMIT;\n",
	"BEGIN; SAVEPOINT a; UPDATE few SET n = n + 1 WHERE id = 1; RELEASE a; UPDATE few SET n = n + 1 WHERE id = 2; ROLLBACK;\n") } 1 .. 10);
same('transactions that begin with a savepoint between');
drains(map { my $t = transaction($_); $t =~ s/(UPDATE few.*?);/SAVEPOINT a; $1; ROLLBACK TO a; $1;/; $t } 1 .. 10);
same('savepoints');
drains(map { my $t = transaction($_); $t =~ s/BEGIN;/BEGIN; SAVEPOINT a;/; $t } 1 .. 10);
same('a savepoint first');
drains('BEGIN; INSERT INTO log VALUES (0, 5); SAVEPOINT a; INSERT INTO log VALUES (1, 5); UPDATE few SET n = n + 1; ROLLBACK TO a; UPDATE few SET n = n + 2 WHERE id < 5; ROLLBACK;');
same('a savepoint, all rolled back');
drains('BEGIN; INSERT INTO log VALUES (0, 6); TRUNCATE log; INSERT INTO log SELECT i, 1 FROM generate_series(1, 600) i; COMMIT;',
	'BEGIN; DELETE FROM log WHERE id < 300; UPDATE log SET n = n + 1; COMMIT; VACUUM log;');
same('emptied');
sql("SET search_path = $_; CREATE FUNCTION fails(id int) RETURNS int LANGUAGE plpgsql AS 'BEGIN UPDATE mid SET n = n + 1 WHERE mid.id = fails.id; RETURN 1 / (id - 7); EXCEPTION WHEN division_by_zero THEN RETURN 0; END'") foreach qw(s h);
drains('BEGIN; UPDATE few SET n = n + 1 WHERE id = 1; SELECT sum(fails(i)) FROM generate_series(1, 20) i; UPDATE mid SET n = n + 1 WHERE id < 9; COMMIT;');
same('exceptions');

drains(q{BEGIN; UPDATE wide SET n = n + 1; INSERT INTO log SELECT i, 9 FROM generate_series(1, 5000) i; PREPARE TRANSACTION 'bulk'; COMMIT PREPARED 'bulk';},
	q{BEGIN; UPDATE wide SET n = n + 1; DELETE FROM log WHERE id % 3 = 0; PREPARE TRANSACTION 'bulk'; ROLLBACK PREPARED 'bulk';},
	'BEGIN; UPDATE big SET n = n + 1; SAVEPOINT a; UPDATE wide SET n = n + 2; DELETE FROM log WHERE id % 5 = 0; ROLLBACK TO a; UPDATE wide SET n = n + 3; COMMIT;');
same('in bulk, prepared and with a savepoint');

# ---- tables that are gone, and write sets of others ----
my $serial = 100;				# (rows of "big" that no other session has put together)
sub session
{
	my $session = $node->background_psql('postgres');
	$session->query_safe('SET search_path = s');
	$session->query_safe(transaction($serial++)) foreach 1 .. 6;
	return $session;
}

foreach my $how ('DROP TABLE s.log; CREATE TABLE s.log (id int, n int NOT NULL) USING sofort', 'TRUNCATE s.log', 'DELETE FROM s.log; VACUUM s.log',
	'VACUUM FULL s.few; VACUUM FULL s.log')
{
	my $session = session();
	sql($how);
	$session->query_safe('UPDATE few SET n = n + 1 WHERE id = 3');
	sql("INSERT INTO s.log SELECT i, 1 FROM generate_series(1, 20) i");
	$session->query_safe('BEGIN; UPDATE few SET n = n + 1 WHERE id = 3');
	sql($how) unless $how =~ /few/;
	$session->query_safe('COMMIT');
	$session->query_safe(transaction(1));
	$session->quit;
	is($node->verify_problems, '', "$how: tables, indexes and pool agree");
}

my $sums = q{SELECT (SELECT sum(n) FROM s.few), (SELECT sum(n) FROM s.mid), (SELECT count(*) FROM s.log)};
sub dropped_log { return sql('DROP TABLE s.log; CREATE TABLE s.log (id int, n int NOT NULL) USING sofort; INSERT INTO s.log SELECT i, 1 FROM generate_series(1, 300) i'); }

foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $session = session();
	my ($few, $mid) = split /\|/, sql($sums);
	$session->query_safe(q{BEGIN; UPDATE few SET n = n + 100 WHERE id = 3; PREPARE TRANSACTION 'p'});
	is(sql(q{SELECT count(*) FROM sofort.transactions WHERE state = 'prepared'}), 1, 'one is prepared');
	$session->quit;
	$node->kill9;
	$node->start;
	# (who reads a table first adopts it)
	is(sql(q{SELECT FROM s.few LIMIT 0; SELECT entries FROM sofort.transactions WHERE state = 'prepared'}), 2, 'its write set names what it has changed, and nothing else');
	dropped_log();
	sql("$end PREPARED 'p'");
	$few += 100 if $end eq 'COMMIT';
	is(sql($sums), "$few|$mid|300", "$end PREPARED of a transaction that expected a table which is gone");
	is($node->verify_problems, '', '... tables, indexes and pool agree');
}

{
	my $session = session();
	my ($few, $mid) = split /\|/, sql($sums);
	$session->query_safe('BEGIN; UPDATE few SET n = n + 1000 WHERE id = 4');
	my $token = $session->query_safe('SELECT sofort.keep_transaction()');
	$session->query_safe('UPDATE mid SET n = n + 1 WHERE id = 4');
	$node->kill9;
	$session->{run}->kill_kill;
	$node->start;
	dropped_log();
	sql("BEGIN; SELECT sofort.resume_transaction('$token'); UPDATE s.mid SET n = n + 1 WHERE id = 4; COMMIT");
	is(sql($sums), join('|', $few + 1000, $mid + 2, 300), 'a kept transaction that expected a table which is gone');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
}

# A commit that fails after it has prepared the next transaction
{
	my $inserts = join('', map { "INSERT INTO log VALUES ($_, 7);\n" } 1 .. 12);
	my $before = sql('SELECT count(*) FROM s.log');
	foreach my $round (1 .. 3)
	{
		my ($out, $err);
		$node->psql('postgres', "SET search_path = s;\n${inserts}SELECT sofort_test.arm('commit-before-durable', 'error', 1);\nINSERT INTO log VALUES (100, 7);\n"
			  . "INSERT INTO log VALUES (101, 7);\n" . ($round == 1 ? '' : $round == 2 ? $inserts : "BEGIN; INSERT INTO log VALUES (102, 7);\nSELECT pg_sleep(0);\n"),
			stdout => \$out, stderr => \$err, on_error_stop => 0);
		like($err, qr/stop point/, 'a commit fails');
		$before += $round == 2 ? 25 : 13;
		$node->kill9 if $round > 1;
		$node->start if $round > 1;
		is(sql('SELECT count(*) FROM s.log'), $before, 'the others are there');
		is($node->verify_problems, '', '... tables, indexes and pool agree');
	}
}

# ... the next one must not rely on what was not drained: others drain the lines of its rows
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	sql('CREATE TABLE s.side (id int) USING sofort');
	$session->query('SET search_path = s');
	$session->query("INSERT INTO side VALUES ($_)") foreach 1 .. 12;
	$session->query("SELECT sofort_test.arm('commit-before-durable', 'error', 1)");
	$session->query('INSERT INTO side VALUES (13)');
	$session->query('BEGIN; INSERT INTO side VALUES (14)');
	sql("INSERT INTO s.side VALUES ($_)") foreach 101 .. 104;
	$node->kill9;
	$session->{run}->kill_kill;
	$node->start;
	is(sql('SELECT count(*), max(id) FROM s.side'), '16|104', 'of one that goes on after a failed commit nothing is left');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
	sql('VACUUM s.side');
	is(sql('SELECT count(*) FROM s.side'), 16, '... nor after VACUUM');
}

# Sessions that are idle have prepared one, too
{
	my @idle = map { my $session = session(); $session->query_safe("INSERT INTO log VALUES ($_, 8)") foreach 1 .. 12; $session } 1 .. 3;
	my $before = sql("SET search_path = s; $contents ORDER BY 1");
	$node->kill9;
	$_->{run}->kill_kill foreach @idle;
	$node->start;
	is(sql("SET search_path = s; $contents ORDER BY 1"), $before, 'killed with idle sessions: all is there, and nothing else');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
	sql('CREATE TABLE s.again (id int) USING sofort');
	sql(join('', map { "INSERT INTO s.again VALUES ($_);\n" } 1 .. 20));
	$node->restart;
	sql('INSERT INTO s.again VALUES (21)');
	is(sql('SELECT ctid FROM s.again WHERE id = 21'), '(0,21)', 'an orderly stop leaves no place unused');
}

# One that is kept, or that only locks rows and is prepared, takes over what was prepared for it
{
	my $session = session();
	$session->query_safe("INSERT INTO log VALUES ($_, 9)") foreach 1 .. 12;
	my ($few, $mid, $log) = split /\|/, sql($sums);
	my $token = $session->query_safe('BEGIN; SELECT sofort.keep_transaction()');
	$session->query_safe('INSERT INTO log VALUES (13, 9)');
	$session->query_safe('UPDATE few SET n = n + 1 WHERE id = 1');
	$node->kill9;
	$session->{run}->kill_kill;
	$node->start;
	is(sql($sums), "$few|$mid|$log", 'one that is kept waits');
	sql("BEGIN; SELECT sofort.resume_transaction('$token'); INSERT INTO s.log VALUES (14, 9); COMMIT");
	is(sql($sums), join('|', $few + 1, $mid, $log + 2), '... and goes on');

	$session = session();
	$session->query_safe("INSERT INTO log VALUES ($_, 9)") foreach 1 .. 12;
	($few, $mid, $log) = split /\|/, sql($sums);
	$session->query_safe(q{BEGIN; SELECT FROM few WHERE id = 2 FOR UPDATE; PREPARE TRANSACTION 'q'});
	$session->query_safe("INSERT INTO log VALUES ($_, 9)") foreach 13 .. 15;
	$node->kill9;
	$session->{run}->kill_kill;
	$node->start;
	is(sql(q{SELECT FROM s.few LIMIT 0; SELECT entries FROM sofort.transactions WHERE state = 'prepared'}), 1, 'one that is prepared has its lock, and nothing else');
	like($node->error_of('SELECT FROM s.few WHERE id = 2 FOR SHARE NOWAIT'), qr/^55P03/, '... which is in force');
	sql(q{COMMIT PREPARED 'q'});
	is(sql($sums), join('|', $few, $mid, $log + 3), '... beside what came after it');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
}

# What a start finds of one that was cut short: the tables that it expected are gone, or full of
# what others did there meanwhile
foreach my $how ('', 'DROP TABLE s.log; CREATE TABLE s.log (id int, n int NOT NULL) USING sofort', 'TRUNCATE s.log, s.mid', 'VACUUM FULL s.mid',
	'UPDATE s.mid SET n = n + 1 WHERE id % 2 = 0; INSERT INTO s.log SELECT i, 1 FROM generate_series(1, 100) i; DELETE FROM s.mid WHERE id % 5 = 0; VACUUM s.mid',
	'BEGIN; UPDATE s.mid SET n = n + 1 WHERE id % 2 = 0; INSERT INTO s.log SELECT i, 1 FROM generate_series(1, 100) i; ROLLBACK; UPDATE s.mid SET n = n + 1')
{
	foreach my $point ('', 'txn-drain-entries', 'txn-activated')
	{
		my $session = session();
		sql($how) if $how;
		sql('INSERT INTO s.mid SELECT i, 0 FROM generate_series(1, 100) i ON CONFLICT DO NOTHING');
		my $before = sql("SET search_path = s; $contents ORDER BY 1");
		if ($point)
		{
			$session->query_safe("SELECT sofort_test.arm('$point', 'kill', 1)");
			$session->{stdin} .= "UPDATE few SET n = n + 1 WHERE id = 5;\n";
			eval { $session->{run}->finish };
			$node->reap or fail('it was killed');
		}
		else
		{
			$session->query_safe('BEGIN; UPDATE few SET n = n + 1 WHERE id = 5');
			$node->kill9;
			$session->{run}->kill_kill;
		}
		$node->start;
		my $what = join(' ', grep { $_ } 'killed', $point, 'after', $how || 'nothing');
		is(sql("SET search_path = s; $contents ORDER BY 1"), $before, "$what: nothing of it is left");
		is($node->verify_problems, '', '... tables, indexes and pool agree');
		sql("SET search_path = s; $alike VACUUM");
		is($node->verify_problems, '', '... also after the next ones');
	}
}

# ---- sessions that are alike, killed again and again ----
sql('UPDATE s.big SET n = 0; UPDATE s.mid SET n = 0; UPDATE s.few SET n = 0; TRUNCATE s.log');
my $script = $node->basedir . '/alike';
append_to_file($script, q{\set b random(1, 20000)
\set m random(1, 100)
\set f random(1, 10)
BEGIN;
UPDATE s.big SET n = n + 1 WHERE id = :b;
UPDATE s.mid SET n = n + 1 WHERE id = :m;
UPDATE s.few SET n = n + 1 WHERE id = :f;
INSERT INTO s.log VALUES (:client_id, 1);
COMMIT;
});
my $done = 0;
foreach my $round (1 .. ($ENV{SOFORT_LONG} ? 30 : 6))
{
	my ($out, $err) = ('', '');
	my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 6, '-T', 60, '-f', $script, $node->connstr('postgres') ],
		'<', \undef, '>', \$out, '2>', \$err);
	$node->wait_until('SELECT count(*) > ' . ($done + 300) . ' FROM s.log');
	sql('VACUUM s.mid, s.few') if $round % 2;
	$node->kill9;
	$load->finish;
	$node->start;
	my ($big, $mid, $few, $log) = split /\|/, sql('SELECT (SELECT sum(n) FROM s.big), (SELECT sum(n) FROM s.mid), (SELECT sum(n) FROM s.few), (SELECT count(*) FROM s.log)');
	is("$big $mid $few", "$log $log $log", "round $round: each transaction is there with all that it did, or not at all");
	cmp_ok($log, '>', $done + 300, '... and what was seen is there');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
	$done = $log;
}

# ---- the same in bulk, where entries name whole blocks ahead ----
sql('CREATE TABLE s.bulk (id int PRIMARY KEY, n int NOT NULL) USING sofort; INSERT INTO s.bulk SELECT i, 0 FROM generate_series(1, 20000) i; CREATE TABLE s.added (id int, n int) USING sofort');
my $bulk = $node->basedir . '/bulk';
append_to_file($bulk, q{\set a 5000 * :client_id + random(1, 2000)
BEGIN;
UPDATE s.bulk SET n = n + 1 WHERE id BETWEEN :a AND :a + 2999;
INSERT INTO s.added SELECT :client_id, 1 FROM generate_series(1, 3000);
DELETE FROM s.added WHERE id = :client_id AND n = 0;
UPDATE s.added SET n = 0 WHERE id = :client_id;
COMMIT;
});
$done = 0;
foreach my $round (1 .. ($ENV{SOFORT_LONG} ? 20 : 4))
{
	my ($out, $err) = ('', '');
	my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-T', 120, '-f', $bulk, $node->connstr('postgres') ],
		'<', \undef, '>', \$out, '2>', \$err);
	$node->wait_until('SELECT coalesce(sum(n), 0) > ' . ($done + 10 * 3000) . ' FROM s.bulk');
	$node->kill9;
	$load->finish;
	$node->start;
	my ($n, $added, $groups) = split /\|/, sql('SELECT (SELECT sum(n) FROM s.bulk), (SELECT count(*) FROM s.added), (SELECT count(DISTINCT id) FROM s.added)');
	is($n % 3000, 0, "bulk, round $round: each transaction is there as a whole, or not at all");
	is($added, $groups * 3000, '... with all that it has added and taken away');
	cmp_ok($n, '>', $done + 10 * 3000, '... and what was seen is there');
	is($node->verify_problems, '', '... tables, indexes and pool agree');
	sql('VACUUM s.added, s.bulk') if $round % 2;
	$done = $n;
}

$node->stop;
$node->teardown_node;
done_testing();
