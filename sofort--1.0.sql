/* sofort--1.0.sql: access methods, views and functions */

\echo Use "CREATE EXTENSION sofort" to load this file. \quit

-- ---------------------------------------------------------------------------
-- Refuses a schema that exists already if its owner, or the owner of anything in
-- it, is not a superuser: superusers would take that role's functions in it, made
-- now or later, for ours, and call them.
-- ---------------------------------------------------------------------------

DO $$
DECLARE
    path pg_catalog.text := pg_catalog.current_setting('search_path');
    home pg_catalog.oid := '@extschema@'::pg_catalog.regnamespace;
    what pg_catalog.text;
    whose pg_catalog.text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    SELECT pg_catalog.pg_describe_object(o.class, o.id, 0), pg_catalog.pg_get_userbyid(o.owner) INTO what, whose
    FROM (
        SELECT 'pg_namespace'::regclass, oid, nspowner FROM pg_catalog.pg_namespace WHERE oid = home
        UNION ALL SELECT 'pg_class'::regclass, oid, relowner FROM pg_catalog.pg_class WHERE relnamespace = home
        UNION ALL SELECT 'pg_proc'::regclass, oid, proowner FROM pg_catalog.pg_proc WHERE pronamespace = home
        UNION ALL SELECT 'pg_type'::regclass, oid, typowner FROM pg_catalog.pg_type WHERE typnamespace = home
        UNION ALL SELECT 'pg_operator'::regclass, oid, oprowner FROM pg_catalog.pg_operator WHERE oprnamespace = home
        UNION ALL SELECT 'pg_opclass'::regclass, oid, opcowner FROM pg_catalog.pg_opclass WHERE opcnamespace = home
        UNION ALL SELECT 'pg_opfamily'::regclass, oid, opfowner FROM pg_catalog.pg_opfamily WHERE opfnamespace = home
        UNION ALL SELECT 'pg_collation'::regclass, oid, collowner FROM pg_catalog.pg_collation WHERE collnamespace = home
        UNION ALL SELECT 'pg_conversion'::regclass, oid, conowner FROM pg_catalog.pg_conversion WHERE connamespace = home
        UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxowner FROM pg_catalog.pg_statistic_ext WHERE stxnamespace = home
        UNION ALL SELECT 'pg_ts_config'::regclass, oid, cfgowner FROM pg_catalog.pg_ts_config WHERE cfgnamespace = home
        UNION ALL SELECT 'pg_ts_dict'::regclass, oid, dictowner FROM pg_catalog.pg_ts_dict WHERE dictnamespace = home
    ) o (class, id, owner)
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = o.owner
    WHERE r.rolsuper IS NOT TRUE
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'schema "@extschema@" is not fit for the extension "sofort"',
            DETAIL = pg_catalog.format('Of role "%s", which is not a superuser: %s.', whose, what),
            HINT = 'Drop the schema: CREATE EXTENSION makes it. Or drop what others have in it, and take it over with ALTER SCHEMA.';
    END IF;
    PERFORM pg_catalog.set_config('search_path', path, true);
END $$;

COMMENT ON SCHEMA @extschema@ IS 'views and checks of sofort';

-- ---------------------------------------------------------------------------
-- Access methods
-- ---------------------------------------------------------------------------

CREATE FUNCTION sofort_handler(internal)
RETURNS table_am_handler
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;
COMMENT ON FUNCTION sofort_handler(internal) IS 'handler of table access method sofort';

CREATE ACCESS METHOD sofort TYPE TABLE HANDLER sofort_handler;
COMMENT ON ACCESS METHOD sofort IS 'tables in persistent memory';

CREATE FUNCTION sofort_index_handler(internal)
RETURNS index_am_handler
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;
COMMENT ON FUNCTION sofort_index_handler(internal) IS 'handler of index access method sofort_index';

CREATE ACCESS METHOD sofort_index TYPE INDEX HANDLER sofort_index_handler;
COMMENT ON ACCESS METHOD sofort_index IS 'ordered indexes of sofort tables';

-- ---------------------------------------------------------------------------
-- Operator classes of sofort_index
--
-- These are placeholders: they say which types can be indexed, and with which
-- classes.  An index itself uses the btree operator class of the same name, which
-- replaces the placeholder when the index is created.  They are in pg_catalog, so
-- that a dumped CREATE INDEX finds them.
-- ---------------------------------------------------------------------------

CREATE OPERATOR CLASS pg_catalog.array_ops DEFAULT FOR TYPE anyarray
    USING sofort_index AS STORAGE anyarray;
CREATE OPERATOR CLASS pg_catalog.bit_ops DEFAULT FOR TYPE bit
    USING sofort_index AS STORAGE bit;
CREATE OPERATOR CLASS pg_catalog.bool_ops DEFAULT FOR TYPE bool
    USING sofort_index AS STORAGE bool;
CREATE OPERATOR CLASS pg_catalog.bpchar_ops DEFAULT FOR TYPE bpchar
    USING sofort_index AS STORAGE bpchar;
CREATE OPERATOR CLASS pg_catalog.bpchar_pattern_ops FOR TYPE bpchar
    USING sofort_index AS STORAGE bpchar;
CREATE OPERATOR CLASS pg_catalog.bytea_ops DEFAULT FOR TYPE bytea
    USING sofort_index AS STORAGE bytea;
CREATE OPERATOR CLASS pg_catalog.char_ops DEFAULT FOR TYPE "char"
    USING sofort_index AS STORAGE "char";
CREATE OPERATOR CLASS pg_catalog.cidr_ops FOR TYPE inet
    USING sofort_index AS STORAGE inet;
CREATE OPERATOR CLASS pg_catalog.date_ops DEFAULT FOR TYPE date
    USING sofort_index AS STORAGE date;
CREATE OPERATOR CLASS pg_catalog.enum_ops DEFAULT FOR TYPE anyenum
    USING sofort_index AS STORAGE anyenum;
CREATE OPERATOR CLASS pg_catalog.float4_ops DEFAULT FOR TYPE float4
    USING sofort_index AS STORAGE float4;
CREATE OPERATOR CLASS pg_catalog.float8_ops DEFAULT FOR TYPE float8
    USING sofort_index AS STORAGE float8;
CREATE OPERATOR CLASS pg_catalog.inet_ops DEFAULT FOR TYPE inet
    USING sofort_index AS STORAGE inet;
CREATE OPERATOR CLASS pg_catalog.int2_ops DEFAULT FOR TYPE int2
    USING sofort_index AS STORAGE int2;
CREATE OPERATOR CLASS pg_catalog.int4_ops DEFAULT FOR TYPE int4
    USING sofort_index AS STORAGE int4;
CREATE OPERATOR CLASS pg_catalog.int8_ops DEFAULT FOR TYPE int8
    USING sofort_index AS STORAGE int8;
CREATE OPERATOR CLASS pg_catalog.interval_ops DEFAULT FOR TYPE interval
    USING sofort_index AS STORAGE interval;
CREATE OPERATOR CLASS pg_catalog.jsonb_ops DEFAULT FOR TYPE jsonb
    USING sofort_index AS STORAGE jsonb;
CREATE OPERATOR CLASS pg_catalog.macaddr8_ops DEFAULT FOR TYPE macaddr8
    USING sofort_index AS STORAGE macaddr8;
CREATE OPERATOR CLASS pg_catalog.macaddr_ops DEFAULT FOR TYPE macaddr
    USING sofort_index AS STORAGE macaddr;
CREATE OPERATOR CLASS pg_catalog.money_ops DEFAULT FOR TYPE money
    USING sofort_index AS STORAGE money;
CREATE OPERATOR CLASS pg_catalog.multirange_ops DEFAULT FOR TYPE anymultirange
    USING sofort_index AS STORAGE anymultirange;
CREATE OPERATOR CLASS pg_catalog.name_ops DEFAULT FOR TYPE name
    USING sofort_index AS STORAGE name;
CREATE OPERATOR CLASS pg_catalog.numeric_ops DEFAULT FOR TYPE numeric
    USING sofort_index AS STORAGE numeric;
CREATE OPERATOR CLASS pg_catalog.oid_ops DEFAULT FOR TYPE oid
    USING sofort_index AS STORAGE oid;
CREATE OPERATOR CLASS pg_catalog.oidvector_ops DEFAULT FOR TYPE oidvector
    USING sofort_index AS STORAGE oidvector;
CREATE OPERATOR CLASS pg_catalog.pg_lsn_ops DEFAULT FOR TYPE pg_lsn
    USING sofort_index AS STORAGE pg_lsn;
CREATE OPERATOR CLASS pg_catalog.range_ops DEFAULT FOR TYPE anyrange
    USING sofort_index AS STORAGE anyrange;
CREATE OPERATOR CLASS pg_catalog.record_image_ops FOR TYPE record
    USING sofort_index AS STORAGE record;
CREATE OPERATOR CLASS pg_catalog.record_ops DEFAULT FOR TYPE record
    USING sofort_index AS STORAGE record;
CREATE OPERATOR CLASS pg_catalog.text_ops DEFAULT FOR TYPE text
    USING sofort_index AS STORAGE text;
CREATE OPERATOR CLASS pg_catalog.text_pattern_ops FOR TYPE text
    USING sofort_index AS STORAGE text;
CREATE OPERATOR CLASS pg_catalog.tid_ops DEFAULT FOR TYPE tid
    USING sofort_index AS STORAGE tid;
CREATE OPERATOR CLASS pg_catalog.time_ops DEFAULT FOR TYPE time
    USING sofort_index AS STORAGE time;
CREATE OPERATOR CLASS pg_catalog.timestamp_ops DEFAULT FOR TYPE timestamp
    USING sofort_index AS STORAGE timestamp;
CREATE OPERATOR CLASS pg_catalog.timestamptz_ops DEFAULT FOR TYPE timestamptz
    USING sofort_index AS STORAGE timestamptz;
CREATE OPERATOR CLASS pg_catalog.timetz_ops DEFAULT FOR TYPE timetz
    USING sofort_index AS STORAGE timetz;
CREATE OPERATOR CLASS pg_catalog.tsquery_ops DEFAULT FOR TYPE tsquery
    USING sofort_index AS STORAGE tsquery;
CREATE OPERATOR CLASS pg_catalog.tsvector_ops DEFAULT FOR TYPE tsvector
    USING sofort_index AS STORAGE tsvector;
CREATE OPERATOR CLASS pg_catalog.uuid_ops DEFAULT FOR TYPE uuid
    USING sofort_index AS STORAGE uuid;
CREATE OPERATOR CLASS pg_catalog.varbit_ops DEFAULT FOR TYPE varbit
    USING sofort_index AS STORAGE varbit;
CREATE OPERATOR CLASS pg_catalog.varchar_ops FOR TYPE text
    USING sofort_index AS STORAGE text;
CREATE OPERATOR CLASS pg_catalog.varchar_pattern_ops FOR TYPE text
    USING sofort_index AS STORAGE text;
CREATE OPERATOR CLASS pg_catalog.xid8_ops DEFAULT FOR TYPE xid8
    USING sofort_index AS STORAGE xid8;

DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT o.opcname, f.opfname
        FROM pg_catalog.pg_opclass o
        JOIN pg_catalog.pg_opfamily f ON f.oid = o.opcfamily
        JOIN pg_catalog.pg_am a ON a.oid = o.opcmethod
        WHERE a.amname = 'sofort_index'
    LOOP
        EXECUTE pg_catalog.format('COMMENT ON OPERATOR CLASS pg_catalog.%I USING sofort_index IS %L',
            c.opcname, 'stands for the btree operator class of this name, which indexes use');
        EXECUTE pg_catalog.format('COMMENT ON OPERATOR FAMILY pg_catalog.%I USING sofort_index IS %L',
            c.opfname, 'of the operator class of this name; empty');
    END LOOP;
END $$;

-- ---------------------------------------------------------------------------
-- Views.  The functions behind them show a user only what he may see.
-- ---------------------------------------------------------------------------

CREATE FUNCTION pool_info(
    OUT status text, OUT reason text, OUT path text, OUT medium text, OUT promise text,
    OUT life bigint, OUT layout_version integer,
    OUT quota_bytes bigint, OUT used_bytes bigint, OUT slab_bytes bigint, OUT file_bytes bigint,
    OUT dram_total bigint, OUT dram_used bigint, OUT stores bigint,
    OUT recovery_workers_running integer, OUT indexes_rebuilt bigint, OUT rebuild_failures bigint,
    OUT flush text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_pool_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION pool_info() IS 'state of the pool; see view sofort.pool';

CREATE VIEW pool AS SELECT * FROM @extschema@.pool_info();
COMMENT ON VIEW pool IS 'the persistent-memory pool and the DRAM arena of this server';
COMMENT ON COLUMN pool.status IS 'ready, unavailable, or not preloaded';
COMMENT ON COLUMN pool.reason IS 'why sofort tables cannot be used, or null; without the privileges of pg_read_all_settings reasons that name files are not shown';
COMMENT ON COLUMN pool.path IS 'file; null without the privileges of pg_read_all_settings';
COMMENT ON COLUMN pool.medium IS 'pmem, msync or process';
COMMENT ON COLUMN pool.promise IS 'what a commit survives on this medium';
COMMENT ON COLUMN pool.life IS 'number of this server start, counted in the pool';
COMMENT ON COLUMN pool.layout_version IS 'version of the layout of the pool';
COMMENT ON COLUMN pool.quota_bytes IS 'limit set by sofort.pool_size';
COMMENT ON COLUMN pool.used_bytes IS 'bytes allocated in the pool, in units of 64 kB';
COMMENT ON COLUMN pool.slab_bytes IS 'of used_bytes, cut into smaller pieces';
COMMENT ON COLUMN pool.file_bytes IS 'bytes taken from the file system; up to 64 MB of them are free and kept for half a minute';
COMMENT ON COLUMN pool.dram_total IS 'size of the DRAM arena (sofort.dram_size)';
COMMENT ON COLUMN pool.dram_used IS 'bytes of the DRAM arena used since the start: what is freed is used again, and stays counted';
COMMENT ON COLUMN pool.stores IS 'tables, of all databases, that the pool holds';
COMMENT ON COLUMN pool.recovery_workers_running IS 'background workers that rebuild indexes now';
COMMENT ON COLUMN pool.indexes_rebuilt IS 'indexes that background workers have rebuilt since the start';
COMMENT ON COLUMN pool.flush IS
    'how stores get to the medium: clwb, clflushopt, clflush, none (eADR), or redo log';
COMMENT ON COLUMN pool.rebuild_failures IS 'rebuilds that failed in a background worker since the start';

CREATE FUNCTION table_info(
    relation regclass,
    OUT store_id bigint, OUT live_rows bigint, OUT dead_rows bigint, OUT blocks bigint,
    OUT pool_bytes bigint, OUT dram_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_table_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION table_info(regclass) IS 'state of a sofort table; see view sofort.tables';

CREATE VIEW tables AS
    SELECT c.oid::regclass AS relation, i.*
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_am a ON a.oid = c.relam
    CROSS JOIN LATERAL @extschema@.table_info(c.oid::regclass) i
    WHERE a.amname = 'sofort' AND c.relkind IN ('r', 'm');
COMMENT ON VIEW tables IS 'sofort tables of this database that the user may read';
COMMENT ON COLUMN tables.relation IS 'table or materialized view';
COMMENT ON COLUMN tables.store_id IS 'id of its data in the pool; null if the pool has none';
COMMENT ON COLUMN tables.live_rows IS 'rows (estimate)';
COMMENT ON COLUMN tables.dead_rows IS 'dead row versions (estimate)';
COMMENT ON COLUMN tables.blocks IS 'blocks of up to 256 row versions, also those that were given back; PostgreSQL''s (pg_class.relpages) are others';
COMMENT ON COLUMN tables.pool_bytes IS 'bytes in the pool, dictionaries and long values included; null if row security hides rows from the user';
COMMENT ON COLUMN tables.dram_bytes IS 'bytes in DRAM, without indexes; null if row security hides rows from the user';

CREATE FUNCTION relation_size(regclass) RETURNS bigint
AS 'MODULE_PATHNAME', 'sofort_relation_size' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION relation_size(regclass) IS
    'pg_relation_size(): of a sofort table its virtual blocks of 8192 bytes, of a sofort index its bytes in pool and DRAM';
CREATE FUNCTION relation_size(regclass, text) RETURNS bigint
AS 'MODULE_PATHNAME', 'sofort_relation_size' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION relation_size(regclass, text) IS 'pg_relation_size() of a fork; see relation_size(regclass)';
CREATE FUNCTION table_size(regclass) RETURNS bigint
AS 'MODULE_PATHNAME', 'sofort_table_size' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION table_size(regclass) IS 'pg_table_size(): of sofort tables and indexes their bytes in pool and DRAM';
CREATE FUNCTION indexes_size(regclass) RETURNS bigint
AS 'MODULE_PATHNAME', 'sofort_indexes_size' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION indexes_size(regclass) IS 'pg_indexes_size(), with the bytes of sofort indexes in pool and DRAM';
CREATE FUNCTION total_relation_size(regclass) RETURNS bigint
AS 'MODULE_PATHNAME', 'sofort_total_relation_size' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION total_relation_size(regclass) IS 'pg_total_relation_size(): table_size() and indexes_size()';

CREATE FUNCTION column_info(
    relation regclass,
    OUT attnum smallint, OUT type_oid oid, OUT encoding text, OUT width integer,
    OUT dictionary_entries bigint, OUT dictionary_bytes bigint, OUT reason text,
    OUT dictionary_placement text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_column_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION column_info(regclass) IS 'columns of a sofort table; see view sofort.columns';

CREATE VIEW columns AS
    SELECT c.oid::regclass AS relation, i.attnum, t.attname AS column_name,
           i.type_oid::regtype AS type, i.encoding, i.width,
           i.dictionary_entries, i.dictionary_bytes, i.dictionary_placement, i.reason
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_am a ON a.oid = c.relam
    CROSS JOIN LATERAL @extschema@.column_info(c.oid::regclass) i
    JOIN pg_catalog.pg_attribute t ON t.attrelid = c.oid AND t.attnum = i.attnum
    WHERE a.amname = 'sofort' AND c.relkind IN ('r', 'm') AND NOT t.attisdropped;
COMMENT ON VIEW columns IS 'how the columns of sofort tables are stored';
COMMENT ON COLUMN columns.relation IS 'table or materialized view';
COMMENT ON COLUMN columns.attnum IS 'number of the column';
COMMENT ON COLUMN columns.column_name IS 'name of the column';
COMMENT ON COLUMN columns.type IS 'type with which the values are stored';
COMMENT ON COLUMN columns.encoding IS 'plain, narrow, dictionary, inline, reference or absent, in the current shape';
COMMENT ON COLUMN columns.width IS 'bytes per row';
COMMENT ON COLUMN columns.dictionary_entries IS 'values in the dictionary, also those that no row uses; null if it has none, or row security hides rows from the user';
COMMENT ON COLUMN columns.dictionary_bytes IS 'bytes of the dictionary in the pool, with its index if that is there; null as dictionary_entries';
COMMENT ON COLUMN columns.dictionary_placement IS
    'where the index of the dictionary lies. dram: in memory, rebuilt after a start; pmem: in the pool; hybrid: in the pool, the latest values in memory; null if it has none';
COMMENT ON COLUMN columns.reason IS 'why the column is stored in this way';

CREATE FUNCTION index_info(
    index regclass,
    OUT placement text, OUT status text, OUT entries bigint, OUT dram_bytes bigint,
    OUT pool_bytes bigint, OUT rebuilt double precision)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_index_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION index_info(regclass) IS 'state of a sofort index; see view sofort.indexes';

CREATE VIEW indexes AS
    SELECT x.indrelid::regclass AS relation, c.oid::regclass AS index,
           x.indisunique AS is_unique, x.indisprimary AS is_primary, i.*
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_am a ON a.oid = c.relam
    JOIN pg_catalog.pg_index x ON x.indexrelid = c.oid
    CROSS JOIN LATERAL @extschema@.index_info(c.oid::regclass) i
    WHERE a.amname = 'sofort_index' AND c.relkind = 'i';
COMMENT ON VIEW indexes IS 'sofort indexes of this database, of tables that the user may read';
COMMENT ON COLUMN indexes.relation IS 'table';
COMMENT ON COLUMN indexes.index IS 'index';
COMMENT ON COLUMN indexes.is_unique IS 'true if it is unique';
COMMENT ON COLUMN indexes.is_primary IS 'true if it is the index of the primary key';
COMMENT ON COLUMN indexes.placement IS
    'dram: in memory, rebuilt after a start; pmem: in the pool; hybrid: leaves in the pool, inner nodes in memory';
COMMENT ON COLUMN indexes.status IS 'ready; partial: being rebuilt and used meanwhile; building; or missing: built by the next query or background worker';
COMMENT ON COLUMN indexes.entries IS
    'entries, those of dead rows included; after a crash an estimate if in the pool; null if missing or building';
COMMENT ON COLUMN indexes.dram_bytes IS 'bytes in DRAM; null if missing or building';
COMMENT ON COLUMN indexes.pool_bytes IS 'bytes in the pool';
COMMENT ON COLUMN indexes.rebuilt IS 'how much of the table is in it, 0 to 1; null if missing or building';

CREATE FUNCTION recovery_info(
    OUT mode text, OUT phase text, OUT workers integer,
    OUT structures_ready bigint, OUT structures_left bigint,
    OUT rows_done bigint, OUT segments_done bigint, OUT segments_total bigint,
    OUT failures bigint, OUT started timestamptz, OUT finished timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_recovery_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION recovery_info() IS 'state of the recovery after the start; see view sofort.recovery';

CREATE VIEW recovery AS SELECT * FROM @extschema@.recovery_info();
COMMENT ON VIEW recovery IS 'rebuilding of indexes since the start of the server, of all databases; no row without a pool';
COMMENT ON COLUMN recovery.mode IS 'sofort.recovery_mode';
COMMENT ON COLUMN recovery.phase IS 'starting, rebuilding, or finished: the background workers have nothing left to do';
COMMENT ON COLUMN recovery.workers IS 'background workers that run now';
COMMENT ON COLUMN recovery.structures_ready IS 'indexes that are complete';
COMMENT ON COLUMN recovery.structures_left IS 'indexes, as far as they are known yet, that are not';
COMMENT ON COLUMN recovery.rows_done IS 'rows that rebuilds have read';
COMMENT ON COLUMN recovery.segments_done IS 'segments of 65,536 rows that rebuilds have read';
COMMENT ON COLUMN recovery.segments_total IS 'segments of all rebuilds that were begun';
COMMENT ON COLUMN recovery.failures IS 'errors of background workers';
COMMENT ON COLUMN recovery.started IS 'when the first background worker was started';
COMMENT ON COLUMN recovery.finished IS 'when they had finished; null before';

CREATE FUNCTION transaction_info(
    OUT slot integer, OUT generation integer, OUT state text, OUT life bigint,
    OUT xid xid8, OUT pid integer, OUT entries bigint,
    OUT label text, OUT statements bigint, OUT expires timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_transaction_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION transaction_info() IS 'transactions known to the pool; see view sofort.transactions';

CREATE VIEW transactions AS SELECT * FROM @extschema@.transaction_info();
COMMENT ON VIEW transactions IS 'transaction control blocks in use; those of other users, and prepared ones, only with the privileges of pg_read_all_stats; kept transactions that wait to be resumed are shown to all, but not what they do';
COMMENT ON COLUMN transactions.slot IS 'number of the transaction control block';
COMMENT ON COLUMN transactions.generation IS 'how often it was used, modulo 16384';
COMMENT ON COLUMN transactions.state IS 'state on the medium';
COMMENT ON COLUMN transactions.life IS 'server start in which the transaction began';
COMMENT ON COLUMN transactions.xid IS 'transaction id';
COMMENT ON COLUMN transactions.pid IS 'server process, or null';
COMMENT ON COLUMN transactions.entries IS 'entries of its write set';
COMMENT ON COLUMN transactions.label IS 'of a kept transaction: its label';
COMMENT ON COLUMN transactions.statements IS 'of a kept transaction: statements that are finished and durable';
COMMENT ON COLUMN transactions.expires IS 'of a kept transaction that waits to be resumed: when it will be rolled back; else null';

CREATE FUNCTION workload_info(
    OUT statement text, OUT command text, OUT relation regclass, OUT index regclass,
    OUT past_executions float8, OUT executions bigint, OUT cost float8, OUT cost_without float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_workload_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 50;
COMMENT ON FUNCTION workload_info() IS 'kinds of statements and the indexes that they need; see view sofort.workload';

CREATE VIEW workload AS SELECT * FROM @extschema@.workload_info();
COMMENT ON VIEW workload IS 'what kinds of statements need which sofort indexes, in this database, of tables that the user may read';
COMMENT ON COLUMN workload.statement IS 'identifies the kind: a statement without its constants';
COMMENT ON COLUMN workload.command IS 'SELECT, INSERT, UPDATE, DELETE or MERGE';
COMMENT ON COLUMN workload.relation IS 'table; a kind may have several';
COMMENT ON COLUMN workload.index IS 'index that a statement of this kind looks up, one row for each; null: none';
COMMENT ON COLUMN workload.past_executions IS 'executions before the start of the server; those of ten minutes earlier count half';
COMMENT ON COLUMN workload.executions IS 'executions since the start of the server';
COMMENT ON COLUMN workload.cost IS 'cost of one execution with all its indexes, as the planner estimates it';
COMMENT ON COLUMN workload.cost_without IS 'the same if this index were missing';

CREATE FUNCTION recovery_order_info(
    OUT relation regclass, OUT index regclass, OUT "position" integer, OUT rank float8,
    OUT benefit float8, OUT rebuild_cost float8, OUT workers integer, OUT rebuilt_as bigint,
    OUT search_seconds float8, OUT rebuild_seconds float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'sofort_recovery_order_info'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 50;
COMMENT ON FUNCTION recovery_order_info() IS 'order in which indexes are rebuilt; see view sofort.recovery_order';

CREATE VIEW recovery_order AS
    SELECT r.relation, r.index, i.status, r."position", r.rank, r.benefit, r.rebuild_cost,
           r.search_seconds, r.rebuild_seconds, r.workers, r.rebuilt_as
    FROM @extschema@.recovery_order_info() r
    CROSS JOIN LATERAL @extschema@.index_info(r.index) i;
COMMENT ON VIEW recovery_order IS 'sofort indexes of this database and the order in which adaptive recovery rebuilds them, of tables that the user may read';
COMMENT ON COLUMN recovery_order.relation IS 'table';
COMMENT ON COLUMN recovery_order.index IS 'index';
COMMENT ON COLUMN recovery_order.status IS 'see sofort.indexes';
COMMENT ON COLUMN recovery_order."position" IS 'place in the order of those that are left, as adaptive recovery would choose now; null: it is not left';
COMMENT ON COLUMN recovery_order.rank IS 'benefit less rebuild_cost, if those before it in the order are ready; 0 or less: it does not pay, and is rebuilt in idle time';
COMMENT ON COLUMN recovery_order.benefit IS 'what it saves 100,000 statements of the workload before and since the start, in the planner''s units';
COMMENT ON COLUMN recovery_order.rebuild_cost IS 'cost of rebuilding what is missing, in the planner''s units';
COMMENT ON COLUMN recovery_order.search_seconds IS 'processor time since the start, in mode adaptive, in which the table was searched in its place';
COMMENT ON COLUMN recovery_order.rebuild_seconds IS
    'processor time, roughly, that rebuilding what is missing takes; while search_seconds is less, and searches do not make up most of what sessions do, workers let queries go first';
COMMENT ON COLUMN recovery_order.workers IS 'processes that work on it now';
COMMENT ON COLUMN recovery_order.rebuilt_as IS 'its number among the indexes that background workers have completed since the start (of the last 1,024); null: none of them completed it';

GRANT SELECT ON pool, tables, columns, indexes, recovery, recovery_order, transactions, workload TO PUBLIC;

-- These are the defaults, but a superuser's default privileges may say otherwise: what
-- views and planner call must be callable.
GRANT EXECUTE ON FUNCTION relation_size(regclass), relation_size(regclass, text), table_size(regclass),
    indexes_size(regclass), total_relation_size(regclass), pool_info(), table_info(regclass),
    column_info(regclass), index_info(regclass), recovery_info(), transaction_info(), workload_info(),
    recovery_order_info() TO PUBLIC;

-- ---------------------------------------------------------------------------
-- Transactions that go on after a crash
-- ---------------------------------------------------------------------------

CREATE FUNCTION keep_transaction(label text DEFAULT '')
RETURNS text
AS 'MODULE_PATHNAME', 'sofort_keep_transaction'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION keep_transaction(text) IS
    'makes the transaction one that stays open when the server dies, from the end of this statement on; returns the secret token with which it can be resumed';

CREATE FUNCTION resume_transaction(token text, OUT label text, OUT statements bigint, OUT started timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'sofort_resume_transaction'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION resume_transaction(text) IS
    'goes on with a kept transaction after a crash, in a transaction that has just begun; says how many of its statements are finished';

CREATE FUNCTION transaction_outcome(token text)
RETURNS text
AS 'MODULE_PATHNAME', 'sofort_transaction_outcome'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION transaction_outcome(text) IS
    'what has become of a kept transaction: open, committed, aborted, expired; null: not known, or for longer than a day';

CREATE FUNCTION abort_transaction(token text)
RETURNS void
AS 'MODULE_PATHNAME', 'sofort_abort_transaction'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION abort_transaction(text) IS
    'rolls back a kept transaction that waits to be resumed; for its owner and superusers';

-- ---------------------------------------------------------------------------
-- Checks and administration
-- ---------------------------------------------------------------------------

CREATE FUNCTION verify(relation regclass)
RETURNS TABLE (relation regclass, kind text, place text, problem text)
AS 'MODULE_PATHNAME', 'sofort_verify'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION verify(regclass) IS
    'checks a sofort table and its sofort indexes against each other; no row when clean; for the owner; stops writers meanwhile';

CREATE FUNCTION salvage(table_row anyelement)
RETURNS SETOF anyelement
AS 'MODULE_PATHNAME', 'sofort_salvage'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION salvage(anyelement) IS
    'the readable rows of a damaged table: salvage(NULL::table_name); warns of what it leaves out; for the owner';

CREATE FUNCTION salvage_report(relation regclass)
RETURNS TABLE (relation regclass, kind text, place text, problem text)
AS 'MODULE_PATHNAME', 'sofort_salvage_report'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION salvage_report(regclass) IS
    'what salvage() leaves out of a damaged table, and why; for the owner';

CREATE FUNCTION set_dictionary_placement(relation regclass, column_name name, placement text)
RETURNS void
AS 'MODULE_PATHNAME', 'sofort_set_dictionary_placement'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION set_dictionary_placement(regclass, name, text) IS
    'where the index of a column''s dictionary is to lie: dram, pmem or hybrid; for the owner; at once, and not undone by a rollback';

CREATE FUNCTION verify_pool()
RETURNS TABLE (relation regclass, kind text, place text, problem text)
AS 'MODULE_PATHNAME', 'sofort_verify_pool'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 10;
REVOKE EXECUTE ON FUNCTION verify_pool() FROM PUBLIC;
COMMENT ON FUNCTION verify_pool() IS
    'checks the structures of the pool; no row when clean; not for PUBLIC';

CREATE FUNCTION backup(path text, OUT restore_point text, OUT lsn pg_lsn, OUT bytes bigint,
    OUT commits_held_ms double precision)
AS 'MODULE_PATHNAME', 'sofort_backup'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION backup(text) FROM PUBLIC;
COMMENT ON FUNCTION backup(text) IS
    'copies the pool to a new file of the server, for a base backup restored to that restore point; for superusers';

CREATE FUNCTION create_pool()
RETURNS void
AS 'MODULE_PATHNAME', 'sofort_create_pool'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION create_pool() FROM PUBLIC;
COMMENT ON FUNCTION create_pool() IS
    'makes a fresh pool at the next start, in place of one that is missing; for superusers';

CREATE FUNCTION accept_reset()
RETURNS void
AS 'MODULE_PATHNAME', 'sofort_accept_reset'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION accept_reset() FROM PUBLIC;
COMMENT ON FUNCTION accept_reset() IS
    'uses the pool as it is from the next start on, though pg_resetwal has thrown away WAL; for superusers';
