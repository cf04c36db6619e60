\set s_id ((random(0, :a) | random(1, :subscribers)) % :subscribers) + 1
\set vlr_location random(1, 4294967295)
UPDATE subscriber SET vlr_location = :vlr_location WHERE sub_nbr = lpad(:s_id::text, 15, '0');
