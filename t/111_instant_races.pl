# Recovery mode instant: sessions meet at indexes whose rebuild is held at a stop
# point. Segments are of one block, and no worker runs, so that each test says
# itself how far the rebuild is.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('races');
$node->init(conf => [
	'autovacuum = off', 'max_prepared_transactions = 2', 'sofort.recovery_workers = 0', 'sofort.recovery_mode = instant',
	'sofort.rebuild_segment = 1', "deadlock_timeout = '100ms'", 'enable_seqscan = off',
]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A session that stays open: say() sends, finish() ends it and returns its output.
sub session
{
	my ($in, $out, $err) = ('', '', '');
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=terse', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err);
	return { in => \$in, out => \$out, err => \$err, run => $run };
}

sub say_to
{
	my ($s, $sql) = @_;
	${ $s->{in} } .= "$sql;\n";
	$s->{run}->pump_nb;
	return;
}

# Until what was said is done
sub wait_for
{
	my ($s) = @_;
	our $number;
	my $mark = 'mark' . ++$number;
	${ $s->{in} } .= "\\echo $mark\n";
	$s->{run}->pump until ${ $s->{out} } =~ /$mark/ || !$s->{run}->pumpable;
	return;
}

sub finish
{
	my ($s) = @_;
	$s->{run}->finish;
	(my $out = ${ $s->{out} }) =~ s/mark\d+\n//g;
	return $out . ${ $s->{err} };
}

sub waits_for_lock { return $node->wait_until("SELECT count(*) = $_[0] FROM pg_stat_activity WHERE wait_event_type = 'Lock'"); }

sub status { return sql("SELECT status FROM sofort.indexes WHERE index = '$_[0]'::regclass"); }

sub rebuild { return sql("SELECT sofort_test.rebuild('$_[0]', $_[1])"); }

sql(q{
	CREATE TABLE p (id int PRIMARY KEY, k text UNIQUE, v int) USING sofort;
	CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p, n int) USING sofort;
	CREATE INDEX c_p ON c USING sofort_index (p);
	CREATE INDEX p_v ON p USING sofort_index (v DESC NULLS FIRST, id);
	INSERT INTO p SELECT i, 'key ' || i, i % 100 FROM generate_series(1, 3000) i;
	INSERT INTO p VALUES (0, NULL, NULL);
	INSERT INTO c SELECT i, i, 0 FROM generate_series(1, 500) i});

# ---- one session ----

$node->crash_and_start;
is(sql("SELECT v FROM p WHERE id = 2990"), '90', 'look-up');
is(status('p_pkey'), 'partial', 'the index is not complete');
like($node->error_of("INSERT INTO p VALUES (2990, 'x', 1)"), qr/^23505/, 'unique violation, old row');
like($node->error_of("INSERT INTO p VALUES (9000, 'key 5', 1)"), qr/^23505/, 'in the second index, too');
is(sql("INSERT INTO p VALUES (9000, 'x', 1) RETURNING id"), '9000', 'the entry of the failed row is not in the way');
like($node->error_of("INSERT INTO p VALUES (9000, 'y', 1)"), qr/^23505/, 'unique violation, new row');
is(sql("INSERT INTO p VALUES (2990, 'x', 1) ON CONFLICT DO NOTHING RETURNING id"), '', 'ON CONFLICT DO NOTHING');
is(sql("INSERT INTO p VALUES (2990, 'x', 1) ON CONFLICT (id) DO UPDATE SET v = -1 RETURNING v"), '-1', 'ON CONFLICT DO UPDATE');
is(sql("SELECT id FROM p WHERE v = -1"), '2990', 'the new version is found by its new key');
is(sql("SELECT count(*) FROM p WHERE v = 90 AND id = 2990"), '0', 'and not by its old one');
is(sql("INSERT INTO c VALUES (9000, 2991, 0), (9001, 9000, 0) RETURNING id"), "9000\n9001", 'foreign keys: parents are found');
like($node->error_of("INSERT INTO c VALUES (9002, 5000, 0)"), qr/^23503/, 'foreign key: no parent');
like($node->error_of("DELETE FROM p WHERE id = 499"), qr/^23503/, 'foreign key: the child is found');
is(sql("DELETE FROM p WHERE id = 2000 RETURNING id; INSERT INTO p VALUES (2000, 'key 2000', 7); SELECT v FROM p WHERE id = 2000"), "2000\n7", 'DELETE and INSERT of the same key');
is(sql("SET enable_seqscan = off; SET enable_sort = off; SELECT string_agg(id::text, ' ') FROM (SELECT id FROM p WHERE v BETWEEN 55 AND 56 AND id < 400 ORDER BY v DESC, id) x"),
	join(' ', (map { 56 + 100 * $_ } 0 .. 3), (map { 55 + 100 * $_ } 0 .. 3)), 'a range, forward');
is(sql("SET enable_seqscan = off; SET enable_sort = off; SELECT string_agg(id::text, ' ') FROM (SELECT id FROM p WHERE v BETWEEN 55 AND 56 AND id < 400 ORDER BY v, id DESC) x"),
	join(' ', reverse((map { 56 + 100 * $_ } 0 .. 3), (map { 55 + 100 * $_ } 0 .. 3))), 'and backward');
is(sql("SET enable_seqscan = off; SELECT id FROM p WHERE v IS NULL"), '0', 'NULL');
is(sql("SET enable_seqscan = off; SELECT id FROM p WHERE k IS NULL"), '0', 'NULL in a unique index');
is(sql(q{
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	BEGIN;
	DECLARE a SCROLL CURSOR FOR SELECT id FROM p WHERE id BETWEEN 100 AND 105;
	FETCH 4 FROM a; FETCH BACKWARD 2 FROM a;
	SELECT sofort_test.rebuild('p_pkey', 0);
	FETCH 3 FROM a; FETCH BACKWARD ALL FROM a; COMMIT}), join("\n", 100 .. 103, 102, 101, 'finished', 102 .. 104, 103, 102, 101, 100), 'a cursor goes on when the index becomes ready');
is(status('p_k_key'), 'partial', 'the others are as they were');
is($node->verify_problems, '', 'verify');

# An error inside an epoch that is caught: the session that goes on waits for nobody's epoch, least its own
$node->crash_and_start;
{
	my $s = session();
	$node->arm('unique-old-rows', 'error');
	say_to($s, q{BEGIN; DO $$ BEGIN INSERT INTO c VALUES (9500, 5, 0); EXCEPTION WHEN OTHERS THEN RAISE NOTICE 'caught'; END $$});
	wait_for($s);
	say_to($s, q{SET LOCAL statement_timeout = '30s'; SELECT sofort_test.rebuild('c_pkey', 0); COMMIT});
	my $answer = finish($s);
	like($answer, qr/caught/, 'an error is caught');
	like($answer, qr/^finished$/m, 'and the index is completed by the same transaction');
	is(status('c_pkey'), 'ready', 'it is complete');
}

# ---- two sessions ----

$node->crash_and_start;
foreach my $end ('COMMIT', 'ROLLBACK')
{
	my $id = $end eq 'COMMIT' ? 10 + 600 : 11 + 600;
	my ($a, $b) = (session(), session());
	say_to($a, "BEGIN; DELETE FROM p WHERE id = $id");
	wait_for($a);
	say_to($b, "INSERT INTO p VALUES ($id, 'new $id', 1)");
	ok(waits_for_lock(1), 'an insert waits for the delete of an old row');
	say_to($a, $end);
	is(finish($a), '', 'the first one ends');
	my $answer = finish($b);
	is($answer, '', 'its key is free') if $end eq 'COMMIT';
	like($answer, qr/duplicate key/, 'its key is taken again') if $end eq 'ROLLBACK';
}
is(status('p_pkey'), 'partial', 'all that without a complete index');

# The index becomes ready while an insert waits: what it waits for is in the tree then.
foreach my $end ('COMMIT', 'ROLLBACK')
{
	$node->crash_and_start;
	my $id = $end eq 'COMMIT' ? 620 : 621;
	my ($a, $b) = (session(), session());
	say_to($a, "BEGIN; DELETE FROM p WHERE id = $id");
	wait_for($a);
	say_to($b, "INSERT INTO p VALUES ($id, 'again $id', 1)");
	ok(waits_for_lock(1), 'an insert waits');
	is(rebuild('p_pkey', 0), 'finished', 'the rebuild does not');
	say_to($a, $end);
	finish($a);
	my $answer = finish($b);
	is($answer, '', 'its key is free') if $end eq 'COMMIT';
	like($answer, qr/duplicate key/, 'its key is taken again') if $end eq 'ROLLBACK';
	is(sql("SELECT count(*) FROM p WHERE id = $id"), '1', 'one row');
}

# One unique index, no deadlock: who waits for an old row has no entry in the way meanwhile.  Old is
# also the row of a transaction from before the rebuild ($b) that comes to its entry later.
sql(q{
	CREATE TABLE one (k text PRIMARY KEY) USING sofort;
	INSERT INTO one SELECT 'a key that has to be compared ' || i FROM generate_series(1, 3000) i});
foreach my $case ('a new row', 'a row deleted and inserted', 'a row deleted and inserted, rolled back')
{
	my $key = 'a key that has to be compared ' . ($case eq 'a new row' ? 5000 : 50);
	my $end = $case =~ /rolled back/ ? 'ROLLBACK' : 'COMMIT';
	$node->crash_and_start;
	my ($a, $b) = (session(), session());
	say_to($b, 'BEGIN; SELECT pg_current_xact_id() IS NULL');
	wait_for($b);
	sql("SELECT FROM one WHERE k = 'x'");
	is(status('one_pkey'), 'partial', "$case: the rebuild has begun");
	if ($case eq 'a new row')
	{
		$node->arm('store-row-written', 'wait');
		say_to($b, "INSERT INTO one VALUES ('$key')");
		ok($node->wait_at('store-row-written'), "$case: it has no entry yet");
	}
	else
	{
		say_to($b, "DELETE FROM one WHERE k = '$key'");
		wait_for($b);
	}
	say_to($a, "INSERT INTO one VALUES ('$key')");
	ok(waits_for_lock(1), "$case: another one with its key waits");
	$node->disarm('store-row-written') if $case eq 'a new row';
	say_to($b, "INSERT INTO one VALUES ('$key')") if $case ne 'a new row';
	say_to($b, $end);
	is(finish($b), "f\n", "$case: the first goes on");
	like(finish($a), qr/duplicate key/, "$case: and has the key");
	is(sql("SELECT count(*) FROM one WHERE k = '$key'"), '1', "$case: one row");
	is(rebuild('one_pkey', 0), 'finished', "$case: rebuilt");
	is(sql("SELECT count(*) FROM one WHERE k = '$key'"), '1', "$case: one row");
	is($node->verify_problems, '', "$case: verify");
}

# Two inserts of one new key, the first of which is looking at old rows
$node->crash_and_start;
{
	my ($a, $b) = (session(), session());
	$node->arm('unique-old-rows', 'wait');
	say_to($a, "BEGIN; INSERT INTO p VALUES (7000, 'seven', 1)");
	ok($node->wait_at('unique-old-rows'), 'the first looks at old rows');
	say_to($b, "INSERT INTO p VALUES (7000, 'seven b', 1)");
	ok(waits_for_lock(1), 'the second waits for it');
	$node->disarm('unique-old-rows');
	wait_for($a);
	say_to($a, 'COMMIT');
	is(finish($a), '', 'no deadlock');
	like(finish($b), qr/duplicate key/, 'one of them may have the key');
}

# A worker does not wait there: it goes on with something else, and comes back.
{
	my $a = session();
	$node->arm('unique-old-rows', 'wait');
	say_to($a, "INSERT INTO p VALUES (7005, 'slow writer', 1)");
	ok($node->wait_at('unique-old-rows'), 'a writer looks at old rows, while a worker works');
	is(sql("SELECT sofort_test.rebuild('p_pkey', 1000)"), 'worked', 'the tree is built');
	is(sql("SELECT sofort_test.rebuild('p_pkey', 1000)"), 'worked', 'not switched');
	is(status('p_pkey'), 'partial', 'not complete');
	is(sql("INSERT INTO p VALUES (7006, 'other writer', 1) RETURNING id"), '7006', 'others write');
	is(sql("SELECT id FROM p WHERE id = 3000"), '3000', 'readers read');
	$node->disarm('unique-old-rows');
	is(finish($a), '', 'the slow writer ends');
	is(sql("SELECT sofort_test.rebuild('p_pkey', 1)"), 'finished', 'now it is complete');
	is(sql("SELECT id FROM p WHERE id IN (7005, 7006) ORDER BY id"), "7005\n7006", 'all entries are there');
	like($node->error_of("INSERT INTO p VALUES (7005, 'x', 1)"), qr/^23505/, 'what was in the delta is in the way');
	is($node->verify_problems, '', 'verify');
}
$node->crash_and_start;

# The switch waits for a writer that has seen the index before it
{
	my ($a, $b) = (session(), session());
	$node->arm('unique-old-rows', 'wait');
	say_to($a, "INSERT INTO p VALUES (7001, 'old writer', 1)");
	ok($node->wait_at('unique-old-rows'), 'a writer looks at old rows');
	$node->arm('rebuild-drained', 'wait');
	say_to($b, "SELECT sofort_test.rebuild('p_pkey', 0)");
	ok($node->wait_until("SELECT segments_done > 10 FROM sofort.recovery"), 'all segments are read');
	is(sql("SELECT sofort_test.waiters('rebuild-drained')"), '0', 'nothing is copied yet');
	is(sql("SELECT id FROM p WHERE id = 3000"), '3000', 'readers read');
	$node->disarm('unique-old-rows');
	is(finish($a), '', 'the writer ends');
	ok($node->wait_at('rebuild-drained'), 'now the delta is copied');
	is(sql("INSERT INTO p VALUES (7002, 'new writer', 1) RETURNING id"), '7002', 'others write before it is ready');
	like($node->error_of("INSERT INTO p VALUES (7001, 'x', 1)"), qr/^23505/, 'what was in the delta is in the way');
	like($node->error_of("INSERT INTO p VALUES (7002, 'x', 1)"), qr/^23505/, 'and what is in the tree');
	$node->disarm('rebuild-drained');
	is(finish($b), "finished\n", 'the rebuild ends');
	is(sql("SELECT id FROM p WHERE id IN (7000, 7001, 7002) ORDER BY id"), "7000\n7001\n7002", 'all entries are there');
	is($node->verify_problems, '', 'verify');
}

# VACUUM, REINDEX and DROP wait for a rebuild step
$node->crash_and_start;
is(rebuild('p_pkey', 3), 'worked', 'three segments');
sql("DELETE FROM p WHERE id BETWEEN 1000 AND 1500");
{
	my ($a, $b) = (session(), session());
	$node->arm('rebuild-merge', 'wait');
	say_to($a, "SELECT sofort_test.rebuild('p_pkey', 0)");
	ok($node->wait_at('rebuild-merge'), 'the merge is held');
	say_to($b, 'VACUUM p');
	ok($node->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'VACUUM p;' AND wait_event_type = 'Extension'"), 'VACUUM waits for it');
	is(sql("SELECT count(*) FROM p WHERE id BETWEEN 990 AND 1000"), '10', 'queries do not');
	$node->disarm('rebuild-merge');
	is(finish($a), "finished\n", 'rebuilt');
	is(finish($b), '', 'vacuumed');
	is(status('p_v'), 'ready', 'VACUUM has rebuilt the other indexes');
	sql("INSERT INTO p SELECT i, 'back ' || i, 5 FROM generate_series(1000, 1500) i");
	is($node->verify_problems, '', 'verify');
}

$node->crash_and_start;
sql("CREATE TABLE d (a int, b int) USING sofort; INSERT INTO d SELECT i, i FROM generate_series(1, 2000) i;
	CREATE INDEX d_a ON d USING sofort_index (a); CREATE INDEX d_b ON d USING sofort_index (b)");
$node->crash_and_start;
foreach my $point ('rebuild-block', 'rebuild-merge', 'rebuild-draining')
{
	# a process that gives up leaves the rest to the next one
	my $a = session();
	$node->arm($point, 'wait');
	say_to($a, "SELECT sofort_test.rebuild('d_a', 0)");
	ok($node->wait_at($point), "held at $point");
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT sofort_test.rebuild%' AND pid <> pg_backend_pid()");
	$node->disarm($point);
	finish($a);
	is(sql("SET enable_seqscan = off; SELECT a FROM d WHERE a = 1999"), '1999', "terminated at $point: the index is usable");
}
is(rebuild('d_a', 0), 'finished', 'another one finishes it');
{
	my ($a, $b) = (session(), session());
	$node->arm('rebuild-block', 'wait');
	say_to($a, "SELECT sofort_test.rebuild('d_b', 0)");
	ok($node->wait_at('rebuild-block'), 'a segment is being read');
	say_to($b, 'DROP INDEX d_b');
	ok(waits_for_lock(1), 'DROP INDEX waits for that');
	$node->disarm('rebuild-block');
	finish($a);
	is(finish($b), '', 'dropped');
	is(sql("SELECT count(*) FROM d WHERE b = 77"), '1', 'the table is as it was');
}

# sofort.verify() runs functions of the table's owner, which may read other tables: no epoch is held
# meanwhile, for which the merge of such a table's index would wait.
sql(q{
	CREATE TABLE seen (id int PRIMARY KEY) USING sofort;
	INSERT INTO seen SELECT generate_series(1, 20000);
	CREATE FUNCTION smallest_seen(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql SET work_mem = '64kB' AS
		'BEGIN RETURN i + (SELECT id FROM public.seen ORDER BY id LIMIT 1); END';
	CREATE TABLE e (a int) USING sofort;
	INSERT INTO e SELECT generate_series(1, 5);
	CREATE INDEX e_f ON e USING sofort_index (smallest_seen(a)) WITH (placement = pmem);
	CREATE TABLE s (a int) USING sofort;
	INSERT INTO s SELECT generate_series(1, 5);
	CREATE INDEX s_p ON s USING sofort_index (a) WITH (placement = pmem) WHERE smallest_seen(a) > 0});
foreach my $table ('e', 's')
{
	$node->crash_and_start;
	is(status('seen_pkey'), 'missing', 'the index that the function reads is not there');
	is($node->error_of("SET statement_timeout = '10s'; SELECT * FROM sofort.verify('$table')"), '', "verify of $table");
	is(status('seen_pkey'), 'ready', 'the function has completed it');
	is(sql("SET statement_timeout = '10s'; SELECT count(*) FROM sofort.verify('$table')"), '0', 'nothing is found');
}
sql('DROP TABLE e, s; DROP FUNCTION smallest_seen; DROP TABLE seen');

# A row that is rolled back between two looks at its block: it does not get an entry without a key,
# beside the one that its inserter has made.
sql(q{CREATE TABLE u (k text) USING sofort; CREATE INDEX u_k ON u USING sofort_index (k);
	INSERT INTO u SELECT md5(i::text) || md5((i + 1)::text) FROM generate_series(1, 300) i});
$node->crash_and_start;
{
	my ($a, $b) = (session(), session());
	say_to($a, 'BEGIN; SELECT pg_current_xact_id() IS NULL');
	wait_for($a);
	sql("SELECT FROM u WHERE k = 'x'");
	is(status('u_k'), 'partial', 'the rebuild has begun');
	say_to($a, "INSERT INTO u VALUES (repeat('key ', 16))");
	wait_for($a);
	is(rebuild('u_k', 5), 'worked', 'the last block is left');
	$node->arm('index-build-version', 'wait');
	say_to($b, "SELECT sofort_test.rebuild('u_k', 0)");
	ok($node->wait_at('index-build-version'), 'it is read');
	say_to($a, 'ROLLBACK');
	is(finish($a), "f\n", 'an insertion is rolled back meanwhile');
	$node->disarm('index-build-version');
	is(finish($b), "finished\n", 'rebuilt');
	is($node->verify_problems, '', 'verify');
}
sql('DROP TABLE u');

# What a rebuild has left refers to tuples of the tree, too, and is freed when nobody can look at it
# any more. If an entry was deleted before that, its tuple waits for those who compare its key now.
sql(q{
	CREATE FUNCTION compare_slowly(a text, b text) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE
		before text := a || ' ' || b;
	BEGIN
		IF current_setting('my.slow', true) = 'on' THEN
			PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);
		END IF;
		IF a || ' ' || b <> before THEN
			RAISE EXCEPTION 'a key changes while it is compared';
		END IF;
		RETURN bttextcmp(a, b);
	END $$;
	CREATE OPERATOR CLASS slowly FOR TYPE text USING btree AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare_slowly(text, text);
	CREATE TABLE slow (k text) USING sofort;
	CREATE INDEX slow_k ON slow USING sofort_index (k slowly);
	CREATE TABLE reused (k text) USING sofort;
	CREATE INDEX reused_k ON reused USING sofort_index (k slowly)});
foreach my $case ([ 'run', 'key 2', 'key 1' ], [ 'delta', 'key 1', 'key 2' ])
{
	my ($what, $old, $new) = @$case;
	sql("TRUNCATE slow; INSERT INTO slow VALUES ('$old')");
	$node->crash_and_start;
	my ($worker, $other, $locker, $reader) = (session(), session(), session(), session());
	sql("INSERT INTO slow VALUES ('$new')");
	$node->arm('rebuild-drained', 'wait');
	say_to($worker, "SELECT sofort_test.rebuild('slow_k', 0)");
	ok($node->wait_at('rebuild-drained'), "$what: the index is about to be ready");
	$node->arm('unique-old-rows', 'wait');
	say_to($other, 'INSERT INTO p VALUES (8000, NULL, 1)');
	ok($node->wait_at('unique-old-rows'), "$what: somebody might still look at what the rebuild leaves");
	$node->disarm('rebuild-drained');
	is(finish($worker), "finished\n", "$what: it is ready");
	$node->disarm('unique-old-rows');
	is(finish($other), '', "$what: nobody looks at that any more");
	sql('DELETE FROM slow; DELETE FROM p WHERE id = 8000');
	say_to($locker, 'SELECT pg_advisory_lock(1)');
	wait_for($locker);
	say_to($reader, "SET my.slow = on; SELECT count(*) FROM slow WHERE k = 'key 3'");
	ok(waits_for_lock(1), "$what: a reader compares a key");
	sql('VACUUM slow');
	sql(q{INSERT INTO reused SELECT 'other' FROM generate_series(1, 50)});
	finish($locker);
	is(finish($reader), "0\n", "$what: which is what it was");
}
is($node->verify_problems, '', 'verify');
sql('DROP TABLE slow, reused; DROP FUNCTION compare_slowly CASCADE');

# ---- chains whose root has another key ----

sql("CREATE TABLE h (id int PRIMARY KEY, a int, b int) USING sofort; INSERT INTO h SELECT i, i, i FROM generate_series(1, 600) i;
	UPDATE h SET b = b + 10000; UPDATE h SET a = a + 1 WHERE id % 2 = 0; CREATE INDEX h_b ON h USING sofort_index (b)");
sql("UPDATE h SET a = 0 WHERE id = 17");
$node->crash_and_start;
foreach my $state ('partial', 'in part', 'ready')
{
	rebuild('h_b', 2) if $state eq 'in part';
	rebuild('h_b', 0) if $state eq 'ready';
	is(sql("SET enable_seqscan = off; SELECT id FROM h WHERE b = 10300"), '300', "$state: the version's own key");
	is(sql("SET enable_seqscan = off; SELECT count(*) FROM h WHERE b = 300"), '0', "$state: not that of its root");
	is(sql("SET enable_seqscan = off; SELECT a FROM h WHERE b = 10017"), '0', "$state: after one more update");
	is(status('h_b'), $state eq 'ready' ? 'ready' : 'partial', "$state");
}
is($node->verify_problems, '', 'verify');

# The version from before the index is not dead to all, because a prepared
# transaction holds the horizon; its key must not lead to the row all the same.
sql("CREATE TABLE heap (a int) USING heap; CREATE TABLE g (id int, a int, b int) USING sofort;
	INSERT INTO g SELECT i, i, i FROM generate_series(1, 100) i");
sql("BEGIN; INSERT INTO heap VALUES (1); PREPARE TRANSACTION 'holds the horizon'");
sql("UPDATE g SET b = b + 10000; CREATE INDEX g_a ON g USING sofort_index (a);
	CREATE INDEX g_b ON g USING sofort_index (b); CREATE INDEX g_b0 ON g USING sofort_index ((b + 0))");
$node->crash_and_start;
foreach my $column ('b', 'b + 0')
{
	is(sql("SELECT id FROM g WHERE $column = 10077"), '77', "index on $column: the new key");
	is(sql("SELECT count(*) FROM g WHERE $column = 77"), '0', "index on $column: not the old one");
}
rebuild('g_b', 0);
is(sql("SELECT count(*) FROM g WHERE b = 77"), '0', 'rebuilt: not the old one');
sql("ROLLBACK PREPARED 'holds the horizon'");

# ---- one row of a unique key: the search stops there ----

# Keys 1, 8, 15 ... were moved to the end of the table; of the others nothing is dead.
sql(q{
	CREATE TABLE q (k int PRIMARY KEY, t varchar(15) COLLATE "C" UNIQUE, g int) USING sofort;
	CREATE TABLE w (a int) USING sofort; INSERT INTO w VALUES (0);
	INSERT INTO q SELECT i, lpad(i::text, 15, '0'), 0 FROM generate_series(1, 6000) i});
sql('DELETE FROM q WHERE k % 7 = 1');
sql(q{INSERT INTO q SELECT i, lpad(i::text, 15, '0'), 1 FROM generate_series(1, 6000, 7) i; ANALYZE q});
$node->crash_and_start;
sub dram_bytes { return sql("SELECT dram_bytes FROM sofort.indexes WHERE index = '$_[0]'::regclass"); }
foreach my $case ([ 'q_pkey', 'k = 5000', 'k = 7000' ], [ 'q_t_key', q{t = '000000000005000'}, q{t = '000000000007000'} ])
{
	my ($index, $there, $not_there) = @$case;
	is(sql("SELECT g FROM q WHERE $there"), '0', "$index: a key that is there");
	my $bytes = dram_bytes($index);
	is(sql("SELECT count(*) FROM q WHERE $not_there"), '0', "$index: a key that is not");
	# 24 segments, of one block each
	cmp_ok((dram_bytes($index) - $bytes) / 8192, '>', 15, "$index: for the first one few segments were read");
}
is(sql('SELECT count(*), sum(x.g) FROM generate_series(1, 6000) i, LATERAL (SELECT g FROM q WHERE k = i OFFSET 0) x'), '6000|858',
	'a dead row of the key does not end the search');
is(sql(q{SELECT count(*), sum(x.g) FROM generate_series(1, 6000) i, LATERAL (SELECT g FROM q WHERE t = lpad(i::text, 15, '0') OFFSET 0) x}), '6000|858',
	'nor of a text');
is(status('q_pkey'), 'partial', 'the index is not complete');
{
	my $old = session();
	say_to($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT g FROM q WHERE k = 100');
	wait_for($old);
	sql('UPDATE q SET k = k + 10000 WHERE k IN (200, 5999); INSERT INTO q VALUES (200, NULL, 7), (5999, NULL, 8)');
	say_to($old, 'SELECT g FROM q WHERE k = 200; SELECT g FROM q WHERE k = 5999; SELECT count(*) FROM q WHERE k = 10200; COMMIT');
	is(finish($old), "0\n0\n0\n0\n", 'an old snapshot sees the old rows of keys that were given away');
	is(sql('SELECT g FROM q WHERE k = 200; SELECT g FROM q WHERE k = 5999; SELECT g FROM q WHERE k = 10200'), "7\n8\n0", 'a new one the new rows');
}

# Reader -> inserter -> writer of w, who was first: the reader must fail, for which it
# has to meet the new row, though it sees the old one of that key.
{
	my ($inserter, $reader) = (session(), session());
	say_to($inserter, 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM w');
	wait_for($inserter);
	sql('BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE w SET a = 1; COMMIT');
	say_to($reader, 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT a FROM w');
	wait_for($reader);
	sql('DELETE FROM q WHERE k = 300');
	say_to($inserter, 'INSERT INTO q VALUES (300, NULL, 9); COMMIT');
	is(finish($inserter), "0\n", 'the inserter has seen the old value');
	say_to($reader, 'SELECT g FROM q WHERE k = 300; COMMIT');
	like(finish($reader), qr/^1\nERROR:  could not serialize access/, 'a serializable transaction meets the rows that it does not see');
}
is(status('q_pkey'), 'partial', 'still not complete');
is($node->verify_problems, '', 'verify');

# ---- one key of a unique index, and several rows ----

# A value of another type can equal two (in the hour that daylight saving time leaves out).
sql(q{CREATE TABLE hours (ts timestamp PRIMARY KEY, n int) USING sofort; INSERT INTO hours VALUES ('2024-03-10 02:30', 1)});
# An older snapshot sees rows that the index was not asked about: it has been made anew since, in another file.
my $place = PostgreSQL::Test::Utils::tempdir();
sql("CREATE TABLESPACE elsewhere LOCATION '$place'");
sql('CREATE TABLE twice (k int, n int) USING sofort; INSERT INTO twice SELECT g, g FROM generate_series(1, 3000) g; INSERT INTO twice VALUES (7, -7)');
$node->crash_and_start;
sql("INSERT INTO hours VALUES ('2024-03-10 03:30', 2)");
my $same_instant = q{SET timezone = 'America/New_York'; SELECT n FROM hours WHERE ts = '2024-03-10 03:30-04'::timestamptz ORDER BY n};
is(status('hours_pkey'), 'partial', 'timestamps: the index is not complete');
is(sql($same_instant), "1\n2", 'a key of another type that equals two values finds both');
{
	my $old = session();
	say_to($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hours');
	wait_for($old);
	sql('DELETE FROM twice WHERE n = -7');
	sql('CREATE UNIQUE INDEX twice_k ON twice USING sofort_index (k)');
	sql('ALTER INDEX twice_k SET TABLESPACE elsewhere');
	say_to($old, 'SELECT n FROM twice WHERE k = 7 ORDER BY n; COMMIT');
	is(finish($old), "2\n-7\n7\n", 'a snapshot from before the index finds the row that was deleted');
	is(status('twice_k'), 'partial', 'and did not have to wait for it');
	is(sql('SELECT n FROM twice WHERE k = 7'), '7', 'a new one finds the other');
}
sql('DROP TABLE twice; DROP TABLESPACE elsewhere');

# ---- a comparison function that reads a table, whose index is being rebuilt ----

sql(q{CREATE TABLE told (id int PRIMARY KEY, r int) USING sofort; INSERT INTO told SELECT i, i FROM generate_series(1, 100000) i;
	CREATE FUNCTION asking_cmp(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		PERFORM id FROM public.told ORDER BY id LIMIT 1; RETURN btint4cmp($1, $2); END $$;
	CREATE OPERATOR CLASS asking_ops FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 asking_cmp(int4, int4);
	CREATE TABLE asks (a int) USING sofort; INSERT INTO asks SELECT generate_series(1, 20);
	CREATE INDEX asks_a ON asks USING sofort_index (a asking_ops) WITH (placement = pmem)});
$node->crash_and_start;
is(sql("SET statement_timeout = '300s'; SELECT count(*) FROM asks WHERE a = 5"), '1', 'the function does not wait for the index: it is within an epoch');
is(status('told_pkey'), 'partial', 'which is not complete');
is(sql("SET statement_timeout = '300s'; INSERT INTO asks VALUES (5); SELECT count(*) FROM asks WHERE a = 5"), '2', 'nor does it for who inserts');
sql(q{CREATE OR REPLACE FUNCTION asking_cmp(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
	PERFORM sofort_test.rebuild('public.told_pkey', 0); RETURN btint4cmp($1, $2); END $$});
like($node->error_of("SET statement_timeout = '300s'; SELECT count(*) FROM asks WHERE a = 5"),
	qr/^55000: index "told_pkey" is needed while it is being rebuilt/, 'who needs it as a whole is refused there');
sql("SELECT sofort_test.rebuild('told_pkey', 0)");
is(sql('SELECT count(*) FROM asks WHERE a = 5'), '2', 'with the index as a whole');
sql('DROP TABLE asks');

# ---- crashes ----

$node->crash_and_start;
foreach my $point ('rebuild-begun', 'rebuild-segment-done', 'rebuild-merged', 'rebuild-draining', 'rebuild-drained', 'rebuild-switched')
{
	$node->crash_at($point, "BEGIN; INSERT INTO p VALUES (20000, 'lost', 0); SELECT sofort_test.rebuild('p_v', 0)");
	$node->start;
	is(sql("SELECT count(*) FROM p WHERE id = 20000"), '0', "crash at $point: what was not committed is gone");
	is(sql("SELECT count(*) FROM p WHERE v BETWEEN 1 AND 3"), sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM p WHERE v BETWEEN 1 AND 3"), "crash at $point: look-ups");
}
is($node->verify_problems, '', 'verify');

# ---- synchronous: waiting can be cancelled; workers do it all ----

$node->append_conf('postgresql.conf', 'sofort.recovery_mode = synchronous');
$node->crash_and_start;
{
	my $a = session();
	$node->arm('rebuild-merge', 'wait');
	say_to($a, "SELECT sofort_test.rebuild('p_pkey', 0)");
	ok($node->wait_at('rebuild-merge'), 'the merge is held');
	like($node->error_of("SET statement_timeout = '100ms'; SELECT v FROM p WHERE id = 5"), qr/^57014/, 'who waits can be cancelled');
	$node->disarm('rebuild-merge');
	is(finish($a), "finished\n", 'rebuilt');
}
foreach my $mode ('synchronous', 'instant')
{
	$node->append_conf('postgresql.conf', "sofort.recovery_mode = $mode\nsofort.recovery_workers = 2");
	$node->crash_and_start;
	ok($node->wait_until("SELECT phase = 'finished' FROM sofort.recovery"), "$mode: workers finish");
	is(sql("SELECT count(*) FROM sofort.indexes WHERE status <> 'ready'"), '0', "$mode: all indexes are ready");
	is(sql("SELECT mode || structures_left || failures FROM sofort.recovery"), "${mode}00", "$mode: view");
	is($node->verify_problems, '', "$mode: verify");
}

$node->stop;
$node->teardown_node;
done_testing();
