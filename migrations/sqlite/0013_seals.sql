-- Seals: a log of leaves, one for each position of the record, in a Merkle tree (RFC 6962). Beside an
-- override stand 16 random bytes, for leaves that survive the erasure of its subject.
ALTER TABLE overrides ADD COLUMN blind blob;
UPDATE overrides SET blind = randomblob(16);

-- What a leaf keeps of texts that were erased: the digest of its private part. `id` is an entry's id;
-- that of a change has its revision in the last 8 bytes, and 8 zeros before them.
CREATE TABLE erased_leaves (
    id blob PRIMARY KEY,
    private blob NOT NULL CHECK (length(private) = 32)
) STRICT;

-- What the leaves of an account keep of the `blind` that was erased.
CREATE TABLE erased_accounts (
    account blob PRIMARY KEY,
    pseudonym blob NOT NULL CHECK (length(pseudonym) = 32)
) STRICT;

-- The names of the log: `name` is the first line of its checkpoints. Number 1 is the first one; a
-- restart begins the next, with all leaves again.
CREATE TABLE seal_origins (
    number integer PRIMARY KEY CHECK (number > 0),
    name text NOT NULL UNIQUE,
    begun_at integer NOT NULL
) STRICT;

-- The hashes of the tree, 32 bytes each. Those of level 0 are of leaves; each of a higher level is of a
-- full tile (256 hashes) of the level below. A row has the hashes from the one with the index `first` on,
-- at most up to the end of their tile. Two sealers cannot both go on from one hash.
CREATE TABLE seal_hashes (
    origin integer NOT NULL REFERENCES seal_origins (number),
    level integer NOT NULL,
    first integer NOT NULL CHECK (first >= 0),
    hashes blob NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192),
    PRIMARY KEY (origin, level, first)
) STRICT;

-- Checkpoints: `note` is the signed text of the tree with the first `size` leaves.
CREATE TABLE seals (
    origin integer NOT NULL REFERENCES seal_origins (number),
    size integer NOT NULL CHECK (size > 0),
    note text NOT NULL,
    sealed_at integer NOT NULL,
    PRIMARY KEY (origin, size)
) STRICT;

CREATE TRIGGER seal_origins_are_append_only_update BEFORE UPDATE ON seal_origins
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER seal_origins_are_append_only_delete BEFORE DELETE ON seal_origins
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER seal_hashes_are_append_only_update BEFORE UPDATE ON seal_hashes
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER seal_hashes_are_append_only_delete BEFORE DELETE ON seal_hashes
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER seals_are_append_only_update BEFORE UPDATE ON seals
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER seals_are_append_only_delete BEFORE DELETE ON seals
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
