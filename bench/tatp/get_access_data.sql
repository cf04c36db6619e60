\set s_id ((random(0, :a) | random(1, :subscribers)) % :subscribers) + 1
\set ai_type random(1, 4)
SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = :s_id AND ai_type = :ai_type;
