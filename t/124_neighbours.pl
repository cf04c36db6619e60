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

$node->stop;
done_testing();
