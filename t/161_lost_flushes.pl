# Flushes and drains whose loss only a power cut at the right moment shows. Some are noticed
# between two steps of a workload; others belong to what recovers from a crash, and show only
# when that came at the right moment, and the right statements follow: each of these recoveries
# is recorded by itself. The calls are left out in turn (see t/160_power_cuts.pl, which does the
# same at any points of all workloads).
#
# SOFORT_WORKLOADS=lives: only these (with commas), and all of them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Medium;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

if ($SofortNode::am ne 'sofort' || !Medium::available())
{
	plan skip_all => 'the release build has no shadow medium';
}

my $long = $ENV{SOFORT_LONG};
my $seed = $ENV{SOFORT_SEED} || int(rand(1_000_000));
diag("seed $seed (SOFORT_SEED)");

# workload, first and last step to look at, calls that must be noticed there
my @moments = (
	[ 'flushes', 'placed: a rewrite', 'placed: a rewrite', 'store/dict_table.c:store_inherit_placements:flush:1' ],
	[ 'flushes', 'placed: before', 'placed: it is', 'store/dict_table.c:store_place_dictionary:flush:1',
		'store/dict_table.c:store_place_dictionary:drain:1' ],
	[ 'flushes', 'valued: ', 'last', 'store/dict_table.c:dict_tables_enter:flush:1' ],
	[ 'flushes', 'straddle: its', 'straddle: and it', 'store/row.c:prepare_row:flush:1', 'store/row.c:prepare_row:drain:1' ],
	[ 'flushes', 'pruned: old', 'pruned: others', 'store/chain.c:store_link:drain:1' ],
	[ 'flushes', 'follow: new keys', 'follow: their', 'store/ops.c:clear_successors:flush:1' ],
	[ 'flushes', 'follow: once', 'follow: it ends', 'txn/write_set.c:txn_links_undone:drain:1' ],
	[ 'flushes', 'taken back: a version', 'taken back: and again', 'store/chain.c:unlink_from:flush:1',
		'txn/write_set.c:txn_links_undone:drain:1' ],
	[ 'flushes', 'ascending: leaves', 'ascending: leaves', 'indexam/tree_split.c:add_behind:drain:1' ],
	[ 'flushes', 'ascending: there', 'ascending: and goes on', 'indexam/tree_split.c:store_n:drain:1' ],
	[ 'flushes', 'merged: its place', 'merged: its place', 'indexam/tree_split.c:pool_absorb_leaf:flush:2',
		'indexam/tree_split.c:pool_absorb_leaf:drain:2' ],
	[ 'flushes', 'copied: more', 'copied: more', 'pmem/alloc.c:pm_link_batch:flush:1' ],
	[ 'flushes', 'counted: used', 'counted: others again', 'store/workload.c:workload_save:drain:1' ],
	[ 'flushes', 'undone drop: under', 'undone drop: it', 'txn/write_set.c:txn_undo:flush:1' ],
	[ 'flushes', 'generations: slots', 'generations: ends', 'txn/tcb.c:zero_entries:flush:1', 'txn/tcb.c:zero_entries:drain:1' ],
	[ 'flushes', 'aborted column: used', 'aborted column: and then', 'store/column.c:column_drop:flush:1' ],
	[ 'flushes', 'reused: is freed', 'reused: others', 'store/vacuum.c:dissolve_chain:flush:1' ],
	[ 'flushes', 'reused: for', 'reused: others', 'store/vacuum.c:drain_dissolved:drain:1' ],
	[ 'flushes', 'loser: its place', 'loser: others', 'pmem/alloc.c:pm_settle_durably:drain:1' ],
	[ 'flushes', 'vector: another', 'vector: others', 'store/block.c:block_ensure_links:flush:1' ],
	[ 'flushes', 'resolved: an error', 'resolved: others', 'txn/prepared.c:resolve_or_leave_durable:drain:1' ],
	[ 'kept', 'create', 'zero 6', 'store/garbage.c:garbage_collect:drain:1' ],
	[ 'lives', 'finished: nor', 'last', 'txn/prepared.c:resolve:flush:1', 'txn/prepared.c:resolve:drain:1' ],
	[ 'corners', 'prepared with locks', 'commit prepared with', 'txn/write_set.c:txn_store_carried_lock:flush:1' ],
	[ 'corners', 'taken back', 'undone', 'txn/commit.c:durable_error_context:drain:1' ],
);

# workload, first step, flush whose lines are on their way when all processes are killed (the
# power fails later), how that goes on (leaves: who has recovered does nothing else, so that it
# never drains; stopped: the server ends in order, and power fails then; torn: power fails at
# each drain of the recovery, and takes single words), statements that follow, calls that must be
# noticed
my @recoveries = (
	[ 'flushes', 'taken: words', 'pmem/segment.c:prepare_words:flush:1', '', 'granules',
		'pmem/segment.c:segment_startup:flush:1' ],
	[ 'flushes', 'extended', 'pmem/vector.c:pm_vector_publish:flush:1', '', 'table',
		'pmem/pool.c:start_life:flush:1' ],
	[ 'flushes', 'entered', 'pmem/pool.c:pool_raise_high_water:flush:1', '', '',
		'pmem/pool.c:start_life:drain:1' ],
	[ 'flushes', 'given back', 'pmem/alloc.c:free_segment:flush:1', '', '',
		'pmem/segment.c:segment_startup:flush:2' ],
	[ 'flushes', 'slot: goes', 'pmem/alloc.c:pm_link_batch:flush:1', '', 'values',
		'pmem/alloc.c:recover_intent:flush:2' ],
	[ 'flushes', 'slot: goes', 'pmem/slab.c:slab_give_back:flush:2', '', 'values',
		'pmem/alloc.c:alloc_startup:flush:1' ],
	[ 'flushes', 'straddle: version 3', 'txn/visibility.h:txn_stamp_word:flush:1', '', 'rows',
		'store/ops.c:stamp_rows:flush:1' ],
	[ 'flushes', 'dropped: and', 'pmem/slab.c:slab_free_owner:flush:1', '', '',
		'pmem/slab.c:slab_free_owner:flush:2' ],
	[ 'flushes', 'entered: a new', 'pmem/vector.c:pm_vector_publish:flush:1', '', 'attached',
		'store/dictionary.c:flush_found:flush:1', 'store/dictionary.c:flush_found:drain:1' ],
	[ 'flushes', 'extended: a block', 'store/block.c:block_set_count:flush:1', '', 'block',
		'store/registry.c:start_store:flush:1' ],
	[ 'flushes', 'placed: back', 'store/dict_table.c:dictionary_place:flush:1', '', '',
		'store/dict_table.c:dict_flush_found_placements:flush:2' ],
	[ 'flushes', 'placed: before', 'store/dict_table.c:store_place_dictionary:flush:1', '', '',
		'store/dict_table.c:dict_flush_found_placements:flush:1',
		'store/dict_table.c:dict_flush_found_placements:drain:1' ],
	[ 'flushes', 'pruned: old', 'store/chain.c:store_link:flush:1', '', 'orphans',
		'store/chain.c:chain_flush:flush:1', 'store/vacuum.c:is_orphan:drain:1' ],
	[ 'flushes', 'undone rows', 'store/ops.c:undo_begin:flush:1', '', 'rows',
		'store/ops.c:undo_rows:flush:1', 'txn/recover.c:resolve_slot:drain:1' ],
	[ 'flushes', 'links: second', 'txn/tcb.c:txn_publish_state:flush:1', '', '',
		'txn/recover.c:persist_tcbs:flush:1', 'txn/recover.c:persist_tcbs:drain:1' ],
	[ 'lives', 'collated: others', 'txn/tcb.c:txn_publish_state:flush:1', 'leaves', 'collated',
		'store/registry.c:set_state:flush:1', 'store/registry.c:set_state:drain:1' ],
	[ 'lives', 'collated: others', 'txn/tcb.c:txn_publish_state:flush:1', 'leaves', 'rebuilt',
		'indexam/tree_open.c:tree_complete:flush:1', 'indexam/tree_open.c:tree_complete:drain:1' ],
	[ 'lives', 'root: another', 'indexam/tree.c:tree_set_root:flush:1', 'leaves', 'rooted',
		'indexam/tree_open.c:tree_complete:flush:1' ],
	[ 'lives', 'chained: another', 'indexam/tree_split.c:split_chained:flush:2', 'leaves', 'chained',
		'indexam/tree_open.c:build_inner_nodes:flush:1' ],
	[ 'lives', 'gone: and their', 'indexam/tree_leaf.c:leaf_remove:flush:1', 'leaves', 'gone',
		'indexam/tree.c:revive_node:flush:1', 'indexam/tree.c:revive_node:drain:1' ],
	[ 'lives', 'locked: others', 'txn/tcb.c:txn_publish_state:flush:1', 'leaves', 'locks',
		'txn/prepared.c:restore_entry:flush:2', 'txn/recover.c:end_resolving:drain:1' ],
	[ 'lives', 'locked: others', 'txn/tcb.c:txn_publish_state:flush:1', 'leaves stopped', 'emptied',
		'txn/prepared.c:restore_entry:flush:1', 'store/registry.c:start_store:flush:1' ],
	[ 'lives', 'kept: goes on', 'txn/kept.c:store_boundary:flush:1', 'leaves', 'told',
		'txn/keeper.c:flush_records:flush:1', 'txn/recover.c:txn_startup:drain:1' ],
	[ 'lives', 'kept: rolled back', 'txn/kept.c:kept_close_record:flush:1', 'leaves', 'others',
		'txn/keeper.c:flush_records:flush:2' ],
	[ 'lives', 'kept: a statement', 'txn/rowlock.c:try_claim:flush:1', 'leaves', 'resumed',
		'txn/recover.c:end_resolving:drain:1' ],
	[ 'lives', 'mixed', 'txn/tcb.c:txn_publish_state:flush:1', 'leaves', 'truncated',
		'txn/recover.c:resolve_slot:flush:1', 'txn/recover.c:end_resolving:drain:1' ],
	[ 'flushes', 'undone links: several', 'store/chain.c:unlink_from:flush:1', 'torn', '' ],
	[ 'flushes', 'reused: is freed', 'store/vacuum.c:dissolve_chain:flush:1', '', 'reused',
		'store/space.c:flush_left_empty:flush:1', 'store/space.c:flush_left_empty:drain:1' ],
	[ 'flushes', 'led: others', 'store/row.c:clear_word:flush:1', '', '', 'store/ops.c:forget_link:flush:1' ],
	[ 'flushes', 'stale: and of', 'store/row.c:clear_word:flush:1', 'leaves', 'stale', 'store/row.c:clear_word:flush:2' ],
	[ 'lives', 'finished: by', 'txn/prepared.c:resolve:flush:1', 'leaves', 'truncated', 'txn/recover.c:persist_tcbs:flush:2' ],
	[ 'flushes', 'reused tail: is freed', 'store/vacuum.c:dissolve_chain:flush:1', '', 'tail',
		'store/block.c:find_append_position:flush:1', 'store/block.c:find_append_position:drain:1' ],
	[ 'flushes', 'shrunk: before', 'pmem/slab.c:slab_free_owner:flush:1', '', '',
		'pmem/slab.c:slab_free_owner:flush:2' ],
);

# workload, first and last step: at each drain half of the lines on their way are lost, in
# several ways
my @cuts = (
	[ 'flushes', 'stale: and of the third', 'stale: and of the third' ],
	[ 'flushes', 'loser: and more, too', 'loser: others' ],
	[ 'disk', 'new rows of an open', 'its new keys go' ],
	[ 'disk', 'versions of a later', 'stamps at last' ],
	[ 'flushes', 'vector: another', 'vector: others' ],
	[ 'flushes', 'resolved: an error', 'resolved: others' ],
	[ 'flushes', 'btree: entries', 'btree: no rows' ],
	[ 'flushes', 'follow: once', 'follow: an old' ],
	[ 'flushes', 'taken back: a version', 'taken back: and again' ],
);

# workload, first and last step, flush at whose interruption the power fails, which takes some of
# the lines on their way; that is recovered from, and calls that must be noticed there. Which
# lines it takes is up to chance: several times, until each was noticed.
my @halves = (
	[ 'disk', 'one row', 'its neighbour', 'store/row.c:finish_heap_only:flush:2',
		'store/chain.c:chain_restore_newest:flush:1' ],
	[ 'disk', 'a new key', 'a new key', 'store/row.c:store_insert_successor:flush:1',
		'store/ops.c:restore_unended:flush:1' ],
);
my $HALVES = 24;

my %wanted = map { $_ => 1 } split /,/, $ENV{SOFORT_WORKLOADS} || '';
my %run;
my $n = 0;
my %tries = (tries => 40, seed => 1);

# Recorded once
sub recorded
{
	my ($workload) = @_;
	return $run{$workload} ||= Medium->workload($workload);
}

sub are_noticed
{
	my ($what, %outcome) = @_;
	is($outcome{$_}[0], 'caught', "$what: it is noticed when $_ is left out") foreach sort keys %outcome;
	return;
}

foreach my $c (@cuts)
{
	my ($workload, $from, $to) = @$c;

	next if %wanted && !$wanted{$workload};
	foreach my $i (1 .. ($long ? 12 : 1))
	{
		my ($images, $bad, $text) = recorded($workload)->enumerate(from => $from, to => $to, survival => 1, deep => 1, seed => $seed + $i);
		cmp_ok($images, '>', 0, "$from: there is something to look at");
		is($bad, 0, "$from: $images images") or diag(substr($text, 0, 3000));
	}
}

foreach my $m (@moments)
{
	my ($workload, $from, $to, @calls) = @$m;

	next if %wanted ? !$wanted{$workload} : !$long && ($n++ % 4 != $seed % 4 || $workload eq 'corners');
	my %outcome = recorded($workload)->calls(only => \@calls, from => $from, to => $to, %tries);
	is(scalar(keys %outcome), scalar(@calls), "$from: the sources have these calls");
	are_noticed($from, %outcome);
}

foreach my $r (@recoveries)
{
	my ($workload, $step, $flush, $how, $after, @calls) = @$r;

	next if %wanted ? !$wanted{$workload} : !$long && $n++ % 4 != $seed % 4;
	my $run = recorded($workload);
	my %kills = $run->kills(from => $step, first => 1);
	ok(defined $kills{$flush}, "$step: $flush is interrupted") or next;
	my $again = $run->again(
		cut => $kills{$flush}, killed => 1, seed => 1,
		$how =~ /leaves/ ? (leaves => 1) : (), $how =~ /stopped/ ? (stop => 1) : (),
		$after ne '' ? (script => "$FindBin::RealBin/medium/after/$after.sql") : (use => 1));
	ok(defined $again, "$step: the server recovers when $flush was interrupted") or next;
	my ($images, $bad, $text) = $again->enumerate($how =~ /stopped/ ? (survival => 0) :
		$how =~ /torn/ ? (survival => 2, to => 'recovery') :
		(rotate => 1, every => int($again->{drains} / 12) || 1), deep => 1, seed => $how =~ /torn/ ? 1 : $seed);
	cmp_ok($images, '>', 0, "$step: there is something to look at");
	is($bad, 0, "$step: $images images of what follows") or diag(substr($text, 0, 3000));
	if (@calls)
	{
		my %outcome = $again->calls(only => \@calls, %tries);
		is(scalar(keys %outcome), scalar(@calls), "$step: the sources have these calls");
		are_noticed($step, %outcome);
	}
	$again->remove;
}
foreach my $h (@halves)
{
	my ($workload, $from, $to, $flush, @calls) = @$h;

	next if %wanted && !$wanted{$workload};
	my $run = recorded($workload);
	my %missing = map { $_ => 1 } @calls;
	foreach my $i (1 .. $HALVES)
	{
		last if !%missing;
		my %kills = $run->kills(from => $from, to => $to, seed => $i);
		next if !defined $kills{$flush};
		my $again = $run->again(cut => $kills{$flush}, survival => 1 + $i % 2, seed => $i, use => 1) or next;
		my %outcome = $again->calls(only => [ keys %missing ], %tries);
		delete $missing{$_} foreach grep { $outcome{$_}[0] eq 'caught' } keys %outcome;
		$again->remove;
	}
	is(join(' ', sort keys %missing), '', "$from: it is noticed when what puts right the other half is left out");
}
$_->remove foreach values %run;
done_testing();
