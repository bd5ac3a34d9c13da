-- Figures and denials are checked as they are written. A figure only grows, on a day that is open, and a day
-- closes only with the act that tells its figures. So a figure that was told changes only with another act.
--
-- To make the figures again, the owner of the tables sets the position of day_figures_mark to 0. The figures
-- that can be made again go with it.
CREATE FUNCTION let_figures_grow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on
    ) THEN
        RAISE EXCEPTION 'the figures of a closed day stay';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.value < OLD.value
            OR (NEW.policy, NEW.counted_on, NEW.recorded_on, NEW.figure)
                IS DISTINCT FROM (OLD.policy, OLD.counted_on, OLD.recorded_on, OLD.figure)
        THEN
            RAISE EXCEPTION 'a figure only grows';
        END IF;
    END IF;
    RETURN NEW;
END
$$;

-- Figures go only where all are made again, and not where their entries may be dropped.
CREATE OR REPLACE FUNCTION let_figures_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM day_figures_mark WHERE position <> 0 OR OLD.recorded_on <= kept_to
    ) THEN
        RAISE EXCEPTION 'figures stay until all are made again';
    END IF;
    RETURN OLD;
END
$$;

-- The mark of the figures follows the record. Only the owner of the tables sets it to 0.
CREATE FUNCTION let_figures_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.position < OLD.position AND (NEW.position <> 0
            OR NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE'))
        OR NEW.position
            > COALESCE((SELECT position FROM record_marks ORDER BY after DESC LIMIT 1), 0)
        OR OLD.kept_to > COALESCE(NEW.kept_to, '')
    THEN
        RAISE EXCEPTION 'the figures follow the record';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION let_figures_be_made_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM day_figures WHERE NEW.kept_to IS NULL OR recorded_on > NEW.kept_to;
    RETURN NULL;
END
$$;

-- A day closes in the transaction that adds its act.
CREATE FUNCTION let_days_close() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM acts AS a JOIN policies AS p ON p.name = a.about::json ->> 'policy'
        WHERE a.xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
            AND a.kind = 'day' AND p.id = OLD.policy AND a.about::json ->> 'date' = OLD.counted_on
    ) THEN
        RAISE EXCEPTION 'a day closes with the act that tells its figures';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION let_denials_be_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on
    ) THEN
        RAISE EXCEPTION 'the denials of a closed day stay';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.denied < OLD.denied OR NEW.not_kept < OLD.not_kept
            OR (NEW.run, NEW.policy, NEW.counted_on)
                IS DISTINCT FROM (OLD.run, OLD.policy, OLD.counted_on)
        THEN
            RAISE EXCEPTION 'a count of denials only grows';
        END IF;
    END IF;
    RETURN NEW;
END
$$;

-- A first denial goes after 30 days, or in an erasure. The clock is that of the instances; the last of the 30
-- days is for what their clocks differ.
CREATE FUNCTION let_first_denials_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT COALESCE(OLD.denied_at < (SELECT max(seen_at) FROM instances) - interval '29 days', false)
        AND NOT EXISTS (SELECT FROM erasing_accounts WHERE account = OLD.account)
        AND NOT records_erasure()
    THEN
        RAISE EXCEPTION 'a first denial is kept for 30 days';
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
        WHERE pronamespace = current_schema()::regnamespace AND proname IN ('let_figures_grow',
            'let_figures_go', 'let_figures_follow', 'let_figures_be_made_again', 'let_days_close',
            'let_denials_be_counted', 'let_first_denials_go')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    END LOOP;
END
$$;

CREATE TRIGGER day_figures_grow BEFORE INSERT OR UPDATE ON day_figures
    FOR EACH ROW EXECUTE FUNCTION let_figures_grow();
CREATE TRIGGER day_figures_mark_follows BEFORE UPDATE ON day_figures_mark
    FOR EACH ROW EXECUTE FUNCTION let_figures_follow();
CREATE TRIGGER day_figures_are_made_again AFTER UPDATE ON day_figures_mark
    FOR EACH ROW WHEN (NEW.position = 0) EXECUTE FUNCTION let_figures_be_made_again();
CREATE TRIGGER open_days_close BEFORE DELETE ON open_days
    FOR EACH ROW EXECUTE FUNCTION let_days_close();
CREATE TRIGGER denied_claims_grow BEFORE INSERT OR UPDATE ON denied_claims
    FOR EACH ROW EXECUTE FUNCTION let_denials_be_counted();
CREATE TRIGGER denied_claims_stay BEFORE DELETE OR TRUNCATE ON denied_claims
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER first_denials_stay BEFORE UPDATE OR TRUNCATE ON first_denials
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER first_denials_go BEFORE DELETE ON first_denials
    FOR EACH ROW EXECUTE FUNCTION let_first_denials_go();

-- A reconciliation counts the figures of a day again. A difference of a figure has no account, but these.
ALTER TABLE differences ADD COLUMN policy integer;
ALTER TABLE differences ADD COLUMN counted_on text;
ALTER TABLE differences ADD COLUMN figure text;
CREATE INDEX acts_kind ON acts (kind, revision);
-- Reads of a subject, for whoever asks who looked at it, and for its erasure.
CREATE INDEX acts_reads ON acts ((about::json #>> '{filters,subject}'), revision) WHERE kind = 'read';
