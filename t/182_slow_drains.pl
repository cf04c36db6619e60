# Where a drain waits for a disk (medium msync), statements of many rows must not wait for each
# row: a new version is not drained before the link to it, and space for the values of rows to
# come is reserved together, which is a guess. Here: how often such statements drain; that
# wrong guesses change no answer (against heap) and keep no space; and random statements, as in
# t/020. What a power cut leaves: t/160, "disk".
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Differential;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no drains' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new_on_disk('statements of many rows on a disk', 'jit = off');

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Statements (one transaction each, or what they say), on sofort and on heap: they leave
# the same rows. Returns how often those on sofort drained. (The row before them: a session's
# first transaction drains once more where nobody had its place before; from version 16 on
# PostgreSQL gives each session another.)
my %drains;
sub both
{
	my ($what, $table, @statements) = @_;
	my $rows = "SELECT count(*), md5(string_agg(x::text, E'\\n' ORDER BY x::text)) FROM $table x";
	my $count = 'SELECT drains FROM sofort_test.flush_counters()';
	my @out = split /\n/, sql(join('; ', 'SET search_path = s', 'INSERT INTO first VALUES (1)', $count, @statements, $count));
	sql(join('; ', 'SET search_path = h', @statements));
	is(sql("SET search_path = s; $rows"), sql("SET search_path = h; $rows"), "$what: as on heap");
	return $drains{$what} = $out[-1] - $out[0];
}

sql(q{
	CREATE SCHEMA s; CREATE SCHEMA h;
	CREATE TABLE s.first (n int) USING sofort;
	CREATE TABLE s.t (id int PRIMARY KEY, a text, n int, b text) USING sofort;
	CREATE TABLE h.t (id int PRIMARY KEY, a text, n int, b text) USING heap;
	CREATE TABLE s.k (id int PRIMARY KEY, a text) USING sofort;
	CREATE TABLE h.k (id int PRIMARY KEY, a text) USING heap;
	CREATE TABLE s.n (id int PRIMARY KEY, n int) USING sofort;
	CREATE TABLE h.n (id int PRIMARY KEY, n int) USING heap;
	INSERT INTO s.n SELECT i, i FROM generate_series(1, 3000) i;
	INSERT INTO h.n SELECT i, i FROM generate_series(1, 3000) i;
	CREATE TABLE s.b (id int, n int) USING sofort;
	CREATE INDEX ON s.b USING btree (n);
	CREATE TABLE h.b (id int, n int) USING heap;
	CREATE INDEX ON h.b USING btree (n);
	CREATE TABLE s.log (id int, a text, old text) USING sofort;
	CREATE TABLE h.log (id int, a text, old text) USING heap;
	-- (their columns are by reference from now on)
	INSERT INTO s.t SELECT -i, md5(i::text), i, md5((-i)::text) FROM generate_series(1, 3000) i;
	INSERT INTO h.t SELECT -i, md5(i::text), i, md5((-i)::text) FROM generate_series(1, 3000) i;
	INSERT INTO s.k SELECT -i, md5(i::text) FROM generate_series(1, 3000) i;
	INSERT INTO h.k SELECT -i, md5(i::text) FROM generate_series(1, 3000) i;
	INSERT INTO s.log SELECT -i, md5(i::text), md5(i::text) FROM generate_series(1, 3000) i;
	INSERT INTO h.log SELECT -i, md5(i::text), md5(i::text) FROM generate_series(1, 3000) i});

# ---- how often ----
cmp_ok(both('values as long', 't', 'INSERT INTO t SELECT i, md5(i::text), i FROM generate_series(1, 2000) i'),
	'<', 2000 / 8, 'values as long: rows do not drain one by one');
cmp_ok(both('two values', 't', 'INSERT INTO t SELECT 10000 + i, md5(i::text), i, md5(i::text) FROM generate_series(1, 2000) i'),
	'<', 2000 / 6, 'two values: nor here');
cmp_ok(both('values of any length', 't', q{INSERT INTO t SELECT 20000 + i, repeat(md5(i::text), 1 + i * 7919 % 13), i FROM generate_series(1, 2000) i}),
	'<', 2000 * 1.25, 'values of any length: little more often than without guesses');
cmp_ok(both('values gone', 't', 'DELETE FROM t WHERE id > 10000 AND id <= 12000', 'VACUUM t'), '<', 2000 / 5, 'values gone: nor does VACUUM');
cmp_ok(both('in order', 't', 'UPDATE t SET n = n + 1 WHERE id BETWEEN 1 AND 2000'),
	'<', 2000 / 4, 'in order: updates do not drain one by one');
cmp_ok(both('in order again', 't', q{UPDATE t SET a = a || 'x' WHERE id BETWEEN 1 AND 2000}),
	'<', 2000 / 2, 'in order again, with other values: nor these');
cmp_ok(both('every third', 't', 'UPDATE t SET n = n + 1 WHERE id BETWEEN 1 AND 2000 AND id % 3 = 0'),
	'<', 667 / 2, 'every third: nor here');
cmp_ok(both('with new keys', 'k', 'UPDATE k SET id = id - 10000 WHERE id % 2 = 0', 'UPDATE k SET id = id - 20000 WHERE id % 3 = 0'),
	'<', 2500 / 2, 'with new keys: nor here');
cmp_ok(both('in any order', 'n', q{DO $$ DECLARE i int; BEGIN FOR i IN SELECT x * 7919 % 1000 + 1 FROM generate_series(1, 1000) x LOOP
	UPDATE n SET n = n + 1 WHERE id = i; END LOOP; END $$}),
	'<', 1000 / 2, 'in any order: nor here');
cmp_ok(both('beside a btree index', 'b', 'INSERT INTO b SELECT i, i FROM generate_series(1, 2000) i'),
	'<', 2000 / 4, 'beside a btree index: nor here');
cmp_ok(both('its keys', 'b', 'UPDATE b SET n = n + 10000'), '<', 2000 / 2, 'its keys: nor here');
cmp_ok(both('keys taken back', 'b', 'BEGIN; UPDATE b SET n = n + 10000; ROLLBACK'), '<', 2000 / 2, 'keys taken back: nor here');
cmp_ok(both('versions taken back', 'n', 'BEGIN; UPDATE n SET n = n + 1; UPDATE n SET n = n + 1; ROLLBACK'),
	'<', 1000 / 2, 'versions taken back: nor here');
cmp_ok(both('copied', 'b', 'COPY b FROM PROGRAM $$seq 5001 7000 | sed "s/.*/&\t&/"$$'), '<', 2000 / 8, 'copied: nor here');
# Statements of many rows log whole blocks ahead, make links and free dead rows for several together
foreach my $schema ([ 's', 'sofort' ], [ 'h', 'heap' ])
{
	sql("CREATE TABLE $schema->[0].m (id int, n int) USING $schema->[1]; CREATE TABLE $schema->[0].f (id int, n int) USING $schema->[1] WITH (autovacuum_enabled = off)");
	sql("CREATE TABLE $schema->[0].g (id int, n int) USING $schema->[1]; INSERT INTO $schema->[0].g SELECT i, 0 FROM generate_series(1, 20000) i");
}
my $blocks = 20_000 / 256;
cmp_ok(both('many rows', 'm', 'INSERT INTO m SELECT i, 0 FROM generate_series(1, 20000) i'), '<', $blocks * 9, 'many rows: as often as blocks are made for them');
cmp_ok(both('all changed', 'm', 'UPDATE m SET n = n + 1'), '<', $blocks * 6, 'all changed: the same, and for links');
cmp_ok(both('many deleted', 'm', 'DELETE FROM m WHERE id % 2 = 0'), '<', $blocks / 3, 'many deleted: far fewer than blocks');
cmp_ok(both('few of each block deleted', 'g', 'DELETE FROM g WHERE id % 100 = 1'), '<', $blocks / 3, 'few of each block deleted: nor for them');
cmp_ok(both('all changed in a table that is not new', 'g', 'UPDATE g SET n = n + 1'), '<', $blocks * 6, 'all changed in a table that is not new: as in a new one');
sql("INSERT INTO $_.f SELECT i, 0 FROM generate_series(1, 20000) i; DELETE FROM $_.f WHERE id % 3 > 0") foreach qw(s h);
cmp_ok(both('many freed', 'f', 'VACUUM f'), '<', $blocks / 2, 'many freed: nor for them');
both('into their places', 'f', 'INSERT INTO f SELECT i, 1 FROM generate_series(1, 15000) i', 'UPDATE f SET n = n + 1 WHERE id % 2 = 0');
both('rolled back in bulk', 'm', 'BEGIN; UPDATE m SET n = n + 1; INSERT INTO m SELECT i, 1 FROM generate_series(1, 5000) i; DELETE FROM m WHERE id % 7 = 0; ROLLBACK');
both('savepoints in bulk', 'm', 'BEGIN; UPDATE m SET n = n + 1 WHERE id <= 9000; SAVEPOINT a; UPDATE m SET n = n + 5; INSERT INTO m SELECT i, 2 FROM generate_series(1, 3000) i; ROLLBACK TO a;'
	  . ' UPDATE m SET n = n + 7 WHERE id > 8000; SAVEPOINT b; DELETE FROM m WHERE id % 5 = 0; RELEASE b; UPDATE m SET n = n + 1; COMMIT');
both('backwards', 'm', 'CREATE INDEX m_id ON m (id)', 'SET enable_seqscan = off; SET enable_bitmapscan = off; DO $$ DECLARE i int; BEGIN FOR i IN REVERSE 20000 .. 15000 LOOP UPDATE m SET n = n + 1 WHERE id = i; END LOOP; END $$');
sql("INSERT INTO $_.t VALUES (30000, repeat('o', 40))") foreach qw(s h);	# (rows with NULL there fit from now on)
cmp_ok(both('one row', 't', q{INSERT INTO t VALUES (30001, repeat('o', 40))}), '<=', 6, 'one row waits no more often for it');
cmp_ok(both('three rows', 't', q{INSERT INTO t SELECT 30001 + i, repeat('t', 40) FROM generate_series(1, 3) i}), '<=', 8, 'nor do three');
note("$_: $drains{$_} drains") foreach sort keys %drains;

# ---- guesses that are wrong ----
both('with NULLs', 't', q{INSERT INTO t SELECT 40000 + i, CASE WHEN i % 3 > 0 THEN md5(i::text) END, i, CASE WHEN i % 5 = 0 THEN md5(i::text) END
	FROM generate_series(1, 1000) i});
both('other rows between', 't', q{DO $$ BEGIN FOR i IN 1 .. 200 LOOP
	INSERT INTO t VALUES (50000 + i, md5(i::text)); UPDATE t SET a = a || i WHERE id = 50000 + i; UPDATE t SET n = i WHERE id = -i;
	DELETE FROM t WHERE id = 50000 + i - 3; END LOOP; END $$});
both('each twice', 't', 'UPDATE t SET n = n + 1 WHERE id BETWEEN -500 AND 500', 'BEGIN; UPDATE t SET n = n + 1 WHERE id BETWEEN -500 AND 500; UPDATE t SET n = n + 10 WHERE id BETWEEN -400 AND 600; COMMIT');
both('every third with values', 't', 'UPDATE t SET n = n + 1, b = md5(a) WHERE id % 3 = 0');
both('taken back', 't', q{BEGIN; UPDATE t SET n = n + 1 WHERE id BETWEEN 1 AND 100; SAVEPOINT p; UPDATE t SET n = n + 1 WHERE id BETWEEN 50 AND 200;
	INSERT INTO t SELECT 60000 + i, md5(i::text) FROM generate_series(1, 50) i; ROLLBACK TO p; UPDATE t SET n = n + 5 WHERE id BETWEEN 90 AND 300;
	INSERT INTO t SELECT 60000 + i, md5(i::text) FROM generate_series(1, 50) i; COMMIT});
both('rolled back', 't', q{BEGIN; INSERT INTO t SELECT 70000 + i, md5(i::text) FROM generate_series(1, 300) i; UPDATE t SET n = n + 1; ROLLBACK});
both('conflicts', 't', q{INSERT INTO t SELECT i, md5(i::text), 0 FROM generate_series(1900, 2300) i ON CONFLICT (id) DO UPDATE SET a = excluded.a, n = t.n + 1});
both('locked before', 't', 'BEGIN; SELECT count(*) FROM (SELECT FROM t WHERE id BETWEEN 100 AND 300 FOR UPDATE) x; UPDATE t SET n = n + 1 WHERE id BETWEEN 100 AND 300; COMMIT');
both('longer for a column', 't', q{UPDATE t SET a = repeat(a, 200) WHERE id BETWEEN 700 AND 800}, q{UPDATE t SET a = NULL WHERE id BETWEEN 750 AND 850});
sql(qq{
	CREATE FUNCTION $_.tell() RETURNS trigger LANGUAGE plpgsql SET search_path = $_ AS \$\$ BEGIN
		INSERT INTO log VALUES (new.id, new.a, CASE TG_OP WHEN 'UPDATE' THEN old.a END);
		UPDATE log SET old = greatest(log.old, new.a || 'longer') WHERE id = -new.id % 50;
		RETURN new; END \$\$;
	CREATE TRIGGER tell AFTER INSERT OR UPDATE ON $_.t FOR EACH ROW EXECUTE FUNCTION $_.tell()}) foreach qw(s h);
both('two tables in turn', 'log', 'INSERT INTO t SELECT 80000 + i, md5(i::text), 1 FROM generate_series(1, 300) i');
both('two tables, updates', 'log', 'UPDATE t SET n = n + 1 WHERE id > 80000');
sql("DROP TRIGGER tell ON $_.t") foreach qw(s h);
both('places used again', 't', 'DELETE FROM t WHERE id % 2 = 0', 'VACUUM t', 'UPDATE t SET n = n + 1, b = a', 'VACUUM t', 'UPDATE t SET n = n + 1, a = b');
is($node->verify_problems, '', 'tables, indexes and pool agree');

sql('CREATE TABLE s.own (id int, a text) USING sofort');
is(sql(q{BEGIN; INSERT INTO s.own SELECT i, md5(i::text) FROM generate_series(1, 100) i; SELECT * FROM sofort.verify('s.own'); ROLLBACK}),
	'', 'what a transaction has reserved for rows to come is no damage to itself');

# An error, and a session that ends, give back what was reserved. (In the second of two rounds
# nothing else takes space.)
my $own = q{SELECT sum(bytes) FROM sofort_test.allocations()};
my $space;
foreach my $round (1 .. 3)
{
	$node->error_of(q{INSERT INTO s.t SELECT 90000 + i, md5(i::text), 1 / (20 - i) FROM generate_series(1, 30) i});
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; INSERT INTO s.t SELECT 90000 + i, md5(i::text) FROM generate_series(1, 21) i');
	is($node->safe_psql('postgres', 'SELECT * FROM sofort.verify_pool()'), '', 'what is reserved is accounted for');
	$session->quit;
	sql('VACUUM s.t; VACUUM s.t');
	$space = sql($own) if $round == 2;
}
is(sql($own), $space, 'what was reserved is free again');

# ---- a crash in the middle ----
my $rows = q{SELECT count(*), md5(string_agg(x::text, E'\n' ORDER BY x::text)) FROM s.t x};
my $before = sql($rows);
foreach my $statement (
	'INSERT INTO s.t SELECT 100000 + i, md5(i::text), i FROM generate_series(1, 777) i',
	'UPDATE s.t SET n = n + 1 WHERE id BETWEEN -1000 AND 1000',
	q{UPDATE s.t SET a = a || 'y' WHERE id BETWEEN -1000 AND 1000})
{
	my $session = $node->background_psql('postgres');
	$session->query_safe("BEGIN; $statement");
	$node->kill9;
	$session->{run}->kill_kill;
	$node->start;
	is(sql($rows), $before, "killed behind \"$statement\": nothing of it is left");
	is($node->verify_problems, '', 'tables, indexes and pool agree');
}

# ---- random statements ----
my $psql = "psql -XAtq -v VERBOSITY=terse -P null='(null)' -d \"" . $node->connstr('postgres') . '"';
my $seed = $ENV{SOFORT_SEED} || time() * 10;
foreach my $round (0 .. ($ENV{SOFORT_LONG} ? 9 : 1))
{
	my $d = Differential->new($seed + $round, [ ($psql) x 3 ]);
	$d->setup;
	for (1 .. ($ENV{SOFORT_LONG} ? 3000 : 600))
	{
		$d->step;
		last if @{ $d->{problems} };
	}
	$d->finish;
	is(join("\n", grep { defined } $d->{problems}[0]), '', 'seed ' . ($seed + $round) . ': sofort and heap agree');
	is($node->verify_problems, '', 'and tables, indexes and pool');
}

$node->stop;
$node->teardown_node;
done_testing();
