# Power cuts: a recorded run of a server with the shadow medium, and what servers
# find that are started from images of it (t/medium/main.c).
#
#   my $run = Medium->workload('tables');   # medium/workloads/tables.sql
#   my $run = Medium->record('clients', clients => 4, transactions => 60, seed => 1);
#   my $other = $run->again(cut => 1500, survival => 1);   # what a start from that image records
#   my ($images, $bad, $text) = $run->enumerate(every => 20);
#   my %outcome = $run->calls(only => [ ... ]);
#   $run->remove;
#
# Environment, set by ./check: SOFORT_MEDIUM (program; not set if the build has
# no shadow medium).
package Medium;

use strict;
use warnings;

use Cwd ();
use FindBin;
use POSIX ();
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

# Cores to use for images, which have a server each.
my $parts = 2;

sub available { return defined $ENV{SOFORT_MEDIUM} && -x $ENV{SOFORT_MEDIUM}; }

sub run_program
{
	my @command = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run(\@command, '>', \$out, '2>', \$err);
	BAIL_OUT("@command[0..1]: $err") if !$ok && ($? >> 8) != 1;
	return $out;
}

# Record a run of workloads/NAME.sql; what is made for disks with drains that count as slow.
sub workload
{
	my ($class, $name) = @_;
	return $class->record($name, script => "$FindBin::RealBin/medium/workloads/$name.sql", slow => $name eq 'disk');
}

# Record a run of a script (after NAME.setup, if there is one), or of several clients. The data directory must be
# that of the last checkpoint plus WAL, so nothing may write one, or data files.
sub record
{
	my ($class, $name, %option) = @_;
	my $node = SofortNode->new("record_$name");
	my $dir = "$ENV{SOFORT_POOL_DIR}/medium-$name";
	my $self = bless { name => $name, node => $node, dir => $dir }, $class;

	mkdir $dir or BAIL_OUT("$dir: $!");
	$node->init(
		extra => ['--wal-segsize=1'],
		conf => [
			'wal_level = replica', 'max_wal_senders = 0', 'max_connections = 12',
			'max_worker_processes = 4', 'max_prepared_transactions = 4', 'autovacuum = off',
			'checkpoint_timeout = 1h', 'max_wal_size = 2GB', 'wal_keep_size = 1GB', 'shared_buffers = 32MB',
			'wal_writer_delay = 10s', 'jit = off', 'max_parallel_workers_per_gather = 0', 'fsync = off',
			'log_statement = none', 'log_replication_commands = off', 'log_min_messages = warning',
			'dynamic_shared_memory_type = mmap', 'sofort.pool_size = 64MB'
		]);
	$node->start;
	# What is there when all tables under test are gone: after one was made and dropped.
	$node->safe_psql('postgres', slurp_file("$FindBin::RealBin/medium/checks.sql"));
	$node->safe_psql('postgres', $_)
	  foreach ('CREATE TABLE w (id int PRIMARY KEY, t text) USING sofort; INSERT INTO w VALUES (1); DROP TABLE w',
		'SELECT chk.write()', 'VACUUM chk.usable', 'TRUNCATE chk.usable', 'SELECT chk.begin()');
	(my $setup = $option{script} // '') =~ s/\.sql$/.setup/;
	$node->safe_psql('postgres', slurp_file($setup)) if -e $setup;
	$node->stop;

	run_program('cp', '--sparse=always', $node->pool_file, "$dir/pool");
	open(my $log, '>', "$dir/log") or BAIL_OUT("$dir/log: $!");
	close $log;
	{
		local $ENV{SOFORT_SHADOW_LOG} = "$dir/log";
		local $ENV{SOFORT_SHADOW_SLOW} = 1;
		delete $ENV{SOFORT_SHADOW_SLOW} unless $option{slow};
		$node->start;
	}
	run_program('cp', '-a', $node->data_dir, "$dir/data");
	my @where = ($node->connstr('postgres'), "$dir/log");
	my $out = $option{script}
	  ? run_program($ENV{SOFORT_MEDIUM}, 'record', @where, $option{script}, "$dir/steps")
	  : run_program($ENV{SOFORT_MEDIUM}, 'clients', @where, "$dir/steps", @option{qw(clients transactions seed)});
	($self->{steps}, $self->{drains}) = $out =~ /steps=(\d+) drains=(\d+)/;
	$node->kill9;
	run_program('cp', '-a', $node->data_dir . '/pg_wal', "$dir/wal");
	unlink $node->pool_files;
	return $self;
}

# Command line of the program for a part of the work
sub command
{
	my ($self, $what, $n, $part, %option) = @_;
	my $work = "$self->{dir}/work$part";
	my $bin = (split /:/, $ENV{PATH})[0];

	mkdir $work;
	return ($ENV{SOFORT_MEDIUM}, $what, (map { "$_=$self->{dir}/$_" } qw(log pool data wal steps)),
		"work=$work", "bin=$bin", "parts=$n", "part=$part", map { "$_=$option{$_}" } sort keys %option);
}

# Runs the program in several parts at once; returns their output.
sub in_parts
{
	my ($self, $what, $n, %option) = @_;
	my @handles;

	foreach my $part (0 .. $n - 1)
	{
		my @command = $self->command($what, $n, $part, %option);
		open(my $handle, '-|', @command) or BAIL_OUT("$command[0]: $!");
		push @handles, $handle;
	}
	my $text = '';
	foreach my $handle (@handles)
	{
		local $/;
		$text .= <$handle> // '';
		close $handle;
		BAIL_OUT("medium $what could not work") if ($? >> 8) > 1 || ($? & 127);
	}
	return $text;
}

# (number of images, number of bad ones, what was wrong)
sub enumerate
{
	my ($self, %option) = @_;
	my $text = $self->in_parts('enumerate', $parts, %option);
	my ($images, $bad) = (0, 0);
	while ($text =~ /^images=(\d+) bad=(\d+)/mg) { $images += $1; $bad += $2; }
	return ($images, $bad, join('', map { "$_\n" } grep { /^bad/ } split /\n(?=bad|images)/, $text));
}

# A server is started from the image of a cut, and what it does is recorded.
# killed => 1: its processes were killed then, which leaves what was stored; a
# power cut that comes later may still take what was not durable. use => 1: it is
# also used for writing. leaves => 1: the session that has recovered does nothing else
# and ends; script => FILE: others go on with the steps of that. stop => 1: the server is
# stopped in order; then the run has one point, its end.
# Returns the new run, or undef if the image was bad.
sub again
{
	my ($self, %option) = @_;
	my $name = "$self->{name}-" . ($option{killed} ? 'killed' : 'cut') . "-$option{cut}";
	my $dir = "$ENV{SOFORT_POOL_DIR}/medium-$name";

	mkdir $dir or BAIL_OUT("$dir: $!");
	my $out = run_program($self->command('again', 1, 0, %option, out => $dir));
	if ($out !~ /^drains=(\d+)/m)
	{
		diag($out);
		return undef;
	}
	run_program('rm', '-rf', "$dir/running", "$dir/running.pool");
	return bless { name => $name, dir => $dir, drains => $1, steps => 1 }, ref $self;
}

# Leave out calls in turn: (name => [ outcome, times made ], ...)
sub calls
{
	my ($self, %option) = @_;
	my $only = delete $option{only};
	return () if $only && !@$only;
	my $text = $self->in_parts('calls', $parts, %option, $only ? (call => join(',', @$only)) : ());
	my %outcome;
	while ($text =~ /^call (\S+): (.*?) \((\d+) times/mg) { $outcome{$1} = [ $2, $3 ]; }
	return %outcome;
}

# (name of a flush => a drain before which something that it flushed is on its way)
sub kills
{
	my ($self, %option) = @_;
	my %kills = $self->in_parts('kills', 1, %option) =~ /^kill (\S+) cut=(\d+)/mg;
	return %kills;
}

# Calls of the sources: (name => how often the run made it)
sub calls_made
{
	my ($self) = @_;
	if (!$self->{calls_made})
	{
		my %all = $self->calls(list => 1);
		$self->{calls_made} = { map { $_ => $all{$_}[1] } keys %all };
	}
	return %{ $self->{calls_made} };
}

# Of a server that started from an image (again)?
sub is_recovery { my ($self) = @_; return !$self->{node}; }

sub remove
{
	my ($self) = @_;
	run_program('rm', '-rf', $self->{dir});
	$self->{node}->teardown_node if $self->{node};
	return;
}

1;
