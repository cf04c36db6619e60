# Recovery mode instant: random statements on a sofort table and its heap twin
# while the rebuild of its indexes stands still at random places: nothing read,
# some segments read, merging, switching. Every answer must be the same.
#
# SOFORT_SEED=n begins with that seed; SOFORT_LONG=1 runs more.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Differential;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('instant');
$node->init(conf => [
	"sofort.recovery_mode = instant",
	"sofort.recovery_workers = 0",
	"sofort.rebuild_segment = 1",
]);
$node->start;

my $first = $ENV{SOFORT_SEED} || time() * 10;
my @seeds = $first .. $first + ($ENV{SOFORT_LONG} ? 30 : 3) - 1;
my $psql = "psql -XAtq -v VERBOSITY=terse -P null='(null)' -d \"" . $node->connstr('postgres') . '"';
my @points = ('rebuild-segment-done', 'rebuild-merge', 'rebuild-merged', 'rebuild-draining', 'rebuild-drained');

sub steps
{
	my ($d, $n) = @_;
	for (1 .. $n)
	{
		return if @{ $d->{problems} };
		$d->step;
	}
}

sub partial_indexes
{
	return split /\n/, $node->safe_psql('postgres',
		"SELECT index FROM sofort.indexes WHERE status = 'partial' ORDER BY 1");
}

# Another session works on this index, and stands still at the point meanwhile.
sub held_at
{
	my ($d, $point, $index) = @_;
	$node->arm($point, 'wait');
	my $h = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		"SELECT sofort_test.rebuild('$index', 0)" ], '<', \undef, '>', \my $out, '2>', \my $err);
	$node->wait_at($point);
	push @{ $d->{log} }, "-- $index held at $point";
	steps($d, 40);
	$node->disarm($point);
	$h->finish;
	is($err, '', "$index, held at $point: no error");
}

my %seen;
foreach my $seed (@seeds)
{
	my $d = Differential->new($seed, [ ($psql) x 3 ]);
	$d->setup;
	steps($d, 300);
	for my $round (1 .. 3)
	{
		last if @{ $d->{problems} };
		$d->end($_, 'COMMIT') for grep { $d->{sessions}[$_]{open} } 0 .. 2;
		if ($d->rnd(2)) { $node->kill9; } else { $node->stop; }
		$node->start;
		$d->reconnect(($psql) x 3);
		$d->{data_only} = 1;
		steps($d, 60);
		$seen{partial} += partial_indexes();
		for my $index (partial_indexes())
		{
			# (one of three stays as it is, one goes forward by some segments)
			my $how = $d->rnd(3);
			if ($d->rnd(2))
			{
				# look-ups make hashes from now on, as if keys lay anywhere
				$node->safe_psql('postgres', "SELECT sofort_test.hashes('$index', true)");
				push @{ $d->{log} }, "-- $index gets hashes";
				steps($d, 20);
				$seen{hashes} += $node->safe_psql('postgres', "SELECT sofort_test.hashes('$index', false)") > 0;
			}
			if ($how == 1)
			{
				$node->safe_psql('postgres', "SELECT sofort_test.rebuild('$index', " . (1 + $d->rnd(4)) . ')');
				$seen{steps}++;
			}
			if ($how == 2)
			{
				my $point = $d->pick(@points);
				held_at($d, $point, $index);
				$seen{$point}++;
			}
			last if @{ $d->{problems} };
		}
		steps($d, 60);
		$d->{data_only} = 0;
		steps($d, 60);
	}
	$d->finish;
	note("seed $seed: $d->{compared} statements compared, $d->{errors} errors, $d->{waits} lock waits");
	is(join("\n", @{ $d->{problems} }[ 0 .. ($#{ $d->{problems} } > 0 ? 0 : $#{ $d->{problems} }) ]), '', "seed $seed: sofort and heap agree");
	is($node->verify_problems, '', "seed $seed: verify");
}
note(join(', ', map { "$_: $seen{$_}" } sort keys %seen));
cmp_ok($seen{partial} // 0, '>', 5, 'indexes were used before they were complete');
cmp_ok($seen{hashes} // 0, '>', 0, 'and by hashes');

$node->stop;
$node->teardown_node;
done_testing();
