-- The ledger: accounts with numbered, append-only entries; policies and keys beside them.

-- One row: who this ledger is. `secret` keys the hashes that are account and key ids.
-- `revision` counts changes of policies; its row's lock puts them in one order.
CREATE TABLE ledger (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id uuid NOT NULL,
    secret bytea NOT NULL CHECK (octet_length(secret) = 32),
    revision bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL
);

CREATE TABLE policies (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

CREATE TABLE policy_versions (
    policy integer NOT NULL REFERENCES policies (id),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    rule text NOT NULL,
    archived boolean NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    PRIMARY KEY (policy, version)
);

-- The one place where a subject's text stands: a person can be erased here without touching
-- an entry.
CREATE TABLE accounts (
    id uuid PRIMARY KEY,
    policy integer NOT NULL,
    subject text
);

-- One row an entry, numbered without gaps in its account. `totals` holds what each limit's
-- window held after it: [["day", max, used, start, end], …], instants in seconds since 1970.
-- No foreign keys: they would lock a policy's row for each claim.
CREATE TABLE entries (
    number bigint NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    units bigint NOT NULL CHECK (units > 0),
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    kind smallint NOT NULL,
    account uuid NOT NULL,
    id uuid NOT NULL,
    key uuid,
    totals text NOT NULL,
    metadata text,
    PRIMARY KEY (account, number)
);
CREATE UNIQUE INDEX entries_id ON entries (id);
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
CREATE INDEX entries_policy ON entries (policy, id);

CREATE FUNCTION refuse_to_change_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries are append-only';
END
$$;
CREATE TRIGGER entries_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

CREATE TABLE keys (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    secret_hash bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL
);

-- The instances that serve this ledger just now, and whose rules of time zones they use.
CREATE TABLE instances (
    id uuid PRIMARY KEY,
    zone_rules text NOT NULL,
    seen_at timestamptz NOT NULL
);
