# Random statements, run on a sofort table and on its heap twin by several
# sessions in turn; every answer is compared.
#
#   my $d = Differential->new($seed, \@commands);   # one psql command per session
#   $d->setup;
#   $d->step for 1 .. 500;
#   $d->finish;
#   $d->{problems}                                  # array of texts
#   $d->{data_only} = 1;        # no DDL, VACUUM, and nothing that needs a complete index
#
# Statements name the table @t; on sofort that is s_t, on heap h_t.  Only one
# session runs at a time, so that a seed always gives the same history; a
# statement that would wait for another session's lock runs into lock_timeout
# on both tables.
package Differential;

use strict;
use warnings;

use IPC::Open2;

sub new
{
	my ($class, $seed, $commands) = @_;
	my $self = bless {
		seed => $seed, state => $seed & 0x7fffffff, problems => [], log => [],
		columns => [], next_column => 0, compared => 0, errors => 0, waits => 0,
	}, $class;
	$self->{sessions} = [ map { _session($_) } @$commands ];
	return $self;
}

# ---- random numbers that are the same everywhere ----

sub rnd
{
	my ($self, $n) = @_;
	$self->{state} = ($self->{state} * 1103515245 + 12345) & 0x7fffffff;
	return int($self->{state} / 65536) % $n;
}

sub pick { my ($self, @list) = @_; return $list[ $self->rnd(scalar @list) ]; }

# ---- sessions ----

sub _session
{
	my ($command) = @_;
	my $pid = open2(my $out, my $in, "exec $command 2>&1");
	$in->autoflush(1);
	return { pid => $pid, in => $in, out => $out, open => 0, points => 0, level => '' };
}

sub ask
{
	my ($session, $sql) = @_;
	my $in = $session->{in};
	my $out = $session->{out};
	my @lines;
	print $in "$sql;\n\\echo --done--\n";
	while (my $line = <$out>)
	{
		chomp $line;
		return @lines if $line eq '--done--';
		push @lines, $line;
	}
	return (@lines, 'CONNECTION LOST');
}

# After a restart of the server: new sessions.
sub reconnect
{
	my ($self, @commands) = @_;
	$self->close_sessions;
	$self->{sessions} = [ map { _session($_) } @commands ];
	$self->prepare_sessions;
	push @{ $self->{log} }, '-- reconnected';
	return;
}

sub close_sessions
{
	my ($self) = @_;
	foreach my $session (@{ $self->{sessions} })
	{
		close $session->{in};
		close $session->{out};
		waitpid($session->{pid}, 0);
	}
	$self->{sessions} = [];
	return;
}

sub prepare_sessions
{
	my ($self) = @_;
	foreach my $session (@{ $self->{sessions} })
	{
		ask($session, "SET lock_timeout = '15ms'; SET client_min_messages = warning; SET timezone = 'UTC'");
	}
	return;
}

# ---- comparing ----

sub half
{
	my ($self, $session, $sql, $prefix) = @_;
	my @answer;
	$sql =~ s/\@(\w)/${prefix}_$1/g;
	ask($session, 'SAVEPOINT d') if $session->{open};
	@answer = ask($session, $sql);
	if ($session->{open})
	{
		my $failed = grep { /^(ERROR|FATAL|PANIC):|LOST$/ } @answer;
		ask($session, $failed ? 'ROLLBACK TO d; RELEASE d' : 'RELEASE d');
	}
	s/\b${prefix}_/\@/g for @answer;
	return join("\n", $sql =~ /ORDER BY/ ? @answer : sort @answer);
}

sub both
{
	my ($self, $n, $sql) = @_;
	my $session = $self->{sessions}[$n];
	my $s = $self->half($session, $sql, 's');
	my $h = $self->half($session, $sql, 'h');

	push @{ $self->{log} }, "$n: $sql";
	$self->{compared}++;
	$self->{errors}++ if $h =~ /^ERROR/m;
	$self->{waits}++ if $h =~ /lock timeout/;
	if ($sql !~ /WHERE id = /)
	{
		# of several rows in the way, the order of the scan says which is met first
		s/^ERROR:  (canceling statement due to lock timeout|could not serialize access.*|could not obtain lock on row.*)/ERROR: in the way/m for ($s, $h);
		if ($sql =~ /^MERGE/)
		{
			s/^ERROR:  duplicate key.*/ERROR: in the way/m for ($s, $h);
		}
	}
	if ($s ne $h)
	{
		my @log = @{ $self->{log} };
		my $from = @log > 60 ? @log - 60 : 0;
		push @{ $self->{problems} },
		  "seed $self->{seed}, statement " . scalar(@log) . ", session $n: $sql\n"
		  . "sofort:\n" . substr($s, 0, 1500) . "\nheap:\n" . substr($h, 0, 1500)
		  . "\nhistory:\n" . join("\n", @log[ $from .. $#log ]);
	}
	return $h;
}

# ---- statements ----

sub value
{
	my ($self, $type) = @_;
	return 'NULL' if $self->rnd(8) == 0;
	return $self->rnd(40) - 10 if $type eq 'int';
	return "'" . $self->pick('', 'a', 'b', 'A', 'ab ', "x" x $self->rnd(40), $self->pick("long" x 3, "long" x 20, "long" x 700), 'w' . $self->rnd(30)) . "'"
	  if $type eq 'text';
	return $self->pick('1.0', '1.00', '-0.5', "'NaN'", $self->rnd(1000) / 8, '123456789012345678901234567890.5') if $type eq 'numeric';
	return $self->pick("'-0'", '0', "'NaN'", "'Infinity'", $self->rnd(100) / 3) . '::float8' if $type eq 'float8';
	return $self->pick('true', 'false') if $type eq 'bool';
	return "timestamptz '2024-01-01 00:00+00' + " . $self->rnd(1000) . " * interval '1 h'" if $type eq 'timestamptz';
	return "ARRAY[" . join(',', map { $self->rnd(9) } 0 .. $self->rnd(4)) . ']' if $type eq 'int[]';
	return "decode('" . ('0fa7' x $self->rnd(30)) . "', 'hex')" if $type eq 'bytea';
	die "type $type";
}

sub column { my ($self) = @_; return $self->pick(@{ $self->{columns} }); }

sub condition
{
	my ($self) = @_;
	my $r = $self->rnd(12);
	my $id = $self->rnd(300);
	return 'id = ' . $id if $r < 4;
	return "id BETWEEN $id AND " . ($id + $self->rnd(40)) if $r < 6;
	return 'k = ' . $self->rnd(30) if $r < 8;
	return 'k IN (' . join(',', map { $self->rnd(30) } 0 .. $self->rnd(5)) . ')' if $r == 8;
	return 't >= ' . "'" . $self->pick('a', 'b', 'w1', 'x') . "'" if $r == 9;
	return 'id % ' . (5 + $self->rnd(20)) . ' = ' . $self->rnd(5) if $r == 10;
	my $c = $self->column;
	return $self->rnd(2) ? "$c->[0] IS NULL" : "$c->[0] IS NOT NULL AND id > $id";
}

sub assignments
{
	my ($self, $where) = @_;
	my %set;
	for (0 .. $self->rnd(2))
	{
		my $c = $self->column;
		$set{ $c->[0] } = $self->value($c->[1]);
	}
	$set{k} = $self->pick('k + 1', 'k - 1', $self->rnd(30)) if $self->rnd(3) == 0;
	# of several rows, whether keys collide depends on the order of the scan
	$set{id} = 'id + ' . $self->pick(1, 7, 1000) if $where =~ /^id = / && $self->rnd(3) == 0;
	return join(', ', map { "$_ = $set{$_}" } sort keys %set);
}

sub insert
{
	my ($self) = @_;
	my @columns = grep { $self->rnd(3) } @{ $self->{columns} };
	my @rows;
	my $n = $self->rnd(10) == 0 ? 60 : 1 + $self->rnd(4);
	for (1 .. $n)
	{
		push @rows, '(' . join(', ', $self->rnd(400), $self->rnd(30), map { $self->value($_->[1]) } @columns) . ')';
	}
	return 'INSERT INTO @t (' . join(', ', 'id', 'k', map { $_->[0] } @columns) . ') VALUES ' . join(', ', @rows);
}

sub dml
{
	my ($self) = @_;
	my $r = $self->rnd(20);
	my $returning = $self->rnd(3) ? '' : ' RETURNING *';
	return $self->insert . $returning if $r < 3;
	return $self->insert . ' ON CONFLICT DO NOTHING' . $returning if $r < 6;
	return 'INSERT INTO @t AS o (id, k, t) VALUES (' . join(', ', $self->rnd(400), $self->rnd(30), $self->value('text')) . ') ON CONFLICT (id) DO UPDATE SET '
	  . 'k = o.k + 1, t = EXCLUDED.t' . $returning if $r < 8;
	return 'INSERT INTO @t (id, k) SELECT i, i % 30 FROM generate_series(' . $self->rnd(300) . ', ' . $self->rnd(400) . ') i ON CONFLICT DO NOTHING' if $r == 8;
	my $where = $self->condition;
	return 'UPDATE @t SET ' . $self->assignments($where) . " WHERE $where$returning" if $r < 15;
	return 'UPDATE @t x SET k = y.k FROM @t y WHERE y.id = x.id + 1 AND x.id < ' . $self->rnd(100) if $r == 15;
	return 'MERGE INTO @t m USING (SELECT i * 3 AS i FROM generate_series(1, ' . $self->rnd(40) . ') i) s ON m.id = s.i WHEN MATCHED AND s.i % 2 = 0 THEN DELETE '
	  . 'WHEN MATCHED THEN UPDATE SET k = m.k + 2 WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.i, 1)' if $r == 16;
	return 'DELETE FROM @t WHERE ' . $self->condition . $returning;
}

sub query
{
	my ($self) = @_;
	my $r = $self->rnd(14);
	my $where = $self->condition;
	return 'SELECT * FROM @t' if $r < 2;
	return "SELECT * FROM \@t WHERE $where" if $r < 5;
	return "SELECT id, k FROM \@t WHERE $where ORDER BY k, id" if $r == 5;
	return "SELECT id FROM \@t WHERE $where ORDER BY id DESC LIMIT " . (1 + $self->rnd(20)) if $r == 6;
	return 'SELECT k, count(*), min(id), max(t) FROM @t GROUP BY k' if $r == 7;
	return 'SELECT count(*), sum(x.k) FROM @t x JOIN @t y ON x.k = y.id' if $r == 8;
	return 'SELECT min(k), max(k), min(id), max(id), count(t) FROM @t' if $r == 9;
	return "SELECT * FROM \@t WHERE $where FOR " . $self->pick('UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE') . $self->pick('', ' NOWAIT', ' SKIP LOCKED') if $r < 13;
	return 'SELECT k, id FROM @t WHERE (k, t) IS NOT NULL ORDER BY t, k, id';
}

sub ddl
{
	my ($self) = @_;
	my $r = $self->rnd(9);
	if ($r < 3)
	{
		my $type = $self->pick('int', 'text', 'numeric', 'float8', 'bool', 'timestamptz', 'int[]', 'bytea');
		my $name = 'c' . ++$self->{next_column};
		my $default = $self->rnd(2) ? ' DEFAULT ' . $self->value($type) : '';
		return ("ALTER TABLE \@t ADD $name $type$default", sub { push @{ $self->{columns} }, [ $name, $type ] });
	}
	if ($r < 5 && @{ $self->{columns} } > 3)
	{
		my $n = 1 + $self->rnd(@{ $self->{columns} } - 1);
		return ("ALTER TABLE \@t DROP $self->{columns}[$n][0]", sub { splice(@{ $self->{columns} }, $n, 1) });
	}
	return ('ALTER TABLE @t ALTER k TYPE ' . $self->pick('int', 'bigint'), undef) if $r == 5;
	return ('TRUNCATE @t', undef) if $r == 6 && $self->rnd(4) == 0;
	return ('CREATE INDEX ON @t (' . $self->pick('k', 'k, id', 't', '(k % 5)') . ')', undef) if $r == 7 && $self->rnd(3) == 0;
	return ('ANALYZE @t', undef);
}

# ---- what a session does next ----

sub begin
{
	my ($self, $n) = @_;
	my $session = $self->{sessions}[$n];
	$session->{level} = $self->pick('READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ');
	ask($session, "BEGIN ISOLATION LEVEL $session->{level}");
	# both halves must see the same: take the snapshot now
	ask($session, 'SELECT 1');
	push @{ $self->{log} }, "$n: BEGIN $session->{level}";
	$session->{open} = 1;
	$session->{points} = 0;
	return;
}

sub end
{
	my ($self, $n, $how) = @_;
	my $session = $self->{sessions}[$n];
	my @answer = ask($session, $how);
	push @{ $self->{log} }, "$n: $how";
	push @{ $self->{problems} }, "seed $self->{seed}: $how: @answer" if @answer;
	$session->{open} = 0;
	return;
}

sub savepoints
{
	my ($self, $n) = @_;
	my $session = $self->{sessions}[$n];
	my $sql;
	if ($session->{points} == 0 || $self->rnd(2))
	{
		$sql = 'SAVEPOINT p' . ++$session->{points};
	}
	else
	{
		my $p = 1 + $self->rnd($session->{points});
		$sql = $self->rnd(3) ? "ROLLBACK TO p$p" : "RELEASE p$p";
		$session->{points} = $sql =~ /RELEASE/ ? $p - 1 : $p;
	}
	my @answer = ask($session, $sql);
	push @{ $self->{log} }, "$n: $sql";
	push @{ $self->{problems} }, "seed $self->{seed}: $sql: @answer" if @answer;
	return;
}

sub others_open
{
	my ($self, $n) = @_;
	return scalar grep { $_ != $n && $self->{sessions}[$_]{open} } 0 .. $#{ $self->{sessions} };
}

sub step
{
	my ($self) = @_;
	my $n = $self->rnd(scalar @{ $self->{sessions} });
	my $session = $self->{sessions}[$n];
	my $r = $self->rnd(100);

	if ($session->{open} && $r < 14) { $self->end($n, $r < 10 ? 'COMMIT' : 'ROLLBACK'); }
	elsif (!$session->{open} && $r < 45) { $self->begin($n); }
	elsif ($session->{open} && $r < 28) { $self->savepoints($n); }
	elsif (!$session->{open} && $r < 54 && $self->{data_only}) { return; }
	elsif (!$session->{open} && $r < 50)
	{
		$self->both($n, $self->pick('VACUUM @t', 'VACUUM @t', 'VACUUM (ANALYZE) @t', 'REINDEX TABLE @t', 'VACUUM FULL @t', 'CLUSTER @t USING @t_pkey'))
		  unless $self->others_open($n);
	}
	elsif (!$session->{open} && $r < 54)
	{
		if (!$self->others_open($n))
		{
			my ($sql, $then) = $self->ddl;
			my $answer = $self->both($n, $sql);
			$then->() if $then && $answer !~ /ERROR/;
		}
	}
	elsif ($r < 80) { $self->both($n, $self->dml); }
	else
	{
		my $path = $self->rnd($self->{data_only} ? 2 : 4);
		ask($session, 'SET enable_seqscan = ' . ($path ? 'on' : 'off') . '; SET enable_bitmapscan = ' . ($path == 1 ? 'off' : 'on') . '; SET work_mem = ' . ($path == 2 ? "'64kB'" : "'4MB'"));
		$self->both($n, $self->query);
	}
	return;
}

sub setup
{
	my ($self) = @_;
	my $s = $self->{sessions}[0];
	ask($s, 'SET client_min_messages = warning; DROP TABLE IF EXISTS s_t, h_t');
	$self->prepare_sessions;
	my $columns = 'id int PRIMARY KEY, k int NOT NULL, t text, n numeric, f float8, b bool';
	my $am = $ENV{SOFORT_AM} || 'sofort';
	my @answer = ask($s, "CREATE TABLE s_t ($columns) USING $am");
	push @answer, ask($s, "CREATE TABLE h_t ($columns) USING heap");
	my $index = $am eq 'sofort' ? 'USING sofort_index' : '';
	foreach my $def ('(k)', '(t, k DESC)', '(n) WHERE k > 10', '(lower(t))')
	{
		push @answer, ask($s, "CREATE INDEX ON s_t $index $def"), ask($s, "CREATE INDEX ON h_t $def");
	}
	push @answer, ask($s, 'CREATE INDEX ON s_t USING hash (k)');
	push @{ $self->{problems} }, "setup: @answer" if @answer;
	$self->{columns} = [ [ 't', 'text' ], [ 'n', 'numeric' ], [ 'f', 'float8' ], [ 'b', 'bool' ] ];
	return;
}

sub finish
{
	my ($self) = @_;
	foreach my $n (0 .. $#{ $self->{sessions} })
	{
		$self->end($n, 'COMMIT') if $self->{sessions}[$n]{open};
	}
	$self->both(0, 'SELECT * FROM @t');
	$self->close_sessions;
	return;
}

1;
