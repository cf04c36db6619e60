# A transaction of many subtransactions: each names again, in its write set, what is left of a
# reservation of rows, and fills one of them or two. Commit, rollback, a kill at each point of
# these, and a prepared one: all rows or none, as in heap tables, by index and by table.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $seed = $ENV{SOFORT_SEED} || int(rand(1_000_000));
srand($seed);
note("seed $seed");

my $node = SofortNode->new('subtransactions');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_prepared_transactions = 5', 'checkpoint_timeout = 1h' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Blocks with and without an exception, one within the other, rows in two tables in turn,
# several commands in one, updates with and without a new index entry, deletions
sql(q{CREATE TABLE sofort1 (id int PRIMARY KEY, v int, s text) USING sofort; CREATE INDEX ON sofort1 USING sofort_index (v);
	CREATE TABLE sofort2 (id int, v int, s text) USING sofort; CREATE INDEX ON sofort2 USING sofort_index (id);
	CREATE TABLE heap1 (id int PRIMARY KEY, v int, s text) USING heap;
	CREATE TABLE heap2 (id int, v int, s text) USING heap; CREATE INDEX ON heap2 (id);
	CREATE PROCEDURE blocks(am text, seed float8, first int, n int) LANGUAGE plpgsql AS $$
	DECLARE k int; what int; a text := am || '1'; b text := am || '2';
	BEGIN
		PERFORM setseed(seed);
		FOR i IN first .. first + n - 1 LOOP
			what := floor(random() * 8);
			k := first + floor(random() * n);
			BEGIN
				IF random() < 0.3 THEN EXECUTE format('INSERT INTO %I VALUES ($1, $1, $2)', b) USING i, 'other ' || i; END IF;
				IF what = 0 THEN EXECUTE format('UPDATE %I SET v = v + 1 WHERE id = $1', a) USING k;
				ELSIF what = 1 THEN EXECUTE format('UPDATE %I SET s = $2 WHERE id = $1', a) USING k, repeat('long', 40);
				ELSIF what = 2 THEN EXECUTE format('DELETE FROM %I WHERE id = $1', a) USING k; END IF;
				EXECUTE format('INSERT INTO %I VALUES ($1, $1, $2)', a) USING i, 'row ' || i;
				IF random() < 0.2 THEN
					BEGIN
						EXECUTE format('UPDATE %I SET s = $1 WHERE id BETWEEN $2 AND $2 + 3', b) USING 'inner', k;
						EXECUTE format('INSERT INTO %I VALUES ($1, $1, NULL)', b) USING -i;
						IF random() < 0.5 THEN RAISE EXCEPTION 'inner'; END IF;
					EXCEPTION WHEN raise_exception THEN NULL; END;
				END IF;
				IF random() < 0.2 THEN RAISE EXCEPTION 'outer'; END IF;
			EXCEPTION WHEN raise_exception THEN NULL; END;
		END LOOP;
	END $$});

sub contents
{
	my ($am, $index) = @_;
	my $how = $index ? 'SET enable_seqscan = off; SET enable_bitmapscan = off;' : 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;';
	return sql("$how " . join(';', map { "SELECT count(*), sum(hashtext(id || ' ' || v || ' ' || coalesce(s, '-'))::bigint) FROM ${am}$_ WHERE id > -1000000" } (1, 2)) . "; SELECT count(*), sum(v) FROM ${am}1 WHERE v > -1000000");
}

sub same
{
	my ($what) = @_;
	my $heap = contents('heap', 0);
	is(contents('sofort', 0), $heap, "$what: the tables have the rows of the heap tables");
	is(contents('sofort', 1), $heap, '... by their indexes, too');
	is($node->verify_problems, '', '... verify');
	return;
}

my $first = 1;
sub work
{
	my $n = shift || 700;
	my $random = rand(1);
	my $text = join(' ', map { "CALL blocks('$_', $random, $first, $n);" } ('sofort', 'heap'));
	$first += $n;
	return $text;
}

sql(work());
same('one transaction, committed');
cmp_ok(sql('SELECT count(*) FROM sofort1'), '>', 300, '... there are some');
sql('BEGIN; ' . work() . ' ROLLBACK');
same('rolled back');
sql('VACUUM sofort1, sofort2');
sql('BEGIN; ' . work() . ' SAVEPOINT s; ' . work() . ' ROLLBACK TO s; ' . work() . ' RELEASE s; ' . work(100) . ' COMMIT');
same('rolled back to a savepoint, and committed');

foreach my $point ('prepare-before-durable', 'prepare-durable', 'commit-before-stamp', 'commit-stamped')
{
	ok($node->crash_at($point, 'BEGIN; ' . work() . ' COMMIT'), "a commit kills the server at $point");
	$node->start;
	same("killed at $point");
}
foreach my $point ('abort-before-undo', 'abort-unlinked', 'abort-undone')
{
	ok($node->crash_at($point, 'ROLLBACK', 1, 'BEGIN; ' . work() . ';'), "a rollback kills the server at $point");
	$node->start;
	same("killed at $point");
	sql('VACUUM sofort1, sofort2');
}
foreach my $end ('COMMIT', 'ROLLBACK')
{
	sql('BEGIN; ' . work() . q{ PREPARE TRANSACTION 'p'});
	$node->crash_and_start;
	is(contents('sofort', 1), contents('heap', 0), 'a prepared transaction: nothing is seen of it');
	sql("$end PREPARED 'p'");
	same("$end PREPARED after a crash");
	sql('BEGIN; ' . work() . qq{ PREPARE TRANSACTION 'p'; $end PREPARED 'p'});
	same("$end PREPARED");
}
sql('VACUUM sofort1, sofort2');
same('VACUUM');

$node->stop;
done_testing();
