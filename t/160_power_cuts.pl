# What a power cut leaves: a run is recorded with everything that was flushed and
# drained; at every drain (here at some, in turn with all, half or none of the
# lines on their way, some torn) a server is started from an image of the medium
# and the data directory of that moment. Every acknowledged transaction is there,
# every other one absent or, if its commit was in flight, whole; all structures are
# sound; every table can be written, vacuumed and dropped; no space is lost.
# Recorded are scripts, several clients at once, and servers that recover from a
# power cut or from a crash of all their processes.
#
# And the test tests itself: it notices when one flush in 30 is left out, and
# when any single flush or drain of the sources is (here: some of them).
# medium/uncaught lists those of which it cannot notice it, with reasons.
#
# SOFORT_WORKLOADS=tables,clients: only these (with --long).
use strict;
use warnings;

use FindBin;
use List::Util;
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

my %wanted = map { $_ => 1 } split /,/, $ENV{SOFORT_WORKLOADS} || '';

sub is_wanted
{
	my ($workload) = @_;
	return !%wanted || $wanted{$workload};
}

my %uncaught;
foreach (split /\n/, slurp_file("$FindBin::RealBin/medium/uncaught"))
{
	$uncaught{$1} = 1 if /^(\S+:\S+)/;
}

my $total = 0;
my %outcome;		# of calls that were left out
my %made;		# how often calls of the sources were made, in runs with which calls are left out

# Cut at many drains of a run; nothing may be missing.
sub cut
{
	my ($run, %option) = @_;
	my ($images, $bad, $text) = $run->enumerate(rotate => 1, offset => $seed % 1000, seed => $seed, %option);
	$total += $images;
	is($bad, 0, "$run->{name}: $images images of $run->{drains} drains") or diag(substr($text, 0, 10_000));
	cmp_ok($images, '>', 0, "$run->{name}: there is something to look at");
	return $images;
}

# Leave out single calls: those named, or all that nothing has noticed yet. What medium/uncaught
# lists is tried once, at points of a workload, and not in each of the many recoveries.
sub leave_out
{
	my ($run, $tries, @only) = @_;
	if (!@only)
	{
		my %calls = $run->calls_made;
		$made{$_} += $calls{$_} foreach keys %calls;
		foreach my $call (grep { $calls{$_} } sort keys %calls)
		{
			next if $uncaught{$call} && ($run->is_recovery || $outcome{$call});
			push @only, $call;
		}
	}
	my %found = $run->calls(tries => $tries, seed => 1,
		only => [ grep { ($outcome{$_} // '') ne 'caught' } @only ]);
	$outcome{$_} = $found{$_}[0] foreach keys %found;
	return;
}

# Drains at which all processes are killed, of some workloads: something is stored there
# and not durable. Each kind of flush is interrupted in one workload, which another seed
# chooses anew (here: two kinds).
sub choose_kills
{
	my (@runs) = @_;
	my (%places, %chosen);
	foreach my $run (@runs)
	{
		my %kills = $run->kills(seed => $seed);
		cmp_ok(scalar(keys %kills), '>', 20, "$run->{name}: " . scalar(keys %kills) . ' kinds of flushes can be interrupted');
		push @{ $places{$_} }, [ $run->{name}, $kills{$_} ] foreach keys %kills;
	}
	my @kinds = sort keys %places;
	@kinds = map { $kinds[ ($seed + $_ * 7) % @kinds ] } (1 .. 2) if @kinds && !$long;
	foreach my $kind (@kinds)
	{
		my ($choice) = List::Util::shuffle(@{ $places{$kind} });
		$chosen{ $choice->[0] }{ $choice->[1] } = 1;
	}
	foreach my $run (grep { $_->{name} eq 'corners' } @runs)
	{
		# a block is being given back: its link is 0, and not yet on the medium
		my %freeing = $run->kills(first => 1, from => 'vacuum 1', to => 'vacuum 2');
		$chosen{corners}{ $freeing{'pmem/alloc.c:carry_out:flush:1'} } = 1;
	}
	diag(scalar(@kinds) . ' kinds of flushes are interrupted, at ' . List::Util::sum0(map { scalar keys %$_ } values %chosen) . ' moments');
	return %chosen;
}

# What recovers from such a kill is cut again: at each drain until it answers, and at
# some while the tables are written and vacuumed (most of 700 drains).
sub kill_and_cut
{
	my ($run, @cuts) = @_;
	foreach my $cut (@cuts)
	{
		my $again = $run->again(cut => $cut, seed => $seed, killed => 1, use => 1);
		ok(defined $again, "$run->{name}: recovers from a kill at $cut") or next;
		if ($long)
		{
			cut($again, every => 1, to => 'recovery');
			cut($again, every => 12, from => 'used');
			leave_out($again, 40);
		}
		else { cut($again, every => 12); }
		$again->remove;
	}
	return;
}

# What recovers from some images is cut again: after a power cut, and after a
# crash of all processes.
sub cut_recovery
{
	my ($run, $n) = @_;
	foreach my $i (1 .. $n)
	{
		my $again = $run->again(
			cut => int($run->{drains} / ($n + 1) * $i) + $seed % 40,
			seed => $seed,
			$i % 2 ? (killed => 1) : (survival => ($i / 2) % 4));
		ok(defined $again, "$run->{name}: the image to recover from is good") or next;
		cut($again, every => $long ? 1 : 3);
		leave_out($again, 40) if $long;
		$again->remove;
	}
	return;
}

# What is asked of an image tells when any value of a row is another.
{
	my $node = SofortNode->new('contents');
	$node->init;
	$node->start;
	$node->safe_psql('postgres', slurp_file("$FindBin::RealBin/medium/checks.sql"));
	$node->safe_psql('postgres', 'CREATE TABLE named (id int, t text, row int) USING sofort; INSERT INTO named VALUES (1, 1, 1), (2, 2, 2)');
	my %seen = ($node->safe_psql('postgres', 'SELECT chk.contents()') => 1);
	foreach my $column (qw(id t row))
	{
		$node->safe_psql('postgres', "UPDATE named SET $column = '7' WHERE $column = '2'");
		ok(!$seen{ $node->safe_psql('postgres', 'SELECT chk.contents()') }++, "other values of column $column are noticed");
	}
	$node->teardown_node;
}

my @scripts;
foreach my $script (sort glob("$FindBin::RealBin/medium/workloads/*.sql"))
{
	my ($name) = $script =~ m{([^/]+)\.sql$};
	next if !$long && $name =~ /^(?:flushes|lives|databases)$/;	# see 161; images of databases are slow
	next if !is_wanted($name);
	my $run = Medium->workload($name);
	cmp_ok($run->{drains}, '>', $name eq 'disk' ? 200 : 500, "$name: $run->{steps} steps with $run->{drains} drains are recorded");

	cut($run, every => $long ? 1 : int($run->{drains} / 120) || 1);

	# one flush in 30 left out
	my (undef, $bad) = $run->enumerate(every => 5, offset => $seed % 1000, survival => 0, drop => 30, seed => $seed);
	cmp_ok($bad, '>', 0, "$name: it is noticed when flushes are lost");
	push @scripts, $run;
}

# Several clients, with both ways of updating
my @clients;
if (is_wanted('clients'))
{
	my $images = 0;
	foreach my $slow ($long ? (0, 1) : $seed % 2)
	{
		my $run = Medium->record($slow ? 'clients_slow' : 'clients', clients => 4, transactions => $long ? 200 : 60, seed => $seed, slow => $slow);
		cmp_ok($run->{drains}, '>', 500, "$run->{name}: $run->{steps} transactions with $run->{drains} drains are recorded");
		$images += cut($run, every => int($run->{drains} / ($long ? 700 : 90)) || 1);
		push @clients, $run;
	}
	cmp_ok($images, '>=', 1000, "clients: $images random cuts") if $long;
}

# Most calls are noticed at a few points of some workload, those of a start in some recovery;
# what is left needs many points.
if ($long)
{
	foreach my $tries (2, 8)
	{
		leave_out($_, $tries) foreach @scripts, @clients;
	}
}
else
{
	leave_out($_, 20, 'txn/visibility.h:txn_stamp_word:flush:1', 'pmem/alloc.c:free_segment:drain:1',
		'pmem/alloc.c:carry_out:flush:1')
	  foreach grep { $_->{name} eq 'tables' } @scripts;
}
my %kills = choose_kills(grep { $long || $_->{name} eq 'corners' } @scripts);
foreach my $run (@scripts)
{
	cut_recovery($run, $long ? 8 : 2);
	kill_and_cut($run, sort { $a <=> $b } keys %{ $kills{ $run->{name} } });
}
if ($long)
{
	leave_out($_, 40) foreach @scripts, @clients;
}
$_->remove foreach @scripts, @clients;

foreach my $call (sort keys %outcome)
{
	next if $uncaught{$call} && $outcome{$call} ne 'caught';
	is($outcome{$call}, 'caught', "it is noticed when $call is left out");
	diag("$call is in medium/uncaught, and was noticed") if $uncaught{$call};
}
if ($long && !%wanted)
{
	my @never = grep { !$made{$_} && !$uncaught{$_} && !/^sofort_test/ } sort keys %made;
	is(join(' ', @never), '', 'each call is made by a recorded run, or medium/uncaught says where its loss is noticed');
}
cmp_ok($total, '>=', 3000, "$total crash points") if $long && !%wanted;
done_testing();
