-- What a kind of entry is. The program has the same rows (src/domain/kind.rs). Statements read what a kind does
-- here; only a grant (1) is named by its number.
CREATE TABLE entry_kinds (
    kind integer PRIMARY KEY,
    word text NOT NULL UNIQUE,
    -- What the units do in a sum of the usage.
    sign integer NOT NULL CHECK (sign IN (-1, 0, 1)),
    names_grant integer NOT NULL CHECK (names_grant IN (0, 1)),
    -- Whether a hold that the entry names is no longer open.
    ends_hold integer NOT NULL CHECK (ends_hold IN (0, 1) AND (names_grant OR NOT ends_hold)),
    -- The state of the grant that the entry names, if nothing of it is left.
    closes_as text CHECK (ends_hold OR closes_as IS NULL),
    -- Whether the line has the instant of the clock.
    of_clock integer NOT NULL CHECK (of_clock IN (0, 1))
) STRICT;
INSERT INTO entry_kinds (kind, word, sign, names_grant, ends_hold, closes_as, of_clock) VALUES
    (1, 'grant', 1, 0, 0, NULL, 1),
    (2, 'confirmation', 0, 1, 1, NULL, 1),
    (3, 'reversal', -1, 1, 1, 'reversed', 1),
    (4, 'lapse', -1, 1, 1, 'lapsed', 0),
    (5, 'adjustment_up', 1, 0, 0, NULL, 1),
    (6, 'adjustment_down', -1, 0, 0, NULL, 1),
    (7, 'partial_reversal', -1, 1, 0, NULL, 1);

CREATE TRIGGER entry_kinds_stay BEFORE UPDATE ON entry_kinds
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entry_kinds_are_kept BEFORE DELETE ON entry_kinds
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
