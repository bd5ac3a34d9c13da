-- The ledger: accounts with numbered, append-only entries, and around them what decides claims (policies,
-- overrides, keys) and what shows later that nobody changed the past (record, acts, seals).
--
-- This file has first the tables, each with its indexes, then the views, and at its end the triggers. It is the
-- twin of migrations/postgres/0001_ledger.sql. Instants are microseconds since 1970; ids are 16 bytes.
--
-- Revisions: each change (a version of a policy, key or override, or an act) takes the next revision of the
-- ledger. `xact` is the order of appending: an entry's is its rowid, a change has that of the newest entry before
-- it, or 0. Together they give the record its one order. (On PostgreSQL it is the number of the transaction.)

-- One row: who this ledger is. `secret` keys the hashes that are the ids of accounts and keys. `revision`
-- counts changes. `erasures` counts how often accounts got other ids: each append compares it with what it was
-- when the last lines were read.
CREATE TABLE ledger (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    id blob NOT NULL,
    secret blob NOT NULL CHECK (length(secret) = 32),
    revision integer NOT NULL DEFAULT 0,
    created_at integer NOT NULL,
    erasures integer NOT NULL DEFAULT 0
) STRICT;


-- Policies.

CREATE TABLE policies (
    id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- `rule` is JSON: the limits, the time zone, and all else that decides. In force at an instant is the highest
-- version whose `effective_at` is not after it.
CREATE TABLE policy_versions (
    policy integer NOT NULL REFERENCES policies (id),
    version integer NOT NULL CHECK (version > 0),
    revision integer NOT NULL UNIQUE,
    rule text NOT NULL,
    archived integer NOT NULL,
    effective_at integer NOT NULL,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact integer NOT NULL,
    PRIMARY KEY (policy, version)
) STRICT;
CREATE INDEX policy_versions_xact ON policy_versions (xact, revision);


-- Overrides and blocks: another `max` for one subject of a policy, or none at all.

-- The subject's text is here and not beside the versions, so that a person can be erased. An override can come
-- before entry 1 of its account. `blind` is 16 random bytes, for leaves that survive the erasure.
CREATE TABLE overrides (
    account blob PRIMARY KEY,
    policy integer NOT NULL REFERENCES policies (id),
    subject text,
    blind blob NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX overrides_policy ON overrides (policy, account);
CREATE INDEX overrides_subject ON overrides (policy, subject) WHERE subject IS NOT NULL;

-- A version changes the override, the block or the tier: `kind` says which. `limits` has what is new
-- (src/ledger/subject_encoding.rs), and `until` is the end of it.
CREATE TABLE override_versions (
    account blob NOT NULL REFERENCES overrides (account),
    version integer NOT NULL CHECK (version > 0),
    revision integer NOT NULL UNIQUE,
    limits text,
    until integer,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact integer NOT NULL,
    kind text NOT NULL GENERATED ALWAYS AS (CASE
        WHEN substr(limits, 1, 11) = '{"blocked":' THEN 'block'
        WHEN substr(limits, 1, 8) = '{"tier":' THEN 'tier'
        ELSE 'override'
    END) STORED,
    PRIMARY KEY (account, version)
) STRICT;
CREATE INDEX override_versions_xact ON override_versions (xact, revision);
CREATE INDEX override_versions_kind ON override_versions (kind, revision);


-- API keys.

-- `number` is a key's small number, from 1 on: an entry has it in `claimed_by`. Number 0 is the key of the
-- settings, which has no row.
CREATE TABLE keys (
    id blob PRIMARY KEY,
    number integer NOT NULL UNIQUE,
    secret_hash blob NOT NULL UNIQUE,
    created_at integer NOT NULL
) STRICT;

-- `policies` is a JSON array of the names that the key is confined to; NULL: all policies. `bounds` is a JSON
-- object with the bounds of a support key; NULL for every other role.
CREATE TABLE key_versions (
    key blob NOT NULL REFERENCES keys (id),
    version integer NOT NULL CHECK (version > 0),
    revision integer NOT NULL UNIQUE,
    name text NOT NULL,
    role text NOT NULL,
    policies text,
    bounds text,
    ends_at integer,
    revoked integer NOT NULL,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact integer NOT NULL,
    PRIMARY KEY (key, version)
) STRICT;
CREATE INDEX key_versions_xact ON key_versions (xact, revision);

-- The days (of UTC) on which a key was used. An instance adds a day some seconds after the first use on it. The
-- rows are no part of the record.
CREATE TABLE key_uses (
    key blob NOT NULL REFERENCES keys (id),
    used_on text NOT NULL,
    PRIMARY KEY (key, used_on)
) STRICT;


-- Accounts: one for each subject of each policy.

-- `id` is a hash of policy and subject. Except for overrides this is the one place where a subject's text is
-- stored, so that a person can be erased without changing totals. `blind` is 16 random bytes, for leaves that
-- survive the erasure.
CREATE TABLE accounts (
    id blob PRIMARY KEY,
    policy integer NOT NULL,
    subject text,
    blind blob NOT NULL
) STRICT, WITHOUT ROWID;
-- Subjects are searched by their beginnings, in the order of their bytes.
CREATE INDEX accounts_subject ON accounts (policy, subject) WHERE subject IS NOT NULL;


-- Entries.

-- What each kind of entry does. The program has the same rows (src/domain/kind.rs). Statements read here what a kind
-- does, and name by its number only a grant (1).
CREATE TABLE entry_kinds (
    kind integer PRIMARY KEY,
    word text NOT NULL UNIQUE,
    -- What the units do in a sum of the usage.
    sign integer NOT NULL CHECK (sign IN (-1, 0, 1)),
    names_grant integer NOT NULL CHECK (names_grant IN (0, 1)),
    -- Whether a hold that the entry names is no longer open.
    ends_hold integer NOT NULL CHECK (ends_hold IN (0, 1) AND (names_grant OR NOT ends_hold)),
    -- The state of the grant that the entry names, if nothing of it is left.
    closes_as text CHECK (ends_hold OR closes_as IS NULL),
    -- Whether the line has the instant of the clock.
    of_clock integer NOT NULL CHECK (of_clock IN (0, 1))
) STRICT;
INSERT INTO entry_kinds (kind, word, sign, names_grant, ends_hold, closes_as, of_clock) VALUES
    (1, 'grant', 1, 0, 0, NULL, 1),
    (2, 'confirmation', 0, 1, 1, NULL, 1),
    (3, 'reversal', -1, 1, 1, 'reversed', 1),
    (4, 'lapse', -1, 1, 1, 'lapsed', 0),
    (5, 'adjustment_up', 1, 0, 0, NULL, 1),
    (6, 'adjustment_down', -1, 0, 0, NULL, 1),
    (7, 'partial_reversal', -1, 1, 0, NULL, 1),
    (8, 'reset', 0, 0, 0, NULL, 1),
    (9, 'calendar', 0, 0, 0, NULL, 1),
    (10, 'top_up', 0, 0, 0, NULL, 1),
    (11, 'top_up_reversal', 0, 1, 0, NULL, 1);

-- One row an entry, numbered without gaps in its account. The last entry of an account is its last line: it is
-- enough for the next decision.
--
-- `id` begins with the milliseconds at which the entry counts. `at` is the instant of the line, never before
-- that of the line before; of a provisional grant or a lapse it can be later than the instant in the id.
-- `key` is the hash of the Idempotency-Key. `claimed_by` is the number of the key that claimed or corrected;
-- NULL for a lapse. `lapses_at` belongs to the line: no open hold of the account lapses before it.
--
-- `flags` is a sum: 1 for a grant that Redis alone decided (provisional), 2 if such a grant went over a limit,
-- 4 for a grant that an observing policy would have denied, 8 for an entry whose texts were erased.
--
-- `totals` holds what each limit's window held after the entry, with a semicolon between limits:
-- d3,1,1763654400+86400 is a letter for the window's length (a day; i is a minute), max, used, the window's
-- start in seconds since 1970, and its length in seconds. Limits of other kinds have other letters
-- (src/domain/limit/text.rs). The zone and the anchor that the account has of its own come before them:
-- @Asia/Tokyo,20484; is the zone and the anchor, in days since 1970. Its top-ups come first: +2:…; means that 2 units of
-- the entry came from top-ups or returned to them, and count in no window (src/domain/line_text.rs).
CREATE TABLE entries (
    xact integer PRIMARY KEY,
    number integer NOT NULL CHECK (number > 0),
    at integer NOT NULL,
    units integer NOT NULL CHECK (units > 0),
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    claimed_by integer,
    kind integer NOT NULL CHECK (kind BETWEEN 1 AND 11),
    flags integer NOT NULL,
    account blob NOT NULL,
    id blob NOT NULL,
    key blob,
    lapses_at integer,
    totals text NOT NULL,
    metadata text
) STRICT;
CREATE UNIQUE INDEX entries_number ON entries (account, number);
CREATE UNIQUE INDEX entries_id ON entries (id);
-- A policy's entries by the first five bytes of their ids, which are their quarters of a second (256 ms).
CREATE INDEX entries_policy ON entries (policy, substr(id, 1, 5));
-- No two grants of a policy have the same Idempotency-Key.
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
CREATE INDEX entries_provisional ON entries (id) WHERE (flags & 1) <> 0;
CREATE INDEX entries_would_deny ON entries (id) WHERE (flags & 4) <> 0;
CREATE INDEX entries_crossed ON entries (id) WHERE flags >= 16;


-- Details of entries.

-- What few entries have: the grant that they name, the end of a hold, who corrected something and why, the limit
-- that a reset names, and the bundle of a grant. `id` and `kind` are those of the entry.
CREATE TABLE entry_details (
    account blob NOT NULL,
    number integer NOT NULL,
    id blob NOT NULL,
    kind integer NOT NULL CHECK (kind BETWEEN 1 AND 11),
    of_grant blob,
    held_until integer,
    made_by text,
    reason text,
    per text,
    bundle blob,
    PRIMARY KEY (account, number),
    CONSTRAINT entry_details_name_grant CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4, 7, 11))),
    CONSTRAINT entry_details_name_limit CHECK (per IS NULL OR kind = 8),
    CONSTRAINT entry_details_name_bundle CHECK (bundle IS NULL OR kind = 1)
) STRICT, WITHOUT ROWID;
-- A grant has at most one confirmation (kind 2), at most one entry that closes it (kinds 3 and 4), and any
-- number of partial reversals (kind 7). A top-up has at most one entry that takes it back (kind 11).
CREATE UNIQUE INDEX entry_details_of_grant
    ON entry_details (of_grant, (CASE kind WHEN 7 THEN number WHEN 2 THEN 0 ELSE -1 END))
    WHERE of_grant IS NOT NULL;
CREATE INDEX entry_details_held ON entry_details (account, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_holds ON entry_details (id) WHERE held_until IS NOT NULL;
-- The sweep records lapses soon after the ends of holds, also if no claim comes: it reads the ends in this order.
CREATE INDEX entry_details_ends ON entry_details (held_until, id) WHERE held_until IS NOT NULL;
-- Entries of the kinds that few entries have are listed by kind, over all policies and days.
CREATE INDEX entry_details_kinds ON entry_details (kind, id) WHERE kind <> 1;
CREATE INDEX entry_details_bundle ON entry_details (bundle) WHERE bundle IS NOT NULL;

-- How far the sweep came, and how many turns it took. One row. The first sweep reads every hold.
CREATE TABLE lapses_mark (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    recorded_until integer NOT NULL,
    turn integer NOT NULL
) STRICT;
INSERT INTO lapses_mark (recorded_until, turn) VALUES (0, 0);

-- The usage of limits that all subjects of a policy share, a row a window: the sum of the entries in it that
-- versions from `since` on decided. An append locks the row and changes it with its entries. It is derived: the
-- entries say the same. The window without an end starts at the epoch.
CREATE TABLE shared_use (
    policy integer NOT NULL REFERENCES policies (id),
    since integer NOT NULL,
    per text NOT NULL,
    starts_at integer NOT NULL,
    used integer NOT NULL,
    PRIMARY KEY (policy, since, per, starts_at)
) STRICT, WITHOUT ROWID;


-- The record: one order of all entries and all changes, which never changes.
--
-- An entry or a change has a place: its `xact`, then its id. A change has the highest blob of 16 bytes as its id,
-- and then its revision. The account is not part of the place: it is replaced when a subject is erased, and an
-- order of accounts would tell who it was. A follower gives the positions 1, 2, 3 … in the order of places.

-- A mark gives the positions above `after` and up to `position` to the places up to (xact, id, revision).
-- `recorded_at` is when it gave them. The primary key keeps two followers from going on from one position.
CREATE TABLE record_marks (
    after integer PRIMARY KEY CHECK (after >= 0),
    position integer NOT NULL UNIQUE CHECK (position > after),
    xact integer NOT NULL,
    id blob NOT NULL,
    revision integer NOT NULL,
    recorded_at integer NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_marks_place ON record_marks (xact, id, revision);
CREATE INDEX record_marks_recorded ON record_marks (recorded_at, after);


-- Statistics: figures of each policy and local day, made from the entries in the order of the record. Days are
-- texts like 2026-11-03.

-- `counted_on` is the local day on which the entries count, `recorded_on` the one on which they got their
-- positions. A figure that is 0 has no row. A figure only grows, on a day that is open (day_figures_grow_…).
CREATE TABLE day_figures (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    recorded_on text NOT NULL,
    figure text NOT NULL,
    value integer NOT NULL CHECK (value > 0),
    PRIMARY KEY (policy, counted_on, recorded_on, figure)
) STRICT;
CREATE INDEX day_figures_days ON day_figures (counted_on, policy);

-- The position up to which entries are in the figures. One row. To make the figures again, set it to 0. Figures
-- that were recorded up to the day `kept_to` cannot be made again, because their entries may be dropped.
CREATE TABLE day_figures_mark (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    position integer NOT NULL,
    kept_to text
) STRICT;
INSERT INTO day_figures_mark (position) VALUES (0);

-- Days whose figures are not in the record yet. An hour after `ends_at`, and after they changed last, an act
-- tells them there, and the row goes. So a figure that was told changes only with another act.
CREATE TABLE open_days (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    ends_at integer NOT NULL,
    changed_at integer NOT NULL,
    PRIMARY KEY (policy, counted_on)
) STRICT;
CREATE INDEX open_days_end ON open_days (ends_at);

-- How many claims an instance denied, from its start (`run`) on. `not_kept` counts denials that might have been
-- the first of their window, but came too fast to have a row in first_denials.
CREATE TABLE denied_claims (
    run blob NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    denied integer NOT NULL,
    not_kept integer NOT NULL,
    PRIMARY KEY (run, policy, counted_on)
) STRICT;
CREATE INDEX denied_claims_days ON denied_claims (counted_on, policy);

-- The first denial of an account in a window, for 30 days. `per` and `window_start` name the window that lacked
-- room. `totals` is as in `entries`.
CREATE TABLE first_denials (
    account blob NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    per text NOT NULL,
    window_start integer NOT NULL,
    denied_at integer NOT NULL,
    units integer NOT NULL,
    policy_version integer NOT NULL,
    totals text NOT NULL,
    PRIMARY KEY (account, per, window_start)
) STRICT;
CREATE INDEX first_denials_at ON first_denials (denied_at);
CREATE INDEX first_denials_policy ON first_denials (policy, denied_at);

-- Charts: the figures of each policy and quarter hour of UTC, for 14 days. No part of the record. Entries count in
-- the quarter hour of their own instant. `given_back_units` are those of reversals and lapses. What is made with
-- `day_figures` goes and is made again with it.
CREATE TABLE quarter_figures (
    policy integer NOT NULL REFERENCES policies (id),
    starts_at integer NOT NULL,
    grants integer NOT NULL,
    units integer NOT NULL,
    given_back_units integer NOT NULL,
    PRIMARY KEY (policy, starts_at)
) STRICT;
CREATE INDEX quarter_figures_start ON quarter_figures (starts_at, policy);

-- How many claims an instance denied in a quarter hour, in a run as in `denied_claims`.
CREATE TABLE quarter_denials (
    run blob NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    starts_at integer NOT NULL,
    denied integer NOT NULL,
    PRIMARY KEY (policy, starts_at, run)
) STRICT;
CREATE INDEX quarter_denials_start ON quarter_denials (starts_at, policy);


-- Acts: what somebody did with the record, such as an export or an erasure.

-- `about` is JSON: what exactly was done. `blind` is 16 random bytes, for leaves that survive an erasure.
CREATE TABLE acts (
    revision integer PRIMARY KEY,
    kind text NOT NULL,
    about text NOT NULL,
    changed_at integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    blind blob NOT NULL,
    xact integer NOT NULL
) STRICT;
CREATE INDEX acts_xact ON acts (xact, revision);
CREATE INDEX acts_kind ON acts (kind, revision);
CREATE INDEX acts_cuts ON acts (revision) WHERE kind = 'cut';
-- Reads of a subject, for whoever asks who looked at it, and for its erasure.
CREATE INDEX acts_reads ON acts (about ->> '$.filters.subject', revision) WHERE kind = 'read';


-- Seals: a log of leaves, one for each position of the record, in a Merkle tree (RFC 6962).

-- The names of the log: `name` is the first line of its checkpoints. Number 1 is the first one; a restart begins
-- the next, with all leaves again.
CREATE TABLE seal_origins (
    number integer PRIMARY KEY CHECK (number > 0),
    name text NOT NULL UNIQUE,
    begun_at integer NOT NULL
) STRICT;

-- The hashes of the tree, 32 bytes each. Those of level 0 are of leaves; each of a higher level is of a full
-- tile (256 hashes) of the level below. A row has the hashes from the one with the index `first` on, at most up
-- to the end of their tile. The primary key keeps two sealers from going on from one hash.
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


-- Reconciliations.

-- `finished_at` stays NULL if the instance died before the end. `ledger` says whether the whole ledger is
-- checked, or a part of it: what is new above the position `checked_to` of the report before, and the accounts
-- from its `next_account` on.
CREATE TABLE reconciliations (
    id blob PRIMARY KEY,
    started_at integer NOT NULL,
    requested_by text,
    apply integer NOT NULL,
    finished_at integer,
    counters_compared text,
    accounts integer NOT NULL DEFAULT 0,
    entries integer NOT NULL DEFAULT 0,
    counters integer NOT NULL DEFAULT 0,
    differences integer NOT NULL DEFAULT 0,
    healed integer NOT NULL DEFAULT 0,
    alarms integer NOT NULL DEFAULT 0,
    ledger text NOT NULL,
    checked_to integer,
    next_account blob
) STRICT;
CREATE INDEX reconciliations_applied ON reconciliations (started_at) WHERE apply;
CREATE INDEX reconciliations_finished ON reconciliations (finished_at);

-- What differed: an account, or a `figure` of a policy and a day, which has no account. `windows` holds the
-- values of an account: [["day", start, end, found, expected], …], instants in seconds since 1970. A subject's
-- text is beside its account, and not here.
CREATE TABLE differences (
    reconciliation blob NOT NULL REFERENCES reconciliations (id),
    position integer NOT NULL,
    kind text NOT NULL,
    account blob,
    policy integer,
    counted_on text,
    figure text,
    found integer,
    expected integer,
    windows text NOT NULL,
    healed integer NOT NULL,
    PRIMARY KEY (reconciliation, position)
) STRICT;


-- Erasure of subjects, in two steps: their texts at once, and the ids of their accounts once the windows of
-- their last lines are over. What was erased stays provable, because its leaves keep digests.

-- The accounts that are being erased. `account` becomes the random `replacement`. `subject` is the name that
-- the account had, while its texts are being erased: the digests of its leaves are made with it, and no view
-- shows it. `revision` is the act that erased.
--
-- `step` is 1 while texts are erased; 2 until the account gets its new id; 3 until its counter is forgotten; 4
-- until its keys are cleared, and then the row is deleted. `done` is the number of the last entry that a step
-- has done. `override_ended` says that the account's override was ended.
CREATE TABLE erasing_accounts (
    replacement blob PRIMARY KEY,
    account blob NOT NULL,
    policy integer NOT NULL,
    subject text,
    revision integer NOT NULL,
    step integer NOT NULL CHECK (step BETWEEN 1 AND 4),
    done integer NOT NULL DEFAULT 0,
    override_ended integer NOT NULL DEFAULT 0,
    due_at integer NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX erasing_accounts_account ON erasing_accounts (account) WHERE step < 3;
CREATE INDEX erasing_accounts_old ON erasing_accounts (account);
CREATE INDEX erasing_accounts_due ON erasing_accounts (due_at);

-- What a leaf keeps of texts that were erased: the digest of its private part. `id` is an entry's id; that of a
-- change has its revision in the last 8 bytes, and 8 zeros before them.
CREATE TABLE erased_leaves (
    id blob PRIMARY KEY,
    private blob NOT NULL CHECK (length(private) = 32)
) STRICT;

-- What the leaves of an account keep of the `blind` that was erased.
CREATE TABLE erased_accounts (
    account blob PRIMARY KEY,
    pseudonym blob NOT NULL CHECK (length(pseudonym) = 32)
) STRICT;


-- Archives and cuts. Entries that were archived can be dropped, up to a cut: an act of the kind `cut`, which is
-- sealed, and which tells the archive's last position. Of its entries up to that position an account keeps the
-- last one, and all from its first hold on that was open then.

-- The places of entries that were dropped: their positions, and the hashes of their leaves, stay. There is no
-- account here, so there is nothing to erase. `revision` is the cut, and `bundle` that of a grant.
CREATE TABLE dropped_entries (
    xact integer NOT NULL,
    id blob NOT NULL,
    revision integer NOT NULL REFERENCES acts (revision),
    policy integer NOT NULL,
    bundle blob,
    PRIMARY KEY (xact, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX dropped_entries_id ON dropped_entries (id);
CREATE INDEX dropped_entries_bundle ON dropped_entries (bundle) WHERE bundle IS NOT NULL;

-- `entry` is the first one that its account still has; the last one before it was appended at `at`.
CREATE TABLE cuts (
    entry blob PRIMARY KEY,
    at integer NOT NULL,
    revision integer NOT NULL REFERENCES acts (revision)
) STRICT, WITHOUT ROWID;


-- Instances.

-- The instances that serve this ledger now, and whose rules of time zones they use.
CREATE TABLE instances (
    id blob PRIMARY KEY,
    zone_rules text NOT NULL,
    seen_at integer NOT NULL
) STRICT;


-- Views: what statements of perdiem share, and what people and programs may read beside the API
-- (docs/operations/views.md). PostgreSQL and SQLite have the same views with the same columns.
--
-- `policy_id` is the number of a policy, and `policy` its name. A view that few tables make is cheap where a
-- statement chooses rows by it; the others name what stands beside the chosen rows.

-- An entry with its details.
CREATE VIEW entry_rows AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, e.policy_version, e.kind, e.units, e.flags, e.key,
    e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
    d.bundle
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number;

-- An entry with the grant that it names, and with the instant in whose windows it counts, as an id: its own id,
-- or that of the grant. Most entries are grants, which name none, so their details are not read.
CREATE VIEW counted_entries AS
SELECT e.account, e.number, e.id, e.at, e.policy_id, e.policy_version, e.kind, e.units, e.flags, e.key,
    e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact, e.of_grant, COALESCE(e.of_grant, e.id) AS counted_id
FROM (
    SELECT entries.account, entries.number, entries.id, at, policy AS policy_id, policy_version, entries.kind,
        units, flags, key, claimed_by, lapses_at, totals, metadata, xact, CASE WHEN entries.kind <> 1 THEN (
            SELECT of_grant FROM entry_details AS d
            WHERE d.account = entries.account AND d.number = entries.number
        ) END AS of_grant
    FROM entries
) AS e;

-- An API key with its present name.
CREATE VIEW named_keys AS
SELECT k.id, k.number, (
    SELECT v.name FROM key_versions AS v WHERE v.key = k.id ORDER BY v.version DESC LIMIT 1
) AS name
FROM keys AS k;

-- An entry with its details and the names of all that it has by number. `subject` is NULL after an erasure.
CREATE VIEW listed_entries AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, p.name AS policy, e.policy_version, a.subject,
    e.kind, e.units, e.flags, e.key, e.claimed_by, k.id AS made_by_key, k.name AS made_by_name, e.lapses_at,
    e.totals, e.metadata, e.xact, d.of_grant, COALESCE(d.of_grant, e.id) AS counted_id, d.held_until, d.made_by,
    d.reason, d.per, d.bundle
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
JOIN policies AS p ON p.id = e.policy
JOIN accounts AS a ON a.id = e.account
LEFT JOIN named_keys AS k ON k.number = e.claimed_by;

-- An entry that names the grant `of_grant`, with what its kind does.
CREATE VIEW followers AS
SELECT d.of_grant, d.account, d.number, d.id, e.at, d.kind, k.sign, k.ends_hold, k.closes_as, e.units, d.made_by,
    d.reason
FROM entry_details AS d
JOIN entries AS e ON e.account = d.account AND e.number = d.number
JOIN entry_kinds AS k ON k.kind = d.kind
WHERE d.of_grant IS NOT NULL;

-- An entry that gives a part of the grant `of_grant` back.
CREATE VIEW partial_reversals AS
SELECT d.of_grant, d.account, d.number, d.id, e.at, e.units
FROM entry_details AS d
JOIN entries AS e ON e.account = d.account AND e.number = d.number
WHERE d.kind IN (SELECT kind FROM entry_kinds WHERE sign < 0 AND closes_as IS NULL);

-- A grant, with what its state depends on: until when it is held, and as what an entry ended it ('granted' for a
-- hold that was confirmed). Without such an entry a hold is lapsed from `held_until` on.
CREATE VIEW grant_states AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, e.units, e.flags, e.key, e.claimed_by, e.metadata, (
    SELECT d.held_until FROM entry_details AS d WHERE d.account = e.account AND d.number = e.number
) AS held_until, (
    SELECT COALESCE(max(k.closes_as), max('granted')) FROM entry_details AS f
    JOIN entry_kinds AS k ON k.kind = f.kind WHERE f.of_grant = e.id AND k.ends_hold
) AS ended_as
FROM entries AS e WHERE e.kind = 1;

-- A grant with its details and its names, and with the entries that name it: the confirmation, the one that closed
-- it, and the sum and the number of partial reversals. `state` is that of the record: a hold is 'held' until its
-- lapse is recorded.
CREATE VIEW grant_rows AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id,
    (SELECT p.name FROM policies AS p WHERE p.id = e.policy) AS policy, e.policy_version,
    (SELECT a.subject FROM accounts AS a WHERE a.id = e.account) AS subject,
    e.kind, e.units, e.flags, e.key, e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact,
    d.of_grant, d.held_until, d.made_by, d.reason, d.per, d.bundle,
    COALESCE(k.closes_as, CASE WHEN d.held_until IS NULL OR c.id IS NOT NULL THEN 'granted' ELSE 'held' END)
        AS state,
    c.id AS confirmation, c.kind AS confirmation_kind, ce.at AS confirmed_at, ce.units AS confirmed_units,
    c.made_by AS confirmed_by,
    x.id AS closing, x.kind AS closing_kind, xe.at AS closed_at, xe.units AS closed_units, x.made_by AS closed_by,
    x.reason AS closing_reason,
    (SELECT COALESCE(SUM(r.units), 0) FROM partial_reversals AS r WHERE r.of_grant = e.id) AS returned,
    (SELECT COUNT(*) FROM partial_reversals AS r WHERE r.of_grant = e.id) AS parts
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
LEFT JOIN entry_details AS c ON c.of_grant = e.id
    AND c.kind IN (SELECT kind FROM entry_kinds WHERE ends_hold AND closes_as IS NULL)
LEFT JOIN entries AS ce ON ce.account = c.account AND ce.number = c.number
LEFT JOIN entry_details AS x ON x.of_grant = e.id
    AND x.kind IN (SELECT kind FROM entry_kinds WHERE closes_as IS NOT NULL)
LEFT JOIN entries AS xe ON xe.account = x.account AND xe.number = x.number
LEFT JOIN entry_kinds AS k ON k.kind = x.kind
WHERE e.kind = 1;

-- A version of a policy.
CREATE VIEW policy_rows AS
SELECT v.policy AS policy_id, p.name AS policy, v.version, v.revision, v.rule, v.archived, v.effective_at,
    v.changed_at, v.changed_by, v.reason, v.xact
FROM policy_versions AS v JOIN policies AS p ON p.id = v.policy;

-- A version of an override, a block or a tier, with the policy and the subject. `subject` is NULL after an erasure.
CREATE VIEW override_rows AS
SELECT v.account, o.policy AS policy_id, p.name AS policy, o.subject, v.version, v.revision, v.kind, v.limits,
    v.until, v.changed_at, v.changed_by, v.reason, v.xact
FROM override_versions AS v
JOIN overrides AS o ON o.account = v.account
JOIN policies AS p ON p.id = o.policy;

-- A change: a version of a policy, a key, an override, a block or a tier, or an act, whose own kind it has.
CREATE VIEW change_rows AS
SELECT xact, revision, 'policy' AS kind, changed_at, changed_by, reason FROM policy_versions
UNION ALL SELECT xact, revision, 'key', changed_at, changed_by, reason FROM key_versions
UNION ALL SELECT xact, revision, kind, changed_at, changed_by, reason FROM override_versions
UNION ALL SELECT xact, revision, kind, changed_at, changed_by, reason FROM acts;


-- Triggers: no statement changes the past. SQLite has no roles, so anyone who has the file can drop them, and
-- then the seals show what was changed. (PostgreSQL has more triggers, for what the role of the service may insert.)

CREATE TRIGGER entry_kinds_are_append_only_update BEFORE UPDATE ON entry_kinds
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entry_kinds_are_append_only_delete BEFORE DELETE ON entry_kinds
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

-- An update of an entry may only erase: its metadata and its key, and its account becomes the replacement. The
-- digest of what is erased is in erased_leaves.
CREATE TRIGGER entries_are_append_only_update BEFORE UPDATE ON entries
WHEN (NEW.xact, NEW.number, NEW.at, NEW.units, NEW.policy, NEW.policy_version, NEW.kind, NEW.id,
        NEW.totals)
    <> (OLD.xact, OLD.number, OLD.at, OLD.units, OLD.policy, OLD.policy_version, OLD.kind, OLD.id,
        OLD.totals)
    OR NEW.claimed_by IS NOT OLD.claimed_by
    OR NEW.lapses_at IS NOT OLD.lapses_at
    OR NEW.flags <> OLD.flags | 8
    OR NEW.metadata IS NOT NULL
    OR NEW.key IS NOT NULL AND NEW.key IS NOT OLD.key
    OR NOT EXISTS (SELECT 1 FROM erased_leaves WHERE id = OLD.id)
    OR NOT EXISTS (
        SELECT 1 FROM erasing_accounts
        WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
-- An entry may be deleted where its place is noted as dropped, and it is not its account's last one.
CREATE TRIGGER entries_are_append_only_delete BEFORE DELETE ON entries
WHEN NOT EXISTS (SELECT 1 FROM dropped_entries WHERE xact = OLD.xact AND id = OLD.id)
    OR (SELECT number FROM entries WHERE account = OLD.account ORDER BY number DESC LIMIT 1)
        <= OLD.number
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

CREATE TRIGGER entry_details_are_append_only_update BEFORE UPDATE ON entry_details
WHEN (NEW.number, NEW.id, NEW.kind) <> (OLD.number, OLD.id, OLD.kind)
    OR NEW.of_grant IS NOT OLD.of_grant
    OR NEW.held_until IS NOT OLD.held_until
    OR NEW.made_by IS NOT OLD.made_by
    OR NEW.per IS NOT OLD.per
    OR NEW.bundle IS NOT OLD.bundle
    OR NEW.reason IS NOT NULL
    OR NOT EXISTS (SELECT 1 FROM erased_leaves WHERE id = OLD.id)
    OR NOT EXISTS (
        SELECT 1 FROM erasing_accounts
        WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER entry_details_are_append_only_delete BEFORE DELETE ON entry_details
WHEN NOT EXISTS (SELECT 1 FROM dropped_entries WHERE id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

CREATE TRIGGER record_marks_are_append_only_update BEFORE UPDATE ON record_marks
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER record_marks_are_append_only_delete BEFORE DELETE ON record_marks
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

CREATE TRIGGER day_figures_grow_insert BEFORE INSERT ON day_figures
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'the figures of a closed day stay');
END;
CREATE TRIGGER day_figures_grow_update BEFORE UPDATE ON day_figures
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
    OR NEW.value < OLD.value
    OR (NEW.policy, NEW.counted_on, NEW.recorded_on, NEW.figure)
        <> (OLD.policy, OLD.counted_on, OLD.recorded_on, OLD.figure)
BEGIN
    SELECT RAISE(ABORT, 'a figure only grows');
END;
-- Figures go only where all are made again, and not where their entries may be dropped.
CREATE TRIGGER day_figures_are_kept BEFORE DELETE ON day_figures
WHEN EXISTS (SELECT 1 FROM day_figures_mark WHERE position <> 0 OR OLD.recorded_on <= kept_to)
BEGIN
    SELECT RAISE(ABORT, 'figures stay until all are made again');
END;
-- The mark of the figures follows the record.
CREATE TRIGGER day_figures_mark_follows BEFORE UPDATE ON day_figures_mark
WHEN NEW.position < OLD.position AND NEW.position <> 0
    OR NEW.position > COALESCE((SELECT position FROM record_marks ORDER BY after DESC LIMIT 1), 0)
    OR OLD.kept_to > COALESCE(NEW.kept_to, '')
BEGIN
    SELECT RAISE(ABORT, 'the figures follow the record');
END;
-- The figures that can be made again go with the mark. No quarter hour is kept as long as an entry that may be
-- dropped, so all quarter hours can be made again.
CREATE TRIGGER day_figures_are_made_again AFTER UPDATE ON day_figures_mark WHEN NEW.position = 0
BEGIN
    DELETE FROM day_figures WHERE NEW.kept_to IS NULL OR recorded_on > NEW.kept_to;
    DELETE FROM quarter_figures;
END;

-- A day closes in the transaction that adds its act: the act is the newest change.
CREATE TRIGGER open_days_close BEFORE DELETE ON open_days
WHEN NOT EXISTS (
    SELECT 1 FROM ledger AS l JOIN acts AS a ON a.revision = l.revision
    JOIN policies AS p ON p.name = a.about ->> 'policy'
    WHERE a.kind = 'day' AND p.id = OLD.policy AND a.about ->> 'date' = OLD.counted_on
)
BEGIN
    SELECT RAISE(ABORT, 'a day closes with the act that tells its figures');
END;

CREATE TRIGGER denied_claims_grow_insert BEFORE INSERT ON denied_claims
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'the denials of a closed day stay');
END;
CREATE TRIGGER denied_claims_grow_update BEFORE UPDATE ON denied_claims
WHEN NOT EXISTS (SELECT 1 FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on)
    OR NEW.denied < OLD.denied
    OR NEW.not_kept < OLD.not_kept
    OR (NEW.run, NEW.policy, NEW.counted_on) <> (OLD.run, OLD.policy, OLD.counted_on)
BEGIN
    SELECT RAISE(ABORT, 'a count of denials only grows');
END;
CREATE TRIGGER denied_claims_stay BEFORE DELETE ON denied_claims
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

CREATE TRIGGER first_denials_stay BEFORE UPDATE ON first_denials
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
-- A first denial goes after 30 days, or in an erasure: its act is the newest change. The clock is that of the
-- instances; the last of the 30 days is for what their clocks differ.
CREATE TRIGGER first_denials_go BEFORE DELETE ON first_denials
WHEN NOT COALESCE(OLD.denied_at < (SELECT MAX(seen_at) FROM instances) - 2505600000000, 0)
    AND NOT EXISTS (SELECT 1 FROM erasing_accounts WHERE account = OLD.account)
    AND NOT EXISTS (
        SELECT 1 FROM ledger AS l JOIN acts AS a ON a.revision = l.revision WHERE a.kind = 'erasure'
    )
BEGIN
    SELECT RAISE(ABORT, 'a first denial is kept for 30 days');
END;

-- An act may only lose texts whose digest is in erased_leaves.
CREATE TRIGGER acts_are_append_only_update BEFORE UPDATE ON acts
WHEN (NEW.revision, NEW.kind, NEW.changed_at, NEW.changed_by, NEW.xact)
    <> (OLD.revision, OLD.kind, OLD.changed_at, OLD.changed_by, OLD.xact)
    OR NEW.reason IS NOT OLD.reason
    OR NOT EXISTS (
        SELECT 1 FROM erased_leaves WHERE id = unhex(printf('%032x', OLD.revision))
    )
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER acts_are_append_only_delete BEFORE DELETE ON acts
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;

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

-- The place of an entry is noted as dropped where a sealed cut has it. The cut was recorded as many days after its
-- last position as it tells, and as many days after the entry as its policy keeps keys. `perdiem verify` also looks at
-- windows.
CREATE TRIGGER dropped_entries_are_of_a_cut BEFORE INSERT ON dropped_entries
WHEN NOT EXISTS (
    SELECT 1 FROM acts AS a
    JOIN record_marks AS m ON m.position = a.about ->> 'last_position'
    JOIN record_marks AS s ON s.position = (
        SELECT position FROM record_marks
        WHERE (xact, id, revision)
            >= (a.xact, unhex('ffffffffffffffffffffffffffffffff'), a.revision)
        ORDER BY xact, id, revision LIMIT 1
    )
    WHERE a.revision = NEW.revision AND a.kind = 'cut'
        AND (NEW.xact, NEW.id) <= (m.xact, m.id)
        AND m.recorded_at <= s.recorded_at - (a.about ->> 'age_days') * 86400000000
        AND NEW.policy = (SELECT policy FROM entries WHERE xact = NEW.xact AND id = NEW.id)
        AND (
            SELECT recorded_at FROM record_marks
            WHERE (xact, id, revision) >= (NEW.xact, NEW.id, 0) ORDER BY xact, id, revision LIMIT 1
        ) <= s.recorded_at - 86400000000 * COALESCE((
            SELECT v.rule ->> 'idempotency_days' FROM policy_versions AS v
            WHERE v.policy = NEW.policy AND v.revision < a.revision ORDER BY v.version DESC LIMIT 1
        ), 400)
        AND s.position <= (SELECT size FROM seals ORDER BY origin DESC, size DESC LIMIT 1)
)
BEGIN
    SELECT RAISE(ABORT, 'no sealed cut has this entry');
END;
CREATE TRIGGER dropped_entries_are_append_only_update BEFORE UPDATE ON dropped_entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
CREATE TRIGGER dropped_entries_are_append_only_delete BEFORE DELETE ON dropped_entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
