# The disk under a pool (medium msync) fails once: what was acknowledged before is
# there afterwards, also if the kernel has taken the pages that it could not write for
# clean, and the power fails later. Whether the server goes on or ends.
#
# t/disk_errors.c makes the errors. A power cut takes what was not written: each page
# that nobody has written again since the error is as it was before.
use strict;
use warnings;

use Fcntl;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
my $dir = $node->basedir . '/disk';
mkdir $dir;
my $pool = $node->{_sofort_pool} = "$dir/pool";
$node->init(conf => [ "sofort.durability = 'msync'", 'sofort.redo_size = 16MB', 'autovacuum = off' ]);
$node->{_wrapper} = [ 'env', "LD_PRELOAD=$ENV{SOFORT_DISK_ERRORS}", "SOFORT_DISK_ERRORS=$dir" ];
$node->start;
my $medium = $node->safe_psql('postgres', q{SELECT coalesce((SELECT medium FROM sofort.pool), 'none')});
if ($medium ne 'msync')
{
	$node->teardown_node;
	diag('NOT TESTED: errors of a disk (the tests run in a file system in memory)');
	plan skip_all => 'the file system is in memory';
}

my $rows = 0;

sub insert
{
	my ($n) = @_;
	$node->safe_psql('postgres', "INSERT INTO t SELECT g, repeat('t', 500) || g FROM generate_series($rows + 1, $rows + $n) g");
	$rows += $n;
	return;
}

sub all_there
{
	my ($when) = @_;
	is($node->safe_psql('postgres', q{SELECT count(*), min(i), max(i), count(*) FILTER (WHERE b = repeat('t', 500) || i) FROM t}),
		"$rows|1|$rows|$rows", "$when: every acknowledged row is there");
	is($node->verify_problems, '', "$when: tables, indexes and pool agree");
	return;
}

# What the disk has: the file as it is now, or what was written since
sub remember
{
	unlink "$dir/failed", "$dir/written", "$dir/before";
	run_log([ 'cp', '--sparse=always', $pool, "$dir/before" ]) or BAIL_OUT('cp');
	return;
}

sub break { append_to_file("$dir/$_[0]", ''); return; }

sub read_page
{
	my ($fh, $at) = @_;
	sysseek($fh, $at, 0);
	sysread($fh, my $page, 4096) == 4096 or BAIL_OUT("read: $!");
	return $page;
}

# Returns how many pages have lost something.
sub lose_pages
{
	my %written;
	ok(-e "$dir/before", 'nothing was synchronised between copy and error');
	foreach my $line (split /\n/, slurp_file("$dir/written"))
	{
		my ($at, $bytes) = split / /, $line;
		$written{$_} = 1 foreach $at / 4096 .. ($at + $bytes - 1) / 4096;
	}
	my ($now, $failed, $before) = map { open(my $fh, '+<:raw', $_) or BAIL_OUT("$_: $!"); $fh } $pool, "$dir/failed", "$dir/before";
	my $lost = 0;
	my $at = 0;
	# SEEK_DATA, SEEK_HOLE
	while (defined($at = sysseek($failed, $at, 3)))
	{
		my $end = sysseek($failed, $at, 4);
		for ($at = int($at / 4096) * 4096; $at < $end; $at += 4096)
		{
			next if $written{ $at / 4096 };
			my $page = read_page($failed, $at);
			my $old = read_page($before, $at);
			# (stored to since: dirty again)
			next if $page eq $old || $page ne read_page($now, $at);
			sysseek($now, $at, 0);
			syswrite($now, $old) == 4096 or BAIL_OUT("write: $!");
			$lost++;
		}
	}
	return $lost;
}

# The kernel reads ahead, into holes, too: some MB behind all that the file has. Returns how many.
sub read_holes
{
	open(my $fh, '<:raw', $pool) or BAIL_OUT("$pool: $!");
	my $mb = 0;
	my $at = 0;
	my $bytes;
	while (defined($at = sysseek($fh, $at, 3)))
	{
		sysseek($fh, $at, 4);
		foreach (1 .. 3)
		{
			sysread($fh, $bytes, 1 << 20);
			$mb++ if $bytes !~ /[^\0]/;
		}
		$at = sysseek($fh, 0, 1);
	}
	return $mb;
}

# So much that the pool is written back, which fails
sub churn
{
	my ($out, $err);
	$node->psql('postgres', q{INSERT INTO churn SELECT g, repeat(md5(g::text), 32) FROM generate_series(1, 30000) g}, stdout => \$out, stderr => \$err);
	return $err;
}

$node->safe_psql('postgres', q{
	CREATE TABLE t (i int PRIMARY KEY, b text) USING sofort;
	ALTER TABLE t ALTER b SET STORAGE EXTERNAL;
	CREATE TABLE churn (i int, b text) USING sofort;
	ALTER TABLE churn ALTER b SET STORAGE EXTERNAL});
insert(1000);

# ---- the pool file; the server goes on ----
$node->restart;
remember();
insert(200);
my $life = $node->life;
my $log = -s $node->logfile;
break('synchronize');
isnt(churn(), '', 'an error of the disk ends the sessions');
ok($node->wait_new_life($life), 'the server goes on');
like(slurp_file($node->logfile, $log), qr/PANIC:  could not synchronize file ".*pool": Input\/output error/, 'it says why');
like(slurp_file($node->logfile, $log), qr/replayed [1-9]\d* lines/, 'the log is replayed');
all_there('the server went on');
insert(10);
$node->kill9;
note(lose_pages() . ' pages lost');
$node->start;
all_there('the server went on, power cut');

# ---- the pool file; the server ends ----
$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = off');
$node->restart;
remember();
insert(200);
$log = -s $node->logfile;
break('synchronize');
isnt(churn(), '', 'again');
ok($node->reap, 'the server ends');
unlike(slurp_file($node->logfile, $log), qr{sofort pool ".*" is written back}, 'and does not say that all is written back');
cmp_ok(lose_pages(), '>', 50, 'pages were lost');
cmp_ok(read_holes(), '>', 50, 'holes were read');
my $used = (stat $pool)[12] * 512;
$node->start;
all_there('the server ended, power cut');
cmp_ok((stat $pool)[12] * 512 - $used, '<', 20_000_000, 'holes are not filled');

$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = on');
$node->reload;

# ---- the log ----
$life = $node->life;
$log = -s $node->logfile;
# (of this session alone: the launcher writes statistics to the pool when it likes)
isnt($node->psql('postgres', qq{SELECT pg_backend_pid() AS pid \\gset
	\\setenv WHO :pid
	\\! echo \$WHO > $dir/write
	INSERT INTO t VALUES (-1)}, stdout => \my $out, stderr => \my $err), 0, 'a commit that cannot be logged is not acknowledged');
ok($node->wait_new_life($life), 'the server goes on after an error of the log');
like(slurp_file($node->logfile, $log), qr/PANIC:  could not write file ".*pool\.redo": Input\/output error/, 'it says why');
$node->safe_psql('postgres', 'DELETE FROM t WHERE i = -1');
all_there('error of the log');
insert(10);
$node->kill9;
$node->start;
all_there('error of the log, crash');
$node->stop;
$node->teardown_node;

# ---- a new pool, whose name gets to the disk before anything relies on it ----
my $new = SofortNode->new('new');
$dir = $new->basedir . '/disk';
mkdir $dir;
$new->{_sofort_pool} = "$dir/pool";
$new->init;
$new->{_wrapper} = [ 'env', "LD_PRELOAD=$ENV{SOFORT_DISK_ERRORS}", "SOFORT_DISK_ERRORS=$dir" ];
break('directory');
$new->start(no_extension => 1);
like(slurp_file($new->logfile), qr/could not rename sofort pool ".*pool\.new": Input\/output error/, 'its name could not be synchronised');
ok(-e "$dir/pool" && !-e "$dir/named", 'it has its name, as after a crash in between');
$new->restart;
ok(-e "$dir/named", 'the next start synchronises it');
is($new->safe_psql('postgres', 'SELECT medium FROM sofort.pool'), 'process', 'and uses the pool');
unlink "$dir/named";
$new->restart;
ok(!-e "$dir/named", 'once');
$new->stop;
$new->teardown_node;
done_testing();
