\set s_id ((random(0, :a) | random(1, :subscribers)) % :subscribers) + 1
\set sf_type random(1, 4)
\set start_time 8 * random(0, 2)
\set end_time :start_time + random(1, 8)
\set number random(0, 999999999999999)
BEGIN;
SELECT s_id AS found FROM subscriber WHERE sub_nbr = lpad(:s_id::text, 15, '0') \gset
SELECT sf_type FROM special_facility WHERE s_id = :found;
INSERT INTO call_forwarding SELECT :found::int, :sf_type::smallint, :start_time::smallint, :end_time::smallint, lpad(:number::text, 15, '0') WHERE EXISTS (SELECT 1 FROM special_facility WHERE s_id = :found::int AND sf_type = :sf_type::smallint) ON CONFLICT DO NOTHING;
COMMIT;
