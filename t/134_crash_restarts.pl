# Processes are killed while others take memory of the arena, under its lock. The server restarts:
# the postmaster, which goes on, must wait for nothing that a dead process held.
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

my $crashes = $ENV{SOFORT_LONG} ? 60 : 15;
my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0' ]);
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION IF NOT EXISTS sofort_test;
	CREATE TABLE t (id int PRIMARY KEY) USING sofort;
	INSERT INTO t SELECT generate_series(1, 100)});

my $restarts = 0;
while ($restarts < $crashes)
{
	my $life = $node->life;
	my $victim = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
	my @sessions = map { session_on($node) } 1 .. 2;

	send_to($_, 'SELECT sofort_test.use_arena()') foreach @sessions;
	usleep(100_000);
	kill('KILL', $victim);
	answer($_) foreach @sessions;
	$_->{run}->finish foreach @sessions;
	last if !$node->wait_new_life($life);
	$restarts++;
}
is($restarts, $crashes, 'the server restarts after each crash of a process');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 100, 'nothing is lost') if $restarts == $crashes;

$node->stop;
$node->teardown_node;
done_testing();
