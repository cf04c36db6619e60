# A column whose values did not repeat when its encoding was chosen, and do later: it gets a
# dictionary as the table grows, or from VACUUM, rows of the older shapes are not filled any
# more, and their space comes back. Killed at each step of it; beside readers with old
# snapshots; and if the values stop repeating, it leaves the dictionary for good.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('later');
$node->init(conf => [ 'autovacuum = off', 'jit = off', "sofort.pool_size = '1GB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub bytes { return sql("SELECT pool_bytes FROM sofort.tables WHERE relation = '$_[0]'::regclass"); }
sub encoding { return sql("SELECT encoding FROM sofort.columns WHERE relation = '$_[0]'::regclass AND column_name = '$_[1]'"); }

# PostgreSQL's blocks that have rows, and how many rows lie in the first of them
sub last_block { return sql("SELECT max((ctid::text::point)[0]) FROM $_[0]"); }
sub rows_up_to { return sql("SELECT count(*) FROM $_[0] WHERE (ctid::text::point)[0] <= $_[1]"); }

# What the rows take when they are just loaded
sub fresh
{
	my ($table) = @_;
	sql("CREATE TABLE fresh (LIKE $table INCLUDING ALL) USING sofort; INSERT INTO fresh SELECT * FROM $table");
	my $bytes = bytes('fresh');
	sql('DROP TABLE fresh');
	return $bytes;
}

# body is loaded with texts that are all different; v, the number of updates, is in each of the later ones
sub load
{
	my ($table, $rows, $with) = @_;
	sql(qq{CREATE TABLE $table (id int PRIMARY KEY, v int, body text, other text) USING sofort $with;
		INSERT INTO $table SELECT i, 0, 'text number ' || i || repeat('x', 30), 'other text number ' || i || repeat('o', 20) FROM generate_series(1, $rows) i});
	is(encoding($table, 'body'), 'reference', "$table: values hardly repeat");
	return;
}

# Every row once, in an order of no meaning, in transactions of 100
sql(q{CREATE PROCEDURE replace(t regclass, rows int, texts int, commits boolean DEFAULT true) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN 1 .. rows LOOP
			EXECUTE format('UPDATE %s SET v = v + 1, body = repeat(chr(65 + (1 + (%s * 7919) %% %s) %% %s %% 26), 300) || (1 + (%s * 7919) %% %s) %% %s WHERE id = 1 + (%s * 7919) %% %s',
				t, r, rows, texts, r, rows, texts, r, rows);
			IF commits AND r % 100 = 0 THEN COMMIT; END IF;
		END LOOP;
	END $$});

# The later text of a row, of so many
sub text { return "repeat(chr(65 + id % $_[0] % 26), 300) || id % $_[0]"; }

# The same for some rows in one statement
sub replace_at_once
{
	my ($table, $where) = @_;
	return sql("UPDATE $table SET v = 1, body = " . text(20) . ($where // ''));
}

sub wrong
{
	my ($table, $texts, $v) = @_;
	my $text = text($texts);
	return sql(qq{SELECT count(*), count(*) FILTER (WHERE body <> $text OR v <> $v
		OR other <> 'other text number ' || id || repeat('o', 20)) FROM $table});
}

# ---- the table grows ----
load('t', 10007, '');
sql('CREATE INDEX t_v ON t USING sofort_index (v)');
my $loaded = bytes('t');
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
sql("CALL replace('t', 10007, 50)");
is(encoding('t', 'body'), 'dictionary', 'they do now: a dictionary');
is(wrong('t', 50, 1), '10007|0', 'all values are right');
is($reader->query_safe(q{SELECT count(*), count(DISTINCT body), min(v), max(v) FROM t WHERE body LIKE 'text number%'}),
	'10007|10007|0|0', 'an old snapshot sees those of before');
$reader->query_safe('COMMIT');
$reader->quit;
my $both = bytes('t');
sql('VACUUM t');
sql('VACUUM t');
cmp_ok(bytes('t'), '<', $both - 0.4 * $loaded, 'VACUUM gives back what the older versions took');
cmp_ok(bytes('t'), '<', 2.5 * fresh('t'), 'within 2.5 times of the rows');
sql("CALL replace('t', 10007, 60)") for 1 .. 2;
cmp_ok(bytes('t'), '<', 2.5 * fresh('t'), 'and stays so');
is(wrong('t', 60, 3), '10007|0', 'all values are right after more updates');
is($node->verify_problems, '', 'verify');

# ---- it does not grow: VACUUM looks ----
load('still', 2000, '');
sql("CALL replace('still', 2000, 20)");
is(encoding('still', 'body'), 'reference', 'few new rows: nobody has looked');
my $large = bytes('still');
sql('VACUUM still');
is(encoding('still', 'body'), 'dictionary', 'VACUUM finds that values repeat');
sql("CALL replace('still', 2000, 20)");
sql('VACUUM still; SELECT pg_current_xact_id(); VACUUM still; SELECT pg_current_xact_id(); VACUUM still');
is(wrong('still', 20, 2), '2000|0', 'all values are right');
cmp_ok(bytes('still'), '<', $large / 3, 'the next versions are small, and nothing is left of those before');

# ---- a small gain is not worth it ----
sql(q{CREATE TABLE wide (id int PRIMARY KEY, v int, body text, big text) USING sofort;
	INSERT INTO wide SELECT i, 0, 'text number ' || i || repeat('x', 30), repeat(md5(i::text), 10) FROM generate_series(1, 3000) i});
sql("UPDATE wide SET body = 'the same text for each of all these rows'");
sql('VACUUM wide');
is(encoding('wide', 'body'), 'reference', 'a row that would not be half as large is left as it is');

# ---- a fill factor: updates stay in their block, but not in a retired one ----
load('near', 4001, 'WITH (fillfactor = 50)');
replace_at_once('near', ' WHERE id > 2000');
my $last = last_block('near');
sql('VACUUM near');
is(encoding('near', 'body'), 'dictionary', 'fill factor: a dictionary');
replace_at_once('near');
is(rows_up_to('near', $last), '0', 'fill factor: no new version lies in an old block');
sql("CALL replace('near', 4001, 20)");
sql('VACUUM near; VACUUM near');
is(wrong('near', 20, 2), '4001|0', 'fill factor: all values are right');
cmp_ok(bytes('near'), '<', 2.5 * fresh('near'), 'fill factor: the size');

# after a start VACUUM finds the free rows of old blocks
load('started', 4001, 'WITH (fillfactor = 50)');
replace_at_once('started', ' WHERE id > 2000');
$last = last_block('started');
sql('VACUUM started');
is(encoding('started', 'body'), 'dictionary', 'before a start: a dictionary');
$node->kill9;
$node->start;
sql('VACUUM started');
replace_at_once('started');
is(rows_up_to('started', $last), '0', 'after a start: no new version lies in an old block');
is(wrong('started', 20, 1), '4001|0', 'after a start: all values are right');

# ---- one transaction, rolled back and not ----
load('one', 5003, '');
sql("BEGIN; CALL replace('one', 5003, 20, false); ROLLBACK");
is(sql(q{SELECT count(*), count(DISTINCT body), max(v) FROM one WHERE body LIKE 'text number%'}), '5003|5003|0', 'rolled back: the values of before');
sql("BEGIN; CALL replace('one', 5003, 20, false); COMMIT");
is(wrong('one', 20, 1), '5003|0', 'committed: all values are right');
is(encoding('one', 'body'), 'dictionary', 'in one transaction: a dictionary');
is($node->verify_problems, '', 'verify');

# ---- killed: when the shape is published, while values are freed, when a run is released ----
foreach my $kill ([ 'store-shape-published', "CALL replace('killed', 6007, 30)", 'the shape is published' ],
	[ 'store-retired-cleared', 'VACUUM killed', 'values of retired rows are freed' ],
	[ 'store-run-released', 'VACUUM killed', 'a run is released' ])
{
	my ($point, $statement, $what) = @$kill;
	load('killed', 6007, '');
	# rows that the first VACUUM frees may be used when all transactions of that time have ended
	sql("CALL replace('killed', 6007, 30)"), sql('VACUUM killed'), sql('SELECT pg_current_xact_id()') if $statement =~ /VACUUM/;
	ok($node->crash_at($point, $statement), "killed when $what");
	$node->start;
	is($node->verify_problems, '', "killed when $what: verify");
	my $text = text(30);
	is(sql(qq{SELECT count(*) FROM killed WHERE CASE v WHEN 0 THEN body <> 'text number ' || id || repeat('x', 30)
		ELSE body <> $text END}), '0', "killed when $what: all values are right");
	# the retired shapes are known after the start
	sql("CALL replace('killed', 6007, 30)");
	sql('VACUUM killed; VACUUM killed');
	cmp_ok(bytes('killed'), '<', 2.5 * fresh('killed'), "killed when $what: the size");
	is(encoding('killed', 'body'), 'dictionary', "killed when $what: a dictionary");
	is($node->verify_problems, '', "killed when $what: verify after more updates");
	sql('DROP TABLE killed');
}

# ---- values stop repeating: it leaves the dictionary, and gets no other ----
sql(q{CREATE PROCEDURE scatter() LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN 1 .. 10007 LOOP
			UPDATE t SET v = v + 1, body = 'different ' || r || repeat('d', 200) WHERE id = 1 + (r * 7919) % 10007;
			IF r % 100 = 0 THEN COMMIT; END IF;
		END LOOP;
	END $$});
sql('CALL scatter(); VACUUM t');
is(encoding('t', 'body'), 'reference', 'texts that are all different: by reference again');
cmp_ok(bytes('t'), '<', 2.5 * fresh('t'), 'texts that are all different: the size');
sql("CALL replace('t', 10007, 50)");
sql('VACUUM t; VACUUM t');
is(encoding('t', 'body'), 'reference', 'no second dictionary');
is(wrong('t', 50, 5), '10007|0', 'all values are right at the end');
$node->kill9;
$node->start;
is(wrong('t', 50, 5), '10007|0', 'and after a kill');
is($node->verify_problems, '', 'verify at the end');
done_testing();
