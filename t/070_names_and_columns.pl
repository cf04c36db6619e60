# What outlives its transaction if nobody takes care: stores of crashed or
# rolled back tables, columns, row ids, transaction ids after 2^31 of them, row
# locks across versions. Space comes back; nothing comes back that is gone.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('names');
$node->init(conf => [ 'checkpoint_timeout = 1h', 'autovacuum = off', 'wal_writer_delay = 10s', 'jit = off' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub used { return sql('SELECT used_bytes FROM sofort.pool'); }
sub stores { return sql('SELECT stores FROM sofort.pool'); }

sub crash { return $node->crash_and_start(@_); }

# ---- a crashed CREATE, and its relfilenumber given out again ----
{
	my $before = stores();
	my $open = $node->background_psql('postgres');
	$open->query_safe(q{BEGIN; CREATE TABLE lost (a text, b text) USING sofort});
	$open->query_safe(q{INSERT INTO lost SELECT 'ghost ' || i, 'b' FROM generate_series(1, 3000) i});
	my ($number, $path) = split /\|/, $open->query_safe(q{SELECT pg_relation_filenode('lost'), pg_relation_filepath('lost')});
	$node->kill9;
	SofortNode::drop_session($open);
	$node->start;
	is(stores(), $before, 'the store of a crashed CREATE is gone');
	$node->stop;
	# a power cut would have lost the file, and the number with it
	unlink($node->data_dir . "/$path");
	command_ok([ 'pg_resetwal', '-o', $number, '-D', $node->data_dir ], 'the number is free again');
	$node->start;
	sql('CREATE TABLE again (x int, y int PRIMARY KEY) USING sofort');
	is(sql(q{SELECT pg_relation_filenode('again')}), $number, 'another table has got the relfilenumber');
	is(sql('SELECT count(*) FROM again'), 0, 'it is empty');
	sql('INSERT INTO again SELECT i, i FROM generate_series(1, 3000) i');
	crash();
	is(sql('SELECT count(*), sum(x), max(y) FROM again'), '3000|4501500|3000', 'and keeps its rows over a crash');
	is($node->verify_problems, '', 'reused number: verify');
}

# ---- CREATE, DROP and TRUNCATE: space comes back, rolled back data too ----
sql(q{CREATE TABLE keep (i int PRIMARY KEY, v text) USING sofort;
	INSERT INTO keep SELECT i, repeat('k', 300) || i FROM generate_series(1, 10000) i});
my $fill = q{INSERT INTO gone SELECT i, repeat('g', 300) || i FROM generate_series(1, 10000) i};
my $keep = sql('SELECT count(*), sum(length(v)) FROM keep');
my $empty = used();
my $slack = 1024 * 1024;

sub space_is_back
{
	my ($what) = @_;
	ok($node->wait_until("SELECT used_bytes <= $empty + $slack FROM sofort.pool"), "$what: space is back")
	  or diag('used ' . used() . " instead of $empty");
	is(sql('SELECT count(*), sum(length(v)) FROM keep'), $keep, "$what: the other table is as it was");
	return;
}

sql("CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; $fill");
cmp_ok(used(), '>', $empty + 3 * 1024 * 1024, 'a full table takes space');
sql('DROP TABLE gone');
space_is_back('DROP');
$node->psql('postgres', "BEGIN; CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; $fill; ROLLBACK");
space_is_back('CREATE rolled back');
sql("CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; BEGIN; SAVEPOINT a; $fill; TRUNCATE gone; ROLLBACK TO a; COMMIT");
is(sql('SELECT count(*) FROM gone'), 0, 'TRUNCATE in a rolled back savepoint');
sql("$fill; BEGIN; TRUNCATE gone; INSERT INTO gone VALUES (1); ROLLBACK");
is(sql('SELECT count(*) FROM gone'), 10000, 'TRUNCATE rolled back');
sql('BEGIN; DROP TABLE gone; ROLLBACK');
is(sql('SELECT count(*) FROM gone'), 10000, 'DROP rolled back');
foreach my $case (
	[ 'TRUNCATE', 'prepare-durable', 10000 ], [ 'TRUNCATE', 'commit-before-stamp', 0 ],
	[ 'TRUNCATE', 'commit-stamped', 0 ], [ 'TRUNCATE', 'store-drop-begun', 0 ],
	[ 'TRUNCATE', 'store-drop-freed', 0 ], [ 'TRUNCATE', 'slot-release', 0 ],
	[ 'DROP TABLE', 'prepare-durable', 10000 ], [ 'DROP TABLE', 'commit-before-stamp', undef ],
	[ 'DROP TABLE', 'store-drop-begun', undef ], [ 'DROP TABLE', 'store-drop-freed', undef ], [ 'DROP TABLE', 'slot-release', undef ])
{
	my ($command, $point, $rows) = @$case;
	my $what = "$command killed at $point";
	sql("CREATE TABLE IF NOT EXISTS gone (i int PRIMARY KEY, v text) USING sofort; TRUNCATE gone; $fill");
	ok($node->crash_at($point, "$command gone"), "$what: it dies there");
	$node->start;
	if (defined $rows)
	{
		is(sql('SELECT count(*) FROM gone'), $rows, "$what: rows");
		is($node->error_of('INSERT INTO gone VALUES (100000)'), '', "$what: it can be filled");
	}
	else
	{
		is($node->error_of('SELECT * FROM gone'), '42P01: relation "gone" does not exist', "$what: it is gone");
	}
	space_is_back($what) if !$rows;
}
foreach my $point ('store-created', 'store-rows-written', 'prepare-durable')
{
	ok($node->crash_at($point, "BEGIN; CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; COPY gone FROM PROGRAM 'seq 1 9000 | sed s/\$/,x/' (FORMAT csv); COMMIT"), "CREATE killed at $point");
	$node->start;
	space_is_back("CREATE killed at $point");
	is($node->error_of('SELECT * FROM gone'), '42P01: relation "gone" does not exist', "CREATE killed at $point: it is not there");
}

# ---- DROP DATABASE ----
{
	my $before = stores();
	foreach my $kill (0, 1)
	{
		sql('CREATE DATABASE dropped');
		$node->safe_psql('dropped', "CREATE EXTENSION sofort; CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; $fill");
		is(stores(), $before + 1, 'a table in another database');
		sql('DROP DATABASE dropped');
		crash() if $kill;
		ok($node->wait_until("SELECT stores = $before FROM sofort.pool"), 'DROP DATABASE drops its tables' . ($kill ? ', also if a crash follows' : ''));
		space_is_back('DROP DATABASE');
	}
}

# cut short, when a tree in the pool is left, and perhaps tables
foreach my $workers (2, 0)
{
	my $what = "DROP DATABASE cut short, $workers workers";
	my $before = stores();
	sql("ALTER SYSTEM SET sofort.recovery_workers = $workers");
	$node->reload;
	sql('CREATE DATABASE dropped');
	$node->safe_psql('dropped', "CREATE EXTENSION sofort; CREATE TABLE gone (i int PRIMARY KEY, v text) USING sofort; $fill");
	$node->safe_psql('dropped', 'CREATE TABLE gone_too USING sofort AS SELECT * FROM gone') if $workers == 0;
	$node->safe_psql('dropped', q{CREATE INDEX gone_v ON gone USING sofort_index (v) WITH (placement = pmem)});
	ok($node->crash_at('store-drop-freed', 'DROP DATABASE dropped'), "$what: killed when the first table is dropped");
	$node->start;
	is(sql(q{SELECT count(*) FROM pg_database WHERE datname = 'dropped'}), 0, "$what: it is gone");
	space_is_back($what);
	is(stores(), $before, "$what: so are its tables");
	is($node->verify_problems, '', "$what: verify");
}
sql('ALTER SYSTEM RESET sofort.recovery_workers');
$node->reload;

# ---- ADD COLUMN rolled back, and again with another type ----
sql('CREATE TABLE c (i int PRIMARY KEY) USING sofort; INSERT INTO c SELECT generate_series(1, 3000)');
foreach my $how ('rolled back', 'crashed', 'killed at store-column-created', 'killed at prepare-durable')
{
	my $begin = q{BEGIN; ALTER TABLE c ADD COLUMN x text; UPDATE c SET x = 'text ' || i WHERE i <= 1500; INSERT INTO c VALUES (9000, 'row')};
	if ($how eq 'rolled back')
	{
		sql("$begin; ROLLBACK");
	}
	elsif ($how eq 'crashed')
	{
		my $open = $node->background_psql('postgres');
		$open->query_safe($begin);
		crash($open);
	}
	else
	{
		my ($point) = $how =~ /at (.*)/;
		ok($node->crash_at($point, "$begin; COMMIT"), "ADD COLUMN $how");
		$node->start;
	}
	is(sql('SELECT count(*), sum(i), (SELECT count(*) FROM pg_attribute WHERE attrelid = c.tableoid AND attnum > 0 AND NOT attisdropped) FROM c GROUP BY tableoid'),
		'3000|4501500|1', "ADD COLUMN $how: rows and columns");
	sql('ALTER TABLE c ADD COLUMN x int; UPDATE c SET x = i * 2 WHERE i <= 2000; INSERT INTO c VALUES (9001, 18002)');
	is(sql('SELECT count(*), count(x), sum(x), bool_and(x = i * 2) FROM c'), '3001|2001|4020002|t', "ADD COLUMN $how: again with another type");
	sql(q{DELETE FROM c WHERE i = 9001; ALTER TABLE c ADD COLUMN d text DEFAULT 'def'});
	crash() if $how eq 'crashed';
	is(sql('SELECT count(*), min(d), max(d), sum(x) FROM c'), '3000|def|def|4002000', "ADD COLUMN $how: and one with a default");
	sql('ALTER TABLE c DROP COLUMN x, DROP COLUMN d');
}
is($node->verify_problems, '', 'columns: verify');

# ---- rows of a block of an earlier life are collected while others free some ----
sql(q{CREATE TABLE r (i int PRIMARY KEY, v int, t text) USING sofort;
	INSERT INTO r SELECT i, 0, 'x' FROM generate_series(1, 3000) i;
	DELETE FROM r WHERE i > 2 AND i % 3 = 0; VACUUM r});
crash();
{
	# (free row ids of the last life: nobody owns them yet)
	my $update = 'DO $$ BEGIN FOR n IN 1 .. 1500 LOOP UPDATE r SET v = v + 1 WHERE i = %d; COMMIT; END LOOP; END $$';
	my @session = map { $node->background_psql('postgres') } 0 .. 1;
	$node->arm('store-block-collecting', 'wait');
	foreach my $s (0, 1)
	{
		$session[$s]->{stdin} .= sprintf($update, $s + 1) . ";\n\\echo done\n";
		$session[$s]->{run}->pump_nb;
		ok($node->wait_at('store-block-collecting'), 'a session has collected the free rows of a block') if $s == 0;
	}
	# the other one comes to free a row of the block and waits for the first
	ok($node->wait_until(q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'LWLock' AND wait_event = 'sofort_store')}),
		'the other session waits for it');
	$node->disarm('store-block-collecting');
	foreach my $s (@session)
	{
		$s->{run}->pump until $s->{stdout} =~ /done/ || $s->{timeout}->is_expired;
		is($s->{stderr}, '', 'it goes on');
		$s->quit;
	}
	sql(q{INSERT INTO r SELECT i, 0, 'y' FROM generate_series(10001, 16000) i});
	is(sql(q{SELECT count(*), count(DISTINCT i), count(DISTINCT ctid), sum(v), count(*) FILTER (WHERE t = 'y') FROM r}),
		'8000|8000|8000|3000|6000', 'no row id was given out twice');
	is($node->verify_problems, '', 'collected block: verify');
}

# ---- lossy bitmap over long chains ----
sql(q{CREATE TABLE b (k int, v int, f int) USING sofort;
	CREATE INDEX b_k ON b USING btree (k);
	INSERT INTO b SELECT i % 1000, 0, i FROM generate_series(1, 280000) i;
	BEGIN ISOLATION LEVEL REPEATABLE READ; COMMIT});
{
	# an open snapshot keeps all versions of the chains
	my $old = $node->background_psql('postgres');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM b WHERE f = 1');
	sql('UPDATE b SET v = v + 1 WHERE f % 8 = 0');
	sql('UPDATE b SET v = v + 1 WHERE f % 16 = 0') for 1 .. 2;
	my $query = 'SELECT count(*), sum(v), sum(f), count(DISTINCT f) FROM b WHERE k BETWEEN 100 AND 899';
	my $bitmap = q{SET work_mem = '64kB'; SET enable_seqscan = off; SET enable_indexscan = off; SET max_parallel_workers_per_gather = 0;};
	my $plan = sql("$bitmap EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $query");
	like($plan, qr/Heap Blocks:.* lossy=[1-9]/, 'the bitmap is lossy');
	my $expected = sql("SET enable_bitmapscan = off; SET enable_indexscan = off; $query");
	is(sql("$bitmap $query"), $expected, 'lossy bitmap scan and sequential scan agree');
	like($expected, qr/^224000\|56000\|/, 'and are right');
	is($old->query_safe("$bitmap $query"), $expected =~ s/\|56000\|/|0|/r, 'an old snapshot sees the old versions through it');
	$old->query_safe('COMMIT');
	$old->quit;
	sql('DROP TABLE b');
}

# ---- a lock on a row outlives a change of the row ----
sql(q{CREATE TABLE parent (i int PRIMARY KEY, v int) USING sofort;
	CREATE TABLE child (i int REFERENCES parent) USING sofort;
	INSERT INTO parent VALUES (1, 0), (2, 0)});
{
	my $checker = $node->background_psql('postgres');
	$checker->query_safe('BEGIN; INSERT INTO child VALUES (1)');
	is($node->error_of(q{SET lock_timeout = '5s'; UPDATE parent SET v = v + 1 WHERE i = 1}), '', 'an update of no key does not wait for the check');
	is($node->error_of(q{SET lock_timeout = '200ms'; DELETE FROM parent WHERE i = 1}), '55P03: canceling statement due to lock timeout', 'a delete of the new version does');
	is($node->error_of(q{SET lock_timeout = '200ms'; UPDATE parent SET i = 5 WHERE i = 1}), '55P03: canceling statement due to lock timeout', 'so does an update of the key');
	$checker->query_safe('COMMIT');
	$checker->quit;
	like($node->error_of('DELETE FROM parent WHERE i = 1'), qr/^23503: /, 'after the commit the foreign key refuses');
	is(sql('SELECT p.i, p.v FROM child c JOIN parent p USING (i)'), '1|1', 'no child without parent');
}

# ---- a session whose first reservation comes while an entry is being inserted ----
sql('CREATE TABLE first_need (id int, v int) USING sofort; CREATE INDEX ON first_need USING sofort_index (id) INCLUDE (v) WITH (placement = pmem)');
is(join('', map { $node->error_of("INSERT INTO first_need VALUES ($_, $_)") } 1 .. 80), '', 'each of many sessions inserts a row');
is(sql(q{SET enable_seqscan = off; SELECT count(*), sum(v) FROM first_need WHERE id > 0}), '80|3240', 'their rows');
sql('DROP TABLE first_need');

# ---- a value longer than its type says, where characters are bytes ----
sql(q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
{
	my $latin = sub { return $node->safe_psql('latin', $_[0]) };
	$latin->(q{CREATE EXTENSION sofort; CREATE TYPE e AS ENUM ('a', 'b');
		CREATE FUNCTION long(e, int, bool) RETURNS varchar IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN repeat('x', 200) || $1::text; END $$;
		CREATE CAST (e AS varchar) WITH FUNCTION long(e, int, bool);
		CREATE TABLE t (v varchar(3) COLLATE "C" UNIQUE) USING sofort;
		INSERT INTO t SELECT x::varchar(3) FROM unnest('{a,b}'::e[]) x});
	is($latin->(q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT v = repeat('x', 200) || 'a' FROM t WHERE v >= '' ORDER BY v LIMIT 1}), 't', 'is whole in an index');
	is($latin->(q{SET enable_seqscan = off; SELECT count(*) FROM t WHERE v = repeat('x', 200) || 'b'}), 1, 'and found');
}
sql('DROP DATABASE latin');

# ---- more than 2^31 transaction ids in one life of the server ----
sql(q{CREATE TABLE x (i int PRIMARY KEY, v text) USING sofort;
	INSERT INTO x SELECT i, 'old' FROM generate_series(1, 100) i;
	UPDATE x SET v = 'changed' WHERE i <= 10; DELETE FROM x WHERE i > 90;
	ALTER DATABASE template0 ALLOW_CONNECTIONS true});
my $life = $node->life;
my $first = sql('SELECT pg_current_xact_id()');
foreach my $round (1 .. 3)
{
	sql('SELECT sofort_test.burn_xids(1000000000)');
	is(sql(q{SELECT count(*), count(*) FILTER (WHERE v = 'changed') FROM x WHERE i <= 90}), '90|10', "round $round: old rows are visible");
	is(sql(q{SET enable_seqscan = off; SELECT v FROM x WHERE i = 5}), 'changed', "round $round: by the index too");
	sql("UPDATE x SET v = 'round $round' WHERE i = 20 + $round; INSERT INTO x VALUES (200 + $round, 'new'); DELETE FROM x WHERE i = 30 + $round; INSERT INTO x VALUES (30 + $round, 'again')");
	is(sql('SELECT count(*) FROM x'), 90 + $round, "round $round: after changes");
	is(sql('SELECT count(*) FROM x WHERE age(xmin) < 0'), 0, "round $round: xmin can be asked for");
	command_ok([ 'vacuumdb', '--host', $node->host, '--port', $node->port, '--all', '--freeze', '-j', '2' ], "round $round: VACUUM FREEZE");
}
my $last = sql('SELECT pg_current_xact_id()');
cmp_ok($last - $first, '>', 2**31, 'more than 2^31 transaction ids');
is($node->life, $life, 'in one life');
crash();
is(sql('SELECT count(*), count(DISTINCT v) FROM x'), '93|7', 'all rows after a crash');
cmp_ok(sql('SELECT pg_current_xact_id()'), '>', $last, 'transaction ids go on');

# ---- a crash among the last ids of an epoch: the commit log has no page of the next one yet ----
command_ok([ 'vacuumdb', '--host', $node->host, '--port', $node->port, '--all', '--freeze' ], 'VACUUM FREEZE');
my $next = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
sql("SELECT sofort_test.burn_xids($_)") foreach 2**29, 2**32 - 2**15 - 1 - $next - 2**29 - 2**15;
cmp_ok(2**32 - sql('SELECT pg_current_xact_id()'), '<', 70_000, 'the epoch ends soon');
ok(!-e $node->data_dir . '/pg_xact/0000', 'the first segment of the commit log is gone');
foreach my $round (1 .. 3)
{
	sql("INSERT INTO x VALUES (300 + $round, 'at the end')");
	crash();
	is(sql(q{SELECT count(*) FROM x WHERE v = 'at the end'}), $round, "$round: the server starts, and has the row");
}
cmp_ok(sql('SELECT pg_current_xact_id()'), '>', 2**32, 'and goes on into the next epoch');
sql(q{DO $$ BEGIN FOR i IN 1 .. 40 LOOP INSERT INTO x VALUES (400 + i, 'beyond'); COMMIT; END LOOP; END $$});
crash();
is(sql(q{SELECT count(*) FROM x WHERE v = 'beyond'}), 40, 'there, too');
is($node->verify_problems, '', 'verify');

$node->stop;
$node->teardown_node;
done_testing();
