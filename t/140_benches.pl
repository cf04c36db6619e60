# Every bench runs, at a tiny scale, and writes what it promises; the metrics of a
# crash are computed right. Numbers of speed are not looked at.
use strict;
use warnings;

use File::Path qw(make_path);
use Test::More;

plan skip_all => 'for sofort' if ($ENV{SOFORT_AM} // '') eq 'heap';

my $src = $ENV{W} ? "$ENV{W}/src" : '.';
my $long = $ENV{SOFORT_LONG};

# ---- metrics of a given series ----

# 10 s at 10,000/s; killed; the new server starts 1 s later; from 2.1 s after the
# kill half of the throughput, from 5 s on all of it
sub synthetic
{
	my $zero = 1_000_000_000_000_000;
	my @lines;
	for my $i (0 .. 2999)
	{
		my $n = $i < 1000 ? 100 : $i < 1210 ? 0 : $i < 1500 ? 50 : 100;
		push @lines, sprintf('bin,%d,%d,%d,%d,%d', $zero + $i * 10_000, $n + ($n ? 1 : 0), $n, $n * 20, 30 + $i % 7);
	}
	push @lines, map { sprintf 'event,%d,%s', $zero + 1e6 * $_->[0], $_->[1] }
	  ([ 0.1, 'answered' ], [ 10, 'killed' ], [ 11, 'start' ], [ 11.15, 'answered' ], [ 12.1, 'ready' ], [ 14.5, 'rebuilt' ]);
	return join "\n", @lines, '';
}

sub run_with_input
{
	my ($input, @command) = @_;
	my $file = "$ENV{TESTDIR}/input";
	open my $in, '>', $file or die "$file: $!";
	print $in $input;
	close $in;
	return scalar `@command <$file 2>&1`;
}

my $series = "$ENV{TESTDIR}/series.csv";
unlink $series;
my $line = run_with_input(synthetic(), "perl $src/bench/recovery/metrics.pl --t0 100 --window 3 --series $series --label x");
my %is = $line =~ /(\w+)=(\S+)/g;
is($is{before}, 10000, 'throughput before the crash');
is($is{area}, 24500, 'area: 1 s without anything and 2.9 s with half');
is($is{delta}, '3.9', 'time until ten bins are as before');
is($is{first_second}, '0.000', 'first second after T0');
is($is{ready_second}, '0.500', 'first second after the clients were back');
is($is{answered}, '0.050', 'first answer, from T0, not the one before the crash');
is($is{rebuilt}, '3.400', 'end of rebuilding');
is($is{in_window}, 10000, 'transactions in the window');
is($is{in_30s}, 164500, 'transactions in the 30 s after the kill');
like(run_with_input("event,1,started\n", "perl $src/bench/recovery/metrics.pl --t0 100"), qr/the event 'killed' is needed/, 'no crash, no metrics');
my $svg = run_with_input(do { local $/; open my $f, '<', $series or die; 'run,t,transactions_per_s,mean_us,longest_us' . "\n" . <$f> },
	"perl $src/bench/plot.pl --title 'a \\& b' --x t --y transactions_per_s --series run --mark 0=T0");
like($svg, qr{^<svg .*<polyline points="[-0-9., ]+" fill="none" stroke="#1f5fb4".*</svg>\s*$}s, 'a picture');

# ---- the commands ----

my $work = "$ENV{TESTDIR}/bench";
my ($version) = ($ENV{PG_REGRESS} // '') =~ m{/postgresql/(\d+)/};

# Runs a bench in a workspace of its own inside this one, with the build under test.
sub bench
{
	my ($name, @arguments) = @_;
	system("rm -rf $work");
	make_path("$work/log", "$work/pool");
	symlink($src, "$work/src") && symlink("$ENV{W}/pg", "$work/pg") or die "symlink: $!";
	symlink($ENV{SOFORT_WITNESS}, "$work/witness") or die "symlink: $!";
	my $output = do
	{
		local $ENV{W} = $work;
		local $ENV{SOFORT_INSIDE} = 1;
		local $ENV{SOFORT_BUILT} = 1;
		local $ENV{SOFORT_PGVERSION} = $version // 15;
		local $ENV{SOFORT_POOL_DIR} = "$ENV{SOFORT_POOL_DIR}/bench";
		local $ENV{SOFORT_POOL_MEDIUM} = 'test';
		local $ENV{SOFORT_CALLER_DIR} = $work;
		make_path($ENV{SOFORT_POOL_DIR});
		my $text = `bash $src/bench/$name/run @arguments 2>&1 </dev/null`;
		is($?, 0, "bench/$name/run @arguments") or diag($text);
		system("rm -rf $ENV{SOFORT_POOL_DIR}");
		$text;
	};
	if (-s "$work/segments") { system("cat $work/segments >>$ENV{SOFORT_SEGMENTS}"); }
	return $output;
}

# Rows of a CSV file as hashes
sub rows
{
	my ($file) = @_;
	open my $in, '<', "$work/out/$file" or return ();
	my @lines = <$in>;
	chomp @lines;
	my @name = split /,/, shift @lines // '';
	return map { my %row; @row{@name} = split /,/; \%row } @lines;
}

sub picture { return -s "$work/out/$_[0]"; }

bench('engine', '--subscribers 2000 --latencies "90 5000" --seconds 1 --rounds 1 --workers 2');
my %tps;
$tps{"$_->{placement} $_->{latency_ns}"} = $_->{transactions_per_s} for rows('engine-tatp.csv');
ok(($tps{'dram 90'} // 0) > 100 && ($tps{'heap 90'} // 0) > 100, 'transactions inside the server') or diag(explain(\%tps));
# a delay of 4.91 us for each of at least two misses bounds the throughput of two workers
ok(($tps{'dram 5000'} // 0) > 0 && $tps{'dram 5000'} < 2 * 1e9 / 4910 / 1.5, 'latency slows it down') or diag(explain(\%tps));
ok(picture('engine-tatp.svg'), 'a picture');

bench('micro', '--latencies "90 700" --megabytes 4 --widths "1 13 27 32" --keys 5000 --operations 5000 --rebuild-rows 5000 --repeats 1');
is(scalar(rows('scan-width.csv')), 12, 'scans');
my @tree = rows('tree.csv');
ok(@tree >= 2 && !grep({ $_->{ns} <= 0 } @tree), 'lookups and inserts') or diag(explain(\@tree));
ok(scalar(rows('rebuild.csv')) >= 2 && picture('scan-latency.svg') && picture('tree-lookups.svg'), 'rebuilding, pictures');

SKIP:
{
	skip('the file system is in memory', 6) if `stat -f -c %T $ENV{TESTDIR}` =~ /^(tmpfs|ramfs)/;
	like(bench('cold', '--rows 20000 --rounds 2 scan texts entries vacuum build ready'), qr/^ready +\d+ +\d+ +\d+\.\d\d$/m, 'what is not in memory');
	my @cold = rows('cold.csv');
	ok(@cold == 24 && !grep({ $_->{ms} <= 0 } @cold), 'of each measure, both sides') or diag(explain(\@cold));
	like(bench('pgbench', '--scale 1 --clients "1 2" --seconds 1 --rounds 1 tpcb insert turnover'), qr/^insert +2 +[\d.]+ +[\d.]+ +\d+\.\d\d$/m, 'pgbench on a disk');
	my @pgbench = rows('pgbench.csv');
	ok(@pgbench == 12 && !grep({ $_->{tps} <= 0 } @pgbench), 'of each measure and number of clients, both sides') or diag(explain(\@pgbench));
}

my $orders = bench('continuation', '--clients 2 --orders 2 --lines 4 --pace 60 --kills 2 --rows 3000');
like($orders, qr/^\d+ interruptions, 0 transactions rolled back, longest standstill \d+ ms$/m, 'none of the long transactions is rolled back');
like($orders, qr/^all orders, lines and stock are right$/m, 'and all is there');
like(bench('continuation', '--cost --rounds 2 --statements 50 --rows 5000'), qr/^select +\d+\.\d +\d+\.\d +\d+\.\d\d +(met|missed)/m, 'what a statement of one costs');
my @cost = rows('continuation-cost.csv');
ok(@cost == 14 && !grep({ $_->{ordinary_us} <= 0 || $_->{kept_us} <= 0 } @cost), 'each kind of statement, in both kinds of transactions') or diag(explain(\@cost));

# a run under SIGKILL; everything that this server supports
sub plausible
{
	my ($output, @labels) = @_;
	my %run = map { ("$_->{experiment} $_->{run}" => $_) } rows('recovery.csv');
	for my $label (@labels)
	{
		my $run = $run{$label};
		my ($mode) = $label =~ /(\w+)$/;
		if (!$run && $output =~ /REFUSED .*\Q$mode\E/) { pass("$label: refused, and said so"); next; }
		ok($run && $run->{before} > 10 && $run->{after} > 10 && $run->{answered} ne '-', "$label: runs before and after the crash")
		  or diag($output);
	}
	return;
}
my $small = '--subscribers 2000 --clients 2 --before 3 --after ' . ($long ? 8 : 4);
plausible(bench('recovery', "$small --load tatp strategies"), map { "strategies-tatp $_" } qw(synchronous instant adaptive));
ok(scalar(rows('strategies-tatp.csv')) > 50 && picture('strategies-tatp.svg'), 'series and picture');

if ($long)
{
	plausible(bench('recovery', "$small --engine fig8"), 'fig8 a: 0 % synchronous');
	plausible(bench('recovery', "$small --warehouses 1 --divisor 20 --load tpcc strategies change resources"),
		'strategies-tpcc synchronous', 'change-tpcc synchronous', 'resources-tpcc synchronous');
	plausible(bench('recovery', "$small --tables 2 --columns 3 --rows 2000 --rounds 2 worst"), 'worst synchronous');
	my @worst = rows('recovery.csv');
	is_deeply([ map { $_->{run} } @worst ], [ 'synchronous', 'adaptive', 'adaptive (2)', 'synchronous (2)' ], 'they take turns');
	ok(!grep({ ($_->{in_window} // '') !~ /^\d+$/ } @worst), 'each with the transactions in the window of its round') or diag(explain(\@worst));
	bench('recovery', "$small --small 500 --starts 2 --restart-rows 8000 ready restart");
	is(scalar(rows('ready.csv')), 8, 'starts');
	is(scalar(rows('restart.csv')), 24, 'restarts');
	plausible(bench('recovery', "$small --heap 2000 --checkpoint 4 heap"), 'against-heap sofort', 'against-heap heap');
	bench('recovery', "$small fig9");
	ok(scalar(rows('fig9.csv')) >= 1, 'figure 9');
}

done_testing();
