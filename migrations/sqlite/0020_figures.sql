-- Figures and denials are checked as they are written. A figure only grows, on a day that is open, and a day
-- closes only with the act that tells its figures. So a figure that was told changes only with another act.
--
-- To make the figures again, set the position of day_figures_mark to 0. The figures that can be made again go
-- with it.
CREATE TRIGGER day_figures_grow_insert BEFORE INSERT ON day_figures
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'the figures of a closed day stay');
END;
CREATE TRIGGER day_figures_grow_update BEFORE UPDATE ON day_figures
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
    OR NEW.value < OLD.value
    OR (NEW.policy, NEW.counted_on, NEW.recorded_on, NEW.figure)
        <> (OLD.policy, OLD.counted_on, OLD.recorded_on, OLD.figure)
BEGIN
    SELECT RAISE(ABORT, 'a figure only grows');
END;

-- Figures go only where all are made again, and not where their entries may be dropped.
DROP TRIGGER day_figures_are_kept;
CREATE TRIGGER day_figures_are_kept BEFORE DELETE ON day_figures
WHEN EXISTS (SELECT 1 FROM day_figures_mark WHERE position <> 0 OR OLD.recorded_on <= kept_to)
BEGIN
    SELECT RAISE(ABORT, 'figures stay until all are made again');
END;

-- The mark of the figures follows the record.
CREATE TRIGGER day_figures_mark_follows BEFORE UPDATE ON day_figures_mark
WHEN NEW.position < OLD.position AND NEW.position <> 0
    OR NEW.position > COALESCE((SELECT position FROM record_marks ORDER BY after DESC LIMIT 1), 0)
    OR OLD.kept_to > COALESCE(NEW.kept_to, '')
BEGIN
    SELECT RAISE(ABORT, 'the figures follow the record');
END;
CREATE TRIGGER day_figures_are_made_again AFTER UPDATE ON day_figures_mark WHEN NEW.position = 0
BEGIN
    DELETE FROM day_figures WHERE NEW.kept_to IS NULL OR recorded_on > NEW.kept_to;
END;

-- A day closes in the transaction that adds its act: the act is the newest change.
CREATE TRIGGER open_days_close BEFORE DELETE ON open_days
WHEN NOT EXISTS (
    SELECT 1 FROM ledger AS l JOIN acts AS a ON a.revision = l.revision
    JOIN policies AS p ON p.name = a.about ->> 'policy'
    WHERE a.kind = 'day' AND p.id = OLD.policy AND a.about ->> 'date' = OLD.counted_on
)
BEGIN
    SELECT RAISE(ABORT, 'a day closes with the act that tells its figures');
END;

CREATE TRIGGER denied_claims_grow_insert BEFORE INSERT ON denied_claims
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'the denials of a closed day stay');
END;
CREATE TRIGGER denied_claims_grow_update BEFORE UPDATE ON denied_claims
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
    OR NEW.denied < OLD.denied
    OR NEW.not_kept < OLD.not_kept
    OR (NEW.run, NEW.policy, NEW.counted_on) <> (OLD.run, OLD.policy, OLD.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'a count of denials only grows');
END;
CREATE TRIGGER denied_claims_stay BEFORE DELETE ON denied_claims
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

-- A first denial goes after 30 days, or in an erasure: its act is the newest change. The clock is that of the
-- instances; the last of the 30 days is for what their clocks differ.
CREATE TRIGGER first_denials_stay BEFORE UPDATE ON first_denials
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER first_denials_go BEFORE DELETE ON first_denials
WHEN NOT COALESCE(OLD.denied_at < (SELECT MAX(seen_at) FROM instances) - 2505600000000, 0)
    AND NOT EXISTS (SELECT 1 FROM erasing_accounts WHERE account = OLD.account)
    AND NOT EXISTS (
        SELECT 1 FROM ledger AS l JOIN acts AS a ON a.revision = l.revision WHERE a.kind = 'erasure'
    )
BEGIN
    SELECT RAISE(ABORT, 'a first denial is kept for 30 days');
END;

-- A reconciliation counts the figures of a day again. A difference of a figure has no account, but these.
ALTER TABLE differences ADD COLUMN policy integer;
ALTER TABLE differences ADD COLUMN counted_on text;
ALTER TABLE differences ADD COLUMN figure text;
CREATE INDEX acts_kind ON acts (kind, revision);
-- Reads of a subject, for whoever asks who looked at it, and for its erasure.
CREATE INDEX acts_reads ON acts (about ->> '$.filters.subject', revision) WHERE kind = 'read';
