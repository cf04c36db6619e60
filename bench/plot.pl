#!/usr/bin/perl
# A line chart as SVG, from CSV on stdin (first line: names).
#
#   plot.pl --title T --x COLUMN --y COLUMN [--series COLUMN] [--xlabel L]
#           [--ylabel L] [--mark X=TEXT ...] [--points] [--range FROM:TO]
#
# One line for each value of the series column, in order of appearance; --mark
# draws a vertical line; --points marks the single values; --range cuts x.
use strict;
use warnings;

my (%option, @marks);
while (@ARGV)
{
	my $name = shift @ARGV;
	$name =~ s/^--// or die "plot.pl: unknown argument: $name\n";
	if ($name eq 'points') { $option{points} = 1; next; }
	die "plot.pl: no value for --$name\n" unless @ARGV;
	if ($name eq 'mark') { push @marks, shift @ARGV; next; }
	die "plot.pl: unknown option: --$name\n"
	  unless $name =~ /^(title|x|y|series|xlabel|ylabel|range)$/;
	$option{$name} = shift @ARGV;
}
defined $option{$_} or die "plot.pl: --$_ is needed\n" for qw(x y);

# ---- the data ----

my $head = <STDIN> // die "plot.pl: no data\n";
chomp $head;
my %column;
@column{ split /,/, $head } = 0 .. 100;
for my $o (qw(x y series))
{
	die "plot.pl: no column $option{$o}\n" if defined $option{$o} && !exists $column{ $option{$o} };
}
my ($from, $to) = defined $option{range} ? split(/:/, $option{range}) : ();
my (@order, %points);
my ($xmin, $xmax, $ymax) = (undef, undef, 0);
while (my $line = <STDIN>)
{
	chomp $line;
	my @field = split /,/, $line;
	my ($x, $y) = @field[ @column{ @option{qw(x y)} } ];
	next if !defined $y || $y eq '' || $x eq '';
	next if defined $from && ($x < $from || $x > $to);
	my $series = defined $option{series} ? $field[ $column{ $option{series} } ] : '';
	push @order, $series unless exists $points{$series};
	push @{ $points{$series} }, [ $x, $y ];
	$xmin = $x if !defined $xmin || $x < $xmin;
	$xmax = $x if !defined $xmax || $x > $xmax;
	$ymax = $y if $y > $ymax;
}
die "plot.pl: no data\n" unless defined $xmin;
$xmax = $xmin + 1 if $xmax == $xmin;
$ymax = 1 if $ymax <= 0;

# ---- the picture ----

my ($width, $height, $left, $right, $top, $bottom) = (900, 480, 90, 30, 50, 70);
my @colours = map { "#$_" } qw(1f5fb4 d1495b 2a9134 8f5fbf e08e1b 11808a 555555 b03a9b);
my $legend = @order > 1 ? 22 * int((@order + 3) / 4) : 0;
$height += $legend;
my ($w, $h) = ($width - $left - $right, $height - $top - $bottom - $legend);

sub escape
{
	my $s = shift;
	$s =~ s/&/&amp;/g;
	$s =~ s/</&lt;/g;
	$s =~ s/>/&gt;/g;
	return $s;
}

# 1, 2 or 5 times a power of ten, about n steps
sub step
{
	my ($range, $n) = @_;
	my $raw = $range / $n;
	my $power = 10**int(log($raw) / log(10) - ($raw < 1 ? 1 : 0));
	for my $m (1, 2, 5, 10) { return $m * $power if $m * $power >= $raw; }
	return 10 * $power;
}

sub number
{
	my $v = shift;
	my $s = abs($v) >= 1e6 ? sprintf('%.3gM', $v / 1e6) : abs($v) >= 1e4 ? sprintf('%.4gk', $v / 1e3) : sprintf('%.4g', $v);
	return $s eq '-0' ? '0' : $s;
}

my $ystep = step($ymax, 5);
$ymax = $ystep * POSIX_ceil($ymax / $ystep);
sub POSIX_ceil { my $v = shift; my $i = int($v); return $i < $v ? $i + 1 : $i; }
my $xstep = step($xmax - $xmin, 9);
sub px { return sprintf '%.1f', $left + $w * ($_[0] - $xmin) / ($xmax - $xmin); }
sub py { return sprintf '%.1f', $top + $h * (1 - $_[0] / $ymax); }
sub text
{
	my ($x, $y, $anchor, $s, $more) = @_;
	return sprintf qq{<text x="%s" y="%s" text-anchor="%s"%s>%s</text>\n}, $x, $y, $anchor, $more // '', escape($s);
}

my $svg = qq{<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" viewBox="0 0 $width $height" font-family="sans-serif" font-size="13">\n};
$svg .= qq{<rect width="100%" height="100%" fill="white"/>\n};
$svg .= text($width / 2, 24, 'middle', $option{title} // '', ' font-size="16" font-weight="bold"');
for (my $y = 0; $y <= $ymax * 1.0001; $y += $ystep)
{
	my $p = py($y);
	$svg .= sprintf qq{<line x1="%s" y1="$p" x2="%s" y2="$p" stroke="#ddd"/>\n}, $left, $left + $w;
	$svg .= text($left - 8, $p + 4, 'end', number($y));
}
for (my $x = $xstep * POSIX_ceil($xmin / $xstep); $x <= $xmax + $xstep / 1000; $x += $xstep)
{
	my $p = px($x);
	$svg .= sprintf qq{<line x1="$p" y1="%s" x2="$p" y2="%s" stroke="#888"/>\n}, $top + $h, $top + $h + 5;
	$svg .= text($p, $top + $h + 20, 'middle', number($x));
}
$svg .= sprintf qq{<polyline points="%s,%s %s,%s %s,%s" fill="none" stroke="#444"/>\n}, $left, $top, $left, $top + $h, $left + $w, $top + $h;
$svg .= text($left + $w / 2, $top + $h + 42, 'middle', $option{xlabel} // $option{x});
$svg .= sprintf qq{<text transform="translate(20,%s) rotate(-90)" text-anchor="middle">%s</text>\n}, $top + $h / 2, escape($option{ylabel} // $option{y});
for my $mark (@marks)
{
	my ($x, $label) = $mark =~ /^([^=]*)=(.*)$/ or die "plot.pl: --mark X=TEXT\n";
	next if $x < $xmin || $x > $xmax;
	my $p = px($x);
	$svg .= sprintf qq{<line x1="$p" y1="%s" x2="$p" y2="%s" stroke="#999" stroke-dasharray="4 3"/>\n}, $top, $top + $h;
	$svg .= text($p, $top - 6, 'middle', $label, ' font-size="11"');
}
my $n = 0;
for my $series (@order)
{
	my $colour = $colours[ $n % @colours ];
	my @p = map { px($_->[0]) . ',' . py($_->[1]) } @{ $points{$series} };
	$svg .= qq{<polyline points="@p" fill="none" stroke="$colour" stroke-width="1.6"/>\n};
	if ($option{points})
	{
		for my $p (@p) { my ($x, $y) = split /,/, $p; $svg .= qq{<circle cx="$x" cy="$y" r="3.5" fill="$colour"/>\n}; }
	}
	if (@order > 1)
	{
		my ($x, $y) = ($left + ($n % 4) * $w / 4, $top + $h + 62 + 22 * int($n / 4));
		$svg .= sprintf qq{<line x1="$x" y1="%s" x2="%s" y2="%s" stroke="$colour" stroke-width="3"/>\n}, $y - 4, $x + 22, $y - 4;
		$svg .= text($x + 28, $y, 'start', $series);
	}
	$n++;
}
print $svg, "</svg>\n";
