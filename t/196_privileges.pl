# What a user without rights could do to others: a table that changes between the
# moment at which salvage() learns its row type, or whose it is, and the moment at
# which it reads it; a schema prepared for the extension; a search path for the
# functions of an index that somebody else verifies.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
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
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP/, 'no process has died');

$node->stop;
done_testing();
