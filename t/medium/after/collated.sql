-- step looks up by the index @9
SET enable_seqscan = off;
-- step the old tree goes, and its session has nothing else to drain @9 (held at pmem-owner-slots-freed)
SELECT count(*) FROM collated WHERE t = 'row 5';
-- step the header of another one is where its own was @10
CREATE INDEX other_v ON other USING sofort_index (v COLLATE chk.changes) WITH (placement = pmem);
-- step others have its slots @10
INSERT INTO other SELECT 700 + i, string_agg(md5(i::text || k::text), '') FROM generate_series(1, 40) i, generate_series(1, 40) k WHERE k <= i GROUP BY i;
-- step others @10
INSERT INTO other VALUES (750, 'others');
-- step the new one is built in its place @9 (goes on)
SELECT 1;
-- step others again @10
INSERT INTO other VALUES (751, 'others');
