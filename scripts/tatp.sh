# TATP for quickstart and bench/tatp/run (bash, sourced after lib.sh).
#
# Two databases with the same tables, one for each table access method, so that
# the same scripts run on both.

TATP=$W/src/bench/tatp
TATP_TABLES="subscriber access_info special_facility call_forwarding"
TATP_MIX=(get_subscriber_data@35 get_new_destination@10 get_access_data@35 update_subscriber_data@2
	update_location@14 insert_call_forwarding@2 delete_call_forwarding@2)

# The A of the key distribution NURand(A, 1, subscribers)
tatp_a()
{
	if [ "$1" -le 1000000 ]; then echo 65535; elif [ "$1" -le 10000000 ]; then echo 1048575; else echo 2097151; fi
}

# tatp_generate SUBSCRIBERS: COPY files in $W/tatp-SUBSCRIBERS, once
tatp_generate()
{
	local dir=$W/tatp-$1 t
	[ -d "$dir" ] && return 0
	[ -x "$W/generate" ] || compile bench/tatp/generate.c "$W/generate" || return 1
	mkdir "$dir"
	for t in $TATP_TABLES; do
		"$W/generate" "$t" "$1" >"$dir/$t" || return 1
	done
}

# tatp_database CLUSTER DATABASE AM: with empty tables
tatp_database()
{
	psql "$1" postgres -c "CREATE DATABASE $2" || return 1
	if [ "$3" = sofort ]; then
		psql "$1" "$2" -c "CREATE EXTENSION sofort" || return 1
	fi
	psql "$1" "$2" -v am="$3" -f "$TATP/schema.sql"
}

# tatp_load CLUSTER DATABASE AM SUBSCRIBERS
tatp_load()
{
	local t
	tatp_generate "$4" && tatp_database "$1" "$2" "$3" || return 1
	for t in $TATP_TABLES; do
		psql "$1" "$2" -c "COPY $t FROM '$W/tatp-$4/$t'" || return 1
	done
	psql "$1" "$2" -f "$TATP/foreign_keys.sql" -c "VACUUM ANALYZE"
}

# tatp_scripts NAME[@WEIGHT] ...: pgbench arguments
tatp_scripts()
{
	local s
	for s in "$@"; do
		case "$s" in
			*@*) printf -- '-f\n%s\n' "$TATP/${s%@*}.sql@${s#*@}" ;;
			*) printf -- '-f\n%s\n' "$TATP/$s.sql" ;;
		esac
	done
}

# tatp_pgbench CLUSTER DATABASE SUBSCRIBERS CLIENTS ARGUMENT ...: runs pgbench,
# its output on stdout. PGOPTIONS applies.
tatp_pgbench()
{
	local cluster=$1 db=$2 n=$3 clients=$4
	shift 4
	"$PGBIN/pgbench" -n -M prepared -c "$clients" -j "$((clients < 2 ? clients : 2))" -D "subscribers=$n" \
		-D "a=$(tatp_a "$n")" "$@" -h "$W" -p "$(port_of "$cluster")" -U postgres "$db" 2>&1
}

# The throughput in pgbench's output; none if a client failed.
pgbench_tps()
{
	awk '/aborted|ERROR|FATAL/ { bad = 1 } /^tps = / { tps = $3 } END { if (tps != "" && !bad) print tps; else exit 1 }'
}
