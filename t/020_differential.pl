# Random statements of several sessions on a sofort table and its heap twin:
# every answer, every error and every row must be the same.
#
# SOFORT_SEED=n begins with that seed; SOFORT_LONG=1 runs more and longer ones.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Differential;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('differential');
$node->init;
$node->start;

my $first = $ENV{SOFORT_SEED} || time() * 10;
my @seeds = $first .. $first + ($ENV{SOFORT_LONG} ? 30 : 4) - 1;
my $steps = $ENV{SOFORT_LONG} ? 4000 : 1200;
my $psql = "psql -XAtq -v VERBOSITY=terse -P null='(null)' -d \"" . $node->connstr('postgres') . '"';

foreach my $seed (@seeds)
{
	my $d = Differential->new($seed, [ ($psql) x 3 ]);
	$d->setup;
	for (1 .. $steps)
	{
		$d->step;
		last if @{ $d->{problems} };
	}
	$d->finish;
	note("seed $seed: $d->{compared} statements compared, $d->{errors} errors, $d->{waits} lock waits");
	is(join("\n", @{ $d->{problems} }[ 0 .. ($#{ $d->{problems} } > 0 ? 0 : $#{ $d->{problems} }) ]), '', "seed $seed: sofort and heap agree");
	cmp_ok($d->{compared}, '>', $steps / 4, "seed $seed: statements were compared");
	is($node->verify_problems, '', "seed $seed: verify");
}

$node->stop;
$node->teardown_node;
done_testing();
