-- The ledger: accounts with numbered, append-only entries; policies and keys beside them.
-- Instants are microseconds since 1970; ids are 16 bytes.

-- One row: who this ledger is. `secret` keys the hashes that are account and key ids.
-- `revision` counts changes of policies; its row's lock puts them in one order.
CREATE TABLE ledger (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    id blob NOT NULL,
    secret blob NOT NULL CHECK (length(secret) = 32),
    revision integer NOT NULL DEFAULT 0,
    created_at integer NOT NULL
) STRICT;

CREATE TABLE policies (
    id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

CREATE TABLE policy_versions (
    policy integer NOT NULL REFERENCES policies (id),
    version integer NOT NULL CHECK (version > 0),
    revision integer NOT NULL UNIQUE,
    rule text NOT NULL,
    archived integer NOT NULL,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    PRIMARY KEY (policy, version)
) STRICT;

-- The one place where a subject's text stands: a person can be erased here without touching
-- an entry.
CREATE TABLE accounts (
    id blob PRIMARY KEY,
    policy integer NOT NULL,
    subject text
) STRICT, WITHOUT ROWID;

-- One row an entry, numbered without gaps in its account. `totals` holds what each limit's
-- window held after it: [["day", max, used, start, end], …], instants in seconds since 1970.
CREATE TABLE entries (
    number integer NOT NULL CHECK (number > 0),
    at integer NOT NULL,
    units integer NOT NULL CHECK (units > 0),
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    kind integer NOT NULL,
    account blob NOT NULL,
    id blob NOT NULL,
    key blob,
    totals text NOT NULL,
    metadata text,
    PRIMARY KEY (account, number)
) STRICT;
CREATE UNIQUE INDEX entries_id ON entries (id);
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
CREATE INDEX entries_policy ON entries (policy, id);

CREATE TRIGGER entries_are_append_only_update BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entries_are_append_only_delete BEFORE DELETE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

CREATE TABLE keys (
    id blob PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    secret_hash blob NOT NULL UNIQUE,
    created_at integer NOT NULL
) STRICT;

-- The instances that serve this ledger just now, and whose rules of time zones they use.
CREATE TABLE instances (
    id blob PRIMARY KEY,
    zone_rules text NOT NULL,
    seen_at integer NOT NULL
) STRICT;
