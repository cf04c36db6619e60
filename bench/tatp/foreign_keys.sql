-- After the load: checking all rows at once is faster than one by one.
ALTER TABLE access_info ADD FOREIGN KEY (s_id) REFERENCES subscriber;
ALTER TABLE special_facility ADD FOREIGN KEY (s_id) REFERENCES subscriber;
ALTER TABLE call_forwarding ADD FOREIGN KEY (s_id, sf_type) REFERENCES special_facility;
