# Twenty times SIGKILL for the postmaster and all children, at random, under
# load and while recovering. An outside witness remembers what was
# acknowledged: all of it must be there, nothing else, and nothing in halves;
# transactions that wrote to sofort and to heap tables are whole in both.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $rounds  = $ENV{SOFORT_KILLS} || 20;
my $writers = 4;
my $seed    = $ENV{SOFORT_SEED} || time();
srand($seed);
note("SOFORT_SEED=$seed");

my $node = SofortNode->new('main');
$node->init(conf => ['checkpoint_timeout = 30s']);
$node->start;
$node->witness_init($SofortNode::am, 'heap');

my $acknowledged = 0;
my $total = 0;
my $kills = 0;
my $fruitful = 0;	# rounds in which something was acknowledged
for my $round (1 .. $rounds)
{
	# New tables now and then: else comparing them takes longer and longer.
	if ($round % 50 == 0)
	{
		$total += $acknowledged;
		$acknowledged = 0;
		$node->safe_psql('postgres', 'DROP TABLE w_item, w_counter, w_account, w_log');
		unlink glob($node->witness_memory . '/writer.*');
		$node->witness_init($SofortNode::am, 'heap');
	}
	my $witness = $node->witness_start($writers, 60);
	usleep(200_000 + int(rand(800_000)));
	# Now and then in the middle of maintenance.
	$node->psql('postgres', $round % 2 ? 'VACUUM w_item' : 'CHECKPOINT', on_error_die => 0)
	  if $round % 5 == 0;
	$node->kill9;
	$kills++;
	is(SofortNode::witness_finish($witness), 0, "round $round: what was shown under load was whole");

	# Both recovery modes, with indexes that are complete soon or never.
	if ($SofortNode::am eq 'sofort')
	{
		$node->append_conf('postgresql.conf', join("\n",
			'sofort.recovery_mode = ' . ($round % 2 ? 'instant' : 'synchronous'),
			'sofort.recovery_workers = ' . ($round % 4 == 1 ? 0 : 2),
			'sofort.rebuild_segment = ' . (1 + int(rand(4)))));
	}

	# Every third time also up to three kills while it recovers.
	if ($round % 3 == 0)
	{
		for my $again (1 .. 1 + int(rand(3)))
		{
			$node->spawn;
			usleep(int(rand(150_000)));
			$node->kill9;
			$kills++;
		}
	}
	$node->start;
	my ($rc, $totals, $text) = $node->witness_verify($writers);
	is($rc, 0, "round $round: every acknowledged transaction is there, nothing else is")
	  or diag($text);
	$fruitful++ if ($totals->{acknowledged} || 0) > $acknowledged;
	$acknowledged = $totals->{acknowledged} || 0;
	is($node->verify_problems, '', "round $round: tables, indexes and pool agree") if $round % 5 == 0;
}
$total += $acknowledged;
cmp_ok($fruitful, '>', $rounds / 2, 'something was acknowledged in most rounds');
diag("$kills kills, $total transactions acknowledged");

# And it goes on as if nothing had happened: also after an orderly restart.
is(SofortNode::witness_finish($node->witness_start($writers, 1)), 0, 'load after the last kill');
$node->restart;
my ($rc, $totals, $text) = $node->witness_verify($writers);
is($rc, 0, 'all there after an orderly restart') or diag($text);
is($totals->{in_flight}, 0, 'nothing was in flight');

# What the witness saw is told, whatever stops its processes: money that nobody has paid,
# and then a table that is gone.
$node->safe_psql('postgres', 'UPDATE w_account SET balance = balance + 1 WHERE a = 0');
my $witness = $node->witness_start($writers, 60);
usleep(1_000_000);
$node->safe_psql('postgres', 'ALTER TABLE w_log RENAME TO w_log_away');
is(SofortNode::witness_finish($witness), 1, 'a broken promise is told also by a witness that cannot go on');
$node->stop;

done_testing();
