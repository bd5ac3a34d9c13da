-- Erasure of subjects, in two steps: their texts at once, and their accounts' ids once the windows of
-- their last lines are over.
--
-- `erasures` counts how often accounts got other ids. Each append compares it with what it was when
-- the last lines were read.
ALTER TABLE ledger ADD COLUMN erasures integer NOT NULL DEFAULT 0;

-- The accounts that are being erased. `account` becomes the random `replacement`. `step` is 1 while
-- texts are erased; 2 until the account gets its new id; 3 until its counter is forgotten; 4 until its
-- keys are cleared, and then the row is deleted. `done` is the number of the last entry that a step has
-- done. `revision` is the act that erased. `override_ended` says that its override was ended.
CREATE TABLE erasing_accounts (
    replacement blob PRIMARY KEY,
    account blob NOT NULL,
    policy integer NOT NULL,
    revision integer NOT NULL,
    step integer NOT NULL CHECK (step BETWEEN 1 AND 4),
    done integer NOT NULL DEFAULT 0,
    override_ended integer NOT NULL DEFAULT 0,
    due_at integer NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX erasing_accounts_account ON erasing_accounts (account) WHERE step < 3;
CREATE INDEX erasing_accounts_due ON erasing_accounts (due_at);

-- An update of an entry may only erase: its metadata and its key, and its account becomes the
-- replacement. The digest of what is erased stands in erased_leaves.
DROP TRIGGER entries_are_append_only_update;
CREATE TRIGGER entries_are_append_only_update BEFORE UPDATE ON entries
WHEN (NEW.xact, NEW.number, NEW.at, NEW.units, NEW.policy, NEW.policy_version, NEW.kind, NEW.id,
        NEW.totals)
    <> (OLD.xact, OLD.number, OLD.at, OLD.units, OLD.policy, OLD.policy_version, OLD.kind, OLD.id,
        OLD.totals)
    OR NEW.claimed_by IS NOT OLD.claimed_by
    OR NEW.lapses_at IS NOT OLD.lapses_at
    OR NEW.flags <> OLD.flags | 8
    OR NEW.metadata IS NOT NULL
    OR NEW.key IS NOT NULL AND NEW.key IS NOT OLD.key
    OR NOT EXISTS (SELECT 1 FROM erased_leaves WHERE id = OLD.id)
    OR NOT EXISTS (
        SELECT 1 FROM erasing_accounts
        WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

DROP TRIGGER entry_details_are_append_only_update;
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

-- An act may only lose texts whose digest stands in erased_leaves.
DROP TRIGGER acts_are_append_only_update;
CREATE TRIGGER acts_are_append_only_update BEFORE UPDATE ON acts
WHEN (NEW.revision, NEW.kind, NEW.changed_at, NEW.changed_by, NEW.xact)
    <> (OLD.revision, OLD.kind, OLD.changed_at, OLD.changed_by, OLD.xact)
    OR NEW.reason IS NOT OLD.reason
    OR NOT EXISTS (
        SELECT 1 FROM erased_leaves WHERE id = unhex(printf('%032x', OLD.revision))
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
