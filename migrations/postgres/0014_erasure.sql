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

-- The service has no right to change what was appended. It calls the functions below, which have the
-- rights of the tables' owner. What they do to entries, details and acts the triggers check; to the rest
-- they do it for accounts that an act of erasure names.
CREATE FUNCTION erase_entries(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entries SET metadata = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to
$$;

CREATE FUNCTION erase_entry_details(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entry_details SET reason = NULL
    WHERE account = whose AND number > after AND number <= up_to AND reason IS NOT NULL
$$;

CREATE FUNCTION erase_act(erased bigint, erased_about text) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE acts SET about = erased_about WHERE revision = erased
$$;

CREATE FUNCTION replace_entries(whose uuid, replacing uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entry_details SET account = replacing, reason = NULL
    WHERE account = whose AND number > after AND number <= up_to;
    UPDATE entries SET account = replacing, metadata = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to;
$$;

CREATE FUNCTION clear_keys(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entries SET key = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to AND key IS NOT NULL
$$;

-- Refuses where no act of erasure has the account in hand.
CREATE FUNCTION want_erasure(whose uuid, replacing uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM erasing_accounts JOIN acts USING (revision)
        WHERE kind = 'erasure' AND account = whose AND replacement = COALESCE(replacing, replacement)
    ) THEN
        RAISE EXCEPTION 'this account is not being erased';
    END IF;
END
$$;

CREATE FUNCTION erase_names(whose uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, NULL);
    UPDATE accounts SET subject = NULL WHERE id = whose;
    UPDATE override_versions SET reason = NULL WHERE account = whose;
    UPDATE overrides SET subject = NULL WHERE account = whose;
$$;

-- An account has no entries when it goes: those have the random id.
CREATE FUNCTION close_account(whose uuid, replacing uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, replacing);
    DELETE FROM accounts WHERE id = whose
        AND NOT EXISTS (SELECT FROM entries WHERE account = whose);
    UPDATE differences SET account = replacing WHERE account = whose;
    UPDATE ledger SET erasures = erasures + 1;
$$;

CREATE FUNCTION replace_override(whose uuid, replacing uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, replacing);
    UPDATE override_versions SET account = replacing, reason = NULL WHERE account = whose;
    DELETE FROM overrides WHERE account = whose;
$$;

-- Nobody's temporary table takes the place of one that these read, and only whom `perdiem migrate` names
-- calls them.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname IN ('erasure_epoch',
            'let_entries_be_erased', 'let_entry_details_be_erased', 'let_acts_be_erased',
            'erase_entries', 'erase_entry_details', 'erase_act', 'replace_entries', 'clear_keys',
            'want_erasure', 'erase_names', 'close_account', 'replace_override')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
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
