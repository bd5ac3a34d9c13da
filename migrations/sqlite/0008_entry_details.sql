-- The entries are written again: with what was kept of them so far, with fewer indexes, and with
-- the facts that nobody can add later. All of it is one transaction.

-- A key's small number, from 1 on. Number 0 is the key of the settings, which has no row.
ALTER TABLE keys ADD COLUMN number integer;
UPDATE keys SET number = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM keys) AS numbered
WHERE numbered.id = keys.id;
CREATE UNIQUE INDEX keys_number ON keys (number);

-- `blind` is 16 random bytes, for seals that survive the erasure of the subject.
CREATE TABLE written_again (
    id blob PRIMARY KEY,
    policy integer NOT NULL,
    subject text,
    blind blob NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO written_again (id, policy, subject, blind)
SELECT id, policy, subject, randomblob(16) FROM accounts;
DROP TABLE accounts;
ALTER TABLE written_again RENAME TO accounts;

-- What few entries have: a grant that they confirm, reverse or lapse (kinds 2, 3 and 4 of
-- `entries`), the end of a hold, who corrected something and why. `id` and `kind` are the entry's.
CREATE TABLE entry_details (
    account blob NOT NULL,
    number integer NOT NULL,
    id blob NOT NULL,
    kind integer NOT NULL,
    of_grant blob,
    held_until integer,
    made_by text,
    reason text,
    PRIMARY KEY (account, number),
    CONSTRAINT entry_details_name_grant CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4)))
) STRICT, WITHOUT ROWID;

INSERT INTO entry_details (account, number, id, kind, of_grant, held_until, made_by, reason)
SELECT account, number, id, kind, of_grant, held_until, made_by, reason FROM entries
WHERE of_grant IS NOT NULL OR held_until IS NOT NULL OR made_by IS NOT NULL;

-- A grant has at most one confirmation, and at most one reversal or lapse.
CREATE UNIQUE INDEX entry_details_of_grant ON entry_details (of_grant, (kind = 2))
    WHERE of_grant IS NOT NULL;
CREATE INDEX entry_details_held ON entry_details (account, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_holds ON entry_details (id) WHERE held_until IS NOT NULL;

-- One row an entry, numbered without gaps in its account. `position` is the order in which the
-- entries were appended. `totals` holds what each limit's window held after it
-- (0007_short_totals.sql). `kind` is 1 grant, 2 confirmation, 3 reversal, 4 lapse, 5 adjustment
-- up, 6 adjustment down. `lapses_at` belongs to the line: no open hold of the account lapses
-- before it. `flags` is a sum: 1 for a grant that Redis alone decided, 2 if it went over a limit,
-- 4 for a grant that an observing policy would have denied. `claimed_by` is the number of the key
-- that claimed or corrected; NULL for a lapse, and where nobody kept it.
CREATE TABLE written_again (
    position integer PRIMARY KEY,
    number integer NOT NULL CHECK (number > 0),
    at integer NOT NULL,
    units integer NOT NULL CHECK (units > 0),
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    claimed_by integer,
    kind integer NOT NULL,
    flags integer NOT NULL,
    account blob NOT NULL,
    id blob NOT NULL,
    key blob,
    lapses_at integer,
    totals text NOT NULL,
    metadata text
) STRICT;

INSERT INTO written_again (number, at, units, policy, policy_version, kind, flags, account, id, key,
    lapses_at, totals, metadata)
SELECT number, at, units, policy, policy_version, kind,
    COALESCE(1 + 2 * provisional, 0) + CASE WHEN would_deny THEN 4 ELSE 0 END,
    account, id, key, lapses_at, totals, metadata
FROM entries ORDER BY rowid;

DROP TABLE entries;
ALTER TABLE written_again RENAME TO entries;

CREATE UNIQUE INDEX entries_number ON entries (account, number);
CREATE UNIQUE INDEX entries_id ON entries (id);
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
-- A policy's entries by the first five bytes of their ids, which are their quarters of a second
-- (256 ms).
CREATE INDEX entries_policy ON entries (policy, substr(id, 1, 5));
CREATE INDEX entries_provisional ON entries (id) WHERE (flags & 1) <> 0;
CREATE INDEX entries_would_deny ON entries (id) WHERE (flags & 4) <> 0;

CREATE TRIGGER entries_are_append_only_update BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entries_are_append_only_delete BEFORE DELETE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entry_details_are_append_only_update BEFORE UPDATE ON entry_details
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entry_details_are_append_only_delete BEFORE DELETE ON entry_details
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
