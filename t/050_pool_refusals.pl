# Every way in which a pool cannot be used: sofort tables say why, heap tables
# work, nothing is shown as empty, and what is put back is there again. No function
# or view of the schema sofort, whoever calls it, brings the server down or shows a
# user without rights where the files are.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('refusals');
$node->init(allows_streaming => 1, conf => [ 'checkpoint_timeout = 1h', 'autovacuum = off' ]);
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE TABLE s (i int PRIMARY KEY, t text) USING sofort;
	CREATE TABLE h (i int PRIMARY KEY, t text) USING heap;
	INSERT INTO s SELECT i, 'row ' || i FROM generate_series(1, 100) i;
	INSERT INTO h SELECT i, 'row ' || i FROM generate_series(1, 100) i;
	CREATE ROLE plain LOGIN;
	GRANT ALL ON s TO plain;
	GRANT USAGE ON SCHEMA sofort TO plain});
my $pool = $node->pool_file;
my $data = $node->data_dir;
my $control = "$data/sofort.control";
my $heap_rows = 100;

# Copies of a sparse file of 1 TB: holes stay holes.
sub copy_file
{
	my ($from, $to) = @_;
	system('cp', '--sparse=always', '--preserve=all', $from, $to) == 0 or BAIL_OUT("cannot copy $from");
	return;
}

sub copy_data
{
	my ($from, $to) = @_;
	system('rm', '-rf', $to);
	system('cp', '-a', $from, $to) == 0 or BAIL_OUT("cannot copy $from");
	return;
}

# Each function with each of these arguments, as the catalogs have it (so new ones are
# included), and each view. (create_pool() is another matter, for superusers.)
my %arguments = (
	regclass => [ q{'s'}, q{'s_pkey'}, q{'h'} ], anyelement => [ 'NULL::s', 'NULL::h' ], name => [q{'t'}],
	text => [ q{repeat('ab', 16)}, q{'pmem'}, q{'/nonexistent/x'} ]);

sub all_calls
{
	my ($n) = @_;
	my @calls = map { "SELECT * FROM $_" } split /\n/,
	  $n->safe_psql('postgres', q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'sofort'::regnamespace AND relkind = 'v'});
	foreach (split /\n/, $n->safe_psql('postgres', q{
		SELECT p.oid::regproc, coalesce((SELECT string_agg(a.t::regtype::text, ',' ORDER BY a.n)
			FROM unnest(p.proargtypes) WITH ORDINALITY a (t, n)), '')
		FROM pg_proc p WHERE pronamespace = 'sofort'::regnamespace AND NOT 'internal'::regtype = ANY (proargtypes)}))
	{
		my ($function, $types) = split /\|/, $_, -1;
		my @lists = ('');
		foreach my $type (split /,/, $types)
		{
			my @values = @{ $arguments{$type} || BAIL_OUT("an argument of type $type for $function") };
			@lists = map { my $list = $_; map { ($list eq '' ? '' : "$list, ") . $_ } @values } @lists;
		}
		push @calls, map { "BEGIN; SELECT * FROM $function($_); ROLLBACK" } @lists;
	}
	return @calls;
}

sub nothing_crashes
{
	my ($what, $n) = @_;
	my @calls = all_calls($n);
	cmp_ok(scalar(@calls), '>=', 40, "$what: " . scalar(@calls) . ' calls');
	foreach my $user (getpwuid($<) . '', 'plain')
	{
		my $before = -s $n->logfile;
		my $sql = join('', map { "$_;\n" } 'SELECT * FROM s', q{INSERT INTO s VALUES (0, '')}, grep { $user eq 'plain' || !/create_pool|accept_reset/ } @calls);
		my ($out, $err);
		IPC::Run::run([ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $n->connstr('postgres') . " user=$user" ], '<', \$sql, '>', \$out, '2>', \$err);
		unlike(slurp_file($n->logfile, $before), qr/terminated by signal|PANIC|TRAP|AddressSanitizer|runtime error/, "$what: $user calls everything: no process has died");
		unlike($err, qr/ERROR:  XX000|closed the connection/, "$what: and no internal error");
		next unless $user eq 'plain';
		my @places = map { quotemeta } $n->pool_file, $pool, $n->data_dir;
		is(join('', grep { /@{[ join('|', @places) ]}/ } split /^/, $out . $err), '', "$what: a user is not told where the files are");
	}
	return;
}

# The server runs without the pool: the error of every use is the same one.
sub refused
{
	my ($what, $expected, %params) = @_;
	my $n = $params{node} || $node;
	$n->start(no_extension => 1);
	my @statements = ('SELECT count(*) FROM s', 'SELECT * FROM s WHERE i = 5', 'INSERT INTO s VALUES (0)', 'CREATE TABLE s2 (i int) USING sofort');
	push @statements,
	  ('SELECT * FROM s', 'UPDATE s SET t = t', 'DELETE FROM s', 'COPY s TO STDOUT', 'TRUNCATE s', 'VACUUM s', 'ANALYZE s',
		'CREATE INDEX ON s (t)', 'SELECT * FROM s FOR UPDATE', 'REINDEX TABLE s',
		q{SELECT * FROM sofort.verify('s')}, 'SELECT * FROM sofort.verify_pool()')
	  if $what =~ /^(missing|truncated|of another cluster|library not preloaded)$/;
	foreach my $sql (@statements)
	{
		my $error = $n->error_of($sql);
		if (ref $expected) { like($error, $expected, "$what: $sql"); }
		else { is($error, $expected, "$what: $sql"); }
	}
	nothing_crashes($what, $n);
	$n->safe_psql('postgres', q{INSERT INTO h SELECT max(i) + 1, 'more' FROM h});
	$heap_rows++ if $n == $node;
	is($n->safe_psql('postgres', 'SELECT count(*) FROM h'), $heap_rows, "$what: heap works") if $n == $node;
	isnt($n->safe_psql('postgres', 'SELECT status FROM sofort.pool'), 'ready', "$what: the view says so");
	like($n->error_of('SELECT sofort.accept_reset()'), qr/^(55000|XX001): /, "$what: accept_reset() refuses") unless $params{accepts};
	like($n->error_of('SELECT sofort.create_pool()'), qr/^55000: (the sofort pool is not missing|sofort must be loaded through shared_preload_libraries)$/, "$what: create_pool() refuses") unless $params{missing};
	$n->stop;
	return;
}

sub usable
{
	my ($what) = @_;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(i) FROM s'), '100|5050', "$what: all rows are there");
	is($node->safe_psql('postgres', 'SELECT status, reason FROM sofort.pool'), 'ready|', "$what: the pool is ready");
	$node->stop;
	return;
}

# ---- two servers on one pool ----
my $other = SofortNode->new('other');
$other->init(conf => ["sofort.pool_path = '$pool'"]);
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'CREATE EXTENSION sofort; CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA sofort TO plain');
is($other->error_of('CREATE TABLE s (i int) USING sofort'), qq{55006: sofort pool "$pool" is in use by another server}, 'locked by another server');
is($other->safe_psql('postgres', 'SELECT 1'), 1, 'the second server runs');
is($node->safe_psql('postgres', 'SELECT count(*) FROM s'), 100, 'the first one is not disturbed');
$other->stop;
$node->stop;

# ---- of another cluster ----
$other->start(no_extension => 1);
is($other->error_of('CREATE TABLE s (i int) USING sofort'),
	qq{58P02: file "$pool" already exists and does not belong to this data directory}, 'pool of another cluster, first start');
$other->stop;
$other->append_conf('postgresql.conf', "sofort.pool_path = '" . $other->pool_file . "'\n");
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'CREATE TABLE s (i int PRIMARY KEY, t text) USING sofort; CREATE TABLE h (i int, t text); GRANT ALL ON s TO plain');
$other->stop;
$other->append_conf('postgresql.conf', "sofort.pool_path = '$pool'\n");
refused('of another cluster', qq{55000: sofort pool "$pool" belongs to another cluster}, node => $other);
rename($control, "$control.mine");
copy_file($other->data_dir . '/sofort.control', $control);
refused('control file of another cluster', qq{55000: file "$control" belongs to another cluster});
rename("$control.mine", $control);
usable('own control file');

# ---- the other ways, each undone afterwards ----
sub with_change
{
	my ($what, $change, $undo, $expected) = @_;
	$change->();
	refused($what, $expected);
	$undo->();
	usable("after: $what");
	return;
}

# Bytes of the pool or the control file, put back afterwards.
sub with_bytes
{
	my ($what, $file, $at, $bytes, $expected) = @_;
	my $old;
	with_change(
		$what,
		sub {
			open(my $f, '+<:raw', $file) or BAIL_OUT("$file: $!");
			sysseek($f, $at, 0);
			sysread($f, $old, length $bytes);
			sysseek($f, $at, 0);
			syswrite($f, $bytes);
			close $f;
		},
		sub {
			open(my $f, '+<:raw', $file) or BAIL_OUT("$file: $!");
			sysseek($f, $at, 0);
			syswrite($f, $old);
			close $f;
		},
		$expected);
	return;
}

# Where the superblock is (layout.h, pm_internal.h)
my $superblock = unpack('x48 Q', slurp_file($control));
my $size = -s $pool;

with_change('truncated', sub { copy_file($pool, "$pool.good"); truncate($pool, $size / 2) }, sub { rename("$pool.good", $pool) },
	qq{XX001: sofort pool "$pool" is truncated or has the wrong size});
with_change('empty', sub { rename($pool, "$pool.good"); append_to_file($pool, ''); chmod(0600, $pool) }, sub { rename("$pool.good", $pool) },
	qq{XX001: sofort pool "$pool" is truncated or has the wrong size});
with_change('unreadable', sub { chmod(0, $pool) }, sub { chmod(0600, $pool) },
	qq{42501: could not open sofort pool "$pool": Permission denied});
with_change('readable by a group', sub { chmod(0640, $pool) }, sub { chmod(0600, $pool) },
	qq{42501: sofort pool "$pool" can be read or written by others});
with_change('a symbolic link', sub { rename($pool, "$pool.good"); symlink("$pool.good", $pool) }, sub { unlink($pool); rename("$pool.good", $pool) },
	qq{42809: sofort pool "$pool" is not a regular file});
with_change('a directory', sub { rename($pool, "$pool.good"); mkdir($pool) }, sub { rmdir($pool); rename("$pool.good", $pool) },
	qq{42809: sofort pool "$pool" is not a regular file});
with_bytes('without magic number', $pool, $superblock, "\0" x 8, qq{XX001: sofort pool "$pool" is damaged, or is not a sofort pool});
with_bytes('of another layout version', $pool, $superblock + 8, pack('L', 9999),
	qr/^0A000: sofort pool "\Q$pool\E" has layout version 9999, but this sofort reads version \d+$/);
with_bytes('with a wrong checksum', $pool, $superblock + 16, "\xff" x 8, qq{XX001: sofort pool "$pool" is damaged});

# PoolIdentity (layout.h) with some of its bytes changed, and its checksum right: CRC-32C of all before
sub identity_with
{
	my ($at, $bytes) = @_;
	my $identity = '';

	open(my $f, '<:raw', $pool) or BAIL_OUT("$pool: $!");
	sysseek($f, $superblock + 16, 0);
	sysread($f, $identity, 44) == 44 or BAIL_OUT("$pool: $!");
	close $f;
	substr($identity, $at, length $bytes) = $bytes;
	return $identity . pack('L', crc32c($identity));
}
with_bytes('of another PostgreSQL', $pool, $superblock + 16, identity_with(24, pack('L', 14)),
	qr/^0A000: sofort pool "\Q$pool\E" was made by PostgreSQL 14 \(catalog version \d+\), but this is PostgreSQL \d+ \(/);
with_bytes('of another build', $pool, $superblock + 16, identity_with(34, pack('S', 4)),
	qq{0A000: sofort pool "$pool" was made by a server of another architecture or build});
with_bytes('of another data directory of this cluster', $pool, $superblock + 16, identity_with(8, "\xaa" x 16),
	qq{55000: sofort pool "$pool" is not the one that "$control" names});
with_bytes('with a damaged header of libpmemobj', $pool, 0, "\xff" x 512, qq{XX001: could not open sofort pool "$pool"});
with_bytes('damaged control file', $control, 50, "\xff", qq{XX001: file "$control" is damaged});
with_change('control file missing', sub { rename($control, "$control.good") }, sub { rename("$control.good", $control) },
	qq{58P02: file "$pool" already exists and does not belong to this data directory});

# ---- copies of another time ----
copy_file($pool, "$pool.old");
copy_data($data, "$data.old");
my $heap_rows_then = $heap_rows;
usable('a start that the copies do not know');
with_change('older copy of the pool', sub { rename($pool, "$pool.new"); rename("$pool.old", $pool) }, sub { rename($pool, "$pool.old"); rename("$pool.new", $pool) },
	qq{55000: sofort pool "$pool" is an older copy than the data directory with "$control"});
rename($data, "$data.new");
rename("$data.old", $data);
{
	my $now = $heap_rows;
	$heap_rows = $heap_rows_then;
	refused('older data directory', qq{55000: the data directory with "$control" is an older copy than sofort pool "$pool"});
	$heap_rows = $now;
}
system('rm', '-rf', $data);
rename("$data.new", $data);
unlink("$pool.old");
usable('after: older data directory');

# ---- configuration ----
sub with_setting
{
	my ($what, $name, $value, $expected, $after) = @_;
	my $conf = slurp_file("$data/postgresql.conf");
	$node->append_conf('postgresql.conf', "$name = '$value'\n");
	if ($expected)
	{
		refused($what, $expected);
	}
	else
	{
		my $before = -s $node->logfile;
		is($node->start(fail_ok => 1, no_extension => 1), 0, "$what: the server does not start");
		like(slurp_file($node->logfile, $before), $after, "$what: the log says why");
	}
	open(my $f, '>', "$data/postgresql.conf");
	print $f $conf;
	close $f;
	usable("after: $what");
	return;
}

with_setting('library not preloaded', 'shared_preload_libraries', '', '55000: sofort must be loaded through shared_preload_libraries');
with_setting('library not first', 'shared_preload_libraries', 'auto_explain, sofort', undef,
	qr/FATAL:  sofort must stand first in shared_preload_libraries/);
with_setting('pool in the data directory', 'sofort.pool_path', "$data/pool", undef, qr/FATAL:  sofort.pool_path must not be inside the data directory/);
with_setting('relative path', 'sofort.pool_path', 'pool', undef, qr/FATAL:  sofort.pool_path must be an absolute path/);
with_setting('no such directory', 'sofort.pool_path', "$pool.dir/pool", qr/^58P01: could not open the lock file of sofort pool/);
SKIP:
{
	skip "the pool is not on tmpfs", 1 unless `stat -f -c %T '$pool'` =~ /tmpfs/;
	with_setting('durability auto on tmpfs', 'sofort.durability', 'auto', qq{55000: sofort pool "$pool" would not survive power loss});
	with_setting('durability msync on tmpfs', 'sofort.durability', 'msync', qq{55000: sofort pool "$pool" would not survive power loss});
	with_setting('durability pmem on tmpfs', 'sofort.durability', 'pmem', qq{55000: sofort pool "$pool" would not survive power loss});
}

# After a crash the WAL may hold records that only the library can read.
$node->start;
$node->safe_psql('postgres', q{INSERT INTO s VALUES (1000, 'x'); DELETE FROM s WHERE i = 1000});
$node->kill9;
with_setting('crash, then library not preloaded', 'shared_preload_libraries', '', undef, qr/resource manager with ID 181 not registered/);

# ---- standby ----
$node->start;
$node->backup('b');
my $standby = SofortNode->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "sofort.pool_path = '" . $standby->pool_file . "'\n");
# as if it had been cloned before sofort was there; one with the file is below (standby.signal)
unlink($standby->data_dir . '/sofort.control') == 1 or BAIL_OUT('no sofort.control');
$standby->start(no_extension => 1);
$node->safe_psql('postgres', q{INSERT INTO h VALUES (-1, 'streamed')});
$heap_rows++;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM h'), $heap_rows, 'standby: heap rows');
is($standby->error_of($_), '25006: cannot use sofort relations during recovery', "standby: $_")
  foreach ('SELECT * FROM s', 'SELECT count(*) FROM s WHERE i = 5', 'COPY s TO STDOUT');
is($standby->error_of('SELECT sofort.create_pool()'), '25006: cannot execute sofort.create_pool() during recovery', 'standby: create_pool()');
nothing_crashes('standby', $standby);
is($node->safe_psql('postgres', 'SELECT count(*) FROM s'), 100, 'the primary goes on');
$standby->promote;
is($standby->error_of('SELECT * FROM s'), '55000: the data directory "' . $standby->data_dir . '" has no sofort pool', 'promoted: no pool');
nothing_crashes('promoted', $standby);
is($standby->error_of(q{INSERT INTO h VALUES (-2, 'promoted')}), '', 'promoted: heap works');
$standby->stop;
$standby->start(no_extension => 1);
is($standby->error_of('SELECT * FROM s'), '55000: the data directory "' . $standby->data_dir . '" has no sofort pool', 'promoted and restarted: no pool');
$standby->safe_psql('postgres', 'SELECT sofort.create_pool()');
$standby->restart(no_extension => 1);
like($standby->error_of('SELECT * FROM s'), qr/^XX001: the pool holds no data for relation "s"/, 'new pool: the old table is not empty but an error');
$standby->safe_psql('postgres', 'DROP TABLE s; CREATE TABLE s (i int) USING sofort; INSERT INTO s VALUES (1)');
is($standby->safe_psql('postgres', 'SELECT * FROM s'), 1, 'new pool: new tables work');
$standby->stop;
$standby->teardown_node;

# a mark that ends within a page of pg_subtrans (with commit timestamps): subtransactions of the promoted
{
	my $primary = SofortNode->new('timestamps');
	$primary->init(allows_streaming => 1, conf => [ 'track_commit_timestamp = on', 'autovacuum = off' ]);
	$primary->start;
	$primary->safe_psql('postgres', 'CREATE TABLE s (i int) USING sofort; CREATE TABLE h (i int) USING heap');
	my $follower = SofortNode->new('follower');
	$primary->backup('b');
	$follower->init_from_backup($primary, 'b', has_streaming => 1);
	$follower->append_conf('postgresql.conf', "sofort.pool_path = '" . $follower->pool_file . "'\n");
	$follower->start(no_extension => 1);
	my $xid = $primary->safe_psql('postgres', 'SELECT pg_current_xact_id()') + 20;
	$xid++ until int((int($xid / 819) * 819 + 819) / 2048) > int($xid / 2048);
	$primary->safe_psql('postgres', "DO \$\$ BEGIN WHILE pg_current_xact_id()::text::int < $xid LOOP COMMIT; END LOOP; END \$\$");
	$primary->safe_psql('postgres', 'INSERT INTO s VALUES (1); INSERT INTO h VALUES (1)');
	$primary->wait_for_catchup($follower);
	$follower->promote;
	is($follower->error_of('BEGIN; INSERT INTO h VALUES (2); SAVEPOINT a; INSERT INTO h VALUES (3); COMMIT'), '', 'promoted with commit timestamps: a savepoint');
	is($follower->safe_psql('postgres', 'SELECT count(*) FROM h'), 3, 'promoted with commit timestamps: its rows');
	$_->stop, $_->teardown_node foreach $follower, $primary;
}

# standby.signal beside the right pool: not usable, and not again without a word
$node->stop;
$node->append_conf('standby.signal', '');
$node->start(no_extension => 1);
is($node->error_of('SELECT * FROM s'), '25006: cannot use sofort relations during recovery', 'standby.signal');
nothing_crashes('standby.signal', $node);
$node->stop;
unlink("$data/standby.signal");
$node->start(no_extension => 1);
is($node->error_of('SELECT * FROM s'), qq{55000: the data directory "$data" has no sofort pool}, 'after standby.signal: the pool may be older');
$node->stop;

# ---- missing, and made anew ----
$other->append_conf('postgresql.conf', "sofort.pool_path = '" . $other->pool_file . "'\n");
$other->start(no_extension => 1);
$other->safe_psql('postgres', q{INSERT INTO s VALUES (1, 'one')});
$other->stop;
my $path = $other->pool_file;
rename($path, "$path.away");
refused('missing', qq{58P01: sofort pool "$path" does not exist}, missing => 1, node => $other);
ok(!-e $path, 'missing: none was made in its place');
rename("$path.away", $path);
$other->start(no_extension => 1);

is($other->safe_psql('postgres', 'SELECT * FROM s'), '1|one', 'missing and put back: all rows are there');
$other->stop;
unlink($path);
$other->start(no_extension => 1);
is($other->error_of('GRANT USAGE ON SCHEMA sofort TO pg_monitor; SET ROLE pg_monitor; SELECT sofort.create_pool()'), '42501: permission denied for function create_pool', 'create_pool() is for superusers');
$other->safe_psql('postgres', 'SELECT sofort.create_pool()');
is($other->error_of('SELECT * FROM s'), qq{58P01: sofort pool "$path" does not exist}, 'create_pool(): until the restart nothing changes');
$other->restart(no_extension => 1);
like($other->error_of($_), qr/^XX001: the pool holds no data for relation "s"/, "made anew: $_")
  foreach ('SELECT * FROM s', 'SELECT count(*) FROM s', q{INSERT INTO s VALUES (2, 'two')}, 'UPDATE s SET t = t', 'DELETE FROM s', 'COPY s TO STDOUT', 'VACUUM s', 'ANALYZE s');
is($other->error_of('SELECT sofort.create_pool()'), qq{55006: sofort pool "$path" is in use}, 'create_pool() on a pool in use');
$other->safe_psql('postgres', q{DROP TABLE s; CREATE TABLE s (i int PRIMARY KEY) USING sofort; INSERT INTO s VALUES (7)});
$other->kill9;
$other->start(no_extension => 1);
is($other->safe_psql('postgres', 'SELECT * FROM s'), 7, 'made anew: it survives a crash');
is($other->verify_problems, '', 'made anew: verify');

# ---- a pool made beside a data directory whose WAL has marks of another: a standby that was cloned
# before sofort was there, promoted, and crashed before its first checkpoint ----
foreach my $round (1 .. 3)
{
	$other->safe_psql('postgres', 'CHECKPOINT') if $round > 1;
	$other->safe_psql('postgres', "INSERT INTO s VALUES (100 + $round)");
}
$other->safe_psql('postgres', 'DROP TABLE s');
$other->kill9;
unlink($path, $other->data_dir . '/sofort.control') == 2 or BAIL_OUT('no pool');
$other->start(no_extension => 1);
is($other->error_of('CREATE TABLE s (i int PRIMARY KEY) USING sofort; INSERT INTO s VALUES (7)'), '', 'a new pool after a crash: it is used');
$other->kill9;
$other->start(no_extension => 1);
is($other->safe_psql('postgres', 'SELECT * FROM s'), 7, 'a new pool after a crash: it survives the next one');
is($other->verify_problems, '', 'a new pool after a crash: verify');

# ---- transactions that the data directory has not begun: not forgotten when it has begun others ----
my $next = $other->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
$other->safe_psql('postgres', "INSERT INTO s VALUES ($_)") foreach 11 .. 13;
$other->stop;
system('pg_resetwal', '-x', $next, '-D', $other->data_dir) == 0 or BAIL_OUT('pg_resetwal');
my $newer = qr/^XX001: sofort pool "\Q$path\E" is newer than data directory/;
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'DO $$ BEGIN FOR i IN 1 .. 100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$');
like($other->error_of('SELECT * FROM s'), $newer, 'the pool is newer: refused');
cmp_ok($other->safe_psql('postgres', 'SELECT pg_snapshot_xmax(pg_current_snapshot())'), '>=', $next + 100, '... the server has used up transaction ids');
foreach my $how ('after a restart', 'after a crash')
{
	$how =~ /crash/ ? $other->kill9 : $other->stop;
	$other->start(no_extension => 1);
	is($other->error_of('SELECT * FROM s'), qq{XX001: sofort pool "$path" does not match data directory "} . $other->data_dir . '"', "... refused $how");
}
$other->stop;

# ---- pg_resetwal ----
my $other_data = $other->data_dir;
my $other_control = "$other_data/sofort.control";
my $thrown_away = qq{XX001: WAL that sofort pool "$path" belongs to was thrown away};
my $rows;

sub reset_wal
{
	unlink("$other_data/postmaster.pid");	# after a crash
	system('pg_resetwal', '-f', @_, '-D', $other_data) == 0 or BAIL_OUT('pg_resetwal');
	return;
}

sub new_tables
{
	unlink($path, $other_control) == 2 or BAIL_OUT('no pool') if !$other->{_pid};
	$other->start(no_extension => 1) if !$other->{_pid};
	$other->safe_psql('postgres', 'DROP TABLE IF EXISTS s, h; CREATE TABLE s (i int PRIMARY KEY, t text) USING sofort; CREATE TABLE h (i int, t text) USING heap; GRANT ALL ON s TO plain; CHECKPOINT');
	$rows = 0;
	return;
}

sub both
{
	$other->safe_psql('postgres', "BEGIN; INSERT INTO s VALUES (generate_series($_[0], $_[0] + 9)); INSERT INTO h VALUES (generate_series($_[0], $_[0] + 9)); COMMIT");
	$rows += 10;
	return;
}

sub both_usable
{
	my ($what) = @_;
	$other->start(no_extension => 1);
	is($other->error_of('SELECT count(*) FROM s'), '', "$what: not refused");
	is($other->safe_psql('postgres', 'SELECT (SELECT count(*) FROM s), (SELECT count(*) FROM h)'), "$rows|$rows", "$what: all rows are there");
	return;
}

# after a stop in order: allowed, whatever comes then
new_tables();
both(1);
$other->stop;
reset_wal();
both_usable('stopped, reset');
both(11);
$other->kill9;
both_usable('stopped, reset, killed before a checkpoint');
$other->stop;
reset_wal();
my $hba = slurp_file("$other_data/pg_hba.conf");
append_to_file("$other_data/pg_hba.conf", "no such line\n");
foreach (1, 2)
{
	is($other->start(fail_ok => 1, no_extension => 1), 0, 'stopped, reset: a start that fails when the pool is open');
}
open(my $hba_file, '>', "$other_data/pg_hba.conf");
print $hba_file $hba;
close $hba_file;
both_usable('stopped, reset, a start that fails');

# a crash, and recovery without the pool, or by a single-user server; then a reset
both(21);
$other->kill9;
rename($path, "$path.away");
$other->start(no_extension => 1);
is($other->error_of('SELECT * FROM s'), qq{58P01: sofort pool "$path" does not exist}, 'crash, recovered without the pool');
$other->stop;
rename("$path.away", $path);
both_usable('crash, recovered without the pool');
both(31);
$other->kill9;
rename($path, "$path.away");
$other->start(no_extension => 1);
$other->stop;
reset_wal();
rename("$path.away", $path);
both_usable('crash, recovered without the pool, reset');
both(41);
$other->kill9;
my ($single_in, $single_out, $single_err) = ("SELECT 1;\n");
IPC::Run::run([ 'postgres', '--single', '-D', $other_data, 'postgres' ], '<', \$single_in, '>', \$single_out, '2>', \$single_err)
  or BAIL_OUT("single user: $single_err");
reset_wal();
both_usable('crash, recovered in single-user mode, reset');

# a crash, and a reset: refused until it is accepted
my $xid = 0x100000;
foreach my $pool_is ('there', 'not there at first')
{
	new_tables();
	both(1);
	$other->kill9;
	reset_wal('-x', $xid);
	$xid += 0x100000;
	if ($pool_is ne 'there')
	{
		rename($path, "$path.away");
		$other->start(no_extension => 1);
		is($other->error_of('SELECT * FROM s'), qq{58P01: sofort pool "$path" does not exist}, 'crash, reset: without the pool');
		$other->stop;
		rename("$path.away", $path);
	}
	else
	{
		refused('crash, reset', $thrown_away, node => $other, accepts => 1);
		$other->start(no_extension => 1);
		like($other->safe_psql('postgres', 'SELECT reason FROM sofort.pool'), qr/^WAL that sofort pool/, 'crash, reset: the view says why');
		is($other->error_of('SET ROLE plain; SELECT * FROM s'), 'XX001: the sofort pool cannot be used', 'crash, reset: a user is not told where the files are');
		$other->kill9;
	}
	refused("crash, reset: again, the pool was $pool_is", $thrown_away, node => $other, accepts => 1);
	$other->start(no_extension => 1);
	is($other->safe_psql('postgres', 'SELECT count(*) FROM h WHERE t IS NULL'), 0, 'crash, reset: heap has lost what was in the WAL');
	$other->safe_psql('postgres', q{INSERT INTO h VALUES (0, 'more')});
	is($other->error_of('SELECT sofort.accept_reset()'), '', 'accept_reset()');
	is($other->error_of('SELECT * FROM s'), $thrown_away, 'accept_reset(): until the restart nothing changes');
	$other->restart(no_extension => 1);
	is($other->safe_psql('postgres', 'SELECT count(*) FROM s'), $rows, 'accepted: the rows that are left');
	is($other->verify_problems, '', 'accepted: verify');
	like($other->error_of('SELECT sofort.accept_reset()'), qr/^55000: the sofort pool was not refused because of pg_resetwal$/, 'accept_reset() on a pool in use');
	both(11);
	$other->kill9;
	$other->start(no_extension => 1);
	is($other->safe_psql('postgres', 'SELECT (SELECT count(*) FROM s), (SELECT count(*) FROM h WHERE t IS NULL)'), '20|10', 'accepted: it survives a crash');
}

# ids that the pool knows are used again
new_tables();
both(1);
$other->kill9;
reset_wal();
$other->start(no_extension => 1);
$other->safe_psql('postgres', 'DO $$ BEGIN FOR i IN 1 .. 100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$');
like($other->error_of('SELECT * FROM s'), $newer, 'crash, reset, ids used again: refused');
$other->restart(no_extension => 1);
is($other->error_of('SELECT * FROM s'), qq{XX001: sofort pool "$path" does not match data directory "$other_data"}, '... after a restart');
like($other->error_of('SELECT sofort.accept_reset()'), qr/^55000: /, '... not to be accepted');
$other->stop;

# the same, and the pool is away while that could be seen
new_tables();
both(1);
$other->kill9;
reset_wal();
rename($path, "$path.away");
$other->start(no_extension => 1);
$other->stop;
rename("$path.away", $path);
$other->start(no_extension => 1);
is($other->error_of('SELECT * FROM s'), $thrown_away, 'crash, reset, ids perhaps used again: refused');
is($other->error_of('SELECT sofort.accept_reset()'), 'XX001: the sofort pool cannot be used after pg_resetwal', '... not to be accepted');
$other->stop;

# a control file that was written before there was a note of the WAL
sub crc32c
{
	my $crc = 0xffffffff;
	foreach my $byte (unpack('C*', $_[0]))
	{
		$crc ^= $byte;
		$crc = ($crc >> 1) ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}
new_tables();
both(1);
$other->kill9;
my $old_control = slurp_file($other_control);
is(unpack('x84 L', $old_control), crc32c(substr($old_control, 0, 84)), 'the checksum of a control file');
substr($old_control, 36, 4) = substr($old_control, 80, 4) = pack('L', 0);
open(my $control_file, '>:raw', $other_control);
print $control_file substr($old_control, 0, 84) . pack('L', crc32c(substr($old_control, 0, 84)));
close $control_file;
reset_wal('-x', $xid);
$other->start(no_extension => 1);
is($other->safe_psql('postgres', 'SELECT count(*) FROM s'), $rows, 'a control file of before: nothing is known, not refused');
$other->stop;
$other->teardown_node;

# ---- an ordinary file is no persistent memory (in a file system in memory it is refused for that) ----
$other = SofortNode->new('disk');
$other->{_sofort_pool} = $other->basedir . '/disk.pool';
$other->init(conf => [ "sofort.durability = 'pmem'" ]);
$other->start(no_extension => 1);
like($other->error_of('CREATE EXTENSION sofort; CREATE TABLE s (i int) USING sofort'),
	qr/^55000: sofort pool ".*disk\.pool" (is not on persistent memory|would not survive power loss)$/, 'durability pmem on a disk');
$other->stop;
$other->teardown_node;
$node->teardown_node;
done_testing();
