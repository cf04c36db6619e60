# Damage that once led a reader astray: a dictionary's value of whose header a bit has flipped was hashed
# by the first INSERT after a start, up to 1 GB of the pool behind it (on tmpfs each page that is read is
# taken); a tuple of an index of nothing but zeros had the right checksum, and scans went round and round.
# A leaf of nothing but zeros was an empty one.  Comparisons of entries believed the lengths in their
# tuples, as did who read values of nothing but zeros, which are shorter than their header.  Who failed
# to hash a value left the table in DRAM that it was to go to.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0', "statement_timeout = '20s'" ]);
$node->expect_damage;
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub places
{
	my ($relation, $class, $bytes) = @_;
	return split /\n/, sql(qq{SELECT start FROM sofort_test.places('$relation') WHERE class = '$class' AND bytes > $bytes});
}

sql(q{CREATE TABLE words (id int, w text) USING sofort;
	INSERT INTO words SELECT i, 'word ' || i % 40 FROM generate_series(1, 3000) i;
	CREATE TABLE many (id int, w text) USING sofort;
	INSERT INTO many SELECT i, 'word ' || i % CASE WHEN i < 4000 THEN 10 ELSE 1500 END FROM generate_series(1, 9000) i;
	CREATE TABLE t (id int, d numeric, w text) USING sofort;
	INSERT INTO t SELECT i, i * 1234567.89, 'word ' || i % 40 FROM generate_series(1, 3000) i;
	CREATE INDEX t_d ON t USING sofort_index (d) INCLUDE (w) WITH (placement = pmem);
	CREATE TABLE values_long (id int, v text) USING sofort;
	INSERT INTO values_long SELECT i, repeat(md5(i::text), 9) FROM generate_series(1, 300) i});
foreach my $t ('nodes', 'updated', 'vacuumed')
{
	sql(qq{CREATE TABLE $t (id int, d numeric, w text) USING sofort;
		INSERT INTO $t SELECT i, i * 1234567.89, 'word ' || i % 40 FROM generate_series(1, 4000) i});
}
sql('CREATE INDEX nodes_id ON nodes USING sofort_index (id) WITH (placement = pmem)');
sql("CREATE INDEX ${_}_d ON $_ USING sofort_index (d) INCLUDE (w) WITH (placement = pmem)") foreach 'updated', 'vacuumed';
sql('DELETE FROM vacuumed WHERE id % 2 = 0');
is(sql(q{SELECT encoding, dictionary_placement FROM sofort.columns WHERE relation = 'words'::regclass AND column_name = 'w'}),
	'dictionary|dram', 'a dictionary with its index in memory');
my ($value) = places('words', 'dictionary value', 8);
my $of_many = (places('many', 'dictionary value', 8))[1400];
my @tuples = (places('t_d', 'index tuple', 0))[ 100, 500, 900, 1300 ];
my @compared = map { (places("${_}_d", 'index tuple', 0))[ map { $_ * 150 } 1 .. 50 ] } 'updated', 'vacuumed';
# leaves begin 10 bytes before their level
my @leaves = split /\n/, sql(q{SELECT start - 10 FROM sofort_test.places('nodes_id') WHERE class = 'index node' AND bytes = 2 ORDER BY 1});
my @long = (places('values_long', 'long value', 8))[ 50 .. 60 ];
$node->stop;
$node->flip_pool_bit($_, 0) foreach $value, $of_many;
$node->change_pool($_ - $_ % 64, 64, sub { "\0" x 64 }) foreach @tuples, @compared;
$node->change_pool($_, 4, sub { "\0" x 4 }) foreach @long;
my ($leaf) = grep { $leaves[ $_ + 1 ] - $leaves[$_] < 2048 } @leaves / 2 .. @leaves - 2;
my $size = $leaves[ $leaf + 1 ] - $leaves[$leaf];
$node->change_pool($leaves[$leaf], $size, sub { "\0" x $size });
$node->start;

my $bytes = sql('SELECT file_bytes FROM sofort.pool');
like($node->error_of(q{INSERT INTO words VALUES (0, 'new')}), qr/^XX001:/, 'a value of a wrong length is not hashed');
cmp_ok(sql('SELECT file_bytes FROM sofort.pool'), '<', $bytes + 1024 * 1024, 'what is not there is not read');
isnt(sql(q{SELECT * FROM sofort.verify('words')}), '', 'verify finds it');
like($node->error_of(q{INSERT INTO many VALUES (0, 'new')}), qr/^XX001:/, 'nor one of many');
$bytes = sql('SELECT dram_used FROM sofort.pool');
sql(q{DO $$ BEGIN
	FOR i IN 1 .. 300 LOOP
		BEGIN INSERT INTO many VALUES (0, 'new'); EXCEPTION WHEN data_corrupted THEN NULL; END;
	END LOOP; END $$});
cmp_ok(sql('SELECT dram_used FROM sofort.pool') - $bytes, '<', 1024 * 1024, 'each attempt leaves no table behind');

isnt(sql(q{SELECT * FROM sofort.verify('t')}), '', 'verify finds tuples of zeros');
like($node->error_of('SET enable_seqscan = off; SELECT count(w) FROM t WHERE d > 0'), qr/^XX002:/, 'a scan refuses them');
sql('REINDEX TABLE t');
is(sql(q{SELECT * FROM sofort.verify('t')}), '', 'REINDEX makes a new one');

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
like($node->error_of("$by_index SELECT count(*) FROM nodes WHERE id > 0"), qr/^XX002:/, 'nodes of zeros are not empty');
isnt(sql(q{SELECT * FROM sofort.verify('nodes')}), '', 'verify finds them');
like($node->error_of('UPDATE updated SET d = d + 1'), qr/^XX002:/, 'an UPDATE compares with tuples of zeros');
like($node->error_of('VACUUM vacuumed'), qr/^XX002:/, 'VACUUM looks for them');
foreach my $t ('nodes', 'updated', 'vacuumed')
{
	sql("REINDEX TABLE $t");
	is(sql("SELECT * FROM sofort.verify('$t')"), '', "REINDEX makes a new one: $t");
}
like($node->error_of('SELECT count(DISTINCT v COLLATE "C") FROM values_long'), qr/^XX001:/, 'a value that is shorter than its header');
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'no process has died');

$node->stop;
$node->teardown_node;
done_testing();
