# Nothing a user can call brings the server down, shows him what is another's, or
# ends in an internal error. Every function and view of the schema sofort, as
# it is in the catalogs (so new ones are included), is called with every kind of
# relation, with relations that are not there, and with odd values, as superuser
# and as a user who may see nothing; while relations come and go beside it; and
# from inside statements that are changing the very table. Settings get odd values,
# and index expressions are functions that read, change, truncate and drop their own table.
# SOFORT_LONG: more rounds of random arguments.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'functions of sofort' if $SofortNode::am ne 'sofort';

my $long = $ENV{SOFORT_LONG};
my $node = SofortNode->new('fuzz');
$node->init(conf => [ 'autovacuum = off', 'jit = off', 'max_prepared_transactions = 4', "sofort.pool_size = '200MB'" ]);
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Runs statements that may fail, as a user, in one session. Returns output and errors.
sub attempt
{
	my ($user, $sql, $database) = @_;
	my ($out, $err);
	my $run = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr($database || 'postgres') . " user=$user" ],
		'<', \$sql, '>', \$out, '2>', \$err, IPC::Run::timeout(300));
	$run->finish;
	return ($out, $err);
}

# The server is as it was, and complained of nothing that users should not get.
my $log_position = 0;
sub healthy
{
	my ($what, $err) = @_;
	my $log = slurp_file($node->logfile, $log_position);
	$log_position = -s $node->logfile;
	unlike($log, qr/terminated by signal|PANIC|TRAP|AddressSanitizer|runtime error/, "$what: no process has died");
	my @bad = grep { /ERROR:  XX|server closed the connection/ } split /\n/, $err // '';
	is(join("\n", @bad), '', "$what: no internal error");
	return;
}

sql(q{
CREATE ROLE plain LOGIN;
CREATE ROLE owner LOGIN;
GRANT USAGE ON SCHEMA sofort TO PUBLIC;
CREATE SCHEMA hidden;
CREATE SCHEMA work AUTHORIZATION plain;
CREATE TABLE hidden.secret_table (id int PRIMARY KEY, secret_column text, n int) USING sofort;
INSERT INTO hidden.secret_table SELECT i, 'secret value', i FROM generate_series(1, 3000) i;
CREATE INDEX secret_pmem ON hidden.secret_table USING sofort_index (n) WITH (placement = pmem);
CREATE INDEX secret_hybrid ON hidden.secret_table USING sofort_index (n, id) WITH (placement = hybrid);
CREATE INDEX secret_btree ON hidden.secret_table (secret_column);
CREATE INDEX secret_expression ON hidden.secret_table USING sofort_index (lower(secret_column)) WHERE n > 5;
CREATE UNLOGGED TABLE hidden.secret_unlogged (id int PRIMARY KEY) USING sofort;
CREATE MATERIALIZED VIEW hidden.secret_matview USING sofort AS SELECT * FROM hidden.secret_table;
CREATE TABLE hidden.secret_parts (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE hidden.secret_part PARTITION OF hidden.secret_parts FOR VALUES FROM (0) TO (10) USING sofort;
CREATE TABLE hidden.secret_heap (id int PRIMARY KEY, t text) USING heap;
CREATE VIEW hidden.secret_view AS SELECT 1;
CREATE SEQUENCE hidden.secret_sequence;
CREATE TYPE hidden.secret_type AS (a int);
CREATE TABLE hidden.secret_no_columns () USING sofort;
CREATE TABLE hidden.secret_dropped (a int, b text, c int) USING sofort;
INSERT INTO hidden.secret_dropped VALUES (1, 'x', 2);
ALTER TABLE hidden.secret_dropped DROP COLUMN a, DROP COLUMN b, DROP COLUMN c;
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE hidden.secret_foreign (a int) SERVER nowhere;
CREATE TABLE mine (id int PRIMARY KEY, t text) USING sofort;
ALTER TABLE mine OWNER TO plain;
INSERT INTO mine SELECT i, 'mine ' || i % 9 FROM generate_series(1, 2000) i;
SELECT count(*) FROM hidden.secret_table WHERE id = 5;
});
sql('CREATE DATABASE secret_database');
$node->safe_psql('secret_database', q{CREATE EXTENSION sofort;
	CREATE TABLE secret_elsewhere (id int PRIMARY KEY, secret_column text) USING sofort;
	INSERT INTO secret_elsewhere SELECT i, 'secret value' FROM generate_series(1, 300) i;
	SELECT * FROM secret_elsewhere WHERE id = 5});
my $elsewhere = $node->safe_psql('secret_database', q{SELECT oid FROM pg_class WHERE relname = 'secret_elsewhere'});
my $gone = sql(q{CREATE TABLE gone (id int) USING sofort; SELECT 'gone'::regclass::oid; DROP TABLE gone});

# ---- every function with every relation and odd values ----
my @relations = (split(/\n/, sql(q{SELECT oid FROM pg_class WHERE relnamespace IN ('hidden'::regnamespace, 'public'::regnamespace)
	OR relname IN ('pg_class', 'pg_authid', 'pg_authid_oid_index', 'pg_attribute') OR
	oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'hidden.secret_heap'::regclass)})),
	$elsewhere, $gone, 0, 1, 2**31 - 1, 2**31, 2**32 - 1);
# (A path is where a superuser may write what he likes; these can never be made.)
my %odd = (
	text => [ "''", q{'%s%n%d'}, q{repeat('x', 1000000)}, q{E'\\n\\\\'}, q{'relative/../path'}, q{'/nonexistent/directory/file'}, q{'/dev/null/x'} ],
	int2 => [ '0', '-32768', '32767' ],
	int4 => [ '0', '-1', '2147483647', '-2147483648' ],
	int8 => [ '0', '-1', '9223372036854775807', '-9223372036854775808' ],
	float8 => [ q{'NaN'}, q{'Infinity'}, '-1' ],
	bool => [ 'true', 'false' ],
	uuid => [ q{'00000000-0000-0000-0000-000000000000'}, q{'ffffffff-ffff-ffff-ffff-ffffffffffff'} ],
	bytea => [ q{''}, q{'\\x00'}, q{decode(repeat('ff', 100000), 'hex')} ],
	oid => [ @relations ],
	regclass => [ @relations ],
	anyelement => [ 'NULL::hidden.secret_table', 'NULL::hidden.secret_dropped', 'NULL::hidden.secret_heap', 'NULL::hidden.secret_type', 'NULL::mine', '1' ],
	interval => [ q{'-1 day'}, q{'178000000 years'} ],
	xid => [ q{'0'}, q{'4294967295'} ], xid8 => [ q{'0'}, q{'18446744073709551615'} ],
	pg_lsn => [ q{'0/0'}, q{'FFFFFFFF/FFFFFFFF'} ]);

my @functions = map { [ split /\|/, $_, -1 ] } split /\n/, sql(q{
	SELECT p.oid::regproc, coalesce((SELECT string_agg(t.typname, ',' ORDER BY a.n)
		FROM unnest(p.proargtypes) WITH ORDINALITY a (t, n) JOIN pg_type t ON t.oid = a.t), '')
	FROM pg_proc p WHERE pronamespace = 'sofort'::regnamespace});
cmp_ok(scalar(@functions), '>=', 10, scalar(@functions) . ' functions are called');

# All calls of a function: for each argument each value, the others at random
sub calls_of
{
	my ($function, $types) = @_;
	my @types = split /,/, $types;
	my @calls;

	return ("$function()") if !@types;
	foreach my $round (1 .. ($long ? 20 : 1))
	{
		foreach my $i (0 .. $#types)
		{
			foreach my $value ('NULL', @{ $odd{ $types[$i] } || [] })
			{
				my @values = map { my $o = [ 'NULL', @{ $odd{ $types[$_] } || [] } ]; $_ == $i ? $value : $o->[ rand @$o ] } 0 .. $#types;
				# a literal without an operator: negative numbers, names of relations
				push @calls, "$function(" . join(', ', map { $types[$_] eq 'anyelement' ? $values[$_] : "($values[$_])::" . ($types[$_] eq 'internal' ? 'text' : $types[$_]) } 0 .. $#types) . ')'
				  if $types[$i] ne 'internal' || $value eq 'NULL';
			}
		}
	}
	return map { s/\((\d+)\)::(regclass|oid)/$1::oid::$2/gr } @calls;
}

my @calls = map { calls_of(@$_) } grep { $_->[1] !~ /internal/ } @functions;
my @views = split /\n/, sql(q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'sofort'::regnamespace AND relkind = 'v'});
cmp_ok(scalar(@views), '>=', 8, scalar(@views) . ' views are read');
my @reads = ((map { "SELECT * FROM $_;" } @calls), (map { "SELECT * FROM $_;" } @views), map { "SELECT $_;" } @calls);
diag(scalar(@reads) . ' calls');

foreach my $user ('postgres', 'plain')
{
	my ($out, $err) = attempt($user, join("\n", @reads));
	healthy("$user calls everything", $err);
	next if $user eq 'postgres';
	unlike($out, qr/secret/, 'a user is not shown names or contents of what he may not read');
	unlike(join("\n", grep { /^(0|public)?\|?$elsewhere\|/ } split /\n/, $out), qr/./, 'nor relations of other databases');
	like($out, qr/mine/, 'but his own');
}

# ---- in odd places ----
my $all = join("\n", map { "PERFORM * FROM $_;" } @views);
my ($out, $err) = attempt('plain', qq{
CREATE FUNCTION work.look() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
	$all
	PERFORM * FROM sofort.verify('mine');
	PERFORM * FROM sofort.table_info('mine'), sofort.column_info('mine'), sofort.index_info('mine_pkey');
	RETURN NULL;
END \$\$;
CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON mine FOR EACH ROW EXECUTE FUNCTION work.look();
CREATE TRIGGER look_statement AFTER INSERT OR UPDATE OR DELETE ON mine EXECUTE FUNCTION work.look();
INSERT INTO mine VALUES (-1, 'inside'), (-2, 'inside');
UPDATE mine SET t = 'inside' WHERE id < 4;
DELETE FROM mine WHERE id = 4;
BEGIN; SAVEPOINT a; UPDATE mine SET id = id - 10000 WHERE id < 4; SELECT * FROM sofort.verify('mine'); ROLLBACK TO a; SELECT * FROM sofort.verify('mine'); COMMIT;
DROP TRIGGER look ON mine; DROP TRIGGER look_statement ON mine;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM mine, sofort.tables; FETCH 3 FROM c; DELETE FROM mine WHERE id < 50; TRUNCATE mine; FETCH 3 FROM c; ROLLBACK;
BEGIN; DECLARE c CURSOR FOR SELECT * FROM mine; FETCH 3 FROM c; DELETE FROM mine; SELECT * FROM sofort.verify('mine'); FETCH 3 FROM c; ROLLBACK;
BEGIN READ ONLY; SELECT * FROM sofort.verify('mine'); COMMIT;
BEGIN; TRUNCATE mine; SELECT * FROM sofort.verify('mine'); INSERT INTO mine VALUES (1); SELECT * FROM sofort.verify('mine'); ROLLBACK;
BEGIN; ALTER TABLE mine ADD COLUMN x int DEFAULT 5; SELECT * FROM sofort.verify('mine'); SELECT count(*) FROM sofort.columns; ROLLBACK;
BEGIN; CREATE TABLE work.new (id int PRIMARY KEY) USING sofort; SELECT * FROM sofort.verify('work.new'); SELECT * FROM sofort.tables; SAVEPOINT s; DROP TABLE work.new; SELECT count(*) FROM sofort.tables; ROLLBACK TO s; SELECT * FROM sofort.verify('work.new'); ROLLBACK;
SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SELECT count(*) FROM mine m, sofort.tables t WHERE m.t IS NOT NULL;
SELECT count(sofort.table_info('mine')) FROM mine;
SELECT (SELECT count(*) FROM sofort.column_info((m.id * 7919)::oid::regclass)) FROM mine m WHERE id BETWEEN 1 AND 100;
SELECT * FROM sofort.verify('mine');
});
healthy('calls from triggers, cursors and transactions', $err);
is(sql(q{SELECT count(*) FROM sofort.verify('mine')}), 0, 'the table is sound');

# ---- an index, a check or a default that plays with its own table ----
($out, $err) = attempt('plain', q{
SET search_path = work, public;
CREATE TABLE evil (id int, v int, t text) USING sofort;
INSERT INTO evil SELECT i, i, 'evil ' || i FROM generate_series(1, 600) i;
CREATE FUNCTION reader(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN $1 + (SELECT count(*) FROM work.evil WHERE id = $1); END $$;
CREATE FUNCTION writer(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN INSERT INTO work.evil VALUES (-1, -1, 'written'); RETURN $1; END $$;
CREATE FUNCTION updater(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN UPDATE work.evil SET v = v + 1 WHERE id = $1; RETURN $1; END $$;
CREATE FUNCTION deleter(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN DELETE FROM work.evil WHERE id = $1; RETURN $1; END $$;
CREATE FUNCTION truncater(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN TRUNCATE work.evil; RETURN $1; END $$;
CREATE FUNCTION dropper(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN DROP TABLE work.evil; RETURN $1; END $$;
CREATE FUNCTION alterer(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE work.evil ADD COLUMN z int; RETURN $1; END $$;
CREATE FUNCTION reindexer(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN REINDEX TABLE work.evil; RETURN $1; END $$;
CREATE FUNCTION verifier(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN $1 + (SELECT count(*) FROM sofort.verify('work.evil')); END $$;
CREATE FUNCTION failer(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 1 / ($1 % 100 - 50); END $$;
CREATE FUNCTION fickle(int) RETURNS int IMMUTABLE LANGUAGE sql AS $$ SELECT (random() * 1000000)::int $$;
} . join('', map { my $f = $_; map { qq{
BEGIN; CREATE INDEX ON evil USING sofort_index ($f(id)) WITH (placement = $_); INSERT INTO evil VALUES (7, 7, 'x'); UPDATE evil SET id = id + 1 WHERE id = 300; DELETE FROM evil WHERE id = 10; SELECT count(*) FROM evil WHERE $f(id) = 5; ROLLBACK;
CREATE INDEX evil_index ON evil USING sofort_index ($f(id)) WITH (placement = $_);
INSERT INTO evil SELECT i, i, 'more' FROM generate_series(1, 40) i;
UPDATE evil SET id = id + 1 WHERE id IN (49, 20, 21);
DELETE FROM evil WHERE id BETWEEN 30 AND 33;
VACUUM evil;
SELECT count(*) FROM evil WHERE $f(id) BETWEEN 1 AND 50;
SELECT * FROM sofort.verify('evil');
REINDEX INDEX evil_index;
DROP INDEX IF EXISTS evil_index;
CREATE TABLE IF NOT EXISTS evil (id int, v int, t text) USING sofort;
} } ('dram', 'pmem', 'hybrid') } qw(reader writer updater deleter truncater dropper alterer reindexer verifier failer fickle))
. join('', map { qq{
ALTER TABLE evil ADD CONSTRAINT evil_check CHECK ($_(id) IS NOT NULL) NOT VALID;
INSERT INTO evil SELECT i, i, 'checked' FROM generate_series(1, 5) i;
COPY evil FROM PROGRAM 'true';
UPDATE evil SET id = id + 1 WHERE id = 3;
DELETE FROM evil WHERE $_(id) < 3;
ALTER TABLE evil DROP CONSTRAINT evil_check;
ALTER TABLE evil ALTER v SET DEFAULT $_(5);
INSERT INTO evil (id) VALUES (1000), (1001);
ALTER TABLE evil ADD COLUMN y int DEFAULT $_(6);
ALTER TABLE evil DROP COLUMN IF EXISTS y;
ALTER TABLE evil ALTER v DROP DEFAULT;
CLUSTER evil;
VACUUM FULL evil;
ANALYZE evil;
CREATE TABLE IF NOT EXISTS evil (id int, v int, t text) USING sofort;
} } qw(writer updater deleter truncater dropper alterer reindexer)));
healthy('functions that play with the table they are called for', $err);
($out, $err) = attempt('plain', 'VACUUM work.evil; REINDEX TABLE work.evil; SELECT * FROM sofort.verify(\'work.evil\')');
healthy('after them', $err);
is($out, '', 'the table is sound');

# ---- settings ----
my @settings = split /\n/, sql(q{SELECT name FROM pg_settings WHERE name LIKE 'sofort.%'});
cmp_ok(scalar(@settings), '>=', 10, scalar(@settings) . ' settings');
($out, $err) = attempt('plain', join("\n", map { my $s = $_;
	map { "SET $s = $_; SELECT count(*) FROM mine WHERE id = 5; UPDATE mine SET t = 'set' WHERE id = 5; RESET $s;" }
	  (q{''}, q{'x'}, '-1', '0', '2147483647', q{'9223372036854775808'}, q{'nan'}, 'DEFAULT', q{'pmem'}, q{'btree'}, q{'on'}, q{'/etc/passwd'}) } @settings));
healthy('a user sets settings', $err);
unlike(sql(q{SELECT string_agg(name, ',') FROM pg_settings WHERE name LIKE 'sofort.scm%' AND setting <> '0'}), qr/./, 'and changes none of another');

# ---- while relations come and go ----
my $churn = "SET client_min_messages = error;\n" . join("\n", map { qq{
CREATE TABLE work.coming (id int PRIMARY KEY, t text) USING sofort; INSERT INTO work.coming SELECT i, 'x' FROM generate_series(1, 30) i;
CREATE INDEX coming_index ON work.coming USING sofort_index (t) WITH (placement = } . ('dram', 'pmem', 'hybrid')[ $_ % 3 ] . qq{);
TRUNCATE work.coming; ALTER TABLE work.coming ADD COLUMN c text DEFAULT 'd'; VACUUM FULL work.coming; DROP INDEX work.coming_index; DROP TABLE work.coming;}
} 1 .. ($long ? 400 : 40));
my ($churn_out, $churn_err);
my $churning = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$churn, '>', \$churn_out, '2>', \$churn_err);
my $errors = '';
my $rounds = 0;
while ($churning->pumpable && $rounds < 100)
{
	(undef, $err) = attempt($rounds++ % 2 ? 'plain' : 'postgres', join("\n", map { "SELECT count(*) FROM $_ t WHERE t::text <> '';" } @views) x 20);
	$errors .= $err;
	$churning->pump_nb;
}
$churning->finish;
is($churn_err, '', 'relations come and go');
is($errors, '', "views meanwhile, $rounds times");
healthy('views beside changes', $errors);

# ---- the pool file ----
is(sprintf('%o', (stat($node->pool_file))[2] & 0777), '600', 'the pool is for its owner only');
is($node->verify_problems, '', 'verify');
is(sql('SELECT count(*) FROM sofort.verify_pool()'), 0, 'verify_pool');
$node->stop;
done_testing();
