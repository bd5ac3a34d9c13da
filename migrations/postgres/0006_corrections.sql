-- Holds and corrections. An entry's kind is 1 grant, 2 confirmation, 3 reversal, 4 lapse,
-- 5 adjustment up, 6 adjustment down. Kinds 2 to 4 name their grant in `of_grant`. A hold has
-- `held_until`. `lapses_at` belongs to the line: no open hold of the account lapses before it.
-- `would_deny` marks a grant that an observing policy would have denied.
ALTER TABLE entries
    ADD COLUMN of_grant uuid,
    ADD COLUMN held_until timestamptz,
    ADD COLUMN lapses_at timestamptz,
    ADD COLUMN would_deny boolean,
    ADD COLUMN made_by text,
    ADD COLUMN reason text,
    ADD CONSTRAINT entries_names_grant
        CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4))) NOT VALID;

-- A grant has at most one confirmation, and at most one reversal or lapse.
CREATE UNIQUE INDEX entries_of_grant ON entries (of_grant, (kind = 2)) WHERE of_grant IS NOT NULL;
CREATE INDEX entries_held ON entries (account, held_until) WHERE held_until IS NOT NULL;
CREATE INDEX entries_holds ON entries (id) WHERE held_until IS NOT NULL;
CREATE INDEX entries_would_deny ON entries (id) WHERE would_deny;
