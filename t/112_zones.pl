# Recovery mode instant: look-ups by several columns of indexes of which nothing is
# built yet. Blocks and rows are left out by the first bytes of the key, or found by a
# hash of them; what is found must be what a search of the table finds, for all types,
# NULLs and orders.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('zones');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_mode = instant', 'sofort.recovery_workers = 0' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# The server comes back without indexes; the planner knows of the table's only this one.
sub restart_with
{
	my ($table, $index) = @_;
	sql("UPDATE pg_index SET indisvalid = indexrelid = '$index'::regclass WHERE indrelid = '$table'::regclass");
	$node->kill9;
	$node->start;
	return;
}

# By an index, what a search of the table finds
sub same_rows
{
	my ($query, $name) = @_;
	is(sql("SET enable_bitmapscan = off; $query"), sql("SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off; $query"), $name);
	return;
}

# Clustered in the first columns, random in the others; every column has NULLs.
# Few distinct values, so that look-ups by four columns find something.
sql(q{
	-- (short texts, numbers of 4 and 8 bytes, codes of 1 and 2 bytes, and what has no codes)
	CREATE TABLE z (w int, d smallint, o bigint, s varchar(3) COLLATE "C", t text COLLATE "C", n numeric, x oid, f float8, r int,
		u int, k int, b bigint, v varchar(15) COLLATE "C") USING sofort;
	SELECT setseed(0.5);
	INSERT INTO z SELECT
		CASE WHEN random() < 0.02 THEN NULL ELSE i / 1000 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE i / 100 % 10 - 5 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE i % 100 / 10 - 5 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE left('abc', (random() * 3)::int) END,
		CASE WHEN random() < 0.02 THEN NULL ELSE repeat(chr(97 + (random() * 2)::int), (random() * 20)::int) END,
		CASE WHEN random() < 0.02 THEN NULL ELSE (random() * 10)::int / 4.0 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE (random() * 5)::int END,
		CASE WHEN random() < 0.02 THEN NULL ELSE (random() * 5)::int - 2 END,
		(random() * 50)::int,
		CASE WHEN random() < 0.02 THEN NULL ELSE i * 7919 % 5000 - 2500 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE i * 31 % 1000 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE i * 104729 % 10007 END,
		CASE WHEN random() < 0.02 THEN NULL ELSE lpad((i * 31 % 5003)::text, 15, '0') END
		FROM generate_series(1, 5000) i;
	UPDATE z SET r = r + 1 WHERE r % 7 = 0;
	UPDATE z SET d = d + 1 WHERE r % 11 = 0;
	DELETE FROM z WHERE r % 13 = 0;
});
my %indexes = (
	i_ints => 'w, d, o',
	i_desc => 'w DESC NULLS LAST, d DESC, o NULLS FIRST, x',
	i_short => 's, w DESC, d',
	i_long => 't, w, d',
	i_middle => 'd, s DESC, t, o',
	i_decimal => 'd NULLS FIRST, n, w',
	i_float => 'x, f DESC, w, d',
	i_wide => 'o, w, d',
	i_unique => 'u, k',
	i_codes => 'k, b DESC',
	i_narrow => 'b DESC, d',
	i_text => 'v, u');
sql(join(';', map { "CREATE INDEX $_ ON z USING sofort_index ($indexes{$_})" } sort keys %indexes) . '; ANALYZE z');
sql(q{CREATE FUNCTION same(columns text[], rounds int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r z;
	found int := 0;
	condition text;
	answer text;
	truth text;
	c text;
	value text;
	k int;
BEGIN
	FOR round IN 1 .. rounds LOOP
		condition := 'true';
		k := 0;
		FOREACH c IN ARRAY columns LOOP
			-- (values from anywhere: most combinations exist where columns are few)
			IF k = 0 OR random() < 0.3 THEN
				SELECT * INTO r FROM z OFFSET (random() * 4000)::int LIMIT 1;
			END IF;
			EXECUTE format('SELECT quote_nullable($1.%I)', c) USING r INTO value;
			k := k + 1;
			EXIT WHEN k > 1 AND random() < 0.15;
			condition := condition || format(' AND %I ', c) ||
				CASE WHEN value = 'NULL' OR random() < 0.03 THEN 'IS NULL'
					WHEN random() < 0.7 THEN '= ' || value
					ELSE (ARRAY['< ', '> ', '<= ', '>= '])[1 + (random() * 3)::int] || value END;
		END LOOP;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_indexscan = on;
		EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(hashtext(z::text)::bigint), 0) FROM z WHERE ' || condition INTO answer;
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(hashtext(z::text)::bigint), 0) FROM z WHERE ' || condition INTO truth;
		IF answer IS DISTINCT FROM truth THEN
			RETURN format('%s: %s instead of %s', condition, answer, truth);
		END IF;
		IF answer NOT LIKE '0 %' THEN found := found + 1; END IF;
	END LOOP;
	RETURN CASE WHEN found > rounds / 10 THEN 'same' ELSE 'only ' || found || ' found' END;
END $$});

# One index at a time, so that this one is used. While chains differ from their roots in indexed columns
# (those of before CREATE INDEX may) there are no zones.
my $rounds = $ENV{SOFORT_LONG} ? 1000 : 30;
my %hashed;
foreach my $what ('chains differ', 'chains agree')
{
	sql('VACUUM FULL z; UPDATE z SET r = r + 1 WHERE r % 5 = 0; DELETE FROM z WHERE r % 17 = 0; UPDATE z SET r = r + 1 WHERE r % 3 = 0')
	  if $what eq 'chains agree';
	foreach my $name (sort keys %indexes)
	{
		(my $columns = $indexes{$name}) =~ s/ (?:DESC|NULLS|FIRST|LAST)\b//g;
		restart_with('z', $name);
		like(sql("SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN SELECT * FROM z WHERE (" .
				join(', ', split(/, /, $columns)) . ') = (' . join(', ', map { "(SELECT $_ FROM z LIMIT 1)" } split(/, /, $columns)) . ')'),
			qr/Index Scan using $name/, "$what: $name is used");
		is(sql("SELECT same(string_to_array('$columns', ', '), $rounds)"), 'same', "$what: $name: same rows");
		sql("SELECT sofort_test.hashes('$name', true)");
		is(sql("SELECT same(string_to_array('$columns', ', '), $rounds)"), 'same', "$what: $name: same rows, with hashes");
		$hashed{$name} = sql("SELECT sofort_test.hashes('$name', false)");
		is($hashed{$name}, '0', "$what: $name: chains differ from hashes") if $what eq 'chains differ';
		is(sql("SELECT status FROM sofort.indexes WHERE index = '$name'::regclass"), 'partial', "$what: $name: not complete");
	}
}

is(join(', ', sort grep { $hashed{$_} } keys %hashed), join(', ', sort keys %indexes), 'hashes are made');

# Keys that lie anywhere, in segments that are large enough to find out that zones are no
# help; and in the same table keys that do not.
sql(q{
	CREATE TABLE y (a int, b int) USING sofort;
	INSERT INTO y SELECT i * 7919 % 40000, i / 2 FROM generate_series(0, 39999) i;
	CREATE INDEX y_a ON y USING sofort_index (a);
	CREATE INDEX y_b ON y USING sofort_index (b);
	ANALYZE y});
$node->append_conf('postgresql.conf', "sofort.rebuild_segment = 64\nenable_seqscan = off\nenable_mergejoin = off\nenable_hashjoin = off");
$node->kill9;
$node->start;
is(sql("SELECT count(*) FROM y WHERE a = $_"), '1', 'the first look-ups, scattered') for 20000, 20001;
is(sql('SELECT count(*) FROM y WHERE b = 5'), '2', 'the first look-up, ascending');
is(sql("SELECT sofort_test.hashes('y_a', false) > 0, sofort_test.hashes('y_b', false)"), 't|0', 'it has made hashes, where keys are scattered');
for my $round (1, 2)
{
	is(sql(q{SELECT count(*), sum(x.b) FROM generate_series(0, 39999, 1999) i, LATERAL (SELECT b FROM y WHERE a = i) x}),
		sql(q{SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(b) FROM y WHERE a % 1999 = 0}), "scattered keys, round $round");
	is(sql(q{SELECT count(*), sum(x.a) FROM generate_series(0, 19999, 1999) i, LATERAL (SELECT a FROM y WHERE b = i) x}),
		sql(q{SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(a) FROM y WHERE b % 1999 = 0}), "ascending keys, round $round");
}
is(sql(q{SELECT count(*), min(a), max(a) FROM y WHERE a BETWEEN 100 AND 299}), '200|100|299', 'a range of scattered keys');
is(sql("SELECT sofort_test.hashes('y_a', false), sofort_test.hashes('y_b', false)"), '3|0', 'all segments have one');

# What comes after the hash was made, or goes: inserted, updated, deleted, rolled back, vacuumed away
sql(q{INSERT INTO y SELECT 20000, -i FROM generate_series(1, 3) i; UPDATE y SET b = b - 1000000 WHERE a = 777; UPDATE y SET a = 20001 WHERE a = 20002;
	DELETE FROM y WHERE a = 30000; BEGIN; INSERT INTO y VALUES (30000, 0); DELETE FROM y WHERE a = 30001; ROLLBACK});
my $changed = q{SELECT a, count(*), sum(b) FROM (VALUES (20000), (777), (20001), (20002), (30000), (30001)) v (i), LATERAL (SELECT * FROM y WHERE a = i OFFSET 0) x
	GROUP BY a ORDER BY a};
my $truth = q{SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT a, count(*), sum(b) FROM y WHERE a IN (20000, 777, 20001, 20002, 30000, 30001) GROUP BY a ORDER BY a};
is(sql($changed), sql($truth), 'after changes');
is(sql("SELECT sofort_test.rebuild('y_a', 2), sofort_test.hashes('y_a', false)"), 'worked|3', 'some segments are read');
is(sql($changed), sql($truth), 'from runs, a hash, and the delta');
is(sql("SELECT sofort_test.rebuild('y_a', 0), sofort_test.hashes('y_a', false)"), 'finished|-1', 'complete');
is(sql($changed), sql($truth), 'from the index');
is($node->verify_problems, '', 'verify');

# Hashes take an eighth of sofort.dram_size; what has none is searched without.
sql('CREATE TABLE m (a int, b int) USING sofort; INSERT INTO m SELECT i * 104729::bigint % 800000, i FROM generate_series(0, 799999) i; CREATE INDEX m_a ON m USING sofort_index (a); ANALYZE m');
$node->append_conf('postgresql.conf', "sofort.dram_size = 32MB\nsofort.rebuild_segment = 256");
$node->kill9;
$node->start;
sql("DROP INDEX y_a; DROP INDEX y_b");
is(sql("SELECT count(*) FROM m WHERE a = $_"), '1', 'in a large table') for 400000, 400001;
is(sql("SELECT sofort_test.hashes('m_a', false)"), '13', 'which still fit');
$node->append_conf('postgresql.conf', 'sofort.dram_size = 16MB');
$node->kill9;
$node->start;
is(sql("SELECT count(*), sum(b) FROM (VALUES (400000), (1), (799999), (123456), (777777)) v (i), LATERAL (SELECT * FROM m WHERE a = i OFFSET 0) x"),
	sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(b) FROM m WHERE a IN (400000, 1, 799999, 123456, 777777)"), 'with some hashes');
like(sql("SELECT sofort_test.hashes('m_a', false)"), qr/^[89]$/, 'an eighth of the arena');
sql('DROP TABLE m');
$node->append_conf('postgresql.conf', 'sofort.dram_size = 64MB');
$node->kill9;
$node->start;
sql("CREATE INDEX y_a ON y USING sofort_index (a); CREATE INDEX y_b ON y USING sofort_index (b)");

# Blocks that heap-only updates have filled: at the beginning (where rows were deleted), in the middle
# of rows, and after them, whole segments of them.
sql(q{
	CREATE TABLE h (k int, t varchar(15) COLLATE "C", n int) USING sofort;
	INSERT INTO h SELECT i, lpad(i::text, 15, '0'), 0 FROM generate_series(1, 40000) i;
	CREATE INDEX h_k ON h USING sofort_index (k);
	CREATE INDEX h_t ON h USING sofort_index (t);
	DELETE FROM h WHERE k <= 3000 OR k BETWEEN 11000 AND 13000});
sql('VACUUM h');
sql('UPDATE h SET n = n + 1 WHERE k % 5 = 0');
sql('BEGIN; UPDATE h SET n = n - 100; ROLLBACK');
sql('UPDATE h SET n = n + 1 WHERE k % 3 = 0');
sql('INSERT INTO h SELECT NULL, NULL, i FROM generate_series(1, 3) i; INSERT INTO h SELECT 1, NULL, i FROM generate_series(1, 3) i; ANALYZE h');
$node->kill9;
$node->start;
foreach my $where ('k = 3001', 'k = 3000', 'k = 40000', 'k < 3010', 'k <= 3000', 'k > 39990', 'k BETWEEN 10990 AND 13010', 'k BETWEEN 10998 AND 11001',
	'k IS NULL', 'k = 1', 'k < 2', "t = '000000000003001'", "t < '000000000003010'", "t > '000000000039990'", 't IS NULL',
	"t BETWEEN '000000000010995' AND '000000000013004'", 'k IN (SELECT i * 997 FROM generate_series(1, 41) i)',
	"t IN (SELECT lpad((i * 997)::text, 15, '0') FROM generate_series(1, 41) i)")
{
	my $query = "SELECT count(*), sum(k), sum(n), max(t) FROM h WHERE $where";
	like(sql("SET enable_bitmapscan = off; EXPLAIN $query"), qr/Index Scan using h_[kt]/, "$where: by index");
	same_rows($query, "$where: blocks of versions");
}
is(sql(q{SELECT count(*) FROM sofort.indexes WHERE index IN ('h_k'::regclass, 'h_t'::regclass) AND status = 'partial'}), '2', 'not complete meanwhile');

# Row ids that were used again: blocks with rows from everywhere, few of them in a segment, or
# most; the first and the last block among them.
foreach my $n (3, 15, 157)
{
	sql(q{DROP TABLE IF EXISTS v; CREATE TABLE v (k int, n int) USING sofort; INSERT INTO v SELECT i, i FROM generate_series(1, 40000) i;
		CREATE INDEX v_k ON v USING sofort_index (k); DELETE FROM v WHERE k % 256 < 200 AND k / 256 * 31 % 157 < } . $n . '; ANALYZE v');
	sql('VACUUM v');
	sql("SELECT setseed(0.$n); INSERT INTO v SELECT (random() * 45000)::int - 2000, -i FROM generate_series(1, $n * 200) i");
	my $moved = sql("SELECT count(DISTINCT split_part(ctid::text, ',', 1)) FROM v WHERE n < 0 AND k < 39000");
	cmp_ok($moved, '>', $n / 2, "$n blocks have row ids that were used again");
	$node->kill9;
	$node->start;
	is(sql('SELECT count(*), sum(x.n) FROM generate_series(-2100, 43100) i, LATERAL (SELECT n FROM v WHERE k = i OFFSET 0) x'),
		sql('SELECT count(*), sum(n) FROM v'), "$n blocks: every key");
	foreach my $where ('k < 1', 'k <= 256', 'k > 39900', 'k BETWEEN 5000 AND 5300', 'k BETWEEN 19990 AND 20010', 'k = 40000')
	{
		same_rows("SELECT count(*), sum(k), sum(n) FROM v WHERE $where", "$n blocks: $where");
	}
	is(sql("SELECT status FROM sofort.indexes WHERE index = 'v_k'::regclass"), 'partial', 'not complete meanwhile');
}

# Single rows from anywhere among rows that were loaded in order: the zones do without them. So they
# do without blocks of such rows alone, as long as these are few.
my %stray_indexes = (s_k => 'k', s_desc => 'k DESC, n', s_t => 't', s_two => 'g, k');
$node->append_conf('postgresql.conf', 'sofort.rebuild_segment = 64');
sql(q{CREATE TABLE s (k int, t varchar(15) COLLATE "C", g int, n int) USING sofort;
	INSERT INTO s SELECT i * 10, lpad((i * 10)::text, 15, '0'), i / 3000, i FROM generate_series(1, 40000) i});
sql(join(';', map { "CREATE INDEX $_ ON s USING sofort_index ($stray_indexes{$_})" } sort keys %stray_indexes));
srand 25;
sql(join("\n", map { my $k = int(rand(40000)) * 10 + 5;
			("DELETE FROM s WHERE k = " . $_ * 1770 . ';', "INSERT INTO s VALUES ($k, lpad('$k', 15, '0'), $k / 30000, -$_);",
				$_ % 40 ? () : "INSERT INTO s VALUES (NULL, NULL, NULL, -$_ - 1000);") } 1 .. 200) . "\nANALYZE s");
cmp_ok(sql("SELECT count(DISTINCT split_part(ctid::text, ',', 1)) FROM s WHERE n < 0"), '>', 30, 'rows that came later are in most blocks of a segment');
foreach my $more (0, 3000)
{
	sql("INSERT INTO s SELECT k, lpad(k::text, 15, '0'), k / 30000, -i FROM (SELECT i, (random() * 400000)::int / 10 * 10 + 7 AS k FROM generate_series(301, 300 + $more) i) r; ANALYZE s");
	foreach my $name (sort keys %stray_indexes)
	{
		restart_with('s', $name);
		my %where = $name eq 's_t' ? (map { $_ => "t $_" } "= '000000000123450'", "< '000000000000100'", "> '000000000399950'",
				"BETWEEN '000000000200000' AND '000000000203000'", 'IS NULL') :
			map { $_ => ($name eq 's_two' ? 'g IS NOT DISTINCT FROM g AND g BETWEEN 0 AND 20 AND ' : '') . "k $_" } '= 123450', '< 100', '> 399950', 'BETWEEN 200000 AND 203000', 'IS NULL';
		my $column = $name eq 's_t' ? 't' : 'k';
		my $same = $name eq 's_two' ? 'g = i.g AND' : '';
		is(sql("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off;
				SELECT count(*), sum(x.n) FROM (SELECT DISTINCT $column, g FROM s OFFSET 0) i, LATERAL (SELECT n FROM s WHERE $same $column = i.$column OFFSET 0) x"),
			sql('SELECT count(*), sum(n) FROM s WHERE k IS NOT NULL'), "$name, $more more: every key");
		same_rows("SELECT count(*), sum(k), sum(n) FROM s WHERE $where{$_}", "$name, $more more: $_") foreach sort keys %where;
		my $strays = sql('SELECT count(*) FROM s WHERE n < 0 AND k IS NOT NULL');
		like(sql("SELECT sofort_test.zones('$name')"), qr/^([34]) zones, \1 ascending, 0 blocks apart, \d+ strays$/, "$name, $more more: rows that came later do not matter");
		cmp_ok((sql("SELECT sofort_test.zones('$name')") =~ /(\d+) strays/)[0], '>', $strays * 0.8, "$name, $more more: these were left out");
	}
}
is($node->verify_problems, '', 'verify');
$node->append_conf('postgresql.conf', 'sofort.rebuild_segment = 256');

# Several columns, the first of which is enough to tell blocks apart; or not.
sql('ALTER TABLE h ADD g smallint; UPDATE h SET g = k / 20000; VACUUM FULL h; UPDATE h SET n = n + 1 WHERE k % 4 = 0');
my @several = ('h_up k, t', 'h_down k DESC, t', 'h_flat g, k DESC');
sql("CREATE INDEX $_") for map { my ($name, $columns) = split / /, $_, 2; "$name ON h USING sofort_index ($columns)" } @several;
sql('ANALYZE h');
foreach my $name (map { (split / /)[0] } @several)
{
	restart_with('h', $name);
	my $first = $name eq 'h_flat' ? 'g = 1 AND k' : 'k';
	foreach my $where ("$first = 30000", "$first = 30000 AND t = '000000000030000'", "$first = 30000 AND t < '000000000030000'",
		"$first BETWEEN 29990 AND 30010 AND t > '000000000030000'", "$first > 39995", "$first = 50000", "$first IS NULL", 'g IS NULL AND k IS NULL',
		$name eq 'h_flat' ? 'g < 1 AND k < 3005' : 'k < 3005', "$first IN (SELECT i * 997 FROM generate_series(1, 41) i)")
	{
		my $query = "SELECT count(*), sum(k), sum(n), max(t) FROM h WHERE $where";
		like(sql("SET enable_bitmapscan = off; EXPLAIN $query"), qr/Index Scan using $name/, "$where: by $name");
		same_rows($query, "$where: same rows");
	}
	# the first and the last row of each block among them
	is(sql("SELECT count(*), sum(x.n) FROM generate_series(3001, 40000) i, LATERAL (SELECT n FROM h WHERE $first = i AND t = lpad(i::text, 15, '0') OFFSET 0) x"),
		sql("SELECT count(*), sum(n) FROM h WHERE $first BETWEEN 3001 AND 40000"), "$name: every key");
	is(sql("SELECT status FROM sofort.indexes WHERE index = '$name'::regclass"), 'partial', "$name: not complete meanwhile");
}

# Groups of several columns, smaller and larger than a block, in codes and in numbers; what tells
# blocks apart is the first column, the third, the last, or none. Some blocks have the end of a group.
my %groups = (
	o_key => 'w, d, o, l',
	o_down => 'w, d DESC, o DESC, l',
	o_null => 'w, m NULLS FIRST, o',
	o_scattered => 'w, d, s',
	o_sorted => 'd, w, t',
	o_number => 'd, u',
	o_orders => 'o, l, w');
sql(q{
	CREATE TABLE o (w int NOT NULL, d smallint NOT NULL, o bigint NOT NULL, l smallint NOT NULL, m int, s varchar(8) COLLATE "C" NOT NULL,
		t varchar(8) COLLATE "C" NOT NULL, u int NOT NULL, n int) USING sofort});
# (columns of an index lie beside each other if it was there before the rows)
sql("CREATE INDEX $_ ON o USING sofort_index ($groups{$_})") for sort keys %groups;
# (what the first rows are decides about the codes)
sql(q{
	INSERT INTO o SELECT 0, 0, i * 7919 % 400 - 200, 0, i * 7919 % 400, '', '', -1, 0 FROM generate_series(1, 2048) i;
	INSERT INTO o SELECT i / 16000 - 1, i / 4000 % 4 - 2, i / 10 % 400 - 200, i % 10, nullif(i / 10 % 400, 7), lpad((i * 7919 % 997)::text, 8, '0'),
		lpad((i / 7)::text, 8, '0'), i, 0 FROM generate_series(0, 39999) i;
	DELETE FROM o WHERE u < 0 OR u BETWEEN 5000 AND 6000});
sql('VACUUM o');
sql('UPDATE o SET n = n + 1 WHERE u % 5 = 0; UPDATE o SET o = -o WHERE u % 997 = 0; BEGIN; UPDATE o SET n = n - 100 WHERE u % 3 = 0; ROLLBACK; ANALYZE o');
is(sql(q{SELECT string_agg(column_name || ' ' || encoding || ' ' || width, ', ' ORDER BY attnum) FROM sofort.columns WHERE relation = 'o'::regclass AND attnum < 8}),
	'w dictionary 1, d dictionary 1, o dictionary 2, l dictionary 1, m dictionary 2, s inline 16, t inline 16', 'codes of one and two bytes');
foreach my $name (sort keys %groups)
{
	restart_with('o', $name);
	(my $columns = $groups{$name}) =~ s/ (?:DESC|NULLS|FIRST|LAST)\b//g;
	my @columns = split /, /, $columns;
	my $prefix = join(', ', @columns[ 0 .. 1 ]);
	foreach my $where (
		"($columns) = (" . join(', ', map { "(SELECT $_ FROM o WHERE u = 23456)" } @columns) . ')',
		"($prefix) = (" . join(', ', map { "(SELECT $_ FROM o WHERE u = 34567)" } @columns[ 0 .. 1 ]) . ')',
		"($prefix) > (" . join(', ', map { "(SELECT $_ FROM o WHERE u = 38500)" } @columns[ 0 .. 1 ]) . ')',
		"($columns) < (" . join(', ', map { "(SELECT $_ FROM o WHERE u = 1999)" } @columns) . ')',
		"$columns[0] = 0 AND $columns[1] IS NULL",
		"$columns[0] = 1 AND $columns[1] > 0",
		"$columns[0] = 77")
	{
		my $query = "SELECT count(*), sum(u), sum(n), max(t) FROM o WHERE $where";
		same_rows($query, "$name: $where");
	}
	# the first and the last rows of blocks among them
	my $some = '(u % 256 IN (0, 1, 254, 255) OR u % 37 = 0)';
	my $same = join(' AND ', map { $_ eq 'm' ? '(o.m = r.m OR o.m IS NULL AND r.m IS NULL)' : "o.$_ = r.$_" } @columns);
	my $every = "SELECT count(*), sum(x.u) FROM (SELECT * FROM o WHERE $some) r, LATERAL (SELECT u FROM o WHERE $same AND o.u = r.u OFFSET 0) x";
	like(sql("EXPLAIN $every"), qr/Index (?:Only )?Scan using $name/, "$name is used") if $name ne 'o_null';
	is(sql($every), sql("SELECT count(*), sum(u) FROM o WHERE $some"), "$name: every key");
	is(sql("SELECT status FROM sofort.indexes WHERE index = '$name'::regclass"), 'partial', "$name: not complete meanwhile");
}

# The planner expects that of many look-ups only the first finds out where keys lie, unless they lie anywhere.
sql(q{
	CREATE TABLE big (a int, b int) USING sofort;
	CREATE INDEX big_a ON big USING sofort_index (a);
	CREATE INDEX big_b ON big USING sofort_index (b);
	INSERT INTO big SELECT i, i * 7919::bigint % 500000 FROM generate_series(0, 499999) i;
	ANALYZE big});
my %query = map { ("one $_" => "SELECT $_ FROM big WHERE $_ = 5", "many $_" => "SELECT $_ FROM generate_series(1, 100) i JOIN big ON $_ = i") } qw(a b);
sub costs { return map { $_ => (sql("EXPLAIN $query{$_}") =~ /^[^\n]*\.\.([\d.]+) rows/)[0] } keys %query; }
my %complete = costs();
$node->kill9;
$node->start;
my %missing = costs();
cmp_ok($missing{'one a'}, '>', 2 * $complete{'one a'}, 'without the index: one look-up');
cmp_ok($missing{'many a'}, '<', 1.5 * $complete{'many a'}, 'many of them');
cmp_ok($missing{'many b'}, '>', 50 * $complete{'many b'}, 'many, scattered');
is(sql("SELECT count(*) FROM ($query{'many a'}) x"), '100', 'many look-ups');
is(sql("SELECT count(*) FROM sofort.indexes WHERE relation = 'big'::regclass AND status = 'ready'"), '0', 'no index is complete');

$node->stop;
$node->teardown_node;
done_testing();
