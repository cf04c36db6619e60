# A PostgreSQL::Test::Cluster that can lose all its processes at once.
#
#   my $node = SofortNode->new('main');
#   $node->init;                     # pool on tmpfs, durability process
#   $node->start;                    # and CREATE EXTENSION sofort, sofort_test
#   $node->kill9;                    # postmaster and all children, SIGKILL
#   $node->start;
#   unlink $node->pool_file;         # files of the pool, for the bad-input tests
#   $node->crash_at('commit-durable', $sql);   # it dies there; then start
#
# The server is forked here and not through pg_ctl: a postmaster killed by
# SIGKILL must be reaped before its data directory can be used again, and only
# its parent can do that. spawn() does not wait for it to accept connections,
# so that a test can kill it while it recovers.
#
# Environment, set by ./check: SOFORT_POOL_DIR (a directory on tmpfs that is
# removed afterwards), SOFORT_WITNESS (program), SOFORT_SEGMENTS (a file for
# names of shared memory segments to remove), SOFORT_AM (table access method
# under test: sofort; "heap" tests the tests).
package SofortNode;

use strict;
use warnings;

use Cwd ();
use Fcntl qw(SEEK_SET);
use File::Temp ();
use IO::Handle;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep time);

our @ISA = ('PostgreSQL::Test::Cluster');

our $am = $ENV{SOFORT_AM} || 'sofort';
my $pool_number = 0;
# (with the detector of races all takes several times as long)
my $minute = $ENV{SOFORT_RACES} ? 300 : 60;

sub new
{
	my ($class, $name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster::new($class, $name, %params);
	my $dir = $ENV{SOFORT_POOL_DIR}
	  or BAIL_OUT('SOFORT_POOL_DIR is not set: run the tests with ./check');
	$node->{_sofort_pool} =
	  sprintf('%s/%d-%d-%s.pool', $dir, $$, ++$pool_number, $name);
	return $node;
}

# The pool's file, and everything beside it that belongs to it.
sub pool_file  { return $_[0]->{_sofort_pool}; }
sub pool_files { return glob($_[0]->{_sofort_pool} . '*'); }

# Bytes of the pool's file, seen by the server when it is started: read, and replaced by what
# a function makes of them; one bit turned.
sub change_pool
{
	my ($node, $offset, $n, $change) = @_;
	my $bytes;
	open(my $file, '+<:raw', $node->pool_file) or die $node->pool_file . ": $!";
	sysseek($file, $offset, SEEK_SET) or die;
	sysread($file, $bytes, $n) == $n or die;
	if (defined $change)
	{
		sysseek($file, $offset, SEEK_SET) or die;
		syswrite($file, $change->($bytes)) == $n or die;
	}
	close($file);
	return $bytes;
}

sub flip_pool_bit
{
	my ($node, $offset, $bit) = @_;
	return $node->change_pool($offset, 1, sub { chr(ord($_[0]) ^ (1 << $bit)) });
}

# init(conf => [ lines ], without_sofort => 1, ...): further parameters go to
# PostgreSQL::Test::Cluster::init.
sub init
{
	my ($node, %params) = @_;
	my $conf = delete $params{conf} || [];
	my $without = delete $params{without_sofort} || $am ne 'sofort';
	$params{extra} = [ '--locale=C.UTF-8', '-E', 'UTF8', @{ $params{extra} || [] } ];
	PostgreSQL::Test::Cluster::init($node, %params);
	# Cluster::init writes fsync = off; what is promised is tested with fsync.
	# Nor does it let the postmaster go on when a backend dies.
	my $text = "fsync = on\nrestart_after_crash = on\n";
	if (!$without)
	{
		$node->{_sofort_loaded} = 1;
		$text .= "shared_preload_libraries = 'sofort'\n";
		$text .= "sofort.pool_path = '" . $node->pool_file . "'\n";
		$text .= "sofort.durability = 'process'\n";
	}
	$node->append_conf('postgresql.conf', join("\n", $text, @$conf, ''));
	return;
}

# A node that runs, with its pool on a disk (medium msync). Where the tests run in a file system in
# memory the test is skipped, and says what is not tested.
sub new_on_disk
{
	my ($class, $what, @conf) = @_;
	my $node = $class->new('main');
	my $dir = $node->basedir . '/disk';
	mkdir $dir;
	$node->{_sofort_pool} = "$dir/pool";
	$node->init(conf => [ "sofort.durability = 'msync'", "sofort.redo_size = '16MB'", 'autovacuum = off', @conf ]);
	$node->start;
	return $node if $node->safe_psql('postgres', q{SELECT coalesce((SELECT medium FROM sofort.pool), 'none')}) eq 'msync';
	$node->stop;
	$node->teardown_node;
	diag("NOT TESTED: $what (the tests run in a file system in memory)");
	plan(skip_all => 'the file system is in memory');
}

# Fork the postmaster. Returns at once.
sub spawn
{
	my ($node) = @_;
	my $log = $node->logfile;
	my $name = $node->name;
	my $stop_point = delete $node->{_stop_point_at_start};

	BAIL_OUT("node \"$name\" is already running") if defined $node->{_pid};
	local %ENV = $node->_get_env(PGAPPNAME => undef);
	my $pid = fork();
	BAIL_OUT("fork: $!") unless defined $pid;
	if ($pid == 0)
	{
		POSIX::setsid();
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $log);
		open(STDERR, '>&', \*STDOUT);
		chdir $node->data_dir;
		$ENV{SOFORT_STOP_POINT} = $stop_point if defined $stop_point;
		exec(@{ $node->{_wrapper} || [] }, 'postgres', '-D', $node->data_dir, "--cluster-name=$name")
		  or POSIX::_exit(127);
	}
	$node->{_pid} = $pid;
	$node->{_spawned} = time();
	return $pid;
}

# Wait until it answers. Dies (or returns 0 with fail_ok) if it ends instead.
sub wait_ready
{
	my ($node, %params) = @_;
	my $until = time() + ($params{timeout} || 120);

	while (time() < $until)
	{
		my $gone = waitpid($node->{_pid}, POSIX::WNOHANG());
		if ($gone != 0)
		{
			$node->{_pid} = undef;
			last;
		}
		# (with -c: a psql that cannot connect does not read its input)
		return 1 if IPC::Run::run(
			[ 'psql', '-XAtq', '-d', $node->connstr('template1'), '-c', 'SELECT 1' ],
			'<', \undef, '>', \my $out, '2>', \my $err);
		usleep(5_000);
	}
	return 0 if $params{fail_ok};
	my $log = slurp_file($node->logfile);
	diag(substr($log, -3000));
	BAIL_OUT('node "' . $node->name . '" does not start');
}

# start(fail_ok => 1, no_extension => 1): returns 1 when it answers.
sub start
{
	my ($node, %params) = @_;
	$node->spawn;
	$node->wait_ready(%params) or return 0;
	if ($node->{_sofort_loaded} && !$node->{_sofort_created} && !$params{no_extension})
	{
		$node->safe_psql('postgres', 'CREATE EXTENSION sofort; CREATE EXTENSION sofort_test');
		$node->{_sofort_created} = 1;
	}
	return 1;
}

sub stop
{
	my ($node, $mode, %params) = @_;
	my $pid = $node->{_pid};
	return 1 unless defined $pid;
	my %signal = (smart => 'TERM', fast => 'INT', immediate => 'QUIT');
	kill($signal{ $mode || 'fast' }, $pid);
	my $until = time() + ($params{timeout} || 60);
	while (waitpid($pid, POSIX::WNOHANG()) == 0)
	{
		if (time() > $until)
		{
			return 0 if $params{fail_ok};
			BAIL_OUT('node "' . $node->name . '" does not stop');
		}
		usleep(5_000);
	}
	$node->{_pid} = undef;
	_look_at_log($node);
	return 1;
}

# A reference to what is not the store's is a fault, wherever it comes from; the
# server goes on with a warning. Not where a test damages the pool itself.
sub _look_at_log
{
	my ($node) = @_;
	return if $node->{_damages} || !-e $node->logfile;
	my ($warning) = slurp_file($node->logfile) =~ /^(.*points to no allocation of store.*)$/m;
	return if !defined $warning || ($node->{_warned} // '') eq $warning;
	$node->{_warned} = $warning;
	fail($node->name . ": $warning");
	return;
}

# What the server warns of from now on is this test's doing.
sub expect_damage { $_[0]->{_damages} = 1; return; }

sub restart
{
	my ($node, %params) = @_;
	$node->stop('fast');
	return $node->start(%params);
}

sub children
{
	my ($pid) = @_;
	my @found;
	foreach my $stat (glob('/proc/[0-9]*/stat'))
	{
		open(my $fh, '<', $stat) or next;
		my $line = <$fh>;
		close $fh;
		next unless defined $line && $line =~ /^(\d+) \(.*\) (\S) (\d+)/s;
		push @found, $1 if $3 == $pid;
	}
	return @found;
}

# Waits until all sessions have ended, and so given back their places: a client does not wait for that.
sub wait_for_places
{
	my ($node) = @_;
	my $until = time() + $minute;
	while (time() < $until)
	{
		return 1 unless grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /\[local\]/ } children($node->{_pid});
		usleep(5_000);
	}
	return 0;
}

# A killed server cannot remove its segments; ./check does, by these names.
sub _note_segments
{
	my @pids = @_;
	return unless $ENV{SOFORT_SEGMENTS};
	open(my $out, '>>', $ENV{SOFORT_SEGMENTS}) or return;
	foreach my $pid (@pids)
	{
		open(my $maps, '<', "/proc/$pid/maps") or next;
		while (<$maps>) { print $out "$1\n" if m{(/dev/shm/PostgreSQL\.\S+)}; }
	}
	close $out;
	return;
}

# The state of a process: R, S, T (stopped), Z ...; undef when there is none.
sub process_state
{
	my ($pid) = @_;
	open(my $fh, '<', "/proc/$pid/stat") or return undef;
	my $line = <$fh>;
	return defined $line && $line =~ /\) (\S) / ? $1 : undef;
}

# SIGKILL for the postmaster and all its children; returns when none is left.
# They are stopped first, so that none acts on another's death. The signal takes
# its time: a postmaster that still runs may fork a child that is not in the list.
sub kill9
{
	my ($node) = @_;
	my $pid = $node->{_pid};
	return unless defined $pid;

	kill('STOP', $pid);
	usleep(500) while (process_state($pid) || 'Z') !~ /[TZ]/;
	my @all = ($pid, children($pid));
	kill('STOP', @all);
	_note_segments(@all);
	kill('KILL', @all);
	waitpid($pid, 0);
	$node->{_pid} = undef;
	_look_at_log($node);
	foreach my $p (@all[ 1 .. $#all ])
	{
		usleep(2_000) while (process_state($p) || 'X') !~ /[ZX]/;
	}
	return;
}

sub teardown_node
{
	my ($node) = @_;
	$node->stop('immediate', fail_ok => 1);
	unlink $node->pool_files;
	return;
}

# Start it with the pool on a small tmpfs of its own, in a private mount
# namespace: size as mount understands it. Returns 0 if this system does not let
# an ordinary user do that. The file system lasts as long as the postmaster. $prepare:
# commands of the shell that are run in it before.
sub use_small_file_system
{
	my ($node, $size, $prepare) = @_;
	my $dir = $node->basedir . '/small';
	mkdir $dir;
	$node->{_wrapper} = [
		'unshare', '-U', '-r', '-m', 'sh', '-c',
		q{mount -t tmpfs -o size="$0" tmpfs "$1" && (cd "$1" && eval "$2") && shift 2 && exec unshare -U --map-user=1000 --map-group=1000 "$@"},
		$size, $dir, $prepare // ':' ];
	$node->append_conf('postgresql.conf', "sofort.pool_path = '$dir/pool'\n");
	return system("@{[ map { qq{'$_'} } @{ $node->{_wrapper} } ]} true >/dev/null 2>&1") == 0;
}

# ---- stop points ----

# The nth passage of a point will wait, kill (the server), kill_backend or error.
sub arm
{
	my ($node, $point, $action, $nth) = @_;
	$node->safe_psql('postgres', sprintf(q{SELECT sofort_test.arm('%s', '%s', %d)}, $point, $action, $nth || 1));
	return;
}

sub disarm
{
	my ($node, $point) = @_;
	$node->safe_psql('postgres', "SELECT sofort_test.disarm('$point')");
	return;
}

# The next spawn() arms a point before the pool is opened: kill, kill_backend or wait.
sub arm_at_start
{
	my ($node, $point, $action) = @_;
	$node->{_stop_point_at_start} = "$point:$action";
	return;
}

# Returns 1 when so many sessions wait at the point.
sub wait_at
{
	my ($node, $point, $n) = @_;
	return $node->wait_until("SELECT sofort_test.waiters('$point') = " . ($n || 1));
}

# Returns 1 when a query returns t, in postgres if no database is named; 0 after a minute without.
sub wait_until
{
	my ($node, $sql, $db) = @_;
	my $until = time() + $minute;
	while (time() < $until)
	{
		return 1 if $node->safe_psql($db || 'postgres', $sql) eq 't';
		usleep(5_000);
	}
	return 0;
}

# Returns 1 when all that was counted of the workload is in the pool, 0 after a minute without. (The
# launcher sleeps when there is nothing to save; a statement on this table, which needs no index,
# wakes it up.)
sub workload_is_saved
{
	my ($node, $table) = @_;
	my $before = $node->safe_psql('postgres', 'SELECT sofort_test.workload_saves()');
	$node->safe_psql('postgres', "SELECT count(*) FROM $table");
	return $node->wait_until("SELECT sofort_test.workload_saves() >= $before + 2");
}

# Returns 1 when the postmaster has ended by itself and nobody of its children
# is left, 0 after a minute without. kill_rest => 1: some may wait for a lock that
# the killed process had, and would never notice.
sub reap
{
	my ($node, %params) = @_;
	my $until = time() + $minute;
	my $dir = Cwd::realpath($node->data_dir);
	while (waitpid($node->{_pid}, POSIX::WNOHANG()) == 0)
	{
		return 0 if time() > $until;
		usleep(2_000);
	}
	$node->{_pid} = undef;
	my $patience = time() + 5;
	while (my @left = grep { (readlink($_) || '') eq $dir } glob('/proc/[0-9]*/cwd'))
	{
		return 0 if time() > $until;
		# (who waits for an LWLock of the process that was killed waits for ever)
		kill('KILL', map { m{/proc/(\d+)/} } @left) if $params{kill_rest} || time() > $patience;
		usleep(2_000);
	}
	return 1;
}

# Runs SQL in a session that is to kill the server at a stop point. Returns 1
# if it did; then the server is down. SQL in "warm" runs before that in the same
# session: reading catalogs may prune their pages, and a transaction in which
# that happens has written WAL.
sub crash_at
{
	my ($node, $point, $sql, $nth, $warm) = @_;
	my ($out, $err);
	my $arm = sprintf(q{SELECT sofort_test.arm('%s', 'kill', %d);}, $point, $nth || 1);
	my $rc = $node->psql('postgres', ($warm || '') . $arm . $sql, stdout => \$out, stderr => \$err);
	if ($rc == 2 && $node->reap)
	{
		return 1;
	}
	diag("stop point $point was not reached: $err");
	$node->disarm($point) if defined $node->{_pid};
	return 0;
}

# Number of the server's life: one more after each start, and after each
# crash-restart because one backend died.
sub life { return $_[0]->safe_psql('postgres', 'SELECT life FROM sofort.pool'); }

# Returns 1 when the server has come back in another life than that.
sub wait_new_life
{
	my ($node, $life) = @_;
	my $until = time() + $minute;
	while (time() < $until)
	{
		# (with -c: a psql that cannot connect does not read its input)
		my ($out, $err);
		return 1 if IPC::Run::run(
			[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SELECT life FROM sofort.pool' ],
			'<', \undef, '>', \$out, '2>', \$err) && $out != $life;
		usleep(5_000);
	}
	return 0;
}

# SQLSTATE and message of a statement that fails, without the rest; '' if it does not.
sub error_of
{
	my ($node, $sql, $db) = @_;
	my ($out, $err);
	$node->psql($db || 'postgres', $sql, stdout => \$out, stderr => \$err,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $err =~ /ERROR:  (\w{5}: [^\n]*)/ ? $1 : '';
}

# A session whose server may be gone.
sub drop_session
{
	my ($session) = @_;
	eval { $session->{run}->kill_kill(grace => 1); };
	return;
}

# The server dies with its sessions, and comes back.
sub crash_and_start
{
	my ($node, @sessions) = @_;
	$node->kill9;
	drop_session($_) foreach @sessions;
	$node->start;
	return;
}

# ---- the outside witness (t/witness.c) ----

sub conninfo
{
	my ($node, $db) = @_;
	return $node->connstr($db || 'postgres');
}

# The directory with what the witness remembers.
sub witness_memory
{
	my ($node) = @_;
	my $dir = $node->basedir . '/witness';
	mkdir $dir unless -d $dir;
	return $dir;
}

sub witness_init
{
	my ($node, $am1, $am2) = @_;
	system($ENV{SOFORT_WITNESS}, 'init', $node->conninfo, $am1, $am2) == 0
	  or BAIL_OUT('witness init failed');
	return;
}

# Starts writers and a reader in the background; returns a process id.
sub witness_start
{
	my ($node, $writers, $seconds) = @_;
	my $pid = fork();
	BAIL_OUT("fork: $!") unless defined $pid;
	if ($pid == 0)
	{
		open(STDERR, '>&', \*STDOUT);
		exec($ENV{SOFORT_WITNESS}, 'run', $node->conninfo, $node->witness_memory, $writers, $seconds)
		  or POSIX::_exit(127);
	}
	return $pid;
}

# Exit code of a witness that was started: 0, or what broke.
sub witness_finish
{
	my ($pid) = @_;
	waitpid($pid, 0);
	return $? >> 8;
}

# (exit code, { acknowledged => ..., ... }, text)
sub witness_verify
{
	my ($node, $writers) = @_;
	my $cmd = join(' ', map { "'$_'" } $ENV{SOFORT_WITNESS}, 'verify', $node->conninfo =~ s/'//gr, $node->witness_memory, $writers);
	my $text = `$cmd 2>&1`;
	my $rc = $? >> 8;
	my %totals = $text =~ /(\w+)=(\d+)/g;
	return ($rc, \%totals, $text);
}

# sofort.verify() of every sofort table and sofort.verify_pool(): '' when clean.
sub verify_problems
{
	my ($node, $db) = @_;
	return '' unless $node->{_sofort_loaded};
	return $node->safe_psql(
		$db || 'postgres', q{
		SELECT v.* FROM pg_class c JOIN pg_am a ON a.oid = c.relam, sofort.verify(c.oid::regclass) v
		WHERE a.amname = 'sofort' AND c.relkind IN ('r', 'm', 't')
		UNION ALL SELECT * FROM sofort.verify_pool()});
}

1;
