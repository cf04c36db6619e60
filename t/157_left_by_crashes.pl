# What crashes leave in a table does not pile up: autovacuum learns of dead rows that nobody
# remembers any more, and VACUUM frees the values that free rows still have.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('left_by_crashes');
$node->init(conf => [ 'autovacuum = off', 'autovacuum_naptime = 1s', 'jit = off' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub bytes { return sql("SELECT pool_bytes FROM sofort.tables WHERE relation = '$_[0]'::regclass"); }
sub vacuum { return sql("VACUUM $_[0]; SELECT txid_current(); VACUUM $_[0]; SELECT txid_current(); VACUUM $_[0]"); }

# What autovacuum goes by; the table is used first, as its users do.
sub known_dead
{
	my ($table) = @_;
	sql("SELECT count(*) FROM $table");
	return sql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = '$table'");
}

# ---- dead rows: PostgreSQL forgets its statistics in a crash ----
sql(q{CREATE TABLE t (id int PRIMARY KEY, n int, s text) USING sofort; CREATE INDEX ON t USING sofort_index (n);
	INSERT INTO t SELECT i, i, 'text ' || i FROM generate_series(1, 500) i; VACUUM t});
sql('UPDATE t SET n = n + 1');
$node->crash_and_start;
is(known_dead('t'), 500, 'rows that have ended are known after a crash');
is(known_dead('t'), 500, 'and are reported once');
$node->restart;
is(known_dead('t'), 500, 'also after an ordinary stop, which keeps the statistics');
vacuum('t');
is(known_dead('t'), 0, 'VACUUM frees them');

# (this one ends by itself: the statistics are lost, the pool stays mapped)
sql('DELETE FROM t WHERE id > 400');
my $life = $node->life;
$node->psql('postgres', q{SELECT sofort_test.arm('txn-activated', 'kill_backend'); INSERT INTO t VALUES (0, 0, '')});
ok($node->wait_new_life($life), 'one session is killed');
is(known_dead('t'), 101, 'rows that were deleted are known, and the one that was undone');
vacuum('t');

# transactions that the crash has undone
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; INSERT INTO t SELECT i, i FROM generate_series(1001, 1300) i');
$node->crash_and_start($open);
cmp_ok(known_dead('t'), '>=', 300, 'rows that were undone are known');
vacuum('t');
is(known_dead('t'), 0, 'VACUUM frees them');

# roots that lead to living rows: VACUUM would not free them, so it is not called for them
sql(q{UPDATE t SET s = 'another ' || id});
vacuum('t');
$node->crash_and_start;
is(known_dead('t'), 0, 'rows that updates have left, and that are still needed, do not count');
sql(q{UPDATE t SET s = 'a third ' || id});
$node->crash_and_start;
is(known_dead('t'), 400, 'versions between them and the living ones do');

# so autovacuum comes
sql(q{ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()});
ok($node->wait_until(q{SELECT last_autovacuum IS NOT NULL AND n_dead_tup = 0 FROM pg_stat_user_tables WHERE relname = 't'}), 'autovacuum comes');
sql(q{ALTER SYSTEM RESET autovacuum; SELECT pg_reload_conf()});
is(sql(q{SELECT count(*), min(s) FROM t}), '400|a third 1', 'no row is lost');
is($node->verify_problems, '', 'dead rows: verify');

# ---- values of free rows: VACUUM frees them, whoever has made the rows free ----
sql(q{CREATE FUNCTION noise(seed text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(md5(seed || i), '') FROM generate_series(1, 60) i $$;
	CREATE TABLE documents (id int PRIMARY KEY, n int, d text) USING sofort;
	INSERT INTO documents SELECT i, 0, noise(i::text) FROM generate_series(1, 2000) i;
	UPDATE documents SET d = noise(id || 'first');
	UPDATE documents SET d = noise(id || 'second')});
vacuum('documents');
my $live = bytes('documents');

sub frees_values
{
	my ($seed, $what) = @_;
	cmp_ok(bytes('documents'), '>', 1.5 * $live, "$what: free rows have their values");
	vacuum('documents');
	cmp_ok(bytes('documents'), '<', 1.1 * $live, "$what: VACUUM frees them");
	is(sql("SELECT count(*) FROM documents WHERE d = noise(id || '$seed')"), 2000, "$what: rows have theirs");
	is($node->verify_problems, '', "$what: verify");
	return;
}
sql(q{UPDATE documents SET d = noise(id || 'third'); SELECT txid_current(); VACUUM documents});
$node->crash_and_start;
frees_values('third', 'free before a crash');

# the first that needs a row ends the quarantine of many
sql(q{UPDATE documents SET d = noise(id || 'fourth'); SELECT txid_current(); VACUUM documents; SELECT txid_current(); UPDATE documents SET n = 1 WHERE id = 1});
frees_values('fourth', 'usable again');

sql(q{UPDATE documents SET d = noise(id || 'fifth'); SELECT txid_current(); VACUUM documents; SELECT txid_current(); VACUUM (TRUNCATE off) documents});
cmp_ok(bytes('documents'), '<', 1.1 * $live, 'also where VACUUM is not to give back blocks');

# they stay free rows
my $blocks = sql(q{SELECT blocks FROM sofort.tables WHERE relation = 'documents'::regclass});
sql(q{UPDATE documents SET d = noise(id || '') WHERE id <= 1500; SELECT txid_current()});
is(sql(q{SELECT blocks FROM sofort.tables WHERE relation = 'documents'::regclass}), $blocks, 'and are used again');

# killed, or beside others, while VACUUM frees values
sql(q{UPDATE documents SET d = noise(id || 'sixth'); SELECT txid_current(); VACUUM documents});
$node->crash_and_start;
ok($node->crash_at('store-free-cleared', 'VACUUM documents'), 'killed while VACUUM frees them');
$node->start;
is($node->verify_problems, '', 'killed while VACUUM frees them: verify');
vacuum('documents');
cmp_ok(bytes('documents'), '<', 1.1 * $live, 'killed while VACUUM frees them: the next one does');
is(sql(q{SELECT count(*) FROM documents WHERE d = noise(id || 'sixth')}), 2000, 'killed while VACUUM frees them: rows have theirs');
sql(q{UPDATE documents SET d = noise(id || 'seventh'); SELECT txid_current(); VACUUM documents});
$node->crash_and_start;
$node->arm('store-free-cleared', 'wait');
my $vacuum = $node->background_psql('postgres');
$vacuum->query_until(qr/start/, "\\echo start\nVACUUM documents;\n");
ok($node->wait_at('store-free-cleared'), 'VACUUM frees values of free rows');
# a column that has no NULL yet: there is a new shape meanwhile
sql(q{UPDATE documents SET d = noise(id || 'eighth'); INSERT INTO documents SELECT i, NULL, NULL FROM generate_series(2001, 2100) i; DELETE FROM documents WHERE id > 2000});
$node->disarm('store-free-cleared');
$vacuum->query_safe('SELECT 1');
$vacuum->quit;
is($node->verify_problems, '', 'beside others: verify');
vacuum('documents');
cmp_ok(bytes('documents'), '<', 1.2 * $live, 'beside others: VACUUM frees them');
is(sql(q{SELECT count(*), count(DISTINCT id) FROM documents WHERE d = noise(id || 'eighth')}), '2000|2000', 'beside others: rows have theirs');

$node->stop;
done_testing();
