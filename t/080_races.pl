# Races that stop points make certain: one session is held at the point where
# another one can do harm.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use SofortNode;
use Test::More;

my $node = SofortNode->new('races');
$node->init(conf => [ 'autovacuum = off', 'sofort.recovery_workers = 0' ]);
$node->start;

# A session that runs this and then ends.
sub background
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	return {
		out => \$out,
		err => \$err,
		run => IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $sql ],
			'<', \undef, '>', \$out, '2>', \$err)
	};
}

# Each line a transaction of its own.
sub transactions
{
	my (@sql) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \join("\n", map { "$_;" } @sql), '>', \$out, '2>', \$err)
	  or BAIL_OUT($err);
	return;
}

sub ends_well
{
	my ($session, $what) = @_;
	ok(IPC::Run::finish($session->{run}), $what) or diag(${ $session->{err} });
	return;
}

# ---- VACUUM needs an index that is not there after a restart, and builds it ----
# Its transaction holds back nobody's horizon, unless the build sees to that: the
# version it stands on could be freed, and be another row before it is read.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE v (id int PRIMARY KEY, n int) USING sofort;
	INSERT INTO v VALUES (1, 0), (2, 0), (3, 0);
	UPDATE v SET n = 1 WHERE id = 1;
	DELETE FROM v WHERE id = 3});
transactions(map { "SELECT pg_current_xact_id()" } 1 .. 3);
$node->restart;
$node->arm('index-build-version', 'wait');
my $vacuum = background('VACUUM v');
ok($node->wait_at('index-build-version'), 'VACUUM builds the index');
# without the index: it is waited for
my @seqscan = ('SET enable_indexscan = off', 'SET enable_bitmapscan = off');
transactions(@seqscan, ("UPDATE v SET n = n + 1 WHERE id = 1") x 300);
transactions(@seqscan, ("UPDATE v SET n = n + 1 WHERE id = 2") x 600);
$node->disarm('index-build-version');
ends_well($vacuum, 'VACUUM ends');
is( $node->safe_psql(
		'postgres', q{
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	SELECT id, n FROM v WHERE id = 1; SELECT id, n FROM v WHERE id = 2; SELECT id, n FROM v WHERE id = 3}),
	"1|301\n2|600",
	'the index leads to the right rows');
is($node->verify_problems, '', 'verify');
$node->stop;
done_testing();
