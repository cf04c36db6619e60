# Indexes of dictionaries in the pool (placements pmem and hybrid) under SIGKILL:
# at every named point of making one, replacing one, adding a value, and of
# VACUUM taking values out, and at random under writers that add the same values
# while the placement changes. After each start every value is right, values that
# were there are found (the dictionary does not get them twice), nothing of the
# pool is lost; and a start makes no copy of the index in DRAM.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SofortNode;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'heap has no dictionaries' if $SofortNode::am ne 'sofort';

my $seed = $ENV{SOFORT_SEED} || time();
srand($seed);
note("SOFORT_SEED=$seed");

my $node = SofortNode->new('dict');
$node->init;
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{CREATE TABLE d (id int PRIMARY KEY, status text, day date) USING sofort;
	CREATE PROCEDURE add(first int, last int, modulo int, times int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN first .. last LOOP
			INSERT INTO d VALUES (i, 'the status has number ' || i / times % modulo, '2001-01-01'::date + i / times % modulo);
			COMMIT;
		END LOOP;
	END $$;
	CREATE PROCEDURE day(r int) LANGUAGE sql AS $$
		UPDATE d SET status = 'status of day ' || r || ' number ' || id % 200, day = '2001-01-01'::date + r * 200 + id % 200
	$$});

sub entries
{
	return sql(q{SELECT string_agg(dictionary_entries::text, ' ' ORDER BY attnum) FROM sofort.columns
		WHERE relation = 'd'::regclass AND encoding = 'dictionary'});
}

sub sound
{
	my ($what) = @_;
	is(sql(q{SELECT count(*) FROM d WHERE status <> 'the status has number ' || (day - '2001-01-01'::date)}), '0', "$what: every value is right");
	is($node->verify_problems, '', "$what: verify");
	return;
}

# The same rows again: values that are there get no second code.
sub found_again
{
	my ($what) = @_;
	my $before = entries();
	sql(q{INSERT INTO d SELECT 1000000 + id, status, day FROM d; DELETE FROM d WHERE id > 1000000});
	is(entries(), $before, "$what: values are found again");
	return;
}

sub place
{
	my ($placement) = @_;
	return "SELECT sofort.set_dictionary_placement('d', 'status', '$placement'), sofort.set_dictionary_placement('d', 'day', '$placement')";
}

foreach my $placement ('pmem', 'hybrid')
{
	sql('TRUNCATE d');
	sql(place($placement));
	sql('CALL add(1, 3000, 300, 1)');
	is(sql(q{SELECT string_agg(DISTINCT dictionary_placement, ' ') FROM sofort.columns WHERE relation = 'd'::regclass}), $placement, "$placement: it is there");
	is(entries(), '300 300', "$placement: dictionaries");

	$node->kill9;
	$node->start;
	found_again("$placement: killed");
	sound("$placement: killed");

	# many values: after a start none of their index is in DRAM, or little
	sql(q{INSERT INTO d SELECT i, 'the status has number ' || i / 4, '2001-01-01'::date + i / 4 FROM generate_series(3001, 24000) i});
	is(entries(), '5551 5551', "$placement: many values");
	$node->kill9;
	$node->start;
	sql(q{INSERT INTO d VALUES (50001, 'the status has number 7', '2001-01-08')});
	cmp_ok(sql(q{SELECT dram_bytes FROM sofort.tables WHERE relation = 'd'::regclass}), '<', 150_000, "$placement: a start makes no copy in DRAM");
	found_again("$placement: many values");

	# killed while an index is made or replaced, and after a value was added
	my $to = 60_000;
	foreach my $case ([ 'dictionary-index-filled', 'add', 1 ], [ 'dictionary-index-linked', 'add', 1 ],
		[ 'dictionary-index-filled', place($placement eq 'pmem' ? 'hybrid' : 'pmem'), 2 ], [ 'dictionary-index-linked', place('dram') . '; ' . place($placement), 1 ],
		[ 'dictionary-index-moved', place('dram'), 1 ], [ 'dictionary-index-moved', place('dram') . '; ' . place($placement), 3 ],
		[ 'dictionary-index-moved', place($placement eq 'pmem' ? 'hybrid' : 'pmem'), 1 ], [ 'dictionary-value-durable', 'add', 57 ])
	{
		my ($point, $statement, $nth) = @$case;
		my $before = sql('SELECT count(*) FROM d');
		if ($statement eq 'add')
		{
			# new values until the index is replaced (fewer rows for each, and the columns would have no dictionary)
			my $from = $to + 1;
			$to += 80_000;
			$statement = "INSERT INTO d SELECT i, 'the status has number ' || i / 4, '2001-01-01'::date + i / 4 FROM generate_series($from, $to) i";
		}
		ok($node->crash_at($point, $statement, $nth), "$placement: killed at $point");
		$node->start;
		is(sql('SELECT count(*) FROM d'), $before, "$placement, $point: no row more or less");
		sound("$placement, $point");
		# (what the killed one added is known to no row, and perhaps to no index)
		found_again("$placement, $point");
		sql(place($placement));
		sound("$placement, $point, and placed");
	}

	# VACUUM takes values out, a crash comes in between
	sql('TRUNCATE d');
	sql(place($placement));
	sql('CALL add(1, 4000, 400, 1)');
	my $day = 0;
	foreach my $case ([ 'dictionary-index-linked', 1 ], [ 'dictionary-values-unlinked', 1 ], [ 'dictionary-value-freed', 300 ])
	{
		my ($point, $nth) = @$case;
		sql('CALL day(' . ++$day . ')') foreach 1 .. 4;
		ok($node->crash_at($point, 'VACUUM d; SELECT txid_current(); ' x 12, $nth), "$placement: VACUUM killed at $point");
		$node->start;
		sql('VACUUM d; SELECT txid_current();' x 12);
		is(sql("SELECT count(*) FROM d WHERE status = 'status of day $day number ' || id % 200 AND day = '2001-01-01'::date + $day * 200 + id % 200"),
			4000, "$placement, $point: every value is right");
		is($node->verify_problems, '', "$placement, $point: verify");
		cmp_ok((split / /, entries())[0], '<=', 400, "$placement, $point: values that nobody uses go");
		found_again("$placement, VACUUM killed at $point");
	}
}

# writers that add the same values, while the index moves; killed at random
my $n = 0;
foreach my $round (1 .. ($ENV{SOFORT_LONG} ? 20 : 4))
{
	sql('TRUNCATE d');
	sql(place((qw(pmem hybrid dram))[ $round % 3 ]));
	sql('CALL add(1, 3000, 300, 1)');
	my @pid;
	foreach my $writer (1 .. 3)
	{
		my $pid = fork();
		if ($pid == 0)
		{
			my $text = $writer == 3 ? join('; ', map { place((qw(dram pmem hybrid))[ $_ % 3 ]) } 1 .. 2000) :
			  'CALL add(' . ($writer * 100_000) . ', ' . ($writer * 100_000 + 90_000) . ', 40000, 4)';
			open(STDERR, '>', '/dev/null');
			exec('psql', '-X', '-q', '-o', '/dev/null', '-c', $text, '-d', $node->connstr('postgres')) or POSIX::_exit(127);
		}
		push @pid, $pid;
	}
	$node->poll_query_until('postgres', 'SELECT count(*) > 3000 FROM d') or BAIL_OUT('no writer commits anything');
	usleep(int(rand(1_000_000)));
	$node->kill9;
	waitpid($_, 0) foreach @pid;
	$node->start;
	my ($rows, $values) = split /\|/, sql('SELECT count(*), count(DISTINCT status) FROM d');
	note("$rows rows, $values values, dictionaries " . entries());
	cmp_ok($rows, '>', 3000, "round $round: there was a load");
	sound("round $round");
	# one for each process that was killed between a value and its row
	cmp_ok((split / /, entries())[0], '<=', $values + 2, "round $round: no value is there twice");
	found_again("round $round");
}
done_testing();
