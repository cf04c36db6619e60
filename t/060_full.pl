# Pool, file system or DRAM arena full in the middle of whatever allocates: the
# statement fails with 53100 or 53200, nothing is lost, nothing half done stays,
# and the same statement works when there is space again. Limits of values, rows
# and columns.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use Session;
use SofortNode;
use Test::More;

my $node = SofortNode->new('full');
$node->init(conf => [ "sofort.pool_size = '64MB'", "sofort.dram_size = '64MB'", 'autovacuum = off', 'jit = off' ]);
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE TABLE t (i int PRIMARY KEY, d text, v text) USING sofort;
	ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
	INSERT INTO t SELECT i, 'value ' || i % 10, 'row ' || i FROM generate_series(1, 4000) i;
	CREATE TABLE w (i int, v text) USING sofort;
	ALTER TABLE w ALTER v SET STORAGE EXTERNAL;
	INSERT INTO w SELECT i, 'w ' || i FROM generate_series(1, 4000) i;
	CREATE FUNCTION digest() RETURNS text LANGUAGE sql AS $$
		SELECT count(*) || ' ' || sum(hashtext(t::text)) FROM t $$});
my $file = $node->basedir . '/copy';
append_to_file($file, join('', map { "$_\tcopied\tcopied value number $_ that is longer than others $_\n" } 100_001 .. 130_000));

sub digest { return $node->safe_psql('postgres', 'SELECT digest()'); }

my @pool_cases = (
	[ 'INSERT', q{INSERT INTO t SELECT i, 'value 1', 'inserted ' || repeat('x', 100) || i FROM generate_series(10001, 40000) i} ],
	[ 'COPY', "COPY t FROM '$file'" ],
	[ 'UPDATE', q{UPDATE t SET v = v || repeat('y', 1000)} ],
	[ 'UPDATE of the key', q{UPDATE t SET i = i + 1000000, v = v || repeat('y', 1000)} ],
	[ 'dictionary growth', q{INSERT INTO t SELECT i, 'a new value of the dictionary ' || i || repeat('d', 200), 'v' FROM generate_series(10001, 20000) i} ],
	[ 'big value', q{INSERT INTO t VALUES (10001, 'value 1', repeat('x', 20000000))} ],
	[ 'CREATE TABLE AS', q{CREATE TABLE n USING sofort AS SELECT i, repeat('n', 200) || i AS v FROM generate_series(1, 20000) i} ],
	[ 'many tables', q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP EXECUTE format('CREATE TABLE n%s (i int, v text) USING sofort', i); EXECUTE format('INSERT INTO n%s SELECT g, repeat(''x'', 500) || g FROM generate_series(1, 100) g', i); END LOOP; END $$} ],
	[ 'VACUUM FULL', q{VACUUM FULL t}, 1 ],
	[ 'ALTER TABLE with rewrite', q{ALTER TABLE t ALTER v TYPE text USING v || repeat('z', 2000)} ],
	[ 'INSERT in a savepoint', q{BEGIN; INSERT INTO t VALUES (-1); SAVEPOINT a; INSERT INTO t SELECT i, 'value 1', 'inserted ' || repeat('x', 100) || i FROM generate_series(10001, 40000) i} ]);

# ---- the pool's quota, as left over by a session that holds the rest ----
foreach my $case (@pool_cases)
{
	my ($what, $sql, $outside) = @$case;
	my $before = digest();
	my $used = $node->safe_psql('postgres', 'SELECT used_bytes FROM sofort.pool');
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN; SELECT sofort_test.fill_pool(256 * 1024)');
	is($node->error_of($sql), '53100: sofort pool is full', "$what: pool full");
	is(digest(), $before, "$what: nothing lost, nothing half done");
	is($node->error_of(q{UPDATE t SET v = v WHERE i = 5}), '', "$what: a small update still works") if $what eq 'big value';
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	is($node->verify_problems, '', "$what: verify");
	cmp_ok($node->safe_psql('postgres', 'SELECT used_bytes FROM sofort.pool'), '<=', $used + 1024 * 1024, "$what: space was given back");
	# with room it works; rolled back, so that the next case finds the same
	$node->safe_psql('postgres', "ALTER SYSTEM SET sofort.pool_size = '512MB'");
	$node->reload;
	$node->wait_until('SELECT quota_bytes > 500000000 FROM sofort.pool');
	is($node->error_of($outside ? $sql : "BEGIN; $sql; ROLLBACK"), '', "$what: it works with a raised quota");
	is(digest(), $before, "$what: and is rolled back");
	$node->safe_psql('postgres', 'VACUUM t; VACUUM t; ALTER SYSTEM RESET sofort.pool_size');
	$node->reload;
	$node->wait_until('SELECT quota_bytes < 500000000 FROM sofort.pool');
}

# ---- really full: what was acknowledged stays, and space can be made ----
my $error = '';
my $acknowledged = 0;
foreach my $i (1 .. 400)
{
	$error = $node->error_of("INSERT INTO w SELECT $i * 10000 + g, repeat('f', 2000) || ($i * 10000 + g) FROM generate_series(1, 500) g");
	last if $error ne '';
	$acknowledged++;
}
is($error, '53100: sofort pool is full', "full after $acknowledged transactions");
cmp_ok($acknowledged, '>', 10, 'not before');
my $rows = 4000 + 500 * $acknowledged;
is($node->safe_psql('postgres', 'SELECT count(*) FROM w'), $rows, 'every acknowledged row is there');
$node->kill9;
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM w'), $rows, 'also after a crash with a full pool');
is($node->verify_problems, '', 'full: verify');
is($node->error_of('DELETE FROM w WHERE i > 100000'), '', 'full: DELETE works');
is($node->error_of('VACUUM w'), '', 'full: VACUUM works');
is($node->error_of('VACUUM w'), '', 'and again');
is($node->error_of(q{INSERT INTO w SELECT 5000000 + g, repeat('g', 2000) || g FROM generate_series(1, 2000) g}), '', 'after DELETE and VACUUM it goes on');
foreach my $i (1 .. 400)
{
	$error = $node->error_of("INSERT INTO w SELECT $i * 10000 + g, repeat('f', 2000) || ($i * 10000 + g) FROM generate_series(1, 500) g");
	last if $error ne '';
}
is($error, '53100: sofort pool is full', 'full again');
$node->safe_psql('postgres', 'DROP TABLE w');
is($node->error_of(q{INSERT INTO t SELECT 5000000 + g, 'value 1', repeat('g', 2000) || g FROM generate_series(1, 2000) g}), '', 'after DROP TABLE it goes on');
is($node->verify_problems, '', 'verify');

# ---- DRAM arena ----
$node->safe_psql('postgres', 'DELETE FROM t WHERE i > 4000; VACUUM t; ANALYZE t');
my $before = digest();
my $holder = $node->background_psql('postgres', on_error_stop => 0);
foreach my $case (
	[ 'insert into an index', q{INSERT INTO t SELECT i, 'value 1', 'v' FROM generate_series(10001, 60000) i} ],
	[ 'index build', q{CREATE INDEX t_v ON t USING sofort_index (v, d, i)} ],
	[ 'dictionary index', q{INSERT INTO t SELECT -i, 'dictionary value ' || i, 'v' FROM generate_series(1, 30000) i} ])
{
	my ($what, $sql) = @$case;
	$holder->query_safe('SELECT sofort_test.fill_arena(0)');
	like($node->error_of($sql), qr/^53200: out of memory for sofort/, "$what: arena full");
	is(digest(), $before, "$what: nothing lost, nothing half done");
	is($node->safe_psql('postgres', 'SELECT v FROM t WHERE i = 77'), 'row 77', "$what: reading goes on");
	$holder->query_safe('SELECT sofort_test.empty_arena()');
	is($node->error_of("BEGIN; $sql; ROLLBACK"), '', "$what: it works when there is memory");
	is(digest(), $before, "$what: and is rolled back");
	is($node->verify_problems, '', "$what: verify");
}
# full while an index is rebuilt after a crash: queries by the table go on
$node->safe_psql('postgres', 'CREATE INDEX t_v ON t USING sofort_index (v)');
$holder->quit;
$node->kill9;
$node->start;
is($node->safe_psql('postgres', q{SELECT i FROM t WHERE v = 'row 99'}), 99, 'after a crash the indexes are rebuilt');

# ---- limits ----
is($node->error_of('CREATE TABLE wide (' . join(', ', map { "c$_ int" } 1 .. 1600) . ') USING sofort'), '', '1600 columns');
is($node->safe_psql('postgres', 'INSERT INTO wide (c1, c1600) VALUES (1, 1600) RETURNING c1 + c1600'), 1601, '1600 columns: a row');
is($node->error_of('ALTER TABLE wide ADD COLUMN c1601 int'), '54011: tables can have at most 1600 columns', '1601 columns');
is($node->safe_psql('postgres', 'SELECT c1600 FROM wide'), 1600, '1600 columns: the row is there');

# entries whose comparison fails: their tuples are given back
{
	$node->safe_psql('postgres', q{CREATE TABLE arrays (a json[]) USING sofort; CREATE INDEX arrays_a ON arrays USING sofort_index (a); INSERT INTO arrays VALUES ('{1}')});
	my $fail = q{DO $$ DECLARE x text; BEGIN SELECT string_agg(md5(i::text), '') INTO x FROM generate_series(1, 60) i;
		FOR i IN 1 .. 1000 LOOP BEGIN INSERT INTO arrays SELECT ARRAY[to_json(x || i)]; RAISE 'it can be compared'; EXCEPTION WHEN undefined_function THEN NULL; END; END LOOP; END $$};
	my $before = $node->safe_psql('postgres', "$fail; SELECT dram_used FROM sofort.pool");
	my $after = $node->safe_psql('postgres', "$fail; SELECT dram_used FROM sofort.pool");
	cmp_ok($after - $before, '<', 500_000, 'entries that fail leave nothing behind');
	$node->safe_psql('postgres', 'DROP TABLE arrays');
}

# sessions that end while they wait for another one's key
{
	my $key = q{(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)};
	$node->safe_psql('postgres', 'CREATE TABLE awaited (t text COLLATE "C" PRIMARY KEY) USING sofort');
	my $first = session_on($node);
	say_to($first, "BEGIN; INSERT INTO awaited VALUES ($key)");
	my $bytes = sub { return $node->safe_psql('postgres', 'SELECT dram_used FROM sofort.pool') };
	my $end = sub {
		my @waiting = map { session_on($node) } 1 .. $_[0];
		send_to($_, "INSERT INTO awaited VALUES ($key)") foreach @waiting;
		$node->poll_query_until('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO awaited%' AND wait_event = 'transactionid'}, scalar(@waiting)) or die;
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO awaited%' AND wait_event = 'transactionid'});
		like(answer($_), qr/57P01/, 'a session that waits is ended') foreach @waiting;
	};
	# what they give back waits for an epoch
	$end->(12) foreach 1 .. 3;
	my $before = $bytes->();
	$end->(12);
	cmp_ok($bytes->() - $before, '<', 12 * 3000, 'what they were about to insert is given back');
	say_to($first, 'ROLLBACK');
	$first->{run}->kill_kill;
	is($node->error_of("INSERT INTO awaited VALUES ($key)"), '', 'and the key is free');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sofort.verify('awaited')}), 0, 'and its index sound');
	$node->safe_psql('postgres', 'DROP TABLE awaited');
}

# rows of more than 64 kB: on heap most columns must be NULL
foreach my $am (qw(heap sofort))
{
	my $sql = "CREATE TABLE names_$am (" . join(', ', map { "c$_ name" } 1 .. 1100) . ", t text, u text) USING $am";
	foreach my $columns ([1], [ 1, 77 ], [ 70 .. 150 ], [ 385, 512 .. 530 ], [ 1000 .. 1100 ])
	{
		my $names = join(', ', map { "c$_" } @$columns);
		$sql .= "; INSERT INTO names_$am ($names, t) VALUES (" . join(', ', map { "'value $_'" } @$columns) . ", 'row $#$columns')";
	}
	$node->safe_psql('postgres', "$sql; UPDATE names_$am SET c2 = 'updated', u = repeat('long ', 100) WHERE c77 IS NOT NULL");
}
foreach my $when ('as written', 'after VACUUM FULL')
{
	is($node->safe_psql('postgres', q{SELECT count(*) FROM names_sofort s FULL JOIN names_heap h ON s::text = h::text WHERE s.t IS NULL OR h.t IS NULL}), 0, "rows of 64 kB, $when");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM sofort.verify('names_sofort')}), 0, "$when: verify");
	$node->safe_psql('postgres', 'VACUUM FULL names_sofort');
}
$node->safe_psql('postgres', 'DROP TABLE names_sofort, names_heap');
is($node->error_of(q{INSERT INTO t VALUES (-5, 'x', repeat('x', 200000000))}), '53100: sofort pool is full', 'a value larger than the pool');
is($node->error_of(q{CREATE TABLE k (a text PRIMARY KEY) USING sofort; INSERT INTO k VALUES (repeat('k', 2000))}), '', 'a long key');
is($node->safe_psql('postgres', q{SELECT length(a) FROM k WHERE a = repeat('k', 2000)}), 2000, 'a long key is found');
is($node->error_of(q{INSERT INTO t SELECT FROM generate_series(1, 2)}) =~ s/ of relation.*//r, '23502: null value in column "i"', 'a refusal of PostgreSQL is as on heap');
is(digest(), $before, 'limits: nothing lost');
is($node->verify_problems, '', 'limits: verify');
$node->stop;
$node->teardown_node;

# ---- file system full ----
SKIP:
{
	my $small = SofortNode->new('small');
	$small->init(conf => [ 'autovacuum = off', 'jit = off' ]);
	if (!$small->use_small_file_system('40m'))
	{
		diag('NOT TESTED: a full file system (user namespaces with mounts are not allowed here)');
		skip 'no small file system', 1;
	}
	$small->start;
	$small->safe_psql('postgres', q{CREATE TABLE f (i int PRIMARY KEY, v text) USING sofort; CREATE TABLE g (v text) USING sofort; ALTER TABLE g ALTER v SET STORAGE EXTERNAL;
		ALTER TABLE f ALTER v SET STORAGE EXTERNAL; INSERT INTO g SELECT repeat('g', 3000) || i FROM generate_series(1, 2000) i});
	my $done = 0;
	my $error = '';
	foreach my $i (1 .. 400)
	{
		$error = $small->error_of("INSERT INTO f SELECT $i * 1000 + g, repeat('f', 2000) || ($i * 1000 + g) FROM generate_series(1, 200) g");
		last if $error ne '';
		$done++;
	}
	like($error, qr/^53100: could not reserve \d+ bytes for the sofort pool: No space left on device$/, "file system full after $done transactions");
	cmp_ok($done, '>', 5, 'file system full: not before');
	is($small->safe_psql('postgres', 'SELECT count(*) FROM f'), $done * 200, 'file system full: every acknowledged row is there');
	like($small->error_of(q{INSERT INTO f VALUES (0, repeat('x', 30000000))}), qr/^53100: could not reserve/, 'file system full: a big value');
	like($small->error_of("CREATE TABLE n USING sofort AS SELECT i, repeat('n', 200) || i AS v FROM generate_series(1, 20000) i"), qr/^53100: could not reserve/, 'file system full: CREATE TABLE AS');
	is($small->verify_problems, '', 'file system full: verify');
	$small->safe_psql('postgres', 'DROP TABLE g');
	is($small->error_of("INSERT INTO f SELECT -g, repeat('f', 2000) || g FROM generate_series(1, 500) g"), '', 'file system full: after DROP TABLE it goes on');
	is($small->safe_psql('postgres', 'SELECT count(*) FROM f'), $done * 200 + 500, 'file system full: all rows');
	# a process dies while it fills it again
	my $life = $small->life;
	$small->arm('pmem-reserved', 'kill_backend', 50);
	is($small->psql('postgres', "INSERT INTO f SELECT 2000000 + g, repeat('f', 2000) || g || 'x' FROM generate_series(1, 20000) g", stderr => \my $err), 2,
		'file system nearly full: a backend is killed while it fills it');
	ok($small->wait_new_life($life), 'file system nearly full: crash-restart');
	is($small->safe_psql('postgres', 'SELECT count(*) FROM f'), $done * 200 + 500, 'file system nearly full: all rows after that');
	is($small->verify_problems, '', 'file system nearly full: verify');
	# what makes room works when there is none: fill it up
	$small->safe_psql('postgres', q{CREATE TABLE h (i int PRIMARY KEY, v text) USING sofort; CREATE SEQUENCE h_i;
		CREATE TABLE e (i int, v text) USING sofort; INSERT INTO e SELECT g, 'e' FROM generate_series(1, 3000) g});
	foreach my $rows (1000, 100, 10, 1)
	{
		foreach (1 .. 400)
		{
			last if $small->error_of("INSERT INTO h SELECT nextval('h_i'), repeat('h', 800) FROM generate_series(1, $rows)") ne '';
		}
	}
	my $before = $small->safe_psql('postgres', 'SELECT count(*) FROM h');
	like($small->error_of(q{INSERT INTO h SELECT -g, repeat('h', 800) FROM generate_series(1, 100) g}), qr/^53100: /, "file system full: not even 100 rows beside $before");
	is($small->error_of('BEGIN; DELETE FROM h WHERE i % 2 = 0; ROLLBACK'), '', 'DELETE, rolled back');
	is($small->safe_psql('postgres', 'SELECT count(*) FROM h'), $before, 'nothing is lost');
	is($small->error_of('TRUNCATE e'), '', 'TRUNCATE works');
	is($small->error_of('DELETE FROM h'), '', 'DELETE works');
	is($small->error_of('VACUUM h'), '', 'VACUUM works');
	$small->safe_psql('postgres', 'SELECT txid_current(); VACUUM h; SELECT txid_current()');
	is($small->error_of(q{INSERT INTO h SELECT -g, repeat('h', 800) FROM generate_series(1, 1000) g}), '', 'and there is room again');
	is($small->error_of('DROP TABLE h'), '', 'DROP TABLE works');
	is($small->verify_problems, '', 'room was made: verify');
	$small->stop;
	$small->teardown_node;
}

# DRAM is full when a rebuilt index takes over what was written meanwhile: an error, and no index that misses rows
{
	my $arena = SofortNode->new('arena');
	$arena->init(conf => [ "sofort.pool_size = '256MB'", 'sofort.recovery_workers = 0', "sofort.recovery_mode = 'instant'", 'autovacuum = off', 'jit = off' ]);
	$arena->start;
	my $row = join(', ', map { "md5(g || '$_')::uuid" } qw(a b c e));
	$arena->safe_psql('postgres', "CREATE TABLE d (a uuid, b uuid, c uuid, e uuid) USING sofort; INSERT INTO d SELECT $row FROM generate_series(1, 1000) g;
		CREATE INDEX d_i ON d USING sofort_index (a, b, c, e)");
	$arena->stop;
	$arena->append_conf('postgresql.conf', "sofort.dram_size = '16MB'");
	$arena->start;
	$arena->safe_psql('postgres', "INSERT INTO d SELECT $row FROM generate_series(1001, 96000) g");
	my $by_index = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SELECT count(*) FROM (SELECT * FROM d WHERE a >= '00000000-0000-0000-0000-000000000000' ORDER BY a, b) x";
	like($arena->error_of($by_index), qr/^53200: out of memory for sofort index "d_i"/, "DRAM full: round $_ of building the index") foreach 1 .. 2;
	is($arena->safe_psql('postgres', 'SELECT count(*) FROM d'), '96000', 'DRAM full: all rows');
	$arena->stop;
	$arena->append_conf('postgresql.conf', "sofort.dram_size = '256MB'");
	$arena->start;
	is($arena->safe_psql('postgres', $by_index), '96000', 'DRAM raised: all rows by index');
	is($arena->verify_problems, '', 'DRAM raised: verify');
	$arena->stop;
	$arena->teardown_node;
}

# VACUUM gives space back before it asks for any, and what it asks for can wait
{
	my $node = SofortNode->new('vacuum');
	$node->init(conf => [ "sofort.pool_size = '64MB'", "sofort.dram_size = '16MB'", 'sofort.recovery_workers = 0', 'autovacuum = off', 'jit = off' ]);
	$node->start;
	my $bytes = sub { return $node->safe_psql('postgres', "SELECT pool_bytes FROM sofort.tables WHERE relation = 'late'::regclass") };
	my $encodings = sub { return $node->safe_psql('postgres', "SELECT string_agg(DISTINCT encoding, ' ') FROM sofort.columns WHERE relation = 'late'::regclass AND column_name <> 'i'") };

	# values that begin to repeat: dictionaries for many columns need more than is left
	my $columns = join(', ', map { "c$_ text" } 1 .. 40);
	my $differ = join(', ', map { "'some text $_ that is like no other ' || md5(g::text)" } 1 .. 40);
	my $repeat = join(', ', map { "'some text $_ that is like many others ' || g % 7" } 1 .. 40);
	$node->safe_psql('postgres', "CREATE TABLE late (i int, $columns) USING sofort; INSERT INTO late SELECT g, $differ FROM generate_series(1, 2000) g;
		INSERT INTO late SELECT 10000 + g, $repeat FROM generate_series(1, 1500) g");
	my $before = $encodings->();
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('BEGIN; SELECT sofort_test.fill_pool(0)');
	is($node->error_of('VACUUM late'), '', 'full: VACUUM of a table whose values repeat by now');
	is($encodings->(), $before, 'it had no room for their dictionaries');
	$node->safe_psql('postgres', 'DELETE FROM late WHERE i <= 2000');
	my $full = $bytes->();
	is($node->error_of('VACUUM late'), '', "and when most rows were deleted: round $_") foreach 1 .. 2;
	cmp_ok($bytes->(), '<', $full / 2 + 1024 * 1024, 'their space is given back');
	is($encodings->(), 'dictionary', 'then there is room for dictionaries');
	is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT c1), min(c40) FROM late}), '1500|7|some text 40 that is like many others 0', 'the rows are there');
	$node->safe_psql('postgres', 'DROP TABLE late');
	$holder->query_safe('ROLLBACK');

	# where not even the first leaf of a tree finds room
	$node->safe_psql('postgres', 'CREATE TABLE tiny (i int) USING sofort');
	foreach my $placement ('pmem', 'hybrid')
	{
		$holder->query_safe('BEGIN; SELECT sofort_test.fill_pool(0)');
		is($node->error_of("DO \$\$ BEGIN FOR n IN 1 .. 1000 LOOP EXECUTE 'CREATE INDEX ON tiny USING sofort_index (i) WITH (placement = $placement)'; END LOOP; END \$\$"),
			'53100: sofort pool is full', "CREATE INDEX, $placement: the pool is full, not DRAM");
		$holder->query_safe('ROLLBACK');
	}
	$holder->quit;
	is($node->verify_problems, '', 'verify');

	# indexes of dictionaries that have to be made first: in the pool of a copy's, in DRAM after a start
	$node->safe_psql('postgres', 'CREATE DATABASE original');
	my $value = q{'value ' || CASE WHEN i <= 2000 THEN i % 100 ELSE i / 4 END};
	foreach my $placement ('pmem', 'hybrid', 'dram')
	{
		$node->safe_psql('original', qq{CREATE EXTENSION IF NOT EXISTS sofort; SET sofort.dictionary_placement = '$placement';
			CREATE TABLE d_$placement (i int, d text) USING sofort; INSERT INTO d_$placement SELECT i, $value FROM generate_series(1, 32000) i});
		is($node->safe_psql('original', "SELECT encoding FROM sofort.columns WHERE relation = 'd_$placement'::regclass AND column_name = 'd'"), 'dictionary', "$placement: a dictionary");
	}
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE original');
	$node->restart;
	foreach my $what ('pool', 'DRAM')
	{
		my @tables = $what eq 'pool' ? ('d_pmem', 'd_hybrid') : ('d_pmem', 'd_hybrid', 'd_dram');
		$holder = $node->background_psql('postgres');
		my @dbs = $what eq 'pool' ? ('copy') : ('copy', 'original');
		foreach my $db (@dbs)
		{
			foreach my $table (@tables)
			{
				is($node->safe_psql($db, "SELECT count(*), count(DISTINCT d) FROM $table"), '32000|7601', "$db, $table: rows");
				# (the update, which copies the code, finds the place for new rows)
				$node->safe_psql($db, "DELETE FROM $table WHERE i % 8000 < 4000 AND i % 2 = 0; UPDATE $table SET i = i WHERE i = 1");
			}
		}
		$holder->query_safe($what eq 'pool' ? 'BEGIN; SELECT sofort_test.fill_pool(0)' : 'SELECT sofort_test.fill_arena(0)');
		foreach my $db (@dbs)
		{
			foreach my $table (@tables)
			{
				my $said;
				is($node->psql($db, "VACUUM VERBOSE $table", stderr => \$said), 0, "$what full, $db, $table: VACUUM") or diag($said);
				like($said, qr/tuples: 800[01] removed/, "$what full, $db, $table: it removes rows");
			}
		}
		$holder->query_safe($what eq 'pool' ? 'ROLLBACK' : 'SELECT sofort_test.empty_arena()');
		$holder->quit;
		# (put back for the other round, by use of the dictionary)
		foreach my $db (@dbs)
		{
			$node->safe_psql($db, "INSERT INTO $_ SELECT i, $value FROM generate_series(1, 32000) i WHERE i % 8000 < 4000 AND i % 2 = 0") foreach @tables;
		}
		$node->restart;
	}
	# with room the values that no row has go, as always
	foreach my $table ('d_pmem', 'd_hybrid', 'd_dram')
	{
		$node->safe_psql('copy', "DELETE FROM $table WHERE i % 8000 >= 1000");
		$node->safe_psql('copy', "SELECT txid_current(); VACUUM $table; SELECT txid_current()") foreach 1 .. 4;
		is($node->safe_psql('copy', "SELECT count(*), count(*) FILTER (WHERE d <> $value) FROM $table"), '4000|0', "$table: values are right");
		is($node->safe_psql('copy', "SELECT count(*) FROM sofort.verify('$table')"), 0, "$table: verify");
	}
	$node->stop;
	$node->teardown_node;
}
done_testing();
