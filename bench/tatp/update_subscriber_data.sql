\set s_id ((random(0, :a) | random(1, :subscribers)) % :subscribers) + 1
\set bit random(0, 1)
\set data_a random(0, 255)
\set sf_type random(1, 4)
\set hit 0
BEGIN;
UPDATE subscriber SET bit_1 = :bit WHERE s_id = :s_id;
UPDATE special_facility SET data_a = :data_a WHERE s_id = :s_id AND sf_type = :sf_type RETURNING 1 AS hit \aset
\if :hit
COMMIT;
\else
ROLLBACK;
\endif
