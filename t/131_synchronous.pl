# Recovery mode synchronous: who needs an index after a start waits until all are
# there, but not for what comes after them; and nobody waits for what cannot come.
# Functions of users, which may never return, hold up nobody but who needs their indexes,
# in all modes.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('synchronous');
$node->init(conf => [
	'autovacuum = off', 'sofort.recovery_mode = synchronous', 'sofort.recovery_workers = 0', "deadlock_timeout = '100ms'",
	'max_prepared_transactions = 2' ]);
$node->start;

sub sql { return $node->safe_psql($_[1] || 'postgres', $_[0]); }

sub session
{
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=terse', '-d', $node->connstr('postgres'), map { ('-c', $_) } @_ ],
		'<', \undef, '>', \$out, '2>', \$err);
	return { out => \$out, err => \$err, run => $run };
}

sub finish
{
	my ($s) = @_;
	$s->{run}->finish;
	return ${ $s->{out} } . ${ $s->{err} };
}

sub set
{
	sql("ALTER SYSTEM SET $_") for @_;
	sql('SELECT pg_reload_conf()');
	return;
}

my $waiting = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension'";
my $missing = "SELECT count(*) FROM sofort.indexes WHERE status <> 'ready'";
my $by_index = "SET enable_seqscan = off; SELECT v FROM a WHERE id = 77";
my $by_other = "SET enable_seqscan = off; SELECT v FROM b WHERE id = 77";	# (the worker stands still in a)

sql(q{
	CREATE TABLE a (id int PRIMARY KEY, v int) USING sofort;
	CREATE TABLE b (id int PRIMARY KEY, v int) USING sofort;
	CREATE TABLE h (id int PRIMARY KEY, v int) USING heap;
	INSERT INTO a SELECT i, i FROM generate_series(1, 5000) i;
	INSERT INTO b SELECT * FROM a;
	INSERT INTO h VALUES (1, 1);
	ANALYZE});
sql('CREATE DATABASE other');
sql('CREATE EXTENSION sofort; CREATE TABLE c (id int PRIMARY KEY) USING sofort; INSERT INTO c VALUES (1)', 'other');

# Nothing is rebuilt yet; one worker stands still at its first block.
sub start_held
{
	set('sofort.recovery_workers = 0', 'sofort.recovery_mode = synchronous');
	$node->kill9;
	$node->start;
	$node->arm('rebuild-block', 'wait');
	set('sofort.recovery_workers = 1');
	ok($node->wait_at('rebuild-block'), "$_[0]: a worker stands still");
	return;
}

# ---- what waits, and what does not ----

start_held('waiting');
my $s = session("$by_index; $missing");
ok($node->wait_until($waiting), 'who needs an index waits');
is(sql('SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT v FROM a WHERE id = 78'), '78', 'who needs none does not');
is(sql('UPDATE h SET v = 2 WHERE id = 1 RETURNING v'), '2', 'nor who needs other tables');
like($node->error_of("SET statement_timeout = '100ms'; $by_index"), qr/^57014/, 'waiting can be cancelled');
ok($node->wait_until($waiting), 'the first one still waits');
$node->disarm('rebuild-block');
is(finish($s), "77\n0\n", 'and goes on when all indexes are there');
# (the other database's index may be the last one)
ok($node->wait_until(q{SELECT mode || phase = 'synchronousfinished' FROM sofort.recovery}), 'view');

# ---- without workers, and when there is no mode to wait for any more ----

sql("ALTER SYSTEM SET sofort.recovery_workers = 0");
$node->kill9;
$node->start;
is(sql("$by_index; $missing"), "77\n1", 'without workers everybody does what he needs');
start_held('modes');
$s = session($by_other);
ok($node->wait_until($waiting), 'one waits');
set('sofort.recovery_mode = instant');
is(finish($s), "77\n", 'until the mode changes');
$node->disarm('rebuild-block');

# ---- processes of recovery that go away ----

start_held('terminated');
$s = session($by_other);
ok($node->wait_until($waiting), 'one waits');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'sofort recovery worker'");
is(finish($s), "77\n", 'until the worker is terminated');
$node->disarm('rebuild-block');
start_held('launcher');
$s = session($by_other);
ok($node->wait_until($waiting), 'one waits');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'sofort recovery launcher'");
is(finish($s), "77\n", 'until the launcher is terminated');
$node->disarm('rebuild-block');

# ---- a database that recovery has to leave ----

start_held('left');
$s = session_on($node, undef, 'other');
send_to($s, "SET enable_seqscan = off; SELECT id FROM c WHERE id = 1");
ok($node->wait_until($waiting), 'one waits');
like($node->error_of('DROP DATABASE other'), qr/^55006/, 'it cannot be dropped, but no worker comes to it for a while');
ok($node->wait_until($waiting =~ s/= 1/= 0/r), 'so nobody waits for one');
is(answer($s), "1\n", 'and gets an answer');
$s->{run}->finish;
$node->disarm('rebuild-block');

# ---- who waits may hold what recovery needs ----

start_held('locks');
$s = session("BEGIN; LOCK TABLE b; $by_index; SELECT v FROM b WHERE id = 5; $missing; COMMIT");
ok($node->wait_until($waiting), 'one waits that has a table for itself');
$node->disarm('rebuild-block');
is(finish($s), "77\n5\n0\n", 'workers go round it; what is left is done by the one who has it');
ok($node->wait_until("SELECT phase = 'finished' FROM sofort.recovery"), 'recovery ends');

set('sofort.recovery_workers = 0');
$node->kill9;
$node->start;
sql('ALTER SYSTEM SET sofort.recovery_workers = 1');
# (the reload reaches the session between two commands, a moment later)
is(finish(session('BEGIN', 'LOCK TABLE pg_catalog.pg_class', 'SELECT pg_reload_conf()', 'SELECT pg_sleep(1)', $by_index, 'COMMIT')),
	"t\n\n77\n", 'a catalog: nobody waits for a worker that waits');

sql("BEGIN; LOCK TABLE b; PREPARE TRANSACTION 'p'");
set('sofort.recovery_workers = 1');
$node->kill9;
$node->start;
is(sql($by_index), '77', 'a prepared transaction has a table for itself');
sql("ROLLBACK PREPARED 'p'");
is(sql('SET enable_seqscan = off; SELECT id FROM c WHERE id = 1', 'other'), '1', 'another database');
ok($node->wait_until("SELECT phase = 'finished' FROM sofort.recovery"), 'recovery ends');
is($node->verify_problems, '', 'verify');

# ---- what comes after the indexes ----

# (COPY: statements that write would have the dictionary built with the index)
my $file = $node->basedir . '/values';
sql(qq{
	CREATE TABLE large (id int PRIMARY KEY, name text) USING sofort;
	COPY (SELECT i, 'a name that is not short at all ' || i % CASE WHEN i < 4000 THEN 10 ELSE 1500 END FROM generate_series(1, 8000) i) TO '$file';
	COPY large FROM '$file';
	CREATE SCHEMA small});
sql(join(';', map { "CREATE TABLE small.t$_ (id int PRIMARY KEY) USING sofort" } 1 .. 300));
my $tables = sql(q{SELECT count(*) FROM pg_class JOIN pg_am a ON a.oid = relam WHERE amname = 'sofort' AND relkind = 'r'});
set('sofort.recovery_workers = 0');
$node->kill9;
$node->start;
$node->arm('dictionary-built', 'wait');
$node->arm($_, 'wait', 1_000_000) for qw(recovery-indexes-listed recovery-table-seen-to);	# (they count)
set('sofort.recovery_workers = 1');
ok($node->wait_at('dictionary-built'), 'a worker stands still in a dictionary');
is($node->error_of("SET statement_timeout = '10s'; $by_index"), '', 'nobody waits for those when all indexes are there');
set('sofort.recovery_workers = 2');
ok($node->wait_until("SELECT sofort_test.passages('recovery-table-seen-to') > 290"), 'another one does what is left');
$node->disarm('dictionary-built');
ok($node->wait_until("SELECT phase = 'finished' FROM sofort.recovery"), 'recovery ends');
cmp_ok(sql("SELECT sofort_test.passages('recovery-table-seen-to')"), '<=', $tables, 'each table was seen to once');
cmp_ok(sql("SELECT sofort_test.passages('recovery-indexes-listed')"), '<', 150, 'without a list of all indexes for each');
$node->disarm($_) for qw(recovery-indexes-listed recovery-table-seen-to);
sql("DROP SCHEMA small CASCADE; DROP TABLE large");

# A DROP DATABASE that was cut short leaves one that nobody can connect to: it is none of ours, until it is dropped
sql("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'other'");
sql('CHECKPOINT');
$node->kill9;
my $before = -s $node->logfile;
$node->start;
ok($node->wait_until("SELECT phase = 'finished' FROM sofort.recovery"), 'an invalid database: recovery ends');
unlike(substr(slurp_file($node->logfile), $before), qr/cannot connect to invalid database/, 'no worker was started for it');
my $stores = sql('SELECT stores FROM sofort.pool');
sql('DROP DATABASE other');
cmp_ok(sql('SELECT stores FROM sofort.pool'), '<', $stores, 'it can be dropped, with its tables');

# ---- indexes whose functions do not return, nor let themselves be cancelled: those workers take nobody's place ----

sql('ALTER SYSTEM SET sofort.recovery_workers = 0');
sql('CREATE DATABASE neighbour');
sql('CREATE EXTENSION sofort; CREATE TABLE d (id int PRIMARY KEY) USING sofort; INSERT INTO d SELECT generate_series(1, 1000)', 'neighbour');
sql(q{
	CREATE FUNCTION hold_on() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT pg_try_advisory_xact_lock_shared(42) LOOP
			BEGIN PERFORM pg_sleep(0.02); EXCEPTION WHEN query_canceled THEN NULL; END;
		END LOOP; END $$;
	CREATE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN IF i = 1 THEN PERFORM public.hold_on(); END IF; RETURN i; END $$;
	CREATE TABLE e (id int, v int) USING sofort;
	INSERT INTO e VALUES (1, 1);
	CREATE UNIQUE INDEX e_expression ON e USING sofort_index (slow(id));
	CREATE INDEX e_predicate ON e USING sofort_index (id) WHERE slow(id) > 0});
my $others = q{SELECT count(*) = 0 FROM sofort.indexes WHERE status <> 'ready' AND index::text NOT LIKE 'e\_%'};
my $holder;

# Nobody lets the functions return.
sub start_with_functions
{
	my ($mode, $workers) = @_;
	sql('ALTER SYSTEM SET sofort.recovery_workers = 0');
	sql("ALTER SYSTEM SET sofort.recovery_mode = $mode");
	$node->restart;
	$holder = session_on($node);
	say_to($holder, 'SELECT pg_advisory_lock(42)');
	is(sql(q{SELECT min(position) FILTER (WHERE relation = 'e'::regclass) > max(position) FILTER (WHERE relation <> 'e'::regclass) FROM sofort.recovery_order}),
		't', "$mode: they are last in the order");
	set("sofort.recovery_workers = $workers");
	return;
}

foreach my $case ([ 'synchronous', 2 ], [ 'adaptive', 1 ], [ 'instant', 2 ])
{
	my ($mode, $workers) = @$case;
	start_with_functions($mode, $workers);
	is($node->error_of("SET statement_timeout = '30s'; $by_index"), '', "$mode, $workers workers: who needs another index does not wait");
	ok($node->wait_until($others), 'all others become complete');
	ok($node->wait_until($others, 'neighbour'), 'in another database, too');
	ok($node->wait_until(qq{SELECT count(*) = $workers FROM sofort.indexes WHERE relation = 'e'::regclass AND status = 'building'}), 'then all workers are in the functions');
	is(sql('SELECT phase FROM sofort.recovery'), 'rebuilding', 'recovery goes on');
	sql('CREATE DATABASE later TEMPLATE neighbour');
	ok($node->wait_until($others, 'later'), 'a database that is copied now finds a worker');
	sql('DROP DATABASE later');
	like($node->error_of("SET statement_timeout = '300ms'; INSERT INTO e VALUES (2, 2)"), qr/^57014/, 'who needs their indexes waits');
	say_to($holder, 'SELECT pg_advisory_unlock(42)');
	ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), 'when they return recovery ends');
	like($node->error_of('INSERT INTO e VALUES (1, 2)'), qr/^23505/, 'the unique index is as complete as any');
	$holder->{run}->finish;
}
my $building = q{SELECT count(*) = 2 FROM sofort.indexes WHERE relation = 'e'::regclass AND status = 'building'};
start_with_functions('adaptive', 2);
ok($node->wait_until($building), 'workers are in the functions');
is($node->error_of("SET statement_timeout = '30s'; CREATE INDEX CONCURRENTLY ON e USING btree (v)"), '', 'indexes can be made concurrently');
is($node->error_of("SET statement_timeout = '30s'; ALTER TABLE e ADD COLUMN w int; DROP INDEX e_predicate"), '', 'who alters the table, or drops an index, does not wait for them');
ok($node->wait_until(q{SELECT count(*) = 1 FROM sofort.indexes WHERE relation = 'e'::regclass AND status = 'building'}), 'then there is a worker again');
say_to($holder, 'SELECT pg_advisory_unlock(42)');
ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), 'and recovery ends');
$holder->{run}->finish;
sql('CREATE INDEX e_predicate ON e USING sofort_index (id) WHERE slow(id) > 0');

start_with_functions('adaptive', 2);
ok($node->wait_until($building), 'workers are in the functions');
ok($node->stop('fast', fail_ok => 1), 'the server can be stopped nevertheless');
$holder->{run}->kill_kill;
$node->kill9 if defined $node->{_pid};
$node->start;
ok($node->wait_until(q{SELECT phase = 'finished' FROM sofort.recovery}), 'recovery ends');
is($node->verify_problems, '', 'verify');

$node->stop;
$node->teardown_node;

# Without a place for the launcher the first one waits for it, in vain, and nobody after that.
my $alone = SofortNode->new('alone');
$alone->init(conf => [ 'autovacuum = off', 'sofort.recovery_mode = synchronous' ]);
$alone->start;
$alone->safe_psql('postgres', 'CREATE TABLE a (id int PRIMARY KEY, v int) USING sofort; INSERT INTO a VALUES (1, 10); CREATE TABLE b (id int PRIMARY KEY, v int) USING sofort; INSERT INTO b VALUES (1, 20)');
$alone->stop;
$alone->append_conf('postgresql.conf', 'max_worker_processes = 0');
$alone->start;
$alone->arm('gate-closed', 'error', 1_000_000);
my $closed = "SELECT sofort_test.passages('gate-closed')";
my ($first, @later) = split /\n/, $alone->safe_psql('postgres',
	"SET enable_seqscan = off; SELECT v FROM a WHERE id = 1; $closed; SELECT v FROM a WHERE id = 1; SELECT v FROM b WHERE id = 1; $closed");
is("$first @later[1, 2]", '10 10 20', 'no launcher: answers are given');
cmp_ok($later[0], '>', 0, 'no launcher: the first one waits for it');
is($later[3], $later[0], 'no launcher: it does not wait again');
is($alone->safe_psql('postgres', "SET enable_seqscan = off; SELECT v FROM b WHERE id = 1; $closed"), "20\n$later[0]", 'no launcher: nor does another session');

# With a place for one worker of two, who needs an index waits for that one.
$alone->safe_psql('postgres', 'INSERT INTO b SELECT i, 20 * i FROM generate_series(2, 5000) i');
$alone->append_conf('postgresql.conf', "sofort.recovery_workers = 0\nmax_logical_replication_workers = 0\nmax_worker_processes = 3");
$alone->restart;
$alone->arm('rebuild-block', 'wait');
$alone->arm('gate-closed', 'error', 1_000_000);
$alone->append_conf('postgresql.conf', 'sofort.recovery_workers = 2');
$alone->safe_psql('postgres', 'SELECT pg_reload_conf()');
ok($alone->wait_at('rebuild-block'), 'a place for one worker: it stands still');
my $one = session_on($alone);
send_to($one, "SET enable_seqscan = off; SELECT v FROM b WHERE id = 3; SELECT count(*) FROM sofort.indexes WHERE status <> 'ready'");
ok($alone->wait_until("SELECT sofort_test.passages('gate-closed') > 0"), 'who needs an index waits at the gate for the one that there is');
$alone->disarm('rebuild-block');
is(answer($one), "60\n0\n", 'and goes on when all indexes are there');
$one->{run}->finish;
$alone->stop;
$alone->teardown_node;
done_testing();
