# What a power cut leaves: a run is recorded with everything that was flushed and
# drained; at every drain (here at every 20th, in turn with all, half or none of
# the lines on their way, some torn) a server is started from an image of the
# medium and the data directory of that moment. Every acknowledged transaction
# is there, every other one absent or, if its commit was in flight, whole; all
# structures are sound; every table can be written, vacuumed and dropped; no
# space is lost.
#
# And the test tests itself: it notices when one flush in 30 is left out, and
# when any single flush or drain of the sources is (here: some of them).
# medium/uncaught lists those of which it cannot notice it, with reasons.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Medium;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

if ($SofortNode::am ne 'sofort' || !Medium::available())
{
	plan skip_all => 'the release build has no shadow medium';
}

my $long = $ENV{SOFORT_LONG};
my $seed = $ENV{SOFORT_SEED} || int(rand(1_000_000));
diag("seed $seed (SOFORT_SEED)");
srand($seed);

my %uncaught;
foreach (split /\n/, slurp_file("$FindBin::RealBin/medium/uncaught"))
{
	$uncaught{$1} = 1 if /^(\S+:\S+)/;
}

my %outcome;
my $total = 0;

foreach my $script (sort glob("$FindBin::RealBin/medium/workloads/*.sql"))
{
	my ($name) = $script =~ m{([^/]+)\.sql$};
	my $run = Medium->record($name, $script);
	cmp_ok($run->{drains}, '>', 500, "$name: $run->{steps} steps with $run->{drains} drains are recorded");

	foreach my $kind ($long ? (0 .. 3) : ('rotate'))
	{
		my ($images, $bad, $text) = $run->enumerate(
			offset => $seed % 20, seed => $seed,
			$kind eq 'rotate' ? (every => 20, rotate => 1) : (every => 2, survival => $kind));
		$total += $images;
		is($bad, 0, "$name: $images images, kind $kind") or diag(substr($text, 0, 10_000));
	}

	# one flush in 30 left out
	my (undef, $bad) = $run->enumerate(every => 5, offset => $seed, survival => 0, drop => 30, seed => $seed);
	cmp_ok($bad, '>', 0, "$name: it is noticed when flushes are lost");

	# single calls left out
	my %found = $long ? $run->calls(tries => 30) : ();
	if (!$long && $name eq 'tables')
	{
		%found = $run->calls(
			tries => 20,
			only => [
				'txn/visibility.h:txn_stamp_word:flush:1', 'pmem/alloc.c:free_target:drain:1',
				'pmem/alloc.c:pm_free:flush:2'
			]);
	}
	foreach my $call (keys %found)
	{
		$outcome{$call} = $found{$call}[0] if !defined $outcome{$call} || $outcome{$call} ne 'caught';
	}
	$run->remove;
}

foreach my $call (sort keys %outcome)
{
	next if $uncaught{$call} && $outcome{$call} ne 'caught';
	is($outcome{$call}, 'caught', "it is noticed when $call is left out");
	diag("$call is in medium/uncaught, and was noticed") if $uncaught{$call};
}
cmp_ok($total, '>=', 2000, "$total crash points") if $long;
done_testing();
