# Shared by quickstart, check and the benches (bash, sourced).
#
# enter_workspace installs what is missing, copies the sources to a private
# directory ($W), starts the calling script again from that copy as an
# unprivileged user under a subreaper, and cleans up when it has ended. The
# calling script sees the function return only in that second run. Nothing is
# built in the checkout or written to the system's installation.
#
# Inside: $W (private directory), $PGBIN (private installation), $WITNESS.

set -u

# use_version N: the PostgreSQL that everything below means
use_version()
{
	PGVERSION=$1
	SYSBIN=/usr/lib/postgresql/$PGVERSION/bin
	PACKAGES="postgresql-$PGVERSION postgresql-server-dev-$PGVERSION libpmemobj-dev gcc libc6-dev make libipc-run-perl tini"
	# From 17 on a header of the server includes one of ICU's.
	[ "$PGVERSION" -lt 17 ] || PACKAGES="$PACKAGES libicu-dev"
}
use_version "${SOFORT_PGVERSION:-15}"

say() { printf '%s\n' "$*"; }
die() { local rc=$1; shift; printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit "$rc"; }

# Decimal arithmetic without further programs: calc FORMAT EXPRESSION
calc() { awk "BEGIN { printf \"$1\", $2 }"; }
now_us() { local t=$EPOCHREALTIME; printf '%s' "${t/[.,]/}"; }

# median or min of the numbers on stdin
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) printf "%.10g\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
minimum() { sort -g | head -n 1; }

# ---------------------------------------------------------------------------
# Outside: packages, private copy, clean-up
# ---------------------------------------------------------------------------

missing_packages()
{
	local p
	for p in $PACKAGES; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$p"
	done
}

install_packages()
{
	local missing sudo= conf=/etc/postgresql-common/createcluster.d/sofort.conf
	command -v dpkg-query >/dev/null || die 2 "this needs Debian 12 (dpkg not found)"
	missing=$(missing_packages)
	[ -z "$missing" ] && return 0
	if [ "$(id -u)" != 0 ]; then
		if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
			sudo=sudo
		else
			say "Some packages are missing. As root, run:" >&2
			say "  apt-get update && apt-get install -y --no-install-recommends $missing" >&2
			exit 2
		fi
	fi
	say "Installing: $missing"
	# Without this the package would create, and perhaps start, a cluster.
	$sudo mkdir -p "${conf%/*}"
	if [ ! -e "$conf" ]; then
		echo 'create_main_cluster = false' | $sudo tee "$conf" >/dev/null
		# shellcheck disable=SC2064
		trap "$sudo rm -f $conf" EXIT
	fi
	if ! { $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
		--no-install-recommends $missing; } >"${TMPDIR:-/tmp}/sofort-apt.$$" 2>&1; then
		tail -n 20 "${TMPDIR:-/tmp}/sofort-apt.$$" >&2
		rm -f "${TMPDIR:-/tmp}/sofort-apt.$$"
		say "The packages could not be installed. As root, try:" >&2
		say "  apt-get update && apt-get install -y --no-install-recommends $missing" >&2
		exit 2
	fi
	rm -f "${TMPDIR:-/tmp}/sofort-apt.$$"
	[ ! -e "$conf" ] || { trap - EXIT; $sudo rm -f "$conf"; }
}

# Process ids whose working directory lies below $W, or beside the pools: a server's
# processes all stay in its data directory, so these are ours and nobody else's.
workspace_pids()
{
	local d
	for d in /proc/[0-9]*; do
		case "$(readlink "$d/cwd" 2>/dev/null)" in
			"$W" | "$W"/* | "${SOFORT_POOL_DIR:-$W}"/*) [ "${d#/proc/}" = $$ ] || printf '%s\n' "${d#/proc/}" ;;
		esac
	done
}

# A server that dies by SIGKILL leaves POSIX and System V segments behind.
# Remember their names while somebody still maps them.
note_segments()
{
	local p
	for p in "$@"; do
		awk '$6 ~ /^\/dev\/shm\/PostgreSQL\./ { print $6 }' "/proc/$p/maps" 2>/dev/null
	done | sort -u >>"$W/segments"
}

remove_segments()
{
	local f pidfile id
	while read -r f; do
		case "$f" in /dev/shm/PostgreSQL.*) rm -f "$f" ;; esac
	done < <(sort -u "$W/segments" 2>/dev/null)
	# Line 7 of postmaster.pid: System V key and id.
	find "$W" ${SOFORT_POOL_DIR:+"$SOFORT_POOL_DIR"} -name postmaster.pid -type f 2>/dev/null | while read -r pidfile; do
		id=$(sed -n 7p "$pidfile" | awk '{ print $2 }')
		[ -n "$id" ] && ipcrm -m "$id" 2>/dev/null
	done
	return 0
}

clean_workspace()
{
	local pids i
	trap '' INT TERM HUP
	if [ -n "${power_switch:-}" ]; then
		kill -TERM "$power_switch" 2>/dev/null && wait "$power_switch" 2>/dev/null
	fi
	[ -n "${W:-}" ] && [ -d "$W" ] || return 0
	pids=$(workspace_pids)
	if [ -n "$pids" ]; then
		note_segments $pids
		for i in $pids; do
			[ "$(cat "/proc/$i/comm" 2>/dev/null)" = postgres ] || kill -KILL "$i" 2>/dev/null
		done
		# Only live postmasters of ours: a stale pid may be somebody else's by now.
		kill -QUIT $(comm -12 <(sort <<<"$pids") <(find "$W" ${SOFORT_POOL_DIR:+"$SOFORT_POOL_DIR"} -name postmaster.pid -type f \
			-exec head -n 1 {} \; 2>/dev/null | sort)) 2>/dev/null
		for i in $(seq 50); do
			pids=$(workspace_pids)
			[ -z "$pids" ] && break
			sleep 0.1
		done
		[ -n "$pids" ] && kill -KILL $pids 2>/dev/null && sleep 0.2
	fi
	remove_segments
	rm -rf "$W" "${SOFORT_POOL_DIR:-}"
}

# The pool wants tmpfs; a small one (64 MB in many containers) will not do.  SOFORT_POOLS:
# a directory on another medium, which a bench is told to use.
choose_pool_dir()
{
	local need=${1:-2000} parent=/dev/shm free
	SOFORT_POOL_MEDIUM=tmpfs
	free=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 && $1 == "tmpfs" { print $4 }')
	if [ -n "${SOFORT_POOLS:-}" ]; then
		parent=$SOFORT_POOLS
		SOFORT_POOL_MEDIUM=$(findmnt -n -r -o FSTYPE,OPTIONS -T "$parent") || die 1 "cannot find out what $parent lies on"
	elif [ "${free:-0}" -lt "$need" ] || [ ! -w /dev/shm ]; then
		parent=$W
		SOFORT_POOL_MEDIUM="ordinary file (/dev/shm has less than $need MB)"
	fi
	SOFORT_POOL_DIR=$(mktemp -d "$parent/sofort.XXXXXX") || die 1 "cannot create a directory in $parent"
	chmod 755 "$SOFORT_POOL_DIR"
}

# start_power_switch USER: for the test that cuts the power of a file system (root)
start_power_switch()
{
	mkdir "$W/power" && mkfifo -m 600 "$W/power/request" "$W/power/answer" && chown "$1:" "$W/power"/* || return 0
	"$TOP/scripts/power_switch" "$W/power" "$1" >"$W/log/power_switch.log" 2>&1 &
	power_switch=$!
	SOFORT_POWER_SWITCH=$W/power
}

# absolute PATH: of the caller, also in enter_workspace's second run
absolute()
{
	case "$1" in
		/*) readlink -m "$1" ;;
		*) readlink -m "${SOFORT_CALLER_DIR:-$PWD}/$1" ;;
	esac
}

# keep_directory DIR: what enter_workspace's second run shall find and may write to
keep_directory()
{
	[ -n "$1" ] && [ -z "${SOFORT_INSIDE:-}" ] || return 0
	mkdir -p "$1" || die 2 "cannot create $1"
	[ "$(id -u)" != 0 ] || chown postgres: "$1" || die 2 "cannot give $1 to postgres"
}

# enter_workspace SCRIPT [ARGUMENT ...]; SCRIPT is relative to the top.
enter_workspace()
{
	local script=$1 user rc runas=() base
	shift
	if [ -n "${SOFORT_INSIDE:-}" ]; then
		PGBIN=$W/pg$SYSBIN
		WITNESS=$W/witness
		return 0
	fi
	install_packages
	[ -x "$SYSBIN/initdb" ] || die 2 "PostgreSQL $PGVERSION is not in $SYSBIN"

	base=${TMPDIR:-/var/tmp}
	W=$(mktemp -d "$base/sofort.XXXXXX") || die 1 "cannot create a directory in $base"
	chmod 755 "$W"
	trap 'exit 130' INT TERM HUP
	trap clean_workspace EXIT
	choose_pool_dir "${SOFORT_POOL_NEED:-2000}"
	mkdir "$W/src" "$W/log"
	tar -C "$TOP" --exclude=./.git --exclude='*.o' --exclude='*.d' --exclude='*.so' --exclude='*.bc' -cf - . |
		tar -C "$W/src" --no-same-owner -xf - || die 1 "cannot copy the sources"
	user=$(id -un)
	if [ "$(id -u)" = 0 ]; then
		user=postgres
		chown -R "$user:" "$W" "$SOFORT_POOL_DIR"
		[ -z "${SOFORT_WANT_POWER:-}" ] || start_power_switch "$user"
		runas=(setpriv "--reuid=$user" "--regid=$(id -gn $user)" --init-groups)
	fi
	# tini -s reaps the processes that a killed postmaster leaves behind.
	(cd "$W" && exec env -i PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" HOME="$W" USER="$user" \
		LANG=C.UTF-8 TERM="${TERM:-dumb}" SOFORT_KILLS="${SOFORT_KILLS:-}" SOFORT_SEED="${SOFORT_SEED:-}" SOFORT_FLIPS="${SOFORT_FLIPS:-}" SOFORT_WORKLOADS="${SOFORT_WORKLOADS:-}" SOFORT_SUITES_COUNT="${SOFORT_SUITES_COUNT:-}" W="$W" SOFORT_INSIDE=1 SOFORT_POWER_SWITCH="${SOFORT_POWER_SWITCH:-}" SOFORT_POOL_DIR="$SOFORT_POOL_DIR" \
		SOFORT_POOL_MEDIUM="$SOFORT_POOL_MEDIUM" SOFORT_CALLER_DIR="$PWD" \
		"${runas[@]}" tini -s -- bash "$W/src/$script" "$@") &
	wait $!
	rc=$?
	if [ -s "$W/copy-out" ]; then
		copy_out
	fi
	if [ -e "$W/keep" ]; then
		trap - EXIT
	fi
	exit $rc
}

# The unprivileged run names "source<TAB>target" pairs in $W/copy-out; the
# caller's own user writes them where the caller asked for them.
copy_out()
{
	local from to
	while IFS=$'\t' read -r from to; do
		case "$to" in /*) ;; *) to=$PWD/$to ;; esac
		mkdir -p "$(dirname "$to")" && rm -rf "$to" && cp -R "$from" "$to" && say "Written: ${to/#\/mnt\//${SOFORT_MNT:-/mnt}/}"
	done <"$W/copy-out"
}

# ---------------------------------------------------------------------------
# Inside: build, servers
# ---------------------------------------------------------------------------

# A private copy of the installation in $W/pg, without sofort.
private_installation()
{
	mkdir -p "$W/pg/usr/lib/postgresql" "$W/pg/usr/share/postgresql"
	[ -d "$W/pg$SYSBIN" ] || cp -R "/usr/lib/postgresql/$PGVERSION" "$W/pg/usr/lib/postgresql/"
	[ -d "$W/pg/usr/share/postgresql/$PGVERSION" ] ||
		cp -R "/usr/share/postgresql/$PGVERSION" "$W/pg/usr/share/postgresql/"
	# An older system-wide copy must not be what gets tested.
	rm -f "$W/pg/usr/share/postgresql/$PGVERSION/extension"/sofort* "$W/pg/usr/lib/postgresql/$PGVERSION/lib/sofort.so"
}

# Build and install into $W/pg. Arguments go to make.
build_sofort()
{
	local log=$W/log/build.log
	private_installation
	make -C "$W/src" -j"$(nproc)" PG_CONFIG="$SYSBIN/pg_config" "$@" >"$log" 2>&1 &&
		make -C "$W/src" PG_CONFIG="$SYSBIN/pg_config" DESTDIR="$W/pg" "$@" install-test >>"$log" 2>&1 || {
		grep -E 'error|Error|warning' "$log" | head -n 30 >&2
		tail -n 5 "$log" >&2
		return 1
	}
}

# compile SOURCES TARGET: one of the client programs; SOURCES may be patterns
compile()
{
	# shellcheck disable=SC2086
	(cd "$W/src" && gcc -std=gnu99 -O2 -Wall -Wextra -Werror -Iinclude -I"$("$SYSBIN/pg_config" --includedir)" \
		-o "$2" $1 -lpq) \
		>"$W/log/$(basename "$2").log" 2>&1 || { cat "$W/log/$(basename "$2").log" >&2; return 1; }
}

# new_cluster NAME [SETTING ...]: $W/NAME, not started. Everything that is not
# named stays at PostgreSQL's default.
new_cluster()
{
	local name=$1 s
	shift
	"$PGBIN/initdb" -D "$W/$name" -U postgres -A trust --locale=C.UTF-8 -E UTF8 >"$W/log/initdb-$name.log" 2>&1 ||
		{ tail -n 5 "$W/log/initdb-$name.log" >&2; return 1; }
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$W'"
		echo "log_line_prefix = '%m [%p] '"
		echo "port = $(port_of "$name")"
		for s in "$@"; do echo "$s"; done
	} >>"$W/$name/postgresql.conf"
}

# The settings with which these scripts run sofort.
sofort_settings()
{
	local name=$1
	echo "shared_preload_libraries = 'sofort'"
	echo "sofort.pool_path = '$SOFORT_POOL_DIR/$name.pool'"
	echo "sofort.durability = '${SOFORT_DURABILITY:-process}'"
}

# A number of its own for each cluster; sockets live in $W, so nobody else's
# ports matter.
port_of()
{
	local name=$1 n
	n=$(grep -nx "$name" "$W/clusters" 2>/dev/null | cut -d: -f1)
	if [ -z "$n" ]; then
		echo "$name" >>"$W/clusters"
		n=$(grep -nx "$name" "$W/clusters" | cut -d: -f1)
	fi
	echo $((5500 + n))
}

# conninfo NAME [DATABASE]
conninfo() { echo "host=$W port=$(port_of "$1") user=postgres dbname=${2:-postgres}"; }

# psql NAME DATABASE ARGUMENT ...
psql()
{
	local name=$1 db=$2
	shift 2
	"$PGBIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 -d "$(conninfo "$name" "$db")" "$@"
}

declare -A SERVER_PID SERVER_START

# Fork the postmaster as our own child, so that we, not init, reap it.
# With a session of its own, Ctrl-C does not reach it before the clean-up does.
launch_server()
{
	local name=$1
	SERVER_START[$name]=$(now_us)
	(cd "$W/$name" && exec setsid "$PGBIN/postgres" -D "$W/$name" </dev/null >>"$W/log/$name.log" 2>&1) &
	SERVER_PID[$name]=$!
}

# start_server NAME: returns when it answers; prints the log if it does not.
start_server()
{
	local name=$1
	launch_server "$name"
	if ! "$WITNESS" answer "$(conninfo "$name" template1)" "SELECT 1" "${SERVER_START[$name]}" "${SERVER_PID[$name]}" 60 >/dev/null; then
		say "The server '$name' does not start:" >&2
		tail -n 15 "$W/log/$name.log" >&2
		return 1
	fi
}

stop_server()
{
	local name=$1 pid=${SERVER_PID[$1]:-}
	[ -n "$pid" ] || return 0
	kill -INT "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	unset "SERVER_PID[$name]"
}

# SIGKILL for the postmaster and all its children. They are stopped first, so
# that none acts on another's death; a postmaster that is not stopped yet may
# fork a child that is not in the list.
kill9_server()
{
	local name=$1 pid=${SERVER_PID[$1]} all p
	kill -STOP "$pid"
	while ! grep -q '^State:[[:space:]]*[TZ]' "/proc/$pid/status" 2>/dev/null && [ -d "/proc/$pid" ]; do
		sleep 0.001
	done
	all="$pid $(children_of "$pid")"
	kill -STOP $all 2>/dev/null
	note_segments $all
	kill -KILL $all 2>/dev/null
	wait "$pid" 2>/dev/null
	for p in $all; do
		while [ -d "/proc/$p" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$p/status" 2>/dev/null; do
			sleep 0.01
		done
	done
	unset "SERVER_PID[$name]"
}

children_of()
{
	local pid=$1 f
	f=/proc/$pid/task/$pid/children
	if [ -r "$f" ]; then
		cat "$f"
	else
		awk -v p="$pid" '{ sub(/.*\) /, ""); if ($2 == p) { split(FILENAME, a, "/"); print a[3] } }' /proc/[0-9]*/stat 2>/dev/null
	fi
}
