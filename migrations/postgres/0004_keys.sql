-- Keys have versions, as policies have: a role, perhaps policies that they are confined to (a
-- JSON array of names) and an end. Keys that were made before had one version each, an admin's.
-- `revision` is of the same count as that of policy_versions.
CREATE TABLE key_versions (
    key uuid NOT NULL REFERENCES keys (id),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    name text NOT NULL,
    role text NOT NULL,
    policies text,
    ends_at timestamptz,
    revoked boolean NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    PRIMARY KEY (key, version)
);

INSERT INTO key_versions
    (key, version, revision, name, role, revoked, changed_at, changed_by)
SELECT k.id, 1, l.revision + row_number() OVER (ORDER BY k.id), k.name, k.role, false,
    k.created_at, 'perdiem'
FROM keys AS k CROSS JOIN ledger AS l;

UPDATE ledger SET revision = revision + (SELECT count(*) FROM keys);

ALTER TABLE keys DROP COLUMN name, DROP COLUMN role;
