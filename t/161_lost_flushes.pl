# Flushes and drains of what recovers from a crash. Nothing but a crash at the right
# moment, and the right statements after it, shows that they are needed: so each of
# these recoveries is recorded by itself, and a call is left out of it (see t/160_power_cuts.pl,
# which does the same with all that the workloads do).
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

# workload, first step, flush whose lines are on their way, what is lost then (power: these
# lines; killed: nothing yet, the power fails later), statements that follow, calls that must be noticed
my @recoveries = (
	[ 'flushes', 'taken: words', 'pmem/segment.c:prepare_words:flush:1', 'killed', 'granules',
		'pmem/segment.c:segment_startup:flush:1' ],
	[ 'flushes', 'extended', 'pmem/vector.c:pm_vector_publish:flush:1', 'killed', 'table',
		'pmem/pool.c:start_life:flush:1' ],
	[ 'flushes', 'entered', 'pmem/pool.c:pool_raise_high_water:flush:1', 'killed', '',
		'pmem/pool.c:start_life:drain:1' ],
	[ 'flushes', 'slot: goes', 'pmem/alloc.c:pm_publish_batch:flush:1', 'killed', 'values',
		'pmem/alloc.c:recover_intent:flush:1' ],
	[ 'flushes', 'dropped: and', 'pmem/slab.c:slab_free_owner:flush:1', 'killed', '',
		'pmem/slab.c:slab_free_owner:flush:2' ],
	[ 'flushes', 'entered: a new', 'pmem/vector.c:pm_vector_publish:flush:1', 'killed', 'attached',
		'store/dictionary.c:flush_found:flush:1', 'store/dictionary.c:flush_found:drain:1' ],
	[ 'flushes', 'undone rows', 'store/ops.c:undo_begin:flush:1', 'killed', 'rows',
		'store/ops.c:undo_rows:flush:1' ],
	[ 'flushes', 'straddle: and', 'txn/tcb.c:txn_publish_state:flush:1', 'killed', '',
		'txn/recover.c:persist_tcbs:flush:1', 'txn/recover.c:persist_tcbs:drain:1' ],
);

my %run;
my $n = 0;
foreach my $r (@recoveries)
{
	my ($workload, $step, $flush, $how, $after, @calls) = @$r;

	next if !$long && $n++ % 4 != $seed % 4;
	$run{$workload} ||= Medium->record($workload, script => "$FindBin::RealBin/medium/workloads/$workload.sql");
	my $run = $run{$workload};
	my %kills = $run->kills(from => $step, first => 1);
	ok(defined $kills{$flush}, "$step: $flush is interrupted") or next;
	my $again = $run->again(
		$how eq 'killed' ? (cut => $kills{$flush}, killed => 1) : (cut => $kills{$flush} - 1, survival => 0), seed => 1,
		$after ne '' ? (script => "$FindBin::RealBin/medium/after/$after.sql") : (use => 1));
	ok(defined $again, "$step: the server recovers when $flush was interrupted") or next;
	my ($images, $bad, $text) = $again->enumerate(rotate => 1, every => int($again->{drains} / 12) || 1, seed => $seed);
	is($bad, 0, "$step: $images images of what follows") or diag(substr($text, 0, 3000));
	my %outcome = $again->calls(only => \@calls, tries => $long ? 40 : 20, seed => 1);
	is($outcome{$_}[0], 'caught', "it is noticed when $_ is left out") foreach @calls;
	$again->remove;
}
$_->remove foreach values %run;
done_testing();
