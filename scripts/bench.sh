# Shared by the benches beside bench/tatp (bash, sourced after lib.sh).
#
# Results: files in $OUT, copied to the directory of --out at the end.
# Templates: stopped clusters with their pools, loaded once, copied for each run;
# with --templates DIR they are kept there for the next command.

OUT=$W/out
mkdir -p "$OUT"
TEMPLATES=${templates:-$W/templates}
mkdir -p "$TEMPLATES" || die 2 "cannot write to $TEMPLATES"
CLIENT=$W/bench-client

# results_to DIRECTORY
results_to() { printf '%s\t%s\n' "$OUT" "$1" >>"$W/copy-out"; }

# plot FILE.svg OPTION ... <CSV
plot()
{
	local file=$1
	shift
	perl "$W/src/bench/plot.pl" "$@" >"$OUT/$file" || die 1 "no picture $file"
}

# sofort (unless the caller has built it) and the extension sofort_bench
build_bench()
{
	[ -n "${SOFORT_BUILT:-}" ] || build_sofort || die 1 "build failed"
	if ! { make -C "$W/src/bench/engine" PG_CONFIG="$SYSBIN/pg_config" &&
		make -C "$W/src/bench/engine" PG_CONFIG="$SYSBIN/pg_config" DESTDIR="$W/pg" install; } \
		>"$W/log/bench-build.log" 2>&1; then
		tail -n 20 "$W/log/bench-build.log" >&2
		die 1 "build of bench/engine failed"
	fi
	compile t/witness.c "$WITNESS" || die 1 "t/witness.c does not compile"
}

build_client()
{
	compile "bench/recovery/client.c bench/recovery/load_tatp.c \
		bench/recovery/load_tpcc.c bench/recovery/load_uniform.c" "$CLIENT" || die 1 "a client does not compile"
}

machine()
{
	echo "date: $(date -u '+%Y-%m-%d %H:%M UTC')"
	echo "machine: $(nproc) cores, $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), $(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MB, Linux $(uname -r)"
	echo "server: $("$SYSBIN/postgres" --version)"
	echo "data directory: $(df -P "$W" | awk 'NR == 2 { print $1 }'), pool: $SOFORT_POOL_MEDIUM"
}

# What PostgreSQL costs beside sofort is the same for all: no checkpoint or
# autovacuum in the middle of a run, room for workers.
bench_settings()
{
	echo "max_worker_processes = 48"
	echo "checkpoint_timeout = '1h'"
	echo "max_wal_size = '16GB'"
	echo "autovacuum = off"
	echo "shared_buffers = '1GB'"
	echo "max_connections = 50"
}

# ---- templates ----

# Anything that changes what a loaded template must be
template_version()
{
	cat "$W/src/include/sofort/pmem/layout.h" "$W/src/sofort--1.0.sql" "$W/src/scripts/bench.sh" \
		"$W/src"/bench/tatp/*.sql "$W/src"/bench/recovery/*.sql | cksum
}

# template NAME AM LOADER ARGUMENT ...: a stopped cluster $TEMPLATES/NAME, loaded
# by "LOADER CLUSTER ARGUMENT ..." unless it is there already.
template()
{
	local name=$1 am=$2 started
	shift 2
	local dir=$TEMPLATES/$name
	[ -e "$dir/version" ] && [ "$(cat "$dir/version")" = "$(template_version)" ] && return 0
	started=$(now_us)
	rm -rf "${dir:?}"
	if [ "$am" = sofort ]; then
		new_cluster "load-$name" "$(bench_settings)" "$(sofort_settings "load-$name")" "sofort.pool_size = '64GB'" \
			"sofort.dram_size = '32GB'" "maintenance_work_mem = '512MB'"
	else
		new_cluster "load-$name" "$(bench_settings)" "maintenance_work_mem = '512MB'"
	fi && start_server "load-$name" || die 1 "no server"
	"$1" "load-$name" "${@:2}" || die 1 "loading '$name' failed"
	psql "load-$name" postgres -c "CHECKPOINT"
	stop_server "load-$name"
	mkdir -p "$dir" && mv "$W/load-$name" "$dir/data" || die 1 "cannot write to $dir"
	[ "$am" != sofort ] || mv_pool "$SOFORT_POOL_DIR/load-$name.pool" "$dir/pool"
	template_version >"$dir/version"
	say "  $name loaded in $(calc %.0f "($(now_us) - $started) / 1e6") s"
}

# Across file systems: the file has holes, 1 TB long.
mv_pool()
{
	cp --sparse=always "$1" "$2" && rm -f "$1" "$1.lock" || die 1 "cannot copy the pool"
}

# clone NAME CLUSTER [SETTING ...]: a copy of a template, not started. Its files are on
# the disk: PostgreSQL synchronises the data directory before it recovers from a crash,
# and who has just copied it would measure the disk.
clone()
{
	local name=$1 cluster=$2 s
	shift 2
	discard "$cluster"
	cp -a "$TEMPLATES/$name/data" "$W/$cluster" || die 1 "cannot copy the template '$name'"
	{
		echo "port = $(port_of "$cluster")"
		echo "unix_socket_directories = '$W'"
		if [ -e "$TEMPLATES/$name/pool" ]; then
			cp --sparse=always "$TEMPLATES/$name/pool" "$SOFORT_POOL_DIR/$cluster.pool" || die 1 "cannot copy the pool"
			echo "sofort.pool_path = '$SOFORT_POOL_DIR/$cluster.pool'"
		fi
		for s in "$@"; do echo "$s"; done
	} >>"$W/$cluster/postgresql.conf"
	sync -f "$W/$cluster"
}

# The server is stopped; cluster and pool are removed.
discard()
{
	stop_server "$1"
	rm -rf "${W:?}/$1" "$SOFORT_POOL_DIR/$1.pool" "$SOFORT_POOL_DIR/$1.pool.lock"
}

# A setting that the server refuses: say so, once, and go on with the others.
REFUSED=$W/refused
: >"$REFUSED"
refused()
{
	grep -qxF -- "$1" "$REFUSED" && return 0
	printf '%s\n' "$1" >>"$REFUSED"
	say "  REFUSED by this server, not measured: $1"
}

# accepts CLUSTER DATABASE SQL WHAT: does it work here? Other errors end the run.
accepts()
{
	local out
	out=$(psql "$1" "$2" -v VERBOSITY=verbose -c "$3" 2>&1) && return 0
	grep -Eq 'ERROR:  (0A000|22023|42704)' <<<"$out" || { printf '%s\n' "$out" >&2; die 1 "$4"; }
	refused "$4: $(sed -nE 's/.*ERROR:  [^:]*: //p' <<<"$out" | head -n 1)"
	return 1
}
