# Damaged links between row versions.  With one bit of one changed, an UPDATE of its row once walked round
# and round, past statement_timeout, or linked the new version to another row.  Links that are right where
# they do not belong still lead round and round: whoever follows them ends, VACUUM with locks held, too.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0', "statement_timeout = '3s'" ]);
$node->expect_damage;
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub places
{
	my ($relation, $class) = @_;
	return map { [ split /\|/ ] } split /\n/, sql(qq{SELECT start, bytes FROM sofort_test.places('$relation') WHERE class = '$class'});
}

sub link_at { return unpack('Q<', $node->change_pool($_[0], 8)); }
sub set_link { my ($place, $link) = @_; $node->change_pool($place, 8, sub { pack('Q<', $link) }); return; }

# each row has a root and one version more

my $rows = 'SELECT g, 0 FROM generate_series(1, 100) g';
foreach my $t ('turned', 'astray', 'endless', 'endless_dead')
{
	sql(qq{CREATE TABLE $t (id int PRIMARY KEY, v int) USING sofort; INSERT INTO $t $rows; UPDATE $t SET v = 1});
}
sql('DELETE FROM endless_dead');
my %links = map { my $t = $_; ($t => [ map { my $p = $_; map { $p->[0] + 8 * $_ } 0 .. $p->[1] / 8 - 1 } places($t, 'link') ]) }
  ('turned', 'astray', 'endless', 'endless_dead');

$node->stop;

# A link of a version to its root
sub to_root
{
	my ($t) = @_;
	my ($link) = grep { link_at($_) >> 63 } @{ $links{$t} };
	return $link;
}
my $turned = to_root('turned');
set_link($turned, link_at($turned) ^ (1 << 63));
my $astray = to_root('astray');
set_link($astray, link_at($astray) ^ 2);
# all versions lead to themselves or to each other, by links that are right
foreach my $t ('endless', 'endless_dead')
{
	my @links = grep { link_at($_) != 0 } @{ $links{$t} };
	my ($down) = grep { link_at($_) >> 63 == 0 } @links;
	my $word = link_at($down);
	set_link($_, $word) foreach grep { link_at($_) >> 63 } @links;
}
$node->start;

my $damaged = qr/^XX001: sofort pool is damaged: a link between row versions is damaged/;
like($node->error_of('UPDATE turned SET v = v + 1'), $damaged, 'a link to the root that says it is none');
like($node->error_of('UPDATE astray SET v = v + 1'), $damaged, 'a link to another row');
is(sql('SELECT count(*), sum(v) FROM astray'), '100|100', 'nothing has changed');
isnt(sql("SELECT * FROM sofort.verify('$_')"), '', "verify finds it: $_") foreach 'turned', 'astray';

my $ends = qr/^(XX001|57014): /;
like($node->error_of('UPDATE endless SET v = v + 1'), $ends, 'links that lead round and round: an UPDATE ends');
like($node->error_of('VACUUM endless_dead'), $ends, 'VACUUM, too');
is(sql('SET enable_seqscan = off; SELECT count(*) FROM endless_dead WHERE id = 7'), 0, 'who looks for a row');
isnt(sql("SELECT * FROM sofort.verify('endless')"), '', 'verify finds it');

unlike(slurp_file($node->logfile), qr/terminated by signal|TRAP:/, 'no process has died');

$node->stop;
$node->teardown_node;
done_testing();
