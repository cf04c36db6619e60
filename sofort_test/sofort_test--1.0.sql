/* sofort_test--1.0.sql: what the tests of sofort need; not for production */

\echo Use "CREATE EXTENSION sofort_test" to load this file. \quit

CREATE FUNCTION arm(point text, action text, nth integer DEFAULT 1)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_arm' LANGUAGE C STRICT;
COMMENT ON FUNCTION arm(text, text, integer) IS
    'the nth passage of a stop point will wait, kill (the server), kill_backend or error';

CREATE FUNCTION disarm(point text DEFAULT NULL)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_disarm' LANGUAGE C;
COMMENT ON FUNCTION disarm(text) IS 'disarm a stop point, or all of them';

CREATE FUNCTION waiters(point text)
RETURNS integer AS 'MODULE_PATHNAME', 'sofort_test_waiters' LANGUAGE C STRICT;
COMMENT ON FUNCTION waiters(text) IS 'sessions that wait at a stop point';

CREATE FUNCTION passages(point text)
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_passages' LANGUAGE C STRICT;
COMMENT ON FUNCTION passages(text) IS 'how often a stop point was passed while it was armed';

CREATE FUNCTION flush_counters(OUT lines_flushed bigint, OUT drains bigint, OUT bytes_copied bigint,
    OUT read_delays bigint, OUT write_delays bigint)
AS 'MODULE_PATHNAME', 'sofort_test_flush_counters' LANGUAGE C STRICT;
COMMENT ON FUNCTION flush_counters() IS
    'what this session has flushed since it began, and how often emulated latency delayed it';

CREATE FUNCTION burn_xids(n bigint)
RETURNS xid8 AS 'MODULE_PATHNAME', 'sofort_test_burn_xids' LANGUAGE C STRICT;
COMMENT ON FUNCTION burn_xids(bigint) IS
    'moves the next transaction id ahead by about n, at most 2^30, and assigns it to this transaction';

CREATE FUNCTION fill_pool(leave_bytes bigint)
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_fill_pool' LANGUAGE C STRICT;
COMMENT ON FUNCTION fill_pool(bigint) IS
    'reserves pool space until the end of the transaction; returns how many bytes';

CREATE FUNCTION fill_arena(leave_bytes bigint)
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_fill_arena' LANGUAGE C STRICT;
COMMENT ON FUNCTION fill_arena(bigint) IS
    'takes arena space until empty_arena() is called; returns how many bytes';

CREATE FUNCTION empty_arena()
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_empty_arena' LANGUAGE C STRICT;
COMMENT ON FUNCTION empty_arena() IS 'gives back what fill_arena() took in this session';

CREATE FUNCTION use_arena()
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_use_arena' LANGUAGE C STRICT;
COMMENT ON FUNCTION use_arena() IS 'takes arena space and gives it back, until it is cancelled';

CREATE FUNCTION give_back_free()
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_give_back_free' LANGUAGE C STRICT;
COMMENT ON FUNCTION give_back_free() IS
    'gives blocks of free space back to the file system; for half a minute none are kept';

CREATE FUNCTION reserve_and_error(bytes bigint)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_reserve_and_error' LANGUAGE C STRICT;
COMMENT ON FUNCTION reserve_and_error(bigint) IS
    'reserves pool space and raises an error before it is published';

CREATE FUNCTION set_generations(generation integer)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_set_generations' LANGUAGE C STRICT;
COMMENT ON FUNCTION set_generations(integer) IS
    'as if all transaction slots of this session had been used so often, at most 16383 times';

CREATE FUNCTION allocations(OUT owner bigint, OUT pieces bigint, OUT bytes bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sofort_test_allocations' LANGUAGE C STRICT;
COMMENT ON FUNCTION allocations() IS
    'what the pool has allocated, by owner: 1 the pool itself, 2 transactions, from 16 on stores';

CREATE FUNCTION rebuild(index regclass, segments integer)
RETURNS text AS 'MODULE_PATHNAME', 'sofort_test_rebuild' LANGUAGE C STRICT;
COMMENT ON FUNCTION rebuild(regclass, integer) IS
    'one step of the rebuild of an index: up to that many segments, 0 for all';

CREATE FUNCTION hashes(index regclass, scatter boolean)
RETURNS integer AS 'MODULE_PATHNAME', 'sofort_test_hashes' LANGUAGE C STRICT;
COMMENT ON FUNCTION hashes(regclass, boolean) IS
    'segments of an index in rebuild that have a hash; scatter: look-ups make them from now on';

CREATE FUNCTION zones(index regclass)
RETURNS text AS 'MODULE_PATHNAME', 'sofort_test_zones' LANGUAGE C STRICT;
COMMENT ON FUNCTION zones(regclass) IS
    'what is known of the segments of an index in rebuild; NULL: it is in none';

CREATE FUNCTION rank(structures text[], statements text[], alpha float8,
                     dependent boolean DEFAULT true, "limit" integer DEFAULT 1000,
                     OUT "position" integer, OUT structure text, OUT benefit float8, OUT rank float8)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sofort_test_rank' LANGUAGE C STRICT;
COMMENT ON FUNCTION rank(text[], text[], float8, boolean, integer) IS
    'ranks structures ("name rebuild flags") for statements ("past restart names costs")';

CREATE FUNCTION searches(n integer, computing integer, sleeping integer)
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_searches' LANGUAGE C STRICT;
COMMENT ON FUNCTION searches(integer, integer, integer) IS
    'what adaptive recovery takes for the cost of n searches in place of an index that compute and sleep so long; all in microseconds';

CREATE FUNCTION workload_saves()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_workload_saves' LANGUAGE C STRICT;
COMMENT ON FUNCTION workload_saves() IS
    'how often statistics of the workload were copied to the pool; two more: all that was counted before is there';

CREATE FUNCTION workload_records()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_workload_records' LANGUAGE C STRICT;
COMMENT ON FUNCTION workload_records() IS 'kinds of statements that are known, in all databases';

CREATE FUNCTION resume_waiting()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_resume_waiting' LANGUAGE C;
COMMENT ON FUNCTION resume_waiting() IS
    'goes on with some kept transaction that waits, in a transaction that has changed nothing; returns how many of its statements are finished, or null';

CREATE FUNCTION places(relation regclass, OUT class text, OUT start bigint, OUT bytes integer)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sofort_test_places' LANGUAGE C;
COMMENT ON FUNCTION places(regclass) IS
    'what the checks cover bit by bit, as places of the pool file: of a table, an index, or (NULL) the pool itself';

CREATE FUNCTION chains(OUT class text, OUT start bigint, OUT bytes integer)
RETURNS SETOF record AS 'MODULE_PATHNAME', 'sofort_test_chains' LANGUAGE C;
COMMENT ON FUNCTION chains() IS
    'references of transactions to chunks of their write sets (in use: of those that a start has to finish) and row locks, as places of the pool file';

CREATE FUNCTION milestone_bytes(relation regclass)
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_milestone_bytes' LANGUAGE C STRICT;
COMMENT ON FUNCTION milestone_bytes(regclass) IS 'memory that the milestones of a table take';

CREATE FUNCTION settled_rows(relation regclass)
RETURNS integer AS 'MODULE_PATHNAME', 'sofort_test_settled_rows' LANGUAGE C STRICT;
COMMENT ON FUNCTION settled_rows(regclass) IS 'rows at which index-only scans do not look';

CREATE FUNCTION placements_asked(relation regclass)
RETURNS text AS 'MODULE_PATHNAME', 'sofort_test_placements_asked' LANGUAGE C STRICT;
COMMENT ON FUNCTION placements_asked(regclass) IS 'where indexes of dictionaries are to lie, by column, if not in DRAM';

CREATE FUNCTION age_outcomes(hours integer)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_age_outcomes' LANGUAGE C STRICT;
COMMENT ON FUNCTION age_outcomes(integer) IS 'kept transactions that have ended did so that much earlier';

CREATE FUNCTION kept_records()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_kept_records' LANGUAGE C;
COMMENT ON FUNCTION kept_records() IS 'places for kept transactions and their outcomes in the pool';

CREATE FUNCTION limit_kept_records(n bigint)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_limit_kept_records' LANGUAGE C STRICT;
COMMENT ON FUNCTION limit_kept_records(bigint) IS 'how many of these places there may be, for this session';

CREATE FUNCTION lock_entries()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_lock_entries' LANGUAGE C;
COMMENT ON FUNCTION lock_entries() IS 'row locks that are in the lock table';

CREATE FUNCTION release_steps()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_release_steps' LANGUAGE C;
COMMENT ON FUNCTION release_steps() IS 'entries of the lock table that this session has looked at to let go of row locks';

CREATE FUNCTION former_steps()
RETURNS bigint AS 'MODULE_PATHNAME', 'sofort_test_former_steps' LANGUAGE C;
COMMENT ON FUNCTION former_steps() IS 'trees and stores that this session has looked at to find those of earlier files of indexes';

CREATE FUNCTION heap_insert(relation regclass)
RETURNS void AS 'MODULE_PATHNAME', 'sofort_test_heap_insert' LANGUAGE C STRICT;
COMMENT ON FUNCTION heap_insert(regclass) IS
    'puts a row of NULLs into the file of a table, past its access method';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @extschema@ FROM PUBLIC;
