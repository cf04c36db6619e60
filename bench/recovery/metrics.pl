#!/usr/bin/perl
# What a crash cost, from the lines of bench/recovery/client.c on stdin and the
# events "killed" and "start" (of the new server) among them.
#
#   metrics.pl --t0 MS [--before S] [--window S] [--series FILE --label TEXT]
#
# T0 is MS after "start": when an empty heap cluster would have answered. Time 0
# of everything below is T0. Bins of 100 ms count from there in both directions.
#
#   before        successful transactions/s in the S (default 5) seconds before the kill
#   area          recovery area: transactions lost from T0 until ten bins in a row
#                 reach 95 % of before
#   delta         when the first of these ten begins, s; "never" if they do not come
#   response_us   mean response time from T0 until then; peak_us: of the worst
#                 bin; longest_us: of one transaction
#   response_before_us
#   first_second  throughput in the second after T0 / before; ready_second: in
#                 the second after all clients had connected and prepared
#   ready, answered, rebuilt      s from T0, or -
#   in_window     successful transactions from T0 to --window seconds
#   in_30s        the same in the 30 seconds after the kill
#   after         transactions/s in the last 2 seconds
#   stolen_before, stolen_second   of a second of all processors, what the hypervisor took:
#                 before, and in the second of ready_second; faults_before,
#                 faults_second: page faults of the whole machine
# One line of name=value. --series appends "label,t,transactions_per_s,mean_us,
# longest_us" to FILE.
use strict;
use warnings;

my %option = (before => 5);
while (@ARGV)
{
	my ($name, $value) = splice @ARGV, 0, 2;
	die "metrics.pl: unknown option or no value: $name\n"
	  unless $name =~ s/^--(t0|before|window|series|label)$/$1/ && defined $value;
	$option{$name} = $value;
}
defined $option{t0} or die "metrics.pl: --t0 is needed\n";

my (@raw, @host, %event);
while (<STDIN>)
{
	chomp;
	if (/^bin,(\d+),(\d+),(\d+),(\d+),(\d+)$/) { push @raw, [ $1, $2, $3, $4, $5 ]; }
	elsif (/^host,(\d+),(\d+),(\d+)$/) { push @host, [ $1, $2, $3 ]; }
	elsif (/^event,(\d+),(\w+)$/) { push @{ $event{$2} }, $1; }
	else { die "metrics.pl: cannot understand: $_\n"; }
}
$event{$_} && @{ $event{$_} } == 1 or die "metrics.pl: the event '$_' is needed once\n" for qw(killed start);
my ($killed, $start) = ($event{killed}[0], $event{start}[0]);
my $t0 = $start + 1000 * $option{t0};

# the first event of this name after the start of the new server, s from T0
sub after_start
{
	my @us = sort { $a <=> $b } grep { $_ > $start } @{ $event{ $_[0] } // [] };
	return @us ? ($us[0] - $t0) / 1e6 : undef;
}

# ---- bins of 100 ms around T0; a bin of 10 ms belongs to where it begins ----

my %bin;
my ($low, $high);
for my $r (@raw)
{
	my $x = ($r->[0] - $t0) / 100_000;
	my $i = int($x) - ($x < 0 && $x != int($x) ? 1 : 0);
	my $b = $bin{$i} //= [ 0, 0, 0, 0, 0 ];
	$b->[$_] += $r->[ $_ + 1 ] for 0 .. 2;
	$b->[3] = $r->[4] if $r->[4] > $b->[3];
	$b->[4]++;
}
# those at the ends are not complete
my @index = sort { $a <=> $b } keys %bin;
@index = grep { $bin{$_}[4] >= 10 || $bin{$_ + 1} && $bin{$_ - 1} } @index;
die "metrics.pl: no bins\n" unless @index;
($low, $high) = @index[ 0, -1 ];
$bin{$_} //= [ 0, 0, 0, 0, 0 ] for $low .. $high;
sub tps { return $bin{ $_[0] }[1] * 10; }

# ---- before ----

my ($successes, $transactions, $busy, $us) = (0, 0, 0, 0);
for my $r (@raw)
{
	next if $r->[0] < $killed - 1e6 * $option{before} || $r->[0] + 10_000 > $killed;
	$transactions += $r->[1];
	$successes += $r->[2];
	$busy += $r->[3];
	$us += 10_000;
}
die "metrics.pl: nothing ran before the kill\n" unless $successes;
my $before = $successes / ($us / 1e6);
my $response_before = $busy / $transactions;

# ---- until ten bins in a row are as before ----

my ($area, $recovered, $run) = (0, undef, 0);
for my $i (0 .. $high)
{
	$run = tps($i) >= 0.95 * $before ? $run + 1 : 0;
	if ($run == 10) { $recovered = $i - 9; last; }
}
my $last = defined $recovered ? $recovered - 1 : $high;
my ($n, $sum, $peak, $longest) = (0, 0, 0, 0);
for my $i (0 .. $last)
{
	my $b = $bin{$i};
	my $lost = $before - tps($i);
	$area += $lost / 10 if $lost > 0;
	$n += $b->[0];
	$sum += $b->[2];
	my $mean = $b->[0] ? $b->[2] / $b->[0] : 0;
	$peak = $mean if $mean > $peak;
	$longest = $b->[3] if $b->[3] > $longest;
}

sub transactions_between
{
	my ($from, $to) = @_;
	my $sum = 0;
	for my $r (@raw) { $sum += $r->[2] if $r->[0] >= $t0 + 1e6 * $from && $r->[0] < $t0 + 1e6 * $to; }
	return $sum;
}

# what column i of the machine's counters grew by in each second between two times
sub of_host
{
	my ($i, $from, $to) = @_;
	my @in = grep { $_->[0] >= $from && $_->[0] <= $to } @host;
	return undef if @in < 2;
	return ($in[-1][$i] - $in[0][$i]) / ($in[-1][0] - $in[0][0]) * 1e6;
}

sub host_columns
{
	my ($suffix, $from, $to) = @_;
	my ($ticks, $faults) = (of_host(1, $from, $to), of_host(2, $from, $to));
	return ("stolen_$suffix" => defined $ticks ? sprintf('%.3f', $ticks / 100) : '-',
		"faults_$suffix" => defined $faults ? sprintf('%.0f', $faults) : '-');
}

my %event_s = map { ($_ => after_start($_)) } qw(answered ready rebuilt);
my @result = (
	before => sprintf('%.0f', $before),
	area => sprintf('%.0f', $area),
	delta => defined $recovered ? sprintf('%.1f', $recovered / 10) : 'never',
	response_us => $n ? sprintf('%.0f', $sum / $n) : defined $recovered && $recovered == 0 ? sprintf('%.0f', $response_before) : '-',
	peak_us => sprintf('%.0f', $peak),
	longest_us => $longest,
	response_before_us => sprintf('%.1f', $response_before),
	first_second => sprintf('%.3f', transactions_between(0, 1) / $before),
	ready_second => defined $event_s{ready} ? sprintf('%.3f', transactions_between($event_s{ready}, $event_s{ready} + 1) / $before) : '-',
	(map { ($_ => defined $event_s{$_} ? sprintf('%.3f', $event_s{$_}) : '-') } qw(answered ready rebuilt)),
	in_window => defined $option{window} ? transactions_between(0, $option{window}) : '-',
	in_30s => transactions_between(($killed - $t0) / 1e6 + 0.01, ($killed - $t0) / 1e6 + 30.01),
	after => sprintf('%.0f', transactions_between($high / 10 - 2, $high / 10) / 2),
	host_columns(before => $killed - 1e6 * $option{before}, $killed),
	host_columns(second => map { $t0 + 1e6 * (($event_s{ready} // 0) + $_) } 0, 1));
my @text;
while (my ($name, $value) = splice @result, 0, 2) { push @text, "$name=$value"; }
print "@text\n";

if (defined $option{series})
{
	open my $out, '>>', $option{series} or die "metrics.pl: $option{series}: $!\n";
	for my $i ($low .. $high)
	{
		my $b = $bin{$i};
		printf $out "%s,%.1f,%d,%s,%d\n", $option{label} // '', $i / 10, tps($i),
		  $b->[0] ? sprintf('%.1f', $b->[2] / $b->[0]) : '', $b->[3];
	}
	close $out;
}
