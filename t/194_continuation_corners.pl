# Kept transactions and what else goes on in a server: row locks that nobody has looked for yet, row ids
# that are used again, parallel query, VACUUM FREEZE, a full pool, backup and restore, maintenance functions.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Session;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('corners');
$node->init(allows_streaming => 1, has_archiving => 1, conf => [
	'autovacuum = off', 'sofort.continuation_timeout = 600', 'checkpoint_timeout = 1h', "sofort.pool_size = '128MB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A session that stays open: say_to() sends and returns what was printed until it was done.
sub session { return session_on($_[0] // $node); }

sub kept
{
	my $s = session();
	($s->{token}) = say_to($s, 'BEGIN; SELECT sofort.keep_transaction()') =~ /^(\w{32})$/m or BAIL_OUT('not kept');
	return $s;
}

sub resumed
{
	my ($token, $on) = @_;
	my $s = session($on);
	chomp($s->{said} = say_to($s, "BEGIN; SELECT statements FROM sofort.resume_transaction('$token')"));
	$s->{token} = $token;
	return $s;
}

sub crash { return $node->crash_and_start(@_); }

sub outcome { return sql("SELECT coalesce(sofort.transaction_outcome('$_[0]'), 'unknown')"); }
sub clean { is($node->verify_problems, '', "$_[0]: clean"); return; }
sub locked { my ($sql) = @_; return $node->error_of("SET lock_timeout = 50; $sql") =~ /^55P03/ ? 1 : 0; }

sql(q{CREATE TABLE a (id int PRIMARY KEY, v int, t text) USING sofort; CREATE INDEX a_v ON a USING sofort_index (v);
	INSERT INTO a SELECT i, i, 'row ' || i FROM generate_series(1, 2000) i;
	CREATE TABLE c (id int PRIMARY KEY, a int REFERENCES a) USING sofort});

# ---- row locks after a crash: before they are sorted, and afterwards; in all modes; across lives ----
my @modes = ('KEY SHARE', 'SHARE', 'NO KEY UPDATE', 'UPDATE');
my @conflict = ('UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE');
my @free = ('NO KEY UPDATE', 'SHARE', 'KEY SHARE', undef);

sub check_modes
{
	my ($what, @first) = @_;
	my $wrong = '';
	foreach my $first (@first)
	{
		foreach my $m (0 .. 3)
		{
			my $id = $first + 10 * $m;
			$wrong .= " $id" if !locked("SELECT FROM a WHERE id = $id + 3 FOR $conflict[$m]");
			$wrong .= " $id" if defined $free[$m] && locked("SELECT FROM a WHERE id = $id + 4 FOR $free[$m]");
		}
		$wrong .= ' after' if locked("SELECT FROM a WHERE id = $first + 40 FOR UPDATE");
		$wrong .= ' before' if locked("SELECT FROM a WHERE id = $first - 1 FOR UPDATE");
	}
	is($wrong, '', "$what: row locks in all modes");
	return;
}

sub lock_modes
{
	my ($s, $first) = @_;
	say_to($s, "SELECT count(*) FROM (SELECT FROM a WHERE id >= $first + 10 * $_ AND id < $first + 10 * $_ + 10 FOR $modes[$_]) s") foreach 0 .. 3;
	return;
}

foreach my $sorted (1, 0)
{
	my $what = $sorted ? 'sorted' : 'not sorted yet';
	my $begin = sub { $node->arm_at_start('kept-locks-collected', 'wait') if !$sorted; };
	my $k = kept();
	lock_modes($k, 101);
	say_to($k, 'UPDATE a SET v = -1 WHERE id BETWEEN 131 AND 135');
	$begin->();
	crash($k);
	ok($node->wait_at('kept-locks-collected'), $what) if !$sorted;
	is(sql('SELECT sofort_test.lock_entries()'), '0', "$what: a start looks at no locked row");
	check_modes($what, 101);
	cmp_ok(sql('SELECT sofort_test.lock_entries()'), '<', 20, "$what: and those who look, at single ones");
	like(sql(q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM (SELECT id FROM a WHERE id BETWEEN 99 AND 142 FOR UPDATE SKIP LOCKED) s}), qr/^99 100 141 142$/, "$what: SKIP LOCKED");
	my $r = resumed($k->{token});
	is($r->{said}, '5', "$what: resumed");
	check_modes("$what, resumed", 101);
	lock_modes($r, 201);
	crash($r);
	check_modes("$what, in the third life", 101, 201);
	$r = resumed($k->{token});
	is(say_to($r, q{SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 101 AND 140 FOR UPDATE) s}), "40\n", "$what: it may lock them again, more strongly");
	is(say_to($r, $sorted ? 'COMMIT' : 'ROLLBACK'), '', "$what: ends");
	is(sql(q{SELECT count(*) FROM (SELECT id FROM a WHERE id < 300 FOR UPDATE SKIP LOCKED) s}), '299', "$what: then all are free");
	SofortNode::drop_session($r);
	$node->disarm('kept-locks-collected');
}
is(sql('SELECT count(*) FROM a WHERE v = -1'), '5', 'one of them has committed');
clean('locks');

# it ends before they are sorted: resumed, or aborted; and the keeper dies over it
foreach my $end ('COMMIT', 'abort', 'kill')
{
	my $k = kept();
	lock_modes($k, 101);
	$node->arm_at_start('kept-locks-collected', $end eq 'kill' ? 'kill' : 'wait');
	if ($end eq 'kill')
	{
		$node->kill9;
		SofortNode::drop_session($k);
		$node->spawn;
		ok($node->reap(kill_rest => 1), 'killed while the keeper sorts');
		$node->start;
		check_modes('after that', 101);
	}
	else
	{
		crash($k);
		ok($node->wait_at('kept-locks-collected'), "$end: before they are sorted");
	}
	if ($end eq 'abort') { sql("SELECT sofort.abort_transaction('$k->{token}')"); }
	else { my $r = resumed($k->{token}); say_to($r, 'COMMIT'); SofortNode::drop_session($r); }
	$node->disarm('kept-locks-collected') if $end ne 'kill';
	is(sql(q{SELECT count(*) FROM (SELECT id FROM a WHERE id < 300 FOR UPDATE SKIP LOCKED) s}), '299', "$end: all are free");
	is(outcome($k->{token}), $end eq 'abort' ? 'aborted' : 'committed', "$end: outcome");
}

# somebody finds an old lock while the transaction that was resumed takes new ones: none is forgotten
{
	my $k = kept();
	say_to($k, 'SELECT FROM a WHERE id = 10 FOR KEY SHARE');
	crash($k);
	my $r = resumed($k->{token});
	my $other = session();
	say_to($other, 'BEGIN; SELECT FROM a WHERE id = 20 FOR KEY SHARE');
	$node->arm('row-locked', 'wait', 1);
	send_to($r, 'SELECT FROM a WHERE id = 20 FOR KEY SHARE');
	$node->wait_at('row-locked');
	sql('UPDATE a SET t = t WHERE id = 10');
	$node->disarm('row-locked');
	answer($r);
	crash($r, $other);
	is(locked('DELETE FROM a WHERE id = 20'), 1, 'a lock that was taken while others found older ones');
	is(locked('DELETE FROM a WHERE id = 10'), 1, 'an older one, on the version that others have made');
	sql("SELECT sofort.abort_transaction('$k->{token}')");
}

# ---- a row that was locked is gone, its row id is another's ----
{
	sql(q{CREATE TABLE u (id int PRIMARY KEY, v int) USING sofort; CREATE INDEX u_v ON u USING sofort_index (v); INSERT INTO u SELECT i, i FROM generate_series(1, 200) i});
	my $older = session();
	say_to($older, 'BEGIN; SELECT pg_current_xact_id()');
	my $k = kept();
	say_to($k, 'SELECT count(*) FROM (SELECT FROM u WHERE id <= 100 FOR KEY SHARE) s');
	say_to($older, 'UPDATE u SET v = -v WHERE id <= 100; COMMIT');
	SofortNode::drop_session($older);
	crash($k);
	sql('VACUUM u');
	crash();
	sql('VACUUM u');
	sql('INSERT INTO u SELECT i, i FROM generate_series(1001, 1200) i');
	my $again = sql('SELECT count(*) FROM u WHERE id > 1000 AND ctid <= (SELECT max(ctid) FROM u WHERE id BETWEEN 101 AND 200)');
	cmp_ok($again, '>', 20, "$again row ids are used again");
	is($node->error_of('SET lock_timeout = 50; DELETE FROM u WHERE id > 1000'), '', 'their rows are not locked');
	is(locked("DELETE FROM u WHERE id = $_"), 1, "row $_ is") foreach 1, 50, 100;
	my $r = resumed($k->{token});
	sql('INSERT INTO u SELECT i, i FROM generate_series(2001, 2200) i');
	is($node->error_of('SET lock_timeout = 50; DELETE FROM u WHERE id > 2000'), '', 'also when it is resumed');
	is(locked('DELETE FROM u WHERE id = 50'), 1, 'and those it has locked are');
	say_to($r, 'COMMIT');
	is($node->error_of('SET lock_timeout = 50; DELETE FROM u'), '', 'then none is');
	SofortNode::drop_session($r);
	clean('row ids that are used again');
}

# ---- VACUUM holds back for it what it would for one that was not interrupted ----
{
	my $k = kept();
	say_to($k, 'SELECT count(*) FROM (SELECT FROM a WHERE id BETWEEN 401 AND 500 FOR KEY SHARE) s; UPDATE a SET v = v + 1 WHERE id = 501');
	crash($k);
	sql('UPDATE a SET v = v + 100000 WHERE id BETWEEN 401 AND 500');
	foreach my $stage ('waits', 'was resumed')
	{
		my $r = $stage eq 'waits' ? undef : resumed($k->{token});
		sql('VACUUM (FREEZE) a') foreach 1 .. 2;
		sql('VACUUM (FREEZE); CHECKPOINT');
		is(sql('SELECT count(*) FROM a WHERE v > 100000'), '100', "VACUUM FREEZE while it $stage");
		is(locked('DELETE FROM a WHERE id = 450'), 1, "locks after VACUUM while it $stage");
		next if !$r;
		is(say_to($r, 'SELECT v FROM a WHERE id = 501'), "502\n", 'it sees its own row');
		# the same by parallel workers, which have no other way than its xid
		my $force = sql('SHOW server_version_num') >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode';
		crash($r);
		$r = session();
		is(say_to($r, "SET $force = on; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; BEGIN; SELECT statements FROM sofort.resume_transaction('$k->{token}')"), "3\n", 'resumed, for parallel query');
		say_to($r, 'UPDATE a SET v = v + 1 WHERE id = 502');
		like(say_to($r, 'EXPLAIN (COSTS OFF) SELECT sum(v) FROM a WHERE id IN (501, 502, 503) AND t LIKE $$row%$$'), qr/Gather|Single Copy/, 'a parallel plan');
		is(say_to($r, 'SELECT sum(v) FROM a WHERE id IN (501, 502, 503) AND t LIKE $$row%$$'), "1508\n", 'parallel workers see what it did before and after');
		is(sql('SELECT sum(v) FROM a WHERE id IN (501, 502, 503)'), '1506', 'others do not');
		is(say_to($r, 'COMMIT'), '', 'commit');
		is(sql('SELECT sum(v) FROM a WHERE id IN (501, 502, 503)'), '1508', 'they do');
		SofortNode::drop_session($r);
	}
	clean('VACUUM');
}

# ---- a full pool ----
{
	my $k = kept();
	say_to($k, 'INSERT INTO a SELECT i, i, repeat(\'x\', 100) FROM generate_series(5001, 5100) i');
	my @tokens = $k->{token};
	my $k2 = kept();
	say_to($k2, 'INSERT INTO c SELECT i, i FROM generate_series(601, 610) i');
	push @tokens, $k2->{token};
	crash($k, $k2);
	my $fill = session();
	say_to($fill, 'BEGIN; SELECT sofort_test.fill_pool(0)');
	my $r = resumed($tokens[0]);
	is($r->{said}, '1', 'resumed while the pool is full');
	like(say_to($r, q{INSERT INTO a SELECT i, i, repeat('x', 1000) || i FROM generate_series(6001, 9000) i}), qr/53100/, 'a statement fails');
	say_to($r, 'ROLLBACK');
	SofortNode::drop_session($r);
	is(outcome($tokens[0]), 'aborted', 'as in any transaction');
	# a change by others that must write a lock of it first
	my $error = $node->error_of('UPDATE a SET t = repeat($$y$$, 5000) WHERE id BETWEEN 601 AND 610');
	like($error, qr/^(53100|)/, 'a change of rows that it has locked works or fails');
	is(locked('DELETE FROM a WHERE id = 605'), 1, 'its locks stay');
	$r = resumed($tokens[1]);
	is(say_to($r, 'COMMIT'), '', 'one that needs no space commits');
	is(outcome($tokens[1]), 'committed', 'committed');
	is(sql('SELECT count(*) FROM c'), '10', 'its rows are there');
	say_to($fill, 'ROLLBACK');
	SofortNode::drop_session($_) foreach $fill, $r;
	clean('full pool');
}

# ---- maintenance functions ----
foreach my $call ('sofort.set_dictionary_placement($$a$$, $$t$$, $$pmem$$)')
{
	like($node->error_of("BEGIN; SELECT sofort.keep_transaction(); SELECT $call"), qr/^0A000/, "refused behind: $call");
	like($node->error_of("BEGIN; SELECT $call; SELECT sofort.keep_transaction()"), qr/^0A000/, "refused before: $call");
}

like($node->error_of(q{SELECT pg_replication_origin_create('own'); SELECT pg_replication_origin_session_setup('own'); BEGIN; SELECT sofort.keep_transaction()}),
	qr/^0A000/, 'refused with a replication origin');

# ---- a session in which it could not go on does not get it: it waits for another ----
{
	my $k = kept();
	say_to($k, 'UPDATE a SET v = -5 WHERE id = 5');
	crash($k);
	foreach my $before ('SELECT pg_advisory_lock(1)', 'BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 5); COMMIT', q{SELECT pg_replication_origin_session_setup('own')})
	{
		like($node->error_of("$before; BEGIN; SELECT sofort.resume_transaction('$k->{token}'); SELECT 1"), qr/^0A000: this transaction cannot be kept/, "not resumed after: $before");
		is(outcome($k->{token}), 'open', 'and it waits on');
	}
	my $r = resumed($k->{token});
	is(say_to($r, 'COMMIT; SELECT v FROM a WHERE id = 5'), "-5\n", 'it goes on in another session');
	SofortNode::drop_session($r);
}

# ---- backup: in the restored cluster it waits, too ----
{
	my $copy = $node->pool_file . '.copy';
	my $waits = kept();
	say_to($waits, 'INSERT INTO c VALUES (700, 700); UPDATE a SET v = -700 WHERE id = 700');
	crash($waits);
	my $runs = kept();
	say_to($runs, 'INSERT INTO c VALUES (800, 800)');
	$node->backup('base');
	say_to($runs, 'UPDATE a SET v = -800 WHERE id = 800');
	my ($point, $lsn) = split /\|/, sql("SELECT restore_point, lsn FROM sofort.backup('$copy')");
	say_to($runs, 'UPDATE a SET v = -801 WHERE id = 801; COMMIT');
	my $r = resumed($waits->{token});
	say_to($r, 'COMMIT');
	sql('SELECT pg_switch_wal()');
	$node->poll_query_until('postgres', "SELECT last_archived_wal >= pg_walfile_name('$lsn') FROM pg_stat_archiver") or BAIL_OUT('WAL is not archived');
	my $restored = SofortNode->new('restored');
	$restored->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	$restored->{_sofort_loaded} = $restored->{_sofort_created} = 1;
	run_log([ 'cp', '--sparse=always', $copy, $restored->pool_file ]);
	$restored->append_conf('postgresql.conf', join("\n", "sofort.pool_path = '" . $restored->pool_file . "'", 'archive_mode = off',
		"recovery_target_name = '$point'", "recovery_target_action = 'promote'", ''));
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or BAIL_OUT('recovery does not end');
	is($restored->safe_psql('postgres', 'SELECT count(*) FROM c WHERE id >= 700'), '0', 'restored: they are not visible');
	is($restored->safe_psql('postgres', 'SELECT string_agg(statements::text, $$ $$ ORDER BY statements) FROM sofort.transactions'), '2 2', 'restored: both wait, with what they had finished');
	my $mine = resumed($runs->{token}, $restored);
	is($mine->{said}, '2', 'restored: one is resumed');
	is(say_to($mine, 'SELECT v FROM a WHERE id = 800; COMMIT'), "-800\n", 'restored: with its rows');
	$restored->safe_psql('postgres', "SELECT sofort.abort_transaction('$waits->{token}')");
	is($restored->safe_psql('postgres', 'SELECT string_agg(id::text, $$ $$), (SELECT sum(v) FROM a WHERE id IN (700, 800, 801)) FROM c WHERE id >= 700'), '800|701', 'restored: in the end');
	is($restored->verify_problems, '', 'restored: clean');
	is(sql('SELECT string_agg(id::text, $$ $$ ORDER BY id), (SELECT sum(v) FROM a WHERE id IN (700, 800, 801)) FROM c WHERE id >= 700'), '700 800|-2301', 'the original goes on by itself');
	unlink $copy;
	SofortNode::drop_session($_) foreach $runs, $r, $mine;
	$restored->stop;
}

# ---- without the keeper; and when the server comes back with fewer processes than transactions are kept ----
{
	my $settings = slurp_file($node->data_dir . '/postgresql.conf');
	my $set = sub {
		$node->append_conf('postgresql.conf', $_) foreach @_;
		$node->start;
	};
	$node->stop;
	$set->('max_worker_processes = 0');
	like($node->error_of('BEGIN; SELECT sofort.keep_transaction()'), qr/^55000.*worker "sofort keeper" is not running/s, 'nothing is kept without the keeper');
	is(sql('SELECT count(*) > 0 FROM a'), 't', '... tables are used without it');
	$node->stop;
	$set->('max_worker_processes = 8', 'max_connections = 30');

	my @kept = map { kept() } 1 .. 16;
	like(say_to($kept[$_], "INSERT INTO a VALUES (900000 + $_)"), qr/^$/, "kept transaction $_ has inserted") foreach 0 .. $#kept;
	$node->kill9;
	SofortNode::drop_session($_) foreach @kept;
	if ($ENV{SOFORT_LONG})
	{
		$set->('max_worker_processes = 0');
		like($node->error_of('SELECT count(*) FROM a'), qr/^55000.*worker "sofort keeper" is not running/s, 'tables wait for the keeper where kept transactions wait');
		$node->stop;
	}
	$set->('max_connections = 5', 'max_worker_processes = 3', 'autovacuum_max_workers = 1', 'max_wal_senders = 0', 'wal_level = replica',
		$node->pg_version >= 18 ? 'autovacuum_worker_slots = 1' : ());
	like($node->error_of('SELECT count(*) FROM a'), qr/^53400.*keeps more transactions than this server has processes for/s, 'more kept transactions than processes');
	like($node->error_of('INSERT INTO a VALUES (1000000)'), qr/^53400/, '... nor is anything written');
	$node->kill9;
	$node->start;
	$node->stop;
	open(my $file, '>', $node->data_dir . '/postgresql.conf') or BAIL_OUT($!);
	print $file $settings;
	close $file;
	$node->start;
	foreach my $i (0 .. $#kept)
	{
		my $s = resumed($kept[$i]{token});
		is($s->{said}, '1', "kept transaction $i is resumed");
		say_to($s, 'COMMIT');
		SofortNode::drop_session($s);
	}
	is(sql('SELECT count(*) FROM a WHERE id >= 900000'), '16', 'and all are committed');
	clean('fewer processes');
}

done_testing();
