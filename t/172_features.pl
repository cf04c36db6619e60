# What PostgreSQL's users expect of a table: the scripts in features/ give the same
# output with heap, with sofort, and with tables of both kinds that refer to each
# other. Then what needs several sessions: exported snapshots, deadlocks, timeouts;
# and PL/pgSQL exception blocks by the hundred thousand.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('features');
$node->init(conf => [ 'autovacuum = off', 'max_prepared_transactions = 2', 'deadlock_timeout = 100ms', 'timezone = UTC' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE f_anna; CREATE ROLE f_bert');

# ---- the same script with different access methods ----
sub output_of
{
	my ($script, $am1, $am2) = @_;
	$node->safe_psql('postgres', "DROP SCHEMA IF EXISTS f, f2 CASCADE; CREATE SCHEMA f; CREATE SCHEMA f2 AUTHORIZATION f_anna; GRANT CREATE, USAGE ON SCHEMA f TO f_anna; ALTER SYSTEM SET default_table_access_method = $am1; SELECT pg_reload_conf()");
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAaq', '-v', "am1=$am1", '-v', "am2=$am2", '-d', $node->connstr('postgres') ],
		'<', \("SET client_min_messages = warning;\nSET search_path = f, public;\n\\set VERBOSITY terse\n\\pset null '(null)'\n" . slurp_file($script)), '>&', \$out);
	is($node->verify_problems, '', "$am1, $am2: verify");
	# the key of a sofort table is no btree
	$out =~ s/\bsofort\b/heap/g;
	return $out;
}

foreach my $script (sort glob("$FindBin::RealBin/features/*.sql"))
{
	my ($name) = $script =~ m{([^/]+)\.sql$};
	my $expected = output_of($script, 'heap', 'heap');
	unlike($expected, qr/server closed|no connection|syntax error/, "$name: on heap");
	cmp_ok(length($expected), '>', 2000, "$name: says something");
	foreach my $pair ([ 'sofort', 'sofort' ], [ 'sofort', 'heap' ], [ 'heap', 'sofort' ])
	{
		my $got = output_of($script, @$pair);
		next if ok($got eq $expected, "$name: $pair->[0] and $pair->[1]");
		write_files($name, $expected, $got);
	}
}
$node->safe_psql('postgres', 'ALTER SYSTEM RESET default_table_access_method; SELECT pg_reload_conf()');

sub write_files
{
	my ($name, $expected, $got) = @_;
	my @file = map { $node->basedir . "/$name.$_" } ('heap', 'got');
	append_to_file($file[0], $expected);
	append_to_file($file[1], $got);
	diag(substr(`diff -U2 $file[0] $file[1]`, 0, 4000));
	unlink @file;
	return;
}

# ---- exception blocks ----
my $rounds = $ENV{SOFORT_LONG} ? 1_000_000 : 100_000;
$node->safe_psql('postgres', q{CREATE TABLE e (id int PRIMARY KEY, n int) USING sofort;
	CREATE PROCEDURE blocks(rounds int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. rounds LOOP
			BEGIN
				INSERT INTO e VALUES (i, 1);
				IF i % 2 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
		END LOOP;
	END $$});

# What the session's memory grows by, at each block, with the transaction open
sub bytes_per_block
{
	my ($am) = @_;
	my ($before, $after) = split /\n/, $node->safe_psql('postgres', qq{
		ALTER TABLE e SET ACCESS METHOD $am;
		BEGIN; CALL blocks(100);
		SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
		TRUNCATE e; CALL blocks($rounds);
		SELECT sum(total_bytes) FROM pg_backend_memory_contexts;
		ROLLBACK});
	return ($after - $before) / $rounds;
}
my ($sofort, $heap) = map { bytes_per_block($_) } ('sofort', 'heap');
# (heap: ids of the subtransactions)
cmp_ok($sofort, '<', $heap + 1, sprintf('an exception block takes %.2f bytes (heap: %.2f)', $sofort, $heap));
$node->safe_psql('postgres', 'ALTER TABLE e SET ACCESS METHOD sofort');
$node->safe_psql('postgres', "CALL blocks($rounds)");
is($node->safe_psql('postgres', 'SELECT count(*), sum(n), sum(id % 2) FROM e'), join('|', ($rounds / 2) x 3), "$rounds exception blocks in one transaction");
is($node->safe_psql('postgres', "BEGIN; CALL blocks(0); UPDATE e SET n = 2; ROLLBACK; SELECT sum(n) FROM e"), $rounds / 2, 'and one that is rolled back');

# ---- sessions ----
my @s = map { $node->background_psql('postgres', on_error_stop => 0) } (1, 2);
$_->query_safe('SET lock_timeout = 0') foreach @s;
$node->safe_psql('postgres', 'CREATE TABLE two (id int PRIMARY KEY, n int) USING sofort; INSERT INTO two VALUES (1, 0), (2, 0)');

$s[0]->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM two');
my $snapshot = $s[0]->query_safe('SELECT pg_export_snapshot()');
$node->safe_psql('postgres', 'UPDATE two SET n = 5; INSERT INTO two VALUES (3, 3)');
is($s[1]->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; SELECT count(*), sum(n) FROM two"), '2|0', 'an exported snapshot');
is($s[1]->query_safe('SET enable_seqscan = off; SELECT n FROM two WHERE id = 1'), '0', 'by an index');
$_->query_safe('COMMIT; RESET enable_seqscan') foreach @s;
is($s[1]->query_safe('SELECT count(*), sum(n) FROM two'), '3|13', 'and after it');

# the second to ask for the other's row is told of the deadlock, the first goes on
$s[0]->query_safe('BEGIN; UPDATE two SET n = 10 WHERE id = 1');
$s[1]->query_safe('BEGIN; UPDATE two SET n = 20 WHERE id = 2');
$s[0]->query_until(qr/waiting/, "\\echo waiting\nUPDATE two SET n = 11 WHERE id = 2;\n");
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted});
$s[1]->query("UPDATE two SET n = 21 WHERE id = 1");
$_->query('COMMIT') foreach @s;
my $errors = () = "$s[0]->{stderr}$s[1]->{stderr}" =~ /deadlock detected/g;
is($errors, 1, 'a deadlock is detected, once');
like($node->safe_psql('postgres', q{SELECT string_agg(n::text, ',' ORDER BY id) FROM two WHERE id < 3}), qr/^(10,11|21,20)$/, 'the other one has committed');

$_->quit foreach @s;
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; UPDATE two SET n = 1 WHERE id = 1');
is($node->error_of("SET lock_timeout = '50ms'; UPDATE two SET n = 2 WHERE id = 1"), '55P03: canceling statement due to lock timeout', 'lock_timeout');
is($node->error_of("SET statement_timeout = '50ms'; DELETE FROM two WHERE id = 1"), '57014: canceling statement due to statement timeout', 'statement_timeout');
is($node->error_of('SELECT FROM two WHERE id = 1 FOR SHARE NOWAIT'), '55P03: could not obtain lock on row in relation "two"', 'NOWAIT');
is($node->safe_psql('postgres', 'SELECT id FROM two ORDER BY id FOR UPDATE SKIP LOCKED'), "2\n3", 'SKIP LOCKED');
$holder->query_safe('COMMIT');
$holder->quit;

# ---- rows in order of a distance that the index knows roughly: PostgreSQL 15.20 keeps their row ids, 18.6 does
# not; then they cannot be locked, and must not be taken for gone ----
$node->safe_psql('postgres', q{CREATE TABLE shape (id int, p polygon) USING sofort;
	INSERT INTO shape SELECT i, format('((%s,0),(%s,9),(%s,0))', i * 10, i * 10 + 9, i * 10 + 9)::polygon FROM generate_series(1, 3000) i;
	CREATE INDEX ON shape USING gist (p); ANALYZE shape});
my $nearest = 'SET enable_seqscan = off; SELECT id FROM shape ORDER BY p <-> point(15000, 4) LIMIT 3';
like($node->safe_psql('postgres', $nearest =~ s/SELECT/EXPLAIN SELECT/r), qr/Index Scan using shape_p_idx/, 'the index orders');
is($node->safe_psql('postgres', $nearest), "1499\n1500\n1501", 'the nearest rows');
if ($node->safe_psql('postgres', $nearest =~ s/SELECT id/SELECT ctid/r) =~ /\(4294967295,0\)/)
{
	is($node->error_of("$nearest FOR UPDATE"), '0A000: cannot lock a row of "shape" that a scan has put in order of its distance', 'they are not locked');
}
else
{
	is($node->safe_psql('postgres', "$nearest FOR UPDATE"), "1499\n1500\n1501", 'they are locked');
}
is($node->verify_problems, '', 'verify');

$node->stop;
$node->teardown_node;
done_testing();
