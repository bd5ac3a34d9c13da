-- Some of a grant's units can be given back: kind 7. It names its grant as kinds 2 to 4 do. SQLite cannot
-- change a check, so the table is written again.
CREATE TABLE written_again (
    account blob NOT NULL,
    number integer NOT NULL,
    id blob NOT NULL,
    kind integer NOT NULL,
    of_grant blob,
    held_until integer,
    made_by text,
    reason text,
    PRIMARY KEY (account, number),
    CONSTRAINT entry_details_name_grant CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4, 7)))
) STRICT, WITHOUT ROWID;
INSERT INTO written_again SELECT account, number, id, kind, of_grant, held_until, made_by, reason
FROM entry_details;
DROP TRIGGER entry_details_are_append_only_update;
DROP TRIGGER entry_details_are_append_only_delete;
DROP TABLE entry_details;
ALTER TABLE written_again RENAME TO entry_details;

-- A grant has at most one confirmation (kind 2), at most one entry that closes it (kinds 3 and 4), and
-- any number of kind 7.
CREATE UNIQUE INDEX entry_details_of_grant
    ON entry_details (of_grant, (CASE kind WHEN 7 THEN number WHEN 2 THEN 0 ELSE -1 END))
    WHERE of_grant IS NOT NULL;
CREATE INDEX entry_details_held ON entry_details (account, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_holds ON entry_details (id) WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_ends ON entry_details (held_until, id) WHERE held_until IS NOT NULL;

CREATE TRIGGER entry_details_are_append_only_update BEFORE UPDATE ON entry_details
WHEN (NEW.number, NEW.id, NEW.kind) <> (OLD.number, OLD.id, OLD.kind)
    OR NEW.of_grant IS NOT OLD.of_grant
    OR NEW.held_until IS NOT OLD.held_until
    OR NEW.made_by IS NOT OLD.made_by
    OR NEW.reason IS NOT NULL
    OR NOT EXISTS (SELECT 1 FROM erased_leaves WHERE id = OLD.id)
    OR NOT EXISTS (
        SELECT 1 FROM erasing_accounts
        WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entry_details_are_append_only_delete BEFORE DELETE ON entry_details
WHEN NOT EXISTS (SELECT 1 FROM dropped_entries WHERE id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
