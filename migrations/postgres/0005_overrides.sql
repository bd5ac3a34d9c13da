-- When a policy's version takes effect: in force at an instant is the highest version whose
-- `effective_at` is not after it.
ALTER TABLE policy_versions ADD COLUMN effective_at timestamptz;
UPDATE policy_versions SET effective_at = changed_at;
ALTER TABLE policy_versions ALTER COLUMN effective_at SET NOT NULL;

-- Another `max` for one subject of a policy. The subject's text stands here, and not beside the
-- versions, so that a person can be erased: an override may come before the account's entry 1.
CREATE TABLE overrides (
    account uuid PRIMARY KEY,
    policy integer NOT NULL REFERENCES policies (id),
    subject text
);
CREATE INDEX overrides_policy ON overrides (policy, account);

-- `limits` as in a rule, NULL where the override was deleted.
CREATE TABLE override_versions (
    account uuid NOT NULL REFERENCES overrides (account),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    limits text,
    until timestamptz,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    PRIMARY KEY (account, version)
);
