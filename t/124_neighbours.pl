# Rows that lie side by side are of different sessions: whoever fills one must not touch the
# words of the next, which another session changes at that moment. The records here are as
# long as their fields: none has a bitmap of NULLs or padding behind it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Session;
use SofortNode;
use Test::More;

my $rounds = $ENV{SOFORT_LONG} ? 20 : 6;
my $sessions = 4;

my $node = SofortNode->new('main');
$node->init(conf => [ 'autovacuum = off' ]);
$node->start;
$node->safe_psql('postgres', qq{
	CREATE TABLE plain (id bigint NOT NULL, s bigint NOT NULL) USING $SofortNode::am;
	CREATE TABLE coded (a int NOT NULL, b int NOT NULL) USING $SofortNode::am;
	INSERT INTO plain SELECT -g * 10000000000, g * 10000000000 FROM generate_series(1, 2000) g;
	INSERT INTO coded SELECT g % 7, g % 50 FROM generate_series(1, 2000) g;
	-- single rows, of which every other one is undone
	CREATE PROCEDURE work(s int, n int) LANGUAGE plpgsql AS \$\$
	BEGIN
		FOR i IN 1 .. n LOOP
			BEGIN
				INSERT INTO plain VALUES (i, s);
				INSERT INTO coded VALUES (s, i % 50);
				IF i % 2 = 0 THEN
					RAISE EXCEPTION 'undone' USING ERRCODE = 'P0099';
				END IF;
			EXCEPTION WHEN SQLSTATE 'P0099' THEN
				NULL;
			END;
			IF i % 10 = 0 THEN
				COMMIT;
			END IF;
		END LOOP;
	END \$\$;
});

foreach my $round (1 .. $rounds)
{
	my @s = map { session_on($node) } 1 .. $sessions;
	send_to($s[ $_ - 1 ], "CALL work($_, 20000)") foreach 1 .. $sessions;
	my @said = map { answer($_) } @s;
	is("@said", ' ' x ($sessions - 1), "round $round: all sessions come to an end");
	$_->{run}->finish foreach map { $_->{in} .= "\\q\n"; $_ } @s;
	last unless is($node->verify_problems, '', "round $round: every row is as its session left it");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM plain WHERE id > 0 UNION ALL SELECT count(*) - 2000 FROM coded}),
		join("\n", (10000 * $sessions * $round) x 2), "round $round: what was undone is not there, what was not is");
}

# Runs of three blocks that fill a granule to its last byte, without a bitmap of NULLs: who reads
# the last row must not touch what lies behind it, which may be a hole of the file. On tmpfs that
# takes a page, and if there is none it is the end of the server.
$node->safe_psql('postgres', qq{
	CREATE TABLE full_runs (a int NOT NULL, b "char" NOT NULL, f1 float8, f2 float8, f3 float8, f4 float8, f5 float8, f6 float8,
		f7 float8, f8 float8) USING $SofortNode::am;
	CREATE INDEX ON full_runs (a);
	CREATE INDEX ON full_runs (b);
	INSERT INTO full_runs SELECT g, 'c', random(), random(), random(), random(), random(), random(), random(), random()
		FROM generate_series(1, 1016 + 36 * 256) g});
my $blocks = (stat $node->pool_file)[12];
$node->safe_psql('postgres', 'SELECT sum(f8) FROM full_runs');
is((stat $node->pool_file)[12], $blocks, 'reading all rows of a table takes no space');

$node->stop;
done_testing();
