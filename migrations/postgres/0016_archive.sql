-- Entries that were archived can be dropped, up to a cut: an act of the kind `cut`, which is sealed, and
-- which tells the archive's last position. Of its entries up to that position an account keeps the last
-- one, and all from its first hold on that was open then.
CREATE INDEX acts_cuts ON acts (revision) WHERE kind = 'cut';

-- The places of entries that were dropped: their positions, and the hashes of their leaves, stay. It has
-- no account: nothing of it is to be erased. `revision` is the cut.
CREATE TABLE dropped_entries (
    xact bigint NOT NULL,
    id uuid NOT NULL,
    revision bigint NOT NULL REFERENCES acts (revision),
    PRIMARY KEY (xact, id)
);
CREATE UNIQUE INDEX dropped_entries_id ON dropped_entries (id);

-- `entry` is the first one that its account still has; the last one before it was appended at `at`.
CREATE TABLE cuts (
    entry uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    revision bigint NOT NULL REFERENCES acts (revision)
);

-- Figures that were recorded up to this local day cannot be made again: their entries may be dropped.
ALTER TABLE day_figures_mark ADD COLUMN kept_to text;

-- Only the owner of the tables cuts.
CREATE FUNCTION let_owners_cut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RAISE EXCEPTION 'only the owner of the tables cuts' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

-- The place of an entry is noted as dropped where a sealed cut has it. The cut was recorded 400 days after
-- its last position.
CREATE FUNCTION let_places_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM acts AS a
        JOIN record_marks AS m ON m.position = (a.about::json ->> 'last_position')::bigint
        JOIN record_marks AS s ON s.position = (
            SELECT position FROM record_marks
            WHERE (xact, id, revision)
                >= (a.xact, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid, a.revision)
            ORDER BY xact, id, revision LIMIT 1
        )
        WHERE a.revision = NEW.revision AND a.kind = 'cut'
            AND (NEW.xact, NEW.id) <= (m.xact, m.id)
            AND m.recorded_at <= s.recorded_at - interval '400 days'
            AND s.position <= (SELECT size FROM seals ORDER BY origin DESC, size DESC LIMIT 1)
    ) THEN
        RAISE EXCEPTION 'no sealed cut has this entry';
    END IF;
    RETURN NEW;
END
$$;

-- An entry may be deleted where its place is noted as dropped, and it is not its account's last one.
CREATE FUNCTION let_entries_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dropped_entries WHERE xact = OLD.xact AND id = OLD.id)
        OR (SELECT number FROM entries WHERE account = OLD.account ORDER BY number DESC LIMIT 1)
            <= OLD.number
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION let_entry_details_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dropped_entries WHERE id = OLD.id) THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN OLD;
END
$$;

-- Figures whose entries may be dropped stay.
CREATE FUNCTION let_figures_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.recorded_on <= (SELECT kept_to FROM day_figures_mark) THEN
        RAISE EXCEPTION 'the entries of these figures were dropped';
    END IF;
    RETURN OLD;
END
$$;

-- Nobody's temporary table takes the place of one that these read.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND proname IN ('let_owners_cut',
            'let_places_be_dropped', 'let_entries_be_dropped', 'let_entry_details_be_dropped',
            'let_figures_go')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    END LOOP;
END
$$;

CREATE TRIGGER acts_cut_by_owners BEFORE INSERT ON acts
    FOR EACH ROW WHEN (NEW.kind = 'cut') EXECUTE FUNCTION let_owners_cut();
CREATE TRIGGER dropped_entries_are_of_a_cut BEFORE INSERT ON dropped_entries
    FOR EACH ROW EXECUTE FUNCTION let_places_be_dropped();
CREATE TRIGGER dropped_entries_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dropped_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

DROP TRIGGER entries_are_append_only ON entries;
CREATE TRIGGER entries_are_append_only BEFORE TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entries_can_be_dropped BEFORE DELETE ON entries
    FOR EACH ROW EXECUTE FUNCTION let_entries_be_dropped();

DROP TRIGGER entry_details_are_append_only ON entry_details;
CREATE TRIGGER entry_details_are_append_only BEFORE TRUNCATE ON entry_details
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entry_details_can_be_dropped BEFORE DELETE ON entry_details
    FOR EACH ROW EXECUTE FUNCTION let_entry_details_be_dropped();

CREATE TRIGGER day_figures_are_kept BEFORE DELETE ON day_figures
    FOR EACH ROW EXECUTE FUNCTION let_figures_go();
