-- Seals: a log of leaves, one for each position of the record, in a Merkle tree (RFC 6962). Beside an
-- override stand 16 random bytes, for leaves that survive the erasure of its subject.
ALTER TABLE overrides ADD COLUMN blind uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE overrides ALTER COLUMN blind DROP DEFAULT;

-- What a leaf keeps of texts that were erased: the digest of its private part. `id` is an entry's id;
-- that of a change has its revision in the last 8 bytes, and 8 zeros before them.
CREATE TABLE erased_leaves (
    id uuid PRIMARY KEY,
    private bytea NOT NULL CHECK (octet_length(private) = 32)
);

-- What the leaves of an account keep of the `blind` that was erased.
CREATE TABLE erased_accounts (
    account uuid PRIMARY KEY,
    pseudonym bytea NOT NULL CHECK (octet_length(pseudonym) = 32)
);

-- The names of the log: `name` is the first line of its checkpoints. Number 1 is the first one; a
-- restart begins the next, with all leaves again.
CREATE TABLE seal_origins (
    number bigint PRIMARY KEY CHECK (number > 0),
    name text NOT NULL UNIQUE,
    begun_at timestamptz NOT NULL
);

-- The hashes of the tree, 32 bytes each. Those of level 0 are of leaves; each of a higher level is of a
-- full tile (256 hashes) of the level below. A row has the hashes from the one with the index `first` on,
-- at most up to the end of their tile. Two sealers cannot both go on from one hash.
CREATE TABLE seal_hashes (
    origin bigint NOT NULL REFERENCES seal_origins (number),
    level smallint NOT NULL,
    first bigint NOT NULL CHECK (first >= 0),
    hashes bytea NOT NULL CHECK (octet_length(hashes) BETWEEN 32 AND 8192),
    PRIMARY KEY (origin, level, first)
);

-- Checkpoints: `note` is the signed text of the tree with the first `size` leaves.
CREATE TABLE seals (
    origin bigint NOT NULL REFERENCES seal_origins (number),
    size bigint NOT NULL CHECK (size > 0),
    note text NOT NULL,
    sealed_at timestamptz NOT NULL,
    PRIMARY KEY (origin, size)
);

CREATE TRIGGER seal_origins_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seal_origins
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER seal_hashes_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seal_hashes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER seals_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
