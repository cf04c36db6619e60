# Tables of random shapes: columns of many types, widths and shares of NULLs, with and without
# dictionaries, in any order, with any indexes. Sessions change rows of their own side by side,
# with savepoints, row locks, foreign keys, rollbacks and maintenance, and are killed.
#
# The contents of a row follow from its owner, number and version. Each session keeps the
# versions of its rows in a row of table model, which it changes in the same transaction: so any
# snapshot tells by itself what it must contain.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Session;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

my $seed = $ENV{SOFORT_SEED} || $$ * 1000 + time() % 1000;
my $shapes = $ENV{SOFORT_LONG} ? 30 : 6;
my $seconds = $ENV{SOFORT_LONG} ? 4 : 2;
my $owners = 4;
my $rows_of_owner = 200;
my @maintenance = ('VACUUM s', 'VACUUM FULL s', 'ANALYZE s', 'REINDEX TABLE CONCURRENTLY s', 'VACUUM (FREEZE) s', 'REINDEX TABLE s');
srand($seed);
diag("SOFORT_SEED=$seed");

sub chance { my ($percent) = @_; return rand(100) < $percent; }
sub any { return $_[ rand @_ ]; }

# ---- shapes ----

# Expressions of a type for a number %h (bigint, not negative), with so many different values
my %expressions = (
	bool => '%h %% 2 = 0',
	'"char"' => 'chr(65 + (%h %% 26)::int)::"char"',
	smallint => '(%h %% least(%k, 30000))::smallint',
	int => '(%h %% %k)::int',
	oid => '(%h %% %k)::oid',
	bigint => '%h %% %k * 7000000001',
	real => '((%h %% %k) / 8.0)::real',
	float8 => '(%h %% %k)::float8 / 7',
	numeric => 'round((%h %% %k)::numeric / 100, 2)',
	'numeric(12,4)' => '((%h %% %k)::numeric / 3)::numeric(12,4)',
	text => q{'t' || %h %% %k},
	'varchar(40)' => q{repeat('v', (%h %% 20)::int) || %h %% %k},
	'char(9)' => q{(%h %% %k)::char(9)},
	name => q{('n' || %h %% %k)::name},
	bytea => q{decode(md5((%h %% %k)::text), 'hex')},
	uuid => 'md5((%h %% %k)::text)::uuid',
	date => q{date '2000-01-01' + (%h %% %k)::int},
	time => q{time '00:00' + (%h %% %k) * interval '1 s'},
	timestamptz => q{timestamptz '2000-01-01 00:00+00' + (%h %% %k) * interval '1 min'},
	interval => q{(%h %% %k) * interval '1 day 1 s'},
	inet => q{inet '10.0.0.0' + (%h %% %k)},
	'int[]' => 'ARRAY[(%h %% %k)::int, (%h %% 3)::int]',
	'text[]' => q{ARRAY['a' || %h %% %k, NULL, 'b']},
	int4range => 'int4range((%h %% %k)::int, (%h %% %k)::int + 5)',
	jsonb => q{jsonb_build_object('k', %h %% %k, 'l', 'x')},
	color => '(enum_range(NULL::color))[1 + (%h %% 5)::int]',
	short_text => q{('d' || %h %% %k)::short_text},
	long => q{repeat(md5((%h %% %k)::text), 1 + (%h %% %k)::int %% 100)},
	out_of_row => q{repeat(md5((%h %% %k)::text), 300 + (%h %% %k)::int %% 50)},
);
my %type_of = (long => 'text', out_of_row => 'text');
my %no_index = map { $_ => 1 } qw(long out_of_row int4range jsonb text[]);

# The number that a column's values come from, for owner o, number n and some of version v
sub number_of
{
	my ($column, $version) = @_;
	return "(hashint8extended(o * 1000003::bigint + n * 1009 + ($version), $column->{salt}) & 1073741823)";
}

# NULLs: none; some; most; only in later versions, which no row has when the shape is chosen
sub random_column
{
	my ($name, $loaded, @nulls) = @_;
	my $kind = any(grep { $loaded < 100_000 || !/^(long|out_of_row)$/ } sort keys %expressions);
	my %column = (
		name => $name, kind => $kind, type => $type_of{$kind} || $kind, salt => int(rand(1e6)),
		changes => any('never', 'seldom', 'always'), nulls => any(@nulls));
	my $version = { never => '0', seldom => 'v / 3', always => 'v' }->{ $column{changes} };
	my $values = any(1, 2, 10, 200, 300, 3000, 70_000, 1_000_000_000);
	my $expression = $expressions{$kind};
	my $number = number_of(\%column, $version);
	# (arithmetic with dates and sizes must stay within their range)
	$values = 3000 if $values > 100_000 && $kind =~ /^(time|interval|date|timestamptz|inet|numeric.*|real|char.9.|long|out_of_row)$/;
	$expression =~ s/%h/$number/g;
	$expression =~ s/%k/$values/g;
	$expression =~ s/%%/%/g;
	my $null_if = {
		none => undef, some => "$number / 7 % 5 = 0", most => "$number / 7 % 50 <> 0",
		later => ($column{changes} eq 'never' ? undef : "$version > 3") }->{ $column{nulls} };
	$column{expression} = defined $null_if ? "CASE WHEN $null_if THEN NULL ELSE $expression END" : $expression;
	$column{not_null} = !defined $null_if && chance(50);
	return \%column;
}

sub random_shape
{
	# (only large tables have dictionaries of more than 65,535 codes)
	my $loaded = any(0, 300, 300, 3000, 3000, 3000, 3000, 220_000);
	# (half of them never have any: their rows may lie side by side without a bitmap or padding)
	my @nulls = chance(50) ? ('none') : ('none', 'none', 'some', 'most', 'later');
	my @columns = map { random_column("c$_", $loaded, @nulls) } 1 .. any($loaded < 100_000 ? (0, 1, 2, 3, 5, 8, 13) : (1, 2, 4));
	# who a row is, anywhere among them
	foreach my $own ([ 'owner', 'o' ], [ 'number', 'n' ], [ 'version', 'v' ])
	{
		my $type = any('int', 'bigint', 'int');
		splice(@columns, rand(@columns + 1), 0, {
			name => $own->[0], kind => $type, type => $type, expression => $own->[1], not_null => 1,
			changes => $own->[0] eq 'version' ? 'always' : 'never' });
	}
	my @indexes;
	my @can = grep { !$no_index{ $_->{kind} } } @columns;
	foreach my $i (1 .. int(rand(4)))
	{
		my @keys = map { any(@can)->{name} . any('', '', ' DESC', ' NULLS FIRST') } 1 .. any(1, 1, 2, 3);
		my $am = any('sofort_index', 'sofort_index', 'sofort_index', 'btree');
		push @indexes, "CREATE INDEX i$i ON s USING $am (" . join(', ', @keys) . ')'
		  . ($am eq 'btree' ? '' : ' WITH (placement = ' . any('dram', 'dram', 'pmem', 'hybrid') . ')');
	}
	return {
		columns => \@columns, indexes => \@indexes, dropped => chance(30), fillfactor => any(100, 100, 90, 40),
		identity => any('PRIMARY KEY', 'PRIMARY KEY', 'UNIQUE', 'INDEX'), child => chance(50),
		loaded => $loaded };
}

# What a row must be, as a select list over o, n and v
sub row_of
{
	my ($shape) = @_;
	return join(', ', map { "$_->{expression} AS $_->{name}" } @{ $shape->{columns} });
}

# SET of an update of some columns to the version after v
sub set_list
{
	my ($shape, @changes) = @_;
	my %wanted = map { $_ => 1 } @changes;
	return join(', ', map { "$_->{name} = (SELECT $_->{expression} FROM (SELECT owner AS o, number AS n, version + 1 AS v) w)" }
		grep { $wanted{ $_->{changes} } && $_->{name} !~ /^(owner|number)$/ } @{ $shape->{columns} });
}

sub shape_text
{
	my ($shape) = @_;
	return "loaded $shape->{loaded}, fillfactor $shape->{fillfactor}, $shape->{identity}, "
	  . ($shape->{child} ? 'referenced, ' : '') . ($shape->{dropped} ? 'a dropped column, ' : '')
	  . join('; ', map({ "$_->{name} $_->{type} $_->{expression}" . ($_->{not_null} ? ' NOT NULL' : '') } @{ $shape->{columns} }),
		@{ $shape->{indexes} });
}

# ---- one table ----

my $medium = $SofortNode::am eq 'sofort' && $seed % 3 == 0 ? 'msync' : 'process';
my $node = SofortNode->new('main');
$node->init(conf => [
	"deadlock_timeout = '50ms'", 'max_connections = 30', 'autovacuum_naptime = 1', "sofort.rebuild_segment = 2",
	$medium eq 'msync' ? ("sofort.durability = 'msync'", 'sofort.pool_path = \'' . $node->basedir . "/pool'") : () ]);
$node->start;
diag("medium $medium");

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	CREATE TYPE color AS ENUM ('red', 'green', 'blue', 'white', 'black');
	CREATE DOMAIN short_text AS text CHECK (length(VALUE) < 20);
});

sub make_table
{
	my ($shape) = @_;
	my @columns = map { "$_->{name} $_->{type}" . ($_->{not_null} ? ' NOT NULL' : '') } @{ $shape->{columns} };
	splice(@columns, rand @columns, 0, 'dropped ' . any('int', 'text', 'bigint') . any('', " DEFAULT '7'")) if $shape->{dropped};
	my $row = row_of($shape);

	sql(join(";\n",
		'DROP TABLE IF EXISTS child, s, model, shared CASCADE',
		"CREATE TABLE s (" . join(', ', @columns) . ") USING $SofortNode::am"
		  . ($SofortNode::am eq 'sofort' ? " WITH (fillfactor = $shape->{fillfactor})" : ''),
		$shape->{dropped} ? 'ALTER TABLE s DROP COLUMN dropped' : (),
		$shape->{identity} eq 'INDEX' ? 'CREATE INDEX s_identity ON s (owner, number)' : "ALTER TABLE s ADD $shape->{identity} (owner, number)",
		"CREATE TABLE model (owner int PRIMARY KEY, versions int[], added bigint) USING $SofortNode::am",
		"INSERT INTO model SELECT o, array_fill(0, ARRAY[$rows_of_owner]), 0 FROM generate_series(1, $owners) o",
		"CREATE TABLE shared (id int PRIMARY KEY, sum bigint) USING $SofortNode::am",
		'INSERT INTO shared SELECT i, 0 FROM generate_series(1, 3) i',
		# rows of nobody, from which the columns' widths and dictionaries are learned
		"INSERT INTO s SELECT $row FROM (SELECT 0 AS o, n, 1 AS v FROM generate_series(1, $shape->{loaded}) n) w",
		(is_referenced($shape) ?
		  ("CREATE TABLE child (owner " . column_type($shape, 'owner') . ", number " . column_type($shape, 'number')
			  . ", FOREIGN KEY (owner, number) REFERENCES s (owner, number) ON DELETE CASCADE) USING $SofortNode::am",
			'CREATE INDEX child_key ON child (owner, number)') :
		  "CREATE TABLE child (owner int, number int) USING $SofortNode::am"),
		@{ $shape->{indexes} }));
	make_functions($shape);
	return;
}

# (without a unique constraint nothing can be)
sub is_referenced { my ($shape) = @_; return $shape->{child} && $shape->{identity} ne 'INDEX'; }

sub column_type
{
	my ($shape, $name) = @_;
	my ($column) = grep { $_->{name} eq $name } @{ $shape->{columns} };
	return $column->{type};
}

sub make_functions
{
	my ($shape) = @_;
	my $row = row_of($shape);
	my $all = set_list($shape, qw(never seldom always));
	my $changed = set_list($shape, qw(seldom always));
	my $often = set_list($shape, qw(always));
	my $referenced = is_referenced($shape) ? 'true' : 'false';
	my $unique = $shape->{identity} eq 'INDEX' ? 'false' : 'true';
	my $upsert = $unique eq 'false' ? '' : "ON CONFLICT (owner, number) DO UPDATE SET " . ($all =~ s/\b(owner|number|version)\b(?= AS| \+)/s.$1/gr);

	sql(qq{
	-- one change of a row of mine; returns its version after it
	CREATE OR REPLACE FUNCTION change(me int, k int, version_now int) RETURNS int LANGUAGE plpgsql AS \$\$
	#variable_conflict use_column
	DECLARE
		kind float8 := random();
		o int := me; n int := k; v int;
		found_rows int;
	BEGIN
		IF version_now = 0 OR (kind < 0.1 AND $unique) THEN
			v := version_now + 1;
			INSERT INTO s SELECT $row $upsert;
			IF $referenced AND version_now = 0 THEN
				INSERT INTO child VALUES (me, k);
			END IF;
		ELSIF kind < 0.25 THEN
			IF $referenced AND random() < 0.3 THEN
				DELETE FROM child WHERE owner = me AND number = k;
			END IF;
			DELETE FROM s WHERE owner = me AND number = k;
			v := 0;
		ELSIF kind < 0.45 THEN
			UPDATE s SET $all WHERE owner = me AND number = k;
			v := version_now + 1;
		ELSIF kind < 0.7 OR (version_now + 1) % 3 = 0 THEN
			UPDATE s SET $changed WHERE owner = me AND number = k;
			v := version_now + 1;
		ELSE
			PERFORM FROM s WHERE owner = me AND number = k FOR UPDATE;
			UPDATE s SET $often WHERE owner = me AND number = k AND version = version_now;
			v := version_now + 1;
		END IF;
		GET DIAGNOSTICS found_rows = ROW_COUNT;
		IF found_rows <> 1 THEN
			RAISE EXCEPTION 'row % of % with version %: % rows', k, me, version_now, found_rows USING ERRCODE = 'P0098';
		END IF;
		RETURN v;
	END \$\$;

	-- transactions of one session until the time is over
	CREATE OR REPLACE PROCEDURE work(me int, seconds float8) LANGUAGE plpgsql AS \$\$
	DECLARE
		until timestamptz := clock_timestamp() + seconds * interval '1 s';
		mine int[]; before int[];
		total bigint; more int; k int; other int;
	BEGIN
		WHILE clock_timestamp() < until LOOP
			SELECT versions, added INTO STRICT mine, total FROM model WHERE owner = me;
			BEGIN
				FOR i IN 1 .. 1 + (random() * 8)::int LOOP
					before := mine;
					BEGIN
						FOR j IN 1 .. 1 + (random() * 3)::int LOOP
							k := 1 + floor(random() * $rows_of_owner);
							mine[k] := change(me, k, mine[k]);
						END LOOP;
						IF random() < 0.1 THEN
							other := 1 + floor(random() * $owners);
							PERFORM FROM s WHERE owner = other AND number BETWEEN k - 3 AND k FOR KEY SHARE SKIP LOCKED;
						END IF;
						IF random() < 0.3 THEN
							RAISE EXCEPTION 'undone' USING ERRCODE = 'P0099';
						END IF;
					EXCEPTION WHEN SQLSTATE 'P0099' OR deadlock_detected THEN
						mine := before;
					END;
				END LOOP;
				more := random() * 100;
				k := 1 + floor(random() * 3);
				UPDATE shared SET sum = sum + more WHERE id = k;
				UPDATE model SET versions = mine, added = total + more WHERE owner = me;
				IF random() < 0.15 THEN
					RAISE EXCEPTION 'undone' USING ERRCODE = 'P0099';
				END IF;
			EXCEPTION WHEN SQLSTATE 'P0099' OR serialization_failure OR deadlock_detected THEN
				NULL;
			END;
			IF random() < 0.1 THEN
				ROLLBACK;
			ELSE
				COMMIT;
			END IF;
		END LOOP;
	END \$\$;

	CREATE OR REPLACE VIEW expected AS
		SELECT $row FROM (
			SELECT 0 AS o, n, 1 AS v FROM generate_series(1, $shape->{loaded}) n
			UNION ALL SELECT m.owner, i, m.versions[i] FROM model m, generate_series(1, $rows_of_owner) i WHERE m.versions[i] > 0) w;

	-- everything that is not as it must be, in one snapshot
	CREATE OR REPLACE FUNCTION differences() RETURNS SETOF text LANGUAGE sql STABLE BEGIN ATOMIC
		(SELECT 'missing ' || left(e::text, 300) FROM (SELECT e::text FROM expected e EXCEPT ALL SELECT s::text FROM s) e LIMIT 3)
		UNION ALL
		(SELECT 'too much ' || left(e::text, 300) FROM (SELECT s::text FROM s EXCEPT ALL SELECT e::text FROM expected e) e LIMIT 3)
		UNION ALL
		SELECT 'sums differ' WHERE (SELECT sum(sum) FROM shared) <> (SELECT sum(added) FROM model)
		UNION ALL
		SELECT 'children differ' WHERE $referenced AND (SELECT count(*) FROM child) <> (SELECT count(*) FROM expected WHERE owner > 0);
	END;
	});
	return;
}

# Each index read from end to end, against the table.
sub index_differences
{
	my ($shape) = @_;
	my @problems;
	foreach my $column (grep { !$no_index{ $_->{kind} } } @{ $shape->{columns} })
	{
		my $c = $column->{name};
		my $sum = "SELECT count(*), count($c), sum(hashtext($c\::text)::bigint) FROM";
		my ($by_index, $by_scan) = split(/\n/, sql(qq{
			SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;
			$sum (SELECT $c FROM s ORDER BY $c OFFSET 0) i;
			RESET enable_seqscan; SET enable_indexscan = off; SET enable_indexonlyscan = off; RESET enable_sort;
			$sum s;}));
		push @problems, "$c: $by_index by index, $by_scan by scan" if $by_index ne $by_scan;
	}
	return join("\n", @problems);
}

# What a session has said to what was sent last, when it has ended by itself
sub end_session
{
	my ($s) = @_;
	answer($s);
	$s->{in} .= "\\q\n";
	$s->{run}->finish;
	# (errors may come later than the mark)
	return $s->{out} =~ s/mark\d+\n//gr . $s->{err};
}

# Writers, a reader whose snapshots must be whole, and maintenance, for a while
sub run_load
{
	my ($how, $loaded) = @_;
	my @s = map { session_on($node) } 1 .. $owners + 2;
	my $reader = $s[$owners];
	my $keeper = $s[ $owners + 1 ];
	say_to($s[0], "SET default_transaction_isolation = 'repeatable read'") if chance(50);
	send_to($s[ $_ - 1 ], "CALL work($_, $seconds)") foreach 1 .. $owners;
	if ($how eq 'killed')
	{
		send_to($keeper, any(@maintenance));
		usleep($seconds * 1e6 * (0.3 + rand(0.6)));
		$node->kill9;
		SofortNode::drop_session($_) foreach @s;
		return '';
	}
	my $problems = '';
	foreach my $turn (1 .. ($loaded < 100_000 ? 2 : 1))
	{
		send_to($reader, q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM differences() UNION ALL SELECT * FROM differences(); COMMIT});
		send_to($keeper, any(@maintenance));
		$problems .= answer($reader);
		answer($keeper);
	}
	# (REINDEX may be the victim of a deadlock with who has read and goes on to write, as on heap)
	my $kept = end_session($keeper);
	return join('', $problems, map({ end_session($_) } @s[ 0 .. $owners ]), $kept =~ /ERROR:  40P01/ ? '' : $kept);
}

foreach my $number (1 .. $shapes)
{
	my $shape = random_shape();
	make_table($shape);
	foreach my $how ('ended', 'killed', 'ended')
	{
		my $said = run_load($how, $shape->{loaded});
		$node->start if $how eq 'killed';
		# (a query that raises an error is a problem as well)
		my @found = map { eval { $_->() } // $@ }
		  (sub { sql('SELECT * FROM differences()') }, sub { index_differences($shape) }, sub { $node->verify_problems });
		my $problems = join("\n", grep { $_ ne '' } $said, @found);
		is($problems, '', "shape $number, sessions $how: every row is as its owner left it") and next;
		diag(shape_text($shape));
		last;
	}
}
$node->stop;
done_testing();
