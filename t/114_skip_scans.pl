# Conditions on columns behind the bounds of an index scan: entries in the middle of the
# range are passed over. What is found must be what a search of the table finds, in the
# same order: for all types, NULLs and orders, in both directions, from any mark, beside
# others that change the index; and only some leaves are read.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Session;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $rounds = $ENV{SOFORT_LONG} ? 60 : 8;
my $seed = $ENV{SOFORT_SEED} || int(rand(1_000_000));
srand($seed);
note("seed $seed");

my $node = SofortNode->new('skip_scans');
$node->init(conf => [ 'autovacuum = off', 'jit = off', "sofort.pool_size = '1GB'", 'max_parallel_workers_per_gather = 0' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub one_of { return $_[int(rand(@_))]; }

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_incremental_sort = off';
my $by_bitmap = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off';
my $by_table = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off';

# ---- how much is read ----
sql(q{CREATE TABLE few (a int, b int, c int, t text COLLATE "C", n numeric) USING sofort;
	INSERT INTO few SELECT i % 10, i, i % 1000, 'text ' || i % 7, i % 9 FROM generate_series(1, 100000) i;
	CREATE INDEX few_ab ON few USING sofort_index (a, b);
	VACUUM ANALYZE few});

# Leaves that a query reads, and what it returns
sub leaves
{
	my ($query, $index) = @_;
	like(sql("$by_index; EXPLAIN $query"), qr/Index (Only )?Scan.* using $index/, "$query: by $index");
	$node->arm('index-leaf-read', 'wait', 1_000_000_000);
	my $rows = sql("$by_index; $query");
	my $n = sql(q{SELECT sofort_test.passages('index-leaf-read')});
	$node->disarm('index-leaf-read');
	is($rows, sql("$by_table; $query"), "$query: the right rows");
	return $n;
}
my $all = leaves('SELECT count(b) FROM few WHERE a >= 0', 'few_ab');
cmp_ok($all, '>', 1000, "the index has leaves ($all)");
cmp_ok(leaves('SELECT a, b FROM few WHERE b = 777', 'few_ab'), '<', 40, 'b = 1 on (a, b): some leaves for each a');
cmp_ok(leaves('SELECT count(*), sum(a), sum(b) FROM few WHERE a BETWEEN 2 AND 4 AND b IN (5003, 5012, 5043)', 'few_ab'), '<', 20, 'a range, and several values');
cmp_ok(leaves('SELECT count(*), sum(a), sum(b) FROM few WHERE b IN (77, 50003, 99990)', 'few_ab'), '<', 60, 'several values that are far apart');
cmp_ok(leaves('SELECT a, b FROM few WHERE b IN (77, 50003, 99990) AND b > 60000', 'few_ab'), '<', 40, '... of which one remains');
cmp_ok(leaves('SELECT a, b FROM few WHERE b IN (77, 50003, 99990) AND b = 500', 'few_ab'), '<', 30, '... none');
cmp_ok(leaves('SELECT a, b FROM few WHERE a > 5 AND b BETWEEN 5003 AND 5043 ORDER BY a DESC, b DESC', 'few_ab'), '<', 25, 'two ranges, backward');
cmp_ok(leaves('SELECT a, b FROM few WHERE b BETWEEN 500 AND 600 ORDER BY a, b', 'few_ab'), '<', 60, 'ranges');
cmp_ok(leaves('SELECT a, b FROM few WHERE b = 777 LIMIT 1', 'few_ab'), '<', 30, 'a part of it');
cmp_ok(leaves('SELECT count(b) FROM few WHERE b IS NULL', 'few_ab'), '<', 40, 'NULLs');
like(sql('EXPLAIN SELECT * FROM few WHERE b = 777'), qr/Index Scan using few_ab/, 'the planner knows');
sub cost { return (sql("$by_index; EXPLAIN $_[0]") =~ /Index .*? using \S+ on .*?\.\.([0-9.]+)/)[0]; }
my ($one, $three) = (cost('SELECT * FROM few WHERE b = 777'), cost('SELECT * FROM few WHERE b IN (77, 50003, 99990)'));
cmp_ok($three, '>', 1.8 * $one, "several values cost more than one ($three, $one)");
my $hundred = cost('SELECT * FROM few WHERE b IN (' . join(', ', map { 1000 * $_ } 1 .. 100) . ')');
$all = cost('SELECT * FROM few WHERE a >= 0 AND b >= 0');
cmp_ok($hundred, '<', $all, "many of them not more than all of the index ($hundred, $all)");
sql('CREATE INDEX few_ta ON few USING sofort_index (t, b); CREATE INDEX few_nb ON few USING sofort_index (n, b); VACUUM ANALYZE few');
cmp_ok(leaves(q{SELECT b FROM few WHERE t > '' AND b = 777}, 'few_ta'), '<', 40, 'behind a short text');
sql('CREATE INDEX few_atb ON few USING sofort_index (a, t, b); DROP INDEX few_ta, few_ab');
cmp_ok(leaves(q{SELECT count(*), sum(b) FROM few WHERE t = 'text 3' AND b BETWEEN 500 AND 600}, 'few_atb'), '<', 50, 'two columns');
cmp_ok(leaves(q{SELECT b FROM few WHERE t = 'text 3' AND b > 99000 ORDER BY a DESC, t DESC, b DESC}, 'few_atb'), '<', 50, '... backward');
cmp_ok(leaves(q{SELECT count(*), sum(b) FROM few WHERE t IN ('text 3') AND b IN (500, 521)}, 'few_atb'), '<', 50, '... by values');
cmp_ok(leaves(q{SELECT count(*) FROM few WHERE t = 'text 3' AND b >= 0}, 'few_atb'), '>', 200, '... all of one of them');
like(sql(q{EXPLAIN SELECT * FROM few WHERE t = 'text 3' AND b BETWEEN 500 AND 600}), qr/Index Scan (using|on) few_atb/, '... the planner knows');
sql('DROP INDEX few_atb');
cmp_ok(leaves(q{SELECT b FROM few WHERE n > -1 AND b = 777}, 'few_nb'), '>', 1000, 'not behind numbers whose bytes do not decide');
sql('DROP INDEX few_nb');

# What the planner thinks of it: each element of an array in front has its own groups
sql('CREATE TABLE groups (x int, a int, b int) USING sofort; INSERT INTO groups SELECT i % 20, i / 20 % 50, i FROM generate_series(1, 100000) i; CREATE INDEX groups_xab ON groups USING sofort_index (x, a, b); VACUUM ANALYZE groups');
my $in = cost('SELECT * FROM groups WHERE x IN (' . join(', ', 0 .. 19) . ') AND b = 777');
my $range = cost('SELECT * FROM groups WHERE x >= 0 AND b = 777');
cmp_ok($in, '>', $range / 2, "all values of a column one by one cost as much as all at once ($in, $range)");
sql('DROP TABLE groups');

# Parallel
sql('CREATE TABLE many (a int, b int) USING sofort; INSERT INTO many SELECT i % 5, i % 1000 FROM generate_series(1, 200000) i; CREATE INDEX many_ab ON many USING sofort_index (a, b); VACUUM ANALYZE many');
my $parallel = "$by_index; SET enable_sort = on; SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0; SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = on";
like(sql("$parallel; EXPLAIN SELECT a, b FROM many WHERE b BETWEEN 300 AND 600"), qr/Parallel Index Only Scan/, 'a parallel scan');
is(sql("$parallel; SELECT count(*), sum(a), sum(b) FROM (SELECT a, b FROM many WHERE b BETWEEN 300 AND 600 OFFSET 0) q"), sql("$by_table; SELECT count(*), sum(a), sum(b) FROM many WHERE b BETWEEN 300 AND 600"), '... finds each row once');
is(sql("$parallel; SELECT count(*), sum(a), sum(b) FROM (SELECT a, b FROM many WHERE b IN (3, 700) OFFSET 0) q"), sql("$by_table; SELECT count(*), sum(a), sum(b) FROM many WHERE b IN (3, 700)"), '... by values');

# ---- random indexes and conditions ----
# Few values of each column, and some that differ only behind their bytes in the key
my %types = (
	'int' => [ map { $_ } (-3 .. 3) ],
	'bigint' => [ -5000000000, -1 .. 4, 5000000000 ],
	'smallint' => [ 0 .. 5 ],
	'float8' => [ "'-0'", 0, 1.5, "'NaN'", "'Infinity'", -7 ],
	'numeric' => [ 1, '1.00000000000000000001', 2, '2.00', "'NaN'", -3 ],
	'text COLLATE "C"' => [ "''", "'a'", "'ab'", "'sixteen letters.'", "'sixteen letters.a'", "'sixteen letters.b'" ],
	'text' => [ "'a'", "'B'", "'c'", "'sixteen letters.b'" ],
	'varchar(3) COLLATE "C"' => [ "'a'", "'abc'", "'b'" ],
	'char(4) COLLATE "C"' => [ "'a'", "'ab'", "E'a\\t'", "'b'" ],
	'bool' => [ 'true', 'false' ],
	'date' => [ map { "date '2000-01-01' + $_" } (0 .. 4) ],
	'timestamptz' => [ map { "timestamptz '2000-01-01 00:00+00' + $_ * interval '1 day'" } (0 .. 4) ],
	'uuid' => [ map { "'00000000-0000-0000-0000-00000000000$_'" } (1 .. 4) ],
	'inet' => [ "'1.1.1.1'", "'1.1.1.1/8'", "'::1'" ],
	'interval' => [ "'1 day'", "'24 hours'", "'1 month'", "'-1 s'" ],
	'int4range' => [ "'[1,5)'", "'empty'", "'(,3)'", "'[1,6)'" ],
	'bytea' => [ "'\\x00'", "'\\x0000'", "'\\xff'" ],
	'name' => [ "'a'", "'b'", "'a_name_of_more_than_sixteen'" ]);
# (of the second line the key's bytes say only whether they are NULL)
my @any_type = (sort(keys %types),
	('inet', 'int4range', 'interval') x 3);
my %other_type = ('int' => 'bigint', 'bigint' => 'int', 'smallint' => 'int', 'date' => 'timestamptz', 'timestamptz' => 'date', 'name' => 'text', 'float8' => 'float4');

sub literal
{
	my ($type, $cross) = @_;
	my $value = one_of(@{ $types{$type} });
	my ($plain) = $type =~ /^([a-z0-9]+(?:\(\d+\))?)/;
	my $other = $other_type{$type};
	return "($value)::$other" if $cross && defined $other && !($type eq 'bigint' && $value =~ /5000000000/);
	return $type eq 'text' ? "$value" : "($value)::$plain";
}

sub condition
{
	my ($column, $type) = @_;
	my $what = int(rand(11));
	return "$column IS NULL" if $what == 0;
	return "$column IS NOT NULL" if $what <= 2;
	return "$column IN (" . join(', ', map { literal($type) } (1 .. 1 + rand(4))) . ')' if $what <= 4;
	return "$column = " . literal($type, rand() < 0.2) if $what <= 7;
	return "$column BETWEEN " . literal($type) . ' AND ' . literal($type) if $what == 8;
	return "$column " . one_of('<', '<=', '>', '>=') . ' ' . literal($type, rand() < 0.2);
}

sub compare
{
	my ($query, $order, $name) = @_;
	my $expected = sql("$by_table; $query ORDER BY $order");
	my $got = sql("$by_index; $query ORDER BY $order");
	return "$name: $query ORDER BY $order: $got instead of $expected\n" if $got ne $expected;
	$got = sql("$by_bitmap; $query ORDER BY $order");
	return "$name, bitmap: $query ORDER BY $order: $got instead of $expected\n" if $got ne $expected;
	return '';
}

my ($wrong, $queries, $nonempty, $by_scan) = ('', 0, 0, 0);
foreach my $round (1 .. $rounds)
{
	my $ncolumns = 2 + int(rand(3));
	my @types = map { one_of(@any_type) } (1 .. $ncolumns);
	my @columns = map { "c$_" } (1 .. $ncolumns);
	my $definition = join(', ', map { "$columns[$_] $types[$_]" } (0 .. $#columns));
	my $values = join(', ', map { my $t = $types[$_]; my $list = $types{$t}; "CASE floor(random() * " . (@$list + 0.3) . ")::int " . join(' ', map { "WHEN $_ THEN ($list->[$_])" . ($t =~ /^text/ ? '' : "::" . ($t =~ /^([a-z0-9]+(?:\(\d+\))?)/)[0]) } (0 .. $#$list)) . " END" } (0 .. $#columns));
	my @order = map { "$columns[$_] " . one_of('', 'DESC') . ' ' . one_of('NULLS FIRST', 'NULLS LAST') } (0 .. $#columns);
	my $index = join(', ', @order);
	my $placement = one_of('dram', 'pmem', 'hybrid');
	my $include = rand() < 0.3 ? 'INCLUDE (id)' : '';
	my $rows = 3000;
	sql("DROP TABLE IF EXISTS r; CREATE TABLE r (id int, $definition) USING sofort;
		SELECT setseed(" . rand() . ");
		INSERT INTO r SELECT i, $values FROM generate_series(1, $rows) i;
		CREATE INDEX r_index ON r USING sofort_index ($index) $include WITH (placement = $placement, fillfactor = " . (30 + int(rand(70))) . ");
		ANALYZE r");
	my $name = "round $round ($index, $placement $include)";
	(my $backward = $index) =~ s/(DESC)?( NULLS (FIRST|LAST))/($1 ? '' : 'DESC') . ' NULLS ' . ($3 eq 'FIRST' ? 'LAST' : 'FIRST')/ge;
	foreach (1 .. 12)
	{
		my @conditions = map { condition($columns[$_], $types[$_]) } grep { rand() < ($_ == 0 ? 0.2 : 0.7) } (0 .. $#columns);
		push(@conditions, condition($columns[-1], $types[-1])) if !@conditions;
		# (equal values may look different: 2 and 2.00)
		my $query = 'SELECT count(*), sum(id) FROM r WHERE ' . join(' AND ', @conditions) . ' GROUP BY ' . join(', ', @columns);
		# in groups, because equal keys have no order; of the rest the index has one
		$wrong .= compare($query, $index, $name);
		$wrong .= compare($query, $backward, "$name, backward") if rand() < 0.5;
		$by_scan++ if sql("$by_index; EXPLAIN $query ORDER BY $index") =~ /Index.* using r_index/;
		my $count = sql('SELECT count(*) FROM r WHERE ' . join(' AND ', @conditions));
		$nonempty++ if $count > 0;
		$queries++;

		# a cursor that goes to and fro: the same rows at the same positions, whatever the way
		next if rand() < 0.5;
		my $cursor = "$by_index; BEGIN; DECLARE c SCROLL CURSOR FOR SELECT " . join(', ', @columns) . ', id FROM r WHERE ' . join(' AND ', @conditions) . " ORDER BY $index";
		my @all = split(/\n/, sql("$cursor; FETCH ALL FROM c; COMMIT"), -1);
		@all = () if @all == 1 && $all[0] eq '' && $count == 0;
		my ($at, $fetches, @expected) = (0, '');
		foreach (1 .. 12)
		{
			my $n = 1 + int(rand(rand() < 0.3 ? 1000 : 20));
			if (rand() < 0.5)
			{
				$fetches .= "FETCH FORWARD $n FROM c; ";
				push(@expected, grep { defined } @all[ $at .. ($at + $n - 1 < $#all ? $at + $n - 1 : $#all) ]) if $at < @all;
				$at = $at + $n > @all ? @all + 1 : $at + $n;
			}
			else
			{
				$fetches .= "FETCH BACKWARD $n FROM c; ";
				my $last = $at > @all ? @all - 1 : $at - 2;
				my $first = $last - $n + 1 < 0 ? 0 : $last - $n + 1;
				push(@expected, reverse @all[ $first .. $last ]) if $last >= 0;
				$at = $last - $n + 1 < 0 ? 0 : $first + 1;
			}
		}
		my $got = sql("$cursor; $fetches COMMIT");
		$wrong .= "$name, cursor: $fetches: $got instead of " . join("\n", @expected) . "\n" if $got ne join("\n", @expected);
	}
}
is($wrong, '', "$queries random queries: rows and order");
cmp_ok($nonempty, '>', $queries / 4, "... $nonempty with rows");
cmp_ok($by_scan, '>', $queries / 2, "... $by_scan by a scan of the index in its order");

# Values with equal bytes in the key: their entries are in the order of the values, not of the
# rows, and no place may be among them. Here the first row of the table is often one of them.
sql(q{CREATE FUNCTION equal_bytes(rounds int, placement text) RETURNS text LANGUAGE plpgsql SET client_min_messages = warning AS $$
	DECLARE by_index bigint; by_table bigint; condition text; lost text := '';
	BEGIN
		FOR i IN 1 .. rounds LOOP
			DROP TABLE IF EXISTS e;
			CREATE TABLE e (a int, n numeric, t text COLLATE "C") USING sofort;
			INSERT INTO e SELECT CASE WHEN random() < 0.7 THEN floor(random() * 2) END, CASE WHEN random() < 0.4 THEN 2 + floor(random() * 40) * 1e-25 ELSE floor(random() * 4) - 1 END, chr(65 + (random() * 3)::int) FROM generate_series(1, 400);
			EXECUTE 'CREATE INDEX e_ant ON e USING sofort_index (a, n, t) WITH (placement = ' || placement || ')';
			PERFORM set_config('enable_bitmapscan', 'off', true);
			FOREACH condition IN ARRAY ARRAY['n >= 2', 'n <= 2', 'n BETWEEN 2 AND 2.0000000000000000000000005', 'n IN (0, 2)'] LOOP
				PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_indexonlyscan', 'on', true), set_config('enable_indexscan', 'on', true);
				EXECUTE 'SELECT count(*) FROM e WHERE ' || condition INTO by_index;
				PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexonlyscan', 'off', true), set_config('enable_indexscan', 'off', true);
				EXECUTE 'SELECT count(*) FROM e WHERE ' || condition INTO by_table;
				IF by_index <> by_table THEN lost := lost || format(E'%s: %s, %s by index, %s by table\n', i, condition, by_index, by_table); END IF;
			END LOOP;
		END LOOP;
		RETURN lost;
	END $$});
foreach my $placement ('dram', 'pmem')
{
	# (each round holds locks to the end of its transaction)
	my $lost = join('', map { sql('SELECT setseed(' . rand() . "); SELECT equal_bytes(50, '$placement')") } (1 .. $rounds));
	is($lost, "\n" x $rounds, "$placement: all of many values with equal bytes are found");
}

# Marks: a merge join returns to the first of equal rows
sql('CREATE TABLE left_side (a int, b int) USING sofort; INSERT INTO left_side SELECT i % 20, i % 3 FROM generate_series(1, 4000) i; CREATE INDEX left_ab ON left_side USING sofort_index (a, b);
	CREATE TABLE right_side (a int, b int) USING sofort; INSERT INTO right_side SELECT i % 20, i % 50 FROM generate_series(1, 4000) i; CREATE INDEX right_ab ON right_side USING sofort_index (a, b); ANALYZE left_side, right_side');
my $join = 'SELECT count(*), sum(l.a), sum(r.b) FROM left_side l JOIN right_side r ON l.a = r.a WHERE l.b = 2 AND r.b BETWEEN 7 AND 8';
my $merge = "$by_index; SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_material = off";
like(sql("$merge; EXPLAIN $join"), qr/Merge Join.*Index.* using (left|right)_ab.*Index.* using (left|right)_ab/s, 'a merge join of two such scans');
is(sql("$merge; $join"), sql("$by_table; $join"), '... finds what a join of the tables finds');

# ---- beside others who change the index ----
# Rows with b = 5 stay; others come and go between them, so that leaves are split and merged
sql('CREATE TABLE busy (a int, b int) USING sofort; INSERT INTO busy SELECT i, 5 FROM generate_series(1, 200) i; CREATE INDEX busy_ab ON busy USING sofort_index (a, b)');
my @writers = map { session_on($node) } (1 .. 2);
my $reader = session_on($node);
my $beside = $ENV{SOFORT_LONG} ? 60 : 6;
foreach my $w (0, 1)
{
	send_to($writers[$w], "DO \$\$ DECLARE until timestamptz := clock_timestamp() + interval '$beside s'; n int := 0; BEGIN WHILE clock_timestamp() < until LOOP
		INSERT INTO busy SELECT 1 + floor(random() * 200)::int, CASE WHEN random() < 0.5 THEN 0 ELSE 6 END + 10 * $w FROM generate_series(1, 500);
		n := n + 1;
		IF n % 7 = 0 THEN DELETE FROM busy WHERE b <> 5 AND b / 10 = $w; END IF;
		COMMIT; END LOOP; END \$\$");
}
my $until = time() + $beside;
my ($looks, $bad) = (0, '');
while (time() < $until)
{
	my $direction = one_of('', 'DESC');
	my $got = say_to($reader, "$by_index; SELECT count(*), sum(a), array_agg(a) = array_agg(a ORDER BY a $direction) FROM (SELECT a FROM busy WHERE b = 5 ORDER BY a $direction, b $direction) q");
	$bad .= $got if $got ne "200|20100|t\n";
	sql('VACUUM busy') if $looks % 20 == 0;
	$looks++;
}
is($bad, '', 'beside splits and merges each scan finds the rows that stay, in order');
cmp_ok($looks, '>', 10, "... $looks scans");
is(join('', map { answer($_) } @writers), '', '... writers had no error');
foreach (@writers, $reader) { $_->{in} .= "\\q\n"; $_->{run}->finish; }
is($node->verify_problems, '', 'verify');

$node->stop;
done_testing();
