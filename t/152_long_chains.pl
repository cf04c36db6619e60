# Rows with many versions beside old snapshots: however many there are, each
# snapshot finds its own after a few of them, and no other, beside updates that are
# rolled back, pruning, VACUUM and a crash.
# SOFORT_LONG: a million updates of a row instead of 20,000.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('chains');
$node->init(conf => [ 'autovacuum = off', 'jit = off', "sofort.pool_size = '1GB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

my $updates = $ENV{SOFORT_LONG} ? 1_000_000 : 20_000;
my $look_up = 'SELECT n FROM hot WHERE id = 7';
# 64 steps, then from a milestone 64 at most, two misses each; and the milestones
my $bound = 2 * 128 + 16;

sql(q{CREATE TABLE hot (id int PRIMARY KEY, n int) USING sofort; INSERT INTO hot SELECT i, 0 FROM generate_series(1, 100) i;
	CREATE PROCEDURE heat(updates int) LANGUAGE plpgsql AS $$
	BEGIN FOR r IN 1 .. updates LOOP UPDATE hot SET n = n + 1 WHERE id = 7; COMMIT; END LOOP; END $$;
	CREATE PROCEDURE heat_and_fail(updates int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR r IN 1 .. updates LOOP
			BEGIN
				UPDATE hot SET n = n + 100000 WHERE id = 7;
				IF r % 3 > 0 THEN RAISE division_by_zero; END IF;
				UPDATE hot SET n = n - 99999 WHERE id = 7;
			EXCEPTION WHEN division_by_zero THEN
			END;
			IF r % 7 = 0 THEN ROLLBACK; ELSIF r % 2 = 0 THEN COMMIT; END IF;
		END LOOP;
		COMMIT;
	END $$;
	CALL heat(10)});

# What the session finds, and the cache misses of looking for it
sub look
{
	my ($session, $query) = @_;
	$query //= $look_up;
	my $found = $session->query_safe($query);
	my $before = $session->query_safe('SET sofort.scm_read_latency = 1; SELECT read_delays FROM sofort_test.flush_counters()');
	$session->query_safe($query);
	my $after = $session->query_safe('SELECT read_delays FROM sofort_test.flush_counters(); SET sofort.scm_read_latency = 0');
	return ($found, $after - $before);
}

sub snapshot
{
	my $session = $node->background_psql('postgres');
	$session->query_safe('SET enable_seqscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
	return $session;
}

sub finds
{
	my ($session, $expected, $what, $query) = @_;
	my ($found, $misses) = look($session, $query);
	is($found, $expected, "$what: the right version");
	cmp_ok($misses, '<=', $bound, "$what: $misses cache misses");
	return;
}

# ---- snapshots of several ages ----
my @old;
foreach my $part (1 .. 5)
{
	push @old, [ snapshot(), sql($look_up) ];
	sql('CALL heat(' . $updates / 5 . ')');
}
finds($_->[0], $_->[1], "a snapshot from update $_->[1]") foreach @old;
my $new = $node->background_psql('postgres');
$new->query_safe('SET enable_seqscan = off');
finds($new, $updates + 10, 'a new snapshot');
cmp_ok((look($new))[1], '<=', 6, 'which meets its version at once');
cmp_ok(sql(q{SELECT sofort_test.milestone_bytes('hot')}), '<', 2048 + $updates, 'milestones take little memory');

# one of them ends: nothing can be freed beside the oldest
$old[2][0]->query_safe('COMMIT');
sql('VACUUM hot; CALL heat(1000)');
finds($old[$_][0], $old[$_][1], "a snapshot from update $old[$_][1], after VACUUM") foreach (0, 1, 3, 4);

# the oldest ends: what only it saw goes
$old[$_][0]->query_safe('COMMIT') foreach (0, 1);
sql('VACUUM hot; CALL heat(1000)');
finds($old[$_][0], $old[$_][1], "a snapshot from update $old[$_][1], when older ones have ended") foreach (3, 4);

# a row that this snapshot does not know, and one that a newer one has lost
sql(q{INSERT INTO hot VALUES (101, 0); CREATE PROCEDURE heat_other(updates int) LANGUAGE plpgsql AS $$
	BEGIN FOR r IN 1 .. updates LOOP UPDATE hot SET n = n + 1 WHERE id = 101; COMMIT; END LOOP; END $$; CALL heat_other(3000)});
finds($old[4][0], '', 'a row that came later', 'SELECT n FROM hot WHERE id = 101');
sql('DELETE FROM hot WHERE id = 101');
finds($new, '', 'a row that was deleted', 'SELECT n FROM hot WHERE id = 101');

# versions of a transaction under way
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; DECLARE early CURSOR FOR SELECT n FROM hot WHERE id = 7');
$writer->query_safe('DO $$BEGIN FOR r IN 1 .. 5000 LOOP UPDATE hot SET n = n + 1 WHERE id = 7; END LOOP; END$$');
finds($new, $updates + 2010, 'beside a transaction that has made 5000 versions');
finds($old[4][0], $old[4][1], 'the same, by an old snapshot');
is($writer->query_safe('FETCH early'), $updates + 2010, 'its own cursor from before');
is($writer->query_safe($look_up), $updates + 7010, 'its own newest version');
$writer->query_safe('SAVEPOINT s; DO $$BEGIN FOR r IN 1 .. 5000 LOOP UPDATE hot SET n = n + 1 WHERE id = 7; END LOOP; END$$; ROLLBACK TO s');
is($writer->query_safe($look_up), $updates + 7010, 'its newest version, when others were rolled back');
$writer->query_safe('DO $$BEGIN FOR r IN 1 .. 500 LOOP UPDATE hot SET n = n + 1 WHERE id = 7; END LOOP; END$$; COMMIT');
finds($old[4][0], $old[4][1], 'after its commit, by an old snapshot');
is(sql($look_up), $updates + 7510, 'after its commit');

# the same in a prepared and in a serializable transaction
$old[3][0]->query_safe('COMMIT; BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM hot WHERE id = 1');
sql('CALL heat(3000)');
finds($old[3][0], $updates + 7510, 'by a serializable transaction');
$old[3][0]->query_safe('COMMIT');
is($node->verify_problems, '', 'long chains: verify');

# ---- a crash: nobody needs milestones after it ----
$_->quit foreach ($writer, $new, map { $_->[0] } @old);
$node->kill9;
$node->start;
is(sql($look_up), $updates + 10510, 'after a crash');
is($node->verify_problems, '', 'after a crash: verify');
my $one = snapshot();
sql('CALL heat(3000)');
finds($one, $updates + 10510, 'an old snapshot after the crash');
$one->query_safe('COMMIT');
sql('VACUUM hot; SELECT txid_current(); VACUUM hot');
my $idle = sql(q{SELECT sofort_test.milestone_bytes('hot')});
$one->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
sql('CALL heat_and_fail(9000)');
finds($one, $updates + 13510, 'beside updates that fail');
cmp_ok(sql(q{SELECT sofort_test.milestone_bytes('hot')}), '>', $idle, 'milestones');
$one->query_safe('COMMIT');
$one->quit;
sql('VACUUM hot; SELECT txid_current(); VACUUM hot; SELECT txid_current(); VACUUM hot');
cmp_ok(sql(q{SELECT sofort_test.milestone_bytes('hot')}), '<=', $idle, 'go when the chain is short again');
is($node->verify_problems, '', 'updates that failed: verify');

# ---- many versions that lie before their row: VACUUM, VACUUM FULL and CLUSTER walk their chain once ----
# Cache misses of a statement, in a session of its own
sub misses_of
{
	my ($statement) = @_;
	my ($before, $after) = split /\n/, sql("SET sofort.scm_read_latency = 1; SELECT read_delays FROM sofort_test.flush_counters(); $statement; SELECT read_delays FROM sofort_test.flush_counters()");
	return $after - $before;
}

# Rows 1 to $n are free, and take $n versions of the row that lies behind them, after those of
# updates that failed.
sub far_versions
{
	my ($n, $nfailed) = @_;
	$nfailed //= 0;
	sql(qq{DROP TABLE IF EXISTS far; CREATE TABLE far (id int PRIMARY KEY, n int) USING sofort;
		INSERT INTO far SELECT i, 0 FROM generate_series(1, $n) i; INSERT INTO far VALUES (0, 0);
		DELETE FROM far WHERE id > 0});
	sql('VACUUM far; SELECT txid_current()') foreach (1 .. 3);
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
	sql("DO \$\$BEGIN FOR r IN 1 .. $nfailed LOOP UPDATE far SET n = -1 WHERE id = 0; ROLLBACK; END LOOP; END\$\$");
	sql("DO \$\$BEGIN FOR r IN 1 .. $n LOOP UPDATE far SET n = n + 1 WHERE id = 0; COMMIT; END LOOP; END\$\$");
	return $holder;
}
my %misses;
foreach my $n (1000, 4000)
{
	my $holder = far_versions($n);
	cmp_ok(sql('SELECT dead_rows FROM sofort.tables WHERE relation = $$far$$::regclass'), '>=', $n, "$n versions");
	$misses{'VACUUM beside a snapshot that needs them'}{$n} = misses_of('VACUUM far');
	foreach my $rewrite ('VACUUM FULL far', 'CLUSTER far USING far_pkey')
	{
		$holder->query_safe('COMMIT');
		$holder->quit;
		$holder = far_versions($n);
		$misses{$rewrite}{$n} = misses_of($rewrite);
		is(sql('SELECT count(*), max(n) FROM far'), "1|$n", "$rewrite: the row is right");
		is($node->verify_problems, '', "$rewrite: verify");
	}
	$holder->query_safe('COMMIT');
	$holder->quit;
	$holder = far_versions($n);
	$holder->query_safe('COMMIT');
	$holder->quit;
	$misses{'VACUUM'}{$n} = misses_of('VACUUM far');
	is(sql('SELECT dead_rows <= 2 FROM sofort.tables WHERE relation = $$far$$::regclass'), 't', 'VACUUM frees them');
	is(sql('SELECT count(*), max(n) FROM far'), "1|$n", 'VACUUM: the row is right');
	is($node->verify_problems, '', 'VACUUM: verify');

	# under all of them some that were rolled back
	$holder = far_versions($n, $n / 10);
	$misses{'VACUUM beside a snapshot, after updates that failed'}{$n} = misses_of('VACUUM far');
	is($node->verify_problems, '', 'VACUUM after updates that failed: verify');
	$holder->query_safe('COMMIT');
	$holder->quit;

	# with versions that a younger snapshot needs above those that are dead
	$holder = far_versions($n);
	my $younger = $node->background_psql('postgres');
	$younger->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
	sql("DO \$\$BEGIN FOR r IN 1 .. $n LOOP UPDATE far SET n = n + 1 WHERE id = 0; COMMIT; END LOOP; END\$\$");
	$holder->query_safe('COMMIT');
	$holder->quit;
	$misses{'updates, when an older snapshot has ended'}{$n} = misses_of("DO \$\$BEGIN FOR r IN 1 .. $n LOOP UPDATE far SET n = n + 1 WHERE id = 0; COMMIT; END LOOP; END\$\$");
	$misses{'VACUUM beside a younger snapshot'}{$n} = misses_of('VACUUM far');
	is($younger->query_safe('SELECT max(n) FROM far'), $n, 'the younger snapshot sees its version');
	$younger->query_safe('COMMIT');
	$younger->quit;
}
foreach my $what (sort keys %misses)
{
	my ($few, $many) = ($misses{$what}{1000}, $misses{$what}{4000});
	cmp_ok($many, '<', 6 * $few + 1000, "$what: $few cache misses with 1000 versions, $many with 4000");
}
# they look at the first versions only
cmp_ok($misses{'updates, when an older snapshot has ended'}{1000}, '<', 100_000, '1000 updates do not walk through what the younger snapshot needs');
sql('DROP TABLE far');

# ---- all at once: what a snapshot has seen it sees again ----
sql(q{CREATE TABLE many (id int PRIMARY KEY, n int, t text) USING sofort; INSERT INTO many SELECT i, 0, '0' FROM generate_series(1, 20) i;
	CREATE PROCEDURE stir(updates int, seed float) LANGUAGE plpgsql AS $$
	DECLARE k int;
	BEGIN
		PERFORM setseed(seed);
		FOR r IN 1 .. updates LOOP
			k := 1 + floor(4 * random() * random());
			BEGIN
				UPDATE many SET n = n + 1, t = (n + 1)::text || repeat('x', n % 50) WHERE id = k;
				IF r % 5 = 0 THEN RAISE division_by_zero; END IF;
			EXCEPTION WHEN division_by_zero THEN
			END;
			IF r % 11 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$;
	CREATE PROCEDURE watch(looks int) LANGUAGE plpgsql AS $$
	DECLARE seen int[]; now int; txt text;
	BEGIN
		SET LOCAL enable_seqscan = off;
		SELECT array_agg(n ORDER BY id) INTO seen FROM many;
		FOR r IN 1 .. looks LOOP
			FOR k IN 1 .. 4 LOOP
				SELECT n, t INTO now, txt FROM many WHERE id = k;
				IF now IS DISTINCT FROM seen[k] OR txt IS DISTINCT FROM now::text || repeat('x', (now - 1) % 50) AND now > 0 THEN
					RAISE 'row % was %, is % %', k, seen[k], now, txt;
				END IF;
			END LOOP;
		END LOOP;
	END $$});
my $rounds = $ENV{SOFORT_LONG} ? 20 : 2;
my @session = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 5;
my $wrong = 0;
foreach my $round (1 .. $rounds)
{
	$session[$_]->query_until(qr/start/, "\\echo start\nCALL stir(6000, 0.$round$_);\n") foreach (0, 1);
	foreach my $i (2, 3, 4)
	{
		my $looks = 40 * 5 ** ($i - 2);
		$session[$i]->query_until(qr/start/, "\\echo start\n" . join('', map { "BEGIN ISOLATION LEVEL REPEATABLE READ; CALL watch($looks); COMMIT;\n" } 1 .. 2000 / $looks));
	}
	foreach (1 .. 8) { sql('VACUUM many'); }
	foreach my $s (@session)
	{
		$s->query('SELECT 1');
		if ($s->{stderr} =~ /ERROR/) { diag($s->{stderr}); $wrong++; }
		$s->{stderr} = '';
	}
}
is($wrong, 0, 'beside updates, rollbacks and VACUUM every snapshot sees the same again');
$_->quit foreach @session;
is($node->verify_problems, '', 'all at once: verify');
is(sql('SELECT count(*) FROM many WHERE n > 0'), 4, 'rows were updated');

$node->stop;
$node->teardown_node;
done_testing();
