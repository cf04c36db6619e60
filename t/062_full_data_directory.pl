# No free block in the file system of the data directory: what writes sofort tables
# works, and makes room, as on heap, checkpoints before it or not. The file that is
# needed then, beside sofort.control, has its block before.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

plan skip_all => 'heap has no control file' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('main');
$node->init(
	extra => ['--wal-segsize=1'],
	conf => [
		'autovacuum = off', 'jit = off', "min_wal_size = '16MB'", "max_wal_size = '32MB'", 'wal_recycle = on',
		# a checkpoint of PostgreSQL needs room for their state
		'max_replication_slots = 0' ]);
$node->append_conf('postgresql.conf', "max_active_replication_origins = 0\n") if $node->pg_version >= 18;
my $data = $node->data_dir;
if (!$node->use_small_file_system('160m', "cp -a '$data' data && mount --bind data '$data'"))
{
	diag('NOT TESTED: a full file system (user namespaces with mounts are not allowed here)');
	plan skip_all => 'no small file system';
}
$node->append_conf('postgresql.conf', "sofort.pool_path = '" . $node->pool_file . "'\n");
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A command in the data directory, where the server sees it
sub in_data_directory { return sql("COPY (SELECT 1) TO PROGRAM '$_[0]'"); }

sub fill { return in_data_directory('cat >/dev/null; cat /dev/zero >>full 2>/dev/null; true'); }

# as heap tables, which are the measure of what can be expected
foreach my $am (qw(sofort heap))
{
	# (no index, and nothing to be toasted: PostgreSQL begins their files anew with a page)
	sql(qq{CREATE TABLE ${am}_$_ (i int, v int) USING $am; INSERT INTO ${am}_$_ SELECT g, g FROM generate_series(1, 1000) g})
	  foreach qw(deleted truncated dropped);
}
# segments that are recycled, and catalogs with free space
foreach (1 .. 15)
{
	sql('CREATE TABLE x (i int PRIMARY KEY) USING sofort; DROP TABLE x; SELECT pg_switch_wal(); CHECKPOINT');
}
sql('VACUUM pg_class, pg_attribute, pg_depend, pg_type');
cmp_ok(sql('SELECT count(*) FROM pg_ls_waldir() WHERE name > pg_walfile_name(pg_current_wal_lsn())'), '>', 4, 'there are segments of WAL to come');

# ---- full ----

foreach my $am (qw(heap sofort))
{
	foreach my $case ([ 'DELETE', "DELETE FROM ${am}_deleted" ], [ 'TRUNCATE', "TRUNCATE ${am}_truncated" ], [ 'DROP TABLE', "DROP TABLE ${am}_dropped" ])
	{
		my ($what, $sql) = @$case;
		fill();
		is($node->error_of('CHECKPOINT'), '', "$am, $what: CHECKPOINT");
		is($node->error_of($sql), '', "$am, $what: it works");
	}
}
fill();
sql('CHECKPOINT');
is($node->error_of('INSERT INTO sofort_truncated VALUES (1)'), '', 'and what needs room in the pool alone');
is(sql('SELECT (SELECT count(*) FROM sofort_deleted), (SELECT count(*) FROM sofort_truncated)'), '0|1', 'it was done');
is($node->verify_problems, '', 'full: verify');

# ---- the place cannot be made: nothing is added to the WAL in vain ----

in_data_directory('cat >/dev/null; rm -f full sofort.control.tmp; mkdir sofort.control.tmp');
sql('CHECKPOINT');
$node->arm('highwater-wal', 'error', 1000);
like($node->error_of('DELETE FROM sofort_truncated'), qr/^\S{5}: could not .*sofort\.control\.tmp/, 'no place for the control file') foreach 1 .. 2;
is(sql(q{SELECT sofort_test.passages('highwater-wal')}), 0, 'and no record');
$node->disarm('highwater-wal');
in_data_directory('cat >/dev/null; rmdir sofort.control.tmp');
is($node->error_of('DELETE FROM sofort_truncated'), '', 'now there is');

$node->stop;
$node->teardown_node;
done_testing();
