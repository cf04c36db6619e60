# PostgreSQL's own tests (regression, isolation, PL/pgSQL and contrib modules) with
# sofort as the default access method (bash, sourced by check; runs inside a tree,
# see tree.sh).
#
# Names of access methods are made the same on both sides, as are runs of blanks and
# hyphens (tables are as wide as the longest name); then every test must
# give what PostgreSQL expects, or exactly the difference that suites/N/KIND
# accepts, with its reason in suites/N/KIND/accepted.

suite_library()
{
	gcc -O1 -fPIC -shared -fwrapv -fno-strict-aliasing -w -DREFINT_VERBOSE \
		-I"$("$SYSBIN/pg_config" --includedir-server)" -o "$W/suite/lib/$1.so" "$2" >>"$W/log/suites.log" 2>&1 || {
		cat "$W/log/suites.log" >&2
		return 1
	}
}

prepare_suites()
{
	local SUITE_SOURCES=/usr/src/postgresql-$PGVERSION
	mkdir -p "$W/suite/lib"
	cp -R "$SUITE_SOURCES/src/test/regress" "$SUITE_SOURCES/src/test/isolation" "$W/suite/" || return 1
	suite_library regress "$W/suite/regress/regress.c" &&
		suite_library autoinc "$SUITE_SOURCES/contrib/spi/autoinc.c" &&
		suite_library refint "$SUITE_SOURCES/contrib/spi/refint.c"
}

suite_conf()
{
	echo "max_prepared_transactions = 10"
	echo "fsync = off"
	echo "log_line_prefix = '%m %b[%p] %q%a '"
	[ "$am" = heap ] && return
	sofort_settings "suite-$1"
	echo "default_table_access_method = 'sofort'"
}

# Publications of sofort tables are refused.  What the test of publications then
# does not drop would change what later tests see.
drop_publications()
{
	local dir=$W/suite/regress
	cat >"$dir/sql/drop_publications.sql" <<'END'
SET client_min_messages = warning;
DO $$ DECLARE p name; BEGIN
    FOR p IN SELECT pubname FROM pg_publication LOOP
        EXECUTE format('DROP PUBLICATION %I', p);
    END LOOP;
END $$;
END
	cp "$dir/sql/drop_publications.sql" "$dir/expected/drop_publications.out"
	sed -i '/^test:.* publication /a test: drop_publications' "$dir/parallel_schedule"
}

# names of the tests among the arguments of a suite: of its schedule, and by themselves
tests_of()
{
	local argument
	for argument; do
		case "$argument" in
			--schedule=*) awk '$1 == "test:" { for (i = 2; i <= NF; i++) print $i }' "${argument#*=}" ;;
			-*) ;;
			*) printf '%s\n' "$argument" ;;
		esac
	done
}

# run_suite KIND PROGRAM ARGUMENT ...: of the tests in $W/suite/KIND
run_suite()
{
	local kind=$1 program=$2 out=$W/log/suite-$1 extension=--load-extension=sofort
	shift 2
	say "== suite $kind of PostgreSQL $("$PGBIN/postgres" -V | awk '{ print $3 }')"
	[ "$am" = heap ] && extension=
	mkdir -p "$out"
	suite_conf "$kind" >"$W/suite/$kind.conf"
	(cd "$W/suite/$kind" && PGOPTIONS='' "$program" --bindir="$PGBIN" --inputdir="$W/suite/$kind" --outputdir="$out" \
		--dlpath="$W/suite/lib" --temp-instance="$W/suite/$kind-instance" --temp-config="$W/suite/$kind.conf" \
		--no-locale --encoding=UTF8 $extension "$@") >"$out/summary" 2>&1
	grep -E 'TRAP:|PANIC:|terminated by signal' "$out/log/postmaster.log" >"$out/crashes"
	tests_of "$@" >"$out/tests"
	while read -r status name detail; do
		case "$status" in
			ok) pass ;;
			skip) skipped=$((skipped + 1)) ;;
			*) fail_test "suite $kind $name: $detail" ;;
		esac
	done < <(perl "$W/src/scripts/suite_compare.pl" "$W/suite/$kind" "$out" "$W/src/suites/$PGVERSION/$kind" "$am")
	if [ -s "$out/crashes" ]; then
		fail_test "suite $kind: the server crashed"
		head -n 5 "$out/crashes"
	fi
	tail -n 1 "$out/compare"
	rm -rf "$W/suite/$kind-instance"
}

# The words of a variable of a module's Makefile, without those of other variables
module_variable()
{
	sed -e ':join' -e '/\\$/{N;s/\\\n//;bjoin' -e '}' "$1/Makefile" | sed -n "s/^$2[ \t]*=//p" | head -n 1 |
		sed 's/[$][^ \t]*//g'
}

# run_modules DIRECTORY ...: those that are installed here, and have tests
run_modules()
{
	local dir module tests options extension=$("$SYSBIN/pg_config" --sharedir)/extension
	for dir; do
		[ -e "$dir/Makefile" ] || continue
		module=$(basename "$dir")
		[ "$module" = src ] && module=plpgsql
		tests=$(module_variable "$dir" REGRESS)
		options=$(module_variable "$dir" REGRESS_OPTS)
		case "$options" in *--temp-config*) continue ;; esac
		[ -n "$tests" ] && [ -e "$extension/$module.control" ] || continue
		cp -R "$dir" "$W/suite/$module" || { fail_test "suite $module: cannot be copied"; continue; }
		run_suite "$module" "$PGREGRESS" --dbname=contrib_regression $tests
	done
}

group_suites()
{
	if [ ! -d "/usr/src/postgresql-$PGVERSION" ]; then
		say "PostgreSQL's own tests are skipped: the mirror lacks the sources of $("$PGBIN/postgres" -V)"
		skipped=$((skipped + 1))
		return
	fi
	prepare_suites && drop_publications || { fail_test "the suites cannot be prepared"; return; }
	run_suite regress "$PGREGRESS" --schedule="$W/suite/regress/parallel_schedule" --max-concurrent-tests=20
	run_suite isolation "$PGTEST/isolation/pg_isolation_regress" --schedule="$W/suite/isolation/isolation_schedule" \
		prepared-transactions prepared-transactions-cic
	run_modules "/usr/src/postgresql-$PGVERSION"/{src/pl/plpgsql/src,contrib/*}
}
