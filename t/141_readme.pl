# README.md tells the truth: its table of settings is what the server has, it names every
# function and view of the extension and no other, and the SQL of its examples runs. The
# stop points are those that src/pmem/README.md names, and t/README.md names all tests.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'for sofort' if ($ENV{SOFORT_AM} // '') eq 'heap';

my $top = $ENV{W} ? "$ENV{W}/src" : '.';
my $readme = slurp_file("$top/README.md");
my $node = SofortNode->new('readme');
$node->init;
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# ---- settings ----

my %unit = (MB => 1, GB => 1024, TB => 1024 * 1024, s => 1, h => 3600);
my %context = (restart => 'postmaster', reload => 'sighup', SET => 'user', 'SET, superusers' => 'superuser');

# A number with or without a unit, in the unit of the setting
sub number
{
	my ($n, $unit) = $_[0] =~ /^([\d.,]+) ?(MB|GB|TB|s|h)?$/ or return $_[0];
	$n =~ tr/,//d;
	return $n * ($unit ? $unit{$unit} : 1);
}

my %described;
my ($table) = $readme =~ /^### Settings\n(.*?)^#/ms or BAIL_OUT('README.md has no table of settings');
foreach my $line (grep { /^\| `sofort\./ } split /\n/, $table)
{
	my (undef, $names, $value, $change) = map { s/^ | $//gr } split /\|/, $line;
	my ($default, $range) = $value =~ /^(?:`(.*?)`|empty: .*?)(?: \((.*)\))?$/ or fail("cannot read \"$value\"");
	my ($min, $max) = ($range // '') =~ /^(?:(.*) )?to (.*)$/;
	foreach my $name ($names =~ /`(.*?)`/g)
	{
		my ($is_default, $is_min, $is_max, $is_context) =
		  split /\|/, sql("SELECT boot_val, min_val, max_val, context FROM pg_settings WHERE name = '$name'"), -1;
		$described{$name} = 1;
		is(number($default // ''), $is_default, "$name: default");
		is($is_context, $context{ $change =~ s/`//gr }, "$name: when it can be changed");
		next unless defined $max;
		is(number($min), $is_min, "$name: minimum") if defined $min;
		# hours are rounded down
		my $unit = $max =~ / h$/ ? 3600 : 1;
		is(int(number($max) / $unit), int($is_max / $unit), "$name: maximum");
	}
}
is(sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'sofort.%'}),
	join(' ', sort keys %described), 'all settings are in the table');

# ---- functions and views ----

# What views and the planner call is not for users; sofort_test brings its own schema.
my $objects = sql(q{SELECT DISTINCT coalesce(p.proname, c.relname)
	FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'sofort'
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'v'
	WHERE coalesce(p.proname, c.relname) !~ '_(info|handler)$'});
my %object = map { $_ => 1 } split /\n/, $objects;
foreach my $name (sort keys %object)
{
	like($readme, qr/`(?:SELECT \* FROM )?(?:sofort\.)?$name[`(]/, "$name is in README.md");
}

# (sofort.control is a file)
my %unknown;
while ($readme =~ /\bsofort\.(\w+)/g)
{
	$unknown{$1} = 1 unless $object{$1} || $described{"sofort.$1"} || $1 eq 'control';
}
is(join(' ', sort keys %unknown), '', 'README.md names nothing else');

# ---- stop points, tests ----

my $sources = join('', map { slurp_file($_) } glob("$top/src/*/*.c"));
my %stop = map { $_ => 1 } $sources =~ /\bSOFORT_STOP\("(.*?)"\)/g;
my ($points) = slurp_file("$top/src/pmem/README.md") =~ /^## Stop points\n(.*)^An armed point/ms or BAIL_OUT('src/pmem/README.md has no stop points');
my %named = map { $_ => 1 } $points =~ /\b([a-z]+(?:-[a-z]+)+)\b/g;
is(join(' ', grep { !$named{$_} } sort keys %stop), '', 'stop points that src/pmem/README.md does not name');
is(join(' ', grep { !$stop{$_} } sort keys %named), '', 'it names no others');
my $tests = slurp_file("$top/t/README.md");
is(join(' ', grep { $tests !~ /\b$_(?:\b|_)/ } map { m{/(\d+)_} } glob("$top/t/*.pl")), '', 'tests that t/README.md does not name');

# ---- examples ----

my @examples = grep { /^    (?:CREATE|SET|SELECT|ALTER|REINDEX) /m } $readme =~ /\n\n((?:    .*\n|\n(?=    ))+)/g;
@examples = grep { !/^    (?:BEGIN|make|git)/m } @examples;
cmp_ok(scalar @examples, '>=', 3, 'there are examples');
foreach my $example (@examples)
{
	(my $commands = $example) =~ s/^    //mg;
	$commands =~ s/--.*$//mg;
	$commands =~ s/CREATE EXTENSION sofort;//;
	# REINDEX CONCURRENTLY wants to be alone
	foreach my $command (grep { /\S/ } split /;/, $commands)
	{
		my ($rc, $out, $err) = $node->psql('postgres', $command);
		is("$rc $err", '0 ', 'example: ' . (split /\n/, $command =~ s/^\s+//r)[0]);
	}
}
$node->stop;
done_testing();
