# Trees: a Debian of its own for each PostgreSQL version that the machine's own
# Debian does not have (bash, sourced after lib.sh).
#
# A tree is made by debootstrap in /var/cache/sofort/tree-N, or below
# SOFORT_TREES, in about two minutes, and kept. Programs run in it under chroot
# with namespaces of their own for mounts, processes and System V IPC: nothing
# stays mounted, running or allocated, whatever happens to them.

SOFORT_TREES=${SOFORT_TREES:-/var/cache/sofort}
TREE_RECIPE=1				# to be raised when make_tree changes
TREE_IMPOSSIBLE=77			# exit code of run_in_tree

# The Debian that has PostgreSQL N
tree_suite() { case "$1" in 15) echo bookworm ;; 17) echo trixie ;; 18) echo forky ;; esac; }

# Are we in one?
is_tree() { [ -e /etc/sofort-tree ]; }

# Can PostgreSQL N be installed here, or is it?
version_is_native()
{
	[ -x "/usr/lib/postgresql/$1/bin/pg_config" ] ||
		grep -Eqs "^VERSION_CODENAME=$(tree_suite "$1")\$" /etc/os-release
}

# Why trees cannot be used here; nothing if they can.
tree_failed=0
tree_problem()
{
	if [ $tree_failed = 1 ]; then
		echo "its tree could not be made (no mirror, or it lacks packages)"
	elif [ "$(id -u)" != 0 ]; then
		echo "its tree needs root"
	elif ! command -v dpkg-query >/dev/null; then
		echo "its tree needs debootstrap, and this is no Debian"
	elif ! unshare --mount --pid --ipc --fork true 2>/dev/null; then
		echo "its tree needs namespaces, which this machine does not allow"
	fi
}

# The machine's own Debian mirror
tree_mirror()
{
	local mirror
	mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
		grep -E '^(deb|URIs:)' | grep -Eo 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ')
	echo "${mirror:-http://deb.debian.org/debian}"
}

# in_tree DIRECTORY COMMAND ...: PID 1 of namespaces of its own, as root.
# SRC is seen as /srv, TREE_TMP (if set) as /var/tmp, TREE_OUT as /mnt.
in_tree()
{
	local tree=$1
	shift
	# shellcheck disable=SC2016
	TREE=$tree SRC=${TREE_SRC:-} unshare --mount --pid --ipc --fork --kill-child --propagation private \
		bash -c 'mount -t proc proc "$TREE/proc" && mount --bind /dev "$TREE/dev" &&
			mount -t tmpfs -o size=4g,mode=1777 tmpfs "$TREE/dev/shm" || exit 2
			[ -z "$SRC" ] || mount --bind "$SRC" "$TREE/srv" || exit 2
			[ -z "${TREE_TMP:-}" ] || mount --bind "$TREE_TMP" "$TREE/var/tmp" || exit 2
			[ -z "${TREE_OUT:-}" ] || mount --bind "$TREE_OUT" "$TREE/mnt" || exit 2
			exec chroot "$TREE" "$@"' in_tree "$@"
}

# Commands that turn a fresh minbase into a tree; run inside, N in $1.
tree_packages()
{
	cat <<'END'
set -eu
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/sofort
apt-get -o Acquire::Check-Valid-Until=false update -q
mkdir -p /etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/sofort.conf
apt-get install -q -y --no-install-recommends $PACKAGES bzip2 xz-utils
apt-get clean
END
}

# The regression tests of the very version of the server, to /usr/src
tree_sources()
{
	cat <<'END'
set -eu
version=$(dpkg-query -W -f '${Version}' "postgresql-$1")
cd /usr/src
rm -rf postgresql-"$1"* new
apt-get source -q --download-only "postgresql-$1=$version"
mkdir new
tar -C new --strip-components=1 --wildcards -xf "postgresql-$1"_*.orig.tar.* \
	'*/src/test/regress' '*/src/test/isolation' '*/src/pl/plpgsql' '*/contrib'
rm -f postgresql-"$1"_*
mv new "postgresql-$1"
END
}

# prepare_in_tree DIRECTORY COMMANDS N
prepare_in_tree()
{
	in_tree "$1" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive \
		PACKAGES="$PACKAGES" bash -c "$2" tree "$3"
}

make_tree()
{
	local version=$1 tree=$2 suite new log=$SOFORT_TREES/tree-$1.log mirror
	suite=$(tree_suite "$version")
	mirror=$(tree_mirror)
	if ! command -v debootstrap >/dev/null; then
		{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
			debootstrap; } >"$log" 2>&1 || { tail -n 5 "$log" >&2; return 1; }
	fi
	say "Making a tree of Debian $suite with PostgreSQL $version in $tree"
	new=$tree.new
	rm -rf "$new"
	{
		# Every suite is bootstrapped by the same script; older versions of
		# debootstrap only do not know the newest names.
		debootstrap --variant=minbase "$suite" "$new" "$mirror" /usr/share/debootstrap/scripts/sid &&
			printf 'deb %s %s main\ndeb-src %s %s main\n' "$mirror" "$suite" "$mirror" "$suite" \
				>"$new/etc/apt/sources.list" &&
			prepare_in_tree "$new" "$(tree_packages)" "$version"
	} >"$log" 2>&1 || { tail -n 20 "$log" >&2; rm -rf "$new"; return 1; }
	echo "$TREE_RECIPE" >"$new/etc/sofort-tree"
	rm -rf "$tree"
	mv "$new" "$tree"
}

# A mirror may lack sources of what it has built, for some days: then all but
# PostgreSQL's own tests can be run.
add_sources()
{
	[ -d "$2/usr/src/postgresql-$1/contrib/hstore" ] ||
		prepare_in_tree "$2" "$(tree_sources)" "$1" >"$SOFORT_TREES/tree-$1-sources.log" 2>&1 || true
}

# run_in_tree N LOGS COMMAND ...: run a script of this source directory in the
# tree of version N; with LOGS, --logs DIR among its arguments is translated.
run_in_tree()
{
	local version=$1 logs=$2 tree=$SOFORT_TREES/tree-$1 args=() rc
	shift 2
	[ -z "$(tree_problem)" ] || return $TREE_IMPOSSIBLE
	mkdir -p "$SOFORT_TREES" || return 2
	(
		flock 9
		[ "$(cat "$tree/etc/sofort-tree" 2>/dev/null)" = "$TREE_RECIPE" ] || make_tree "$version" "$tree" || exit 1
		add_sources "$version" "$tree"
	) 9>"$SOFORT_TREES/tree-$version.lock" || { tree_failed=1; return $TREE_IMPOSSIBLE; }
	TREE_SRC=$TOP
	TREE_TMP=$(mktemp -d "${TMPDIR:-/var/tmp}/sofort-tree.XXXXXX") || return 2
	chmod 1777 "$TREE_TMP"
	trap 'rm -rf "$TREE_TMP"' EXIT
	trap 'exit 130' INT TERM HUP
	TREE_OUT=
	if [ -n "$logs" ]; then
		mkdir -p "$(dirname "$logs")" && TREE_OUT=$(cd "$(dirname "$logs")" && pwd)
	fi
	while [ $# -gt 0 ]; do
		args+=("$1")
		if [ "$1" = --logs ]; then
			args+=("/mnt/$(basename "$2")")
			shift
		fi
		shift
	done
	export TREE_TMP TREE_OUT
	in_tree "$tree" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 HOME=/root \
		TMPDIR=/var/tmp TERM="${TERM:-dumb}" SOFORT_KILLS="${SOFORT_KILLS:-}" SOFORT_SEED="${SOFORT_SEED:-}" SOFORT_FLIPS="${SOFORT_FLIPS:-}" SOFORT_WORKLOADS="${SOFORT_WORKLOADS:-}" \
		SOFORT_MNT="$TREE_OUT" bash -c 'cd /srv && exec "$@"' tree "${args[@]}" &
	wait $!
	rc=$?
	rm -rf "$TREE_TMP"
	trap - EXIT
	return $rc
}
