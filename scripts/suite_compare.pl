#!/usr/bin/perl
# Compare the results of a suite with what PostgreSQL and the list expect.
#
#   suite_compare.pl SUITE OUT ACCEPTED ACCESS_METHOD
#
# SUITE/expected has PostgreSQL's expected files, OUT/results what came out,
# OUT/tests the names. Written to standard output: "ok NAME" or "bad NAME
# REASON"; to OUT/diffs/NAME.diff every difference in the normalised form in
# which ACCEPTED/NAME.diff accepts it; to OUT/compare a summary as last line.
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);

my ($suite, $out, $accepted_dir, $am) = @ARGV;

sub slurp
{
	my ($file) = @_;
	open(my $f, '<', $file) or return undef;
	local $/;
	return scalar <$f>;
}

# Lines without what legitimately differs: names of access methods and the
# widths that follow from them, and object ids of extensions.
sub normalise
{
	my ($text) = @_;
	$text =~ s/\bsofort_index\b/btree/g;
	$text =~ s/\bsofort\b/heap/g;
	$text =~ s/\b1[6-9]\d{3}\b/OID/g;
	my @lines = split /\n/, $text;
	for (@lines)
	{
		s/[ \t]+/ /g;
		s/^ //;
		s/ $//;
		s/--+/--/g;
		s/\+$// if /\+$/;
	}
	return @lines;
}

# The shortest difference from one of the expected files; undef: no result
sub difference
{
	my ($name) = @_;
	my $result = slurp("$out/results/$name.out");
	return undef unless defined $result;
	my $best;
	for my $file ("$suite/expected/$name.out", glob("$suite/expected/${name}_[0-9].out"))
	{
		my $text = slurp($file);
		next unless defined $text;
		my ($a, $b) = ("$out/expected.tmp", "$out/result.tmp");
		for ([ $a, $text ], [ $b, $result ])
		{
			open(my $f, '>', $_->[0]) or die;
			print $f map { "$_\n" } normalise($_->[1]);
		}
		my @diff = `diff -U0 $a $b`;
		# Positions move with every change before them.
		@diff = map { /^@@/ ? "@@\n" : $_ } grep { !/^(---|\+\+\+) \// } @diff;
		my $diff = join '', @diff;
		$best = $diff if !defined $best || length $diff < length $best;
	}
	unlink "$out/expected.tmp", "$out/result.tmp";
	return $best;
}

# Long differences are listed by their digest alone; those that are not the same in
# every run by patterns, of which each line must match one.
sub is_accepted
{
	my ($name, $diff) = @_;
	return 1 if -e "$accepted_dir/$name.any";
	my $lines = slurp("$accepted_dir/$name.lines");
	if (defined $lines)
	{
		my $pattern = join '|', map { "(?:$_)" } split /\n/, $lines;
		return !grep { !/^\@\@$/ && !/^(?:$pattern)$/ } split /\n/, $diff;
	}
	my $listed = slurp("$accepted_dir/$name.diff");
	return $listed eq $diff if defined $listed;
	my $digest = slurp("$accepted_dir/$name.sha256") // return 0;
	return $digest eq sha256_hex($diff) . "\n";
}

my %reason;
if ($am ne 'heap' && open(my $f, '<', "$accepted_dir/accepted"))
{
	while (<$f>)
	{
		next if /^\s*(#|$)/;
		/^(\S+)\s+(\S.*)/ or die "$accepted_dir/accepted: line $. has no reason\n";
		$reason{$1} = $2;
	}
}

mkdir "$out/diffs";
my ($same, $listed, $bad) = (0, 0, 0);
open(my $tests, '<', "$out/tests") or die;
while (my $name = <$tests>)
{
	chomp $name;
	my $diff = difference($name);
	if (!defined $diff)
	{
		print "bad $name no result\n";
		$bad++;
		next;
	}
	if ($diff eq '')
	{
		if (exists $reason{$name})
		{
			print "bad $name listed as different, but it is the same now\n";
			$bad++;
		}
		else
		{
			print "ok $name\n";
			$same++;
		}
		next;
	}
	open(my $f, '>', "$out/diffs/$name.diff") or die;
	print $f $diff;
	close $f;
	my $lines = () = $diff =~ /^[-+]/mg;
	if (!exists $reason{$name})
	{
		print "bad $name differs in $lines lines, not listed\n";
		$bad++;
	}
	elsif (!is_accepted($name, $diff))
	{
		print "bad $name differs in another way than the list accepts\n";
		$bad++;
	}
	else
	{
		print "ok $name\n";
		$listed++;
	}
}
open(my $summary, '>', "$out/compare") or die;
print $summary "$same as on heap, $listed different as listed, $bad bad\n";
