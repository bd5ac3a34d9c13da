-- The record: one order of all entries and all changes. An entry or a change has a place in it
-- that never moves: its transaction (`xact`), then its id. A change has the highest uuid, and then its
-- revision. A place does not have the account: that is replaced when a subject is erased, and an order
-- of accounts would tell who it was. A follower gives positions 1, 2, 3 … in the order of places,
-- behind the newest transaction that is still open.
--
-- `xact_offset` is added to the numbers of transactions. In another cluster these begin low again:
-- a higher offset keeps the order.
ALTER TABLE ledger ADD COLUMN xact_offset bigint NOT NULL DEFAULT 0;

-- Changes that are older than the record have the place of transaction 0.
ALTER TABLE policy_versions ADD COLUMN xact bigint NOT NULL DEFAULT 0;
ALTER TABLE key_versions ADD COLUMN xact bigint NOT NULL DEFAULT 0;
ALTER TABLE override_versions ADD COLUMN xact bigint NOT NULL DEFAULT 0;
ALTER TABLE policy_versions ALTER COLUMN xact DROP DEFAULT;
ALTER TABLE key_versions ALTER COLUMN xact DROP DEFAULT;
ALTER TABLE override_versions ALTER COLUMN xact DROP DEFAULT;
CREATE INDEX policy_versions_xact ON policy_versions (xact, revision);
CREATE INDEX key_versions_xact ON key_versions (xact, revision);
CREATE INDEX override_versions_xact ON override_versions (xact, revision);

-- A BRIN index does not know the newest pages, which are those that the follower reads. The index grows
-- at its end only: its pages may be full.
DROP INDEX entries_xact;
CREATE INDEX entries_xact ON entries (xact) WITH (fillfactor = 100);

-- Positions: those above `after` and up to `position`. They are of the places up to (xact, id,
-- revision). `recorded_at` is when the positions were given. Two followers cannot both go on from one
-- position.
CREATE TABLE record_marks (
    after bigint PRIMARY KEY CHECK (after >= 0),
    position bigint NOT NULL UNIQUE CHECK (position > after),
    xact bigint NOT NULL,
    id uuid NOT NULL,
    revision bigint NOT NULL,
    recorded_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX record_marks_place ON record_marks (xact, id, revision);
CREATE INDEX record_marks_recorded ON record_marks (recorded_at, after);

CREATE TRIGGER record_marks_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON record_marks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
