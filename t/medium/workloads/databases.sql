-- Copies of databases: whole, with all that their tables lead to, or not there.

-- step table
CREATE TABLE q (id int PRIMARY KEY, v int, t text) USING sofort;
-- step one
INSERT INTO q VALUES (1, 1, 'one');
-- step copied
CREATE DATABASE copy TEMPLATE original;
-- step others
INSERT INTO q VALUES (2, 1, 'others');
-- step and more @9
INSERT INTO q VALUES (3, 1, 'others');
