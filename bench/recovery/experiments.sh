# The experiments of bench/recovery/run (bash, sourced).

PROGRESS="SELECT count(*) FROM sofort.indexes WHERE status <> 'ready'"
SUMMARY=$OUT/recovery.csv
SUMMARY_HEAD="experiment,run,before,area,delta,response_us,peak_us,longest_us,response_before_us,first_second,ready_second,answered,ready,rebuilt,in_window,in_30s,after,stolen_before,stolen_second,faults_before,faults_second"
SERIES_HEAD="run,t,transactions_per_s,mean_us,longest_us"
echo "$SUMMARY_HEAD" >"$SUMMARY"
ROUND=			# behind the label of a run: " (2)" in the second round
MEASURES=()		# of the rounds so far: text|value|relation|target

field() { sed -nE "s/.*\\b$1=([^ ]+).*/\\1/p" <<<"$2"; }

# in_shares EXPERIMENT: where recovery works beside the clients, each side has half of the
# processors, as in the papers, where four users on eight cores left the others to recovery.
in_shares()
{
	local settings=("${settings[@]}") processors=$processors workers=$workers half=$(($(nproc) > 1 ? $(nproc) / 2 : 1))
	case "$1" in
		*_fig* | *_strategies | *_change | *_worst)
			processors=${processors:-$half} workers=${workers:-$half} ;;
		*_resources)	# the number of workers is what it varies
			processors=${processors:-$half} workers= ;;
		*)
			processors=0 ;;
	esac
	[ $engine = 0 ] || processors=0
	[ -z "$workers" ] || settings+=("sofort.recovery_workers = $workers")
	echo "$1: $clients clients on $processors processors (0: on all), settings: ${settings[*]}" >>"$OUT/recovery.settings"
	"$1"
}

# T0: the first answer of an empty heap cluster, killed and started again
measure_t0()
{
	local i ms=()
	new_cluster empty "$(bench_settings)" && start_server empty || die 1 "no server"
	for i in 1 2 3; do
		kill9_server empty
		launch_server empty
		ms+=("$("$WITNESS" answer "$(conninfo empty)" "SELECT 1" "${SERVER_START[empty]}" "${SERVER_PID[empty]}" 60)") ||
			die 1 "the empty cluster does not come back"
	done
	discard empty
	T0=$(printf '%s\n' "${ms[@]}" | median)
	say "T0: an empty heap cluster answers $T0 ms after its start"
	echo "T0: $T0 ms (of ${ms[*]})" >>"$OUT/recovery.settings"
}

# ---- loading ----

need_generator()
{
	[ -x "$W/generate" ] || compile bench/tatp/generate.c "$W/generate"
	[ -x "$W/generate_tpcc" ] || compile bench/recovery/generate_tpcc.c "$W/generate_tpcc"
}

# prepare_database CLUSTER AM
prepare_database()
{
	psql "$1" postgres -c "CREATE DATABASE bench" || return 1
	[ "$2" = heap ] || psql "$1" bench -c "CREATE EXTENSION sofort" -c "CREATE EXTENSION sofort_bench"
}

index_am() { if [ "$1" = heap ]; then echo btree; else echo sofort_index; fi; }

load_tatp()
{
	local t
	need_generator && prepare_database "$1" "$2" && psql "$1" bench -v am="$2" -f "$TATP/schema.sql" || return 1
	for t in $TATP_TABLES; do
		psql "$1" bench -c "COPY $t FROM PROGRAM '$W/generate $t $3'" || return 1
	done
	psql "$1" bench -f "$TATP/foreign_keys.sql" -c "VACUUM ANALYZE"
}

load_tpcc()
{
	local t
	need_generator && prepare_database "$1" "$2" &&
		psql "$1" bench -v am="$2" -v index_am="$(index_am "$2")" -f "$W/src/bench/recovery/tpcc.sql" || return 1
	for t in warehouse district customer history new_order orders order_line item stock; do
		psql "$1" bench -c "COPY $t FROM PROGRAM '$W/generate_tpcc $t $3 $divisor'" || return 1
	done
	psql "$1" bench -c "VACUUM ANALYZE"
}

# Every column of every table is a permutation of 1..rows.
load_uniform()
{
	local t c primes=(7919 104729 1299709 15485863 32452843 49979687 67867967 86028121 104395301 122949823 141650939
		160481183 179424673 198491317 217645177 236887691)
	[ "$columns" -le ${#primes[@]} ] || die 2 "--columns: at most ${#primes[@]}"
	prepare_database "$1" "$2" || return 1
	for ((t = 1; t <= tables; t++)); do
		{
			printf 'CREATE TABLE t%d (c1 int' $t
			for ((c = 2; c <= columns; c++)); do printf ', c%d int' $c; done
			printf ') USING %s;\nINSERT INTO t%d SELECT ' "$2" $t
			for ((c = 1; c <= columns; c++)); do
				printf '%s(i::bigint * %d + %d) %% %d + 1' "$([ $c = 1 ] || echo ', ')" "${primes[c - 1]}" $t "$rows"
			done
			printf ' FROM generate_series(1, %d) i;\n' "$rows"
			for ((c = 1; c <= columns; c++)); do printf 'CREATE INDEX ON t%d USING %s (c%d);\n' $t "$(index_am "$2")" $c; done
		} | psql "$1" bench || return 1
	done
	psql "$1" bench -c "VACUUM ANALYZE"
}

# load_restart CLUSTER AM ROWS DISTINCT
load_restart()
{
	prepare_database "$1" "$2" &&
		psql "$1" bench -v am="$2" -v rows="$3" -v distinct="$4" -f "$W/src/bench/recovery/restart.sql"
}

# ---- one run ----

# emulated LATENCY: settings
emulated()
{
	echo "sofort.scm_read_latency = $(($1 - dram_latency))"
	echo "sofort.scm_write_latency = $(($1 - dram_latency))"
}

COPY=run

# start_copy TEMPLATE SETTING ...: the cluster $COPY (usually "run") on a copy of the template.
# False: the server refuses the settings (said already).
start_copy()
{
	local template=$1 s
	shift
	clone "$template" "$COPY" "$@"
	if [ -e "$SOFORT_POOL_DIR/$COPY.pool" ]; then
		for s in "${settings[@]}"; do echo "$s"; done >>"$W/$COPY/postgresql.conf"
		[ $engine = 0 ] || printf '%s\n' "shared_preload_libraries = 'sofort, sofort_bench'" \
			"sofort_bench.resume = '$W/engine-run'" >>"$W/$COPY/postgresql.conf"
		emulated "$latency" >>"$W/$COPY/postgresql.conf"
	fi
	rm -f "$W/log/$COPY.log" "$W/engine-run"
	launch_server "$COPY"
	if ! "$WITNESS" answer "$(conninfo "$COPY" template1)" "SELECT 1" "${SERVER_START[$COPY]}" "${SERVER_PID[$COPY]}" 120 >/dev/null 2>&1; then
		tail -n 10 "$W/log/$COPY.log" >&2
		die 1 "the server does not start"
	fi
	in_force "$@" "${settings[@]}"
}

# in_force SETTING ...: a refused value is only a warning in the log when the
# server starts, and the default is used: that would measure something else.
in_force()
{
	local s name value
	[ -e "$SOFORT_POOL_DIR/$COPY.pool" ] || return 0
	for s in "$@"; do
		case "$s" in sofort.*) ;; *) continue ;; esac
		name=$(sed -E 's/ *=.*//' <<<"$s")
		value=$(sed -E "s/^[^=]*= *'?([^']*)'?.*/\\1/" <<<"$s")
		[ "$(psql "$COPY" postgres -c "SHOW $name" 2>&1)" = "$value" ] && continue
		refused "$s ($(grep -m1 -E 'WARNING: .*sofort|not supported' "$W/log/$COPY.log" | sed 's/.*WARNING: *//'))"
		return 1
	done
}

# place INDEX ...: these become persistent in the running copy
place()
{
	local i
	for i in "$@"; do
		accepts "$COPY" bench "ALTER INDEX $i SET (placement = $persistent)" "placement $persistent" || return 1
		[ "$(psql "$COPY" bench -c "SELECT placement FROM sofort.indexes WHERE index = '$i'::regclass")" = "$persistent" ] ||
			psql "$COPY" bench -c "REINDEX INDEX $i" || die 1 "REINDEX"
	done
}

# A template of TATP in which these indexes are persistent: sets TEMPLATE.  False if
# the server refuses the placement.
placed_template()
{
	local base=tatp-sofort-$subscribers dir
	tatp_template sofort "$subscribers"
	TEMPLATE=$base
	[ $# -gt 0 ] || return 0
	TEMPLATE=$base-$persistent-$(cksum <<<"$*" | cut -d' ' -f1)
	dir=$TEMPLATES/$TEMPLATE
	[ -e "$dir/version" ] && [ "$(cat "$dir/version")" = "$(template_version)" ] && return 0
	start_copy "$base" && place "$@" || { discard run; return 1; }
	psql run postgres -c "CHECKPOINT"
	stop_server run
	rm -rf "${dir:?}"
	mkdir -p "$dir" && mv "$W/run" "$dir/data" || die 1 "cannot write to $dir"
	mv_pool "$SOFORT_POOL_DIR/run.pool" "$dir/pool"
	template_version >"$dir/version"
}

# wait_rebuilt CLUSTER: nothing is left to do for the server before the load begins
wait_rebuilt()
{
	"$CLIENT" progress "$(conninfo "$1" bench)" "$PROGRESS" 600 | grep -q ,rebuilt ||
		die 1 "the indexes are not rebuilt within 600 s"
}

# The load in the background: lines of client.c in $W/raw when $LOADER has ended
start_load()
{
	local load=$1 size=$2 load_mix=$3 after_mix=$4 total=$5 progress=$6 weights
	if [ $engine = 0 ]; then
		CLIENT_PROCESSORS=$processors "$CLIENT" run "$(conninfo run bench)" "$load" "$size" "$load_mix" "$after_mix" "$clients" "$total" \
			${progress:+"$progress"} >"$W/raw" &
		LOADER=$!
		return
	fi
	[ "$load" = tatp ] && [ "$after_mix" = - ] || die 2 "--engine: TATP without a change of the mix alone"
	case "$load_mix" in tatp) weights=35,10,35,2,14,2,2 ;; 80-20) weights=80,0,0,0,20,0,0 ;; esac
	psql run bench -c "SELECT sofort_bench.start('$W/engine-run', $clients, $total, $size, '{$weights}')" >/dev/null ||
		die 1 "the run did not start"
	ENGINE_END=$(calc %.0f "$(now_us) / 1e6 + $total")
}

# worker_failure LOG: why the last worker of bench/engine that failed did so, with numbers of lines
worker_failure()
{
	local ended pid
	ended=$(grep -nE '"sofort_bench worker [0-9]+" \(PID [0-9]+\) (exited with exit code [1-9]|was terminated)' "$1" | tail -n 1)
	[ -n "$ended" ] || { echo "(it says nothing of a worker)"; return; }
	pid=$(sed -E 's/.*\(PID ([0-9]+)\).*/\1/' <<<"$ended")
	grep -nE "\[$pid\] (ERROR|FATAL|PANIC):" "$1" | tail -n 1
	echo "$ended"
}

finish_load()
{
	local left running
	if [ $engine = 0 ]; then
		wait $LOADER || die 1 "the load failed"
		return
	fi
	"$CLIENT" progress "$(conninfo run bench)" "$PROGRESS" "$after" >"$W/raw"
	left=$((ENGINE_END - $(date +%s)))
	[ $left -lt 0 ] || sleep $((left + 1))
	psql run bench -F, -c "SELECT 'bin', (extract(epoch FROM sofort_bench.started_at('$W/engine-run')) * 1000000)::bigint + bin * 10000::bigint,
		sum(transactions), sum(successes), sum(busy_us), max(longest_us)
		FROM sofort_bench.bins('$W/engine-run') GROUP BY bin ORDER BY bin" >>"$W/raw" || die 1 "cannot read the bins"
	running=$(psql run bench -c "SELECT sofort_bench.running('$W/engine-run')")
	[ "$running" = 0 ] ||
		die 1 "$running workers did not reach the end of the run; the server's log: $(worker_failure "$W/log/run.log")"
	# the first that was run after the kill
	awk -F, -v s="${SERVER_START[run]}" '$1 == "bin" && $2 > s && $3 > 0 { print "event," $2 ",ready"; exit }' "$W/raw" >"$W/raw.ready"
	cat "$W/raw.ready" >>"$W/raw"
}

# What happens to the server in the middle of a run: "kill" (and start), "pause" (some
# seconds between the two), "sessions" (their processes end, the server does not)
DISTURBANCE=kill
disturb()
{
	case "$DISTURBANCE" in
		kill | pause)
			kill9_server run
			[ "$DISTURBANCE" = kill ] || sleep "$pause"
			launch_server run
			STARTED=${SERVER_START[run]}
			;;
		sessions)
			STARTED=$(now_us)
			psql run postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'bench'" >/dev/null ||
				die 1 "cannot end the sessions"
			;;
	esac
}

# crash_run EXPERIMENT LABEL LOAD SIZE MIX AFTER [WINDOW]: disturbs the running copy under
# load, and sets RESULT. The series goes to EXPERIMENT.csv.
crash_run()
{
	local experiment=$1 label=$2$ROUND load=$3 size=$4 load_mix=$5 after_mix=$6 window=${7:-} progress= killed f
	[ ! -e "$SOFORT_POOL_DIR/run.pool" ] || { progress=$PROGRESS; wait_rebuilt run; }
	psql run postgres -c "CHECKPOINT"
	start_load "$load" "$size" "$load_mix" "$after_mix" $((before + after)) "$progress"
	sleep "$before"
	killed=$(now_us)
	disturb
	finish_load
	{
		echo "event,$killed,killed"
		echo "event,$STARTED,start"
	} >>"$W/raw"
	[ -s "$OUT/$experiment.csv" ] || echo "$SERIES_HEAD" >"$OUT/$experiment.csv"
	cp "$W/raw" "$W/raw.last"
	RESULT=$(perl "$W/src/bench/recovery/metrics.pl" --t0 "$T0" --before "$((before < 7 ? before - 2 : 5))" ${window:+--window "$window"} \
		--series "$OUT/$experiment.csv" --label "$label" <"$W/raw") || die 1 "no result"
	{
		printf '%s,%s' "$experiment" "$label"
		for f in $(tr , '\n' <<<"$SUMMARY_HEAD" | tail -n +3); do printf ',%s' "$(field "$f" "$RESULT")"; done
		echo
	} >>"$SUMMARY"
	say "  $label: $RESULT"
	grep -E 'PANIC|TRAP|was terminated by signal' "$W/log/run.log" && die 1 "the server failed"
	return 0
}

# again WINDOW [RAW BACK]: the metrics of the last run with a window that is known only now; or
# of the run that was BACK runs before it, and of which RAW has the lines
again()
{
	local line=$(($(wc -l <"$SUMMARY") - ${3:-0}))
	RESULT=$(perl "$W/src/bench/recovery/metrics.pl" --t0 "$T0" --before "$((before < 7 ? before - 2 : 5))" --window "$1" <"${2:-$W/raw.last}") || die 1 "no result"
	sed -i -E "${line}s/^((([^,]*,){14}))[^,]*/\\1$(field in_window "$RESULT")/" "$SUMMARY"
}

# The window of a comparison: 1.08 of the time at which synchronous was done
window_of()
{
	local rebuilt
	rebuilt=$(field rebuilt "$1")
	[ "$rebuilt" != - ] || die 1 "synchronous has not rebuilt everything within --after seconds"
	calc %.1f "($rebuilt > 0.1 ? $rebuilt : 0.1) * 1.08"
}

# in_rounds COMMAND: once, or --rounds times, with the number of the round; one figure of
# several runs is a median.  Stops when the server refuses something.
in_rounds()
{
	local r
	MEASURES=()
	for ((r = 1; r <= ${rounds:-1}; r++)); do
		ROUND=
		[ "$r" = 1 ] || ROUND=" ($r)"
		"$1" "$r" || break
	done
	ROUND=
	verdicts
}

# in_turns ROUND RUN ...: TURN, the runs in the order of this round.  What runs later in a round
# finds another machine than what runs before it (its disk and memory), so each of those that are
# compared is the first as often as any other.
in_turns()
{
	local n=$((($1 - 1) % ($# - 1)))
	shift
	TURN=("${@:n + 1}" "${@:1:n}")
}

# first_round EXPERIMENT: its series without those of other rounds
first_round() { grep -v -E '^[^,]* \([0-9]+\),' "$OUT/$1.csv"; }

# picture EXPERIMENT TITLE [COLUMN YLABEL FILE]
picture()
{
	[ -s "$OUT/$1.csv" ] || return 0
	first_round "$1" | plot "${5:-$1}.svg" --title "$2" --x t --y "${3:-transactions_per_s}" --series run --xlabel "seconds from T0" \
		--ylabel "${4:-transactions/s}" --range "-$((before < 5 ? before : 5)):$after" --mark 0=T0
}

ratio() { if [ "$2" = 0 ]; then echo -; else calc %.3f "$1 / $2"; fi; }

# verdict TEXT VALUE RELATION TARGET
verdict()
{
	local v=missed
	[ "$2" != - ] || { say "  $1: nothing to compare with"; return; }
	awk "BEGIN { exit !($2 $3 $4) }" && v=met
	say "  $1: $2 (aims at $3 $4: $v)"
	[ -s "$OUT/recovery-targets.csv" ] || echo "measure,value,target,verdict" >"$OUT/recovery-targets.csv"
	echo "\"$1\",$2,$3 $4,$v" >>"$OUT/recovery-targets.csv"
}

# measure TEXT VALUE RELATION TARGET: in one of the rounds
measure()
{
	MEASURES+=("$1|$2|$3|$4")
	[ "${rounds:-1}" = 1 ] || say "  $1: $2"
}

# The verdicts on the medians of what was measured; none on those of some rounds only
verdicts()
{
	local m text values relation target done=
	for m in "${MEASURES[@]}"; do
		IFS='|' read -r text _ relation target <<<"$m"
		case "$done" in *"|$text|"*) continue ;; esac
		done="$done|$text|"
		values=$(printf '%s\n' "${MEASURES[@]}" | awk -F'|' -v t="$text" '$1 == t { print $2 }' | sort -g)
		if [ "$(wc -l <<<"$values")" = 1 ]; then
			verdict "$text" "$values" "$relation" "$target"
			continue
		fi
		say "  $text, in rounds: $(tr '\n' ' ' <<<"$values")"
		verdict "$text, median" "$(if grep -qx -e - <<<"$values"; then echo -; else median <<<"$values"; fi)" "$relation" "$target"
	done
}

# ---- C15: placement against recovery ----

# placed EXPERIMENT LABEL PERCENT MODE
placed()
{
	local n list
	n=$(wc -w <<<"$order")
	list=$(tr ' ' '\n' <<<"$order" | head -n $((($3 * n + 50) / 100)))
	placed_template $list && start_copy "$TEMPLATE" "sofort.recovery_mode = $4" || { discard run; return 1; }
	crash_run "$1" "$2" tatp "$subscribers" "$mix" -
	discard run
}

tatp_template() { template "tatp-$1-$2" "$1" load_tatp "$1" "$2"; }

round_fig8()
{
	local sync area
	placed fig8 "a: 0 % synchronous" 0 synchronous || return 1
	sync=$RESULT
	placed fig8 "b: 0 % $mode" 0 "$mode" &&
		say "  area against synchronous: $(ratio "$(field area "$RESULT")" "$(field area "$sync")")"
	if placed fig8 "c: 40 % $mode" 40 "$mode"; then
		measure "recovery area, 40 % $persistent / synchronous" "$(ratio "$(field area "$RESULT")" "$(field area "$sync")")" "<=" 0.18
	fi
	if placed fig8 "d: 100 %" 100 "$mode"; then
		area=$(ratio "$(field area "$RESULT")" "$(field area "$sync")")
		measure "recovery area, all $persistent / synchronous" "$area" "<=" 0.05
		measure "first second (clients connected), all $persistent / before" "$(field ready_second "$RESULT")" ">=" 0.9
		measure "throughput, all $persistent / all dram, at $latency ns" "$(ratio "$(field before "$RESULT")" "$(field before "$sync")")" ">=" \
			"$([ $engine = 1 ] && echo 0.75 || echo 0.95)"
	fi
}

experiment_fig8()
{
	local r
	in_rounds round_fig8
	picture fig8 "TATP, $subscribers subscribers, $clients clients: SIGKILL"
	[ -s "$OUT/fig8.csv" ] || return 0
	for r in a b c d; do
		grep -q "^$r: " "$OUT/fig8.csv" || continue
		{ head -n 1 "$OUT/fig8.csv"; first_round fig8 | grep "^$r: "; } | plot "fig8$r.svg" --title "$(sed -n "s/^\($r: [^,]*\),.*/\1/p" "$OUT/fig8.csv" | head -n 1)" \
			--x t --y transactions_per_s --xlabel "seconds from T0" --ylabel "transactions/s" --range "-$((before < 5 ? before : 5)):$after" --mark 0=T0
	done
}

# What the kill itself costs, and what the machine: all pmem, where there is nothing to rebuild
round_controls()
{
	local d
	for d in kill pause sessions; do
		DISTURBANCE=$d
		placed controls "$d" 100 "$mode" || { DISTURBANCE=kill; return 1; }
		measure "$d: second after all have connected / before" "$(field ready_second "$RESULT")" ">=" 0.9
	done
	DISTURBANCE=kill
}

experiment_controls()
{
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	in_rounds round_controls
	picture controls "TATP, all $persistent: SIGKILL; the same with ${pause} s before the start; sessions that end and come back"
}

# visit_nodes CLUSTER: all nodes of all indexes are visited once.  The first visit to a node
# in the pool after a start checks all of it, which is part of recovery ("ready_second" has
# it), and in 5 million subscribers takes minutes of load to be over.
visit_nodes()
{
	psql "$1" bench -c "SET enable_seqscan = off" -c "SET enable_bitmapscan = off" -c "SET enable_sort = off" \
		-c "SET max_parallel_workers_per_gather = 0" -c "
	DO \$\$
	DECLARE
		i record;
	BEGIN
		FOR i IN SELECT indrelid::regclass AS t, (SELECT string_agg(quote_ident(attname), ', ' ORDER BY k.n)
					FROM unnest(indkey) WITH ORDINALITY AS k(attnum, n)
						JOIN pg_attribute a ON a.attrelid = indrelid AND a.attnum = k.attnum) AS keys
				FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
		LOOP
			EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %s ORDER BY %s OFFSET 0) AS all_of_it', i.t, i.keys);
		END LOOP;
	END \$\$" || die 1 "cannot read the indexes of $1"
}

# Throughput without a crash, both placements alternating on two servers
experiment_placement()
{
	local r side sequence tps
	[ $engine = 0 ] || { say "  bench/engine/run measures that inside the server"; return 0; }
	placed_template $order || return 0
	COPY=dram
	start_copy "tatp-sofort-$subscribers" || { discard dram; COPY=run; return 0; }
	COPY=$persistent
	if ! start_copy "$TEMPLATE"; then
		discard dram
		discard "$persistent"
		COPY=run
		return 0
	fi
	COPY=run
	wait_rebuilt dram
	wait_rebuilt "$persistent"
	visit_nodes dram
	visit_nodes "$persistent"
	echo "placement,round,transactions_per_s" >"$OUT/placement.csv"
	for ((r = 0; r <= ${rounds:-5}; r++)); do
		sequence="dram $persistent"
		[ $((r % 2)) = 1 ] || sequence="$persistent dram"
		for side in $sequence; do
			"$CLIENT" run "$(conninfo "$side" bench)" tatp "$subscribers" "$mix" - "$clients" "$before" >"$W/raw" || die 1 "the load failed"
			tps=$(awk -F, '$1 == "bin" { if (++n > 50) s += $4 } END { printf "%.0f", s / (n - 51) * 100 }' "$W/raw")
			say "  $side round $r: $tps transactions/s"
			[ $r = 0 ] || echo "$side,$r,$tps" >>"$OUT/placement.csv"
		done
	done
	verdict "throughput, all $persistent / all dram, at $latency ns" "$(ratio \
		"$(awk -F, -v s="$persistent" '$1 == s { print $3 }' "$OUT/placement.csv" | median)" \
		"$(awk -F, '$1 == "dram" { print $3 }' "$OUT/placement.csv" | median)")" ">=" 0.95
	plot placement.svg --title "TATP from outside, $latency ns" --x round --y transactions_per_s --series placement --points <"$OUT/placement.csv"
	discard dram
	discard "$persistent"
}

# Throughput and recovery area (fig9) and response times (fig10) against the share
experiment_fig9()
{
	local p
	[ ! -e "$OUT/fig9-done" ] || return 0
	touch "$OUT/fig9-done"
	echo "percent,transactions_per_s,area,response_us,peak_us,longest_us,delta" >"$OUT/fig9.csv"
	for p in 0 20 40 60 80 100; do
		placed fig10 "$p %" $p "$mode" || continue
		echo "$p,$(field before "$RESULT"),$(field area "$RESULT"),$(field response_us "$RESULT"),$(field peak_us "$RESULT"),$(field longest_us "$RESULT"),$(field delta "$RESULT")" >>"$OUT/fig9.csv"
	done
	rm -f "$OUT/fig9-done"
	[ "$(wc -l <"$OUT/fig9.csv")" -gt 1 ] || { rm -f "$OUT/fig9.csv"; return 0; }
	plot fig9-throughput.svg --title "Throughput against $persistent indexes (TATP, $latency ns)" --x percent --y transactions_per_s \
		--xlabel "indexes $persistent, %" --ylabel "transactions/s" --points <"$OUT/fig9.csv"
	plot fig9-area.svg --title "Recovery area against $persistent indexes (TATP, $latency ns)" --x percent --y area \
		--xlabel "indexes $persistent, %" --ylabel "transactions lost" --points <"$OUT/fig9.csv"
	plot fig10.svg --title "Mean response time, $clients clients (TATP, $latency ns)" --x t --y mean_us --series run \
		--xlabel "seconds from T0" --ylabel "us" --range "-$((before < 5 ? before : 5)):$after" --mark 0=T0 <"$OUT/fig10.csv"
}

experiment_fig10() { experiment_fig9; }

# ---- A17 ----

uniform_template()
{
	TEMPLATE=uniform-sofort-$tables-$columns-$rows SIZE=$rows
	template "$TEMPLATE" sofort load_uniform sofort
}

# of a load: template, size, mixes
of_load()
{
	case "$1" in
		tatp)
			tatp_template sofort "$subscribers"
			TEMPLATE=tatp-sofort-$subscribers SIZE=$subscribers QUERIES=80-20 FULL=tatp ;;
		tpcc)
			template "tpcc-sofort-$warehouses-$divisor" sofort load_tpcc sofort "$warehouses"
			TEMPLATE=tpcc-sofort-$warehouses-$divisor SIZE=$warehouses QUERIES=50-50/$divisor FULL=tpcc/$divisor ;;
		uniform)		# ranges of eight values, of the first half of the tables; then of the other half
			[ "$tables" -gt 1 ] || die 2 "--load uniform: at least two tables"
			uniform_template
			FULL=${tables}x$columns/1-$((tables / 2))/8 QUERIES=${tables}x$columns/$((tables / 2 + 1))-$tables/8 ;;
	esac
}

# mode_run EXPERIMENT LABEL LOAD MIX AFTER WINDOW SETTING ...
mode_run()
{
	local experiment=$1 label=$2 load=$3 load_mix=$4 after_mix=$5 window=$6
	shift 6
	start_copy "$TEMPLATE" "$@" || { discard run; return 1; }
	crash_run "$experiment" "$label" "$load" "$SIZE" "$load_mix" "$after_mix" "$window"
	discard run
}

compare_in_window() { ratio "$(field in_window "$1")" "$(field in_window "$2")"; }

# round_strategies ROUND: of load $LOAD
round_strategies()
{
	local l=$LOAD sync window m
	local -A results=()
	mode_run "strategies-$l" synchronous "$l" "$QUERIES" - "" "sofort.recovery_mode = synchronous" || return 1
	window=$(window_of "$RESULT") || exit 1
	again "$window"
	sync=$RESULT
	say "  window: $window s; synchronous: $(field in_window "$sync") transactions"
	in_turns "$1" instant adaptive
	for m in "${TURN[@]}"; do
		mode_run "strategies-$l" "$m" "$l" "$QUERIES" - "$window" "sofort.recovery_mode = $m" && results[$m]=$RESULT
	done
	[ -z "${results[instant]:-}" ] || measure "$l: instant, first second / before" "$(field first_second "${results[instant]}")" ">=" 0.3
	[ -n "${results[adaptive]:-}" ] || return 0
	measure "$l: adaptive / synchronous in the window" "$(compare_in_window "${results[adaptive]}" "$sync")" ">=" "$([ "$l" = tatp ] && echo 7 || echo 5)"
	[ -z "${results[instant]:-}" ] || measure "$l: adaptive / instant in the window" "$(compare_in_window "${results[adaptive]}" "${results[instant]}")" ">=" 1
}

experiment_strategies()
{
	local LOAD
	for LOAD in $loads; do
		[ $engine = 0 ] || [ "$LOAD" = tatp ] || continue
		of_load "$LOAD"
		in_rounds round_strategies
		picture "strategies-$LOAD" "Recovery strategies, $LOAD, $clients clients"
	done
}

experiment_resources()
{
	local l n window sync
	for l in $loads; do
		[ $engine = 0 ] || [ "$l" = tatp ] || continue
		of_load "$l"
		mode_run "resources-$l" "synchronous" "$l" "$QUERIES" - "" "sofort.recovery_mode = synchronous" || return 0
		window=$(window_of "$RESULT") || exit 1
		again "$window"
		sync=$RESULT
		for n in 1 2 4; do
			mode_run "resources-$l" "adaptive with $n workers" "$l" "$QUERIES" - "$window" "sofort.recovery_mode = adaptive" "sofort.recovery_workers = $n" &&
				say "  in the window against synchronous: $(compare_in_window "$RESULT" "$sync")"
		done
		picture "resources-$l" "Recovery resources, $l, $clients clients"
	done
}

# change_run LABEL: after "synchronous", which has set the window
change_run()
{
	local TEMPLATE=$TEMPLATE settings=("${settings[@]}")
	case "$1" in
		"not adapting") settings+=("sofort.recovery_alpha = 1") ;;	# alpha^n = 1: the past keeps its weight for ever
		"nothing to rebuild") TEMPLATE=$CEILING ;;
	esac
	mode_run "change-$LOAD" "$1" "$LOAD" "$FULL" "$QUERIES" "$window" "sofort.recovery_mode = adaptive"
}

# round_change ROUND: of load $LOAD
round_change()
{
	local l=$LOAD window m fixed
	local -A results=()
	mode_run "change-$l" synchronous "$l" "$FULL" "$QUERIES" "" "sofort.recovery_mode = synchronous" || return 1
	window=$(window_of "$RESULT") || exit 1
	again "$window"
	in_turns "$1" "${CHANGES[@]}"
	for m in "${TURN[@]}"; do
		change_run "$m" && results[$m]=$RESULT
	done
	fixed=${results[not adapting]:-}
	[ -n "$fixed" ] || return 1
	[ -z "${results[adapting]:-}" ] ||
		measure "$l: adapting to a changed workload / not" "$(compare_in_window "${results[adapting]}" "$fixed")" ">=" 1.25
	[ -z "${results[nothing to rebuild]:-}" ] ||
		say "  $l: with nothing to rebuild / not adapting: $(compare_in_window "${results[nothing to rebuild]}" "$fixed")"
}

# What the best order could win at most: the same with all indexes there from the start.  Sets
# CEILING, their template.
ceiling_template()
{
	local TEMPLATE=
	placed_template $order && CEILING=$TEMPLATE
}

experiment_change()
{
	local LOAD CEILING= CHANGES
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	for LOAD in $loads; do
		of_load "$LOAD"
		CHANGES=("not adapting" adapting)
		[ "$LOAD" != tatp ] || ! ceiling_template || CHANGES+=("nothing to rebuild")
		in_rounds round_change
		picture "change-$LOAD" "Workload change during recovery, $LOAD, $clients clients"
	done
}

# round_worst ROUND: the window is known when synchronous has run, first or last
round_worst()
{
	local m window rebuilt back
	local -A results=()
	in_turns "$1" synchronous adaptive
	for m in "${TURN[@]}"; do
		mode_run worst "$m" uniform "${tables}x$columns" - "" "sofort.recovery_mode = $m" || return 1
		results[$m]=$RESULT
		cp "$W/raw.last" "$W/raw.$m"
	done
	window=$(window_of "${results[synchronous]}") || exit 1
	for back in 0 1; do
		m=${TURN[1 - back]}
		again "$window" "$W/raw.$m" $back
		results[$m]=$RESULT
		say "  $m, in the window of $window s: $(field in_window "$RESULT") transactions"
	done
	measure "worst case: adaptive / synchronous in the window" "$(compare_in_window "${results[adaptive]}" "${results[synchronous]}")" ">=" 2
	rebuilt=$(field rebuilt "${results[adaptive]}")
	[ "$rebuilt" != - ] || {
		say "  worst case: adaptive has not rebuilt everything within $after s: counted as never"
		rebuilt=1e9
	}
	measure "worst case: end of rebuild, adaptive / synchronous" "$(ratio "$rebuilt" "$(field rebuilt "${results[synchronous]}")")" "<=" 1.2
}

experiment_worst()
{
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	uniform_template
	in_rounds round_worst
	picture worst "$tables tables of $columns columns, $rows rows each: all looked up equally"
}

# ---- D14: restart time ----

# restart_run VARIED SIDE ROWS DISTINCT: milliseconds from start to the first answer,
# and of the first statements in a fresh backend that need an index, a dictionary.
# SIDE: sofort, heap; sofort with index and dictionaries in the pool
restart_run()
{
	local side=$2 am=${2%% *} name first indexed insert
	name=restart-$am-$3-$4
	template "$name" "$am" load_restart "$am" "$3" "$4"
	start_copy "$name" || return 1
	if [ "$side" != "$am" ]; then
		place t_pkey || { discard run; return 0; }
		psql run bench -c "SELECT sofort.set_dictionary_placement('t', c, '$persistent') FROM unnest('{a,b,c}'::name[]) c" >/dev/null ||
			die 1 "placement of dictionaries"
	fi
	psql run bench -c "CHECKPOINT" -c "UPDATE t SET b = b + 1 WHERE k % 10 = 0"
	kill9_server run
	launch_server run
	first=$("$WITNESS" answer "$(conninfo run bench)" "SELECT k FROM t LIMIT 1" "${SERVER_START[run]}" "${SERVER_PID[run]}" 300) ||
		die 1 "the server does not come back"
	indexed=$("$CLIENT" lookup "$(conninfo run bench)" "SELECT b FROM t WHERE k = 5" "${SERVER_START[run]}")
	insert=$("$CLIENT" lookup "$(conninfo run bench)" "INSERT INTO t SELECT 0, a, b, c FROM t WHERE k = 6 RETURNING k" "${SERVER_START[run]}")
	echo "$1,$side,$3,$4,$first,${indexed#* },${insert#* }" >>"$OUT/restart.csv"
	say "  $1: $side, $3 rows, $4 distinct: first answer $first ms; first statement with an index ${indexed#* } ms, with a dictionary ${insert#* } ms"
	discard run
}

experiment_restart()
{
	local am n d
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	echo "varied,am,rows,distinct,first_answer_ms,first_lookup_ms,first_insert_ms" >"$OUT/restart.csv"
	d=$((restart_rows / 200))
	for am in sofort "sofort $persistent" heap; do
		for n in 8 4 2 1; do
			restart_run rows "$am" $((restart_rows / n)) $((d > 10 ? d : 10))
		done
		for n in 1000 100 10 4; do
			restart_run distinct "$am" "$restart_rows" $((restart_rows / n > 10 ? restart_rows / n : 10))
		done
	done
	{
		echo "varied,rows,distinct,ms,series"
		awk -F, 'NR > 1 { print $1 "," $3 "," $4 "," $5 "," $2 ", first answer"; print $1 "," $3 "," $4 "," $5 + $6 "," $2 ", with an index"
			print $1 "," $3 "," $4 "," $5 + $6 + $7 "," $2 ", with index and dictionary" }' "$OUT/restart.csv" |
			awk -F, '{ print $1 "," $2 "," $3 "," $4 "," $5 ":" $6 }'
	} >"$W/restart-plot.csv"
	{ head -n 1 "$W/restart-plot.csv"; grep '^rows' "$W/restart-plot.csv"; } | plot restart-rows.svg --title "Restart after SIGKILL, dictionary fixed" \
		--x rows --y ms --series series --points --ylabel "ms from start"
	{ head -n 1 "$W/restart-plot.csv"; grep '^distinct' "$W/restart-plot.csv"; } | plot restart-distinct.svg --title "Restart after SIGKILL, rows fixed" \
		--x distinct --y ms --series series --points --ylabel "ms from start"
}

# ---- the start itself ----

# ready_starts PLACEMENT SUBSCRIBERS: of the running copy
ready_starts()
{
	local k added lookup
	for ((k = 1; k <= starts; k++)); do
		[ "$1" != dram ] || wait_rebuilt run
		"$CLIENT" run "$(conninfo run bench)" tatp "$2" tatp - "$clients" 3 >"$W/raw" &
		LOADER=$!
		sleep 2
		kill9_server run
		wait $LOADER
		: >"$W/log/run.log"
		launch_server run
		lookup=$("$CLIENT" lookup "$(conninfo run bench)" "SELECT s_id FROM subscriber WHERE s_id = 77" "${SERVER_START[run]}")
		added=$(sed -nE 's/.*sofort pool ".*" is ready in ([0-9.]+) ms.*/\1/p' "$W/log/run.log" | head -n 1)
		[ -n "$added" ] && [ -n "$lookup" ] || { cat "$W/log/run.log" >&2; die 1 "the server's log does not say what sofort added"; }
		echo "$1,$2,$k,$added,${lookup#* },$(calc %.3f "$added + ${lookup#* }")" >>"$OUT/ready.csv"
		say "  $1, $2 subscribers, start $k: sofort added $added ms, first lookup in a fresh backend ${lookup#* } ms"
	done
}

experiment_ready()
{
	local n p subscribers=$subscribers large=$subscribers
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	echo "placement,subscribers,start,added_ms,first_lookup_ms,sum_ms" >"$OUT/ready.csv"
	for n in "$large" "$small"; do
		subscribers=$n
		for p in $persistent dram; do
			if placed_template $([ "$p" = dram ] || echo "$order") && start_copy "$TEMPLATE" "sofort.recovery_mode = instant"; then
				ready_starts "$p" "$n"
			fi
			discard run
		done
	done
	subscribers=$large
	best() { awk -F, -v p="$1" -v n="$2" 'NR > 1 && $1 == p && $2 == n && (m == "" || $6 < m) { m = $6 } END { print m }' "$OUT/ready.csv"; }
	for p in $persistent dram; do
		[ -n "$(best "$p" "$subscribers")" ] && [ -n "$(best "$p" "$small")" ] || continue
		verdict "$p: start and first lookup, $subscribers subscribers, ms" "$(best "$p" "$subscribers")" "<=" 50
		verdict "$p: the same, $subscribers / $small subscribers" "$(ratio "$(best "$p" "$subscribers")" "$(best "$p" "$small")")" "<=" 1.2
	done
	{
		echo "start,sum_ms,series"
		awk -F, 'NR > 1 { print $3 "," $6 "," $1 " " $2 }' "$OUT/ready.csv"
	} | plot ready.svg --title "What sofort adds to the start, plus the first lookup" --x start --y sum_ms --series series --points --ylabel ms
}

# ---- against heap ----

# What a commit of heap waits for here: fdatasync of the disk with the data directories, us
measure_fdatasync()
{
	"$PGBIN/pg_test_fsync" -s 1 -f "$W/fsync" | awk '$1 == "fdatasync" { print $(NF - 1); exit }'
	rm -f "$W/fsync"
}

# round_heap ROUND
round_heap()
{
	local am TEMPLATE SIZE=$heap_subscribers
	local -A results=()
	in_turns "$1" sofort heap
	for am in "${TURN[@]}"; do
		TEMPLATE=tatp-$am-$SIZE
		mode_run against-heap "$am" tatp "$mix" - "" || return 1
		results[$am]=$RESULT
	done
	measure "transactions in the 30 s after SIGKILL, checkpoint $before s old: sofort / heap" \
		"$(ratio "$(field in_30s "${results[sofort]}")" "$(field in_30s "${results[heap]}")")" ">=" 2.5
}

experiment_heap()
{
	local keep_before=$before keep_after=$after us
	[ $engine = 0 ] || { say "  not with --engine"; return 0; }
	us=$(measure_fdatasync)
	say "  fdatasync takes $us us: each commit of heap that has written waits for one"
	echo "fdatasync: $us us" >>"$OUT/recovery.settings"
	before=$checkpoint_age after=$((after < 32 ? after : 32))
	[ "$before" -ge 3 ] || before=3
	tatp_template sofort "$heap_subscribers"
	tatp_template heap "$heap_subscribers"
	in_rounds round_heap
	picture against-heap "SIGKILL, checkpoint $before s old, $heap_subscribers subscribers"
	before=$keep_before after=$keep_after
}
