# Kept transactions: SIGKILL in the middle of each kind of statement, at each thing it stores: rows,
# versions, links, index entries, values, row locks. One transaction lives through all of it. Each time
# nothing of the cut statement is left, for others and for itself, also no lock; it is run again, whole.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('statements');
$node->init(conf => [ 'autovacuum = off', 'sofort.continuation_timeout = 600', 'checkpoint_timeout = 1h' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	CREATE TABLE a (id int PRIMARY KEY, v int, t text) USING sofort;
	CREATE INDEX ON a USING sofort_index (v) WITH (placement = pmem);
	CREATE TABLE child (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE ON UPDATE CASCADE, t text) USING sofort;
	CREATE TABLE part (id int, region int, t text) PARTITION BY LIST (region);
	CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1) USING sofort;
	CREATE TABLE part2 PARTITION OF part FOR VALUES IN (2) USING sofort;
	CREATE TABLE part3 PARTITION OF part FOR VALUES IN (3) USING sofort;
	CREATE INDEX ON part USING sofort_index (id) WITH (placement = hybrid);
	CREATE SEQUENCE s;
	CREATE FUNCTION several(first int, n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN FOR i IN first .. first + n - 1 LOOP INSERT INTO a VALUES (i, i, 'function'); UPDATE a SET v = v + 1 WHERE id = i; END LOOP; RETURN n; END $$;
	CREATE PROCEDURE several_in_turn(first int, n int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN first .. first + n - 1 LOOP DELETE FROM a WHERE id = i; END LOOP; END $$;
	INSERT INTO a SELECT i, i, 'row ' || i % 50 FROM generate_series(1, 900) i;
	INSERT INTO child SELECT i, i, 'child' FROM generate_series(301, 420) i;
	INSERT INTO part SELECT i, 1 + i % 3, 'row ' || i FROM generate_series(1, 90) i});

# kind, statement, points that it must pass more than once, and rows that it only locks
my @kinds = (
	[ 'INSERT, several rows', q{INSERT INTO a VALUES (1001, 1, 'a'), (1002, 2, 'b'), (1003, 3, 'c'), (1004, 4, 'd'), (1005, 5, 'e')}, 'txn-logged store-row-written tree-entry-written' ],
	[ 'INSERT ... SELECT', q{INSERT INTO a SELECT i, nextval('s') * 0 + i, 'selected ' || i FROM generate_series(1100, 1400) i}, 'store-row-written tree-entry-written' ],
	[ 'COPY FROM', "COPY a FROM stdin;\n" . join('', map { $_ . "\t$_\tcopied $_\n" } 1500 .. 1800) . '\\.', 'txn-logged tree-entry-written' ],
	[ 'COPY FROM, partitioned', "COPY part FROM stdin;\n" . join('', map { $_ . "\t" . (1 + $_ % 3) . "\tcopied\n" } 500 .. 530) . '\\.', 'txn-logged tree-entry-written' ],
	[ 'INSERT ... ON CONFLICT DO NOTHING', q{INSERT INTO a SELECT i, i, 'nothing' FROM generate_series(1780, 1830) i ON CONFLICT (id) DO NOTHING}, 'txn-logged store-row-written' ],
	[ 'INSERT ... ON CONFLICT DO UPDATE', q{INSERT INTO a SELECT i, i, 'excluded' FROM generate_series(1815, 1850) i ON CONFLICT (id) DO UPDATE SET v = a.v + 1000, t = excluded.t}, 'txn-logged store-row-written store-successor-published row-locked' ],
	[ 'MERGE', q{MERGE INTO a USING generate_series(1840, 1880) i ON a.id = i WHEN MATCHED AND i % 4 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -i WHEN NOT MATCHED THEN INSERT VALUES (i, i, 'merged')}, 'txn-logged store-row-written' ],
	[ 'UPDATE', q{UPDATE a SET t = t || '!' WHERE id BETWEEN 10 AND 60}, 'txn-logged store-link-published' ],
	[ 'UPDATE, indexed column', q{UPDATE a SET v = v + 5000 WHERE id BETWEEN 50 AND 100}, 'txn-logged tree-entry-written' ],
	[ 'UPDATE, key', q{UPDATE a SET id = id + 100000 WHERE id BETWEEN 110 AND 130}, 'txn-logged tree-entry-written' ],
	[ 'UPDATE, key, with ON UPDATE CASCADE', q{UPDATE a SET id = id + 100000 WHERE id BETWEEN 401 AND 410}, 'txn-logged tree-entry-written' ],
	[ 'UPDATE that moves rows between partitions', q{UPDATE part SET region = region % 3 + 1 WHERE id <= 40}, 'txn-logged store-row-written tree-entry-written' ],
	[ 'DELETE', q{DELETE FROM a WHERE id BETWEEN 201 AND 230}, 'txn-logged' ],
	[ 'DELETE, with ON DELETE CASCADE', q{DELETE FROM a WHERE id BETWEEN 301 AND 310}, 'txn-logged' ],
	[ 'DELETE ... USING', q{DELETE FROM part USING a WHERE part.id = a.id AND a.id BETWEEN 41 AND 60}, 'txn-logged' ],
	[ 'INSERT with foreign keys', q{INSERT INTO child SELECT i + 1000, i, 'late' FROM generate_series(610, 640) i}, 'txn-logged row-locked', 'id BETWEEN 610 AND 640 FOR UPDATE', 31 ],
	[ 'SELECT FOR UPDATE', q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 701 AND 740 FOR UPDATE) s}, 'row-locked', 'id BETWEEN 701 AND 740 FOR KEY SHARE', 40 ],
	[ 'SELECT FOR NO KEY UPDATE', q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 741 AND 760 FOR NO KEY UPDATE) s}, 'row-locked', 'id BETWEEN 741 AND 760 FOR SHARE', 20 ],
	[ 'SELECT FOR SHARE', q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 761 AND 780 FOR SHARE) s}, 'row-locked', 'id BETWEEN 761 AND 780 FOR NO KEY UPDATE', 20 ],
	[ 'SELECT FOR KEY SHARE', q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 781 AND 800 FOR KEY SHARE) s}, 'row-locked', 'id BETWEEN 781 AND 800 FOR UPDATE', 20 ],
	[ 'SELECT FOR UPDATE of rows that are locked more weakly', q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 761 AND 800 FOR UPDATE) s}, 'row-locked', 'id BETWEEN 761 AND 800 FOR KEY SHARE', 40 ],
	[ 'UPDATE of rows that are locked', q{UPDATE a SET t = 'locked before' WHERE id BETWEEN 735 AND 745}, 'txn-logged store-link-published' ],
	[ 'WITH', q{WITH gone AS (DELETE FROM a WHERE id BETWEEN 231 AND 240 RETURNING id), more AS (INSERT INTO a SELECT id + 200000, id, 'moved' FROM gone RETURNING id) UPDATE part SET t = 'with' WHERE id IN (SELECT id - 200160 FROM more)}, 'txn-logged store-row-written' ],
	[ 'DO, with exceptions', q{DO $$ BEGIN FOR i IN 1 .. 8 LOOP BEGIN INSERT INTO a VALUES (3000 + i, i, 'done'); UPDATE a SET v = -7 WHERE id = 3000 + i; IF i % 2 = 0 THEN RAISE 'x'; END IF; EXCEPTION WHEN raise_exception THEN DELETE FROM a WHERE id = 500 + i; END; END LOOP; END $$}, 'txn-logged store-row-written abort-undone' ],
	[ 'SELECT of a function that writes', q{SELECT several(4000, 12)}, 'txn-logged store-row-written' ],
	[ 'CALL', q{CALL several_in_turn(4001, 10)}, 'txn-logged' ],
	[ 'EXPLAIN ANALYZE', q{EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) UPDATE a SET v = v - 1 WHERE id BETWEEN 550 AND 570}, 'txn-logged' ],
	[ 'large values', q{INSERT INTO child SELECT 2000 + i, NULL, repeat(chr(64 + i), i * 400000) FROM generate_series(1, 5) i}, 'txn-logged store-row-written' ],
	[ 'the end', 'SELECT 1', '' ]);

my @points = qw(txn-logged store-row-written store-rows-written store-successor-published store-link-published tree-entry-written row-locked abort-undone);
my $contents = q{SELECT md5(string_agg(x, ',' ORDER BY x)) FROM (SELECT 'a' || id || ':' || v || ':' || t AS x FROM a UNION ALL SELECT 'c' || id || ':' || coalesce(a, 0) || ':' || md5(t) FROM child UNION ALL SELECT 'p' || id || ':' || region || ':' || t FROM part) s};
my $verify = q{SELECT coalesce(string_agg(v::text, ' '), 'clean') FROM (SELECT * FROM sofort.verify('a') UNION ALL SELECT * FROM sofort.verify('child') UNION ALL SELECT * FROM sofort.verify('part1') UNION ALL SELECT * FROM sofort.verify_pool()) v};

# A client that says what it got, until it or the server ends.
sub client
{
	my @sql = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ], '<',
		\join('', map { /\\\.$/ ? "$_\n" : "$_;\n" } @sql), '>', \$out, '2>', \$err);
	return ($out, $err);
}

# What the rows are after each statement, and where the middle of each is.
my @after = (sql($contents));
my @middle;
{
	my @sql = 'BEGIN';
	foreach my $kind (@kinds)
	{
		push @sql, map { "SELECT sofort_test.arm('$_', 'wait', 1000000)" } @points;
		push @sql, $kind->[1];
		push @sql, map { "SELECT 'passed', '$_', sofort_test.passages('$_')" } @points;
		push @sql, 'SELECT sofort_test.disarm()', $contents;
	}
	my ($out, $err) = client(@sql, 'ROLLBACK');
	is($err, '', 'all of them in an ordinary transaction');
	my %passed;
	foreach (split /\n/, $out)
	{
		$passed{$1} = $2 if /^passed\|(\S+)\|(\d+)$/;
		if (/^\w{32}$/) { push @after, $_; push @middle, { map { $_ => int(($passed{$_} + 2) / 2) } grep { $passed{$_} > 0 } @points }; }
	}
	is(scalar(@after), @kinds + 1, 'contents after each');
}
is(sql($contents), $after[0], 'rolled back');

my ($token, $finished);
{
	my ($out) = client('BEGIN', q{SELECT sofort.keep_transaction('statements')}, q{SELECT sofort_test.arm('kept-before-boundary', 'kill', 2)}, 'SELECT 1');
	($token) = $out =~ /^(\w{32})$/m or BAIL_OUT('not kept');
	$node->reap or BAIL_OUT('not killed');
	$node->start;
	$finished = 1;
}

# row locks of statements that were finished, and of one that was not
sub check_locks
{
	my ($what, $k) = @_;
	my $wrong = '';
	foreach my $i (grep { defined $kinds[$_][3] } 0 .. $k)
	{
		my $free = sql("SELECT count(*) FROM (SELECT FROM a WHERE $kinds[$i][3] SKIP LOCKED) s");
		my $expected = $i < $k ? 0 : $kinds[$i][4];
		$wrong .= " $kinds[$i][0]: $free, not $expected;" if $free != $expected;
	}
	is($wrong, '', "$what: row locks");
	return;
}

my @unfinished = ();		# statements to be run again
foreach my $k (0 .. $#kinds)
{
	my ($kind, $statement, $must) = @{ $kinds[$k] };
	my @at = sort keys %{ $middle[$k] };
	foreach my $point (split / /, $must)
	{
		cmp_ok($middle[$k]{$point} // 0, '>', 1, "$kind: has a middle at $point");
	}
	@at = ('kept-before-boundary') if $k == $#kinds;
	foreach my $point (@at)
	{
		my $nth = $middle[$k]{$point} // 2;
		my $what = "$kind, killed at $point, $nth";
		my ($out, $err) = client('BEGIN', "SELECT 'finished', statements FROM sofort.resume_transaction('$token')",
			@unfinished, $contents, "SELECT sofort_test.arm('$point', 'kill', $nth)", $statement);
		ok($node->reap, $what) or do { diag("$out$err"); BAIL_OUT('the transaction is gone'); };
		$node->start;
		my ($n) = $out =~ /^finished\|(\d+)$/m;
		my ($is) = $out =~ /^(\w{32})$/m;
		is($n, $finished, "$what: statements that were finished");
		is($is, $after[$k], "$what: rows that it sees");
		$finished += @unfinished + 2;
		@unfinished = ();
		is(sql($contents), $after[0], "$what: others see nothing");
		check_locks($what, $k);
	}
	@unfinished = ($statement);
}

my ($out, $err) = client('BEGIN', "SELECT 'finished', statements FROM sofort.resume_transaction('$token')", $contents, 'COMMIT');
is($err, '', 'committed');
like($out, qr/^finished\|$finished\n\Q$after[$#kinds]\E$/, "with $finished statements");
is(sql($contents), $after[$#kinds], 'others see all of it');
is(sql("$verify; SELECT count(*) FROM sofort.transactions"), "clean\n0", 'clean');
is(sql('SELECT count(*) FROM (SELECT FROM a FOR UPDATE SKIP LOCKED) s') - sql('SELECT count(*) FROM a'), 0, 'no row is locked');
$node->kill9;
$node->start;
is(sql("$contents; $verify"), "$after[$#kinds]\nclean", 'after another crash');

done_testing();
