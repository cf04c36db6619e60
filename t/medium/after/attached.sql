-- step held with a dictionary that was found @8 (held at dictionary-attached)
INSERT INTO fresh VALUES (6000, 'brand new');
-- step another uses it @9
INSERT INTO fresh VALUES (6001, 'brand new');
-- step goes on @8 (goes on)
SELECT 1;
