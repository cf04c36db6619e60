# A pool on a disk of which nothing is in memory, as after a reboot: who reads much of it does
# not wait for each page of 4 kB. Here: of how many of the pages that a statement reads it
# waits for the disk (major page faults). And a first visit to an index in the pool after a
# start writes nothing: on this medium all that a start finds is durable.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
my $dir = $node->basedir . '/disk';
mkdir $dir;
$node->{_sofort_pool} = "$dir/pool";
# (sessions rebuild indexes themselves: what is read is read by them)
$node->init(conf => [ "sofort.durability = 'msync'", "sofort.redo_size = '16MB'", 'autovacuum = off', 'jit = off',
	'sofort.recovery_workers = 0', 'max_parallel_workers_per_gather = 0' ]);
$node->start;

my $rows = 150000;
my $why;
if ($node->safe_psql('postgres', q{SELECT coalesce((SELECT medium FROM sofort.pool), 'none')}) ne 'msync')
{
	$why = 'the file system is in memory';
}
else
{
	$node->safe_psql('postgres', qq{
		CREATE FUNCTION read_from_disk(OUT waits bigint, OUT pages bigint) LANGUAGE sql AS \$\$
			SELECT split_part(pg_read_file('/proc/self/stat', 0, 1000), ' ', 12)::bigint,
				substring(pg_read_file('/proc/self/io', 0, 1000) FROM 'read_bytes: (\\d+)')::bigint / 4096 \$\$;
		CREATE TABLE first () USING sofort;
		CREATE TABLE t (id int, a int, b int, c int) USING sofort;
		INSERT INTO t SELECT i, (i::bigint * 7919 % $rows)::int, i % 1000, i * 7 FROM generate_series(1, $rows) i;
		CREATE TABLE scattered (LIKE t) USING sofort;
		INSERT INTO scattered SELECT * FROM t;
		CREATE INDEX ON scattered USING sofort_index (a);
		CREATE TABLE pool (LIKE t) USING sofort;
		INSERT INTO pool SELECT * FROM t;
		CREATE INDEX pool_id ON pool USING sofort_index (id) WITH (placement = pmem);
		CREATE INDEX pool_a ON pool USING sofort_index (a, b, c) WITH (placement = hybrid);
		CREATE TABLE texts (id int, c text) USING sofort;
		INSERT INTO texts SELECT i, md5(i::text) || md5((i * 3)::text) || md5((i * 5)::text) FROM generate_series(1, $rows) i;
		CREATE TABLE long_texts (id int, c text) USING sofort;
		ALTER TABLE long_texts ALTER c SET STORAGE EXTERNAL;
		INSERT INTO long_texts SELECT i, repeat(chr(64 + i % 26), 100000) FROM generate_series(1, 100) i;
		VACUUM ANALYZE});
}

# Stops the server, takes its pool out of memory, and starts it. (The kernel leaves out pages
# that are not written yet: the stop has waited for all.)
sub start_cold
{
	$node->stop;
	run_log([ 'dd', 'if=/dev/null', "of=$dir/pool", 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none' ]);
	$node->start;
	return;
}

# How often the statement waited, and how many pages its session has read. (What the first
# statement after a start reads does not count.)
sub waits_of
{
	my ($statement, $settings) = @_;
	my $count = 'SELECT * FROM read_from_disk()';
	my ($out) = $node->safe_psql('postgres', join(";\n", $settings || (), 'SELECT FROM first', $count, $statement, $count));
	my @lines = split /\n/, $out;
	my ($before, $after) = map { [ split /\|/, $lines[$_] ] } 0, -1;
	return ($after->[0] - $before->[0], $after->[1] - $before->[1]);
}

if (!defined $why)
{
	start_cold();
	my (undef, $pages) = waits_of('SELECT sum(c) FROM t');
	$why = "the pool stays in memory ($pages pages were read)" if $pages < 500;
}
if (defined $why)
{
	$node->stop;
	$node->teardown_node;
	diag("NOT TESTED: reading a pool on a disk ($why)");
	plan skip_all => $why;
}

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off';
my $by_bitmap = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off';
foreach my $case (
	# what, pages that it reads at least, statement, settings
	[ 'sequential scan', 1000, 'SELECT sum(c) FROM t' ],
	[ 'sequential scan, twice', 1000, 'SELECT sum(x.c) FROM (VALUES (1), (2)) y (n), LATERAL (SELECT count(c) AS c FROM t WHERE c > n) x' ],
	[ 'texts', 3000, 'SELECT sum(hashtext(c)) FROM texts' ],
	[ 'long texts', 2000, 'SELECT sum(hashtext(c)) FROM long_texts' ],
	[ 'VACUUM', 1000, 'VACUUM t' ],
	[ 'ANALYZE', 1000, 'ANALYZE t' ],
	[ 'TABLESAMPLE', 400, 'SELECT sum(c) FROM t TABLESAMPLE SYSTEM (50) REPEATABLE (1)' ],
	[ 'CREATE INDEX', 1000, 'CREATE INDEX new ON t USING sofort_index (b); DROP INDEX new' ],
	[ 'verify()', 1000, q{SELECT * FROM sofort.verify('t')} ],
	[ 'rebuilding an index', 1000, 'SELECT a FROM scattered ORDER BY a LIMIT 1', $by_index ],
	[ 'searching in place of an index', 300, 'SELECT * FROM scattered WHERE a = 4711', $by_index ],
	[ 'rows in the order of an index', 1000, 'SELECT sum(b) FROM pool WHERE id > 0', $by_index ],
	[ 'the same, bitmap', 1000, 'SELECT sum(b) FROM pool WHERE id > 0', $by_bitmap ],
	[ 'index-only scan', 500, 'SELECT sum(c) FROM pool WHERE a > 0', $by_index ],
	[ 'inner nodes of a hybrid index', 500, 'SELECT c FROM pool WHERE a = 4711 AND b = 711', $by_index ])
{
	my ($what, $least, $statement, $settings) = @$case;
	start_cold();
	my ($waits, $pages) = waits_of($statement, $settings);
	cmp_ok($pages, '>=', $least, "$what: $pages pages are read");
	cmp_ok($waits, '<', $pages / 4, "$what: and waited for $waits times");
}

# ---- a first visit writes nothing ----
$node->stop('immediate');
$node->start;
my $drains = 'SELECT drains FROM sofort_test.flush_counters()';
my @out = split /\n/, $node->safe_psql('postgres', qq{$by_index; SELECT count(*) FROM t; $drains;
	SELECT count(*), sum(id) FROM (SELECT id FROM pool ORDER BY id) x; SELECT count(*), sum(c) FROM (SELECT c FROM pool WHERE a >= 0 ORDER BY a) x; $drains});
is($out[2], "$rows|" . $rows * ($rows + 1) / 2, 'all entries are there');
is($out[3], "$rows|" . 7 * $rows * ($rows + 1) / 2, 'those of the hybrid index, too');
cmp_ok($out[4] - $out[1], '<', 20, 'visiting all nodes of two indexes in the pool waits for no drain of each');
is($node->verify_problems, '', 'tables, indexes and pool agree');
$node->stop;
done_testing();
