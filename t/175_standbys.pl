# Hot standbys of a server with sofort tables do not have these, and go on with all else when the
# server was killed: it then skips transaction ids, more than a standby has room for as running ones.
# The same when one of them is promoted, and the other one follows it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(allows_streaming => 1, conf => [ 'autovacuum = off', 'max_prepared_transactions = 3' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE TABLE s (i int) USING sofort; CREATE TABLE h (i int) USING heap');
$node->backup('b');
my @standbys = map { SofortNode->new("standby$_") } 1, 2;
foreach my $standby (@standbys)
{
	$standby->init_from_backup($node, 'b', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "sofort.pool_path = '" . $standby->pool_file . "'\nwal_retrieve_retry_interval = 100ms\n");
	$standby->start(no_extension => 1);
	$node->wait_for_catchup($standby);
}

# What h has on a standby, as soon as it has the row; its error, if it is not there any more.
sub sees
{
	my ($standby, $i) = @_;
	my ($out, $err) = ('', '');
	for (1 .. 300)
	{
		return $err if $standby->psql('postgres', "SELECT string_agg(i::text, ' ' ORDER BY i) FROM h", stdout => \$out, stderr => \$err) != 0;
		last if $out =~ /(^| )$i( |$)/;
		usleep(100_000);
	}
	return $out;
}
sub xid { return $_[0]->safe_psql('postgres', 'SELECT pg_current_xact_id()'); }

$node->safe_psql('postgres', q{BEGIN; INSERT INTO h VALUES (1000); SAVEPOINT a; INSERT INTO h VALUES (1001); INSERT INTO s VALUES (1); PREPARE TRANSACTION 'p'});
my $rows = '';
foreach my $i (1 .. 3)
{
	# (some are not known to the standby when the server dies, and one that does not end)
	$node->safe_psql('postgres', join(';', map { "INSERT INTO s VALUES ($_)" } 1 .. 5)) if $i != 2;
	my $s = session_on($node);
	say_to($s, "BEGIN; INSERT INTO h VALUES (-$i); INSERT INTO s VALUES (-$i)");
	my $old = session_on($standbys[0]);
	is(say_to($old, q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT string_agg(i::text, ' ' ORDER BY i) FROM h}), "$rows\n", "crash $i: seen before");
	my $before = xid($node);
	$node->crash_and_start($s);
	cmp_ok(xid($node), '>', $before + 5000, "crash $i: many transaction ids are skipped") if $i != 2;
	$node->safe_psql('postgres', "BEGIN; INSERT INTO h VALUES ($i); SAVEPOINT a; INSERT INTO h VALUES (500); ROLLBACK TO a; COMMIT");
	$s = session_on($node);
	say_to($s, 'BEGIN; INSERT INTO h VALUES (500)');
	is(sees($_, $i), $rows = join(' ', 1 .. $i), "crash $i: " . $_->name . ' goes on') foreach @standbys;
	is(say_to($old, q{SELECT string_agg(i::text, ' ' ORDER BY i) FROM h}), join(' ', 1 .. $i - 1) . "\n", "crash $i: an old snapshot");
	SofortNode::drop_session($_) foreach ($s, $old);
	$standbys[1]->restart(no_extension => 1) if $i == 2;
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM s'), 10, 'the primary has its rows');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'; INSERT INTO h VALUES (4)});
is(sees($_, 4), $rows = '1 2 3 4 1000 1001', 'prepared over crashes: ' . $_->name) foreach @standbys;

# fail over
my ($first, $second) = @standbys;
$node->safe_psql('postgres', 'CHECKPOINT; INSERT INTO s VALUES (6); INSERT INTO h VALUES (5)');
$node->wait_for_catchup($_) foreach @standbys;
my $before = xid($node);
$node->kill9;

# What the primary wrote last may have reached one of them alone. That one is promoted, or the
# other could not follow.
$_->wait_until('SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)') foreach @standbys;
my $received = $first->safe_psql('postgres', 'SELECT pg_last_wal_receive_lsn()');
($first, $second) = ($second, $first) if $second->safe_psql('postgres', "SELECT pg_last_wal_receive_lsn() > '$received'") eq 't';
$first->promote;
cmp_ok(xid($first), '<=', $before + 1, 'a standby that is promoted has no pool, and skips none');
$second->enable_streaming($first);
$second->restart(no_extension => 1);
$first->safe_psql('postgres', 'INSERT INTO h VALUES (6)');
is(sees($second, 6), '1 2 3 4 5 6 1000 1001', 'the other one follows it');
$first->kill9;
$first->start(no_extension => 1);
$first->safe_psql('postgres', 'INSERT INTO h VALUES (7)');
is(sees($second, 7), '1 2 3 4 5 6 7 1000 1001', '... over a crash');
$first->safe_psql('postgres', 'SELECT sofort.create_pool()');
$first->restart(no_extension => 1);
$first->safe_psql('postgres', 'DROP TABLE s; CREATE TABLE s (i int) USING sofort; INSERT INTO s VALUES (1)');
$first->kill9;
$first->start(no_extension => 1);
is($first->safe_psql('postgres', 'INSERT INTO h VALUES (8); SELECT count(*) FROM s'), 1, 'with a pool of its own');
is(sees($second, 8), '1 2 3 4 5 6 7 8 1000 1001', '... the other one follows it');
is($first->verify_problems, '', 'verify');

$_->stop foreach ($second, $first);
$_->teardown_node foreach ($node, @standbys);
done_testing();
