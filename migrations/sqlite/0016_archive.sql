-- Entries that were archived can be dropped, up to a cut: an act of the kind `cut`, which is sealed, and
-- which tells the archive's last position. Of its entries up to that position an account keeps the last
-- one, and all from its first hold on that was open then.
CREATE INDEX acts_cuts ON acts (revision) WHERE kind = 'cut';

-- The places of entries that were dropped: their positions, and the hashes of their leaves, stay. It has
-- no account: nothing of it is to be erased. `revision` is the cut.
CREATE TABLE dropped_entries (
    xact integer NOT NULL,
    id blob NOT NULL,
    revision integer NOT NULL REFERENCES acts (revision),
    PRIMARY KEY (xact, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX dropped_entries_id ON dropped_entries (id);

-- `entry` is the first one that its account still has; the last one before it was appended at `at`.
CREATE TABLE cuts (
    entry blob PRIMARY KEY,
    at integer NOT NULL,
    revision integer NOT NULL REFERENCES acts (revision)
) STRICT, WITHOUT ROWID;

-- Figures that were recorded up to this local day cannot be made again: their entries may be dropped.
ALTER TABLE day_figures_mark ADD COLUMN kept_to text;

-- The place of an entry is noted as dropped where a sealed cut has it. The cut was recorded 400 days after
-- its last position.
CREATE TRIGGER dropped_entries_are_of_a_cut BEFORE INSERT ON dropped_entries
WHEN NOT EXISTS (
    SELECT 1 FROM acts AS a
    JOIN record_marks AS m ON m.position = a.about ->> 'last_position'
    JOIN record_marks AS s ON s.position = (
        SELECT position FROM record_marks
        WHERE (xact, id, revision)
            >= (a.xact, unhex('ffffffffffffffffffffffffffffffff'), a.revision)
        ORDER BY xact, id, revision LIMIT 1
    )
    WHERE a.revision = NEW.revision AND a.kind = 'cut'
        AND (NEW.xact, NEW.id) <= (m.xact, m.id)
        AND m.recorded_at <= s.recorded_at - 34560000000000
        AND s.position <= (SELECT size FROM seals ORDER BY origin DESC, size DESC LIMIT 1)
)
BEGIN
    SELECT RAISE(ABORT, 'no sealed cut has this entry');
END;
CREATE TRIGGER dropped_entries_are_append_only_update BEFORE UPDATE ON dropped_entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER dropped_entries_are_append_only_delete BEFORE DELETE ON dropped_entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

-- An entry may be deleted where its place is noted as dropped, and it is not its account's last one.
DROP TRIGGER entries_are_append_only_delete;
CREATE TRIGGER entries_are_append_only_delete BEFORE DELETE ON entries
WHEN NOT EXISTS (SELECT 1 FROM dropped_entries WHERE xact = OLD.xact AND id = OLD.id)
    OR (SELECT number FROM entries WHERE account = OLD.account ORDER BY number DESC LIMIT 1)
        <= OLD.number
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

DROP TRIGGER entry_details_are_append_only_delete;
CREATE TRIGGER entry_details_are_append_only_delete BEFORE DELETE ON entry_details
WHEN NOT EXISTS (SELECT 1 FROM dropped_entries WHERE id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

-- Figures whose entries may be dropped stay.
CREATE TRIGGER day_figures_are_kept BEFORE DELETE ON day_figures
WHEN OLD.recorded_on <= (SELECT kept_to FROM day_figures_mark)
BEGIN
    SELECT RAISE(ABORT, 'the entries of these figures were dropped');
END;
