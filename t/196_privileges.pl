# What a user without rights could do to others: a table that changes between the
# moment at which salvage() learns its row type, or whose it is, and the moment at
# which it reads it; a schema prepared for the extension; a search path for the
# functions of an index that somebody else verifies; values whose hashes collide;
# a check of uniqueness that takes long.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Protocol;
use Session;
use SofortNode;
use Test::More;

plan skip_all => 'functions of sofort' if $SofortNode::am ne 'sofort';

my $node = SofortNode->new('privileges');
$node->init(conf => ['autovacuum = off']);
$node->start;
sub sql { return $node->safe_psql($_[1] || 'postgres', $_[0]); }

sql(q{CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA sofort TO PUBLIC; CREATE SCHEMA work AUTHORIZATION plain;
	ALTER ROLE plain SET search_path = work});

# ---- salvage() of a table that changes after its row type was looked up ----
my $session = session_on($node, 'plain');
my $changed = qr/ERROR:  55006: table "t" was changed meanwhile/;
my %changes = (
	'a value becomes a pointer' => [ 'a int, b int', '1, 77', 'ALTER b TYPE text USING b::text' ],
	'a pointer becomes a value' => [ 'a int, b text', q{1, 'x'}, 'ALTER b TYPE bigint USING 5' ],
	'a shorter value' => [ 'a int, b bigint', '1, -1', 'ALTER b TYPE smallint USING 5' ],
	'another type of the same kind' => [ 'a int, b date', q{1, '2000-01-01'}, 'ALTER b TYPE int USING 5' ],
	'another type modifier' => [ 'a int, b numeric(8, 4)', '1, 2.5', 'ALTER b TYPE numeric(4, 1)' ],
	'another collation' => [ 'a int, b text', q{1, 'x'}, 'ALTER b TYPE text COLLATE "C"' ],
	'a column less' => [ 'a int, b text', q{1, 'x'}, 'DROP b' ],
	'a column more' => [ 'a int, b text', q{1, 'x'}, 'ADD c int DEFAULT 3' ]);
foreach my $what (sort keys %changes)
{
	my ($columns, $row, $change) = @{ $changes{$what} };
	my $make = qq{SET client_min_messages = error; DROP TABLE IF EXISTS t; CREATE TABLE t ($columns) USING sofort; INSERT INTO t VALUES ($row);
		CREATE OR REPLACE FUNCTION alt() RETURNS int LANGUAGE plpgsql AS \$\$ BEGIN ALTER TABLE t $change; RETURN 1; END \$\$};

	say_to($session, $make);
	like(say_to($session, 'SELECT s.* FROM (SELECT alt() OFFSET 0) x, LATERAL (SELECT * FROM sofort.salvage(NULL::t) OFFSET 0) s'),
		$changed, "$what, in the statement itself");
	say_to($session, $make);
	like(say_to($session, 'SELECT sofort.salvage(CASE alt() WHEN 1 THEN NULL::t END)'), $changed, "$what, in the argument");

	# (a row type that the session does not know yet it learns when it has waited)
	say_to($session, "$make; SELECT * FROM sofort.salvage(NULL::t)");
	my $alterer = session_on($node);
	say_to($alterer, "BEGIN; ALTER TABLE work.t $change");
	send_to($session, 'SELECT * FROM sofort.salvage(NULL::t)');
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'work.t'::regclass AND NOT granted}), "$what: salvage() waits");
	say_to($alterer, 'COMMIT');
	like(answer($session), $changed, "$what, while it waits");
	unlike(say_to($session, 'SELECT * FROM sofort.salvage(NULL::t)'), qr/ERROR/, "$what: as it is now");
	$alterer->{run}->finish;
}
is(say_to($session, q{DROP TABLE t; CREATE TABLE t (x int, a int, b numeric(8, 4), c text COLLATE "C", d char(5)) USING sofort; ALTER TABLE t DROP x;
	INSERT INTO t VALUES (1, 2.5, 'x', 'y'); SELECT * FROM sofort.salvage(NULL::t)}), "1|2.5000|x|y    \n", 'a table that nobody changes');

# ---- a table that gets another owner ----
foreach my $function ('sofort.salvage(NULL::t)', q{sofort.salvage_report('t')}, q{sofort.verify('t')}, q{sofort.set_dictionary_placement('t', 'c', 'pmem')})
{
	my $alterer = session_on($node);
	say_to($alterer, 'BEGIN; ALTER TABLE work.t OWNER TO current_user');
	send_to($session, "SELECT * FROM $function");
	ok($node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'work.t'::regclass AND NOT granted}), "$function waits");
	say_to($alterer, 'COMMIT');
	like(answer($session), qr/ERROR:  42501: must be owner of table t/, "$function: for the owner that the table has then");
	say_to($alterer, 'ALTER TABLE work.t OWNER TO plain');
	$alterer->{run}->finish;
}
$session->{run}->finish;

# ---- functions of indexes that a background worker rebuilds: it is nobody's session, and might do anything ----
$session = session_on($node, 'plain');
is(say_to($session, q{
CREATE FUNCTION rise() RETURNS int LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE plain SUPERUSER; RETURN 0; EXCEPTION WHEN OTHERS THEN RETURN 0; END $$;
CREATE FUNCTION zero(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN work.rise(); END $$;
CREATE TABLE ladder (a int) USING sofort;
INSERT INTO ladder SELECT generate_series(1, 100);
CREATE INDEX by_constant ON ladder USING sofort_index ((a + work.zero(1)));
CREATE INDEX by_column ON ladder USING sofort_index (work.zero(a));
CREATE INDEX by_predicate ON ladder USING sofort_index (a) WHERE a > work.zero(1)}), '', 'indexes whose functions make their owner a superuser, if they can');
$session->{run}->finish;
$node->restart;
ok($node->wait_until(q{SELECT count(*) = 3 AND (SELECT phase FROM sofort.recovery) = 'finished' FROM sofort.recovery_order WHERE relation = 'work.ladder'::regclass AND rebuilt_as IS NOT NULL}),
	'background workers have rebuilt them');
is(sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'plain'}), 'f', 'they cannot');

# ---- functions of indexes that need each other's indexes: their builds are nested, in a background worker and in whoever comes first ----
my $length = 20;
my $chained = "SELECT count(*) = $length FROM sofort.indexes WHERE relation::text LIKE 'work.chain%' AND status = 'ready'";
$session = session_on($node, 'plain');
say_to($session, 'SET client_min_messages = error');
is(say_to($session, join('; ', map {
	my $next = $_ + 1;
	qq{CREATE TABLE chain_$_ (a int) USING sofort; INSERT INTO chain_$_ VALUES (1);
	CREATE FUNCTION read_$_(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql SET search_path = work, sofort SET enable_seqscan = off
		AS 'BEGIN RETURN } . ($_ == $length ? 'i' : "(SELECT count(*) FROM chain_$next WHERE read_$next(a) >= 0)") . q{; END'} } reverse 1 .. $length)),
	'', 'tables and functions');
is(say_to($session, join('; ', map { "CREATE INDEX chained_$_ ON chain_$_ USING sofort_index (read_$_(a))" } 1 .. $length)),
	'', 'indexes whose functions look up the next one');
$session->{run}->finish;
$node->restart;
ok($node->wait_until($chained), 'background workers rebuild them');
sql('ALTER SYSTEM SET sofort.recovery_workers = 0');
$node->restart;
is(sql('SET enable_seqscan = off; SELECT a FROM work.chain_1 WHERE work.read_1(a) = 1'), 1, 'whoever needs the first one rebuilds them');
is(sql($chained), 't', 'all are there');
sql('ALTER SYSTEM RESET sofort.recovery_workers; SELECT pg_reload_conf()');

# ---- the search path of whoever verifies ----
SKIP:
{
	skip 'PostgreSQL builds indexes with the search path of its user', 1 if $node->pg_version < 17;
	sql(q{CREATE FUNCTION public.looks(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('search_path') <> 'pg_catalog, pg_temp' THEN RAISE 'search path %', current_setting('search_path'); END IF; RETURN $1; END $$;
		CREATE TABLE public.looked (a int) USING sofort; INSERT INTO public.looked SELECT generate_series(1, 10);
		CREATE INDEX ON public.looked USING sofort_index (public.looks(a)) WHERE public.looks(a) > 3;
		CREATE INDEX ON public.looked USING sofort_index (a) INCLUDE (a) WHERE public.looks(a) > 3});
	is(sql(q{SET search_path = public; SELECT * FROM sofort.verify('looked'); SHOW search_path}), 'public', 'is not the one of the functions of indexes, and stays');
}

# ---- a schema prepared for the extension ----
sql('CREATE ROLE owner LOGIN; CREATE DATABASE prepared OWNER owner');
my $fake = q{CREATE FUNCTION sofort.verify(text, OUT relation regclass, OUT kind text, OUT place text, OUT problem text) RETURNS SETOF record LANGUAGE sql AS
	$$ SELECT 'pg_class'::regclass, current_user::text, 'fake', 'fake' $$};
my $attack = session_on($node, 'owner', 'prepared');
my $refused = qr/^55000: schema "sofort" is not fit for the extension/;
sub create_extension { return $node->error_of('CREATE EXTENSION sofort', 'prepared'); }

say_to($attack, 'CREATE SCHEMA sofort');
like(create_extension(), $refused, 'an empty schema of another role');
say_to($attack, $fake);
like(create_extension(), $refused, 'a schema of another role with a function');
sql('ALTER SCHEMA sofort OWNER TO current_user', 'prepared');
like(create_extension(), $refused, 'own schema with a function of another role');
sql('DROP SCHEMA sofort CASCADE; CREATE SCHEMA sofort; GRANT ALL ON SCHEMA sofort TO owner', 'prepared');
my %objects = (
	FUNCTION => [ $fake, 'sofort.verify(text)' ],
	TABLE => [ 'CREATE TABLE sofort.pg_class (a int)', 'sofort.pg_class' ],
	VIEW => [ 'CREATE VIEW sofort.v AS SELECT 1', 'sofort.v' ],
	SEQUENCE => [ 'CREATE SEQUENCE sofort.s', 'sofort.s' ],
	TYPE => [ q{CREATE TYPE sofort.text AS ENUM ('a')}, 'sofort.text' ],
	DOMAIN => [ 'CREATE DOMAIN sofort.d AS int', 'sofort.d' ],
	AGGREGATE => [ 'CREATE AGGREGATE sofort.a (int) (SFUNC = int4pl, STYPE = int)', 'sofort.a(int)' ],
	OPERATOR => [ 'CREATE OPERATOR sofort.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)', 'sofort.=== (int, int)' ],
	COLLATION => [ 'CREATE COLLATION sofort.c FROM "C"', 'sofort.c' ],
	CONVERSION => [ q{CREATE CONVERSION sofort.c FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8}, 'sofort.c' ],
	'TEXT SEARCH CONFIGURATION' => [ 'CREATE TEXT SEARCH CONFIGURATION sofort.c (COPY = simple)', 'sofort.c' ],
	'TEXT SEARCH DICTIONARY' => [ 'CREATE TEXT SEARCH DICTIONARY sofort.d (TEMPLATE = simple)', 'sofort.d' ],
	STATISTICS => [ 'CREATE STATISTICS sofort.x (ndistinct) ON a, b FROM public.base', 'sofort.x' ]);
say_to($attack, 'CREATE TABLE public.base (a int, b int)');
foreach my $kind (sort keys %objects)
{
	my ($create, $name) = @{ $objects{$kind} };
	is(say_to($attack, $create), '', "a $kind of another role in it");
	like(create_extension(), $refused, 'is noticed');
	is($node->error_of("ALTER $kind $name OWNER TO pg_monitor", 'prepared'), '', 'given to a predefined role');
	like(create_extension(), $refused, 'it is noticed, too');
	sql("ALTER $kind $name OWNER TO current_user", 'prepared');
	is($node->error_of("CREATE EXTENSION sofort; DROP EXTENSION sofort", 'prepared'), '', 'own ones are not in the way');
	sql("DROP $kind $name", 'prepared');
}
sql('CREATE EXTENSION sofort', 'prepared');
is(sql('SELECT count(*) FROM sofort.pool', 'prepared'), 1, 'an empty schema of a superuser will do');
sql('DROP EXTENSION sofort; CREATE EXTENSION sofort; DROP EXTENSION sofort; DROP SCHEMA sofort; CREATE EXTENSION sofort', 'prepared');
is(sql('SHOW search_path', 'prepared'), '"$user", public', 'the search path is as it was');
is(sql(q{SELECT pg_get_userbyid(nspowner) = current_user FROM pg_namespace WHERE nspname = 'sofort'}, 'prepared'), 't', 'without a schema it makes its own');
$attack->{run}->finish;

# ---- functions that the planner puts in the place of PostgreSQL's: with whose privileges ----
sql('CREATE DATABASE hardened');
sql('ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; CREATE EXTENSION sofort; CREATE TABLE t (i int) USING sofort; GRANT SELECT ON t TO plain; ALTER SCHEMA sofort RENAME TO elsewhere; CREATE SCHEMA sofort AUTHORIZATION plain', 'hardened');
my $plain = session_on($node, 'plain', 'hardened');
like(say_to($plain, q{SELECT pg_relation_size('pg_class') > 0}), qr/^t$/m, 'pg_relation_size() where functions are not for everybody');
say_to($plain, q{CREATE FUNCTION sofort.relation_size(regclass) RETURNS text LANGUAGE sql AS $$ SELECT 'caught'::text $$; GRANT ALL ON SCHEMA sofort TO PUBLIC});
like(sql(q{SELECT pg_relation_size('t')}, 'hardened'), qr/^\d+$/, 'another schema of that name is not looked at');
sql('REVOKE EXECUTE ON FUNCTION pg_relation_size(regclass), pg_relation_size(regclass, text), pg_table_size FROM PUBLIC', 'hardened');
like(say_to($plain, q{SELECT pg_relation_size('public.t')}), qr/42501: permission denied for function pg_relation_size/, 'who may not call it, may not');
like(say_to($plain, q{SELECT pg_table_size('public.t')}), qr/42501: permission denied for function pg_table_size/, 'nor this one');
$plain->{run}->finish;

# ---- a procedure that rolls back has lost its portal's plan, if it came by Parse and Bind ----
sql(q{CREATE PROCEDURE rolls_back() LANGUAGE plpgsql AS 'BEGIN ROLLBACK; PERFORM 1; COMMIT; END'; CREATE TABLE work.rolled (i int) USING sofort});
my $raw = raw_session($node);
is(exchange($raw, extended($_) . $sync), /CALL/ ? 'CALL' : 'DO', $_)
  foreach ('DO $$ BEGIN ROLLBACK; END $$', 'DO $$ BEGIN ROLLBACK; PERFORM 1; INSERT INTO work.rolled VALUES (1); END $$', 'CALL rolls_back()');
is(sql('SELECT count(*) FROM work.rolled'), 1, 'what came after the rollback is there');
close $raw;

# ---- values whose hashes collide: who looks for one holds a lock of the whole server ----
sql(q{
	CREATE SCHEMA flood;
	CREATE FUNCTION flood.times(bigint, numeric) RETURNS bigint IMMUTABLE LANGUAGE sql AS $$
		SELECT CASE WHEN p >= 9223372036854775808 THEN p - 18446744073709551616 ELSE p END::bigint
		FROM (SELECT (CASE WHEN $1 < 0 THEN $1 + 18446744073709551616 ELSE $1 END * $2) % 18446744073709551616 AS p) x $$;
	CREATE FUNCTION flood.shifted(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS $$ SELECT $1 # (($1 >> 33) & 2147483647) $$;
	-- the bigint that has this hash
	CREATE FUNCTION flood.unhash(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS $$
		SELECT flood.shifted(flood.times(flood.shifted(flood.times(flood.shifted($1), 11291846944257947611)), 5725274745694666757)) $$;
	-- all of them belong into slot 0, and half of these into slot 0 of a smaller table
	CREATE TABLE flood.one AS SELECT flood.unhash(k << 32) AS v FROM generate_series(1, 3000::bigint) k;
	CREATE TABLE flood.two AS SELECT flood.unhash((k << 32) | (k % 2 << 15)) AS v FROM generate_series(1, 1400::bigint) k});

sub flooded_encoding
{
	return sql("SELECT encoding FROM sofort.columns WHERE relation = '$_[0]'::regclass AND attnum = 1");
}

# Every row is found by its value, also one whose value is in the dictionary and not in its hash table.
sub is_like_heap
{
	my ($t, $values, $what) = @_;
	my $found = 'count(*), sum(id), sum(v::numeric)';

	foreach my $query ("FROM TABLE", "FROM TABLE WHERE v IN (SELECT v FROM $values)", "FROM TABLE JOIN $values USING (v)",
		"FROM (SELECT x.* FROM (SELECT v FROM $values ORDER BY v LIMIT 20) c, LATERAL (SELECT * FROM TABLE t WHERE t.v = c.v OFFSET 0) x) y", 'FROM TABLE WHERE v = 1')
	{
		my ($sofort, $heap) = map { (my $q = $query) =~ s/TABLE/$_/; sql("SELECT $found $q") } "flood.$t", "flood.${t}_heap";
		is($sofort, $heap, "$what: $query");
	}
	is(sql("SELECT * FROM sofort.verify('flood.$t')"), '', "$what: verify()");
	return;
}

my @placements = qw(dram pmem hybrid);
foreach my $placement (@placements)
{
	my $t = "one_$placement";
	sql(qq{CREATE TABLE flood.$t (v bigint, id int) USING sofort; CREATE TABLE flood.${t}_heap (v bigint, id int) USING heap;
		SET sofort.dictionary_placement = $placement;
		INSERT INTO flood.$t SELECT i % 8, i FROM generate_series(1, 2000) i;
		INSERT INTO flood.$t SELECT 1, i FROM generate_series(2001, 40000) i});
	is(flooded_encoding("flood.$t"), 'dictionary', "$placement: a dictionary");
	sql("INSERT INTO flood.$t SELECT v, -1 FROM flood.one; UPDATE flood.$t SET v = (SELECT max(v) FROM flood.one) WHERE id BETWEEN 5 AND 20;
		INSERT INTO flood.${t}_heap SELECT * FROM flood.$t");
	is(flooded_encoding("flood.$t"), 'plain', "$placement: the column leaves it before it is full of them");
	is_like_heap($t, 'flood.one', $placement);

	# where there are enough other values their table has a place for each; one that is made anew is half as large
	$t = "two_$placement";
	my $before = $placement eq 'pmem' ? 'hybrid' : 'pmem';
	sql(qq{CREATE TABLE flood.$t (v bigint, id int) USING sofort; CREATE TABLE flood.${t}_heap (v bigint, id int) USING heap;
		SET sofort.dictionary_placement = pmem;
		INSERT INTO flood.$t SELECT i % 8, i FROM generate_series(1, 2000) i;
		INSERT INTO flood.$t SELECT 1, i FROM generate_series(2001, 60000) i;
		INSERT INTO flood.$t SELECT i, i FROM generate_series(1, 12300) i;
		INSERT INTO flood.$t SELECT v, -1 FROM flood.two;
		CREATE INDEX ON flood.$t USING sofort_index (v);
		SELECT sofort.set_dictionary_placement('flood.$t', 'v', '$before');
		SELECT sofort.set_dictionary_placement('flood.$t', 'v', '$placement');
		INSERT INTO flood.${t}_heap SELECT * FROM flood.$t});
	is(flooded_encoding("flood.$t"), 'dictionary', "$placement: they are in the dictionary");
	is_like_heap($t, 'flood.two', "$placement, a new table");
}
foreach my $how ('restart', 'crash')
{
	$how eq 'crash' ? $node->crash_and_start : $node->restart;
	foreach my $placement (@placements)
	{
		is_like_heap("one_$placement", 'flood.one', "$placement, $how");
		sql("INSERT INTO flood.one_$_ SELECT v, -2 FROM flood.one") foreach $placement, "${placement}_heap";
		is_like_heap("one_$placement", 'flood.one', "$placement, $how, more rows");
		is_like_heap("two_$placement", 'flood.two', "$placement, a new table, $how");
		sql("INSERT INTO flood.two_$_ SELECT v, -2 FROM flood.two") foreach $placement, "${placement}_heap";
		# (hybrid: there is a second table after the start, with places; such values get a second code)
		is(flooded_encoding("flood.two_$placement"), $placement eq 'hybrid' && $how eq 'restart' ? 'dictionary' : 'plain',
			"$placement, $how: what the new table has no place for is no value of the dictionary any more");
		is_like_heap("two_$placement", 'flood.two', "$placement, a new table, $how, more rows");
		sql("DELETE FROM flood.two_$_ WHERE id = -1 OR id > 100") foreach $placement, "${placement}_heap";
		sql("VACUUM flood.two_$placement") foreach 1 .. 3;
		sql("INSERT INTO flood.two_$_ SELECT v, -3 FROM flood.two") foreach $placement, "${placement}_heap";
		is_like_heap("two_$placement", 'flood.two', "$placement, a new table, $how, after VACUUM");
	}
}

# ---- who checks a key's uniqueness holds a lock: of his own index ----
sql(q{CREATE TABLE work.checked (i int) USING sofort; CREATE UNIQUE INDEX ON work.checked USING sofort_index (i) WITH (placement = pmem);
	CREATE TABLE work.other (i int PRIMARY KEY) USING sofort});
my @checkers = map { session_on($node) } 1 .. 2;
$node->arm('tree-entry-written', 'wait');
send_to($checkers[0], 'INSERT INTO work.checked VALUES (1)');
ok($node->wait_at('tree-entry-written'), 'somebody is busy with a key');
send_to($checkers[1], 'INSERT INTO work.other SELECT generate_series(1, 10000)');
ok($node->wait_until(q{SELECT count(*) = 10000 FROM work.other}), 'no key of another index waits for that');
$node->disarm('tree-entry-written');
is(answer($_), '', 'done') foreach @checkers;
$_->{run}->finish foreach @checkers;
is(sql('SELECT count(*) FROM work.checked'), 1, 'the key is there');

unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP|shmem_exit slots/, 'no process has died');

$node->stop;
done_testing();
