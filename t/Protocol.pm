# PostgreSQL's protocol itself: what psql cannot say.
package Protocol;

use strict;
use warnings;

use Exporter 'import';
use IO::Socket::UNIX;
use Test::More;

our @EXPORT = qw(raw_session exchange query call extended execute $sync);

sub message { my ($type, $body) = @_; return $type . pack('N', length($body) + 4) . $body; }

# Sends messages; returns what was answered up to ReadyForQuery: rows of one column, results of
# functions (V), command tags, errors.
sub exchange
{
	my ($socket, $bytes) = @_;
	my @got;
	print $socket $bytes;
	for (;;)
	{
		my ($head, $body) = ('', '');
		(read($socket, $head, 5) // 0) == 5 or return "@got (gone)";
		my ($type, $length) = unpack('aN', $head);
		read($socket, $body, $length - 4) if $length > 4;
		push @got, $body =~ /C(\w{5})\0M([^\0]*)/ ? "$1 $2" : '' if $type eq 'E';
		push @got, $body =~ s/\0//r if $type eq 'C';
		push @got, 'V ' . unpack('N/a', $body) if $type eq 'V';
		push @got, map { length($_) == 32 ? 'token' : $_ } unpack('x2 N/a', $body) if $type eq 'D';
		return join ', ', @got if $type eq 'Z';
	}
}

sub raw_session
{
	my ($node) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or BAIL_OUT("socket: $!");
	my $parameters = pack('N', 196608) . join("\0", 'user', scalar(getpwuid($>)), 'database', 'postgres', '', '');
	$socket->autoflush(1);
	exchange($socket, pack('N', length($parameters) + 4) . $parameters);
	return $socket;
}

sub query { return message('Q', "$_[0]\0"); }

# A function by its message, with one argument or none
sub call
{
	my ($oid, @arguments) = @_;
	return message('F', pack('NnnN/a*n', $oid, 0, 1, $arguments[0], 0)) if @arguments;
	return message('F', pack('Nnnn', $oid, 0, 0, 0));
}

# Rows of the unnamed portal, all if 0
sub execute { my ($rows) = @_; return message('E', "\0" . pack('N', $rows)); }
sub extended { my ($sql, $rows) = @_; return message('P', "\0$sql\0" . pack('n', 0)) . message('B', "\0\0" . pack('nnn', 0, 0, 0)) . execute($rows || 0); }
our $sync = message('S', '');

1;
