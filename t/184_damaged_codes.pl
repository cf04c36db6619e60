# A row whose code its dictionary does not have, and one whose short text is longer than its field: who
# reads the column instead of an index that waits for its rebuilding, and the rebuilding itself, left such
# rows out, or took them for NULL.  That is an error; not for rows that are dead to all.  And indexes of
# dictionaries with codes that have no value: who looked one up followed it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0', "statement_timeout = '20s'", 'enable_bitmapscan = off' ]);
$node->expect_damage;
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# name, type, its value in row i, whether the index is there before the rows (the column lies apart)
my @tables = (
	[ apart => 'int', 'i % 40 * 1000', 1 ],
	[ within => 'int', 'i % 40 * 1000', 0 ],
	[ several => 'int', 'i % 300 * 1000', 1 ],
	[ wide => 'bigint', '(i % 40)::bigint << 33', 1 ],
	[ words => 'text', q{'a word with the number ' || i % 40}, 1 ],
	[ plain => 'text', q{'short ' || i}, 1 ],
	[ dead => 'int', 'i % 40 * 1000', 1 ]);
foreach my $table (@tables)
{
	my ($t, $type, $value, $before) = @$table;
	my @make = ("INSERT INTO $t SELECT i, $value FROM generate_series(1, 3000) i", "CREATE INDEX ${t}_v ON $t USING sofort_index (v)");
	sql("CREATE TABLE $t (id int, v $type) USING sofort;" . join(';', $before ? reverse @make : @make));
}
is(sql(q{SELECT string_agg(DISTINCT encoding || ' ' || width, ', ') FROM sofort.columns WHERE column_name = 'v' AND relation::text <> 'plain'}),
	'dictionary 1, dictionary 2', 'columns have dictionaries');
is(sql(q{SELECT encoding FROM sofort.columns WHERE column_name = 'v' AND relation = 'plain'::regclass}), 'inline', 'but one');

sub codes { return split /\n/, sql("SELECT start FROM sofort_test.places('$_[0]') WHERE class = 'code' ORDER BY 1"); }
my %place = map { ($_ => (codes($_))[-3]) } map { $_->[0] } grep { $_->[0] ne 'plain' } @tables;

my @rows = split /\n/, sql(q{SELECT start FROM sofort_test.places('plain') WHERE class = 'row' AND bytes = 12 ORDER BY 1});
is(scalar(@rows) > 1000, 1, 'texts lie beside each other');
$place{plain} = $rows[-3];
sql("DELETE FROM dead WHERE id = 2998");
# values that are stored once more, by the same codes
my %indexes = (far => [ 'text', q{'value ' || i % 50} ], near => [ 'int', 'i % 50' ], near_text => [ 'text', q{'value ' || i % 50} ]);
foreach my $t (keys %indexes)
{
	my ($type, $value) = @{ $indexes{$t} };
	sql(qq{
		CREATE TABLE $t (id int, v $type) USING sofort;
		INSERT INTO $t SELECT i, $value FROM generate_series(1, 2000) i;
		SELECT sofort.set_dictionary_placement('$t', 'v', 'pmem')});
}
is(sql(q{SELECT string_agg(DISTINCT dictionary_entries::text, ', ') FROM sofort.columns WHERE column_name = 'v' AND relation::text IN ('far', 'near', 'near_text')}),
	'50', 'these, too');
my %slots = map { ($_ => (split /\n/, sql("SELECT start || '|' || bytes FROM sofort_test.places('$_') WHERE class = 'dictionary index' ORDER BY bytes DESC"))[0]) } keys %indexes;
my %content = map { ($_->[0] => sql("SELECT count(*), sum(hashtext(v::text)) FROM $_->[0] WHERE id <> 2998")) } @tables;

$node->stop;
$node->change_pool($place{$_}, 1, sub { "\xff" }) foreach keys %place;
$node->change_pool($place{several} + 1, 1, sub { "\xff" });
foreach my $t (keys %slots)
{
	my ($start, $bytes) = split /\|/, $slots{$t};
	# one bit of each code: where no chunk of the values is, or in the first one, behind the last value
	my $bit = $t eq 'far' ? 1 << 27 : 1 << 6;
	$node->change_pool($start, $bytes, sub { pack('Q<*', map { $_ == 0 ? 0 : $_ ^ $bit } unpack('Q<*', $_[0])) });
}
$node->start;

my $by_index = 'SET enable_seqscan = off;';
foreach my $table (@tables)
{
	my ($t, $type, $value) = @$table;
	my $one = $value =~ s/\bi\b/7/r;
	if ($t eq 'dead')
	{
		is(sql("$by_index SELECT count(*) FROM $t WHERE v = $one"), '75', "$t: the code of a dead row does not matter");
		is(sql("$by_index SELECT count(*), sum(hashtext(v::text)) FROM (SELECT v FROM $t ORDER BY v) x"), $content{$t}, "$t: nor to who builds the index");
		next;
	}
	isnt(sql("SELECT * FROM sofort.verify('$t')"), '', "$t: verify finds it");
	like($node->error_of("$by_index SELECT count(*) FROM $t WHERE v = $one"), qr/^XX001:/, "$t: a look-up tells") if $t ne 'plain';
	if ($t eq 'apart')
	{
		my $often = "$by_index DO \$\$ BEGIN FOR i IN 1..200 LOOP BEGIN PERFORM count(*) FROM $t WHERE v = $one; EXCEPTION WHEN data_corrupted THEN NULL; END; END LOOP; END \$\$";
		sql($often);
		my $used = sql('SELECT dram_used FROM sofort.pool');
		sql($often);
		is(sql('SELECT dram_used FROM sofort.pool'), $used, "$t: a look-up that fails leaves nothing behind in the arena");
	}
	like($node->error_of("$by_index SELECT count(v) FROM $t WHERE v < $one"), qr/^XX001:/, "$t: of a range, too");
	like($node->error_of("$by_index SELECT v FROM $t ORDER BY v LIMIT 1"), qr/^XX001:/, "$t: so does who builds the index");
	sql("SET enable_indexscan = off; DELETE FROM $t WHERE id = 2998");
	is(sql("$by_index SELECT count(*), sum(hashtext(v::text)) FROM (SELECT v FROM $t ORDER BY v) x"), $content{$t}, "$t: without the row the index is built");
	sql("VACUUM $t");
	is(sql("SELECT * FROM sofort.verify('$t')"), '', "$t: nothing is left of it");
}
foreach my $t (sort keys %indexes)
{
	my ($type, $value) = @{ $indexes{$t} };
	like(sql("SELECT problem FROM sofort.verify('$t') LIMIT 1"), qr/its index has code \d+/, "$t: verify finds the codes");
	sql("INSERT INTO $t SELECT i, $value FROM generate_series(2001, 3000) i; UPDATE $t SET v = v");
	is(sql("SELECT count(*), count(DISTINCT v) FROM $t"), '3000|50', "$t: values are stored");
	is(sql("SELECT count(*) FROM (SELECT * FROM $t EXCEPT SELECT i, $value FROM generate_series(1, 3000) i) x"), '0', "$t: and right");
}
unlike(slurp_file($node->logfile), qr/terminated by signal|TRAP:/, 'no process has died');

$node->stop;
$node->teardown_node;
done_testing();
