# CREATE DATABASE ... TEMPLATE with sofort tables: the copy is whole or absent,
# and so are its stores, wherever the server is killed; the copy survives a crash
# of its own.  ALTER DATABASE SET TABLESPACE.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

my $node = SofortNode->new('template');
$node->init(conf => ['autovacuum = off']);
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE original');
$node->safe_psql('original', q{
	CREATE EXTENSION sofort;
	CREATE TABLE t (id int PRIMARY KEY, few text, long text) USING sofort;
	CREATE INDEX ON t (few);
	INSERT INTO t SELECT i, 'few ' || i % 5, repeat(md5(i::text), 1 + i % 7) FROM generate_series(1, 4000) i;
	UPDATE t SET long = 'updated' WHERE id % 10 = 0;
	DELETE FROM t WHERE id % 13 = 0;
	CREATE UNLOGGED TABLE u (id int PRIMARY KEY) USING sofort;
	INSERT INTO u SELECT generate_series(1, 100)});
my $tables = 2;
my $look = q{SET enable_seqscan = off; SELECT count(*), md5(string_agg(t::text || ctid, ' ' ORDER BY id)) FROM t WHERE id > 0; SELECT count(*) FROM t WHERE few = 'few 3';
	SELECT count(*) FROM u; SELECT count(*) FROM sofort.verify('t')};
my $contents = $node->safe_psql('original', $look);
my $crashed = $contents =~ s/^100$/0/mr;    # the unlogged table

# By workers: this does not use them.
sub are_built
{
	my ($db, $n, $what) = @_;
	ok($node->wait_until("SELECT count(*) = $n FROM sofort.indexes WHERE status = 'ready'", $db), $what);
	return;
}

foreach my $case (
	[ 'store-created', 2, 0 ], [ 'store-clone-blocks', 1, 0 ], [ 'store-clone-blocks', 10, 0 ],
	[ 'pmem-published', 100, 0 ], [ 'prepare-durable', 1, 0 ], [ 'commit-before-stamp', 1, 1 ], [ 'commit-stamped', 1, 1 ])
{
	my ($point, $nth, $whole) = @$case;
	my $what = "killed at $point ($nth)";
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS copy');
	ok($node->crash_at($point, 'CREATE DATABASE copy TEMPLATE original', $nth), $what);
	$node->start;
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'copy'}), $whole, "$what: database");
	$node->wait_until("SELECT stores = $tables * (1 + $whole) FROM sofort.pool");
	is($node->safe_psql('postgres', 'SELECT stores FROM sofort.pool'), $tables * (1 + $whole), "$what: stores");
	is($node->safe_psql('original', $look), $crashed, "$what: template");
	is($node->safe_psql('copy', $look), $crashed, "$what: copy") if $whole;
}
is($node->verify_problems, '', 'verify');

# an error leaves nothing; a copy lives on its own
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->arm('store-clone-blocks', 'error', 5);
is($node->error_of('CREATE DATABASE copy TEMPLATE original'), 'XX000: stop point "store-clone-blocks" raised an error', 'an error');
is($node->safe_psql('postgres', 'SELECT stores FROM sofort.pool'), $tables, 'no store is left');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE original');
are_built('copy', 2, 'the indexes of a copy are built though nobody asks for them');
$node->safe_psql('postgres', 'ALTER SYSTEM SET sofort.recovery_workers = 0');
$node->reload;
$node->safe_psql('postgres', q{CREATE DATABASE another TEMPLATE copy;
	SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'sofort recovery launcher'});
$node->safe_psql('postgres', 'ALTER SYSTEM RESET sofort.recovery_workers');
$node->reload;
are_built('another', 2, 'so does a launcher that has begun later');
$node->safe_psql('postgres', 'DROP DATABASE another');
$node->safe_psql('copy', q{UPDATE t SET few = 'changed', long = long || 'x' WHERE id <= 100; DELETE FROM t WHERE id > 3000});
$node->kill9;
$node->start;
is($node->safe_psql('original', $look), $crashed, 'the template has not changed');
is($node->safe_psql('copy', q{SELECT count(*), count(*) FILTER (WHERE few = 'changed') FROM t}), '2770|93', 'its copy has');
$node->safe_psql('postgres', 'DROP DATABASE original');
is($node->safe_psql('copy', q{SELECT count(*), count(*) FILTER (WHERE few = 'changed') FROM t; SELECT count(*) FROM sofort.verify('t')}), "2770|93\n0", 'and needs it no more');
is($node->verify_problems, '', 'verify');

# moved to another tablespace, and killed meanwhile or afterwards
my $was = $node->safe_psql('copy', $look);
foreach my $round (1 .. 4)
{
	my $place = $node->basedir . "/space$round";
	mkdir $place;
	$node->safe_psql('postgres', "CREATE TABLESPACE space$round LOCATION '$place'");
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "ALTER DATABASE copy SET TABLESPACE space$round" ],
		'<', \undef, '>', \my $out, '2>', \my $err);
	if ($round < 4) { usleep($round * 50_000); $node->kill9; $session->finish; }
	else { ok($session->finish, 'moved'); $node->kill9; }
	$node->start;
	my $space = $node->safe_psql('postgres', q{SELECT spcname FROM pg_database d JOIN pg_tablespace s ON s.oid = dattablespace WHERE datname = 'copy'});
	is($space, 'space4', 'it is there') if $round == 4;
	is($node->safe_psql('copy', $look), $was, "killed while it is moved, now in $space");
	$node->safe_psql('copy', 'VACUUM');
	is($node->safe_psql('postgres', 'SELECT stores FROM sofort.pool'), $tables, 'stores');
}
$node->safe_psql('copy', q{INSERT INTO t VALUES (50000, 'few', 'long')});
$node->restart;
is($node->safe_psql('copy', q{SELECT long FROM t WHERE id = 50000}), 'long', 'it is used there');
# (a place where no kill has left files)
mkdir $node->basedir . '/space5';
$node->safe_psql('postgres', "CREATE TABLESPACE space5 LOCATION '" . $node->basedir . "/space5'");
$node->safe_psql('postgres', 'ALTER DATABASE copy SET TABLESPACE space5');
are_built('copy', 2, 'so are those of a database that was moved');
is($node->verify_problems, '', 'verify');

# DROP DATABASE waits for one that loses its name meanwhile: the name, not the database, was to go
{
	my $owner = session_on($node);
	my $other = session_on($node);
	my $before = $node->safe_psql('copy', $look);
	$node->safe_psql('postgres', 'CREATE DATABASE spare');
	foreach my $case ([ 'copy', 'ALTER DATABASE copy RENAME TO renamed', 'renamed', 'finds no database of that name' ],
		[ 'renamed', 'ALTER DATABASE renamed RENAME TO copy; ALTER DATABASE spare RENAME TO renamed', 'copy', 'drops another one' ])
	{
		my ($name, $rename, $now, $what) = @$case;
		say_to($owner, "BEGIN; $rename");
		send_to($other, "DROP DATABASE IF EXISTS $name");
		ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted}), 'DROP DATABASE waits');
		say_to($owner, 'COMMIT');
		unlike(answer($other), qr/ERROR/, "it $what");
		is($node->safe_psql($now, $look), $before, "it $what: the tables of the one that it waited for are there");
	}
	is($node->safe_psql('postgres', q{SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE NOT datistemplate}), 'copy postgres', 'and that one is gone');
	SofortNode::drop_session($_) foreach ($owner, $other);
}

# Several databases that are wanted without others in them: recovery leaves all of them. And who has one
# for himself for long holds up neither the recovery of others nor VACUUM.
{
	my $workers = sub {
		$node->safe_psql('postgres', "ALTER SYSTEM SET sofort.recovery_workers = $_[0]");
		$node->reload;
	};
	my $start = sub { $workers->(0); $node->kill9; $node->start; };
	my $missing = "SELECT count(*) FROM sofort.indexes WHERE status <> 'ready'";
	$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE copy") foreach qw(one two);
	$start->();
	my @inside = map { session_on($node, undef, $_) } qw(one two);
	is(join('', map { say_to($_, $missing) } @inside), "2\n2\n", 'two databases to be recovered, with somebody in them');
	my @droppers = map { session_on($node) } qw(one two);
	send_to($droppers[0], 'DROP DATABASE one');
	send_to($droppers[1], 'DROP DATABASE two');
	ok($node->wait_until(q{SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock' AND granted}),
		'two are wanted without others in them');
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DROP DATABASE%' AND state = 'active'});
	like(answer($_), qr/57014/, 'they do not get them') foreach @droppers;
	$workers->(2);
	are_built('copy', 2, 'workers come to another one');
	is(join('', map { say_to($_, $missing) } @inside), "2\n2\n", 'and to neither of these, for a while');
	SofortNode::drop_session($_) foreach (@inside, @droppers);

	$start->();
	my $owner = session_on($node);
	say_to($owner, 'BEGIN; ALTER DATABASE one RENAME TO three');
	sleep(11);    # recovery leaves it for ten seconds, and does not look at its lock
	$workers->(1);
	are_built($_, 2, "one database is locked: $_ is recovered") foreach qw(copy two);
	is($node->error_of("SET statement_timeout = '30s'; VACUUM t", 'copy'), '', 'one database is locked: VACUUM looks for orphans elsewhere');
	say_to($owner, 'ROLLBACK');
	are_built('one', 2, 'it is recovered when it is locked no more');
	SofortNode::drop_session($owner);
	is($node->verify_problems('copy'), '', 'verify');
}

# ---- sofort is the default of the server, and a database has no extension ----

$node->append_conf('postgresql.conf', 'default_table_access_method = sofort');
$node->reload;
$node->safe_psql('postgres', 'CREATE DATABASE bare TEMPLATE template0');
like($node->error_of('CREATE TABLE t (i int)', 'bare'), qr/^42704: access method "sofort" does not exist/,
	'without the extension there are no tables');
is($node->safe_psql('bare', 'CREATE TEMP TABLE t AS SELECT 1 AS i; SELECT i FROM t'), '1', 'but temporary ones');
is($node->safe_psql('bare', q{CREATE EXTENSION sofort; CREATE TABLE t (i int PRIMARY KEY); INSERT INTO t VALUES (2);
	SELECT i, (SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = 't'::regclass) FROM t}),
	'2|sofort', 'with it there are');

$node->stop;
$node->teardown_node;
done_testing();
