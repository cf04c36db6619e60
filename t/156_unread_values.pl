# A row that was updated keeps its first version as a root. VACUUM frees what that had outside of
# the row, of columns to which no index refers: nobody reads it any more. Old snapshots keep what
# they see, indexes what they are built from; an index that is made later, and rebuilt after a start,
# has the rows by their present values; crashes lose neither space nor values.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('unread');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_prepared_transactions = 2', 'sofort.recovery_workers = 0', "sofort.recovery_mode = 'instant'" ]);
$node->start;

my $rows = 2000;
sub sql { return $node->safe_psql('postgres', $_[0]); }
sub bytes { return sql("SELECT pool_bytes FROM sofort.tables WHERE relation = '$_[0]'::regclass"); }

# "wide" is 600 bytes and repeats nowhere, and so is what indexes refer to: key (leading), part (in an
# INCLUDE), word (an expression), mark (a predicate).
sub create
{
	my ($t, $indexes) = @_;
	sql(qq{CREATE TABLE $t (id int PRIMARY KEY, n int, wide text, key text, part text, word text, mark text) USING sofort;
		INSERT INTO $t SELECT i, 0, repeat(md5('w' || i), 19), repeat(md5('k' || i), 2), repeat(md5('p' || i), 2),
			repeat(md5('d' || i), 2), repeat(md5('m' || i), 2) FROM generate_series(1, $rows) i});
	sql(qq{CREATE INDEX ${t}_key ON $t USING sofort_index (key) INCLUDE (part);
		CREATE INDEX ${t}_word ON $t USING sofort_index (lower(word)) WHERE mark > '8'}) if $indexes;
	return;
}

# All rows, each column, and by the indexes on these columns
sub contents_are
{
	my ($t, $what, @columns) = @_;
	is(sql(qq{SELECT count(*), count(DISTINCT id) FROM $t WHERE wide = repeat(md5('w' || id), 19) AND key = repeat(md5('k' || id), 2)
		AND part = repeat(md5('p' || id), 2) AND word = repeat(md5('d' || id), 2) AND mark = repeat(md5('m' || id), 2)}),
		"$rows|$rows", "$what: values");
	foreach my $column (@columns)
	{
		my ($letter, $times) = $column eq 'wide' ? ('w', 19) : ('k', 2);
		is(sql(qq{SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
			SELECT count(*) FROM generate_series(1, $rows) i JOIN $t ON $column = repeat(md5('$letter' || i), $times) AND id = i}),
			$rows, "$what: by $column");
	}
	is($node->verify_problems, '', "$what: verify");
	return;
}

# ---- what goes, and what stays ----
create('doc', 1);
my $live = bytes('doc');
sql('UPDATE doc SET n = n + 1');
my $updated = bytes('doc');
cmp_ok($updated, '>', 1.7 * $live, 'updated rows are there twice');
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM doc');
sql(q{UPDATE doc SET n = n + 1, wide = 'x' || wide});
sql('VACUUM doc');
is($old->query_safe(q{SELECT count(*) FROM doc WHERE n = 1 AND wide = repeat(md5('w' || id), 19)}), $rows, 'an old snapshot keeps its values');
$old->query_safe('COMMIT');
$old->quit;
sql('UPDATE doc SET wide = substr(wide, 2), n = n + 1; VACUUM doc');
my $once = bytes('doc');
sql('VACUUM doc');
is(bytes('doc'), $once, 'a second VACUUM finds no more');
$node->crash_and_start;
contents_are('doc', 'indexes', 'key');
is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, 2000) i JOIN doc ON lower(word) = repeat(md5('d' || i), 2) AND mark > '8' AND id = i}),
	sql(q{SELECT count(*) FROM doc WHERE mark > '8'}), 'by an expression');

# no index but that of the key: nothing stays twice
create('plain', 0);
$live = bytes('plain');
sql('UPDATE plain SET n = n + 1; VACUUM plain');
cmp_ok(bytes('plain'), '<', 1.25 * $live, 'without indexes values are there once');
$node->crash_and_start;
contents_are('plain', 'no indexes');

# an index on the whole row needs all of it
create('whole', 0);
sql(q{UPDATE whole SET n = n + 1;
	CREATE FUNCTION whole_row(whole) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT md5($1.wide) $$;
	CREATE INDEX ON whole USING sofort_index (whole_row(whole))});
$updated = bytes('whole');
sql('VACUUM whole');
cmp_ok(bytes('whole'), '>', 0.95 * $updated, 'an index on whole rows');
$node->crash_and_start;
is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, 2000) i JOIN whole ON whole_row(whole) = md5(repeat(md5('w' || i), 19)) AND id = i}),
	$rows, 'finds its rows');

# ---- indexes that are made later ----
sql('CREATE INDEX plain_wide ON plain USING sofort_index (wide); CREATE INDEX plain_key ON plain USING sofort_index (key) WITH (placement = pmem)');
contents_are('plain', 'a later index', 'wide', 'key');
$node->crash_and_start;
contents_are('plain', 'a later index, not rebuilt yet', 'wide', 'key');
sql('REINDEX TABLE plain');
sql('UPDATE plain SET n = n + 1; UPDATE plain SET id = -id; UPDATE plain SET id = -id; VACUUM plain');
contents_are('plain', 'a later index, rebuilt', 'wide', 'key');

# An index that is dropped, whose column is emptied, and that is made again
sql('DROP INDEX doc_key; VACUUM doc; CREATE INDEX doc_key ON doc USING sofort_index (key)');
contents_are('doc', 'an index again', 'key');
$node->crash_and_start;
contents_are('doc', 'an index again, after a start', 'key');

# Chains that had ended as a whole when the index was made have no entries, and are freed by
# later updates, or looked at by what is rebuilt.
sql(q{CREATE PROCEDURE churn(t text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 300 LOOP
			EXECUTE format('UPDATE %I SET id = -id WHERE id = %s', t, i);
			EXECUTE format('UPDATE %I SET id = -id WHERE id = -%s', t, i);
			COMMIT;
		END LOOP;
	END $$});
foreach my $crash (0, 1)
{
	create("ended$crash", 0);
	sql("UPDATE ended$crash SET n = n + 1 WHERE id % 2 = 0; VACUUM ended$crash; UPDATE ended$crash SET n = n + 1 WHERE id % 2 = 0; DELETE FROM ended$crash WHERE id % 2 = 0");
	sql(qq{INSERT INTO ended$crash SELECT i, 0, repeat(md5('w' || i), 19), repeat(md5('k' || i), 2), repeat(md5('p' || i), 2),
		repeat(md5('d' || i), 2), repeat(md5('m' || i), 2) FROM generate_series(2, $rows, 2) i;
		CREATE INDEX ended${crash}_wide ON ended$crash USING sofort_index (wide)});
	$node->crash_and_start if $crash;
	contents_are("ended$crash", 'ended chains' . ($crash ? ', not rebuilt yet' : ''), 'wide');
	sql("CALL churn('ended$crash')");
	# (a crash has forgotten which chains wait)
	is(sql("SELECT dead_rows < 1000 FROM sofort.tables WHERE relation = 'ended$crash'::regclass"), 't', 'updates free them') unless $crash;
	contents_are("ended$crash", 'ended chains, freed', 'wide');
	sql("VACUUM ended$crash");
	contents_are("ended$crash", 'ended chains, vacuumed', 'wide');
}

# A chain that had ended when CREATE INDEX CONCURRENTLY looked has no entry in the index, and sets no
# mark, but is not dead to all as long as an older transaction is prepared, also after a crash.
sql('CREATE TABLE other (i int) USING sofort');
create('held', 0);
sql("UPDATE held SET n = n + 1 WHERE id = 77");
sql('VACUUM held');
sql(q{BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'older'});
sql('DELETE FROM held WHERE id = 77');
sql('CREATE INDEX CONCURRENTLY held_wide ON held USING sofort_index (wide)');
foreach my $what ('as built', 'not rebuilt yet', 'rebuilt')
{
	is(sql(q{SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
		SELECT count(*) FROM generate_series(1, 2000) i JOIN held ON wide = repeat(md5('w' || i), 19) AND id = i}), $rows - 1, "an ended chain behind the horizon, $what");
	is(sql("SELECT count(*) FROM sofort.verify('held')"), 0, "an ended chain behind the horizon, $what: verify");
	$node->crash_and_start if $what eq 'as built';
	sql('REINDEX TABLE held') if $what eq 'not rebuilt yet';
}
sql("COMMIT PREPARED 'older'");
sql('VACUUM held');
is($node->verify_problems, '', 'an ended chain behind the horizon, vacuumed: verify');

# Roots whose values went look recently dead when the horizon goes back.
SKIP:
{
	skip 'no vacuum_defer_cleanup_age', 5 if sql('SHOW server_version_num') >= 160000;
	create('back', 0);
	sql('UPDATE back SET n = n + 1 WHERE id % 2 = 0');
	sql('VACUUM back');
	sql('ALTER SYSTEM SET vacuum_defer_cleanup_age = 1000000');
	sql('SELECT pg_reload_conf()');
	ok($node->wait_until("SELECT current_setting('vacuum_defer_cleanup_age') = '1000000'"), 'the horizon goes back');
	sql('CREATE INDEX back_brin ON back USING brin (wide) WITH (pages_per_range = 1)');
	is(sql(q{SELECT count(brin_desummarize_range('back_brin', b)) FROM generate_series(0, 20) b; SELECT brin_summarize_new_values('back_brin') > 0}), "21\nt", 'summaries');
	sql('VACUUM FULL back');
	contents_are('back', 'rewritten behind the horizon');
	sql('ALTER SYSTEM RESET vacuum_defer_cleanup_age');
	sql('SELECT pg_reload_conf()');
	ok($node->wait_until("SELECT current_setting('vacuum_defer_cleanup_age') = '0'"), 'and comes again');
}

# ---- crashes, copies, damage ----
foreach my $point ([ 'store-unread-freed', 5 ], [ 'pmem-free-intent', 20 ], [ 'pmem-unlinked', 20 ], [ 'pmem-freed', 20 ])
{
	my ($name, $nth) = @$point;
	sql('DROP TABLE IF EXISTS hit');
	create('hit', 1);
	$live = bytes('hit');
	sql('UPDATE hit SET n = n + 1');
	ok($node->crash_at($name, 'VACUUM hit', $nth), "killed at $name");
	$node->start;
	contents_are('hit', "killed at $name", 'key');
	sql('VACUUM hit');
	cmp_ok(bytes('hit'), '<', 1.7 * $live, 'VACUUM frees the rest');
	is(sql('SELECT count(*) FROM sofort.verify_pool()'), 0, 'nothing of the pool is lost');
}
is(sql(q{SELECT count(*) FROM sofort.salvage(NULL::hit) WHERE wide = repeat(md5('w' || id), 19)}), $rows, 'salvage reads all rows');
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
is($node->safe_psql('copy', q{SET enable_seqscan = off; SELECT count(*) FROM generate_series(1, 2000) i JOIN plain ON wide = repeat(md5('w' || i), 19) AND id = i}),
	$rows, 'a copy of the database finds its rows');
is($node->safe_psql('copy', q{SELECT count(*) FROM pg_class c, sofort.verify(c.oid) WHERE relkind = 'r' AND relam = (SELECT oid FROM pg_am WHERE amname = 'sofort')}),
	0, 'and is sound');

done_testing();
