-- What a kind of entry is. The program has the same rows (src/domain/kind.rs). Statements read what a kind does
-- here; only a grant (1) is named by its number.
CREATE TABLE entry_kinds (
    kind smallint PRIMARY KEY,
    word text NOT NULL UNIQUE,
    -- What the units do in a sum of the usage.
    sign smallint NOT NULL CHECK (sign IN (-1, 0, 1)),
    names_grant boolean NOT NULL,
    -- Whether a hold that the entry names is no longer open.
    ends_hold boolean NOT NULL CHECK (names_grant OR NOT ends_hold),
    -- The state of the grant that the entry names, if nothing of it is left.
    closes_as text CHECK (ends_hold OR closes_as IS NULL),
    -- Whether the line has the instant of the clock.
    of_clock boolean NOT NULL
);
INSERT INTO entry_kinds (kind, word, sign, names_grant, ends_hold, closes_as, of_clock) VALUES
    (1, 'grant', 1, false, false, NULL, true),
    (2, 'confirmation', 0, true, true, NULL, true),
    (3, 'reversal', -1, true, true, 'reversed', true),
    (4, 'lapse', -1, true, true, 'lapsed', false),
    (5, 'adjustment_up', 1, false, false, NULL, true),
    (6, 'adjustment_down', -1, false, false, NULL, true),
    (7, 'partial_reversal', -1, true, false, NULL, true);

-- No foreign keys: they would lock the row of the kind for each grant.
ALTER TABLE entries ADD CONSTRAINT entries_kind CHECK (kind BETWEEN 1 AND 7) NOT VALID;
ALTER TABLE entry_details ADD CONSTRAINT entry_details_kind CHECK (kind BETWEEN 1 AND 7) NOT VALID;

CREATE TRIGGER entry_kinds_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON entry_kinds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
