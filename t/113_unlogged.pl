# Unlogged tables: empty after a crash of the server or of one backend, with all
# their indexes, whatever was under way, and also if the start that empties them
# is killed; whole after a clean shutdown, which tells nothing of what PostgreSQL
# did before: it may have recovered without sofort; kept after pg_resetwal, which makes a crash
# look like a shutdown. As heap beside them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('unlogged');
$node->init(conf => [ 'autovacuum = off', 'max_prepared_transactions = 2' ]);
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

# PostgreSQL recovers, and empties btree indexes, in a run that cannot use the pool or does not load
# sofort; it is stopped in order, and the next start reads that the server was shut down
my $space = $node->basedir . '/space';
mkdir $space;
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$space'");
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere TABLESPACE space');
my @places = (['postgres', 's'], ['postgres', 's_space'], ['elsewhere', 's_moved'], ['elsewhere', 's_default']);
$node->safe_psql($_->[0], "CREATE EXTENSION IF NOT EXISTS sofort; CREATE UNLOGGED TABLE $_->[1] (i int PRIMARY KEY, t text, n int) USING sofort TABLESPACE "
	  . ($_->[1] eq 's_space' ? 'space' : 'pg_default') . "; CREATE INDEX ON $_->[1] (n)")
  foreach @places[1 .. 2];
$node->safe_psql('elsewhere', 'CREATE UNLOGGED TABLE s_default (i int PRIMARY KEY, t text, n int) USING sofort; CREATE INDEX ON s_default (n)');

sub fill_places
{
	$node->safe_psql('postgres', "DELETE FROM h; INSERT INTO h SELECT i, 'text', 1 FROM generate_series(1, 500) i");
	$node->safe_psql($_->[0], "DELETE FROM $_->[1]; INSERT INTO $_->[1] SELECT i, 'text', 1 FROM generate_series(1, 500) i")
	  foreach @places;
	return;
}

sub places_hold
{
	my ($rows, $what) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM h'), $rows, "$what: heap table");
	foreach my $place (@places)
	{
		my ($database, $table) = @$place;
		is( join(' ', map { $node->safe_psql($database, $_) } (
					"SELECT count(*) FROM $table",
					"SET enable_seqscan = off; SELECT count(*) FROM $table WHERE n = 1",
					"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM $table WHERE i >= 0")),
			"$rows $rows $rows", "$what: $table, sequentially and by its indexes");
	}
	is($node->verify_problems, '', "$what: verify");
	return;
}

my %unusable = (
	'pool is away' => [
		sub { rename($node->pool_file, $node->pool_file . '.away') or die $! },
		sub { rename($node->pool_file . '.away', $node->pool_file) or die $! } ],
	'sofort is not loaded' => [
		sub { $node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n") },
		sub { $node->append_conf('postgresql.conf', "shared_preload_libraries = 'sofort'\n") } ]);

# The server is down. A run in which nobody uses the pool, stopped in order
sub run_without_pool
{
	my ($case, $heap_rows, $when) = @_;
	my ($begin, $end) = @{ $unusable{$case} };

	$begin->();
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM h'), $heap_rows, "$case: heap table $when");
	$node->stop;
	$end->();
	return;
}

foreach my $case (sort keys %unusable)
{
	fill_places();
	$node->stop;
	run_without_pool($case, 500, 'without a crash');
	$node->start;
	places_hold(500, "no crash, $case");

	$node->kill9;
	run_without_pool($case, 0, 'after the crash');
	# and killed while it empties the first table, before PostgreSQL has written that it runs
	$node->arm_at_start('store-reset-begun', 'kill');
	$node->spawn;
	ok($node->reap, "$case: killed at store-reset-begun");
	$node->start;
	places_hold(0, $case);
	$node->stop;
	$node->start;
	places_hold(0, "$case, and a clean restart");
	fill_places();
	$node->stop;
	$node->start;
	places_hold(500, "$case, filled again, and a clean restart");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM perm'), '1', 'a permanent table has its row');

# tables that are rewritten, truncated and copied with their database; one that was never filled keeps
# what was asked for its columns
$node->safe_psql('postgres', q{
	ALTER TABLE s ALTER n TYPE bigint;
	TRUNCATE s_space; INSERT INTO s_space VALUES (1, 'truncated', 1);
	CREATE UNLOGGED TABLE unfilled (t text) USING sofort;
	SELECT sofort.set_dictionary_placement('unfilled', 't', 'pmem')});
$node->safe_psql('postgres', "CREATE DATABASE copied_$_ TEMPLATE elsewhere STRATEGY $_") foreach ('wal_log', 'file_copy');
$node->safe_psql('elsewhere', 'ALTER TABLE s_moved SET TABLESPACE space');
$node->safe_psql('postgres', 'ALTER DATABASE elsewhere SET TABLESPACE pg_default');
$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*), (SELECT t FROM s_space) FROM s'), '500|truncated', 'rewritten and truncated, clean restart');
is($node->safe_psql($_, 'SELECT (SELECT count(*) FROM s_moved), (SELECT count(*) FROM s_default)'), '500|500', "$_, clean restart")
  foreach ('elsewhere', 'copied_wal_log', 'copied_file_copy');
is($node->safe_psql('postgres', q{SELECT sofort_test.placements_asked('unfilled')}), '1:pmem ', 'a table that was never filled');
$node->kill9;
run_without_pool('pool is away', 0, 'after another crash');
$node->start;
is($node->safe_psql($_, 'SELECT (SELECT count(*) FROM s_moved), (SELECT count(*) FROM s_default)'), '0|0', "$_, crash and a start that cannot use the pool")
  foreach ('elsewhere', 'copied_wal_log', 'copied_file_copy');
$node->safe_psql('postgres', "DROP DATABASE $_") foreach ('elsewhere', 'copied_wal_log', 'copied_file_copy');
$node->safe_psql('postgres', 'DROP TABLE s_space, unfilled; DROP TABLESPACE space');

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

# rows that C code put past the access method into a table's file: reported as long as they are there
$node->safe_psql('postgres', q{
	CREATE TABLE past (i int) USING sofort; CREATE UNLOGGED TABLE u_past (i int) USING sofort; CREATE UNLOGGED TABLE u_sound (i int) USING sofort;
	SELECT sofort_test.heap_insert('past'), sofort_test.heap_insert('u_past')});

sub past_in
{
	return $node->safe_psql('postgres', q{SELECT string_agg(relation::text || ' ' || place, ', ' ORDER BY relation::text)
		FROM unnest('{past,u_past,u_sound}'::regclass[]) r, sofort.verify(r)});
}
is(past_in(), 'past file, u_past file', 'rows past the access method are reported');
$node->restart;
is(past_in(), 'past file, u_past file', '... after a clean restart');
$node->kill9;
$node->start;
is(past_in(), 'past file', '... after a crash, which has reset the file of an unlogged table');
$node->safe_psql('postgres', 'DROP TABLE past, u_past, u_sound');

# a table made by a transaction that did not come to its end
ok($node->crash_at('prepare-durable', 'BEGIN; CREATE UNLOGGED TABLE never (i int) USING sofort; INSERT INTO never VALUES (1); COMMIT;', undef, 'SELECT 1;'),
	'killed in CREATE');
$node->start;
is($node->safe_psql('postgres', "SELECT to_regclass('never') IS NULL"), 't', 'the table is not there');
is($node->verify_problems, '', 'verify');
is($node->safe_psql('postgres', 'VACUUM; SELECT stores - (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = $$sofort$$) FROM sofort.pool'),
	'0', 'nor is its store');

# a crash, and pg_resetwal, which says that the server was shut down: PostgreSQL resets no file, so an
# unlogged table keeps its rows, heap those of its pages that were written. Indexes of other access
# methods are as old as these, and REINDEX makes them whole.
$node->safe_psql('postgres', "TRUNCATE s, h; $fill");
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE s_new (i int) USING sofort');
$node->restart;
$node->safe_psql('postgres', "INSERT INTO $_ SELECT i, 'later', 5 FROM generate_series(3001, 4000) i; DELETE FROM $_ WHERE n = 5 AND i <= 3000") foreach ('s', 'h');
$node->safe_psql('postgres', 'INSERT INTO s_new VALUES (1)');
$node->safe_psql('postgres', 'BEGIN; CREATE UNLOGGED TABLE s_prepared (i int) USING sofort; INSERT INTO s_prepared VALUES (1); PREPARE TRANSACTION $$in a file$$');
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; CREATE UNLOGGED TABLE s_open (i int) USING sofort; INSERT INTO s_open VALUES (1)');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'BEGIN; CREATE UNLOGGED TABLE s_prepared_later (i int) USING sofort; INSERT INTO s_prepared_later VALUES (1); PREPARE TRANSACTION $$in the WAL$$');
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE s_lost (i int) USING sofort; INSERT INTO s_lost VALUES (1)');
$node->kill9;
unlink($node->data_dir . '/postmaster.pid');
command_ok([ 'pg_resetwal', '-f', '-x', 0x100000, '-D', $node->data_dir ], 'pg_resetwal');
$node->start;
my $notice;
$node->psql('postgres', 'SELECT sofort.accept_reset()', stderr => \$notice);
like($notice, qr/HINT:  .*REINDEX/, 'accept_reset() tells of indexes');
$node->restart;

sub accepted
{
	my ($what) = @_;
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM h'), '>', 0, "$what: heap table");
	is($node->safe_psql('postgres', $_), 3400, "$what: $_") foreach (
		'SELECT count(*) FROM s',
		'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM s WHERE i >= 0');
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM s_new), (SELECT t FROM perm)'), '1|kept', "$what: other tables");
	is($node->verify_problems, '', "$what: verify");
}
accepted('reset and accepted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM unnest('{s_open,s_prepared,s_prepared_later,s_lost}'::text[]) t WHERE to_regclass(t) IS NOT NULL}), 0, 'tables that were not committed are not there');
is($node->safe_psql('postgres', 'COMMIT PREPARED $$in a file$$; SELECT count(*) FROM s_prepared'), 1, 'a transaction that was prepared before a checkpoint is still');
# (s_lost had committed: store and file are left, and nothing tells that the catalogs have lost it)
is($node->safe_psql('postgres', $_), 1, 'stores of the others are not there')
  foreach ('SELECT stores - (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = $$sofort$$) FROM sofort.pool');
$node->safe_psql('postgres', 'REINDEX TABLE s');
is(count_all('s'), '3400 3400 3400', 'REINDEX makes indexes of other access methods whole');
$node->restart;
accepted('and a clean restart');
is(count_all('s'), '3400 3400 3400', 'and a clean restart: by all indexes');
$node->kill9;
$node->start;
state_is(0, 'and another crash');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM s_new), (SELECT count(*) FROM s_prepared)'), '0|0', 'and another crash: other tables');

$node->stop;
$node->teardown_node;
done_testing();
