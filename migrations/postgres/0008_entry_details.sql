-- The entries are written again: with what was kept of them so far, with fewer indexes, and with
-- the facts that nobody can add later. All of it is one transaction.
LOCK TABLE entries, accounts, keys IN ACCESS EXCLUSIVE MODE;

-- A key's small number, from 1 on. Number 0 is the key of the settings, which has no row.
ALTER TABLE keys ADD COLUMN number integer;
UPDATE keys SET number = numbered.number
FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM keys) AS numbered
WHERE numbered.id = keys.id;
ALTER TABLE keys ALTER COLUMN number SET NOT NULL;
ALTER TABLE keys ADD CONSTRAINT keys_number UNIQUE (number);

-- 16 random bytes, for seals that survive the erasure of the subject. A default would cost 2 µs
-- a row: perdiem makes them.
ALTER TABLE accounts ADD COLUMN blind uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE accounts ALTER COLUMN blind DROP DEFAULT;

-- What few entries have: a grant that they confirm, reverse or lapse (kinds 2, 3 and 4 of
-- `entries`), the end of a hold, who corrected something and why. `id` and `kind` are the entry's.
CREATE TABLE entry_details (
    account uuid NOT NULL,
    number bigint NOT NULL,
    id uuid NOT NULL,
    kind smallint NOT NULL,
    of_grant uuid,
    held_until timestamptz,
    made_by text,
    reason text,
    CONSTRAINT entry_details_name_grant CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4)))
);

INSERT INTO entry_details (account, number, id, kind, of_grant, held_until, made_by, reason)
SELECT account, number, id, kind, of_grant, held_until, made_by, reason FROM entries
WHERE of_grant IS NOT NULL OR held_until IS NOT NULL OR made_by IS NOT NULL;

ALTER TABLE entry_details ADD PRIMARY KEY (account, number);
-- A grant has at most one confirmation, and at most one reversal or lapse.
CREATE UNIQUE INDEX entry_details_of_grant ON entry_details (of_grant, (kind = 2))
    WHERE of_grant IS NOT NULL;
CREATE INDEX entry_details_held ON entry_details (account, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_holds ON entry_details (id) WHERE held_until IS NOT NULL;

-- One row an entry, numbered without gaps in its account. `totals` holds what each limit's
-- window held after it (0007_short_totals.sql). `kind` is 1 grant, 2 confirmation, 3 reversal,
-- 4 lapse, 5 adjustment up, 6 adjustment down. `lapses_at` belongs to the line: no open hold of
-- the account lapses before it. `flags` is a sum: 1 for a grant that Redis alone decided, 2 if it
-- went over a limit, 4 for a grant that an observing policy would have denied.
--
-- `claimed_by` is the number of the key that claimed or corrected; NULL for a lapse, and where
-- nobody kept it. `xact` is the transaction that appended the entry, and 0 for all older entries:
-- the order of (xact, id) is one in which no entry comes before an older one that it was appended
-- after. In another cluster transactions begin at low numbers again; a follower of the ledger then
-- adds an offset to the column's default.
--
-- No default for `flags`: an older perdiem that still runs cannot append.
CREATE TABLE written_again (
    number bigint NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    units bigint NOT NULL CHECK (units > 0),
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    claimed_by integer,
    kind smallint NOT NULL,
    flags smallint NOT NULL,
    account uuid NOT NULL,
    id uuid NOT NULL,
    key uuid,
    lapses_at timestamptz,
    totals text NOT NULL,
    metadata text
);

INSERT INTO written_again (number, at, units, xact, policy, policy_version, kind, flags, account, id,
    key, lapses_at, totals, metadata)
SELECT number, at, units, 0, policy, policy_version, kind,
    COALESCE(1 + 2 * provisional, 0) + CASE WHEN would_deny THEN 4 ELSE 0 END,
    account, id, key, lapses_at, totals, metadata
FROM entries;

DROP TABLE entries;
ALTER TABLE written_again RENAME TO entries;

ALTER TABLE entries ADD PRIMARY KEY (account, number);
CREATE UNIQUE INDEX entries_id ON entries (id) WITH (fillfactor = 94);
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
-- A policy's entries by the first five bytes of their ids, which are their quarters of a second
-- (256 ms). PostgreSQL stores equal index keys once, so this takes about 10 bytes an entry, where
-- (policy, id) took 40 to 70.
CREATE INDEX entries_policy ON entries (policy, substring(uuid_send(id), 1, 5))
    WITH (fillfactor = 94);
CREATE INDEX entries_provisional ON entries (id) WHERE (flags & 1) <> 0;
CREATE INDEX entries_would_deny ON entries (id) WHERE (flags & 4) <> 0;
CREATE INDEX entries_xact ON entries USING brin (xact) WITH (autosummarize = on);

CREATE TRIGGER entries_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entry_details_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entry_details
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

ANALYZE entries;
ANALYZE entry_details;
ANALYZE accounts;
