# CREATE DATABASE ... TEMPLATE looks at what describes the rows before it copies them: it does not write
# behind the copy, into other tables, because a block claims more rows than it has, and it does not give
# damaged metadata new checksums.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off' ]);
$node->expect_damage;
$node->start;

sub sql { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# ---- tables, with holes between them for the copies ----

my $rows = 'USING sofort AS SELECT i AS id, i * 7 AS a, i * 13 AS b, i * 17 AS c, i * 19 AS d FROM generate_series(1, 20000) i';
sql('CREATE DATABASE source');
sql("CREATE EXTENSION sofort; CREATE EXTENSION sofort_test; CREATE TABLE t $rows", 'source');
foreach my $i (1 .. 8)
{
	sql("CREATE TABLE hole$i $rows; CREATE TABLE kept$i $rows");
}
sql("DROP TABLE hole$_") foreach 1 .. 8;
my $content = join(' UNION ALL ', map { "SELECT $_ AS n, md5(string_agg(k::text, '' ORDER BY id)) FROM kept$_ k" } 1 .. 8) . ' ORDER BY n';
my $expected = sql($content);
is($node->verify_problems, '', 'nothing is wrong before');

my %places;
foreach my $line (split /\n/, sql(q{SELECT class, start, bytes FROM sofort_test.places('t')}, 'source'))
{
	my ($class, $start, $bytes) = split /\|/, $line;
	push @{ $places{"$class $bytes"} }, $start;
	push @{ $places{$class} }, $start;
}
# headers of blocks, but not the first of a run, which comes behind the run's own
my @runs = grep { $_ !~ /^block (?:48|8)$/ && /^block / } keys %places;
is(scalar(@runs), 1, 'there are runs');
my %is_first = map { $_ + 64 => 1 } @{ $places{ $runs[0] } };
my @blocks = grep { !$is_first{$_} } @{ $places{'block 48'} }[ 9 .. $#{ $places{'block 48'} } ];
cmp_ok(scalar(@blocks), '>', 10, 'of several blocks');

sub flip
{
	my ($offset, $bit) = @_;
	$node->stop;
	$node->flip_pool_bit($offset, $bit);
	$node->start;
	return;
}

foreach my $damage ([ 'capacity of a block', $blocks[3] + 3, 7 ], [ 'shape', $places{shape}[1] + 9, 3 ])
{
	my ($what, @place) = @$damage;
	flip(@place);
	like($node->error_of('CREATE DATABASE copy TEMPLATE source'), qr/^XX001:/, "$what: a damaged database is not copied");
	is(sql($content), $expected, "$what: other tables are as they were");
	is($node->verify_problems, '', "$what: and are not damaged");
	flip(@place);
}
sql('CREATE DATABASE copy TEMPLATE source');
is(sql(q{SELECT count(*), sum(a), sum(b) FROM t}, 'copy'), sql(q{SELECT count(*), sum(a), sum(b) FROM t}, 'source'), 'without damage it is');
is(sql(q{SELECT * FROM sofort.verify('t')}, 'copy'), '', 'and the copy is sound');

# ---- what is damaged in rows is damaged in the copy ----

foreach my $class ('row', 'stamp')
{
	my $verify = q{SELECT * FROM sofort.verify('t')};
	flip($places{$class}[100], 2);
	my $damage = sql($verify, 'source');
	isnt($damage, '', "$class: seen in the source");
	sql("CREATE DATABASE copy_$class TEMPLATE source");
	is(sql($verify, "copy_$class"), $damage, "$class: and in the copy");
	flip($places{$class}[100], 2);
	is(sql($verify, 'source'), '', "$class: as it was");
}

$node->stop;
$node->teardown_node;
done_testing();
