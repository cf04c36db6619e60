# Sofort tables beside PostgreSQL's other tools: pg_dump and pg_restore, also in
# parallel, bring everything back; pg_upgrade refuses; contrib modules work;
# DROP EXTENSION leaves nothing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

my $node = SofortNode->new('tools');
$node->init(conf => [ 'autovacuum = off', "shared_preload_libraries = 'sofort, pg_stat_statements, auto_explain'", "auto_explain.log_min_duration = '1h'" ]);
$node->start;
sub sql { return $node->safe_psql($_[1] || 'postgres', $_[0]); }

sub run_tool
{
	my (@cmd) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run(\@cmd, '<', \undef, '>', \$out, '2>', \$err);
	return ($ok, $out . $err);
}

# ---- pg_dump, pg_restore ----
sql('CREATE DATABASE origin; CREATE ROLE reader');
sql(q{CREATE EXTENSION sofort;
	CREATE TYPE mood AS ENUM ('sad', 'happy');
	CREATE TABLE account (id int PRIMARY KEY, name text UNIQUE, mood mood, data jsonb, big text) USING sofort;
	CREATE TABLE entry (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account int NOT NULL REFERENCES account ON DELETE CASCADE,
		amount numeric, half numeric GENERATED ALWAYS AS (amount / 2) STORED, CHECK (amount > 0)) USING sofort;
	CREATE TABLE on_heap (id int REFERENCES account) USING heap;
	CREATE TABLE parted (k int, v text) PARTITION BY RANGE (k);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (1000) USING sofort;
	CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (1000) TO (2000) USING heap;
	CREATE UNLOGGED TABLE quick (i int PRIMARY KEY) USING sofort;
	CREATE MATERIALIZED VIEW sums USING sofort AS SELECT account, count(*) AS n FROM entry GROUP BY 1 WITH NO DATA;
	CREATE INDEX entry_account ON entry USING sofort_index (account) INCLUDE (amount) WITH (placement = pmem);
	CREATE INDEX entry_half ON entry USING sofort_index (half DESC) WHERE amount > 5;
	CREATE INDEX account_data ON account USING gin (data);
	ALTER TABLE account ADD CONSTRAINT placed UNIQUE (id, name) WITH (placement = hybrid);
	INSERT INTO account SELECT i, 'name ' || i, (ARRAY['sad', 'happy'])[1 + i % 2]::mood, jsonb_build_object('i', i), CASE WHEN i % 50 = 0 THEN repeat(md5(i::text), 500) END FROM generate_series(1, 1500) i;
	INSERT INTO entry (account, amount) SELECT 1 + i % 1500, 1 + i % 17 FROM generate_series(1, 4000) i;
	INSERT INTO on_heap SELECT generate_series(1, 100);
	INSERT INTO parted SELECT i, 'v' || i FROM generate_series(0, 1999) i;
	INSERT INTO quick SELECT generate_series(1, 10);
	DELETE FROM account WHERE id % 100 = 7 AND id > 100;
	UPDATE entry SET amount = amount + 1 WHERE id % 3 = 0;
	REFRESH MATERIALIZED VIEW sums;
	ALTER TABLE account ADD later int DEFAULT 3;
	ALTER TABLE account ENABLE ROW LEVEL SECURITY;
	CREATE POLICY p ON account USING (true);
	GRANT SELECT ON account TO reader;
	COMMENT ON TABLE account IS 'accounts'}, 'origin');
my $contents = join(' UNION ALL ', map { "SELECT '$_', count(*), md5(string_agg(x::text, E'\\n' ORDER BY x::text)) FROM $_ x" } qw(account entry on_heap parted quick sums));
my $catalog = q{SELECT c.relname, a.amname, c.reloptions, i.indisunique, i.indisprimary FROM pg_class c JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_index i ON i.indexrelid = c.oid
	WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1};
my $was = sql($contents, 'origin');
my $catalog_was = sql($catalog, 'origin');
foreach my $format ([ 'directory', '-j', 3 ], ['custom'])
{
	my ($name, @jobs) = @$format;
	my $dump = $node->basedir . "/dump.$name";
	my ($ok, $text) = run_tool('pg_dump', '-F', substr($name, 0, 1), @jobs, '-f', $dump, $node->connstr('origin'));
	ok($ok, "pg_dump @$format") || diag($text);
	sql("CREATE DATABASE back_$name");
	($ok, $text) = run_tool('pg_restore', '-j', 3, '-d', $node->connstr("back_$name"), $dump);
	ok($ok, "pg_restore of it") || diag($text);
	is(sql($contents, "back_$name"), $was, "$name: the same rows");
	is(sql($catalog, "back_$name"), $catalog_was, "$name: the same access methods and parameters");
	is($node->verify_problems("back_$name"), '', "$name: verify");
}
# a dump that leaves tables and their data apart
{
	my @part = map { $node->basedir . "/$_.sql" } qw(schema data);
	ok((run_tool('pg_dump', '-s', '-f', $part[0], $node->connstr('origin')))[0] && (run_tool('pg_dump', '-a', '--inserts', '--disable-triggers', '-f', $part[1], $node->connstr('origin')))[0], 'schema and data');
	sql('CREATE DATABASE back_plain');
	my ($ok, $text) = run_tool('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $part[0], '-f', $part[1], $node->connstr('back_plain'));
	ok($ok, 'restored by psql') || diag($text);
	sql('REFRESH MATERIALIZED VIEW sums', 'back_plain');
	is(sql($contents, 'back_plain'), $was, 'plain: the same rows');
}
sql("DROP DATABASE $_") foreach qw(back_directory back_custom back_plain);

# ---- contrib ----
my %there = map { $_ => 1 } split(/\n/, sql('SELECT name FROM pg_available_extensions'));
sql('CREATE DATABASE contrib');
sql('CREATE EXTENSION sofort; CREATE TABLE t (id int PRIMARY KEY, s text, tags int[]) USING sofort;
	INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 10, i % 7] FROM generate_series(1, 3000) i; CREATE TABLE h (LIKE t) USING heap; INSERT INTO h SELECT * FROM t', 'contrib');
sub with_extension
{
	my ($extension, $code) = @_;
	SKIP:
	{
		skip "$extension is not installed", 1 unless $there{$extension};
		sql("CREATE EXTENSION $extension", 'contrib');
		subtest $extension => $code;
	}
	return;
}
# the same query on t and h, with indexes if there are some
sub twins
{
	my ($query, $name) = @_;
	my $got = sql('SET enable_seqscan = off;' . ($query =~ s/@/t/gr), 'contrib');
	is($got, sql('SET enable_indexscan = off; SET enable_bitmapscan = off;' . ($query =~ s/@/h/gr), 'contrib'), $name || $query);
	isnt($got, '', 'and there are rows');
	return;
}
with_extension(pg_stat_statements => sub {
	sql('SELECT pg_stat_statements_reset(); SELECT s FROM t WHERE id = 5; SELECT s FROM t WHERE id = 6; UPDATE t SET s = s WHERE id < 11', 'contrib');
	is(sql(q{SELECT calls, rows FROM pg_stat_statements WHERE query LIKE 'SELECT s FROM t WHERE%'}, 'contrib'), '2|2', 'look-ups are counted');
	is(sql(q{SELECT calls, rows FROM pg_stat_statements WHERE query LIKE 'UPDATE t SET%'}, 'contrib'), '1|10', 'updates are counted');
});
with_extension(pg_trgm => sub {
	sql('CREATE INDEX t_gin ON t USING gin (s gin_trgm_ops); CREATE INDEX t_gist ON t USING gist (s gist_trgm_ops)', 'contrib');
	twins(q{SELECT id FROM @ WHERE s LIKE '%abc%' ORDER BY id});
	twins(q{SELECT id FROM @ WHERE s ~ 'ab[cd]e' ORDER BY id});
	is(sql(q{SET enable_seqscan = off; SELECT id FROM t ORDER BY s <-> md5('77'), id LIMIT 1}, 'contrib'), 77, 'nearest');
	sql('DROP INDEX t_gin, t_gist', 'contrib');
});
with_extension(btree_gin => sub {
	sql('CREATE INDEX t_two ON t USING gin (id, tags)', 'contrib');
	is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM t WHERE id BETWEEN 100 AND 900 AND tags @> ARRAY[3, 2]}, 'contrib'), sql(q{SELECT count(*) FROM h WHERE id BETWEEN 100 AND 900 AND tags @> ARRAY[3, 2]}, 'contrib'), 'two columns');
	sql('DROP INDEX t_two', 'contrib');
});
with_extension(btree_gist => sub {
	sql('CREATE TABLE booking (room int, during int4range, EXCLUDE USING gist (room WITH =, during WITH &&)) USING sofort; INSERT INTO booking VALUES (1, int4range(1, 5)), (2, int4range(1, 5))', 'contrib');
	like($node->error_of('INSERT INTO booking VALUES (1, int4range(4, 6))', 'contrib'), qr/^23P01/, 'exclusion constraint');
});
with_extension(citext => sub {
	sql(q{CREATE TABLE c (name citext PRIMARY KEY, n int) USING sofort; INSERT INTO c SELECT 'Name ' || i, i FROM generate_series(1, 500) i}, 'contrib');
	like($node->error_of(q{INSERT INTO c VALUES ('NAME 7', 1)}, 'contrib'), qr/^23505/, 'keys differ in more than case');
	is(sql(q{SET enable_seqscan = off; SELECT n, name FROM c WHERE name = 'nAmE 77'}, 'contrib'), '77|Name 77', 'and are found in any');
	is(sql(q{INSERT INTO c VALUES ('name 9', 0), ('Other', 1) ON CONFLICT (name) DO UPDATE SET n = -1; SELECT name, n FROM c WHERE n < 1 OR name = 'other' ORDER BY n}, 'contrib'), "Name 9|-1\nOther|1", 'ON CONFLICT');

	# the extension moves, and what stands for its operator class follows; in a restored dump, too
	my $ams = q{SELECT string_agg(relname || ' ' || amname, ', ' ORDER BY relname) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname LIKE 'c2\_%'};
	sql('CREATE TABLE typed (a int, k citext) USING sofort; CREATE INDEX ON typed USING sofort_index (a, k)', 'contrib');
	sql('CREATE SCHEMA elsewhere; ALTER EXTENSION citext SET SCHEMA elsewhere', 'contrib');
	is($node->error_of('ALTER TABLE typed ALTER a TYPE bigint; DROP TABLE typed', 'contrib'), '', 'an index that is made again');
	foreach my $schema ('elsewhere', 'public')
	{
		is($node->error_of(qq{DROP TABLE IF EXISTS c2; CREATE TABLE c2 (name $schema.citext PRIMARY KEY, other $schema.citext) USING sofort; CREATE INDEX c2_other ON c2 USING sofort_index (other)}, 'contrib'), '', "keys of a type in schema $schema");
		is(sql($ams, 'contrib'), 'c2_other sofort_index, c2_pkey sofort_index', 'and their indexes');
		sql("INSERT INTO c2 SELECT 'Name ' || i, 'Other ' || i FROM generate_series(1, 100) i", 'contrib');
		is(sql("SET search_path = $schema, public; SET enable_seqscan = off; SELECT name FROM c2 WHERE other = 'OTHER 7'", 'contrib'), 'Name 7', 'found in any case');
		sql('ALTER EXTENSION citext SET SCHEMA public', 'contrib') if $schema eq 'elsewhere';
	}
	my $dump = $node->basedir . '/citext.sql';
	ok((run_tool('pg_dump', '-f', $dump, $node->connstr('contrib')))[0], 'dumped');
	sql('CREATE DATABASE restored');
	ok((run_tool('psql', '-X', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored')))[0], 'restored');
	is(sql($ams, 'restored'), 'c2_other sofort_index, c2_pkey sofort_index', 'the indexes are');
	sql('CREATE TABLE c3 (name citext PRIMARY KEY) USING sofort; DROP TABLE c, c2, c3', 'restored');
	is($node->error_of('DROP EXTENSION citext', 'restored'), '', 'the extension can be dropped');
	sql('DROP DATABASE restored');
});
with_extension(hstore => sub {
	sql(q{CREATE TABLE hs (id int, h hstore) USING sofort; INSERT INTO hs SELECT i, hstore('k' || i % 5, i::text) FROM generate_series(1, 200) i; CREATE INDEX ON hs USING gin (h)}, 'contrib');
	is(sql(q{SET enable_seqscan = off; SELECT count(*) FROM hs WHERE h ? 'k3'}, 'contrib'), 40, 'by key');
});
with_extension(amcheck => sub {
	sql('CREATE INDEX t_s ON t (s)', 'contrib');
	sql('DELETE FROM t WHERE id % 10 = 3; VACUUM t', 'contrib');
	is(sql("SELECT bt_index_check('t_s', true)", 'contrib'), '', 'a btree has all rows');
	sql('INSERT INTO t SELECT * FROM h WHERE id % 10 = 3; DROP INDEX t_s', 'contrib');
});
with_extension(postgres_fdw => sub {
	my ($host, $port, $user) = ($node->host, $node->port, sql('SELECT current_user'));
	sql(qq{CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'contrib');
		CREATE USER MAPPING FOR CURRENT_USER SERVER loop OPTIONS (user '$user');
		CREATE FOREIGN TABLE ft (id int, s text, tags int[]) SERVER loop OPTIONS (table_name 't');
		CREATE FOREIGN TABLE fh (id int, s text, tags int[]) SERVER loop OPTIONS (table_name 'h')}, 'contrib');
	is(sql('SELECT count(*), md5(string_agg(s, \'\' ORDER BY id)) FROM ft', 'contrib'), sql('SELECT count(*), md5(string_agg(s, \'\' ORDER BY id)) FROM h', 'contrib'), 'read');
	is(sql('SELECT count(*) FROM ft JOIN fh USING (id, s) WHERE ft.id < 500', 'contrib'), 499, 'joined there');
	sql(q{UPDATE ft SET s = 'far' WHERE id < 4; INSERT INTO ft VALUES (9001, 'new', '{}'); DELETE FROM ft WHERE id = 4; BEGIN; DELETE FROM ft; ROLLBACK}, 'contrib');
	is(sql(q{SELECT count(*), count(*) FILTER (WHERE s = 'far'), max(id) FROM t}, 'contrib'), '3000|3|9001', 'written');
	sql('ALTER SERVER loop OPTIONS (ADD batch_size \'50\'); INSERT INTO ft SELECT i, \'b\', NULL FROM generate_series(10001, 10200) i', 'contrib');
	is(sql('SELECT count(*) FROM t WHERE id > 10000', 'contrib'), 200, 'in batches');
	sql('CREATE TABLE local (id int PRIMARY KEY, n int) USING sofort; INSERT INTO local SELECT i, i FROM generate_series(1, 100) i', 'contrib');
	is(sql('SELECT count(*) FROM local JOIN ft USING (id) WHERE n > 50', 'contrib'), 50, 'joined with a sofort table here');
});
{
	my $log = -s $node->logfile;
	sql('SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on; SELECT s FROM t WHERE id = 5; UPDATE t SET s = \'x\' WHERE id = 5', 'contrib');
	my $text = substr(slurp_file($node->logfile), $log);
	like($text, qr/Index Scan using t_pkey on t .*rows=1(?:\.00)? loops=1/, 'auto_explain: a look-up');
	like($text, qr/Update on t .*\n.*Index Scan using t_pkey on t .*rows=1(?:\.00)? loops=1/, 'auto_explain: an update');
}
is($node->verify_problems('contrib'), '', 'contrib: verify');

# ---- an extension's C code may read its tables as heap, so its script makes no sofort tables unless it names them ----
{
	my $directory = sql("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'") . '/extension';
	append_to_file("$directory/has_tables.control", "default_version = '1'\nrelocatable = true\n");
	append_to_file("$directory/has_tables--1.sql", q{CREATE TABLE plain (i int PRIMARY KEY);
		CREATE TABLE made_as AS SELECT 1 AS i;
		CREATE MATERIALIZED VIEW seen AS SELECT 1 AS i;
		CREATE TABLE parted (i int) PARTITION BY LIST (i);
		CREATE TABLE part PARTITION OF parted DEFAULT;
		CREATE FUNCTION make(name) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE format(''CREATE TABLE %I (i int)'', $1); END';
		SELECT make('in_function');
		CREATE TABLE named (i int PRIMARY KEY) USING sofort;});
	append_to_file("$directory/has_tables--1--2.sql", 'CREATE TABLE later (i int);');
	sql(q{SET default_table_access_method = sofort; CREATE EXTENSION has_tables; ALTER EXTENSION has_tables UPDATE TO '2'; SELECT make('not_in_script')}, 'contrib');
	is(sql(q{SELECT string_agg(relname || ' ' || amname, ', ' ORDER BY relname) FROM pg_class c JOIN pg_am a ON a.oid = relam
		WHERE relname IN ('plain', 'plain_pkey', 'made_as', 'seen', 'part', 'in_function', 'named', 'named_pkey', 'later', 'not_in_script')}, 'contrib'),
		'in_function heap, later heap, made_as heap, named sofort, named_pkey sofort_index, not_in_script sofort, part heap, plain heap, plain_pkey btree, seen heap',
		'tables that the script of an extension makes');
	sql('DROP EXTENSION has_tables; DROP TABLE not_in_script', 'contrib');
	unlink(glob("$directory/has_tables*")) == 3 or BAIL_OUT('has_tables is left');
}

# ---- ANALYZE of a table whose (virtual) blocks are more than a file segment has ----
$node->safe_psql('postgres', q{CREATE TABLE many (id int, x char(1800)) USING sofort WITH (fillfactor = 10);
	INSERT INTO many SELECT i, 'x' FROM generate_series(1, 135000) i});
cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('many') / 8192}), '>', 131072, 'a table of many blocks');
is($node->safe_psql('postgres', q{BEGIN; SET maintenance_io_concurrency = 20; SELECT count(*) FROM many; COMMIT; SHOW maintenance_io_concurrency}), "135000\n20", 'a setting stays what it is');
$node->safe_psql('postgres', 'ALTER TABLESPACE pg_default SET (maintenance_io_concurrency = 10)');
like($node->error_of('ANALYZE many'), $node->pg_version < 17 ? qr/^0A000: cannot analyze sofort table "many" of \d+ blocks in a tablespace with maintenance_io_concurrency$/ : qr/^$/, 'ANALYZE, prefetching by the tablespace');
$node->safe_psql('postgres', 'ALTER TABLESPACE pg_default RESET (maintenance_io_concurrency)');
is($node->error_of('ANALYZE many'), '', 'ANALYZE');
is($node->safe_psql('postgres', q{SELECT reltuples BETWEEN 134000 AND 136000 FROM pg_class WHERE relname = 'many'; SHOW maintenance_io_concurrency}), "t\n" . ($node->pg_version < 18 ? 10 : 16), 'it has counted them');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_prewarm');
like($node->error_of("SELECT pg_prewarm('many')"), qr/^XX001: could not read block/, 'its file is empty');
$node->safe_psql('postgres', 'DROP TABLE many; DROP EXTENSION pg_prewarm');

# ---- DROP EXTENSION ----
my $stores = sql('SELECT stores FROM sofort.pool');
like($node->error_of('DROP EXTENSION sofort', 'origin'), qr/^2BP01/, 'tables depend on the extension');
sql('BEGIN; SET client_min_messages = warning; DROP EXTENSION sofort CASCADE; ROLLBACK', 'origin');
is(sql($contents, 'origin'), $was, 'rolled back');
sql('SET client_min_messages = warning; DROP EXTENSION sofort CASCADE', 'origin');
is(sql('SELECT count(*) FROM on_heap; SELECT count(*) FROM parted', 'origin'), "100\n1000", 'what is on heap is left');
is(sql('SELECT stores FROM sofort.pool'), $stores - 5, 'the stores are gone');
sql('CREATE EXTENSION sofort; CREATE TABLE again (i int PRIMARY KEY) USING sofort; INSERT INTO again VALUES (1)', 'origin');
is(sql('SELECT i FROM again', 'origin'), 1, 'and it can come back');
is($node->verify_problems, '', 'verify');

# ---- pg_upgrade ----
sql("DROP DATABASE $_") foreach qw(contrib);
my $new = SofortNode->new('upgraded');
$new->init(conf => [ 'autovacuum = off' ]);
$node->stop;
sub upgrade_to
{
	my ($to) = @_;
	my $bin = $node->config_data('--bindir');
	return run_tool('pg_upgrade', '-d', $node->data_dir, '-D', $to->data_dir, '-b', $bin, '-B', $bin,
		'-p', $node->port, '-P', $to->port, '-s', $node->host, '-U', scalar getpwuid($<));
}
chdir $node->basedir;
my ($ok, $text) = upgrade_to($new);
ok(!$ok, 'pg_upgrade of a cluster with sofort tables fails');
my $why = `grep -rhs 'cannot upgrade sofort' '@{[ $new->data_dir ]}/pg_upgrade_output.d' '@{[ $node->basedir ]}' --include='*.log' | head -1`;
like($why, qr/ERROR:  cannot upgrade sofort tables with pg_upgrade/, 'and says why') || diag($text);
$node->start;
is(sql('SELECT i FROM again', 'origin'), 1, 'the old cluster is as it was');
sql('ALTER TABLE again SET ACCESS METHOD heap', 'origin');
$node->stop;
$new->teardown_node;
$new = SofortNode->new('upgraded2');
$new->init(conf => [ 'autovacuum = off' ]);
($ok, $text) = upgrade_to($new);
ok($ok, 'without sofort tables it works') || diag($text);
$new->start(no_extension => 1);
is($new->safe_psql('origin', q{SELECT i FROM again; CREATE TABLE s (i int PRIMARY KEY) USING sofort; INSERT INTO s VALUES (5); SELECT i FROM s}), "1\n5", 'sofort tables in the new cluster');
$new->stop;
$new->teardown_node;
$node->teardown_node;
done_testing();
