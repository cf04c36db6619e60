# A psql that statements are sent to one by one, and that may wait, fail or be cut off
# meanwhile. Answers are what it has printed, errors with SQLSTATE at the end.
package Session;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();

our @EXPORT = qw(session_on send_to answer say_to);

sub session_on
{
	my ($node, $user, $database) = @_;
	my %s = (in => '', out => '', err => '', n => 0);
	$s{run} = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr($database || 'postgres') . ($user ? " user=$user" : '') ],
		'<', \$s{in}, '>', \$s{out}, '2>', \$s{err});
	return \%s;
}

sub send_to
{
	my ($s, $sql) = @_;
	$s->{mark} = 'mark' . ++$s->{n};
	$s->{out} = $s->{err} = '';
	$s->{in} .= "$sql;\n\\echo $s->{mark}\n";
	$s->{run}->pump_nb;
	return;
}

sub answer
{
	my ($s) = @_;
	$s->{run}->pump until $s->{out} =~ /$s->{mark}\n/ || !$s->{run}->pumpable;
	(my $out = $s->{out}) =~ s/mark\d+\n//g;
	return $out . $s->{err};
}

sub say_to { my ($s, $sql) = @_; send_to($s, $sql); return answer($s); }

1;
