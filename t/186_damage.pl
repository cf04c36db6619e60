# Single bits of a stopped server's pool are flipped, in everything that README.md, "Damage",
# claims to be covered. Each must be found by sofort.verify() or verify_pool(), and named; the
# server starts and never crashes, whatever is read; tables without damage stay as they were.
# What is readable of a damaged table can be saved.
#
# SOFORT_FLIPS=n: about so many flips (1,000 with --long); SOFORT_SEED=n repeats them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Session;
use SofortNode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'heap has no pool' if $SofortNode::am ne 'sofort';

my $flips = $ENV{SOFORT_FLIPS} || ($ENV{SOFORT_LONG} ? 1000 : 36);
my $seed = $ENV{SOFORT_SEED} || time();
srand($seed);
note("SOFORT_SEED=$seed");

my @tables = map { "t$_" } 1 .. 8;
my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off' ]);
$node->expect_damage;
$node->start;
foreach my $t (@tables, 'sound')
{
	$node->safe_psql('postgres', qq{
		CREATE TABLE $t (id int PRIMARY KEY, word text, kind int, short varchar(20), real float8,
			long text, digits numeric, maybe int, fixed uuid) USING sofort;
		SELECT sofort.set_dictionary_placement('$t', 'word', 'pmem'),
			sofort.set_dictionary_placement('$t', 'kind', 'hybrid');
		INSERT INTO $t SELECT g, 'word ' || g % 40, g % 50 * 1000, 'short ' || g, g / 7.0,
			repeat(md5(g::text), 2 + g % 5), g * 1234567.89, nullif(g % 3, 0), md5((g % 20)::text)::uuid
			FROM generate_series(1, 1200) g;
		CREATE INDEX ${t}_pmem ON $t USING sofort_index (short) WITH (placement = pmem);
		CREATE INDEX ${t}_hybrid ON $t USING sofort_index (kind, id) WITH (placement = hybrid);
		CREATE INDEX ${t}_tuples ON $t USING sofort_index (digits) INCLUDE (word) WITH (placement = pmem);
		UPDATE $t SET maybe = maybe + 1, long = long || 'x' WHERE id % 7 = 0;
		UPDATE $t SET real = real + 1 WHERE id % 21 = 0;
		UPDATE $t SET short = short || '!' WHERE id % 50 = 0;
		DELETE FROM $t WHERE id % 13 = 0});
	$node->safe_psql('postgres', "VACUUM $t") if $t =~ /[2468]$/;
}
$node->safe_psql('postgres', 'CREATE TABLE h USING heap AS SELECT * FROM sound');
$node->safe_psql('postgres', "CREATE TABLE original_$_ USING heap AS SELECT * FROM $_") foreach @tables;

my $content = "SELECT md5(string_agg(s::text, '' ORDER BY id)) FROM %s s";
is($node->verify_problems, '', 'nothing is wrong before');
my $expected = $node->safe_psql('postgres', sprintf($content, 'sound'));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
$node->start;

# ---- places ----

sub places
{
	my ($what) = @_;
	my %of;
	foreach my $line (split /\n/,
		$node->safe_psql('postgres', "SELECT class, start, bytes FROM sofort_test.places($what)"))
	{
		my ($class, $start, $bytes) = split /\|/, $line;
		push @{ $of{$class}{places} }, [ $start, $bytes ];
		$of{$class}{bytes} += $bytes;
	}
	return \%of;
}

# A random bit of a random class, or of this one
sub choose
{
	my ($of, $class) = @_;
	my @classes = sort keys %$of;
	$class //= $classes[ int(rand(@classes)) ];
	my $at = int(rand($of->{$class}{bytes}));
	foreach my $place (@{ $of->{$class}{places} })
	{
		return { class => $class, offset => $place->[0] + $at, bit => int(rand(8)) }
		  if $at < $place->[1];
		$at -= $place->[1];
	}
	die 'no such place';
}

my %places;
foreach my $t (@tables)
{
	$places{$t} = places("'$t'");
	foreach my $index ("${t}_pmem", "${t}_hybrid", "${t}_tuples")
	{
		my $of = places("'$index'");
		foreach my $class (keys %$of)
		{
			push @{ $places{$t}{$class}{places} }, @{ $of->{$class}{places} };
			$places{$t}{$class}{bytes} += $of->{$class}{bytes};
		}
	}
}
my $pool_places = places('NULL');

# Each table has places of each class; one that is gone would not be missed below.
my @table_classes = ('block', 'code', 'column', 'dictionary', 'dictionary index', 'dictionary value', 'index header',
	'index node', 'index tuple', 'link', 'long value', 'row', 'shape', 'stamp', 'store header');
is(join(', ', sort keys %{ $places{$_} }), join(', ', @table_classes), "$_ has places of all classes") foreach @tables;
is(join(', ', sort keys %$pool_places), 'extent, segment words, slab, stores, superblock', 'so has the pool');
note(join(', ', map { "$_ $places{t1}{$_}{bytes}" } sort keys %{ $places{t1} }));
note(join(', ', map { "$_ $pool_places->{$_}{bytes}" } sort keys %$pool_places));
$node->stop;

# ---- rounds ----

my $saved = $node->pool_file . '.saved';
my $data = $node->data_dir;
sub copy { system(@_) == 0 or BAIL_OUT("@_ failed") }
copy('cp', '--sparse=always', $node->pool_file, $saved);
copy('cp', '-a', $data, "$data.saved");

sub restore
{
	copy('cp', '--sparse=always', $saved, $node->pool_file);
	copy('rm', '-rf', $data);
	copy('cp', '-a', "$data.saved", $data);
}

sub flip
{
	my ($flip) = @_;
	$node->flip_pool_bit($flip->{offset}, $flip->{bit});
	return;
}

my $log_seen = 0;
my $most_errors = 0;			# in one round
# Signs of a crash since it was asked last
sub crashes
{
	my $log = slurp_file($node->logfile);
	my @errors = substr($log, $log_seen) =~ /ERROR: .* damaged/g;
	$most_errors = @errors if @errors > $most_errors;
	my @signs = substr($log, $log_seen) =~ /^.*(?:terminated by signal|PANIC|TRAP:).*$/mg;
	$log_seen = length($log);
	return join("\n", @signs);
}
crashes();

sub ask
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err, timeout => 120);
	return ($out, $err);
}

my (%tried, %missed, @misses);
my ($bad_starts, $bad_crashes, $bad_others, $bad_salvage) = (0, 0, 0, 0);

sub judge
{
	my ($flip, $what, $finding) = @_;
	$tried{ $flip->{class} }++;
	return if $finding ne '';
	$missed{ $flip->{class} }++;
	push @misses, "$what: $flip->{class}, offset $flip->{offset} bit $flip->{bit}";
}

sub start_damaged
{
	my ($what) = @_;
	return 1 if $node->start(fail_ok => 1);
	$bad_starts++;
	diag("does not start: $what\n" . substr(slurp_file($node->logfile), -1500));
	return 0;
}

sub check_crashes
{
	my ($what) = @_;
	my $signs = crashes();
	return if $signs eq '';
	$bad_crashes++;
	diag("crash: $what\n$signs\n" . substr(slurp_file($node->logfile), -2500));
}

sub describe { join('; ', map { "$_->{class} $_->{offset}.$_->{bit}" } @_) }

# One bit in each table
sub round_of_tables
{
	my ($class) = @_;
	restore();
	my %flip = map { $_ => choose($places{$_}, $class) } @tables;
	flip($flip{$_}) foreach @tables;
	my $what = join(' ', map { "$_: " . describe($flip{$_}) } @tables);
	start_damaged($what) or return;
	my ($others) = ask(sprintf($content, 'sound')
		  . "; SELECT count(*) FROM sofort.verify('sound'); SELECT count(*) FROM h");
	if ($others !~ /^$expected\n0\n1108\z/)
	{
		$bad_others++;
		diag("other tables: $what: $others");
	}
	foreach my $t (@tables)
	{
		my ($out, $err) = ask("SELECT kind, place, problem FROM sofort.verify('$t') LIMIT 5");
		# an index whose tree is found no more is built anew: the pool has one too many then
		($out) = ask('SELECT kind, place, problem FROM sofort.verify_pool() LIMIT 5')
		  if $out eq '' && $flip{$t}{class} eq 'index header';
		judge($flip{$t}, $t, $out);
		diag("$t: " . describe($flip{$t}) . ": verify: $err") if $err ne '';
		# what can be saved is all but the row with the flipped bit, and nothing else
		my ($saved) = ask("SELECT (SELECT count(*) FROM sofort.salvage(NULL::$t)) >= 1107,
			(SELECT count(*) FROM (SELECT * FROM sofort.salvage(NULL::$t) EXCEPT SELECT * FROM original_$t) x)");
		if ($saved ne 't|0')
		{
			$bad_salvage++;
			diag("$t: " . describe($flip{$t}) . ": salvaged: $saved");
		}
		# whatever is read, the server goes on
		ask(sprintf($content, $t));
		ask("SET enable_seqscan = off; SELECT count(long) FROM $t WHERE short >= ''");
		ask("SET enable_seqscan = off; SELECT sum(id) FROM $t WHERE kind BETWEEN 0 AND 30000");
	}
	check_crashes($what);
	$node->stop('immediate');
}

# One bit in the pool's own structures
sub round_of_pool
{
	restore();
	my $flip = choose($pool_places);
	flip($flip);
	start_damaged(describe($flip)) or return;
	my ($out, $err) = ask("SELECT reason FROM sofort.pool WHERE status <> 'ready'");
	if ($out eq '')
	{
		($out) = ask('SELECT kind, place, problem FROM sofort.verify_pool() LIMIT 5');
		my ($more) = ask(q{SELECT v.problem FROM pg_class c JOIN pg_am a ON a.oid = c.relam, sofort.verify(c.oid::regclass) v
			WHERE a.amname = 'sofort' AND c.relkind = 'r' LIMIT 5});
		$out .= $more;
	}
	judge($flip, 'pool', $out);
	my ($heap) = ask('SELECT count(*) FROM h');
	if ($heap ne '1108')
	{
		$bad_others++;
		diag('heap: ' . describe($flip));
	}
	ask(sprintf($content, $_)) foreach 't1', 'sound';
	check_crashes(describe($flip));
	$node->stop('immediate');
}

my $pool_rounds = int($flips / 8) || 1;
my $table_rounds = int(($flips - $pool_rounds + @tables - 1) / @tables);
round_of_tables() foreach 1 .. $table_rounds;
# what has lengths in it, which whoever reads it believes
foreach my $class ('index tuple', 'long value', 'dictionary value', 'row')
{
	round_of_tables($class) foreach 1 .. ($ENV{SOFORT_LONG} ? 5 : 1);
}
round_of_pool() foreach 1 .. $pool_rounds;

my $n = 0;
$n += $_ foreach values %tried;
note("$n bits flipped: " . join(', ', map { "$_ $tried{$_}" } sort keys %tried));
is(join("\n", @misses), '', "every one of $n flipped bits is found");
is($bad_starts, 0, 'the server starts');
is($bad_crashes, 0, 'nothing crashes');
is($bad_others, 0, 'other tables are as they were');
cmp_ok($most_errors, '<', 300, 'no process meets the same damage again and again');
is($bad_salvage, 0, 'all rows but one are salvaged, and no wrong one');

# ---- bits that flip while the server runs, in what it has read at the start or when an index was opened: they are found
# without another start, and nothing fails ----
restore();
$node->start;
$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM t1 WHERE short >= ''; SELECT count(*) FROM t1 WHERE kind >= 0; SELECT count(*) FROM t1 WHERE digits > 0");
foreach my $case ([ $places{t1}, 'index header' ], [ $pool_places, 'superblock' ])
{
	my ($of, $class) = @$case;
	my @failed;
	foreach (1 .. 25)
	{
		my $flip = choose($of, $class);
		flip($flip);
		my ($out, $err) = ask(q{SELECT problem FROM sofort.verify('t1') LIMIT 5; SELECT problem FROM sofort.verify_pool() LIMIT 5});
		flip($flip);
		push @failed, describe($flip) . ": $err" if $out eq '' || $err ne '';
	}
	is(join("\n", @failed), '', "$class: flipped bits are found in a running server");
}
is($node->verify_problems, '', 'nothing is wrong when they are as they were');
check_crashes('running');
is($bad_crashes, 0, 'nothing crashes there');
$node->stop('immediate');

# ---- what README.md tells to do ----

restore();
my $start_of = sub { $places{ $_[0] }{ $_[1] }{places}[0][0] };
flip({ offset => $start_of->('t1', 'column') + 6, bit => 3 });	# length of a type
flip({ offset => $start_of->('t2', 'store header') + 40, bit => 1 });	# number of blocks
flip({ offset => $start_of->('t3', 'shape') + 3, bit => 2 });	# reference to a shape
flip({ offset => $start_of->('t4', 'index header') + 44, bit => 2 });	# of the tree of an index
$node->start;
foreach my $t ('t1', 't2', 't3')
{
	like($node->error_of("SELECT count(*) FROM $t"), qr/^XX001: relation "$t" is damaged/, "$t is refused");
	like($node->error_of("INSERT INTO $t (id) VALUES (0)"), qr/^XX001:/, "$t: no writes");
	isnt($node->safe_psql('postgres', "SELECT * FROM sofort.verify('$t')"), '', "$t: damage is found");
	$node->safe_psql('postgres', "CREATE TABLE saved_$t USING sofort AS SELECT * FROM sofort.salvage(NULL::$t)");
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT * FROM saved_$t INTERSECT SELECT * FROM original_$t) x"),
		1108, "$t: all rows are saved");
	is($node->safe_psql('postgres', "SELECT * FROM sofort.salvage_report('$t')"), '', "$t: nothing is left out");
	$node->safe_psql('postgres', "DROP TABLE $t; ALTER TABLE saved_$t RENAME TO $t");
}
like($node->error_of("SET enable_seqscan = off; SELECT count(*) FROM t4 WHERE short > ''"), qr/^XX002: /, 't4: an index is refused');
isnt($node->safe_psql('postgres', "SELECT * FROM sofort.verify('t4')"), '', 't4: damage is found');
$node->safe_psql('postgres', 'REINDEX TABLE t4');
is($node->verify_problems, '', 'nothing is damaged any more, and no space is lost');
like($node->error_of('SELECT * FROM sofort.salvage(1)'), qr/^42809: the argument is not of the row type/, 'not a row');
like($node->error_of('SELECT * FROM sofort.salvage(NULL::h)'), qr/^42809: "h" is not a sofort table/, 'not a sofort table');
$node->safe_psql('postgres', 'CREATE ROLE plain; GRANT USAGE ON SCHEMA sofort TO plain');
like($node->error_of('SET ROLE plain; SELECT * FROM sofort.salvage(NULL::sound)'), qr/^42501:/, 'not for everybody');
like($node->error_of("SET ROLE plain; SELECT * FROM sofort.salvage_report('sound')"), qr/^42501:/, 'nor its report');
$node->stop;

# ---- references of transactions: what nobody needs any more is no matter, what is needed is the pool's end ----

my $chains;
sub chain
{
	my ($class) = @_;
	return map { (split /\|/)[1] } grep { /^\Q$class\E\|/ } split /\n/, $chains;
}
restore();
$node->start;
$node->safe_psql('postgres', q{BEGIN; SELECT sofort.keep_transaction(); INSERT INTO sound (id) VALUES (-1); COMMIT});
$chains = $node->safe_psql('postgres', 'SELECT class, start, bytes FROM sofort_test.chains()');
$node->stop;
cmp_ok(scalar(chain('write set')), '>', 100, 'there are write sets');
cmp_ok(scalar(chain('kept locks')), '>', 0, 'and kept transactions');
my $before = -s $node->logfile;
flip({ offset => (chain('write set'))[$_] + int(rand(8)), bit => int(rand(8)) }) foreach 0 .. 40;
flip({ offset => (chain('kept locks'))[0] + int(rand(8)), bit => int(rand(8)) });
if (ok($node->start(fail_ok => 1), 'references of transactions that have ended are damaged: the server starts'))
{
	my @warned = slurp_file($node->logfile, $before) =~ /WARNING:  sofort pool: a reference in the (write set of transaction slot|row locks of kept transaction) \d+ is damaged/g;
	is(scalar(@warned), 42, 'the log tells of each');
	is($node->error_of("BEGIN; UPDATE sound SET kind = $_; UPDATE sound SET kind = kind + 1; ROLLBACK"), '', 'transactions work') foreach 1 .. 20;
	is($node->verify_problems, '', 'and nothing is damaged any more');
	# one that is under way, with more than its own lines hold
	my $open = session_on($node);
	my $parts = join('; ', map { "SAVEPOINT s$_; INSERT INTO sound (id) VALUES (-$_ - 10)" } 1 .. 200);
	say_to($open, "BEGIN; $parts");
	$chains = $node->safe_psql('postgres', 'SELECT class, start, bytes FROM sofort_test.chains()');
	$node->kill9;
	$open->{run}->kill_kill;
	is(scalar(chain('chunk')), 1, 'a transaction has a longer write set');
	flip({ offset => (chain('chunk'))[0] + 6, bit => 3 });
	ok($node->start(fail_ok => 1), 'the write set of an open transaction is damaged: the server starts');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM h'), 1108, 'and heap tables work');
	like($node->error_of('SELECT count(*) FROM sound'), qr/^XX001: sofort pool ".*" is damaged/, 'the pool is refused');
	like($node->safe_psql('postgres', 'SELECT reason FROM sofort.pool'), qr/is damaged.*write set of transaction slot \d+ leads nowhere/s, 'with the reason');
	$node->stop;
}

# ---- references of blocks: what a crash has left there is undone, but for the links ----

restore();
$node->start;
my $updates = session_on($node);
say_to($updates, q{BEGIN; INSERT INTO sound (id) VALUES (-5); UPDATE t5 SET maybe = 77 WHERE id % 3 = 0; UPDATE t5 SET short = short || '?' WHERE id % 5 = 0});
# from the magic to the successors
my @blocks = map { $_->[0] } grep { $_->[1] == 48 } @{ $places{t5}{block}{places} };
cmp_ok(scalar(@blocks), '>', 0, 'a table has blocks');
$node->kill9;
$updates->{run}->kill_kill;
foreach my $block (@blocks)
{
	flip({ offset => $block + $_ + int(rand(8)), bit => int(rand(8)) }) foreach 24, 32;
}
if (ok($node->start(fail_ok => 1), 'references to links are damaged: the server starts'))
{
	is($node->safe_psql('postgres', sprintf($content, 'sound')), $expected, 'what was open is undone: other tables are as they were');
	is($node->safe_psql('postgres', q{INSERT INTO sound (id) VALUES (-6); SELECT count(*) FROM sofort.verify('sound')}), 0, 'and work');
	like($node->safe_psql('postgres', q{SELECT string_agg(problem, ', ') FROM sofort.verify('t5')}), qr/reference to its links is damaged/, 'the damage is found');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT * FROM sofort.salvage(NULL::t5) INTERSECT SELECT * FROM original_t5) x'),
		1108, 'what was open is undone there, too: all rows are salvaged');
}
check_crashes('references of blocks');
is($bad_crashes, 0, 'nothing crashes there');

$node->stop('immediate');
unlink($saved);
copy('rm', '-rf', "$data.saved");
done_testing();
