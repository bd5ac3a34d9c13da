-- Some of a grant's units can be given back: kind 7. It names its grant as kinds 2 to 4 do. A grant has at
-- most one confirmation (kind 2), at most one entry that closes it (kinds 3 and 4), and any number of
-- kind 7.
ALTER TABLE entry_details DROP CONSTRAINT entry_details_name_grant;
ALTER TABLE entry_details ADD CONSTRAINT entry_details_name_grant
    CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4, 7))) NOT VALID;
DROP INDEX entry_details_of_grant;
CREATE UNIQUE INDEX entry_details_of_grant
    ON entry_details (of_grant, (CASE kind WHEN 7 THEN number WHEN 2 THEN 0 ELSE -1 END))
    WHERE of_grant IS NOT NULL;
