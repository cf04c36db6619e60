# Signals, kills of single processes, settings and DDL while indexes are rebuilt under load.
# Each writer has rows of its own and knows what they must be: the outcome of a statement that
# was cut off is asked before the next one. Every third life ends in order, the others by SIGKILL.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Storable qw(store retrieve);
use Test::More;
use Time::HiRes qw(usleep time);

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $seed = $ENV{SOFORT_SEED} || $$ * 1000 + time() % 1000;
my $lives = $ENV{SOFORT_LONG} ? 45 : 9;
my $writers = 4;
my $rows = 20_000;
diag("SOFORT_SEED=$seed");

my $node = SofortNode->new('main');
$node->init(conf => [
	'autovacuum_naptime = 1', 'sofort.rebuild_segment = 2', "deadlock_timeout = '100ms'", 'max_connections = 60',
]);
$node->start;
my $dir = $node->basedir;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# What an error, or the end of the server, may cut off
sub try_sql
{
	my ($sql) = @_;
	IPC::Run::run([ 'timeout', '-s', 'KILL', 20, 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $sql ],
		'<', \undef, '>', \my $out, '2>', \my $err);
	return $out;
}

# Rows of writer w: ids that leave w when divided by the number of writers
sub group_of { my ($id) = @_; return int($id / 4) % 50 * $writers + $id % $writers; }

sql(qq{
	CREATE FUNCTION lower_plpgsql(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lower(t); END';
	CREATE TABLE p (id int PRIMARY KEY, k text UNIQUE, g int, n int, f text) USING sofort;
	CREATE TABLE c (id int PRIMARY KEY, a text, p int REFERENCES p ON DELETE SET NULL) USING sofort;
	CREATE INDEX p_g ON p USING sofort_index (g, n);
	CREATE INDEX p_n ON p USING sofort_index (n) WITH (placement = hybrid);
	CREATE INDEX p_lower ON p USING sofort_index (lower_plpgsql(k));
	CREATE INDEX p_third ON p USING sofort_index (n) WHERE n % 3 = 0;
	CREATE INDEX p_f ON p USING btree (f);
	CREATE INDEX c_p ON c USING sofort_index (p);
	CREATE INDEX c_a ON c USING sofort_index (a) WITH (placement = pmem);
	INSERT INTO p SELECT i, 'Key ' || i, i / 4 % 50 * $writers + i % $writers, 0, 'f' || i % 7 FROM generate_series(1, $rows) i;
	INSERT INTO c SELECT i, 'a' || i % 100, i FROM generate_series(1, $rows, 3) i;
});
foreach my $w (0 .. $writers - 1)
{
	my %row = map { $_ => [ "Key $_", 0 ] } grep { $_ % $writers == $w } 1 .. $rows;
	store({ row => \%row, next => $rows + $writers + $w, pending => undef }, "$dir/writer$w");
}

# ---- a writer ----

# Returns the id, the statement, and for a change what the row is after it (nothing: gone), for a
# query what it must answer.
sub any_statement
{
	my ($m, $w) = @_;
	my $row = $m->{row};
	my $kind = int(rand(100));

	if ($kind < 15)
	{
		my $id = $m->{next};
		$m->{next} += $writers;
		my ($k, $n) = ('Key ' . $id . 'x' x int(rand(40)), int(rand(1000)));
		my $conflict = rand() < 0.3 ? ' ON CONFLICT (id) DO UPDATE SET n = -5' : '';
		return { id => $id, after => [ $k, $n ], sql => "INSERT INTO p VALUES ($id, '$k', " . group_of($id) . ", $n, 'f' || $id % 7)$conflict" };
	}
	my ($id, $other) = grep { $row->{$_} } map { $writers * int(rand($m->{next}) / $writers) + $w } 1 .. 20;
	return any_statement($m, $w) unless defined $other;
	my ($k, $n) = @{ $row->{$id} };

	if ($kind < 35)
	{
		my $new = int(rand(1000));
		return { id => $id, after => [ $k, $new ], sql => "UPDATE p SET n = $new WHERE " . (rand() < 0.5 ? "id = $id" : "k = '$k'") };
	}
	if ($kind < 45)
	{
		my $new = "New $id-" . int(rand(1000));
		return { id => $id, after => [ $new, $n ], sql => "UPDATE p SET k = '$new' WHERE id = $id" };
	}
	return { id => $id, after => undef, sql => "DELETE FROM p WHERE k = '$k'" } if $kind < 52;
	return { id => $id, after => [ $k, $n + 1 ], sql => "INSERT INTO p VALUES ($id, 'other', 0, 0, '') ON CONFLICT (id) DO UPDATE SET n = p.n + 1" } if $kind < 57;
	return { id => $id, answer => qr/23505/, sql => "UPDATE p SET k = '$k' WHERE id = $other" } if $kind < 60 && $other != $id;
	return { id => $id, answer => qr/23505/, sql => "INSERT INTO p VALUES ($id, 'new $id', 0, 0, '')" } if $kind < 63;
	return { id => $id, answer => "$k|$n\n", sql => "SELECT k, n FROM p WHERE id = $id" } if $kind < 75;
	return { id => $id, answer => "$id|$n\n", sql => "SELECT id, n FROM p WHERE k = '$k'" } if $kind < 87;
	return { id => $id, answer => "$id|$n\n", sql => "SELECT id, n FROM p WHERE lower_plpgsql(k) = lower('$k')" } if $kind < 90;
	return { id => $id, answer => "t\n", sql => "SELECT bool_or(id = $id) FROM p WHERE n = $n" } if $kind < 93;
	return { id => $id, answer => "t\n", sql => "SELECT bool_or(id = $id) FROM p WHERE n = $n AND n % 3 = 0" } if $kind < 95 && $n % 3 == 0;
	if ($kind < 97)
	{
		my $g = group_of($id);
		return { id => $id, answer => scalar(grep { group_of($_) == $g } keys %$row) . "\n", sql => "SELECT count(*) FROM p WHERE g = $g" };
	}
	my $to = $id + 400;
	return { id => $id, answer => scalar(grep { $_ >= $id && $_ <= $to } keys %$row) . "\n",
		sql => "SELECT count(*) FROM p WHERE id BETWEEN $id AND $to AND g % $writers = $w" };
}

# undef: the session is lost.
sub ask
{
	my ($s, $sql) = @_;
	my $answer = eval { say_to($s, $sql) };
	return undef if !defined $answer || !$s->{run}->pumpable || $answer =~ /FATAL|57P0|server closed|no connection/;
	return $answer;
}

sub set_row
{
	my ($m, $id, $value) = @_;
	delete $m->{row}{$id};
	$m->{row}{$id} = $value if $value;
	$m->{pending} = undef;
	return;
}

# The statement that was cut off: was it done? Returns what is wrong.
sub settle
{
	my ($m, $answer) = @_;
	my $p = $m->{pending};
	chomp $answer;
	foreach my $value ($p->{before}, $p->{after})
	{
		next if $answer ne ($value ? "$value->[0]|$value->[1]" : '');
		set_row($m, $p->{id}, $value);
		return;
	}
	return "$p->{sql}: then the row was '$answer'";
}

# One statement. Returns what is wrong; the session is lost with {lost}.
sub step
{
	my ($m, $w, $s) = @_;
	my $cancelled = qr/57014|40P01/;

	if (my $p = $m->{pending})
	{
		my $answer = ask($s, "SELECT k, n FROM p WHERE id = $p->{id}");
		$s->{lost} = 1 unless defined $answer;
		return if $s->{lost} || $answer =~ $cancelled;
		return settle($m, $answer);
	}
	my $do = any_statement($m, $w);
	$m->{pending} = { %$do, before => $m->{row}{ $do->{id} } } unless defined $do->{answer};
	my $answer = ask($s, $do->{sql});
	$s->{lost} = 1 unless defined $answer;
	return if $s->{lost} || $answer =~ $cancelled;
	$m->{done}++;
	if (defined $do->{answer})
	{
		return if ref $do->{answer} ? $answer =~ $do->{answer} : $answer eq $do->{answer};
		return "$do->{sql}: '$answer' in place of '$do->{answer}'";
	}
	return "$do->{sql}: $answer" if $answer ne '';
	set_row($m, $do->{id}, $do->{after});
	return;
}

# Writes until the time is over; leaves its knowledge in a file.
sub writer
{
	my ($w, $life, $end) = @_;
	my $m = retrieve("$dir/writer$w");
	my $s;
	local $SIG{PIPE} = 'IGNORE';

	srand($seed * 1000 + $life * 10 + $w);
	@$m{qw(done wrong)} = (0, undef);
	while (time() < $end && !$m->{wrong})
	{
		$s = eval { session_on($node) } unless $s;
		$m->{wrong} = step($m, $w, $s) if $s;
		next if $s && !$s->{lost};
		eval { $s->{run}->kill_kill } if $s;
		undef $s;
		usleep(20_000);
	}
	eval { $s->{run}->kill_kill } if $s;
	store($m, "$dir/writer$w");
	return;
}

# ---- what is done to the server ----

# Processes of sofort: launcher, workers, keeper, pool writer
sub our_processes
{
	return grep { (-e "/proc/$_/cmdline" ? eval { slurp_file("/proc/$_/cmdline") } // '' : '') =~ /: sofort / } SofortNode::children($node->{_pid});
}

sub any_of { return $_[ rand @_ ]; }

sub signal_one
{
	my ($signal) = @_;
	my @ours = our_processes() or return;
	kill($signal, any_of(@ours));
	return;
}

my $clients = q{pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()};
my %nuisance = (
	TERM => sub { signal_one('TERM') },
	INT => sub { signal_one('INT') },
	HUP => sub { signal_one('HUP') },
	USR1 => sub { signal_one('USR1') },
	STOP => sub { my $p = any_of(our_processes()) or return; kill('STOP', $p); usleep(100_000); kill('CONT', $p) },
	cancel => sub { try_sql("SELECT pg_cancel_backend(pid) FROM $clients") },
	terminate => sub { try_sql("SELECT pg_terminate_backend(pid) FROM $clients AND random() < 0.4") },
	workers => sub { try_sql('ALTER SYSTEM SET sofort.recovery_workers = ' . int(rand(5))); try_sql('SELECT pg_reload_conf()') },
	mode => sub { try_sql('ALTER SYSTEM SET sofort.recovery_mode = ' . any_of(qw(instant adaptive synchronous))); try_sql('SELECT pg_reload_conf()') },
	placement => sub
	{
		my $index = any_of(qw(p_g p_n p_pkey p_k_key p_lower c_p c_a));
		try_sql("ALTER INDEX $index SET (placement = " . any_of(qw(dram pmem hybrid)) . ')');
		try_sql("REINDEX INDEX CONCURRENTLY $index");
	},
	index => sub { try_sql('DROP INDEX IF EXISTS extra'); try_sql('CREATE INDEX CONCURRENTLY extra ON p USING sofort_index (f, n)') },
	reindex => sub { try_sql(q{SET lock_timeout = '200ms'; REINDEX TABLE c}) },
	vacuum => sub { try_sql('VACUUM p') },
	alter => sub { try_sql('ALTER TABLE c ADD COLUMN IF NOT EXISTS c' . int(rand(5)) . ' int DEFAULT 7') },
	change => sub { try_sql(q{UPDATE c SET a = 'b' || id % 50 WHERE id % 97 = } . int(rand(97))) },
	# the server empties its memory then, and recovers
	kill => sub { return if rand() > 0.3; my @pids = split(/\n/, try_sql("SELECT pid FROM $clients LIMIT 1")); kill('KILL', @pids); usleep(500_000) },
	kill_ours => sub { return if rand() > 0.3; signal_one('KILL'); usleep(500_000) },
);

sub annoy
{
	my ($end) = @_;
	my @names = sort keys %nuisance;
	my %times;
	while (time() < $end)
	{
		my $name = any_of(@names, qw(TERM TERM INT));
		$nuisance{$name}->();
		$times{$name}++;
		usleep(int(rand(60_000)));
	}
	return join(' ', map { "$_ $times{$_}" } sort keys %times);
}

# ---- lives ----

sub live
{
	my ($life) = @_;
	my $in_order = $life % 3 == 2;
	my $end = time() + 2 + rand(3);
	my @pids;

	srand($seed + $life);
	foreach my $w (0 .. $writers - 1)
	{
		my $pid = fork();
		if ($pid == 0)
		{
			eval { writer($w, $life, $end); 1 } or print STDERR "writer $w: $@";
			POSIX::_exit($@ ? 1 : 0);
		}
		push @pids, $pid;
	}
	my $what = annoy($end - 0.5);
	$node->kill9 unless $in_order;
	my $failed = grep { waitpid($_, 0); $? != 0 } @pids;
	if ($in_order)
	{
		# (PostgreSQL before 18 does not stop while it recovers from the death of a backend)
		$node->wait_ready;
		$node->stop('fast');
	}
	my @m = map { retrieve("$dir/writer$_") } 0 .. $writers - 1;
	my $done = 0;
	$done += $_->{done} foreach @m;
	is($failed, 0, "life $life: $done statements; $what");
	is(join("\n", grep { defined } map { $_->{wrong} } @m), '', "life $life: every answer is right");
	$node->start;
	return;
}

# All rows by a sequential scan against what the writers know, and by each index
sub compare
{
	my ($what) = @_;
	my %found = map { my @f = split(/\|/); ($f[0] => "$f[1]|$f[2]") }
	  split(/\n/, sql('SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; SELECT id, k, n FROM p'));
	my @wrong;
	foreach my $m (map { retrieve("$dir/writer$_") } 0 .. $writers - 1)
	{
		if ($m->{pending})
		{
			delete $found{ $m->{pending}{id} };
			delete $m->{row}{ $m->{pending}{id} };
		}
		foreach my $id (keys %{ $m->{row} })
		{
			my $is = delete $found{$id} // 'not there';
			push @wrong, "$id: $is" if $is ne join('|', @{ $m->{row}{$id} });
		}
	}
	push @wrong, map { "$_: nobody's" } keys %found;
	is(join("\n", @wrong[ 0 .. (@wrong > 5 ? 4 : $#wrong) ]), '', "$what: all rows are right");
	my $n = sql('SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; SELECT count(*) FROM p');
	is(sql("SET enable_seqscan = off; SELECT count(*) FROM p WHERE $_"), $n, "$what: by index, $_") foreach ('id > 0', 'n > -100', "k > ''", 'g >= 0');
	is(sql('SELECT count(*) FROM c WHERE p IS NOT NULL AND NOT EXISTS (SELECT FROM p WHERE p.id = c.p)'), 0, "$what: foreign key");
	is($node->verify_problems, '', "$what: verify");
	return;
}

foreach my $life (1 .. $lives)
{
	live($life);
	next if $life % 3;
	sql('ALTER SYSTEM RESET ALL');
	sql('SELECT pg_reload_conf()');
	compare("after life $life");
}
$node->stop;
$node->teardown_node;
done_testing();
