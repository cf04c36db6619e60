# A pool that was copied with holes (cp --sparse=always) to a file system that is
# full: it is refused, with the reason, or it starts and has all rows.
# Nothing is a signal, neither at the start nor later.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off', 'jit = off' ]);
$node->start;
# much of what is in use is zero: what is free in slabs and blocks, rows to come, words
$node->safe_psql('postgres', q{
	CREATE TABLE t (i int PRIMARY KEY, d text, v text) USING sofort;
	ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
	CREATE INDEX ON t USING sofort_index (d) WITH (placement = pmem);
	INSERT INTO t SELECT g, 'd ' || g % 100, repeat('v', g % 400) FROM generate_series(1, 5000) g;
	CREATE TABLE z (i int, v text) USING sofort;
	ALTER TABLE z ALTER v SET STORAGE EXTERNAL;
	INSERT INTO z SELECT g, repeat('z', 100000) FROM generate_series(1, 40) g;
	DELETE FROM t WHERE i % 3 = 0});
# many tables: each has blocks and slabs of its own
$node->safe_psql('postgres', join(';', map { "CREATE TABLE t$_ (i int PRIMARY KEY, v text) USING sofort; INSERT INTO t$_ VALUES (1, 'v')" } 1 .. 30));
my $digest = q{SELECT count(*) || ' ' || sum(hashtext(t::text)) || ' ' || (SELECT sum(length(v)) FROM z) || ' ' || (SELECT sum(i) FROM t30) FROM t};
my $rows = $node->safe_psql('postgres', $digest);
$node->stop;
my $original = $node->pool_file;
my $mb = int(((stat $original)[12] * 512) / 1048576) + 8;
my $used = $node->basedir . '/copy';
run_log([ 'cp', '--sparse=always', $original, $used ]) or BAIL_OUT('cp');
note(sprintf('%d kB, %d kB with holes', (stat $original)[12] / 2, (stat $used)[12] / 2));
my $needed = ((stat $original)[12] - (stat $used)[12]) * 512;

# The pool as a copy with holes; so many bytes are free beside it.
sub use_copy
{
	my ($free) = @_;
	return $node->use_small_file_system("${mb}m",
		"cp --sparse=always '$used' pool && head -c $free /dev/zero >room && { cat /dev/zero >full 2>/dev/null; rm room; }");
}

if (!use_copy(0))
{
	diag('NOT TESTED: a full file system (user namespaces with mounts are not allowed here)');
	plan skip_all => 'no small file system';
}

foreach my $free (0, 4096, 65536, map { int($needed * $_ / 4 / 4096) * 4096 } 1 .. 3)
{
	use_copy($free);
	my $log = -s $node->logfile;
	ok($node->start(fail_ok => 1), "$free bytes free: the server starts") or next;
	my $error = $node->error_of('SELECT count(*) FROM t');
	like($error, qr/^53100: could not allocate all space of sofort pool ".*": No space left on device$/, "$free bytes free: the pool is refused");
	is($node->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS heap () USING heap; SELECT count(*) FROM heap'), 0, "$free bytes free: the server works");
	$node->stop;
	unlike(slurp_file($node->logfile, $log), qr/terminated by signal/, "$free bytes free: no signal");
}

# Room enough for the holes and little else
use_copy($needed + 2 * 1048576);
my $log = -s $node->logfile;
$node->start;
is($node->safe_psql('postgres', $digest), $rows, 'with room: all rows are there');
is($node->verify_problems, '', 'with room: verify');
my $error = '';
foreach my $i (1 .. 1000)
{
	$error = $node->error_of("INSERT INTO z SELECT 1000 * $i + g, repeat('z', 3000) FROM generate_series(1, 100) g");
	last if $error ne '';
}
like($error, qr/^53100: could not reserve/, 'full again: an error of the statement');
like($node->error_of("UPDATE t SET v = v || 'u'"), qr/^(53100: could not reserve.*|)$/, 'stores everywhere')
  foreach 1 .. 3;
$node->error_of("INSERT INTO t$_ SELECT g, 'w' FROM generate_series(2, 200) g") foreach 1 .. 30;
is($node->error_of('DELETE FROM z WHERE i >= 1000'), '', 'full: DELETE works');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), (split / /, $rows)[0], 'full: all rows are there');
is($node->verify_problems, '', 'full: verify');
$node->stop;
unlike(slurp_file($node->logfile, $log), qr/terminated by signal/, 'no signal');
$node->teardown_node;

# ---- the redo log, copied with holes: it has its blocks again before anybody writes to it ----
my $disk = SofortNode->new('disk');
my $dir = $disk->basedir . '/disk';
mkdir $dir;
$disk->{_sofort_pool} = "$dir/pool";
$disk->init(conf => [ "sofort.durability = 'msync'", "sofort.redo_size = '16MB'", 'autovacuum = off' ]);
$disk->start;
if ($disk->safe_psql('postgres', q{SELECT coalesce((SELECT medium FROM sofort.pool), 'none')}) ne 'msync')
{
	diag('NOT TESTED: a redo log with holes (the tests run in a file system in memory)');
}
else
{
	$disk->safe_psql('postgres', 'CREATE TABLE t (i int PRIMARY KEY) USING sofort; INSERT INTO t VALUES (1)');
	$disk->stop;
	my $redo = "$dir/pool.redo";
	run_log([ 'cp', '--sparse=always', $redo, "$redo.copy" ]) && rename("$redo.copy", $redo) or BAIL_OUT('cp');
	my $size = -s $redo;
	cmp_ok((stat $redo)[12] * 512, '<', $size, 'the redo log has holes');
	$disk->start;
	cmp_ok((stat $redo)[12] * 512, '>=', $size, 'it has none when the server has started');
	is(-s $redo, $size, 'nor another size');
	is($disk->safe_psql('postgres', 'INSERT INTO t VALUES (2); SELECT count(*) FROM t'), 2, 'all rows are there');
}
$disk->stop;
$disk->teardown_node;
done_testing();
