-- When a policy's version takes effect: in force at an instant is the highest version whose
-- `effective_at` is not after it. Instants are microseconds since 1970; ids are 16 bytes.
ALTER TABLE policy_versions ADD COLUMN effective_at integer NOT NULL DEFAULT 0;
UPDATE policy_versions SET effective_at = changed_at;

-- Another `max` for one subject of a policy. The subject's text stands here, and not beside the
-- versions, so that a person can be erased: an override may come before the account's entry 1.
CREATE TABLE overrides (
    account blob PRIMARY KEY,
    policy integer NOT NULL REFERENCES policies (id),
    subject text
) STRICT, WITHOUT ROWID;
CREATE INDEX overrides_policy ON overrides (policy, account);

-- `limits` as in a rule, NULL where the override was deleted.
CREATE TABLE override_versions (
    account blob NOT NULL REFERENCES overrides (account),
    version integer NOT NULL CHECK (version > 0),
    revision integer NOT NULL UNIQUE,
    limits text,
    until integer,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    PRIMARY KEY (account, version)
) STRICT;
