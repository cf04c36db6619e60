# Rows that are visible to everybody: index-only scans do not look at them. Nobody may find
# a row among them that has ended for him: not while they are being marked, not after a
# crash, not with whatever snapshot.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;
use Time::HiRes qw(time);

my $long = $ENV{SOFORT_LONG};
my $seed = $ENV{SOFORT_SEED} || int(rand(1_000_000));
srand($seed);
note("seed $seed");

my $node = SofortNode->new('settled');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_connections = 30', "sofort.pool_size = '1GB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }
sub settled { return sql(q{SELECT sofort_test.settled_rows('t')}); }

sub leave
{
	my ($s) = @_;
	$s->{in} .= "\\q\n";
	$s->{run}->finish;
	return;
}

# By an index-only scan of each of the two access methods, and by the table itself
my $scans = 'SET enable_bitmapscan = off';
my $by_index = 'SET enable_seqscan = off; SET enable_indexonlyscan = on; SET enable_indexscan = on';
my $by_table = 'SET enable_seqscan = on; SET enable_indexonlyscan = off; SET enable_indexscan = off';

sub counts
{
	my ($s) = @_;
	my $ask = sub { return defined $s ? say_to($s, $_[0]) : sql($_[0]) };
	my $text = $ask->("$scans; $by_index; SELECT count(*), sum(id) FROM t WHERE id > 0; SELECT count(*), sum(n) FROM t WHERE n > 0; $by_table; SELECT count(*), sum(id) FROM t; SELECT count(*), sum(n) FROM t");
	my @lines = split(/\n/, $text);
	return @lines == 4 && $lines[0] eq $lines[2] && $lines[1] eq $lines[3] ? (split(/\|/, $lines[0]))[0] : $text;
}

# Capacities of the first blocks: 8, 16, 32, 64, 128, 256, 256, 256
sub make
{
	sql('DROP TABLE IF EXISTS t; CREATE TABLE t (id int PRIMARY KEY, n int, s text) USING sofort; CREATE INDEX t_n ON t USING btree (n); INSERT INTO t SELECT i, i, i FROM generate_series(1, 1016) i');
	return;
}

sub fill
{
	make();
	sql('VACUUM ANALYZE t');
	return;
}
fill();
foreach (['id', 't_pkey'], ['n', 't_n'])
{
	my ($column, $index) = @$_;
	like(sql("$scans; $by_index; EXPLAIN SELECT count(*), sum($column) FROM t WHERE $column > 0"), qr/Index Only Scan using $index/, "what is compared is an index-only scan of $index");
}

# ---- what is marked ----
is(settled(), 1016, 'after VACUUM all rows are settled');
is(counts(), 1016, '... and they are there');
sql('BEGIN; DELETE FROM t WHERE id = 600; ROLLBACK');
is(settled(), 1015, 'a deletion takes the mark from its row, and a rollback does not bring it back');
is(counts(), 1016, '... all rows are there');
sql('BEGIN; DELETE FROM t WHERE id BETWEEN 600 AND 602; ROLLBACK');
is(settled(), 1013, '... those that do not have it are left alone');
sql('DELETE FROM t WHERE id = 900; UPDATE t SET s = s WHERE id = 30');
is(settled(), 1011, 'so do deletions and updates that commit');
is(counts(), 1015, '... seen at once');
sql('VACUUM t');
is(settled(), 1016, 'VACUUM does not mark a free place, but an updated row');
sql('INSERT INTO t VALUES (2000, 2000)');
is(counts(), 1016, 'a new row is seen');
sql('BEGIN; INSERT INTO t VALUES (2001, 2001); ROLLBACK');
sql('VACUUM t');
is(counts(), 1016, '... also after VACUUM');
is($node->verify_problems, '', 'verify');

# All rows of a word, none of another one: 32 rows have a word
fill();
sql('DELETE FROM t WHERE id BETWEEN 761 AND 792');
is(settled(), 1016 - 32, 'all rows of a word have ended');
is(counts(), 1016 - 32, '... the others are there');
sql('VACUUM t');
is(settled(), 1016 - 32, '... VACUUM marks nothing else');
sql('INSERT INTO t SELECT i, i FROM generate_series(3001, 3032) i');
is(settled(), 1016 - 32, 'new rows are not settled');
is(counts(), 1016, '... and seen');
sql('VACUUM t');
is(settled(), 1016, '... VACUUM settles them');
is(counts(), 1016, '... seen');

# Each row by itself
my $wrong_rows = sql(q{DO $$ BEGIN
	FOR i IN 1 .. 1016 LOOP
		DELETE FROM t WHERE id = i;
	END LOOP; END $$; } . "$scans; $by_index; SELECT count(*) FROM t WHERE id BETWEEN 1 AND 1016; SELECT count(*) FROM t WHERE id > 1016");
is($wrong_rows, "0\n32", 'no deleted row is seen, whatever its place');

fill();
sql('DELETE FROM t WHERE id % 2 = 0; VACUUM t');
is(settled(), 508, 'neighbours of free places are settled');
is(counts(), 508, '... and seen');
sql(q{UPDATE t SET s = 'moved' WHERE id % 3 = 0; INSERT INTO t SELECT i, i FROM generate_series(4001, 4100) i});
is(counts(), 608, '... beside rows that come there');
sql('VACUUM t');
cmp_ok(settled(), '>', 608, '... which VACUUM settles');
is(counts(), 608, '... seen');
is($node->verify_problems, '', '... verify');

fill();
sql('BEGIN; SELECT id FROM t WHERE id = 600 FOR UPDATE; COMMIT');
is(settled(), 1016, 'a row lock is no end');
sql('BEGIN; SELECT id FROM t WHERE id = 600 FOR KEY SHARE; SAVEPOINT s; DELETE FROM t WHERE id = 600; ROLLBACK TO s; COMMIT');
is(settled(), 1015, '... a deletion after a lock is one');
is(counts(), 1016, '... which was rolled back');
my $locker = session_on($node);
my $deleter = session_on($node);
say_to($locker, 'BEGIN; SELECT id FROM t WHERE id = 300 FOR KEY SHARE');
is(settled(), 1015, 'a lock that is held');
say_to($deleter, 'BEGIN; UPDATE t SET s = s WHERE id = 300; COMMIT');
is(settled(), 1014, '... and an update beside it');
say_to($locker, 'COMMIT');
is(counts(), 1016, '... all rows are there');

# ---- rows that were updated ----
# Each has a root, to which index entries lead, and a version in another block
sub fill_updated
{
	fill();
	sql('UPDATE t SET s = s');
	sql('VACUUM ANALYZE t');
	return;
}
fill_updated();
is(settled(), 2032, 'roots that were replaced are settled, so are their versions');
is(counts(), 1016, '... the rows are there, once');
is(sql(q{SELECT reltuples FROM pg_class WHERE relname = 't'}), 1016, '... and counted once');
sql('VACUUM t');
is(sql(q{SELECT reltuples FROM pg_class WHERE relname = 't'}), 1016, '... also by a VACUUM that finds them settled');
foreach my $column ('id', 'n')
{
	like(sql("$scans; $by_index; EXPLAIN (COSTS OFF) SELECT count(*), sum($column) FROM t WHERE $column > 0"), qr/Index Only Scan/, "planned as an index-only scan of $column");
	is(sql("$scans; SET enable_seqscan = off; SET enable_indexonlyscan = off; SELECT count(*), sum($column), count(DISTINCT ctid), sum(s::int) FROM t WHERE $column > 0"), '1016|516636|1016|516636', '... an index scan reads the versions, not the roots');
}
foreach my $change ('DELETE FROM t WHERE id = 600', 'UPDATE t SET s = s WHERE id = 600', 'UPDATE t SET n = 5000 WHERE id = 600')
{
	fill_updated();
	sql("BEGIN; $change; ROLLBACK");
	is(settled(), 2030, "$change: takes the marks from the version and from its root");
	is(counts(), 1016, '... rolled back');
	sql($change);
	my $rows = $change =~ /DELETE/ ? 1015 : 1016;
	is(counts(), $rows, '... committed');
	is(settled(), 2030, '... no marks any more');
	sql('VACUUM t');
	is(counts(), $rows, '... VACUUM');
	cmp_ok(settled(), '>=', 2030, '... marks what is left');
	is($node->verify_problems, '', '... verify');
}
fill_updated();
is(sql(q{DO $$ BEGIN
	FOR i IN 1 .. 1016 LOOP
		DELETE FROM t WHERE id = i;
	END LOOP; END $$; } . "$scans; $by_index; SELECT count(*) FROM t WHERE id > 0"), '0', 'no deleted row is seen, wherever its root is');
fill_updated();
sql('UPDATE t SET s = s');
is(settled(), 0, 'all updated again');
is(counts(), 1016, '... the rows are there');
sql('VACUUM t');
is(counts(), 1016, '... VACUUM');
is(settled(), 2032, '... settles roots and versions');
sql('VACUUM (FULL) t');
is(counts(), 1016, '... VACUUM FULL');
sql('VACUUM t');
is(settled(), 1016, '... makes one of two');
is($node->verify_problems, '', '... verify');

# An old snapshot needs the roots, and a mark may not hide that
{
	fill();
	my $s = session_on($node);
	say_to($s, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	sql(q{UPDATE t SET s = 'new'});
	sql('VACUUM t');
	is(settled(), 0, 'roots that somebody still sees are not marked');
	is(counts($s), 1016, '... he sees them');
	is(say_to($s, q{SELECT count(*) FROM t WHERE s = 'new'; COMMIT}), "0\n", '... as they were');
	leave($s);
	sql('VACUUM t');
	is(settled(), 2032, '... until he has gone');
}

# ---- VACUUM ----
fill();
$node->arm('store-prune-state', 'wait', 1_000_000);
sql('VACUUM t');
is(sql(q{SELECT sofort_test.passages('store-prune-state')}), 0, 'VACUUM passes over settled rows');
sql('DELETE FROM t WHERE id = 700');
sql('VACUUM t');
is(sql(q{SELECT sofort_test.passages('store-prune-state')}), 1, '... and looks at the others');
sql('VACUUM (DISABLE_PAGE_SKIPPING) t');
is(sql(q{SELECT sofort_test.passages('store-prune-state')}), 1 + 1015, '... and at all if told so');
$node->disarm('store-prune-state');
is(counts(), 1015, '... the deleted row is gone');

# ---- snapshots ----
fill();
my $old = session_on($node);
say_to($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql('DELETE FROM t WHERE id % 3 = 0');
is(counts($old), 1016, 'a snapshot that is older than deletions sees all rows');
is(counts(), 678, '... a new one what is left');
sql('VACUUM t');
is(settled(), 678, 'rows that have ended, and that somebody still sees, are not marked');
is(counts($old), 1016, '... and he sees them');
say_to($old, 'COMMIT');

fill();
say_to($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql('BEGIN; TRUNCATE t; INSERT INTO t SELECT i, i FROM generate_series(1, 504) i; COMMIT; VACUUM t');
is(settled(), 0, 'rows that an older snapshot does not see are not marked');
is(counts($old), 0, '... it sees none (as on heap: TRUNCATE is not undone for it)');
say_to($old, 'COMMIT');
sql('VACUUM t');
is(settled(), 504, '... until it has gone');

fill();
say_to($old, 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t WHERE n > 1000; SET enable_seqscan = off; SELECT count(*) FROM t WHERE id BETWEEN 500 AND 600');
say_to($deleter, 'BEGIN ISOLATION LEVEL SERIALIZABLE; SET enable_seqscan = off; SELECT count(*) FROM t WHERE id BETWEEN 10 AND 20; DELETE FROM t WHERE id = 550');
my $first = say_to($old, 'DELETE FROM t WHERE id = 15');
my $committed = say_to($deleter, 'COMMIT');
like($first . $committed . say_to($old, 'COMMIT'), qr/40001/, 'two SERIALIZABLE transactions that delete what the other one has read: one fails');

# ---- marks that a scan keeps ----
# It looks at each only once, sees what its snapshot sees, and the next scan sees what is new
foreach my $updated (0, 1)
{
	sql('DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n int, s text) USING sofort; CREATE INDEX t_n ON t USING btree (n); INSERT INTO t SELECT i, i * 7919 % 20011 + 1, i FROM generate_series(1, 20000) i');
	sql('UPDATE t SET s = s') if $updated;
	sql('VACUUM ANALYZE t');
	cmp_ok(settled(), '>', $updated ? 39900 : 19900, 'a larger table is settled' . ($updated ? ', updated' : ''));
	foreach my $column ('id', 'n')
	{
		$node->arm('index-fetch-mark', 'wait', 1_000_000_000);
		is(sql("$scans; $by_index; SELECT count(*), sum($column) FROM t WHERE $column > 0"), sql("SELECT count(*), sum($column) FROM t"), "all rows by the index of $column");
		my $read = sql(q{SELECT sofort_test.passages('index-fetch-mark')});
		$node->disarm('index-fetch-mark');
		# (625 marks; those of the first rows before they are kept)
		ok($read >= 600 && $read <= 700, "... reads each mark once ($read)");
	}
	foreach my $column ('id', 'n')
	{
		my $s = session_on($node);
		my @expected = split(/\n/, sql("SELECT $column FROM t ORDER BY $column"));
		say_to($s, "$scans; $by_index; BEGIN; DECLARE c CURSOR FOR SELECT $column FROM t WHERE $column > 0 ORDER BY $column");
		my @got = split(/\n/, say_to($s, 'FETCH 10000 FROM c'));
		sql('DELETE FROM t WHERE id % 7 = 1; UPDATE t SET n = n + 1 WHERE id % 7 = 2; UPDATE t SET s = s WHERE id % 7 = 3');
		sql('VACUUM t');
		sql('INSERT INTO t SELECT i, i FROM generate_series(100001, 104000) i ON CONFLICT DO NOTHING');
		my $new = sql('SELECT count(*) FROM t WHERE id % 7 <> 4');
		say_to($s, 'DELETE FROM t WHERE id % 7 = 4; UPDATE t SET n = n + 1 WHERE id % 7 = 5; UPDATE t SET id = id + 7000000 WHERE id % 7 = 6');
		push @got, split(/\n/, say_to($s, 'FETCH ALL FROM c'));
		is(scalar(@got), scalar(@expected), "a cursor by the index of $column: as many rows as its snapshot sees");
		ok("@got" eq "@expected", '... these, beside changes of others and our own');
		is(counts($s), $new, '... the next scan sees the changes');
		say_to($s, 'COMMIT');
		is(counts(), $new, '... so do others');
		leave($s);
		sql('VACUUM t');
	}
	# ... its rows can be changed where it stands
	sql('VACUUM FULL t; UPDATE t SET s = s') if $updated;
	sql('VACUUM t');
	{
		my $s = session_on($node);
		my ($first, $last) = split(/\|/, sql('SELECT min(id), max(id) FROM (SELECT id FROM t WHERE id > 0 ORDER BY id OFFSET 9000 LIMIT 90) r'));
		say_to($s, "$scans; $by_index; BEGIN; DECLARE c CURSOR FOR SELECT id FROM t WHERE id > 0 ORDER BY id; MOVE 9000 FROM c");
		say_to($s, 'FETCH 1 FROM c; ' . ($_ % 2 ? 'DELETE FROM t WHERE CURRENT OF c' : q{UPDATE t SET s = 'current' WHERE CURRENT OF c})) foreach (0 .. 89);
		is(say_to($s, q{SELECT count(*), min(id) FROM t WHERE s = 'current'}), "45|$first\n", 'WHERE CURRENT OF updates the rows at which the cursor was');
		is(say_to($s, "$by_table; SELECT count(*) FROM t WHERE id BETWEEN $first AND $last; COMMIT"), "45\n", '... and deletes them');
		leave($s);
		sql('VACUUM t');
	}
	# An index scan that begins anew for each row looks like an index-only scan, but reads the rows
	{
		my $lookups = 'SELECT g, r FROM generate_series(1, 6000, 10) g, LATERAL (SELECT t.*, t.ctid, t.xmin, t.tableoid FROM t WHERE t.n = g ORDER BY t.id LIMIT 1) r';
		my $rescans = "$scans; $by_index; SET enable_indexonlyscan = off";
		like(sql("$rescans; EXPLAIN (COSTS OFF) $lookups"), qr/Nested Loop.*-> +Function Scan.*-> +Limit.*-> +Index Scan using t_n/s, 'rows by index scans, one for each');
		my $found = sql("$rescans; $lookups");
		cmp_ok(() = $found =~ /\n/g, '>', 100, '... of which there are some');
		ok($found eq sql("$by_table; $lookups"), '... as they are in the table, with system columns');
	}
	# ... in a statement that changes the table itself
	my $changing = q{WITH r AS MATERIALIZED (SELECT id FROM t WHERE id > 0 ORDER BY id LIMIT 6000), d AS (DELETE FROM t USING r WHERE t.id = r.id AND r.id % 2 = 0 RETURNING t.id)
		SELECT count(*), sum(id), (SELECT count(*) FROM d) FROM t WHERE id > 0};
	my $before = sql('SELECT count(*), sum(id) FROM t');
	like(sql("$scans; $by_index; $changing"), qr/^\Q$before\E\|[1-9]\d+$/, 'a statement does not see what it deletes');
	like(counts(), qr/^\d+$/, '... the next one does');
	is($node->verify_problems, '', '... verify');
}

# ---- between the steps ----
# VACUUM is about to look at rows, or has looked; another session's deletion commits
# (A mark is for 32 rows: 17 marks of smaller blocks, and of the one before; six of this one)
my $word_700 = 24;
# The row, or a version whose root is in that block
foreach my $updated (0, 1)
{
	foreach my $point ('store-settle-begun', 'store-settle-checked')
	{
		foreach my $how ('DELETE FROM t WHERE id = 700', 'UPDATE t SET n = 5000 WHERE id = 700', 'UPDATE t SET s = 5000 WHERE id = 700')
		{
			make();
			sql('UPDATE t SET s = s') if $updated;
			$node->arm($point, 'wait', $word_700);
			my $vacuum = session_on($node);
			send_to($vacuum, 'VACUUM t');
			ok($node->wait_at($point), "$point: VACUUM waits" . ($updated ? ' at replaced roots' : ''));
			sql($how);
			my $expected = counts();
			$node->disarm($point);
			answer($vacuum);
			leave($vacuum);
			is(counts(), $expected, "$point, $how: the same rows as before");
			is($expected, $how =~ /DELETE/ ? 1015 : 1016, '... and the right ones');
			is(settled(), $updated ? 2032 - 32 - 1 : 1016 - 32, '... its mark, or that of its root, is not there');
			is($node->verify_problems, '', '... verify');
		}
	}
}

# A deleter has put his end word, and not yet looked for the mark; VACUUM settles
fill();
sql('BEGIN; DELETE FROM t WHERE id = 700; ROLLBACK');
$node->arm('row-claimed', 'wait');
send_to($deleter, 'BEGIN; DELETE FROM t WHERE id = 700');
ok($node->wait_at('row-claimed'), 'a deleter waits behind his claim');
sql('VACUUM t');
is(settled(), 1015, '... VACUUM has seen it');
$node->disarm('row-claimed');
answer($deleter);
say_to($deleter, 'COMMIT');
is(counts(), 1015, '... committed');
fill();
$node->arm('row-claimed', 'wait');
send_to($deleter, 'BEGIN; DELETE FROM t WHERE id = 700');
ok($node->wait_at('row-claimed'), 'a deleter waits behind his claim of a settled row');
is(settled(), 1016, '... which is settled still');
is(counts(), 1016, '... and the row is there');
$node->disarm('row-claimed');
answer($deleter);
say_to($deleter, 'COMMIT');
is(counts(), 1015, '... committed');
is(settled(), 1015, '... no mark any more');

fill_updated();
sql('BEGIN; DELETE FROM t WHERE id = 700; ROLLBACK');
$node->arm('row-claimed', 'wait');
send_to($deleter, 'BEGIN; DELETE FROM t WHERE id = 700');
ok($node->wait_at('row-claimed'), 'a deleter waits behind his claim of an updated row');
sql('VACUUM t');
is(settled(), 2030, '... VACUUM has seen it, also at the root');
$node->disarm('row-claimed');
answer($deleter);
say_to($deleter, 'COMMIT');
is(counts(), 1015, '... committed');

# Two settle the same block, and a deletion comes between the look of the first one and its mark
fill();
leave($_) foreach ($locker, $deleter, $old);
$node->crash_and_start;
($locker, $deleter) = map { session_on($node) } (1, 2);
my $reader = session_on($node);
$node->arm('store-settle-checked', 'wait', $word_700);
send_to($reader, "$scans; $by_index; SELECT count(*) FROM t WHERE id > 0");
ok($node->wait_at('store-settle-checked'), 'a reader has looked at a block of an earlier life');
say_to($deleter, 'BEGIN; DELETE FROM t WHERE id = 700');
$node->arm('store-settle-begun', 'wait');
send_to($locker, 'VACUUM t');
ok($node->wait_at('store-settle-begun'), '... a row is deleted, and VACUUM begins with the block');
$node->disarm('store-settle-checked');
is(answer($reader), "1016\n", '... the reader gets his rows');
is(settled(), 1016 - 32, '... and has not marked them');
say_to($deleter, 'COMMIT');
is(counts(), 1015, '... the deletion is seen');
$node->disarm('store-settle-begun');
answer($locker);
is(settled(), 1015, '... VACUUM marks the others');
is(counts(), 1015, '... the deletion is still seen');
leave($_) foreach ($locker, $deleter, $reader);

# ---- crashes ----
fill();
sql('DELETE FROM t WHERE id = 1016');
$node->crash_and_start;
is(settled(), 0, 'after a crash no row is settled');
is(counts(), 1015, '... the rows are those that were there');
is(settled(), 1015, '... and who looks at a row settles it again');
sql('DELETE FROM t WHERE id = 1');
$node->restart;
is(settled(), 0, 'after a restart no row is settled');
is(counts(), 1014, '... the rows are those that were there');
is(settled(), 1014, '... settled again');

# (the mark is another number in each life)
fill();
my @again = map { $node->crash_and_start; counts(); settled() } (1 .. 8);
is(join(' ', @again), join(' ', (1016) x 8), 'settled again in each of eight lives');

# Who reads looks at roots only, and at versions in other blocks for them
fill_updated();
sql('BEGIN; DELETE FROM t WHERE id = 700; ROLLBACK');
sql('DELETE FROM t WHERE id = 10; UPDATE t SET s = s WHERE id = 300');
foreach my $life (1 .. 3)
{
	$node->crash_and_start;
	is(settled(), 0, "life $life: no updated row is settled after a crash");
	is(counts(), 1015, '... the rows are those that were there');
	is(settled(), 1016 - 3, '... and their roots are settled again, but for what had changed');
	is(counts(), 1015, '... which changes nothing');
	is($node->verify_problems, '', '... verify');
}

# The server dies behind a claim, or behind the commit, of rows that count as settled
foreach my $point ('row-claimed', 'commit-before-durable', 'commit-durable')
{
	fill();
	ok($node->crash_at($point, 'DELETE FROM t WHERE id IN (3, 700)', 1, 'BEGIN; DELETE FROM t WHERE id = 100; ROLLBACK;'), "a deletion kills the server at $point");
	$node->start;
	my $n = counts();
	ok($n eq 1016 || $n eq 1014, "killed at $point: all or nothing ($n)");
	is($n, 1014, '... all: the commit was durable') if $point eq 'commit-durable';
	is(counts(), $n, '... the same once more');
	is($node->verify_problems, '', '... verify');
}

# A prepared deletion keeps its end over a start; then its transaction ends
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$node->restart;
foreach my $end ('COMMIT', 'ROLLBACK')
{
	foreach my $updated (0, 1)
	{
		$updated ? fill_updated() : fill();
		sql(q{BEGIN; DELETE FROM t WHERE id = 700; PREPARE TRANSACTION 'p'});
		$node->crash_and_start;
		is(counts(), 1016, 'a prepared deletion' . ($updated ? ' of an updated row' : '') . ' is not seen');
		is(settled(), 1015, '... it is not settled');
		sql("$end PREPARED 'p'");
		is(counts(), $end eq 'COMMIT' ? 1015 : 1016, "... $end");
		is($node->verify_problems, '', '... verify');
	}
}

# ---- damage ----
# A link of a settled row that flips while the server runs: verify() tells, and raises no error
fill_updated();
foreach my $link (split(/\n/, sql(q{SELECT start FROM sofort_test.places('t') WHERE class = 'link'})))
{
	$node->flip_pool_bit($link, 3);
	like($node->verify_problems, qr/damaged/, 'a damaged link of a settled row is found');
	$node->flip_pool_bit($link, 3);
}
is($node->verify_problems, '', '... without it all is well');
is(counts(), 1016, '... all rows are there');

# ---- everything at once ----
# Writers of rows of their own, VACUUM all the time; readers compare index and table in one snapshot
my $rows = 6000;
my $seconds = $long ? 60 : 8;
sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n int, s text) USING sofort; CREATE INDEX t_n ON t USING btree (n); INSERT INTO t SELECT i, i, i FROM generate_series(1, $rows) i");
sql(q{CREATE PROCEDURE mess(who int, rows int, seconds int) LANGUAGE plpgsql AS $$
	DECLARE until timestamptz := clock_timestamp() + make_interval(secs => seconds); i int; what int;
	BEGIN
		WHILE clock_timestamp() < until LOOP
			i := (1 + who + 3 * floor(random() * rows / 3))::int;
			what := floor(random() * 6);
			IF what = 0 THEN DELETE FROM t WHERE id = i;
			ELSIF what = 1 THEN UPDATE t SET n = n + 1 WHERE id = i;
			ELSIF what = 2 THEN UPDATE t SET s = s WHERE id = i;
			ELSIF what = 3 THEN PERFORM 1 FROM t WHERE id = i FOR UPDATE;
			ELSE INSERT INTO t VALUES (i, i, i) ON CONFLICT DO NOTHING; END IF;
			IF random() < 0.3 THEN ROLLBACK; ELSE COMMIT; END IF;
			IF random() < 0.1 THEN PERFORM pg_sleep(0.02); END IF;
		END LOOP;
	END $$;
	CREATE FUNCTION differs() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE by_index bigint; by_table bigint; by_n bigint;
	BEGIN
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_seqscan = off; SET LOCAL enable_indexonlyscan = on; SET LOCAL enable_indexscan = on;
		SELECT count(*) * 1000000000 + sum(id) INTO by_index FROM t WHERE id > 0;
		SELECT count(*) * 1000000000 + sum(n) INTO by_n FROM t WHERE n > 0;
		SET LOCAL enable_seqscan = on; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_indexscan = off;
		SELECT count(*) * 1000000000 + sum(id) - by_index INTO by_table FROM t;
		SELECT count(*) * 1000000000 + sum(n) - by_n + by_table INTO by_table FROM t;
		RETURN by_table;
	END $$});
my @writers = map { my $s = session_on($node); send_to($s, "CALL mess($_, $rows, $seconds)"); $s } (0 .. 2);
my @readers = map { session_on($node) } (0 .. 1);
my ($until, $looks, $wrong, $marked) = (time() + $seconds, 0, '', 0);
while (time() < $until)
{
	sql('VACUUM t') if $looks % 4 == 0;
	sql('VACUUM FULL t') if $looks % 40 == 39;
	$marked += settled() > 100;
	send_to($_, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT differs(); COMMIT') foreach (@readers);
	foreach my $s (@readers)
	{
		my $got = answer($s);
		$wrong .= $got if $got ne "0\n";
		$looks++;
	}
}
is($wrong, '', "beside writers and VACUUM each snapshot sees the same by index and by table");
cmp_ok($looks, '>', 10, "... $looks looks");
cmp_ok($marked, '>', 0, "... $marked times with settled rows");
is(join('', map { answer($_) } @writers), '', '... writers had no error');
is($node->verify_problems, '', '... verify');

leave($_) foreach (@writers, @readers);
$node->stop;
done_testing();
