# Indexes in the pool under SIGKILL: the witness of 010 with placements pmem and
# hybrid and more indexes, killed at random, also during VACUUM and REINDEX.
# Nothing acknowledged is missing in any index, nothing else is there; pmem
# indexes are ready at once; and what starts forget of free space is found
# again: an index that is written, killed and vacuumed does not grow for ever.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'heap has no placements' if $SofortNode::am ne 'sofort';

my $rounds  = $ENV{SOFORT_LONG} ? 25 : 5;
my $writers = 3;
my $seed    = $ENV{SOFORT_SEED} || time();
srand($seed);
note("SOFORT_SEED=$seed");

foreach my $placement ('pmem', 'hybrid')
{
	my $node = SofortNode->new($placement);
	$node->init(conf => [ "sofort.index_placement = $placement", 'checkpoint_timeout = 30s' ]);
	$node->start;
	$node->witness_init('sofort', 'heap');
	$node->safe_psql(
		'postgres', q{
		CREATE INDEX w_item_payload ON w_item USING sofort_index (payload, id);
		CREATE UNIQUE INDEX w_item_long ON w_item USING sofort_index ((repeat(payload, 3)), writer, seq, part) INCLUDE (id);
		CREATE INDEX w_account_balance ON w_account USING sofort_index (balance DESC);
		CREATE TABLE grow (id int PRIMARY KEY, t text) USING sofort;
		CREATE INDEX grow_t ON grow USING sofort_index (t);
		INSERT INTO grow SELECT i, md5(i::text) FROM generate_series(1, 5000) i});
	my $in_pool = "SELECT count(*) FROM sofort.indexes WHERE placement <> '$placement'";
	is($node->safe_psql('postgres', $in_pool), '0', "$placement: all indexes are there");

	my @bytes;
	for my $round (1 .. $rounds)
	{
		my $witness = $node->witness_start($writers, 60);
		my $maintenance = $round % 3 == 1 ? 'VACUUM w_item, w_account, w_counter' : $round % 3 == 2 ? 'REINDEX TABLE w_item' : '';
		usleep(200_000 + int(rand(400_000)));
		my $pid = $maintenance && fork();
		if (defined $pid && $pid eq '0')
		{
			exec('psql', '-X', '-q', '-c', $maintenance, '-d', $node->connstr('postgres') . ' options=-cclient_min_messages=panic')
			  or POSIX::_exit(127);
		}
		usleep(int(rand(60_000)));
		$node->kill9;
		waitpid($pid, 0) if $pid;
		is(SofortNode::witness_finish($witness), 0, "$placement $round: what was shown under load was whole");
		$node->start;
		is($node->safe_psql('postgres', "SELECT count(*) FROM sofort.indexes WHERE placement = 'pmem' AND status <> 'ready'"),
			'0', "$placement $round: nothing is to be rebuilt");
		my ($rc, $totals, $text) = $node->witness_verify($writers);
		is($rc, 0, "$placement $round: every acknowledged transaction is there, nothing else is") or diag($text);
		is($node->verify_problems, '', "$placement $round: tables, indexes and pool agree");
		is($node->safe_psql('postgres', $in_pool), '0', "$placement $round: all indexes are where they were");

		# splits and merges in this life, and the space of earlier ones
		$node->safe_psql('postgres', "DELETE FROM grow WHERE id % 5 = $round % 5");
		$node->safe_psql('postgres', 'VACUUM grow');
		$node->safe_psql('postgres', "INSERT INTO grow SELECT i, md5(i::text) FROM generate_series(1, 5000) i WHERE i % 5 = $round % 5");
		push @bytes, $node->safe_psql('postgres', "SELECT sum(pool_bytes) FROM sofort.indexes WHERE relation = 'grow'::regclass");
	}
	note("bytes of the indexes: @bytes");
	cmp_ok($bytes[-1], '<=', $bytes[1] * 1.25, "$placement: the space of earlier lives is used again");

	# one backend killed: everything starts anew, but the pool stays mapped
	my $life = $node->life;
	$node->arm('tree-entry-written', 'kill_backend');
	$node->psql('postgres', "INSERT INTO grow VALUES (90000, 'never')", on_error_die => 0);
	ok($node->wait_new_life($life), "$placement: back after the crash of one process");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM grow WHERE id = 90000'), '0', "$placement: it took nothing with it");
	is($node->verify_problems, '', "$placement: sound after the crash of one process");
	$node->restart;
	is($node->verify_problems, '', "$placement: sound after an orderly restart");
	$node->stop;
}
done_testing();
