#!/usr/bin/perl
# What the race detector has found, for people.
#
#   report.pl [-v] REPORTS LIBRARY SOURCES SUPPRESSIONS
#
# Prints each pair of places that race and is not suppressed, once; the last line counts. -v: also
# those that are, with the line of the rule. Exit code: 0 there is none, 1 there are some, 2
# something is wrong with the arguments.
use strict;
use warnings;

my $verbose = @ARGV > 0 && $ARGV[0] eq '-v' && shift @ARGV;
@ARGV == 4 or die "usage: report.pl [-v] REPORTS LIBRARY SOURCES SUPPRESSIONS\n";
my ($reports, $library, $sources, $suppressions) = @ARGV;
my %kind = (
	1 => 'plain read', 2 => 'volatile read', 4 => 'atomic read',
	8 => 'plain write', 16 => 'volatile write', 32 => 'atomic write');

$SIG{__DIE__} = sub { print STDERR @_; exit 2 };

# The lines of a file of the project
my %lines;
sub source_line
{
	my ($file, $line) = @_;
	if (!$lines{$file})
	{
		my @all = ('');
		if (open(my $in, '<', "$sources/$file"))
		{
			push @all, <$in>;
		}
		$lines{$file} = \@all;
	}
	my $text = $lines{$file}[$line] // '';
	$text =~ s/^\s+|\s+$//g;
	return $text;
}

# "PLACE[:TEXT] PLACE[:TEXT] REASON": a function, a file (with a slash; * stands for any letters), or
# * for any place; TEXT occurs in the line of the access
sub read_suppressions
{
	my @rules;
	open(my $in, '<', $suppressions) or die "$suppressions: $!\n";
	while (<$in>)
	{
		next if /^\s*(#|$)/;
		/^(\S+)\s+(\S+)\s+(\S.*)$/ or die "$suppressions:$.: two places and a reason are expected\n";
		push @rules, { places => [ $1, $2 ], line => $., used => 0 };
	}
	return @rules;
}

sub matches
{
	my ($pattern, $place) = @_;
	my ($where, $text) = split /:/, $pattern, 2;
	(my $files = quotemeta $where) =~ s/\\\*/[^\/]*/g;
	return 0 unless $where eq '*' || $where eq $place->{function} || $where =~ m{/} && $place->{file} =~ /^$files$/;
	return !defined $text || index($place->{text}, $text) >= 0;
}

sub rule_of
{
	my ($a, $b, @rules) = @_;
	foreach my $rule (@rules)
	{
		my ($one, $other) = @{ $rule->{places} };
		return $rule if matches($one, $a) && matches($other, $b) || matches($one, $b) && matches($other, $a);
	}
	return undef;
}

# Addresses to places: of functions that were inlined the innermost one of a source of ours (no
# header's), and who calls it. (An address is where the call of the detector returns to.)
sub places_of
{
	my @addresses = @_;
	my %place;
	while (my @some = splice(@addresses, 0, 200))
	{
		my $command = join(' ', "addr2line -a -i -f -e '$library'", map { sprintf '0x%x', $_ - 1 } @some);
		my @out = split /\n/, `$command`;
		die "addr2line has failed\n" if $? != 0;
		my $i = -1;
		while (@out)
		{
			my $line = shift @out;
			if ($line =~ /^0x[0-9a-f]+$/)
			{
				$i++;
				next;
			}
			my $at = shift @out;
			$at =~ s/ \(discriminator \d+\)//;
			my ($file, $number) = $at =~ /^(.*):(\d+|\?)$/;
			push @{ $place{ $some[$i] }{callers} }, $line if $place{ $some[$i] }{function};
			next if $place{ $some[$i] }{function} || index($file, "$sources/") != 0 || $file !~ /\.c$/;
			$file = substr($file, length($sources) + 1);
			$place{ $some[$i] } = {
				function => $line, file => $file, line => $number, text => source_line($file, $number), callers => [] };
		}
	}
	$place{$_}{function} or $place{$_} = { function => '?', file => sprintf('0x%x', $_), line => 0, text => '', callers => [] }
	  foreach @_;
	return %place;
}

my (@found, %address);
my $watching = 0;
if (open(my $in, '<', $reports))
{
	while (<$in>)
	{
		if (/^watching$/)
		{
			$watching++;
			next;
		}
		/^race (\d+) (0x[0-9a-f]+) (\d+) (\d+) (0x[0-9a-f]+) (\d+) (0x[0-9a-f]+) (.*)$/
		  or die "$reports:$.: no report: $_";
		push @found, { kinds => [ $1, $4 ], addresses => [ hex $2, hex $5 ], processes => [ $3, $6 ], offset => $7, area => $8 };
		@address{ hex $2, hex $5 } = ();
	}
}

# (a server that was started without the detector would have none, too)
$watching > 0 or die "$reports: no server has watched anything\n";

my @rules = read_suppressions();
my %place = places_of(sort { $a <=> $b } keys %address);
my (%seen, $suppressed);
my $races = $suppressed = 0;
foreach my $race (@found)
{
	my @place = map { $place{$_} } @{ $race->{addresses} };
	my $key = join(' ', sort map { "$race->{kinds}[$_] $place[$_]{file}:$place[$_]{line}" } 0, 1);
	next if $seen{$key}++;
	if (my $rule = rule_of(@place, @rules))
	{
		$rule->{used}++;
		$suppressed++;
		print "suppressed (line $rule->{line}): ",
		  join(', ', map { "$kind{ $race->{kinds}[$_] } $place[$_]{file}:$place[$_]{line} $place[$_]{function}()" } 0, 1), "\n"
		  if $verbose;
		next;
	}
	$races++;
	print "race $races, in $race->{area} at $race->{offset}:\n";
	foreach my $i (0, 1)
	{
		my $p = $place[$i];
		printf "  %s %s:%d %s()%s, process %d\n      %s\n", $kind{ $race->{kinds}[$i] }, $p->{file}, $p->{line}, $p->{function},
		  (@{ $p->{callers} } && $p->{callers}[-1] ne $p->{function} ? " in $p->{callers}[-1]()" : ''), $race->{processes}[$i], $p->{text};
	}
}
print "$races races, $suppressed suppressed by ", scalar(grep { $_->{used} } @rules), ' of ', scalar(@rules), " rules\n";
exit($races > 0 ? 1 : 0);
