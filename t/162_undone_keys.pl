# Of a row whose transaction had not committed a power cut may leave anything: its words and its
# reference, and not what that leads to; or a reference that leads nowhere. Such rows are undone,
# but they lie in the blocks whose columns are read as a whole by searches in place of an index and
# by what builds one again, and nothing may take for a value what is none there.
#
# Here the contents of such rows are overwritten in the file while no server runs.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SofortNode;
use Test::More;

plan skip_all => 'only for sofort' if $SofortNode::am ne 'sofort';

my $rows = 3000;
my $undone = 40;
my $mark = 'RowOfNoTransaction';

# What may lie where a value was to be: its header in front of the mark
my %contents = (
	'never written' => sub { return "\0" x length($_[0]) },
	'as much as there can be' => sub { return pack('V', 0xFFFFFFFC) . substr($_[0], 4) },
	'compressed' => sub { return pack('V', 300 << 2 | 2) . substr($_[0], 4) },
	'toasted' => sub { return "\x01\x12" . substr($_[0], 2) });

# Returns how many places were overwritten. (The file is much longer than what is in it.)
sub overwrite
{
	my ($node, $pattern, $new) = @_;
	my $n = 0;
	open my $f, '+<:raw', $node->pool_file or die $node->pool_file . ": $!";
	my ($data, $hole) = (0, 0);
	while (defined($data = sysseek($f, $hole, 3)))	# SEEK_DATA, SEEK_HOLE
	{
		$hole = sysseek($f, $data, 4);
		sysseek($f, $data, 0);
		sysread($f, my $bytes, $hole - $data) == $hole - $data or die "read: $!";
		while ($bytes =~ /$pattern/g)
		{
			my ($at, $length) = ($-[0], $+[0] - $-[0]);
			sysseek($f, $data + $at, 0);
			syswrite($f, $new->(substr($bytes, $at, $length))) == $length or die "write: $!";
			$n++;
		}
	}
	close $f or die $node->pool_file . ": $!";
	return $n;
}

foreach my $what (sort keys %contents)
{
	my $node = SofortNode->new($what =~ s/ /_/gr);
	$node->init(conf => [ 'autovacuum = off', "sofort.pool_size = '64MB'", 'sofort.recovery_workers = 0' ]);
	$node->start;

	my @queries = map { "SET enable_seqscan = off; SET enable_bitmapscan = off; $_" } (
		"SELECT count(*), md5(string_agg(s, '' ORDER BY s)) FROM t WHERE s >= 'a' AND s < 'c'",
		"SELECT count(*), md5(string_agg(s, '' ORDER BY s)) FROM t WHERE s > 'A' AND s < 'Z'",
		"SELECT count(*) FROM t WHERE s = '$mark'", 'SELECT count(*) FROM t WHERE s IS NULL',
		'SELECT count(*), sum(n) FROM t WHERE n BETWEEN 1 AND 1e59',
		'SELECT count(*), sum(n) FROM t WHERE n BETWEEN -1e9 AND 1e61', 'SELECT count(*), sum(m) FROM t WHERE m BETWEEN 10 AND 1e25');
	my @answers;
	my $right = sub
	{
		my ($when) = @_;
		is($node->safe_psql('original', $queries[$_]), $answers[$_], "$what, $when: query $_") foreach 0 .. $#queries;
		is($node->verify_problems('original'), '', "$what, $when: clean");
	};

	# values by reference and in rows, in blocks with room for more
	$node->safe_psql('postgres', 'CREATE DATABASE original');
	$node->safe_psql('original', 'CREATE EXTENSION sofort');
	$node->safe_psql('original', qq{
		CREATE TABLE t (id int, s text, n numeric, m numeric(22, 0)) USING sofort;
		CREATE INDEX t_s ON t USING sofort_index (s);
		CREATE INDEX t_n ON t USING sofort_index (n);
		CREATE INDEX t_m ON t USING sofort_index (m);
		CREATE INDEX t_pmem ON t USING sofort_index (id) WITH (placement = pmem);
		CREATE INDEX t_hybrid ON t USING sofort_index (id) WITH (placement = hybrid);
		INSERT INTO t SELECT i, repeat(md5(i::text), 5), (i || repeat('7', 56))::numeric, i FROM generate_series(1, $rows) i});
	is($node->safe_psql('original', q{SELECT string_agg(encoding, ' ' ORDER BY attnum) FROM sofort.columns WHERE relation = 't'::regclass AND attnum > 1}),
		'reference reference inline', "$what: where values lie");
	push @answers, $node->safe_psql('original', $_) foreach @queries;

	my $session = $node->background_psql('original');
	$session->query_safe(qq{BEGIN; INSERT INTO t SELECT -i, '$mark' || repeat(md5(i::text), 5), repeat('4242', 15)::numeric, repeat('4242', 5)::numeric FROM generate_series(1, $undone) i});
	$node->kill9;
	SofortNode::drop_session($session);
	is(overwrite($node, qr/[^\0]...$mark/s, $contents{$what}), $undone, "$what: texts overwritten");
	is(overwrite($node, qr/...(?:\x92\x10){15}/s, $contents{$what}), $undone, "$what: and numbers");
	is(overwrite($node, qr/\x1b..(?:\x92\x10){5}/s, sub { return substr($_[0], 0, 3) . "\xFF" x 10 }), $undone, "$what: and those in the row");

	$node->start;
	$right->('without indexes');
	$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE original');
	is($node->safe_psql('copy', $queries[0]), $answers[0], "$what: copied");
	is($node->verify_problems('copy'), '', "$what: the copy is clean");
	$node->safe_psql('postgres', 'ALTER SYSTEM SET sofort.recovery_workers = 2');
	$node->restart;
	$node->wait_until("SELECT bool_and(status = 'ready') FROM sofort.indexes WHERE relation = 't'::regclass", 'original');
	$right->('indexes built again');
	$node->safe_psql('original', 'VACUUM t; REINDEX TABLE t');
	$right->('after VACUUM');
	$node->stop;
	$node->teardown_node;
}

# Links of versions that are undone: a line that the power cut has taken holds what their places
# had before, and may lead round and round.

# The word of a link to a row (include/sofort/txn/words.h): its number, from 1, and a check
sub link_word
{
	my ($row, $to_root) = @_;
	my $l = $row + 1 | ($to_root ? 1 << 63 : 0);
	my $product;
	{ use integer; $product = $l * 0x9e3779b97f4a7c15; }
	return pack('Q<', $l | ($product >> 42) << 41);
}

my %links = (
	'the newest to the root' => [ link_word(0, 1), link_word(0) ],
	'the older to the newest' => [ link_word(2), link_word(1) ],
	'the older to the root, as to a version' => [ link_word(0), link_word(1) ],
	'each to itself' => [ link_word(1), link_word(2) ]);
foreach my $what (sort keys %links)
{
	my $node = SofortNode->new('links_' . ($what =~ s/\W+/_/gr));
	$node->init(conf => [ 'autovacuum = off', "sofort.pool_size = '64MB'", 'sofort.recovery_workers = 0' ]);
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, v int) USING sofort; INSERT INTO t VALUES (1, 0)');
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; UPDATE t SET v = 1; UPDATE t SET v = 2');
	$node->kill9;
	SofortNode::drop_session($session);
	my $chain = quotemeta(link_word(2) . link_word(0, 1) . link_word(1));
	is(overwrite($node, qr/$chain/s, sub { return link_word(2) . join('', @{ $links{$what} }) }), 1, "$what: links of a chain overwritten");
	$node->start;
	is($node->safe_psql('postgres', "SET statement_timeout = '60s'; SELECT * FROM t WHERE id = 1"), '1|0', "$what: the row is there");
	is($node->safe_psql('postgres', "UPDATE t SET v = 3 RETURNING v; SELECT v FROM t WHERE id = 1"), "3\n3", "$what: it is updated");
	$node->safe_psql('postgres', 'VACUUM t');
	is($node->safe_psql('postgres', 'SELECT * FROM t'), '1|3', "$what: after VACUUM");
	is($node->verify_problems, '', "$what: clean");
	$node->kill9;
	$node->teardown_node;
}

done_testing();
