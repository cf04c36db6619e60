# A kept transaction as large as a table (a million rows with --long): it is there after a crash
# without work for its rows, can be taken up again and again, loses only the statement that was
# cut, and ends as a whole. Counted is what a start has to read of it: entries of its write set.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $rows = $ENV{SOFORT_LONG} ? 1_000_000 : 120_000;
my $node = SofortNode->new('size');
$node->init(conf => [ 'autovacuum = off', 'sofort.continuation_timeout = 600', 'checkpoint_timeout = 1h' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Runs statements in one transaction that is kept, or resumed, until the server dies at the
# passage of a point that was armed, or by our hand. Returns what was printed.
sub run_and_die
{
	my (@sql) = @_;
	my ($in, $out, $err) = (join('', map { "$_;\n" } @sql) . "\\echo done\n", '', '');
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	$session->pump until $out =~ /^done/m || $err =~ /server closed|ERROR/ || !$session->pumpable;
	if ($out =~ /^done/m) { $node->kill9; }
	else { $node->reap or BAIL_OUT("not killed: $err"); }
	SofortNode::drop_session({ run => $session });
	$node->start;
	return $out;
}

sub waiting { return sql('SELECT statements, entries FROM sofort.transactions'); }

sql('CREATE TABLE m (id int PRIMARY KEY, v int, t text) USING sofort; CREATE INDEX ON m USING sofort_index (v)');
sql("INSERT INTO m SELECT i, 0, 'row ' || i % 1000 FROM generate_series(1, $rows) i");
my $contents = 'SELECT count(*), sum(v), count(*) FILTER (WHERE id > 10000000), sum(id::bigint) FROM m';
my $before = sql($contents);

my $out = run_and_die('BEGIN', 'SELECT sofort.keep_transaction()',
	"INSERT INTO m SELECT i, 1, 'new ' || i % 1000 FROM generate_series(10000001, 10000000 + $rows) i",
	"UPDATE m SET v = v + 2 WHERE id <= $rows", "DELETE FROM m WHERE id <= $rows AND id % 2 = 0");
my ($token) = $out =~ /^(\w{32})$/m or BAIL_OUT("not kept: $out");
my ($statements, $entries) = split /\|/, waiting();
is($statements, 3, 'three large statements are finished');
cmp_ok($entries, '<', $rows / 15, "a write set of $entries entries for " . 2.5 * $rows . ' changed rows');
is(sql($contents), $before, 'others see nothing of it');
like($node->error_of('SET lock_timeout = 50; UPDATE m SET v = 0 WHERE id = 77'), qr/^55P03/, 'its rows cannot be changed');

# What a transaction of the same statements without a crash leaves
my $expected = sql("BEGIN; CREATE TEMP TABLE h AS SELECT * FROM m; INSERT INTO h SELECT i, 1, '' FROM generate_series(10000001, 10000000 + $rows) i; UPDATE h SET v = v + 2 WHERE id <= $rows; DELETE FROM h WHERE id <= $rows AND id % 2 = 0; " . ($contents =~ s/FROM m/FROM h/r) . '; ROLLBACK');

# again and again, also cut in the middle of statements
my $n = 3;
foreach my $round (1 .. ($ENV{SOFORT_LONG} ? 12 : 4))
{
	my $cut = $round % 2;
	my @sql = ('BEGIN', "SELECT statements FROM sofort.resume_transaction('$token')", $contents);
	push @sql, $cut ?
	  ("SELECT sofort_test.arm('txn-logged', 'kill', 200)", "UPDATE m SET v = v + 1000000 WHERE id > 10000000") :
	  "UPDATE m SET t = 'small' WHERE id = " . (10000000 + $round);
	$out = run_and_die(@sql);
	like($out, qr/^$n\n\Q$expected\E\n/, "round $round: $n statements, all rows");
	$n += 2;
	$statements = (split /\|/, waiting())[0];
	is($statements, $n, "round $round: " . ($cut ? 'cut in the middle of a statement' : 'one statement more'));
	is(sql('SELECT count(*) FROM m'), $rows, "round $round: others see nothing of it");
}

# and row locks, of its own rows, and of as many of others: no start looks at them, nor who resumes it
sql("CREATE TABLE n (id int PRIMARY KEY) USING sofort; INSERT INTO n SELECT i FROM generate_series(0, $rows) i");
$out = run_and_die('BEGIN', "SELECT statements FROM sofort.resume_transaction('$token')", "SELECT count(*) FROM (SELECT FROM m WHERE id > 10000000 OR id % 2 = 1 FOR UPDATE) s",
	'SELECT count(*) FROM (SELECT FROM n WHERE id > 0 FOR NO KEY UPDATE) s');
is(join(' ', (split /\n/, $out)[1, 2]), 1.5 * $rows . " $rows", 'all of its rows are locked, too, and those of another table');
sub look_at_locks
{
	my ($when) = @_;
	is(sql('SELECT sofort_test.lock_entries()'), '0', "$when: nobody has looked at a lock");
	like($node->error_of('SET lock_timeout = 50; UPDATE n SET id = -1 WHERE id = 77'), qr/^55P03/, "$when: they are in force");
	is(sql("UPDATE n SET id = 0 WHERE id = 0 RETURNING 1"), '1', "$when: a row that is not locked is free");
	is(sql('SELECT sofort_test.lock_entries()'), '1', "$when: one was looked at");
	return;
}
look_at_locks('after a crash');
$out = run_and_die('BEGIN', "SELECT statements FROM sofort.resume_transaction('$token')", 'SELECT sofort_test.lock_entries()');
is((split /\n/, $out)[1], '1', 'who resumes it looks at none');
look_at_locks('after another');
is(sql('SELECT count(*) FROM (SELECT FROM n FOR UPDATE SKIP LOCKED) s'), '1', 'all of them are in force');
is(sql('SELECT count(*) FROM (SELECT FROM m WHERE id % 2 = 1 FOR UPDATE SKIP LOCKED) s'), '0', 'as those of its own rows');

is(sql("BEGIN; SELECT FROM sofort.resume_transaction('$token'); $contents; COMMIT"), $expected, 'resumed for the last time, committed');
is(sql($contents), $expected, 'and there');
is(sql('SELECT count(*) FROM sofort.transactions'), '0', 'nothing is left');
is($node->verify_problems, '', 'clean');
sql('VACUUM m');
$node->kill9;
$node->start;
is(sql($contents), $expected, 'after another crash');
is($node->verify_problems, '', 'clean');

# and one of that size that nobody takes
$out = run_and_die('BEGIN', 'SELECT sofort.keep_transaction()', 'DELETE FROM m');
($token) = $out =~ /^(\w{32})$/m;
sql("SELECT sofort.abort_transaction('$token')");
is(sql($contents), $expected, 'aborted');
is($node->verify_problems, '', 'clean');

done_testing();
