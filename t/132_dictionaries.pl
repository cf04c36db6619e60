# What is rebuilt beside the indexes that the workload needs: dictionaries of tables that
# are written to come with their indexes; indexes that prepared transactions use come first.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use Session;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('dictionaries');
$node->init(conf => [
	'autovacuum = off', 'sofort.recovery_mode = adaptive', 'sofort.recovery_workers = 0', 'max_prepared_transactions = 2' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub workers
{
	sql("ALTER SYSTEM SET sofort.recovery_workers = $_[0]");
	sql('SELECT pg_reload_conf()');
	return;
}

# (COPY is not among the statements that are counted. Columns whose first values look unique get no dictionary.)
my $file = $node->basedir . '/names';
sql(qq{
	CREATE TABLE read (id int PRIMARY KEY, name text) USING sofort;
	CREATE TABLE written (id int PRIMARY KEY, name text) USING sofort;
	CREATE TABLE open (id int PRIMARY KEY, v int) USING sofort;
	CREATE TABLE bell () USING sofort;
	COPY (SELECT i, 'a name that is not short at all ' || i % CASE WHEN i < 4000 THEN 10 ELSE 1500 END FROM generate_series(1, 8000) i) TO '$file';
	COPY read FROM '$file'; COPY written FROM '$file';
	COPY (SELECT i, i FROM generate_series(1, 5000) i) TO '$file';
	COPY open FROM '$file';
	ANALYZE});
is(sql(q{SELECT count(*) FROM sofort.columns WHERE encoding = 'dictionary' AND dictionary_entries = 1500}), '2', 'two dictionaries');
sql("UPDATE written SET name = name || '+' WHERE id = $_") for 1 .. 5;
sql(join(';', map { "SELECT name FROM read WHERE id = $_" } 1 .. 50));
sql("BEGIN; UPDATE open SET v = 0 WHERE id = 5; PREPARE TRANSACTION 'p'");
ok($node->workload_is_saved('bell'), 'statistics were saved');
$node->kill9;
$node->start;

is(sql(q{SELECT index FROM sofort.recovery_order WHERE position = 1}), 'open_pkey', 'what a prepared transaction uses comes first');
sql("ROLLBACK PREPARED 'p'");
isnt(sql(q{SELECT index FROM sofort.recovery_order WHERE position = 1}), 'open_pkey', 'as long as it is open');

$node->arm('dictionary-built', 'wait');
workers(1);
ok($node->wait_at('dictionary-built'), 'a dictionary is built');
is(sql(q{SELECT status FROM sofort.indexes WHERE index = 'written_pkey'::regclass}), 'missing', 'before the indexes of its table');
is(sql("UPDATE written SET name = 'a name that is not short at all 7' WHERE id = 9 RETURNING name"), 'a name that is not short at all 7', 'writers use it');
$node->arm('rebuild-block', 'wait');
$node->disarm('dictionary-built');
ok($node->wait_at('rebuild-block'), 'then an index');
$node->arm('dictionary-built', 'error');
$node->disarm('rebuild-block');
ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), 'recovery ends');
is(sql(q{SELECT failures || ' ' || structures_left FROM sofort.recovery}), '1 0', 'the other dictionary comes in the end; an error there does no harm');
is(sql("INSERT INTO read SELECT 8000 + i, 'a name that is not short at all ' || i FROM generate_series(1, 1600) i; SELECT count(DISTINCT name) FROM read"), '1601', 'it is used');
is($node->verify_problems, '', 'verify');

# Which tables are written to is asked of the workload that counts: after a start the one before it,
# with sofort.recovery_alpha = 1 for ever, else until some hundred other statements were executed.
for my $alpha (1, 0.99)
{
	sql("UPDATE written SET name = 'a name that is not short at all 3' WHERE id = $_") for 1 .. 5;
	ok($node->workload_is_saved('bell'), "alpha $alpha: statistics were saved");
	sql("ALTER SYSTEM SET sofort.recovery_alpha = $alpha");
	workers(0);
	$node->kill9;
	$node->start;
	sql(join(';', map { "SELECT name FROM written WHERE id = $_" } 1 .. 600));
	$node->arm('dictionary-built', 'wait');
	workers(1);
	ok($node->wait_at('dictionary-built'), "alpha $alpha: a dictionary is built");
	is(sql(q{SELECT status FROM sofort.indexes WHERE index = 'written_pkey'::regclass}), $alpha == 1 ? 'partial' : 'ready',
		"alpha $alpha: " . ($alpha == 1 ? 'before' : 'behind') . ' the indexes of the table that was written to');
	$node->disarm('dictionary-built');
	ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), "alpha $alpha: recovery ends");
}
is($node->verify_problems, '', 'verify');

# A change of the placement is cut short: the index in the pool is given back by who needs the dictionary next. If that is
# a worker, verify() waits for it, as for a writer.
workers(0);
$node->arm('dictionary-index-moved', 'wait');
my $placing = session_on($node);
send_to($placing, "SELECT sofort.set_dictionary_placement('read', 'name', 'pmem')");
ok($node->wait_at('dictionary-index-moved'), 'an index of a dictionary is in the pool, and not needed yet');
$node->kill9;
$placing->{run}->kill_kill;
$node->start;
$node->arm('pmem-unlinked', 'wait');
workers(1);
ok($node->wait_at('pmem-unlinked'), 'a worker gives it back');
my $verify = session_on($node);
send_to($verify, q{SELECT * FROM sofort.verify('read')});
ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'read'::regclass AND NOT granted}), 'verify() waits');
$node->disarm('pmem-unlinked');
is(answer($verify), '', 'and finds no damage');
$verify->{in} .= "\\q\n";
IPC::Run::finish($verify->{run});

$node->stop;
$node->teardown_node;
done_testing();
