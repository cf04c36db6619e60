# What neither snapshots of other databases nor replication slots can see is freed and
# used again at once, as on heap: versions, rows that were deleted, dictionary values.
# Snapshots, prepared and kept transactions of the own database keep theirs.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

my $rounds = $ENV{SOFORT_LONG} ? 40 : 8;
my $rows = 2000;
my $node = SofortNode->new('horizons');
$node->init(conf => [ 'autovacuum = off', 'wal_level = logical', 'max_replication_slots = 2', 'max_prepared_transactions = 2' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION sofort; CREATE TABLE there (id int PRIMARY KEY, n int) USING sofort; INSERT INTO there VALUES (1, 1)');
$node->safe_psql('postgres', qq{
	CREATE TABLE updated (id int PRIMARY KEY, n int, t text) USING sofort;
	CREATE TABLE replaced (id int PRIMARY KEY, n int) USING sofort;
	INSERT INTO updated SELECT i, 0, repeat('x', 300) || i FROM generate_series(1, $rows) i;
	INSERT INTO replaced SELECT i, 0 FROM generate_series(1, $rows) i});

# Blocks of the two tables after so many rounds of changes and VACUUM
sub work
{
	my $statements = '';
	foreach my $round (1 .. $rounds)
	{
		foreach my $part (0 .. 9)
		{
			$statements .= "UPDATE updated SET n = n + 1, t = repeat('x', 300) || n || ' ' || id WHERE id % 10 = $part;\n";
			$statements .= "DELETE FROM replaced WHERE id % 10 = $part;\n";
			$statements .= "INSERT INTO replaced SELECT i, 0 FROM generate_series(1, $rows) i WHERE i % 10 = $part;\n";
		}
		$statements .= "VACUUM updated; VACUUM replaced;\n";
	}
	$node->safe_psql('postgres', $statements);
	return $node->safe_psql('postgres', q{SELECT sum(blocks) FROM sofort.tables WHERE relation IN ('updated'::regclass, 'replaced'::regclass)});
}

sub is_sound
{
	my ($what) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT t) FROM updated'), "$rows|$rows", "$what: the rows are right");
	is($node->verify_problems, '', "$what: verify");
	return;
}

# (more than once, so that all lists are filled as they always are)
work();
my $alone = work();
is_sound('alone');

$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('behind', 'pgoutput')});
cmp_ok(work(), '<=', $alone * 1.2, 'beside a replication slot whose subscriber is gone');
is_sound('beside a replication slot');
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('behind')});

my $snapshot = $node->background_psql('other');
$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM there');
cmp_ok(work(), '<=', $alone * 1.2, 'beside a snapshot of another database');
is_sound('beside a snapshot of another database');

# Those that have an id lie before all snapshots, also ours: on heap, too, VACUUM alone frees then.
$snapshot->query_safe('SELECT pg_current_xact_id()');
cmp_ok(work(), '<', $alone * 2, 'beside a transaction of another database');
is_sound('beside a transaction of another database');
$snapshot->query_safe('COMMIT');
$snapshot->quit;

$node->safe_psql('other', q{BEGIN; UPDATE there SET n = 2; PREPARE TRANSACTION 'there'});
cmp_ok(work(), '<', $alone * 2, 'beside a prepared transaction of another database');
is_sound('beside a prepared transaction of another database');
$node->safe_psql('other', q{COMMIT PREPARED 'there'});
is($node->safe_psql('other', 'SELECT n FROM there'), 2, 'which commits');

# The same beside transactions of this database: then all is kept.
my $old = $node->background_psql('postgres');
my $look = 'SELECT sum(n), count(DISTINCT t) FROM updated; SELECT count(*) FROM replaced';
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $before = $old->query_safe($look);
cmp_ok(work(), '>', $alone * 2, 'beside a snapshot of this database');
is($old->query_safe($look), $before, 'which sees what it saw');
$old->query_safe('COMMIT');
$old->quit;
is_sound('beside a snapshot of this database');

$node->stop;
done_testing();
