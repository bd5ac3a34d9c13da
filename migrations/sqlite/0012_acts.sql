-- Acts: what somebody did with the record, such as an export. `about` is JSON: what exactly was done.
-- An act is a change: it has a revision, and a place in the record. `blind` is 16 random bytes, for
-- seals that survive an erasure.
CREATE TABLE acts (
    revision integer PRIMARY KEY,
    kind text NOT NULL,
    about text NOT NULL,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    blind blob NOT NULL,
    xact integer NOT NULL
) STRICT;
CREATE INDEX acts_xact ON acts (xact, revision);

CREATE TRIGGER acts_are_append_only_update BEFORE UPDATE ON acts
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER acts_are_append_only_delete BEFORE DELETE ON acts
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
