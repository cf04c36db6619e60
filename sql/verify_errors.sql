--
-- sofort.verify() meets errors of the owner's functions, and is cancelled
--
CREATE FUNCTION fault(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_setting('my.fault', true) = 'cancel' THEN
		PERFORM pg_cancel_backend(pg_backend_pid());
		PERFORM pg_sleep(60);
	ELSIF current_setting('my.fault', true) = 'cannot connect' THEN
		RAISE 'no' USING ERRCODE = '57P03';
	ELSIF current_setting('my.fault', true) = 'plain' THEN
		RAISE 'no';
	END IF;
	RETURN $1;
END $$;
CREATE TABLE v (i int) USING sofort;
INSERT INTO v SELECT generate_series(1, 10);
CREATE INDEX v_fault ON v USING sofort_index (fault(i));
SELECT * FROM sofort.verify('v');
SET my.fault = 'plain';
SELECT * FROM sofort.verify('v');
-- what ends the command leaves nothing behind
SET my.fault = 'cancel';
SELECT * FROM sofort.verify('v');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'v'::regclass;
SET my.fault = 'cannot connect';
SELECT * FROM sofort.verify('v');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'v'::regclass;
-- nor does it take the place of the caller's subtransaction
CREATE TABLE caught (fault text);
CREATE FUNCTION catch() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO caught VALUES (current_setting('my.fault'));
	BEGIN
		INSERT INTO caught VALUES ('undone');
		PERFORM * FROM sofort.verify('v');
	EXCEPTION WHEN query_canceled OR cannot_connect_now THEN
		INSERT INTO caught VALUES (SQLSTATE);
	END;
END $$;
SELECT catch();
SELECT pg_current_xact_id_if_assigned() IS NULL AS ended;
SET my.fault = 'cancel';
SELECT catch();
SELECT pg_current_xact_id_if_assigned() IS NULL AS ended;
RESET my.fault;
SELECT * FROM caught;
SELECT * FROM sofort.verify('v');
DROP TABLE v, caught;
DROP FUNCTION catch, fault;

-- Blocks of a run: the last rows of one lie where the next has no header of a run. Here
-- they hold, at its place, the next one's number.
CREATE TABLE looks_like_a_run (id int PRIMARY KEY, v bigint) USING sofort;
INSERT INTO looks_like_a_run
	SELECT i, CASE WHEN (i - 249) % 256 = 253 THEN 6 + (i - 249) / 256 ELSE 10000000000 + i END
	FROM generate_series(1, 20000) i;
SELECT * FROM sofort.verify('looks_like_a_run');
DROP TABLE looks_like_a_run;
