# Kept transactions: what would lose or change part of one. WAL that it depends on, indexes that
# are rebuilt or made meanwhile, what C code of others does, calls without a statement, several of
# them in each other's way, the background worker's death, outcomes that outlive a day.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Protocol;
use Session;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('hazards');
$node->init(conf => [
	'autovacuum = off', 'sofort.continuation_timeout = 600', 'sofort.recovery_workers = 0', 'sofort.recovery_mode = instant',
	'sofort.rebuild_segment = 1', "deadlock_timeout = '100ms'", 'wal_writer_delay = 10s', 'bgwriter_lru_maxpages = 0',
	'checkpoint_timeout = 1h', 'max_connections = 70' ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A session that stays open: say() sends and returns what was printed until it was done.
sub session { return session_on($node, @_); }

# A transaction that is kept; its token is in ->{token}.
sub kept
{
	my ($label) = @_;
	my $s = session();
	my $token = say_to($s, 'BEGIN; SELECT sofort.keep_transaction(' . ($label ? "'$label'" : '') . ')');
	($s->{token}) = $token =~ /^(\w{32})$/m or BAIL_OUT("not kept: $token");
	return $s;
}

sub resumed
{
	my ($token) = @_;
	my $s = session();
	$s->{said} = say_to($s, "BEGIN; SELECT statements FROM sofort.resume_transaction('$token')");
	chomp $s->{said};
	$s->{token} = $token;
	return $s;
}

sub crash { return $node->crash_and_start(@_); }

sub outcome { return sql("SELECT coalesce(sofort.transaction_outcome('$_[0]'), 'unknown')"); }
sub waiting_for_xid { return $node->wait_until("SELECT count(*) = $_[0] FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"); }
sub clean { is($node->verify_problems, '', "$_[0]: clean"); return; }

# ---- a lock of one on a version that another one has made ----
sql(q{CREATE TABLE parent (id int PRIMARY KEY, v int) USING sofort; CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent) USING sofort;
	INSERT INTO parent VALUES (1, 0), (2, 0), (3, 0)});
{
	my $maker = kept();
	say_to($maker, 'UPDATE parent SET v = 1');
	my $locker = kept();
	say_to($locker, 'INSERT INTO child SELECT id, id FROM parent');
	crash($maker, $locker);
	my ($token, $other) = ($maker->{token}, $locker->{token});
	$maker = resumed($token);
	send_to($maker, 'DELETE FROM parent WHERE id = 3');
	ok(waiting_for_xid(1), 'its maker waits for it');
	sql(q{SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted});
	like(answer($maker), qr/57014/, 'until it is cancelled');
	say_to($maker, 'ROLLBACK');
	$_->{run}->finish foreach $maker;
	$maker = kept();
	say_to($maker, 'UPDATE parent SET v = 1 WHERE id = 2');
	my $second = $maker->{token};
	crash($maker);
	$maker = resumed($second);
	say_to($maker, 'UPDATE parent SET v = 2 WHERE id = 2; COMMIT');
	like($node->error_of("SET lock_timeout = 50; DELETE FROM parent WHERE id = $_"), qr/^55P03/, "others may not delete row $_") foreach 1, 2;
	$locker = resumed($other);
	say_to($locker, 'COMMIT');
	is(sql('SELECT count(*), count(parent.id) FROM child LEFT JOIN parent ON parent.id = p'), '3|3', 'no child without a parent');
	clean('locks on versions of others');
	$_->{run}->finish foreach $maker, $locker;
}
{
	sql('TRUNCATE parent, child; INSERT INTO parent VALUES (1, 0)');
	my $maker = kept();
	say_to($maker, 'UPDATE parent SET v = 1');
	my $locker = kept();
	say_to($locker, 'INSERT INTO child SELECT id, id FROM parent');
	crash($maker, $locker);
	my $other = $locker->{token};
	$maker = resumed($maker->{token});
	say_to($maker, 'COMMIT');
	like($node->error_of('SET lock_timeout = 50; DELETE FROM parent'), qr/^55P03/, 'committed by who resumed it: others may not delete it');
	$locker = resumed($other);
	say_to($locker, 'COMMIT');
	is(sql('SELECT count(*), count(parent.id) FROM child LEFT JOIN parent ON parent.id = p'), '1|1', 'no child without a parent');
	$_->{run}->finish foreach $maker, $locker;
}

# ---- numbers of a sequence that another session's WAL gave ----
sql(q{CREATE SEQUENCE s; CREATE TABLE n (id bigint PRIMARY KEY) USING sofort;
	CREATE FUNCTION f() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN n := nextval('s'); INSERT INTO n VALUES (n); RETURN n; END $$});
sql('VACUUM; CHECKPOINT');
{
	my $k = kept();
	say_to($k, 'SELECT f()');
	my $asleep = q{FROM pg_stat_activity WHERE backend_type = 'walwriter' AND wait_event = 'WalWriterMain'};
	$node->wait_until("SELECT count(*) = 1 $asleep") or BAIL_OUT('the WAL writer does not sleep');
	kill('STOP', sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'}));
	my $other = session();
	say_to($other, q{BEGIN; SELECT count(nextval('s')) FROM generate_series(1, 100)});
	is(sql('SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()'), 't', 'numbers of a sequence that are not durable');
	my $last = say_to($k, 'SELECT f()');
	crash($k, $other);
	my $r = resumed($k->{token});
	is($r->{said}, '2', 'kept transaction that has used one of them');
	cmp_ok(sql(q{SELECT nextval('s')}), '>', $last, 'which is not given out again');
	say_to($r, 'COMMIT');
	is(sql('SELECT count(*) FROM n'), '2', 'committed');
	SofortNode::drop_session($r);
}

# ---- an index that is rebuilt while it is resumed ----
sql(q{CREATE TABLE r (id int PRIMARY KEY, v int) USING sofort; CREATE INDEX r_v ON r USING sofort_index (v);
	INSERT INTO r SELECT i, i FROM generate_series(1, 20000) i});
{
	my $k = kept();
	say_to($k, 'INSERT INTO r SELECT i, i FROM generate_series(20001, 30000) i');
	say_to($k, 'UPDATE r SET v = -v WHERE id % 100 = 0; DELETE FROM r WHERE id % 100 = 1');
	crash($k);
	is(sql("SELECT sofort_test.rebuild('r_pkey', 3), sofort_test.rebuild('r_v', 20)"), 'worked|worked', 'indexes are rebuilt in part');
	my $r = resumed($k->{token});
	is($r->{said}, '3', 'resumed between two steps of the rebuild');
	is(sql("SELECT sofort_test.rebuild('r_pkey', 0), sofort_test.rebuild('r_v', 0)"), 'not needed|not needed', 'which is finished');
	is(say_to($r, 'SELECT count(*) FROM r WHERE id > 0'), "29700\n", 'it sees all of its rows');
	say_to($r, 'COMMIT');
	is(sql('SET enable_seqscan = off; SELECT (SELECT count(*) FROM r WHERE id BETWEEN 1 AND 40000), (SELECT count(*) FROM r WHERE v < 0), (SELECT count(*) FROM r WHERE v BETWEEN 20001 AND 30000)'),
		'29700|300|9800', 'others see them by the indexes');
	clean('resumed between two steps');
	SofortNode::drop_session($r);

	# held in the middle of a step
	$k = kept();
	say_to($k, 'INSERT INTO r SELECT i, i FROM generate_series(30001, 40000) i');
	say_to($k, 'UPDATE r SET v = -v WHERE id % 100 = 2');
	crash($k);
	$node->arm('rebuild-segment-done', 'wait', 40);
	my $rebuilder = session();
	send_to($rebuilder, "SELECT sofort_test.rebuild('r_pkey', 0), sofort_test.rebuild('r_v', 0)");
	ok($node->wait_at('rebuild-segment-done'), 'a rebuild is held');
	$r = session();
	send_to($r, "SET application_name = 'taker'; BEGIN; SELECT statements FROM sofort.resume_transaction('$k->{token}')");
	# it waits for that step, or has done the rest itself
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'taker' AND (state = 'idle in transaction' OR wait_event IS NOT NULL)}), 'somebody resumes the transaction meanwhile');
	$node->disarm('rebuild-segment-done');
	is(answer($r), "2\n", 'it is resumed');
	answer($rebuilder);
	say_to($r, 'INSERT INTO r VALUES (50000, 50000); COMMIT');
	is(sql('SET enable_seqscan = off; SELECT (SELECT count(*) FROM r WHERE id BETWEEN 1 AND 50000), (SELECT count(*) FROM r WHERE v < 0)'), '39701|700', 'others see it by the indexes')
	  or diag(sql('SELECT count(*), count(*) FILTER (WHERE v < 0) FROM r'));
	clean('resumed while a rebuild was held');
	SofortNode::drop_session($_) foreach $r, $rebuilder;

	# one that is complete does not lose its tree again while those of another table are waited for
	# (which would lock nothing but the index): its new tree would miss the transaction's rows
	mkdir $node->basedir . '/elsewhere';
	sql("CREATE TABLESPACE elsewhere LOCATION '" . $node->basedir . "/elsewhere'");
	sql('CREATE TABLE r2 (id int PRIMARY KEY) USING sofort; INSERT INTO r2 SELECT generate_series(1, 5000)');
	$k = kept();
	say_to($k, 'INSERT INTO r SELECT i, i FROM generate_series(60001, 60100) i; INSERT INTO r2 SELECT generate_series(60001, 60100)');
	crash($k);
	$node->arm('resume-indexes', 'wait', 2);
	$r = session();
	send_to($r, "BEGIN; SELECT statements FROM sofort.resume_transaction('$k->{token}')");
	ok($node->wait_at('resume-indexes'), 'indexes of one table are complete, those of the other are not');
	my @complete = split /\n/, sql(q{SELECT index FROM sofort.indexes WHERE relation IN ('r'::regclass, 'r2'::regclass) AND status = 'ready'});
	cmp_ok(@complete, '>', 0, 'some are complete');
	like($node->error_of("SET lock_timeout = '100ms'; ALTER INDEX $_ SET TABLESPACE elsewhere"), qr/^55P03/, "$_ stays as it is") foreach @complete;
	# (what looks them up)
	sql('SET enable_seqscan = off; SELECT (SELECT count(*) FROM r WHERE id = 1), (SELECT count(*) FROM r WHERE v = 1), (SELECT count(*) FROM r2 WHERE id = 1)');
	$node->disarm('resume-indexes');
	is(answer($r), "2\n", 'resumed');
	say_to($r, 'COMMIT');
	is(sql('SET enable_seqscan = off; SELECT (SELECT count(*) FROM r WHERE id > 60000), (SELECT count(*) FROM r WHERE v > 60000), (SELECT count(*) FROM r2 WHERE id > 60000)'), '100|100|100', 'by the indexes');
	clean('resumed while an index was to be moved');
	SofortNode::drop_session($r);
	sql('DROP TABLE r2; DELETE FROM r WHERE id > 60000');

	# nor is somebody waited for who has an index to himself, and may wait for the transaction
	$k = kept();
	say_to($k, 'UPDATE r SET v = v WHERE id = 50000');
	crash($k);
	my $mover = session();
	say_to($mover, 'BEGIN; ALTER INDEX r_v SET TABLESPACE elsewhere');
	send_to($mover, 'UPDATE r SET v = v WHERE id = 50000');
	ok(waiting_for_xid(1), 'somebody has an index to himself, and waits for the transaction');
	like($node->error_of("SET statement_timeout = '5s'; BEGIN; SELECT sofort.resume_transaction('$k->{token}')"), qr/^55P03.*"r_v"/, 'who resumes it does not wait for him');
	$node->safe_psql('postgres', "SELECT sofort.abort_transaction('$k->{token}')");
	answer($mover);
	say_to($mover, 'ROLLBACK');
	SofortNode::drop_session($mover);

	# it does not expire meanwhile; one for which nobody asks does, in the same round or a later one
	$k = kept();
	say_to($k, 'DELETE FROM r WHERE id = 50000');
	my $unasked = kept();
	crash($k, $unasked);
	$node->arm('resume-indexes', 'wait');
	$r = session();
	send_to($r, "BEGIN; SELECT statements FROM sofort.resume_transaction('$k->{token}')");
	ok($node->wait_at('resume-indexes'), 'somebody who resumes a transaction waits for its indexes');
	$node->append_conf('postgresql.conf', 'sofort.continuation_timeout = 1');
	kill('HUP', $node->{_pid});
	ok($node->wait_until("SELECT sofort.transaction_outcome('$unasked->{token}') = 'expired'"), 'the time is over');
	is(outcome($k->{token}), 'open', 'not for him');
	$node->disarm('resume-indexes');
	is(answer($r), "1\n", 'he gets it');
	say_to($r, 'ROLLBACK');
	SofortNode::drop_session($r);

	# who gives up leaves it to the timeout
	$node->append_conf('postgresql.conf', 'sofort.continuation_timeout = 600');
	$k = kept();
	say_to($k, 'DELETE FROM r WHERE id = 50000');
	crash($k);
	$node->arm('resume-indexes', 'error');
	like($node->error_of("BEGIN; SELECT statements FROM sofort.resume_transaction('$k->{token}')"), qr/resume-indexes/, 'an error while it is resumed');
	$node->append_conf('postgresql.conf', 'sofort.continuation_timeout = 1');
	kill('HUP', $node->{_pid});
	ok($node->wait_until("SELECT sofort.transaction_outcome('$k->{token}') = 'expired'"), 'it expires then');
	$node->append_conf('postgresql.conf', 'sofort.continuation_timeout = 600');
	kill('HUP', $node->{_pid});
	clean('expired or not');
}

# ---- indexes that others make meanwhile ----
sql('CREATE TABLE i (id int PRIMARY KEY, v int) USING sofort; INSERT INTO i SELECT i, i FROM generate_series(1, 10) i');
{
	# one has only locked rows: the index comes, and no change any more
	my $k = kept();
	say_to($k, 'SELECT FROM i WHERE id = 1 FOR UPDATE');
	sql('CREATE INDEX i_btree ON i USING btree (v)');
	crash($k);
	my $r = resumed($k->{token});
	is($r->{said}, '1', 'resumed, with row locks on a table that has got a btree');
	like($node->error_of(q{SELECT FROM i WHERE id = 1 FOR SHARE NOWAIT}), qr/^55P03/, 'which are in force');
	like(say_to($r, 'UPDATE i SET v = 0 WHERE id = 2'), qr/0A000.*cannot be kept/, 'a change is refused');
	say_to($r, 'ROLLBACK');
	SofortNode::drop_session($r);
	$k = kept();
	say_to($k, 'SELECT FROM i WHERE id = 1 FOR UPDATE');
	sql('CREATE INDEX i_btree2 ON i USING btree (v)');
	like(say_to($k, 'UPDATE i SET v = 0 WHERE id = 2'), qr/0A000.*cannot be kept/, 'likewise without a crash');
	SofortNode::drop_session($k);
	sql('DROP INDEX i_btree, i_btree2');

	# one has changed it: CREATE INDEX CONCURRENTLY waits, dies, and does not keep it from going on
	$k = kept();
	say_to($k, 'UPDATE i SET v = 100 WHERE id = 3');
	my $builder = session();
	send_to($builder, 'CREATE INDEX CONCURRENTLY i_dead ON i USING btree (v)');
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_index WHERE indexrelid = to_regclass('i_dead') AND NOT indisready}), 'CREATE INDEX CONCURRENTLY has begun');
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE NOT granted}), 'and waits');
	is(say_to($k, 'UPDATE i SET v = 101 WHERE id = 4'), '', 'the kept transaction goes on');
	crash($k, $builder);
	$r = resumed($k->{token});
	is($r->{said}, '2', 'and after a crash');
	is(say_to($r, 'UPDATE i SET v = 102 WHERE id = 5; COMMIT'), '', 'and on');
	is(sql('DROP INDEX i_dead; SELECT count(*) FROM i WHERE v > 99'), '3', 'and commits');
	SofortNode::drop_session($r);
}

# ---- a partition that others attach ----
# A kept transaction has written to $root; then $partition comes, below $parent, for ids from $from on.
sub attached_is_refused
{
	my ($root, $parent, $partition, $from, $what) = @_;
	my $k = kept();

	is(say_to($k, "INSERT INTO $root VALUES (1, 1)"), '', "$what: there was none");
	sql("ALTER TABLE $parent ATTACH PARTITION $partition FOR VALUES FROM ($from) TO ($from + 9)");
	like(say_to($k, "INSERT INTO $root VALUES ($from + 1, 1000)"), qr/0A000.*cannot be kept/, $what);
	SofortNode::drop_session($k);
}
sql(q{CREATE TABLE pa (id int, v int) PARTITION BY RANGE (id); CREATE TABLE pa1 PARTITION OF pa FOR VALUES FROM (0) TO (10) USING sofort;
	CREATE TABLE pb (id int, v int REFERENCES i DEFERRABLE INITIALLY DEFERRED) USING sofort; CREATE TABLE pc (id int, v int) USING heap});
{
	attached_is_refused('pa', 'pa', 'pb', 10, 'deferred constraint of a partition that was attached');
	attached_is_refused('pa', 'pa', 'pc', 20, 'heap partition that was attached');

	# below the first level: the root is not told
	sql(q{CREATE TABLE qa (id int, v int) PARTITION BY RANGE (id); CREATE TABLE qm PARTITION OF qa FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
		CREATE TABLE qm0 PARTITION OF qm FOR VALUES FROM (0) TO (10) USING sofort;
		CREATE TABLE qm1 (id int, v int REFERENCES i DEFERRABLE INITIALLY DEFERRED) USING sofort; CREATE UNLOGGED TABLE qm2 (id int, v int) USING sofort});
	attached_is_refused('qa', 'qm', 'qm1', 10, 'deferred constraint as a partition that was attached to a partition');
	attached_is_refused('qa', 'qm', 'qm2', 20, 'unlogged table as a partition that was attached to a partition');
	sql('DROP TABLE qm1, qm2');

	# a partition that was looked at, and whose lock went with a block that has failed
	my $k = kept();
	is(say_to($k, q{DO $$ BEGIN BEGIN INSERT INTO qa VALUES (2, 1); RAISE 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; END $$}), '', 'a block that fails');
	sql('ALTER TABLE qm0 SET UNLOGGED');
	like(say_to($k, 'INSERT INTO qa VALUES (3, 1)'), qr/0A000.*cannot be kept/, 'partition that has become unlogged');
	SofortNode::drop_session($k);
}

# ---- a partition that others detach while one waits: a command that commits before it has the lock ----
sql('CREATE TABLE da (id int, v int) PARTITION BY RANGE (id); CREATE TABLE da1 PARTITION OF da FOR VALUES FROM (0) TO (10) USING sofort');
{
	my $k = kept();
	say_to($k, 'INSERT INTO da VALUES (5, 1)');
	crash($k);
	like($node->error_of('ALTER TABLE da DETACH PARTITION da1 CONCURRENTLY'), qr/^55006/, 'DETACH CONCURRENTLY is refused');
	is(sql('SELECT count(*) FROM pg_inherits WHERE inhdetachpending'), '0', 'and has left nothing');
	my $r = resumed($k->{token});
	is(say_to($r, 'INSERT INTO da VALUES (6, 1); COMMIT'), '', 'the kept transaction goes on');
	SofortNode::drop_session($r);
	sql('ALTER TABLE da DETACH PARTITION da1 CONCURRENTLY');
}

# ---- several in each other's way, and in others' ----
sql('CREATE TABLE a (id int PRIMARY KEY, v int) USING sofort; INSERT INTO a SELECT i, 0 FROM generate_series(1, 20) i');
{
	# each has a row of its own; 2 waits for 1, an ordinary writer for 3, when the server dies
	my @k = map { my $k = kept("k$_"); say_to($k, "UPDATE a SET v = v + $_ WHERE id = $_"); $k } 1 .. 4;
	send_to($k[1], 'UPDATE a SET v = v * 10 WHERE id = 1');
	my $writer = session();
	send_to($writer, 'UPDATE a SET v = v + 1000 WHERE id = 3');
	ok(waiting_for_xid(2), 'one kept transaction and an ordinary one wait for others');
	crash(@k, $writer);
	is(sql('SELECT string_agg(label, chr(32) ORDER BY label) FROM sofort.transactions'), 'k1 k2 k3 k4', 'four of them wait to be resumed');
	is(sql('SELECT sum(v) FROM a'), '0', 'nothing of them is visible');

	# now everybody waits for one that nobody has resumed
	my @r = map { resumed($k[$_]->{token}) } 1;
	is($r[0]->{said}, '1', 'the statement that waited was not finished');
	send_to($r[0], 'UPDATE a SET v = v * 10 WHERE id = 1 RETURNING v');
	my @w = map { session() } 1 .. 3;
	send_to($w[0], 'UPDATE a SET v = v + 1000 WHERE id = 3 RETURNING v');
	send_to($w[1], 'INSERT INTO a VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET v = a.v + 7 RETURNING v');
	send_to($w[2], 'SELECT v FROM a WHERE id = 4 FOR UPDATE');
	ok($node->wait_until(q{SELECT count(*) = 4 FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted}), 'a resumed one and three others wait');

	# resuming the one they wait for does not let them go, its end does
	my $r1 = resumed($k[0]->{token});
	is($r1->{said}, '1', 'the first is resumed while others wait for it');
	ok($node->wait_until(q{SELECT count(*) = 4 FROM pg_locks WHERE locktype IN ('transactionid', 'tuple') AND NOT granted}), 'they still wait');
	is(say_to($r1, 'UPDATE a SET v = v + 1 WHERE id = 1; COMMIT'), '', 'it commits');
	my $tenfold = answer($r[0]);
	is(say_to($r[0], 'COMMIT'), '', 'the resumed one goes on and commits');
	# in one order or the other
	my %order = ("20\n27\n" => 27, "90\n9\n" => 90);
	my $last = $order{ $tenfold . answer($w[1]) };
	ok(defined $last, 'it and ON CONFLICT see what was committed, and each other');
	my $r3 = resumed($k[2]->{token});
	is(say_to($r3, 'SELECT v FROM a WHERE id = 3; ROLLBACK'), "3\n", 'the third is resumed and rolled back');
	is(answer($w[0]), "1000\n", 'who waited for it finds the old row');
	sql("SELECT sofort.abort_transaction('$k[3]->{token}')");
	is(answer($w[2]), "0\n", 'the fourth is aborted, likewise');
	is(sql('SELECT string_agg(v::text, chr(32) ORDER BY id) FROM a WHERE id < 5'), ($last // '') . ' 2 1000 0', 'rows in the end');
	is(join(' ', map { outcome($_->{token}) } @k), 'committed committed aborted aborted', 'outcomes');
	SofortNode::drop_session($_) foreach @r, $r1, $r3, @w;

	# a deadlock of two that were resumed is found
	@k = map { my $k = kept("d$_"); say_to($k, "UPDATE a SET v = v + 1 WHERE id = $_"); $k } 5, 6;
	crash(@k);
	@r = map { resumed($_->{token}) } @k;
	send_to($r[0], 'UPDATE a SET v = v + 1 WHERE id = 6');
	ok(waiting_for_xid(1), 'one waits');
	send_to($r[1], 'UPDATE a SET v = v + 1 WHERE id = 5');
	my @said = map { answer($_) } @r;
	is(scalar(grep { /40P01/ } @said), 1, 'a deadlock of two resumed transactions is found') or diag(@said);
	say_to($_, 'COMMIT') foreach @r;
	is(sql('SELECT sum(v) FROM a WHERE id IN (5, 6)'), '2', 'and one of them has committed');
	SofortNode::drop_session($_) foreach @r;

	# forty of them, crash after crash, each time some go on; others change what is free
	my %token = map { my $k = kept("many $_"); say_to($k, "INSERT INTO a VALUES ($_ + 100, 1), ($_ + 200, 1); SELECT FROM a WHERE id = 20 FOR KEY SHARE"); my $t = $k->{token}; $_ => [ $t, $k ] } 1 .. ($ENV{SOFORT_LONG} ? 40 : 12);
	my @open = sort { $a <=> $b } keys %token;
	crash(map { $_->[1] } values %token);
	my $round = 0;
	while (@open)
	{
		is(sql(q{SELECT count(*) FROM sofort.transactions WHERE label LIKE 'many %'}), scalar(@open), scalar(@open) . ' wait');
		is(sql('UPDATE a SET v = v + 1 WHERE id BETWEEN 7 AND 20 RETURNING 1') =~ tr/1//, 14, 'others change other rows, and one that they have locked');
		like($node->error_of('SET lock_timeout = 50; DELETE FROM a WHERE id = 20'), qr/^55P03/, 'but may not delete it');
		my @now = splice @open, 0, 3;
		my @s = map { resumed($token{$_}[0]) } @now;
		foreach my $i (0 .. $#s)
		{
			say_to($s[$i], "UPDATE a SET v = v + 1 WHERE id = $now[$i] + 100");
			say_to($s[$i], $i == 1 ? 'ROLLBACK' : 'COMMIT') if $i < 2;
		}
		# the third goes on in the next round: kept again with one statement more
		push @open, $now[2] if @now == 3;
		crash(@s);
		last if ++$round > 30;
	}
	sql('SELECT FROM a LIMIT 1');	# the first use resolves what the last crash has left
	is(sql(q{SELECT count(*) FROM sofort.transactions}), '0', 'all have ended');
	my %v = map { split /\|/ } split /\n/, sql('SELECT id, v FROM a WHERE id > 100');
	my $bad = 0;
	foreach my $n (keys %token)
	{
		my $is = outcome($token{$n}[0]);
		$bad++ if $is eq 'committed' ? ($v{ 100 + $n } // 0) < 2 || ($v{ 200 + $n } // 0) != 1 : exists $v{ 100 + $n } || exists $v{ 200 + $n } || $is ne 'aborted';
	}
	is($bad, 0, 'each is whole or not there') or diag(explain(\%v));
	clean('several');
}

# ---- others use its end only when no crash can bring it back: that of one that runs, and of one that was resumed ----
sql(q{CREATE TABLE e (id int PRIMARY KEY, v int) USING sofort; CREATE TABLE ep (id int PRIMARY KEY) USING sofort; INSERT INTO ep SELECT generate_series(1, 8);
	CREATE TABLE ec (id int PRIMARY KEY, p int REFERENCES ep) USING sofort});
foreach my $resumed (0, 1)
{
	my $what = $resumed ? 'one that was resumed' : 'one that runs';
	my $n = 1 + $resumed;
	my $k = kept();
	say_to($k, "INSERT INTO e VALUES ($n, 0); INSERT INTO ec VALUES ($n, $n)");
	my $token = $k->{token};
	if ($resumed)
	{
		crash($k);
		$k = resumed($token);
	}
	$node->arm('kept-ending', 'wait');
	send_to($k, 'ROLLBACK');
	ok($node->wait_at('kept-ending'), "$what is rolled back");
	like($node->error_of("SELECT FROM ep WHERE id = $n FOR UPDATE NOWAIT"), qr/^55P03/, "$what: a row that it has locked");
	my @others = map { my $s = session(); send_to($s, $_); $s } "INSERT INTO e VALUES ($n, 1)", "DELETE FROM ep WHERE id = $n";
	ok(waiting_for_xid(2), "$what: others wait for its key, and for a row that it has locked");
	is(sql("SELECT count(*) FROM e WHERE id = $n"), '0', "$what: they see nothing of it");
	crash($k, @others);
	is(outcome($token), 'open', "$what: after a crash it is there again");
	$k = resumed($token);
	is(say_to($k, 'COMMIT'), '', "$what: and commits");
	is(sql("SELECT string_agg(v::text, ' '), (SELECT count(*) FROM ec JOIN ep ON p = ep.id WHERE p = $n) FROM e WHERE id = $n"), '0|1', "$what: with its key, and what it refers to");
	SofortNode::drop_session($k);

	# and when it has ended they go on
	$n += 2;
	$k = kept();
	say_to($k, "INSERT INTO e VALUES ($n, 0); INSERT INTO ec VALUES ($n, $n)");
	if ($resumed)
	{
		crash($k);
		$k = resumed($k->{token});
	}
	$node->arm('kept-ending', 'wait');
	send_to($k, 'ROLLBACK');
	ok($node->wait_at('kept-ending'), "$what is rolled back, and nothing happens");
	@others = map { my $s = session(); send_to($s, $_); $s } "INSERT INTO e VALUES ($n, 1)", "DELETE FROM ep WHERE id = $n";
	ok(waiting_for_xid(2), "$what: others wait");
	$node->disarm('kept-ending');
	is(join('', map { answer($_) } $k, @others), '', "$what: and go on");
	is(sql("SELECT v, (SELECT count(*) FROM ep WHERE id = $n) FROM e WHERE id = $n"), '1|0', "$what: with what they wanted");
	SofortNode::drop_session($_) foreach $k, @others;
}
clean('others use its end');

# ---- the same of one that waits; and its tables are not altered before it is undone ----
{
	my $k = kept();
	say_to($k, 'INSERT INTO e VALUES (6, 0); UPDATE e SET v = v + 1000 WHERE id = 1; INSERT INTO ec VALUES (6, 6)');
	crash($k);
	foreach my $point ('kept-ending', 'kept-closed')
	{
		$node->arm($point, 'wait');
		my $ending = session();
		send_to($ending, "SELECT sofort.abort_transaction('$k->{token}')");
		ok($node->wait_at($point), "it is being aborted, at $point");
		like($node->error_of("SET lock_timeout = 50; DELETE FROM ep WHERE id = 6"), qr/^55P03/, "$point: a row that it has locked");
		like($node->error_of($_), qr/^55006/, "$point: $_") foreach 'CREATE INDEX e_v ON e USING sofort_index (v)', 'VACUUM FULL e', 'TRUNCATE e', 'DROP TABLE e';
		if ($point eq 'kept-ending')
		{
			crash($ending);
			is(outcome($k->{token}), 'open', 'a crash then: it waits on');
			next;
		}
		$node->disarm($point);
		answer($ending);
		SofortNode::drop_session($ending);
	}
	is(sql('CREATE INDEX e_v ON e USING sofort_index (v); SET enable_seqscan = off; SELECT count(*), (SELECT count(*) FROM e WHERE v >= 1000) FROM e WHERE v = 0'), '2|0', 'an index that is made afterwards');
	clean('aborted while others wait');
}

# ---- the background worker dies ----
{
	my $k = kept('keeper');
	say_to($k, 'UPDATE a SET v = 77 WHERE id = 8');
	crash($k);
	my $w = session();
	send_to($w, 'UPDATE a SET v = v + 1 WHERE id = 8 RETURNING v');
	ok(waiting_for_xid(1), 'a writer waits for the keeper');
	my $keeper = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'sofort keeper'});
	sql("SELECT pg_terminate_backend($keeper)");
	ok($node->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'sofort keeper' AND pid <> $keeper"), 'the keeper comes back');
	ok(waiting_for_xid(1), 'the writer waits again');
	my $r = resumed($k->{token});
	is($r->{said}, '1', 'the transaction can be resumed');
	is(say_to($r, 'COMMIT'), '', 'and commits');
	is(answer($w), "78\n", 'and the writer goes on');
	SofortNode::drop_session($_) foreach $r, $w;
}

# ---- who may end it ----
sql('CREATE ROLE owner LOGIN; CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA sofort TO owner, stranger; GRANT ALL ON a TO owner');
{
	my @tokens;
	foreach (1 .. 3)
	{
		my $s = session('owner');
		push @tokens, say_to($s, "BEGIN; SELECT sofort.keep_transaction('owned')") =~ /(\w{32})/;
		say_to($s, "INSERT INTO a VALUES (300 + $_, 0)");
		$s->{drop} = 1;
		push @{ $node->{_sessions} }, $s;
	}
	crash(@{ delete $node->{_sessions} });
	like($node->error_of("SET SESSION AUTHORIZATION stranger; SELECT sofort.abort_transaction('$tokens[0]')"), qr/^42501/, 'a stranger may not abort it');
	like($node->error_of("BEGIN; SELECT sofort.resume_transaction('$tokens[0]')"), qr/^42501/, 'nor may a superuser resume it');
	sql("SET SESSION AUTHORIZATION owner; SELECT sofort.abort_transaction('$tokens[0]')");
	sql("SELECT sofort.abort_transaction('$tokens[1]')");
	is(join(' ', map { outcome($_) } @tokens), 'aborted aborted open', 'aborted by its owner and by a superuser');
	like($node->error_of("SET SESSION AUTHORIZATION stranger; BEGIN; SELECT sofort.resume_transaction('$tokens[1]')"), qr/^55000/, 'which cannot be resumed');
	sql("SELECT sofort.abort_transaction('$tokens[2]')");
}

# ---- outcomes: for a day, whatever happens to the server; then their places are used again ----
{
	my @tokens;
	foreach my $end (qw(COMMIT ROLLBACK))
	{
		my $k = kept();
		say_to($k, "UPDATE a SET v = 5 WHERE id = 9; $end");
		push @tokens, $k->{token};
		SofortNode::drop_session($k);
	}
	my $known = sub { return join ' ', map { outcome($_) } @tokens; };
	is($known->(), 'committed aborted', 'outcomes');
	$node->restart;
	is($known->(), 'committed aborted', 'after a restart');
	crash();
	is($known->(), 'committed aborted', 'after a crash');
	sql('SELECT sofort_test.age_outcomes(23)');
	my $others = sub { sql(join ';', map { ('BEGIN', 'SELECT sofort.keep_transaction()', 'COMMIT') } 1 .. $_[0]); };
	$others->(300);
	is($known->(), 'committed aborted', '23 hours and 300 transactions later');
	my $records = sql('SELECT sofort_test.kept_records()');
	sql('SELECT sofort_test.age_outcomes(25)');
	$others->($records);
	is($known->(), 'unknown unknown', 'a day and as many transactions later');
	is(sql('SELECT sofort_test.kept_records()'), $records, 'and no more places than before');

	# ... and when there are as many as may be (each of them has an outcome now)
	my $limited = "SELECT sofort_test.limit_kept_records($records)";
	my $one = "$limited; BEGIN; SELECT length(sofort.keep_transaction()); COMMIT";
	like($node->error_of($one), qr/^53400: too many transactions were kept within a day/, 'one more than there may be');
	is(sql('SELECT sofort_test.kept_records()'), $records, 'there is no place for it');
	sql('SELECT sofort_test.age_outcomes(25)');
	$others->($records - 1);
	like($node->error_of("$limited; BEGIN; SELECT 1 / (length(sofort.keep_transaction()) - 32)"), qr/^22012/, 'one that gives its place back, the last that is free');
	like(sql($one), qr/^32$/m, 'which is found, wherever it is');
	like($node->error_of("$one; $one"), qr/^53400/, 'then there is none');
}

# ---- what C code and other servers do; calls without a statement ----
my $fdw = sql(q{SELECT count(*) FROM pg_available_extensions WHERE name IN ('postgres_fdw', 'tcn', 'lo')}) == 3;
SKIP: {
	skip 'contrib modules are not installed', 6 unless $fdw;
	my $port = $node->port;
	my $host = $node->host;
	sql(qq{CREATE EXTENSION postgres_fdw; CREATE EXTENSION tcn; CREATE EXTENSION lo;
		CREATE TABLE remote (id int PRIMARY KEY, v int); INSERT INTO remote VALUES (1, 1);
		CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER loop;
		CREATE FOREIGN TABLE ft (id int, v int) SERVER loop OPTIONS (table_name 'remote');
		CREATE TABLE told (id int PRIMARY KEY) USING sofort; CREATE TRIGGER t AFTER INSERT ON told FOR EACH ROW EXECUTE FUNCTION triggered_change_notification();
		CREATE TABLE large (id int PRIMARY KEY, l lo) USING sofort; CREATE TRIGGER t BEFORE DELETE ON large FOR EACH ROW EXECUTE FUNCTION lo_manage(l);
		INSERT INTO large VALUES (1, lo_create(0))});
	foreach my $statement ('SELECT v FROM ft WHERE id = 1 FOR UPDATE', 'UPDATE ft SET v = 2', 'INSERT INTO told VALUES (1)', 'DELETE FROM large')
	{
		like($node->error_of("BEGIN; SELECT sofort.keep_transaction(); $statement"), qr/^0A000.*cannot be kept/, "refused behind: $statement");
		like($node->error_of("BEGIN; $statement; SELECT sofort.keep_transaction()"), qr/^0A000.*cannot be kept/, "refused before: $statement");
	}
	is(sql('SELECT (SELECT v FROM remote), (SELECT count(*) FROM told), (SELECT count(*) FROM large)'), '1|0|1', 'and nothing of it has happened');
}

# ---- resumed within a statement whose rows would get command ids of before ----
{
	my $k = kept();
	say_to($k, "$_ ") foreach 'INSERT INTO a VALUES (600, 1)', 'UPDATE a SET v = 2 WHERE id = 600';
	crash($k);
	my $resume = "sofort.resume_transaction('$k->{token}')";
	sql(qq{CREATE FUNCTION taken() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT statements FROM $resume); END'} =~ s/('\w{32}')/'$1'/r);
	foreach my $statement ("INSERT INTO a SELECT 601, statements FROM $resume", 'INSERT INTO a VALUES (601, taken())', "SELECT statements FROM $resume, a WHERE id = 1 FOR UPDATE OF a",
		"WITH r AS MATERIALIZED (SELECT statements FROM $resume), i AS (INSERT INTO a SELECT 601, statements FROM r) SELECT statements FROM r")
	{
		like($node->error_of("BEGIN; $statement"), qr/^0A000.*must be called in a statement that changes and locks no rows/, "not resumed by: $statement");
		is(outcome($k->{token}), 'open', 'and it waits on');
	}
	$node->arm('txn-logged', 'kill', 3);
	my $r = session();
	send_to($r, "BEGIN; DO \$\$ BEGIN PERFORM taken(); FOR i IN 602 .. 610 LOOP INSERT INTO a VALUES (i, 0); END LOOP; END \$\$");
	ok($node->reap, 'killed in a block that has resumed it and writes');
	SofortNode::drop_session($r);
	$node->start;
	$r = resumed($k->{token});
	is($r->{said}, '2', 'nothing of that block is finished');
	is(say_to($r, 'SELECT id, v FROM a WHERE id >= 600'), "600|2\n", 'or there');
	say_to($r, 'INSERT INTO a VALUES (603, 3); COMMIT');
	is(sql('SELECT count(*) FROM a WHERE id >= 600'), '2', 'committed');
	clean('resumed within a statement');
	SofortNode::drop_session($r);
}

# ---- called again in the statement that resumes it, as (f()).* does for each column, or later ----
{
	my $k = kept('again');
	say_to($k, 'INSERT INTO a VALUES (630, 1)');
	crash($k);
	my $resume = "sofort.resume_transaction('$k->{token}')";
	my $r = session();
	is(say_to($r, "BEGIN; SELECT ($resume).label, ($resume).statements"), "again|1\n", 'it says the same again');
	is(say_to($r, "INSERT INTO a VALUES (631, 1); SELECT statements FROM $resume"), "2\n", 'and later what is finished by then');
	is(say_to($r, "INSERT INTO a VALUES (632, 1); COMMIT; SELECT count(*) FROM a WHERE id >= 630"), "3\n", 'and it goes on');
	is(outcome($k->{token}), 'committed', 'committed');
	SofortNode::drop_session($r);
}

# ---- functions of an index that is rebuilt for it do something, too ----
sql(q{CREATE TABLE side (x int) USING sofort; CREATE TABLE side_heap (x int) USING heap; CREATE TABLE effect (statement text) USING heap;
	CREATE FUNCTION effect() RETURNS int LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN FOR s IN SELECT statement FROM public.effect LOOP EXECUTE s; END LOOP; RETURN 0; END $$;
	CREATE FUNCTION affected(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN i + (SELECT public.effect()); END $$;
	CREATE TABLE affected (id int PRIMARY KEY, v int) USING sofort; CREATE INDEX ON affected USING sofort_index (affected(v)); INSERT INTO affected VALUES (0, 0)});
foreach my $effect ('INSERT INTO public.side VALUES (1)', 'INSERT INTO public.side_heap VALUES (1)', 'SELECT pg_advisory_xact_lock(1)', 'SELECT FROM public.a LIMIT 1 FOR UPDATE')
{
	my $k = kept();
	say_to($k, "INSERT INTO affected SELECT max(id) + 1, 0 FROM affected");
	crash($k);
	sql("INSERT INTO effect VALUES ('$effect')");
	like($node->error_of("BEGIN; SELECT sofort.resume_transaction('$k->{token}')"), qr/^0A000: the kept transaction cannot be resumed in a transaction/, "not resumed beside: $effect");
	is(outcome($k->{token}), 'open', 'and it waits on');
	my $r = resumed($k->{token});
	is(say_to($r, 'COMMIT'), '', 'it goes on when the index is there');
	is(sql("TRUNCATE effect; SELECT (SELECT count(*) FROM side) + (SELECT count(*) FROM side_heap)"), '0', 'and that has left nothing');
	SofortNode::drop_session($r);
}
is(sql('SELECT count(*) FROM affected'), '5', 'all are committed');
clean('functions of an index');

# ---- functions that are called before a statement runs: their loops over queries are none ----
{
	sql(q{CREATE FUNCTION looped(n int) RETURNS int LANGUAGE plpgsql STABLE AS $$ DECLARE r record; s int := 0; BEGIN FOR r IN SELECT 1 FROM generate_series(1, n) LOOP s := s + 1; END LOOP; RETURN s; END $$;
		CREATE FUNCTION noted(i int) RETURNS bool LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN FOR r IN INSERT INTO side VALUES (i) RETURNING x LOOP NULL; END LOOP; RETURN looped(30) = 30; END $$;
		CREATE DOMAIN checked AS int CHECK (noted(VALUE)); CREATE TYPE with_checked AS (c checked);
		CREATE TABLE parts (id int, v int) PARTITION BY LIST (id); CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3) USING sofort; CREATE TABLE parts_4 PARTITION OF parts FOR VALUES IN (4) USING sofort;
		ALTER FUNCTION looped(int) COST 1});
	my @work = (
		'UPDATE a SET v = 3 WHERE id > looped(700)', 'SELECT count(*) FROM a WHERE v > looped(3)',    # estimates
		'SELECT count(*) FROM parts WHERE id = looped(3)',    # partitions are chosen when the plan starts
		q{SELECT ('(7)'::with_checked).c},    # a constant is read
		'INSERT INTO a VALUES (651, 1)');
	my $k = kept('loops');
	for my $n (1 .. @work)
	{
		unlike(say_to($k, $work[ $n - 1 ]), qr/ERROR/, "runs: $work[ $n - 1 ]");
		is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'loops'}), $n, 'one statement');
	}
	crash($k);
	$k = resumed($k->{token});
	is($k->{said}, scalar(@work), 'so many are finished');
	is(say_to($k, 'COMMIT; SELECT (SELECT count(*) FROM a WHERE id = 651), (SELECT count(*) FROM side WHERE x = 7)'), "1|1\n", 'all of them');
	clean('loops before a statement runs');
	SofortNode::drop_session($k);
}

# ---- a statement of which a rule makes nothing is not counted ----
{
	sql('CREATE VIEW ignored AS SELECT * FROM a; CREATE RULE r AS ON INSERT TO ignored DO INSTEAD NOTHING');
	my $k = kept('rule');
	say_to($k, "$_ ") foreach 'INSERT INTO a VALUES (620, 1)', 'INSERT INTO ignored VALUES (621, 1)', 'INSERT INTO a VALUES (622, 1)';
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'rule'}), '2', 'a rule has made nothing of a statement');
	SofortNode::drop_session($k);
}

# The protocol itself
sql('CREATE FUNCTION ins() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO a VALUES (400, 0); RETURN 1; END $$');
my %oid = map { $_ => sql("SELECT '$_'::regproc::oid") } qw(ins sofort.keep_transaction sofort.resume_transaction);
{
	my $s = raw_session($node);
	is(exchange($s, query('BEGIN; SELECT sofort.keep_transaction()')), 'BEGIN, token, SELECT 1', 'kept, in one message');
	like(exchange($s, call($oid{ins})), qr/^0A000 cannot execute a function without a statement/, 'a function call message is refused');
	is(exchange($s, query('ROLLBACK')), 'ROLLBACK', 'rolled back');
	is(exchange($s, call($oid{ins})), 'V 1', 'it is not in another transaction');
	exchange($s, query('DELETE FROM a WHERE id = 400; BEGIN'));
	like(exchange($s, call($oid{'sofort.keep_transaction'}, 'label')), qr/^0A000 sofort.keep_transaction\(\) must be called in a statement/, 'nor can it keep');
	exchange($s, query('ROLLBACK; BEGIN'));
	like(exchange($s, call($oid{'sofort.resume_transaction'}, 'x' x 32)), qr/^0A000 sofort.resume_transaction\(\) must be called in a statement/, 'or resume');
	exchange($s, query('ROLLBACK'));

	# several statements in one pipeline, and what was finished of them
	my $in_parts = extended('BEGIN') . extended('SELECT sofort.keep_transaction(\'pipeline\')') . extended('INSERT INTO a VALUES (500, 1)') . extended('SELECT v FROM a WHERE id = 500') . $sync;
	is(exchange($s, $in_parts), 'BEGIN, token, SELECT 1, INSERT 0 1, 1, SELECT 1', 'a pipeline');
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'pipeline'}), '2', 'its statements are counted');
	like(exchange($s, extended('SELECT v FROM a', 1) . execute(1) . $sync), qr/^\d+, 0A000 cannot fetch a result in parts/, 'a result in parts is refused');
	exchange($s, query('ROLLBACK'));

	# what comes before BEGIN in a pipeline, or in a message, is in the same transaction
	foreach my $first ('SELECT set_config($$work_mem$$, $$1MB$$, true)', 'SELECT count(pg_logical_emit_message(true, $$a$$, $$b$$))', 'SET LOCAL work_mem = 100')
	{
		like(exchange($s, extended($first) . extended('BEGIN') . extended('SELECT sofort.keep_transaction()') . $sync), qr/BEGIN, 0A000 this transaction cannot be kept/, "refused behind: $first");
		exchange($s, query('ROLLBACK'));
	}
	is(exchange($s, extended('INSERT INTO a VALUES (499, 1)') . $in_parts), 'INSERT 0 1, BEGIN, token, SELECT 1, INSERT 0 1, 1, SELECT 1', 'a statement before BEGIN');
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'pipeline'}), '3', 'is counted');
	exchange($s, query('ROLLBACK'));

	# drivers that want one row ask for no more
	my $one = extended('BEGIN') . extended('SELECT 1', 1) . extended('INSERT INTO a VALUES (500, 1)') . extended('SELECT sofort.keep_transaction(\'one row\')', 1) . extended('INSERT INTO a VALUES (501, 1)') . extended('SELECT v FROM a WHERE id IN (500, 501)', 1);
	is(exchange($s, $one . $sync), 'BEGIN, 1, INSERT 0 1, token, INSERT 0 1, 1', 'the first row of a result is a statement');
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'one row'}), '4', 'which counts');
	is(exchange($s, extended('INSERT INTO a VALUES (502, 1)') . extended('SELECT 2', 2) . execute(0) . $sync), 'INSERT 0 1, 2, SELECT 1, SELECT 0', 'and others follow');
	exchange($s, query('ROLLBACK'));
	is(exchange($s, extended('BEGIN') . extended('SELECT v FROM a LIMIT 3', 1) . execute(1) . execute(0) . extended('SELECT sofort.keep_transaction(\'parts\')') . $sync) =~ s/(\d+, ){3}SELECT 1/rows/r, 'BEGIN, rows, token, SELECT 1', 'a result in parts, before it is kept');
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'parts'}), '1', 'is one statement');
	exchange($s, query('ROLLBACK'));
	exchange($s, query(q{SELECT sofort_test.arm('kept-boundary', 'kill', 4)}));
	like(exchange($s, $in_parts =~ s/\Q$sync\E$//r . extended('INSERT INTO a VALUES (501, 1)') . extended('INSERT INTO a VALUES (502, 1)') . $sync), qr/gone/, 'killed in a pipeline');
	ok($node->reap, 'killed');
	$node->start;
	is(sql(q{SELECT statements FROM sofort.transactions WHERE label = 'pipeline'}), '3', 'after the crash it has three');
}

done_testing();
