# Unlogged tables: empty after a crash of the server or of one backend, with all
# their indexes, whatever was under way, and also if the start that empties them
# is killed; whole after a clean shutdown. As heap beside them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('unlogged');
$node->init(conf => ['autovacuum = off']);
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE perm (i int PRIMARY KEY, t text) USING sofort;
	CREATE UNLOGGED TABLE s (i int PRIMARY KEY, t text, n int) USING sofort;
	CREATE INDEX s_btree ON s (n);
	CREATE INDEX s_sofort ON s USING sofort_index (n);
	CREATE UNLOGGED TABLE h (LIKE s INCLUDING ALL) USING heap;
	CREATE UNLOGGED TABLE was_perm (i int PRIMARY KEY) USING sofort;
	CREATE TABLE was_unlogged (i int PRIMARY KEY) USING sofort;
	INSERT INTO was_unlogged SELECT generate_series(1, 100);
	ALTER TABLE was_unlogged SET UNLOGGED;
	ALTER TABLE was_perm SET LOGGED;
	INSERT INTO was_perm SELECT generate_series(1, 100);
	INSERT INTO perm VALUES (0, 'kept')});

my $fill = join('', map { "INSERT INTO $_ SELECT i, 'text ' || i, i % 10 FROM generate_series(1, 3000) i;"
	  . "DELETE FROM $_ WHERE n = 0; UPDATE $_ SET t = 'new' WHERE n = 1;" } ('s', 'h'));

sub count_all
{
	my ($table) = @_;
	return join(' ', map { $node->safe_psql('postgres', $_) } (
		"SELECT count(*) FROM $table",
		"SET enable_seqscan = off; SELECT count(*) FROM $table WHERE n >= 0",
		"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM $table WHERE i >= 0"));
}

sub state_is
{
	my ($n, $what) = @_;
	is(count_all('h'), "$n $n $n", "$what: heap table");
	is(count_all('s'), "$n $n $n", "$what: sofort table, sequentially and by its indexes");
	is($node->safe_psql('postgres', 'SELECT t FROM perm'), 'kept', "$what: permanent table");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM was_perm'), '100', "$what: SET LOGGED");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM was_unlogged'), $n ? '100' : '0', "$what: SET UNLOGGED")
	  if $what =~ /first/;
	is($node->verify_problems, '', "$what: verify");
	return;
}

$node->safe_psql('postgres', $fill);
$node->stop;
$node->start;
state_is(2700, 'first clean restart');
$node->stop;
$node->start;
state_is(2700, 'second clean restart');
$node->kill9;
$node->start;
state_is(0, 'first crash');
$node->kill9;
$node->start;
state_is(0, 'crash of empty tables');

# immediate shutdown is a crash
$node->safe_psql('postgres', $fill);
$node->stop('immediate');
$node->start;
state_is(0, 'immediate shutdown');

# one backend
$node->safe_psql('postgres', $fill);
my $life = $node->life;
$node->psql('postgres', "SELECT sofort_test.arm('commit-durable', 'kill_backend'); BEGIN; UPDATE s SET t = 'last'; DELETE FROM s WHERE n = 3; COMMIT;");
ok($node->wait_new_life($life), 'crash-restart');
state_is(0, 'crash of a backend');

# what was under way leads into rows that are no more, and new ones take their ids
foreach my $point ('prepare-durable', 'commit-stamped', $ENV{SOFORT_LONG} ? ('prepare-before-durable', 'abort-before-undo') : ())
{
	$node->safe_psql('postgres', $fill);
	my $end = $point =~ /^abort/ ? 'ROLLBACK' : 'COMMIT';
	my $sql = "BEGIN; INSERT INTO s SELECT i, 'more', 2 FROM generate_series(10001, 13000) i; UPDATE s SET t = 'last' WHERE n = 5; DELETE FROM s WHERE n = 3;"
	  . " ALTER TABLE s ADD COLUMN added_" . ($point =~ s/-/_/gr) . " text DEFAULT 'x'; $end;";
	ok($node->crash_at($point, $sql, undef, 'SELECT 1;'), "killed at $point");
	# and once more, while it empties the table
	$node->arm_at_start('store-reset-begun', 'kill');
	$node->spawn;
	ok($node->reap, "$point: killed again at store-reset-begun");
	$node->start;
	state_is(0, "after $point");
	$node->safe_psql('postgres', $fill);
	state_is(2700, "after $point, filled again");
	$node->safe_psql('postgres', 'DELETE FROM s; DELETE FROM h');
}

# an index of which ALTER INDEX says that it is to lie in the pool: such a tree would outlive the table's rows
$node->safe_psql('postgres', q{CREATE UNLOGGED TABLE placed (a int UNIQUE, b int) USING sofort; ALTER INDEX placed_a_key SET (placement = pmem)});
$node->restart;
$node->safe_psql('postgres', q{INSERT INTO placed SELECT i, i FROM generate_series(1, 1000) i});
$node->kill9;
$node->start;
$node->safe_psql('postgres', q{INSERT INTO placed SELECT i, i FROM generate_series(5001, 6000) i});
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM placed WHERE a < 5000; SELECT count(*) FROM placed WHERE a > 5000}), "0\n1000", 'an index to be placed in the pool has no entries from before the crash');
is($node->safe_psql('postgres', q{SELECT placement FROM sofort.indexes WHERE index = 'placed_a_key'::regclass}), 'dram', 'it is not there');
like($node->error_of('REINDEX INDEX placed_a_key'), qr/^0A000/, 'REINDEX says so');
$node->safe_psql('postgres', 'DROP TABLE placed');

# a table made by a transaction that did not come to its end
ok($node->crash_at('prepare-durable', 'BEGIN; CREATE UNLOGGED TABLE never (i int) USING sofort; INSERT INTO never VALUES (1); COMMIT;', undef, 'SELECT 1;'),
	'killed in CREATE');
$node->start;
is($node->safe_psql('postgres', "SELECT to_regclass('never') IS NULL"), 't', 'the table is not there');
is($node->verify_problems, '', 'verify');
is($node->safe_psql('postgres', 'VACUUM; SELECT stores - (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = $$sofort$$) FROM sofort.pool'),
	'0', 'nor is its store');

$node->stop;
$node->teardown_node;
done_testing();
