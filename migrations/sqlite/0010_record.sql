-- The record: one order of all entries and all changes. An entry or a change has a place in it
-- that never moves: its `xact`, then its id. An entry's `xact` is the order of appending; a change has
-- the `xact` of the newest entry before it, the highest blob of 16 bytes, and then its revision. A
-- follower gives positions 1, 2, 3 … in the order of places.
ALTER TABLE entries RENAME COLUMN position TO xact;

-- Changes that are older than the record come first.
ALTER TABLE policy_versions ADD COLUMN xact integer NOT NULL DEFAULT 0;
ALTER TABLE key_versions ADD COLUMN xact integer NOT NULL DEFAULT 0;
ALTER TABLE override_versions ADD COLUMN xact integer NOT NULL DEFAULT 0;
CREATE INDEX policy_versions_xact ON policy_versions (xact, revision);
CREATE INDEX key_versions_xact ON key_versions (xact, revision);
CREATE INDEX override_versions_xact ON override_versions (xact, revision);

-- Positions: those above `after` and up to `position`. They are of the places up to (xact, id,
-- revision). `recorded_at` is when the positions were given. Two followers cannot both go on from one
-- position.
CREATE TABLE record_marks (
    after integer PRIMARY KEY CHECK (after >= 0),
    position integer NOT NULL UNIQUE CHECK (position > after),
    xact integer NOT NULL,
    id blob NOT NULL,
    revision integer NOT NULL,
    recorded_at integer NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_marks_place ON record_marks (xact, id, revision);
CREATE INDEX record_marks_recorded ON record_marks (recorded_at, after);

CREATE TRIGGER record_marks_are_append_only_update BEFORE UPDATE ON record_marks
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER record_marks_are_append_only_delete BEFORE DELETE ON record_marks
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
