-- Acts: what somebody did with the record, such as an export. `about` is JSON: what exactly was done.
-- An act is a change: it has a revision, and a place in the record. `blind` is 16 random bytes, for
-- seals that survive an erasure.
CREATE TABLE acts (
    revision bigint PRIMARY KEY,
    kind text NOT NULL,
    about text NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    blind uuid NOT NULL,
    xact bigint NOT NULL
);
CREATE INDEX acts_xact ON acts (xact, revision);

CREATE TRIGGER acts_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON acts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
