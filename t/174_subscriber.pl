# Logical replication into sofort tables: inserts, updates, deletes, TRUNCATE, large
# and prepared transactions; the subscriber is killed again and again. It ends up
# with what the publisher has: nothing is applied twice, nothing is missing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

my $publisher = SofortNode->new('publisher');
$publisher->init(without_sofort => 1, allows_streaming => 'logical',
	conf => [ 'max_wal_senders = 4', 'wal_level = logical', 'max_prepared_transactions = 4', 'logical_decoding_work_mem = 64kB', 'fsync = off' ]);
$publisher->start;
my $node = SofortNode->new('subscriber');
$node->init(conf => [ 'max_prepared_transactions = 4', 'max_logical_replication_workers = 6', 'max_worker_processes = 16', 'wal_retrieve_retry_interval = 100ms' ]);
$node->start;

my $tables = q{
	CREATE TABLE acc (id int PRIMARY KEY, n int, t text) %1$s;
	CREATE TABLE log (i int, t text) %1$s;
	CREATE TABLE whole (a int, b text) %1$s; ALTER TABLE whole REPLICA IDENTITY FULL;
	CREATE TABLE part (k int PRIMARY KEY, v int) PARTITION BY RANGE (k);
	CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100) %1$s;
	CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (1000) USING heap};
$publisher->safe_psql('postgres', sprintf($tables, 'USING heap') . q{;
	CREATE PUBLICATION pub FOR TABLE acc, log, whole, part WITH (publish_via_partition_root = true);
	INSERT INTO acc SELECT i, 0, 'first' FROM generate_series(1, 500) i; INSERT INTO whole SELECT i % 10, 'w' FROM generate_series(1, 30) i});
$node->safe_psql('postgres', sprintf($tables, 'USING sofort'));
$node->safe_psql('postgres', sprintf(q{CREATE SUBSCRIPTION sub CONNECTION '%s' PUBLICATION pub WITH (streaming = on, two_phase = true)}, $publisher->connstr('postgres') =~ s/'/''/gr));
ok($node->wait_until(q{SELECT count(*) = 4 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel}), 'the tables are copied');
# A subscription commits asynchronously, this state, too; its slot at the publisher is gone before that is durable,
# and after a crash in between PostgreSQL looks for it for ever, whatever the tables are.
$node->safe_psql('postgres', 'CHECKPOINT');

my $look = join(';', map { "SELECT '$_', count(*), md5(string_agg(x::text, ' ' ORDER BY x::text)) FROM $_ x" } qw(acc log whole part));
my $number = 0;

sub work
{
	my ($round) = @_;
	my @sql;
	foreach my $i (1 .. 40)
	{
		$number++;
		my $id = 1 + $number * 37 % 500;
		push @sql, "BEGIN; INSERT INTO log VALUES ($number, 'row'); UPDATE acc SET n = n + 1, t = 'round $round' WHERE id = $id; COMMIT";
		push @sql, "DELETE FROM acc WHERE id = $id; INSERT INTO acc VALUES ($id, $number, NULL)" if $i % 7 == 0;
		push @sql, "UPDATE acc SET id = -id WHERE id = $id" if $i % 11 == 0;
		push @sql, "UPDATE whole SET b = b || '.' WHERE a = " . $i % 10 if $i % 5 == 0;
		push @sql, "INSERT INTO part VALUES ($number % 900, $i) ON CONFLICT (k) DO UPDATE SET v = -$i, k = (part.k + 450) % 900 WHERE part.k + 450 > 2000" if $i % 3 == 0;
		push @sql, "UPDATE part SET k = k + 100 WHERE k = (SELECT max(k) FROM part WHERE k < 100)" if $i % 9 == 0;
		push @sql, 'DELETE FROM whole WHERE ctid = (SELECT ctid FROM whole LIMIT 1); INSERT INTO whole VALUES (3, \'new\')' if $i % 13 == 0;
	}
	push @sql, "INSERT INTO log SELECT $number, repeat('large ', 20) FROM generate_series(1, 1500)";
	push @sql, "BEGIN; INSERT INTO log VALUES ($number, 'prepared'); UPDATE acc SET t = 'prepared' WHERE id = 5; PREPARE TRANSACTION 'p$round'";
	push @sql, 'BEGIN; TRUNCATE whole; INSERT INTO whole SELECT i % 10, \'again\' FROM generate_series(1, 20) i; COMMIT' if $round == 2;
	push @sql, ($round % 2 ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'p$round'";
	push @sql, "BEGIN; SAVEPOINT a; INSERT INTO log VALUES ($number, 'gone'); ROLLBACK TO a; INSERT INTO log VALUES ($number, 'kept'); COMMIT";
	$publisher->safe_psql('postgres', join(";\n", @sql));
	return;
}

foreach my $round (1 .. ($ENV{SOFORT_LONG} ? 20 : 5))
{
	work($round);
	usleep(40_000 * $round);
	$node->kill9;
	work($round + 100) if $round % 2;
	$node->start;
	usleep(100_000);
	if ($round % 2 == 0) { $node->kill9; $node->start; }
}
$publisher->safe_psql('postgres', q{INSERT INTO log VALUES (-1, 'last')});
ok($node->wait_until(q{SELECT count(*) = 1 FROM log WHERE i = -1}), 'it catches up');
is($node->safe_psql('postgres', $look), $publisher->safe_psql('postgres', $look), 'both have the same rows');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*), sum(n) FROM acc WHERE id > -1000'), $publisher->safe_psql('postgres', 'SELECT count(*), sum(n) FROM acc'), 'also by the index');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), 0, 'no prepared transaction is left');
is($node->verify_problems, '', 'verify');

# TRUNCATE arrives while a kept transaction waits that has changed the table: no statement of a session, which would be refused
{
	my $s = session_on($node);
	my ($token) = say_to($s, 'BEGIN; SELECT sofort.keep_transaction()') =~ /^(\w{32})$/m or BAIL_OUT('not kept');
	say_to($s, q{INSERT INTO whole VALUES (77, 'kept')});
	$node->crash_and_start($s);
	my $errors = $node->safe_psql('postgres', 'SELECT apply_error_count FROM pg_stat_subscription_stats');
	$publisher->safe_psql('postgres', q{TRUNCATE whole; INSERT INTO whole VALUES (8, 'after')});
	ok($node->wait_until("SELECT apply_error_count > $errors FROM pg_stat_subscription_stats"), 'TRUNCATE of a table that a waiting transaction has changed fails');
	$s = session_on($node);
	say_to($s, "BEGIN; SELECT FROM sofort.resume_transaction('$token')");
	is(say_to($s, 'SELECT count(*) FROM whole WHERE a = 77'), "1\n", 'the transaction sees its row');
	say_to($s, 'COMMIT');
	SofortNode::drop_session($s);
	ok($node->wait_until(q{SELECT count(*) = 1 FROM whole WHERE b = 'after'}), 'afterwards it is applied');
	is($node->safe_psql('postgres', $look), $publisher->safe_psql('postgres', $look), 'both have the same rows');
}

# changes of sofort tables cannot be sent: a publication refuses to name one
is($node->error_of('CREATE PUBLICATION p FOR TABLE acc'), '0A000: cannot publish table "acc" because it uses access method "sofort"', 'a publication of a sofort table');

$node->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
$node->stop;
$publisher->stop;
$_->teardown_node foreach ($node, $publisher);
done_testing();
