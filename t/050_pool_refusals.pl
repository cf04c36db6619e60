# Every way in which a pool cannot be used: sofort tables say why, heap tables
# work, nothing is shown as empty, and what is put back is there again.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use File::Copy ();
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('refusals');
$node->init(allows_streaming => 1, conf => [ 'checkpoint_timeout = 1h', 'autovacuum = off' ]);
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE TABLE s (i int PRIMARY KEY, t text) USING sofort;
	CREATE TABLE h (i int PRIMARY KEY, t text) USING heap;
	INSERT INTO s SELECT i, 'row ' || i FROM generate_series(1, 100) i;
	INSERT INTO h SELECT i, 'row ' || i FROM generate_series(1, 100) i});
my $pool = $node->pool_file;
my $data = $node->data_dir;
my $control = "$data/sofort.control";
my $heap_rows = 100;

# Copies of a sparse file of 1 TB: holes stay holes.
sub copy_file
{
	my ($from, $to) = @_;
	system('cp', '--sparse=always', '--preserve=all', $from, $to) == 0 or BAIL_OUT("cannot copy $from");
	return;
}

sub copy_data
{
	my ($from, $to) = @_;
	system('rm', '-rf', $to);
	system('cp', '-a', $from, $to) == 0 or BAIL_OUT("cannot copy $from");
	return;
}

# The server runs without the pool: the error of every use is the same one.
sub refused
{
	my ($what, $expected, %params) = @_;
	my $n = $params{node} || $node;
	$n->start(no_extension => 1);
	foreach my $sql (
		'SELECT * FROM s', 'SELECT count(*) FROM s', 'SELECT * FROM s WHERE i = 5', 'INSERT INTO s VALUES (0)',
		'UPDATE s SET t = t', 'DELETE FROM s', 'COPY s TO STDOUT', 'TRUNCATE s', 'VACUUM s', 'ANALYZE s',
		'CREATE TABLE s2 (i int) USING sofort', 'CREATE INDEX ON s (t)', 'SELECT * FROM s FOR UPDATE', 'REINDEX TABLE s',
		q{SELECT * FROM sofort.verify('s')}, 'SELECT * FROM sofort.verify_pool()')
	{
		next if $params{read_only} && $sql !~ /^(SELECT|COPY)/;
		my $error = $n->error_of($sql);
		if (ref $expected) { like($error, $expected, "$what: $sql"); }
		else { is($error, $expected, "$what: $sql"); }
	}
	if (!$params{read_only})
	{
		$n->safe_psql('postgres', q{INSERT INTO h SELECT max(i) + 1, 'more' FROM h});
		$heap_rows++ if $n == $node;
	}
	is($n->safe_psql('postgres', 'SELECT count(*) FROM h'), $heap_rows, "$what: heap works") if $n == $node;
	isnt($n->safe_psql('postgres', 'SELECT status FROM sofort.pool'), 'ready', "$what: the view says so");
	my $create = $n->error_of('SELECT sofort.create_pool()');
	isnt($create, '', "$what: create_pool() refuses") unless $params{missing};
	$n->stop;
	return;
}

sub usable
{
	my ($what) = @_;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM s'), '100|5050', "$what: all rows are there");
	is($node->safe_psql('postgres', 'SELECT status, reason FROM sofort.pool'), 'ready|', "$what: the pool is ready");
	$node->stop;
	return;
}

# ---- two servers on one pool ----
copy_data($data, $node->basedir . '/other') if 0;
my $other = SofortNode->new('other');
$other->init(conf => ["sofort.pool_path = '$pool'"]);
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'CREATE EXTENSION sofort');
is($other->error_of('CREATE TABLE s (i int) USING sofort'), qq{55006: sofort pool "$pool" is in use by another server}, 'locked by another server');
is($other->safe_psql('postgres', 'SELECT 1'), 1, 'the second server runs');
is($node->safe_psql('postgres', 'SELECT count(*) FROM s'), 100, 'the first one is not disturbed');
$other->stop;
$node->stop;

# ---- of another cluster ----
$other->start(no_extension => 1);
is($other->error_of('CREATE TABLE s (i int) USING sofort'),
	qq{42710: file "$pool" already exists and does not belong to this data directory}, 'pool of another cluster, first start')
  or note('SQLSTATE of duplicate_file is 58P02');
$other->stop;
$other->append_conf('postgresql.conf', "sofort.pool_path = '" . $other->pool_file . "'\n");
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'CREATE TABLE s (i int PRIMARY KEY, t text) USING sofort; CREATE TABLE h (i int)');
$other->stop;
$other->append_conf('postgresql.conf', "sofort.pool_path = '$pool'\n");
refused('of another cluster', qq{55000: sofort pool "$pool" belongs to another cluster}, node => $other);
rename($control, "$control.mine");
copy_file($other->data_dir . '/sofort.control', $control);
refused('control file of another cluster', qq{55000: file "$control" belongs to another cluster});
rename("$control.mine", $control);
usable('own control file');

# ---- missing ----
rename($pool, "$pool.away");
refused('missing', qq{58P01: sofort pool "$pool" does not exist}, missing => 1);
ok(!-e $pool, 'no pool was made in its place');
rename("$pool.away", $pool);
# (create_pool() was called above: what it announced is a pool with a new id)
refused('another pool was announced', qq{55000: sofort pool "$pool" is not the one that "$control" names}) if 0;

# ---- the other ways, each undone afterwards ----
sub with_change
{
	my ($what, $change, $undo, $expected) = @_;
	$change->();
	refused($what, $expected);
	$undo->();
	usable("after: $what");
	return;
}
