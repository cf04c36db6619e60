# Dictionaries at random, beside heap. Values of many types (equal ones with different images among
# them) come and go, so that VACUUM frees them and codes are given out again; beside that indexes are
# made, rebuilt and dropped, columns added and dropped, dictionaries placed elsewhere, tables rewritten
# and truncated, transactions rolled back in part, prepared over a crash, or reading with old snapshots.
# All processes are killed again and again, or one of them. Each row says what its values must be; a
# second table, of heap, which the same transactions change, says which rows there are.
#
# SOFORT_SEED=n repeats the choices, not their timing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IO::Handle;
use IPC::Open2;
use SofortNode;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

plan skip_all => 'heap has no dictionaries' if $SofortNode::am ne 'sofort';

my $seed = $ENV{SOFORT_SEED} || int(time());
my $seconds = $ENV{SOFORT_SECONDS} || ($ENV{SOFORT_LONG} ? 300 : 25);
srand($seed);
note("SOFORT_SEED=$seed");

my $ROWS = 3000;
my $WRITERS = 2;
my $WINDOW = 150;				# values at a time
my $node = SofortNode->new('dict');
$node->init(conf => [ 'autovacuum = off', 'max_prepared_transactions = 6', "deadlock_timeout = '100ms'", 'jit = off', "sofort.pool_size = '1GB'",
	"lock_timeout = '2s'", 'max_connections = 40', "log_min_messages = warning" ]);
$node->start;
sub sql { return $node->safe_psql('postgres', $_[0]); }

# name, type, value of n
my @columns = (
	[ i2 => 'int2', '(N % 300)::int2' ],
	[ i4 => 'int', 'N * 1000' ],
	[ i8 => 'bigint', 'N::bigint << 33' ],
	[ f4 => 'float4', q{CASE N % 7 WHEN 0 THEN '-0'::float4 WHEN 1 THEN 0 ELSE (N / 4)::float4 END} ],
	[ f8 => 'float8', q{CASE N % 7 WHEN 0 THEN '-0'::float8 WHEN 1 THEN 0 ELSE N / 4 END} ],
	[ nu => 'numeric', q{(N / 16 || CASE N % 3 WHEN 0 THEN '.0' WHEN 1 THEN '.00' ELSE '' END)::numeric} ],
	[ ch => 'char(24)', q{'c ' || N / 2 || repeat(' ', N % 2)} ],
	[ bp => 'bpchar', q{('blanks ' || N / 4 || repeat(' ', N % 4))::bpchar} ],
	[ tx => 'text', q{'text number ' || N} ],
	[ nd => 'text COLLATE nd', q{CASE N % 2 WHEN 0 THEN 'Some Word ' ELSE 'sOME wORD ' END || N / 2} ],
	[ jb => 'jsonb', q{('{"n": ' || N / 4 || CASE N % 2 WHEN 0 THEN '.0' ELSE '' END || '}')::jsonb} ],
	[ ra => 'numrange', q{('[' || N / 4 || CASE N % 2 WHEN 0 THEN '.0' ELSE '' END || ',)')::numrange} ],
	[ co => 'comp', q{ROW(N / 2, CASE N % 2 WHEN 0 THEN 1.0 ELSE 1.00 END, 'in a row')::comp} ],
	[ en => 'mood', q{(ARRAY['sad', 'ok', 'happy'])[1 + N % 3]::mood} ],
	[ ar => 'numeric[]', q{ARRAY[N / 2, CASE N % 2 WHEN 0 THEN 1.0 ELSE 1.00 END, NULL]::numeric[]} ],
	[ dm => 'dom', q{('domain ' || N)::dom} ],
	[ uu => 'uuid', q{md5(N::text)::uuid} ],
	[ da => 'date', q{'2001-01-01'::date + N} ],
	[ iv => 'interval', q{CASE N % 2 WHEN 0 THEN make_interval(months => N / 2) ELSE make_interval(days => 30 * (N / 2)) END} ],
	[ nm => 'name', q{('name ' || N)::name} ],
	[ lg => 'text', q{repeat('long ', 30) || N} ],
	[ ma => 'text', q{'many ' || N * 31 % 700} ],
	[ nl => 'text', q{CASE WHEN N % 3 > 0 THEN 'or null ' || N END} ]);
my %of = map { $_->[0] => $_ } @columns;
my $names = join(', ', map { $_->[0] } @columns);
sub value { my ($c, $n) = @_; (my $v = $of{$c}[2]) =~ s/\bN\b/$n/g; return $v; }
sub values_of { my ($n) = @_; return join(', ', map { value($_->[0], $n) } @columns); }
# of its column's type
sub typed { my ($c, $n) = @_; return '(' . value($c, $n) . ')::' . ($of{$c}[1] =~ s/ COLLATE nd//r); }
my $wrong = '(' . join(', ', map { qq{$_->[0]::text COLLATE "C"} } @columns) . ') IS DISTINCT FROM (' . join(', ', map { typed($_->[0], 'n') . '::text' } @columns) . ')';
my $all = "id, n, $names";

sql(q{CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
	CREATE TYPE comp AS (a int, b numeric, c text);
	CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
	CREATE DOMAIN dom AS text CHECK (length(value) > 2);
	CREATE TABLE day (n int) USING heap; INSERT INTO day VALUES (1)});
my @tables = ('a', 'b');
foreach my $t (@tables)
{
	my $definition = '(id int PRIMARY KEY, n int, ' . join(', ', map { "$_->[0] $_->[1]" } @columns) . ')';
	sql("CREATE TABLE s_$t $definition USING sofort; CREATE TABLE h_$t $definition USING heap");
}
# (pure transactions: sofort alone)
sql('CREATE TABLE s_p (LIKE s_a INCLUDING ALL) USING sofort');
my $n_of_row = "(SELECT n FROM day) * $WINDOW + i * 7919 % 997 % $WINDOW";
sub load
{
	my ($t) = @_;
	my $v = values_of('n');
	return "INSERT INTO $t ($all) SELECT i, n, $v FROM (SELECT i, $n_of_row AS n FROM generate_series(1, $ROWS) i) x";
}
sql(load($_)) foreach 's_p', map { ("s_$_", "h_$_") } @tables;
my $encodings = sql(q{SELECT string_agg(column_name || ' ' || encoding, ', ' ORDER BY attnum) FROM sofort.columns WHERE relation = 's_a'::regclass});
note($encodings);
my @coded = $encodings =~ /(\w+) dictionary/g;
cmp_ok(scalar(@coded), '>=', @columns - 1, 'columns have dictionaries');

# ---- children ----

my $problems = $node->basedir . '/problems';
my $counts = $node->basedir . '/counts';
append_to_file($problems, '');
append_to_file($counts, '');
$SIG{PIPE} = 'IGNORE';

sub problem { append_to_file($problems, time() . " $_[0]\n"); return; }
sub pick { return $_[ int(rand(@_)) ]; }

sub ask
{
	my ($sr, $text) = @_;
	my @lines;
	if (!defined $$sr)
	{
		my $connection = $node->connstr('postgres');
		my $pid = open2(my $out, my $in, "exec psql -XAtq -v VERBOSITY=verbose -d '$connection' 2>&1");
		$in->autoflush(1);
		$$sr = { pid => $pid, in => $in, out => $out };
	}
	$text =~ s/\bDAY\b/(SELECT n FROM day)/g;
	print { $$sr->{in} } "$text;\n\\echo --done--\n";
	while (defined(my $line = readline($$sr->{out})))
	{
		chomp $line;
		if ($line eq '--done--')
		{
			foreach my $l (grep { /^(?:ERROR|FATAL|PANIC)/ } @lines)
			{
				append_to_file($counts, substr($l, 0, 90) . "\n");
				# deadlocks, time-outs (SAVEPOINT may fail after one, so that ROLLBACK TO finds none), what others have
				# dropped, values that are there, a table that changed under an old snapshot
				problem("$l: $text") if $l !~ /: +(?:40P01|40001|34000|3B001|55P03|57P0\d|42703|42P07|42P01|42701|42704|25P02|53400|55000):/;
			}
			return @lines;
		}
		push @lines, $line;
	}
	close $$sr->{in};
	close $$sr->{out};
	waitpid($$sr->{pid}, 0);
	$$sr = undef;
	usleep(100_000);
	return 'LOST';
}

# A value of today, or of yesterday
sub any_n { return "(DAY * $WINDOW + " . int(rand($WINDOW)) . ' - ' . (rand() < 0.2 ? $WINDOW : 0) . ')'; }

sub set_n { my ($n) = @_; my $v = values_of('x.n'); return "SET (n, $names) = (SELECT x.n, $v FROM (SELECT $n AS n) x)"; }

# One statement on table T, for rows of this writer
sub change
{
	my ($w) = @_;
	my $i = 1 + int(rand($ROWS / $WRITERS)) * $WRITERS + $w;
	my $to = $i + pick(0, 0, 20, 300);
	my $where = "id BETWEEN $i AND $to AND id % $WRITERS = " . (1 + $w) % $WRITERS;
	my $v = values_of('x.n');
	my $c = pick(@columns)->[0];
	my $day = pick('', '', " - $WINDOW");
	return pick(
		"UPDATE T " . set_n(any_n()) . " WHERE id = $i",
		"UPDATE T " . set_n(any_n()) . " WHERE id = $i",
		"UPDATE T " . set_n("DAY * $WINDOW + T.id * 31 % $WINDOW$day") . " WHERE $where",
		"DELETE FROM T WHERE $where",
		"INSERT INTO T ($all) SELECT x.i, x.n, $v FROM (SELECT i, DAY * $WINDOW + i * 13 % $WINDOW$day AS n FROM generate_series($i, $to, $WRITERS) i) x ON CONFLICT DO NOTHING",
		"INSERT INTO T ($all) SELECT x.i, x.n, $v FROM (SELECT i, DAY * $WINDOW + i * 13 % $WINDOW$day AS n FROM generate_series($i, $to, $WRITERS) i) x ON CONFLICT (id) DO UPDATE " . set_n('EXCLUDED.n'),
		"UPDATE T SET $c = $c WHERE $where", "UPDATE T SET id = id WHERE $where");
}

# Of both tables; the day is the same, whatever others do.
sub both { my ($t, $q) = @_; $q =~ s/\bDAY\b/:day/g; return "SELECT n AS day FROM day \\gset\n" . ($q =~ s/\bT\b/s_$t/gr) . '; ' . ($q =~ s/\bT\b/h_$t/gr); }

sub writer
{
	my ($w) = @_;
	my $s;
	while (1)
	{
		my $t = pick(@tables);
		my $r = rand();
		if ($r < 0.3)
		{
			my $q = change($w) =~ s/\bT\b/s_p/gr;
			ask(\$s, pick($q, $q, "BEGIN; $q; SAVEPOINT p; " . (change($w) =~ s/\bT\b/s_p/gr) . "; ROLLBACK TO p; COMMIT", "BEGIN; $q; ROLLBACK"));
		}
		elsif ($r < 0.7) { ask(\$s, 'BEGIN; ' . both($t, change($w)) . '; COMMIT'); }
		elsif ($r < 0.8) { ask(\$s, 'BEGIN; ' . both($t, change($w)) . '; SAVEPOINT p; ' . both($t, change($w)) . '; ' . pick('ROLLBACK TO p', 'RELEASE p') . '; ' . both($t, change($w)) . '; ' . pick('COMMIT', 'COMMIT', 'ROLLBACK')); }
		elsif ($r < 0.85) { ask(\$s, 'BEGIN; ' . both($t, change($w)) . '; ROLLBACK'); }
		elsif ($r < 0.9)
		{
			my $gid = "g$w" . int(rand(1e9));
			ask(\$s, 'BEGIN; ' . both($t, change($w)) . "; PREPARE TRANSACTION '$gid'");
			ask(\$s, 'ROLLBACK');
			usleep(rand(1_500_000));
			ask(\$s, pick('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$gid'");
		}
		elsif ($r < 0.94)
		{
			# values that only old snapshots need
			ask(\$s, "UPDATE day SET n = n + 1");
			ask(\$s, 'BEGIN; ' . both($_, 'UPDATE T ' . set_n("DAY * $WINDOW + T.id * 31 % $WINDOW") . " WHERE id % $WRITERS = " . (1 + $w) % $WRITERS) . '; COMMIT') foreach $t, pick(@tables);
		}
		elsif ($r < 0.96) { ask(\$s, 'UPDATE s_p ' . set_n("DAY * $WINDOW + s_p.id * 31 % $WINDOW") . " WHERE id % $WRITERS = " . (1 + $w) % $WRITERS); }
		else
		{
			# open for a while
			ask(\$s, 'BEGIN; ' . both($t, change($w)));
			usleep(rand(500_000));
			ask(\$s, pick('COMMIT', 'ROLLBACK'));
		}
		ask(\$s, 'ROLLBACK') if $r >= 0.3;
	}
}

my @paths = ('SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on', 'SET enable_seqscan = on; SET enable_bitmapscan = off; SET enable_indexscan = off', 'SET enable_seqscan = off; SET enable_bitmapscan = on; SET enable_indexscan = off');

sub compare
{
	my ($sr, $t, $q, $path) = @_;
	my $connection = $$sr or return;
	my $what = "SELECT count(*), md5(coalesce(string_agg(x::text, '|' ORDER BY x::text), '')) FROM ($q) x";
	my @s = ask($sr, $what =~ s/\bT\b/s_$t/gr);
	my @h = ask($sr, $what =~ s/\bT\b/h_$t/gr);
	# (another snapshot, if the server has gone in between)
	return if !defined $$sr || $$sr != $connection || @s != 1 || @h != 1 || "$s[0]$h[0]" !~ /^\d[^A-Z]*$/ || $s[0] eq $h[0];
	my @plan = ask($sr, "EXPLAIN $what" =~ s/\bT\b/s_$t/gr);
	my ($of_s, $of_h) = map { $q =~ s/\bT\b/${_}_$t/gr } 's', 'h';
	my @missing = (ask($sr, "SELECT 'not there', x::text FROM ($of_h) x EXCEPT SELECT 'not there', x::text FROM ($of_s) x LIMIT 3"),
		ask($sr, "SELECT 'not on heap', x::text FROM ($of_s) x EXCEPT SELECT 'not on heap', x::text FROM ($of_h) x LIMIT 3"));
	problem("$t differs: @s @h [$path] $q\n" . join("\n", @plan, @missing));
	return;
}

sub random_query
{
	my $c = pick(@columns)->[0];
	my $v = typed($c, any_n());
	return pick("SELECT id, $c FROM T WHERE $c = $v", "SELECT id, $c FROM T WHERE $c = $v", "SELECT id, $c FROM T WHERE $c = $v AND id > 100", "SELECT $c FROM T WHERE $c IS NULL", "SELECT md5(${c}::text), count(*) FROM T GROUP BY md5(${c}::text)",
		"SELECT id, n, $c FROM T WHERE $c >= $v", "SELECT $all FROM T", "SELECT id, $c FROM T WHERE id = " . (1 + int(rand($ROWS))));
}

sub reader
{
	my $s;
	while (1)
	{
		my $t = pick(@tables);
		my $path = pick(@paths);
		my $n = pick(1, 1, 1, 6);
		ask(\$s, "$path; BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE s_$t, h_$t IN ACCESS SHARE MODE");
		my $connection = $s or next;
		my @first = $n == 1 ? () : ask(\$s, "DECLARE c CURSOR FOR SELECT $wrong FROM s_$t " . pick('', 'ORDER BY id', 'ORDER BY tx') . '; FETCH 5 FROM c');
		foreach (1 .. $n)
		{
			my @w = grep { /^\d+\|/ } ask(\$s, "SELECT id, n FROM s_$t WHERE $wrong LIMIT 3");
			problem("wrong values in s_$t [$path]: @w") if @w;
			last if !defined $s || $s != $connection;
			compare(\$s, $t, random_query(), $path);
			usleep(rand(300_000)) if $n > 1;
		}
		if ($n > 1)
		{
			my @w = (@first, ask(\$s, 'FETCH ALL FROM c'));
			problem("wrong values by a cursor in s_$t [$path]") if grep { $_ eq 't' } @w;
		}
		ask(\$s, 'ROLLBACK');
		my @w = grep { /^\d+\|/ } ask(\$s, "$path; SELECT id, n FROM s_p WHERE $wrong LIMIT 3");
		problem("wrong values in s_p [$path]: @w") if @w;
		my $q = "SELECT count(*) || ' ' || coalesce(md5(string_agg(id::text, ',' ORDER BY id)), '') FROM (" . (random_query() =~ s/\bT\b/s_p/gr =~ s/SELECT .*? FROM/SELECT id FROM/r =~ s/ GROUP BY.*//r) . ') x';
		my @a = ask(\$s, "BEGIN ISOLATION LEVEL REPEATABLE READ; $paths[0]; $q");
		$connection = $s or next;
		my @b = ask(\$s, "$paths[1]; $q");
		problem("s_p by index @a, without @b: $q") if defined $s && $s == $connection && @a == 1 && @b == 1 && "@a@b" =~ /^\d[^A-Z]*$/ && $a[0] ne $b[0];
		ask(\$s, 'ROLLBACK');
	}
}

sub vacuum
{
	my $s;
	while (1)
	{
		my $t = pick('s_p', map { "s_$_" } @tables);
		ask(\$s, "VACUUM $t; SELECT txid_current() > 0 \\g /dev/null") foreach 1 .. pick(1, 3);
		ask(\$s, "VACUUM (INDEX_CLEANUP off) $t") if rand() < 0.1;
		ask(\$s, "VACUUM ANALYZE $t") if rand() < 0.1;
		usleep(rand(300_000));
	}
}

sub ddl
{
	my $s;
	while (1)
	{
		my $t = pick('p', @tables);
		my $c = pick(@columns)->[0];
		my $with = "WITH (placement = " . pick('dram', 'dram', 'pmem', 'hybrid') . ')';
		my $using = pick("sofort_index", "sofort_index", "sofort_index", 'btree');
		$with = '' if $using eq 'btree';
		my $r = rand();
		if ($r < 0.4) { ask(\$s, 'CREATE INDEX ' . pick('', '', 'CONCURRENTLY') . " ${t}_$c ON s_$t USING $using " . pick("($c)", "($c)", "($c, id)", "(id) INCLUDE ($c)", "($c DESC)") . " $with"); }
		elsif ($r < 0.6) { ask(\$s, "DROP INDEX ${t}_$c"); }
		elsif ($r < 0.65) { ask(\$s, "REINDEX TABLE " . pick('', 'CONCURRENTLY') . " s_$t"); }
		elsif ($r < 0.85) { ask(\$s, "SELECT sofort.set_dictionary_placement('s_$t', '$_', '" . pick('dram', 'pmem', 'hybrid') . "') \\g /dev/null") foreach $c, pick(@columns)->[0]; }
		elsif ($r < 0.90)
		{
			my $d = int(rand(100));
			ask(\$s, "BEGIN; ALTER TABLE s_$t ADD x$d text DEFAULT 'default $d'; UPDATE s_$t SET x$d = 'other' WHERE id % 3 = 0; " . pick('COMMIT', 'ROLLBACK'));
			ask(\$s, 'ROLLBACK');
			my @w = ask(\$s, "SELECT count(*) FROM s_$t WHERE x$d NOT IN ('default $d', 'other')");
			problem("column x$d of s_$t: @w") if "@w" =~ /^[1-9]/;
			usleep(rand(500_000));
			ask(\$s, "ALTER TABLE s_$t DROP x$d");
		}
		elsif ($r < 0.93) { ask(\$s, "VACUUM FULL s_$t"); }
		elsif ($r < 0.95 && $t ne 'p') { ask(\$s, "BEGIN; TRUNCATE s_$t, h_$t; " . load("s_$t") . "; INSERT INTO h_$t SELECT $all FROM s_$t; " . pick('COMMIT', 'ROLLBACK')); ask(\$s, 'ROLLBACK'); }
		elsif ($r < 0.97) { ask(\$s, "BEGIN; ALTER TABLE s_$t ALTER i4 TYPE bigint; ALTER TABLE s_$t ALTER i4 TYPE int; " . pick('COMMIT', 'ROLLBACK')); ask(\$s, 'ROLLBACK'); }
		elsif ($t eq 'p') { ask(\$s, "BEGIN; TRUNCATE s_p; " . load('s_p') . '; ' . pick('COMMIT', 'ROLLBACK')); ask(\$s, 'ROLLBACK'); }
		usleep(rand(400_000));
	}
}

my @pids;
sub child
{
	my ($what, @args) = @_;
	my $lot = int(rand(1e9));
	my $pid = fork();
	if ($pid == 0)
	{
		srand($lot);
		eval { $what->(@args); };
		problem("a child has died: $@");
		POSIX::_exit(0);
	}
	push @pids, $pid;
	return;
}

sub work
{
	@pids = ();
	child(\&writer, $_) foreach 0 .. $WRITERS - 1;
	child(\&reader) foreach 1 .. 2;
	child(\&vacuum);
	child(\&ddl);
	return;
}

sub stop_work
{
	kill('KILL', @pids);
	waitpid($_, 0) foreach @pids;
	return;
}

sub sound
{
	my ($what) = @_;
	foreach my $path (@paths[ 0, 1 ])
	{
		foreach my $t (@tables)
		{
			my $content = "$path; SELECT count(*) || ' ' || md5(coalesce(string_agg(x::text, '|' ORDER BY id), '')) FROM (SELECT $all FROM %s) x";
			is(sql(sprintf($content, "s_$t")), sql(sprintf($content, "h_$t")), "$what: $t is as on heap");
		}
		is(sql("$path; SELECT string_agg(id::text, ' ') FROM (SELECT id FROM s_$_ WHERE $wrong LIMIT 5) x"), '', "$what: s_$_ has the values that it must have") foreach 'p', @tables;
	}
	# (it waits for prepared transactions)
	is($node->verify_problems, '', "$what: verify") if sql('SELECT count(*) FROM pg_prepared_xacts') == 0;
	return;
}

my $end = time() + $seconds;
my $round = 0;
while (time() < $end)
{
	my $what = 'round ' . ++$round;
	work();
	my $until = time() + 2 + rand(pick(4, 15));
	while (time() < $until)
	{
		usleep(200_000);
		# one process: the others go, too, and the server starts again
		if (rand() < 0.02)
		{
			my $pid = eval { (split /\n/, sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state = 'active' ORDER BY random() LIMIT 1}))[0] };
			kill('KILL', $pid) if $pid;
			usleep(500_000);
		}
	}
	my $last = time() >= $end;
	$node->kill9 if !$last || rand() < 0.5;
	stop_work();
	if (!defined $node->{_pid}) { $node->start; }
	else { $node->wait_ready; }
	# (other sessions may still be at work)
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'}), "$what: nobody else is there");
	if ($last || rand() < 0.6)
	{
		sql(pick('COMMIT', 'ROLLBACK') . " PREPARED '$_'") foreach split /\n/, sql('SELECT gid FROM pg_prepared_xacts');
	}
	sound($what);
	is(slurp_file($problems), '', "$what: no problems") or last;
}
my %n;
$n{$_}++ foreach split /\n/, slurp_file($counts);
note("$n{$_} $_") foreach sort keys %n;
note(sql(q{SELECT string_agg(relation || '.' || column_name || ' ' || encoding || coalesce(' ' || dictionary_entries, ''), ', ' ORDER BY relation, attnum) FROM sofort.columns WHERE relation::text LIKE 's\_%'}));
$node->stop;
unlike(slurp_file($node->logfile), qr/TRAP:|PANIC/, 'no assertion failed');
$node->teardown_node;
done_testing();
