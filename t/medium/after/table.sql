-- step a table
CREATE TABLE another (id int, v text) USING sofort;
-- step its rows
INSERT INTO another VALUES (1, 'first');
-- step a row elsewhere
INSERT INTO q VALUES (600, 1, 'elsewhere');
