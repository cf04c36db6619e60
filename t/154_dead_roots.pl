# A row that was updated keeps its first version as a root: dead to all, it has the key of the index
# entries, and what builds an index reads it. VACUUM, which frees values of dictionaries that no row
# uses, must leave it its own, also if all newer versions of the row have left the dictionary.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('roots');
$node->init(conf => [ 'autovacuum = off', 'checkpoint_timeout = 1h' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# The column leaves its dictionary when 3,000 rows have a value each; then all rows are updated in a
# column without an index, so that their new versions have no codes.
foreach my $placement ('dram', 'pmem', 'none')
{
	my $t = "t_$placement";
	my $index = $placement eq 'none' ? '' : "CREATE UNIQUE INDEX ${t}_s ON $t USING sofort_index (s, id) WITH (placement = $placement);";
	sql(qq{CREATE TABLE $t (id int, s text, n int) USING sofort; $index
		INSERT INTO $t SELECT g, 'old value number ' || g % 500, 0 FROM generate_series(1, 4000) g});
	my $encoding = "SELECT encoding FROM sofort.columns WHERE relation = '$t'::regclass AND column_name = 's'";
	is(sql($encoding), 'dictionary', "$placement: the column has a dictionary");
	sql(qq{INSERT INTO $t SELECT 10000 + g, 'new value number ' || g, 0 FROM generate_series(1, 3000) g});
	isnt(sql($encoding), 'dictionary', "$placement: the column has left it");
	sql("UPDATE $t SET n = n + 1");
	vacuum($t) if $index;
}

# There was no index when values were found to be unused, and there is one when they could go.
{
	my $holder = $node->background_psql('postgres');
	my $hold = 'BEGIN; CREATE TEMP TABLE holds_the_horizon ON COMMIT DROP AS SELECT 1';
	$holder->query_safe($hold);
	sql('VACUUM t_none');
	$holder->query_safe("COMMIT; $hold");
	sql('VACUUM t_none');
	sql('CREATE UNIQUE INDEX t_none_s ON t_none USING sofort_index (s, id)');
	$holder->query_safe('COMMIT');
	$holder->quit;
	vacuum('t_none');
}

# Each waits for the transactions that ran at the one before.
sub vacuum
{
	my ($t) = @_;
	sql("SELECT pg_current_xact_id(); VACUUM $t") foreach 1 .. 6;
	return;
}

sub right
{
	my ($when) = @_;
	foreach my $t ('t_dram', 't_pmem', 't_none')
	{
		my $index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
		is(sql("$index SELECT count(*) FROM $t WHERE s = 'old value number 7'"), '8', "$t, $when: rows are found by their key");
		is(sql("$index SELECT count(*) FROM $t WHERE s IS NULL"), '0', "$t, $when: no row has another key");
		like($node->error_of("INSERT INTO $t VALUES (1507, 'old value number 7', 0)"), qr/^23505/, "$t, $when: no key twice");
	}
	is($node->verify_problems, '', "$when: clean");
	return;
}

right('after VACUUM');
$node->restart;
right('after a restart');
$node->stop;
$node->append_conf('postgresql.conf', 'sofort.recovery_workers = 0');
$node->start;
$node->kill9;
$node->start;
right('without indexes');

# Ended chains are collected by later statements, with their entries in the index in the pool; rows
# that are filled again are not found by what these left.
sql($_) foreach 'DELETE FROM t_pmem WHERE id <= 3000', 'DELETE FROM t_pmem WHERE id <= 3500';
sql(join(';', map { "DELETE FROM t_pmem WHERE id = $_" } 3501 .. 3900));
sql(q{INSERT INTO t_pmem SELECT 20000 + i, 'third value number ' || i, 0 FROM generate_series(1, 2000) i});
sql(join(';', map { my $from = $_ * 50; "INSERT INTO t_pmem SELECT 40000 + i, 'fourth value ' || i % 200, 0 FROM generate_series($from, $from + 49) i" } 0 .. 119));
is(sql(q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*), count(*) FILTER (WHERE s <> 'old value number 7') FROM t_pmem WHERE s = 'old value number 7'}),
	sql(q{SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*), count(*) FILTER (WHERE s <> 'old value number 7') FROM t_pmem WHERE s = 'old value number 7'}),
	'deleted and filled again: the same rows by index');
is($node->verify_problems, '', 'deleted and filled again: clean');

# ---- an index is made after the values of dead roots went: these read as what the rows have now, by
# chance, and as something else when the codes are given out again ----
sql(q{CREATE TABLE went (id int, s text) USING sofort;
	INSERT INTO went SELECT g, 'old value number ' || g % 500 FROM generate_series(1, 4000) g;
	UPDATE went SET s = '' WHERE id > 1016;
	CREATE TABLE went8 (id int, s bigint) USING sofort;
	INSERT INTO went8 SELECT g, 1000000000000 + g % 500 FROM generate_series(1, 4000) g;
	UPDATE went8 SET s = -1 WHERE id > 1016});
is(sql(q{SELECT string_agg(encoding, ',') FROM sofort.columns WHERE relation IN ('went'::regclass, 'went8'::regclass) AND column_name = 's'}),
	'dictionary,dictionary', 'both columns have a dictionary');
vacuum('went');
vacuum('went8');
# text: nothing is there, as in the rows; bigint: the value is there still, and comes back with another code
sql(q{DELETE FROM went8 WHERE s <> 1000000000400 AND (s > 0 OR id % 500 <> 400)});
sql('VACUUM went8');
sql(q{UPDATE went8 SET s = 1000000000400 WHERE s < 0});
my $went = sql(q{SELECT dictionary_entries FROM sofort.columns WHERE relation = 'went'::regclass AND column_name = 's'});
cmp_ok($went, '<', 10, 'values of dead roots went');
sql('CREATE INDEX ON went USING sofort_index (s); CREATE INDEX ON went8 USING sofort_index (s)');
sql(q{INSERT INTO went SELECT g, 'new value number ' || g % 500 FROM generate_series(5001, 9000) g;
	INSERT INTO went8 SELECT g, 2000000000000 + g % 500 FROM generate_series(5001, 9000) g});
$node->restart;
foreach my $case ([ 'went', q{''}, 2984 ], [ 'went', q{'new value number 7'}, 8 ], [ 'went8', 1000000000400, 8 ], [ 'went8', 2000000000007, 8 ])
{
	my ($t, $value, $n) = @$case;
	is(sql("SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM $t WHERE s = $value"), $n, "$t: rows with $value, after a restart");
}
is($node->verify_problems, '', 'an index made after that: clean');

# ---- values that only dead roots had go when the roots go ----
sql('DELETE FROM t_dram');
vacuum('t_dram');
is($node->verify_problems, '', 'all deleted: clean');
$node->stop;
$node->teardown_node;
done_testing();
