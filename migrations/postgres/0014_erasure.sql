-- Erasure of subjects, in two steps: their texts at once, and their accounts' ids once the windows of
-- their last lines are over.
--
-- `erasures` counts how often accounts got other ids. Each append compares it with what it was when
-- the last lines were read: see erasure_epoch().
ALTER TABLE ledger ADD COLUMN erasures bigint NOT NULL DEFAULT 0;

-- The accounts that are being erased. `account` becomes the random `replacement`. `step` is 1 while
-- texts are erased; 2 until the account gets its new id; 3 until its counter is forgotten; 4 until its
-- keys are cleared, and then the row is deleted. `done` is the number of the last entry that a step has
-- done. `revision` is the act that erased. `override_ended` says that its override was ended.
CREATE TABLE erasing_accounts (
    replacement uuid PRIMARY KEY,
    account uuid NOT NULL,
    policy integer NOT NULL,
    revision bigint NOT NULL,
    step smallint NOT NULL CHECK (step BETWEEN 1 AND 4),
    done bigint NOT NULL DEFAULT 0,
    override_ended boolean NOT NULL DEFAULT false,
    due_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX erasing_accounts_account ON erasing_accounts (account) WHERE step < 3;
CREATE INDEX erasing_accounts_due ON erasing_accounts (due_at);

-- How often accounts got other ids, as of now, and not as of the statement's snapshot. Until the
-- transaction ends no account gets another id.
CREATE FUNCTION erasure_epoch() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    epoch bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(112, 1);
    SELECT erasures INTO epoch FROM ledger;
    RETURN epoch;
END
$$;

-- An update of an entry may only erase: its metadata and its key, and its account becomes the
-- replacement. The digest of what is erased stands in erased_leaves.
CREATE FUNCTION let_entries_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.number, NEW.at, NEW.units, NEW.xact, NEW.policy, NEW.policy_version, NEW.claimed_by,
            NEW.kind, NEW.id, NEW.lapses_at, NEW.totals)
        IS DISTINCT FROM (OLD.number, OLD.at, OLD.units, OLD.xact, OLD.policy, OLD.policy_version,
            OLD.claimed_by, OLD.kind, OLD.id, OLD.lapses_at, OLD.totals)
        OR NEW.flags <> OLD.flags | 8
        OR NEW.metadata IS NOT NULL
        OR NEW.key IS NOT NULL AND NEW.key IS DISTINCT FROM OLD.key
        OR NOT EXISTS (SELECT FROM erased_leaves WHERE id = OLD.id)
        OR NOT EXISTS (
            SELECT FROM erasing_accounts
            WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
        )
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION let_entry_details_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.number, NEW.id, NEW.kind, NEW.of_grant, NEW.held_until, NEW.made_by)
        IS DISTINCT FROM (OLD.number, OLD.id, OLD.kind, OLD.of_grant, OLD.held_until, OLD.made_by)
        OR NEW.reason IS NOT NULL
        OR NOT EXISTS (SELECT FROM erased_leaves WHERE id = OLD.id)
        OR NOT EXISTS (
            SELECT FROM erasing_accounts
            WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
        )
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

-- An act may only lose texts whose digest stands in erased_leaves.
CREATE FUNCTION let_acts_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.revision, NEW.kind, NEW.changed_at, NEW.changed_by, NEW.reason, NEW.xact)
        IS DISTINCT FROM (OLD.revision, OLD.kind, OLD.changed_at, OLD.changed_by, OLD.reason, OLD.xact)
        OR NOT EXISTS (
            SELECT FROM erased_leaves WHERE id = lpad(to_hex(OLD.revision), 32, '0')::uuid
        )
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

-- Nobody's temporary table takes the place of one that these read.
DO $$
DECLARE
    function text;
BEGIN
    FOREACH function IN ARRAY ARRAY[
        'erasure_epoch', 'let_entries_be_erased', 'let_entry_details_be_erased', 'let_acts_be_erased'
    ] LOOP
        EXECUTE format('ALTER FUNCTION %I() SET search_path = %I, pg_temp', function, current_schema());
    END LOOP;
END
$$;

DROP TRIGGER entries_are_append_only ON entries;
CREATE TRIGGER entries_are_append_only BEFORE DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entries_can_be_erased BEFORE UPDATE ON entries
    FOR EACH ROW EXECUTE FUNCTION let_entries_be_erased();

DROP TRIGGER entry_details_are_append_only ON entry_details;
CREATE TRIGGER entry_details_are_append_only BEFORE DELETE OR TRUNCATE ON entry_details
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entry_details_can_be_erased BEFORE UPDATE ON entry_details
    FOR EACH ROW EXECUTE FUNCTION let_entry_details_be_erased();

DROP TRIGGER acts_are_append_only ON acts;
CREATE TRIGGER acts_are_append_only BEFORE DELETE OR TRUNCATE ON acts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER acts_can_be_erased BEFORE UPDATE ON acts
    FOR EACH ROW EXECUTE FUNCTION let_acts_be_erased();
