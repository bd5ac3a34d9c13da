-- What a member of the service's role may insert is checked, so that no insert hides a change or takes a
-- place in the record that is not its own.
--
-- The place of a change is the default of a column, as that of an entry is.
DO $$
DECLARE
    placed text;
    place text;
BEGIN
    SELECT pg_get_expr(adbin, adrelid) INTO place
    FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
    WHERE adrelid = 'entries'::regclass AND attname = 'xact';
    FOREACH placed IN ARRAY ARRAY['policy_versions', 'key_versions', 'override_versions', 'acts']
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN xact SET DEFAULT %s', placed, place);
    END LOOP;
END
$$;

-- The name that an account had, while its texts are being erased: the digests of its leaves are made with
-- it. No view shows it.
ALTER TABLE erasing_accounts ADD COLUMN subject text;

-- Marks follow each other, and are of transactions that have ended.
CREATE FUNCTION let_marks_go_on() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last record_marks;
    ended bigint;
BEGIN
    SELECT * INTO last FROM record_marks ORDER BY after DESC LIMIT 1;
    IF NEW.after <> COALESCE(last.position, 0) THEN
        RAISE EXCEPTION 'another follower was first' USING ERRCODE = 'unique_violation';
    END IF;
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + xact_offset INTO ended FROM ledger;
    IF NEW.xact >= ended
        OR last.after IS NOT NULL
            AND (NEW.xact, NEW.id, NEW.revision) <= (last.xact, last.id, last.revision)
    THEN
        RAISE EXCEPTION 'a mark is of what has ended, and behind the last one';
    END IF;
    RETURN NEW;
END
$$;

-- Lists of changes end at the ledger's revision: a change above it would be in none.
CREATE FUNCTION let_changes_be_listed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.revision > (SELECT revision FROM ledger) THEN
        RAISE EXCEPTION 'a change takes the next revision of the ledger';
    END IF;
    RETURN NEW;
END
$$;

-- Whether this transaction records an erasure.
CREATE FUNCTION records_erasure() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM acts WHERE kind = 'erasure'
            AND xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
    )
$$;

-- The digest of a leaf's private part: see private_digest() in src/domain/seal/leaf.rs.
CREATE FUNCTION leaf_digest(blind uuid, id uuid, fields text) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(
        sha256(
            'perdiem salt'::bytea
            || uuid_send(COALESCE(blind, '00000000-0000-0000-0000-000000000000'::uuid)) || uuid_send(id)
        )
        || convert_to(fields, 'UTF8')
    )
$$;

CREATE FUNCTION json_field(name text, value text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_json(name)::text || ':' || COALESCE(to_json(value)::text, 'null')
$$;

-- A digest may only be kept that is of what stands there: of an account that is being erased, or of an act
-- while an erasure is recorded.
CREATE FUNCTION let_leaves_be_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    digits text := replace(NEW.id::text, '-', '');
    change bigint;
    digest bytea;
BEGIN
    IF digits NOT LIKE repeat('0', 16) || '%' THEN
        SELECT leaf_digest(a.blind, e.id, concat('{', concat_ws(',',
            json_field('account', e.account::text), json_field('key', e.key::text),
            json_field('metadata', e.metadata), json_field('reason', d.reason),
            json_field('subject', COALESCE(a.subject,
                (SELECT x.subject FROM erasing_accounts AS x WHERE x.account = a.id AND x.step = 1)))
        ), '}')) INTO digest
        FROM entries AS e JOIN accounts AS a ON a.id = e.account
        LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
        WHERE e.id = NEW.id
            AND substring(uuid_send(e.id), 1, 6) = substring(uuid_send(NEW.id), 1, 6)
            AND EXISTS (SELECT FROM erasing_accounts AS x WHERE x.account = e.account);
    ELSE
        change := ('x' || substr(digits, 17))::bit(64)::bigint;
        SELECT leaf_digest(o.blind, NEW.id, concat('{', concat_ws(',',
            json_field('account', v.account::text), json_field('reason', v.reason),
            json_field('subject', o.subject)
        ), '}')) INTO digest
        FROM override_versions AS v JOIN overrides AS o ON o.account = v.account
        WHERE v.revision = change
            AND EXISTS (SELECT FROM erasing_accounts AS x WHERE x.account = v.account);
        IF digest IS NULL AND records_erasure() THEN
            SELECT leaf_digest(c.blind, NEW.id, concat('{', concat_ws(',',
                json_field('about', c.about), json_field('reason', c.reason)
            ), '}')) INTO digest
            FROM acts AS c WHERE c.revision = change;
        END IF;
    END IF;
    IF digest IS DISTINCT FROM NEW.private THEN
        RAISE EXCEPTION 'no such leaf is being erased';
    END IF;
    RETURN NEW;
END
$$;

-- An account begins to be erased in the transaction that records it. Its name is its own.
CREATE FUNCTION let_accounts_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_begun boolean := true;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        is_begun := NEW.revision <> OLD.revision;
    END IF;
    IF is_begun AND NOT EXISTS (
            SELECT FROM acts WHERE revision = NEW.revision AND kind = 'erasure'
                AND xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
        )
        OR TG_OP = 'INSERT' AND EXISTS (SELECT FROM accounts WHERE id = NEW.replacement)
        OR is_begun AND NEW.subject IS DISTINCT FROM
            (SELECT a.subject FROM accounts AS a WHERE a.id = NEW.account)
        OR NOT is_begun AND NEW.subject IS NOT NULL AND NEW.subject IS DISTINCT FROM OLD.subject
    THEN
        RAISE EXCEPTION 'no act of this transaction erases this account';
    END IF;
    RETURN NEW;
END
$$;

-- The pseudonym that is kept is that of the account's `blind`.
CREATE FUNCTION let_pseudonyms_be_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM erasing_accounts AS x JOIN accounts AS a ON a.id = x.account
        WHERE x.replacement = NEW.account
            AND NEW.pseudonym = sha256('perdiem account'::bytea
                || uuid_send(COALESCE(a.blind, '00000000-0000-0000-0000-000000000000'::uuid)))
    ) THEN
        RAISE EXCEPTION 'this account is not being erased';
    END IF;
    RETURN NEW;
END
$$;

-- An act may only lose filters that may name a subject, whose digest stands in erased_leaves, in the
-- transaction that records an erasure.
CREATE OR REPLACE FUNCTION let_acts_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := OLD.about;
    after jsonb := NEW.about;
    names text[] := ARRAY(SELECT jsonb_array_elements_text(after->'erased'));
BEGIN
    IF (NEW.revision, NEW.kind, NEW.changed_at, NEW.changed_by, NEW.reason, NEW.blind, NEW.xact)
        IS DISTINCT FROM (OLD.revision, OLD.kind, OLD.changed_at, OLD.changed_by, OLD.reason, OLD.blind,
            OLD.xact)
        OR NOT EXISTS (
            SELECT FROM erased_leaves WHERE id = lpad(to_hex(OLD.revision), 32, '0')::uuid
        )
        OR NOT records_erasure()
        OR EXISTS (
            SELECT FROM unnest(names) AS name WHERE name <> 'subject' AND name NOT LIKE 'metadata.%'
        )
        OR NOT COALESCE(before->'erased', '[]') <@ (after->'erased')
        OR after IS DISTINCT FROM jsonb_set(before, '{filters}', (before->'filters') - names)
            || jsonb_build_object('erased', after->'erased')
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname IN ('let_marks_go_on',
            'let_changes_be_listed',
            'records_erasure', 'leaf_digest', 'json_field', 'let_leaves_be_kept', 'let_accounts_be_erased',
            'let_pseudonyms_be_kept', 'let_acts_be_erased')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    END LOOP;
END
$$;

CREATE TRIGGER record_marks_go_on BEFORE INSERT ON record_marks
    FOR EACH ROW EXECUTE FUNCTION let_marks_go_on();
CREATE TRIGGER policy_versions_are_listed BEFORE INSERT ON policy_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER key_versions_are_listed BEFORE INSERT ON key_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER override_versions_are_listed BEFORE INSERT ON override_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER acts_are_listed BEFORE INSERT ON acts
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER erased_leaves_are_kept BEFORE INSERT OR UPDATE ON erased_leaves
    FOR EACH ROW EXECUTE FUNCTION let_leaves_be_kept();
CREATE TRIGGER erasing_accounts_are_recorded BEFORE INSERT OR UPDATE ON erasing_accounts
    FOR EACH ROW EXECUTE FUNCTION let_accounts_be_erased();
CREATE TRIGGER erased_accounts_are_kept BEFORE INSERT OR UPDATE ON erased_accounts
    FOR EACH ROW EXECUTE FUNCTION let_pseudonyms_be_kept();
